"""Reader for sets of vectors: long tables with a set-ID column, NumPy files, Parquet.

As for other tables, decisions made while reading are kept in ``Table.messages``. Each item of the
table is a set, and its X is a :class:`~nearfar.Sets`.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.array_files import find_key, read_feature_names
from nearfar.datasets.sides import check_groups
from nearfar.datasets.table import (
    Table,
    check_one_per_row,
    decode_strings,
    find_missing,
    is_missing,
    tidy_labels,
)
from nearfar.datasets.tables import (
    DataFile,
    format_call,
    open_data_file,
    read_table,
    replace_labels,
)
from nearfar.extras import import_optional
from nearfar.summaries.sets import Sets
from nearfar.words import format_count, join_names, suggest_name

#: Column names that suggest a table with one row per vector. Names are compared in lowercase and
#: without characters that are not letters.
_SET_NAMES = {"setid", "bagid", "clipid", "recordingid", "utteranceid", "utterance"}


def read_sets(
    source: str | os.PathLike[str] | DataFile,
    *,
    by: str | None = None,
    target: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    groups: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    vector: str | None = None,
    need_target: bool = True,
    min_vectors: int = 1,
) -> Table:
    """Read sets of vectors from a file into a Table whose X is a Sets.

    Parameters
    ----------
    source : str or path
        A .csv, .tsv, .txt, .parquet or .npz file. See Notes for the layouts.
    by : str, optional
        Column of a long table that contains the set ID of each row.
    target : str, optional
        Column, or key, with the labels. All rows of a set must have the same label. None selects
        the column named target, label, class or y.
    labels : str or path, optional
        Separate file with one label per set, used instead of `target`.
    groups : str, optional
        Column, or key, with the groups, such as speakers or subjects. All rows of a set must have
        the same group.
    drop : sequence of str
        Columns that are not used as features.
    features : sequence of str, optional
        Columns of a long table to use as features, in this order. None uses all other columns.
    vector : str, optional
        Column of a long table with one vector per row. None selects the only such column.
    need_target : bool, default=True
        If True, raise if the target is missing, and drop sets with a missing label.
    min_vectors : int, default=1
        Minimum number of vectors per set. A smaller set raises an error.

    Returns
    -------
    Table
        X is a ``Sets``. For a long table, the names of the sets are the values of `by`.

    Notes
    -----
    - *Long table* (CSV, TSV, Parquet): one row per vector. `by` names the column with the set of
      each row. The rows of a set need not be adjacent, and sets are ordered by their first row. All
      columns that no parameter names are features, unless one column stores lists of numbers: then
      these vectors are the features.
    - *.npz file*: the array ``X`` contains the vectors of all sets, one set after another, and
      ``offsets`` the start of each set followed by the total number of vectors. Optional arrays are
      ``y`` or ``labels``, ``groups`` and ``names`` with one value per set, and ``feature_names``.
    - *Parquet with one row per set*: a column of lists of lists, as :meth:`nearfar.Sets.save`
      writes it.

    Examples
    --------
    >>> import tempfile
    >>> from nearfar.datasets import make_sets
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     make_sets(random_state=0).save(Path(folder) / "sets.npz")
    ...     table = read_sets(Path(folder) / "sets.npz")
    >>> table.X.shape, table.y[:2].tolist()
    ((60, 4), [0, 0])
    """
    file = open_data_file(source)
    path = file.path
    if path is None:
        raise ValueError(
            f"--set-id {by}: the built-in dataset '{file.source}' contains rows, not sets."
        )
    requested = {"target": None if labels is not None else target, "groups": groups}
    if vector is not None and (by is None or file.arrays is not None):
        raise ValueError(
            f"--vector {vector} is only for tables with one row per vector, but {path.name} has "
            "one row per set."
        )
    if file.arrays is not None:
        table = _convert_arrays(path.name, file.arrays, by, requested)
    elif by is not None:
        table = _read_long_table(
            file, by, requested, drop, features, vector, guess_target=labels is None
        )
    elif file.has_sets:
        table = _read_lists(path, requested)
    else:
        raise ValueError(
            f"{path.name} has one row per vector. Use --set-id COL (in Python: by=...) to name the "
            "column that contains the set of each row."
        )
    if by is None and drop:
        _drop_features(table, drop)
    if labels is not None:
        replace_labels(table, labels, target)
    if table.y is None and need_target:
        _fail_without_labels(table)
    labeled = np.arange(len(table.X))
    if table.y is not None and need_target:
        labeled = _drop_unlabeled(table)
        table.y = tidy_labels(table.y)
    check_groups(table, labeled)
    _check_sizes(table, min_vectors)
    options: dict[str, Any] = {"by": by, "target": target, "labels": labels, "groups": groups}
    options |= {
        "vector": vector,
        "drop": list(drop) or None,
        "need_target": None if need_target else False,
    }
    table.source = format_call(read_sets, file, options)
    return table


def check_not_sets(table: Table, used_columns: Sequence[str]) -> None:
    """Raise if the name of an unused column suggests that the rows belong to sets."""
    for name in getattr(table.X, "columns", ()):
        if re.sub(r"[^a-z]", "", str(name).lower()) not in _SET_NAMES or name in used_columns:
            continue
        n_values = table.X[name].nunique(dropna=False)
        if n_values <= len(table.X) / 2:
            raise ValueError(
                f"{table.name} looks like sets of vectors: {n_values:,} values of '{name}' in "
                f"{format_count(len(table.X), 'row')}. To read the rows of each value as one set, "
                f"add --set-id {name}. To use every row on its own, add --drop {name}."
            )


# Long tables


def _read_long_table(
    file: DataFile,
    by: str,
    requested: dict[str, Any],
    drop: Sequence[str],
    requested_features: Sequence[str] | None,
    vector: str | None,
    *,
    guess_target: bool,
) -> Table:
    long = read_table(
        file, **requested, vector=vector, need_target=False, guess_target=guess_target
    )
    frame, source = long.X, long.name
    if not hasattr(
        frame, "columns"
    ):  # One column contains the vectors, and no other column is used as a feature.
        frame = import_optional("pandas", "app").DataFrame(long.X, columns=long.feature_names)
        missing = [name for name in (by, *drop) if name not in long.unused]
        if missing:
            raise ValueError(
                f"--{'set-id' if missing[0] == by else 'drop'} {missing[0]}: {source} has no such "
                f"column.{suggest_name(missing[0], long.unused)} In addition to the vectors, it "
                f"has {join_names(long.unused)}."
            )
        frame[by], drop = long.unused[by], ()
    if frame.columns[0] == "column 0" and re.fullmatch(r"\d+", by):
        by = f"column {int(by)}"
    for option, name in (("--target", long.target), ("--groups", long.groups_name)):
        if name == by:
            raise ValueError(
                f"Column '{by}' cannot be both --set-id and {option}. Name a different column for "
                "one of them."
            )
    for option, name in (("--set-id", by), *(("--drop", name) for name in drop)):
        if name not in frame.columns:
            raise ValueError(
                f"{option} {name}: {source} has no such column."
                f"{suggest_name(name, frame.columns)} Its columns are {join_names(frame.columns)}."
            )
    features = [name for name in frame.columns if name != by and name not in drop]
    if requested_features is not None:
        missing = [name for name in requested_features if name not in features]
        if missing:
            raise ValueError(
                f"{source} does not have "
                f"{join_names(missing)}.{suggest_name(missing[0], features)} It has "
                f"{join_names(features)}."
            )
        features = list(requested_features)
    text = [name for name in features if frame[name].dtype.kind not in "biuf"]
    if text:
        raise ValueError(
            f"{source}: the vectors of sets must be numbers, but {join_names(text, 5)} "
            f"{'holds' if len(text) == 1 else 'hold'} text. Use --drop {shlex.quote(text[0])} "
            "to drop columns that are not features."
        )
    if not features:
        raise ValueError(f"{source} has no feature columns in addition to '{by}'.")
    table = Table(source, Sets.from_frame(frame, by, columns=features), feature_names=features)
    table.messages = [text for text in long.messages if not text.startswith("Groups: ")]
    table.messages += [f"Dropped: {join_names(drop)}, as requested."] * bool(drop)
    codes = frame.groupby(by, sort=False, observed=True).ngroup().to_numpy()
    if long.y is not None:
        table.y = _reduce_to_sets(long.y, codes, table.X, f"label in column '{long.target}'")
        table.target = long.target
    if long.groups is not None:
        description = f"group in column '{long.groups_name}'"
        table.groups = _reduce_to_sets(long.groups, codes, table.X, description)
        table.groups_name = long.groups_name
    return table


def _reduce_to_sets(
    values: NDArray[Any], codes: NDArray[np.intp], sets: Sets, description: str
) -> NDArray[Any]:
    """Return one value per set. Raises if the rows of a set have different values."""
    values = np.asarray(values)
    first = np.unique(codes, return_index=True)[1]
    missing = find_missing(values)
    differs = (values != values[first][codes]) & ~(missing & missing[first][codes])
    differs = np.asarray(differs, bool) | (missing != missing[first][codes])
    if differs.any():
        k = int(codes[np.argmax(differs)])
        set_values = dict.fromkeys(
            "none" if is_missing(value) else str(value) for value in values[codes == k].tolist()
        )
        raise ValueError(
            f"{sets.describe(k)} has more than one {description}: {join_names(set_values, 3)}. All "
            "rows of a set must have the same value."
        )
    return np.asarray(values[first])


# Files that define the sets themselves


def _convert_arrays(
    source: str, arrays: dict[str, Any], by: str | None, requested: dict[str, str | None]
) -> Table:
    if "offsets" not in arrays:
        hint = ", and --set-id is only for tables" if by is not None else ""
        raise ValueError(
            f"{source} has no key 'offsets' with the start of each set{hint}. Its keys are "
            f"{join_names(arrays)}. Use nearfar.Sets.save to write such a file."
        )
    if by is not None:
        raise ValueError(
            f"--set-id {by}: {source} already defines the start of each set in its key 'offsets'. "
            "Omit --set-id."
        )
    x = find_key(arrays, "X", None, source)
    if x is None:
        raise ValueError(f"{source} has no key 'X' or 'data'. Its keys are {join_names(arrays)}.")
    names = None if "names" not in arrays else decode_strings(arrays["names"])
    try:
        sets = Sets(arrays[x], arrays["offsets"], names=names)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    table = Table(source, sets, feature_names=read_feature_names(arrays, sets.n_features, source))
    for role, option in (("y", "target"), ("groups", "groups")):
        key = find_key(arrays, role, requested[option], source)
        if key is not None:
            values = check_one_per_row(arrays[key], key, len(sets), source)
            if role == "y":
                table.y, table.target = values, key
            else:
                table.groups, table.groups_name = values, key
    return table


def _read_lists(path: Path, requested: dict[str, str | None]) -> Table:
    """Read a Parquet file with one row per set into a Table."""
    try:
        sets = Sets.load(path, label=requested["target"])
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    table = Table(path.name, Sets(sets.X, sets.offsets, names=sets.names), sets.labels)
    table.target = None if sets.labels is None else requested["target"] or "label"
    column = requested["groups"]
    if column is not None:
        parquet_table = import_optional("pyarrow.parquet", "app").read_table(path)
        if column not in parquet_table.column_names:
            raise ValueError(
                f"--groups {column}: {path.name} has no such column."
                f"{suggest_name(column, parquet_table.column_names)} Its columns are "
                f"{join_names(parquet_table.column_names)}."
            )
        table.groups = np.array(parquet_table[column].to_pylist(), dtype=object)
        table.groups_name = column
    return table


def _drop_features(table: Table, drop: Sequence[str]) -> None:
    names = table.feature_names or [f"column {i}" for i in range(table.X.n_features)]
    unknown = [name for name in drop if name not in names]
    if unknown:
        raise ValueError(
            f"--drop {unknown[0]}: {table.name} has no such column."
            f"{suggest_name(unknown[0], names)} Its columns are {join_names(names)}."
        )
    kept_columns = [i for i, name in enumerate(names) if name not in drop]
    if not kept_columns:
        raise ValueError(f"{table.name} has no feature columns: --drop removes all of them.")
    table.feature_names = [names[i] for i in kept_columns]
    table.X = Sets(table.X.X[:, kept_columns], table.X.offsets, names=table.X.names)
    table.messages.append(f"Dropped: {join_names(drop)}, as requested.")


# Checks


def _fail_without_labels(table: Table) -> NoReturn:
    label_option = "--labels FILE with one label per set"
    if table.name.lower().endswith(".npz"):
        raise ValueError(
            f"{table.name} has no labels. Pass {label_option}, save them as the key 'labels', or "
            "use nearfar embed, which needs no labels."
        )
    raise ValueError(
        f"{table.name}: the column that contains the labels of the sets is not known. Name it with "
        f"--target, or pass {label_option}. Its features are "
        f"{join_names(table.feature_names or ())}."
    )


def _drop_unlabeled(table: Table) -> NDArray[np.intp]:
    assert table.y is not None
    missing = find_missing(table.y)
    labeled = np.flatnonzero(~missing)
    if not len(labeled):
        raise ValueError(f"{table.name}: the target '{table.target}' is missing in every set.")
    if len(labeled) < len(missing):
        first = table.X.describe(int(np.argmax(missing)))
        table.messages.append(
            f"Dropped {format_count(int(missing.sum()), 'set')} without a label (first: {first})."
        )
        table.X, table.y = table.X[labeled], table.y[labeled]
        table.groups = None if table.groups is None else table.groups[labeled]
    return labeled


def _check_sizes(table: Table, min_vectors: int) -> None:
    is_small = table.X.sizes < min_vectors
    if is_small.any():
        k = int(np.argmax(is_small))
        raise ValueError(
            f"{table.name}: {table.X.describe(k)} has "
            f"{format_count(int(table.X.sizes[k]), 'vector')}. Found "
            f"{format_count(int(is_small.sum()), 'set')} with fewer than {min_vectors} vectors, "
            "which is too few for a covariance. Remove these sets, or keep them with --min-vectors "
            "1 (a set with a single vector is then described by its mean only)."
        )
