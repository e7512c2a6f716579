"""Tables whose rows are images or tensors: from a folder, or from rows with a given shape."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearfar.datasets.pictures import has_pictures, load_images
from nearfar.datasets.table import Table, without_single_channel
from nearfar.words import format_count, join_names


def say_hidden(name: str) -> list[str]:
    """Return a message if a folder of images has the name of a built-in dataset."""
    path = Path(name)
    if not path.is_dir() or not has_pictures(path):
        return []
    return [f"This is the built-in dataset '{name}'. For the images in the folder, pass ./{name}."]


def from_pictures(
    path: Path, wanted: dict[str, str | None], shape: tuple[int, ...] | None
) -> Table:
    """Return a folder of images as a Table. Subfolders are the labels, file names the IDs."""
    for option, name in wanted.items():
        if name is not None:
            hint = " Its labels are the names of its subfolders." if option == "target" else ""
            raise ValueError(
                f"--{option} {name}: a folder of images has no columns.{hint} To add other data "
                "about the images, save it with their pixels in an .npz file."
            )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        images, y, names = load_images(path, shape, n_jobs=-1)
    own = images.shape[1:]
    sizes, color = " × ".join(map(str, own[:2])), "in color" if len(own) == 3 else "in gray"
    what = f"{format_count(len(images), 'image')} of {sizes} pixels, {color}"
    if shape is not None:
        more = f" (--images {shape[0]}x{shape[1]}x3 keeps colors)" if len(own) == 2 else ""
        what += f"{more}; images of other sizes are resized"
    messages = [f"{what}. The labels are the subfolders." if y is not None else f"{what}."]
    messages += [str(one.message) for one in caught]
    return Table(
        path.resolve().name,
        images.reshape(len(images), -1).astype(np.float32),
        y,
        None if y is None else "folder",
        ids=names,
        id_name="file",
        tensor_shape=own,
        messages=messages,
    )


def give_shape(table: Table, shape: tuple[int, ...], drop: Sequence[Any] = ()) -> None:
    """Set the tensor shape of the rows of a table, after dropping columns of a DataFrame.

    Raises if the rows do not have the number of values of the shape.
    """
    size, X = int(np.prod(shape)), table.X
    sizes = "x".join(map(str, shape))
    framed = hasattr(X, "iloc")
    if framed:
        table.left_out = tuple(str(name) for name in drop if name in X.columns)
        X = X.drop(columns=list(table.left_out))
    if table.tensor_shape is not None and table.tensor_shape != without_single_channel(shape):
        own = "x".join(map(str, table.tensor_shape))
        raise ValueError(f"--images {sizes}: the rows of {table.name} have the shape {own}.")
    if X.shape[1] != size:
        more = ". Drop the other columns with --drop" if framed and X.shape[1] > size else ""
        raise ValueError(
            f"--images {sizes} means {size:,} numbers, but the rows of {table.name} have "
            f"{X.shape[1]:,}{more}."
        )
    if framed:
        odd = [str(name) for name in X.columns if X[name].dtype.kind not in "biuf"]
        if odd:
            raise ValueError(
                f"--images {sizes}: all columns must be numbers, but {join_names(odd, 5)} contain "
                "text."
            )
        table.feature_names = [str(name) for name in X.columns]
        X = X.to_numpy(np.float64)
    table.X, table.tensor_shape = X, without_single_channel(shape)
