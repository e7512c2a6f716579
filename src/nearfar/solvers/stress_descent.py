r"""Placement of the points of a graph with known edge lengths, by descent from a given start.

.. math:: \min_Y \; -\rho \sum_i \|y_i\|^2 + c \sum_e (\|y_i - y_j\|^2 - D_e)^2

for centered Y. With :math:`\rho = 1` this is unfolding with squared slack, in as many dimensions as
Y has columns. With :math:`\rho = 0` it is the stress of a placement, for sensor localization. The
problem is not convex, so the result depends on the start.

The method is L-BFGS with two accelerations. The initial inverse Hessian is a sparse factorization
of the graph Laplacian with weights D. It moves large groups of points as easily as single points,
while a gradient descent would need thousands of steps. Along a line the squared lengths are
parabolas, so the best step is found without evaluating the points again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.unfolding import Edges, symmetric_factor

# Number of past steps that L-BFGS stores.
_MEMORY = 10


class StressDescent(NamedTuple):
    """Result of :func:`descend_stress`.

    ``weights`` are the pulls of the edges, :math:`2 c (\\|y_i - y_j\\|^2 - D_e)`. Once the gradient
    is zero, they are the multipliers of the edges in unfolding. ``interrupt`` is the Ctrl-C that
    stopped the descent, if any.
    """

    factor: Matrix
    weights: Vector
    value: float
    n_iter: int
    converged: bool
    history: dict[str, list[float]]
    interrupt: KeyboardInterrupt | None = None


def descend_stress(
    edges: Edges,
    Y: Matrix,
    *,
    price: float,
    reward: float = 1.0,
    one_sided: bool = False,
    fixed: NDArray[np.bool_] | None = None,
    max_iter: int = 300,
    tol: float = 1e-7,
    report: Callable[[Matrix, dict[str, float]], None] | None = None,
) -> StressDescent:
    """Move points from the coordinates Y to a local minimum of the stress.

    In the formula of this module, ``price`` is c and ``reward`` is ρ. Squared lengths should have a
    mean of about 1. With ``one_sided``, only edges that are too long have a cost. Points that are
    ``fixed`` do not move. Y is then not centered, and ``reward`` must be 0.
    The descent stops when five steps together reduce the objective by less than the fraction
    ``tol``. ``report`` is called after each step with the coordinates, and with a dict of the step
    number and the new entries of the history.
    """
    objective = _Objective(edges, price, reward, one_sided)
    if fixed is None:
        Y = edges.centered(Y)
    free = slice(None) if fixed is None else np.flatnonzero(~fixed)
    solve = _create_preconditioner(edges, free)
    state = objective.evaluate(Y)
    gradient = _restrict_to_free(state.gradient, fixed)
    along = solve(gradient)
    memory: deque[tuple[Matrix, Matrix, Matrix, float]] = deque(maxlen=_MEMORY)
    history: dict[str, list[float]] = {"objective": [], "step": [], "seconds": []}
    start_time = time.perf_counter()
    n_iter, converged = 0, not np.any(gradient)
    interrupt = None
    try:
        while n_iter < max_iter and not converged:
            n_iter += 1
            P = _compute_direction(gradient, along, memory)
            slope = float(np.sum(gradient * P))
            if slope >= 0:
                # Discard the stored steps, because they no longer describe the curvature.
                memory.clear()
                P, slope = -along, -float(np.sum(gradient * along))
            step = objective.find_best_step(state, P, slope, first=not memory)
            if step == 0.0:
                converged = True
                break
            new_state = objective.evaluate(state.Y + step * P)
            # In rare cases, the step is too long.
            while new_state.value > state.value and step > 1e-12:
                step /= 4
                new_state = objective.evaluate(state.Y + step * P)
            state = new_state
            new_gradient = _restrict_to_free(state.gradient, fixed)
            new_along = solve(new_gradient)
            point_change, gradient_change = step * P, new_gradient - gradient
            product = float(np.sum(point_change * gradient_change))
            if product > 1e-12 * float(
                np.linalg.norm(point_change) * np.linalg.norm(gradient_change)
            ):
                memory.append((point_change, gradient_change, new_along - along, product))
            gradient, along = new_gradient, new_along
            row = {
                "objective": float(state.value),
                "step": float(step),
                "seconds": time.perf_counter() - start_time,
            }
            for name, value in row.items():
                history[name].append(value)
            if report is not None:
                report(state.Y, row | {"n_iter": n_iter})
            converged = _has_settled(
                history["objective"], tol, float(edges.squared @ edges.squared)
            )
    except KeyboardInterrupt as caught:
        interrupt = caught
    factor = edges.centered(state.Y) if fixed is None else state.Y
    weights = 2 * price * state.slack
    return StressDescent(
        factor, weights, state.value, len(history["step"]), bool(converged), history, interrupt
    )


class _State(NamedTuple):
    Y: Matrix
    differences: Matrix
    raw: Vector  # Squared edge lengths minus the target D.
    slack: Vector  # Part of `raw` that increases the cost.
    value: float
    gradient: Matrix


class _Objective:
    def __init__(self, edges: Edges, price: float, reward: float, one_sided: bool) -> None:
        self.edges, self.price, self.reward, self.one_sided = edges, price, reward, one_sided
        self._spread = edges.incidence.T.tocsr()

    def evaluate(self, Y: Matrix) -> _State:
        differences = self.edges.incidence @ Y  # This is twice as fast as indexing.
        raw = np.einsum("er,er->e", differences, differences) - self.edges.squared
        return self._create_state(Y, differences, raw)

    def _create_state(self, Y: Matrix, differences: Matrix, raw: Vector) -> _State:
        slack = np.maximum(raw, 0.0) if self.one_sided else raw
        value = self.price * float(slack @ slack)
        gradient = 4 * self.price * (self._spread @ (slack[:, None] * differences))
        if self.reward:
            Y = self.edges.centered(Y)
            value -= self.reward * self.edges.trace(Y)
            gradient -= 2 * self.reward * self.edges.masses[:, None] * Y
        return _State(Y, differences, raw, slack, value, np.asarray(gradient))

    def find_best_step(self, state: _State, P: Matrix, slope: float, *, first: bool) -> float:
        """Return the best step length along P, by Newton's method with bisection as a safeguard."""
        turn = self.edges.incidence @ P
        linear = 2 * np.einsum("er,er->e", state.differences, turn)
        square = np.einsum("er,er->e", turn, turn)
        curve = self.reward * self.edges.trace(self.edges.centered(P)) if self.reward else 0.0
        cross = 0.0
        if self.reward:
            cross = float(np.sum(self.edges.masses[:, None] * state.Y * P))

        def derivatives(t: float) -> tuple[float, float]:
            slack = state.raw + t * (linear + t * square)
            rate = linear + 2 * t * square
            if self.one_sided:
                active = slack > 0
                slack, rate, bend = slack * active, rate * active, square * active
            else:
                bend = square
            d1 = 2 * self.price * float(slack @ rate) - 2 * self.reward * cross - 2 * t * curve
            d2 = 2 * self.price * float(rate @ rate + 2 * (slack @ bend)) - 2 * curve
            return d1, d2

        low, high, t = 0.0, np.inf, 0.0 if first else 1.0
        for _ in range(40):
            d1, d2 = derivatives(t)
            if d1 < 0:
                low = t
            else:
                high = t
            if abs(d1) <= 1e-4 * abs(slope):
                break
            newton = t - d1 / d2 if d2 > 0 else np.inf
            if low < newton < high:
                t = newton if newton < 10 * max(t, 1e-12) or first or t == 0 else 10 * t
            else:
                t = (low + high) / 2 if np.isfinite(high) else 2 * max(t, 1e-12)
            if np.isfinite(high) and high - low <= 1e-12 * high:
                break
        return t if derivatives(t)[0] <= 0 or high == t else low


