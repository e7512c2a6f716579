"""Classifiers of tensors beside those of vectors: small samples, starts, convergence, bases.

``python benchmarks/reproduce/supervised_tensors.py --data DIR`` runs what is missing and writes the
page of the documentation; ``--parts digits,tr1da`` some of it. Each result is one line of a file
beside the page, so that a run can be broken off and goes on later; pictures lie in ``figures``
beside it. Sets of which there is no file are left out. The numbers that are to be met are in
``supervised_tensors_prototype.py``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from frame import Results, arguments, section, table, write_page
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import NearestCentroid
from sklearn.svm import SVC
from supervised_tensors_prototype import DIGITS, FIGURE_4_1, TR1DA_ERRORS

from nearfar import LSSTM, MPM, PCA, STM, TMPM, TR1A, TR1DA, KNNClassifier

Tensors = NDArray[np.float64]
Labels = NDArray[Any]
# Training samples, their labels, test samples, theirs; objects of the training samples.
Given = tuple[Tensors, Labels, Tensors, Labels, Labels | None]

SHAPE = (10, 10)
MIXES = (0.0, 0.6)
SIZES = (10, 20, 40, 80, 160, 320, 640, 1280)
N_SETS = 5
# Of those with settings chosen on training samples, which takes twenty fits for one.
CHOSEN_SIZES = (20, 80, 320)
N_TEST = 4000
N_SPLITS = 10
PER_CLASS = (5, 10, 20, 30)
N_STARTS = 100
# Fewer have no verdict.
MIN_SPLITS = 5
DIMS = (5, 10, 20, 40)
ZETAS = (0.01, 0.1, 0.3, 1.0)
# C and gamma in units of one over the mean square of a sample about the mean; ridges in units of
# the mean variance within classes. The most regular comes first, and is taken when errors tie.
COSTS = (0.1, 1.0, 10.0, 100.0)
RIDGES = (10.0, 1.0, 0.1, 0.01)


class Pairs(NamedTuple):
    """Images of a file, how many classes pair, numbers that train, splits; objects on one side.

    Which classes pair is a rule, so that nothing can be picked: in the order of the file the first
    with the second, the third with the fourth, and so on.
    """

    file: str
    shape: tuple[int, int]
    n_classes: int
    sizes: tuple[int, ...]
    n_splits: int
    by_object: bool = False

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple((k, k + 1) for k in range(0, self.n_classes, 2))


PAIRS = {
    "USPS": Pairs("usps", (16, 16), 10, (5, 10, 20, 30), 3),
    "Olivetti": Pairs("olivetti_64x64", (64, 64), 20, (5,), 2),
    "ETH80": Pairs("eth80_close64", (64, 64), 8, (5, 10, 20, 30), 3, True),
}

# ---------------------------------------------------------------------- learners


class Learner(NamedTuple):
    """A classifier, whether it takes tensors, its regulariser with a grid."""

    estimator: Any
    tensors: bool
    name: str = ""
    grid: tuple[float, ...] = ()
    by_scale: bool = False  # the grid is over the mean square of a sample


METHODS = {
    "nearest mean": Learner(NearestCentroid(), False),
    "ridge": Learner(RidgeClassifier(), False, "alpha", COSTS, True),
    "LSSTM": Learner(LSSTM(), True, "gamma", COSTS, True),
    "LSSTM, rank 2": Learner(LSSTM(rank=2), True, "gamma", COSTS, True),
    "MPM": Learner(MPM(), False, "ridge", RIDGES),
    "TMPM": Learner(TMPM(), True, "ridge", RIDGES),
    "SVC": Learner(SVC(kernel="linear"), False, "C", COSTS, True),
    "STM": Learner(STM(), True, "C", COSTS, True),
    "STM, rank 2": Learner(STM(rank=2), True, "C", COSTS, True),
}
# Those to run; an option makes them fewer.
wanted_methods = list(METHODS)
TWINS = (
    ("ridge", "LSSTM"),
    ("ridge", "LSSTM, rank 2"),
    ("MPM", "TMPM"),
    ("SVC", "STM"),
    ("SVC", "STM, rank 2"),
)


def flat(X: Tensors) -> Tensors:
    return X.reshape(len(X), -1)


def made(of: Learner, value: float, X: Tensors) -> Any:
    """The learner with a value of its grid, in the units of these samples."""
    if not of.name:
        return clone(of.estimator)
    if of.by_scale:
        value /= float(np.mean(np.sum((flat(X) - flat(X).mean(axis=0)) ** 2, axis=1)))
    if of.name == "alpha":  # a penalty, where the others have a cost
        value = 1 / value
    return clone(of.estimator).set_params(**{of.name: value})


def fitted(of: Learner, value: float, X: Tensors, y: Labels) -> Callable[[Tensors], Labels]:
    form = (lambda T: T) if of.tensors else flat
    machine = made(of, value, X).fit(form(X), y)
    return lambda Q: machine.predict(form(Q))


def percent(wrong: NDArray[Any]) -> float:
    return round(100 * float(np.mean(wrong)), 3)


def chosen(of: Learner, X: Tensors, y: Labels, groups: Labels | None = None) -> float:
    """The value of the grid that errs least on five folds of the training samples."""
    if not of.grid:
        return 0.0
    wrong = np.zeros(len(of.grid))
    for train, test in folds(y, groups):
        for i, value in enumerate(of.grid):
            wrong[i] += np.sum(fitted(of, value, X[train], y[train])(X[test]) != y[test])
    return of.grid[int(np.argmin(wrong))]


def folds(y: Labels, groups: Labels | None) -> Iterator[tuple[Labels, Labels]]:
    """Five folds, each class alike; objects stay together where groups say what they are."""
    if groups is None:
        n_folds = min(5, int(np.min(np.unique(y, return_counts=True)[1])))
        yield from StratifiedKFold(n_folds, shuffle=True, random_state=0).split(y, y)
        return
    at = np.zeros(len(y), np.intp)
    for label in np.unique(y):
        mine = y == label
        at[mine] = np.unique(groups[mine], return_inverse=True)[1] % 5
    for fold in np.unique(at):
        yield np.flatnonzero(at != fold), np.flatnonzero(at == fold)


def tried(
    results: Results,
    row: dict[str, Any],
    given: Callable[[], Given],
) -> None:
    """Every method that was not run, with what was chosen on the training samples."""
    missing = [name for name in wanted_methods if not results.select(method=name, **row)]
    if not missing:
        return
    X, y, Q, q, groups = given()
    for name in missing:
        began = time.process_time()
        value = chosen(METHODS[name], X, y, groups)
        predict = fitted(METHODS[name], value, X, y)
        results.add(
            row
            | {
                "method": name,
                "error": percent(predict(Q) != q),
                "train_error": percent(predict(X) != y),
                "value": value,
                "n_test": len(q),
                "seconds": round(time.process_time() - began, 2),
            }
        )


# ---------------------------------------------------------------------- data


@lru_cache(maxsize=2)
def signal(mix: float) -> Tensors:
    """The weight of section 9.1: of rank one, and ``mix`` of any rank."""
    random = np.random.default_rng(123)
    u, v = (random.standard_normal(d) for d in SHAPE)
    E = random.standard_normal(SHAPE)
    W = np.outer(u / np.linalg.norm(u), v / np.linalg.norm(v)) + mix * E / np.linalg.norm(E)
    return np.asarray(W / np.linalg.norm(W))


def rank_one_signal(n: int, mix: float, seed: int) -> tuple[Tensors, Labels]:
    y = np.where(np.arange(n) % 2 == 0, 1, -1)
    noise = np.random.default_rng(seed).standard_normal((n, *SHAPE))
    return noise + 1.5 * y[:, None, None] * signal(mix), y


@lru_cache(maxsize=1)
def digits() -> tuple[Tensors, Labels]:
    found = load_digits()
    return found.images / 16, found.target


def drawn(y: Labels, n: int, seed: int) -> tuple[Labels, Labels]:
    """n rows of each class to train with, all others to test."""
    random = np.random.default_rng(seed)
    train = [random.permutation(np.flatnonzero(y == label))[:n] for label in np.unique(y)]
    return np.concatenate(train), np.setdiff1d(np.arange(len(y)), np.concatenate(train))


def drawn_by_object(y: Labels, shown: Labels, n: int, seed: int) -> tuple[Labels, Labels]:
    """n rows of each class from half of its objects; the others' test."""
    random = np.random.default_rng(seed)
    train, test = [], []
    for label in np.unique(y):
        mine = random.permutation(np.flatnonzero(y == label))
        objects = random.permutation(np.unique(shown[mine]))
        inside = np.isin(shown[mine], objects[: len(objects) // 2])
        train.append(mine[inside][:n])
        test.append(mine[~inside])
    return np.concatenate(train), np.concatenate(test)


@lru_cache(maxsize=3)
def stored(data: Path, name: str) -> tuple[Tensors, Labels, Labels, list[str]]:
    """Images between 0 and 1, classes, the object that each shows, names of classes."""
    of = PAIRS[name]
    with np.load(data / f"{of.file}.npz", allow_pickle=False) as file:
        X, y = file["X"].astype(np.float64), file["y"]
        shown = file["object"] if "object" in file else np.arange(len(y))
        names = [str(c) for c in file["classes"]] if "classes" in file else []
    X = (X - X.min()) / (X.max() - X.min())
    found, codes = np.unique(y, return_inverse=True)
    return X.reshape(-1, *of.shape), codes, shown, names or [str(c) for c in found]


def pair_of(data: Path, name: str, pair: tuple[int, int], n: int, seed: int) -> Given:
    X, y, shown, _ = stored(data, name)
    rows = np.flatnonzero(np.isin(y, pair))
    X, y, shown = X[rows], y[rows], shown[rows]
    if PAIRS[name].by_object:
        train, test = drawn_by_object(y, shown, n, seed)
        return X[train], y[train], X[test], y[test], shown[train]
    train, test = drawn(y, n, seed)
    return X[train], y[train], X[test], y[test], None


def three_or_eight(n: int, seed: int) -> Given:
    X, y = digits()
    rows = np.isin(y, (3, 8))
    X, y = X[rows], y[rows]
    train, test = drawn(y, n, seed)
    return X[train], y[train], X[test], y[test], None


# ---------------------------------------------------------------------- runs

# The settings of the prototype for figure 4.1, the same for all sizes.
FIXED = {
    "STM": Learner(STM(C=0.05, init="mean_difference"), True),
    "SVM": Learner(SVC(kernel="linear", C=0.05), False),
    "TMPM": Learner(TMPM(ridge=0.1, ridge_mode="absolute"), True),
    "MPM": Learner(MPM(ridge=0.1, ridge_mode="absolute"), False),
    "nearest mean": Learner(NearestCentroid(), False),
}


def run_figure_4_1(results: Results, data: Path, out: Path, most: int) -> None:
    for seed in range(min(most, N_SETS)):
        for mix in MIXES:
            for n in SIZES:
                row = {"part": "figure-4.1", "mix": mix, "n": n, "split": seed}
                for name, of in FIXED.items():
                    left_out = name in METHODS and name not in wanted_methods
                    if left_out or results.select(method=name, **row):
                        continue
                    predict = fitted(of, 0, *rank_one_signal(n, mix, seed))
                    Q, q = rank_one_signal(N_TEST, mix, 999)
                    results.add(row | {"method": name, "error": percent(predict(Q) != q)})


def run_rank_one(results: Results, data: Path, out: Path, most: int) -> None:
    """The data of figure 4.1, with settings chosen on training samples."""

    def given(n: int, mix: float, seed: int) -> Given:
        Q, q = rank_one_signal(N_TEST, mix, 999)
        return (*rank_one_signal(n, mix, seed), Q, q, None)

    for seed in range(min(most, N_SETS)):
        for n in CHOSEN_SIZES:
            for mix in MIXES:
                row = {"part": "rank-one", "mix": mix, "n": n, "split": seed}
                tried(results, row, partial(given, n, mix, seed))


def run_digits(results: Results, data: Path, out: Path, most: int) -> None:
    for seed in range(min(most, N_SPLITS)):
        for n in PER_CLASS:
            row = {"part": "digits", "n": n, "split": seed}
            tried(results, row, partial(three_or_eight, n, seed))


def neighbour_error(Z: Tensors, y: Labels, Q: Tensors, q: Labels) -> float:
    return percent(KNNClassifier(n_neighbors=1).fit(Z, y).predict(Q) != q)


def feature_maps(X: Tensors, y: Labels) -> Iterator[tuple[str, Callable[[Tensors], Tensors], Any]]:
    """Of section 9.3, each of as many numbers as there are, with sweeps for each feature."""
    most = max(DIMS)
    pca = PCA(most).fit(flat(X))
    yield "PCA", lambda Q: pca.transform(flat(Q)), None
    tr1a = TR1A(most).fit(X)
    yield "TR1A", tr1a.transform, None
    for zeta in ZETAS:
        tr1da = TR1DA(most, within_weight=zeta).fit(X, y)
        yield f"TR1DA, zeta {zeta:g}", tr1da.transform, tr1da.history_["sweeps"]


def run_tr1da(results: Results, data: Path, out: Path, most: int) -> None:
    X, y = digits()
    for seed in range(min(most, N_SPLITS)):
        row = {"part": "tr1da", "split": seed}
        if results.select(**row, method="chosen: TR1DA"):
            continue
        kept: list[dict[str, Any]] = []  # until all of the split is there
        train, test = drawn(y, 10, seed)
        T, t, Q, q = X[train], y[train], X[test], y[test]
        kept.append(row | {"method": "raw", "error": neighbour_error(flat(T), t, flat(Q), q)})
        by_map: dict[str, list[float]] = {}
        for name, mapped, sweeps in feature_maps(T, t):
            Z, new = mapped(T), mapped(Q)
            errors = [neighbour_error(Z[:, :d], t, new[:, :d], q) for d in DIMS]
            by_map[name] = errors
            found = {"method": name, "dims": list(DIMS), "errors": errors}
            kept.append(
                row | found | ({} if sweeps is None else {"sweeps": list(map(int, sweeps))})
            )
        pca = PCA(max(DIMS)).fit(flat(T))
        for name, lda, before in (
            ("PCA 40 + LDA 9", LinearDiscriminantAnalysis(), pca.transform),
            ("shrinkage LDA 9", LinearDiscriminantAnalysis("eigen", shrinkage="auto"), lambda P: P),
        ):
            lda.fit(before(flat(T)), t)
            Z, new = lda.transform(before(flat(T))), lda.transform(before(flat(Q)))
            kept.append(row | {"method": name, "error": neighbour_error(Z, t, new, q)})
        sums: dict[tuple[str, int], float] = {}
        for a, b in folds(t, None):
            for name, mapped, _ in feature_maps(T[a], t[a]):
                Z, new = mapped(T[a]), mapped(T[b])
                for i, d in enumerate(DIMS):
                    wrong = neighbour_error(Z[:, :d], t[a], new[:, :d], t[b])
                    sums[name, i] = sums.get((name, i), 0.0) + wrong
        for kind in ("PCA", "TR1A", "TR1DA"):
            best, i = min((k for k in sums if k[0].startswith(kind)), key=lambda k: sums[k])
            found = {"method": f"chosen: {kind}", "error": by_map[best][i]}
            kept.append(row | found | {"setting": f"{best}, {DIMS[i]} numbers"})
        for found in kept:
            results.add(found)


def run_pairs(results: Results, data: Path, out: Path, most: int) -> None:
    """A pair of each set in turn, so that a run broken off has some of all."""
    there = {name: of for name, of in PAIRS.items() if (data / f"{of.file}.npz").exists()}
    splits = range(max((min(most, of.n_splits) for of in there.values()), default=0))
    pairs = range(max((len(of.pairs) for of in there.values()), default=0))
    for seed, at in product(splits, pairs):
        for name, of in there.items():
            if seed >= of.n_splits or at >= len(of.pairs):
                continue
            names = "-".join(stored(data, name)[3][code] for code in of.pairs[at])
            for n in of.sizes:
                row = {"part": "pairs", "set": name, "n": n, "split": seed, "pair": names}
                tried(results, row, partial(pair_of, data, name, of.pairs[at], n, seed))


STARTED = {
    "TMPM, 10 sweeps": TMPM(init="random", max_iter=10),
    "TMPM": TMPM(init="random", max_iter=300),
    "LSSTM": LSSTM(gamma=1.0, init="random", max_iter=300),
    "STM": STM(C=1.0, init="random"),
    "STM, alternation alone": STM(C=1.0, init="random", refine=None),
}


def run_starts(results: Results, data: Path, out: Path, most: int) -> None:
    """Figure 4.17: 20 samples a class, 100 starts; objectives beside errors."""
    X, y, Q, q, _ = three_or_eight(20, 0)
    before = len(results.rows)
    for first in range(0, N_STARTS, 10):
        for name, machine in STARTED.items():
            row = {"part": "starts", "set": "digits 3-8", "method": name, "first": first}
            if results.select(**row):
                continue
            found: dict[str, list[float]] = {"objectives": [], "errors": [], "train_errors": []}
            for seed in range(first, min(first + 10, N_STARTS)):
                one = clone(machine).set_params(random_state=seed).fit(X, y)
                found["objectives"].append(float(f"{one.objective_:.7g}"))
                found["errors"].append(percent(one.predict(Q) != q))
                found["train_errors"].append(percent(one.predict(X) != y))
            results.add(row | found)
    if len(results.rows) > before:
        draw_starts(results, out / "supervised-tensors-4-17.png")


def all_starts(results: Results) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Objectives and test errors of all starts, by learner."""
    rows = results.select(part="starts")

    def joined(name: str, key: str) -> NDArray[Any]:
        return np.concatenate([row[key] for row in rows if row["method"] == name])

    names = dict.fromkeys(row["method"] for row in rows)
    return {name: (joined(name, "objectives"), joined(name, "errors")) for name in names}


def draw_starts(results: Results, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    rows = all_starts(results)
    figure, axes = plt.subplots(1, len(rows), figsize=(2.6 * len(rows), 2.6), layout="constrained")
    for ax, (name, (values, errors)) in zip(np.atleast_1d(axes), rows.items(), strict=True):
        best = values.max() if name.startswith("TMPM") else values.min()
        short = np.maximum(abs(values / best - 1), 1e-6)
        ax.plot(short, errors, "o", ms=3, alpha=0.4)
        ax.set(title=name, xlabel="objective, short of the best", ylabel="test error, %")
        ax.set(xscale="log", xlim=(5e-7, 10), ylim=(0, max(6, 1.05 * errors.max())))
        ax.title.set_fontsize(9)
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def run_convergence(results: Results, data: Path, out: Path, most: int) -> None:
    """Figure 4.16: TMPM from a random start, after every sweep, with 10, 20, 30 a class."""
    sizes = (10, 20, 30)
    if all(results.select(part="convergence", n=n) for n in sizes):
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(len(sizes), 2, figsize=(7, 6), sharex=True, layout="constrained")
    for n, (left, right) in zip(sizes, axes, strict=True):
        X, y, Q, q, _ = three_or_eight(n, 0)
        machine = TMPM(init="random", max_iter=20, tol=0).fit(X, y)
        scores = np.array(list(machine.staged_decision_function(X)))
        tests = np.array(list(machine.staged_decision_function(Q)))
        sides = [np.where(labels == machine.classes_[1], 1, -1) for labels in (y, q)]
        errors = [
            [percent((stage > 0) != (side > 0)) for stage in stages]
            for stages, side in zip((scores, tests), sides, strict=True)
        ]
        sweeps = np.arange(1, len(scores) + 1)
        for side, colour in ((1, "C0"), (-1, "C1")):
            left.plot(sweeps, scores[:, sides[0] == side], colour, lw=0.5)
        left.set(ylabel=f"{n} a class: score")
        right.plot(sweeps, errors[0], label="training")
        right.plot(sweeps, errors[1], label="test")
        right.set(ylabel="error, %")
        kappas = [float(f"{k:.7g}") for k in machine.history_["objective"][1::2]]
        if not results.select(part="convergence", n=n):
            row = {"part": "convergence", "n": n, "objectives": kappas}
            results.add(row | {"train_errors": errors[0], "errors": errors[1]})
    axes[0, 1].legend()
    axes[-1, 0].set(xlabel="sweep")
    axes[-1, 1].set(xlabel="sweep")
    save(figure, out / "supervised-tensors-4-16.png")


def dense(A: Tensors) -> tuple[float, float]:
    """Share of the pixels that an image uses, and of its squares in its leading rank-one term."""
    share = np.sum(abs(A)) ** 2 / (A.size * np.sum(A**2))
    s = np.linalg.svd(A, compute_uv=False)
    return float(share), float(s[0] ** 2 / np.sum(s**2))


def run_bases(results: Results, data: Path, out: Path, most: int) -> None:
    """Figure 4.18: the first ten images of PCA, LDA, TR1A and TR1DA, on digits."""
    if results.select(part="bases"):
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    X, y = digits()
    shape, rows = X.shape[1:], flat(X)
    varies = rows.std(axis=0) > 0
    within = LinearDiscriminantAnalysis("eigen", shrinkage="auto").fit(rows[:, varies], y)
    lda = np.zeros((9, rows.shape[1]))
    lda[:, varies] = within.scalings_.T[:9]

    def atoms(machine: Any) -> list[Tensors]:
        U, V = machine.factors_
        return [np.outer(U[:, r], V[:, r]) for r in range(10)]

    bases = {
        "PCA": [row.reshape(shape) for row in PCA(10).fit(rows).components_],
        "LDA": [row.reshape(shape) for row in lda],
        "TR1A": atoms(TR1A(10).fit(X)),
        "TR1DA": atoms(TR1DA(10).fit(X, y)),
    }
    figure, axes = plt.subplots(len(bases), 10, figsize=(8, 3.4), layout="constrained")
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
        ax.axis("off")
    for (name, images), line in zip(bases.items(), axes, strict=True):
        line[0].set_title(name, fontsize=9)
        for ax, image in zip(line, images, strict=False):
            ax.axis("on")
            most = abs(image).max()
            ax.imshow(image, cmap="RdBu", vmin=-most, vmax=most)
        shares = np.mean([dense(image) for image in images], axis=0).round(3)
        used, rank_one = map(float, shares)
        row = {"part": "bases", "method": name, "used": used, "rank_one": rank_one}
        results.add(row)
    save(figure, out / "supervised-tensors-4-18.png")


RUNS: dict[str, Callable[[Results, Path, Path, int], None]] = {
    "digits": run_digits,
    "tr1da": run_tr1da,
    "starts": run_starts,
    "convergence": run_convergence,
    "bases": run_bases,
    "figure-4.1": run_figure_4_1,
    "pairs": run_pairs,
    "rank-one": run_rank_one,
}

# ---------------------------------------------------------------------- the page


def mean_and_spread(values: Sequence[float], digits: int = 1) -> str:
    if not values:
        return "-"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def verdict(errors: Sequence[float], theirs: float) -> str:
    """Within two standard errors of a difference, or half a point, it is the same."""
    if len(errors) < MIN_SPLITS:  # a spread of so few says nothing
        return "too few splits"
    allowed = max(0.5, 2 * float(np.std(errors, ddof=1)) * np.sqrt(2 / len(errors)))
    if abs(np.mean(errors) - theirs) <= allowed:
        return "as the prototype"
    return "better" if np.mean(errors) < theirs else "worse"


def errors_of(rows: list[dict[str, Any]]) -> list[float]:
    return [row["error"] for row in rows]


def curves(results: Results, **which: Any) -> list[str]:
    """A row for each size, a column for each method; of runs that all methods have."""
    at: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in results.select(**which):
        at.setdefault((row["n"], row.get("pair"), row["split"]), {})[row["method"]] = row["error"]
    whole = {key: errors for key, errors in at.items() if set(METHODS) <= set(errors)}
    body = []
    for n in sorted({key[0] for key in whole}):
        runs = [errors for key, errors in whole.items() if key[0] == n]
        cells = [mean_and_spread([errors[name] for errors in runs]) for name in METHODS]
        body.append([f"{n} ({len(runs)})", *cells])
    return table(["samples (runs)", *METHODS], body)


def duels(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[str]:
    """Of each tensor learner and its twin on the same splits: the mean difference, and who won."""
    at = {(*(row.get(key) for key in keys), row["method"]): row["error"] for row in rows}
    body = []
    for n in sorted({row["n"] for row in rows}):
        line = [str(n)]
        for vector, tensor in TWINS:
            gains = [
                at[(*place, vector)] - error
                for (*place, method), error in at.items()
                if method == tensor and place[keys.index("n")] == n and (*place, vector) in at
            ]
            if not gains:
                line.append("-")
                continue
            won, lost = int(np.sum(np.array(gains) > 0)), int(np.sum(np.array(gains) < 0))
            line.append(f"{np.mean(gains):+.1f} ({won} : {lost})")
        body.append(line)
    return table(["samples", *(f"{tensor} over {vector}" for vector, tensor in TWINS)], body)


def page_of_figure_4_1(results: Results) -> list[str]:
    lines = [
        "Noise of unit variance in 10×10 numbers, classes three apart along a weight of rank one "
        "(mix 0), or of that with six tenths of a random matrix (mix 0.6); 4,000 to test. C is "
        "0.05, ridges are 0.1, for all sizes. Each cell: prototype / ours.",
        "",
    ]
    for mix in MIXES:
        body, differs = [], []
        for n in SIZES:
            cells = []
            for name in FIXED:
                which = {"part": "figure-4.1", "mix": mix, "n": n}
                errors = errors_of(results.select(**which, method=name))
                theirs = FIGURE_4_1.get((mix, n), {}).get(name)
                ours = f"{np.mean(errors):.1f}" if errors else "-"
                cells.append(f"{theirs:.1f} / {ours}" if theirs is not None else ours)
                if theirs is not None and len(errors) >= MIN_SPLITS:
                    word = verdict(errors, theirs)
                    if word != "as the prototype":
                        differs.append(f"{name} at {n} ({word})")
            body.append([str(n), *cells])
        lines += [f"mix {mix:g}:", "", *table(["samples", *FIXED], body)]
        n_runs = len(results.select(part="figure-4.1", mix=mix, n=SIZES[-1], method="STM"))
        said = ", ".join(differs) if differs else "none"
        if n_runs < MIN_SPLITS:
            said = "too few sets to say"
        lines += [f"Training sets so far: {n_runs}. Cells that differ by more than chance: {said}."]
        lines += [""]
    if results.select(part="rank-one"):
        lines += ["With settings chosen on the training samples, as far as they were run:", ""]
    for mix in MIXES:
        which = {"part": "rank-one", "mix": mix}
        if results.select(**which):
            lines += [f"mix {mix:g}:", "", *curves(results, **which)]
    return lines


def page_of_digits(results: Results) -> list[str]:
    lines = curves(results, part="digits")
    body = []
    for (method, n), theirs in DIGITS.items():
        errors = errors_of(results.select(part="digits", method=method, n=n))
        if errors:
            row = [method, str(n), f"{theirs:.1f}", mean_and_spread(errors)]
            body.append([*row, verdict(errors, theirs)])
    lines += ["Beside the prototype:", ""]
    lines += table(["method", "a class", "prototype", "ours", "verdict"], body)
    lines += ["Points gained over the twin on vectors, and splits won and lost:", ""]
    return lines + duels(results.select(part="digits"), ("n", "split"))


def page_of_tr1da(results: Results) -> list[str]:
    rows = results.select(part="tr1da")
    body, sweeps = [], []
    for (method, dims), theirs in TR1DA_ERRORS.items():
        mine = [row for row in rows if row["method"] == method]
        mine = [row for row in mine if dims is None or dims in row["dims"]]
        errors = [r["error"] if dims is None else r["errors"][r["dims"].index(dims)] for r in mine]
        if errors:
            row = [method, "-" if dims is None else str(dims), f"{theirs:.1f}"]
            body.append([*row, mean_and_spread(errors), verdict(errors, theirs)])
    for row in rows:
        if row["method"] == "TR1DA, zeta 0.1":
            sweeps += row["sweeps"]
    lines = table(["method", "numbers", "prototype", "ours", "verdict"], body)
    body = []
    for kind in ("PCA", "TR1A", "TR1DA"):
        mine = [row for row in rows if row["method"] == f"chosen: {kind}"]
        settings = [row["setting"] for row in mine]
        words = "; ".join(f"{s} ({settings.count(s)})" for s in dict.fromkeys(settings))
        body.append([kind, mean_and_spread(errors_of(mine)), words])
    lines += ["Numbers and zeta chosen on five folds of the training images:", ""]
    lines += table(["method", "error", "chosen, and in how many splits"], body)
    if sweeps:
        lines += [
            f"Sweeps for a feature of TR1DA, zeta 0.1: mean {np.mean(sweeps):.1f}, standard "
            f"deviation {np.std(sweeps):.1f}, at most {max(sweeps)}; the thesis (table 4.4, gait) "
            "has means of 18 to 22, deviations of 10 to 14, at most 53 to 73; the prototype 13.2, "
            "9.7 and 115.",
            "",
        ]
    return lines


def page_of_pairs(results: Results) -> list[str]:
    lines = []
    for name, of in PAIRS.items():
        rows = results.select(part="pairs", set=name)
        if not rows:
            continue
        pairs = ", ".join(dict.fromkeys(row["pair"] for row in rows))
        size = f"{of.shape[0]}×{of.shape[1]}"
        apart = "; test images show objects that no training image does" if of.by_object else ""
        lines += [f"**{name}**, {size}, pairs {pairs}{apart}:", ""]
        lines += curves(results, part="pairs", set=name)
        lines += ["Points gained over the twin on vectors, and runs won and lost:", ""]
        lines += duels(rows, ("n", "split", "pair"))
    return lines or ["Not run yet.", ""]


def page_of_starts(results: Results) -> list[str]:
    body = []
    for name, (values, errors) in all_starts(results).items():
        largest = name.startswith("TMPM")
        best = values.max() if largest else values.min()
        share = np.mean(abs(values - best) <= 1e-3 * abs(best))
        distinct = 1 + int(np.sum(np.diff(np.sort(values)) > 1e-3 * abs(best)))
        worst = values.min() if largest else values.max()
        at_best = errors[abs(values - best) <= 1e-3 * abs(best)]
        body.append(
            [
                f"{name} ({'largest' if largest else 'smallest'} is best)",
                str(len(values)),
                f"{best:.4f}",
                f"{worst:.4f}",
                str(distinct),
                f"{100 * share:.0f} %",
                f"{errors.min():.1f} to {errors.max():.1f}",
                f"{at_best.mean():.1f}",
            ]
        )
    head = ["learner", "starts", "best objective", "worst", "values apart by 0.1 %", "at the best"]
    lines = table([*head, "test errors", "error at the best"], body)
    return [
        *lines,
        *picture(
            "4-17",
            "Test errors of a hundred random starts, and how far the objective falls short",
        ),
    ]


def page_of_convergence(results: Results) -> list[str]:
    body = []
    for row in results.select(part="convergence"):
        kappas = np.array(row["objectives"])
        near = 1 + int(np.argmax(kappas >= kappas[-1] * (1 - 1e-3)))
        still = len(row["errors"]) - int(
            np.argmax(np.array(row["errors"][::-1]) != row["errors"][-1])
        )
        settled = 1 if len(set(row["errors"])) == 1 else still + 1
        cells = [f"{row[key][i]:.1f}" for key in ("train_errors", "errors") for i in (0, -1)]
        body.append([str(row["n"]), f"{kappas[-1]:.3f}", str(near), str(settled), *cells])
    head = ["a class", "kappa after 20", "within 0.1 % after", "test error stays after"]
    head += ["training error, first sweep", "last", "test error, first sweep", "last"]
    return [*table(head, body), *picture("4-16", "Scores and errors after every sweep of TMPM")]


def page_of_bases(results: Results) -> list[str]:
    body = [
        [row["method"], f"{100 * row['used']:.0f} %", f"{100 * row['rank_one']:.0f} %"]
        for row in results.select(part="bases")
    ]
    lines = table(["method", "pixels used", "squares in the leading rank-one term"], body)
    said = [
        'Means of the first ten images (LDA has nine). "Pixels used" is (Σ|a|)² / (p Σ a²): 100 % '
        "for an image all of whose pixels are alike, 64 % for random ones.",
        "",
    ]
    return [*lines, *said, *picture("4-18", "The first ten images of each basis")]


def picture(number: str, says: str) -> list[str]:
    return [f".. figure:: figures/supervised-tensors-{number}.png", "", f"   {says}.", ""]


INTRODUCTION = """
A weight that keeps the shape of the data and has rank one has few numbers to learn: 128 instead of
4,096 for an image of 64×64. The thesis (chapter 4) shows that a minimax probability machine with
such a weight learns from few samples where that on vectors does not; of a ridge in its baseline it
says nothing. This page sets every tensor learner beside the same learner on vectors, **both
regularised, both with the strength chosen on folds of the training samples**. Errors are in %, of
test samples; the number after ± is the standard deviation over runs.

* C, gamma and one over the penalty of ridge are tried at 0.1, 1, 10 and 100 in units of one over
  the mean square of a sample about the mean; the ridges of MPM and TMPM at 10, 1, 0.1 and 0.01 of
  the mean variance within classes. Of those that err least on five folds the most regular is taken.
* TFDA and FDA are not listed: but for their small ridge they have the directions of LSSTM and of
  ridge.
* Of ETH80 the test images show other objects than those that train, and folds keep objects
  together. Olivetti has ten images of a person: five train.
* "+1.0 (7 : 3)": the tensor learner errs a point less in the mean; it won seven runs and lost
  three, others are even.

Made by ``python benchmarks/reproduce/supervised_tensors.py --data DIR``.
"""
TITLES: dict[str, tuple[str, Callable[[Results], list[str]]]] = {
    "digits": ("Digits 3 and 8, few of each", page_of_digits),
    "pairs": ("Pairs of USPS, Olivetti and ETH80", page_of_pairs),
    "figure-4.1": ("Figure 4.1: where the curves cross", page_of_figure_4_1),
    "tr1da": ("TR1DA: ten digits, ten of each", page_of_tr1da),
    "starts": ("Figure 4.17: a hundred starts", page_of_starts),
    "convergence": ("Figure 4.16: convergence", page_of_convergence),
    "bases": ("Figure 4.18: images of the bases", page_of_bases),
}


def page(results: Results) -> list[str]:
    lines = [*INTRODUCTION.strip().splitlines(), ""]
    for part, (title, make) in TITLES.items():
        if results.select(part=part):
            lines += section(title) + make(results)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(RUNS), help="some of: " + ", ".join(RUNS))
    parser.add_argument("--splits", type=int, default=1000, help="the first so many alone")
    parser.add_argument("--methods", help="these alone, with semicolons between them")
    options = arguments(parser, "supervised-tensors.rst", data=True)
    wanted_methods[:] = options.methods.split(";") if options.methods else METHODS
    if unknown := set(wanted_methods) - set(METHODS):
        parser.error(f"no method {sorted(unknown)}; there are {list(METHODS)}")
    wanted = options.parts.split(",")
    if unknown := set(wanted) - set(RUNS):
        parser.error(f"no part {sorted(unknown)}; there are {list(RUNS)}")
    results = Results(options.out.with_suffix(".jsonl"))
    for part in [] if options.page_only else wanted:
        RUNS[part](results, Path(options.data), options.out.parent / "figures", options.splits)
    write_page(options.out, "Classifiers of tensors, beside those of vectors", page(results))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
