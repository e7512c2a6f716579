"""New points in an embedding that keeps distances."""

import numpy as np
import pytest
from conic import solved
from scipy import optimize
from sklearn.datasets import make_swiss_roll

from nearfar import VariationalMVU
from nearfar.evaluation import out_of_sample_consistency
from nearfar.manifold.placing import place_new_points
from nearfar.solvers.new_points import place_by_program, place_by_stress


def situation(r, k, n=50, seed=0):
    random = np.random.default_rng(seed)
    known = 3 * random.normal(size=(n, k, r)) + 5
    places = 2 * random.normal(size=(n, r)) + 5
    return known, places, ((known - places[:, None]) ** 2).sum(axis=2)


@pytest.mark.parametrize(("r", "k"), [(1, 2), (2, 3), (3, 4), (2, 6), (5, 6)])
def test_distances_that_can_be_met_give_the_place(r, k):
    known, places, squared = situation(r, k)
    np.testing.assert_allclose(place_by_program(known, squared), places, atol=1e-5)
    np.testing.assert_allclose(
        place_by_stress(place_by_program(known, squared), known, squared), places, atol=1e-7
    )


@pytest.mark.parametrize(("r", "k"), [(2, 3), (2, 6), (3, 5)])
def test_noisy_distances_give_the_optimum_of_a_conic_solver(r, k):
    cp = pytest.importorskip("cvxpy")
    known, _, squared = situation(r, k, n=4)
    squared = squared * np.random.default_rng(1).uniform(0.6, 1.4, size=squared.shape)
    for Y, d, place in zip(known, squared, place_by_program(known, squared), strict=True):
        Y, place = Y - Y.mean(axis=0), place - Y.mean(axis=0)
        y, s = cp.Variable(r), cp.Variable()
        fit = cp.norm1((Y**2).sum(axis=1) - 2 * Y @ y + s - d) + s
        oracle = cp.Problem(cp.Minimize(fit), [s >= cp.sum_squares(y)])
        solved(oracle)
        # The best s for our place: the objective is piecewise linear in it.
        left = (Y**2).sum(axis=1) - 2 * Y @ place - d
        breaks = np.append(np.maximum(-left, place @ place), place @ place)
        own = min(np.abs(left + s).sum() + s for s in breaks)
        assert own == pytest.approx(oracle.value, rel=1e-6)


def test_fixing_only_the_diagonal_as_printed_is_wrong():
    """About the global origin, as printed, the block needs zeros beside its diagonal."""
    cp = pytest.importorskip("cvxpy")
    random = np.random.default_rng(0)
    known, places = random.normal(size=(6, 4, 3)), random.normal(size=(6, 3))
    squared = ((known - places[:, None]) ** 2).sum(axis=2)
    errors = []
    for Y, true, d in zip(known, places, squared, strict=True):
        S = cp.Variable((4, 4), PSD=True)
        fit = cp.norm1((Y**2).sum(axis=1) - 2 * Y @ S[:3, 3] + S[3, 3] - d) + S[3, 3]
        cp.Problem(cp.Minimize(fit), [cp.diag(S)[:3] == 1]).solve(solver="CLARABEL")
        errors.append(np.linalg.norm(S.value[:3, 3] - true))
    assert max(errors) > 0.1
    np.testing.assert_allclose(place_by_program(known, squared), places, atol=1e-5)


def test_the_origin_plays_no_part():
    known, _, squared = situation(2, 5)
    squared = squared * np.random.default_rng(1).uniform(0.8, 1.2, size=squared.shape)
    here = place_by_program(known, squared)
    there = place_by_program(known + [1000, -2000], squared)
    np.testing.assert_allclose(there - [1000, -2000], here, atol=1e-4)
    for scale in (1e-6, 1e6):
        np.testing.assert_allclose(
            place_by_program(scale * known, scale**2 * squared), scale * here, rtol=1e-6
        )


def test_stress_is_lowered_to_a_minimum():
    known, _, squared = situation(2, 6)
    squared = squared * np.random.default_rng(1).uniform(0.6, 1.4, size=squared.shape)
    start = place_by_program(known, squared)
    found = place_by_stress(start, known, squared)

    def stress(y, q):
        return np.sum((((known[q] - y) ** 2).sum(axis=1) - squared[q]) ** 2)

    for q in range(10):
        assert stress(found[q], q) <= stress(start[q], q)
        near = optimize.minimize(stress, found[q], args=(q,))
        assert near.fun == pytest.approx(stress(found[q], q), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_neighbours_on_a_line_leave_no_doubt_along_it(seed):
    random = np.random.default_rng(seed)
    known = np.zeros((20, 5, 3))
    known[:, :, 0] = random.normal(size=(20, 5))
    places = np.zeros((20, 3))
    places[:, 0] = random.normal(size=20)
    squared = ((known - places[:, None]) ** 2).sum(axis=2)
    found = place_by_program(known, squared)
    np.testing.assert_allclose(found, places, atol=1e-4)
    assert np.isfinite(place_by_stress(found, known, 0.9 * squared)).all()
    assert np.isfinite(place_by_program(known, 1.5 * squared)).all()


def test_neighbours_in_one_place_give_that_place():
    known = np.ones((2, 4, 2))
    np.testing.assert_allclose(place_by_program(known, np.zeros((2, 4))), 1, atol=1e-5)
    np.testing.assert_allclose(place_by_stress(np.ones((2, 2)), known, np.zeros((2, 4))), 1)


@pytest.mark.parametrize("method", ["lle", "sdp", "sdp_refined"])
def test_flat_data_are_placed_where_they_belong(method):
    """On an isometric copy of a plane each method returns training rows, and places new ones."""
    random = np.random.default_rng(0)
    flat = random.uniform(size=(300, 2))
    axes = np.linalg.qr(random.normal(size=(6, 6)))[0][:2]
    points, places = flat[:250] @ axes, flat[:250] + 3
    options = {"n_neighbors": 6, "method": method}
    again = place_new_points(points, places, points, **options)
    np.testing.assert_allclose(again, places, atol=1e-9)
    new = place_new_points(points, places, flat[250:] @ axes, **options)
    error = np.linalg.norm(new - flat[250:] - 3, axis=1)
    assert error.max() < (2e-2 if method == "lle" else 1e-6)
    # A row without itself among the training rows.
    for i in range(5):
        others = np.arange(250) != i
        placed = place_new_points(points[others], places[others], points[[i]], **options)
        assert np.abs(placed - places[i]).max() < (5e-2 if method == "lle" else 1e-4)


@pytest.mark.slow
def test_consistency_of_new_points_on_a_roll():
    """Figure 3.23 in small: on a Swiss roll new points agree less than points that were there."""
    X, _ = make_swiss_roll(800, noise=0.05, random_state=0)
    ratios = {}
    for method in ("lle", "sdp", "sdp_refined"):
        mvu = VariationalMVU(out_of_sample=method, bound_iter=0, max_iter=40)
        found = out_of_sample_consistency(mvu, X, n_held_out=200, n_trials=1, random_state=0)
        assert np.isfinite(found["ratios"]).all()
        ratios[method] = found["ratio"]
    assert all(0.3 < ratio < 30 for ratio in ratios.values()), ratios
