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
from nearfar.datasets.delimited import decode, find_separator, get_first_lines
from nearfar.datasets.parquet_files import is_parquet, read_arrow
from nearfar.datasets.table import find_missing, is_missing, tidy_labels
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
        Unique ID of each row of X. If given, the file refers to rows by ID. If not, the file refers
        to rows by number, counted from 0.
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
    rows = _RowLookup(ids, n_samples, "read_pairs")
    judgments = _JudgmentFile(Path(path), ("left", "right", "same"), rows)
    is_similar = _parse_verdicts(judgments)
    pairs = judgments.find_row_numbers(2)
    judgments.check_self_pairs(pairs)
    if conflicts == "raise":
        sorted_pairs = np.sort(pairs, axis=1)
        conflict = find_shared_row(sorted_pairs[is_similar], sorted_pairs[~is_similar])
        if conflict is not None:
            similar_row = np.flatnonzero(is_similar)[conflict[0]]
            dissimilar_row = np.flatnonzero(~is_similar)[conflict[1]]
            left_id, right_id, _ = judgments.cells[similar_row]
            first, last = sorted((int(similar_row), int(dissimilar_row)))
            verdict = "the same" if last == similar_row else "different"
            judgments.fail(
                last,
                f"'{left_id}' and '{right_id}' are marked as {verdict}, but "
                f"{judgments.describe_place(first)} says the opposite. "
                'Pass conflicts="drop" to drop such pairs, or "keep" to keep both.',
            )
    return Pairs(
        pairs[is_similar], pairs[~is_similar], n_samples=rows.count_rows(pairs), conflicts=conflicts
    )


def read_unjudged_pairs(
    path: str | os.PathLike[str], *, ids: ArrayLike | None = None, n_samples: int | None = None
) -> tuple[Indices, np.ndarray[Any, np.dtype[np.bool_]] | None]:
    """Read the pairs of rows that are to be classified, in the order of the file.

    Parameters
    ----------
    path, ids, n_samples
        Same as in :func:`read_pairs`, but the third column is optional, and a row may be paired
        with itself.

    Returns
    -------
    rows : ndarray of shape (n_pairs, 2)
        Row numbers of each pair.
    same : ndarray of bool of shape (n_pairs,) or None
        Values of the third column, or None if a value is missing or invalid.
    """
    rows = _RowLookup(ids, n_samples, "read_unjudged_pairs")
    try:
        judgments = _JudgmentFile(Path(path), ("left", "right", "same"), rows)
    except ValueError:
        # The file may have only two columns, so it is read again below. Any other error is raised
        # again there.
        judgments = None
    if judgments is not None and all(
        _parse_verdict(cells[2]) is not None for cells in judgments.cells
    ):
        return judgments.find_row_numbers(2), _parse_verdicts(judgments)
    return _JudgmentFile(Path(path), ("left", "right"), rows).find_row_numbers(2), None


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
        Unique ID of each row of X. If given, the file refers to rows by ID. If not, the file refers
        to rows by number, counted from 0.
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
    rows = _RowLookup(ids, n_samples, "read_quadruplets")
    judgments = _JudgmentFile(Path(path), ("a", "b", "c", "d"), rows)
    numbers = judgments.find_row_numbers(4)
    judgments.check_self_pairs(numbers[:, :2])
    judgments.check_self_pairs(numbers[:, 2:], start=2)
    near, far = np.sort(numbers[:, :2], axis=1), np.sort(numbers[:, 2:], axis=1)
    is_self_comparison = (near == far).all(axis=1)
    if is_self_comparison.any():
        row = int(np.argmax(is_self_comparison))
        a, b, _, _ = judgments.cells[row]
        judgments.fail(row, f"the pair of '{a}' and '{b}' is compared with itself.")
    conflict = find_shared_row(np.hstack([near, far]), np.hstack([far, near]))
    if conflict is not None:
        a, b, c, d = judgments.cells[max(conflict)]
        judgments.fail(
            max(conflict),
            f"'{a}' and '{b}' are marked as nearer than '{c}' and '{d}', but "
            f"{judgments.describe_place(min(conflict))} says the opposite. Remove one of the two.",
        )
    return Quadruplets(numbers, n_samples=rows.count_rows(numbers))


