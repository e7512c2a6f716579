"""Tables 5.2 and 5.3 of the PARDA thesis again: spectral clustering in the augmented space.

``python benchmarks/reproduce/clustering_tables_5.py --data DIR`` runs what is missing and writes
the page of the documentation; ``--sets iris,wine``, ``--neighbors 5,6,7`` and ``--scales raw`` some
of it. Each result is one line of a file beside the page, so that a run can be broken off and goes
on later. The numbers of the thesis are in ``THESIS`` and ``THESIS_DEVIATIONS``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from frame import Results, arguments, section, table, write_page
from numpy.typing import NDArray
from parda_table_4_2 import iris, stored, uci
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances
from sklearn.metrics.cluster import contingency_matrix

from nearfar import AugmentedSpectralClustering, Gaussians, LaplacianEmbedding
from nearfar.distributions import dissimilarity, metric_report
from nearfar.summaries.gaussians import AUTO_LOCAL_RIDGE

Matrix = NDArray[np.floating]
Labels = NDArray[np.integer]

MEASURES = {
    "K_J": "jeffreys",
    "K_B": "bhattacharyya",
    "K_H": "hellinger",
    "K_BR": "bhattacharyya_riemann",
    "K_JR": "jeffreys_riemann",
}
PRINTED = ("K_J", "K_B", "K_H", "K_BR")
FORMS = {"smoothed": "5.2", "raw": "5.3"}
# Value of ``center`` for each form.
CENTERS = {"smoothed": "mean", "raw": "point"}
# Features and ridge.
SCALES = {
    "raw": "raw features",
    "scaled": "scaled features",
    "small": "raw features, small ridge",
}
QUANTILES = (0.1, 0.5, 0.9)
# K_B has no width in equation 5.10: a width of one, beside those by quantiles.
WIDTHS: dict[str, tuple[dict[str, float], ...]] = {
    name: (*({"quantile": q} for q in QUANTILES), *([{"width": 1.0}] if name == "K_B" else []))
    for name in ("K_E", *MEASURES)
}
NEIGHBORS = (5, 8, 12, 16)
# That of the thesis; and the small one, as a share of the median local variance.
RIDGE, SMALL_RIDGE = 1.0, 0.01
N_STARTS = 30
# What is taken where nothing is chosen by labels.
FIXED_NEIGHBORS, FIXED_QUANTILE = 8, 0.5
NEAR = 2.0
SAME = {
    "raw": "as the thesis",
    "scaled": "as the thesis if scaled",
    "small": "as the thesis with a small ridge",
}
BETWEEN = "between raw and scaled"

# Accuracies in percent: k-means, K_E; table 5.2: K_J, K_B, K_H, K_BR; the same of table 5.3.
THESIS = """
    balance       51.1 59.3  54.5 58.7 57.5 63.4  60.7 60.5 60.2 64.3
    bupa          55.1 56.8  57.6 57.3 58.2 62.3  57.6 56.2 57.5 57.3
    german        67.6 70.0  71.5 71.4 62.7 70.0  71.4 57.7 59.2 70.0
    glass         49.7 49.7  52.8 53.2 51.6 53.8  53.3 51.5 48.5 49.7
    house_votes   87.8 87.8  82.1 81.2 83.2 87.5  82.0 82.9 85.0 88.0
    ionosphere    70.9 70.3  84.9 85.1 75.7 75.1  83.4 71.5 71.2 72.0
    iris          79.8 88.7  90.0 90.0 90.6 96.6  82.0 82.3 82.6 82.6
    lymphography  47.0 42.9  59.9 60.8 53.1 55.5  59.1 52.7 51.5 60.5
    monks1        62.6 66.5  68.7 68.7 69.6 68.3  66.5 66.5 66.5 66.5
    monks2        51.4 50.7  57.1 57.0 57.4 63.2  55.0 57.4 55.2 65.2
    monks3        63.9 65.1  69.4 69.8 69.9 80.1  69.3 64.2 63.5 69.6
    new_thyroid   76.9 75.2  87.5 93.0 92.4 94.4  78.1 87.1 55.0 88.3
    segment       50.7 63.3  22.1 43.1 49.9 65.5  24.0 56.0 59.5 66.9
    sonar         54.7 55.7  57.2 57.0 58.6 61.9  58.6 57.5 57.2 61.0
    wdbc          85.4 90.8  65.5 71.7 75.2 89.4  63.7 82.2 73.6 87.3
    wine          66.4 70.2  90.4 90.4 91.5 95.2  91.0 89.3 89.3 95.5
    yeast         34.2 32.2  32.4 32.7 32.7 37.0  33.9 34.0 33.5 36.0
