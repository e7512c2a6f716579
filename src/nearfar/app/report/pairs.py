"""The report of a comparison by pairs: distances of both kinds, curves, thresholds, errors."""

from __future__ import annotations

from typing import Any

from nearfar.app.compare.shown import wrong_pairs
from nearfar.app.report import charts
from nearfar.app.report.answer import answer_view
from nearfar.app.report.board import LEARNERS, cost_view, leaderboard_view
from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.data import data_view, protocol_view
from nearfar.app.report.paired import paired_view
from nearfar.app.report.weights import weights_view
from nearfar.app.report.words import NONE, cut, listed, number, pair, percent, significant
from nearfar.words import format_count

View = dict[str, Any]

COLUMNS = 5  # of a pair that is shown


def pairs_view(comparison: Comparison) -> View:
    """Everything the template of pairs asks for."""
    return {
        "noun": comparison.noun,
        "answer": answer_view(comparison),
        "data": data_view(comparison),
        "leaderboard": leaderboard_view(comparison),
        "paired": paired_view(comparison),
        "distances": distances_view(comparison),
        "roc": roc_view(comparison),
        "wrong": wrong_view(comparison),
        "weights": weights_view(comparison),
        "cost": cost_view(comparison),
        "protocol": _protocol(comparison),
    }


def _shown(comparison: Comparison) -> list[tuple[Method, View]]:
    """The answer's learner and the baseline, then the other learners, with what is drawn."""
    found = comparison["pairs"]["methods"]
    first = [m for m in (comparison.best, comparison.reference) if m is not None]
    others = [m for m in comparison.learners if m not in first]
    return [(m, found[m["name"]]) for m in [*first, *others] if found.get(m["name"])][:LEARNERS]


# Distances


def distances_view(comparison: Comparison) -> View:
    """Histograms of both kinds for the answer's learner and the baseline, and all thresholds."""
    shown = _shown(comparison)
    if not shown:
        return {"empty": "No distances are known: no fold of the first repeat was finished."}
    rule = comparison["pairs"]["strategy"]
    return {
        "panels": [_panel(comparison, m, d) for m, d in shown[:2]],
        "rows": [_threshold(comparison, m, d) for m, d in shown],
        "rule": {
            "accuracy": "so that most of the training pairs are called rightly",
            "f_beta": "by F1 of the alike pairs, since one kind is much rarer than the other",
        }.get(rule, ""),
    }


def _panel(comparison: Comparison, method: Method, drawn: View) -> View:
    label = comparison.label(method["name"])
    said = (
        f"{label}: distances of alike pairs above, of different pairs below; at the threshold "
        f"{percent(drawn['missed'])} of the alike pairs are called different, "
        f"{percent(drawn['false_alike'])} of the different ones alike"
    )
    beyond = int(number(drawn["beyond"]) or 0)
    return {
        "label": label,
        "role": method["role"],
        "auc": comparison.level(method["error"]),
        "chart": charts.mirrored(
            drawn["edges"], drawn["alike"], drawn["different"], drawn["threshold"], said
        ),
        "missed": percent(drawn["missed"]),
        "false_alike": percent(drawn["false_alike"]),
        "beyond": format_count(beyond, "pair") if beyond else "",
        "plural": beyond != 1,
    }


def _threshold(comparison: Comparison, method: Method, drawn: View) -> View:
    ends = pair(drawn["thresholds"])
    alike, different = sum(drawn["alike"]), sum(drawn["different"])
    wrong = drawn["missed"] * alike + drawn["false_alike"] * different
    within = ""
    if ends is not None and significant(ends[0]) != significant(ends[1]):
        within = f"{significant(ends[0])} to {significant(ends[1])}"
    return {
        "label": comparison.label(method["name"]),
        "role": method["role"],
        "recommended": bool(method["recommended"]),
        "threshold": significant(drawn["threshold"]),
        "range": within,
        "missed": percent(drawn["missed"]),
        "false_alike": percent(drawn["false_alike"]),
        "wrong": percent(wrong / max(1, alike + different)),
        "sort": {
            "threshold": repr(drawn["threshold"]),
            "missed": repr(drawn["missed"]),
            "false_alike": repr(drawn["false_alike"]),
            "wrong": repr(wrong),
        },
    }


