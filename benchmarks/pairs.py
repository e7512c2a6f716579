"""Learners of pairs, groups, comparisons and values against their peers (NCA: see ``nca.py``).

``python benchmarks/pairs.py --peers DIR`` runs everything; ``--cases mmc-30,itml-30`` some of it.
``peers/README.md`` says how to make the peers' environments (or set NEARFAR_PEERS to their folder).
All sides see the same data and the same pairs, with one thread, each in a process of its own.
Rows of cases that were not run stay as they were in ``results/pairs.json``, from which
``results/pairs.md`` is made.
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
from common import RESULTS, in_fresh_process, write_table
from contenders import SCRIPTS, Failed, environment_of, fault_of, fit_once
from numpy.typing import NDArray

Matrix = NDArray[np.floating]
Arrays = dict[str, NDArray[Any]]
OURS = "nearfar"


# ---------------------------------------------------------------------- the data


def breast_cancer() -> tuple[Matrix, NDArray[Any]]:
    from sklearn.datasets import load_breast_cancer

    return load_breast_cancer(return_X_y=True)


def digits() -> tuple[Matrix, NDArray[Any]]:
    """Without the three pixels that are always empty: p = 61."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X[:, X.std(axis=0) > 0], y


def generated(n: int) -> tuple[Matrix, NDArray[Any]]:
    from sklearn.datasets import make_classification

    return make_classification(n, 50, n_informative=20, n_redundant=10, n_classes=5, random_state=0)


def pairs_of(data: Callable[[], tuple[Matrix, Any]], n_pairs: int) -> Arrays:
    """Half of them similar; rows numbered as in X."""
    from nearfar import Pairs

    X, y = data()
    each = n_pairs // 2
    pairs = Pairs.from_labels(y, n_similar=each, n_dissimilar=each, random_state=0)
    sign = np.repeat([1, -1], [len(pairs.similar), len(pairs.dissimilar)])
    return {"X": X, "pairs": np.concatenate([pairs.similar, pairs.dissimilar]), "sign": sign}


def prior_of(X: Matrix) -> Matrix:
    """The identity over the mean variance: our default."""
    return np.eye(X.shape[1]) / X.var(axis=0).mean()


def bounded_pairs(data: Callable[[], tuple[Matrix, Any]], n_pairs: int) -> Arrays:
    """Pairs, the prior, and bounds on squared distances: percentiles over pairs of rows."""
    given = pairs_of(data, n_pairs)
    X = given["X"]
    prior = prior_of(X)
    rows = np.random.default_rng(0).integers(len(X), size=(20_000, 2))
    squared = squared_distances(np.sqrt(prior), X, rows[rows[:, 0] != rows[:, 1]])
    return given | {"prior": prior, "bounds": np.percentile(squared, (5, 95))}


def quadruplets() -> Arrays:
    from nearfar import Quadruplets

    X, y = breast_cancer()
    drawn = Quadruplets.from_labels(y, n_quadruplets=2_000, random_state=0)
    return {"X": X, "tuples": drawn.indices, "prior": prior_of(X)}


def triplets_and_basis() -> Arrays:
    """Triplets of neighbours; directions of unit length: leading ones of random local scatters."""
    from nearfar import Triplets

    X, y = breast_cancer()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    random = np.random.default_rng(0)
    tuples = Triplets.from_neighbors(X, y).indices
    ends = X[tuples]
    basis = random.permutation(ends[:, 0] - ends[:, 2])[:300]
    return {"X": X, "tuples": tuples, "basis": basis / np.linalg.norm(basis, axis=1)[:, None]}


def labelled(data: Callable[[], tuple[Matrix, Any]], *, standard: bool = False) -> Arrays:
    X, y = data()
    if standard:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return {"X": X, "y": y}


def values() -> Arrays:
    """A value that depends on three directions of thirty, in no linear way."""
    random = np.random.default_rng(0)
    X = random.normal(size=(2_000, 30))
    Z = X @ random.normal(size=(30, 3)) / np.sqrt(30)
    return {"X": X, "y": np.sin(2 * Z[:, 0]) + Z[:, 1] * Z[:, 2] + 0.1 * random.normal(size=2_000)}


