"""Maximum variance unfolding: closed forms, duality, orderings, a conic solver, misuse."""

import json
import tracemalloc
import warnings

import mvu_oracle
import numpy as np
import pytest
from scipy import linalg, sparse
from scipy.spatial.distance import cdist
from sklearn.datasets import make_swiss_roll
from sklearn.exceptions import ConvergenceWarning

from nearfar import MVU, Isomap
from nearfar.manifold.bad_edges import compute_hitting_scores, prune_graph
from nearfar.manifold.cliques import find_clique_dependencies, list_clique_pairs
from nearfar.manifold.mvu import estimate_intrinsic_dimension
from nearfar.persistence import load, save
from nearfar.solvers.proven_bound import exceeds
from nearfar.solvers.unfolding import (
    Edges,
    Problem,
    UnfoldingInterrupted,
    compute_min_price,
    dual_bound,
    laplacian_eigenpairs,
    relative_gap,
    repair_factor,
    rotate_to_axes,
)
from nearfar.solvers.unfolding_certificate import certify, certify_eigenvalue
from nearfar.solvers.unfolding_face import find_face, unfold_on_face
from nearfar.solvers.unfolding_interior import solve_by_interior_point
from nearfar.solvers.unfolding_low_rank import solve_low_rank
from nearfar.summaries.neighbor_graph import NeighborGraph, link_components

SOLVERS = [solve_by_interior_point, solve_low_rank]


def roll(n, seed=1, noise=0.05):
    X, angle = make_swiss_roll(n, noise=noise, random_state=seed)
    return X, (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2


def grid():
    across, along = np.meshgrid(np.arange(7.0), np.arange(9.0))
    X = np.column_stack([across.ravel(), along.ravel()])
    return X + 0.1 * np.random.RandomState(0).uniform(-1, 1, X.shape)


def gram(X):
    X = X - X.mean(axis=0)
    return X @ X.T


def all_pairs(X):
    pairs = np.array([(i, j) for i in range(len(X)) for j in range(i)])
    return Edges.from_pairs(pairs, cdist(X, X, "sqeuclidean")[pairs[:, 0], pairs[:, 1]], len(X))


# ---------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("constraints", ["inequality", "equality"])
@pytest.mark.parametrize("n", [12, 25, 50])
def test_a_ring_becomes_a_regular_polygon(solve, constraints, n):
    here = np.arange(n)
    edges = Edges.from_pairs(np.column_stack([here, (here + 1) % n]), np.ones(n), n)
    problem = Problem(edges, constraints)
    result = solve(problem, tol=1e-8)
    proof = certify(problem, result.factor, result.weights)
    weight = 1 / (4 * np.sin(np.pi / n) ** 2)
    assert proof.value == pytest.approx(n * weight, rel=1e-6)
    assert proof.bound.value == pytest.approx(n * weight, rel=1e-6)
    np.testing.assert_allclose(proof.bound.weights, weight, rtol=1e-3)
    values, Y = rotate_to_axes(edges, proof.factor)
    assert values[0] == pytest.approx(values[1], rel=1e-3)
    assert values[2:].sum() < 1e-5 * values[0]
    np.testing.assert_allclose(np.linalg.norm(Y, axis=1) ** 2, weight, rtol=1e-3)


def test_a_driver_of_eigenvalues_that_gives_up_is_replaced(monkeypatch):
    # With Sandybridge BLAS kernels the driver fails on this ring, whose eigenvalues are paired.
    n = 25
    here = np.arange(n)
    edges = Edges.from_pairs(np.column_stack([here, (here + 1) % n]), np.ones(n), n)
    original = linalg.eigh

    def gives_up(A, B=None, **options):
        if "subset_by_index" in options:
            raise linalg.LinAlgError("Internal Error.")
        return original(A, B, **options)

    monkeypatch.setattr(linalg, "eigh", gives_up)
    values, vectors = laplacian_eigenpairs(edges, np.ones(n), 4)
    expected = 4 * np.sin(np.pi * np.array([1, 1, 2, 2]) / n) ** 2
    np.testing.assert_allclose(values, expected * values[0] / expected[0], rtol=1e-9)
    assert vectors.shape == (n, 4) and np.abs(vectors.sum(axis=0)).max() < 1e-9


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("constraints", ["inequality", "equality"])
@pytest.mark.parametrize("n", [2, 3, 10, 40])
def test_a_path_becomes_a_straight_line(solve, constraints, n):
    here = np.arange(n - 1)
    edges = Edges.from_pairs(np.column_stack([here, here + 1]), np.ones(n - 1), n)
    problem = Problem(edges, constraints)
    result = solve(problem, tol=1e-8)
    proof = certify(problem, result.factor, result.weights)
    assert proof.value == pytest.approx(n * (n**2 - 1) / 12, rel=1e-6)
    weights = (here + 1) * (n - 1 - here) / 2
    np.testing.assert_allclose(proof.bound.weights, weights, rtol=1e-4)
    values, _ = rotate_to_axes(edges, proof.factor)
    assert values[1:].sum() < 1e-5 * values[0]


@pytest.mark.parametrize("constraints", ["inequality", "equality"])
@pytest.mark.parametrize("solver", ["interior_point", "low_rank"])
def test_flat_data_keep_their_shape(constraints, solver):
    X = grid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # equalities have no interior here
        mvu = MVU(n_neighbors=5, constraints=constraints, solver=solver, tol=1e-8).fit(X)
    assert mvu.trace_ == pytest.approx(np.trace(gram(X)), rel=1e-6)
    K = mvu.factor_ @ mvu.factor_.T
    assert np.abs(K - gram(X)).max() < 1e-3 * np.abs(gram(X)).max()
    assert mvu.locked_up_ and mvu.intrinsic_dim_ == 2


@pytest.mark.parametrize("solve", SOLVERS)
def test_a_complete_graph_leaves_only_the_data(solve):
    X = np.random.RandomState(0).standard_normal((14, 3))
    edges = all_pairs(X)
    result = solve(Problem(edges, "inequality"), tol=1e-9)
    Y = repair_factor(Problem(edges), edges.centered(result.factor))
    assert edges.trace(Y) == pytest.approx(np.trace(gram(X)), rel=1e-6)
    np.testing.assert_allclose(Y @ Y.T, gram(X), atol=1e-4 * np.abs(gram(X)).max())


def test_isomap_of_a_ring_has_negative_eigenvalues_and_mvu_has_two():
    angle = 2 * np.pi * np.arange(30) / 30
    X = np.column_stack([np.cos(angle), np.sin(angle)])
    mvu = MVU(n_neighbors=2, angles=False).fit(X)
    np.testing.assert_allclose(mvu.eigenvalues_[:2] / mvu.trace_, 0.5, atol=1e-3)
    paths = NeighborGraph.from_points(X, n_neighbors=2).geodesics()
    centering = np.eye(30) - 1 / 30
    values = np.linalg.eigvalsh(-0.5 * centering @ paths**2 @ centering)
    assert values[0] < -0.1 * values.sum()


# ---------------------------------------------------------------------- a conic solver


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("name", mvu_oracle.PROBLEMS)
def test_optimum_is_that_of_a_conic_solver(solve, name):
    n_features, constraints, sign, price, angles = mvu_oracle.PROBLEMS[name]
    X = mvu_oracle.data(n_features)
    pairs, D, _ = mvu_oracle.edges(X, angles)
    edges = Edges.from_pairs(pairs, D, len(X))
    problem = Problem(edges, constraints, "max" if sign > 0 else "min", price)
    result = solve(problem)
    proof = certify(problem, result.factor, result.weights)
    stored = json.loads(mvu_oracle.STORED.read_text())[name]
    assert stored["status"].startswith("optimal")
    assert proof.value == pytest.approx(stored["value"], rel=1e-4)
    assert -1e-6 < proof.gap < 1e-5
    if stored["status"] == "optimal":
        assert proof.bound.value == pytest.approx(stored["value"], rel=1e-4)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("inequality", {}),
        ("inequality without angles", {"angles": False}),
        ("equality", {"constraints": "equality"}),
        ("l1", {"constraints": "l1", "slack_penalty": 20 / 21}),
        ("squared", {"constraints": "squared", "slack_penalty": 0.99}),
        ("minimum", {"constraints": "equality", "objective": "min"}),
    ],
)
def test_the_learner_reports_that_optimum_in_units_of_the_data(name, settings):
    n_features, _, sign, _, angles = mvu_oracle.PROBLEMS[name]
    X = mvu_oracle.data(n_features)
    pairs, _, unit = mvu_oracle.edges(X, angles)
    mvu = MVU(n_neighbors=mvu_oracle.N_NEIGHBORS, **settings).fit(X)
    np.testing.assert_array_equal(mvu.edges_, pairs)
    stored = json.loads(mvu_oracle.STORED.read_text())[name]["value"] * unit
    assert mvu.objective_ == pytest.approx(sign * stored, rel=1e-4)
    assert mvu.dual_bound_ == pytest.approx(sign * stored, rel=1e-4)
    assert mvu.trace_ == pytest.approx((mvu.factor_**2).sum(), rel=1e-9)
    assert abs(mvu.duality_gap_) < 1e-5


