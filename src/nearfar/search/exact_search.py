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
    bound_kth_smallest,
    choose_block_size,
    fill_right_factor,
    find_nearest_by_blocks,
)
from nearfar.search.candidates import (
    SPARE,
    bound_rounding,
    check_n_neighbors,
    compute_pair_distances,
    compute_reach,
    compute_reach_of_nearest,
    find_identical_rows,
    rank_candidates,
    remove_self,
    select_first_pairs,
)
from nearfar.search.faiss_search import find_nearest_by_faiss
from nearfar.search.placed_rows import PlacedRows, place_rows

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_TINY = float(np.finfo(np.float64).tiny)
# In the first search, a tree proposes this number of candidates in addition to the k nearest.
_N_SPARE_FOR_TREE = 2
# Maximum number of queries per block.
_MAX_QUERIES_PER_BLOCK = 2048
# Minimum number of multiplications at which several threads are used. With fewer multiplications,
# starting the threads takes longer than the products.
_MIN_THREAD_FLOPS = 10**8
# Minimum number of multiplications at which faiss is used. With fewer multiplications, loading
# faiss takes longer than the search.
_MIN_FAISS_FLOPS = 10**10
# Maximum number of rows of a small X. For a small X, the distances from a query to all rows are
# computed together.
_MAX_ROWS_OF_SMALL_X = 8192
# Maximum number of entries of a small X.
_MAX_ENTRIES_OF_SMALL_X = 2**22
# Maximum number of distances per block of queries if X is small.
_MAX_DISTANCES_PER_BLOCK = 2**20
# Maximum number of candidates per query if X is small. The search is repeated for queries with more
# candidates.
_MAX_CANDIDATES = 256
# The maximum number of candidates is at least this multiple of the number of neighbors.
_MAX_CANDIDATES_PER_NEIGHBOR = 8
# Maximum number of queries per block of the search within a radius.
_MAX_QUERIES_PER_RADIUS_BLOCK = 512
# Maximum number of pairs per block of the search within a radius.
_MAX_PAIRS_PER_BLOCK = 2**19
# The rounding error of a query is large if it may exceed this fraction of the squared radius. The
# search within a radius uses float64 if more than the same fraction of the queries have large
# errors.
_MAX_ROUNDING_FRACTION = 0.05
# Minimum number of rows at which trees are faster than blocks. The keys are maximum numbers of
# features. Measured in benchmarks/results/search.md: trees are 2.6 to 9 times faster on one thread,
# which leaves a margin for blocks on several threads. With 8 or more features, blocks are faster.
_MIN_TREE_ROWS = {
    "neighbors": {3: 5_000, 5: 20_000},
    "impostors": {2: 60_000, 3: 100_000, 5: 300_000},
}
# Minimum number of queries at which building a tree pays off.
_MIN_TREE_QUERIES = 1000


