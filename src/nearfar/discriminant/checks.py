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


def choose_n_components(
    n_components: int | None, default: int, limit: int, name: str, reason: str
) -> int:
    """Return ``n_components``, or the default if it is None.

    Raise ValueError if ``n_components`` exceeds the limit. ``reason`` completes the message "has at
    most ...".
    """
    if n_components is None:
        return min(default, limit)
    if n_components > limit:
        raise ValueError(
            f"n_components={n_components} is too large: {name} has at most {reason}. Use a "
            "smaller n_components or None."
        )
    return n_components


def choose_n_mean_directions(
    n_components: int | None, name: str, statistics: ClassStatistics, rank: int
) -> int:
    """Return the number of directions for a method that uses only the class means.

    Such a method has at most n_classes - 1 directions.
    """
    limit = statistics.n_classes - 1
    reason = f"n_classes - 1 = {limit} directions"
    if rank < limit:
        limit = rank
        reason = f"the {limit} directions in which the classes vary"
    return choose_n_components(n_components, limit, limit, name, reason)


def choose_n_varying_directions(
    n_components: int | None, name: str, n_classes: int, rank: int
) -> int:
    """Return the number of directions for a method that may use any direction.

    The default is n_classes - 1, the limit is the rank.
    """
    reason = f"the {rank} directions in which the classes vary"
    return choose_n_components(n_components, n_classes - 1, rank, name, reason)
