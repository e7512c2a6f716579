"""What maps of tensors share whose images are tensors again."""

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
from nearfar.base import Learner, TensorInput
from nearfar.base.tensor_input import TENSOR_PARAMETERS
from nearfar.parameters import Allowed, boolean
from nearfar.state import State

#: What the parameters may be that all of them have.
MAP_PARAMETERS: dict[str, Sequence[Allowed]] = {"flatten": [boolean], **TENSOR_PARAMETERS}


class _TensorMap(TensorInput, ClassNamePrefixFeaturesOutMixin, Learner):
    """A map of single tensors to single tensors, or rows.

    A subclass writes ``_shape_out`` and ``_mapped``; ``_learn`` if it learns something.
    """

    state = State(fitted="tensor_shape_", rows=0)
    #: As few samples will do to learn from.
    min_samples = 1

    flatten: bool

    def __sklearn_is_fitted__(self) -> bool:
        return "tensor_shape_" in vars(self)

    @abstractmethod
    def _shape_out(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what a tensor becomes; raises where its shape will not do."""

    @abstractmethod
    def _mapped(self, T: Floats) -> Floats:
        """What tensors become, in their dtype, as an array of its own."""

    def _tensors(self, X: ArrayLike) -> Floats:
        """New tensors, as ``_mapped`` takes them."""
        return self._check_tensors(X, reset=False)

    def _learn(self, T: Floats) -> None:
        """What is learned of tensors; nothing here."""

    @property
    def _n_features_out(self) -> int:
        return prod(self._shape_out(self.tensor_shape_))

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Take the shape of the tensors, and learn what there is to be learned.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk)
            Tensors, or flat rows with ``tensor_shape``.
        y : ignored
            Labels play no part.

        Returns
        -------
        object
            Itself.
        """
        self._forget()
        self._check_parameters()
        T = self._check_tensors(X, reset=True, min_samples=self.min_samples)
        try:
            self._shape_out(T.shape[1:])
        except ValueError:
            self._forget()
            raise
        self._learn(T)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Map tensors.

        Parameters
        ----------
        X : array-like of shape (n_samples, d1, ..., dk)
            Tensors of the shape of those of fit, or flat rows.

        Returns
        -------
        ndarray
            Rows, or tensors if ``flatten`` is False; in the dtype of X.
        """
        check_is_fitted(self)
        T = self._mapped(self._tensors(X))
        return np.ascontiguousarray(T).reshape(len(T), -1) if self.flatten else T
