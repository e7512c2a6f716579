"""From errors per fold to one of three verdicts, and the sentence that reports it.

"use": the gain of a learner over the baseline is shown (its corrected confidence interval excludes
zero) and large enough (``min_gain``). "keep": for every learner, a gain that would matter is
excluded (one-sided, from the tested rows where that is possible). "inconclusive": neither holds.
The p-value after Holm's adjustment over all learners is reported as well. If it exceeds 5%, the
sentence asks for a confirmation on new rows. With more than three learners, or with a fixed test
set, intervals alone would recommend a learner in more than 5% of comparisons without a difference.
There the adjusted p-value must be below 5% as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from nearfar.app.compare.wording import Wording
from nearfar.evaluation.inference import Estimate, adjust_p_values, estimate_required_rows
from nearfar.words import (
    capitalize_first,
    format_adjusted_p,
    format_count,
    format_interval,
    format_p_value,
    format_points,
    format_seconds,
    format_tested,
)

Verdict = Literal["use", "keep", "inconclusive"]

#: Number of learners up to which intervals alone keep false recommendations below 5%.
FEW_LEARNERS = 3
#: Degrees of freedom below which an interval is not trusted: two folds have only one.
LEAST_DEGREES = 2
#: Gain, as a fraction, below which no gain matters, however small the baseline's error.
LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Comparand:
    """A learner compared with the baseline."""

    error: float
    #: Error of the learner minus that of the baseline: negative values are gains.
    difference: Estimate
    p: float
    p_holm: float
    #: Upper bound of the gain: a larger gain is excluded.
    most: float
    #: True if the interval excludes zero and the gain exceeds ``min_gain``.
    stands_out: bool
    #: True if, in addition, the number of learners tried does not explain the gain.
    recommended: bool


@dataclass(frozen=True)
class Judgement:
    """The verdict, the learner that it names, and the numbers of every learner."""

    verdict: Verdict
    #: The learner to use; for other verdicts, the learner that came nearest.
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
    """Compare all learners with the baseline and return the verdict.

    Parameters
    ----------
    reference_error : float
        Mean error of the baseline.
    errors, differences : mapping
        Mean error of each learner, and its paired difference to the baseline.
    min_gain : float
        Minimum gain for a recommendation, relative to the baseline's error.
    strict : bool
        Require the adjusted p-value for any number of learners.
    most : mapping, optional
        Largest gain of each learner that is not excluded. None computes it from the differences.
    beats : collection of str, optional
        Learners that are clearly better than every standard distance. No other learner is
        recommended. Needed where the baseline is not the best standard distance.
    barred : collection of str
        Learners that must not be recommended for another reason than their errors. They count in
        the adjustment of p-values, but the verdict names only other learners.
    """
    names = list(errors)
    p = {name: differences[name].compute_p_value() for name in names}
    adjusted = dict(zip(names, adjust_p_values(list(p.values())), strict=True))
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
        return Judgement("inconclusive", None, reference_error, comparands)
    nearly = [name for name in by_error if comparands[name].stands_out]
    matters = gain_that_matters(reference_error, min_gain)
    undecided = [
        name
        for name in by_error
        if comparands[name].difference.degrees < LEAST_DEGREES or comparands[name].most >= matters
    ]
    if nearly or undecided:
        best = (nearly or undecided)[0]
        return Judgement("inconclusive", best, reference_error, comparands)
    return Judgement("keep", by_error[0], reference_error, comparands)


def gain_that_matters(reference_error: float, min_gain: float) -> float:
    """Return the smallest gain that justifies replacing a standard distance.

    >>> gain_that_matters(0.5, 0.05), gain_that_matters(0.02, 0.05)
    (0.025, 0.01)
    """
    return max(min_gain * reference_error, LEAST_GAIN)


def most_gain(difference: Estimate, confidence: float = 0.95) -> float:
    """Return the upper end of the one-sided interval of a gain.

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
    """Return the answer as text.

    Parameters
    ----------
    labels : mapping
        Label of each method.
    reference_label : str
        Label of the baseline.
    say : Wording
        Phrases for the measure.
    n_rows, n_all : int
        Number of rows used, and number of rows available.
    fixed : bool
        True if there is a fixed test set; ``n_rows`` then counts its rows.
    fit_seconds : mapping
        Median seconds of a fit for each method.
    n_train : int
        Number of training rows of a fit.
    min_gain : float
        Minimum gain for a recommendation, relative to the baseline's error.
    nested_error : float or None
        Error when the method is selected within each training fold.
    noun : str
        The noun for one item of X: "row" or "set".
    untuned : bool
        True if every method ran at its first setting.
    plain : (str, float), optional
        Label and error of the standard distance with the lowest error, if the learner must beat
        all of them.
    over : Estimate, optional
        Error of the learner minus that of ``plain``, if that is not the baseline: the gain that
        may be claimed.
    folds : (int, int), optional
        Number of folds that the numbers rest on, and number of planned folds.
    """
    base = judgement.reference_error
    where = _measured_on(n_rows, n_all, untuned, folds, noun)
    if judgement.method is None:
        return (
            f"Inconclusive: no {say.learned} was tested on enough folds. "
            f"{capitalize_first(reference_label)} has {say.whole(base)}.{where}"
        )
    name, found = labels[judgement.method], judgement.comparands[judgement.method]
    n_tried = format_count(len(judgement.comparands), say.learned)
    gain = -found.difference.mean
    low, high = (-bound for bound in reversed(found.difference.interval(confidence)))
    wide = format_interval(low, high, confidence)
    if judgement.verdict == "use":
        other = reference_label if untuned else "the best standard distance"
        numbers = f"{wide}, {format_adjusted_p(found.p_holm)}"
        if plain is not None and over is not None:
            other = f"{plain[0]}, the standard distance with {say.most}"
            base, gain = plain[1], -over.mean
            low, high = (-bound for bound in reversed(over.interval(confidence)))
            numbers = format_interval(low, high, confidence)
        text = (
            f"Use {name}: {say.whole(found.error)} vs {say.short(base)} for {other}, a gain of "
            f"{format_points(gain)} points ({numbers}).{where}"
        )
        if nested_error is not None:
            inside = f"the training {noun}s" if fixed else "each training fold"
            text += (
                f" Expect about {say.short(nested_error)} on new data: this is the {say.measure} "
                f"when the method itself is selected within {inside}."
            )
        if found.p_holm > 1 - confidence:
            text += (
                f" Confirm it on new {noun}s: {n_tried} were tried, and the adjusted p exceeds "
                f"{1 - confidence:.2g}."
            )
        seconds = fit_seconds.get(judgement.method)
        if seconds is not None:
            text += f" Fit time: {format_seconds(seconds)} on {n_train:,} {noun}s."
        return text
    matters = gain_that_matters(base, min_gain)
    has_other = plain is not None and plain[1] < base and plain[0] != reference_label
    if plain is not None and has_other and not found.stands_out:
        # The baseline is not the distance to keep: another standard distance has less error.
        lead = "Keep" if judgement.verdict == "keep" else "Inconclusive: until it is tuned, keep"
        best = f"the best {say.learned}, {name}," if len(judgement.comparands) > 1 else name
        return (
            f"{lead} {plain[0]} ({say.whole(plain[1])}): {best} has {say.short(found.error)}, and "
            f"{reference_label}, which is scaled in the same way, has {say.short(base)}.{where} To "
            "tune the settings, allow more time or use --tuning holdout."
        )
    if judgement.verdict == "keep":
        kept = f"Keep {_in_parentheses(reference_label, say.whole(base))}: "
        if base == 0:
            return kept + say.perfect.format(learned=say.learned) + where
        reason = (
            f"the best {say.learned}, {name}, gains only {format_points(gain)} points"
            if gain > 0
            else f"no {say.learned} is better, and the best, {name}, has "
            f"{say.short(found.error)} ({say.difference(gain)})"
        )
        excluded = (
            f"A gain of more than {format_points(found.most)} points"
            if found.most > 0
            else "Any gain"
        )
        return (
            f"{kept}{reason}.{where} {excluded} is excluded (one-sided {100 * confidence:g}% CI). "
            f"A gain of {format_points(matters)} points would matter."
        )
    until = f" For now, keep {reference_label}."
    if found.difference.degrees < LEAST_DEGREES:
        few = (
            f"one test set gives a CI only if the error is a mean over {noun}s"
            if fixed
            else f"{'two folds' if found.difference.degrees > 0 else 'one fold'} cannot settle it"
        )
        return (
            f"Inconclusive: {name} has {say.whole(found.error)} and {reference_label} "
            f"{say.short(base)}, but {few}.{where}{until}"
        )
    errors = f"{say.short(found.error)} vs {say.short(base)}"
    better = f"Inconclusive: {name} has {say.difference(gain)} than "
    clearly = better + _in_parentheses(reference_label, f"{errors}, {wide}")
    if found.stands_out and plain is not None:
        return (
            f"{clearly}, but it is not clearly better than {plain[0]} "
            f"({say.short(plain[1])}).{where} With tuning, the standard distance may do as well: "
            f"allow more time or use --tuning holdout. For now, keep {plain[0]}."
        )
    units = format_tested(noun) if fixed else f"{noun}s"
    have = _available(n_rows, n_all)
    if found.stands_out:
        needed = estimate_required_rows(
            found.difference, n_rows, 1 - 2 * (1 - confidence) / len(judgement.comparands)
        )
        return (
            f"{clearly}, but it is one of {n_tried} tried, and its adjusted p is "
            f"{format_p_value(found.p_holm)}.{where} Test it alone on new {noun}s. About "
            f"{_round_rows(needed):,} {units} would show the gain among all of them; {have}.{until}"
        )
    if gain <= matters or low > 0:
        seen = (
            f"no {say.learned} is clearly better ({name}: {say.short(found.error)})"
            if gain <= 0
            else f"{name} gains {format_points(gain)} points ({wide}), too little to switch"
        )
        return (
            f"Inconclusive: {reference_label} has {say.whole(base)} and {seen}, but a gain of up "
            f"to {format_points(found.most)} points is not excluded, and {format_points(matters)} "
            f"would matter.{where} {capitalize_first(have)} {units}.{until}"
        )
    needed = estimate_required_rows(found.difference, n_rows, confidence)
    if needed <= 100 * n_rows:
        more = f"about {_round_rows(needed):,} {units} would settle it"
    else:
        more = f"settling it would take more than 100 times as many {units}"
    return (
        f"{better}{_in_parentheses(reference_label, errors)}, but the {100 * confidence:g}% CI "
        f"({format_points(low)} to {format_points(high)}) includes zero.{where} If the difference "
        f"is real, {more}; {have}.{until}"
    )


