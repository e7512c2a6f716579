"""Exact Euclidean neighbours: a fast search that proposes, a float64 check that decides.

The fast search expands ``||x - q||^2 = ||x||^2 - 2 x'q + ||q||^2``, which runs at the speed of
matrix products and rounds. What it proposes is measured again as ``||x - q||`` from differences,
and where its rounding could have hidden a nearer row, that query is searched again. So the result
is a function of the data alone: the same for every number of threads, version of BLAS and
``working_memory``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
from sklearn.neighbors import KDTree, NearestNeighbors

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import row_blocks
from nearfar.search.candidates import (
    SPARE,
    center_of,
    centered,
    check_n_neighbors,
    pair_distances,
    ranked,
    reach_of,
    row_bytes,
    squared_norms,
    without_self,
)

_FEW_SPARE = 2
# By the greatest number of features, the rows from which trees beat blocks, and the queries that
# repay building one; see benchmarks/results/search.md. Neighbours are then found at least 3 times
# faster on one thread, which leaves room for the blocks' use of more; from 8 features on it is a
# toss-up at best.
_ROWS_FOR_A_TREE = {
    "neighbors": {3: 5_000, 5: 20_000},
    "impostors": {2: 60_000, 3: 100_000, 5: 300_000},
}
_QUERIES_FOR_A_TREE = 1000


def kneighbors(
    X: Floats, queries: Floats | None = None, *, n_neighbors: int, search: str = "auto"
) -> tuple[Matrix, Indices]:
    """Distances and row numbers of the nearest rows of ``X`` to each query, exactly.

    The same as computing ``np.linalg.norm(X - query, axis=1)`` in float64 for every query and
    sorting it with a stable sort: of rows at the same distance, the one with the smaller index
    comes first. Distances are exactly 0 for identical rows, and accurate however far the data lie
    from the origin.

    Rows are float64 or float32, finite and 2-d (not checked here). Without queries those of ``X``
    are asked for, none of which is then a neighbour of itself. It is left out by its index, not by
    its distance: identical rows are neighbours at distance 0. Raises a ``ValueError`` if
    ``n_neighbors`` is out of range, or if squared distances would overflow.

    scikit-learn's brute-force search (in float32 when all data are float32) or its k-d tree
    (``search``, see :func:`choose_search`) runs on centred data and proposes a few candidates more
    than asked for, which are measured anew in float64. A query whose k-th and last candidates lie
    closer together than the search rounds is searched again: all rows that may lie within the k-th
    distance are measured. Ties and duplicates are what causes this; identical rows and queries are
    then searched once.

    Cost O(n_queries n_samples n_features) in matrix products. Memory beyond the result is a copy of
    the data and blocks within scikit-learn's ``working_memory`` (of one query at least).

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
    X = np.ascontiguousarray(X)
    Q = X if queries is None else np.ascontiguousarray(queries)
    if search == "auto":
        search = choose_search(len(X), X.shape[1], n_queries=len(Q))
    if search not in ("blocks", "tree"):
        raise ValueError(f'search must be "auto", "blocks" or "tree"; got {search!r}.')
    nearest = _nearest_by_tree if search == "tree" else _nearest
    if queries is None:
        # One more, since each row finds itself, or else only identical rows that come before it.
        return without_self(*nearest(X, X, n_neighbors + 1))
    return nearest(X, Q, n_neighbors)


