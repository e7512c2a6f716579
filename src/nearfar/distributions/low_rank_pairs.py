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
from nearfar.distributions.pair_terms import ILL, Terms, bordered_cholesky, log_norm, pieces
from nearfar.summaries.gaussians import Gaussians

# Upper limit for the size of the products C of one block of rows, in bytes.
_BLOCK = 2**24
# Condition number above which the ridge is lost in rounding.
_SINGULAR = 1e15
# Squared distances below this value times the smaller condition number are computed again by the
# more accurate method.
_LOST = 1e9 * np.finfo(np.float64).eps


class LowRankSide:
    """Low-rank Gaussians with orthonormal factors, and quantities of each Gaussian."""

    def __init__(self, means: Matrix, axes: Matrix, squares: Matrix, ridge: Matrix) -> None:
        self.means = means
        self.axes = axes  # Uᵀ, (n, r, p)
        self.squares = squares  # S², (n, r)
        self.ridge = ridge

    @classmethod
    def of(cls, gaussians: Gaussians, center: Matrix) -> LowRankSide:
        """Return low-rank Gaussians with their means relative to a center."""
        assert gaussians.factors is not None and gaussians.ridge is not None
        U, sizes, _ = np.linalg.svd(gaussians.factors, full_matrices=False)
        axes = np.ascontiguousarray(U.transpose(0, 2, 1))
        side = cls(gaussians.means - center, axes, np.square(sizes), gaussians.ridge)
        if not side.condition.max(initial=0) < _SINGULAR:
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
    def reach(self) -> float:
        """Largest absolute coordinate of a mean, in units of the root of the smallest ridge."""
        return float(np.abs(self.means).max() / np.sqrt(self.ridge.min()))

    @property
    def rank(self) -> int:
        """Number of columns of U."""
        return int(self.squares.shape[1])

    @property
    def variances(self) -> Matrix:
        """γ + S², (n, r)."""
        return np.asarray(self.ridge[:, None] + self.squares)

    @property
    def condition(self) -> Matrix:
        """The condition number of each Σ, (n,)."""
        return np.asarray(1 + self.squares.max(axis=1, initial=0) / self.ridge)

    @property
    def own(self) -> Matrix:
        """Uᵀμ, (n, r)."""
        return np.asarray(np.matmul(self.axes, self.means[:, :, None])[:, :, 0])


