"""Who is near whom: directed neighbour lists, and the graph they make."""

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
from nearfar.search.candidates import row_bytes
from nearfar.search.exact_search import kneighbors, pairs_within, radius_neighbors
from nearfar.state import Sizes, State
from nearfar.words import count

Mode = Literal["union", "mutual"]
Disconnected = Literal["link", "raise"]


@dataclass(frozen=True, eq=False, repr=False)
class NeighborGraph:
    """Directed neighbour lists with Euclidean distances; what graph methods know of their data.

    An edge runs from each row to each of its neighbours, and has their distance for its length.
    Edges of length 0, between identical rows, are edges like all others. The arrays are read-only
    copies.

    Build it from data with :meth:`from_points`; the constructor takes lists found elsewhere.

    Parameters
    ----------
    indptr : array-like of int, shape (n_samples + 1,)
        The neighbours of row ``i`` are entries ``indptr[i]`` to ``indptr[i + 1]`` of the two arrays
        below (the CSR format).
    indices : array-like of int, shape (n_edges,)
        The neighbours: rows from 0 to ``n_samples - 1``, within each list no row twice and not the
        row itself.
    distances : array-like of float, shape (n_edges,)
        Their distances, finite and at least 0. Two rows that list each other have one distance.
    is_exact : bool, default=True
        Whether the lists hold the nearest rows for certain.
    recall_ : float or None, default=None
        Which share of the nearest rows an approximate search found, measured on a sample of rows;
        None where nobody measured it.

    Attributes
    ----------
    indptr, indices, distances, is_exact, recall_
        As above, read-only.
    n_samples : int
        The number of rows.
    neighbors : ndarray of shape (n_samples, k)
        The neighbours as a table, when all lists have one length.

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
        indptr = _read_only(self.indptr, np.intp, "indptr")
        indices = _read_only(self.indices, np.intp, "indices")
        distances = _read_only(self.distances, np.float64, "distances")
        _check_lists(indptr, indices, distances)
        for name, array in [("indptr", indptr), ("indices", indices), ("distances", distances)]:
            object.__setattr__(self, name, array)
        object.__setattr__(self, "is_exact", bool(self.is_exact))
        if self.recall_ is not None and not 0 <= self.recall_ <= 1:
            raise ValueError(f"recall_ must be from 0 to 1, or None; got {self.recall_!r}.")
        if not self.to_sparse().has_canonical_format:
            raise ValueError("indices must not name a row twice in one list.")

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
        """The graph of the nearest rows, or of all rows within a radius.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The data; dense and finite.
        n_neighbors : int, default=None
            The number of neighbours of each row, itself not counted; of rows at the same distance
            those with the smaller index are taken. Exactly one of ``n_neighbors`` and ``radius``
            is given.
        radius : float, default=None
            The largest distance of a neighbour, inclusive.
        approximate : bool, "ivf" or "hnsw", default=False
            Search with an index of faiss (``pip install 'nearfar[ann]'``), which may miss some of
            the nearest rows; the distances of those found are exact, and ``recall_`` says which
            share of the neighbours of a sample was found. True is "ivf", which searches those of
            some 4 √n_samples parts that are nearest; "hnsw" walks along a graph of near rows. For
            ``n_neighbors`` only. It pays near a manifold of few dimensions, with 50,000 rows by a
            factor of three; where many features vary freely the exact search is faster.
        random_state : int, RandomState instance or None, default=None
            The seed of the approximate search; equal seeds give equal graphs.

        Returns
        -------
        NeighborGraph
            Lists in the order of distance, then index.

        Raises
        ------
        ImportError
            If ``approximate`` and faiss is not installed.
        TypeError
            If ``X`` is sparse.
        ValueError
            If not exactly one of ``n_neighbors`` and ``radius`` is given, or one is out of range.

        Notes
        -----
        The exact search costs O(n_samples² n_features) in matrix products, and memory for the
        result and blocks within scikit-learn's ``working_memory``. Rows in float16, and rows mapped
        from a file, are read in blocks.

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
                "Give exactly one of n_neighbors and radius; "
                f"got n_neighbors={n_neighbors!r} and radius={radius!r}."
            )
        if approximate and n_neighbors is None:
            raise ValueError(
                f"approximate=True finds n_neighbors only, but radius={radius!r} was given; "
                "give n_neighbors, or leave approximate=False."
            )
        if sparse.issparse(X):
            raise TypeError(
                "Sparse data was passed for X, but neighbours are sought in dense data; reduce "
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
        """The number of rows."""
        return len(self.indptr) - 1

    @property
    def neighbors(self) -> NDArray[np.intp]:
        """The neighbours as a table of shape (n_samples, k), when all lists have one length.

        Raises
        ------
        ValueError
            If some rows have more neighbours than others.
        """
        counts = np.diff(self.indptr)
        if counts.min() != counts.max():
            raise ValueError(
                f"The rows have from {counts.min()} to {counts.max()} neighbours, which make no "
                "table; read indptr and indices, or build the graph with n_neighbors."
            )
        return self.indices.reshape(self.n_samples, -1)

    def to_sparse(self) -> sparse.csr_array:
        """The directed graph as a sparse matrix of distances.

        Returns
        -------
        csr_array of shape (n_samples, n_samples)
            Row ``i`` holds the distances from ``i`` to its neighbours. Neighbours at distance 0
            are stored, as explicit zeros; beware that arithmetic and
            ``csr_array.eliminate_zeros`` lose them.

        Examples
        --------
        >>> from nearfar.summaries.neighbor_graph import NeighborGraph
        >>> graph = NeighborGraph.from_points([[0.0], [0.0], [3.0]], n_neighbors=1)
        >>> graph.to_sparse().nnz
        3
        """
        matrix = self._csr(self.distances.copy(), self.indices, self.indptr)
        matrix.sort_indices()
        return matrix

    def symmetrized(self, mode: Mode = "union") -> sparse.csr_array:
        """The undirected graph as a symmetric sparse matrix of distances.

        Parameters
        ----------
        mode : {"union", "mutual"}, default="union"
            Join two rows when either lists the other, or only when both do.

        Returns
        -------
        csr_array of shape (n_samples, n_samples)
            The distances of joined rows, the smaller one where the two lists differ. Those at
            distance 0 are stored, as explicit zeros.

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
        # Lists of edges rather than sums or maxima of sparse matrices, which drop zeros.
        there, back = rows * n + self.indices, self.indices * n + rows
        edges, where, times = np.unique(
            np.concatenate([there, back]), return_inverse=True, return_counts=True
        )
        distances = np.full(len(edges), np.inf)
        np.minimum.at(distances, where, np.tile(self.distances, 2))
        if mode == "mutual":
            edges, distances = edges[times == 2], distances[times == 2]
        rows, columns = np.divmod(edges, n)
        indptr = np.searchsorted(rows, np.arange(n + 1))
        return self._csr(distances, columns, indptr)

    def connected_components(self, mode: Mode = "union") -> tuple[int, NDArray[np.int32]]:
        """The parts of the undirected graph that no edge joins.

        Parameters
        ----------
        mode : {"union", "mutual"}, default="union"
            As in :meth:`symmetrized`.

        Returns
        -------
        n_components : int
            How many there are.
        labels : ndarray of shape (n_samples,)
            The component of each row, numbered from 0.

        Examples
        --------
        >>> from nearfar.summaries.neighbor_graph import NeighborGraph
        >>> graph = NeighborGraph.from_points([[0.0], [1.0], [5.0], [6.0]], n_neighbors=1)
        >>> graph.connected_components()
        (2, array([0, 0, 1, 1], dtype=int32))
        """
        if mode == "union":  # what edges of either direction join
            found = csgraph.connected_components(self.to_sparse(), connection="weak")
        else:
            found = csgraph.connected_components(self.symmetrized(mode), directed=False)
        return int(found[0]), found[1]

    def geodesics(
        self, sources: ArrayLike | None = None, mode: Mode = "union"
    ) -> NDArray[np.float64]:
        """The lengths of the shortest paths in the undirected graph, by Dijkstra's algorithm.

        Parameters
        ----------
        sources : array-like of int, shape (n_sources,), default=None
            The rows where paths begin. ``None`` means all rows, and builds the full array of
            n_samples × n_samples.
        mode : {"union", "mutual"}, default="union"
            As in :meth:`symmetrized`.

        Returns
        -------
        ndarray of shape (n_sources, n_samples)
            The distance from each source to every row along the graph; ``inf`` where there is no
            path. Never less than the Euclidean distance, but for rounding.

        Notes
        -----
        Cost O(n_sources (n_edges + n_samples log n_samples)).

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
        # Both directions of each edge are stored, so that the directed form does, at half the cost.
        lengths = csgraph.dijkstra(self.symmetrized(mode), directed=True, indices=sources)
        return np.asarray(lengths, np.float64)

    def _csr(
        self, distances: NDArray[np.float64], indices: NDArray[np.intp], indptr: NDArray[np.intp]
    ) -> sparse.csr_array:
        # SciPy's graph routines read 32-bit indices.
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
        # Through the constructor: pickled arrays come back writeable.
        lists = self.indptr, self.indices, self.distances
        return type(self), (*lists, self.is_exact, self.recall_)


def linked_graph(
    graph: NeighborGraph, X: NDArray[Any], *, on_disconnected: Disconnected = "link"
) -> NeighborGraph:
    """The graph of the rows of ``X`` if it is connected; else with edges added that connect it.

    The edges are the shortest that do: every component but the largest is joined to the row that is
    nearest to it outside, and so on until one component is left (Borůvka's minimum spanning tree of
    the components). Both rows of such an edge list each other, so that lists may have unequal
    lengths. A warning says how many edges were added and how long they are; with
    ``on_disconnected="raise"`` an error says that they are needed.

    Examples
    --------
    >>> import numpy as np
    >>> import warnings
    >>> X = np.array([[0.0], [1.0], [5.0], [6.0]])
    >>> graph = NeighborGraph.from_points(X, n_neighbors=1)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     linked_graph(graph, X).geodesics([0])
    array([[0., 1., 5., 6.]])
    """
    n_components, labels = graph.connected_components()
    if n_components == 1:
        return graph
    found = f"The neighbour graph of the {graph.n_samples} rows falls into {n_components} parts"
    if on_disconnected == "raise":
        sizes = np.sort(np.bincount(labels))[::-1]
        raise ValueError(
            f"{found}, the largest of {sizes[0]} and the smallest of {sizes[-1]} rows: raise "
            'n_neighbors, embed the parts one by one, or set on_disconnected="link".'
        )
    links = _spanning_links(X, labels)
    typical = np.median(graph.distances) if graph.distances.size else 0.0
    warn(
        f"{found}. They are connected by {count(len(links), 'edge')} more, the longest of length "
        f"{max(length for _, _, length in links):.3g} (the median edge has {typical:.3g}). Raise "
        "n_neighbors if the parts belong together.",
    )
    return _with_edges(graph, links)


def part_of_graph(graph: NeighborGraph, rows: NDArray[np.intp]) -> NeighborGraph:
    """The graph of some rows, ascending, that list only one another; numbered anew.

    >>> graph = NeighborGraph.from_points([[0.0], [1.0], [5.0], [6.0]], n_neighbors=1)
    >>> part_of_graph(graph, np.array([2, 3])).neighbors.tolist()
    [[1], [0]]
    """
    inside = np.zeros(graph.n_samples, bool)
    inside[rows] = True
    kept = np.repeat(inside, np.diff(graph.indptr))
    indptr = np.concatenate([[0], np.cumsum(np.diff(graph.indptr)[rows])])
    indices = np.searchsorted(rows, graph.indices[kept])
    return NeighborGraph(indptr, indices, graph.distances[kept], is_exact=graph.is_exact)


def _spanning_links(X: NDArray[Any], labels: NDArray[Any]) -> list[tuple[int, int, float]]:
    """The edges of a shortest tree between the components: two rows and their distance."""
    labels = labels.copy()
    links = []
    while labels.max() > 0:
        largest = np.bincount(labels).argmax()
        owner = np.arange(labels.max() + 1)  # component now, of the components of this round
        for code in range(len(owner)):
            if code == largest:
                continue
            inside, outside = np.flatnonzero(labels == code), np.flatnonzero(labels != code)
            distances, nearest = kneighbors(X[outside], X[inside], n_neighbors=1)
            row = int(distances[:, 0].argmin())
            here, there = int(inside[row]), int(outside[nearest[row, 0]])
            mine, theirs = owner[code], owner[labels[there]]
            if mine != theirs:  # else an earlier link of this round joined them already
                links.append((here, there, float(distances[row, 0])))
                owner[owner == theirs] = mine
        labels = np.unique(owner[labels], return_inverse=True)[1].reshape(-1)
    return links


def _with_edges(graph: NeighborGraph, links: list[tuple[int, int, float]]) -> NeighborGraph:
    """The graph with links in the lists of both their rows, at the end."""
    rows = np.repeat(np.arange(graph.n_samples), np.diff(graph.indptr))
    here, there, lengths = (np.array(part) for part in zip(*links, strict=True))
    rows = np.concatenate([rows, here, there])
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=graph.n_samples))])
    indices = np.concatenate([graph.indices, there, here])[order]
    distances = np.concatenate([graph.distances, lengths, lengths])[order]
    return NeighborGraph(indptr, indices, distances, is_exact=graph.is_exact)


