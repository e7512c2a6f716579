"""Base class of learners that stay close to a prior metric by the LogDet divergence."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Floats, Matrix
from nearfar.base.guided import ConstraintLearner, scale_rows
from nearfar.base.progress import get_reporter
from nearfar.mahalanobis.priors import factor_prior
from nearfar.notices import warn_not_converged
from nearfar.solvers.descent import Descent, descend_with_proof
from nearfar.solvers.log_det import log_det_bound, log_det_divergence
from nearfar.state import State, number, optional

#: Two points are treated as equal if their distance is below this fraction of the largest norm
#: among the points. Norms and distances are computed in coordinates in which the prior is the
#: identity.
ROUNDING = 1e-13
# The duality gap is set to 0 if the objective and its bound differ by at most this value. A
# difference this small is a rounding error, because the terms of the divergence are close to 1.
_NO_GAP = 1e-12


class Loss(Protocol):
    """Convex loss of a metric A = BᵀB, in coordinates in which the prior is the identity."""

    def __call__(self, B: Matrix) -> tuple[float, Matrix]:
        """Return the value and the gradient with respect to B."""

    def compute_pull(self) -> Matrix:
        """Return a matrix that estimates how strongly the loss shrinks each direction."""

    def compute_multipliers(self, B: Matrix) -> tuple[Matrix, Callable[[float], float] | None]:
        """Return the arguments that `log_det_bound` needs for the lower bound at B.

        The first is the scatter of the slopes. The second is the term that is subtracted, or None.
        """


class _LogDetLearner(ConstraintLearner):
    """Base class of learners that minimize LogDet(M, M₀) plus a loss of the supervision.

    With :math:`M_0 = W^T W`, the prior is the identity in the coordinates W x, and
    :math:`M = W^T B^T B W`. Where the prior is singular, M is singular too, because LogDet is
    infinite otherwise. In directions outside the span of the points, M equals the prior.
    """

    state = State(
        {
            name: optional(kind)
            for name, kind in {
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
    def _make_loss(self, points: Matrix, supervision: Any) -> Loss:
        """Return the loss in coordinates in which the prior is the identity."""

    @np.errstate(divide="ignore", invalid="ignore")  # An infinite objective is reported.
    def _learn(self, rows: Floats, supervision: Any) -> None:
        frame = scale_rows(rows)
        W = factor_prior(self.prior, frame.points, frame.unit)
        points = frame.points @ W.T
        axes = _find_axes(points)
        loss = self._make_loss(points if axes is None else points @ axes.T, supervision)

        # Precondition the problem. The metric will be small in directions that the loss shrinks
        # most.
        root, inverse = _compute_roots(
            np.eye(len(W) if axes is None else len(axes)) + loss.compute_pull()
        )

        def objective(C: Matrix) -> tuple[float, Matrix]:
            B = C @ inverse
            divergence, gradient = log_det_divergence(B)
            value, slope = loss(B)
            return divergence + value, (gradient + slope) @ inverse

        def prove(C: Matrix) -> tuple[float, None]:
            self.dual_bound_ = log_det_bound(*loss.compute_multipliers(C @ inverse))
            self.duality_gap_ = _compute_gap(descent.objective, self.dual_bound_)
            return self.duality_gap_, None

        descent = Descent(root)
        try:
            descend_with_proof(
                objective,
                descent,
                prove,
                max_iter=self.max_iter,
                tol=self.tol,
                report=get_reporter(self),
            )
        finally:
            # The estimator keeps the best metric found so far, also after Ctrl-C.
            B = descent.point @ inverse
            L = B @ W if axes is None else W + axes.T @ ((B - np.eye(len(B))) @ (axes @ W))
            self._keep(L, frame, rows.dtype)
            self.history_, self.n_iter_ = descent.history, descent.n_iter
            self.objective_ = float(descent.objective)
        prove(descent.point)
        if not descent.converged:
            warn_not_converged(type(self).__name__, self.max_iter)


def _compute_gap(objective: float, bound: float) -> float:
    """Return ``1 - bound / objective``, or 0 if the two differ only by rounding."""
    return max(0.0, 1 - bound / objective) if objective - bound > _NO_GAP else 0.0


def _compute_roots(S: Matrix) -> tuple[Matrix, Matrix]:
    """Return the symmetric square root of a positive definite matrix, and the inverse root."""
    values, axes = linalg.eigh(S)
    return np.asarray(axes * np.sqrt(values) @ axes.T), np.asarray(axes / np.sqrt(values) @ axes.T)


def _find_axes(points: Matrix) -> Matrix | None:
    """Return orthonormal rows that span the points, or None if there are many points.

    None is returned if there are more points than dimensions.
    """
    n, r = points.shape
    if n > r:
        return None
    _, sizes, axes = linalg.svd(points, full_matrices=False)
    return np.asarray(axes[sizes > 1e-13 * sizes[0]])
