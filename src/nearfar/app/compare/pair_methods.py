"""Methods compared on pairs: the standard distances, and learners that use pairs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from nearfar.app.compare.methods import (
    LARGE,
    Method,
    Scale,
    family,
    find_estimator,
    known_estimators,
    learners,
    listed_methods,
)
from nearfar.app.compare.pair_folds import contradictions
from nearfar.summaries.supervision import Chunklets, Pairs
from nearfar.words import format_count, format_method_name, join_names

#: Learners compared when none are named; RCA too, where pairs can be read as groups.
DEFAULT = ("MMC", "LogisticMetric", "ITML")
#: What pairs can be made of for learners that do not read them as they are.
FORMS = ("pairs", "triplets", "quadruplets", "chunklets")


def pair_learners(
    methods: Any,
    pairs: Pairs,
    scale: Scale = "auto",
    *,
    tensor_shape: tuple[int, ...] | None = None,
    size: tuple[int, int] = (LARGE, 1),
) -> tuple[list[Method], list[str]]:
    """The learners to compare, and what is to be said of the choice.

    Parameters
    ----------
    methods : as in :func:`nearfar.app.compare.methods.learners`
        Of a family, those that learn from pairs; None is MMC, LogisticMetric, ITML, and RCA where
        the pairs can be read as groups.
    pairs : Pairs
        All pairs, by which it is told whether they can.
    """
    notes: list[str] = []
    against = no_groups(pairs)
    if methods is None:
        methods = [name for name in DEFAULT if name in known_estimators()]
        if not against:
            methods.append("RCA")
            notes.append(_groups_note(pairs))
        else:
            notes.append(f"RCA, which learns from groups, is left out: {against}.")
    elif not isinstance(methods, Mapping):
        methods = [
            name for one in listed_methods(methods) for name in _members(one, against, notes)
        ]
    found = learners(methods, scale, tensor_shape=tensor_shape, size=size)
    for method in found:
        _refuse(method, against)
    return found, notes


def _members(given: Any, against: str, notes: list[str]) -> list[Any]:
    """A method, or those of a family that can be told by these pairs; of others a note."""
    names = family(given) if isinstance(given, str) else []
    if not names:
        return [given]
    able = [name for name in names if _able(name, against)]
    if not able:
        raise ValueError(f"No learner of {given} learns from pairs. See: nearfar methods.")
    told = [name for name in names if find_estimator(name).learner_tags.supervision]
    gone = [name for name in told if name not in able]
    if gone:
        notes.append(
            f"Left out of {given}: {join_names(gone, quoted=False)}; {_why(gone, against)}."
        )
    return [format_method_name(name) for name in able]


def _why(gone: list[str], against: str) -> str:
    """Why learners of a family are left out."""
    tags = [find_estimator(name).learner_tags for name in gone]
    grouped = any(one.role == "map" and "chunklets" in one.supervision for one in tags)
    so = "pairs do not tell what they learn from, or they predict labels"
    return f"{so}; those that learn from groups: {against}" if grouped and against else so


def _able(name: str, against: str) -> bool:
    """Whether a class learns from pairs, in one form or another."""
    kind = find_estimator(name)
    return kind.learner_tags.role == "map" and _read(kind, against) is not None


def _read(learner: Any, against: str) -> str | None:
    """In what form a learner reads pairs; None where it cannot."""
    found = [form for form in FORMS if form in learner.learner_tags.supervision]
    return None if not found or (found == ["chunklets"] and against) else found[0]


def _refuse(method: Method, against: str) -> None:
    """Refuse what predicts labels, or learns from something that pairs do not tell."""
    if method.role != "learner" or not all(
        hasattr(one.estimator, "transform") for one in method.settings
    ):
        raise ValueError(
            f"methods[{method.name!r}] is no distance: it predicts labels, and here are pairs."
        )
    for setting in method.settings:
        learner = setting.estimator
        while isinstance(learner, Pipeline):
            learner = learner.steps[-1][1]
        tags = getattr(learner, "learner_tags", None)
        if tags is None or not tags.supervision or _read(learner, against) is not None:
            continue
        if "chunklets" in tags.supervision:
            raise ValueError(
                f"methods[{method.name!r}] learns from groups, and these pairs make none: "
                f"{against}."
            )
        raise ValueError(
            f"methods[{method.name!r}]: {type(learner).__name__} learns from "
            f"{' or '.join(tags.supervision)}, which pairs do not give. See nearfar methods for "
            "those that learn from pairs."
        )


def no_groups(pairs: Pairs) -> str:
    """Why alike pairs cannot be read as groups; nothing where they can.

    >>> no_groups(Pairs([[0, 1], [1, 2]], [[2, 0]], n_samples=3))
    'rows 2 and 0 are said to be different, but alike pairs join them'
    >>> no_groups(Pairs([[0, 1], [2, 3]], [[2, 0]], n_samples=4))
    ''
    """
    if not len(pairs.similar):
        return "no pair is alike"
    found = contradictions(pairs)
    if len(found):
        more = f" (and {format_count(len(found) - 1, 'more such pair')})" if len(found) > 1 else ""
        return (
            f"rows {found[0][0]} and {found[0][1]} are said to be different, but alike pairs join "
            f"them{more}"
        )
    if Chunklets.from_pairs(pairs).labels.max() == 0:
        return "alike pairs join all their rows into one group"
    return ""


def _groups_note(pairs: Pairs) -> str:
    groups = Chunklets.from_pairs(pairs).labels
    sizes = np.bincount(groups[groups >= 0])
    least, most = int(sizes.min()), int(sizes.max())
    many = f"{least:,} to {most:,}" if least < most else f"{most:,}"
    return (
        f"RCA reads alike pairs as groups, {len(sizes):,} of {many} rows: who is alike to one is "
        "taken as alike to all of its group. No pair says otherwise."
    )
