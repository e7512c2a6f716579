"""Summaries of dask arrays and dataframes: block by block on the cluster, then merged.

Each block becomes a summary of its own where it lies, :class:`ClassStatistics` for one, with the
labels it holds; these are merged as a tree over the order of the blocks. Both are pure functions,
so that a cluster which loses a worker computes anew what went with it, and every row counts once.
The shape of the tree depends on the number of blocks alone: the same blocks give the same bits, on
any cluster.

dask is imported when a dask collection turns up, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import reduce
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from nearfar.arrays import Floats
from nearfar.blocks import one_blas_thread
from nearfar.extras import require
from nearfar.labels import encode_labels
from nearfar.summaries.class_statistics import ClassStatistics, check_weight

#: Statistics merged in one task.
FAN_IN = 8

Parts = list[Any]


class Mergeable(Protocol):
    """A summary that takes batches, and parts of which merge into one."""

    @property
    def n_classes(self) -> int:
        """Number of classes seen; none where there was no row."""

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Any:
        """Add rows; returns itself."""

    def merge(self, other: Any) -> Any:
        """Both together, as a new object."""


Summary = TypeVar("Summary", bound=Mergeable)


def is_dask(data: Any) -> bool:
    """Whether it is a dask collection; tells without importing dask.

    >>> is_dask(np.zeros((2, 2)))
    False
    """
    packages = {str(kind.__module__).partition(".")[0] for kind in type(data).__mro__}
    return not packages.isdisjoint({"dask", "dask_expr"})


def without_rows(X: Any) -> ArrayLike:
    """An array or frame like X but without its rows: what can be checked before they are there."""
    if _is_frame(X) and X.ndim == 2:
        pandas = require("pandas", "dask")
        dtypes = X.dtypes
        frame = pandas.DataFrame({k: pandas.Series(dtype=kind) for k, kind in enumerate(dtypes)})
        return frame.set_axis(dtypes.index, axis=1)
    shape = (0,) if _is_frame(X) else (0, *_array(X).shape[1:])
    if any(np.isnan(size) for size in shape):
        raise ValueError("X has an unknown number of features; call X.compute_chunk_sizes() first.")
    return np.empty(shape, dtype=X.dtype)


class Blocks:
    """Blocks of rows of a dask collection, with the labels and weights of each.

    Of unknown chunk sizes, block k of X belongs to block k of y; known ones need not be the same.

    Parameters
    ----------
    X : dask array or dataframe
        Rows; of an array, tensors too.
    y, sample_weight : dask array or series, or array-like, optional
        Labels and weights.
    shape : tuple of int, optional
        The shape that each row has, if it is not that of X.
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        dask = require("dask", "dask")
        X, y, sample_weight = map(_whole_rows, (X, y, sample_weight))
        rows = _parts(X)
        sizes = _sizes(X)
        if sizes is None and any(_needs_sizes(data, len(rows)) for data in (y, sample_weight)):
            sizes = dask.compute([dask.delayed(len)(part) for part in rows])[0]
        labels = _beside(y, "y", rows, sizes)
        weights = _beside(sample_weight, "sample_weight", rows, sizes)
        self._parts = list(zip(rows, labels, weights, strict=True))
        self._weighted = sample_weight is not None
        self._shape = shape

    def statistics(self, empty: Summary) -> Summary:
        """What ``empty`` is after all blocks, computed where dask computes and brought here.

        What is wrong with rows, labels or weights is said with the number of their block.
        """
        statistics = self.reduced(_of_block, merged, shape=self._shape, empty=empty)
        if statistics.n_classes == 0 and not self._weighted:
            raise ValueError("X has 0 sample(s): every block of it is empty.")
        return statistics

    def reduced(
        self, of_block: Callable[..., Any], join: Callable[[list[Any]], Any], **options: Any
    ) -> Any:
        """A value for each block, ``of_block(number, rows, labels, weight, **options)``, joined.

        Both must be pure functions. The tree of joins depends on the number of blocks alone.
        """
        dask = require("dask", "dask")
        options = {name: dask.delayed(value, pure=True) for name, value in options.items()}
        make, both = dask.delayed(of_block, pure=True), dask.delayed(join, pure=True)
        level = [make(k, *parts, **options) for k, parts in enumerate(self._parts)]
        while len(level) > 1:
            level = [both(level[k : k + FAN_IN]) for k in range(0, len(level), FAN_IN)]
        # Threads of dask in this process share its BLAS; workers elsewhere have one of their own.
        with one_blas_thread():
            (value,) = dask.compute(level[0])
        return value


