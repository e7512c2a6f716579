"""Unfolding within a basis: small programs, descent, bound, and both estimators."""

import warnings

import numpy as np
import pytest
from conic import solved
from scipy import optimize, sparse
from sklearn.base import clone
from sklearn.datasets import make_s_curve, make_swiss_roll
from sklearn.exceptions import ConvergenceWarning

from nearfar import LandmarkMVU, NeighborGraph, VariationalMVU
from nearfar.evaluation import embedding_quality, procrustes_error
from nearfar.manifold.basis_unfolding import compute_root, unfold_in_basis
from nearfar.manifold.cliques import list_clique_pairs
from nearfar.manifold.landmark_mvu import compute_interpolation_matrix, select_farthest_rows
from nearfar.solvers.barycentric import reconstruction_matrix, weight_matrix
from nearfar.solvers.proven_bound import exceeds, find_mixed_bound
from nearfar.solvers.stress_descent import descend_stress
from nearfar.solvers.unfolding import Edges, Problem, UnfoldingInterrupted, laplacian_basis
from nearfar.solvers.variational_program import unfold_with_inequalities, unfold_with_slack


def network(n=40, k=4, p=3, seed=0):
    """Return a graph of close points with squared lengths of mean 1."""
    X = np.random.default_rng(seed).normal(size=(n, p))
    pairs = list_clique_pairs(NeighborGraph.from_points(X, n_neighbors=k))
    squared = ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1)
    return Edges(n, pairs[:, 0], pairs[:, 1], squared / squared.mean())


def path(n):
    return Edges(n, np.arange(n - 1), np.arange(1, n), np.ones(n - 1))


def ring(n):
    ends = np.sort(np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1), axis=1)
    return Edges.from_pairs(ends, np.ones(n), n)


def roll(n, **options):
    X, t = make_swiss_roll(n, noise=0.05, random_state=1, **options)
    return X, (t * np.sqrt(1 + t**2) + np.arcsinh(t)) / 2


def curve(n):
    """Return an S-shaped sheet whose layers are not joined if neighbors are few."""
    X, t = make_s_curve(n, noise=0.01, random_state=1)
    return X, t


# ---------------------------------------------------------------------- pairs


def test_pairs_are_all_within_a_row_and_its_neighbours():
    X = np.random.default_rng(0).normal(size=(30, 2))
    graph = NeighborGraph.from_points(X, n_neighbors=4)
    expected = set()
    for i in range(30):
        clique = [i, *graph.neighbors[i]]
        expected |= {(min(a, b), max(a, b)) for a in clique for b in clique if a != b}
    assert set(map(tuple, list_clique_pairs(graph).tolist())) == expected
    alone = set(map(tuple, list_clique_pairs(graph, angles=False).tolist()))
    assert alone == {(min(i, j), max(i, j)) for i in range(30) for j in graph.neighbors[i]}


# ---------------------------------------------------------------------- small programs


@pytest.mark.parametrize("price", [0.3, 20.0, 999.0])
def test_slack_program_is_solved_as_by_a_conic_solver(price):
    cp = pytest.importorskip("cvxpy")
    edges = network(60)
    _, Q = laplacian_basis(edges, 6)
    rows = edges.differences(Q)
    C = np.diag([3.0, 2.0, 1.0, 1.0, 0.5, 0.1])
    result = unfold_with_slack(rows, edges.squared, C, price)
    Z = cp.Variable((6, 6), PSD=True)
    lengths = cp.sum(cp.multiply(rows @ Z, rows), axis=1)
    objective = cp.trace(C @ Z) - price * cp.sum_squares(lengths - edges.squared)
    oracle = cp.Problem(cp.Maximize(objective))
    solved(oracle)
    assert result.value == pytest.approx(oracle.value, rel=1e-6)
    assert result.gap < 1e-8 and result.bound >= result.value
    own = np.einsum("ea,ab,eb->e", rows, result.Z, rows) - edges.squared
    assert result.value == pytest.approx(np.sum(C * result.Z) - price * own @ own)
    assert np.linalg.eigvalsh(result.Z)[0] > -1e-9 * np.linalg.eigvalsh(result.Z)[-1]


