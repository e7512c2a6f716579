"""Problems of the tables of local rules: simulations, and sets of the UCI repository by folds."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from nearfar.datasets import make_few_relevant

Matrix = NDArray[np.float64]
Labels = NDArray[np.intp]
Indices = NDArray[np.intp]
Split = tuple[Matrix, Labels, Matrix, Labels]

SIMULATIONS = ("noise", "ring")
N_SEEDS = 20
N_FOLDS = 5
# Folds are drawn so often, up to so many rows.
REPEATS = {"defaults": {1000: 2, 2500: 1}, "tuned": {250: 2, 2500: 1}}
# Letter is the one larger set, of which some rows are used.
MOST_ROWS = 2500
LETTERS = 1500


def drawn(name: Literal["noise", "ring"], seed: int) -> Split:
    """A simulation: 200 rows to train with and 200 to test."""
    X, y = make_few_relevant(name, n_samples=400, random_state=seed)
    return X[:200], y[:200], X[200:], y[200:]


def stored(data: Path, name: str) -> tuple[Matrix, Labels]:
    """A set of the UCI repository, nominal columns as their codes."""
    with np.load(data / "uci" / f"{name}.npz") as file:
        X, y = file["X"].astype(np.float64), np.unique(file["y"], return_inverse=True)[1]
    if name == "letter":
        rows = np.random.default_rng(0).permutation(len(y))[:LETTERS]
        X, y = X[rows], y[rows]
    return X, y


def sets(data: Path) -> list[str]:
    """All sets that are small enough, the smallest first."""
    found = {path.stem: len(np.load(path)["y"]) for path in sorted((data / "uci").glob("*.npz"))}
    names = [name for name, n in found.items() if n <= MOST_ROWS or name == "letter"]
    return sorted(names, key=lambda name: min(found[name], MOST_ROWS))


def with_noise(X: Matrix, name: str) -> Matrix:
    """As many columns more, standard normal."""
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return np.hstack([X, random.standard_normal(X.shape)])


def splits(data: Path, part: str, name: str, protocol: str) -> Iterator[Split]:
    """What is trained with and tested; missing values are the medians, deviations are one."""
    if part == "simulations":
        yield from (scaled(drawn(name, seed)) for seed in range(N_SEEDS))
        return
    X, y = stored(data, name)
    if part == "noisy":
        X = with_noise(X, name)
    n_repeats = max(
        [often for most, often in REPEATS[protocol].items() if len(y) <= most], default=0
    )
    for seed in range(n_repeats):
        folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed)
        for train, test in folds.split(X, y):
            yield scaled((X[train], y[train], X[test], y[test]))


def scaled(split: Split) -> Split:
    X, y, Q, q = split
    filled = SimpleImputer(strategy="median").fit(X)
    scaler = StandardScaler().fit(filled.transform(X))
    X, Q = (scaler.transform(filled.transform(rows)) for rows in (X, Q))
    return X, y, Q, q
