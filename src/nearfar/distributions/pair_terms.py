r"""The terms that dissimilarities of two Gaussians a and b are made of, and how many are wanted.

With :math:`u = \mu_a - \mu_b` and :math:`\Gamma = (\Sigma_a + \Sigma_b)/2`:

=============  ==========================================================================
trace_ab       :math:`tr(\Sigma_b^{-1} \Sigma_a)`
trace_ba       :math:`tr(\Sigma_a^{-1} \Sigma_b)`
quad_a         :math:`u^T \Sigma_a^{-1} u`
quad_b         :math:`u^T \Sigma_b^{-1} u`
log_ratio      :math:`\ln |\Sigma_b| - \ln |\Sigma_a|`
quad_mean      :math:`u^T \Gamma^{-1} u`
log_mean       :math:`\ln |\Gamma| - \frac12 \ln |\Sigma_a| - \frac12 \ln |\Sigma_b|`
riemann        :math:`(\sum_k \ln^2 \lambda_k)^{1/2}`, :math:`\Sigma_a v = \lambda \Sigma_b v`
distance       :math:`\|u\|`
=============  ==========================================================================

Each pair costs a product of matrices for the first four, a Cholesky factorisation for the mean
ones and eigenvalues for ``riemann``; only what is wanted is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Matrix

Terms = dict[str, Matrix]

#: Beyond this product of condition numbers eigenvalues of whitened covariances lose all digits of
#: the smallest ones, and singular values of products of factors are taken.
ILL = 1e8
#: Pairs whose terms take more than matrix products.
COSTLY = frozenset({"quad_mean", "log_mean", "riemann"})
# Matrices of pairs are worked on in pieces of so many bytes, which stay in the cache.
_PIECE = 2**20


class GaussianPairs(Protocol):
    """All pairs of two stacks of Gaussians, in a form that makes terms cheap."""

    n_features: int

    def terms(self, rows: slice, first: int, wanted: frozenset[str], upper: bool) -> Terms:
        """Terms of some rows a and all columns b from the first on, each of shape (rows, columns).

        With ``upper``, costly terms are computed for b > a only and are 0 elsewhere.
        """
        ...


def pieces(indices: Indices | Sequence[int], bytes_per_pair: int) -> Iterator[Any]:
    """Indices in pieces, as slices where they follow one another."""
    size = max(1, _PIECE // bytes_per_pair)
    for start in range(0, len(indices), size):
        part = indices[start : start + size]
        follow = part[-1] - part[0] == len(part) - 1
        yield slice(int(part[0]), int(part[-1]) + 1) if follow else part


def less(part: Any, first: int) -> Any:
    """Indices counted from the first on."""
    return slice(part.start - first, part.stop - first) if isinstance(part, slice) else part - first


def bordered_cholesky(G: Matrix) -> tuple[Matrix, Matrix]:
    r""":math:`\ln |G|` and :math:`u^T G^{-1} u` of a stack, from one factorisation.

    ``G`` is of shape (b, p + 1, p + 1), and is spoilt: its last rows hold u, in the first p places.
    The last row of the Cholesky factor of the bordered matrix is :math:`L^{-1} u`.
    """
    G[:, -1, -1] = 1e300  # positive definite, whatever u is; no other entry reads it
    L = np.linalg.cholesky(G)
    last = L[:, -1, :-1]
    return log_dets_of(L[:, :-1, :-1]), np.einsum("ij,ij->i", last, last)


def log_dets_of(factors: NDArray[Any]) -> Matrix:
    """ln |L Lᵀ| of a stack of triangular factors."""
    return np.asarray(2 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1))


def log_norm(values: Matrix, extra: Matrix | float = 0.0) -> Matrix:
    """The root of Σ ln² of positive numbers along the last axis, plus some extra squares."""
    logs = np.log(np.maximum(values, 1e-300))
    return np.asarray(np.sqrt(np.einsum("...i,...i->...", logs, logs) + extra))
