"""Which columns of a table a distance can use, and how they become numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from nearfar.app.tables.written_numbers import Writing, numbers_of, writing_of
from nearfar.blocks import split_rows
from nearfar.datasets.vector_columns import (
    describe_vectors,
    find_vector_columns,
    has_common_length,
    make_vector_names,
    parse_vectors,
)
from nearfar.extras import import_optional
from nearfar.words import format_count, join_names, suggest_name

MAX_LEVELS = 100
# With fewer rows, whole numbers are often all different by chance.
MIN_ROWS_FOR_ID = 20

_DAY = r"(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))"
_MONTH = r"(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_NAMED_DAY = rf"(\d{{1,2}}\.?[ -]{_MONTH}[ ,-]+\d{{2,4}}|{_MONTH} \d{{1,2}},? \d{{4}})"
_TIME = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?[ap]m)?( ?(z|utc|[+-]\d{2}:?\d{2}))?"
_DATE = re.compile(rf"(({_DAY}|{_NAMED_DAY})([T ]+{_TIME})?|{_TIME})", re.IGNORECASE)
_LIKE_AN_ID = "a different whole number in every row, like an ID"


def is_date(text: str) -> bool:
    """Whether a text is a day, a time of day, or both.

    >>> is_date("2024-03-31"), is_date("31 Mar 2024 17:00"), is_date("17.5")
    (True, True, False)
    """
    return _DATE.fullmatch(text.strip()) is not None


@dataclass(frozen=True)
class Columns:
    """The columns in use, and scikit-learn's steps that turn them into numbers.

    Attributes
    ----------
    numeric, categorical : tuple
        Names of a DataFrame's columns, as text, or positions in an array.
    dropped : tuple of (str, str)
        Columns left out, each with the reason.
    missing : bool
        Whether a used column has a missing value.
    feature_names : tuple of str or None
        Names of all columns of an array; None for a DataFrame.
    vector : str or None
        The column of a DataFrame whose cells are vectors, which are then the array.
    written : tuple of (str, str)
        Columns of numbers as people write them ("$1,200"), each with its mark of decimals.
    notes : tuple of str
        What was decided and must be said, beside what is left out.
    """

    numeric: tuple[Any, ...]
    categorical: tuple[Any, ...]
    dropped: tuple[tuple[str, str], ...]
    missing: bool
    feature_names: tuple[str, ...] | None = None
    vector: str | None = None
    written: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns in use: numbers first, then categories."""
        if self.feature_names is None:
            return (*self.numeric, *self.categorical)
        return tuple(self.feature_names[position] for position in self.numeric)

    @property
    def n_features(self) -> int:
        """Number of columns in use."""
        return len(self.numeric) + len(self.categorical)

    def select(self, X: Any) -> Any:
        """The data as the preprocessor takes them.

        Of a DataFrame the columns in use, by name: numbers as float64 (also those stored as text,
        booleans and nullable ones; float32 where all are such), categories as objects with NaN for
        missing. Of an array all columns as floats: itself, if it holds floats. Row by row nothing
        depends on the other rows. A missing column, text among the numbers and infinite values
        raise a ``ValueError``.
        """
        if self.feature_names is not None:
            rows = _as_array(X if self.vector is None else self._vectors(X))
            if rows.shape[1] != len(self.feature_names):
                raise ValueError(
                    f"X has {rows.shape[1]} columns; expected {len(self.feature_names)}."
                )
            _refuse_infinite(rows, self.feature_names)
            return rows
        pd = import_optional("pandas", "app")
        frame = _named(X)
        lacking = [name for name in self.names if name not in frame.columns]
        if lacking:
            raise ValueError(
                f"X lacks {join_names(lacking)}.{suggest_name(lacking[0], frame.columns)} "
                f"It has {join_names(frame.columns)}."
            )
        single = all(frame[name].dtype == np.float32 for name in self.numeric)
        floats = np.empty(
            (len(frame), len(self.numeric)), np.float32 if single else np.float64, order="F"
        )
        marks = dict(self.written)
        for i, name in enumerate(self.numeric):
            if single:
                floats[:, i] = frame[name]
                continue
            floats[:, i], odd = _written(pd, frame[name], name, marks.get(name))
            if odd.any():
                row = int(np.argmax(odd))
                raise ValueError(
                    f"Column '{name}' should hold numbers; row {row} has "
                    f"{str(frame[name].iloc[row])!r}."
                )
        _refuse_infinite(floats, self.numeric)
        chosen = pd.DataFrame(floats, columns=list(self.numeric), index=frame.index)
        levels = {
            name: pd.Series(_levels(frame[name]), dtype=object, index=frame.index)
            for name in self.categorical
        }
        return pd.concat([chosen, pd.DataFrame(levels)], axis=1) if levels else chosen

    def _vectors(self, X: Any) -> Any:
        """The vectors of a frame; an array is taken as they are."""
        if not hasattr(X, "columns"):
            return X
        frame, name = _named(X), str(self.vector)
        if name not in frame.columns:
            raise ValueError(f"X lacks '{name}', the vectors. It has {join_names(frame.columns)}.")
        return parse_vectors(frame[name], name, "X")

    def knowing(self, rows: Any) -> Columns:
        """The same, with ``missing`` judged on more rows: what ``select`` gave for all of them."""
        if self.feature_names is None:
            return replace(self, missing=bool(rows.isna().to_numpy().any()))
        return replace(self, missing=_any_missing(rows, self.numeric))

    def preprocessor(self) -> Any:
        """A new transformer to floats, to be fitted inside each fold.

        Missing numbers become the median, each level of a category (missing is one) a column of
        zeros and ones, so that any two different levels are equally far apart; levels that were not
        there in ``fit`` are all zeros. For an array without missing values, "passthrough".
        """
        numbers = SimpleImputer(strategy="median", keep_empty_features=True)
        numbers.set_output(transform="default")  # arrays, whatever scikit-learn is set to
        if self.feature_names is not None:
            if len(self.numeric) == len(self.feature_names):
                return numbers if self.missing else "passthrough"
            steps = [("numeric", numbers if self.missing else "passthrough", list(self.numeric))]
            return ColumnTransformer(steps).set_output(transform="default")
        levels = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        parts = [("numeric", numbers, self.numeric), ("categorical", levels, self.categorical)]
        steps = [(name, step, list(columns)) for name, step, columns in parts if columns]
        return ColumnTransformer(steps).set_output(transform="default")

    def origins(self, fitted: Any) -> list[int]:
        """For each column that the fitted preprocessor returns, the index of its name.

        Parameters
        ----------
        fitted : str or transformer
            What ``preprocessor`` returned, fitted.

        Returns
        -------
        list of int
            Indices into ``names``.
        """
        found = list(range(len(self.numeric)))
        if self.categorical:
            levels = fitted.named_transformers_["categorical"].categories_
            for i, categories in enumerate(levels, start=len(self.numeric)):
                found += [i] * len(categories)
        return found


