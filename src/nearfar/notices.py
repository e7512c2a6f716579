"""Warnings that point at the user's line of code, however deep in the library they are raised."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

# Packages that call nearfar on the user's behalf. Their frames, and those of nearfar itself, are
# skipped in the search for the user's line.
_BETWEEN = ("sklearn", "joblib", "dask", "distributed")
_OURS = str(Path(__file__).parent)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the nearest line outside the library.

    >>> warn("x is constant")  # doctest: +SKIP
    """
    warnings.warn(message, category, stacklevel=_level())


def warn_of_limit(name: str, max_iter: int, whose: str = "the limit") -> None:
    """Warn that a method stopped at its maximum number of iterations without convergence."""
    from sklearn.exceptions import ConvergenceWarning

    warn(
        f"{name} did not converge in {max_iter} iterations ({whose}). Increase max_iter, or "
        "increase tol to accept a less accurate solution.",
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
