"""Rows of a table with labels: which distance tells the classes apart?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from nearfar.app.compare.answer import Answer
from nearfar.app.compare.by_group import (
    errors_by_group,
    group_names,
    group_notes,
    reported_values,
)
from nearfar.app.compare.document import contents, describe, kept_weights
from nearfar.app.compare.folds import Choice, Problem, tune
from nearfar.app.compare.kinds.kind import Kind
from nearfar.app.compare.lines import repeat_lines
from nearfar.app.compare.methods import (
    DEFAULT,
    LARGE,
    OF_IMAGES,
    Method,
    baselines,
    context_methods,
    learners,
    reduced,
    refuse_taken,
    those_told,
)
from nearfar.app.compare.profile import profile
from nearfar.app.compare.schedule import Schedule, tuning_words, without_folds
from nearfar.app.compare.shown import rows_to_show
from nearfar.app.compare.splits import Scheme, make_scheme
from nearfar.app.compare.summary import Summary
from nearfar.app.compare.wording import Wording
from nearfar.app.tables import copies, traps
from nearfar.app.tables.columns import choose_columns
from nearfar.app.tables.inputs import all_groups, all_labels, all_rows
from nearfar.app.tables.reading import left_to_drop
from nearfar.app.tables.traps import Trap
from nearfar.base.tags import SupervisionKind
from nearfar.evaluation.measures import choose_measure
from nearfar.words import join_names, normalize_name

#: The fewest rows to which a plan may cut them, and that times the classes.
LEAST_ROWS, ROWS_A_CLASS = 1000, 25


class RowKind(Kind):
    """Distances of rows, by the errors of their nearest neighbors."""

    problem: Problem
    #: What tells the learners, and why those that it tells nothing are left out.
    guide: ClassVar[SupervisionKind] = "labels"
    so: ClassVar[str] = "the target has classes (a number with --task regression)"
    #: What is said of them.
    said: Sequence[str] = ()
    #: What errors are reported by: its name, values, and whether it is a column.
    reported: tuple[str, Any, bool] | None

    def read(self) -> None:
        """The table, and that of a fixed test set."""
        asked = self.question
        if asked.color is not None or asked.n_components != 2:
            raise ValueError(
                "--color and --components are for embeddings: add --unlabeled."
                if asked.from_file
                else "color and n_components are for data without labels, and y is given."
            )
        self._read_given()

    def prepare(self) -> None:
        """Columns, labels, and the measure of errors."""
        self.reported = reported_values(self.question, self.table, self.test)
        self._choose_columns()
        noun = self.table.noun
        labels = all_labels(self.table, self.test)
        classes, codes = traps.check_target(labels, self.table.target or "y", noun=noun)
        X, prepare = self._inputs()
        # Two rows of each class, to try the scorer on.
        firsts = np.unique(codes, return_index=True)[1]
        lasts = len(codes) - 1 - np.unique(codes[::-1], return_index=True)[1]
        some = np.concatenate([firsts, lasts])
        measure = choose_measure(
            self.question.scoring,
            classes,
            np.bincount(codes, minlength=len(classes)),
            (X.iloc[some] if hasattr(X, "iloc") else X[some], codes[some]),
            noun=noun,
        )
        self.problem = Problem(
            X,
            classes,
            codes,
            prepare,
            measure,
            all_groups(self.table, self.test),
            self.table.time if self.test is None else None,
            self.columns.origins,
            len(self.columns.names),
            noun,
            least_rows=max(LEAST_ROWS, ROWS_A_CLASS * len(classes)),
            n_test_rows=0 if self.test is None else len(self.test.X),
            show_rows=self.question.show_rows,
            column_names=tuple(map(str, self.columns.names)),
        )

    def _choose_columns(self) -> None:
        self.keep = self.question.keep
        self.drop = left_to_drop(self.table, self.question.drop)
        by = self.reported[0] if self.reported is not None and self.reported[2] else None
        if by is not None and by not in self.drop:
            self.drop = [*self.drop, by]
        self.columns = choose_columns(
            self.table.X,
            feature_names=self.table.feature_names,
            keep=self.keep,
            drop=self.drop,
            show_cells=self.question.show_rows,
        )
        if by is not None:
            dropped = [
                (name, "errors are reported by it" if name == by else why)
                for name, why in self.columns.dropped
            ]
            self.columns = replace(self.columns, dropped=tuple(dropped))

    def _inputs(self) -> tuple[Any, Any]:
        """All rows, those of the test set last, and the first step of every chain."""
        rows = all_rows(self.table, self.test, self.columns)
        self.columns = self.columns.knowing(rows)
        return rows, self.columns.preprocessor()

    def splits(self, repeats: int, sample: int | None = None) -> Scheme:
        """Stratified folds, by groups or in time; or the user's own."""
        return make_scheme(
            self.problem.codes,
            repeats=repeats,
            seed=self.question.random_state,
            groups=self.problem.groups,
            time=self.problem.time,
            n_test_rows=self.problem.n_test_rows,
            cv=self.question.cv,
            X=self.problem.X,
            noun=self.problem.noun,
            sample=sample,
            stratified=self.problem.stratified,
        )

    def methods(self, scheme: Scheme) -> list[Method]:
        """Return four standard distances, the learners, and classifiers for context."""
        asked = self.question
        # Of all rows, drawn or not: a plan that is asked for again must try the same settings.
        size = (len(self.problem.codes), len(self.columns.names))
        able = self._able(asked.methods)
        found = self._compared(able, size)
        beside = self.beside() if asked.context else []
        refuse_taken(found, beside)
        n_train = min(len(fold.train) for fold in scheme.folds)
        return [*baselines(), *reduced([*found, *beside], size[1], n_train)]

    def _able(self, methods: Any) -> Any:
        """The learners that can learn from this target; of the others it is said."""
        if methods is None:
            names, self.said = self.defaults()
            return names
        found, self.said = those_told(methods, self.guide, self.so)
        return found

    def _compared(self, methods: Any, size: tuple[int, int] = (LARGE, 1)) -> list[Method]:
        """Learners by names or as given; what follows maps of tensors learns from labels only."""
        asked = self.question
        then = asked.then if self.guide == "labels" else "none"
        return learners(methods, asked.scale, tensor_shape=self.tensor_shape, size=size, then=then)

    def defaults(self) -> tuple[tuple[str, ...], list[str]]:
        """Learners where none are named, and what is said of them."""
        shape = self.table.image_shape
        if shape is None or self.tensor_shape is None:
            return DEFAULT, []
        sizes = " × ".join(map(str, shape))
        return (*DEFAULT, OF_IMAGES), [
            f"{OF_IMAGES} is compared too, since rows are images of {sizes}: it learns one small "
            "matrix for each of these modes instead of one large one for all pixels. Whether that "
            "is better here, the folds say."
        ]

    def beside(self) -> list[Method]:
        """What is no distance, for context."""
        return context_methods(self.question.random_state)

    def named(self, name: str) -> Method:
        """Return a standard distance, the best of them, or a learner, as in a comparison."""
        plain = {normalize_name(one.name): one for one in self.plain()}
        every = tuple(setting for one in plain.values() for setting in one.settings)
        plain["reference"] = Method("reference", "best standard distance", "reference", every)
        if not name.strip() or "," in name:
            raise ValueError(f"--method {name!r}: name one method; nearfar methods lists them.")
        # The British spelling was the name in earlier versions.
        key = normalize_name(name).replace("standardised", "standardized")
        if key in plain:
            return plain[key]
        found = self.learned(name)
        if len(found) > 1:
            names = join_names((one.name for one in found), 5, quoted=False)
            raise ValueError(f"--method {name}: that is a family; name one of it: {names}.")
        return found[0]

    def plain(self) -> list[Method]:
        """Return the standard distances."""
        return baselines()

    def learned(self, name: str) -> list[Method]:
        """Learners by a name, for all rows."""
        able = those_told(name, self.guide, self.so)[0]
        found = self._compared(able)
        return reduced(found, len(self.columns.names), len(self.problem.codes))

    def tuned(self, method: Method, k: int | None) -> Choice:
        """The setting and k that do best inside the training rows."""
        problem = self.problem
        rows = np.arange(len(problem.codes) - problem.n_test_rows)
        return tune(problem, method, rows, "full", k=k)

    @property
    def say(self) -> Wording:
        """Phrases for the measure."""
        return Wording(self.problem.measure.name, learned=self.problem.learned)

    def training(self) -> tuple[Any, Any]:
        """All rows but those of a test file, and their labels."""
        problem = self.problem
        rows = np.arange(len(problem.codes) - problem.n_test_rows)
        return problem.rows(rows), problem.labels(rows)

    def warnings(self, scheme: Scheme) -> list[Trap]:
        """Copies, columns that tell the class, small classes, numbers of rows."""
        problem = self.problem
        same = copies.same_rows(problem.X)
        found = copies.duplicates(problem.X, problem.codes, cuts(scheme), same=same)
        found += copies.near_copies(problem.X, cuts(scheme), same=same)
        found += traps.telling_columns(problem.X, self.columns, problem.codes)
        found += self._class_warnings(scheme)
        if not hasattr(problem.X, "iloc"):
            found += traps.id_like(problem.X, self.table.feature_names)
        return found

    def _class_warnings(self, scheme: Scheme) -> list[Trap]:
        problem = self.problem
        classes = problem.classes.tolist()
        counts = np.bincount(problem.codes, minlength=len(classes)).tolist()
        return [
            *traps.small_classes(classes, counts, scheme.n_splits, noun=problem.noun),
            *traps.untrained_classes(classes, problem.codes, cuts(scheme), noun=problem.noun),
        ]

    def describe(self) -> dict[str, Any]:
        """What is known of the data."""
        names = self.table.class_names
        if names is None or len(names) != len(self.problem.classes):
            names = self.problem.classes.tolist()
        texts = [str(name) for name in names]
        known = describe(self.table, self.test, self.columns, texts, self.problem.codes)
        known["messages"] += self.said
        if self.table.tensor_shape is not None:
            known["of"] = f" of {' × '.join(map(str, self.table.tensor_shape))}"
        return known | {"unit": self.problem.noun, "profile": self._profile()}

    def _profile(self) -> dict[str, Any] | None:
        """What the columns hold; of images nothing, whose columns are pixels."""
        if self.table.image_shape is not None:
            return None
        asked = self.question
        return profile(
            self.problem.X, self.columns, show_values=asked.show_rows, seed=asked.random_state
        )

    def notes(self, scheme: Scheme) -> list[str]:
        """What an error is, and what was found of the folds."""
        return [self.problem.measure.note, *scheme.notes]

    def identity(self) -> Any:
        """Rows, labels, groups and times."""
        return (self.problem.X, self.problem.codes, self.problem.groups, self.problem.time)

    def answer(self, schedule: Schedule) -> Summary:
        """Return the summary: learners compared with the best standard distance."""
        return Summary(
            self.problem, schedule, min_gain=self.question.min_gain, plainest=self.plainest
        )

    @property
    def plainest(self) -> str:
        """Name of the standard distance that is scaled like learners at their first setting."""
        return {"none": "raw", "unit": "cosine"}.get(self.question.scale, "standardized")

    def protocol(self, schedule: Schedule) -> dict[str, Any]:
        """The measure, and the words for tuning."""
        assert schedule.plan is not None
        plan, fixed = schedule.plan, self.test is not None
        again = f"tuning={plan.tuning!r}, random_state={self.question.random_state}."
        again = f"sample={plan.rows}, {again}" if plan.rows is not None else again
        same = f"folds and settings again: repeats={plan.repeats}, {again}"
        return {
            "measure": self.problem.measure.name,
            "measure_note": self.problem.measure.note,
            "tuning_note": without_folds(tuning_words(plan.tuning), fixed, self.problem.noun),
            "again": f"The same settings again: {again}" if fixed else f"The same {same}",
        }

    def code(self, found: Answer, schedule: Schedule) -> str:
        """Lines that tune, test and fit."""
        return repeat_lines(self, self.problem, found.chosen.method, schedule)

    def show(self, document: dict[str, Any], found: Answer) -> dict[str, Any]:
        """Weights of the columns, and the contents of the rows that the page names."""
        shown: dict[str, Any] = {
            "weights": kept_weights(document["weights"], list(self.columns.names)),
            "rows": None,
            "images": None,
            "picture": None,
        }
        if self.question.show_rows:
            shown |= self._contents(document | shown)
        return shown | self._by_group(document)

    def _by_group(self, document: dict[str, Any]) -> dict[str, Any]:
        """Errors by group, where they are asked for, and what the answer has to say of them."""
        if self.reported is None:
            return {"by_group": None}
        name, values, _ = self.reported
        found = errors_by_group(document, name, group_names(values.tolist()))
        answer = document["answer"]
        if answer["verdict"] != "use" or found["method"] is None:
            return {"by_group": found}
        labels = {method["name"]: method["label"] for method in document["methods"]}
        notes = group_notes(found, labels[found["method"]], self.problem.noun)
        return {"by_group": found, "answer": answer | {"notes": [*notes, *answer["notes"]]}}

    def _contents(self, document: dict[str, Any]) -> dict[str, Any]:
        return contents(rows_to_show(document), self.problem.X, self.columns, self.table)


def cuts(scheme: Scheme) -> list[tuple[Any, Any]]:
    """Rows to train on and to test, of each fold."""
    return [(fold.train, fold.test) for fold in scheme.folds]
