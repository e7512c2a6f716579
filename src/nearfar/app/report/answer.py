"""The answer of a comparison: the verdict, and the numbers it rests on."""

from __future__ import annotations

from typing import Any

from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.page import figure
from nearfar.app.report.words import (
    SPACE,
    cut,
    cut_lines,
    cut_list,
    number,
    points,
    unbroken,
    whole,
)
from nearfar.words import format_adjusted_p, format_count

View = dict[str, Any]

NEXT = 6  # steps that are shown

VERDICTS = {
    "use": "Use a learned distance",
    "keep": "Keep the standard distance",
    "inconclusive": "Inconclusive",
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
    verdict = answer["verdict"] if answer["verdict"] in VERDICTS else "inconclusive"
    status = STATUSES.get(comparison["status"], "")
    if status and not comparison.fixed:
        done, planned = len(comparison["common_folds"]), len(comparison["folds"])
        status += f" Every compared method has {done:,} of {format_count(planned, 'fold')}."
    return {
        "verdict": verdict,
        "word": VERDICTS[verdict],
        "head": head + mark.rstrip() if rest else head,
        "rest": rest,
        "long": len(text) > 220,
        "notes": [unbroken(note) for note in cut_list(answer["notes"], 12, 600)],
        "status": status,
        "scope": scope(comparison),
        "figures": _figures(comparison),
        "next": [
            {"text": cut(step.get("text"), 300), "command": cut_lines(step.get("command"), 2000)}
            for step in comparison["next"][:NEXT]
        ],
    }


def _figures(comparison: Comparison) -> list[View]:
    """Up to five numbers: before, after, the gain, after selection, and on all rows."""
    figures: list[View] = []
    reference, best, nested = comparison.reference, comparison.best, comparison["nested"]
    for method, title in ((reference, "Baseline"), (best, "Best learner")):
        if method is not None and number(method["error"]) is not None:
            title = f"{title}: {comparison.label_inside(method['name'])}"
            note = f"{comparison.measure_inside}, {comparison.said_interval(method['interval'])}"
            figures.append(figure(title, comparison.level(method["error"]), note))
    figures += gain_figure(comparison, best)
    if nested:
        said = comparison.said_interval(comparison.levels(nested.get("interval")))
        note = f"value to expect when the method is selected in this way, {said}"
        title = f"Method selected within {comparison.inside}"
        figures.append(figure(title, comparison.level(nested.get("error")), note))
    return figures + _second_stage(comparison)


def _second_stage(comparison: Comparison) -> list[View]:
    """Return the results of one fit to all rows after a comparison on a sample."""
    found, noun = comparison["all_rows"] or {}, comparison.noun
    results = found.get("results") or {}
    errors = [number((results.get(role) or {}).get("error")) for role in ("learner", "reference")]
    if None in errors:
        return []
    after, before = errors
    labels = [cut(results[role].get("label"), 60) for role in ("learner", "reference")]
    sizes = f"{whole(found.get('n_train'))} to train, {whole(found.get('n_test'))} held out"
    gain = points((before or 0.0) - (after or 0.0), unit=True)
    note = f"{labels[1]} {comparison.level(before)}, gain {gain}; one split, no CI ({sizes})"
    return [figure(f"On all {noun}s: {labels[0]}", comparison.level(after), note)]


def scope(comparison: Comparison) -> str:
    """How many of the rows were compared on, where it was not all."""
    used, every = number(comparison.protocol["n_rows_used"]), number(comparison.data["n_rows"])
    if used is None or every is None or used >= every:
        return ""
    text = f"Compared on {used:,.0f} of {every:,.0f} {comparison.noun}s."
    reason = (comparison["all_rows"] or {}).get("reason")
    if reason:
        text += f" The result was not confirmed on all {comparison.noun}s: {cut(reason, 200)}."
    return text


def gain_figure(comparison: Comparison, method: Method | None) -> list[View]:
    """Return the gain of a method over the baseline, or the gain that the answer claims."""
    said = comparison["answer"].get("gain") or {}
    if number(said.get("gain")) is not None:
        title = f"Gain over {cut(said.get('over'), 60)}"
        note = comparison.said_interval(said.get("interval"), points)
        return [figure(title, points(said["gain"], unit=True), note)]
    if method is None or number(method["gain"]) is None:
        return []
    note = comparison.said_interval(method["gain_interval"], points)
    if number(method["p_holm"]) is not None:
        p = format_adjusted_p(method["p_holm"]).replace(" ", SPACE)
        note += f", {p}"
    return [figure("Gain", points(method["gain"], unit=True), note)]
