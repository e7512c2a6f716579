"""A metric from pairs by the likelihood of what was judged."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, optimize
from scipy.special import entr, expit

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base import LearnerTags, PairLearner, report_of
from nearfar.base.guided import PAIR_PARAMETERS, Scaled, scaled
from nearfar.blocks import blas_for
from nearfar.notices import warn_of_limit
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.solvers.descent import Descent, descend, descend_with_proof, escape
from nearfar.solvers.eigen import descending_eigh, fix_signs, whitener
from nearfar.state import State, floats, number, optional
from nearfar.summaries.pair_differences import PairDifferences
from nearfar.summaries.supervision import Pairs

# Relative eigenvalue below which a direction is empty.
_EMPTY = 1e-12
# Coordinates are white but for this share of the mean variance: between those that suit the pairs
# and those that suit the penalty.
_PLAIN = 0.1
# Pairs of which more than this share, and more than a few, are misjudged are not told apart by
# another metric; where it is less, so many iterations look for one, in steps.
_MISJUDGED, _FEW = 0.1, 20
_LOOKS, _LOOK = 500, 25


class LogisticMetric(PairLearner):
    r"""Logistic regression of alike or different on the squared distance.

    The probability that two points are alike falls with their distance,

    .. math:: P(\text{alike}) = \frac{1}{1 + \exp(d^2 - \mu)}, \qquad d^2 = (x-z)^T M (x-z),

    and the metric and the threshold :math:`\mu` minimise, with s = 1 for similar pairs and −1 for
    dissimilar ones,

    .. math::
        \sum \log\left(1 + e^{s (d^2 - \mu)}\right) + \frac{\lambda}{2} u^4 \|M\|_F^2, \qquad
        M \succeq 0, \; \mu \ge 0,

    where u² is the mean squared Euclidean length of the pairs, so that units do not matter. It is
    convex. The full M is sought over its factor by L-BFGS, in coordinates in which pairs are white;
    a factor that has lost rank is checked for a direction in which M still descends.

    Use it when pairs are judged by people who disagree, or when you want the probability that two
    points are alike, not only a distance. A pair may be said both ways. With few pairs
    ``structure="eigenspace"`` has one number for each principal axis of all rows, those in no pair
    too: unlabelled data say where the axes are.

    Dissimilar pairs of zero length are left out, with a warning.

    Cost: O(N p²) an iteration for N pairs, O(N K) with K axes; some tens of iterations.

    Parameters
    ----------
    structure : {"full", "eigenspace"}, default="full"
        "eigenspace" learns :math:`M = \sum_k \gamma_k v_k v_k^T`, γ ≥ 0, over the leading principal
        axes of all rows: every metric that is diagonal in them.
    n_components : int or None, default=None
        Dimension of the output: the axes; None is all. With "full", the rows of the map: the
        leading directions of the square one, improved. That is no convex problem; the bound is that
        of the convex one.
    l2 : float, default=1e-3
        The weight λ of the penalty. Pairs that a metric can tell apart without a mistake have no
        best metric without one: the longer, the likelier.
    center : bool, default=True
        Whether the axes are those of the rows about their mean; False takes the second moment about
        zero, as the survey does, which puts the mean itself first. Of no effect on "full".
    n_similar : int or None, default=None
        Similar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``.
    n_dissimilar : int or None, default=None
        Dissimilar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``.
    max_iter : int, default=1000
        Steps at most: over all rounds.
    tol : float, default=1e-6
        Stops when an iteration changes the objective by less than this share, twice, and the gap
        is at most 50 times it, or finer steps do not close it.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: pairs from labels; the default gives the same every time.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map: one row for each direction in which pairs differ, or for each axis.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    mu_ : float
        Squared distance at which alike and different are as likely.
    gamma_ : ndarray of shape (n_components,)
        Weights of the axes, with ``structure="eigenspace"``.
    objective_ : float
        What was minimised, at the solution.
    dual_bound_ : float
        No metric (of the structure) has a lower objective than this. 0, which is always true, where
        nothing better is known, as without a penalty.
    duality_gap_ : float
        ``1 - dual_bound_ / objective_``; 0 is proof of the optimum.
    separable_ : bool
        Whether the likelihood alone has no maximum, and it is the penalty that sets the scale: all
        pairs can be told apart, or similar ones leave directions empty in which dissimilar ones
        differ. Looked for where few pairs are misjudged, a tenth at most; of a full metric, by a
        search that ends after 500 steps.
    n_iter_ : int
        Iterations.
    history_ : dict of lists
        "objective", "step" and "seconds" of each iteration.

    See Also
    --------
    MMC, POLA, PCA

    References
    ----------
    .. [1] L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 2.3.
       It prints the exponent with the other sign, by which distant points are the more alike, and
       M in the middle of the features of a pair, where the axes belong.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import LogisticMetric, Pairs
    >>> X, y = load_iris(return_X_y=True)
    >>> metric = LogisticMetric().fit(X, y)
    >>> alike = metric.predict_pair_proba([[X[0], X[1]], [X[0], X[60]]])
    >>> bool(alike[0] > 0.9), bool(alike[1] < 0.1)
    (True, True)
    """

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "pairs"))
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
        """The probability that the points of each pair are alike.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return np.asarray(expit(self.mu_ - self.pair_distance(pairs) ** 2))

    def _learn(self, rows: Floats, guide: Pairs) -> None:
        p = rows.shape[1]
        if self.n_components is not None and self.n_components > p:
            raise ValueError(
                f"n_components={self.n_components} is more than the {p} features of X."
            )
        frame = scaled(rows)
        similar, dissimilar = self._usable(frame.points, guide)
        pairs = PairDifferences(frame.points, np.vstack([similar, dissimilar]))
        sign = np.repeat([1.0, -1.0], [len(similar), len(dissimilar)])
        # In units of u the penalty is that of M alone.
        scatter = pairs.scatter() / pairs.n_pairs
        u = float(np.sqrt(np.trace(scatter)))
        frame = Scaled(frame.points / u, frame.mean, frame.unit * u)
        pairs = PairDifferences(frame.points, pairs.pairs)
        problem: _Full | _Axes
        if self.structure == "full":
            problem = _Full(pairs, sign, self.l2, scatter / u**2)
        else:
            problem = _Axes(pairs, sign, self.l2, self._axes(frame))
        found = Descent(problem.start())
        try:
            self._descend(problem, found)
            self.dual_bound_ = problem.bound(found.point)
            self.separable_ = problem.can_be_parted(found.point)
            wanted = p if self.n_components is None else self.n_components
            if isinstance(problem, _Full) and wanted < problem.size:
                found.point = problem.cut(found.point, wanted)
                self._descend(problem, found)
        finally:
            # Also after Ctrl-C: what was reached so far is left on the learner.
            L = problem.components(found.point)
            # Rows beyond the directions in which pairs differ are zero.
            missing = 0 if self.n_components is None else max(0, self.n_components - len(L))
            self._keep(np.vstack([L, np.zeros((missing, p))]), frame, rows.dtype)
            self.mu_ = float(found.point[-1])
            if isinstance(problem, _Axes):
                self.gamma_ = problem.gamma(found.point) / frame.unit**2
            self.history_, self.n_iter_ = found.history, found.n_iter
        self.objective_ = problem.objective(found.point)[0]
        self.duality_gap_ = 1 - self.dual_bound_ / self.objective_
        if not found.converged:
            warn_of_limit(type(self).__name__, self.max_iter)

    def _descend(self, problem: Any, found: Descent) -> None:
        with blas_for(4.0 * problem.pairs.n_pairs * len(found.point)):
            descend_with_proof(
                problem.objective,
                found,
                lambda point: problem.prove(point, 10 * self.tol),
                max_iter=self.max_iter,
                tol=self.tol,
                bounds=optimize.Bounds(problem.least()),
                report=report_of(self),
            )

    def _axes(self, frame: Scaled) -> Matrix:
        """Leading axes of all rows, (p, K)."""
        points = frame.points if self.center else frame.points + frame.mean / frame.unit
        return descending_eigh(points.T @ points, self.n_components)[1]


