"""Kernel methods with a kernel learner give the same results as with precomputed values."""

import io
import pickle
import zipfile
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from nearfar import (
    MGMKLD,
    POLA,
    AlignmentKernelLearner,
    Chunklets,
    KernelDA,
    KernelIdealizedMetric,
    KernelLMNN,
    KernelMGMKLD,
    KernelMMC,
    KernelPCA,
    KernelPOLA,
    KernelRCA,
    KNNClassifier,
    MultimodalKernelMGMKLD,
    MultimodalMGMKLD,
    Pairs,
    load,
    save,
)
from nearfar.base import KernelLearner
from nearfar.base.registry import all_estimators

RANDOM = np.random.default_rng(0)
Y = np.arange(60) % 3
X = RANDOM.standard_normal((60, 4)) + 2 * np.eye(3, 4)[Y]
NEW = RANDOM.standard_normal((7, 4)) + 1.0
LEARNER = AlignmentKernelLearner([("rbf", {"gamma": 0.1}), ("rbf", {"gamma": 0.5}), "linear"])
FEW_PAIRS = {"n_similar": 60, "n_dissimilar": 60, "n_directions": 10}
# Each kernel method, with small settings.
METHODS = {
    "KernelLMNN": KernelLMNN(n_directions=6),
    "KernelDA": KernelDA(),
    "KernelMGMKLD": KernelMGMKLD(n_directions=6, estimator=MGMKLD(n_components=2)),
    "MultimodalKernelMGMKLD": MultimodalKernelMGMKLD(
        n_directions=6, estimator=MultimodalMGMKLD(n_components=2)
    ),
    "KernelPCA": KernelPCA(n_components=3),
    "KernelMMC": KernelMMC(n_directions=4),
    "KernelRCA": KernelRCA(),
    "KernelPOLA": KernelPOLA(n_directions=6, estimator=POLA()),
    "KernelIdealizedMetric": KernelIdealizedMetric(**FEW_PAIRS),
}


def with_kernel(name, kernel):
    return clone(METHODS[name]).set_params(kernel=kernel)


def test_every_kernel_method_is_here():
    from nearfar.base import KernelCoordinates

    assert METHODS.keys() == {
        name for name, kind in all_estimators().items() if issubclass(kind, KernelCoordinates)
    }


@pytest.mark.parametrize("name", METHODS)
def test_it_is_as_if_the_values_of_the_learned_kernel_were_given(name, tmp_path):
    learner = clone(LEARNER).fit(X, Y)
    model = with_kernel(name, LEARNER).fit(X, Y)
    assert not hasattr(LEARNER, "weights_")  # a copy was fitted
    np.testing.assert_array_equal(model.kernel_.weights_, learner.weights_)
    if name == "KernelRCA":  # it does not accept precomputed values, so compare with its formula
        expected = rca_by_formula(model, learner.kernel(X), learner.kernel(NEW, X), learner)
        np.testing.assert_allclose(model.learned_kernel(NEW), expected, rtol=1e-6)
    else:
        given = with_kernel(name, "precomputed").fit(learner.kernel(X), Y)
        for rows in (X, NEW):
            expected = given.transform(learner.kernel(rows, X))
            atol = 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(model.transform(rows), expected, atol=atol)
    # A model file restores the results exactly.
    save(model, tmp_path / "model.nf")
    again = load(tmp_path / "model.nf")
    np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))
    np.testing.assert_array_equal(again.kernel_.kernel(NEW, X), model.kernel_.kernel(NEW, X))
    assert times_kept(X, tmp_path / "model.nf") == {1}  # stored once, with the kernel


