"""How much of a metric each feature carries, and the words for it and for a vote of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.voter import vote_shares
from nearfar.words import listed

#: The sentence names the features that carry so much of a metric, and so many of them by name.
HALF = 0.5
NAMED = 3
#: Relevances nearer than this are equal: they come from sums in any order.
SHARES_EQUAL = 1e-9


def relevance_of(metric: NDArray[np.float64], deviations: Vector) -> Matrix:
    """Shares of the diagonals of S M S, for (q, p, p) metrics; uniform for one that is zero.

    Parameters
    ----------
    metric : ndarray of shape (q, p, p) or (q, p)
        Metrics, or their diagonals.
    deviations : ndarray of shape (p,)
        Those of the training rows.

    Returns
    -------
    ndarray of shape (q, p)
    """
    diagonal = metric if metric.ndim == 2 else np.einsum("ijj->ij", metric)
    costs = np.maximum(diagonal, 0.0) * deviations**2
    largest = costs.max(axis=1, keepdims=True)
    costs = np.where(largest > 0, costs / np.where(largest > 0, largest, 1.0), 1.0)
    return np.asarray(costs / costs.sum(axis=1, keepdims=True))


def names_of_features(estimator: Any, n_features: int) -> list[str]:
    """The names of the columns that an estimator was fitted on, or x0, x1, ... if they had none."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(n_features)] if names is None else [str(name) for name in names]


def leading_features(shares: Vector) -> Indices:
    """The fewest features that carry at least half, and those equal to the last of them."""
    order = descending(shares)
    carried = np.cumsum(shares[order])
    last = int(np.searchsorted(carried, HALF - SHARES_EQUAL))
    level = shares[order[min(last, len(order) - 1)]]
    return order[shares[order] >= level - SHARES_EQUAL]


def named_features(shares: Vector) -> Indices:
    """Those of them that the sentence names: none, where all features share a metric."""
    leading = leading_features(shares)
    return leading[:0] if len(leading) == len(shares) > NAMED else leading[:NAMED]


def descending(shares: Vector) -> Indices:
    """Features by their shares, equal ones in their own order."""
    # Equal up to rounding is equal: which processor summed them must not order them.
    return np.asarray(np.argsort(-np.round(shares, 12), kind="stable"), dtype=np.intp)


def share_text(share: float) -> str:
    """A share of a whole in percent, which is 0 or 100 only if it is nothing or all.

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
    """How a vote went that the class ``winner`` has won, of voters' classes, nearest first."""
    k, own = len(codes), codes == winner
    if k == 1:
        return "by its nearest neighbour"
    tied = n_tied(codes, n_classes)
    if not tied:
        return f"by {own.sum()} of {k}"
    if ties == "first":
        return f"by {own.sum()} of {k}, the first of {tied} labels that are tied"
    left = n_deciding(codes, n_classes, ties)
    if left == 1:
        return f"by its nearest neighbour (the nearest {k} are tied)"
    return f"by {own[:left].sum()} of the nearest {left} (all {k} are tied)"


def n_deciding(codes: Indices, n_classes: int, ties: str) -> int:
    """How many voters decide: fewer than all, where a tie makes k smaller."""
    left = len(codes)
    while ties == "shrink" and n_tied(codes[:left], n_classes):
        left -= 1
    return left


def n_tied(codes: Indices, n_classes: int) -> int:
    """How many classes share the lead, 0 if one has it alone."""
    votes = vote_shares(codes[None], n_classes, "first")[0]
    leaders = int((votes == votes.max()).sum())
    return leaders if leaders > 1 else 0


def metric_words(
    shares: Vector, names: Sequence[str], overall: Vector | None, one_metric: bool
) -> str:
    """What carries a metric, of ``shares`` of features, held against those over all rows."""
    p = len(names)
    where = "" if one_metric else " here"
    if p == 1:
        return f"{names[0]} is the only feature"
    if shares.max() - shares.min() <= SHARES_EQUAL:
        contrast = "" if one_metric or overall is None else _contrast(overall, names)
        return f"all {p} features count alike{where}{contrast}"
    leading = leading_features(shares)
    if len(leading) == p > NAMED:
        most = share_text(shares.max())
        return f"all {p} features share the metric{where}, none with more than {most} of it"
    share = share_text(shares[leading].sum())
    text = f"{_carrying(leading, names)} {share} of the metric{where}"
    if one_metric:
        return f"{text}, which is the same for all rows"
    if overall is None:
        return text
    over_all = share_text(overall[leading].sum())
    return f"{text}, {'as' if over_all == share else f'against {over_all}'} over all rows"


def _contrast(overall: Vector, names: Sequence[str]) -> str:
    """What follows where all count alike here."""
    if np.ptp(overall) <= SHARES_EQUAL:
        return ", as over all rows"
    leading = leading_features(overall)
    return f"; over all rows {_carrying(leading, names)} {share_text(overall[leading].sum())}"


def _carrying(leading: Indices, names: Sequence[str]) -> str:
    """Some features and the verb; in quotes where they would not be told from other words."""
    all_names = [names[j] for j in leading]
    shown = all_names[:NAMED]
    if any("," in name or " and " in name or not name.strip() for name in shown):
        shown = [f"'{name}'" for name in shown]
    more = len(all_names) - len(shown)
    text = listed([*shown, *([f"{more:,} more"] if more else [])], quoted=False)
    return f"{text} {'carries' if len(leading) == 1 else 'carry'}"
