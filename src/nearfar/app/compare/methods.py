"""What is compared: baselines, learners, and classifiers for context, each with its settings.

Every method has at most :data:`MAX_SETTINGS` settings, and all share the same values of k: so each
learner may try as much as the reference, which is the best of four baselines. Classifiers whose
neighbors vote by a distance of their own are tuned and judged like learners; the others get the
same scalings, and stand for context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from typing import Any, Literal

from sklearn.base import ClassifierMixin, clone
from sklearn.pipeline import Pipeline

from nearfar.base import Estimator, NeighborsBase, NeighborsClassifier, all_estimators
from nearfar.base.local_voter import LocalClassifier
from nearfar.base.on_axes import AxisLearner
from nearfar.base.tags import Role as EstimatorRole
from nearfar.base.tags import SupervisionKind
from nearfar.notices import warn
from nearfar.words import (
    capitalize_first,
    format_method_name,
    join_names,
    normalize_name,
    suggest_names,
)

Scale = Literal["auto", "none", "standard", "unit"]
Role = Literal["reference", "baseline", "learner", "context"]
#: What follows a map of tensors: a shrunk LDA of what it keeps, nothing, or what tuning finds.
Then = Literal["auto", "lda", "none"]

MAX_SETTINGS = 4
#: Of more columns than this, what iterates sees the leading principal axes only: so many at most.
WIDE, REDUCED = 128, 64
AXES = "principal axes"
# Rows enough for anything, where their number is not known.
LARGE = 10**9
#: Of a method that shares, what is left to do when all that is shared is done.
OWN_SHARE = 0.15
#: Learners compared when none are named, and one more where rows are images.
DEFAULT = ("LDA", "RCA", "LMNN")
OF_IMAGES = "GTDA"
_SCALE_WORDS = {"none": "raw", "standard": "standardized", "unit": "unit norm"}


@dataclass(frozen=True)
class Setting:
    """One way to run a method: steps of a pipeline before the vote of neighbors.

    Parameters
    ----------
    label : str
        In words.
    scale : transformer or "passthrough"
        First step.
    estimator : learner, classifier or "passthrough"
        What learns. One that predicts by itself gets no vote of neighbors after it.
    reduce : transformer or "passthrough"
        Between the two, where there are many columns.
    after : transformer or "passthrough"
        Behind the estimator, where that is a map of tensors: its factors are orthonormal as a rule
        and weigh nothing.
    """

    label: str
    scale: Any
    estimator: Any
    reduce: Any = "passthrough"
    after: Any = "passthrough"

    @property
    def neighbors(self) -> bool:
        """Whether those vote that the estimator finds, not those that are nearest after its map."""
        return asks_neighbors(self.estimator)

    @property
    def votes(self) -> bool:
        """Whether neighbors vote, and k is to be tuned."""
        return self.neighbors or not hasattr(self.estimator, "predict")

    def steps(self, prepare: Any) -> list[tuple[str, Any]]:
        """Named steps, unfitted, that do something."""
        named = [
            ("prepare", prepare),
            ("scale", self.scale),
            ("reduce", self.reduce),
            ("learner", self.estimator),
            ("after", self.after),
        ]
        return [
            (name, step if isinstance(step, str) else clone(step))
            for name, step in named
            if not (isinstance(step, str) and step == "passthrough")
        ]


@dataclass(frozen=True)
class Method:
    """A row of the comparison."""

    name: str
    label: str
    role: Role
    settings: tuple[Setting, ...]
    #: The family whose methods do the dear part of their work together.
    shares: str | None = None
    #: How many such parts the settings have,
    n_parts: int = 1
    #: and which of them, in the order of the settings, are done once for all folds.
    lasting: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The label at the start of a sentence or in a table.

        Only labels of standard distances change: others are names of classes, or the user's.
        """
        return title_of(self.label, self.role)

    def tried(self, tuning: str) -> tuple[Setting, ...]:
        """The settings that so much tuning tries: all, or the first."""
        return self.settings[:1] if tuning == "k" else self.settings


