"""What each section of the report shows, as plain values for the template.

Every function takes the comparison and returns a dict. Where there is nothing to show, it holds
"empty": one sentence that says so.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import rankdata

from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison, Method, shares_by_fold
from nearfar.app.report.page import figure
from nearfar.app.report.words import (
    NONE,
    SPACE,
    cut,
    cut_lines,
    cut_list,
    interval,
    listed,
    megabytes,
    moment,
    number,
    p_value,
    pair,
    percent,
    points,
    seconds,
    significant,
    unbroken,
)
from nearfar.app.tables.images import data_uri
from nearfar.words import count, tested

View = dict[str, Any]

METHODS = 60  # rows of the leaderboard
LEARNERS = 20  # in charts
DOTS = 1000  # folds drawn, all learners together
LANES = 10
CLASSES = 25
FEATURES = 20
COUNTED = 12  # classes whose sizes are drawn
LINES = 50
FOLDS = 50
ROW_NUMBERS = 20_000  # written out in all folds together

VERDICTS = {
    "use": "Use a learned distance",
    "keep": "Keep the distance you have",
    "unsure": "Cannot tell yet",
}
# Keys of a method by the columns that show them.
_KEYS = {
    "p": "p_holm",
    "folds": "folds_done",
    "tune": "tune_seconds",
    "fit": "fit_seconds",
    "predict": "predict_seconds",
    "mb": "peak_mb",
}
STATUSES = {
    "time budget reached": "The time budget was reached before all was done.",
    "interrupted": "The comparison was interrupted before all was done.",
    "a worker died": "A process was killed twice at the same work, which is missing here.",
}


def answer_view(comparison: Comparison) -> View:
    """The verdict first, then the numbers it rests on."""
    answer = comparison["answer"]
    text = unbroken(cut(answer["text"], 800)) or "There is no answer: no fold was finished."
    head, mark, rest = text.partition(": ")
    if not mark or len(head) > 60:
        head, rest = text, ""
    verdict = answer["verdict"] if answer["verdict"] in VERDICTS else "unsure"
    status = STATUSES.get(comparison["status"], "")
    if status:
        done, planned = len(comparison["common_folds"]), len(comparison["folds"])
        if not comparison.fixed:
            status += f" Every compared method has {done:,} of {count(planned, 'fold')}."
    return {
        "verdict": verdict,
        "word": VERDICTS[verdict],
        "head": head + mark.rstrip() if rest else head,
        "rest": rest,
        "long": len(text) > 220,
        "notes": [unbroken(note) for note in cut_list(answer["notes"], 12, 600)],
        "status": status,
        "figures": _figures(comparison),
    }


def _figures(comparison: Comparison) -> list[View]:
    """Up to four numbers: before, after, the difference, and after selection."""
    figures: list[View] = []
    reference, best, nested = comparison.reference, comparison.best, comparison["nested"]
    for method, title in ((reference, "Reference"), (best, "Best learner")):
        if method is not None and number(method["error"]) is not None:
            label = comparison.label(method["name"])
            title = f"{title}: {label}" if label != title else title
            note = f"{comparison.measure.lower()}, {said_interval(comparison, method['interval'])}"
            figures.append(figure(title, percent(method["error"]), note))
    figures += difference_figure(comparison, best)
    if nested:
        title = f"After choosing inside {_inside(comparison)}"
        said = said_interval(comparison, nested.get("interval"))
        note = f"what to expect of the choice itself, {said}"
        figures.append(figure(title, percent(nested.get("error")), note))
    return figures


def _inside(comparison: Comparison) -> str:
    return f"the training {comparison.noun}s" if comparison.fixed else "each fold"


def difference_figure(comparison: Comparison, method: Method | None) -> list[View]:
    """The difference of a method to the reference, where it is known."""
    if method is None or number(method["difference"]) is None:
        return []
    note = said_interval(comparison, method["difference_interval"], points)
    if number(method["p_holm"]) is not None:
        p = f"p {p_value(method['p_holm'])}".replace(" ", SPACE)
        note += f"; {p} after Holm"
    return [figure("Difference", points(method["difference"], unit=True), note)]


def said_interval(comparison: Comparison, ends: Any, write: Any = percent) -> str:
    """An interval with its level."""
    text = interval(ends, write)
    return f"{comparison.confidence} interval {text}" if text else "no interval yet"


def data_view(comparison: Comparison) -> View:
    """Size, columns left out, messages and warnings."""
    data = comparison.data
    vectors, noun = data["sets"], comparison.noun
    facts = [
        (f"{noun.capitalize()}s", _whole(data["n_rows"])),
        ("Features", _whole(data["n_features"])),
        ("Classes", _whole(len(data["classes"]) or None)),
        ("Target", cut(data["target"]) or NONE),
    ]
    if vectors is not None:
        size = f"{_whole(vectors['least'])} to {_whole(vectors['most'])}"
        facts[1:1] = [("Vectors", _whole(vectors["n_vectors"])), (f"Of a {noun}", size)]
    if data["groups"]:
        facts.append(("Groups", f"{cut(data['groups']['name'])} ({_whole(data['groups']['n'])})"))
    if data["time"]:
        facts.append(("Time", cut(data["time"])))
    if data["test"]:
        test = data["test"]
        facts.append(("Test file", f"{cut(test['name'])} ({_whole(test['n_rows'])} {noun}s)"))
    if data["image_shape"]:
        facts.append(("Images", " × ".join(str(size) for size in data["image_shape"][:3])))
    counts = [number(size) or 0.0 for size in data["class_counts"]]
    order = sorted(range(len(counts)), key=lambda code: -counts[code])[:COUNTED]
    shown = sorted(order) if len(counts) <= COUNTED else order
    largest, total = max(counts, default=0.0), sum(counts) or 1.0
    dropped = data["dropped"]
    return {
        "facts": [(title, value) for title, value in facts if value != NONE],
        "classes": [
            {
                "name": comparison.class_name(code),
                "rows": f"{counts[code]:,.0f}",
                "share": percent(counts[code] / total),
                "bar": charts.bar(
                    counts[code],
                    largest,
                    f"{comparison.class_name(code)}: {count(int(counts[code]), noun)}",
                ),
            }
            for code in shown
        ],
        "classes_more": max(0, len(counts) - COUNTED),
        "features": listed([cut(name, 40) for name in data["features"]], 30),
        "n_features": len(data["features"]),
        "messages": cut_list(data["messages"], LINES),
        "warnings": [
            {"kind": cut(warning.get("kind"), 40), "text": cut(warning.get("text"), 600)}
            for warning in comparison["warnings"][:LINES]
        ],
        "warnings_more": max(0, len(comparison["warnings"]) - LINES),
        "dropped": [(cut(name, 60), cut(reason, 300)) for name, reason in dropped[:LINES]],
        "dropped_more": max(0, len(dropped) - LINES),
    }


def leaderboard_view(comparison: Comparison) -> View:
    """All methods, finished or not."""
    if not comparison.methods:
        return {"empty": "No method was run."}
    nested, methods = comparison["nested"], comparison.methods[:METHODS]
    return board(comparison, _leaderboard_cells, ticks=4, note=400) | {
        "measure": comparison.measure,
        "nested": None if not nested else _nested(comparison, nested),
        "inside": _inside(comparison),
        "any_not_converged": any(m["not_converged"] for m in methods),
        "any_context": any(m["role"] == "context" for m in methods),
    }


def _leaderboard_cells(method: Method) -> View:
    return {
        "stopped": method["status"] == "failed",
        "setting": _usual_setting(method) if method["role"] == "reference" else "",
        "error": percent(method["error"]),
        "p": p_value(method["p_holm"]),
        "sort": sort_keys(method, "error", "p"),
    }


def board(
    comparison: Comparison, cells: Callable[[Method], View], *, ticks: int, note: int
) -> View:
    """A leaderboard: what those of all comparisons have, and the cells of one's own."""
    compared = [m for m in comparison.methods if m["role"] != "context"]
    scale = _difference_scale([m for m in compared if m["role"] == "learner"] or compared)
    threshold = _smallest_gain(comparison)
    shown = comparison.methods[:METHODS]
    rows = []
    for method in shown:
        row, own = _board_row(comparison, method, scale, threshold), cells(method)
        rows.append(row | own | {"sort": row["sort"] | own["sort"]})
    return {
        "rows": rows,
        "more": len(comparison.methods) - len(shown),
        "axis": charts.axis(scale, ticks),
        "measure_note": cut(comparison.protocol["measure_note"], note),
        "confidence": comparison.confidence,
        "threshold": None if threshold is None else points(threshold, unit=True),
    }


