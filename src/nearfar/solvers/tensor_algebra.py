"""Tensor algebra: unfoldings, mode products, decompositions of one tensor, and stacks of samples.

The modes of a tensor are its axes, counted from 0, and ``vec`` is row-major: the last mode varies
fastest. Functions that TensorLy also provides have TensorLy's names and arguments. A stack is an
array (n, d1, ..., dM) of n tensors; the sample axis is not counted as a mode.

Other modules do not index modes themselves. They call the functions of this module.
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
from nearfar.solvers.mode_subspaces import alternate_modes, draw_random_factors, fix_column_signs

# Maximum number of trailing entries for which a mode product uses the Kronecker product of the
# factor and the identity. The Kronecker product multiplies the number of operations by the number
# of trailing entries, but it replaces many small matrix products by a single one.
_MAX_KRONECKER_TRAILING = 8
# Maximum size, in bytes, of one chunk of a stack in `graph_mode_scatter`.
_GRAPH_BYTES = 2**25
# Maximum size, in bytes, of one chunk of a stack in `mode_scatter`, where unfolding makes a copy.
_SCATTER_BYTES = 2**22


def unfold(tensor: ArrayLike, mode: int) -> Floats:
    """Unfold a tensor into a matrix whose rows are the indices of one mode.

    The columns are the indices of all other modes, in row-major order.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        Tensor to unfold.
    mode : int
        Index of the mode, counted from 0.

    Returns
    -------
    ndarray of shape (d_mode, product of the other sizes)
        Unfolding of the tensor.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.tensors import unfold
    >>> unfold(np.arange(1, 13).reshape(3, 2, 2), 1)
    array([[ 1,  2,  5,  6,  9, 10],
           [ 3,  4,  7,  8, 11, 12]])
    """
    T = np.asarray(tensor)
    mode = _check_mode(T.ndim, mode)
    return np.moveaxis(T, mode, 0).reshape(T.shape[mode], prod(T.shape) // max(T.shape[mode], 1))


def fold(unfolded: ArrayLike, mode: int, shape: Sequence[int]) -> Floats:
    """Return the tensor with a given unfolding and shape: the inverse of :func:`unfold`.

    Parameters
    ----------
    unfolded : array-like of shape (d_mode, product of the other sizes)
        Unfolding of the tensor.
    mode : int
        Mode of the unfolding, counted from 0.
    shape : sequence of int
        Shape of the tensor.

    Returns
    -------
    ndarray of shape ``shape``
        Folded tensor.
    """
    U, sizes = np.asarray(unfolded), list(shape)
    mode = _check_mode(len(sizes), mode)
    unfolded_sizes = [sizes.pop(mode), *sizes]
    if U.shape != (unfolded_sizes[0], prod(unfolded_sizes[1:])):
        raise ValueError(
            f"unfolded has shape {U.shape}; mode {mode} of a tensor of shape {tuple(shape)} "
            f"unfolds to {(unfolded_sizes[0], prod(unfolded_sizes[1:]))}."
        )
    return np.moveaxis(U.reshape(unfolded_sizes), 0, mode)


def mode_dot(
    tensor: ArrayLike, matrix_or_vector: ArrayLike, mode: int, transpose: bool = False
) -> Floats:
    r"""Multiply a tensor by a matrix or a vector in one mode, :math:`X \times_k A`.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        Tensor to multiply.
    matrix_or_vector : array-like of shape (q, d_mode) or (d_mode,)
        Matrix A, or a vector. With ``transpose=True`` the matrix has shape (d_mode, q).
    mode : int
        Index of the mode, counted from 0.
    transpose : bool, default=False
        If True, multiply by the transposed matrix, or by the conjugate transpose of a complex
        matrix.

    Returns
    -------
    ndarray
        Product. A matrix changes the size of the mode from d_mode to q; a vector removes the mode.
    """
    T, A = np.asarray(tensor), np.asarray(matrix_or_vector)
    mode = _check_mode(T.ndim, mode)
    if A.ndim not in (1, 2):
        raise ValueError(f"matrix_or_vector must have one or two axes; got shape {A.shape}.")
    if A.ndim == 2 and transpose:
        A = A.conj().T
    if A.shape[-1] != T.shape[mode]:
        raise ValueError(
            f"mode {mode} has length {T.shape[mode]}, but the "
            f"{'vector' if A.ndim == 1 else 'matrix'} is for length {A.shape[-1]}."
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
    """Multiply a tensor by matrices or vectors in several modes.

    The result does not depend on the order of the modes.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        Tensor to multiply.
    matrices : sequence of array-like
        Matrices or vectors, as for :func:`mode_dot`.
    modes : sequence of int, optional
        Mode of each matrix. None means all modes in order.
    skip : int, optional
        Index of a matrix to leave out.
    transpose : bool, default=False
        If True, multiply by the transposed matrices.

    Returns
    -------
    ndarray
        Product.
    """
    T = np.asarray(tensor)
    requested_modes = range(len(matrices)) if modes is None else modes
    if len(requested_modes) != len(matrices):
        raise ValueError(f"there are {len(matrices)} matrices, but {len(requested_modes)} modes.")
    order = [_check_mode(np.ndim(tensor), mode) for mode in requested_modes]
    if len(set(order)) < len(order):
        raise ValueError(f"modes must differ; got {list(requested_modes)}.")
    # Start from the last mode, so that a mode removed by a vector does not shift the modes that
    # are still to be multiplied.
    for k in sorted(range(len(order)), key=lambda k: -order[k]):
        if k != skip:
            T = mode_dot(T, matrices[k], order[k], transpose)
    return T


def rank_one(vectors: Sequence[ArrayLike]) -> Floats:
    r"""Return the outer product :math:`u_1 \otimes \cdots \otimes u_M` of vectors.

    Parameters
    ----------
    vectors : sequence of array-like of shape (d_k,)
        One vector per mode.

    Returns
    -------
    ndarray of shape (d1, ..., dM)
        Rank-one tensor.

    Examples
    --------
    >>> from nearfar.tensors import rank_one
    >>> rank_one([[1, 2], [3, 4, 5]])
    array([[ 3,  4,  5],
           [ 6,  8, 10]])
    """
    return np.asarray(reduce(np.multiply.outer, [np.asarray(u) for u in vectors]))


def rank_one_gram(A: Sequence[ArrayLike], B: Sequence[ArrayLike]) -> Floats:
    r"""Return the inner products of rank-one tensors, :math:`\prod_k a_{kr}^T b_{ks}`.

    The tensors themselves are not formed.

    Parameters
    ----------
    A, B : sequence of array-like of shape (d_k, R) and (d_k, S)
        One matrix per mode, whose columns are the vectors of R tensors (A) and of S tensors (B).
        Vectors of shape (d_k,) represent one tensor.

    Returns
    -------
    ndarray of shape (R, S)
        Inner products.
    """
    if len(A) != len(B):
        raise ValueError(f"A has {len(A)} modes, B has {len(B)}.")
    columns = [
        [np.asarray(U).reshape(len(np.asarray(U)), -1) for U in factors] for factors in (A, B)
    ]
    products = [U.T @ V for U, V in zip(*columns, strict=True)]
    return np.asarray(reduce(np.multiply, products))


def n_rank(tensor: ArrayLike, mode: int) -> int:
    """Return the rank of the unfolding of a tensor in one mode."""
    return int(np.linalg.matrix_rank(unfold(tensor, mode)))


def hosvd(
    tensor: ArrayLike, ranks: int | Sequence[int] | None = None
) -> tuple[Floats, list[Matrix]]:
    r"""Compute the higher-order singular value decomposition, :math:`X = Y \times_1 U_1 \cdots`.

    :math:`U_k` are the left singular vectors of the unfolding in mode k, so the decomposition has a
    closed form: one singular value decomposition per mode. Slices of the core Y along any mode are
    orthogonal, and their norms are the singular values of the unfolding. If the decomposition is
    truncated to ``ranks``, take for each mode the sum of the discarded squared singular values: the
    squared error lies between the largest of these sums and their total over the modes.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        Tensor to decompose.
    ranks : int or sequence of int, optional
        Number of columns to keep in each mode. None keeps all, which makes the decomposition exact.

    Returns
    -------
    core : ndarray of shape (q1, ..., qM)
        Core tensor Y. With ``ranks=None`` its shape is (d1, ..., dM).
    factors : list of ndarray of shape (d_k, q_k)
        Factors U_k with orthonormal columns. The largest entry of each column is positive.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 3.1,
       theorem 3.1 (which iterates; iteration is not necessary).

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.tensors import hosvd, multi_mode_dot
    >>> X = np.arange(24.0).reshape(2, 3, 4)
    >>> core, factors = hosvd(X)
    >>> bool(np.allclose(multi_mode_dot(core, factors), X))
    True
    """
    T = _check_tensor(tensor)
    ranks_per_mode = _check_ranks(T.shape, T.shape if ranks is None else ranks)
    factors = [
        fix_column_signs(_compute_left_vectors(unfold(T, k))[:, :q])
        for k, q in enumerate(ranks_per_mode)
    ]
    return multi_mode_dot(T, factors, transpose=True), factors


def best_rank_one(
    tensor: ArrayLike,
    n_init: int = 1,
    max_iter: int = 200,
    tol: float = 1e-10,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[float, list[Vector]]:
    r"""Find the nearest rank-one tensor, :math:`\min \|X - \lambda u_1 \otimes \cdots\|`.

    The squared error is :math:`\|X\|^2 - \lambda^2`. Each step replaces one vector by the
    contraction of X with the vectors of all other modes, which never lowers :math:`\lambda` (the
    higher-order power method). With three or more modes the optimum is local. The first start is
    the HOSVD, further starts are random, and the best result is returned.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        Tensor X to approximate.
    n_init : int, default=1
        Number of starts.
    max_iter : int, default=200
        Maximum number of sweeps over the modes per start.
    tol : float, default=1e-10
        Tolerance of the vectors. A start stops when :math:`1 - |u^T v|` is at most ``tol`` for the
        vectors u and v of every mode before and after a sweep.
    random_state : int, RandomState or None, default=None
        Seed or generator for the random starts.

    Returns
    -------
    weight : float
        Weight :math:`\lambda \ge 0` of the rank-one tensor.
    vectors : list of ndarray of shape (d_k,)
        Unit vectors :math:`u_k`. The largest entry is positive in all modes except the last.

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
    T = _check_tensor(tensor)
    random = check_random_state(random_state)
    best: tuple[float, list[Vector]] = (-1.0, [])
    for start in range(max(1, n_init)):
        if start == 0:
            vectors = [_compute_left_vectors(unfold(T, k))[:, 0] for k in range(T.ndim)]
        else:
            vectors = [U[:, 0] for U in draw_random_factors(T.shape, [1] * T.ndim, random)]
        candidate = _run_power_method(T, vectors, max_iter, tol)
        if candidate[0] > best[0]:
            best = candidate
    return best


