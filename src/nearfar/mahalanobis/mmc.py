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
_MIN_EIGENVALUE_RATIO = 1e-12
# To compute an upper bound on the objective, short distances are replaced by a fraction of the mean
# distance. Every fraction gives a valid bound. The smallest bound of these three fractions is used.
_DISTANCE_FLOOR_FRACTIONS = (1e-6, 1e-4, 1e-2)
# Maximum number of rounds of alternating projections after a gradient step.
_MAX_PROJECTION_ROUNDS = 20


class MMC(PairLearner):
    r"""Xing's metric learning: dissimilar pairs move apart while similar pairs stay close.

    With the differences d = x_i − x_j over the similar pairs S and the dissimilar pairs D, MMC
    solves the convex program

    .. math::
        \max_{M \succeq 0} \; \frac{1}{|D|} \sum_D \sqrt{d^T M d} \quad \text{s.t.} \quad
        \frac{1}{|S|} \sum_S d^T M d \le 1 .

    It is solved over L with :math:`M = L^T L` by L-BFGS, in coordinates in which the scatter of
    similar pairs is the identity, so the result does not depend on linear changes of the features.
    If L loses rank, the solver checks whether the objective still increases in some direction of M.
    Let r be the distances of dissimilar pairs, :math:`\bar r` their mean, and
    :math:`G = \tfrac{1}{|D|} \sum_D d d^T / 2r` in those coordinates. The objective of every
    feasible metric is at most :math:`\sqrt{2 \lambda_{\max}(G) \bar r}`, which is ``dual_bound_``.

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
       Its constraint contains squared distances, for which the optimum has rank one.
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
    >>> pair_points, sign = pairs.to_arrays(X)
    >>> float((mmc.pair_distance(pair_points[sign == 1]) ** 2).mean().round(6))
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
        uses_projected_gradient = self.variant == "distance" and self.solver == "projected_gradient"
        if uses_projected_gradient and self.structure == "diagonal":
            raise ValueError(
                'solver="projected_gradient" does not support structure="diagonal". Use '
                'solver="lbfgs".'
            )
        scaled_rows = scale_rows(rows)
        similar_pairs, dissimilar_pairs = self._select_usable_pairs(scaled_rows.points, supervision)
        similar_differences = PairDifferences(scaled_rows.points, similar_pairs)
        dissimilar_differences = PairDifferences(scaled_rows.points, dissimilar_pairs)
        similar_scatter = similar_differences.scatter() / similar_differences.n_pairs
        dissimilar_scatter = dissimilar_differences.scatter() / dissimilar_differences.n_pairs
        similar_scatter, whitening, unwhitening = _whiten_similar(
            similar_scatter, dissimilar_scatter, diagonal=self.structure == "diagonal"
        )
        mean_distance = _MeanDistance(
            PairDifferences(scaled_rows.points @ whitening, dissimilar_pairs),
            diagonal=self.structure == "diagonal",
        )
        if self.variant == "squared":
            L, self.objective_ = self._find_widest_direction(
                whitening.T @ dissimilar_scatter @ whitening
            )
            self.dual_bound_ = self.objective_
            self.n_iter_, self.history_ = 0, Descent(L).history
            self._keep(_expand_diagonal(L) @ whitening.T, scaled_rows, rows.dtype)
        elif self.solver == "projected_gradient":
            mean_distance = _MeanDistance(dissimilar_differences)
            L = self._learn_by_projections(mean_distance, similar_scatter, scaled_rows, rows.dtype)
            # The bound is computed in white coordinates.
            mean_distance = _MeanDistance(
                PairDifferences(scaled_rows.points @ whitening, dissimilar_pairs)
            )
            L = L @ unwhitening
            self.objective_, self.dual_bound_ = (
                mean_distance.mean(L),
                mean_distance.compute_bound(L)[0],
            )
        else:
            spread = Spread(
                np.cov(scaled_rows.points.T, bias=True).reshape(similar_scatter.shape),
                similar_scatter,
                dissimilar_scatter,
            )
            L = self._make_start(spread, unwhitening, scaled_rows)
            L = self._ascend(mean_distance, L, whitening, scaled_rows, rows.dtype)
            self.objective_, self.dual_bound_ = (
                mean_distance.mean(L),
                mean_distance.compute_bound(L)[0],
            )
        self.duality_gap_ = max(0.0, 1 - self.objective_ / self.dual_bound_)

    def _find_widest_direction(self, dissimilar_scatter: Matrix) -> tuple[Matrix, float]:
        """Return the direction in which dissimilar pairs differ most, and their scatter along it.

        In the coordinates used, the scatter of similar pairs is white. With
        ``structure="diagonal"``, the direction is one feature.
        """
        if self.structure == "diagonal":
            feature_scatters = np.diag(dissimilar_scatter)
            widest_feature = int(np.argmax(feature_scatters))
            return np.eye(len(dissimilar_scatter))[widest_feature], float(
                feature_scatters[widest_feature]
            )
        values, axes = descending_eigh(dissimilar_scatter, 1)
        return fix_signs(axes.T), float(values[0])

    def _make_start(self, spread: Spread, unwhitening: Matrix, scaled_rows: ScaledRows) -> Matrix:
        """Return the initial map in white coordinates."""
        start_map = make_start_map(
            self.init,
            spread,
            None,
            auto="within",
            random_state=self.random_state,
            unit=scaled_rows.unit,
        )
        if self.structure == "diagonal":
            L = np.linalg.norm(start_map, axis=0) * np.diag(unwhitening)
        else:
            L = start_map @ unwhitening
            # Keep as many rows as there are directions.
            L = np.asarray(linalg.qr(L, mode="r")[0])[: unwhitening.shape[1]]
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
        whitening: Matrix,
        scaled_rows: ScaledRows,
        dtype: Any,
    ) -> Matrix:
        descent = Descent(start)

        def prove(L: Matrix) -> tuple[float, Matrix | None]:
            bound, gradient = mean_distance.compute_bound(L)
            gap = 1 - mean_distance.mean(L) / bound
            return gap, escape(
                lambda L: -mean_distance.mean(L), L, gradient, min_decrease=10 * self.tol
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
            # The estimator keeps the best map found so far, even after Ctrl-C.
            L = descent.point / np.linalg.norm(descent.point)
            self._keep(_expand_diagonal(L) @ whitening.T, scaled_rows, dtype)
            self.history_ = descent.history | {
                "objective": [-value for value in descent.history["objective"]]
            }
            self.n_iter_ = descent.n_iter
        if not descent.converged:
            warn_not_converged(type(self).__name__, self.max_iter)
        return L

    def _learn_by_projections(
        self,
        mean_distance: _MeanDistance,
        similar_scatter: Matrix,
        scaled_rows: ScaledRows,
        dtype: Any,
    ) -> Matrix:
        """Run the projected gradient method of Xing et al."""
        ascent = Descent(np.eye(len(similar_scatter)) / np.trace(similar_scatter))
        try:
            maximize_by_projections(
                mean_distance,
                similar_scatter,
                ascent,
                max_iter=self.max_iter,
                tol=self.tol,
                report=get_reporter(self),
            )
        finally:
            L = psd_factor(ascent.point)
            self._keep(L, scaled_rows, dtype)
            self.history_, self.n_iter_ = ascent.history, ascent.n_iter
        if not ascent.converged:
            warn_not_converged(type(self).__name__, self.max_iter)
        return L


class SimilarScatter(NamedTuple):
    """Scatter of similar pairs, the matrix T (p, r) that whitens it, and the inverse of T."""

    scatter: Matrix
    whitening: Matrix
    unwhitening: Matrix


def _whiten_similar(
    similar_scatter: Matrix, dissimilar_scatter: Matrix, *, diagonal: bool
) -> SimilarScatter:
    """Return the scatter of similar pairs, its whitening matrix, and the inverse of this matrix.

    If the scatter is singular, a fraction of the scatter of all pairs is mixed in.
    """
    if diagonal:
        similar_scatter, dissimilar_scatter = (
            np.diag(np.diag(similar_scatter)),
            np.diag(np.diag(dissimilar_scatter)),
        )
    average = (similar_scatter + dissimilar_scatter) / 2
    (T, T_inverse), n_directions = (
        range_whitener(similar_scatter, _MIN_EIGENVALUE_RATIO),
        whitener(average, _MIN_EIGENVALUE_RATIO).shape[1],
    )
    if T.shape[1] < n_directions:
        warn(
            f"Similar pairs differ in only {T.shape[1]} directions. Dissimilar pairs differ in "
            "more directions, so their distances are not bounded. "
            f"{_MIXED_FRACTION:.1%} of the scatter of all pairs is mixed into the scatter of the "
            "similar pairs. Pass more similar pairs to avoid this.",
        )
        similar_scatter = (1 - _MIXED_FRACTION) * similar_scatter + _MIXED_FRACTION * average
        T, T_inverse = range_whitener(similar_scatter, _MIN_EIGENVALUE_RATIO)
    if diagonal:  # Use one coordinate per feature, even for constant features.
        lengths = np.sqrt(np.diag(similar_scatter))
        inverse = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
        T, T_inverse = np.diag(inverse), np.diag(lengths)
    return SimilarScatter(similar_scatter, T, T_inverse)


class _MeanDistance:
    """Mean distance of pairs under L / |L|, where L is a matrix, or a vector for a diagonal map."""

    def __init__(self, differences: PairDifferences, *, diagonal: bool = False) -> None:
        self.differences, self.n_pairs = differences, differences.n_pairs
        self._squared_differences: Matrix | None = None
        if diagonal:
            self._squared_differences = (
                differences.map_differences(np.eye(differences.points.shape[1])) ** 2
            )

    def compute_distances(self, L: Matrix) -> Vector:
        """Return the distance of each pair under L, without dividing L by its norm."""
        if self._squared_differences is not None:
            return np.sqrt(self._squared_differences @ L**2)
        return np.sqrt(self.differences.compute_squared_lengths(L))

    def mean(self, L: Matrix) -> float:
        """Return the objective: the mean distance under L / |L|."""
        return float(self.compute_distances(L).mean() / np.linalg.norm(L))

    def evaluate_negative(self, L: Matrix) -> tuple[float, Matrix]:
        """Return the negative objective and its gradient."""
        norm = float(np.linalg.norm(L))
        if self._squared_differences is not None:
            r = self.compute_distances(L)
            slopes = L * (self._squared_differences.T @ _invert_or_zero(r))
        else:
            Z = self.differences.map_differences(L)
            r = np.sqrt(np.einsum("ij,ij->i", Z, Z))
            slopes = self.differences.compute_half_gradient(Z, _invert_or_zero(r))
        value = float(r.mean()) / norm
        return -value, (value / norm**2) * L - slopes / (self.n_pairs * norm)

    def compute_bound(self, L: Matrix) -> tuple[float, Matrix]:
        """Return an upper bound on the objective, and the gradient of the negative objective.

        The gradient is with respect to M. The bound holds for all M with trace 1. By concavity, the
        mean of √(d'Md) is at most the mean of r/2 + d'Md/(2r) for any r > 0.
        """
        r = self.compute_distances(L / np.linalg.norm(L))
        candidates = []
        for floor in _DISTANCE_FLOOR_FRACTIONS:
            floored_distances = np.maximum(r, floor * r.mean())
            G, max_eigenvalue = self._linearize(0.5 / floored_distances)
            identity = np.ones(len(G)) if G.ndim == 1 else np.eye(len(G))
            candidates.append(
                (
                    float(np.sqrt(2 * max_eigenvalue * floored_distances.mean())),
                    r.mean() / 2 * identity - G,
                )
            )
        return min(candidates, key=lambda bound_and_slope: bound_and_slope[0])

    def _linearize(self, weights: Vector) -> tuple[Matrix, float]:
        """Return the weighted mean of dd' (or its diagonal), and its largest eigenvalue."""
        if self._squared_differences is not None:
            diagonal = self._squared_differences.T @ weights / self.n_pairs
            return diagonal, float(diagonal.max())
        G = self.differences.scatter(weights) / self.n_pairs
        return G, float(partial_eigh(G, len(G) - 1, len(G) - 1)[0][0])

    def evaluate_in_metric(self, A: Matrix) -> tuple[float, Matrix]:
        """Return the mean of √(d'Ad) and its gradient with respect to A."""
        r = self.compute_distances(psd_factor(A))
        floored_distances = np.maximum(r, 1e-9 * r.mean())
        return float(r.mean()), self.differences.scatter(0.5 / floored_distances) / self.n_pairs


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

    Each step moves along the part of the gradient that leaves ⟨A, scatter⟩ unchanged, and then
    projects A alternately onto the half-space and the cone. If the function increased, the step is
    kept and the next one is 5% longer, otherwise the step is halved. The method stops when the step
    is shorter than ``tol`` times the norm of A.
    """
    start_time, squared_norm = perf_counter(), float(np.vdot(scatter, scatter))

    def project_on_half_space(A: Matrix) -> Matrix:
        return project_halfspace(A, scatter, 1.0)

    value, G = objective.evaluate_in_metric(descent.point)
    step_length = 0.1 * float(np.linalg.norm(descent.point))
    while descent.n_iter < max_iter:
        tangent = G - np.vdot(G, scatter) / squared_norm * scatter
        tangent_norm = float(np.linalg.norm(tangent))
        A = descent.point
        if tangent_norm > 0:
            trial = alternating_projection(
                A + step_length / tangent_norm * tangent,
                [project_on_half_space, project_psd],
                tol=1e-6 * float(np.linalg.norm(A)),
                max_iter=_MAX_PROJECTION_ROUNDS,
            ).point
            trial /= max(1.0, float(np.vdot(trial, scatter)))
            trial_value, gradient = objective.evaluate_in_metric(trial)
            if trial_value > value:
                descent.point, value, G = trial, trial_value, gradient
        has_improved = descent.point is not A
        step_length *= 1.05 if has_improved else 0.5
        relative_step = step_length / float(np.linalg.norm(descent.point))
        progress = {
            "objective": value,
            "step": relative_step,
            "seconds": perf_counter() - start_time,
        }
        for name, number in progress.items():
            descent.history[name].append(number)
        if report is not None:
            report(progress)
        if relative_step < tol or tangent_norm == 0:
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
    return lambda progress: report({**progress, "objective": -progress["objective"]})
