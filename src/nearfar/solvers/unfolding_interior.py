r"""Primal-dual interior-point method for unfolding with the full Gram matrix, for small graphs.

On the complement of the constant vector, with :math:`X = P^T K P \succ 0`, it follows the central
path

.. math:: X Z = \mu I, \qquad Z = A^T(y) \mp I \succ 0 , \qquad A(X) + \text{slack} = D ,

where :math:`A(X)_e = u_e^T X u_e` is the squared length of an edge and :math:`A^T(y)` the Laplacian
of the weights. The matrix of a step is :math:`(U X U^T) \circ (U Z^{-1} U^T)`, with one row per
edge. Building it needs only differences of rows and columns. Its Cholesky factorization dominates
the cost: m³/3 for m edges, with 3 m² numbers of memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.eigen import compute_min_eigenvalue
from nearfar.solvers.unfolding import Edges, Move, Problem, Slack, Unfolding, UnfoldingInterrupted
from nearfar.solvers.unfolding_span import SpannedEdges

#: Keys of the history. Each key has one number per step.
INTERIOR_HISTORY = ("trace", "gap", "residual", "step", "active", "seconds")

# Length of a step, as a fraction of the distance to the boundary.
_STEP_FRACTION = 0.95


def solve_by_interior_point(
    problem: Problem,
    *,
    tol: float = 1e-7,
    max_iter: int = 100,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Unfolding:
    """Solve the unfolding problem over all Gram matrices.

    The solver stops when the relative gap is at most ``tol``.

    Relative residuals are at most ``tol`` too. The factor has all columns. Rounding may stop the
    path before ``tol``, for example on problems without a strictly feasible point. The result is
    then the best iterate. ``report`` is called at each step with the new entries of the history.
    """
    start_time = time.perf_counter()
    path = _Path(problem)
    history: dict[str, list[float]] = {name: [] for name in INTERIOR_HISTORY}
    best = path.state()
    try:
        for _ in range(max_iter + 1):
            path.measure()
            size = np.abs(path.y) * path.D
            row = {
                "trace": float(np.trace(path.X)),
                "gap": path.gap,
                "residual": path.primal_residual,
                "step": path.step,
                "active": float((size > 1e-6 * size.sum() / len(size)).sum()),
                "seconds": time.perf_counter() - start_time,
            }
            for name, value in row.items():
                history[name].append(value)
            if report is not None:
                report(row)
            if path.error < best[0]:
                best = path.state()
            if path.error <= tol or len(history["gap"]) > max_iter or not path.advance():
                break
    except KeyboardInterrupt as interrupt:
        if not history["gap"]:  # Ctrl-C during the first step.
            raise
        raise UnfoldingInterrupted(_make_result(path, best, history)) from interrupt
    return _make_result(path, best, history)


def _make_result(
    path: _Path, best: tuple[float, Matrix, Vector], history: dict[str, list[float]]
) -> Unfolding:
    _, X, y = best
    return Unfolding(path.space.factor(X), y, max(0, len(history["gap"]) - 1), history)


class _CenteredSpace:
    """Linear operators on the complement of the constant vector, computed by a reflection."""

    def __init__(self, edges: Edges) -> None:
        self.edges = edges
        self.root = np.sqrt(edges.masses)
        h = self.root / np.linalg.norm(self.root)
        h[0] += 1.0  # The reflection maps the constant vector to minus the first axis.
        self.h = h * np.sqrt(2.0 / (h @ h))

    def _reflect(self, S: Matrix) -> Matrix:
        Sh = S @ self.h
        S = S - np.outer(Sh, self.h) - np.outer(self.h, Sh)
        return S + (self.h @ Sh) * np.outer(self.h, self.h)

    def start(self, a: float) -> tuple[Matrix, Matrix]:
        """Return starting values of X and Z far from the boundary of the cone."""
        n = len(self.root)
        return a * n / 10 * np.eye(n - 1), 10 * np.eye(n - 1)

    def lift(self, M: Matrix) -> Matrix:
        """Return the matrix C^(-1/2) P M P' C^(-1/2), with one row and one column per point."""
        n = len(self.root)
        S = np.zeros((n, n))
        S[1:, 1:] = M
        return self._reflect(S) / np.outer(self.root, self.root)

    def lengths(self, M: Matrix) -> Vector:
        """Return the value of the quadratic form M for each edge."""
        S = self.lift(M)
        i, j = self.edges.first, self.edges.second
        d = np.diag(S)
        return np.asarray(d[i] + d[j] - S[i, j] - S[j, i])

    def products(self, M: Matrix) -> Matrix:
        """Return the matrix U M U', with one row and one column per edge."""
        S = self.lift(M)
        i, j = self.edges.first, self.edges.second
        R = np.ascontiguousarray((S[i] - S[j]).T)
        return R[i] - R[j]

    def laplacian(self, y: Vector) -> Matrix:
        """Return the Laplacian of the weights y."""
        L = self.edges.laplacian(y).toarray() / np.outer(self.root, self.root)
        return self._reflect(L)[1:, 1:]

    def factor(self, X: Matrix) -> Matrix:
        """Return a factor Y with K = Y Y', using all eigenvectors with nonzero eigenvalues."""
        inner = _factor_matrix(X)
        Y = np.zeros((len(self.root), inner.shape[1]))
        Y[1:] = inner
        Y -= np.outer(self.h, self.h @ Y)
        return Y / self.root[:, None]


