"""Statistics of dask arrays and dataframes: computed per block on the cluster, then merged.

Each worker computes a summary of its blocks, for example :class:`ClassStatistics`. The summaries
are merged as a tree in the order of the blocks. Both steps are pure functions, so a cluster that
loses a worker can repeat its tasks, and every row counts once. The shape of the tree depends only
on the number of blocks: the same blocks give bitwise identical results on any cluster.

dask is imported only when a dask collection is passed.
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
from nearfar.blocks import use_one_blas_thread
from nearfar.extras import import_optional
from nearfar.labels import encode_labels
from nearfar.summaries.class_statistics import ClassStatistics, check_weight

#: Number of summaries merged in one task.
FAN_IN = 8

BlockList = list[Any]


class Mergeable(Protocol):
    """Protocol for summaries that can be updated in batches and merged."""

    @property
    def n_classes(self) -> int:
        """Number of classes, which is 0 before rows are added."""

    def partial_fit(self, X: ArrayLike, y: Any = None) -> Any:
        """Add rows and return the object itself."""

    def merge(self, other: Any) -> Any:
        """Return the merged summary as a new object."""


Summary = TypeVar("Summary", bound=Mergeable)


def is_dask(data: Any) -> bool:
    """Return True for a dask collection, without importing dask.

    >>> is_dask(np.zeros((2, 2)))
    False
    """
    packages = {str(kind.__module__).partition(".")[0] for kind in type(data).__mro__}
    return not packages.isdisjoint({"dask", "dask_expr"})


def make_empty_like(X: Any) -> ArrayLike:
    """Return an empty array or frame with the columns and types of X, a Dask collection."""
    if _is_frame(X) and X.ndim == 2:
        pandas = import_optional("pandas", "dask")
        dtypes = X.dtypes
        frame = pandas.DataFrame({k: pandas.Series(dtype=kind) for k, kind in enumerate(dtypes)})
        return frame.set_axis(dtypes.index, axis=1)
    shape = (0,) if _is_frame(X) else (0, *_check_has_chunks(X).shape[1:])
    if any(np.isnan(size) for size in shape):
        raise ValueError("X has an unknown number of features; call X.compute_chunk_sizes() first.")
    return np.empty(shape, dtype=X.dtype)


class Blocks:
    """Blocks of a dask array or dataframe, with the labels and weights of their rows.

    If chunk sizes are unknown, block k of X belongs to block k of y. If they are known, X and y may
    have different chunks.

    Parameters
    ----------
    X : dask array or dataframe
        Samples, split into blocks. Each row of a dataframe is a sample. The samples of an array may
        be vectors or tensors.
    y, sample_weight : dask array or series, or array-like, optional
        Labels and weights of the rows.
    shape : tuple of int, optional
        Shape to which each sample is reshaped. None means that samples are not reshaped.
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        shape: tuple[int, ...] | None = None,
    ) -> None:
        dask = import_optional("dask", "dask")
        X, y, sample_weight = map(_rechunk_rows, (X, y, sample_weight))
        rows = _to_delayed_blocks(X)
        sizes = _get_block_sizes(X)
        if sizes is None and any(_needs_sizes(data, len(rows)) for data in (y, sample_weight)):
            sizes = dask.compute([dask.delayed(len)(block) for block in rows])[0]
        labels = _align_with_blocks(y, "y", rows, sizes)
        weights = _align_with_blocks(sample_weight, "sample_weight", rows, sizes)
        self._blocks = list(zip(rows, labels, weights, strict=True))
        self._weighted = sample_weight is not None
        self._shape = shape

    def compute_statistics(self, empty: Summary) -> Summary:
        """Use dask to add all blocks to a copy of the summary ``empty``, and return the copy.

        Errors in rows, labels or weights name the block.
        """
        statistics = self.reduce_blocks(
            _summarize_block, merge_summaries, shape=self._shape, empty=empty
        )
        if statistics.n_classes == 0 and not self._weighted:
            raise ValueError("X has 0 sample(s): all of its blocks are empty.")
        return statistics

    def reduce_blocks(
        self, compute: Callable[..., Any], join: Callable[[list[Any]], Any], **options: Any
    ) -> Any:
        """Apply ``compute`` to each block, and combine the results with ``join``.

        The arguments of ``compute`` are ``(number, rows, labels, weight, **options)``. ``compute``
        and ``join`` must be pure functions. The tree of joins depends only on the number of blocks.
        """
        dask = import_optional("dask", "dask")
        options = {name: dask.delayed(value, pure=True) for name, value in options.items()}
        compute_block, join_values = dask.delayed(compute, pure=True), dask.delayed(join, pure=True)
        level = [compute_block(k, *arrays, **options) for k, arrays in enumerate(self._blocks)]
        while len(level) > 1:
            level = [join_values(level[k : k + FAN_IN]) for k in range(0, len(level), FAN_IN)]
        # dask threads in this process share one BLAS library, so limit BLAS to one thread. Workers
        # in other processes have their own BLAS.
        with use_one_blas_thread():
            (value,) = dask.compute(level[0])
        return value