def _compute_direction(
    gradient: Matrix, along: Matrix, memory: deque[tuple[Matrix, Matrix, Matrix, float]]
) -> Matrix:
    """Compute the search direction with the two-loop recursion of L-BFGS.

    Products with the initial inverse Hessian are combined from stored products.
    """
    if not memory:
        return -along
    q, z = gradient.copy(), along.copy()
    factors = []
    for point_change, gradient_change, mapped_change, product in reversed(memory):
        a = float(np.sum(point_change * q)) / product
        factors.append(a)
        q -= a * gradient_change
        z -= a * mapped_change
    _, gradient_change, mapped_change, product = memory[-1]
    z *= product / float(np.sum(gradient_change * mapped_change))
    for (point_change, gradient_change, _, product), a in zip(
        memory, reversed(factors), strict=True
    ):
        z += (a - float(np.sum(gradient_change * z)) / product) * point_change
    return -z


def _create_preconditioner(edges: Edges, free: slice | NDArray[np.intp]) -> _Solver:
    # Add a constant, because edges of zero length would leave points unconstrained.
    weights = edges.squared + 0.01 * float(edges.squared.mean())
    L = edges.laplacian(weights)
    if not isinstance(free, slice):
        L = L[free][:, free].tocsc()
    ridge = 1e-6 * float(L.diagonal().mean()) if L.shape[0] else 1.0
    return _Solver(edges, L + ridge * sparse.eye_array(L.shape[0], format="csc"), free)


class _Solver:
    """Initial inverse Hessian of L-BFGS. It solves a Laplacian system on the free points."""

    def __init__(self, edges: Edges, L: sparse.csc_array, free: slice | NDArray[np.intp]) -> None:
        self._edges, self._free = edges, free
        self._factor = symmetric_factor(L) if L.shape[0] else None

    def __call__(self, G: Matrix) -> Matrix:
        result = np.zeros_like(G)
        if self._factor is not None:
            result[self._free] = self._factor.solve(np.ascontiguousarray(G[self._free]))
        return self._edges.centered(result) if isinstance(self._free, slice) else result


def _restrict_to_free(gradient: Matrix, fixed: NDArray[np.bool_] | None) -> Matrix:
    if fixed is None:
        return np.asarray(gradient - gradient.mean(axis=0))
    return np.where(fixed[:, None], 0.0, gradient)


def _has_settled(values: list[float], tol: float, size: float) -> bool:
    if len(values) < 6:
        return False
    # If the stress is almost zero, compare its decrease with rounding errors.
    return values[-6] - values[-1] <= tol * max(abs(values[-1]), np.finfo(float).eps * size)
