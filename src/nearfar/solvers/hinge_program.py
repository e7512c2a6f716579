"""Sums of hinges with a quadratic term: the program of support vector machines."""

from __future__ import annotations

from copy import copy
from typing import NamedTuple, Self

import numpy as np
from scipy import linalg
from scipy.linalg import lapack

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.projections import project_psd
from nearfar.solvers.symmetric_vectors import (
    inverse,
    longest_step,
    smat,
    svec,
    sym,
    symmetric_kronecker,
)

# How much of the way to the boundary a step goes; the rest keeps iterates inside.
_STEP = 0.995
# Steps that come no nearer to complementarity after which rounding has the word.
_PATIENCE = 8
# Equations of the dual hold to so much of its sum before its value is a bound.
_FEASIBLE = 1e-9
# Rows for each unknown of which a program is solved on those near their corner; how near, at first
# and then; the share of rows above which nothing is spared; what share of the objective the
# gap may be after first steps on all rows.
_MANY = 4
_REACHES = (0.25, 0.75)
_SPARES = 0.7
_ROUGH = 0.5


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
    cone: int = 0,
    tol: float = 1e-11,
    floor: float = np.finfo(float).tiny,
    max_iter: int = 100,
) -> HingeSolution:
    r"""The least value of :math:`\tfrac12\sum_k q_k x_k^2 + f^T x + \sum_i c_i (h_i - a_i^T x)_+`.

    A primal-dual interior point method (Mehrotra's predictor and corrector). With the multipliers
    :math:`0 \le \alpha \le c` of the dual,

    .. math:: \max_\alpha\; h^T\alpha - \tfrac12 \sum_{q_k > 0} (A^T\alpha - f)_k^2 / q_k, \qquad
        (A^T\alpha - f)_k = 0 \text{ where } q_k = 0,

    where :math:`A^T\alpha - f` of unknowns that form a matrix in the cone counts by its positive
    part, a step is one Cholesky factorisation of :math:`Q + A^T D^{-1} A`, which by Woodbury
    serves the n×n system :math:`D + A Q^{-1} A^T` of the dual: O(n m²) for A of shape (n, m), some
    ten to twenty times.

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
    cone : int
        If not 0, the first unknowns are the `svec` of a symmetric matrix of so many rows, which
        must be positive semi-definite. They have one quadratic term.
    tol, floor : float
        Gap at which to stop, relative to the objective or to ``floor``, whichever is larger.
    max_iter : int
        Most steps.

    Returns
    -------
    HingeSolution
        The best point seen by its objective, with the best bound.
    """
    point = HingePoint(A, h, cost, q, f, positive_last, cone)
    return _followed(point, tol, floor, max_iter)[0]


def _followed(
    point: HingePoint,
    tol: float,
    floor: float = np.finfo(float).tiny,
    max_iter: int = 100,
    *,
    rough: float = 0.0,
) -> tuple[HingeSolution, HingePoint]:
    """Steps from a point until the gap is small; the best seen, and the last iterate.

    With ``rough`` also until that share of the objective is left of the products that make the gap,
    which are known before the dual is feasible.
    """
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
        if 2 * len(point.a) * mu <= rough * abs(best.objective):
            break
        waited = 0 if mu < 0.9 * least else waited + 1
        least = min(least, mu)
        if waited > _PATIENCE or not point.factor():
            break
        try:
            move, length = centered_move(point)
        except linalg.LinAlgError:  # on the boundary of the cone, but for rounding
            break
        if not length > 1e-12:
            break
        point = point.moved(move, length).inside()
    return best, point


