"""Rows of a table, embedded: read, prepared, and what the page shows of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from nearfar.app.compare.methods import Scale
from nearfar.app.compare.through import map_through
from nearfar.app.embed import facts
from nearfar.app.embed.kinds.kind import SPECTRUM, Contents, Kind, Ready, Shown, Wishes, unlike
from nearfar.app.tables.colors import (
    FEW_NUMBERS,
    MOST_CLASSES,
    check_colors,
    colors,
    column_at,
    column_names,
    is_known,
)
from nearfar.app.tables.columns import Columns, as_floats, choose_columns, columns_of
from nearfar.app.tables.images import has_images, images_of_rows
from nearfar.app.tables.reading import left_to_drop
from nearfar.base import Learner
from nearfar.datasets.builtin import find_sklearn_loader
from nearfar.datasets.table import Table
from nearfar.summaries.neighbor_graph import NeighborGraph, find_distinct_rows, link_components
from nearfar.words import format_count, join_names, suggest_name

Floats = NDArray[Any]

# Points, edges, columns of a row and bytes of pictures that a page may hold.
MOST_POINTS = 50_000
MOST_EDGES = 400_000
_MOST_COLUMNS = 12
_MOST_CELLS = 300_000
_IMAGE_BYTES = 3_000_000
# Neighbours drawn for learners without a graph.
_EDGES_EACH = 5


class Rows(Kind):
    """Rows of numbers and categories."""

    noun = "row"
    called = "rows of a table"
    input = "vectors"
    variable = "X"
    method = "mvu"
    kept = "training rows, as they are or mapped"
    refused = (
        "takes sets of vectors, and {} holds rows: say with --set-id COL which of them are one set."
    )

    def check(self, wishes: Wishes) -> None:
        """Groups would be left out, which the user can say."""
        if wishes.groups is not None:
            raise ValueError(
                "--groups is for sets of vectors here; to leave a column out, use --drop."
            )

    def prepare(self, table: Table, learner: Learner, wishes: Wishes) -> Ready:
        """Choose the columns, make numbers of them, and scale."""
        drop = left_to_drop(table, wishes.drop)
        shade = _color_of(table, wishes.color)
        columns = choose_columns(
            table.X,
            feature_names=table.feature_names,
            keep=[name for name in wishes.keep if name != table.target],
            drop=drop,
        )
        notes = [*columns.notes]
        notes += [f"Left out: column {name!r}: {why}." for name, why in columns.dropped]
        if wishes.color is not None and shade is not None and shade["name"] in columns.names:
            own = shade["name"]
            notes.append(
                f"'{own}' colours the picture and is a feature too; --drop '{own}' ends that."
            )
        steps, X = _prepared(columns, columns.select(table.X), notes)
        n = len(X)
        if n < 3:
            raise ValueError(
                f"{table.name} has {format_count(n, 'row')}; an embedding needs 3 at least."
            )
        X = _scaled(X, wishes.scale, table.image_shape is not None, steps, notes)
        return Ready(
            table.name,
            X,
            columns.n_features,
            shade,
            _contents(table, columns, shade, n) if wishes.show_rows else None,
            f"{table.name}: {format_count(n, 'row')}, {format_count(X.shape[1], 'feature')}.",
            [*table.messages, *notes],
            steps,
        )

    def fitted(
        self, learner: Any, X: Any, name: str, color: dict[str, Any] | None, wishes: Wishes
    ) -> tuple[Learner, Any, Ready]:
        """Map rows up to the learner, the last of a Pipeline."""
        shape = wishes.image_shape
        table = Table(name, X if hasattr(X, "iloc") else np.asarray(X), tensor_shape=shape)
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
        n, p = len(points), table.X.shape[1]
        if shape is not None and int(np.prod(shape)) != p:
            raise ValueError(
                f"image_shape={shape} has {int(np.prod(shape)):,} numbers, but the rows of X have "
                f"{p:,}."
            )
        check_colors(color, n, f"{n} rows of X")
        if hasattr(X, "columns"):
            columns = Columns(tuple(str(name) for name in X.columns), (), (), False)
        else:
            names = getattr(learner, "feature_names_in_", [f"column {i}" for i in range(p)])
            columns = Columns(tuple(range(p)), (), (), False, tuple(map(str, names)))
        contents = _contents(table, columns, color, n) if wishes.show_rows else None
        return learner, given, Ready(name, points, p, color, contents)

    def widened(self, learner: Learner, X: Floats) -> int:
        """More where the first coordinates do not depend on how many are asked for."""
        given = learner.get_params(deep=False)
        asked = int(given["n_components"])
        name = type(learner).__name__
        if name not in facts.NESTED:
            return asked
        most = min(len(find_distinct_rows(X)[0]) - 1, SPECTRUM)
        if name in ("PCA", "ClassicalMDS"):
            most = min(most, X.shape[1])
        if name == "LandmarkIsomap":
            most = min(most, int(given["n_landmarks"]) - 1)
        return max(asked, most)

    def show(self, learner: Learner, X: Floats, show_rows: bool) -> Shown:
        """All rows or a random choice, the neighbour graph, and what is said of copies."""
        n = len(X)
        drawn = np.arange(n)
        if n > MOST_POINTS:
            drawn = np.sort(np.random.default_rng(0).choice(n, MOST_POINTS, replace=False))
        edges, n_neighbors = _edges(learner, X, drawn)
        return Shown(drawn, edges, n_neighbors, X, warnings=_duplicates(X))

    def code(self, table: Table, ready: Ready, wishes: Wishes) -> tuple[list[str], list[str]]:
        """Lines that read and prepare the same rows."""
        imports: list[str] = []
        loader = find_sklearn_loader(table)
        if table.source is None:
            lines = ["# X: the columns in use, as numbers"]
        elif loader is not None and not wishes.drop:
            imports.append(f"from sklearn.datasets import {loader}")
            lines = [f"X = {loader}().data"]
        else:
            imports.append("from nearfar.datasets import read_table")
            lines = [f"table = {table.source}", "X = table.X"]
        named = dict(ready.steps)
        if "prepare" in named and table.source is not None:
            imports.append("from nearfar.app.tables.columns import choose_columns")
            options = {"keep": list(wishes.keep), "drop": list(wishes.drop)}
            given = "".join(f", {name}={value!r}" for name, value in options.items() if value)
            if table.feature_names is not None:
                given = f", feature_names=table.feature_names{given}"
            lines[-1] = f"columns = choose_columns(table.X{given})"
            lines.append("X = columns.preprocessor().fit_transform(columns.select(table.X))")
        if "scale" in named:
            scaler = type(named["scale"]).__name__
            imports.append(f"from sklearn.preprocessing import {scaler}")
            lines.append(f"X = {scaler}().fit_transform(X)")
        return imports, lines

    def metadata(self, table: Table) -> dict[str, Any]:
        """The shape of images and tensors."""
        shape = table.tensor_shape
        return {} if shape is None else {"shape": [int(size) for size in shape]}

    def inputs(self, chain: Pipeline, table: Table, name: str) -> Any:
        """Rows by the columns that the chain was fitted on."""
        prepare = chain.named_steps.get("prepare")
        is_table = isinstance(prepare, ColumnTransformer) and hasattr(prepare, "feature_names_in_")
        if is_table and not hasattr(table.X, "iloc"):
            raise ValueError(
                f"{name} has no column names; the model was fitted on a table with "
                f"{join_names(prepare.feature_names_in_)}."
            )
        if is_table:
            lacking = [c for c in columns_of(prepare).names if c not in set(map(str, table.X))]
            if lacking:
                raise ValueError(
                    f"{name} lacks {join_names(lacking)}, which the model was fitted on."
                    f"{suggest_name(lacking[0], table.X)} It has {join_names(table.X)}."
                )
        try:
            X = columns_of(prepare).select(table.X) if is_table else as_floats(table.X)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if X.shape[1] != chain.n_features_in_:
            raise ValueError(
                f"{name} has {X.shape[1]} columns; the model was fitted on {chain.n_features_in_}."
            )
        return X


# Reading


def _prepared(columns: Columns, rows: Any, notes: list[str]) -> tuple[list[Any], Floats]:
    """Steps that make numbers of the rows, fitted, and the numbers."""
    prepare = columns.preprocessor()
    if isinstance(prepare, str):
        return [], as_floats(rows)
    if columns.missing:
        cells = np.asarray(rows.isna() if hasattr(rows, "isna") else np.isnan(rows))
        where = format_count(int(cells.sum()), "missing value")
        notes.append(f"{where} filled in: numbers by the median, categories as one of their own.")
    X = np.asarray(prepare.fit_transform(as_floats(rows)))
    return [("prepare", prepare)], X


def _scaled(X: Floats, scale: Scale, images: bool, steps: list[Any], notes: list[str]) -> Floats:
    from sklearn.preprocessing import Normalizer, StandardScaler

    way = scale
    if scale == "auto":
        way = "none"
        spread = X.std(axis=0, dtype=np.float64)
        spread = spread[spread > 1e-12 * max(float(spread.max()), np.finfo(float).tiny)]
        note = unlike("columns", spread)
        if note and not images:
            way = "standard"
            notes.append(note)
    if way == "none":
        return X
    scaler = StandardScaler() if way == "standard" else Normalizer()
    steps.append(("scale", scaler))
    return np.asarray(scaler.fit_transform(X))


def _color_of(table: Table, column: str | None) -> dict[str, Any] | None:
    if column is None:
        if table.y is None:
            return None
        try:
            return colors(table.y, table.target or "label", table.class_names, few=MOST_CLASSES)
        except ValueError:  # too many names; nobody asked for them
            table.messages.append(f"'{table.target}' has too many values to colour by.")
            return None
    sides: dict[str | None, tuple[Any, Any, int]] = {
        table.time_name: (table.time, None, FEW_NUMBERS),
        table.groups_name: (table.groups, None, MOST_CLASSES),
        table.target: (table.y, table.class_names, MOST_CLASSES),
        **{name: (values, None, FEW_NUMBERS) for name, values in table.unused.items()},
    }
    if column in sides and sides[column][0] is not None:
        values, names, few = sides[column]
        return colors(values, column, names, few=few)
    known = column_names(table) or [f"column {i}" for i in range(table.X.shape[1])]
    if column in known:
        return colors(column_at(table, known.index(column)), column)
    # By its number: any of an array, and of a table without names.
    plain = not hasattr(table.X, "iloc") or known[0] == "column 0"
    if plain and column.isdigit() and int(column) < len(known):
        return colors(column_at(table, int(column)), known[int(column)])
    every = [*(str(name) for name in sides if name is not None), *known]
    raise ValueError(
        f"--color {column}: {table.name} has no such column.{suggest_name(column, every)} "
        f"Its columns are {join_names(every)}."
    )


# The picture


def _edges(learner: Learner, X: Floats, drawn: NDArray[np.intp]) -> tuple[Any, int]:
    """Pairs of drawn rows that are neighbours, and how many neighbours each row has."""
    kept, _ = find_distinct_rows(X)
    points = X[kept]
    k = getattr(learner, "n_neighbors_", None) or getattr(learner, "n_neighbors", None)
    k = min(int(k or _EDGES_EACH), len(points) - 1)
    if len(drawn) < len(X) or k < 1 or k * len(points) > MOST_EDGES:
        return None, k
    graph = NeighborGraph.from_points(points, n_neighbors=k)
    if getattr(learner, "on_disconnected", None) == "link":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit has said so
            graph = link_components(graph, points)
    joined = graph.symmetrized().tocoo()
    one = joined.row < joined.col
    return np.column_stack([kept[joined.row[one]], kept[joined.col[one]]]), k


def _duplicates(X: Floats) -> list[str]:
    kept, _ = find_distinct_rows(X)
    same = len(X) - len(kept)
    if not same:
        return []
    share = "shares its place with it" if same == 1 else "share their places with them"
    return [f"{format_count(same, 'row')} equal to an earlier one: {share}, and counted once."]


def _contents(table: Table, columns: Columns, color: dict[str, Any] | None, n: int) -> Contents:
    """What a hover shows: the picture of a row, or its ID first and then its values."""

    def contents(drawn: NDArray[np.intp]) -> dict[str, Any]:
        if has_images(table):
            return {"images": images_of_rows(table, np.asarray(table.X), drawn, _IMAGE_BYTES)}
        ids, others = _shown(columns, color)
        names = [*ids, *others][: max(1, min(_MOST_COLUMNS, _MOST_CELLS // n))]
        named = {} if table.ids is None else {str(table.id_name): table.ids[drawn].tolist()}
        if hasattr(table.X, "iloc"):
            every = [str(name) for name in table.X.columns]
            cells = {name: table.X.iloc[drawn, every.index(name)].tolist() for name in names}
        else:
            every = list(columns.feature_names or ())
            cells = {name: table.X[drawn, every.index(name)].tolist() for name in names}
        cells = named | cells
        texts = {name: [_cell(v) for v in column] for name, column in cells.items()}
        return {"columns": texts, "n_ids": len(named) + len(ids)}

    return contents


def _shown(columns: Columns, color: dict[str, Any] | None) -> tuple[list[str], list[str]]:
    """IDs and names; and the columns in use but that of the colour, which is said anyway."""
    ids = [name for name, why in columns.dropped if "like an ID" in why or "like a name" in why]
    colored = None if color is None else color["name"]
    ids = [name for name in ids if name != colored]
    return ids, [name for name in columns.names if name != colored]


def _cell(value: Any) -> str:
    if not is_known(value):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:40]