"""
THESIS_DEVIATIONS = """
    balance       3.2  2.6   2.7  1.2  2.41 0.5   0.5  1.9  1.3  4.9
    bupa          0.1  0.1   0.01 0.01 0.01 0.2   0.05 0.1  0.1  0.07
    german        0.1  0.1   0.02 0.02 0.1  0.05  0.01 0.1  0.1  0.04
    glass         3.7  3.8   2.1  1.5  1.1  0.8   1.7  1.8  4.9  3.9
    house_votes   0.1  0.2   0.02 0.2  0.01 0.1   0.02 0.3  1.3  0.01
    ionosphere    1.2  0.1   0.1  0.03 0.02 0.4   0.02 0.05 0.05 0.01
    iris          15.7 6.6   0.1  0.01 0.01 0.1   0.05 0.3  0.02 0.06
    lymphography  6.5  4.8   1.1  1.1  3.5  0.7   1.1  0.05 0.8  4.2
    monks1        6.3  0.02  0.06 0.09 0.04 0.01  0.01 0.05 0.01 0.01
    monks2        1.7  0.07  0.08 0.02 0.1  1.4   0.07 0.2  2.4  0.4
    monks3        6.4  0.1   0.2  0.32 0.09 0.1   0.03 1.3  0.02 0.03
    new_thyroid   9.4  0.4   5.5  0.01 0.2  0.05  2.1  4.4  0.2  0.02
    segment       8.3  4.1   1.1  2.9  3.0  3.3   1.4  3.5  2.3  7.5
    sonar         0.8  0.1   0.02 0.2  0.04 0.2   0.02 0.7  0.02 0.02
    wdbc          0.1  0.1   0.1  0.05 0.01 0.07  0.03 8.5  0.02 0.02
    wine          5.9  0.2   0.07 0.03 0.09 0.2   0.01 0.03 0.04 0.04
    yeast         1.8  0.9   1.6  1.6  0.97 1.1   1.5  1.4  1.5  1.4
