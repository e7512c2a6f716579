"""A table embedded by one learner: read, prepared, fitted, judged, and described for the page."""

from __future__ import annotations

import re
import shlex
import warnings
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from nearfar.app.compare.document import versions
from nearfar.app.compare.folds import map_through
from nearfar.app.compare.lines import code_of
from nearfar.app.compare.methods import Scale
from nearfar.app.compare.set_pictures import pairs_of
from nearfar.app.embed import facts as facts
from nearfar.app.progress import FitProgress
from nearfar.app.tables.columns import Columns, choose_columns
from nearfar.app.tables.images import pictures
from nearfar.app.tables.inputs import noun_of
from nearfar.base import Learner, all_learners
from nearfar.datasets.tables import EMBEDDED, Table
from nearfar.summaries.neighbor_graph import NeighborGraph, distinct_rows, linked_graph
from nearfar.words import count, did_you_mean, listed

FORMAT = 1
Floats = NDArray[Any]

# Points, edges, columns of a row and bytes of pictures that a page may hold.
MOST_POINTS = 50_000
MOST_EDGES = 400_000
_MOST_COLUMNS = 12
_MOST_CELLS = 300_000
_IMAGE_BYTES = 3_000_000
# Categories that marks can tell apart, and numbers that are rather numbers than names.
MOST_CLASSES = 60
_FEW_NUMBERS = 10
# Standard deviations that differ by more are scaled.
_UNLIKE = 10.0
# Eigenvalues to find for the spectrum, where more cost next to nothing.
_SPECTRUM = 10
# Neighbours drawn for learners without a graph.
_EDGES_EACH = 5


@dataclass
class Embedded:
    """A table and its embedding.

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


# The learners


def embedders(*, sets: bool = False) -> dict[str, type[Learner]]:
    """The embedding learners by the names that the command takes, of rows or of sets.

    >>> embedders()["hessian-lle"].__name__, "lda" in embedders()
    ('HessianLLE', False)
    """
    found = {
        _hyphened(name): learner
        for name, learner in all_learners().items()
        if (
            name == "SetEmbedding"
            if sets
            else learner.__module__.startswith("nearfar.manifold.") or name == "PCA"
        )
    }
    return dict(sorted(found.items()))


def find_embedder(name: str, *, sets: bool = False) -> type[Learner]:
    """An embedding learner by its name, whatever the case and the hyphens.

    >>> find_embedder("VariationalMVU").__name__, find_embedder("landmark_isomap").__name__
    ('VariationalMVU', 'LandmarkIsomap')
    """
    letters = re.sub(r"[-_ ]", "", name.lower())
    for of_sets in (sets, not sets):
        known = embedders(sets=of_sets)
        by_letters = {key.replace("-", ""): learner for key, learner in known.items()}
        if letters in by_letters and of_sets == sets:
            return by_letters[letters]
        if letters in by_letters:
            what = ("rows of a table", "sets of vectors")
            raise ValueError(
                f"--method {name}: it embeds {what[of_sets]}, and the data are {what[sets]}. "
                f"Known for them: {_all(embedders(sets=sets))}."
            )
    known = embedders(sets=sets)
    hint = did_you_mean(name.strip().replace("_", "-"), known).replace("'", "")
    raise ValueError(f"--method {name}: there is no such embedding.{hint} Known: {_all(known)}.")


def _all(names: Mapping[str, Any]) -> str:
    return ", ".join(names)


def _hyphened(name: str) -> str:
    """``HessianLLE`` as ``hessian-lle``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def make_embedder(
    method: str,
    n_components: int,
    n_neighbors: int | None = None,
    settings: Sequence[str] = (),
    *,
    sets: bool = False,
) -> Learner:
    """A learner as the options ask for.

    Parameters
    ----------
    method : str
        Its name.
    n_components, n_neighbors : int
        ``--components`` and ``--neighbors``.
    settings : sequence of str
        Further parameters as "name=value".
    sets : bool
        Whether it is to embed sets of vectors.
    """
    kind = find_embedder(method, sets=sets)
    name = _hyphened(kind.__name__)
    known = kind().get_params(deep=False)
    given: dict[str, Any] = {"n_components": n_components}
    if n_neighbors is not None:
        if "n_neighbors" not in known:
            raise ValueError(f"--neighbors {n_neighbors}: {name} reads no neighbours.")
        given["n_neighbors"] = n_neighbors
    own = {key: value for key, value in known.items() if key not in ("verbose", "warm_start")}
    for setting in settings:
        key, sign, text = (part.strip() for part in setting.partition("="))
        if not sign or not key:
            raise ValueError(f"--set {setting}: write it as name=value.")
        if key not in own:
            hint = did_you_mean(key, own)
            raise ValueError(
                f"--set {setting}: {name} has no parameter '{key}'.{hint} It has {listed(own)}."
            )
        if key in ("n_components", "n_neighbors"):
            option = key.replace("n_", "--")
            raise ValueError(f"--set {setting}: say {option} {text}.")
        given[key] = _value(text)
    learner = kind(**given)
    learner._check_parameters()
    return learner


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return text


