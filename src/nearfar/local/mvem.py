"""The minimum volume ellipsoid metric: a Mahalanobis distance of its own for each query."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, NeighborVoter
from nearfar.base.voter import leave_out, nearest, vote_error
from nearfar.blocks import effective_threads, map_in_order, row_blocks
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.search.exact_search import kneighbors
from nearfar.state import Sizes, State, need, none_or, number, object_of, table, whole
from nearfar.summaries.gaussians import AUTO_LOCAL_RIDGE, Gaussians

#: What is tried where a size or a ridge is to be found; ridges in units of the local variance.
SIZES = (5, 8, 12, 16, 24)
_RIDGES = (0.01, 0.1, 1.0)
# So many numbers at once stay in the cache.
_IN_CACHE = 2**17


class MVEMClassifier(NeighborVoter):
    r"""Nearest neighbours by a Mahalanobis distance that changes from query to query.

    With :math:`\Sigma_q` the covariance of the nearest training points of a query, and a ridge,

    .. math:: d(x_q, y) = \sqrt{(x_q - y)^T \Sigma_q^{-1} (x_q - y)} :

    distance counts less along the neighbourhood than across it (MVEM, the minimum volume ellipsoid
    metric). It is not symmetric, and distances from different queries do not compare. The
    symmetrised form is the mean of both sides, :math:`\frac12 (\|x - y\|_{\Sigma_x^{-1}} +
    \|x - y\|_{\Sigma_y^{-1}})`.

    Use it where classes lie along curves and labels are few. Scale the features first: the
    neighbours are the Euclidean ones. The size of the neighbourhood and the ridge are found with
    the labels, by leaving one out, unless given.

    Cost: :math:`O(n^2 p^2)` to fit, fifteen times if both parameters are to be found; then
    :math:`O(n p^2 + p^3)` for each query. Keeps the training points, and their covariances for the
    symmetrised form.

    Parameters
    ----------
    n_neighbors : int, default=3
        Number of neighbors that vote.
    neighborhood : int or None, default=None
        How many neighbours make the covariance, the point itself not counted; None finds it among
        5, 8, 12, 16 and 24.
    ridge : float, "auto" or None, default=None
        What is added to variances: in squared units of X; "auto" is 0.01 of the median local
        variance, None finds it among 0.01, 0.1 and 1 of that.
    symmetric : bool, default=False
        Use the symmetrised form.
    ties : {"shrink", "first"}, default="shrink"
        How to break a tied vote. "shrink" drops the farthest neighbor until one label wins;
        "first" takes the tied label that sorts first, as scikit-learn does.
    n_jobs : int or None, default=None
        Number of threads. None means 1, -1 all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    neighborhood_ : int
        The size used.
    ridge_ : float
        The ridge used.
    errors_ : ndarray of shape (n_tried, 3)
        Size, ridge and leave-one-out error of all that was tried, in order; the first of least
        error was taken.

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
            "neighborhood_": whole(low=1, most="n"),
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
        """Keep the training points, and find what is to be found.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        MVEMClassifier
            Itself.
        """
        self._check_parameters()
        rows = np.ascontiguousarray(self._check_X(X, reset=True, min_samples=2), np.float64)
        classes, codes = self._check_labels(y, len(rows), min_classes=1)
        self._check_neighbors(len(rows))
        self._points, self._codes = rows, codes
        tried: list[tuple[int, float, float]] = []
        for size, several in self._candidates(rows):
            errors = self._left_out(several, len(classes))
            for gaussians, error in zip(several, errors, strict=True):
                ridge = gaussians.added_ridge
                assert ridge is not None
                if not tried or error < min(row[2] for row in tried):
                    self.neighborhood_, self.ridge_ = size, ridge
                    self._gaussians = gaussians if self.symmetric else None
                tried.append((size, ridge, error))
        self.errors_ = np.array(tried, dtype=np.float64)
        self.classes_ = classes
        return self

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        need(self.neighborhood_ < sizes["n"], "neighborhood_ must leave a point out.")
        fits = (self._gaussians is not None) == self.symmetric
        need(fits, "_gaussians go with distances from both sides.")

    def distances(self, X: ArrayLike) -> Matrix:
        """From each point to each training point, by the metric of the former (or of both).

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points. One equal to a training point is not its own neighbour.

        Returns
        -------
        ndarray of shape (n_queries, n_samples)
        """
        check_is_fitted(self)
        return np.concatenate([D for _, D in self._distance_blocks(X)[1]])

    def _distance_blocks(self, X: Any) -> tuple[int, Iterator[tuple[slice, Matrix]]]:
        if X is None:
            return len(self._points), self._among(self._own_gaussians())
        queries = np.ascontiguousarray(self._check_X(X, reset=False), np.float64)
        blocks = self._blocks(len(queries))
        return len(queries), ((block, self._from(queries[block])) for block in blocks)

    def _own_gaussians(self) -> Gaussians:
        if self._gaussians is not None:
            return self._gaussians
        return Gaussians.from_neighborhoods(self._points, self.neighborhood_, self.ridge_)

    # ------------------------------------------------------------------ parameters from labels

    def _candidates(self, rows: Matrix) -> Iterator[tuple[int, list[Gaussians]]]:
        """For each size the Gaussians with all ridges, the smallest first."""
        most = len(rows) - 1
        given = SIZES if self.neighborhood is None else (self.neighborhood,)
        sizes = list(dict.fromkeys(min(size, most) for size in given))
        near = kneighbors(rows, n_neighbors=max(sizes))[1]
        for size in sizes:
            made = partial(Gaussians.from_neighborhoods, rows, neighbors=near[:, :size])
            if self.ridge is not None:
                yield size, [made(ridge=self.ridge)]
                continue
            least = made(ridge="auto").added_ridge
            assert least is not None
            yield size, [made(ridge=share / AUTO_LOCAL_RIDGE * least) for share in _RIDGES]

    def _left_out(self, several: list[Gaussians], n_classes: int) -> list[float]:
        """The leave-one-out errors on the training points, with each ridge."""
        n = len(self._points)
        found = np.empty((len(several), n, min(self.n_neighbors, n - 1)), dtype=np.intp)
        alike = len(several) > 1 and not any(one.is_low_rank for one in several)
        if alike and not self.symmetric:
            blocks = self._among_all(several)
        else:
            blocks = (
                (k, block, D) for k, one in enumerate(several) for block, D in self._among(one)
            )
        for k, block, D in blocks:
            leave_out(D, np.arange(n)[block])
            found[k, block] = nearest(D, found.shape[2])[1]
        return [vote_error(one, self._codes, n_classes, self.ties) for one in found]

    def _among_all(self, several: list[Gaussians]) -> Iterator[tuple[int, slice, Matrix]]:
        """Squared distances between the training points, by covariances that differ in the ridge.

        These have the same axes, along which differences are taken once for all.
        """
        several[0].cholesky()  # refuses what is singular
        ridges = np.array([one.added_ridge for one in several])
        values, axes = np.linalg.eigh(several[0].covariances)
        values = np.maximum(values, ridges[0])
        weights = 1 / (values[:, :, None] + (ridges - ridges[0]))
        points, (n, p) = self._points, self._points.shape
        few = max(1, _IN_CACHE // (n * p))
        for block in row_blocks(n, 16 * n * len(several)):
            D = np.empty((block.stop - block.start, n, len(several)))

            def work(start: int, block: slice = block, D: Matrix = D) -> None:
                rows = slice(start, min(start + few, block.stop))
                along = (points - points[rows, None]) @ axes[rows]
                to = slice(rows.start - block.start, rows.stop - block.start)
                np.matmul(np.square(along, out=along), weights[rows], out=D[to])

            starts = range(block.start, block.stop, few)
            for _ in map_in_order(work, starts, effective_threads(self.n_jobs)):
                pass
            for k in range(len(several)):
                yield k, block, np.ascontiguousarray(D[:, :, k])

    # ------------------------------------------------------------------ distances

    def _blocks(self, n: int) -> Iterator[slice]:
        return row_blocks(n, 24 * len(self._points))

    def _among(self, gaussians: Gaussians) -> Iterator[tuple[slice, Matrix]]:
        """Distances between the training points, of which a Gaussian each is given."""
        for block in self._blocks(len(self._points)):
            yield block, self._between(gaussians[block], self._points[block], gaussians)

    def _from(self, queries: Matrix) -> Matrix:
        gaussians = Gaussians.from_neighborhoods(
            self._points, self.neighborhood_, self.ridge_, queries=queries
        )
        return self._between(gaussians, queries, self._gaussians)

    def _between(self, own: Gaussians, queries: Matrix, theirs: Gaussians | None) -> Matrix:
        threads = effective_threads(self.n_jobs)
        D = local_distances(own, queries, self._points, threads)
        if self.symmetric:
            assert theirs is not None
            D += local_distances(theirs, self._points, queries, threads).T
            D /= 2
        return D


def local_distances(
    gaussians: Gaussians, centers: Matrix, points: Matrix, n_threads: int = 1
) -> Matrix:
    r""":math:`\sqrt{(c_i - x_j)^T \Sigma_i^{-1} (c_i - x_j)}` with a covariance for each centre."""
    D = np.empty((len(centers), len(points)))
    if gaussians.factors is None:
        whiteners = np.linalg.inv(gaussians.cholesky())

        def work(i: int) -> None:
            white = (points - centers[i]) @ whiteners[i].T
            D[i] = np.sqrt(np.einsum("jk,jk->j", white, white))
    else:
        # Woodbury's identity: only r directions are not those of the ridge.
        Z, ridge = gaussians.factors, gaussians.ridge
        assert ridge is not None
        inner = np.matmul(Z.transpose(0, 2, 1), Z)
        diagonal = np.arange(Z.shape[2])
        inner[:, diagonal, diagonal] += ridge[:, None]
        axes = np.linalg.solve(np.linalg.cholesky(inner), Z.transpose(0, 2, 1))

        def work(i: int) -> None:
            apart = points - centers[i]
            along = apart @ axes[i].T
            squared = np.einsum("jk,jk->j", apart, apart) - np.einsum("jk,jk->j", along, along)
            D[i] = np.sqrt(np.maximum(squared, 0) / ridge[i])

    for _ in map_in_order(work, range(len(centers)), n_threads):
        pass
    return D
