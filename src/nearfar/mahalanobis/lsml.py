"""Least squared-residual metric learning."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.mahalanobis.log_det_learner import ROUNDING, _LogDetLearner
from nearfar.mahalanobis.priors import PRIORS
from nearfar.notices import warn
from nearfar.parameters import integer, none, random_state, real
from nearfar.summaries.pair_differences import PairDifferences, differ
from nearfar.summaries.supervision import Quadruplets


class LSML(_LogDetLearner):
    r"""Least squared residuals: from comparisons of pairs to a metric close to a prior.

    A quadruplet (a, b, c, d) says that a is nearer to b than c to d. With distances
    :math:`d_{ab} = \sqrt{(x_a - x_b)^T M (x_a - x_b)}` and weights w that sum to 1, it minimises

    .. math::
        \sum_{abcd} w_{abcd} \, (d_{ab} - d_{cd})_+^2 + \mathrm{LogDet}(M, M_0), \qquad
        \mathrm{LogDet}(M, M_0) = \mathrm{tr}(M M_0^{-1}) - \log\det(M M_0^{-1}) - p .

    This is convex: :math:`(\sqrt x - \sqrt y)_+^2` is the least of
    :math:`x + t - 2\sqrt{x t}` over t from 0 to y. It is of first degree in (x, y) too, so that its
    slopes at any M give a proven bound, :math:`\log\det(I + \sum s v v^T)` in coordinates v in
    which the prior is the identity. Solved by L-BFGS over a factor of M in such coordinates.

    Use it when all that is known is which pairs are nearer than which, as people say more easily
    than how near. Comparisons that contradict each other leave residuals.

    Cost: O(N p² + p³) an evaluation for N quadruplets, some tens of them.

    Parameters
    ----------
    prior : {"isotropic", "identity", "covariance"} or array of shape (n_features, n_features)
        The metric to stay near: the identity over the mean variance of X (over the directions in
        which it varies), the Euclidean distance, the inverse covariance on the range of X, or any
        metric. Where a prior is singular the learned metric is singular too.
    n_quadruplets : int or None, default=None
        Quadruplets drawn from labels at most; None is the cap of ``Quadruplets.from_labels``.
    max_iter : int, default=1000
        Steps at most.
    tol : float, default=1e-6
        Stops when an iteration changes the objective by less than this share, twice, and the gap
        is at most 50 times it, or finer steps do not close it.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: quadruplets from labels.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map L with M = LᵀL; square unless the prior is singular.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
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
    Comparisons in which c and d are equal points, so that no metric obeys them, are left out with
    a warning.

    See Also
    --------
    ITML, SCML, LMNN

    References
    ----------
    .. [1] E. Y. Liu, Z. Guo, X. Zhang, V. Jojic, W. Wang, "Metric Learning from Relative
       Comparisons by Minimizing Squared Residual", ICDM 2012, section 3.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import LSML
    >>> lsml = LSML(prior="covariance").fit(*load_wine(return_X_y=True))
    >>> lsml.duality_gap_ < 1e-3
    True
    """

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "quadruplets"))
    guide = Quadruplets
    parameters: ClassVar = {
        "prior": PRIORS,
        "n_quadruplets": [none, integer(1)],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "random_state": [random_state],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        prior: str | ArrayLike = "isotropic",
        *,
        n_quadruplets: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.prior = prior
        self.n_quadruplets = n_quadruplets
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        supervision: Any = None,
        weights: ArrayLike | None = None,
    ) -> Self:
        """Learn the map from comparisons, or from labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points; those of which the supervision says nothing too.
        y : array-like of shape (n_samples,), optional
            Labels, from which quadruplets are drawn; not read when these are given.
        supervision : Quadruplets, optional
            Comparisons of rows of X.
        weights : array-like of shape (n_quadruplets,), optional
            How much each quadruplet counts; only their ratios matter. None counts all alike.

        Returns
        -------
        LSML
            Itself.
        """
        if weights is not None and supervision is None:
            raise ValueError("LSML: weights belong to quadruplets given as supervision.")
        self._weights = weights
        try:
            return super().fit(X, y, supervision=supervision)
        finally:
            del self._weights

    def _drawn(self, y: Any) -> Quadruplets:
        return Quadruplets.from_labels(
            y, n_quadruplets=self.n_quadruplets, random_state=self.random_state
        )

    def _loss(self, points: Matrix, guide: Quadruplets) -> _Residuals:
        quadruplets = guide.indices
        if not len(quadruplets):
            raise ValueError("LSML needs quadruplets: supervision has none at all.")
        weights = _checked(self._weights, len(quadruplets))
        far = differ(points, quadruplets[:, 2:], ROUNDING)
        if not far.all():
            warn(
                f"LSML: in {(~far).sum()} quadruplet(s) of {len(far)} the last two points are "
                "equal: no metric obeys them; they are left out."
            )
            quadruplets, weights = quadruplets[far], weights[far]
        counted = weights > 0
        if not differ(points, quadruplets[counted][:, :2], ROUNDING).any():
            raise ValueError(
                "LSML: in every quadruplet that counts in supervision one of the two pairs has "
                "zero length, which says nothing of a distance."
            )
        return _Residuals(points, quadruplets[counted], weights[counted] / weights.sum())


def _checked(weights: ArrayLike | None, n: int) -> Vector:
    if weights is None:
        return np.ones(n)
    try:
        given = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"LSML: weights must be numbers: {error}") from error
    if given.shape != (n,):
        raise ValueError(
            f"LSML: weights must have shape {(n,)}, one for each quadruplet; got {given.shape}."
        )
    if not np.isfinite(given).all() or (given < 0).any() or not given.any():
        raise ValueError("LSML: weights must be finite, not negative, and not all zero.")
    return given


class _Residuals:
    """Σ w (d_ab - d_cd)₊²."""

    def __init__(self, points: Matrix, quadruplets: Any, weights: Vector) -> None:
        self.pairs = PairDifferences(points, np.vstack([quadruplets[:, :2], quadruplets[:, 2:]]))
        self.weights = weights

    def __call__(self, B: Matrix) -> tuple[float, Matrix]:
        Z = self.pairs.mapped(B)
        value, slopes = self._slopes(np.einsum("ij,ij->i", Z, Z))
        return value, 2 * self.pairs.pulled(Z, slopes)

    def pull(self) -> Matrix:
        """Half of what near pairs can pull, whose slopes are at most w."""
        return self.pairs.scatter(np.append(self.weights / 2, np.zeros(len(self.weights))))

    def multipliers(self, B: Matrix) -> tuple[Matrix, None]:
        """The scatter of the slopes; a function of first degree takes nothing away."""
        return self.pairs.scatter(self._slopes(self.pairs.squared(B))[1]), None

    def _slopes(self, squared: Vector) -> tuple[float, Vector]:
        """The value, and its slopes in the squared distances, of near and then of far pairs."""
        near, far = np.sqrt(squared).reshape(2, -1)
        over = np.maximum(near - far, 0.0)
        tiny = np.finfo(float).tiny
        weighted = self.weights * over
        slopes = np.append(weighted / np.maximum(near, tiny), -weighted / np.maximum(far, tiny))
        return float(np.sum(weighted * over)), slopes