def kneighbors(
    X: Floats,
    queries: Floats | None = None,
    *,
    n_neighbors: int,
    search: str = "auto",
    n_threads: int | None = None,
) -> tuple[Matrix, Indices]:
    """Return the exact nearest rows of ``X`` for each query: distances and indices.

    The result is the same as computing ``np.linalg.norm(X - query, axis=1)`` in float64 for every
    query and sorting it with a stable sort: among rows at the same distance, the smaller index
    comes first. Distances are exactly 0 for identical rows, and accurate however far the data are
    from the origin.

    ``X`` and ``queries`` must be finite 2-d arrays of float64, float32 or float16 (not checked
    here). They may be memory-mapped. Without queries, the queries are the rows of ``X``, and no row
    is its own neighbor. Rows are excluded by index, not by distance: identical rows are neighbors
    at distance 0. Raises a ``ValueError`` if ``n_neighbors`` is out of range, or if squared
    distances would overflow.

    ``search`` selects the method that proposes candidates: float32 products of blocks of rows
    (:mod:`nearfar.search.block_search`), scikit-learn's k-d tree or faiss. For "auto", see
    :func:`choose_search`. The method proposes a few more candidates than requested, and their
    distances are computed again in float64. If the k-th and the last candidate of a query
    differ by less than the rounding error, the query is searched again: first by products in
    float64, finally by measuring all rows that may be within the k-th distance. Ties and duplicates
    cause this, so identical rows and queries are then searched only once. With at most a few
    thousand rows, the distances of all rows that the rounded products do not exclude are computed
    immediately.

    Blocks of queries are distributed over ``n_threads`` threads, by default as many as BLAS would
    use. The number of threads does not change the result.

    Cost: O(n_queries n_samples n_features) in matrix products. In addition to the result, memory is
    needed for blocks, which take at most scikit-learn's ``working_memory`` and at most about 64 MB.
    The rows are not copied.

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
    check_n_neighbors(n_neighbors, len(X), excludes_self=queries is None)
    X = np.asarray(X)
    Q = X if queries is None else np.asarray(queries)
    n_threads = count_blas_threads() if n_threads is None else n_threads
    if search == "auto":
        search = choose_search(
            *X.shape, n_queries=len(Q), n_neighbors=n_neighbors, n_threads=n_threads
        )
    if search not in ("blocks", "tree", "faiss"):
        raise ValueError(f'search must be "auto", "blocks", "tree" or "faiss"; got {search!r}.')
    if queries is None:
        # Search for one more neighbor, because each row finds itself or an identical row.
        return remove_self(*_find_nearest(X, X, n_neighbors + 1, search, n_threads))
    return _find_nearest(X, Q, n_neighbors, search, n_threads)


def radius_neighbors(
    X: Floats, queries: Floats | None = None, *, radius: float
) -> tuple[Indices, Indices, Matrix]:
    """Return exactly the rows of ``X`` within ``radius`` of each query.

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
    index_chunks, distance_chunks = [], []
    for block, query_positions, row_ids, distances in find_pairs_within(
        X, Q, np.full(len(Q), float(radius))
    ):
        if queries is None:
            is_not_self = query_positions + block.start != row_ids
            query_positions, row_ids, distances = (
                query_positions[is_not_self],
                row_ids[is_not_self],
                distances[is_not_self],
            )
        counts[block.start + 1 : block.stop + 1] = np.bincount(
            query_positions, minlength=block.stop - block.start
        )
        index_chunks.append(row_ids)
        distance_chunks.append(distances)
    return np.cumsum(counts), np.concatenate(index_chunks), np.concatenate(distance_chunks)


def choose_search(
    n: int,
    p: int,
    *,
    n_queries: int | None = None,
    n_neighbors: int = 1,
    task: str = "neighbors",
    n_threads: int = 1,
) -> str:
    """Return the name of the fastest search: "tree", "blocks" or "faiss".

    All searches give equal results.

    faiss, if installed, is chosen for 100 or more neighbors in 100 or more features on one thread;
    on several threads it is slower than blocks. For few neighbors, blocks are as fast as
    faiss with 768 features and three times as fast with 50
    (``benchmarks/results/search_peers.md``).

    A tree is built for each call and uses one thread, so it does not pay off for few queries
    (``n_queries``, n by default). ``task`` is "neighbors" for the k nearest rows, or "impostors"
    for all pairs of different classes within a radius. For impostors, blocks need not rank rows,
    and one product serves a pair in both orders, so trees are rarely faster.

    Examples
    --------
    >>> choose_search(60_000, 3), choose_search(60_000, 3, n_queries=1), choose_search(60_000, 30)
    ('tree', 'blocks', 'blocks')
    """
    n_queries = n if n_queries is None else n_queries
    suits_faiss = (
        n_queries * n * p >= _MIN_FAISS_FLOPS and n_neighbors >= 100 <= p and n_threads == 1
    )
    if task == "neighbors" and suits_faiss and find_spec("faiss") is not None:
        return "faiss"
    has_few_queries = n_queries < _MIN_TREE_QUERIES
    min_rows = next(
        (min_rows for max_features, min_rows in _MIN_TREE_ROWS[task].items() if p <= max_features),
        None,
    )
    min_rows_factor = n_threads if task == "impostors" else 1
    return (
        "blocks"
        if has_few_queries or min_rows is None or n < min_rows * min_rows_factor
        else "tree"
    )