def _run_power_method(
    T: Matrix, vectors: list[Vector], max_iter: int, tol: float
) -> tuple[float, list[Vector]]:
    weight, signs = 0.0, 1.0
    for _ in range(max_iter):
        max_turn = 0.0
        for mode in range(T.ndim):
            v = contract_except(T[None], vectors, mode)[0]
            weight = float(linalg.norm(v))
            # If the tensor is zero, all vectors are optimal. If it is not zero, the start was poor.
            if weight == 0.0:
                return weight, vectors
            max_turn = max(max_turn, 1 - abs(float(vectors[mode] @ v)) / weight)
            vectors[mode] = v / weight
        if max_turn <= tol:
            break
    for mode in range(T.ndim - 1):
        signed_vector = fix_column_signs(vectors[mode][:, None])[:, 0]
        signs *= float(np.sign(signed_vector @ vectors[mode]))
        vectors[mode] = signed_vector
    vectors[-1] = signs * vectors[-1]
    return weight, vectors


def best_rank(
    tensor: ArrayLike, ranks: int | Sequence[int], max_iter: int = 100, tol: float = 1e-10
) -> tuple[Floats, list[Matrix]]:
    r"""Find the nearest tensor of ranks (q1, ..., qM), :math:`\max \|X \times_1 U_1^T \cdots\|`.

    Starting from the HOSVD, each step replaces the orthonormal factor of one mode by the best one
    for the current factors of the other modes (higher-order orthogonal iteration, HOOI). The
    optimum is local.

    Parameters
    ----------
    tensor : array-like of shape (d1, ..., dM)
        Tensor X to approximate.
    ranks : int or sequence of int
        Number of columns in each mode.
    max_iter : int, default=100
        Maximum number of sweeps over the modes.
    tol : float, default=1e-10
        Tolerance of the projectors. The iteration stops when the projectors of all modes together
        change by at most ``tol`` in a sweep.

    Returns
    -------
    core : ndarray of shape (q1, ..., qM)
        Core tensor. The tensor nearest to X is ``multi_mode_dot(core, factors)``.
    factors : list of ndarray of shape (d_k, q_k)
        Factors with orthonormal columns. The largest entry of each column is positive.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 3.4,
       table 3.4.
    """
    T = _check_tensor(tensor)
    ranks_per_mode = _check_ranks(T.shape, ranks)
    result = alternate_modes(
        lambda mode, U: mode_scatter(project_stack(T[None], U or [], skip=mode), mode),
        hosvd(T, ranks_per_mode)[1],
        lambda mode, values: ranks_per_mode[mode],
        max_iter=max_iter,
        tol=tol,
    )
    return multi_mode_dot(T, result.factors, transpose=True), result.factors