@pytest.mark.slow
def test_stored_optima_are_those_of_the_conic_solver():
    pytest.importorskip("cvxpy")
    stored = json.loads(mvu_oracle.STORED.read_text())
    for name in mvu_oracle.PROBLEMS:
        assert mvu_oracle.optimum(name)[0] == pytest.approx(stored[name]["value"], rel=1e-5)


# ---------------------------------------------------------------------- duality


def test_every_coordinate_is_an_eigenvector_of_the_weights_laplacian():
    X, _ = roll(300)
    mvu = MVU(n_neighbors=5, tol=1e-7).fit(X)
    D = ((X[mvu.edges_[:, 0]] - X[mvu.edges_[:, 1]]) ** 2).sum(axis=1)
    w = mvu.edge_weights_
    assert (w >= 0).all()
    assert w @ D == pytest.approx(mvu.dual_bound_, rel=1e-9)
    assert mvu.dual_bound_ == pytest.approx(mvu.trace_, rel=1e-6)
    W = sparse.coo_array((w, mvu.edges_.T), shape=(300, 300)).toarray()
    W = W + W.T
    L = np.diag(W.sum(axis=1)) - W
    values = np.linalg.eigvalsh(L)
    assert values[1] == pytest.approx(1, abs=1e-6)
    kept = (mvu.eigenvalues_ > 1e-4 * mvu.trace_).sum()
    assert (values[1:] < 1.001).sum() >= kept
    Y = mvu.factor_[:, :kept]
    assert np.abs(L @ Y - Y).max() < 1e-3 * np.abs(Y).max()


def test_any_weights_bound_the_optimum():
    X, _ = roll(80, noise=0.3)
    pairs, D, _ = mvu_oracle.edges(X, True)
    edges = Edges.from_pairs(pairs, D, 80)
    best = certify(Problem(edges), *solve_by_interior_point(Problem(edges))[:2]).value
    random = np.random.RandomState(0)
    for _ in range(5):
        assert dual_bound(Problem(edges), random.uniform(size=len(D))).value >= best
    assert dual_bound(Problem(edges), -np.ones(len(D))).value == np.inf


@pytest.mark.parametrize("objective", ["max", "min"])
@pytest.mark.parametrize("constraints", ["equality", "inequality", "l1", "squared"])
def test_a_bound_never_lies_below_a_feasible_value(constraints, objective):
    if (constraints, objective) == ("inequality", "min"):
        pytest.skip("the solution is zero")
    X = mvu_oracle.data(8)
    pairs, D, unit = mvu_oracle.edges(X, True)
    edges = Edges.from_pairs(pairs, D, 60)
    problem = Problem(edges, constraints, objective, 5 * compute_min_price(edges))
    value = problem.value(edges.centered(X / np.sqrt(unit)))  # All edges have their exact lengths.
    random = np.random.RandomState(0)
    for weights in (random.uniform(size=len(D)), random.standard_normal(len(D))):
        for size in (1e-3, 1.0, 1e3):
            bound = dual_bound(problem, size * weights)
            assert bound.value >= value - 1e-9 * abs(value)