def columns_of(fitted: ColumnTransformer) -> Columns:
    """The columns that a fitted preprocessor of a table takes."""
    used = {name: tuple(columns) for name, _, columns in fitted.transformers_}
    return Columns(used.get("numeric", ()), used.get("categorical", ()), (), True)


def choose_columns(
    X: Any,
    *,
    feature_names: Iterable[str] | None = None,
    keep: Iterable[Any] | str | None = (),
    drop: Iterable[Any] | str | None = (),
    show_cells: bool = True,
) -> Columns:
    """Choose the columns that a distance can use, and say why others are left out.

    Of a DataFrame are left out: whole numbers or text different in every row (numbers from 20 rows
    on, and not where most columns are such, as in a table of counts), dates, free text, categories
    of more than 100 levels, empty and constant columns, and numbers with odd cells of text among
    them. Of numbers as people write them ("$1,200", "12 %") those are left out that may have
    thousands or decimals behind their mark. If a column holds lists of numbers, all of one length,
    these vectors are what is used, and the other columns are not. An array is used as it is.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The rows.
    feature_names : iterable of str, optional
        Names of an array's columns; None calls them "column 0", "column 1", ...
    keep : iterable of str
        Columns to use although they look useless. Text becomes a category.
    drop : iterable of str
        Columns to leave out. For an array a position does too.
    show_cells : bool, default=True
        Whether a reason may quote what stands in a cell.

    Returns
    -------
    Columns
        What is used and what is not.

    Examples
    --------
    >>> import numpy as np
    >>> columns = choose_columns(np.ones((3, 2)), feature_names=["a", "b"], drop=["b"])
    >>> columns.names, columns.dropped
    (('a',), (('b', 'dropped as asked'),))
    """
    keep, drop = names_asked(keep), names_asked(drop)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        frame = _named(X)
        vector = _vector_of(frame, drop)
        if vector is not None:
            return _choose_of_vectors(frame, vector, keep, drop)
        return _choose_of_frame(frame, keep, drop, show_cells)
    rows = _as_array(X)
    p = rows.shape[1]
    names = [f"column {i}" for i in range(p)] if feature_names is None else list(feature_names)
    if len(names) != p:
        raise ValueError(f"feature_names has {len(names)} names for {p} columns.")
    unwanted = [_by_position(column, names) for column in drop]
    _check_known(
        names, {"keep": [_by_position(column, names) for column in keep], "drop": unwanted}
    )
    _refuse_infinite(rows, names)
    used = tuple(i for i in range(p) if names[i] not in unwanted)
    dropped = tuple((name, "dropped as asked") for name in names if name in unwanted)
    if not used:
        raise ValueError(_nothing_left(dropped))
    return Columns(used, (), dropped, _any_missing(rows, used), tuple(names))