# From table to page


def embed_table(
    table: Table,
    learner: Learner,
    *,
    scale: Scale = "auto",
    keep: Sequence[Any] = (),
    drop: Sequence[Any] = (),
    color: str | None = None,
    image_shape: tuple[int, ...] | None = None,
    show_rows: bool = True,
    whole_spectrum: bool = True,
    progress: FitProgress | None = None,
    argv: Sequence[str] | None = None,
) -> Embedded:
    """Fit a learner to a table and describe what came of it.

    Parameters
    ----------
    table : Table
        The data; labels colour the picture and are not learned from.
    learner : Learner
        What ``make_embedder`` returned; it is fitted.
    scale : {"auto", "none", "standard", "unit"}
        Before the learner; "auto" standardises columns whose spreads are unlike.
    keep, drop : sequences
        Columns to use or not, as in a comparison.
    color : str, optional
        The column to colour by; by default the labels.
    image_shape : tuple, optional
        Of rows that are images.
    show_rows : bool, default=True
        Whether values and pictures of rows may be shown.
    whole_spectrum : bool, default=True
        Whether to find more eigenvalues than are drawn, where that costs little; the learner of
        the chain then has more components.
    progress : FitProgress, optional
        Told what happens.
    argv : sequence of str, optional
        The command.
    """
    progress = progress or FitProgress()
    if image_shape is not None:
        _read_images(table, image_shape, drop)
    shade = _color_of(table, color)
    columns = choose_columns(
        table.X,
        feature_names=table.feature_names,
        keep=[name for name in keep if name != table.target],
        drop=drop if image_shape is None else (),
    )
    notes = [f"Left out: column {name!r}: {why}." for name, why in columns.dropped]
    if color is not None and shade is not None and shade["name"] in columns.names:
        own = shade["name"]
        notes.append(f"'{own}' colours the picture and is a feature too; --drop '{own}' ends that.")
    rows = columns.select(table.X)
    steps, X = _prepared(columns, rows, notes)
    n = len(X)
    if n < 3:
        raise ValueError(f"{table.name} has {count(n, 'row')}; an embedding needs 3 at least.")
    n_components = int(learner.get_params(deep=False)["n_components"])
    X = _scaled(X, scale, table.image_shape is not None, steps, notes)
    for line in [f"{table.name}: {count(n, 'row')}, {count(X.shape[1], 'feature')}."]:
        progress.say(line)
    for line in [*table.messages, *notes]:
        progress.say(line)
    began = perf_counter()
    n_wide = _widened(learner, X) if whole_spectrum else n_components
    try:
        learner.set_params(n_components=n_wide)
        warned, stopped = fit_watched(learner, X, progress, asked=n_components)
    except ValueError:
        if n_wide == n_components:
            raise
        learner.set_params(n_components=n_components)  # there are not so many
        warned, stopped = fit_watched(learner, X, progress)
    seconds = perf_counter() - began
    coordinates = np.asarray(coordinates_of(learner, X))[:, :n_components]
    steps.append(("learner", learner))
    document = describe(
        learner,
        X,
        coordinates,
        name=table.name,
        color=shade,
        warned=warned,
        stopped=stopped,
        seconds=seconds,
        messages=[*table.messages, *notes],
        n_features=columns.n_features,
        contents=_contents(table, columns, shade, n) if show_rows else None,
        argv=argv,
        code=_code_lines(table, steps, n_components, keep, drop),
    )
    proof = document["certificate"]
    proof["text"] = _in_options(proof["text"], all_of_them=True)
    document["warnings"] = [_in_options(text, all_of_them=True) for text in document["warnings"]]
    return Embedded(document, Pipeline(steps), coordinates, stopped)