def distinct_rows(X: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first of each set of identical rows, in order; and for every row which one it equals.

    >>> distinct_rows(np.array([[2.0], [1.0], [2.0]]))
    (array([0, 1]), array([0, 1, 0]))
    """
    # Adding zero makes -0.0 a plain zero.
    _, first, where = np.unique(
        row_bytes(np.ascontiguousarray(X + 0.0)), return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[where.reshape(-1)]


def joined_rows(
    X: NDArray[Any], queries: NDArray[Any], *, n_neighbors: int, reach: NDArray[np.float64]
) -> sparse.csr_array:
    """The rows to which new points would be joined in the undirected graph, by distance.

    A query and a row are joined if the row is among the nearest of the query, or if the query is no
    farther from the row than ``reach``, the distance of its last neighbour: the rule "union".
    Distances of 0 are stored.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [5.0]])
    >>> joined_rows(X, np.array([[2.0]]), n_neighbors=1, reach=np.array([1.0, 1.0, 4.0])).toarray()
    array([[0., 1., 3.]])
    """
    n = len(X)
    distances, indices = kneighbors(X, queries, n_neighbors=n_neighbors)
    pairs = [np.repeat(np.arange(len(queries)), n_neighbors) * n + indices.ravel()]
    lengths = [distances.ravel()]
    for block, rows, columns, found in pairs_within(queries, X, reach):
        pairs.append(columns * n + rows + block.start)
        lengths.append(found)
    edges, first = np.unique(np.concatenate(pairs), return_index=True)
    of_query, row = np.divmod(edges, n)
    indptr = np.searchsorted(of_query, np.arange(len(queries) + 1))
    return sparse.csr_array((np.concatenate(lengths)[first], row, indptr), shape=(len(queries), n))


def _read_only(values: Any, dtype: type, name: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in ("iu" if dtype is np.intp else "iuf"):
        raise ValueError(
            f"{name} must be a 1-d array of {'integers' if dtype is np.intp else 'numbers'}; "
            f"got shape {array.shape} of {array.dtype}."
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
            f"indptr must ascend from 0 to the number of indices, {len(indices)}, in at least two "
            f"entries; got {indptr}."
        )
    if len(distances) != len(indices):
        raise ValueError(
            f"distances must be as many as indices; got {len(distances)} and {len(indices)}."
        )
    if indices.size and not 0 <= indices.min() <= indices.max() < n:
        raise ValueError(
            f"indices must be rows from 0 to {n - 1}; got {indices.min()} to {indices.max()}."
        )
    own = np.flatnonzero(indices == np.repeat(np.arange(n), np.diff(indptr)))
    if own.size:
        raise ValueError(f"indices must not list a row itself; row {indices[own[0]]} does.")
    if not (np.isfinite(distances).all() and (distances >= 0).all()):
        raise ValueError(
            f"distances must be finite and at least 0; got {distances.min()} to {distances.max()}."
        )


def _check_sources(sources: ArrayLike, n_samples: int) -> NDArray[np.intp]:
    rows = np.asarray(sources)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise ValueError(
            f"sources must be a 1-d array of row numbers; got shape {rows.shape} of {rows.dtype}."
        )
    if rows.size and not 0 <= rows.min() <= rows.max() < n_samples:
        raise ValueError(
            f"sources must be rows from 0 to {n_samples - 1}; got {rows.min()} to {rows.max()}."
        )
    return rows.astype(np.intp)