class Judged(NamedTuple):
    """The loss over pairs: its value, and what each squared distance adds to it."""

    loss: float
    slopes: Vector
    likely: Vector


class _Likelihood:
    """What both structures share: the likelihood as a function of squared distances and μ."""

    def __init__(self, pairs: PairDifferences, sign: Vector, l2: float) -> None:
        self.pairs, self.sign, self.l2 = pairs, sign, l2

    def judged(self, squared: Vector, mu: float) -> Judged:
        z = self.sign * (squared - mu)
        likely = expit(z)
        return Judged(float(np.logaddexp(0.0, z).sum()), self.sign * likely, likely)

    def multipliers(self, squared: Vector, mu: float) -> tuple[float, Vector]:
        """A point of the dual: its entropy, and the weight s·p of each pair.

        Any p in [0, 1] with Σ s p ≤ 0 gives the bound Σ H(p) + min over M of ⟨Σ s p dd', M⟩ and the
        penalty; μ has no part in it.
        """
        p = self.judged(squared, mu).likely
        alike, unlike = p[self.sign > 0].sum(), p[self.sign < 0].sum()
        if alike > unlike:
            p = np.where(self.sign > 0, p * (unlike / alike), p)
        return float((entr(p) + entr(1 - p)).sum()), self.sign * p

    def _bounded(self, entropy: float, excess: float) -> float:
        """The bound, from the squared norm of what the penalty has to hold."""
        if excess == 0:
            return max(0.0, entropy)
        return max(0.0, entropy - excess / (2 * self.l2)) if self.l2 > 0 else 0.0

    def parts(self, point: Vector) -> bool:
        """Whether all similar pairs are nearer than all dissimilar ones."""
        squared = self.squared(point)
        return bool(squared[self.sign > 0].max() < squared[self.sign < 0].min())

    def is_hopeless(self, point: Vector) -> bool:
        """Whether so many pairs are on the wrong side of μ that none will tell all apart."""
        wrong = np.count_nonzero(self.sign * (self.squared(point) - point[-1]) > 0)
        return wrong > max(_MISJUDGED * len(self.sign), _FEW)

    def squared(self, point: Vector) -> Vector:
        """Squared distances."""
        raise NotImplementedError


