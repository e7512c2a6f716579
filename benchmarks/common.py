"""The frame of the benchmarks: time, peak memory in a fresh process, a table with versions."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def best_of_three(work: Callable[[], Any]) -> float:
    """Shortest of three runs in seconds, after none to warm up."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def in_fresh_process(script: str, case: str, threads: int) -> dict[str, Any]:
    """Run ``script case`` with so many threads; it prints one JSON object last."""
    environment = os.environ | {
        name: str(threads)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    }
    run = subprocess.run(
        [sys.executable, script, case], env=environment, capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise RuntimeError(f"{script} {case} failed:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


def resident() -> int:
    """Bytes of memory in use now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def megabytes_beyond(work: Callable[[], Any]) -> float:
    """High-water mark of memory during ``work`` above what was in use before it, in MB.

    The kernel keeps one mark for a process; it is reset first, where that is allowed.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    before = resident()
    work()
    try:
        status = Path("/proc/self/status").read_text()
        peak = next(int(row.split()[1]) * 1024 for row in status.splitlines() if "VmHWM" in row)
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return (peak - before) / 1e6


def versions(*peers: str) -> str:
    from importlib.metadata import version

    names = ("nearfar", "numpy", "scipy", "scikit-learn", *peers)
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {packages}; {os.cpu_count()} cores"


def write_table(
    path: Path, title: str, notes: str, rows: list[dict[str, Any]], *peers: str
) -> None:
    """A Markdown table, one column a key; ``peers`` are the packages compared with."""
    columns = list(rows[0])
    lines = [f"# {title}", "", notes, "", versions(*peers), ""]
    lines.append("| " + " | ".join(columns) + " |")
    lines.append("|" + "---|" * len(columns))
    lines += ["| " + " | ".join(str(row.get(name, "")) for name in columns) + " |" for row in rows]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
