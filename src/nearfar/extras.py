"""Optional dependencies: loaded when called, with an error that names the install line."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import ``module`` or say which extra brings it.

    >>> require("no_such_module", "ann")
    Traceback (most recent call last):
    ...
    ImportError: no_such_module is not installed; run: pip install 'nearfar[ann]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise ImportError(
            f"{error.name} is not installed; run: pip install 'nearfar[{extra}]'"
        ) from error
