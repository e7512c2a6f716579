"""Handing data to other processes without copying them for each.

What a worker needs is pickled once. Large arrays are not in the pickle: they are written once to a
file without a name that lies in memory, where there is room, and every process maps it. An array
that is a mapped file already is handed on as the name of that file. Maps are private: what a method
writes into its data, no other sees.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Bytes above which an array is mapped; smaller ones are copied with the rest.
LARGE = 2**20
_ALIGNED = 64
# Share of the free memory that a file in memory may take.
_ROOM = 0.5


@dataclass(frozen=True)
class Parcel:
    """What another process needs to have the same object, in few bytes.

    Parameters
    ----------
    pickled : bytes
        All but the large arrays.
    spans : tuple of (offset, size)
        Where the large arrays are in the file.
    file : int, str or None
        Number of the open file, the same in a process to which it is passed, or its name; None if
        nothing is large.
    inodes : tuple of int
        The files that are mapped, to tell their pages from a method's own memory.
    """

    pickled: bytes
    spans: tuple[tuple[int, int], ...]
    file: int | str | None
    inodes: tuple[int, ...]

    def open(self) -> Any:
        """The object; its large arrays are maps that are only read as far as they are used."""
        if self.file is None:
            return pickle.loads(self.pickled)
        opened = os.open(self.file, os.O_RDONLY) if isinstance(self.file, str) else self.file
        try:
            whole = memoryview(mmap.mmap(opened, 0, access=mmap.ACCESS_COPY))
        finally:
            os.close(opened)
        buffers = [whole[start : start + size] for start, size in self.spans]
        return pickle.loads(self.pickled, buffers=buffers)

    def close(self) -> None:
        """Let go of the file; one without a name is gone with the last who maps it."""
        if isinstance(self.file, int):
            os.close(self.file)


def pack(thing: Any, folder: Path | None = None) -> Parcel:
    """Make a parcel of an object.

    Parameters
    ----------
    thing : object
        What lives in a script or notebook is pickled by value.
    folder : Path or None
        Where a file with a name goes; None makes one without, to be handed on by its number.
    """
    views: list[memoryview] = []
    inodes: set[int] = set()

    def take_out(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes <= LARGE:
            return True  # stays in the pickle
        views.append(view)
        return False

    stream = BytesIO()
    _pickler(stream, take_out, inodes).dump(thing)
    ends = np.cumsum([0, *(-(-view.nbytes // _ALIGNED) * _ALIGNED for view in views)]).tolist()
    spans = tuple((start, view.nbytes) for start, view in zip(ends, views, strict=False))
    if not views:
        return Parcel(stream.getvalue(), (), None, tuple(sorted(inodes)))
    file: int | str
    if folder is None:
        file = number = _unnamed(ends[-1])
    else:
        file = str(folder / "arrays")
        number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0))
    try:
        for (start, _), view in zip(spans, views, strict=True):
            _write(number, start, view)
        inodes.add(os.fstat(number).st_ino)
    except BaseException:
        os.close(number)
        raise
    if folder is not None:
        os.close(number)
    return Parcel(stream.getvalue(), spans, file, tuple(sorted(inodes)))


def _pickler(stream: BytesIO, take_out: Any, inodes: set[int]) -> Any:
    cloudpickle = import_cloudpickle()

    class Pickler(cloudpickle.Pickler):  # type: ignore[name-defined]
        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, np.ndarray) and thing.nbytes > LARGE:
                place = _place_in_file(thing)
                if place is not None:
                    inodes.add(os.stat(place[0]).st_ino)
                    return _mapped, place
                plain = type(thing) in (np.ndarray, np.memmap) and not thing.dtype.hasobject
                whole = thing.flags.c_contiguous or thing.flags.f_contiguous
                if plain and not (whole and type(thing) is np.ndarray):
                    # Only a plain array in one piece can be taken out of a pickle.
                    return _itself, (np.asarray(thing if whole else thing.copy()),)
            return super().reducer_override(thing)

    return Pickler(stream, protocol=5, buffer_callback=take_out)


def import_cloudpickle() -> Any:
    """The package, or the one that joblib brings."""
    try:
        import cloudpickle
    except ImportError:  # joblib before 1.6 brings its own
        from joblib.externals import cloudpickle
    return cloudpickle


def _itself(thing: Any) -> Any:
    return thing


def _unnamed(size: int) -> int:
    """An open file without a name: in memory if there is room, else in the temporary folder."""
    if hasattr(os, "memfd_create") and size < _ROOM * _free_memory():
        number = os.memfd_create("nearfar", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile(prefix="nearfar-") as file:
            number = os.dup(file.fileno())
    try:
        os.truncate(number, size)
    except BaseException:
        os.close(number)
        raise
    return number


def _free_memory() -> float:
    """Bytes that can be had, as far as the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024.0 * int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):
        return 0.0


