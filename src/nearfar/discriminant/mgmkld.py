"""Maximization of the geometric mean of Kullback-Leibler divergences between classes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from nearfar.base import LearnerTags
from nearfar.discriminant.gada import Convention, Priors
from nearfar.discriminant.mgmd import MGMD
from nearfar.discriminant.searching import Init
from nearfar.summaries.whitening import Shrinkage


class MGMKLD(MGMD):
    r"""Subspace with the maximum geometric mean of Kullback-Leibler divergences between classes.

    Each class is a Gaussian with its own covariance. With :math:`KL_{ij} = KL_U(i||j)` the
    divergences after projection by U, and priors :math:`\pi`, MGMKLD maximizes over ordered pairs

    .. math::
        L_\eta(U) = \sum_{i \ne j} \log KL_{ij}
        - \eta \log \left( \sum_{i \ne j} \pi_i \pi_j KL_{ij} \right), \qquad
        0 \le \eta \le c(c-1) .

    LDA maximizes the arithmetic mean of the same divergences under one common covariance. MGMKLD
    differs in two ways. It can separate classes that differ only in shape. And it does not merge
    two close classes to separate a distant one, because under the logarithm a small divergence
    costs more than a large one gains. Unlike LDA, it may have more than ``n_classes - 1``
    directions.

    Use it if the output has fewer than ``n_classes - 1`` dimensions, or if class covariances
    differ. With ``n_classes - 1`` dimensions and equal covariances, LDA gives the same subspace in
    closed form. MGMKLD fails if a class has several clusters (see :class:`MultimodalMGMKLD`). It
    overfits if classes have hardly more rows than features: the smallest eigenvalues of the class
    covariances are then noise, which inflates the divergences. Increase ``shrinkage`` then, or
    apply PCA first.

    Cost: one pass of O(n p²), then O(c p² q) per iteration for c classes and q components, or
    O(n p q) if classes have few rows, with about 50 iterations per start.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: from 1 to n_features. None means
        ``min(n_classes - 1, n_features)``. Solutions are not nested: the first k components of a
        fit differ from a fit with k components.
    equality_weight : float or None, default=None
        Weight of the term that favors equal divergences. It is between 0 and c(c-1) for c classes.
        At the upper limit, only equality counts, and classes may be merged. None means
        ``min(2c, c(c-1) - 1)``, as in all experiments of [1]_.
    alpha : float in [0, 1] or None, default=None
        Alternative to ``equality_weight``: see :class:`MGMD`.
    kl_convention : {"exact", "unnormalized"}, default="exact"
        Scale of the divergence: "exact" is KL, and "unnormalized" is 2 KL + q, as printed in [1]_
        and probably used in its experiments. With "unnormalized", the logarithm penalizes merged
        classes less.
    priors : {"empirical", "uniform"}, default="empirical"
        Class priors: the class frequencies ("empirical"), or equal priors ("uniform").
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances. A number g replaces each class covariance by
        :math:`(1-g) \Sigma_i + g (\mathrm{tr} S_w / p) I`. "auto" changes the covariances only if
        one of them is nearly singular, see Notes.
    init : {"auto", "lda", "random"} or array of shape (n_components, n_features), default="auto"
        Starting point. "auto" starts from LDA and from random class differences, see Notes. An
        array may be the ``components_`` of an earlier fit.
    n_init : int, default=5
        Number of starts. The result with the best objective is kept.
    solver : {"lbfgs", "steepest"}, default="lbfgs"
        Optimizer: L-BFGS, or gradient ascent with a fixed step size ("steepest"), as published.
        "steepest" is slow and stops far from the optimum.
    max_iter : int, default=500
        Maximum number of iterations. The limit applies to each start.
    tol : float, default=1e-6
        L-BFGS stops when the projector onto the subspace changes by less than ``tol``. "steepest"
        ignores this parameter.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The seed determines the random starts.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix: the principal axes of the class means in the subspace, scaled so that
        the pooled within-class covariance is the identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    objective_ : float
        Objective L at the solution.
    objectives_per_init_ : ndarray of shape (n_init,)
        Final objective of each start.
    divergences_ : ndarray of shape (n_classes, n_classes)
        Divergences at the solution. Entry (i, j) is the divergence of class i from class j.
    equality_weight_ : float
        Value of ``equality_weight`` used in the fit. If ``alpha`` is set, this is the equivalent
        value for equal priors.
    priors_ : ndarray of shape (n_classes,)
        Class priors used in the fit.
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
        Class statistics of the training rows.

    See Also
    --------
    MGMD, GADA, MultimodalMGMKLD, KernelMGMKLD

    Notes
    -----
    ``shrinkage="auto"`` leaves the class covariances unchanged if none has an eigenvalue below
    0.001 relative to the pooled within-class covariance :math:`S_w`. Otherwise it mixes 30% of
    :math:`S_w` into each, because divergences from a singular covariance are infinite. A class
    whose rows are all equal gets :math:`S_w`.

    ``init`` sets the starting points:

    - "auto": the first start is the LDA subspace. The others are random combinations of the
      directions in which the classes differ.
    - "lda": a single start from the LDA subspace.
    - "random": all starts are random subspaces.
    - an array: the first start is this matrix, the others are drawn as for "auto".

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.5.

    Examples
    --------
    Two close classes and one far away, projected to one dimension. LDA finds the direction of the
    far class and merges the other two. MGMKLD separates them:

    >>> from nearfar import LDA, MGMKLD
    >>> from nearfar.datasets import make_class_separation
    >>> X, y = make_class_separation(random_state=0)
    >>> LDA(n_components=1).fit(X, y).components_.round(1)
    array([[ 1., ...]])
    >>> mgmkld = MGMKLD(n_components=1).fit(X, y)
    >>> bool(mgmkld.divergences_[0, 1] > 2)
    True
    """

    learner_tags = LearnerTags(reads="statistics")
    renamed: ClassVar = {"eta": "equality_weight", "eta_": "equality_weight_"}
    settings = ({"shrinkage": 0.1}, {"equality_weight": 0.0})
    parameters: ClassVar = {
        name: allowed for name, allowed in MGMD.parameters.items() if name != "divergence"
    }

    # This is a parameter of MGMD, but a constant of MGMKLD.
    divergence = "kl"

    def __init__(
        self,
        n_components: int | None = None,
        *,
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
