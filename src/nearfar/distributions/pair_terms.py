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

#: A pair is ill-conditioned if the product of its two condition numbers exceeds this value. The
#: smallest eigenvalues of the whitened covariances then have no correct digits, so singular values
#: of products of factors are used instead.
ILL_CONDITIONED = 1e8
#: Terms that need a factorization for each pair, not only matrix products.
COSTLY = frozenset({"quad_mean", "log_mean", "riemann"})
# Size in bytes of the blocks in which matrices of pairs are processed, so that one block fits into
# the cache of the processor.
_BLOCK_BYTES = 2**20


class GaussianPairs(Protocol):
    """All pairs of two stacks of Gaussians, preprocessed for fast computation of terms."""

    n_features: int

    def compute_terms(self, rows: slice, first: int, names: frozenset[str], upper: bool) -> Terms:
        """Return the named terms of the pairs (a, b) with a in `rows` and b >= `first`.

        Each term is a matrix with one row per a and one column per b. With `upper`, costly terms
        are computed only for b > a, and are 0 elsewhere.
        """
        ...


def split_indices(indices: Indices | Sequence[int], bytes_per_pair: int) -> Iterator[Any]:
    """Yield the indices in blocks. A block of consecutive indices is a slice."""
    size = max(1, _BLOCK_BYTES // bytes_per_pair)
    for start in range(0, len(indices), size):
        block = indices[start : start + size]
        is_contiguous = block[-1] - block[0] == len(block) - 1
        yield slice(int(block[0]), int(block[-1]) + 1) if is_contiguous else block


def shift_indices(indices: Any, first: int) -> Any:
    """Subtract `first` from a slice or an array of indices."""
    return (
        slice(indices.start - first, indices.stop - first)
        if isinstance(indices, slice)
        else indices - first
    )


def factor_bordered(G: Matrix) -> tuple[Matrix, Matrix]:
    r"""Return :math:`\ln |G|` and :math:`u^T G^{-1} u` for a stack of matrices G and vectors u.

    Both results come from one Cholesky factorization of bordered matrices of shape
    (b, p + 1, p + 1), which are overwritten. The first p entries of the last row of
    each matrix contain u. In the Cholesky factor, they contain :math:`L^{-1} u`.
    """
    # A huge corner entry makes the matrix positive definite for any u. No other entry of the factor
    # depends on the corner entry.
    G[:, -1, -1] = 1e300
    L = np.linalg.cholesky(G)
    last_row = L[:, -1, :-1]
    return compute_log_dets(L[:, :-1, :-1]), np.einsum("ij,ij->i", last_row, last_row)


def compute_log_dets(factors: NDArray[Any]) -> Matrix:
    """Return ln |L Lᵀ| for each matrix L of a stack of triangular factors."""
    return np.asarray(2 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1))


def compute_log_norm(values: Matrix, extra: Matrix | float = 0.0) -> Matrix:
    """Return sqrt(`extra` + Σ ln² λ), where the sum is over the last axis of `values`."""
    logs = np.log(np.maximum(values, 1e-300))
    return np.asarray(np.sqrt(np.einsum("...i,...i->...", logs, logs) + extra))