def fit_watched(
    learner: Learner, X: Floats, progress: FitProgress, *, asked: int | None = None
) -> tuple[list[str], bool]:
    """Fit; what was warned of, and whether Ctrl-C ended it with something to show."""
    stopped = False
    tol = getattr(learner, "tol", None)
    progress.begin(type(learner).__name__, len(X), tol, noun_of(X))
    watched = hasattr(type(learner), "_watch")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if watched:
            learner._watch = progress.step
        try:
            learner.fit(X)
        except KeyboardInterrupt:
            if not hasattr(learner, "embedding_"):
                raise
            stopped = True
        except ValueError as error:
            raise ValueError(_in_options(str(error))) from error
        finally:
            if watched:
                del learner._watch
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
    learner: Learner,
    X: Any,
    coordinates: Floats,
    *,
    name: str = "data",
    color: dict[str, Any] | None = None,
    warned: Sequence[str] = (),
    stopped: bool = False,
    seconds: float | None = None,
    messages: Sequence[str] = (),
    n_features: int | None = None,
    contents: Callable[[NDArray[np.intp]], dict[str, Any]] | None = None,
    argv: Sequence[str] | None = None,
    code: str = "",
    sets: dict[str, Any] | None = None,
    pairs: Floats | None = None,
) -> dict[str, Any]:
    """Everything that the page of an embedding shows, as plain data and arrays.

    Parameters
    ----------
    learner : Learner
        Fitted.
    X : ndarray of shape (n, p), or Sets
        What it was fitted to.
    coordinates : ndarray of shape (n, q)
        Where the rows are.
    name : str
        Of the data.
    color : dict, optional
        What ``colors`` returned.
    warned, messages : sequences of str
        Warnings of the fit; how the data were read.
    stopped : bool
        Whether the fit was interrupted.
    seconds : float, optional
        The fit took.
    n_features : int, optional
        Columns in use.
    contents : function, optional
        From row numbers to what a hover shows of them.
    argv, code : sequence of str and str
        How to repeat it.
    sets, pairs : dict and ndarray of shape (n, n), optional
        Of sets of vectors: what their ellipses are, and their dissimilarities.
    """
    n, q = coordinates.shape
    noun = "row" if sets is None else "set"
    n_drawn = min(q, 3)
    proof = facts.certificate(learner, stopped=stopped)
    values = facts.spectrum(learner, n_drawn)
    judged = facts.quality(
        X if pairs is None else pairs,
        coordinates[:, :n_drawn],
        pairs=pairs is not None,
        noun=noun,
    )
    drawn = np.arange(n)
    if n > MOST_POINTS and sets is None:
        drawn = np.sort(np.random.default_rng(0).choice(n, MOST_POINTS, replace=False))
    if sets is None:
        edges, n_neighbors = _edges(learner, X, drawn)
        copies = _duplicates(X)
    else:
        near = np.asarray(sets["neighbors"])
        edges, n_neighbors, copies = pairs_of(near), near.shape[1], []
    return {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if argv is None else shlex.join(argv),
        "code": code,
        "versions": versions(),
        "status": "interrupted" if stopped else "complete",
        "seconds": seconds,
        "name": name,
        "n_rows": n,
        "n_features": X.shape[1] if n_features is None else n_features,
        "method": type(learner).__name__,
        "parameters": _parameters(learner, q),
        "messages": list(messages),
        "warnings": [*copies, *_told(learner, warned)],
        "answer": facts.answer(learner, n, n_drawn, proof, values, judged, stopped, noun),
        "certificate": proof,
        "spectrum": values,
        "quality": judged,
        "drawn": drawn,
        "coordinates": coordinates[drawn, :n_drawn],
        "color": None if color is None else _rows_of(color, drawn),
        "edges": edges,
        "n_neighbors": n_neighbors,
        "contents": None if contents is None else contents(drawn),
        "sets": sets,
    }


