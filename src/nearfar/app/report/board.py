"""All methods in a table: what they reach, and what they cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

from nearfar.app.compare.comparison import times_text
from nearfar.app.report import charts, votes
from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.csv_table import csv_address, csv_name, csv_text
from nearfar.app.report.words import (
    NONE,
    cut,
    interval,
    listed,
    megabytes,
    number,
    p_value,
    pair,
    percent,
    points,
    seconds,
    significant,
)
from nearfar.words import format_count

View = dict[str, Any]

METHODS = 60  # rows of a table
LEARNERS = 20  # in charts

# Keys of a method by the columns that show them.
_KEYS = {
    "p": "p_holm",
    "folds": "folds_used",
    "tune": "tune_seconds",
    "fit": "fit_seconds",
    "predict": "predict_seconds",
    "mb": "peak_mb",
}


#: What a method does that gains, by the kind of what is compared.
_GAINS = {"pairs": "does better", "values": "is nearer to the truth"}


def leaderboard_view(comparison: Comparison) -> View:
    """All methods, finished or not."""
    if not comparison.methods:
        return {"empty": "No method was run."}
    nested, methods = comparison["nested"], comparison.methods[:METHODS]
    return board(comparison, _leaderboard_cells, ticks=4, note=400) | {
        "measure": comparison.measure,
        "higher": comparison.higher_is_better,
        "rule": _rule(comparison),
        "gains": _GAINS.get(comparison["kind"], "makes fewer errors"),
        "others": "regressors" if comparison["kind"] == "values" else "classifiers",
        "one": "measure" if comparison["kind"] == "pairs" else "predict",
        "nested": None if not nested else _nested(comparison, nested),
        "inside": comparison.inside,
        "any_context": any(m["role"] == "context" for m in methods),
        "ties": votes.note(comparison),
    }


def _rule(comparison: Comparison) -> str:
    if comparison.higher_is_better:
        return "The higher the AUC, the better."
    return f"{comparison.measure} on held-out {comparison.noun}s, lower is better."


def _leaderboard_cells(comparison: Comparison, method: Method) -> View:
    plain = votes.plain_error(comparison, method)
    error, other = comparison.level(method["error"]), percent(plain and plain[1])
    cost = predict_cost(comparison, method)
    return {
        "plain_vote": "" if plain is None or other == percent(plain[0]) else other,
        "predict": NONE if cost is None else significant(cost, 2),
        "setting": _usual_setting(method) if method["role"] == "reference" else "",
        "dear": _dear_words(method),
        "error": error,
        "p": p_value(method["p_holm"]),
        "sort": sort_keys(method, "auc" if comparison.higher_is_better else "error", "p")
        | {"predict": "" if cost is None else repr(cost)},
    }


def _dear_words(method: Method) -> str:
    """Return how much longer prediction takes than with standard k-NN."""
    times = number(method["times_plain"])
    if times is None:
        return ""
    said = times_text(times)
    return (
        f"predicting takes {said} {'than' if said.endswith('longer') else 'as'} with standard k-NN"
    )


def predict_cost(comparison: Comparison, method: Method) -> float | None:
    """Microseconds to predict one row, the median of the folds; None where unknown."""
    folds, found = comparison["folds"], []
    for result in method["results"]:
        index, spent = result["fold"], number(result.get("predict_seconds"))
        size = number(folds[index].get("n_test")) if 0 <= index < len(folds) else None
        if spent is not None and size:
            found.append(1e6 * spent / size)
    return median(found) if found else None


def _usual_setting(method: Method) -> str:
    settings = Counter(cut(r["setting"], 60) for r in method["results"] if r.get("setting"))
    total = sum(settings.values())
    return listed([f"{text} in {n} of {total}" for text, n in settings.most_common()], 3)


def _nested(comparison: Comparison, nested: View) -> View:
    chosen = sorted((nested.get("chosen") or {}).items(), key=lambda item: -item[1])
    return {
        "error": comparison.level(nested.get("error")),
        "interval": interval(comparison.levels(nested.get("interval"))),
        "chosen": listed(
            [f"{comparison.label_inside(name)} {format_count(n, 'time')}" for name, n in chosen]
        ),
    }


def board(
    comparison: Comparison, cells: Callable[[Comparison, Method], View], *, ticks: int, note: int
) -> View:
    """A leaderboard: what those of all comparisons have, and the cells of one's own."""
    compared = [m for m in comparison.methods if m["role"] != "context"]
    scale = _gain_scale([m for m in compared if m["role"] == "learner"] or compared)
    threshold = _smallest_gain(comparison)
    shown = comparison.methods[:METHODS]
    rows = []
    for method in shown:
        row, own = _board_row(comparison, method, scale, threshold), cells(comparison, method)
        rows.append(row | own | {"sort": row["sort"] | own["sort"]})
    return {
        "rows": rows,
        "more": len(comparison.methods) - len(shown),
        "axis": charts.axis(scale, ticks),
        "measure_note": cut(comparison.protocol["measure_note"], note),
        "confidence": comparison.confidence,
        "threshold": None if threshold is None else points(threshold, unit=True),
        "csv": csv_text(comparison, shown),
        "csv_address": csv_address(comparison, shown),
        "csv_name": csv_name(comparison),
        "left_out": [
            (comparison.label(method["name"]), cut(method["reason"], 300))
            for method in comparison.methods
            if method["status"] == "left out"
        ],
    }


