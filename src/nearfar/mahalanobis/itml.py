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

# Rows between whose pairs the default bounds are percentiles.
_ROWS_FOR_BOUNDS = 1_000


class ITML(_LogDetLearner, PairLearner):
    r"""Information-theoretic metric learning: similar pairs near, dissimilar far, close to a prior.

    With :math:`d^2 = (x_i - x_j)^T M (x_i - x_j)` and the LogDet divergence
    :math:`\mathrm{LogDet}(M, M_0) = \mathrm{tr}(M M_0^{-1}) - \log\det(M M_0^{-1}) - p`, which is
    twice the Kullback-Leibler divergence between Gaussians of precisions :math:`M_0` and M, it
    minimises over M and slacks ξ

    .. math::
        \mathrm{LogDet}(M, M_0) + \gamma \sum_{ij}
        \mathrm{LogDet}(\xi_{ij}, \xi^0_{ij}), \qquad
        d_{ij}^2 \le \xi_{ij} \text{ (similar)}, \quad d_{ij}^2 \ge \xi_{ij} \text{ (dissimilar)},

    where :math:`\xi^0` is the bound u for similar and l for dissimilar pairs. The best slacks are
    known for each M, which leaves one smooth convex function,

    .. math::
        \mathrm{LogDet}(M, M_0)
        + \gamma \sum_{\text{similar}} \varphi(\max(d^2 / u, 1))
        + \gamma \sum_{\text{dissimilar}} \varphi(\min(d^2 / l, 1)), \qquad
        \varphi(t) = t - \log t - 1,

    minimised by L-BFGS over a factor of M in coordinates in which the prior is the identity, all
    pairs at once; the cyclic projections of the paper [1]_ take ten times as many passes over the
    pairs. The slopes of φ are multipliers :math:`\lambda` of its dual,
    :math:`\log\det(I + \sum s \lambda v v^T) + \gamma \sum \log(1 - s \lambda \xi^0 / \gamma)`
    with s = ±1, and so give a proven bound.

    Use it with pairs, of one kind or both, when you have a metric to begin with and trust bounds on
    distances more than classes; pairs that contradict each other cost slack. M has full rank
    where the prior has.

    Cost: O(N p² + p³) an evaluation for N pairs, some tens to hundreds of them.

    Parameters
    ----------
    gamma : float, default=1
        Weight of the slacks: more follows the pairs, less the prior.
    bounds : pair of float or None, default=None
        (u, l): squared distances that similar pairs should not exceed and dissimilar pairs should
        reach. None takes the 5th and the 95th percentile of the squared distances between rows
        (those above zero) under the prior.
    prior : {"isotropic", "identity", "covariance"} or array of shape (n_features, n_features)
        The metric to stay near: the identity over the mean variance of X (over the directions in
        which it varies), the Euclidean distance, the inverse covariance on the range of X, or any
        metric. Where a prior is singular the learned metric is singular too.
    n_similar : int or None, default=None
        Similar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``.
    n_dissimilar : int or None, default=None
        Dissimilar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``.
    max_iter : int, default=1000
        Steps at most.
    tol : float, default=1e-6
        Stops when an iteration changes the objective by less than this share, twice, and the gap
        is at most 50 times it, or finer steps do not close it.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: pairs from labels, and rows for the bounds where there are more
        than 1,000.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map L with M = LᵀL; square unless the prior is singular.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    bounds_ : ndarray of shape (2,)
        The bounds u and l on squared distances.
    objective_ : float
        What is minimised, at the solution.
    dual_bound_ : float
        No metric has a lower objective than this.
    duality_gap_ : float
        ``1 - dual_bound_ / objective_``; 0 is proof of the optimum.
    n_iter_ : int
        Iterations.
    history_ : dict of lists
        "objective", "step" and "seconds" of each iteration.

    Notes
    -----
    Dissimilar pairs of two equal points cannot be used by any metric: they are left out with a
    warning.

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

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "pairs"))
    needs_both = False
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

    def _loss(self, points: Matrix, guide: Pairs) -> _Slack:
        similar, dissimilar = self._usable(points, guide, ROUNDING)
        self.bounds_ = self._bounds(points)
        alike = np.arange(len(similar) + len(dissimilar)) < len(similar)
        return _Slack(
            PairDifferences(points, np.vstack([similar, dissimilar])),
            alike,
            np.where(alike, self.bounds_[0], self.bounds_[1]),
            float(self.gamma),
        )

    def _bounds(self, points: Matrix) -> Vector:
        if self.bounds is not None:
            given = np.asarray(self.bounds, np.float64)
            if given.shape != (2,) or not np.isfinite(given).all() or not 0 < given[0] <= given[1]:
                raise ValueError(
                    "ITML: bounds must be two numbers (u, l) with 0 < u <= l, on squared "
                    f"distances; got {self.bounds!r}."
                )
            return given
        if len(points) > _ROWS_FOR_BOUNDS:
            draw = check_random_state(self.random_state)
            points = points[draw.choice(len(points), _ROWS_FOR_BOUNDS, replace=False)]
        squared = pdist(points, "sqeuclidean")
        return np.asarray(np.percentile(squared[squared > 0], [5, 95]))


class _Slack:
    """γ Σ φ(d²/ξ⁰) over the pairs that are on the wrong side of their bound."""

    def __init__(self, pairs: PairDifferences, alike: Mask, bounds: Vector, gamma: float) -> None:
        self.pairs, self.alike, self.bounds, self.gamma = pairs, alike, bounds, gamma

    def __call__(self, B: Matrix) -> tuple[float, Matrix]:
        Z = self.pairs.mapped(B)
        over = self._over(np.einsum("ij,ij->i", Z, Z))
        if not (over > -1).all():
            return np.inf, np.zeros_like(B)
        value = self.gamma * float(np.sum(over - np.log1p(over)))
        return value, 2 * self.pairs.pulled(Z, self._slopes(over))

    def pull(self) -> Matrix:
        """Half of what similar pairs can pull, whose slopes are at most γ/u."""
        return self.pairs.scatter(np.where(self.alike, self.gamma / (2 * self.bounds), 0.0))

    def multipliers(self, B: Matrix) -> tuple[Matrix, Callable[[float], float]]:
        """The scatter of sλ, and γ Σ log(1 - θ s λ ξ⁰/γ)."""
        over = self._over(self.pairs.squared(B))
        slopes = self._slopes(over)
        shares = slopes * self.bounds / self.gamma
        return (
            self.pairs.scatter(slopes),
            lambda theta: self.gamma * float(np.sum(np.log1p(-theta * shares))),
        )

    def _over(self, squared: Vector) -> Vector:
        """ξ/ξ⁰ - 1 for the best slacks ξ."""
        over = squared / self.bounds - 1
        return np.where(self.alike, np.maximum(over, 0.0), np.minimum(over, 0.0))

    def _slopes(self, over: Vector) -> Vector:
        """Of the loss in d²."""
        return np.asarray(self.gamma / self.bounds * (over / (1 + over)))
