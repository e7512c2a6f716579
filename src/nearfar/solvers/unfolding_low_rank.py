r"""Unfolding with a factor of few columns, :math:`K = Y Y^T`, for graphs of many points.

A primal-dual interior-point method in Y, the edge weights w and the slacks of the edges. A step
solves

.. math::
    \bigl( 2 (L_w \mp C) \otimes I + J^T E^{-1} J \bigr) \, \mathrm{vec}(dY) = \text{residuals} ,

where C contains the masses, J the derivatives of the squared edge lengths, and the diagonal E slack
divided by multiplier. The matrix has a small block for each point and each edge. Its factorization
is sparse if the points lie near a low-dimensional manifold. The signs of its pivots show whether it
is definite.

In Y the problem is not convex. At a saddle point the Laplacian of the weights has an eigenvalue
:math:`\lambda_2 < 1`, and the method leaves the saddle along its eigenvector. At the end
:math:`\lambda_2 = 1`, which certifies the optimum among all K.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import splu

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.unfolding import (
    Bound,
    Edges,
    Move,
    Problem,
    Slack,
    Unfolding,
    UnfoldingInterrupted,
    dual_bound,
    relative_gap,
    repair_factor,
    rotate_to_axes,
    symmetric_factor,
)
from nearfar.solvers.unfolding_span import DenseSystem, SpannedEdges

#: Keys of the history. Each key has one number per step.
LOW_RANK_HISTORY = ("trace", "bound", "gap", "residual", "step", "active", "seconds")

# Minimum regularization of the second derivative, which is zero in the directions of rotations.
_REGULAR = 1e-5
# Maximum regularization. With a larger value, no point would move.
_MAX_REGULAR = 1e6
# Maximum squared change of an edge vector in one step, relative to its squared length.
_MAX_TURN = 1.0
# The method escapes from a saddle point if λ_2 is below 1 by more than this tolerance.
_UNSTABLE = 1e-6
# Fraction of the edges' slack that a step away from a saddle point uses.
_SLACK_FRACTION = 0.5
# Number of centering steps after an escape from a saddle point.
_CENTERED = 3
# Complementarity below which the iteration ends, in units of the requested gap.
_MIN_COMPLEMENTARITY = 1e-5
# Number of consecutive escapes from saddle points after which columns are added.
_MAX_ESCAPES = 4
# Fraction of the trace below which a column is dropped.
_EMPTY = 1e-4


def solve_low_rank(
    problem: Problem,
    *,
    n_columns: int | None = None,
    start: Matrix | None = None,
    tol: float = 1e-6,
    max_iter: int = 200,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Unfolding:
    """Solve the unfolding problem for a factor with few columns.

    The solver stops when the relative gap is at most ``tol``.

    The default ``start`` is classical scaling of shortest paths. The default ``n_columns`` is two
    more than the start has, but from 4 to 8 for inequalities and from 10 to 12 for other
    constraints. Columns are added if the method cannot leave a saddle point without them.
    ``report`` is called at each step with the new entries of the history. The result, also after
    Ctrl-C, has the best feasible factor and the weights of the best bound, which may belong to
    different iterates.
    """
    start_time = time.perf_counter()
    edges = problem.edges
    Y = place_by_landmarks(edges) if start is None else edges.centered(start)
    if n_columns is None:
        n_columns = _choose_n_columns(problem, Y)
    iterate = _Iterate(problem, _set_n_columns(edges, Y, min(n_columns, edges.dimension)))
    best = _Best(problem)
    history: dict[str, list[float]] = {name: [] for name in LOW_RANK_HISTORY}
    try:
        for _ in range(max_iter + 1):
            iterate.measure()
            best.update_factor(iterate.Y)
            if iterate.is_near:
                values, vectors = edges.eigenpairs(iterate.w, 4)
                best.update_weights(iterate.w, float(values[0]))
            row = {
                "trace": edges.trace(iterate.Y),
                "bound": best.bound.value,
                "gap": best.gap,
                "residual": problem.residual(iterate.Y),
                "step": iterate.step,
                "active": float(iterate.n_active),
                "seconds": time.perf_counter() - start_time,
            }
            for name, value in row.items():
                history[name].append(value)
            if report is not None:
                report(row)
            if best.gap <= tol or len(history["gap"]) > max_iter:
                break
            if iterate.is_near:
                iterate.trim()
                iterate.escape(values, vectors)
            if iterate.is_spent(tol) or not iterate.advance():
                break
    except KeyboardInterrupt as interrupt:
        if not history["gap"]:  # Ctrl-C during the first step.
            raise
        raise UnfoldingInterrupted(best.result(history, iterate)) from interrupt
    return best.result(history, iterate)


class _Best:
    """The best feasible factor and the best bound so far, which may be from different iterates."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.value = -np.inf
        self.factor: Matrix | None = None
        self.bound = Bound(np.inf, np.zeros(len(problem.edges)), -np.inf)

    def update_factor(self, Y: Matrix) -> None:
        problem = self.problem
        if problem.constraints == "equality" and problem.residual(Y) > 1e-6:
            return
        Y = repair_factor(problem, Y)
        value = problem.value(Y)
        if value > self.value:
            self.value, self.factor = value, Y

    def update_weights(self, w: Vector, eigenvalue: float) -> None:
        bound = dual_bound(self.problem, w, eigenvalue)
        if bound.value < self.bound.value:
            self.bound = bound

    @property
    def gap(self) -> float:
        if not np.isfinite([self.value, self.bound.value]).all():
            return np.inf
        return relative_gap(self.value, self.bound.value)

    def result(self, history: dict[str, list[float]], iterate: _Iterate) -> Unfolding:
        factor = iterate.Y if self.factor is None else self.factor
        weights = self.bound.weights if np.isfinite(self.bound.value) else iterate.w
        return Unfolding(factor, weights, max(0, len(history["gap"]) - 1), history)


