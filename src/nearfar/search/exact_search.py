"""Exact Euclidean neighbors: a fast search proposes candidates, and a float64 check decides.

The fast search expands ``||x - q||^2 = ||x||^2 - 2 x'q + ||q||^2``. This runs at the speed of
matrix products, with rounding errors. The distance ``||x - q||`` of each candidate is therefore
computed again from differences. If rounding could have hidden a closer row, the query is searched
again. The result thus depends on the data alone: it is the same for every number of threads,
version of BLAS and ``working_memory``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from sklearn.neighbors import KDTree

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import count_blas_threads, map_in_order, split_rows, use_one_blas_thread
from nearfar.search.block_search import (
    BlockProducts,
    facing,
    kth_at_most,
    nearest_by_blocks,
    rows_at_once,
)
from nearfar.search.candidates import (
    SPARE,
    check_n_neighbors,
    first_of_pairs,
    identical_rows,
    pair_distances,
    ranked,
    reach_of,
    reach_of_nearest,
    rounding_of,
    without_self,
)
from nearfar.search.faiss_search import nearest_by_faiss
from nearfar.search.placed_rows import PlacedRows, placed

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_TINY = float(np.finfo(np.float64).tiny)
_FEW_SPARE = 2
_QUERIES_AT_ONCE = 2048
# Number of multiplications below which starting threads takes longer than the products.
_WORTH_THREADS = 10**8
# Number of multiplications below which loading faiss takes longer than the search.
_WORTH_FAISS = 10**10
# Limits for computing the distances of a query to all rows at once: number of rows, number of
# entries of X, and number of distances per block of queries.
_FEW_ROWS, _FEW_NUMBERS, _DISTANCES_AT_ONCE = 8192, 2**22, 2**20
# Maximum number of candidates per query of that search, in total and per neighbor (the larger of
# both counts). A query with more is searched again.
_CROWD, _CROWD_PER_NEIGHBOR = 256, 8
# For the search within a radius: maximum number of queries per block, maximum number of pairs per
# block, and the fraction of queries for which rounding may exceed this fraction of the squared
# radius before float64 is used.
_QUERIES_WITHIN = 512
_PAIRS_AT_ONCE = 2**19
_ROUGH = 0.05
# Maximum number of features: minimum number of rows for which trees are faster than blocks. The
# next constant is the minimum number of queries that is worth building a tree. Measured in
# benchmarks/results/search.md: trees are 2.6 to 9 times faster on one thread, which leaves a margin
# for blocks on several threads. With 8 or more features, blocks are faster.
_ROWS_FOR_A_TREE = {
    "neighbors": {3: 5_000, 5: 20_000},
    "impostors": {2: 60_000, 3: 100_000, 5: 300_000},
}
_QUERIES_FOR_A_TREE = 1000


def kneighbors(
    X: Floats,
    queries: Floats | None = None,
    *,
    n_neighbors: int,
    search: str = "auto",
    n_threads: int | None = None,
) -> tuple[Matrix, Indices]:
    """Return distances and indices of the nearest rows of ``X`` to each query, exactly.

    The result is the same as computing ``np.linalg.norm(X - query, axis=1)`` in float64 for every
    query and sorting it with a stable sort: among rows at the same distance, the smaller index
    comes first. Distances are exactly 0 for identical rows, and accurate however far the data are
    from the origin.

    Rows are float64, float32 or float16, finite and 2-d (not checked here), in memory or
    memory-mapped. Without queries, the queries are the rows of ``X``, and no row is its own
    neighbor. Rows are excluded by index, not by distance: identical rows are neighbors at distance
    0. Raises a ``ValueError`` if ``n_neighbors`` is out of range, or if squared distances would
    overflow.

    Float32 products of blocks of rows (:mod:`nearfar.search.block_search`), scikit-learn's k-d tree
    or faiss (``search``, see :func:`choose_search`) propose a few more candidates than requested,
    whose distances are computed again in float64. If the k-th and the last candidate of a query
    differ by less than the rounding error, the query is searched again: first by products in
    float64, finally by measuring all rows that may be within the k-th distance. Ties and duplicates
    cause this, so identical rows and queries are then searched only once. With at most a few
    thousand rows, all rows that rounded products cannot exclude are measured at once.

    Blocks of queries are distributed over ``n_threads`` threads, by default as many as BLAS would
    use. The number of threads does not change the result.

    Cost: O(n_queries n_samples n_features) in matrix products. In addition to the result, memory is
    needed for blocks within scikit-learn's ``working_memory``, at most about 64 MB, and not for a
    copy of the rows.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0], [3.0]])
    >>> distances, indices = kneighbors(X, n_neighbors=2)
    >>> indices
    array([[1, 2],
           [2, 0],
           [1, 0],
           [1, 2]])
    >>> distances[1]
    array([0., 1.])
    >>> kneighbors(X, np.array([[2.0]]), n_neighbors=3)
    (array([[1., 1., 1.]]), array([[1, 2, 3]]))
    """
    check_n_neighbors(n_neighbors, len(X), without_self=queries is None)
    X = np.asarray(X)
    Q = X if queries is None else np.asarray(queries)
    threads = count_blas_threads() if n_threads is None else n_threads
    if search == "auto":
        search = choose_search(
            *X.shape, n_queries=len(Q), n_neighbors=n_neighbors, n_threads=threads
        )
    if search not in ("blocks", "tree", "faiss"):
        raise ValueError(f'search must be "auto", "blocks", "tree" or "faiss"; got {search!r}.')
    if queries is None:
        # One more, since each row finds itself, or only identical rows with a smaller index.
        return without_self(*_nearest(X, X, n_neighbors + 1, search, threads))
    return _nearest(X, Q, n_neighbors, search, threads)


def radius_neighbors(
    X: Floats, queries: Floats | None = None, *, radius: float
) -> tuple[Indices, Indices, Matrix]:
    """Return all rows of ``X`` within ``radius`` of each query, exactly.

    The result is indptr, indices and distances (CSR). The entries of query ``i`` are
    ``indptr[i]`` to ``indptr[i + 1]``, sorted by distance, then index. The radius is inclusive: it
    is compared with ``||x - q||`` computed from differences in float64. For the input and the cost,
    see :func:`kneighbors`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [1.0], [3.0]])
    >>> indptr, indices, distances = radius_neighbors(X, radius=1)
    >>> indptr
    array([0, 2, 4, 6, 6])
    >>> indices
    array([1, 2, 2, 0, 1, 0])
    >>> distances
    array([1., 1., 0., 1., 0., 1.])
    """
    if not isinstance(radius, Real) or isinstance(radius, bool) or not radius >= 0:
        raise ValueError(f"radius must be a nonnegative number; got {radius!r}.")
    X = np.asarray(X)
    Q = X if queries is None else np.asarray(queries)
    counts = np.zeros(len(Q) + 1, np.intp)
    all_indices, all_distances = [], []
    for block, rows, columns, distances in pairs_within(X, Q, np.full(len(Q), float(radius))):
        if queries is None:
            other = rows + block.start != columns
            rows, columns, distances = rows[other], columns[other], distances[other]
        counts[block.start + 1 : block.stop + 1] = np.bincount(
            rows, minlength=block.stop - block.start
        )
        all_indices.append(columns)
        all_distances.append(distances)
    return np.cumsum(counts), np.concatenate(all_indices), np.concatenate(all_distances)


def choose_search(
    n: int,
    p: int,
    *,
    n_queries: int | None = None,
    n_neighbors: int = 1,
    work: str = "neighbors",
    n_threads: int = 1,
) -> str:
    """Return the fastest search: ``"tree"``, ``"blocks"`` or ``"faiss"``. All give equal results.

    faiss, if installed, is chosen for 100 or more neighbors in 100 or more features on one thread;
    on several threads it is slower than blocks. For few neighbors, blocks are as fast with 768
    features and three times as fast with 50 (``benchmarks/results/search_peers.md``).

    A tree is built for each call and uses one thread, so it does not pay off for few queries
    (``n_queries``, n by default). ``work`` is "neighbors" for the k nearest rows, or "impostors"
    for all pairs of different classes within a radius. For impostors, blocks need no ranking and
    serve both directions, so trees are rarely faster.

    Examples
    --------
    >>> choose_search(60_000, 3), choose_search(60_000, 3, n_queries=1), choose_search(60_000, 30)
    ('tree', 'blocks', 'blocks')
    """
    asked = n if n_queries is None else n_queries
    much = asked * n * p >= _WORTH_FAISS and n_neighbors >= 100 <= p and n_threads == 1
    if work == "neighbors" and much and find_spec("faiss") is not None:
        return "faiss"
    few = asked < _QUERIES_FOR_A_TREE
    rows = next((rows for most, rows in _ROWS_FOR_A_TREE[work].items() if p <= most), None)
    at_least = n_threads if work == "impostors" else 1
    return "blocks" if few or rows is None or n < rows * at_least else "tree"


def _nearest(X: Floats, Q: Floats, k: int, search: str, n_threads: int) -> tuple[Matrix, Indices]:
    """Return the ``k`` nearest rows of ``X`` to each row of ``Q``, by distance, then index."""
    if search == "tree":
        # A tree would visit all rows at the same distance. The first k identical rows suffice.
        kept = _first_of_identical(X, k)
        if len(kept) < len(X):
            distances, indices = _nearest(X[kept], Q, k, search, n_threads)
            return distances, kept[indices]
    n, p = X.shape
    rows, queries = placed(X, Q, n_threads)
    distances = np.empty((len(Q), k))
    indices = np.empty((len(Q), k), np.intp)
    unsure, tied = np.arange(len(Q)), [np.zeros(0, np.intp)]
    if search == "blocks" and n <= _FEW_ROWS and n * p <= _FEW_NUMBERS:
        search = "at once"
        unsure = _nearest_of_few(rows, queries, distances, indices, n_threads)
    for proposal in _proposals(rows, queries, k, search):

        def settle(asked: Indices, proposal: _Proposal = proposal) -> tuple[Indices, Indices]:
            beyond, candidates = proposal.propose(asked, proposal.n_candidates)
            measured, found = ranked(X, Q[asked], candidates)
            distances[asked], indices[asked] = measured[:, :k], found[:, :k]
            # A row within the k-th distance that was not proposed would have a computed squared
            # distance of at most `reach`. If no other row is below `reach`, there is none.
            radius = measured[:, k - 1] / rows.scale
            reach = reach_of(queries.squares[asked], radius, p, proposal.dtype)
            # Differences were squared without the scale, so they may have underflowed.
            doubt = beyond <= reach + 4 * p * _TINY / rows.scale**2
            # If all candidates are equally far, a higher precision would not help.
            ties = doubt & (measured[:, k - 1] == measured[:, -1])
            return asked[doubt & ~ties], asked[ties]

        if not unsure.size:
            break
        blocks = _query_blocks(unsure, n, p, proposal, n_threads)
        with _threads_for(len(unsure) * n * p, n_threads) as threads:
            settled = list(map_in_order(settle, blocks, threads))
        if proposal.n_candidates == n:
            return distances, indices
        unsure = np.concatenate([unsure[:0], *(doubt for doubt, _ in settled)])
        tied += [ties for _, ties in settled]
    again = np.concatenate([unsure, *tied])
    if again.size:
        distances[again], indices[again] = _nearest_within(X, Q[again], k, distances[again, -1])
    return distances, indices


def _nearest_of_few(
    rows: PlacedRows, queries: PlacedRows, distances: Matrix, indices: Indices, n_threads: int
) -> Indices:
    """Fill in neighbors from all products at once. Return the queries with too many candidates.

    A bound on the k-th product, plus the rounding error, leaves few rows besides the nearest. All
    rows below it are measured, so the result is certain.
    """
    (n, p), k = rows.X.shape, indices.shape[1]
    held = facing(rows, slice(None), np.empty((n, p + 1), np.float32))
    most = max(_CROWD, _CROWD_PER_NEIGHBOR * k)

    def settle(block: slice) -> Indices:
        products = BlockProducts(rows, queries, block, _FLOAT32, at_least=n)
        values, norms = products.against(held), products.norms
        reach = reach_of_nearest(norms, kth_at_most(values, k) + norms, p, _FLOAT32)
        reach += 4 * p * _TINY / rows.scale**2
        limit = np.nextafter((reach - norms).astype(np.float32), np.float32(np.inf))
        row, column = np.divmod(np.flatnonzero(values <= limit[:, None]), n)
        counts = np.bincount(row, minlength=len(norms))
        few = counts <= most
        asked = np.arange(block.start, block.stop)
        if not few.all():
            kept = few[row]
            row, column, counts = (np.cumsum(few) - 1)[row[kept]], column[kept], counts[few]
        if few.any():
            measured = pair_distances(rows.X, queries.X[asked[few]], column, row)
            found = first_of_pairs(row, column, measured, counts, k)
            distances[asked[few]], indices[asked[few]] = found
        return asked[~few]

    with _threads_for(len(indices) * n * p, n_threads) as threads:
        size = -(-len(indices) // threads)
        size = max(1, min(_DISTANCES_AT_ONCE // n, size))
        blocks = split_rows(len(indices), threads * (14 * n + 12 * p), max_rows=size)
        return np.concatenate([np.zeros(0, np.intp), *map_in_order(settle, blocks, threads)])


class _Proposal(NamedTuple):
    """A method that proposes candidates, and a squared distance below which no other row lies."""

    propose: Callable[[Indices, int], tuple[Matrix, Indices]]
    dtype: np.dtype[Any]
    n_candidates: int


def _proposals(rows: PlacedRows, queries: PlacedRows, k: int, search: str) -> Iterator[_Proposal]:
    """Yield the methods to try until no query is in doubt."""
    n = len(rows.X)

    def everything(asked: Indices, n_candidates: int) -> tuple[Matrix, Indices]:
        shape = len(asked), n_candidates
        return np.full(len(asked), np.inf), np.broadcast_to(np.arange(n), shape)

    def by_tree(asked: Indices, n_candidates: int) -> tuple[Matrix, Indices]:
        found, candidates = tree.query(queries.block(asked, _FLOAT64), n_candidates)
        return found[:, -1] ** 2, candidates

    if k + SPARE >= n:
        yield _Proposal(everything, _FLOAT64, n)
    elif search == "tree":
        tree = KDTree(rows.block(slice(None), _FLOAT64))
        # In float64 only ties leave a doubt: few spare candidates suffice for most rows.
        for spare in (_FEW_SPARE, SPARE):
            yield _Proposal(by_tree, _FLOAT64, k + spare)
    else:
        in_blocks = partial(nearest_by_blocks, rows, queries)
        if search == "blocks":
            yield _Proposal(partial(in_blocks, dtype=_FLOAT32), _FLOAT32, k + SPARE)
        elif search == "faiss":
            yield _Proposal(partial(nearest_by_faiss, rows, queries), _FLOAT32, k + SPARE)
        yield _Proposal(partial(in_blocks, dtype=_FLOAT64), _FLOAT64, k + SPARE)


def _query_blocks(
    asked: Indices, n: int, p: int, proposal: _Proposal, n_threads: int
) -> list[Indices]:
    """Split queries into blocks, equally many per thread, within the memory for blocks."""
    size, wanted = proposal.dtype.itemsize, proposal.n_candidates
    at_once = rows_at_once(n, p, proposal.dtype, 2 * wanted)
    # Bytes per query: product and comparison, the best so far and their ranking, the query.
    needed = at_once * (size + 1) + (96 + 5 * wanted) * (size + 8) + p * (size + 8)
    block = next(split_rows(len(asked), 3 * n_threads * needed, max_rows=_QUERIES_AT_ONCE), None)
    if block is None:
        return []
    n_blocks = -(-len(asked) // block.stop)
    return np.array_split(asked, min(len(asked), -(-n_blocks // n_threads) * n_threads))


@contextmanager
def _threads_for(flops: float, n_threads: int) -> Iterator[int]:
    """Yield the number of threads worth using. Small problems get one, and so does BLAS."""
    if flops < _WORTH_THREADS:
        with use_one_blas_thread():
            yield 1
    else:
        yield n_threads


def _nearest_within(X: Floats, Q: Floats, k: int, radius: Matrix) -> tuple[Matrix, Indices]:
    """Return the ``k`` nearest rows, given that they are within ``radius[i]`` of query ``i``."""
    # Among identical rows, only the first k can be among the k nearest. Identical queries share
    # one search.
    kept = _first_of_identical(X, k)
    asked, shared = _distinct(Q)
    distances = np.empty((len(asked), k))
    indices = np.empty((len(asked), k), np.intp)
    found = pairs_within(X, Q[asked], radius[asked], among=kept, dtype=_FLOAT64)
    for block, rows, columns, within in found:
        first = np.searchsorted(rows, np.arange(block.stop - block.start))
        nearest = first[:, None] + np.arange(k)
        distances[block] = within[nearest]
        indices[block] = columns[nearest]
    return distances[shared], indices[shared]


def pairs_within(
    X: Floats,
    Q: Floats,
    radius: Matrix,
    *,
    among: Indices | None = None,
    dtype: np.dtype[Any] | None = None,
    n_threads: int | None = None,
) -> Iterator[tuple[slice, Indices, Indices, Matrix]]:
    """Yield, for each block of queries, all pairs at most ``radius[i]`` apart.

    Yields the block and, for each pair, the row in the block, the row of ``X`` and the distance,
    sorted by row in the block, distance, row of ``X``. ``among`` restricts the rows of ``X``. By
    default, products are computed in float32 unless rounding would leave many pairs in doubt.
    """
    n, p = X.shape
    n_threads = count_blas_threads() if n_threads is None else n_threads
    rows, queries = placed(X, Q, n_threads)
    lengths = radius / rows.scale
    if dtype is None:
        rounding = rounding_of(queries.squares, lengths, p, _FLOAT32)
        rough = np.mean(np.sqrt(rounding / _ROUGH) > lengths) > _ROUGH
        dtype = _FLOAT64 if rough else _FLOAT32
    if among is not None:
        # Move all other rows to an infinite distance.
        squares = np.full(n, np.inf)
        squares[among] = rows.squares[among]
        rows = replace(rows, squares=squares)
    reach = reach_of(queries.squares, lengths, p, dtype) + 4 * p * _TINY / rows.scale**2
    with np.errstate(over="ignore"):
        limit = np.nextafter((reach - queries.squares).astype(dtype), np.asarray(np.inf, dtype))

    def within(block: slice) -> list[tuple[slice, Indices, Indices, Matrix]]:
        found: list[tuple[Indices, Indices, Matrix]] = []
        n_found = 0
        for begin, values in BlockProducts(rows, queries, block, dtype):
            near = np.flatnonzero(values <= limit[block, None])
            row, column = np.divmod(near, values.shape[1])
            column += begin
            distances = pair_distances(X, Q[block], column, row)
            hits = np.flatnonzero(distances <= radius[block][row])
            n_found += len(hits)
            if n_found > _PAIRS_AT_ONCE and block.stop - block.start > 1:
                found.clear()
                middle = (block.start + block.stop) // 2
                return within(slice(block.start, middle)) + within(slice(middle, block.stop))
            found.append((row[hits], column[hits], distances[hits]))
        row, column, distances = (np.concatenate(part) for part in zip(*found, strict=True))
        # Sort by distance, then row of X, within each query.
        order = np.lexsort((column, distances, row))
        return [(block, row[order], column[order], distances[order])]

    needed = 48 * rows_at_once(n, p, dtype) + 16 * p
    blocks = split_rows(len(Q), n_threads * needed, max_rows=_QUERIES_WITHIN)
    with _threads_for(len(Q) * n * p, n_threads) as threads:
        for parts in map_in_order(within, blocks, threads):
            yield from parts


def _first_of_identical(X: Floats, k: int) -> Indices:
    """Return the rows, in order, that are preceded by fewer than ``k`` identical rows."""
    order, starts = identical_rows(X)
    preceding = np.arange(len(X)) - np.flatnonzero(starts)[np.cumsum(starts) - 1]
    return np.sort(order[preceding < k])


def _distinct(X: Floats) -> tuple[Indices, Indices]:
    """Return the first of each set of identical rows, and for every row the set it belongs to."""
    order, starts = identical_rows(X)
    where = np.empty(len(X), np.intp)
    where[order] = np.cumsum(starts) - 1
    return order[starts], where
