"""GTDA compared with loops and eigenproblems; the theorem and the errors of Tao's thesis."""

import warnings

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.stats import ortho_group
from sklearn.exceptions import ConvergenceWarning

from nearfar import DSDC, GTDA
from nearfar.solvers.eigen import trace_ratio
from nearfar.solvers.mode_subspaces import projector_change
from nearfar.tensors import multi_mode_dot, unfold


def some(shape, n_classes=4, per_class=6, seed=0, spread=1.0):
    """Return tensors of classes of unequal sizes, with different scatter in each mode."""
    random = np.random.RandomState(seed)
    y = np.append(np.repeat(np.arange(n_classes), per_class), [0, 0, 1])
    X = spread * random.normal(size=(n_classes, *shape))[y] + random.normal(size=(len(y), *shape))
    for mode, d in enumerate(shape, start=1):
        A = random.normal(size=(d, d)) * 0.7 ** np.arange(d)
        X = np.moveaxis(np.tensordot(A, X, (1, mode)), 0, mode)
    return X + 5, y


def parts(X, y):
    """Return deviations from class means, and those of class means times the root of their size."""
    own, between = np.empty_like(X), []
    for c in np.unique(y):
        mine = X[y == c]
        own[y == c] = mine - mine.mean(axis=0)
        between.append(np.sqrt(len(mine)) * (mine.mean(axis=0) - X.mean(axis=0)))
    return own, np.array(between)


def scatters(X, y, mode, factors):
    """Return B and W of a mode, computed in loops over samples."""
    sums = []
    for stack in reversed(parts(X, y)):
        unfolded = [
            unfold(multi_mode_dot(T, factors, skip=mode, transpose=True), mode) for T in stack
        ]
        sums.append(sum(T @ T.T for T in unfolded))
    return sums


def objective(X, y, factors, within_weight):
    own, between = (
        sum((multi_mode_dot(T, factors, transpose=True) ** 2).sum() for T in stack)
        for stack in parts(X, y)
    )
    return between - within_weight * own


def assert_same_subspaces(factors, others, tol=1e-6):
    for U, V in zip(factors, others, strict=True):
        assert projector_change(U, V) < tol


