"""The archive of a model file: sizes and forms, looked at before anything is read."""

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

#: The number of the file format. A change that older versions cannot read raises it.
FORMAT = 1

# Sizes. Nothing is compressed, so that no file unpacks to more than itself.
MAX_BYTES = 2**31 - 1  # what a zip archive without 64-bit extensions holds
MAX_INFORMATION = 2**20
MAX_DIRECTORY = 2**22
MAX_SCHEMA = 2**24
MAX_NODES = 200_000
MAX_DEPTH = 64
_MAX_EMPTY = 2**24  # bytes that an array without elements would take if each zero were a one
ITEM_SIZES = {"b": {1}, "i": {1, 2, 4, 8}, "u": {1, 2, 4, 8}, "f": {2, 4, 8}}
# The one way NumPy writes the header of a plain array.
_HEADER = re.compile(
    rb"\{'descr': '([<>|])([biufUS])(\d{1,9})', 'fortran_order': (?:False|True), "
    rb"'shape': \(((?:\d{1,12}, ?){0,32}(?:\d{1,12})?)\), \} *\n"
)


class ModelFileError(ValueError):
    """A file that is no sound model file, or a model that cannot become one.

    Examples
    --------
    >>> from nearfar.persistence import ModelFileError, load
    >>> try:
    ...     load("no_such_file.nf")
    ... except ModelFileError as error:
    ...     print(error)
    no_such_file.nf: there is no such file.
    """


# Its place to users, whatever the file.
ModelFileError.__module__ = "nearfar.persistence"


def shown(value: Any) -> str:
    """Something out of a file, short and without control characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def told(error: Exception) -> str:
    """What an error says, short and without control characters."""
    text = f"{type(error).__name__}: {error}"[:300]
    return "".join(letter if letter.isprintable() else " " for letter in text)


def below(where: str, key: Any) -> str:
    """The place of an attribute or item; names out of a file may be anything."""
    name = isinstance(key, str) and key.isidentifier() and len(key) <= 80
    return f"{where}.{key}" if name else f"{where}[{shown(key)}]"


@contextmanager
def clear_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Whatever goes wrong with a file becomes one kind of error that names the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except Exception as error:
        raise ModelFileError(
            f"{path}: damaged, or made by another program ({told(error)})."
        ) from error


# ---------------------------------------------------------------------- reading


@contextmanager
def opened(path: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """A file that is one, and no larger than allowed."""
    if not path.exists():
        raise ModelFileError("there is no such file.")
    if not path.is_file():
        raise ModelFileError("not a file.")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > min(max_bytes, MAX_BYTES):
            raise ModelFileError(
                f"{size} bytes are more than max_bytes={min(max_bytes, MAX_BYTES)} allows."
            )
        yield file


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """The zip archive, whose directory is looked at before it is read into memory."""
    head = file.read(4)
    file.seek(max(0, file.seek(0, os.SEEK_END) - 42))
    tail = file.read(42)
    locator, end = tail[:4], tail[-22:]
    # No comment and no 64-bit extension: then this end is the one that zipfile will use.
    plain = len(tail) == 42 and locator != b"PK\6\7" and end[20:] == b"\0\0"
    if head != b"PK\3\4" or end[:4] != b"PK\5\6" or not plain:
        raise ModelFileError("not a nearfar model file, or cut short.")
    if struct.unpack("<L", end[12:16])[0] > MAX_DIRECTORY:
        raise ModelFileError("its directory is too large.")
    return zipfile.ZipFile(file)


def read_information(archive: zipfile.ZipFile) -> dict[str, Any]:
    """What the file says of itself, if it is of a format that this version reads."""
    says = read_json(archive, "nearfar.json", MAX_INFORMATION)
    if not isinstance(says, dict) or says.get("program") != "nearfar":
        raise ModelFileError("not a nearfar model file.")
    number = says.get("format")
    if type(number) is not int or number < 1:
        raise ModelFileError(f"nearfar.json: the format must be a number; found {shown(number)}.")
    if number > FORMAT:
        raise ModelFileError(
            f"a file of format {shown(number)}, made by a newer nearfar; this version reads "
            f"formats up to {FORMAT}. Update nearfar."
        )
    wanted = {"model": str, "created": str, "versions": dict, "training_rows": dict}
    for key, kind in {**wanted, "metadata": dict}.items():
        if type(says.get(key)) is not kind:
            raise ModelFileError(f"nearfar.json: {key} is missing or no {kind.__name__}.")
    rows = says["training_rows"].values()
    if not all(type(n) is int and n >= 0 for n in rows):
        raise ModelFileError("nearfar.json: training_rows must be counts.")
    if not all(type(version) is str for version in says["versions"].values()):
        raise ModelFileError("nearfar.json: versions must be text.")
    keys = ("format", "model", "created", "versions", "training_rows", "metadata")
    # All rows are from one training set: those in two places are the same ones.
    known = {"holds_training_rows": any(rows), "n_training_rows": max(rows, default=0)}
    return {**{key: says[key] for key in keys}, **known}


def read_json(archive: zipfile.ZipFile, name: str, limit: int) -> Any:
    """A document out of the archive, if it is not too large."""
    if name not in archive.namelist():
        raise ModelFileError(f"not a nearfar model file: it has no {name}.")
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED or member.file_size > limit:
        raise ModelFileError(f"{name} is too large, or compressed.")
    data = archive.read(name)
    if data.count(b"{") + data.count(b"[") > 4 * MAX_NODES:
        raise ModelFileError(f"{name} has too many parts.")
    try:
        return json.loads(data)
    except RecursionError:
        raise ModelFileError(f"{name} is nested too deeply.") from None
    except ValueError as error:
        raise ModelFileError(f"{name} is no JSON: {told(error)}") from error


def check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Only plain files of our own names, none twice, together no larger than the archive."""
    seen: set[str] = set()
    for member in archive.infolist():
        name = member.filename
        if not re.fullmatch(r"nearfar\.json|schema\.json|\d{1,6}\.npy", name):
            raise ModelFileError(f"it has a member {shown(name)}, which no model file has.")
        if name in seen:
            raise ModelFileError(f"it has two members {name}.")
        seen.add(name)
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
            raise ModelFileError(f"its member {name} is no plain file.")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise ModelFileError(f"its member {name} is compressed or encrypted.")
        if member.file_size != member.compress_size:
            raise ModelFileError(f"its member {name} has two sizes.")
    if sum(member.file_size for member in archive.infolist()) > size:
        raise ModelFileError("its members claim more bytes than the file has.")