"""
COLUMNS = (("", "k-means"), ("", "K_E"), *((form, name) for form in FORMS for name in PRINTED))


def thesis(name: str, form: str, kernel: str) -> tuple[float, float]:
    """Accuracy and deviation."""
    at = COLUMNS.index(("" if kernel in ("k-means", "K_E") else form, kernel))
    rows = (
        next(row[1:] for row in map(str.split, text.strip().splitlines()) if row[0] == name)
        for text in (THESIS, THESIS_DEVIATIONS)
    )
    accuracy, deviation = (float(row[at]) for row in rows)
    return accuracy, deviation


# ---------------------------------------------------------------------- the data


def without(name: str, *columns: int) -> Callable[[Path], tuple[Matrix, Labels]]:
    def load(data: Path) -> tuple[Matrix, Labels]:
        X, y = stored(data / "uci" / f"{name}.npz")
        return np.delete(X, columns, axis=1), y

    return load


def votes(data: Path) -> tuple[Matrix, Labels]:
    """No is 0, yes is 1, and no vote halfway."""
    X, y = stored(data / "uci" / "house_votes.npz")
    return np.where(np.isnan(X), 0.5, X), y


class Set(NamedTuple):
    title: str
    load: Callable[[Path], tuple[Matrix, Labels]]
    remark: str = ""
    comparable: bool = True


SETS = {
    "balance": Set(
        "Balance",
        uci("balance"),
        "All points of a grid: neighbours are tied, and four eigenvalues are nearly equal where "
        "three are kept.",
    ),
    "bupa": Set("Bupa", uci("bupa")),
    "german": Set(
        "German",
        uci("german"),
        "The 20 attributes, nominal ones as codes; the thesis has another number of rows and of "
        "attributes, so that the numbers cannot be compared.",
        comparable=False,
    ),
    "glass": Set("Glass", uci("glass")),
    "house_votes": Set(
        "House votes",
        votes,
        "No is 0, yes is 1, a vote that is missing halfway; the thesis does not say.",
    ),
    "ionosphere": Set("Ionosphere", without("ionosphere", 1), "Without the constant column."),
    "iris": Set("Iris", iris, "With the two misprints of the public file."),
    "lymphography": Set("Lymphography", uci("lymphography"), "Nominal attributes as codes."),
    "monks1": Set("Monks-1", uci("monks1")),
    "monks2": Set("Monks-2", uci("monks2")),
    "monks3": Set("Monks-3", uci("monks3")),
    "new_thyroid": Set("New thyroid", uci("new_thyroid")),
    "segment": Set(
        "Segment",
        without("segment", 2, 3, 4),
        "16 attributes as in the thesis: without the constant one and the two that are nearly so.",
    ),
    "sonar": Set("Sonar", uci("sonar")),
    "wdbc": Set("WDBC", uci("wdbc")),
    "wine": Set("Wine", uci("wine")),
    "yeast": Set(
        "Yeast",
        without("yeast", 4, 5),
        "6 attributes as in the thesis: without the two of few values, erl and pox.",
    ),
}


@lru_cache(maxsize=1)
def loaded(name: str, data: Path) -> tuple[Matrix, Labels]:
    return SETS[name].load(data)


def scaled(X: Matrix, scale: str) -> Matrix:
    spread = X.std(axis=0)
    return X / np.where(spread > 0, spread, 1) if scale == "scaled" else X


# ---------------------------------------------------------------------- clustering


def accuracy(y: Labels, found: Labels) -> float:
    """In percent, clusters matched to classes as well as can be (the Hungarian score)."""
    counts = contingency_matrix(y, found)
    return 100 * float(counts[linear_sum_assignment(-counts)].sum() / len(y))


def over_starts(Y: Matrix, y: Labels) -> list[float]:
    """Over runs of k-means from random rows: mean, deviation, and that of least distortion."""
    k = len(np.unique(y))
    runs = [
        KMeans(k, init="random", n_init=1, random_state=start).fit(Y) for start in range(N_STARTS)
    ]
    found = [accuracy(y, run.labels_) for run in runs]
    tightest = found[int(np.argmin([run.inertia_ for run in runs]))]
    return [round(float(value), 2) for value in (np.mean(found), np.std(found), tightest)]


def clustered(D: Matrix, y: Labels, kernel: str) -> list[list[float] | None]:
    """For each width: the embedding is fixed, k-means starts anew."""
    found: list[list[float] | None] = []
    for width in WIDTHS[kernel]:
        embedding = LaplacianEmbedding(
            len(np.unique(y)), metric="precomputed", normalize=True, **width
        )
        try:
            Y = embedding.fit(D).embedding_
        except ValueError:  # the quantile is zero: so many points are the same
            found.append(None)
            continue
        found.append(over_starts(Y, y))
    return found


def baselines(X: Matrix, y: Labels) -> dict[str, Any]:
    """k-means, spectral clustering, and what one gets with no choice at all."""
    k = len(np.unique(y))
    ours = AugmentedSpectralClustering(k, standardize=True).fit(X)
    return {
        "k-means": over_starts(X, y),
        "K_E": clustered(pairwise_distances(X), y, "K_E"),
        "defaults": round(accuracy(y, ours.labels_), 2),
    }


def ridge_of(X: Matrix, form: str, m: int, scale: str) -> float:
    if scale != "small":
        return RIDGE
    added = Gaussians.from_neighborhoods(X, m, "auto", CENTERS[form]).added_ridge
    return SMALL_RIDGE * added / AUTO_LOCAL_RIDGE


def augmented(X: Matrix, y: Labels, form: str, m: int, scale: str) -> dict[str, Any]:
    """All kernels on the Gaussians of the neighbourhoods."""
    began = time.process_time()
    gaussians = Gaussians.from_neighborhoods(X, m, ridge_of(X, form, m, scale), CENTERS[form])
    matrices = dissimilarity(gaussians, metric=list(MEASURES.values()))
    row: dict[str, Any] = {"seconds": round(time.process_time() - began, 2)}
    row |= {kernel: clustered(matrices[of], y, kernel) for kernel, of in MEASURES.items()}
    if m == FIXED_NEIGHBORS:
        report = metric_report(matrices["bhattacharyya_riemann"])
        row["negative_mass"] = round(float(report.negative_share), 4)
        row["violations"] = round(float(report.triangle_violations), 6)
    return row


def run(name: str, place: Path, options: argparse.Namespace, results: Results) -> None:
    X, y = loaded(name, place)
    majority = round(100 * float(np.unique(y, return_counts=True)[1].max() / len(y)), 2)
    shape = {"n": len(y), "p": X.shape[1], "classes": len(np.unique(y)), "majority": majority}
    for scale in options.scales.split(","):
        about = {"set": name, "scale": scale}
        if scale != "small" and not results.select(**about, form=""):
            results.add({**about, "form": "", **shape, **baselines(scaled(X, scale), y)})
        for m in map(int, options.neighbors.split(",")):
            for form in FORMS:
                here = {**about, "form": form, "m": m}
                if not results.select(**here):
                    results.add({**here, **augmented(scaled(X, scale), y, form, m, scale)})


# ---------------------------------------------------------------------- the page


class Best(NamedTuple):
    accuracy: float
    deviation: float
    tightest: float
    m: int | None
    width: dict[str, float] | None

    def __str__(self) -> str:
        chosen = [] if self.m is None else [f"m {self.m}"]
        if self.width is not None:
            quantile = self.width.get("quantile")
            chosen.append("width 1" if quantile is None else f"q {quantile:g}")
        found = f"{self.accuracy:.1f} ({self.deviation:.1f}), {self.tightest:.1f}"
        return "; ".join([found, ", ".join(chosen)] if chosen else [found])


def candidates(results: Results, name: str, scale: str, form: str, kernel: str) -> list[Best]:
    """What was found at each number of neighbours and each width."""
    if kernel in ("k-means", "K_E"):
        scale, form = "raw" if scale == "small" else scale, ""
    if kernel == "k-means":
        return [
            Best(*row["k-means"], None, None)
            for row in results.select(set=name, scale=scale, form=form)
        ]
    rows = results.select(set=name, scale=scale, form=form)
    return [
        Best(*found, row.get("m"), width)
        for row in rows
        for width, found in zip(WIDTHS[kernel], row[kernel], strict=True)
        if found is not None
    ]


def best(found: list[Best]) -> Best | None:
    return max(found, key=lambda one: one.accuracy, default=None)


def fixed(found: list[Best]) -> Best | None:
    """Without a look at the labels."""
    for one in found:
        by_quantile = one.width is None or one.width.get("quantile") == FIXED_QUANTILE
        if by_quantile and one.m in (None, FIXED_NEIGHBORS):
            return one
    return None


def word(found: list[Best], theirs: float) -> str:
    """Whether the best mean over starts, the best run of least distortion, or what lies between."""
    if not found:
        return "-"
    ends = [max(one.accuracy for one in found), max(one.tightest for one in found)]
    if min(ends) - NEAR <= theirs <= max(ends) + NEAR:
        return "same"
    return "higher" if theirs < min(ends) else "lower"


def judged(results: Results, name: str, form: str, kernel: str) -> str:
    """By raw features, which are those of the thesis' k-means; else by the others."""
    if not SETS[name].comparable:
        return "-"
    theirs = thesis(name, form, kernel)[0]
    words = {
        scale: word(candidates(results, name, scale, form, kernel), theirs) for scale in SCALES
    }
    if words["raw"] == "lower" and words["scaled"] == "higher":
        words["raw"] = BETWEEN
    return next((SAME[scale] for scale in SCALES if words[scale] == "same"), words["raw"])