def test_inequality_program_is_solved_as_by_a_conic_solver():
    cp = pytest.importorskip("cvxpy")
    X, _ = roll(60)
    pairs = list_clique_pairs(NeighborGraph.from_points(X, n_neighbors=5))
    edges = Edges.from_pairs(pairs, ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1), 60)
    edges = edges.scaled(1 / edges.squared.mean())
    _, Q = laplacian_basis(edges, 6)
    rows = edges.differences(Q)
    result = unfold_with_inequalities(rows, edges.squared, np.eye(6))
    Z = cp.Variable((6, 6), PSD=True)
    lengths = cp.sum(cp.multiply(rows @ Z, rows), axis=1)
    oracle = cp.Problem(cp.Maximize(cp.trace(Z)), [lengths <= edges.squared])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        oracle.solve(solver="CLARABEL")
    # The conic solver may report an inaccurate result. The optimum is in our bracket, shown below.
    assert oracle.status in ("optimal", "optimal_inaccurate")
    assert oracle.value == pytest.approx(result.value, rel=1e-4)
    assert result.value <= result.bound <= result.value * (1 + 1e-5)
    assert (np.einsum("ea,ab,eb->e", rows, result.Z, rows) <= edges.squared * (1 + 1e-9)).all()
    assert (result.weights >= 0).all()
    moment = rows.T @ (result.weights[:, None] * rows)
    least = np.linalg.eigvalsh(moment)[0]
    assert result.bound == pytest.approx(result.weights @ edges.squared / least)


def test_many_functions_are_proven_optimal_from_any_start():
    """Weights whose moment exceeds C bound every Z, and a feasible Z is within 2e-6 of them."""
    X, _ = curve(100)
    graph = NeighborGraph.from_points(X, n_neighbors=8)
    pairs = list_clique_pairs(graph)
    edges = Edges.from_pairs(pairs, ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1), 100)
    edges = edges.scaled(1 / edges.squared.mean())
    Phi = reconstruction_matrix(weight_matrix(X, graph.indptr, graph.indices))
    Q = edges.centered(compute_interpolation_matrix(Phi, select_farthest_rows(graph, 0, 40)))
    rows, C = edges.differences(Q), Q.T @ Q
    by_paths = unfold_in_basis(Problem(edges, "inequality"), Q)
    by_smoothness = unfold_with_inequalities(rows, edges.squared, C)
    assert by_paths.value == pytest.approx(by_smoothness.value, rel=3e-6)
    for result in by_paths, by_smoothness:
        assert np.linalg.eigvalsh(result.Z)[0] > -1e-9 * np.linalg.eigvalsh(result.Z)[-1]
        assert (np.einsum("ea,ab,eb->e", rows, result.Z, rows) <= edges.squared * (1 + 1e-9)).all()
        assert result.value == pytest.approx(np.sum(C * result.Z), rel=1e-9)
        assert (result.weights >= 0).all()
        excess = np.linalg.eigvalsh(rows.T @ (result.weights[:, None] * rows) - C)
        assert excess[0] > -1e-9 * excess[-1]
        assert result.weights @ edges.squared == pytest.approx(result.bound)
        assert 0 <= result.gap < 2e-6


def test_no_edge_of_many_is_too_long():
    edges = network(400, k=6, p=2)
    _, Q = laplacian_basis(edges, 5)
    rows = edges.differences(Q)
    result = unfold_with_inequalities(rows, edges.squared, np.eye(5))
    lengths = np.einsum("ea,ab,eb->e", rows, result.Z, rows)
    assert (lengths <= edges.squared * (1 + 1e-9)).all()
    assert result.gap < 1e-5