class _RowLookup:
    """Converter from cells to row numbers. A cell contains an ID or a row number."""

    def __init__(self, ids: Any, n_samples: int | None, caller: str) -> None:
        check_parameter(caller, "n_samples", n_samples, [integer(0), none])
        self.by_id: dict[str, int] | None = None
        self.n_samples = n_samples
        if ids is None:
            return
        id_array = np.asarray(ids)
        if id_array.ndim != 1:
            raise ValueError(f"ids should have shape (n_samples,); got shape {id_array.shape}.")
        if find_missing(id_array).any():
            row = int(np.argmax(find_missing(id_array)))
            raise ValueError(f"ids is missing in row {row}. Every row needs a unique ID.")
        if n_samples not in (None, len(id_array)):
            raise ValueError(f"n_samples={n_samples}, but ids has {len(id_array)} values.")
        self.n_samples = len(id_array)
        # A number can be written in several ways (3, 3.0), so numeric IDs are also looked up by
        # value.
        self.numeric = tidy_labels(id_array).dtype.kind in "iuf"
        self.by_id = {}
        for row, value in enumerate(tidy_labels(id_array).tolist()):
            first = self.by_id.setdefault(_format_value(value), row)
            if first != row:
                raise ValueError(
                    f"ids must be unique, but rows {first} and {row} both have {value!r}."
                )

    def find_row(self, cell: str) -> int | None:
        """Return the row number, or None if no row matches."""
        if self.by_id is None:
            number = _parse_integer(cell)
            if number is None or number < 0:
                return None
            return number if self.n_samples is None or number < self.n_samples else None
        row = self.by_id.get(cell)
        if row is None and self.numeric and _parse_integer(cell) is not None:
            row = self.by_id.get(str(_parse_integer(cell)))
        return row

    def describe_problem(self, cell: str) -> str:
        """Return an error message for a cell that does not match any row."""
        if not cell:
            return f"the {'number' if self.by_id is None else 'ID'} of a row is missing."
        if self.by_id is not None:
            return f"no row has the ID '{cell}'."
        if _parse_integer(cell) is None:
            return f"'{cell}' is not a row number. If the file refers to rows by ID, pass ids."
        if self.n_samples is None:
            return f"'{cell}' is not a row number. Rows are numbered from 0."
        return f"row {cell} does not exist: n_samples={self.n_samples}, and rows start at 0."

    def count_rows(self, numbers: Indices) -> int:
        """Return the number of rows of X. If unknown, return the largest row number plus one."""
        if self.n_samples is not None:
            return self.n_samples
        return int(numbers.max(initial=-1)) + 1


def _parse_integer(cell: str) -> int | None:
    """Return the integer in a cell, also if it is written as 3.0. Return None for other text."""
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        number = float(cell)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _is_integer(cell: str) -> bool:
    return _parse_integer(cell) is not None


def _format_value(value: Any) -> str:
    """Convert a value to text, as it would be written in a text file."""
    if is_missing(value):
        return ""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def _parse_verdict(cell: str) -> bool | None:
    is_similar = _VERDICTS.get(cell.lower())
    if is_similar is None and _parse_integer(cell) is not None:
        is_similar = _VERDICTS.get(str(_parse_integer(cell)))
    return is_similar