class _Full(_Likelihood):
    """Over the factor of M in white coordinates, and μ, in one vector."""

    def __init__(self, pairs: PairDifferences, sign: Vector, l2: float, scatter: Matrix) -> None:
        super().__init__(pairs, sign, l2)
        values, axes = descending_eigh(scatter)
        kept = values > _EMPTY * values[0]
        values, axes = values[kept] + _PLAIN * values[kept].mean(), axes[:, kept]
        white, self.unwhite = axes / np.sqrt(values), axes * np.sqrt(values)
        self.white = white
        self.inner = PairDifferences(pairs.points @ white, pairs.pairs)
        self.size = self.n_rows = white.shape[1]
        # |M| is that of its factor in the features as they are.
        self.metric = white.T @ white

    def start(self) -> Vector:
        """A mean squared distance of 1, and μ there."""
        return np.append(np.eye(self.size) / np.sqrt(self.size), 1.0)

    def least(self) -> Vector:
        return np.append(np.full(self.n_rows * self.size, -np.inf), 0.0)

    def factor(self, point: Vector) -> Matrix:
        return point[:-1].reshape(self.n_rows, self.size)

    def cut(self, point: Vector, n_rows: int) -> Vector:
        """From here on with so many rows, which begin as the leading directions of M."""
        _, lengths, axes = linalg.svd(self.components(point), full_matrices=False)
        self.n_rows = n_rows
        return np.append((lengths[:, None] * axes)[:n_rows] @ self.unwhite, point[-1])

    def squared(self, point: Vector) -> Vector:
        return self.inner.squared(self.factor(point))

    def components(self, point: Vector) -> Matrix:
        return self.factor(point) @ self.white.T

    def objective(self, point: Vector) -> tuple[float, Vector]:
        L = self.factor(point)
        Z = self.inner.mapped(L)
        loss, slopes, _ = self.judged(np.einsum("ij,ij->i", Z, Z), point[-1])
        LK = L @ self.metric
        B = LK @ L.T
        gradient = 2 * (self.inner.pulled(Z, slopes) + self.l2 * B @ LK)
        return loss + self.l2 / 2 * float(np.vdot(B, B)), np.append(gradient, -slopes.sum())

    def bound(self, point: Vector) -> float:
        entropy, weights = self.multipliers(self.squared(point), point[-1])
        Q = self.unwhite @ self.inner.scatter(weights) @ self.unwhite.T
        values = linalg.eigvalsh((Q + Q.T) / 2)
        # Rounding does not make a matrix indefinite.
        below = np.where(values < -1e-13 * np.abs(values).max(), values, 0.0)
        return self._bounded(entropy, float((below**2).sum()))

    def prove(self, point: Vector, least: float) -> tuple[float, Vector | None]:
        """The gap, and a better point where the factor is in a trap."""
        L, mu = self.factor(point), point[-1]
        value = self.objective(point)[0]
        slopes = self.judged(self.squared(point), mu).slopes
        if len(L) < self.size:  # no convex problem any more
            return 0.0, None
        K = self.metric
        slope = self.inner.scatter(slopes) + self.l2 * K @ L.T @ L @ K
        better = escape(
            lambda L: self.objective(np.append(L, mu))[0], L, (slope + slope.T) / 2, least=least
        )
        return 1 - self.bound(point) / value, None if better is None else np.append(better, mu)

    def can_be_parted(self, point: Vector) -> bool:
        """Whether the likelihood alone has no maximum, as far as can be found.

        Without the penalty the loss falls towards zero by a share of itself at each step where all
        pairs can be told apart; where not it settles.
        """
        alike = self.inner.scatter((self.sign > 0).astype(np.float64))
        if whitener(alike, _EMPTY).shape[1] < self.size:
            return True
        held, self.l2 = self.l2, 0.0
        found, bounds = Descent(point), optimize.Bounds(self.least())
        try:
            while not self.parts(found.point):
                ended = found.converged or found.n_iter >= _LOOKS
                if ended or self.is_hopeless(found.point):
                    return False
                limit = found.n_iter + _LOOK
                descend(self.objective, found, max_iter=limit, tol=1e-5, bounds=bounds)
        finally:
            self.l2 = held
        return True