def _board_row(
    comparison: Comparison, method: Method, scale: charts.Scale, threshold: float | None
) -> View:
    label, kind = comparison.label(method["name"]), _kind(comparison, method)
    value, ends = number(method["difference"]), pair(method["difference_interval"])
    forest = None
    if method["role"] == "reference":
        forest = charts.forest(scale, None, None, "", f"{label}: the reference", threshold)
    elif value is not None and method["status"] != "failed":
        said = f"{label}: {points(value, unit=True)}, interval {interval(ends, points)}"
        forest = charts.forest(scale, value, ends, kind, said, threshold)
    planned = len(comparison["folds"]) or method["folds_done"]
    return {
        "label": label,
        "role": method["role"],
        "status": method["status"],
        "reason": cut(method["reason"], 400),
        "recommended": bool(method["recommended"]),
        "interval": interval(method["interval"]),
        "difference": points(value),
        "difference_interval": interval(ends, points),
        "kind": kind,
        "forest": forest,
        "folds": f"{method['folds_done']:,} of {planned:,}",
        "fit": seconds(method["fit_seconds"]),
        "mb": megabytes(method["peak_mb"]),
        "not_converged": method["not_converged"] or 0,
        "sort": {"label": label.casefold()} | sort_keys(method, "difference", "folds", "fit", "mb"),
    }


