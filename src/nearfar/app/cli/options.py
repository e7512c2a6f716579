"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA_HELP = (
    "a CSV, TSV or Parquet table, a .npy or .npz file (keys X, y, groups, time, feature_names, "
    "target_names, image_shape; with the key offsets, where each begins, sets of vectors), or one "
    "of digits, wine, iris, breast_cancer"
)


def add_target(command: argparse.ArgumentParser) -> None:
    """Add what says which columns are labels and features."""
    labels = command.add_mutually_exclusive_group()
    labels.add_argument("--target", metavar="COL", help="the column with the labels")
    labels.add_argument("--labels", metavar="FILE", help="a file with the labels")
    command.add_argument("--keep", action="append", default=[], metavar="COL", help="use it anyway")
    command.add_argument("--drop", action="append", default=[], metavar="COL", help="leave it out")


def add_sets(command: argparse.ArgumentParser) -> None:
    """Add what makes sets of vectors of a long table."""
    command.add_argument(
        "--set-id",
        metavar="COL",
        help="rows with equal values in this column are one set of vectors (an utterance, a "
        "clip, a patient's cells); labels and groups are then those of sets",
    )
    command.add_argument(
        "--min-vectors",
        type=number(int, 1),
        default=2,
        metavar="N",
        help="refuse sets of fewer vectors (2)",
    )


def of_sets(options: argparse.Namespace, source: str | Path) -> bool:
    """Whether the data are sets of vectors: the user says so, or the file does."""
    from nearfar.datasets.set_tables import holds_sets

    return options.set_id is not None or holds_sets(source)


def read_data(options: argparse.Namespace, source: str | Path | None = None, **given: Any) -> Any:
    """The table of a file, each of whose rows is a set where the data are sets.

    Parameters
    ----------
    options : Namespace
        Of the command.
    source : path, optional
        The file; by default the data of the command.
    given
        For :func:`nearfar.datasets.read_table`.
    """
    from nearfar.datasets.set_tables import read_sets, refuse_unfolded
    from nearfar.datasets.tables import read_table

    source = options.data if source is None else source
    if of_sets(options, source):
        given = {key: value for key, value in given.items() if key not in ("time", "guess_target")}
        return read_sets(
            source,
            by=options.set_id,
            drop=tuple(getattr(options, "drop", ())),
            min_vectors=options.min_vectors,
            **given,
        )
    table = read_table(source, **given)
    refuse_unfolded(table, [*getattr(options, "keep", ()), *getattr(options, "drop", ())])
    return table


def refuse_for_sets(options: argparse.Namespace, *names: str) -> None:
    """Refuse options that say nothing about sets."""
    for name in names:
        if getattr(options, name.replace("-", "_")) not in (None, False, []):
            raise ValueError(f"--{name} is for rows of a table, and the data are sets of vectors.")


def add_scale(
    command: argparse.ArgumentParser, default: str, automatic: str = "auto tunes it (default)"
) -> None:
    """Add the scaling."""
    command.add_argument(
        "--scale",
        choices=("auto", "none", "standard", "unit"),
        default=default,
        help=f"scaling before the learners; {automatic}",
    )


def number(kind: type, low: float) -> Callable[[str], Any]:
    """A reader of numbers from ``low`` on."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} must be at least {low:g}")
        return value

    return parse
