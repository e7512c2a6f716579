r"""Unfolding within a basis: a small semidefinite program over many edges.

Where :math:`K = Q Z Q^T` with few columns in Q, the squared length of an edge is
:math:`q_e^T Z q_e`, :math:`q_e = Q_i - Q_j`, and unfolding becomes

.. math::
    \max_{Z \succeq 0} \; \mathrm{tr}(C Z) - c \sum_e (q_e^T Z q_e - D_e)^2
    \qquad\text{or}\qquad
    \max_{Z \succeq 0} \; \mathrm{tr}(C Z), \quad q_e^T Z q_e \le D_e .

Both are solved by a primal-dual interior point method with the dual slack

.. math:: S = \sum_e w_e q_e q_e^T - C \succeq 0 .

For squared slack w follows from Z, and a step is solved for the m (m + 1) / 2 entries of Z: with
:math:`a_e = \mathrm{svec}(q_e q_e^T)` and Z S = μ I linearised as
:math:`dS = \mu Z^{-1} - S - \mathrm{sym}(Z^{-1} dZ \, S)`,

.. math:: \Bigl( 2c \sum_e a_e a_e^T + \mathrm{sym}(Z^{-1} \cdot S) \Bigr) dZ = \cdots

The sum is built once, O(E m⁴ / 4), and steps do not see the edges again: O(m⁶) each, for few
functions. For inequalities only those edges take part that have been violated so far, some ten
times m, and a step is solved for their weights:

.. math:: \bigl( (q Z q^T) \circ (q S^{-1} q^T) + \mathrm{diag}(s / w) \bigr) dw = \cdots ,

O(m³) with a large constant.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.blocks import row_blocks
from nearfar.solvers.symmetric_vectors import inverse as inverse_of
from nearfar.solvers.symmetric_vectors import (
    longest_step,
    smat,
    svec,
    svec_of_squares,
    sym,
    symmetric_kronecker,
)

_MAX_STEPS = 100
_MAX_ROUNDS = 60


class Unfolded(NamedTuple):
    """A solution in the basis: Z, the weights of the edges, both values, steps taken."""

    Z: Matrix
    weights: Vector
    value: float
    bound: float
    n_iter: int

    @property
    def gap(self) -> float:
        """Relative distance of the value from the best in the basis."""
        return (self.bound - self.value) / max(abs(self.bound), np.finfo(float).tiny)


def unfold_with_slack(
    rows: Matrix, squared: Vector, C: Matrix, price: float, tol: float = 1e-9
) -> Unfolded:
    """Squared slack: Z for which trace less the price of slack is largest, to a relative gap.

    ``rows`` are the :math:`q_e`; D is of mean about 1; C is the identity for an orthonormal,
    centred basis.
    """
    R, C_ = _balanced(rows, C)
    q = rows @ R
    m = q.shape[1]
    G, h = 2 * price * _moments(q), 2 * price * svec(q.T @ (squared[:, None] * q))
    constant = price * float(squared @ squared)
    c = svec(C_)
    Z = squared.sum() / max(float(np.sum(q * q)), np.finfo(float).tiny) * np.eye(m)
    S = max(float(np.linalg.norm(C_)), np.finfo(float).tiny) * np.eye(m)
    best, n_iter = Z, 0
    while n_iter < _MAX_STEPS:
        n_iter += 1
        z = svec(Z)
        pull = G @ z - h  # svec of sum_e w_e q_e q_e', w = 2c (q'Zq - D)
        gap = float(np.sum(Z * S))
        residual = float(np.linalg.norm(c - pull + svec(S)))
        best = Z
        if gap <= tol * float(c @ z) and residual <= 1e-7 * float(np.linalg.norm(c)):
            break
        try:
            inverse = inverse_of(Z)
            newton = linalg.cho_factor(G + symmetric_kronecker(inverse, S))
            dZ, dS = _slack_direction(newton, c - pull, inverse, S, 0.0, np.zeros((m, m)))
            reach = min(_step(Z, dZ), _step(S, dS))
            after = float(np.sum((Z + reach * dZ) * (S + reach * dS)))
            target = gap / m * min(1.0, max(after, 0.0) / gap) ** 2
            second = sym(inverse @ dZ @ dS)
            dZ, dS = _slack_direction(newton, c - pull, inverse, S, target, second)
            # One length for both: S depends on Z through the slack.
            reach = min(_step(Z, dZ), _step(S, dS))
        except linalg.LinAlgError:  # as near as rounding allows
            break
        Z, S = Z + reach * dZ, S + reach * dS
        if reach < 1e-8:
            break
    Z = R @ best @ R.T
    weights = 2 * price * (_lengths(rows, Z) - squared)
    z = svec(best)
    value = float(c @ z - (z @ G @ z) / 2 + h @ z) - constant
    bound = _slack_bound(rows, squared, C, price, weights)
    return Unfolded(Z, weights, value, bound, n_iter)


def _slack_direction(
    newton: tuple[Matrix, bool],
    short: Vector,
    inverse: Matrix,
    S: Matrix,
    mu: float,
    second: Matrix,
) -> tuple[Matrix, Matrix]:
    """Steps of Z and S towards Z S = μ I; ``second`` is what the step before left out."""
    dZ = smat(linalg.cho_solve(newton, short + svec(mu * inverse - second)), len(S))
    return dZ, mu * inverse - S - sym(inverse @ dZ @ S) - second


def unfold_with_inequalities(
    rows: Matrix, squared: Vector, C: Matrix, tol: float = 1e-6
) -> Unfolded:
    """Inequalities: Z of largest trace with no edge too long; edges join when they are violated.

    ``rows``, the :math:`q_e`, span all directions, and D > 0. It stops at a relative gap, and a
    relative violation of edges that took no part, of ``tol``. Z is feasible: what is left of
    violations is repaired by shrinking.
    """
    R, C_ = _balanced(rows, C)
    q = rows @ R
    m = q.shape[1]
    batch = 10 * m + 100  # about m edges hold the solution in the end
    # To begin with, those that would be violated most if all directions grew alike.
    active = np.sort(np.argsort(-np.sum(q * q, axis=1) / squared, kind="stable")[:batch])
    Z, known = np.zeros((m, m)), np.zeros(len(q))
    n_iter, near = 0, max(tol, 1e-2)  # roughly first, while edges still come and go
    for _ in range(_MAX_ROUNDS):
        while True:
            spread = linalg.eigvalsh(q[active].T @ q[active])
            if len(active) == len(q) or spread[0] > 1e-10 * spread[-1]:
                break
            # Some direction is not yet held by any edge: take more, evenly.
            more = np.linspace(0, len(q) - 1, min(len(q), 2 * len(active))).astype(np.intp)
            active = np.union1d(active, more)
        Z, w, steps = _inequality_steps(
            q[active], squared[active], C_, near, (Z, known[active]) if known.any() else None
        )
        known = np.zeros(len(q))
        known[active] = _holding(q[active], w, C_)
        n_iter += steps
        ratio = _lengths(q, Z) / squared
        violated = np.flatnonzero(ratio > 1 + max(near, 10 * (ratio[active].max() - 1)))
        if violated.size:
            worst = violated[np.argsort(-ratio[violated], kind="stable")[:batch]]
            # Edges far from their length leave: they would only make steps dearer.
            busy = (ratio[active] > 0.8) | (w > 1e-3 * w.max())
            active = np.union1d(active[busy], worst)
        elif near == tol:
            break
        else:
            near = tol
    Z = Z / max(1.0, float(ratio.max()))
    weights = _holding(q, known, C_)  # the weights of the last round make a bound
    return Unfolded(R @ Z @ R.T, weights, float(np.sum(C_ * Z)), float(weights @ squared), n_iter)


def _holding(q: Matrix, weights: Vector, C: Matrix) -> Vector:
    """Weights scaled so that their moment exceeds C; where they hold nothing, equal ones help."""
    for share in (0.0, 1e-12, 1e-9, 1e-6, 1e-3, 1.0):
        more = weights + share * float(weights.max())
        try:
            return np.asarray(more * linalg.eigvalsh(C, q.T @ (more[:, None] * q))[-1])
        except linalg.LinAlgError:
            continue
    return np.full(len(weights), np.inf)


def _inequality_steps(
    q: Matrix, squared: Vector, C: Matrix, tol: float, start: tuple[Matrix, Vector] | None
) -> tuple[Matrix, Vector, int]:
    """Z and weights by the interior point method with the given edges, from an earlier Z.

    Steps are solved for dw: a matrix of the size of the edges, as few as hold Z, which is far less
    than the entries of Z squared.
    """
    m = q.shape[1]
    # It begins, and so it stays, where no edge is too long and the weights hold everything.
    Z = 0.5 * float(np.min(squared / np.sum(q * q, axis=1))) * np.eye(m)
    w = np.full(len(q), 2 * float(linalg.eigvalsh(C, q.T @ q)[-1]))
    if start is not None:
        Z = Z + 0.9 * start[0] / max(1.0, float(np.max(_lengths(q, start[0]) / squared)))
        Z /= max(1.0, 1.05 * float(np.max(_lengths(q, Z) / squared)))
        w = 0.02 * w + 1.02 * start[1]
    s = squared - _lengths(q, Z)
    S = q.T @ (w[:, None] * q) - C
    best, n_iter = _Inner(Z, s, w, S), 0
    while n_iter < _MAX_STEPS:
        n_iter += 1
        now = best
        gap = float(np.sum(now.Z * now.S) + now.w @ now.s)
        short = squared - _lengths(q, now.Z) - now.s
        loose = C - q.T @ (now.w[:, None] * q) + now.S
        dual_feasible = np.linalg.norm(loose) <= 1e-8 * np.linalg.norm(C)
        if gap <= tol * abs(float(np.sum(C * now.Z))) and dual_feasible:
            break
        try:
            inverse = inverse_of(now.S)
            schur = (q @ now.Z @ q.T) * (q @ inverse @ q.T)
            np.einsum("ee->e", schur)[:] += now.s / now.w
            parts = (linalg.cho_factor(schur), q, loose, short, inverse, now)
            first = _inequality_direction(*parts, 0.0, np.zeros((m, m)), np.zeros(len(q)))
            tried = now.moved(first)
            after = float(np.sum(tried.Z * tried.S) + tried.w @ tried.s)
            target = gap / (m + len(q)) * min(1.0, max(after, 0.0) / gap) ** 2
            second = sym(first.Z @ first.S @ inverse)
            best = now.moved(_inequality_direction(*parts, target, second, first.w * first.s))
        except linalg.LinAlgError:
            break
        if not (np.isfinite(best.w).all() and np.isfinite(best.Z).all()):
            best = now
            break
    return best.Z, best.w, n_iter


class _Inner(NamedTuple):
    """A point inside: Z and slacks s, weights w and the dual slack S; or a direction."""

    Z: Matrix
    s: Vector
    w: Vector
    S: Matrix

    def moved(self, by: _Inner) -> _Inner:
        here = min(_step(self.Z, by.Z), _ray(self.s, by.s))
        there = min(_step(self.S, by.S), _ray(self.w, by.w))
        return _Inner(
            self.Z + here * by.Z,
            self.s + here * by.s,
            self.w + there * by.w,
            self.S + there * by.S,
        )


def _inequality_direction(
    newton: tuple[Matrix, bool],
    q: Matrix,
    loose: Matrix,
    short: Vector,
    inverse: Matrix,
    now: _Inner,
    mu: float,
    second: Matrix,
    cross: Vector,
) -> _Inner:
    """The step towards Z S = μ I and w s = μ; ``inverse`` is that of S."""
    target = mu * inverse - now.Z + sym(now.Z @ loose @ inverse) - second
    right = _lengths(q, target) + (mu - cross) / now.w - now.s - short
    dw = linalg.cho_solve(newton, right)
    change = q.T @ (dw[:, None] * q)
    dZ = target - sym(now.Z @ change @ inverse)
    ds = (mu - cross - now.s * dw) / now.w - now.s
    return _Inner(dZ, ds, dw, change - loose)


# ---------------------------------------------------------------------- helpers


def _balanced(rows: Matrix, C: Matrix) -> tuple[Matrix, Matrix]:
    """R for which the rows of ``rows @ R`` have unit second moment, and C in these coordinates.

    For eigenvectors of the graph's Laplacian this divides by roots of eigenvalues. Directions in
    which no edge has any length are left out: nothing would hold them, and C has none there.
    """
    moment = rows.T @ rows / max(len(rows), 1)
    values, vectors = linalg.eigh(moment)
    kept = values > 1e-13 * values[-1]
    R = vectors[:, kept] / np.sqrt(values[kept])
    return R, sym(R.T @ C @ R)


def _slack_bound(rows: Matrix, squared: Vector, C: Matrix, price: float, weights: Vector) -> float:
    """w'D + |w|²/4c for weights scaled until their moment exceeds C, within the basis."""
    R, C_ = _balanced(rows, C)
    q = rows @ R
    moment = sym(q.T @ (weights[:, None] * q))
    values = linalg.eigvalsh(moment)
    if values[0] <= 0:
        return np.inf
    least = float(linalg.eigvalsh(C_, moment)[-1])
    linear, square = float(weights @ squared), float(weights @ weights) / (4 * price)
    scale = least if square == 0 else max(least, -linear / (2 * square))
    return scale * linear + scale**2 * square


def _lengths(rows: Matrix, Z: Matrix) -> Vector:
    return np.einsum("ea,ea->e", rows @ Z, rows)


def _moments(rows: Matrix) -> Matrix:
    r""":math:`\sum_e a_e a_e^T` with :math:`a_e = svec(q_e q_e^T)`."""
    size = rows.shape[1] * (rows.shape[1] + 1) // 2
    total = np.zeros((size, size))
    for block in row_blocks(len(rows), 16 * size, at_most=4096):
        a = svec_of_squares(rows[block])
        total += a.T @ a
    return total


def _step(M: Matrix, dM: Matrix) -> float:
    """How far M + t dM stays positive definite, with some distance, at most 1."""
    return min(1.0, 0.95 * longest_step(M, dM))


def _ray(v: Vector, dv: Vector) -> float:
    falling = dv < 0
    return min(1.0, 0.95 * float(np.min(-v[falling] / dv[falling], initial=np.inf)))
