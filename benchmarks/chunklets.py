"""RCA, KernelRCA and LFDA: time against one covariance, against a refit, and memory.

``python benchmarks/chunklets.py`` runs every case in a process of its own on one thread and writes
``results/chunklets.md``; ``python benchmarks/chunklets.py CASE`` runs one. Data are generated with
seed 0. Seconds are the best of three.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from common import RESULTS, best_of_three, in_fresh_process, megabytes_beyond, write_table


def rca(n_chunklets: int) -> dict[str, Any]:
    """100,000×100, all rows in chunklets and in no order, against ``np.cov``."""
    from nearfar import RCA

    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 100))
    chunklets = rng.permutation(np.arange(len(X)) % n_chunklets)
    RCA().fit(X[:2000], supervision=chunklets[:2000] % 20)
    reference = best_of_three(lambda: np.cov(X, rowvar=False, bias=True))
    seconds = best_of_three(lambda: RCA().fit(X, supervision=chunklets))
    return _row(seconds, reference, "np.cov", seconds / reference, "at most 2")


def kernel_rca(whole: bool) -> dict[str, Any]:
    """A chunklet of 10 onto 2,000 points, against a fit, or against its factor alone."""
    from nearfar import KernelRCA

    X = np.random.default_rng(0).normal(size=(2010, 20))
    groups = np.arange(len(X)) // 10
    before = KernelRCA(gamma=0.02, ridge=0.1).fit(X[:-10], supervision=groups[:-10])
    copies = iter([copy.copy(before) for _ in range(3)])
    seconds = best_of_three(lambda: next(copies).partial_fit(X[-10:], supervision=groups[-10:]))
    # The first batch computes the factor and no coordinates.
    again = KernelRCA(gamma=0.02, ridge=0.1).fit if whole else _first_batch
    reference = best_of_three(lambda: again(X, supervision=groups))
    called = "a fit" if whole else "the factor anew"
    return _row(seconds, reference, called, reference / seconds, "at least 10")


def _first_batch(X: Any, supervision: Any) -> Any:
    from nearfar import KernelRCA

    return KernelRCA(gamma=0.02, ridge=0.1).partial_fit(X, supervision=supervision)


def lfda() -> dict[str, Any]:
    """20,000×50 in 5 classes: seconds, and memory beyond the data."""
    from sklearn.datasets import make_classification

    from nearfar import LFDA

    X, y = make_classification(
        20_000, 50, n_informative=20, n_redundant=10, n_classes=5, random_state=0
    )
    LFDA().fit(X[:500], y[:500])
    seconds = best_of_three(lambda: LFDA().fit(X, y))
    row = _row(seconds, 10.0, "the target", 10.0 / seconds, "at least 1")
    return row | {"MB beyond the data": round(megabytes_beyond(lambda: LFDA().fit(X, y)))}


def _row(
    seconds: float, reference: float, called: str, ratio: float, target: str
) -> dict[str, Any]:
    return {
        "seconds": f"{seconds:.3g}",
        "reference": called,
        "seconds of it": f"{reference:.3g}",
        "ratio": f"{ratio:.2f}",
        "must be": target,
    }


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "RCA, 100 chunklets of 1,000": lambda: rca(100),
    "RCA, 1,000 chunklets of 100": lambda: rca(1000),
    "RCA, 10,000 chunklets of 10": lambda: rca(10_000),
    "KernelRCA.partial_fit": lambda: kernel_rca(True),
    "KernelRCA.partial_fit, factor": lambda: kernel_rca(False),
    "LFDA 20,000×50": lfda,
}


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(CASES[sys.argv[1]]()))
        return
    rows = [{"case": case} | in_fresh_process(__file__, case, 1) for case in CASES]
    write_table(RESULTS / "chunklets.md", "Chunklets", "One thread; best of three.", rows)


if __name__ == "__main__":
    main()
