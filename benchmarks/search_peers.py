"""Exact neighbours and impostors against faiss, scikit-learn and the bare matrix product.

    python benchmarks/search_peers.py [--data DIR] [CASE ...]

A case is one line of the tables, "60000x50 k=3 threads=1" for instance, and takes less than two
minutes; without any, all are run. Results are kept in ``results/search_peers.json``, so that cases
may be run one by one; ``results/search_peers.md`` is made from it. Data are generated with seed 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from common import RESULTS, in_fresh_process, megabytes_beyond, versions

N_QUERIES = 10_000
NEIGHBORS = {
    f"{n}x{p} k={k} threads={threads}": (n, p, k, threads)
    for n, p, k in ((60_000, 50, 3), (60_000, 16, 3), (50_000, 768, 10), (200_000, 128, 100))
    for threads in (1, 2)
}
IMPOSTORS = {
    f"MNIST {kind} threads={threads}": (kind, threads)
    for kind in ("impostors", "nearest impostors")
    for threads in (1, 2)
}
N_COMPONENTS = 164
N_NEAREST = 3


def measured(work):
    """Megabytes beyond the data in the first run, seconds, and what came of it."""
    taken, results = [], []

    def first():
        start = time.perf_counter()
        results.append(work())
        taken.append(time.perf_counter() - start)

    megabytes = megabytes_beyond(first)
    return megabytes, seconds(work, taken)[0], results[0]


def seconds(work, taken=()):
    """Shortest of three runs, of fewer when they take long; some may have been ``taken`` before."""
    taken, result = list(taken), None
    while len(taken) < 3 and sum(taken) < 6:
        start = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - start)
    return min(taken), result


def bare_product(queries, X, threads):
    """The product that any search by distances needs, in blocks as ours, and nothing else."""
    from nearfar.blocks import map_in_order

    def block(rows):
        room = np.empty((len(rows), 1024), np.float32)
        for begin in range(0, len(X), 1024):
            part = X[begin : begin + 1024]
            np.matmul(rows, part.T, out=room[:, : len(part)])

    list(map_in_order(block, np.array_split(queries, 6), threads))


def neighbors(n, p, k, threads):
    import faiss
    from sklearn.neighbors import NearestNeighbors

    from nearfar.search.exact_search import kneighbors

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, p), np.float32)
    queries = rng.standard_normal((N_QUERIES, p), np.float32)
    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatL2(p)
    index.add(X)
    brute = NearestNeighbors(algorithm="brute", n_jobs=threads).fit(X)

    def ours(search):
        return kneighbors(X, queries, n_neighbors=k, search=search, n_threads=threads)

    row = {}
    row["beyond_MB"], row["blocks"], found = measured(lambda: ours("blocks"))
    row["faiss_candidates"], same = seconds(lambda: ours("faiss"))
    assert all(np.array_equal(a, b) for a, b in zip(found, same, strict=True))
    row["IndexFlatL2"], _ = seconds(lambda: index.search(queries, k))
    row["scikit_learn"], peer = seconds(lambda: brute.kneighbors(queries, k))
    row["product"], _ = seconds(lambda: bare_product(queries, X, threads))
    row["agree_with_scikit_learn"] = float((found[1] == peer[1]).mean())
    return row


def impostors(kind, threads):
    from nearfar.blocks import map_in_order
    from nearfar.large_margin.impostors import (
        find_impostors,
        find_nearest_impostors,
        find_target_neighbors,
    )
    from nearfar.large_margin.pair_lists import compute_target_distances

    with np.load(Path(os.environ["NEARFAR_DATA"]) / "mnist.npz") as file:
        X, y = file["X"][:60_000].astype(np.float32), file["y"][:60_000].astype(np.intp)
    X -= X.mean(axis=0)
    axes = np.linalg.eigh((X.T @ X).astype(np.float64))[1][:, ::-1]
    X = (X @ axes[:, :N_COMPONENTS].astype(np.float32)).astype(np.float64)
    reach = compute_target_distances(X, find_target_neighbors(X, y, 3)).max(axis=1)
    reach += 0.25 * reach.mean()

    def ours():
        if kind == "nearest impostors":
            # Twice the reach, within which there are too many to list all of them first.
            return find_nearest_impostors(X, y, 2 * reach, N_NEAREST, n_threads=threads)[0]
        return find_impostors(X, y, reach, max_pairs=20_000_000, n_threads=threads, method="blocks")

    # Each class against all later ones, in blocks as the search has them.
    Z = X[np.argsort(y, kind="stable")].astype(np.float32)
    tasks, begin = [], 0
    for size in np.bincount(y)[:-1]:
        end = begin + size
        tasks += [(slice(k, min(k + 2048, end)), end) for k in range(begin, end, 2048)]
        begin = end

    def block(task):
        rows = Z[task[0]]
        room = np.empty((len(rows), 1024), np.float32)
        for start in range(task[1], len(Z), 1024):
            part = Z[start : start + 1024]
            np.matmul(rows, part.T, out=room[:, : len(part)])

    def product():
        list(map_in_order(block, tasks, threads))

    row = {}
    row["beyond_MB"], row["blocks"], pairs = measured(ours)
    row["product"], _ = seconds(product)
    row["pairs"] = len(pairs.indices)
    return row


def case(name):
    if name in NEIGHBORS:
        return neighbors(*NEIGHBORS[name])
    return impostors(*IMPOSTORS[name])


def tables(results, versions_said):
    """Both tables in Markdown."""
    lines = [
        "# Neighbour search against its peers",
        "",
        "Seconds of wall time on a quiet machine, best of three runs (of fewer where they take "
        f"over 6 s). Neighbours: {N_QUERIES:,} queries, float32, normal numbers of seed 0; all in "
        "one process with as many threads for each. `blocks` is `kneighbors` with NumPy alone, "
        "`faiss` the same with candidates from `faiss.knn`, both exact with ties by index and "
        "distances in float64; peers: `IndexFlatL2(p).search(queries, k)`, after `add`, and "
        '`NearestNeighbors(algorithm="brute").kneighbors(queries, k)`; `product` is the bare '
        "matrix product in blocks. `MB` is the high-water mark of memory of `blocks` above the "
        "data, the result included. Made by `python benchmarks/search_peers.py --data DIR`.",
        "",
        versions_said,
        "",
        "| rows × features, k | threads | blocks | faiss | IndexFlatL2 | scikit-learn | product "
        "| blocks / IndexFlatL2 | blocks / scikit-learn | blocks / product | MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, (n, p, k, threads) in NEIGHBORS.items():
        if name in results:
            row = results[name]
            columns = ("blocks", "faiss_candidates", "IndexFlatL2", "scikit_learn", "product")
            cells = [f"{n:,} × {p}, k={k}", str(threads), *(f"{row[key]:.2f}" for key in columns)]
            cells += [
                f"{row['blocks'] / row[key]:.2f}"
                for key in ("IndexFlatL2", "scikit_learn", "product")
            ]
            lines.append("| " + " | ".join([*cells, f"{row['beyond_MB']:.0f}"]) + " |")
    if not IMPOSTORS.keys() & results.keys():
        return "\n".join(lines) + "\n"
    lines += [
        "",
        f"Impostors of the 60,000 digits of MNIST, {N_COMPONENTS} principal components: all pairs "
        "of different classes nearer than the third target plus a quarter of its mean squared "
        f"distance, and the nearest {N_NEAREST} of each digit within twice that. `product` is the "
        "bare product of each class with all later ones, in blocks as those of the search.",
        "",
        "| search | threads | seconds | product | ratio | pairs | MB |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (kind, threads) in IMPOSTORS.items():
        if name in results:
            row = results[name]
            ratio = row["blocks"] / row["product"]
            lines.append(
                f"| {kind} | {threads} | {row['blocks']:.2f} | {row['product']:.2f} | {ratio:.2f} "
                f"| {row['pairs']:,} | {row['beyond_MB']:.0f} |"
            )
    return "\n".join(lines) + "\n"


def main(names):
    kept = RESULTS / "search_peers.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for name in names:
        threads = int(name.rpartition("=")[2])
        results[name] = in_fresh_process(__file__, name, threads)
        print(name, results[name], flush=True)
        results["versions"] = versions("faiss-cpu")
        kept.write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "search_peers.md").write_text(tables(results, results["versions"]))


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in (*NEIGHBORS, *IMPOSTORS) and "INSIDE" in os.environ:
        print(json.dumps(case(sys.argv[1])))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("--data", default=os.environ.get("NEARFAR_DATA"))
        parser.add_argument("cases", nargs="*", metavar="CASE")
        options = parser.parse_args()
        os.environ["INSIDE"] = "1"
        if options.data:
            os.environ["NEARFAR_DATA"] = options.data
        main(options.cases or [*NEIGHBORS, *(IMPOSTORS if options.data else ())])
