"""Where shared matrices are kept: in the memory of one process, or in files for several.

Files are worked on together. A matrix is cut into blocks; who needs it computes the blocks that no
one else has begun, then waits for those in work. A block is claimed by a lock on one byte of the
file, which the system lets go when a process ends: what was killed leaves its block to the next.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TypeVar

import numpy as np

from nearfar.arrays import Matrix

try:
    import fcntl
except ImportError:  # Windows: there each process works for itself
    fcntl = None  # type: ignore[assignment]

Made = TypeVar("Made")
#: Rows of a block, and the first of its columns.
Block = tuple[slice, int]
Work = Callable[[slice], Sequence[Matrix]]
#: Room for matrices, of all folds together: the oldest go first.
MAX_BYTES = 500 * 2**20


class Shelf(Protocol):
    """Boxes of matrices that are computed once."""

    def once(self, box: str, make: Callable[[], Made]) -> tuple[Made, float]:
        """What ``make`` returns, and the seconds it took whoever called it."""

    def blocks(
        self, box: str, name: str, shape: tuple[int, ...], blocks: list[Block], work: Work
    ) -> tuple[Any, float]:
        """A stack of matrices, filled by ``work`` block by block, and the seconds of all blocks."""


class MemoryShelf:
    """Boxes in this process."""

    def __init__(self) -> None:
        self._boxes: dict[str, dict[str, tuple[Any, float]]] = {}
        self._sizes: Counter[str] = Counter()

    def __getstate__(self) -> dict[str, Any]:
        return vars(MemoryShelf())  # not for other processes

    def once(self, box: str, make: Callable[[], Made]) -> tuple[Made, float]:
        """As in :class:`Shelf`."""
        if "" not in self._boxes.get(box, {}):
            made = _timed(make)
            self._keep(box, "", made, len(pickle.dumps(made[0])))
        return self._boxes[box][""]

    def blocks(
        self, box: str, name: str, shape: tuple[int, ...], blocks: list[Block], work: Work
    ) -> tuple[Any, float]:
        """As in :class:`Shelf`."""

        def fill() -> Matrix:
            found = np.zeros(shape)
            for rows, first in blocks:
                for array, part in zip(found, work(rows), strict=True):
                    array[rows, first:] = part
            return found

        if name not in self._boxes.get(box, {}):
            self._keep(box, name, _timed(fill), 8 * int(np.prod(shape)))
        return self._boxes[box][name]

    def _keep(self, box: str, name: str, made: tuple[Any, float], size: int) -> None:
        """Put something into a box; the oldest others go if there is no room for it."""
        self._boxes.setdefault(box, {})[name] = made
        self._sizes[box] += size
        for oldest in [other for other in self._boxes if other != box]:
            if self._sizes.total() <= MAX_BYTES:
                return
            del self._boxes[oldest], self._sizes[oldest]


class FolderShelf:
    """Boxes that are folders, for all processes that know the one they are in.

    Parameters
    ----------
    folder : str
        Where; whoever owns it removes it.
    """

    #: Whether this system has the locks.
    possible = fcntl is not None

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) / "pairs"
        self._own = MemoryShelf()  # where there is no room for files

    def once(self, box: str, make: Callable[[], Made]) -> tuple[Made, float]:
        """As in :class:`Shelf`."""
        path = self._folder / box / "made"
        try:
            with self._opened(box, "lock") as lock, _claimed(lock, 0):
                if not path.exists():
                    found = _timed(make)
                    # Under another name until it is whole: who is killed leaves nothing.
                    path.with_suffix(".part").write_bytes(pickle.dumps(found))
                    path.with_suffix(".part").replace(path)
                    return found
                found = pickle.loads(path.read_bytes())
                return found
        except OSError:
            return self._own.once(box, make)

    def blocks(
        self, box: str, name: str, shape: tuple[int, ...], blocks: list[Block], work: Work
    ) -> tuple[Any, float]:
        """As in :class:`Shelf`."""
        try:
            return self._together(box, name, shape, blocks, work)
        except OSError:
            return self._own.blocks(box, name, shape, blocks, work)

    def _together(
        self, box: str, name: str, shape: tuple[int, ...], blocks: list[Block], work: Work
    ) -> tuple[Any, float]:
        size = 8 * int(np.prod(shape))
        if not (self._folder / box / name).exists():
            self._make_room(box, size)
        # Seconds stand behind the numbers, in one file: neither is cleared away without the other.
        with self._opened(box, name) as file:
            os.ftruncate(file, size + 8 * len(blocks))

            def seconds_of(number: int) -> float:
                """0 if a block is not done."""
                return float(np.frombuffer(os.pread(file, 8, size + 8 * number))[0])

            for wait in (False, True):
                for number, (rows, first) in enumerate(blocks):
                    if seconds_of(number):
                        continue
                    with _claimed(file, number, wait=wait) as mine:
                        if mine and not seconds_of(number):
                            began = perf_counter()
                            _put(file, work(rows), rows.start, first, shape)
                            spent = np.float64(perf_counter() - began)
                            os.pwrite(file, spent.tobytes(), size + 8 * number)  # done
            every = [seconds_of(number) for number in range(len(blocks))]
            if not all(every):
                raise OSError("blocks could not be claimed")
            mapped = mmap.mmap(file, size, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, np.float64).reshape(shape), sum(every)

    @contextmanager
    def _opened(self, box: str, name: str) -> Iterator[int]:
        """A file of a box, which may just have been cleared away."""
        (self._folder / box).mkdir(parents=True, exist_ok=True)
        file = os.open(self._folder / box / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def _make_room(self, box: str, size: int) -> None:
        """Remove the oldest boxes. What others have open of them stays theirs until they close."""
        sizes: dict[Path, tuple[float, int]] = {}
        with suppress(OSError):
            for other in self._folder.iterdir():
                files = [file.stat() for file in other.iterdir()]
                begun = min((file.st_ctime for file in files), default=0.0)
                sizes[other] = (begun, sum(file.st_size for file in files))
        total = size + sum(kept for _, kept in sizes.values())
        for other in sorted(sizes, key=lambda path: sizes[path][0]):
            if total <= MAX_BYTES:
                return
            if other.name != box:
                total -= sizes[other][1]
                shutil.rmtree(other, ignore_errors=True)


def _timed(make: Callable[[], Made]) -> tuple[Made, float]:
    began = perf_counter()
    made = make()
    return made, perf_counter() - began


@contextmanager
def _claimed(file: int, number: int, *, wait: bool = True) -> Iterator[bool]:
    """Whether one byte of a file is ours, which then no other process has."""
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, number)
    except (BlockingIOError, PermissionError):
        yield False
        return
    try:
        yield True
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, number)


def _put(
    file: int, parts: Sequence[Matrix], start: int, first: int, shape: tuple[int, ...]
) -> None:
    """Write rows, not by memory: a full disk is then an error, not the end of the process."""
    _, n, m = shape
    for k, part in enumerate(parts):
        for i, row in enumerate(part):
            data, at = row.tobytes(), 8 * ((k * n + start + i) * m + first)
            if os.pwrite(file, data, at) < len(data):
                raise OSError("no space is left for shared matrices")