def chunklets() -> Arrays:
    """Ten rows in each."""
    random = np.random.default_rng(0)
    X = random.normal(size=(100_000, 100))
    return {"X": X, "chunks": np.arange(100_000) // 10}


# ---------------------------------------------------------------------- objectives, by definition


def squared_distances(L: Matrix, X: Matrix, pairs: NDArray[np.integer]) -> NDArray[np.float64]:
    Z = (X - X.mean(axis=0)) @ L.T
    return ((Z[pairs[:, 0]] - Z[pairs[:, 1]]) ** 2).sum(axis=1)


def mmc_objective(L: Matrix, given: Arrays) -> float:
    """Mean distance of dissimilar pairs where similar ones have a mean squared distance of 1."""
    squared = squared_distances(L, given["X"], given["pairs"])
    alike = given["sign"] > 0
    return float(np.sqrt(squared[~alike]).mean() / np.sqrt(squared[alike].mean()))


def log_det(L: Matrix, prior: Matrix) -> float:
    ratio = np.linalg.solve(prior, L.T @ L)
    return float(np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(prior))


def itml_objective(L: Matrix, given: Arrays, gamma: float = 1.0) -> float:
    """LogDet(M, M₀) + γ Σ φ(d²/u) over similar pairs beyond u and φ(d²/l) over others within l."""
    squared = squared_distances(L, given["X"], given["pairs"])
    alike, (upper, lower) = given["sign"] > 0, given["bounds"]
    over = np.where(alike, np.maximum(squared / upper, 1), np.minimum(squared / lower, 1))
    return log_det(L, given["prior"]) + gamma * float(np.sum(over - np.log(over) - 1))


def lsml_objective(L: Matrix, given: Arrays) -> float:
    near, far = (
        np.sqrt(squared_distances(L, given["X"], given["tuples"][:, ends]))
        for ends in ([0, 1], [2, 3])
    )
    return float(np.mean(np.maximum(near - far, 0) ** 2)) + log_det(L, given["prior"])


def scml_objective(L: Matrix, given: Arrays, beta: float = 1e-5) -> float:
    """Mean hinge, and the sum of weights, which is the trace as directions have unit length."""
    near, far = (
        squared_distances(L, given["X"], given["tuples"][:, ends]) for ends in ([0, 1], [0, 2])
    )
    return float(np.maximum(1 + near - far, 0).mean() + beta * (L**2).sum())


def soft_objective(objective: str, L: Matrix, given: Arrays) -> float:
    """Ours, in double precision, which the tests hold against scikit-learn and differences."""
    from nearfar.solvers.soft_neighbors import soft_neighbors

    X = given["X"] - given["X"].mean(axis=0)
    return float(soft_neighbors(L, X, given["y"], objective=objective)[0])


def three_nn_error(L: Matrix, given: Arrays) -> float:
    """On every fifth row, from the others; the map is that of all rows."""
    from nearfar import KNNClassifier

    Z, y = given["X"] @ L.T, given["y"]
    test = np.arange(len(y)) % 5 == 0
    rule = KNNClassifier(n_neighbors=3).fit(Z[~test], y[~test])
    return 100 * (1 - rule.score(Z[test], y[test]))


# ---------------------------------------------------------------------- contests


class Case(NamedTuple):
    """Same arrays to all; ``best`` says whether the objective is to be high or low."""

    title: str
    target: str
    data: Callable[[], Arrays]
    objective: Callable[[Matrix, Arrays], float] | None
    best: str
    contenders: list[tuple[str, str, dict[str, Any]]]


def against_metric_learn(
    method: str, ours: dict[str, Any], theirs: dict[str, Any], *more: Any, name: str = ""
) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (OURS, OURS, {"method": method} | ours),
        ("metric-learn", "metric-learn", {"method": name or method} | theirs),
        *more,
    ]


