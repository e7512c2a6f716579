"""Tables 2.11 and 2.12 of Tao's thesis again: subspaces of handwritten digits.

``python benchmarks/reproduce/tao_usps.py --data DIR`` runs what is missing and writes the page of
the documentation; ``--methods LDA,MODA`` some of it. Each result is one line of a file beside the
page, so that a run can be broken off and goes on later. The numbers of the thesis are in
``THESIS``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from frame import Results, arguments, counted, section, table, verdict, write_page
from numpy.typing import NDArray

from nearfar import (
    APAC,
    HDA,
    HLDA,
    LDA,
    MGMKLD,
    MODA,
    ODA,
    PCA,
    FractionalStepLDA,
    KernelDA,
    KernelMGMKLD,
    KNNClassifier,
    MultimodalKernelMGMKLD,
    MultimodalMGMKLD,
    WeightedLDA,
)

N_COMPONENTS = (3, 5, 7, 9, 15, 20)
SQUARE = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 0.0}
# Clusters of a class for MODA, whose number the thesis does not give.
N_CLUSTERS = 3
# Training rows that span the directions of the kernel methods.
N_LANDMARKS = 2000
# How each method is made for q components, and the most there can be.
LINEAR: dict[str, tuple[Any, int]] = {
    "LDA": (LDA, 9),
    "aPAC": (APAC, 9),
    "HDA": (HDA, 9),
    "WLDA": (WeightedLDA, 9),
    "FS-LDA": (FractionalStepLDA, 9),
    "HLDA": (HLDA, 20),
    "ODA": (ODA, 20),
    "MODA": (lambda q: MODA(q, n_clusters=N_CLUSTERS), 20),
    "MGMKLD(0)": (lambda q: MGMKLD(q, equality_weight=0), 20),
    "MGMKLD(2c)": (lambda q: MGMKLD(q, equality_weight=20), 20),
    "M-MGMKLD(2c)": (lambda q: MultimodalMGMKLD(q, equality_weight=20), 20),
}
KERNEL: dict[str, Any] = {
    "KDA": lambda q: KernelDA(q, n_landmarks=N_LANDMARKS, **SQUARE),
    "KMGMKLD(2c)": lambda q: KernelMGMKLD(
        n_landmarks=N_LANDMARKS, estimator=MGMKLD(q, equality_weight=20), **SQUARE
    ),
    "M-KMGMKLD(2c)": lambda q: MultimodalKernelMGMKLD(
        n_landmarks=N_LANDMARKS, estimator=MultimodalMGMKLD(q, equality_weight=20), **SQUARE
    ),
}
# Errors of the nearest neighbour, for 3, 5, 7, 9, 15 and 20 components; kernels have 9.
THESIS = {
    "LDA": (0.3827, 0.1629, 0.1186, 0.1096),
    "aPAC": (0.3144, 0.1679, 0.2141, 0.1106),
    "HDA": (0.3518, 0.2516, 0.1988, 0.1734),
    "WLDA": (0.4310, 0.2342, 0.1415, 0.1096),
    "FS-LDA": (0.3338, 0.1794, 0.1430, 0.1131),
    "HLDA": (0.3518, 0.2347, 0.1779, 0.1281, 0.0947, 0.0827),
    "ODA": (0.3983, 0.2617, 0.1636, 0.1162, 0.1060, 0.0970),
    "MODA": (0.3950, 0.2850, 0.1576, 0.1032, 0.1027, 0.0937),
    "MGMKLD(0)": (0.2875, 0.1574, 0.1116, 0.0987, 0.0598, 0.0583),
    "MGMKLD(2c)": (0.2720, 0.1375, 0.1105, 0.0867, 0.0578, 0.0562),
    "M-MGMKLD(2c)": (0.3179, 0.1414, 0.1106, 0.0822, 0.0569, 0.0553),
    "KDA": (0.0951,),
    "KMGMKLD(2c)": (0.0794,),
    "M-KMGMKLD(2c)": (0.0632,),
}


def thesis(method: str, q: int) -> float:
    at = 0 if method in KERNEL else N_COMPONENTS.index(q)
    return THESIS[method][at]


@lru_cache(maxsize=2)
def digits(path: Path, reduced: bool) -> tuple[NDArray[Any], ...]:
    """Training and test rows of the usual division; as 99 % of the training rows' variance."""
    with np.load(path / "usps.npz") as stored:
        X, y, n = stored["X"].astype(float), stored["y"].astype(int), int(stored["n_train"])
    X, X_test = X[:n], X[n:]
    if reduced:
        pca = PCA(0.99).fit(X)
        X, X_test = pca.transform(X), pca.transform(X_test)
    return X, y[:n], X_test, y[n:]


