"""Dissimilarities between Gaussians beside pyRiemann and a loop over pairs: time and memory.

``python benchmarks/distributions.py`` runs everything; ``--cases riemann,d_br-569`` some of it.
Every side of every case is a process of its own. Rows that were not run stay as they were in
``results/distributions.json``, from which ``results/distributions.md`` is made. ``--short`` runs
small data once, to see that all works, and writes nothing. All data are random, seed 0, but those
of 569 rows (breast cancer of scikit-learn, scaled).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS, in_fresh_process, megabytes_beyond, write_table

STORED = RESULTS / "distributions.json"


class Case(NamedTuple):
    """A row of the table: the work, the threads of our side, the other side, what is asked for."""

    work: str
    threads: int
    peer: str = ""
    target: str = "-"


BR = "dissimilarity(G)"
LOOP = "loop over pairs: scipy.linalg.eigh(S, T), cho_solve"
CASES = {
    "d_br-569": Case("d_BR, 569 neighbourhoods, p=30, m=8", 2, LOOP, "5 s; 1.6 times as fast"),
    "d_br-569-dense": Case("the same, method='dense'", 2, LOOP, "5 s; 1.6 times as fast"),
    "riemann": Case("riemann, 500 matrices 10×10", 1, "pairwise_distance", "no slower"),
    "riemann-2": Case("riemann, 500 matrices 10×10", 2, "pairwise_distance", "1.5 times as fast"),
    "jeffreys": Case(
        "jeffreys, 500 matrices 10×10",
        1,
        "pairwise_distance(metric='kullback_sym')",
        "1000 times as fast",
    ),
    "bhattacharyya": Case(
        "bhattacharyya, 500 matrices 10×10",
        1,
        "pairwise_distance(metric='logdet')",
        "20 times as fast",
    ),
    "d_br-2310": Case("d_BR, 2,310 neighbourhoods, p=18, m=8", 2, "", "40 s"),
    "d_br-1024": Case("d_BR, 500 of rank 8, p=1024", 2, "", "10 s"),
    "sets": Case(
        "3,000 sets (125,000 vectors, p=13) to Gaussians, d_BR, embedding; 300 new ones",
        2,
        "",
        "60 s",
    ),
}


def random_rows(n: int, p: int) -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, p)) @ rng.normal(size=(p, p))


def random_sets(n: int) -> list[Any]:
    """Sets of 42 vectors on average, with their own means and covariances."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(20, 64, n)
    mix = rng.normal(size=(n, 13, 13)) * 0.3 + np.eye(13)
    return [
        rng.normal(size=(t, 13)) @ M + rng.normal(size=13) for t, M in zip(sizes, mix, strict=True)
    ]


def work_of(name: str, side: str, short: bool) -> Callable[[], Any]:
    """What is timed, with the data made already."""
    from nearfar import Gaussians
    from nearfar.distributions import dissimilarity

    jobs = CASES[name].threads
    if name.startswith("d_br-569"):
        from sklearn.datasets import load_breast_cancer
        from sklearn.preprocessing import scale

        X = scale(load_breast_cancer().data)[: 60 if short else None]
        gaussians = Gaussians.from_neighborhoods(X, 8, 1.0)
        if side == "theirs":
            means, stack = gaussians.means, gaussians.covariances
            return lambda: loop_over_pairs(means, stack)
        method = "dense" if name.endswith("dense") else "auto"
        return lambda: dissimilarity(gaussians, method=method, n_jobs=jobs)
    if name in ("d_br-2310", "d_br-1024"):
        n, p = (2310, 18) if name == "d_br-2310" else (500, 1024)
        gaussians = Gaussians.from_neighborhoods(random_rows(100 if short else n, p), 8, 1.0)
        return lambda: dissimilarity(gaussians, n_jobs=jobs)
    if name == "sets":
        return lambda: embedded_sets(short, jobs)
    roots = np.random.default_rng(0).normal(size=(40 if short else 500, 10, 30))
    stack = roots @ roots.transpose(0, 2, 1) / 30
    metric = name.split("-")[0]
    if side == "theirs":
        from pyriemann.utils.distance import pairwise_distance

        theirs = {"riemann": "riemann", "jeffreys": "kullback_sym", "bhattacharyya": "logdet"}
        return lambda: pairwise_distance(stack, metric=theirs[metric])
    gaussians = Gaussians(np.zeros((len(stack), 10)), stack)
    return lambda: dissimilarity(gaussians, metric=metric, n_jobs=jobs)


