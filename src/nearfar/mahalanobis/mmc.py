"""Xing's metric learning from similar and dissimilar pairs (MMC)."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base import LearnerTags, PairLearner, report_of
from nearfar.base.guided import PAIR_PARAMETERS, Scaled, scaled
from nearfar.blocks import limit_blas_for
from nearfar.mahalanobis.starts import STARTS, Spread, start_map
from nearfar.notices import warn, warn_not_converged
from nearfar.parameters import integer, one_of, real
from nearfar.solvers.descent import Descent, descend_with_proof, escape
from nearfar.solvers.eigen import descending_eigh, fix_signs, range_whitener, some_eigh, whitener
from nearfar.solvers.projections import (
    alternating_projection,
    project_halfspace,
    project_psd,
    psd_factor,
)
from nearfar.summaries.pair_differences import PairDifferences
from nearfar.summaries.supervision import Pairs

# Fraction of the scatter of all pairs that is mixed into a singular scatter of similar pairs.
_MIXED = 1e-3
# Relative eigenvalue below which the data do not vary in a direction.
_EMPTY = 1e-12
# Minimum distances in the bound, relative to the mean distance. The bound holds for any minimum;
# the best of these is used.
_FLOORS = (1e-6, 1e-4, 1e-2)
# Maximum number of rounds of alternating projections after a gradient step.
_ROUNDS = 20


class MMC(PairLearner):
    r"""Xing's metric from pairs: dissimilar pairs far apart, similar pairs within a bound.

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
        Whether distances or squared distances of dissimilar pairs are summed. "squared" has a
        closed form of rank one, which projects the data onto a line.
    structure : {"full", "diagonal"}, default="full"
        "diagonal" learns one weight per feature.
    solver : {"lbfgs", "projected_gradient"}, default="lbfgs"
        "projected_gradient" is the algorithm of Xing et al. [1]_, for comparison only: gradient
        steps followed by alternating projections onto the constraint and the cone. It converges
        slowly. Not used with ``variant="squared"``.
    init : {"auto", "identity", "pca", "lda", "within", "random"} or array of shape (p, p)
        Starting point: Euclidean distance, whitened principal axes, directions in which dissimilar
        pairs differ, whitening of the similar pairs, a random map, or the given one. "auto" is
        "within". Used only with ``variant="distance"`` and ``solver="lbfgs"``.
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
        duality gap is at most 50 times it. If the gap stays larger, the tolerance is tightened up
        to three times, by a factor of 10 each.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used to draw pairs from labels and for
        ``init="random"``.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map, scaled so that the mean squared distance of similar pairs is 1. It has one
        row per direction in which pairs differ, one row with ``variant="squared"``, and is a
        diagonal matrix with ``structure="diagonal"``.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    objective_ : float
        Mean distance of dissimilar pairs, or their mean squared distance with
        ``variant="squared"``.
    dual_bound_ : float
        Upper bound on the objective for every metric, or with ``structure="diagonal"`` for every
        diagonal metric.
    duality_gap_ : float
        ``1 - objective_ / dual_bound_``. A value of 0 proves that the solution is optimal.
    n_iter_ : int
        Number of iterations; 0 for the closed form.
    history_ : dict of lists
        "objective", "step" and "seconds" of each iteration.

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

    learner_tags = LearnerTags(reads="supervision", learns_from=("labels", "pairs"))
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

    def _learn(self, rows: Floats, guide: Pairs) -> None:
        iterates = self.variant == "distance" and self.solver == "projected_gradient"
        if iterates and self.structure == "diagonal":
            raise ValueError(
                'solver="projected_gradient" does not support structure="diagonal". Use '
                'solver="lbfgs".'
            )
        frame = scaled(rows)
        similar, dissimilar = self._usable(frame.points, guide)
        alike = PairDifferences(frame.points, similar)
        unlike = PairDifferences(frame.points, dissimilar)
        near = alike.scatter() / alike.n_pairs
        far = unlike.scatter() / unlike.n_pairs
        near, white, unwhite = _bounded(near, far, diagonal=self.structure == "diagonal")
        inner = _MeanDistance(
            PairDifferences(frame.points @ white, dissimilar), diagonal=self.structure == "diagonal"
        )
        if self.variant == "squared":
            L, self.objective_ = self._longest(white.T @ far @ white)
            self.dual_bound_ = self.objective_
            self.n_iter_, self.history_ = 0, Descent(L).history
            self._keep(_whole(L) @ white.T, frame, rows.dtype)
        elif self.solver == "projected_gradient":
            inner = _MeanDistance(unlike)
            L = self._learn_by_projections(inner, near, frame, rows.dtype)
            # The bound is computed in white coordinates.
            inner = _MeanDistance(PairDifferences(frame.points @ white, dissimilar))
            L = L @ unwhite
            self.objective_, self.dual_bound_ = inner.mean(L), inner.bound(L)[0]
        else:
            spread = Spread(np.cov(frame.points.T, bias=True).reshape(near.shape), near, far)
            L = self._start(spread, unwhite, frame)
            L = self._ascend(inner, L, white, frame, rows.dtype)
            self.objective_, self.dual_bound_ = inner.mean(L), inner.bound(L)[0]
        self.duality_gap_ = max(0.0, 1 - self.objective_ / self.dual_bound_)

    def _longest(self, far: Matrix) -> tuple[Matrix, float]:
        """Return the direction (or feature) of the longest dissimilar pairs, and their length.

        The coordinates are those in which similar pairs are white.
        """
        if self.structure == "diagonal":
            lengths = np.diag(far)
            best = int(np.argmax(lengths))
            return np.eye(len(far))[best], float(lengths[best])
        values, axes = descending_eigh(far, 1)
        return fix_signs(axes.T), float(values[0])

    def _start(self, spread: Spread, unwhite: Matrix, frame: Scaled) -> Matrix:
        """Return the initial map in white coordinates."""
        first = start_map(
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
        self, inner: _MeanDistance, start: Matrix, white: Matrix, frame: Scaled, dtype: Any
    ) -> Matrix:
        found = Descent(start)

        def prove(L: Matrix) -> tuple[float, Matrix | None]:
            bound, slope = inner.bound(L)
            gap = 1 - inner.mean(L) / bound
            return gap, escape(lambda L: -inner.mean(L), L, slope, least=10 * self.tol)

        try:
            with limit_blas_for(4.0 * inner.n_pairs * start.size):
                descend_with_proof(
                    inner.minus,
                    found,
                    prove,
                    max_iter=self.max_iter,
                    tol=self.tol,
                    report=_rising(report_of(self)),
                )
        finally:
            # After Ctrl-C too, the estimator keeps the best map found so far.
            L = found.point / np.linalg.norm(found.point)
            self._keep(_whole(L) @ white.T, frame, dtype)
            self.history_ = found.history | {
                "objective": [-value for value in found.history["objective"]]
            }
            self.n_iter_ = found.n_iter
        if not found.converged:
            warn_not_converged(type(self).__name__, self.max_iter)
        return L

    def _learn_by_projections(
        self, inner: _MeanDistance, near: Matrix, frame: Scaled, dtype: Any
    ) -> Matrix:
        """Run the projected gradient method of Xing et al."""
        steps = Descent(np.eye(len(near)) / np.trace(near))
        try:
            projected_gradient(
                inner, near, steps, max_iter=self.max_iter, tol=self.tol, report=report_of(self)
            )
        finally:
            L = psd_factor(steps.point)
            self._keep(L, frame, dtype)
            self.history_, self.n_iter_ = steps.history, steps.n_iter
        if not steps.converged:
            warn_not_converged(type(self).__name__, self.max_iter)
        return L


