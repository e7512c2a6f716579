"""Warnings that point at the user's line of code, however deep in the library they are raised."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

# Packages that call nearfar on the user's behalf. The search for the user's line skips the frames
# of these packages and of nearfar itself.
_CALLING_PACKAGES = ("sklearn", "joblib", "dask", "distributed")
_PACKAGE_PATH = str(Path(__file__).parent)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the nearest line outside the library.

    >>> warn("x is constant")  # doctest: +SKIP
    """
    warnings.warn(message, category, stacklevel=_find_stack_level())


def warn_not_converged(name: str, max_iter: int, limit_name: str = "the limit") -> None:
    """Warn that a method stopped at its maximum number of iterations without convergence."""
    from sklearn.exceptions import ConvergenceWarning

    warn(
        f"{name} did not converge in {max_iter} iterations ({limit_name}). Increase max_iter, or "
        "increase tol to accept a less accurate solution.",
        ConvergenceWarning,
    )


def _find_stack_level() -> int:
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None and _is_library_frame(frame.f_code.co_filename, frame.f_globals):
        level, frame = level + 1, frame.f_back
    return level


def _is_library_frame(file: str, names: dict[str, object]) -> bool:
    package = str(names.get("__name__", "")).partition(".")[0]
    return file.startswith(_PACKAGE_PATH) or package in _CALLING_PACKAGES