@pytest.mark.parametrize("n", [6, 13])
def test_path_and_ring_in_a_full_basis_have_their_closed_forms(n):
    for edges, trace in [
        (path(n), n * (n**2 - 1) / 12),
        (ring(n), n / (4 * np.sin(np.pi / n) ** 2)),
    ]:
        _, Q = laplacian_basis(edges, n - 1)
        result = unfold_in_basis(Problem(edges, "inequality"), Q)
        assert result.value == pytest.approx(trace, rel=2e-6)
        assert result.bound == pytest.approx(trace, rel=2e-6)
    e = np.arange(1, n)
    of_path = unfold_in_basis(Problem(path(n), "inequality"), laplacian_basis(path(n), n - 1)[1])
    np.testing.assert_allclose(of_path.weights, e * (n - e) / 2, rtol=1e-3)


def test_full_basis_reaches_the_optimum_of_all_gram_matrices():
    cp = pytest.importorskip("cvxpy")
    n, price = 20, 5.0
    edges = network(n, k=3)
    problem = Problem(edges, "squared", price=price)
    values = [
        unfold_in_basis(problem, laplacian_basis(edges, m)[1]).value for m in (2, 5, 10, n - 1)
    ]
    assert (np.diff(values) >= -1e-7).all()  # More functions never decrease it.
    K = cp.Variable((n, n), PSD=True)
    i, j = edges.first, edges.second
    slack = cp.hstack(
        [K[a, a] - 2 * K[a, b] + K[b, b] - d for a, b, d in zip(i, j, edges.squared, strict=True)]
    )
    oracle = cp.Problem(cp.Maximize(cp.trace(K) - price * cp.sum_squares(slack)), [cp.sum(K) == 0])
    solved(oracle)
    assert values[-1] == pytest.approx(oracle.value, rel=1e-5)


def test_units_and_mixtures_of_basis_functions_do_not_matter():
    edges = network(50)
    _, Q = laplacian_basis(edges, 5)
    mixed = Q @ np.random.default_rng(0).normal(size=(5, 5)) * 1e4
    for constraints in ("squared", "inequality"):
        problem = Problem(edges, constraints, price=3.0)
        one, two = unfold_in_basis(problem, Q), unfold_in_basis(problem, mixed)
        assert one.value == pytest.approx(two.value, rel=1e-5)
        K = Q @ one.Z @ Q.T
        np.testing.assert_allclose(mixed @ two.Z @ mixed.T, K, atol=1e-3 * np.abs(K).max())


# ---------------------------------------------------------------------- descent


def by_hand(edges, Y, price, reward=1.0, one_sided=False):
    slack = ((Y[edges.first] - Y[edges.second]) ** 2).sum(axis=1) - edges.squared
    slack = np.maximum(slack, 0) if one_sided else slack
    return -reward * ((Y - Y.mean(axis=0)) ** 2).sum() + price * slack @ slack


@pytest.mark.parametrize("one_sided", [False, True])
def test_descent_ends_where_another_library_cannot_descend(one_sided):
    edges = network(30)
    Y = np.random.default_rng(1).normal(size=(30, 2))
    result = descend_stress(edges, Y, price=2.0, one_sided=one_sided, max_iter=2000, tol=1e-14)
    assert result.converged
    assert result.value == pytest.approx(by_hand(edges, result.factor, 2.0, 1.0, one_sided))

    def objective(y):
        return by_hand(edges, y.reshape(-1, 2), 2.0, 1.0, one_sided)

    slope = optimize.approx_fprime(result.factor.ravel(), objective, 1e-6)
    assert np.abs(slope).max() < 1e-3 * np.abs(result.factor).max()
    again = optimize.minimize(objective, result.factor.ravel())
    assert again.fun == pytest.approx(result.value, rel=1e-6)
    # The pulls of the edges are multipliers: (L_w - I) Y = 0.
    pulled = edges.laplacian(result.weights) @ result.factor
    np.testing.assert_allclose(pulled, result.factor, atol=1e-3)
    np.testing.assert_allclose(result.factor.mean(axis=0), 0, atol=1e-10)


