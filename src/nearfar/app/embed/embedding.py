"""Data embedded by one learner: read, prepared, fitted, judged, and described for the page."""

from __future__ import annotations

import os
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.pipeline import Pipeline

from nearfar.app.compare.document import versions
from nearfar.app.compare.lines import code_of
from nearfar.app.compare.methods import takes_tensors
from nearfar.app.compare.shown import FORMAT
from nearfar.app.embed import facts, tensors
from nearfar.app.embed.kinds.choice import kind_of
from nearfar.app.embed.kinds.kind import Kind, Ready, Wishes
from nearfar.app.embed.methods import in_options
from nearfar.app.progress import FitProgress
from nearfar.app.report.embedding import write_embedding_document
from nearfar.app.tables.colors import colors, colors_of
from nearfar.base import Learner
from nearfar.datasets.table import Table
from nearfar.distributions.held_pairs import cache_dissimilarities
from nearfar.summaries.sets import Sets

Floats = NDArray[Any]


@dataclass
class Embedded:
    """Data and their embedding.

    Attributes
    ----------
    document : dict
        Everything the page shows.
    chain : Pipeline
        Fitted steps ``prepare``, ``scale``, ``learner``, as far as they do something.
    coordinates : ndarray of shape (n_rows, n_components)
        What was asked for.
    stopped : bool
        Whether Ctrl-C ended the fit.
    """

    document: dict[str, Any]
    chain: Pipeline
    coordinates: Floats
    stopped: bool


# From table to page


@cache_dissimilarities()  # those of sets, which the fit and the page look at
def embed_table(
    table: Table,
    learner: Learner,
    wishes: Wishes | None = None,
    *,
    whole_spectrum: bool = True,
    progress: FitProgress | None = None,
    argv: Sequence[str] | None = None,
) -> Embedded:
    """Fit a learner to a table and describe what came of it.

    Parameters
    ----------
    table : Table
        Rows or sets; labels colour the picture and are not learned from.
    learner : Learner
        What ``make_embedder`` returned; it is fitted.
    wishes : Wishes, optional
        What else the user asks for.
    whole_spectrum : bool, default=True
        Whether to find more eigenvalues than are drawn, where that costs little; the learner of
        the chain then has more components.
    progress : FitProgress, optional
        Told what happens.
    argv : sequence of str, optional
        The command.
    """
    progress, wishes = progress or FitProgress(), wishes or Wishes()
    kind = kind_of(table.noun)
    of_tensors = takes_tensors(learner)
    if of_tensors:
        learner = tensors.told(learner, table)
    ready = kind.prepare(table, learner, wishes)
    for line in (ready.line, *ready.messages):
        progress.say(line)
    asked = int(learner.get_params(deep=False)["n_components"])
    wide = kind.widened(learner, ready.X) if whole_spectrum else asked
    began = perf_counter()
    if of_tensors:
        y = table.y if learner.learner_tags.supervised else None
        learner, warned, stopped, note = tensors.fit_best(
            learner, asked, lambda one: fit_watched(one, ready.X, progress, y=y)
        )
        ready.messages.append(note)
        progress.say(note)
    else:
        warned, stopped = _fitted(kind, learner, ready, progress, asked, wide)
    seconds = perf_counter() - began
    coordinates = coordinates_of(learner, ready.X)[:, :asked]
    document = describe(
        kind,
        learner,
        ready,
        coordinates,
        show_rows=wishes.show_rows,
        warned=warned,
        stopped=stopped,
        seconds=seconds,
        argv=argv,
        code=_code_lines(kind, table, ready, wishes, learner, asked),
    )
    proof = document["certificate"]
    proof["text"] = in_options(proof["text"], all_of_them=True)
    document["warnings"] = [in_options(text, all_of_them=True) for text in document["warnings"]]
    chain = Pipeline([*ready.steps, ("learner", learner)])
    return Embedded(document, chain, coordinates, stopped)