class Bounded(NamedTuple):
    """Scatter of similar pairs, coordinates T (p, r) in which it is white, and their inverse."""

    near: Matrix
    white: Matrix
    unwhite: Matrix


def _bounded(near: Matrix, far: Matrix, *, diagonal: bool) -> Bounded:
    """Return the scatter of similar pairs, with some of all pairs mixed in if it is singular."""
    if diagonal:
        near, far = np.diag(np.diag(near)), np.diag(np.diag(far))
    both = (near + far) / 2
    (T, U), n_directions = range_whitener(near, _EMPTY), whitener(both, _EMPTY).shape[1]
    if T.shape[1] < n_directions:
        warn(
            f"Similar pairs differ in {T.shape[1]} directions, dissimilar pairs in more, so the "
            "distances of dissimilar pairs are not bounded. "
            f"{_MIXED:.1%} of the scatter of all pairs is mixed into that of the similar pairs. "
            "Pass more similar pairs to avoid this.",
        )
        near = (1 - _MIXED) * near + _MIXED * both
        T, U = range_whitener(near, _EMPTY)
    if diagonal:  # There are as many coordinates as features, some of them constant.
        lengths = np.sqrt(np.diag(near))
        inverse = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
        T, U = np.diag(inverse), np.diag(lengths)
    return Bounded(near, T, U)


