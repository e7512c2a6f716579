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
    compute_within_covariance,
    find_leading_axes,
    find_within_whitener,
)


class RCA(StatisticsLearner):
    r"""Relevant component analysis: whitening by the covariance within chunklets.

    A chunklet is a group of points known to belong to the same class, although the class itself may
    be unknown. With the covariance of the points about the mean :math:`m_j` of their chunklet j,
    RCA computes

    .. math:: C = \tfrac1n \sum_j \sum_{i \in j} (x_i - m_j)(x_i - m_j)^T, \qquad L = C^{-1/2},

    which maximizes :math:`\log\det(L^T L)` under a bound on the average squared distance within
    chunklets. Directions that vary within chunklets are shrunk. With ``n_pca_components``, the
    points are first projected onto their leading principal axes P, and :math:`L = (P C P^T)^{-1/2}
    P`. With ``n_components``, they are first projected onto the leading generalized eigenvectors V
    of (total covariance, C), the Fisher discriminant of the chunklets, and :math:`L = (V^T C
    V)^{-1/2} V^T`.

    Use it if you know some groups of similar points but no labels, or with labels as a fast first
    metric: each class is then one chunklet. Points in no chunklet and chunklets of a single point
    are left out.

    Cost: one pass of O(n p²), then O(p³).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. None keeps all dimensions.
    n_pca_components : int or None, default=None
        Number of principal components to project X onto before learning. They are computed from
        the points in chunklets. None uses all features.
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances: a number g replaces C by
        :math:`(1-g) C + g (\mathrm{tr}\,C / p) I`. "auto" mixes in 0.1% of the total covariance if
        C is singular in a direction in which the data vary, and otherwise leaves C unchanged.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map. If ``n_components`` is None, the map is symmetric. If the data vary in fewer
        directions than there are features, it has one row per direction instead.
    mean_ : ndarray of shape (n_features,)
        Mean of the points in chunklets.
    covariance_ : ndarray of shape (n_features, n_features)
        Matrix C after shrinkage: ``components_ @ covariance_ @ components_.T`` is the identity.
    information_ : float
        The value :math:`-\tfrac12 \log\det C` on the directions kept. The map increases the entropy
        of the points by this value. It is the maximum over all maps under which the average squared
        distance to the chunklet mean equals the number of directions.
    statistics_ : ClassStatistics
        The accumulated statistics.

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
    Ten points: two chunklets of four points each, and two points in no chunklet.

    >>> import numpy as np
    >>> from nearfar import RCA
    >>> X = np.random.default_rng(0).normal(size=(10, 2)) * [10, 1]
    >>> rca = RCA().fit(X, supervision=[0, 0, 0, 0, 1, 1, 1, 1, -1, -1])
    >>> rca.components_.shape
    (2, 2)
    """

    learner_tags = LearnerTags(reads="statistics", supervision=("labels", "chunklets"))
    renamed: ClassVar = {"n_principal": "n_pca_components"}
    settings = ({"shrinkage": 0.1},)
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "n_pca_components": [none, integer(1)],
        "shrinkage": [real(0, 1), one_of("auto")],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_pca_components: int | None = None,
        shrinkage: Shrinkage = "auto",
    ) -> None:
        self.n_components = n_components
        self.n_pca_components = n_pca_components
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
            Labels. Not used if ``supervision`` is given.
        supervision : Chunklets or array-like of int of shape (n_samples,), optional
            Chunklet number of each point, or -1 for points in no chunklet.

        Returns
        -------
        RCA
            The fitted estimator.
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
        """Add a batch of points. The points of one chunklet may be in several batches.

        Use either labels or chunklets for all batches. Otherwise label 0 and chunklet 0 would be
        the same group.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More training points.
        y : array-like of shape (n_samples,), optional
            Labels.
        classes : array-like of shape (n_classes,), optional
            All labels that can occur, as in scikit-learn. Once given, other labels raise an error.
            Not used with chunklets.
        supervision : Chunklets or array-like of int of shape (n_samples,), optional
            Chunklet number of each point, or -1 for points in no chunklet.

        Returns
        -------
        RCA
            The fitted estimator.
        """
        self._check_parameters()
        rows = self._check_rows(X, reset=not self.__sklearn_is_fitted__())
        known_classes = self._check_classes(classes)
        if known_classes is None or supervision is not None:
            return self._add_chunklets(rows, y, supervision, exact=True)
        self._accumulate(rows, y, None, exact=True, known_classes=known_classes)
        self._known_classes = known_classes
        return self

    def _add_chunklets(self, rows: Any, y: Any, supervision: Any, *, exact: bool) -> Self:
        if supervision is None:
            return self._accumulate(rows, y, None, exact=exact)
        if is_dask(rows):
            # Rows in no chunklet get weight zero, so that they have no effect.
            labels = supervision if is_dask(supervision) else as_chunklets(supervision).labels
            return self._accumulate(rows, labels, labels >= 0, exact=exact)
        chunklets = as_chunklets(supervision)
        chunklets.check_n_samples(len(rows))
        has_chunklet = chunklets.labels >= 0
        if has_chunklet.all():
            return self._add(rows, *encode_labels(chunklets.labels), None, exact=exact)
        # Rows in no chunklet are checked here, because they are dropped below.
        assert_all_finite(rows, input_name="X")
        names, codes = np.unique(chunklets.labels[has_chunklet], return_inverse=True)
        return self._add(rows[has_chunklet], names, codes.reshape(-1), None, exact=exact)

    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """Return C^{-1/2}, or the leading Fisher directions if ``n_components`` is set."""
        V, statistics = self._project_statistics(statistics)
        T = find_within_whitener(statistics, self.shrinkage)
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
        # T whitens C, so the product of its singular values is det(C)^{-1/2} on its range.
        self.information_ = _compute_log_volume(T)
        return _compute_root(T) if self.n_components is None else canonical_rows(values, T.T)

    def _project_statistics(
        self, statistics: ClassStatistics
    ) -> tuple[Matrix | None, ClassStatistics]:
        """Return the principal axes (or None) and the statistics of the projected points."""
        # Chunklets of one point have no scatter and would only reduce the covariance.
        has_pair = statistics.counts > 1
        if not has_pair.any():
            raise ValueError(
                "RCA needs a chunklet or class of y with at least two points; each one has only 1 "
                "sample."
            )
        if not has_pair.all():
            statistics = statistics.select(has_pair)
        if self.n_pca_components is None:
            return None, statistics
        V = find_leading_axes(statistics, self.n_pca_components)
        return V, statistics.project(V)

    @property
    def covariance_(self) -> Matrix:
        """Matrix C after shrinkage, computed on access."""
        check_is_fitted(self)
        V, statistics = self._project_statistics(self.statistics_)
        C = compute_within_covariance(statistics, self.shrinkage)
        return C if V is None else V @ C @ V.T


def _compute_log_volume(T: Matrix) -> float:
    """Return the sum of the logarithms of the singular values of T (p, r)."""
    nonzero_rows = T[np.abs(T).any(axis=1)]
    if nonzero_rows.shape[0] == nonzero_rows.shape[1]:
        # The determinant is accurate for any units of X.
        return float(np.linalg.slogdet(nonzero_rows)[1])
    return float(np.log(linalg.svdvals(nonzero_rows)).sum())


def _compute_root(T: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return W with ``W.T @ W = T @ T.T``.

    W is symmetric if T has full rank. Otherwise W has one row per column of T.
    """
    left_vectors, singular, _ = linalg.svd(T, full_matrices=False)
    if singular[-1] < 1e-10 * singular[0]:
        # If the units of the features differ widely, the SVD loses features with small values. T
        # retains them.
        return fix_signs(T.T)
    if T.shape[1] < T.shape[0]:
        return fix_signs((left_vectors * singular).T)
    return np.asarray((left_vectors * singular) @ left_vectors.T)
