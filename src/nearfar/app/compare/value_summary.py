"""Learners compared with the best standard distance by their errors on held-out numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.app.compare.answer import Row
from nearfar.app.compare.summary import REFERENCE, Summary
from nearfar.app.compare.value_folds import ValueProblem
from nearfar.app.compare.wording import Wording
from nearfar.arrays import Vector
from nearfar.evaluation.inference import Estimate, estimate_from_folds, estimate_from_rows

#: Parts of the target, by size, whose errors the page shows.
SIZES = 5
#: Rows of which it is kept how far off they are, the worst first.
MOST_WORST = 100


WORDING = Wording(
    "relative RMSE",
    "it predicts every held-out row exactly, and no {learned} can improve on that.",
    "the lowest relative RMSE",
    "values",
)


class ValueSummary(Summary):
    """As of classes, but errors are relative RMSEs, which may exceed one."""

    problem: ValueProblem
    most_error = np.inf

    @property
    def say(self) -> Wording:
        """Phrases for a relative RMSE."""
        return WORDING

    def _losses(self, row: Row, fold: int) -> NDArray[np.float64]:
        """Of each row; their mean is the relative RMSE."""
        true = self.problem.values[self.scheme.folds[fold].test]
        return self.problem.measure.compute_losses(true, np.asarray(row.results[fold]["predicted"]))

    def _over_rows(self, losses: NDArray[np.float64], rows: NDArray[np.intp]) -> Estimate:
        """Estimate as if two more rows had the mean error of the baseline."""
        return estimate_from_rows(losses, unit=self._level())

    def _over_folds(self, values: ArrayLike, folds: list[int]) -> Estimate:
        """Resolved no finer than what one row is worth: it is as far off as usual, or not at all.

        That changes the root of a mean of n squares by 1/2n of it.
        """
        one_row = float(np.mean([0.5 / len(self.scheme.folds[fold].test) for fold in folds]))
        share = self.scheme.test_share
        return estimate_from_folds(values, share, resolution=one_row * self._level())

    def _level(self) -> float:
        """Return the mean error of the baseline."""
        reference = self.rows[REFERENCE]
        return float(self.errors(reference, sorted(reference.results)).mean())

    # The document

    def _entry(self, row: Row) -> dict[str, Any]:
        entry = super()._entry(row)
        error = entry["error"]
        return entry | {"rmse": None if error is None else error * self.problem.measure.unit}

    def pictures(self) -> dict[str, Any]:
        """What the report draws: held-out values and what was said of them, maps, weights."""
        found = super().pictures()
        held, values = found["held_out"], self.problem.values
        held["true"] = [float(value) for value in values[held["rows"]]]
        if "labels" in held:
            held["labels"] = {row: float(values[int(row)]) for row in held["labels"]}
        return found | {"values": self._values(held)}

    def _values(self, held: dict[str, Any]) -> dict[str, Any]:
        """Errors by the size of the target, and the rows that all methods predict worst."""
        true = np.array(held["true"])
        tested = {
            name: np.array(said, np.float64)  # None becomes NaN
            for name, said in held["predicted"].items()
        }
        parts = _sizes(true)
        unit = self.problem.measure.unit
        return {
            "unit": unit,
            "sizes": [
                {"n": int(inside.sum()), "low": float(true[inside].min())}
                | {"high": float(true[inside].max())}
                for inside in parts
            ],
            "by_size": {
                name: [_off(true[inside], said[inside], unit) for inside in parts]
                for name, said in tested.items()
            },
            **self._worst(held["rows"], true, tested),
        }

    def _worst(self, rows: list[int], true: Vector, tested: dict[str, Vector]) -> dict[str, Any]:
        """The rows that every distance misses, by the least of their misses, the largest first."""
        asked = [
            row.method
            for row in self.ranked
            if row.method.role in ("reference", "learner") and row.method.name in tested
        ]
        if not asked or not len(true):
            return {"n_tested": len(true), "worst": [], "judged_by": []}
        missed = np.array([np.abs(tested[one.name] - true) for one in asked])
        least = missed.min(axis=0)
        least[np.isnan(missed).any(axis=0)] = -1.0  # not tested by all
        order = np.argsort(-least, kind="stable")
        order = order[least[order] > 0][:MOST_WORST]
        return {
            "n_tested": int((least >= 0).sum()),
            "judged_by": [one.label for one in asked],
            "worst": [
                {
                    "row": int(rows[i]),
                    "true": float(true[i]),
                    "predicted": {one.name: float(tested[one.name][i]) for one in asked},
                }
                for i in order
            ],
        }


def _sizes(true: Vector) -> list[NDArray[np.bool_]]:
    """Fifths of the values by size, as masks; equal values are in one."""
    if not len(true):
        return []
    cuts = np.unique(np.quantile(true, np.arange(1, SIZES) / SIZES, method="inverted_cdf"))
    parts = np.searchsorted(cuts, true, side="left")
    return [parts == part for part in np.unique(parts)]


def _off(true: Vector, said: Vector, unit: float) -> dict[str, Any] | None:
    """Relative RMSE and mean deviation of some rows, as far as they were tested."""
    known = ~np.isnan(said)
    if not known.any():
        return None
    off = (said[known] - true[known]) / unit
    return {"error": float(np.sqrt(np.mean(off**2))), "bias": float(off.mean())}
