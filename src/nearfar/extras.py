"""Import of optional dependencies, with an error that contains the install command."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType


def import_optional(module: str, extra: str) -> ModuleType:
    """Import ``module``, or raise an ImportError that names the extra to install.

    >>> import_optional("no_such_module", "ann")
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
def import_kernels(module: str) -> ModuleType | None:
    """Import a module of compiled kernels; return None if numba (extra ``fast``) is not available.

    The first call takes most of a second. Use compiled kernels only for computations that take
    longer.
    """
    try:
        import_module("numba")
    except ImportError:  # Also raised if numba does not support the installed NumPy.
        return None
    return import_module(module)