def statistics_of_blocks(
    X: Any, y: Any = None, sample_weight: Any = None, *, pooled: bool = False
) -> ClassStatistics:
    """The class statistics of all blocks of X, computed where dask computes and brought here.

    Without y all rows are of one class.
    """
    # The rows are seen once: exact.
    empty = ClassStatistics(pooled=pooled, exact=True)
    return Blocks(X, y, sample_weight).statistics(empty)


def _of_block(
    number: int,
    rows: Any,
    labels: Any,
    weight: Any,
    *,
    shape: tuple[int, ...] | None,
    empty: Summary,
) -> Summary:
    """The statistics of one block; runs on a worker."""
    statistics = deepcopy(empty)
    try:
        for name, beside in (("y", labels), ("sample_weight", weight)):
            if beside is not None and len(beside) != len(rows):
                raise ValueError(
                    f"X has {len(rows)} rows but {name} has {len(beside)}. Blocks of X and {name} "
                    "must hold the same rows: make them alike, or give arrays of known chunk sizes "
                    "(compute_chunk_sizes)."
                )
        if not len(rows):
            return statistics
        X = block_array(rows, shape)
        return statistics.partial_fit(X, labels, *([] if weight is None else [weight]))
    except ValueError as error:
        raise ValueError(f"Block {number} of X: {error}") from error


def block_array(rows: Any, shape: tuple[int, ...] | None) -> Floats:
    """The rows of a block as floats, each of such a shape; for functions that run on a worker."""
    X: Floats = check_array(
        rows,
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        allow_nd=True,
        input_name="X",
    )
    return X if shape is None else X.reshape(len(X), *shape)


def merged(parts: list[Summary]) -> Summary:
    """All of them as one, in their order; none is changed."""
    # So a part may be merged again when a worker was lost.
    return reduce(lambda one, other: one.merge(other), parts)


# ---------------------------------------------------------------------- blocks side by side


def _needs_sizes(data: Any, n_blocks: int) -> bool:
    """Whether labels or weights must be cut where the blocks of X end."""
    if data is None or not is_dask(data):
        return data is not None
    own = _sizes(data)
    return own is not None and len(own) != n_blocks


def _beside(data: Any, name: str, rows: Parts, sizes: list[int] | None) -> Parts:
    """The labels or weights of each block of rows; None for each where there are none."""
    if data is None:
        return [None] * len(rows)
    if not is_dask(data):
        assert sizes is not None
        values = _local(data, name, sum(sizes))
        edges = [0, *np.cumsum(sizes).tolist()]
        return [values[low:high] for low, high in pairwise(edges)]
    own = _sizes(data)
    if own is not None and sizes is not None and own != sizes:
        if sum(own) != sum(sizes):
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {sum(sizes)} "
                f"rows and {name} has {sum(own)}."
            )
        data = data.rechunk({0: tuple(sizes)})
    parts = _parts(data)
    if len(parts) != len(rows):
        raise ValueError(
            f"X has {len(rows)} blocks and {name} has {len(parts)}, of unknown sizes: give them "
            "the same blocks, or arrays of known chunk sizes (compute_chunk_sizes)."
        )
    return parts


def _local(data: ArrayLike, name: str, n_rows: int) -> NDArray[Any]:
    """Labels or weights that are here already, checked as a whole."""
    if name == "sample_weight":
        return check_weight(data, n_rows)
    classes, codes = encode_labels(data)
    if len(codes) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows and "
            f"y has {len(codes)} labels."
        )
    return np.asarray(classes[codes])


def _whole_rows(data: Any) -> Any:
    """Arrays in blocks of whole rows; anything else as it is."""
    if not is_dask(data) or _is_frame(data):
        return data
    return _array(data).rechunk(dict.fromkeys(range(1, data.ndim), -1))


def _parts(data: Any) -> Parts:
    """One delayed block for each chunk of rows."""
    # As it is: optimised one by one, X and y would each compute what they have in common, and
    # frames might be cut into other partitions.
    return list(np.ravel(data.to_delayed(optimize_graph=False)))


def _sizes(data: Any) -> list[int] | None:
    """Rows of each block; None where they are not known before computing."""
    if _is_frame(data) or any(np.isnan(size) for size in data.chunks[0]):
        return None
    return [int(size) for size in data.chunks[0]]


def _is_frame(data: Any) -> bool:
    # Of the type: a delayed object has every attribute one asks for.
    return hasattr(type(data), "map_partitions") and hasattr(type(data), "ndim")


def _array(data: Any) -> Any:
    if not hasattr(type(data), "rechunk"):
        kind = f"{type(data).__module__}.{type(data).__name__}"
        raise ValueError(f"X, y and sample_weight may be dask arrays or dataframes; got a {kind}.")
    return data
