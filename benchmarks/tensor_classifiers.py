"""Classifiers of tensors: time and memory, against scikit-learn's SVM and ridge on vectors.

``python benchmarks/tensor_classifiers.py --data DIR`` runs everything, ``--cases stm-made`` some of
it; without ``--data`` (or NEARFAR_DATA) made data alone. Every contender is a process of its own on
one thread. Rows of cases not run stay as they were in ``results/tensor_classifiers.json``,
from which ``results/tensor_classifiers.md`` is made.

A case is a name with a target and its contenders: functions of nothing that prepare data and return
the work to be measured, and what is to be noted of its result.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS, in_fresh_process, megabytes_beyond, write_table
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# The work, and what to note of what it returns.
Prepared = tuple[Callable[[], Any], Callable[[Any], dict[str, Any]]]


class Case(NamedTuple):
    """Rows of the table: ours first, then those it is compared with."""

    target: str
    contenders: dict[str, Callable[[], Prepared]]
    memory: bool = False


class Samples(NamedTuple):
    """Tensors to learn from, with labels 1 and -1, and others to test."""

    X: Floats
    y: Floats
    Q: Floats
    q: Floats


# ---------------------------------------------------------------------- data

N, SIDE = 2_000, 28
PAIRS = {"mnist-3-8": (3, 8), "mnist-4-9": (4, 9)}
SETS = ("made", *PAIRS)
GROWTH = (125, 250, 500, 1_000)


def made(n: int = N, d: int = SIDE, mix: float = 0.6, seed: int = 0) -> Samples:
    """Noise, and a difference of classes that is a matrix of rank one with some of full rank."""
    random = np.random.default_rng(seed)
    u, v, E = (random.standard_normal(shape) for shape in (d, d, (d, d)))
    W = np.outer(u, v) / np.linalg.norm(u) / np.linalg.norm(v) + mix * E / np.linalg.norm(E)
    W /= np.linalg.norm(W)
    y = np.where(np.arange(2 * n) % 2, 1.0, -1.0)
    X = random.standard_normal((2 * n, d, d)) + 1.5 * y[:, None, None] * W
    return Samples(X[:n], y[:n], X[n:], y[n:])


def digits(pair: tuple[int, int], n: int = N) -> Samples:
    """The first training images of two digits of MNIST, between 0 and 1, and all their tests."""
    with np.load(Path(os.environ["NEARFAR_DATA"]) / "mnist.npz") as stored:
        X, labels, n_train = stored["X"], stored["y"], int(stored["n_train"])
    rows = np.flatnonzero(np.isin(labels, pair))
    train, test = rows[rows < n_train][:n], rows[rows >= n_train]

    def some(these: NDArray[np.intp]) -> tuple[Floats, Floats]:
        side = round(np.sqrt(X.shape[1]))
        images = X[these].reshape(-1, side, side) / 255
        return images, np.where(labels[these] == pair[1], 1.0, -1.0)

    return Samples(*some(train), *some(test))


def samples(name: str) -> Samples:
    return digits(PAIRS[name]) if name in PAIRS else made()


def colour_images(n: int = 40) -> tuple[Floats, Floats]:
    """As many numbers as the thesis's pictures of tigers and leopards have: 64 x 64 x 3."""
    random = np.random.default_rng(0)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    shift = random.standard_normal((64, 64, 3))
    return random.standard_normal((n, 64, 64, 3)) + 0.3 * y[:, None, None, None] * shift, y


def flat(X: Floats) -> Floats:
    return X.reshape(len(X), -1)


# ---------------------------------------------------------------------- contenders


def error(predicted: Any, wanted: Floats) -> float:
    """In %."""
    return round(100 * float(np.mean(np.sign(predicted) != wanted)), 2)


def hinge_objective(w: Floats, b: float, X: Floats, y: Floats, C: float) -> float:
    """What an SVM minimises."""
    losses = np.maximum(0, 1 - y * (flat(X) @ np.ravel(w) + b))
    return float(0.5 * np.sum(w**2) + C * losses.sum())


