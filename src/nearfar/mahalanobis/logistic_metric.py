"""A metric learned from pairs by logistic regression."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, optimize
from scipy.special import entr, expit

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base import LearnerTags, PairLearner, get_reporter
from nearfar.base.guided import PAIR_PARAMETERS, ScaledRows, scale_rows
from nearfar.blocks import limit_blas_for
from nearfar.notices import warn_not_converged
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.solvers.descent import Descent, descend, descend_with_proof, escape
from nearfar.solvers.eigen import descending_eigh, fix_signs, whitener
from nearfar.state import State, floats, number, optional
from nearfar.summaries.pair_differences import PairDifferences
from nearfar.summaries.supervision import Pairs

# Eigenvalues below this fraction of the largest eigenvalue are treated as zero.
_EMPTY = 1e-12
# This fraction of the mean variance is added to each variance before whitening. It is a compromise:
# full whitening suits the loss of the pairs, no whitening suits the penalty.
_MIXED_FRACTION = 0.1
# The search for a separating metric stops if more than this fraction of the pairs is misclassified.
_MAX_ERROR_RATE = 0.1
# With at most this many misclassified pairs, the search for a separating metric always continues.
_MAX_ERRORS = 20
# Maximum number of iterations of the search for a separating metric.
_MAX_SEARCH_ITERATIONS = 500
# Number of iterations between two checks whether the metric separates the pairs.
_SEARCH_STEP = 25


class LogisticMetric(PairLearner):
    r"""Logistic regression that predicts from a learned distance whether a pair is similar.

    The probability that two points are similar decreases with their distance,

    .. math:: P(\text{similar}) = \frac{1}{1 + \exp(d^2 - \mu)}, \qquad d^2 = (x-z)^T M (x-z),

    and the metric M and the threshold :math:`\mu` minimize, with s = 1 for similar pairs and −1 for
    dissimilar ones,

    .. math::
        \sum \log\left(1 + e^{s (d^2 - \mu)}\right) + \frac{\lambda}{2} u^4 \|M\|_F^2, \qquad
        M \succeq 0, \; \mu \ge 0,

    where u² is the mean squared Euclidean length of the pairs, so that units do not matter. The
    problem is convex. A full M is found by L-BFGS over a factor of M, in coordinates in which the
    pairs are nearly white. A factor that has lost rank is checked for a direction in which the
    objective still decreases in M.

    Use it if the pairs were labeled by people who disagree, or if you need the probability that two
    points are similar and not only a distance. The same pair may occur as similar and as
    dissimilar. With few pairs use ``structure="eigenspace"``: it learns one number per principal
    axis of all rows of X, including rows in no pair, so that unlabeled rows help too.

    Cost: O(N p²) per iteration for N pairs, O(N K) with K axes, and tens of iterations.

    Parameters
    ----------
    structure : {"full", "eigenspace"}, default="full"
        "full" learns any metric. "eigenspace" learns a metric that is diagonal in the leading
        principal axes :math:`v_k` of all rows: :math:`M = \sum_k \gamma_k v_k v_k^T` with γ ≥ 0.
    n_components : int or None, default=None
        Dimension of the output. None uses all axes or features. With ``structure="full"``, the
        leading directions of the square map are optimized again. This problem is not convex, and
        ``dual_bound_`` is that of the convex problem.
    l2 : float, default=1e-3
        Weight of the penalty: λ above. With 0, the problem has no optimum if some metric separates
        the similar from the dissimilar pairs without errors.
    center : bool, default=True
        Whether to subtract the mean. If False, the axes are those of the second moment about zero,
        as in the survey [1]_, and the mean dominates the first axis. Not used with
        ``structure="full"``.
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
        Seed of the random number generator. Used to draw pairs from labels.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map. It has one row per direction in which pairs differ, or one row per axis with
        ``structure="eigenspace"``.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    mu_ : float
        Squared distance at which a pair is equally likely to be similar or dissimilar.
    gamma_ : ndarray of shape (n_components,)
        Weights of the axes. Only set with ``structure="eigenspace"``.
    objective_ : float
        Value of the objective at the solution.
    dual_bound_ : float
        Lower bound on the objective that holds for every metric with this ``structure``. It is 0 if
        no better bound is known, for example without a penalty.
    duality_gap_ : float
        ``1 - dual_bound_ / objective_``. A value of 0 proves that the solution is optimal.
    separable_ : bool
        Whether the likelihood without the penalty has no maximum. If True, only the penalty
        determines the scale of the metric. See Notes.
    n_iter_ : int
        Number of iterations.
    history_ : dict of lists
        Lists with one entry per iteration: "objective", "step" and "seconds".

    Notes
    -----
    Dissimilar pairs of zero length are left out with a warning.

    The likelihood has no maximum if some metric separates all similar from all dissimilar pairs, or
    if dissimilar pairs differ in directions in which similar pairs do not. A separating
    metric is searched for only if at most 10% of the pairs, or at most 20, are misclassified. For a
    full metric this search ends after 500 iterations, so it can miss one.

    See Also
    --------
    MMC, POLA, PCA

    References
    ----------
    .. [1] L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 2.3.
       It prints the exponent with the opposite sign, which makes distant points more similar, and
       M instead of the axes in the features of a pair.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LogisticMetric, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LogisticMetric().fit(X, y)
    >>> probability = metric.predict_pair_proba([[X[0], X[1]], [X[0], X[60]]])
    >>> bool(probability[0] > 0.9), bool(probability[1] < 0.1)
    (True, True)
    """

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "pairs"))
    settings = ({"structure": "eigenspace"},)
    state = State({"mu_": optional(number(0)), "gamma_": optional(floats("q"))})
    parameters: ClassVar = {
        "structure": [one_of("full", "eigenspace")],
        "n_components": [none, integer(1)],
        "l2": [real(0)],
        "center": [boolean],
        **PAIR_PARAMETERS,
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        structure: Literal["full", "eigenspace"] = "full",
        *,
        n_components: int | None = None,
        l2: float = 1e-3,
        center: bool = True,
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.structure = structure
        self.n_components = n_components
        self.l2 = l2
        self.center = center
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def predict_pair_proba(self, pairs: ArrayLike) -> Vector:
        """Return the probability that the two points of each pair are similar.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return np.asarray(expit(self.mu_ - self.pair_distance(pairs) ** 2))

    def _learn(self, rows: Floats, supervision: Pairs) -> None:
        p = rows.shape[1]
        if self.n_components is not None and self.n_components > p:
            raise ValueError(
                f"n_components={self.n_components} is more than the {p} features of X."
            )
        frame = scale_rows(rows)
        similar, dissimilar = self._select_usable_pairs(frame.points, supervision)
        pairs = PairDifferences(frame.points, np.vstack([similar, dissimilar]))
        sign = np.repeat([1.0, -1.0], [len(similar), len(dissimilar)])
        # Divide the points by u, which removes u from the penalty.
        scatter = pairs.scatter() / pairs.n_pairs
        u = float(np.sqrt(np.trace(scatter)))
        frame = ScaledRows(frame.points / u, frame.mean, frame.unit * u)
        pairs = PairDifferences(frame.points, pairs.pairs)
        problem: _Full | _Axes
        if self.structure == "full":
            problem = _Full(pairs, sign, self.l2, scatter / u**2)
        else:
            problem = _Axes(pairs, sign, self.l2, self._find_axes(frame))
        descent = Descent(problem.make_start())
        try:
            self._descend(problem, descent)
            self.dual_bound_ = problem.compute_bound(descent.point)
            self.separable_ = problem.is_separable(descent.point)
            n_rows = p if self.n_components is None else self.n_components
            if isinstance(problem, _Full) and n_rows < problem.size:
                descent.point = problem.reduce_rows(descent.point, n_rows)
                self._descend(problem, descent)
        finally:
            # The estimator keeps the best metric found so far, also after Ctrl-C.
            L = problem.compute_components(descent.point)
            # Rows beyond the number of directions in which pairs differ are zero.
            missing = 0 if self.n_components is None else max(0, self.n_components - len(L))
            self._keep(np.vstack([L, np.zeros((missing, p))]), frame, rows.dtype)
            self.mu_ = float(descent.point[-1])
            if isinstance(problem, _Axes):
                self.gamma_ = problem.compute_gamma(descent.point) / frame.unit**2
            self.history_, self.n_iter_ = descent.history, descent.n_iter
        self.objective_ = problem.evaluate(descent.point)[0]
        self.duality_gap_ = 1 - self.dual_bound_ / self.objective_
        if not descent.converged:
            warn_not_converged(type(self).__name__, self.max_iter)

    def _descend(self, problem: Any, descent: Descent) -> None:
        with limit_blas_for(4.0 * problem.pairs.n_pairs * len(descent.point)):
            descend_with_proof(
                problem.evaluate,
                descent,
                lambda point: problem.prove(point, 10 * self.tol),
                max_iter=self.max_iter,
                tol=self.tol,
                bounds=optimize.Bounds(problem.get_lower_bounds()),
                report=get_reporter(self),
            )

    def _find_axes(self, frame: ScaledRows) -> Matrix:
        """Return the leading principal axes of all rows, of shape (p, K)."""
        points = frame.points if self.center else frame.points + frame.mean / frame.unit
        return descending_eigh(points.T @ points, self.n_components)[1]


