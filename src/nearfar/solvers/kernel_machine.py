"""Decision functions of support vector machines: values, gradients, and where they are zero."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.svm import SVC

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.state import Sizes, State, check_that, choice, floats, indices, integer_value, number

# A walk to the boundary: its steps are this much longer than a linear function would need, so that
# they cross it, and no longer than this share of the root of the number of features.
_OVERSHOOT = 1.5
_LONGEST = 0.25
_STEPS = 40
# Where a bracket has shrunk to this share of its length the crossing is found.
_NARROW = 1e-13
_HALVINGS = 100
# So many of the nearest points are asked first for one on the other side.
_FIRST = 64


class Kernel(NamedTuple):
    """A kernel of scikit-learn, of which gradients are known."""

    name: str
    gamma: float
    degree: int
    coef0: float


class KernelMachine:
    r"""A support vector machine for two classes, :math:`f(x) = \sum_i \alpha_i y_i k(x_i, x) - b`.

    Parameters
    ----------
    kernel : Kernel
        "rbf", "linear" or "poly".
    support : ndarray of shape (m,)
        Row numbers of the support vectors.
    vectors : ndarray of shape (m, p)
        The support vectors.
    coefficients : ndarray of shape (m,)
        :math:`\alpha_i y_i`.
    intercept : float
        :math:`-b`.
    C : float
        The largest :math:`\alpha_i`; those below are unbounded.
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
        """Train one on rows of both kinds."""
        svc = SVC(
            C=C, kernel=kernel.name, gamma=kernel.gamma, degree=kernel.degree, coef0=kernel.coef0
        ).fit(rows, positive)
        support = svc.support_.astype(np.intp)
        return cls(kernel, support, rows[support], svc.dual_coef_[0], float(svc.intercept_[0]), C)

    @property
    def unbounded(self) -> Indices:
        """Which support vectors are unbounded; all, if none is."""
        free = np.flatnonzero(np.abs(self.coefficients) < self.C * (1 - 1e-8))
        return free if free.size else np.arange(len(self.vectors))

    def decision_function(self, X: Matrix) -> Vector:
        """The values f of points."""
        return _Function(self).values(X)

    def gradients(self, X: Matrix) -> tuple[Vector, Matrix]:
        """The values and gradients of f at points."""
        return _Function(self).gradients(X)

    # ------------------------------------------------------------------ the boundary

    def boundary(self, X: Matrix, others: Matrix) -> tuple[Matrix, Mask]:
        """Points near X at which f is zero, and which were found; X itself where none was.

        All points walk downhill, with steps that overshoot, until f has changed its sign, and the
        crossing is searched on the last step. Where that does not happen, it is searched between
        the point and the nearest of ``others`` on the other side, if there is one.
        """
        f = _Function(self)
        (starts, ends), (f_starts, f_ends), crossed = _walk(f, X)
        rest = np.flatnonzero(~crossed)
        if rest.size:
            values = f.values(X[rest])
            nearest, beyond = _nearest_beyond(f, X[rest], values, others)
            there = nearest >= 0
            crossed[rest] = there
            rest, nearest = rest[there], nearest[there]
            starts[rest], ends[rest] = X[rest], others[nearest]
            f_starts[rest], f_ends[rest] = values[there], beyond[there]
        points = X.copy()
        points[crossed] = _crossings(
            f, starts[crossed], ends[crossed], f_starts[crossed], f_ends[crossed]
        )
        return points, crossed

    def has_two_sides(self, X: Matrix) -> bool:
        """Whether f has both signs among points, which include its support vectors."""
        for some in (self.vectors, X):  # few, and as a rule enough
            values = self.decision_function(some)
            if values.min() < 0 < values.max():
                return True
        return False


class _Function:
    """The decision function of a machine, with what its evaluations share."""

    def __init__(self, machine: KernelMachine) -> None:
        self.machine = machine
        self.rbf, V = machine.kernel == "rbf", machine.vectors
        scale = {"rbf": 2 * machine.gamma, "linear": 1.0, "poly": machine.gamma}[machine.kernel]
        self.scaled = np.ascontiguousarray(scale * V.T)
        if self.rbf:  # squared distances as one product: 2 x.v - |v|^2 - |x|^2
            lengths = -machine.gamma * np.square(V).sum(axis=1)
            self.scaled = np.vstack([self.scaled, lengths, np.ones(len(V))])

    def values(self, X: Matrix) -> Vector:
        """f at points, in blocks."""
        machine = self.machine
        found = np.empty(len(X))
        for block in split_rows(len(X), 24 * len(machine.vectors)):
            K = self._kernel(X[block])
            found[block] = K @ machine.coefficients + machine.intercept
        return found

    def gradients(self, X: Matrix) -> tuple[Vector, Matrix]:
        """f and its gradient at points."""
        machine = self.machine
        if machine.kernel == "linear":
            slope = machine.coefficients @ machine.vectors
            return X @ slope + machine.intercept, np.tile(slope, (len(X), 1))
        if self.rbf:
            K = self._kernel(X)
            K *= machine.coefficients
            sums = K.sum(axis=1)
            slopes = K @ machine.vectors
            slopes -= sums[:, None] * X
            slopes *= 2 * machine.gamma
            return sums + machine.intercept, slopes
        inner = X @ self.scaled + machine.coef0
        power = inner ** (machine.degree - 1)
        values = (power * inner) @ machine.coefficients + machine.intercept
        power *= machine.degree * machine.gamma * machine.coefficients
        return values, power @ machine.vectors

    def _kernel(self, X: Matrix) -> Matrix:
        if self.rbf:
            lengths = -self.machine.gamma * np.square(X).sum(axis=1)
            K = np.column_stack([X, np.ones(len(X)), lengths]) @ self.scaled
            return np.asarray(np.exp(K, out=K))
        K = X @ self.scaled
        if self.machine.kernel == "poly":
            K += self.machine.coef0
            K **= self.machine.degree
        return np.asarray(K)