class _FunctionSpace:
    """Linear operators on function coefficients. An edge is a row with one entry per function."""

    def __init__(self, edges: SpannedEdges) -> None:
        self.edges = edges

    def start(self, a: float) -> tuple[Matrix, Matrix]:
        """Return starting values of X and Z, scaled by the moment of the edges.

        They are far from the boundary of the cone.
        """
        W = self.edges.moment(1 / self.edges.squared)
        values, vectors = linalg.eigh(W)
        values = np.maximum(values, 1e-12 * values[-1])
        X = (vectors / values) @ vectors.T
        shortest = float((self.lengths(X) / self.edges.squared).min())
        return a * X / shortest, 10 / float(values[0]) * (vectors * values) @ vectors.T

    def lengths(self, M: Matrix) -> Vector:
        """Return the value of the quadratic form M for each edge."""
        return np.einsum("ea,ea->e", self.edges.rows @ M, self.edges.rows)

    def products(self, M: Matrix) -> Matrix:
        """Return the matrix q M q', with one row and one column per edge."""
        return np.asarray(self.edges.rows @ M @ self.edges.rows.T)

    def laplacian(self, y: Vector) -> Matrix:
        """Return the moment of the weights y, which is used instead of the Laplacian."""
        return self.edges.moment(y)

    def factor(self, X: Matrix) -> Matrix:
        """Return a factor Y with X = Y Y', using all eigenvectors with nonzero eigenvalues."""
        return _factor_matrix(X)