def _parse_verdicts(judgments: _JudgmentFile) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return a boolean mask of the similar pairs."""
    is_similar = np.empty(len(judgments.cells), bool)
    zero_row = minus_row = None
    for row, (_, _, cell) in enumerate(judgments.cells):
        verdict = _parse_verdict(cell)
        if verdict is None:
            judgments.fail(
                row,
                f"{f'{cell!r} does' if cell else 'an empty cell does'} not say whether the rows "
                "are the same. Use 1 or 0, 1 or -1, true or false, same or different.",
            )
        is_similar[row] = verdict
        if not verdict and _parse_integer(cell) is not None:
            zero_row, minus_row = (row, minus_row) if _parse_integer(cell) == 0 else (zero_row, row)
            if zero_row is not None and minus_row is not None:
                judgments.fail(
                    row,
                    f"the cell contains '{cell}', but "
                    f"{judgments.describe_place(min(zero_row, minus_row))} has "
                    f"'{judgments.cells[min(zero_row, minus_row)][2]}'. With both 0 and -1 in one "
                    "file, it is not clear which of them means different. Use only one of them.",
                )
    return is_similar


class _Line(NamedTuple):
    number: int
    cells: list[str]


class _JudgmentFile:
    """Cells of a file of pairs or comparisons. Error messages name the file and the line."""

    def __init__(self, path: Path, names: tuple[str, ...], rows: _RowLookup) -> None:
        if not path.exists():
            raise FileNotFoundError(f"The file {path} does not exist.")
        self.path, self.rows = path, rows
        self.unit = "row" if is_parquet(path) else "line"
        header, lines = _read_parquet(path) if self.unit == "row" else _read_delimited(path)
        width, expected = len(names), ", ".join(names)
        if header is None and self._has_header(lines, names):
            header, lines = lines[0].cells, lines[1:]
        header_names = [name.strip().lower() for name in header or ()]
        has_names = all(name in header_names for name in names)
        columns = [header_names.index(name) for name in names] if has_names else list(range(width))
        if header is not None and len(header) < width:
            raise ValueError(
                f"{path.name} has {len(header)} column(s), {', '.join(map(repr, header))}. "
                f"Expected {width}: {expected}."
            )
        self.lines = [line.number for line in lines]
        self.cells: list[list[str]] = []
        for row, line in enumerate(lines):
            if len(line.cells) <= max(columns):
                self.fail(
                    row,
                    f"found {len(line.cells)} cell(s), '{', '.join(line.cells)[:60]}'. Expected "
                    f"{width} ({expected}), separated by commas, semicolons or tabs.",
                )
            cells = [line.cells[column] for column in columns]
            if any("\n" in cell for cell in cells):
                self.fail(row, "a cell spans several lines. Check for an unclosed quotation mark.")
            self.cells.append(cells)
        if not self.cells:
            raise ValueError(f"{path.name} has a header, but no {self.unit} below it.")

    def _has_header(self, lines: Sequence[_Line], names: tuple[str, ...]) -> bool:
        """Return True if the first line is a header.

        The first line is a header if it contains the required names, or if none of its cells can
        be data.
        """
        first, n_rows = lines[0].cells, 4 if len(names) == 4 else 2
        found_rows = [self.rows.find_row(cell) for cell in first[:n_rows]]
        if set(names) <= {cell.lower() for cell in first}:
            if None not in found_rows:
                warn(
                    f"{self.path.name}: line {lines[0].number} is read as column names, although "
                    "some rows have these IDs."
                )
            return True
        # A number is never a column name, even if no row has this number.
        if any(row is not None for row in found_rows) or any(map(_is_integer, first[:n_rows])):
            return False
        if len(first) < len(names):
            return False
        if len(names) != 3 or self.rows.by_id is None or _parse_verdict(first[2]) is None:
            return True
        # "same" in the third cell can be a column name or a verdict. If it occurs again in a
        # later line, it is a verdict.
        later_verdicts = {line.cells[2].lower() for line in lines[1:] if len(line.cells) > 2}
        return first[2].lower() not in later_verdicts and bool(later_verdicts)

    def describe_place(self, row: int) -> str:
        """Return the place in the file, such as "line 3"."""
        return f"{self.unit} {self.lines[row]}"

    def fail(self, row: int, problem: str) -> NoReturn:
        """Raise a ValueError that names the file and the line."""
        raise ValueError(f"{self.path.name}, {self.describe_place(row)}: {problem}")

    def find_row_numbers(self, width: int) -> Indices:
        """Return the row numbers in the first `width` columns."""
        numbers = np.empty((len(self.cells), width), np.intp)
        for row, cells in enumerate(self.cells):
            for column, cell in enumerate(cells[:width]):
                number = self.rows.find_row(cell)
                if number is None:
                    self.fail(row, self.rows.describe_problem(cell))
                numbers[row, column] = number
        return numbers

    def check_self_pairs(self, pairs: Indices, start: int = 0) -> None:
        """Raise if a row is paired with itself."""
        is_self_pair = pairs[:, 0] == pairs[:, 1]
        if is_self_pair.any():
            row = int(np.argmax(is_self_pair))
            self.fail(row, f"'{self.cells[row][start]}' is paired with itself.")


def _read_delimited(path: Path) -> tuple[None, list[_Line]]:
    """Return the non-empty lines of a text file."""
    messages: list[str] = []
    text = decode(path, messages)
    for message in messages:
        warn(message)
    separator = find_separator(get_first_lines(text))
    return None, list(_iterate_lines(path, text, separator))


def _iterate_lines(path: Path, text: str, separator: str) -> Iterator[_Line]:
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


def _read_parquet(path: Path) -> tuple[list[str], list[_Line]]:
    """Return the column names and the non-empty rows of a Parquet file, as text."""
    table = read_arrow(path)
    columns = [column.to_pylist() for column in table.columns]
    texts = ([_format_value(value) for value in values] for values in zip(*columns, strict=True))
    lines = [_Line(row, cells) for row, cells in enumerate(texts) if any(cells)]
    return list(table.column_names), lines
