"""NCA, MCML and MLKR beside scikit-learn: time, memory, objective and error.

Run ``python benchmarks/nca.py [--cases digits,5000,...] [--threads 1]``. Peers and ours run in one
process each, one after the other; the best of three counts (one for the large cases). Results are
kept in ``results/nca.json``, from which the pages are made, one for each number of threads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from typing import Any

import numpy as np
from common import RESULTS, in_fresh_process, megabytes_beyond, write_table


def generated(n: int) -> tuple[Any, ...]:
    """Rows to learn from and 5,000 others."""
    from sklearn.datasets import make_classification

    X, y = make_classification(
        n + 5000, 50, n_informative=20, n_redundant=10, n_classes=5, random_state=0
    )
    return X[:n].copy(), y[:n].copy(), X[n:].copy(), y[n:].copy()


def digits() -> tuple[Any, ...]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    test = np.arange(len(X)) % 5 == 0
    return X, y, X[test], y[test]


def wine() -> tuple[Any, ...]:
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True)
    return X, y, X, y


def wave() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 30))
    y = np.sin(X[:, 0] + X[:, 1]) + 0.1 * rng.normal(size=2000)
    return X, y, X, y


def axes(X: Any, size: int) -> Any:
    from sklearn.decomposition import PCA

    return PCA(size).fit(X).components_


def sklearn_nca(X: Any, **options: Any) -> Any:
    from sklearn.neighbors import NeighborhoodComponentsAnalysis

    return NeighborhoodComponentsAnalysis(**options)


def our_nca(X: Any, **options: Any) -> Any:
    from nearfar import NCA

    return NCA(**options)


def our_nca_unscaled(X: Any, **options: Any) -> Any:
    from nearfar import NCA
    from nearfar.summaries.whitening import scale_uniformly

    class Unscaled(NCA):
        _coordinates = staticmethod(scale_uniformly)

    return Unscaled(**options)


def our_mcml(X: Any, **options: Any) -> Any:
    from nearfar import MCML

    return MCML(**options)


def our_mlkr(X: Any, **options: Any) -> Any:
    from nearfar import MLKR

    return MLKR(**options)


class BruteSearch:
    """The unit in which large fits are measured."""

    def fit(self, X: Any, y: Any) -> None:
        from sklearn.neighbors import NearestNeighbors

        NearestNeighbors(algorithm="brute").fit(X).kneighbors(X, 100)


def brute(X: Any, **options: Any) -> Any:
    return BruteSearch()


# Data; what is fitted; its parameters, of X where they need it; repeats.
CASES: dict[str, dict[str, tuple[Any, Any, Any, int]]] = {
    "digits": {
        "scikit-learn": (digits, sklearn_nca, lambda X: {"init": axes(X, 10), "max_iter": 100}, 3),
        "nearfar": (
            digits,
            our_nca,
            lambda X: {"n_components": 10, "init": axes(X, 10), "max_iter": 100},
            3,
        ),
        "nearfar, its own start": (digits, our_nca, lambda X: {"n_components": 10}, 3),
        "nearfar, 100 neighbours": (
            digits,
            our_nca,
            lambda X: {"n_components": 10, "n_neighbors": 100},
            3,
        ),
    },
    "5000": {
        "scikit-learn": (
            lambda: generated(5000),
            sklearn_nca,
            lambda X: {"init": "identity", "max_iter": 50, "tol": 0},
            1,
        ),
        "nearfar": (lambda: generated(5000), our_nca, lambda X: {"max_iter": 50, "tol": 0}, 1),
        "nearfar, defaults": (lambda: generated(5000), our_nca, lambda X: {}, 1),
        'nearfar, init="identity"': (
            lambda: generated(5000),
            our_nca,
            lambda X: {"init": "identity", "max_iter": 50, "tol": 0},
            1,
        ),
        "nearfar, init=np.eye(50)": (
            lambda: generated(5000),
            our_nca,
            lambda X: {"init": np.eye(50), "max_iter": 50, "tol": 0},
            1,
        ),
        "nearfar, init=np.eye(50), in the coordinates of the data": (
            lambda: generated(5000),
            our_nca_unscaled,
            lambda X: {"init": np.eye(50), "max_iter": 50, "tol": 0},
            1,
        ),
        "nearfar, 100 neighbours": (
            lambda: generated(5000),
            our_nca,
            lambda X: {"n_neighbors": 100},
            1,
        ),
    },
    "20000": {
        "brute search for 100": (lambda: generated(20_000), brute, lambda X: {}, 3),
        "nearfar": (lambda: generated(20_000), our_nca, lambda X: {}, 1),
    },
    "60000": {
        "brute search for 100": (lambda: generated(60_000), brute, lambda X: {}, 1),
        "nearfar": (lambda: generated(60_000), our_nca, lambda X: {"n_jobs": -1}, 1),
    },
    "mcml-wine": {
        "nearfar": (wine, our_mcml, lambda X: {}, 3),
        "nearfar, tol=0": (wine, our_mcml, lambda X: {"tol": 0, "max_iter": 3000}, 1),
    },
    "mcml-digits": {"nearfar": (digits, our_mcml, lambda X: {}, 1)},
    "mlkr-2000": {"nearfar": (wave, our_mlkr, lambda X: {}, 3)},
}
TARGETS = {
    "digits": "4 times scikit-learn, a tenth of its memory, objective within 0.1 %",
    "5000": "4 times scikit-learn, 60 MB, error at most 0.5 more",
    "20000": "20 searches, 300 MB, error at most 1.5 more than of all neighbours on 5,000",
    "60000": "20 searches, 1,000 MB, 300 s on two cores (--threads 2), error as for 20,000",
    "mcml-wine": "0.5 s, within 1e-6 of the optimum",
    "mcml-digits": "none",
    "mlkr-2000": "3 times metric-learn, see peers.py",
}


def run(case: str, contender: str) -> dict[str, Any]:
    """One contender in this process."""
    from sklearn.neighbors import KNeighborsClassifier

    warnings.simplefilter("ignore")
    data, make, options, repeats = CASES[case][contender]
    X, y, X_test, y_test = data()
    learner = make(X, **options(X))
    found: dict[str, Any] = {}
    # Memory first, in a process that has loaded no more than the data; then the clock.
    wall, cpu = time.perf_counter(), time.process_time()
    found["MB"] = round(megabytes_beyond(lambda: learner.fit(X, y)), 1)
    best = (time.process_time() - cpu, time.perf_counter() - wall)
    for _ in range(repeats - 1):
        wall, cpu = time.perf_counter(), time.process_time()
        learner.fit(X, y)
        best = min(best, (time.process_time() - cpu, time.perf_counter() - wall))
    found |= {"CPU s": round(best[0], 3), "wall s": round(best[1], 3)}
    if hasattr(learner, "components_"):
        found["iterations"] = learner.n_iter_
        if case.startswith("m"):
            found["objective"] = learner.objective_
            found["optimality"] = getattr(learner, "optimality_", None)
        else:
            found["objective"] = full_objective(learner.components_, X, y)
            L = learner.components_.T
            vote = KNeighborsClassifier(3).fit(X @ L, y)
            if case != "digits":  # there all rows are learned from
                found["error %"] = round(100 * (1 - vote.score(X_test @ L, y_test)), 2)
    return found


def full_objective(L: Any, X: Any, y: Any) -> float:
    """The number of rows that soft neighbours get right, of all contenders alike."""
    from nearfar.solvers.soft_neighbors import SoftNeighbors

    order = np.argsort(y, kind="stable")
    precision = "double" if len(X) <= 5000 else "single"
    return SoftNeighbors(X[order], y[order], "sum", precision=precision).value(np.asarray(L, float))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    stored = RESULTS / "nca.json"
    results = json.loads(stored.read_text()) if stored.exists() else []
    for case in options.cases.split(",") if options.cases else []:
        rows = []
        for contender in CASES[case]:
            found = in_fresh_process(__file__, f"run:{case}:{contender}", options.threads)
            row = {"threads": options.threads, "case": case, "contender": contender, **found}
            rows.append(row)
            print(row, flush=True)
        key = (options.threads, case)
        results = [row for row in results if (row["threads"], row["case"]) != key] + rows
        stored.write_text(json.dumps(results, indent=1) + "\n")
    for threads, name in ((1, "nca.md"), (2, "nca_two_threads.md")):
        write([row for row in results if row["threads"] == threads], threads, name)


def write(results: list[dict[str, Any]], threads: int, name: str) -> None:
    """The page of a number of threads."""
    rows = []
    for case, contenders in CASES.items():
        here = {row["contender"]: row for row in results if row["case"] == case}
        first = next((here[one]["CPU s"] for one in contenders if one in here), None)
        for contender in contenders:
            if contender not in here:
                continue
            found = here[contender]
            row = {"case": case, "contender": contender, "CPU s": found["CPU s"]}
            row["CPU / first"] = round(found["CPU s"] / first, 3)
            for key in ("wall s", "MB", "objective", "error %", "iterations", "optimality"):
                row[key] = found.get(key) if found.get(key) is not None else "-"
            if isinstance(row["objective"], float):
                row["objective"] = round(row["objective"], 1 if row["objective"] > 1000 else 5)
            row["target"] = TARGETS[case]
            rows.append(row)
    notes = (
        f"{threads} thread(s) on all sides, a fresh process for each row; CPU seconds of "
        "the best of three fits (one of the large cases), peak memory above the loaded data. The "
        "objective is the expected number of rows that are classified rightly, over all "
        "neighbours (of MCML and MLKR their own); errors are those of 3-NN on 5,000 other rows."
    )
    about_5000 = (
        "\n\nOn 5000 scikit-learn starts from the identity and stops at its limit, 50 iterations; "
        "ours has 50 as well. There the mean squared distance is 1,326: under the identity a row "
        "has one soft neighbour, and what 50 iterations reach from that start depends on the "
        "coordinates of the descent, standardised (as ours are) or those of the data (as "
        'scikit-learn\'s). Our own starts, "identity" too, are scaled down to where rows have '
        "several soft neighbours; a given array is taken as it is."
    )
    if any(row["case"] == "5000" for row in rows):
        notes += about_5000
    write_table(RESULTS / name, "NCA, MCML, MLKR", notes, rows)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("run:"):
        _, chosen, who = sys.argv[1].split(":")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        print(json.dumps(run(chosen, who)))
    else:
        main()