def test_descent_never_climbs():
    edges = network(80, k=5)
    result = descend_stress(
        edges, np.random.default_rng(0).normal(size=(80, 3)), price=30.0, max_iter=80
    )
    assert (np.diff(result.history["objective"]) <= 1e-9).all()


def test_fixed_points_stay():
    edges = network(30)
    Y = np.random.default_rng(0).normal(size=(30, 2)) + 7
    fixed = np.arange(30) < 4
    result = descend_stress(edges, Y, price=1.0, reward=0.0, fixed=fixed)
    np.testing.assert_array_equal(result.factor[fixed], Y[fixed])
    assert result.value < by_hand(edges, Y, 1.0, 0.0)


# ---------------------------------------------------------------------- the bound


def test_pivots_prove_eigenvalues():
    edges = network(40)
    random = np.random.default_rng(0)
    for _ in range(20):
        w = random.normal(0.7, 0.6, size=len(edges))
        value = np.sort(np.linalg.eigvalsh(edges.laplacian(w).toarray()))
        # Skip the constant vector's zero.
        second = np.delete(value, np.abs(value).argmin())[0]
        for s in (0.05, 0.3, 1.0):
            assert exceeds(edges, w, s) == (second > s)


@pytest.mark.parametrize("constraints", ["squared", "inequality"])
def test_bounds_from_any_weights_hold(constraints):
    edges = network(25, k=3)
    problem = Problem(edges, constraints, price=4.0)
    full = unfold_in_basis(problem, laplacian_basis(edges, 24)[1])
    random = np.random.default_rng(0)
    for _ in range(10):
        w = full.weights + random.normal(size=len(edges)) * random.choice([0.0, 0.1, 1.0, 10.0])
        assert find_mixed_bound(problem, w).value >= full.value * (1 - 1e-6)
    nearly = find_mixed_bound(problem, full.weights * 1.001)
    assert nearly.value <= full.value * 1.05
    assert np.isfinite(find_mixed_bound(problem, np.zeros(len(edges))).value)
    assert np.isfinite(find_mixed_bound(problem, -np.ones(len(edges))).value)


# ---------------------------------------------------------------------- VariationalMVU


@pytest.fixture(scope="module")
def unrolled():
    X, arc = roll(1000)
    return X, arc, VariationalMVU().fit(X)


def test_a_swiss_roll_is_unrolled(unrolled):
    X, arc, mvu = unrolled
    assert abs(np.corrcoef(mvu.embedding_[:, 0], arc)[0, 1]) > 0.999
    assert procrustes_error(np.c_[arc, X[:, 1]], mvu.embedding_) < 0.06
    quality = embedding_quality(X, mvu.embedding_)
    assert quality["trust"] > 0.99 and quality["intersection"] > 0.95
    assert quality["continuity_without_stretched"] > 0.99


def test_the_certificate_is_of_the_factor(unrolled):
    X, _, mvu = unrolled
    Y, (i, j) = mvu.factor_, mvu.edges_.T
    D = ((X[i] - X[j]) ** 2).sum(axis=1)
    slack = ((Y[i] - Y[j]) ** 2).sum(axis=1) - D
    price = mvu.slack_penalty_ / (1 - mvu.slack_penalty_) / D.mean()
    assert mvu.trace_ == pytest.approx((Y**2).sum())
    assert mvu.trace_ == pytest.approx(mvu.eigenvalues_.sum())
    assert mvu.objective_ == pytest.approx(mvu.trace_ - price * slack @ slack)
    assert mvu.primal_residual_ == pytest.approx(np.abs(slack / D).max())
    assert 0 < mvu.duality_gap_ < 0.06 and mvu.basis_gap_ < 1e-8
    assert mvu.duality_gap_ == pytest.approx(1 - mvu.objective_ / mvu.dual_bound_)
    # The weights certify the bound w'D + |w|²/4c: all eigenvalues except the first exceed 1.
    w = mvu.edge_weights_
    assert mvu.dual_bound_ == pytest.approx(w @ D + w @ w / (4 * price))
    W = sparse.coo_array((w, (i, j)), shape=(1000, 1000)).toarray()
    W = W + W.T
    values = np.linalg.eigvalsh(np.diag(W.sum(axis=1)) - W)
    assert (values > 1 - 1e-6).sum() == 999
    np.testing.assert_allclose(Y.sum(axis=0), 0, atol=1e-6)


