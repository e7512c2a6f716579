"""Estimators of tensors: one matrix or tensor a sample, or flat rows with their shape."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats
from nearfar.base.estimator import Estimator
from nearfar.parameters import Allowed, none


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) > 0
        and all(isinstance(n, int | np.integer) and n >= 1 for n in value)
    )


#: What the parameter ``tensor_shape`` may be.
TENSOR_PARAMETERS: dict[str, list[Allowed]] = {
    "tensor_shape": [none, Allowed(_is_shape, "a tuple of positive integers")],
}


class TensorInput(Estimator):
    """An estimator that takes (n_samples, d1, ..., dk), or rows with ``tensor_shape``.

    Flat rows are in the order of C: the last mode runs fastest.
    """

    tensor_shape: tuple[int, ...] | None
    tensor_shape_: tuple[int, ...]

    def _check_tensors(self, X: ArrayLike, *, reset: bool, min_samples: int = 1) -> Floats:
        """X as finite floats of shape (n_samples, d1, ..., dk)."""
        if reset:
            self._forget()
        given: Any = X if hasattr(X, "iloc") else np.asarray(X)
        shape = given.shape[1:] if given.ndim > 2 else None
        wanted = self.tensor_shape if reset else self.tensor_shape_
        if shape is None and wanted is None:
            raise ValueError(
                f"{type(self).__name__}: X has shape {given.shape}. Give tensors of shape "
                "(n_samples, d1, ..., dk), or flat rows and tensor_shape=(d1, ..., dk)."
            )
        if shape is not None and wanted is not None and shape != tuple(wanted):
            raise ValueError(
                f"{type(self).__name__}: X holds tensors of shape {shape}; tensor_shape is "
                f"{tuple(wanted)}."
            )
        flat = given if shape is None else given.reshape(len(given), prod(shape))
        rows = self._check_X(flat, reset=reset, min_samples=min_samples)
        shape = tuple(int(n) for n in (wanted if shape is None else shape) or ())
        if prod(shape) != rows.shape[1]:
            raise ValueError(
                f"{type(self).__name__}: rows of {rows.shape[1]} numbers are no tensors of shape "
                f"{shape}, which have {prod(shape)}."
            )
        if reset:
            self.tensor_shape_ = shape
        return rows.reshape(-1, *shape)
