from functools import partial

import numpy as np
import pytest
from conic import solved

from nearfar.solvers.projections import (
    alternating_projection,
    dykstra,
    gradient_alternating_projection,
    project_halfspace,
    project_hyperplane,
    project_psd,
    psd_factor,
)


def random_psd(rng, p, rank=None):
    L = rng.normal(size=(rank or p, p))
    return L.T @ L


def halfspace(rng, shape):
    w, c = rng.normal(size=shape), rng.normal()
    inside = project_halfspace(rng.normal(size=shape), w, c - 1)

    def feasible():
        q = rng.normal(size=shape) * 3
        return q if np.vdot(w, q) <= c else project_halfspace(q, w, c - rng.exponential())

    return partial(project_halfspace, w=w, c=c), lambda q: np.vdot(w, q) - c, feasible, inside


def hyperplane(rng, shape):
    w, c = rng.normal(size=shape), rng.normal()
    project = partial(project_hyperplane, w=w, c=c)
    gap = lambda q: abs(np.vdot(w, q) - c)  # noqa: E731
    return project, gap, lambda: project(rng.normal(size=shape) * 3), None


def cone(rng, shape):
    p = shape[0]
    project = project_psd
    gap = lambda q: -np.linalg.eigvalsh(q)[0]  # noqa: E731
    return project, gap, lambda: random_psd(rng, p, rng.integers(1, p + 1)), random_psd(rng, p)


SETS = {
    "half-space of vectors": (halfspace, (7,)),
    "half-space of matrices": (halfspace, (4, 4)),
    "hyperplane": (hyperplane, (7,)),
    "cone": (cone, (5, 5)),
}


def random_point(rng, shape):
    p = 3 * rng.normal(size=shape)
    return (p + p.T) / 2 if p.ndim == 2 else p


@pytest.mark.parametrize("name", SETS)
def test_a_projection_is_the_nearest_point_of_its_set(name):
    make, shape = SETS[name]
    rng = np.random.default_rng(0)
    for _ in range(20):
        project, gap, feasible, _ = make(rng, shape)
        p = random_point(rng, shape)
        nearest = project(p)
        assert gap(nearest) < 1e-12
        np.testing.assert_allclose(project(nearest), nearest, atol=1e-13)
        moved = np.sum((p - nearest) ** 2)
        for _ in range(20):
            q = feasible()
            assert gap(q) < 1e-12
            # Lemma 6, and with it the optimality.
            assert np.sum((p - q) ** 2) >= moved + np.sum((nearest - q) ** 2) - 1e-9
        # Feasible points close by, towards other feasible points, are no nearer either.
        q = nearest + 1e-3 * (feasible() - nearest)
        assert np.sum((p - q) ** 2) >= moved - 1e-12


@pytest.mark.parametrize("name", ["half-space of vectors", "cone"])
def test_points_of_the_set_stay_where_they_are(name):
    make, shape = SETS[name]
    rng = np.random.default_rng(1)
    project, _, _, inside = make(rng, shape)
    np.testing.assert_allclose(project(inside), inside, atol=1e-12)


def test_the_hyperplane_moves_points_from_both_sides_the_half_space_from_one():
    w = np.array([0.0, 2.0])
    for y in (-3.0, 5.0):
        assert project_hyperplane([1.0, y], w, 2.0).tolist() == [1.0, 1.0]
    assert project_halfspace([1.0, -3.0], w, 2.0).tolist() == [1.0, -3.0]
    assert project_halfspace([1.0, 5.0], w, 2.0).tolist() == [1.0, 1.0]


def test_psd_projection_takes_the_symmetric_part_and_returns_a_symmetric_matrix():
    rng = np.random.default_rng(2)
    M = rng.normal(size=(30, 30)) * 1e6
    before = M.copy()
    nearest = project_psd(M)
    np.testing.assert_array_equal(M, before)
    np.testing.assert_array_equal(nearest, nearest.T)
    np.testing.assert_allclose(nearest, project_psd((M + M.T) / 2))
    # Eigenvalues of M itself, which is not symmetric, would give another matrix.
    assert np.abs(np.linalg.eigvals(M).imag).max() > 1
    assert project_psd(-np.eye(3)).tolist() == np.zeros((3, 3)).tolist()


