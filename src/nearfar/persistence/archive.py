"""Reading and writing of a model file's zip archive.

Sizes and headers are checked before any content is read into memory.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

#: Version number of the file format. Increase it if older versions cannot read new files.
FORMAT = 1

# Maximum size in bytes of a model file: the limit of a zip archive without 64-bit extensions. The
# content is not compressed, so it needs no more memory than the file.
MAX_BYTES = 2**31 - 1
# Maximum size in bytes of nearfar.json.
MAX_INFORMATION = 2**20
# Maximum size in bytes of the zip archive's central directory.
MAX_DIRECTORY = 2**22
# Maximum size in bytes of schema.json.
MAX_SCHEMA = 2**24
# Maximum number of nodes in the schema.
MAX_NODES = 200_000
# Maximum nesting depth of the schema's nodes and of a model's components.
MAX_DEPTH = 64
# Maximum size of an empty array in bytes, computed as if dimensions of length 0 had length 1.
_MAX_EMPTY = 2**24
# Allowed item sizes in bytes for each dtype kind of NumPy.
ITEM_SIZES = {"b": {1}, "i": {1, 2, 4, 8}, "u": {1, 2, 4, 8}, "f": {2, 4, 8}}
# Pattern of the header that NumPy writes for an array of numbers or text.
_HEADER = re.compile(
    rb"\{'descr': '([<>|])([biufUS])(\d{1,9})', 'fortran_order': (?:False|True), "
    rb"'shape': \(((?:\d{1,12}, ?){0,32}(?:\d{1,12})?)\), \} *\n"
)


class ModelFileError(ValueError):
    """Error for a file that is not a valid model file, or a model that cannot be saved.

    Examples
    --------
    >>> from nearfar.persistence import ModelFileError, load
    >>> try:
    ...     load("no_such_file.nf")
    ... except ModelFileError as error:
    ...     print(error)
    no_such_file.nf: the file does not exist.
    """


# Tracebacks show the public name instead of this private module.
ModelFileError.__module__ = "nearfar.persistence"


def format_value(value: Any) -> str:
    """Return the repr of a value from a file, shortened to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def describe_error(error: Exception) -> str:
    """Return an error's type and message, shortened and without control characters."""
    text = f"{type(error).__name__}: {error}"[:300]
    return "".join(letter if letter.isprintable() else " " for letter in text)


def join_place(place: str, key: Any) -> str:
    """Append a key to an attribute path, as ``path.key`` or, if needed, as ``path['key']``."""
    is_name = isinstance(key, str) and key.isidentifier() and len(key) <= 80
    return f"{place}.{key}" if is_name else f"{place}[{format_value(key)}]"


@contextmanager
def convert_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Convert every exception to a ModelFileError that names the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except Exception as error:
        raise ModelFileError(
            f"{path}: the file is damaged or was not written by nearfar ({describe_error(error)})."
        ) from error


# ---------------------------------------------------------------------- functions that read files