CASES: dict[str, Case] = {
    **{
        f"mmc-{p}": Case(
            f"MMC, 5,000 pairs, {name}, p = {p}",
            "100× metric-learn's default; gap at most 1e-4",
            partial(pairs_of, data, 5_000),
            mmc_objective,
            "high",
            against_metric_learn("MMC", {}, {}),
        )
        for p, name, data in ((30, "breast cancer", breast_cancer), (61, "digits", digits))
    },
    **{
        f"itml-{p}": Case(
            f"ITML, 2,000 pairs, {name}, p = {p}",
            "50× metric-learn at 1,000 sweeps; gap at most 1e-4",
            partial(bounded_pairs, data, 2_000),
            itml_objective,
            "low",
            against_metric_learn("ITML", {}, {"max_iter": 1_000, "tol": 0}),
        )
        for p, name, data in ((30, "breast cancer", breast_cancer), (61, "digits", digits))
    },
    "lsml": Case(
        "LSML, 2,000 quadruplets, breast cancer, p = 30",
        "no slower than metric-learn",
        quadruplets,
        lsml_objective,
        "low",
        against_metric_learn("LSML", {}, {}),
    ),
    "mcml": Case(
        "MCML, wine 178×13, standardised",
        "within 1e-6 of the optimum in 0.5 s",
        lambda: labelled(wine, standard=True),
        partial(soft_objective, "collapse"),
        "low",
        [
            (OURS, OURS, {"method": "MCML"}),
            ("nearfar, to the end", OURS, {"method": "MCML", "tol": 1e-15, "max_iter": 20_000}),
            ("pyDML", "pyDML", {"method": "MCML"}),
        ],
    ),
    "mlkr": Case(
        "MLKR, 2,000×30, at most 20 iterations from the identity",
        "3× metric-learn; objective no worse",
        values,
        partial(soft_objective, "regression"),
        "low",
        against_metric_learn(
            "MLKR", {"init": "identity", "max_iter": 20}, {"init": "identity", "max_iter": 20}
        ),
    ),
    "scml": Case(
        "SCML, breast cancer 569×30, standardised, same triplets and directions",
        "3× metric-learn; objective no worse",
        triplets_and_basis,
        scml_objective,
        "low",
        against_metric_learn("SCML", {}, {"random_state": 0}),
    ),
    "scml-labels": Case(
        "SCML, breast cancer 569×30, standardised, from labels",
        "3× metric-learn",
        lambda: labelled(breast_cancer, standard=True),
        None,
        "low",
        against_metric_learn("SCML", {}, {"random_state": 0}, name="SCML_Supervised"),
    ),
    "rca": Case(
        "RCA, 100,000×100 in chunklets of ten",
        "within 2× of one covariance, see below",
        chunklets,
        None,
        "low",
        against_metric_learn("RCA", {}, {}),
    ),
    "lfda": Case(
        "LFDA, 20,000×50, 5 classes",
        "below 10 s; no n×n array (3,200 MB)",
        lambda: labelled(partial(generated, 20_000)),
        None,
        "low",
        against_metric_learn("LFDA", {}, {}),
    ),
}


def wine() -> tuple[Matrix, NDArray[Any]]:
    from sklearn.datasets import load_wine

    return load_wine(return_X_y=True)


def whole_digits() -> tuple[Matrix, NDArray[Any]]:
    """Pixels from 0 to 1: with those from 0 to 16 the nearest row is the only neighbour."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return X / 16, y


def contest(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for ours and each peer, the best of three fits."""
    case = CASES[name]
    given = case.data()
    for contender, who, settings in case.contenders:
        python = environment_of(who, options.peers)
        if python is None:
            print(f"{contender} is left out: no environment {SCRIPTS[who][1]!r} in --peers.")
            continue
        shown = {key: value for key, value in settings.items() if key != "method"}
        call = (
            f"{settings.get('method', 'NCA')}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"
        )
        row: dict[str, Any] = {"case": case.title, "contender": contender, "call": call}
        try:
            best, learned = fit_once(
                SCRIPTS[who][0],
                python,
                given,
                settings,
                limit=options.limit,
                repeat=options.repeat,
            )
            row |= {
                "CPU s": best["cpu"],
                "wall s": best["wall"],
                "MB": best["MB"],
                "runs": best["runs"],
                "version": best["version"],
                **best["words"],
            }
            L = learned["L"]
            if fault := fault_of(L):
                row["remark"] = fault
            else:
                if case.objective is not None:
                    row["value"] = case.objective(L, given)
                if given.get("y") is not None and given["y"].dtype.kind in "iu":
                    row["error %"] = three_nn_error(L, given)
        except Failed as error:
            row["remark"] = str(error)[:120]
        if who == OURS:
            row["target"] = case.target
        yield row


# ---------------------------------------------------------------------- ours alone


def best_cpu(work: Callable[[], Any], repeat: int = 3) -> float:
    seconds = []
    for _ in range(repeat):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    return min(seconds)


def run_rca() -> list[dict[str, Any]]:
    from nearfar import RCA

    given = chunklets()
    X, chunks = given["X"], given["chunks"]
    one = best_cpu(lambda: np.cov(X, rowvar=False))
    ours = best_cpu(lambda: RCA().fit(X, supervision=chunks))
    title = "RCA, 100,000×100 in chunklets of ten, beside np.cov"
    return [
        {"case": title, "contender": "nearfar", "CPU s": ours, "target": "within 2×"},
        {"case": title, "contender": "np.cov(X)", "CPU s": one},
    ]