def test_psd_factor_reproduces_the_matrix_with_as_many_rows_as_its_rank():
    rng = np.random.default_rng(3)
    M = random_psd(rng, 6, rank=4)
    L = psd_factor(M)
    assert L.shape == (4, 6)
    np.testing.assert_allclose(L.T @ L, M, atol=1e-12)
    np.testing.assert_allclose(L @ L.T, np.diag(np.linalg.eigvalsh(M)[:1:-1]), atol=1e-10)
    assert psd_factor(np.diag([1.0, 1e-11])).shape == (2, 2)
    assert psd_factor(np.diag([1.0, 1e-13])).shape == (1, 2)
    assert psd_factor(np.zeros((3, 3))).shape == (0, 3)


def sets_with_a_common_point(rng, p=5, n_halfspaces=8):
    """PSD cone and half-spaces whose boundaries pass close by a positive definite matrix."""
    inside = random_psd(rng, p) + 0.1 * np.eye(p)
    projections = [project_psd]
    for _ in range(n_halfspaces):
        w = random_point(rng, (p, p))
        projections.append(partial(project_halfspace, w=w, c=np.vdot(w, inside) + 0.01))
    return projections


@pytest.mark.parametrize("algorithm", [alternating_projection, dykstra])
def test_projections_in_turn_reach_the_intersection(algorithm):
    rng = np.random.default_rng(4)
    for _ in range(5):
        projections = sets_with_a_common_point(rng)
        start = random_point(rng, (5, 5))
        assert max(np.abs(P(start) - start).max() for P in projections) > 1
        found = algorithm(start, projections, tol=1e-9, max_iter=20000)
        assert found.converged and found.violation < 1e-8
        assert np.linalg.eigvalsh(found.point)[0] > -1e-8


@pytest.mark.parametrize("algorithm", [alternating_projection, dykstra])
def test_an_empty_intersection_ends_at_the_cap(algorithm):
    # trace(M) <= -1 meets no positive semi-definite matrix; half-spaces x <= 0 and x >= 1.
    trace = partial(project_halfspace, w=np.eye(3), c=-1.0)
    low = partial(project_halfspace, w=np.array([1.0]), c=0.0)
    high = partial(project_halfspace, w=np.array([-1.0]), c=-1.0)
    for start, projections, apart in [
        (np.eye(3), [project_psd, trace], 1 / np.sqrt(3)),
        ([5.0], [low, high], 1.0),
    ]:
        found = algorithm(start, projections, tol=1e-8, max_iter=50)
        assert not found.converged
        assert found.n_iter == 50
        assert found.violation == pytest.approx(apart)


def test_only_dykstra_finds_the_nearest_common_point():
    # Wedge between x <= 0 and x + y <= 0; the point nearest to (1, 0.5) is its tip.
    left = partial(project_halfspace, w=np.array([1.0, 0.0]), c=0.0)
    below = partial(project_halfspace, w=np.array([1.0, 1.0]), c=0.0)
    p = np.array([1.0, 0.5])
    np.testing.assert_allclose(dykstra(p, [below, left]).point, [0, 0], atol=1e-9)
    some = alternating_projection(p, [below, left])
    assert some.converged and some.violation == 0
    assert np.linalg.norm(some.point - p) > np.linalg.norm(p) + 0.1


def test_dykstra_goes_on_while_the_point_stands_still():
    # The known trap: far from the box the point rests for many rounds while corrections change.
    line = partial(project_hyperplane, w=np.array([1.0, 1.0]), c=2.0)
    box = partial(np.clip, a_min=[0.0, 0.0], a_max=[1.5, 1.5])
    p = np.array([-200.0, 40.0])
    np.testing.assert_allclose(dykstra(p, [box, line], max_iter=10000).point, [0.5, 1.5], atol=1e-8)


def test_dykstra_agrees_with_a_conic_solver():
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(5)
    inside = random_psd(rng, 4)
    normals = [random_point(rng, (4, 4)) for _ in range(5)]
    bounds = [np.vdot(w, inside) for w in normals]
    projections = [project_psd] + [
        partial(project_halfspace, w=w, c=c) for w, c in zip(normals, bounds, strict=True)
    ]
    p = 2 * random_point(rng, (4, 4))
    M = cp.Variable((4, 4), PSD=True)
    constraints = [cp.trace(w @ M) <= c for w, c in zip(normals, bounds, strict=True)]
    problem = cp.Problem(cp.Minimize(cp.norm(M - p, "fro")), constraints)
    solved(problem)
    found = dykstra(p, projections, tol=1e-9, max_iter=20000)
    assert found.converged
    assert np.linalg.norm(found.point - p) == pytest.approx(problem.value, rel=1e-5)
    np.testing.assert_allclose(found.point, M.value, atol=1e-3)
    some = alternating_projection(p, projections, tol=1e-9, max_iter=20000)
    assert np.linalg.norm(some.point - p) > 1.001 * problem.value


