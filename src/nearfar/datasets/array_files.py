"""Reader for NumPy files: assigns their arrays to X, labels, groups, times and IDs."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.datasets.table import Table, check_one_per_row, decode_strings, drop_single_channel
from nearfar.words import join_names, suggest_name

# Keys of an .npz file, in lowercase, that are recognized for each role if no option names a key.
_ROLE_KEYS = {
    "X": ("x", "data"),
    "y": ("y", "target", "labels"),
    "groups": ("groups",),
    "time": ("time",),
    "id": (),
}
#: Keys with information about the features, classes or images.
_METADATA_KEYS = ("feature_names", "target_names", "image_shape")
#: For each option, the words in the name of a key or column that suggest this option.
_OPTION_WORDS = {
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
    """Return a dict of the arrays of an .npz file. The array of an .npy file gets the key X."""
    try:
        with path.open("rb") as file:
            if file.peek(6)[:6] != b"\x93NUMPY" and file.peek(2)[:2] != b"PK":
                raise ValueError("the signature at the start of the file is missing")
            if file.peek(2)[:2] != b"PK":
                # With a memory map, only the rows that are used are read.
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


def convert_arrays(
    source: str,
    arrays: dict[str, Any],
    requested: dict[str, str | None],
    vector: str | None,
) -> Table:
    """Convert the arrays of a NumPy file to a Table.

    Keys and options define the role of each array.
    """
    requested_keys = {"X": vector, "y": requested["target"]}
    requested_keys |= {role: requested[role] for role in ("groups", "time", "id")}
    keys = {role: find_key(arrays, role, name, source) for role, name in requested_keys.items()}
    table = Table(source, None, messages=[])
    check_distinct_columns({"target" if role == "y" else role: key for role, key in keys.items()})
    if keys["X"] is None:
        shapes = ", ".join(f"{key} {np.shape(value)}" for key, value in arrays.items()) or "none"
        raise ValueError(
            f"{source} has no key 'X' or 'data'. Its keys are: {shapes}. "
            "Pass the key that contains the rows as --vector, or save the file with "
            "numpy.savez(file, X=X, y=y)."
        )
    x, y = keys["X"], keys["y"]
    table.X, table.tensor_shape = _check_points(np.asarray(arrays[x]), source, table.messages)
    n, p = table.X.shape
    if "image_shape" in arrays:
        table.tensor_shape = _check_image_shape(arrays["image_shape"], p, source)
    table.feature_names = read_feature_names(arrays, p, source)
    if y is not None:
        table.y, table.target = check_one_per_row(arrays[y], y, n, source), y
    if "target_names" in arrays:
        table.class_names = decode_strings(arrays["target_names"])
    for role, side in (("groups", "groups"), ("time", "time"), ("id", "ids")):
        key = keys[role]
        if key is not None:
            setattr(table, side, check_one_per_row(arrays[key], key, n, source))
            setattr(table, f"{role}_name", key)
    used = {key for key in keys.values() if key is not None}
    if "images" in arrays and "images" not in used:
        table.images = _check_images(np.asarray(arrays["images"]), n, source)
        used.add("images")
    _report_unused_keys(table, arrays, used)
    return table


def read_feature_names(arrays: dict[str, Any], n_features: int, source: str) -> list[str] | None:
    """Return the array `feature_names` as a list, or None if the file has no such key."""
    if "feature_names" not in arrays:
        return None
    names = decode_strings(arrays["feature_names"])
    if len(names) != n_features:
        raise ValueError(
            f"{source}: feature_names has {len(names)} names for {n_features} columns."
        )
    return names


def _report_unused_keys(table: Table, arrays: dict[str, Any], used: set[str]) -> None:
    """Add a message that lists the unused keys and suggests options for them."""
    n = len(table.X)
    unused = [key for key in arrays if key not in used and key not in _METADATA_KEYS]
    if not unused:
        return
    descriptions, has_plain_key = [], False
    for key in unused:
        shape = np.shape(arrays[key])
        if shape not in ((n,), (n, 1)):
            descriptions.append(f"'{key}' {shape}")
            continue
        table.unused[key] = check_one_per_row(arrays[key], key, n, table.name)
        option = suggest_option(key)
        has_plain_key = has_plain_key or option is None
        descriptions.append(f"'{key}'" + (f" (--{option} {key}?)" if option else ""))
    subject = "Unused keys" if len(unused) > 1 else "Unused key"
    hint = " A key with one value per row can be used with --target, --groups, --time or --id."
    table.messages.append(f"{subject}: {', '.join(descriptions)}.{hint * has_plain_key}")


def suggest_option(name: str) -> str | None:
    """Return the option that the name of a key or column suggests, or None.

    >>> [suggest_option(name) for name in ("Speaker", "patient_id", "id", "height")]
    ['groups', 'groups', 'id', None]
    """
    tokens = [token for token in re.split(r"[^a-z]+", name.lower()) if token]
    for option in ("groups", "target", "time", "id"):
        if any(token in _OPTION_WORDS[option] for token in tokens):
            return option
    return None


def check_distinct_columns(columns: dict[str, str | None]) -> None:
    """Raise if two options name the same column."""
    roles: dict[str, str] = {}
    for role, name in columns.items():
        if name is None:
            continue
        if name in roles:
            conflict = f"the {roles[name]} and the {role}"
            raise ValueError(
                f"Column '{name}' cannot be both {conflict}. Name a different column for one of "
                "them."
            )
        roles[name] = role


def find_key(arrays: dict[str, Any], role: str, requested: str | None, source: str) -> str | None:
    """Return the key for a role: the requested key, a key with a usual name, or None."""
    if requested is not None and requested in arrays:
        return requested
    if requested is not None:
        option = {"y": "target", "X": "vector"}.get(role, role)
        raise ValueError(
            f"--{option} {requested}: {source} has no such key.{suggest_name(requested, arrays)} "
            f"Its keys are {join_names(arrays)}. Save {role} together with X in an .npz file."
        )
    keys = [key for key in arrays if key.lower() in _ROLE_KEYS[role]]
    if len(keys) > 1:
        raise ValueError(
            f"{source} has several keys for {role}: {join_names(keys)}. "
            + f"Name one with --{ {'y': 'target', 'X': 'vector'}.get(role, role) }."
        )
    return keys[0] if keys else None


def _check_points(
    X: NDArray[Any], source: str, messages: list[str]
) -> tuple[NDArray[Any], tuple[int, ...] | None]:
    """Return X as a 2-D array of floats, and the shape of a row if it is an image or tensor."""
    if X.dtype.names:
        raise ValueError(f"{source}: X is a structured array. Save the table as CSV or Parquet.")
    if X.dtype.kind not in "biuf":
        kind = {"c": "complex numbers", "U": "strings", "S": "strings"}.get(X.dtype.kind)
        raise ValueError(
            f"{source}: X should contain real numbers; got {kind or X.dtype}. Save columns of "
            "other types as CSV or Parquet."
        )
    if X.ndim < 2:
        raise ValueError(
            f"{source}: X should have shape (n_samples, n_features); got shape {X.shape}. For a "
            "single feature, use X.reshape(-1, 1)."
        )
    shape = X.shape[1:]
    X = X if X.dtype in (np.float16, np.float32) else X.astype(np.float64, copy=False)
    if 0 in shape:
        raise ValueError(f"{source}: X has shape {X.shape}, which means that it has no columns.")
    if len(shape) == 1:
        return X, None
    X = X.reshape(len(X), -1)
    sizes = " × ".join(map(str, shape))
    shape = drop_single_channel(shape)
    noun = "images" if Table("", None, tensor_shape=shape).image_shape else "tensors"
    messages.append(
        f"X has rows of {sizes} numbers, which are read as {noun}. The rows are flattened for "
        "methods that need vectors."
    )
    return X, shape


def _check_images(images: NDArray[Any], n: int, source: str) -> NDArray[Any]:
    """Return the images that reports show next to the rows. Raises if the shape is invalid."""
    has_valid_shape = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))
    if (
        images.dtype.kind not in "biuf"
        or not has_valid_shape
        or len(images) != n
        or 0 in images.shape
    ):
        raise ValueError(
            f"{source}: 'images' should hold one image per row, of shape ({n}, height, width) or "
            f"({n}, height, width, 3); got {images.dtype} of shape {images.shape}. Reports "
            "show these images, and methods do not use them as features. Rename or remove the key "
            "if it contains other data."
        )
    return images[..., 0] if images.ndim == 4 and images.shape[3] == 1 else images


def _check_image_shape(value: Any, n_features: int, source: str) -> tuple[int, ...]:
    shape = drop_single_channel([int(size) for size in np.ravel(value)])
    has_valid_shape = len(shape) == 2 or (len(shape) == 3 and shape[2] == 3)
    if not has_valid_shape or int(np.prod(shape)) != n_features:
        raise ValueError(
            f"{source}: image_shape should be (height, width) or (height, width, 3) with "
            f"{n_features} numbers in total; got {shape}."
        )
    return shape
