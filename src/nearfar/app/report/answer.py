"""The answer of a comparison: the verdict, and the numbers it rests on."""

from __future__ import annotations

from typing import Any

from nearfar.app.report.comparison import Comparison, Method
from nearfar.app.report.page import figure
from nearfar.app.report.words import (
    SPACE,
    cut,
    cut_list,
    number,
    p_value,
    percent,
    points,
    unbroken,
)
from nearfar.words import count

View = dict[str, Any]

VERDICTS = {
    "use": "Use a learned distance",
    "keep": "Keep the distance you have",
    "unsure": "Cannot tell yet",
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
    if status and not comparison.fixed:
        done, planned = len(comparison["common_folds"]), len(comparison["folds"])
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
            note = f"{comparison.measure.lower()}, {comparison.said_interval(method['interval'])}"
            figures.append(figure(title, percent(method["error"]), note))
    figures += difference_figure(comparison, best)
    if nested:
        said = comparison.said_interval(nested.get("interval"))
        note = f"what to expect of the choice itself, {said}"
        title = f"After choosing inside {comparison.inside}"
        figures.append(figure(title, percent(nested.get("error")), note))
    return figures


def difference_figure(comparison: Comparison, method: Method | None) -> list[View]:
    """The difference of a method to the reference, where it is known."""
    if method is None or number(method["difference"]) is None:
        return []
    note = comparison.said_interval(method["difference_interval"], points)
    if number(method["p_holm"]) is not None:
        p = f"p {p_value(method['p_holm'])}".replace(" ", SPACE)
        note += f"; {p} after Holm"
    return [figure("Difference", points(method["difference"], unit=True), note)]
