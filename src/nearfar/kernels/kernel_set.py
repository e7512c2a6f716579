"""KernelSet: a set of kernel matrices over the same points, and checks of kernel matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.solvers.eigen import compute_min_eigenvalue

# Maximum number of rows for which the whole kernel matrix is checked for negative eigenvalues.
_MAX_FULL_CHECK = 500
# Number of rows that are checked for negative eigenvalues if the kernel matrix has more than
# _MAX_FULL_CHECK rows.
_N_CHECKED_ROWS = 300
# Number of floats per block, chosen so that a block fits into the CPU cache.
_BLOCK_FLOATS = 1 << 16
# If the kernels are computed by a function, number of kernels that are kept in memory while the
# products of all pairs of kernels are computed.
_N_IN_MEMORY = 3
# Tolerance for rounding errors. For negative eigenvalues it is a fraction of the trace, and for
# asymmetry a fraction of the largest entries.
_ROUNDING = 1e-8

Kernels = Sequence[ArrayLike] | NDArray[np.floating[Any]] | Callable[[int], ArrayLike]


class KernelSet:
    """Set of kernel matrices of the same points.

    The kernels are read one at a time or in blocks of rows.

    The kernels are never copied into one array. Subclasses set ``n_kernels`` and ``n_points`` and
    implement `rows`. A set that is defined by a function of an index keeps one kernel in memory at
    a time.

    Attributes
    ----------
    n_kernels, n_points : int
        Number of kernels, and number of points.
    traces : ndarray of shape (n_kernels,)
        Traces of the kernels of all points. All traces are positive.
    """

    n_kernels: int
    n_points: int
    #: True if it is cheap to read a few rows of all kernels. The outer loop is then over rows, and
    #: the inner loop is over kernels.
    by_rows = True

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        """Return a block of rows of kernel i."""
        raise NotImplementedError

    @property
    def traces(self) -> Vector:
        """Traces of the kernels."""
        if not hasattr(self, "_traces"):
            self._traces = self.diagonals().sum(axis=1)
        return self._traces

    def diagonals(self) -> Matrix:
        """Return the diagonals of the kernels, as an array of shape (n_kernels, n_points)."""
        return self._apply_by_blocks(lambda rows, block: rows[:, block].diagonal())

    def compute_weighted_sum(self, weights: Vector, n: int | None = None) -> Matrix:
        """Return the weighted sum of the kernels for the first n points."""
        n = self.n_points if n is None else n
        K = np.zeros((n, n))
        used = [i for i in range(self.n_kernels) if weights[i] != 0]
        if self.by_rows:
            # A few rows of the sum stay in the CPU cache while all kernels are added.
            for block in split_rows(n, 8 * n, max_rows=max(1, _BLOCK_FLOATS // n)):
                for i in used:
                    K[block] += weights[i] * self.rows(i, block)[:, :n]
        else:
            for i in used:
                for block in split_rows(n, 8 * n, max_rows=max(1, _BLOCK_FLOATS // n)):
                    K[block] += weights[i] * self.rows(i, block)[:, :n]
        return K

    def multiply(self, V: Matrix) -> Iterator[Matrix]:
        """Yield the product K V for each kernel matrix K of the first ``len(V)`` points."""
        n = len(V)
        yield from self._apply_by_blocks(lambda rows, block: rows[:, :n] @ V, n)

    def compute_products(self, V: Matrix, matrices: Sequence[Matrix]) -> Matrix:
        r"""Return the sum of :math:`v_k^T K_i w_k` for each kernel i and each W in ``matrices``.

        The sum is over the columns :math:`v_k` of V and :math:`w_k` of W.
        """
        return np.array([[np.vdot(image, W) for W in matrices] for image in self.multiply(V)])

    def compute_forms(self, U: Matrix) -> Matrix:
        r"""Return :math:`u_k^T K_i u_k` for each kernel i and each column :math:`u_k` of U."""
        return np.array([np.einsum("ij,ij->j", image, U) for image in self.multiply(U)])

    def compute_grams(self, centered: bool) -> Matrix:
        r"""Return the matrix of the products :math:`\langle K_i, K_j \rangle_F`.

        With ``centered=True``, the entries are centered before they are multiplied. The faster
        formula, a sum of products minus a product of sums, loses all significant digits if a kernel
        is nearly constant.
        """
        m = self.n_kernels
        means = self._compute_row_means() if centered else None
        G = np.zeros((m, m))
        if self.by_rows:
            self._add_grams(G, range(m), means)
            return G
        for first in range(0, m, _N_IN_MEMORY):
            loaded = {
                i: np.array(self.rows(i, slice(None))) for i in range(first, m)[:_N_IN_MEMORY]
            }
            for j in range(first, m):
                indices = sorted({*loaded, j})
                if j in loaded and j != first:
                    continue
                subset = _KernelSubset(
                    {**loaded, j: loaded[j] if j in loaded else self.rows(j, slice(None))}
                )
                subset._add_grams(G, indices, means, partner=None if j in loaded else j)
        return G

    def _add_grams(
        self,
        G: Matrix,
        kernel_indices: Sequence[int],
        means: Matrix | None,
        partner: int | None = None,
    ) -> None:
        """Compute the products of the kernels in ``kernel_indices``, and write them to G.

        If ``partner`` is set, only the products with kernel ``partner`` are written.
        """
        n, indices = self.n_points, np.array(kernel_indices)
        sums = np.zeros((len(indices), len(indices)))
        size = max(1, 4 * _BLOCK_FLOATS // (n * len(indices)))
        stack = np.empty((len(indices), size * n))
        if means is not None:
            columns = means - means.mean(axis=1)[:, None]
        for block in split_rows(n, 8 * n * len(indices), max_rows=size):
            rows = block.stop - block.start
            entries = stack[:, : rows * n]
            for k, i in enumerate(indices):
                kernel_rows = entries[k].reshape(rows, n)
                if means is None:
                    np.copyto(kernel_rows, self.rows(i, block))
                else:
                    np.subtract(self.rows(i, block), columns[i], out=kernel_rows)
                    kernel_rows -= means[i, block, None]
            with np.errstate(over="ignore", invalid="ignore"):  # The caller checks the sums.
                sums += entries @ entries.T
        if partner is None:
            G[np.ix_(indices, indices)] = sums
        else:
            position = int(np.flatnonzero(indices == partner)[0])
            is_other = np.arange(len(indices)) != position
            G[partner, indices[is_other]] = G[indices[is_other], partner] = sums[position, is_other]

    def _compute_row_means(self) -> Matrix:
        return self._apply_by_blocks(lambda rows, block: rows.mean(axis=1, dtype=float))

    def _apply_by_blocks(
        self, function: Callable[[Any, slice], Any], n: int | None = None
    ) -> Matrix:
        """Apply ``function`` to blocks of rows of each kernel, and concatenate the results.

        The result has shape (n_kernels, n, ...).
        """
        blocks, kernels = list(self.blocks(n)), range(self.n_kernels)
        if self.by_rows:  # The kernels can share intermediate results of a block.
            block_results = [[function(self.rows(i, b), b) for i in kernels] for b in blocks]
            return np.concatenate(
                [np.array(results, dtype=float) for results in block_results], axis=1
            )
        return np.array(
            [np.concatenate([function(self.rows(i, b), b) for b in blocks]) for i in kernels], float
        )

    def blocks(self, n: int | None = None) -> Iterator[slice]:
        """Yield the slices of rows that are processed together."""
        at_most = max(1, 8 * _BLOCK_FLOATS // self.n_points)
        return split_rows(self.n_points if n is None else n, 8 * self.n_points, max_rows=at_most)


class MatrixKernels(KernelSet):
    """Set of kernels that are passed as matrices."""

    def __init__(self, matrices: Sequence[NDArray[np.floating[Any]]]) -> None:
        self.matrices = matrices
        self.n_kernels, self.n_points = len(matrices), len(matrices[0])

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        """Return a block of rows of kernel i."""
        return self.matrices[i][block]

    def compute_weighted_sum(self, weights: Vector, n: int | None = None) -> Matrix:
        """Return the weighted sum of the kernels for the first n points."""
        is_complete = n is None or n == self.n_points
        if not is_complete or any(
            K.dtype != float or not K.flags.c_contiguous for K in self.matrices
        ):
            return super().compute_weighted_sum(weights, n)
        K = np.zeros((self.n_points, self.n_points))
        total, flat = K.reshape(-1), [matrix.reshape(-1) for matrix in self.matrices]
        # BLAS multiplies and adds in one pass, without a temporary array.
        for start in range(0, total.size, _BLOCK_FLOATS):
            entries = slice(start, start + _BLOCK_FLOATS)
            for i in np.flatnonzero(weights):
                linalg.blas.daxpy(flat[i][entries], total[entries], a=weights[i])
        return K

    def multiply(self, V: Matrix) -> Iterator[Matrix]:
        """Yield the product K V for each kernel matrix K of the first ``len(V)`` points."""
        for K in self.matrices:
            yield K[: len(V), : len(V)] @ V


class FunctionKernels(KernelSet):
    """Set of kernels that a function computes from an index. One kernel is in memory at a time."""

    by_rows = False

    def __init__(self, function: Callable[[int], ArrayLike], n_kernels: int) -> None:
        self.function = function
        self.n_kernels = n_kernels
        self._last: tuple[int, Any] = (-1, None)
        self.n_points = len(self._get_matrix(0))

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        """Return a block of rows of kernel i."""
        return self._get_matrix(i)[block]

    def _get_matrix(self, i: int) -> Any:
        if self._last[0] != i:
            self._last = (-1, None)  # Free the previous kernel first.
            self._last = (i, as_matrix(self.function(i), f"kernels({i})"))
        return self._last[1]


class _KernelSubset(KernelSet):
    """Subset of a set of kernels. Each kernel keeps its index in the full set."""

    def __init__(self, matrices: dict[int, Any]) -> None:
        self.matrices = matrices
        self.n_kernels, self.n_points = len(matrices), len(next(iter(matrices.values())))

    def rows(self, i: int, block: slice) -> Any:
        return self.matrices[i][block]


class DirectionKernels(KernelSet):
    r"""Set of the kernels :math:`v_i v_i^T` of orthonormal columns :math:`v_i`."""

    def __init__(self, V: Matrix) -> None:
        self.V = V
        self.n_points, self.n_kernels = V.shape

    @property
    def traces(self) -> Vector:
        """Traces of the kernels, which are all 1."""
        return np.ones(self.n_kernels)

    def rows(self, i: int, block: slice) -> Matrix:
        """Return a block of rows of kernel i."""
        return np.outer(self.V[block, i], self.V[:, i])

    def compute_weighted_sum(self, weights: Vector, n: int | None = None) -> Matrix:
        """Return the weighted sum of the kernels for the first n points."""
        used = np.flatnonzero(weights)
        V = self.V[:n, used]
        return np.asarray((V * weights[used]) @ V.T)

    def compute_products(self, V: Matrix, matrices: Sequence[Matrix]) -> Matrix:
        """Compute the same values as the base class, but faster: the columns are orthonormal."""
        coordinates = self.V[: len(V)].T @ V
        return np.array(
            [np.einsum("ij,ij->i", coordinates, self.V[: len(V)].T @ W) for W in matrices]
        ).T

    def compute_forms(self, U: Matrix) -> Matrix:
        """Compute the same values as the base class, but faster: the columns are orthonormal."""
        return np.asarray((self.V[: len(U)].T @ U) ** 2)


def make_kernel_set(kernels: Kernels | KernelSet, n_labels: int) -> KernelSet:
    """Return the kernels as a KernelSet, after checking each matrix.

    Matrices must be symmetric, positive semi-definite, of the same size and not zero. Above 500
    points, only a submatrix of 300 points is checked for negative eigenvalues. Methods that find a
    negative eigenvalue later raise an error.
    """
    result = _read_kernels(kernels)
    if n_labels > result.n_points:
        raise ValueError(
            f"y has {n_labels} labels, but the kernels have {result.n_points} points. y can be "
            "shorter than the kernels (the first points are then labeled), but not longer."
        )
    needs_check = isinstance(result, MatrixKernels | FunctionKernels)
    traces = np.empty(result.n_kernels)
    for i in range(result.n_kernels) if needs_check else ():
        rows = result.rows(i, slice(None))
        name = f"kernels[{i}]" if isinstance(result, MatrixKernels) else f"kernels({i})"
        if rows.shape != (result.n_points, result.n_points):
            raise ValueError(
                f"kernels must all have the same size; kernels[0] has {result.n_points} points, "
                f"but {name} has shape {rows.shape}."
            )
        traces[i] = check_kernel(rows, name)
    if needs_check:
        result._traces = traces
    return result


def check_kernel(K: NDArray[Any], name: str = "K") -> float:
    """Return the trace of a kernel matrix. Raises a ValueError if K is not a kernel."""
    rounding = 1e-5 if K.dtype == np.float32 else _ROUNDING
    _check_symmetric(K, name, rounding)
    n, trace = len(K), float(np.trace(K, dtype=float))
    checked_rows = np.linspace(0, n - 1, n if n <= _MAX_FULL_CHECK else _N_CHECKED_ROWS).astype(
        np.intp
    )
    min_eigenvalue = _find_negative_eigenvalue(
        K if len(checked_rows) == n else K[np.ix_(checked_rows, checked_rows)],
        rounding * max(trace, 0.0),
    )
    if min_eigenvalue is not None:
        description = (
            f"is {min_eigenvalue:.6g}"
            if len(checked_rows) == n
            else f"is at most {min_eigenvalue:.6g}"
        )
        raise ValueError(
            f"{name} must be positive semi-definite; its smallest eigenvalue {description}. "
            "Use nearfar.distributions.repair_kernel to get the nearest kernel."
        )
    if not trace > 0:
        raise ValueError(f"{name} must not be zero; its trace is {trace:g}.")
    return trace


def _check_symmetric(K: NDArray[Any], name: str, rounding: float) -> None:
    """Raise if a matrix is not symmetric or not finite."""
    n = len(K)
    # Multiply K and its transpose by the same random vector. The products differ if any entry is
    # asymmetric.
    probe = np.random.default_rng(0).uniform(1, 2, n).astype(K.dtype)
    probe[::2] *= -1
    with np.errstate(all="ignore"):
        gap = np.abs(K @ probe - probe @ K)
        size = max(float(np.abs(K.diagonal()).max()), float(np.abs(K[n // 2]).max()))
        if gap.max() <= rounding * size * np.sqrt(n):
            return
        for block in split_rows(n, 16 * n):
            rows = K[block]
            if not np.isfinite(rows).all():
                i, j = (int(k) for k in np.unravel_index(np.isfinite(rows).argmin(), rows.shape))
                raise ValueError(
                    f"{name} must be finite; {name}[{block.start + i}, {j}] is {rows[i, j]}."
                )
    i = int(np.argmax(gap))
    j = int(np.argmax(np.abs(K[i] - K[:, i])))
    if np.abs(K[i, j] - K[j, i]) > rounding * max(size, float(np.abs(K[i]).max())):
        raise ValueError(
            f"{name} must be symmetric; {name}[{i}, {j}] is {K[i, j]:.6g} and {name}[{j}, {i}] is "
            f"{K[j, i]:.6g}."
        )


def _find_negative_eigenvalue(K: NDArray[Any], slack: float) -> float | None:
    """Return the smallest eigenvalue if it is below ``-slack``, else None."""
    shifted = np.array(K, dtype=float, order="F")
    shifted.flat[:: len(K) + 1] += slack
    # A Cholesky factorization succeeds only if no eigenvalue is negative. It is ten times faster
    # than computing the eigenvalues.
    if slack > 0 and linalg.lapack.dpotrf(shifted, overwrite_a=True)[1] == 0:
        return None
    min_eigenvalue = compute_min_eigenvalue(np.asarray(K, dtype=float))
    return min_eigenvalue if min_eigenvalue < -slack else None


def as_kernel(K: ArrayLike, name: str = "K") -> Matrix:
    """Return a kernel matrix as float64, after checking it."""
    values = np.asarray(as_matrix(K, name), dtype=np.float64)
    check_kernel(values, name)
    return values


def _read_kernels(kernels: Any) -> KernelSet:
    if isinstance(kernels, KernelSet):
        return kernels
    if callable(kernels):
        return FunctionKernels(kernels, _count_kernels(kernels))
    if kernels is None:
        raise ValueError('kernels is None, which is allowed only with kernel_family="free".')
    if isinstance(kernels, np.ndarray) and kernels.ndim not in (1, 3):
        raise ValueError(
            "kernels must be a list of matrices or an array of shape (n_kernels, n, n); got an "
            f"array of shape {kernels.shape}."
        )
    matrices = [as_matrix(K, f"kernels[{i}]") for i, K in enumerate(kernels)]
    if not matrices:
        raise ValueError("kernels is empty, but at least one kernel is needed.")
    return MatrixKernels(matrices)


def _count_kernels(function: Any) -> int:
    """Return the number of kernels that a function of an index can compute.

    The number is the length of the function object, or the first index for which the function
    raises IndexError.
    """
    if hasattr(function, "__len__"):
        n_kernels = len(function)
    else:
        n_kernels = 0
        while True:
            try:
                function(n_kernels)
            except IndexError:
                break
            n_kernels += 1
            if n_kernels == 10_000:
                raise ValueError(
                    "kernels is a function, so it must raise IndexError for indices after the last "
                    "kernel. It did not raise IndexError for any index below 10000."
                )
    if not n_kernels:
        raise ValueError("kernels is empty, but at least one kernel is needed.")
    return n_kernels


def as_matrix(K: Any, name: str) -> Any:
    """Return K as a square matrix of float64 or float32. Only the shape and dtype are checked."""
    try:
        matrix = np.asarray(K)
        if matrix.dtype not in (np.float64, np.float32):
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a matrix of numbers.") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"{name} must be a square matrix; got shape {matrix.shape}.")
    return matrix