def contract_except(X: ArrayLike, vectors: Sequence[ArrayLike], mode: int) -> Floats:
    r"""Contract every tensor of a stack with vectors in all modes except one.

    The cost is two matrix products for tensors of any order. A stack in row-major order is not
    copied.

    Parameters
    ----------
    X : array-like of shape (n, d1, ..., dM)
        Stack of tensors.
    vectors : sequence of array-like of shape (d_k,)
        One vector per mode. The vector of ``mode`` is ignored.
    mode : int
        Index of the mode that is not contracted, counted from 0 without the sample axis.

    Returns
    -------
    ndarray of shape (n, d_mode)
        Contracted tensors. Multiplied by the vector of ``mode`` they give the scores
        :math:`\langle X_i, u_1 \otimes \cdots \otimes u_M \rangle`.
    """
    T = np.ascontiguousarray(X)
    n, shape = len(T), T.shape[1:]
    mode = _check_mode(len(shape), mode)
    if len(vectors) != len(shape):
        raise ValueError(f"X has {len(shape)} modes, but there are {len(vectors)} vectors.")
    outer_vectors = [_chain_kronecker(vectors[:mode]), _chain_kronecker(vectors[mode + 1 :])]
    before, after = prod(shape[:mode]), prod(shape[mode + 1 :])
    if (len(outer_vectors[0]), len(outer_vectors[1])) != (before, after):
        lengths = [np.asarray(v).shape for v in vectors]
        raise ValueError(f"vectors of shapes {lengths} do not fit tensors of shape {shape}.")
    if after == 1:  # Skip the product, which would copy the stack.
        outer_vectors[0] = outer_vectors[0] * outer_vectors[1][0]
    else:
        T = T.reshape(n * before * shape[mode], after) @ outer_vectors[1]
    T = T.reshape(n, before, shape[mode])
    return np.asarray(
        T[:, 0] * outer_vectors[0][0] if before == 1 else np.matmul(outer_vectors[0], T)
    )


