"""Learned kernels beside single ones, their mean, k-NN, LMNN and a tuned SVM: errors and times.

``python benchmarks/reproduce/kernel_tables.py --data DIR`` runs what is missing and writes the page
of the documentation; ``--parts``, ``--sets`` and ``--methods`` some of it. Each result is one line
of a file beside the page, so that a run can be broken off and goes on later. A line has a word of
what the method answers on a small problem: ``--renew`` runs those anew whose word has changed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from frame import Renewal, Results, arguments, section, table, word, write_page
from local_problems import LETTERS, Split, scaled, sets, splits, stored
from local_tables import cell, difference
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    StratifiedShuffleSplit,
    cross_val_score,
)
from sklearn.svm import SVC

from nearfar import (
    LMNN,
    AlignmentKernelLearner,
    AverageKernelLearner,
    EasyMKL,
    IdealizedMetric,
    KNNClassifier,
    MarginKernelLearner,
)
from nearfar.evaluation.inference import adjust_p_values

PARTS = ("labels", "half")
INNER_FOLDS, N_HALVES = 3, 5
COSTS = (1.0, 10.0, 100.0)
# Features up to which the idealised metric is run: its program has a variable for each two.
FEW_FEATURES = 20
REFERENCE = "SVC, tuned"


class Method(NamedTuple):
    """A classifier, or a learner of a kernel that may depend on C, behind which comes an SVM."""

    make: Callable[[float], Any]
    kernel: bool = True
    by_C: bool = False


METHODS: dict[str, Method] = {
    "5-NN": Method(lambda C: KNNClassifier(None, 5), kernel=False),
    "LMNN, 3-NN": Method(lambda C: KNNClassifier(LMNN(), 3), kernel=False),
    "idealised, 3-NN": Method(lambda C: KNNClassifier(IdealizedMetric(), 3), kernel=False),
    REFERENCE: Method(
        lambda C: GridSearchCV(
            SVC(),
            {"C": list(COSTS), "gamma": ["scale", 0.3, 0.03, 0.003]},
            cv=StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=0),
        ),
        kernel=False,
    ),
    "linear": Method(lambda C: AverageKernelLearner(["linear"])),
    "poly 2": Method(lambda C: AverageKernelLearner([("poly", {"degree": 2})])),
    "rbf": Method(lambda C: AverageKernelLearner(["rbf"])),
    "mean": Method(lambda C: AverageKernelLearner()),
    "margin": Method(lambda C: MarginKernelLearner(C=C), by_C=True),
    "margin, squared": Method(lambda C: MarginKernelLearner(C=None, dual_ridge=1 / C), by_C=True),
    "margin, ℓ2": Method(lambda C: MarginKernelLearner(C=C, norm=2.0), by_C=True),
    "alignment, plain": Method(lambda C: AlignmentKernelLearner(centered=False)),
    "alignment": Method(lambda C: AlignmentKernelLearner()),
    "EasyMKL": Method(lambda C: EasyMKL()),
}
# Those that are run with half of the labels hidden, with the rows of these and without.
HALF = ("5-NN", REFERENCE, "mean", "margin", "alignment", "EasyMKL")


# ---------------------------------------------------------------------- runs


def run(split: Split, method: Method) -> dict[str, Any]:
    """Labels found, seconds to fit, and of a learner of a kernel the C chosen, weights and gap."""
    X, y, Q, _ = split
    began = time.process_time()
    if not method.kernel:
        classifier = method.make(1.0).fit(X, y)
        spent = time.process_time() - began
        return {"found": classifier.predict(Q), "fit": spent}
    folds = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=0)
    best: tuple[float, float, Any, Any] | None = None
    learner = None
    for C in COSTS:
        if learner is None or method.by_C:
            learner = method.make(C).fit(X, y)
            K = learner.kernel(X)
        score = float(cross_val_score(SVC(C=C, kernel="precomputed"), K, y, cv=folds).mean())
        if best is None or score > best[0]:
            best = score, C, learner, SVC(C=C, kernel="precomputed").fit(K, y)
    assert best is not None
    _, C, learner, machine = best
    spent = time.process_time() - began
    return {
        "found": machine.predict(learner.kernel(Q, X)),
        "fit": spent,
        "C": C,
        "shares": [round(float(share), 3) for share in learner.shares_],
        "gap": float(getattr(learner, "duality_gap_", 0.0)),
    }


def run_half(split: Split, method: Method, with_rows: bool) -> dict[str, Any]:
    """The same where the rows to be tested are at hand without labels; C is 1."""
    X, y, Q, _ = split
    if not method.kernel:
        return run(split, method)
    began = time.process_time()
    learner = method.make(1.0)
    if with_rows:
        found = learner.fit(X, y, unlabeled=Q).transduction_
    else:
        learner.fit(X, y)
        machine = SVC(kernel="precomputed").fit(learner.kernel(X), y)
        found = machine.predict(learner.kernel(Q, X))
    return {"found": found, "fit": time.process_time() - began}


def run_of(split: Split, part: str, method: str) -> dict[str, Any]:
    """A method in a part."""
    of = METHODS[method.removesuffix(" + rows")]
    return run(split, of) if part == "labels" else run_half(split, of, "rows" in method)


def word_of(part: str, method: str) -> str:
    """The word of what a method answers."""
    return word(lambda X, y, Q: run_of((X, y, Q, y), part, method)["found"])


def halves(data: Path, name: str) -> Iterator[Split]:
    """Half of the labels of a set hidden."""
    X, y = stored(data, name)
    for a, b in StratifiedShuffleSplit(N_HALVES, test_size=0.5, random_state=0).split(X, y):
        yield scaled((X[a], y[a], X[b], y[b]))


def run_all(results: Results, data: Path, part: str, name: str, method: str) -> None:
    """All splits of a set by a method, one line."""
    found: list[dict[str, Any]] = []
    n, p, classes, shares = 0, 0, 0, []
    every = halves(data, name) if part == "half" else splits(data, "plain", name, "tuned")
    for split in every:
        if method.startswith("idealised") and split[0].shape[1] > FEW_FEATURES:
            return
        one = run_of(split, part, method)
        found.append(one | {"error": 100 * float(np.mean(one["found"] != split[3]))})
        n, p = len(split[0]) + len(split[2]), split[0].shape[1]
        classes = len(np.unique(np.r_[split[1], split[3]]))
        shares.append(len(split[2]) / len(split[0]))
    row: dict[str, Any] = {"part": part, "set": name, "method": method}
    row |= {"n": n, "p": p, "classes": classes, "test_share": round(float(np.mean(shares)), 4)}
    row |= {"errors": [round(one["error"], 3) for one in found]}
    row |= {"s_fit": round(float(np.mean([one["fit"] for one in found])), 4)}
    if "shares" in found[0]:
        row["C"] = [one["C"] for one in found]
        row["shares"] = np.mean([one["shares"] for one in found], axis=0).round(3).tolist()
        row["gap"] = round(max(one["gap"] for one in found), 6)
    results.add(row | {"word": word_of(part, method)})


def names_of(part: str) -> list[str]:
    """What is run in a part."""
    if part == "labels":
        return list(METHODS)
    return [
        one
        for name in HALF
        for one in ([name, f"{name} + rows"] if METHODS[name].kernel else [name])
    ]


# ---------------------------------------------------------------------- the page


class Latest:
    """Lines of results by what they are of."""

    def __init__(self, results: Results) -> None:
        # Of several of one thing the last stands.
        self.rows = {(row["part"], row["set"], row["method"]): row for row in results.rows}
        sizes = {row["set"]: row["n"] for row in results.rows}
        self.sets = sorted(sizes, key=lambda name: (sizes[name], name))

    def get(self, part: str, name: str, method: str) -> dict[str, Any] | None:
        return self.rows.get((part, name, method))


def judged(latest: Latest, part: str, name: str, reference: str) -> dict[str, tuple[str, bool]]:
    """For each method "better", "worse" or "", and whether it stands after Holm's correction."""
    base = latest.get(part, name, reference)
    rows = {m: latest.get(part, name, m) for m in names_of(part) if m != reference}
    found = {m: difference(row, base) for m, row in rows.items() if row and base}
    p = [min(1.0, 2 * min(e.compute_p_value(), 1 - e.compute_p_value())) for e in found.values()]
    words = {}
    for (method, estimate), sure in zip(found.items(), adjust_p_values(p) <= 0.05, strict=True):
        low, high = estimate.interval()
        words[method] = ("better" if high < 0 else "worse" if low > 0 else "", bool(sure))
    return words


