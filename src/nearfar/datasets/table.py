"""A table in memory: rows, labels, and what goes with them; and what its columns' values are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.labels import is_na
from nearfar.summaries.sets import Sets


@dataclass
class Table:
    """Rows, their labels, and what was decided while reading them.

    Attributes
    ----------
    name : str
        'wine', or the file's name.
    X : DataFrame, ndarray of shape (n_samples, n_features) or Sets
        A DataFrame from CSV, TSV and Parquet, else an array of floats, as of a column of vectors;
        or sets of vectors.
    y : ndarray of shape (n_samples,) or None
        Labels as they are in the file.
    target : str or None
        Where the labels come from: a column, a key or a file.
    groups, groups_name : ndarray and str, or None
        The group of each row.
    time, time_name : ndarray of int64 or float64 and str, or None
        Numbers to sort the rows by; dates are microseconds since 1970.
    ids, id_name : ndarray and str, or None
        The id of each row, no two alike.
    vector : str or None
        The column whose vectors are X.
    others : dict of ndarray
        Columns beside a column of vectors, or keys of an .npz, that are not used.
    feature_names : list of str or None
        Names of an array's columns.
    class_names : list of str or None
        Names of the classes, in the order of the sorted labels.
    tensor_shape : tuple of int or None
        (d1, ..., dk) where each row is a tensor of these sizes, written out in the order of C.
    images : ndarray of shape (n_samples, height, width) or (n_samples, height, width, 3), or None
        A picture of each row, for reports; not used as a feature.
    left_out : tuple of str
        Columns of the file that were dropped to give its rows a shape.
    messages : list of str
        What was decided and must be said.
    source : str or None
        The call that reads it again.
    """

    name: str
    X: Any
    y: NDArray[Any] | None = None
    target: str | None = None
    groups: NDArray[Any] | None = None
    groups_name: str | None = None
    time: NDArray[Any] | None = None
    time_name: str | None = None
    ids: NDArray[Any] | None = None
    id_name: str | None = None
    vector: str | None = None
    others: dict[str, NDArray[Any]] = field(default_factory=dict)
    feature_names: list[str] | None = None
    class_names: list[str] | None = None
    tensor_shape: tuple[int, ...] | None = None
    images: NDArray[Any] | None = None
    left_out: tuple[str, ...] = ()
    messages: list[str] = field(default_factory=list)
    source: str | None = None

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(height, width) or (height, width, channels) where each row is an image, else None.

        >>> Table("digits", None, tensor_shape=(8, 8)).image_shape
        (8, 8)
        >>> Table("clips", None, tensor_shape=(20, 8, 8)).image_shape is None
        True
        """
        shape = self.tensor_shape
        if shape is None or len(shape) not in (2, 3) or min(shape[:2]) < 2:
            return None
        return shape if len(shape) == 2 or shape[2] in (3, 4) else None

    @property
    def noun(self) -> str:
        """What one of its rows is called in all that is said of it: "row", or "set" of vectors."""
        return "set" if isinstance(self.X, Sets) else "row"


def without_single_channel(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without a last mode of length one: grey values are no channel.

    >>> without_single_channel((8, 8, 1)), without_single_channel((8, 1))
    ((8, 8), (8, 1))
    """
    return tuple(shape[:-1] if len(shape) > 2 and shape[-1] == 1 else shape)


def one_a_row(values: Any, key: str, n: int, where: str) -> NDArray[Any]:
    """A value for each of n rows, as a vector."""
    vector = np.asarray(values)
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        hint = " Of one-hot rows take .argmax(axis=1)." if vector.ndim == 2 else ""
        raise ValueError(
            f"{where}: '{key}' should have one value a row; got shape {vector.shape}.{hint}"
        )
    if len(vector) != n:
        raise ValueError(f"{where}: '{key}' has {len(vector)} values for {n} rows.")
    return np.char.decode(vector, "utf-8") if vector.dtype.kind == "S" else vector


def as_strings(values: Any) -> list[str]:
    """Names from an array of text or bytes."""
    array = np.ravel(values)
    return (
        np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(str)
    ).tolist()


def missing_among(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are missing."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype.kind == "U":
        return values == ""
    if values.dtype.kind != "O":
        return np.zeros(len(values), bool)
    return np.fromiter((is_missing(value) for value in values), bool, len(values))


def is_missing(value: Any) -> bool:
    """Whether it stands for no value: None, an empty text, NaN, NaT or pandas.NA."""
    return is_na(value) or bool(value == "")


def tidy_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers as integers (pandas makes floats of them beside a gap), text as str."""
    if y.dtype.kind == "f" and np.all(np.abs(y) < 2**53) and np.all(y == np.floor(y)):
        return y.astype(np.int64)
    if y.dtype.kind == "O" and all(isinstance(label, str) for label in y):
        return y.astype(str)
    return y