class _Iterate:
    """A factor, edge weights and slacks, with methods that compute the next iterate."""

    def __init__(self, problem: Problem, Y: Matrix) -> None:
        self.problem = problem
        self.edges = problem.edges
        self.Y = Y
        self.system = _create_system(self.edges, Y.shape[1])
        D = self.edges.squared
        lengths = self.edges.squared_lengths(Y)
        # The products w · D sum to the trace, so their mean is a typical value of a product.
        typical = self.edges.trace(Y) / len(D)
        self.w = np.zeros(len(D))
        self.slacks: list[Slack] = []
        # Weight at which `give` does not increase the squared length of an edge.
        self.anchor = np.zeros(len(D))
        # Increase of the squared length of an edge per unit of weight above the anchor. The slacks
        # of the edge are added to this increase.
        self.give = np.zeros(len(D))
        if problem.constraints == "inequality":
            s = np.maximum(D - lengths, 0.1 * D)
            self.slacks = [Slack(1.0, 0.0, s, 0.1 * typical / s)]
            self.w = self.slacks[0].z.copy()
        elif problem.constraints == "l1":
            for sign, excess in ((-1.0, lengths - D), (1.0, D - lengths)):
                s = np.maximum(excess, 0) + 0.1 * D
                self.slacks.append(Slack(sign, problem.price, s, np.full(len(D), problem.price)))
        elif problem.constraints == "squared":
            self.give += 0.5 / problem.price
        else:
            # Equalities use a penalty. Their multipliers are stored in the anchor.
            self.give = 0.03 * D * D / typical
        self.reg = _REGULAR
        self.step = 1.0
        self.centered_steps = self.escapes = 0
        self.widened = False

    def measure(self) -> None:
        """Compute all quantities that depend on the iterate alone."""
        edges, D, C = self.edges, self.edges.squared, self.edges.masses
        self.delta = edges.differences(self.Y)
        self.over = np.einsum("er,er->e", self.delta, self.delta) - D
        self.over -= self.give * (self.w - self.anchor)
        for slack in self.slacks:
            self.over += slack.sign * slack.s
        pull = edges.incidence.T @ (self.w[:, None] * self.delta)
        self.gradient = 2 * (pull - self.problem.sign * C[:, None] * self.Y)
        trace = edges.trace(self.Y)
        self.complementarity = sum(float(slack.s @ slack.z) for slack in self.slacks) / trace
        size = 2 * np.sqrt(trace / C.sum())
        self.stationarity = float(np.abs(self.gradient / C[:, None]).max() / size)

    @property
    def is_near(self) -> bool:
        """Whether the weights are good enough to compute a bound from their eigenvalues."""
        return self.complementarity < 0.05 and self.stationarity < 1

    def is_spent(self, tol: float) -> bool:
        """Return True if complementarity is so small that further steps would divide by zero."""
        return bool(self.slacks) and self.complementarity < _MIN_COMPLEMENTARITY * tol

    @property
    def n_active(self) -> int:
        """Number of edges with a significant weight."""
        size = np.abs(self.w) * self.edges.squared
        return int((size > 1e-6 * size.sum() / len(size)).sum())

    def advance(self) -> bool:
        """Take one predictor-corrector step.

        Returns False if rounding prevents it.
        """
        if not self._factor():
            return False
        aim, corrections = 0.0, [np.zeros(len(self.w)) for _ in self.slacks]
        if self.slacks:
            _, _, moves = self._direction(aim, corrections)
            aim = self._choose_target(moves)
            corrections = [ds * dz for ds, dz in moves]
        dY, dw, moves = self._direction(aim, corrections)
        if not (np.isfinite(dY).all() and np.isfinite(dw).all()):
            return False
        primal, dual = self._steps(moves, 0.95)
        turn = float((self.edges.squared_lengths(dY) / self.edges.squared).max())
        primal = min(primal, np.sqrt(_MAX_TURN / max(turn, _MAX_TURN)))
        if not self.slacks:
            dual = primal
        self.Y = self.Y + primal * dY
        self.w = self.w + dual * dw
        for slack, move in zip(self.slacks, moves, strict=True):
            slack.advance(primal, dual, move)
        self.step = min(primal, dual)
        if self.step > 0.5:
            self.reg = max(self.reg / 4, _REGULAR)
        elif self.step < 0.1:
            self.reg = min(self.reg * 4, 1.9)
        if self.problem.constraints == "equality" and self.stationarity < 0.1 and self.step > 0.5:
            self.anchor = self.w
            self.give = self.give * 0.5
        return True

    def _factor(self) -> bool:
        """Factorize the system. Regularize it until it is positive definite on centered factors.

        Returns False if it stays numerically singular.
        """
        C, sign = self.edges.masses, self.problem.sign
        self.compliance = self.give.copy()
        for slack in self.slacks:
            self.compliance += slack.s / slack.z
        self.reg = min(self.reg, 1.9)
        while True:
            # The shift also has the sign of the eigenvalues of translations. Centered steps do not
            # depend on these eigenvalues.
            shift = self.reg - 2 * sign
            if self.system.factor(self.w, 1 / self.compliance, self.delta, shift * C):
                return True
            if self.reg > _MAX_REGULAR:
                return False
            self.reg *= 8

    def _direction(
        self, aim: float, corrections: list[Vector]
    ) -> tuple[Matrix, Vector, list[Move]]:
        """Return the Newton step towards slack · multiplier = aim.

        The step consists of dY, dw, and (ds, dz) for each slack.
        """
        target = self.over.copy()
        excess = [slack.excess(self.w) for slack in self.slacks]
        for slack, correction, f in zip(self.slacks, corrections, excess, strict=True):
            target += slack.sign * ((aim - correction + slack.s * f) / slack.z - slack.s)
        push = target / self.compliance
        right = -self.gradient - 2 * (self.edges.incidence.T @ (push[:, None] * self.delta))
        dY = self.edges.centered(self.system.solve(right))
        stretch = 2 * np.einsum("er,er->e", self.delta, self.edges.differences(dY))
        dw = push + stretch / self.compliance
        moves = [
            slack.direction(aim, correction, f, dw)
            for slack, correction, f in zip(self.slacks, corrections, excess, strict=True)
        ]
        return dY, dw, moves

    def _choose_target(self, moves: list[Move]) -> float:
        """Return the target complementarity by Mehrotra's rule.

        It has a limit, so that residuals decrease first.
        """
        primal, dual = self._steps(moves, 1.0)
        before = after = 0.0
        for slack, (ds, dz) in zip(self.slacks, moves, strict=True):
            before += float(slack.s @ slack.z)
            after += float((slack.s + primal * ds) @ (slack.z + dual * dz))
        centering = float(np.clip((max(after, 0.0) / before) ** 2, 1e-3, 1.0))
        residual = 0.1 * self.stationarity
        if self.problem.constraints == "inequality":
            residual = max(residual, self.problem.residual(self.Y))
        if residual > self.complementarity:
            centering = max(centering, 0.5)
        if self.centered_steps:
            centering = 1.0
        return centering * before / (len(self.w) * len(self.slacks))

    def _steps(self, moves: list[Move], fraction: float) -> tuple[float, float]:
        """Return the step fractions that keep slacks and multipliers positive."""
        primal = dual = 1.0
        for slack, (ds, dz) in zip(self.slacks, moves, strict=True):
            primal = min(primal, fraction / max(float((-ds / slack.s).max()), fraction))
            dual = min(dual, fraction / max(float((-dz / slack.z).max()), fraction))
        return primal, dual

    def escape(self, values: Vector, vectors: Matrix) -> None:
        r"""Leave a saddle point along eigenvectors of the Laplacian with an eigenvalue below 1.

        Adding such an eigenvector, in a spatial direction that the points nearby do not use,
        increases the trace. The slack of the edges limits the step.
        """
        self.centered_steps = max(0, self.centered_steps - 1)
        threshold = max(_UNSTABLE, 3 * self.complementarity)
        unstable = values < self.problem.sign - threshold
        if not unstable.any():
            self.centered_steps = self.escapes = 0
        if self.stationarity > 0.1 or not unstable.any() or self.centered_steps:
            return
        self.escapes += 1
        if self.escapes % _MAX_ESCAPES == 0 and self.Y.shape[1] < self.edges.dimension - 1:
            self.widened = True
            self._set_factor(np.hstack([self.Y, np.zeros((len(self.Y), 2))]))
        slack = 0.1 * self.edges.squared
        if self.problem.constraints == "inequality":
            slack = self.slacks[0].s
        for v in vectors[:, unstable].T:
            rise = self.edges.differences(v[:, None])[:, 0] ** 2
            used = (self.delta * rise[:, None]).T @ self.delta
            _, axes = linalg.eigh(used)
            size = np.sqrt(float((_SLACK_FRACTION * slack / np.maximum(rise, 1e-300)).min()))
            self.Y = self.Y + size * np.outer(v, axes[:, 0])
        self.centered_steps = _CENTERED
        self.measure()

    def trim(self) -> None:
        """Drop all columns with a negligible fraction of the trace except one."""
        if self.widened:
            return
        values, axes = rotate_to_axes(self.edges, self.Y, 0.0)
        n_kept = 1 + max(1, int((values > _EMPTY * values.sum()).sum()))
        if n_kept < self.Y.shape[1]:
            self._set_factor(axes[:, :n_kept])

    def _set_factor(self, Y: Matrix) -> None:
        self.Y = Y
        self.system = _create_system(self.edges, Y.shape[1])
        self.measure()


