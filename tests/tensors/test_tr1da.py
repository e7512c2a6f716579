"""TR1DA compared with table 4.2 in loops, eigenvectors of scatters, and known optima."""

import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from nearfar import TR1DA
from nearfar.tensors.tr1da import Residuals


def data(n=40, shape=(6, 5), n_classes=4, seed=0, gap=0.7):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    y[:n_classes] = range(n_classes)
    return rng.normal(size=(n, *shape)) + gap * rng.normal(size=(n_classes, *shape))[y], y


def outer(*vectors):
    product = np.ones(())
    for vector in vectors:
        product = np.multiply.outer(product, vector)
    return product


def atoms_of(model):
    return [outer(*(U[:, r] for U in model.factors_)) for r in range(model.n_components_[0])]


def differences(X, y, within_weight, mean_of="samples"):
    """Return between minus within_weight times within scatter of X, computed in a loop."""
    X = X.reshape(len(X), -1)
    means = {c: X[y == c].mean(axis=0) for c in np.unique(y)}
    mean = X.mean(axis=0) if mean_of == "samples" else np.mean(list(means.values()), axis=0)
    total = np.zeros((X.shape[1],) * 2)
    for c, m in means.items():
        total += (y == c).sum() * np.outer(m - mean, m - mean)
    for x, c in zip(X, y, strict=True):
        total -= within_weight * np.outer(x - means[c], x - means[c])
    return total


def table_4_2(X, y, within_weight, starts, sweeps):
    """Find one feature after another, with new class means of the deflated tensors each time."""
    left, numbers, objectives = np.array(X, float), [], []
    modes = "abcd"[: X.ndim - 1]
    for vectors in starts:
        vectors = list(vectors)
        for _ in range(sweeps):
            for k, axis in enumerate(modes):
                others = [v for j, v in enumerate(vectors) if j != k]
                names = [m for m in modes if m != axis]
                Z = np.einsum(
                    f"n{modes},{','.join(names)}->n{axis}" if names else "na->na", left, *others
                )
                values, axes = np.linalg.eigh(differences(Z, y, within_weight))
                vectors[k] = axes[:, -1]
        objectives.append(values[-1])
        atom = outer(*vectors)
        score = left.reshape(len(X), -1) @ atom.ravel()
        numbers.append(score)
        left = left - np.multiply.outer(score, atom)
    return np.column_stack(numbers), np.array(objectives), left


def unit(shape, seed):
    rng = np.random.default_rng(seed)
    return [v / np.linalg.norm(v) for v in (rng.standard_normal(d) for d in shape)]


def fixture():
    rng = np.random.default_rng(7)
    centers = rng.standard_normal((5, 7, 6, 4))
    noise = rng.standard_normal((60, 7, 6, 4))
    y = np.arange(60) % 5
    X = noise + 0.7 * centers[y]
    np.testing.assert_allclose(X.sum(), -766.287018774)
    return X, y


@pytest.mark.filterwarnings("ignore:TR1DA did not converge")
@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 5), (12,)])
@pytest.mark.parametrize("within_weight", [0.0, 0.1, 0.6])
def test_it_is_the_table_of_the_work(shape, within_weight):
    X, y = data(shape=shape)
    # Starts are columns. The vector of the first mode is not used.
    starts = [unit(shape, seed) for seed in range(3)]
    init = [np.column_stack(columns) for columns in zip(*starts, strict=True)]
    model = TR1DA(3, within_weight=within_weight, init=init, tol=0, max_iter=8).fit(X, y)
    numbers, objectives, left = table_4_2(X, y, within_weight, starts, 8)
    np.testing.assert_allclose(model.objectives_, objectives, rtol=1e-9)
    Z = model.transform(X)
    np.testing.assert_allclose(np.abs(Z), np.abs(numbers), atol=1e-7)
    # Squares of coefficients and residuals add up, and together they give the tensors.
    squares = (Z**2).sum(axis=1) + (left.reshape(len(X), -1) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, (X.reshape(len(X), -1) ** 2).sum(axis=1))
    np.testing.assert_allclose(model.inverse_transform(Z) + left, X, atol=1e-7)
    again = [3.0 * U for U in init]
    if len(shape) > 1:
        again[0] = np.random.default_rng(9).normal(size=again[0].shape)
    other = TR1DA(3, within_weight=within_weight, init=again, tol=0, max_iter=8).fit(X, y)
    np.testing.assert_allclose(other.transform(X), Z, atol=1e-7)


