"""Base class of learners that learn a kernel and map points to its feature space."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base.learner import Learner
from nearfar.blocks import split_rows
from nearfar.solvers.spectral_step import leading_spectrum
from nearfar.state import State, floats, table

# A direction is dropped if its eigenvalue is at most this fraction of the largest eigenvalue of the
# centered kernel.
_MIN_EIGENVALUE = 1e-10


class KernelLearner(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""Base class of kernel learners.

    Subclasses implement ``fit``, which calls ``_keep_kernel``, and ``_values``.

    ``transform`` returns the kernel PCA coordinates of the learned kernel. Let
    :math:`K_c = P\,\mathrm{diag}(\lambda) P^T` be the centered kernel matrix of the training
    points. A point with centered kernel values :math:`k_c` is mapped to
    :math:`\mathrm{diag}(\lambda)^{-1/2} P^T k_c`. If all directions are kept, Euclidean distances
    between mapped points equal the distances in feature space, for the training points and for
    all points in their span.
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
        """Return the values of the learned kernel between points.

        The method can be passed to scikit-learn as ``SVC(kernel=learner.kernel)``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.
        Z : array-like of shape (n_others, n_features), optional
            Other points. None uses X.

        Returns
        -------
        ndarray of shape (n_samples, n_others)
            Kernel values in float64.
        """
        check_is_fitted(self)
        first = self._points(X)
        return self._values(first, first if Z is None else self._points(Z))

    def transform(self, X: ArrayLike) -> Floats:
        """Map points to the kernel PCA coordinates of the learned kernel.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_directions)
            Mapped points, in the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        return self._coordinates(exact(rows)).astype(rows.dtype, copy=False)

    def _values(self, first: Matrix, second: Matrix) -> Matrix:
        """Return the learned kernel matrix between two arrays of rows."""
        raise NotImplementedError

    def _points(self, X: ArrayLike) -> Matrix:
        """Validate points. Arrays without feature names do not cause a warning.

        Other estimators, such as SVC, convert data frames to arrays before they call the kernel.
        """
        names = vars(self).get("feature_names_in_")
        if names is None or not isinstance(X, np.ndarray):
            return exact(self._check_X(X, reset=False))
        del self.feature_names_in_
        try:
            return exact(self._check_X(X, reset=False))
        finally:
            self.feature_names_in_ = names

    def _keep_kernel(self, points: Matrix, K: Matrix) -> None:
        """Store the training points and the leading directions of the kernel. K is overwritten."""
        n = len(points)
        n_directions = self.n_directions
        if n_directions == "auto":
            n_directions = min(50, max(10, n // 10))
        means = K.mean(axis=0)
        K -= means
        K -= (means - means.mean())[:, None]
        spectrum = leading_spectrum(
            K, n if n_directions is None else min(n_directions, n), positive=True
        )
        is_kept = spectrum.values > _MIN_EIGENVALUE * max(float(spectrum.values[0]), 0.0)
        if not is_kept.any():
            raise ValueError(
                "The learned kernel maps all training points to the same point. Check that the "
                "rows of X differ."
            )
        self._rows = points
        self._basis = spectrum.vectors[:, is_kept] / np.sqrt(spectrum.values[is_kept])
        self._offset = means @ self._basis
        self.n_directions_ = int(is_kept.sum())

    def _coordinates(self, rows: Matrix) -> Matrix:
        """Return the coordinates of the rows along the stored directions."""
        return self._project(rows, self._values)

    def _project(self, rows: Matrix, values: Callable[[Matrix, Matrix], Matrix]) -> Matrix:
        """Multiply kernel values with the directions and subtract the offset."""
        mapped = np.empty((len(rows), self._basis.shape[1]))
        for block in split_rows(len(rows), 32 * len(self._rows)):
            # The directions are orthogonal to constant vectors, so centering each row of kernel
            # values would change nothing.
            mapped[block] = values(rows[block], self._rows) @ self._basis - self._offset
        return mapped

    @property
    def _n_features_out(self) -> int:
        return int(self._basis.shape[1])


def exact(rows: Any) -> Matrix:
    """Return contiguous float64 rows, so that equal rows give bitwise equal results."""
    return np.ascontiguousarray(rows, dtype=np.float64)
