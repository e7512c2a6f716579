"""Mixin for estimators whose samples are tensors, or flat rows with a tensor shape."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearfar.arrays import Floats
from nearfar.base.estimator import Estimator
from nearfar.blocks import check_finite_samples, check_mask, check_range
from nearfar.parameters import AllowedValues, none
from nearfar.state import State, is_shape, optional, shape_value

#: Allowed values of the parameter ``tensor_shape``.
TENSOR_PARAMETERS: dict[str, list[AllowedValues]] = {
    "tensor_shape": [none, AllowedValues(is_shape, shape_value.description)],
}
#: Allowed values of the parameter ``n_components`` of a multilinear map.
N_COMPONENTS_OF_MODES = [
    none,
    AllowedValues(
        lambda value: is_shape([value]) and not isinstance(value, bool), "an integer from 1"
    ),
    AllowedValues(is_shape, f"{shape_value.description}, one per mode"),
]


class TensorEstimator(Estimator):
    """Estimator for tensors of shape (n_samples, d1, ..., dk), or flat rows with ``tensor_shape``.

    Flat rows are in C order: the index of the last mode changes fastest. If ``tensor_shape`` is
    None, flat rows are vectors, that is, tensors of order one.
    """

    state = State({"tensor_shape_": optional(shape_value)})
    tensor_shape: tuple[int, ...] | None
    tensor_shape_: tuple[int, ...]

    def _check_tensors(self, X: ArrayLike, *, reset: bool, min_samples: int = 1) -> Floats:
        """Validate X and return it as finite floats of shape (n_samples, d1, ..., dk)."""
        if reset:
            self._forget()
        name = type(self).__name__
        if sparse.issparse(X):
            self._check_X(X, reset=reset)  # This raises the error for sparse input.
        check_mask(X, "X")
        tensors: Any = X if hasattr(X, "iloc") else _as_array(X, name)
        if tensors.ndim < 2:
            raise ValueError(
                f"{name}: X has shape {tensors.shape}. Reshape your data: pass tensors of shape "
                "(n_samples, d1, ..., dk), or flat rows with tensor_shape=(d1, ..., dk)."
            )
        shape = tensors.shape[1:] if tensors.ndim > 2 else None
        expected_shape = self.tensor_shape if reset else self.tensor_shape_
        if shape is not None and expected_shape is not None and shape != tuple(expected_shape):
            raise ValueError(
                f"{name}: X has tensors of shape {shape}, but tensor_shape is "
                f"{tuple(expected_shape)}."
            )
        flat = tensors if shape is None else tensors.reshape(len(tensors), prod(shape))
        rows = self._check_X(flat, reset=reset, min_samples=min_samples, finite=False)
        if shape is None:
            shape = rows.shape[1:] if expected_shape is None else expected_shape
        shape = tuple(int(n) for n in shape)
        try:
            check_finite_samples(rows)
            # No method rescales single entries of tensors, so entries may be tiny.
            check_range(rows.ravel(), "X", small=reset)
            if prod(shape) != rows.shape[1]:
                raise ValueError(
                    f"{name}: rows of X have {rows.shape[1]} values, but tensors of shape {shape} "
                    f"have {prod(shape)}."
                )
        except ValueError:
            # A failed fit must not leave the estimator looking fitted.
            if reset:
                self._forget()
            raise
        if reset:
            self.tensor_shape_ = shape
        # Data frames are column-major. Use one memory layout, so that equal rows give equal
        # results.
        return np.ascontiguousarray(rows).reshape(-1, *shape)


def _as_array(X: ArrayLike, name: str) -> Any:
    """Return X as an array. If shapes differ, the error names the first sample that differs."""
    try:
        return np.asarray(X)
    except ValueError as error:
        shapes: list[Any] = []
        for sample in X if isinstance(X, list | tuple) else []:
            try:
                shapes.append(np.shape(sample))
            except ValueError:
                raise ValueError(
                    f"{name}: X[{len(shapes)}] is not a tensor: its rows have different lengths."
                ) from error
        mismatch = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
        if mismatch is None:
            raise ValueError(f"{name}: X is not an array of tensors: {error}") from error
        raise ValueError(
            f"{name}: samples of X must have the same shape: X[0] has {shapes[0]}, X[{mismatch}] "
            f"has {shapes[mismatch]}. Crop, pad or resize them to one shape first."
        ) from error
