"""Wrong use of the discriminant learners: each case works or raises a clear error."""

import warnings
from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

from nearfar import (
    GADA,
    HLDA,
    LDA,
    MGMD,
    MGMKLD,
    MODA,
    PARDA,
    ClassStatistics,
    FractionalStepLDA,
    KernelDA,
    KernelLMNN,
    KernelMGMKLD,
    MinimumMahalanobisClassifier,
    MultimodalKernelMGMKLD,
    MultimodalMGMKLD,
    WeightedLDA,
    all_learners,
)

X, y = load_iris(return_X_y=True)
FAMILY = {
    name: kind
    for name, kind in all_learners().items()
    if kind.__module__.startswith("nearfar.discriminant.") and kind.learner_tags.supervised
}
QUICK = {"PARDA": {"n_init": 2}}


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("name", [*FAMILY, "KernelLMNN"])
@pytest.mark.filterwarnings("ignore")
def test_a_fit_that_fails_leaves_no_old_map_beside_new_data(name):
    learner = all_learners()[name](**QUICK.get(name, {})).fit(X, y)
    for wrong in (np.zeros(len(X), dtype=int), np.arange(len(X)) + 0.5):  # One class; not classes.
        again = deepcopy(learner)
        with pytest.raises(ValueError, match="y "):
            again.fit(X[:, :3], wrong)
        with pytest.raises(NotFittedError):
            again.transform(X[:, :3])


@pytest.mark.parametrize(
    "learner",
    [
        KernelDA(99),
        MultimodalMGMKLD(99),
        KernelMGMKLD(estimator=MGMKLD(999)),
        MultimodalKernelMGMKLD(estimator=MultimodalMGMKLD(999)),
    ],
)
def test_a_solve_that_fails_leaves_a_kernel_learner_unfitted(learner):
    wanted = learner.get_params(deep=False)
    fitted = type(learner)().fit(X, y).set_params(**wanted)
    with pytest.raises(ValueError, match="n_components=9+ is too large"):
        fitted.fit(X + 1, y)
    # Old coefficients must not be combined with the directions of the new rows.
    with pytest.raises(NotFittedError):
        fitted.transform(X)


@pytest.mark.parametrize("kind", [KernelDA, KernelMGMKLD, KernelLMNN])
def test_a_kernel_that_is_not_finite_is_named(kind):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="contains NaN or infinity"):
        kind(kernel="poly", degree=400.0, gamma=1e3).fit(X, y)


# Powers