def _fitted(
    kind: Kind, learner: Learner, ready: Ready, progress: FitProgress, asked: int, wide: int
) -> tuple[list[str], bool]:
    """Fit with as many components as there are of those wanted."""
    with kind.at_work(learner):
        try:
            learner.set_params(n_components=wide)
            return fit_watched(learner, ready.X, progress, asked=asked, noun=kind.noun)
        except ValueError:
            if wide == asked:
                raise
            learner.set_params(n_components=asked)  # there are not so many
            return fit_watched(learner, ready.X, progress, noun=kind.noun)


def write_embedding(
    learner: Any,
    X: ArrayLike | Sets,
    path: str | os.PathLike[str],
    *,
    color: ArrayLike | None = None,
    color_name: str | None = None,
    name: str = "data",
    image_shape: tuple[int, ...] | None = None,
    show_rows: bool = True,
    force: bool = False,
) -> Path:
    """Write the page of a fitted embedding.

    It shows the picture in two or three dimensions, coloured, with the neighbour graph's edges on
    demand and the row or the image where you point; below it the certificate, how well
    neighbourhoods are kept, and the spectrum. The page needs no network, and no script for the
    picture itself. Needs jinja2.

    Parameters
    ----------
    learner : learner or Pipeline
        Fitted to X: any with ``embedding_`` or ``transform``. Of a Pipeline the last step is the
        learner.
    X : array-like or DataFrame of shape (n_samples, n_features), or Sets
        What it was fitted to. Of sets the page shows the ellipses too, and the learner is a
        ``SetEmbedding``.
    path : path-like
        Where the page goes.
    color : array-like of shape (n_samples,), optional
        Labels, or numbers, to colour by.
    color_name : str, optional
        What they are; by default the name of a Series, or "label".
    name : str, default="data"
        Of the data, for the title.
    image_shape : tuple of int, optional
        (height, width) or (height, width, 3) if each row is an image.
    show_rows : bool, default=True
        Whether the page may hold values, or images, of rows.
    force : bool, default=False
        Replace a file that is there. Otherwise that raises ``FileExistsError``.

    Returns
    -------
    Path
        Where the page is.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import Isomap
    >>> from nearfar.app.embed import write_embedding
    >>> X, y = load_iris(return_X_y=True)
    >>> isomap = Isomap(n_neighbors=30).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_embedding(isomap, X, Path(folder) / "iris.html", color=y)
    ...     "Isomap drew 150 rows in 2 dimensions" in page.read_text("utf-8")
    True
    """
    kind, shade = kind_of(Table(name, X).noun), None
    if color is not None:
        shade = colors(color, str(color_name or getattr(color, "name", None) or "label"))
    wishes = Wishes(image_shape=image_shape, show_rows=show_rows)
    learner, given, ready = kind.fitted(learner, X, name, shade, wishes)
    places = coordinates_of(learner, given)
    document = describe(kind, learner, ready, places, show_rows=show_rows)
    return write_embedding_document(document, path, force=force)


def fit_watched(
    learner: Learner,
    X: Any,
    progress: FitProgress,
    *,
    y: Any = None,
    asked: int | None = None,
    noun: str = "row",
) -> tuple[list[str], bool]:
    """Fit; what was warned of, and whether Ctrl-C ended it with something to show."""
    stopped = False
    tol = getattr(learner, "tol", None)
    progress.begin(type(learner).__name__, len(X), tol, noun)
    watched = hasattr(type(learner), "callback")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if watched:
            learner.callback = lambda _, row: progress.step(row)
        try:
            learner.fit(X) if y is None else learner.fit(X, y)
        except KeyboardInterrupt:
            if not hasattr(learner, "embedding_"):
                raise
            stopped = True
        except ValueError as error:
            raise ValueError(in_options(str(error))) from error
        finally:
            if watched:
                del learner.callback
            progress.close()
    found = list(dict.fromkeys(str(one.message) for one in caught))
    if asked is not None:  # of those asked for only
        values = getattr(learner, "eigenvalues_", None)
        if values is not None and np.all(np.asarray(values)[:asked] > 0):
            found = [text for text in found if "have a positive eigenvalue" not in text]
    return found, stopped