def compute_block_statistics(
    X: Any, y: Any = None, sample_weight: Any = None, *, pooled: bool = False
) -> ClassStatistics:
    """Return the class statistics of all blocks of X, computed with dask.

    Without ``y``, all rows belong to one class.
    """
    # Every row is read only once, so computing in float64 costs little.
    empty = ClassStatistics(pooled=pooled, exact=True)
    return Blocks(X, y, sample_weight).compute_statistics(empty)


def _summarize_block(
    number: int,
    rows: Any,
    labels: Any,
    weight: Any,
    *,
    shape: tuple[int, ...] | None,
    empty: Summary,
) -> Summary:
    """Return the statistics of one block. Runs on a worker."""
    statistics = deepcopy(empty)
    try:
        for name, values in (("y", labels), ("sample_weight", weight)):
            if values is not None and len(values) != len(rows):
                raise ValueError(
                    f"X has {len(rows)} rows but {name} has {len(values)}. Blocks of X and {name} "
                    "must hold the same rows. Partition them in the same way, or pass arrays with "
                    "known chunk sizes (compute_chunk_sizes)."
                )
        if not len(rows):
            return statistics
        X = read_block(rows, shape)
        return statistics.partial_fit(X, labels, *([] if weight is None else [weight]))
    except ValueError as error:
        raise ValueError(f"Block {number} of X: {error}") from error


def read_block(rows: Any, shape: tuple[int, ...] | None) -> Floats:
    """Return the rows of a block as floats, reshaped to ``shape``. Runs on a worker."""
    X: Floats = check_array(
        rows,
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        allow_nd=True,
        input_name="X",
    )
    return X if shape is None else X.reshape(len(X), *shape)


def merge_summaries(summaries: list[Summary]) -> Summary:
    """Merge the summaries in order, without changing them."""
    # A summary may have to be merged again after a worker is lost, so it must not be changed.
    return reduce(lambda first, second: first.merge(second), summaries)


# ---------------------------------------------------------------------- alignment of blocks


def _needs_sizes(data: Any, n_blocks: int) -> bool:
    """Return True if labels or weights must be split into blocks of the same sizes as X."""
    if data is None or not is_dask(data):
        return data is not None
    own_sizes = _get_block_sizes(data)
    return own_sizes is not None and len(own_sizes) != n_blocks


def _align_with_blocks(data: Any, name: str, rows: BlockList, sizes: list[int] | None) -> BlockList:
    """Return a list with the labels or weights of each block.

    The entries are None if ``data`` is None.
    """
    if data is None:
        return [None] * len(rows)
    if not is_dask(data):
        assert sizes is not None
        values = _check_local(data, name, sum(sizes))
        edges = [0, *np.cumsum(sizes).tolist()]
        return [values[low:high] for low, high in pairwise(edges)]
    own_sizes = _get_block_sizes(data)
    if own_sizes is not None and sizes is not None and own_sizes != sizes:
        if sum(own_sizes) != sum(sizes):
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X has {sum(sizes)} "
                f"rows and {name} has {sum(own_sizes)}."
            )
        data = data.rechunk({0: tuple(sizes)})
    blocks = _to_delayed_blocks(data)
    if len(blocks) != len(rows):
        raise ValueError(
            f"X has {len(rows)} blocks but {name} has {len(blocks)}, and block sizes are unknown. "
            "Partition them in the same way, or pass arrays with known chunk sizes "
            "(compute_chunk_sizes)."
        )
    return blocks


def _check_local(data: ArrayLike, name: str, n_rows: int) -> NDArray[Any]:
    """Check labels or weights that are not dask arrays, and return them as an array."""
    if name == "sample_weight":
        return check_weight(data, n_rows)
    classes, codes = encode_labels(data)
    if len(codes) != n_rows:
        raise ValueError(
            f"Found input variables with inconsistent numbers of samples: X has {n_rows} rows and "
            f"y has {len(codes)} labels."
        )
    return np.asarray(classes[codes])


def _rechunk_rows(data: Any) -> Any:
    """Rechunk arrays to blocks of whole rows; return other data unchanged."""
    if not is_dask(data) or _is_frame(data):
        return data
    return _check_has_chunks(data).rechunk(dict.fromkeys(range(1, data.ndim), -1))


def _to_delayed_blocks(data: Any) -> BlockList:
    """Return one delayed block per chunk of rows."""
    # Do not optimize the graphs. After optimization, the tasks that X and y share would be computed
    # twice, and dataframes might be repartitioned.
    return list(np.ravel(data.to_delayed(optimize_graph=False)))


def _get_block_sizes(data: Any) -> list[int] | None:
    """Return the number of rows of each block, or None if the numbers are unknown."""
    if _is_frame(data) or any(np.isnan(size) for size in data.chunks[0]):
        return None
    return [int(size) for size in data.chunks[0]]


def _is_frame(data: Any) -> bool:
    # Check the type, because hasattr returns True for every attribute of a delayed object.
    return hasattr(type(data), "map_partitions") and hasattr(type(data), "ndim")


def _check_has_chunks(data: Any) -> Any:
    if not hasattr(type(data), "rechunk"):
        type_name = f"{type(data).__module__}.{type(data).__name__}"
        raise ValueError(
            f"X, y and sample_weight must be dask arrays or dataframes; got {type_name}."
        )
    return data
