"""Base class for index-based supervision."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from nearfar.arrays import Indices
from nearfar.state import Sizes, State
from nearfar.summaries.immutable import Immutable
from nearfar.summaries.index_checks import check_indices, convert_to_array, find_repeat

#: Type of random seeds.
DrawSeed = int | np.random.RandomState | None


class Supervision(Immutable):
    """Base class for index-based supervision, with immutable fields.

    It has no ``__len__``, ``shape``, ``__getitem__``, ``__iter__`` or ``__array__`` on purpose:
    scikit-learn would treat an object with one of them as an array and slice it row by row.
    """

    state: ClassVar = State()

    n_samples: int

    def _set_fields(self, **fields: Any) -> None:
        for value in fields.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        vars(self).update(fields)

    @classmethod
    def _from_fields(cls, **fields: Any) -> Self:
        """Create an object from fields without checking them."""
        supervision = cls.__new__(cls)
        supervision._set_fields(**fields)
        return supervision

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays are writeable after pickle and deepcopy, so make them read-only again.
        self._set_fields(**state)

    def _check_state(self, _: Sizes) -> None:
        type(self)(**vars(self))

    def check_n_samples(self, n: int) -> None:
        """Raise ``ValueError`` unless the supervision was created for ``n`` rows."""
        if n != self.n_samples:
            raise ValueError(
                f"supervision was made for {self.n_samples} samples but X has {n} rows. "
                "scikit-learn's own cross-validation does not restrict index-based supervision; "
                "use nearfar.evaluation.cross_validate(..., supervision=...) or "
                "supervision.restrict(indices)."
            )

    def _check_X(self, X: ArrayLike) -> NDArray[Any]:
        """Return X as an array after checking its number of rows."""
        points: NDArray[Any] = check_array(X, input_name="X", ensure_min_samples=0)
        self.check_n_samples(points.shape[0])
        return points

    def _check_row_selection(self, indices: ArrayLike) -> Indices:
        """Return the row indices selected by a mask, or check and return distinct indices."""
        selection = convert_to_array(indices, "indices", "(m,)")
        if selection.dtype == bool:
            if selection.shape != (self.n_samples,):
                raise ValueError(
                    f"indices is a boolean mask of shape {selection.shape}; it should have shape "
                    f"({self.n_samples},), one entry per sample."
                )
            return np.flatnonzero(selection)
        rows = check_indices(indices, "indices", self.n_samples)
        repeated_positions = find_repeat(rows)
        if repeated_positions is not None:
            raise ValueError(
                f"indices[{repeated_positions[0]}] and indices[{repeated_positions[1]}] are both "
                f"{rows[repeated_positions[0]]}; indices must be distinct."
            )
        return rows
