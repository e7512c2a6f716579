"""The command line: ``nearfar compare``, ``embed``, ``fit``, ``predict``, ``transform``, ..."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from time import monotonic
from typing import Any

from nearfar.app.cli.compare import add_compare
from nearfar.app.cli.datasets import add_datasets
from nearfar.app.cli.embed import add_embed
from nearfar.app.cli.explain import add_explain
from nearfar.app.cli.methods import add_methods
from nearfar.app.cli.models import add_model_commands

_EPILOG = """\
examples:
  nearfar compare wine                      which distance for an embedded set?
  nearfar compare table.csv --target kind   ... for your own table
  nearfar embed table.csv --method mvu      what does it look like, unfolded?
  nearfar compare table.csv --unlabelled    which embedding, when there are no labels?
  nearfar compare frames.csv --set-id utterance --target vowel --groups speaker
  nearfar fit table.csv --target kind --method lmnn --save model.nf
  nearfar predict model.nf new.csv --out labels.csv
  nearfar neighbors model.nf new.csv -k 5
  nearfar explain model.nf new.csv --row 17 --out why.html
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 2 for what cannot be done, 130 when interrupted."""
    began = monotonic()
    if sys.stdout is not None and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a real minus sign is no reason to fail
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    options = parser.parse_args(arguments)
    options.began, options.argv = began, ["nearfar", *arguments]
    try:
        with _steady_output(), _orderly_end():
            return int(options.run(options) or 0)
    except KeyboardInterrupt:
        print("nearfar: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, ImportError, OSError) as error:
        print(f"nearfar: error: {_message(error)}", file=sys.stderr)
        return 2


@contextmanager
def _steady_output() -> Iterator[None]:
    """Go on, in silence, when the reader of our output has gone."""
    if sys.stdout is None:  # closed from the start
        yield
        return
    from nearfar.app.progress import Steady

    steady: Any = Steady(sys.stdout)
    with redirect_stdout(steady):
        try:
            yield
        finally:
            steady.flush()


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Take a request to end, as batch systems send it, like Ctrl-C: write what there is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    import nearfar

    parser = argparse.ArgumentParser(
        prog="nearfar",
        description="Learn distances, and find out whether they are worth it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"nearfar {nearfar.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_compare(commands)
    add_embed(commands)
    add_model_commands(commands)
    add_explain(commands)
    add_methods(commands)
    add_datasets(commands)
    return parser