def test_l1_weights_stay_within_the_price_and_less_of_it_is_unbounded():
    X, _ = roll(60, noise=0.2)
    edges = Edges.from_pairs(*mvu_oracle.edges(X, True)[:2], 60)
    mvu = MVU(n_neighbors=4, constraints="l1").fit(X)
    price = mvu.slack_penalty_ / (1 - mvu.slack_penalty_)
    assert price == pytest.approx(5 * compute_min_price(edges), rel=1e-6)
    assert np.abs(mvu.edge_weights_).max() <= price * (1 + 1e-6)
    least = compute_min_price(edges)
    assert MVU(
        n_neighbors=4, constraints="l1", slack_penalty=1.02 * least / (1 + 1.02 * least)
    ).fit(X)
    fiedler = laplacian_eigenpairs(edges, np.ones(len(edges)), 1)[1]
    for share, grows in ((0.98, True), (1.02, False)):
        problem = Problem(edges, "l1", "max", share * least)
        assert (problem.value(1e4 * fiedler) > problem.value(1e3 * fiedler)) == grows
    with pytest.raises(
        ValueError, match="slack_penalty=.* is too small for L1 slack.*at least 0.6594"
    ):
        MVU(n_neighbors=4, constraints="l1", slack_penalty=0.98 * least / (1 + 0.98 * least)).fit(X)


@pytest.mark.slow
def test_low_rank_leaves_saddle_points():
    X, _ = roll(500)
    pairs = MVU(n_neighbors=5)._find_pairs(X)[0]
    D = ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1)
    problem = Problem(Edges(500, pairs[:, 0], pairs[:, 1], D / D.mean()))
    result = solve_low_rank(
        problem, n_columns=1
    )  # On a line, every other direction leaves the saddle.
    assert certify(problem, result.factor, result.weights).gap < 1e-5
    assert result.factor.shape[1] > 1


def test_a_small_gap_at_a_point_that_is_not_feasible_counts_for_nothing():
    X, _ = roll(60, noise=0.2)
    problem = Problem(Edges.from_pairs(*mvu_oracle.edges(X, True)[:2], 60))
    result = solve_by_interior_point(problem)
    too_long = 1.1 * result.factor
    proof = certify(problem, too_long, result.weights)
    assert problem.value(too_long) > proof.bound.value
    assert problem.residual(proof.factor) < 1e-12
    assert proof.residual == pytest.approx(0.21, rel=1e-3) and 0 <= proof.gap < 1e-6


# ---------------------------------------------------------------------- the certificate by hand


def compute_min_eigenvalue(n, pairs, weights):
    """Return the smallest eigenvalue of the weights' Laplacian on centered vectors, densely."""
    L = np.zeros((n, n))
    for (i, j), w in zip(pairs, weights, strict=True):
        L[[i, j], [i, j]] += w
        L[[i, j], [j, i]] -= w
    centered = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, 1:]]))[0][:, 1:]
    return np.linalg.eigvalsh(centered.T @ L @ centered)[0]


AWKWARD = {
    "roll": (make_swiss_roll(50, noise=0.3, random_state=1)[0], 4),
    "tiny": (1e-6 * np.random.RandomState(2).standard_normal((40, 4)), 4),
    "huge": (1e6 * np.random.RandomState(3).standard_normal((40, 5)) + 1e9, 4),
    "outliers": (
        np.random.RandomState(7).standard_normal((40, 3)) * np.r_[[1e3] * 3, [1] * 37][:, None],
        4,
    ),
    "heavy tails": (np.random.RandomState(9).standard_cauchy((40, 3)), 4),
    "whole numbers": (np.random.RandomState(12).randint(0, 4, (60, 3)).astype(float), 4),
    "short edges": (
        np.vstack(
            [np.eye(12), np.eye(12) + 1e-5 * np.random.RandomState(1).standard_normal((12, 12))]
        ),
        4,
    ),
}