def names_asked(columns: Iterable[Any] | str | None) -> list[Any]:
    """Names of columns as the user gave them: one, several or none.

    >>> names_asked("id"), names_asked(("a", "b")), names_asked(None)
    (['id'], ['a', 'b'], [])
    """
    if columns is None:
        return []
    return [columns] if isinstance(columns, str) else list(columns)


def as_floats(X: Any) -> Any:
    """An array as learners take it: float64, or float32 of float32 and float16; all else as it is.

    >>> import numpy as np
    >>> [as_floats(np.ones((1, 1), kind)).dtype.name for kind in ("f2", "f4", "i8")]
    ['float32', 'float32', 'float64']
    """
    if not isinstance(X, np.ndarray) or X.dtype in (np.float32, np.float64):
        return X
    return X.astype(np.float32 if X.dtype == np.float16 else np.float64)


def _any_missing(rows: NDArray[Any], used: tuple[int, ...]) -> bool:
    blocks = [block for block in _blocks(rows) if not _is_finite(rows[block])]
    part = slice(None) if len(used) == rows.shape[1] else list(used)
    return any(bool(np.isnan(rows[block][:, part]).any()) for block in blocks)


def _blocks(rows: NDArray[Any]) -> Iterable[slice]:
    """Blocks of rows: of a mapped file no more is in memory."""
    return split_rows(len(rows), 8 * rows.shape[1])


def _is_finite(block: NDArray[Any]) -> bool:
    # A finite sum clears most data in one pass.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(block.sum(dtype=np.float32 if block.dtype == np.float16 else None)))


def _vector_of(frame: Any, drop: list[Any]) -> str | None:
    """The column of vectors, unless it is dropped."""
    gone = {str(name) for name in drop}
    found = [name for name in find_vector_columns(frame) if name not in gone]
    found = [name for name in found if has_common_length(frame[name])]
    if len(found) > 1:
        raise ValueError(
            f"X has several columns of vectors, {join_names(found)}; leave out all but one with "
            "drop."
        )
    return found[0] if found else None


