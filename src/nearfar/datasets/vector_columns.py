"""Columns with one vector per cell: lists in Parquet and DataFrames, bracketed numbers in text.

A table of embeddings usually has one such column, and other columns that describe its rows.
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
_N_EXAMINED = 100
_BRACKETS = re.compile(r"\s*\[[^\[\]]*\]\s*")


def find_vector_columns(frame: Any) -> list[str]:
    """Return the names of columns that contain lists of numbers, or text such as "[1, 2]"."""
    return [
        str(name)
        for i, name in enumerate(frame.columns)
        if frame.dtypes.iloc[i].kind == "O" and is_vector_column(frame.iloc[:, i])
    ]


def select_vector_column(
    columns: dict[str, Any], other_names: Sequence[str], requested: str | None, source: str
) -> str | None:
    """Return the column with the vectors: the requested column, the only candidate, or None.

    Parameters
    ----------
    columns : dict
        Names and values of columns with lists of numbers, from an Arrow table or a DataFrame.
    other_names : sequence of str
        Names of the other columns.
    requested : str or None
        Name of the column that the user selected.
    source : str
        Name of the table in error messages.
    """
    if requested is not None:
        if requested in columns:
            return requested
        if requested in other_names:
            raise ValueError(
                f"--vector {requested}: this column of {source} does not contain lists of numbers."
                + (f" These columns do: {join_names(columns)}." if columns else "")
            )
        all_names = [*other_names, *columns]
        raise ValueError(
            f"--vector {requested}: {source} has no such "
            f"column.{suggest_name(requested, all_names)} Its columns are {join_names(all_names)}."
        )
    # Columns whose lists differ in length, such as lists of tokens, are not vectors.
    candidates = [name for name, column in columns.items() if has_common_length(column)]
    if len(candidates) > 1:
        raise ValueError(
            f"{source} has several columns with lists of numbers: {join_names(candidates)}. Use "
            "--vector to name the column that contains the vectors."
        )
    return candidates[0] if candidates else None


def has_common_length(column: Any) -> bool:
    """Return True if more than half of the lists in a column have the same length.

    Lists of other lengths are then considered errors in a column of vectors.
    """
    return _find_common_length(_compute_lengths(column))[1] > 0.5


def parse_vectors(column: Any, name: str, source: str) -> NDArray[Any]:
    """Convert a column of vectors to a 2-D array. The types float16 and float32 are kept.

    Parameters
    ----------
    column : Series or ChunkedArray
        Lists of numbers, or text such as "[0.1, 0.2]".
    name, source : str
        Names of the column and of its table in error messages.

    Examples
    --------
    >>> import pandas as pd
    >>> parse_vectors(pd.Series(["[1, 2.5]", "[3 4]"]), "v", "a.csv").tolist()
    [[1.0, 2.5], [3.0, 4.0]]
    """
    lengths = _compute_lengths(column)
    missing = lengths < 0
    if missing.any():
        row = int(np.argmax(missing))
        raise ValueError(
            f"{source}: column '{name}' has no vector in {format_count(int(missing.sum()), 'row')} "
            f"(first: row {row}). Remove these rows."
        )
    length = _find_common_length(lengths)[0]
    if np.any(lengths != length):
        row = int(np.argmax(lengths != length))
        raise ValueError(
            f"{source}: the vectors in column '{name}' differ in length: row {row} has "
            f"{format_count(int(lengths[row]), 'number')}, most have {length:,}."
        )
    if length == 0:
        raise ValueError(f"{source}: the vectors in column '{name}' are empty.")
    if hasattr(column, "chunks"):
        return _convert_arrow(column, int(length))
    cells = column.to_numpy()
    if isinstance(cells[0], str):
        return _parse_text(cells, int(length), name, source)
    try:
        first = np.asarray(cells[0])
        dtype = first.dtype.type if first.dtype in (np.float16, np.float32) else np.float64
        vectors = np.empty((len(cells), int(length)), dtype)
        for row, cell in enumerate(cells):
            vectors[row] = cell
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{source}: the vector in column '{name}', row {row}, contains values that are not "
            f"numbers: {error}."
        ) from error
    return vectors


def make_vector_names(name: str, n_features: int) -> list[str]:
    """Return feature names for a column of vectors.

    >>> make_vector_names("v", 2)
    ['v 0', 'v 1']
    """
    return [f"{name} {i}" for i in range(n_features)]


def describe_vectors(name: str, n_features: int, *, is_guessed: bool, unused: Sequence[str]) -> str:
    """Return the message that names the column of the vectors and the unused columns.

    >>> describe_vectors("v", 3, is_guessed=True, unused=["text"])
    "Vectors: column 'v', 3 numbers per row, the only column of lists; 'text' is not used."
    """
    reason = ", the only column of lists" if is_guessed else ""
    verb = "is" if len(unused) == 1 else "are"
    remark = f"; {join_names(unused, 8)} {verb} not used" if unused else ""
    return f"Vectors: column '{name}', {n_features:,} numbers per row{reason}{remark}."


def find_arrow_vectors(table: Any) -> dict[str, Any]:
    """Return a dict of the columns of an Arrow table that contain lists of numbers."""
    return {
        field.name: table[field.name] for field in table.schema if is_list_of_numbers(field.type)
    }


def is_vector_column(column: Any) -> bool:
    """Return True if the first cells are lists of numbers, or text such as "[1, 2]"."""
    cells = column.dropna().iloc[:_N_EXAMINED].tolist()
    if not cells:
        return False
    if isinstance(cells[0], str):
        # NumPy abbreviates long vectors with "...". A cell with dots is accepted here, so that
        # `parse_vectors` can report that it was truncated.
        is_bracketed = all(isinstance(cell, str) and _BRACKETS.fullmatch(cell) for cell in cells)
        first = cells[0].replace("...", " ")
        return is_bracketed and len(_parse_vector(first)) == max(1, _count_values(first))
    return all(isinstance(cell, list | tuple | np.ndarray) for cell in cells) and all(
        array.ndim == 1 and array.dtype.kind in "iuf" for array in map(_convert_to_array, cells)
    )


def _convert_to_array(cell: Any) -> NDArray[Any]:
    try:
        return np.asarray(cell)
    except ValueError:  # The cell contains nested lists of different lengths.
        return np.array(None, dtype=object)


def _parse_vector(cell: str) -> NDArray[np.float64]:
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


def _parse_block(cells: NDArray[Any]) -> NDArray[np.float64]:
    """Return the numbers of all cells, or an empty array if a cell cannot be parsed."""
    arrow, compute = import_optional("pyarrow", "app"), import_optional("pyarrow.compute", "app")
    texts = [cell.strip() for cell in cells]
    if not all(text.startswith("[") and text.endswith("]") for text in texts):
        return np.empty(0)
    joined = " ".join(text[1:-1] for text in texts).replace(",", " ").strip()
    try:
        split = compute.ascii_split_whitespace(arrow.array([joined], arrow.large_string()))
        return np.asarray(split.flatten().cast(arrow.float64()).to_numpy(zero_copy_only=False))
    except arrow.ArrowException:
        return np.empty(0)


def _compute_lengths(column: Any) -> NDArray[np.int64]:
    """Return the number of values in each cell. Cells without a list get -1."""
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
    return np.fromiter((_count_values(cell) for cell in column.tolist()), np.int64, len(column))


def _count_values(cell: Any) -> int:
    if isinstance(cell, str):
        inside = cell.strip()[1:-1]
        return inside.count(",") + 1 if "," in inside else len(inside.split())
    return len(cell) if hasattr(cell, "__len__") else -1


def _find_common_length(lengths: NDArray[np.int64]) -> tuple[int, float]:
    """Return the most common length of the lists, and the fraction of lists with this length."""
    present = lengths[lengths >= 0]
    if not len(present):
        return 0, 0.0
    values, counts = np.unique(present, return_counts=True)
    most_common = int(counts.argmax())
    return int(values[most_common]), float(counts[most_common] / len(present))


def _convert_arrow(column: Any, size: int) -> NDArray[Any]:
    arrow = import_optional("pyarrow", "app")
    item_type = column.type.value_type
    dtype: Any = np.float64
    if arrow.types.is_float16(item_type) or arrow.types.is_float32(item_type):
        dtype = np.float16 if arrow.types.is_float16(item_type) else np.float32
    vectors = np.empty((len(column), size), dtype)
    row = 0
    for chunk in column.chunks:
        values = chunk.flatten().to_numpy(zero_copy_only=False)
        vectors[row : row + len(chunk)] = values.reshape(len(chunk), size)
        row += len(chunk)
    return vectors


def _parse_text(cells: NDArray[Any], size: int, name: str, source: str) -> NDArray[np.float64]:
    vectors = np.empty((len(cells), size))
    for start in range(0, len(cells), 256):
        block = vectors[start : start + 256]
        parsed = _parse_block(cells[start : start + 256])
        if len(parsed) != block.size:
            break
        block[:] = parsed.reshape(block.shape)
    else:
        return vectors
    for row, cell in enumerate(cells):
        numbers = _parse_vector(cell)
        if len(numbers) != size:
            is_truncated = "..." in cell
            hint = (
                " The vector was truncated when the file was written. Save the vectors as Parquet."
                * is_truncated
            )
            raise ValueError(
                f"{source}: column '{name}' does not contain a vector of numbers in row {row}: "
                f"{cell[:40]!r}.{hint}"
            )
        vectors[row] = numbers
    return vectors
