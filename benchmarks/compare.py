"""``nearfar compare`` at real sizes: how long, on how many rows and folds, with what answer.

    python benchmarks/compare.py --data DIR [--cases rows768 rows40 wide images sets] [--budget 120]

Each case is a file in a temporary folder, compared by the command line with its defaults in a
process of its own. Memory is that of all processes together, without what the system can drop
(mapped files), above the size of the data; it is read ten times a second. Simulated but for the
images, MNIST, which are left out without ``--data``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, write_table

NAMES = {
    "rows768": "20,000×768 float32, 20 classes",
    "rows40": "100,000×40, 5 classes",
    "wide": "800×2,000, 4 classes",
    "images": "60,000×28×28 (MNIST)",
    "sets": "3,000 sets × 13, 6 classes",
}


def mixed(n: int, p: int, n_classes: int, rng: np.random.Generator, spread: float) -> Any:
    """Classes that differ in 15 directions of a space whose widest directions say nothing."""
    y = rng.integers(0, n_classes, n)
    scales = np.r_[np.ones(15), 2.5 * np.ones(10), np.geomspace(1.5, 0.1, p - 25)]
    X = rng.normal(size=(n, p)).astype(np.float32) * scales.astype(np.float32)
    X[:, :15] += (spread * rng.normal(size=(n_classes, 15)))[y].astype(np.float32)
    turn = np.linalg.qr(rng.normal(size=(p, p)))[0].astype(np.float32)
    return X @ turn, y


def rows768(_: Path | None) -> dict[str, Any]:
    X, y = mixed(20_000, 768, 20, np.random.default_rng(0), 1.3)
    return {"X": X, "y": y}


def rows40(_: Path | None) -> dict[str, Any]:
    X, y = mixed(100_000, 40, 5, np.random.default_rng(1), 0.7)
    return {"X": X.astype(np.float64), "y": y}


def wide(_: Path | None) -> dict[str, Any]:
    X, y = mixed(800, 2000, 4, np.random.default_rng(2), 1.0)
    return {"X": X.astype(np.float64), "y": y}


def images(data: Path | None) -> dict[str, Any] | None:
    if data is None:
        return None
    with np.load(data / "mnist.npz") as file:
        X, y = file["X"][:60_000], file["y"][:60_000]
    return {"X": X.reshape(-1, 28, 28), "y": y}


def sets(_: Path | None) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    y = rng.integers(0, 6, 3000)
    sizes = rng.integers(20, 60, 3000)
    means = 0.25 * rng.normal(size=(6, 13))
    shapes = np.eye(13) + 0.25 * rng.normal(size=(6, 13, 13))
    parts = [
        rng.normal(size=(t, 13)) @ shapes[c] + means[c] + 0.6 * rng.normal(size=13)
        for t, c in zip(sizes, y, strict=True)
    ]
    return {"X": np.vstack(parts), "offsets": np.r_[0, np.cumsum(sizes)], "y": y}


def anonymous_mb(pid: int) -> float:
    """MB that a process and its children hold, each page counted once for all who share it."""
    total, todo = 0, [pid]
    while todo:
        one = todo.pop()
        try:
            rollup = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            for task in os.listdir(f"/proc/{one}/task"):
                todo += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
        except (OSError, ValueError):
            continue
        parts = {line.split(":")[0]: line.split()[1] for line in rollup[1:]}
        total += int(parts["Pss_Anon"]) + int(parts["Pss_Shmem"])
    return total / 1000


def run(case: str, data: Path | None, budget: float, keep: Path | None) -> dict[str, Any] | None:
    arrays = globals()[case](data)
    if arrays is None:
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "data.npz", **arrays)
        size = sum(np.asarray(array).nbytes for array in arrays.values()) / 1e6
        command = [sys.executable, "-m", "nearfar", "compare", "data.npz", "--json", "all.json"]
        command += ["--time-budget", f"{budget:g}", "--no-rows"]
        environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
        began, peaks = time.monotonic(), [0.0]
        with open(folder / "said.txt", "w") as said:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=said, stderr=said
            )
            ended = threading.Event()

            def watch() -> None:
                while not ended.wait(0.1):
                    peaks.append(anonymous_mb(process.pid))

            watcher = threading.Thread(target=watch)
            watcher.start()
            code = process.wait()
            seconds = time.monotonic() - began
            ended.set()
            watcher.join()
        text = (folder / "said.txt").read_text()
        if keep is not None:
            (keep / f"{case}.txt").write_text(text)
            for end in ("all.json", "report.html"):
                if (folder / end).exists():
                    (keep / f"{case}-{end}").write_bytes((folder / end).read_bytes())
        if code:
            raise RuntimeError(f"{case} failed:\n{text}")
        document = json.loads((folder / "all.json").read_text())
    return {
        "data": NAMES[case],
        "seconds": f"{seconds:.0f}",
        "peak MB over the data": f"{max(peaks) - size:.0f}",
        **told(document),
    }


def told(document: dict[str, Any]) -> dict[str, Any]:
    plan = document["protocol"]["planned"]
    compared = [m for m in document["methods"] if m["role"] in ("learner", "reference")]
    common = set.intersection(*({r["fold"] for r in m["results"]} for m in compared))
    return {
        "rows": "all" if plan["rows"] is None else f"{plan['rows']:,}",
        "tuning": plan["tuning"],
        "left out": ", ".join(plan["left_out"]) or "-",
        "common folds of all learners": len(common),
        "verdict": document["answer"]["verdict"],
        "answer": document["answer"]["text"],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("NEARFAR_DATA"))
    parser.add_argument("--cases", nargs="*", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--keep", type=Path, help="a folder for what each run said and wrote")
    options = parser.parse_args()
    data = None if options.data is None else Path(options.data)
    found = [run(case, data, options.budget, options.keep) for case in options.cases]
    write_table(
        RESULTS / "compare.md",
        f"compare at real sizes, --time-budget {options.budget:g}",
        "One run each on two quiet cores, `python benchmarks/compare.py`. Seconds from the start "
        "of the command to its end; memory of all its processes together.",
        [row for row in found if row is not None],
    )
