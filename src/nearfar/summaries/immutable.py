"""Objects of arrays that do not change, and are equal when their arrays are."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np


class Immutable:
    """What summaries of fixed fields share; the fields are put into ``vars(self)`` directly."""

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set {name!r}.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot delete {name!r}.")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        theirs = vars(other)
        return all(np.array_equal(value, theirs[name]) for name, value in vars(self).items())

    # Arrays have no hash.
    __hash__ = None  # type: ignore[assignment]