PROGRAMS = [
    ("inequality", "max"),
    ("equality", "max"),
    ("equality", "min"),
    ("l1", "max"),
    ("l1", "min"),
    ("squared", "max"),
    ("squared", "min"),
]
# Covers all data, all programs and both solvers, but not every combination: the rest is slow.
CERTIFIED = [
    pytest.param(name, solver, *program, marks=[pytest.mark.slow] if (a + b + c) % 4 else [])
    for a, name in enumerate(AWKWARD)
    for b, solver in enumerate(["interior_point", "low_rank"])
    for c, program in enumerate(PROGRAMS)
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "solver", "constraints", "objective"), CERTIFIED)
def test_the_certificate_is_what_its_definition_says(name, solver, constraints, objective):
    X, k = AWKWARD[name]
    X = X[np.sort(np.unique(X, axis=0, return_index=True)[1])]
    sign = 1.0 if objective == "max" else -1.0
    mvu = MVU(
        n_neighbors=k, constraints=constraints, objective=objective, solver=solver, max_iter=25
    ).fit(X)
    i, j = mvu.edges_.T
    D = ((X[i] - X[j]) ** 2).sum(axis=1)
    unit = D.mean()
    D, w, price = (
        D / unit,
        mvu.edge_weights_,
        mvu.slack_penalty_ / max(1 - mvu.slack_penalty_, 1e-300),
    )

    def value(Y):
        slack = ((Y[i] - Y[j]) ** 2).sum(axis=1) - D
        cost = {"l1": price * np.abs(slack).sum(), "squared": price * slack @ slack}
        return sign * (Y**2).sum() - cost.get(constraints, 0.0)

    # The weights are feasible for the dual, and the bound follows from them.
    assert compute_min_eigenvalue(len(X), mvu.edges_, w) >= sign - 1e-7 * max(
        1, 1e-6 * np.abs(w).max()
    )
    if constraints == "inequality":
        assert (w >= 0).all()
    if constraints == "l1":
        assert np.abs(w).max() <= price * (1 + 1e-9)
    bound = w @ D + (w @ w / (4 * price) if constraints == "squared" else 0.0)
    assert sign * mvu.dual_bound_ / unit == pytest.approx(bound, rel=1e-8)
    # The gap belongs to a feasible point.
    Y, data = mvu.factor_ / np.sqrt(unit), (X - X.mean(axis=0)) / np.sqrt(unit)
    lengths = ((Y[i] - Y[j]) ** 2).sum(axis=1)
    best = value(Y)
    assert sign * mvu.objective_ / unit == pytest.approx(best, rel=1e-6)
    if constraints == "inequality":
        assert (lengths <= D * (1 + 1e-10)).all()
    if constraints == "equality":
        wrong = np.abs(lengths / D - 1).max()
        assert wrong <= 3 * mvu.primal_residual_ + 1e-9
        gained = np.abs(w) @ np.abs(lengths - D)
        best = max(best - gained, value(data)) if wrong <= 1e-6 else value(data)
        assert mvu.duality_gap_ >= -1e-9
    expected = (bound - best) / abs(bound) if bound else np.inf
    assert mvu.duality_gap_ == pytest.approx(expected, rel=1e-5, abs=1e-7)
    assert np.isfinite(mvu.dual_bound_)
    # No feasible point exceeds the bound.
    random = np.random.RandomState(0)
    points = [] if constraints == "equality" else [random.standard_normal((len(X), 4))]
    points += [s * data for s in ([1.0] if constraints == "equality" else [0.3, 1.0, 1.4])]
    for Z in points:
        Z = Z - Z.mean(axis=0)
        if constraints == "inequality":
            Z = Z / np.sqrt(max(1.0, (((Z[i] - Z[j]) ** 2).sum(axis=1) / D).max()))
        assert value(Z) <= bound + 1e-6 * abs(bound)


def test_a_bound_of_nothing_is_no_gap_of_nothing():
    assert relative_gap(-5.0, 0.0) == np.inf and relative_gap(0.0, 0.0) == 0.0
    assert relative_gap(5.0, np.inf) == np.inf and relative_gap(-np.inf, 5.0) == np.inf
    assert relative_gap(-5.0, -4.0) == 0.25


@pytest.mark.parametrize("constraints", ["inequality", "equality", "l1", "squared"])
def test_weights_that_prove_nothing_give_way_to_equal_ones(constraints):
    X, _ = roll(60, noise=0.2)
    problem = Problem(Edges.from_pairs(*mvu_oracle.edges(X, True)[:2], 60), constraints, price=50.0)
    good = solve_by_interior_point(problem)
    proof = certify(problem, good.factor, -np.ones(len(problem.edges)))
    assert np.isfinite(proof.bound.value) and np.isfinite(proof.gap)
    assert proof.bound.value >= problem.value(proof.factor) * (1 - 1e-6)
    assert proof.bound.value >= certify(problem, good.factor, good.weights).bound.value


def test_equalities_are_met_by_moving_points_a_little():
    X = mvu_oracle.data(8)
    edges = Edges.from_pairs(*mvu_oracle.edges(X, True)[:2], len(X))
    problem = Problem(edges, "equality")
    result = solve_by_interior_point(problem)
    rough = result.factor + 1e-4 * np.random.RandomState(0).standard_normal(result.factor.shape)
    assert problem.residual(rough) > 1e-4
    proof = certify(problem, rough, result.weights)
    assert problem.residual(proof.factor) < 1e-9 and proof.is_feasible
    assert proof.residual == pytest.approx(problem.residual(edges.centered(rough)))
    assert 0 <= proof.gap < 1e-2
    assert np.abs(proof.factor - edges.centered(rough)).max() < 1e-2


@pytest.mark.parametrize("weights", [np.ones(11), np.r_[-np.ones(5), np.ones(6)]])
def test_eigenvalues_are_proven_from_below_whatever_their_sign(weights):
    pairs = np.column_stack([np.arange(11), np.arange(1, 12)])
    edges = Edges.from_pairs(pairs, np.ones(11), 12)
    true = compute_min_eigenvalue(12, pairs, weights)
    assert true * weights[0] > 0
    result = certify_eigenvalue(edges, weights)
    assert result <= true and result == pytest.approx(true, rel=1e-6)
    assert exceeds(edges, weights, true - 1e-6) and not exceeds(edges, weights, true + 1e-6)


def test_low_rank_stops_where_nothing_is_left_to_gain():
    here = np.arange(12)
    edges = Edges.from_pairs(np.column_stack([here, (here + 1) % 12]), np.ones(12), 12)
    result = solve_low_rank(Problem(edges, "l1", price=100.0), tol=1e-17, max_iter=200)
    assert result.history["gap"][-1] < 1e-12 and result.n_iter < 150


def test_the_other_solver_is_tried_where_one_gives_up(monkeypatch):
    def gives_up(problem, **options):
        return solve_by_interior_point(problem, **options | {"max_iter": 4})

    monkeypatch.setattr("nearfar.manifold.mvu.solve_by_interior_point", gives_up)
    X = AWKWARD["roll"][0]
    with pytest.warns(ConvergenceWarning, match="gap of"):
        alone = MVU(n_neighbors=4, solver="interior_point").fit(X)
    both = MVU(n_neighbors=4).fit(X)
    assert alone.duality_gap_ > 1e-3 and both.duality_gap_ < 1e-6