def coordinates_of(learner: Learner, X: Any) -> Floats:
    """Where the learner has put the rows it was fitted to."""
    found = getattr(learner, "embedding_", None)
    if found is None or len(found) != len(X):
        found = learner.transform(X)
    return np.asarray(found)


def describe(
    kind: Kind,
    learner: Learner,
    ready: Ready,
    coordinates: Floats,
    *,
    show_rows: bool = True,
    warned: Sequence[str] = (),
    stopped: bool = False,
    seconds: float | None = None,
    argv: Sequence[str] | None = None,
    code: str = "",
) -> dict[str, Any]:
    """Everything that the page of an embedding shows, as plain data and arrays.

    Parameters
    ----------
    kind : Kind
        Of the data.
    learner : Learner
        Fitted.
    ready : Ready
        What it was fitted to.
    coordinates : ndarray of shape (n, q)
        Where they are.
    show_rows : bool
        Whether the page may show contents.
    warned : sequence of str
        Warnings of the fit.
    stopped : bool
        Whether the fit was interrupted.
    seconds : float, optional
        The fit took.
    argv, code : sequence of str and str
        How to repeat it.
    """
    n, q = coordinates.shape
    n_drawn = min(q, 3)
    shown = kind.show(learner, ready.X, show_rows)
    drawn, noun = shown.drawn, kind.noun
    proof = facts.certificate(learner, stopped=stopped)
    values = facts.spectrum(learner, n_drawn)
    judged = facts.quality(shown.judged, coordinates[:, :n_drawn], pairs=shown.pairs, noun=noun)
    return {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if argv is None else shlex.join(argv),
        "code": code,
        "versions": versions(),
        "status": "interrupted" if stopped else "complete",
        "seconds": seconds,
        "name": ready.name,
        "unit": noun,
        "n_rows": n,
        "n_features": ready.n_features,
        "method": type(learner).__name__,
        "parameters": _parameters(learner, q),
        "messages": ready.messages,
        "warnings": [*shown.warnings, *_told(learner, warned)],
        "answer": facts.answer(learner, n, n_drawn, proof, values, judged, stopped, noun),
        "certificate": proof,
        "spectrum": values,
        "quality": judged,
        "drawn": drawn,
        "coordinates": coordinates[drawn, :n_drawn],
        "color": None if ready.color is None else colors_of(ready.color, drawn),
        "edges": shown.edges,
        "n_neighbors": shown.n_neighbors,
        "contents": None if ready.contents is None else ready.contents(drawn),
        "panel": shown.panel,
    }


def _told(learner: Learner, warned: Sequence[str]) -> list[str]:
    """Warnings, that of locked edges in the words of the page."""
    locked = facts.lock_up(learner)
    others = [text for text in warned if "lock the rows" not in text]
    return [*([locked] if locked else []), *others]


def _parameters(learner: Learner, n_components: int) -> str:
    """What differs from the defaults, and what decides the picture."""
    given = learner.get_params(deep=False)
    if not takes_tensors(learner):  # of tensors it says how many in which mode
        given |= {"n_components": n_components}
    defaults = type(learner)().get_params(deep=False)
    first = [key for key in ("n_components", "n_neighbors", "constraints") if key in given]
    changed = [key for key in given if repr(given[key]) != repr(defaults.get(key))]
    return ", ".join(f"{key}={given[key]!r}" for key in dict.fromkeys([*first, *changed]))


def _code_lines(
    kind: Kind, table: Table, ready: Ready, wishes: Wishes, learner: Learner, n_components: int
) -> str:
    """Lines of Python that fit the same learner."""
    imports, lines = kind.code(table, ready, wishes)
    given = learner.get_params(deep=False)
    labels = ""
    if not takes_tensors(learner):
        given |= {"n_components": n_components}
    elif learner.learner_tags.supervised:
        labels = ", table.y" if table.source is not None else ", y"
    result = "embedding_" if hasattr(learner, "embedding_") else f"transform({kind.variable})"
    imports.append(f"from nearfar import {type(learner).__name__}")
    call = f"{code_of(type(learner)(**given))}.fit({kind.variable}{labels})"
    return "\n".join([*sorted(imports), "", *lines, f"embedding = {call}.{result}"]) + "\n"