class _Path:
    """Iterate of the interior-point method: X, Z, the edge weights y and the slacks."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        edges = problem.edges
        self.space: _CenteredSpace | _FunctionSpace
        self.space = (
            _FunctionSpace(edges) if isinstance(edges, SpannedEdges) else _CenteredSpace(edges)
        )
        self.D = D = edges.squared
        n, m = edges.dimension + 1, len(D)
        a = max(1.0, 10 / 3 * float((1 + D).max()))
        self.identity = np.eye(n - 1)
        self.X, self.Z = self.space.start(a)
        self.y = np.zeros(m)
        signs = {"inequality": ((1.0, 0.0),), "l1": ((-1.0, problem.price), (1.0, problem.price))}
        self.slacks = [
            Slack(sign, price, np.full(m, a), np.full(m, 10.0))
            for sign, price in signs.get(problem.constraints, ())
        ]
        # With squared slack, the slack of an edge is give · y.
        self.give = 0.5 / problem.price if problem.constraints == "squared" else 0.0
        self.degree = n - 1 + m * len(self.slacks)
        self.step = 1.0
        self.error = np.inf

    def state(self) -> tuple[float, Matrix, Vector]:
        return self.error, self.X, self.y

    def measure(self) -> None:
        """Compute the residuals, the gap and the barrier parameter μ of the iterate."""
        sign = self.problem.sign
        self.F = sign * self.identity + self.Z - self.space.laplacian(self.y)
        self.f = [slack.excess(self.y) for slack in self.slacks]
        self.short = self.D - self.space.lengths(self.X) + self.give * self.y
        for slack in self.slacks:
            self.short -= slack.sign * slack.s
        square = 0.5 * self.give * float(self.y @ self.y)
        cost = sum(slack.price * float(slack.s.sum()) for slack in self.slacks)
        primal = sign * float(np.trace(self.X)) - cost - square
        dual = float(self.y @ self.D) + square
        self.gap = abs(dual - primal) / max(abs(dual), abs(primal), 1.0)
        self.primal_residual = float((np.abs(self.short) / self.D).max())
        large = max([float(np.abs(self.F).max()), *(float(np.abs(f).max()) for f in self.f)])
        self.dual_residual = large / (1 + float(np.abs(self.y).max()))
        product = float(np.sum(self.X * self.Z)) + sum(float(b.s @ b.z) for b in self.slacks)
        self.mu = product / self.degree
        self.error = max(self.gap, self.primal_residual, self.dual_residual)

    def advance(self) -> bool:
        """Take a predictor-corrector step. Return False if rounding prevents it."""
        try:
            self.inverse = linalg.cho_solve(linalg.cho_factor(self.Z), self.identity)
            self.inverse = (self.inverse + self.inverse.T) / 2
            self._factor()
            moves = self._direction(0.0, None)
            primal, dual = self._steps(*moves)
            dX, _, dZ, slack_moves = moves
            after = float(np.sum((self.X + primal * dX) * (self.Z + dual * dZ)))
            for slack, (ds, dz) in zip(self.slacks, slack_moves, strict=True):
                after += float((slack.s + primal * ds) @ (slack.z + dual * dz))
            centering = min(1.0, max(after / (self.degree * self.mu), 0.0) ** 2)
            moves = self._direction(centering * self.mu, moves)
            primal, dual = (min(1.0, _STEP_FRACTION * step) for step in self._steps(*moves))
        except (linalg.LinAlgError, ValueError):
            return False
        dX, dy, dZ, slack_moves = moves
        self.X, self.y, self.Z = self.X + primal * dX, self.y + dual * dy, self.Z + dual * dZ
        for slack, move in zip(self.slacks, slack_moves, strict=True):
            slack.advance(primal, dual, move)
        self.step = min(primal, dual)
        return self.step > 1e-6

    def _factor(self) -> None:
        """Factorize the Schur complement. If necessary, increase its diagonal."""
        S = self.space.products(self.X)
        S *= self.space.products(self.inverse)
        diagonal = np.einsum("ee->e", S)
        diagonal += self.give
        for slack in self.slacks:
            diagonal += slack.s / slack.z
        size = float(diagonal.mean())
        for extra in (0.0, 1e-12, 1e-10, 1e-8, 1e-6):
            try:
                diagonal += extra * size
                # The factorization uses the lower triangle and does not overwrite S.
                self.schur = linalg.cho_factor(S, lower=True, check_finite=False)
                return
            except linalg.LinAlgError:
                continue
        raise linalg.LinAlgError("the Schur complement is not definite")

    def _direction(
        self, aim: float, predictor: tuple[Matrix, Vector, Matrix, list[Move]] | None
    ) -> tuple[Matrix, Vector, Matrix, list[Move]]:
        """Return the Newton step towards X Z = aim · I.

        It includes the second-order terms of the predictor.
        """
        X, inverse = self.X, self.inverse
        target = aim * inverse + _symmetrize(X @ self.F @ inverse)
        corrections = [np.zeros(len(self.y)) for _ in self.slacks]
        quadratic = None
        if predictor is not None:
            quadratic = _symmetrize(predictor[0] @ predictor[2] @ inverse)
            target -= quadratic
            corrections = [ds * dz for ds, dz in predictor[3]]
        right = self.space.lengths(target) - self.D
        right -= self.give * self.y
        for slack, f, correction in zip(self.slacks, self.f, corrections, strict=True):
            right += slack.sign * (aim - correction + slack.s * f) / slack.z
        dy = linalg.cho_solve(self.schur, right, check_finite=False)
        if not np.isfinite(dy).all():
            raise linalg.LinAlgError("the step is not finite")
        dZ = self.space.laplacian(dy) - self.F
        dX = aim * inverse - X - _symmetrize(X @ dZ @ inverse)
        if quadratic is not None:
            dX -= quadratic
        moves = [
            slack.direction(aim, correction, f, dy)
            for slack, f, correction in zip(self.slacks, self.f, corrections, strict=True)
        ]
        return dX, dy, dZ, moves

    def _steps(self, dX: Matrix, dy: Vector, dZ: Matrix, moves: list[Move]) -> tuple[float, float]:
        """Return the lengths of the primal and the dual step, at most 1 / _STEP_FRACTION."""
        primal, dual = _inverse_step_to_boundary(self.X, dX), _inverse_step_to_boundary(self.Z, dZ)
        for slack, (ds, dz) in zip(self.slacks, moves, strict=True):
            primal = max(primal, float((-ds / slack.s).max()))
            dual = max(dual, float((-dz / slack.z).max()))
        max_step = 1 / _STEP_FRACTION
        return 1 / max(primal, 1 / max_step), 1 / max(dual, 1 / max_step)


def _factor_matrix(X: Matrix) -> Matrix:
    """Return a factor Y with X = Y Y', using all eigenvectors with nonzero eigenvalues."""
    values, vectors = linalg.eigh(X)
    mask = values > 1e-13 * max(values[-1], np.finfo(float).tiny)
    return np.asarray(vectors[:, mask][:, ::-1] * np.sqrt(values[mask][::-1]))


def _symmetrize(M: Matrix) -> Matrix:
    return (M + M.T) / 2


def _inverse_step_to_boundary(M: Matrix, dM: Matrix) -> float:
    """Return the inverse of the step at which M + step · dM leaves the cone.

    The result is 0 or negative if it never leaves the cone.
    """
    L = linalg.cholesky(M, lower=True)
    half_product = linalg.solve_triangular(L, dM, lower=True)
    product = linalg.solve_triangular(L, half_product.T, lower=True)
    return -compute_min_eigenvalue(_symmetrize(product))
