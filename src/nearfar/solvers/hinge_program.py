"""Interior point solver for a quadratic term plus hinges: the support vector machine problem."""

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

# Length of a step as a fraction of the distance to the boundary. The fraction is below 1, so that
# iterates stay in the interior.
_STEP = 0.995
# Maximum number of consecutive steps that do not reduce the complementarity. After that, only
# rounding errors are left and the solver stops.
_PATIENCE = 8
# Maximum violation of the dual equations, relative to the sum of the multipliers, at which the dual
# objective is used as a bound.
_FEASIBLE = 1e-9
# Number of rows per unknown above which the program is first solved with only the rows near the
# corner of their hinge.
_ROWS_PER_UNKNOWN = 4
# Distance from the corner of the hinge up to which a row is near, in units of the margin. The first
# attempt uses the first value, and the second attempt uses the second value.
_REACHES = (0.25, 0.75)
# Maximum fraction of near rows. With a larger fraction, using all rows is as fast.
_MAX_NEAR_FRACTION = 0.7
# Relative gap at which the solver stops when it computes a rough solution on all rows.
_ROUGH_GAP = 0.5


class HingeSolution(NamedTuple):
    """Solution of a hinge program with a bound on its distance from the optimum.

    ``objective - bound`` is the duality gap: no point has an objective below ``bound``.
    """

    x: Vector
    dual: Vector
    objective: float
    bound: float
    n_iter: int

    @property
    def gap(self) -> float:
        """Duality gap. The optimum is lower than the objective by at most this amount."""
        return self.objective - self.bound


