"""Sums of hinges with a quadratic term: the program of support vector machines."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector

# How much of the way to the boundary a step goes; the rest keeps iterates inside.
_STEP = 0.995
# Steps that come no nearer to complementarity after which rounding has the word.
_PATIENCE = 8
# Equations of the dual hold to so much of its sum before its value is a bound.
_FEASIBLE = 1e-9


class HingeSolution(NamedTuple):
    """Where the program ends, and how far from the optimum that may be.

    ``objective - bound`` is the duality gap: no point lies below ``bound``.
    """

    x: Vector
    dual: Vector
    objective: float
    bound: float
    n_iter: int

    @property
    def gap(self) -> float:
        """How much lower the optimum may be."""
        return self.objective - self.bound


def hinge_program(
    A: Matrix,
    h: Vector,
    cost: Vector,
    q: Vector,
    f: Vector,
    *,
    positive_last: bool = False,
    tol: float = 1e-11,
    floor: float = np.finfo(float).tiny,
    max_iter: int = 100,
) -> HingeSolution:
    r"""The least value of :math:`\tfrac12\sum_k q_k x_k^2 + f^T x + \sum_i c_i (h_i - a_i^T x)_+`.

    A primal-dual interior point method (Mehrotra's predictor and corrector). With the multipliers
    :math:`0 \le \alpha \le c` of the dual,

    .. math:: \max_\alpha\; h^T\alpha - \tfrac12 \sum_{q_k > 0} (A^T\alpha - f)_k^2 / q_k, \qquad
        (A^T\alpha - f)_k = 0 \text{ where } q_k = 0,

    a step is one Cholesky factorisation of :math:`Q + A^T D^{-1} A`, which by Woodbury serves the
    n×n system :math:`D + A Q^{-1} A^T` of the dual: O(n m²) for A of shape (n, m), some ten to
    twenty times.

    Parameters
    ----------
    A : ndarray of shape (n, m)
        Rows of the hinges.
    h, cost : ndarray of shape (n,)
        Where they begin and their costs, which are positive.
    q, f : ndarray of shape (m,)
        The quadratic and the linear term.
    positive_last : bool
        Whether the last unknown must not be negative. It has no quadratic term then.
    tol, floor : float
        Gap at which to stop, relative to the objective or to ``floor``, whichever is larger.
    max_iter : int
        Most steps.

    Returns
    -------
    HingeSolution
        The best point seen by its objective, with the best bound.
    """
    point = _Point(A, h, cost, q, f, positive_last)
    best = HingeSolution(point.x, point.a, np.inf, -np.inf, 0)
    least, waited = np.inf, 0
    for step in range(max_iter):
        objective, bound = point.values()
        if objective < best.objective:
            best = best._replace(x=point.x, objective=objective)
        if bound > best.bound:
            best = best._replace(dual=point.a, bound=bound)
        best = best._replace(n_iter=step)
        if best.gap <= tol * max(abs(best.objective), floor):
            break
        mu = point.complementarity()
        waited = 0 if mu < 0.9 * least else waited + 1
        least = min(least, mu)
        if waited > _PATIENCE or not point.factor():
            break
        nothing = np.zeros(len(A))
        move = point.direction(nothing, nothing, 0.0)
        reached = point.moved(move, point.longest(move)).complementarity()
        center = (max(reached, 0.0) / mu) ** 3 * mu
        move = point.direction(
            center - move.a * move.r, center + move.a * move.xi, center - move.tau * move.x[-1]
        )
        length = _STEP * point.longest(move)
        if not length > 1e-12:
            break
        point = point.moved(move, length).inside()
    return best


class _Move(NamedTuple):
    """A change of the unknowns."""

    x: Vector
    a: Vector
    r: Vector
    xi: Vector
    tau: float


class _Point:
    """An iterate: x, the multipliers a of the hinges and how far each row is beyond or short.

    The margins are A x + xi - r = h with a r = (c - a) xi = 0 at the optimum; tau is the multiplier
    of a last unknown that must not be negative.
    """

    def __init__(
        self, A: Matrix, h: Vector, cost: Vector, q: Vector, f: Vector, positive_last: bool
    ) -> None:
        n, m = A.shape
        self.program = A, h, cost, q, f
        self.positive_last = positive_last
        self.free = q == 0
        self.x, self.a = np.zeros(m), cost / 2
        self.r, self.xi = np.ones(n), np.ones(n)
        self.tau = float(positive_last)
        self.x[-1] = self.tau
        self.free[-1] &= not positive_last

    def values(self) -> tuple[float, float]:
        """The objective, and the dual's bound, minus infinity where the dual is not feasible."""
        A, h, cost, q, f = self.program
        self.short = h - A @ self.x
        objective = 0.5 * q @ self.x**2 + f @ self.x + cost @ np.maximum(self.short, 0)
        self.pull = A.T @ self.a
        amiss = np.abs(self.pull - f)[self.free]
        if self.positive_last:
            amiss = np.append(amiss, max(self.pull[-1] - f[-1], 0.0))
        if amiss.max(initial=0.0) > _FEASIBLE * self.a.sum():
            return float(objective), -np.inf
        smooth = q > 0
        bound = h @ self.a - 0.5 * np.sum((self.pull - f)[smooth] ** 2 / q[smooth])
        # What rounding left amiss is charged at the price of the unknowns.
        price = np.abs(self.x[self.free])
        if self.positive_last:
            price = np.append(price, self.x[-1])
        return float(objective), float(bound - amiss @ price)

    def complementarity(self) -> float:
        """The mean product of an unknown and its multiplier."""
        products = self.a @ self.r + (self.program[2] - self.a) @ self.xi + self.tau * self.x[-1]
        return float(products) / (2 * len(self.a) + self.positive_last)

    def factor(self) -> bool:
        """Factorise the matrix of the Newton steps from here; False if rounding forbids it."""
        A, _, cost, q, f = self.program
        self.s = cost - self.a
        self.D = self.xi / self.s + self.r / self.a
        B = A / np.sqrt(self.D)[:, None]
        H = B.T @ B
        H.flat[:: len(H) + 1] += q
        self.amiss = q * self.x + f - self.pull
        if self.positive_last:
            H[-1, -1] += self.tau / self.x[-1]
            self.amiss[-1] -= self.tau
        self.cholesky = _cholesky(H)
        return self.cholesky is not None

    def direction(self, aim_a: Vector, aim_s: Vector, aim_x: float) -> _Move:
        """The Newton step to products of so much."""
        A, last = self.program[0], self.x[-1]
        g = self.short - aim_s / self.s + aim_a / self.a
        right = A.T @ (g / self.D) - self.amiss
        if self.positive_last:
            right[-1] += aim_x / last - self.tau
        dx = linalg.cho_solve(self.cholesky, right, check_finite=False)
        da = (g - A @ dx) / self.D
        dr = (aim_a - self.r * da) / self.a - self.r
        dxi = (aim_s + self.xi * da) / self.s - self.xi
        dtau = (aim_x - self.tau * dx[-1]) / last - self.tau if self.positive_last else 0.0
        return _Move(dx, da, dr, dxi, float(dtau))

    def longest(self, move: _Move) -> float:
        """The longest step, at most 1, that makes nothing negative."""
        worst = max(
            np.max(-move.a / self.a),
            np.max(move.a / self.s),
            np.max(-move.r / self.r),
            np.max(-move.xi / self.xi),
        )
        if self.positive_last:
            worst = max(worst, -move.x[-1] / self.x[-1], -move.tau / self.tau)
        return min(1.0, 1 / float(worst)) if worst > 0 else 1.0

    def moved(self, move: _Move, length: float) -> _Point:
        """A step further."""
        point = copy(self)
        point.x, point.a = self.x + length * move.x, self.a + length * move.a
        point.r, point.xi = self.r + length * move.r, self.xi + length * move.xi
        point.tau = self.tau + length * move.tau
        return point

    def inside(self) -> _Point:
        """Off the bounds onto which rounding may put it, from where nothing would move it."""
        cost = self.program[2]
        self.a = np.clip(self.a, 1e-40 * cost, (1 - 1e-15) * cost)
        self.r, self.xi = np.maximum(self.r, 1e-300), np.maximum(self.xi, 1e-300)
        return self


def _cholesky(H: Matrix) -> tuple[Matrix, bool] | None:
    """Cholesky of a matrix that is positive definite but for rounding; None if it is not finite."""
    if not np.isfinite(H).all():
        return None
    level = float(np.trace(H)) / len(H)
    for ridge in (0.0, 1e-16, 1e-13, 1e-10):
        shifted = H.copy()
        shifted.flat[:: len(H) + 1] += ridge * level
        try:
            return linalg.cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            continue
    return None
