"""Scatter matrices of each mode of tensors, for multilinear subspace methods.

Implementations of the protocol :class:`ModeScatters` are arrays that are read in blocks
(:class:`StackScatters`), accumulated statistics (:class:`~nearfar.ModeStatistics`), and dask
collections (:class:`~nearfar.summaries.block_scatters.BlockScatters`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.solvers.tensor_algebra import mode_scatter, project_stack

# Maximum size, in bytes, of a block of tensors. Larger blocks would not stay in the processor
# cache.
_BLOCK_BYTES = 2**20


class ModeScatters(Protocol):
    r"""Protocol for objects that compute one scatter matrix of tensors per mode.

    :math:`X_{ij}` is tensor j of class i.

    Tensors have the shape (d1, ..., dM). With factors of shape (d_j, q_j),
    :math:`T = X \bar\times_k U^T` is X multiplied by their transposes in all modes except k. A
    factor that is None does not project its mode. Without factors, T is X.
    """

    @property
    def mean(self) -> Matrix:
        """Mean tensor, or zero if the scatters are not centered."""

    def within_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        r"""Return :math:`\sum_{ij} (T_{ij} - \bar T_i)_{(k)} (T_{ij} - \bar T_i)_{(k)}^T`."""

    def between_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        r"""Return :math:`\sum_i n_i (\bar T_i - \bar T)_{(k)} (\bar T_i - \bar T)_{(k)}^T`."""


class StackScatters:
    """Scatter matrix of each mode, for an array of tensors that is read in blocks.

    No centered copy of the array is made. float32 blocks are centered and multiplied in float32 and
    summed in float64, unless squares exceed the range of float32.

    Parameters
    ----------
    X : ndarray of shape (n, d1, ..., dM)
        Finite tensors.
    codes : ndarray of shape (n,), optional
        Class code of each tensor. The codes are integers from 0, without gaps. None means one
        class.
    center : bool, default=True
        Whether to subtract the class means. False treats the tensors as one class of mean zero.
    exact : bool, default=False
        Whether to multiply float32 tensors in float64.
    """

    def __init__(
        self,
        X: Floats,
        codes: Indices | None = None,
        *,
        center: bool = True,
        exact: bool = False,
    ) -> None:
        self._X = X
        self._codes = np.zeros(len(X), np.intp) if codes is None else codes
        self._dtype = np.dtype(np.float64) if exact else X.dtype
        self.counts = np.bincount(self._codes).astype(np.float64)
        shape = X.shape[1:]
        if center:
            self.class_means = self._compute_class_means()
            fractions = self.counts / len(X)
            self.mean: Matrix = np.tensordot(fractions, self.class_means, 1)
        else:
            self.class_means, self.mean = np.zeros((1, *shape)), np.zeros(shape)
        self._centers = self._round_centers()

    def within_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Return the scatter about the class means."""
        total = self._compute_within(mode, factors)
        squares = total.diagonal()
        limits = np.finfo(self._dtype)
        underflows = squares.max(initial=0.0) <= limits.tiny / limits.eps
        if self._dtype != np.float64 and (underflows or not np.isfinite(squares).all()):
            # Squares exceed the range of float32, so repeat the computation in float64.
            self._dtype = np.dtype(np.float64)
            self._centers = self._round_centers()
            total = self._compute_within(mode, factors)
        return total

    def between_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Return the scatter of the class means about the mean, weighted by class size."""
        roots = np.sqrt(self.counts).reshape(-1, *[1] * self.mean.ndim)
        deviations = roots * (self.class_means - self.mean)
        return mode_scatter(project_stack(deviations, factors or [], skip=mode), mode)

    def _compute_within(self, mode: int, factors: Sequence[Matrix | None] | None) -> Matrix:
        rounded_factors = [None if U is None else U.astype(self._dtype) for U in factors or []]
        total = np.zeros((self._X.shape[mode + 1],) * 2)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for _, block in self._iterate_deviations(self._centers):
                total += mode_scatter(project_stack(block, rounded_factors, skip=mode), mode)
        return total

    def _compute_class_means(self) -> Matrix:
        """Return the class means. The sums are computed relative to the first tensor."""
        first = self._X[:1]
        sums = np.zeros((len(self.counts), first.size))
        for rows, block in self._iterate_deviations(first):
            codes = self._codes[rows]
            indicator = sparse.csr_array(
                (np.ones(len(codes)), (codes, np.arange(len(codes)))),  # in float64
                shape=(len(sums), len(codes)),
            )
            sums += indicator @ block.reshape(len(block), -1)
        return (sums / self.counts[:, None] + first.reshape(1, -1)).reshape(-1, *first.shape[1:])

    def _round_centers(self) -> Floats:
        return self.class_means.astype(self._dtype)

    def _iterate_deviations(self, centers: Floats) -> Iterator[tuple[slice, Floats]]:
        """Yield blocks of tensors minus their class centers. All blocks use the same buffer."""
        X = self._X
        block_size = max(1, min(len(X), _BLOCK_BYTES // max(1, X[:1].size * self._dtype.itemsize)))
        buffer = _allocate_far_from(centers, (block_size, *X.shape[1:]), self._dtype)
        for start in range(0, len(X), block_size):
            rows = slice(start, min(start + block_size, len(X)))
            block = buffer[: rows.stop - start]
            if len(centers) == 1:
                np.subtract(X[rows], centers, out=block)
            else:
                # `np.take` with mode="clip" writes to the buffer without a temporary array.
                np.take(centers, self._codes[rows], axis=0, out=block, mode="clip")
                np.subtract(X[rows], block, out=block)
            yield rows, block


class UncenteredScatters:
    """Scatter matrix of each mode about zero, computed from the scatter matrix about the mean.

    Parameters
    ----------
    centered : ModeScatters
        Scatters about the mean, with all tensors in one class.
    n_samples : float
        The number of tensors.
    """

    def __init__(self, centered: ModeScatters, n_samples: float) -> None:
        self._centered = centered
        self._offset = np.sqrt(n_samples) * centered.mean[None]
        self.mean: Matrix = np.zeros_like(centered.mean)

    def within_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Return the scatter about zero: the centered scatter plus the scatter of the mean."""
        offset = project_stack(self._offset, factors or [], skip=mode)
        return self._centered.within_scatter(mode, factors) + mode_scatter(offset, mode)

    def between_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Return a zero matrix, because there is only one class."""
        return np.zeros((self.mean.shape[mode],) * 2)


def _allocate_far_from(array: Floats, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Floats:
    """Return an empty array whose address differs from that of ``array`` by 2048, modulo 4096.

    On some processors, copies between addresses that differ by a few bytes modulo 4096 take four
    times as long.
    """
    page = 4096
    memory = np.empty(prod(shape) * dtype.itemsize + page, np.uint8)
    start = (array.ctypes.data + page // 2 - memory.ctypes.data) % page
    start -= start % dtype.itemsize
    return memory[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
