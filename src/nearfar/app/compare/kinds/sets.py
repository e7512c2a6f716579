"""Sets of vectors with labels: rows each of which is a set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from nearfar.app.compare.answer import Answer, Row
from nearfar.app.compare.kinds.rows import RowKind, cuts
from nearfar.app.compare.methods import Method
from nearfar.app.compare.profile import profile
from nearfar.app.compare.schedule import MAX_REPEATS, Schedule
from nearfar.app.compare.set_comparison import SetComparison
from nearfar.app.compare.set_methods import plain_setting, set_baselines, set_context, set_learners
from nearfar.app.compare.set_pictures import picture_of_sets
from nearfar.app.compare.set_units import MANY_SETS, TOLERANCE, SetUnits, units_text
from nearfar.app.compare.shared_pairs import SharedPairs
from nearfar.app.compare.shown import rows_to_show
from nearfar.app.compare.splits import Scheme
from nearfar.app.tables.columns import Columns
from nearfar.app.tables.copies import duplicates
from nearfar.app.tables.reading import refuse_for_sets
from nearfar.app.tables.traps import Trap
from nearfar.distributions.objects import compute_fingerprints
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.distributions.set_k_neighbors_classifier import SetKNeighborsClassifier
from nearfar.summaries.sets import Sets
from nearfar.words import format_count

#: Sets on which each method is timed, at most: their pairs are many.
PILOT_SETS = 150
#: The fewest to which a plan may cut them.
LEAST_SETS = 500


class SetKind(RowKind):
    """Dissimilarities of sets, compared with the distance between their means."""

    result = SetComparison

    def read(self) -> None:
        """The sets, whose labels may be their own."""
        asked = self.question
        if asked.unlabelled:
            raise ValueError(
                "--unlabeled compares embeddings of rows; sets of vectors are compared by their "
                "labels, and drawn without them by nearfar embed."
            )
        if asked.from_file:
            refuse_for_sets(time=asked.time, keep=asked.keep)
        super().read()
        if self.table.y is None:
            self.table.y = self.table.X.labels
        if self.table.y is None:
            raise ValueError("y is None, and the sets have no labels: sets are compared by them.")

    def prepare(self) -> None:
        """The work on rows, with what methods of sets can share."""
        super().prepare()
        problem = self.problem
        problem.plainest = plain_setting()
        problem.learned = "method for sets"
        problem.pairs = SharedPairs(problem.X, self.question.cores)
        # All pairs are compared: the work grows with the square.
        problem.pilot_rows, problem.least_rows = PILOT_SETS, LEAST_SETS

    @property
    def plainest(self) -> str:
        """The means, scaled as the methods are at their first setting."""
        return "mean-raw" if self.question.scale == "none" else "mean-standardized"

    def _choose_columns(self) -> None:
        """The features of the vectors, all in use."""
        for name in ("keep", "drop"):
            given = getattr(self.question, name)
            if given and not self.question.from_file:
                raise ValueError(
                    f"{name}={given!r}: features of sets are chosen when they are made; see "
                    "nearfar.datasets.read_sets and Sets.from_frame."
                )
        self.keep, self.drop = [], []  # the reader has done it
        p = self.table.X.n_features
        names = self.table.feature_names or [f"column {i}" for i in range(p)]
        self.columns = Columns(tuple(range(p)), (), (), False, tuple(names))

    def _inputs(self) -> tuple[Any, Any]:
        """The sets to train on, and after them those of the test set."""
        table, test = self.table, self.test
        if test is None:
            return table.X, "passthrough"
        if test.noun != table.noun:
            raise ValueError(f"{test.name} holds rows, but {table.name} sets of vectors.")
        if test.X.n_features != table.X.n_features:
            raise ValueError(
                f"The test data have {test.X.n_features} features, the training data "
                f"{table.X.n_features}."
            )
        return Sets.concatenate([table.X, test.X]), "passthrough"

    def splits(self, repeats: int, sample: int | None = None) -> Scheme:
        """Folds as of rows, which share the units of the vectors where these hardly differ."""
        scheme, pairs = super().splits(repeats, sample), self.problem.pairs
        # There are pairs to spare, and room for them.
        dear = len(scheme.folds) > 1 and scheme.n_rows >= MANY_SETS and self._in_units
        if not dear or pairs is None or not pairs.lasts(scheme.n_rows):
            return scheme
        folds = scheme.folds
        if self.question.draws_folds:  # all that may follow: what is begun is not changed
            folds = super().splits(self.question.repeats or MAX_REPEATS, sample).folds
        found = self._units.differences(folds)
        if found is None or max(found) > TOLERANCE:
            return scheme
        return replace(scheme, units_differ=max(found[: len(scheme.folds)]))

    @cached_property
    def _units(self) -> SetUnits:
        return SetUnits(self.problem.X)

    @cached_property
    def _learners(self) -> list[Method]:
        asked = self.question
        return set_learners(asked.methods, asked.scale, asked.random_state)

    @property
    def _in_units(self) -> bool:
        """Whether dear pairs depend on scale or ridge of other sets."""
        sharing = [method for method in self._learners if method.shares is not None]
        return any(len(method.lasting) < method.n_parts for method in sharing)

    def methods(self, scheme: Scheme) -> list[Method]:
        """Neighbors by the means, what sees more, and the majority class."""
        asked, seed, found = self.question, self.question.random_state, self._learners
        if self.problem.pairs is not None:
            self.problem.pairs.expect(found, len(scheme.folds))
        return [*set_baselines(), *found, *(set_context(seed) if asked.context else [])]

    def plain(self) -> list[Method]:
        """Neighbors by the means."""
        return set_baselines()

    def learned(self, name: str) -> list[Method]:
        """Methods of sets by a name."""
        return set_learners(name, self.question.scale, self.question.random_state)

    @property
    def selector(self) -> Callable[[Any], Any]:
        """Leaves sets as they are."""
        return _as_they_are

    def ids(self) -> tuple[str | None, Any]:
        """The names of the sets."""
        return self.question.set_id or "set", self.table.X.names

    def warnings(self, scheme: Scheme) -> list[Trap]:
        """Copies, small classes, and sets too small for a covariance."""
        problem, sets = self.problem, self.problem.X
        names = sets.names if self.question.show_rows else None
        found = duplicates(
            compute_fingerprints(sets), problem.codes, cuts(scheme), noun=problem.noun, names=names
        )
        return [*found, *self._class_warnings(scheme), *small_sets(sets)]

    def protocol(self, schedule: Schedule) -> dict[str, Any]:
        """As of rows, and where the units of the vectors come from."""
        scheme = schedule.scheme
        text = ""
        if scheme.units_differ is not None:
            text = units_text(scheme.n_rows, scheme.rows is not None, scheme.units_differ)
        units = {"units": text, "units_differ": scheme.units_differ}
        return super().protocol(schedule) | units

    def describe(self) -> dict[str, Any]:
        """What is known of the data, and the sizes of the sets."""
        sizes, n_vectors = self.problem.X.sizes, self.problem.X.n_vectors
        least, most = int(sizes.min()), int(sizes.max())
        range_ = f"{least:,} to {most:,}"
        return super().describe() | {
            "sets": {
                "n_vectors": n_vectors,
                "least": least,
                "median": float(np.median(sizes)),
                "most": most,
            },
            "of": f" of {range_} vectors ({n_vectors:,} in all)",
            "facts": [["Vectors", f"{n_vectors:,}"], ["Of a set", range_]],
        }

    def _profile(self) -> dict[str, Any] | None:
        """What the features of the vectors hold."""
        asked = self.question
        found = profile(
            self.problem.X.X, self.columns, show_values=asked.show_rows, seed=asked.random_state
        )
        return found | {"unit": "vector"}

    def show(self, document: dict[str, Any], found: Answer) -> dict[str, Any]:
        """As of rows, and a picture of the sets."""
        told = found.rows[found.judgement.method or found.chosen.method.name]
        return super().show(document, found) | {"picture": self._picture(document, told)}

    def _contents(self, document: dict[str, Any]) -> dict[str, Any]:
        """Names and sizes of the sets that the report shows."""
        sets, chosen = self.problem.X, rows_to_show(document)
        values = {str(row): [f"{sets.sizes[row]:,}"] for row in chosen}
        names = {}
        if sets.names is not None:
            names = {str(row): str(sets.names[row])[:60] for row in chosen}
        return {"rows": {"columns": ["vectors"], "values": values, "names": names}, "images": None}

    def _picture(self, document: dict[str, Any], told: Row) -> dict[str, Any] | None:
        """The sets by the dissimilarity of the method that the answer speaks of."""
        shown = shown_dissimilarity(told.method, told.results)
        seed, show_rows = self.question.random_state, self.question.show_rows
        try:
            return picture_of_sets(
                self.problem.X,
                shown,
                seed,
                told.method.label,
                show_rows=show_rows,
                n_jobs=self.question.cores,
            )
        except (ValueError, np.linalg.LinAlgError, MemoryError) as error:
            # What was compared stands, with or without a picture.
            text = f"The sets could not be drawn: {error}"
            document["warnings"].append({"kind": "picture", "text": text})
            return None


def _as_they_are(sets: Any) -> Any:
    return sets


def small_sets(sets: Sets) -> list[Trap]:
    """Sets whose covariances say little."""
    found = []
    sizes, p = sets.sizes, sets.n_features
    few = int((sizes < 2).sum())
    if few:
        found.append(
            Trap(
                "small sets",
                f"{format_count(few, 'set')} of {len(sizes):,} "
                f"{'has' if few == 1 else 'have'} a single vector: of these only the place counts, "
                "no covariance.",
            )
        )
    thin = int((sizes <= p).sum())
    if thin > len(sizes) / 2:
        found.append(
            Trap(
                "small sets",
                f"{format_count(thin, 'set')} of {len(sizes):,} have no more vectors than the {p} "
                "features: their covariances are singular but for the ridge, which then decides. "
                "Fewer features, or longer sets, would say more.",
            )
        )
    return found


def shown_dissimilarity(
    method: Method, results: dict[int, dict[str, Any]]
) -> dict[str, Any] | None:
    """Metric, ridge and scaling of a method as most folds chose them; None where it has no such."""
    labels = Counter(result["setting"] for result in results.values())
    most = labels.most_common(1)[0][0] if labels else None
    settings = [s for s in method.settings if s.label == most] or list(method.settings)
    if not settings:
        return None
    parts = [settings[0].estimator, *_steps(settings[0].estimator)]
    for part in parts:
        if isinstance(part, SetKNeighborsClassifier | SetEmbedding):
            keys = ("metric", "ridge", "shrinkage", "standardize")
            return {key: getattr(part, key) for key in keys}
    return None


def _steps(estimator: Any) -> list[Any]:
    if not isinstance(estimator, BaseEstimator):
        return []
    return [v for v in estimator.get_params(deep=True).values() if isinstance(v, BaseEstimator)]
