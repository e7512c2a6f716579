"""What the pages list of estimators, made of the registry and of tags: nothing is typed.

This part needs no Sphinx, so that tests read what the pages will say. ``estimators`` has the
directives.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass

import nearfar
from nearfar import all_estimators
from nearfar.base import Estimator, LearnerTags

#: What one sample is, and whether labels are known.
HAVE = {
    ("vectors", True): "vectors, with labels or groups",
    ("vectors", False): "vectors, nothing else",
    ("sets", True): "sets of vectors, with labels",
    ("sets", False): "sets of vectors, nothing else",
    ("tensors", True): "tensors, with labels",
    ("tensors", False): "tensors, nothing else",
    ("pairs", True): "pairs, alike or not",
    ("pairs", False): "pairs, nothing else",
}
#: What it gives; of maps of vectors also what they learn from, which decides what they can do.
WANT = {
    "statistics": "a linear map, from one pass over the data",
    "supervision": "a linear map, from the rows and what belongs together",
    "graph": "coordinates that keep neighbourhoods",
    "instances": "coordinates from all distances, or from a kernel",
    "map": "one vector for each",
    "classifier": "labels of new ones",
    "regressor": "numbers for new ones",
    "clusterer": "clusters",
    "kernel": "a kernel",
}
#: The page of the guide that speaks of a room; of a role, where the room has several pages.
# A room without a page of its own yet points to the front of the guide.
PAGES = {
    "discriminant": "discriminant",
    "distributions": "sets",
    "kernels": "kernels",
    "local": "local",
    "mahalanobis": "mahalanobis",
    "manifold": "embeddings",
    "neighbors": "classifiers",
    "tensors": "tensors",
    "classifier": "classifiers",
}
#: Headings of the reference; maps of vectors stand under what their room says of itself.
ROLES = {
    "map": "Maps of",
    "classifier": "Classifiers of",
    "regressor": "Regression on",
    "clusterer": "Clusters of",
    "kernel": "Kernels on",
}
INPUTS = {
    "vectors": "vectors",
    "tensors": "tensors",
    "sets": "sets of vectors",
    "pairs": "pairs",
}


@dataclass(frozen=True)
class Row:
    """A row of "you have, you want, take, page"."""

    have: str
    want: str
    take: tuple[str, ...]
    pages: tuple[str, ...]


def room_of(kind: type[Estimator]) -> str:
    """The room that an estimator is in."""
    return kind.__module__.split(".")[1]


def page_of(kind: type[Estimator]) -> str:
    """The page of the guide, by name, that speaks of an estimator."""
    return PAGES.get(kind.learner_tags.role) or PAGES.get(room_of(kind), "index")


def want(tags: LearnerTags) -> str:
    """What an estimator with these tags is taken for."""
    return WANT[tags.reads if (tags.role, tags.input) == ("map", "vectors") else tags.role]


def rows() -> list[Row]:
    """The table: each estimator is in one row, with those of equal tags."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, kind in _by_name():
        tags = kind.learner_tags
        found.setdefault((HAVE[tags.input, tags.supervised], want(tags)), []).append(name)
    order = [*HAVE.values(), *WANT.values()]
    kinds = all_estimators()
    return [
        Row(*key, tuple(names), tuple(sorted({page_of(kinds[name]) for name in names})))
        for key, names in sorted(found.items(), key=lambda item: [*map(order.index, item[0])])
    ]


def sections() -> dict[str, list[str]]:
    """The reference: names by heading. Maps of vectors by room, the others by what they give."""
    found: dict[tuple[int, int, str], list[str]] = {}
    for name, kind in _by_name():
        tags = kind.learner_tags
        title = f"{ROLES[tags.role]} {INPUTS[tags.input]}"
        if (tags.role, tags.input) == ("map", "vectors"):
            room = importlib.import_module(f"nearfar.{room_of(kind)}")
            title = (inspect.getdoc(room) or "").partition("\n")[0].rstrip(".")
        key = (list(INPUTS).index(tags.input), list(ROLES).index(tags.role), title)
        found.setdefault(key, []).append(name)
    return {title: names for (_, _, title), names in sorted(found.items())}


def _by_name() -> list[tuple[str, type[Estimator]]]:
    return sorted(all_estimators().items(), key=lambda item: item[0].lower())


def public_names(module: str) -> list[str]:
    """The functions and classes of a module that are not imported from the top as well."""
    offers = importlib.import_module(module)
    names = [n for n in offers.__all__ if callable(getattr(offers, n)) and n not in nearfar.__all__]
    return sorted(names, key=str.lower)


def autosummary(names: list[str]) -> str:
    """A directive that lists names and makes a page for each."""
    return "\n   ".join([".. autosummary::", ":toctree: generated", ":nosignatures:\n", *names])


def reference_text() -> str:
    """The sections of the reference that list estimators."""
    parts = [".. currentmodule:: nearfar"]
    for title, names in sections().items():
        parts.append(f"{title}\n{'-' * len(title)}\n\n{autosummary(names)}")
    return "\n\n".join(parts) + "\n"


def table_text() -> str:
    """The table as reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", "   :widths: 20 25 40 15", ""]
    lines += ["   * - you have", "     - you want", "     - take", "     - page"]
    same, before = "\\ ", ""
    for row in rows():
        lines.append(f"   * - {row.have if row.have != before else same}")
        lines.append(f"     - {row.want}")
        lines.append(f"     - {', '.join(f':class:`~nearfar.{name}`' for name in row.take)}")
        lines.append(f"     - {', '.join(f':doc:`{page} <{page}>`' for page in row.pages)}")
        before = row.have
    return "\n".join(lines) + "\n"
