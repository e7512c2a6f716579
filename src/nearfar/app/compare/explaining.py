"""Votes of a fitted chain, explained by the columns of the table it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from nearfar.app.compare.methods import takes_tensors
from nearfar.app.compare.through import map_through
from nearfar.app.tables.columns import columns_of
from nearfar.base import LocalExplanation, all_estimators
from nearfar.base.local_voter import LocalClassifier
from nearfar.base.relevance import format_fraction
from nearfar.blocks import split_rows
from nearfar.neighbors.knn import KNNClassifier
from nearfar.neighbors.linear_votes import estimate_linear_map, explain_linear_vote, may_be_linear
from nearfar.words import format_method_name, join_names

#: Numbers of training rows before a map that a model keeps for explanations, at most.
MOST_KEPT = 5_000_000
#: What is said where the nearest voter is at a distance of 0.
SAME_PLACE = "the nearest voter has a distance of 0: it is this very row, or a copy of it"
#: Training rows over which the shares of a metric are averaged, at most, where categories are.
SAMPLED = 1000
#: Features of a row that are told one by one.
SHOWN_FEATURES = 8


def explain_chain(
    chain: Pipeline, X: Any, features: Sequence[str] | None = None, *, overall: bool = True
) -> LocalExplanation:
    """Which training rows voted, and what the columns did to their distances.

    Distances are those of the rows as they are scaled; scaling each column changes no part of them.

    Parameters
    ----------
    chain : Pipeline
        As a comparison or ``nearfar fit`` makes it, fitted.
    X : array or frame
        Rows as it takes them.
    features : sequence of str, optional
        Names of the columns, where rows have none.
    overall : bool, default=True
        Find the mean over all training rows, too, where the metric changes from row to row.

    Returns
    -------
    LocalExplanation
        A column that became several, as a category does, is one feature.
    """
    front, back = _parts(chain)
    last = chain[-1]
    queries = _floats(map_through(front, X))
    if isinstance(last, KNNClassifier) and last.estimator_ is None:
        return _explain_knn(chain, queries, features)
    if not can_explain(last):
        raise ValueError(_cannot(type(last).__name__))
    points = map_through(back, queries) if len(back) else queries
    if not isinstance(last, LocalClassifier):
        found: LocalExplanation = last.explain(points)
        return found.merge_features(_own_names(found, chain, queries, len(back), features))
    names = column_names(chain, queries.shape[1], features)
    if len(back) or last.estimator_ is not None or len(set(names)) == len(names):
        found = last.explain(points, overall=overall)
        return found.merge_features(_own_names(found, chain, queries, len(back), features))
    merged = _merged_local(last, points, names)
    if not overall:
        return merged
    some = np.linspace(0, last._n_training - 1, min(last._n_training, SAMPLED)).astype(np.intp)
    return merged.with_overall(
        _merged_local(last, last._points[some], names).relevance.mean(axis=0)
    )


def _own_names(
    found: LocalExplanation,
    chain: Pipeline,
    queries: NDArray[Any],
    mapped: int,
    features: Sequence[str] | None,
) -> list[str]:
    """Names of columns, or of components where the columns were mapped to others."""
    n = len(found.feature_names)
    if mapped or n != queries.shape[1]:
        return [f"component {j}" for j in range(n)]
    return column_names(chain, n, features)


def _merged_local(
    voter: LocalClassifier, points: NDArray[Any], names: list[str]
) -> LocalExplanation:
    """An explanation by columns of the table, where some became several."""
    found, shares = voter.explain(points, overall=False), []
    for block in split_rows(len(points), 16 * points.shape[1] ** 2):
        metrics = voter.metric_at(points[block])
        shares.append(joint_shares(found.relevance[block], metrics, voter._points, names))
    return found.merge_features(names, relevance=np.concatenate(shares))


def joint_shares(
    relevance: NDArray[Any], metrics: NDArray[Any], rows: NDArray[Any], names: Sequence[str]
) -> NDArray[np.float64]:
    """Shares of columns of which some became several, for (q, p, p) metrics.

    Those of a category are zeros and ones that sum to one: a step along one of them alone is none
    that a row could take, and a metric may charge anything for it. What counts is the mean cost of
    the steps that rows do take, tr(M C) with the covariance C of the columns; of a single column
    that is the square of its deviation times its entry of M, as ever.
    """
    distinct = list(dict.fromkeys(names))
    found = np.empty((len(relevance), len(distinct)))
    for i, name in enumerate(distinct):
        own = np.array([j for j, other in enumerate(names) if other == name])
        found[:, i] = relevance[:, own].sum(axis=1)
        if len(own) > 1:
            spread = np.cov(rows[:, own].T, bias=True)
            part = metrics[:, own[:, None], own]
            alone = np.einsum("qjj,jj->q", part, spread)
            joint = np.maximum(np.einsum("qij,ij->q", part, spread), 0.0)
            found[:, i] *= np.where(alone > 0, joint / np.where(alone > 0, alone, 1.0), 1.0)
    totals = found.sum(axis=1, keepdims=True)
    return np.where(totals > 0, found / np.where(totals > 0, totals, 1.0), 1.0 / len(distinct))


def can_explain(estimator: Any) -> bool:
    """Whether it tells which features made its labels."""
    return hasattr(estimator, "explain")


def local_rules() -> list[str]:
    """Names of the classifiers with a metric for each query."""
    found = all_estimators(role="classifier", input="vectors")
    return [
        format_method_name(n)
        for n, kind in found.items()
        if can_explain(kind) and n != "KNNClassifier"
    ]


def keep_for_explaining(chain: Pipeline, rows: Any) -> None:
    """Give the vote of a fitted chain the training rows before its map, if that may be linear."""
    front, back = _parts(chain)
    last = chain[-1]
    if type(last) is not KNNClassifier or last.estimator_ is not None or not len(back):
        return
    if not all(may_be_linear(step) and not takes_tensors(step) for _, step in back.steps):
        return
    if np.prod(rows.shape) <= MOST_KEPT:
        given = _floats(map_through(front, rows))
        last._rows = given if given.size <= MOST_KEPT else None


def _explain_knn(
    chain: Pipeline, queries: NDArray[Any], features: Sequence[str] | None
) -> LocalExplanation:
    _, back = _parts(chain)
    last, linear = chain[-1], None
    mapped, rows = queries, last._points
    if len(back):
        rows = getattr(last, "_rows", None)
        called = join_names([type(step).__name__ for _, step in back.steps], quoted=False)
        if any(takes_tensors(step) for _, step in back.steps):
            raise ValueError(
                f"its map ({called}) is of tensors: single numbers of them are not told."
            )
        if not all(may_be_linear(step) for _, step in back.steps):
            raise ValueError(_cannot(called))
        if rows is None:
            raise ValueError(
                "it keeps only mapped rows: it was made by an older version, or they were more "
                f"than {MOST_KEPT:,} numbers. Fit it again, to fewer rows."
            )
        linear = estimate_linear_map(
            lambda part: map_through(back, part), _floats(rows), last._points
        )
        if linear is None:
            raise ValueError(_cannot(called))
        mapped = map_through(back, queries)
    names = column_names(chain, queries.shape[1], features)
    distinct = [str(j) for j in range(queries.shape[1])]
    found = explain_linear_vote(last, mapped, _floats(queries), _floats(rows), linear, distinct)
    if len(set(names)) == len(names):
        return found.merge_features(names)
    metric = np.eye(len(names)) if linear is None else linear.T @ linear
    shares = joint_shares(found.relevance[:1], metric[None], _floats(rows), names)
    return found.merge_features(
        names, relevance=np.repeat(shares, len(found), axis=0)
    ).with_overall(shares[0])


def _cannot(name: str) -> str:
    return (
        f"{name} cannot explain which features mattered. Supported: standard distances, linear "
        f"learners such as lmnn, lda and rca, and {join_names(local_rules(), quoted=False)}."
    )


def _parts(chain: Pipeline) -> tuple[Pipeline, Pipeline]:
    """Steps that keep the columns apart, and the map that follows, without what votes."""
    n = 0
    for name, step in chain.steps[:-1]:
        if name != "prepare" and not isinstance(step, StandardScaler | Normalizer):
            break
        n += 1
    return chain[:n], chain[n:-1]


def column_names(chain: Pipeline, n_columns: int, features: Sequence[str] | None) -> list[str]:
    """For each number that the first steps make of a row, the name of its column."""
    prepare = chain.named_steps.get("prepare")
    origins = list(range(n_columns))
    if isinstance(prepare, ColumnTransformer):
        columns = columns_of(prepare)
        used = [*columns.numeric, *columns.categorical]
        origins = columns.origins(prepare)
        if all(isinstance(name, str) for name in used):
            features = used
    named = features is not None and len(features) == max(origins, default=-1) + 1
    names = [str(name) for name in features] if named and features else []
    names = names or [f"x{j}" for j in range(max(origins, default=-1) + 1)]
    if len(set(names)) < len(names):
        names = [f"{name} ({j})" for j, name in enumerate(names)]
    return [names[j] for j in origins]


def told(why: LocalExplanation, row: int, n: int = SHOWN_FEATURES) -> dict[str, Any]:
    """An explained row as plain data: the leading features, the voters and their distances."""
    names, parts = why.summarize_features(row, n)
    voters = zip(
        why.neighbors[row].tolist(),
        why.neighbor_labels[row].tolist(),
        why.distances[row].tolist(),
        parts["contributions"].tolist(),
        strict=True,
    )
    label = why.labels[row].item() if hasattr(why.labels[row], "item") else why.labels[row]
    return {
        "label": str(label),
        "features": names,
        "others": len(names) - 1 if len(why.feature_names) > len(names) else None,
        "here": parts["relevance"].tolist(),
        "overall": None if parts["overall"] is None else parts["overall"].tolist(),
        "one_metric": bool(why.is_global),
        "n_deciding": why.count_deciding(row),
        "voters": [
            {
                "row": number,
                "label": str(voter),
                "agrees": bool(voter == label),
                "distance": distance,
                "parts": shares,
            }
            for number, voter, distance, shares in voters
        ],
    }


def relevance_lines(row: dict[str, Any]) -> list[str]:
    """The metric at a row as lines of a terminal."""
    wide = max(len(name) for name in row["features"])
    lines = []
    for j, name in enumerate(row["features"]):
        against = ""
        if row["overall"] is not None and not row["one_metric"]:
            against = f"   over all rows {format_fraction(row['overall'][j]):>9}"
        lines.append(f"  {name:<{wide}} {format_fraction(row['here'][j]):>9}{against}")
    return lines


def voter_lines(row: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The voters of a row as lines of a terminal: label, distance and what made it."""
    wide, label = max(map(len, names)), max(len(voter["label"]) for voter in row["voters"])
    lines = []
    for i, (name, voter) in enumerate(zip(names, row["voters"], strict=True)):
        made = distance_words(row["features"], voter["parts"], 3)
        idle = "" if i < row["n_deciding"] else "  (left out: a tie)"
        lines.append(
            f"  {name:<{wide}}  {voter['label']:<{label}}  at {voter['distance']:.4g}"
            f"{': ' * bool(made)}{made}{idle}"
        )
    return lines


def distance_words(names: Sequence[str], parts: Sequence[float], n: int) -> str:
    """The largest parts of a squared distance, as shares of all that adds to it or takes away.

    >>> distance_words(["hue", "ash", "alcohol"], [1.0, -0.5, 0.5], 2)
    'hue 50%, ash −25%'
    """
    total = sum(abs(part) for part in parts)
    order = sorted(range(len(parts)), key=lambda j: -abs(parts[j]))[:n]
    return ", ".join(
        f"{names[j]} {'−' * (parts[j] < 0)}{format_fraction(abs(parts[j]) / total)}"
        for j in order
        if parts[j] != 0
    )


def _floats(rows: Any) -> NDArray[Any]:
    return np.asarray(rows, dtype=np.float64)
