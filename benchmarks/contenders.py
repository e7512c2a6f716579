"""One fit of one contender: a process of its own, in the environment that it needs."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PEERS = Path(__file__).parent / "peers"
# Of each contender: the script in ``peers/``, and the environment, None for this one.
SCRIPTS: dict[str, tuple[str, str | None]] = {
    "nearfar": ("run_nearfar.py", None),
    "scikit-learn": ("run_scikit_learn.py", None),
    "metric-learn": ("run_metric_learn.py", "metric-learn"),
    "mlpack": ("run_mlpack.py", "mlpack"),
    "pyDML": ("run_pydml.py", "pydml"),
    "PyLMNN": ("run_pylmnn.py", "pylmnn"),
    "MKLpy": ("run_mklpy.py", "mklpy"),
}


class Failed(RuntimeError):
    """A fit that raised, or was not done in time; in a few words."""


def last_error(said: str) -> str:
    """The line that names the error; more lines may follow, such as an array."""
    lines = [line for line in said.splitlines() if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return lines[-1] if lines else "".join(said.strip().splitlines()[-1:])


def fault_of(L: NDArray[Any]) -> str:
    """Why a map is of no use, or an empty word."""
    if np.iscomplexobj(L):
        return "the map is complex"
    return "" if np.isfinite(L).all() else "the map has NaN"


def environment_of(who: str, peers: str | None) -> Path | None:
    """The interpreter of a contender, None when it is not there."""
    folder = SCRIPTS[who][1]
    if folder is None:
        return Path(sys.executable)
    python = Path(peers or "", folder, "bin", "python")
    return python if peers and python.exists() else None


def fit_once(
    script: str,
    python: str | Path,
    arrays: dict[str, NDArray[Any]],
    settings: dict[str, Any],
    *,
    threads: int = 1,
    limit: float = 600,
    repeat: int = 1,
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What ``peers/measure.py`` found, and the arrays of the fit, "L" among them.

    Raises ``Failed`` when the contender does, or after ``limit`` CPU seconds.
    """
    environment = os.environ | {
        name: str(threads)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    }
    if str(python) != sys.executable:
        environment.pop("PYTHONPATH", None)
    seconds = int(np.ceil(limit)) + 3  # for imports
    with tempfile.TemporaryDirectory() as folder:
        task, result = Path(folder) / "task.npz", Path(folder) / "result.npz"
        np.savez(task, **arrays)
        found = subprocess.run(
            [str(python), str(PEERS / script), task, result, json.dumps(settings), str(repeat)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5)),
        )
        if found.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise Failed(f"not done after {limit:g} CPU s, or out of memory")
        if found.returncode:
            raise Failed(last_error(found.stderr) or f"ended with {found.returncode}")
        with np.load(result) as stored:
            learned = dict(stored)
    if "mapped" in learned and not fault_of(learned["L"]):
        # A map read the wrong way round still looks like a map, and may even classify well.
        theirs = learned["mapped"] - learned["mapped"][0]
        ours = (arrays["X"][:10] - arrays["X"][0]) @ learned["L"].T
        if ours.shape != theirs.shape or not np.allclose(
            ours, theirs, 1e-3, 1e-3 * abs(theirs).max()
        ):
            raise RuntimeError(f"{script}: L does not map X as the contender itself does.")
    return json.loads(found.stdout.splitlines()[-1]), learned
