"""Descent by L-BFGS: what it stops at, what it leaves behind, and the way out of traps."""

import numpy as np
import pytest
from scipy import optimize

from nearfar.solvers.descent import Descent, descend, descend_with_proof, escape

CURVES = np.array([1.0, 10.0, 100.0, 1000.0])


def bowl(x):
    """Least at ones, where it is 1; the first steps are far from enough."""
    off = x - 1
    return 1 + float((CURVES * off**2).sum()), 2 * CURVES * off


def valley(x):
    """Rosenbrock's, for which many steps are needed."""
    return float(optimize.rosen(x)) + 1, optimize.rosen_der(x)


def test_it_ends_at_the_least_and_says_so():
    found = descend(bowl, Descent(np.zeros(4)), max_iter=200, tol=1e-10)
    assert found.converged and found.objective == pytest.approx(1, abs=1e-8)
    np.testing.assert_allclose(found.point, 1, atol=1e-4)
    assert all(np.diff(found.history["objective"]) <= 0)
    assert all(np.diff(found.history["seconds"]) >= 0)
    assert {len(notes) for notes in found.history.values()} == {found.n_iter}


def test_matrices_keep_their_shape_and_bounds_are_kept():
    bounds = optimize.Bounds(np.full(4, 1.5))
    found = Descent(np.full((2, 2), 3.0))
    descend(
        lambda M: (bowl(M.ravel())[0], bowl(M.ravel())[1].reshape(2, 2)),
        found,
        max_iter=50,
        tol=0,
        bounds=bounds,
    )
    np.testing.assert_allclose(found.point, np.full((2, 2), 1.5))


def test_the_limit_ends_it_without_convergence():
    found = descend(valley, Descent(np.array([-1.2, 1.0])), max_iter=5, tol=0)
    assert not found.converged and found.n_iter == 5


def test_stages_share_one_limit():
    found = Descent(np.array([-1.2, 1.0]))
    descend(valley, found, max_iter=4, tol=0)
    descend(valley, found, max_iter=7, tol=0)
    assert found.n_iter == 7 and not found.converged
    point = found.point
    descend(valley, found, max_iter=7, tol=0)  # nothing is left
    assert found.n_iter == 7 and found.point is point
    assert all(np.diff(found.history["seconds"]) >= 0)


def test_interruption_leaves_the_best_so_far():
    found, heard = Descent(np.array([-1.2, 1.0])), []

    def report(notes):
        heard.append(notes["objective"])
        if len(heard) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        descend(valley, found, max_iter=100, tol=0, report=report)
    assert found.history["objective"] == heard and found.n_iter == 6
    assert valley(found.point)[0] == pytest.approx(min(heard), rel=1e-12)
    assert not found.converged


@pytest.mark.parametrize("beyond", [np.inf, np.nan])
def test_values_that_are_not_finite_are_steps_too_far(beyond):
    # −log of x and a term that calls for long first steps: half of the line is forbidden.
    calls = []

    def barrier(x):
        if (x <= 0).any():
            calls.append(x)
            return beyond, np.full(x.shape, beyond)
        return float(np.sum(1e3 * x - np.log(x))), 1e3 - 1 / x

    found = descend(barrier, Descent(np.full(3, 5.0)), max_iter=200, tol=1e-12)
    assert calls  # it did try
    assert found.converged
    np.testing.assert_allclose(found.point, 1e-3, rtol=1e-3)


def test_a_start_without_a_value_is_refused():
    with pytest.raises(ValueError, match="inf at the start"):
        descend(lambda x: (np.inf, x), Descent(np.ones(2)), max_iter=5, tol=0)


def test_units_of_the_objective_do_not_matter():
    few = [
        descend(lambda x, u=u: (u * bowl(x)[0], u * bowl(x)[1]), Descent(np.zeros(4)), **LIMITS)
        for u in (1e-12, 1.0, 1e12)
    ]
    assert len({found.n_iter for found in few}) == 1
    np.testing.assert_allclose(few[0].point, few[2].point, rtol=1e-6)


LIMITS = {"max_iter": 200, "tol": 1e-9}


def test_it_goes_on_until_the_gap_is_proven():
    start = np.array([-1.2, 1.0])
    alone = descend(valley, Descent(start), max_iter=500, tol=0.01)

    def prove(x):
        return 1 - 1 / valley(x)[0], None  # the least is 1

    found = descend_with_proof(valley, Descent(start), prove, max_iter=500, tol=0.01)
    assert alone.objective > found.objective and found.n_iter > alone.n_iter


# Traps of a factor


def far_from(target):
    """Squared distance of M = L'L from a matrix, as a function of L, and its slope in M."""

    def objective(L):
        G = 2 * (L.T @ L - target)
        return float(((L.T @ L - target) ** 2).sum()) + 1, 2 * L @ G

    return objective, lambda L: 2 * (L.T @ L - target)


def test_a_map_that_lost_rank_is_no_end():
    target = np.diag([3.0, 2.0, 1.0])
    objective, slope = far_from(target)
    trapped = np.diag([1.0, 0.0, 0.0])  # zero rows have no gradient
    stuck = descend(objective, Descent(trapped), max_iter=100, tol=1e-9)
    assert stuck.objective == pytest.approx(1 + 2**2 + 1**2)

    def prove(L):
        value = objective(L)[0]
        return 1 - 1 / value, escape(lambda L: objective(L)[0], L, slope(L))

    free = descend_with_proof(objective, Descent(trapped), prove, max_iter=100, tol=1e-9)
    assert free.objective == pytest.approx(1, abs=1e-6)


def test_no_way_out_where_there_is_none():
    target = np.diag([3.0, -1.0])
    objective, slope = far_from(target)
    best = np.diag([np.sqrt(3.0), 0.0])
    assert escape(lambda L: objective(L)[0], best, slope(best)) is None
    wide = np.diag([1.0, 1.0])  # of full rank, but not stationary: no row is to spare
    assert escape(lambda L: objective(L)[0], wide, slope(wide), min_decrease=0.5) is None


def test_the_way_out_for_a_diagonal():
    def value(w):
        return float(((w**2 - [3.0, 2.0]) ** 2).sum())

    w = np.array([np.sqrt(3.0), 0.0])
    out = escape(value, w, 2 * (w**2 - [3.0, 2.0]))
    assert out[0] == w[0] and out[1] > 0 and value(out) < value(w)
