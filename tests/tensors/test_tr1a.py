"""TR1A compared with deflation in loops, the singular value decomposition, and PCA."""

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning

from nearfar import TR1A
from nearfar.tensors import best_rank_one


def tensors(n=30, shape=(6, 5), rank=3, noise=0.3, seed=0):
    """Return sums of a few rank-one tensors with noise."""
    rng = np.random.default_rng(seed)
    atoms = [outer(*(rng.normal(size=d) for d in shape)) for _ in range(rank)]
    signal = rng.normal(size=(n, rank)) * np.arange(rank, 0, -1)
    return np.tensordot(signal, atoms, 1) + noise * rng.normal(size=(n, *shape))


def outer(*vectors):
    product = np.ones(())
    for vector in vectors:
        product = np.multiply.outer(product, vector)
    return product


def atoms_of(tr1a):
    return [outer(*(U[:, r] for U in tr1a.factors_)) for r in range(tr1a.factors_[0].shape[1])]


def deflated(X, atoms):
    """Return the coefficients of table 3.3, computed in loops, and the residuals."""
    numbers, left = np.zeros((len(X), len(atoms))), np.array(X, dtype=float)
    for i in range(len(X)):
        for r, atom in enumerate(atoms):
            numbers[i, r] = (left[i] * atom).sum()
            left[i] -= numbers[i, r] * atom
    return numbers, left


@pytest.mark.parametrize("shape", [(12,), (6, 5), (4, 3, 5), (3, 2, 2, 3)])
@pytest.mark.parametrize("center", [False, True])
def test_the_map_takes_atoms_away_in_turn(shape, center):
    X, new = tensors(shape=shape) + 1, tensors(n=7, shape=shape, seed=3) + 1
    tr1a = TR1A(5, center=center).fit(X)
    assert [U.shape for U in tr1a.factors_] == [(d, 5) for d in shape]
    assert tr1a.n_components_ == (5,)
    assert hasattr(tr1a, "mean_") == center
    mean = X.mean(axis=0) if center else 0
    for tensors_ in (X, new):
        numbers, left = deflated(tensors_ - mean, atoms_of(tr1a))
        Z = tr1a.transform(tensors_)
        np.testing.assert_allclose(Z, numbers, atol=1e-12)
        np.testing.assert_allclose(tr1a.inverse_transform(Z), tensors_ - left, atol=1e-12)
        # ||X||^2 = sum of squared coefficients + ||residual||^2, for each tensor.
        squares = (Z**2).sum(axis=1) + (left.reshape(len(left), -1) ** 2).sum(axis=1)
        wanted = ((tensors_ - mean).reshape(len(Z), -1) ** 2).sum(axis=1)
        np.testing.assert_allclose(squares, wanted, rtol=1e-12)
        rows = tensors_.reshape(len(Z), -1) - (tr1a.mean_ if center else 0)
        np.testing.assert_allclose(rows @ tr1a.components_.T, Z, atol=1e-12)
    Z = tr1a.transform(X)
    np.testing.assert_allclose(
        tr1a.energies_, (Z**2).sum(axis=0) / ((X - mean) ** 2).sum(), rtol=1e-9
    )


def test_plain_projection_is_another_map():
    """Atoms are not orthogonal, so inner products are not the coefficients."""
    X = tensors()
    tr1a = TR1A(5).fit(X)
    plain = np.column_stack([np.einsum("nij,ij->n", X, atom) for atom in atoms_of(tr1a)])
    Z = tr1a.transform(X)
    np.testing.assert_allclose(plain[:, 0], Z[:, 0], atol=1e-12)
    assert np.abs(plain - Z).max() > 0.1 * np.abs(Z).max()
    # With inner products, the sum of squares and the residual do not add up.
    _, left = deflated(X, atoms_of(tr1a))
    rest = (left.reshape(len(X), -1) ** 2).sum(axis=1)
    norms = (X.reshape(len(X), -1) ** 2).sum(axis=1)
    assert np.abs((plain**2).sum(axis=1) + rest - norms).max() > 0.01 * norms.max()


def test_vectors_give_uncentred_principal_components():
    X = tensors(shape=(8,), rank=4) + 2
    tr1a = TR1A(4, max_iter=1).fit(X)
    svd = TruncatedSVD(4, algorithm="arpack").fit(X)
    np.testing.assert_allclose(np.abs(tr1a.components_ @ svd.components_.T), np.eye(4), atol=1e-8)
    np.testing.assert_allclose(tr1a.energies_ * (X**2).sum(), svd.singular_values_**2, rtol=1e-10)
    assert tr1a.n_iter_ == 4


@pytest.mark.parametrize("init", ["random", "hosvd"])
def test_one_matrix_gives_its_singular_values(init):
    A = np.random.default_rng(0).normal(size=(6, 4))
    tr1a = TR1A(4, init=init, tol=0, max_iter=2000).fit(A[None])
    U, singular, V = np.linalg.svd(A, full_matrices=False)
    np.testing.assert_allclose(np.abs(tr1a.transform(A[None])[0]), singular, rtol=1e-6)
    np.testing.assert_allclose(np.abs(tr1a.factors_[0].T @ U), np.eye(4), atol=1e-5)
    np.testing.assert_allclose(np.abs(tr1a.factors_[1].T @ V.T), np.eye(4), atol=1e-5)
    np.testing.assert_allclose(tr1a.inverse_transform(tr1a.transform(A[None]))[0], A, atol=1e-6)


