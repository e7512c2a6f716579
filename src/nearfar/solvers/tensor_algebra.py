"""Tensor algebra: unfoldings, mode products, decompositions of one tensor, and stacks of samples.

A tensor has its modes in the order of its axes, counted from 0, and ``vec`` is row-major: the last
mode runs fastest. Names and arguments of what TensorLy has too are TensorLy's. A stack is an array
(n, d1, ..., dM) of n tensors; its modes are counted without the axis of samples.

Nothing outside this file indexes modes by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.solvers.eigen import descending_eigh
from nearfar.solvers.mode_subspaces import alternate_modes, random_factors, signed_columns

# Mode products by a Kronecker product with the identity up to this many trailing entries: so many
# times the operations, but in one product of matrices instead of very many small ones.
_FEW_TRAILING = 8
# Of a stack, for a graph of its samples, at once.
_GRAPH_BYTES = 2**25
# Unfolded at once, where that is a copy.
_SCATTER_BYTES = 2**22


# ---------------------------------------------------------------------- one tensor


def unfold(tensor: ArrayLike, mode: int) -> Floats:
    """The unfolding in a mode: rows are its indices, columns all others in row-major order.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        A tensor.
    mode : int
        From 0.

    Returns
    -------
    ndarray of shape (d_mode, product of the others)

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.tensors import unfold
    >>> unfold(np.arange(1, 13).reshape(3, 2, 2), 1)
    array([[ 1,  2,  5,  6,  9, 10],
           [ 3,  4,  7,  8, 11, 12]])
    """
    T = np.asarray(tensor)
    mode = _checked_mode(T.ndim, mode)
    return np.moveaxis(T, mode, 0).reshape(T.shape[mode], prod(T.shape) // max(T.shape[mode], 1))


def fold(unfolded: ArrayLike, mode: int, shape: Sequence[int]) -> Floats:
    """The tensor of such a shape with this unfolding: what :func:`unfold` undoes.

    Parameters
    ----------
    unfolded : array-like of shape (d_mode, product of the others)
        An unfolding.
    mode : int
        Its mode.
    shape : sequence of int
        Shape of the tensor.

    Returns
    -------
    ndarray of that shape
    """
    U, sizes = np.asarray(unfolded), list(shape)
    mode = _checked_mode(len(sizes), mode)
    moved = [sizes.pop(mode), *sizes]
    if U.shape != (moved[0], prod(moved[1:])):
        raise ValueError(
            f"unfolded has shape {U.shape}; mode {mode} of a tensor of shape {tuple(shape)} "
            f"unfolds to {(moved[0], prod(moved[1:]))}."
        )
    return np.moveaxis(U.reshape(moved), 0, mode)


def mode_dot(
    tensor: ArrayLike, matrix_or_vector: ArrayLike, mode: int, transpose: bool = False
) -> Floats:
    r"""The product in a mode, :math:`X \times_k A`; a vector takes the mode away.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        A tensor.
    matrix_or_vector : array-like of shape (q, d_mode) or (d_mode,)
        With ``transpose`` the matrix has shape (d_mode, q).
    mode : int
        From 0.
    transpose : bool, default=False
        Multiply by the transposed matrix (the conjugate, of complex numbers).

    Returns
    -------
    ndarray
        The tensor, with q in place of d_mode, or without this mode.
    """
    T, A = np.asarray(tensor), np.asarray(matrix_or_vector)
    mode = _checked_mode(T.ndim, mode)
    if A.ndim not in (1, 2):
        raise ValueError(f"matrix_or_vector must have one or two axes; it has shape {A.shape}.")
    if A.ndim == 2 and transpose:
        A = A.conj().T
    if A.shape[-1] != T.shape[mode]:
        raise ValueError(
            f"mode {mode} has length {T.shape[mode]}, but the "
            f"{'vector' if A.ndim == 1 else 'matrix'} is for {A.shape[-1]}."
        )
    if A.ndim == 1:
        return np.tensordot(T, A, (mode, 0))
    return np.moveaxis(np.tensordot(A, T, (1, mode)), 0, mode)


def multi_mode_dot(
    tensor: ArrayLike,
    matrices: Sequence[Any],
    modes: Sequence[int] | None = None,
    skip: int | None = None,
    transpose: bool = False,
) -> Floats:
    """Products in several modes, one after another; the order does not matter.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        A tensor.
    matrices : sequence of array-like
        Matrices or vectors, as for :func:`mode_dot`.
    modes : sequence of int, optional
        The mode of each; None for all modes in order.
    skip : int, optional
        The number of a matrix to leave out.
    transpose : bool, default=False
        Multiply by transposed matrices.

    Returns
    -------
    ndarray
    """
    T = np.asarray(tensor)
    wanted = range(len(matrices)) if modes is None else modes
    if len(wanted) != len(matrices):
        raise ValueError(f"there are {len(matrices)} matrices, but {len(wanted)} modes.")
    order = [_checked_mode(np.ndim(tensor), mode) for mode in wanted]
    if len(set(order)) < len(order):
        raise ValueError(f"modes must differ; got {list(wanted)}.")
    # From the last mode down: what a vector takes away does not shift those still to come.
    for k in sorted(range(len(order)), key=lambda k: -order[k]):
        if k != skip:
            T = mode_dot(T, matrices[k], order[k], transpose)
    return T


def rank_one(vectors: Sequence[ArrayLike]) -> Floats:
    r"""The outer product :math:`u_1 \otimes \cdots \otimes u_M`.

    Parameters
    ----------
    vectors : sequence of array-like of shape (d_k,)
        One for each mode.

    Returns
    -------
    ndarray of shape (d1, ..., dM)

    Examples
    --------
    >>> from nearfar.tensors import rank_one
    >>> rank_one([[1, 2], [3, 4, 5]])
    array([[ 3,  4,  5],
           [ 6,  8, 10]])
    """
    return np.asarray(reduce(np.multiply.outer, [np.asarray(u) for u in vectors]))


def rank_one_gram(A: Sequence[ArrayLike], B: Sequence[ArrayLike]) -> Floats:
    r"""Inner products of rank-one tensors, :math:`\prod_k a_{kr}^T b_{ks}`, none of them formed.

    Parameters
    ----------
    A, B : sequence of array-like of shape (d_k, R) and (d_k, S)
        Vectors of R and of S tensors in columns, one matrix for each mode. Vectors (d_k,) are one
        tensor.

    Returns
    -------
    ndarray of shape (R, S)
    """
    if len(A) != len(B):
        raise ValueError(f"A has {len(A)} modes, B has {len(B)}.")
    columns = [[np.asarray(U).reshape(len(np.asarray(U)), -1) for U in given] for given in (A, B)]
    products = [U.T @ V for U, V in zip(*columns, strict=True)]
    return np.asarray(reduce(np.multiply, products))


def n_rank(tensor: ArrayLike, mode: int) -> int:
    """The rank of the unfolding in a mode."""
    return int(np.linalg.matrix_rank(unfold(tensor, mode)))


# ---------------------------------------------------------------------- decompositions


def hosvd(
    tensor: ArrayLike, ranks: int | Sequence[int] | None = None
) -> tuple[Floats, list[Matrix]]:
    r"""The higher-order singular value decomposition, :math:`X = Y \times_1 U_1 \cdots`.

    :math:`U_k` are the left singular vectors of the unfolding in mode k: closed form, one
    decomposition for each mode. Slices of the core Y along any mode are orthogonal, and their norms
    are the singular values of the unfolding. Cut off at ``ranks`` the squared error lies between
    the largest and the sum, over the modes, of what is discarded of the squared singular values.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        A tensor.
    ranks : int or sequence of int, optional
        How many columns to keep in each mode; None keeps all, and the decomposition is exact.

    Returns
    -------
    core : ndarray of shape (q1, ..., qM)
        Of shape (d1, ..., dM) without ``ranks``.
    factors : list of ndarray of shape (d_k, q_k)
        Orthonormal columns, of each the largest entry positive.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 3.1,
       theorem 3.1 (where it is iterated; there is no need to).

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.tensors import hosvd, multi_mode_dot
    >>> X = np.arange(24.0).reshape(2, 3, 4)
    >>> core, factors = hosvd(X)
    >>> bool(np.allclose(multi_mode_dot(core, factors), X))
    True
    """
    T = _real_tensor(tensor)
    kept = _checked_ranks(T.shape, T.shape if ranks is None else ranks)
    factors = [signed_columns(_left_vectors(unfold(T, k))[:, :q]) for k, q in enumerate(kept)]
    return multi_mode_dot(T, factors, transpose=True), factors


def best_rank_one(
    tensor: ArrayLike,
    n_init: int = 1,
    max_iter: int = 200,
    tol: float = 1e-10,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[float, list[Vector]]:
    r"""The nearest tensor of rank one, :math:`\min \|X - \lambda u_1 \otimes \cdots \otimes u_M\|`.

    Its squared error is :math:`\|X\|^2 - \lambda^2`. Each step replaces one vector by the
    contraction of X with all others, which never lowers :math:`\lambda` (the higher-order power
    method). The optimum is local for three modes and more; the first start is the HOSVD, further
    ones are random, and the best is returned.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        A tensor.
    n_init : int, default=1
        Number of starts.
    max_iter : int, default=200
        Most sweeps over the modes, for each start.
    tol : float, default=1e-10
        Ends when of every vector and the one before :math:`1 - |u^T v|` is at most this.
    random_state : int, RandomState or None, default=None
        Of the random starts.

    Returns
    -------
    weight : float
        :math:`\lambda \ge 0`.
    vectors : list of ndarray of shape (d_k,)
        Of length one; the largest entry of all but the last is positive.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 3.3,
       table 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.tensors import best_rank_one, rank_one
    >>> weight, vectors = best_rank_one(5 * rank_one([[0.6, 0.8], [1.0, 0.0], [0.0, 1.0]]))
    >>> round(weight, 6), vectors[0].round(6)
    (5.0, array([0.6, 0.8]))
    """
    T = _real_tensor(tensor)
    random = check_random_state(random_state)
    best: tuple[float, list[Vector]] = (-1.0, [])
    for start in range(max(1, n_init)):
        if start == 0:
            vectors = [_left_vectors(unfold(T, k))[:, 0] for k in range(T.ndim)]
        else:
            vectors = [U[:, 0] for U in random_factors(T.shape, [1] * T.ndim, random)]
        found = _power_method(T, vectors, max_iter, tol)
        if found[0] > best[0]:
            best = found
    return best


def _power_method(
    T: Matrix, vectors: list[Vector], max_iter: int, tol: float
) -> tuple[float, list[Vector]]:
    weight, signs = 0.0, 1.0
    for _ in range(max_iter):
        turned = 0.0
        for mode in range(T.ndim):
            v = contract_except(T[None], vectors, mode)[0]
            weight = float(linalg.norm(v))
            if weight == 0.0:  # of a zero tensor any vectors are best; of others a start may be bad
                return weight, vectors
            turned = max(turned, 1 - abs(float(vectors[mode] @ v)) / weight)
            vectors[mode] = v / weight
        if turned <= tol:
            break
    for mode in range(T.ndim - 1):
        fixed = signed_columns(vectors[mode][:, None])[:, 0]
        signs *= float(np.sign(fixed @ vectors[mode]))
        vectors[mode] = fixed
    vectors[-1] = signs * vectors[-1]
    return weight, vectors


def best_rank(
    tensor: ArrayLike, ranks: int | Sequence[int], max_iter: int = 100, tol: float = 1e-10
) -> tuple[Floats, list[Matrix]]:
    r"""The nearest tensor of ranks (q1, ..., qM), :math:`\max \|X \times_1 U_1^T \cdots\|`.

    Orthonormal factors in turn, from the HOSVD: each is the best given the others (orthogonal
    iteration, HOOI). The optimum is local.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        A tensor.
    ranks : int or sequence of int
        Columns in each mode.
    max_iter : int, default=100
        Most sweeps over the modes.
    tol : float, default=1e-10
        Ends when the change of all projectors in a sweep is at most this.

    Returns
    -------
    core : ndarray of shape (q1, ..., qM)
        The tensor nearest to X is ``multi_mode_dot(core, factors)``.
    factors : list of ndarray of shape (d_k, q_k)
        Orthonormal columns, of each the largest entry positive.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 3.4,
       table 3.4.
    """
    T = _real_tensor(tensor)
    kept = _checked_ranks(T.shape, ranks)
    found = alternate_modes(
        lambda mode, U: mode_scatter(project_stack(T[None], U or [], skip=mode), mode),
        hosvd(T, kept)[1],
        lambda mode, values: kept[mode],
        max_iter=max_iter,
        tol=tol,
    )
    return multi_mode_dot(T, found.factors, transpose=True), found.factors


# ---------------------------------------------------------------------- stacks of samples


def contract_except(X: ArrayLike, vectors: Sequence[ArrayLike], mode: int) -> Floats:
    r"""Every tensor of a stack contracted with vectors in all modes but one.

    Two products of matrices, whatever the order; no copy of a stack in row-major order.

    Parameters
    ----------
    X : array-like of shape (n, d1, ..., dM)
        A stack of tensors.
    vectors : sequence of array-like of shape (d_k,)
        One for each mode; that of ``mode`` is not read.
    mode : int
        From 0, without the axis of samples.

    Returns
    -------
    ndarray of shape (n, d_mode)
        The score :math:`\langle X_i, u_1 \otimes \cdots \otimes u_M \rangle` is its product with
        the vector of this mode.
    """
    T = np.ascontiguousarray(X)
    n, shape = len(T), T.shape[1:]
    mode = _checked_mode(len(shape), mode)
    if len(vectors) != len(shape):
        raise ValueError(f"X has {len(shape)} modes, but there are {len(vectors)} vectors.")
    chains = [_kron_chain(vectors[:mode]), _kron_chain(vectors[mode + 1 :])]
    before, after = prod(shape[:mode]), prod(shape[mode + 1 :])
    if (len(chains[0]), len(chains[1])) != (before, after):
        lengths = [np.asarray(v).shape for v in vectors]
        raise ValueError(f"vectors of shapes {lengths} do not fit tensors of shape {shape}.")
    if after == 1:  # no product, which would be a copy
        chains[0] = chains[0] * chains[1][0]
    else:
        T = T.reshape(n * before * shape[mode], after) @ chains[1]
    T = T.reshape(n, before, shape[mode])
    return np.asarray(T[:, 0] * chains[0][0] if before == 1 else np.matmul(chains[0], T))


def _kron_chain(vectors: Sequence[ArrayLike]) -> Floats:
    chain: Any = np.ones(1)
    for vector in vectors:
        chain = np.multiply.outer(chain, vector).ravel()  # np.kron, in a fraction of the time
    return np.asarray(chain)


def project_stack(
    stack: Floats, factors: Sequence[Floats | None], skip: int | None = None
) -> Floats:
    """Every tensor of a stack times the transposed factors, in the cheapest order.

    Parameters
    ----------
    stack : ndarray of shape (n, d1, ..., dM)
        Tensors.
    factors : sequence of ndarray of shape (d_k, q_k)
        One for each mode; None leaves a mode as it is.
    skip : int, optional
        A mode to leave as it is.

    Returns
    -------
    ndarray of shape (n, q1, ..., qM)
        In the dtype of the stack. Without any product it is the stack itself.
    """
    used = {k: U for k, U in enumerate(factors) if U is not None and k != skip}
    # Exchanging two neighbours in the order shows that the least work puts 1/q - 1/d first that is
    # largest.
    for mode in sorted(used, key=lambda k: 1 / used[k].shape[0] - 1 / used[k].shape[1]):
        stack = _stack_dot(stack, used[mode], mode)
    return stack


def _stack_dot(stack: Floats, factor: Floats, mode: int) -> Floats:
    """Products with a transposed factor (d, q) in one mode."""
    n, shape = len(stack), list(stack.shape[1:])
    before, d, after = prod(shape[:mode]), shape[mode], prod(shape[mode + 1 :])
    q = factor.shape[1]
    U = factor.astype(stack.dtype, copy=False)
    if 1 < after <= _FEW_TRAILING:
        U = np.kron(U, np.eye(after, dtype=U.dtype))
        d, q, after = d * after, q * after, 1
    if after == 1:
        product = stack.reshape(n * before, d) @ U
    else:
        product = np.matmul(U.T, stack.reshape(n * before, d, after))
    shape[mode] = factor.shape[1]
    return product.reshape(n, *shape)


def expand_stack(stack: Floats, factors: Sequence[Floats]) -> Floats:
    """Every tensor (q1, ..., qM) of a stack times the factors: what projection leaves of it."""
    return project_stack(stack, [U.T for U in factors])


def mode_scatter(stack: Floats, mode: int, other: Floats | None = None) -> Matrix:
    r"""The sum over the samples of :math:`X_{i(k)} X_{i(k)}^T`, of shape (d_k, d_k).

    Parameters
    ----------
    stack : ndarray of shape (n, d1, ..., dM)
        Tensors.
    mode : int
        From 0, without the axis of samples.
    other : ndarray, optional
        A stack of the same shape for the second factor, :math:`\sum_i X_{i(k)} Z_{i(k)}^T`.

    Returns
    -------
    ndarray of float64
        The product is computed in the dtype of the stack.
    """
    if mode + 2 == stack.ndim or stack.nbytes <= 2 * _SCATTER_BYTES:
        rows = _mode_columns(stack, mode)
        others = rows if other is None else _mode_columns(other, mode)
        return np.asarray(rows @ others.T, dtype=np.float64)
    # Columns of other modes than the last are a copy: of some samples at a time.
    total = np.zeros((stack.shape[mode + 1], (stack if other is None else other).shape[mode + 1]))
    size = max(1, _SCATTER_BYTES * len(stack) // stack.nbytes)
    for i in range(0, len(stack), size):
        part = slice(i, i + size)
        total += mode_scatter(stack[part], mode, None if other is None else other[part])
    return total


def varying_basis(stack: Floats, mode: int, empty: float) -> Matrix:
    """Orthonormal columns (d_k, r) that span what is not zero in a mode, the largest part first.

    Directions whose part of the sum of squares is at most ``empty`` times the largest are left out.
    """
    if stack.size < stack.shape[mode + 1] ** 2:
        unfolded = unfold(stack, mode + 1).astype(np.float64)
        U, singular, _ = linalg.svd(unfolded, full_matrices=False)
        return np.asarray(U[:, singular**2 > empty * singular[0] ** 2])
    values, vectors = descending_eigh(mode_scatter(stack, mode))
    return vectors[:, values > empty * values[0]]


def moment_mode_scatter(
    moment: Floats,
    shape: Sequence[int],
    mode: int,
    factors: Sequence[Floats | None] | None = None,
) -> Matrix:
    r""":math:`\sum_i T_{i(k)} T_{i(k)}^T` of projected tensors from the moment of ``vec(X)`` alone.

    With :math:`T_i = X_i \times_{j \ne k} U_j^T`; the moment is projected on either side, by
    products of matrices, and the traces over all modes but k are left.

    Parameters
    ----------
    moment : ndarray of shape (p, p)
        The symmetric matrix :math:`\sum_i \mathrm{vec}(X_i) \mathrm{vec}(X_i)^T`.
    shape : sequence of int
        Shape of a tensor, of p entries.
    mode : int
        From 0.
    factors : sequence of ndarray of shape (d_k, q_k), optional
        One for each mode, that of ``mode`` is not read; None leaves a mode as it is.

    Returns
    -------
    ndarray of shape (d_mode, d_mode)
    """
    left = list(shape)
    for k, U in enumerate(factors or ()):
        if U is not None and k != mode:
            left[k] = U.shape[1]
    for _ in range(2 if factors else 0):
        # Rows become tensors, projected as a stack; turned about, columns do.
        stack = project_stack(moment.reshape(-1, *shape), factors or (), skip=mode)
        moment = np.ascontiguousarray(stack.reshape(len(stack), -1).T)
    before, d, after = prod(left[:mode]), left[mode], prod(left[mode + 1 :])
    both = moment.reshape(before, d, after, before, d, after)
    return np.einsum("iajibj->ab", both)


def graph_mode_scatter(stack: Floats, mode: int, laplacian: Any) -> Matrix:
    r""":math:`\sum_{ij} L_{ij} X_{i(k)} X_{j(k)}^T` of a matrix L over the samples.

    Computed in float64 of some entries of the other modes at a time: there is no copy of the stack.

    Parameters
    ----------
    stack : ndarray of shape (n, d1, ..., dM)
        Tensors.
    mode : int
        From 0, without the axis of samples.
    laplacian : ndarray, sparse array or linear operator of shape (n, n)
        L, symmetric; its rows sum to zero, so that a constant added to all tensors changes nothing.

    Returns
    -------
    ndarray of shape (d_k, d_k)
    """
    n, shape = len(stack), stack.shape[1:]
    before, d, after = prod(shape[:mode]), shape[mode], prod(shape[mode + 1 :])
    T = stack.reshape(n, before, d, after)
    at_once = max(1, _GRAPH_BYTES // (8 * n * d))
    columns = min(after, at_once)
    rows = max(1, at_once // columns)
    total = np.zeros((d, d))
    for i in range(0, before, rows):
        for j in range(0, after, columns):
            part = T[:, i : i + rows, :, j : j + columns].astype(np.float64)
            part -= part.mean(axis=0)
            other = (laplacian @ part.reshape(n, -1)).reshape(part.shape)
            total += mode_scatter(part, 1, other)
    return total


def _mode_columns(stack: Floats, mode: int) -> Floats:
    """Unfoldings (d_k, ...) of a stack side by side; of the last mode it is a view."""
    d = stack.shape[mode + 1]
    if mode + 2 == stack.ndim:
        return stack.reshape(-1, d).T
    return np.moveaxis(stack, mode + 1, 0).reshape(d, -1)


def kron_rows(factors: Sequence[Floats]) -> Floats:
    r"""Rows that map ``vec(X)`` as factors (d_k, q_k) map X: :math:`(U_1 \otimes \cdots)^T`."""
    return np.ascontiguousarray(reduce(np.kron, factors).T)


# ---------------------------------------------------------------------- helpers


def _left_vectors(unfolded: Floats) -> Matrix:
    """All left singular vectors; of a wide matrix by a triangle, the right ones are not formed."""
    R = linalg.qr(unfolded.T, mode="r")[0][: min(unfolded.shape)]
    return np.asarray(linalg.svd(R.T, full_matrices=True)[0])


def _real_tensor(tensor: ArrayLike) -> Matrix:
    T = np.asarray(tensor, dtype=np.float64)
    if T.ndim == 0 or T.size == 0:
        raise ValueError(f"tensor must have at least one mode and one entry; its shape: {T.shape}.")
    if not np.isfinite(T).all():
        raise ValueError("tensor holds NaN or infinity.")
    return T


def _checked_mode(n_modes: int, mode: int) -> int:
    if not -n_modes <= mode < n_modes:
        raise ValueError(f"mode must be from 0 to {n_modes - 1}; got {mode}.")
    return mode % n_modes


def _checked_ranks(shape: Sequence[int], ranks: int | Sequence[int]) -> list[int]:
    wanted = [int(ranks)] * len(shape) if np.ndim(ranks) == 0 else list(ranks)  # type: ignore[arg-type]
    fits = len(wanted) == len(shape) and all(
        1 <= q <= d for q, d in zip(wanted, shape, strict=True)
    )
    if not fits:
        raise ValueError(
            f"ranks must be from 1 to the length of each mode, of which there are {len(shape)} of "
            f"lengths {tuple(shape)}; got {ranks!r}."
        )
    return [int(q) for q in wanted]
