"""Sets of vectors embedded by one learner, and described for the page."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from nearfar.app.compare.lines import code_of
from nearfar.app.compare.methods import Scale
from nearfar.app.compare.set_pictures import ellipses_of, symmetric_pairs
from nearfar.app.embed.embedding import (
    _FEW_NUMBERS,
    _SPECTRUM,
    _UNLIKE,
    MOST_CLASSES,
    Embedded,
    _in_options,
    colors,
    describe,
    fit_watched,
)
from nearfar.app.progress import FitProgress
from nearfar.datasets.tables import Table
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.summaries.sets import Sets
from nearfar.words import count, listed


def embed_sets(
    table: Table,
    learner: SetEmbedding,
    *,
    scale: Scale = "auto",
    color: str | None = None,
    show_rows: bool = True,
    whole_spectrum: bool = True,
    progress: FitProgress | None = None,
    argv: Sequence[str] | None = None,
) -> Embedded:
    """Fit a learner to sets and describe what came of it.

    Parameters
    ----------
    table : Table
        The sets; labels colour the picture and are not learned from.
    learner : SetEmbedding
        It is fitted.
    scale : {"auto", "none", "standard"}
        Whether features are standardised; "auto" does so where their spreads are unlike.
    color : str, optional
        The target (default), the groups, or "vectors" for the sizes of sets.
    show_rows : bool, default=True
        Whether names and ellipses of sets may be shown.
    whole_spectrum : bool, default=True
        Whether to find more eigenvalues than are drawn.
    progress : FitProgress, optional
        Told what happens.
    argv : sequence of str, optional
        The command.
    """
    progress = progress or FitProgress()
    sets, notes = table.X, list(table.messages)
    if len(sets) < 3:
        raise ValueError(f"{table.name} has {count(len(sets), 'set')}; an embedding needs 3.")
    _set_scale(learner, sets, scale, notes)
    shade = _color_of(table, color)
    sizes = sets.sizes
    progress.say(
        f"{table.name}: {count(len(sets), 'set')} of {sizes.min():,} to {sizes.max():,} vectors, "
        f"{count(sets.n_features, 'feature')}."
    )
    for line in notes:
        progress.say(line)
    asked = int(learner.n_components)
    wide = asked
    if whole_spectrum and learner.embedding == "euclidean":
        wide = max(asked, min(_SPECTRUM, len(sets) - 1))
    began = perf_counter()
    n_jobs = learner.n_jobs
    # All cores for the fit; what is saved says nothing of this machine.
    learner.set_params(n_components=wide, n_jobs=n_jobs or -1)
    warned, stopped = fit_watched(learner, sets, progress, asked=asked)
    learner.set_params(n_jobs=n_jobs)
    learner.embedder_.set_params(n_jobs=n_jobs)
    seconds = perf_counter() - began
    coordinates = np.asarray(learner.embedding_)[:, :asked]
    document = describe_sets(
        learner,
        sets,
        coordinates,
        show_rows=show_rows,
        name=table.name,
        color=shade,
        warned=warned,
        stopped=stopped,
        seconds=seconds,
        messages=notes,
        argv=argv,
        code=_code_lines(table, learner, asked),
    )
    document["warnings"] = [_in_options(text, all_of_them=True) for text in document["warnings"]]
    return Embedded(document, Pipeline([("learner", learner)]), coordinates, stopped)


def describe_sets(
    learner: SetEmbedding,
    sets: Sets,
    coordinates: NDArray[Any],
    *,
    show_rows: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """What the page shows of sets; ``options`` are those of :func:`describe`."""
    D = symmetric_pairs(learner.gaussians_, learner.metric)
    vectors = sets if not learner.standardize else Sets(sets.X / _spread(sets), sets.offsets)
    found: dict[str, Any] = {
        **ellipses_of(learner.gaussians_, vectors, D),
        "metric": learner.metric,
        "standardized": learner.standardize,
        "sizes": sets.sizes,
        "names": sets.names if show_rows else None,
    }
    if not show_rows:
        found["ellipses"] = None
    contents = _contents(sets.sizes) if show_rows else None
    return describe(learner, sets, coordinates, contents=contents, sets=found, pairs=D, **options)


def describe_fitted_sets(
    learner: Any,
    sets: Sets,
    *,
    color: Any = None,
    color_name: str | None = None,
    name: str = "data",
    show_rows: bool = True,
) -> dict[str, Any]:
    """What the page shows of a SetEmbedding, alone or first in a Pipeline, fitted elsewhere."""
    learner = learner[0] if isinstance(learner, Pipeline) else learner
    if not isinstance(learner, SetEmbedding):
        raise ValueError(f"X are sets, and {type(learner).__name__} is no SetEmbedding.")
    check_is_fitted(learner)
    if len(learner.gaussians_) != len(sets):
        raise ValueError(
            f"X has {count(len(sets), 'set')}; the learner was fitted to "
            f"{len(learner.gaussians_)}. Give those it was fitted to."
        )
    shade = None
    if color is not None:
        shade = colors(color, str(color_name or getattr(color, "name", None) or "label"))
        size = len(shade["codes"] if shade["kind"] == "classes" else shade["values"])
        if size != len(sets):
            raise ValueError(f"color has {size} values for {count(len(sets), 'set')}.")
    places = np.asarray(learner.embedding_)
    return describe_sets(learner, sets, places, show_rows=show_rows, name=name, color=shade)


def _set_scale(learner: SetEmbedding, sets: Sets, scale: Scale, notes: list[str]) -> None:
    if scale == "unit":
        raise ValueError("--scale unit is for rows of a table; for sets: auto, none or standard.")
    if scale != "auto":
        learner.set_params(standardize=scale == "standard")
        return
    spread = _spread(sets)
    ratio = float(spread.max() / spread.min())
    if ratio > _UNLIKE and not learner.standardize:
        learner.set_params(standardize=True)
        notes.append(
            f"Standardised: the features' standard deviations differ up to {ratio:,.0f}-fold "
            "(--scale none leaves them as they are)."
        )


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
            f"'vectors', the number of their vectors; here {listed(sides)}."
        )
    few = _FEW_NUMBERS if column == "vectors" else MOST_CLASSES
    return colors(sides[column], column, few=few)


def _contents(sizes: NDArray[np.intp]) -> Any:
    def contents(drawn: NDArray[np.intp]) -> dict[str, Any]:
        return {"columns": {"vectors": [f"{size:,}" for size in sizes[drawn]]}, "n_ids": 0}

    return contents


def _code_lines(table: Table, learner: SetEmbedding, n_components: int) -> str:
    """Lines of Python that fit the same learner."""
    given = {**learner.get_params(deep=False), "n_components": n_components}
    lines = ["from nearfar import SetEmbedding"]
    if table.source is None:
        lines += ["", "# sets: the sets of vectors"]
    else:
        lines += ["from nearfar.datasets import read_sets", "", f"sets = {table.source}.X"]
    lines.append(f"embedding = {code_of(SetEmbedding(**given))}.fit(sets).embedding_")
    return "\n".join(lines) + "\n"
