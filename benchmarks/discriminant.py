"""The discriminant learners: time, memory, and how both grow with the number of features.

``python benchmarks/discriminant.py`` runs everything; ``--cases family,iris`` some of it, and
``--learners LDA,PARDA`` some of the family. Every case is a process of its own. Rows that were not
run stay as they were in ``results/discriminant.json``, from which ``results/discriminant.md`` is
made. ``--short`` runs small data once, to see that all works, and writes nothing. Data are
generated with seed 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS, best_of_three, in_fresh_process, megabytes_beyond, write_table
from numpy.typing import NDArray

Found = dict[str, Any]
STORED = RESULTS / "discriminant.json"
#: Sizes at which the family is timed; the target is for the one of them.
FEATURES, TARGET_FEATURES = (25, 50, 100, 200), 100
EXPONENT = "exponent in p"


class Job(NamedTuple):
    """What a process is told: the case, the setting of a learner, and whether to be short."""

    case: str
    learner: str = ""
    short: bool = False


def gaussians(
    n: int, p: int, n_classes: int, dtype: Any = np.float64, seed: int = 0
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Gaussian classes, each with a mean and a covariance of its own."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % n_classes)
    centers = 3 * rng.normal(size=(n_classes, p)) / np.sqrt(p)
    X = np.empty((n, p), dtype)
    for code in range(n_classes):
        rows = np.flatnonzero(y == code)
        shape = np.eye(p) + rng.normal(size=(p, p)) / np.sqrt(p)
        X[rows] = rng.normal(size=(len(rows), p)) @ shape + centers[code]
    return X, y


def repeated(work: Callable[[], Any], short: bool) -> float:
    """Seconds of the best of three runs, or of one."""
    if not short:
        return best_of_three(work)
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


# The rows with a target of their own.


def mgmkld(job: Job) -> Iterator[Found]:
    from nearfar import MGMKLD, ClassStatistics

    statistics = ClassStatistics().partial_fit(*gaussians(2_000 if job.short else 20_000, 100, 10))
    learner = MGMKLD(5)
    learner.solve(statistics)
    yield {
        "case": "MGMKLD(5) from statistics, 100 features, 10 classes",
        "s": repeated(lambda: learner.solve(statistics), job.short),
        "note": f"{learner.n_init} starts, {learner.n_iter_} steps of the best",
        "target": "below 1 s",
    }


def parda_gradient(job: Job) -> Iterator[Found]:
    from nearfar import ClassStatistics
    from nearfar.discriminant.parda import Scalarized, class_objectives
    from nearfar.solvers.subspaces import find_orthonormal_basis

    c, p, q, rows = (8, 128, 7, 42) if job.short else (68, 1024, 67, 42)
    X, y = gaussians(c * rows, p, c)
    statistics = ClassStatistics().partial_fit(X, y)
    del X
    objectives = class_objectives(statistics, "one_vs_one", 1e-3)
    weights = np.full(c * (c - 1) // 2, 2 / (c * (c - 1)))
    gradient = Scalarized(weights, None).objective(objectives)
    U = find_orthonormal_basis(np.random.default_rng(0).normal(size=(objectives.basis.shape[1], q)))
    title = f"PARDA one-vs-one, {c} classes of {rows} rows, {p} features, {q} components"
    yield {
        "case": f"{title}: one gradient",
        "MB": megabytes_beyond(lambda: gradient(U)),
        "s": repeated(lambda: gradient(U), job.short),
        "note": repr(statistics),
        "target": "below 3 s, below 400 MB",
    }
    prepare = partial(class_objectives, statistics, "one_vs_one", 1e-3)
    yield {
        "case": f"{title}: Gaussians of the classes, once for a fit",
        "MB": megabytes_beyond(prepare),
        "s": repeated(prepare, job.short),
        "target": "-",
    }


def batches(job: Job) -> Iterator[Found]:
    from nearfar import LDA, MGMKLD

    n_batches, size, p = (5, 400, 20) if job.short else (100, 2_000, 200)
    for dtype in (np.float64, np.float32):
        X, y = gaussians(n_batches * size, p, 10, dtype)
        for kind in (LDA, MGMKLD):

            def one_fit(kind: Any = kind, X: Any = X, y: Any = y) -> Any:
                return kind(5).fit(X, y).components_

            def in_batches(kind: Any = kind, X: Any = X, y: Any = y) -> Any:
                learner = kind(5)
                for start in range(0, len(X), size):
                    learner.partial_fit(X[start : start + size], y[start : start + size])
                return learner.components_

            whole, parts = one_fit(), in_batches()
            once, streamed = (repeated(work, job.short) for work in (one_fit, in_batches))
            apart = np.abs(np.abs(whole) - np.abs(parts)).max() / np.abs(whole).max()
            yield {
                "case": f"{kind.__name__}(5).partial_fit, {n_batches} batches of {size}×{p}, "
                f"{np.dtype(dtype).name}",
                "s": streamed,
                "note": f"fit {once:.3f} s; components differ by {apart:.0e}",
                "ratio": streamed / once,
                "target": "ratio to one fit at most 1.3",
            }


def iris(job: Job) -> Iterator[Found]:
    from sklearn.datasets import load_iris

    from nearfar import PARDA

    X, y = load_iris(return_X_y=True)
    for pairing in ("one_vs_one", "one_vs_all"):
        learner = PARDA(pairing=pairing, n_init=10)
        learner.fit(X, y)
        yield {
            "case": f"PARDA(pairing={pairing!r}), iris, 10 starts",
            "s": repeated(partial(learner.fit, X, y), job.short),
            "note": f"best start {learner.best_init_}, {learner.n_iter_} steps",
            "target": "below 1 s",
        }


# The family, as the number of features grows.


def settings() -> dict[str, Any]:
    """Every learner of the family, with the options that change the algorithm."""
    from nearfar.base import all_learners

    room = "nearfar.discriminant."
    kinds = {name: kind for name, kind in all_learners().items() if kind.__module__[:21] == room}
    found = {f"{name}()": kind() for name, kind in kinds.items()}
    for name, options in OPTIONS:
        words = ", ".join(f"{key}={value!r}" for key, value in options.items())
        found[f"{name}({words})"] = kinds[name](**options)
    return dict(sorted(found.items()))


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *(("LDA", {"solver": name}) for name in ("pca", "whiten", "gsvd", "pinv", "qr", "ridge")),
    ("LDA", {"criterion": "J3"}),
    ("LDA", {"criterion": "J4"}),
    ("GADA", {"mean": "harmonic"}),
    ("HDA", {"criterion": "kumar_andreou"}),
    ("MGMD", {"divergence": "l2"}),
    ("MODA", {"n_clusters": 2}),
    ("PARDA", {"pairing": "one_vs_all"}),
    ("PARDA", {"scalarization": "l_delta"}),
    ("PARDA", {"solver": "gradient"}),
]


def family(job: Job) -> Iterator[Found]:
    from sklearn.base import clone

    learner = settings()[job.learner]
    n = 1_000 if job.short else 20_000
    seconds, memory, note = [], 0.0, ""
    clone(learner).fit(*gaussians(500, 10, 10))  # warm
    for p in FEATURES:
        X, y = gaussians(n, p, 10)
        fitted = clone(learner)
        work = partial(fitted.fit, X, y)
        if p == TARGET_FEATURES:
            memory = megabytes_beyond(work)
        seconds.append(repeated(work, job.short))
        if p == TARGET_FEATURES and hasattr(fitted, "n_iter_"):
            note = f"{fitted.n_iter_} steps"
    row: Found = {"case": job.learner}
    row |= {f"s, p = {p}": second for p, second in zip(FEATURES, seconds, strict=True)}
    row[EXPONENT] = float(np.polyfit(np.log(FEATURES), np.log(seconds), 1)[0])
    yield row | {"MB": memory, "note": note}


CASES: dict[str, Callable[[Job], Iterator[Found]]] = {
    "mgmkld": mgmkld,
    "parda-gradient": parda_gradient,
    "batches": batches,
    "iris": iris,
    "family": family,
}


# The frame.


def shown(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def write(results: dict[str, list[Found]]) -> None:
    """Two tables in one page: the targets, and the family."""
    columns = ["case", "threads", "s", "ratio", "MB", "note", "target"]
    single = [row for case in CASES if case != "family" for row in results.get(case, [])]
    rows = [{name: shown(row.get(name)) for name in columns} for row in single]
    at_target = f"s, p = {TARGET_FEATURES}"
    columns = ["case", "threads", *(f"s, p = {p}" for p in FEATURES), EXPONENT, "MB", "note"]
    members = [
        {name: shown(row.get(name)) for name in columns} for row in results.get("family", [])
    ]
    notes = (
        "Best of three runs after one to warm up, in a process for each case. Memory is the "
        "high-water mark above what the loaded data and libraries take. Data are Gaussian classes "
        "with covariances of their own, seed 0. Made by `python benchmarks/discriminant.py`."
    )
    path = RESULTS / "discriminant.md"
    if rows:
        write_table(path, "The discriminant learners", notes, rows)
    if members:
        slowest = max(row[at_target] for row in results["family"])
        growth = (
            "Fits of 20,000 rows in 10 classes. The exponent is the slope of a straight line "
            "through the logarithms of the four times: where few features leave time for little "
            f"but the pass over the rows, it is low. With {TARGET_FEATURES} features each must "
            f"take less than 10 s; the slowest takes {slowest:.2f} s. MB are those with "
            f"{TARGET_FEATURES} features."
        )
        first = path.read_text() if rows else ""
        write_table(path, "The family as the number of features grows", growth, members)
        path.write_text(f"{first}\n{path.read_text()}" if first else path.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="some of: " + ", ".join(CASES))
    parser.add_argument("--learners", help="of the family: names of classes")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--short", action="store_true", help="small data, once, nothing written")
    options = parser.parse_args()
    wanted = options.cases.split(",") if options.cases else list(CASES)
    if unknown := set(wanted) - set(CASES):
        parser.error(f"no case {sorted(unknown)}; there are {list(CASES)}")
    members = list(settings())
    if options.learners:
        chosen = options.learners.split(",")
        members = [name for name in members if name.partition("(")[0] in chosen]
    results = json.loads(STORED.read_text()) if STORED.exists() else {}
    results["family"] = [row for row in results.get("family", []) if row["case"] in settings()]
    for case in wanted:
        made = set()
        for learner in members if case == "family" else [""]:
            job = Job(case, learner, options.short)
            for row in in_fresh_process(__file__, json.dumps(job), options.threads)["rows"]:
                row["threads"] = options.threads
                made.add(row["case"])
                print({key: shown(value) for key, value in row.items()}, flush=True)
                known = {(old["case"], old["threads"]): old for old in results.get(case, [])}
                known[row["case"], row["threads"]] = row
                results[case] = sorted(
                    known.values(), key=lambda old: (old["case"], old["threads"])
                )
            if case != "family":  # what is no longer made goes
                results[case] = [row for row in results[case] if row["case"] in made]
            if not options.short:
                RESULTS.mkdir(exist_ok=True)
                STORED.write_text(json.dumps(results, indent=1) + "\n")
    if not options.short:
        write(results)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("["):  # from in_fresh_process
        warnings.simplefilter("ignore")
        told = Job(*json.loads(sys.argv[1]))
        print(json.dumps({"rows": list(CASES[told.case](told))}))
    else:
        main()
