"""Learned kernels: time and memory, against conic programs and plain products.

``python benchmarks/kernels.py`` runs everything, ``--cases margin-200,align-2000`` some of it.
Every contender is a process of its own on one thread; seconds are those of the processor, the best
of three runs (of one, for those that take over ten seconds). Rows of cases not run stay as they
were in ``results/kernels.json``, from which ``results/kernels.md`` is made.

A case is a name with a target and its contenders: functions that prepare data and return the work
to be measured, and what is to be noted of its result.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS, in_fresh_process, megabytes_beyond, resident, write_table
from contenders import SCRIPTS, environment_of, fit_once
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# The work, and what to note of what it returns.
Prepared = tuple[Callable[[], Any], Callable[[Any], dict[str, Any]]]
# The default of EasyMKL.
LAM = 0.1


class Case(NamedTuple):
    """Rows of the table: ours first, then those it is compared with."""

    target: str
    contenders: dict[str, Callable[[], Prepared]]
    n: int
    memory: bool = False
    #: Whether the memory of the whole process is meant, from rows.
    whole: bool = False
    #: What MKLpy does of it, and whether it trains its machine behind the weights.
    peer: str | None = None
    machine: bool = False


# ---------------------------------------------------------------------- data


def made(n: int, seed: int = 0) -> tuple[list[Floats], NDArray[np.intp]]:
    """Ten kernels of made classes: linear, two polynomials, seven widths about the median."""
    from sklearn.datasets import make_classification
    from sklearn.metrics.pairwise import euclidean_distances

    X, y = make_classification(
        n, 20, n_informative=6, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=seed
    )
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    squares = euclidean_distances(X, squared=True)
    median = float(np.median(squares[:: max(1, n // 500)]))
    linear = X @ X.T
    polynomials = [(1 + linear / 20) ** degree for degree in (2, 3)]
    widths = [np.exp(squares * (-(2.0**power) / median)) for power in range(-3, 4)]
    return [linear, *polynomials, *widths], y


def unit(kernels: list[Floats]) -> list[Floats]:
    return [K / np.sqrt(np.outer(K.diagonal(), K.diagonal())) for K in kernels]


def weighted(kernels: list[Floats], weights: Floats) -> Floats:
    """The weighted sum, a few rows at a time."""
    K = np.zeros_like(kernels[0])
    for start in range(0, len(K), 32):
        for weight, kernel in zip(weights, kernels, strict=True):
            K[start : start + 32] += weight * kernel[start : start + 32]
    return K


# ---------------------------------------------------------------------- contenders


def margin(n: int, C: float | None, tau: float) -> Prepared:
    from nearfar.kernels import margin_weights

    kernels, y = made(n)

    def noted(found: Any) -> dict[str, Any]:
        return {
            "value": round(found.value, 3),
            "note": f"gap {found.gap:.1e}, {len(found.history)} machines",
        }

    return partial(margin_weights, kernels, y, C=C, dual_ridge=tau), noted


def margin_conic(n: int, C: float | None, tau: float) -> Prepared:
    """The quadratically constrained program, each form by a factor."""
    import cvxpy as cp

    kernels, y = made(n)
    sign = np.where(y == 1, 1.0, -1.0)

    def work() -> float:
        alpha, t = cp.Variable(n, nonneg=True), cp.Variable()
        limits = [sign @ alpha == 0] + ([] if C is None else [alpha <= C])
        for K in kernels:
            values, V = np.linalg.eigh(K)
            good = values > 1e-10 * values[-1]
            R = np.sqrt(values[good])[:, None] * V[:, good].T * sign
            limits.append(cp.sum_squares(R @ alpha) / np.trace(K) <= t)
        gain = 2 * cp.sum(alpha) - tau * cp.sum_squares(alpha) - n * t
        problem = cp.Problem(cp.Maximize(gain), limits)
        problem.solve(solver=cp.CLARABEL)
        assert problem.status == cp.OPTIMAL
        return float(problem.value)

    return work, lambda value: {"value": round(value, 3), "note": "cvxpy with Clarabel"}


def sum_and_machine(n: int) -> Prepared:
    """One weighted sum of the kernels and one SVC on the learned one."""
    from sklearn.svm import SVC

    from nearfar.kernels import margin_weights

    kernels, y = made(n)
    weights = margin_weights(kernels, y).weights

    def work() -> Any:
        return SVC(kernel="precomputed").fit(weighted(kernels, weights), y)

    return work, lambda machine: {"note": f"{len(machine.support_)} support vectors"}


def aligned(n: int) -> Prepared:
    from nearfar.kernels import alignment_weights

    kernels, y = made(n)

    def noted(found: Any) -> dict[str, Any]:
        return {
            "value": round(found.alignment, 4),
            "note": f"smallest weight {found.weights.min():g}",
        }

    return partial(alignment_weights, kernels, y), noted


def bare_products(n: int) -> Prepared:
    kernels, _ = made(n)

    def work() -> Floats:
        return np.array([np.vdot(K, L) for i, K in enumerate(kernels) for L in kernels[i:]])

    return work, lambda products: {"note": f"{len(products)} products"}


def easy(n: int) -> Prepared:
    from nearfar.kernels import easy_mkl_weights

    kernels, y = made(n)
    kernels = unit(kernels)
    return partial(easy_mkl_weights, kernels, y), _of_weights


def easy_and_machine(n: int) -> Prepared:
    """The weights, their sum and one SVC on it."""
    from sklearn.svm import SVC

    from nearfar.kernels import easy_mkl_weights

    kernels, y = made(n)
    kernels = unit(kernels)

    def work() -> Any:
        weights = easy_mkl_weights(kernels, y)
        return SVC(kernel="precomputed").fit(weighted(kernels, weights), y)

    return work, lambda machine: {"note": f"{len(machine.support_)} support vectors"}


def easy_conic(n: int) -> Prepared:
    """The quadratic program of the hulls by a general interior point solver."""
    import cvxpy as cp

    kernels, y = made(n)
    kernels = unit(kernels)
    sign, lam = np.where(y == 1, 1.0, -1.0), LAM

    def work() -> Floats:
        G = np.mean(kernels, axis=0) * np.outer(sign, sign)
        gamma = cp.Variable(n, nonneg=True)
        form = cp.quad_form(gamma, cp.psd_wrap((1 - lam) * G + lam * np.eye(n)))
        limits = [cp.sum(gamma[sign > 0]) == 1, cp.sum(gamma[sign < 0]) == 1]
        problem = cp.Problem(cp.Minimize(form), limits)
        problem.solve(solver=cp.CLARABEL)
        assert problem.status == cp.OPTIMAL
        z = sign * gamma.value
        weights = np.array([z @ K @ z for K in kernels])
        return weights / weights.sum()

    return work, _of_weights


def _of_weights(weights: Floats) -> dict[str, Any]:
    return {"note": "weights " + " ".join(f"{w:.4f}" for w in weights)}


def idealized() -> Prepared:
    from nearfar import IdealizedMetric

    X, pairs = _pairs()

    def noted(metric: Any) -> dict[str, Any]:
        return {
            "value": float(f"{metric.objective_:.8g}"),
            "note": f"gap {metric.duality_gap_:.1e}, {metric.n_iter_} steps",
        }

    metric = IdealizedMetric(psd="none", tol=1e-9)
    return lambda: metric.fit(X, supervision=pairs), noted


def idealized_conic() -> Prepared:
    """The dual by its factor, as rows of squared differences."""
    import cvxpy as cp

    X, pairs = _pairs()

    def work() -> float:
        alike, unlike = (np.asarray(one) for one in (pairs.similar, pairs.dissimilar))
        differences = np.vstack([X[one[:, 0]] - X[one[:, 1]] for one in (alike, unlike)])
        sign = np.repeat([-1.0, 1.0], [len(alike), len(unlike)])
        upper = np.triu_indices(X.shape[1])
        scale = np.where(upper[0] == upper[1], 1.0, np.sqrt(2))
        F = sign[:, None] * scale * differences[:, upper[0]] * differences[:, upper[1]]
        squared = np.einsum("ij,ij->i", differences, differences)
        alpha = cp.Variable(len(sign), nonneg=True)
        most = np.repeat([1 / len(alike), 1 / len(unlike)], [len(alike), len(unlike)])
        gain = (sign * squared) @ alpha - cp.sum_squares(F.T @ alpha) / 2
        problem = cp.Problem(cp.Maximize(gain), [alpha <= most, cp.sum(alpha[sign > 0]) >= 0.5])
        problem.solve(solver=cp.CLARABEL)
        assert problem.status == cp.OPTIMAL
        return float(problem.value)

    return work, lambda value: {"value": float(f"{value:.8g}"), "note": "cvxpy with Clarabel"}


def _pairs() -> tuple[Floats, Any]:
    """Rows of twenty features, and 5,000 pairs of them."""
    from sklearn.datasets import make_classification

    from nearfar import Pairs

    X, y = make_classification(
        1_000, 20, n_informative=6, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=0
    )
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, Pairs.from_labels(y, n_similar=2_500, n_dissimilar=2_500, random_state=0)


def from_rows(n: int) -> Prepared:
    """The margin learner on rows: the kernels are made as they are needed."""
    from sklearn.datasets import make_classification

    from nearfar import MarginKernelLearner

    X, y = make_classification(
        n, 20, n_informative=6, n_redundant=4, class_sep=0.8, flip_y=0.05, random_state=0
    )

    def noted(learner: Any) -> dict[str, Any]:
        return {
            "value": round(learner.objective_, 3),
            "note": f"gap {learner.duality_gap_:.1e}, {learner.n_iter_} rounds",
        }

    learner = MarginKernelLearner()
    return lambda: learner.fit((X - X.mean(axis=0)) / X.std(axis=0), y), noted


CASES: dict[str, Case] = {
    f"margin-{n}": Case(
        "at least 20 times faster",
        {
            "margin_weights": partial(margin, n, 1.0, 0.0),
            "conic": partial(margin_conic, n, 1.0, 0.0),
        },
        n,
    )
    for n in (100, 200)
}
CASES |= {
    f"margin-{n}": Case(
        f"at most {most} times, gap 1e-3, 3 n² beyond the kernels",
        {"margin_weights": partial(margin, n, 1.0, 0.0), "sum + SVC": partial(sum_and_machine, n)},
        n,
        memory=True,
    )
    for n, most in ((2_000, 16), (5_000, 20))
}
CASES["squared-2000"] = Case(
    "(squared hinges)", {"margin_weights": partial(margin, 2_000, None, 1.0)}, 2_000, memory=True
)
CASES |= {
    f"align-{n}": Case(
        "at most 2.5 times",
        {"alignment_weights": partial(aligned, n), "products": partial(bare_products, n)},
        n,
        memory=True,
    )
    for n in (2_000, 5_000)
}
CASES["align-1000"] = Case(
    "at least 20 times faster than MKLpy's CKA",
    {"alignment_weights": partial(aligned, 1_000)},
    1_000,
    peer="CKA",
)
CASES |= {
    f"easy-{n}": Case(
        "at least 5 times faster than MKLpy's fit",
        {"easy_mkl_weights, SVC": partial(easy_and_machine, n)},
        n,
        peer="EasyMKL",
        machine=True,
    )
    for n in (1_000, 2_000)
}
CASES |= {
    f"easy-weights-{n}": Case(
        "(weights alone)",
        {"easy_mkl_weights": partial(easy, n), "conic": partial(easy_conic, n)},
        n,
        peer="EasyMKL",
    )
    for n in (1_000, 2_000)
}
CASES["idealised-5000"] = Case(
    "at least 8 times faster", {"IdealizedMetric": idealized, "conic": idealized_conic}, 5_000
)
CASES["rows-5000"] = Case(
    "under 1,500 MB in all",
    {"MarginKernelLearner": partial(from_rows, 5_000)},
    5_000,
    memory=True,
    whole=True,
)


# ---------------------------------------------------------------------- running


def run(case: str, number: int) -> dict[str, Any]:
    work, noted = list(CASES[case].contenders.values())[number]()
    seconds: list[float] = []
    while len(seconds) < 3 and sum(seconds) < 10:
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return {"CPU s": round(min(seconds), 3), **noted(result)}


def run_peer(case: str, python: Path) -> dict[str, Any]:
    """MKLpy on the same kernels, of unit diagonal for EasyMKL; its machine behind the weights."""
    method, machine = CASES[case].peer, CASES[case].machine
    kernels, y = made(CASES[case].n)
    settings: dict[str, Any] = {"method": method, "machine": machine}
    if method == "EasyMKL":
        kernels = unit(kernels)
        # MKLpy weighs the sum of the kernels against its ridge, we their mean.
        settings["lam"] = LAM / (LAM + (1 - LAM) / len(kernels))
    arrays = {"kernels": np.stack(kernels), "y": np.where(y == 1, 1, -1)}
    found, _ = fit_once(SCRIPTS["MKLpy"][0], python, arrays, settings, repeat=3)
    return {"CPU s": round(found["cpu"], 3), **_of_weights(np.array(found["words"]["weights"]))}


def memory(case: str, number: int) -> dict[str, Any]:
    """Started with MALLOC_MMAP_THRESHOLD_, so that what was freed before counts as free."""
    work, _ = list(CASES[case].contenders.values())[number]()
    if CASES[case].whole:
        before = resident() / 1e6
        return {"MB": round(before + megabytes_beyond(work))}
    # As multiples of one kernel in float64.
    return {"n²": round(megabytes_beyond(work) * 1e6 / (8 * CASES[case].n ** 2), 2)}


def write(results: dict[str, Any]) -> None:
    rows = []
    for case, whole in CASES.items():
        rows_of_case = results.get(case, {})
        own = next(iter(rows_of_case.values()), None)
        for who, row in rows_of_case.items():
            ratio = row["CPU s"] / own["CPU s"] if own and who != next(iter(rows_of_case)) else None
            rows.append(
                {
                    "case": case,
                    "who": who,
                    "CPU s": row["CPU s"],
                    "of ours": "" if ratio is None else f"{ratio:.3g}",
                    "memory": f"{row['MB']:,} MB" if "MB" in row else row.get("n²", ""),
                    "value": row.get("value", ""),
                    "note": row.get("note", ""),
                    "target": whole.target if ratio is None else "",
                }
            )
    notes = (
        "Ten kernels of made rows: linear, polynomials of degree 2 and 3, seven widths. Seconds of "
        'the processor on one thread, best of three; "of ours", the time of a contender over ours '
        "(its inverse is how many times theirs we take). Memory beyond the kernels, in matrices of "
        "n x n float64; from rows that of the whole process. MKLpy 0.6 gets the same kernels, at "
        "unit diagonal for EasyMKL, and our λ, translated to its sum of the kernels, so that the "
        "weights are the same. Its `fit` trains a machine (KOMD) behind the weights: beside it "
        "stand our weights, the weighted sum and scikit-learn's SVC on it (easy-1000, easy-2000). "
        "MKLpy's weights alone, without its machine, stand beside our weights alone "
        "(easy-weights-1000, easy-weights-2000, align-1000). Ours check that kernels are "
        "symmetric and positive semi-definite, MKLpy does not."
    )
    write_table(RESULTS / "kernels.md", "Learned kernels", notes, rows, "cvxpy", "clarabel")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="some of: " + ", ".join(CASES))
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    parser.add_argument("--peers", default=os.environ.get("NEARFAR_PEERS"), help="see peers/")
    options = parser.parse_args()
    python = environment_of("MKLpy", options.peers)
    wanted = options.cases.split(",") if options.cases else list(CASES)
    if unknown := set(wanted) - set(CASES):
        parser.error(f"no case {sorted(unknown)}; there are {list(CASES)}")
    stored = RESULTS / "kernels.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    for case in [] if options.table_only else wanted:
        results[case] = {}
        for i, who in enumerate(CASES[case].contenders):
            row = in_fresh_process(__file__, f"run time {case} {i}", 1)
            if CASES[case].memory and i == 0:
                os.environ["MALLOC_MMAP_THRESHOLD_"] = str(1 << 20)
                row |= in_fresh_process(__file__, f"run memory {case} {i}", 1)
                del os.environ["MALLOC_MMAP_THRESHOLD_"]
            print(case, who, row, flush=True)
            results[case][who] = row
            stored.write_text(json.dumps(results, indent=1) + "\n")
        if CASES[case].peer and python is None:
            print(case, "MKLpy is left out: no environment of it; see benchmarks/peers/README.md")
        elif CASES[case].peer:
            who = "MKLpy, fit" if CASES[case].machine else "MKLpy, weights"
            results[case][who] = run_peer(case, python)
            print(case, who, results[case][who], flush=True)
            stored.write_text(json.dumps(results, indent=1) + "\n")
    write(results)


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1].startswith("run "):  # from in_fresh_process
        _, what, name, number = sys.argv[1].split()
        print(json.dumps({"time": run, "memory": memory}[what](name, int(number))))
    else:
        main()
