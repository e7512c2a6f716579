"""Columns each cell of which is a vector: lists in Parquet and in frames, brackets in text.

One such column is what a table of embeddings consists of; the others say something about it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.parquet_files import is_list_of_numbers
from nearfar.extras import require
from nearfar.words import count, did_you_mean, listed

#: Cells of a column that are looked at to say whether it holds vectors.
_LOOKED_AT = 100
_BRACKETS = re.compile(r"\s*\[[^\[\]]*\]\s*")


def vector_columns(frame: Any) -> list[str]:
    """Names of the columns of a frame that hold lists of numbers, or such as text in brackets."""
    return [
        str(name)
        for i, name in enumerate(frame.columns)
        if frame.dtypes.iloc[i].kind == "O" and are_vectors(frame.iloc[:, i])
    ]


def choose_vectors(
    columns: dict[str, Any], others: Sequence[str], asked: str | None, where: str
) -> str | None:
    """Which column is the vectors: the one asked for, or the only one; None if there is none.

    Parameters
    ----------
    columns : dict
        Columns of lists of numbers, of Arrow or of a frame.
    others : sequence of str
        Names of the other columns.
    asked : str or None
        A name.
    where : str
        What to call the table.
    """
    if asked is not None:
        if asked in columns:
            return asked
        if asked in others:
            raise ValueError(
                f"--vector {asked}: that column of {where} holds no lists of numbers."
                + (f" Such are {listed(columns)}." if columns else "")
            )
        every = [*others, *columns]
        raise ValueError(
            f"--vector {asked}: {where} has no such column.{did_you_mean(asked, every)} "
            f"Its columns are {listed(every)}."
        )
    # Lists of unequal lengths (of tokens, say) are no vectors.
    alike = [name for name, column in columns.items() if has_one_length(column)]
    if len(alike) > 1:
        raise ValueError(
            f"Which column of {where} holds the vectors? Several hold lists of numbers: "
            f"{listed(alike)}. Name one with --vector."
        )
    return alike[0] if alike else None


def has_one_length(column: Any) -> bool:
    """Whether most lists of a column are of one length: vectors, but for what is broken."""
    return _commonest(_lengths(column))[1] > 0.5


def as_vectors(column: Any, name: str, where: str) -> NDArray[Any]:
    """The vectors of a column, one a row: float16 and float32 as they are, else float64.

    Parameters
    ----------
    column : Series or ChunkedArray
        Lists of numbers, or text such as "[0.1, 0.2]".
    name, where : str
        Of the column and of its table, for errors.

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
            f"{where}: column '{name}' has no vector in {count(int(missing.sum()), 'row')} (first: "
            f"row {row}); leave such rows out."
        )
    usual = _commonest(lengths)[0]
    if np.any(lengths != usual):
        row = int(np.argmax(lengths != usual))
        raise ValueError(
            f"{where}: the vectors in column '{name}' differ in length: row {row} has "
            f"{count(int(lengths[row]), 'number')}, most have {usual:,}."
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
            f"{where}: the vector in column '{name}', row {row}, is not of numbers: {error}."
        ) from error
    return found


def vector_names(name: str, n_features: int) -> list[str]:
    """Names of the features of a column of vectors.

    >>> vector_names("v", 2)
    ['v 0', 'v 1']
    """
    return [f"{name} {i}" for i in range(n_features)]


def say_vectors(name: str, n_features: int, *, guessed: bool, others: Sequence[str]) -> str:
    """Which column the vectors are of, and which are not used.

    >>> say_vectors("v", 3, guessed=True, others=["text"])
    "Vectors: column 'v', 3 numbers a row, the only column of lists; 'text' is not used."
    """
    only = ", the only column of lists" if guessed else ""
    verb = "is" if len(others) == 1 else "are"
    rest = f"; {listed(others, 8)} {verb} not used" if others else ""
    return f"Vectors: column '{name}', {n_features:,} numbers a row{only}{rest}."


def arrow_vectors(table: Any) -> dict[str, Any]:
    """The columns of an Arrow table that hold lists of numbers."""
    return {one.name: table[one.name] for one in table.schema if is_list_of_numbers(one.type)}


def are_vectors(column: Any) -> bool:
    """Whether the first cells of a column are lists of numbers, or such as text in brackets."""
    cells = column.dropna().iloc[:_LOOKED_AT].tolist()
    if not cells:
        return False
    if isinstance(cells[0], str):
        # "..." is what NumPy writes of a long vector; that it cannot be read is said later.
        bracketed = all(isinstance(cell, str) and _BRACKETS.fullmatch(cell) for cell in cells)
        first = cells[0].replace("...", " ")
        return bracketed and len(_parsed(first)) == max(1, _length(first))
    return all(isinstance(cell, list | tuple | np.ndarray) for cell in cells) and all(
        array.ndim == 1 and array.dtype.kind in "iuf" for array in map(_as_array, cells)
    )


def _as_array(cell: Any) -> NDArray[Any]:
    try:
        return np.asarray(cell)
    except ValueError:  # lists of unequal lengths inside
        return np.array(None, dtype=object)


def _parsed(cell: str) -> NDArray[np.float64]:
    """The numbers in brackets, up to what is none."""
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return np.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what it could not read
        try:
            return np.fromstring(text[1:-1].replace(",", " "), sep=" ")
        except ValueError:
            return np.empty(0)


def _parsed_at_once(cells: NDArray[Any]) -> NDArray[np.float64]:
    """All numbers of some cells; fewer if something else is among them."""
    arrow, compute = require("pyarrow", "app"), require("pyarrow.compute", "app")
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
    """Numbers in each cell; -1 where there is no list."""
    if hasattr(column, "chunks"):
        compute = require("pyarrow.compute", "app")
        # Of lists of one fixed size some versions say nothing.
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
    """The commonest length, and its share of the rows that have a list."""
    present = lengths[lengths >= 0]
    if not len(present):
        return 0, 0.0
    values, counts = np.unique(present, return_counts=True)
    best = int(counts.argmax())
    return int(values[best]), float(counts[best] / len(present))


def _of_arrow(column: Any, size: int) -> NDArray[Any]:
    arrow = require("pyarrow", "app")
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
            hint = " It was cut short when it was written: save the vectors as Parquet." * cut
            raise ValueError(
                f"{where}: column '{name}' has no vector of numbers in row {row}: "
                f"{cell[:40]!r}.{hint}"
            )
        found[row] = numbers
    return found
