"""The data of a command: a file opened once, and read as what it holds, rows or sets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nearfar.datasets.pair_files import read_pairs, read_unjudged_pairs
from nearfar.datasets.picture_tables import set_tensor_shape
from nearfar.datasets.set_tables import check_not_sets, read_sets
from nearfar.datasets.table import Table
from nearfar.datasets.tables import DataFile, open_data_file, read_table
from nearfar.summaries.supervision import Pairs

__all__ = [
    "left_to_drop",
    "noun_of_file",
    "read_data",
    "read_judged_pairs",
    "read_pairs_to_judge",
    "read_rows",
    "refuse_for_sets",
]


def noun_of_file(file: DataFile, set_id: str | None = None) -> str:
    """What it holds, before it is read: "set" where the user or the file says so, else "row"."""
    return "set" if set_id is not None or file.has_sets else "row"


def read_data(
    source: str | os.PathLike[str] | DataFile,
    *,
    set_id: str | None = None,
    min_vectors: int = 2,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    time: str | None = None,
    ids: str | None = None,
    vector: str | None = None,
    images: tuple[int, ...] | None = None,
    guess_target: bool | None = None,
    **given: Any,
) -> Table:
    """The table of a file, each of whose rows is a set where the data are sets.

    Parameters
    ----------
    source : str, path or DataFile
        The file, opened already or not.
    set_id : str, optional
        The column whose equal values make one set of the rows of a long table.
    min_vectors : int, default=2
        Refuse a set of fewer vectors.
    keep, drop : sequence of str
        Columns that the user has spoken about. Of sets, ``drop`` are no features; of rows,
        columns are chosen later.
    features : sequence of str, optional
        Of a long table of sets, the columns that are features.
    vector : str, optional
        The column that holds a vector in each row; None is the only one, unless it is dropped.
    images : tuple of int, optional
        The shape of rows that are images or tensors; pictures of a folder are resized to it.
    time, ids, guess_target
        For :func:`nearfar.datasets.read_table`; sets have none of them.
    given
        ``target``, ``labels``, ``groups`` and ``need_target`` of both readers.
    """
    file = open_data_file(source)
    if noun_of_file(file, set_id) == "set":
        refuse_for_sets(id=ids, images=images)
        return read_sets(
            file,
            by=set_id,
            drop=tuple(drop),
            features=features,
            vector=vector,
            min_vectors=min_vectors,
            **given,
        )
    given |= {"time": time, "ids": ids, "guess_target": guess_target}
    table = read_rows(file, drop=drop, vector=vector, images=images, **given)
    if table.tensor_shape is not None:
        return table
    check_not_sets(table, [*keep, *drop])
    return table


def read_rows(
    source: str | os.PathLike[str] | DataFile,
    *,
    drop: Sequence[str] = (),
    vector: str | None = None,
    images: tuple[int, ...] | None = None,
    **given: Any,
) -> Table:
    """:func:`nearfar.datasets.read_table`; a column of vectors that is dropped is not taken.

    Rows of a shape are an array: what is dropped of them is gone.
    """
    if vector in drop:
        raise ValueError(f"--vector {vector} and --drop {vector} say opposite things.")
    file = open_data_file(source)
    try:
        if file.has_images or not drop:
            return read_table(file, vector=vector, image_shape=images, **given)
    except ValueError as error:
        raise ValueError(_of_images(str(error))) from error
    table = read_table(file, vector=vector, **given)
    if vector is None and table.vector in drop:
        table = read_table(file, vector=False, **given)
    if images is not None:
        set_tensor_shape(table, images, drop)
        table.source = None  # more than a call
    return table


def _of_images(text: str) -> str:
    """What is wrong with pictures in the words of the command line.

    >>> _of_images("Give shape=(112, 92) to resize all.")
    'Give --images 112x92 to resize all.'
    """
    found = re.sub(r"shape=\((\d+), (\d+)\)", r"--images \1x\2", text)
    found = found.replace("load_images: shape", "--images").replace("another shape", "another size")
    return found.replace("a smaller shape, such as ", "a smaller size, such as ")


def left_to_drop(table: Table, drop: Sequence[Any]) -> list[Any]:
    """The columns to drop that were not left out while the table was read."""
    return [name for name in drop if name not in table.dropped]


def read_judged_pairs(path: Any, table: Table, conflicts: Any = "raise") -> Pairs:
    """The pairs of a file, of rows of a table, by its ids if it has such."""
    with _of_option(table):
        return read_pairs(path, ids=table.ids, n_samples=len(table.X), conflicts=conflicts)


def read_pairs_to_judge(path: Any, table: Table) -> tuple[Any, Any]:
    """The rows of each pair of a file in its order, and what it says of them, if it does."""
    with _of_option(table):
        return read_unjudged_pairs(path, ids=table.ids, n_samples=len(table.X))


@contextmanager
def _of_option(table: Table) -> Iterator[None]:
    """Errors of a file of pairs in the words of the command line."""
    try:
        yield
    except (ValueError, FileNotFoundError) as error:
        text = re.sub(r"n_samples=(\d+), and", rf"{table.name} has \1 rows, and", str(error))
        text = text.replace("pass ids.", f"name the ID column of {table.name} with --id COL.")
        text = text.replace('conflicts="drop"', "--conflicts drop").replace('"keep"', "keep")
        if "no row has the ID" in text:
            text += f" IDs are those of '{table.id_name}'. Without --id, rows are numbered from 0."
        raise ValueError(f"--pairs: {text}") from error


def refuse_for_sets(**options: Any) -> None:
    """Refuse options, by name, that say nothing about sets."""
    for name, value in options.items():
        if value:
            raise ValueError(f"--{name} is for rows of a table, and the data are sets of vectors.")