# ---------------------------------------------------------------------- orderings, invariances


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_traces_are_ordered_and_fewer_edges_allow_more():
    X = mvu_oracle.data(8)
    options = {"n_neighbors": 4}
    least = MVU(constraints="equality", objective="min", **options).fit(X)
    equal = MVU(constraints="equality", **options).fit(X)
    below = MVU(**options).fit(X)
    paths = Isomap(n_neighbors=4).fit(X)
    geodesics = NeighborGraph.from_points(X, n_neighbors=4).geodesics()
    isomap = (geodesics**2).sum() / (2 * len(X))
    assert len(paths.embedding_) == len(X)
    traces = [least.trace_, np.trace(gram(X)), equal.trace_, below.trace_, isomap]
    assert (np.diff(traces) > -1e-6 * traces[-1]).all()
    assert least.dual_bound_ <= least.trace_ * (1 + 1e-6)
    assert least.objective_ == pytest.approx(least.trace_)
    assert MVU(angles=False, **options).fit(X).trace_ > below.trace_
    assert MVU(angles=False, constraints="equality", **options).fit(X).trace_ > equal.trace_


@pytest.mark.parametrize("solver", ["interior_point", "low_rank"])
def test_edges_are_kept_and_coordinates_centred(solver):
    X = mvu_oracle.data(8)
    mvu = MVU(n_neighbors=4, constraints="equality", solver=solver, tol=1e-7).fit(X)
    Y = mvu.factor_
    i, j = mvu.edges_.T
    kept = ((Y[i] - Y[j]) ** 2).sum(axis=1)
    np.testing.assert_allclose(kept, ((X[i] - X[j]) ** 2).sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(Y.sum(axis=0), 0, atol=1e-9 * np.abs(Y).max() * len(Y))
    assert mvu.trace_ == pytest.approx(cdist(Y, Y, "sqeuclidean").sum() / (2 * len(Y)))
    assert mvu.primal_residual_ < 1e-5 and not mvu.locked_up_


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_scale_and_rotation_do_not_matter(scale):
    X, _ = roll(150, noise=0.1)
    turn = np.linalg.qr(np.random.RandomState(0).standard_normal((3, 3)))[0]
    mvu = MVU(n_neighbors=5).fit(X)
    other = MVU(n_neighbors=5).fit(scale * (X + 3) @ turn)
    assert other.trace_ == pytest.approx(scale**2 * mvu.trace_, rel=1e-5)
    np.testing.assert_allclose(
        cdist(other.embedding_, other.embedding_) / scale,
        cdist(mvu.embedding_, mvu.embedding_),
        atol=0.01 * np.sqrt(mvu.eigenvalues_[0]),
    )


def test_swiss_roll_is_unrolled_with_a_proof():
    X, arc = roll(800)
    mvu = MVU(n_neighbors=6).fit(X)
    assert mvu.duality_gap_ < 1e-5 and mvu.primal_residual_ < 1e-3
    i, j = mvu.edges_.T
    lengths = ((mvu.factor_[i] - mvu.factor_[j]) ** 2).sum(axis=1)
    assert (lengths <= ((X[i] - X[j]) ** 2).sum(axis=1) * (1 + 1e-12)).all()
    assert abs(np.corrcoef(mvu.embedding_[:, 0], arc)[0, 1]) > 0.99
    assert mvu.intrinsic_dim_ == 2 and not mvu.locked_up_
    assert mvu.n_iter_ < 80 and len(mvu.history_["gap"]) == mvu.n_iter_ + 1


# ---------------------------------------------------------------------- graphs


def test_disconnected_graphs_are_linked_refused_or_parted():
    X, _ = roll(120, noise=0.1)
    X = np.vstack([X[:60], X[60:] + 500])
    with pytest.warns(UserWarning, match="2 parts"):
        linked = MVU(n_neighbors=5).fit(X)
    assert linked.duality_gap_ < 1e-5 and linked.trace_ > 1e6
    with pytest.raises(ValueError, match="2 parts"):
        MVU(n_neighbors=5, on_disconnected="raise").fit(X)
    parted = MVU(n_neighbors=5, on_disconnected="components").fit(X)
    alone = [MVU(n_neighbors=5).fit(half) for half in (X[:60], X[60:])]
    assert parted.trace_ == pytest.approx(sum(part.trace_ for part in alone), rel=1e-6)
    assert parted.dual_bound_ == pytest.approx(sum(part.dual_bound_ for part in alone), rel=1e-6)
    np.testing.assert_allclose(
        cdist(parted.embedding_[60:], parted.embedding_[60:]),
        cdist(alone[1].embedding_, alone[1].embedding_),
        atol=1e-3,
    )
    np.testing.assert_allclose(parted.transform(X), parted.embedding_)
    K = parted.factor_ @ parted.factor_.T
    assert np.abs(K[:60, 60:]).max() < 1e-9 * np.abs(K).max()


def test_a_random_walk_finds_short_cuts():
    X, arc = roll(400, seed=0, noise=0.0)
    X = X + np.random.RandomState(0).normal(0, 0.8, X.shape)
    graph = NeighborGraph.from_points(X, n_neighbors=7)
    upper = sparse.triu(graph.symmetrized(), format="coo")
    ends = np.stack([upper.row, upper.col], axis=1)
    scores = compute_hitting_scores(graph, ends)
    bad = np.abs(arc[ends[:, 0]] - arc[ends[:, 1]]) > 15
    assert 3 < bad.sum() < 200
    ranks = np.argsort(np.argsort(scores))
    auc = 1 - (ranks[bad].mean() - (bad.sum() - 1) / 2) / (~bad).sum()
    lengths = np.argsort(np.argsort(-upper.data))
    assert auc > 0.85
    assert auc > 1 - (lengths[bad].mean() - (bad.sum() - 1) / 2) / (~bad).sum()
    cut = prune_graph(graph)
    assert cut.connected_components()[0] == graph.connected_components()[0]
    kept = sparse.triu(cut.symmetrized(), format="coo")
    worse = np.abs(arc[kept.row] - arc[kept.col]) > 15
    assert worse.sum() < bad.sum() and len(kept.data) > 0.9 * len(upper.data)


def test_hitting_probabilities_are_those_of_walks():
    X = np.array([[0.0], [1.0], [2.5], [4.5]])
    graph = NeighborGraph.from_points(X, n_neighbors=1)  # a path
    P = np.zeros((4, 4))
    lengths = graph.symmetrized().toarray()
    P[lengths > 0] = np.exp(-lengths[lengths > 0] / np.median(lengths[lengths > 0]))
    P /= P.sum(axis=1, keepdims=True)

    def hit(start, stop, steps):
        if start == stop:
            return 1.0
        return (
            0.0
            if steps == 0
            else sum(P[start, via] * hit(via, stop, steps - 1) for via in range(4))
        )

    ends = np.array([[0, 1], [1, 2], [2, 3]])
    expected = [hit(a, b, 5) + hit(b, a, 5) for a, b in ends]
    np.testing.assert_allclose(compute_hitting_scores(graph, ends, 5), expected)


@pytest.mark.slow
def test_pruning_is_used():
    X, _ = roll(300, seed=0, noise=0.6)
    plain, pruned = MVU(n_neighbors=6).fit(X), MVU(n_neighbors=6, prune_edges=True).fit(X)
    assert len(pruned.edges_) < len(plain.edges_) and pruned.trace_ > plain.trace_


@pytest.mark.parametrize(
    ("objective", "constraints", "trace", "locked"),
    [
        ("max", "equality", 1.0005, True),
        ("max", "inequality", 1.0005, True),
        ("max", "equality", 1.002, False),
        ("max", "squared", 0.9, False),
        ("min", "equality", 0.5, False),
    ],
)
def test_locked_up_is_a_trace_no_larger_than_that_of_the_data(
    objective, constraints, trace, locked
):
    mvu = MVU(objective=objective, constraints=constraints)
    mvu._interrupt = None
    mvu.eigenvalues_, mvu.trace_, mvu.gram_trace_ = np.array([trace, 0.0]), trace, 1.0
    mvu._check_locked(np.zeros((2, 2)))
    assert mvu.locked_up_ == locked


def test_pruning_leaves_no_part_alone():
    random = np.random.RandomState(0)
    X = np.vstack([random.normal(size=(40, 2)), random.normal(size=(40, 2)) + [30, 0]])
    graph = NeighborGraph.from_points(X, n_neighbors=6)
    with pytest.warns(UserWarning, match="2 parts"):
        linked = link_components(graph, X)
    cut = prune_graph(linked)
    # Connected, although a walk rarely crosses the bridge.
    assert cut.connected_components()[0] == 1
    link = linked.symmetrized()[:40][:, 40:]
    assert (cut.symmetrized()[:40][:, 40:] != link).nnz == 0
    scores = compute_hitting_scores(linked, np.argwhere(link.toarray() > 0) + [0, 40])
    others = compute_hitting_scores(linked, np.argwhere(graph.to_sparse().toarray() > 0))
    assert scores.max() < np.quantile(others, 0.01)


def test_a_link_is_a_single_edge_without_a_clique():
    X, _ = roll(60, noise=0.1)
    X[30:] += 500
    graph = NeighborGraph.from_points(X, n_neighbors=4)
    with pytest.warns(UserWarning, match="2 parts"):
        linked = link_components(graph, X)
    own = set(map(tuple, list_clique_pairs(graph).tolist()))
    more = set(map(tuple, list_clique_pairs(linked).tolist())) - own
    assert len(more) == 1 and {i < 30 for i in next(iter(more))} == {True, False}
    with pytest.warns(UserWarning, match="2 parts"):
        mvu = MVU(n_neighbors=4).fit(X)
    assert set(map(tuple, mvu.edges_.tolist())) == own | more


def test_points_at_no_distance_are_one_of_more_weight():
    X, _ = roll(40, noise=0.2)
    pairs, D, _ = mvu_oracle.edges(X, True)
    copies = np.array([3, 3, 17])
    joined = np.vstack([pairs, np.column_stack([copies, [40, 41, 42]])])
    whole = Edges.from_pairs(joined, np.append(D, np.zeros(3)), 43)
    merged, groups = whole.merged()
    assert merged.n_points == 40 and merged.masses.sum() == 43
    np.testing.assert_array_equal(groups[[3, 40, 41, 17, 42]], groups[[3, 3, 3, 17, 17]])
    result = [solve(Problem(merged), tol=1e-8) for solve in SOLVERS]
    for one in result:
        proof = certify(Problem(merged), one.factor, one.weights)
        Y = proof.factor[groups]
        assert proof.gap < 1e-6 and merged.trace(proof.factor) == pytest.approx((Y**2).sum())
        assert (whole.squared_lengths(Y) <= whole.squared + 1e-9).all()
        # The weights certify all 43 points: edges between copies can have any weight at no cost.
        held = dict(zip(map(tuple, merged.pairs), proof.bound.weights, strict=True))
        weights = np.array(
            [held.get((min(a, b), max(a, b)), 1e7) for a, b in groups[whole.pairs].tolist()]
        )
        values = np.linalg.eigvalsh(whole.laplacian(weights).toarray())
        assert weights @ whole.squared / values[1] == pytest.approx((Y**2).sum(), rel=1e-4)


def hinged_bodies():
    """Return two rigid bodies of five points that share a sixth, and their largest joint trace.

    Distances within each body are fixed. With vectors a and b relative to the hinge, the squared
    distances between the bodies sum to at most 2 |sum a| |sum b| more than the sums of squares,
    which is reached if both sums point away from each other.
    """
    A, B = np.random.default_rng(3).normal(size=(2, 5, 3))
    n, own = 11, [np.r_[0, 1:6], np.r_[0, 6:11]]
    X = np.vstack([np.zeros(3), A, B])
    pairs = np.concatenate([body[np.column_stack(np.triu_indices(6, 1))] for body in own])
    edges = Edges.from_pairs(pairs, ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1), n)
    between = 5 * (A**2).sum() + 5 * (B**2).sum()
    between += 2 * np.linalg.norm(A.sum(axis=0)) * np.linalg.norm(B.sum(axis=0))
    N = np.zeros((n, 4))
    for column, body in enumerate(own):
        affine = np.column_stack([X[body], np.ones(6)])
        N[body, 2 * column : 2 * column + 2] = linalg.null_space(affine.T)
    return X, edges, sparse.csr_array(N), (edges.squared.sum() + between) / n


