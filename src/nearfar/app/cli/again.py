"""Commands to type next, made of the one that was given."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from nearfar.app.compare.chain import Chosen
from nearfar.app.compare.plan import Plan

#: What is said anew, or is for one run only.
_OF_THIS_RUN = ("--resume", "--force", "--out", "--json", "--save", "--time-budget")
_OF_THE_PLAN = ("--sample", "--repeats", "--tuning", "--without")
#: How a scaler is called.
_SCALES = {"StandardScaler": "standard", "Normalizer": "unit", "str": "none"}


def parts_of(
    parser: argparse.ArgumentParser, words: Iterable[str]
) -> list[tuple[str | None, list[str]]]:
    """The words of a command, each option with its value and by its first name; others by None."""
    actions = {name: action for action in parser._actions for name in action.option_strings}
    rest = list(words)
    parts: list[tuple[str | None, list[str]]] = []
    while rest:
        word = rest.pop(0)
        name = word.partition("=")[0]
        close = [known for known in actions if known.startswith(name)]
        if not word.startswith("--") or not close:
            parts.append((None, [word]))
            continue
        action = actions[name if name in actions else close[0]]
        value = [] if action.nargs == 0 or "=" in word or not rest else [rest.pop(0)]
        parts.append((action.option_strings[0], [word, *value]))
    return parts


def without(
    parser: argparse.ArgumentParser, words: Iterable[str], gone: Collection[str]
) -> list[str]:
    """The words of a command without some options and their values."""
    kept = (group for name, group in parts_of(parser, words) if name not in gone)
    return [word for group in kept for word in group]


def same_again(options: argparse.Namespace, document: dict[str, Any]) -> list[str]:
    """The command that runs the same folds and settings, however long it takes."""
    planned = {k: v for k, v in document["protocol"]["planned"].items() if k != "seed"}
    asked = str(getattr(options, "without", None) or "").split(",")
    mine = [name.strip() for name in asked if name.strip()]
    planned["left_out"] = tuple(dict.fromkeys([*mine, *planned["left_out"]]))
    kept = without(options.parser, options.argv, (*_OF_THIS_RUN, *_OF_THE_PLAN))
    return [*kept, *Plan(**planned).options().split(" ")]


def next_steps(
    options: argparse.Namespace, document: dict[str, Any], chosen: Chosen, command: str, noun: str
) -> list[dict[str, str]]:
    """What to do with the answer: fit what it names, and use it on new data.

    ``command`` is the one that fits what was compared, "fit" or "embed".
    """
    use = "predict" if command == "fit" else "transform"
    if options.save is not None:
        model = str(options.save)
        steps: list[tuple[str, list[str]]] = []
    else:
        model = _free("model.nf")
        said = chosen.words()
        what = chosen.method.label + (f" ({said})" if said else "")
        steps = [
            (
                f"{_WHY[document['answer']['verdict']]}: fit {what} to all {noun}s, and save it",
                [*fit_words(options, chosen, command), "--save", model],
            ),
            (
                "Or compare again, and save what is recommended then",
                [*same_again(options, document), "--save", model],
            ),
        ]
    line = ["nearfar", use, model, "NEW" if Path(options.data).is_dir() else "NEW.csv"]
    if document.get("kind") == "pairs":
        steps.append(("Same or different, of pairs of new rows", [*line, "--pairs", "PAIRS.csv"]))
    elif use == "predict":
        what = "Values" if document.get("kind") == "values" else "Labels"
        steps.append((f"{what} and neighbours of new {noun}s", line))
    else:
        steps.append((f"Places of new {noun}s", line))
    steps[-1][1].extend(_shared(options, use, (*_OF_THIS_RUN, "--pairs")))
    steps[-1][1].extend([] if use == "predict" else ["--out", "placed.csv"])
    return [{"text": text, "command": shlex.join(words)} for text, words in steps]


_WHY = {"use": "As the answer says", "keep": "As the answer says", "inconclusive": "For now"}


def fit_words(options: argparse.Namespace, chosen: Chosen, command: str) -> list[str]:
    """The command that fits the method at this setting and no other."""
    own = ["--method", chosen.method.name]
    scales = {_scale(one.scale) for one in chosen.method.settings}
    if len(scales) > 1:
        own += ["--scale", _scale(chosen.setting.scale)]
    if len({isinstance(one.after, str) for one in chosen.method.settings}) > 1:
        own += ["--then", "none" if isinstance(chosen.setting.after, str) else "lda"]
    for name, value in chosen.parameters().items():
        if name == "n_components":
            own += ["--components", str(value)]
        else:
            own += ["--set", f"{name}={value if isinstance(value, str) else repr(value)}"]
    own += ["-k", str(chosen.k)] if chosen.k is not None else []
    said = [*_OF_THIS_RUN, *(word for word in own if word.startswith("-"))]
    return ["nearfar", command, options.data, *_shared(options, command, said), *own]


def _shared(options: argparse.Namespace, command: str, said: Collection[str]) -> list[str]:
    """Options that were given and that the other command has too, but for some."""
    other = options.commands.choices[command]
    known = {name for action in other._actions for name in action.option_strings}
    return [
        word
        for name, group in parts_of(options.parser, options.argv)
        if name in known and name not in said
        for word in group
    ]


def _scale(scaler: Any) -> str:
    return _SCALES.get(type(scaler).__name__, "auto")


def _free(name: str) -> str:
    """A name of a file that is not there, so that the command can be typed as it is."""
    path, number = Path(name), 1
    while path.exists():
        number += 1
        path = Path(name).with_stem(f"{Path(name).stem}-{number}")
    return str(path)
