r"""Terms of pairs of Gaussians of low rank plus ridge, :math:`\Sigma = \gamma I + U S^2 U^T`.

With :math:`C = U_a^T U_b` and :math:`R^T R = I - C^T C`, the columns of :math:`U_a` and those of an
orthonormal W with :math:`U_b = U_a C + W R` span the subspace in which the covariances differ from
multiples of the identity. In this subspace

.. math::
    \Sigma_a = \begin{pmatrix} \gamma_a I + S_a^2 & \\ & \gamma_a I \end{pmatrix}, \qquad
    \Sigma_b = \gamma_b I + F S_b^2 F^T, \quad F = \begin{pmatrix} C \\ R \end{pmatrix},

so the generalized eigenvalues are those of a matrix of size :math:`r_a + r_b`, and
:math:`\gamma_b / \gamma_a` for all other directions. Traces, determinants and quadratic forms need
only C and :math:`U^T u` (Woodbury identity). All matrices C of a block of rows are computed by one
matrix product.

If the product of the condition numbers exceeds 1e8, the eigenvalues are computed as squared
singular values. The error of squared distances between covariances is about the machine epsilon
times the smaller condition number. If this is not negligible, R is computed from
:math:`U_b - U_a C` directly.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.arrays import Indices, Matrix
from nearfar.distributions.pair_terms import (
    ILL_CONDITIONED,
    Terms,
    compute_log_norm,
    factor_bordered,
    split_indices,
)
from nearfar.summaries.gaussians import Gaussians

# Upper limit in bytes for the size of the products C of one block of rows.
_BLOCK_BYTES = 2**24
# Condition number above which the ridge is smaller than the rounding errors.
_SINGULAR_CONDITION = 1e15
# A squared distance is computed again by a more accurate method if it is less than this value times
# the smaller of the two condition numbers.
_INACCURATE = 1e9 * np.finfo(np.float64).eps


class LowRankSide:
    """Gaussians with covariance γI + U S² Uᵀ, where U has orthonormal columns."""

    def __init__(self, means: Matrix, axes: Matrix, squares: Matrix, ridge: Matrix) -> None:
        self.means = means
        # Transposed factors Uᵀ, of shape (n, r, p).
        self.axes = axes
        # Squared singular values S², of shape (n, r).
        self.squares = squares
        self.ridge = ridge

    @classmethod
    def from_gaussians(cls, gaussians: Gaussians, center: Matrix) -> LowRankSide:
        """Factor the covariances of Gaussians, and subtract a center from their means."""
        assert gaussians.factors is not None and gaussians.ridge is not None
        U, singular_values, _ = np.linalg.svd(gaussians.factors, full_matrices=False)
        axes = np.ascontiguousarray(U.transpose(0, 2, 1))
        side = cls(gaussians.means - center, axes, np.square(singular_values), gaussians.ridge)
        if not side.condition.max(initial=0) < _SINGULAR_CONDITION:
            k = int(np.argmax(side.condition))
            raise ValueError(
                f"The covariance of Gaussian {k} is numerically singular: its ridge is "
                f"{side.ridge[k]:.3g}, but its largest variance is {side.squares[k].max():.3g}. "
                "Pass a larger ridge."
            )
        return side

    def __getitem__(self, key: slice) -> LowRankSide:
        return LowRankSide(self.means[key], self.axes[key], self.squares[key], self.ridge[key])

    def __len__(self) -> int:
        return len(self.means)

    @property
    def max_coordinate(self) -> float:
        """Largest absolute coordinate of a mean, divided by the root of the smallest ridge."""
        return float(np.abs(self.means).max() / np.sqrt(self.ridge.min()))

    @property
    def rank(self) -> int:
        """Number of columns of U."""
        return int(self.squares.shape[1])

    @property
    def variances(self) -> Matrix:
        """Variances γ + S² along the axes, of shape (n, r)."""
        return np.asarray(self.ridge[:, None] + self.squares)

    @property
    def condition(self) -> Matrix:
        """Condition number of each Σ, of shape (n,)."""
        return np.asarray(1 + self.squares.max(axis=1, initial=0) / self.ridge)

    @property
    def projected_means(self) -> Matrix:
        """Coordinates Uᵀμ of the means along the axes, of shape (n, r)."""
        return np.asarray(np.matmul(self.axes, self.means[:, :, None])[:, :, 0])


class LowRankPairs:
    """All pairs of Gaussians from two stacks with the same center."""

    def __init__(self, A: LowRankSide, B: LowRankSide) -> None:
        self.A, self.B = A, B
        self.n_features = A.means.shape[1]
        self._projected_means = B.projected_means

    def compute_terms(self, rows: slice, first: int, names: frozenset[str], upper: bool) -> Terms:
        """Return the named terms for a block of pairs; see `GaussianPairs`."""
        A, B = self.A, self.B
        shape = (rows.stop - rows.start, len(B) - first)
        terms: Terms = {name: np.zeros(shape) for name in names}
        axes = B.axes[first:].reshape(-1, self.n_features)
        # The number of rows per step is limited by the memory for the products C.
        step = max(1, _BLOCK_BYTES // (8 * max(1, A.rank * len(axes))))
        for start in range(rows.start, rows.stop, step):
            block = slice(start, min(start + step, rows.stop))
            n = block.stop - start
            C = A.axes[block].reshape(-1, self.n_features) @ axes.T
            C = C.reshape(n, A.rank, -1, B.rank)
            projections_b = (A.means[block] @ axes.T).reshape(n, -1, B.rank)
            for k, a in enumerate(range(start, block.stop)):
                row_pairs = _RowPairs(
                    self,
                    a,
                    first,
                    C[k].transpose(1, 0, 2),
                    self._projected_means[first:] - projections_b[k],
                )
                columns = np.arange(a + 1 - first if upper else 0, shape[1])
                row_terms = {name: values[a - rows.start] for name, values in terms.items()}
                row_pairs.fill_cheap_terms(row_terms)
                row_pairs.fill_costly_terms(row_terms, columns)
        return terms


class _RowPairs:
    """Pairs of the Gaussian with index a and all Gaussians with index b >= first."""

    def __init__(
        self, pairs: LowRankPairs, a: int, first: int, C: Matrix, projections_b: Matrix
    ) -> None:
        A, B = pairs.A, pairs.B
        self.p = pairs.n_features
        self.ridge, self.squares = float(A.ridge[a]), A.squares[a]
        self.condition = float(A.condition[a])
        self.b_side = B[first:]
        self.axes = A.axes[a]
        # C has the shape (m, r_a, r_b) for m Gaussians b.
        self.C = C
        U = self.b_side.means - A.means[a]
        self.squared_lengths = np.einsum("ij,ij->i", U, U)
        self.projections_a, self.projections_b = U @ A.axes[a].T, projections_b

    def fill_cheap_terms(self, output: Terms) -> None:
        """Compute the terms that need no factorization of pairs, for example traces."""
        b, p = self.b_side, self.p
        weight_a = self.squares / (self.ridge + self.squares)
        weight_b = b.squares / b.variances
        if "trace_ba" in output:
            shared = np.einsum("k,mkl,ml->m", weight_a, self.C**2, b.squares)
            total = p * b.ridge + b.squares.sum(axis=1)
            output["trace_ba"][:] = (total - b.ridge * weight_a.sum() - shared) / self.ridge
        if "trace_ab" in output:
            shared = np.einsum("k,mkl,ml->m", self.squares, self.C**2, weight_b)
            total = p * self.ridge + self.squares.sum()
            output["trace_ab"][:] = (total - self.ridge * weight_b.sum(axis=1) - shared) / b.ridge
        if "quad_a" in output:
            output["quad_a"][:] = (
                self.squared_lengths - self.projections_a**2 @ weight_a
            ) / self.ridge
        if "quad_b" in output:
            reduction = np.einsum("ml,ml->m", self.projections_b**2, weight_b)
            output["quad_b"][:] = (self.squared_lengths - reduction) / b.ridge
        if "log_ratio" in output:
            log_det_a = (p - len(self.squares)) * np.log(self.ridge)
            log_det_a += np.log(self.ridge + self.squares).sum()
            log_det_b = (p - b.rank) * np.log(b.ridge) + np.log(b.variances).sum(axis=1)
            output["log_ratio"][:] = log_det_b - log_det_a

    def fill_costly_terms(self, output: Terms, columns: Indices) -> None:
        """Compute the terms that need a factorization for each pair."""
        size = len(self.squares) + self.b_side.rank
        if "riemann" in output:
            is_ill = self.condition * self.b_side.condition[columns] >= ILL_CONDITIONED
            for selected, compute_norms in (
                (columns[~is_ill], self._norm_by_eigenvalues),
                (columns[is_ill], self._norm_by_singular_values),
            ):
                for block in split_indices(selected, 32 * size * size):
                    output["riemann"][block] = compute_norms(block, self._compute_basis(block))
            # Rounding loses the squares of small angles between the subspaces, but their
            # contribution grows with the square root of the condition number. Therefore close pairs
            # are computed again.
            threshold = _INACCURATE * np.minimum(self.condition, self.b_side.condition[columns])
            close = columns[output["riemann"][columns] ** 2 < threshold]
            for block in split_indices(close, 32 * size * self.p):
                output["riemann"][block] = self._norm_by_singular_values(
                    block, self._compute_exact_basis(block)
                )
        if "quad_mean" in output or "log_mean" in output:
            for block in split_indices(columns, 16 * (size + 1) ** 2):
                quad, log_mean = self._compute_mean_terms(block)
                if "quad_mean" in output:
                    output["quad_mean"][block] = quad
                if "log_mean" in output:
                    output["log_mean"][block] = log_mean

    def _compute_basis(self, block: Any) -> Matrix:
        """Return the matrices F for a block of pairs, of shape (m, r_a + r_b, r_b)."""
        C = self.C[block]
        transposed = C.transpose(0, 2, 1)
        T = -(transposed @ C)
        diagonal = np.arange(T.shape[1])
        # If the subspaces intersect, T has zero eigenvalues, which rounding may make negative.
        T[:, diagonal, diagonal] += 1 + 4 * len(diagonal) * np.finfo(np.float64).eps
        try:
            R = np.linalg.cholesky(T).transpose(0, 2, 1)
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(T)
            R = np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.transpose(0, 2, 1)
        return np.concatenate([C, R], axis=1)

    def _compute_exact_basis(self, block: Any) -> Matrix:
        """Return the matrices F, computed from the part of U_b that is orthogonal to U_a.

        The result is also accurate for small angles between the subspaces.
        """
        U = self.b_side.axes[block]
        orthogonal = U - (U @ self.axes.T) @ self.axes
        orthogonal -= (orthogonal @ self.axes.T) @ self.axes
        R = np.linalg.qr(orthogonal.transpose(0, 2, 1), mode="r")
        return np.concatenate([self.C[block], R], axis=1)

    def _compute_variances(self) -> Matrix:
        variances = np.full(len(self.squares) + self.b_side.rank, self.ridge)
        variances[: len(self.squares)] += self.squares
        return variances

    def _compute_remaining(self, block: Any) -> Matrix:
        """Return the sum of ln² λ over the directions that are orthogonal to both factors."""
        n_remaining = self.p - len(self.squares) - self.b_side.rank
        return np.asarray(n_remaining * np.log(self.b_side.ridge[block] / self.ridge) ** 2)

    def _norm_by_eigenvalues(self, block: Any, F: Matrix) -> Matrix:
        b, variances = self.b_side, self._compute_variances()
        F *= np.sqrt(b.squares[block])[:, None]
        F /= np.sqrt(variances)[:, None]
        K = F @ F.transpose(0, 2, 1)
        diagonal = np.arange(len(variances))
        K[:, diagonal, diagonal] += b.ridge[block][:, None] / variances
        return compute_log_norm(
            np.asarray(np.linalg.eigvalsh(K), np.float64), self._compute_remaining(block)
        )

    def _norm_by_singular_values(self, block: Any, F: Matrix) -> Matrix:
        b, variances = self.b_side, self._compute_variances()
        root = np.sqrt(b.ridge[block])
        # M is the square root of Σ_b, because F has orthonormal columns.
        M = (F * (np.sqrt(b.variances[block]) - root[:, None])[:, None]) @ F.transpose(0, 2, 1)
        diagonal = np.arange(len(variances))
        M[:, diagonal, diagonal] += root[:, None]
        M /= np.sqrt(variances)[:, None]
        singular_values = np.asarray(np.linalg.svd(M, compute_uv=False), np.float64)
        return compute_log_norm(np.square(singular_values), self._compute_remaining(block))

    def _compute_mean_terms(self, block: Any) -> tuple[Matrix, Matrix]:
        r"""Compute the terms of the mean covariance.

        The terms are computed from :math:`N = 2 \bar\gamma I + \hat S [U_a U_b]^T [U_a U_b] \hat
        S`.
        """
        b = self.b_side
        sizes_a, sizes_b = np.sqrt(self.squares), np.sqrt(b.squares[block])
        ra, size = len(sizes_a), len(sizes_a) + b.rank
        gamma = (self.ridge + b.ridge[block]) / 2
        cross = sizes_b[:, :, None] * self.C[block].transpose(0, 2, 1) * sizes_a
        G = np.zeros((len(cross), size + 1, size + 1))
        # The Cholesky factorization uses only the lower triangle of G.
        G[:, ra:-1, :ra] = cross
        diagonal = np.arange(size)
        squares = np.concatenate([np.broadcast_to(self.squares, (len(G), ra)), b.squares[block]], 1)
        G[:, diagonal, diagonal] = squares + 2 * gamma[:, None]
        G[:, -1, :ra] = self.projections_a[block] * sizes_a
        G[:, -1, ra:-1] = self.projections_b[block] * sizes_b
        log_det, reduction = factor_bordered(G)
        quad = (self.squared_lengths[block] - reduction) / gamma
        log_mean = log_det - size * np.log(2)
        log_mean += (self.p - size) * np.log(gamma)
        log_mean -= 0.5 * (self.p - ra) * np.log(self.ridge)
        log_mean -= 0.5 * (self.p - b.rank) * np.log(b.ridge[block])
        log_mean -= 0.5 * np.log(self.ridge + self.squares).sum()
        log_mean -= 0.5 * np.log(b.variances[block]).sum(axis=1)
        return quad, log_mean