def _create_system(edges: Edges, n_columns: int) -> BlockSystem | DenseSystem:
    if isinstance(edges, SpannedEdges):
        return DenseSystem(edges, n_columns)
    return BlockSystem(edges, n_columns)


class BlockSystem:
    """Sparse symmetric linear systems with one r×r block per point and per edge."""

    def __init__(self, edges: Edges, n_columns: int) -> None:
        n, r = edges.n_points, n_columns
        self.edges, self.r = edges, r
        # Order the points so that the factors of the graph Laplacian are sparse.
        pattern = edges.laplacian(np.ones(len(edges))) + sparse.eye_array(n)
        self.position = np.asarray(symmetric_factor(pattern.tocsc()).perm_c, np.intp)
        points, first, second = (
            np.arange(n),
            self.position[edges.first],
            self.position[edges.second],
        )
        rows = np.concatenate([points, first, second])
        columns = np.concatenate([points, second, first])
        self._order = np.lexsort((columns, rows))
        starts = np.searchsorted(rows[self._order], np.arange(n + 1)).astype(np.int32)
        self._touching = abs(edges.incidence).T.tocsr()
        # To find the source of each stored entry, compress a matrix whose values are the entry
        # numbers.
        numbers = np.arange(len(rows) * r * r, dtype=np.float64).reshape(-1, r, r)
        block_columns = columns[self._order].astype(np.int32)
        compressed = sparse.bsr_array(
            (numbers, block_columns, starts), shape=(n * r, n * r)
        ).tocsr()
        self._entries = compressed.data.astype(np.intp)
        self._indices, self._indptr = compressed.indices, compressed.indptr

    def factor(self, weights: Vector, stiffness: Vector, delta: Matrix, diagonal: Vector) -> bool:
        """Factorize ``2 w I + 4 k δδ'`` per edge plus a multiple of I per point.

        Returns False if the matrix is not definite on centered factors.
        """
        n, r = self.edges.n_points, self.r
        diagonal_index = np.arange(r)
        edge = (4 * stiffness)[:, None, None] * (delta[:, :, None] * delta[:, None, :])
        edge[:, diagonal_index, diagonal_index] += 2 * weights[:, None]
        point = np.empty((n, r, r))
        point[self.position] = (self._touching @ edge.reshape(len(edge), r * r)).reshape(n, r, r)
        point[self.position[:, None], diagonal_index, diagonal_index] += diagonal[:, None]
        data = np.concatenate([point, -edge, -edge])[self._order].ravel()[self._entries]
        # For a symmetric matrix, the compressed rows are also the compressed columns.
        matrix = sparse.csc_array((data, self._indices, self._indptr), shape=(n * r, n * r))
        options = {"SymmetricMode": True}
        try:
            self._factor = splu(
                matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0, options=options
            )
        except RuntimeError:  # A pivot is exactly zero.
            return False
        # The eigenvalues of translations have the sign of the diagonal.
        negative = int((self._factor.U.diagonal() < 0).sum())
        return negative <= (r if diagonal[0] < 0 else 0)

    def solve(self, right: Matrix) -> Matrix:
        """Return the solution for a right-hand side in the order of the points."""
        ordered = np.empty_like(right)
        ordered[self.position] = right
        return np.asarray(self._factor.solve(ordered.ravel()).reshape(right.shape)[self.position])


