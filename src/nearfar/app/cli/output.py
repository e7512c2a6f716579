"""Printing: results to standard output, messages about the run to standard error."""

from __future__ import annotations

import argparse
import os
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Any


def print_message(options: argparse.Namespace, line: str) -> None:
    """Print a line about the data or the run to standard error, unless ``--quiet`` is given."""
    if not options.quiet:
        _print_error(line)


def print_warning(line: str) -> None:
    """Print a warning to standard error, also with ``--quiet``."""
    _print_error(f"Warning: {line}")


def print_outcome(options: argparse.Namespace, line: str) -> None:
    """Print a line about the outcome, such as the path of a file, unless ``--quiet`` is given.

    It goes to standard output, or to standard error if ``--json -`` writes JSON there.
    """
    if options.quiet:
        return
    if writes_json(options):
        _print_error(line)
    else:
        print(line)


def writes_json(options: argparse.Namespace) -> bool:
    """Return whether standard output is for the JSON document alone (``--json -``)."""
    return str(getattr(options, "json", None)) == "-"


def open_page(path: Path) -> None:
    """Open a page in the browser, if there is a display. A failure is ignored."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if sys.platform not in ("darwin", "win32") and not display:
        return
    with suppress(Exception):
        webbrowser.open(path.absolute().as_uri())


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal. A program without a console has no streams."""
    return stream is not None and bool(stream.isatty())


def _print_error(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)
