"""Sparse compositional metric learning."""

from __future__ import annotations

from time import perf_counter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, optimize
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Mask, Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.guided import ConstraintLearner, scale_rows
from nearfar.base.progress import Report, get_reporter
from nearfar.labels import encode_labels
from nearfar.mahalanobis.rank_one_bases import find_local_discriminants, find_triplet_directions
from nearfar.notices import warn, warn_not_converged
from nearfar.parameters import array, integer, none, one_of, random_state, real
from nearfar.solvers.descent import Descent, Objective, descend
from nearfar.solvers.eigen import descending_eigh, fix_signs
from nearfar.state import State, floats, number, optional
from nearfar.summaries.pair_differences import PairDifferences, mask_distinct_pairs
from nearfar.summaries.supervision import Triplets

# Number of directions per feature if n_basis is None.
_DIRECTIONS_PER_FEATURE = 20
# Minimum number of directions if n_basis is None.
_MIN_DIRECTIONS = 100
# Before the first linear program, L-BFGS minimizes the objective with smoothed hinges. It runs once
# for each of these widths of the smoothing.
_WIDTHS = (1.0, 0.1)
# If the linear program is too large, L-BFGS continues with these widths instead.
_FINE_WIDTHS = (0.01, 0.001)
# Before the linear program, L-BFGS stops if an iteration lowers the objective by less than this
# fraction. A rough solution is enough to select the triplets and directions of the program.
_STAGE_TOL = 1e-3
# Maximum number of L-BFGS iterations for each width before the linear program.
_STAGE_ITERATIONS = 30
# The first linear program contains triplets whose distance from their margin is below this value.
# Triplets that violate their margin by more are assumed to violate it at the solution, too.
_NEAR_HINGE = 0.3
# Minimum number of triplets in the first linear program. Each later program adds at most this many
# triplets that violate their margin.
_MIN_TRIPLETS = 500
# Maximum number of triplets per direction in the first linear program.
_MAX_TRIPLETS_PER_DIRECTION = 10
# Maximum size of a linear program: the number of triplets times the number of directions. A program
# of this size takes some seconds.
_MAX_ENTRIES = 2_000_000
# Minimum size of a linear program for the interior-point method. For smaller programs, the simplex
# method is faster.
_MANY_ENTRIES = 300_000


