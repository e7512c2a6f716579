"""Relevant component analysis."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.labels import encode_labels
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import canonical_rows, descending_eigh, fix_signs
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.distributed import is_dask
from nearfar.summaries.supervision import Chunklets, as_chunklets
from nearfar.summaries.whitening import (
    Shrinkage,
    leading_axes,
    within_covariance,
    within_whitener,
)


class RCA(StatisticsLearner):
    r"""Relevant component analysis: shrink the directions that vary within chunklets.

    A chunklet is a group of points known to be alike, of a class nobody needs to name. With the
    covariance of the points about the mean of their chunklet,

    .. math:: C = \tfrac1n \sum_j \sum_{i \in j} (x_i - m_j)(x_i - m_j)^T, \qquad L = C^{-1/2},

    which maximises :math:`\log\det(L^T L)` under a bound on the average squared distance within
    chunklets. With ``n_principal`` the leading principal axes P of the points come first, and
    :math:`L = (P C P^T)^{-1/2} P`. With ``n_components`` the leading generalised eigenvectors V of
    (total covariance, C) come first (the Fisher discriminant of the chunklets) and
    :math:`L = (V^T C V)^{-1/2} V^T`.

    Use it when you know a few groups of alike points but no labels, or as a fast first metric
    with labels, each class then being one chunklet. Points in no chunklet, and chunklets of one
    point, say nothing and are left out.

    Cost: one pass of O(n p²), then O(p³).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output; None keeps all.
    n_principal : int or None, default=None
        Principal components that are kept before anything is whitened: those of the points in
        chunklets. None is all.
    shrinkage : float in [0, 1] or "auto", default="auto"
        What is mixed into covariances. A number g replaces C by
        :math:`(1-g) C + g (\mathrm{tr}\,C / p) I`. "auto" changes nothing while C is regular where
        the data vary; else it mixes in 0.1 % of the total covariance.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map; without ``n_components`` symmetric, or one row for each direction in which the
        data vary if these are fewer than the features.
    mean_ : ndarray of shape (n_features,)
        Mean of the points in chunklets.
    covariance_ : ndarray of shape (n_features, n_features)
        C as it was whitened, with what was mixed in: ``components_ @ covariance_ @ components_.T``
        is the identity.
    information_ : float
        :math:`-\tfrac12 \log\det C` over the directions kept: how much the map raises the entropy
        of the points, the most that is possible while the average squared distance to the mean of
        the chunklet is the number of directions.
    statistics_ : ClassStatistics
        What was accumulated.

    See Also
    --------
    KernelRCA, LDA, LMNN

    References
    ----------
    .. [1] L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section
       3.3.1.
    .. [2] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.2.1.

    Examples
    --------
    Eight points, two groups of alike ones, and two points of which nothing is known:

    >>> import numpy as np
    >>> from nearfar import RCA
    >>> X = np.random.default_rng(0).normal(size=(10, 2)) * [10, 1]
    >>> rca = RCA().fit(X, supervision=[0, 0, 0, 0, 1, 1, 1, 1, -1, -1])
    >>> rca.components_.shape
    (2, 2)
    """

    learner_tags = LearnerTags(reads="statistics", learns_from=("labels", "chunklets"))
    settings = ({"shrinkage": 0.1},)
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "n_principal": [none, integer(1)],
        "shrinkage": [real(0, 1), one_of("auto")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_principal: int | None = None,
        shrinkage: Shrinkage = "auto",
    ) -> None:
        self.n_components = n_components
        self.n_principal = n_principal
        self.shrinkage = shrinkage

    def fit(  # type: ignore[override]
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        supervision: Chunklets | ArrayLike | None = None,
    ) -> Self:
        """Learn from chunklets, or from labels with each class as one chunklet.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,), optional
            Labels; not read when ``supervision`` is given.
        supervision : Chunklets or array-like of int of shape (n_samples,), optional
            Chunklet of each point, -1 for none.

        Returns
        -------
        RCA
            Itself.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=True, min_samples=2)
        return self._fit_with(partial(self._add_chunklets, rows, y, supervision))

    def partial_fit(  # type: ignore[override]
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        *,
        supervision: Chunklets | ArrayLike | None = None,
    ) -> Self:
        """Accumulate more points; a chunklet may continue from batch to batch.

        Give labels or chunklets, not now one and now the other: label 0 and chunklet 0 would be
        one group.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More points.
        y : array-like of shape (n_samples,), optional
            Labels.
        classes : array-like of shape (n_classes,), optional
            All labels that may come, as in scikit-learn; once given, others raise. Not for
            chunklets.
        supervision : Chunklets or array-like of int of shape (n_samples,), optional
            Chunklet of each point, -1 for none.

        Returns
        -------
        RCA
            Itself.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=not self.__sklearn_is_fitted__())
        known = self._check_classes(classes)
        if known is None or supervision is not None:
            return self._add_chunklets(rows, y, supervision, exact=True)
        self._accumulate(rows, y, None, exact=True, known=known)
        self._known_classes = known
        return self

    def _add_chunklets(self, rows: Any, y: Any, supervision: Any, *, exact: bool) -> Self:
        if supervision is None:
            return self._accumulate(rows, y, None, exact=exact)
        if is_dask(rows):
            # Rows in no chunklet get the weight zero, and are then no rows.
            labels = supervision if is_dask(supervision) else as_chunklets(supervision).labels
            return self._accumulate(rows, labels, labels >= 0, exact=exact)
        chunklets = as_chunklets(supervision)
        chunklets.check_n_samples(len(rows))
        known = chunklets.labels >= 0
        if known.all():
            return self._add(rows, *encode_labels(chunklets.labels), None, exact=exact)
        assert_all_finite(rows, input_name="X")  # at the rows of no chunklet nobody else looks
        names, codes = np.unique(chunklets.labels[known], return_inverse=True)
        return self._add(rows[known], names, codes.reshape(-1), None, exact=exact)

    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """C^{-1/2}, or the whitened leading Fisher directions of the chunklets."""
        V, statistics = self._image(statistics)
        T = within_whitener(statistics, self.shrinkage)
        rank = T.shape[1]
        if self.n_components is not None and self.n_components > rank:
            raise ValueError(
                f"n_components={self.n_components} is more than the {rank} directions in which "
                "the points in chunklets vary."
            )
        if self.n_components is not None:
            total = statistics.project(T).total_scatter()
            values, axes = descending_eigh(total, self.n_components)
            T = T @ axes
        if V is not None:
            T = V @ T
        # Rows L whiten C, so the product of their singular values is det(C)^{-1/2} on their span.
        self.information_ = _log_volume(T)
        return _root(T) if self.n_components is None else canonical_rows(values, T.T)

    def _image(self, statistics: ClassStatistics) -> tuple[Matrix | None, ClassStatistics]:
        """Principal axes, if there are any to be used, and the statistics along them."""
        # Chunklets of one point have no scatter and must not dilute the covariance.
        paired = statistics.counts > 1
        if not paired.any():
            raise ValueError(
                "RCA needs a chunklet or class with at least two points; each one has only 1 "
                "sample."
            )
        if not paired.all():
            statistics = statistics.select(paired)
        if self.n_principal is None:
            return None, statistics
        V = leading_axes(statistics, self.n_principal)
        return V, statistics.project(V)

    @property
    def covariance_(self) -> Matrix:
        """C, made whenever one asks."""
        check_is_fitted(self)
        V, statistics = self._image(self.statistics_)
        C = within_covariance(statistics, self.shrinkage)
        return C if V is None else V @ C @ V.T


def _log_volume(T: Matrix) -> float:
    """The sum of the logarithms of the singular values of T (p, r)."""
    used = T[np.abs(T).any(axis=1)]
    if used.shape[0] == used.shape[1]:
        return float(np.linalg.slogdet(used)[1])  # whatever the units of the features
    return float(np.log(linalg.svdvals(used)).sum())


def _root(T: NDArray[np.float64]) -> NDArray[np.float64]:
    """W with ``W.T @ W = T @ T.T``: symmetric where T has full rank, else one row a direction."""
    left, singular, _ = linalg.svd(T, full_matrices=False)
    if singular[-1] < 1e-10 * singular[0]:
        # Features of wildly different units: the SVD would lose the small ones, T itself does not.
        return fix_signs(T.T)
    if T.shape[1] < T.shape[0]:
        return fix_signs((left * singular).T)
    return np.asarray((left * singular) @ left.T)
