"""Reader for NumPy files: assigns their arrays to X, labels, groups, times and IDs."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.table import Table, as_strings, one_a_row, without_single_channel
from nearfar.words import join_names, suggest_name

# Keys of an .npz file, in lowercase, that have a role without being named by an option.
_KEYS = {
    "X": ("x", "data"),
    "y": ("y", "target", "labels"),
    "groups": ("groups",),
    "time": ("time",),
    "id": (),
}
#: Keys that describe X and the classes.
_ABOUT_X = ("feature_names", "target_names", "image_shape")
#: Words in the name of a key or column that suggest an option for it.
_MADE_FOR = {
    "target": {"target", "targets", "label", "labels", "class", "classes"},
    "groups": {
        *("group", "groups", "speaker", "subject", "patient", "participant", "person", "user"),
        *("family", "session", "batch", "site", "recording"),
    },
    "time": {"time", "times", "date", "dates", "datetime", "timestamp", "day"},
    "id": {"id", "ids", "key", "uuid", "guid"},
}
NUMPY = (".npy", ".npz")


def read_arrays(path: Path) -> dict[str, Any]:
    """Return the arrays of an .npz file by key. The array of an .npy file has the key X."""
    try:
        with path.open("rb") as file:
            if file.peek(6)[:6] != b"\x93NUMPY" and file.peek(2)[:2] != b"PK":
                raise ValueError("it does not start with the signature of one")
            if file.peek(2)[:2] != b"PK":
                # A memory map reads only the rows that are used.
                return {"X": np.load(path, mmap_mode="r", allow_pickle=False)}
            loaded = np.load(file, allow_pickle=False)
            return {key: loaded[key] for key in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, MemoryError) as error:
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise ValueError(
                f"{path.name} contains an object array or a pickle. Pickles can run code and are "
                "not opened. Save numbers as floats and names with dtype=str."
            ) from error
        raise ValueError(f"{path.name} is damaged or not a NumPy file: {error}.") from error


def from_arrays(
    where: str,
    arrays: dict[str, Any],
    wanted: dict[str, str | None],
    vector: str | None,
) -> Table:
    """Return the arrays of a NumPy file as a Table. Keys and options define their roles."""
    asked = {"X": vector, "y": wanted["target"]}
    asked |= {role: wanted[role] for role in ("groups", "time", "id")}
    found = {role: key_for(arrays, role, name, where) for role, name in asked.items()}
    table = Table(where, None, messages=[])
    refuse_two_roles({"target" if role == "y" else role: key for role, key in found.items()})
    if found["X"] is None:
        shapes = ", ".join(f"{key} {np.shape(value)}" for key, value in arrays.items()) or "none"
        raise ValueError(
            f"{where} has no key 'X' or 'data'. Its keys are: {shapes}. "
            "Name the key of the rows with --vector, or save the file with numpy.savez(file, X=X, "
            "y=y)."
        )
    x, y = found["X"], found["y"]
    table.X, table.tensor_shape = _points(np.asarray(arrays[x]), where, table.messages)
    n, p = table.X.shape
    if "image_shape" in arrays:
        table.tensor_shape = _image_shape(arrays["image_shape"], p, where)
    table.feature_names = feature_names_of(arrays, p, where)
    if y is not None:
        table.y, table.target = one_a_row(arrays[y], y, n, where), y
    if "target_names" in arrays:
        table.class_names = as_strings(arrays["target_names"])
    for role, side in (("groups", "groups"), ("time", "time"), ("id", "ids")):
        key = found[role]
        if key is not None:
            setattr(table, side, one_a_row(arrays[key], key, n, where))
            setattr(table, f"{role}_name", key)
    used = {key for key in found.values() if key is not None}
    if "images" in arrays and "images" not in used:
        table.images = _images_beside(np.asarray(arrays["images"]), n, where)
        used.add("images")
    _say_unused(table, arrays, used)
    return table


def feature_names_of(arrays: dict[str, Any], n_features: int, where: str) -> list[str] | None:
    """Return the array `feature_names` as a list, or None if the file has no such key."""
    if "feature_names" not in arrays:
        return None
    names = as_strings(arrays["feature_names"])
    if len(names) != n_features:
        raise ValueError(f"{where}: feature_names has {len(names)} names for {n_features} columns.")
    return names


def _say_unused(table: Table, arrays: dict[str, Any], used: set[str]) -> None:
    """Add a message that lists the unused keys and suggests options for them."""
    n = len(table.X)
    unused = [key for key in arrays if key not in used and key not in _ABOUT_X]
    if not unused:
        return
    shown, rest = [], False
    for key in unused:
        shape = np.shape(arrays[key])
        if shape not in ((n,), (n, 1)):
            shown.append(f"'{key}' {shape}")
            continue
        table.others[key] = one_a_row(arrays[key], key, n, table.name)
        option = made_for(key)
        rest = rest or option is None
        shown.append(f"'{key}'" + (f" (--{option} {key}?)" if option else ""))
    what = "Unused keys" if len(unused) > 1 else "Unused key"
    more = " A key with one value per row can be used with --target, --groups, --time or --id."
    table.messages.append(f"{what}: {', '.join(shown)}.{more * rest}")


def made_for(name: str) -> str | None:
    """Return the option that the name of a key or column suggests, or None.

    >>> made_for("Speaker"), made_for("patient_id"), made_for("id"), made_for("height")
    ('groups', 'groups', 'id', None)
    """
    words = [word for word in re.split(r"[^a-z]+", name.lower()) if word]
    for option in ("groups", "target", "time", "id"):
        if any(word in _MADE_FOR[option] for word in words):
            return option
    return None


def refuse_two_roles(used: dict[str, str | None]) -> None:
    """Raise if one column is named by two options."""
    seen: dict[str, str] = {}
    for role, name in used.items():
        if name is None:
            continue
        if name in seen:
            both = f"the {seen[name]} and the {role}"
            raise ValueError(
                f"Column '{name}' cannot be both {both}. Name a different column for one of them."
            )
        seen[name] = role


def key_for(arrays: dict[str, Any], role: str, asked: str | None, where: str) -> str | None:
    """Return the key for a role: the one that was named, or the one with a usual name, or None."""
    if asked is not None and asked in arrays:
        return asked
    if asked is not None:
        option = {"y": "target", "X": "vector"}.get(role, role)
        raise ValueError(
            f"--{option} {asked}: {where} has no such key.{suggest_name(asked, arrays)} "
            f"Its keys are {join_names(arrays)}. Save {role} together with X in an .npz file."
        )
    keys = [key for key in arrays if key.lower() in _KEYS[role]]
    if len(keys) > 1:
        raise ValueError(
            f"{where} has several keys for {role}: {join_names(keys)}. "
            + f"Name one with --{ {'y': 'target', 'X': 'vector'}.get(role, role) }."
        )
    return keys[0] if keys else None


def _points(
    X: NDArray[Any], where: str, messages: list[str]
) -> tuple[NDArray[Any], tuple[int, ...] | None]:
    """Return X as a 2-D array of floats, and the shape of a row if it is an image or tensor."""
    if X.dtype.names:
        raise ValueError(f"{where}: X is a structured array. Save the table as CSV or Parquet.")
    if X.dtype.kind not in "biuf":
        kind = {"c": "complex numbers", "U": "strings", "S": "strings"}.get(X.dtype.kind)
        raise ValueError(
            f"{where}: X should contain real numbers; got {kind or X.dtype}. Save columns of other "
            "types as CSV or Parquet."
        )
    if X.ndim < 2:
        raise ValueError(
            f"{where}: X should have shape (n_samples, n_features); got shape {X.shape}. For a "
            "single feature, use X.reshape(-1, 1)."
        )
    shape = X.shape[1:]
    X = X if X.dtype in (np.float16, np.float32) else X.astype(np.float64, copy=False)
    if 0 in shape:
        raise ValueError(f"{where}: X has shape {X.shape}, which means that it has no columns.")
    if len(shape) == 1:
        return X, None
    X = X.reshape(len(X), -1)
    sizes = " × ".join(map(str, shape))
    shape = without_single_channel(shape)
    what = "images" if Table("", None, tensor_shape=shape).image_shape else "tensors"
    messages.append(
        f"X has rows of {sizes} numbers, which are read as {what}. They are flattened for methods "
        "that need vectors."
    )
    return X, shape


def _images_beside(images: NDArray[Any], n: int, where: str) -> NDArray[Any]:
    """Return the images that reports show next to the rows. Raises if they do not fit."""
    fits = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))
    if images.dtype.kind not in "biuf" or not fits or len(images) != n or 0 in images.shape:
        raise ValueError(
            f"{where}: 'images' should hold one image per row, of shape ({n}, height, width) or "
            f"({n}, height, width, 3); got {images.dtype} of shape {images.shape}. They are shown "
            "in reports and are not used as features. Rename or remove the key if it holds "
            "something else."
        )
    return images[..., 0] if images.ndim == 4 and images.shape[3] == 1 else images


def _image_shape(value: Any, n_features: int, where: str) -> tuple[int, ...]:
    shape = without_single_channel([int(size) for size in np.ravel(value)])
    fits = len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)
    if not fits or int(np.prod(shape)) != n_features:
        raise ValueError(
            f"{where}: image_shape should be (height, width) or (height, width, 3) with "
            f"{n_features} numbers in total; got {shape}."
        )
    return shape