def _choose_of_vectors(frame: Any, name: str, keep: list[Any], drop: list[Any]) -> Columns:
    """The vectors of a column, and why no other is used."""
    rows = parse_vectors(frame[name], name, "X")
    features = make_vector_names(name, rows.shape[1])
    own = [column for column in (*keep, *drop) if column in features]
    _check_known([*frame.columns, *features], {"keep": keep, "drop": drop})
    others = [column for column in frame.columns if column != name]
    kept = [str(column) for column in keep if str(column) in others]
    if kept:
        raise ValueError(
            f"Column '{kept[0]}' cannot be kept beside the vectors in '{name}'; with drop "
            f"'{name}' the other columns are used."
        )
    found = choose_columns(
        rows, feature_names=features, drop=[column for column in drop if column in own]
    )
    asked = {str(column) for column in drop}
    beside = tuple(
        (column, "dropped as asked" if column in asked else f"beside the vectors in '{name}'")
        for column in others
    )
    note = describe_vectors(name, rows.shape[1], is_guessed=True, unused=())
    return replace(found, dropped=(*beside, *found.dropped), vector=name, notes=(note,))


def _by_position(column: Any, names: list[str]) -> Any:
    if column in names or not str(column).isdigit() or int(column) >= len(names):
        return column
    return names[int(column)]


def _choose_of_frame(frame: Any, keep: list[Any], drop: list[Any], show_cells: bool) -> Columns:
    pd = import_optional("pandas", "app")
    kept, unwanted = {str(name) for name in keep}, {str(name) for name in drop}
    _check_known(list(frame.columns), {"keep": keep, "drop": drop})
    if len(frame) == 0:
        raise ValueError("X has no rows.")
    numeric: list[str] = []
    categorical: list[str] = []
    reasons: dict[str, str] = {}
    written: dict[str, str] = {}
    notes: list[str] = []
    for name in frame.columns:
        if name in unwanted:
            reasons[name] = "dropped as asked"
            continue
        writing = _writing(pd, frame[name])
        if writing is not None and writing.decimal is not None:
            written[name] = writing.decimal
        kind, reason = _judge(pd, name, frame[name], show_cells, writing)
        if reason and name in kept:
            if kind == "unusable":
                raise ValueError(
                    f"Column '{name}' cannot be kept: {reason}. Turn it into numbers or "
                    "categories first."
                )
            reason = ""
        if reason:
            reasons[name] = reason
        elif kind == "numeric":
            numeric.append(name)
            if name in written:
                assert writing is not None
                cell = f": {writing.read}" if show_cells else ""
                notes.append(f"Column '{name}': read as numbers{cell}.")
        else:
            categorical.append(name)
    _take_back_counts(pd, frame, numeric, reasons)
    dropped = tuple((name, reasons[name]) for name in frame.columns if name in reasons)
    if not numeric and not categorical:
        raise ValueError(_nothing_left(dropped))
    missing = any(bool(frame[name].isna().any()) for name in (*numeric, *categorical))
    marks = tuple((name, written[name]) for name in numeric if name in written)
    return Columns(
        tuple(numeric), tuple(categorical), dropped, missing, written=marks, notes=tuple(notes)
    )


def _writing(pd: Any, column: Any) -> Writing | None:
    """How numbers are written in a column of text that holds more than plain ones."""
    if not (column.dtype.kind == "O" and not isinstance(column.dtype, pd.CategoricalDtype)):
        return None
    present = column.dropna()
    if len(present) == 0 or not all(isinstance(cell, str | int | float) for cell in present):
        return None
    return writing_of(present) if _numbers(pd, present)[1].any() else None


