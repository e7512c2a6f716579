"""Rules with a metric for each query: against loops over queries, memory, and growth.

    python benchmarks/local.py --data DIR [--only PART ...]

DIR holds ``uci/letter.npz``. Each measurement runs in a fresh process, on one thread unless the row
says otherwise; seconds are the fewest of three runs, of one where it takes over 20 seconds. Memory
is the high-water mark above the loaded data. Growth is that of the fewest seconds of five runs for
each size, taken in turn, and of two for fits. Writes ``results/local.md``, ``results/local.json``
and ``results/local_growth.svg``; ``--only`` measures the rows that have a part in their names
again and keeps the others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import local_loops
import numpy as np
from common import RESULTS, in_fresh_process, megabytes_beyond, write_table
from local_loops import least_seconds

N_TRAIN, N_QUERIES, N_METRIC = 8_000, 2_000, 800
LARGE = (50_000, 50, 1_000)
GROWTH = [(n, p) for n in (2_500, 5_000, 10_000) for p in (10, 20, 40)]
GROWTH_QUERIES = 256
# Classes of the room that are measured on large data, at their defaults.
RULES = (
    "DANNClassifier",
    "ShortFukunagaClassifier",
    "QuasiconformalClassifier",
    "ADAMENNClassifier",
    "FriedmanClassifier",
    "LFMSVMClassifier",
)


def all_letters():
    """All rows of letter, and codes of classes."""
    with np.load(Path(os.environ["NEARFAR_DATA"]) / "uci" / "letter.npz") as file:
        return file["X"].astype(np.float64), np.unique(file["y"], return_inverse=True)[1]


def letter():
    """8,000 rows of letter and 2,000 queries, both at random with seed 0, and codes of classes."""
    X, y = all_letters()
    order = np.random.default_rng(0).permutation(len(X))
    train, new = order[:N_TRAIN], order[N_TRAIN : N_TRAIN + N_QUERIES]
    return X[train], y[train], X[new]


def gaussian(n, p, n_queries):
    """Five Gaussian classes whose centres lie as far apart as the classes are wide, seed 0."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(5, p))
    y = rng.integers(0, 5, n + n_queries)
    X = rng.normal(size=(n + n_queries, p)) + centers[y]
    return X[:n], y[:n], X[n:]


# ---------------------------------------------------------------------- loops over queries


def dann_loop(X, codes, queries, m, k=5, epsilon=1.0, rho=1e-3):
    """DANN for one query after another, each step vectorised over rows; neighbours."""
    scale = X.std(axis=0)
    rows, n_classes, p = X / scale, codes.max() + 1, X.shape[1]
    found = np.empty((len(queries), k), np.intp)
    for i, query in enumerate(queries / scale):
        apart = rows - query
        far = np.sqrt(np.einsum("ij,ij->i", apart, apart))
        near = np.argpartition(far, m - 1)[:m]
        weights = (1 - (far[near] / far[near].max()) ** 3) ** 3
        some, own = apart[near], codes[near]
        member = np.zeros((m, n_classes))
        member[np.arange(m), own] = weights
        totals = member.sum(axis=0)
        means = member.T @ some / np.where(totals > 0, totals, 1)[:, None]
        shares = totals / totals.sum()
        between = (means - shares @ means) * np.sqrt(shares)[:, None]
        inner = some - means[own]
        within = (inner * weights[:, None]).T @ inner / totals.sum()
        within = (1 - rho) * within + rho * np.trace(within) / p * np.eye(p)
        inverse = np.linalg.inv(within)
        metric = inverse @ (between.T @ between) @ inverse + epsilon * inverse
        squares = np.einsum("ij,ij->i", apart @ metric, apart)
        found[i] = first(squares, k)
    return found


def first(squares, k):
    """The k smallest, of equal ones (but for rounding) those that come first."""
    cut = np.partition(squares, k - 1)[k - 1]
    some = np.flatnonzero(squares <= cut * (1 + 1e-9))
    return some[np.argsort(np.round(squares[some] / (cut or 1.0), 9), kind="stable")[:k]]


# ---------------------------------------------------------------------- measurements


