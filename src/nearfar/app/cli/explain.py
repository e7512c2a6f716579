"""``nearfar explain``: why a saved model gives a row its label."""

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
from nearfar.app.cli.options import add_force, add_quiet
from nearfar.app.cli.output import print_outcome

_ENDINGS = (".html", ".csv", ".tsv", ".parquet")


def add_explain(commands: Any) -> None:
    """Add the command."""
    explain = commands.add_parser(
        "explain",
        help="show which features and neighbors give a row its label",
        description="Explain the label of one row: the votes, the weight of each feature in the "
        "distance, and the training rows that voted. Works for standard distances, linear "
        "methods, and classifiers with a metric per row.",
        common=("--row", "--id", "--out", "--force", "--quiet"),
        examples=(
            ("explain model.nf new.csv --row 17", "Explain the label of row 17 (counted from 0)."),
            ("explain model.nf new.csv --id name --row Anna", "Name the row by its ID."),
            (
                "explain model.nf new.csv --row 17 --out why.html",
                "Write it as a page.",
            ),
        ),
        guide="model-files.rst",
    )
    explain.set_defaults(run=_explain)
    data = add_model_and_data(explain, "file that contains the row")
    data.add_argument(
        "--row",
        required=True,
        metavar="ROW",
        help="row number (from 0) or, with --id COL, the value in that column",
    )
    output = explain.add_argument_group("output")
    output.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="page (.html) or table of all features and voters (.csv, .tsv, .parquet); default: "
        "a summary on the terminal",
    )
    add_quiet(output)
    add_force(output)


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
        raise ValueError(f"{options.model} does not predict labels: nothing to explain.")
    notes = notes_of(options.model)
    kind, table, X = opened(options, chain, options.data)
    row = _row_of(options, table, len(table.X), kind.noun)
    one = X.iloc[[row]] if hasattr(X, "iloc") else X[[row]]
    try:
        found = explain_chain(chain, one, notes.get("features"))
    except ValueError as error:
        raise ValueError(f"{options.model}: {error}") from error
    classes = _named_classes(chain[-1].classes_, notes)
    found = found.rename_labels(classes)
    called = f"{kind.noun} {row}" if table.ids is None else f"{kind.noun} {str(table.ids[row])!r}"
    sentence = found.sentence(0, called)
    ids = ids_of(notes, chain[-1]._n_training)
    shown = told(found, 0)
    names = [ids[i] if ids else f"row {i}" for i in found.neighbors[0].tolist()]
    label = _true_label(known_target(table, notes.get("target")), row, classes)
    if options.out is not None and options.out.suffix.lower() == ".html":
        _write_page(options, table, shown, sentence, names, notes, label)
        print(f"{sentence}.")
        print_outcome(options, f"Wrote {options.out}")
        return 0
    if options.out is not None:
        _write_table(options.out, found, ids)
        print(f"{sentence}.")
        print_outcome(options, f"Wrote {options.out}")
        return 0
    print(f"{sentence}.")
    if label is not None:
        print(f"The label in the file is {label!r}.")
    if not any(shown["voters"][0]["parts"]):
        print(f"{SAME_PLACE[0].upper()}{SAME_PLACE[1:]}.")
    print("\nWeight of each feature in the distance:")
    print("\n".join(relevance_lines(shown)))
    print("\nTraining rows that voted, nearest first, with the main parts of the squared distance:")
    print("\n".join(voter_lines(shown, names)))
    return 0


def _row_of(options: argparse.Namespace, table: Any, n_rows: int, noun: str) -> int:
    """Return the number of the requested row."""
    from nearfar.words import format_count, suggest_name

    if table.ids is not None:
        names = [str(one) for one in table.ids]
        found = [i for i, name in enumerate(names) if name == options.row]
        if not found:
            raise ValueError(
                f"--row {options.row}: {options.data} has no {noun} with this value in "
                f"'{table.id_name}'.{suggest_name(options.row, names)}"
            )
        return found[0]
    try:
        row = int(options.row)
    except ValueError:
        raise ValueError(
            f"--row {options.row} is not a number. Name the column with the IDs of the {noun}s "
            "with --id COL."
        ) from None
    if not 0 <= row < n_rows:
        raise ValueError(
            f"--row {row}: {options.data} has {format_count(n_rows, noun)}, numbered from 0 to "
            f"{n_rows - 1}."
        )
    return row


def _named_classes(classes: Any, notes: dict[str, Any]) -> dict[Any, str]:
    return dict(zip(classes.tolist(), class_names(classes, notes), strict=True))


def _true_label(true: Any, row: int, classes: dict[Any, str]) -> str | None:
    """Return the label of the row in the file, or None, by the name of its class."""
    import numpy as np

    from nearfar.datasets.table import find_missing, tidy_labels

    if true is None or find_missing(true)[row]:
        return None
    label = str(tidy_labels(np.asarray(true)[[row]])[0])
    return {str(one): name for one, name in classes.items()}.get(label, label)


def _write_table(path: Path, found: Any, ids: list[str]) -> None:
    import numpy as np

    columns = {name: column.to_numpy() for name, column in found.to_frame().items()}
    del columns["row"]  # it is the same in all lines
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