def test_stress_is_that_of_the_embedding(unrolled):
    X, _, mvu = unrolled
    i, j = mvu.edges_.T
    D = ((X[i] - X[j]) ** 2).sum(axis=1)
    slack = ((mvu.embedding_[i] - mvu.embedding_[j]) ** 2).sum(axis=1) - D
    assert mvu.stress_ == pytest.approx(np.sqrt(np.mean(slack**2)) / D.mean())
    assert mvu.stress_ < 0.05


def test_refinement_is_what_makes_it_faithful():
    X, arc = roll(600)
    flat = np.c_[arc, X[:, 1]]
    rough = VariationalMVU(refine=False, bound_iter=0).fit(X)
    fine = VariationalMVU(bound_iter=0).fit(X)
    assert rough.stress_ > 5 * fine.stress_
    assert procrustes_error(flat, rough.embedding_) > 2 * procrustes_error(flat, fine.embedding_)
    assert fine.objective_ > rough.objective_
    # Without refinement, the embedding is the leading part of the factor.
    np.testing.assert_allclose(np.abs(rough.factor_[:, :2]), np.abs(rough.embedding_), rtol=1e-6)


def test_functions_of_lle_follow_the_sheet_better():
    X, arc = curve(600)
    flat = np.c_[arc, X[:, 1]]
    errors = [
        procrustes_error(
            flat,
            VariationalMVU(basis=basis, n_neighbors=8, refine=False, bound_iter=0)
            .fit(X)
            .embedding_,
        )
        for basis in ("laplacian", "lle")
    ]
    assert errors[1] < 0.05 < errors[0]


def test_scale_and_rotation_go_through():
    X, _ = roll(300)
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    options = {"max_iter": 30, "bound_iter": 0}
    one = VariationalMVU(**options).fit(X)
    for scale in (1e-6, 1e5):
        two = VariationalMVU(**options).fit(scale * X @ Q + 3 * scale)
        assert two.trace_ == pytest.approx(scale**2 * one.trace_, rel=1e-3)
        assert procrustes_error(one.embedding_, two.embedding_ / scale) < 1e-2
        assert two.duality_gap_ == pytest.approx(one.duality_gap_, rel=0.05)


def test_a_small_omega_stretches_and_a_large_one_keeps_lengths():
    X, _ = roll(400)
    loose, firm = (
        VariationalMVU(slack_penalty=slack_penalty, bound_iter=0).fit(X)
        for slack_penalty in (0.9, 0.9999)
    )
    assert loose.stress_ > 10 * firm.stress_ and loose.trace_ > 1.5 * firm.trace_


@pytest.mark.slow
def test_fewer_pairs_leave_more_freedom():
    X, _ = roll(300)
    with_angles = VariationalMVU(slack_penalty=0.999, refine=True).fit(X)
    without = VariationalMVU(slack_penalty=0.999, angles=False).fit(X)
    assert len(without.edges_) < len(with_angles.edges_)
    assert without.dual_bound_ > with_angles.objective_


