"""Columns with one vector per cell: lists in Parquet and DataFrames, bracketed numbers in text.

A table of embeddings usually has one such column with the vectors, and others that describe them.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.parquet_files import is_list_of_numbers
from nearfar.extras import import_optional
from nearfar.words import format_count, join_names, suggest_name

#: Number of cells that are examined to decide whether a column contains vectors.
_LOOKED_AT = 100
_BRACKETS = re.compile(r"\s*\[[^\[\]]*\]\s*")


def vector_columns(frame: Any) -> list[str]:
    """Return the names of DataFrame columns with lists of numbers, or such lists as text."""
    return [
        str(name)
        for i, name in enumerate(frame.columns)
        if frame.dtypes.iloc[i].kind == "O" and are_vectors(frame.iloc[:, i])
    ]


def choose_vectors(
    columns: dict[str, Any], others: Sequence[str], asked: str | None, where: str
) -> str | None:
    """Return the column with the vectors: the named one, or the only candidate, or None.

    Parameters
    ----------
    columns : dict
        Columns of lists of numbers by name, from an Arrow table or a DataFrame.
    others : sequence of str
        Names of the other columns.
    asked : str or None
        Name of the column that the user chose.
    where : str
        Name of the table in error messages.
    """
    if asked is not None:
        if asked in columns:
            return asked
        if asked in others:
            raise ValueError(
                f"--vector {asked}: this column of {where} does not contain lists of numbers."
                + (f" These columns do: {join_names(columns)}." if columns else "")
            )
        every = [*others, *columns]
        raise ValueError(
            f"--vector {asked}: {where} has no such column.{suggest_name(asked, every)} "
            f"Its columns are {join_names(every)}."
        )
    # Lists of different lengths, such as tokens, are not vectors.
    alike = [name for name, column in columns.items() if has_one_length(column)]
    if len(alike) > 1:
        raise ValueError(
            f"{where} has several columns with lists of numbers: {join_names(alike)}. Name the "
            "column with the vectors with --vector."
        )
    return alike[0] if alike else None


def has_one_length(column: Any) -> bool:
    """Return True if more than half of the lists in a column have the same length.

    Lists of other lengths are then considered errors in a column of vectors.
    """
    return _commonest(_lengths(column))[1] > 0.5


def as_vectors(column: Any, name: str, where: str) -> NDArray[Any]:
    """Return the vectors of a column as a 2-D array. float16 and float32 keep their type.

    Parameters
    ----------
    column : Series or ChunkedArray
        Lists of numbers, or text such as "[0.1, 0.2]".
    name, where : str
        Names of the column and of its table in error messages.

    Examples
    --------
    >>> import pandas as pd
    >>> as_vectors(pd.Series(["[1, 2.5]", "[3 4]"]), "v", "a.csv").tolist()
    [[1.0, 2.5], [3.0, 4.0]]
    """
    lengths = _lengths(column)
    missing = lengths < 0
    if missing.any():
        row = int(np.argmax(missing))
        raise ValueError(
            f"{where}: column '{name}' has no vector in {format_count(int(missing.sum()), 'row')} "
            f"(first: row {row}). Remove these rows."
        )
    usual = _commonest(lengths)[0]
    if np.any(lengths != usual):
        row = int(np.argmax(lengths != usual))
        raise ValueError(
            f"{where}: the vectors in column '{name}' differ in length: row {row} has "
            f"{format_count(int(lengths[row]), 'number')}, most have {usual:,}."
        )
    if usual == 0:
        raise ValueError(f"{where}: the vectors in column '{name}' are empty.")
    if hasattr(column, "chunks"):
        return _of_arrow(column, int(usual))
    cells = column.to_numpy()
    if isinstance(cells[0], str):
        return _of_text(cells, int(usual), name, where)
    try:
        first = np.asarray(cells[0])
        kept = first.dtype.type if first.dtype in (np.float16, np.float32) else np.float64
        found = np.empty((len(cells), int(usual)), kept)
        for row, cell in enumerate(cells):
            found[row] = cell
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: the vector in column '{name}', row {row}, contains values that are not "
            f"numbers: {error}."
        ) from error
    return found


def vector_names(name: str, n_features: int) -> list[str]:
    """Return feature names for a column of vectors.

    >>> vector_names("v", 2)
    ['v 0', 'v 1']
    """
    return [f"{name} {i}" for i in range(n_features)]


def say_vectors(name: str, n_features: int, *, guessed: bool, others: Sequence[str]) -> str:
    """Return the message that names the column of the vectors and the unused columns.

    >>> say_vectors("v", 3, guessed=True, others=["text"])
    "Vectors: column 'v', 3 numbers per row, the only column of lists; 'text' is not used."
    """
    only = ", the only column of lists" if guessed else ""
    verb = "is" if len(others) == 1 else "are"
    rest = f"; {join_names(others, 8)} {verb} not used" if others else ""
    return f"Vectors: column '{name}', {n_features:,} numbers per row{only}{rest}."


def arrow_vectors(table: Any) -> dict[str, Any]:
    """Return the columns of an Arrow table that contain lists of numbers, by name."""
    return {one.name: table[one.name] for one in table.schema if is_list_of_numbers(one.type)}


def are_vectors(column: Any) -> bool:
    """Return True if the first cells are lists of numbers, or such lists as bracketed text."""
    cells = column.dropna().iloc[:_LOOKED_AT].tolist()
    if not cells:
        return False
    if isinstance(cells[0], str):
        # NumPy abbreviates long vectors with "...". Such a cell counts as a vector here, so that
        # `as_vectors` can report that it was truncated.
        bracketed = all(isinstance(cell, str) and _BRACKETS.fullmatch(cell) for cell in cells)
        first = cells[0].replace("...", " ")
        return bracketed and len(_parsed(first)) == max(1, _length(first))
    return all(isinstance(cell, list | tuple | np.ndarray) for cell in cells) and all(
        array.ndim == 1 and array.dtype.kind in "iuf" for array in map(_as_array, cells)
    )


def _as_array(cell: Any) -> NDArray[Any]:
    try:
        return np.asarray(cell)
    except ValueError:  # nested lists of different lengths
        return np.array(None, dtype=object)


def _parsed(cell: str) -> NDArray[np.float64]:
    """Return the numbers in brackets, up to the first text that is not a number."""
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return np.empty(0)
    with warnings.catch_warnings():
        # NumPy warns about text that it cannot parse. The caller checks the length instead.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return np.fromstring(text[1:-1].replace(",", " "), sep=" ")
        except ValueError:
            return np.empty(0)


def _parsed_at_once(cells: NDArray[Any]) -> NDArray[np.float64]:
    """Return the numbers of all cells, or an empty array if one of them cannot be parsed."""
    arrow, compute = import_optional("pyarrow", "app"), import_optional("pyarrow.compute", "app")
    texts = [cell.strip() for cell in cells]
    if not all(text.startswith("[") and text.endswith("]") for text in texts):
        return np.empty(0)
    words = " ".join(text[1:-1] for text in texts).replace(",", " ").strip()
    try:
        split = compute.ascii_split_whitespace(arrow.array([words], arrow.large_string()))
        return np.asarray(split.flatten().cast(arrow.float64()).to_numpy(zero_copy_only=False))
    except arrow.ArrowException:
        return np.empty(0)


def _lengths(column: Any) -> NDArray[np.int64]:
    """Return the number of values in each cell, and -1 for cells without a list."""
    if hasattr(column, "chunks"):
        compute = import_optional("pyarrow.compute", "app")
        # Some versions of pyarrow do not support list_value_length for lists of fixed size.
        if hasattr(column.type, "list_size"):
            size = np.full(len(column), column.type.list_size, np.int64)
            size[column.is_null().to_numpy()] = -1
            return size
        return np.asarray(
            compute.list_value_length(column).fill_null(-1).to_numpy(), dtype=np.int64
        )
    return np.fromiter((_length(cell) for cell in column.tolist()), np.int64, len(column))


def _length(cell: Any) -> int:
    if isinstance(cell, str):
        inside = cell.strip()[1:-1]
        return inside.count(",") + 1 if "," in inside else len(inside.split())
    return len(cell) if hasattr(cell, "__len__") else -1


def _commonest(lengths: NDArray[np.int64]) -> tuple[int, float]:
    """Return the most common length, and the fraction of rows with a list that have it."""
    present = lengths[lengths >= 0]
    if not len(present):
        return 0, 0.0
    values, counts = np.unique(present, return_counts=True)
    best = int(counts.argmax())
    return int(values[best]), float(counts[best] / len(present))


def _of_arrow(column: Any, size: int) -> NDArray[Any]:
    arrow = import_optional("pyarrow", "app")
    of = column.type.value_type
    kept: Any = np.float64
    if arrow.types.is_float16(of) or arrow.types.is_float32(of):
        kept = np.float16 if arrow.types.is_float16(of) else np.float32
    found = np.empty((len(column), size), kept)
    row = 0
    for chunk in column.chunks:
        values = chunk.flatten().to_numpy(zero_copy_only=False)
        found[row : row + len(chunk)] = values.reshape(len(chunk), size)
        row += len(chunk)
    return found


def _of_text(cells: NDArray[Any], size: int, name: str, where: str) -> NDArray[np.float64]:
    found = np.empty((len(cells), size))
    for start in range(0, len(cells), 256):
        block = found[start : start + 256]
        quick = _parsed_at_once(cells[start : start + 256])
        if len(quick) != block.size:
            break
        block[:] = quick.reshape(block.shape)
    else:
        return found
    for row, cell in enumerate(cells):
        numbers = _parsed(cell)
        if len(numbers) != size:
            cut = "..." in cell
            hint = " It was truncated when it was written. Save the vectors as Parquet." * cut
            raise ValueError(
                f"{where}: column '{name}' does not contain a vector of numbers in row {row}: "
                f"{cell[:40]!r}.{hint}"
            )
        found[row] = numbers
    return found