class PairLosses(NamedTuple):
    """Loss summed over all pairs, its slopes, and the error probability of each pair.

    The slopes are the derivatives of the loss with respect to the squared distances.
    """

    loss: float
    slopes: Vector
    error_probabilities: Vector


class _Likelihood:
    """Base class for both values of ``structure``. Computes the likelihood from distances and μ."""

    def __init__(self, pairs: PairDifferences, sign: Vector, l2: float) -> None:
        self.pairs, self.sign, self.l2 = pairs, sign, l2

    def judge_pairs(self, squared: Vector, mu: float) -> PairLosses:
        z = self.sign * (squared - mu)
        error_probabilities = expit(z)
        return PairLosses(
            float(np.logaddexp(0.0, z).sum()), self.sign * error_probabilities, error_probabilities
        )

    def compute_multipliers(self, squared: Vector, mu: float) -> tuple[float, Vector]:
        """Return the total entropy of the error probabilities p, and s·p for each pair with sign s.

        Any p in [0, 1] with Σ s p ≤ 0 gives the bound Σ H(p) + min over M of ⟨Σ s p dd', M⟩ plus
        the penalty. The bound does not depend on μ.
        """
        p = self.judge_pairs(squared, mu).error_probabilities
        similar_sum, dissimilar_sum = p[self.sign > 0].sum(), p[self.sign < 0].sum()
        if similar_sum > dissimilar_sum:
            p = np.where(self.sign > 0, p * (dissimilar_sum / similar_sum), p)
        return float((entr(p) + entr(1 - p)).sum()), self.sign * p

    def _bound_objective(self, entropy: float, excess: float) -> float:
        """Return the lower bound on the objective.

        ``excess`` is the squared norm of the negative part of the scatter.
        """
        if excess == 0:
            return max(0.0, entropy)
        return max(0.0, entropy - excess / (2 * self.l2)) if self.l2 > 0 else 0.0

    def separates(self, point: Vector) -> bool:
        """Return True if all similar pairs are closer than all dissimilar pairs."""
        squared = self.compute_squared(point)
        return bool(squared[self.sign > 0].max() < squared[self.sign < 0].min())

    def is_hopeless(self, point: Vector) -> bool:
        """Return True if too many pairs are misclassified to search for a separating metric."""
        n_errors = np.count_nonzero(self.sign * (self.compute_squared(point) - point[-1]) > 0)
        return bool(n_errors > max(_MAX_ERROR_RATE * len(self.sign), _MAX_ERRORS))

    def compute_squared(self, point: Vector) -> Vector:
        """Return the squared distances."""
        raise NotImplementedError


