"""Search for the files of a dataset in a folder, with their order and labels."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.notices import warn
from nearfar.words import format_count, join_names


class Member(NamedTuple):
    """One object in a folder: a file, or a subfolder such as the frames of a clip."""

    path: Path
    #: Path relative to the folder, with "/" between the parts.
    name: str
    #: First-level subfolder, None for an object directly in the folder.
    label: str | None


def members(
    folder: str | os.PathLike[str],
    suffixes: Iterable[str],
    what: str,
    is_member: Callable[[Path], bool] = lambda folder: False,
) -> list[Member]:
    """Return the files with these extensions anywhere in a folder, and matching subfolders.

    `is_member` decides whether a subfolder as a whole is one object. Hidden files are skipped, and
    files with other extensions are skipped with one warning for all of them. The order is that of
    :func:`in_order`, independent of the file system.
    """
    root, known = Path(folder), frozenset(suffixes)
    if not root.is_dir():
        raise ValueError(
            f"{str(root)!r} is {'a file, not a' if root.exists() else 'not a'} folder."
        )
    found, others = [], []

    def visit(place: Path) -> None:
        for path in in_order(place.iterdir()):
            if path.name.startswith("."):
                continue
            if path.is_dir() and not is_member(path):
                if not _leads_back(path):
                    visit(path)
            elif path.is_dir() or path.suffix.lower() in known:
                parts = path.relative_to(root).parts
                found.append(Member(path, "/".join(parts), parts[0] if len(parts) > 1 else None))
            else:
                others.append(path.relative_to(root).as_posix())

    visit(root)
    kinds = join_names(sorted(known), 40, quoted=False)
    if not found:
        there = f", only {join_names(others, 3)}" if others else ""
        raise ValueError(f"Found no {what} in {str(root)!r}{there}. Supported: {kinds}.")
    if others:
        is_are = "is" if len(others) == 1 else "are"
        warn(
            f"{format_count(len(others), 'file')} in {str(root)!r} {is_are} skipped because the "
            f"extension is not supported: {join_names(others, 3)}. Supported: {kinds}.",
        )
    return found


def _leads_back(folder: Path) -> bool:
    """Return True for a link to one of its parent folders, which would cause endless recursion."""
    return folder.is_symlink() and folder.resolve() in folder.parent.resolve().joinpath("x").parents


def labels_of(found: list[Member], what: str) -> NDArray[np.str_] | None:
    """Return the first-level subfolder of each member, or None without subfolders."""
    without = [member for member in found if member.label is None]
    if len(without) == len(found):
        return None
    if without:
        raise ValueError(
            f"{without[0].name!r} has no label, because it is not in a subfolder. The names of the "
            f"subfolders are the labels of the {what} in them. Move it into a subfolder."
        )
    return np.array([member.label for member in found])


def in_order(paths: Iterable[Path]) -> list[Path]:
    """Return the paths sorted by name, with numbers in names compared by value.

    >>> [path.name for path in in_order([Path("f10.png"), Path("f9.png"), Path("e11.png")])]
    ['e11.png', 'f9.png', 'f10.png']
    """

    def key(path: Path) -> tuple[Any, ...]:
        # The parts alternate between text and digits, beginning with text.
        parts = re.split(r"([0-9]+)", path.name)
        return tuple(int(part) if k % 2 else part for k, part in enumerate(parts)), path.name

    return sorted(paths, key=key)
