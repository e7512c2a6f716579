"""Margin program over weights of any sign whose sum of kernels is positive semi-definite."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import KernelSet
from nearfar.kernels.margin_program import MarginProgram
from nearfar.kernels.psd_cone import Cone
from nearfar.solvers.level_method import Answer, Model, Multipliers


class SignedProgram(MarginProgram):
    """`MarginProgram` for weights of any sign.

    A point outside the cone is moved toward the mean kernel. Its negative eigenvectors u become
    cuts, because :math:`u^T K u \\ge 0` is linear in the weights.
    """

    def __init__(
        self,
        kernels: KernelSet,
        signs: Matrix,
        C: float | None,
        dual_ridge: float,
        total: float,
        tol: float,
        norm: float = 1.0,
    ) -> None:
        super().__init__(kernels, signs, C, dual_ridge, total, tol, norm)
        self.cone = Cone(kernels, self.scale)
        # A positive semi-definite K of trace c has a Frobenius norm of at most c. This limits each
        # weight.
        D = self.scale / total
        gram = kernels.compute_grams(centered=False) * np.outer(D, D)
        self.limits = np.sqrt(np.maximum(np.diag(_invert(gram)), 0.0)) * (1 + 1e-6)
        self.directions: list[Vector] = []
        self._cut_weights = np.empty(0)

    def evaluate(self, x: Vector) -> Answer:
        """Solve the SVMs at x. A point x outside the cone is first moved into the cone."""
        center = np.full(len(x), 1 / len(x))
        point, cuts, U = self.cone.move_into_cone(x, center)
        answer = super().evaluate(point)
        self.directions.extend(U.T)
        return answer._replace(allowed=cuts)

    def certify(self, multipliers: Multipliers, model: Model) -> float:
        """Return the bound from the planes and cuts, minus an allowance for rounding errors."""
        assert self.limits is not None
        planes, cuts = multipliers.planes, multipliers.allowed
        slope = planes @ model.slopes + cuts @ model.allowed
        remainder = slope - multipliers.total
        bound = (
            float(planes @ model.intercepts) - multipliers.total - np.abs(remainder) @ self.limits
        )
        if bound > self.bound:
            self.bound, self._mix, self._cut_weights = float(bound), planes, cuts
        return float(bound)

    def _check_nonnegative(self, forms: Vector) -> None:
        super()._check_nonnegative(forms)

    def compute_psd_cuts(self) -> Matrix | None:
        """Return vectors u such that sum(uu') is the matrix S in the proof of the bound."""
        used = np.flatnonzero(self._cut_weights)
        if not len(used):
            return np.empty((self.kernels.n_points, 0))
        U = np.array([self.directions[k] for k in used])
        return np.asarray((np.sqrt(self._cut_weights[used])[:, None] * U).T)


def _invert(gram: Matrix) -> Matrix:
    """Return the inverse of the Gram matrix. Raises if the kernels are linearly dependent."""
    values, V = linalg.eigh(gram)
    if values[0] <= 1e-12 * values[-1]:
        raise ValueError(
            'kernel_family="signed" needs linearly independent kernels; otherwise their weights '
            "are not unique. Remove kernels that are copies, multiples or sums of others."
        )
    return np.asarray((V / values) @ V.T)
