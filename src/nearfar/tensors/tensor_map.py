"""Base class of transformers from tensors to tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base import Learner, TensorEstimator
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.parameters import AllowedValues, boolean
from nearfar.state import State

#: Conditions on the parameters that all tensor transformers have.
TRANSFORMER_PARAMETERS: dict[str, Sequence[AllowedValues]] = {
    "flatten": [boolean],
    **TENSOR_PARAMETERS,
}


class _TensorTransformer(TensorEstimator, ClassNamePrefixFeaturesOutMixin, Learner):
    """Base class of transformers that map each tensor to a tensor or a row.

    A subclass implements ``_get_output_shape`` and ``_transform_tensors``, and ``_learn`` if it
    learns from data.
    """

    state = State(fitted="tensor_shape_", rows=0)
    #: Minimum number of samples in ``fit``.
    min_samples = 1

    flatten: bool

    def __sklearn_is_fitted__(self) -> bool:
        return "tensor_shape_" in vars(self)

    @abstractmethod
    def _get_output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a transformed tensor. Raises if the input shape is not supported."""

    @abstractmethod
    def _transform_tensors(self, T: Floats) -> Floats:
        """Return the transformed tensors as a new array with the dtype of T."""

    def _read_tensors(self, X: ArrayLike) -> Floats:
        """Check new tensors, and return them in the form that ``_transform_tensors`` expects."""
        return self._check_tensors(X, reset=False)

    def _learn(self, T: Floats) -> None:
        """Learn from training tensors. By default, nothing is learned."""

    @property
    def _n_features_out(self) -> int:
        return prod(self._get_output_shape(self.tensor_shape_))

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Store the shape of the tensors, and compute what the transformation needs from them.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk)
            Tensors, or flat rows if ``tensor_shape`` is set.
        y : ignored
            Present for compatibility with pipelines.

        Returns
        -------
        object
            The transformer itself.
        """
        self._forget()
        self._check_parameters()
        T = self._check_tensors(X, reset=True, min_samples=self.min_samples)
        try:
            self._get_output_shape(T.shape[1:])
        except ValueError:
            self._forget()
            raise
        self._learn(T)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Transform tensors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk)
            Tensors of the same shape as in ``fit``, or flat rows.

        Returns
        -------
        ndarray
            Flat rows, or tensors if ``flatten`` is False, in the dtype of X.
        """
        check_is_fitted(self)
        T = self._transform_tensors(self._read_tensors(X))
        return np.ascontiguousarray(T).reshape(len(T), -1) if self.flatten else T