def hinge_program_near(
    A: Matrix,
    h: Vector,
    cost: Vector,
    q: Vector,
    f: Vector,
    short: Vector | None = None,
    *,
    tol: float = 1e-11,
) -> HingeSolution:
    """The same program, solved on the rows near their corner where that is enough.

    Rows far from it have multipliers of nothing or of their cost, and enter as a constant and a
    linear term. If one of them turns out to lie on the other side, more rows are taken.

    Parameters
    ----------
    A, h, cost, q, f, tol
        As for `hinge_program`.
    short : ndarray of shape (n,), optional
        h - A x of a point near the optimum; None for a rough solution on all rows first.

    Returns
    -------
    HingeSolution
        Of all rows: its bound is one for the whole program.
    """
    n, m = A.shape
    if n <= _MANY * m:
        return hinge_program(A, h, cost, q, f, tol=tol)
    begun = None
    if short is None:
        rough, begun = _followed(HingePoint(A, h, cost, q, f, False), tol, rough=_ROUGH)
        if rough.gap <= tol * abs(rough.objective):
            return rough
        short = h - A @ begun.x
    for reach in _REACHES:
        distance = np.abs(short)
        near = distance <= max(reach, float(np.partition(distance, _MANY * m)[_MANY * m]))
        if near.mean() > _SPARES:
            break
        pulls, rest = ~near & (short > 0), ~near & (short <= 0)
        linear = f - (cost * pulls) @ A
        point = HingePoint(A[near], h[near], cost[near], q, linear, False)
        if begun is not None:  # go on from there
            point.x, point.a, point.r = begun.x, begun.a[near], begun.r[near]
            point.xi, begun = begun.xi[near], None
        part, _ = _followed(point, tol)
        short = h - A @ part.x
        if not ((short[pulls] < 0).any() or (short[rest] > 0).any()) and np.isfinite(part.bound):
            dual, constant = np.where(pulls, cost, 0.0), float((cost * pulls) @ h)
            dual[near] = part.dual
            return part._replace(
                dual=dual, objective=part.objective + constant, bound=part.bound + constant
            )
    return hinge_program(A, h, cost, q, f, tol=tol)


def centered_move(
    point: HingePoint, *, share: float = _STEP, least: float = 0.0
) -> tuple[HingeMove, float]:
    """Mehrotra's corrected step from a point that is factorised, and how far to go.

    ``least`` bounds how much nearer to complementarity it aims.
    """
    mu, nothing = point.complementarity(), np.zeros(len(point.a))
    move = point.direction(nothing, nothing, 0.0, point.Z * 0.0)
    reached = point.complementarity(move, point.longest(move))
    center = max((max(reached, 0.0) / mu) ** 3, least) * mu
    move = point.direction(
        center - move.a * move.r,
        center + move.a * move.xi,
        center - move.tau * move.x[-1],
        point.aim_in_cone(move, center),
    )
    return move, share * point.longest(move)


class HingeMove(NamedTuple):
    """A change of the unknowns."""

    x: Vector
    a: Vector
    r: Vector
    xi: Vector
    tau: float
    Z: Matrix


