"""Tables whose rows are images or tensors: from a folder, or from rows with a given shape."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.datasets.pictures import contains_images, load_images
from nearfar.datasets.table import Table, drop_single_channel
from nearfar.words import format_count, join_names


def report_hidden_folder(name: str) -> list[str]:
    """Return a message if a folder of images has the name of a built-in dataset."""
    path = Path(name)
    if not path.is_dir() or not contains_images(path):
        return []
    return [f"This is the built-in dataset '{name}'. For the images in the folder, pass ./{name}."]


def read_image_folder(
    path: Path, options: dict[str, str | None], shape: tuple[int, ...] | None
) -> Table:
    """Read a folder of images as a Table.

    The names of subfolders are the labels, and the names of files are the IDs.
    """
    for option, name in options.items():
        if name is not None:
            hint = " Its labels are the names of its subfolders." if option == "target" else ""
            raise ValueError(
                f"--{option} {name}: a folder of images has no columns.{hint} To add other data "
                "about the images, save it with their pixels in an .npz file."
            )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        images, y, names = load_images(path, shape, n_jobs=-1)
    image_shape = images.shape[1:]
    sizes, color = (
        " × ".join(map(str, image_shape[:2])),
        "in color" if len(image_shape) == 3 else "in gray",
    )
    summary = f"{format_count(len(images), 'image')} of {sizes} pixels, {color}"
    if shape is not None:
        hint = f" (--images {shape[0]}x{shape[1]}x3 keeps colors)" if len(image_shape) == 2 else ""
        summary += f"{hint}; images of other sizes are resized"
    messages = [f"{summary}. The labels are the subfolders." if y is not None else f"{summary}."]
    messages += [str(warning.message) for warning in caught]
    return Table(
        path.resolve().name,
        images.reshape(len(images), -1).astype(np.float32),
        y,
        None if y is None else "folder",
        ids=names,
        id_name="file",
        tensor_shape=image_shape,
        messages=messages,
    )


def set_tensor_shape(table: Table, shape: tuple[int, ...], drop: Sequence[Any] = ()) -> None:
    """Set the tensor shape of the rows of a table.

    If the rows are a DataFrame, the columns in `drop` are removed first.

    Raises a ValueError if the number of values per row does not match the shape.
    """
    size, X = int(np.prod(shape)), table.X
    sizes = "x".join(map(str, shape))
    is_frame = hasattr(X, "iloc")
    if is_frame:
        table.dropped = tuple(str(name) for name in drop if name in X.columns)
        X = X.drop(columns=list(table.dropped))
    if table.tensor_shape is not None and table.tensor_shape != drop_single_channel(shape):
        actual_sizes = "x".join(map(str, table.tensor_shape))
        raise ValueError(
            f"--images {sizes}: the rows of {table.name} have the shape {actual_sizes}."
        )
    if X.shape[1] != size:
        hint = ". Drop the other columns with --drop" if is_frame and X.shape[1] > size else ""
        raise ValueError(
            f"--images {sizes} means {size:,} numbers, but the rows of {table.name} have "
            f"{X.shape[1]:,}{hint}."
        )
    if is_frame:
        text_columns = [str(name) for name in X.columns if X[name].dtype.kind not in "biuf"]
        if text_columns:
            raise ValueError(
                f"--images {sizes}: all columns must be numbers, but {join_names(text_columns, 5)} "
                "contain text."
            )
        table.feature_names = [str(name) for name in X.columns]
        X = X.to_numpy(np.float64)
    table.X, table.tensor_shape = X, drop_single_channel(shape)
