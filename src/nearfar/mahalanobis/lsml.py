"""Least squared-residual metric learning from quadruplets."""

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
from nearfar.summaries.pair_differences import PairDifferences, mask_distinct_pairs
from nearfar.summaries.supervision import Quadruplets


class LSML(_LogDetLearner):
    r"""Least squared-residual metric learning: a metric from comparisons, close to a prior metric.

    A quadruplet (a, b, c, d) states that a is closer to b than c is to d. With distances
    :math:`d_{ab} = \sqrt{(x_a - x_b)^T M (x_a - x_b)}` and weights w that sum to 1, LSML minimizes

    .. math::
        \sum_{abcd} w_{abcd} \, (d_{ab} - d_{cd})_+^2 + \mathrm{LogDet}(M, M_0), \qquad
        \mathrm{LogDet}(M, M_0) = \mathrm{tr}(M M_0^{-1}) - \log\det(M M_0^{-1}) - p .

    The problem is convex, because :math:`(\sqrt x - \sqrt y)_+^2` is the minimum of
    :math:`x + t - 2\sqrt{x t}` over t from 0 to y. This function is also homogeneous of degree one
    in (x, y), so its slopes s at any M give a proven bound, :math:`\log\det(I + \sum s v v^T)` in
    coordinates v in which the prior is the identity. L-BFGS minimizes over a factor of M in these
    coordinates.

    Use it if you only know which pairs are closer than which other pairs. People can judge this
    more easily than absolute distances. Contradictory comparisons are allowed and leave residuals.

    Cost: O(N p² + p³) per evaluation for N quadruplets, with tens of evaluations.

    Parameters
    ----------
    prior : {"isotropic", "identity", "covariance"} or array of shape (n_features, n_features)
        Prior metric: the identity divided by the mean variance of X ("isotropic"), the Euclidean
        distance ("identity"), the inverse covariance of X ("covariance"), or any positive
        semi-definite matrix. If the prior is singular, so is the learned metric.
    n_quadruplets : int or None, default=None
        Maximum number of quadruplets drawn from labels. None uses the default of
        ``Quadruplets.from_labels``.
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-6
        Stop when two successive iterations change the objective by less than this fraction and the
        duality gap is at most ``50 * tol``. If the gap stays larger, the solver continues with a
        tenth of the tolerance. This is repeated at most three times.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used to draw quadruplets from labels.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map L with M = LᵀL. It is square unless the prior is singular.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
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
    No metric satisfies a quadruplet in which c and d are equal points. Such quadruplets are left
    out with a warning. For the prior "isotropic", the mean variance is taken over the directions in
    which X varies; the prior "covariance" is the inverse on these directions.

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

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "quadruplets"))
    supervision_class = Quadruplets
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
        """Learn the map from comparisons or from labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points, including points that no comparison refers to.
        y : array-like of shape (n_samples,), optional
            Labels, from which quadruplets are drawn. Not used if ``supervision`` is given.
        supervision : Quadruplets, optional
            Comparisons of rows of X.
        weights : array-like of shape (n_quadruplets,), optional
            Weight of each quadruplet. Only the ratios of the weights matter. None means equal
            weights.

        Returns
        -------
        LSML
            The fitted estimator.
        """
        if weights is not None and supervision is None:
            raise ValueError(
                "LSML: weights were passed without quadruplets. Pass quadruplets as supervision, "
                "or omit weights."
            )
        self._weights = weights
        try:
            return super().fit(X, y, supervision=supervision)
        finally:
            del self._weights

    def _draw_supervision(self, y: Any) -> Quadruplets:
        return Quadruplets.from_labels(
            y, n_quadruplets=self.n_quadruplets, random_state=self.random_state
        )

    def _make_loss(self, points: Matrix, supervision: Quadruplets) -> _Residuals:
        quadruplets = supervision.indices
        if not len(quadruplets):
            raise ValueError("LSML needs quadruplets; supervision contains none.")
        weights = _check_weights(self._weights, len(quadruplets))
        differs = mask_distinct_pairs(points, quadruplets[:, 2:], ROUNDING)
        if not differs.all():
            warn(
                f"LSML: in {(~differs).sum()} of {len(differs)} quadruplets the last two points "
                "are equal. No metric satisfies these quadruplets, and they are left out."
            )
            quadruplets, weights = quadruplets[differs], weights[differs]
        is_counted = weights > 0
        if not mask_distinct_pairs(points, quadruplets[is_counted][:, :2], ROUNDING).any():
            raise ValueError(
                "LSML: in every quadruplet of supervision with a positive weight, one of the two "
                "pairs has zero length. Pass quadruplets of distinct points."
            )
        return _Residuals(points, quadruplets[is_counted], weights[is_counted] / weights.sum())


def _check_weights(weights: ArrayLike | None, n: int) -> Vector:
    if weights is None:
        return np.ones(n)
    try:
        checked = np.asarray(weights, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"LSML: weights must be numbers: {error}") from error
    if checked.shape != (n,):
        raise ValueError(
            f"LSML: weights must have shape {(n,)}, one per quadruplet; got {checked.shape}."
        )
    if not np.isfinite(checked).all() or (checked < 0).any() or not checked.any():
        raise ValueError("LSML: weights must be finite, non-negative and not all zero.")
    return checked


class _Residuals:
    """Loss of the comparisons: Σ w (d_ab - d_cd)₊²."""

    def __init__(self, points: Matrix, quadruplets: Any, weights: Vector) -> None:
        self.pairs = PairDifferences(points, np.vstack([quadruplets[:, :2], quadruplets[:, 2:]]))
        self.weights = weights

    def __call__(self, B: Matrix) -> tuple[float, Matrix]:
        Z = self.pairs.map_differences(B)
        value, slopes = self._compute_slopes(np.einsum("ij,ij->i", Z, Z))
        return value, 2 * self.pairs.compute_half_gradient(Z, slopes)

    def compute_pull(self) -> Matrix:
        """Return half of the scatter of the near pairs, with the largest slopes w as weights."""
        return self.pairs.scatter(np.append(self.weights / 2, np.zeros(len(self.weights))))

    def compute_multipliers(self, B: Matrix) -> tuple[Matrix, None]:
        """Return the pair scatter, weighted with the slopes. The second value is always None.

        The loss is homogeneous of degree one, so nothing is subtracted from the bound.
        """
        return self.pairs.scatter(
            self._compute_slopes(self.pairs.compute_squared_lengths(B))[1]
        ), None

    def _compute_slopes(self, squared: Vector) -> tuple[float, Vector]:
        """Return the loss and its derivatives with respect to the squared distances.

        The derivatives of the near pairs come first.
        """
        near, far = np.sqrt(squared).reshape(2, -1)
        excess = np.maximum(near - far, 0.0)
        tiny = np.finfo(float).tiny
        weighted = self.weights * excess
        slopes = np.append(weighted / np.maximum(near, tiny), -weighted / np.maximum(far, tiny))
        return float(np.sum(weighted * excess)), slopes
