"""Readers for files of judged pairs and of comparisons between pairs."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Indices
from nearfar.datasets.delimited import decode, head_of, separator_of
from nearfar.datasets.parquet_files import is_parquet, read_arrow
from nearfar.datasets.table import is_missing, missing_among, tidy_labels
from nearfar.notices import warn
from nearfar.parameters import check_parameter, integer, none, one_of
from nearfar.summaries.index_checks import find_shared_row
from nearfar.summaries.supervision import Pairs, Quadruplets
from nearfar.summaries.supervision.pairs import Conflicts

_VERDICTS = {
    **dict.fromkeys(("1", "+1", "true", "same"), True),
    **dict.fromkeys(("0", "-1", "false", "different"), False),
}


def read_pairs(
    path: str | os.PathLike[str],
    *,
    ids: ArrayLike | None = None,
    n_samples: int | None = None,
    conflicts: Conflicts = "raise",
) -> Pairs:
    """Read similar and dissimilar pairs of rows from a file.

    Parameters
    ----------
    path : path-like
        A CSV, TSV or Parquet file with the columns ``left``, ``right`` and ``same``. If these
        names are missing, the first three columns are used. See Notes.
    ids : array-like of shape (n_samples,), optional
        Unique ID of each row of X. If given, the file refers to rows by ID, otherwise by row
        number, counted from 0.
    n_samples : int, optional
        Number of rows of X. None means the number of IDs, or the largest row number plus one.
    conflicts : {"raise", "drop", "keep"}, default="raise"
        How to handle a pair that is both similar and dissimilar; see :class:`nearfar.Pairs`.

    Returns
    -------
    Pairs
        The similar and the dissimilar pairs, each in the order of the file.

    Raises
    ------
    ValueError
        If an ID is unknown, a line cannot be read, a row is paired with itself, or a pair is both
        similar and dissimilar. The message names the file, the line and the value.

    Notes
    -----
    ``left`` and ``right`` contain the two rows. ``same`` contains 1, true or same for a similar
    pair, and 0, -1, false or different for a dissimilar pair. A file must not use both 0 and -1.
    CSV and TSV files may be separated by commas, semicolons or tabs, and need no header. Other
    columns and blank lines are ignored.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from nearfar.datasets import read_pairs
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "judged.csv"
    >>> _ = file.write_text("left,right,same\\nann,bob,true\\nann,eve,false\\n")
    >>> read_pairs(file, ids=["ann", "bob", "eve"])
    Pairs(1 similar, 1 dissimilar, n_samples=3)
    """
    check_parameter("read_pairs", "conflicts", conflicts, [one_of("raise", "drop", "keep")])
    rows = _Rows(ids, n_samples, "read_pairs")
    judged = _Judgements(Path(path), ("left", "right", "same"), rows)
    alike = _verdicts(judged)
    pairs = judged.numbers(2)
    judged.refuse_twins(pairs)
    if conflicts == "raise":
        unordered = np.sort(pairs, axis=1)
        clash = find_shared_row(unordered[alike], unordered[~alike])
        if clash is not None:
            same, different = np.flatnonzero(alike)[clash[0]], np.flatnonzero(~alike)[clash[1]]
            left, right, _ = judged.cells[same]
            first, last = sorted((int(same), int(different)))
            said = "the same" if last == same else "different"
            judged.refuse(
                last,
                f"'{left}' and '{right}' are marked as {said}, but {judged.place(first)} says the "
                'opposite. Pass conflicts="drop" to drop such pairs, or "keep" to keep both.',
            )
    return Pairs(pairs[alike], pairs[~alike], n_samples=rows.count_with(pairs), conflicts=conflicts)


def read_unjudged_pairs(
    path: str | os.PathLike[str], *, ids: ArrayLike | None = None, n_samples: int | None = None
) -> tuple[Indices, np.ndarray[Any, np.dtype[np.bool_]] | None]:
    """Read pairs of rows for which a decision is wanted, in the order of the file.

    Parameters
    ----------
    path, ids, n_samples
        As for :func:`read_pairs`, but the third column is optional, and a row may be paired with
        itself.

    Returns
    -------
    rows : ndarray of shape (n_pairs, 2)
        Row numbers of each pair.
    same : ndarray of bool of shape (n_pairs,) or None
        The third column, if it has a valid value for every pair.
    """
    rows = _Rows(ids, n_samples, "read_unjudged_pairs")
    try:
        judged = _Judgements(Path(path), ("left", "right", "same"), rows)
    except ValueError:  # too few columns; any other error is raised again below
        judged = None
    if judged is not None and all(_verdict(cells[2]) is not None for cells in judged.cells):
        return judged.numbers(2), _verdicts(judged)
    return _Judgements(Path(path), ("left", "right"), rows).numbers(2), None


def read_quadruplets(
    path: str | os.PathLike[str],
    *,
    ids: ArrayLike | None = None,
    n_samples: int | None = None,
) -> Quadruplets:
    """Read comparisons of rows from a file: a is nearer to b than c is to d.

    Parameters
    ----------
    path : path-like
        A CSV, TSV or Parquet file as for :func:`read_pairs`, with the columns ``a``, ``b``, ``c``
        and ``d``. If these names are missing, the first four columns are used.
    ids : array-like of shape (n_samples,), optional
        Unique ID of each row of X. If given, the file refers to rows by ID, otherwise by row
        number, counted from 0.
    n_samples : int, optional
        Number of rows of X. None means the number of IDs, or the largest row number plus one.

    Returns
    -------
    Quadruplets
        The comparisons in the order of the file.

    Raises
    ------
    ValueError
        If an ID is unknown, a line cannot be read, a row is paired with itself, a pair is compared
        with itself, or the file contains a comparison and its opposite. The message names the
        file, the line and the value.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from nearfar.datasets import read_quadruplets
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "compared.csv"
    >>> _ = file.write_text("0;1;2;3\\n0;2;0;3\\n")
    >>> read_quadruplets(file).indices.tolist()
    [[0, 1, 2, 3], [0, 2, 0, 3]]
    """
    rows = _Rows(ids, n_samples, "read_quadruplets")
    judged = _Judgements(Path(path), ("a", "b", "c", "d"), rows)
    numbers = judged.numbers(4)
    judged.refuse_twins(numbers[:, :2])
    judged.refuse_twins(numbers[:, 2:], start=2)
    near, far = np.sort(numbers[:, :2], axis=1), np.sort(numbers[:, 2:], axis=1)
    itself = (near == far).all(axis=1)
    if itself.any():
        row = int(np.argmax(itself))
        a, b, _, _ = judged.cells[row]
        judged.refuse(row, f"the pair of '{a}' and '{b}' is compared with itself.")
    clash = find_shared_row(np.hstack([near, far]), np.hstack([far, near]))
    if clash is not None:
        a, b, c, d = judged.cells[max(clash)]
        judged.refuse(
            max(clash),
            f"'{a}' and '{b}' are marked as nearer than '{c}' and '{d}', but "
            f"{judged.place(min(clash))} says the opposite. Remove one of the two.",
        )
    return Quadruplets(numbers, n_samples=rows.count_with(numbers))


# ---------------------------------------------------------------------- row numbers and IDs


class _Rows:
    """Lookup of row numbers by the text of a cell: an ID, or the row number itself."""

    def __init__(self, ids: Any, n_samples: int | None, caller: str) -> None:
        check_parameter(caller, "n_samples", n_samples, [integer(0), none])
        self.by_id: dict[str, int] | None = None
        self.n_samples = n_samples
        if ids is None:
            return
        given = np.asarray(ids)
        if given.ndim != 1:
            raise ValueError(f"ids should have shape (n_samples,); got shape {given.shape}.")
        if missing_among(given).any():
            row = int(np.argmax(missing_among(given)))
            raise ValueError(f"ids is missing in row {row}. Every row needs a unique ID.")
        if n_samples not in (None, len(given)):
            raise ValueError(f"n_samples={n_samples}, but ids has {len(given)} values.")
        self.n_samples = len(given)
        # A number can be written in several ways (3, 3.0), so numeric IDs are also looked up by
        # value.
        self.numeric = tidy_labels(given).dtype.kind in "iuf"
        self.by_id = {}
        for row, value in enumerate(tidy_labels(given).tolist()):
            first = self.by_id.setdefault(_text(value), row)
            if first != row:
                raise ValueError(
                    f"ids must be unique, but rows {first} and {row} both have {value!r}."
                )

    def find(self, cell: str) -> int | None:
        """Return the row number, or None if no row matches."""
        if self.by_id is None:
            number = _whole(cell)
            if number is None or number < 0:
                return None
            return number if self.n_samples is None or number < self.n_samples else None
        found = self.by_id.get(cell)
        if found is None and self.numeric and _whole(cell) is not None:
            found = self.by_id.get(str(_whole(cell)))
        return found

    def problem(self, cell: str) -> str:
        """Return the error message for a cell that matches no row."""
        if not cell:
            return f"the {'number' if self.by_id is None else 'ID'} of a row is missing."
        if self.by_id is not None:
            return f"no row has the ID '{cell}'."
        if _whole(cell) is None:
            return f"'{cell}' is not a row number. If the file refers to rows by ID, pass ids."
        if self.n_samples is None:
            return f"'{cell}' is not a row number. Rows are numbered from 0."
        return f"row {cell} does not exist: n_samples={self.n_samples}, and rows start at 0."

    def count_with(self, numbers: Indices) -> int:
        """Return the number of rows, at least the largest row number plus one."""
        if self.n_samples is not None:
            return self.n_samples
        return int(numbers.max(initial=-1)) + 1


def _whole(cell: str) -> int | None:
    """Return the cell as an int, also if it is written as 3.0. None if it is not an integer."""
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        number = float(cell)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _is_whole(cell: str) -> bool:
    return _whole(cell) is not None


def _text(value: Any) -> str:
    """Return the value as it would be written to a text file."""
    if is_missing(value):
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


# ---------------------------------------------------------------------- verdicts


def _verdict(cell: str) -> bool | None:
    known = _VERDICTS.get(cell.lower())
    if known is None and _whole(cell) is not None:
        known = _VERDICTS.get(str(_whole(cell)))
    return known


def _verdicts(judged: _Judgements) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a boolean mask of the similar pairs."""
    alike = np.empty(len(judged.cells), bool)
    zero = minus = None
    for row, (_, _, cell) in enumerate(judged.cells):
        known = _verdict(cell)
        if known is None:
            judged.refuse(
                row,
                f"{f'{cell!r} does' if cell else 'an empty cell does'} not say whether the rows "
                "are the same. Use 1 or 0, 1 or -1, true or false, same or different.",
            )
        alike[row] = known
        if not known and _whole(cell) is not None:
            zero, minus = (row, minus) if _whole(cell) == 0 else (zero, row)
            if zero is not None and minus is not None:
                judged.refuse(
                    row,
                    f"'{cell}', but {judged.place(min(zero, minus))} has "
                    f"'{judged.cells[min(zero, minus)][2]}'. With both 0 and -1 in one file, it is "
                    "not clear which of them means different. Use only one of them.",
                )
    return alike


