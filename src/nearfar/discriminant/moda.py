"""Multimodal oriented discriminant analysis: divergences between clusters of different classes."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes
from nearfar.discriminant.gada import search_averaged
from nearfar.discriminant.oda import make_weighted_sum
from nearfar.discriminant.searching import SEARCH_PARAMETERS, Init, SubspaceSearchLearner
from nearfar.parameters import integer
from nearfar.solvers.gaussian_divergences import kullback_leibler
from nearfar.solvers.normalized_cut import cluster_by_normalized_cut
from nearfar.state import Sizes, State, check_that, labels, optional
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class MODA(SubspaceSearchLearner, StatisticsLearner):
    r"""Multimodal oriented discriminant analysis: maximize divergences between class clusters.

    Each class is split into ``n_clusters`` clusters, each modeled as a Gaussian. With cluster k of
    class i and cluster l of class j, MODA maximizes

    .. math::
        J = \sum_{i \ne j} \sum_{k,l} \mathrm{tr}\left( (U^T \Sigma_{ik} U)^{-1} U^T (\Sigma_{jl} +
        \delta\delta^T) U \right) - q = 2 \sum_{i \ne j} \sum_{k, l} KL_U(ik\|jl), \qquad
        \delta = m_{ik} - m_{jl} .

    Clusters of the same class are not compared. With one cluster per class, MODA is :class:`ODA`.
    [2]_ uses the name MODA for this case: the sum of the symmetric divergences of all pairs of
    classes.

    Use it if classes have several clusters, for example two modes on both sides of another class.
    Methods with one Gaussian per class use only the common mean of the two modes. As in any
    unweighted sum, large divergences dominate and close classes may merge.
    :class:`MultimodalMGMKLD` avoids this, and also chooses the number of clusters. Small clusters
    have small covariances and huge divergences: keep the number of rows per cluster well above
    n_features, or increase ``shrinkage``.

    Cost: O(m³) per class to cluster m ≤ 500 of its rows. Then one pass of O(n p²), and O(k p² q)
    per iteration for k clusters and q components, with about 50 iterations per start.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to n_features. None means
        ``min(n_classes - 1, n_features)``.
    n_clusters : int, default=1
        Number of clusters per class, found by a normalized cut after scaling the features to unit
        within-class variance. The maximum is half the number of rows of a class. ``partial_fit``
        supports only 1.
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances. A number g replaces each cluster covariance by
        :math:`(1-g) \Sigma + g (\mathrm{tr} S_w / p) I`. "auto" changes the covariances only if one
        of them is nearly singular, see Notes.
    init : {"auto", "lda", "random"} or array of shape (n_components, n_features), default="auto"
        Starting point. "auto" starts from LDA of the clusters and from random cluster differences,
        see Notes.
    n_init : int, default=3
        Number of starts. The result with the best objective is kept.
    solver : {"lbfgs", "steepest"}, default="lbfgs"
        Optimizer: L-BFGS, or gradient ascent with a fixed step size ("steepest").
    max_iter : int, default=500
        Maximum number of iterations. The limit applies to each start.
    tol : float, default=1e-6
        L-BFGS stops when the projector onto the subspace changes by less than ``tol``. "steepest"
        ignores this parameter.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The seed determines the clusters and the random starts.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix: the principal axes of the cluster means in the subspace, scaled so that
        the covariance pooled over the clusters is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    objective_ : float
        Objective J at the solution.
    objectives_per_init_ : ndarray of shape (n_init,)
        Final objective of each start.
    cluster_classes_ : ndarray of shape (n_clusters_total,)
        Class of each cluster, as an index into ``classes_``.
    divergences_ : ndarray of shape (n_clusters_total, n_clusters_total)
        Kullback-Leibler divergences at the solution. Entry (i, j) is the divergence of cluster i
        from cluster j.
    shrinkage_ : float
        Shrinkage used in the fit. With "auto", it is the fraction of :math:`S_w` that was mixed
        into each covariance.
    history_ : dict of lists
        Progress of the best start per iteration, with the keys "objective", "step" and "seconds".
    n_iter_ : int
        Number of iterations of the best start.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Statistics of the clusters.

    See Also
    --------
    ODA, MultimodalMGMKLD

    Notes
    -----
    ``shrinkage="auto"`` leaves the cluster covariances unchanged if none has an eigenvalue below
    0.001 relative to the covariance :math:`S_w` pooled over the clusters. Otherwise it mixes 30%
    of :math:`S_w` into each. A cluster whose rows are all equal gets :math:`S_w`.

    ``init`` sets the starting points:

    - "auto": the first start is the LDA subspace of the clusters. The others are random
      combinations of the directions in which the clusters differ.
    - "lda": a single start from the LDA subspace.
    - "random": all starts are random subspaces.
    - an array: the first start is this matrix, the others are drawn as for "auto".

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2.2,
       equation 2.16.
    .. [2] K. T. Abou-Moustafa, "Metric Learning Revisited", 2011,
       section 4.3.1, equation 4.8.

    Examples
    --------
    A class with one mode on each side of another class:

    >>> import numpy as np
    >>> from nearfar import MODA
    >>> rng = np.random.default_rng(0)
    >>> modes = np.array([[-7, 0], [7, 0], [0, 2], [0, 6]])
    >>> X = rng.normal(size=(120, 2)) + np.repeat(modes, 30, axis=0)
    >>> y = np.repeat([0, 1], 60)
    >>> moda = MODA(1, n_clusters=2).fit(X, y)
    >>> moda.cluster_classes_
    array([0, 0, 1, 1])
    >>> abs(moda.components_[0]).round(1)
    array([1. , 0.2])
    """

    learner_tags = LearnerTags(reads="statistics")
    state = State({"_owners": optional(labels("clusters"))})
    pooled_statistics = False
    settings = ({"n_clusters": 2}, {"n_clusters": 3}, {"shrinkage": 0.1})
    parameters: ClassVar = {
        "n_clusters": [integer(1)],
        **SEARCH_PARAMETERS,
    }

    divergences_: Matrix

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_clusters: int = 1,
        shrinkage: Shrinkage = "auto",
        init: Init | ArrayLike = "auto",
        n_init: int = 3,
        solver: Literal["lbfgs", "steepest"] = "lbfgs",
        max_iter: int = 500,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_clusters = n_clusters
        self.shrinkage = shrinkage
        self.init = init
        self.n_init = n_init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Split the classes into clusters and find the subspace.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights of the rows. The clustering ignores them.

        Returns
        -------
        MODA
            The fitted learner.
        """
        self._check_parameters()
        if self.n_clusters == 1:
            return super().fit(X, y, sample_weight=sample_weight)
        rows = self._check_X(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(rows))
        cluster_classes, cluster_codes = self._cut_classes(rows, classes, codes)
        cluster_ids = np.arange(len(cluster_classes))

        def accumulate(*, exact: bool) -> MODA:
            self._owners = classes[cluster_classes]
            return self._add(rows, cluster_ids, cluster_codes, sample_weight, exact=exact)

        return self._fit_with(accumulate)

    def _drop_statistics(self) -> None:
        super()._drop_statistics()
        self.__dict__.pop("_owners", None)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Add more training rows. This needs ``n_clusters=1``.

        New classes may appear unless ``classes`` was passed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            More training points.
        y : array-like of shape (n_samples,)
            Labels of the points.
        classes : array-like of shape (n_classes,), optional
            All labels that may occur, as in scikit-learn. After this, any other label raises an
            error. Classes without rows so far are not used.
        sample_weight : array-like of shape (n_samples,), optional
            Non-negative weights of the rows.

        Returns
        -------
        MODA
            The learner with the rows added.
        """
        self._check_parameters()
        if self.n_clusters > 1:
            raise ValueError(
                f"partial_fit needs n_clusters=1, but n_clusters={self.n_clusters}: clustering "
                "needs all rows at once. Use fit, or n_clusters=1."
            )
        if "_owners" in vars(self):
            raise ValueError(
                "partial_fit cannot add rows to this MODA, because it was fitted with n_clusters "
                "above 1. Call fit with n_clusters=1 first."
            )
        return super().partial_fit(X, y, classes, sample_weight=sample_weight)

    def _cut_classes(
        self, rows: Floats, classes: NDArray[Any], codes: Indices
    ) -> tuple[Indices, Indices]:
        """Split the classes. Return the class of each cluster and the cluster of each row."""
        random = check_random_state(self.random_state)
        statistics = ClassStatistics(pooled=True, storage="dense").add(rows, classes, codes)
        variances = statistics.within_scatter().diagonal() / len(rows)
        used_features = statistics.varying_features() & (variances > 0)
        points = (rows[:, used_features] - statistics.mean[used_features]) / np.sqrt(
            variances[used_features]
        )
        cluster_classes: list[int] = []
        cluster_codes = np.empty(len(rows), dtype=np.intp)
        for code in range(len(classes)):
            members = codes == code
            n_clusters = min(self.n_clusters, max(1, int(members.sum()) // 2))
            assignment = cluster_by_normalized_cut(points[members], n_clusters, random)
            cluster_codes[members] = len(cluster_classes) + assignment
            cluster_classes += [code] * (int(assignment.max()) + 1)
        return np.array(cluster_classes), cluster_codes

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        if "_owners" in vars(self):
            cluster_ids = self.statistics_.classes
            has_valid_ids = cluster_ids.dtype.kind == "i" and set(cluster_ids) <= set(
                range(sizes["clusters"])
            )
            check_that(has_valid_ids, "every cluster in statistics_ must have a class in _owners.")

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the components of the subspace with the largest sum of divergences."""
        # With one cluster per class, the cluster statistics are the class statistics.
        cluster_owners = vars(self).get("_owners")
        labels = (
            statistics.classes if cluster_owners is None else cluster_owners[statistics.classes]
        )
        self.classes_, self.cluster_classes_ = np.unique(labels, return_inverse=True)
        # A single class may have several clusters, so count the classes, not the clusters.
        check_classes("MODA", self.classes_)
        is_compared = self.cluster_classes_[:, None] != self.cluster_classes_[None, :]
        average = make_weighted_sum(2.0 * is_compared)
        return search_averaged(self, statistics, len(self.classes_), kullback_leibler, average)
