"""Embeddings ranked by the neighbors they keep, and the verdict on the first.

The statistics are those of :mod:`nearfar.evaluation.inference`, for the fraction of neighbors lost.
PCA is the baseline: it is the simplest method, so another one must keep clearly more neighbors. A
method that keeps clearly more than PCA is then compared with each of the others, and the answer
names those that are not clearly worse. A method whose picture is a dot, or shows false neighbors
far more often than that of PCA, is not recommended however many neighbors it keeps. A note gives
the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from nearfar.app.compare.answer import Answer, Row
from nearfar.app.compare.embeddings import REFERENCE, Embeddings, drawn_rows
from nearfar.app.compare.judgement import (
    FEW_LEARNERS,
    LEAST_DEGREES,
    Judgement,
    gain_that_matters,
    judge,
)
from nearfar.app.compare.picture import dot_words
from nearfar.app.compare.schedule import Schedule
from nearfar.app.tables.traps import Trap
from nearfar.evaluation.inference import Estimate, adjust_p_values, estimate_from_folds
from nearfar.words import (
    format_adjusted_p,
    format_count,
    format_interval,
    format_percent,
    format_points,
    format_seconds,
    join_names,
)

#: Measures that are averaged over the folds and shown beside the one that ranks.
BESIDE = (
    "kept_fitted",
    "trust",
    "continuity",
    "continuity_without_stretched",
    "rank_trust",
    "picture_trust",
    "picture_continuity",
    "gap",
    "residual",
)
# Gaps of an unfolding above which it is said not to be solved to the end.
_WIDE_GAP = 0.05
# How much less the picture of a method may be trusted than that of PCA.
_LESS_TRUST = 0.1
_PARTS = re.compile(r"falls into (\d+) parts")


class Ranking(Answer):
    """Ranking of embeddings with PCA as the baseline; a random projection is shown, not judged."""

    problem: Embeddings
    large = frozenset({"map", "spectrum"})

    def __init__(self, problem: Embeddings, schedule: Schedule, *, min_gain: float) -> None:
        super().__init__(problem, schedule, min_gain=min_gain)
        going = [row for row in self.rows.values() if row.status != "failed" and row.results]
        # A method is ranked if it tested every row once, or as many folds as any in a short run.
        least = min(self.scheme.n_splits, max((len(row.results) for row in going), default=1))
        ranked = [row for row in going if len(row.results) >= least]
        shared = [set(row.results) for row in ranked]
        self.common = sorted(set.intersection(*shared)) if shared else []
        self.ranked = sorted(ranked, key=self._error) if self.common else []
        # The result of a random projection depends on its draw, so it is not judged.
        learners = [row for row in self.ranked if row.method.role != "baseline"]
        self.reference = next((r for r in learners if r.method.name == REFERENCE), None)
        self.faults = {name: self._fault(row) for name, row in self.rows.items()}
        # PCA remains the fallback even if its picture is not readable.
        self.judged = [r for r in learners if r is self.reference or not self._faulty(r)]
        self.faulty = [row for row in learners if row not in self.judged]
        self.judgement = self._judge()
        self.verdict, self._best = self._decide()

    @property
    def best(self) -> str | None:
        """Name of the method to use: PCA unless another one keeps clearly more."""
        return self._best

    @property
    def chosen(self) -> Row:
        """The method to use; PCA if none was tested."""
        return self.rows[self.best or REFERENCE]

    # Numbers

    def _kept(self, row: Row) -> float:
        return 1.0 - self._error(row)

    def _estimate(self, row: Row, other: Row | None, folds: list[int]) -> Estimate:
        values = self.errors(row, folds)
        if other is not None:
            values = values - self.errors(other, folds)
        held = np.mean([len(self.scheme.folds[fold].test) for fold in folds])
        resolution = 1.0 / float(held * self.problem.n_neighbors)  # one neighbor of one row
        return estimate_from_folds(values, self.scheme.test_share, resolution=resolution)

    def _fault(self, row: Row) -> str | None:
        """Return a description of a defect of the picture, or None."""
        dots = {fold: result.get("picture_dot") for fold, result in row.results.items()}
        found = [dot for _, dot in sorted(dots.items()) if dot is not None]
        # The first fold is the one that is drawn.
        if found and (dots.get(0) is not None or 2 * len(found) >= len(dots)):
            return dot_words(found[0])
        # Of the others only those matter that may be recommended.
        if self.reference is None or row not in self.ranked or row.method.role == "baseline":
            return None
        if self._error(row) >= self._error(self.reference):
            return None
        mine, other = (self._mean(each, "picture_trust") for each in (row, self.reference))
        if mine is None or other is None or mine > other - _LESS_TRUST:
            return None
        return (
            "its picture shows false neighbors more often than that of PCA (trustworthiness at "
            f"the resolution of the picture: {mine:.2f} vs {other:.2f})"
        )

    def _faulty(self, row: Row) -> bool:
        return self.faults[row.method.name] is not None

    def _judge(self) -> Judgement:
        """Compare every other method with PCA."""
        if self.reference is None:
            return Judgement("inconclusive", None, float("nan"))
        others = [r for r in (*self.judged, *self.faulty) if r is not self.reference]
        found = {r.method.name: self._estimate(r, self.reference, self.common) for r in others}
        return judge(
            self._error(self.reference),
            {row.method.name: self._error(row) for row in others},
            found,
            min_gain=self.min_gain,
            confidence=self.confidence,
            # Each fold counts thousands of neighbors, so the mean bounds the gain.
            most={name: -difference.mean for name, difference in found.items()},
            barred=[row.method.name for row in self.faulty],
        )

    def _decide(self) -> tuple[str, str | None]:
        """Return the verdict and the name of the method to use."""
        if not self.judged:
            return "inconclusive", None
        if self.reference is None:
            if self.rows[REFERENCE].lost:
                return "inconclusive", None
            first = self.judged[0].method.name
            return ("inconclusive" if self.ties(first) else "use"), first
        found = self.judgement
        if found.method is None and self.faulty:
            return "keep", REFERENCE
        if found.verdict != "use" or found.method is None:
            return found.verdict, REFERENCE
        return ("inconclusive" if self.ties(found.method) else "use"), found.method

    def ties(self, name: str) -> list[str]:
        """Return the methods that are not clearly worse than this one, nearest first."""
        first = self.rows[name]
        judged = self.judgement.comparands.get(name)
        beaten = self.reference if judged is not None and judged.recommended else None
        others = [row for row in self.judged if row is not first and row is not beaten]
        differences = [self._estimate(first, row, self.common) for row in others]
        adjusted = adjust_p_values([difference.compute_p_value() for difference in differences])
        strict = len(others) > FEW_LEARNERS
        tied = []
        for row, difference, p in zip(others, differences, adjusted, strict=True):
            shown = difference.degrees >= LEAST_DEGREES
            shown = shown and difference.interval(self.confidence)[1] < 0
            worth = -difference.mean > self.min_gain * self._error(row)
            if not (shown and worth and (not strict or p <= 1 - self.confidence)):
                tied.append(row)
        return [row.method.name for row in tied]

    # Words

    def _label(self, name: str) -> str:
        return self.rows[name].method.label

    def _share(self, name: str) -> str:
        return format_percent(self._kept(self.rows[name]))

    def answer(self, warned: Sequence[Trap] = ()) -> dict[str, Any]:
        """Verdict, sentence and notes."""
        if REFERENCE in self.rows and self.rows[REFERENCE].lost:
            return self._lost([self.rows[REFERENCE]])
        if self.best is None and not self.faulty:
            return self._without_folds("no method completed", self.rows.values())
        if self.best is None:
            text = "Inconclusive: no method produces a readable picture."
            notes = [*self._fault_notes(), *self._unjudged_notes(self.rows.values())]
            return {"verdict": "inconclusive", "method": None, "text": text, "notes": notes}
        notes = [
            *self._parts_notes(),
            *self._tie_notes(),
            *self._fault_notes(),
            *self._fitted_notes(),
            *self._count_notes(),
            *self._dimension_notes(),
            *self._certificate_notes(),
            *self._unjudged_notes(self.rows.values()),
        ]
        method = self.best if self.verdict == "use" else self.judgement.method or self.best
        return {"verdict": self.verdict, "method": method, "text": self._text(), "notes": notes}

    def _text(self) -> str:
        assert self.best is not None
        name, share = self._label(self.best), self._share(self.best)
        kept = (
            f"keeps {share} of the {self.problem.n_neighbors} nearest neighbors of a held-out row"
        )
        nearest = self.judgement.method
        if self.best != REFERENCE:
            more = "" if self.reference is None else f", {self._gain_over_pca(self.best)}"
            tied = self.ties(self.best)
            if tied:
                return (
                    f"Inconclusive: {name} {kept}{more}, but it is not clearly better than "
                    f"{self._shares(tied)}."
                )
            more = more or ", clearly more than the others"
            seconds = self.rows[self.best].median("fit_seconds") or 0.0
            n_train = len(self.scheme.folds[0].train)
            return (
                f"Use {name}: it {kept}{more}. Fit time: {format_seconds(seconds)} on "
                f"{n_train:,} rows."
            )
        if nearest is None and self.faulty:
            return f"Keep PCA: it {kept}. No other method produces a readable picture."
        if nearest is None:
            return f"Inconclusive: PCA {kept}, and no other method could be judged."
        assert self.reference is not None
        other = f"{self._label(nearest)} keeps {self._share(nearest)}"
        if self.verdict == "keep":
            best = "other method" + " with a readable picture" * bool(self.faulty)
            text = (
                f"Keep PCA: it {kept}. The best {best}, {self._label(nearest)}, keeps "
                f"{self._share(nearest)}"
            )
            lost = self._error(self.reference)
            gain = lost - self._error(self.rows[nearest])
            if gain <= 0:
                return f"{text}."
            matters = gain_that_matters(lost, self.min_gain)
            return (
                f"{text}, a gain of {format_points(gain)} points. A gain of "
                f"{format_points(matters)} points would matter."
            )
        known = self.judgement.comparands[nearest].difference.degrees > 0
        why = "the difference may be due to chance" if known else "one fold cannot settle it"
        return (
            f"Inconclusive: PCA {kept} and {other}, but {why}. For now, keep PCA, the simplest "
            "method."
        )

    def _gain_over_pca(self, name: str) -> str:
        found = self.judgement.comparands[name]
        low, high = (-end for end in reversed(found.difference.interval(self.confidence)))
        return (
            f"{format_points(-found.difference.mean)} points more than PCA "
            f"({format_interval(low, high, self.confidence)}, {format_adjusted_p(found.p_holm)})"
        )

    def _shares(self, names: list[str]) -> str:
        return join_names([f"{self._label(n)} ({self._share(n)})" for n in names], 4, quoted=False)

    def _parts_notes(self) -> list[str]:
        """Return a note for each recommended method whose neighbor graph is not connected."""
        assert self.best is not None
        notes = []
        for row in sorted(self.judged, key=lambda row: row.method.name != self.best):
            warned = [" ".join(result["warnings"]) for result in row.results.values()]
            found = [int(m[1]) for text in warned if (m := _PARTS.search(text))]
            if not found or not self._entry(row)["recommended"]:
                continue
            least, most = min(found), max(found)
            parts = f"{most} parts" if least == most else f"{least} to {most} parts"
            where = "" if len(found) == len(warned) else f" in {len(found)} of {len(warned)} folds"
            notes.append(
                f"The neighbor graph of {row.method.label} falls into {parts}{where}. Their "
                "relative position in its picture depends on a few added edges, not on the data. "
                "Embed the parts one by one, or raise n_neighbors if they belong together."
            )
        return notes

    def _fault_notes(self) -> list[str]:
        """Return a note for each method whose picture is not readable."""
        notes = []
        if self.reference is not None and self._faulty(self.reference):
            sound = [row.method.name for row in self.judged if row is not self.reference]
            most = f" Of the other methods, {self._shares(sound[:1])} keeps most." if sound else ""
            notes.append(f"Read the picture of PCA with care: {self.faults[REFERENCE]}.{most}")
        for row in self.faulty:
            kept = format_percent(self._kept(row))
            fault = self.faults[row.method.name]
            notes.append(f"{row.method.label} (keeps {kept}) is not recommended: {fault}.")
        return notes

    def _tie_notes(self) -> list[str]:
        if self.verdict != "inconclusive" or self.best in (None, REFERENCE):
            return []
        assert self.best is not None
        better = [name for name, found in self.judgement.comparands.items() if found.recommended]
        tied = self.ties(self.best)
        alike = [self.best, *(name for name in tied if name in better or not better)]
        quick = min(alike, key=lambda n: self.rows[n].median("fit_seconds") or 0.0)
        cost = format_seconds(self.rows[quick].median("fit_seconds") or 0.0)
        also = " that keep clearly more than PCA" if better else ""
        return [f"The fastest of the tied methods{also} is {self._label(quick)} ({cost} per fit)."]

    def _fitted_notes(self) -> list[str]:
        """Return a note if another method keeps more neighbors of the rows it was fitted to."""
        assert self.best is not None
        mean = {row.method.name: self._mean(row, "kept_fitted") or 0.0 for row in self.judged}
        first = max(mean, key=lambda name: mean[name])
        if first == self.best or mean[first] - mean[self.best] < self.min_gain * (1 - mean[first]):
            return []
        return [
            f"On the rows it is fitted to, {self._label(first)} keeps most "
            f"({format_percent(mean[first])}"
            f" vs {format_percent(mean[self.best])} for {self._label(self.best)}). For a picture "
            "of these rows alone, consider it as well."
        ]

    def _count_notes(self) -> list[str]:
        """Return notes if another number of neighbors gives another first method."""
        notes = []
        for number in self.problem.looked_at:
            if number == self.problem.n_neighbors:
                continue
            shares = {row.method.name: self._by_count(row, number) for row in self.judged}
            first = max(shares, key=lambda name: shares[name])
            mine = shares[self.judged[0].method.name]
            if shares[first] - mine > self.min_gain * (1 - mine):
                notes.append(
                    f"With {number} neighbors, {self._label(first)} keeps most "
                    f"({format_percent(shares[first])})."
                )
        return notes

    def _by_count(self, row: Row, number: int) -> float:
        values = [row.results[fold]["by_neighbors"].get(str(number), 0.0) for fold in self.common]
        return float(np.mean(values))

    def _dimension_notes(self) -> list[str]:
        sizes = {
            row.method.label: next(iter(row.results.values()))["n_components"]
            for row in self.ranked
        }
        notes = []
        if len(set(sizes.values())) > 1:
            parts = ", ".join(f"{label} {size}" for label, size in sizes.items())
            notes.append(f"More dimensions keep more neighbors. The embeddings have: {parts}.")
        best = self._kept(self.judged[0])
        lucky = [r for r in self.ranked if r.method.role == "baseline" and self._kept(r) > best]
        if lucky:
            notes.append(
                f"{lucky[0].method.label} keeps {format_percent(self._kept(lucky[0]))}. This "
                "depends on its random draw, so it is shown but not judged."
            )
        if best < 0.5:
            few = next(iter(sizes.values()))
            notes.append(
                f"Even the best method keeps only {format_percent(best)}: "
                f"{format_count(few, 'dimension')} may be too few for these data."
            )
        return notes

    def _certificate_notes(self) -> list[str]:
        notes = []
        for row in self.ranked:
            gap = self._mean(row, "gap")
            if gap is not None and gap > _WIDE_GAP:
                notes.append(
                    f"{row.method.label} stopped up to {format_percent(gap)} below the best "
                    "possible variance: more iterations may unfold it further."
                )
        return notes

    def _mean(self, row: Row, key: str) -> float | None:
        found = [result.get(key) for result in row.results.values()]
        values = [value for value in found if value is not None]
        return float(np.mean(values)) if values else None

    # The document

    def _numbers(self, row: Row) -> tuple[Estimate | None, Estimate | None]:
        folds = self.common if row in self.ranked else sorted(row.results)
        paired = []
        if self.reference is not None and row is not self.reference:
            paired = [fold for fold in folds if fold in self.reference.results]
        return (
            self._estimate(row, None, folds) if folds else None,
            self._estimate(row, self.reference, paired) if paired else None,
        )

    def _entry(self, row: Row) -> dict[str, Any]:
        """Return the entry in fractions of neighbors kept, of which more is better."""
        entry = super()._entry(row)
        results = row.results.values()
        warned = [text for result in results for text in result["warnings"]]
        lost, less = entry["error"], entry["difference"]
        return entry | {
            "setting": row.method.settings[0].label,
            "n_components": next(iter(results), {}).get("n_components"),
            "kept": None if lost is None else 1.0 - lost,
            "interval": _turned(entry["interval"], 1.0),
            "difference": None if less is None else 0.0 - less,
            "difference_interval": _turned(entry["difference_interval"], 0.0),
            "recommended": row in self.ranked and self._is_recommended(row, entry),
            **{key: self._mean(row, key) for key in BESIDE},
            "picture_core": _median([r.get("picture_core") for r in results]),
            "picture_fault": self.faults[row.method.name],
            "by_neighbors": {
                str(number): float(np.mean([r["by_neighbors"][str(number)] for r in results]))
                for number in self.problem.looked_at
                if results
            },
            "warnings": [
                {"text": text, "folds": warned.count(text)} for text in dict.fromkeys(warned)
            ],
        }

    def _is_recommended(self, row: Row, entry: dict[str, Any]) -> bool:
        """Return True if it is the first method, or not clearly worse than it."""
        name = row.method.name
        if self.best is None or name == self.best:
            return name == self.best
        tied = (
            self.verdict == "inconclusive"
            and self.best != REFERENCE
            and name in self.ties(self.best)
        )
        return tied and (entry["p"] is None or entry["recommended"])

    def warnings(self) -> list[Trap]:
        """Return the warnings of the methods, each text once with the methods that raised it."""
        said: dict[str, list[str]] = {}
        for row in self.rows.values():
            texts = dict.fromkeys(text for r in row.results.values() for text in r["warnings"])
            for text in list(texts)[:1]:
                kind, _, rest = text.partition(": ")
                words = rest if kind.endswith("Warning") and rest else text
                label = row.method.label
                said.setdefault(words.removeprefix(f"{label}: "), []).append(label)
        return [Trap(", ".join(labels), text) for text, labels in said.items()]

    def pictures(self) -> dict[str, Any]:
        """What the report draws: places of rows of the first fold, and spectra."""
        fold = self.scheme.folds[0]
        known, held = drawn_rows(len(fold.train), len(fold.test))
        rows = [*fold.train[known].tolist(), *fold.test[held].tolist()]
        drawn = [row for row in self.rows.values() if row.status != "failed"]
        firsts = {row.method.name: row.results.get(0, {}) for row in drawn}
        return {
            "pictures": {
                "rows": rows,
                "held_out": len(held),
                "methods": {name: f["map"] for name, f in firsts.items() if f.get("map")},
            },
            "spectra": {name: f["spectrum"] for name, f in firsts.items() if f.get("spectrum")},
        }


def _median(values: list[float | None]) -> float | None:
    """The median of what is known: one fold with an outlier is not to decide it."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _turned(ends: list[float] | None, whole: float) -> list[float] | None:
    """The interval of what is kept, from that of what is lost."""
    return None if ends is None else [whole - ends[1], whole - ends[0]]