class _Axes(_Likelihood):
    """Over the weights of axes, in units of about what each adds to squared lengths, and μ."""

    def __init__(self, pairs: PairDifferences, sign: Vector, l2: float, axes: Matrix) -> None:
        super().__init__(pairs, sign, l2)
        self.axes = fix_signs(axes.T).T
        W = pairs.mapped(self.axes.T) ** 2
        means = W.mean(axis=0)
        used = means > _EMPTY * means.max()
        self.units = np.where(used, 1 / (means + _PLAIN * means.mean()), 0.0)
        self.W = W * self.units

    def start(self) -> Vector:
        """A mean squared distance of 1, and μ there."""
        return np.append((self.units > 0) / self.W.mean(axis=0).sum(), 1.0)

    def least(self) -> Vector:
        return np.zeros(len(self.units) + 1)

    def gamma(self, point: Vector) -> Vector:
        return point[:-1] * self.units

    def squared(self, point: Vector) -> Vector:
        return np.asarray(self.W @ point[:-1])

    def components(self, point: Vector) -> Matrix:
        return np.sqrt(self.gamma(point))[:, None] * self.axes.T

    def objective(self, point: Vector) -> tuple[float, Vector]:
        gamma = self.gamma(point)
        loss, slopes, _ = self.judged(self.squared(point), point[-1])
        gradient = self.W.T @ slopes + self.l2 * gamma * self.units
        return loss + self.l2 / 2 * float(gamma @ gamma), np.append(gradient, -slopes.sum())

    def bound(self, point: Vector) -> float:
        entropy, weights = self.multipliers(self.squared(point), point[-1])
        used = self.units > 0
        Q = (self.W.T @ weights)[used] / self.units[used]
        return self._bounded(entropy, float((np.minimum(Q, 0.0) ** 2).sum()))

    def prove(self, point: Vector, least: float) -> tuple[float, None]:
        """The gap; in the weights themselves there are no traps."""
        return 1 - self.bound(point) / self.objective(point)[0], None

    def can_be_parted(self, point: Vector) -> bool:
        """Whether the likelihood alone has no maximum.

        That is a linear program: from any point it rises for ever along weights that make no pair
        worse and some better.
        """
        if self.is_hopeless(point):
            return False
        worse = self.sign[:, None] * np.column_stack([self.W, -np.ones(len(self.W))])
        found = optimize.linprog(
            worse.sum(axis=0), A_ub=worse, b_ub=np.zeros(len(worse)), bounds=(0, 1)
        )
        return bool(found.status == 0 and found.fun < -1e-9 * len(worse))
