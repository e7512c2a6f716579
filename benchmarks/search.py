"""Neighbour and impostor search: matrix products in blocks, trees and early abandon.

    python benchmarks/search.py [--data DIR]

Time against the number of features and rows, on Gaussian classes and, where a folder with
``mnist.npz`` is given (or named by ``NEARFAR_DATA``), on the principal components of MNIST. Writes
``results/search.md``; the automatic choice in ``nearfar.search.exact_search.choose_search``
follows it. Data are generated with seed 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from common import RESULTS, in_fresh_process, write_table

DIMENSIONS = (2, 3, 5, 8, 10, 15, 20, 30, 50)
SIZES = (2_000, 20_000, 60_000)
# Impostor search goes with the square of the rows in blocks: more rows, few features.
LARGE, FEW = 200_000, (2, 3, 5)
N_QUERIES = 10_000
N_NEIGHBORS = 3
MARGIN = 0.25
MAX_PAIRS = 20_000_000


def best(work):
    """Fewest CPU seconds of three runs, of fewer when they take long, and what came of it."""
    seconds = []
    while len(seconds) < 3 and sum(seconds) < 6:
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def gaussian(n, p):
    """Ten Gaussian classes whose centres lie as far apart as the classes are wide."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(10, p))
    y = rng.integers(0, 10, n + N_QUERIES)
    X = rng.normal(size=(n + N_QUERIES, p)) + centers[y]
    return X[:n], y[:n], X[n:]


def mnist(n):
    """Training rows and queries in the principal axes of the training rows."""
    with np.load(Path(os.environ["NEARFAR_DATA"]) / "mnist.npz") as file:
        X, y = file["X"].astype(np.float32), file["y"].astype(np.intp)
    X -= X[:n].mean(axis=0)
    axes = np.linalg.eigh((X[:n].T @ X[:n]).astype(np.float64))[1][:, ::-1]
    X = X @ axes.astype(np.float32)
    return X[:n].astype(np.float64), y[:n], X[60_000:].astype(np.float64)


def neighbors(X, queries, skip):
    from sklearn.neighbors import BallTree

    from nearfar.search.early_abandon import early_abandon_kneighbors
    from nearfar.search.exact_search import kneighbors

    searches = {
        "blocks": lambda: kneighbors(X, queries, n_neighbors=N_NEIGHBORS, search="blocks"),
        "tree": lambda: kneighbors(X, queries, n_neighbors=N_NEIGHBORS, search="tree"),
        "ball tree": lambda: BallTree(X).query(queries, N_NEIGHBORS),
        "early abandon": lambda: early_abandon_kneighbors(X, queries, n_neighbors=N_NEIGHBORS),
    }
    return timed(searches, skip, lambda result: result[1])


def impostors(X, y, skip):
    from nearfar.large_margin.impostor_trees import find_impostors_tree
    from nearfar.large_margin.impostors import find_impostors, find_target_neighbors
    from nearfar.large_margin.pair_lists import compute_target_distances

    reach = compute_target_distances(X, find_target_neighbors(X, y, N_NEIGHBORS)).max(axis=1)
    reach += MARGIN * reach.mean()
    searches = {
        "blocks": lambda: find_impostors(X, y, reach, max_pairs=MAX_PAIRS, method="blocks"),
        "tree": lambda: find_impostors_tree(X, y, reach, max_pairs=MAX_PAIRS),
    }
    row = timed(searches, skip, lambda pairs: None if pairs is None else pairs.indices)
    found = row.pop("result")
    return row | {"pairs": "too many" if found is None else f"{len(found) / len(X):.1f}"}


def timed(searches, skip, answer):
    """Seconds of each search that is not hopeless, after a check that all find the same."""
    row = {}
    for name, work in searches.items():
        if name in skip:
            continue
        row[name], result = best(work)
        result = answer(result)
        if name == "blocks":
            row["result"] = result
        elif not np.array_equal(result, row["result"]):
            raise AssertionError(f"{name} finds other pairs than blocks")
        if row[name] > max(2, 4 * row["blocks"]):
            skip.add(name)  # more features only make it slower
    return row


def case(data, n):
    """All numbers of features for one data set and number of rows."""
    rows, slow_knn, slow_impostors = [], set(), set()
    whole = mnist(n) if data == "MNIST" else None
    dimensions = FEW if n == LARGE else DIMENSIONS + ((164, 784) if whole else ())
    for p in dimensions:
        X, y, queries = gaussian(n, p) if whole is None else whole
        X, queries = np.ascontiguousarray(X[:, :p]), np.ascontiguousarray(queries[:, :p])
        knn = neighbors(X, queries, slow_knn)
        knn.pop("result")
        rows.append({"work": "3-NN", "features": p} | knn)
        if p <= max(DIMENSIONS):
            rows.append({"work": "impostors", "features": p} | impostors(X, y, slow_impostors))
        print(*rows[-2:], sep="\n", file=sys.stderr, flush=True)
    return {"rows": rows}


def main(with_mnist):
    table = []
    for data in ("Gaussian", "MNIST") if with_mnist else ("Gaussian",):
        for n in SIZES + ((LARGE,) if data == "Gaussian" else ()):
            found = in_fresh_process(__file__, f"{data} {n}", threads=1)["rows"]
            for work in ("3-NN", "impostors"):
                for row in (row for row in found if row["work"] == work):
                    line = {"work": work, "data": data, "rows": n, "features": row["features"]}
                    for name in ("blocks", "tree", "ball tree", "early abandon"):
                        line[name] = f"{row[name]:.3f}" if name in row else "-"
                    ratio = row["blocks"] / row["tree"] if "tree" in row else None
                    line["blocks / tree"] = f"{ratio:.2f}" if ratio else "-"
                    line["pairs per row"] = row.get("pairs", "-")
                    table.append(line)
    notes = (
        "CPU seconds of one thread, best of three runs (of fewer where they take over 6 s). 3-NN: "
        f"{N_QUERIES:,} queries among the rows, float64, building the tree included; `tree` is "
        "scikit-learn's k-d tree, its proposals checked as those of the blocks are; `ball tree` "
        "is scikit-learn's alone. Impostors: all pairs of different classes (of ten) nearer than "
        f"the third target plus {MARGIN} of its mean squared distance; one k-d tree a class. All "
        "searches are checked to find the same. `-`: left out, as it was more than four times "
        "slower than blocks with fewer features. Blocks also use further threads; trees do not. "
        "Made by `python benchmarks/search.py --data DIR`."
    )
    write_table(
        RESULTS / "search.md", "Neighbour search", notes, sorted(table, key=lambda r: r["work"])
    )


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        data, n = sys.argv[1].split()
        print(json.dumps(case(data, int(n))))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--data", default=os.environ.get("NEARFAR_DATA"))
        options = parser.parse_args()
        if options.data:
            os.environ["NEARFAR_DATA"] = options.data
        main(with_mnist=bool(options.data))
