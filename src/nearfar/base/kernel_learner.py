"""Learners of a kernel: its values between any points, and coordinates with its distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base.learner import Learner
from nearfar.blocks import row_blocks
from nearfar.solvers.spectral_step import leading_spectrum
from nearfar.state import State, floats, table

# Relative eigenvalue of the centred kernel below which a direction is empty.
_EMPTY = 1e-10


class KernelLearner(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""A method that learns a kernel; write ``fit``, which calls `_keep_kernel`, and `_values`.

    Coordinates are those of kernel PCA of the learned kernel: with its centred matrix
    :math:`K_c = P\,\mathrm{diag}(\lambda) P^T` of the training points, a point with kernel values k
    is at :math:`\mathrm{diag}(\lambda)^{-1/2} P^T k_c`. In all directions their distances are those
    of the kernel between training points, and between any points in their span.
    """

    state = State(
        {
            "_rows": table("n", "p"),
            "_basis": floats("n", "d"),
            "_offset": floats("d"),
        },
        fitted="_basis",
        rows="_rows",
    )

    n_directions: int | Literal["auto"] | None
    feature_names_in_: NDArray[Any]
    _rows: Matrix
    _basis: Matrix
    _offset: Vector

    def __sklearn_is_fitted__(self) -> bool:
        return "_basis" in vars(self)

    def _forget(self) -> None:
        super()._forget()
        self.__dict__.pop("_basis", None)

    def kernel(self, X: ArrayLike, Z: ArrayLike | None = None) -> Matrix:
        """Values of the learned kernel between points, as ``SVC(kernel=learner.kernel)`` asks.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.
        Z : array-like of shape (n_others, n_features), optional
            Others; None is X.

        Returns
        -------
        ndarray of shape (n_samples, n_others)
            In float64.
        """
        check_is_fitted(self)
        first = self._points(X)
        return self._values(first, first if Z is None else self._points(Z))

    def transform(self, X: ArrayLike) -> Floats:
        """Coordinates of points, in which distances are those of the learned kernel.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_directions)
            In the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        return self._coordinates(exact(rows)).astype(rows.dtype, copy=False)

    def _values(self, first: Matrix, second: Matrix) -> Matrix:
        """The learned kernel between rows."""
        raise NotImplementedError

    def _points(self, X: ArrayLike) -> Matrix:
        """Rows to compute with. Plain arrays may come without names, as other estimators pass."""
        names = vars(self).get("feature_names_in_")
        if names is None or not isinstance(X, np.ndarray):
            return exact(self._check_X(X, reset=False))
        del self.feature_names_in_
        try:
            return exact(self._check_X(X, reset=False))
        finally:
            self.feature_names_in_ = names

    def _keep_kernel(self, points: Matrix, K: Matrix) -> None:
        """Keep the training points and the directions of their learned kernel, which is changed."""
        n = len(points)
        wanted = self.n_directions
        if wanted == "auto":
            wanted = min(50, max(10, n // 10))
        means = K.mean(axis=0)
        K -= means
        K -= (means - means.mean())[:, None]
        spectrum = leading_spectrum(K, n if wanted is None else min(wanted, n), positive=True)
        kept = spectrum.values > _EMPTY * max(float(spectrum.values[0]), 0.0)
        if not kept.any():
            raise ValueError("The learned kernel maps all points to one: X tells none apart.")
        self._rows = points
        self._basis = spectrum.vectors[:, kept] / np.sqrt(spectrum.values[kept])
        self._offset = means @ self._basis
        self.n_directions_ = int(kept.sum())

    def _coordinates(self, rows: Matrix) -> Matrix:
        """Where rows are in the directions kept."""
        return self._along(rows, self._values)

    def _along(self, rows: Matrix, values: Callable[[Matrix, Matrix], Matrix]) -> Matrix:
        """Products of the directions with values of some kernel, less the offset."""
        mapped = np.empty((len(rows), self._basis.shape[1]))
        for block in row_blocks(len(rows), 32 * len(self._rows)):
            # The directions are orthogonal to constants: to centre the values in each row and the
            # offset by the mean would change nothing.
            mapped[block] = values(rows[block], self._rows) @ self._basis - self._offset
        return mapped

    @property
    def _n_features_out(self) -> int:
        return int(self._basis.shape[1])


def exact(rows: Any) -> Matrix:
    """Rows in float64 and in one order of memory, so that equal rows give equal bits."""
    return np.ascontiguousarray(rows, dtype=np.float64)
