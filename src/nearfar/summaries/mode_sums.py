"""Class statistics of tensors that store one scatter per mode, not the full second moment."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats
from nearfar.solvers.tensor_algebra import mode_scatter
from nearfar.state import Sizes, State, check_that, floats, list_of, none_or, object_of, shape_value
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.second_moment import SecondMoment


class ModeMoments(SecondMoment):
    """Second moments of tensors, stored in one vector.

    The vector holds the sum of squares of each entry and, for each mode k, the sum of
    :math:`X_{(k)} X_{(k)}^T`.
    """

    state: ClassVar = State({"tensor_shape": shape_value, "dense": none_or(floats("entries"))})

    def __init__(self, tensor_shape: tuple[int, ...]) -> None:
        super().__init__(prod(tensor_shape), "dense")
        self.tensor_shape = tensor_shape

    def compute_products(self, rows: Floats) -> NDArray[Any]:
        """Return the sums of squares and the mode scatters of flattened tensors in one vector."""
        stack = rows.reshape(-1, *self.tensor_shape)
        scatters = [mode_scatter(stack, k).ravel() for k in range(len(self.tensor_shape))]
        return np.concatenate([np.einsum("ij,ij->j", rows, rows), *scatters])

    def compute_block_products(self, rows: Floats) -> NDArray[Any]:
        """Return the sums of :meth:`compute_products` over the rows of a block."""
        return self.compute_products(rows)

    def add_block(self, moment: Floats) -> None:
        """Add the sums over more rows."""
        assert self.dense is not None
        self.dense += moment

    def compute_cross_products(self, rows: Floats, other_rows: Floats) -> Floats:
        """Return the sums of x zᵀ + z xᵀ, in the same order as in :meth:`compute_products`.

        z is the row of ``other_rows`` at the position of the row x.
        """
        tensors, other_tensors = (
            flat.reshape(-1, *self.tensor_shape) for flat in (rows, other_rows)
        )
        scatters = [mode_scatter(tensors, k, other_tensors) for k in range(len(self.tensor_shape))]
        squares = 2 * np.einsum("ij,ij->j", rows, other_rows)
        return np.concatenate([squares, *[(S + S.T).ravel() for S in scatters]])

    def get_squares(self, products: Floats) -> Floats:
        """Return the sums of squares from the result of :meth:`compute_products`."""
        return products[: self.n_features]

    def get_mode_scatter(self, products: Floats, mode: int) -> Floats:
        """Return the scatter of a mode from the result of :meth:`compute_products`."""
        d = self.tensor_shape[mode]
        start = self.n_features + sum(d * d for d in self.tensor_shape[:mode])
        return products[start : start + d * d].reshape(d, d)

    def choose_block_rows(self, X: Floats) -> int:
        """Return the number of samples in a block of at most 4 MB."""
        return min(max(2**22 // (X.shape[1] * X.itemsize), 1), 4096)

    @property
    def n_entries(self) -> int:
        """Number of stored values."""
        return self.n_features + sum(d * d for d in self.tensor_shape)

    def _check_state(self, sizes: Sizes) -> None:
        check_that(
            self.n_features == prod(self.tensor_shape), "tensor_shape does not match n_features."
        )
        check_that(not self.rows, "expected sums only, but found rows.")
        fits = self.dense is None or len(self.dense) == self.n_entries
        check_that(fits, "dense: expected one scatter per mode.")


class ModeSums(ClassStatistics):
    """Class statistics of flattened tensors, with one scatter per mode but no full scatter."""

    state: ClassVar = State(
        {
            "tensor_shape": shape_value,
            "_seconds": list_of(object_of(ModeMoments, p="p"), "scatters"),
        }
    )

    def __init__(self, tensor_shape: tuple[int, ...], *, exact: bool = False) -> None:
        super().__init__(pooled=True, storage="dense", exact=exact)
        self.tensor_shape = tensor_shape

    def _make_second_moment(self, n_features: int) -> ModeMoments:
        return ModeMoments(self.tensor_shape)

    def make_mode_reader(self, mode: int) -> Callable[[Floats], Floats]:
        """Return a function that extracts the scatter of a mode from the stored values."""
        return lambda products: ModeMoments(self.tensor_shape).get_mode_scatter(products, mode)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        fits = all(second.tensor_shape == self.tensor_shape for second in self._seconds)  # type: ignore[attr-defined]
        check_that(fits, "_seconds: found sums of tensors of another shape.")