def contracted(name: str) -> tuple[Floats, Floats]:
    """Samples of the step of the first mode, with the other vector of a least-squares machine."""
    from nearfar import LSSTM

    given = samples(name)
    u = LSSTM().fit(given.X, given.y).factors_[1][:, 0]
    return given.X @ (u / np.linalg.norm(u)), given.y


def mode_step(name: str) -> Prepared:
    from nearfar.solvers.support_vectors import c_svm

    Z, y = contracted(name)
    return lambda: c_svm(Z, y, np.ones(len(Z))), lambda plane: {
        "objective": hinge_objective(plane.w, plane.b, Z, y, 1)
    }


def svc_of_mode(name: str) -> Prepared:
    from sklearn.svm import SVC

    Z, y = contracted(name)
    return lambda: SVC(kernel="linear", tol=1e-5).fit(Z, y), lambda svc: {
        "objective": hinge_objective(svc.coef_[0], svc.intercept_[0], Z, y, 1)
    }


def ours(kind: str, name: str, **settings: Any) -> Prepared:
    import nearfar

    given = samples(name)

    def noted(machine: Any) -> dict[str, Any]:
        return {
            "sweeps": machine.n_iter_,
            "error": error(machine.decision_function(given.Q), given.q),
        }

    return lambda: getattr(nearfar, kind)(**settings).fit(given.X, given.y), noted


def svc(name: str, C: float = 1.0) -> Prepared:
    from sklearn.svm import SVC

    given = samples(name)
    X = flat(given.X)
    return lambda: SVC(kernel="linear", C=C).fit(X, given.y), lambda machine: {
        "error": error(machine.decision_function(flat(given.Q)), given.q)
    }


def ridge(name: str) -> Prepared:
    """Ridge on labels, by Cholesky; the penalty of ``LSSTM(gamma=1)``."""
    from sklearn.linear_model import Ridge

    given = samples(name)
    X = flat(given.X)
    return lambda: Ridge(1.0, solver="cholesky").fit(X, given.y), lambda machine: {
        "error": error(machine.predict(flat(given.Q)), given.q)
    }


def tmpm_of_colour() -> Prepared:
    from nearfar import TMPM

    X, y = colour_images()
    return lambda: TMPM(max_iter=20, tol=0).fit(X, y), lambda machine: {"sweeps": machine.n_iter_}


def mpm_of_colour() -> Prepared:
    from nearfar import MPM

    X, y = colour_images()
    rows = flat(X)
    return lambda: MPM().fit(rows, y), lambda machine: {}


def tr1da(n_components: int) -> Prepared:
    """Tensors of the shape of gait samples."""
    from nearfar import TR1DA

    random = np.random.default_rng(0)
    y = np.arange(731) % 71
    X = random.standard_normal((731, 32, 22, 10))
    X += 0.5 * random.standard_normal((71, 32, 22, 10))[y]

    def noted(found: Any) -> dict[str, Any]:
        sweeps = [int(number) for number in found.history_["sweeps"]]
        ends = np.cumsum(sweeps) - 1
        seconds = [round(found.history_["seconds"][end], 3) for end in ends]
        return {"sweeps": found.n_iter_, "of_features": {"sweeps": sweeps, "seconds": seconds}}

    return lambda: TR1DA(n_components).fit(X, y), noted


def some_digits(n: int) -> Samples:
    """The first n training images of all ten digits of MNIST, and 2,000 tests."""
    with np.load(Path(os.environ["NEARFAR_DATA"]) / "mnist.npz") as stored:
        X, labels, first = stored["X"], stored["y"], int(stored["n_train"])
    rows = np.r_[:n, first : first + 2_000]
    images = X[rows].reshape(-1, SIDE, SIDE) / 255
    return Samples(images[:n], labels[:n], images[n:], labels[rows[n:]])


WHOLE = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
STOPPED = WHOLE | {"n_impostors": 3, "validation_fraction": 0.2, "patience": 3, "refit": True}