def _find_nearest(
    X: Floats, Q: Floats, k: int, search: str, n_threads: int
) -> tuple[Matrix, Indices]:
    """Return the ``k`` rows of ``X`` nearest to each query, sorted by distance, then by index."""
    if search == "tree":
        # A tree would visit all identical rows, but only the first k of them can be neighbors.
        first_rows = _find_first_identical_rows(X, k)
        if len(first_rows) < len(X):
            distances, indices = _find_nearest(X[first_rows], Q, k, search, n_threads)
            return distances, first_rows[indices]
    n, p = X.shape
    rows, queries = place_rows(X, Q, n_threads)
    distances = np.empty((len(Q), k))
    indices = np.empty((len(Q), k), np.intp)
    uncertain_queries, tied_queries = np.arange(len(Q)), [np.zeros(0, np.intp)]
    if search == "blocks" and n <= _MAX_ROWS_OF_SMALL_X and n * p <= _MAX_ENTRIES_OF_SMALL_X:
        search = "few rows"
        uncertain_queries = _find_nearest_of_few_rows(rows, queries, distances, indices, n_threads)
    for method in _iterate_proposal_methods(rows, queries, k, search):

        def process_block(
            query_ids: Indices, method: _ProposalMethod = method
        ) -> tuple[Indices, Indices]:
            min_other_squares, candidates = method.propose(query_ids, method.n_candidates)
            measured_distances, neighbors = rank_candidates(X, Q[query_ids], candidates)
            distances[query_ids], indices[query_ids] = measured_distances[:, :k], neighbors[:, :k]
            # Rows within the k-th distance have a computed squared distance of at most `reach`. If
            # all rows that were not proposed are beyond `reach`, no neighbor was missed.
            radius = measured_distances[:, k - 1] / rows.scale
            reach = compute_reach(queries.squares[query_ids], radius, p, method.dtype)
            # The added term covers underflow, because differences were squared before scaling.
            is_uncertain = min_other_squares <= reach + 4 * p * _TINY / rows.scale**2
            # If the k-th and the last candidate have the same distance, higher precision does not
            # help.
            is_tied = is_uncertain & (measured_distances[:, k - 1] == measured_distances[:, -1])
            return query_ids[is_uncertain & ~is_tied], query_ids[is_tied]

        if not uncertain_queries.size:
            break
        blocks = _split_queries(uncertain_queries, n, p, method, n_threads)
        with _choose_threads(len(uncertain_queries) * n * p, n_threads) as n_used_threads:
            results = list(map_in_order(process_block, blocks, n_used_threads))
        if method.n_candidates == n:
            return distances, indices
        uncertain_queries = np.concatenate([uncertain_queries[:0], *(ids for ids, _ in results)])
        tied_queries += [ids for _, ids in results]
    remaining_queries = np.concatenate([uncertain_queries, *tied_queries])
    if remaining_queries.size:
        distances[remaining_queries], indices[remaining_queries] = _find_nearest_within(
            X, Q[remaining_queries], k, distances[remaining_queries, -1]
        )
    return distances, indices


