"""From raw rows to same or different in one Pipeline, whose last step is a PairClassifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from nearfar.app.compare.chain import Chain
from nearfar.app.compare.pair_folds import fit_to_pairs
from nearfar.app.compare.through import map_through
from nearfar.neighbors.pair_classifier import PairClassifier, Strategy


@dataclass(frozen=True)
class PairChain(Chain):
    """What is to be used on pairs, not yet fitted."""

    strategy: Strategy = "accuracy"

    def pipeline(self) -> Pipeline:
        """Steps ``prepare``, ``scale``, ``reduce``, ``pairs``, as far as there are."""
        before, learner = self._parts(self.chosen.setting.steps(self.prepare))
        return Pipeline([*before, ("pairs", PairClassifier(learner, strategy=self.strategy))])

    def fitted(self, rows: Any, y: Any = None) -> Pipeline:
        """The Pipeline, fitted to rows and pairs, ``y``; its last step takes pairs of mapped rows.

        The learner sees all rows, those in no pair too; the threshold is calibrated on the pairs.
        """
        steps = self.chosen.setting.steps(self.prepare)
        if steps:
            fit_to_pairs(Pipeline(steps), rows, y)
        before, learner = self._parts(steps)
        points = np.asarray(map_through(Pipeline(before), rows) if before else rows)
        classifier = PairClassifier(learner, strategy=self.strategy, prefit=True)
        classifier.fit(*y.to_arrays(points))
        return Pipeline([*before, ("pairs", classifier)])

    def _parts(self, steps: list[tuple[str, Any]]) -> tuple[list[tuple[str, Any]], Any]:
        """What comes before the learner, and the learner; of a plain distance there is none."""
        if steps and steps[-1][0] == "learner":
            return steps[:-1], steps[-1][1]
        return steps, None