def solve_hinge_program(
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
    r"""Minimize :math:`\tfrac12\sum_k q_k x_k^2 + f^T x + \sum_i c_i (h_i - a_i^T x)_+`.

    The solver is a primal-dual interior point method (Mehrotra's predictor-corrector). The dual,
    with multipliers :math:`0 \le \alpha \le c`, is

    .. math:: \max_\alpha\; h^T\alpha - \tfrac12 \sum_{q_k > 0} (A^T\alpha - f)_k^2 / q_k, \qquad
        (A^T\alpha - f)_k = 0 \text{ where } q_k = 0.

    For unknowns that form a matrix in the cone, only the positive semi-definite part of
    :math:`A^T\alpha - f` enters the dual. A step needs one Cholesky factorization of
    :math:`Q + A^T D^{-1} A`, which by Woodbury's identity also solves the n×n system
    :math:`D + A Q^{-1} A^T` of the dual. For A of shape (n, m) this costs O(n m²), for about ten to
    twenty steps.

    Parameters
    ----------
    A : ndarray of shape (n, m)
        Coefficients of the hinges, one row :math:`a_i` per hinge.
    h, cost : ndarray of shape (n,)
        Thresholds :math:`h_i` of the hinges and their positive costs :math:`c_i`.
    q, f : ndarray of shape (m,)
        Coefficients of the quadratic and of the linear term.
    positive_last : bool
        Whether the last unknown must be nonnegative. It then has no quadratic term.
    cone : int
        If not 0, the first unknowns are the `svec` of a symmetric matrix with this number of rows,
        which must be positive semi-definite. These unknowns must have the same quadratic
        coefficient.
    tol, floor : float
        Stop when the gap is at most ``tol * max(abs(objective), floor)``.
    max_iter : int
        Maximum number of steps.

    Returns
    -------
    HingeSolution
        The iterate with the lowest objective, and the best bound of all iterates.
    """
    point = HingePoint(A, h, cost, q, f, positive_last, cone)
    return _follow_path(point, tol, floor, max_iter)[0]


def _follow_path(
    point: HingePoint,
    tol: float,
    floor: float = np.finfo(float).tiny,
    max_iter: int = 100,
    *,
    rough: float = 0.0,
) -> tuple[HingeSolution, HingePoint]:
    """Take steps until the gap is small. Return the best solution and the last iterate.

    With ``rough``, also stop when the sum of the complementarity products is below this fraction of
    the objective. The products approximate the gap before the dual is feasible.
    """
    best = HingeSolution(point.x, point.a, np.inf, -np.inf, 0)
    min_mu, n_stalled = np.inf, 0
    for step in range(max_iter):
        objective, bound = point.evaluate()
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
        n_stalled = 0 if mu < 0.9 * min_mu else n_stalled + 1
        min_mu = min(min_mu, mu)
        if n_stalled > _PATIENCE or not point.factor():
            break
        try:
            move, length = compute_centered_move(point)
        except linalg.LinAlgError:  # The iterate is numerically on the boundary of the cone.
            break
        if not length > 1e-12:
            break
        point = point.take_step(move, length).clip_to_interior()
    return best, point


def solve_hinge_program_locally(
    A: Matrix,
    h: Vector,
    cost: Vector,
    q: Vector,
    f: Vector,
    short: Vector | None = None,
    *,
    tol: float = 1e-11,
) -> HingeSolution:
    """Solve a hinge program faster, by using only the rows near the corner of their hinge.

    For rows far from the corner of their hinge, the multiplier is 0 or the cost. These rows
    contribute a constant and a linear term. If the solution moves one of them to the other side of
    its corner, more rows are included.

    Parameters
    ----------
    A, h, cost, q, f, tol
        As in `solve_hinge_program`.
    short : ndarray of shape (n,), optional
        Shortfalls h - A x at a point near the optimum. If None, a rough solution on all rows is
        computed first.

    Returns
    -------
    HingeSolution
        The solution for all rows. Its bound is valid for the full program.
    """
    n, m = A.shape
    if n <= _ROWS_PER_UNKNOWN * m:
        return solve_hinge_program(A, h, cost, q, f, tol=tol)
    start_point = None
    if short is None:
        rough, start_point = _follow_path(
            HingePoint(A, h, cost, q, f, False), tol, rough=_ROUGH_GAP
        )
        if rough.gap <= tol * abs(rough.objective):
            return rough
        short = h - A @ start_point.x
    for reach in _REACHES:
        distance = np.abs(short)
        near = distance <= max(
            reach, float(np.partition(distance, _ROWS_PER_UNKNOWN * m)[_ROWS_PER_UNKNOWN * m])
        )
        if near.mean() > _MAX_NEAR_FRACTION:
            break
        at_cost, at_zero = ~near & (short > 0), ~near & (short <= 0)
        linear = f - (cost * at_cost) @ A
        point = HingePoint(A[near], h[near], cost[near], q, linear, False)
        if start_point is not None:  # Continue from the rough solution.
            point.x, point.a, point.r = start_point.x, start_point.a[near], start_point.r[near]
            point.xi, start_point = start_point.xi[near], None
        solution, _ = _follow_path(point, tol)
        short = h - A @ solution.x
        if not ((short[at_cost] < 0).any() or (short[at_zero] > 0).any()) and np.isfinite(
            solution.bound
        ):
            dual, constant = np.where(at_cost, cost, 0.0), float((cost * at_cost) @ h)
            dual[near] = solution.dual
            return solution._replace(
                dual=dual, objective=solution.objective + constant, bound=solution.bound + constant
            )
    return solve_hinge_program(A, h, cost, q, f, tol=tol)


def compute_centered_move(
    point: HingePoint, *, fraction: float = _STEP, min_centering: float = 0.0
) -> tuple[HingeMove, float]:
    """Return Mehrotra's predictor-corrector step from a factorized point, and its length.

    The target of the step is at least ``min_centering`` times the current complementarity.
    """
    mu, zeros = point.complementarity(), np.zeros(len(point.a))
    move = point.solve_direction(zeros, zeros, 0.0, point.Z * 0.0)
    reached = point.complementarity(move, point.find_max_step(move))
    center = max((max(reached, 0.0) / mu) ** 3, min_centering) * mu
    move = point.solve_direction(
        center - move.a * move.r,
        center + move.a * move.xi,
        center - move.tau * move.x[-1],
        point.compute_cone_target(move, center),
    )
    return move, fraction * point.find_max_step(move)


class HingeMove(NamedTuple):
    """A step of the interior-point method: the change of each unknown of a `HingePoint`."""

    x: Vector
    a: Vector
    r: Vector
    xi: Vector
    tau: float
    Z: Matrix


class HingePoint:
    """An iterate of the interior-point method for a hinge program.

    The unknowns are x, and for each row the multiplier a, the surplus r and the shortfall xi. The
    rows satisfy A x + xi - r = h, with a r = (c - a) xi = 0 at the optimum. The multiplier of a
    nonnegative last unknown is tau, and the multiplier of the matrix B in the cone is Z. The
    condition on the product of B and Z is linearized as dZ = aim - Z - sym(B⁻¹ dB Z), where aim is
    a multiple of B⁻¹.
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

    def evaluate(self) -> tuple[float, float]:
        """Return the objective and the dual bound.

        The bound is minus infinity if the dual is infeasible.
        """
        A, h, cost, q, f = self.program
        self.short = h - A @ self.x
        objective = 0.5 * q @ self.x**2 + f @ self.x + cost @ np.maximum(self.short, 0)
        self.pull = A.T @ self.a
        violation = np.abs(self.pull - f)[self.free]
        if self.positive_last:
            violation = np.append(violation, max(self.pull[-1] - f[-1], 0.0))
        if violation.max(initial=0.0) > _FEASIBLE * self.a.sum():
            return float(objective), -np.inf
        smooth, excess = q > 0, self.pull - f
        if self.cone:
            excess[self.entries] = svec(project_psd(self._to_matrix(excess)))
        bound = h @ self.a - 0.5 * np.sum(excess[smooth] ** 2 / q[smooth])
        # The dual equations are still slightly violated. Subtract the effect on the bound: the
        # violations times the current unknowns.
        price = np.abs(self.x[self.free])
        if self.positive_last:
            price = np.append(price, self.x[-1])
        return float(objective), float(bound - violation @ price)

    def complementarity(self, move: HingeMove | None = None, length: float = 0.0) -> float:
        """Return the mean product of unknowns and multipliers, at this point or after a step."""
        a, r, xi, tau, last = self.a, self.r, self.xi, self.tau, self.x[-1]
        if move is not None:
            a, r, xi = a + length * move.a, r + length * move.r, xi + length * move.xi
            tau, last = tau + length * move.tau, last + length * move.x[-1]
        products = a @ r + (self.program[2] - a) @ xi + tau * last
        if self.cone:
            B, Z = self._to_matrix(self.x), self.Z
            if move is not None:
                B, Z = B + length * self._to_matrix(move.x), Z + length * move.Z
            products += np.vdot(B, Z)
        return float(products) / (2 * len(a) + self.positive_last + self.cone)

    def _to_matrix(self, x: Vector) -> Matrix:
        return smat(x[self.entries], self.cone)

    def factor(self) -> bool:
        """Factorize the matrix of the Newton steps. Return False if rounding prevents it."""
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
                self.inverse = inverse(self._to_matrix(self.x))
            except linalg.LinAlgError:
                return False
            H[self.entries, self.entries] += symmetric_kronecker(self.inverse, self.Z)
            self.amiss[self.entries] -= svec(self.Z)
        self.cholesky = _factor_cholesky(H)
        return self.cholesky is not None

    def compute_cone_target(self, move: HingeMove, center: float) -> Matrix:
        """Return the target for the multiplier of the cone, with a second-order correction."""
        if not self.cone:
            return self.Z
        return center * self.inverse - sym(self.inverse @ self._to_matrix(move.x) @ move.Z)

    def solve_direction(
        self, aim_a: Vector, aim_s: Vector, aim_x: float, aim_Z: Matrix | None = None
    ) -> HingeMove:
        """Return the Newton step towards given values of the complementarity products."""
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
            pull = pull - sym(self.inverse @ self._to_matrix(dx) @ self.Z)
        return HingeMove(dx, da, dr, dxi, float(dtau), pull)

    def find_max_step(self, move: HingeMove) -> float:
        """Return the longest step length, at most 1, at which all variables stay nonnegative."""
        worst: float = max(
            np.max(-move.a / self.a),
            np.max(move.a / self.s),
            np.max(-move.r / self.r),
            np.max(-move.xi / self.xi),
        )
        if self.positive_last:
            worst = max(worst, -move.x[-1] / self.x[-1], -move.tau / self.tau)
        if self.cone:
            B, dB = self._to_matrix(self.x), self._to_matrix(move.x)
            worst = max(worst, 1 / longest_step(B, dB), 1 / longest_step(self.Z, move.Z))
        return min(1.0, 1 / float(worst)) if worst > 0 else 1.0

    def take_step(self, move: HingeMove, length: float) -> Self:
        """Return the point after a step."""
        point = copy(self)
        point.x, point.a = self.x + length * move.x, self.a + length * move.a
        point.r, point.xi = self.r + length * move.r, self.xi + length * move.xi
        point.tau, point.Z = self.tau + length * move.tau, self.Z + length * move.Z
        return point

    def clip_to_interior(self) -> Self:
        """Move variables away from their bounds, where rounding may have put them.

        Later steps could not move a variable away from its bound.
        """
        cost = self.program[2]
        self.a = np.clip(self.a, 1e-40 * cost, (1 - 1e-15) * cost)
        self.r, self.xi = np.maximum(self.r, 1e-300), np.maximum(self.xi, 1e-300)
        return self


def _factor_cholesky(H: Matrix) -> Matrix | None:
    """Return the Cholesky factor of H, with a small ridge if necessary, or None on failure."""
    if not np.isfinite(H).all():
        return None
    level = float(np.trace(H)) / len(H)
    for ridge in (0.0, 1e-16, 1e-13, 1e-10):
        shifted = H.copy()
        shifted.flat[:: len(H) + 1] += ridge * level
        # Call LAPACK directly. For small matrices, SciPy's input checks would take half the time.
        factor, failed = lapack.dpotrf(shifted, lower=1)
        if not failed:
            return np.asarray(factor)
    return None
