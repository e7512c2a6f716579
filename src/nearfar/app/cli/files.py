"""Files that the commands write: refused before the work where they could not be."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def check_place(path: Path, option: str, replaced: bool) -> None:
    """Refuse a file that is there, or could not be written."""
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder; name a file in it.")
    if path.exists() and not replaced:
        raise ValueError(f"{path} exists; choose another {option}, or add --force.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option}: there is no folder {path.parent}.")
    there = path.exists()
    try:
        with open(path, "ab"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise ValueError(cannot_write(path, option, error)) from error


def cannot_write(path: Path, option: str, error: OSError) -> str:
    """Why a file cannot be written, and what would do."""
    return (
        f"{path} cannot be written ({error.strerror}); choose with {option} a file in a folder "
        "where you may write."
    )


def check_ending(path: Path, endings: tuple[str, ...], option: str = "") -> None:
    """Refuse a file of an unknown ending."""
    if path.suffix.lower() not in endings:
        names = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise ValueError(f"{option}{path}: end the name with {names}.")


def write_coordinates(points: Any, path: Path, names: Any = None) -> None:
    """Where each is, by the ending of the name; in a table behind its names, ids and labels."""
    import numpy as np

    if path.suffix.lower() == ".npy":
        np.save(path, points)
        return
    write_columns((names or {}) | {f"component_{i}": part for i, part in enumerate(points.T)}, path)


def write_columns(columns: dict[str, Any], path: Path) -> None:
    """A table by the ending of its name."""
    if path.suffix.lower() == ".parquet":
        from nearfar.extras import require

        require("pyarrow", "app")
        require("pandas", "app").DataFrame(columns).to_parquet(path, index=False)
        return
    with open(path, "w", newline="", encoding="utf-8") as file:
        write_csv(file, columns, "\t" if path.suffix.lower() == ".tsv" else ",")


def write_csv(stream: Any, columns: dict[str, Any], separator: str) -> None:
    """Columns as text."""
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    # As Python's own numbers: the shortest text that gives the same number again.
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def refuse_shared_names(options: Any, names: Sequence[str], **others: Any) -> None:
    """Refuse options that would write over the data, another file, or one another."""
    taken = {os.path.realpath(path): f"the {what}" for what, path in others.items()}
    taken[os.path.realpath(options.data)] = "the data"
    if getattr(options, "pairs", None) is not None:
        taken[os.path.realpath(options.pairs)] = "the file of pairs"
    for name in names:
        path = getattr(options, name)
        if path is None:
            continue
        place = os.path.realpath(path)
        if place in taken:
            raise ValueError(f"--{name} {path} is {taken[place]}; choose another name.")
        taken[place] = f"what --{name} writes"
