"""Every learner that a peer has, on five data sets: error of 3-NN, seconds, memory.

``python benchmarks/peers.py --peers DIR --data DIR`` runs what is missing; ``--sets wine,digits``,
``--methods NCA,LMNN`` and ``--who nearfar,metric-learn`` some of it, ``--again`` what is there too.
``peers/README.md`` says how to make the peers' environments. All learn from labels, with their
defaults but for what ``METHODS`` says, with one thread, the fits of all folds in a process of their
own that ends after ``--limit`` CPU seconds. What fails is a row, with its error. Results are kept
in ``results/peers.json``, from which ``results/peers.md`` is made.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, write_table
from contenders import SCRIPTS, Failed, environment_of, fault_of, fit_once
from numpy.typing import NDArray

Matrix = NDArray[np.floating]
Labels = NDArray[np.integer]
Data = tuple[Matrix, Labels]
N_FOLDS = 5
LETTERS = 2_500

# Of each method: who has it, under what name, with what settings beside the defaults.
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "NCA": {
        "nearfar": {"method": "NCA"},
        "scikit-learn": {"random_state": 0},
        "metric-learn": {"method": "NCA", "random_state": 0},
        "mlpack": {"method": "nca", "optimizer": "lbfgs", "max_iterations": 100, "seed": 1},
        "pyDML": {"method": "NCA"},
    },
    "LMNN": {
        "nearfar": {"method": "LMNN"},
        "metric-learn": {"method": "LMNN", "random_state": 0},
        "mlpack": {
            "method": "lmnn",
            "k": 3,
            "optimizer": "lbfgs",
            "max_iterations": 50,
            "center": True,
            "seed": 1,
        },
        "pyDML": {"method": "LMNN"},
    },
    "MMC": {
        "nearfar": {"method": "MMC"},
        "metric-learn": {"method": "MMC_Supervised", "random_state": 0},
        "pyDML": {"method": "LSI", "supervised": True},
    },
    "ITML": {
        "nearfar": {"method": "ITML"},
        "metric-learn": {"method": "ITML_Supervised", "random_state": 0},
        "pyDML": {"method": "ITML"},
    },
    "LSML": {
        "nearfar": {"method": "LSML"},
        "metric-learn": {"method": "LSML_Supervised", "random_state": 0},
    },
    "SDML": {
        "nearfar": {"method": "SDML"},
        "metric-learn": {"method": "SDML_Supervised", "random_state": 0},
    },
    "SCML": {
        "nearfar": {"method": "SCML"},
        "metric-learn": {"method": "SCML_Supervised", "random_state": 0},
    },
    "RCA": {
        "nearfar": {"method": "RCA"},
        "metric-learn": {"method": "RCA_Supervised", "random_state": 0},
    },
    "LFDA": {
        "nearfar": {"method": "LFDA"},
        "metric-learn": {"method": "LFDA"},
        "pyDML": {"method": "LLDA"},
    },
    "MCML": {"nearfar": {"method": "MCML"}, "pyDML": {"method": "MCML"}},
    "covariance": {
        "metric-learn": {"method": "Covariance"},
        "pyDML": {"method": "Covariance"},
    },
    "logistic": {"nearfar": {"method": "LogisticMetric"}, "pyDML": {"method": "LDML"}},
    "POLA": {"nearfar": {"method": "POLA"}},
    "ANMM": {"pyDML": {"method": "ANMM"}},
    "DMLMJ": {"pyDML": {"method": "DMLMJ"}},
    "DML-eig": {"pyDML": {"method": "DML_eig"}},
    "NCMML": {"pyDML": {"method": "NCMML"}},
    "NCMC": {"pyDML": {"method": "NCMC"}},
}
# A value to predict; only where the target is one.
REGRESSION = {
    "nearfar": {"method": "MLKR"},
    "metric-learn": {"method": "MLKR", "random_state": 0},
}


# ---------------------------------------------------------------------- the data


def bundled(name: str) -> Callable[[], Data]:
    def load() -> Data:
        from sklearn import datasets

        return getattr(datasets, f"load_{name}")(return_X_y=True)

    return load


def letter() -> Data:
    """A random part: many peers need hours for all 20,000 rows."""
    with np.load(Path(os.environ["NEARFAR_DATA"]) / "uci" / "letter.npz") as arrays:
        X, y = arrays["X"].astype(float), arrays["y"].astype(int)
    some = np.random.default_rng(0).permutation(len(y))[:LETTERS]
    return X[some], y[some]


def generated() -> Data:
    from sklearn.datasets import make_classification

    return make_classification(
        5_000, 50, n_informative=20, n_redundant=10, n_classes=5, random_state=0
    )


SETS: dict[str, tuple[str, Callable[[], Data]]] = {
    "wine": ("wine 178×13", bundled("wine")),
    "breast_cancer": ("breast cancer 569×30", bundled("breast_cancer")),
    "digits": ("digits 1,797×64", bundled("digits")),
    "letter": (f"letter, {LETTERS:,} of 20,000×16", letter),
    "generated": ("make_classification 5,000×50", generated),
    "diabetes": ("diabetes 442×10 (regression)", bundled("diabetes")),
}


def standardized(X: Matrix) -> Matrix:
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)


# ---------------------------------------------------------------------- one contender on one set


def folds(y: NDArray[Any], regression: bool) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = KFold if regression else StratifiedKFold
    return list(kind(N_FOLDS, shuffle=True, random_state=0).split(y, y))


def measure(
    who: str, python: Path, settings: dict[str, Any], X: Matrix, y: NDArray[Any], limit: float
) -> dict[str, Any]:
    """Of each fold the map is learned from the other rows; then 3-NN."""
    regression = y.dtype.kind == "f"
    fold = np.empty(len(y), int)
    for number, (_, test) in enumerate(folds(y, regression)):
        fold[test] = number
    row: dict[str, Any] = {}
    try:
        given = {"X": X, "y": y, "fold": fold}
        found, maps = fit_once(SCRIPTS[who][0], python, given, settings, limit=limit)
    except Failed as error:
        return {"remark": str(error).partition("\n")[0][:100]}
    row |= {"version": found["version"], "CPU s": found["cpu"], "MB": found["MB"]}
    if fault := max(map(fault_of, maps.values())):
        return row | {"remark": fault}
    return row | {"error": error_over_folds(X, y, lambda number: maps[f"L{number}"])}


def too_slow_before(results: list[dict[str, Any]], name: str, method: str, who: str) -> str | None:
    """A smaller set that a contender was not done with in time: it is not tried on larger ones."""
    late = {
        row["set"]
        for row in results
        if (row["method"], row["who"]) == (method, who)
        and row.get("remark", "").startswith("not done after")
    }
    smaller = list(SETS)[: list(SETS).index(name)]
    return next((SETS[one][0] for one in smaller if one in late), None)


def error_over_folds(X: Matrix, y: NDArray[Any], map_of: Callable[[int], Matrix]) -> float:
    regression = y.dtype.kind == "f"
    wrong = []
    for number, (train, test) in enumerate(folds(y, regression)):
        Z = X @ map_of(number).T
        wrong.append(errors(Z[train], y[train], Z[test], y[test]))
    mean = float(np.concatenate(wrong).mean())
    return float(np.sqrt(mean) / y.std()) if regression else 100 * mean


def errors(Z: Matrix, y: NDArray[Any], Z_test: Matrix, y_test: NDArray[Any]) -> NDArray[Any]:
    """Whether 3-NN is wrong; of values, the squared error of the mean of 5 neighbours."""
    from sklearn.neighbors import KNeighborsRegressor

    from nearfar import KNNClassifier

    if y.dtype.kind == "f":
        found = KNeighborsRegressor(5).fit(Z, y).predict(Z_test)
        return (found - y_test) ** 2
    return KNNClassifier(n_neighbors=3).fit(Z, y).predict(Z_test) != y_test


# ---------------------------------------------------------------------- the table


def write(results: list[dict[str, Any]], limit: float) -> None:
    rows = []
    for name, (title, _) in SETS.items():
        here = [row for row in results if row["set"] == name]
        methods = ["-", *METHODS, "MLKR"]
        for row in sorted(here, key=lambda row: (methods.index(row["method"]), row["order"])):
            ours = next(
                (
                    other.get("CPU s")
                    for other in here
                    if (other["method"], other["who"]) == (row["method"], "nearfar")
                ),
                None,
            )
            theirs = row.get("CPU s")
            rows.append(
                {
                    "set": title,
                    "method": row["method"],
                    "who": row["who"],
                    "error": f"{row['error']:.2f}" if "error" in row else "-",
                    "CPU s": f"{theirs:.3g}" if theirs is not None else "-",
                    "CPU / ours": f"{theirs / ours:.3g}" if theirs and ours else "-",
                    "MB beyond the data": f"{row['MB']:.0f}" if "MB" in row else "-",
                    "remark": row.get("remark", ""),
                }
            )
    calls = sorted(
        {
            f"- {row['method']}: {row['who']}, `{json.dumps(row['settings'])}`, {row['version']}"
            for row in results
            if "version" in row
        }
    )
    notes = (
        f"Error of 3-NN over {N_FOLDS} folds in percent; for diabetes, where the target is a "
        "value, the root mean squared error of 5-NN over the deviation of the target. Features are "
        "standardised (over all rows), for all alike. CPU seconds are those of one fit, the mean "
        f"over folds; one thread; the fits of all folds in a process of their own that ends after "
        f"{limit:g} CPU s, unless a remark says otherwise; loading and imports not counted. Other "
        "work ran beside it: small ratios of seconds say little. All learn from labels with their "
        "defaults, but for the limits on iterations of mlpack, which has none. Who was not done "
        "with a set in time is not tried on larger ones. Where a peer raises "
        "or gives NaN in one fold, the row says so and has no error. "
        f"letter is {LETTERS:,} random rows of 20,000. Made by "
        "`python benchmarks/peers.py --peers DIR --data DIR`."
        f"{not_run(results)}\n\n" + "\n".join(calls)
    )
    write_table(RESULTS / "peers.md", "Every learner that a peer has", notes, rows)


def not_run(results: list[dict[str, Any]]) -> str:
    """Which cells of the table are still empty, in words."""
    there = {(row["set"], row["method"], row["who"]) for row in results}
    empty: dict[tuple[str, str], list[str]] = {}
    for name, (title, _) in SETS.items():
        table = {"MLKR": REGRESSION} if name == "diabetes" else METHODS
        for method, contenders in table.items():
            for who in contenders:
                if (name, method, who) not in there:
                    empty.setdefault((who, title), []).append(method)
    said = [f"{who} on {title}: {', '.join(methods)}" for (who, title), methods in empty.items()]
    return f"\n\nNot run: {'; '.join(said)}." if said else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    place, data = os.environ.get("NEARFAR_PEERS"), os.environ.get("NEARFAR_DATA")
    parser.add_argument("--peers", default=place, help="folder of the environments")
    parser.add_argument("--data", default=data, help="folder of the data, for letter")
    parser.add_argument("--sets", default=",".join(SETS), help="some of: " + ", ".join(SETS))
    parser.add_argument("--methods", default=",".join([*METHODS, "MLKR"]), help="some of these")
    parser.add_argument("--who", default=",".join(SCRIPTS), help="some of these")
    parser.add_argument("--limit", type=float, default=60, help="CPU seconds for all folds")
    parser.add_argument("--again", action="store_true", help="run what is there, too")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    options = parser.parse_args()
    if options.data:
        os.environ["NEARFAR_DATA"] = str(Path(options.data).resolve())
    stored = RESULTS / "peers.json"
    results = json.loads(stored.read_text()) if stored.exists() else []

    def keep(row: dict[str, Any]) -> None:
        key = (row["set"], row["method"], row["who"])
        results[:] = [
            other for other in results if (other["set"], other["method"], other["who"]) != key
        ]
        results.append(row)
        stored.write_text(json.dumps(results, indent=1) + "\n")
        print(row, flush=True)

    for name in [] if options.page_only else options.sets.split(","):
        if name == "letter" and "NEARFAR_DATA" not in os.environ:
            print("letter is left out: no --data.")
            continue
        X, y = SETS[name][1]()
        X = standardized(X)
        plain = error_over_folds(X, y, lambda _, p=X.shape[1]: np.eye(p))
        keep({"set": name, "method": "-", "who": "Euclidean", "order": -1, "error": plain})
        table = {"MLKR": REGRESSION} if y.dtype.kind == "f" else METHODS
        for method in [method for method in options.methods.split(",") if method in table]:
            for order, who in enumerate(SCRIPTS):
                settings = table[method].get(who)
                key = (name, method, who)
                done = any((row["set"], row["method"], row["who"]) == key for row in results)
                if settings is None or who not in options.who.split(","):
                    continue
                if done and not options.again:
                    continue
                python = environment_of(who, options.peers)
                if python is None:
                    print(f"{who} is left out: no environment {SCRIPTS[who][1]!r} in --peers.")
                    continue
                row = {"set": name, "method": method, "who": who, "order": order}
                row["settings"] = settings
                smaller = too_slow_before(results, *key)
                if smaller is not None:
                    keep(row | {"remark": f"not tried: not done in time on {smaller}"})
                    continue
                keep(row | measure(who, python, settings, X, y, options.limit))
    write(results, options.limit)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