class SCML(ConstraintLearner):
    r"""Sparse compositional metric learning: a metric as a weighted sum of a few directions.

    The metric is a weighted sum over directions :math:`b_k`, and most weights are zero:

    .. math::
        M = \sum_k w_k\, b_k b_k^T, \qquad
        \min_{w \ge 0} \; \frac1T \sum_{(a, n, f)} [1 + d_M^2(a, n) - d_M^2(a, f)]_+
        + \beta \sum_k w_k,

    where the triplets (a, n, f) state that a is closer to n than to f. This is a linear program,
    and it is solved to its proven optimum. L-BFGS with a smoothed hinge first finds which triplets
    and directions may matter, and a linear program over these computes the weights. Triplets and
    directions that were left out but turn out to matter are added, and the program is solved again.
    No array of size triplets × directions is stored.

    Use it with labels or triplets if the metric should consist of few directions, or if there are
    too many features to learn a full metric. From labels, the triplets consist of Euclidean
    neighbors, so scale features that have different units first.

    Cost: O(n² p) for the neighbors; O((n n_far + n_basis) p²) for each of some tens of passes over
    all triplets and directions; and linear programs over hundreds to thousands of triplets.

    Parameters
    ----------
    basis : {"lda", "triplet_differences"} or array of shape (n_basis, n_features), default="lda"
        The directions, or how to compute them. "lda" uses local discriminant directions and needs
        labels. "triplet_differences" uses directions in which far points are farther than near
        points. See Notes.
    n_basis : int or None, default=None
        Maximum number of directions. None means 20 per feature, and at least 100.
    beta : float, default=1e-5
        Factor β of the penalty, which is the sum of all weights. Larger values give fewer
        directions. If ``basis`` is a name, the directions have unit variance.
    n_near, n_far : int, default=3, 10
        Numbers of neighbors used to form triplets from labels. Each point is combined with its
        ``n_near`` nearest points of its class and its ``n_far`` nearest points of other classes.
    max_iter : int, default=1000
        Maximum number of iterations. Linear programs count as iterations.
    tol : float, default=1e-5
        Stop when the objective is proven to be within this fraction of the optimum.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used for k-means and to draw groups of triplets.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map L with M = LᵀL. Its rows are the directions with positive weight, multiplied
        by the square root of the weight. If these directions outnumber the features, L is a
        triangular matrix.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    basis_ : ndarray of shape (n_basis, n_features)
        The directions.
    weights_ : ndarray of shape (n_basis,)
        Weights of the directions. Most of the weights are 0.
    objective_ : float
        Value of the objective at the solution.
    dual_bound_ : float
        Lower bound on the objective that holds for all weights.
    duality_gap_ : float
        ``1 - dual_bound_ / objective_``. A value of 0 proves that the solution is optimal.
    n_iter_ : int
        Number of iterations.
    history_ : dict of lists
        Lists with one entry per iteration: "objective", "step" and "seconds". In the first
        iterations, the objective is computed with a smoothed hinge.

    Notes
    -----
    * ``basis="lda"``: the Fisher discriminants of the 10 and of the 20 nearest points of each
      class around the centers of k-means. If triplets are passed instead of labels,
      "triplet_differences" is used.
    * ``basis="triplet_differences"``: directions in which, over a random group of triplets, the far
      points are farther from the anchor than the near points.
    * Triplets whose far point equals the anchor cannot be satisfied by any metric. They are left
      out with a warning.
    * If the triplets are so contradictory that no direction lowers the objective, all weights are
      0, and a warning is issued.
    * Linear programs with more than two million entries are not tried. The hinge is then rounded
      less and less instead, and ``duality_gap_`` shows the accuracy that was reached.

    See Also
    --------
    LMNN, LSML, ITML

    References
    ----------
    .. [1] Y. Shi, A. Bellet, F. Sha, "Sparse Compositional Metric Learning", AAAI 2014, sections 2
       and 3.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import SCML
    >>> X, y = load_wine(return_X_y=True)
    >>> scml = SCML().fit(X / X.std(axis=0), y)
    >>> bool((scml.weights_ > 0).sum() < 60), scml.duality_gap_ < 1e-4
    (True, True)
    """

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "triplets"))
    supervision_class = Triplets
    state = State(
        {
            "basis_": floats("k", "p"),
            "weights_": floats("k"),
            "objective_": optional(number(0)),
            "dual_bound_": optional(number()),
            "duality_gap_": optional(number()),
        }
    )
    settings = ({"beta": 1e-3},)
    parameters: ClassVar = {
        "basis": [one_of("lda", "triplet_differences"), array],
        "n_basis": [none, integer(1)],
        "beta": [real(0, open_low=True)],
        "n_near": [integer(1)],
        "n_far": [integer(1)],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "random_state": [random_state],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        basis: str | ArrayLike = "lda",
        *,
        n_basis: int | None = None,
        beta: float = 1e-5,
        n_near: int = 3,
        n_far: int = 10,
        max_iter: int = 1000,
        tol: float = 1e-5,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.basis = basis
        self.n_basis = n_basis
        self.beta = beta
        self.n_near = n_near
        self.n_far = n_far
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _draw_supervision(self, y: Any) -> Any:
        return y  # The triplets are searched in ``_learn``, after the points have been scaled.

    def _learn(self, rows: Floats, supervision: Any) -> None:
        frame = scale_rows(rows)
        points = frame.points
        codes = None
        if not isinstance(supervision, Triplets):
            codes = encode_labels(supervision)[1]
            supervision = Triplets.from_neighbors(
                points, codes, n_near=self.n_near, n_far=self.n_far
            )
        triplets = _drop_unusable(points, supervision)
        basis = self._make_directions(points, codes, triplets, frame.unit)
        # Scale every direction b to unit variance. The metric w b bᵀ does not change if w is
        # multiplied by the variance.
        sizes = np.mean((points @ basis.T) ** 2, axis=0)
        varies = sizes > 0
        if not varies.any():
            raise ValueError(
                "SCML: X does not vary along any direction of basis. Pass other directions."
            )
        scaled_basis = basis[varies] / np.sqrt(sizes[varies])[:, None]
        program = _Program(points, triplets, scaled_basis, float(self.beta) / sizes[varies])
        descent = Descent(np.full(len(scaled_basis), 1.0 / len(scaled_basis)))
        self.basis_ = (basis / frame.unit).astype(rows.dtype)
        try:
            program.solve(descent, self.max_iter, self.tol, get_reporter(self))
        finally:
            # The estimator keeps the best metric found so far, also after Ctrl-C.
            weights = np.zeros(len(basis))
            weights[varies] = descent.point / sizes[varies]
            self.weights_ = weights.astype(rows.dtype)
            self._keep(_compose_map(scaled_basis, descent.point), frame, rows.dtype)
            self.history_, self.n_iter_ = descent.history, descent.n_iter
        self.objective_ = float(program.value(descent.point))
        self.dual_bound_ = float(program.bound)
        self.duality_gap_ = max(0.0, 1 - self.dual_bound_ / self.objective_)
        if not weights.any():
            warn(
                "SCML: all weights are zero, so all points are mapped to one point. The triplets "
                f"contradict each other, or beta={self.beta:g} is too large."
            )
        if not descent.converged:
            warn_not_converged("SCML", self.max_iter)

    def _make_directions(
        self, points: Matrix, codes: Indices | None, triplets: Indices, unit: float
    ) -> Matrix:
        p = points.shape[1]
        if not isinstance(self.basis, str):
            directions = np.asarray(self.basis, np.float64)
            if directions.ndim != 2 or directions.shape[1] != p or not len(directions):
                raise ValueError(
                    f"SCML: basis must have shape (n_basis, {p}); got {directions.shape}."
                )
            if not np.isfinite(directions).all():
                raise ValueError("SCML: basis contains NaN or infinity.")
            return directions * unit
        n_basis = self.n_basis or max(_MIN_DIRECTIONS, _DIRECTIONS_PER_FEATURE * p)
        rng = check_random_state(self.random_state)
        if self.basis == "lda" and codes is not None:
            return find_local_discriminants(points, codes, n_basis, rng)
        directions = find_triplet_directions(points, triplets, n_basis, rng)
        if not len(directions):
            raise ValueError(
                "SCML: the far points of the triplets are not farther than the near points in any "
                "direction. Pass an array as basis."
            )
        return directions


def _drop_unusable(points: Matrix, supervision: Triplets) -> Indices:
    triplets = supervision.indices
    if not len(triplets):
        raise ValueError(
            "SCML needs triplets, but there are none. To learn from labels, some class of y must "
            "have at least two rows."
        )
    is_usable = mask_distinct_pairs(points, triplets[:, [0, 2]])
    if not is_usable.any():
        raise ValueError(
            "SCML: in every triplet the far point equals the anchor. Pass triplets of distinct "
            "points."
        )
    if not is_usable.all():
        warn(
            f"SCML: in {(~is_usable).sum()} of {len(is_usable)} triplets the far point equals the "
            "anchor. No metric satisfies these triplets, and they are left out."
        )
    return np.asarray(triplets[is_usable])


def _compose_map(basis: Matrix, weights: Vector) -> Matrix:
    """Return L with LᵀL = Σ w b bᵀ and at most as many rows as features."""
    used = weights > 0
    if not used.any():
        return np.zeros((1, basis.shape[1]))
    L = np.sqrt(weights[used])[:, None] * basis[used]
    return L if len(L) <= L.shape[1] else fix_signs(linalg.qr(L, mode="r")[0][: L.shape[1]])


class _Program:
    """Linear program for the weights of the directions.

    Distances are computed from the p×p metric.
    """

    def __init__(self, points: Matrix, triplets: Indices, basis: Matrix, costs: Vector) -> None:
        self.points, self.triplets, self.basis, self.costs = points, triplets, basis, costs
        # Many triplets share a pair, so distances are computed once per distinct pair.
        (self.near_pairs, self.near_of), (self.far_pairs, self.far_of) = (
            _find_distinct_pairs(points, triplets[:, [0, k]]) for k in (1, 2)
        )
        self.bound = 0.0

    def compute_violations(self, weights: Vector) -> Vector:
        """Return the margin violation 1 + d²(near) - d²(far) of each triplet."""
        values, axes = descending_eigh((self.basis * weights[:, None]).T @ self.basis)
        L = (axes * np.sqrt(np.maximum(values, 0.0))).T
        return (
            1
            + self.near_pairs.compute_squared_lengths(L)[self.near_of]
            - self.far_pairs.compute_squared_lengths(L)[self.far_of]
        )

    def compute_gains(self, multipliers: Vector) -> Vector:
        """Return the negative derivative of the hinge loss with respect to each weight."""
        pulled: Vector = np.bincount(self.near_of, multipliers, self.near_pairs.n_pairs).astype(
            float
        )
        pushed: Vector = np.bincount(self.far_of, multipliers, self.far_pairs.n_pairs).astype(float)
        G = self.far_pairs.scatter(pushed) - self.near_pairs.scatter(pulled)
        return np.einsum("ij,ij->i", self.basis @ G, self.basis)

    def value(self, weights: Vector) -> float:
        """Return the objective."""
        violations = self.compute_violations(weights)
        return float(np.maximum(violations, 0.0).mean() + self.costs @ weights)

    def make_rounded_objective(self, width: float) -> Objective:
        """Return the objective with smoothed hinges: a parabola for violations up to ``width``."""

        def objective(weights: Vector) -> tuple[float, Vector]:
            violations = np.maximum(self.compute_violations(weights), 0.0)
            slopes = np.minimum(violations / width, 1.0)
            hinges = slopes * (violations - slopes * width / 2)
            gains = self.compute_gains(slopes / len(slopes))
            return float(hinges.mean() + self.costs @ weights), self.costs - gains

        return objective

    def prove(self, multipliers: Vector) -> Vector:
        """Update the lower bound, and return the gains of the directions.

        The multipliers are values in [0, 1/T]. They are scaled down if they are not feasible in the
        dual problem.
        """
        gains = self.compute_gains(multipliers)
        max_ratio = float(np.max(gains / self.costs))
        self.bound = max(self.bound, float(multipliers.sum()) / max(1.0, max_ratio))
        return gains

    def solve(self, descent: Descent, max_iter: int, tol: float, report: Report | None) -> None:
        """Minimize the objective with smoothed hinges, then solve linear programs."""
        widths = list(_WIDTHS)
        positive = optimize.Bounds(0, np.inf)
        # If the linear program is too large, the loop continues with smaller widths.
        while widths:
            width = widths.pop(0)
            rough = width in _WIDTHS
            descend(
                self.make_rounded_objective(width),
                descent,
                max_iter=min(max_iter, descent.n_iter + _STAGE_ITERATIONS) if rough else max_iter,
                tol=_STAGE_TOL if rough else tol,
                bounds=positive,
                report=report,
            )
            if widths or descent.n_iter >= max_iter:
                continue
            violations = self.compute_violations(descent.point)
            gains = self.prove(np.clip(violations / width, 0, 1) / len(violations))
            if width == _WIDTHS[-1]:
                columns = self._select_directions(descent.point, gains)
                size = np.abs(violations)
                rows = _mask_largest(
                    -size, max(_MIN_TRIPLETS, _MAX_TRIPLETS_PER_DIRECTION * int(columns.sum()))
                )
                rows &= (size < _NEAR_HINGE) | _mask_largest(-size, _MIN_TRIPLETS)
                if not self._solve_programs(
                    descent, rows, ~rows & (violations > 0), columns, max_iter, tol, report
                ):
                    widths = list(_FINE_WIDTHS)

    def _select_directions(self, weights: Vector, gains: Vector) -> Mask:
        """Return the directions with the largest weights and those with the largest gains."""
        n_selected = max(4 * self.basis.shape[1], 100)
        return (_mask_largest(weights, n_selected) & (weights > 0)) | _mask_largest(
            gains, n_selected // 2
        )

    def _solve_programs(
        self,
        descent: Descent,
        rows: Mask,
        linear: Mask,
        columns: Mask,
        max_iter: int,
        tol: float,
        report: Report | None,
    ) -> bool:
        """Solve linear programs until no omitted triplet or direction can lower the objective.

        Return False if a program is too large.
        """
        began = (
            perf_counter() - descent.history["seconds"][-1] if descent.n_iter else perf_counter()
        )
        violations = self.compute_violations(descent.point)
        descent.objective, descent.converged = self.value(descent.point), False
        while descent.n_iter < max_iter:
            solution = self._solve_program(rows, linear, columns)
            if solution is None:
                if not linear.any() or rows.sum() * columns.sum() > _MAX_ENTRIES:
                    return False
                # Too many triplets were assumed to violate their margin. Add some of them to the
                # program.
                nearest = _mask_largest(
                    np.where(linear, -np.abs(violations), -np.inf), 2 * int(rows.sum())
                )
                rows, linear = rows | (linear & nearest), linear & ~nearest
                continue
            weights, multipliers = solution
            gains = self.prove(multipliers)
            violations = self.compute_violations(weights)
            value = float(np.maximum(violations, 0.0).mean() + self.costs @ weights)
            change = float(np.linalg.norm(weights - descent.point))
            if value < descent.objective:
                descent.point, descent.objective = weights, value
            notes = {
                "objective": descent.objective,
                "step": change / max(float(np.linalg.norm(weights)), np.finfo(float).tiny),
                "seconds": perf_counter() - began,
            }
            for name, note in notes.items():
                descent.history[name].append(note)
            if report is not None:
                report(notes)
            missing_columns = ~columns & (gains > self.costs)
            missing_columns &= _mask_largest(
                np.where(missing_columns, gains, 0.0), max(self.basis.shape[1], 50)
            )
            new_rows = (violations > 0) & ~rows & ~linear
            new_rows &= _mask_largest(np.where(new_rows, violations, 0.0), _MIN_TRIPLETS)
            new_rows |= linear & (violations < 0)
            if descent.objective - self.bound <= tol * descent.objective or not (
                new_rows.any() or missing_columns.any()
            ):
                descent.converged = True
                return True
            columns |= missing_columns
            rows, linear = rows | new_rows, linear & ~new_rows
        return True

    def _solve_program(
        self, rows: Mask, linear: Mask, columns: Mask
    ) -> tuple[Vector, Vector] | None:
        """Solve the dual program for some triplets and directions.

        The dual program has fewer rows than the primal program.

        Triplets in ``linear`` are taken to violate their margin: their multiplier is fixed at 1.
        Return None if the program has no solution or would be too large.
        """
        r, c = np.flatnonzero(rows), np.flatnonzero(columns)
        if len(r) * len(c) > _MAX_ENTRIES:
            return None
        n, basis = len(self.triplets), self.basis[c]
        gains = np.zeros((len(r), len(c)))
        for sign, k in ((1, 2), (-1, 1)):
            pairs = PairDifferences(self.points, self.triplets[r][:, [0, k]])
            gains += sign * pairs.map_differences(basis) ** 2
        result = optimize.linprog(
            -np.ones(len(r)),
            A_ub=gains.T,
            b_ub=(self.costs - self.compute_gains(linear / n))[c] * n,
            bounds=(0, 1),
            method="highs-ds" if gains.size < _MANY_ENTRIES else "highs-ipm",
        )
        if result.status != 0:
            return None
        weights, multipliers = np.zeros(len(self.basis)), np.zeros(n)
        weights[c] = np.maximum(-result.ineqlin.marginals, 0.0)
        multipliers[r] = np.clip(result.x, 0, 1) / n
        multipliers[linear] = 1 / n
        return weights, multipliers


def _mask_largest(values: Vector, count: int) -> Mask:
    """Return a mask of the ``count`` largest values."""
    mask = np.zeros(len(values), bool)
    mask[np.argsort(-values, kind="stable")[:count]] = True
    return mask


def _find_distinct_pairs(points: Matrix, pairs: Indices) -> tuple[PairDifferences, Indices]:
    """Return the distinct pairs, and for each pair its index among the distinct pairs."""
    keys, positions = np.unique(pairs[:, 0] * len(points) + pairs[:, 1], return_inverse=True)
    return PairDifferences(points, np.column_stack(np.divmod(keys, len(points)))), positions