def loop_over_pairs(means: Any, stack: Any) -> Any:
    from scipy.linalg import cho_factor, cho_solve, eigh

    n = len(means)
    D = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            values = eigh(stack[i], stack[j], eigvals_only=True, check_finite=False)
            u = means[i] - means[j]
            mean = cho_factor((stack[i] + stack[j]) / 2, check_finite=False)
            quad = u @ cho_solve(mean, u, check_finite=False)
            D[i, j] = D[j, i] = np.sqrt(quad) + np.sqrt(np.sum(np.log(values) ** 2))
    return D


def embedded_sets(short: bool, jobs: int) -> Any:
    """The whole way, with the embedding by classical scaling and Nyström's formula for new sets."""
    from nearfar import Gaussians
    from nearfar.distributions import dissimilarity
    from nearfar.solvers.spectral_step import (
        distance_axes,
        double_center,
        first_solution,
        leading_spectrum,
    )

    n, new = (60, 6) if short else (3000, 300)
    sets = random_sets(n + new)
    old = Gaussians.from_sets(sets[:n])
    D = dissimilarity(old, n_jobs=jobs)
    D *= D
    means = D.mean(axis=0)
    spectrum = leading_spectrum(double_center(D, in_place=True), 10)
    Y = first_solution(spectrum.values, spectrum.vectors)
    late = Gaussians.from_sets(sets[n:], ridge=old.added_ridge)
    between = dissimilarity(late, old, n_jobs=jobs) ** 2
    placed = -0.5 * (between - means) @ distance_axes(spectrum.values, spectrum.vectors)
    return Y, placed


def measure(name: str, side: str, short: bool) -> dict[str, Any]:
    work = work_of(name, side, short)
    if side == "ours":
        work_of(name, side, True)()  # what is loaded only now is no work of the case
    megabytes = megabytes_beyond(work)
    quick = short or name == "sets" or side == "theirs"  # minutes, for the loops
    taken = []
    for _ in range(1 if quick else 3):
        wall, cpu = time.perf_counter(), time.process_time()
        found = work()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    found = found[0] if isinstance(found, tuple) else found
    return {
        "s": min(t[0] for t in taken),
        "CPU s": min(t[1] for t in taken),
        "MB": megabytes,
        "sum": float(np.abs(found).sum()),
        "sum of squares": float((found**2).sum()),
    }


def same(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """How far the two sides agree, by a sum of what is the same in both."""
    if name == "bhattacharyya":  # theirs is the root of twice that
        return abs(2 * ours["sum"] / theirs["sum of squares"] - 1)
    return abs(ours["sum"] / theirs["sum"] - 1)


def table(results: dict[str, Any]) -> list[dict[str, Any]]:
    lines = []
    for name, case in CASES.items():
        found = results.get(name)
        if not found:
            continue
        ours, theirs = found["ours"], found.get("theirs")
        lines.append(
            {
                "work": case.work,
                "threads": case.threads,
                "s": f"{ours['s']:.3g}",
                "CPU s": f"{ours['CPU s']:.3g}",
                "MB": f"{ours['MB']:.0f}",
                "beside": f"`{case.peer}`" if case.peer else "-",
                "its s": f"{theirs['s']:.3g}" if theirs else "-",
                "times faster": f"{theirs['s'] / ours['s']:.3g}" if theirs else "-",
                "differs by": f"{same(name, ours, theirs):.0e}" if theirs else "-",
                "target": case.target,
            }
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="some of: " + ", ".join(CASES))
    parser.add_argument("--short", action="store_true", help="small data, once, nothing written")
    options = parser.parse_args()
    wanted = options.cases.split(",") if options.cases else list(CASES)
    if unknown := set(wanted) - set(CASES):
        parser.error(f"no case {sorted(unknown)}; there are {list(CASES)}")
    results = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name in wanted:
        results[name] = {}
        for side in ("ours", "theirs") if CASES[name].peer else ("ours",):
            job = json.dumps([name, side, options.short])
            results[name][side] = in_fresh_process(__file__, job, 1)
            print(name, side, results[name][side], flush=True)
        if not options.short:
            RESULTS.mkdir(exist_ok=True)
            STORED.write_text(json.dumps(results, indent=1) + "\n")
    if not options.short:
        notes = (
            "BLAS on one thread; ours with n_jobs as said, least of three runs (the way of the "
            "sets, and the other side, once after a first run for memory). The other side is "
            "pyRiemann's `pairwise_distance`, or a Python loop over pairs on one thread. MB are "
            "the high-water mark of a fresh process above the loaded data. pyRiemann's `logdet` is "
            "the root of twice the Bhattacharyya divergence of covariances, its `kullback_sym` the "
            "Jeffreys divergence. Made by `python benchmarks/distributions.py`."
        )
        path, title = RESULTS / "distributions.md", "Distances between distributions"
        write_table(path, title, notes, table(results), "pyriemann")


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("["):  # from in_fresh_process
        warnings.simplefilter("ignore")
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    else:
        main()