def errors(latest: Latest, part: str) -> list[str]:
    """Errors and spreads; bold is clearly better than the reference."""
    body = []
    for name in latest.sets:
        words = judged(latest, part, name, REFERENCE)
        rows = {method: latest.get(part, name, method) for method in names_of(part)}
        any_row = next((row for row in rows.values() if row), None)
        if any_row:
            size = f"{any_row['n']} × {any_row['p']}, {any_row['classes']}"
            cells = [cell(row, words.get(m, ("",))[0]) for m, row in rows.items()]
            body.append([f"{name.replace('_', ' ')} ({size})", *cells])
    return table(["", *names_of(part)], body) if body else ["Not run.", ""]


def tally(latest: Latest, part: str) -> list[str]:
    """On how many sets better and worse than each reference, and the mean difference."""
    references = [REFERENCE, "mean"]
    judgements = {
        reference: {name: judged(latest, part, name, reference) for name in latest.sets}
        for reference in references
    }
    body = []
    for method in names_of(part):
        cells = []
        for reference, verdicts in judgements.items():
            names = [name for name, words in verdicts.items() if method in words]
            words = [verdicts[name][method] for name in names]
            text = ", ".join(
                f"{sum(w[0] == word for w in words)} ({words.count((word, True))})"
                for word in ("better", "worse")
            )
            gaps = [
                np.mean(latest.rows[part, name, method]["errors"])
                - np.mean(latest.rows[part, name, reference]["errors"])
                for name in names
            ]
            cells.append(f"{text} of {len(names)}; {np.mean(gaps):+.1f}" if names else "-")
        rows = [latest.get(part, name, method) for name in latest.sets]
        mean = [np.mean(row["errors"]) for row in rows if row]
        seconds = [row["s_fit"] for row in rows if row]
        if mean:
            body.append(
                [method, f"{np.mean(mean):.1f} ({len(mean)})", *cells, f"{max(seconds):.2g}"]
            )
    head = ["", "mean error (sets)", *(f"beside {one}" for one in references), "longest fit, s"]
    return table(head, body) if body else ["Not run.", ""]