def test_bodies_on_a_hinge_swing_apart():
    X, edges, N, largest = hinged_bodies()
    problem = Problem(edges, "equality")
    result = unfold_on_face(problem, N, tol=1e-9)
    assert result.face.basis.shape == (11, 6)  # three directions per body
    proof = certify(problem, result.factor, result.weights, -np.inf, result.face)
    assert proof.is_feasible and 0 <= proof.gap < 1e-7
    assert proof.value == pytest.approx(largest, rel=1e-6)
    assert proof.bound.value >= largest * (1 - 1e-12)
    # Check the certificate independently: the weights are valid on the face.
    B, w = result.face.basis, proof.bound.weights
    np.testing.assert_allclose(B.T @ B, np.eye(6), atol=1e-12)
    assert np.abs(N.T @ B).max() < 1e-12 and np.abs(B.sum(axis=0)).max() < 1e-12
    moment = B.T @ edges.laplacian(w).toarray() @ B
    assert np.linalg.eigvalsh(moment)[0] > 1 - 1e-9
    assert w @ edges.squared == pytest.approx(proof.bound.value)
    centred = X - X.mean(axis=0)  # feasible, and thus on the face
    np.testing.assert_allclose(B @ (B.T @ centred), centred, atol=1e-12)


def test_any_weights_bound_what_is_on_a_face():
    _, edges, N, largest = hinged_bodies()
    problem, face = Problem(edges, "equality"), find_face(edges, N)
    for seed in range(8):
        weights = np.random.default_rng(seed).normal(loc=1.0, size=len(edges))
        bound = certify(problem, np.zeros((11, 1)), weights, -np.inf, face).bound
        assert bound.value >= largest * (1 - 1e-12)


