r"""Reference implementation of Weinberger's ball tree, for reading and for tests.

A node has a ball around its points: their mean c and the largest distance R from it. Every
point x of the node then has

.. math:: \|q - x\| \ge \max(\|q - c\| - R, 0)

for any query q. This holds for distances only, since squared distances do not obey the triangle
inequality. A search skips a node with all its points if its bound exceeds the distance sought. For
speed, use scikit-learn's compiled trees, as :mod:`nearfar.search.exact_search` does.

Examples
--------
>>> import numpy as np
>>> tree = MeanSplitBallTree(np.array([[0.0], [1.0], [5.0], [6.0]]), leaf_size=2)
>>> [node.rows.tolist() for node in tree.nodes]
[[0, 1, 2, 3], [2, 3], [0, 1]]
>>> tree.query([[4.0]], k=2)
(array([[1., 2.]]), array([[2, 3]]))
>>> tree.query_radius([4.0], 3.0)
array([1, 2, 3])
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Matrix


class Ball(NamedTuple):
    """Node of the tree: mean of the points, largest distance from the mean, and row indices.

    ``children`` are two nodes, or none for a leaf.
    """

    center: Matrix
    radius: float
    rows: Indices
    children: tuple[int, ...]


class MeanSplitBallTree:
    r"""Ball tree for exact neighbor search. Nodes are split at their mean point.

    To split a node, find the point :math:`x_1` farthest from a random one and the point
    :math:`x_2` farthest from :math:`x_1`, project all points on :math:`x_1 - x_2`, and split them
    at the mean of the projections. The mean is faster to compute than the median and works as well.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Points. At least one point is required, and all entries must be finite.
    leaf_size : int, default=10
        Maximum number of points in a leaf. A node whose points are all identical is not split
        either.
    random_state : int, Generator or None, default=0
        Seed of the random number generator. It affects the shape of the tree but not the result of
        a search.

    Attributes
    ----------
    nodes : list of Ball
        Nodes of the tree. The root comes first.

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric learning with convex optimization", PhD thesis, University of
       Pennsylvania, 2007, section 2.1.9.
    """

    def __init__(
        self,
        X: ArrayLike,
        *,
        leaf_size: int = 10,
        random_state: int | np.random.Generator | None = 0,
    ) -> None:
        self.X = np.ascontiguousarray(X, dtype=np.float64)
        if self.X.ndim != 2 or not len(self.X) or not np.isfinite(self.X).all():
            raise ValueError(
                "X must be a finite array of shape (n_samples, n_features) with at least one row; "
                f"got shape {self.X.shape}."
            )
        if leaf_size < 1:
            raise ValueError(f"leaf_size must be at least 1; got {leaf_size!r}.")
        self.leaf_size = leaf_size
        self.nodes: list[Ball] = []
        self._build(np.random.default_rng(random_state))

    def _build(self, rng: np.random.Generator) -> None:
        # Use a list instead of recursion, because the depth may equal the number of points.
        pending: list[tuple[Indices, int]] = [(np.arange(len(self.X)), -1)]
        while pending:
            rows, parent = pending.pop()
            points = self.X[rows]
            center = points.mean(axis=0)
            index = len(self.nodes)
            self.nodes.append(
                Ball(center, float(_compute_distances(points, center).max()), rows, ())
            )
            if parent >= 0:
                parent_node = self.nodes[parent]
                self.nodes[parent] = parent_node._replace(children=(*parent_node.children, index))
            if len(rows) > self.leaf_size:
                is_left = _split_at_mean(points, rng)
                # If all points are on one side of the split, they are identical or differ only by
                # rounding errors.
                if is_left.any() and not is_left.all():
                    pending += [(rows[is_left], index), (rows[~is_left], index)]

    def query(self, Q: ArrayLike, k: int = 1) -> tuple[Matrix, Indices]:
        """Find the nearest points to each query.

        Parameters
        ----------
        Q : array-like of shape (n_queries, n_features)
            Query points.
        k : int, default=1
            Number of neighbors. If the tree has fewer than k points, all points are returned.

        Returns
        -------
        distances : ndarray of shape (n_queries, min(k, n_samples))
            Distances, in ascending order.
        indices : ndarray of shape (n_queries, min(k, n_samples))
            Indices of the points. At equal distance, the smaller index comes first.
        """
        queries = np.asarray(Q, dtype=np.float64)
        if queries.ndim != 2 or queries.shape[1] != self.X.shape[1]:
            raise ValueError(
                f"Q must have shape (n_queries, {self.X.shape[1]}); got {queries.shape}."
            )
        if k < 1:
            raise ValueError(f"k must be at least 1; got {k!r}.")
        k = min(k, len(self.X))
        distances = np.empty((len(queries), k))
        indices = np.empty((len(queries), k), np.intp)
        for row, query in enumerate(queries):
            distances[row], indices[row] = self._find_nearest(query, k)
        return distances, indices

    def query_radius(self, q: ArrayLike, r: float) -> Indices:
        """Find all points within the distance ``r`` of one query.

        Parameters
        ----------
        q : array-like of shape (n_features,)
            Query point.
        r : float
            Radius. Points at exactly this distance are included.

        Returns
        -------
        ndarray of int
            Indices of the points, in ascending order.
        """
        query = np.asarray(q, dtype=np.float64)
        if query.shape != self.X.shape[1:]:
            raise ValueError(f"q must have shape {self.X.shape[1:]}; got {query.shape}.")
        hits = [np.zeros(0, np.intp)]
        pending = [0]
        while pending:
            node = self.nodes[pending.pop()]
            if self._bound_distance(query, node) > r:
                continue
            if node.children:
                pending += node.children
            else:
                hits.append(node.rows[_compute_distances(self.X[node.rows], query) <= r])
        return np.sort(np.concatenate(hits))

    def _find_nearest(self, query: Matrix, k: int) -> tuple[Matrix, Indices]:
        """Search the tree depth first. Visit the child with the closer center first."""
        distances, indices = np.full(k, np.inf), np.full(k, len(self.X), np.intp)
        pending = [0]
        while pending:
            node = self.nodes[pending.pop()]
            # Keep nodes at exactly the k-th distance, because they may contain a point with a
            # smaller index.
            if self._bound_distance(query, node) > distances[-1]:
                continue
            if node.children:
                # The list is a stack, so the closest child goes last.
                pending += sorted(
                    node.children,
                    key=lambda child: -_compute_length(query - self.nodes[child].center),
                )
            else:
                distances = np.concatenate(
                    [distances, _compute_distances(self.X[node.rows], query)]
                )
                indices = np.concatenate([indices, node.rows])
                best = np.lexsort((indices, distances))[:k]
                distances, indices = distances[best], indices[best]
        return distances, indices

    def _bound_distance(self, query: Matrix, node: Ball) -> float:
        """Return a lower bound on the distance to the node's points, with a margin for rounding."""
        length = _compute_length(query - node.center)
        rounding = 4 * (len(query) + 4) * float(np.finfo(np.float64).eps)
        return length - node.radius - rounding * (length + node.radius)


def _split_at_mean(points: Matrix, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask of the points beyond the mean along the longest direction."""
    start = points[rng.integers(len(points))]
    first = points[np.argmax(_compute_distances(points, start))]
    second = points[np.argmax(_compute_distances(points, first))]
    projections = (points - second) @ (first - second)
    return np.asarray(projections > projections.mean())


def _compute_distances(points: Matrix, query: Matrix) -> Matrix:
    difference: NDArray[Any] = points - query
    difference *= difference
    return np.asarray(np.sqrt(difference.sum(axis=1)))


def _compute_length(vector: Matrix) -> float:
    return float(np.sqrt(vector @ vector))
