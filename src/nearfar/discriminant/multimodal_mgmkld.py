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
from nearfar.discriminant.mgmd import log_average
from nearfar.discriminant.searching import SEARCH_PARAMETERS, Init, Searching
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import descending_eigh
from nearfar.solvers.gaussian_divergences import KullbackLeibler
from nearfar.solvers.mixtures import CovarianceType, figueiredo_jain, n_parameters
from nearfar.solvers.subspaces import Interrupted
from nearfar.state import State, object_of
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage, find_total_range

# Upper limit of the number of dimensions of a mixture, with mixture_dimension="auto".
_MOST_DIMENSIONS = 10
# With "auto", a class with fewer rows than this is a single cluster.
_FEWEST_ROWS = 20
# Responsibilities below this are set to zero.
_NEGLIGIBLE = 1e-6


class MultimodalMGMKLD(Searching, LinearLearner):
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
        Form of the cluster covariances while the mixtures are fitted.
    mixture_dimension : int or "auto", default="auto"
        Number of principal components of each class in which its mixture is fitted. For "auto" see
        Notes.
    eta : float or None, default=None
        Weight of the term that favors equal divergences. From 0 to m, the number of ordered pairs
        of clusters of different classes. None means ``min(2c, m - 1)`` for c classes.
    alpha : float in [0, 1] or None, default=None
        Alternative to eta: see :class:`MGMD`.
    kl_convention : {"exact", "unnormalized"}, default="exact"
        Scale of the divergence: "exact" is KL, "unnormalized" is 2 KL + q, which [1]_ prints and
        probably used in its experiments.
    priors : {"empirical", "uniform"}, default="empirical"
        Class priors: the class frequencies ("empirical"), or equal priors ("uniform"). The prior
        of a class is divided among its clusters in proportion to their weights.
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances. A number g replaces each cluster covariance by
        :math:`(1-g) \Sigma + g (\mathrm{tr} S_w / p) I`. "auto" acts only if one of them is nearly
        singular, see Notes.
    init : {"auto", "lda", "random"} or array of shape (n_components, n_features), default="auto"
        Starting point. "auto" uses LDA of the clusters and random cluster differences, see Notes.
    n_init : int, default=5
        Number of starts. The result with the best objective is kept.
    solver : {"lbfgs", "steepest"}, default="lbfgs"
        Optimizer: L-BFGS, or gradient ascent with a fixed step size ("steepest"), as published.
    max_iter : int, default=500
        Maximum number of iterations. It applies to each start.
    tol : float, default=1e-6
        L-BFGS stops when the projector onto the subspace changes by less than this. "steepest"
        ignores it.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. It draws the initial mixtures and the random starts.
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
    objective_, objectives_per_init_, eta_, shrinkage_, history_, n_iter_
        See :class:`MGMKLD`.
    divergences_ : ndarray of shape (n_clusters, n_clusters)
        Divergences at the solution, of cluster i (row) from cluster j (column).
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
    state = State({"cluster_statistics_": object_of(ClassStatistics, p="p")})
    settings = ({"shrinkage": 0.1}, {"eta": 0.0})
    renamed_values: ClassVar = {"kl_convention": {"unnormalised": "unnormalized"}}
    parameters: ClassVar = {
        "max_clusters": [integer(1)],
        "mixture_covariance": [one_of("full", "diagonal", "spherical")],
        "mixture_dimension": [integer(1), one_of("auto")],
        "eta": [none, real(0)],
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
        eta: float | None = None,
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
        self.eta = eta
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
        """Find the clusters of each class and their weighted statistics in all features."""
        whole = ClassStatistics(pooled=True, exact=True).add(rows, self.classes_, codes)
        basis, _ = find_total_range(whole, standardize=True)
        random = check_random_state(self.random_state)
        smallest = (len(self.classes_) if self.n_components is None else self.n_components) + 1
        statistics = ClassStatistics(exact=True)
        owners: list[int] = []
        for code in range(len(self.classes_)):
            own = rows[codes == code]
            shares = clusters(
                (own - whole.mean) @ basis,
                max_clusters=self.max_clusters,
                dimension=self.mixture_dimension,
                covariance_type=self.mixture_covariance,
                smallest=smallest,
                random=random,
            )
            for share in shares.T:
                nothing = np.zeros(len(own), dtype=np.intp)
                statistics.add(own, np.array([len(owners)]), nothing, np.ascontiguousarray(share))
                owners.append(code)
        self.cluster_classes_ = np.array(owners)
        self.n_clusters_ = np.bincount(self.cluster_classes_)
        self.cluster_statistics_ = statistics

    def _solve(self, statistics: ClassStatistics) -> Matrix:
        owner, c = self.cluster_classes_, len(self.classes_)
        priors = statistics.weights / statistics.total_weight
        if self.priors == "uniform":
            priors = priors / (c * np.bincount(owner, priors)[owner])
        self.cluster_priors_ = priors
        pairs = owner[:, None] != owner[None, :]
        self.eta_, average = log_average(self, c, priors, pairs)
        divergence = KullbackLeibler(self.kl_convention)
        return search_averaged(self, statistics, c, divergence, average)


def clusters(
    rows: Matrix,
    *,
    max_clusters: int,
    dimension: int | Literal["auto"],
    covariance_type: CovarianceType,
    smallest: float,
    random: np.random.RandomState,
) -> Matrix:
    """Return the responsibilities (n, k) of the clusters of one class for its rows.

    The mixture is fitted in the leading principal components. Clusters with fewer than
    ``smallest`` rows are dissolved into the others.
    """
    n = len(rows)
    d = survivable_dimension(n, covariance_type) if dimension == "auto" else dimension
    d = min(d, n - 1, rows.shape[1])
    if d < 1 or max_clusters == 1:
        return np.ones((n, 1))
    centered = rows - rows.mean(axis=0)
    if d < rows.shape[1]:
        _, axes = descending_eigh(centered.T @ centered, d)
        centered = centered @ axes
    shares = figueiredo_jain(
        centered, max_components=max_clusters, covariance_type=covariance_type, random_state=random
    ).responsibilities
    shares = np.where(shares < _NEGLIGIBLE, 0.0, shares)
    while shares.shape[1] > 1 and shares.sum(axis=0).min() < smallest:
        shares = np.delete(shares, np.argmin(shares.sum(axis=0)), axis=1)
        lost = shares.sum(axis=1) < _NEGLIGIBLE
        shares[lost] = shares[~lost].mean(axis=0)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def survivable_dimension(n: int, covariance_type: CovarianceType) -> int:
    """Return the largest dimension, up to 10, in which a cluster of n/4 rows is not dissolved.

    A cluster needs more rows than half the number of its parameters. The result is 0 if there are
    too few rows to distinguish clusters from noise.
    """
    if n < _FEWEST_ROWS:
        return 0
    fits = [
        d for d in range(1, _MOST_DIMENSIONS + 1) if n_parameters(d, covariance_type) / 2 <= n / 4
    ]
    return max(fits, default=0)