def test_it_ends_when_nothing_is_left():
    A = outer([1.0, 2, 2], [3.0, 4]) + outer([2.0, 1, -2], [-4.0, 3])
    tr1a = TR1A(10).fit(np.array([A, 2 * A]))
    assert tr1a.n_components_ == (2,) and tr1a.transform(A[None]).shape == (1, 2)
    assert len(tr1a.get_feature_names_out()) == 2
    np.testing.assert_allclose(tr1a.energies_.sum(), 1)
    assert TR1A(10).fit(tensors(shape=(6,))).n_components_ == (6,)


def test_an_atom_is_the_best_rank_one_tensor():
    T = np.random.default_rng(1).normal(size=(4, 5, 3)) + outer(np.ones(4), np.ones(5), [1, 2, 3.0])
    weight, vectors = best_rank_one(T, n_init=5, random_state=0)
    tr1a = TR1A(1, n_init=5, tol=1e-12).fit(T[None])
    np.testing.assert_allclose(np.abs(tr1a.transform(T[None])), [[weight]], rtol=1e-8)
    for U, u in zip(tr1a.factors_, vectors, strict=True):
        np.testing.assert_allclose(np.abs(U[:, 0] @ u), 1, rtol=1e-8)


@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 5), (3, 2, 2, 3)])
def test_no_step_lowers_the_sum_of_squares(shape):
    for seed in range(5):
        X = tensors(shape=shape, seed=seed)
        tr1a = TR1A(4, random_state=seed, n_init=2).fit(X)
        objective = np.array(tr1a.history_["objective"])
        assert len(objective) == len(shape) * tr1a.n_iter_
        assert (np.diff(objective) >= -1e-10 * objective[-1]).all()
        np.testing.assert_allclose(objective[-1], tr1a.energies_.sum() * (X**2).sum())
        assert sum(tr1a.history_["sweeps"]) == tr1a.n_iter_


def test_more_starts_do_not_do_worse():
    X = tensors(shape=(5, 4, 6), rank=8, noise=1)
    few, many = TR1A(1, random_state=3).fit(X), TR1A(1, n_init=10, random_state=3).fit(X)
    assert many.energies_[0] >= few.energies_[0] * (1 - 1e-5)


@pytest.mark.parametrize("center", [False, True])
def test_the_start_of_leading_vectors_is_that_of_what_is_left(center):
    """Compare each atom with a decomposition of the residual."""
    X = tensors(shape=(6, 5), rank=5)
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 iterations.*3 of 3 atoms"):
        tr1a = TR1A(3, init="hosvd", max_iter=1, center=center).fit(X)
    left = X - X.mean(axis=0) if center else X.copy()
    for r, atom in enumerate(atoms_of(tr1a)):
        v = np.linalg.svd(np.concatenate(left))[2][0]
        u = np.linalg.svd((left @ v).T)[0][:, 0]
        v = np.linalg.svd((u @ left).T)[0][:, 0]
        np.testing.assert_allclose(np.abs(np.sum(atom * np.outer(u, v))), 1, rtol=1e-9)
        left = left - np.einsum("nij,ij->n", left, atom)[:, None, None] * atom
        assert tr1a.history_["sweeps"][r] == 1


def test_a_start_that_meets_no_tensor_is_not_the_end():
    """The leading vectors of the modes may belong to different tensors."""
    X = np.zeros((4, 2, 2))
    X[:2, 0, 1] = 1.0
    X[2:, 1, 0] = 1.0
    tr1a = TR1A(2, init="hosvd").fit(X)
    np.testing.assert_allclose(tr1a.energies_, [0.5, 0.5])


def test_float32_and_offsets():
    X = tensors(n=50, shape=(8, 7), rank=4)
    for center in (False, True):
        exact = TR1A(4, center=center, tol=1e-10).fit(X + 100)
        rounded = TR1A(4, center=center, tol=1e-10).fit((X + 100).astype(np.float32))
        assert rounded.factors_[0].dtype == np.float32
        a, b = (
            np.tensordot(m.transform(X + 100), m.transform(X + 100), (1, 1))
            for m in (exact, rounded)
        )
        np.testing.assert_allclose(a, b, atol=1e-2 * np.abs(a).max())


def test_bad_input_is_named():
    X = tensors()
    with pytest.raises(ValueError, match="TR1A: all entries of X are zero"):
        TR1A().fit(np.zeros((5, 3, 3)))
    with pytest.raises(ValueError, match="TR1A: all samples in X are equal"):
        TR1A(center=True).fit(np.ones((5, 3, 3)) / 3)
    with pytest.raises(ValueError, match=r"X: the largest absolute value is .*overflow"):
        TR1A().fit(X * 1e200)
    with pytest.raises(ValueError, match="n_components must be an integer of at least 1"):
        TR1A((3, 3)).fit(X)
    with pytest.raises(ValueError, match="maps to"):
        TR1A(3).fit(X).inverse_transform(np.zeros((2, 4)))


def test_float32_finds_atoms_in_small_units():
    X = np.random.default_rng(0).normal(size=(60, 4)) * [1e3, 1e3, 1e-2, 1e-3]
    X = X.astype(np.float32)
    found, expected = TR1A(4).fit(X), TR1A(4).fit(X.astype(np.float64))
    assert found.n_components_ == (4,)
    assert (expected.energies_[:-1] >= expected.energies_[1:]).all()
    np.testing.assert_allclose(found.energies_, expected.energies_, rtol=1e-5)


def test_vectors_are_not_changed():
    X = np.random.default_rng(0).normal(size=(30, 4))
    before = X.copy()
    TR1A(3, center=True).fit(X)
    np.testing.assert_array_equal(X, before)