def check_array(archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """The shape in the header of an array, which must fit the bytes that follow."""
    size = archive.getinfo(name).file_size
    with archive.open(name) as file:
        start = file.read(10)
        length = struct.unpack("<H", start[8:])[0] if len(start) == 10 else 0
        # Version 1.0: the only one that NumPy needs for plain arrays.
        found = _HEADER.fullmatch(file.read(length)) if start[:8] == b"\x93NUMPY\1\0" else None
        if not found:
            raise ModelFileError(f"{name} is no array of numbers or text.")
        order, kind, width = found[1].decode(), found[2].decode(), int(found[3])
        shape = tuple(int(text) for text in found[4].decode().split(",") if text.strip())
        if kind not in "US" and width not in ITEM_SIZES[kind]:
            raise ModelFileError(f"{name} has items of type {kind}{width}.")
        item = 4 * width if kind == "U" else width
        if size != 10 + length + item * math.prod(shape):
            raise ModelFileError(f"{name}: its shape {shape} does not fit its {size} bytes.")
        if max(1, item) * math.prod(max(1, n) for n in shape) > max(size, _MAX_EMPTY):
            raise ModelFileError(f"{name}: no array has the shape {shape}.")
        if kind in "bU":
            # NumPy takes booleans and letters as they come; other bytes are neither.
            unit = "u1" if kind == "b" else f"{order}u4"
            values = np.frombuffer(file.read(), dtype=unit)
            if values.size and values.max() > (1 if kind == "b" else 0x10FFFF):
                raise ModelFileError(f"{name}: there are no such booleans or letters.")
    return shape


def write_members(file: BinaryIO, members: Iterable[tuple[str, bytes]]) -> None:
    """A zip archive of these, not compressed."""
    try:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
            for name, data in members:
                archive.writestr(zipfile.ZipInfo(name), data)
    except zipfile.LargeZipFile as error:
        raise ModelFileError("the model takes more than the 2 GiB that a file can hold.") from error