def details(name: str, results: Results) -> list[str]:
    case, first = SETS[name], results.select(set=name, form="")[0]
    lines = section(case.title)
    tried = sorted({row["m"] for row in results.select(set=name) if row["form"]})
    lines += [
        f"{first['n']:,} rows, {first['p']} features, {first['classes']} classes, the largest "
        f"{first['majority']:.1f} %; m of {', '.join(map(str, tried))}.",
    ]
    lines += [case.remark, ""] if case.remark else [""]
    body = []
    for form, kernel in (*COLUMNS, *((form, "K_JR") for form in FORMS)):
        theirs = "-"
        if kernel != "K_JR":
            theirs = "{:.1f} ({:.1f})".format(*thesis(name, form, kernel))
        cells = []
        for scale in SCALES:
            found = candidates(results, name, scale, form, kernel)
            cells += ["-" if one is None else str(one) for one in (best(found), fixed(found))]
        label = f"{kernel}, {FORMS[form]}" if form else kernel
        said = judged(results, name, form, kernel) if kernel != "K_JR" else "-"
        body.append((label, theirs, *cells, said))
    return lines + table(("", "thesis", *KINDS, "verdict"), body)


def overview(results: Results, names: list[str], form: str) -> list[str]:
    """One of the tables: ours at its best with each kind of features and ridge, and the thesis."""
    kernels = ("k-means", "K_E", *PRINTED)
    body = []
    for name in names:
        cells = [SETS[name].title]
        for kernel in kernels:
            found = [best(candidates(results, name, scale, form, kernel)) for scale in SCALES]
            ours = " / ".join("-" if one is None else f"{one.accuracy:.1f}" for one in found)
            cells.append(f"{ours} ({thesis(name, form, kernel)[0]:.1f})")
        body.append(cells)
    return table(("", *kernels), body)


