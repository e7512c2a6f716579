"""``nearfar methods``: which methods there are, and what one of them needs."""

from __future__ import annotations

import argparse
import inspect
import json
import textwrap
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from nearfar.words import format_count

if TYPE_CHECKING:
    from nearfar.app.cli.method_list import MethodInfo

#: Maximum width of a line, in characters.
WIDTH = 100
_FOR = ("labels", "pairs", "groups", "number", "nothing", "sets", "images")


def add_methods(commands: Any) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "methods",
        help="list the methods, or explain one of them",
        description="List the methods that nearfar compare, fit and embed accept. The name of one "
        "method prints what it needs, its parameters and how to use it.",
        examples=(
            ("methods lmnn", "Explain one method: what it needs, and how to use it."),
            ("methods --for pairs", "List the methods that learn from pairs."),
            ("methods embedding", "Search names and summaries for a word."),
        ),
    )
    command.set_defaults(run=_methods)
    command.add_argument(
        "query",
        nargs="?",
        metavar="QUERY",
        help="name of a method or family, or text to search for in names and summaries",
    )
    command.add_argument(
        "--for",
        dest="situation",
        choices=_FOR,
        help="list the methods for these data: class labels, similar and dissimilar pairs, groups "
        "of similar rows, a number to predict, nothing (no labels), sets of vectors, or images",
    )
    command.add_argument("--all", action="store_true", help="list all methods, by family")
    command.add_argument("--json", action="store_true", help="print the list as JSON")


def _methods(options: argparse.Namespace) -> int:
    from nearfar.app.cli.method_list import find_methods

    query, situation = options.query, options.situation
    found = find_methods(query, situation)
    if options.json:
        print(json.dumps([one.to_json() for one in found], indent=2, ensure_ascii=False))
    elif query is not None and all(one.is_named(query) for one in found):
        print("\n\n".join(_card(one) for one in found))
    elif options.all or (query is not None and situation is None):
        _print_families(found)
    elif situation is not None:
        _print_situation(found, situation)
    else:
        _print_overview(found)
    return 0


def table_lines(rows: Sequence[tuple[str, ...]], indent: str = "  ") -> list[str]:
    """Return rows of text as aligned lines. The last column is cut to fit the terminal.

    >>> table_lines([("lda", "labels", "Linear discriminant analysis"), ("pca", "nothing", "PCA")])
    ['  lda  labels   Linear discriminant analysis', '  pca  nothing  PCA']
    """
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    lines = []
    for *cells, last in rows:
        start = indent + "".join(f"{cell:<{w}}  " for cell, w in zip(cells, widths, strict=True))
        lines.append(_cut(start + last))
    return lines


def line_width() -> int:
    """Return the width of the terminal, up to the maximum."""
    return min(get_terminal_size((WIDTH, 24)).columns, WIDTH)


def _cut(line: str) -> str:
    width = max(line_width(), 40)
    return line if len(line) <= width else f"{line[: width - 1].rstrip(' :,')}…"


def _print_overview(methods: list[MethodInfo]) -> None:
    """Print the default methods for each situation, the families, and how to see more."""
    from nearfar.app.cli.method_list import FAMILIES, SITUATIONS, default_methods

    print("Methods that `nearfar compare` tries by default:")
    defaults = {one: keys for one, keys in default_methods().items() if one != "groups"}
    width = max(len(SITUATIONS[one][0]) for one in defaults)
    for one, keys in defaults.items():
        names = _shorten(keys, line_width() - width - 4)
        print(_cut(f"  {SITUATIONS[one][0]:<{width}}  {names}"))
    print(f"\nAll {len(methods)} methods, by family:")
    sizes: dict[str, int] = {}
    for method in methods:
        sizes[method.family] = sizes.get(method.family, 0) + 1
    families = [(name, f"{n:>3}", FAMILIES.get(name, "")) for name, n in sizes.items()]
    print("\n".join(table_lines(families)))
    print("\nMore:")
    more = [
        ("nearfar methods lmnn", "one method: what it needs, how to use it"),
        ("nearfar methods discriminant", "methods of one family"),
        ("nearfar methods --for pairs", f"or {', '.join(n for n in _FOR if n != 'pairs')}"),
        ("nearfar methods --all", "all methods"),
    ]
    print("\n".join(table_lines(more)))


def _shorten(names: list[str], width: int) -> str:
    """Return as many names as fit into a line, and the number of the others.

    >>> _shorten(["lda", "rca", "lmnn"], 30), _shorten(["lda", "rca", "lmnn", "gtda"], 16)
    ('lda, rca, lmnn', 'lda and 3 more')
    """
    text = ", ".join(names)
    kept = len(names)
    while len(text) > width and kept > 1:
        kept -= 1
        text = f"{', '.join(names[:kept])} and {len(names) - kept} more"
    return text