# Curves


def roc_view(comparison: Comparison) -> View:
    """All curves in one square, the answer's learner on top."""
    shown = _shown(comparison)
    if not shown:
        return {"empty": "There is no curve: no fold of the first repeat was finished."}
    curves, keys = [], []
    for method, drawn in shown:
        kind = "best" if method is comparison.best else method["role"]
        named = kind in ("best", "reference")
        point = (drawn["false_alike"], 1.0 - drawn["missed"]) if named else None
        curves.append(charts.Curve(drawn["roc"], kind, point))
        found = [_found(drawn["roc"], share) for share in (0.01, 0.05, 0.1)]
        keys.append(
            {
                "label": comparison.label(method["name"]),
                "kind": kind,
                "auc": comparison.level(method["error"]),
                "found": [percent(one) for one in found],
                "sort": [repr(one) for one in found],
            }
        )
    names = listed([f"{key['label']} {key['auc']}" for key in keys])
    return {
        "svg": charts.roc(curves[::-1], f"ROC curves of held-out pairs: {names}"),
        "keys": keys,
    }


def _found(heights: list[float], share: float) -> float:
    """The share of alike pairs found where so many different ones are called alike."""
    return heights[round(share * (len(heights) - 1))]


# Pairs that every method gets wrong


def wrong_view(comparison: Comparison) -> View:
    """The pairs on the wrong side of every threshold, by what was said of them."""
    found = comparison["pairs"]
    tested, n_wrong = int(found["n_tested"] or 0), int(found["n_wrong"] or 0)
    if not tested:
        return {"empty": "Nothing is known of single pairs: no fold of the first repeat was done."}
    methods = listed([cut(name, 40) for name in found["judged_by"]], 12)
    view: View = {
        "n": f"{n_wrong:,}",
        "of": f"{tested:,}",
        "share": percent(n_wrong / tested),
        "methods": methods,
        "several": len(found["judged_by"]) > 1,
        "hidden": not comparison.shows_rows,
        "groups": [],
        "one": n_wrong == 1,
    }
    columns = comparison.telling_columns(COLUMNS)
    named = comparison["rows"]["columns"] if comparison.shows_rows else []
    n_alike = int(found["n_wrong_alike"] or 0)
    for title, alike, many in (
        ("said to be alike, far apart by all", True, n_alike),
        ("said to be different, near by all", False, n_wrong - n_alike),
    ):
        entries = wrong_pairs(found, alike)
        view["groups"].append(
            {
                "title": title,
                "total": many,
                "cards": [_card(comparison, one, columns) for one in entries],
            }
        )
    by = comparison.best or comparison.reference
    names = comparison["rows"]["names"] if comparison.shows_rows else {}
    return view | {
        "columns": [comparison.column_name(named[c]) for c in columns],
        "by": comparison.label(by["name"]) if by is not None else "",
        "numbered": not names,
        "head": "Id" if names else "Row",
    }


def _card(comparison: Comparison, found: View, columns: list[int]) -> View:
    by = comparison.best or comparison.reference
    ratio = number(found["ratios"].get(by["name"])) if by is not None else None
    return {
        "rows": [
            {
                "row": comparison.row_name(row) or f"{row:,}",
                "label": "",
                "values": comparison.row_values(row, columns) or [],
                "image": comparison.row_image(row),
            }
            for row in found["rows"]
        ],
        "times": NONE if ratio is None else f"{significant(ratio)} ×",
    }


def _protocol(comparison: Comparison) -> View:
    view = protocol_view(comparison)
    gain = number(comparison.protocol["min_gain"])
    own = {
        "Smallest gain that counts": NONE
        if gain is None
        else f"{percent(gain)} of what the baseline lacks of an AUC of 100%",
    }
    return view | {"facts": [(title, own.get(title, value)) for title, value in view["facts"]]}