def _nested(comparison: Comparison, nested: View) -> View:
    chosen = sorted((nested.get("chosen") or {}).items(), key=lambda item: -item[1])
    times = [f"{comparison.label(name)} {count(n, 'time')}" for name, n in chosen]
    return {
        "error": percent(nested.get("error")),
        "interval": interval(nested.get("interval")),
        "chosen": listed(times),
    }


def paired_view(comparison: Comparison) -> View:
    """Differences to the reference, fold by fold."""
    if comparison.fixed:
        return {"empty": "There is one test set and no folds; the leaderboard has the differences."}
    reference = comparison.reference
    rows = []
    if reference is not None:
        # Means and intervals rest on the folds that all methods have; so do the dots.
        common = set(comparison["common_folds"]) or {r["fold"] for r in reference["results"]}
        base = {
            r["fold"]: number(r.get("error")) for r in reference["results"] if r["fold"] in common
        }
        for method in comparison.learners[:LEARNERS]:
            row = _paired_row(comparison, method, base)
            if row is not None:
                rows.append(row)
    if not rows:
        return {"empty": "No learner shares a finished fold with the reference."}
    scale = charts.difference_scale(
        [dot.value for row in rows for dot in row["dots"]]
        + [end for row in rows for end in row["ends"] or ()],
        quantile=0.9,
        factor=2.0,
    )
    per_row = DOTS // len(rows)
    for row in rows:
        row["hidden"] = max(0, len(row["dots"]) - per_row)
        row["strip"] = charts.strip(
            scale,
            row["dots"][:per_row],
            row["lanes"],
            row["mean"],
            row["ends"],
            row["kind"],
            row["said"],
        )
    return {
        "rows": rows,
        "axis": charts.axis(scale, 6),
        "repeats": max(row["lanes"] for row in rows),
        "confidence": comparison.confidence,
        "folds": f"{len(comparison['common_folds']):,} of {count(len(comparison['folds']), 'fold')}"
        if len(comparison["common_folds"]) < len(comparison["folds"])
        else "",
        "more": max(0, len(comparison.learners) - LEARNERS),
        "hidden": any(row["hidden"] for row in rows),
        "outside": any(not scale.holds(dot.value) for row in rows for dot in row["dots"]),
    }


