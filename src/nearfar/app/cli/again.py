"""Commands to run next, built from the given one."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from nearfar.app.compare.chain import Chosen
from nearfar.app.compare.plan import Plan

#: Options of the given command that do not belong into a new one.
_OF_THIS_RUN = (
    *("--resume", "--force", "--out", "--json", "--save", "--time-budget", "--quiet", "--open"),
    *("--debug", "--code", "--exit-code", "--dry-run"),
)
_OF_THE_PLAN = ("--sample", "--repeats", "--tuning", "--without")
#: Values of --scale by the class of the scaler.
_SCALES = {"StandardScaler": "standard", "Normalizer": "unit", "str": "none"}


def parts_of(
    parser: argparse.ArgumentParser, words: Iterable[str]
) -> list[tuple[str | None, list[str]]]:
    """Return the options of a command by their long names, each with its words as typed.

    Other words have the name None.
    """
    actions = {name: action for action in parser._actions for name in action.option_strings}
    rest = list(words)
    parts: list[tuple[str | None, list[str]]] = []
    while rest:
        word = rest.pop(0)
        name = word.partition("=")[0] if word.startswith("--") else word[:2]
        action = actions.get(name)
        if action is None:
            parts.append((None, [word]))
            continue
        joined = word != name  # --out=FILE, -oFILE, or the flags -fq
        if joined and action.nargs == 0:
            rest.insert(0, f"-{word[2:]}")
            word = name
        value = [] if action.nargs == 0 or joined or not rest else [rest.pop(0)]
        names = action.option_strings
        long = next((one for one in names if one.startswith("--")), names[0])
        parts.append((long, [word, *value]))
    return parts


def without(
    parser: argparse.ArgumentParser, words: Iterable[str], gone: Collection[str]
) -> list[str]:
    """Return the words of a command without some options and their values."""
    kept = (group for name, group in parts_of(parser, words) if name not in gone)
    return [word for group in kept for word in group]


def same_again(options: argparse.Namespace, document: dict[str, Any]) -> list[str]:
    """Return the command that runs the same folds and settings without a time limit."""
    planned = {k: v for k, v in document["protocol"]["planned"].items() if k != "seed"}
    asked = str(getattr(options, "without", None) or "").split(",")
    mine = [name.strip() for name in asked if name.strip()]
    planned["left_out"] = tuple(dict.fromkeys([*mine, *planned["left_out"]]))
    kept = without(options.parser, options.argv, (*_OF_THIS_RUN, *_OF_THE_PLAN))
    return [*kept, *Plan(**planned).options().split(" ")]


def next_steps(
    options: argparse.Namespace, document: dict[str, Any], chosen: Chosen, command: str, noun: str
) -> list[dict[str, str]]:
    """Return the commands that use the answer: fit the method it names, then predict.

    ``command`` is the one that fits a compared method, "fit" or "embed".
    """
    use = "predict" if command == "fit" else "transform"
    steps: list[tuple[str, list[str]]] = []
    model = str(options.save or _free("model.nf"))
    if options.save is None:
        setting = chosen.words()
        method = chosen.method.label + (f" ({setting})" if setting else "")
        steps.append(
            (
                f"Fit {method} to all {noun}s and save it",
                [*fit_words(options, chosen, command), "--save", model],
            )
        )
    line = ["nearfar", use, model, "NEW" if Path(options.data).is_dir() else "NEW.csv"]
    if document.get("kind") == "pairs":
        steps.append(("Predict same or different for pairs of new rows", line))
        line += ["--pairs", "PAIRS.csv"]
    elif use == "predict":
        what = "values" if document.get("kind") == "values" else "labels"
        steps.append((f"Predict the {what} of new {noun}s", line))
    else:
        steps.append((f"Place new {noun}s in the embedding", line))
    line += _shared(options, use, (*_OF_THIS_RUN, "--pairs"))
    line += [] if use == "predict" else ["--out", "placed.csv"]
    return [{"text": text, "command": shlex.join(words)} for text, words in steps]


def fit_words(options: argparse.Namespace, chosen: Chosen, command: str) -> list[str]:
    """Return the command that fits the method with this setting only."""
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
    """Return the given options that the other command has too, except those in ``said``."""
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
    """Return a file name that does not exist yet, so that the command can be run as it is."""
    path, number = Path(name), 1
    while path.exists():
        number += 1
        path = Path(name).with_stem(f"{Path(name).stem}-{number}")
    return str(path)
