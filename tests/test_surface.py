"""One surface: what all estimators have in common for those who call them."""

import inspect
import re
from importlib import import_module

import pytest

import nearfar
from nearfar import all_estimators

ESTIMATORS = all_estimators()

# Parameters that mean something else in some estimators, with the reason.
OTHERWISE = {
    "embedding": {"LFDA": "the length of the rows"},
    "basis": {"SCML": "directions of a metric"},
    "beta": {"SCML": "of a penalty"},
    "estimator": {
        "MKLClassifier": "a kernel learner",
        "IFEM": "a classifier, fitted for each feature",
        "EnergyClassifier": "energies instead of neighbours",
        "KernelLMNN": "settings of LMNN",
        "KernelMGMKLD": "settings of MGMKLD",
        "KernelMMC": "settings of MMC",
        "KernelPOLA": "settings of POLA",
        "MinimumMahalanobisClassifier": "moments instead of neighbours",
        "MultiMetricLMNN": "settings of LMNN, and of its first map",
        "MultiPassLMNN": "settings of LMNN",
        "MultimodalKernelMGMKLD": "settings of MultimodalMGMKLD",
        "PairClassifier": "distances of pairs instead of neighbors",
    },
    "gamma": {
        "ConformalSVC": "of fewer kernels",
        "ITML": "of slacks, as in the paper",
        "LFMSVMClassifier": "of fewer kernels",
        "LSSTM": "of errors, as in the paper",
    },
    "C": {"STM": "of tensors, with their unit"},
    "coef0": {"LFMSVMClassifier": "of fewer kernels"},
    "graph": {"TensorGraphEmbedding": "weights of two graphs"},
    "kernel": {"ConformalSVC": "of rows about their mean"},
    "metric": {
        "ClassicalMDS": "says whether X contains points or distances",
        "GaitRecognizer": "between cycles of a gait",
    },
    "n_basis": {"SCML": "directions of a metric"},
    "n_clusters": {"MODA": "parts of each class"},
    "n_landmarks": {"LandmarkIsomap": "rows of a graph", "LandmarkMVU": "rows of a graph"},
    "n_neighbors": {
        "ADAMENNClassifier": "points that vote",
        "DANNClassifier": "points that vote",
        "EnergyClassifier": "points of each class that pull",
        "FriedmanClassifier": "points that vote",
        "KNNClassifier": "points that vote",
        "KNNRegressor": "points that are averaged",
        "LFMSVMClassifier": "points that vote",
        "LMNN": "targets",
        "MDML": "targets",
        "MVEMClassifier": "points that vote",
        "NCA": "points that may be chosen",
        "QuasiconformalClassifier": "points that vote",
        "MultiMetricLMNN": "points that vote",
        "ShortFukunagaClassifier": "points that vote",
        "SetKNeighborsClassifier": "sets that vote",
    },
    "n_pca_components": {"LDA": "for some of the solvers"},
    "objective": {"NCA": "what is maximised"},
    "priors": {"ODA": "weights of pairs"},
    "push_weight": {
        "MDML": "of a sum of hinges, without a weight of the pull terms",
        "EnergyClassifier": "of the hinges, and may be that of the learner",
    },
    "refine": {"STM": "of factors"},
    "rule": {"MultiMetricLMNN": "two ways to predict"},
    "selection": {"TwoDLDA": "of an iteration instead of a start"},
    "solver": {
        "LDA": "closed forms",
        "LMNN": "the algorithm of the work",
        "MMC": "the algorithm of the works",
        "MVU": "programs",
        "PARDA": "steps as published, or L-BFGS",
    },
    "structure": {"LogisticMetric": "axes instead of features"},
    "tol": {
        "GTA": "of the projectors of modes",
        "GTDA": "of the projectors of modes",
        "IdealizedMetric": "of a gap",
        "KernelIdealizedMetric": "of a gap",
        "ITML": "of an objective, and of a gap",
        "LMNN": "of an objective",
        "LSML": "of an objective, and of a gap",
        "LSSTM": "of directions",
        "LogisticMetric": "of an objective, and of a gap",
        "MCML": "of an objective",
        "MDML": "of an objective",
        "MLKR": "of an objective",
        "NCA": "of an objective",
        "NuSTM": "of directions",
        "MDS": "of a stress",
        "MarginKernelLearner": "of a gap",
        "MMC": "of an objective, and of a gap",
        "MVU": "of a gap",
        "PARDA": "of divergences",
        "POLA": "of the loss of a pair",
        "SCML": "of a gap",
        "SDML": "of an objective, and of a gap",
        "STM": "of directions",
        "TFDA": "of directions",
        "TMPM": "of directions",
        "TensorGraphEmbedding": "of the projectors of modes",
        "TR1A": "of vectors",
        "TR1DA": "of vectors, over their length",
    },
    "variant": {"FriedmanClassifier": "of cuts instead of an objective"},
    "weighting": {"ADAMENNClassifier": "of features instead of words"},
    "weights": {
        "DANNClassifier": "of points instead of edges",
        "PARDA": "of objectives instead of edges",
    },
    "width": {"ConformalSVC": "of regions"},
    "within_weight": {"TensorGraphEmbedding": "of a graph"},
}
#: Every name that a parameter of an estimator may have. Before you add one, look for a name here
#: that already means the same.
PARAMETERS = frozenset(
    re.findall(
        r"\w+",
        """
    alpha angles balance base_metric basis beta bias border bound_iter bounds C C_dissimilar
    C_similar center centered class_weight clip coef0 color_space constraints covariance
    criterion crop_size ddof degree dim_fraction dim_rule divergence drop_first dual_ridge
    embedding energy envelope_width eps epsilon equality_weight estimator exact exclude_self
    flatten frequency_ratio gamma gaussian_center graph include_constant indefinite init
    init_noise keep_fraction kernel kernel_family kernels kl_convention l2 lda leave_one_out
    mask_size match_training_points matching matrix_type max_clusters max_epochs max_frequency
    max_iter max_passes mean method metric metric_mds min_rate min_window mixture_covariance
    mixture_dimension multi_class n_average_neighbors n_basis n_clusters n_components
    n_directions n_dissimilar n_far n_graph_neighbors n_impostors n_init n_iter n_jobs n_landmarks
    n_metric_neighbors n_near n_neighbors n_orientations n_passes n_pca_components
    n_posterior_neighbors n_quadruplets n_region_neighbors n_regions n_rounds n_scales
    n_similar n_slab_neighbors n_steps n_words neighborhood norm normalize normalize_gradient
    normalize_step nu objective on_disconnected order out_of_sample pairing partition patience
    pca period pooling power prefactor_power prefit prior priors prune_edges prune_scale
    prune_steps psd push_weight quantile radius random_state rank reduction refine refit reg
    region regularization remove_dc representation ridge ridge_mode rule scalarization scale
    scatter_pair scope selection shrinkage shuffle slack_penalty smoothing solution solver
    sparsity sphere standardize step step_factor strategy structure subspace sum_over
    symmetric target tensor_shape threshold_floor ties tol trace validation_fraction variant
    verbose warm_start weight_power weight_scale weighting weights whiten width window
    within_weight zero_diagonal
    """,
    )
)
# Estimators that use the weights of LLE.
LLE_WEIGHTS = {"EigenEmbedding", "HessianLLE", "LLE", "LandmarkMVU", "MVU", "NPE", "VariationalMVU"}


