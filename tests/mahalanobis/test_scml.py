"""SCML compared with its complete linear program."""

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import nearfar.mahalanobis.scml as module
from nearfar import SCML, KNNClassifier, Pairs, Triplets
from nearfar.mahalanobis.rank_one_bases import find_local_discriminants, find_triplet_directions

SCALES = np.array([1.0, 3.0, 10.0, 30.0])


def problem(seed, n=40, p=4):
    """Return points of two overlapping classes, with some wrong labels."""
    rng = np.random.RandomState(seed)
    y = rng.randint(2, size=n)
    X = rng.normal(size=(n, p)) @ rng.normal(size=(p, p)) + 2 * y[:, None] * rng.normal(size=p)
    y[:3] = 1 - y[:3]
    return X, y


def gains(X, triplets, basis):
    """Return d²(far) - d²(near) along each direction."""
    a, near, far = X[triplets].transpose(1, 0, 2)
    return ((a - far) @ basis.T) ** 2 - ((a - near) @ basis.T) ** 2


def optimum(X, triplets, basis, beta):
    """Solve for weights and slacks: mean slack + beta·Σw, slack ≥ 1 - gains w."""
    Q = gains(X, triplets, basis)
    t, k = Q.shape
    answer = linprog(
        np.r_[np.full(k, beta), np.full(t, 1 / t)],
        A_ub=np.hstack([-Q, -np.eye(t)]),
        b_ub=-np.ones(t),
    )
    assert answer.status == 0
    return answer.fun


@pytest.mark.parametrize("scales", [1.0, SCALES], ids=["plain", "scaled columns"])
@pytest.mark.parametrize("seed", range(5))
def test_optimum_of_the_linear_program(seed, scales):
    X, y = problem(seed)
    X = X * scales
    beta = [1e-5, 1e-3, 1e-2, 1e-4, 1e-5][seed]
    scml = SCML(["lda", "triplet_differences"][seed % 2], n_basis=60, beta=beta).fit(X, y)
    triplets = Triplets.from_neighbors(X, y).indices
    best = optimum(X, triplets, scml.basis_, beta)
    assert best > 1e-3
    assert scml.objective_ == pytest.approx(best, rel=1e-4)
    assert best * (1 - 0.01) <= scml.dual_bound_ <= best * (1 + 1e-6)
    short = 1 - gains(X, triplets, scml.basis_) @ scml.weights_
    found = np.maximum(short, 0).mean() + beta * scml.weights_.sum()
    assert found == pytest.approx(scml.objective_, rel=1e-8)


def test_the_map_is_that_of_the_weights():
    X, y = problem(2)
    for beta in (1e-5, 0.1):  # More directions than features, and fewer.
        scml = SCML(beta=beta).fit(X, y)
        M = np.einsum("k,ki,kj->ij", scml.weights_, scml.basis_, scml.basis_)
        np.testing.assert_allclose(scml.get_mahalanobis_matrix(), M, rtol=1e-8, atol=1e-10)
        assert scml.weights_.min() >= 0
        assert len(scml.components_) == min((scml.weights_ > 0).sum(), 4)


def test_any_directions_in_any_units():
    X, y = problem(3)
    rng = np.random.RandomState(0)
    basis = rng.normal(size=(30, 4)) * 10 ** rng.uniform(-3, 3, size=(30, 1))
    triplets = Triplets.from_labels(y, n_triplets=100, random_state=0)
    for factor in (1.0, 1e-8, 1e8):
        scml = SCML(basis / factor).fit(X * factor, supervision=triplets)
        best = optimum(X, triplets.indices, basis, 1e-5)
        assert scml.objective_ == pytest.approx(best, rel=1e-4)
        np.testing.assert_allclose(scml.basis_, basis / factor)


def test_a_program_too_large_is_approached(monkeypatch):
    X, y = problem(1)
    exact = SCML(n_basis=60, beta=1e-2).fit(X, y)
    monkeypatch.setattr(module, "_MAX_ENTRIES", 10)
    near = SCML(n_basis=60, beta=1e-2).fit(X, y)
    assert exact.objective_ <= near.objective_ <= exact.objective_ * 1.01
    assert near.dual_bound_ <= exact.objective_ and near.duality_gap_ > 0


