"""DANNSubspace: a linear map onto the directions in which classes differ locally."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Indices, Matrix
from nearfar.base import LearnerTags, LinearLearner
from nearfar.base.local_voter import compute_deviations
from nearfar.base.voter import vote
from nearfar.blocks import map_in_order, resolve_n_threads, split_rows
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.search.leading_search import find_leading_neighbors
from nearfar.solvers.eigen import canonical_rows, descending_eigh, fix_signs
from nearfar.state import State, floats, integer_value, optional
from nearfar.summaries.local_rows import LocalMetrics, LocalRows
from nearfar.summaries.local_scatters import (
    choose_window_size,
    compute_exact_scatters,
    compute_inverse_roots,
    compute_scatters,
    find_inaccurate_windows,
    shrink_scatters,
)

# Number of neighbors in the leave-one-out votes with which "auto" selects ``n_components``.
_VOTERS = 5
# Maximum number of rows that are classified when "auto" selects ``n_components``. On five datasets
# of 5,000 rows, samples of 1,000 rows gave the same number of components as all rows.
_MAX_SAMPLE = 1_000


class DANNSubspace(LinearLearner):
    r"""Linear map onto the directions in which classes differ locally, averaged over all rows.

    Let :math:`S_b(x_i)` be the between-class covariance of the ``n_metric_neighbors`` nearest rows
    of :math:`x_i`, including the row itself. The rows are weighted as in :class:`DANNClassifier`,
    and the coordinates are whitened so that the within-class covariance is the identity (see
    ``sphere``). The map projects onto the leading eigenvectors of

    .. math:: \bar S = \frac1n \sum_i S_b(x_i) .

    Unlike LDA, it can keep more directions than there are classes, and it separates classes that
    consist of several clusters. Use it if most directions are noise, before any nearest-neighbor
    classifier. ``DANNClassifier(DANNSubspace())`` is the method sub-DANN of [1]_.

    Cost: :math:`O(n^2 p)`, as matrix products over blocks of rows; :math:`O(n^2 p^2)` with
    ``sphere="local"``. ``n_components="auto"`` adds the distances from at most 1,000 rows to all
    rows.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Dimension of the output; "auto" selects it by leave-one-out error. See Notes.
    n_metric_neighbors : int or None, default=None
        Number of nearest training points that define a metric. None uses a fifth of the rows, but
        at least 50 and at least ``10 * (n_features + n_classes)`` rows (or all rows, if there are
        fewer).
    sphere : {"global", "local", "none"}, default="global"
        Within-class covariance that is whitened to the identity: "global" uses the covariance of
        all rows, "local" uses the covariance of the nearest rows of each row, and "none" does not
        whiten.
    shrinkage : float, default=1e-3
        Shrinkage of the covariances. Each within-class covariance :math:`S_w` is replaced by
        :math:`(1-s) S_w + s (\mathrm{tr}\, S_w / p) I`, where s is this number.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Matrix of the linear map.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    eigenvalues_ : ndarray of shape (n_components,)
        Leading eigenvalues of :math:`\bar S`, in descending order.
    n_metric_neighbors_ : int
        Value of ``n_metric_neighbors`` that was used.
    errors_ : ndarray of shape (n_tried, 2)
        Numbers of components that were tried, each with its leave-one-out error. Set only if
        ``n_components="auto"``.

    See Also
    --------
    DANNClassifier, LDA, LFDA

    Notes
    -----
    ``n_components="auto"`` tries 1, 2, 3, 5, 8, 13 and so on, up to the number of features. It
    takes the number with the lowest leave-one-out error of a vote of 5 neighbors, and the smallest
    one if several are equally good. With more than 1,000 rows, the error is that of a fixed random
    sample of 1,000 rows; their neighbors are searched among all rows.

    References
    ----------
    .. [1] T. Hastie, R. Tibshirani, "Discriminant adaptive nearest neighbor classification", IEEE
       Transactions on Pattern Analysis and Machine Intelligence 18, 1996, section 5.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 3.1.4.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import DANNSubspace
    >>> subspace = DANNSubspace().fit(*load_wine(return_X_y=True))
    >>> subspace.components_.shape
    (2, 13)
    """

    learner_tags = LearnerTags(reads="supervision")
    renamed: ClassVar = {"n_metric": "n_metric_neighbors", "n_metric_": "n_metric_neighbors_"}
    state = State(
        {"eigenvalues_": floats("q"), "n_metric_neighbors_": optional(integer_value(low=1))}
    )
    parameters: ClassVar = {
        "n_components": [integer(1), one_of("auto")],
        "n_metric_neighbors": [none, integer(1)],
        "sphere": [one_of("global", "local", "none")],
        "shrinkage": [real(0, 1)],
        "standardize": [boolean],
        "n_jobs": [none, integer(1), integer(high=-1)],
    }
    settings = ({"sphere": "local"},)

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        n_metric_neighbors: int | None = None,
        sphere: Literal["global", "local", "none"] = "global",
        shrinkage: float = 1e-3,
        standardize: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_metric_neighbors = n_metric_neighbors
        self.sphere = sphere
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit the linear map to labeled points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        DANNSubspace
            The fitted estimator.
        """
        self._check_parameters()
        checked = self._check_X(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(checked))
        points = np.ascontiguousarray(checked, np.float64)
        n, p = points.shape
        self._check_sizes(n, p)
        deviations = compute_deviations(points)
        if not deviations.any():
            raise ValueError("Every feature of X is constant, so no distance can be learned.")
        scale = np.where(bool(self.standardize) & (deviations > 0), deviations, 1.0)
        mean = points.mean(axis=0)
        standard = (points - mean) / scale
        size = (
            choose_window_size(n, p, len(classes))
            if self.n_metric_neighbors is None
            else int(self.n_metric_neighbors)
        )
        sphere = np.eye(p)
        if self.sphere == "global":
            sphere = compute_inverse_roots(
                shrink_scatters(compute_pooled_within(standard, codes), self.shrinkage)
            )
        rows = LocalRows(standard @ sphere, codes, len(classes), np.ones(p))
        values, axes = descending_eigh(self._compute_mean_between(rows, size))
        # The signs of eigenvectors, and the eigenvectors of equal eigenvalues, are arbitrary. Make
        # them unique.
        directions = fix_signs(canonical_rows(values, axes.T @ sphere))
        q = self.n_components
        if q == "auto":
            q = self._select_n_components(standard @ directions.T, codes, len(classes))
        self.n_metric_neighbors_ = size
        self.eigenvalues_ = np.maximum(values[:q], 0.0)
        self.mean_ = mean.astype(checked.dtype)
        self.components_ = (directions[:q] / scale).astype(checked.dtype)
        return self

    def _check_sizes(self, n: int, p: int) -> None:
        if self.n_components != "auto" and self.n_components > p:
            raise ValueError(
                f"n_components={self.n_components} must be at most the number of features, {p}."
            )
        if (self.n_metric_neighbors or 0) > n:
            raise ValueError(
                f"n_metric_neighbors={self.n_metric_neighbors} must be at most the number of "
                f"training points (n_samples={n})."
            )

    def _compute_mean_between(self, rows: LocalRows, n_metric: int) -> Matrix:
        """Return the local between-class covariance, averaged over all rows."""
        n, p = rows.X.shape
        sum_scatters = self._sum_between_whitened if self.sphere == "local" else _sum_between
        bytes_per_row = 24 * n + 48 * p * p
        blocks = split_rows(n, bytes_per_row, max_rows=128)
        total = np.zeros((p, p))
        threads = resolve_n_threads(self.n_jobs)
        for block_sum in map_in_order(
            lambda block: sum_scatters(rows, block, n_metric), blocks, threads
        ):
            total += block_sum
        return total / n

    def _sum_between_whitened(self, rows: LocalRows, block: slice, size: int) -> Matrix:
        """Return the sum of the local between-class covariances of a block of rows.

        Each is taken in coordinates in which its own within-class covariance is the identity.
        """
        queries = rows.make_queries(rows.X[block])
        metrics = LocalMetrics.euclidean(len(queries), rows.n_features)
        scatters = compute_scatters(rows, queries, metrics, size)
        roots = compute_inverse_roots(shrink_scatters(scatters.within, self.shrinkage))
        return np.asarray(np.matmul(np.matmul(roots, scatters.between), roots).sum(axis=0))

    def _select_n_components(self, mapped: Matrix, codes: Indices, n_classes: int) -> int:
        """Return the smallest number of leading coordinates with the lowest error."""
        n, p = mapped.shape
        candidates, k, threads = (
            list_candidates(p),
            min(_VOTERS, n - 1),
            resolve_n_threads(self.n_jobs),
        )
        sample = np.sort(np.random.default_rng(0).permutation(n)[:_MAX_SAMPLE])
        neighbors = find_leading_neighbors(
            mapped, candidates, sample, n_neighbors=k, n_threads=threads
        )
        votes = [vote(codes[indices], n_classes, "shrink") for indices in neighbors]
        errors = [np.mean(predicted != codes[sample]) for predicted in votes]
        self.errors_ = np.column_stack([candidates, errors]).astype(np.float64)
        return candidates[int(np.argmin(errors))]