def sections(cls):
    """The text of each section of a docstring, by title."""
    lines = inspect.cleandoc(cls.__doc__).split("\n")
    starts = [i for i, line in enumerate(lines) if i and re.fullmatch("-{3,}", line)]
    ends = [start - 1 for start in starts[1:]] + [len(lines)]
    return {
        lines[start - 1]: lines[start + 1 : end] for start, end in zip(starts, ends, strict=True)
    }


def descriptions(cls):
    """What each parameter is said to be."""
    found, names = {}, []
    for line in sections(cls).get("Parameters", []):
        if line and not line.startswith(" "):
            names = line.split(" : ")[0].split(", ")
        for name in names if line.startswith(" ") else ():
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found


def parameters(cls):
    given = inspect.signature(cls.__init__).parameters.values()
    return [
        p for p in given if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]


def first_sentence(text):
    """Up to the first full stop, semicolon or colon that a space follows."""
    return re.split(r"[.;:](?: |$)", text)[0]


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_parameters_after_the_first_are_given_by_name(name):
    free = [p.name for p in parameters(ESTIMATORS[name]) if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert free in ([], ["estimator", "n_neighbors"]) or len(free) == 1


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_labels_that_are_left_out_are_asked_for_by_the_estimator(name):
    labels = inspect.signature(ESTIMATORS[name].fit).parameters.get("y")
    assert labels is None or labels.default is None  # not by Python's TypeError


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_results_repeat_unless_one_asks_otherwise(name):
    seeds = [p.default for p in parameters(ESTIMATORS[name]) if p.name == "random_state"]
    assert seeds in ([], [0])


def test_parameters_have_allowed_names():
    used = {p.name for cls in ESTIMATORS.values() for p in parameters(cls)}
    assert used - PARAMETERS == set()
    assert PARAMETERS - used == set()


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_one_name_for_one_thing(name):
    names = {p.name for p in parameters(ESTIMATORS[name])}
    # POLA divides points by this number; elsewhere a scale is ``standardize`` or ``width``.
    assert "scale" not in names or name == "POLA"
    assert "reg" not in names or name in LLE_WEIGHTS


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_choices_have_underscores(name):
    for allowed in ESTIMATORS[name].parameters.values():
        for kind in allowed:
            choices = re.findall(r"'([^']*)'", kind.description)
            assert not any("-" in choice for choice in choices)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_see_also_names_what_there_is(name):
    text = sections(ESTIMATORS[name]).get("See Also", [])
    others = [
        part.strip()
        for line in text
        if line[:1].strip()
        for part in line.split(" : ")[0].split(",")
    ]
    assert others and name not in others
    for other in others:
        home, _, last = other.rpartition(".")
        assert hasattr(import_module(home) if home else nearfar, last), other


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_the_first_line_is_a_sentence_that_lists_can_show(name):
    first = (ESTIMATORS[name].__doc__ or "").strip().partition("\n")[0]
    assert first.endswith(".") and "\\" not in first


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_every_parameter_is_described(name):
    cls = ESTIMATORS[name]
    assert [p.name for p in parameters(cls)] == list(descriptions(cls))


def described():
    found = {}
    for name, cls in sorted(ESTIMATORS.items()):
        for parameter, text in descriptions(cls).items():
            if name not in OTHERWISE.get(parameter, {}):
                found.setdefault(parameter, {}).setdefault(first_sentence(text), []).append(name)
    return found


DESCRIBED = described()


@pytest.mark.parametrize("parameter", sorted(DESCRIBED))
def test_a_parameter_is_described_alike(parameter):
    assert len(DESCRIBED[parameter]) == 1, DESCRIBED[parameter]


def test_exceptions_are_needed():
    for parameter, reasons in OTHERWISE.items():
        for name in reasons:
            text = first_sentence(descriptions(ESTIMATORS[name])[parameter])
            assert text not in DESCRIBED.get(parameter, {}), (parameter, name)


RENAMED = sorted(n for n, cls in ESTIMATORS.items() if cls.renamed or cls.renamed_values)


@pytest.mark.parametrize("name", RENAMED)
def test_what_old_model_files_hold_gets_its_new_name(name):
    cls = ESTIMATORS[name]
    for parameter, values in cls.renamed_values.items():
        for old, new in values.items():
            learner = cls(**{parameter: new})
            vars(learner)[parameter] = old
            for before, now in cls.renamed.items():
                if now in vars(learner):
                    vars(learner)[before] = vars(learner).pop(now)
            learner._bring_up_to_date()
            assert learner.get_params() == cls(**{parameter: new}).get_params()
            learner._check_parameters()
    learner = cls()
    for before, now in cls.renamed.items():
        vars(learner)[before] = vars(learner).pop(now, 1.0)
    learner._bring_up_to_date()
    assert not vars(learner).keys() & cls.renamed.keys()
    assert learner.get_params() == cls().get_params()
