"""``nearfar fit``, ``transform`` and ``neighbors``: models in files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from nearfar.app.cli.files import (
    check_ending,
    check_place,
    write_columns,
    write_coordinates,
    write_csv,
)
from nearfar.app.cli.options import (
    DATA_HELP,
    add_rows,
    add_scale,
    add_sets,
    add_target,
    number,
    read_data,
)


def add_model_commands(commands: Any) -> None:
    """Add the three commands."""
    fit = commands.add_parser(
        "fit",
        help="fit one method and save the chain from raw table to neighbours",
        description="Tune k and the method's settings by cross-validation, fit on all rows, save.",
    )
    fit.set_defaults(run=_fit)
    fit.add_argument("data", metavar="DATA", help=DATA_HELP)
    add_target(fit)
    add_rows(fit)
    fit.add_argument("--method", required=True, metavar="NAME", help="see: nearfar methods")
    fit.add_argument("--groups", metavar="COL", help="kept together while tuning; no feature")
    fit.add_argument("--time", metavar="COL", help="tune on what follows the past; no feature")
    add_scale(fit, "auto")
    fit.add_argument("--save", type=Path, required=True, metavar="MODEL", help="the model file")
    fit.add_argument("--force", action="store_true", help="overwrite it if it exists")

    transform = commands.add_parser(
        "transform",
        help="map rows with a saved model",
        description="Map rows into the space where the learned distance is the Euclidean one.",
    )
    transform.set_defaults(run=_transform)
    transform.add_argument("model", type=Path, metavar="MODEL")
    transform.add_argument("--input", required=True, metavar="FILE", help="rows to map")
    transform.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="FILE",
        help=".parquet, .csv, .tsv, .npy",
    )
    add_sets(transform)
    add_rows(transform)
    transform.add_argument("--force", action="store_true", help="overwrite it if it exists")

    neighbors = commands.add_parser(
        "neighbors",
        help="nearest rows by the learned distance",
        description="For each query the nearest rows of an index, by the learned distance.",
    )
    neighbors.set_defaults(run=_neighbors)
    neighbors.add_argument("model", type=Path, metavar="MODEL")
    neighbors.add_argument("--index", required=True, metavar="FILE", help="rows to find")
    neighbors.add_argument("--query", required=True, metavar="FILE", help="rows to find them for")
    add_sets(neighbors)
    add_rows(neighbors)
    neighbors.add_argument("-k", type=number(int, 1), default=5, metavar="N", help="how many (5)")
    neighbors.add_argument("-o", "--output", type=Path, metavar="FILE", help=".csv, .tsv, .parquet")
    neighbors.add_argument("--force", action="store_true", help="overwrite it if it exists")


def _fit(options: argparse.Namespace) -> int:
    from nearfar.app.compare.chain import find_method, fit_chain
    from nearfar.app.embed.kinds.choice import kind_of
    from nearfar.app.tables.reading import noun_of_file, read_rows
    from nearfar.datasets.tables import DataFile
    from nearfar.extras import require
    from nearfar.persistence import save

    # Before the work, not after.
    check_place(options.save, "--save", options.force)
    find_method(options.method, options.scale)
    require("skops.io", "app")
    data = DataFile(options.data)
    kind_of(noun_of_file(data)).check_fit(options.data)
    table = read_rows(
        data,
        drop=options.drop,
        vector=options.vector,
        ids=options.ids,
        target=options.target,
        labels=options.labels,
        groups=options.groups,
        time=options.time,
    )
    chain, notes = fit_chain(
        table, options.method, scale=options.scale, keep=options.keep, drop=options.drop
    )
    for line in [*table.messages, *notes]:
        print(line)
    metadata = {"method": options.method, "data": table.name, "target": table.target}
    save(chain, options.save, force=options.force, metadata=metadata)
    print(f"Saved: {options.save} (it holds the training rows, as they are or mapped)")
    return 0


def _load_chain(path: Path) -> Any:
    from sklearn.pipeline import Pipeline

    from nearfar.persistence import load

    chain = load(path)
    if not isinstance(chain, Pipeline) or not {"knn", "learner"} & set(chain.named_steps):
        raise ValueError(
            f"{path} holds a {type(chain).__name__}, not a chain made by nearfar fit or embed."
        )
    return chain


def _mapped(options: argparse.Namespace, chain: Any, source: str) -> tuple[Any, Any, Any]:
    """The kind of what a file holds, its table, and where the model maps it."""
    from nearfar.app.embed.kinds.choice import kind_of
    from nearfar.app.tables.reading import noun_of_file
    from nearfar.datasets.tables import DataFile
    from nearfar.persistence import describe

    data = DataFile(source)
    kind = kind_of(noun_of_file(data, options.set_id))
    tags = getattr(chain.named_steps.get("learner"), "learner_tags", None)
    if kind.input != getattr(tags, "input", "vectors"):
        raise ValueError(f"{options.model} {kind.refused.format(source)}")
    # Sets of a long table have the features that the model was fitted on.
    features = describe(options.model)["metadata"].get("features") if options.set_id else None
    table = read_data(options, data, need_target=False, features=features)
    _know_labels(table, describe(options.model)["metadata"].get("target"))
    return kind, table, kind.mapped(chain, table, source)


def _know_labels(table: Any, target: str | None) -> None:
    """The labels of rows that have an id, where the file has them under the model's name."""
    if table.ids is None or table.y is not None or target is None:
        return
    beside = table.X if hasattr(table.X, "columns") else table.others
    if target in beside:
        table.y, table.target = beside[target], target


def _transform(options: argparse.Namespace) -> int:
    endings = (".parquet", ".csv", ".tsv", *([] if options.ids is not None else [".npy"]))
    check_ending(options.output, endings)
    check_place(options.output, "-o", options.force)
    kind, table, points = _mapped(options, _load_chain(options.model), options.input)
    write_coordinates(points, options.output, kind.names(table))
    print(f"Wrote {points.shape[0]:,} rows of {points.shape[1]} to {options.output}")
    return 0


def _neighbors(options: argparse.Namespace) -> int:
    import numpy as np

    from nearfar.search.exact_search import kneighbors

    if options.output is not None:
        check_ending(options.output, (".csv", ".tsv", ".parquet"))
        check_place(options.output, "-o", options.force)
    chain = _load_chain(options.model)
    kind, known, index = _mapped(options, chain, options.index)
    _, asked, queries = _mapped(options, chain, options.query)
    if not 1 <= options.k <= len(index):
        raise ValueError(
            f"-k {options.k}: it must be from 1 to the {len(index)} {kind.noun}s of the index."
        )
    distances, rows = kneighbors(index, queries, n_neighbors=options.k)
    from_, to = np.repeat(np.arange(len(queries)), options.k), rows.ravel()
    columns = {
        "query": from_ if asked.ids is None else asked.ids[from_],
        "rank": np.tile(np.arange(1, options.k + 1), len(queries)),
        "row": to if known.ids is None else known.ids[to],
        "distance": distances.ravel(),
    }
    for name, table, numbers in (("query_label", asked, from_), ("row_label", known, to)):
        if table.ids is not None and table.y is not None:
            columns[name] = np.asarray(table.y)[numbers]
    if options.output is None or options.output.suffix.lower() != ".parquet":
        columns["distance"] = np.array([f"{distance:.6g}" for distance in distances.ravel()])
    if options.output is None:
        write_csv(sys.stdout, columns, ",")
        return 0
    write_columns(columns, options.output)
    print(f"Wrote the neighbours of {len(queries):,} {kind.noun}s to {options.output}")
    return 0