def _write(number: int, start: int, view: memoryview) -> None:
    os.lseek(number, start, os.SEEK_SET)
    done = 0
    while done < view.nbytes:
        done += os.write(number, view[done : done + 2**28])


# Arrays that are mapped files

_Place = tuple[str, int, int, Any, tuple[int, ...], tuple[int, ...]]


def _place_in_file(array: NDArray[Any]) -> _Place | None:
    """File, offset, size, type, shape and strides of a map of a file; None if it is no such.

    A map whose changes are its own (mode "c") is none: the file may hold something else.
    """
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.mode == "c" or array.dtype.hasobject:
        return None
    low, high = _bounds(array)
    offset = root.offset + low - root.__array_interface__["data"][0]
    name = root.filename
    if name is None or offset < 0 or not _is_still(Path(name), low):
        return None
    return str(Path(name).resolve()), offset, high - low, array.dtype, array.shape, _steps(array)


def _steps(array: NDArray[Any]) -> tuple[int, ...]:
    return tuple(int(step) for step in array.strides)


def _bounds(array: NDArray[Any]) -> tuple[int, int]:
    """First byte of an array in memory, and the one after its last."""
    low = high = int(array.__array_interface__["data"][0])
    for length, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += (length - 1) * step
        else:
            high += (length - 1) * step
    return low, high + array.itemsize


def _is_still(path: Path, address: int) -> bool:
    """Whether what is mapped there is the file of that name now; False where none can tell."""
    if sys.platform != "linux":
        return False
    try:
        inode = path.stat().st_ino
        for start, end, found, _ in _maps(Path("/proc/self/maps")):
            if start <= address < end:
                return found == inode
    except OSError:
        pass
    return False


def _mapped(
    name: str, offset: int, size: int, kind: Any, shape: tuple[int, ...], strides: tuple[int, ...]
) -> NDArray[Any]:
    before = offset % mmap.ALLOCATIONGRANULARITY
    with open(name, "rb") as file:
        whole = mmap.mmap(
            file.fileno(), size + before, access=mmap.ACCESS_COPY, offset=offset - before
        )
    first = before - sum((n - 1) * step for n, step in zip(shape, strides, strict=True) if step < 0)
    return np.ndarray(shape, kind, whole, first, strides)


# What a process has mapped


def mapped_bytes(inodes: Sequence[int], pid: int | str = "self") -> int:
    """Memory of a process that is pages of these files; 0 where the system does not tell."""
    if not inodes:
        return 0
    try:
        return sum(
            size for _, _, inode, size in _maps(Path(f"/proc/{pid}/smaps")) if inode in inodes
        )
    except OSError:
        return 0


def _maps(path: Path) -> Iterator[tuple[int, int, int, int]]:
    """Start, end, inode and bytes in memory of each map in a list of the system's."""
    entry: tuple[int, int, int] | None = None
    size = 0
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split(maxsplit=5)
            start, dash, end = words[0].partition("-")
            if dash and len(words) >= 5:
                if entry is not None:
                    yield (*entry, size)
                entry, size = (int(start, 16), int(end, 16), int(words[4])), 0
            elif words[0] == "Rss:":
                size += 1024 * int(words[1])
            elif words[0] == "Anonymous:":  # written to: no longer the file's
                size -= 1024 * int(words[1])
    if entry is not None:
        yield (*entry, size)
