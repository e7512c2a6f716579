"""``python -m nearfar.demo``: what learning a distance gains, on data that come with scikit-learn.

Prints the 3-NN error of each learner under repeated, stratified, shuffled cross-validation.
"""

from __future__ import annotations

import sys
import warnings
from time import perf_counter

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from nearfar.base import Learner
from nearfar.discriminant.lda import LDA
from nearfar.evaluation.cross_validation import cross_validate
from nearfar.mahalanobis.euclidean import Euclidean
from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.rca import RCA

DATA = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}


def learners() -> dict[str, Learner]:
    """The methods shown, by name."""
    return {"Euclidean": Euclidean(), "LDA": LDA(), "RCA": RCA(), "LMNN": LMNN()}


def main() -> None:
    """Print the table, with progress on the way."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    began = perf_counter()
    methods = learners()
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    print("Error of 3 nearest neighbours in percent (5-fold, shuffled, seed 0; raw features)")
    print(f"{'':>14}" + "".join(f"{name:>16}" for name in methods))
    for number, (data, load) in enumerate(DATA.items(), start=1):
        X, y = load(return_X_y=True)
        cells = []
        for name, learner in methods.items():
            _progress(f"[{number}/{len(DATA)}] {data} {X.shape[0]}×{X.shape[1]}: {name} …")
            error = 100 * (1 - cross_validate(learner, X, y, cv=folds)["test_score"])
            spread = error.std(ddof=1) / np.sqrt(len(error))
            cells.append(f"{error.mean():.1f} ± {spread:.1f}")
        _progress("")
        print(f"{data:>14}" + "".join(f"{cell:>16}" for cell in cells))
    print(f"± is the standard error over the folds. Done in {perf_counter() - began:.0f} s.")


def _progress(text: str) -> None:
    """One line of the terminal, overwritten; plain lines where the output goes elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
