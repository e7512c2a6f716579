"""Errors of each class, and what is taken for what."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nearfar.app.compare.shown import PAIR_ROWS, confused_pairs
from nearfar.app.report import charts
from nearfar.app.report.comparison import Comparison
from nearfar.app.report.words import percent

View = dict[str, Any]

CLASSES = 25
PAIR_COLUMNS = 4
ROW_NUMBERS = 200  # of a pair, written out


def classes_view(comparison: Comparison) -> View:
    """Errors of each class, and what the best learner takes for what."""
    reference, best, held_out = comparison.reference, comparison.best, comparison.held_out
    empty = {"empty": f"No learner has predictions of held-out {comparison.noun}s."}
    guesses = held_out["predicted"].get(best["name"]) if best else None
    if best is None or not guesses:
        return empty
    others = (held_out["predicted"].get(reference["name"]) if reference else None) or None
    n_classes = len(comparison.data["classes"])
    # Without a baseline, the classes keep their order.
    true, after, before = _codes(n_classes, held_out["true"], guesses, others or guesses)
    if not true.size:
        return empty
    sizes = np.bincount(true, minlength=n_classes)
    wrong, wrong_before = (
        np.bincount(true[true != taken], minlength=n_classes) for taken in (after, before)
    )
    shown = present = np.flatnonzero(sizes)
    if present.size > CLASSES:
        # The classes with the most errors, then the highest rates.
        rates = wrong[present] / sizes[present]
        shown = present[np.sort(np.lexsort((-rates, -wrong[present]))[:CLASSES])]
    rows, largest = _class_rows(comparison, shown, sizes, wrong, wrong_before)
    return {
        "best": comparison.label(best["name"]),
        "reference": comparison.label(reference["name"]) if reference and others else None,
        "reference_inside": comparison.label_inside(reference["name"]) if reference else None,
        "n": int(true.size),
        "of": "the test set" if comparison.fixed else "the first repeat",
        "again": comparison.tested_again,
        "shown": int(shown.size),
        "total": int(present.size),
        "rows": rows,
        "largest": largest,
        **_confusion(comparison, shown, true, after),
        **_pairs(comparison, sizes, true, before if others else None),
    }


def _pairs(comparison: Comparison, sizes: Any, true: Any, before: Any) -> View:
    """The classes that are confused most often, and their rows."""
    columns, names = comparison.telling_columns(PAIR_COLUMNS), []
    if comparison.shows_rows:
        names = [comparison.column_name(comparison["rows"]["columns"][c]) for c in columns]
    pairs = []
    for pair in confused_pairs(comparison):
        shown = pair.rows[:PAIR_ROWS]
        others = [str(row) for row in pair.rows[PAIR_ROWS : PAIR_ROWS + ROW_NUMBERS]]
        old = None if before is None else int(np.sum(before[true == pair.label] == pair.taken_for))
        pairs.append(
            {
                "label": comparison.class_name(pair.label),
                "taken_for": comparison.class_name(pair.taken_for),
                "n": f"{len(pair.rows):,}",
                "of": f"{int(sizes[pair.label]):,}",
                "before": "" if old is None else f"{old:,}",
                "rows": [
                    {
                        "row": comparison.row_name(row) or row,
                        "label": comparison.class_name(pair.label),
                        "values": comparison.row_values(row, columns) or [""] * len(names),
                        "image": comparison.row_image(row),
                    }
                    for row in shown
                ],
                "others": ", ".join(others),
                "more": max(0, len(pair.rows) - PAIR_ROWS - len(others)),
            }
        )
    return {"pairs": pairs, "pair_columns": names}


def _codes(n_classes: int, *lists: Any) -> Any:
    """Codes as arrays, for the rows that all of them know."""
    columns = [
        column
        for column in zip(*lists, strict=False)
        if all(isinstance(code, int) and 0 <= code < n_classes for code in column)
    ]
    return np.array(columns, dtype=int).reshape(-1, len(lists)).T


def _class_rows(
    comparison: Comparison, shown: Any, sizes: Any, wrong: Any, wrong_before: Any
) -> tuple[list[View], str]:
    rates, rates_before = wrong[shown] / sizes[shown], wrong_before[shown] / sizes[shown]
    largest = float(max(rates.max(), rates_before.max(), 0.01))
    scale = charts.Scale(0.0, largest)
    rows = []
    for code, old, new in zip(shown, rates_before.tolist(), rates.tolist(), strict=True):
        name, before, after = comparison.class_name(int(code)), percent(old), percent(new)
        rows.append(
            {
                "name": name,
                "rows": f"{int(sizes[code]):,}",
                "before": before,
                "after": after,
                "kind": "better" if new < old else "worse" if new > old else "even",
                "chart": charts.dumbbell(scale, old, new, f"{name}: from {before} to {after}"),
                "sort": {"before": old, "after": new},
            }
        )
    return rows, percent(largest)


def _confusion(comparison: Comparison, shown: Any, true: Any, predicted: Any) -> View:
    place = {int(code): i for i, code in enumerate(shown)}
    table = np.zeros((shown.size, shown.size + 1), dtype=int)
    for code, guess in zip(true.tolist(), predicted.tolist(), strict=True):
        if code in place:
            table[place[code], place.get(guess, shown.size)] += 1
    names = [comparison.class_name(int(code)) for code in shown]
    rest = bool(table[:, -1].any())
    taken_for = [*names, "another class"] if rest else names

    def cell(i: int, j: int) -> View:
        found, total = int(table[i, j]), int(table[i].sum())
        depth = shade(found / max(total, 1), hit=i == j)
        tip = f"{names[i]} taken for {taken_for[j]}: {found:,} of {max(total, 1):,}"
        return {"count": found, "shade": depth, "strong": depth > 0.6, "hit": i == j, "tip": tip}

    return {
        "names": [*names, "other"] if rest else names,
        "short": not rest and max(map(len, names)) <= 3,
        "confusion": [
            {"name": name, "cells": [cell(i, j) for j in range(len(taken_for))]}
            for i, name in enumerate(names)
        ],
    }


def shade(share: float, hit: bool) -> float:
    """How dark a cell is; no shade lies where neither dark nor light text could be read."""
    # A root, so that a single mistake is seen.
    depth = share if hit else math.sqrt(share)
    return round(0.9 * depth if depth <= 0.6 else 0.85 + 0.15 * (depth - 0.6) / 0.4, 3)
