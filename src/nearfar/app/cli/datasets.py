"""``nearfar datasets``: the built-in datasets."""

from __future__ import annotations

import argparse
import json
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from nearfar.app.cli.methods import line_width, table_lines

if TYPE_CHECKING:
    from nearfar.datasets.builtin import BuiltIn


def add_datasets(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "datasets",
        help="list the built-in datasets",
        description="List the built-in datasets, which every command accepts instead of a file. "
        "The name of one of them prints its origin and license.",
        examples=(
            ("datasets", "List them."),
            ("datasets clothes", "Show the origin and the license of one."),
            ("compare clothes", "Use one."),
        ),
    )
    command.set_defaults(run=_datasets)
    command.add_argument("name", nargs="?", metavar="NAME", help="show one dataset in detail")
    command.add_argument("--json", action="store_true", help="print the facts as JSON")


def _datasets(options: argparse.Namespace) -> int:
    from nearfar.datasets.builtin import BUILT_IN
    from nearfar.words import suggest_name

    name = options.name
    if name is not None and name not in BUILT_IN:
        raise ValueError(
            f"There is no built-in dataset {name!r}.{suggest_name(name, BUILT_IN)} "
            f"Built-in datasets: {', '.join(BUILT_IN)}."
        )
    if options.json:
        every = [_to_json(one) for one in BUILT_IN.values()]
        found: Any = every if name is None else _to_json(BUILT_IN[name])
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif name is not None:
        _print_dataset(BUILT_IN[name])
    else:
        _print_list(list(BUILT_IN.values()))
    return 0


def _print_list(datasets: list[BuiltIn]) -> None:
    numbers = [(f"{one.n_rows:,}", str(one.n_columns), str(one.n_classes)) for one in datasets]
    numbers.insert(0, ("rows", "columns", "classes"))
    widths = [max(map(len, column)) for column in zip(*numbers, strict=True)]
    texts = [("name", "what it is"), *((one.name, one.description) for one in datasets)]
    rows = [
        (first, *(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)), last)
        for (first, last), cells in zip(texts, numbers, strict=True)
    ]
    print("\n".join(table_lines(rows, indent="")))
    print("\nUse one:            nearfar compare wine")
    print("Origin and license: nearfar datasets wine")


def _print_dataset(one: BuiltIn) -> None:
    facts = {
        "Rows": f"{one.n_rows:,}",
        "Columns": str(one.n_columns),
        "Classes": str(one.n_classes),
        "Images": "one per row" if one.has_images else "none",
        "Task": one.task,
        "Origin": one.origin,
        "License": one.license,
        "Use": f"nearfar compare {one.name}",
        "Python": f'nearfar.datasets.read_table("{one.name}")',
    }
    print(f"{one.name}: {one.description}")
    for head, text in facts.items():
        first, *rest = textwrap.wrap(text, line_width() - 12, break_on_hyphens=False)
        print(f"  {head + ':':<10}{first}", *(f"{'':<12}{more}" for more in rest), sep="\n")


def _to_json(one: BuiltIn) -> dict[str, Any]:
    """Return the facts without the functions that load the data."""
    return {k: v for k, v in asdict(one).items() if k not in ("load", "sklearn_loader")}
