"""Search for the subspace, spanned by the columns of U (p, q), that optimizes a smooth objective.

An objective takes U and returns its value and its Euclidean gradient. Its value must not change
when U is replaced by UB for an invertible B, or at least for a rotation B. By default both solvers
evaluate it at orthonormal U only, so that the value is a function of the span.

* :func:`search_subspace` runs L-BFGS to a stationary point.
* :func:`climb_subspace` takes plain gradient steps, for methods that stop early or follow a
  published algorithm.
* :func:`search_from_starts` runs either solver from several starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from scipy import linalg, optimize
from scipy.sparse.linalg import LinearOperator, minres

from nearfar.arrays import Matrix
from nearfar.solvers.descent import Objective

#: Golden ratio. By default, the step length is divided by this number after a failed step.
GOLDEN = 1.618034
# Maximum condition number of U, estimated from the diagonal of R. With a larger number, L-BFGS
# restarts from an orthonormal basis of the columns.
_MAX_CONDITION = 100.0
# Maximum relative difference at which the objectives of two starts are treated as equal.
_OBJECTIVE_RTOL = 1e-8
# Maximum number of Newton steps that refine a converged search.
_NEWTON_STEPS = 4
# Norm of the gradient, relative to the objective, below which no Newton step is taken.
_POLISHED_SLOPE = 1e-10
# Maximum number of Hessian-vector products per Newton step.
_NEWTON_PRODUCTS = 40
# Maximum norm of the gradient, relative to the objective, at which a search that cannot make
# another step is reported as converged.
_CONVERGED_SLOPE = 1e-4


@dataclass
class SubspaceSearch:
    """State of a search: the best U and its objective.

    U is orthonormal, unless the search ran with ``orthonormalize=False``. ``converged`` is True if
    the search met its stopping criterion. ``history`` contains, per iteration, the objective, the
    step (the distance of the projectors before and after) and the seconds since the start.
    ``objectives`` contains the final objective of each start.
    """

    U: Matrix
    objective: float
    converged: bool = False
    history: dict[str, list[float]] = field(
        default_factory=lambda: {"objective": [], "step": [], "seconds": []}
    )
    objectives: list[float] = field(default_factory=list)

    @property
    def n_iter(self) -> int:
        """Number of iterations."""
        return len(self.history["objective"])

    @property
    def last_record(self) -> dict[str, float]:
        """Values of the history for the last iteration."""
        return {name: values[-1] for name, values in self.history.items()}

    def move(self, U: Matrix, objective: float, step: float, seconds: float) -> None:
        """Move to a new U and append the step to the history."""
        self.U, self.objective = U, objective
        self.history["objective"].append(objective)
        self.history["step"].append(step)
        self.history["seconds"].append(seconds)


class Interrupted(KeyboardInterrupt):
    """KeyboardInterrupt during a search. It contains the best state before the interrupt.

    A learner sets ``components`` to the components for that state, with which it is then fitted.
    """

    def __init__(self, search: SubspaceSearch) -> None:
        super().__init__("interrupted: the best subspace so far is kept")
        self.search = search
        self.components: Matrix | None = None


def search_subspace(
    objective: Objective,
    start: Matrix,
    *,
    maximize: bool = True,
    orthonormalize: bool = True,
    max_iter: int = 500,
    tol: float = 1e-6,
    polish: bool = True,
    report: Callable[[dict[str, float]], None] | None = None,
) -> SubspaceSearch:
    """Optimize an objective of a subspace U with L-BFGS, from a start of full rank.

    The search stops when the projector on the span changes by at most ``tol`` (Frobenius norm) in
    each of two consecutive steps, or when no step along the gradient changes the objective. Because
    the objective hardly changes near an optimum, a few Newton steps on the gradient follow if
    ``polish`` is True. Equal problems then give equal subspaces to many digits.

    With ``orthonormalize=False`` the objective is evaluated at the matrix itself, and the "step" in
    the history is the relative change of the matrix. ``report`` is called after each step with the
    latest entries of the history. Ctrl-C raises :class:`Interrupted` with the best state.
    """
    sign = -1.0 if maximize else 1.0
    U = find_orthonormal_basis(start) if orthonormalize else np.array(start, dtype=np.float64)
    search = SubspaceSearch(U, np.nan)
    start_time = perf_counter()
    minimized = _MinimizedObjective(objective, U.shape, sign, orthonormalize)

    def record(flat: Matrix) -> None:
        evaluated = minimized.evaluate(flat)
        step = _measure_step(search.U, evaluated.U, orthonormalize)
        search.move(evaluated.U, sign * evaluated.value, step, perf_counter() - start_time)
        if report is not None:
            report(search.last_record)
        if max(search.history["step"][-2:]) <= tol and search.n_iter > 1:
            search.converged = True
            raise StopIteration
        if evaluated.condition > _MAX_CONDITION:
            raise StopIteration

    try:
        search.objective = sign * minimized.evaluate(U.ravel()).value
        if not np.isfinite(search.objective):
            raise ValueError("The objective is not finite at the start.")
        if orthonormalize and U.shape[0] == U.shape[1]:
            # There is only one subspace of full dimension.
            search.converged = True
        while not search.converged and search.n_iter < max_iter:
            n_iter_before = search.n_iter
            optimize.minimize(
                minimized,
                search.U.ravel(),
                jac=True,
                method="L-BFGS-B",
                callback=record,
                options={
                    "maxiter": max_iter - n_iter_before,
                    "maxfun": 10**9,
                    "ftol": 0.0,
                    "gtol": 0.0,
                },
            )
            # L-BFGS stopped because of the callback or because of rounding errors. If a restarted
            # run takes no step, the objective cannot be improved further.
            if search.n_iter == n_iter_before:
                slope = float(np.linalg.norm(minimized.evaluate(search.U.ravel()).gradient))
                search.converged = slope <= _CONVERGED_SLOPE * max(1.0, abs(search.objective))
                break
        if polish and search.converged and orthonormalize:
            _polish(minimized, search, sign)
    except KeyboardInterrupt:
        if not np.isfinite(search.objective):
            raise
        raise Interrupted(search) from None
    search.objectives = [search.objective]
    return search


def climb_subspace(
    objective: Objective,
    start: Matrix,
    *,
    maximize: bool = True,
    orthonormalize: bool = True,
    step: float = 0.01,
    normalize: bool = True,
    shrink: float = 1 / GOLDEN,
    max_iter: int = 100,
    tol: float = 1e-6,
    monitor: Callable[[], float] | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> SubspaceSearch:
    """Take gradient steps of constant length. The length is reduced when a step fails.

    A step fails if it does not improve the objective, or if the objective is not finite or raises
    ``LinAlgError``. A failed step is undone, and the following steps are ``shrink`` times as long.
    With ``shrink=1`` every step with a finite objective is accepted, as in the published
    algorithms. With ``normalize=False``, ``step`` is the factor of the gradient instead of a
    length.

    The search stops when the value returned by ``monitor`` for the last point (by default the
    objective) changes by at most ``tol``, or after ``max_iter`` evaluations. The change is
    relative, with ``shrink=1`` absolute. ``report`` and Ctrl-C work as in
    :func:`search_subspace`.
    """
    sign = 1.0 if maximize else -1.0
    U = find_orthonormal_basis(start) if orthonormalize else np.array(start, dtype=np.float64)
    search = SubspaceSearch(U, np.nan)
    start_time = perf_counter()
    try:
        value, gradient = objective(U)
        if not np.isfinite(value):
            raise ValueError("The objective is not finite at the start.")
        search.objective = float(value)
        reference = value if monitor is None else monitor()
        for _ in range(max_iter):
            norm = float(np.linalg.norm(gradient)) if normalize else 1.0
            if norm == 0 or step < 1e-12:
                search.converged = True
                break
            new_U = search.U + (sign * step / norm) * gradient
            new_U = find_orthonormal_basis(new_U) if orthonormalize else new_U
            try:
                value, new_gradient = objective(new_U)
            except np.linalg.LinAlgError:
                value = np.nan
            is_better = np.isfinite(value) and sign * (value - search.objective) > 0
            if not is_better and (shrink < 1 or not np.isfinite(value)):
                step *= min(shrink, 0.5) if not np.isfinite(value) else shrink
                continue
            current = value if monitor is None else monitor()
            change = abs(current - reference)
            step_length = _measure_step(search.U, new_U, orthonormalize)
            search.move(new_U, float(value), step_length, perf_counter() - start_time)
            gradient, reference = new_gradient, current
            if report is not None:
                report(search.last_record)
            if change <= tol * (1.0 if shrink == 1 else max(abs(current), np.finfo(float).tiny)):
                search.converged = True
                break
    except KeyboardInterrupt:
        if not np.isfinite(search.objective):
            raise
        raise Interrupted(search) from None
    search.objectives = [search.objective]
    return search


def search_from_starts(
    objective: Objective,
    starts: Iterable[Matrix],
    *,
    maximize: bool = True,
    solver: Callable[..., SubspaceSearch] = search_subspace,
    loss: Callable[[SubspaceSearch], float] | None = None,
    **options: Any,
) -> SubspaceSearch:
    """Run a search from each start and return the best one.

    ``objectives`` of the result contains the final objective of each start. The best search is the
    one with the smallest ``loss``, by default the one with the best objective. Only the best search
    is refined with Newton steps. On Ctrl-C, :class:`Interrupted` carries the best state of all
    starts.
    """
    sign = 1.0 if maximize else -1.0
    best: SubspaceSearch | None = None
    min_loss = np.inf
    objectives: list[float] = []

    def keep_best(search: SubspaceSearch) -> SubspaceSearch:
        nonlocal min_loss
        objectives.append(search.objective)
        search_loss = -sign * search.objective if loss is None else loss(search)
        best_search = best
        # The results of starts that reach the same optimum differ by rounding errors. Keep the
        # first result.
        if best_search is None or min_loss - search_loss > _OBJECTIVE_RTOL * max(
            1.0, abs(min_loss)
        ):
            best_search, min_loss = search, search_loss
        best_search.objectives = objectives
        return best_search

    polish = solver is search_subspace and options.get("orthonormalize", True)
    if polish:
        options["polish"] = False
    try:
        for start in starts:
            best = keep_best(solver(objective, start, maximize=maximize, **options))
        if polish and best is not None and best.converged:
            _polish(_MinimizedObjective(objective, best.U.shape, -sign, True), best, -sign)
    except Interrupted as stop:
        stop.search = keep_best(stop.search)
        raise
    except KeyboardInterrupt:
        if best is None:
            raise
        raise Interrupted(best) from None
    if best is None:
        raise ValueError("`starts` is empty. It must contain at least one matrix.")
    return best


def draw_random_subspaces(
    n_starts: int, size: int, n_components: int, random_state: np.random.RandomState
) -> Iterator[Matrix]:
    """Yield uniformly distributed subspaces as orthonormal matrices (size, n_components)."""
    for _ in range(n_starts):
        yield find_orthonormal_basis(random_state.normal(size=(size, n_components)))


def find_orthonormal_basis(U: Matrix) -> Matrix:
    """Return an orthonormal basis of the span of the columns of U.

    If the columns are already orthonormal, they are returned unchanged (up to rounding).
    """
    return _factor_qr(U)[0]


def _factor_qr(U: Matrix) -> tuple[Matrix, Matrix]:
    """Return the QR factors of a matrix, with a positive diagonal of R."""
    Q, R = np.linalg.qr(U)  # For small matrices NumPy is five times faster than SciPy.
    signs = np.where(np.diag(R) < 0, -1.0, 1.0)
    return Q * signs, R * signs[:, None]


def projector_distance(U: Matrix, V: Matrix) -> float:
    """Return the Frobenius distance between the projectors onto the spans of U and V.

    The columns of U and V must be orthonormal. The distance does not depend on the bases of the
    spans, that is, on signs or rotations of the columns.
    """
    # The equivalent sqrt(2q - 2 |U'V|²) would lose half of the digits.
    outside = V - U @ (U.T @ V)
    return float(np.sqrt(2) * np.linalg.norm(outside))


def _polish(minimized: _MinimizedObjective, search: SubspaceSearch, sign: float) -> None:
    """Take Newton steps until only rounding errors remain in the gradient.

    The steps are taken in the chart Q + Δ with Q'Δ = 0. Products with the second derivative are
    finite differences of gradients.
    """
    for _ in range(_NEWTON_STEPS):
        Q = search.U
        shape = Q.shape

        def compute_slope(step: Matrix, Q: Matrix = Q) -> Matrix:
            gradient = minimized.evaluate((Q + step).ravel()).gradient
            return np.asarray(gradient - Q @ (Q.T @ gradient))

        gradient_at_Q = compute_slope(np.zeros(shape))
        size = float(np.linalg.norm(gradient_at_Q))
        if not _POLISHED_SLOPE * max(1.0, abs(search.objective)) < size < np.inf:
            return

        def multiply_by_hessian(
            flat: Matrix, Q: Matrix = Q, compute_slope: Any = compute_slope
        ) -> Matrix:
            v = flat.reshape(Q.shape)
            v = v - Q @ (Q.T @ v)
            length = float(np.linalg.norm(v))
            if length == 0:
                return np.zeros_like(flat)
            h = 1e-5 / length
            return np.asarray((compute_slope(h * v) - compute_slope(-h * v)).ravel() / (2 * h))

        n = Q.size
        hessian = LinearOperator((n, n), matvec=multiply_by_hessian, dtype=np.float64)
        flat, _ = minres(hessian, -gradient_at_Q.ravel(), rtol=1e-3, maxiter=_NEWTON_PRODUCTS)
        step = flat.reshape(shape)
        # The quadratic model is not accurate enough for longer steps.
        if not np.linalg.norm(step) < 1e-3:
            return
        new = minimized.evaluate((Q + step).ravel())
        new_U, value = new.U, new.value
        gradient = minimized.evaluate(new_U.ravel()).gradient
        slack = 1e-9 * max(1.0, abs(search.objective))
        if np.linalg.norm(gradient) > size / 2 or value > sign * search.objective + slack:
            return
        search.U, search.objective = new_U, sign * value


def _measure_step(old: Matrix, new: Matrix, orthonormal_columns: bool) -> float:
    if orthonormal_columns:
        return projector_distance(old, new)
    return float(np.linalg.norm(new - old) / np.linalg.norm(old))


class _MinimizedObjective:
    """The objective in the form that L-BFGS minimizes: a function of a vector, finite everywhere.

    With the QR factors U = QR, the value at U is the objective at Q. With G the gradient at Q and
    A = Q'G, the gradient in U is [(I - QQ') G + Q tril(A - A', -1)] inv(R)'. The second term comes
    from the rotation of Q. It is zero for objectives that depend on the span only, but not for
    their approximations by quadrature.
    """

    def __init__(
        self, objective: Objective, shape: tuple[int, ...], sign: float, orthonormalize: bool
    ) -> None:
        self.objective, self.shape, self.sign = objective, shape, sign
        self.orthonormalize = orthonormalize
        self.flat: Matrix = np.full(int(np.prod(shape)), np.nan)
        self.U: Matrix
        self.gradient: Matrix
        self.value = np.nan
        self.condition = 1.0
        self.worst = -np.inf

    def __call__(self, flat: Matrix) -> tuple[float, Matrix]:
        self.evaluate(flat)
        return self.value, self.gradient.ravel()

    def evaluate(self, flat: Matrix) -> _MinimizedObjective:
        """Evaluate the objective at a vector. The last result is cached."""
        if np.array_equal(flat, self.flat):
            return self
        U = flat.reshape(self.shape)
        self.condition = 1.0
        R = None
        if self.orthonormalize:
            U, R = _factor_qr(U)
            size = np.diag(R)
            self.condition = float(size.max() / max(size.min(), np.finfo(float).tiny))
        self.U = U.copy()
        try:
            value, gradient = self.objective(self.U)
        except np.linalg.LinAlgError:
            value, gradient = np.nan, U
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            # Outside the domain, return a constant that is worse than all previous values, so that
            # the line search takes a shorter step.
            has_worst = np.isfinite(self.worst)
            self.value = self.worst + 10 * (1 + abs(self.worst)) if has_worst else np.nan
            self.gradient = np.zeros(self.shape)
        else:
            self.value = self.sign * float(value)
            self.worst = max(self.worst, self.value)
            gradient = self.sign * gradient
            if R is not None:
                coefficients = U.T @ gradient
                gradient = gradient - U @ (
                    coefficients - np.tril(coefficients - coefficients.T, -1)
                )
                gradient = linalg.solve_triangular(R, gradient.T, check_finite=False).T
            self.gradient = gradient
        self.flat = flat.copy()
        return self