def radius_neighbors(
    X: Floats, queries: Floats | None = None, *, radius: float
) -> tuple[Indices, Indices, Matrix]:
    """All rows of ``X`` within ``radius`` of each query, exactly.

    Returned are indptr, indices and distances (CSR). Those of query ``i`` are entries ``indptr[i]``
    to ``indptr[i + 1]``, in the order of distance, then index. The radius is inclusive: compared
    with ``||x - q||`` computed from differences in float64. For the rest, and the cost, see
    :func:`kneighbors`.

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
        raise ValueError(f"radius must be a number that is at least 0; got {radius!r}.")
    X = np.ascontiguousarray(X)
    Q = X if queries is None else np.ascontiguousarray(queries)
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
    n: int, p: int, *, n_queries: int | None = None, work: str = "neighbors", n_threads: int = 1
) -> str:
    """``"tree"`` or ``"blocks"``, whichever is quicker; both find the same.

    A tree is built for one call, so it does not pay for a few queries (n by default), and uses one
    thread. The ``work`` is the k nearest rows ("neighbors"), or all pairs of different classes
    within a radius ("impostors"), where blocks need no ranking and serve both directions; trees
    rarely beat them.

    Examples
    --------
    >>> choose_search(60_000, 3), choose_search(60_000, 3, n_queries=1), choose_search(60_000, 30)
    ('tree', 'blocks', 'blocks')
    """
    asked = n if n_queries is None else n_queries
    few = asked < _QUERIES_FOR_A_TREE
    rows = next((rows for most, rows in _ROWS_FOR_A_TREE[work].items() if p <= most), None)
    return "blocks" if few or rows is None or n < rows * n_threads else "tree"


def _nearest_by_tree(X: Floats, Q: Floats, k: int) -> tuple[Matrix, Indices]:
    """As :func:`_nearest`."""
    # A tree would visit every row at the same distance. Of identical rows the first k will do.
    kept = _first_of_identical(X, k)
    if len(kept) == len(X):
        return _nearest(X, Q, k, tree=True)
    distances, indices = _nearest(X[kept], Q, k, tree=True)
    return distances, kept[indices]


def _nearest(X: Floats, Q: Floats, k: int, *, tree: bool = False) -> tuple[Matrix, Indices]:
    """The ``k`` nearest rows of ``X`` to each row of ``Q``, by distance, then index."""
    center = center_of(X)
    dtype = np.dtype(np.float64) if tree else np.result_type(X, Q)
    Z = centered(X, center, dtype)
    queries = Z if Q is X else centered(Q, center, dtype)
    propose: Callable[[Floats, int], tuple[Any, Any]]
    spares: tuple[int, ...]
    if tree:
        # In float64 only ties leave a doubt, so few candidates do for most rows.
        propose, spares = KDTree(Z).query, (_FEW_SPARE, SPARE)
    else:
        propose, spares = NearestNeighbors(algorithm="brute").fit(Z).kneighbors, (SPARE,)
    distances = np.empty((len(Q), k))
    indices = np.empty((len(Q), k), np.intp)
    unsure: Any = slice(None)
    for spare in spares:
        n_candidates = min(k + spare, len(X))
        asked = queries[unsure]
        found, candidates = propose(asked, n_candidates)
        distances[unsure], indices[unsure] = ranked(X, Q[unsure], candidates, k)
        if n_candidates == len(X):
            return distances, indices
        # A row that was not proposed, yet lies within the k-th distance, would have been found at
        # `reach` at most. The last candidate being farther than that, there is no such row.
        reach = reach_of(squared_norms(asked), distances[unsure, -1], X.shape[1], dtype)
        close = found[:, -1].astype(np.float64) ** 2 <= reach
        unsure = np.arange(len(Q))[unsure][close]
        if not unsure.size:
            return distances, indices
    distances[unsure], indices[unsure] = _nearest_within(X, Q[unsure], k, distances[unsure, -1])
    return distances, indices


def _nearest_within(X: Floats, Q: Floats, k: int, radius: Matrix) -> tuple[Matrix, Indices]:
    """The ``k`` nearest rows, which are known to lie within ``radius[i]`` of query ``i``."""
    # Of identical rows only the first k can be among the k nearest; identical queries share them.
    kept = _first_of_identical(X, k)
    _, asked, shared = np.unique(row_bytes(Q), return_index=True, return_inverse=True)
    distances = np.empty((len(asked), k))
    indices = np.empty((len(asked), k), np.intp)
    for block, rows, columns, within in pairs_within(X[kept], Q[asked], radius[asked]):
        first = np.searchsorted(rows, np.arange(block.stop - block.start))
        nearest = first[:, None] + np.arange(k)
        distances[block] = within[nearest]
        indices[block] = kept[columns[nearest]]
    return distances[shared], indices[shared]


def pairs_within(
    X: Floats, Q: Floats, radius: Matrix
) -> Iterator[tuple[slice, Indices, Indices, Matrix]]:
    """For each block of queries, all pairs at most ``radius[i]`` apart.

    Yields the block, then row in the block, row of ``X`` and distance of each pair, in the order
    of row in the block, distance, row of ``X``.
    """
    n, p = X.shape
    center = center_of(X)
    Z = centered(X, center, np.dtype(np.float64))
    # (-2q, 1) · (x, ||x||^2) = ||x - q||^2 - ||q||^2, so one matrix product is all to compare.
    points = np.column_stack([Z, squared_norms(Z)]).T
    # Per pair: the product, the comparison, and, if all pairs are hits, their arrays and copies.
    for block in row_blocks(len(Q), 80 * n):
        queries = centered(Q[block], center, np.dtype(np.float64))
        norms = squared_norms(queries)
        reach = reach_of(norms, radius[block], p, Z.dtype) - norms
        product = np.column_stack([-2 * queries, np.ones(len(queries))]) @ points
        rows, columns = np.divmod(np.flatnonzero(product <= reach[:, None]), n)
        del product
        distances = pair_distances(X, Q[block], columns, rows)
        hits = np.flatnonzero(distances <= radius[block][rows])
        # Hits come by column within each row, and the sort is stable.
        hits = hits[np.lexsort((distances[hits], rows[hits]))]
        yield block, rows[hits], columns[hits], distances[hits]


def _first_of_identical(X: Floats, k: int) -> Indices:
    """The rows, in order, that fewer than ``k`` identical rows precede."""
    _, code = np.unique(row_bytes(X), return_inverse=True)
    order = np.argsort(code, kind="stable")
    preceding = np.arange(len(X)) - np.searchsorted(code[order], code[order])
    return np.sort(order[preceding < k])