def _chain_kronecker(vectors: Sequence[ArrayLike]) -> Floats:
    chain: Any = np.ones(1)
    for vector in vectors:
        # This gives the same result as np.kron of two vectors, but it is much faster.
        chain = np.multiply.outer(chain, vector).ravel()
    return np.asarray(chain)


def project_stack(
    stack: Floats, factors: Sequence[Floats | None], skip: int | None = None
) -> Floats:
    """Multiply every tensor of a stack by transposed factors, in the cheapest order of modes.

    Parameters
    ----------
    stack : ndarray of shape (n, d1, ..., dM)
        Stack of tensors.
    factors : sequence of ndarray of shape (d_k, q_k)
        One factor per mode. None leaves a mode unchanged.
    skip : int, optional
        Index of a mode to leave unchanged.

    Returns
    -------
    ndarray of shape (n, q1, ..., qM)
        Projected tensors in the dtype of the stack. If no mode is multiplied, the stack itself is
        returned.
    """
    used_factors = {k: U for k, U in enumerate(factors) if U is not None and k != skip}
    # The order of decreasing 1/q - 1/d needs the fewest operations. To prove this, compare the
    # costs before and after exchanging two adjacent modes.
    for mode in sorted(
        used_factors, key=lambda k: 1 / used_factors[k].shape[0] - 1 / used_factors[k].shape[1]
    ):
        stack = _multiply_stack(stack, used_factors[mode], mode)
    return stack


def _multiply_stack(stack: Floats, factor: Floats, mode: int) -> Floats:
    """Multiply every tensor by the transpose of a factor (d, q) in one mode."""
    n, shape = len(stack), list(stack.shape[1:])
    before, d, after = prod(shape[:mode]), shape[mode], prod(shape[mode + 1 :])
    q = factor.shape[1]
    U = factor.astype(stack.dtype, copy=False)
    if 1 < after <= _MAX_KRONECKER_TRAILING:
        U = np.kron(U, np.eye(after, dtype=U.dtype))
        d, q, after = d * after, q * after, 1
    if after == 1:
        product = stack.reshape(n * before, d) @ U
    else:
        product = np.matmul(U.T, stack.reshape(n * before, d, after))
    shape[mode] = factor.shape[1]
    return product.reshape(n, *shape)


