"""What the user gave to ``compare``: arrays and frames as tables, times as numbers, folds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.app.tables.columns import Columns
from nearfar.datasets.table import Table, drop_single_channel
from nearfar.extras import import_optional
from nearfar.summaries.sets import Sets

#: Group of test rows whose file names none.
UNKNOWN_GROUP = -1


def noun_of(X: Any) -> str:
    """What one of X is called in all that is said of it: "row", or "set" of vectors."""
    return "set" if isinstance(X, Sets) else "row"


def as_table(X: Any, y: Any, groups: Any = None, time: Any = None) -> Table:
    """Arrays or frames as a Table.

    >>> import numpy as np
    >>> as_table(np.ones((4, 8, 8)), ["a", "b", "a", "b"]).tensor_shape
    (8, 8)
    """
    tensor_shape = None
    if sparse.issparse(X):
        raise TypeError(
            "X is a sparse matrix, but distances are compared on dense data. Reduce it first, for "
            "example with sklearn.decomposition.TruncatedSVD."
        )
    if not hasattr(X, "iloc") and not isinstance(X, Sets):
        X = _without_mask(X)
        if X.ndim > 2:
            tensor_shape = drop_single_channel(X.shape[1:])
            X = X.reshape(len(X), -1)
        if X.ndim != 2:
            raise ValueError(f"X must have rows and columns; got an array of shape {X.shape}.")
    noun = noun_of(X)
    for name, values in {"y": y, "groups": groups, "time": time}.items():
        if values is None:
            continue
        if not hasattr(values, "__len__") or isinstance(values, str):
            raise ValueError(
                f"{name} must hold a value for each of {len(X)} {noun}s; got {values!r}."
            )
        if len(values) != len(X):
            raise ValueError(f"X has {len(X)} {noun}s, but {name} has {len(values)}.")
        if np.ma.is_masked(values):
            row = int(np.argmax(np.ma.getmaskarray(values)))
            raise ValueError(f"{name} is masked in {noun} {row}; leave such {noun}s out.")
    return Table(
        name="data",
        X=X,
        y=y,
        target=getattr(y, "name", None) and str(y.name),
        groups=None if groups is None else _groups(_plain(groups, "groups", noun)),
        groups_name=None if groups is None else str(getattr(groups, "name", None) or "groups"),
        time=None if time is None else _times(_plain(time, "time", noun), noun),
        time_name=None if time is None else str(getattr(time, "name", None) or "time"),
        tensor_shape=tensor_shape,
    )


def fixed_test(test: Any) -> Table | None:
    """The pair (X, y) of a fixed test set as a Table."""
    if test is None:
        return None
    if not isinstance(test, tuple | list) or len(test) != 2:
        size = f" of {len(test)}" if isinstance(test, tuple | list) else ""
        raise ValueError(f"test must be a pair (X, y); got {type(test).__name__}{size}.")
    if test[1] is None:
        raise ValueError("test has no labels: its y is None.")
    return as_table(*test)


def _without_mask(X: Any) -> NDArray[Any]:
    """An array; what is masked is missing."""
    if np.ma.is_masked(X):
        return np.asarray(X.astype(np.float64).filled(np.nan))
    return np.asarray(X)


def _plain(values: Any, name: str, noun: str) -> NDArray[Any]:
    """Groups or times as an array without missing entries."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional; got shape {array.shape}.")
    missing = (
        array != array
        if array.dtype.kind != "O"
        else np.array([is_missing(value) for value in array], dtype=bool)
    )
    if np.any(missing):
        raise ValueError(f"{name} has a missing value in {noun} {int(np.argmax(missing))}.")
    return array