def _sum_between(rows: LocalRows, block: slice, size: int) -> Matrix:
    """Return the sum of the local between-class covariances of a block of rows."""
    queries = rows.make_queries(rows.X[block])
    metrics = LocalMetrics.euclidean(len(queries), rows.n_features)
    weights, radius, errors = rows.compute_tricube_weights(queries, metrics, size)
    sums = rows.moments.compute_class_sums(weights)
    is_doubtful = find_inaccurate_windows(sums.weights.sum(axis=1), radius, errors)
    factors = sums.compute_between_factors()[~is_doubtful].reshape(-1, rows.n_features)
    total = factors.T @ factors
    if is_doubtful.any():
        doubtful = queries[is_doubtful], metrics[is_doubtful]
        recomputed = compute_exact_scatters(rows, *doubtful, rows.find_window(*doubtful, size))
        total += recomputed.between.sum(axis=0)
    return np.asarray(total)


def compute_pooled_within(rows: Matrix, codes: Indices) -> Matrix:
    """Return the pooled within-class covariance, with divisor n."""
    residuals = rows.copy()
    for code in range(codes.max() + 1):
        residuals[codes == code] -= rows[codes == code].mean(axis=0)
    return np.asarray(residuals.T @ residuals / len(rows))


def list_candidates(p: int) -> list[int]:
    """Return the Fibonacci numbers 1, 2, 3, 5, 8, ... up to p."""
    candidates, previous, current = [], 1, 1
    while current <= p:
        candidates.append(current)
        previous, current = current, current + previous
    return candidates
