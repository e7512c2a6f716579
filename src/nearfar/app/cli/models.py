"""``nearfar fit``, ``transform`` and ``neighbors``: models in files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from nearfar.app.cli.files import (
    check_output,
    check_place,
    write_columns,
    write_coordinates,
    write_csv,
)
from nearfar.app.cli.options import (
    DATA_HELP,
    add_scale,
    add_sets,
    add_target,
    number,
    of_sets,
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
    neighbors.add_argument("-k", type=number(int, 1), default=5, metavar="N", help="how many (5)")
    neighbors.add_argument("-o", "--output", type=Path, metavar="FILE", help=".csv, .tsv, .parquet")
    neighbors.add_argument("--force", action="store_true", help="overwrite it if it exists")


def _fit(options: argparse.Namespace) -> int:
    from nearfar.app.compare.chain import find_method, fit_chain
    from nearfar.datasets.tables import DataFile, read_table
    from nearfar.extras import require
    from nearfar.persistence import save

    # Before the work, not after.
    check_place(options.save, "--save", options.force)
    find_method(options.method, options.scale)
    require("skops.io", "app")
    data = DataFile(options.data)
    if data.holds_sets:
        raise ValueError(
            f"{options.data} holds sets of vectors, and fit learns from rows. nearfar embed --save "
            "keeps an embedding of sets; nearfar.SetKNeighborsClassifier classifies them."
        )
    table = read_table(
        data,
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


def _new_rows(options: argparse.Namespace, chain: Any, source: str) -> Any:
    """Rows, or sets where the model takes sets: by the features it was fitted on."""
    from nearfar.app.compare.chain import takes_sets
    from nearfar.persistence import describe

    sets = of_sets(options, source)
    if takes_sets(chain) and not sets:
        raise ValueError(
            f"{options.model} maps sets of vectors, and {source} holds rows: say with --set-id COL "
            "which of them are one set."
        )
    if sets and not takes_sets(chain):
        raise ValueError(f"{options.model} maps rows of a table, and {source} holds sets.")
    given: dict[str, Any] = {"need_target": False}
    if sets and options.set_id is not None:
        given["features"] = describe(options.model)["metadata"].get("features")
    return read_data(options, source, **given)


def _transform(options: argparse.Namespace) -> int:
    from nearfar.app.compare.chain import map_rows

    check_output(options, (".parquet", ".csv", ".tsv", ".npy"))
    chain = _load_chain(options.model)
    table = _new_rows(options, chain, options.input)
    points = map_rows(chain, table, str(options.input))
    columns = {f"component_{i}": part for i, part in enumerate(points.T)}
    write_coordinates(columns, options.output, getattr(table.X, "names", None))
    print(f"Wrote {points.shape[0]:,} rows of {points.shape[1]} to {options.output}")
    return 0


def _neighbors(options: argparse.Namespace) -> int:
    import numpy as np

    from nearfar.app.compare.chain import map_rows
    from nearfar.app.tables.inputs import noun_of
    from nearfar.search.exact_search import kneighbors

    if options.output is not None:
        check_output(options, (".csv", ".tsv", ".parquet"))
    chain = _load_chain(options.model)
    known = _new_rows(options, chain, options.index)
    noun = noun_of(known.X)
    index = map_rows(chain, known, str(options.index))
    queries = map_rows(chain, _new_rows(options, chain, options.query), str(options.query))
    if not 1 <= options.k <= len(index):
        raise ValueError(
            f"-k {options.k}: it must be from 1 to the {len(index)} {noun}s of the index."
        )
    distances, rows = kneighbors(index, queries, n_neighbors=options.k)
    columns = {
        "query": np.repeat(np.arange(len(queries)), options.k),
        "rank": np.tile(np.arange(1, options.k + 1), len(queries)),
        "row": rows.ravel(),
        "distance": distances.ravel(),
    }
    if options.output is None or options.output.suffix.lower() != ".parquet":
        columns["distance"] = np.array([f"{distance:.6g}" for distance in distances.ravel()])
    if options.output is None:
        write_csv(sys.stdout, columns, ",")
        return 0
    write_columns(columns, options.output)
    print(f"Wrote the neighbours of {len(queries):,} {noun}s to {options.output}")
    return 0
