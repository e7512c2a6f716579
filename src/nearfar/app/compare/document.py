"""The document of a comparison: everything it knows, as plain data that JSON can hold."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.app.compare.answer import Answer
from nearfar.app.compare.kinds.kind import Kind
from nearfar.app.compare.schedule import Schedule
from nearfar.app.tables.columns import Columns
from nearfar.app.tables.images import has_images, images_of_rows
from nearfar.app.tables.traps import Trap
from nearfar.datasets.table import Table

FORMAT = 1
#: Columns whose values are kept for the rows that the report shows.
_SHOWN_COLUMNS = 50
_IMAGE_BYTES = 1_500_000
#: How Python and pandas write what is missing.
_MISSING = {"nan", "None", "NaT", "<NA>"}
#: Weights of features, in all folds of all learners together.
_WEIGHTS = 200_000


def make_document(
    kind: Kind,
    schedule: Schedule,
    found: Answer,
    *,
    data: dict[str, Any],
    warned: Sequence[Trap],
    seconds: float,
    argv: Sequence[str] | None,
) -> dict[str, Any]:
    """The document: when and where, of which data, by which folds, and what came of it."""
    plan, scheme, own = schedule.plan, schedule.scheme, kind.protocol(schedule)
    assert plan is not None
    document = {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None if argv is None else shlex.join(argv),
        "seconds": seconds,
        "status": schedule.status,
        "versions": versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "data": data,
        "warnings": [{"kind": trap.kind, "text": trap.text} for trap in warned],
        "folds": [
            {
                "repeat": fold.repeat,
                "fold": fold.fold,
                "n_train": len(fold.train),
                "n_test": len(fold.test),
                "test": fold.test.tolist(),
            }
            for fold in scheme.folds
        ],
        "protocol": {
            "scheme": scheme.words,
            "n_splits": scheme.n_splits,
            "repeats": plan.repeats,
            "seed": kind.question.random_state,
            "min_gain": found.min_gain,
            "confidence": found.confidence,
            "tuning": plan.tuning,
            "time_budget": schedule.budget,
            "plan": list(plan.lines),
            "planned": plan.kept() | {"seed": kind.question.random_state},
            "n_rows_used": None if scheme.rows is None else len(scheme.rows),
            "notes": [*scheme.notes, own.pop("again")],
            **own,
        },
        "common_folds": found.common,
        "methods": found.table(),
        "nested": found.nested(),
        "all_rows": found.confirmed,
        "answer": found.answer(warned),
        "best": found.best,
        "code": kind.code(found, schedule),
        **found.pictures(),
    }
    return document | kind.show(document, found)


def describe(
    table: Table, test: Table | None, columns: Columns, names: list[str], codes: NDArray[np.intp]
) -> dict[str, Any]:
    """What is known of the data."""
    return {
        "name": table.name,
        "n_rows": len(codes),
        "n_features": len(columns.names),
        "features": list(columns.names),
        "target": table.target,
        "classes": names,
        "class_counts": np.bincount(codes, minlength=len(names)).tolist(),
        "dropped": [[str(column), reason] for column, reason in columns.dropped],
        "groups": None
        if table.groups is None
        else {"name": table.groups_name, "n": len(np.unique(table.groups))},
        "time": table.time_name,
        "test": None if test is None else {"name": test.name, "n_rows": len(test.X)},
        "image_shape": _sizes(table.image_shape),
        "tensor_shape": _sizes(table.tensor_shape),
        "messages": [*table.messages, *columns.notes],
    }


def _sizes(shape: tuple[int, ...] | None) -> list[int] | None:
    return None if shape is None else [int(size) for size in shape]


def kept_weights(
    weights: dict[str, list[list[float]]], features: list[str], most: int = _WEIGHTS
) -> dict[str, Any]:
    """Shares of features with four digits; of the first folds only, where they are too many.

    >>> kept_weights({"lda": [[0.123456, 0.876544]] * 5}, ["a", "b"], most=6)["lda"]["folds"]
    [[0.1235, 0.8765], [0.1235, 0.8765], [0.1235, 0.8765]]
    """
    # Two folds at least: one says nothing of how stable they are.
    n_folds = max(2, most // max(1, len(features) * len(weights)))
    return {
        name: {
            "features": features,
            "folds": [[float(f"{share:.4g}") for share in fold] for fold in folds[:n_folds]],
        }
        for name, folds in weights.items()
    }


def versions() -> dict[str, str]:
    """Of what the numbers depend on."""
    import nearfar

    names = ("numpy", "scipy", "scikit-learn")
    found = {"nearfar": nearfar.__version__, "python": platform.python_version()}
    return found | {name: version(name) for name in names}


def contents(chosen: Sequence[int], rows: Any, columns: Columns, table: Table) -> dict[str, Any]:
    """Values, or pictures, of the rows that the report shows."""
    if has_images(table):
        # The images of a test file are not read.
        drawn = [row for row in chosen if table.images is None or row < len(table.images)]
        found = images_of_rows(table, rows, drawn, _IMAGE_BYTES)
        images = {str(row): image for row, image in zip(drawn, found, strict=False)}
        named = [] if table.ids is None else table.ids.tolist()  # not those of a test file
        names = {str(row): _text(named[row]) for row in chosen if row < len(named)}
        return {"rows": {"columns": [], "values": {}, "names": names}, "images": images}
    heads = [str(name) for name in columns.names[:_SHOWN_COLUMNS]]
    if hasattr(rows, "iloc"):
        cells = rows[list(columns.names[:_SHOWN_COLUMNS])].iloc[chosen].to_numpy(object)
    else:
        cells = rows[chosen][:, list(columns.numeric[:_SHOWN_COLUMNS])]
    values = {
        str(row): [_text(value) for value in line]
        for row, line in zip(chosen, cells.tolist(), strict=True)
    }
    if table.ids is not None:  # those of a test file are not read
        heads = [str(table.id_name), *heads]
        ids = {str(row): _text(table.ids[row]) for row in chosen if row < len(table.ids)}
        values = {row: [ids.get(row, ""), *cells] for row, cells in values.items()}
    return {"rows": {"columns": heads, "values": values}, "images": None}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value[:60]
    text = f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)[:60]
    return "missing" if text in _MISSING else text