# ---------------------------------------------------------------------- lines


class _Line(NamedTuple):
    number: int
    cells: list[str]


class _Judgements:
    """The cells of the required columns, line by line. Errors name the file and the line."""

    def __init__(self, path: Path, names: tuple[str, ...], rows: _Rows) -> None:
        if not path.exists():
            raise FileNotFoundError(f"The file {path} does not exist.")
        self.path, self.rows = path, rows
        self.unit = "row" if is_parquet(path) else "line"
        header, lines = _parquet(path) if self.unit == "row" else _delimited(path)
        width, wanted = len(names), ", ".join(names)
        if header is None and self._begins_with_names(lines, names):
            header, lines = lines[0].cells, lines[1:]
        known = [name.strip().lower() for name in header or ()]
        named = all(name in known for name in names)
        columns = [known.index(name) for name in names] if named else list(range(width))
        if header is not None and len(header) < width:
            raise ValueError(
                f"{path.name} has {len(header)} column(s), {', '.join(map(repr, header))}. "
                f"Expected {width}: {wanted}."
            )
        self.lines = [line.number for line in lines]
        self.cells: list[list[str]] = []
        for row, line in enumerate(lines):
            if len(line.cells) <= max(columns):
                self.refuse(
                    row,
                    f"{len(line.cells)} cell(s), '{', '.join(line.cells)[:60]}'. Expected {width} "
                    f"({wanted}), separated by commas, semicolons or tabs.",
                )
            cells = [line.cells[column] for column in columns]
            if any("\n" in cell for cell in cells):
                self.refuse(
                    row, "a cell spans several lines. Check for an unclosed quotation mark."
                )
            self.cells.append(cells)
        if not self.cells:
            raise ValueError(f"{path.name} has a header, but no {self.unit} below it.")

    def _begins_with_names(self, lines: Sequence[_Line], names: tuple[str, ...]) -> bool:
        """Return True if the first line is a header.

        It is one if it contains the required names, or if none of its cells can be data.
        """
        first, n_rows = lines[0].cells, 4 if len(names) == 4 else 2
        found = [self.rows.find(cell) for cell in first[:n_rows]]
        if set(names) <= {cell.lower() for cell in first}:
            if None not in found:
                warn(
                    f"{self.path.name}, line {lines[0].number}: read as column names, although "
                    "some rows have these IDs."
                )
            return True
        # A number is never a column name, even if no row has it.
        if any(row is not None for row in found) or any(map(_is_whole, first[:n_rows])):
            return False
        if len(first) < len(names):
            return False
        if len(names) != 3 or self.rows.by_id is None or _verdict(first[2]) is None:
            return True
        # "same" in the third cell can be a column name or a verdict. It is a verdict if it occurs
        # again.
        others = {line.cells[2].lower() for line in lines[1:] if len(line.cells) > 2}
        return first[2].lower() not in others and bool(others)

    def place(self, row: int) -> str:
        """Return the place in the file, such as "line 3"."""
        return f"{self.unit} {self.lines[row]}"

    def refuse(self, row: int, problem: str) -> NoReturn:
        """Raise a ValueError that names the file and the line."""
        raise ValueError(f"{self.path.name}, {self.place(row)}: {problem}")

    def numbers(self, width: int) -> Indices:
        """Return the row numbers in the first `width` columns."""
        numbers = np.empty((len(self.cells), width), np.intp)
        for row, cells in enumerate(self.cells):
            for place, cell in enumerate(cells[:width]):
                found = self.rows.find(cell)
                if found is None:
                    self.refuse(row, self.rows.problem(cell))
                numbers[row, place] = found
        return numbers

    def refuse_twins(self, pairs: Indices, start: int = 0) -> None:
        """Raise if a row is paired with itself."""
        twins = pairs[:, 0] == pairs[:, 1]
        if twins.any():
            row = int(np.argmax(twins))
            self.refuse(row, f"'{self.cells[row][start]}' is paired with itself.")


def _delimited(path: Path) -> tuple[None, list[_Line]]:
    """Return the non-empty lines of a text file."""
    messages: list[str] = []
    text = decode(path, messages)
    for message in messages:
        warn(message)
    separator = separator_of(head_of(text))
    return None, list(_filled(path, text, separator))


def _filled(path: Path, text: str, separator: str) -> Iterator[_Line]:
    reader = csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True, strict=True)
    start = 1
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if any(stripped):
                yield _Line(start, stripped)
            start = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path.name}, line {start} cannot be read: {error}. Check for an unclosed quotation "
            "mark."
        ) from error


def _parquet(path: Path) -> tuple[list[str], list[_Line]]:
    """Return the column names and the non-empty rows of a Parquet file, as text."""
    table = read_arrow(path)
    columns = [column.to_pylist() for column in table.columns]
    texts = ([_text(value) for value in values] for values in zip(*columns, strict=True))
    lines = [_Line(row, cells) for row, cells in enumerate(texts) if any(cells)]
    return list(table.column_names), lines
