"""Base class of learners that map tensors to the coefficients of successive rank-one tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base.multilinear import MultilinearLearner
from nearfar.solvers.tensor_algebra import rank_one_gram
from nearfar.state import Sizes, check_that, matches_size


class RankOneLearner(MultilinearLearner):
    r"""Learner of rank-one atoms :math:`A_r = u_{1r} \otimes \cdots \otimes u_{Mr}` of norm one.

    A tensor is mapped to the coefficients :math:`\lambda_r = \langle X^{(r)}, A_r \rangle` with
    :math:`X^{(r+1)} = X^{(r)} - \lambda_r A_r`. The atoms are not orthogonal, so the coefficients
    differ from the inner products :math:`b_r = \langle X, A_r \rangle`. They are the solution of
    the triangular system :math:`\mathrm{tril}(G) \lambda = b` with
    :math:`G_{rs} = \langle A_r, A_s \rangle`, which is solved for all samples at once.

    A subclass implements ``fit``, which calls :meth:`_keep_atoms`.
    """

    def _keep_atoms(
        self, factors: Sequence[Matrix], mean: Floats | None, dtype: np.dtype[Any]
    ) -> None:
        """Set the fitted attributes. There is one factor per mode, with unit vectors as columns."""
        self._keep_factors(factors, mean, dtype)
        self.n_components_ = (self.factors_[0].shape[1],)

    def _linear_map(self, dtype: Any) -> Callable[[Floats], Floats]:
        atoms, triangle = (
            flatten_atoms(self.factors_).astype(dtype),
            _compute_triangle(self.factors_),
        )
        return lambda rows: _solve(triangle, (rows @ atoms).T).T.astype(dtype)

    def _components(self) -> Floats:
        rows = _solve(_compute_triangle(self.factors_), flatten_atoms(self.factors_).T)
        return np.ascontiguousarray(rows, self.factors_[0].dtype)

    def inverse_transform(self, X: ArrayLike) -> Floats:
        r"""Reconstruct tensors as :math:`\sum_r \lambda_r A_r`, plus the mean if there is one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components)
            Mapped tensors: the coefficients :math:`\lambda_r`.

        Returns
        -------
        ndarray of shape (n_samples, d1, ..., dk)
            Reconstructed tensors, in the dtype of X.
        """
        return super().inverse_transform(X)

    def _rebuild(self, rows: Floats) -> Floats:
        return np.asarray(rows @ flatten_atoms(self.factors_).T.astype(rows.dtype))

    def _check_components(self, sizes: Sizes) -> None:
        n_columns = {U.shape[1] for U in self.factors_}
        check_that(
            n_columns == {*self.n_components_} and len(self.n_components_) == 1,
            "atoms are missing.",
        )
        check_that(
            matches_size(self._n_features_out, "q", sizes),
            "factors_ have a wrong number of columns.",
        )


def flatten_atoms(factors: Sequence[Floats]) -> Matrix:
    """Return the flattened rank-one tensors as the columns of a matrix of shape (d, R)."""
    return np.asarray(reduce(linalg.khatri_rao, [U.astype(np.float64) for U in factors]))


def deflate(rows: Floats, atom: Vector) -> Vector:
    """Subtract from each flat row its projection on a unit atom, and return the coefficients.

    The rows are modified in place.
    """
    atom = atom.astype(rows.dtype)
    scores = rows @ atom
    # The transposed rows are in Fortran order, so BLAS updates them without a copy.
    update = linalg.blas.sger if rows.dtype == np.float32 else linalg.blas.dger
    update(-1.0, atom, scores, a=rows.T, overwrite_a=True)
    return np.asarray(scores)


def _compute_triangle(factors: Sequence[Floats]) -> Matrix:
    """Return the lower triangle of the matrix of inner products of the atoms."""
    factors64 = [U.astype(np.float64) for U in factors]
    return np.tril(rank_one_gram(factors64, factors64))


def _solve(triangle: Matrix, right_side: Floats) -> Matrix:
    """Solve the triangular system, whose diagonal is one up to rounding."""
    return np.asarray(linalg.solve_triangular(triangle, right_side, lower=True, unit_diagonal=True))
