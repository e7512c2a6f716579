"""Xing's metric learning from similar and dissimilar pairs (MMC)."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base import LearnerTags, PairLearner, get_reporter
from nearfar.base.guided import PAIR_PARAMETERS, ScaledRows, scale_rows
from nearfar.blocks import limit_blas_for
from nearfar.mahalanobis.starts import STARTS, Spread, make_start_map
from nearfar.notices import warn, warn_not_converged
from nearfar.parameters import integer, one_of, real
from nearfar.solvers.descent import Descent, descend_with_proof, escape
from nearfar.solvers.eigen import descending_eigh, fix_signs, partial_eigh, range_whitener, whitener
from nearfar.solvers.projections import (
    alternating_projection,
    project_halfspace,
    project_psd,
    psd_factor,
)
from nearfar.summaries.pair_differences import PairDifferences
from nearfar.summaries.supervision import Pairs

# If the scatter of similar pairs is singular, this fraction of the scatter of all pairs is mixed
# in.
_MIXED_FRACTION = 1e-3
# Eigenvalues below this fraction of the largest eigenvalue are treated as zero.
_EMPTY = 1e-12
# To compute an upper bound on the objective, short distances are replaced by a fraction of the mean
# distance. Every fraction gives a valid bound. The smallest bound of these three fractions is used.
_FLOORS = (1e-6, 1e-4, 1e-2)
# Maximum number of rounds of alternating projections after a gradient step.
_ROUNDS = 20


class MMC(PairLearner):
    r"""Xing's metric learning: dissimilar pairs move apart while similar pairs stay close.

    With the differences d = x_i − x_j over the similar pairs S and the dissimilar pairs D, MMC
    solves the convex program

    .. math::
        \max_{M \succeq 0} \; \frac{1}{|D|} \sum_D \sqrt{d^T M d} \quad \text{s.t.} \quad
        \frac{1}{|S|} \sum_S d^T M d \le 1 .

    It is solved over L with :math:`M = L^T L` by L-BFGS, in coordinates in which similar pairs are
    white, so the result does not depend on linear changes of the features. A map that has lost
    rank is checked for a direction in which the objective still increases in M. With r the
    distances of dissimilar pairs and :math:`G = \tfrac{1}{|D|} \sum_D d d^T / 2r` in those
    coordinates, no metric exceeds :math:`\sqrt{2 \lambda_{\max}(G) \bar r}`, which is
    ``dual_bound_``.

    Use it with pairs labeled as similar or dissimilar, before k-means or another clustering. It
    needs pairs of both kinds. It treats all pairs equally, whether they are neighbors or not, so
    :class:`LMNN` is better if a class consists of several clusters.

    Cost: O(N p²) per iteration for N dissimilar pairs (O(N p) for a diagonal), with tens of
    iterations, and O(p³) for the bound.

    Parameters
    ----------
    variant : {"distance", "squared"}, default="distance"
        Whether distances or squared distances of dissimilar pairs are summed. The solution of
        "squared" has a closed form. It has rank one and projects the data onto a line.
    structure : {"full", "diagonal"}, default="full"
        Form of the map: "full" is any matrix, "diagonal" has one weight per feature.
    solver : {"lbfgs", "projected_gradient"}, default="lbfgs"
        Optimization algorithm. "projected_gradient" is that of Xing et al. [1]_, for comparison
        only. It alternates gradient steps with projections onto the constraint and the cone, and
        converges slowly. Not used with ``variant="squared"``.
    init : {"auto", "identity", "pca", "lda", "within", "random"} or array of shape (p, p)
        Starting point: "identity" (Euclidean distance), "pca" (whitened principal axes), "lda"
        (directions in which dissimilar pairs differ), "within" (whitened by the similar pairs),
        "random", or a map. "auto" means "within". Used only with ``variant="distance"`` and
        ``solver="lbfgs"``.
    n_similar : int or None, default=None
        Maximum number of similar pairs drawn from labels. None uses the default of
        ``Pairs.from_labels``.
    n_dissimilar : int or None, default=None
        Maximum number of dissimilar pairs drawn from labels. None uses the default of
        ``Pairs.from_labels``.
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-6
        Stop when two successive iterations change the objective by less than this fraction and the
        duality gap is at most ``50 * tol``. If the gap stays larger, the solver continues with a
        tenth of the tolerance. This is repeated at most three times.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used to draw pairs from labels and for
        ``init="random"``.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map, scaled so that the mean squared distance of similar pairs is 1. It has one
        row per direction in which pairs differ, but only one row with ``variant="squared"``. With
        ``structure="diagonal"`` it is a diagonal matrix.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    objective_ : float
        Mean distance of dissimilar pairs, or their mean squared distance with
        ``variant="squared"``.
    dual_bound_ : float
        Upper bound on the objective. It holds for every metric, or for every diagonal metric with
        ``structure="diagonal"``.
    duality_gap_ : float
        ``1 - objective_ / dual_bound_``. A value of 0 proves that the solution is optimal.
    n_iter_ : int
        Number of iterations. It is 0 if the solution has a closed form.
    history_ : dict of lists
        Lists with one entry per iteration: "objective", "step" and "seconds".

    Notes
    -----
    If similar pairs differ in fewer directions than dissimilar pairs, the program has no maximum.
    0.1% of the scatter of all pairs is then mixed into the scatter of the similar pairs, with a
    warning. The constraint and the scale of ``components_`` then refer to the mixture.

    See Also
    --------
    KernelMMC, LogisticMetric, POLA, RCA

    References
    ----------
    .. [1] E. P. Xing, A. Y. Ng, M. I. Jordan and S. Russell, "Distance metric learning with
       application to clustering with side-information", Advances in Neural Information Processing
       Systems 15, 2003.
    .. [2] L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006, section 2.2.
       It prints squared distances in the constraint, with which the optimum has rank one.
    .. [3] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.2.2.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import MMC, Pairs
    >>> X, y = load_wine(return_X_y=True)
    >>> pairs = Pairs.from_labels(y, n_similar=200, n_dissimilar=200, random_state=0)
    >>> mmc = MMC().fit(X, supervision=pairs)
    >>> bool(mmc.duality_gap_ < 1e-4)
    True
    >>> some, sign = pairs.to_arrays(X)
    >>> float((mmc.pair_distance(some[sign == 1]) ** 2).mean().round(6))
    1.0
    """

    learner_tags = LearnerTags(reads="supervision", supervision=("labels", "pairs"))
    settings = ({"structure": "diagonal"},)
    parameters: ClassVar = {
        "variant": [one_of("distance", "squared")],
        "structure": [one_of("full", "diagonal")],
        "solver": [one_of("lbfgs", "projected_gradient")],
        "init": STARTS,
        **PAIR_PARAMETERS,
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        variant: Literal["distance", "squared"] = "distance",
        *,
        structure: Literal["full", "diagonal"] = "full",
        solver: Literal["lbfgs", "projected_gradient"] = "lbfgs",
        init: str | ArrayLike = "auto",
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.variant = variant
        self.structure = structure
        self.solver = solver
        self.init = init
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.verbose = verbose

    def _learn(self, rows: Floats, supervision: Pairs) -> None:
        iterates = self.variant == "distance" and self.solver == "projected_gradient"
        if iterates and self.structure == "diagonal":
            raise ValueError(
                'solver="projected_gradient" does not support structure="diagonal". Use '
                'solver="lbfgs".'
            )
        frame = scale_rows(rows)
        similar, dissimilar = self._select_usable_pairs(frame.points, supervision)
        similar_differences = PairDifferences(frame.points, similar)
        dissimilar_differences = PairDifferences(frame.points, dissimilar)
        similar_scatter = similar_differences.scatter() / similar_differences.n_pairs
        dissimilar_scatter = dissimilar_differences.scatter() / dissimilar_differences.n_pairs
        similar_scatter, white, unwhite = _whiten_similar(
            similar_scatter, dissimilar_scatter, diagonal=self.structure == "diagonal"
        )
        mean_distance = _MeanDistance(
            PairDifferences(frame.points @ white, dissimilar), diagonal=self.structure == "diagonal"
        )
        if self.variant == "squared":
            L, self.objective_ = self._find_longest(white.T @ dissimilar_scatter @ white)
            self.dual_bound_ = self.objective_
            self.n_iter_, self.history_ = 0, Descent(L).history
            self._keep(_expand_diagonal(L) @ white.T, frame, rows.dtype)
        elif self.solver == "projected_gradient":
            mean_distance = _MeanDistance(dissimilar_differences)
            L = self._learn_by_projections(mean_distance, similar_scatter, frame, rows.dtype)
            # The bound is computed in white coordinates.
            mean_distance = _MeanDistance(PairDifferences(frame.points @ white, dissimilar))
            L = L @ unwhite
            self.objective_, self.dual_bound_ = (
                mean_distance.mean(L),
                mean_distance.compute_bound(L)[0],
            )
        else:
            spread = Spread(
                np.cov(frame.points.T, bias=True).reshape(similar_scatter.shape),
                similar_scatter,
                dissimilar_scatter,
            )
            L = self._make_start(spread, unwhite, frame)
            L = self._ascend(mean_distance, L, white, frame, rows.dtype)
            self.objective_, self.dual_bound_ = (
                mean_distance.mean(L),
                mean_distance.compute_bound(L)[0],
            )
        self.duality_gap_ = max(0.0, 1 - self.objective_ / self.dual_bound_)

    def _find_longest(self, dissimilar_scatter: Matrix) -> tuple[Matrix, float]:
        """Return the direction in which dissimilar pairs differ most, and their scatter along it.

        In the coordinates used, the scatter of similar pairs is white. With
        ``structure="diagonal"``, the direction is one feature.
        """
        if self.structure == "diagonal":
            lengths = np.diag(dissimilar_scatter)
            longest = int(np.argmax(lengths))
            return np.eye(len(dissimilar_scatter))[longest], float(lengths[longest])
        values, axes = descending_eigh(dissimilar_scatter, 1)
        return fix_signs(axes.T), float(values[0])

    def _make_start(self, spread: Spread, unwhite: Matrix, frame: ScaledRows) -> Matrix:
        """Return the initial map in white coordinates."""
        first = make_start_map(
            self.init,
            spread,
            None,
            auto="within",
            random_state=self.random_state,
            unit=frame.unit,
        )
        if self.structure == "diagonal":
            L = np.linalg.norm(first, axis=0) * np.diag(unwhite)
        else:
            L = first @ unwhite
            # Keep as many rows as there are directions.
            L = np.asarray(linalg.qr(L, mode="r")[0])[: unwhite.shape[1]]
        if not L.any():
            raise ValueError(
                "init maps both points of every pair to the same point, so the gradient is zero. "
                "Pass another init."
            )
        return np.asarray(L / np.linalg.norm(L))

    def _ascend(
        self,
        mean_distance: _MeanDistance,
        start: Matrix,
        white: Matrix,
        frame: ScaledRows,
        dtype: Any,
    ) -> Matrix:
        descent = Descent(start)

        def prove(L: Matrix) -> tuple[float, Matrix | None]:
            bound, slope = mean_distance.compute_bound(L)
            gap = 1 - mean_distance.mean(L) / bound
            return gap, escape(
                lambda L: -mean_distance.mean(L), L, slope, min_decrease=10 * self.tol
            )

        try:
            with limit_blas_for(4.0 * mean_distance.n_pairs * start.size):
                descend_with_proof(
                    mean_distance.evaluate_negative,
                    descent,
                    prove,
                    max_iter=self.max_iter,
                    tol=self.tol,
                    report=_negate_report(get_reporter(self)),
                )
        finally:
            # The estimator keeps the best map found so far, also after Ctrl-C.
            L = descent.point / np.linalg.norm(descent.point)
            self._keep(_expand_diagonal(L) @ white.T, frame, dtype)
            self.history_ = descent.history | {
                "objective": [-value for value in descent.history["objective"]]
            }
            self.n_iter_ = descent.n_iter
        if not descent.converged:
            warn_not_converged(type(self).__name__, self.max_iter)
        return L

    def _learn_by_projections(
        self, mean_distance: _MeanDistance, similar_scatter: Matrix, frame: ScaledRows, dtype: Any
    ) -> Matrix:
        """Run the projected gradient method of Xing et al."""
        steps = Descent(np.eye(len(similar_scatter)) / np.trace(similar_scatter))
        try:
            maximize_by_projections(
                mean_distance,
                similar_scatter,
                steps,
                max_iter=self.max_iter,
                tol=self.tol,
                report=get_reporter(self),
            )
        finally:
            L = psd_factor(steps.point)
            self._keep(L, frame, dtype)
            self.history_, self.n_iter_ = steps.history, steps.n_iter
        if not steps.converged:
            warn_not_converged(type(self).__name__, self.max_iter)
        return L


class SimilarScatter(NamedTuple):
    """Scatter of similar pairs, the matrix T (p, r) that whitens it, and the inverse of T."""

    scatter: Matrix
    white: Matrix
    unwhite: Matrix


def _whiten_similar(similar: Matrix, dissimilar: Matrix, *, diagonal: bool) -> SimilarScatter:
    """Return the scatter of similar pairs, its whitening matrix, and the inverse of this matrix.

    If the scatter is singular, a fraction of the scatter of all pairs is mixed in.
    """
    if diagonal:
        similar, dissimilar = np.diag(np.diag(similar)), np.diag(np.diag(dissimilar))
    average = (similar + dissimilar) / 2
    (T, U), n_directions = range_whitener(similar, _EMPTY), whitener(average, _EMPTY).shape[1]
    if T.shape[1] < n_directions:
        warn(
            f"Similar pairs differ in only {T.shape[1]} directions. Dissimilar pairs differ in "
            "more directions, so their distances are not bounded. "
            f"{_MIXED_FRACTION:.1%} of the scatter of all pairs is mixed into the scatter of the "
            "similar pairs. Pass more similar pairs to avoid this.",
        )
        similar = (1 - _MIXED_FRACTION) * similar + _MIXED_FRACTION * average
        T, U = range_whitener(similar, _EMPTY)
    if diagonal:  # Use one coordinate per feature, also for constant features.
        lengths = np.sqrt(np.diag(similar))
        inverse = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
        T, U = np.diag(inverse), np.diag(lengths)
    return SimilarScatter(similar, T, U)


class _MeanDistance:
    """Mean distance of pairs under L / |L|, where L is a matrix, or a vector for a diagonal map."""

    def __init__(self, differences: PairDifferences, *, diagonal: bool = False) -> None:
        self.differences, self.n_pairs = differences, differences.n_pairs
        self._squares: Matrix | None = None
        if diagonal:
            self._squares = differences.map_differences(np.eye(differences.points.shape[1])) ** 2

    def compute_lengths(self, L: Matrix) -> Vector:
        """Return the distance of each pair under L, without dividing L by its norm."""
        if self._squares is not None:
            return np.sqrt(self._squares @ L**2)
        return np.sqrt(self.differences.compute_squared_lengths(L))

    def mean(self, L: Matrix) -> float:
        """Return the objective: the mean distance under L / |L|."""
        return float(self.compute_lengths(L).mean() / np.linalg.norm(L))

    def evaluate_negative(self, L: Matrix) -> tuple[float, Matrix]:
        """Return the negative objective and its gradient."""
        norm = float(np.linalg.norm(L))
        if self._squares is not None:
            r = self.compute_lengths(L)
            slopes = L * (self._squares.T @ _invert_or_zero(r))
        else:
            Z = self.differences.map_differences(L)
            r = np.sqrt(np.einsum("ij,ij->i", Z, Z))
            slopes = self.differences.compute_half_gradient(Z, _invert_or_zero(r))
        value = float(r.mean()) / norm
        return -value, (value / norm**2) * L - slopes / (self.n_pairs * norm)

    def compute_bound(self, L: Matrix) -> tuple[float, Matrix]:
        """Return an upper bound on the objective, and the gradient of the negative objective in M.

        The bound holds for all M with trace 1. By concavity, the mean of √(d'Md) is at most the
        mean of r/2 + d'Md/(2r) for any r > 0.
        """
        r = self.compute_lengths(L / np.linalg.norm(L))
        candidates = []
        for floor in _FLOORS:
            floored = np.maximum(r, floor * r.mean())
            G, max_eigenvalue = self._linearize(0.5 / floored)
            identity = np.ones(len(G)) if G.ndim == 1 else np.eye(len(G))
            candidates.append(
                (float(np.sqrt(2 * max_eigenvalue * floored.mean())), r.mean() / 2 * identity - G)
            )
        return min(candidates, key=lambda bound_and_slope: bound_and_slope[0])

    def _linearize(self, weights: Vector) -> tuple[Matrix, float]:
        """Return the weighted mean of dd' (or its diagonal), and its largest eigenvalue."""
        if self._squares is not None:
            diagonal = self._squares.T @ weights / self.n_pairs
            return diagonal, float(diagonal.max())
        G = self.differences.scatter(weights) / self.n_pairs
        return G, float(partial_eigh(G, len(G) - 1, len(G) - 1)[0][0])

    def evaluate_in_metric(self, A: Matrix) -> tuple[float, Matrix]:
        """Return the mean of √(d'Ad) and its gradient with respect to A."""
        r = self.compute_lengths(psd_factor(A))
        floored = np.maximum(r, 1e-9 * r.mean())
        return float(r.mean()), self.differences.scatter(0.5 / floored) / self.n_pairs


def maximize_by_projections(
    objective: Any,
    scatter: Matrix,
    descent: Descent,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[dict[str, float]], None] | None = None,
) -> None:
    """Maximize a concave function of A ⪰ 0 with ⟨A, scatter⟩ ≤ 1 by the method of Xing et al.

    Each step follows the part of the gradient that leaves ⟨A, scatter⟩ unchanged. Alternating
    projections onto the half-space and the cone follow. If the function increased, the step is
    kept and the next one is 5% longer, otherwise the step is halved. The method stops when the step
    is shorter than ``tol`` times the norm of A.
    """
    began, square = perf_counter(), float(np.vdot(scatter, scatter))

    def project_on_half_space(A: Matrix) -> Matrix:
        return project_halfspace(A, scatter, 1.0)

    value, G = objective.evaluate_in_metric(descent.point)
    length = 0.1 * float(np.linalg.norm(descent.point))
    while descent.n_iter < max_iter:
        tangent = G - np.vdot(G, scatter) / square * scatter
        size = float(np.linalg.norm(tangent))
        A = descent.point
        if size > 0:
            trial = alternating_projection(
                A + length / size * tangent,
                [project_on_half_space, project_psd],
                tol=1e-6 * float(np.linalg.norm(A)),
                max_iter=_ROUNDS,
            ).point
            trial /= max(1.0, float(np.vdot(trial, scatter)))
            trial_value, slope = objective.evaluate_in_metric(trial)
            if trial_value > value:
                descent.point, value, G = trial, trial_value, slope
        improved = descent.point is not A
        length *= 1.05 if improved else 0.5
        step = length / float(np.linalg.norm(descent.point))
        notes = {"objective": value, "step": step, "seconds": perf_counter() - began}
        for name, number in notes.items():
            descent.history[name].append(number)
        if report is not None:
            report(notes)
        if step < tol or size == 0:
            descent.converged = True
            return


def _invert_or_zero(r: Vector) -> Vector:
    """Return 1/r, or 0 where r is 0."""
    return np.divide(1.0, r, out=np.zeros_like(r), where=r > 0)


def _expand_diagonal(L: Matrix) -> Matrix:
    return np.diag(L) if L.ndim == 1 else L


def _negate_report(
    report: Callable[[dict[str, float]], None] | None,
) -> Callable[[dict[str, float]], None] | None:
    """Return a report function that receives the negative objective and reports the objective."""
    if report is None:
        return None
    return lambda notes: report({**notes, "objective": -notes["objective"]})