def _board_row(
    comparison: Comparison, method: Method, scale: charts.Scale, threshold: float | None
) -> View:
    label, kind = comparison.label(method["name"]), comparison.kind(method)
    value, ends = number(method["gain"]), pair(method["gain_interval"])
    forest = None
    if method["role"] == "reference":
        forest = charts.forest(scale, None, None, "", f"{label}: the baseline", threshold)
    elif value is not None and method["status"] != "failed":
        within = f", {comparison.said_interval(ends, points)}" if ends else ""
        said = f"{label}: gain {points(value, unit=True)}{within}"
        forest = charts.forest(scale, value, ends, kind, said, threshold)
    return {
        "label": label,
        "role": method["role"],
        "status": method["status"],
        "reason": cut(method["reason"], 400),
        "recommended": bool(method["recommended"]),
        "interval": interval(method["interval"]),
        "gain": points(value),
        "gain_interval": interval(ends, points),
        "kind": kind,
        "forest": forest,
        "folds": comparison.folds_said(method),
        "fit": seconds(method["fit_seconds"]),
        "mb": megabytes(method["peak_mb"]),
        "not_converged": method["not_converged"] or 0,
        "sort": {"label": label.casefold()} | sort_keys(method, "gain", "folds", "fit", "mb"),
    }


def _gain_scale(methods: list[Method]) -> charts.Scale:
    values = [end for method in methods for end in pair(method["gain_interval"]) or ()]
    means = [number(method["gain"]) for method in methods]
    return charts.difference_scale(values + [mean for mean in means if mean is not None])


def _smallest_gain(comparison: Comparison) -> float | None:
    """Return the minimum gain for a recommendation, computed from the baseline's error."""
    reference, gain = comparison.reference, number(comparison.protocol["min_gain"])
    error = number(reference["error"]) if reference else None
    return None if gain is None or error is None else gain * error


def sort_keys(method: Method, *names: str) -> dict[str, str]:
    """Numbers of columns for the script that sorts; empty ones go last."""
    found = {name: number(method.get(_KEYS.get(name, name))) for name in names}
    return {name: "" if value is None else repr(value) for name, value in found.items()}


# Cost


def cost_view(comparison: Comparison) -> View:
    """Seconds, memory, warnings, the settings chosen and how objectives went down."""
    ran = [m for m in comparison.methods if m["status"] in ("done", "unfinished")][:METHODS]
    found = [_curve(comparison.label(name), h) for name, h in comparison["histories"].items()]
    curves = [curve for curve in found if curve is not None][:LEARNERS]
    if not ran and not curves:
        return {"empty": "No method finished a fold, so there are no costs."}
    return {
        "rows": [_cost_row(comparison, method) for method in ran],
        "planes": planes(comparison, ran),
        "curves": curves,
        "total": seconds(comparison["seconds"]).replace(NONE, ""),
        "what": _lacking(comparison),
        "votes": comparison["kind"] != "pairs",
    }


def _lacking(comparison: Comparison, measure: str = "Error") -> str:
    """What is the less the better."""
    return "1 − AUC" if comparison["kind"] == "pairs" else measure


def _curve(label: str, history: View | None) -> View | None:
    """How an objective went down; None where that is not known."""
    values, times = (
        [v for v in map(number, (history or {}).get(key) or []) if v is not None]
        for key in ("objective", "seconds")
    )
    if len(values) < 2:
        return None
    wide = min(values) > 0 and max(values) > 50 * min(values)
    first, last = significant(values[0]), significant(values[-1])
    drawn = [math.log(value) for value in values] if wide else values
    return {
        "label": label,
        "first": first,
        "last": last,
        "steps": f"{len(values) - 1:,}",
        "seconds": seconds(times[-1]) if times else "",
        "log": wide,
        "chart": charts.sparkline(drawn, f"{label}: objective from {first} to {last}"),
    }