def _judge(
    pd: Any, name: str, column: Any, show_cells: bool, writing: Writing | None
) -> tuple[str, str]:
    """What a column is ('numeric', 'categorical', 'unusable'), and why it is left out, if so."""
    dtype = column.dtype
    if dtype.kind == "c":
        raise ValueError(f"Column '{name}' holds complex numbers; use their parts.")
    if dtype.kind in "mM" or isinstance(dtype, pd.PeriodDtype):
        return "unusable", "durations" if dtype.kind == "m" else "dates"
    if pd.api.types.is_numeric_dtype(dtype):
        return _judge_numbers(name, _numbers(pd, column)[0])
    present = column.dropna()
    if len(present) == 0:
        return "unusable", "empty"
    if not isinstance(dtype, pd.CategoricalDtype):
        if any(
            isinstance(cell, list | tuple | dict | set | np.ndarray) for cell in present.iloc[:100]
        ):
            return "unusable", "lists, not one value a row"
        if writing is not None and writing.decimal is None:
            return "categorical", writing.doubt if show_cells else "thousands, or decimal commas"
        mark = None if writing is None else writing.decimal
        numbers, odd = _numbers(pd, column) if mark is None else numbers_of(column, mark)
        if not odd.any():
            return _judge_numbers(name, numbers)
        if odd.sum() <= 0.2 * len(present) and column.nunique() > MIN_ROWS_FOR_ID:
            row = int(np.argmax(odd))
            reason = f"numbers but for {format_count(int(odd.sum()), 'cell')}"
            shown = f"such as {str(column.iloc[row])[:30]!r} (row {row})"
            return "categorical", f"{reason} {shown if show_cells else f'(first: row {row})'}"
    levels = pd.Series(_levels(present), dtype=object).astype(str)
    reason = _why_not_levels(levels, len(column))
    return "unusable" if reason == "dates" else "categorical", reason


