"""Folders of objects: which files are one, in what order, with what label."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.notices import warn
from nearfar.words import count, listed


class Member(NamedTuple):
    """An object of a folder: its file, or its own folder."""

    path: Path
    #: Relative to the folder, with "/" between the parts.
    name: str
    #: The sub-folder of the first level, None for what lies in the folder itself.
    label: str | None


def members(
    folder: str | os.PathLike[str],
    suffixes: Iterable[str],
    what: str,
    is_member: Callable[[Path], bool] = lambda folder: False,
) -> list[Member]:
    """Files of these kinds anywhere in a folder, and sub-folders that are a member as a whole.

    Hidden files are passed over, files of other kinds too, with one warning for all. The order is
    that of :func:`in_order`, whatever the file system says.
    """
    root, known = Path(folder), frozenset(suffixes)
    if not root.is_dir():
        raise ValueError(f"{str(root)!r} is {'a file, no' if root.exists() else 'not a'} folder.")
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
    kinds = listed(sorted(known), 40, quoted=False)
    if not found:
        there = f"; there are {listed(others, 3)}" if others else ""
        raise ValueError(f"There are no {what} in {str(root)!r}{there}. Files may be {kinds}.")
    if others:
        is_are = "is" if len(others) == 1 else "are"
        warn(
            f"{count(len(others), 'file')} of {str(root)!r} {is_are} of no known kind and passed "
            f"over: {listed(others, 3)}. Known are {kinds}.",
        )
    return found


def _leads_back(folder: Path) -> bool:
    """Whether it is a link to a folder that it lies in, which would be visited for ever."""
    return folder.is_symlink() and folder.resolve() in folder.parent.resolve().joinpath("x").parents


def labels_of(found: list[Member], what: str) -> NDArray[np.str_] | None:
    """The names of the sub-folders, None if there are none."""
    without = [member for member in found if member.label is None]
    if len(without) == len(found):
        return None
    if without:
        raise ValueError(
            f"{without[0].name!r} has no label: it lies beside sub-folders, whose names are the "
            f"labels of the {what} in them. Move it into one."
        )
    return np.array([member.label for member in found])


def in_order(paths: Iterable[Path]) -> list[Path]:
    """By name, numbers in names by value.

    >>> [path.name for path in in_order([Path("f10.png"), Path("f9.png"), Path("e11.png")])]
    ['e11.png', 'f9.png', 'f10.png']
    """

    def key(path: Path) -> tuple[Any, ...]:
        # Text and digits take turns, text first.
        parts = re.split(r"([0-9]+)", path.name)
        return tuple(int(part) if k % 2 else part for k, part in enumerate(parts)), path.name

    return sorted(paths, key=key)