class HingePoint:
    """An iterate: x, the multipliers a of the hinges and how far each row is beyond or short.

    The margins are A x + xi - r = h with a r = (c - a) xi = 0 at the optimum; tau is the multiplier
    of a last unknown that must not be negative, Z that of the matrix B in the cone. Their product
    is linearised as dZ = aim - Z - sym(B⁻¹ dB Z), the aim being B⁻¹ times a number.
    """

    def __init__(
        self,
        A: Matrix,
        h: Vector,
        cost: Vector,
        q: Vector,
        f: Vector,
        positive_last: bool,
        cone: int = 0,
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
        self.cone, self.entries = cone, slice(cone * (cone + 1) // 2)
        self.Z = np.eye(cone)
        if cone:
            self.x[self.entries] = svec(self.Z)

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
        smooth, over = q > 0, self.pull - f
        if self.cone:
            over[self.entries] = svec(project_psd(self._matrix(over)))
        bound = h @ self.a - 0.5 * np.sum(over[smooth] ** 2 / q[smooth])
        # What rounding left amiss is charged at the price of the unknowns.
        price = np.abs(self.x[self.free])
        if self.positive_last:
            price = np.append(price, self.x[-1])
        return float(objective), float(bound - amiss @ price)

    def complementarity(self, move: HingeMove | None = None, length: float = 0.0) -> float:
        """The mean product of an unknown and its multiplier, here or after a move."""
        a, r, xi, tau, last = self.a, self.r, self.xi, self.tau, self.x[-1]
        if move is not None:
            a, r, xi = a + length * move.a, r + length * move.r, xi + length * move.xi
            tau, last = tau + length * move.tau, last + length * move.x[-1]
        products = a @ r + (self.program[2] - a) @ xi + tau * last
        if self.cone:
            B, Z = self._matrix(self.x), self.Z
            if move is not None:
                B, Z = B + length * self._matrix(move.x), Z + length * move.Z
            products += np.vdot(B, Z)
        return float(products) / (2 * len(a) + self.positive_last + self.cone)

    def _matrix(self, x: Vector) -> Matrix:
        return smat(x[self.entries], self.cone)

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
        if self.cone:
            try:
                self.inverse = inverse(self._matrix(self.x))
            except linalg.LinAlgError:
                return False
            H[self.entries, self.entries] += symmetric_kronecker(self.inverse, self.Z)
            self.amiss[self.entries] -= svec(self.Z)
        self.cholesky = _cholesky(H)
        return self.cholesky is not None

    def aim_in_cone(self, move: HingeMove, center: float) -> Matrix:
        """For the multiplier of the matrix: B⁻¹ times the center, less what a move left out."""
        if not self.cone:
            return self.Z
        return center * self.inverse - sym(self.inverse @ self._matrix(move.x) @ move.Z)

    def direction(
        self, aim_a: Vector, aim_s: Vector, aim_x: float, aim_Z: Matrix | None = None
    ) -> HingeMove:
        """The Newton step to products of so much."""
        A, last = self.program[0], self.x[-1]
        g = self.short - aim_s / self.s + aim_a / self.a
        right = A.T @ (g / self.D) - self.amiss
        if self.positive_last:
            right[-1] += aim_x / last - self.tau
        pull = self.Z if aim_Z is None else aim_Z - self.Z
        if self.cone:
            right[self.entries] += svec(pull)
        dx = lapack.dpotrs(self.cholesky, right, lower=1)[0]
        da = (g - A @ dx) / self.D
        dr = (aim_a - self.r * da) / self.a - self.r
        dxi = (aim_s + self.xi * da) / self.s - self.xi
        dtau = (aim_x - self.tau * dx[-1]) / last - self.tau if self.positive_last else 0.0
        if self.cone:
            pull = pull - sym(self.inverse @ self._matrix(dx) @ self.Z)
        return HingeMove(dx, da, dr, dxi, float(dtau), pull)

    def longest(self, move: HingeMove) -> float:
        """The longest step, at most 1, that makes nothing negative."""
        worst: float = max(
            np.max(-move.a / self.a),
            np.max(move.a / self.s),
            np.max(-move.r / self.r),
            np.max(-move.xi / self.xi),
        )
        if self.positive_last:
            worst = max(worst, -move.x[-1] / self.x[-1], -move.tau / self.tau)
        if self.cone:
            B, dB = self._matrix(self.x), self._matrix(move.x)
            worst = max(worst, 1 / longest_step(B, dB), 1 / longest_step(self.Z, move.Z))
        return min(1.0, 1 / float(worst)) if worst > 0 else 1.0

    def moved(self, move: HingeMove, length: float) -> Self:
        """A step further."""
        point = copy(self)
        point.x, point.a = self.x + length * move.x, self.a + length * move.a
        point.r, point.xi = self.r + length * move.r, self.xi + length * move.xi
        point.tau, point.Z = self.tau + length * move.tau, self.Z + length * move.Z
        return point

    def inside(self) -> Self:
        """Off the bounds onto which rounding may put it, from where nothing would move it."""
        cost = self.program[2]
        self.a = np.clip(self.a, 1e-40 * cost, (1 - 1e-15) * cost)
        self.r, self.xi = np.maximum(self.r, 1e-300), np.maximum(self.xi, 1e-300)
        return self


def _cholesky(H: Matrix) -> Matrix | None:
    """Cholesky of a matrix that is positive definite but for rounding; None if it is not finite."""
    if not np.isfinite(H).all():
        return None
    level = float(np.trace(H)) / len(H)
    for ridge in (0.0, 1e-16, 1e-13, 1e-10):
        shifted = H.copy()
        shifted.flat[:: len(H) + 1] += ridge * level
        # Steps are so many and so small that checks of what is known would take half of the time.
        factor, failed = lapack.dpotrf(shifted, lower=1)
        if not failed:
            return np.asarray(factor)
    return None
