"""Learners compared with the best standard distance by how they rank held-out pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.app.compare.answer import Row
from nearfar.app.compare.pair_folds import PairProblem
from nearfar.app.compare.summary import Summary
from nearfar.app.compare.wording import ScoreWording, Wording
from nearfar.arrays import Matrix
from nearfar.evaluation.inference import Estimate, estimate_from_folds

#: Bars of a histogram, and places of a curve.
BARS, PLACES = 36, 101
#: Held-out pairs whose distances the document keeps, and pairs all get wrong that it names.
MOST_KEPT, MOST_WRONG = 20_000, 100

WORDING = ScoreWording(
    "AUC of held-out pairs",
    "it ranks every held-out pair correctly, and no {learned} can improve on that.",
    "the highest AUC",
)


class PairSummary(Summary):
    """Summary of a comparison by pairs: an error is one minus the area under the ROC curve."""

    problem: PairProblem  # type: ignore[assignment]
    large = frozenset({"distances", "history", "weights"})

    @property
    def say(self) -> Wording:
        """Phrases for areas under the curve, of which more is better."""
        return WORDING

    @property
    def fixed(self) -> bool:
        """Never: there are folds."""
        return False

    def _over_folds(self, values: ArrayLike, folds: list[int]) -> Estimate:
        """Resolved no finer than what half a pair of the rarer kind is worth."""
        rarer = [
            np.bincount(self.problem.codes[self.scheme.folds[fold].test], minlength=2).min()
            for fold in folds
        ]
        one_pair = float(np.mean([0.5 / n for n in rarer]))
        return estimate_from_folds(values, self.scheme.test_share, resolution=one_pair)

    def nested(self) -> dict[str, Any] | None:
        """The area when the method too is chosen inside each training fold."""
        found = super().nested()
        return None if found is None else found | {"auc": 1.0 - found["error"]}

    # The document

    def _entry(self, row: Row) -> dict[str, Any]:
        """As for errors, but in areas: the higher, the better."""
        entry = super()._entry(row)
        lost, ends = entry["error"], entry["interval"]
        used = [f for f in self.common if f in row.results] or sorted(row.results)
        return entry | {
            "auc": None if lost is None else 1.0 - lost,
            "interval": None if ends is None else [1.0 - ends[1], 1.0 - ends[0]],
            **{key: self._mean(row, used, key) for key in ("threshold", "missed", "false_alike")},
        }

    def _mean(self, row: Row, folds: list[int], key: str) -> float | None:
        values = [row.results[fold].get(key) for fold in folds]
        known = [value for value in values if value is not None]
        return float(np.mean(known)) if known else None

    def pictures(self) -> dict[str, Any]:
        """What the report draws: distances of held-out pairs, curves, pairs that all get wrong."""
        drawn = self._drawn()
        votes = [row for row in self.rows.values() if row.method.role in ("reference", "learner")]
        return {
            "pairs": {
                "strategy": self.problem.strategy,
                "methods": {
                    row.method.name: self._picture(row)
                    for row in drawn
                    if row.method.role in ("reference", "learner")
                },
                **self._wrong(
                    [row for row in drawn if row.method.role in ("reference", "learner")]
                ),
            },
            "held_out_pairs": self._held_out(drawn),
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
        }

    def _tested(self) -> list[int]:
        """The folds of the first repeat that all ranked methods have done."""
        return [fold for fold in self.common if self.scheme.folds[fold].repeat == 0]

    def _drawn(self) -> list[Row]:
        tested = self._tested()
        return [
            row
            for row in self.ranked
            if tested and all(row.results.get(fold, {}).get("distances") for fold in tested)
        ]

    def _numbers_of(self, folds: list[int]) -> NDArray[np.intp]:
        return np.concatenate([self.scheme.folds[fold].test for fold in folds])

    def _distances(self, row: Row) -> Matrix:
        return np.concatenate([row.results[fold]["distances"] for fold in self._tested()])

    def _thresholds(self, row: Row) -> Matrix:
        """The threshold of the fold that tests each pair."""
        return np.concatenate(
            [
                np.full(len(row.results[fold]["distances"]), row.results[fold]["threshold"])
                for fold in self._tested()
            ]
        )

    def _picture(self, row: Row) -> dict[str, Any]:
        """Histograms, a curve, and the threshold with its error rates, of the first repeat."""
        tested = self._tested()
        codes = self.problem.codes[self._numbers_of(tested)]
        distances = self._distances(row)
        # What lies far out would squeeze the rest.
        most = float(np.quantile(distances, 0.995)) or 1.0
        edges = np.linspace(0.0, most, BARS + 1)
        counts = {
            kind: np.histogram(np.minimum(distances[codes == code], most), edges)[0].tolist()
            for kind, code in (("alike", 1), ("different", 0))
        }
        thresholds = [row.results[fold]["threshold"] for fold in tested]
        near = distances <= self._thresholds(row)
        return {
            "edges": edges.tolist(),
            **counts,
            "beyond": int((distances > most).sum()),
            "threshold": float(np.mean(thresholds)),
            "thresholds": [float(np.min(thresholds)), float(np.max(thresholds))],
            "missed": float(np.mean(~near[codes == 1])),
            "false_alike": float(np.mean(near[codes == 0])),
            "roc": self._curve(row),
        }

    def _curve(self, row: Row) -> list[float]:
        """Share of alike pairs found at each share of different pairs called alike.

        The curves of the folds of the first repeat averaged upright: its area is their mean.
        """
        grid = np.linspace(0.0, 1.0, PLACES)
        curves = []
        for fold in self._tested():
            codes = self.problem.codes[self.scheme.folds[fold].test]
            curves.append(roc_at(grid, codes, np.asarray(row.results[fold]["distances"])))
        return [float(f"{value:.4g}") for value in np.mean(curves, axis=0)]

    def _wrong(self, rows: list[Row]) -> dict[str, Any]:
        """The held-out pairs on the wrong side of every method's threshold, the farthest first."""
        if not rows:
            return {"n_tested": 0, "n_wrong": 0, "judged_by": [], "wrong": []}
        numbers = self._numbers_of(self._tested())
        codes = self.problem.codes[numbers]
        distances = np.array([self._distances(row) for row in rows])
        thresholds = np.array([self._thresholds(row) for row in rows])
        wrong = ((distances <= thresholds) != (codes == 1)).all(axis=0)
        ratios = distances / np.maximum(thresholds, 1e-3)  # one that calls none alike is below 0
        far = np.abs(np.log(np.clip(ratios, 1e-3, 1e3))).mean(axis=0)
        places = np.flatnonzero(wrong)
        places = places[np.argsort(-far[places], kind="stable")]
        return {
            "n_tested": len(numbers),
            "n_wrong": int(wrong.sum()),
            "n_wrong_alike": int((wrong & (codes == 1)).sum()),
            "judged_by": [row.method.label for row in rows],
            "wrong": [
                {
                    "rows": self.problem.ends[numbers[i]].tolist(),
                    "alike": bool(codes[i]),
                    "ratios": {
                        row.method.name: float(f"{ratio:.4g}")
                        for row, ratio in zip(rows, ratios[:, i], strict=True)
                    },
                }
                for i in places[:MOST_WRONG]
            ],
        }

    def _held_out(self, rows: list[Row]) -> dict[str, Any]:
        """Pairs that the first repeat tests, and their distances by each method."""
        tested = self._tested()
        if not tested:
            return {"rows": [], "alike": [], "fold": [], "distances": {}, "n": 0}
        numbers = self._numbers_of(tested)
        some = np.linspace(0, len(numbers) - 1, min(len(numbers), MOST_KEPT)).astype(np.intp)
        folds = np.repeat(tested, [len(self.scheme.folds[fold].test) for fold in tested])
        return {
            "n": len(numbers),
            "rows": self.problem.ends[numbers[some]].tolist(),
            "alike": (self.problem.codes[numbers[some]] == 1).tolist(),
            "fold": folds[some].tolist(),
            "distances": {row.method.name: self._distances(row)[some].tolist() for row in rows},
        }


def roc_at(grid: Matrix, codes: NDArray[np.intp], distances: Matrix) -> Matrix:
    """Share of alike pairs found, at shares of different pairs called alike.

    >>> codes, distances = np.array([1, 1, 0, 0]), np.array([1.0, 3.0, 2.0, 4.0])
    >>> roc_at(np.array([0.0, 0.25, 0.5, 1.0]), codes, distances).tolist()
    [0.5, 0.5, 1.0, 1.0]
    """
    from sklearn.metrics import roc_curve

    wrong, right, _ = roc_curve(codes, -distances, drop_intermediate=False)
    # Of several heights at one place the last is reached.
    last = np.flatnonzero(np.diff(wrong, append=np.inf) > 0)
    between = np.interp(grid, wrong, right)
    at = np.searchsorted(wrong[last], grid)
    exact = (at < len(last)) & np.isclose(wrong[last][np.minimum(at, len(last) - 1)], grid)
    between[exact] = right[last][at[exact]]
    return between