def test_doubt_about_the_face_goes_into_the_bound():
    """A basis moved to where the weights are larger must not improve the bound."""
    _, edges, N, largest = hinged_bodies()
    problem = Problem(edges, "equality")
    result = unfold_on_face(problem, N, tol=1e-10)
    B = result.face.basis
    pull = edges.laplacian(result.weights) @ B
    moved = B + 1e-6 * (pull - B @ (B.T @ pull))
    bounds = []
    for off in (0.0, float(np.linalg.norm(N.T @ moved))):
        wrong = result.face._replace(basis=moved, deviation=off)
        bounds.append(certify(problem, result.factor, result.weights, -np.inf, wrong).bound.value)
    assert bounds[0] < largest < bounds[1] < largest * 1.01


def test_dependencies_of_cliques_are_all_there_are():
    random = np.random.default_rng(0)
    flat = random.normal(size=(40, 2)) @ random.normal(size=(2, 5))
    graph = NeighborGraph.from_points(flat, n_neighbors=5)
    N = find_clique_dependencies(flat, graph, np.full(40, 5))
    assert N.shape == (40, 40 * 3)  # six points in two dimensions
    assert np.abs(N.T @ np.column_stack([flat, np.ones(40)])).max() < 1e-12
    wide = random.normal(size=(40, 5))
    graph = NeighborGraph.from_points(wide, n_neighbors=5)
    assert find_clique_dependencies(wide, graph, np.full(40, 5)).shape == (40, 0)