@pytest.mark.parametrize(
    ("within_weight", "known"),
    [
        (0.1, [278.1197, 245.2593, 238.4127, 225.9061, 184.7794]),
        (1.0, [240.3378, 237.0802, 189.7757, 177.0435, 173.6356, 127.0395]),
    ],
)
def test_known_optima(within_weight, known):
    """There are several local optima, which a single start does not show."""
    X, y = fixture()
    found = set()
    for seed in range(8):
        model = TR1DA(1, within_weight=within_weight, init=unit((7, 6, 4), seed), tol=1e-12).fit(
            X, y
        )
        nearest = min(known, key=lambda value: abs(value - model.objectives_[0]))
        assert abs(nearest - model.objectives_[0]) < 1e-4
        found.add(nearest)
    assert len(found) > 1
    best = TR1DA(1, within_weight=within_weight, n_init=12, tol=1e-12).fit(X, y)
    assert abs(best.objectives_[0] - known[0]) < 1e-4


def test_vectors_give_successive_eigenvectors():
    X, y = data(n=200, shape=(9,), n_classes=5)
    values, axes = np.linalg.eigh(differences(X, y, 0.01))
    positive = int((values > 0).sum())
    with pytest.warns(UserWarning, match=f"TR1DA: only {positive} of 9 features"):
        model = TR1DA(9, within_weight=0.01).fit(X, y)
    np.testing.assert_allclose(model.objectives_, values[::-1][:positive], rtol=1e-9)
    products = np.abs(model.factors_[0].T @ axes[:, ::-1][:, :positive])
    np.testing.assert_allclose(products, np.eye(positive), atol=1e-6)
    assert model.n_iter_ == positive  # One sweep per feature.


def test_few_vectors_of_many_numbers():
    """With fewer rows than entries the result is the same, without a large matrix."""
    X, y = data(n=15, shape=(40,), n_classes=3)
    values, axes = np.linalg.eigh(differences(X, y, 0.1))
    model = TR1DA(2).fit(X, y)
    np.testing.assert_allclose(model.objectives_, values[::-1][:2], rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(model.factors_[0] * axes[:, [-1, -2]], axis=0)), 1)


@pytest.mark.parametrize("within_weight", [0.1, 1.0, "max_eig"])
@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 5)])
def test_no_step_lowers_the_objective(shape, within_weight):
    X, y = data(shape=shape, seed=3)
    model = TR1DA(4, within_weight=within_weight, random_state=3).fit(X, y)
    steps = iter(model.history_["objective"])
    for sweeps, last in zip(model.history_["sweeps"], model.objectives_, strict=True):
        objective = np.array([next(steps) for _ in range(sweeps * len(shape))])
        assert (np.diff(objective) >= -1e-10 * np.abs(objective).max()).all()
        assert objective[-1] == last
    assert sum(model.history_["sweeps"]) == model.n_iter_


def test_max_eig_is_the_largest_ratio_and_the_weight_of_zero():
    X, y = data(n=60, shape=(5, 4), n_classes=2)
    model = TR1DA(1, within_weight="max_eig", tol=1e-14).fit(X, y)
    atom = atoms_of(model)[0].ravel()
    flat = X.reshape(len(X), -1)
    within = -differences(flat, y, 1.0) + differences(flat, y, 0.0)
    ridge = 1e-3 * np.trace(within) / len(atom)
    ratio = (atom @ differences(flat, y, 0.0) @ atom) / (atom @ within @ atom + ridge)
    np.testing.assert_allclose(model.objectives_[0], ratio)
    np.testing.assert_allclose(model.within_weight_[0], ratio)
    # With this weight, ridge included, the difference has no positive eigenvalue.
    Z = X @ model.factors_[1][:, 0]
    M = differences(Z, y, ratio) - ratio * ridge * np.eye(5)
    assert abs(np.linalg.eigvalsh(M)[-1]) < 1e-8 * np.abs(M).max()


