"""Class statistics, LDA, nearest neighbours and LMNN: time against peers, and memory.

``python benchmarks/foundation.py`` runs every case in a fresh process, with one thread and with
all cores, and writes ``results/foundation.md``. Data are generated with seed 0.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

import numpy as np
from common import RESULTS, best_of_three, in_fresh_process, megabytes_beyond, write_table


def labeled(n, p, n_classes, dtype, seed=0):
    """Gaussian classes; built in place, so that the peak is the data."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    centers = rng.normal(size=(n_classes, p)).astype(dtype)
    X = np.empty((n, p), dtype)
    for start in range(0, n, 10_000):
        block = slice(start, start + 10_000)
        X[block] = rng.standard_normal(X[block].shape, dtype=dtype) + centers[y[block]]
    return X, y


def statistics(dtype):
    from nearfar import ClassStatistics

    X, y = labeled(1_000_000, 64, 10, dtype)
    memory = megabytes_beyond(lambda: ClassStatistics().partial_fit(X, y))
    return {
        "peer": "X.T @ X",
        "peer s": best_of_three(lambda: X.T @ X),
        "nearfar s": best_of_three(lambda: ClassStatistics().partial_fit(X, y)),
        "MB beyond the data": memory,
        "target": "at most 1.5× the peer" if dtype == np.float64 else "at most 2.5× the peer",
    }


def factored_statistics():
    from nearfar import ClassStatistics

    X, y = labeled(68 * 40, 1024, 68, np.float64)
    y = np.repeat(np.arange(68), 40)
    memory = megabytes_beyond(lambda: ClassStatistics().partial_fit(X, y))
    return {
        "nearfar s": best_of_three(lambda: ClassStatistics().partial_fit(X, y)),
        "MB beyond the data": memory,
        "target": "below 400 MB",
    }


def lda():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    from nearfar import LDA

    X, y = labeled(200_000, 200, 10, np.float32)
    memory = megabytes_beyond(lambda: LDA().fit(X, y))
    return {
        "peer": "LinearDiscriminantAnalysis(solver='eigen')",
        "peer s": best_of_three(lambda: LinearDiscriminantAnalysis(solver="eigen").fit(X, y)),
        "nearfar s": best_of_three(lambda: LDA().fit(X, y)),
        "MB beyond the data": memory,
        "target": "8× faster than the peer, at most 64 MB",
    }


def knn():
    from sklearn.neighbors import KNeighborsClassifier

    from nearfar import KNNClassifier

    X, y = labeled(60_000, 50, 10, np.float32)
    queries, _ = labeled(10_000, 50, 10, np.float32, seed=1)
    ours = KNNClassifier().fit(X, y)
    theirs = KNeighborsClassifier(3, algorithm="brute").fit(X, y)
    memory = megabytes_beyond(lambda: ours.predict(queries))
    return {
        "peer": "KNeighborsClassifier(3, algorithm='brute')",
        "peer s": best_of_three(lambda: theirs.predict(queries)),
        "nearfar s": best_of_three(lambda: ours.predict(queries)),
        "MB beyond the data": memory,
        "target": "-",
    }


def lmnn():
    import time

    from nearfar import LMNN

    X, y = labeled(10_000, 50, 10, np.float64)
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    learner = LMNN()
    memory = megabytes_beyond(lambda: learner.fit(X, y))
    seconds = time.perf_counter() - start
    return {
        "nearfar s": seconds,
        "MB beyond the data": memory,
        "target": f"below 1 GB ({learner.n_iter_} iterations, {learner.n_active_} active hinges)",
    }


CASES = {
    "ClassStatistics 1,000,000×64, 10 classes, float64": lambda: statistics(np.float64),
    "ClassStatistics 1,000,000×64, 10 classes, float32": lambda: statistics(np.float32),
    "ClassStatistics 68 classes × 40 rows × 1024, factored": factored_statistics,
    "LDA 200,000×200, float32": lda,
    "3-NN, 60,000×50 float32, 10,000 queries": knn,
    "LMNN 10,000×50, 10 classes, one fit": lmnn,
}


def main():
    rows = []
    for case in CASES:
        for threads in sorted({1, os.cpu_count()}):
            found = in_fresh_process(__file__, case, threads)
            row = {"case": case, "threads": threads, "peer": found.get("peer", "-")}
            row["peer s"] = f"{found['peer s']:.3f}" if "peer s" in found else "-"
            row["nearfar s"] = f"{found['nearfar s']:.3f}"
            ratio = found["nearfar s"] / found["peer s"] if "peer s" in found else None
            row["nearfar / peer"] = f"{ratio:.2f}" if ratio else "-"
            row["MB beyond the data"] = f"{found['MB beyond the data']:.0f}"
            row["target"] = found["target"]
            print(row, flush=True)
            rows.append(row)
    notes = (
        "Best of three runs in one process (LMNN: one fit); both sides with the same data and "
        "number of threads. Memory is the high-water mark above what the loaded data and "
        "libraries take. Made by `python benchmarks/foundation.py`."
    )
    write_table(RESULTS / "foundation.md", "The foundation", notes, rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(CASES[sys.argv[1]]()))
    else:
        main()
