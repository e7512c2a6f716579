"""The command line: ``nearfar compare``, ``embed``, ``fit``, ``predict``, ``transform``, ..."""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from time import monotonic
from typing import Any

from nearfar.app.cli.compare import add_compare
from nearfar.app.cli.datasets import add_datasets
from nearfar.app.cli.embed import add_embed
from nearfar.app.cli.explain import add_explain
from nearfar.app.cli.methods import add_methods
from nearfar.app.cli.models import add_model_commands
from nearfar.app.cli.parser import Parser

_EXAMPLES = (
    ("compare clothes", "Does a learned distance beat the best standard one on this dataset?"),
    (
        "fit table.csv --target kind --method lmnn --save model.nf",
        "Fit one method to your own table, and save it.",
    ),
    ("predict model.nf new.csv --out labels.csv", "Predict the labels of new rows."),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    It is 0 for success, 2 for an error in options or data, and 130 after an interrupt.
    ``compare --exit-code`` has further ones.
    """
    began = monotonic()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            # A terminal that lacks a character, such as a minus sign, shows a question mark.
            stream.reconfigure(errors="replace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    if arguments[:1] in ([], ["help"]):  # "help compare" is "compare --help"
        arguments = [*(word for word in arguments if word != "help"), "--help"]
    options = parser.parse_args(arguments)
    options.began, options.argv = began, ["nearfar", *arguments]
    try:
        with _steady_output(), _orderly_end():
            return int(options.run(options) or 0)
    except KeyboardInterrupt:
        print("nearfar: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, ImportError, OSError) as error:
        if options.debug:
            traceback.print_exc()
        else:
            print(f"{options.parser.prog}: error: {_message(error)}", file=sys.stderr)
        return 2


@contextmanager
def _steady_output() -> Iterator[None]:
    """Continue without output when the reader of a stream, such as a pipe, has gone."""
    from nearfar.app.progress import Steady

    with ExitStack() as stack:
        for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
            if stream is not None:  # a program without a console has none
                steady: Any = Steady(stream)
                stack.callback(steady.flush)
                stack.enter_context(redirect(steady))
        yield


@contextmanager
def _orderly_end() -> Iterator[None]:
    """Handle SIGTERM, which batch systems send, like Ctrl-C: write the results so far."""
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


def _parser() -> Parser:
    import nearfar

    parser = Parser(
        prog="nearfar",
        description="Learn distances from data, and test whether they beat the standard ones.",
        examples=_EXAMPLES,
    )
    parser.general.add_argument(
        "--version", action="version", version=f"nearfar {nearfar.__version__}"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_compare(commands)
    add_embed(commands)
    add_model_commands(commands)
    add_explain(commands)
    add_methods(commands)
    add_datasets(commands)
    return parser