def times_kept(rows, path):
    """Return how many times a model file stores each of these rows."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
        arrays = [np.load(io.BytesIO(archive.read(name))) for name in names]
    tables = [a for a in arrays if a.ndim == 2 and a.shape[1] == rows.shape[1]]
    kept = Counter(row.tobytes() for table in tables for row in table)
    return {kept[row.tobytes()] for row in rows}


def rca_by_formula(model, K, cross, learner):
    """Return the kernel of the class docstring, with labels as chunklets."""
    H = np.zeros((60, 60))
    for own in np.eye(3, dtype=bool)[:, Y]:
        H[np.ix_(own, own)] = np.eye(own.sum()) - 1 / own.sum()
    rho = model.ridge_
    inner = H @ np.linalg.inv(np.eye(60) + K @ H / rho)
    return 60 / rho * learner.kernel(NEW) - 60 / rho**2 * cross @ inner @ cross.T


def test_distances_of_pairs_in_the_learned_kernel():
    model = KernelRCA(LEARNER).fit(X, Y)
    pairs = np.stack([X[:50], X[10:]], axis=1)
    K = model.learned_kernel(X)
    i, j = np.arange(50), np.arange(10, 60)
    expected = np.sqrt(K[i, i] + K[j, j] - 2 * K[i, j])
    np.testing.assert_allclose(model.pair_distance(pairs), expected, rtol=1e-6)
    assert model.gamma_ is None


def test_more_chunklets_keep_the_kernel_of_the_first_rows(tmp_path):
    parts = [
        (Chunklets(np.where(Y[:30] == 0, 0, -1)), slice(30)),
        (Chunklets(Y[30:] + 5), slice(30, 60)),
    ]
    model = KernelRCA(LEARNER)
    for chunklets, part in parts:
        model.partial_fit(X[part], Y[part], supervision=chunklets)
    np.testing.assert_array_equal(
        model.kernel_.weights_, clone(LEARNER).fit(X[:30], Y[:30]).weights_
    )
    assert np.isfinite(model.transform(NEW)).all()
    save(model, tmp_path / "model.nf")  # only some of its rows are rows of the kernel
    again = load(tmp_path / "model.nf")
    np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))
    np.testing.assert_array_equal(again._rows, model._rows)
    assert times_kept(X, tmp_path / "model.nf") == {1}
    # partial_fit continues from the loaded state as from the saved one.
    more = Chunklets(np.full(7, 99))
    for one in (model, again):
        one.partial_fit(NEW, np.zeros(7), supervision=more)
    np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))


@pytest.mark.parametrize("name", ["KernelRCA", "KernelDA"])
def test_rows_that_are_there_several_times_come_back_as_often(name, tmp_path):
    """Rows can be in another order than in the kernel, or be landmarks only."""
    rows, y = np.vstack([X, X[:9], X[:3]]), np.concatenate([Y, Y[:9], Y[:3]])
    model = with_kernel(name, LEARNER)
    if name != "KernelRCA":
        model.set_params(n_landmarks=40)
    model.fit(rows, y)
    save(model, tmp_path / "model.nf")
    again = load(tmp_path / "model.nf")
    np.testing.assert_array_equal(again._rows, model._rows)
    np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))
    assert times_kept(rows, tmp_path / "model.nf") == {1, 2, 3}  # as often as in the data


def test_a_file_that_has_all_rows_in_both_places_loads():
    """Older files store all rows twice if some of them differ."""
    model = KernelDA(kernel=LEARNER, n_landmarks=30).fit(X, Y)
    state = model.__getstate__()
    assert len(state["_rows"]) == 0 and len(state.pop("_row_places")) == 30
    again = KernelDA.__new__(KernelDA)
    again.__setstate__(state | {"_rows": model._rows})
    np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (np.zeros(30, np.intp), "contains duplicate or invalid row indices"),
        (np.arange(40, 70), "contains duplicate or invalid row indices"),
        (np.full(30, -1), "_rows does not match _row_places"),
        (np.arange(30.0), "must be a vector of integers"),
        ("all", "must be a vector of integers"),
    ],
)
def test_places_of_rows_that_make_no_sense_are_refused(places, message):
    state = KernelDA(kernel=LEARNER, n_landmarks=30).fit(X, Y).__getstate__()
    with pytest.raises(ValueError, match=message):
        KernelDA.__new__(KernelDA).__setstate__(state | {"_row_places": places})


def test_gamma_is_not_read():
    one, other = (KernelDA(kernel=LEARNER, gamma=gamma).fit(X, Y) for gamma in (None, 1e6))
    np.testing.assert_array_equal(one.transform(NEW), other.transform(NEW))


def test_landmarks_are_of_the_kernel_of_all_rows(tmp_path):
    model = KernelDA(kernel=LEARNER, n_landmarks=30).fit(X, Y)
    np.testing.assert_array_equal(model.kernel_.weights_, clone(LEARNER).fit(X, Y).weights_)
    assert model.coefficients_.shape[1] == 30
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.transform(NEW), model.transform(NEW))
    save(model, tmp_path / "model.nf")
    assert times_kept(X, tmp_path / "model.nf") == {1}
    np.testing.assert_array_equal(load(tmp_path / "model.nf").transform(NEW), model.transform(NEW))


def test_supervision_is_read_by_the_method_and_labels_by_the_kernel():
    pairs = Pairs.from_labels(Y, n_similar=50, n_dissimilar=50, random_state=0)
    learner = clone(LEARNER).fit(X, Y)
    model = with_kernel("KernelIdealizedMetric", LEARNER).fit(X, Y, supervision=pairs)
    given = with_kernel("KernelIdealizedMetric", "precomputed")
    given.fit(learner.kernel(X), supervision=pairs)
    expected = given.transform(learner.kernel(NEW, X))
    atol = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(model.transform(NEW), expected, atol=atol)


@pytest.mark.parametrize(
    ("name", "supervision"),
    [
        ("KernelPCA", None),
        ("KernelRCA", Chunklets(Y)),
        ("KernelPOLA", Pairs.from_labels(Y, n_similar=20, n_dissimilar=20, random_state=0)),
    ],
)
def test_labels_that_only_the_kernel_needs_are_asked_for(name, supervision):
    guided = {} if supervision is None else {"supervision": supervision}
    words = f"{name}: kernel is AlignmentKernelLearner, which learns from labels, .* y is None"
    with pytest.raises(ValueError, match=words):
        with_kernel(name, LEARNER).fit(X, **guided)


def test_what_is_no_kernel_is_refused():
    learner = clone(LEARNER).fit(X, Y)
    for wrong in (AlignmentKernelLearner, learner.kernel, KernelPCA(), None, "gaussian"):
        for method in (KernelDA(kernel=wrong), KernelRCA(kernel=wrong)):
            with pytest.raises(ValueError, match=r"kernel must be .*AlignmentKernelLearner\(\)"):
                method.fit(X, Y)
    with pytest.raises(ValueError, match=r"kernels\[0\]: unknown kernel 'wavelet'"):
        KernelDA(kernel=AlignmentKernelLearner(["wavelet"])).fit(X, Y)


def test_a_function_is_called_pair_by_pair():
    seen = []

    def product(a, b):
        seen.append((a.shape, b.shape))
        return float(a @ b)

    one = KernelPCA(kernel=product).fit(X)
    other = KernelPCA(kernel="linear").fit(X)
    np.testing.assert_allclose(np.abs(one.embedding_), np.abs(other.embedding_), atol=1e-8)
    assert set(seen) == {((4,), (4,))}


def test_a_named_kernel_after_a_learned_one_forgets_it(tmp_path):
    model = KernelDA(kernel=LEARNER).fit(X, Y)
    model.set_params(kernel="rbf").fit(X, Y)
    assert not hasattr(model, "kernel_")
    save(model, tmp_path / "model.nf")


def test_a_file_whose_kernel_was_taken_out_is_refused(tmp_path):
    from nearfar.state import check_state

    for name in ("KernelDA", "KernelRCA"):
        model = with_kernel(name, LEARNER).fit(X, Y)
        check_state(model)
        learned = model.__dict__.pop("kernel_")
        with pytest.raises(ValueError, match="kernel_ must be set for a learned kernel only"):
            check_state(model)
        model.kernel_ = clone(learned)
        with pytest.raises(ValueError, match="kernel_ must be KernelLearner"):
            check_state(model)
        model.kernel_, model._gamma = learned, 1.0
        with pytest.raises(ValueError, match="_gamma must be set unless the kernel is precomputed"):
            check_state(model)


def test_a_search_over_what_the_kernel_is():
    pipeline = make_pipeline(StandardScaler(), KNNClassifier(KernelDA(kernel=LEARNER)))
    grid = {
        "knnclassifier__estimator__kernel__kernel_family": ["nonneg", "independent"],
        "knnclassifier__estimator__kernel__kernels": ["auto", "features"],
    }
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, Y)
    assert search.best_score_ > 0.6
    best = search.best_estimator_[-1].estimator_
    assert isinstance(best.kernel_, KernelLearner)
    assert isinstance(clone(best).kernel, AlignmentKernelLearner)


def test_columns_by_name_are_those_of_the_frame():
    frame = pd.DataFrame(X, columns=list("abcd"))
    kernels = [("rbf", {"columns": ["a", "b"]}), ("rbf", {"columns": ["c", "d"]})]
    model = KernelDA(kernel=AlignmentKernelLearner(kernels)).fit(frame, Y)
    numbered = [("rbf", {"columns": [0, 1]}), ("rbf", {"columns": [2, 3]})]
    plain = KernelDA(kernel=AlignmentKernelLearner(numbered)).fit(X, Y)
    new = pd.DataFrame(NEW, columns=list("abcd"))
    np.testing.assert_allclose(model.transform(new), plain.transform(NEW))


def test_a_support_vector_machine_takes_the_kernel_as_a_function():
    learner = clone(LEARNER).fit(X, Y)
    machine = SVC(kernel=learner.kernel).fit(X, Y)
    given = SVC(kernel="precomputed").fit(learner.kernel(X), Y)
    np.testing.assert_allclose(
        machine.decision_function(NEW), given.decision_function(learner.kernel(NEW, X)), atol=1e-8
    )
