"""``nearfar methods``."""

from __future__ import annotations

import argparse
import re
from typing import Any

from nearfar.words import hyphened, listed


def add_methods(commands: Any) -> None:
    """Add the command."""
    methods = commands.add_parser("methods", help="list the learners", description="List learners.")
    methods.set_defaults(run=_methods)


def _methods(options: argparse.Namespace) -> int:
    from nearfar.app.compare.methods import DEFAULT, OF_IMAGES, baselines, known_estimators
    from nearfar.app.compare.pair_methods import DEFAULT as OF_PAIRS
    from nearfar.app.compare.set_methods import DEFAULT as OF_SETS
    from nearfar.app.compare.set_methods import SET_METHODS, set_baselines
    from nearfar.app.compare.value_methods import DEFAULT as OF_VALUES

    found = known_estimators()
    width = max(len(hyphened(name)) for name in found)
    print("Start here (what `nearfar compare` tries):")
    for name in DEFAULT:
        print(_method_line(name, found[name], width))
    print("Where rows are images (a folder of pictures, --images HxW), also:")
    print(_method_line(OF_IMAGES, found[OF_IMAGES], width))
    print("With --task regression:")
    for name in OF_VALUES:
        print(_method_line(name, found[name], width))
    rooms: dict[str, list[str]] = {}
    for name, learner in found.items():
        parts = learner.__module__.split(".")
        room = parts[1] if parts[0] == "nearfar" else f"from the package {parts[0]}"
        rooms.setdefault(room, []).append(name)
    for room, names in rooms.items():
        print(f"\n{room}:")
        for name in names:
            print(_method_line(name, found[name], width))
    print("\nBy pairs, with --pairs FILE, `nearfar compare` tries (all that learn from pairs can):")
    for name in [*(name for name in OF_PAIRS if name in found), "RCA"]:
        print(_method_line(name, found[name], width))
    print("  RCA only where no pair contradicts that who is alike to one is alike to its group.")
    print("\nThe name of a family stands for all its learners: --methods discriminant")
    print(
        "Those of tensors take images: pictures of a folder, arrays of (n, d1, ..., dk), or flat "
        "rows with --images HxW.\nMaps among them are tried alone and with a shrunk LDA behind "
        "them (--then)."
    )
    print("\nplain distances, for `nearfar fit --method`:")
    for method in baselines():
        print(f"  {method.name:<{width}} {method.label}")
    print(f"  {'reference':<{width}} the best of these, as tuning finds it")
    print(
        "\nsets of vectors, for `nearfar compare` and `fit` with --set-id COL (* what is compared):"
    )
    wide = max(map(len, SET_METHODS))
    for name, one in SET_METHODS.items():
        star = "*" if name in OF_SETS else " "
        print(f"{star} {name:<{wide}} {one.text} [sets, labels]")
    print(f"  {'distributions':<{wide}} all of these that need no extra package")
    plain = listed([method.name for method in set_baselines()], quoted=False)
    print(f"They are held against k-NN by the means alone: {plain}.")
    return 0


def _method_line(name: str, learner: Any, width: int) -> str:
    from nearfar.base import LinearLearner

    tags = learner.learner_tags
    words = [tags.reads, " or ".join(tags.learns_from) or "no labels"]
    words += ["linear"] * issubclass(learner, LinearLearner)
    words += [tags.role] * (tags.role != "map") + [tags.input] * (tags.input != "vectors")
    first = (learner.__doc__ or "").strip().partition("\n")[0]
    first = re.sub(r":\w+:`([^`]*)`|``([^`]*)``", r"\1\2", first)
    also = f" Also: {listed(learner.also_called, quoted=False)}." if learner.also_called else ""
    return f"  {hyphened(name):<{width}} {first}{also} [{', '.join(words)}]"
