"""The weights, of any sign, whose sum of kernels is positive semi-definite."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import KernelSet

# Directions in which no kernel is larger than this share of the mean are rounding.
_EMPTY = 1e-11
# Eigenvalues relative to the mean kernel's that count as zero.
_ZERO = 1e-9
# Cuts that one point gives at most.
_CUTS = 8


class Cone:
    """Weights ``scale * x`` of kernels whose sum is positive semi-definite.

    All is measured relative to the mean kernel, in the directions that it has: each kernel is
    positive semi-definite, so that what the mean has not none has.
    """

    def __init__(self, kernels: KernelSet, scale: Vector) -> None:
        self.kernels, self.scale = kernels, scale
        values, V = linalg.eigh(kernels.weighted(scale / kernels.n_kernels))
        good = values > _EMPTY * values[-1]
        self.whitener = V[:, good] / np.sqrt(values[good])

    def drawn_back(self, x: Vector, center: Vector) -> tuple[Vector, Matrix, Matrix]:
        """The point nearest to x on the way to the center that is in the cone; cuts.

        Returns
        -------
        point : ndarray of shape (m,)
            x itself, if it is in the cone.
        cuts : ndarray of shape (k, m)
            Rows h with ``h @ x >= 0`` in the whole cone, which x does not fulfil.
        U : ndarray of shape (n, k)
            Of which they are the quadratic forms.
        """
        W = self.whitener
        values, vectors = linalg.eigh(W.T @ (self.kernels.weighted(self.scale * x) @ W))
        if values[0] >= -_ZERO:
            return x, np.empty((0, len(x))), np.empty((len(W), 0))
        U = W @ vectors[:, values < -_ZERO][:, :_CUTS]
        U /= np.linalg.norm(U, axis=0)
        forms = self.kernels.forms(U) * self.scale[:, None]
        size = np.abs(forms).max(axis=0)
        U, cuts = U / np.sqrt(size), (forms / size).T
        # Relative to the mean kernel the center has eigenvalues of 1, if it is the mean.
        share = -values[0] / (1 - values[0])
        return (1 - share) * x + share * center, cuts, U
