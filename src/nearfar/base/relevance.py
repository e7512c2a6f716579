"""Relevance of features in a metric, and the sentences that describe it and a neighbor vote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base.voter import compute_vote_fractions
from nearfar.words import join_names

#: An explanation covers the smallest set of features that carries at least this fraction of the
#: metric.
COVERED_FRACTION = 0.5
#: Maximum number of features that the sentence of an explanation names.
MAX_NAMED = 3
#: Relevances that differ by less than this are treated as equal, because rounding depends on the
#: order of summation.
RELEVANCE_TOLERANCE = 1e-9


def compute_relevance(metric: NDArray[np.float64], deviations: Vector) -> Matrix:
    """Return the relevance of each feature, which is its fraction of the trace of S M S.

    Parameters
    ----------
    metric : ndarray of shape (q, p, p) or (q, p)
        Metrics M, or their diagonals.
    deviations : ndarray of shape (p,)
        Standard deviations of the features over the training rows: the diagonal of S.

    Returns
    -------
    ndarray of shape (q, p)
        Relevances. Each row sums to one. The relevances of a metric with a zero diagonal are equal.
    """
    diagonal = metric if metric.ndim == 2 else np.einsum("ijj->ij", metric)
    costs = np.maximum(diagonal, 0.0) * deviations**2
    largest = costs.max(axis=1, keepdims=True)
    costs = np.where(largest > 0, costs / np.where(largest > 0, largest, 1.0), 1.0)
    return np.asarray(costs / costs.sum(axis=1, keepdims=True))


def get_feature_names(estimator: Any, n_features: int) -> list[str]:
    """Return the feature names seen in ``fit``, or x0, x1, ... if there were none."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(n_features)] if names is None else [str(name) for name in names]


def find_leading_features(relevance: Vector) -> Indices:
    """Return the smallest set of features that carries at least half of the relevance.

    Features as relevant as the least relevant one in the set are included.
    """
    order = sort_descending(relevance)
    cumulative = np.cumsum(relevance[order])
    last = int(np.searchsorted(cumulative, COVERED_FRACTION - RELEVANCE_TOLERANCE))
    last_relevance = relevance[order[min(last, len(order) - 1)]]
    return order[relevance[order] >= last_relevance - RELEVANCE_TOLERANCE]


def select_named_features(relevance: Vector) -> Indices:
    """Return the features that the sentence of an explanation names.

    The result is empty if all features are leading and there are more than three.
    """
    leading = find_leading_features(relevance)
    return leading[:0] if len(leading) == len(relevance) > MAX_NAMED else leading[:MAX_NAMED]


def sort_descending(relevance: Vector) -> Indices:
    """Return feature indices in descending order of relevance. Ties keep their order."""
    # Round first, so that the order of ties does not depend on the processor.
    return np.asarray(np.argsort(-np.round(relevance, 12), kind="stable"), dtype=np.intp)


def format_fraction(fraction: float) -> str:
    """Format a fraction as a percentage. Only exact values are shown as 0% or 100%.

    >>> [format_fraction(fraction) for fraction in (0.714, 0.997, 1.0, 0.004, 0.0)]
    ['71%', 'over 99%', '100%', 'under 1%', '0%']
    """
    rounded = round(100 * fraction)
    if rounded >= 100 and fraction < 1 - RELEVANCE_TOLERANCE:
        return "over 99%"
    if rounded <= 0 and fraction > RELEVANCE_TOLERANCE:
        return "under 1%"
    return f"{rounded}%"


def describe_vote(codes: Indices, winner: int, n_classes: int, ties: str) -> str:
    """Describe how the class ``winner`` won the vote.

    ``codes`` contains the class codes of the neighbors, nearest first.
    """
    k, is_winner = len(codes), codes == winner
    if k == 1:
        return "by its nearest neighbor"
    tied = count_tied(codes, n_classes)
    if not tied:
        return f"by {is_winner.sum()} of {k}"
    if ties == "first":
        return f"by {is_winner.sum()} of {k}, the first of {tied} tied labels"
    n_deciding = count_deciding(codes, n_classes, ties)
    if n_deciding == 1:
        return f"by its nearest neighbor (the nearest {k} are tied)"
    return f"by {is_winner[:n_deciding].sum()} of the nearest {n_deciding} (all {k} are tied)"


def count_deciding(codes: Indices, n_classes: int, ties: str) -> int:
    """Return the number of neighbors that decide the vote: fewer than k if a tie reduces k."""
    n_remaining = len(codes)
    while ties == "shrink" and count_tied(codes[:n_remaining], n_classes):
        n_remaining -= 1
    return n_remaining


def count_tied(codes: Indices, n_classes: int) -> int:
    """Return the number of classes tied for the most votes, or 0 if there is a single winner."""
    votes = compute_vote_fractions(codes[None], n_classes, "first")[0]
    leaders = int((votes == votes.max()).sum())
    return leaders if leaders > 1 else 0


def describe_metric(
    relevance: Vector, names: Sequence[str], overall: Vector | None, is_global: bool
) -> str:
    """Describe the relevant features, and compare them with the ``overall`` relevance if known."""
    p = len(names)
    location = "" if is_global else " here"
    if p == 1:
        return f"{names[0]} is the only feature"
    if relevance.max() - relevance.min() <= RELEVANCE_TOLERANCE:
        comparison = "" if is_global or overall is None else _describe_overall(overall, names)
        return f"all {p} features count equally{location}{comparison}"
    leading = find_leading_features(relevance)
    if len(leading) == p > MAX_NAMED:
        largest = format_fraction(relevance.max())
        return f"all {p} features contribute to the metric{location}, each at most {largest}"
    percentage = format_fraction(relevance[leading].sum())
    text = f"{_describe_leading(leading, names)} {percentage} of the metric{location}"
    if is_global:
        return f"{text}, which is the same for all rows"
    if overall is None:
        return text
    overall_percentage = format_fraction(overall[leading].sum())
    comparison = "as" if overall_percentage == percentage else f"against {overall_percentage}"
    return f"{text}, {comparison} over all rows"


def _describe_overall(overall: Vector, names: Sequence[str]) -> str:
    """Describe the overall relevance, for rows where all features count equally."""
    if np.ptp(overall) <= RELEVANCE_TOLERANCE:
        return ", as over all rows"
    leading = find_leading_features(overall)
    percentage = format_fraction(overall[leading].sum())
    return f"; over all rows {_describe_leading(leading, names)} {percentage}"


def _describe_leading(leading: Indices, names: Sequence[str]) -> str:
    """Return feature names and a verb, for example "hue and ash carry".

    Names that contain a separator are quoted.
    """
    leading_names = [names[j] for j in leading]
    shown_names = leading_names[:MAX_NAMED]
    if any("," in name or " and " in name or not name.strip() for name in shown_names):
        shown_names = [f"'{name}'" for name in shown_names]
    n_more = len(leading_names) - len(shown_names)
    text = join_names([*shown_names, *([f"{n_more:,} more"] if n_more else [])], quoted=False)
    return f"{text} {'carries' if len(leading) == 1 else 'carry'}"
