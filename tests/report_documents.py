"""Documents for the tests of the report: a small comparison that is really run, and odd ones."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import numpy as np
from scipy import stats
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import StratifiedKFold

from nearfar.app.tables.images import data_uri

Document = dict[str, Any]
N_NEIGHBORS = 5


def wine() -> Document:
    """A table: 178 rows, three classes, a learner that is worth it."""
    return copy.deepcopy(_wine())


@cache
def _wine() -> Document:
    data = load_wine()
    classes = ["barolo", "grignolino", "barbera"]
    document = compare_quickly(data.data, data.target, data.feature_names, classes, repeats=5)
    document["data"] |= {
        "name": "wine",
        "target": "cultivar",
        "dropped": [
            ["id", "a different value in every row, like an ID"],
            ["tasted on", "dates are left out"],
        ],
        "messages": ["Target: column 'cultivar', guessed from its name.", "No missing values."],
    }
    return document


def digits(n_rows: int = 300) -> Document:
    """Images: ten classes of 8 × 8 pixels."""
    data = load_digits()
    X, y = data.data[:n_rows], data.target[:n_rows]
    names = [f"pixel {i // 8}, {i % 8}" for i in range(64)]
    document = compare_quickly(X, y, names, [str(digit) for digit in range(10)], repeats=1)
    document["data"] |= {"name": "digits", "target": "digit", "image_shape": [8, 8]}
    pixels = np.rint(X * 255 / 16).astype(int).reshape(-1, 8, 8)
    document["images"] = {str(row): data_uri(image) for row, image in enumerate(pixels)}
    document["warnings"] = []
    return document


def without_rows(document: Document) -> Document:
    """As --no-rows leaves it."""
    return {**document, "rows": None, "images": None}


def interrupted() -> Document:
    """Ctrl-C after the first fold: one fold, no nested selection, no maps."""
    document = wine()
    for method in document["methods"]:
        method["results"] = method["results"][:1]
        method["folds_done"] = len(method["results"])
        method |= {"interval": None, "difference_interval": None, "p": None, "p_holm": None}
        if method["status"] == "done":
            method["status"] = "unfinished"
    document["weights"] = {
        name: {**weights, "folds": weights["folds"][:1]}
        for name, weights in document["weights"].items()
    }
    first = set(document["folds"][0]["test"])
    held_out = document["held_out"]
    for part in ("predicted", "neighbors"):
        for name, found in held_out[part].items():
            held_out[part][name] = [
                item if row in first else None
                for row, item in zip(held_out["rows"], found, strict=True)
            ]
    return document | {
        "status": "interrupted",
        "common_folds": [0],
        "nested": None,
        "maps": {},
        "answer": {
            "verdict": "inconclusive",
            "method": "lmnn",
            "text": "Inconclusive: one fold cannot settle it.",
            "notes": [],
        },
        "code": "",
    }


def wide() -> Document:
    """Numbers as long as they come: many folds, few of them common, long seconds and intervals."""
    document = wine()
    document["common_folds"] = list(range(12))
    document["protocol"]["measure"] = "balanced error"
    for method in document["methods"]:
        if method["error"] is None:
            continue
        method |= {"fit_seconds": 123456.0, "peak_mb": 123456.0, "folds_used": 12}
        method |= {"error": 0.8888, "interval": [0.7777, 0.9999], "p_holm": 0.0502}
        if method["difference"] is not None:
            method |= {"difference": 0.8888, "difference_interval": [-0.8888, 0.9999]}
        for result in method["results"]:
            result |= {"predict_seconds": 12.345, "error_plain_vote": result["error"] + 0.1}
    return document


def embeddings() -> Document:
    """Embeddings, by the neighbors they keep: numbers only."""
    places = {"trust": 0.912, "continuity": 0.934, "rank_trust": 0.955, "gap": 0.0123}
    places |= {"continuity_without_stretched": 0.966, "fit_seconds": 12.3, "peak_mb": 345.0}

    def method(name: str, label: str, role: str, kept: float) -> dict[str, Any]:
        gain = None if role == "reference" else kept - 0.4
        ends = None if gain is None else [gain - 0.02, gain + 0.02]
        found = {"name": name, "label": label, "role": role, "status": "done", "folds_done": 5}
        found |= {"kept": kept, "error": 1 - kept, "interval": [kept - 0.02, kept + 0.02]}
        found |= {"difference": gain, "difference_interval": ends, "kept_fitted": kept + 0.05}
        return found | places

    return {
        "format": 1,
        "kind": "embeddings",
        "data": {"name": "roll", "n_rows": 500, "n_features": 3},
        "protocol": {"min_gain": 0.05, "measure": "neighbors kept"},
        "folds": [{"repeat": 0, "fold": i, "n_train": 400, "n_test": 100} for i in range(5)],
        "common_folds": list(range(5)),
        "answer": {"verdict": "use", "method": "isomap", "text": "Use Isomap.", "notes": []},
        "methods": [
            method("isomap", "Isomap", "learner", 0.712),
            method("pca", "PCA", "reference", 0.4),
            method("random", "Random projection", "baseline", 0.134),
        ],
    }


def all_failed() -> Document:
    """No method gave a result."""
    methods = [
        {"name": "reference", "label": "Euclidean", "role": "reference"},
        {"name": "lmnn", "label": "LMNN", "role": "learner"},
    ]
    for method in methods:
        method |= {"status": "failed", "reason": "MemoryError: 40 GB", "results": []}
    return {"format": 1, "data": {"name": "broken"}, "methods": methods, "rows": None}


HOSTILE = (
    "</script><script>window.hacked = 1</script>"
    "<img src=x onerror='window.hacked = 2'>\"'`&{{ 7 * 7 }}{% raw %}"
    "\u2028\u2029\u202e\x00\ud800-->"
)


def hostile() -> Document:
    """The wine document with an attack in every text that may come from outside."""
    document = wine()

    def poison(value: Any) -> Any:
        if isinstance(value, str):
            return HOSTILE + value
        if isinstance(value, list):
            return [poison(item) for item in value]
        return {k: poison(v) for k, v in value.items()} if isinstance(value, dict) else value

    for key in ("data", "warnings", "answer", "versions"):
        document[key] = poison(document[key])
    document["answer"]["verdict"] = "use"
    for key in ("command", "machine", "code", "created", "status"):
        document[key] = HOSTILE
    for key in ("scheme", "measure", "measure_note", "tuning", "tuning_note", "plan", "notes"):
        document["protocol"][key] = poison(document["protocol"][key])
    for method in document["methods"]:
        method |= {"label": HOSTILE + method["label"], "reason": HOSTILE}
        for result in method["results"]:
            result |= {"setting": HOSTILE, "warnings": [HOSTILE]}
    document["maps"]["rule"] = HOSTILE
    document["rows"] = {
        "columns": poison(document["rows"]["columns"]),
        "values": {row: poison(values) for row, values in document["rows"]["values"].items()},
    }
    for weights in document["weights"].values():
        weights["features"] = poison(weights["features"])
    return document


def monstrous(
    n_rows: int = 20_000, n_classes: int = 500, n_features: int = 5_000, n_methods: int = 20
) -> Document:
    """More of everything than a page can hold."""
    rng = np.random.default_rng(0)
    # Characters that take the most bytes once they are escaped.
    long = "long \"&<>' ⟨⟩" * 300
    names = ["reference", *(f"learner {i}" for i in range(n_methods - 1))]
    rows = list(range(n_rows))
    true = rng.integers(n_classes, size=n_rows)
    folds = [
        {"repeat": r, "fold": f, "n_train": n_rows * 4 // 5, "n_test": n_rows // 5}
        | {"test": list(range(f, n_rows, 5))}
        for r in range(20)
        for f in range(5)
    ]
    result = {"setting": long, "k": 3, "warnings": [long], "fit_seconds": 1.0}
    methods = [
        {
            "name": name,
            "label": f"{name} {long}",
            "role": "reference" if i == 0 else "learner",
            "status": "done",
            "reason": long,
            "folds_done": 100,
            "error": 0.3 - 0.001 * i,
            "interval": [0.2, 0.4],
            "difference": -0.001 * i,
            "difference_interval": [-0.01, 0.01],
            "results": [
                {"fold": k, "error": float(e), **result} for k, e in enumerate(rng.random(100))
            ],
        }
        for i, name in enumerate(names)
    ]
    predicted = rng.integers(n_classes, size=n_rows).tolist()
    # Before, mostly other classes; after, mostly the row's own.
    order = np.argsort(true, kind="stable")
    near = np.empty(n_rows, int)
    near[order] = np.roll(order, 1)
    neighbors = rng.integers(n_rows, size=(2, n_rows, 5))
    neighbors[1, : n_rows // 2, 0] = near[: n_rows // 2]
    neighbors[0, n_rows // 2 :, 0] = near[n_rows // 2 :]
    places = {"x": rng.normal(size=n_rows).tolist(), "y": rng.normal(size=n_rows).tolist()}
    features = [f"feature {i} {long}" for i in range(n_features)]
    shares = rng.dirichlet(np.ones(n_features), size=3).tolist()
    cells = [f"{long}{i}" for i in range(50)]
    noise = rng.integers(256, size=(48, 48, 3)).tolist()
    return {
        "format": 1,
        "command": long * 10,
        "data": {
            "name": long,
            "n_rows": n_rows,
            "n_features": n_features,
            "features": features,
            "classes": [f"class {i} {long}" for i in range(n_classes)],
            "class_counts": np.bincount(true, minlength=n_classes).tolist(),
            "dropped": [[f"column {i} {long}", long] for i in range(5_000)],
            "image_shape": [48, 48, 3],
            "messages": [long] * 5_000,
        },
        "warnings": [{"kind": long, "text": long}] * 5_000,
        "protocol": {"plan": [long] * 5_000, "notes": [long] * 5_000, "seed": 0},
        "folds": folds,
        "common_folds": list(range(100)),
        "methods": methods,
        "nested": {"error": 0.3, "interval": [0.2, 0.4], "chosen": dict.fromkeys(names, 5)},
        "answer": {
            "verdict": "use",
            "method": names[1],
            "text": long * 5,
            "notes": [long] * 1_000,
        },
        "best": names[1],
        "code": long * 100,
        "held_out": {
            "rows": rows,
            "true": true.tolist(),
            "predicted": dict.fromkeys(names, predicted),
            "neighbors": dict(zip(names[:2], neighbors.tolist(), strict=True)),
        },
        "maps": {
            "rule": long,
            "rows": rows,
            "classes": true.tolist(),
            "methods": dict.fromkeys(names, places),
        },
        "weights": {name: {"features": features, "folds": shares} for name in names[1:]},
        "histories": {name: {"objective": rng.random(10_000).tolist()} for name in names},
        "rows": {"columns": features[:50], "values": {str(row): cells for row in rows}},
        "images": dict.fromkeys(map(str, rows), data_uri(noise, largest=48)),
    }


def compare_quickly(
    X: Any, y: Any, features: list[str], classes: list[str], repeats: int
) -> Document:
    """Run a toy comparison: linear maps, nearest neighbors, real folds."""
    folds, results, held_out, maps, weights = [], {name: [] for name in METRICS}, {}, {}, {}
    held_out = {name: ([None] * len(X), [None] * len(X)) for name in METRICS}
    for repeat in range(repeats):
        splitter = StratifiedKFold(5, shuffle=True, random_state=repeat)
        for number, (train, test) in enumerate(splitter.split(X, y)):
            fold = len(folds)
            folds.append(
                {"repeat": repeat, "fold": number, "n_train": len(train), "n_test": len(test)}
                | {"test": test.tolist()}
            )
            for name, metric in METRICS.items():
                L = metric(X[train], y[train])
                A, B = X[train] @ L, X[test] @ L
                nearest = np.argsort(pairwise_distances(B, A), axis=1, kind="stable")
                nearest = train[nearest[:, :N_NEIGHBORS]]
                guess = stats.mode(y[nearest], axis=1).mode
                error = float(np.mean(guess != y[test]))
                results[name].append(_result(fold, error, name))
                if name in LEARNERS:
                    share = (L**2).sum(axis=1) * X[train].var(axis=0)
                    weights.setdefault(name, []).append((share / share.sum()).tolist())
                if repeat == 0:
                    for row, guessed, near in zip(test, guess, nearest, strict=True):
                        held_out[name][0][row] = int(guessed)
                        held_out[name][1][row] = near.tolist()
                if fold == 0:
                    axes = np.linalg.svd(A - A.mean(axis=0), full_matrices=False)[2][:2]
                    x, z = ((B - A.mean(axis=0)) @ axes.T).T
                    maps[name] = {"x": x.tolist(), "y": z.tolist()}
    first = folds[0]["test"]
    methods = [_method(name, results, folds) for name in METRICS]
    methods += _others(len(folds))
    methods.sort(key=lambda m: (m["error"] is None, m["error"]))
    best = min((m for m in methods if m["name"] in LEARNERS), key=lambda m: m["error"])
    best["recommended"] = True
    gain = -100 * best["difference"]
    reference = next(m for m in methods if m["name"] == "reference")
    document = {
        "format": 1,
        "created": "2026-11-15T12:00:00+00:00",
        "command": "nearfar compare wine.csv --target cultivar --out report.html",
        "seconds": 41.2,
        "status": "complete",
        "versions": {"nearfar": "0.1.0", "python": "3.13.1", "numpy": "2.3.0", "scipy": "1.16.0"},
        "machine": "Linux x86_64, 2 cores",
        "data": {
            "n_rows": len(X),
            "n_features": X.shape[1],
            "features": features,
            "classes": classes,
            "class_counts": np.bincount(y).tolist(),
        },
        "warnings": [
            {"kind": "duplicates", "text": "12 rows are exact copies of others in other folds."}
        ],
        "protocol": {
            "scheme": f"{repeats} × stratified 5-fold, shuffled, seed 0",
            "n_splits": 5,
            "repeats": repeats,
            "seed": 0,
            "min_gain": 0.05,
            "confidence": 0.95,
            "measure": "error",
            "measure_note": "The classes are about equally large.",
            "tuning": "full",
            "tuning_note": "k from 1 to 15 and up to 4 settings of each method inside each fold",
            "time_budget": 120,
            "plan": [f"{repeats} × 5 folds of 9 methods, about 40 s."],
            "notes": ["Every held-out row was unseen in training (checked)."],
        },
        "folds": folds,
        "common_folds": list(range(len(folds))),
        "methods": methods,
        "nested": {
            "error": best["error"] + 0.002,
            "interval": [best["interval"][0], best["interval"][1] + 0.004],
            "chosen": {best["name"]: len(folds) - 1, "reference": 1},
        },
        "answer": {
            "verdict": "use",
            "method": best["name"],
            "text": f"Use {best['label']}: {100 * best['error']:.1f}% error vs "
            f"{100 * reference['error']:.1f}% for the best standard distance, a gain of "
            f"{gain:.1f} points. Fit time: 0.3 s on 142 rows.",
            "notes": [
                "Gradient-boosted trees predict about as well: a distance is then for neighbors.",
                "With 178 rows the interval is wide; 300 more rows would halve it.",
            ],
        },
        "best": best["name"],
        "code": "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n\n"
        "from nearfar import LMNN, KNNClassifier\n\n"
        "model = make_pipeline(StandardScaler(), KNNClassifier(LMNN(), n_neighbors=5))\n"
        "model.fit(X, y)",
        "held_out": {
            "rows": list(range(len(X))),
            "true": y.tolist(),
            "predicted": {name: found[0] for name, found in held_out.items()},
            "neighbors": {name: found[1] for name, found in held_out.items()},
        },
        "maps": {
            "rule": "PCA to two dimensions of the mapped training rows, held-out rows of the "
            "first fold",
            "rows": first,
            "classes": y[first].tolist(),
            "methods": {name: maps[name] for name in ("reference", *LEARNERS)},
        },
        "weights": {
            name: {"features": features, "folds": weights[name]} for name in ("lmnn", "lda")
        },
        "histories": {
            "lmnn": {
                "objective": (900 * np.exp(-np.arange(60) / 9) + 40).tolist(),
                "seconds": np.linspace(0, 0.3, 60).tolist(),
            }
        },
        "rows": {
            "columns": features,
            "values": {str(i): [f"{v:.4g}" for v in row] for i, row in enumerate(X)},
        },
        "images": None,
    }
    return json.loads(json.dumps(document))  # plain numbers, as a comparison writes them


def _standard(X: Any, y: Any) -> Any:
    return np.diag(1 / (X.std(axis=0) + 1e-3))


def _within(ridge: float) -> Any:
    """Whitening of the scatter inside the classes, on standardised columns."""

    def metric(X: Any, y: Any) -> Any:
        scale = _standard(X, y)
        centered = np.vstack([X[y == c] - X[y == c].mean(axis=0) for c in np.unique(y)]) @ scale
        values, vectors = np.linalg.eigh(np.cov(centered.T))
        return scale @ vectors / np.sqrt(values + ridge)

    return metric


# The maps that the distances come from, learned from the training rows.
METRICS = {
    "reference": _standard,
    "raw": lambda X, y: np.eye(X.shape[1]),
    "standardized": _standard,
    "lmnn": _within(0.01),
    "lda": _within(0.3),
    "rca": lambda X, y: np.diag(1 / np.sqrt(X[y == 0].var(axis=0) + 1e-2)),
}
LEARNERS = ("lmnn", "lda", "rca")
LABELS = {
    "reference": "best standard distance",
    "raw": "raw Euclidean",
    "standardized": "standardized Euclidean",
    "lmnn": "LMNN",
    "lda": "LDA",
    "rca": "RCA",
}


def _result(fold: int, error: float, name: str) -> dict[str, Any]:
    warned = name == "lmnn" and fold < 3
    return {
        "fold": fold,
        "error": error,
        "inner_error": error,
        "setting": "standardized, n_neighbors=5" if name == "lmnn" else "standardized",
        "k": 3 + 2 * (fold % 3),
        "fit_seconds": 0.3,
        "tune_seconds": 1.2,
        "predict_seconds": 0.004,
        "peak_mb": 84.0,
        "warnings": ["ConvergenceWarning: stopped after 50 iterations"] if warned else [],
    }


def _method(name: str, results: dict[str, Any], folds: list[Any]) -> dict[str, Any]:
    errors = np.array([result["error"] for result in results[name]])
    differences = errors - np.array([result["error"] for result in results["reference"]])

    def half(values: Any) -> float:
        # Too narrow, since folds share training rows; a comparison corrects that.
        return float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))

    role = "reference" if name == "reference" else "learner" if name in LEARNERS else "baseline"
    tested = role == "learner"
    spread = half(differences)
    p = float(2 * stats.norm.sf(1.96 * abs(differences.mean()) / (spread or 1.0)))
    return {
        "name": name,
        "label": LABELS[name],
        "role": role,
        "status": "done",
        "reason": None,
        "folds_done": len(folds),
        "error": float(errors.mean()),
        "interval": [max(0.0, errors.mean() - half(errors)), float(errors.mean() + half(errors))],
        "difference": None if role == "reference" else float(differences.mean()),
        "difference_interval": None
        if role == "reference"
        else [differences.mean() - spread, differences.mean() + spread],
        "p": p if tested else None,
        "p_holm": min(1.0, 3 * p) if tested else None,
        "fit_seconds": {"lmnn": 0.314, "rca": 0.012}.get(name, 0.0021),
        "tune_seconds": 4.03,
        "predict_seconds": 0.011,
        "peak_mb": {"lmnn": 184.0}.get(name, 96.4),
        "not_converged": 3 if name == "lmnn" else 0,
        "recommended": False,
        "results": results[name],
    }


def _others(n_folds: int) -> list[dict[str, Any]]:
    """Rows for context and rows without a result."""
    empty = {"interval": None, "difference": None, "difference_interval": None, "results": []}
    empty |= {"error": None, "folds_done": 0, "p": None, "p_holm": None, "recommended": False}
    context = {"role": "context", "status": "done", "folds_done": n_folds, "fit_seconds": 1.9}
    return [
        empty | {"name": "trees", "label": "Gradient-boosted trees"} | context
        | {"error": 0.029, "interval": [0.01, 0.048], "difference": -0.012, "peak_mb": 210.0}
        | {"difference_interval": [-0.034, 0.010]},
        empty | {"name": "majority", "label": "Majority class"} | context
        | {"error": 0.601, "interval": [0.58, 0.62], "difference": 0.57, "fit_seconds": 0.0001}
        | {"difference_interval": [0.55, 0.59], "peak_mb": 71.0},
        empty | {"name": "mcml", "label": "MCML", "role": "learner", "status": "failed"}
        | {"reason": "LinAlgError: the scatter of class 'barbera' is singular (fold 3)."},
        empty | {"name": "mvu", "label": "MVU", "role": "learner", "status": "failed"}
        | {"reason": "RuntimeError: the solver broke in the third fold", "folds_done": 2}
        | {"error": 0.11, "difference": 0.07, "fit_seconds": 3.1, "peak_mb": 300.0},
        empty | {"name": "mine", "label": "Mine", "role": "learner", "status": "unfinished"}
        | {"reason": "time budget reached after 2 of its folds", "folds_done": 2, "error": 0.07}
        | {"interval": None, "difference": 0.02, "fit_seconds": 61.2, "peak_mb": 1480.0},
    ]  # fmt: skip
