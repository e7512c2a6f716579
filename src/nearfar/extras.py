"""Optional dependencies: loaded when called, with an error that names the install line."""

from __future__ import annotations

from functools import cache
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


@cache
def kernels(module: str) -> ModuleType | None:
    """A room's compiled kernels; None where numba (extra ``fast``) is missing or does not load.

    It takes most of a second the first time: ask where the work takes longer.
    """
    try:
        import_module("numba")
    except ImportError:  # also where it does not know this version of NumPy
        return None
    return import_module(module)