def test_rows_with_many_features_need_no_square_matrix_of_features():
    random = np.random.RandomState(0)
    angles = 2 * np.pi * np.arange(40) / 40
    points = np.column_stack([np.cos(angles), np.sin(angles), 0.01 * random.normal(size=40)])
    wide = points @ np.linalg.qr(random.normal(size=(700, 3)))[0].T
    tracemalloc.start()
    found = MVU(n_neighbors=4, constraints="equality").fit(wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # One 701×701 matrix per row would take 157 MB.
    assert peak < 30e6
    narrow = MVU(n_neighbors=4, constraints="equality").fit(points)
    assert found.objective_ == pytest.approx(narrow.objective_, rel=1e-6)


@pytest.mark.parametrize(("k", "word"), [(5, "almost lock"), (6, "lock")])
def test_equalities_on_large_rolls_are_solved_with_a_proof(k, word):
    X, _ = roll(800)
    with pytest.warns(UserWarning, match=f"The edge constraints {word} the rows"):
        mvu = MVU(n_neighbors=k, constraints="equality").fit(X)
    assert 0 <= mvu.duality_gap_ < 1e-6 and mvu.primal_residual_ < 1e-6
    assert mvu.locked_up_ == (word == "lock")
    assert np.trace(gram(X)) * (1 - 1e-6) <= mvu.trace_ <= mvu.dual_bound_
    i, j = mvu.edges_.T
    D = ((X[i] - X[j]) ** 2).sum(axis=1)
    np.testing.assert_allclose(((mvu.factor_[i] - mvu.factor_[j]) ** 2).sum(axis=1), D, rtol=1e-6)
    assert mvu.dual_bound_ == pytest.approx(mvu.edge_weights_ @ D)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_lock_up_is_noticed():
    X, _ = roll(60, noise=0.0)
    with pytest.warns(UserWarning, match="lock"):
        mvu = MVU(n_neighbors=20, constraints="equality", max_iter=60).fit(X)
    assert mvu.locked_up_ and mvu.gram_trace_ == pytest.approx(np.trace(gram(X)))
    assert not MVU(n_neighbors=4, constraints="squared").fit(X).locked_up_


@pytest.mark.parametrize(
    ("values", "dimension"),
    [
        ([9, 1, 0.001, 1e-9], 2),
        ([1], 1),
        ([5, 4, 4, 0.01], 3),
        ([1, 0.9, 0.8, 0.7], 4),
        ([100, 1, 1, 1, 1, 1, 1, 1, 0.001], 8),
    ],
)
def test_intrinsic_dimension_is_where_eigenvalues_drop(values, dimension):
    assert estimate_intrinsic_dimension(np.array(values, float)) == dimension


# ---------------------------------------------------------------------- the estimator


@pytest.fixture(scope="module")
def unrolled():
    X, arc = roll(900, noise=0.0)
    return MVU(n_neighbors=6).fit(X[:800]), X, arc


@pytest.mark.parametrize("out_of_sample", ["lle", "sdp", "sdp_refined"])
def test_new_points_lie_where_they_would_have_been(unrolled, out_of_sample):
    mvu, X, arc = unrolled
    mvu.set_params(out_of_sample=out_of_sample)  # Only transform uses it.
    np.testing.assert_allclose(mvu.transform(X[:800]), mvu.embedding_)
    placed = mvu.transform(X[800:])
    scale = np.polyfit(arc[:800], mvu.embedding_[:, 0], 1)
    wrong = placed[:, 0] - np.polyval(scale, arc[800:])
    assert np.median(np.abs(wrong)) < 0.03 * np.ptp(mvu.embedding_[:, 0])


def test_weights_place_points_of_flat_data_exactly():
    X = grid()
    queries = np.random.RandomState(1).uniform(1, 5, (10, 2))
    mvu = MVU(n_neighbors=5, tol=1e-9, reg=1e-9).fit(X)
    Y = np.vstack([mvu.embedding_, mvu.transform(queries)])
    X = np.vstack([X, queries])
    np.testing.assert_allclose(cdist(Y, Y), cdist(X, X), atol=1e-3)


@pytest.mark.parametrize("settings", [{}, {"on_disconnected": "components"}])
def test_a_model_file_maps_alike(tmp_path, settings):
    X, _ = roll(100, noise=0.1)
    X[50:] += 500
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mvu = MVU(n_neighbors=4, **settings).fit(X)
    save(mvu, tmp_path / "model.nf")
    queries = X[:10] + 0.1
    np.testing.assert_array_equal(
        load(tmp_path / "model.nf").transform(queries), mvu.transform(queries)
    )


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("solver", ["interior_point", "low_rank"])
def test_an_interrupt_leaves_the_best_so_far(solver):
    X, _ = roll(200, noise=0.1)
    whole = MVU(n_neighbors=5).fit(X)

    def impatient(iteration, row):
        if row["seconds"] > 0 and row["gap"] < 0.05:
            raise KeyboardInterrupt

    mvu = MVU(n_neighbors=5, solver=solver)
    mvu.callback = impatient
    with pytest.raises(UnfoldingInterrupted):
        mvu.fit(X)
    assert mvu.transform(X).shape == (200, 2)
    assert 0 < mvu.duality_gap_ < 1 and mvu.n_iter_ > 0
    assert mvu.trace_ <= whole.dual_bound_
    again = MVU(n_neighbors=5, solver="low_rank", warm_start=True)
    again.factor_ = mvu.factor_
    assert again.fit(X).duality_gap_ < 1e-5


def test_stopping_early_is_said_with_the_gap():
    X, _ = roll(200, noise=0.1)
    with pytest.warns(ConvergenceWarning, match="after 5 steps with a duality gap of"):
        mvu = MVU(n_neighbors=5, max_iter=5).fit(X)
    assert mvu.duality_gap_ > 1e-6 and mvu.n_iter_ == 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "min"}, "has the trivial solution K = 0"),
        ({"n_neighbors": 30}, "n_neighbors=30 must be less"),
        ({"n_components": 30}, "n_components=30 must be less"),
        (
            {"constraints": "squared", "slack_penalty": 1.0},
            "slack_penalty=1 gives the variance no weight",
        ),
        ({"constraints": "soft"}, "constraints must be"),
        ({"slack_penalty": 0.0}, "slack_penalty must be"),
        ({"on_disconnected": "ignore"}, "on_disconnected must be"),
    ],
)
def test_misuse_is_told(settings, message):
    X = np.random.RandomState(0).standard_normal((30, 3))
    with pytest.raises(ValueError, match=message):
        MVU(**settings).fit(X)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("constraints", ["inequality", "equality", "l1", "squared"])
@pytest.mark.parametrize(
    "X",
    [
        np.repeat(np.random.RandomState(0).standard_normal((12, 2)), 3, axis=0),
        np.column_stack([np.arange(15.0), np.full(15, 7.0)]),
        np.random.RandomState(0).standard_normal((8, 40)),
        np.vstack([np.eye(6), np.eye(6) + 1e-9, np.eye(6) + 2e-9]),
        np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]]),
    ],
    ids=["copies", "constant column", "few rows", "near copies", "square"],
)
def test_awkward_data_give_finite_coordinates(X, constraints):
    mvu = MVU(n_neighbors=3, constraints=constraints).fit(X)
    assert np.isfinite(mvu.embedding_).all() and np.isfinite(mvu.dual_bound_)
    assert np.isfinite(mvu.transform(X + 0.01)).all()
    assert mvu.duality_gap_ < 0.2


# ---------------------------------------------------------------------- mathematics


def test_laplacian_spectra_agree_with_dense_ones():
    X, _ = roll(400)
    pairs = MVU(n_neighbors=5)._find_pairs(X)[0]
    random = np.random.RandomState(0)
    masses = random.uniform(1, 3, 400)
    edges = Edges(400, pairs[:, 0], pairs[:, 1], np.ones(len(pairs)), masses)
    for weights in (random.uniform(size=len(pairs)), random.standard_normal(len(pairs))):
        values, vectors = laplacian_eigenpairs(edges, weights, 3)
        L = np.zeros((400, 400))
        for (i, j), w in zip(pairs, weights, strict=True):
            L[[i, j], [i, j]] += w
            L[[i, j], [j, i]] -= w
        np.testing.assert_allclose(edges.laplacian(weights).toarray(), L, atol=1e-12)
        root = np.sqrt(masses)
        dense = np.linalg.eigvalsh(L / np.outer(root, root))
        constant = np.argmin(np.abs(dense))
        np.testing.assert_allclose(values, np.delete(dense, constant)[:3], rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(vectors.T @ (masses[:, None] * vectors), np.eye(3), atol=1e-6)
        np.testing.assert_allclose(masses @ vectors, 0, atol=1e-6)