@pytest.mark.parametrize("kind", [WeightedLDA, FractionalStepLDA])
def test_powers_that_would_overflow_are_refused(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(kind(1, power=50).fit(X, y).components_).all()
    with pytest.raises(ValueError, match="power must be a number from 0 to 50; got 51"):
        kind(1, power=51).fit(X, y)


@pytest.mark.filterwarnings("ignore:One of 3 objectives:UserWarning")
def test_any_power_of_the_divergences_makes_weights():
    weights = PARDA(weight_power=500.0, n_init=1).fit(X, y).weights_
    assert weights[1, 2] == pytest.approx(1)  # The closest pair has all the weight.
    np.testing.assert_allclose(np.triu(weights).sum(), 1)


def test_power_means_go_to_the_least_and_to_the_largest_divergence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        least = GADA(1, mean=-2000.0).fit(X, y)
        largest = GADA(1, mean=2000.0).fit(X, y)
    others = ~np.eye(3, dtype=bool)
    assert least.n_iter_ > 0
    assert least.objective_ == pytest.approx(least.divergences_[others].min(), rel=0.01)
    assert largest.objective_ == pytest.approx(largest.divergences_[others].max(), rel=0.01)


# The published loop has an unconstrained matrix. If the objective depends on its scale, the loop
# does not end.


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("learner", [MGMD(2, divergence="l2"), GADA(2, divergence="l2")])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_steepest_steps_do_not_escape_by_the_scale_of_the_map(learner):
    best = clone(learner).fit(X, y).objective_
    steep = clone(learner).set_params(solver="steepest", max_iter=1000, n_init=1).fit(X, y)
    climbed = steep.history_["objective"]
    assert climbed[0] <= climbed[-1] <= best + 1e-6


# Clusters of MODA


def test_moda_sees_that_weights_leave_one_class_of_several_parts():
    with pytest.raises(
        ValueError, match=r"MODA needs at least 2 classes, but .* only one class \(0\)"
    ):
        MODA(n_clusters=2).fit(X, y, sample_weight=(y == 0).astype(float))


def test_moda_takes_batches_after_a_fit_with_parts_failed():
    learner = MODA(n_components=99, n_clusters=2)
    with pytest.raises(ValueError, match="n_components=99"):
        learner.fit(X, y)
    learner.set_params(n_components=1, n_clusters=1).partial_fit(X, y)
    np.testing.assert_allclose(learner.components_, MODA(1).fit(X, y).components_, rtol=1e-8)


def test_moda_says_why_parts_take_no_more_rows():
    learner = MODA(n_clusters=2).fit(X, y).set_params(n_clusters=1)
    with pytest.raises(ValueError, match="was fitted with n_clusters above 1"):
        learner.partial_fit(X, y)
    learner.fit(X, y).partial_fit(X, y)
    assert learner.statistics_.n_classes == 3


def test_a_singular_part_is_not_called_a_class():
    few = np.arange(0, 150, 9)
    with pytest.raises(ValueError, match="covariance of cluster"):
        MODA(n_clusters=3, shrinkage=0.0).fit(X[few], y[few])
    with pytest.raises(ValueError, match="covariance of class"):
        MODA(shrinkage=0.0).fit(X[::15], y[::15])


# Weights that sum to 1 instead of counting rows


def test_the_mahalanobis_rule_does_not_depend_on_the_unit_of_the_weights():
    rules = [
        MinimumMahalanobisClassifier.from_statistics(
            ClassStatistics().partial_fit(X, y, np.full(len(X), weight)), rule=rule, ddof=ddof
        )
        for rule in ("mahalanobis", "gaussian")
        for weight, ddof in ((1.0, 0.0), (1 / len(X), 1.0), (0.03, 1.0))
    ]
    for first in (0, 3):
        for other in (1, 2):
            np.testing.assert_allclose(
                rules[first + other].decision_function(X), rules[first].decision_function(X)
            )


def test_parda_compares_its_starts_alike_whatever_the_unit_of_the_weights():
    learner = PARDA(n_init=4, selection="error")
    weights = (np.full(len(X), w) for w in (1e-6, 1e-2, 0.5))
    fits = [clone(learner).fit(X, y, sample_weight=weight) for weight in weights]
    for other in fits[1:]:
        np.testing.assert_allclose(other.errors_per_init_, fits[0].errors_per_init_, atol=1e-12)
        np.testing.assert_allclose(other.components_, fits[0].components_, rtol=1e-6)


@pytest.mark.parametrize("pairing", ["one_vs_one", "one_vs_all"])
def test_parda_counts_a_row_of_weight_two_as_two_rows(pairing):
    twice = np.r_[np.arange(150), np.arange(0, 150, 3)]
    weight = np.bincount(twice).astype(float)
    learner = PARDA(n_init=2, pairing=pairing, selection="objective")
    np.testing.assert_allclose(
        clone(learner).fit(X, y, sample_weight=weight).components_,
        clone(learner).fit(X[twice], y[twice]).components_,
        rtol=1e-6,
    )


# Messages


@pytest.mark.parametrize("init", [["lda"], [[1.0, 2.0], [3.0]], [[None] * 4] * 2 + [["a"] * 4]])
def test_an_init_that_is_no_matrix_is_named(init):
    for kind in (MGMKLD, PARDA):
        with pytest.raises(
            ValueError, match=f"{kind.__name__}: init must be .* an array of numbers"
        ):
            kind(init=init).fit(X, y)


def test_values_whose_squares_underflow_are_refused():
    for learner in (LDA(), HLDA(shrinkage=0.1), MGMKLD(), PARDA(n_init=1)):
        with pytest.raises(ValueError, match="X: .* underflow. Rescale X"):
            learner.fit(X * 1e-160, y)
    LDA().fit(X * 1e-100, y)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_kernel_of_values_too_small_is_refused_and_gives_no_map_of_no_columns(kernel):
    with pytest.raises(ValueError, match="X: .* underflow. Rescale X"):
        KernelDA(kernel=kernel).fit(X * 1e-160, y)
    assert KernelDA(kernel=kernel).fit(X * 1e-100, y).transform(X * 1e-100).shape == (150, 2)