def _cost_row(comparison: Comparison, method: Method) -> View:
    results, label = method["results"], comparison.label(method["name"])
    settings = Counter(cut(r["setting"], 120) for r in results if r.get("setting"))
    ks = [r["k"] for r in results if number(r.get("k")) is not None]
    warned = Counter(cut(text, 240) for r in results for text in r.get("warnings") or [])
    return {
        "label": label,
        "role": method["role"],
        **{key: seconds(method[_KEYS[key]]) for key in ("tune", "fit", "predict")},
        "each": NONE
        if (cost := predict_cost(comparison, method)) is None
        else significant(cost, 2),
        "mb": megabytes(method["peak_mb"]),
        "k": " to ".join(dict.fromkeys(str(end) for end in (min(ks), max(ks)))) if ks else NONE,
        "settings": _counted(settings),
        "warnings": _counted(warned),
        "sort": {"label": label.casefold(), "each": "" if cost is None else repr(cost)}
        | sort_keys(method, "tune", "fit", "predict", "mb"),
    }


# Error against cost


def planes(comparison: Comparison, methods: list[Method]) -> list[View]:
    """Errors against the seconds of a fit, and against what the prediction of a row takes."""
    # The best standard distance is one of the standard distances, which are drawn.
    plain = any(method["role"] == "baseline" for method in methods)
    drawn = [method for method in methods if not (plain and method["role"] == "reference")]
    one = "Measure one" if comparison["kind"] == "pairs" else "Predict one"
    kinds: list[tuple[str, str, Callable[[Method], float | None]]] = [
        ("Fit", "s", lambda method: number(method["fit_seconds"])),
        (one, "µs", lambda method: predict_cost(comparison, method)),
    ]
    found = [_plane(comparison, drawn[:LEARNERS], *kind) for kind in kinds]
    return [view for view in found if view is not None]


def _plane(
    comparison: Comparison,
    methods: list[Method],
    title: str,
    unit: str,
    cost: Callable[[Method], float | None],
) -> View | None:
    known = [
        (method, spent, error)
        for method in methods
        if (spent := cost(method)) and spent > 0 and (error := number(method["error"])) is not None
    ]
    if len(known) < 2:
        return None
    distances = [(spent, error) for m, spent, error in known if m["role"] != "context"]
    front = pareto(distances)
    # A method far worse than the baseline would compress the scale; it is drawn at the edge.
    reference = comparison.reference and number(comparison.reference["error"])
    errors = [error for _, _, error in known]
    limit = max(3 * (reference or max(errors)), 2.5 * min(errors))
    within = [error for error in errors if error <= limit] or errors
    low, high = min(within), max(within)
    pad = max(0.12 * (high - low), 0.005)
    up = charts.Scale(max(0.0, low - pad), high + pad)
    powers = [math.log10(spent) for _, spent, _ in known]
    across = charts.Scale(min(powers) - 0.25, max(powers) + 0.25)
    marks, edge = [], []
    for (method, spent, error), power in zip(known, powers, strict=True):
        label, role = comparison.label(method["name"]), method["role"]
        outside = error > up.high
        edge += [label] if outside else []
        marks.append(
            charts.Mark(
                power,
                min(error, up.high),
                cut(label, 24) + (f" {percent(error)} ↑" if outside else ""),
                f"{role} outside" if outside else role,
                f"{label}: {percent(error)}, {significant(spent, 2)} {unit}",
                role != "context" and (spent, error) in front,
            )
        )
    names = [comparison.label(m["name"]) for m, s, e in known if (s, e) in front]
    what = _lacking(comparison, comparison.measure)
    said = f"{what} against cost ({title}, {unit}): {listed(names)} on the front"
    return {
        "title": title,
        "unit": unit,
        "svg": charts.plane(across, up, marks, _powers(across), said),
        "front": listed(
            [
                comparison.label(m["name"])
                for m, s, e in sorted(known, key=lambda one: one[1])
                if m["role"] != "context" and (s, e) in front
            ]
        ),
        "edge": listed(edge),
    }


def pareto(points_: list[tuple[float, float]]) -> set[tuple[float, float]]:
    """Those of which no other has less of one and not more of the other.

    >>> sorted(pareto([(1, 5), (2, 3), (3, 4), (4, 1), (2, 9)]))
    [(1, 5), (2, 3), (4, 1)]
    """
    front, least = set(), math.inf
    for cost, error in sorted(points_):
        if error < least:
            front.add((cost, error))
            least = error
    return front


def _powers(across: charts.Scale) -> list[tuple[float, str]]:
    """Ticks at powers of ten; where there are fewer than two of them, at 2 and 5 times too."""
    low, high = math.floor(across.low), math.ceil(across.high)
    for steps in ((1,), (1, 3), (1, 2, 5)):
        values = [step * 10.0**power for power in range(low, high + 1) for step in steps]
        found = [value for value in values if across.holds(math.log10(value))]
        if len(found) >= 3:
            break
    thin = max(1, -(-len(found) // 6))
    return [(math.log10(value), significant(value)) for value in found[::thin]]


def _counted(found: Counter[str], limit: int = 3) -> list[View]:
    lines = [{"text": text, "times": times} for text, times in found.most_common(limit)]
    if len(found) > limit:
        lines.append({"text": f"… and {format_count(len(found) - limit, 'other')}", "times": None})
    return lines
