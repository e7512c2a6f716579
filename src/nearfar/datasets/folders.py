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
    """One object in a folder: a file, or a subfolder with the frames of a clip."""

    path: Path
    #: Path relative to the folder, with "/" between the parts.
    name: str
    #: First-level subfolder, or None if the object is directly in the folder.
    label: str | None


def find_members(
    folder: str | os.PathLike[str],
    suffixes: Iterable[str],
    noun: str,
    is_member: Callable[[Path], bool] = lambda folder: False,
) -> list[Member]:
    """Return the objects in a folder: files with these extensions, and some subfolders.

    `is_member` decides whether a subfolder as a whole is one object. Nested folders are searched
    too. Hidden files are skipped. Files with other extensions are skipped with a single warning.
    The result is sorted by :func:`sort_naturally`, so it does not depend on the file system.
    """
    root, supported = Path(folder), frozenset(suffixes)
    if not root.is_dir():
        raise ValueError(
            f"{str(root)!r} is {'a file, not a' if root.exists() else 'not a'} folder."
        )
    results, skipped = [], []

    def visit(current: Path) -> None:
        for path in sort_naturally(current.iterdir()):
            if path.name.startswith("."):
                continue
            if path.is_dir() and not is_member(path):
                if not _is_cyclic_link(path):
                    visit(path)
            elif path.is_dir() or path.suffix.lower() in supported:
                path_parts = path.relative_to(root).parts
                results.append(
                    Member(
                        path, "/".join(path_parts), path_parts[0] if len(path_parts) > 1 else None
                    )
                )
            else:
                skipped.append(path.relative_to(root).as_posix())

    visit(root)
    extensions = join_names(sorted(supported), 40, quoted=False)
    if not results:
        contents = f", only {join_names(skipped, 3)}" if skipped else ""
        raise ValueError(f"Found no {noun} in {str(root)!r}{contents}. Supported: {extensions}.")
    if skipped:
        verb = "is" if len(skipped) == 1 else "are"
        warn(
            f"{format_count(len(skipped), 'file')} in {str(root)!r} {verb} skipped because the "
            f"extension is not supported: {join_names(skipped, 3)}. Supported: {extensions}.",
        )
    return results


def _is_cyclic_link(folder: Path) -> bool:
    """Return True for a link to one of its parent folders, which would cause endless recursion."""
    return folder.is_symlink() and folder.resolve() in folder.parent.resolve().joinpath("x").parents


def get_labels(folder_members: list[Member], noun: str) -> NDArray[np.str_] | None:
    """Return the first-level subfolder of each member, or None if the folder has no subfolders."""
    unlabeled = [member for member in folder_members if member.label is None]
    if len(unlabeled) == len(folder_members):
        return None
    if unlabeled:
        raise ValueError(
            f"{unlabeled[0].name!r} has no label, because it is not in a subfolder. The names of "
            f"the subfolders are the labels of the {noun} in them. Move it into a subfolder."
        )
    return np.array([member.label for member in folder_members])


def sort_naturally(paths: Iterable[Path]) -> list[Path]:
    """Return the paths sorted by name, with numbers in names compared by value.

    >>> paths = [Path("f10.png"), Path("f9.png"), Path("e11.png")]
    >>> [path.name for path in sort_naturally(paths)]
    ['e11.png', 'f9.png', 'f10.png']
    """

    def key(path: Path) -> tuple[Any, ...]:
        # The pieces are alternately text and digits, and the first piece is text.
        pieces = re.split(r"([0-9]+)", path.name)
        return tuple(int(piece) if k % 2 else piece for k, piece in enumerate(pieces)), path.name

    return sorted(paths, key=key)