class _Full(_Likelihood):
    """Problem for ``structure="full"``: the unknowns are a factor of M in white coordinates, and μ.

    They are stacked in one vector.
    """

    def __init__(self, pairs: PairDifferences, sign: Vector, l2: float, scatter: Matrix) -> None:
        super().__init__(pairs, sign, l2)
        values, axes = descending_eigh(scatter)
        is_nonzero = values > _EMPTY * values[0]
        values, axes = (
            values[is_nonzero] + _MIXED_FRACTION * values[is_nonzero].mean(),
            axes[:, is_nonzero],
        )
        white, self.unwhite = axes / np.sqrt(values), axes * np.sqrt(values)
        self.white = white
        self.inner = PairDifferences(pairs.points @ white, pairs.pairs)
        self.size = self.n_rows = white.shape[1]
        # The penalty needs the norm of M in the original features.
        self.metric = white.T @ white

    def make_start(self) -> Vector:
        """Return a starting point with a mean squared distance of 1 and μ = 1."""
        return np.append(np.eye(self.size) / np.sqrt(self.size), 1.0)

    def get_lower_bounds(self) -> Vector:
        return np.append(np.full(self.n_rows * self.size, -np.inf), 0.0)

    def reshape_factor(self, point: Vector) -> Matrix:
        return point[:-1].reshape(self.n_rows, self.size)

    def reduce_rows(self, point: Vector, n_rows: int) -> Vector:
        """Return a starting point for ``n_rows`` rows: the leading directions of M."""
        _, lengths, axes = linalg.svd(self.compute_components(point), full_matrices=False)
        self.n_rows = n_rows
        return np.append((lengths[:, None] * axes)[:n_rows] @ self.unwhite, point[-1])

    def compute_squared(self, point: Vector) -> Vector:
        return self.inner.compute_squared_lengths(self.reshape_factor(point))

    def compute_components(self, point: Vector) -> Matrix:
        return self.reshape_factor(point) @ self.white.T

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        L = self.reshape_factor(point)
        Z = self.inner.map_differences(L)
        loss, slopes, _ = self.judge_pairs(np.einsum("ij,ij->i", Z, Z), point[-1])
        LK = L @ self.metric
        B = LK @ L.T
        gradient = 2 * (self.inner.compute_half_gradient(Z, slopes) + self.l2 * B @ LK)
        return loss + self.l2 / 2 * float(np.vdot(B, B)), np.append(gradient, -slopes.sum())

    def compute_bound(self, point: Vector) -> float:
        entropy, weights = self.compute_multipliers(self.compute_squared(point), point[-1])
        Q = self.unwhite @ self.inner.scatter(weights) @ self.unwhite.T
        values = linalg.eigvalsh((Q + Q.T) / 2)
        # Ignore negative eigenvalues that are rounding errors.
        below = np.where(values < -1e-13 * np.abs(values).max(), values, 0.0)
        return self._bound_objective(entropy, float((below**2).sum()))

    def prove(self, point: Vector, min_gain: float) -> tuple[float, Vector | None]:
        """Return the duality gap, and a better point or None.

        There is a better point if a factor of M with a higher rank lowers the objective.
        """
        L, mu = self.reshape_factor(point), point[-1]
        value = self.evaluate(point)[0]
        slopes = self.judge_pairs(self.compute_squared(point), mu).slopes
        if len(L) < self.size:  # If L has fewer rows than columns, the problem is not convex.
            return 0.0, None
        K = self.metric
        slope = self.inner.scatter(slopes) + self.l2 * K @ L.T @ L @ K
        better = escape(
            lambda L: self.evaluate(np.append(L, mu))[0],
            L,
            (slope + slope.T) / 2,
            min_decrease=min_gain,
        )
        return 1 - self.compute_bound(point) / value, None if better is None else np.append(
            better, mu
        )

    def is_separable(self, point: Vector) -> bool:
        """Return True if the likelihood without the penalty is found to have no maximum.

        If all pairs can be separated, the loss without the penalty decreases towards zero by a
        fraction of itself at each step. Otherwise it converges to a positive value.
        """
        similar_scatter = self.inner.scatter((self.sign > 0).astype(np.float64))
        if whitener(similar_scatter, _EMPTY).shape[1] < self.size:
            return True
        l2, self.l2 = self.l2, 0.0
        descent, bounds = Descent(point), optimize.Bounds(self.get_lower_bounds())
        try:
            while not self.separates(descent.point):
                ended = descent.converged or descent.n_iter >= _MAX_SEARCH_ITERATIONS
                if ended or self.is_hopeless(descent.point):
                    return False
                limit = descent.n_iter + _SEARCH_STEP
                descend(self.evaluate, descent, max_iter=limit, tol=1e-5, bounds=bounds)
        finally:
            self.l2 = l2
        return True