@pytest.mark.parametrize("method", ["lle", "sdp", "sdp_refined"])
def test_new_points_come_between_their_neighbours(unrolled, method):
    X, arc, mvu = unrolled
    mvu = VariationalMVU(out_of_sample=method, bound_iter=0).fit(X)
    np.testing.assert_allclose(mvu.transform(X[:30]), mvu.embedding_[:30], atol=1e-6)
    queries, t = make_swiss_roll(200, noise=0.05, random_state=7)
    length = (t * np.sqrt(1 + t**2) + np.arcsinh(t)) / 2
    placed = mvu.transform(queries)
    # The similarity that maps the training rows to the sheet also maps the new points to it.
    flat = np.c_[arc, X[:, 1]]
    A, *_ = np.linalg.lstsq(np.c_[mvu.embedding_, np.ones(1000)], flat, rcond=None)
    error = np.linalg.norm(np.c_[placed, np.ones(200)] @ A - np.c_[length, queries[:, 1]], axis=1)
    spacing = np.sqrt(np.ptp(arc) * np.ptp(X[:, 1]) / 1000)
    assert np.median(error) < spacing


def test_parts_are_linked_with_a_warning_or_refused():
    X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([0, 50], 30)[:, None]
    with pytest.warns(UserWarning, match="2 parts"):
        mvu = VariationalMVU(max_iter=20, bound_iter=0).fit(X)
    assert np.isfinite(mvu.embedding_).all() and np.isfinite(mvu.dual_bound_)
    with pytest.raises(ValueError, match="2 parts"):
        VariationalMVU(on_disconnected="raise").fit(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_basis": 1}, "n_basis=1 must be at least n_components=2"),
        ({"slack_penalty": 1.0}, "slack_penalty=1"),
        ({"slack_penalty": 0.0}, "slack_penalty must be"),
        ({"basis": "fourier"}, "basis must be"),
        ({"n_neighbors": 50}, "n_neighbors=50"),
        ({"n_components": 50}, "n_components=50"),
    ],
)
def test_misuse_is_named(options, message):
    X = np.random.default_rng(0).normal(size=(50, 3))
    with pytest.raises(ValueError, match=message):
        VariationalMVU(**options).fit(X)


@pytest.mark.parametrize("cls", [VariationalMVU, LandmarkMVU])
@pytest.mark.parametrize("constraints", ["squared", "inequality"])
def test_rows_that_nearly_coincide_do_no_harm(cls, constraints):
    X, arc = curve(200)
    X = np.vstack([X, X[:20], X[20:40] + 1e-9])
    arc = np.r_[arc, arc[:40]]
    options = {"constraints": constraints, "bound_iter": 5, "max_iter": 30, "basis": "lle"}
    if cls is LandmarkMVU:
        options.pop("basis")
    mvu = cls(n_neighbors=8, **options).fit(X)
    assert np.isfinite(mvu.embedding_).all() and np.isfinite(mvu.duality_gap_)
    np.testing.assert_array_equal(mvu.embedding_[:20], mvu.embedding_[200:220])
    assert abs(np.corrcoef(mvu.embedding_[:, 0], arc)[0, 1]) > 0.95


# ---------------------------------------------------------------------- LandmarkMVU


def test_landmarks_hold_the_other_rows_by_least_error():
    """Q Y_l has the smallest LLE error among all placements with these landmark positions."""
    X, _ = roll(150)
    graph = NeighborGraph.from_points(X, n_neighbors=6)
    Phi = reconstruction_matrix(weight_matrix(X, graph.indptr, graph.indices))
    landmarks = select_farthest_rows(graph, 0, 12)
    Q = compute_interpolation_matrix(Phi, landmarks)
    np.testing.assert_allclose(Q.sum(axis=1), 1, atol=1e-6)
    random = np.random.default_rng(0)
    Y = Q @ random.normal(size=(12, 2))
    error = np.sum(Y * (Phi @ Y))
    for _ in range(20):
        other = Y + 0.01 * random.normal(size=Y.shape)
        other[landmarks] = Y[landmarks]
        assert np.sum(other * (Phi @ other)) > error


