"""The cone of weights, of any sign, whose sum of kernels is positive semi-definite."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import KernelSet

# Eigenvalues of the mean kernel below this fraction of the largest eigenvalue are rounding errors.
# Their eigenvectors are ignored.
_MIN_EIGENVALUE = 1e-11
# Negative eigenvalues with at most this absolute value are treated as zero. Eigenvalues are
# computed relative to the mean kernel.
_MAX_NEGATIVE = 1e-9
# Maximum number of cuts that are added for one point outside the cone.
_MAX_CUTS = 8


class Cone:
    """Cone of the weights ``scale * x`` for which the sum of kernels is positive semi-definite.

    Eigenvalues are computed relative to the mean kernel, in the span of its eigenvectors. As each
    kernel is positive semi-definite, all kernels are zero outside this span.
    """

    def __init__(self, kernels: KernelSet, scale: Vector) -> None:
        self.kernels, self.scale = kernels, scale
        values, V = linalg.eigh(kernels.compute_weighted_sum(scale / kernels.n_kernels))
        is_significant = values > _MIN_EIGENVALUE * values[-1]
        self.whitener = V[:, is_significant] / np.sqrt(values[is_significant])

    def move_into_cone(self, x: Vector, center: Vector) -> tuple[Vector, Matrix, Matrix]:
        r"""Move x toward the center until it is in the cone, and return cuts that exclude x.

        Returns
        -------
        point : ndarray of shape (m,)
            If x is in the cone, x itself. If not, the first point of the cone on the line from x to
            the center.
        cuts : ndarray of shape (k, m)
            One cut h per row. ``h @ z >= 0`` holds for all points z of the cone, but not for x.
        U : ndarray of shape (n, k)
            One column u per cut. The cut is :math:`u^T K u \ge 0`, as a constraint on the weights.
        """
        W = self.whitener
        values, vectors = linalg.eigh(W.T @ (self.kernels.compute_weighted_sum(self.scale * x) @ W))
        if values[0] >= -_MAX_NEGATIVE:
            return x, np.empty((0, len(x))), np.empty((len(W), 0))
        U = W @ vectors[:, values < -_MAX_NEGATIVE][:, :_MAX_CUTS]
        U /= np.linalg.norm(U, axis=0)
        forms = self.kernels.compute_forms(U) * self.scale[:, None]
        size = np.abs(forms).max(axis=0)
        U, cuts = U / np.sqrt(size), (forms / size).T
        # The center is the mean kernel, so all its eigenvalues relative to the mean kernel are 1.
        fraction = -values[0] / (1 - values[0])
        return (1 - fraction) * x + fraction * center, cuts, U