def against_a_loop(rule, loop):
    """Seconds for all queries by a fitted rule and by a loop that finds neighbours, and votes."""
    from nearfar.base.voter import vote

    X, codes, queries = letter()
    rule.fit(X, codes)
    ours = least_seconds(lambda: rule.kneighbors(queries))
    theirs = least_seconds(lambda: loop(X, codes, queries))
    found, wanted = rule.kneighbors(queries)[1], loop(X, codes, queries)
    votes = [vote(codes[near], codes.max() + 1, "shrink") for near in (found, wanted)]
    return {
        "ms a query": 1e3 * ours / len(queries),
        "loop, ms a query": 1e3 * theirs / len(queries),
        "times faster": theirs / ours,
        "same neighbours": float((found == wanted).all(axis=1).mean()),
        "same votes": float((votes[0] == votes[1]).mean()),
    }


def dann():
    from nearfar import DANNClassifier

    return against_a_loop(
        DANNClassifier(n_metric_neighbors=N_METRIC), lambda *data: dann_loop(*data, N_METRIC)
    )


def dann_memory():
    from nearfar import DANNClassifier

    X, codes, queries = letter()
    rule = DANNClassifier(n_metric_neighbors=N_METRIC).fit(X, codes)
    return {"MB": megabytes_beyond(lambda: rule.kneighbors(queries))}


def dann_threads():
    """Real time of two threads beside that of one, with one thread of BLAS for both."""
    from nearfar import DANNClassifier

    X, codes, queries = letter()
    rule = DANNClassifier(n_metric_neighbors=N_METRIC).fit(X, codes)
    one = two = np.inf
    for _ in range(8):  # in turn: other work on the machine slows both
        rule.set_params(n_jobs=None)
        one = min(one, least_seconds(lambda: rule.kneighbors(queries), 1, time.perf_counter))
        rule.set_params(n_jobs=2)
        two = min(two, least_seconds(lambda: rule.kneighbors(queries), 1, time.perf_counter))
    return {"ms a query": 1e3 * two / len(queries), "times faster": one / two}


def subspace(n_components=10):
    """DANNSubspace beside one pass over all squared distances in blocks."""
    from nearfar import DANNSubspace
    from nearfar.blocks import compute_squared_distances, split_rows

    X, y, _ = gaussian(10_000, 50, 1)
    X -= X.mean(axis=0)

    def one_pass():
        for block in split_rows(len(X), 8 * len(X), max_rows=256):
            compute_squared_distances(X[block], X)

    memory = megabytes_beyond(lambda: DANNSubspace(n_components).fit(X, y))  # before any is held
    ours = theirs = np.inf
    for _ in range(5):  # in turn, so that a busy machine slows both
        theirs = min(theirs, least_seconds(one_pass, 1))
        ours = min(ours, least_seconds(lambda: DANNSubspace(n_components).fit(X, y), 1))
    return {"seconds": ours, "one pass, seconds": theirs, "passes": ours / theirs, "MB": memory}


def large(name):
    import nearfar

    X, y, queries = gaussian(*LARGE)
    rule = getattr(nearfar, name)()
    start = time.process_time()
    memory = megabytes_beyond(lambda: rule.fit(X, y).kneighbors(queries))
    return {"seconds": time.process_time() - start, "MB": memory}


def growth(name):
    """Milliseconds a query and seconds to fit for numbers of rows and of features; exponents."""
    import nearfar

    rules = [getattr(nearfar, name)() for _ in GROWTH]
    data = [gaussian(n, p, GROWTH_QUERIES) for n, p in GROWTH]
    asks, fits = np.full(len(GROWTH), np.inf), np.full(len(GROWTH), np.inf)
    for turn in range(5):
        for i, (rule, (X, y, queries)) in enumerate(zip(rules, data, strict=True)):
            if turn < 2:
                fits[i] = min(fits[i], least_seconds(lambda: rule.fit(X, y), 1))  # noqa: B023
            asks[i] = min(asks[i], least_seconds(lambda: rule.kneighbors(queries), 1))  # noqa: B023
    found = {"power of n": exponents(asks)[0], "power of p": exponents(asks)[1]}
    if fits.max() > 0.1:  # others only keep the rows
        found |= {"fit, power of n": exponents(fits)[0], "fit, power of p": exponents(fits)[1]}
    return found | {"times": list(1e3 * asks / GROWTH_QUERIES), "fits": list(fits)}


