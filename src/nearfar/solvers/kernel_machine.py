"""Decision functions of support vector machines: values, gradients, and where they are zero."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.svm import SVC

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.blocks import row_blocks, squared_distances
from nearfar.state import Sizes, State, choice, floats, indices, need, number, whole

# A walk to the boundary: its steps are this much longer than a linear function would need, so that
# they cross it, and no longer than this share of the root of the number of features.
_OVERSHOOT = 1.5
_LONGEST = 0.25
_STEPS = 40
# Where a bracket has shrunk to this share of its length the crossing is found.
_NARROW = 1e-13
_HALVINGS = 100


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
            "degree": whole(low=1),
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
        need(sizes["m"] > 0, "vectors must not be empty.")

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
        return np.asarray(self._kernel(X) @ self.coefficients + self.intercept)

    def gradients(self, X: Matrix) -> tuple[Vector, Matrix]:
        """The values and gradients of f at points."""
        K = self._kernel(X)
        values = K @ self.coefficients + self.intercept
        if self.kernel == "linear":
            return values, np.tile(self.coefficients @ self.vectors, (len(X), 1))
        if self.kernel == "rbf":
            K *= self.coefficients
            slopes = 2 * self.gamma * (K @ self.vectors - K.sum(axis=1)[:, None] * X)
            return values, slopes
        inner = self.gamma * (X @ self.vectors.T) + self.coef0
        inner **= self.degree - 1
        inner *= self.degree * self.gamma * self.coefficients
        return values, inner @ self.vectors

    def _kernel(self, X: Matrix) -> Matrix:
        if self.kernel == "rbf":
            K = squared_distances(X, self.vectors)
            K *= -self.gamma
            return np.asarray(np.exp(K, out=K))
        inner = X @ self.vectors.T
        if self.kernel == "linear":
            return np.asarray(inner)
        inner *= self.gamma
        inner += self.coef0
        inner **= self.degree
        return np.asarray(inner)

    # ------------------------------------------------------------------ the boundary

    def boundary(self, X: Matrix, others: Matrix) -> tuple[Matrix, Mask]:
        """Points near X at which f is zero, and which were found; X itself where none was.

        All points walk downhill, with steps that overshoot, until f has changed its sign, and the
        crossing is searched on the last step. Where that does not happen, it is searched between
        the point and the nearest of ``others`` on the other side, if there is one.
        """
        ends, crossed = self._walk(X)
        starts = ends[0]
        rest = np.flatnonzero(~crossed)
        if rest.size:
            signs = np.sign(self._values(others))
            wanted = -np.sign(self._values(X[rest]))
            for sign in (-1.0, 1.0):
                beyond, asking = others[signs == sign], rest[wanted == sign]
                if len(beyond) and len(asking):
                    starts[asking], ends[1][asking] = X[asking], _nearest(X[asking], beyond)
                    crossed[asking] = True
        points = X.copy()
        points[crossed] = self._crossings(starts[crossed], ends[1][crossed])
        return points, crossed

    def has_two_sides(self, X: Matrix) -> bool:
        """Whether f has both signs among points."""
        values = self._values(X)
        return bool(values.min() < 0 < values.max())

    def _values(self, X: Matrix) -> Vector:
        blocks = row_blocks(len(X), 24 * len(self.vectors))
        return np.concatenate(
            [np.empty(0), *(self.decision_function(X[block]) for block in blocks)]
        )

    def _walk(self, X: Matrix) -> tuple[tuple[Matrix, Matrix], Mask]:
        """The last two places of each walk, and whether f is of another sign at the last."""
        longest = _LONGEST * np.sqrt(X.shape[1])
        before, after = X.copy(), X.copy()
        values, slopes = self.gradients(X)
        first = np.sign(values)
        crossed = first == 0
        walking = np.flatnonzero(~crossed)
        values, slopes = values[walking], slopes[walking]
        for _ in range(_STEPS):
            steep = np.sqrt(np.square(slopes).sum(axis=1))
            going = steep > 0
            walking, values, slopes = walking[going], values[going], slopes[going]
            if not walking.size:
                break
            steep = steep[going]
            with np.errstate(over="ignore"):
                length = np.minimum(_OVERSHOOT * np.abs(values) / steep, longest)
            before[walking] = after[walking]
            after[walking] -= (first[walking] * length / steep)[:, None] * slopes
            values, slopes = self.gradients(after[walking])
            there = np.sign(values) != first[walking]
            crossed[walking[there]] = True
            walking, values, slopes = walking[~there], values[~there], slopes[~there]
        return (before, after), crossed

    def _crossings(self, starts: Matrix, ends: Matrix) -> Matrix:
        """Where f is zero between starts and ends, at which it has different signs.

        By the Illinois method for all at once: false position, with the value halved of an end
        that stays twice.
        """
        low, high = np.zeros(len(starts)), np.ones(len(starts))
        f_low, f_high = self._values(starts), self._values(ends)
        scale = np.maximum(np.abs(f_low), np.abs(f_high))
        best = np.where(np.abs(f_low) < np.abs(f_high), low, high)
        side = np.zeros(len(starts))
        open_ = np.flatnonzero((f_low != 0) & (f_high != 0))
        for _ in range(_HALVINGS):
            if not open_.size:
                break
            a, b, fa, fb = low[open_], high[open_], f_low[open_], f_high[open_]
            t = np.clip((a * fb - b * fa) / (fb - fa), a, b)
            f = self.decision_function(starts[open_] + t[:, None] * (ends - starts)[open_])
            best[open_] = t
            right = np.sign(f) == np.sign(fb)
            f_low[open_] = np.where(right, np.where(side[open_] > 0, fa / 2, fa), f)
            f_high[open_] = np.where(right, f, np.where(side[open_] < 0, fb / 2, fb))
            low[open_], high[open_] = np.where(right, a, t), np.where(right, t, b)
            side[open_] = np.where(right, 1.0, -1.0)
            done = (np.abs(f) <= _NARROW * scale[open_]) | (high - low <= _NARROW)[open_]
            open_ = open_[~done]
        return np.asarray(starts + best[:, None] * (ends - starts))


def _nearest(X: Matrix, others: Matrix) -> Matrix:
    """The nearest of other points, from differences."""
    blocks = row_blocks(len(X), 8 * len(others))
    return np.concatenate([others[cdist(X[block], others).argmin(axis=1)] for block in blocks])