KERNELS = ("linear", "poly 2", "poly 3", *(f"rbf ×{g:g}" for g in 2.0 ** np.arange(-3, 4)))


def weights(latest: Latest) -> list[str]:
    """Mean shares of the kernels in the trace, over all sets."""
    body = []
    for method in names_of("labels"):
        rows = [latest.get("labels", name, method) for name in latest.sets]
        shares = [
            row["shares"] for row in rows if row and len(row.get("shares", ())) == len(KERNELS)
        ]
        if shares:
            gap = max(row["gap"] for row in rows if row)
            body.append([method, *(f"{s:.0%}" for s in np.mean(shares, axis=0)), f"{gap:.1g}"])
    return table(["", *KERNELS, "largest gap"], body) if body else ["Not run.", ""]


INTRODUCTION = f"""
Sums of ten kernels (linear, polynomials of degree 2 and 3, rbf at seven widths about the median)
with learned weights, each behind it a support vector machine, beside single kernels, k-NN, LMNN,
the idealised metric, and a tuned rbf machine. The survey that the methods were written from has no
experiments of its own; this page is what we measured, methods that lose included.

* *Sets* are those of the UCI repository with at most 2,500 rows, and {LETTERS:,} rows of letter, in
  five folds (drawn twice up to 250 rows). Nominal columns are used as their codes; missing values
  are medians of the training rows; all features are divided by their deviation.
* *Kernels*: C is 1, 10 or 100, chosen by {INNER_FOLDS} folds of the training rows on the kernel
  that was learned from all of them; the margin learners learn one for each C. "margin" has
  hinges and weights of sum 1, "margin, squared" squared hinges with C as their weight, "margin, ℓ2"
  weights of norm 2. "linear", "poly 2" and "rbf" (at the median) are single kernels.
* *{REFERENCE}*: C in {COSTS}, gamma "scale", 0.3, 0.03 or 0.003, by {INNER_FOLDS} folds. The others
  are as they come: 5-NN, 3-NN behind LMNN and behind the idealised metric, which is run on sets of
  at most {FEW_FEATURES} features.
* *Half of the labels hidden*: {N_HALVES} draws of half the rows with labels, the others are to be
  labelled; C is 1. "+ rows" knows these rows when it learns, which changes traces, norms, medians
  and means, and no more.
* Errors are in %, with the standard deviation over folds. **Bold** is clearly better than
  {REFERENCE}, *italic* clearly worse: the 95 % interval of the paired differences, by the corrected
  test that ``compare`` uses for folds, is off zero. In brackets how many stand after Holm's
  correction for the methods of one set.

Written by ``benchmarks/reproduce/kernel_tables.py``; results beside the page.
"""