def _paired_row(
    comparison: Comparison, method: Method, base: dict[int, float | None]
) -> View | None:
    folds = comparison["folds"]
    label = comparison.label(method["name"])
    dots, lanes = [], 1
    for result in method["results"]:
        error, other = number(result.get("error")), base.get(result["fold"])
        if error is None or other is None:
            continue
        index = result["fold"]
        fold = folds[index] if 0 <= index < len(folds) else {"repeat": 0, "fold": index}
        repeat, number_in = (fold.get("repeat") or 0), (fold.get("fold") or 0)
        lane = repeat % LANES
        lanes = max(lanes, lane + 1)
        tip = (
            f"Repeat {repeat + 1}, fold {number_in + 1}: "
            f"{points(error - other, unit=True)} ({percent(other)} → {percent(error)})"
        )
        dots.append(charts.Dot(error - other, lane, tip))
    if not dots:
        return None
    mean = number(method["difference"])
    if mean is None:
        mean = sum(dot.value for dot in dots) / len(dots)
    ends = pair(method["difference_interval"])
    better = sum(dot.value < 0 for dot in dots)
    worse = sum(dot.value > 0 for dot in dots)
    tally = f"better in {better}, worse in {worse} of {count(len(dots), 'fold')}"
    return {
        "label": label,
        "dots": dots,
        "lanes": lanes,
        "mean": mean,
        "ends": ends,
        "kind": _kind(comparison, method),
        "mean_text": points(mean, unit=True),
        "interval": interval(ends, points),
        "tally": tally,
        "said": f"{label}: mean {points(mean, unit=True)}, {tally}",
    }


def classes_view(comparison: Comparison) -> View:
    """Errors of each class, and what the best learner takes for what."""
    reference, best = comparison.reference, comparison.best
    held_out = comparison.held_out
    if best is None or not held_out["predicted"].get(best["name"]):
        return {"empty": f"No learner has predictions of held-out {comparison.noun}s."}
    others = (held_out["predicted"].get(reference["name"]) if reference else None) or None
    n_classes = len(comparison.data["classes"])
    true, after, before = _codes(
        n_classes, held_out["true"], held_out["predicted"][best["name"]], others
    )
    if not true.size:
        return {"empty": f"No learner has predictions of held-out {comparison.noun}s."}
    sizes = np.bincount(true, minlength=n_classes)
    wrong = np.bincount(true[true != after], minlength=n_classes)
    present = np.flatnonzero(sizes)
    if present.size > CLASSES:
        # The classes with the most errors, then the highest rates.
        rates = wrong / np.maximum(sizes, 1)
        shown = np.sort(np.lexsort((-rates[present], -wrong[present]))[:CLASSES])
        shown = present[shown]
    else:
        shown = present
    view: View = {
        "best": comparison.label(best["name"]),
        "reference": comparison.label(reference["name"]) if reference and others else None,
        "n": int(true.size),
        "of": "the test set" if comparison.fixed else "the first repeat",
        "again": comparison.tested_again,
        "shown": int(shown.size),
        "total": int(present.size),
    }
    wrong_before = None
    if before is not None:
        wrong_before = np.bincount(true[true != before], minlength=n_classes)
    view["rows"], view["largest"] = _class_rows(comparison, shown, sizes, wrong, wrong_before)
    view |= _confusion(comparison, shown, true, after)
    return view


def _codes(n_classes: int, true: Any, after: Any, before: Any) -> Any:
    """Codes as arrays, for the rows that all of them know."""
    lists = [true, after] if before is None else [true, after, before]
    columns = [
        column
        for column in zip(*lists, strict=False)
        if all(isinstance(code, int) and 0 <= code < n_classes for code in column)
    ]
    arrays = list(np.array(columns, dtype=int).reshape(-1, len(lists)).T)
    return arrays if before is not None else [*arrays, None]