def describe_fitted(
    learner: Any,
    X: Any,
    *,
    color: Any = None,
    color_name: str | None = None,
    name: str = "data",
    image_shape: tuple[int, ...] | None = None,
    show_rows: bool = True,
) -> dict[str, Any]:
    """What the page shows of a learner, or a Pipeline, that was fitted elsewhere."""
    table = Table(name, X if hasattr(X, "iloc") else np.asarray(X), image_shape=image_shape)
    given = X
    if isinstance(learner, Pipeline):
        given, learner = map_through(learner[:-1], X), learner[-1]
    points = np.asarray(given)
    if points.ndim != 2 or points.dtype.kind not in "biuf":
        raise ValueError(
            f"X must be rows of numbers, those that the learner was fitted to; got an array of "
            f"shape {points.shape} and type {points.dtype}."
        )
    points = points if points.dtype == np.float32 else points.astype(np.float64)
    check_is_fitted(learner)
    if image_shape is not None and int(np.prod(image_shape)) != table.X.shape[1]:
        raise ValueError(
            f"image_shape={image_shape} has {int(np.prod(image_shape)):,} numbers, but the rows "
            f"of X have {table.X.shape[1]:,}."
        )
    shade = None
    if color is not None:
        shade = colors(color, str(color_name or getattr(color, "name", None) or "label"))
        size = len(shade["codes"] if shade["kind"] == "classes" else shade["values"])
        if size != len(points):
            raise ValueError(f"color has {size} values for {len(points)} rows of X.")
    if hasattr(X, "columns"):
        columns = Columns(tuple(str(name) for name in X.columns), (), (), False)
    else:
        p = table.X.shape[1]
        names = getattr(learner, "feature_names_in_", [f"column {i}" for i in range(p)])
        columns = Columns(tuple(range(p)), (), (), False, tuple(map(str, names)))
    return describe(
        learner,
        points,
        coordinates_of(learner, given),
        name=name,
        color=shade,
        n_features=table.X.shape[1],
        contents=_contents(table, columns, shade, len(points)) if show_rows else None,
    )


def _told(learner: Learner, warned: Sequence[str]) -> list[str]:
    """Warnings, that of locked edges in the words of the page."""
    locked = facts.lock_up(learner)
    others = [text for text in warned if "lock the rows" not in text]
    return [*([locked] if locked else []), *others]


def _duplicates(X: Floats) -> list[str]:
    kept, _ = distinct_rows(X)
    same = len(X) - len(kept)
    if not same:
        return []
    share = "shares its place with it" if same == 1 else "share their places with them"
    return [f"{count(same, 'row')} equal to an earlier one: {share}, and counted once."]


def _parameters(learner: Learner, n_components: int) -> str:
    """What differs from the defaults, and what decides the picture."""
    given = learner.get_params(deep=False) | {"n_components": n_components}
    defaults = type(learner)().get_params(deep=False)
    first = [key for key in ("n_components", "n_neighbors", "constraints") if key in given]
    changed = [key for key in given if repr(given[key]) != repr(defaults.get(key))]
    return ", ".join(f"{key}={given[key]!r}" for key in dict.fromkeys([*first, *changed]))


def _edges(learner: Learner, X: Floats, drawn: NDArray[np.intp]) -> tuple[Any, int]:
    """Pairs of drawn rows that are neighbours, and how many neighbours each row has."""
    kept, _ = distinct_rows(X)
    points = X[kept]
    k = getattr(learner, "n_neighbors_", None) or getattr(learner, "n_neighbors", None)
    k = min(int(k or _EDGES_EACH), len(points) - 1)
    if len(drawn) < len(X) or k < 1 or k * len(points) > MOST_EDGES:
        return None, k
    graph = NeighborGraph.from_points(points, n_neighbors=k)
    if getattr(learner, "on_disconnected", None) == "link":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit has said so
            graph = linked_graph(graph, points)
    joined = graph.symmetrized().tocoo()
    one = joined.row < joined.col
    return np.column_stack([kept[joined.row[one]], kept[joined.col[one]]]), k


