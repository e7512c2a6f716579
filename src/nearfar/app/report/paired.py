"""Gains over the baseline, fold by fold."""

from __future__ import annotations

from typing import Any

from nearfar.app.report import charts
from nearfar.app.report.board import LEARNERS
from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.words import interval, number, pair, points
from nearfar.words import format_count

View = dict[str, Any]

DOTS = 1000  # folds drawn, all learners together
LANES = 10


def paired_view(comparison: Comparison) -> View:
    """A strip of dots for each learner."""
    if comparison.fixed:
        return {"empty": "There is one test set and no folds; the leaderboard has the gains."}
    base = _reference_errors(comparison)
    found = [_paired_row(comparison, m, base) for m in comparison.learners[:LEARNERS]]
    rows = [row for row in found if row is not None]
    if not rows:
        return {"empty": "No learner shares a finished fold with the baseline."}
    values = [dot.value for row in rows for dot in row["dots"]]
    ends = [end for row in rows for end in row["ends"] or ()]
    scale = charts.difference_scale(values + ends, quantile=0.9, factor=2.0)
    most = DOTS // len(rows)
    for row in rows:
        drawn = row["dots"][:most]
        shape = (row[key] for key in ("lanes", "mean", "ends", "kind", "said"))
        row["strip"] = charts.strip(scale, drawn, *shape)
    done, planned = len(comparison["common_folds"]), len(comparison["folds"])
    return {
        "rows": rows,
        "axis": charts.axis(scale, 6),
        "repeats": max(row["lanes"] for row in rows),
        "confidence": comparison.confidence,
        "dots": "the learner's area minus the baseline's"
        if comparison.higher_is_better
        else "the baseline's error minus the learner's",
        "folds": f"{done:,} of {format_count(planned, 'fold')}" if done < planned else "",
        "more": max(0, len(comparison.learners) - LEARNERS),
        "hidden": any(len(row["dots"]) > most for row in rows),
        "outside": not all(map(scale.holds, values)),
    }


def _reference_errors(comparison: Comparison) -> dict[int, float | None]:
    """Return the errors of the baseline by fold."""
    results = comparison.reference["results"] if comparison.reference else []
    # Means and intervals rest on the folds that all methods have; so do the dots.
    common = set(comparison["common_folds"]) or {result["fold"] for result in results}
    return {r["fold"]: number(r.get("error")) for r in results if r["fold"] in common}


def _paired_row(
    comparison: Comparison, method: Method, base: dict[int, float | None]
) -> View | None:
    folds, label = comparison["folds"], comparison.label(method["name"])
    dots = []
    for result in method["results"]:
        index, error = result["fold"], number(result.get("error"))
        other = base.get(index)
        if error is None or other is None:
            continue
        fold = folds[index] if 0 <= index < len(folds) else {"repeat": 0, "fold": index}
        repeat = fold.get("repeat") or 0
        change = f"{comparison.level(other)} → {comparison.level(error)}"
        tip = (
            f"Repeat {repeat + 1}, fold {(fold.get('fold') or 0) + 1}: "
            f"{points(other - error, unit=True)} ({change})"
        )
        dots.append(charts.Dot(other - error, repeat % LANES, tip))
    if not dots:
        return None
    mean, ends = number(method["gain"]), pair(method["gain_interval"])
    if mean is None:
        mean = sum(dot.value for dot in dots) / len(dots)
    better, worse = sum(dot.value > 0 for dot in dots), sum(dot.value < 0 for dot in dots)
    tally = f"better in {better}, worse in {worse} of {format_count(len(dots), 'fold')}"
    return {
        "label": label,
        "dots": dots,
        "lanes": max(dot.lane for dot in dots) + 1,
        "mean": mean,
        "ends": ends,
        "kind": comparison.kind(method),
        "mean_text": points(mean, unit=True),
        "interval": interval(ends, points),
        "tally": tally,
        "said": f"{label}: mean {points(mean, unit=True)}, {tally}",
    }
