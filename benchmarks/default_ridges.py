"""Which ridge MPM, FDA, TMPM and TFDA should have by default: errors within training samples.

``python benchmarks/default_ridges.py --data DIR`` needs usps.npz, eth80_close64.npz,
olivetti_64x64.npz and uci/; it writes ``results/default_ridges.md``. Everything is cross-validation
of samples that were drawn for it: no test set is looked at.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, write_table
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import StratifiedKFold

from nearfar import FDA, MPM, TFDA, TMPM

Sample = tuple[NDArray[np.float64], NDArray[Any]]

GRIDS: dict[Any, tuple[float, ...]] = {
    MPM: (0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    FDA: (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0),
    TMPM: (0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    TFDA: (1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0),
}
# What each is compared with.
BEFORE: dict[Any, float] = {MPM: 0.1, FDA: 1e-3, TMPM: 0.1, TFDA: 1e-3}


def pairs_of(
    name: str, X: Any, y: Any, pairs: list[tuple[int, int]], sizes: tuple[int, ...]
) -> dict[str, Sample]:
    """So many samples of two classes each, drawn at random."""
    random, labels = np.random.default_rng(0), np.unique(y)
    found = {}
    for a, b in pairs:
        for n in sizes:
            rows = [random.permutation(np.flatnonzero(y == labels[c]))[:n] for c in (a, b)]
            some = np.concatenate(rows)
            found[f"{name} {a}-{b}, {n} a class"] = X[some].astype(float), y[some]
    return found


def sixteen(X: Any) -> NDArray[np.float64]:
    """Pictures of 64 x 64 as means of squares of four."""
    return np.asarray(X, float).reshape(-1, 16, 4, 16, 4).mean((2, 4))


def samples(folder: Path) -> dict[str, Sample]:
    digits = load_digits()
    found = pairs_of(
        "digits", digits.images / 16, digits.target, [(3, 8), (1, 7), (4, 9)], (15, 35, 100)
    )
    with np.load(folder / "usps.npz") as stored:
        X, y = stored["X"].reshape(-1, 16, 16), stored["y"]
        found |= pairs_of("USPS", X, y, [(3, 5), (4, 9), (7, 9)], (30, 130, 300))
    with np.load(folder / "eth80_close64.npz") as stored:
        X, y = sixteen(stored["X"]) / 255, stored["y"]
        found |= pairs_of("ETH80", X, y, [(0, 5), (2, 3), (1, 6)], (20, 130))
    with np.load(folder / "olivetti_64x64.npz") as stored:
        first = stored["y"] < 20
        found["Olivetti, ten people of ten"] = sixteen(stored["X"])[first], stored["y"][first] < 10
    X, y = load_wine(return_X_y=True)
    found |= {
        f"wine, {a} and {a + 1}": (X[part], y[part])
        for a in (0, 1)
        for part in [(y == a) | (y == a + 1)]
    }
    for name in ("ionosphere", "sonar"):
        with np.load(folder / "uci" / f"{name}.npz") as stored:
            found[name] = stored["X"].astype(float), stored["y"]
    return found


def error(kind: Any, ridge: float, X: NDArray[np.float64], y: NDArray[Any], repeats: int) -> float:
    """In %, by five-fold cross-validation."""
    wrong = 0
    for seed in range(repeats):
        folds = StratifiedKFold(5, shuffle=True, random_state=seed)
        for train, test in folds.split(X.reshape(len(X), -1), y):
            wrong += int((kind(ridge).fit(X[train], y[train]).predict(X[test]) != y[test]).sum())
    return 100 * wrong / repeats / len(X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data")
    folder = parser.parse_args().data
    warnings.simplefilter("ignore")
    errors: dict[Any, list[tuple[float, list[float]]]] = {kind: [] for kind in GRIDS}
    for name, (X, y) in samples(folder).items():
        rows = X.reshape(len(X), -1)
        share = 0.8 * len(X) / rows.shape[1]
        if X.ndim == 2:
            rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
        for kind, ridges in GRIDS.items():
            if kind in (TMPM, TFDA) and X.ndim == 2:
                continue
            vectors = kind in (MPM, FDA)
            given, repeats = (rows, 4) if vectors else (X, 2)
            found = [error(kind, ridge, given, y, repeats) for ridge in ridges]
            errors[kind].append((share, found))
            print(kind.__name__, name, [round(value, 2) for value in found], flush=True)
    table = []
    for kind, ridges in GRIDS.items():
        shares = np.array([share for share, _ in errors[kind]])
        E = np.array([found for _, found in errors[kind]])
        off = E - E[:, [ridges.index(BEFORE[kind])]]
        parts = {
            "fewer samples than features": shares < 0.7,
            "about as many": (shares >= 0.7) & (shares <= 1.4),
            "more": shares > 1.4,
        }
        for k, ridge in enumerate(ridges):
            table.append(
                {
                    "learner": f"`{kind.__name__}({ridge:g})`",
                    "sets": len(E),
                    "mean error, %": f"{E[:, k].mean():.2f}",
                }
                | {part: f"{E[own, k].mean():.2f}" for part, own in parts.items()}
                | {
                    f"better than {'/'.join(f'{v:g}' for v in (0.1, 1e-3))}": int(
                        (off[:, k] < -0.25).sum()
                    ),
                    "worse": int((off[:, k] > 0.25).sum()),
                    "most lost": f"{off[:, k].max():.2f}",
                }
            )
    notes = (
        "Errors of five-fold cross-validation (vectors four times, tensors twice) on samples drawn "
        "from pairs of digits, USPS and ETH80 at several sizes, two groups of Olivetti, and, "
        "standardised and for vectors alone, wine, ionosphere and sonar. Better and worse count "
        "sets with a quarter of a point or more between this ridge and 0.1 (MPM, TMPM) or 0.001 "
        "(FDA, TFDA, whose default was that). Made by `python benchmarks/default_ridges.py "
        "--data DIR`."
    )
    write_table(RESULTS / "default_ridges.md", "Default ridges", notes, table)


if __name__ == "__main__":
    main()