def test_landmarks_are_far_apart_along_the_graph():
    X, _ = roll(300)
    graph = NeighborGraph.from_points(X, n_neighbors=6)
    chosen = select_farthest_rows(graph, 5, 10)
    assert 5 in chosen and len(set(chosen)) == 10
    between = graph.geodesics(chosen)[:, chosen] + 1e9 * np.eye(10)
    # No row is farther from all landmarks than two landmarks are from each other.
    assert graph.geodesics(chosen).min(axis=0).max() <= between.min() + 1e-9


def test_landmarks_unroll_and_no_edge_is_too_long():
    X, arc = curve(600)
    mvu = LandmarkMVU(n_neighbors=8, n_landmarks=15).fit(X)
    assert abs(np.corrcoef(mvu.embedding_[:, 0], arc)[0, 1]) > 0.999
    i, j = mvu.edges_.T
    D = ((X[i] - X[j]) ** 2).sum(axis=1)
    lengths = ((mvu.factor_[i] - mvu.factor_[j]) ** 2).sum(axis=1)
    assert (lengths <= D * (1 + 1e-9)).all()
    assert mvu.trace_ <= mvu.dual_bound_ and mvu.duality_gap_ < 0.2
    assert mvu.primal_residual_ < 1e-9 and mvu.basis_gap_ < 1e-5
    assert mvu.trace_ == pytest.approx(mvu.objective_)
    # These certify the bound: nonnegative weights, and all eigenvalues except the first above 1.
    w = mvu.edge_weights_
    assert (w >= 0).all() and mvu.dual_bound_ == pytest.approx(w @ D)
    W = sparse.coo_array((w, (i, j)), shape=(600, 600)).toarray()
    W = W + W.T
    assert (np.linalg.eigvalsh(np.diag(W.sum(axis=1)) - W) > 1 - 1e-6).sum() == 599


def test_flat_points_stay_as_they_are():
    X = np.random.default_rng(0).uniform(size=(200, 2)) * [3, 1]
    wide = X @ np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0][:2]
    mvu = LandmarkMVU(n_neighbors=8, n_landmarks=12, bound_iter=0).fit(wide)
    assert procrustes_error(X, mvu.embedding_) < 0.03
    assert (mvu.eigenvalues_[2:] < 1e-3 * mvu.eigenvalues_[0]).all()


@pytest.mark.filterwarnings("ignore:LandmarkMVU. the program within")
def test_more_landmarks_never_lower_the_optimum():
    X, _ = curve(200)
    traces = [
        LandmarkMVU(n_neighbors=8, n_landmarks=m, bound_iter=0, constraints="squared")
        .fit(X)
        .objective_
        for m in (6, 12, 24)
    ]
    assert traces[0] < traces[1] < traces[2]


def test_landmarks_must_outnumber_components():
    with pytest.raises(ValueError, match="n_landmarks=2 must be greater than"):
        LandmarkMVU(n_landmarks=2).fit(np.random.default_rng(0).normal(size=(50, 3)))


@pytest.mark.filterwarnings("ignore:The neighbor graph")
def test_lengths_from_tiny_to_huge_do_not_fail_in_silence():
    random = np.random.default_rng(0)
    X = np.vstack([1e-3 * random.normal(size=(30, 2)), 1e3 * random.normal(size=(30, 2)) + 1e4])
    with pytest.warns(ConvergenceWarning, match="gap of"):
        mvu = LandmarkMVU(bound_iter=0).fit(X)
    assert np.isfinite(mvu.basis_gap_) and np.isfinite(mvu.embedding_).all()
    assert 0 < mvu.duality_gap_ < np.inf


def test_a_program_that_does_not_end_says_so(monkeypatch):
    monkeypatch.setattr("nearfar.solvers.variational_program._MAX_STEPS", 3)
    X, _ = curve(60)
    with pytest.warns(ConvergenceWarning, match="gap of"):
        mvu = LandmarkMVU(bound_iter=0).fit(X)
    assert mvu.basis_gap_ > 1e-3 and np.isfinite(mvu.embedding_).all()
    assert mvu.duality_gap_ > 0


