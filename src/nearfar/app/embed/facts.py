"""What is known of a fitted embedding, in numbers and in words.

The page and the terminal say the same: the certificate of an unfolding, the spectrum and the
dimension it speaks for, and how well neighborhoods are kept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.base import Learner
from nearfar.evaluation.quality import (
    dissimilarity_quality,
    embedding_quality,
    rank_trustworthiness,
)
from nearfar.manifold.mvu import estimate_intrinsic_dimension
from nearfar.words import format_count, format_percent, format_small_percent

Floats = NDArray[Any]

#: Learners whose eigenvalues are variances, the largest first, and whose first coordinates do not
#: depend on how many are asked for.
NESTED = ("PCA", "ClassicalMDS", "KernelPCA", "Isomap", "LandmarkIsomap")
_UNFOLDING = ("MVU", "VariationalMVU", "LandmarkMVU")
# Gaps up to which an unfolding is as good as the best, and up to which it is near.
_SETTLED, _NEAR = 0.01, 0.1
# Neighbors that the quality is judged by, and rows up to which all are judged, and by ranks.
_NEIGHBORS = 15
_MOST_ROWS, _MOST_RANKED = 10_000, 5_000
# Eigenvalues that are kept for the page.
_MOST_VALUES = 20


# The certificate


def certificate(learner: Learner, *, stopped: bool = False) -> dict[str, Any]:
    """How far from the best an embedding can be, or why nobody knows.

    Returns
    -------
    dict
        "kind" ("settled", "near", "far" or "none"), "gap", "residual", "bound", "objective" where
        there are such, "short" (a clause) and "text" (sentences).
    """
    if not hasattr(learner, "duality_gap_"):
        return {"kind": "none", "gap": None, "residual": None, **_without_proof(learner)}
    gap = _number(learner, "duality_gap_")
    gap = 1.0 if gap is None else gap  # no bound at all
    residual = _number(learner, "primal_residual_") or 0.0
    constraints = str(getattr(learner, "constraints", "inequality"))
    least = getattr(learner, "objective", "max") == "min"
    kind = "settled" if gap <= _SETTLED else "near" if gap <= _NEAR else "far"
    slack = constraints in ("l1", "squared")
    what = "objective" if slack else "variance"
    size = f"at most {format_small_percent(max(gap, 0.0))}".replace("at most less", "less")
    short = f"{size} {'above the least' if least else 'below the best'} possible {what}"
    if not gap < 1:
        short = f"nothing proven about the best possible {what}"
    proof = {
        "settled": "Proven: no other places of these rows, in any number of dimensions, that keep "
        "the edges do better by more than that.",
        "near": "Proven, but the bound leaves room: either better places exist, or the bound is "
        "not yet as low as it could be.",
        "far": "That is too much to call the picture settled: better places may exist, or the "
        "bound is weak.",
    }[kind]
    priced = ", the variance less the price of slack" if slack else ""
    text = f"{short[0].upper()}{short[1:]}{priced}. {proof}"
    if kind != "settled":
        text += f" {_remedy(learner, stopped)}"
    return {
        "kind": kind,
        "gap": gap,
        "residual": residual,
        "bound": _number(learner, "dual_bound_"),
        "objective": _number(learner, "objective_"),
        "short": short,
        "text": f"{text} {_residual_words(residual, constraints)}",
    }


def _remedy(learner: Learner, stopped: bool) -> str:
    if stopped:
        return "The fit was stopped; let it run to its end."
    if hasattr(learner, "bound_iter"):
        return (
            "Raise bound_iter for a better bound, or take MVU, which goes on until the gap is "
            "closed."
        )
    return 'Raise max_iter, or take constraints="inequality", the most benign kind.'


def _residual_words(residual: float, constraints: str) -> str:
    size = format_small_percent(residual)
    if residual >= 1:
        return (
            f"Residual: the worst edge's squared length is {1 + residual:,.0f} times what it "
            "should be."
        )
    if constraints in ("l1", "squared"):
        return f"Residual: slack lets edges deviate, the worst squared length by {size}."
    if constraints == "equality":
        return f"Residual: the worst edge's squared length is off by {size}."
    return (
        f"Residual: when the solver ended, the worst edge's squared length was too long by {size}; "
        "then all was shrunk until none was."
    )


def _without_proof(learner: Learner) -> dict[str, str]:
    """Methods that have no bound, or need none."""
    name = type(learner).__name__
    stress = _number(learner, "stress_")
    if name == "MDS":
        short = "no certificate: the least stress is sought step by step"
        found = "" if stress is None else f" It ended at a stress of {stress:.3g}."
        return {
            "short": short,
            "text": f"MDS descends to a near minimum of its stress and cannot tell whether a lower "
            f"one exists.{found} Judge it by the quality below.",
        }
    if name == "RandomProjection":
        return {
            "short": "no certificate: the directions are drawn at random",
            "text": "A random projection optimises nothing. Judge it by the quality below.",
        }
    if not hasattr(learner, "eigenvalues_") and name != "PCA":
        return {
            "short": "no certificate",
            "text": f"{name} proves nothing about its result. Judge it by the quality below.",
        }
    text = (
        f"{name} solves an eigenproblem, and the solution is the best there is of its own "
        "objective. How true the picture is that does not say: judge it by the quality below."
    )
    share = _number(learner, "negative_share_")
    if share is not None and share > 0.01:
        text += (
            f" Its distances fit into no space: negative eigenvalues carry {format_percent(share)} "
            "of the spectrum."
        )
    variance = _number(learner, "residual_variance_")
    if variance is not None:
        text += (
            f" Distances in the picture leave {format_percent(variance)} of the variance of those "
            "along the graph unexplained."
        )
    return {"short": "no certificate: an eigenproblem, solved exactly", "text": text}


def lock_up(learner: Learner) -> str:
    """What to say where the edges let nothing move, or nothing."""
    if not getattr(learner, "locked_up_", False):
        return ""
    values = np.asarray(learner.eigenvalues_)
    q = int(learner.n_components)
    beyond = 1 - float(values[:q].sum() / max(values.sum(), np.finfo(float).tiny))
    if beyond <= 0.05:
        return (
            "Nothing was unfolded: the variance is that of the data themselves. They are flat "
            "already, and PCA draws the same picture."
        )
    return (
        "Locked up: the edges let nothing move, and the picture is that of PCA, with "
        f"{format_percent(beyond)} of the variance not shown. Lower n_neighbors, or take "
        'constraints="inequality", "l1" or "squared".'
    )


# The spectrum


def spectrum(learner: Learner, n_drawn: int) -> dict[str, Any]:
    """The eigenvalues, what they mean, and the dimension they speak for.

    Returns
    -------
    dict
        "kind" ("variance", "error" or "none"), "values" (the first 20), "shares" of all that is
        known, "drawn" (share of the drawn coordinates), "dimension", "more" (values not listed),
        "text".
    """
    name = type(learner).__name__
    found = getattr(learner, "eigenvalues_", getattr(learner, "explained_variance_", None))
    empty: dict[str, Any] = {"values": [], "shares": [], "drawn": None, "dimension": None}
    if found is None or not np.size(found):
        text = f"{name} has no eigenvalues to show."
        return {"kind": "none", "more": 0, "text": text, **empty}
    values = np.asarray(found, dtype=np.float64)
    of_variance = name in (*NESTED, *_UNFOLDING) or (
        name == "EigenEmbedding" and learner.method in ("mds", "isomap")
    )
    of_variance = of_variance or (name == "SetEmbedding" and learner.embedding == "euclidean")
    kept = {"values": values[:_MOST_VALUES].tolist(), "more": max(0, len(values) - _MOST_VALUES)}
    if not of_variance or not values.max() > 0:
        return {
            "kind": "error",
            **empty,
            **kept,
            "text": f"The eigenvalues of {name} are errors to be made small, not variances: they "
            "do not tell how many dimensions there are. Values near zero that repeat mean that "
            "other coordinates would do as well.",
        }
    positive = np.maximum(values, 0.0)
    total, whole = _total(learner, positive)
    shares = positive / total
    drawn = float(shares[:n_drawn].sum())
    dimension = None
    if len(values) > 1:
        rest = max(0.0, 1.0 - float(shares.sum()))
        dimension = estimate_intrinsic_dimension(np.append(shares, rest) if rest > 1e-9 else shares)
        # No drop can be seen behind the last that is known, unless there are no others.
        every = name in ("MVU", "PCA") and rest <= 1e-9
        dimension = dimension if dimension < len(values) or every else None
    return {
        "kind": "variance",
        **kept,
        "shares": shares[:_MOST_VALUES].tolist(),
        "drawn": drawn,
        "dimension": dimension,
        "text": _spectrum_words(len(values), drawn, n_drawn, dimension, whole),
    }


def _total(learner: Learner, positive: NDArray[np.float64]) -> tuple[float, bool]:
    """The variance of all coordinates, and whether it is known."""
    ratio = getattr(learner, "explained_variance_ratio_", None)
    if ratio is not None:
        return float(positive[0] / ratio[0]) if ratio[0] > 0 else float(positive.sum()), True
    return float(positive.sum()), type(learner).__name__ in _UNFOLDING


def _spectrum_words(
    n_values: int, drawn: float, n_drawn: int, dimension: int | None, whole: bool
) -> str:
    of = "the variance" if whole else f"what the first {n_values} eigenvalues hold"
    hold = "holds" if n_drawn == 1 else "hold"
    text = f"The {_coordinates(n_drawn)} drawn {hold} {_share(drawn)} {of}."
    if not whole and n_values <= n_drawn:
        return (
            "Only the eigenvalues of the coordinates drawn are known, which cannot tell how many "
            "dimensions there are: ask for more components."
        )
    if dimension is None:
        return f"{text} No drop stands out among {'them' if whole else f'the first {n_values}'}."
    look = f"By the largest drop of the eigenvalues the data look {dimension}-dimensional"
    if dimension > n_drawn:
        out = dimension - n_drawn
        matter = "matters" if out == 1 else "matter"
        return f"{text} {look}: the picture leaves out {_coordinates(out)} that {matter}."
    if dimension < n_drawn:
        return f"{text} {look}: the others are thin beside that."
    return f"{text} {look}, as drawn."


def _share(share: float) -> str:
    return "all of" if share > 0.9995 else f"{format_percent(share)} of"


def _coordinates(number: int) -> str:
    words = {1: "one", 2: "two", 3: "three"}
    return f"{words.get(number, number)} coordinate{'s' * (number != 1)}"


# The quality


def quality(X: Floats, Y: Floats, *, pairs: bool = False, noun: str = "row") -> dict[str, Any]:
    """How well neighborhoods are kept, each measure from 0 to 1.

    Beyond 10,000 rows a random 10,000 are judged, by the neighbors they have among themselves.
    With ``pairs``, X are the dissimilarities of all pairs; ``noun`` says what a row is.

    Returns
    -------
    dict
        "n_neighbors", "n_rows" judged, "measures" (a list of "name", "label", "value", "text"),
        "text"; "measures" is empty where there are too few rows.
    """
    n = len(X)
    if n > _MOST_ROWS:
        kept = np.sort(np.random.default_rng(0).choice(n, _MOST_ROWS, replace=False))
        X, Y = X[np.ix_(kept, kept)] if pairs else X[kept], Y[kept]
    k = min(_NEIGHBORS, (len(X) - 1) // 2)
    found: dict[str, Any] = {"n_neighbors": k, "n_rows": len(X), "measures": []}
    if k < 1 or not np.ptp(Y, axis=0).any():
        return {**found, "text": f"There are too few {noun}s, or all in one place, to judge by."}
    values = (dissimilarity_quality if pairs else embedding_quality)(X, Y, n_neighbors=k)
    chance = k / (len(X) - 1)
    if not pairs and len(X) <= _MOST_RANKED and 2 * k < len(X):
        values["trustworthiness"] = rank_trustworthiness(X, Y, n_neighbors=k)
    measures = [
        {
            "name": name,
            "label": label,
            "value": float(values[name]),
            "text": text.replace(" rows", f" {noun}s"),
        }
        for name, (label, text) in _measures(k, chance).items()
        if name in values
    ]
    kept_share = values["intersection"]
    judged = f" Judged on a random {len(X):,} of {n:,} {noun}s." if n > len(X) else ""
    text = (
        f"Of the {format_count(k, f'nearest {noun}')} of a {noun}, {format_percent(kept_share)} "
        "are among its "
        f"nearest in the picture; at random it would be {format_percent(chance)}.{judged}"
    )
    return {**found, "measures": measures, "text": text}


def _measures(k: int, chance: float) -> dict[str, tuple[str, str]]:
    return {
        "intersection": (
            "Neighbors kept",
            f"share of the {k} nearest rows that are the same in both; {chance:.2f} by chance",
        ),
        "trust": (
            "Local trust",
            "whether rows that lie together in the picture are near: 1 if lengths between "
            "neighbors in the picture are those of the data, but for one scale",
        ),
        "continuity": (
            "Local continuity",
            "whether near rows lie together: 1 if lengths between neighbors in the data are kept, "
            "but for one scale; a few torn neighbors lower it much",
        ),
        "continuity_without_stretched": (
            "... without tears",
            "the same without the 1% of pairs that are stretched most",
        ),
        "trustworthiness": (
            "Trustworthiness",
            "by ranks, as scikit-learn computes it: low if strangers come close",
        ),
    }


# The answer


def answer(
    learner: Learner,
    n_rows: int,
    n_drawn: int,
    proof: dict[str, Any],
    values: dict[str, Any],
    judged: dict[str, Any],
    stopped: bool,
    noun: str = "row",
) -> dict[str, Any]:
    """The sentence at the top: what was drawn, how much of it is seen, how good it is."""
    name = type(learner).__name__
    verb = "unfolded" if proof["gap"] is not None else "drew"
    lead = f"{name} {verb} {format_count(n_rows, noun)} in {n_drawn} dimensions"
    parts = []
    if values["drawn"] is not None and values["text"].startswith("The"):
        of = "the variance" if "of the variance" in values["text"] else "the spectrum"
        parts.append(f"they hold {_share(values['drawn'])} {of}")
    if proof["gap"] is not None:
        parts.append(proof["short"])
    if judged["measures"]:
        kept = next(m["value"] for m in judged["measures"] if m["name"] == "intersection")
        parts.append(f"{format_percent(kept)} of neighbors kept")
    locked = lock_up(learner)
    if stopped:
        verdict, word = "inconclusive", "Stopped early"
    elif locked.startswith("Locked"):
        verdict, word = "inconclusive", "Locked up"
    else:
        verdict, word = {
            "settled": ("use", "Certified"),
            "near": ("keep", "Certified, with a gap"),
            "far": ("inconclusive", "Large gap"),
            "none": ("keep", "No certificate"),
        }[proof["kind"]]
    rest = f": {'; '.join(parts)}." if parts else "."
    return {"verdict": verdict, "word": word, "lead": lead, "text": f"{lead}{rest}"}


def _number(learner: Learner, name: str) -> float | None:
    value = getattr(learner, name, None)
    if value is None or isinstance(value, bool):
        return None
    number = float(value)
    return number if math.isfinite(number) else None
