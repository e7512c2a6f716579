"""Isomap computed from the distances to landmarks only."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS
from nearfar.manifold.isomap import (
    _GeodesicEmbedding,
    compute_residual_variance,
    compute_squared_geodesics,
)
from nearfar.parameters import integer, random_state
from nearfar.solvers.spectral_step import (
    distance_axes,
    double_center,
    leading_spectrum,
    warn_about_zero_coordinates,
)
from nearfar.state import State, floats, indices
from nearfar.summaries.neighbor_graph import Disconnected


class LandmarkIsomap(_GeodesicEmbedding):
    r"""Landmark Isomap for many rows: Isomap embeds the landmarks, and a formula places other rows.

    The squared lengths :math:`D^{(2)}` of the shortest paths between m landmarks give
    :math:`-\frac12 H D^{(2)} H = V \Lambda V^T`. A row whose shortest paths to the landmarks have
    squared lengths d is placed at

    .. math:: y = -\tfrac12 \Lambda^{-1/2} V^T (d - \bar d) ,

    where :math:`\bar d` is the mean of the columns of :math:`D^{(2)}`. This is Isomap's formula for
    new points. It gives a landmark its own coordinates.

    Use it if :class:`Isomap` is too slow or its n×n array too large. A few hundred landmarks give
    the same result as all rows on a surface. It fails in the same cases as Isomap. Coordinates are
    centered at the mean of the landmarks, not of all rows.

    Cost: O(n² p) for the neighbors, O(m n (k + log n)) for the paths, and an m×n array.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row. An edge joins two rows if either is a neighbor of the other.
    n_landmarks : int, default=1000
        Number of landmarks. If this is at least the number of rows, the result equals that of
        Isomap.
    on_disconnected : {"link", "raise"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. It determines which rows are landmarks.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    landmarks_ : ndarray of shape (n_landmarks,)
        Indices of the landmarks among the distinct rows, in ascending order.
    eigenvalues_ : ndarray of shape (n_components,)
        Largest eigenvalues :math:`\Lambda`, in descending order.
    negative_share_ : float
        Sum of the absolute values of the negative eigenvalues, divided by the sum of the absolute
        values of all eigenvalues.
    residual_variance_ : float
        Residual variance 1 - r², where r is the correlation between distances along the graph and
        distances in the embedding. It is computed from the distances of up to 200 landmarks to all
        rows.

    See Also
    --------
    Isomap, LandmarkMVU

    References
    ----------
    .. [1] de Silva, V., J. B. Tenenbaum, "Global versus local methods in nonlinear dimensionality
       reduction", Advances in Neural Information Processing Systems 15, 2003.
    .. [2] Yang, L., R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, sections
       4.3.2 and 4.4.

    Examples
    --------
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import LandmarkIsomap
    >>> X, t = make_swiss_roll(2000, random_state=0)
    >>> isomap = LandmarkIsomap(n_neighbors=8, n_landmarks=100).fit(X)
    >>> bool(isomap.residual_variance_ < 0.01)
    True
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    state = State({"landmarks_": indices("m", below="n"), "_axes": floats("m", "q")})
    parameters: ClassVar = {
        **GRAPH_PARAMETERS,
        "n_landmarks": [integer(2)],
        "random_state": [random_state],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        n_landmarks: int = 1000,
        on_disconnected: Disconnected = "link",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.n_landmarks = n_landmarks
        self.on_disconnected = on_disconnected
        self.random_state = random_state

    def _embed(self, points: Floats) -> Matrix:
        n = len(points)
        m = min(self.n_landmarks, n)
        if self.n_components >= m:
            raise ValueError(
                f"n_landmarks={self.n_landmarks} must be greater than n_components="
                f"{self.n_components}."
            )
        self._graph = self._build_connected_graph(points, self.n_neighbors)
        landmarks = check_random_state(self.random_state).choice(n, m, replace=False)
        self.landmarks_ = np.sort(landmarks)
        squared = compute_squared_geodesics(self._graph, self.landmarks_)
        squared_between = squared[:, self.landmarks_]
        means = squared_between.mean(axis=0)
        values, vectors, self.negative_share_ = leading_spectrum(
            double_center(squared_between, in_place=True), self.n_components
        )
        warn_about_zero_coordinates("LandmarkIsomap", values)
        self.eigenvalues_ = values
        self._axes = distance_axes(values, vectors)
        self._shift = -0.5 * means @ self._axes
        coordinates = -0.5 * (squared.T @ self._axes) - self._shift
        sampled = np.linspace(0, m - 1, min(m, 200)).astype(np.intp)
        paths = np.sqrt(squared[sampled])
        self.residual_variance_ = compute_residual_variance(
            paths, coordinates, self.landmarks_[sampled]
        )
        return coordinates

    def _get_landmarks(self) -> Indices:
        return self.landmarks_
