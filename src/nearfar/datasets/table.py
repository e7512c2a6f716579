"""Table: the rows of a dataset with their labels, groups, times and IDs."""

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
    """Rows of a dataset, their labels, and the decisions made while reading them.

    Attributes
    ----------
    name : str
        Name of the built-in dataset, such as "wine", or of the file.
    X : DataFrame, ndarray of shape (n_samples, n_features) or Sets
        The features. X is a DataFrame if the features are columns of a CSV, TSV or Parquet file, a
        ``Sets`` for sets of vectors, and an array of floats in all other cases.
    y : ndarray of shape (n_samples,) or None
        Labels as they are in the file.
    target : str or None
        Name of the column, key or file with the labels.
    groups, groups_name : ndarray and str, or None
        The group of each row, and the name of the column or key with the groups.
    time, time_name : ndarray of int64 or float64 and str, or None
        The time of each row as a number, and the name of the column or key with the times. Dates
        are microseconds since 1970.
    ids, id_name : ndarray and str, or None
        The unique ID of each row, and the name of the column or key with the IDs.
    vector : str or None
        Name of the column whose vectors are the rows of X.
    unused : dict of ndarray
        Unused columns of a table with a vector column, or unused keys of an .npz file, by name.
    feature_names : list of str or None
        Names of the columns of X if X is an array.
    class_names : list of str or None
        Names of the classes, in the order of the sorted labels.
    tensor_shape : tuple of int or None
        Shape (d1, ..., dk) if each row is a tensor, flattened in C order.
    images : ndarray of shape (n_samples, height, width) or (n_samples, height, width, 3), or None
        One image per row. Images are shown in reports and not used as features.
    dropped : tuple of str
        Columns that were dropped because the other columns form a tensor.
    messages : list of str
        Decisions made while reading, to be shown to the user.
    source : str or None
        The Python call that reads the same table again.
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
    unused: dict[str, NDArray[Any]] = field(default_factory=dict)
    feature_names: list[str] | None = None
    class_names: list[str] | None = None
    tensor_shape: tuple[int, ...] | None = None
    images: NDArray[Any] | None = None
    dropped: tuple[str, ...] = ()
    messages: list[str] = field(default_factory=list)
    source: str | None = None

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Shape (height, width) or (height, width, channels) if the rows are images, else None.

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
        """The noun for one item of X in messages: "row" or "set"."""
        return "set" if isinstance(self.X, Sets) else "row"


def drop_single_channel(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape without its last dimension if this is 1, as for gray images.

    >>> drop_single_channel((8, 8, 1)), drop_single_channel((8, 1))
    ((8, 8), (8, 1))
    """
    return tuple(shape[:-1] if len(shape) > 2 and shape[-1] == 1 else shape)


def check_one_per_row(values: Any, key: str, n: int, source: str) -> NDArray[Any]:
    """Return the values as a 1-D array. Raises if there is not exactly one value per row."""
    vector = np.asarray(values)
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        hint = " Convert one-hot rows with .argmax(axis=1)." if vector.ndim == 2 else ""
        raise ValueError(
            f"{source}: '{key}' should have one value per row; got shape {vector.shape}.{hint}"
        )
    if len(vector) != n:
        raise ValueError(f"{source}: '{key}' has {len(vector)} values for {n} rows.")
    return np.char.decode(vector, "utf-8") if vector.dtype.kind == "S" else vector


def decode_strings(values: Any) -> list[str]:
    """Return an array of text or bytes as a list of str."""
    array = np.ravel(values)
    return (
        np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(str)
    ).tolist()


def find_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a boolean mask of the missing values."""
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
    """Return True for None, an empty string, NaN, NaT and pandas.NA."""
    return is_na(value) or bool(value == "")


def tidy_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Return float labels without a fractional part as int64, and text labels as str.

    pandas stores integers as floats if the column also has missing values.
    """
    if y.dtype.kind == "f" and np.all(np.abs(y) < 2**53) and np.all(y == np.floor(y)):
        return y.astype(np.int64)
    if y.dtype.kind == "O" and all(isinstance(label, str) for label in y):
        return y.astype(str)
    return y