def _walk(f: _Function, X: Matrix) -> tuple[tuple[Matrix, Matrix], tuple[Vector, Vector], Mask]:
    """The last two places of each walk, f at both, and whether it has another sign at the last."""
    longest = _LONGEST * np.sqrt(X.shape[1])
    before, after = X.copy(), X.copy()
    values, slopes = f.gradients(X)
    f_before, f_after = values.copy(), values.copy()
    first = np.sign(values)
    crossed = first == 0
    walking = np.flatnonzero(~crossed)
    values, slopes = values[walking], slopes[walking]
    for _ in range(_STEPS):
        steep = np.sqrt(np.square(slopes).sum(axis=1))
        going = steep > 0
        if not going.all():
            walking, values, slopes, steep = (
                one[going] for one in (walking, values, slopes, steep)
            )
        if not walking.size:
            break
        with np.errstate(over="ignore"):
            length = np.minimum(_OVERSHOOT * np.abs(values) / steep, longest)
        here = after[walking]
        before[walking], f_before[walking] = here, values
        here -= (first[walking] * length / steep)[:, None] * slopes
        values, slopes = f.gradients(here)
        after[walking], f_after[walking] = here, values
        there = np.sign(values) != first[walking]
        crossed[walking[there]] = True
        walking, values, slopes = walking[~there], values[~there], slopes[~there]
    return (before, after), (f_before, f_after), crossed


def _crossings(f: _Function, starts: Matrix, ends: Matrix, f_low: Vector, f_high: Vector) -> Matrix:
    """Where f is zero between starts and ends, at which it has different signs.

    By the method of Anderson and Bjorck for all at once: false position, with the value made less
    of an end that stays twice, by as much as a parabola through all three would have it.
    """
    way = ends - starts
    low, high, side = np.zeros(len(starts)), np.ones(len(starts)), np.zeros(len(starts))
    least = _NARROW * np.maximum(np.abs(f_low), np.abs(f_high))
    best = np.where(np.abs(f_low) < np.abs(f_high), low, high)
    open_ = np.flatnonzero((f_low != 0) & (f_high != 0))
    for _ in range(_HALVINGS):
        if not open_.size:
            break
        a, b, fa, fb, last = low[open_], high[open_], f_low[open_], f_high[open_], side[open_]
        t = np.clip((a * fb - b * fa) / (fb - fa), a, b)
        value = f.values(starts[open_] + t[:, None] * way[open_])
        best[open_] = t
        right = np.sign(value) == np.sign(fb)
        left = 1 - value / np.where(right, fb, fa)
        left = np.where(left > 0, left, 0.5)
        f_low[open_] = np.where(right, np.where(last > 0, fa * left, fa), value)
        f_high[open_] = np.where(right, value, np.where(last < 0, fb * left, fb))
        low[open_], high[open_] = np.where(right, a, t), np.where(right, t, b)
        side[open_] = np.where(right, 1.0, -1.0)
        done = (np.abs(value) <= least[open_]) | ((high - low)[open_] <= _NARROW)
        open_ = open_[~done]
    return np.asarray(starts + best[:, None] * way)


def _nearest_beyond(
    f: _Function, X: Matrix, values: Vector, others: Matrix
) -> tuple[Indices, Vector]:
    """The nearest of other points at which f has the other sign, or -1; and f there.

    From differences. f is asked of more and more of the nearest, as it takes longer than distances.
    """
    n = len(others)
    found, f_others = np.full(len(X), -1), np.full(n, np.nan)
    for block in split_rows(len(X), 24 * n):
        distances, size = cdist(X[block], others), 0
        while size < n and (found[block] < 0).any():
            size = min(n, 8 * size or _FIRST)
            near = distances <= np.partition(distances, size - 1, axis=1)[:, size - 1 : size]
            new = np.flatnonzero(near.any(axis=0) & np.isnan(f_others))
            f_others[new] = f.values(others[new])
            beyond = near & (np.sign(f_others) == -np.sign(values[block, None]))
            nearest = np.where(beyond, distances, np.inf).argmin(axis=1)
            found[block] = np.where(beyond.any(axis=1), nearest, -1)
    return found, f_others[found]
