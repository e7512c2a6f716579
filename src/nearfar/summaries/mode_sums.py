"""Statistics of tensors that keep scatters of the modes in place of all products of entries."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Floats
from nearfar.solvers.tensor_algebra import mode_scatter
from nearfar.state import Sizes, State, floats, list_of, need, none_or, object_of, shape_word
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.second_moment import SecondMoment


class ModeMoments(SecondMoment):
    """Σ of squares of each entry, and of :math:`X_{(k)} X_{(k)}^T` in each mode, in one vector."""

    state: ClassVar = State({"tensor_shape": shape_word, "dense": none_or(floats("entries"))})

    def __init__(self, tensor_shape: tuple[int, ...]) -> None:
        super().__init__(prod(tensor_shape), "dense")
        self.tensor_shape = tensor_shape

    def products(self, rows: Floats) -> NDArray[Any]:
        """Of the sum over vec(X) in rows."""
        stack = rows.reshape(-1, *self.tensor_shape)
        scatters = [mode_scatter(stack, k).ravel() for k in range(len(self.tensor_shape))]
        return np.concatenate([np.einsum("ij,ij->j", rows, rows), *scatters])

    def of_block(self, rows: Floats) -> NDArray[Any]:
        """The same."""
        return self.products(rows)

    def add_block(self, moment: Floats) -> None:
        """Add the products of some rows."""
        assert self.dense is not None
        self.dense += moment

    def crossed(self, rows: Floats, others: Floats) -> Floats:
        """Of x zᵀ + z xᵀ over rows x and others z."""
        one, two = (part.reshape(-1, *self.tensor_shape) for part in (rows, others))
        scatters = [mode_scatter(one, k, two) for k in range(len(self.tensor_shape))]
        squares = 2 * np.einsum("ij,ij->j", rows, others)
        return np.concatenate([squares, *[(S + S.T).ravel() for S in scatters]])

    def squares(self, products: Floats) -> Floats:
        """The first of what :meth:`products` has."""
        return products[: self.n_features]

    def of_mode(self, products: Floats, mode: int) -> Floats:
        """The scatter of a mode, of what :meth:`products` has."""
        d = self.tensor_shape[mode]
        start = self.n_features + sum(d * d for d in self.tensor_shape[:mode])
        return products[start : start + d * d].reshape(d, d)

    def block_rows(self, X: Floats) -> int:
        """Samples at once: four megabytes."""
        return min(max(2**22 // (X.shape[1] * X.itemsize), 1), 4096)

    @property
    def n_entries(self) -> int:
        """Numbers kept."""
        return self.n_features + sum(d * d for d in self.tensor_shape)

    def _check_state(self, sizes: Sizes) -> None:
        need(self.n_features == prod(self.tensor_shape), "tensor_shape does not fit the entries.")
        need(not self.rows, "there are rows among sums.")
        fits = self.dense is None or len(self.dense) == self.n_entries
        need(fits, "dense: expected one scatter per mode.")


class ModeSums(ClassStatistics):
    """Statistics of vec(X) with scatters of the modes in place of that of all entries."""

    state: ClassVar = State(
        {
            "tensor_shape": shape_word,
            "_seconds": list_of(object_of(ModeMoments, p="p"), "scatters"),
        }
    )

    def __init__(self, tensor_shape: tuple[int, ...], *, exact: bool = False) -> None:
        super().__init__(pooled=True, storage="dense", exact=exact)
        self.tensor_shape = tensor_shape

    def _new_second(self, n_features: int) -> ModeMoments:
        return ModeMoments(self.tensor_shape)

    def of_mode(self, mode: int) -> Callable[[Floats], Floats]:
        """What tells the scatter of a mode from all that is kept."""
        return lambda products: ModeMoments(self.tensor_shape).of_mode(products, mode)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        fits = all(second.tensor_shape == self.tensor_shape for second in self._seconds)  # type: ignore[attr-defined]
        need(fits, "_seconds: they are of tensors of another shape.")