def test_what_is_left_out_at_first_is_found(monkeypatch):
    X, y = problem(4)
    exact = SCML(n_basis=200).fit(X, y).objective_
    # After a short descent the first program has the wrong triplets and directions.
    monkeypatch.setattr(module, "_STAGE_ITERATIONS", 1)
    monkeypatch.setattr(module, "_NEAR_HINGE", -0.5)
    monkeypatch.setattr(
        module._Program, "_select_directions", lambda self, w, g: np.arange(len(w)) < 3
    )
    scml = SCML(n_basis=200).fit(X, y)
    assert scml.objective_ == pytest.approx(exact, rel=1e-5)
    assert scml.n_iter_ > 3


@pytest.mark.parametrize("fresh", [1, 20])
def test_labels_without_meaning_and_hinges_that_were_taken_for_lines(monkeypatch, fresh):
    # Nearly all triplets violate their margin; with too few hinges there is no solution.
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(50, 3)), rng.randint(2, size=50)
    monkeypatch.setattr(module, "_MIN_TRIPLETS", fresh)
    monkeypatch.setattr(module, "_MAX_TRIPLETS_PER_DIRECTION", 0)
    basis = rng.normal(size=(20, 3))
    scml = SCML(basis).fit(X, y)
    best = optimum(X, Triplets.from_neighbors(X, y).indices, basis, 1e-5)
    assert scml.objective_ == pytest.approx(best, rel=1e-5)
    assert scml.duality_gap_ < 1e-4


def test_gradient_of_the_rounded_program_by_finite_differences():
    X, y = problem(0)
    triplets = Triplets.from_neighbors(X, y).indices
    rng = np.random.RandomState(0)
    program = module._Program(X, triplets, rng.normal(size=(9, 4)), np.full(9, 0.01))
    w, step = rng.uniform(0, 0.1, size=9), rng.normal(size=9)
    objective = program.make_rounded_objective(0.5)
    slope = (objective(w + 1e-6 * step)[0] - objective(w - 1e-6 * step)[0]) / 2e-6
    assert slope == pytest.approx(objective(w)[1] @ step, rel=1e-5)


def test_multipliers_from_anywhere_give_a_bound():
    X, y = problem(0)
    scml = SCML(n_basis=50, beta=1e-3).fit(X, y)
    triplets = Triplets.from_neighbors(X, y).indices
    program = module._Program(X, triplets, scml.basis_, np.full(50, 1e-3))
    rng = np.random.RandomState(0)
    for _ in range(30):
        program.prove(rng.uniform(size=len(triplets)) ** 4 / len(triplets))
        assert 0 < program.bound <= scml.objective_


def test_local_discriminants_of_everything_are_fishers():
    X, y = load_iris(return_X_y=True)
    few = np.concatenate([np.flatnonzero(y == c)[:10] for c in range(3)])
    X, y = X[few] - X[few].mean(axis=0), y[few]
    # Each class has ten rows, so these are the nearest rows to any center.
    found = find_local_discriminants(X, y, 10_000, np.random.RandomState(0))
    assert found.shape == (2 * 2 * 30, 4)
    np.testing.assert_allclose((X @ found.T).var(axis=0), 1)
    fisher = LinearDiscriminantAnalysis(solver="eigen").fit(X, y).scalings_[:, 0]
    S = np.cov(X.T, bias=True)
    assert abs(found[0] @ S @ fisher) / np.sqrt(fisher @ S @ fisher) > 0.99


def test_triplet_differences_set_the_far_apart():
    X, y = problem(0)
    X = X - X.mean(axis=0)
    triplets = Triplets.from_labels(y, random_state=0).indices
    found = find_triplet_directions(X, triplets, 50, np.random.RandomState(0))
    assert found.shape == (50, 4)
    np.testing.assert_allclose((X @ found.T).var(axis=0), 1)
    random = np.random.RandomState(1).normal(size=(200, 4))
    random /= (X @ random.T).std(axis=0)[:, None]
    assert gains(X, triplets, found).mean() > gains(X, triplets, random).mean()


