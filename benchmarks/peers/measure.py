"""What the contenders share: one fit, measured, in the interpreter of the contender.

``run_x.py task.npz result.npz settings`` reads X and y from the task and settings as JSON, writes
the map and what else ``fit`` returns to the result, and prints one JSON object last.
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


def main(version: str, fit: Callable[..., tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Run ``fit(X, y, **settings)``, which returns arrays and words on the fit.

    The arrays are "L", the map, and "mapped", the first ten rows of X as the contender itself maps
    them, by which the benchmark checks that it reads L rightly.
    """
    task, result, settings = sys.argv[1:]
    with np.load(task) as arrays:
        X, y = arrays["X"], arrays["y"]
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {}

    def work() -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        arrays, words = fit(X, y, **json.loads(settings))
        found.update(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu, words=words)
        np.savez(result, **arrays)

    memory = megabytes_beyond(work)
    print()  # a peer may have left a line open
    print(json.dumps(found | {"MB": memory, "version": version}))