def test_bounds_of_converged_weights_are_tight():
    """On a ring, the weights of all edges are equal, and the bound equals the optimum."""
    edges = ring(12)
    problem = Problem(edges, "inequality")
    weights = np.full(12, 1 / (4 * np.sin(np.pi / 12) ** 2))
    trace = 12 / (4 * np.sin(np.pi / 12) ** 2)
    assert trace <= find_mixed_bound(problem, weights).value * (1 + 1e-12)
    assert find_mixed_bound(problem, weights).value < trace * (1 + 2e-6)


LEARNERS = [
    VariationalMVU(n_neighbors=5, bound_iter=20),
    VariationalMVU(n_neighbors=5, bound_iter=20, basis="lle"),
    LandmarkMVU(n_neighbors=5, bound_iter=20, n_landmarks=8),
]


@pytest.mark.parametrize("learner", LEARNERS)
def test_parts_are_unfolded_each_by_itself(learner):
    X, _ = curve(80)
    X = np.vstack([X[:40], X[40:] + 300])
    with pytest.warns(UserWarning, match="2 parts"):
        clone(learner).fit(X)
    whole = clone(learner).set_params(on_disconnected="components").fit(X)
    alone = [clone(learner).fit(half) for half in (X[:40], X[40:])]
    for name in ("trace_", "objective_", "dual_bound_"):
        total = sum(getattr(part, name) for part in alone)
        assert getattr(whole, name) == pytest.approx(total, rel=1e-6)
    np.testing.assert_allclose(whole.embedding_[:40], alone[0].embedding_, atol=1e-6)
    np.testing.assert_allclose(whole.embedding_[40:], alone[1].embedding_, atol=1e-6)
    K = whole.factor_ @ whole.factor_.T
    assert np.abs(K[:40, 40:]).max() < 1e-9 * np.abs(K).max()
    assert whole.eigenvalues_.sum() == pytest.approx(whole.trace_)
    assert (np.diff(whole.eigenvalues_) <= 0).all()
    i, j = whole.edges_.T
    assert ((i < 40) == (j < 40)).all()
    np.testing.assert_allclose(whole.transform(X), whole.embedding_)
    moved = whole.transform(X[40:] + 1e-3)
    assert np.abs(moved - whole.embedding_[40:]).max() < 0.1
    if isinstance(learner, LandmarkMVU):
        assert (whole.landmarks_ < 40).sum() == 8 and len(whole.landmarks_) == 16


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("learner", LEARNERS)
def test_an_interrupt_keeps_the_best_so_far(learner, stage):
    X, _ = curve(80)
    names = ["unfolding", "flattening", "proving the bound"]

    def impatient(iteration, row):
        if row["stage"] == names[stage - 1]:
            raise KeyboardInterrupt

    learner = clone(learner).set_params(refine=True)
    learner.callback = impatient
    with pytest.raises(UnfoldingInterrupted):
        learner.fit(X)
    assert learner.transform(X).shape == (80, 2) and np.isfinite(learner.embedding_).all()
    assert learner.n_iter_ > 0 and learner.objective_ <= learner.dual_bound_
    assert not hasattr(learner, "_interrupt")


def test_progress_is_printed(capsys):
    X, _ = curve(80)
    VariationalMVU(n_neighbors=5, max_iter=3, bound_iter=2, verbose=1).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and "the bound: objective" in lines[-1]
    VariationalMVU(n_neighbors=5, max_iter=3, bound_iter=2).fit(X)
    assert not capsys.readouterr().out


def test_root_of_a_matrix():
    A = np.random.default_rng(0).normal(size=(4, 3))
    R = compute_root(A @ A.T)
    np.testing.assert_allclose(R @ R.T, A @ A.T, atol=1e-12)
