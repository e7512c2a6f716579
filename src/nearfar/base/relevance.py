"""Relevance of features in a metric, and the sentences that describe it and a neighbor vote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.voter import vote_shares
from nearfar.words import join_names

#: Fraction of the metric that the features covered by the sentence must carry together.
HALF = 0.5
#: Maximum number of features that the sentence names.
NAMED = 3
#: Relevances that differ by less than this are treated as equal, because rounding depends on the
#: order of summation.
SHARES_EQUAL = 1e-9


def relevance_of(metric: NDArray[np.float64], deviations: Vector) -> Matrix:
    """Return the relevance of each feature: its fraction of the diagonal of S M S.

    Parameters
    ----------
    metric : ndarray of shape (q, p, p) or (q, p)
        Metrics M, or their diagonals.
    deviations : ndarray of shape (p,)
        Standard deviations of the training rows, the diagonal of S.

    Returns
    -------
    ndarray of shape (q, p)
        Relevances; each row sums to one. They are uniform where the diagonal is zero.
    """
    diagonal = metric if metric.ndim == 2 else np.einsum("ijj->ij", metric)
    costs = np.maximum(diagonal, 0.0) * deviations**2
    largest = costs.max(axis=1, keepdims=True)
    costs = np.where(largest > 0, costs / np.where(largest > 0, largest, 1.0), 1.0)
    return np.asarray(costs / costs.sum(axis=1, keepdims=True))


def names_of_features(estimator: Any, n_features: int) -> list[str]:
    """Return the feature names seen in ``fit``, or x0, x1, ... if there were none."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(n_features)] if names is None else [str(name) for name in names]


def leading_features(shares: Vector) -> Indices:
    """Return the smallest set of features that carries at least half, and ties with the last."""
    order = descending(shares)
    carried = np.cumsum(shares[order])
    last = int(np.searchsorted(carried, HALF - SHARES_EQUAL))
    level = shares[order[min(last, len(order) - 1)]]
    return order[shares[order] >= level - SHARES_EQUAL]


def named_features(shares: Vector) -> Indices:
    """Return the features that the sentence names, which are none if all features lead."""
    leading = leading_features(shares)
    return leading[:0] if len(leading) == len(shares) > NAMED else leading[:NAMED]


def descending(shares: Vector) -> Indices:
    """Return feature indices in descending order of relevance; ties keep their order."""
    # Round first, so that the order of ties does not depend on the processor.
    return np.asarray(np.argsort(-np.round(shares, 12), kind="stable"), dtype=np.intp)


def share_text(share: float) -> str:
    """Format a fraction as a percentage; 0% and 100% appear only for exact values.

    >>> share_text(0.714), share_text(0.997), share_text(1.0), share_text(0.004), share_text(0.0)
    ('71%', 'over 99%', '100%', 'under 1%', '0%')
    """
    rounded = round(100 * share)
    if rounded >= 100 and share < 1 - SHARES_EQUAL:
        return "over 99%"
    if rounded <= 0 and share > SHARES_EQUAL:
        return "under 1%"
    return f"{rounded}%"


# ---------------------------------------------------------------------- sentences


def vote_words(codes: Indices, winner: int, n_classes: int, ties: str) -> str:
    """Describe how the class ``winner`` won the vote of ``codes``, nearest neighbor first."""
    k, own = len(codes), codes == winner
    if k == 1:
        return "by its nearest neighbor"
    tied = n_tied(codes, n_classes)
    if not tied:
        return f"by {own.sum()} of {k}"
    if ties == "first":
        return f"by {own.sum()} of {k}, the first of {tied} tied labels"
    left = n_deciding(codes, n_classes, ties)
    if left == 1:
        return f"by its nearest neighbor (the nearest {k} are tied)"
    return f"by {own[:left].sum()} of the nearest {left} (all {k} are tied)"


def n_deciding(codes: Indices, n_classes: int, ties: str) -> int:
    """Return the number of neighbors that decide: fewer than k if a tie reduces k."""
    left = len(codes)
    while ties == "shrink" and n_tied(codes[:left], n_classes):
        left -= 1
    return left


def n_tied(codes: Indices, n_classes: int) -> int:
    """Return the number of classes tied for the most votes, or 0 if there is a single winner."""
    votes = vote_shares(codes[None], n_classes, "first")[0]
    leaders = int((votes == votes.max()).sum())
    return leaders if leaders > 1 else 0


def metric_words(
    shares: Vector, names: Sequence[str], overall: Vector | None, one_metric: bool
) -> str:
    """Describe the relevant features, and compare with the ``overall`` relevance if known."""
    p = len(names)
    where = "" if one_metric else " here"
    if p == 1:
        return f"{names[0]} is the only feature"
    if shares.max() - shares.min() <= SHARES_EQUAL:
        contrast = "" if one_metric or overall is None else _contrast(overall, names)
        return f"all {p} features count equally{where}{contrast}"
    leading = leading_features(shares)
    if len(leading) == p > NAMED:
        most = share_text(shares.max())
        return f"all {p} features contribute to the metric{where}, each at most {most}"
    share = share_text(shares[leading].sum())
    text = f"{_carrying(leading, names)} {share} of the metric{where}"
    if one_metric:
        return f"{text}, which is the same for all rows"
    if overall is None:
        return text
    over_all = share_text(overall[leading].sum())
    return f"{text}, {'as' if over_all == share else f'against {over_all}'} over all rows"


def _contrast(overall: Vector, names: Sequence[str]) -> str:
    """Describe the overall relevance, for rows where all features count equally."""
    if np.ptp(overall) <= SHARES_EQUAL:
        return ", as over all rows"
    leading = leading_features(overall)
    return f"; over all rows {_carrying(leading, names)} {share_text(overall[leading].sum())}"


def _carrying(leading: Indices, names: Sequence[str]) -> str:
    """Return feature names and the verb; names that contain a separator are quoted."""
    all_names = [names[j] for j in leading]
    shown = all_names[:NAMED]
    if any("," in name or " and " in name or not name.strip() for name in shown):
        shown = [f"'{name}'" for name in shown]
    more = len(all_names) - len(shown)
    text = join_names([*shown, *([f"{more:,} more"] if more else [])], quoted=False)
    return f"{text} {'carries' if len(leading) == 1 else 'carry'}"
