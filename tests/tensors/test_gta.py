"""GTA compared with SVD, scikit-learn's PCA, TensorLy and its own identities."""

import numpy as np
import pytest
from scipy.stats import ortho_group
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from nearfar import GTA, GTDA
from nearfar.solvers.mode_subspaces import alternate_modes, projector_change
from nearfar.summaries.mode_scatters import StackScatters
from nearfar.tensors import multi_mode_dot


def some(*shape, seed=0):
    """Tensors with a decaying spectrum in every mode, about a mean."""
    random = np.random.RandomState(seed)
    X = random.normal(size=shape) + 3
    for mode, d in enumerate(shape[1:], start=1):
        A = random.normal(size=(d, d)) * 0.7 ** np.arange(d)
        X = np.moveaxis(np.tensordot(A, X, (1, mode)), 0, mode)
    return X


def squares(A):
    return float((np.asarray(A) ** 2).sum())


def assert_same_subspaces(factors, others, tol=1e-6):
    for U, V in zip(factors, others, strict=True):
        assert projector_change(U, V) < tol


RANDOM = [(30, 6), (20, 5, 4), (15, 3, 4, 5), (12, 2, 3, 2, 3), (8, 7, 2)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", RANDOM)
def test_energy_never_falls_and_the_rest_is_the_error(shape, seed):
    X = some(*shape, seed=seed)
    kept = tuple(max(1, d // 2) for d in shape[1:])
    for init in ("hosvd", "random"):
        gta = GTA(kept, init=init, max_iter=200, random_state=seed).fit(X)
        energy = np.array(gta.history_["objective"])
        assert len(energy) == gta.n_iter_ * (len(shape) - 1)
        assert (np.diff(energy) >= -1e-10 * energy[-1]).all()
        mapped = gta.transform(X)
        assert squares(mapped) == pytest.approx(energy[-1], rel=1e-9)
        assert gta.total_energy_ == pytest.approx(squares(X - X.mean(axis=0)))
        error = squares(X - gta.inverse_transform(mapped))
        assert error == pytest.approx(gta.total_energy_ - energy[-1], rel=1e-8)
        for U in gta.factors_:
            np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=1e-12)
            assert (U[np.abs(U).argmax(axis=0), np.arange(U.shape[1])] > 0).all()


def test_one_mode_is_pca():
    X = some(40, 6)
    gta, pca = GTA(3).fit(X), PCA(3).fit(X)
    assert_same_subspaces(gta.factors_, [pca.components_.T])
    np.testing.assert_allclose(np.abs(gta.components_), np.abs(pca.components_), atol=1e-10)
    np.testing.assert_allclose(gta.mean_, pca.mean_)
    shares = np.cumsum(PCA().fit(X).explained_variance_ratio_)
    assert GTA(energy=0.9).fit(X).n_components_ == (np.searchsorted(shares, 0.9) + 1,)


def test_one_matrix_is_its_singular_value_decomposition():
    X = some(1, 7, 5)
    U, s, Vt = np.linalg.svd(X[0])
    gta = GTA(2, center=False).fit(X)
    assert_same_subspaces(gta.factors_, [U[:, :2], Vt[:2].T])
    assert gta.history_["objective"][-1] == pytest.approx(squares(s[:2]))
    rebuilt = gta.inverse_transform(gta.transform(X))[0]
    np.testing.assert_allclose(rebuilt, (U[:, :2] * s[:2]) @ Vt[:2], atol=1e-10)
    assert not hasattr(gta, "mean_")


def test_matrices_with_one_side_fixed_are_two_dimensional_pca():
    # With the other mode complete: the leading eigenvectors of the mean of X'X.
    X = some(20, 5, 4)
    Z = X - X.mean(axis=0)
    _, V = np.linalg.eigh(np.einsum("nij,nik->jk", Z, Z))
    gta = GTA((5, 2)).fit(X)
    assert_same_subspaces(gta.factors_[1:], [V[:, :-3:-1]])


def test_all_dimensions_keep_everything():
    X = some(10, 4, 3, 2)
    gta = GTA((4, 3, 2)).fit(X)
    np.testing.assert_allclose(gta.inverse_transform(gta.transform(X)), X, atol=1e-10)
    assert GTA(energy=1.0).fit(X).n_components_ == (4, 3, 2)


def test_tensorly_keeps_as_much():
    pytest.importorskip("tensorly")
    from tensorly.decomposition import partial_tucker

    X = some(25, 6, 5, 4, seed=3)
    theirs = partial_tucker(X, rank=[3, 2, 2], modes=[1, 2, 3], n_iter_max=500, tol=1e-14)
    (core, factors), *_ = theirs
    gta = GTA((3, 2, 2), center=False, max_iter=500, tol=1e-10).fit(X)
    assert gta.history_["objective"][-1] == pytest.approx(squares(core), rel=1e-9)
    assert_same_subspaces(gta.factors_, factors, 1e-4)


def test_no_sweep_is_the_closed_form():
    X = some(20, 5, 4)
    Z = X - X.mean(axis=0)
    gta = GTA((2, 3), max_iter=0).fit(X)
    for mode, formula in enumerate(["nij,nkj->ik", "nij,nik->jk"]):
        _, V = np.linalg.eigh(np.einsum(formula, Z, Z))
        assert_same_subspaces([gta.factors_[mode]], [V[:, ::-1][:, : (2, 3)[mode]]])
    assert gta.n_iter_ == 0 and gta.converged_ and gta.history_["objective"] == []


def test_share_of_energy_chooses_dimensions():
    X = some(30, 8, 6)
    Z = X - X.mean(axis=0)
    gta = GTA(energy=0.9).fit(X)
    for mode, axes in enumerate([(0, 2), (0, 1)]):
        spectrum = np.linalg.eigvalsh(np.tensordot(Z, Z, (axes, axes)))[::-1]
        shares = np.cumsum(spectrum) / spectrum.sum()
        q = gta.n_components_[mode]
        assert shares[q - 1] >= 0.9 > (shares[q - 2] if q > 1 else 0)


# ---------------------------------------------------------------------- invariances


def test_modes_turned_turn_factors():
    X = some(20, 5, 4, 3)
    turns = [ortho_group.rvs(d, random_state=k) for k, d in enumerate((5, 4, 3))]
    turned = np.array([multi_mode_dot(T, turns) for T in X])
    plain, other = (GTA((2, 2, 2), tol=1e-10, max_iter=500).fit(data) for data in (X, turned))
    wanted = [Q @ U for Q, U in zip(turns, plain.factors_, strict=True)]
    assert_same_subspaces(other.factors_, wanted)


def test_modes_permuted_permute_factors():
    X = some(20, 5, 4, 3)
    settings = {"tol": 1e-10, "max_iter": 500}
    plain = GTA((3, 2, 1), **settings).fit(X)
    other = GTA((1, 3, 2), **settings).fit(X.transpose(0, 3, 1, 2))
    assert_same_subspaces(other.factors_, [plain.factors_[k] for k in (2, 0, 1)])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_constants_and_scales_change_nothing(dtype):
    X = some(20, 5, 4).astype(dtype)
    plain = GTA(2).fit(X)
    tol = 1e-6 if dtype == np.float64 else 1e-4
    for other in (X + some(1, 5, 4, seed=9).astype(dtype), X * dtype(1e-15), X * dtype(1e15)):
        assert_same_subspaces(GTA(2).fit(other).factors_, plain.factors_, tol)
    # Squares of these values overflow in float32.
    tiny = (X * dtype(1e-25)).astype(dtype)
    assert_same_subspaces(GTA(2).fit(tiny).factors_, plain.factors_, tol)


# ---------------------------------------------------------------------- transform


def test_the_map_is_linear_in_flat_rows():
    X = some(20, 5, 4)
    flat = X.reshape(20, -1)
    gta = GTA((2, 3)).fit(X)
    assert gta.components_.shape == (6, 20) and gta.mean_.shape == (20,)
    np.testing.assert_allclose(gta.transform(X), (flat - gta.mean_) @ gta.components_.T)
    tensors = GTA((2, 3), flatten=False).fit(X).transform(X)
    assert tensors.shape == (20, 2, 3)
    np.testing.assert_array_equal(tensors.reshape(20, -1), gta.transform(X))
    np.testing.assert_allclose(
        gta.inverse_transform(tensors), gta.inverse_transform(gta.transform(X))
    )
    assert gta.get_feature_names_out().tolist() == [f"gta{k}" for k in range(6)]
    raw = GTA((2, 3), center=False).fit(X)
    np.testing.assert_allclose(raw.transform(X), flat @ raw.components_.T)


def test_distances_take_tensors_and_rows():
    X = some(20, 5, 4)
    gta = GTA(2).fit(X)
    mapped = gta.transform(X)
    wanted = np.linalg.norm(mapped[:10] - mapped[10:], axis=1)
    pairs = np.stack([X[:10], X[10:]], axis=1)
    np.testing.assert_allclose(gta.pair_distance(pairs), wanted)
    np.testing.assert_allclose(gta.pair_score(pairs.reshape(10, 2, -1)), -wanted)
    metric = gta.get_metric()
    assert metric(X[0], X[10]) == pytest.approx(wanted[0])
    assert metric(X[0].ravel(), X[10], squared=True) == pytest.approx(wanted[0] ** 2)
    M = gta.get_mahalanobis_matrix()
    difference = (X[0] - X[10]).ravel()
    assert difference @ M @ difference == pytest.approx(wanted[0] ** 2)
    with pytest.raises(ValueError, match=r"\(n_pairs, 2, 20\) or \(n_pairs, 2, 5, 4\)"):
        gta.pair_distance(pairs.transpose(0, 1, 3, 2))
    with pytest.raises(ValueError, match="u should be one point of 20 features"):
        metric(X[0].T, X[1])


def test_components_are_not_kept():
    gta = GTA(2).fit(some(20, 5, 4))
    assert "components_" not in vars(gta)
    with pytest.raises(AttributeError, match="components_"):
        _ = GTA().components_
    with pytest.raises(NotFittedError):
        GTA().inverse_transform([[1.0]])


def test_an_array_is_read_in_blocks_and_never_copied():
    class Noted(StackScatters):
        largest = 0

        def _iterate_deviations(self, centers):
            for rows, block in super()._iterate_deviations(centers):
                Noted.largest = max(Noted.largest, block.nbytes)
                yield rows, block

    X = some(4000, 16, 12).astype(np.float32)
    scatters = Noted(X)
    np.testing.assert_allclose(scatters.mean, X.mean(axis=0, dtype=np.float64), rtol=1e-6)
    Z = X - X.mean(axis=0, dtype=np.float64)
    U = np.linalg.qr(some(16, 3))[0]
    found = scatters.within_scatter(1, [U, None])
    wanted = np.einsum("nlj,nlk->jk", U.T @ Z, U.T @ Z)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * wanted.max())
    assert 0 < Noted.largest <= 2**20 < X.nbytes


# ---------------------------------------------------------------------- invalid input


def test_a_limit_of_sweeps_is_said():
    with pytest.warns(ConvergenceWarning, match="GTA did not converge in 1 iterations"):
        gta = GTA(2, max_iter=1, init="random").fit(some(20, 5, 4))
    assert not gta.converged_ and gta.n_iter_ == 1


def test_ctrl_c_leaves_the_best_so_far():
    gta = GTA(2, init="random")

    def stop(iteration, _):
        if iteration == 2:
            raise KeyboardInterrupt

    gta.callback = stop
    X = some(20, 5, 4)
    with pytest.raises(KeyboardInterrupt):
        gta.fit(X)
    assert gta.transform(X).shape == (20, 4) and gta.n_iter_ == 2 and not gta.converged_


@pytest.mark.parametrize(
    ("settings", "X", "words"),
    [
        ({"n_components": (3, 5)}, some(9, 5, 4), r"\(3, 5\) does not fit.*at most \(5, 4\)"),
        ({"n_components": (3,)}, some(9, 5, 4), r"n_components=\(3,\) does not fit"),
        ({"n_components": 6}, some(9, 5, 4), "n_components=6 does not fit.*at most 5"),
        ({"n_components": (0, 1)}, some(9, 5, 4), "n_components must be"),
        ({"n_components": True}, some(9, 5, 4), "n_components must be"),
        ({}, np.ones((5, 3, 2)), "all samples in X are equal"),
        ({"center": False}, np.zeros((5, 3, 2)), "all entries of X are zero"),
        ({}, some(1, 3, 2), "1 sample"),
        ({}, [np.ones((3, 2)), np.ones((2, 3))], r"X\[0\] has \(3, 2\), X\[1\] has \(2, 3\)"),
        ({}, [[[1, 2], [3]], [[1, 2], [3, 4]]], r"X\[0\] is not a tensor"),
        ({"tensor_shape": (3, 3)}, some(9, 10), "rows of X have 10 values, but tensors of shape"),
    ],
)
def test_what_cannot_be_learned_from_is_said(settings, X, words):
    with pytest.raises(ValueError, match=words):
        GTA(**settings).fit(X)


def test_an_integer_is_the_most_of_any_mode():
    X = some(12, 6, 5, 3)
    assert GTA(4).fit(X).n_components_ == (4, 4, 3)
    with pytest.raises(ValueError, match=r"maps to \(n_samples, 48\)"):
        GTA(4).fit(X).inverse_transform(X)


def test_blank_borders_a_mode_of_length_one_and_bytes():
    X = np.rint(40 * some(30, 6, 5) + 100).clip(0, 255)
    plain = GTA((3, 2)).fit(X)
    padded = GTA((3, 2)).fit(np.pad(X, ((0, 0), (2, 1), (1, 1))))
    assert_same_subspaces([padded.factors_[0][2:-1], padded.factors_[1][1:-1]], plain.factors_)
    longer = GTA((3, 2, 1)).fit(X[..., None])
    assert_same_subspaces(longer.factors_[:2], plain.factors_)
    assert longer.factors_[2].tolist() == [[1.0]]
    assert_same_subspaces(GTA((3, 2)).fit(X.astype(np.uint8)).factors_, plain.factors_)


@pytest.mark.parametrize("kind", [GTA, GTDA])
@pytest.mark.filterwarnings("ignore")
def test_of_rows_scikit_learn_asks_all_it_asks_of_vector_learners(kind, monkeypatch):
    its_own = kind.__sklearn_tags__

    def of_rows(self):
        tags = its_own(self)
        tags.input_tags.two_d_array = True
        return tags

    monkeypatch.setattr(kind, "__sklearn_tags__", of_rows)
    reason = "a single fit keeps no statistics for partial_fit, and the error message says this"
    check_estimator(
        kind(), expected_failed_checks={"check_fit_score_takes_y": reason}, on_skip=None
    )


# ---------------------------------------------------------------------- the loop


def test_a_changing_number_of_components_is_no_rest():
    M = np.diag([3.0, 2.0, 1.0])
    numbers = iter([1, 2, 2, 2])
    found = alternate_modes(
        lambda mode, factors: M, [np.eye(3)[:, :1]], lambda mode, values: next(numbers),
        max_iter=4, tol=1e-6,
    )  # fmt: skip
    assert found.change[:2] == [0, np.inf] or found.n_iter == 1
    numbers = iter([2, 2, 2])
    found = alternate_modes(
        lambda mode, factors: M, [np.eye(3)[:, :1]], lambda mode, values: next(numbers),
        max_iter=4, tol=1e-6,
    )  # fmt: skip
    assert found.change == [np.inf, 0.0] and found.converged and found.n_iter == 2