@contextmanager
def open_file(path: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """Open a regular file. Raises if the file is larger than ``max_bytes``."""
    if not path.exists():
        raise ModelFileError("the file does not exist.")
    if not path.is_file():
        raise ModelFileError("this is not a regular file.")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > min(max_bytes, MAX_BYTES):
            raise ModelFileError(
                f"the file has {size} bytes, more than max_bytes={min(max_bytes, MAX_BYTES)} "
                "allows."
            )
        yield file


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """Open a zip archive after checking the size of its central directory."""
    head = file.read(4)
    file.seek(max(0, file.seek(0, os.SEEK_END) - 42))
    tail = file.read(42)
    locator, end = tail[:4], tail[-22:]
    # zipfile must read the end record that is checked here. This is certain only if the archive has
    # no comment and no 64-bit extensions.
    is_plain = len(tail) == 42 and locator != b"PK\6\7" and end[20:] == b"\0\0"
    if head != b"PK\3\4" or end[:4] != b"PK\5\6" or not is_plain:
        raise ModelFileError("this is not a nearfar model file, or it is truncated.")
    if struct.unpack("<L", end[12:16])[0] > MAX_DIRECTORY:
        raise ModelFileError(
            f"the central directory of the zip archive is larger than {MAX_DIRECTORY} bytes."
        )
    return zipfile.ZipFile(file)


def read_information(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Return the metadata of a model file. Raises if the file format is not supported."""
    information = read_json(archive, "nearfar.json", MAX_INFORMATION)
    if not isinstance(information, dict) or information.get("program") != "nearfar":
        raise ModelFileError("this is not a nearfar model file.")
    format_number = information.get("format")
    if type(format_number) is not int or format_number < 1:
        raise ModelFileError(
            f"nearfar.json: format must be a positive integer; got {format_value(format_number)}."
        )
    if format_number > FORMAT:
        raise ModelFileError(
            f"the file has format {format_value(format_number)}, written by a newer nearfar. This "
            f"version reads formats up to {FORMAT}. Update nearfar."
        )
    required = {"model": str, "created": str, "versions": dict, "training_rows": dict}
    for key, kind in {**required, "metadata": dict}.items():
        if type(information.get(key)) is not kind:
            raise ModelFileError(f"nearfar.json: {key} is missing or not a {kind.__name__}.")
    rows = information["training_rows"].values()
    if not all(type(n) is int and n >= 0 for n in rows):
        raise ModelFileError(
            "nearfar.json: the values of training_rows must be nonnegative integers."
        )
    if not all(type(version) is str for version in information["versions"].values()):
        raise ModelFileError("nearfar.json: the values of versions must be strings.")
    keys = ("format", "model", "created", "versions", "training_rows", "metadata")
    # Several components may store the same rows, so report the largest number of rows and not the
    # sum.
    summary = {"holds_training_rows": any(rows), "n_training_rows": max(rows, default=0)}
    return {**{key: information[key] for key in keys}, **summary}


def read_json(archive: zipfile.ZipFile, name: str, limit: int) -> Any:
    """Return the content of a JSON file in the archive. Raises if it exceeds ``limit`` bytes."""
    if name not in archive.namelist():
        raise ModelFileError(f"this is not a nearfar model file, because it has no {name}.")
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > limit:
        raise ModelFileError(f"{name} is compressed, or larger than {limit} bytes.")
    data = archive.read(name)
    if data.count(b"{") + data.count(b"[") > 4 * MAX_NODES:
        raise ModelFileError(f"{name} has more than {4 * MAX_NODES} brackets.")
    try:
        return json.loads(data)
    except RecursionError:
        raise ModelFileError(f"{name} is nested too deeply.") from None
    except ValueError as error:
        raise ModelFileError(f"{name} is not valid JSON: {describe_error(error)}") from error


def check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Raise if the archive has members that :func:`save` does not write.

    All members must be regular, uncompressed files with known and distinct names. Their total size
    must not exceed the size of the archive.
    """
    names: set[str] = set()
    for member in archive.infolist():
        name = member.filename
        if not re.fullmatch(r"nearfar\.json|schema\.json|\d{1,6}\.npy", name):
            raise ModelFileError(
                f"the archive has a member {format_value(name)}, which is not part of a model file."
            )
        if name in names:
            raise ModelFileError(f"the archive has two members named {name}.")
        names.add(name)
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ModelFileError(f"the member {name} is not a regular file.")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise ModelFileError(f"the member {name} is compressed or encrypted.")
        if member.file_size != member.compress_size:
            raise ModelFileError(
                f"the member {name} has two different sizes, although it is not compressed."
            )
    if sum(member.file_size for member in archive.infolist()) > size:
        raise ModelFileError("the sum of the sizes of all members exceeds the size of the file.")


def check_array(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """Return the shape of a stored array. Raises if the shape and the size in bytes differ."""
    size = archive.getinfo(name).file_size
    with archive.open(name) as file:
        start = file.read(10)
        length = struct.unpack("<H", start[8:])[0] if len(start) == 10 else 0
        # NumPy uses version 1.0 of its file format for arrays of numbers or text.
        match = _HEADER.fullmatch(file.read(length)) if start[:8] == b"\x93NUMPY\1\0" else None
        if not match:
            raise ModelFileError(f"{name} is not an array of numbers or text.")
        order, kind, width = match[1].decode(), match[2].decode(), int(match[3])
        shape = tuple(int(text) for text in match[4].decode().split(",") if text.strip())
        if kind not in "US" and width not in ITEM_SIZES[kind]:
            raise ModelFileError(f"{name} has items of the unsupported type {kind}{width}.")
        item_size = 4 * width if kind == "U" else width
        if size != 10 + length + item_size * math.prod(shape):
            raise ModelFileError(f"{name}: the shape {shape} does not match its {size} bytes.")
        if max(1, item_size) * math.prod(max(1, n) for n in shape) > max(size, _MAX_EMPTY):
            raise ModelFileError(f"{name}: the empty array has an invalid shape {shape}.")
        if kind in "bU":
            # NumPy reads booleans and characters without checking that they are valid.
            unit = "u1" if kind == "b" else f"{order}u4"
            values = np.frombuffer(file.read(), dtype=unit)
            if values.size and values.max() > (1 if kind == "b" else 0x10FFFF):
                raise ModelFileError(f"{name} contains invalid booleans or characters.")
    return shape


def write_members(file: BinaryIO, members: Iterable[tuple[str, bytes]]) -> None:
    """Write members to an uncompressed zip archive."""
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
            for name, data in members:
                archive.writestr(zipfile.ZipInfo(name), data)
    except zipfile.LargeZipFile as error:
        raise ModelFileError(
            "the model needs more than 2 GiB, the maximum size of a file."
        ) from error