def expand_stack(stack: Floats, factors: Sequence[Floats]) -> Floats:
    """Multiply every tensor (q1, ..., qM) of a stack by the factors (d_k, q_k) of its modes.

    Applied to projected tensors, this gives their reconstructions in the original space.
    """
    return project_stack(stack, [U.T for U in factors])


def mode_scatter(stack: Floats, mode: int, second_stack: Floats | None = None) -> Matrix:
    r"""Return the scatter :math:`\sum_i X_{i(k)} X_{i(k)}^T` of the samples' unfoldings in a mode.

    Parameters
    ----------
    stack : ndarray of shape (n, d1, ..., dM)
        Stack of tensors.
    mode : int
        Index k of the mode, counted from 0 without the sample axis.
    second_stack : ndarray, optional
        Stack Z of the same shape. If it is passed, the result is
        :math:`\sum_i X_{i(k)} Z_{i(k)}^T`.

    Returns
    -------
    ndarray of float64 of shape (d_k, d_k)
        Scatter. The products are computed in the dtype of the stack.
    """
    if mode + 2 == stack.ndim or stack.nbytes <= 2 * _SCATTER_BYTES:
        rows = _unfold_stack(stack, mode)
        second_rows = rows if second_stack is None else _unfold_stack(second_stack, mode)
        return np.asarray(rows @ second_rows.T, dtype=np.float64)
    # Unfolding in any mode except the last makes a copy, so unfold a chunk of samples at a time.
    total = np.zeros(
        (stack.shape[mode + 1], (stack if second_stack is None else second_stack).shape[mode + 1])
    )
    size = max(1, _SCATTER_BYTES * len(stack) // stack.nbytes)
    for i in range(0, len(stack), size):
        chunk = slice(i, i + size)
        total += mode_scatter(
            stack[chunk], mode, None if second_stack is None else second_stack[chunk]
        )
    return total


def find_varying_basis(stack: Floats, mode: int, rtol: float) -> Matrix:
    """Return an orthonormal basis (d_k, r) of the directions of a mode in which a stack varies.

    The directions are sorted by decreasing sum of squares. Directions whose sum of squares is at
    most ``rtol`` times the largest are left out.
    """
    if stack.size < stack.shape[mode + 1] ** 2:
        unfolded = unfold(stack, mode + 1).astype(np.float64)
        U, singular, _ = linalg.svd(unfolded, full_matrices=False)
        return np.asarray(U[:, singular**2 > rtol * singular[0] ** 2])
    values, vectors = descending_eigh(mode_scatter(stack, mode))
    return vectors[:, values > rtol * values[0]]


def moment_mode_scatter(
    moment: Floats,
    shape: Sequence[int],
    mode: int,
    factors: Sequence[Floats | None] | None = None,
) -> Matrix:
    r"""Return the mode scatter of projected tensors, given only the second moment of ``vec(X)``.

    The scatter is :math:`\sum_i T_{i(k)} T_{i(k)}^T` with
    :math:`T_i = X_i \times_{j \ne k} U_j^T`. The rows and the columns of the moment are projected
    by matrix products, and the result is traced over all modes except k.

    Parameters
    ----------
    moment : ndarray of shape (p, p)
        Symmetric matrix :math:`\sum_i \mathrm{vec}(X_i) \mathrm{vec}(X_i)^T`.
    shape : sequence of int
        Shape of one tensor, with p entries.
    mode : int
        Index k of the mode, counted from 0.
    factors : sequence of ndarray of shape (d_k, q_k), optional
        One factor U_k per mode. None leaves a mode unchanged. The factor of ``mode`` is ignored.

    Returns
    -------
    ndarray of shape (d_mode, d_mode)
        Scatter of the mode.
    """
    projected_shape = list(shape)
    for k, U in enumerate(factors or ()):
        if U is not None and k != mode:
            projected_shape[k] = U.shape[1]
    for _ in range(2 if factors else 0):
        # Project the rows of the moment as a stack of tensors, and then its columns in a second
        # pass on the transpose.
        stack = project_stack(moment.reshape(-1, *shape), factors or (), skip=mode)
        moment = np.ascontiguousarray(stack.reshape(len(stack), -1).T)
    before, d, after = (
        prod(projected_shape[:mode]),
        projected_shape[mode],
        prod(projected_shape[mode + 1 :]),
    )
    six_axes = moment.reshape(before, d, after, before, d, after)
    return np.einsum("iajibj->ab", six_axes)


def graph_mode_scatter(stack: Floats, mode: int, laplacian: Any) -> Matrix:
    r"""Return :math:`\sum_{ij} L_{ij} X_{i(k)} X_{j(k)}^T` for a Laplacian L of the samples.

    The sum is computed in float64, over chunks of the other modes' entries, so that the stack is
    not copied.

    Parameters
    ----------
    stack : ndarray of shape (n, d1, ..., dM)
        Stack of tensors.
    mode : int
        Index k of the mode, counted from 0 without the sample axis.
    laplacian : ndarray, sparse array or linear operator of shape (n, n)
        Symmetric matrix L. Its rows must sum to zero, so that adding a constant to all tensors
        does not change the result.

    Returns
    -------
    ndarray of shape (d_k, d_k)
        Scatter of the mode.
    """
    n, shape = len(stack), stack.shape[1:]
    before, d, after = prod(shape[:mode]), shape[mode], prod(shape[mode + 1 :])
    T = stack.reshape(n, before, d, after)
    chunk_size = max(1, _GRAPH_BYTES // (8 * n * d))
    columns = min(after, chunk_size)
    rows = max(1, chunk_size // columns)
    total = np.zeros((d, d))
    for i in range(0, before, rows):
        for j in range(0, after, columns):
            chunk = T[:, i : i + rows, :, j : j + columns].astype(np.float64)
            chunk -= chunk.mean(axis=0)
            weighted_chunk = (laplacian @ chunk.reshape(n, -1)).reshape(chunk.shape)
            total += mode_scatter(chunk, 1, weighted_chunk)
    return total


def _unfold_stack(stack: Floats, mode: int) -> Floats:
    """Return the unfoldings (d_k, ...) of all samples side by side.

    For the last mode, the result is a view.
    """
    d = stack.shape[mode + 1]
    if mode + 2 == stack.ndim:
        return stack.reshape(-1, d).T
    return np.moveaxis(stack, mode + 1, 0).reshape(d, -1)


def kron_rows(factors: Sequence[Floats]) -> Floats:
    r"""Return the matrix :math:`(U_1 \otimes \cdots)^T` that projects ``vec(X)``.

    It maps ``vec(X)`` to the vectorized projection of X with the factors (d_k, q_k).
    """
    return np.ascontiguousarray(reduce(np.kron, factors).T)


def _compute_left_vectors(unfolded: Floats) -> Matrix:
    """Return all left singular vectors of a matrix.

    The QR decomposition of the transpose makes this fast for wide matrices: the right singular
    vectors are never formed.
    """
    R = linalg.qr(unfolded.T, mode="r")[0][: min(unfolded.shape)]
    return np.asarray(linalg.svd(R.T, full_matrices=True)[0])


def _check_tensor(tensor: ArrayLike) -> Matrix:
    T = np.asarray(tensor, dtype=np.float64)
    if T.ndim == 0 or T.size == 0:
        raise ValueError(f"tensor must have at least one mode and one entry; got shape {T.shape}.")
    if not np.isfinite(T).all():
        raise ValueError("tensor contains NaN or infinity.")
    return T


def _check_mode(n_modes: int, mode: int) -> int:
    if not -n_modes <= mode < n_modes:
        raise ValueError(f"mode must be from {-n_modes} to {n_modes - 1}; got {mode}.")
    return mode % n_modes


def _check_ranks(shape: Sequence[int], ranks: int | Sequence[int]) -> list[int]:
    ranks_per_mode = [int(ranks)] * len(shape) if np.ndim(ranks) == 0 else list(ranks)  # type: ignore[arg-type]
    is_valid = len(ranks_per_mode) == len(shape) and all(
        1 <= q <= d for q, d in zip(ranks_per_mode, shape, strict=True)
    )
    if not is_valid:
        raise ValueError(
            f"ranks must be from 1 to the length of each of the {len(shape)} modes, which have "
            f"lengths {tuple(shape)}; got {ranks!r}."
        )
    return [int(q) for q in ranks_per_mode]
