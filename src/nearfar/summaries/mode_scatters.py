"""Scatters of each mode of tensors: what the multilinear subspaces ask of their data.

Whoever can answer is a :class:`ModeScatters`: an array, read in blocks at every question
(:class:`StackScatters`), statistics that were accumulated before
(:class:`~nearfar.ModeStatistics`), or a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.solvers.tensor_algebra import mode_scatter, project_stack

# What is centred and multiplied while it is in cache.
_BLOCK_BYTES = 2**20


class ModeScatters(Protocol):
    r"""Of tensors :math:`X_{ij}` (the j-th of class i) of shape (d1, ..., dM).

    With factors (d_j, q_j), :math:`T = X \bar\times_k U^T` is X times their transposes in all modes
    but k; with None it is X. One that is None leaves its mode as it is.
    """

    @property
    def mean(self) -> Matrix:
        """The mean tensor, or whatever else the samples are counted from."""

    def within_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        r""":math:`\sum_{ij} (T_{ij} - \bar T_i)_{(k)} (T_{ij} - \bar T_i)_{(k)}^T`."""

    def between_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        r""":math:`\sum_i n_i (\bar T_i - \bar T)_{(k)} (\bar T_i - \bar T)_{(k)}^T`."""


class StackScatters:
    """Mode scatters of an array, which is passed over in blocks at every question.

    There is no centred copy of it. float32 is multiplied in float32 on centred blocks, which are
    summed in float64, unless squares leave its range.

    Parameters
    ----------
    X : ndarray of shape (n, d1, ..., dM)
        Finite tensors.
    codes : ndarray of shape (n,), optional
        The class of each, from 0, every class present; None for one class.
    center : bool, default=True
        False counts from zero: one class whose mean is taken to be zero.
    exact : bool, default=False
        Multiply in float64 whatever X is.
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
            self.class_means = self._class_means()
            shares = self.counts / len(X)
            self.mean: Matrix = np.tensordot(shares, self.class_means, 1)
        else:
            self.class_means, self.mean = np.zeros((1, *shape)), np.zeros(shape)
        self._centers = self._rounded_centers()

    def within_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Sum over all tensors, less the mean of their class."""
        total = self._within(mode, factors)
        squares = total.diagonal()
        limits = np.finfo(self._dtype)
        faint = squares.max(initial=0.0) <= limits.tiny / limits.eps
        if self._dtype != np.float64 and (faint or not np.isfinite(squares).all()):
            self._dtype = np.dtype(np.float64)  # squares leave the range of float32
            self._centers = self._rounded_centers()
            total = self._within(mode, factors)
        return total

    def between_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Sum over the class means, less the mean, weighted by their counts."""
        roots = np.sqrt(self.counts).reshape(-1, *[1] * self.mean.ndim)
        spread = roots * (self.class_means - self.mean)
        return mode_scatter(project_stack(spread, factors or [], skip=mode), mode)

    def _within(self, mode: int, factors: Sequence[Matrix | None] | None) -> Matrix:
        used = [None if U is None else U.astype(self._dtype) for U in factors or []]
        total = np.zeros((self._X.shape[mode + 1],) * 2)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for _, block in self._deviations(self._centers):
                total += mode_scatter(project_stack(block, used, skip=mode), mode)
        return total

    def _class_means(self) -> Matrix:
        """Means of the classes, summed over deviations from the first tensor."""
        first = self._X[:1]
        sums = np.zeros((len(self.counts), first.size))
        for rows, block in self._deviations(first):
            codes = self._codes[rows]
            here = sparse.csr_array(
                (np.ones(len(codes)), (codes, np.arange(len(codes)))),  # float64, as the sums
                shape=(len(sums), len(codes)),
            )
            sums += here @ block.reshape(len(block), -1)
        return (sums / self.counts[:, None] + first.reshape(1, -1)).reshape(-1, *first.shape[1:])

    def _rounded_centers(self) -> Floats:
        return self.class_means.astype(self._dtype)

    def _deviations(self, centers: Floats) -> Iterator[tuple[slice, Floats]]:
        """Blocks of tensors less the centre of their class, or the only one, in one buffer."""
        X = self._X
        at_once = max(1, min(len(X), _BLOCK_BYTES // max(1, X[:1].size * self._dtype.itemsize)))
        buffer = _far_from(centers, (at_once, *X.shape[1:]), self._dtype)
        for start in range(0, len(X), at_once):
            rows = slice(start, min(start + at_once, len(X)))
            block = buffer[: rows.stop - start]
            if len(centers) == 1:
                np.subtract(X[rows], centers, out=block)
            else:
                # mode="clip" lets take write into the buffer without one of its own.
                np.take(centers, self._codes[rows], axis=0, out=block, mode="clip")
                np.subtract(X[rows], block, out=block)
            yield rows, block


class UncenteredScatters:
    """Mode scatters of tensors counted from zero, from those about the mean.

    Parameters
    ----------
    centered : ModeScatters
        Scatters of all tensors in one class.
    n_samples : float
        The number of tensors.
    """

    def __init__(self, centered: ModeScatters, n_samples: float) -> None:
        self._centered = centered
        self._offset = np.sqrt(n_samples) * centered.mean[None]
        self.mean: Matrix = np.zeros_like(centered.mean)

    def within_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Sum over all tensors: that about the mean, and that of the mean."""
        offset = project_stack(self._offset, factors or [], skip=mode)
        return self._centered.within_scatter(mode, factors) + mode_scatter(offset, mode)

    def between_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Zero: there is one class, whose mean is taken to be zero."""
        return np.zeros((self.mean.shape[mode],) * 2)


def _far_from(other: Floats, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Floats:
    """An empty array half a page off another, modulo pages.

    Copies between addresses that differ by a few bytes modulo 4096 take four times as long on some
    processors.
    """
    page = 4096
    room = np.empty(prod(shape) * dtype.itemsize + page, np.uint8)
    start = (other.ctypes.data + page // 2 - room.ctypes.data) % page
    start -= start % dtype.itemsize
    return room[start : start + prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
