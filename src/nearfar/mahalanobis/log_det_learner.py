"""Base class of learners that stay close to a prior metric by the LogDet divergence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Floats, Matrix
from nearfar.base.guided import GuidedLearner, scaled
from nearfar.base.progress import report_of
from nearfar.mahalanobis.priors import prior_factor
from nearfar.notices import warn_not_converged
from nearfar.solvers.descent import Descent, descend_with_proof
from nearfar.solvers.log_det import log_det_bound, log_det_divergence
from nearfar.state import State, number, optional

#: Relative rounding error of points in the coordinates of a prior: two points that differ by less
#: than this fraction of the longest point are treated as equal.
ROUNDING = 1e-13
# Absolute difference between objective and bound that is rounding error: the terms of the
# divergence are close to 1.
_NO_GAP = 1e-12


class Loss(Protocol):
    """A convex loss of a metric A = BᵀB, in coordinates in which the prior is the identity."""

    def __call__(self, B: Matrix) -> tuple[float, Matrix]:
        """Return the value and the gradient with respect to B."""

    def pull(self) -> Matrix:
        """Return a scatter that estimates how strongly the loss shrinks each direction."""

    def multipliers(self, B: Matrix) -> tuple[Matrix, Callable[[float], float] | None]:
        """Return the arguments of `log_det_bound` at B.

        They are the scatter of the slopes and, if not None, the term that is subtracted.
        """


class _LogDetLearner(GuidedLearner):
    """A learner that minimizes LogDet(M, M₀) plus a loss of the supervision, with a proven bound.

    With :math:`M_0 = W^T W`, the prior is the identity in the coordinates W x, and
    :math:`M = W^T B^T B W`. Where the prior is singular, M is singular too, because LogDet is
    infinite otherwise. In directions that no point has, M equals the prior.
    """

    state = State(
        {
            name: optional(word)
            for name, word in {
                "objective_": number(),
                "dual_bound_": number(),
                "duality_gap_": number(),
            }.items()
        }
    )

    prior: str | ArrayLike
    max_iter: int
    tol: float

    @abstractmethod
    def _loss(self, points: Matrix, guide: Any) -> Loss:
        """Return the loss in coordinates in which the prior is the identity."""

    def _learn(self, rows: Floats, guide: Any) -> None:
        frame = scaled(rows)
        W = prior_factor(self.prior, frame.points, frame.unit)
        points = frame.points @ W.T
        axes = _axes(points)
        loss = self._loss(points if axes is None else points @ axes.T, guide)

        # Precondition: the metric will be small in directions in which the loss pulls strongly.
        root, inverse = _roots(np.eye(len(W) if axes is None else len(axes)) + loss.pull())

        def objective(C: Matrix) -> tuple[float, Matrix]:
            B = C @ inverse
            apart, gradient = log_det_divergence(B)
            value, slope = loss(B)
            return apart + value, (gradient + slope) @ inverse

        def prove(C: Matrix) -> tuple[float, None]:
            self.dual_bound_ = log_det_bound(*loss.multipliers(C @ inverse))
            self.duality_gap_ = _gap(found.objective, self.dual_bound_)
            return self.duality_gap_, None

        found = Descent(root)
        try:
            descend_with_proof(
                objective,
                found,
                prove,
                max_iter=self.max_iter,
                tol=self.tol,
                report=report_of(self),
            )
        finally:
            # After Ctrl-C too, the estimator keeps the best metric found so far.
            B = found.point @ inverse
            L = B @ W if axes is None else W + axes.T @ ((B - np.eye(len(B))) @ (axes @ W))
            self._keep(L, frame, rows.dtype)
            self.history_, self.n_iter_ = found.history, found.n_iter
            self.objective_ = float(found.objective)
        prove(found.point)
        if not found.converged:
            warn_not_converged(type(self).__name__, self.max_iter)


def _gap(objective: float, bound: float) -> float:
    """Return ``1 - bound / objective``, or 0 if the two differ only by rounding."""
    return max(0.0, 1 - bound / objective) if objective - bound > _NO_GAP else 0.0


def _roots(S: Matrix) -> tuple[Matrix, Matrix]:
    """Return the symmetric square root of a regular matrix, and its inverse."""
    values, axes = linalg.eigh(S)
    return np.asarray(axes * np.sqrt(values) @ axes.T), np.asarray(axes / np.sqrt(values) @ axes.T)


def _axes(points: Matrix) -> Matrix | None:
    """Return orthonormal rows that span the points, or None.

    None means that there are more points than dimensions.
    """
    n, r = points.shape
    if n > r:
        return None
    _, sizes, axes = linalg.svd(points, full_matrices=False)
    return np.asarray(axes[sizes > 1e-13 * sizes[0]])
