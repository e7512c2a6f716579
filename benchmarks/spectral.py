"""The spectral embeddings beside those of scikit-learn: time, memory, agreement.

``python benchmarks/spectral.py`` runs everything; ``--cases isomap,lle`` some of it. Every side of
every case is a process of its own. Rows that were not run stay as they were in
``results/spectral.json``, from which ``results/spectral.md`` is made. ``--short`` runs small data
once, to see that all works, and writes nothing. Data are Swiss rolls with noise 0.05, seed 1.
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
from numpy.typing import NDArray

STORED = RESULTS / "spectral.json"


class Case(NamedTuple):
    """A row of the table: how many rows of data, and the calls on both sides."""

    n: int
    ours: str
    theirs: str = ""
    target: str = "-"
    n_features: int = 3
    agrees: bool = False  # both sides mean the same coordinates


CASES = {
    "isomap": Case(
        5_000,
        "Isomap(n_neighbors=8)",
        "Isomap(n_neighbors=8)",
        "1.2 times as fast, 1.3 n×n arrays, difference 1e-6",
        agrees=True,
    ),
    "landmark-isomap": Case(
        50_000,
        "LandmarkIsomap(n_neighbors=10, n_landmarks=1000)",
        "",
        "60 s, 2 GB, difference 0.02",
    ),
    "landmark-isomap-wide": Case(
        50_000,
        "LandmarkIsomap(n_neighbors=10, n_landmarks=1000)",
        "",
        "60 s, 2 GB, difference 0.02",
        50,
    ),
    "lle": Case(5_000, "LLE(n_neighbors=8)", "LocallyLinearEmbedding(n_neighbors=8)", "no slower"),
    "lle-20000": Case(
        20_000, "LLE(n_neighbors=8)", "LocallyLinearEmbedding(n_neighbors=8)", "no slower"
    ),
    "hessian-lle": Case(
        5_000,
        "HessianLLE(n_neighbors=10)",
        "LocallyLinearEmbedding(n_neighbors=10, method='hessian')",
        "3 times as fast",
    ),
    "eigenmaps": Case(
        5_000,
        "LaplacianEigenmaps(n_neighbors=8, weights='uniform')",
        "SpectralEmbedding(n_neighbors=9, affinity='nearest_neighbors', random_state=0)",
        "no slower",
    ),
    "eigenmaps-20000": Case(
        20_000,
        "LaplacianEigenmaps(n_neighbors=8, weights='uniform')",
        "SpectralEmbedding(n_neighbors=9, affinity='nearest_neighbors', random_state=0)",
        "no slower",
    ),
    "lpp": Case(5_000, "LPP(n_neighbors=8)"),
    "npe": Case(5_000, "NPE(n_neighbors=8)"),
    "kernel-pca": Case(
        5_000, "KernelPCA(gamma=0.01)", "decomposition.KernelPCA(2, kernel='rbf', gamma=0.01)"
    ),
    "spectral-clustering": Case(
        5_000,
        "SpectralClustering(8, n_neighbors=8, weights='uniform')",
        "cluster.SpectralClustering(8, n_neighbors=9, affinity='nearest_neighbors', "
        "random_state=0)",
    ),
}


def rows_of(case: Case, short: bool) -> NDArray[np.float64]:
    from sklearn.datasets import make_swiss_roll

    X, _ = make_swiss_roll(500 if short else case.n, noise=0.05, random_state=1)
    if case.n_features > 3:
        rng = np.random.default_rng(0)
        axes = np.linalg.qr(rng.normal(size=(case.n_features, 3)))[0]
        X = X @ axes.T + 0.01 * rng.normal(size=(len(X), case.n_features))
    return X


def learner(case: Case, side: str) -> Any:
    """The estimator that the call of a side makes."""
    if side == "ours":
        import nearfar

        return eval(
            case.ours, dict(vars(nearfar)) | {n: getattr(nearfar, n) for n in nearfar.__all__}
        )
    from sklearn import cluster, decomposition, manifold

    return eval(case.theirs, vars(manifold) | {"cluster": cluster, "decomposition": decomposition})


def seconds_of(work: Callable[[], Any], short: bool) -> tuple[float, float]:
    """Seconds and CPU seconds, the least of three runs, or of one."""
    taken = []
    for _ in range(1 if short else 3):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    return min(t[0] for t in taken), min(t[1] for t in taken)


def measure(name: str, side: str, short: bool) -> dict[str, Any] | float | None:
    if side == "difference":
        return differs(name, short)
    case = CASES[name]
    X = rows_of(case, short)
    learner(case, side).fit(X[:300])  # what is loaded only now is no work of the fit
    megabytes = megabytes_beyond(lambda: learner(case, side).fit(X))
    seconds, cpu = seconds_of(lambda: learner(case, side).fit(X), short)
    return {"s": seconds, "CPU s": cpu, "MB": megabytes}


def differs(name: str, short: bool) -> float | None:
    """How far apart two embeddings of the same rows are, relative to their size.

    Ours and that of scikit-learn, of up to 5,000 rows; with landmarks and without.
    """
    from nearfar import Isomap
    from nearfar.evaluation import procrustes_error

    case = CASES[name]
    X = rows_of(case, short)[:5_000]
    if name.startswith("landmark"):
        return procrustes_error(
            Isomap(n_neighbors=10).fit_transform(X), learner(case, "ours").fit_transform(X)
        )
    if not case.agrees:
        return None
    A, B = (learner(case, side).fit_transform(X) for side in ("ours", "theirs"))
    B = B * np.sign(np.sum(A * B, axis=0))
    return float(np.linalg.norm(A - B) / np.linalg.norm(A))


def _short(number: float | None) -> str:
    return "-" if number is None else f"{number:.1e}"


def table(results: dict[str, Any]) -> list[dict[str, Any]]:
    lines = []
    for name, case in CASES.items():
        found = results.get(name)
        if not found:
            continue
        ours, theirs = found["ours"], found.get("theirs")
        line = {
            "nearfar": f"`{case.ours}`",
            "data": f"{case.n:,}×{case.n_features}",
            "s": f"{ours['s']:.2f}",
            "CPU s": f"{ours['CPU s']:.2f}",
            "MB": f"{ours['MB']:.0f}",
            "n×n arrays": f"{ours['MB'] * 1e6 / 8 / case.n**2:.2f}",
            "scikit-learn": f"`{case.theirs}`" if case.theirs else "-",
            "its s": f"{theirs['s']:.2f}" if theirs else "-",
            "its CPU s": f"{theirs['CPU s']:.2f}" if theirs else "-",
            "its MB": f"{theirs['MB']:.0f}" if theirs else "-",
            "times faster": f"{theirs['CPU s'] / ours['CPU s']:.2f}" if theirs else "-",
            "difference": _short(found.get("difference")),
            "target": case.target,
        }
        lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="some of: " + ", ".join(CASES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="small data, once, nothing written")
    options = parser.parse_args()
    wanted = options.cases.split(",") if options.cases else list(CASES)
    if unknown := set(wanted) - set(CASES):
        parser.error(f"no case {sorted(unknown)}; there are {list(CASES)}")
    results = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name in wanted:
        results[name] = {}
        for side in ("ours", "theirs") if CASES[name].theirs else ("ours",):
            job = json.dumps([name, side, options.short])
            results[name][side] = in_fresh_process(__file__, job, options.threads)
            print(name, side, results[name][side], flush=True)
        results[name]["difference"] = in_fresh_process(
            __file__, json.dumps([name, "difference", options.short]), options.threads
        )
        if not options.short:
            RESULTS.mkdir(exist_ok=True)
            STORED.write_text(json.dumps(results, indent=1) + "\n")
    if not options.short:
        notes = (
            f"Fits with {options.threads} thread(s), least of three runs; MB are the high-water "
            "mark of a fresh process above the loaded data; times faster are those of CPU seconds. "
            "Swiss rolls with noise 0.05; the wide one is turned into 50 dimensions, with noise "
            "0.01 there. scikit-learn's Hessian LLE takes everything that is not linear for "
            "curvature when there are more neighbours than columns; its SpectralEmbedding and "
            "SpectralClustering count each row as its own neighbour. The difference is that of "
            "the coordinates, by their Frobenius norm: from scikit-learn after aligning signs, or "
            "from Isomap without landmarks after a rotation, on 5,000 rows. "
            "Made by `python benchmarks/spectral.py`."
        )
        write_table(RESULTS / "spectral.md", "Spectral embeddings", notes, table(results))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("["):  # from in_fresh_process
        warnings.simplefilter("ignore")
        print(json.dumps(measure(*json.loads(sys.argv[1]))))
    else:
        main()