def run_kernel_rca() -> list[dict[str, Any]]:
    from nearfar import KernelRCA

    random = np.random.default_rng(0)
    X, chunks = random.normal(size=(2_010, 20)), np.arange(2_010) // 10
    first = slice(0, 2_000)
    fitted = [KernelRCA().fit(X[first], supervision=chunks[first]) for _ in range(3)]
    more = iter(fitted)
    rest = slice(2_000, 2_010)
    added = best_cpu(lambda: next(more).partial_fit(X[rest], supervision=chunks[rest]))
    refit = best_cpu(lambda: KernelRCA().fit(X, supervision=chunks))
    title = "KernelRCA, a chunklet of 10 onto 2,000 points"
    target = "10× a refit"
    return [
        {"case": title, "contender": "partial_fit", "CPU s": added, "target": target},
        {"case": title, "contender": "fit again", "CPU s": refit},
    ]


def run_mcml() -> list[dict[str, Any]]:
    """One evaluation of each objective, on digits."""
    from nearfar.solvers.soft_neighbors import soft_neighbors

    X, y = whole_digits()
    X = X - X.mean(axis=0)
    L = np.eye(X.shape[1])
    title = "one evaluation in double precision, digits 1,797×64"
    seconds = {
        of: best_cpu(lambda of=of: soft_neighbors(L, X, y, objective=of), 5)
        for of in ("collapse", "sum")
    }
    target = "at most 1.3 × NCA's"
    return [
        {"case": title, "contender": "MCML", "CPU s": seconds["collapse"], "target": target},
        {"case": title, "contender": "NCA", "CPU s": seconds["sum"]},
    ]


def plain_pola(pairs: Matrix, sign: NDArray[np.integer]) -> int:
    """As the algorithm is written: a full eigendecomposition after each update."""
    M, b, updates = np.zeros((pairs.shape[2],) * 2), 1.0, 0
    for (one, other), s in zip(pairs, sign, strict=True):
        x = one - other
        loss = 1 - s * (b - x @ M @ x)
        if loss <= 0:
            continue
        updates += 1
        alpha = loss / ((x @ x) ** 2 + 1)
        M = M - s * alpha * np.outer(x, x)
        b = max(b + s * alpha, 1.0)
        eigenvalues, vectors = np.linalg.eigh(M)
        M = (vectors * np.maximum(eigenvalues, 0)) @ vectors.T
    return updates


def run_pola() -> list[dict[str, Any]]:
    from nearfar import POLA

    random = np.random.default_rng(0)
    n, p = 20_000, 20
    X = random.normal(size=(n, 2, p)) / np.sqrt(p)
    sign = np.where(random.random(n) < 0.5, 1, -1)
    scale = np.where(sign > 0, 0.7, 1.0)[:, None]
    X[:, 1] = X[:, 0] + scale * X[:, 1]  # so close that every second pair has a loss
    found = {}

    def ours() -> None:
        found["ours"] = POLA(scale=1.0).partial_fit_pairs(X, sign)

    def loop() -> None:
        found["loop"] = plain_pola(X, sign)

    seconds = best_cpu(ours), best_cpu(loop)
    learner = found["ours"]
    title = f"POLA, {n:,} pairs, p = {p}, an update in {learner.n_updates_ / n:.0%}"
    if learner.n_updates_ != found["loop"]:
        title += f" ({found['loop'] / n:.0%} in the loop)"
    # Dissimilar pairs ten times as long as those that were learned from have no loss.
    some = random.normal(size=(1_000, 2, p))
    calm = POLA(scale=1.0).partial_fit_pairs(some, np.full(1_000, -1))
    many, before = 1_000_000, calm.n_updates_
    far, signs = np.tile(10 * some, (1_000, 1, 1)), np.full(many, -1)
    idle = best_cpu(lambda: calm.partial_fit_pairs(far, signs))
    none = "POLA, 1,000,000 pairs without a loss, p = 20"
    assert calm.n_updates_ == before
    return [
        {"case": title, "contender": "nearfar", "CPU s": seconds[0], "target": "2.5× the loop"},
        {"case": title, "contender": "plain loop", "CPU s": seconds[1]},
        {
            "case": none,
            "contender": "nearfar",
            "CPU s": idle,
            "target": "500,000 pairs/s",
            "remark": f"{many / idle:,.0f} pairs/s",
        },
    ]


