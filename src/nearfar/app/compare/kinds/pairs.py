"""Rows of a table, and pairs of them judged alike or different: which distance agrees?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from nearfar.app.compare.answer import Answer
from nearfar.app.compare.chain import Chain, Chosen
from nearfar.app.compare.document import contents, describe, kept_weights
from nearfar.app.compare.folds import Choice
from nearfar.app.compare.kinds.rows import RowKind
from nearfar.app.compare.lines import pair_lines
from nearfar.app.compare.methods import Method, baselines, reduced
from nearfar.app.compare.pair_chain import PairChain
from nearfar.app.compare.pair_comparison import PairComparison
from nearfar.app.compare.pair_folds import (
    PairProblem,
    error_rates,
    judged,
    tune,
)
from nearfar.app.compare.pair_methods import pair_learners
from nearfar.app.compare.pair_splits import (
    PairScheme,
    inner_pair_splits,
    pair_scheme,
    refuse_one_kind,
)
from nearfar.app.compare.pair_summary import WORDING, PairSummary
from nearfar.app.compare.profile import profile
from nearfar.app.compare.schedule import Schedule, tuning_words
from nearfar.app.compare.shown import wrong_pairs
from nearfar.app.compare.splits import Scheme
from nearfar.app.compare.wording import Wording
from nearfar.app.tables import copies, traps
from nearfar.app.tables.columns import choose_columns
from nearfar.app.tables.inputs import as_table
from nearfar.app.tables.reading import left_to_drop, read_data, read_judged_pairs
from nearfar.app.tables.traps import Trap
from nearfar.arrays import Indices
from nearfar.neighbors.pair_classifier import find_best_threshold
from nearfar.summaries.supervision import Pairs
from nearfar.words import format_count, format_percent


class PairKind(RowKind):
    """Distances of rows, by how they rank held-out pairs; no labels are needed."""

    result = PairComparison
    progress_measure = "1 − AUC"
    problem: PairProblem  # type: ignore[assignment]
    pairs: Pairs
    reported = None

    def read(self) -> None:
        """The table and its pairs; labels, if it has any, are no features and not used."""
        asked = self.question
        self._refuse_options()
        if asked.noun == "set":
            raise ValueError("Pairs are of rows of a table, and the data are sets of vectors.")
        if not asked.from_file:
            self.table = as_table(asked.X, None)
            self.pairs = _given(asked.supervision, len(self.table.X))
            return
        assert asked.pairs is not None
        self.table = read_data(
            asked.X,
            target=asked.target,
            labels=asked.labels,
            ids=asked.ids,
            need_target=False,
            guess_target=True,
            keep=asked.keep,
            drop=asked.drop,
            vector=asked.vector,
            images=asked.images,
        )
        if self.table.target is not None:
            self.table.messages.append(
                f"'{self.table.target}' is no feature and not used: pairs say what is alike."
            )
        self.pairs = read_judged_pairs(asked.pairs, self.table, asked.conflicts)

    def _refuse_options(self) -> None:
        asked, from_file = self.question, self.question.from_file
        said = "--{}" if from_file else "{}"
        told = "--pairs" if from_file else "supervision"
        for name in ("groups", "time", "test", "report_by", "scoring", "color"):
            if getattr(asked, name) is not None:
                option = said.format(name.replace("_", "-") if from_file else name)
                hint = " To leave its column out, use --drop." if from_file else ""
                raise ValueError(
                    f"{option} is for labels or embeddings, and {told} says what is alike."
                    + hint * (name not in ("test", "scoring"))
                )
        if asked.unlabelled:
            raise ValueError("--unlabeled compares embeddings: leave it out, or --pairs.")
        if asked.n_components != 2:
            option = said.format("components" if from_file else "n_components")
            raise ValueError(f"{option} is for embeddings, and {told} says what is alike.")
        if asked.cv is not None and not isinstance(asked.cv, int):
            raise ValueError(
                "cv must be a number of folds where there are pairs: no row may be on both sides."
            )

    def prepare(self) -> None:
        """Columns, and the pairs by number."""
        self.keep = self.question.keep
        self.drop = left_to_drop(self.table, self.question.drop)
        self.columns = choose_columns(
            self.table.X,
            feature_names=self.table.feature_names,
            keep=self.keep,
            drop=self.drop,
            show_cells=self.question.show_rows,
        )
        X, prepare = self._inputs()
        refuse_one_kind(len(self.pairs.similar), len(self.pairs.dissimilar))
        self.problem = PairProblem(
            X, self.pairs, prepare, self.columns.origins, len(self.columns.names), _same(X)
        )

    def splits(self, repeats: int, sample: int | None = None) -> PairScheme:
        """Folds by rows."""
        asked = self.question
        return pair_scheme(
            self.pairs,
            repeats=repeats,
            seed=asked.random_state,
            cv=asked.cv,
            sample=sample,
            same=self.problem.same,
        )

    def methods(self, scheme: Scheme) -> list[Method]:
        """Return four standard distances and the learners of pairs."""
        asked = self.question
        found, self.said = self._learners(asked.methods)
        train = min(len(np.unique(self.problem.ends[fold.train])) for fold in scheme.folds)
        return [*baselines(), *reduced(found, len(self.columns.names), train)]

    def _learners(self, methods: Any) -> tuple[list[Method], list[str]]:
        size = (len(self.problem.codes), len(self.columns.names))
        return pair_learners(
            methods, self.pairs, self.question.scale, tensor_shape=self.tensor_shape, size=size
        )

    def learned(self, name: str) -> list[Method]:
        """Learners by a name, for all pairs."""
        rows = len(np.unique(self.problem.ends))
        return reduced(self._learners(name)[0], len(self.columns.names), rows)

    def tuned(self, method: Method, k: int | None) -> Choice:
        """The setting that does best inside the pairs."""
        return tune(self.problem, method, np.arange(len(self.problem.codes)), "full")

    def held_out_rates(self, chosen: Chosen) -> tuple[float, float] | None:
        """Shares of alike pairs called different and of different ones called alike, held out.

        The threshold is that of each training part; None where there are too few pairs.
        """
        problem = self.problem
        rates = []
        for train, test in inner_pair_splits("full", problem.ends, problem.codes, problem.same):
            found = judged(problem, chosen.setting, train, test)
            alike = problem.codes[train] == 1
            threshold = find_best_threshold(found.fitted, alike, problem.strategy)
            both = error_rates(found.distances, problem.codes[test], threshold)
            rates.append([both["missed"] or 0.0, both["false_alike"] or 0.0])
        if not rates:
            return None
        missed, false_alike = np.mean(rates, axis=0)
        return float(missed), float(false_alike)

    @property
    def say(self) -> Wording:
        """Phrases for areas under the curve."""
        return WORDING

    def training(self) -> tuple[Any, Any]:
        """All rows, and the pairs."""
        return self.problem.rows(np.arange(self.pairs.n_samples)), self.pairs

    def chain(self, chosen: Chosen) -> Chain:
        """The chain of a choice, up to same or different."""
        return PairChain(chosen, self.columns.preprocessor(), self.selector, self.problem.strategy)

    def warnings(self, scheme: Scheme) -> list[Trap]:
        """Pairs of copies, pairs said again, rows in many pairs, numbers of rows."""
        found = [*_copies(self.problem), *_again(self.problem), *_hubs(self.problem)]
        if not hasattr(self.problem.X, "iloc"):
            found += traps.id_like(self.problem.X, self.table.feature_names)
        return found

    def describe(self) -> dict[str, Any]:
        """What is known of the data: rows, and pairs of both kinds."""
        none = np.zeros(self.pairs.n_samples, np.intp)
        known = describe(self.table, None, self.columns, [], none)
        alike, different = len(self.pairs.similar), len(self.pairs.dissimilar)
        n_rows = self.pairs.n_samples
        inside = n_rows - len(self.problem.free)
        among = f"{n_rows:,}" if inside == n_rows else f"{inside:,} of {n_rows:,}"
        facts = [
            ["Alike", f"{alike:,}"],
            ["Different", f"{different:,}"],
            ["Rows", f"{n_rows:,}"],
            ["Rows in pairs", f"{inside:,}"],
        ]
        asked = self.question
        shape = None
        if self.table.image_shape is None:
            shape = profile(
                self.problem.X, self.columns, show_values=asked.show_rows, seed=asked.random_state
            )
        return known | {
            "unit": "pair",
            "n_rows": alike + different,
            "of": f" of {among} rows ({alike:,} alike, {different:,} different)",
            "facts": facts,
            "class_counts": [],
            "target": None,
            "groups": None,
            "time": None,
            "profile": shape,
        }

    def notes(self, scheme: Scheme) -> list[str]:
        """What the area is, what was found of the folds, and of the learners."""
        free = len(self.problem.free)
        beside = []
        if free:
            takes = "takes" if free == 1 else "take"
            beside = [f"{format_count(free, 'row')} in no pair {takes} part in training, unjudged."]
        return [self.problem.measure.note, *scheme.notes, *beside, *self.said]

    def identity(self) -> Any:
        """Rows and pairs."""
        return ("pairs", self.problem.X, self.pairs.similar, self.pairs.dissimilar)

    def answer(self, schedule: Schedule) -> PairSummary:
        """Return the summary: learners compared with the best standard distance."""
        return PairSummary(
            self.problem,  # type: ignore[arg-type]
            schedule,
            min_gain=self.question.min_gain,
            plainest=self.plainest,
        )

    def protocol(self, schedule: Schedule) -> dict[str, Any]:
        """The measure, and the words for tuning."""
        assert schedule.plan is not None
        plan = schedule.plan
        again = f"tuning={plan.tuning!r}, random_state={self.question.random_state}."
        again = f"sample={plan.rows}, {again}" if plan.rows is not None else again
        return {
            "measure": self.problem.measure.name,
            "measure_note": self.problem.measure.note,
            "tuning_note": tuning_words(plan.tuning, tunes_k=False),
            "again": f"The same folds and settings again: repeats={plan.repeats}, {again}",
        }

    def code(self, found: Answer, schedule: Schedule) -> str:
        """Lines that test and fit."""
        asked = self.question
        reads = ""
        if asked.from_file:
            own = "" if self.table.ids is None else "ids=table.ids, "
            own += "n_samples=len(X)"
            own += "" if asked.conflicts == "raise" else f", conflicts={asked.conflicts!r}"
            reads = f"read_pairs({str(asked.pairs)!r}, {own})"
        method, copied = found.chosen.method, self.problem.same is not None
        return pair_lines(self, self.problem.prepare, reads, method, schedule, copies=copied)

    def show(self, document: dict[str, Any], found: Answer) -> dict[str, Any]:
        """Weights of the columns, and the rows of pairs that all methods get wrong."""
        shown: dict[str, Any] = {
            "kind": "pairs",
            "weights": kept_weights(document["weights"], list(self.columns.names)),
            "rows": None,
            "images": None,
        }
        if self.question.show_rows:
            wrong = [one for kind in (True, False) for one in wrong_pairs(document["pairs"], kind)]
            rows = list(dict.fromkeys(row for one in wrong for row in one["rows"]))
            shown |= contents(rows, self.problem.X, self.columns, self.table)
            if self.table.ids is not None:
                names = {str(row): str(self.table.ids[row])[:60] for row in rows}
                shown["rows"] = shown["rows"] | {"names": names}
        return shown


def _given(supervision: Any, n_rows: int) -> Pairs:
    """The pairs that were given in Python, for so many rows."""
    if not isinstance(supervision, Pairs):
        raise ValueError(
            "supervision must be Pairs, from nearfar import Pairs: similar and dissimilar pairs of "
            f"row numbers; got {type(supervision).__name__}. Distances are compared by labels or "
            "by pairs."
        )
    supervision.check_n_samples(n_rows)
    return supervision


def _same(X: Any) -> Indices | None:
    """A number for each row, the same for copies; None where there are none."""
    found = copies.same_rows(X)
    return found if len(np.unique(found)) < len(found) else None


# What would mislead


def _copies(problem: PairProblem) -> list[Trap]:
    """Different pairs of equal rows: no distance can tell them apart."""
    if problem.same is None:
        return []
    same = problem.same[problem.ends]
    equal = same[:, 0] == same[:, 1]
    found = []
    different, alike = (equal & (problem.codes == code) for code in (0, 1))
    if different.any():
        i, j = problem.ends[np.flatnonzero(different)[0]]
        many = int(different.sum())
        text = (
            f"{format_count(many, 'pair')} said to be different {'has' if many == 1 else 'have'} "
            f"two equal rows, such as rows {i} and {j}: no distance can tell them apart."
        )
        found.append(Trap("equal rows", text))
    share = float(alike.sum() / max(1, (problem.codes == 1).sum()))
    if share > 0.1:
        text = (
            f"{format_percent(share)} of the alike pairs have two equal rows: every distance finds "
            "these, and every number is too good."
        )
        found.append(Trap("duplicates", text))
    return found


def _again(problem: PairProblem) -> list[Trap]:
    """Pairs that are given several times, and so count several times."""
    ordered = np.sort(problem.ends, axis=1)
    every = np.column_stack([ordered, problem.codes])
    n = len(every) - len(np.unique(every, axis=0))
    both = len(np.unique(every, axis=0)) - len(np.unique(ordered, axis=0))
    found = []
    if n:
        text = (
            f"{format_count(n, 'pair')} repeat others, in one order or the other: they count again."
        )
        found.append(Trap("repeated pairs", text))
    if both:
        text = (
            f"{format_count(both, 'pair')} {'is' if both == 1 else 'are'} said to be alike and to "
            "be different: both stay, as asked, and no distance can have both right."
        )
        found.append(Trap("contradictions", text))
    return found


def _hubs(problem: PairProblem) -> list[Trap]:
    """A row that is in a large share of the pairs: folds then hang on where it falls."""
    counts = Counter(problem.ends.ravel().tolist())
    row, n = counts.most_common(1)[0]
    if n <= 0.1 * len(problem.ends) or len(problem.ends) < 20:
        return []
    text = (
        f"Row {row} is in {n:,} of {len(problem.ends):,} pairs: folds differ by where it falls, "
        "and say more of this row than of others."
    )
    return [Trap("one row", text)]