def _class_rows(
    comparison: Comparison, shown: Any, sizes: Any, wrong: Any, wrong_before: Any
) -> tuple[list[View], str]:
    rates = wrong[shown] / sizes[shown]
    rates_before = rates if wrong_before is None else wrong_before[shown] / sizes[shown]
    largest = float(max(rates.max(), rates_before.max(), 0.01))
    scale = charts.Scale(0.0, largest)
    rows = []
    for code, old, new in zip(shown, rates_before.tolist(), rates.tolist(), strict=True):
        name = comparison.class_name(int(code))
        rows.append(
            {
                "name": name,
                "rows": f"{int(sizes[code]):,}",
                "before": percent(old),
                "after": percent(new),
                "change": points(new - old) if wrong_before is not None else "",
                "kind": "better" if new < old else "worse" if new > old else "even",
                "chart": charts.dumbbell(
                    scale, old, new, f"{name}: from {percent(old)} to {percent(new)}"
                ),
                "sort": {"before": old, "after": new, "change": new - old},
            }
        )
    return rows, percent(largest)


def _confusion(comparison: Comparison, shown: Any, true: Any, predicted: Any) -> View:
    place = {int(code): i for i, code in enumerate(shown)}
    table = np.zeros((shown.size, shown.size + 1), dtype=int)
    for code, guess in zip(true.tolist(), predicted.tolist(), strict=True):
        if code in place:
            table[place[code], place.get(guess, shown.size)] += 1
    totals = np.maximum(table.sum(axis=1, keepdims=True), 1)
    shares = table / totals
    names = [comparison.class_name(int(code)) for code in shown]
    rest = bool(table[:, -1].any())
    width = shown.size + rest
    return {
        "names": [*names, "other"] if rest else names,
        "short": not rest and max(map(len, names)) <= 3,
        "confusion": [
            {
                "name": name,
                "cells": [
                    {
                        "count": int(table[i, j]),
                        "shade": shade(float(shares[i, j]), hit=i == j),
                        "strong": shade(float(shares[i, j]), hit=i == j) > 0.6,
                        "hit": i == j,
                        "tip": f"{name} taken for "
                        f"{names[j] if j < shown.size else 'another class'}: "
                        f"{table[i, j]:,} of {int(totals[i, 0]):,}",
                    }
                    for j in range(width)
                ],
            }
            for i, name in enumerate(names)
        ],
    }


def shade(share: float, hit: bool) -> float:
    """How dark a cell is; no shade lies where neither dark nor light text could be read."""
    # A root, so that a single mistake is seen.
    depth = share if hit else math.sqrt(share)
    return round(0.9 * depth if depth <= 0.6 else 0.85 + 0.15 * (depth - 0.6) / 0.4, 3)


def weights_view(comparison: Comparison) -> View:
    """Which features the learned distances weigh, and how stable that is."""
    methods = comparison.learners
    if comparison.best is not None:
        methods = [comparison.best, *(m for m in methods if m is not comparison.best)]
    panels, without = [], []
    for method in methods:
        table = shares_by_fold(comparison["weights"].get(method["name"]))
        if table is None:
            without.append(comparison.label(method["name"]))
        else:
            panels.append((method["name"], table))
    if not panels:
        return {"empty": "No learner gives weights of features."}
    return {
        "panels": [_weights_panel(comparison, name, table) for name, table in panels[:LEARNERS]],
        "without": listed(without),
        "without_many": len(without) > 1,
    }


def _weights_panel(comparison: Comparison, name: str, table: Any) -> View:
    features = comparison["weights"][name]["features"]
    mean, low, high = table.mean(axis=0), table.min(axis=0), table.max(axis=0)
    order = np.argsort(-mean, kind="stable")[:FEATURES]
    ranks = rankdata(-table, axis=1, method="average")
    largest = float(high[order].max())
    rows = []
    for i in order.tolist():
        feature = cut(features[i], 60)
        rows.append(
            {
                "feature": feature,
                "share": percent(mean[i]),
                "range": f"{percent(low[i])} to {percent(high[i])}",
                "ranks": _rank_range(ranks[:, i]),
                "chart": charts.bar(
                    mean[i], largest, f"{feature}: {percent(mean[i])}", (low[i], high[i])
                ),
            }
        )
    return {
        "label": comparison.label(name),
        "rows": rows,
        "more": len(features) - len(rows),
        "rest": percent(max(0.0, 1.0 - float(mean[order].sum()))),
        "folds": len(table),
        "stability": _stability(ranks),
        "image": _weight_image(comparison, mean),
    }


