"""Decision functions of support vector machines: values, gradients, and zeros."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.svm import SVC

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.state import Sizes, State, check_that, choice, floats, indices, integer_value, number

# Length of a step towards the decision boundary, relative to the step that would reach the boundary
# if f were linear. With a value above 1, steps tend to cross the boundary.
_OVERSHOOT = 1.5
# Maximum length of a step, relative to the square root of the number of features.
_MAX_STEP = 0.25
# Maximum number of steps towards the boundary.
_MAX_STEPS = 40
# A zero of f is accepted if the relative width of its bracket or the relative value of f is at most
# this number.
_MIN_WIDTH = 1e-13
# Maximum number of root-finding steps per bracket.
_MAX_ROOT_STEPS = 100
# Number of nearest candidates that are tried first in the search for a point where f has the other
# sign.
_N_FIRST_POINTS = 64


class Kernel(NamedTuple):
    """Name and parameters of a scikit-learn kernel."""

    name: str
    gamma: float
    degree: int
    coef0: float


class KernelMachine:
    r"""Support vector machine for two classes: :math:`f(x) = \sum_i \alpha_i y_i k(x_i, x) - b`.

    Parameters
    ----------
    kernel : Kernel
        The kernel k, with the name "rbf", "linear" or "poly".
    support : ndarray of shape (m,)
        Indices of the support vectors among the training rows.
    vectors : ndarray of shape (m, p)
        The support vectors.
    coefficients : ndarray of shape (m,)
        The coefficients :math:`\alpha_i y_i` of the support vectors.
    intercept : float
        The intercept :math:`-b` of the decision function.
    C : float
        Upper bound of :math:`\alpha_i`. Support vectors with a smaller :math:`\alpha_i` are
        unbounded.
    """

    state = State(
        {
            "kernel": choice("rbf", "linear", "poly"),
            "gamma": number(0, open_low=True),
            "degree": integer_value(low=1),
            "coef0": number(),
            "vectors": floats("m", "p"),
            "support": indices("m"),
            "coefficients": floats("m"),
            "intercept": number(),
            "C": number(0, open_low=True),
        }
    )

    def __init__(
        self,
        kernel: Kernel,
        support: Indices,
        vectors: Matrix,
        coefficients: Vector,
        intercept: float,
        C: float,
    ) -> None:
        self.kernel, self.gamma = kernel.name, kernel.gamma
        self.degree, self.coef0 = kernel.degree, kernel.coef0
        self.support, self.vectors = support, vectors
        self.coefficients, self.intercept, self.C = coefficients, intercept, C

    def _check_state(self, sizes: Sizes) -> None:
        check_that(sizes["m"] > 0, "vectors must not be empty.")
        finite = np.isfinite(self.vectors).all() and np.isfinite(self.coefficients).all()
        check_that(finite, "vectors and coefficients must be finite.")

    @classmethod
    def fit(cls, rows: Matrix, positive: Mask, C: float, kernel: Kernel) -> KernelMachine:
        """Train a machine on rows of two classes. ``positive`` is True for the positive class."""
        svc = SVC(
            C=C,
            kernel=kernel.name,
            gamma=kernel.gamma,
            degree=kernel.degree,
            coef0=kernel.coef0,
            random_state=0,
        ).fit(rows, positive)
        support = svc.support_.astype(np.intp)
        return cls(kernel, support, rows[support], svc.dual_coef_[0], float(svc.intercept_[0]), C)

    @property
    def unbounded(self) -> Indices:
        """Indices of the unbounded support vectors, or of all vectors if none is unbounded."""
        free = np.flatnonzero(np.abs(self.coefficients) < self.C * (1 - 1e-8))
        return free if free.size else np.arange(len(self.vectors))

    def decision_function(self, X: Matrix) -> Vector:
        """Return the values of f at the points X."""
        return _Function(self).values(X)

    def gradients(self, X: Matrix) -> tuple[Vector, Matrix]:
        """Return the values and gradients of f at the points X."""
        return _Function(self).gradients(X)

    def find_boundary(self, X: Matrix, candidates: Matrix) -> tuple[Matrix, Mask]:
        """Return a zero of f near each row of X, and a mask of the rows for which a zero was found.

        From each point, steps down the gradient of abs(f) are taken until f changes its sign. The
        steps are 1.5 times as long as for a linear f, so that they cross the boundary. The zero is
        then located on the last step. If the sign does not change, the zero is located between the
        point and the nearest of the ``candidates`` at which f has the other sign. Rows for which no
        zero is found are returned unchanged.
        """
        f = _Function(self)
        (starts, ends), (f_starts, f_ends), crossed = _walk_downhill(f, X)
        missing = np.flatnonzero(~crossed)
        if missing.size:
            values = f.values(X[missing])
            nearest, f_nearest = _find_nearest_opposite(f, X[missing], values, candidates)
            has_opposite = nearest >= 0
            crossed[missing] = has_opposite
            missing, nearest = missing[has_opposite], nearest[has_opposite]
            starts[missing], ends[missing] = X[missing], candidates[nearest]
            f_starts[missing], f_ends[missing] = values[has_opposite], f_nearest[has_opposite]
        points = X.copy()
        points[crossed] = _find_crossings(
            f, starts[crossed], ends[crossed], f_starts[crossed], f_ends[crossed]
        )
        return points, crossed

    def has_two_sides(self, X: Matrix) -> bool:
        """Return True if f has both signs on X. The support vectors must be rows of X."""
        for points in (self.vectors, X):  # The few support vectors are usually sufficient.
            values = self.decision_function(points)
            if values.min() < 0 < values.max():
                return True
        return False


class _Function:
    """Decision function of a machine, with precomputed arrays."""

    def __init__(self, machine: KernelMachine) -> None:
        self.machine = machine
        self.is_rbf, V = machine.kernel == "rbf", machine.vectors
        scale = {"rbf": 2 * machine.gamma, "linear": 1.0, "poly": machine.gamma}[machine.kernel]
        self.scaled_vectors = np.ascontiguousarray(scale * V.T)
        if self.is_rbf:  # One matrix product gives all 2 x.v - |v|^2 - |x|^2.
            lengths = -machine.gamma * np.square(V).sum(axis=1)
            self.scaled_vectors = np.vstack([self.scaled_vectors, lengths, np.ones(len(V))])

    def values(self, X: Matrix) -> Vector:
        machine = self.machine
        result = np.empty(len(X))
        for block in split_rows(len(X), 24 * len(machine.vectors)):
            K = self._evaluate_kernel(X[block])
            result[block] = K @ machine.coefficients + machine.intercept
        return result

    def gradients(self, X: Matrix) -> tuple[Vector, Matrix]:
        machine = self.machine
        if machine.kernel == "linear":
            slope = machine.coefficients @ machine.vectors
            return X @ slope + machine.intercept, np.tile(slope, (len(X), 1))
        if self.is_rbf:
            K = self._evaluate_kernel(X)
            K *= machine.coefficients
            sums = K.sum(axis=1)
            slopes = K @ machine.vectors
            slopes -= sums[:, None] * X
            slopes *= 2 * machine.gamma
            return sums + machine.intercept, slopes
        inner = X @ self.scaled_vectors + machine.coef0
        power = inner ** (machine.degree - 1)
        values = (power * inner) @ machine.coefficients + machine.intercept
        power *= machine.degree * machine.gamma * machine.coefficients
        return values, power @ machine.vectors

    def _evaluate_kernel(self, X: Matrix) -> Matrix:
        if self.is_rbf:
            lengths = -self.machine.gamma * np.square(X).sum(axis=1)
            K = np.column_stack([X, np.ones(len(X)), lengths]) @ self.scaled_vectors
            return np.asarray(np.exp(K, out=K))
        K = X @ self.scaled_vectors
        if self.machine.kernel == "poly":
            K += self.machine.coef0
            K **= self.machine.degree
        return np.asarray(K)


def _walk_downhill(
    f: _Function, X: Matrix
) -> tuple[tuple[Matrix, Matrix], tuple[Vector, Vector], Mask]:
    """Walk from each point towards the boundary until f changes its sign.

    Return the last two positions of each walk, the values of f at both, and a mask of the walks on
    which f changed its sign.
    """
    max_length = _MAX_STEP * np.sqrt(X.shape[1])
    previous, current = X.copy(), X.copy()
    values, slopes = f.gradients(X)
    f_previous, f_current = values.copy(), values.copy()
    first = np.sign(values)
    crossed = first == 0
    walking = np.flatnonzero(~crossed)
    values, slopes = values[walking], slopes[walking]
    for _ in range(_MAX_STEPS):
        steep = np.sqrt(np.square(slopes).sum(axis=1))
        is_steep = steep > 0
        if not is_steep.all():
            walking, values, slopes, steep = (
                array[is_steep] for array in (walking, values, slopes, steep)
            )
        if not walking.size:
            break
        with np.errstate(over="ignore"):
            length = np.minimum(_OVERSHOOT * np.abs(values) / steep, max_length)
        position = current[walking]
        previous[walking], f_previous[walking] = position, values
        position -= (first[walking] * length / steep)[:, None] * slopes
        values, slopes = f.gradients(position)
        current[walking], f_current[walking] = position, values
        has_crossed = np.sign(values) != first[walking]
        crossed[walking[has_crossed]] = True
        walking, values, slopes = walking[~has_crossed], values[~has_crossed], slopes[~has_crossed]
    return (previous, current), (f_previous, f_current), crossed


def _find_crossings(
    f: _Function, starts: Matrix, ends: Matrix, f_low: Vector, f_high: Vector
) -> Matrix:
    """Return zeros of f between starts and ends. The sign of f must differ at start and end.

    This is the false position method of Anderson and Bjorck, for all brackets at once. If one end
    of a bracket does not move in two consecutive steps, the value at this end is reduced according
    to a parabola through the last three points.
    """
    segment = ends - starts
    low, high, side = np.zeros(len(starts)), np.ones(len(starts)), np.zeros(len(starts))
    tolerance = _MIN_WIDTH * np.maximum(np.abs(f_low), np.abs(f_high))
    best = np.where(np.abs(f_low) < np.abs(f_high), low, high)
    pending = np.flatnonzero((f_low != 0) & (f_high != 0))
    for _ in range(_MAX_ROOT_STEPS):
        if not pending.size:
            break
        a, b, fa, fb, last = (
            low[pending],
            high[pending],
            f_low[pending],
            f_high[pending],
            side[pending],
        )
        t = np.clip((a * fb - b * fa) / (fb - fa), a, b)
        value = f.values(starts[pending] + t[:, None] * segment[pending])
        best[pending] = t
        on_end_side = np.sign(value) == np.sign(fb)
        damping = 1 - value / np.where(on_end_side, fb, fa)
        damping = np.where(damping > 0, damping, 0.5)
        f_low[pending] = np.where(on_end_side, np.where(last > 0, fa * damping, fa), value)
        f_high[pending] = np.where(on_end_side, value, np.where(last < 0, fb * damping, fb))
        low[pending], high[pending] = (
            np.where(on_end_side, a, t),
            np.where(on_end_side, t, b),
        )
        side[pending] = np.where(on_end_side, 1.0, -1.0)
        done = (np.abs(value) <= tolerance[pending]) | ((high - low)[pending] <= _MIN_WIDTH)
        pending = pending[~done]
    return np.asarray(starts + best[:, None] * segment)


def _find_nearest_opposite(
    f: _Function, X: Matrix, values: Vector, candidates: Matrix
) -> tuple[Indices, Vector]:
    """Return the nearest candidate at which f has the other sign, and the value of f there.

    The index is -1 if f has the same sign at all candidates. Evaluating f is slower than computing
    distances, so f is evaluated at the nearest candidates first.
    """
    n = len(candidates)
    nearest, f_candidates = np.full(len(X), -1), np.full(n, np.nan)
    for block in split_rows(len(X), 24 * n):
        distances, size = cdist(X[block], candidates), 0
        while size < n and (nearest[block] < 0).any():
            size = min(n, 8 * size or _N_FIRST_POINTS)
            near = distances <= np.partition(distances, size - 1, axis=1)[:, size - 1 : size]
            unevaluated = np.flatnonzero(near.any(axis=0) & np.isnan(f_candidates))
            f_candidates[unevaluated] = f.values(candidates[unevaluated])
            is_opposite = near & (np.sign(f_candidates) == -np.sign(values[block, None]))
            first_opposite = np.where(is_opposite, distances, np.inf).argmin(axis=1)
            nearest[block] = np.where(is_opposite.any(axis=1), first_opposite, -1)
    return nearest, f_candidates[nearest]
