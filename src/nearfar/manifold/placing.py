"""Base class of the unfolding methods: new points, separate components, keyboard interrupts."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.manifold.graph_embedding import _GraphEmbedding, interpolated
from nearfar.parameters import AllowedValues, one_of
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.new_points import place_by_program, place_by_stress
from nearfar.solvers.unfolding import UnfoldingInterrupted
from nearfar.state import State, indices, none_or

Placing = Literal["lle", "sdp", "sdp_refined"]

#: Allowed values of the parameter ``out_of_sample``.
PLACING: list[AllowedValues] = [one_of("lle", "sdp", "sdp_refined")]


class _Unfolding(_GraphEmbedding):
    """Base class of embeddings that preserve distances and place new points by their neighbors.

    ``_embed`` sets ``_labels``, the connected component of each row, if components are unfolded
    separately. It sets ``_interrupt`` if Ctrl-C stopped it: the best solution so far is kept.
    """

    state = State({"_labels": none_or(indices("n", below="n"))})
    renamed_values: ClassVar = {"out_of_sample": {"sdp-refined": "sdp_refined"}}

    out_of_sample: Placing
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
            # The estimator keeps the best solution so far; Ctrl-C then propagates as usual.
            raise interrupt
        return self

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points by the method ``out_of_sample``, from their nearest training rows.

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
            return self._place_by(np.arange(len(self._points)), queries)
        _, nearest = kneighbors(self._points, queries, n_neighbors=1)
        placed = np.empty((len(queries), self._places.shape[1]))
        for part in np.unique(labels[nearest]):
            mine = labels[nearest[:, 0]] == part
            placed[mine] = self._place_by(np.flatnonzero(labels == part), queries[mine])
        return placed

    def _place_by(self, rows: Indices, queries: Floats) -> Matrix:
        return place_new_points(
            self._points[rows],
            self._places[rows],
            queries,
            n_neighbors=self._listed,
            method=self.out_of_sample,
            reg=self.reg,
        )


def place_new_points(
    points: Floats,
    places: Matrix,
    queries: Floats,
    *,
    n_neighbors: int,
    method: Placing = "lle",
    reg: float = 1e-3,
) -> Matrix:
    """Return coordinates of new points, computed from their nearest (distinct) training rows.

    Uses the formulas of :meth:`_Unfolding.transform`. Distances between ``places`` are in the
    units of ``points``. At least r + 1 neighbors are used if there are that many rows, where r is
    the number of columns of ``places``. See Weinberger, K. Q., "Metric Learning with Convex
    Optimization", 2007, section 3.1.10. Its second constraint as printed is too weak; see the page
    of the guide on errors in the literature.

    Examples
    --------
    >>> points = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    >>> places, query = points[:, :2] + 7, np.array([[0.5, 0.25, 0]])
    >>> place_new_points(points, places, query, n_neighbors=3, method="sdp").round(5)
    array([[7.5 , 7.25]])
    """
    k = min(len(points), max(n_neighbors, places.shape[1] + 1))
    if method == "lle":
        return interpolated(points, places, queries, k, reg)
    distances, near = kneighbors(points, queries, n_neighbors=k)
    known, squared = places[near], distances**2
    placed = place_by_program(known, squared)
    if method == "sdp_refined":
        placed = place_by_stress(placed, known, squared)
    same = distances[:, 0] == 0
    placed[same] = places[near[same, 0]]
    return placed
