"""Mode scatters of a dask array, computed with one reduction per scatter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from nearfar.arrays import Matrix
from nearfar.blocks import split_rows
from nearfar.labels import encode_labels
from nearfar.solvers.tensor_algebra import mode_scatter, project_stack
from nearfar.summaries.distributed import Blocks, read_block
from nearfar.summaries.mode_statistics import ModeStatistics

# Maximum size, in bytes, of a block of tensors. Larger blocks would not stay in the processor
# cache.
_MAX_BLOCK_BYTES = 2**21


class BlockScatters:
    """Scatter matrix of each mode, for tensors in a dask array or dataframe.

    Implements :class:`~nearfar.summaries.mode_scatters.ModeScatters`.

    The first reduction computes the class means and the mode scatters without a projection. Each
    within scatter after a projection needs another reduction, which computes the blocks again. Use
    ``X.persist()`` to keep the blocks in memory. Workers receive the factors, the mean and the
    projected class means. Each block returns one matrix of the size of the mode. float32 values are
    multiplied in float64.

    Parameters
    ----------
    X : dask array or dataframe of shape (n, d1, ..., dk) or (n, d)
        Tensors, or rows that hold flattened tensors.
    y : dask array or series, or array-like of shape (n,), optional
        Class labels. None means one class.
    shape : tuple of int
        Shape of a tensor.
    """

    def __init__(self, X: Any, y: Any = None, *, shape: tuple[int, ...]) -> None:
        self._blocks = Blocks(X, y, shape=shape)
        self._shape = shape
        #: Class means, and the scatter of each mode without projecting the other modes.
        self.statistics = self._blocks.compute_statistics(
            ModeStatistics(storage="modes", exact=True)
        )

    @property
    def mean(self) -> Matrix:
        """Mean of all tensors."""
        return self.statistics.mean

    @property
    def total_weight(self) -> float:
        """Total number of samples."""
        return self.statistics.total_weight

    def between_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Return the weighted scatter of the class means. X is not read again."""
        return self.statistics.between_scatter(mode, factors)

    def within_scatter(self, mode: int, factors: Sequence[Matrix | None] | None = None) -> Matrix:
        """Return the scatter about the class means. If ``factors`` is passed, X is read again."""
        projections = [None if k == mode else U for k, U in enumerate(factors or ())]
        if all(U is None for U in projections):
            return self.statistics.within_scatter(mode)
        class_means = project_stack(self.statistics.means - self.mean, projections)
        return self._blocks.reduce_blocks(
            _compute_within_scatter,
            _add_matrices,
            shape=self._shape,
            mode=mode,
            factors=projections,
            mean=self.mean,
            class_means=dict(zip(self.statistics.classes.tolist(), class_means, strict=True)),
        )


def _compute_within_scatter(
    number: int,
    rows: Any,
    labels: Any,
    weight: None,
    *,
    shape: tuple[int, ...],
    mode: int,
    factors: list[Matrix | None],
    mean: Matrix,
    class_means: dict[Any, Matrix],
) -> Matrix:
    """Return the scatter of one block about the class means. Runs on a dask worker."""
    total = np.zeros((shape[mode], shape[mode]))
    if not len(rows):
        return total
    X = read_block(rows, shape)
    classes, codes = encode_labels(np.zeros(len(X), int) if labels is None else labels)
    centers = np.array([_get_class_mean(class_means, label, number) for label in classes.tolist()])
    n_rows = max(1, _MAX_BLOCK_BYTES // (8 * mean.size))
    for block in split_rows(len(X), 8 * mean.size, max_rows=n_rows):
        # Subtract the class means after the projection, because projected means take less memory.
        T = project_stack(X[block] - mean, factors) - centers[codes[block]]
        total += mode_scatter(T, mode)
    return total


def _get_class_mean(class_means: dict[Any, Matrix], label: Any, number: int) -> Matrix:
    try:
        return class_means[label]
    except KeyError as error:
        raise ValueError(
            f"Block {number} of X: the label {label!r} did not occur when the blocks were first "
            "computed. Blocks must be the same each time they are computed. Use X.persist() to "
            "keep them."
        ) from error


def _add_matrices(matrices: list[Matrix]) -> Matrix:
    return reduce(np.add, matrices)
