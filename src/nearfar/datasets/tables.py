"""Reader for tables: CSV, TSV, Parquet, NumPy files, folders of images, built-in datasets.

Decisions made while reading (a decimal comma, a guessed target, omitted rows) are kept in
``Table.messages``. Rows are counted from 0, lines of a file from 1.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.array_files import (
    NUMPY,
    check_distinct_columns,
    convert_arrays,
    find_key,
    read_arrays,
)
from nearfar.datasets.builtin import BUILT_IN
from nearfar.datasets.delimited import (
    MISSING,
    decode,
    find_separator,
    get_first_lines,
    parse_numbers,
    read_delimited,
)
from nearfar.datasets.parquet_files import (
    PARQUET,
    is_list,
    is_parquet,
    read_arrow,
    read_schema,
)
from nearfar.datasets.picture_tables import (
    read_image_folder,
    report_hidden_folder,
    set_tensor_shape,
)
from nearfar.datasets.pictures import contains_images
from nearfar.datasets.sides import check_groups, check_ids, parse_times
from nearfar.datasets.table import Table, check_one_per_row, find_missing, tidy_labels
from nearfar.datasets.vector_columns import (
    describe_vectors,
    find_arrow_vectors,
    find_vector_columns,
    make_vector_names,
    parse_vectors,
    select_vector_column,
)
from nearfar.extras import import_optional
from nearfar.words import format_count, join_names, suggest_name

#: Column names, in lowercase, from which the target is guessed.
TARGET_NAMES = ("target", "label", "class", "y")
_TEXT = (".csv", ".tsv", ".txt")
# Advice that is added to the error message for common unsupported formats.
_UNSUPPORTED_HINTS = {
    ".xlsx": "Save the sheet as CSV first.",
    ".xls": "Save the sheet as CSV first.",
    ".ods": "Save the sheet as CSV first.",
    ".gz": "Unpack it first.",
    ".zip": "Unpack it first.",
    ".pkl": "Pickles can run code and are not opened; save it as Parquet or .npz.",
    ".pickle": "Pickles can run code and are not opened; save it as Parquet or .npz.",
    ".joblib": "Pickles can run code and are not opened; save it as Parquet or .npz.",
    ".json": "Save it as CSV or Parquet first.",
    ".arff": "Save it as CSV first.",
}


class DataFile:
    """A file, folder or built-in dataset. Arrays are read once and then cached."""

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self.source = os.fspath(source)
        #: Path of the file or folder, or None for a built-in dataset.
        self.path = _locate(source)

    @cached_property
    def arrays(self) -> dict[str, Any] | None:
        """Dict of the arrays of a NumPy file, or None for other files."""
        if self.path is None or self.path.suffix.lower() not in NUMPY:
            return None
        return read_arrays(self.path)

    @cached_property
    def has_images(self) -> bool:
        """True for a folder of images."""
        return self.path is not None and self.path.is_dir() and not is_parquet(self.path)

    @cached_property
    def has_sets(self) -> bool:
        """True if the file contains sets of vectors.

        Such a file has an `offsets` key or a column of lists of lists.
        """
        if self.arrays is not None:
            return "offsets" in self.arrays
        if self.path is None or not is_parquet(self.path):
            return False
        return any(
            is_list(field.type) and is_list(field.type.value_type)
            for field in read_schema(self.path) or ()
        )


def open_data_file(source: str | os.PathLike[str] | DataFile) -> DataFile:
    """Return `source` as a DataFile."""
    return source if isinstance(source, DataFile) else DataFile(source)


def read_table(
    source: str | os.PathLike[str] | DataFile,
    *,
    target: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    groups: str | None = None,
    time: str | None = None,
    ids: str | None = None,
    vector: str | Literal[False] | None = None,
    need_target: bool = True,
    guess_target: bool | None = None,
    image_shape: tuple[int, ...] | None = None,
) -> Table:
    """Read a file, a folder of images or a built-in dataset into a Table.

    Parameters
    ----------
    source : str or path
        A .csv, .tsv, .txt, .parquet, .npy or .npz file, a folder of Parquet files or of images,
        or the name of a built-in dataset: a key of ``BUILT_IN``, such as "wine". A file of the
        same name takes precedence.
    target : str, optional
        Column, or key of an .npz file, with the labels. None selects the only column named target,
        label, class or y, ignoring case. If `labels` is given, `target` is a column of that file.
    labels : str or path, optional
        Separate file with one label per row, in the format .npy, .npz, .txt, .csv, .tsv or
        .parquet. A .txt file has one label per line.
    groups, time : str, optional
        Column (or key) with the group of each row, and column (or key) with the time of each row as
        a number or a date. These columns are removed from X.
    ids : str, optional
        Column (or key) with a unique ID per row. This column is removed from X.
    vector : str or False, optional
        Column (or key of an .npz file) that stores one vector per row and becomes X. None selects
        this column automatically if there is exactly one such column. False does not treat any
        column as vectors.
    need_target : bool, default=True
        If True, raise if the target is missing, and drop rows with a missing label. If False, keep
        every row.
    guess_target : bool, optional
        If True, guess the target from the column names when `target` is None. The default is the
        value of `need_target`.
    image_shape : tuple of int, optional
        (height, width) or (height, width, channels). Images of a folder are resized to this shape.
        Rows of other sources must have this number of values and are treated as images.

    Returns
    -------
    Table
        The rows as ``X``, the labels as ``y``, and the decisions made while reading as
        ``messages``.

    Notes
    -----
    *Text tables* may be separated by commas, semicolons or tabs, and may lack a header. Columns
    without a header are named "column 0", "column 1" and so on; `target`, `groups`, `time` and
    `ids` also accept the number alone. Decimal commas are recognized if the separator is a
    semicolon or a tab. Empty cells, "NA", "NaN", "null" and "?" are missing values.

    *Vectors*: if exactly one column stores lists of numbers of one length (lists in Parquet, or
    "[0.1, 0.2]" in text), these vectors become X and no other column is used as a feature. float16
    and float32 values keep their type.

    *Parquet*: a folder of Parquet files is read as one table, in the order of the file names.

    *NumPy*: an ``.npy`` file stores X and is memory-mapped. An ``.npz`` file has the key ``X`` or
    ``data``, the key ``y``, ``target`` or ``labels``, and optionally ``groups``, ``time``,
    ``feature_names``, ``target_names`` (names of the sorted labels) and ``image_shape``. Unused
    keys are listed in ``messages``. X of shape (n, height, width) or (n, height, width, 3) is read
    as images, and X of any other shape (n, d1, ..., dk) as tensors. Pickled (object) arrays are
    never opened. NumPy files and built-in datasets do not require pandas.

    *Images*: a folder is read by :func:`~nearfar.datasets.load_images`. The names of its subfolders
    are the labels, and the file names are the IDs.

    *Guessing the target without need_target*: if the table also has a column ``x``, a column ``y``
    is considered a coordinate and stays in X.

    Examples
    --------
    >>> wine = read_table("wine")
    >>> wine.X.shape, wine.feature_names[0], wine.class_names
    ((178, 13), 'alcohol', ['class_0', 'class_1', 'class_2'])
    """
    file = open_data_file(source)
    path = file.path
    requested = {"target": None if labels is not None else target, "groups": groups, "time": time}
    requested["id"] = ids
    if path is None:
        table = _load_built_in(file.source, requested | {"vector": vector or None})
    elif file.has_images:
        table = read_image_folder(path, requested | {"vector": vector or None}, image_shape)
    elif file.arrays is not None:
        if vector and path.suffix.lower() == ".npy":
            raise ValueError(
                f"--vector {vector}: {path.name} stores a single array without columns. Omit "
                "--vector."
            )
        table = convert_arrays(path.name, file.arrays, requested, vector or None)
    else:
        should_guess = need_target if guess_target is None else guess_target
        target_names = TARGET_NAMES if should_guess and labels is None else ()
        table = _read_frame(path, requested, target_names, need_target, vector)
    options: dict[str, Any] = {"target": target, "labels": labels, "groups": groups, "time": time}
    options |= {"ids": ids, "vector": vector}
    options |= {"need_target": None if need_target else False, "guess_target": guess_target}
    options |= {"image_shape": image_shape}
    table.source = format_call(read_table, file, options)
    n = len(table.X)
    if n == 0:
        raise ValueError(f"{table.name} has no rows.")
    if image_shape is not None and not file.has_images:
        set_tensor_shape(table, image_shape)
    if labels is not None:
        replace_labels(table, labels, target)
        _report_target_feature(table)
    if table.y is None and need_target:
        _fail_without_target(table)
    row_numbers = np.arange(n)
    if table.y is not None and need_target:
        row_numbers = _drop_unlabeled(table)
        table.y = tidy_labels(table.y)
    table.class_names = _select_class_names(table)
    check_groups(table, row_numbers)
    if table.time is not None:
        description = f"{table.name}: the time '{table.time_name}'"
        table.time = parse_times(table.time, description, row_numbers, table.messages)
        table.messages.append(f"Time: '{table.time_name}', not used as a feature.")
    check_ids(table, row_numbers)
    return table


# Locating the data


def _locate(source: str | os.PathLike[str]) -> Path | None:
    """Return the path of the file, or None for a built-in dataset."""
    text = os.fspath(source)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(
            "Expected the path of a file or the name of a built-in dataset "
            f"({join_names(BUILT_IN)}); got {text!r}."
        )
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text):
        raise ValueError(
            f"nearfar does not read URLs. Download {text} and pass the path of the file."
        )
    path = Path(text).expanduser()
    if text in BUILT_IN and not path.is_file():
        return None
    if path.is_dir():
        if not is_parquet(path):
            if contains_images(path):
                return path
            raise ValueError(
                f"{text} is a directory without Parquet files or images. Pass one of its files, or "
                "a folder of Parquet files or of images."
            )
        return path
    if not path.exists():
        candidates = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        hint = suggest_name(path.name, [*candidates, *BUILT_IN])
        names = ", ".join(BUILT_IN)
        raise ValueError(f"The file {text} does not exist.{hint} Built-in datasets: {names}.")
    suffix = path.suffix.lower()
    if suffix not in (*_TEXT, *PARQUET, *NUMPY):
        supported = "Supported: .csv, .tsv, .txt, .parquet, .npy and .npz."
        note = f" The file hides the built-in dataset '{text}'." if text in BUILT_IN else ""
        problem = f"the extension '{suffix}'" if suffix else "a file name without an extension"
        raise ValueError(
            f"{text}: {problem} is not supported. {_UNSUPPORTED_HINTS.get(suffix, supported)}{note}"
        )
    return path


def _load_built_in(name: str, requested: dict[str, str | None]) -> Table:
    """Return a built-in dataset. Raises if an option names a column that does not exist."""
    for option, column in requested.items():
        if option == "vector" and column is not None:
            raise ValueError(
                f"--vector {column}: the built-in dataset '{name}' has no column of vectors."
            )
        if column is not None and (option != "target" or column.lower() not in TARGET_NAMES):
            problem = "has its own classes" if option == "target" else f"has no {option}"
            raise ValueError(f"--{option} {column}: the built-in dataset '{name}' {problem}.")
    table = BUILT_IN[name].load()
    table.messages += report_hidden_folder(name)
    return table


# Tables with columns


def _read_frame(
    path: Path,
    requested: dict[str, str | None],
    target_names: Sequence[str],
    need_target: bool,
    vector: str | Literal[False] | None,
) -> Table:
    messages: list[str] = []
    repeated: set[str] = set()
    if is_parquet(path):
        frame, vector_name, X = _read_parquet(path, requested, messages, vector)
    else:
        frame, repeated = read_delimited(path, messages)
        frame, vector_name, X = _extract_vectors(frame, vector, path.name)
    is_headerless = bool(len(frame.columns)) and frame.columns[0] == "column 0"
    for option, name in requested.items():
        if name is None:
            continue
        if is_headerless and re.fullmatch(r"\d+", name) and int(name) < frame.shape[1]:
            name = requested[option] = f"column {int(name)}"
        if name not in frame.columns:
            raise ValueError(
                f"--{option} {name}: {path.name} has no such column."
                f"{suggest_name(name, frame.columns)} Its columns are {join_names(frame.columns)}."
            )
        if name in repeated:
            raise ValueError(
                f"--{option} {name}: {path.name} has two columns with that name. Rename one of "
                "them."
            )
    column = requested["target"]
    if column is None and target_names:
        if not need_target and "x" in {name.lower() for name in frame.columns}:
            target_names = [name for name in target_names if name != "y"]
        matches = [name for name in frame.columns if name.lower() in target_names]
        if len(matches) > 1 or (matches and matches[0] in repeated):
            raise ValueError(
                f"{path.name} has several columns that could be the target: {join_names(matches)}. "
                "Name it with --target (in Python: target=...)."
            )
        if matches:
            column = matches[0]
            messages.append(f"Target: column '{column}', guessed from its name.")
    role_columns = {
        "target": column,
        **{role: requested[role] for role in ("groups", "time", "id")},
    }
    check_distinct_columns(role_columns)
    frame = _drop_unnamed(frame, set(role_columns.values()), messages)
    role_values = {
        role: None if name is None else np.asarray(frame[name])
        for role, name in role_columns.items()
    }
    other_columns = frame.drop(columns=[name for name in role_columns.values() if name is not None])
    unused: dict[str, NDArray[Any]] = {}
    if X is None:
        X = other_columns
    else:
        unused = {str(name): other_columns[name].to_numpy() for name in other_columns.columns}
        messages.append(
            describe_vectors(
                vector_name, X.shape[1], is_guessed=vector is None, unused=list(unused)
            )
        )
    if X.shape[1] == 0:
        raise ValueError(
            f"{path.name} has no feature columns. Its columns are {join_names(frame.columns)}. "
            "Recognized separators: commas, semicolons, tabs."
        )
    return Table(
        path.name,
        X,
        role_values["target"],
        role_columns["target"],
        role_values["groups"],
        role_columns["groups"],
        role_values["time"],
        role_columns["time"],
        role_values["id"],
        role_columns["id"],
        vector=vector_name or None,
        unused=unused,
        feature_names=None if other_columns is X else make_vector_names(vector_name, X.shape[1]),
        messages=messages,
    )


def _extract_vectors(
    frame: Any, vector: str | Literal[False] | None, source: str
) -> tuple[Any, str, NDArray[Any] | None]:
    """Return the frame without its vector column, the name of that column, and the vectors.

    Without a vector column, the name is empty and the vectors are None.
    """
    if vector is False:
        return frame, "", None
    columns = {name: frame[name] for name in find_vector_columns(frame)}
    other_names = [name for name in frame.columns if name not in columns]
    name = select_vector_column(columns, other_names, vector, source)
    if name is None:
        return frame, "", None
    return frame.drop(columns=[name]), name, parse_vectors(columns[name], name, source)


def _read_parquet(
    path: Path,
    requested: dict[str, str | None],
    messages: list[str],
    vector: str | Literal[False] | None = False,
) -> tuple[Any, str, NDArray[Any] | None]:
    """Return the frame without its vector column, the name of that column, and the vectors.

    Without a vector column, the name is empty and the vectors are None.
    """
    import_optional("pandas", "app")
    pa = import_optional("pyarrow", "app")
    table, name, X = read_arrow(path), None, None
    if vector is not False:
        columns = find_arrow_vectors(table)
        other_names = [column for column in table.column_names if column not in columns]
        name = select_vector_column(columns, other_names, vector, path.name)
    if name is not None:
        X = parse_vectors(table[name], name, path.name)
        table = table.drop_columns([name])
    try:
        frame = table.to_pandas()
    except (ValueError, TypeError, NotImplementedError, pa.ArrowException) as error:
        raise ValueError(f"{path.name} is damaged or not a Parquet file: {error}") from error
    if frame.columns.nlevels > 1:
        raise ValueError(
            f"{path.name} has column names with several levels. Save it with simple column names."
        )
    for name in [name for name in frame.index.names if name is not None]:
        if name in requested.values():
            frame = frame.reset_index(name)
        else:
            messages.append(f"The index '{name}' is not used.")
    frame = frame.reset_index(drop=True)
    frame.columns = [str(name) for name in frame.columns]
    if frame.shape[1] == 0 and X is None:
        raise ValueError(f"{path.name} has no columns.")
    return frame, name or "", X


def _drop_unnamed(frame: Any, used_columns: set[str | None], messages: list[str]) -> Any:
    """Drop unnamed columns that are empty or store row numbers, as pandas and R write them."""
    numbers, empty = [], []
    for i, name in enumerate(frame.columns):
        if name in used_columns or not re.fullmatch(r"Unnamed: \d+(\.\d+)?", name):
            continue
        if frame[name].isna().all():
            empty.append(name)
        elif i == 0 or frame[name].is_unique:
            numbers.append(name)
    if numbers:
        messages.append(
            f"Dropped unnamed columns with row numbers or row names: {join_names(numbers)}."
        )
    if empty:
        messages.append(f"Dropped empty unnamed columns: {join_names(empty)}.")
    return frame.drop(columns=[*numbers, *empty])


# Labels


def _fail_without_target(table: Table) -> NoReturn:
    if not hasattr(table.X, "columns"):
        if table.id_name == "file" and table.tensor_shape is not None:
            raise ValueError(
                f"The images in {table.name} have no labels. Put the images of each class into a "
                "subfolder, or pass --labels FILE with one label per image, in the order of the "
                "file names."
            )
        raise ValueError(
            f"{table.name} has no labels. Pass --labels FILE with one label per row, save an .npz "
            "file with the keys X and y, or use nearfar compare --unlabeled, which needs no labels."
        )
    columns = table.X.columns
    note = " Its first line contains data, not names." if columns[0] == "column 0" else ""
    raise ValueError(
        f"The target column of {table.name} is not known. Name it with --target, for example "
        f"--target '{columns[-1]}' (the last column), or pass a file of labels with "
        f"--labels.{note} Its columns are {join_names(columns)}."
    )


def _report_target_feature(table: Table) -> None:
    names = [name for name in getattr(table.X, "columns", ()) if name.lower() in TARGET_NAMES]
    if names:
        table.messages.append(
            f"The labels come from {table.target}; {join_names(names)} is used as a feature."
        )


def _drop_unlabeled(table: Table) -> NDArray[np.intp]:
    """Drop rows without a label, and return the indices of the rows that are kept."""
    assert table.y is not None
    missing = find_missing(table.y)
    labeled = np.flatnonzero(~missing)
    if len(labeled) == 0:
        raise ValueError(f"{table.name}: the target '{table.target}' is missing in every row.")
    if len(labeled) == len(missing):
        return labeled
    rows = np.flatnonzero(missing).tolist()
    examples = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    table.messages.append(
        f"Dropped {format_count(len(rows), 'row')} without a label (row {examples}); "
        "row numbers below do not count them."
    )
    is_frame = hasattr(table.X, "iloc")
    table.X = table.X.iloc[labeled].reset_index(drop=True) if is_frame else table.X[labeled]
    table.y = table.y[labeled]
    for role in ("groups", "time", "ids", "images"):
        if getattr(table, role) is not None:
            setattr(table, role, getattr(table, role)[labeled])
    table.unused = {name: values[labeled] for name, values in table.unused.items()}
    return labeled


def _select_class_names(table: Table) -> list[str] | None:
    """Return the class names in the order of the sorted labels, or None."""
    names = table.class_names
    if names is None or table.y is None:
        return None
    present = np.unique(table.y)
    if len(present) == len(names):
        return names
    if present.dtype.kind in "iu" and present[0] >= 0 and present[-1] < len(names):
        return [names[code] for code in present]
    table.messages.append(
        f"target_names is not used: it has {len(names)} names for {len(present)} classes."
    )
    return None


def replace_labels(table: Table, labels: str | os.PathLike[str], column: str | None) -> None:
    """Replace the labels of a table with the labels in a separate file."""
    if table.y is not None:
        table.messages.append(
            f"The labels of {table.name} are not used, because --labels replaces them."
        )
    table.y, table.target = _read_labels(labels, len(table.X), column, table.messages)


def format_call(reader: Callable[..., Table], file: DataFile, options: dict[str, Any]) -> str:
    """Return the Python call that reads the file again, as source code."""
    passed = {key: value for key, value in options.items() if value is not None}
    texts = [str(v) if isinstance(v, os.PathLike) else v for v in passed.values()]
    arguments = "".join(f", {key}={text!r}" for key, text in zip(passed, texts, strict=True))
    return f"{reader.__name__}({file.source!r}{arguments})"


def _read_labels(
    source: str | os.PathLike[str], n: int, column: str | None, messages: list[str]
) -> tuple[NDArray[Any], str]:
    """Read labels from a separate file. Return the labels and the name of the file."""
    path = _locate(source)
    if path is None:
        raise ValueError(f"--labels {source}: expected a file with one label per row.")
    suffix = path.suffix.lower()
    if suffix in NUMPY:
        arrays = read_arrays(path)
        key = "X" if suffix == ".npy" else find_key(arrays, "y", column, path.name)
        if key is None and len(arrays) == 1:
            key = next(iter(arrays))
        if key is None:
            raise ValueError(
                f"{path.name} has no key 'y', 'target' or 'labels'; it has {join_names(arrays)}."
            )
        return check_one_per_row(
            arrays[key], "labels" if key == "X" else key, n, path.name
        ), path.name
    if is_parquet(path):
        frame, _, _ = _read_parquet(path, {"target": column}, messages)
        name = _find_label_column(list(frame.columns), column, path)
        return check_one_per_row(frame[name], name, n, path.name), path.name
    text = decode(path, messages)
    rows = [[line] for line in text.removesuffix("\n").split("\n")]
    if suffix != ".txt":
        rows = list(csv.reader(io.StringIO(text), delimiter=find_separator(get_first_lines(text))))
    rows = [[cell.strip() for cell in row] for row in rows]
    i, first, has_header = 0, rows[0], True
    if max(map(len, rows)) > 1:
        rows = [row for row in rows[1:] if row]
        i = first.index(_find_label_column(first, column, path))
    else:
        while len(rows) > n and not any(rows[-1]):
            rows.pop()
        # The first line is a header if the file has one line more than the data has rows, or if the
        # first line is a common name for a target column.
        name = first[0] if first else ""
        has_header = len(rows) == n + 1 or name.lower() in (*TARGET_NAMES, "labels")
        rows = rows[1:] if has_header else rows
    if len(rows) != n:
        # If the text of the first line does not occur again, it may be a header. The error message
        # then gives the number of labels with and without the first line.
        may_be_header = not has_header and first not in rows[1:] and not parse_numbers(first)
        alternative = (
            f" (or {len(rows) - 1} and the header '{first[0]}')" if may_be_header and first else ""
        )
        raise ValueError(f"{path.name} has {len(rows)} labels{alternative} for {n} rows of data.")
    return _parse_labels([row[i] if i < len(row) else "" for row in rows]), path.name


def _find_label_column(names: list[str], column: str | None, path: Path) -> str:
    if column is not None:
        if column not in names:
            raise ValueError(
                f"--target {column}: {path.name} has no such column."
                f"{suggest_name(column, names)} Its columns are {join_names(names)}."
            )
        return column
    named_columns = [name for name in names if name and not name.startswith("Unnamed: ")]
    matches = [name for name in named_columns if name.lower() in (*TARGET_NAMES, "labels")]
    if len(named_columns) == 1 or len(matches) == 1:
        return (matches or named_columns)[0]
    raise ValueError(
        f"{path.name} has several columns that could be the labels. Name one with --target. "
        f"Its columns are {join_names(names)}."
    )


def _parse_labels(cells: Sequence[str]) -> NDArray[Any]:
    labels = [None if cell in MISSING or cell == "?" else cell for cell in cells]
    present = [label for label in labels if label is not None]
    numbers = parse_numbers(present)
    # Labels with leading zeros, or with more digits than a float can represent, stay text.
    are_names = any(re.match(r"[+-]?(0\d|\d{16})", label) for label in present)
    if are_names or not present or len(numbers) < len(present):
        return np.array(labels, dtype=object)
    values = iter(numbers)
    return np.array([np.nan if label is None else next(values) for label in labels])
