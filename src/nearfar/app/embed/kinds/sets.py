"""Sets of vectors, embedded: read, scaled, and what the page shows of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from nearfar.app.compare.methods import Scale
from nearfar.app.compare.set_pictures import ellipses_of, panel_words, symmetric_pairs
from nearfar.app.embed.kinds.kind import SPECTRUM, Contents, Kind, Ready, Shown, Wishes, unlike
from nearfar.app.report.ellipses import pairs_of
from nearfar.app.tables.colors import FEW_NUMBERS, MOST_CLASSES, check_colors, colors
from nearfar.app.tables.reading import refuse_for_sets
from nearfar.datasets.table import Table
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.summaries.sets import Sets
from nearfar.words import format_count, join_names


class SetsOfVectors(Kind):
    """Sets, each drawn by its Gaussian."""

    noun = "set"
    called = "sets of vectors"
    input = "sets"
    variable = "sets"
    method = "set-embedding"
    drawn_by = SetEmbedding  # of which the other maps are parts
    kept = "means and covariances of the sets"
    refused = "takes rows of a table, and {} holds sets."

    def check(self, wishes: Wishes) -> None:
        """Options that say nothing about sets."""
        refuse_for_sets(keep=wishes.keep, images=wishes.image_shape)

    def prepare(self, table: Table, learner: SetEmbedding, wishes: Wishes) -> Ready:
        """Have the learner scale them; they are as they should be."""
        sets, notes = table.X, list(table.messages)
        n, sizes = len(sets), sets.sizes
        if n < 3:
            raise ValueError(f"{table.name} has {format_count(n, 'set')}; an embedding needs 3.")
        _set_scale(learner, sets, wishes.scale, notes)
        return Ready(
            table.name,
            sets,
            sets.n_features,
            _color_of(table, wishes.color),
            _contents(sizes) if wishes.show_rows else None,
            f"{table.name}: {format_count(n, 'set')} of {sizes.min():,} to {sizes.max():,} "
            f"vectors, {format_count(sets.n_features, 'feature')}.",
            notes,
        )

    def fitted(
        self, learner: Any, X: Sets, name: str, color: dict[str, Any] | None, wishes: Wishes
    ) -> tuple[SetEmbedding, Sets, Ready]:
        """Take a SetEmbedding, alone or first in a Pipeline."""
        if wishes.image_shape is not None:
            raise ValueError("image_shape is for rows that are images, and X are sets.")
        learner = learner[0] if isinstance(learner, Pipeline) else learner
        if not isinstance(learner, SetEmbedding):
            raise ValueError(f"X are sets, and {type(learner).__name__} is no SetEmbedding.")
        check_is_fitted(learner)
        n = len(X)
        if len(learner.gaussians_) != n:
            raise ValueError(
                f"X has {format_count(n, 'set')}; the learner was fitted to "
                f"{len(learner.gaussians_)}. Give those it was fitted to."
            )
        check_colors(color, n, format_count(n, "set"))
        contents = _contents(X.sizes) if wishes.show_rows else None
        return learner, X, Ready(name, X, X.n_features, color, contents)

    def widened(self, learner: SetEmbedding, X: Sets) -> int:
        """More where the first coordinates do not depend on how many are asked for."""
        asked = int(learner.n_components)
        nested = learner.embedding == "euclidean"
        return max(asked, min(SPECTRUM, len(X) - 1)) if nested else asked

    @contextmanager
    def at_work(self, learner: SetEmbedding) -> Iterator[None]:
        """All cores for the fit; what is saved says nothing of this machine."""
        n_jobs = learner.n_jobs
        learner.set_params(n_jobs=n_jobs or -1)
        yield
        learner.set_params(n_jobs=n_jobs)
        learner.embedder_.set_params(n_jobs=n_jobs)

    def show(self, learner: SetEmbedding, X: Sets, show_rows: bool) -> Shown:
        """Ellipses, and the nearest by the dissimilarity."""
        D = symmetric_pairs(learner.gaussians_, learner.metric, learner.n_jobs or -1)
        vectors = X if not learner.standardize else Sets(X.X / _spread(X), X.offsets)
        found: dict[str, Any] = {
            **ellipses_of(learner.gaussians_, vectors, D),
            "sizes": X.sizes,
            "names": X.names,
        }
        found["words"] = panel_words(learner.metric, found["plane"], learner.standardize)
        near = np.asarray(found["neighbors"])
        if not show_rows:
            found |= {"names": None, "ellipses": None}
        return Shown(np.arange(len(X)), pairs_of(near), near.shape[1], D, pairs=True, panel=found)

    def code(self, table: Table, ready: Ready, wishes: Wishes) -> tuple[list[str], list[str]]:
        """Lines that read the same sets."""
        if table.source is None:
            return [], ["# sets: the sets of vectors"]
        return ["from nearfar.datasets import read_sets"], [f"sets = {table.source}.X"]

    def names(self, table: Table) -> dict[str, NDArray[Any]]:
        """Those of the sets."""
        return {} if table.X.names is None else {"set": table.X.names}

    def metadata(self, table: Table) -> dict[str, Any]:
        """The features, which a long table is read by."""
        return {"features": table.feature_names}

    def inputs(self, chain: Pipeline, table: Table, name: str) -> Sets:
        """Sets of as many features as those the chain was fitted on."""
        if table.X.n_features != chain.n_features_in_:
            raise ValueError(
                f"{name} has vectors of {table.X.n_features} features; the model was fitted on "
                f"{chain.n_features_in_}."
            )
        sets: Sets = table.X
        return sets


def _set_scale(learner: SetEmbedding, sets: Sets, scale: Scale, notes: list[str]) -> None:
    if scale == "unit":
        raise ValueError("--scale unit is for rows of a table; for sets: auto, none or standard.")
    if scale != "auto":
        learner.set_params(standardize=scale == "standard")
        return
    note = unlike("features", _spread(sets))
    if note and not learner.standardize:
        learner.set_params(standardize=True)
        notes.append(note)


def _spread(sets: Sets) -> NDArray[np.float64]:
    """Standard deviations over all vectors, 1 for constant features, as the learner has them."""
    spread = np.asarray(sets.X, np.float64).std(axis=0)
    size = np.abs(sets.X).max(axis=0)
    return np.asarray(np.where(spread > 1e-12 * size, spread, 1.0))


def _color_of(table: Table, column: str | None) -> dict[str, Any] | None:
    sides = {"vectors": table.X.sizes}
    if table.groups is not None:
        sides[str(table.groups_name)] = table.groups
    if table.y is not None:
        sides[str(table.target)] = table.y
    if column is None:
        if table.y is None:
            return None
        column = str(table.target)
    if column not in sides:
        raise ValueError(
            f"--color {column}: sets are coloured by their labels, their groups (--groups) or "
            f"'vectors', the number of their vectors; here {join_names(sides)}."
        )
    few = FEW_NUMBERS if column == "vectors" else MOST_CLASSES
    return colors(sides[column], column, few=few)


def _contents(sizes: NDArray[np.intp]) -> Contents:
    def contents(drawn: NDArray[np.intp]) -> dict[str, Any]:
        return {"columns": {"vectors": [f"{size:,}" for size in sizes[drawn]]}, "n_ids": 0}

    return contents
