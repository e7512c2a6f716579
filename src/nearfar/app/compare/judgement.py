"""From errors fold by fold to one of three sentences.

A learner is recommended only if its gain over the reference is shown (the corrected interval lies
off zero) and worth having (``min_gain``). Holm's p over all learners is given beside it; where it
exceeds 5 % the sentence asks for a confirmation on new rows. Where intervals alone would let more
than 5 % of comparisons without a difference end in a recommendation (more than three learners, a
fixed test set), Holm's p must be below 5 % as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nearfar.evaluation.inference import Estimate, holm, rows_to_decide
from nearfar.words import p_text, percent, points, seconds_text, tested

Verdict = Literal["use", "keep", "unsure"]

#: Up to so many learners the intervals by themselves keep false recommendations below 5 %.
FEW_LEARNERS = 3
#: The interval of two folds is no guide, however far it lies from zero.
LEAST_DEGREES = 2


@dataclass(frozen=True)
class Comparand:
    """A learner beside the reference."""

    error: float
    #: Learner minus reference: below zero is a gain.
    difference: Estimate
    p: float
    p_holm: float
    #: The interval lies off zero and the gain is worth having.
    stands_out: bool
    #: And it is not one of too many tries.
    recommended: bool


@dataclass(frozen=True)
class Judgement:
    """The verdict, the learner it is about, and every learner's numbers."""

    verdict: Verdict
    #: The learner to use; of the others the one that came nearest.
    method: str | None
    reference_error: float
    comparands: dict[str, Comparand] = field(default_factory=dict)


def judge(
    reference_error: float,
    errors: Mapping[str, float],
    differences: Mapping[str, Estimate],
    *,
    min_gain: float = 0.05,
    confidence: float = 0.95,
    strict: bool = False,
) -> Judgement:
    """Weigh all learners against the reference.

    Parameters
    ----------
    reference_error : float
        Mean error of the reference.
    errors, differences : mapping
        For each learner its mean error and the paired difference to the reference.
    min_gain : float
        Least gain worth a recommendation, relative to the reference's error.
    strict : bool
        Require Holm's p, however few the learners.
    """
    names = list(errors)
    p = {name: differences[name].p_below_zero() for name in names}
    adjusted = dict(zip(names, holm(list(p.values())), strict=True))
    strict = strict or len(names) > FEW_LEARNERS
    comparands = {}
    for name in names:
        difference = differences[name]
        shown = difference.degrees >= LEAST_DEGREES and difference.interval(confidence)[1] < 0
        worth = -difference.mean > min_gain * reference_error
        stands_out = bool(shown and worth)
        surely = not strict or adjusted[name] <= 1 - confidence
        comparands[name] = Comparand(
            errors[name],
            difference,
            p[name],
            float(adjusted[name]),
            stands_out,
            bool(stands_out and surely),
        )
    by_error = sorted(names, key=lambda name: errors[name])
    chosen = [name for name in by_error if comparands[name].recommended]
    if chosen:
        return Judgement("use", chosen[0], reference_error, comparands)
    if not by_error:
        return Judgement("unsure", None, reference_error)
    nearly = [name for name in by_error if comparands[name].stands_out]
    best = (nearly or by_error)[0]
    # Nothing to decide where the best learner's gain is not even seen.
    if nearly or _may_gain(comparands[best], reference_error, min_gain):
        return Judgement("unsure", best, reference_error, comparands)
    return Judgement("keep", best, reference_error, comparands)


def _may_gain(comparand: Comparand, reference_error: float, min_gain: float) -> bool:
    if not comparand.difference.degrees > 0:
        return reference_error > 0  # no interval: nothing is known
    return -comparand.difference.mean > min_gain * reference_error