def test_features_are_nested_and_labels_only_names():
    X, y = data(n=50, shape=(5, 6))
    many = TR1DA(6).fit(X, y).transform(X)
    fewer = TR1DA(3).fit(X, y).transform(X)
    np.testing.assert_allclose(fewer, many[:, :3], rtol=1e-10, atol=1e-12)
    names = np.array(["d", "b", "a", "c"])[y]
    np.testing.assert_allclose(TR1DA(6).fit(X, names).transform(X), many, atol=1e-6)
    single = TR1DA(6, within_weight=[0.1] * 6).fit(X, y).transform(X)
    np.testing.assert_array_equal(single, many)
    mixed = TR1DA(6, within_weight=[0.1] * 3 + [0.5] * 3).fit(X, y)
    np.testing.assert_allclose(mixed.transform(X)[:, :3], many[:, :3], rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(mixed.within_weight_, [0.1] * 3 + [0.5] * 3)


def test_another_basis_of_the_modes_changes_nothing():
    X, y = data(shape=(5, 4))
    rng = np.random.default_rng(0)
    Q, P = (np.linalg.qr(rng.normal(size=(d, d)))[0] for d in (5, 4))
    start = unit((5, 4), 0)
    one = TR1DA(3, init=start, tol=1e-12).fit(X, y)
    two = TR1DA(3, init=[Q.T @ start[0], P.T @ start[1]], tol=1e-12).fit(Q.T @ X @ P, y)
    np.testing.assert_allclose(two.objectives_, one.objectives_, rtol=1e-8)
    first, second = one.transform(X), two.transform(Q.T @ X @ P)
    np.testing.assert_allclose(np.abs(second), np.abs(first), atol=1e-4)


def test_more_samples_than_numbers_are_as_few(monkeypatch):
    """The samples are replaced by rows with the same scatter."""
    import nearfar.tensors.tr1da as module

    X, y = data(n=300, shape=(4, 3))
    few = TR1DA(3, tol=1e-12).fit(X, y)
    monkeypatch.setattr(module, "_MAX_ENTRIES_FOR_QR", 0)
    all_rows = TR1DA(3, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(few.objectives_, all_rows.objectives_, rtol=1e-9)
    np.testing.assert_allclose(few.transform(X), all_rows.transform(X), atol=1e-5)


# Mistakes


def test_means_are_those_of_what_is_left_and_weigh_classes_by_size():
    X, y = data(n=60, shape=(5, 4), n_classes=3)
    y[:40] = 0  # far from balanced
    start = unit((5, 4), 0)
    model = TR1DA(2, within_weight=0.05, init=start, tol=1e-13).fit(X, y)
    scores = model.transform(X)
    for r in range(2):
        right = differences(scores[:, [r]], y, 0.05)
        np.testing.assert_allclose(model.objectives_[r], right[0, 0], rtol=1e-9)
        unweighted = differences(scores[:, [r]], y, 0.05, mean_of="classes")
        assert abs(unweighted[0, 0] - right[0, 0]) > 1e-3 * right[0, 0]
    # With the means before deflation, the second objective would differ.
    plain = X.reshape(len(X), -1) @ atoms_of(model)[1].ravel()
    assert abs(differences(plain[:, None], y, 0.05)[0, 0] - model.objectives_[1]) > 1e-3


def test_plain_projection_is_another_map():
    X, y = data()
    model = TR1DA(5).fit(X, y)
    plain = np.column_stack([np.einsum("nij,ij->n", X, atom) for atom in atoms_of(model)])
    Z = model.transform(X)
    np.testing.assert_allclose(plain[:, 0], Z[:, 0])
    assert np.abs(plain - Z).max() > 0.05 * np.abs(Z).max()
    for U in model.factors_:  # Deflation requires unit vectors.
        np.testing.assert_allclose(np.linalg.norm(U, axis=0), 1)


def test_a_blank_border_is_not_the_best_feature():
    """With a large weight, a direction without variance would lead, and all features be zero."""
    X, y = data(n=60, shape=(5, 4), gap=0.3)
    framed = np.zeros((60, 9, 8))
    framed[:, 2:-2, 2:-2] = X
    with pytest.warns(UserWarning, match=r"of 10 features were found.*within_weight=30"):
        model = TR1DA(10, within_weight=30.0).fit(framed, y)
    Z = model.transform(framed)
    assert 1 <= model.n_components_[0] < 10 and (Z.std(axis=0) > 0.01).all()
    assert Z.shape[1] == len(model.get_feature_names_out()) == len(model.objectives_)
    assert not model.factors_[0][[0, 1, 7, 8]].any()


def test_tensors_are_left_as_they_are():
    X, y = data()
    before = X.copy()
    TR1DA(4).fit(X, y)
    np.testing.assert_array_equal(X, before)


def test_float32_and_offsets():
    X, y = data(n=60, shape=(6, 5))
    exact = TR1DA(4, tol=1e-10).fit(X + 100, y)
    rounded = TR1DA(4, tol=1e-10).fit((X + 100).astype(np.float32), y)
    assert rounded.factors_[0].dtype == np.float32
    np.testing.assert_allclose(rounded.objectives_, exact.objectives_, rtol=1e-4)
    np.testing.assert_allclose(
        exact.objectives_, TR1DA(4, tol=1e-10).fit(X, y).objectives_, rtol=1e-8
    )


def test_starts():
    X, y = fixture()
    leading = TR1DA(2, init="hosvd").fit(X, y)
    assert leading.objectives_[0] > 220
    with pytest.warns(
        ConvergenceWarning, match="did not converge in 1 iterations.*2 of 2 features"
    ):
        TR1DA(2, max_iter=1).fit(X, y)


def test_bad_input_is_named():
    X, y = data()
    with pytest.raises(ValueError, match="TR1DA: all samples in X are equal"):
        TR1DA().fit(np.ones((6, 3, 3)) / 3, np.arange(6) % 2)
    with pytest.raises(ValueError, match=r"X: the largest absolute value is .*overflow"):
        TR1DA().fit(X * 1e200, y)
    with pytest.raises(ValueError, match="within_weight=.* must be a nonnegative, finite number"):
        TR1DA(3, within_weight=[0.1, 0.2]).fit(X, y)
    with pytest.raises(ValueError, match="within_weight must be"):
        TR1DA(within_weight=-1).fit(X, y)
    with pytest.raises(ValueError, match="within_weight=.* must be a nonnegative, finite number"):
        TR1DA(2, within_weight=[0.1, -0.1]).fit(X, y)
    with pytest.raises(ValueError, match="all samples of each class are equal.*max_eig"):
        TR1DA(1, within_weight="max_eig").fit(np.repeat(X[:2], 3, axis=0), [0, 0, 0, 1, 1, 1])
    with pytest.raises(
        ValueError, match=r"init must contain finite arrays .* got shapes \[\(6,\)\]"
    ):
        TR1DA(init=[np.ones(6)]).fit(X, y)
    with pytest.raises(ValueError, match="vector of zeros"):
        TR1DA(init=[np.ones(6), np.zeros(5)]).fit(X, y)
    with pytest.raises(ValueError, match="at least 2 classes|one class"):
        TR1DA().fit(X, np.zeros(len(X)))
    # Equal samples within classes are valid if within_weight is a number.
    assert TR1DA(1).fit(np.repeat(X[:2], 3, axis=0), [0, 0, 0, 1, 1, 1]).objectives_[0] > 0


@pytest.mark.parametrize("blank", [0, 1])
def test_memory_is_one_copy_and_little_more(blank):
    rng = np.random.default_rng(0)
    y = np.arange(300) % 5
    X = np.zeros((300, 24, 20, 8))
    inner = (slice(None), slice(blank, 24 - blank), slice(blank, 20 - blank))
    X[inner] = rng.standard_normal(X[inner].shape)
    X[inner] += rng.standard_normal((5, *X[inner].shape[1:]))[y]
    learner = TR1DA(2, max_iter=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tracemalloc.start()
        learner.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # Of 300 samples and 5 means; blocks and products with the last vector take the rest.
    assert peak < 1.6 * X.nbytes


def test_many_samples_are_a_triangle_of_the_same_scatter():
    """With more samples than entries, the samples are reduced in blocks."""
    rng = np.random.default_rng(3)
    y = np.arange(150) % 3
    X = rng.standard_normal((150, 4, 5)) + rng.standard_normal((3, 4, 5))[y]
    few, many = Residuals(X[:18], y[:18]), Residuals(X, y)
    assert len(few.rows) == 3 + 18 and len(many.rows) == 3 + 20
    centered = X - np.stack([X[y == c].mean(axis=0) for c in range(3)])[y]
    flat = centered.reshape(150, -1)
    triangle = many.rows[3:].reshape(20, 20)
    np.testing.assert_allclose(triangle.T @ triangle, flat.T @ flat, atol=1e-10)


def test_float32_finds_features_in_small_units():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = rng.normal(size=(200, 3)) * [2e3, 1.0, 1.0]
    X[:, 2] += 3 * y
    X = X.astype(np.float32)
    found, expected = TR1DA(1).fit(X, y), TR1DA(1).fit(X.astype(np.float64), y)
    assert found.objectives_[0] > 0
    np.testing.assert_allclose(found.objectives_, expected.objectives_, rtol=1e-5)
    np.testing.assert_allclose(found.components_, expected.components_, atol=1e-5)


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_extreme_units_in_single_precision_give_the_same_features(scale):
    random = np.random.default_rng(0)
    y = np.arange(24) % 3
    X = random.normal(size=(24, 4, 3)) + 2 * random.normal(size=(3, 4, 3))[y]
    plain = TR1DA(2).fit(X, y)
    scaled = TR1DA(2).fit((X * scale).astype(np.float32), y)
    for one, other in zip(plain.factors_, scaled.factors_, strict=True):
        assert other.dtype == np.float32
        np.testing.assert_allclose(np.abs(other), np.abs(one), atol=1e-3)
    with pytest.raises(ValueError, match="n_components must be an integer from 1 to 100000"):
        TR1DA(10**9).fit(X, y)
