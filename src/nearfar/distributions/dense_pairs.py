r"""Terms of pairs of Gaussians, computed from their covariances.

All dissimilarities except "mean" are invariant to an affine map of all Gaussians. Therefore the
Gaussians are first transformed to coordinates in which their typical covariance is the identity.
Then condition numbers measure how the Gaussians differ, not the units of the features. With
:math:`\Sigma = L L^T` and :math:`\Sigma_0 = L_0 L_0^T`, the new factor :math:`L_0^{-1} L` is lower
triangular, too. It is used directly, without another factorization.

For one Gaussian a and a stack of Gaussians b:

* Traces are inner products of stacked matrices, :math:`tr(\Sigma_a^{-1}\Sigma_b) = \langle
  \Sigma_a^{-1}, \Sigma_b \rangle`: one matrix product for all pairs.
* Eigenvalues are those of :math:`L_a^{-1} \Sigma_b L_a^{-T}`: one ``eigvalsh`` for each b.
* :math:`\ln |\Gamma|` and :math:`u^T \Gamma^{-1} u` come from one bordered Cholesky factorization.

If the product of the condition numbers exceeds 1e8, traces and eigenvalues are computed from the
singular values of :math:`M = L_a^{-1} L_b`, :math:`\lambda = \sigma^2`, which cannot become
negative. If :math:`\Gamma` is also ill-conditioned, the other terms are computed from them, too:
:math:`u^T \Gamma^{-1} u = \sum 2 (U^T L_a^{-1} u)^2 / (1 + \sigma^2)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from nearfar.arrays import Indices, Matrix
from nearfar.distributions.pair_terms import (
    ILL_CONDITIONED,
    Terms,
    compute_log_dets,
    compute_log_norm,
    factor_bordered,
    shift_indices,
    split_indices,
)
from nearfar.summaries.gaussians import Gaussians


@dataclass(frozen=True)
class Frame:
    """Coordinates L₀⁻¹(x - center), in which a typical covariance is the identity."""

    center: Matrix
    root: Matrix

    @classmethod
    def from_gaussians(cls, gaussians: Gaussians, factors: Matrix) -> Frame:
        """Return a frame in which the typical covariance of the Gaussians is the identity.

        ``factors`` contains the Cholesky factors of the covariances, of shape (n, p, p).
        """
        # The features are scaled first. Then the covariances are scaled to the same trace and
        # averaged, so that none of them dominates the mean.
        variances = np.einsum("kij,kij->ki", factors, factors)
        units = np.sqrt(np.exp(np.log(variances).mean(axis=0)))
        scaled = factors / units[:, None]
        levels = np.einsum("kij,kij->k", scaled, scaled)
        flat = (scaled / np.sqrt(levels)[:, None, None]).transpose(1, 0, 2).reshape(len(units), -1)
        try:
            root = np.linalg.cholesky(flat @ flat.T)
        except np.linalg.LinAlgError:
            root = np.eye(len(units))
        return cls(gaussians.means.mean(axis=0), units[:, None] * root)

    def solve(self, stack: Matrix) -> Matrix:
        """Return the product of L₀⁻¹ and each matrix of a stack of shape (n, p, q)."""
        n, p, q = stack.shape
        flat = np.ascontiguousarray(stack.transpose(1, 0, 2)).reshape(p, n * q)
        solved = linalg.solve_triangular(self.root, flat, lower=True, check_finite=False)
        return np.ascontiguousarray(solved.reshape(p, n, q).transpose(1, 0, 2))


class DenseSide:
    """Gaussians in the coordinates of a frame, with cached covariances and inverses."""

    def __init__(self, means: Matrix, factors: Matrix) -> None:
        self.means = means
        self.factors = factors

    @classmethod
    def from_gaussians(cls, gaussians: Gaussians, frame: Frame, factors: Matrix) -> DenseSide:
        """Convert Gaussians to the coordinates of a frame.

        ``factors`` contains the Cholesky factors of the covariances.
        """
        means = frame.solve((gaussians.means - frame.center)[:, :, None])[:, :, 0]
        return cls(means, frame.solve(factors))

    def __getitem__(self, key: slice) -> DenseSide:
        return DenseSide(self.means[key], self.factors[key])

    def __len__(self) -> int:
        return len(self.means)

    @property
    def max_coordinate(self) -> float:
        """Largest absolute coordinate of a mean in the frame."""
        return float(np.abs(self.means).max())

    @cached_property
    def inverses(self) -> Matrix:
        """Inverse Cholesky factors L⁻¹, of shape (n, p, p)."""
        return np.asarray(np.linalg.inv(self.factors))

    @cached_property
    def covariances(self) -> Matrix:
        """Covariances Σ = L Lᵀ, of shape (n, p, p)."""
        return np.asarray(self.factors @ self.factors.transpose(0, 2, 1))

    @cached_property
    def log_dets(self) -> Matrix:
        """Logarithms of the determinants of Σ, of shape (n,)."""
        return compute_log_dets(self.factors)

    @cached_property
    def extremes(self) -> tuple[Matrix, Matrix]:
        """Largest and smallest eigenvalue of each Σ, as two arrays of shape (n,)."""
        singular_values = np.asarray(np.linalg.svd(self.factors, compute_uv=False), np.float64)
        return singular_values[:, 0] ** 2, singular_values[:, -1] ** 2

    @cached_property
    def condition_bound(self) -> float:
        """Upper bound for the condition numbers, which is cheap to compute."""
        squares = [np.einsum("kij,kij->k", X, X) for X in (self.factors, self.inverses)]
        return float((squares[0] * squares[1]).max())

    @cached_property
    def flat(self) -> Matrix:
        """Lower triangles of Σ with doubled off-diagonal entries, of shape (n, p (p + 1) / 2)."""
        return _lower_triangles(self.covariances, 2.0)

    @cached_property
    def flat_inverses(self) -> Matrix:
        """Lower triangles of Σ⁻¹, of shape (n, p (p + 1) / 2)."""
        return _lower_triangles(self.inverses.transpose(0, 2, 1) @ self.inverses, 1.0)


def _lower_triangles(stack: Matrix, off_diagonal: float) -> Matrix:
    rows, columns = np.tril_indices(stack.shape[1])
    flat: Matrix = stack[:, rows, columns]
    flat *= np.where(rows == columns, 1.0, off_diagonal)
    return flat


_QUADS = frozenset({"quad_a", "quad_b", "quad_mean"})
_MEANS = frozenset({"quad_mean", "log_mean"})
_TRACES = frozenset({"trace_ab", "trace_ba"})
Columns = Sequence[int] | Indices


class DensePairs:
    """All pairs of Gaussians from two stacks in the same frame."""

    def __init__(self, A: DenseSide, B: DenseSide) -> None:
        self.A, self.B = A, B
        self.n_features = A.means.shape[1]
        # If all means are equal, as for covariances without means, quadratic forms are skipped.
        means = np.concatenate([A.means[:1], B.means])
        self._has_ill_conditioned = not A.condition_bound * B.condition_bound < ILL_CONDITIONED
        self._equal_means = not (np.ptp(means, axis=0).any() or np.ptp(A.means, axis=0).any())

    def compute_terms(self, rows: slice, first: int, names: frozenset[str], upper: bool) -> Terms:
        """Return the named terms for a block of pairs; see `GaussianPairs`."""
        A, B = self.A, self.B
        shape = (rows.stop - rows.start, len(B) - first)
        terms: Terms = {}
        if "trace_ba" in names:
            terms["trace_ba"] = A.flat_inverses[rows] @ B.flat[first:].T
        if "trace_ab" in names:
            terms["trace_ab"] = A.flat[rows] @ B.flat_inverses[first:].T
        if "log_ratio" in names:
            terms["log_ratio"] = B.log_dets[first:] - A.log_dets[rows, None]
        remaining = [name for name in names if name not in terms]
        terms |= {name: np.zeros(shape) for name in remaining}
        pairwise = frozenset(remaining) if not self._equal_means else frozenset(remaining) - _QUADS
        if not pairwise and not self._has_ill_conditioned:
            return terms
        for k, a in enumerate(range(rows.start, rows.stop)):
            row = {name: values[k] for name, values in terms.items()}
            self._fill_quads(a, first, row, pairwise)
            start = a + 1 if upper else first
            eigen_columns: Columns = range(start, len(B))
            mean_columns: Columns = eigen_columns
            if self._has_ill_conditioned:
                # The traces were computed for all columns, also before the diagonal.
                begin = first if names & _TRACES else start
                ill, ill_mean = self._find_ill_conditioned(a, begin)
                columns = np.arange(begin, len(B))
                eigen_columns, mean_columns = (
                    columns[~ill & (columns >= start)],
                    columns[~ill_mean & (columns >= start)],
                )
                self._fill_by_singular_values(
                    a, first, columns[ill & ~ill_mean], row, names - _MEANS
                )
                self._fill_by_singular_values(a, first, columns[ill_mean], row, names)
            if "riemann" in pairwise:
                self._fill_riemann(a, first, eigen_columns, row["riemann"])
            if pairwise & _MEANS:
                self._fill_mean_terms(a, first, mean_columns, row)
        return terms

    def _find_ill_conditioned(
        self, a: int, start: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return two masks of ill-conditioned pairs of Gaussian a and the Gaussians b >= `start`.

        The first mask marks pairs for which the product of the condition numbers is too large. The
        second mask marks pairs of the first mask whose mean covariance Γ is also ill-conditioned.
        """
        (high, low), (highs, lows) = ((x[a] for x in self.A.extremes), self.B.extremes)
        highs, lows = highs[start:], lows[start:]
        # Compare products instead of quotients, because the smallest eigenvalue may be zero.
        with np.errstate(over="ignore"):
            ill = high * highs >= ILL_CONDITIONED * low * lows
        return ill, ill & (high + highs >= ILL_CONDITIONED * (low + lows))

    def _fill_quads(self, a: int, first: int, row: Terms, names: frozenset[str]) -> None:
        if not names & {"quad_a", "quad_b"}:
            return
        U = self.B.means[first:] - self.A.means[a]
        if "quad_a" in names:
            row["quad_a"][:] = _squared_lengths(U @ self.A.inverses[a].T)
        if "quad_b" in names:
            whitened = np.matmul(self.B.inverses[first:], U[:, :, None])[:, :, 0]
            row["quad_b"][:] = _squared_lengths(whitened)

    def _fill_riemann(self, a: int, first: int, columns: Columns, output: Matrix) -> None:
        root, p = self.A.inverses[a], self.n_features
        for block in split_indices(columns, 16 * p * p):
            product = (self.B.covariances[block].reshape(-1, p) @ root.T).reshape(-1, p, p)
            values = np.asarray(np.linalg.eigvalsh(root @ product), np.float64)
            output[shift_indices(block, first)] = compute_log_norm(values)

    def _fill_mean_terms(self, a: int, first: int, columns: Columns, row: Terms) -> None:
        A, B, p = self.A, self.B, self.n_features
        for block in split_indices(columns, 16 * (p + 1) ** 2):
            covariances = B.covariances[block]
            if self._equal_means:
                log_det = compute_log_dets(np.linalg.cholesky(covariances + A.covariances[a]))
            else:
                G = np.empty((len(covariances), p + 1, p + 1))
                np.add(covariances, A.covariances[a], out=G[:, :p, :p])
                G[:, p, :p] = B.means[block] - A.means[a]
                # G contains 2Γ instead of Γ.
                log_det, quad = factor_bordered(G)
                if "quad_mean" in row:
                    row["quad_mean"][shift_indices(block, first)] = 2 * quad
            if "log_mean" in row:
                logs = (A.log_dets[a] + B.log_dets[block]) / 2 + p * np.log(2)
                row["log_mean"][shift_indices(block, first)] = log_det - logs

    def _fill_by_singular_values(
        self, a: int, first: int, columns: Indices, row: Terms, names: frozenset[str]
    ) -> None:
        A, B, p = self.A, self.B, self.n_features
        for block in split_indices(columns, 32 * p * p):
            target = shift_indices(block, first)
            factors = B.factors[block]
            b = len(factors)
            stacked = np.empty((p, b, p + 1))
            stacked[:, :, :p] = factors.transpose(1, 0, 2)
            stacked[:, :, p] = (B.means[block] - A.means[a]).T
            solved = linalg.solve_triangular(
                A.factors[a], stacked.reshape(p, -1), lower=True, check_finite=False
            ).reshape(p, b, p + 1)
            M, z = solved[:, :, :p].transpose(1, 0, 2), solved[:, :, p].T
            if "quad_mean" in names:
                axes, singular_values, _ = np.linalg.svd(M)
                projected = np.matmul(z[:, None], axes)[:, 0]
                row["quad_mean"][target] = 2 * np.sum(
                    projected**2 / (1 + singular_values**2), axis=1
                )
            else:
                singular_values = np.linalg.svd(M, compute_uv=False)
            logs = np.log(np.maximum(singular_values, 1e-150))
            values = {
                "riemann": 2 * np.sqrt(np.sum(logs**2, axis=1)),
                "log_mean": np.sum(np.logaddexp(0, 2 * logs) - logs, axis=1) - p * np.log(2),
                "trace_ba": np.sum(singular_values**2, axis=1),
                "trace_ab": np.sum(np.exp(-2 * logs), axis=1),
            }
            for name in names & values.keys():
                row[name][target] = values[name]


def _squared_lengths(rows: Matrix) -> Matrix:
    return np.asarray(np.einsum("ij,ij->i", rows, rows))
