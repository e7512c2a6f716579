"""Information-theoretic metric learning."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import pdist
from sklearn.utils import check_random_state

from nearfar.arrays import Mask, Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.guided import PAIR_PARAMETERS, PairLearner
from nearfar.mahalanobis.log_det_learner import ROUNDING, _LogDetLearner
from nearfar.mahalanobis.priors import PRIORS
from nearfar.parameters import array, integer, none, real
from nearfar.state import State, floats
from nearfar.summaries.pair_differences import PairDifferences
from nearfar.summaries.supervision import Pairs

# Maximum number of rows whose pairwise distances are used to compute the default bounds.
_ROWS_FOR_BOUNDS = 1_000


class ITML(_LogDetLearner, PairLearner):
    r"""Information-theoretic metric learning: a metric from pairs, close to a prior metric.

    ITML learns from pairs of points labeled as similar or dissimilar. Similar pairs should have a
    squared distance of at most u, dissimilar pairs of at least l. Among all metrics that satisfy
    this up to a penalized slack, ITML chooses the one closest to a prior metric :math:`M_0`. With
    :math:`d^2 = (x_i - x_j)^T M (x_i - x_j)` and the LogDet divergence
    :math:`\mathrm{LogDet}(M, M_0) = \mathrm{tr}(M M_0^{-1}) - \log\det(M M_0^{-1}) - p`, which is
    twice the Kullback-Leibler divergence between Gaussians with the precision matrices
    :math:`M_0` and M, it minimizes over M and the slacks ξ

    .. math::
        \mathrm{LogDet}(M, M_0) + \gamma \sum_{ij}
        \mathrm{LogDet}(\xi_{ij}, \xi^0_{ij}), \qquad
        d_{ij}^2 \le \xi_{ij} \text{ (similar)}, \quad d_{ij}^2 \ge \xi_{ij} \text{ (dissimilar)},

    where :math:`\xi^0` is u for similar and l for dissimilar pairs. The optimal slacks have a
    closed form for each M, which leaves one smooth convex function,

    .. math::
        \mathrm{LogDet}(M, M_0)
        + \gamma \sum_{\text{similar}} \varphi(\max(d^2 / u, 1))
        + \gamma \sum_{\text{dissimilar}} \varphi(\min(d^2 / l, 1)), \qquad
        \varphi(t) = t - \log t - 1 .

    L-BFGS minimizes it over a factor of M, in coordinates in which the prior is the identity, using
    all pairs at once. The cyclic projections of the paper [1]_ take ten times as many passes over
    the pairs. The derivatives of φ are multipliers :math:`\lambda` of the dual problem,
    :math:`\log\det(I + \sum s \lambda v v^T) + \gamma \sum \log(1 - s \lambda \xi^0 / \gamma)`
    with s = ±1, and so give a proven lower bound.

    Use it with similar pairs, dissimilar pairs or both, if you have a reasonable prior metric and
    know bounds on distances rather than classes. Contradictory pairs are allowed and cost slack. M
    has full rank if the prior has.

    Cost: O(N p² + p³) per evaluation for N pairs, with tens to hundreds of evaluations.

    Parameters
    ----------
    gamma : float, default=1
        Weight of the slacks. With larger values, the metric satisfies more bounds. With smaller
        values, it stays closer to the prior.
    bounds : pair of float or None, default=None
        Pair (u, l), where u is the maximum squared distance of similar pairs and l is the minimum
        squared distance of dissimilar pairs. None uses the 5th and 95th percentiles of the positive
        squared distances between rows, measured with the prior metric.
    prior : {"isotropic", "identity", "covariance"} or array of shape (n_features, n_features)
        Prior metric: the identity divided by the mean variance of X ("isotropic"), the Euclidean
        distance ("identity"), the inverse covariance of X ("covariance"), or any positive
        semi-definite matrix. If the prior is singular, so is the learned metric.
    n_similar : int or None, default=None
        Maximum number of similar pairs drawn from labels. None uses the default of
        ``Pairs.from_labels``.
    n_dissimilar : int or None, default=None
        Maximum number of dissimilar pairs drawn from labels. None uses the default of
        ``Pairs.from_labels``.
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-6
        Stop when two successive iterations change the objective by less than this fraction and the
        duality gap is at most ``50 * tol``. If the gap stays larger, the solver continues with a
        tenth of the tolerance. This is repeated at most three times.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used to draw pairs from labels, and to sample 1,000
        rows for the default ``bounds`` if X has more rows.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map L with M = LᵀL. It is square unless the prior is singular.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    bounds_ : ndarray of shape (2,)
        The bounds u and l on squared distances.
    objective_ : float
        Value of the objective at the solution.
    dual_bound_ : float
        Lower bound on the objective that holds for every metric.
    duality_gap_ : float
        ``1 - dual_bound_ / objective_``. A value of 0 proves that the solution is optimal.
    n_iter_ : int
        Number of iterations.
    history_ : dict of lists
        Lists with one entry per iteration: "objective", "step" and "seconds".

    Notes
    -----
    No metric can separate two equal points. Dissimilar pairs of equal points are left out with a
    warning. For the prior "isotropic", the mean variance is taken over the directions in which X
    varies; the prior "covariance" is the inverse on these directions.

    See Also
    --------
    LSML, SDML, LMNN, RCA

    References
    ----------
    .. [1] J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon, "Information-Theoretic Metric
       Learning", ICML 2007, sections 3 and 4.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import ITML, Pairs
    >>> X, y = load_wine(return_X_y=True)
    >>> pairs = Pairs.from_labels(y, n_similar=200, n_dissimilar=200, random_state=0)
    >>> itml = ITML().fit(X, supervision=pairs)
    >>> itml.duality_gap_ < 1e-3
    True
    """

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "pairs"))
    needs_both_kinds = False
    state = State({"bounds_": floats(2, above=0)})
    settings = ({"gamma": 0.01}, {"prior": "covariance"})
    parameters: ClassVar = {
        "gamma": [real(0, open_low=True)],
        "bounds": [none, array],
        "prior": PRIORS,
        **PAIR_PARAMETERS,
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        bounds: ArrayLike | None = None,
        prior: str | ArrayLike = "isotropic",
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.gamma = gamma
        self.bounds = bounds
        self.prior = prior
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _make_loss(self, points: Matrix, supervision: Pairs) -> _Slack:
        similar, dissimilar = self._select_usable_pairs(points, supervision, ROUNDING)
        self.bounds_ = self._choose_bounds(points)
        is_similar = np.arange(len(similar) + len(dissimilar)) < len(similar)
        return _Slack(
            PairDifferences(points, np.vstack([similar, dissimilar])),
            is_similar,
            np.where(is_similar, self.bounds_[0], self.bounds_[1]),
            float(self.gamma),
        )

    def _choose_bounds(self, points: Matrix) -> Vector:
        if self.bounds is not None:
            bounds = np.asarray(self.bounds, np.float64)
            if (
                bounds.shape != (2,)
                or not np.isfinite(bounds).all()
                or not 0 < bounds[0] <= bounds[1]
            ):
                raise ValueError(
                    "ITML: bounds must be two squared distances (u, l) with 0 < u <= l; "
                    f"got {self.bounds!r}."
                )
            return bounds
        if len(points) > _ROWS_FOR_BOUNDS:
            rng = check_random_state(self.random_state)
            points = points[rng.choice(len(points), _ROWS_FOR_BOUNDS, replace=False)]
        squared = pdist(points, "sqeuclidean")
        return np.asarray(np.percentile(squared[squared > 0], [5, 95]))


class _Slack:
    """Loss of the pairs that violate their bound ξ⁰: γ Σ φ(d²/ξ⁰)."""

    def __init__(
        self, pairs: PairDifferences, is_similar: Mask, bounds: Vector, gamma: float
    ) -> None:
        self.pairs, self.is_similar, self.bounds, self.gamma = pairs, is_similar, bounds, gamma

    def __call__(self, B: Matrix) -> tuple[float, Matrix]:
        Z = self.pairs.map_differences(B)
        excess = self._compute_excess(np.einsum("ij,ij->i", Z, Z))
        if not (excess > -1).all():
            return np.inf, np.zeros_like(B)
        value = self.gamma * float(np.sum(excess - np.log1p(excess)))
        return value, 2 * self.pairs.compute_half_gradient(Z, self._compute_slopes(excess))

    def compute_pull(self) -> Matrix:
        """Return half of the scatter matrix of the similar pairs, times the largest slope γ/u."""
        return self.pairs.scatter(np.where(self.is_similar, self.gamma / (2 * self.bounds), 0.0))

    def compute_multipliers(self, B: Matrix) -> tuple[Matrix, Callable[[float], float]]:
        """Return the arguments that `log_det_bound` needs for the lower bound at B.

        They are the scatter of the signed multipliers sλ, and the function
        θ ↦ γ Σ log(1 - θ s λ ξ⁰/γ) of their scale θ.
        """
        excess = self._compute_excess(self.pairs.compute_squared_lengths(B))
        slopes = self._compute_slopes(excess)
        fractions = slopes * self.bounds / self.gamma
        return (
            self.pairs.scatter(slopes),
            lambda theta: self.gamma * float(np.sum(np.log1p(-theta * fractions))),
        )

    def _compute_excess(self, squared: Vector) -> Vector:
        """Return ξ/ξ⁰ - 1 for each pair, where ξ is the optimal slack and ξ⁰ is the bound."""
        excess = squared / self.bounds - 1
        return np.where(self.is_similar, np.maximum(excess, 0.0), np.minimum(excess, 0.0))

    def _compute_slopes(self, excess: Vector) -> Vector:
        """Return the derivatives of the loss with respect to the squared distances."""
        return np.asarray(self.gamma / self.bounds * (excess / (1 + excess)))