def test_lda_with_triplets_is_triplet_differences():
    X, y = problem(5)
    triplets = Triplets.from_labels(y, n_triplets=200, random_state=0)
    first, second = (
        SCML(basis).fit(X, y, supervision=triplets) for basis in ("lda", "triplet_differences")
    )
    np.testing.assert_array_equal(first.weights_, second.weights_)


def test_it_helps_neighbours_on_iris_and_repeats_itself():
    X, y = load_iris(return_X_y=True)
    wide = np.column_stack([X, 10 * np.random.RandomState(0).normal(size=(150, 2))])
    plain = KNNClassifier().fit(wide[::2], y[::2]).score(wide[1::2], y[1::2])
    learned = KNNClassifier(SCML()).fit(wide[::2], y[::2]).score(wide[1::2], y[1::2])
    assert learned > plain + 0.2
    first, second = (SCML().fit(wide, y).components_ for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_breast_cancer_to_its_optimum_with_few_directions():
    X, y = load_breast_cancer(return_X_y=True)
    scml = SCML().fit(X / X.std(axis=0), y)
    assert scml.duality_gap_ < 1e-4 and scml.basis_.shape == (600, 30)
    assert (scml.weights_ > 0).sum() < 150


def test_contradictory_triplets_and_what_is_not_worth_its_weight():
    X, y = problem(0)
    with pytest.warns(UserWarning, match="all weights are zero"):
        scml = SCML(beta=1e6).fit(X, y)
    assert not scml.components_.any() and scml.objective_ == pytest.approx(1.0)
    cycle = Triplets([[0, 1, 2], [2, 0, 1], [1, 2, 0]], n_samples=40)
    with pytest.warns(UserWarning, match="all weights are zero"):
        scml = SCML(np.eye(4)).fit(X, supervision=cycle)
    assert np.isfinite(scml.components_).all() and scml.objective_ <= 1 + 1e-9


def test_few_rows_constant_and_redundant_features():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(12, 20))
    X[:, 3], X[:, 5] = X[:, 2], 7.0
    for basis in ("lda", "triplet_differences"):
        scml = SCML(basis, n_near=2, n_far=2).fit(X, np.repeat([0, 1], 6))
        assert np.isfinite(scml.components_).all() and scml.duality_gap_ < 1e-3
        assert not scml.basis_[:, 5].any()


def test_max_iter_is_kept_and_told_of():
    X, y = problem(0)
    with pytest.warns(UserWarning, match="SCML did not converge in 3 iterations"):
        scml = SCML(max_iter=3).fit(X, y)
    assert scml.n_iter_ == 3 and scml.objective_ >= scml.dual_bound_


def test_bad_supervision():
    X = np.random.RandomState(0).normal(size=(6, 2))
    X[1] = X[0]
    with pytest.raises(ValueError, match="SCML needs triplets, but there are none"):
        SCML().fit(X, supervision=Triplets(np.empty((0, 3), int), n_samples=6))
    with pytest.raises(ValueError, match="made for 7 samples but X has 6"):
        SCML().fit(X, supervision=Triplets([[0, 1, 2]], n_samples=7))
    with pytest.raises(ValueError, match="supervision must be Triplets; got Pairs"):
        SCML().fit(X, supervision=Pairs([[0, 2]], [], n_samples=6))
    with pytest.raises(ValueError, match="in every triplet the far point equals the anchor"):
        SCML().fit(X, supervision=Triplets([[0, 2, 1]], n_samples=6))
    both = Triplets([[0, 2, 1], [2, 3, 4]], n_samples=6)
    with pytest.warns(UserWarning, match="in 1 of 2 triplets the far point equals") as caught:
        SCML(np.eye(2)).fit(X, supervision=both)
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (np.eye(3), r"basis must have shape \(n_basis, 4\)"),
        (np.full((2, 4), np.nan), "basis contains NaN"),
        (np.zeros((2, 4)), "does not vary along any direction"),
        ("pca", "basis must be 'lda' or"),
    ],
)
def test_bad_bases(basis, message):
    X, y = problem(0)
    with pytest.raises(ValueError, match=message):
        SCML(basis).fit(X, y)