# Reading


def _read_images(table: Table, shape: tuple[int, ...], drop: Sequence[Any]) -> None:
    """Rows of numbers as images of a shape."""
    size = int(np.prod(shape))
    X, names = table.X, "×".join(map(str, shape))
    if hasattr(X, "iloc"):
        X = X.drop(columns=[name for name in drop if name in X.columns])
    n_columns = X.shape[1]
    if n_columns != size:
        more = n_columns > size and hasattr(X, "iloc")
        others = "; leave the others out with --drop" if more else ""
        raise ValueError(
            f"--images {names}: that is {size:,} numbers, but the rows of {table.name} have "
            f"{n_columns:,}{others}."
        )
    if hasattr(X, "iloc"):
        odd = [str(name) for name in X.columns if X[name].dtype.kind not in "biuf"]
        if odd:
            raise ValueError(f"--images {names}: {listed(odd, 5)} hold no numbers but text.")
        table.feature_names = [str(name) for name in X.columns]
        X = X.to_numpy(np.float64)
        if table.source is not None:
            table.source = None  # more than a call
    table.X, table.image_shape = X, shape


def _prepared(columns: Columns, rows: Any, notes: list[str]) -> tuple[list[Any], Floats]:
    """Steps that make numbers of the rows, fitted, and the numbers."""
    prepare = columns.preprocessor()
    if isinstance(prepare, str):
        return [], np.asarray(rows)
    if columns.missing:
        cells = np.asarray(rows.isna() if hasattr(rows, "isna") else np.isnan(rows))
        where = count(int(cells.sum()), "missing value")
        notes.append(f"{where} filled in: numbers by the median, categories as one of their own.")
    X = np.asarray(prepare.fit_transform(rows))
    return [("prepare", prepare)], X


def _scaled(X: Floats, scale: Scale, images: bool, steps: list[Any], notes: list[str]) -> Floats:
    from sklearn.preprocessing import Normalizer, StandardScaler

    way = scale
    if scale == "auto":
        way = "none"
        spread = X.std(axis=0, dtype=np.float64)
        spread = spread[spread > 1e-12 * max(float(spread.max()), np.finfo(float).tiny)]
        ratio = float(spread.max() / spread.min()) if len(spread) else 1.0
        if ratio > _UNLIKE and not images:
            way = "standard"
            notes.append(
                f"Standardised: the columns' standard deviations differ up to {ratio:,.0f}-fold "
                "(--scale none leaves them as they are)."
            )
    if way == "none":
        return X
    scaler = StandardScaler() if way == "standard" else Normalizer()
    steps.append(("scale", scaler))
    return np.asarray(scaler.fit_transform(X))


def _widened(learner: Learner, X: Floats) -> int:
    """How many components to find, for the spectrum."""
    given = learner.get_params(deep=False)
    asked = int(given["n_components"])
    name = type(learner).__name__
    if name not in facts.NESTED:
        return asked
    most = min(len(distinct_rows(X)[0]) - 1, _SPECTRUM)
    if name in ("PCA", "ClassicalMDS"):
        most = min(most, X.shape[1])
    if name == "LandmarkIsomap":
        most = min(most, int(given["n_landmarks"]) - 1)
    return max(asked, most)


# The colour and the contents of rows


