"""What an embedding asks of its data, be they rows of a table or sets of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from nearfar.app.compare.methods import Scale
from nearfar.base import Learner
from nearfar.base.tags import Input
from nearfar.datasets.table import Table

Contents = Callable[[NDArray[Any]], dict[str, Any]]

# Standard deviations that differ by more are scaled.
_UNLIKE = 10.0
#: Eigenvalues to find for the spectrum, where more cost next to nothing.
SPECTRUM = 10


@dataclass(frozen=True)
class Wishes:
    """What the user asks for beside the learner."""

    scale: Scale = "auto"  # standardises features whose spreads are unlike
    keep: Sequence[Any] = ()  # columns to use, or not, as in a comparison
    drop: Sequence[Any] = ()
    color: str | None = None  # the column to colour by; by default the labels
    image_shape: tuple[int, ...] | None = None  # of rows that are images
    groups: str | None = None  # of sets, a column that is no feature
    show_rows: bool = True  # whether the page may show values, pictures, names, ellipses


@dataclass
class Ready:
    """Data as a learner takes them, and what is said of them."""

    name: str
    X: Any
    n_features: int
    color: dict[str, Any] | None  # what ``colors`` returned
    contents: Contents | None  # from row numbers to what a hover shows of them
    line: str = ""  # their size
    messages: list[str] = field(default_factory=list)  # how they were read and prepared
    steps: list[tuple[str, Any]] = field(default_factory=list)  # fitted, before the learner


@dataclass
class Shown:
    """What a picture has beside its places."""

    drawn: NDArray[Any]  # numbers of rows
    edges: Any  # pairs of neighbours, of shape (m, 2), or None
    n_neighbors: int
    judged: Any  # what the quality is judged by; with ``pairs``, dissimilarities of all pairs
    pairs: bool = False
    warnings: list[str] = field(default_factory=list)
    panel: dict[str, Any] | None = None  # what is shown of a mark that is chosen


class Kind(Protocol):
    """A kind of data that can be embedded: rows, or sets."""

    #: What one of them is called, all of them in a sentence, and in Python code.
    noun: str
    called: str
    variable: str
    #: What learners of this kind take, by their tags; and the method where none is named.
    input: Input
    method: str
    #: The class of those that draw them.
    drawn_by: type[Learner] = Learner
    #: What a saved model holds of the data, and how a model of another kind refuses a file.
    kept: str
    refused: str

    def check(self, wishes: Wishes) -> None:
        """Refuse, before anything is read, what is not for this kind."""

    def prepare(self, table: Table, learner: Learner, wishes: Wishes) -> Ready:
        """Make of a table what the learner takes, as the user wishes."""

    def fitted(
        self, learner: Any, X: Any, name: str, color: dict[str, Any] | None, wishes: Wishes
    ) -> tuple[Learner, Any, Ready]:
        """Take what was fitted elsewhere: the learner, what it took, and what is said of it."""

    def widened(self, learner: Learner, X: Any) -> int:
        """How many components to find, for the spectrum."""

    def at_work(self, learner: Learner) -> AbstractContextManager[None]:
        """Settings of the learner that are for the fit only."""
        return nullcontext()

    def show(self, learner: Learner, X: Any, show_rows: bool) -> Shown:
        """What the picture has beside the places."""

    def code(self, table: Table, ready: Ready, wishes: Wishes) -> tuple[list[str], list[str]]:
        """Imports and lines of Python that give ``variable``."""

    def inputs(self, chain: Pipeline, table: Table, name: str) -> Any:
        """What a fitted chain takes of them; ``name`` is that of their file."""

    def names(self, table: Table) -> dict[str, NDArray[Any]]:
        """Columns before the coordinates: what names each, and its label where it has an id."""
        if table.ids is None:
            return {}
        found = {str(table.id_name): table.ids}
        return found if table.y is None else found | {str(table.target): np.asarray(table.y)}

    def metadata(self, table: Table) -> dict[str, Any]:
        """What a model file must know to read new data alike."""
        return {}


def unlike(what: str, spread: NDArray[np.float64]) -> str:
    """Say that features are standardised, if their standard deviations are unlike; else nothing."""
    ratio = float(spread.max() / spread.min()) if len(spread) else 1.0
    if ratio <= _UNLIKE:
        return ""
    return (
        f"Standardised: the {what}' standard deviations differ up to {ratio:,.0f}-fold "
        "(--scale none leaves them as they are)."
    )
