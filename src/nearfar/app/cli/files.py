"""Files that the commands write, checked before the work starts."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def check_place(path: Path, option: str, replaced: bool) -> None:
    """Raise if a file exists and may not be replaced, or cannot be written."""
    if path.is_dir():
        raise ValueError(f"{option} {path} is a folder. Name a file in it.")
    if path.exists() and not replaced:
        raise ValueError(f"{path} exists. Choose another {option}, or add --force.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"{option} {path}: the folder {path.parent} does not exist.")
    there = path.exists()
    try:
        with open(path, "ab"):
            pass
        if not there:
            path.unlink()
    except OSError as error:
        raise ValueError(cannot_write(path, option, error)) from error


def cannot_write(path: Path, option: str, error: OSError) -> str:
    """Return why a file cannot be written, and how to fix it."""
    return (
        f"{path} cannot be written ({error.strerror}). Choose a file in a writable folder with "
        f"{option}."
    )


def check_ending(path: Path, endings: tuple[str, ...], option: str = "") -> None:
    """Raise if the name of a file has another ending."""
    if path.suffix.lower() not in endings:
        names = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise ValueError(f"{option}{path}: the name must end with {names}.")


def write_coordinates(points: Any, path: Path, names: Any = None) -> None:
    """Write coordinates in the format of the file name; tables start with names, IDs and labels."""
    import numpy as np

    if path.suffix.lower() == ".npy":
        np.save(path, points)
        return
    write_columns((names or {}) | {f"component_{i}": part for i, part in enumerate(points.T)}, path)


def write_columns(columns: dict[str, Any], path: Path) -> None:
    """Write a table in the format of the file name."""
    if path.suffix.lower() == ".parquet":
        from nearfar.extras import import_optional

        import_optional("pyarrow", "app")
        import_optional("pandas", "app").DataFrame(columns).to_parquet(path, index=False)
        return
    with open(path, "w", newline="", encoding="utf-8") as file:
        write_csv(file, columns, "\t" if path.suffix.lower() == ".tsv" else ",")


def write_csv(stream: Any, columns: dict[str, Any], separator: str) -> None:
    """Write columns as text."""
    writer = csv.writer(stream, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    # Python's own numbers are written as the shortest text that reads back as the same number.
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))


def refuse_shared_names(options: Any, names: Sequence[str], **others: Any) -> None:
    """Raise if an option would overwrite the data, another file or the file of another option."""
    taken = {os.path.realpath(path): f"the {what}" for what, path in others.items()}
    taken[os.path.realpath(options.data)] = "the data"
    if getattr(options, "pairs", None) is not None:
        taken[os.path.realpath(options.pairs)] = "the pairs file"
    for name in names:
        path = getattr(options, name)
        if path is None:
            continue
        place = os.path.realpath(path)
        if place in taken:
            raise ValueError(f"--{name} {path} is also {taken[place]}. Choose another name.")
        taken[place] = f"the file of --{name}"