def title_of(label: str, role: str) -> str:
    """Return the label of a method as it stands in a table.

    >>> title_of("raw Euclidean", "baseline"), title_of("mine", "learner")
    ('Raw Euclidean', 'mine')
    """
    return capitalize_first(label) if role in ("reference", "baseline") else label


def asks_neighbors(estimator: Any) -> bool:
    """Whether it predicts by neighbors that it finds itself."""
    if isinstance(estimator, NeighborsClassifier):
        return bool(estimator.votes)
    return isinstance(estimator, NeighborsBase)


def takes_tensors(estimator: Any) -> bool:
    """Whether a sample of it is a tensor; of a Pipeline, of its first step.

    >>> from nearfar import LDA
    >>> takes_tensors(LDA())
    False
    """
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[0][1]
    tags = getattr(estimator, "learner_tags", None)
    return tags is not None and bool(tags.input == "tensors")


def reduced(methods: Iterable[Method], n_columns: int, n_rows: int) -> list[Method]:
    """The methods; on wide data what iterates goes along principal axes, found in each fold.

    Learners that have the option take them themselves, others come behind a PCA.

    >>> from nearfar import LDA, LMNN
    >>> [method.settings[0].label for method in reduced(learners([LDA(), LMNN()]), 768, 5000)]
    ['standardized', 'standardized, 64 principal axes']
    """
    # Half the rows: inside a training fold fewer than that are never fitted.
    axes = min(REDUCED, max(1, n_rows // 2 - 1))
    return [
        replace(m, settings=tuple(_along_axes(one, axes) for one in m.settings))
        if n_columns > WIDE and m.role in ("learner", "context")
        else m
        for m in methods
    ]


def _along_axes(setting: Setting, axes: int) -> Setting:
    from nearfar.discriminant.pca import PCA

    learner = setting.estimator
    if isinstance(learner, str | Pipeline) or not _dear(learner):
        return setting
    if takes_tensors(learner):  # principal axes have no rows and columns
        return setting
    takes_axes = (
        isinstance(learner, AxisLearner) and getattr(learner, "structure", "full") == "full"
    )
    if takes_axes and learner.n_pca_components is not None:
        return setting
    axes = max(axes, getattr(learner, "n_components", None) or 1) if takes_axes else axes
    label = ", ".join(filter(None, [setting.label, f"{axes} {AXES}"]))
    if takes_axes:
        return replace(
            setting, label=label, estimator=clone(learner).set_params(n_pca_components=axes)
        )
    return replace(setting, label=label, reduce=PCA(axes))


def without_axes(estimator: Any) -> Any:
    """The same on all columns: how many axes there are stands beside its other parameters."""
    if not isinstance(estimator, AxisLearner):
        return estimator
    return clone(estimator).set_params(n_pca_components=None)


def _dear(estimator: Any) -> bool:
    """Whether many columns cost it dearly: it iterates, or has a matrix for each query."""
    return iterates(estimator) or isinstance(estimator, LocalClassifier)


def iterates(estimator: Any) -> bool:
    """Whether it goes over the rows again and again, as its parameters tell."""
    return "max_iter" in estimator.get_params(deep=False)


def baselines() -> list[Method]:
    """Return the four standard distances: Euclidean after four kinds of scaling."""
    from sklearn.preprocessing import Normalizer, StandardScaler

    from nearfar.discriminant.pca import PCA

    ways = [
        ("raw", "raw Euclidean", "raw", "passthrough"),
        ("standardized", "standardized Euclidean", "standardized", StandardScaler()),
        ("cosine", "cosine", "unit norm", Normalizer()),
        ("whitened", "whitened Euclidean", "PCA-whitened", PCA(whiten=True)),
    ]
    return [
        Method(name, label, "baseline", (Setting(words, scale, "passthrough"),))
        for name, label, words, scale in ways
    ]


def context_methods(seed: int = 0) -> list[Method]:
    """Classifiers that are no distances, to see what the features allow."""
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    logistic = [
        (f"C={C:g}", LogisticRegression(C=C, max_iter=1000)) for C in (1.0, 0.1, 10.0, 0.01)
    ]
    majority = Setting("", "passthrough", DummyClassifier(strategy="most_frequent"))
    scaled = tuple(Setting(f"standardized, {w}", StandardScaler(), e) for w, e in logistic)
    # One setting: they are slow, and here only to show what is possible.
    trees = Setting("", "passthrough", HistGradientBoostingClassifier(random_state=seed))
    return [
        Method("majority", "Majority class", "context", (majority,)),
        Method("logistic", "Logistic regression", "context", scaled),
        Method("trees", "Gradient-boosted trees", "context", (trees,)),
    ]


def learners(
    methods: Any = None,
    scale: Scale = "auto",
    *,
    tensor_shape: tuple[int, ...] | None = None,
    size: tuple[int, int] = (LARGE, 1),
    then: Then = "none",
) -> list[Method]:
    """The learners to compare.

    Parameters
    ----------
    methods : mapping, sequence, str, learner or None
        A mapping from name to a learner, a classifier, or a sequence of up to four of them (its
        settings); or these, named after their class, and names of those of the library or of the
        entry point group ``nearfar.learners``, or names of rooms ("discriminant") for all of a
        room; None is a small set that suits most data.
    scale : {"auto", "none", "standard", "unit"}
        How features are scaled before a learner; "auto" tries what there is.
    tensor_shape : tuple of int, optional
        Shape of a row, for estimators of tensors.
    size : (int, int)
        Training rows and columns, which the settings of what is only named depend on.
    then : {"auto", "lda", "none"}
        What follows a map of tensors; an LDA needs labels.
    """
    if scale not in ("auto", *_SCALE_WORDS):
        raise ValueError(f"scale={scale!r} must be one of auto, none, standard, unit.")
    if methods is None:
        methods = DEFAULT
    if not isinstance(methods, Mapping):
        methods = by_name(methods, lambda kind: presets(kind, *size))
    if not methods:
        raise ValueError(
            f"methods is empty: name a learner at least, or give None for {', '.join(DEFAULT)}."
        )
    found = []
    for name, given in methods.items():
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"methods has the name {name!r}; names must be text.")
        estimators = list(given) if isinstance(given, list | tuple) else [given]
        check_estimators(name, estimators)
        estimators = [of_rows(name, one, tensor_shape) for one in estimators]
        found.append(_method(name, estimators, scale, then))
    refuse_taken(found, [*baselines(), *context_methods()])
    return found


def listed_methods(methods: Any) -> list[Any]:
    """Names and estimators one by one, however they were given."""
    if isinstance(methods, str):
        return [part.strip() for part in methods.split(",") if part.strip()]
    if not isinstance(methods, Iterable) or hasattr(methods, "fit"):
        return [methods]
    return list(methods)


def those_told(methods: Any, guide: SupervisionKind, so: str) -> tuple[Any, list[str]]:
    """The methods that can learn from what there is, and a sentence of those that cannot.

    Parameters
    ----------
    methods : as in :func:`learners`
        Of a room, all that is in it.
    guide : {"labels", "values", "pairs", "triplets", "quadruplets", "chunklets"}
        What there is to learn from; what reads nothing of the kind can do with it too.
    so : str
        Why the others cannot, as "the target has classes".

    Examples
    --------
    >>> those_told("pca,lda", "values", "the target is a number")
    (['pca'], ['Left out: LDA: it learns from labels, and the target is a number.'])
    """
    kept: dict[Any, Any] = {}
    gone: dict[str, list[str]] = {}
    named = isinstance(methods, Mapping)
    if named:
        given = dict(methods)
    else:
        every = listed_methods(methods)
        rooms = [(family(one) if isinstance(one, str) else []) or [one] for one in every]
        given = dict(enumerate(one for room in rooms for one in room))
    for key, one in given.items():
        settings = list(one) if isinstance(one, list | tuple) else [one]
        kinds = [find_estimator(each) if isinstance(each, str) else each for each in settings]
        unable = [kind for kind in kinds if not takes(kind, guide)]
        if not unable:
            kept[key] = one
            continue
        kind = unable[0]
        label = str(key) if named else _class_name(kind)
        gone.setdefault(_learns_from(kind), []).append(label)
    said = [
        f"{join_names(names, quoted=False)}: {'it learns' if len(names) == 1 else 'they learn'} "
        f"from {words}, and {so}."
        for words, names in gone.items()
    ]
    if gone and not kept:
        raise ValueError(f"{' '.join(said)} See: nearfar methods.")
    if not gone:
        return methods, []
    return (kept if named else list(kept.values())), [f"Left out: {text}" for text in said]


def takes(learner: Any, guide: SupervisionKind) -> bool:
    """Whether it learns from labels, values or the like, or from nothing of the kind.

    >>> from nearfar import LDA, MLKR, PCA
    >>> [takes(kind, "values") for kind in (LDA, MLKR(), PCA())]
    [False, True, True]
    """
    if isinstance(learner, Pipeline):
        return all(takes(step, guide) for _, step in learner.steps)
    tags = getattr(learner, "learner_tags", None)
    if tags is None:  # of another make; a text is a step that does nothing
        return guide != "values" or not (hasattr(learner, "fit") and _classifies(learner))
    return not tags.supervision or guide in tags.supervision


def _classifies(learner: Any) -> bool:
    return isinstance(learner, ClassifierMixin) or (
        isinstance(learner, type) and issubclass(learner, ClassifierMixin)
    )


def _learns_from(learner: Any) -> str:
    if isinstance(learner, Pipeline):
        return "labels"
    tags = getattr(learner, "learner_tags", None)
    return "labels" if tags is None else " or ".join(tags.supervision)


def _class_name(learner: Any) -> str:
    return learner.__name__ if isinstance(learner, type) else type(learner).__name__


def by_name(methods: Any, made: Callable[[type[Estimator]], Any]) -> dict[str, Any]:
    """Estimators by their names; ``made`` says what to compare of a class that is only named."""
    found: dict[str, Any] = {}
    for given in listed_methods(methods):
        if isinstance(given, str):
            for name in family(given) or [given]:
                known, fixed = _asked(name)
                kind = known_estimators()[known]
                own = made(kind) if not fixed else _fixed(made(kind), fixed)
                found[format_method_name(known) if not fixed else normalize_name(name)] = own
        else:
            found[new_name(given, found)] = given
    return found


def new_name(given: Any, taken: Iterable[str]) -> str:
    """A name after the class, with a number where that is taken."""
    kind = given if isinstance(given, type) else type(given)
    name = base = format_method_name(kind.__name__)
    n = 1
    while name in taken:
        n += 1
        name = f"{base} {n}"
    return name


def refuse_taken(found: Iterable[Method], beside: Iterable[Method]) -> None:
    """Refuse names of methods that are compared anyway."""
    taken = {method.name for method in beside} | {"reference"}
    for method in found:
        if method.name in taken:
            raise ValueError(
                f"methods has the name {method.name!r}, which a baseline has; choose another."
            )


def of_rows(name: str, estimator: Any, tensor_shape: tuple[int, ...] | None) -> Any:
    """The estimator for flat rows: one of tensors is told their shape, one of sets is refused."""
    if isinstance(estimator, Pipeline):
        if not takes_tensors(estimator):
            return estimator
        steps = list(estimator.steps)
        # The first step alone sees the rows; what it returns may have a shape of its own.
        steps[0] = (steps[0][0], of_rows(name, steps[0][1], tensor_shape))
        return clone(estimator).set_params(steps=steps)
    tags = getattr(estimator, "learner_tags", None)
    if tags is None or tags.input == "vectors":
        return estimator
    if tags.input != "tensors":
        raise ValueError(f"methods[{name!r}] takes {tags.input}, and these are rows.")
    if estimator.tensor_shape is not None:
        return estimator
    if tensor_shape is None:
        raise ValueError(
            f"methods[{name!r}] takes tensors, and these rows have no shape: say it with --images "
            "HxW, save them as an array of shape (n, height, width), or give an object with "
            "tensor_shape."
        )
    return clone(estimator).set_params(tensor_shape=tuple(tensor_shape))


def check_estimators(name: str, estimators: list[Any]) -> None:
    """Refuse settings of a method that are too many, or cannot be compared."""
    if not 1 <= len(estimators) <= MAX_SETTINGS:
        raise ValueError(
            f"methods[{name!r}] has {len(estimators)} settings; give 1 to {MAX_SETTINGS}, so that "
            "all methods have the same budget."
        )
    for estimator in estimators:
        refuse_class(name, estimator)
        if not hasattr(estimator, "fit") or not (
            hasattr(estimator, "transform") or hasattr(estimator, "predict")
        ):
            raise ValueError(
                f"methods[{name!r}] is {estimator!r}, which has no fit with transform or predict."
            )


def refuse_class(name: str, estimator: Any) -> None:
    """Refuse a class where an object is needed."""
    if isinstance(estimator, type):
        called = estimator.__name__
        raise ValueError(f"methods[{name!r}] is the class {called}; give an object: {called}().")


def _method(name: str, estimators: list[Any], scale: Scale, then: Then) -> Method:
    own_scaling = any(isinstance(estimator, Pipeline) for estimator in estimators)
    maps = not any(hasattr(estimator, "predict") for estimator in estimators)
    if maps and not own_scaling and any(map(takes_tensors, estimators)):
        ways = _ways_of_tensors(estimators, scale, then)
    elif own_scaling and scale == "auto":
        ways = [("none", estimator, False) for estimator in estimators]
    elif scale == "auto":
        first = estimators[0]
        ways = [("standard", first, False), ("none", first, False), ("unit", first, False)]
        # The other settings first, then the other scalings, as far as there is room.
        others = [("standard", other, False) for other in estimators[1:]]
        ways = [ways[0], *ways[1 : MAX_SETTINGS - len(others)], *others]
    else:
        ways = [(scale, estimator, False) for estimator in estimators]
    role: Role = "learner" if any(map(_by_distance, estimators)) else "context"
    return Method(name, label_of(name, estimators[0]), role, tuple(_setting(*way) for way in ways))


def _ways_of_tensors(
    estimators: list[Any], scale: Scale, then: Then
) -> list[tuple[str, Any, bool]]:
    """Scaling and map of each setting, and whether an LDA follows.

    Numbers stay as they are at first: pixels divided by their own deviations, each by another, are
    no picture any more.
    """
    first = estimators[0]
    follow = [True, False] if then == "auto" else [then == "lda"]
    scales = ["none", "unit", "standard"] if scale == "auto" else [scale]
    ways = [(scales[0], first, after) for after in follow]
    ways += [(scales[0], other, follow[0]) for other in estimators[1:]]
    ways += [(other, first, after) for other in scales[1:] for after in follow]
    return ways[:MAX_SETTINGS]


def _by_distance(estimator: Any) -> bool:
    """Whether it says what is near: by a map, or by neighbors that vote."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return asks_neighbors(last) or not hasattr(estimator, "predict")


def label_of(name: str, estimator: Any) -> str:
    """The name of the class, unless the user has another."""
    label = type(estimator).__name__
    return label if normalize_name(label) == normalize_name(name) else name


def _setting(scale: str, estimator: Any, followed: bool = False) -> Setting:
    from sklearn.preprocessing import Normalizer, StandardScaler

    from nearfar.discriminant.lda import LDA

    scaler = {"none": "passthrough", "standard": StandardScaler(), "unit": Normalizer()}[scale]
    words = [_SCALE_WORDS[scale], parameters_of(estimator), AFTER if followed else ""]
    after = LDA(shrinkage=0.1) if followed else "passthrough"
    return Setting(", ".join(filter(None, words)), scaler, estimator, after=after)


#: What is said of a map of tensors that is followed.
AFTER = "then LDA"


def parameters_of(estimator: Any) -> str:
    """What stands between the brackets of its text, if that is short."""
    if takes_tensors(estimator) and not isinstance(estimator, Pipeline):
        # Their shape is that of the data, and known.
        estimator = clone(estimator).set_params(tensor_shape=None)
    if scales_itself(estimator):
        estimator = clone(estimator).set_params(standardize=True)  # the scaling stands beside it
    text = " ".join(repr(estimator).split())
    return text[text.find("(") + 1 : -1] if len(text) < 120 else ""


def presets(kind: type[Estimator], n_rows: int = LARGE, n_columns: int = 1) -> list[Estimator]:
    """An estimator with the settings that it declares for data of this size."""
    if n_columns > WIDE and "max_iter" in kind.parameters:
        n_columns = REDUCED
    made = [kind(**parameters) for parameters in kind.settings_for(n_rows, n_columns)]
    # Scaling comes before them, and is tuned as for all.
    return [one.set_params(standardize=False) if scales_itself(one) else one for one in made]


def scales_itself(estimator: Any) -> bool:
    """Whether it is one of rows that standardizes unless told otherwise."""
    tags = getattr(estimator, "learner_tags", None)
    own = getattr(estimator, "parameters", {})
    return tags is not None and tags.input == "vectors" and "standardize" in own


def family(room: str) -> list[str]:
    """Names of the estimators of rows in a room; none if there is no such room.

    Of tensors those that learn to tell samples apart: a filter of images keeps all there is.

    >>> "RCA" in family("Mahalanobis"), family("lmnn")
    (True, [])
    """
    return [
        name
        for name, kind in known_estimators().items()
        if kind.__module__.split(".")[:2] == ["nearfar", room.lower()]
        and (
            kind.learner_tags.input == "vectors"
            or (kind.learner_tags.input == "tensors" and _shortens(kind))
        )
    ]


def _shortens(kind: type[Estimator]) -> bool:
    return kind.learner_tags.role != "map" or "n_components" in kind.parameters


def find_estimator(name: str) -> type[Estimator]:
    """An estimator by name, whatever the case and the hyphens; from other packages by entry point.

    >>> find_estimator("lmnn").__name__, find_estimator("laplacian_eigenmaps").__name__
    ('LMNN', 'LaplacianEigenmaps')
    """
    return known_estimators()[_asked(name)[0]]


def _asked(name: str) -> tuple[str, Mapping[str, Any]]:
    """The estimator that a name means, and parameters that are fixed by it.

    Of a classifier the last word may be left out; some are several methods.

    >>> _asked("mvem")
    ('MVEMClassifier', {})
    """
    known = known_estimators()
    names = {normalize_name(key): key for key in known}
    found = names.get(normalize_name(name)) or names.get(f"{normalize_name(name)}classifier")
    if found is not None:
        return found, {}
    others = {
        normalize_name(one): (key, fixed)
        for key, kind in known.items()
        for one, fixed in getattr(kind, "aliases", {}).items()
    }
    if normalize_name(name) not in others:
        hint = suggest_names(name, [*map(format_method_name, known), *others])
        raise ValueError(f"There is no method {name!r}.{hint} See: nearfar methods.")
    return others[normalize_name(name)]


def _fixed(made: Any, fixed: Mapping[str, Any]) -> Any:
    """What was made of a class, with some parameters fixed; what is the same then is one."""
    several = isinstance(made, list)
    settings = [clone(one).set_params(**fixed) for one in (made if several else [made])]
    distinct = list({repr(one): one for one in settings}.values())
    return distinct if several else distinct[0]


@cache
def entry_points(group: str) -> tuple[metadata.EntryPoint, ...]:
    """What installed packages offer: a file of each of them is read for it."""
    return tuple(metadata.entry_points(group=group))


def known_estimators() -> dict[str, type[Estimator]]:
    """What can be compared of the library, and what installed packages offer."""
    roles: tuple[EstimatorRole, ...] = ("map", "kernel", "classifier", "regressor")
    found = {name: kind for role in roles for name, kind in all_estimators(role=role).items()}
    found = dict(sorted(found.items()))
    for point in entry_points(group="nearfar.learners"):
        try:
            found.setdefault(point.name, point.load())
        except Exception as error:  # another package's trouble must not become ours
            warn(f"The learner {point.name!r} of another package cannot be loaded: {error}")
    return found
