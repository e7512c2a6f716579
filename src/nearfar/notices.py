"""Warnings that point at the line of the caller, however deep the library was when it noticed."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

# Frames that are no line of the user's: ours, and those that call us on the user's behalf.
_BETWEEN = ("sklearn", "joblib", "dask", "distributed")
_OURS = str(Path(__file__).parent)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the nearest line outside the library.

    >>> warn("x is constant")  # doctest: +SKIP
    """
    warnings.warn(message, category, stacklevel=_level())


def warn_of_limit(name: str, max_iter: int, whose: str = "its limit") -> None:
    """Warn that a method was stopped by its number of iterations."""
    from sklearn.exceptions import ConvergenceWarning

    warn(
        f"{name} did not converge in {max_iter} iterations, {whose}; raise max_iter, or tol to be "
        "content with less.",
        ConvergenceWarning,
    )


def _level() -> int:
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and _is_between(frame.f_code.co_filename, frame.f_globals):
        level, frame = level + 1, frame.f_back
    return level


def _is_between(file: str, names: dict[str, object]) -> bool:
    package = str(names.get("__name__", "")).partition(".")[0]
    return file.startswith(_OURS) or package in _BETWEEN