def missing(latest: Latest) -> str:
    """What was not run, in a sentence."""
    lacking: dict[str, list[str]] = {}
    for part, said in zip(PARTS, ("", " with half of the labels"), strict=True):
        for name in latest.sets:
            some = [m for m in names_of(part) if not latest.get(part, name, m)]
            if few := [method for method in some if not method.startswith("idealised")]:
                who = "all" if len(few) == len(names_of(part)) else ", ".join(few)
                lacking.setdefault(who, []).append(f"{name.replace('_', ' ')}{said}")
    if not lacking:
        return "All methods were run on all sets, but for the idealised metric."
    parts = (f"{who} on {' and '.join(names)}" for who, names in lacking.items())
    return f"What was not run, for its time, is a dash: {'; '.join(parts)}."


def page(results: Results) -> list[str]:
    latest = Latest(results)
    lines = [*INTRODUCTION.strip().splitlines(), "", missing(latest), ""]
    lines += section("Summary") + tally(latest, "labels")
    lines += section("Errors") + errors(latest, "labels")
    lines += section("What the kernels have of the sum") + [
        "Mean over sets of each kernel's share of the trace, and the largest gap left between the",
        "objective and its proven bound.",
        "",
        *weights(latest),
    ]
    lines += section("Half of the labels hidden, summary") + tally(latest, "half")
    lines += section("Half of the labels hidden") + errors(latest, "half")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known: Mapping[str, Any] = {"parts": PARTS, "methods": METHODS, "sets": ()}
    for name in known:
        parser.add_argument(f"--{name}", help="some, divided by ;")
    options = arguments(parser, "kernel-tables.rst", data=True, renew=True)
    results = Results(options.out.with_suffix(".jsonl"))

    def asked(name: str, every: Any) -> list[str]:
        given = getattr(options, name)
        return given.split(";") if given else list(every)

    renewal = Renewal(options.renew, word_of)
    if not options.page_only:
        data = Path(options.data)
        for name in asked("sets", sets(data)):
            for part in asked("parts", PARTS):
                for method in names_of(part):
                    wanted = asked("methods", METHODS)
                    row = Latest(results).get(part, name, method)
                    if method.removesuffix(" + rows") not in wanted:
                        continue
                    if not renewal.stands(row, part, method):
                        run_all(results, data, part, name, method)
    write_page(options.out, "Learned kernels, beside single ones", page(results))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