# The columns of ours.
KINDS = [f"{scale}: {how}" for scale in SCALES for how in ("best", "fixed")]


def shown(values: list[float]) -> str:
    return f"{np.mean(values):.1f}" if values else "-"


def means(results: Results, names: list[str]) -> list[str]:
    """Means over sets, chosen by labels as the thesis did, and not."""
    body = []
    for form, kernel in (*COLUMNS, *((form, "K_JR") for form in FORMS)):
        theirs = "-"
        if kernel != "K_JR":
            theirs = shown([thesis(name, form, kernel)[0] for name in names])
        cells = []
        for scale in SCALES:
            every = [candidates(results, name, scale, form, kernel) for name in names]
            for choose in (best, fixed):
                chosen = [choose(found) for found in every]
                cells.append(shown([one.accuracy for one in chosen if one is not None]))
        body.append((f"{kernel}, {FORMS[form]}" if form else kernel, theirs, *cells))
    defaults = [results.select(set=name, form="")[0]["defaults"] for name in names]
    body.append(("nearfar's defaults", "-", "-", "-", "-", shown(defaults), "-", "-"))
    return table(("", "thesis", *KINDS), body)


def tally(results: Results, names: list[str]) -> list[str]:
    """How many cells of each column came out."""
    words = (*SAME.values(), BETWEEN, "higher", "lower")
    body = []
    for form, kernel in COLUMNS:
        said = [judged(results, name, form, kernel) for name in names]
        label = f"{kernel}, {FORMS[form]}" if form else kernel
        body.append((label, *(str(said.count(one)) for one in words)))
    return table(("", *words), body)


def claims(results: Results, names: list[str]) -> list[str]:
    """How often the kernel of the thesis is best, by kind of features and of choice."""
    body = []
    for form, number in FORMS.items():
        theirs = [
            [thesis(name, form, kernel)[0] for kernel in ("k-means", "K_E", *PRINTED)]
            for name in names
        ]
        won = sum(row[-1] >= max(row) for row in theirs)
        body.append((f"{number}, thesis", f"{won} of {len(names)}", "-", "-", "-"))
        for scale, kind in SCALES.items():
            for choose, how in ((best, "best"), (fixed, "fixed")):
                found = {
                    kernel: [
                        choose(candidates(results, name, scale, form, kernel)) for name in names
                    ]
                    for kernel in ("k-means", "K_E", *PRINTED, "K_JR")
                }
                rows = [
                    {kernel: of[at].accuracy for kernel, of in found.items() if of[at] is not None}
                    for at in range(len(names))
                ]
                whole = [row for row in rows if len(row) == len(found)]
                if not whole:
                    continue
                six = ("k-means", "K_E", *PRINTED)
                won = sum(row["K_BR"] >= max(row[kernel] for kernel in six) for row in whole)
                beats = sum(row["K_BR"] > row["K_E"] + NEAR for row in whole)
                loses = sum(row["K_BR"] < row["K_E"] - NEAR for row in whole)
                apart = float(np.mean([abs(row["K_BR"] - row["K_JR"]) for row in whole]))
                of = len(whole)
                body.append(
                    (
                        f"{number}, {kind}, {how}",
                        f"{won} of {of}",
                        f"{beats} of {of}",
                        f"{loses} of {of}",
                        f"{apart:.1f}",
                    )
                )
    head = (
        "table",
        "K_BR best of the six",
        f"K_BR above K_E by {NEAR:g}",
        f"below by {NEAR:g}",
        "K_BR and K_JR apart by",
    )
    return table(head, body)


def geometry(results: Results, names: list[str]) -> list[str]:
    """How far d_BR is from a metric, and from one that embeds."""
    body = []
    for name in names:
        cells = []
        for scale in SCALES:
            for form in FORMS:
                rows = results.select(set=name, scale=scale, form=form, m=FIXED_NEIGHBORS)
                cells.append(
                    f"{100 * rows[0]['violations']:.2g} / {100 * rows[0]['negative_mass']:.1f}"
                    if rows
                    else "-"
                )
        body.append((SETS[name].title, *cells))
    head = [f"{kind}, {number}" for kind in SCALES.values() for number in FORMS.values()]
    return table(("", *head), body)


