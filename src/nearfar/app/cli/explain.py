"""``nearfar explain``: why a row gets its label, by a saved model."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nearfar.app.cli.files import check_ending, check_place, refuse_shared_names, write_columns
from nearfar.app.cli.models import (
    add_model_and_data,
    class_names,
    ids_of,
    known_target,
    load_chain,
    notes_of,
    opened,
)

_ENDINGS = (".html", ".csv", ".tsv", ".parquet")


def add_explain(commands: Any) -> None:
    """Add the command."""
    explain = commands.add_parser(
        "explain",
        help="why does a row get its label: which features, which neighbours?",
        description="For one row the vote, the share of each feature in the metric (at this row, "
        "and over all rows where the metric changes from row to row), and the training rows that "
        "voted, each with what the features did to its distance. For plain distances, linear "
        "learners, and classifiers with a metric for each row.",
    )
    explain.set_defaults(run=_explain)
    data = add_model_and_data(explain, "where the row is")
    data.add_argument(
        "--row",
        required=True,
        metavar="ROW",
        help="its number from 0, or with --id COL its value in that column",
    )
    output = explain.add_argument_group("output")
    output.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="a page, .html, or a table of all features and voters, .csv, .tsv or .parquet "
        "(default: a few lines to the terminal)",
    )
    output.add_argument("--force", action="store_true", help="overwrite it if it exists")


def _explain(options: argparse.Namespace) -> int:
    from nearfar.app.compare.explaining import (
        SAME_PLACE,
        explain_chain,
        relevance_lines,
        told,
        voter_lines,
    )

    if options.out is not None:
        check_ending(options.out, _ENDINGS, "--out ")
        check_place(options.out, "--out", options.force)
        refuse_shared_names(options, ["out"], model=options.model)
    chain = load_chain(options.model)
    if not hasattr(chain[-1], "classes_") or "pairs" in chain.named_steps:
        raise ValueError(f"{options.model} predicts no classes; nearfar explain is for labels.")
    notes = notes_of(options.model)
    kind, table, X = opened(options, chain, options.data)
    row = _row_of(options, table, len(table.X), kind.noun)
    one = X.iloc[[row]] if hasattr(X, "iloc") else X[[row]]
    try:
        found = explain_chain(chain, one, notes.get("features"))
    except ValueError as error:
        raise ValueError(f"{options.model}: {error}") from error
    classes = _named_classes(chain[-1].classes_, notes)
    found = found.labelled(classes)
    called = f"{kind.noun} {row}" if table.ids is None else f"{kind.noun} {str(table.ids[row])!r}"
    sentence = found.sentence(0, called)
    ids = ids_of(notes, chain[-1]._n_training)
    shown = told(found, 0)
    names = [ids[i] if ids else f"row {i}" for i in found.neighbors[0].tolist()]
    label = _true_label(known_target(table, notes.get("target")), row, classes)
    if options.out is not None and options.out.suffix.lower() == ".html":
        _write_page(options, table, shown, sentence, names, notes, label)
        print(f"{sentence}.\nWrote {options.out}")
        return 0
    if options.out is not None:
        _write_table(options.out, found, ids)
        print(f"{sentence}.\nWrote {options.out}")
        return 0
    print(f"{sentence}.")
    if label is not None:
        print(f"The file says {label!r}.")
    if not any(shown["voters"][0]["parts"]):
        print(f"{SAME_PLACE[0].upper()}{SAME_PLACE[1:]}.")
    print("\nShare of the metric:")
    print("\n".join(relevance_lines(shown)))
    print("\nWho voted, nearest first, and what makes most of the squared distance:")
    print("\n".join(voter_lines(shown, names)))
    return 0


def _row_of(options: argparse.Namespace, table: Any, n_rows: int, noun: str) -> int:
    """The number of the row that is asked for."""
    from nearfar.words import count, did_you_mean

    if table.ids is not None:
        names = [str(one) for one in table.ids]
        found = [i for i, name in enumerate(names) if name == options.row]
        if not found:
            raise ValueError(
                f"--row {options.row}: no {noun} of {options.data} has this value in "
                f"'{table.id_name}'.{did_you_mean(options.row, names)}"
            )
        return found[0]
    try:
        row = int(options.row)
    except ValueError:
        raise ValueError(
            f"--row {options.row} is no number; say with --id COL which column names the {noun}s."
        ) from None
    if not 0 <= row < n_rows:
        raise ValueError(
            f"--row {row}: {options.data} has {count(n_rows, noun)}, numbered from 0 to "
            f"{n_rows - 1}."
        )
    return row


def _named_classes(classes: Any, notes: dict[str, Any]) -> dict[Any, str]:
    return dict(zip(classes.tolist(), class_names(classes, notes), strict=True))


def _true_label(true: Any, row: int, classes: dict[Any, str]) -> str | None:
    """What the file says of the row, if it does, by the name of the class."""
    import numpy as np

    from nearfar.datasets.table import missing_among, tidy_labels

    if true is None or missing_among(true)[row]:
        return None
    label = str(tidy_labels(np.asarray(true)[[row]])[0])
    return {str(one): name for one, name in classes.items()}.get(label, label)


def _write_table(path: Path, found: Any, ids: list[str]) -> None:
    import numpy as np

    columns = {name: column.to_numpy() for name, column in found.to_frame().items()}
    del columns["row"]  # there is one
    if ids:
        columns["neighbor"] = np.array(ids)[columns["neighbor"]]
    write_columns(columns, path)


def _write_page(
    options: argparse.Namespace,
    table: Any,
    shown: dict[str, Any],
    sentence: str,
    names: list[str],
    notes: dict[str, Any],
    true: str | None,
) -> None:
    import shlex

    import nearfar
    from nearfar.app.report.explanation import write_explanation

    document = {
        "format": 1,
        "kind": "explanation",
        "name": table.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"nearfar": nearfar.__version__},
        "model": options.model.name,
        "method": notes.get("label") or notes.get("method") or "",
        "setting": notes.get("setting", ""),
        "fitted_to": notes.get("data", ""),
        "n_rows": notes.get("n_rows"),
        "target": notes.get("target"),
        "sentence": sentence,
        "true": true,
        "command": shlex.join(options.argv),
        "explained": shown | {"names": names},
    }
    write_explanation(document, options.out, force=options.force)
