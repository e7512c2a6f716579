"""Learners compared with the best standard distance by their errors on held-out rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.app.compare.answer import Answer, Results, Row, bounds
from nearfar.app.compare.folds import Problem, shown_rows
from nearfar.app.compare.judgement import (
    Judgement,
    context_notes,
    judge,
    most_gain,
    sentence,
)
from nearfar.app.compare.kernel_shares import over_folds
from nearfar.app.compare.methods import Method
from nearfar.app.compare.schedule import Schedule
from nearfar.app.compare.second_stage import Finalist
from nearfar.app.compare.wording import Wording
from nearfar.app.tables.traps import Trap
from nearfar.evaluation.inference import Estimate, estimate_from_folds, estimate_from_rows
from nearfar.words import format_points

REFERENCE = "reference"
#: Number of folds below which the rows are not used to bound a gain.
LEAST_FOLDS = 3


class Summary(Answer):
    """Summary of a comparison with the baseline: the best standard distance of each training fold.

    If every method ran at its first setting, the baseline is ``plainest``, which is scaled like
    the learners.
    """

    problem: Problem
    large = frozenset({"predicted", "neighbors", "map", "history", "weights", "local", "kernels"})

    def __init__(
        self, problem: Problem, schedule: Schedule, *, min_gain: float, plainest: str
    ) -> None:
        super().__init__(problem, schedule, min_gain=min_gain)
        self.untuned, self.plainest = self.plan.tuning == "k", plainest
        reference = self._reference()
        self.rows = {REFERENCE: reference, **self.rows}
        # A method is ranked if it tested every row once, or as many folds as the baseline.
        least = max(1, min(self.scheme.n_splits, len(reference.results)))
        self.ranked = [
            row
            for row in self.rows.values()
            if row.status != "failed" and len(row.results) >= least
        ]
        shared = [set(row.results) for row in self.ranked if row.method.role != "context"]
        if reference not in self.ranked:
            self.ranked, shared = [reference], [set(reference.results)]
        self.common = sorted(set.intersection(*shared)) if shared else []
        self.judgement = self._judge()

    def _of_role(self, role: str) -> list[Row]:
        return [row for row in self.rows.values() if row.method.role == role]

    def _reference(self) -> Row:
        """Return the row that has, for each fold, the standard distance selected within it."""
        found = [row for row in self._of_role("baseline") if row.status != "failed"]
        if self.untuned:
            found = [row for row in found if row.method.name == self.plainest]
        results: Results = {}
        shared = set.intersection(*(set(row.results) for row in found)) if found else set()
        for fold in sorted(shared):
            best = min(found, key=lambda row: _inner(row.results[fold]))
            results[fold] = best.results[fold] | {"baseline": best.method.name}
        status = "done" if len(results) == len(self.scheme.folds) else "unfinished"
        label = "baseline, first setting" if self.untuned else "best standard distance"
        method = Method(REFERENCE, label, "reference", _all_settings(found))
        peak = max((row.peak for row in found if row.peak is not None), default=None)
        return Row(method, results, status if found else "failed", None, peak)

    # Numbers

    @property
    def fixed(self) -> bool:
        """Whether there is one test set and no other fold."""
        return len(self.scheme.folds) == 1

    @property
    def n_rows(self) -> int:
        """Rows that were used; of a fixed test set, those that were tested."""
        if self.fixed:
            return len(self.scheme.folds[0].test)
        return self.n_all if self.scheme.rows is None else len(self.scheme.rows)

    @property
    def n_all(self) -> int:
        """Rows that there are; of a fixed test set, its rows."""
        if self.fixed:
            drawn = self.scheme.rows
            return self.n_rows if drawn is None else self.problem.n_test_rows
        return len(self.problem.codes)

    def _estimate(self, rows: list[Row], folds: list[int]) -> Estimate:
        """Mean error of the first method, minus that of the second if there are two."""
        if len(folds) == 1 and self.problem.measure.is_mean_over_rows:
            losses = [self._losses(row, folds[0]) for row in rows]
            values = losses[0] if len(losses) == 1 else losses[0] - losses[1]
            # One fold of several says nothing of the next; a fixed test set is all there is.
            if self.fixed:
                return self._over_rows(values, self.scheme.folds[folds[0]].test)
        values = self.errors(rows[0], folds)
        if len(rows) > 1:
            values = values - self.errors(rows[1], folds)
        return self._over_folds(values, folds)

    def _over_rows(self, losses: NDArray[np.float64], rows: NDArray[np.intp]) -> Estimate:
        """Mean of the losses of these rows, or of the classes' means."""
        balanced = self.problem.measure.scoring == "balanced_accuracy"
        return estimate_from_rows(losses, self.problem.codes[rows] if balanced else None)

    def _over_folds(self, values: ArrayLike, folds: list[int]) -> Estimate:
        one_row = float(np.mean([1.0 / len(self.scheme.folds[fold].test) for fold in folds]))
        return estimate_from_folds(values, self.scheme.test_share, resolution=one_row)

    def _to_reference(self, row: Row, folds: list[int]) -> Estimate:
        reference = self.rows[REFERENCE]
        if all(reference.results[fold]["baseline"] == row.method.name for fold in folds):
            return Estimate(0.0, 0.0, max(0.0, len(folds) - 1.0))  # it is the baseline
        return self._estimate([row, reference], folds)

    def _losses(self, row: Row, fold: int) -> NDArray[np.float64]:
        true = self.problem.codes[self.scheme.folds[fold].test]
        return (np.asarray(row.results[fold]["predicted"]) != true).astype(np.float64)

    def lost_plain(self) -> list[Row]:
        """Return standard distances whose process died: without them there is no baseline."""
        return [row for row in self._of_role("baseline") if row.lost]

    def _judge(self) -> Judgement:
        reference = self.rows[REFERENCE]
        learners = [row for row in self.ranked if row.method.role == "learner"]
        if not self.common or self.lost_plain():
            return Judgement("inconclusive", None, float("nan"))
        errors = {row.method.name: self._error(row) for row in learners}
        differences = {r.method.name: self._estimate([r, reference], self.common) for r in learners}
        return judge(
            self._error(reference),
            errors,
            differences,
            min_gain=self.min_gain,
            confidence=self.confidence,
            strict=self.fixed,
            most={row.method.name: self._most_gain(row) for row in learners},
            beats={row.method.name for row in learners if self._beats_all(row)}
            if self.untuned
            else None,
        )

    def _most_gain(self, row: Row) -> float:
        """Return the largest gain over the baseline that is not excluded.

        By the rows, each with its losses averaged over repeats, where they are independent and
        an error is a mean over them: folds alone would need ten times as many rows.
        """
        reference = self.rows[REFERENCE]
        folds, measure = self.common, self.problem.measure
        alone = self.problem.groups is None and self.problem.time is None
        if not (alone and measure.is_mean_over_rows) or len(folds) < LEAST_FOLDS:
            return most_gain(self._estimate([row, reference], folds), self.confidence)
        tested = np.concatenate([self.scheme.folds[fold].test for fold in folds])
        losses = np.concatenate(
            [self._losses(row, fold) - self._losses(reference, fold) for fold in folds]
        )
        rows, place = np.unique(tested, return_inverse=True)
        each = np.bincount(place, losses) / np.bincount(place)
        return most_gain(self._over_rows(each, rows), self.confidence)

    def _beats_all(self, row: Row) -> bool:
        """Return True if it is clearly better than each standard distance, by ``min_gain``."""
        plain = [one for one in self._of_role("baseline") if one.status != "failed"]
        if not all(set(self.common) <= set(one.results) for one in plain):
            return False
        found = [(self._estimate([row, one], self.common), self._error(one)) for one in plain]
        return all(
            difference.interval(self.confidence)[1] < 0 and -difference.mean > self.min_gain * error
            for difference, error in found
        )

    def _plain(self) -> tuple[str, float]:
        """Return label and error of the standard distance with the lowest error."""
        row = self._best_plain()
        return ("", np.inf) if row is None else (row.method.label, self._error(row))

    def _best_plain(self) -> Row | None:
        tested = [one for one in self._of_role("baseline") if set(self.common) <= set(one.results)]
        return min(tested, key=self._error, default=None)

    def _over_plain(self) -> tuple[Row, Estimate] | None:
        """Return the standard distance for the claimed gain, if it is not the baseline.

        Without tuning, the baseline was not selected by its error, so a gain over it may be too
        large.
        """
        plain = self._best_plain() if self.untuned and self.best != REFERENCE else None
        if plain is None or self._error(plain) >= self._error(self.rows[REFERENCE]):
            return None
        return plain, self._estimate([self.rows[self.best], plain], self.common)

    def nested(self) -> dict[str, Any] | None:
        """Return the error when the method itself is selected within each training fold."""
        rows = [row for row in self.ranked if row.method.role in ("reference", "learner")]
        if len(self.common) < 1 or len(rows) < 2 or self.lost_plain():
            return None
        errors, chosen = [], {row.method.name: 0 for row in rows}
        for fold in self.common:
            best = min(rows, key=lambda row: _inner(row.results[fold]))
            chosen[best.method.name] += 1
            errors.append(best.results[fold]["error"])
        estimate = self._over_folds(errors, self.common)
        return {
            "error": estimate.mean,
            "interval": bounds(estimate, self.confidence, most=self.most_error),
            "chosen": {name: count for name, count in chosen.items() if count},
        }

    def finalists(self) -> list[Finalist]:
        """Return the learner that the answer names, and the standard distance to keep otherwise.

        The latter is the one that most folds selected or, without tuning, the one with the lowest
        error.
        """
        if self.judgement.method is None or not self.common:
            return []
        chosen = Counter(self.rows[REFERENCE].results[f]["baseline"] for f in self.common)
        plain = self._best_plain() if self.untuned else None
        rows = {
            "reference": self.rows[chosen.most_common(1)[0][0]] if plain is None else plain,
            "learner": self.rows[self.judgement.method],
        }
        return [self._finalist(role, row) for role, row in rows.items()]

    def _finalist(self, role: str, row: Row) -> Finalist:
        chosen = [row.results[fold] for fold in self.common if fold in row.results]
        setting = Counter(result["setting"] for result in chosen).most_common(1)[0][0]
        ks = [result["k"] for result in chosen if result["setting"] == setting]
        k = None if ks[0] is None else int(np.median(ks))
        return Finalist(role, row.method, setting, k)

    def confirm(self, confirmed: dict[str, Any] | None) -> None:
        """Store the errors on all rows. A gain that vanishes there is not recommended."""
        super().confirm(confirmed)
        if self.judgement.verdict == "use" and self._gain_on_all_rows() <= 0:
            self.judgement = replace(self.judgement, verdict="inconclusive")

    def _gain_on_all_rows(self) -> float:
        results = (self.confirmed or {}).get("results")
        if results is None:
            return np.inf
        return float(results["reference"]["error"] - results["learner"]["error"])

    def _on_all_rows(self) -> str:
        """Return a sentence on the fit to all rows."""
        found = self.confirmed
        if found is None:
            return ""
        noun = self.problem.noun
        if "results" not in found:
            return f" The result was not confirmed on all {noun}s: {found['reason']}."
        split = f"one split, {found['n_train']:,} for training and {found['n_test']:,} held out"
        learner, plain = found["results"]["learner"], found["results"]["reference"]
        return (
            f" On all {noun}s ({split}), {learner['label']} has "
            f"{self.say.whole(learner['error'])} and {plain['label']} "
            f"{self.say.short(plain['error'])}."
        )

    # Words

    @property
    def say(self) -> Wording:
        """Phrases for the measure."""
        return Wording(self.problem.measure.name, learned=self.problem.learned)

    def reference_label(self) -> str:
        """Return the label of the baseline: a standard distance if every fold selected it."""
        names = [result["baseline"] for result in self.rows[REFERENCE].results.values()]
        if not names:
            return "the baseline"
        most = max(dict.fromkeys(names), key=names.count)
        label = self.rows[most].method.label
        if len(set(names)) == 1:
            return label
        # If folds selected different ones, the error is not that of a single standard distance.
        mostly = f" (mostly {label})" if 2 * names.count(most) > len(names) else ""
        return f"the best standard distance{mostly}"

    def answer(self, warned: Sequence[Trap] = ()) -> dict[str, Any]:
        """Verdict, sentence and notes."""
        caution = []
        if any(trap.kind in ("telling column", "duplicates", "id") for trap in warned):
            caution = [
                "Read the warnings first: if they are right, the results above are too optimistic."
            ]
        if self.lost_plain():
            found = self._lost(self.lost_plain())
            return found | {"notes": [*caution, *found["notes"]]}
        if not self.common:
            found = self._without_folds(
                "the standard distances did not complete", self._of_role("baseline")
            )
            return found | {"notes": [*caution, *self._unjudged_notes(self._of_role("learner"))]}
        nested = self.nested()
        judgement = self.judgement
        gone = judgement.verdict == "inconclusive" and self._gain_on_all_rows() <= 0
        if gone and judgement.comparands[str(judgement.method)].recommended:
            return self._gone() | {"notes": [*caution, *self._reference_notes()]}
        label, over = self.reference_label(), self._over_plain()
        text = sentence(
            judgement,
            labels={name: row.method.label for name, row in self.rows.items()},
            reference_label=label,
            say=self.say,
            n_rows=self.n_rows,
            n_all=self.n_all,
            fixed=self.fixed,
            fit_seconds={name: row.median("fit_seconds") or 0.0 for name, row in self.rows.items()},
            n_train=int(np.median([len(self.scheme.folds[fold].train) for fold in self.common])),
            min_gain=self.min_gain,
            nested_error=None if nested is None else nested["error"],
            confidence=self.confidence,
            noun=self.problem.noun,
            untuned=self.untuned,
            plain=self._plain() if self.untuned else None,
            over=None if over is None else over[1],
            folds=(len(self.common), len(self.scheme.folds)),
        )
        return {
            "verdict": judgement.verdict,
            "method": judgement.method,
            "text": text + self._on_all_rows(),
            "gain": None if over is None else self._gain_over(*over),
            "notes": [
                *caution,
                *self._context_notes(),
                *self._reference_notes(),
                *(
                    f"{row.method.title} failed and was not considered for the baseline: "
                    f"{row.reason}"
                    for row in self._of_role("baseline")
                    if row.status == "failed"
                ),
                *self._unjudged_notes(self._of_role("learner")),
            ],
        }

    def _gain_over(self, plain: Row, difference: Estimate) -> dict[str, Any]:
        low, high = difference.interval(self.confidence)
        interval = [-high, -low]
        return {"over": plain.method.label, "gain": -difference.mean, "interval": interval}

    def _gone(self) -> dict[str, Any]:
        """Return the answer for a gain that the sample shows and all rows do not."""
        name = str(self.judgement.method)
        gain = format_points(-self.judgement.comparands[name].difference.mean)
        noun, label = self.problem.noun, self.rows[name].method.label
        kept = self._plain()[0] if self.untuned else self.reference_label()
        text = (
            f"Inconclusive: {label} gains {gain} points on {self.n_rows:,} of {self.n_all:,} "
            f"{noun}s, but not on all {noun}s.{self._on_all_rows()} For now, keep {kept}."
        )
        return {"verdict": "inconclusive", "method": name, "text": text}

    def _context_notes(self) -> list[str]:
        used = self.rows[self.best]
        name = self.reference_label() if self.best == REFERENCE else used.method.label
        return context_notes(self._clearly_better(used), self.say, name)

    def _reference_notes(self) -> list[str]:
        names = [result["baseline"] for result in self.rows[REFERENCE].results.values()]
        counts = {name: names.count(name) for name in dict.fromkeys(names)}
        by_count = sorted(counts.items(), key=lambda item: -item[1])
        parts = [f"{self.rows[name].method.label} in {n}" for name, n in by_count]
        parts[0] += f" of {len(names)}"
        if self.untuned:
            label = self.reference_label()
            notes = [f"Baseline: {label}, scaled like the learners at their first setting."]
        else:
            where = f"the training {self.problem.noun}s" if self.fixed else "each training fold"
            selected = self.reference_label() if self.fixed else ", ".join(parts)
            notes = [f"Baseline: the best standard distance, selected within {where} ({selected})."]
        if self.untuned and self.common:
            label, error = self._plain()
            if error < self._error(self.rows[REFERENCE]):
                notes.append(
                    f"Of the standard distances, {label} has {self.say.most} "
                    f"({self.say.short(error)}). Before you keep or change anything, allow more "
                    "time or use --tuning holdout. The gains in the table are relative to "
                    f"{self.reference_label()}."
                )
        others = [
            self.rows[name].method.label
            for name, comparand in self.judgement.comparands.items()
            if comparand.recommended and name != self.best
        ]
        if others:
            notes.append(f"Also clearly better than the baseline: {', '.join(others)}.")
        return notes

    def _clearly_better(self, used: Row) -> list[tuple[str, float]]:
        """Return classifiers, for context, with clearly lower errors."""
        found = []
        for row in self._of_role("context"):
            folds = [fold for fold in self.common if fold in row.results]
            if row.status == "failed" or len(folds) < min(len(self.common), self.scheme.n_splits):
                continue
            difference = self._estimate([row, used], folds)
            base = float(self.errors(used, folds).mean())
            if difference.interval(self.confidence)[1] < 0 and (
                -difference.mean > self.min_gain * base
            ):
                found.append((row.method.label, float(self.errors(row, folds).mean())))
        return sorted(found, key=lambda item: item[1])

    @property
    def best(self) -> str:
        """Return the name of the recommended learner, or that of the baseline."""
        chosen = self.judgement.method if self.judgement.verdict == "use" else None
        return REFERENCE if chosen is None else chosen

    @property
    def chosen(self) -> Row:
        """Return the method to use; without tuning, the standard distance that the answer keeps."""
        plain = self._best_plain() if self.untuned and self.common else None
        return self.rows[self.best] if plain is None or self.best != REFERENCE else plain

    # The document

    def _numbers(self, row: Row) -> tuple[Estimate | None, Estimate | None]:
        ranked = row in self.ranked
        folds = [f for f in self.common if f in row.results] if ranked else sorted(row.results)
        reference = self.rows[REFERENCE]
        paired = [fold for fold in folds if fold in reference.results]
        return (
            self._estimate([row], folds) if folds else None,
            self._to_reference(row, paired) if row is not reference and paired else None,
        )

    def _entry(self, row: Row) -> dict[str, Any]:
        return super()._entry(row) | {
            "tune_seconds": row.median("tune_seconds"),
            "times_plain": self._times_plain(row),
        }

    def _times_plain(self, row: Row) -> float | None:
        """Return how many times as long as standard k-NN the neighbor search takes, or None.

        Of rows that are read and scaled: that takes as long for all. The quickest fold of either:
        other work can only make a fold slower.
        """
        plain = self.rows.get(self.plainest)
        if plain is None or not any(setting.neighbors for setting in row.method.settings):
            return None
        both = [(row.results[f], plain.results[f]) for f in row.results if f in plain.results]
        found = [
            (own["search_seconds"], other["search_seconds"])
            for own, other in both
            if own.get("search_seconds") and other.get("search_seconds")
        ]
        own, other = (min(times) for times in zip(*found, strict=True)) if found else (0.0, 1.0)
        return float(own / other) or None

    def pictures(self) -> dict[str, Any]:
        """What the report draws: held-out predictions and neighbors, maps, weights, histories."""
        tested = [i for i, fold in enumerate(self.scheme.folds) if fold.repeat == 0]
        rows = [int(row) for i in tested for row in self.scheme.folds[i].test]
        drawn = [row for row in self.rows.values() if row.status != "failed" and row.results]
        held: dict[str, Any] = {
            "rows": rows,
            "true": [int(code) for code in self.problem.codes[rows]],
            "predicted": {},
            "neighbors": {},
        }
        used = np.arange(len(self.problem.codes)) if self.scheme.rows is None else self.scheme.rows
        if len(rows) < len(used):  # rows that are only trained on
            others = np.setdiff1d(used, rows)
            held["labels"] = {str(row): int(self.problem.codes[row]) for row in others}
        for row in drawn:
            for key in ("predicted", "neighbors"):
                values: list[Any] = []
                for i in tested:
                    part = row.results.get(i, {}).get(key)
                    values += part if part is not None else [None] * len(self.scheme.folds[i].test)
                if any(value is not None for value in values):
                    held[key][row.method.name] = values
        test = self.scheme.folds[0].test
        test = test[shown_rows(len(test))]
        votes = [row for row in drawn if row.method.role in ("reference", "learner")]
        return {
            "held_out": held,
            "maps": {
                "rule": f"First two principal axes of the mapped training {self.problem.noun}s of "
                f"the first fold; shown are the held-out {self.problem.noun}s.",
                "rows": [int(row) for row in test],
                "classes": [int(code) for code in self.problem.codes[test]],
                "methods": {
                    row.method.name: row.results[0]["map"]
                    for row in votes
                    if row.results.get(0, {}).get("map")
                },
            },
            "weights": {
                row.method.name: [
                    result["weights"]
                    for _, result in sorted(row.results.items())
                    if result.get("weights")
                ]
                for row in votes
                if any(result.get("weights") for result in row.results.values())
            },
            "histories": {
                row.method.name: row.results[0]["history"]
                for row in votes
                if row.results.get(0, {}).get("history")
            },
            "tensors": {
                row.method.name: row.results[0]["tensors"]
                for row in drawn
                if row.results.get(0, {}).get("tensors")
            },
            "kernels": {
                row.method.name: over_folds(
                    [one["kernels"] for _, one in sorted(row.results.items()) if one.get("kernels")]
                )
                for row in drawn
                if any(one.get("kernels") for one in row.results.values())
            },
            "local": {
                row.method.name: row.results[0]["local"]
                for row in drawn
                if row.results.get(0, {}).get("local")
            },
        }


def _inner(result: dict[str, Any]) -> float:
    return np.inf if result["inner_error"] is None else float(result["inner_error"])


def _all_settings(rows: list[Row]) -> tuple[Any, ...]:
    return tuple(setting for row in rows for setting in row.method.settings)
