"""From errors fold by fold to one of three sentences.

A learner is recommended only if its gain over the reference is shown (the corrected interval lies
off zero) and worth having (``min_gain``). The plain distance is kept only if for every learner a
gain that would matter is excluded (one-sided, by the tested rows where that is possible); otherwise
nothing can be told. Holm's p over all learners is given beside it; where it exceeds 5 % the
sentence asks for a confirmation on new rows. Where intervals alone would let more than 5 % of
comparisons without a difference end in a recommendation (more than three learners, a fixed test
set), Holm's p must be below 5 % as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nearfar.app.compare.wording import Wording
from nearfar.evaluation.inference import Estimate, holm, rows_to_decide
from nearfar.words import p_text, percent, points, seconds_text, tested

Verdict = Literal["use", "keep", "unsure"]

#: Up to so many learners the intervals by themselves keep false recommendations below 5 %.
FEW_LEARNERS = 3
#: The interval of two folds is no guide, however far it lies from zero.
LEAST_DEGREES = 2
#: A gain of less matters to nobody, however small the reference's error.
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Comparand:
    """A learner beside the reference."""

    error: float
    #: Learner minus reference: below zero is a gain.
    difference: Estimate
    p: float
    p_holm: float
    #: A larger gain is excluded.
    most: float
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
    most: Mapping[str, float] | None = None,
    beats: Collection[str] | None = None,
    barred: Collection[str] = (),
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
    most : mapping, optional
        For each learner the largest gain that is not excluded; None takes it from the differences.
    beats : collection of str, optional
        The learners that do clearly better than every plain distance, where the reference was not
        the best of them: no other is recommended.
    barred : collection of str
        Learners that are not for use, for another reason than their errors. They were tried, and so
        they count in Holm's p, but the verdict is about the others.
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
        surely = surely and (beats is None or name in beats) and name not in barred
        comparands[name] = Comparand(
            errors[name],
            difference,
            p[name],
            float(adjusted[name]),
            most_gain(difference, confidence) if most is None else most[name],
            stands_out,
            bool(stands_out and surely),
        )
    by_error = sorted(set(names) - set(barred), key=lambda name: (errors[name], names.index(name)))
    chosen = [name for name in by_error if comparands[name].recommended]
    if chosen:
        return Judgement("use", chosen[0], reference_error, comparands)
    if not by_error:
        return Judgement("unsure", None, reference_error, comparands)
    nearly = [name for name in by_error if comparands[name].stands_out]
    matters = gain_that_matters(reference_error, min_gain)
    undecided = [
        name
        for name in by_error
        if comparands[name].difference.degrees < LEAST_DEGREES or comparands[name].most >= matters
    ]
    if nearly or undecided:
        best = (nearly or undecided)[0]
        return Judgement("unsure", best, reference_error, comparands)
    return Judgement("keep", by_error[0], reference_error, comparands)


def gain_that_matters(reference_error: float, min_gain: float) -> float:
    """The least gain for which a plain distance would be given up.

    >>> gain_that_matters(0.5, 0.05), gain_that_matters(0.02, 0.05)
    (0.025, 0.01)
    """
    return max(min_gain * reference_error, LEAST_GAIN)


def most_gain(difference: Estimate, confidence: float = 0.95) -> float:
    """The end of the one-sided interval of a gain: more is excluded.

    >>> round(most_gain(Estimate(-0.01, 0.01, 1000)), 3)
    0.026
    """
    return -difference.interval(2 * confidence - 1)[0]


def sentence(
    judgement: Judgement,
    *,
    labels: Mapping[str, str],
    reference_label: str,
    say: Wording,
    n_rows: int,
    n_all: int | None = None,
    fixed: bool = False,
    fit_seconds: Mapping[str, float],
    n_train: int,
    min_gain: float,
    nested_error: float | None,
    confidence: float = 0.95,
    noun: str = "row",
    untuned: bool = False,
    plain: tuple[str, float] | None = None,
    over: Estimate | None = None,
    folds: tuple[int, int] | None = None,
) -> str:
    """The answer in words.

    Parameters
    ----------
    say : Wording
        How errors are said.
    n_rows, n_all : int
        Rows that were used, and rows that there are.
    fixed : bool
        Whether there is a fixed test set, whose rows are then ``n_rows``.
    noun : str
        What a row is called.
    untuned : bool
        Whether everything ran at its first setting.
    plain : (str, float), optional
        The plain distance with the fewest errors, where the learner must beat all.
    over : Estimate, optional
        The learner minus that one, where it is not the reference: the gain that may be claimed.
    folds : (int, int), optional
        Folds that the numbers are of, and folds that were planned, where these differ.
    """
    base = judgement.reference_error
    where = _where(n_rows, n_all, untuned, folds, noun)
    if judgement.method is None:
        return (
            f"Cannot tell: no learner was tested on enough folds to be judged; {reference_label} "
            f"{say.makes} {say.whole(base)}{where}."
        )
    name, found = labels[judgement.method], judgement.comparands[judgement.method]
    gain = -found.difference.mean
    low, high = (-bound for bound in reversed(found.difference.interval(confidence)))
    wide = f"{confidence:.0%} interval {points(low)} to {points(high)}".replace("%", " %")
    if judgement.verdict == "use":
        text = (
            f"Use {name}: {say.whole(found.error)} instead of {say.short(base)} for the best "
            f"plain distance, a gain of {points(gain)} points ({wide}; one-sided "
            f"p {p_text(found.p_holm)} after Holm){where}."
        )
        if untuned:
            text = text.replace("for the best plain distance", f"for {reference_label}")
        if plain is not None and over is not None:
            low, high = (-bound for bound in reversed(over.interval(confidence)))
            text = (
                f"Use {name}: {say.whole(found.error)} instead of {say.short(plain[1])} for "
                f"{plain[0]}, which of the plain distances {say.most}, a gain of "
                f"{points(-over.mean)} points ({100 * confidence:.0f} % interval {points(low)} to "
                f"{points(high)}){where}."
            )
        if nested_error is not None:
            inside = f"the training {noun}s" if fixed else "each training fold"
            text += (
                f" Expect about {say.short(nested_error)} on new data: that is the {say.measure} "
                f"when the method too is chosen inside {inside}."
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
    matters = gain_that_matters(base, min_gain)
    other = plain is not None and plain[1] < base and plain[0] != reference_label
    if plain is not None and other and not found.stands_out:
        # The reference is not what to keep: another plain distance makes fewer mistakes.
        sure = judgement.verdict == "keep"
        return (
            f"{'Keep' if sure else 'Cannot tell: until it is tuned keep'} {plain[0]}, "
            f"{say.whole(plain[1])}{where}: {name} {say.makes} {say.short(found.error)}"
            + (" at best of the learners" if len(judgement.comparands) > 1 else "")
            + f", and {reference_label}, scaled as it is, {say.short(base)}. "
            "Give more time, or --tuning holdout, for settings to be chosen."
        )
    if judgement.verdict == "keep":
        text = f"Keep {reference_label}, {say.whole(base)}{where}: "
        if base == 0:
            return text + say.perfect
        if found.most > 0:
            excluded = f"a gain of more than {points(found.most)} points is excluded"
        else:
            excluded = "a gain is excluded"
        excluded += f" (one-sided, {100 * confidence:.0f} %; {points(matters)} would matter)."
        if gain > 0:
            return f"{text}the best learner, {name}, gains {points(gain)} points, and {excluded}"
        return (
            f"{text}no learner does better; the best, {name}, {say.makes} "
            f"{say.short(found.error)}, {say.beside(gain)}, and {excluded}"
        )
    until = f" Until then keep {reference_label}."
    rows = tested(noun) if fixed else f"{noun}s"
    if found.difference.degrees < LEAST_DEGREES:
        few = (
            f"one test set gives an interval only where the error is a mean over {noun}s"
            if fixed
            else f"{'two folds are' if found.difference.degrees > 0 else 'a single fold is'} too "
            "little to tell by"
        )
        return (
            f"Cannot tell: {name} {say.makes} {say.whole(found.error)}, {reference_label} "
            f"{say.short(base)}{where}, but {few}.{until}"
        )
    there = _there(n_rows, n_all, noun)
    better = (
        f"Cannot tell: {name} seems {points(gain)} points better than {reference_label} "
        f"({say.short(found.error)} against {say.short(base)}"
    )
    if found.stands_out and plain is not None:
        return (
            f"{better}; {wide}){where}, but not clearly better than {plain[0]}, which {say.makes} "
            f"{say.short(plain[1])}: tuned, the plain distance may do as well. Give more time, or "
            f"--tuning holdout. Until then keep {plain[0]}."
        )
    if found.stands_out:
        needed = rows_to_decide(
            found.difference, n_rows, 1 - 2 * (1 - confidence) / len(judgement.comparands)
        )
        return (
            f"{better}; {wide}){where}, but it is one of {len(judgement.comparands)} learners "
            f"tried, and after Holm's correction p is {p_text(found.p_holm)}. Test it alone on new "
            f"{noun}s; roughly {_round_rows(needed):,} {rows} would show it among all "
            f"({there}).{until}"
        )
    if gain <= matters or low > 0:
        seen = (
            f"no learner is seen to do better; {name} {say.makes} {say.short(found.error)}"
            if gain <= 0
            else f"{name} gains {points(gain)} points ({wide}), too little for a change"
        )
        return (
            f"Cannot tell: {reference_label} {say.makes} {say.whole(base)}, and {seen}{where}, "
            f"but a gain of up to {points(found.most)} points is not excluded, and "
            f"{points(matters)} would matter ({there}).{until}"
        )
    needed = rows_to_decide(found.difference, n_rows, confidence)
    if needed <= 100 * n_rows:
        more = f"if the difference is real, roughly {_round_rows(needed):,} {rows} would show it"
    else:
        more = f"more than a hundred times as many {rows} would be needed to show it"
    return f"{better}){where}, but the {wide} includes zero; {more} ({there}).{until}"


def _where(
    n_rows: int, n_all: int | None, untuned: bool, folds: tuple[int, int] | None, noun: str
) -> str:
    """On what it was measured, as far as that is less than all.

    >>> _where(8000, 100_000, True, (5, 25), "row")
    ', on 8,000 of 100,000 rows, in 5 common folds of 25, all at their first setting'
    >>> _where(150, None, False, None, "row")
    ''
    """
    parts = []
    if n_all is not None and n_all > n_rows:
        parts.append(f"on {n_rows:,} of {n_all:,} {noun}s")
    if folds is not None and folds[0] < folds[1]:
        parts.append(f"in {folds[0]} common fold{'s' * (folds[0] > 1)} of {folds[1]}")
    if untuned:
        parts.append("all at their first setting")
    return "".join(f", {part}" for part in parts)


def _there(n_rows: int, n_all: int | None, noun: str) -> str:
    if n_all is None or n_all <= n_rows:
        return f"there are {n_rows:,}"
    return f"there are {n_all:,}, of which {n_rows:,} were used: --sample takes more"


def context_notes(
    clearer: Sequence[tuple[str, float]], say: Wording, compared_with: str
) -> list[str]:
    """What to add when what is no distance predicts clearly better."""
    return [
        f"{label} {say.makes} {say.whole(error)}, clearly less than {compared_with}: if "
        f"{say.predicts} are all you need, use it. A distance is for neighbours, not for accuracy."
        for label, error in clearer
    ]


def _round_rows(rows: float) -> int:
    digits = max(0, int(np.floor(np.log10(rows))) - 1)
    return int(np.ceil(rows / 10**digits) * 10**digits)
