"""Search over subspaces: the best span of the columns of U (p, q) for a smooth objective.

An objective takes U and returns its value and its Euclidean gradient. It must not change when U is
replaced by UB for an invertible B, or at least for a rotation B: by default both solvers only ever
show it orthonormal U, so that the value belongs to the span.

* :func:`search_subspace`: L-BFGS, to a stationary point;
* :func:`climb_subspace`: plain gradient steps, for methods that stop early or follow a published
  loop;
* :func:`best_of_starts`: either of them from several starts.
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

#: What a step is divided by after one that failed: the golden ratio.
GOLDEN = 1.618034
# Columns so nearly dependent that L-BFGS begins again from an orthonormal basis of their span.
_WORST_CONDITION = 100.0
# Relative difference of objectives that counts as none between starts.
_SAME = 1e-8
# Newton steps at the end, the slope, relative to the value, that needs none, and products with the
# second derivative for each step.
_NEWTON_STEPS = 4
_STILL = 1e-10
_NEWTON_PRODUCTS = 40
# Slope, relative to the value, at which a search that can make no step has arrived.
_FLAT = 1e-4


@dataclass
class SubspaceSearch:
    """Where a search came to: the best U, orthonormal unless it was told otherwise, and its value.

    ``converged`` says whether it stopped by itself. The history has for each iteration the
    objective, the step (the distance of the projectors before and after) and the seconds since the
    start; ``objectives`` has the value at the end of each start.
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
        """Iterations done."""
        return len(self.history["objective"])

    @property
    def last(self) -> dict[str, float]:
        """What the history notes of the last iteration."""
        return {name: values[-1] for name, values in self.history.items()}

    def move(self, U: Matrix, objective: float, step: float, seconds: float) -> None:
        """Take a step, and note it in the history."""
        self.U, self.objective = U, objective
        self.history["objective"].append(objective)
        self.history["step"].append(step)
        self.history["seconds"].append(seconds)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a search, with the best that was found before.

    ``components`` is the map that a learner makes of it; with it the learner is left fitted.
    """

    def __init__(self, found: SubspaceSearch) -> None:
        super().__init__("interrupted; the best subspace so far was kept")
        self.found = found
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
    """Follow an objective of U from a start of full rank to a stationary point, by L-BFGS.

    It stops when the projector on the span moved by less than ``tol`` (Frobenius norm) in two steps
    one after the other, or when no step along the gradient changes the value any more. As the value
    hardly changes near an optimum, a few Newton steps on the gradient follow (``polish``), so that
    equal problems give equal subspaces to many digits.

    With ``orthonormalize=False`` the objective is a function of the matrix and sees it as it is;
    the "step" of the history is then the relative change of the matrix. ``report`` is called after
    each step with what the history notes of it. Ctrl-C raises :class:`Interrupted` with the best
    state.
    """
    sign = -1.0 if maximize else 1.0
    U = orthonormal(start) if orthonormalize else np.array(start, dtype=np.float64)
    found = SubspaceSearch(U, np.nan)
    began = perf_counter()
    point = _Point(objective, U.shape, sign, orthonormalize)

    def record(flat: Matrix) -> None:
        here = point.at(flat)
        step = _movement(found.U, here.U, orthonormalize)
        found.move(here.U, sign * here.value, step, perf_counter() - began)
        if report is not None:
            report(found.last)
        if max(found.history["step"][-2:]) <= tol and found.n_iter > 1:
            found.converged = True
            raise StopIteration
        if here.condition > _WORST_CONDITION:
            raise StopIteration

    try:
        found.objective = sign * point.at(U.ravel()).value
        if not np.isfinite(found.objective):
            raise ValueError("The objective is not finite at the start.")
        if orthonormalize and U.shape[0] == U.shape[1]:
            found.converged = True  # there is only one subspace
        while not found.converged and found.n_iter < max_iter:
            before = found.n_iter
            optimize.minimize(
                point,
                found.U.ravel(),
                jac=True,
                method="L-BFGS-B",
                callback=record,
                options={"maxiter": max_iter - before, "maxfun": 10**9, "ftol": 0.0, "gtol": 0.0},
            )
            # Other than by the callback, L-BFGS stops where rounding hides any descent. Without a
            # step even from fresh memory, that is as far as the objective can be followed.
            if found.n_iter == before:
                slope = float(np.linalg.norm(point.at(found.U.ravel()).gradient))
                found.converged = slope <= _FLAT * max(1.0, abs(found.objective))
                break
        if polish and found.converged and orthonormalize:
            _polish(point, found, sign)
    except KeyboardInterrupt:
        if not np.isfinite(found.objective):
            raise
        raise Interrupted(found) from None
    found.objectives = [found.objective]
    return found


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
    watched: Callable[[], float] | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> SubspaceSearch:
    """Gradient steps of one length, shortened whenever a step would be for the worse.

    A value that is not finite, or a ``LinAlgError``, counts as a step for the worse, which is
    undone and after which steps are ``shrink`` times as long; 1 takes every step as it is, as the
    published loops do. With ``normalize=False`` ``step`` is the factor of the gradient and not a
    length.

    It stops when the relative change of what ``watched`` gives of the last point, by default the
    objective, is at most ``tol`` (with ``shrink=1`` the absolute change), or after ``max_iter``
    evaluations. ``report`` and Ctrl-C are as in :func:`search_subspace`.
    """
    sign = 1.0 if maximize else -1.0
    U = orthonormal(start) if orthonormalize else np.array(start, dtype=np.float64)
    found = SubspaceSearch(U, np.nan)
    began = perf_counter()
    try:
        value, gradient = objective(U)
        if not np.isfinite(value):
            raise ValueError("The objective is not finite at the start.")
        found.objective = float(value)
        reference = value if watched is None else watched()
        for _ in range(max_iter):
            norm = float(np.linalg.norm(gradient)) if normalize else 1.0
            if norm == 0 or step < 1e-12:
                found.converged = True
                break
            new = found.U + (sign * step / norm) * gradient
            new = orthonormal(new) if orthonormalize else new
            try:
                value, new_gradient = objective(new)
            except np.linalg.LinAlgError:
                value = np.nan
            better = np.isfinite(value) and sign * (value - found.objective) > 0
            if not better and (shrink < 1 or not np.isfinite(value)):
                step *= min(shrink, 0.5) if not np.isfinite(value) else shrink
                continue
            now = value if watched is None else watched()
            change = abs(now - reference)
            moved = _movement(found.U, new, orthonormalize)
            found.move(new, float(value), moved, perf_counter() - began)
            gradient, reference = new_gradient, now
            if report is not None:
                report(found.last)
            if change <= tol * (1.0 if shrink == 1 else max(abs(now), np.finfo(float).tiny)):
                found.converged = True
                break
    except KeyboardInterrupt:
        if not np.isfinite(found.objective):
            raise
        raise Interrupted(found) from None
    found.objectives = [found.objective]
    return found


def best_of_starts(
    objective: Objective,
    starts: Iterable[Matrix],
    *,
    maximize: bool = True,
    solver: Callable[..., SubspaceSearch] = search_subspace,
    judge: Callable[[SubspaceSearch], float] | None = None,
    **options: Any,
) -> SubspaceSearch:
    """The best of several searches; ``objectives`` holds where each ended.

    What ``judge`` gives is to be least for the best; by default the objective decides. Only the
    best ends with Newton steps. On Ctrl-C, :class:`Interrupted` carries the best state of all
    starts.
    """
    sign = 1.0 if maximize else -1.0
    best: SubspaceSearch | None = None
    least = np.inf
    objectives: list[float] = []

    def keep(found: SubspaceSearch) -> SubspaceSearch:
        nonlocal least
        objectives.append(found.objective)
        rank = -sign * found.objective if judge is None else judge(found)
        kept = best
        # Starts that end at one optimum differ by rounding: the first of them is kept.
        if kept is None or least - rank > _SAME * max(1.0, abs(least)):
            kept, least = found, rank
        kept.objectives = objectives
        return kept

    polish = solver is search_subspace and options.get("orthonormalize", True)
    if polish:
        options["polish"] = False
    try:
        for start in starts:
            best = keep(solver(objective, start, maximize=maximize, **options))
        if polish and best is not None and best.converged:
            _polish(_Point(objective, best.U.shape, -sign, True), best, -sign)
    except Interrupted as stop:
        stop.found = keep(stop.found)
        raise
    except KeyboardInterrupt:
        if best is None:
            raise
        raise Interrupted(best) from None
    if best is None:
        raise ValueError("There is no start to search from.")
    return best


def random_subspaces(
    n_starts: int, size: int, n_components: int, random_state: np.random.RandomState
) -> Iterator[Matrix]:
    """Uniformly distributed subspaces as orthonormal matrices (size, n_components)."""
    for _ in range(n_starts):
        yield orthonormal(random_state.normal(size=(size, n_components)))


def orthonormal(U: Matrix) -> Matrix:
    """An orthonormal basis of the span of the columns: of orthonormal ones, themselves."""
    return _qr(U)[0]


def _qr(U: Matrix) -> tuple[Matrix, Matrix]:
    """QR factors with a positive diagonal of R."""
    Q, R = np.linalg.qr(U)  # of small matrices five times faster than SciPy's
    signs = np.where(np.diag(R) < 0, -1.0, 1.0)
    return Q * signs, R * signs[:, None]


def projector_distance(U: Matrix, V: Matrix) -> float:
    """Frobenius distance of the projectors on two spans; the columns of U and V are orthonormal.

    Whatever the basis: it knows neither signs nor rotations.
    """
    # sqrt(2q - 2 |U'V|²) would lose half of the digits.
    outside = V - U @ (U.T @ V)
    return float(np.sqrt(2) * np.linalg.norm(outside))


def _polish(point: _Point, found: SubspaceSearch, sign: float) -> None:
    """Newton steps until the gradient is rounding.

    In the chart Q + Δ with Q'Δ = 0; products with the second derivative are differences of
    gradients.
    """
    for _ in range(_NEWTON_STEPS):
        Q = found.U
        shape = Q.shape

        def slope(step: Matrix, Q: Matrix = Q) -> Matrix:
            gradient = point.at((Q + step).ravel()).gradient
            return np.asarray(gradient - Q @ (Q.T @ gradient))

        here = slope(np.zeros(shape))
        size = float(np.linalg.norm(here))
        if not _STILL * max(1.0, abs(found.objective)) < size < np.inf:
            return

        def curvature(flat: Matrix, Q: Matrix = Q, slope: Any = slope) -> Matrix:
            v = flat.reshape(Q.shape)
            v = v - Q @ (Q.T @ v)
            length = float(np.linalg.norm(v))
            if length == 0:
                return np.zeros_like(flat)
            h = 1e-5 / length
            return np.asarray((slope(h * v) - slope(-h * v)).ravel() / (2 * h))

        n = Q.size
        hessian = LinearOperator((n, n), matvec=curvature, dtype=np.float64)
        flat, _ = minres(hessian, -here.ravel(), rtol=1e-3, maxiter=_NEWTON_PRODUCTS)
        step = flat.reshape(shape)
        if not np.linalg.norm(step) < 1e-3:  # not near enough to trust the parabola
            return
        new = point.at((Q + step).ravel())
        there, value = new.U, new.value
        gradient = point.at(there.ravel()).gradient
        slack = 1e-9 * max(1.0, abs(found.objective))
        if np.linalg.norm(gradient) > size / 2 or value > sign * found.objective + slack:
            return
        found.U, found.objective = there, sign * value


def _movement(old: Matrix, new: Matrix, orthonormal_columns: bool) -> float:
    if orthonormal_columns:
        return projector_distance(old, new)
    return float(np.linalg.norm(new - old) / np.linalg.norm(old))


class _Point:
    """The objective as L-BFGS wants it: of a vector, to be minimised, and finite everywhere.

    With the QR factors U = QR the value is that at Q. With G the gradient at Q and A = Q'G, that in
    U is [(I - QQ') G + Q tril(A - A', -1)] inv(R)'. Its second term is that of the rotation of Q
    and zero for objectives of the span; what quadrature makes of them needs it.
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
        self.at(flat)
        return self.value, self.gradient.ravel()

    def at(self, flat: Matrix) -> _Point:
        """Evaluate there, unless that was the last place."""
        if np.array_equal(flat, self.flat):
            return self
        U = flat.reshape(self.shape)
        self.condition = 1.0
        R = None
        if self.orthonormalize:
            U, R = _qr(U)
            size = np.diag(R)
            self.condition = float(size.max() / max(size.min(), np.finfo(float).tiny))
        self.U = U.copy()
        try:
            value, gradient = self.objective(self.U)
        except np.linalg.LinAlgError:
            value, gradient = np.nan, U
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            # Off the domain: worse than all seen, flat, so that the line search comes back.
            seen = np.isfinite(self.worst)
            self.value = self.worst + 10 * (1 + abs(self.worst)) if seen else np.nan
            self.gradient = np.zeros(self.shape)
        else:
            self.value = self.sign * float(value)
            self.worst = max(self.worst, self.value)
            gradient = self.sign * gradient
            if R is not None:
                along = U.T @ gradient
                gradient = gradient - U @ (along - np.tril(along - along.T, -1))
                gradient = linalg.solve_triangular(R, gradient.T, check_finite=False).T
            self.gradient = gradient
        self.flat = flat.copy()
        return self
