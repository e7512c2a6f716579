"""MVEM: a nearest-neighbor classifier with a local Mahalanobis distance per query."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, NeighborsClassifier
from nearfar.base.voter import compute_vote_error, find_nearest, leave_out
from nearfar.blocks import map_in_order, resolve_n_threads, split_rows
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.search.exact_search import kneighbors
from nearfar.state import Sizes, State, check_that, integer_value, none_or, number, object_of, table
from nearfar.summaries.gaussians import AUTO_LOCAL_RIDGE, Gaussians

#: Candidates for ``neighborhood=None``.
SIZES = (5, 8, 12, 16, 24)
# Candidates for ``ridge=None``, in units of the median local variance.
_RIDGES = (0.01, 0.1, 1.0)
# Maximum number of floats that are processed at once, so that they fit into the CPU cache.
_CACHE_FLOATS = 2**17


class MVEMClassifier(NeighborsClassifier):
    r"""Nearest-neighbor classifier with a local Mahalanobis distance per query (MVEM).

    MVEM stands for minimum volume ellipsoid metric. Let :math:`\Sigma_q` be the covariance of the
    nearest training points of a query :math:`x_q`, plus a ridge. The distance to a training point
    y is

    .. math:: d(x_q, y) = \sqrt{(x_q - y)^T \Sigma_q^{-1} (x_q - y)} .

    Differences along the local distribution of the points count less than differences across it.
    The distance is not symmetric, and distances from different queries are not comparable. The
    symmetrized form averages both directions, :math:`\frac12 (\|x - y\|_{\Sigma_x^{-1}} +
    \|x - y\|_{\Sigma_y^{-1}})`.

    Use it if classes lie along curves and few labels are available. Scale the features first,
    because the neighborhoods are Euclidean. ``neighborhood`` and ``ridge`` are selected by
    leave-one-out error if they are None.

    Cost: :math:`O(n^2 p^2)` to fit, 15 times as much if both parameters are selected; then
    :math:`O(n p^2 + p^3)` per query. The fitted classifier stores the training points, and their
    covariances for the symmetrized form.

    Parameters
    ----------
    n_neighbors : int, default=3
        Number of neighbors that vote.
    neighborhood : int or None, default=None
        Number of neighbors that define the covariance, not counting the point itself. None selects
        5, 8, 12, 16 or 24 by leave-one-out error.
    ridge : float, "auto" or None, default=None
        Value added to the variances: a number in squared units of X. "auto" uses 0.01 times the
        median local variance. None selects 0.01, 0.1 or 1 times the median local variance by
        leave-one-out error.
    symmetric : bool, default=False
        Use the symmetrized distance.
    ties : {"shrink", "first"}, default="shrink"
        How ties between classes are broken: "shrink" repeats the vote with k-1, k-2, … neighbors
        until one class leads, "first" takes the smallest label, as scikit-learn does.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    neighborhood_ : int
        Value of ``neighborhood`` that was used.
    ridge_ : float
        Ridge that was used, in squared units of X.
    errors_ : ndarray of shape (n_tried, 3)
        Neighborhood size, ridge and leave-one-out error of each candidate, in the order in which
        they were tried. The first candidate with the lowest error was selected.

    See Also
    --------
    KNNClassifier, AugmentedSpectralClustering

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University, 2011,
       section 3.2.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from nearfar import MVEMClassifier
    >>> X, y = make_moons(300, noise=0.1, random_state=0)
    >>> mvem = MVEMClassifier(symmetric=True).fit(X[::2], y[::2])
    >>> bool(mvem.score(X[1::2], y[1::2]) > 0.97)
    True
    """

    learner_tags = LearnerTags(reads="instances", role="classifier")
    state = State(
        {
            "_points": table("n", "p"),
            "neighborhood_": integer_value(low=1, max_size="n"),
            "ridge_": number(0),
            "_gaussians": none_or(object_of(Gaussians, n="n", p="p")),
        },
        rows="_points",
    )
    parameters: ClassVar = {
        "n_neighbors": [integer(1)],
        "neighborhood": [none, integer(1)],
        "ridge": [none, one_of("auto"), real(0)],
        "symmetric": [boolean],
        "ties": [one_of("shrink", "first")],
        "n_jobs": [none, integer(1), integer(high=-1)],
    }

    def __init__(
        self,
        n_neighbors: int = 3,
        *,
        neighborhood: int | None = None,
        ridge: float | Literal["auto"] | None = None,
        symmetric: bool = False,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.neighborhood = neighborhood
        self.ridge = ridge
        self.symmetric = symmetric
        self.ties = ties
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Store the training points, and select ``neighborhood`` and ``ridge`` if they are None.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        MVEMClassifier
            The fitted classifier.
        """
        self._check_parameters()
        rows = np.ascontiguousarray(self._check_X(X, reset=True, min_samples=2), np.float64)
        classes, codes = self._check_labels(y, len(rows), min_classes=1)
        self._check_neighbors(len(rows))
        self._points, self._codes = rows, codes
        results: list[tuple[int, float, float]] = []
        for size, candidates in self._iterate_candidates(rows):
            errors = self._compute_leave_one_out_errors(candidates, len(classes))
            for gaussians, error in zip(candidates, errors, strict=True):
                ridge = gaussians.added_ridge
                assert ridge is not None
                if not results or error < min(row[2] for row in results):
                    self.neighborhood_, self.ridge_ = size, ridge
                    self._gaussians = gaussians if self.symmetric else None
                results.append((size, ridge, error))
        self.errors_ = np.array(results, dtype=np.float64)
        self.classes_ = classes
        return self

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        check_that(self.neighborhood_ < sizes["n"], "neighborhood_ must be below n_samples.")
        is_consistent = (self._gaussians is not None) == self.symmetric
        check_that(is_consistent, "_gaussians must be set if, and only if, symmetric is True.")

    def distances(self, X: ArrayLike) -> Matrix:
        """Return the distances from each query to each training point.

        They use the metric of the query, or of both points if ``symmetric=True``.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points. If a query equals a training point, this point is not counted as a
            neighbor in the covariance of the query.

        Returns
        -------
        ndarray of shape (n_queries, n_samples)
        """
        check_is_fitted(self)
        return np.concatenate([D for _, D in self._distance_blocks(X)[1]])

    def _distance_blocks(self, X: Any) -> tuple[int, Iterator[tuple[slice, Matrix]]]:
        if X is None:
            return len(self._points), self._iterate_blocks(self._get_training_gaussians())
        queries = np.ascontiguousarray(self._check_X(X, reset=False), np.float64)
        blocks = self._split_blocks(len(queries))
        return len(queries), (
            (block, self._compute_query_distances(queries[block])) for block in blocks
        )

    def _get_training_gaussians(self) -> Gaussians:
        if self._gaussians is not None:
            return self._gaussians
        return Gaussians.from_neighborhoods(self._points, self.neighborhood_, self.ridge_)

    def _iterate_candidates(self, rows: Matrix) -> Iterator[tuple[int, list[Gaussians]]]:
        """Yield the candidate neighborhood sizes, each with one set of Gaussians per ridge."""
        max_size = len(rows) - 1
        requested = SIZES if self.neighborhood is None else (self.neighborhood,)
        sizes = list(dict.fromkeys(min(size, max_size) for size in requested))
        near = kneighbors(rows, n_neighbors=max(sizes))[1]
        for size in sizes:
            make_gaussians = partial(Gaussians.from_neighborhoods, rows, neighbors=near[:, :size])
            if self.ridge is not None:
                yield size, [make_gaussians(ridge=self.ridge)]
                continue
            auto_ridge = make_gaussians(ridge="auto").added_ridge
            assert auto_ridge is not None
            yield (
                size,
                [
                    make_gaussians(ridge=factor / AUTO_LOCAL_RIDGE * auto_ridge)
                    for factor in _RIDGES
                ],
            )

    def _compute_leave_one_out_errors(
        self, candidates: list[Gaussians], n_classes: int
    ) -> list[float]:
        """Return the leave-one-out error on the training points for each ridge."""
        n = len(self._points)
        neighbors = np.empty((len(candidates), n, min(self.n_neighbors, n - 1)), dtype=np.intp)
        share_axes = len(candidates) > 1 and not any(
            gaussians.is_low_rank for gaussians in candidates
        )
        if share_axes and not self.symmetric:
            blocks = self._iterate_ridge_blocks(candidates)
        else:
            blocks = (
                (k, block, D)
                for k, gaussians in enumerate(candidates)
                for block, D in self._iterate_blocks(gaussians)
            )
        for k, block, D in blocks:
            leave_out(D, np.arange(n)[block])
            neighbors[k, block] = find_nearest(D, neighbors.shape[2])[1]
        return [
            compute_vote_error(indices, self._codes, n_classes, self.ties) for indices in neighbors
        ]

    def _iterate_ridge_blocks(
        self, candidates: list[Gaussians]
    ) -> Iterator[tuple[int, slice, Matrix]]:
        """Yield blocks of squared distances between training points for each ridge.

        The covariances differ only in the ridge and share their axes, so the differences are
        projected onto the axes once.
        """
        candidates[0].cholesky()  # Raises an error if a covariance is singular.
        ridges = np.array([gaussians.added_ridge for gaussians in candidates])
        values, axes = np.linalg.eigh(candidates[0].covariances)
        values = np.maximum(values, ridges[0])
        weights = 1 / (values[:, :, None] + (ridges - ridges[0]))
        points, (n, p) = self._points, self._points.shape
        n_rows_at_once = max(1, _CACHE_FLOATS // (n * p))
        for block in split_rows(n, 16 * n * len(candidates)):
            D = np.empty((block.stop - block.start, n, len(candidates)))

            def fill_rows(start: int, block: slice = block, D: Matrix = D) -> None:
                rows = slice(start, min(start + n_rows_at_once, block.stop))
                projections = (points - points[rows, None]) @ axes[rows]
                target = slice(rows.start - block.start, rows.stop - block.start)
                np.matmul(np.square(projections, out=projections), weights[rows], out=D[target])

            starts = range(block.start, block.stop, n_rows_at_once)
            for _ in map_in_order(fill_rows, starts, resolve_n_threads(self.n_jobs)):
                pass
            for k in range(len(candidates)):
                yield k, block, np.ascontiguousarray(D[:, :, k])

    def _split_blocks(self, n: int) -> Iterator[slice]:
        return split_rows(n, 24 * len(self._points))

    def _iterate_blocks(self, gaussians: Gaussians) -> Iterator[tuple[slice, Matrix]]:
        """Yield blocks of distances between the training points, given one Gaussian per point."""
        for block in self._split_blocks(len(self._points)):
            yield block, self._compute_distances(gaussians[block], self._points[block], gaussians)

    def _compute_query_distances(self, queries: Matrix) -> Matrix:
        gaussians = Gaussians.from_neighborhoods(
            self._points, self.neighborhood_, self.ridge_, queries=queries
        )
        return self._compute_distances(gaussians, queries, self._gaussians)

    def _compute_distances(
        self, query_gaussians: Gaussians, queries: Matrix, training_gaussians: Gaussians | None
    ) -> Matrix:
        threads = resolve_n_threads(self.n_jobs)
        D = compute_local_distances(query_gaussians, queries, self._points, threads)
        if self.symmetric:
            assert training_gaussians is not None
            D += compute_local_distances(training_gaussians, self._points, queries, threads).T
            D /= 2
        return D


def compute_local_distances(
    gaussians: Gaussians, centers: Matrix, points: Matrix, n_threads: int = 1
) -> Matrix:
    r"""Return :math:`\sqrt{(c_i - x_j)^T \Sigma_i^{-1} (c_i - x_j)}` for all centers and points."""
    D = np.empty((len(centers), len(points)))
    if gaussians.factors is None:
        whiteners = np.linalg.inv(gaussians.cholesky())

        def fill_row(i: int) -> None:
            whitened = (points - centers[i]) @ whiteners[i].T
            D[i] = np.sqrt(np.einsum("jk,jk->j", whitened, whitened))
    else:
        # By Woodbury's identity, it is enough to solve systems of size r, the rank of the factors.
        Z, ridge = gaussians.factors, gaussians.ridge
        assert ridge is not None
        inner = np.matmul(Z.transpose(0, 2, 1), Z)
        diagonal = np.arange(Z.shape[2])
        inner[:, diagonal, diagonal] += ridge[:, None]
        axes = np.linalg.solve(np.linalg.cholesky(inner), Z.transpose(0, 2, 1))

        def fill_row(i: int) -> None:
            differences = points - centers[i]
            projections = differences @ axes[i].T
            squared = np.einsum("jk,jk->j", differences, differences) - np.einsum(
                "jk,jk->j", projections, projections
            )
            D[i] = np.sqrt(np.maximum(squared, 0) / ridge[i])

    for _ in map_in_order(fill_row, range(len(centers)), n_threads):
        pass
    return D