SHAPES = [(6,), (5, 4), (3, 4, 2), (2, 3, 2, 3), (7, 1, 3)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_no_step_lowers_the_objective_at_a_fixed_zeta(shape, seed):
    X, y = some(shape, seed=seed)
    kept = tuple(max(1, d // 2) for d in shape)
    for within_weight, init in ((0.0, "random"), (0.1, "hosvd"), (0.3, "random"), (1.0, "random")):
        gtda = GTDA(
            kept, within_weight=within_weight, init=init, max_iter=15, random_state=seed
        ).fit(X, y)
        values = np.array(gtda.history_["objective"])
        bound = (parts(X, y)[1] ** 2).sum()
        assert (np.diff(values) >= -1e-10 * bound).all()
        assert (values <= bound * (1 + 1e-12)).all()
        assert values[-1] == pytest.approx(
            objective(X, y, gtda.factors_, within_weight), abs=1e-9 * bound
        )
        for U in gtda.factors_:
            np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-12)
            assert (U[np.abs(U).argmax(axis=0), np.arange(U.shape[1])] > 0).all()
        assert (gtda.within_weight_ == within_weight).all()


def test_at_rest_each_mode_has_the_leading_eigenvectors_of_its_scatters():
    X, y = some((5, 4, 3), seed=2)
    gtda = GTDA((2, 2, 1), within_weight=0.3, tol=1e-10, max_iter=500).fit(X, y)
    assert gtda.converged_
    for mode, U in enumerate(gtda.factors_):
        B, W = scatters(X, y, mode, gtda.factors_)
        _, V = eigh(B - 0.3 * W)
        assert projector_change(U, V[:, ::-1][:, : U.shape[1]]) < 1e-8
    # The wrong version: scatter within classes about the mean of all samples.
    wrong = sum(
        unfold(multi_mode_dot(T, gtda.factors_, skip=0, transpose=True), 0)
        @ unfold(multi_mode_dot(T, gtda.factors_, skip=0, transpose=True), 0).T
        for T in X - X.mean(axis=0)
    )
    _, V = eigh(scatters(X, y, 0, gtda.factors_)[0] - 0.3 * wrong)
    assert projector_change(gtda.factors_[0], V[:, ::-1][:, :2]) > 1e-3


@pytest.mark.parametrize("within_weight", [0.0, 0.5, "max_eig", "trace_ratio", "sum_eig"])
def test_one_mode_is_dsdc(within_weight):
    X, y = some((6,), per_class=12)
    gtda, dsdc = (
        GTDA(3, within_weight=within_weight).fit(X, y),
        DSDC(3, within_weight=within_weight).fit(X, y),
    )
    B, W = scatters(X, y, 0, [np.eye(6)])
    _, V = eigh(B - gtda.within_weight_[0] * W)
    assert_same_subspaces(gtda.factors_, [V[:, :-4:-1]])
    # GTDA has a ridge in the rules, DSDC does not.
    assert_same_subspaces(gtda.factors_, [dsdc.components_.T], 1e-4)
    assert gtda.within_weight_[0] == pytest.approx(float(dsdc.within_weight_), rel=1e-4)


def test_no_sweep_is_the_direct_form():
    X, y = some((5, 4))
    gtda = GTDA((2, 2), within_weight=0.3, max_iter=0).fit(X, y)
    for mode, U in enumerate(gtda.factors_):
        B, W = scatters(X, y, mode, [np.eye(5), np.eye(4)])
        _, V = eigh(B - 0.3 * W)
        assert projector_change(U, V[:, :-3:-1]) < 1e-8
    assert gtda.n_iter_ == 0 and gtda.history_["objective"] == []


def test_all_dimensions_are_rotations():
    X, y = some((4, 3))
    gtda = GTDA((4, 3)).fit(X, y)
    np.testing.assert_allclose(np.ptp(gtda.history_["objective"]), 0, atol=1e-8)
    np.testing.assert_allclose(gtda.inverse_transform(gtda.transform(X)), X, atol=1e-10)


def test_labels_of_no_weight_leave_the_energy_of_class_means():
    X, y = some((5, 4))
    gtda = GTDA((2, 2), within_weight=0.0, tol=1e-10, max_iter=500).fit(X, y)
    B, _ = scatters(X, y, 0, gtda.factors_)
    assert gtda.history_["objective"][-1] == pytest.approx(
        np.sort(np.linalg.eigvalsh(B))[-2:].sum()
    )


# ---------------------------------------------------------------------- rules for within_weight


def test_the_largest_eigenvalue_leaves_nothing_positive():
    X, y = some((6, 5))
    gtda = GTDA((3, 3), within_weight="max_eig", max_iter=0).fit(X, y)
    for mode in range(2):
        B, W = scatters(X, y, mode, [np.eye(6), np.eye(5)])
        top = eigh(B, W, eigvals_only=True)[-1]
        assert gtda.within_weight_[mode] == pytest.approx(top, rel=1e-5)
        values = np.linalg.eigvalsh(B - top * W)
        assert abs(values[-1]) < 1e-8 * np.abs(values).max()
        assert (values[:-1] < 0).all()


def test_the_trace_ratio_rises_to_its_optimum():
    X, y = some((8,), per_class=12)
    B, W = scatters(X, y, 0, [np.eye(8)])
    found = []
    for q in (1, 2, 4):
        ratios = []
        for steps in range(1, 12):
            U = trace_ratio(B, W, q, max_iter=steps)
            ratios.append(np.trace(U.T @ B @ U) / np.trace(U.T @ W @ U))
        assert (np.diff(ratios) >= -1e-12).all()
        within_weight = GTDA(q, within_weight="trace_ratio").fit(X, y).within_weight_[0]
        assert within_weight == pytest.approx(ratios[-1], rel=1e-5)
        # At the optimum the difference is zero.
        values = np.linalg.eigvalsh(B - within_weight * W)
        assert abs(values[-q:].sum()) < 1e-5 * np.abs(values).sum()
        found.append((within_weight, GTDA(q, within_weight="sum_eig").fit(X, y).within_weight_[0]))
    eigenvalues = eigh(B, W, eigvals_only=True)[::-1]
    assert found[0][0] == pytest.approx(eigenvalues[0], rel=1e-5)
    for q, (ratio, total) in zip((1, 2, 4), found, strict=True):
        assert total == pytest.approx(eigenvalues[:q].sum(), rel=1e-4)
        assert total >= ratio * (1 - 1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_with_a_zeta_chosen_at_each_step_the_objective_may_fall():
    # The theorem of the thesis needs a fixed weight. Its rule changes the weight at each step.
    falls = 0
    for seed in range(6):
        X, y = some((6, 5), seed=seed)
        gtda = GTDA((3, 3), within_weight="max_eig", init="random", random_state=seed, max_iter=20)
        values = np.array(gtda.fit(X, y).history_["objective"])
        falls += bool((np.diff(values) < -1e-6 * np.abs(values).max()).any())
        assert len(set(gtda.history_["within_weight"])) > 2
    assert falls > 0


def test_the_order_of_magnitude_takes_the_largest_scatter_within_classes():
    # svd(B - within_weight W) orders by magnitude, which does not maximize the objective.
    X, y = some((6,), per_class=12, spread=0.5)
    B, W = scatters(X, y, 0, [np.eye(6)])
    right = GTDA(1, within_weight="max_eig").fit(X, y)
    wrong = GTDA(1, within_weight="max_eig", order="magnitude").fit(X, y)
    within = [np.trace(g.factors_[0].T @ W @ g.factors_[0]) for g in (right, wrong)]
    assert within[1] > 0.8 * np.linalg.eigvalsh(W)[-1]
    assert within[1] > 3 * within[0]
    assert wrong.history_["objective"][-1] < right.history_["objective"][-1]
    left = np.linalg.svd(B - right.within_weight_[0] * W)[0][:, :1]
    assert_same_subspaces(wrong.factors_, [left])


# ---------------------------------------------------------------------- rules for dimensions


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rules_count_eigenvalues_up_to_a_share():
    X, y = some((8,), per_class=12)
    B, W = scatters(X, y, 0, [np.eye(8)])
    for within_weight in (0.1, 1.0):
        values = np.linalg.eigvalsh(B - within_weight * W)[::-1]
        masses = {
            "eigenvalue_mass": values,
            "abs_mass": np.abs(values),
            "positive_mass": np.maximum(values, 0),
        }
        for rule, mass in masses.items():
            shares = np.cumsum(mass) / mass.sum()
            allowed = [q for q in range(1, 9) if shares[q - 1] <= 0.95]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                gtda = GTDA(within_weight=within_weight, dim_rule=rule, dim_fraction=0.95).fit(X, y)
            assert gtda.n_components_ == (max(allowed, default=1),)
    assert GTDA(dim_rule="abs_mass", energy=0.95).fit(X, y).n_components_ == (
        GTDA(dim_rule="abs_mass", dim_fraction=0.95).fit(X, y).n_components_
    )


@pytest.mark.parametrize("order", ["algebraic", "magnitude"])
def test_negative_spectra_give_one_warning_that_says_how_many_are_kept(order):
    X, y = some((7, 6), n_classes=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gtda = GTDA(within_weight="max_eig", dim_rule="eigenvalue_mass", order=order).fit(X, y)
    messages = [str(one.message) for one in caught if "no eigenvalue" in str(one.message)]
    assert len(messages) == 1
    assert f"keeps {gtda.n_components_} components of (7, 6)" in messages[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_rule_of_the_work_keeps_nearly_all_of_a_spectrum_that_is_not_positive():
    X, y = some((12, 10), n_classes=6)
    with pytest.warns(UserWarning, match="no eigenvalue is positive"):
        gtda = GTDA(
            within_weight="max_eig", dim_rule="eigenvalue_mass", dim_fraction=0.9, max_iter=5
        ).fit(X, y)
    assert gtda.n_components_[0] >= 8 and gtda.n_components_[1] >= 6
    other = GTDA(
        within_weight="max_eig",
        dim_rule="abs_mass",
        order="magnitude",
        dim_fraction=0.9,
        max_iter=5,
    ).fit(X, y)
    assert max(other.n_components_) < 8


# ---------------------------------------------------------------------- invariances


SETTLED = {"within_weight": 0.3, "tol": 1e-10, "max_iter": 1000}


def test_modes_turned_turn_factors():
    X, y = some((5, 4, 3))
    turns = [ortho_group.rvs(d, random_state=k) for k, d in enumerate((5, 4, 3))]
    turned = np.array([multi_mode_dot(T, turns) for T in X])
    plain, other = (GTDA(2, **SETTLED).fit(data, y) for data in (X, turned))
    wanted = [Q @ U for Q, U in zip(turns, plain.factors_, strict=True)]
    assert_same_subspaces(other.factors_, wanted)


def test_modes_permuted_permute_factors():
    # All runs use the same start and reach the same optimum.
    X, y = some((5, 4, 3), seed=1)
    plain = GTDA((3, 2, 1), **SETTLED).fit(X, y)
    other = GTDA((1, 3, 2), **SETTLED).fit(X.transpose(0, 3, 1, 2), y)
    assert_same_subspaces(other.factors_, [plain.factors_[k] for k in (2, 0, 1)])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_constants_scales_orders_and_names_change_nothing(dtype):
    X, y = some((5, 4))
    X = X.astype(dtype)
    plain = GTDA(2).fit(X, y)
    tol = 1e-6 if dtype == np.float64 else 1e-4
    for other in (X + dtype(7), X * dtype(1e-15), X * dtype(1e15)):
        assert_same_subspaces(GTDA(2).fit(other, y).factors_, plain.factors_, tol)
    order = np.random.RandomState(0).permutation(len(y))
    names = np.array(["d", "b", "a", "c"])[y]
    assert_same_subspaces(GTDA(2).fit(X[order], names[order]).factors_, plain.factors_, tol)


# ---------------------------------------------------------------------- difficult data


@pytest.mark.parametrize("within_weight", [0.1, 1.0, "max_eig", "trace_ratio"])
def test_blank_borders_are_never_chosen(within_weight):
    # A direction without variance has no scatter within classes.
    X, y = some((6, 5))
    settings = {"within_weight": within_weight, "max_iter": 0}
    plain = GTDA((3, 2), **settings).fit(X, y)
    padded = GTDA((3, 2), **settings).fit(np.pad(X, ((0, 0), (2, 1), (1, 1))), y)
    U, V = padded.factors_
    assert np.abs(U[[0, 1, -1]]).max() < 1e-8 and np.abs(V[[0, -1]]).max() < 1e-8
    assert_same_subspaces([U[2:-1], V[1:-1]], plain.factors_, 1e-5)
    # Directions without variance come last if more are requested than vary.
    U = GTDA((8, 2), **settings).fit(np.pad(X, ((0, 0), (2, 1), (1, 1))), y).factors_[0]
    assert np.abs(U[[0, 1, -1], :6]).max() < 1e-8
    np.testing.assert_allclose(U.T @ U, np.eye(8), atol=1e-12)


def test_classes_that_are_points():
    X, y = some((5, 4))
    X = X[:4][y]
    gtda = GTDA(2).fit(X, y)
    assert np.isfinite(gtda.transform(X)).all()
    with pytest.raises(ValueError, match="all samples of each class are equal.*Pass a number"):
        GTDA(2, within_weight="max_eig").fit(X, y)


def test_a_mode_of_length_one_and_bytes():
    X, y = some((5, 4))
    X = np.rint(20 * X).clip(0, 255)
    plain = GTDA((2, 2)).fit(X, y)
    assert_same_subspaces(GTDA((2, 2, 1)).fit(X[..., None], y).factors_[:2], plain.factors_)
    assert_same_subspaces(GTDA((2, 2)).fit(X.astype(np.uint8), y).factors_, plain.factors_)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"n_components": (3, 9)}, r"\(3, 9\) does not fit.*at most \(5, 4\)"),
        ({"dim_fraction": 0.9}, "dim_fraction=0.9 has no effect because dim_rule is None"),
        (
            {"n_components": 2, "dim_rule": "abs_mass"},
            "n_components=2 and dim_rule='abs_mass' exclude",
        ),
        ({"within_weight": "auto"}, "within_weight must be"),
        ({"max_iter": -1}, "max_iter must be"),
    ],
)
def test_settings_that_make_no_sense_are_said(settings, words):
    with pytest.raises(ValueError, match=words):
        GTDA(**settings).fit(*some((5, 4)))


def test_samples_that_are_all_equal_are_refused():
    with pytest.raises(ValueError, match="all samples in X are equal"):
        GTDA().fit(np.ones((6, 3, 2)), [0, 0, 0, 1, 1, 1])


def test_a_limit_of_sweeps_is_said():
    X, y = some((6, 5))
    with pytest.warns(ConvergenceWarning, match="GTDA did not converge in 2 iterations"):
        gtda = GTDA(3, init="random", max_iter=2).fit(X, y)
    assert not gtda.converged_


def test_settings_for_compare_are_the_weights_worth_trying():
    tried = [GTDA(**settings).within_weight for settings in GTDA.settings_for(100, 1024)]
    assert tried == [0.1, 0.3, 1.0]


def test_float32_keeps_channels_in_small_units():
    rng = np.random.default_rng(0)
    y = np.arange(100) % 2
    X = rng.normal(size=(100, 3, 6)) * np.array([2e4, 10.0, 1.0])[:, None]
    X[:, 2] += 3 * y[:, None]
    X = X.astype(np.float32)
    found = GTDA((1, 6)).fit(X, y).factors_[0]
    np.testing.assert_allclose(
        found, GTDA((1, 6)).fit(X.astype(np.float64), y).factors_[0], atol=1e-5
    )
    assert abs(found[2, 0]) > 0.99
