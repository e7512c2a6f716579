"""The steps of a comparison, which every kind of data takes its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar

from nearfar.app.compare.answer import Answer
from nearfar.app.compare.chain import Chain, Chosen
from nearfar.app.compare.comparison import Comparison, data_line
from nearfar.app.compare.folds import Work
from nearfar.app.compare.methods import Method
from nearfar.app.compare.question import Question
from nearfar.app.compare.schedule import Schedule
from nearfar.app.compare.splits import Scheme, Tuning
from nearfar.app.tables.columns import Columns
from nearfar.app.tables.inputs import as_table, fixed_test
from nearfar.app.tables.reading import read_data
from nearfar.app.tables.traps import Trap
from nearfar.datasets.table import Table


class Kind(ABC):
    """The steps of a comparison, in the order in which the driver takes them.

    Parameters
    ----------
    question : Question
        What is asked.
    """

    #: What the result is.
    result: ClassVar[type[Comparison]] = Comparison
    #: The word for errors while they come.
    progress_measure: ClassVar[str] = "error"
    #: How much is tuned, where it is not the user's to say.
    tuning: ClassVar[Tuning | None] = None
    #: Lines that make of y what is compared, where that is something else.
    target_lines: Sequence[str] = ()
    #: The command that fits one method of this kind.
    command: ClassVar[str] = "fit"
    #: Set by ``read``.
    table: Table
    test: Table | None = None
    #: Set by ``prepare``, with what was asked of them.
    columns: Columns
    keep: Sequence[Any]
    drop: Sequence[Any]
    problem: Work
    #: Rows that the plan drew, set by the driver; None is all.
    drawn: int | None = None

    def __init__(self, question: Question) -> None:
        self.question = question

    @abstractmethod
    def read(self) -> None:
        """The table, and that of a fixed test set."""

    @abstractmethod
    def prepare(self) -> None:
        """Columns, and the work that all methods do."""

    @property
    def sample(self) -> int | None:
        """Rows to draw, where it is not for the plan to say; None is all."""
        return self.question.sample if isinstance(self.question.sample, int) else None

    @abstractmethod
    def splits(self, repeats: int, sample: int | None = None) -> Scheme:
        """Folds, of so many rows; fewer repeats are the first folds of more."""

    @abstractmethod
    def methods(self, scheme: Scheme) -> list[Method]:
        """What is compared, the plain ways first."""

    @abstractmethod
    def warnings(self, scheme: Scheme) -> list[Trap]:
        """What would make the comparison meaningless or too good to be true."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What is known of the data."""

    @abstractmethod
    def notes(self, scheme: Scheme) -> list[str]:
        """What is said of measure and folds before the run."""

    @abstractmethod
    def identity(self) -> Any:
        """What tells these data from others, for the journal."""

    @abstractmethod
    def answer(self, schedule: Schedule) -> Answer:
        """The statistics of the results."""

    @abstractmethod
    def protocol(self, schedule: Schedule) -> dict[str, Any]:
        """How it was measured, beyond what all kinds say."""

    @abstractmethod
    def code(self, found: Answer, schedule: Schedule) -> str:
        """Lines of scikit-learn that repeat the chosen method."""

    @abstractmethod
    def show(self, document: dict[str, Any], found: Answer) -> dict[str, Any]:
        """What the page draws beyond the numbers."""

    @abstractmethod
    def training(self) -> tuple[Any, Any]:
        """What a chain that is to be used is fitted to: rows, and labels if there are such."""

    def chain(self, chosen: Chosen) -> Chain:
        """The chain of a choice, for data of this kind."""
        return Chain(chosen, self.columns.preprocessor(), self.selector)

    @property
    def selector(self) -> Callable[[Any], Any]:
        """Makes of rows, as they were given, what the first step of a chain takes."""
        return self.columns.select

    @property
    def tensor_shape(self) -> tuple[int, ...] | None:
        """The shape of each row, as long as no column of it is dropped."""
        shape = self.table.tensor_shape
        return shape if shape is None or prod(shape) == len(self.columns.names) else None

    def ids(self) -> tuple[str | None, Any]:
        """The name of what tells the rows apart, and its value in each; None where nothing does."""
        table = self.table
        given = getattr(table, "ids", None)
        if given is not None:
            return getattr(table, "id_name", None), given
        alike = [name for name, why in self.columns.dropped if "like an ID" in why]
        alike += [name for name, why in self.columns.dropped if "like a name" in why]
        if not alike or not hasattr(table.X, "columns"):
            return None, None
        every = [str(name) for name in table.X.columns]
        return alike[0], table.X.iloc[:, every.index(alike[0])].tolist()

    def lines(self, data: dict[str, Any], warned: list[Trap], scheme: Scheme) -> list[str]:
        """What is said before the run."""
        return [
            self.headline(data),
            *data["messages"],
            *self.left_out(),
            *(f"Warning: {trap.text}" for trap in warned),
            *self.notes(scheme),
        ]

    def headline(self, data: dict[str, Any]) -> str:
        """The data in one line."""
        return data_line(data)

    def left_out(self) -> list[str]:
        """The columns that are not used, and why."""
        return [f"Left out: column {name!r}: {why}." for name, why in self.columns.dropped]

    def _read_given(self) -> None:
        """Arrays and frames, or the files that the question names."""
        asked = self.question
        if not asked.from_file:
            self.table = as_table(asked.X, asked.y, asked.groups, asked.time)
            self.test = fixed_test(asked.test)
            return
        own = {name: getattr(asked, name) for name in _OF_FILES}
        self.table = read_data(
            asked.X,
            target=asked.target,
            labels=asked.labels,
            time=asked.time,
            ids=asked.ids,
            need_target=not asked.unlabelled,
            **own,
        )
        if asked.test is None:
            return
        target = self.table.target if asked.labels is None else None
        try:
            self.test = read_data(asked.test, target=target, **own)
        except ValueError as error:
            hint = " A test file brings its own labels: a column, or the key y."
            raise ValueError(f"--test: {error}{hint * bool(asked.labels)}") from error
        self.table.messages += [f"{self.test.name}: {text}" for text in self.test.messages]


#: What is asked of a test file as of the first.
_OF_FILES = ("set_id", "min_vectors", "keep", "drop", "groups", "vector", "images")