def _in_parentheses(label: str, text: str) -> str:
    """Return the label followed by a text in parentheses, which it may have already.

    >>> _in_parentheses("cosine", "3.9% error"), _in_parentheses("the best (mostly cosine)", "3.9%")
    ('cosine (3.9% error)', 'the best (mostly cosine; 3.9%)')
    """
    return f"{label[:-1]}; {text})" if label.endswith(")") else f"{label} ({text})"


def _measured_on(
    n_rows: int, n_all: int | None, untuned: bool, folds: tuple[int, int] | None, noun: str
) -> str:
    """Return a sentence on the rows, folds and settings if the comparison did not use all.

    >>> _measured_on(8000, 100_000, True, (5, 25), "row")
    ' Measured on 8,000 of 100,000 rows, in 5 of 25 folds, with every method at its first setting.'
    >>> _measured_on(150, None, False, None, "row")
    ''
    """
    parts = []
    if n_all is not None and n_all > n_rows:
        parts.append(f"on {n_rows:,} of {n_all:,} {noun}s")
    if folds is not None and folds[0] < folds[1]:
        parts.append(f"in {folds[0]} of {folds[1]} folds")
    if untuned:
        parts.append("with every method at its first setting")
    return f" Measured {', '.join(parts)}." if parts else ""


def _available(n_rows: int, n_all: int | None) -> str:
    """Return a clause with the number of rows that the user has."""
    if n_all is None or n_all <= n_rows:
        return f"you have {n_rows:,}"
    return f"you have {n_all:,} ({n_rows:,} were used; raise --sample to use more)"


def context_notes(
    clearer: Sequence[tuple[str, float]], say: Wording, compared_with: str
) -> list[str]:
    """Return a note for each classifier or regressor that is clearly better than the distance."""
    return [
        f"{label} has {say.whole(error)}, clearly less than {compared_with}. If you need only "
        f"{say.predicts}, use it. A distance is for neighbors, not for accuracy."
        for label, error in clearer
    ]


def _round_rows(rows: float) -> int:
    digits = max(0, int(np.floor(np.log10(rows))) - 1)
    return int(np.ceil(rows / 10**digits) * 10**digits)