def _written(
    pd: Any, column: Any, name: str, mark: str | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A column as floats, by its mark of decimals, or by what its own cells say of that."""
    if mark is None:
        writing = _writing(pd, column)
        if writing is None:
            return _numbers(pd, column)
        if writing.decimal is None:
            raise ValueError(f"Column '{name}' should hold numbers: {writing.doubt}.")
        mark = writing.decimal
    if column.dtype.kind != "O":
        return _numbers(pd, column)
    return numbers_of(column, mark)


def _judge_numbers(name: str, numbers: NDArray[np.float64]) -> tuple[str, str]:
    _refuse_infinite(numbers[:, None], [name])
    present = numbers[~np.isnan(numbers)]
    if len(present) == 0:
        return "unusable", "empty"
    if np.all(present == present[0]):
        everywhere = len(present) == len(numbers)
        return "numeric", "the same value in every row" if everywhere else "one value only"
    enough = len(present) >= max(MIN_ROWS_FOR_ID, 0.9 * len(numbers))
    enough = enough and bool(np.all(present[:100] == np.floor(present[:100])))
    if enough and np.all(present == np.floor(present)) and len(np.unique(present)) == len(present):
        return "numeric", _LIKE_AN_ID
    return "numeric", ""


def _why_not_levels(texts: Any, n: int) -> str:
    different = texts.unique()
    levels = len(different)
    if levels == 1:
        return "the same value in every row" if len(texts) == n else ""
    sample = [text.strip() for text in different[:200]]
    if sum(map(is_date, sample)) >= 0.95 * len(sample):
        return "dates"
    words = np.median([len(text.split()) for text in sample])
    if words >= 4 and np.median([len(text) for text in sample]) >= 25 and levels > len(texts) / 2:
        return "free text"
    if levels == len(texts):
        return "a different text in every row, like an ID or a name"
    if levels > MAX_LEVELS:
        return f"a category with {levels:,} levels"
    if levels > max(20, len(texts) / 2):
        return f"{levels:,} different texts in {n:,} rows, like a name"
    return ""


def _take_back_counts(pd: Any, frame: Any, numeric: list[str], reasons: dict[str, str]) -> None:
    """Where most columns are whole numbers without a tie they are counts; not so 1, 2, 3, ..."""
    alike = [name for name, reason in reasons.items() if reason == _LIKE_AN_ID]
    if len(alike) < 4 or len(alike) <= frame.shape[1] / 2:
        return
    for name in alike:
        numbers, _ = _numbers(pd, frame[name])
        if np.nanmax(numbers) - np.nanmin(numbers) >= len(numbers):
            del reasons[name]
            numeric.append(name)
    numeric.sort(key=list(frame.columns).index)


def _numbers(pd: Any, column: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A column as floats, and which cells are none although they are filled."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        numbers = column.to_numpy(np.float64)
        return numbers, np.zeros(len(numbers), bool)
    if pd.api.types.is_numeric_dtype(column.dtype):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers, np.zeros(len(numbers), bool)
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    odd = np.isnan(numbers) & column.notna().to_numpy()
    if odd.any():
        texts = column[odd].astype(str).str.strip().str.lower()
        odd[odd] = ~texts.isin(["", "nan", "na", "none", "<na>"]).to_numpy()
    return numbers, odd


def _levels(column: Any) -> NDArray[Any]:
    """A column's values as objects that sort: all text unless all are numbers; NaN for missing."""
    missing = column.isna().to_numpy()
    values = np.array(column.astype(object).to_numpy(), dtype=object)
    plain = all(isinstance(value, int | float) for value in values[~missing])
    if not plain:
        values[~missing] = [str(value) for value in values[~missing]]
    values[missing] = np.nan
    return values


def _named(X: Any) -> Any:
    """A DataFrame with its names as text."""
    if not (hasattr(X, "iloc") and hasattr(X, "columns")):
        raise ValueError(f"X should be a DataFrame with named columns; got {type(X).__name__}.")
    if X.columns.nlevels > 1:
        raise ValueError(
            "X has column names of several levels; join them first, for instance with "
            "X.columns = ['_'.join(map(str, name)) for name in X.columns]."
        )
    names = [str(name) for name in X.columns]
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise ValueError(f"X has several columns named {join_names(repeated)}; rename them.")
    return X if names == list(X.columns) else X.set_axis(names, axis=1)


def _as_array(X: Any) -> NDArray[Any]:
    """A 2-D array of floats."""
    if sparse.issparse(X):
        raise TypeError("X is sparse; reduce it first, for instance with TruncatedSVD.")
    rows = np.asarray(X)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"X must have rows and columns; got an array of shape {rows.shape}.")
    if rows.dtype.kind == "c":
        raise ValueError("X holds complex numbers; use their parts.")
    if rows.dtype in (np.float16, np.float32, np.float64):
        return rows
    try:
        return rows.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"X should hold numbers ({error}); pass a pandas DataFrame for columns of other kinds."
        ) from error


def _refuse_infinite(rows: NDArray[Any], names: Any) -> None:
    for block in _blocks(rows):
        if _is_finite(rows[block]):
            continue
        where = np.argwhere(np.isinf(rows[block]))
        if len(where):
            row, column = where[0]
            raise ValueError(
                f"Column '{names[column]}' is infinite in row {row + block.start}; mend it, or "
                "leave the cell empty."
            )


def _check_known(names: list[str], asked: dict[str, list[Any]]) -> None:
    for argument, columns in asked.items():
        for name in columns:
            if str(name) not in names:
                raise ValueError(
                    f"{argument}: there is no column '{name}'.{suggest_name(name, names)} "
                    f"The columns are {join_names(names)}."
                )
    both = {str(name) for name in asked["keep"]} & {str(name) for name in asked["drop"]}
    if both:
        raise ValueError(f"{join_names(sorted(both))} cannot be kept and dropped at once.")


def _nothing_left(dropped: tuple[tuple[str, str], ...]) -> str:
    reasons = "; ".join(f"'{name}' ({reason})" for name, reason in dropped[:20])
    more = f"; and {len(dropped) - 20} more" if len(dropped) > 20 else ""
    return f"No column is left to compare by: {reasons}{more}. Name those to use with --keep."
