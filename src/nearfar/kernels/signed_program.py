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
        tau: float,
        total: float,
        tol: float,
        norm: float = 1.0,
    ) -> None:
        super().__init__(kernels, signs, C, tau, total, tol, norm)
        self.cone = Cone(kernels, self.scale)
        # A positive semi-definite K of trace c has a Frobenius norm of at most c, which limits each
        # weight.
        D = self.scale / total
        gram = kernels.grams(centered=False) * np.outer(D, D)
        self.limits = np.sqrt(np.maximum(np.diag(_inverse(gram)), 0.0)) * (1 + 1e-6)
        self.directions: list[Vector] = []
        self._weights_of_cuts = np.empty(0)

    def evaluate(self, x: Vector) -> Answer:
        """Solve the SVMs at x, or at a point of the cone if x is outside."""
        center = np.full(len(x), 1 / len(x))
        point, cuts, U = self.cone.drawn_back(x, center)
        answer = super().evaluate(point)
        self.directions.extend(U.T)
        return answer._replace(allowed=cuts)

    def certify(self, multipliers: Multipliers, model: Model) -> float:
        """Return the bound of the planes and cuts, minus an allowance for rounding errors."""
        assert self.limits is not None
        planes, cuts = multipliers.planes, multipliers.allowed
        slope = planes @ model.slopes + cuts @ model.allowed
        left = slope - multipliers.total
        bound = float(planes @ model.intercepts) - multipliers.total - np.abs(left) @ self.limits
        if bound > self.bound:
            self.bound, self._mix, self._weights_of_cuts = float(bound), planes, cuts
        return float(bound)

    def _refuse_negative(self, forms: Vector) -> None:
        """Raise if the quadratic form of a single kernel is negative."""
        super()._refuse_negative(forms)

    def psd_cuts(self) -> Matrix | None:
        """Return vectors u for which the matrix S of the proof is the sum of all uu'."""
        used = np.flatnonzero(self._weights_of_cuts)
        if not len(used):
            return np.empty((self.kernels.n_points, 0))
        U = np.array([self.directions[k] for k in used])
        return np.asarray((np.sqrt(self._weights_of_cuts[used])[:, None] * U).T)


def _inverse(gram: Matrix) -> Matrix:
    """Return the inverse. Raises if the kernels are linearly dependent."""
    values, V = linalg.eigh(gram)
    if values[0] <= 1e-12 * values[-1]:
        raise ValueError(
            'mode="signed" needs linearly independent kernels; otherwise their weights are not '
            "unique. Remove kernels that are copies, multiples or sums of others."
        )
    return np.asarray((V / values) @ V.T)
