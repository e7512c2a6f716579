"""What the base kernels have of a learned one, fold by fold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from nearfar.base import KernelLearner

#: Kernels that a line names, and kernels that a page shows, at most.
NAMED, SHOWN = 3, 40


def kernels_of(chain: Pipeline | None) -> dict[str, Any] | None:
    """Of a fitted chain that learns a kernel: names and shares of the base kernels, and the gap."""
    return None if chain is None else kernels_in(chain.named_steps.get("learner"))


def kernels_in(learner: Any) -> dict[str, Any] | None:
    """The same of one step."""
    # An MKLClassifier stores its kernel learner as estimator_, a method with a kernel as kernel_.
    inner = (getattr(learner, name, None) for name in ("estimator_", "kernel_"))
    learner = next((one for one in inner if isinstance(one, KernelLearner)), learner)
    if not isinstance(learner, KernelLearner) or not len(getattr(learner, "shares_", ())):
        return None
    gap = getattr(learner, "duality_gap_", None)
    return {
        "names": list(learner.kernel_names_),
        "shares": [float(f"{share:.4g}") for share in learner.shares_],
        "gap": None if gap is None else float(f"{gap:.3g}"),
    }


def over_folds(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Names as in the first fold, the shares of all folds with as many kernels, the largest gap.

    >>> folds = [{"names": ["a", "b"], "shares": [0.2, 0.8], "gap": 1e-4}] * 2
    >>> over_folds(folds)
    {'names': ['a', 'b'], 'shares': [[0.2, 0.8], [0.2, 0.8]], 'gap': 0.0001}
    """
    names = found[0]["names"]
    alike = [one for one in found if len(one["names"]) == len(names)]
    gaps = [one["gap"] for one in alike if one["gap"] is not None]
    return {
        "names": names,
        "shares": [one["shares"] for one in alike],
        "gap": max(gaps) if gaps else None,
    }


def kernels_line(label: str, found: dict[str, Any]) -> str:
    """The largest shares in words.

    >>> kernels_line("MKL", {"names": ["linear", "rbf 1"], "shares": [[0.2, 0.8]], "gap": 2e-4})
    'Kernels of MKL: rbf 1 80%, linear 20%; within 0.02% of the optimum.'
    """
    return f"Kernels of {label}: {kernel_words(found)}."


def kernel_words(found: dict[str, Any]) -> str:
    """The largest shares, and how sure they are.

    >>> kernel_words({"names": ["linear", "rbf 1"], "shares": [[0.2, 0.8]], "gap": None})
    'rbf 1 80%, linear 20%'
    """
    shares = np.mean(found["shares"], axis=0)
    order = np.argsort(-shares, kind="stable")
    largest = [i for i in order[:NAMED].tolist() if shares[i] >= 0.005]
    said = ", ".join(f"{found['names'][i]} {100 * shares[i]:.0f}%" for i in largest)
    rest = int(np.sum(shares >= 0.005)) - len(largest)
    more = f", {rest} more" * (rest > 0)
    return f"{said}{more}{gap_words(found['gap'])}"


def gap_words(gap: float | None) -> str:
    """How far from the optimum the weights are at most, as is proven.

    >>> gap_words(0.0123), gap_words(1e-9), gap_words(None)
    ('; within 1.2% of the optimum', '; at the optimum', '')
    """
    if gap is None:
        return ""
    return f"; within {100 * gap:.2g}% of the optimum" if gap > 1e-7 else "; at the optimum"
