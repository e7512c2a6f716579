"""What the contenders share: fits, measured, in the interpreter of the contender.

``run_x.py task.npz result.npz settings [repeat]`` reads arrays from the task, X and y or what else
there is to learn from, and settings as JSON, writes the map and what else ``fit`` returns to the
result, and prints one JSON object last: the fastest of ``repeat`` fits by CPU seconds, the memory
of the first. With an array "fold" in the task it fits once without the rows of each fold instead,
and tells the mean seconds and the most memory; the maps are "L0", "L1", ...
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
from common import megabytes_beyond

# CPU seconds of a fit that need no repeat.
LONG = 20


def main(version: str, fit: Callable[..., tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Run ``fit(**arrays, **settings)``, which returns arrays and words on the fit.

    The arrays are "L", the map, and "mapped", the first ten rows of X as the contender itself maps
    them, by which the benchmark checks that it reads L rightly.
    """
    task, result, settings, *more = sys.argv[1:]
    repeat = int(more[0]) if more else 1
    with np.load(task) as stored:
        given = dict(stored)
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"runs": 0, "cpu": float("inf")}
    fold = given.pop("fold", None)

    def by_fold() -> None:
        maps, wall, cpu = {}, time.perf_counter(), time.process_time()
        for number in range(fold.max() + 1):
            rows = {name: array[fold != number] for name, array in given.items()}
            maps[f"L{number}"] = fit(**rows, **json.loads(settings))[0]["L"]
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        found.update(wall=wall / len(maps), cpu=cpu / len(maps), runs=repeat, words={})
        np.savez(result, **maps)

    def work() -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        arrays, words = fit(**copied(given), **json.loads(settings))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        found["runs"] += 1
        if cpu < found["cpu"]:
            found.update(wall=wall, cpu=cpu, words=words)
            np.savez(result, **arrays)

    memory = megabytes_beyond(work if fold is None else by_fold)
    while found["runs"] < repeat and found["cpu"] < LONG:
        work()
    print()  # a peer may have left a line open
    print(json.dumps(found | {"MB": memory, "version": version}))


def copied(given: dict[str, Any]) -> dict[str, Any]:
    """The arrays, small ones copied: a peer may write into its bounds."""
    return {name: array.copy() if array.size < 100 else array for name, array in given.items()}
