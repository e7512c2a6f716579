"""Rows without labels: which embedding keeps the neighbors, and is it worth it?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.compare.answer import Answer
from nearfar.app.compare.document import describe
from nearfar.app.compare.embedding_comparison import EmbeddingComparison
from nearfar.app.compare.embeddings import (
    LEAST_ROWS,
    MEASURED,
    MOST_ROWS,
    Embeddings,
    choose_scaler,
    embedding_methods,
    neighbors_counted,
)
from nearfar.app.compare.kinds.kind import Kind
from nearfar.app.compare.lines import embedding_lines
from nearfar.app.compare.methods import Method
from nearfar.app.compare.profile import profile
from nearfar.app.compare.ranking import Ranking
from nearfar.app.compare.schedule import Schedule
from nearfar.app.compare.splits import Scheme, make_unlabelled_scheme
from nearfar.app.tables import traps
from nearfar.app.tables.colors import color_column, set_aside, step_colors
from nearfar.app.tables.columns import Columns, as_floats, choose_columns
from nearfar.app.tables.reading import left_to_drop
from nearfar.app.tables.traps import Trap
from nearfar.arrays import Matrix
from nearfar.summaries.neighbor_graph import find_distinct_rows
from nearfar.words import format_count, format_percent


class EmbeddingKind(Kind):
    """Embeddings of rows, by the neighbors of held-out rows that they keep."""

    result = EmbeddingComparison
    progress_measure = "neighbors lost"
    tuning = "none"
    command = "embed"
    problem: Embeddings

    def read(self) -> None:
        """The table; its labels, if it has any, colour the pictures and do nothing else."""
        asked = self.question
        for name in ("groups", "time", "test", "report_by", "scoring", "tuning"):
            if getattr(asked, name) is None:
                continue
            if not asked.from_file:
                raise ValueError(f"{name} needs labels, and y is None.")
            column = name in ("groups", "time", "report_by")
            hint = " To leave its column out, use --drop." if column else ""
            option = name.replace("_", "-")
            raise ValueError(f"--{option} needs labels, and --unlabeled compares without.{hint}")
        self._read_given()

    def prepare(self) -> None:
        """Columns without the one that colours, and rows as numbers."""
        asked, table = self.question, self.table
        self.keep, self.drop = list(asked.keep), left_to_drop(table, asked.drop)
        self.messages = list(table.messages)
        self.values, self.color, self.aside = color_column(table, asked.color)
        if self.aside is None and asked.color is None:
            found = set_aside(table, self.keep, self.drop, self.messages)
            self.values, self.color, self.aside = found
        self.drop += [self.aside] if self.aside is not None else []
        columns = choose_columns(
            table.X,
            feature_names=table.feature_names,
            keep=self.keep,
            drop=self.drop,
            show_cells=asked.show_rows,
        )
        self.rows = columns.select(table.X)
        self.columns = columns.knowing(self.rows)
        self.inputs, self.distinct = _checked_inputs(self.rows, self.columns)

    @property
    def sample(self) -> int | None:
        """What all embeddings can do in minutes, unless the user says it, or how long to take."""
        asked = self.question
        if asked.sample == "auto" and asked.budget is not None and len(self.inputs) > MOST_ROWS:
            return MOST_ROWS
        return super().sample

    def splits(self, repeats: int, sample: int | None = None) -> Scheme:
        """Shuffled folds, or the user's own."""
        asked = self.question
        return make_unlabelled_scheme(
            len(self.inputs),
            repeats=repeats,
            seed=asked.random_state,
            cv=asked.cv,
            X=self.rows,
            sample=sample,
        )

    def methods(self, scheme: Scheme) -> list[Method]:
        """PCA, a random projection, and the embeddings; what is counted depends on the folds."""
        asked = self.question
        self.n_train = min(len(fold.train) for fold in scheme.folds)
        if self.n_train <= 5:
            raise ValueError(
                f"A fold has {self.n_train} training rows; embeddings need more than 5. Ask for "
                "fewer folds."
            )
        image = self.table.image_shape is not None
        scaler, self.scaled = choose_scaler(self.inputs, asked.scale, image)
        counted, looked_at = neighbors_counted(self.n_train)
        prepare = self.columns.preprocessor()
        self.problem = Embeddings(self.rows, prepare, scaler, counted, looked_at)
        compared = embedding_methods(
            asked.methods,
            n_train=self.n_train,
            n_components=asked.n_components,
            seed=asked.random_state,
            scaler=scaler,
            baseline=asked.context,
            tensor_shape=self.tensor_shape,
        )
        p = self.inputs.shape[1]
        if p < asked.n_components:
            raise ValueError(
                f"The data have {format_count(p, 'column')} to use: there is nothing to embed in "
                f"{asked.n_components} dimensions. Ask for fewer (n_components, --components)."
            )
        return compared

    def training(self) -> tuple[Any, Any]:
        """All rows."""
        return self.rows, None

    def warnings(self, scheme: Scheme) -> list[Trap]:
        """Copies, gaps, and columns that decide alone."""
        columns, (n, p) = self.columns, self.inputs.shape
        copies, wanted = n - self.distinct, self.question.n_components
        found = []
        if copies > 0.01 * n:
            text = (
                f"{format_count(copies, 'row')} of {n:,} are copies of others: which of equally "
                "near rows is a neighbor is then arbitrary, and every share is too low."
            )
            found.append(Trap("duplicates", text))
        if columns.missing:
            text = (
                "Missing values are filled with the median: rows with many of them look nearer to "
                "one another than they are."
            )
            found.append(Trap("missing values", text))
        if p <= wanted:
            text = (
                f"The data have {format_count(p, 'column')} and the embeddings {wanted}: PCA loses "
                "nothing, and there is nothing to choose."
            )
            found.append(Trap("dimensions", text))
        spreads: NDArray[np.float64] = self.inputs.var(axis=0, dtype=np.float64)
        if isinstance(self.problem.scaler, str) and p > 1 and spreads.max() > 0.9 * spreads.sum():
            origins = columns.origins(columns.preprocessor()) if not columns.categorical else None
            which = int(spreads.argmax())
            name = columns.names[origins[which]] if origins else f"number {which}"
            text = (
                f"Column '{name}' alone makes "
                f"{format_percent(float(spreads.max() / spreads.sum()))} of "
                "the variance, and so nearly all of each distance. Is that its due? Scale "
                "'standard' weighs all columns alike."
            )
            found.append(Trap("scale", text))
        if not hasattr(self.rows, "iloc"):
            found += traps.id_like(self.rows, self.table.feature_names)
        return found

    def describe(self) -> dict[str, Any]:
        """What is known of the data; labels are not."""
        none = np.zeros(len(self.inputs), dtype=np.intp)
        known = describe(self.table, None, self.columns, [], none)
        known |= {
            "class_counts": [],
            "target": None,
            "messages": [*self.messages, *self.columns.notes],
        }
        known |= {"groups": None, "time": None}
        known["dropped"] = [list(pair) for pair in self._dropped()]
        asked = self.question
        if self.table.image_shape is None:
            known["profile"] = profile(
                self.rows, self.columns, show_values=asked.show_rows, seed=asked.random_state
            )
        return known

    def _dropped(self) -> list[tuple[str, str]]:
        return [
            (str(name), "colours the pictures" if name == self.aside else why)
            for name, why in self.columns.dropped
        ]

    def left_out(self) -> list[str]:
        """The columns that are not used, but for one of which a message tells."""
        return [
            f"Left out: column {name!r}: {why}."
            for name, why in self._dropped()
            if name != self.aside or self.question.color is not None
        ]

    def headline(self, data: dict[str, Any]) -> str:
        """The data in one line."""
        return f"{super().headline(data)} No labels are used: embeddings are compared."

    def notes(self, scheme: Scheme) -> list[str]:
        """How columns are scaled, and what is counted."""
        return [self.scaled, self._note()]

    def _note(self) -> str:
        counted = self.problem.n_neighbors
        return (
            f"Neighbors kept: of the {counted} training rows nearest to a held-out row in the "
            f"data, the share that is among its {counted} nearest in the embedding, where "
            f"transform places it; by chance {format_percent(counted / self.n_train)}. This number "
            "ranks. Far distances and shape are not judged by it."
        )

    def identity(self) -> Any:
        """The rows."""
        return ("embeddings", self.rows)

    def answer(self, schedule: Schedule) -> Ranking:
        """Embeddings against PCA."""
        return Ranking(self.problem, schedule, min_gain=self.question.min_gain)

    def protocol(self, schedule: Schedule) -> dict[str, Any]:
        """What is counted, in how many dimensions, and how columns are scaled."""
        assert schedule.plan is not None
        repeats, seed = schedule.plan.repeats, self.question.random_state
        return {
            "measure": "neighbors kept",
            "measure_note": self._note(),
            "n_neighbors": self.problem.n_neighbors,
            "looked_at": list(self.problem.looked_at),
            "chance": self.problem.n_neighbors / self.n_train,
            "n_components": self.question.n_components,
            "scaling": self.scaled,
            "again": f"The same folds again: repeats={repeats}, random_state={seed}.",
        }

    def code(self, found: Answer, schedule: Schedule) -> str:
        """Lines that measure and fit."""
        counted = self.problem.n_neighbors
        method = found.chosen.method
        return embedding_lines(self, method, schedule, n_neighbors=counted, measured=MEASURED)

    def show(self, document: dict[str, Any], found: Answer) -> dict[str, Any]:
        """What colours the pictures."""
        rows, show_values = document["pictures"]["rows"], self.question.show_rows
        color = step_colors(self.values, self.color, rows, self.inputs, show_values=show_values)
        return {"kind": "embeddings", "colour": color}


def _checked_inputs(rows: Any, columns: Columns) -> tuple[Matrix, int]:
    """All rows as numbers, and how many are different; refuses what has no neighbors."""
    n = len(rows)
    if n < LEAST_ROWS:
        raise ValueError(
            f"There are {format_count(n, 'row')}; embeddings are compared on {LEAST_ROWS} or more."
        )
    prepare = columns.preprocessor()
    made = rows if isinstance(prepare, str) else prepare.fit_transform(rows)
    inputs = as_floats(np.asarray(made))
    distinct = len(find_distinct_rows(inputs)[0])
    if distinct == 1:
        raise ValueError("All rows are equal: none has neighbors that an embedding could keep.")
    if distinct < LEAST_ROWS:
        raise ValueError(
            f"Only {distinct} of the {n:,} rows are different; embeddings are compared on "
            f"{LEAST_ROWS} or more."
        )
    return inputs, distinct