def one(data: Path, method: str, q: int) -> dict[str, Any]:
    linear = method in LINEAR
    X, y, X_test, y_test = digits(data, linear)
    learner = (LINEAR[method][0] if linear else KERNEL[method])(q)
    began = time.process_time()
    Z = learner.fit(X, y).transform(X)
    seconds = time.process_time() - began
    knn = KNNClassifier(n_neighbors=1).fit(Z, y)
    row = {"method": method, "q": q, "n_test": len(y_test), "n_features": X.shape[1]}
    inner = getattr(learner, "estimator_", learner)
    if hasattr(inner, "n_clusters_"):
        row["clusters"] = inner.n_clusters_.tolist()
    if hasattr(inner, "shrinkage_"):
        row["shrinkage"] = float(inner.shrinkage_)
    if hasattr(learner, "n_directions_"):
        row["directions"] = int(learner.n_directions_)
    error = 1 - knn.score(learner.transform(X_test), y_test)
    return row | {"seconds": round(seconds, 3), "error": round(error, 6)}


# The page


def in_full(results: Results, methods: Any) -> list[str]:
    body = []
    for method in methods:
        for row in sorted(results.select(method=method), key=lambda row: row["q"]):
            theirs, ours, n = thesis(method, row["q"]), row["error"], row["n_test"]
            # Both rules judge the same test rows, yet are as good as independent.
            spread = counted((ours + theirs) / 2, n)
            word = verdict(ours, theirs, np.sqrt(2) * spread)
            remarks = []
            if row.get("shrinkage"):
                remarks.append(f"shrinkage {row['shrinkage']:g}")
            if "clusters" in row:
                remarks.append("clusters " + " ".join(map(str, row["clusters"])))
            if "directions" in row:
                remarks.append(f"{row['directions']} directions")
            numbers = (f"{theirs:.4f}", f"{ours:.4f}", f"{spread:.4f}", f"{row['seconds']:.1f}")
            body.append((method, str(row["q"]), *numbers, word, "; ".join(remarks)))
    head = ("method", "q", "thesis", "ours", "spread", "seconds", "verdict", "")
    return table(head, body)


def at_a_glance(results: Results) -> list[str]:
    body = []
    for method in LINEAR:
        cells = [method]
        for q in N_COMPONENTS:
            rows = results.select(method=method, q=q)
            cells.append(f"{rows[0]['error']:.4f} ({thesis(method, q):.4f})" if rows else "-")
        body.append(cells)
    return table(("", *(f"q = {q}" for q in N_COMPONENTS)), body)


INTRODUCTION = """
Section 2.8 of D. Tao's *Discriminative Linear and Multilinear Subspace Methods* (2006), the thesis,
projects the 256 pixels of the USPS digits onto 3 to 20 dimensions and counts the errors of the
nearest neighbour: 7,291 rows to train, 2,007 to test. This page is these tables made again with
nearfar.

* The thesis says nothing of preprocessing, regularisation, restarts or numbers of clusters. Pixels
  at the border hardly vary within a class: without regularisation every method with class
  covariances has an unbounded objective. Here the linear methods see the principal components that
  carry 99 % of the variance of the training rows, and mix class covariances with the pooled one
  where they are singular ("shrinkage"); the learners' defaults do the rest.
* Maps are scaled to unit pooled within-class covariance.
* MODA has 3 clusters a class. M-MGMKLD chooses them by Figueiredo and Jain's criterion, in ten
  principal components of each class, as in all dimensions no component would survive.
* The kernel is the square of the inner product. Kernel methods see all pixels, with directions
  spanned by 2,000 training rows.
* "Spread" is the standard error of counted errors; the verdict allows for two standard errors of
  the difference of two such counts. "Seconds" are CPU time of one fit.

Made by ``python benchmarks/reproduce/tao_usps.py --data DIR``.
"""


def page(results: Results) -> list[str]:
    lines = [*INTRODUCTION.strip().splitlines(), ""]
    lines += section("At a glance") + ["The thesis in brackets.", ""] + at_a_glance(results)
    lines += section("Linear methods, table 2.11") + in_full(results, LINEAR)
    if any(row["method"] in KERNEL for row in results.rows):
        lines += section("Kernel methods, table 2.12") + in_full(results, KERNEL)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [*LINEAR, *KERNEL]
    parser.add_argument("--methods", default=",".join(known), help="some of: " + ", ".join(known))
    options = arguments(parser, "tao-usps.rst", data=True)
    if unknown := set(options.methods.split(",")) - set(known):
        parser.error(f"no method {sorted(unknown)}; there are {known}")
    results = Results(options.out.with_suffix(".jsonl"))
    for method in [] if options.page_only else options.methods.split(","):
        dimensions = (9,) if method in KERNEL else N_COMPONENTS
        for q in dimensions:
            if q <= LINEAR.get(method, (None, 9))[1] and not results.select(method=method, q=q):
                results.add(one(Path(options.data), method, q))
    write_page(options.out, "Tables 2.11 and 2.12 of Tao's thesis, again", page(results))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