def metric(kind: str, n: int, **settings: Any) -> Prepared:
    """A large-margin metric; errors are of three neighbours under it."""
    import nearfar

    given = some_digits(n)
    form = flat if kind == "LMNN" else np.asarray

    def noted(learner: Any) -> dict[str, Any]:
        Z, new = (flat(learner.transform(form(T))) for T in (given.X, given.Q))
        wrong = nearfar.KNNClassifier(n_neighbors=3).fit(Z, given.y).predict(new) != given.q
        return {"sweeps": learner.n_iter_, "error": round(100 * float(np.mean(wrong)), 2)}

    X = form(given.X)
    return lambda: getattr(nearfar, kind)(3, **settings).fit(X, given.y), noted


def cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for name in SETS:
        found[f"mode-step-{name}"] = Case(
            "3x SVC at no higher objective",
            {
                "c_svm": partial(mode_step, name),
                'SVC(kernel="linear", tol=1e-5)': partial(svc_of_mode, name),
            },
        )
    for name in SETS:
        for C in (1.0, 0.01):
            found[f"stm-{name}" + ("" if C == 1 else f"-C-{C:g}")] = Case(
                "1.5x SVC on the vectors",
                {
                    f"STM(C={C:g})": partial(ours, "STM", name, C=C),
                    f'SVC(C={C:g}, kernel="linear")': partial(svc, name, C),
                },
            )
    for name in SETS:
        found[f"lsstm-{name}"] = Case(
            "no slower than ridge on the vectors: 1.00",
            {
                "LSSTM()": partial(ours, "LSSTM", name),
                'Ridge(solver="cholesky")': partial(ridge, name),
            },
        )
    for name in SETS:
        found[f"tmpm-{name}"] = Case(
            "5x SVC on the vectors",
            {
                "TMPM()": partial(ours, "TMPM", name),
                'SVC(kernel="linear")': partial(svc, name),
            },
        )
    found["colour"] = Case(
        "TMPM under 0.5 s; MPM without a matrix of features by features, which has 1,208 MB",
        {
            "TMPM(max_iter=20, tol=0), 40 x 64 x 64 x 3": tmpm_of_colour,
            "MPM(), 40 x 12,288": mpm_of_colour,
        },
        memory=True,
    )
    found["tr1da"] = Case(
        "deflation in place on one copy, which has 41 MB",
        {"TR1DA(50), 731 x 32 x 22 x 10": partial(tr1da, 50)},
        memory=True,
    )
    for n in GROWTH:
        found[f"mdml-mnist-{n}"] = Case(
            "1,000 images in 2 minutes and 1 GB" if n == GROWTH[-1] else "-",
            {
                "MDML(3)": partial(metric, "MDML", n),
                "LMNN(3), vectors": partial(metric, "LMNN", n, **WHOLE),
                "LMNN(3), stopped early, vectors": partial(metric, "LMNN", n, **STOPPED),
            },
            memory=True,
        )
    return found


CASES = cases()


# ---------------------------------------------------------------------- the frame


def run(case: str, contender: int) -> dict[str, Any]:
    """CPU time, the best of three or of what 2 s hold, or of one if a run takes over 10 s."""
    warnings.simplefilter("ignore")
    work, noted = list(CASES[case].contenders.values())[contender]()
    seconds: list[float] = []
    found: dict[str, Any] = {}
    while len(seconds) < 3 or sum(seconds) < 2:
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
        found = noted(result)
        if seconds[-1] > 10:
            break
    return {"CPU s": round(min(seconds), 4)} | found


def memory(case: str, contender: int) -> dict[str, Any]:
    """The high-water mark of a first run, in a process of its own."""
    warnings.simplefilter("ignore")
    work, _ = list(CASES[case].contenders.values())[contender]()
    return {"MB": round(megabytes_beyond(work))}


