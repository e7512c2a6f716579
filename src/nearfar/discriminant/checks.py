"""Checks of classes and of ``n_components`` shared by the discriminant methods."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from nearfar.summaries.class_statistics import ClassStatistics


def check_classes(name: str, classes: NDArray[Any]) -> None:
    """Raise if there is only one class."""
    if len(classes) < 2:
        raise ValueError(
            f"{name} needs at least 2 classes, but y has only one class ({classes.tolist()[0]!r})."
        )


def n_kept(n_components: int | None, default: int, limit: int, name: str, reason: str) -> int:
    """Return the number of directions to keep.

    Raises if ``n_components`` exceeds the limit. ``reason`` completes the message "at most ...".
    """
    if n_components is None:
        return min(default, limit)
    if n_components > limit:
        raise ValueError(
            f"n_components={n_components} is too large: {name} has at most {reason}. Use a "
            "smaller n_components or None."
        )
    return n_components


def n_between(n_components: int | None, name: str, statistics: ClassStatistics, rank: int) -> int:
    """Return the number of directions of a method that uses only class means.

    There are at most n_classes - 1.
    """
    limit = statistics.n_classes - 1
    reason = f"n_classes - 1 = {limit} directions"
    if rank < limit:
        limit = rank
        reason = f"the {limit} directions in which the classes vary"
    return n_kept(n_components, limit, limit, name, reason)


def n_varying(n_components: int | None, name: str, n_classes: int, rank: int) -> int:
    """Return the number of directions of a method that may use any direction.

    The default is n_classes - 1, the limit is the rank.
    """
    reason = f"the {rank} directions in which the classes vary"
    return n_kept(n_components, n_classes - 1, rank, name, reason)