def test_gradient_steps_reach_the_closed_form_optimum_of_a_linear_function_over_a_spectrahedron():
    # min <C, M> over M >= 0, trace(M) = 1 is the smallest eigenvalue of C.
    rng = np.random.default_rng(6)
    C = random_point(rng, (5, 5))
    trace = partial(project_hyperplane, w=np.eye(5), c=1.0)
    found = gradient_alternating_projection(
        np.eye(5) / 5,
        [project_psd, trace],
        lambda M: C,
        objective=lambda M: float(np.vdot(C, M)),
        step=0.5,
        max_iter=3000,
    )
    assert found.violation < 1e-7
    assert np.vdot(C, found.point) == pytest.approx(np.linalg.eigvalsh(C)[0], rel=1e-4)


@pytest.mark.slow
def test_gradient_steps_agree_with_a_conic_solver():
    cp = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(7)
    A, b = rng.normal(size=(12, 4, 4)), 3 * rng.normal(size=12)
    normals = [random_point(rng, (4, 4)) for _ in range(3)]
    projections = [project_psd] + [partial(project_halfspace, w=w, c=0.5) for w in normals]

    def objective(M):
        return 0.5 * float(np.sum((np.einsum("kij,ij->k", A, M) - b) ** 2))

    def gradient(M):
        slope = np.einsum("kij,k->ij", A, np.einsum("kij,ij->k", A, M) - b)
        return (slope + slope.T) / 2

    M = cp.Variable((4, 4), PSD=True)
    misfit = cp.hstack([cp.trace(a.T @ M) for a in A]) - b
    problem = cp.Problem(
        cp.Minimize(0.5 * cp.sum_squares(misfit)), [cp.trace(w @ M) <= 0.5 for w in normals]
    )
    solved(problem)
    found = gradient_alternating_projection(
        np.eye(4), projections, gradient, objective=objective, step=0.05, max_iter=5000
    )
    assert found.violation < 1e-7
    assert objective(found.point) == pytest.approx(problem.value, rel=1e-3)
    assert objective(found.point) >= problem.value * (1 - 1e-5)


def test_a_long_constant_step_would_hover_and_the_best_feasible_point_is_kept():
    # |x| on x <= 5, subgradient sign(x): a constant step jumps to and fro by its length.
    values = []

    def objective(p):
        values.append(abs(float(p[0])))
        return values[-1]

    below = partial(project_halfspace, w=np.ones(1), c=5.0)
    found = gradient_alternating_projection(
        [4.3], [below], np.sign, objective=objective, step=1.0, max_iter=400
    )
    assert abs(found.point[0]) == min(values)
    assert abs(found.point[0]) < 0.05  # a constant step of 1 stays at 0.3 at best
    assert values[-1] > min(values)


def test_the_best_value_does_not_count_where_the_point_is_infeasible():
    # Sets in this order leave early iterates outside the first one, with a lower objective.
    low = partial(project_halfspace, w=np.array([-1.0, 0.0]), c=-1.0)  # x >= 1
    line = partial(project_hyperplane, w=np.array([1.0, -1.0]), c=0.0)  # x = y
    found = gradient_alternating_projection(
        [5.0, 5.0],
        [low, line],
        lambda p: 2 * p,
        objective=lambda p: float(p @ p),
        step=0.4,
        max_iter=2000,
    )
    assert found.violation < 1e-7
    np.testing.assert_allclose(found.point, [1, 1], atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: project_psd(np.ones((2, 3))), r"square matrix; got .* \(2, 3\)"),
        (lambda: project_psd([[np.nan]]), "NaN"),
        (lambda: psd_factor(np.ones(3)), "square"),
        (lambda: project_halfspace([1.0], [0.0], 1.0), "w is zero"),
        (lambda: project_hyperplane([1.0, 2.0], [1.0], 1.0), r"same shape; got \(2,\) and \(1,\)"),
        (lambda: alternating_projection([np.inf], []), "finite point"),
        (lambda: dykstra([1.0], [], max_iter=0), "max_iter must be at least 1; got 0"),
        (lambda: gradient_alternating_projection([1.0], [], np.sign, step=0), "step"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