def sentence(
    judgement: Judgement,
    *,
    labels: Mapping[str, str],
    reference_label: str,
    measure: str,
    n_rows: int,
    fixed: bool = False,
    fit_seconds: Mapping[str, float],
    n_train: int,
    min_gain: float,
    nested_error: float | None,
    confidence: float = 0.95,
    noun: str = "row",
) -> str:
    """The answer in words; ``fixed`` is for a fixed test set, whose rows are then ``n_rows``.

    ``noun`` is what a row is called.
    """
    base = judgement.reference_error
    if judgement.method is None:
        return (
            f"Cannot tell: no learner was tested on enough folds to be judged; {reference_label} "
            f"makes {percent(base)} {measure}."
        )
    name, found = labels[judgement.method], judgement.comparands[judgement.method]
    gain = -found.difference.mean
    low, high = (-bound for bound in reversed(found.difference.interval(confidence)))
    known = found.difference.degrees > 0
    wide = f"{confidence:.0%} interval {points(low)} to {points(high)}".replace("%", " %")
    if judgement.verdict == "use":
        text = (
            f"Use {name}: {percent(found.error)} {measure} instead of {percent(base)} for the best "
            f"plain distance, a gain of {points(gain)} points ({wide}; one-sided "
            f"p {p_text(found.p_holm)} after Holm)."
        )
        if nested_error is not None:
            inside = f"the training {noun}s" if fixed else "each training fold"
            text += (
                f" Expect about {percent(nested_error)} on new data: that is the {measure} when "
                f"the method too is chosen inside {inside}."
            )
        if found.p_holm > 1 - confidence:
            text += (
                f" With {len(judgement.comparands)} learners tried, Holm's p is above "
                f"{percent(1 - confidence)}: confirm it on new {noun}s."
            )
        seconds = fit_seconds.get(judgement.method)
        if seconds is not None:
            text += f" Cost: {seconds_text(seconds)} to fit {n_train:,} {noun}s."
        return text
    if judgement.verdict == "keep":
        text = f"Keep {reference_label}, {percent(base)} {measure}: "
        if base == 0:
            return text + "it makes no mistakes that a learner could remove."
        if gain > 0:
            return text + (
                f"the best learner, {name}, gains {points(gain)} points ({wide}), which is less "
                f"than {percent(min_gain)} of that error, the least worth a change."
            )
        more = "as many" if gain == 0 else f"{points(-gain)} points more"
        return text + (
            f"no learner does better; the best, {name}, makes {percent(found.error)}, {more} "
            f"(gain: {wide})."
        )
    rows = tested(noun) if fixed else f"{noun}s"
    if found.difference.degrees < LEAST_DEGREES:
        few = (
            f"one test set gives an interval only where the error is a mean over {noun}s"
            if fixed
            else f"{'two folds are' if known else 'a single fold is'} too little to tell by"
        )
        return (
            f"Cannot tell: {name} makes {percent(found.error)} {measure}, {reference_label} "
            f"{percent(base)}, but {few}. Until then keep {reference_label}."
        )
    if found.stands_out:
        needed = rows_to_decide(
            found.difference, n_rows, 1 - 2 * (1 - confidence) / len(judgement.comparands)
        )
        return (
            f"Cannot tell: {name} seems {points(gain)} points better than {reference_label} "
            f"({percent(found.error)} against {percent(base)}; {wide}), but it is one of "
            f"{len(judgement.comparands)} learners tried, and after Holm's correction p is "
            f"{p_text(found.p_holm)}. Test it alone on new {noun}s; roughly "
            f"{_round_rows(needed):,} {rows} would show it among all (there are {n_rows:,}). Until "
            f"then keep {reference_label}."
        )
    needed = rows_to_decide(found.difference, n_rows, confidence)
    if needed <= 100 * n_rows:
        more = f"if the difference is real, roughly {_round_rows(needed):,} {rows} would show it"
    else:
        more = f"more than a hundred times as many {rows} would be needed to show it"
    return (
        f"Cannot tell: {name} seems {points(gain)} points better than {reference_label} "
        f"({percent(found.error)} against {percent(base)}), but the {wide} includes zero; {more} "
        f"(there are {n_rows:,}). Until then keep {reference_label}."
    )


def context_notes(
    clearer: Sequence[tuple[str, float]], measure: str, compared_with: str
) -> list[str]:
    """What to add when a classifier that is no distance predicts clearly better."""
    return [
        f"{label} makes {percent(error)} {measure}, clearly less than {compared_with}: if labels "
        "are all you need, use it. A distance is for neighbours, not for accuracy."
        for label, error in clearer
    ]


def _round_rows(rows: float) -> int:
    digits = max(0, int(np.floor(np.log10(rows))) - 1)
    return int(np.ceil(rows / 10**digits) * 10**digits)