class _Axes(_Likelihood):
    """Problem for ``structure="eigenspace"``: the unknowns are weights of the axes, and μ.

    The weights are scaled by the mean squared lengths of the pairs along the axes.
    """

    def __init__(self, pairs: PairDifferences, sign: Vector, l2: float, axes: Matrix) -> None:
        super().__init__(pairs, sign, l2)
        self.axes = fix_signs(axes.T).T
        W = pairs.map_differences(self.axes.T) ** 2
        means = W.mean(axis=0)
        varies = means > _EMPTY * means.max()
        self.units = np.where(varies, 1 / (means + _MIXED_FRACTION * means.mean()), 0.0)
        self.W = W * self.units

    def make_start(self) -> Vector:
        """Return a starting point with a mean squared distance of 1 and μ = 1."""
        return np.append((self.units > 0) / self.W.mean(axis=0).sum(), 1.0)

    def get_lower_bounds(self) -> Vector:
        return np.zeros(len(self.units) + 1)

    def compute_gamma(self, point: Vector) -> Vector:
        return point[:-1] * self.units

    def compute_squared(self, point: Vector) -> Vector:
        return np.asarray(self.W @ point[:-1])

    def compute_components(self, point: Vector) -> Matrix:
        return np.sqrt(self.compute_gamma(point))[:, None] * self.axes.T

    def evaluate(self, point: Vector) -> tuple[float, Vector]:
        gamma = self.compute_gamma(point)
        loss, slopes, _ = self.judge_pairs(self.compute_squared(point), point[-1])
        gradient = self.W.T @ slopes + self.l2 * gamma * self.units
        return loss + self.l2 / 2 * float(gamma @ gamma), np.append(gradient, -slopes.sum())

    def compute_bound(self, point: Vector) -> float:
        entropy, weights = self.compute_multipliers(self.compute_squared(point), point[-1])
        varies = self.units > 0
        Q = (self.W.T @ weights)[varies] / self.units[varies]
        return self._bound_objective(entropy, float((np.minimum(Q, 0.0) ** 2).sum()))

    def prove(self, point: Vector, min_gain: float) -> tuple[float, None]:
        """Return the duality gap. The second value is None, because the problem is convex."""
        return 1 - self.compute_bound(point) / self.evaluate(point)[0], None

    def is_separable(self, point: Vector) -> bool:
        """Return True if the likelihood without the penalty has no maximum.

        This is a linear program: the likelihood increases without limit if some change of the
        weights makes no pair worse and some pairs better.
        """
        if self.is_hopeless(point):
            return False
        costs = self.sign[:, None] * np.column_stack([self.W, -np.ones(len(self.W))])
        result = optimize.linprog(
            costs.sum(axis=0), A_ub=costs, b_ub=np.zeros(len(costs)), bounds=(0, 1)
        )
        return bool(result.status == 0 and result.fun < -1e-9 * len(costs))