ALONE: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "rca-covariance": run_rca,
    "kernel-rca": run_kernel_rca,
    "mcml-evaluation": run_mcml,
    "pola": run_pola,
}
NAMES = [*CASES, *ALONE]

# ---------------------------------------------------------------------- the table


def ratios(rows: list[dict[str, Any]]) -> None:
    """CPU seconds over ours, and the objective as a multiple of the best one known."""
    ours = rows[0]
    rows = [row for row in rows if row["case"] == ours["case"]]
    best = CASES[ours["name"]].best if ours.get("name") in CASES else "low"
    known = [row["value"] for row in rows if row.get("value") is not None]
    for row in rows:
        if row.get("CPU s") and ours.get("CPU s"):
            row["CPU / ours"] = row["CPU s"] / ours["CPU s"]
        if row.get("value") is not None:
            row["of the best"] = row["value"] / (max(known) if best == "high" else min(known))


def shown(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if key in ("duality_gap", "optimality"):
        return f"{value:.1e}"
    if key in ("MB", "iterations"):
        return f"{value:.0f}"
    if key == "of the best":
        return f"{value:.6g}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def write(results: dict[str, list[dict[str, Any]]]) -> None:
    columns = {
        "case": "case",
        "contender": "contender",
        "CPU s": "CPU s",
        "CPU / ours": "CPU / ours",
        "wall s": "wall s",
        "MB": "MB beyond the data",
        "value": "objective",
        "of the best": "objective / best",
        "duality_gap": "gap",
        "optimality": "optimality",
        "error %": "3-NN error %",
        "iterations": "iterations",
        "runs": "runs",
        "remark": "remark",
        "target": "target",
    }
    rows = []
    for name in NAMES:
        if name in results:
            ratios(results[name])
            rows += results[name]
    table = [{title: shown(key, row.get(key)) for key, title in columns.items()} for row in rows]
    calls = sorted(
        {
            f"- {row['contender']}: `{row['call']}`, {row['version']}"
            for row in rows
            if "version" in row
        }
    )
    notes = (
        "Each fit alone in a fresh process, one thread on all sides, the same data and the same "
        "pairs; best of three by CPU seconds in one run, or one where it took over 20; loading and "
        "imports not counted. The objective is ours, from its definition: "
        "the mean distance of dissimilar pairs where similar ones have a mean square of 1 (MMC, to "
        "be high), LogDet and slacks (ITML) or residuals (LSML) with the same prior and the same "
        "bounds on squared distances, mean hinge and weights (SCML), collapse (MCML), squared "
        "leave-one-out error (MLKR). "
        "The best is the best in the table. Errors are those of 3-NN on every fifth row after a "
        "map learned from all rows: only to see that two maps are as good. Made by "
        "`python benchmarks/pairs.py --peers DIR`.\n\n" + "\n".join(calls)
    )
    write_table(RESULTS / "pairs.md", "Pairs, groups, comparisons, values", notes, table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    place = os.environ.get("NEARFAR_PEERS")
    parser.add_argument("--peers", default=place, help="folder of the environments")
    parser.add_argument("--cases", help="some of: " + ", ".join(NAMES))
    parser.add_argument("--repeat", type=int, default=3, help="the best of so many fits counts")
    parser.add_argument("--limit", type=int, default=150, help="CPU seconds after which fits end")
    options = parser.parse_args()
    wanted = options.cases.split(",") if options.cases else NAMES
    if unknown := set(wanted) - set(NAMES):
        parser.error(f"no case {sorted(unknown)}; there are {NAMES}")
    stored = RESULTS / "pairs.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    for name in wanted:
        if name in CASES:
            rows = []
            for row in contest(name, options):
                print(row, flush=True)
                rows.append({"name": name} | row)
        else:
            rows = [{"name": name} | row for row in in_fresh_process(__file__, name, 1)["rows"]]
            print(*rows, sep="\n", flush=True)
        results[name] = rows
        stored.write_text(json.dumps(results, indent=1) + "\n")
    write(results)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if len(sys.argv) == 2 and sys.argv[1] in ALONE:  # from in_fresh_process
        print(json.dumps({"rows": ALONE[sys.argv[1]]()}))
    else:
        main()