def _print_families(methods: list[MethodInfo]) -> None:
    """Print one table per family, with what the methods need."""
    for family in dict.fromkeys(one.family for one in methods):
        rows = [("method", "needs", "what it is")]
        rows += [
            (one.key, "/".join(one.supervision) or "nothing", one.summary.rstrip("."))
            for one in methods
            if one.family == family
        ]
        print(family, *table_lines(rows), "", sep="\n")
    print(
        f"{format_count(len(methods), 'method')}. Details of one: nearfar methods {methods[0].key}"
    )


def _print_situation(methods: list[MethodInfo], situation: str) -> None:
    """Print the methods for one kind of data by what they compute, the default ones first."""
    from nearfar.app.cli.method_list import SITUATIONS

    words, option = SITUATIONS[situation]
    print(f"Methods for {words}")
    print(f"* = tried by default: nearfar compare DATA {option}")
    distances = [one for one in methods if one.output == "distance"]
    others = [one for one in methods if one.output != "distance"]
    order = sorted(others, key=lambda one: (situation not in one.default_for, one.key)) + distances
    lines = table_lines(
        [
            (f"{'*' if situation in one.default_for else ' '} {one.key}", one.summary.rstrip("."))
            for one in order
        ],
        indent="",
    )
    for result, heading in _HEADINGS.items():
        section = [line for one, line in zip(order, lines, strict=True) if one.result == result]
        if section:
            print(f"\n{heading}", *section, sep="\n")
    print()
    for note in _NOTES[situation]:
        print(textwrap.fill(note, line_width(), break_long_words=False, break_on_hyphens=False))


#: What methods compute, and the headings of the methods that compute it.
_HEADINGS = {
    "linear map": "Linear maps",
    "nonlinear map": "Nonlinear maps",
    "kernel": "Kernels",
    "classifier": "Classifiers",
    "regressor": "Regressors",
    "distance": "Standard distances (not learned)",
}
_UNSUPERVISED = "Methods that need no labels work too. See: nearfar methods --for nothing"
#: What a list of methods does not say by itself.
_NOTES = {
    "labels": [_UNSUPERVISED],
    "number": [_UNSUPERVISED],
    "pairs": [
        _UNSUPERVISED,
        "rca is tried by default only if the similar pairs form groups that no dissimilar pair "
        "contradicts.",
        "pair-classifier is the last step of every model that nearfar fit --pairs saves. It is not "
        "a value for --methods.",
    ],
    "groups": [
        "nearfar compare joins similar pairs (--pairs FILE) into groups. In Python, pass "
        "supervision=nearfar.Chunklets(groups) to fit, with one group number per row and -1 for "
        "rows without a group."
    ],
    "nothing": [
        "The default depends on the number of rows. The expensive methods are tried only on small "
        "data."
    ],
    "sets": [
        "emd and dtw need an extra package. The name distributions stands for all methods of its "
        "family that need no extra package: --methods distributions"
    ],
    "images": [
        "The data are a folder of pictures, an array of shape (n, height, width), or rows of "
        "pixels with --images HxW. Pixels are also features, so methods for rows work too. "
        "See: nearfar methods --for labels"
    ],
}


def _default_words(one: MethodInfo) -> str:
    """Return whether ``nearfar compare`` tries a method by default, in words."""
    if one.default_for:
        return f"yes: nearfar compare tries it for {', '.join(one.default_for)}"
    if one.input == "pairs":
        return "no: nearfar fit --pairs adds it to the method that you name"
    return "no: nearfar compare tries it only if you name it"


def _card(one: MethodInfo) -> str:
    """Return the facts about one method as text."""
    width = line_width()

    def wrap(text: str, indent: str = "  ") -> str:
        lines = textwrap.wrap(
            text, width - len(indent), break_long_words=False, break_on_hyphens=False
        )
        return "\n".join(indent + line for line in lines)

    facts = {
        "key": one.key,
        "aliases": ", ".join(
            f"{name} ({', '.join(f'{k}={v!r}' for k, v in fixed.items())})" if fixed else name
            for name, fixed in one.aliases.items()
        ),
        "family": one.family,
        "needs": one.needs,
        "input": one.input,
        "result": one.result,
        "default": _default_words(one),
    }
    lines = [one.name, wrap(one.summary), ""]
    for name, text in facts.items():
        if text:
            first, *rest = textwrap.wrap(text, width - 12, break_on_hyphens=False)
            lines += [f"  {name:<10}{first}", *(f"{'':<12}{more}" for more in rest)]
    if one.parameters:
        parameters = (
            name if default is inspect.Parameter.empty else f"{name}={default!r}"
            for name, default in one.parameters.items()
        )
        lines += ["", "Parameters and their default values:", wrap(", ".join(parameters))]
    lines += ["", "Command line:", *(f"  {line}" for line in one.command_lines())]
    lines += ["", "Python:", wrap(one.python_names(), "  # ")]
    lines += [f"  {line}" for line in one.python_lines()]
    if one.reference:
        lines += ["", "Reference:", wrap(one.reference)]
    return "\n".join(lines)
