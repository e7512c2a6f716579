"""Estimators of tensors: one matrix or tensor a sample, or flat rows with their shape."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from nearfar.arrays import Floats
from nearfar.base.estimator import Estimator
from nearfar.blocks import check_finite_samples
from nearfar.parameters import Allowed, none
from nearfar.state import State, is_shape, optional, shape_word

#: What the parameter ``tensor_shape`` may be.
TENSOR_PARAMETERS: dict[str, list[Allowed]] = {
    "tensor_shape": [none, Allowed(is_shape, shape_word.description)],
}
#: What the parameter ``n_components`` of a multilinear map may be.
N_COMPONENTS_OF_MODES = [
    none,
    Allowed(lambda value: is_shape([value]) and not isinstance(value, bool), "an integer from 1"),
    Allowed(is_shape, f"{shape_word.description}, one for each mode"),
]


class TensorInput(Estimator):
    """An estimator that takes (n_samples, d1, ..., dk), or rows with ``tensor_shape``.

    Flat rows are in the order of C: the last mode runs fastest. Without ``tensor_shape`` they are
    tensors of order one.
    """

    state = State({"tensor_shape_": optional(shape_word)})
    tensor_shape: tuple[int, ...] | None
    tensor_shape_: tuple[int, ...]

    def _check_tensors(self, X: ArrayLike, *, reset: bool, min_samples: int = 1) -> Floats:
        """X as finite floats of shape (n_samples, d1, ..., dk)."""
        if reset:
            self._forget()
        name = type(self).__name__
        if sparse.issparse(X):
            self._check_X(X, reset=reset)  # which says what to do with it
        given: Any = X if hasattr(X, "iloc") else _as_array(X, name)
        if given.ndim < 2:
            raise ValueError(
                f"{name}: X has shape {given.shape}. Reshape your data: give tensors of shape "
                "(n_samples, d1, ..., dk), or flat rows and tensor_shape=(d1, ..., dk)."
            )
        shape = given.shape[1:] if given.ndim > 2 else None
        wanted = self.tensor_shape if reset else self.tensor_shape_
        if shape is not None and wanted is not None and shape != tuple(wanted):
            raise ValueError(
                f"{name}: X holds tensors of shape {shape}; tensor_shape is {tuple(wanted)}."
            )
        flat = given if shape is None else given.reshape(len(given), prod(shape))
        rows = self._check_X(flat, reset=reset, min_samples=min_samples, finite=False)
        if shape is None:
            shape = rows.shape[1:] if wanted is None else wanted
        shape = tuple(int(n) for n in shape)
        try:
            check_finite_samples(rows)
            if prod(shape) != rows.shape[1]:
                raise ValueError(
                    f"{name}: rows of {rows.shape[1]} numbers are no tensors of shape "
                    f"{shape}, which have {prod(shape)}."
                )
        except ValueError:
            if reset:  # what was refused leaves nothing that looks fitted
                self._forget()
            raise
        if reset:
            self.tensor_shape_ = shape
        # One layout, and so one rounding, of equal numbers: frames come column by column.
        return np.ascontiguousarray(rows).reshape(-1, *shape)


def _as_array(X: ArrayLike, name: str) -> Any:
    """X as an array; of a list whose samples are not of one shape the first other is named."""
    try:
        return np.asarray(X)
    except ValueError as error:
        shapes: list[Any] = []
        for sample in X if isinstance(X, list | tuple) else []:
            try:
                shapes.append(np.shape(sample))
            except ValueError:
                raise ValueError(
                    f"{name}: X[{len(shapes)}] is no tensor: its rows are of unequal length."
                ) from error
        other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
        if other is None:
            raise ValueError(f"{name}: X is no array of tensors: {error}") from error
        raise ValueError(
            f"{name}: samples of X are not of one shape: X[0] has {shapes[0]}, X[{other}] has "
            f"{shapes[other]}. Bring them to one shape first, by cutting, padding or resizing."
        ) from error
