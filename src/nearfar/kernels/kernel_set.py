"""KernelSet: a set of kernel matrices over the same points, and checks of kernel matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.solvers.eigen import least_eigenvalue

# A kernel of up to _WHOLE rows is fully checked for negative eigenvalues. Of a larger kernel, a
# submatrix of _TESTED rows is checked.
_WHOLE, _TESTED = 500, 300
# Number of floats that are processed at a time, so that they fit into the CPU cache.
_IN_CACHE = 1 << 16
# Number of kernels kept in memory when all pairs of kernels from a function are needed.
_KEPT = 3
# Negative eigenvalues up to this fraction of the trace, and asymmetry up to this fraction of the
# largest entries, are rounding errors.
_ROUNDING = 1e-8

Kernels = Sequence[ArrayLike] | NDArray[np.floating[Any]] | Callable[[int], ArrayLike]


class KernelSet:
    """Set of kernels over the same points, which are read one at a time or by blocks of rows.

    The kernels are never copied into one array. Subclasses set ``n_kernels`` and ``n_points`` and
    implement `rows`. A set that is defined by a function of an index keeps one kernel in memory at
    a time.

    Attributes
    ----------
    n_kernels, n_points : int
        Number of kernels, and of points.
    traces : ndarray of shape (n_kernels,)
        Traces of the kernels over all points. All are positive.
    """

    n_kernels: int
    n_points: int
    #: True if single rows of all kernels are cheap to read, so that loops can go over rows first.
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
        """Return the diagonals of the kernels, (n_kernels, n_points)."""
        return self._by_rows(lambda rows, block: rows[:, block].diagonal())

    def weighted(self, weights: Vector, n: int | None = None) -> Matrix:
        """Return the weighted sum of the kernels for the first n points."""
        n = self.n_points if n is None else n
        K = np.zeros((n, n))
        used = [i for i in range(self.n_kernels) if weights[i] != 0]
        if self.by_rows:
            # A few rows of the sum stay in the CPU cache while all kernels are added.
            for block in split_rows(n, 8 * n, max_rows=max(1, _IN_CACHE // n)):
                for i in used:
                    K[block] += weights[i] * self.rows(i, block)[:, :n]
        else:
            for i in used:
                for block in split_rows(n, 8 * n, max_rows=max(1, _IN_CACHE // n)):
                    K[block] += weights[i] * self.rows(i, block)[:, :n]
        return K

    def images(self, V: Matrix) -> Iterator[Matrix]:
        """Yield the product of each kernel with V, whose rows are the first points."""
        n = len(V)
        yield from self._by_rows(lambda rows, block: rows[:, :n] @ V, n)

    def products(self, V: Matrix, others: Sequence[Matrix]) -> Matrix:
        r"""Return :math:`\sum_k v_k^T K_i w_k` for each kernel i and each W in ``others``."""
        return np.array([[np.vdot(image, W) for W in others] for image in self.images(V)])

    def forms(self, U: Matrix) -> Matrix:
        r"""Return :math:`u_k^T K_i u_k` for kernels i and columns k, (n_kernels, n_columns)."""
        return np.array([np.einsum("ij,ij->j", image, U) for image in self.images(U)])

    def grams(self, centered: bool) -> Matrix:
        r"""Return all :math:`\langle K_i, K_j \rangle_F`, of centered kernels on request.

        Entries are centered before they are multiplied, because the difference of a sum of products
        and a product of sums loses all significant digits if a kernel is nearly constant.
        """
        m = self.n_kernels
        means = self._row_means() if centered else None
        G = np.zeros((m, m))
        if self.by_rows:
            self._add_grams(G, range(m), means)
            return G
        for first in range(0, m, _KEPT):
            kept = {i: np.array(self.rows(i, slice(None))) for i in range(first, m)[:_KEPT]}
            for j in range(first, m):
                pair = sorted({*kept, j})
                if j in kept and j != first:
                    continue
                one = _Some({**kept, j: kept[j] if j in kept else self.rows(j, slice(None))})
                one._add_grams(G, pair, means, only=None if j in kept else j)
        return G

    def _add_grams(
        self, G: Matrix, which: Sequence[int], means: Matrix | None, only: int | None = None
    ) -> None:
        """Add the products of some kernels to G; if ``only`` is given, those with this kernel."""
        n, index = self.n_points, np.array(which)
        sums = np.zeros((len(index), len(index)))
        size = max(1, 4 * _IN_CACHE // (n * len(index)))
        stack = np.empty((len(index), size * n))
        if means is not None:
            columns = means - means.mean(axis=1)[:, None]
        for block in split_rows(n, 8 * n * len(index), max_rows=size):
            rows = block.stop - block.start
            part = stack[:, : rows * n]
            for k, i in enumerate(index):
                own = part[k].reshape(rows, n)
                if means is None:
                    np.copyto(own, self.rows(i, block))
                else:
                    np.subtract(self.rows(i, block), columns[i], out=own)
                    own -= means[i, block, None]
            sums += part @ part.T
        if only is None:
            G[np.ix_(index, index)] = sums
        else:
            at = int(np.flatnonzero(index == only)[0])
            others = np.arange(len(index)) != at
            G[only, index[others]] = G[index[others], only] = sums[at, others]

    def _row_means(self) -> Matrix:
        return self._by_rows(lambda rows, block: rows.mean(axis=1, dtype=float))

    def _by_rows(self, found: Callable[[Any, slice], Any], n: int | None = None) -> Matrix:
        """Apply ``found`` to blocks of rows of each kernel, and return (n_kernels, n, ...)."""
        blocks, kernels = list(self.blocks(n)), range(self.n_kernels)
        if self.by_rows:  # kernels can share intermediate results of a block
            parts = [[found(self.rows(i, b), b) for i in kernels] for b in blocks]
            return np.concatenate([np.array(part, dtype=float) for part in parts], axis=1)
        return np.array(
            [np.concatenate([found(self.rows(i, b), b) for b in blocks]) for i in kernels], float
        )

    def blocks(self, n: int | None = None) -> Iterator[slice]:
        """Yield the blocks of rows that are processed at a time."""
        at_most = max(1, 8 * _IN_CACHE // self.n_points)
        return split_rows(self.n_points if n is None else n, 8 * self.n_points, max_rows=at_most)


class GivenKernels(KernelSet):
    """Set of kernels that are passed as matrices."""

    def __init__(self, matrices: Sequence[NDArray[np.floating[Any]]]) -> None:
        self.matrices = matrices
        self.n_kernels, self.n_points = len(matrices), len(matrices[0])

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        """Return a block of rows of kernel i."""
        return self.matrices[i][block]

    def weighted(self, weights: Vector, n: int | None = None) -> Matrix:
        """Return the weighted sum of the kernels for the first n points."""
        whole = n is None or n == self.n_points
        if not whole or any(K.dtype != float or not K.flags.c_contiguous for K in self.matrices):
            return super().weighted(weights, n)
        K = np.zeros((self.n_points, self.n_points))
        total, flat = K.reshape(-1), [matrix.reshape(-1) for matrix in self.matrices]
        # BLAS multiplies and adds in one pass, without a temporary array.
        for start in range(0, total.size, _IN_CACHE):
            part = slice(start, start + _IN_CACHE)
            for i in np.flatnonzero(weights):
                linalg.blas.daxpy(flat[i][part], total[part], a=weights[i])
        return K

    def images(self, V: Matrix) -> Iterator[Matrix]:
        """Yield the product of each kernel with V, whose rows are the first points."""
        for K in self.matrices:
            yield K[: len(V), : len(V)] @ V


class CalledKernels(KernelSet):
    """Set of kernels that a function of an index returns. One is kept in memory at a time."""

    by_rows = False

    def __init__(self, function: Callable[[int], ArrayLike], n_kernels: int) -> None:
        self.function = function
        self.n_kernels = n_kernels
        self._last: tuple[int, Any] = (-1, None)
        self.n_points = len(self._matrix(0))

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        """Return a block of rows of kernel i."""
        return self._matrix(i)[block]

    def _matrix(self, i: int) -> Any:
        if self._last[0] != i:
            self._last = (-1, None)  # free the previous kernel first
            self._last = (i, as_matrix(self.function(i), f"kernels({i})"))
        return self._last[1]


class _Some(KernelSet):
    """A few matrices, accessed by their original indices."""

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
        """Traces of the kernels, all 1."""
        return np.ones(self.n_kernels)

    def rows(self, i: int, block: slice) -> Matrix:
        """Return a block of rows of kernel i."""
        return np.outer(self.V[block, i], self.V[:, i])

    def weighted(self, weights: Vector, n: int | None = None) -> Matrix:
        """Return the weighted sum of the kernels for the first n points."""
        used = np.flatnonzero(weights)
        V = self.V[:n, used]
        return np.asarray((V * weights[used]) @ V.T)

    def products(self, V: Matrix, others: Sequence[Matrix]) -> Matrix:
        """Return the same as the base class, computed from coordinates along the columns."""
        own = self.V[: len(V)].T @ V
        return np.array([np.einsum("ij,ij->i", own, self.V[: len(V)].T @ W) for W in others]).T

    def forms(self, U: Matrix) -> Matrix:
        """Return the same as the base class, computed from coordinates along the columns."""
        return np.asarray((self.V[: len(U)].T @ U) ** 2)


# ---------------------------------------------------------------------- reading and checks


def kernel_set(kernels: Kernels | KernelSet, n_labels: int) -> KernelSet:
    """Return the kernels as a KernelSet, after checking each matrix.

    Matrices must be symmetric, positive semi-definite, of the same size and not zero. Above 500
    points, negative eigenvalues are searched only in a submatrix of 300 points. The methods raise
    if they meet a negative eigenvalue that this check missed.
    """
    given = _read(kernels)
    if n_labels > given.n_points:
        raise ValueError(
            f"y has {n_labels} labels, but the kernels have {given.n_points} points. y can be "
            "shorter than the kernels (the first points are then labeled), but not longer."
        )
    checked = isinstance(given, GivenKernels | CalledKernels)
    traces = np.empty(given.n_kernels)
    for i in range(given.n_kernels) if checked else ():
        rows = given.rows(i, slice(None))
        name = f"kernels[{i}]" if isinstance(given, GivenKernels) else f"kernels({i})"
        if rows.shape != (given.n_points, given.n_points):
            raise ValueError(
                f"kernels must all have the same size; kernels[0] has {given.n_points} points, "
                f"{name} has shape {rows.shape}."
            )
        traces[i] = check_kernel(rows, name)
    if checked:
        given._traces = traces
    return given


def check_kernel(K: NDArray[Any], name: str = "K") -> float:
    """Return the trace of a kernel matrix. Raises if it is not a kernel."""
    rounding = 1e-5 if K.dtype == np.float32 else _ROUNDING
    _refuse_asymmetric(K, name, rounding)
    n, trace = len(K), float(np.trace(K, dtype=float))
    some = np.linspace(0, n - 1, n if n <= _WHOLE else _TESTED).astype(np.intp)
    least = _negative(K if len(some) == n else K[np.ix_(some, some)], rounding * max(trace, 0.0))
    if least is not None:
        found = f"is {least:.6g}" if len(some) == n else f"is at most {least:.6g}"
        raise ValueError(
            f"{name} must be positive semi-definite; its smallest eigenvalue {found}. "
            "Use nearfar.distributions.repair_kernel to get the nearest kernel."
        )
    if not trace > 0:
        raise ValueError(f"{name} must not be zero; its trace is {trace:g}.")
    return trace


def _refuse_asymmetric(K: NDArray[Any], name: str, rounding: float) -> None:
    """Raise if a matrix is not symmetric or not finite."""
    n = len(K)
    # Multiply rows and columns by the same random vector: they differ if one entry is asymmetric.
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


def _negative(K: NDArray[Any], slack: float) -> float | None:
    """Return the smallest eigenvalue if it is below minus the slack, else None."""
    shifted = np.array(K, dtype=float, order="F")
    shifted.flat[:: len(K) + 1] += slack
    # A Cholesky factorization shows that there is none, ten times faster than eigenvalues do.
    if slack > 0 and linalg.lapack.dpotrf(shifted, overwrite_a=True)[1] == 0:
        return None
    least = least_eigenvalue(np.asarray(K, dtype=float))
    return least if least < -slack else None


def as_kernel(K: ArrayLike, name: str = "K") -> Matrix:
    """Return a kernel matrix as float64, after checking it."""
    values = np.asarray(as_matrix(K, name), dtype=np.float64)
    check_kernel(values, name)
    return values


def _read(kernels: Any) -> KernelSet:
    if isinstance(kernels, KernelSet):
        return kernels
    if callable(kernels):
        return CalledKernels(kernels, _count(kernels))
    if kernels is None:
        raise ValueError('kernels is None, which is allowed only with mode="free".')
    if isinstance(kernels, np.ndarray) and kernels.ndim not in (1, 3):
        raise ValueError(
            "kernels must be a list of matrices or an array of shape (n_kernels, n, n); got an "
            f"array of shape {kernels.shape}."
        )
    matrices = [as_matrix(K, f"kernels[{i}]") for i, K in enumerate(kernels)]
    if not matrices:
        raise ValueError("kernels is empty, but at least one kernel is needed.")
    return GivenKernels(matrices)


def _count(function: Any) -> int:
    """Return the number of kernels of a function: its length, or calls until IndexError."""
    if hasattr(function, "__len__"):
        number = len(function)
    else:
        number = 0
        while True:
            try:
                function(number)
            except IndexError:
                break
            number += 1
            if number == 10_000:
                raise ValueError(
                    "kernels, a function of an index, must raise IndexError for an index beyond "
                    "its last kernel, but it did not for any index below 10000."
                )
    if not number:
        raise ValueError("kernels is empty, but at least one kernel is needed.")
    return number


def as_matrix(K: Any, name: str) -> Any:
    """Return a square matrix of float64 or float32. Nothing else is checked."""
    try:
        matrix = np.asarray(K)
        if matrix.dtype not in (np.float64, np.float32):
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a matrix of numbers.") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(f"{name} must be a square matrix; got shape {matrix.shape}.")
    return matrix