def write(results: dict[str, dict[str, Any]]) -> None:
    rows = []
    for case, (target, contenders, _) in CASES.items():
        first = results.get(case, {}).get(next(iter(contenders)))
        for who in contenders:
            row = results.get(case, {}).get(who)
            if row is None or first is None:
                continue
            own = row is first
            rows.append(
                {
                    "case": case,
                    "contender": f"`{who}`",
                    "CPU s": row["CPU s"],
                    "ours is faster by": "-" if own else f"{row['CPU s'] / first['CPU s']:.2f}",
                    "objective / ours": (
                        f"{row['objective'] / first['objective']:.9f}"
                        if "objective" in row
                        else "-"
                    ),
                    "test error, %": row.get("error", "-"),
                    "sweeps": row.get("sweeps", "-"),
                    "MB beyond the data": row.get("MB", "-"),
                    "target": target if own else "-",
                }
            )
    notes = (
        "2,000 samples of 28 x 28 in float64. made: noise and a difference of classes of rank one "
        "with six tenths of a random one, 2,000 more to test. mnist-a-b: the first 2,000 training "
        "images of two digits, between 0 and 1, all their test images. Each alone in a fresh "
        "process on one thread; CPU time, the best of three or more (one where it takes over "
        "10 s); memory is the high-water mark of a first run above the loaded data, in another "
        "process. "
        "Learners as they are by default but for what is written; the mode step has C=1 and the "
        "samples contracted with a vector of LSSTM. Rows of one case that are all ours compare "
        "with the first. mdml-mnist-n: the first n training images of all ten digits, errors of "
        "three neighbours on the first 2,000 test images (plain pixels: 31.3, 24.3 and 18.2 from "
        "250, 500 and 1,000); sweeps are steps. There are fewer images than pixels, which LMNN "
        "fits exactly; stopped early it has n_impostors=3, validation_fraction=0.2, patience=3, "
        "refit=True. Made by "
        "`python benchmarks/tensor_classifiers.py --data DIR`."
    )
    write_table(RESULTS / "tensor_classifiers.md", "Classifiers of tensors", notes, rows)
    write_features(results)


def write_features(results: dict[str, dict[str, Any]]) -> None:
    """TR1DA, feature by feature."""
    row = next(iter(results.get("tr1da", {}).values()), {})
    if "of_features" not in row:
        return
    sweeps, seconds = (np.array(row["of_features"][key]) for key in ("sweeps", "seconds"))
    features = [r for r in (1, 2, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50) if r <= len(sweeps)]
    rows = [
        {
            "features": r,
            "sweeps of this one": int(sweeps[r - 1]),
            "sweeps so far": int(sweeps[:r].sum()),
            "s so far": seconds[r - 1],
            "ms a sweep so far": round(1000 * seconds[r - 1] / sweeps[:r].sum(), 1),
        }
        for r in features
    ]
    notes = (
        "`TR1DA(50)` on 731 x 32 x 22 x 10 numbers in float64, 71 classes: noise, and class means "
        "of half its deviation. Wall time on one thread since the first feature was begun, of the "
        "run in `tensor_classifiers.md` (case tr1da), which has its memory and whole time."
    )
    write_table(RESULTS / "tr1da_by_feature.md", "TR1DA by feature", notes, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="some of: " + ", ".join(CASES))
    parser.add_argument("--data", help="folder of mnist.npz; NEARFAR_DATA by default")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    options = parser.parse_args()
    if options.data:
        os.environ["NEARFAR_DATA"] = options.data
    there = (Path(os.environ.get("NEARFAR_DATA", "")) / "mnist.npz").exists()
    possible = [case for case in CASES if there or "mnist" not in case]
    wanted = options.cases.split(",") if options.cases else possible
    if unknown := set(wanted) - set(possible):
        parser.error(f"no case {sorted(unknown)}; there are {possible}")
    stored = RESULTS / "tensor_classifiers.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    for case in [] if options.table_only else wanted:
        for i, who in enumerate(CASES[case].contenders):
            row = {}
            for job in ("time", "memory") if CASES[case].memory else ("time",):
                row |= in_fresh_process(__file__, f"run {job} {case} {i}", 1)
            print(case, who, row, flush=True)
            results.setdefault(case, {})[who] = row
            stored.write_text(json.dumps(results, indent=1) + "\n")
    write(results)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("run "):  # from in_fresh_process
        _, what, name, number = sys.argv[1].split()
        print(json.dumps({"time": run, "memory": memory}[what](name, int(number))))
    else:
        main()
