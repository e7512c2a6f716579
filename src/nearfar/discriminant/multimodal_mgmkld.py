"""MGMKLD with a mixture of Gaussians per class."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Matrix
from nearfar.base import LearnerTags, LinearLearner
from nearfar.blocks import limit_blas_for
from nearfar.discriminant.gada import Convention, Priors, search_averaged
from nearfar.discriminant.mgmd import make_log_average
from nearfar.discriminant.searching import SEARCH_PARAMETERS, Init, SubspaceSearchLearner
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import descending_eigh
from nearfar.solvers.gaussian_divergences import KullbackLeibler
from nearfar.solvers.mixtures import CovarianceType, count_parameters, fit_figueiredo_jain
from nearfar.solvers.subspaces import Interrupted
from nearfar.state import State, object_of
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, find_total_range

# Maximum dimension of a mixture if mixture_dimension="auto".
_MAX_DIMENSIONS = 10
# Minimum number of rows per class if mixture_dimension="auto". A smaller class gets only one
# cluster.
_MIN_ROWS = 20
# Responsibilities below this value are set to zero.
_MIN_RESPONSIBILITY = 1e-6


class MultimodalMGMKLD(SubspaceSearchLearner, LinearLearner):
    r"""MGMKLD for classes with several clusters: one Gaussian mixture per class.

    The components of the Gaussian mixtures, called clusters here, take the place of the classes in
    :class:`MGMKLD`. With cluster k of class i and its prior :math:`\pi_i^k`, only clusters of
    different classes are compared:

    .. math::
        L_\eta(U) = \sum_{i \ne j} \sum_{k, l} \log KL_U(i_k || j_l)
        - \eta \log \left( \sum_{i \ne j} \sum_{k, l} \pi_i^k \pi_j^l KL_U(i_k || j_l) \right) .

    The number of clusters per class is chosen by the message length criterion of Figueiredo and
    Jain [2]_.

    Use it if a class consists of clusters with other classes between them. LDA and MGMKLD model
    such a class as one wide cluster. With one cluster per class, it is MGMKLD. It fails if classes
    have too few rows to reveal their clusters: in d dimensions, a cluster needs more than
    (d² + 3d)/4 rows. Mixtures are therefore fitted in the leading principal components of each
    class, and clusters that differ only in other directions are not found. Afterwards the
    covariances are estimated in all dimensions.

    It needs two passes over the rows, so it has no ``partial_fit``.

    Cost: O(n p²), then about a hundred EM iterations of O(n d²) over the clusters of each class,
    then the cost of MGMKLD with clusters instead of classes.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to n_features. None means
        ``min(n_classes - 1, n_features)``.
    max_clusters : int, default=10
        Initial and maximum number of clusters per class.
    mixture_covariance : {"full", "diagonal", "spherical"}, default="full"
        Form of the cluster covariances in the Gaussian mixtures.
    mixture_dimension : int or "auto", default="auto"
        Number of principal components per class. The mixture of a class is fitted to its principal
        components. For "auto" see Notes.
    equality_weight : float or None, default=None
        Weight of the term that favors equal divergences. It is between 0 and m, the number of
        ordered pairs of clusters from different classes. None means ``min(2c, m - 1)`` for c
        classes.
    alpha : float in [0, 1] or None, default=None
        Alternative to ``equality_weight``: see :class:`MGMD`.
    kl_convention : {"exact", "unnormalized"}, default="exact"
        Scale of the divergence: "exact" is KL, and "unnormalized" is 2 KL + q, as printed in [1]_
        and probably used in its experiments.
    priors : {"empirical", "uniform"}, default="empirical"
        Class priors: the class frequencies ("empirical"), or equal priors ("uniform"). The prior
        of a class is divided among its clusters in proportion to their weights.
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances. A number g replaces each cluster covariance by
        :math:`(1-g) \Sigma + g (\mathrm{tr} S_w / p) I`. "auto" changes the covariances only if one
        of them is nearly singular, see Notes.
    init : {"auto", "lda", "random"} or array of shape (n_components, n_features), default="auto"
        Starting point. "auto" starts from LDA of the clusters and from random cluster differences,
        see Notes.
    n_init : int, default=5
        Number of starts. The result with the best objective is kept.
    solver : {"lbfgs", "steepest"}, default="lbfgs"
        Optimizer: L-BFGS, or gradient ascent with a fixed step size ("steepest"), as published.
    max_iter : int, default=500
        Maximum number of iterations. The limit applies to each start.
    tol : float, default=1e-6
        L-BFGS stops when the projector onto the subspace changes by less than ``tol``. "steepest"
        ignores this parameter.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The seed determines the initial mixtures and the random
        starts.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix, scaled so that the covariance pooled over the clusters is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    n_clusters_ : ndarray of shape (n_classes,)
        Number of clusters per class.
    cluster_classes_ : ndarray of shape (n_clusters,)
        Class of each cluster, as an index into ``classes_``.
    cluster_priors_ : ndarray of shape (n_clusters,)
        Prior of each cluster.
    cluster_statistics_ : ClassStatistics
        Weights, means and scatters of the clusters.
    objective_, objectives_per_init_, equality_weight_, shrinkage_, history_, n_iter_
        See :class:`MGMKLD`.
    divergences_ : ndarray of shape (n_clusters, n_clusters)
        Divergences at the solution. Entry (i, j) is the divergence of cluster i from cluster j.
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    See Also
    --------
    MGMKLD, MODA, MultimodalKernelMGMKLD

    Notes
    -----
    ``mixture_dimension="auto"`` uses the largest dimension, up to 10, in which a cluster with a
    quarter of the rows of the class is not dissolved. A class with fewer than 20 rows is a single
    cluster.

    ``shrinkage="auto"`` leaves the cluster covariances unchanged if none has an eigenvalue below
    0.001 relative to the covariance :math:`S_w` pooled over the clusters. Otherwise it mixes 30%
    of :math:`S_w` into each.

    ``init`` sets the starting points:

    - "auto": the first start is the LDA subspace of the clusters. The others are random
      combinations of the directions in which the clusters differ.
    - "lda": a single start from the LDA subspace.
    - "random": all starts are random subspaces.
    - an array: the first start is this matrix, the others are drawn as for "auto".

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.5.2.
    .. [2] M. A. T. Figueiredo and A. K. Jain, "Unsupervised learning of finite mixture models",
       IEEE Transactions on Pattern Analysis and Machine Intelligence 24, 2002.

    Examples
    --------
    >>> from nearfar import MultimodalMGMKLD
    >>> from nearfar.datasets import make_multimodal
    >>> X, y = make_multimodal(random_state=0)
    >>> MultimodalMGMKLD(n_components=1).fit(X, y).n_clusters_
    array([2, 2])
    """

    learner_tags = LearnerTags(reads="supervision")
    renamed: ClassVar = {"eta": "equality_weight", "eta_": "equality_weight_"}
    state = State({"cluster_statistics_": object_of(ClassStatistics, p="p")})
    settings = ({"shrinkage": 0.1}, {"equality_weight": 0.0})
    renamed_values: ClassVar = {"kl_convention": {"unnormalised": "unnormalized"}}
    parameters: ClassVar = {
        "max_clusters": [integer(1)],
        "mixture_covariance": [one_of("full", "diagonal", "spherical")],
        "mixture_dimension": [integer(1), one_of("auto")],
        "equality_weight": [none, real(0)],
        "alpha": [none, real(0, 1)],
        "kl_convention": [one_of("exact", "unnormalized")],
        "priors": [one_of("empirical", "uniform")],
        **SEARCH_PARAMETERS,
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        max_clusters: int = 10,
        mixture_covariance: CovarianceType = "full",
        mixture_dimension: int | Literal["auto"] = "auto",
        equality_weight: float | None = None,
        alpha: float | None = None,
        kl_convention: Convention = "exact",
        priors: Priors = "empirical",
        shrinkage: Shrinkage = "auto",
        init: Init | ArrayLike = "auto",
        n_init: int = 5,
        solver: Literal["lbfgs", "steepest"] = "lbfgs",
        max_iter: int = 500,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.max_clusters = max_clusters
        self.mixture_covariance = mixture_covariance
        self.mixture_dimension = mixture_dimension
        self.equality_weight = equality_weight
        self.alpha = alpha
        self.kl_convention = kl_convention
        self.priors = priors
        self.shrinkage = shrinkage
        self.init = init
        self.n_init = n_init
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit the mixtures, then find the subspace.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        MultimodalMGMKLD
            The fitted learner.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        self.classes_, codes = self._check_labels(y, len(rows))
        with limit_blas_for(10.0 * rows.shape[1] ** 3):
            self._find_clusters(rows, codes)
            interrupt = None
            try:
                components = self._solve(self.cluster_statistics_)
            except Interrupted as stop:
                if stop.components is None:
                    raise
                components, interrupt = stop.components, stop
        self.components_ = components.astype(rows.dtype)
        self.mean_ = self.cluster_statistics_.mean.astype(rows.dtype)
        if interrupt is not None:
            raise interrupt
        return self

    def _find_clusters(self, rows: Floats, codes: NDArray[np.intp]) -> None:
        """Find the clusters of each class and compute their weighted statistics."""
        class_statistics = ClassStatistics(pooled=True, exact=True).add(rows, self.classes_, codes)
        basis, _ = find_total_range(class_statistics, standardize=True)
        random = check_random_state(self.random_state)
        min_cluster_size = (
            len(self.classes_) if self.n_components is None else self.n_components
        ) + 1
        statistics = ClassStatistics(exact=True)
        cluster_classes: list[int] = []
        for code in range(len(self.classes_)):
            class_rows = rows[codes == code]
            responsibilities = find_clusters(
                (class_rows - class_statistics.mean) @ basis,
                max_clusters=self.max_clusters,
                dimension=self.mixture_dimension,
                covariance_type=self.mixture_covariance,
                min_cluster_size=min_cluster_size,
                random=random,
            )
            for responsibility in responsibilities.T:
                zero_codes = np.zeros(len(class_rows), dtype=np.intp)
                statistics.add(
                    class_rows,
                    np.array([len(cluster_classes)]),
                    zero_codes,
                    np.ascontiguousarray(responsibility),
                )
                cluster_classes.append(code)
        self.cluster_classes_ = np.array(cluster_classes)
        self.n_clusters_ = np.bincount(self.cluster_classes_)
        self.cluster_statistics_ = statistics

    def _solve(self, statistics: ClassStatistics) -> Matrix:
        cluster_classes, c = self.cluster_classes_, len(self.classes_)
        priors = statistics.weights / statistics.total_weight
        if self.priors == "uniform":
            priors = priors / (c * np.bincount(cluster_classes, priors)[cluster_classes])
        self.cluster_priors_ = priors
        pairs = cluster_classes[:, None] != cluster_classes[None, :]
        self.equality_weight_, average = make_log_average(self, c, priors, pairs)
        divergence = KullbackLeibler(self.kl_convention)
        return search_averaged(self, statistics, c, divergence, average)


def find_clusters(
    rows: Matrix,
    *,
    max_clusters: int,
    dimension: int | Literal["auto"],
    covariance_type: CovarianceType,
    min_cluster_size: float,
    random: np.random.RandomState,
) -> Matrix:
    """Return the responsibilities (n, k) of the k clusters of a class for its n rows.

    The mixture is fitted in the leading principal components. The rows of a cluster with fewer than
    ``min_cluster_size`` rows are divided among the other clusters.
    """
    n = len(rows)
    d = choose_mixture_dimension(n, covariance_type) if dimension == "auto" else dimension
    d = min(d, n - 1, rows.shape[1])
    if d < 1 or max_clusters == 1:
        return np.ones((n, 1))
    centered = rows - rows.mean(axis=0)
    if d < rows.shape[1]:
        _, axes = descending_eigh(centered.T @ centered, d)
        centered = centered @ axes
    responsibilities = fit_figueiredo_jain(
        centered, max_components=max_clusters, covariance_type=covariance_type, random_state=random
    ).responsibilities
    responsibilities = np.where(responsibilities < _MIN_RESPONSIBILITY, 0.0, responsibilities)
    while responsibilities.shape[1] > 1 and responsibilities.sum(axis=0).min() < min_cluster_size:
        responsibilities = np.delete(
            responsibilities, np.argmin(responsibilities.sum(axis=0)), axis=1
        )
        is_unassigned = responsibilities.sum(axis=1) < _MIN_RESPONSIBILITY
        responsibilities[is_unassigned] = responsibilities[~is_unassigned].mean(axis=0)
    return np.asarray(responsibilities / responsibilities.sum(axis=1, keepdims=True))


def choose_mixture_dimension(n: int, covariance_type: CovarianceType) -> int:
    """Return the largest dimension, up to 10, in which the mixture can keep a cluster of n/4 rows.

    A cluster needs more rows than half the number of its parameters. The result is 0 if there are
    too few rows to distinguish clusters from noise.
    """
    if n < _MIN_ROWS:
        return 0
    feasible_dimensions = [
        d
        for d in range(1, _MAX_DIMENSIONS + 1)
        if count_parameters(d, covariance_type) / 2 <= n / 4
    ]
    return max(feasible_dimensions, default=0)
