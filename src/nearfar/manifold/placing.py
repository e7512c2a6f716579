"""Base class of the unfolding methods, and placement of new points."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.manifold.graph_embedding import _GraphEmbedding, interpolate_new_points
from nearfar.parameters import AllowedValues, one_of
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.new_points import place_by_program, place_by_stress
from nearfar.solvers.unfolding import UnfoldingInterrupted
from nearfar.state import State, indices, none_or

OutOfSampleMethod = Literal["lle", "sdp", "sdp_refined"]

#: Allowed values of the parameter ``out_of_sample``.
OUT_OF_SAMPLE_METHODS: list[AllowedValues] = [one_of("lle", "sdp", "sdp_refined")]


class _Unfolding(_GraphEmbedding):
    """Base class of embeddings that preserve distances and use neighbors to place new points.

    If components are unfolded separately, ``_embed`` sets ``_labels``, the connected component of
    each row. If Ctrl-C stops the fit, ``_embed`` sets ``_interrupt`` and returns the best solution
    so far.
    """

    state = State({"_labels": none_or(indices("n", below="n"))})
    renamed_values: ClassVar = {"out_of_sample": {"sdp-refined": "sdp_refined"}}

    out_of_sample: OutOfSampleMethod
    reg: float
    _labels: Indices | None
    _interrupt: UnfoldingInterrupted | None

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Unfold the training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points. Identical rows are merged and get the same coordinates.
        y : ignored
            Not used, present for API consistency.

        Returns
        -------
        object
            Fitted estimator.
        """
        self._interrupt = None
        try:
            super().fit(X)
            interrupt = self._interrupt
        finally:
            del self._interrupt
        if interrupt is not None:
            # The best solution so far is already stored.
            raise interrupt
        return self

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points, using their nearest training rows. ``out_of_sample`` is the method.

        - "lle": :math:`y = \sum_i w_i y_i`, where the weights reconstruct the point from its
          neighbors and sum to one.
        - "sdp": y and s minimize
          :math:`\sum_i |\|y_i\|^2 - 2 y_i^T y + s - \|x_i - x\|^2| + s` subject to
          :math:`s \ge \|y\|^2`, with the neighbors' mean as the origin.
        - "sdp_refined": starts at the result of "sdp" and descends to a local minimum of
          :math:`\sum_i (\|y - y_i\|^2 - \|x - x_i\|^2)^2`.

        A training row gets its own coordinates. If the components of the graph were unfolded
        separately, a point belongs to the component of its nearest training row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points to map.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Coordinates, in the dtype of X.
        """
        return self._transform(X)

    def _place(self, queries: Floats) -> Matrix:
        labels = self._labels
        if labels is None:
            return self._place_from_rows(np.arange(len(self._points)), queries)
        _, nearest = kneighbors(self._points, queries, n_neighbors=1)
        new_coordinates = np.empty((len(queries), self._coordinates.shape[1]))
        for component in np.unique(labels[nearest]):
            in_component = labels[nearest[:, 0]] == component
            new_coordinates[in_component] = self._place_from_rows(
                np.flatnonzero(labels == component), queries[in_component]
            )
        return new_coordinates

    def _place_from_rows(self, rows: Indices, queries: Floats) -> Matrix:
        return place_new_points(
            self._points[rows],
            self._coordinates[rows],
            queries,
            n_neighbors=self._n_neighbors,
            method=self.out_of_sample,
            reg=self.reg,
        )


def place_new_points(
    points: Floats,
    coordinates: Matrix,
    queries: Floats,
    *,
    n_neighbors: int,
    method: OutOfSampleMethod = "lle",
    reg: float = 1e-3,
) -> Matrix:
    """Return coordinates of new points, computed from their nearest distinct training rows.

    Uses the formulas of :meth:`_Unfolding.transform`. Distances between ``coordinates`` are in the
    units of ``points``. At least r + 1 neighbors are used if there are that many rows, where r is
    the number of columns of ``coordinates``. See Weinberger, K. Q., "Metric Learning with Convex
    Optimization", 2007, section 3.1.10. Its second constraint as printed is too weak; see the page
    of the guide on errors in the literature.

    Examples
    --------
    >>> points = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    >>> coordinates, query = points[:, :2] + 7, np.array([[0.5, 0.25, 0]])
    >>> place_new_points(points, coordinates, query, n_neighbors=3, method="sdp").round(5)
    array([[7.5 , 7.25]])
    """
    k = min(len(points), max(n_neighbors, coordinates.shape[1] + 1))
    if method == "lle":
        return interpolate_new_points(points, coordinates, queries, k, reg)
    distances, neighbors = kneighbors(points, queries, n_neighbors=k)
    neighbor_coordinates, squared = coordinates[neighbors], distances**2
    new_coordinates = place_by_program(neighbor_coordinates, squared)
    if method == "sdp_refined":
        new_coordinates = place_by_stress(new_coordinates, neighbor_coordinates, squared)
    is_training_row = distances[:, 0] == 0
    new_coordinates[is_training_row] = coordinates[neighbors[is_training_row, 0]]
    return new_coordinates
