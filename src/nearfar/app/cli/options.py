"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

DATA_HELP = (
    "a CSV, TSV or Parquet table (also with a column of lists, a vector in each row), a folder of "
    "Parquet files, a folder of pictures whose sub-folders are the labels, a .npy or .npz file "
    "(keys X, y, groups, time, feature_names, target_names, image_shape; with the key offsets, "
    "where each begins, sets of vectors), or one of digits, wine, iris, breast_cancer"
)


def add_target(command: Any) -> None:
    """Add what says which columns are labels and features."""
    labels = command.add_mutually_exclusive_group()
    labels.add_argument("--target", metavar="COL", help="the column with the labels")
    labels.add_argument("--labels", metavar="FILE", help="a file with one label a row")
    command.add_argument(
        "--task",
        choices=("classification", "regression"),
        help="what the target is: classes (classification, the default), or a number to predict "
        "(regression); it is never guessed",
    )
    command.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COL",
        help="use this column although it looks useless, like an id; may be given again",
    )
    command.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="COL",
        help="leave this column out; may be given again",
    )


def add_sets(command: Any) -> None:
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


def add_rows(command: Any) -> None:
    """Add what says where the vectors and the names of rows are."""
    command.add_argument(
        "--vector",
        metavar="COL",
        help="the column (or key of an .npz) with a vector in each row: lists, or [0.1, 0.2]",
    )
    command.add_argument(
        "--id",
        dest="ids",
        metavar="COL",
        help="the column that names each row; no feature, and written instead of row numbers",
    )


def add_images(command: Any) -> None:
    """Add the shape of rows that are images."""
    command.add_argument(
        "--images",
        type=shape,
        metavar="HxW[xC]",
        help="rows are images of this height and width (and so many channels); pictures of a "
        "folder are resized to it, in grey, or with x3 in colours",
    )


def shape(text: str) -> tuple[int, ...]:
    """Height, width and maybe channels.

    >>> shape("28x28"), shape("64×64×3")
    ((28, 28), (64, 64, 3))
    """
    found = re.fullmatch(r"(\d+)[x×,](\d+)(?:[x×,](\d+))?", text.strip().lower())
    sizes = tuple(int(size) for size in found.groups() if size) if found else ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no height and width, such as 28x28, nor with channels, such as 28x28x3"
        )
    return sizes


def add_pairs(command: Any) -> None:
    """Add what says which pairs of rows are alike."""
    command.add_argument(
        "--pairs",
        metavar="FILE",
        help="pairs of rows judged alike or different, instead of labels: a CSV, TSV or Parquet "
        "table with two columns of row numbers from 0, or with --id of values of that column, and "
        "one that says same or different (1/0, 1/-1, true/false, same/different)",
    )
    command.add_argument(
        "--conflicts",
        choices=("raise", "drop", "keep"),
        default="raise",
        help="what becomes of a pair that is said to be both: an error (raise, the default), left "
        "out (drop), or both kept",
    )


def read_data(options: argparse.Namespace, source: Any = None, **given: Any) -> Any:
    """:func:`nearfar.app.tables.reading.read_data` by the options of a command."""
    from nearfar.app.tables import reading

    return reading.read_data(
        options.data if source is None else source,
        set_id=options.set_id,
        min_vectors=options.min_vectors,
        keep=getattr(options, "keep", ()),
        drop=getattr(options, "drop", ()),
        vector=options.vector,
        ids=options.ids,
        **{"images": options.images} | given,
    )


def add_parameters(command: Any, such: str) -> None:
    """Add parameters of a method."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help=f"a parameter of the method, such as {such}; may be given again",
    )


def add_scale(command: Any, default: str, automatic: str = "auto tunes it (default)") -> None:
    """Add the scaling."""
    command.add_argument(
        "--scale",
        choices=("auto", "none", "standard", "unit"),
        default=default,
        help=f"scaling before the learners; {automatic}",
    )


def add_then(command: Any) -> None:
    """Add what follows maps of tensors."""
    command.add_argument(
        "--then",
        choices=("auto", "lda", "none"),
        default="auto",
        help="what follows a map of tensors (gta, gtda, ...): an LDA, shrunk by 0.1, or nothing; "
        "auto tunes it (default)",
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
