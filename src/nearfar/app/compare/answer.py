"""From the results of folds to numbers and text: the base class of all answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.app.compare.judgement import Judgement
from nearfar.app.compare.methods import Method
from nearfar.app.compare.schedule import Schedule
from nearfar.app.compare.second_stage import Finalist
from nearfar.app.tables.traps import Trap
from nearfar.evaluation.inference import Estimate
from nearfar.words import join_names

Results = dict[int, dict[str, Any]]


@dataclass
class Row:
    """A method's results, ready to be ranked."""

    method: Method
    results: Results
    status: str
    reason: str | None
    peak: float | None
    #: Whether it failed because its process died, as it may not do again.
    lost: bool = False

    def median(self, key: str) -> float | None:
        """Median of a number over the folds."""
        values = [result[key] for result in self.results.values()]
        return float(np.median(values)) if values else None


class Answer(ABC):
    """Statistics over the folds that all ranked methods share.

    Parameters
    ----------
    problem : Work
        What was compared.
    schedule : Schedule
        How far each method came, and by which folds.
    """

    #: What of a result is kept out of the table: it is shown as a picture.
    large: ClassVar[frozenset[str]]
    confidence = 0.95
    #: The largest error there can be.
    most_error: ClassVar[float] = 1.0
    #: Folds that all ranked methods have done.
    common: list[int]
    ranked: list[Row]
    judgement: Judgement
    #: What came of the fit to all rows.
    confirmed: dict[str, Any] | None = None

    def __init__(self, problem: Any, schedule: Schedule, *, min_gain: float) -> None:
        self.problem, self.scheme, self.min_gain = problem, schedule.scheme, min_gain
        assert schedule.plan is not None
        self.plan = schedule.plan
        runs = schedule.runs.values()
        self.rows = {
            run.method.name: Row(
                run.method, run.results, run.status, run.reason, run.peak, run.lost
            )
            for run in runs
        }

    @property
    @abstractmethod
    def best(self) -> str | None:
        """Name of the method to use."""

    @property
    @abstractmethod
    def chosen(self) -> Row:
        """The method whose code is shown."""

    @abstractmethod
    def answer(self, warned: Sequence[Trap] = ()) -> dict[str, Any]:
        """Verdict, sentence and notes."""

    @abstractmethod
    def pictures(self) -> dict[str, Any]:
        """What the report draws."""

    @abstractmethod
    def _numbers(self, row: Row) -> tuple[Estimate | None, Estimate | None]:
        """Return a method's error and its difference to the baseline; None where unknown."""

    def nested(self) -> dict[str, Any] | None:
        """Return the error when the method itself is selected within each training fold."""
        return None

    def finalists(self) -> list[Finalist]:
        """Return the methods to fit to all rows if the folds used a sample."""
        return []

    def confirm(self, confirmed: dict[str, Any] | None) -> None:
        """Store the results of the finalists."""
        self.confirmed = confirmed

    def warnings(self) -> list[Trap]:
        """Return warnings of the methods that every user should read."""
        return []

    def errors(self, row: Row, folds: list[int]) -> NDArray[np.float64]:
        """Errors of a method on some folds."""
        return np.array([row.results[fold]["error"] for fold in folds])

    def _error(self, row: Row) -> float:
        return float(self.errors(row, self.common).mean())

    def table(self) -> list[dict[str, Any]]:
        """A row for each method, by error; what did not finish comes last."""
        return sorted(
            (self._entry(row) for row in self.rows.values()),
            key=lambda e: (
                ["done", "unfinished", "left out", "failed"].index(e["status"]),
                np.inf if e["error"] is None else e["error"],
            ),
        )

    def _entry(self, row: Row) -> dict[str, Any]:
        estimate, difference = self._numbers(row)
        judged = self.judgement.comparands.get(row.method.name)
        if judged is not None and not judged.difference.degrees > 0:
            judged = None  # one fold gives no p
        return {
            "name": row.method.name,
            "label": row.method.label,
            "role": row.method.role,
            "status": row.status,
            "reason": row.reason,
            "folds_done": len(row.results),
            # The error below is of these; others may have done fewer.
            "folds_used": self._n_used(row),
            "error": None if estimate is None else estimate.mean,
            "interval": bounds(estimate, self.confidence, most=self.most_error),
            "difference": None if difference is None else difference.mean,
            "difference_interval": bounds(difference, self.confidence),
            "gain": None if difference is None else -difference.mean,
            "gain_interval": _turned(bounds(difference, self.confidence)),
            "p": None if judged is None else judged.p,
            "p_holm": None if judged is None else judged.p_holm,
            "recommended": judged is not None and judged.recommended,
            "fit_seconds": row.median("fit_seconds"),
            "predict_seconds": row.median("predict_seconds"),
            "peak_mb": row.peak,
            "not_converged": sum(_not_converged(result) for result in row.results.values()),
            "results": [
                {key: value for key, value in row.results[fold].items() if key not in self.large}
                for fold in sorted(row.results)
            ],
        }

    def _n_used(self, row: Row) -> int:
        """Folds that a method's error was computed from."""
        used = set(self.common) if row in self.ranked else set(row.results)
        return len(used & set(row.results))

    def _without_folds(self, what: str, rows: Iterable[Row]) -> dict[str, Any]:
        """Return the answer if no fold was completed; ``what`` is the subject with its verb."""
        failed = [row for row in rows if row.status == "failed"]
        why = f" ({failed[0].method.label}: {failed[0].reason})" if failed else ""
        text = f"Inconclusive: {what} a fold in the time given{why}."
        return {"verdict": "inconclusive", "method": None, "text": text, "notes": []}

    def _lost(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return the answer if the processes of methods that form the baseline died."""
        parts = join_names([f"{row.method.label} ({row.reason})" for row in rows], quoted=False)
        text = (
            f"Inconclusive: {parts} {'was' if len(rows) == 1 else 'were'} lost, and without "
            f"{'it' if len(rows) == 1 else 'them'} there is no baseline. Run the comparison again, "
            "or resume it from its journal."
        )
        failed = [row for row in self.rows.values() if row.status == "failed" and row not in rows]
        notes = [f"{row.method.title} failed: {row.reason}" for row in failed]
        return {"verdict": "inconclusive", "method": None, "text": text, "notes": notes}

    def _unjudged_notes(self, rows: Iterable[Row]) -> list[str]:
        """Return a note for each method that the verdict does not cover."""
        notes = []
        for row in rows:
            if row.status == "failed":
                notes.append(f"{row.method.title} failed and was not judged: {row.reason}")
            elif row.status == "left out":
                notes.append(f"{row.method.title} was left out and not judged: {row.reason}")
            elif row not in self.ranked:
                notes.append(
                    f"{row.method.title} did not finish ({len(row.results)} of "
                    f"{len(self.scheme.folds)} folds) and was not judged. More time may change the "
                    "answer."
                )
        return notes


def bounds(
    estimate: Estimate | None, confidence: float, *, most: float | None = None
) -> list[float] | None:
    """Both ends of an estimate's interval, of an error from 0 to ``most``; None where unknown."""
    if estimate is None or not estimate.degrees > 0:
        return None
    low, high = estimate.interval(confidence)
    return [low, high] if most is None else [max(0.0, low), min(most, high)]


def _turned(interval: list[float] | None) -> list[float] | None:
    """The interval of the negative."""
    return None if interval is None else [-interval[1], -interval[0]]


def _not_converged(result: dict[str, Any]) -> bool:
    """Whether a learner warned that it stopped before the end."""
    return any(text.startswith("ConvergenceWarning") for text in result["warnings"])
