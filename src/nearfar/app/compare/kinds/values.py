"""Rows of a table with a number to predict: whose neighbors come nearest to it?"""

from __future__ import annotations

from typing import Any

import numpy as np

from nearfar.app.compare.answer import Answer
from nearfar.app.compare.chain import Chain, Chosen
from nearfar.app.compare.document import contents, describe, kept_weights
from nearfar.app.compare.kinds.rows import LEAST_ROWS, RowKind, cuts
from nearfar.app.compare.methods import Method
from nearfar.app.compare.schedule import Schedule
from nearfar.app.compare.splits import Scheme
from nearfar.app.compare.value_comparison import ValueComparison
from nearfar.app.compare.value_folds import ValueProblem, drawing_codes
from nearfar.app.compare.value_methods import DEFAULT, value_context
from nearfar.app.compare.value_summary import WORDING, ValueSummary
from nearfar.app.compare.wording import Wording
from nearfar.app.tables import copies, numeric_target, traps
from nearfar.app.tables.inputs import all_groups, all_labels
from nearfar.app.tables.traps import Trap
from nearfar.evaluation.measures import RelativeRMSE
from nearfar.words import format_number

#: Rows predicted worst whose contents are kept for the page.
SHOWN_WORST = 24


class ValueKind(RowKind):
    """Distances of rows, by how well their nearest neighbors predict a number."""

    result = ValueComparison
    progress_measure = "relative RMSE"
    problem: ValueProblem
    guide = "values"
    so = "the target is a number"

    def defaults(self) -> tuple[tuple[str, ...], list[str]]:
        """Learners where none are named."""
        return DEFAULT, []

    reported = None

    def read(self) -> None:
        """The table, and that of a fixed test set."""
        self._refuse_options()
        super().read()

    def _refuse_options(self) -> None:
        asked, from_file = self.question, self.question.from_file
        task = "--task regression" if from_file else "task='regression'"
        needs = f"{task} predicts a number for each row"
        if asked.of_pairs:
            other = "--pairs" if from_file else "supervision"
            raise ValueError(f"{needs}, and {other} says which rows are alike: leave one out.")
        if asked.unlabelled:
            raise ValueError(f"{needs}, and --unlabeled uses no target: leave one out.")
        if asked.noun == "set":
            raise ValueError(f"{needs} of a table, and the data are sets of vectors.")
        if not from_file and asked.y is None:
            raise ValueError(f"{needs}, and y is None.")
        for name, instead in (
            ("scoring", "errors are relative RMSEs here"),
            ("report_by", "the report has errors by the size of the target"),
        ):
            if getattr(asked, name) is not None:
                option = f"--{name.replace('_', '-')}" if from_file else name
                raise ValueError(f"{option} is for classes, not for {task}: {instead}.")

    def prepare(self) -> None:
        """Columns, values, and what they vary by."""
        self._choose_columns()
        name = self.table.target or "y"
        values, notes = numeric_target.check_numbers(all_labels(self.table, self.test), name)
        self.table.messages += notes
        if np.asarray(self.table.y).dtype.kind not in "iuf":
            sides = ["y"] if self.test is None else ["y", "y_test"]
            self.target_lines = [f"{y} = check_numbers({y})[0]" for y in sides]
        n_test = 0 if self.test is None else len(self.test.X)
        tested, what = values[len(values) - n_test :] if n_test else values, "all rows"
        if n_test:
            what = "the test rows"
            if tested.min() == tested.max():
                raise ValueError(
                    f"The target '{name}' is {format_number(tested[0], 6)} in every row of the "
                    "test set: how far off a prediction is cannot be measured by how it varies."
                )
        X, prepare = self._inputs()
        self.problem = ValueProblem(
            X,
            np.empty(0),
            drawing_codes(values),
            prepare,
            RelativeRMSE.from_targets(tested, what),
            all_groups(self.table, self.test),
            self.table.time if self.test is None else None,
            self.columns.origins,
            len(self.columns.names),
            least_rows=LEAST_ROWS,
            n_test_rows=n_test,
            values=values,
        )

    def beside(self) -> list[Method]:
        """Regressors that are no distances."""
        return value_context(self.question.random_state)

    @property
    def say(self) -> Wording:
        """Phrases for a relative RMSE."""
        return WORDING

    def training(self) -> tuple[Any, Any]:
        """All rows but those of a test file, and their values."""
        problem = self.problem
        rows = np.arange(len(problem.codes) - problem.n_test_rows)
        return problem.rows(rows), problem.values[rows]

    def chain(self, chosen: Chosen) -> Chain:
        """The chain of a choice, up to a number."""
        return Chain(chosen, self.columns.preprocessor(), self.selector, voter=self.problem.voter)

    def warnings(self, scheme: Scheme) -> list[Trap]:
        """Copies, columns that tell the target, values that may be classes, few that decide."""
        problem, name = self.problem, self.table.target or "y"
        same = copies.same_rows(problem.X)
        codes = np.unique(problem.values, return_inverse=True)[1]
        found = copies.duplicates(problem.X, codes, cuts(scheme), same=same, target="value")
        found += copies.near_copies(problem.X, cuts(scheme), same=same)
        found += numeric_target.telling_numbers(problem.X, self.columns, problem.values)
        found += numeric_target.few_values(problem.values, name)
        found += numeric_target.far_values(problem.values, name)
        if not hasattr(problem.X, "iloc"):
            found += traps.id_like(problem.X, self.table.feature_names)
        return found

    def describe(self) -> dict[str, Any]:
        """What is known of the data, and of the target."""
        values = self.problem.values
        known = describe(self.table, self.test, self.columns, [], np.zeros(len(values), np.intp))
        known["messages"] += self.said
        name = self.table.target or "y"
        mean, spread = format_number(values.mean()), format_number(self._spread())
        between = f"{format_number(values.min(), 6)} to {format_number(values.max(), 6)}"
        shown = self.question.show_rows
        facts = [["Mean of the target", mean], ["Standard deviation", spread]]
        facts += [["Range of the target", between]] if shown else []
        return known | {
            "unit": self.problem.noun,
            "class_counts": [],
            "target": name,
            "goal": f"target '{name}' {f'from {between} ' * shown}(standard deviation {spread})",
            "facts": facts,
            "profile": self._profile(),
        }

    def _spread(self) -> float:
        """The standard deviation of the target in all rows."""
        return RelativeRMSE.from_targets(self.problem.values).unit

    def identity(self) -> Any:
        """Rows, values, groups and times."""
        problem = self.problem
        return ("values", problem.X, problem.values, problem.groups, problem.time)

    def answer(self, schedule: Schedule) -> ValueSummary:
        """Return the summary: learners compared with the best standard distance."""
        return ValueSummary(
            self.problem, schedule, min_gain=self.question.min_gain, plainest=self.plainest
        )

    def show(self, document: dict[str, Any], found: Answer) -> dict[str, Any]:
        """Weights of the columns, and the rows that all methods predict worst."""
        values = document["values"] | {"target": self.table.target or "y"}
        shown: dict[str, Any] = {
            "kind": "values",
            "weights": kept_weights(document["weights"], list(self.columns.names)),
            "rows": None,
            "images": None,
            "values": values,
        }
        if not self.question.show_rows:
            bare = [{"n": part["n"], "low": None, "high": None} for part in values["sizes"]]
            held = document["held_out"] | {"true": [], "predicted": {}}
            held.pop("labels", None)
            return shown | {"values": values | {"sizes": bare, "worst": []}, "held_out": held}
        rows = [one["row"] for one in values["worst"][:SHOWN_WORST]]
        shown |= contents(rows, self.problem.X, self.columns, self.table)
        if self.table.ids is not None:
            known = [row for row in rows if row < len(self.table.ids)]
            names = {str(row): str(self.table.ids[row])[:60] for row in known}
            shown["rows"] = shown["rows"] | {"names": names}
        return shown