def colors(
    values: Any, name: str, classes: Sequence[str] | None = None, *, few: int = _FEW_NUMBERS
) -> dict[str, Any]:
    """What to colour by: classes, or numbers.

    Parameters
    ----------
    values : array-like of shape (n,)
        Text, booleans and few different whole numbers are classes, other numbers are numbers.
    name : str
        Of the values.
    classes : sequence of str, optional
        Names of the sorted values.
    few : int, default=10
        How many whole numbers are few.

    Returns
    -------
    dict
        "name", "kind" ("classes" or "numbers"), "classes", "codes" (-1 for unknown) or "values".

    Examples
    --------
    >>> colors(["b", "a", None, "b"], "kind")
    {'name': 'kind', 'kind': 'classes', 'classes': ['a', 'b'], 'codes': array([ 1,  0, -1,  1])}
    >>> colors([0.5, 2.0, float("nan")], "size")["values"]
    array([0.5, 2. , nan])
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"The colour must have one value a row; got shape {array.shape}.")
    known = np.array([_is_known(value) for value in array.tolist()], dtype=bool)
    if array.dtype.kind == "O":
        array = _numbers_if_all(array, known)
    if array.dtype.kind in "fiu":
        numbers = array.astype(np.float64)
        known &= np.isfinite(numbers)
        different = np.unique(numbers[known])
        whole = np.all(different == np.floor(different))
        if not whole or len(different) > few:
            return {"name": name, "kind": "numbers", "values": np.where(known, numbers, np.nan)}
        array = numbers.astype(np.int64, copy=False) if known.all() else numbers
    texts = np.array([_text(value) for value in array.tolist()], dtype=object)
    present = list(dict.fromkeys(texts[known].tolist()))
    present.sort(key=_natural)
    if len(present) > MOST_CLASSES:
        raise ValueError(
            f"Colour by '{name}': it has {len(present):,} different texts, but marks can tell "
            f"{MOST_CLASSES} apart. Take a column of numbers or of fewer categories."
        )
    place = {text: code for code, text in enumerate(present)}
    codes = np.array([place[t] if ok else -1 for t, ok in zip(texts, known, strict=True)])
    names = present
    if classes is not None and len(classes) == len(present):
        names = [str(given) for given in classes]
    return {"name": name, "kind": "classes", "classes": names, "codes": codes}


def _color_of(table: Table, column: str | None) -> dict[str, Any] | None:
    if column is None:
        if table.y is None:
            return None
        try:
            return colors(table.y, table.target or "label", table.class_names, few=MOST_CLASSES)
        except ValueError:  # too many names; nobody asked for them
            table.messages.append(f"'{table.target}' has too many values to colour by.")
            return None
    sides = {
        table.time_name: (table.time, None, _FEW_NUMBERS),
        table.groups_name: (table.groups, None, MOST_CLASSES),
        table.target: (table.y, table.class_names, MOST_CLASSES),
    }
    if column in sides and sides[column][0] is not None:
        values, names, few = sides[column]
        return colors(values, column, names, few=few)
    if hasattr(table.X, "iloc"):
        known = [str(name) for name in table.X.columns]
        if column in known:
            return colors(table.X.iloc[:, known.index(column)].to_numpy(), column)
        if known[0] == "column 0" and column.isdigit() and int(column) < len(known):
            return colors(table.X.iloc[:, int(column)].to_numpy(), f"column {column}")
    else:
        p = table.X.shape[1]
        known = table.feature_names or [f"column {i}" for i in range(p)]
        if column in known:
            return colors(table.X[:, known.index(column)], column)
        if column.isdigit() and int(column) < p:
            return colors(table.X[:, int(column)], known[int(column)])
    every = [*(str(name) for name in sides if name is not None), *known]
    raise ValueError(
        f"--color {column}: {table.name} has no such column.{did_you_mean(column, every)} "
        f"Its columns are {listed(every)}."
    )


def _rows_of(color: dict[str, Any], drawn: NDArray[np.intp]) -> dict[str, Any]:
    return {
        key: value[drawn] if isinstance(value, np.ndarray) else value
        for key, value in color.items()
    }


def _contents(
    table: Table, columns: Columns, color: dict[str, Any] | None, n: int
) -> Callable[[NDArray[np.intp]], dict[str, Any]]:
    """What a hover shows: the picture of a row, or its ID first and then its values."""

    def contents(drawn: NDArray[np.intp]) -> dict[str, Any]:
        if table.image_shape is not None:
            rows = np.asarray(table.X)[drawn]
            return {"images": pictures(rows, table.image_shape, _IMAGE_BYTES)}
        ids, others = _shown(columns, color)
        names = [*ids, *others][: max(1, min(_MOST_COLUMNS, _MOST_CELLS // n))]
        if hasattr(table.X, "iloc"):
            every = [str(name) for name in table.X.columns]
            cells = {name: table.X.iloc[drawn, every.index(name)].tolist() for name in names}
        else:
            every = list(columns.feature_names or ())
            cells = {name: table.X[drawn, every.index(name)].tolist() for name in names}
        texts = {name: [_cell(v) for v in column] for name, column in cells.items()}
        return {"columns": texts, "n_ids": len(ids)}

    return contents


def _shown(columns: Columns, color: dict[str, Any] | None) -> tuple[list[str], list[str]]:
    """IDs and names; and the columns in use but that of the colour, which is said anyway."""
    ids = [name for name, why in columns.dropped if "like an ID" in why or "like a name" in why]
    colored = None if color is None else color["name"]
    ids = [name for name in ids if name != colored]
    return ids, [name for name in columns.names if name != colored]


def _cell(value: Any) -> str:
    if not _is_known(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:40]


def _is_known(value: Any) -> bool:
    try:
        return value is not None and value != "" and bool(value == value)
    except (TypeError, ValueError):  # pandas.NA
        return False


def _numbers_if_all(array: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[Any]:
    """Floats where every known value is a number."""
    plain = [v for v in array[known].tolist() if not isinstance(v, int | float)]
    booleans = any(isinstance(v, bool) for v in array[known].tolist())
    if plain or booleans or not known.any():
        return array
    return np.array([float(v) if ok else np.nan for v, ok in zip(array, known, strict=True)])


def _text(value: Any) -> str:
    if isinstance(value, float) and value == int(value if value == value else 0):
        return str(int(value))
    return str(value)[:60]


def _natural(text: str) -> tuple[Any, ...]:
    """Numbers in texts sort as numbers."""
    parts = re.split(r"(\d+)", text)
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p.lower()) for p in parts if p)


# Words


def _in_options(text: str, *, all_of_them: bool = False) -> str:
    """A message of a learner in terms of the command's options.

    >>> _in_options("n_neighbors=5 must be less than 4. Raise n_neighbors.")
    '--neighbors 5 must be less than 4. Raise --neighbors.'
    """
    for name, option in (("n_neighbors", "--neighbors"), ("n_components", "--components")):
        text = re.sub(rf"\b{name}=", f"{option} ", text)
        text = re.sub(rf"\b{name}\b", option, text)
    if all_of_them:
        text = re.sub(r'\bconstraints="', '--set constraints="', text).replace('"', "")
        text = re.sub(r"\bRaise (max_iter|bound_iter)", r"Raise --set \1=...", text)
    return text


def _code_lines(
    table: Table,
    steps: Sequence[Any],
    n_components: int,
    keep: Sequence[Any],
    drop: Sequence[Any],
) -> str:
    """Lines of Python that fit the same learner."""
    named = dict(steps)
    learner = named["learner"]
    asked = type(learner)(**{**learner.get_params(deep=False), "n_components": n_components})
    imports = [f"from nearfar import {type(learner).__name__}"]
    if table.source is None:
        lines = ["# X: the columns in use, as numbers"]
    elif table.name in EMBEDDED and not drop:
        imports.append(f"from sklearn.datasets import load_{table.name}")
        lines = [f"X = load_{table.name}().data"]
    else:
        imports.append("from nearfar.datasets import read_table")
        lines = [f"table = {table.source}", "X = table.X"]
    if "prepare" in named and table.source is not None:
        imports.append("from nearfar.app.tables.columns import choose_columns")
        options = {"keep": list(keep), "drop": list(drop)}
        given = "".join(f", {name}={value!r}" for name, value in options.items() if value)
        if table.feature_names is not None:
            given = f", feature_names=table.feature_names{given}"
        lines[-1] = f"columns = choose_columns(table.X{given})"
        lines.append("X = columns.preprocessor().fit_transform(columns.select(table.X))")
    if "scale" in named:
        scaler = type(named["scale"]).__name__
        imports.append(f"from sklearn.preprocessing import {scaler}")
        lines.append(f"X = {scaler}().fit_transform(X)")
    lines.append(f"embedding = {code_of(asked)}.fit(X).{_result_of(learner)}")
    return "\n".join([*sorted(imports), "", *lines]) + "\n"


def _result_of(learner: Learner) -> str:
    return "embedding_" if hasattr(learner, "embedding_") else "transform(X)"
