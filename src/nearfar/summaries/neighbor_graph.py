"""Nearest-neighbor graphs: directed neighbor lists, their components and geodesics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.utils import check_array

from nearfar.blocks import check_finite_samples
from nearfar.notices import warn
from nearfar.search.approximate_search import INDEXES, approximate_kneighbors
from nearfar.search.candidates import view_rows_as_bytes
from nearfar.search.exact_search import find_pairs_within, kneighbors, radius_neighbors
from nearfar.state import Sizes, State
from nearfar.words import format_count

Mode = Literal["union", "mutual"]
Disconnected = Literal["link", "raise"]


@dataclass(frozen=True, eq=False, repr=False)
class NeighborGraph:
    """Directed nearest-neighbor graph with Euclidean distances.

    An edge runs from each row to each of its neighbors, and its length is their distance. Identical
    rows are connected by edges of length 0, which are kept. The arrays are read-only copies.

    Use :meth:`from_points` to build a graph from data. The constructor accepts neighbor lists in
    CSR format that were computed elsewhere.

    Parameters
    ----------
    indptr : array-like of int, shape (n_samples + 1,)
        Row ``i`` has the neighbors ``indices[indptr[i]:indptr[i + 1]]``, with the corresponding
        ``distances``.
    indices : array-like of int, shape (n_edges,)
        Neighbors of each row, from 0 to ``n_samples - 1``. The neighbors of a row must be distinct
        and must not include the row itself.
    distances : array-like of float, shape (n_edges,)
        Distances to the neighbors, finite and at least 0. If two rows list each other, their two
        distances should be equal.
    is_exact : bool, default=True
        Whether the neighbors are guaranteed to be the nearest rows.
    recall_ : float or None, default=None
        Fraction of the true nearest neighbors that an approximate search found, measured on a
        sample of rows. None if it was not measured.

    Attributes
    ----------
    indptr, indices, distances, is_exact, recall_
        The parameters, read-only.
    n_samples : int
        The number of rows.
    neighbors : ndarray of shape (n_samples, k)
        The neighbors as an array, if all rows have the same number of neighbors.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.summaries.neighbor_graph import NeighborGraph
    >>> X = np.array([[0, 0], [1, 0], [0, 2], [2, 1], [3, 0], [3, 3]])
    >>> graph = NeighborGraph.from_points(X, n_neighbors=2)
    >>> graph
    NeighborGraph(n_samples=6, n_edges=12, is_exact=True)
    >>> graph.neighbors[0]
    array([1, 2])
    >>> graph.connected_components()
    (1, array([0, 0, 0, 0, 0, 0], dtype=int32))
    >>> graph.geodesics([0]).round(3)
    array([[0.   , 1.   , 2.   , 2.414, 3.   , 4.65 ]])
    """

    state: ClassVar = State()

    indptr: NDArray[np.intp]
    indices: NDArray[np.intp]
    distances: NDArray[np.float64]
    is_exact: bool = True
    recall_: float | None = None

    def __post_init__(self) -> None:
        indptr = _make_read_only(self.indptr, np.intp, "indptr")
        indices = _make_read_only(self.indices, np.intp, "indices")
        distances = _make_read_only(self.distances, np.float64, "distances")
        _check_lists(indptr, indices, distances)
        for name, array in [("indptr", indptr), ("indices", indices), ("distances", distances)]:
            object.__setattr__(self, name, array)
        object.__setattr__(self, "is_exact", bool(self.is_exact))
        if self.recall_ is not None and not 0 <= self.recall_ <= 1:
            raise ValueError(f"recall_ must be from 0 to 1, or None; got {self.recall_!r}.")
        if not self.to_sparse().has_canonical_format:
            raise ValueError("indices must not list a neighbor of a row twice.")

    @classmethod
    def from_points(
        cls,
        X: ArrayLike,
        *,
        n_neighbors: int | None = None,
        radius: float | None = None,
        approximate: bool | Literal["ivf", "hnsw"] = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> NeighborGraph:
        """Build the graph of the nearest neighbors, or of all neighbors within a radius.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data, dense and finite.
        n_neighbors : int, default=None
            Number of neighbors per row, without the row itself. Ties are broken by row index. Pass
            either ``n_neighbors`` or ``radius``.
        radius : float, default=None
            Maximum distance of a neighbor, inclusive.
        approximate : bool, "ivf" or "hnsw", default=False
            Whether to search with a faiss index, which may miss some of the nearest rows (``pip
            install 'nearfar[ann]'``). True means "ivf". Requires ``n_neighbors``; see Notes.
        random_state : int, RandomState instance or None, default=None
            Seed of the approximate search. Equal seeds give equal graphs.

        Returns
        -------
        NeighborGraph
            The graph, with neighbors sorted by distance, then by index.

        Raises
        ------
        ImportError
            If ``approximate`` is not False and faiss is not installed.
        TypeError
            If ``X`` is sparse.
        ValueError
            If both or neither of ``n_neighbors`` and ``radius`` are given, or one is out of range.

        Notes
        -----
        The exact search costs O(n_samples² n_features) in matrix products. Its memory is the size
        of the result plus scikit-learn's ``working_memory``. Rows in float16, and memory-mapped
        rows, are read in blocks.

        The approximate search returns exact distances for the neighbors it finds. ``recall_`` is
        the fraction of true neighbors that it finds for a sample of rows.

        - "ivf" partitions the rows into about 4 √n_samples cells and searches the nearest cells.
        - "hnsw" searches along a hierarchical graph of neighbors.

        For data near a manifold of few dimensions, the approximate search is faster than the exact
        search, by a factor of three for 50,000 rows. For data with many independent features, the
        exact search is faster.

        Examples
        --------
        >>> from nearfar.summaries.neighbor_graph import NeighborGraph
        >>> graph = NeighborGraph.from_points([[0.0], [1.0], [1.0], [3.0]], radius=1)
        >>> graph.indptr
        array([0, 2, 4, 6, 6])
        >>> graph.distances
        array([1., 1., 0., 1., 0., 1.])
        """
        if (n_neighbors is None) == (radius is None):
            raise ValueError(
                "Pass exactly one of n_neighbors and radius; "
                f"got n_neighbors={n_neighbors!r} and radius={radius!r}."
            )
        if approximate and n_neighbors is None:
            raise ValueError(
                f"approximate=True requires n_neighbors, but radius={radius!r} was given. Pass "
                "n_neighbors, or set approximate=False."
            )
        if sparse.issparse(X):
            raise TypeError(
                "Sparse data was passed for X, but the neighbor search requires dense data. Reduce "
                "it first with sklearn.decomposition.TruncatedSVD."
            )
        if approximate not in (False, True, *INDEXES):
            raise ValueError(
                f'approximate must be True, False, "ivf" or "hnsw"; got {approximate!r}.'
            )
        points = check_array(X, dtype=[np.float64, np.float32, np.float16], ensure_all_finite=False)
        check_finite_samples(points)
        if radius is not None:
            return cls(*radius_neighbors(points, radius=radius))
        assert n_neighbors is not None
        recall = None
        if approximate:
            kind = "ivf" if approximate is True else approximate
            distances, indices, recall = approximate_kneighbors(
                points, n_neighbors, random_state, kind=kind
            )
        else:
            distances, indices = kneighbors(points, n_neighbors=n_neighbors)
        indptr = n_neighbors * np.arange(len(points) + 1)
        return cls(indptr, indices.ravel(), distances.ravel(), not approximate, recall)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def neighbors(self) -> NDArray[np.intp]:
        """Neighbors as an array of shape (n_samples, k), if all rows have k neighbors.

        Raises
        ------
        ValueError
            If the rows have different numbers of neighbors.
        """
        counts = np.diff(self.indptr)
        if counts.min() != counts.max():
            raise ValueError(
                f"The rows have different numbers of neighbors, from {counts.min()} to "
                f"{counts.max()}, which do not form an array. Use indptr and indices, or build the "
                "graph with n_neighbors."
            )
        return self.indices.reshape(self.n_samples, -1)

    def to_sparse(self) -> sparse.csr_array:
        """Return the directed graph as a sparse matrix of distances.

        Returns
        -------
        csr_array of shape (n_samples, n_samples)
            Row ``i`` holds the distances from ``i`` to its neighbors. Distances of 0 are stored as
            explicit zeros. Arithmetic operations and ``csr_array.eliminate_zeros`` remove them.

        Examples
        --------
        >>> from nearfar.summaries.neighbor_graph import NeighborGraph
        >>> graph = NeighborGraph.from_points([[0.0], [0.0], [3.0]], n_neighbors=1)
        >>> graph.to_sparse().nnz
        3
        """
        matrix = self._make_csr(self.distances.copy(), self.indices, self.indptr)
        matrix.sort_indices()
        return matrix

    def symmetrized(self, mode: Mode = "union") -> sparse.csr_array:
        """Return the undirected graph as a symmetric sparse matrix of distances.

        Parameters
        ----------
        mode : {"union", "mutual"}, default="union"
            "union" connects two rows if one of them lists the other. "mutual" connects two rows
            only if they list each other.

        Returns
        -------
        csr_array of shape (n_samples, n_samples)
            The distances of connected rows. If the lists of two rows hold different distances, the
            smaller one is used. Distances of 0 are stored as explicit zeros.

        Examples
        --------
        >>> from nearfar.summaries.neighbor_graph import NeighborGraph
        >>> graph = NeighborGraph.from_points([[0.0], [0.0], [3.0]], n_neighbors=1)
        >>> graph.symmetrized().nnz, graph.symmetrized("mutual").nnz
        (4, 2)
        """
        if mode not in ("union", "mutual"):
            raise ValueError(f"mode must be 'union' or 'mutual'; got {mode!r}.")
        n = self.n_samples
        rows = np.repeat(np.arange(n), np.diff(self.indptr))
        # Use edge lists, because sums and maxima of sparse matrices drop explicit zeros.
        forward, backward = rows * n + self.indices, self.indices * n + rows
        edges, inverse, counts = np.unique(
            np.concatenate([forward, backward]), return_inverse=True, return_counts=True
        )
        distances = np.full(len(edges), np.inf)
        np.minimum.at(distances, inverse, np.tile(self.distances, 2))
        if mode == "mutual":
            edges, distances = edges[counts == 2], distances[counts == 2]
        rows, columns = np.divmod(edges, n)
        indptr = np.searchsorted(rows, np.arange(n + 1))
        return self._make_csr(distances, columns, indptr)

    def connected_components(self, mode: Mode = "union") -> tuple[int, NDArray[np.int32]]:
        """Return the connected components of the undirected graph.

        Parameters
        ----------
        mode : {"union", "mutual"}, default="union"
            How to make the graph undirected; see :meth:`symmetrized`.

        Returns
        -------
        n_components : int
            Number of components.
        labels : ndarray of shape (n_samples,)
            Component of each row, numbered from 0.

        Examples
        --------
        >>> from nearfar.summaries.neighbor_graph import NeighborGraph
        >>> graph = NeighborGraph.from_points([[0.0], [1.0], [5.0], [6.0]], n_neighbors=1)
        >>> graph.connected_components()
        (2, array([0, 0, 1, 1], dtype=int32))
        """
        # The components of the union are the weak components of the directed graph.
        if mode == "union":
            result = csgraph.connected_components(self.to_sparse(), connection="weak")
        else:
            result = csgraph.connected_components(self.symmetrized(mode), directed=False)
        return int(result[0]), result[1]

    def geodesics(
        self, sources: ArrayLike | None = None, mode: Mode = "union"
    ) -> NDArray[np.float64]:
        """Return the lengths of shortest paths in the undirected graph.

        Parameters
        ----------
        sources : array-like of int, shape (n_sources,), default=None
            Start rows of the paths. ``None`` means all rows and returns an array of shape
            n_samples × n_samples.
        mode : {"union", "mutual"}, default="union"
            How to make the graph undirected; see :meth:`symmetrized`.

        Returns
        -------
        ndarray of shape (n_sources, n_samples)
            Length of the shortest path from each source to every row, or ``inf`` if there is no
            path. A path is at least as long as the Euclidean distance, up to rounding.

        Notes
        -----
        Dijkstra's algorithm costs O(n_sources (n_edges + n_samples log n_samples)).

        Examples
        --------
        >>> from nearfar.summaries.neighbor_graph import NeighborGraph
        >>> graph = NeighborGraph.from_points([[0.0], [1.0], [5.0], [6.0]], n_neighbors=1)
        >>> graph.geodesics([0, 3])
        array([[ 0.,  1., inf, inf],
               [inf, inf,  1.,  0.]])
        """
        if sources is not None:
            sources = _check_sources(sources, self.n_samples)
        # The matrix holds both directions of each edge, so directed=True gives the same lengths at
        # half the cost.
        lengths = csgraph.dijkstra(self.symmetrized(mode), directed=True, indices=sources)
        return np.asarray(lengths, np.float64)

    def _make_csr(
        self, distances: NDArray[np.float64], indices: NDArray[np.intp], indptr: NDArray[np.intp]
    ) -> sparse.csr_array:
        # SciPy's graph routines require 32-bit indices.
        fits = max(self.n_samples, len(indices)) <= np.iinfo(np.int32).max
        index = np.int32 if fits else np.int64
        return sparse.csr_array(
            (distances, indices.astype(index), indptr.astype(index)),
            shape=(self.n_samples, self.n_samples),
        )

    def __repr__(self) -> str:
        return (
            f"NeighborGraph(n_samples={self.n_samples}, n_edges={len(self.indices)}, "
            f"is_exact={self.is_exact})"
        )

    def _check_state(self, sizes: Sizes) -> None:
        NeighborGraph(self.indptr, self.indices, self.distances, self.is_exact, self.recall_)
        sizes["n"] = self.n_samples

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled arrays are writeable when loaded; the constructor makes them read-only again.
        lists = self.indptr, self.indices, self.distances
        return type(self), (*lists, self.is_exact, self.recall_)


def link_components(
    graph: NeighborGraph, X: NDArray[Any], *, on_disconnected: Disconnected = "link"
) -> NeighborGraph:
    """Return a connected neighbor graph of ``X``, with additional edges where they are needed.

    The added edges form a minimum spanning tree of the components (Borůvka's algorithm): every
    component except the largest is connected to its nearest row outside, until one component is
    left. Both rows of an added edge list each other, so lists may have different lengths. A warning
    reports the number and the length of the added edges. With ``on_disconnected="raise"``, a graph
    that is not connected raises ``ValueError`` instead.

    Examples
    --------
    >>> import numpy as np
    >>> import warnings
    >>> X = np.array([[0.0], [1.0], [5.0], [6.0]])
    >>> graph = NeighborGraph.from_points(X, n_neighbors=1)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     link_components(graph, X).geodesics([0])
    array([[0., 1., 5., 6.]])
    """
    n_components, labels = graph.connected_components()
    if n_components == 1:
        return graph
    problem = f"The neighbor graph of the {graph.n_samples} rows falls into {n_components} parts"
    if on_disconnected == "raise":
        sizes = np.sort(np.bincount(labels))[::-1]
        raise ValueError(
            f"{problem}, with {sizes[-1]} to {sizes[0]} rows each. Increase n_neighbors, embed the "
            'parts separately, or set on_disconnected="link".'
        )
    links = _find_spanning_links(X, labels)
    median_length = np.median(graph.distances) if graph.distances.size else 0.0
    warn(
        f"{problem}. Added {format_count(len(links), 'edge')} to connect them; the longest has "
        "length "
        f"{max(length for _, _, length in links):.3g} (median edge: {median_length:.3g}). Increase "
        "n_neighbors if the parts belong together.",
    )
    return _add_edges(graph, links)


def extract_subgraph(graph: NeighborGraph, rows: NDArray[np.intp]) -> NeighborGraph:
    """Return the subgraph of the given rows, which are renumbered from 0.

    ``rows`` must be ascending and must contain all neighbors of these rows.

    >>> graph = NeighborGraph.from_points([[0.0], [1.0], [5.0], [6.0]], n_neighbors=1)
    >>> extract_subgraph(graph, np.array([2, 3])).neighbors.tolist()
    [[1], [0]]
    """
    inside = np.zeros(graph.n_samples, bool)
    inside[rows] = True
    is_kept = np.repeat(inside, np.diff(graph.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.diff(graph.indptr)[rows])])
    indices = np.searchsorted(rows, graph.indices[is_kept])
    return NeighborGraph(indptr, indices, graph.distances[is_kept], is_exact=graph.is_exact)


def _find_spanning_links(X: NDArray[Any], labels: NDArray[Any]) -> list[tuple[int, int, float]]:
    """Return the edges (row, row, distance) of a minimum spanning tree of the components."""
    labels = labels.copy()
    links = []
    while labels.max() > 0:
        largest = np.bincount(labels).argmax()
        # Component into which each component has been merged in this round.
        owner = np.arange(labels.max() + 1)
        for code in range(len(owner)):
            if code == largest:
                continue
            inside, outside = np.flatnonzero(labels == code), np.flatnonzero(labels != code)
            distances, nearest = kneighbors(X[outside], X[inside], n_neighbors=1)
            row = int(distances[:, 0].argmin())
            source, target = int(inside[row]), int(outside[nearest[row, 0]])
            component, other_component = owner[code], owner[labels[target]]
            # If both rows are now in the same component, an earlier link has already connected
            # them.
            if component != other_component:
                links.append((source, target, float(distances[row, 0])))
                owner[owner == other_component] = component
        labels = np.unique(owner[labels], return_inverse=True)[1].reshape(-1)
    return links


def _add_edges(graph: NeighborGraph, links: list[tuple[int, int, float]]) -> NeighborGraph:
    """Return the graph with the links as additional edges, in both directions."""
    rows = np.repeat(np.arange(graph.n_samples), np.diff(graph.indptr))
    sources, targets, lengths = (np.array(column) for column in zip(*links, strict=True))
    rows = np.concatenate([rows, sources, targets])
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=graph.n_samples))])
    indices = np.concatenate([graph.indices, targets, sources])[order]
    distances = np.concatenate([graph.distances, lengths, lengths])[order]
    return NeighborGraph(indptr, indices, distances, is_exact=graph.is_exact)


def find_distinct_rows(X: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first index of each distinct row, and an array that maps rows to distinct rows.

    >>> find_distinct_rows(np.array([[2.0], [1.0], [2.0]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    # Adding zero converts -0.0 to 0.0.
    _, first, inverse = np.unique(
        view_rows_as_bytes(np.ascontiguousarray(X + 0.0)), return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse.reshape(-1)]


def connect_queries(
    X: NDArray[Any], queries: NDArray[Any], *, n_neighbors: int, reach: NDArray[np.float64]
) -> sparse.csr_array:
    """Connect new points to the rows of an undirected graph, and return the distances.

    A query and a row are connected if the row is one of the nearest neighbors of the query, or if
    their distance is at most the reach of the row (mode "union"). ``reach`` holds the distance from
    each row to its farthest neighbor. The result holds the distances of connected rows, including
    explicit zeros.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [5.0]])
    >>> reach = np.array([1.0, 1.0, 4.0])
    >>> connect_queries(X, np.array([[2.0]]), n_neighbors=1, reach=reach).toarray()
    array([[0., 1., 3.]])
    """
    n = len(X)
    distances, indices = kneighbors(X, queries, n_neighbors=n_neighbors)
    pairs = [np.repeat(np.arange(len(queries)), n_neighbors) * n + indices.ravel()]
    lengths = [distances.ravel()]
    for block, rows, columns, block_distances in find_pairs_within(queries, X, reach):
        pairs.append(columns * n + rows + block.start)
        lengths.append(block_distances)
    edges, first = np.unique(np.concatenate(pairs), return_index=True)
    query, row = np.divmod(edges, n)
    indptr = np.searchsorted(query, np.arange(len(queries) + 1))
    return sparse.csr_array((np.concatenate(lengths)[first], row, indptr), shape=(len(queries), n))


def _make_read_only(values: Any, dtype: type, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in ("iu" if dtype is np.intp else "iuf"):
        raise ValueError(
            f"{name} must be a 1-d array of {'integers' if dtype is np.intp else 'numbers'}; "
            f"got an array of shape {array.shape} and dtype {array.dtype}."
        )
    array = array.astype(dtype)
    array.flags.writeable = False
    return array


def _check_lists(
    indptr: NDArray[np.intp], indices: NDArray[np.intp], distances: NDArray[np.float64]
) -> None:
    n = len(indptr) - 1
    if n < 1 or indptr[0] != 0 or indptr[-1] != len(indices) or (np.diff(indptr) < 0).any():
        raise ValueError(
            f"indptr must have at least two entries that ascend from 0 to the number of indices, "
            f"{len(indices)}; got {indptr}."
        )
    if len(distances) != len(indices):
        raise ValueError(
            f"distances and indices must have the same length; got {len(distances)} and "
            f"{len(indices)}."
        )
    if indices.size and not 0 <= indices.min() <= indices.max() < n:
        raise ValueError(
            f"indices must be from 0 to {n - 1}; got {indices.min()} to {indices.max()}."
        )
    is_self = np.flatnonzero(indices == np.repeat(np.arange(n), np.diff(indptr)))
    if is_self.size:
        raise ValueError(
            f"indices must not list a row as its own neighbor; row {indices[is_self[0]]} does."
        )
    if not (np.isfinite(distances).all() and (distances >= 0).all()):
        raise ValueError(
            f"distances must be finite and at least 0; got {distances.min()} to {distances.max()}."
        )


def _check_sources(sources: ArrayLike, n_samples: int) -> NDArray[np.intp]:
    rows = np.asarray(sources)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise ValueError(
            "sources must be a 1-d array of row indices; got an array of shape "
            f"{rows.shape} and dtype {rows.dtype}."
        )
    if rows.size and not 0 <= rows.min() <= rows.max() < n_samples:
        raise ValueError(
            f"sources must be from 0 to {n_samples - 1}; got {rows.min()} to {rows.max()}."
        )
    return rows.astype(np.intp)
