"""The initial maps: each one by its definition, and all learners with an init parameter."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA as ScikitPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from nearfar import LMNN, MCML, MLKR, NCA
from nearfar.mahalanobis.starts import Spread, compute_spread, convert_start, make_start_map
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import whiten_rows

X, Y = load_wine(return_X_y=True)
STATISTICS = ClassStatistics(pooled=True, exact=True).add(X, np.arange(3), Y)
SPREAD = compute_spread(STATISTICS)
NAMES = ["identity", "pca", "lda", "within", "random"]


def start(init, n_components=None, spread=SPREAD, **options):
    return make_start_map(init, spread, n_components, auto="within", **options)


def test_the_spread_is_that_of_the_rows():
    np.testing.assert_allclose(SPREAD.total, np.cov(X.T, bias=True), rtol=1e-9)
    np.testing.assert_allclose(SPREAD.within + SPREAD.between, SPREAD.total, rtol=1e-9)
    own = sum(np.cov(X[c == Y].T, bias=True) * np.mean(c == Y) for c in range(3))
    np.testing.assert_allclose(SPREAD.within, own, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("init", NAMES)
@pytest.mark.parametrize("n_components", [1, 2, 5, 13, None])
def test_shapes(init, n_components):
    found = start(init, n_components, random_state=0)
    assert found.shape == (n_components or 13, 13)
    assert np.isfinite(found).all() and found.any()


def test_the_identity_is_the_euclidean_distance_or_the_largest_part_of_it():
    np.testing.assert_array_equal(start("identity"), np.eye(13))
    axes = ScikitPCA(2).fit(X).components_
    np.testing.assert_allclose(np.abs(start("identity", 2)), np.abs(axes), atol=1e-8)


def test_principal_axes_are_those_of_standardised_features():
    found = start("pca", 3)
    np.testing.assert_allclose(np.cov((X @ found.T).T, bias=True), np.eye(3), atol=1e-8)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    wanted = ScikitPCA(3, whiten=True).fit_transform(Z) * np.sqrt(len(X) / (len(X) - 1))
    mapped = (X - X.mean(axis=0)) @ found.T
    np.testing.assert_allclose(np.abs(mapped), np.abs(wanted), atol=1e-7)


def test_within_makes_classes_white_along_the_directions_of_fisher():
    found = start("within", 2)
    np.testing.assert_allclose(found @ SPREAD.within @ found.T, np.eye(2), atol=1e-8)
    lda = LinearDiscriminantAnalysis(solver="eigen").fit(X, Y)
    theirs = np.linalg.qr(lda.scalings_[:, :2])[0]
    ours = np.linalg.qr(found.T)[0]
    np.testing.assert_allclose(np.linalg.svd(theirs.T @ ours)[1], 1, atol=1e-6)
    np.testing.assert_allclose(start("lda", 2), found, atol=1e-9)


def test_lda_has_as_many_directions_as_there_are_differences_of_means():
    square = start("lda")
    assert np.linalg.matrix_rank(square) == 2
    assert not square[2:].any()
    np.testing.assert_allclose(
        square @ SPREAD.between @ square.T,
        np.diag(np.diag(square @ SPREAD.between @ square.T)),
        atol=1e-8,
    )


def test_random_starts_follow_the_seed_and_the_units():
    first = start("random", 3, random_state=1)
    np.testing.assert_array_equal(first, start("random", 3, random_state=1))
    assert not np.allclose(first, start("random", 3, random_state=2))
    units = 10.0 ** np.arange(-6, 7)
    scaled = Spread(SPREAD.total * np.outer(units, units))
    np.testing.assert_allclose(start("random", 3, scaled, random_state=1) * units, first, rtol=1e-9)


def test_auto_is_what_the_learner_says():
    np.testing.assert_array_equal(start("auto", 4), start("within", 4))
    np.testing.assert_array_equal(make_start_map("auto", SPREAD, 4, auto="pca"), start("pca", 4))


def test_an_array_is_a_map_of_the_rows_as_given():
    given = np.arange(26.0).reshape(2, 13)
    np.testing.assert_array_equal(start(given, 2), given)
    np.testing.assert_array_equal(start(given.tolist(), 2, unit=10.0), 10 * given)


def test_constant_and_duplicated_columns_get_finite_starts():
    wide = np.column_stack([X, X[:, 0], np.full(len(X), 3.0)])
    spread = compute_spread(ClassStatistics(pooled=True, exact=True).add(wide, np.arange(3), Y))
    for init in NAMES:
        found = start(init, None, spread, random_state=0)
        assert np.isfinite(found).all()
        if init != "identity":
            assert not found[:, -1].any()


def test_singular_classes_get_a_share_of_the_total():
    few = X[[0, 1, 60, 61, 150, 151]]
    spread = compute_spread(
        ClassStatistics(pooled=True, exact=True).add(few, np.arange(3), np.repeat([0, 1, 2], 2))
    )
    for init in ("within", "lda"):
        assert np.isfinite(start(init, 2, spread)).all()


@pytest.mark.parametrize(
    ("init", "n_components", "words"),
    [
        ("pca", 14, "n_components=14 is more than the 13 features"),
        (np.eye(3), 2, r"init must have shape \(2, 13\); got \(3, 3\)"),
        (np.full((2, 13), np.nan), 2, "init contains NaN"),
        (np.zeros((2, 13)), 2, "init maps all rows of X to one point"),
        ([[1.0], [1.0, 2.0]], 2, "init must be an array of numbers"),
    ],
)
def test_bad_starts_are_named(init, n_components, words):
    with pytest.raises(ValueError, match=words):
        start(init, n_components)


@pytest.mark.parametrize("init", ["lda", "within"])
def test_without_classes_there_is_nothing_within(init):
    with pytest.raises(ValueError, match="need class labels, or similar and dissimilar pairs"):
        start(init, 2, Spread(SPREAD.total))


def test_lda_needs_means_that_differ():
    same = Spread(SPREAD.total, SPREAD.total, np.zeros((13, 13)))
    with pytest.raises(ValueError, match="needs classes whose means differ"):
        start("lda", 2, same)


@pytest.mark.parametrize("init", NAMES)
@pytest.mark.parametrize("n_components", [2, None])
def test_the_coordinates_of_a_solver_change_no_distance(init, n_components):
    white, points = whiten_rows(X, STATISTICS)
    A = start(init, n_components, random_state=0)
    L = convert_start(A, white, square=n_components is None)
    wanted = (X - X.mean(axis=0)) @ A.T
    np.testing.assert_allclose(
        (points @ L.T) @ (points @ L.T).T,
        wanted @ wanted.T,
        rtol=1e-6,
        atol=1e-8 * np.abs(wanted @ wanted.T).max(),
    )


@pytest.mark.parametrize("learner", [NCA, MCML, LMNN, MLKR])
@pytest.mark.parametrize("init", ["auto", *NAMES])
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_every_learner_knows_every_start(learner, init):
    rows, labels = X[::3], Y[::3]
    model = learner(n_components=2, init=init, max_iter=3)
    if learner is MLKR and init in ("lda", "within"):
        with pytest.raises(ValueError, match="need class labels, or similar and dissimilar pairs"):
            model.fit(rows, labels)
        return
    assert np.isfinite(model.fit(rows, labels).components_).all()
    given = np.ones((13 if learner is MCML else 2, 13)) * np.arange(1, 14)
    assert np.isfinite(model.set_params(init=given).fit(rows, labels).components_).all()


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_new_starts_of_lmnn_reach_the_same_optimum():
    rows, labels = X[::3, :6], Y[::3]
    published = LMNN(n_impostors=None, n_passes=1, validation_fraction=0.0, tol=1e-7)
    best = clone(published).fit(rows, labels).objective_
    for init in ("random", "lda"):
        found = clone(published).set_params(init=init).fit(rows, labels).objective_
        assert found == pytest.approx(best, rel=1e-3)


@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_diagonal_lmnn_has_random_starts_and_no_lda():
    model = LMNN(structure="diagonal", init="random", max_iter=5).fit(X, Y)
    assert np.isfinite(model.components_).all()
    with pytest.raises(ValueError, match='init="lda" cannot be combined with structure="diagonal"'):
        LMNN(structure="diagonal", init="lda").fit(X, Y)