INTRODUCTION = f"""
K. T. Abou-Moustafa's *Metric Learning Revisited* (2011), the thesis, clusters in its tables 5.2 and
5.3 sets of the UCI repository: each point becomes the Gaussian of its neighbourhood (the augmented
space), and spectral clustering runs on kernels exp(-d/σ) of dissimilarities d between them. This
page is these tables made again with nearfar.

* Accuracies in percent, clusters matched to classes as well as can be; as many clusters as
  classes. Mean (and deviation) over {N_STARTS} runs of k-means, each from random rows, on one and
  the same embedding; after the comma the accuracy of the run of least distortion.
* Table 5.2 has the smoothed Gaussians (mean and covariance of a point and its m neighbours), table
  5.3 the raw ones (the point, and the covariance of its neighbours about it). A ridge of 1, as the
  thesis says, but for the columns "small". K_E is the exponential of Euclidean distances between
  points.
* The thesis lets m range from 5 to 16, takes the width σ "by quantile", and does not say which it
  took, nor how; nor whether features were scaled. So there are six columns. **Best** is the best
  over the m that were tried and the quantiles 0.1, 0.5 and 0.9 (for K_B also the width 1 of
  equation 5.10), chosen *by the labels*, as the thesis presumably did, and said after the number.
  **Fixed** is m = {FIXED_NEIGHBORS} and the median, chosen by nothing. **Raw** has the features as
  they are, **scaled** has them divided by their deviations; baselines get the same scaling.
  **Small** has raw features and, against the text of the thesis, a ridge of {SMALL_RIDGE:g} of the
  median local variance.
* K_JR is d_JR, of which the thesis prints no numbers but says that they are close to those of K_BR.
* The verdict is of the best: "as the thesis" if its number is within {NEAR:g} points of the mean,
  of the run of least distortion or of what lies between, with raw features; "as the thesis if
  scaled", or "with a small ridge", if so only; "between raw and scaled" if raw features stay below
  it and scaled ones above; else "higher" or "lower" with raw ones. The deviations of the thesis
  are those over starts of k-means and say nothing of choices or of other samples.
* "nearfar's defaults" is :class:`~nearfar.AugmentedSpectralClustering` with nothing but
  ``standardize=True``: ridge "auto", the best of ten starts.

Made by ``python benchmarks/reproduce/clustering_tables_5.py --data DIR``.
"""


def page(results: Results) -> list[str]:
    names = [
        name
        for name in SETS
        if all(results.select(set=name, scale="raw", form=form) for form in FORMS)
    ]
    lines = [*INTRODUCTION.strip().splitlines(), ""]
    lines += section("How many cells come out") + tally(results, names)
    lines += section("Means over sets")
    lines += ["Of each column over the sets that were run; see the tables below for which.", ""]
    lines += means(results, names)
    lines += section("What the thesis claims") + claims(results, names)
    lines += section("Is d_BR a metric?")
    lines += [
        f"Ordered triples that break the triangle inequality / negative eigenvalues of the "
        f"embedding, in percent, with m = {FIXED_NEIGHBORS}.",
        "",
    ]
    lines += geometry(results, names)
    for form, number in FORMS.items():
        lines += section(f"Table {number} at a glance")
        lines += [
            "The best with raw / scaled features / a small ridge; the thesis in brackets.",
            "",
        ]
        lines += overview(results, names, form)
    for name in names:
        lines += details(name, results)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SETS), help="some of: " + ", ".join(SETS))
    parser.add_argument("--scales", default=",".join(SCALES), help="one of these")
    parser.add_argument("--neighbors", default=",".join(map(str, NEIGHBORS)), help="the m to try")
    options = arguments(parser, "clustering-tables-5.rst", data=True)
    for name, known in (("sets", SETS), ("scales", SCALES)):
        if unknown := set(getattr(options, name).split(",")) - set(known):
            parser.error(f"--{name}: no {sorted(unknown)}; there are {list(known)}")
    results = Results(options.out.with_suffix(".jsonl"))
    for name in [] if options.page_only else options.sets.split(","):
        run(name, Path(options.data), options, results)
    write_page(options.out, "Tables 5.2 and 5.3 of the PARDA thesis, again", page(results))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