def is_missing(value: Any) -> bool:
    """Whether it stands for no value: None, NaN, NaT or pandas.NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA
        return True


def _groups(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(str) if values.dtype.kind == "O" else values


def _times(values: NDArray[Any], noun: str) -> NDArray[Any]:
    """Numbers that sort as the times do; of dates, microseconds."""
    if values.dtype.kind in "biuf":
        return values
    if values.dtype.kind in "mM":
        unit = "datetime64[us]" if values.dtype.kind == "M" else "timedelta64[us]"
        return values.astype(unit).astype(np.int64)
    cells = values.tolist()
    try:
        return np.array([float(cell) for cell in cells])
    except (TypeError, ValueError):
        moments = [_moment(cell) for cell in cells]
    if None in moments:
        row = moments.index(None)
        raise ValueError(
            f"time has neither a number nor a date in {noun} {row}: {str(cells[row])[:60]!r}. "
            "Dates such as 2024-03-31 or 2024-03-31 17:00 do; make others so with "
            "pandas.to_datetime."
        )
    return np.array(moments, dtype="datetime64[us]").astype(np.int64)


def _moment(cell: Any) -> datetime | None:
    """A date, or its text, as a time without zone."""
    if isinstance(cell, str):
        try:
            cell = datetime.fromisoformat(cell.strip())
        except ValueError:
            return None
    if isinstance(cell, date) and not isinstance(cell, datetime):
        return datetime(cell.year, cell.month, cell.day)
    if not isinstance(cell, datetime):
        return None
    return cell if cell.tzinfo is None else cell.astimezone(UTC).replace(tzinfo=None)


def all_rows(table: Table, test: Table | None, columns: Columns) -> Any:
    """The columns in use of the rows to train on, and below them those of the test set."""
    if test is None:
        return columns.select(table.X)
    if columns.vector is not None and hasattr(test.X, "iloc"):
        return np.concatenate([columns.select(part.X) for part in (table, test)])
    if columns.feature_names is not None:
        expected = len(columns.feature_names)
        if hasattr(test.X, "iloc") or test.X.shape[1] != expected:
            raise ValueError(
                f"The test data have {test.X.shape[1]} features, the training data {expected}."
            )
        return np.concatenate([columns.select(part.X) for part in (table, test)])
    pandas = import_optional("pandas", "app")
    try:
        columns.select(test.X)
    except ValueError as error:
        # Its own row numbers, not those after the training rows.
        raise ValueError(f"In the test data: {error}") from error
    # Together once more: whether levels are numbers or text depends on all of them.
    named = [part.X.set_axis([str(name) for name in part.X], axis=1) for part in (table, test)]
    used = [part[list(columns.names)] for part in named]
    return columns.select(pandas.concat(used, ignore_index=True))


def all_labels(table: Table, test: Table | None) -> Any:
    """Labels of all rows, those of the test set last."""
    if test is None:
        return table.y
    return np.concatenate([np.asarray(table.y), np.asarray(test.y)])


def all_groups(table: Table, test: Table | None) -> NDArray[Any] | None:
    """Groups of all rows; those of a test set without any are one of their own."""
    if table.groups is None or test is None:
        return table.groups
    if test.groups is not None:
        both = np.concatenate([table.groups.astype(str), test.groups.astype(str)])
        return np.unique(both, return_inverse=True)[1]
    codes = np.unique(table.groups, return_inverse=True)[1]
    return np.concatenate([codes, np.full(len(test.X), UNKNOWN_GROUP)])


def folds_given(cv: Any) -> Any:
    """The user's folds: a whole number, a splitter, or a list of row numbers; None if none.

    >>> import numpy as np
    >>> folds_given((np.arange(4) < 2, np.arange(4) >= 2) for _ in range(2))[0][1].tolist()
    [2, 3]
    """
    if cv is None or (hasattr(cv, "split") and not isinstance(cv, str)):
        return cv
    if isinstance(cv, Integral) and not isinstance(cv, bool):
        if cv < 2:
            raise ValueError(f"cv={cv} must be 2 or more: the number of folds.")
        return int(cv)
    if isinstance(cv, str | bool) or not isinstance(cv, Iterable):
        raise ValueError(
            f"cv={cv!r} must be a whole number, a splitter of scikit-learn, or pairs of row "
            "numbers to train on and to test."
        )
    folds = []
    for i, pair in enumerate(cv):  # a generator is read once
        if not isinstance(pair, tuple | list | np.ndarray) or len(pair) != 2:
            raise ValueError(f"cv: fold {i} must be a pair of row numbers to train on and to test.")
        folds.append((_row_numbers(pair[0], i), _row_numbers(pair[1], i)))
    if not folds:
        raise ValueError("cv is empty: it gives no fold.")
    return folds


def _row_numbers(rows: Any, fold: int) -> NDArray[np.intp]:
    array = np.asarray(rows)
    if array.dtype == bool:
        return np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"cv: fold {fold} must hold row numbers, or a True or False for each row.")
    return array.astype(np.intp)
