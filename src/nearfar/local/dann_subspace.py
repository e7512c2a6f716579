"""The subspace of DANN: where classes differ around the rows, on average."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Indices, Matrix
from nearfar.base import LearnerTags, LinearLearner
from nearfar.base.local_voter import deviations_of
from nearfar.base.voter import vote
from nearfar.blocks import effective_threads, map_in_order, row_blocks
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.search.leading_search import leading_neighbors
from nearfar.solvers.eigen import canonical_rows, descending_eigh, fix_signs
from nearfar.state import State, floats, optional, whole
from nearfar.summaries.local_rows import LocalMetrics, LocalRows
from nearfar.summaries.local_scatters import (
    in_doubt,
    inverse_roots,
    scatters_around,
    scatters_from_differences,
    shrunk,
    window_size,
)

# Neighbours that vote where the number of components is to be found.
_VOTERS = 5
# So many rows are asked there, at most: on five sets of 5,000 rows they chose what all would have.
_ASKED = 1_000


class DANNSubspace(LinearLearner):
    r"""The directions in which classes differ around the rows, on average over all of them.

    With :math:`S_b(x_i)` the covariance between classes of the ``n_metric`` nearest rows of
    :math:`x_i` (weighted as by :class:`DANNClassifier`, the row itself included), in coordinates in
    which the covariance within classes is I, the map is onto the leading eigenvectors of

    .. math:: \bar S = \frac1n \sum_i S_b(x_i) .

    Unlike LDA it may keep more directions than there are classes, and sees classes of several
    clusters. Use it where most directions are noise, before any rule of neighbours:
    ``DANNClassifier(DANNSubspace())`` is sub-DANN.

    Cost: :math:`O(n^2 p)`, as matrix products over blocks of rows; ``sphere="local"``
    :math:`O(n^2 p^2)`. "auto" adds the distances of at most 1,000 rows from all.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Dimension of the output; "auto" takes that of 1, 2, 3, 5, 8, 13 and so on of which 5
        neighbours err least, each row being left out. Of more than 1,000 rows so many are asked,
        always the same ones, for their neighbours among all.
    n_metric : int or None, default=None
        How many nearest points make a metric; None is a fifth of the rows, but at least 50 and 10
        for each feature and class.
    sphere : {"global", "local", "none"}, default="global"
        Whose covariance within classes is made I: that of all rows, that around each row, or none.
    shrinkage : float, default=1e-3
        What is mixed into covariances: this share of the mean variance, into those within classes.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    eigenvalues_ : ndarray of shape (n_components,)
        Those of the mean covariance between classes, descending.
    n_metric_ : int
        The size used.
    errors_ : ndarray of shape (n_tried, 2)
        With "auto": numbers of components, and their errors.

    See Also
    --------
    DANNClassifier, LDA, LFDA

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
    state = State({"eigenvalues_": floats("q"), "n_metric_": optional(whole(low=1))})
    parameters: ClassVar = {
        "n_components": [integer(1), one_of("auto")],
        "n_metric": [none, integer(1)],
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
        n_metric: int | None = None,
        sphere: Literal["global", "local", "none"] = "global",
        shrinkage: float = 1e-3,
        standardize: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_metric = n_metric
        self.sphere = sphere
        self.shrinkage = shrinkage
        self.standardize = standardize
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        DANNSubspace
            Itself.
        """
        self._check_parameters()
        given = self._check_X(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(given))
        points = np.ascontiguousarray(given, np.float64)
        n, p = points.shape
        self._check_sizes(n, p)
        deviations = deviations_of(points)
        if not deviations.any():
            raise ValueError("Every feature of X is constant: there is no distance to learn.")
        scale = np.where(bool(self.standardize) & (deviations > 0), deviations, 1.0)
        mean = points.mean(axis=0)
        standard = (points - mean) / scale
        size = window_size(n, p, len(classes)) if self.n_metric is None else int(self.n_metric)
        sphere = np.eye(p)
        if self.sphere == "global":
            sphere = inverse_roots(shrunk(pooled_within(standard, codes), self.shrinkage))
        rows = LocalRows(standard @ sphere, codes, len(classes), np.ones(p))
        values, axes = descending_eigh(self._mean_between(rows, size))
        # Without this a constant feature or direction could get any sign or turn.
        directions = fix_signs(canonical_rows(values, axes.T @ sphere))
        q = self.n_components
        if q == "auto":
            q = self._best(standard @ directions.T, codes, len(classes))
        self.n_metric_ = size
        self.eigenvalues_ = np.maximum(values[:q], 0.0)
        self.mean_ = mean.astype(given.dtype)
        self.components_ = (directions[:q] / scale).astype(given.dtype)
        return self

    def _check_sizes(self, n: int, p: int) -> None:
        if self.n_components != "auto" and self.n_components > p:
            raise ValueError(f"n_components={self.n_components} is more than the {p} features.")
        if (self.n_metric or 0) > n:
            raise ValueError(
                f"n_metric={self.n_metric} is more than there are training points (n_samples={n})."
            )

    def _mean_between(self, rows: LocalRows, size: int) -> Matrix:
        """The mean of the covariances between classes around all rows."""
        n, p = rows.given.shape
        around = self._around_sphered if self.sphere == "local" else _around
        each = 24 * n + 48 * p * p
        blocks = row_blocks(n, each, at_most=128)
        total = np.zeros((p, p))
        threads = effective_threads(self.n_jobs)
        for part in map_in_order(lambda block: around(rows, block, size), blocks, threads):
            total += part
        return total / n

    def _around_sphered(self, rows: LocalRows, block: slice, size: int) -> Matrix:
        """The sum of the covariances around some rows, each in coordinates of its own."""
        queries = rows.queries(rows.given[block])
        metrics = LocalMetrics.euclidean(len(queries), rows.n_features)
        scatters = scatters_around(rows, queries, metrics, size)
        roots = inverse_roots(shrunk(scatters.within, self.shrinkage))
        return np.asarray(np.matmul(np.matmul(roots, scatters.between), roots).sum(axis=0))

    def _best(self, mapped: Matrix, codes: Indices, n_classes: int) -> int:
        """The number of leading coordinates with the fewest errors, the smallest of equal ones."""
        n, p = mapped.shape
        numbers, k, threads = numbers_to_try(p), min(_VOTERS, n - 1), effective_threads(self.n_jobs)
        asked = np.sort(np.random.default_rng(0).permutation(n)[:_ASKED])
        found = leading_neighbors(mapped, numbers, asked, n_neighbors=k, n_threads=threads)
        votes = [vote(codes[near], n_classes, "shrink") for near in found]
        errors = [np.mean(voted != codes[asked]) for voted in votes]
        self.errors_ = np.column_stack([numbers, errors]).astype(np.float64)
        return numbers[int(np.argmin(errors))]


def _around(rows: LocalRows, block: slice, size: int) -> Matrix:
    """The sum of the covariances between classes around some rows, by their factors."""
    queries = rows.queries(rows.given[block])
    metrics = LocalMetrics.euclidean(len(queries), rows.n_features)
    weights, radius, errors = rows.tricube(queries, metrics, size)
    sums = rows.moments.class_sums(weights)
    doubt = in_doubt(sums.weights.sum(axis=1), radius, errors)
    apart = sums.apart()[~doubt].reshape(-1, rows.n_features)
    total = apart.T @ apart
    if doubt.any():
        again = queries[doubt], metrics[doubt]
        anew = scatters_from_differences(rows, *again, rows.window(*again, size))
        total += anew.between.sum(axis=0)
    return np.asarray(total)


def pooled_within(rows: Matrix, codes: Indices) -> Matrix:
    """The covariance within classes, divisor n."""
    apart = rows.copy()
    for code in range(codes.max() + 1):
        apart[codes == code] -= rows[codes == code].mean(axis=0)
    return np.asarray(apart.T @ apart / len(rows))


def numbers_to_try(p: int) -> list[int]:
    """1, 2, 3, 5, 8, 13 and so on, up to p."""
    numbers, last, this = [], 1, 1
    while this <= p:
        numbers.append(this)
        last, this = this, this + last
    return numbers