def _rank_range(ranks: Any) -> str:
    low, high = round(ranks.min()), round(ranks.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _stability(ranks: Any) -> View | None:
    """Mean rank correlation (Spearman) between folds."""
    folds, width = ranks.shape
    if folds < 2 or width < 2:
        return None
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(centred, axis=1)
    if not norms.all():
        return None
    correlations = (centred @ centred.T) / np.outer(norms, norms)
    mean = float(correlations[np.triu_indices(folds, 1)].mean())
    words = [(0.9, "very stable"), (0.7, "stable"), (0.4, "partly stable"), (-1.1, "unstable")]
    word = next(word for bound, word in words if mean >= bound)
    return {"value": f"{mean:.2f}".replace("-", "−"), "word": word}


def _weight_image(comparison: Comparison, mean: Any) -> str | None:
    """Weights of pixels as a picture, dark to light."""
    shape = comparison.data["image_shape"]
    if not shape or math.prod(shape) != mean.size or not comparison.shows_rows:
        return None
    pixels = mean.reshape(shape)
    pixels = pixels.sum(axis=2) if pixels.ndim == 3 else pixels
    return data_uri(255 * pixels / (pixels.max() or 1.0))


def cost_view(comparison: Comparison) -> View:
    """Seconds, memory, warnings, the settings chosen and how objectives went down."""
    ran = [m for m in comparison.methods if m["status"] in ("done", "unfinished")][:METHODS]
    curves: list[View] = []
    for name, history in comparison["histories"].items():
        values = [v for v in map(number, (history or {}).get("objective") or []) if v is not None]
        if len(values) < 2 or len(curves) >= LEARNERS:
            continue
        times = [v for v in map(number, history.get("seconds") or []) if v is not None]
        wide = min(values) > 0 and max(values) > 50 * min(values)
        label = comparison.label(name)
        said = f"{label}: objective from {significant(values[0])} to {significant(values[-1])}"
        curves.append(
            {
                "label": label,
                "first": significant(values[0]),
                "last": significant(values[-1]),
                "steps": f"{len(values) - 1:,}",
                "seconds": seconds(times[-1]) if times else "",
                "log": wide,
                "chart": charts.sparkline([math.log(v) for v in values] if wide else values, said),
            }
        )
    if not ran and not curves:
        return {"empty": "No method finished a fold, so there are no costs."}
    return {
        "rows": [_cost_row(comparison, method) for method in ran],
        "curves": curves,
        "total": seconds(comparison["seconds"]).replace(NONE, ""),
    }


def _cost_row(comparison: Comparison, method: Method) -> View:
    results = method["results"]
    settings = Counter(cut(r["setting"], 120) for r in results if r.get("setting"))
    ks = sorted(r["k"] for r in results if number(r.get("k")) is not None)
    warned = Counter(cut(text, 240) for r in results for text in r.get("warnings") or [])
    k = ""
    if ks:
        k = f"{ks[0]}" if ks[0] == ks[-1] else f"{ks[0]} to {ks[-1]}"
    return {
        "label": comparison.label(method["name"]),
        "role": method["role"],
        "tune": seconds(method["tune_seconds"]),
        "fit": seconds(method["fit_seconds"]),
        "predict": seconds(method["predict_seconds"]),
        "mb": megabytes(method["peak_mb"]),
        "k": k or NONE,
        "settings": _counted(settings, 3),
        "warnings": _counted(warned, 3),
        "sort": {"label": comparison.label(method["name"]).casefold()}
        | sort_keys(method, "tune", "fit", "predict", "mb"),
    }


def _counted(found: Counter[str], limit: int) -> list[View]:
    lines = [{"text": text, "times": times} for text, times in found.most_common(limit)]
    if len(found) > limit:
        lines.append({"text": f"… and {count(len(found) - limit, 'other')}", "times": None})
    return lines


def protocol_view(comparison: Comparison) -> View:
    """How it was done, and how to do it again."""
    protocol = comparison.protocol
    gain = number(protocol["min_gain"])
    budget = number(protocol["time_budget"])
    over = (
        f"over the {tested(comparison.noun)}"
        if comparison.fixed
        else f"corrected for folds that share training {comparison.noun}s"
    )
    facts = [
        ("Test" if comparison.fixed else "Folds", cut(protocol["scheme"], 200) or NONE),
        ("Seed", _whole(protocol["seed"])),
        ("Measure", cut(protocol["measure"], 80)),
        ("Intervals", f"{comparison.confidence}, {over}"),
        ("Smallest gain that counts", NONE if gain is None else f"{percent(gain)} of the error"),
        ("Tuning", ": ".join(filter(None, _texts(protocol["tuning"], protocol["tuning_note"])))),
        ("Time budget", "none" if budget is None else _with_unit(seconds(budget))),
        ("Time used", _with_unit(seconds(comparison["seconds"]))),
        ("Status", cut(comparison["status"], 80)),
        ("Machine", cut(comparison["machine"], 120) or NONE),
        ("Made", moment(comparison["created"]) or NONE),
    ]
    versions = list(comparison["versions"].items())[:20]
    return {
        "noun": comparison.noun,
        "tested": tested(comparison.noun),
        "facts": [(title, value) for title, value in facts if value not in (NONE, "")],
        "versions": [(cut(name, 40), cut(version, 40)) for name, version in versions],
        "notes": cut_list(protocol["notes"], LINES),
        "plan": cut_list(protocol["plan"], LINES),
        "command": cut_lines(comparison["command"], 4000).strip(),
        "code": cut_lines(comparison["code"]).strip("\n"),
        "fixed": comparison.fixed,
        "folds": _folds(comparison),
        "folds_more": max(0, len(comparison["folds"]) - FOLDS),
    }


def _with_unit(text: str) -> str:
    return text if text == NONE else f"{text}{SPACE}s"


def _texts(*texts: Any) -> list[str]:
    return [cut(text, 400) for text in texts]


def _folds(comparison: Comparison) -> list[View]:
    """Sizes and a fingerprint of each fold; row numbers too, where they are few."""
    folds = comparison["folds"]
    few = sum(len(fold.get("test") or []) for fold in folds) <= ROW_NUMBERS
    common = set(comparison["common_folds"])
    views = []
    for index, fold in enumerate(folds[:FOLDS]):
        rows = sorted(fold.get("test") or [])
        listing = " ".join(map(str, rows))
        views.append(
            {
                "repeat": (fold.get("repeat") or 0) + 1,
                "fold": (fold.get("fold") or 0) + 1,
                "train": _whole(fold.get("n_train")),
                "test": _whole(fold.get("n_test")),
                "common": index in common,
                "print": hashlib.sha256(listing.encode()).hexdigest()[:12] if rows else NONE,
                "rows": listing if few else "",
            }
        )
    return views


def _difference_scale(methods: list[Method]) -> charts.Scale:
    values = []
    for method in methods:
        values += list(pair(method["difference_interval"]) or ())
        if (value := number(method["difference"])) is not None:
            values.append(value)
    return charts.difference_scale(values)


def _smallest_gain(comparison: Comparison) -> float | None:
    """The difference that a recommendation needs: relative to the reference's error."""
    reference, gain = comparison.reference, number(comparison.protocol["min_gain"])
    error = number(reference["error"]) if reference else None
    return None if gain is None or error is None else comparison.sense * gain * error


def _kind(comparison: Comparison, method: Method) -> str:
    """What the interval says: better, worse or unclear."""
    ends = pair(method["difference_interval"])
    if ends is None or ends[0] <= 0 <= ends[1]:
        return "unclear"
    return "better" if ends[0] * comparison.sense > 0 else "worse"


def _usual_setting(method: Method) -> str:
    settings = Counter(cut(r["setting"], 60) for r in method["results"] if r.get("setting"))
    total = sum(settings.values())
    return listed([f"{text} in {n} of {total}" for text, n in settings.most_common()], 3)


def sort_keys(method: Method, *names: str) -> dict[str, str]:
    """Numbers of columns for the script that sorts; empty ones go last."""
    found = {name: number(method.get(_KEYS.get(name, name))) for name in names}
    return {name: "" if value is None else repr(value) for name, value in found.items()}


def _whole(value: Any) -> str:
    found = number(value)
    return NONE if found is None else f"{found:,.0f}"
