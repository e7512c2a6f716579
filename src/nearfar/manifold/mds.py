"""Metric and nonmetric multidimensional scaling by stress."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist, squareform
from sklearn.isotonic import IsotonicRegression
from sklearn.manifold import smacof

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags
from nearfar.blocks import split_rows
from nearfar.manifold.graph_embedding import _Embedding
from nearfar.parameters import boolean, integer, real
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.spectral_step import principal_axes
from nearfar.state import State, floats, number

# The optimization for a new point starts at the mean of this number of nearest training rows.
_N_START_NEIGHBORS = 5


class MDS(_Embedding):
    r"""Metric or nonmetric multidimensional scaling, which fits distances directly.

    .. math:: \min_Y \sum_{i<j} (\|y_i - y_j\| - \hat d_{ij})^2 ,

    where :math:`\hat d_{ij}` are the Euclidean distances of the rows. In the nonmetric case they
    are an increasing function of these distances with unit mean square, found together with Y by
    isotonic regression. The solver is scikit-learn's ``smacof``, started at the solution of
    :class:`ClassicalMDS`. It never increases the stress but may end in a local minimum.

    Use it to display up to about a thousand rows if all distances matter equally. Use the nonmetric
    form if only the order of the distances is meaningful.

    Cost: O(n² q) for each of up to ``max_iter`` steps, O(n² log n) if nonmetric, and n×n arrays.
    Mapping n new points costs the same.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output: q.
    metric_mds : bool, default=True
        Whether to fit the distances. False fits only the order of the distances. With False,
        versions of scikit-learn before 1.7 stop too early.
    max_iter : int, default=300
        Maximum number of iterations.
    tol : float, default=1e-6
        Stop if a step reduces the stress by less than this fraction of the sum of squared
        distances.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    stress_ : float
        Kruskal's stress-1 of the distinct rows. It is the square root of the objective divided by
        :math:`\sum_{i<j} \|y_i - y_j\|^2`.
    n_iter_ : int
        Number of iterations.

    See Also
    --------
    ClassicalMDS, Isomap

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.1.
    .. [2] Borg, I., P. Groenen, "Modern Multidimensional Scaling", 2nd edition, 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import MDS
    >>> X = load_iris().data
    >>> mds = MDS().fit(X[::2])
    >>> bool(mds.stress_ < 0.05)
    True
    >>> mds.transform(X[1::2]).shape
    (75, 2)
    """

    learner_tags = LearnerTags(reads="instances", supervised=False)
    state = State({"_unit": number(0), "_isotonic_x": floats("k"), "_isotonic_y": floats("k")})
    renamed: ClassVar = {
        "metric": "metric_mds",
        "_at": "_isotonic_x",
        "_fitted": "_isotonic_y",
    }
    parameters: ClassVar = {
        "n_components": [integer(1)],
        "metric_mds": [boolean],
        "max_iter": [integer(1)],
        "tol": [real(0, open_low=True)],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        metric_mds: bool = True,
        max_iter: int = 300,
        tol: float = 1e-6,
    ) -> None:
        self.n_components = n_components
        self.metric_mds = metric_mds
        self.max_iter = max_iter
        self.tol = tol

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map each point by minimizing the stress of its distances to the training rows.

        .. math:: y(x) = \arg\min_y \sum_i (\|y - y_i\| - \hat d(x, x_i))^2 ,

        The solver is the same majorization, :math:`y \leftarrow \frac1n \sum_i \left( y_i +
        \hat d(x, x_i) \frac{y - y_i}{\|y - y_i\|} \right)`, started at the mean of the nearest
        rows. (MDS has no eigenvectors, so Nyström's formula does not apply.) Here :math:`\hat d` is
        the distance, or the increasing function of it learned by the fit. A point equal to a
        training row gets the coordinates of that row.

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

    def _embed(self, points: Floats) -> Matrix:
        q = self.n_components
        exact = points.astype(np.float64)
        distances = pdist(exact)
        # Scale to unit mean square, because the stopping rule of smacof depends on the scale.
        self._unit = float(np.sqrt(np.mean((distances / distances.max()) ** 2)) * distances.max())
        distances /= self._unit
        centered = (exact - exact.mean(axis=0)) / self._unit
        _, axes = principal_axes(centered)
        start = np.pad(centered @ axes[:, :q], ((0, 0), (0, max(0, q - axes.shape[1]))))
        coordinates, _, self.n_iter_ = smacof(
            squareform(distances),
            metric=bool(self.metric_mds),
            n_components=q,
            init=start,
            n_init=1,
            max_iter=self.max_iter,
            eps=self.tol,
            return_n_iter=True,
            normalized_stress=False,
        )
        embedded_distances = pdist(coordinates)
        self._isotonic_x, self._isotonic_y = np.array([0.0, 1.0]), np.array([0.0, 1.0])
        targets = distances
        if not self.metric_mds:
            isotonic = IsotonicRegression().fit(distances, embedded_distances)
            self._isotonic_x, self._isotonic_y = isotonic.X_thresholds_, isotonic.y_thresholds_
            targets = isotonic.predict(distances)
        self.stress_ = float(
            np.linalg.norm(embedded_distances - targets) / np.linalg.norm(embedded_distances)
        )
        return coordinates * self._unit

    def _place(self, queries: Floats) -> Matrix:
        points, n = self._points.astype(np.float64), len(self._points)
        new_coordinates = np.empty((len(queries), self._coordinates.shape[1]))
        nearest = min(_N_START_NEIGHBORS, n)
        for block in split_rows(
            len(queries), 8 * n * (3 + 2 * new_coordinates.shape[1]), max_rows=1024
        ):
            near_distances, rows = kneighbors(points, queries[block], n_neighbors=nearest)
            targets = self._compute_target_distances(queries[block].astype(np.float64), points)
            start = self._coordinates[rows].mean(axis=1)
            new_coordinates[block] = _minimize_stress(
                self._coordinates, targets, start, self.max_iter
            )
            is_training_row = near_distances[:, 0] == 0
            new_coordinates[block.start + np.flatnonzero(is_training_row)] = self._coordinates[
                rows[is_training_row, 0]
            ]
        return new_coordinates

    def _compute_target_distances(self, queries: Matrix, points: Matrix) -> Matrix:
        """Return the target distances between new points and training rows."""
        distances = np.empty((len(queries), len(points)))
        for row, query in enumerate(queries):
            distances[row] = np.sqrt(((points - query) ** 2).sum(axis=1))
        if self.metric_mds:
            return distances
        return np.asarray(
            np.interp(distances / self._unit, self._isotonic_x, self._isotonic_y) * self._unit
        )


def _minimize_stress(coordinates: Matrix, targets: Matrix, start: Matrix, max_iter: int) -> Matrix:
    """Return new points that minimize the stress of their distances to ``coordinates``."""
    y = start.copy()
    mean = coordinates.mean(axis=0)
    size = float(np.abs(coordinates).max()) or 1.0
    active = np.arange(len(y))
    for _ in range(max_iter):
        # Compute sum_i r_i (y - y_i) with r = target / distance, without an (m, n, q) array.
        squared = sum(
            (y[active, t, None] - coordinates[:, t]) ** 2 for t in range(coordinates.shape[1])
        )
        lengths = np.sqrt(squared)
        ratio = targets[active] / np.where(lengths > 0, lengths, np.inf)
        pull = ratio.sum(axis=1, keepdims=True) * y[active] - ratio @ coordinates
        new = mean + pull / len(coordinates)
        step_lengths = np.abs(new - y[active]).max(axis=1)
        y[active] = new
        active = active[step_lengths > 1e-7 * size]
        if not len(active):
            break
    return y
