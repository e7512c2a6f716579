"""The argument parser of all commands: short and full help, and suggestions in errors."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from nearfar.words import suggest_name

#: Where the pages of the documentation are; there is no hosted site.
DOCS = "docs/guide/"
EXIT_CODES = "Exit codes: 0 success, 2 error in options or data, 130 interrupted."
#: Limits of the width of help texts, in characters.
_WIDEST, _NARROWEST = 100, 50
#: Commands by group, in the order of the overview; others are listed in the last group.
_GROUPS = {
    "Compare and look": ("compare", "embed"),
    "Fit and use a model": ("fit", "predict", "transform", "neighbors", "explain"),
    "Look up": ("show", "methods", "datasets"),
}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with a short ``--help`` and a full ``--help-all``.

    Options cannot be abbreviated. Errors suggest the nearest command or option.

    Parameters
    ----------
    common : sequence of str
        Options that ``--help`` shows, in this order; empty shows all options.
    examples : sequence of (str, str)
        Commands without the leading "nearfar", each with an explanation.
    guide : str
        File name of the documentation page.
    notes : str
        Text at the end of ``--help-all``, printed as it is.
    """

    def __init__(
        self,
        *args: Any,
        common: Sequence[str] = (),
        examples: Sequence[tuple[str, str]] = (),
        guide: str = "index.rst",
        notes: str = "",
        **options: Any,
    ) -> None:
        options |= {"allow_abbrev": False, "add_help": False, "formatter_class": _Formatter}
        super().__init__(*args, **options)
        self.common, self.examples, self.guide, self.notes = common, examples, guide, notes
        self.set_defaults(parser=self)
        self.general = self.add_argument_group("general")
        add = self.general.add_argument
        add(
            "-h",
            "--help",
            action="help",
            default=argparse.SUPPRESS,
            help="show the common options",
        )
        add(
            "--help-all",
            action=_HelpAll,
            nargs=0,
            default=argparse.SUPPRESS,
            help="show all options",
        )
        add(
            "--debug",
            action="store_true",
            default=False,
            help="show the traceback of an error, not only its message",
        )

    # Parsing

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all arguments. The parser of the command reports what is left over."""
        options, rest = self.parse_known_args(args, namespace)
        if rest:
            options.parser.error(f"unexpected argument: {' '.join(rest)}")
        return options

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse unknown commands and options first: argparse would report a consequence."""
        if args is not None:
            self._refuse_unknown(list(args))
        return super().parse_known_args(args, namespace)

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        known, commands = self._option_string_actions, self._commands()
        for word in words:
            if word == "--":
                return
            if not word.startswith("-") or word == "-" or " " in word:
                if not commands:
                    continue
                if word not in commands:
                    self.error(f"unknown command {word!r}.{_hint(word, commands)}")
                return  # the parser of the command reads the rest
            name = word.partition("=")[0] if word.startswith("--") else word[:2]
            if name not in known and not re.fullmatch(r"-\d*\.?\d+", word):
                shown = [one for action in known.values() for one in _visible_names(action)]
                hint = _hint(name, shown) if word.startswith("--") else ""
                self.error(f"unknown option {name}.{hint}")

    def error(self, message: str) -> NoReturn:
        """Print the usage, the message and where to find help, and exit with code 2."""
        for action in self._actions:
            message = message.replace(f"/{getattr(action, 'hidden', ' ')}", "")
        usage, more = self.format_usage(), f"Try: {self.prog} --help"
        self.exit(2, f"{usage}{self.prog}: error: {message}\n{more}\n")

    def _commands(self) -> dict[str, argparse.ArgumentParser]:
        """Return the parsers of the commands by name; none for the parser of a command."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}

    # Help

    def format_usage(self) -> str:
        """Return the usage in one line: positional arguments and required options."""
        words = ["COMMAND"] if self._commands() else []
        for action in self._actions:
            if not action.option_strings and not self._commands():
                words.append(f"[{action.metavar}]" if action.nargs == "?" else str(action.metavar))
            elif action.required and action.option_strings:
                words.append(f"{_long(action)} {action.metavar}")
        return f"usage: {' '.join([self.prog, *words, '[options]'])}\n"

    def format_help(self) -> str:
        """Return the common options, the examples and where to read more."""
        if self._commands():
            return self._format_overview()
        shown = [self._option_string_actions[name] for name in self.common]
        if not shown:
            last = self.general._group_actions
            own = [one for one in self._actions if one.option_strings and one not in last]
            shown = [*own, *last]
        positional = [action for action in self._actions if not action.option_strings]
        title = "common options" if self.common else "options"
        more = [f"All options: {self.prog} --help-all"] if self.common else []
        blocks = [
            _wrapped(self.description or ""),
            self.format_usage().rstrip(),
            self._format_options([("", positional), (title, shown)]),
            self._format_examples(),
            "\n".join([f"Guide: {DOCS}{self.guide}", *more]),
        ]
        return "\n\n".join(filter(None, blocks)) + "\n"

    def format_help_all(self) -> str:
        """Return all options in groups, with the notes."""
        if self._commands():
            return self._format_overview()
        groups = [group for group in self._action_groups if group is not self.general]
        sections = [
            ("" if group is self._positionals else str(group.title), group._group_actions)
            for group in [*groups, self.general]
        ]
        blocks = [
            _wrapped(self.description or ""),
            self.format_usage().rstrip(),
            self._format_options(sections),
            self.notes.strip("\n"),
            self._format_examples(),
            f"Guide: {DOCS}{self.guide}",
        ]
        return "\n\n".join(filter(None, blocks)) + "\n"

    def _format_overview(self) -> str:
        """Return the help of the program: its commands in groups, and examples."""
        texts = {
            one.dest: one.help or ""
            for action in self._actions
            for one in getattr(action, "_choices_actions", ())
        }
        width = max(map(len, texts))
        last = list(_GROUPS)[-1]
        placed = {name for names in _GROUPS.values() for name in names}
        blocks = [_wrapped(self.description or ""), self.format_usage().rstrip()]
        for title, names in _GROUPS.items():
            rest = [name for name in texts if name not in placed] if title == last else []
            lines = [
                f"  {name:<{width}}  {texts[name]}" for name in [*names, *rest] if name in texts
            ]
            blocks.append("\n".join([f"{title}:", *lines]))
        blocks += [
            self._format_examples(),
            "\n".join(
                [
                    "Help on a command: nearfar COMMAND --help",
                    f"Guide: {DOCS}{self.guide}",
                    EXIT_CODES,
                ]
            ),
        ]
        return "\n\n".join(filter(None, blocks)) + "\n"

    def _format_options(self, sections: Sequence[tuple[str, Sequence[argparse.Action]]]) -> str:
        formatter = self._get_formatter()
        for title, actions in sections:
            formatter.start_section(title or argparse.SUPPRESS)
            formatter.add_arguments(actions)
            formatter.end_section()
        return formatter.format_help().strip("\n")

    def _format_examples(self) -> str:
        lines = [f"  nearfar {command}\n      {text}" for command, text in self.examples]
        return "\n".join(["examples:", *lines]) if lines else ""


class _HelpAll(argparse.Action):
    """Print all options, and exit."""

    def __call__(self, parser: Any, *unused: Any) -> None:
        parser._print_message(parser.format_help_all(), sys.stdout)
        parser.exit()


class _Formatter(argparse.HelpFormatter):
    """Lines of options: all names first, and the value once."""

    def __init__(self, prog: str, **options: Any) -> None:
        options["max_help_position"] = 26
        options["width"] = _width()
        super().__init__(prog, **options)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        value = "" if action.nargs == 0 else f" {action.metavar or '|'.join(action.choices or ())}"
        return f"{', '.join(_visible_names(action))}{value}".strip()


def _width() -> int:
    return min(_WIDEST, max(_NARROWEST, shutil.get_terminal_size().columns)) - 2


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _width())


def _visible_names(action: argparse.Action) -> list[str]:
    """Return the names of an option without its hidden alias."""
    return [name for name in action.option_strings if name != getattr(action, "hidden", None)]


def _long(action: argparse.Action) -> str:
    """Return the first long name of an option, or its only name."""
    names = action.option_strings
    return next((name for name in names if name.startswith("--")), names[0])


def _hint(name: str, known: Any) -> str:
    """Return `` Did you mean ...?`` without quotes, so that it can be typed as it is shown."""
    return suggest_name(name, known).replace("'", "")