def _find_nearest_of_few_rows(
    rows: PlacedRows, queries: PlacedRows, distances: Matrix, indices: Indices, n_threads: int
) -> Indices:
    """Find the nearest rows if X is small. Return the queries that have too many candidates.

    The results are written to ``distances`` and ``indices``. Only few rows besides the
    nearest have a product below the bound on the k-th product plus the rounding error. The
    distances of all these rows are computed in float64, so the result is exact.
    """
    (n, p), k = rows.X.shape, indices.shape[1]
    row_factor = fill_right_factor(rows, slice(None), np.empty((n, p + 1), np.float32))
    max_candidates = max(_MAX_CANDIDATES, _MAX_CANDIDATES_PER_NEIGHBOR * k)

    def process_block(block: slice) -> Indices:
        products = BlockProducts(rows, queries, block, _FLOAT32, min_rows=n)
        shifted_squares, query_squares = products.compute_products(row_factor), products.norms
        reach = compute_reach_of_nearest(
            query_squares, bound_kth_smallest(shifted_squares, k) + query_squares, p, _FLOAT32
        )
        reach += 4 * p * _TINY / rows.scale**2
        limit = np.nextafter((reach - query_squares).astype(np.float32), np.float32(np.inf))
        row, column = np.divmod(np.flatnonzero(shifted_squares <= limit[:, None]), n)
        counts = np.bincount(row, minlength=len(query_squares))
        has_few_candidates = counts <= max_candidates
        query_ids = np.arange(block.start, block.stop)
        if not has_few_candidates.all():
            mask = has_few_candidates[row]
            row, column, counts = (
                (np.cumsum(has_few_candidates) - 1)[row[mask]],
                column[mask],
                counts[has_few_candidates],
            )
        if has_few_candidates.any():
            measured_distances = compute_pair_distances(
                rows.X, queries.X[query_ids[has_few_candidates]], column, row
            )
            nearest = select_first_pairs(row, column, measured_distances, counts, k)
            distances[query_ids[has_few_candidates]], indices[query_ids[has_few_candidates]] = (
                nearest
            )
        return query_ids[~has_few_candidates]

    with _choose_threads(len(indices) * n * p, n_threads) as n_used_threads:
        block_size = -(-len(indices) // n_used_threads)
        block_size = max(1, min(_MAX_DISTANCES_PER_BLOCK // n, block_size))
        blocks = split_rows(len(indices), n_used_threads * (14 * n + 12 * p), max_rows=block_size)
        return np.concatenate(
            [np.zeros(0, np.intp), *map_in_order(process_block, blocks, n_used_threads)]
        )


class _ProposalMethod(NamedTuple):
    """A method that proposes candidates, its precision, and the number of candidates.

    ``propose`` returns the candidates of each query, and a squared distance below which there are
    no other rows.
    """

    propose: Callable[[Indices, int], tuple[Matrix, Indices]]
    dtype: np.dtype[Any]
    n_candidates: int


def _iterate_proposal_methods(
    rows: PlacedRows, queries: PlacedRows, k: int, search: str
) -> Iterator[_ProposalMethod]:
    """Yield the methods that propose candidates, in the order in which they are tried."""
    n = len(rows.X)

    def propose_all(query_ids: Indices, n_candidates: int) -> tuple[Matrix, Indices]:
        shape = len(query_ids), n_candidates
        return np.full(len(query_ids), np.inf), np.broadcast_to(np.arange(n), shape)

    def propose_by_tree(query_ids: Indices, n_candidates: int) -> tuple[Matrix, Indices]:
        tree_distances, candidates = tree.query(queries.block(query_ids, _FLOAT64), n_candidates)
        return tree_distances[:, -1] ** 2, candidates

    if k + SPARE >= n:
        yield _ProposalMethod(propose_all, _FLOAT64, n)
    elif search == "tree":
        tree = KDTree(rows.block(slice(None), _FLOAT64))
        # In float64, only ties require another search. For most queries, few spare candidates
        # suffice.
        for spare in (_N_SPARE_FOR_TREE, SPARE):
            yield _ProposalMethod(propose_by_tree, _FLOAT64, k + spare)
    else:
        propose_by_blocks = partial(find_nearest_by_blocks, rows, queries)
        if search == "blocks":
            yield _ProposalMethod(partial(propose_by_blocks, dtype=_FLOAT32), _FLOAT32, k + SPARE)
        elif search == "faiss":
            yield _ProposalMethod(
                partial(find_nearest_by_faiss, rows, queries), _FLOAT32, k + SPARE
            )
        yield _ProposalMethod(partial(propose_by_blocks, dtype=_FLOAT64), _FLOAT64, k + SPARE)


def _split_queries(
    query_ids: Indices, n: int, p: int, method: _ProposalMethod, n_threads: int
) -> list[Indices]:
    """Split queries into blocks that fit into memory, with the same number of blocks per thread."""
    item_size, n_candidates = method.dtype.itemsize, method.n_candidates
    block_size = choose_block_size(n, p, method.dtype, 2 * n_candidates)
    # Memory for the product and its comparison, the best rows and their ranking, and the query.
    bytes_per_query = (
        block_size * (item_size + 1)
        + (96 + 5 * n_candidates) * (item_size + 8)
        + p * (item_size + 8)
    )
    block = next(
        split_rows(
            len(query_ids), 3 * n_threads * bytes_per_query, max_rows=_MAX_QUERIES_PER_BLOCK
        ),
        None,
    )
    if block is None:
        return []
    n_blocks = -(-len(query_ids) // block.stop)
    return np.array_split(query_ids, min(len(query_ids), -(-n_blocks // n_threads) * n_threads))


@contextmanager
def _choose_threads(flops: float, n_threads: int) -> Iterator[int]:
    """Choose the number of threads. For a small problem, BLAS also uses only one thread."""
    if flops < _MIN_THREAD_FLOPS:
        with use_one_blas_thread():
            yield 1
    else:
        yield n_threads


def _find_nearest_within(X: Floats, Q: Floats, k: int, radii: Matrix) -> tuple[Matrix, Indices]:
    """Return the ``k`` nearest rows, given that they are within ``radii[i]`` of query ``i``."""
    # Among identical rows, only the first k can be among the k nearest. Identical queries share
    # one search.
    first_rows = _find_first_identical_rows(X, k)
    distinct_queries, group_ids = _find_distinct_rows(Q)
    distances = np.empty((len(distinct_queries), k))
    indices = np.empty((len(distinct_queries), k), np.intp)
    pairs = find_pairs_within(
        X, Q[distinct_queries], radii[distinct_queries], among=first_rows, dtype=_FLOAT64
    )
    for block, rows, columns, pair_distances in pairs:
        first_pairs = np.searchsorted(rows, np.arange(block.stop - block.start))
        nearest_pairs = first_pairs[:, None] + np.arange(k)
        distances[block] = pair_distances[nearest_pairs]
        indices[block] = columns[nearest_pairs]
    return distances[group_ids], indices[group_ids]


def find_pairs_within(
    X: Floats,
    Q: Floats,
    radii: Matrix,
    *,
    among: Indices | None = None,
    dtype: np.dtype[Any] | None = None,
    n_threads: int | None = None,
) -> Iterator[tuple[slice, Indices, Indices, Matrix]]:
    """Yield, for each block of queries, all rows within ``radii[i]`` of query ``i``.

    Yields the block and, for each pair of a query and a row, the position of the query in the
    block, the row of ``X`` and the distance. Pairs are sorted by query, then distance, then row.
    ``among`` restricts the rows of ``X``. By default, products are computed in float32 unless
    rounding errors would affect many pairs.
    """
    n, p = X.shape
    n_threads = count_blas_threads() if n_threads is None else n_threads
    rows, queries = place_rows(X, Q, n_threads)
    scaled_radii = radii / rows.scale
    if dtype is None:
        rounding = bound_rounding(queries.squares, scaled_radii, p, _FLOAT32)
        needs_float64 = (
            np.mean(np.sqrt(rounding / _MAX_ROUNDING_FRACTION) > scaled_radii)
            > _MAX_ROUNDING_FRACTION
        )
        dtype = _FLOAT64 if needs_float64 else _FLOAT32
    if among is not None:
        # Set the distance of all rows outside ``among`` to infinity.
        squares = np.full(n, np.inf)
        squares[among] = rows.squares[among]
        rows = replace(rows, squares=squares)
    reach = compute_reach(queries.squares, scaled_radii, p, dtype) + 4 * p * _TINY / rows.scale**2
    with np.errstate(over="ignore"):
        limit = np.nextafter((reach - queries.squares).astype(dtype), np.asarray(np.inf, dtype))

    def search_block(block: slice) -> list[tuple[slice, Indices, Indices, Matrix]]:
        chunks: list[tuple[Indices, Indices, Matrix]] = []
        n_pairs = 0
        for first_row, shifted_squares in BlockProducts(rows, queries, block, dtype):
            near_positions = np.flatnonzero(shifted_squares <= limit[block, None])
            row, column = np.divmod(near_positions, shifted_squares.shape[1])
            column += first_row
            distances = compute_pair_distances(X, Q[block], column, row)
            hits = np.flatnonzero(distances <= radii[block][row])
            n_pairs += len(hits)
            if n_pairs > _MAX_PAIRS_PER_BLOCK and block.stop - block.start > 1:
                chunks.clear()
                middle = (block.start + block.stop) // 2
                return search_block(slice(block.start, middle)) + search_block(
                    slice(middle, block.stop)
                )
            chunks.append((row[hits], column[hits], distances[hits]))
        row, column, distances = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
        # Within each query, sort by distance, then by row index.
        order = np.lexsort((column, distances, row))
        return [(block, row[order], column[order], distances[order])]

    bytes_per_query = 48 * choose_block_size(n, p, dtype) + 16 * p
    blocks = split_rows(len(Q), n_threads * bytes_per_query, max_rows=_MAX_QUERIES_PER_RADIUS_BLOCK)
    with _choose_threads(len(Q) * n * p, n_threads) as n_used_threads:
        for results in map_in_order(search_block, blocks, n_used_threads):
            yield from results


def _find_first_identical_rows(X: Floats, k: int) -> Indices:
    """Return the sorted indices of the first ``k`` rows of each set of identical rows."""
    order, is_first = find_identical_rows(X)
    n_preceding = np.arange(len(X)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    return np.sort(order[n_preceding < k])


def _find_distinct_rows(X: Floats) -> tuple[Indices, Indices]:
    """Return the first row of each set of identical rows, and the set to which each row belongs."""
    order, is_first = find_identical_rows(X)
    group_ids = np.empty(len(X), np.intp)
    group_ids[order] = np.cumsum(is_first) - 1
    return order[is_first], group_ids