def place_by_landmarks(edges: Edges, n_landmarks: int = 50) -> Matrix:
    """Place the points by classical scaling of their shortest paths to distant landmarks.

    It has as many columns as there are eigenvalues with at least 1% of the positive variance.
    """
    n = edges.n_points
    lengths = np.sqrt(edges.squared)
    # SciPy before 1.13 supports only 32-bit indices here.
    ends = edges.first.astype(np.int32), edges.second.astype(np.int32)
    graph = sparse.coo_array((lengths, ends), shape=(n, n)).tocsr()
    graph = (graph + graph.T).tocsr()
    landmark = int(np.argmax(csgraph.dijkstra(graph, indices=0)))
    paths, landmarks = np.empty((min(n_landmarks, n), n)), []
    for row in range(len(paths)):
        landmarks.append(landmark)
        paths[row] = csgraph.dijkstra(graph, indices=landmark)
        landmark = int(np.argmax(paths[: row + 1].min(axis=0)))
    squared = paths**2
    landmark_squared = squared[:, landmarks]
    mean = landmark_squared.mean(axis=1)
    gram = -0.5 * (landmark_squared - mean[:, None] - mean[None, :] + mean.mean())
    values, vectors = linalg.eigh((gram + gram.T) / 2)
    values, vectors = values[::-1], vectors[:, ::-1]
    n_kept = max(1, int((values > 0.01 * values[values > 0].sum()).sum()))
    Y = -0.5 * (squared - mean[:, None]).T @ (vectors[:, :n_kept] / np.sqrt(values[:n_kept]))
    return edges.centered(Y)


def _choose_n_columns(problem: Problem, Y: Matrix) -> int:
    # Negative weights push points apart in all directions. With more columns, there are fewer
    # saddle points.
    minimum, maximum = (4, 8) if problem.constraints == "inequality" else (10, 12)
    return min(max(Y.shape[1] + 2, minimum), maximum)


def _set_n_columns(edges: Edges, Y: Matrix, n_columns: int) -> Matrix:
    """Return Y on its principal axes with exactly ``n_columns`` columns.

    Missing columns are filled with smooth functions.
    """

    _, Y = rotate_to_axes(edges, Y)
    n_missing = n_columns - Y.shape[1]
    if n_missing <= 0:
        return Y[:, :n_columns]
    _, smooth = edges.eigenpairs(np.ones(len(edges)), n_columns)
    smooth = smooth[:, -n_missing:]
    slope = float((edges.squared_lengths(smooth) / edges.squared).max())
    return np.hstack([Y, np.sqrt(0.01 / slope) * smooth])
