"""Nearest-neighbor classifier with the adaptive quasiconformal kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalClassifier
from nearfar.blocks import compute_squared_distances
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.state import Sizes, State, check_that, floats, integer_value
from nearfar.summaries.local_rows import (
    LocalMetrics,
    LocalQueries,
    LocalRows,
    find_entries_within,
    find_kth_smallest,
)
from nearfar.summaries.local_scatters import invert_matrices, shrink_scatters

# Maximum number of rows used to compute the median distance.
_MAX_MEDIAN_ROWS = 1000


class QuasiconformalClassifier(LocalClassifier):
    r"""Nearest-neighbor classifier with a kernel distance that is stretched where classes mix.

    Let :math:`j_m` be the most probable class at the query :math:`x_0`, K a Gaussian kernel, and
    :math:`c(x) = (1 - P(j_m|x)) / P(j_m|x_0)`. The quasiconformal kernel
    :math:`c(x) c(x_0) K(x, x_0)` has the squared distance

    .. math:: D(x, x_0) = (c(x) - c(x_0))^2 + 2 c(x) c(x_0) (1 - K(x, x_0)) .

    A row is near the query if it has a similar posterior and also lies near it.

    Use it for comparison; k-NN with the Euclidean distance is often as good.

    Cost: :math:`O(n^2 p)` to fit, then :math:`O(n p)` per query. The fitted classifier stores the
    training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. If None, X itself is searched.
    n_neighbors : int, default=5
        Number of neighbors that vote.
    n_posterior_neighbors : int or None, default=None
        Number of nearest points from which a posterior is estimated. None uses the square root of
        the number of rows, but at least 10.
    smoothing : float, default=1.0
        Positive number added to the count of each class when a posterior is estimated.
    covariance : {"full", "spherical"}, default="full"
        Covariance :math:`\Sigma` of the Gaussian kernel: "full" uses the covariance of the rows,
        "spherical" uses the median squared distance between rows times the identity.
    shrinkage : float, default=1e-3
        Shrinkage of the covariances. With ``covariance="full"``, :math:`\Sigma` is replaced by
        :math:`(1-s) \Sigma + s (\mathrm{tr}\, \Sigma / p) I`, where s is this number.
    exact : bool, default=True
        Use the kernel itself. False replaces :math:`1 - K` by half of the squared Mahalanobis
        distance, which is accurate for close rows.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    ties : {"shrink", "first"}, default="shrink"
        How ties between classes are broken: "shrink" repeats the vote with k-1, k-2, … neighbors
        until one class leads, "first" takes the smallest label, as scikit-learn does.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    posterior_ : ndarray of shape (n_samples, n_classes)
        Posteriors at the training points, each estimated from the other points.
    precision_ : ndarray of shape (n_features, n_features)
        Inverse covariance :math:`\Sigma^{-1}` of the standardized features.
    deviations_ : ndarray of shape (n_features,)
        Standard deviations of the training points, after the learner's transform.
    n_posterior_neighbors_ : int
        Value of ``n_posterior_neighbors`` that was used.
    estimator_ : object or None
        Fitted learner, or None if ``estimator`` is None.

    See Also
    --------
    DANNClassifier, KNNClassifier

    Notes
    -----
    Posteriors are smoothed class fractions among the ``n_posterior_neighbors`` nearest rows.
    Without smoothing, c would be 0 wherever all of these rows have the same label, and all such
    rows would be at distance 0.

    ``kneighbors`` returns D, which is a squared distance. ``metric_at`` and ``explain`` describe
    only its Mahalanobis part, :math:`c(x_0)^2 \Sigma^{-1}`; the contributions sum to that part.

    For the leave-one-out error, a row is not counted in any posterior. The covariance is not
    computed again.

    References
    ----------
    .. [1] J. Peng, D. R. Heisterkamp, H. K. Dai, "Adaptive quasiconformal kernel nearest neighbor
       classification", IEEE Transactions on Pattern Analysis and Machine Intelligence 26, 2004.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 3.1.6.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import QuasiconformalClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> classifier = QuasiconformalClassifier().fit(X, y)
    >>> classifier.posterior_.shape, round(classifier.leave_one_out_error(), 3)
    ((178, 3), 0.039)
    """

    renamed: ClassVar = {
        "n_posterior": "n_posterior_neighbors",
        "n_posterior_": "n_posterior_neighbors_",
    }
    #: The contributions returned by ``explain`` sum to only a part of the distance.
    is_metric = False

    state = State(
        {
            "n_posterior_neighbors_": integer_value(low=1, max_size="n"),
            "posterior_": floats("n", "c"),
            "precision_": floats("q", "q"),
        }
    )
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "n_posterior_neighbors": [none, integer(1)],
        "smoothing": [real(0, open_low=True)],
        "covariance": [one_of("full", "spherical")],
        "shrinkage": [real(0, 1)],
        "exact": [boolean],
    }
    settings = ({"covariance": "spherical"},)

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 5,
        *,
        n_posterior_neighbors: int | None = None,
        smoothing: float = 1.0,
        covariance: Literal["full", "spherical"] = "full",
        shrinkage: float = 1e-3,
        exact: bool = True,
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.n_posterior_neighbors = n_posterior_neighbors
        self.smoothing = smoothing
        self.covariance = covariance
        self.shrinkage = shrinkage
        self.exact = exact
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    def _learn(self, rows: LocalRows) -> None:
        n = len(rows)
        if n < 2:
            raise ValueError(
                f"X has {n} sample(s) while a minimum of 2 is required by {type(self).__name__}: "
                "the posterior of each sample is estimated from the others."
            )
        size = (
            max(10, int(np.sqrt(n)))
            if self.n_posterior_neighbors is None
            else int(self.n_posterior_neighbors)
        )
        if self.n_posterior_neighbors is not None and size > n - 1:
            raise ValueError(
                f"n_posterior_neighbors={size} must be below the number of training points "
                f"(n_samples={n}), because a point is not its own neighbor."
            )
        self.n_posterior_neighbors_ = min(size, n - 1)
        (counts,) = self._by_block(rows, None, lambda block: (self._count_classes(rows, block),))
        self.posterior_ = self._smooth(counts, self.n_posterior_neighbors_)
        self.precision_ = self._compute_precision(rows.standard)

    def _count_classes(self, rows: LocalRows, queries: LocalQueries) -> Matrix:
        """Return the class counts among the nearest rows of each query."""
        euclidean = LocalMetrics.euclidean(len(queries), rows.n_features)
        neighbors = rows.find_window(
            queries, euclidean, self._get_n_posterior(rows, queries)
        ).indices
        return count_neighbor_classes(rows.codes[neighbors], rows.n_classes)

    def _get_n_posterior(self, rows: LocalRows, queries: LocalQueries) -> int:
        return min(self.n_posterior_neighbors_, len(rows) - (queries.excluded is not None))

    def _smooth(self, counts: Matrix, totals: Any) -> Matrix:
        smoothing = float(self.smoothing)
        return np.asarray((counts + smoothing) / (totals + smoothing * counts.shape[-1]))

    def _compute_precision(self, standard: Matrix) -> Matrix:
        """Return the inverse covariance of standardized rows."""
        p = standard.shape[1]
        if self.covariance == "spherical":
            sample = standard[:: 1 + (len(standard) - 1) // _MAX_MEDIAN_ROWS]
            median = float(np.median(pdist(sample, "sqeuclidean")))
            return np.eye(p) / (median if median > 0 else 1.0)
        centered = standard - standard.mean(axis=0)
        covariance = shrink_scatters(centered.T @ centered / len(standard), self.shrinkage)
        return invert_matrices(covariance, regular=self.shrinkage > 1e-8 * p)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        check_that((self.posterior_ >= 0).all(), "posterior_ must not be negative.")
        check_that((self.posterior_ <= 1).all(), "posterior_ must be at most 1.")
        is_symmetric = np.allclose(self.precision_, self.precision_.T)
        is_definite = is_symmetric and np.linalg.eigvalsh(self.precision_)[0] > 0
        check_that(is_definite, "precision_ must be symmetric and positive definite.")

    def _rows(self) -> LocalRows:
        rows = super()._rows()
        return _Rows(rows.X, rows.codes, rows.n_classes, rows.scale, self)

    def distance_at(self, X: ArrayLike) -> Matrix:
        """Return the squared distance D from each point to all training points.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points.

        Returns
        -------
        ndarray of shape (n_queries, n_samples)
        """
        rows = self._rows()
        (distances,) = self._by_block(
            rows, X, lambda block: (self._compute_distances(rows, block)[0],)
        )
        return distances

    def _compute_stretch(self, rows: LocalRows, queries: LocalQueries) -> tuple[Matrix, Vector]:
        """Return the stretch factors c at the rows, of shape (b, n), and at the queries."""
        b = np.arange(len(queries))
        posteriors = self._smooth(
            self._count_classes(rows, queries), self._get_n_posterior(rows, queries)
        )
        leader = posteriors.argmax(axis=1)
        leader_posterior = posteriors[b, leader]
        row_posteriors = self.posterior_.T[leader]
        if queries.excluded is not None:
            assert isinstance(rows, _Rows)
            owner, row, counts, total = rows.leave_one_out.find_changed(queries.excluded, leader)
            smoothing = float(self.smoothing)
            row_posteriors[owner, row] = (counts + smoothing) / (total + smoothing * rows.n_classes)
        return (1 - row_posteriors) / leader_posterior[:, None], (
            1 - leader_posterior
        ) / leader_posterior

    def _compute_distances(
        self, rows: LocalRows, queries: LocalQueries
    ) -> tuple[Matrix, Matrix, Vector, Matrix, Vector]:
        """Return the distances D and the quantities from which they were computed.

        These are the stretch factors c at the rows and at the queries, and the squared Mahalanobis
        distances with their error bounds.
        """
        assert isinstance(rows, _Rows)
        stretch, query_stretch = self._compute_stretch(rows, queries)
        whitened = queries.standard @ rows.whitener
        squares = compute_squared_distances(whitened, rows.whitened, rows.lengths)
        size = float(np.linalg.norm(self.precision_, 2))
        reach = size * (np.square(rows.standard).sum(axis=1).max() + (queries.standard**2).sum(1))
        errors = 16 * (rows.n_features + 8) * np.finfo(np.float64).eps * reach
        return (
            self._compute_kernel_distance(stretch, query_stretch[:, None], squares),
            stretch,
            query_stretch,
            squares,
            errors,
        )

    def _compute_kernel_distance(
        self, row_stretch: Any, query_stretch: Any, squares: Any
    ) -> NDArray[np.float64]:
        """Return D from the stretch factors and the squared Mahalanobis distance of two points."""
        half_distance = -np.expm1(-squares / 2) if self.exact else squares / 2
        return np.asarray(
            (row_stretch - query_stretch) ** 2 + 2 * row_stretch * query_stretch * half_distance
        )

    def _find_neighbors(
        self, rows: LocalRows, queries: LocalQueries, k: int
    ) -> tuple[Matrix, Indices]:
        D, stretch, query_stretch, squares, errors = self._compute_distances(rows, queries)
        b = np.arange(len(D))
        if queries.excluded is not None:
            D[b, queries.excluded] = np.inf
        max_stretch = stretch.max(axis=1)
        slack = query_stretch * max_stretch * errors + 16 * np.finfo(np.float64).eps * (
            max_stretch**2 + query_stretch**2
        )
        cut = find_kth_smallest(D, k)
        # Far from the query, D is almost constant among rows with equal c, so rounding in K could
        # change the order of these rows. They are ordered by their Mahalanobis distance, and only
        # the first k of them can be among the k nearest.
        is_tied = stretch == stretch[b, (cut[:, None] == D).argmax(axis=1)][:, None]
        is_tied &= (cut + 2 * slack)[:, None] >= D
        many_ties = np.flatnonzero(np.count_nonzero(is_tied, axis=1) > 4 * k)
        if len(many_ties):
            tied_squares = np.where(is_tied[many_ties], squares[many_ties], np.inf)
            bound = find_kth_smallest(tied_squares, k) + 2 * errors[many_ties]
            is_far = is_tied[many_ties] & (tied_squares > bound[:, None])
            D[many_ties] = np.where(is_far, np.inf, D[many_ties])
        owner, candidates = find_entries_within(D, cut + 2 * slack)
        precisions = np.broadcast_to(self.precision_, (len(D), *self.precision_.shape))
        exact_squares = rows.measure(queries, LocalMetrics(full=precisions), owner, candidates)
        values = self._compute_kernel_distance(
            stretch[owner, candidates], query_stretch[owner], exact_squares
        )
        order = np.lexsort((candidates, exact_squares, values, owner))
        best = order[np.searchsorted(owner, b)[:, None] + np.arange(k)]
        return values[best], candidates[best]

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        query_stretch = self._compute_stretch(rows, queries)[1]
        return LocalMetrics(full=query_stretch[:, None, None] ** 2 * self.precision_)

    def _explain_block(
        self, rows: LocalRows, queries: LocalQueries, k: int
    ) -> tuple[Matrix, NDArray[np.float64], Matrix, Indices]:
        distances, neighbors = self._find_neighbors(rows, queries, k)
        metrics = self._metrics(rows, queries)
        owner = np.repeat(np.arange(len(queries)), k)
        contributions = metrics.split_by_feature(
            rows.compute_differences(queries, owner, neighbors.ravel()), owner
        )
        return (
            self._relevance(rows, metrics),
            contributions.reshape(*neighbors.shape, -1),
            distances,
            neighbors,
        )

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        sizes = {min(10, n - 1), min(max(10, int(np.sqrt(n))), n - 1), min(40, n - 1)}
        return {
            "n_neighbors": [3, 5, 9],
            "n_posterior_neighbors": sorted(max(1, size) for size in sizes),
            "covariance": ["full", "spherical"],
        }


@dataclass(frozen=True)
class _Rows(LocalRows):
    """Training rows. Whitened rows and leave-one-out counts are computed on first use."""

    classifier: QuasiconformalClassifier

    @cached_property
    def whitener(self) -> Matrix:
        """Matrix that whitens the rows. Distances between whitened rows are Euclidean."""
        return np.asarray(np.linalg.cholesky(self.classifier.precision_))

    @cached_property
    def whitened(self) -> Matrix:
        return np.asarray(self.standard @ self.whitener)

    @cached_property
    def lengths(self) -> Vector:
        return np.asarray(np.square(self.whitened).sum(axis=1))

    @cached_property
    def leave_one_out(self) -> _LeaveOneOut:
        k = self.classifier.n_posterior_neighbors_
        (neighbor_lists,) = self.classifier._by_block(
            self, None, lambda block: (self._list_neighbors(block, k + 1),)
        )
        return _LeaveOneOut(neighbor_lists, self.codes, k)

    def _list_neighbors(self, queries: LocalQueries, k: int) -> Indices:
        euclidean = LocalMetrics.euclidean(len(queries), self.n_features)
        return self.find_nearest(queries, euclidean, min(k, len(self) - 1))[1]


class _LeaveOneOut:
    """Class counts among the neighbors of each training row after another row is left out."""

    def __init__(self, neighbor_lists: Indices, codes: Indices, k: int) -> None:
        self._codes, self._k = codes, k
        self._counts = count_neighbor_classes(codes[neighbor_lists[:, :k]], int(codes.max()) + 1)
        # Class of the row that replaces a neighbor that is left out. None if all other rows are
        # neighbors.
        self._next = codes[neighbor_lists[:, k]] if neighbor_lists.shape[1] > k else None
        flat = neighbor_lists[:, :k].ravel()
        self._order = np.argsort(flat, kind="stable")
        self._starts = np.searchsorted(flat[self._order], np.arange(len(codes) + 1))

    def find_changed(self, own: Indices, leader: Indices) -> tuple[Indices, Indices, Vector, int]:
        """Return the rows that lose a neighbor when a row is left out, and their new class counts.

        The result has indices into ``own``, indices of rows, their counts of the class ``leader``,
        and the sum of the counts over all classes.
        """
        sizes = self._starts[own + 1] - self._starts[own]
        owner = np.repeat(np.arange(len(own)), sizes)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        row = self._order[self._starts[own][owner] + within] // self._k
        leader_of_row = leader[owner]
        counts = self._counts[row, leader_of_row] - (self._codes[own][owner] == leader_of_row)
        if self._next is None:
            return owner, row, counts, self._k - 1
        return owner, row, counts + (self._next[row] == leader_of_row), self._k


def count_neighbor_classes(codes: Indices, n_classes: int) -> Matrix:
    """Return the number of times that each class occurs in each row of ``codes``."""
    cells = codes + n_classes * np.arange(len(codes))[:, None]
    counts = np.bincount(cells.ravel(), minlength=len(codes) * n_classes)
    return np.asarray(counts.reshape(len(codes), n_classes), dtype=np.float64)
