"""Where shared matrices are kept: in the memory of one process, or in files for several.

Files are worked on together. A matrix is cut into blocks; who needs it computes the blocks that no
one else has begun, on as many cores as are free, then waits for those in work. A block is claimed
by a lock on one byte of the file, which the system lets go when a process ends: what was killed
leaves its block to the next.
"""

from __future__ import annotations

import mmap
import os
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, TypeVar

import numpy as np

from nearfar.arrays import Matrix
from nearfar.blocks import map_in_order

try:
    import fcntl
except ImportError:  # Windows: there each process works for itself
    fcntl = None  # type: ignore[assignment]

Made = TypeVar("Made")
#: Rows of a block, and the first of its columns.
Block = tuple[slice, int]
Work = Callable[[slice], Sequence[Matrix]]
#: Room for matrices in memory, and in files, of all folds together.
MAX_BYTES = 500 * 2**20
MAX_FILE_BYTES = 2**31
#: What the names of boxes begin with that all folds read.
FOR_ALL = "all"
#: The file that says how many cores a process may use.
CORES = "cores"


class Shelf(Protocol):
    """Boxes of matrices that are computed once."""

    def once(self, box: str, make: Callable[[], Made]) -> tuple[Made, float]:
        """What ``make`` returns, and the seconds it took whoever called it."""

    def blocks(
        self, box: str, name: str, shape: tuple[int, ...], blocks: list[Block], work: Work
    ) -> tuple[Any, float]:
        """A stack of matrices, filled by ``work`` block by block, and the seconds of all blocks."""


class MemoryShelf:
    """Boxes in this process.

    Parameters
    ----------
    n_threads : int, default=1
        That compute blocks.
    """

    def __init__(self, n_threads: int = 1) -> None:
        self._n_threads = n_threads
        # The last used come last.
        self._boxes: dict[str, dict[str, tuple[Any, float]]] = {}
        self._sizes: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(MemoryShelf())  # not for other processes

    def once(self, box: str, make: Callable[[], Made]) -> tuple[Made, float]:
        """As in :class:`Shelf`."""
        if "" not in self._boxes.get(box, {}):
            made = _timed(make)
            self._keep(box, "", made, len(pickle.dumps(made[0])))
        return self._taken(box, "")

    def blocks(
        self, box: str, name: str, shape: tuple[int, ...], blocks: list[Block], work: Work
    ) -> tuple[Any, float]:
        """As in :class:`Shelf`."""
        if name not in self._boxes.get(box, {}):
            found, spent = np.zeros(shape), np.zeros(len(blocks))

            def fill(number: int) -> None:
                rows, first = blocks[number]
                parts, spent[number] = _timed(lambda: work(rows))
                for array, part in zip(found, parts, strict=True):
                    array[rows, first:] = part

            _at_once(fill, range(len(blocks)), lambda: self._n_threads)
            # What lies before the first column is never touched, and so takes no memory.
            cells = sum((rows.stop - rows.start) * (shape[-1] - first) for rows, first in blocks)
            self._keep(box, name, (found, float(spent.sum())), 8 * shape[0] * cells)
        return self._taken(box, name)

    def _taken(self, box: str, name: str) -> tuple[Any, float]:
        self._boxes[box] = self._boxes.pop(box)
        return self._boxes[box][name]

    def _keep(self, box: str, name: str, made: tuple[Any, float], size: int) -> None:
        """Put something into a box, and make room for it."""
        self._boxes.setdefault(box, {})[name] = made
        self._sizes[box] = self._sizes.get(box, 0) + size
        used = {other: (age, self._sizes[other]) for age, other in enumerate(self._boxes)}
        for other in leaving(used, box, MAX_BYTES - self._sizes[box]):
            del self._boxes[other], self._sizes[other]


def leaving(kept: Mapping[str, tuple[float, int]], box: str, room: int) -> list[str]:
    """Which boxes, known by when they were last used and by their sizes, must leave for one.

    First those of other folds, the longest unused before others. Then those of its own fold, but
    the last used first: all methods go through them in one order, and if the first left, each would
    be computed anew by each method. Last those that all folds read, of which the same is true.

    >>> kept = {"f-a": (0, 5), "g-a": (1, 5), "g-b": (2, 5), "all-c": (0, 5), "all-d": (3, 5)}
    >>> [leaving(kept, "g-d", room) for room in (25, 20, 15, 5)]
    [[], ['f-a'], ['f-a', 'g-b'], ['f-a', 'g-b', 'g-a', 'all-d']]
    """

    def order(other: str) -> tuple[int, float]:
        used = kept[other][0]
        if other.startswith(FOR_ALL):
            return 2, -used
        return (1, -used) if other.split("-")[0] == box.split("-")[0] else (0, used)

    total = sum(size for other, (_, size) in kept.items() if other != box)
    gone: list[str] = []
    for other in sorted((other for other in kept if other != box), key=order):
        if total <= room:
            break
        total -= kept[other][1]
        gone.append(other)
    return gone


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
        self._cores = Path(folder) / CORES
        self._own = MemoryShelf()  # where there is no room for files

    def _n_threads(self) -> int:
        """Cores for this process, as whoever gives the tasks says; they change while it works."""
        try:
            return max(1, *self._cores.read_bytes()[:1])
        except (OSError, TypeError):
            return 1

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

            def do(number: int, wait: bool = False) -> None:
                rows, first = blocks[number]
                if seconds_of(number):
                    return
                with _claimed(file, number, wait=wait) as mine:
                    if mine and not seconds_of(number):
                        parts, spent = _timed(lambda: work(rows))
                        _put(file, parts, rows.start, first, shape)
                        # Done, which no seconds at all would not say.
                        os.pwrite(file, np.float64(max(spent, 1e-9)).tobytes(), size + 8 * number)

            _at_once(do, range(len(blocks)), self._n_threads)
            for number in range(len(blocks)):
                do(number, wait=True)
            every = [seconds_of(number) for number in range(len(blocks))]
            if not all(every):
                raise OSError("blocks could not be claimed")
            mapped = mmap.mmap(file, size, access=mmap.ACCESS_READ)
        return np.frombuffer(mapped, np.float64).reshape(shape), sum(every)

    @contextmanager
    def _opened(self, box: str, name: str) -> Iterator[int]:
        """A file of a box, which may just have been cleared away."""
        (self._folder / box).mkdir(parents=True, exist_ok=True)
        os.utime(self._folder / box)  # used just now
        file = os.open(self._folder / box / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def _make_room(self, box: str, size: int) -> None:
        """Remove other boxes. What others have open of them stays theirs until they close."""
        kept: dict[str, tuple[float, int]] = {}
        with suppress(OSError):
            for path in self._folder.iterdir():
                files = [file.stat().st_size for file in path.iterdir()]
                kept[path.name] = (path.stat().st_mtime, sum(files))
        own = size + kept.get(box, (0.0, 0))[1]
        free = shutil.disk_usage(self._folder.parent).free + sum(held for _, held in kept.values())
        most = min(MAX_FILE_BYTES, free // 2)  # others write files too
        if own > most:
            raise OSError("no space is left for shared matrices")
        for other in leaving(kept, box, most - own):
            shutil.rmtree(self._folder / other, ignore_errors=True)


def _at_once(
    do: Callable[[int], None], numbers: Iterable[int], n_threads: Callable[[], int]
) -> None:
    """Do something for each number, on as many threads as there are just then."""
    todo = list(numbers)
    while todo:
        n = n_threads()
        now, todo = todo[:n], todo[n:]
        for _ in map_in_order(do, now, n):
            pass


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
