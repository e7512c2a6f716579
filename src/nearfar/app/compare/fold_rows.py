"""Rows as the chains of the folds take them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer

from nearfar.app.tables.columns import as_floats
from nearfar.arrays import Indices


class FoldRows:
    """Rows of an array, a DataFrame or sets, and the first step of a chain that is fitted to them.

    Of a table of numbers without a missing one that step makes an array and changes nothing, and
    would take half of the time on small data: there the folds do without it. The chain that users
    get has it, for new rows may lack a number.
    """

    X: Any
    prepare: Any

    def rows(self, rows: Indices) -> Any:
        """Some rows of X."""
        return as_floats(self.X.iloc[rows] if hasattr(self.X, "iloc") else self.X[rows])

    def inputs(self, rows: Indices) -> Any:
        """The same rows for a chain that begins with ``first_step``."""
        return np.array(self.rows(rows)) if self._is_prepared else self.rows(rows)

    @property
    def first_step(self) -> Any:
        """What prepares ``inputs``."""
        return "passthrough" if self._is_prepared else self.prepare

    @cached_property
    def _is_prepared(self) -> bool:
        if not isinstance(self.prepare, ColumnTransformer) or not hasattr(self.X, "iloc"):
            return False
        (*_, columns), *others = self.prepare.transformers
        numbers = not others and all(kind.kind == "f" for kind in self.X.dtypes)
        in_order = list(columns) == list(self.X.columns)
        return numbers and in_order and not bool(self.X.isna().to_numpy().any())
