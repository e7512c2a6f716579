"""Sets of vectors: data where each object is described by several vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Floats
from nearfar.blocks import check_mask, check_range
from nearfar.extras import import_optional
from nearfar.summaries.immutable import Immutable
from nearfar.words import format_count, join_names, suggest_name

_PARQUET = (".parquet", ".pq")
_TEXT = (".csv", ".tsv")


class Sets(Immutable):
    """Collection of sets of vectors, stored in one array with the position of each set.

    For example, an utterance is a set of frames, a patient a set of cells, and a document a set of
    word vectors. Set i is an array of shape (t_i, p). The number of vectors t_i may differ between
    sets, but p must be the same.

    The object is immutable. It has a length and can be indexed like an array: an integer returns
    the rows of one set; a slice, a mask or an array of indices returns ``Sets``. It can therefore
    be passed as X to ``train_test_split``, ``cross_val_score`` and ``GridSearchCV``.

    Parameters
    ----------
    X : array-like of shape (n_vectors, n_features)
        The vectors of all sets, one set after another. They must be finite. Arrays of float32 or
        float64 are not copied.
    offsets : array-like of int, shape (n_sets + 1,)
        Set i consists of the rows ``offsets[i]`` to ``offsets[i + 1] - 1`` of X. The offsets
        increase from 0 to ``n_vectors``.
    labels : array-like of shape (n_sets,), default=None
        Label of each set. Estimators do not read these labels; pass them to ``fit`` as ``y``.
    names : array-like of shape (n_sets,), default=None
        Name of each set, used in messages.

    Attributes
    ----------
    X, offsets, labels, names
        The parameters, read-only. X is float32 if it was passed as float32, else float64.
    sizes : ndarray of shape (n_sets,)
        The number of vectors of each set.
    n_features, n_vectors : int
        The number of features, and the total number of vectors.
    shape : tuple
        (n_sets, n_features).

    See Also
    --------
    nearfar.Gaussians : The mean and covariance of each set.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import Sets
    >>> sets = Sets.from_list([[[0, 1], [2, 3]], [[4, 5]], [[6, 7], [8, 9], [0, 0]]])
    >>> sets
    Sets(n_sets=3, n_features=2, n_vectors=6, sizes from 1 to 3)
    >>> sets[1]
    array([[4., 5.]])
    >>> sets[[2, 0]].sizes
    array([3, 2])
    >>> [len(rows) for rows in sets]
    [2, 1, 3]
    """

    X: Floats
    offsets: NDArray[np.intp]
    labels: NDArray[Any] | None
    names: NDArray[np.str_] | None

    def __init__(
        self,
        X: ArrayLike,
        offsets: ArrayLike,
        labels: ArrayLike | None = None,
        names: ArrayLike | None = None,
    ) -> None:
        rows = _check_rows(X, "X", "X")
        starts = _check_offsets(offsets, len(rows))
        n = len(starts) - 1
        checked_names = _check_per_set(names, "names", n, text=True)
        if not np.isfinite(rows).all():
            row = int(np.argmin(np.isfinite(rows).all(axis=1)))
            owner = int(np.searchsorted(starts, row, side="right")) - 1
            _raise_not_finite(_describe_set(owner, checked_names), rows[row], row - starts[owner])
        self._set(rows, starts, _check_per_set(labels, "labels", n), checked_names)

    def _set(self, X: Any, offsets: Any, labels: Any, names: Any) -> None:
        fields = {"X": X, "offsets": offsets, "labels": labels, "names": names}
        for name, value in fields.items():
            if value is not None:
                value = value.view()
                value.flags.writeable = False
            vars(self)[name] = value

    @classmethod
    def _of(cls, X: Any, offsets: Any, labels: Any, names: Any) -> Self:
        """Create sets from fields without checking them."""
        sets = cls.__new__(cls)
        sets._set(X, offsets, labels, names)
        return sets

    # ------------------------------------------------------------------ constructors

    @classmethod
    def from_list(
        cls,
        arrays: Iterable[ArrayLike],
        labels: ArrayLike | None = None,
        names: ArrayLike | None = None,
    ) -> Self:
        """Create sets from a list of arrays of shape (t_i, p) or an array of shape (n, t, p).

        Parameters
        ----------
        arrays : iterable of array-like
            One array per set.
        labels, names : array-like of shape (n_sets,), default=None
            Label and name of each set, as in :class:`Sets`.

        Returns
        -------
        Sets

        Raises
        ------
        ValueError
            If a set is empty, is not two-dimensional, differs from the first set in the number of
            features, or contains NaN or infinity. The message names the set.

        Examples
        --------
        >>> from nearfar import Sets
        >>> Sets.from_list([[[0.0, 1.0]], [[1.0, 2.0, 3.0]]])
        Traceback (most recent call last):
        ...
        ValueError: Set 1 has vectors of 3 features, but set 0 has 2; they must match.
        """
        array_list = list(arrays)
        if not array_list:
            raise ValueError("arrays is empty; pass at least one array of shape (t, p).")
        checked_names = _check_per_set(names, "names", len(array_list), text=True)
        vectors: list[Floats] = []
        for k, array in enumerate(array_list):
            title = _describe_set(k, checked_names)
            rows = _check_rows(array, title, "a set")
            if vectors and rows.shape[1] != vectors[0].shape[1]:
                raise ValueError(
                    f"{title} has vectors of {format_count(rows.shape[1], 'feature')}, but "
                    f"{_describe_set(0, checked_names).lower()} has {vectors[0].shape[1]}; they "
                    "must match."
                )
            if len(rows) == 0:
                raise ValueError(f"{title} is empty: it has no vectors. Remove it and its label.")
            bad = ~np.isfinite(rows).all(axis=1)
            if bad.any():
                row = int(np.argmax(bad))
                _raise_not_finite(title, rows[row], row)
            vectors.append(rows)
        X = np.concatenate(vectors)
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in vectors])]).astype(np.intp)
        return cls._of(X, offsets, _check_per_set(labels, "labels", len(vectors)), checked_names)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        by: str | int | Sequence[str | int],
        *,
        label: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Self:
        """Create sets from a pandas DataFrame in long format, with one vector per row.

        Parameters
        ----------
        frame : pandas.DataFrame
            Table with one vector per row.
        by : str or int, or list of them
            One or several columns that identify the set of each row. The rows of a set need not be
            consecutive. Sets are ordered by their first rows.
        label : str, default=None
            Column with the labels of the sets. All rows of a set must have the same label.
        columns : list of str, default=None
            Feature columns; by default all other columns. A single column may hold whole vectors,
            as lists or arrays.

        Returns
        -------
        Sets
            The sets, with the values of ``by`` as names (joined by "/" for several columns).

        Examples
        --------
        >>> import pandas as pd
        >>> from nearfar import Sets
        >>> frame = pd.DataFrame({"utterance": ["u", "v", "u"], "a": [1, 2, 3], "b": [0, 1, 0]})
        >>> sets = Sets.from_frame(frame, by="utterance")
        >>> sets.names.tolist(), sets[0].tolist()
        (['u', 'v'], [[1.0, 0.0], [3.0, 0.0]])
        """
        if not hasattr(frame, "groupby"):
            raise TypeError(f"frame must be a pandas DataFrame; got {type(frame).__name__}.")
        keys = [by] if isinstance(by, str | int) else list(by)
        column_names = list(frame.columns)
        if not frame.columns.is_unique:
            duplicates = frame.columns[frame.columns.duplicated()]
            raise ValueError(
                "Column names of frame must be unique; found duplicates of "
                f"{join_names(duplicates)}."
            )
        required = keys + ([] if label is None else [label]) + list(columns or [])
        for name in required:
            if name not in column_names:
                raise ValueError(
                    f"Column {name!r} not found; the columns are {join_names(column_names)}."
                    f"{suggest_name(name, column_names)}"
                )
        if not len(frame):
            raise ValueError("frame is empty; it must have at least one row.")
        for key in keys:
            missing = frame[key].isna().to_numpy()
            if missing.any():
                raise ValueError(
                    f"Column {key!r} must name the set of each row, but row "
                    f"{int(np.argmax(missing))} has no value "
                    f"({format_count(int(missing.sum()), 'value')} missing)."
                )
        if columns is None:
            columns = [name for name in column_names if name not in keys and name != label]
        if not len(columns):
            raise ValueError("frame has no feature columns besides the columns in by and label.")
        X = _read_vectors(frame, list(columns))
        codes = frame.groupby(keys, sort=False, observed=True).ngroup().to_numpy()
        order = np.argsort(codes, kind="stable")
        sizes = np.bincount(codes)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        first = order[offsets[:-1]]
        key_values = [frame[key].to_numpy()[first] for key in keys]
        names = np.array(["/".join(map(str, values)) for values in zip(*key_values, strict=True)])
        labels = None
        if label is not None:
            column = frame[label]
            values = column.to_numpy()
            labels = values[first]
            # Compare category codes, because labels may be text, numbers or missing.
            label_codes = column.astype("category").cat.codes.to_numpy()
            differs = label_codes != label_codes[first][codes]
            if differs.any():
                k = int(codes[np.argmax(differs)])
                raise ValueError(
                    f"{_describe_set(k, names)} has more than one label in column {label!r}: "
                    f"{join_names(dict.fromkeys(values[codes == k].tolist()), 3)}."
                )
        return cls(X[order], offsets, labels, names)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        by: str | Sequence[str] | None = None,
        label: str | None = None,
    ) -> Self:
        """Load sets from a file.

        Parameters
        ----------
        path : path
            A ``.npz``, Parquet, CSV or TSV file; see Notes.
        by : str or list of str, default=None
            Columns that identify the set of each row, as in :meth:`from_frame`. Required for tables
            with one vector per row.
        label : str, default=None
            Column with the labels. By default, a Parquet file with one set per row uses the column
            "label" if there is one.

        Returns
        -------
        Sets

        Notes
        -----
        The file has one of these formats:

        - ``.npz`` with the arrays ``X`` and ``offsets`` and, optionally, ``labels`` (or ``y``) and
          ``names``;
        - Parquet with one set per row, in one column of lists of vectors, and optionally a column
          of labels and a column ``name``;
        - Parquet, CSV or TSV with one vector per row, if ``by`` is given.
        """
        file = Path(path)
        suffix = file.suffix.lower()
        if suffix == ".npz":
            if by is not None or label is not None:
                raise ValueError(
                    "by and label cannot be used with an .npz file, which stores the labels in the "
                    "array 'labels'."
                )
            return cls._from_npz(file)
        if suffix not in _PARQUET + _TEXT:
            raise ValueError(f"path must end in .npz, .parquet, .csv or .tsv; got {file.name!r}.")
        if by is not None:
            pandas = import_optional("pandas", "app")
            if suffix in _PARQUET:
                frame = pandas.read_parquet(file)
            else:
                frame = pandas.read_csv(file, sep="\t" if suffix == ".tsv" else ",")
            return cls.from_frame(frame, by, label=label)
        if suffix in _TEXT:
            raise ValueError(
                f"{file.name} has one vector per row. Pass by=..., the column that identifies the "
                "set of each row."
            )
        return cls._from_parquet(file, label)

    @classmethod
    def _from_npz(cls, file: Path) -> Self:
        with np.load(file, allow_pickle=False) as arrays:
            for name in ("X", "offsets"):
                if name not in arrays:
                    raise ValueError(
                        f"{file.name} has no array {name!r}; it has {join_names(arrays.files)}. "
                        "Sets "
                        "need X, the vectors of all sets, and offsets, the start of each set in X."
                    )
            try:
                loaded = {name: arrays[name] for name in arrays.files if name in _NPZ_ARRAYS}
            except ValueError:
                raise ValueError(
                    f"{file.name} holds Python objects, which are not loaded for security. Save "
                    "labels and names as arrays of numbers or text (astype(str))."
                ) from None
        labels = loaded.get("labels", loaded.get("y"))
        X = loaded["X"]
        if X.dtype.kind not in "f" or X.dtype.itemsize < 4:
            X = X.astype(np.float32 if X.dtype.kind == "f" else np.float64)
        return cls(X, loaded["offsets"], labels, loaded.get("names"))

    @classmethod
    def _from_parquet(cls, file: Path, label: str | None) -> Self:
        parquet, arrow = (
            import_optional("pyarrow.parquet", "app"),
            import_optional("pyarrow", "app"),
        )
        table = parquet.read_table(file)
        nested = [
            field.name
            for field in table.schema
            if _is_list(arrow, field.type) and _is_list(arrow, field.type.value_type)
        ]
        if len(nested) != 1:
            raise ValueError(
                f"{file.name} should have one column of lists of vectors, with one set per row; "
                f"found {len(nested)} such columns among {join_names(table.column_names)}. For a "
                "table with one vector per row, pass by=..."
            )
        if label is None and "label" in table.column_names:
            label = "label"
        elif label is not None and label not in table.column_names:
            raise ValueError(
                f"Column {label!r} not found; the columns are {join_names(table.column_names)}."
                f"{suggest_name(label, table.column_names)}"
            )
        names = table["name"].to_pylist() if "name" in table.column_names else None
        labels = None if label is None else np.array(table[label].to_pylist())
        lists = table[nested[0]].to_pylist()
        texts = None if names is None else np.array(names, dtype=str)
        for k, rows in enumerate(lists):
            if rows is None or not len(rows):
                raise ValueError(
                    f"{_describe_set(k, texts)} is empty: it has no vectors. Remove it and its "
                    "label."
                )
        sets = cls.from_list(lists, labels, names)
        leaf = table.schema.field(nested[0]).type
        while _is_list(arrow, leaf):
            leaf = leaf.value_type
        if arrow.types.is_float32(leaf):
            return cls(sets.X.astype(np.float32), sets.offsets, sets.labels, sets.names)
        return sets

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the sets to an ``.npz`` or a Parquet file, which :meth:`load` can read.

        Parameters
        ----------
        path : path
            The file to write. Parquet files have one row per set, with the column ``vectors`` (a
            list of lists) and, if present, ``label`` and ``name``.
        """
        file = Path(path)
        suffix = file.suffix.lower()
        labels = self.labels
        if labels is not None and labels.dtype == object:
            labels = np.array([str(label) for label in labels])
        if suffix == ".npz":
            arrays = {"X": self.X, "offsets": self.offsets, "labels": labels, "names": self.names}
            np.savez_compressed(file, **{k: v for k, v in arrays.items() if v is not None})  # type: ignore[arg-type]
        elif suffix in _PARQUET:
            parquet, arrow = (
                import_optional("pyarrow.parquet", "app"),
                import_optional("pyarrow", "app"),
            )
            vectors = arrow.FixedSizeListArray.from_arrays(
                arrow.array(self.X.reshape(-1)), self.n_features
            )
            starts = arrow.array(self.offsets.astype(np.int64))
            columns = {"vectors": arrow.LargeListArray.from_arrays(starts, vectors)}
            if labels is not None:
                columns["label"] = arrow.array(labels.tolist())
            if self.names is not None:
                columns["name"] = arrow.array(self.names.tolist())
            parquet.write_table(arrow.table(columns), file)
        else:
            raise ValueError(f"path must end in .npz or .parquet; got {file.name!r}.")

    @classmethod
    def concatenate(cls, parts: Iterable[Sets]) -> Self:
        """Concatenate several ``Sets``.

        Labels and names are kept if all parts have them.

        Parameters
        ----------
        parts : iterable of Sets
            Sets with the same number of features.

        Returns
        -------
        Sets

        Examples
        --------
        >>> from nearfar import Sets
        >>> a, b = Sets.from_list([[[1.0]]], ["x"]), Sets.from_list([[[2.0], [3.0]]], ["y"])
        >>> Sets.concatenate([a, b]).labels.tolist()
        ['x', 'y']
        """
        set_list = list(parts)
        if not set_list:
            raise ValueError("parts is empty; pass at least one Sets object.")
        for k, part in enumerate(set_list):
            if not isinstance(part, Sets):
                raise TypeError(f"parts[{k}] must be Sets; got {type(part).__name__}.")
            if part.n_features != set_list[0].n_features:
                raise ValueError(
                    f"parts[{k}] has {format_count(part.n_features, 'feature')}, but parts[0] has "
                    f"{set_list[0].n_features}; they must match."
                )
        shifts = np.cumsum([0] + [part.n_vectors for part in set_list])
        offsets = [part.offsets[:-1] + shift for part, shift in zip(set_list, shifts, strict=False)]
        return cls._of(
            np.concatenate([part.X for part in set_list]),
            np.concatenate([*offsets, shifts[-1:]]).astype(np.intp),
            _concatenate_optional([part.labels for part in set_list]),
            _concatenate_optional([part.names for part in set_list]),
        )

    # ------------------------------------------------------------------ sequence interface

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Number of vectors of each set."""
        return np.diff(self.offsets)

    @property
    def n_features(self) -> int:
        """Number of features of the vectors."""
        return int(self.X.shape[1])

    @property
    def n_vectors(self) -> int:
        """Total number of vectors of all sets."""
        return len(self.X)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of sets and number of features."""
        return len(self), self.n_features

    def describe(self, k: int) -> str:
        """Return a description of set k for messages.

        Parameters
        ----------
        k : int
            The index of the set.
        """
        return _describe_set(k, self.names)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Floats]:
        for k in range(len(self)):
            yield self.X[self.offsets[k] : self.offsets[k + 1]]

    @overload
    def __getitem__(self, key: int) -> Floats: ...
    @overload
    def __getitem__(self, key: Any) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        key = get_row_key(key, "Sets")
        if isinstance(key, Integral) and not isinstance(key, bool):
            k = check_index(int(key), len(self))
            return self.X[self.offsets[k] : self.offsets[k + 1]]
        rows = convert_key(key, len(self))
        sizes = self.sizes[rows]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
            X = self.X[self.offsets[rows[0]] : self.offsets[rows[-1] + 1]]
        else:
            vectors = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], sizes)
            X = self.X[vectors]
        return self._of(
            X,
            offsets,
            None if self.labels is None else self.labels[rows],
            None if self.names is None else self.names[rows],
        )

    def __repr__(self) -> str:
        extras = "".join(
            f", {name}" for name in ("labels", "names") if getattr(self, name) is not None
        )
        sizes = self.sizes
        span = f", sizes from {sizes.min()} to {sizes.max()}" if len(self) else ""
        return (
            f"Sets(n_sets={len(self)}, n_features={self.n_features}, n_vectors={self.n_vectors}"
            f"{span}{', with' * bool(extras)}{extras.replace(',', '', 1)})"
        )

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(
            "Sets cannot be converted to a single array. Use .X and .offsets, or an estimator that "
            "accepts sets."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled arrays are writeable when loaded; _of makes them read-only again.
        return type(self)._of, (self.X, self.offsets, self.labels, self.names)


_NPZ_ARRAYS = ("X", "offsets", "labels", "y", "names")


def as_sets(X: Any) -> Sets:
    """Convert a list of arrays or an array of shape (n, t, p) to Sets; return Sets unchanged.

    >>> as_sets(np.zeros((3, 4, 2)))
    Sets(n_sets=3, n_features=2, n_vectors=12, sizes from 4 to 4)
    """
    if isinstance(X, Sets):
        if not len(X):
            raise ValueError("X has 0 set(s); at least one is required.")
        check_range(X.X, "X", small=False)
        return X
    if isinstance(X, np.ndarray) and X.dtype != object and X.ndim != 3:
        raise ValueError(
            f"X must be Sets, a list of arrays of shape (t, p) or an array of shape (n, t, p); got "
            f"an array of shape {X.shape}."
        )
    if isinstance(X, str | bytes) or not isinstance(X, Iterable) or hasattr(X, "columns"):
        raise TypeError(
            f"X must be Sets, a list of arrays of shape (t, p) or an array of shape (n, t, p); got "
            f"{type(X).__name__}. For a DataFrame, use Sets.from_frame."
        )
    arrays = list(X)
    if not arrays:
        raise ValueError("X has 0 set(s); at least one is required.")
    sets = Sets.from_list(arrays)
    check_range(sets.X, "X", small=False)
    return sets


# ---------------------------------------------------------------------- checks


def convert_key(key: Any, n: int) -> NDArray[np.intp]:
    """Return the indices that a slice, a mask or an index array selects from n items."""
    if isinstance(key, slice):
        return np.arange(*key.indices(n))
    array = np.asarray(key)
    if array.size == 0 and array.ndim == 1 and array.dtype != bool:
        return np.empty(0, np.intp)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise IndexError(
            "The index must be an integer, a slice, a mask or an array of integers; got "
            f"{type(key).__name__}."
        )
    if array.dtype == bool:
        if len(array) != n:
            raise IndexError(f"The mask has {len(array)} entries, but there are {n} items.")
        return np.flatnonzero(array)
    outside = (array < -n) | (array >= n)
    if outside.any():
        raise IndexError(f"Index {array[np.argmax(outside)]} is out of range for {n} items.")
    return np.where(array < 0, array + n, array).astype(np.intp)


def get_row_key(key: Any, noun: str) -> Any:
    """Return the index along the first axis, from ``X[indices]`` or ``X[indices, ...]``."""
    if isinstance(key, tuple):
        if len(key) == 2 and key[1] is Ellipsis:
            return key[0]
        raise IndexError(f"{noun} can be indexed along one axis only; got {len(key)} indices.")
    return key


def check_index(k: int, n: int) -> int:
    """Return a non-negative index, after checking its range."""
    if not -n <= k < n:
        raise IndexError(f"Index {k} is out of range for {n} items.")
    return k % n


def _check_rows(values: Any, title: str, noun: str) -> Floats:
    """Return values as an array of shape (t, p), in float32 or float64."""
    check_mask(values, title)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "f" or array.dtype.itemsize not in (4, 8):
            if array.dtype.kind not in "biufO":
                raise ValueError(array.dtype)
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(
            f"{title} is not an array of numbers; {noun} must have shape (t, p), with one vector "
            "per row."
        ) from None
    if array.ndim == 2 and array.shape[1] == 0 and len(array):
        raise ValueError(f"{title} has vectors of 0 features; at least one is required.")
    # An empty list is a set without vectors.
    if array.ndim == 1 and array.size == 0:
        raise ValueError(f"{title} is empty: it has no vectors. Remove it and its label.")
    if array.ndim != 2:
        hint = " For a set of one vector v, pass [v]." if array.ndim == 1 else ""
        raise ValueError(
            f"{title} has shape {array.shape}; {noun} must have shape (t, p), with one vector "
            f"per row.{hint}"
        )
    return array


def _read_vectors(frame: Any, columns: list[Any]) -> NDArray[np.float64]:
    """Return the vectors from numeric columns, or from a single column that holds vectors."""
    text = [name for name in columns if getattr(frame[name].dtype, "kind", "O") not in "biuf"]
    if not text:
        values: NDArray[np.float64] = frame[columns].to_numpy(dtype=np.float64, na_value=np.nan)
        return values
    if len(columns) == 1 and isinstance(frame[text[0]].iloc[0], list | tuple | np.ndarray):
        try:
            return np.array([np.asarray(v, np.float64) for v in frame[text[0]]])
        except (TypeError, ValueError):
            raise ValueError(
                f"Column {text[0]!r} must hold vectors of numbers, all of the same length."
            ) from None
    raise ValueError(
        f"Feature columns must be numeric; {join_names(text)} are not. Select features with "
        "columns=..., or encode them first."
    )


def _check_offsets(offsets: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    array = np.asarray(offsets)
    if array.ndim != 1 or len(array) < 1 or array.dtype.kind not in "iu":
        raise ValueError(
            "offsets must be an array of integers with shape (n_sets + 1,), from 0 to the number "
            f"of vectors; got an array of shape {array.shape} and dtype {array.dtype}."
        )
    starts: NDArray[np.intp] = array.astype(np.intp)
    if starts[0] != 0 or starts[-1] != n_rows:
        raise ValueError(
            f"offsets must run from 0 to the number of rows of X, {n_rows}; got offsets from "
            f"{starts[0]} to {starts[-1]}."
        )
    sizes = np.diff(starts)
    if (sizes < 1).any():
        k = int(np.argmax(sizes < 1))
        raise ValueError(
            f"Set {k} is empty: offsets[{k}] is {starts[k]} and offsets[{k + 1}] is "
            f"{starts[k + 1]}. Remove it and its label."
        )
    return starts


def _check_per_set(values: Any, name: str, n: int, *, text: bool = False) -> NDArray[Any] | None:
    """Return labels or names as an array, after checking that there is one per set."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.ndim != 1 or len(array) != n:
        raise ValueError(
            f"{name} must have one entry per set; got shape {array.shape} for "
            f"{format_count(n, 'set')}."
        )
    return array.astype(str) if text and array.dtype.kind != "U" else array


def _describe_set(k: int, names: NDArray[Any] | None) -> str:
    return f"Set {k}" if names is None else f"Set {k} ({str(names[k])!r})"


def _raise_not_finite(title: str, vector: Floats, row: int) -> NoReturn:
    column = int(np.argmin(np.isfinite(vector)))
    raise ValueError(
        f"{title} holds {vector[column]} (vector {row}, feature {column}); values must be finite. "
        "Remove or impute this value."
    )


def _is_list(arrow: Any, type_: Any) -> bool:
    types = arrow.types
    return bool(
        types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_)
    )


def _concatenate_optional(arrays: list[NDArray[Any] | None]) -> NDArray[Any] | None:
    present = [array for array in arrays if array is not None]
    if len(present) < len(arrays):
        return None
    if len({array.dtype.kind == "U" for array in present}) > 1:
        # Concatenating text and numbers would convert the numbers to text.
        present = [array.astype(object) for array in present]
    return np.concatenate(present)
