"""Base class for immutable objects that are equal if their arrays are equal."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np


class Immutable:
    """Base class for immutable objects. Subclasses write their fields to ``vars(self)``."""

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set {name!r}.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot delete {name!r}.")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        other_fields = vars(other)
        return all(np.array_equal(value, other_fields[name]) for name, value in vars(self).items())

    # Arrays are not hashable.
    __hash__ = None  # type: ignore[assignment]
