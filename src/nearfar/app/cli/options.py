"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

DATA_HELP = (
    "CSV, TSV or Parquet table, folder of images, .npy or .npz file, or the name of a built-in "
    "dataset such as wine"
)
DATA_NOTES = """\
DATA can be:
  - a CSV, TSV or Parquet table. A column of lists is one vector per row.
  - a folder of Parquet files, which is read as one table.
  - a folder of images. The names of its subfolders are the labels.
  - a .npy file, or a .npz file with the keys X, y, groups, time,
    feature_names, target_names and image_shape. With the key offsets (the
    first row of each set), it is read as sets of vectors.
  - a built-in dataset: digits, wine, iris or breast_cancer.
"""


def add_target(command: Any) -> None:
    """Add the options for the target and the features."""
    labels = command.add_mutually_exclusive_group()
    labels.add_argument(
        "--target",
        metavar="COL",
        help="column with the labels (default: a column named target, label, class or y)",
    )
    labels.add_argument("--labels", metavar="FILE", help="file with one label per row")
    command.add_argument(
        "--task",
        choices=("classification", "regression"),
        metavar="TASK",
        help="classification (default), or regression for a numeric target; never guessed",
    )
    command.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COL",
        help="use this column even if it looks like an ID, a date or free text; may be repeated",
    )
    command.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="COL",
        help="leave out this column; may be repeated",
    )


def add_sets(command: Any) -> None:
    """Add the options that turn a long table into sets of vectors."""
    command.add_argument(
        "--set-id",
        metavar="COL",
        help="rows with the same value in this column form one set of vectors (an utterance, a "
        "clip); labels and groups then belong to sets",
    )
    command.add_argument(
        "--min-vectors",
        type=number(int, 1),
        default=2,
        metavar="N",
        help="minimum number of vectors per set; smaller sets are an error (default 2)",
    )


def add_rows(command: Any) -> None:
    """Add the options for vectors in one column and for row IDs."""
    command.add_argument(
        "--vector",
        metavar="COL",
        help="column (or key of a .npz file) with one vector per row, such as [0.1, 0.2]",
    )
    command.add_argument(
        "--id",
        dest="ids",
        metavar="COL",
        help="row-ID column: not used as a feature, written to outputs instead of row numbers",
    )


def add_time(command: Any, text: str) -> None:
    """Add ``--time-column``, whose old name is ``--time``."""
    add_hidden(command, "--time", "--time-column", dest="time", metavar="COL", help=text)


def add_hidden(command: Any, alias: str, *names: str, **options: Any) -> None:
    """Add an option with an alias that the help does not list."""
    command.add_argument(*names, alias, **options).hidden = alias


def add_images(command: Any) -> None:
    """Add the shape of rows that are images."""
    command.add_argument(
        "--images",
        type=shape,
        metavar="HxW[xC]",
        help="rows are images of this height, width and number of channels; images of a folder "
        "are resized to it, in gray, or in color with x3",
    )


def shape(text: str) -> tuple[int, ...]:
    """Return height, width and, if given, the number of channels.

    >>> shape("28x28"), shape("64×64×3")
    ((28, 28), (64, 64, 3))
    """
    found = re.fullmatch(r"(\d+)[x×,](\d+)(?:[x×,](\d+))?", text.strip().lower())
    sizes = tuple(int(size) for size in found.groups() if size) if found else ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(
            f"expected HxW or HxWxC, for example 28x28 or 28x28x3; got {text!r}"
        )
    return sizes


def add_pairs(command: Any) -> None:
    """Add the options for pairs of similar and dissimilar rows."""
    command.add_argument(
        "--pairs",
        metavar="FILE",
        help="learn from pairs of rows instead of labels: a table with two columns of row numbers "
        "(from 0) or, with --id, of IDs, and one column that says same or different (also 1/0, "
        "1/-1, true/false)",
    )
    command.add_argument(
        "--conflicts",
        choices=("raise", "drop", "keep"),
        default="raise",
        metavar="WHAT",
        help="pairs listed as both same and different: raise an error (default), drop them, or "
        "keep both",
    )


def read_data(options: argparse.Namespace, source: Any = None, **given: Any) -> Any:
    """Call :func:`nearfar.app.tables.reading.read_data` with the options of a command."""
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


def add_parameters(command: Any, example: str) -> None:
    """Add ``--set``, which sets parameters of the method."""
    command.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help=f"set a parameter of the method, such as {example}; may be repeated",
    )


def add_scale(command: Any, default: str, automatic: str = "auto (tuned, default)") -> None:
    """Add the scaling."""
    command.add_argument(
        "--scale",
        choices=("auto", "none", "standard", "unit"),
        default=default,
        metavar="HOW",
        help=f"scaling before the method: {automatic}, none, standard (zero mean, unit variance) "
        "or unit (rows of length 1)",
    )


def add_then(command: Any) -> None:
    """Add the step after a transformation of tensors."""
    command.add_argument(
        "--then",
        choices=("auto", "lda", "none"),
        default="auto",
        metavar="STEP",
        help="step after a tensor method such as gta or gtda: lda (with shrinkage 0.1), none, or "
        "auto (tuned, default)",
    )


def add_force(command: Any) -> None:
    """Add ``--force``."""
    command.add_argument(
        "-f", "--force", action="store_true", default=False, help="overwrite existing files"
    )


def add_quiet(command: Any, text: str = "print no progress and no messages") -> None:
    """Add ``--quiet``."""
    command.add_argument("-q", "--quiet", action="store_true", default=False, help=text)


def add_open(command: Any) -> None:
    """Add ``--open``."""
    command.add_argument(
        "--open", action="store_true", default=False, help="open the page in the browser at the end"
    )


def number(kind: type, low: float) -> Callable[[str], Any]:
    """Return a reader of numbers that are at least ``low``."""

    def parse(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"expected {what}; got {text!r}") from None
        if not low <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be at least {low:g}; got {text}")
        return value

    return parse
