r"""Terms from which the dissimilarities of two Gaussians a and b are computed.

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

Each pair costs a matrix product for the first four terms, a Cholesky factorization for
``quad_mean`` and ``log_mean``, and eigenvalues for ``riemann``. Only requested terms are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Matrix

Terms = dict[str, Matrix]

#: Upper limit for the product of two condition numbers. Above it, the smallest eigenvalues of
#: whitened covariances have no correct digits, so singular values of products of factors are used.
ILL = 1e8
#: Terms that need more than matrix products.
COSTLY = frozenset({"quad_mean", "log_mean", "riemann"})
# Size in bytes of the blocks in which matrices of pairs are processed. They fit into the cache of
# the processor.
_PIECE = 2**20


class GaussianPairs(Protocol):
    """All pairs of two stacks of Gaussians, preprocessed for fast computation of terms."""

    n_features: int

    def terms(self, rows: slice, first: int, wanted: frozenset[str], upper: bool) -> Terms:
        """Return terms of some rows a and the columns b >= first, each of shape (rows, columns).

        With `upper`, costly terms are computed only for b > a, and are 0 elsewhere.
        """
        ...


def pieces(indices: Indices | Sequence[int], bytes_per_pair: int) -> Iterator[Any]:
    """Yield the indices in blocks. A block of consecutive indices is a slice."""
    size = max(1, _PIECE // bytes_per_pair)
    for start in range(0, len(indices), size):
        part = indices[start : start + size]
        follow = part[-1] - part[0] == len(part) - 1
        yield slice(int(part[0]), int(part[-1]) + 1) if follow else part


def less(part: Any, first: int) -> Any:
    """Return indices relative to `first`."""
    return slice(part.start - first, part.stop - first) if isinstance(part, slice) else part - first


def bordered_cholesky(G: Matrix) -> tuple[Matrix, Matrix]:
    r"""Return :math:`\ln |G|` and :math:`u^T G^{-1} u` of a stack, from one factorization.

    ``G`` has shape (b, p + 1, p + 1), with u in the first p entries of the last rows, and is
    overwritten. The last row of the Cholesky factor of the bordered matrix is :math:`L^{-1} u`.
    """
    # A huge corner makes the matrix positive definite for any u. No other entry depends on it.
    G[:, -1, -1] = 1e300
    L = np.linalg.cholesky(G)
    last = L[:, -1, :-1]
    return log_dets_of(L[:, :-1, :-1]), np.einsum("ij,ij->i", last, last)


def log_dets_of(factors: NDArray[Any]) -> Matrix:
    """Return ln |L Lᵀ| of a stack of triangular factors."""
    return np.asarray(2 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1))


def log_norm(values: Matrix, extra: Matrix | float = 0.0) -> Matrix:
    """Return the square root of Σ ln² along the last axis, plus `extra` inside the root."""
    logs = np.log(np.maximum(values, 1e-300))
    return np.asarray(np.sqrt(np.einsum("...i,...i->...", logs, logs) + extra))