def exponents(times):
    """Powers of n and of p, and a factor, fitted to the logarithms of times."""
    sizes = np.log(np.array(GROWTH, dtype=float))
    terms = np.column_stack([sizes, np.ones(len(sizes))])
    return np.linalg.lstsq(terms, np.log(times), rcond=None)[0].tolist()


CASES = {
    "DANN, letter": dann,
    "DANN, letter, memory": dann_memory,
    "DANN, letter, two threads": dann_threads,
    "ADAMENN, letter": lambda: local_loops.adamenn(*letter()),
    "scythe, letter": lambda: local_loops.scythe(*letter()),
    "LFM-SVM, letters G and Q": lambda: local_loops.lfm_svm(*all_letters()),
    "LFM-SVM, letters A and B": lambda: local_loops.lfm_svm(*all_letters(), 0, 1),
    "DANNSubspace, 10,000 x 50, 10 components": subspace,
    "DANNSubspace, 10,000 x 50, auto": lambda: subspace("auto"),
    **{f"{name}, 50,000 x 50, 1,000 queries": partial(large, name) for name in RULES},
    **{f"{name}, growth": partial(growth, name) for name in RULES},
}


# ---------------------------------------------------------------------- the page


def draw(rows):
    """Times against the number of rows, a column for each number of features."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True, sharey="row")
    for row, (key, label) in enumerate({"times": "ms a query", "fits": "s to fit"}.items()):
        for panel, p in zip(panels[row], sorted({p for _, p in GROWTH}), strict=True):
            for name, found in rows.items():
                if "times" in found and (key == "times" or "fit, power of n" in found):
                    pairs = zip(GROWTH, found[key], strict=True)
                    line = [(n, t) for (n, features), t in pairs if features == p]
                    color = f"C{RULES.index(name.split(',')[0])}"
                    panel.loglog(
                        *zip(*line, strict=True), "o-", color=color, label=name.split(",")[0]
                    )
            if row == 0:
                panel.set_title(f"{p} features", fontsize="medium")
            else:
                panel.set_xlabel("training rows")
        panels[row, 0].set_ylabel(label)
    handles = panels[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize="x-small")
    figure.savefig(RESULTS / "local_growth.svg", metadata={"Date": None})


def shown(value):
    if isinstance(value, float):
        if 0.9945 < value < 1:  # a share that is not all
            return f"{value:.4f}"
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("NEARFAR_DATA"))
    parser.add_argument("--only", nargs="*", default=[""])
    arguments = parser.parse_args()
    os.environ["NEARFAR_DATA"] = str(arguments.data)
    kept = RESULTS / "local.json"
    rows = json.loads(kept.read_text()) if arguments.only != [""] and kept.exists() else {}
    for name in CASES:
        if any(part in name for part in arguments.only):
            rows[name] = in_fresh_process(__file__, name, 1)
            print(name, rows[name], flush=True)
            kept.write_text(json.dumps(rows, indent=1) + "\n")
    rows = {name: rows[name] for name in CASES if name in rows}
    if any("times" in row for row in rows.values()):
        draw(rows)
    columns = list(
        dict.fromkeys(key for row in rows.values() for key in row if key not in ("times", "fits"))
    )
    table = [
        {"work": name} | {key: shown(row.get(key, "")) for key in columns}
        for name, row in rows.items()
    ]
    write_table(
        RESULTS / "local.md",
        "A metric for each query",
        "Letter: 8,000 rows, 2,000 queries, `n_metric_neighbors=800`, `n_average_neighbors=50` and "
        "`n_region_neighbors=150`; two letters: two thirds of their rows train, the others ask. "
        "The loop goes over queries and is vectorised inside. Others: five Gaussian classes. CPU "
        "seconds on one thread, real time for two. Times faster: with the fit, but for DANN, whose "
        "fit only keeps the rows. Growth: exponents of n and p, fitted to the times of "
        "`local_growth.svg` together."
        + "".join(f" Not run to its end: {name}." for name in CASES if name not in rows),
        table,
    )


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] in CASES:
        print(json.dumps(CASES[sys.argv[1]]()))
    else:
        main()