class _MeanDistance:
    """The mean distance of pairs under L / |L|, where L is a map or a vector (diagonal)."""

    def __init__(self, differences: PairDifferences, *, diagonal: bool = False) -> None:
        self.differences, self.n_pairs = differences, differences.n_pairs
        self._squares: Matrix | None = None
        if diagonal:
            self._squares = differences.map_differences(np.eye(differences.points.shape[1])) ** 2

    def lengths(self, L: Matrix) -> Vector:
        """Return the distance of each pair under L, not normalized."""
        if self._squares is not None:
            return np.sqrt(self._squares @ L**2)
        return np.sqrt(self.differences.compute_squared_lengths(L))

    def mean(self, L: Matrix) -> float:
        """Return the objective."""
        return float(self.lengths(L).mean() / np.linalg.norm(L))

    def minus(self, L: Matrix) -> tuple[float, Matrix]:
        """Return the negative objective and its gradient."""
        norm = float(np.linalg.norm(L))
        if self._squares is not None:
            r = self.lengths(L)
            slopes = L * (self._squares.T @ _inverse(r))
        else:
            Z = self.differences.map_differences(L)
            r = np.sqrt(np.einsum("ij,ij->i", Z, Z))
            slopes = self.differences.compute_half_gradient(Z, _inverse(r))
        value = float(r.mean()) / norm
        return -value, (value / norm**2) * L - slopes / (self.n_pairs * norm)

    def bound(self, L: Matrix) -> tuple[float, Matrix]:
        """Return an upper bound for M of trace 1, and the gradient in M of the negative objective.

        By concavity, the mean of √(d'Md) is at most the mean of r/2 + d'Md/(2r) for any r > 0.
        """
        r = self.lengths(L / np.linalg.norm(L))
        found = []
        for floor in _FLOORS:
            used = np.maximum(r, floor * r.mean())
            G, largest = self._linearized(0.5 / used)
            identity = np.ones(len(G)) if G.ndim == 1 else np.eye(len(G))
            found.append((float(np.sqrt(2 * largest * used.mean())), r.mean() / 2 * identity - G))
        return min(found, key=lambda bound_and_slope: bound_and_slope[0])

    def _linearized(self, weights: Vector) -> tuple[Matrix, float]:
        """Return the mean of w dd' (or its diagonal) and its largest eigenvalue."""
        if self._squares is not None:
            diagonal = self._squares.T @ weights / self.n_pairs
            return diagonal, float(diagonal.max())
        G = self.differences.scatter(weights) / self.n_pairs
        return G, float(some_eigh(G, len(G) - 1, len(G) - 1)[0][0])

    def ascent(self, A: Matrix) -> tuple[float, Matrix]:
        """Return the mean of √(d'Ad) and its gradient in A."""
        r = self.lengths(psd_factor(A))
        floored = np.maximum(r, 1e-9 * r.mean())
        return float(r.mean()), self.differences.scatter(0.5 / floored) / self.n_pairs


def projected_gradient(
    inner: Any,
    near: Matrix,
    found: Descent,
    *,
    max_iter: int,
    tol: float,
    report: Callable[[dict[str, float]], None] | None = None,
) -> None:
    """Maximize a concave function of A ⪰ 0, ⟨A, near⟩ ≤ 1, by the method of Xing et al.

    Each step follows the part of the gradient that leaves ⟨A, near⟩ unchanged. Alternating
    projections onto the half-space and the cone follow. If the function increased, the step is
    kept and the next one is 5% longer, otherwise the step is halved. The method stops when the step
    is shorter than ``tol`` times the norm of A.
    """
    began, square = perf_counter(), float(np.vdot(near, near))

    def half_space(A: Matrix) -> Matrix:
        return project_halfspace(A, near, 1.0)

    value, G = inner.ascent(found.point)
    length = 0.1 * float(np.linalg.norm(found.point))
    while found.n_iter < max_iter:
        along = G - np.vdot(G, near) / square * near
        size = float(np.linalg.norm(along))
        A = found.point
        if size > 0:
            trial = alternating_projection(
                A + length / size * along,
                [half_space, project_psd],
                tol=1e-6 * float(np.linalg.norm(A)),
                max_iter=_ROUNDS,
            ).point
            trial /= max(1.0, float(np.vdot(trial, near)))
            new, slope = inner.ascent(trial)
            if new > value:
                found.point, value, G = trial, new, slope
        rose = found.point is not A
        length *= 1.05 if rose else 0.5
        step = length / float(np.linalg.norm(found.point))
        notes = {"objective": value, "step": step, "seconds": perf_counter() - began}
        for name, number in notes.items():
            found.history[name].append(number)
        if report is not None:
            report(notes)
        if step < tol or size == 0:
            found.converged = True
            return


def _inverse(r: Vector) -> Vector:
    """Return 1/r, or 0 where r is 0."""
    return np.divide(1.0, r, out=np.zeros_like(r), where=r > 0)


def _whole(L: Matrix) -> Matrix:
    return np.diag(L) if L.ndim == 1 else L


def _rising(
    report: Callable[[dict[str, float]], None] | None,
) -> Callable[[dict[str, float]], None] | None:
    """Return a report function that restores the sign of the objective."""
    if report is None:
        return None
    return lambda notes: report({**notes, "objective": -notes["objective"]})