class LowRankPairs:
    """All pairs of Gaussians from two stacks with the same center."""

    def __init__(self, A: LowRankSide, B: LowRankSide) -> None:
        self.A, self.B = A, B
        self.n_features = A.means.shape[1]
        self._own = B.own

    def terms(self, rows: slice, first: int, wanted: frozenset[str], upper: bool) -> Terms:
        """Return terms as described in :class:`~nearfar.distributions.pair_terms.GaussianPairs`."""
        A, B = self.A, self.B
        shape = (rows.stop - rows.start, len(B) - first)
        found: Terms = {name: np.zeros(shape) for name in wanted}
        axes = B.axes[first:].reshape(-1, self.n_features)
        # The number of rows per step is limited by the memory of their products.
        step = max(1, _BLOCK // (8 * max(1, A.rank * len(axes))))
        for start in range(rows.start, rows.stop, step):
            block = slice(start, min(start + step, rows.stop))
            n = block.stop - start
            C = A.axes[block].reshape(-1, self.n_features) @ axes.T
            C = C.reshape(n, A.rank, -1, B.rank)
            on_b = (A.means[block] @ axes.T).reshape(n, -1, B.rank)
            for k, a in enumerate(range(start, block.stop)):
                row = _Row(self, a, first, C[k].transpose(1, 0, 2), self._own[first:] - on_b[k])
                after = np.arange(a + 1 - first if upper else 0, shape[1])
                into = {name: values[a - rows.start] for name, values in found.items()}
                row.cheap(into)
                row.costly(into, after)
        return found


class _Row:
    """Pairs of one Gaussian a with all Gaussians b >= first."""

    def __init__(self, pairs: LowRankPairs, a: int, first: int, C: Matrix, on_b: Matrix) -> None:
        A, B = pairs.A, pairs.B
        self.p = pairs.n_features
        self.ridge, self.squares = float(A.ridge[a]), A.squares[a]
        self.condition = float(A.condition[a])
        self.others = B[first:]
        self.axes = A.axes[a]
        self.C = C  # (m, r_a, r_b)
        U = self.others.means - A.means[a]
        self.lengths = np.einsum("ij,ij->i", U, U)
        self.on_a, self.on_b = U @ A.axes[a].T, on_b

    def cheap(self, into: Terms) -> None:
        """Compute traces, determinants and the quadratic forms of single covariances."""
        b, p = self.others, self.p
        weight_a = self.squares / (self.ridge + self.squares)
        weight_b = b.squares / b.variances
        if "trace_ba" in into:
            shared = np.einsum("k,mkl,ml->m", weight_a, self.C**2, b.squares)
            total = p * b.ridge + b.squares.sum(axis=1)
            into["trace_ba"][:] = (total - b.ridge * weight_a.sum() - shared) / self.ridge
        if "trace_ab" in into:
            shared = np.einsum("k,mkl,ml->m", self.squares, self.C**2, weight_b)
            total = p * self.ridge + self.squares.sum()
            into["trace_ab"][:] = (total - self.ridge * weight_b.sum(axis=1) - shared) / b.ridge
        if "quad_a" in into:
            into["quad_a"][:] = (self.lengths - self.on_a**2 @ weight_a) / self.ridge
        if "quad_b" in into:
            taken = np.einsum("ml,ml->m", self.on_b**2, weight_b)
            into["quad_b"][:] = (self.lengths - taken) / b.ridge
        if "log_ratio" in into:
            mine = (p - len(self.squares)) * np.log(self.ridge)
            mine += np.log(self.ridge + self.squares).sum()
            theirs = (p - b.rank) * np.log(b.ridge) + np.log(b.variances).sum(axis=1)
            into["log_ratio"][:] = theirs - mine

    def costly(self, into: Terms, columns: Indices) -> None:
        """Compute the terms that need a factorization for each pair."""
        size = len(self.squares) + self.others.rank
        if "riemann" in into:
            bad = self.condition * self.others.condition[columns] >= ILL
            for chosen, norms in ((columns[~bad], self._eigenvalues), (columns[bad], self._ill)):
                for part in pieces(chosen, 32 * size * size):
                    into["riemann"][part] = norms(part, self._basis(part))
            # A small angle between the subspaces, whose square is lost in rounding, contributes in
            # proportion to the root of the condition number, so close pairs are computed again.
            lost = _LOST * np.minimum(self.condition, self.others.condition[columns])
            close = columns[into["riemann"][columns] ** 2 < lost]
            for part in pieces(close, 32 * size * self.p):
                into["riemann"][part] = self._ill(part, self._exact_basis(part))
        if "quad_mean" in into or "log_mean" in into:
            for part in pieces(columns, 16 * (size + 1) ** 2):
                quad, log_mean = self._mean_terms(part)
                if "quad_mean" in into:
                    into["quad_mean"][part] = quad
                if "log_mean" in into:
                    into["log_mean"][part] = log_mean

    def _basis(self, part: Any) -> Matrix:
        """Return F, of shape (m, r_a + r_b, r_b)."""
        C = self.C[part]
        turned = C.transpose(0, 2, 1)
        T = -(turned @ C)
        diagonal = np.arange(T.shape[1])
        # If the subspaces intersect, T has zero eigenvalues, which rounding may make negative.
        T[:, diagonal, diagonal] += 1 + 4 * len(diagonal) * np.finfo(np.float64).eps
        try:
            R = np.linalg.cholesky(T).transpose(0, 2, 1)
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(T)
            R = np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.transpose(0, 2, 1)
        return np.concatenate([C, R], axis=1)

    def _exact_basis(self, part: Any) -> Matrix:
        """Return F, computed from the part of U_b orthogonal to U_a, accurate for small angles."""
        U = self.others.axes[part]
        across = U - (U @ self.axes.T) @ self.axes
        across -= (across @ self.axes.T) @ self.axes
        R = np.linalg.qr(across.transpose(0, 2, 1), mode="r")
        return np.concatenate([self.C[part], R], axis=1)

    def _variances(self) -> Matrix:
        own = np.full(len(self.squares) + self.others.rank, self.ridge)
        own[: len(self.squares)] += self.squares
        return own

    def _rest(self, part: Any) -> Matrix:
        """Return the contribution to Σ ln² of the directions orthogonal to both factors."""
        left = self.p - len(self.squares) - self.others.rank
        return np.asarray(left * np.log(self.others.ridge[part] / self.ridge) ** 2)

    def _eigenvalues(self, part: Any, F: Matrix) -> Matrix:
        b, own = self.others, self._variances()
        F *= np.sqrt(b.squares[part])[:, None]
        F /= np.sqrt(own)[:, None]
        K = F @ F.transpose(0, 2, 1)
        diagonal = np.arange(len(own))
        K[:, diagonal, diagonal] += b.ridge[part][:, None] / own
        return log_norm(np.asarray(np.linalg.eigvalsh(K), np.float64), self._rest(part))

    def _ill(self, part: Any, F: Matrix) -> Matrix:
        b, own = self.others, self._variances()
        root = np.sqrt(b.ridge[part])
        # M is the square root of Σ_b, because F has orthonormal columns.
        M = (F * (np.sqrt(b.variances[part]) - root[:, None])[:, None]) @ F.transpose(0, 2, 1)
        diagonal = np.arange(len(own))
        M[:, diagonal, diagonal] += root[:, None]
        M /= np.sqrt(own)[:, None]
        sizes = np.asarray(np.linalg.svd(M, compute_uv=False), np.float64)
        return log_norm(np.square(sizes), self._rest(part))

    def _mean_terms(self, part: Any) -> tuple[Matrix, Matrix]:
        r"""Compute the terms of the mean covariance.

        They are computed from :math:`N = 2 \bar\gamma I + \hat S [U_a U_b]^T [U_a U_b] \hat S`.
        """
        b = self.others
        sizes_a, sizes_b = np.sqrt(self.squares), np.sqrt(b.squares[part])
        ra, size = len(sizes_a), len(sizes_a) + b.rank
        gamma = (self.ridge + b.ridge[part]) / 2
        cross = sizes_b[:, :, None] * self.C[part].transpose(0, 2, 1) * sizes_a
        G = np.zeros((len(cross), size + 1, size + 1))
        G[:, ra:-1, :ra] = cross  # only the lower triangle is used
        diagonal = np.arange(size)
        squares = np.concatenate([np.broadcast_to(self.squares, (len(G), ra)), b.squares[part]], 1)
        G[:, diagonal, diagonal] = squares + 2 * gamma[:, None]
        G[:, -1, :ra] = self.on_a[part] * sizes_a
        G[:, -1, ra:-1] = self.on_b[part] * sizes_b
        log_det, taken = bordered_cholesky(G)
        quad = (self.lengths[part] - taken) / gamma
        log_mean = log_det - size * np.log(2)
        log_mean += (self.p - size) * np.log(gamma)
        log_mean -= 0.5 * (self.p - ra) * np.log(self.ridge)
        log_mean -= 0.5 * (self.p - b.rank) * np.log(b.ridge[part])
        log_mean -= 0.5 * np.log(self.ridge + self.squares).sum()
        log_mean -= 0.5 * np.log(b.variances[part]).sum(axis=1)
        return quad, log_mean
