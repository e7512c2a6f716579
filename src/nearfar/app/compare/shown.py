"""Which rows and methods a page shows of a document: the page and whoever fills it ask here."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

FORMAT = 1
Method = dict[str, Any]
# Neighbors of a row, and rows of each kind in the sample.
NEIGHBORS = 5
SAMPLE = 6  # rows of each kind
POINTS = 4000  # in all maps together; the folds of the strips are counted apart
MAPS = 12
PAIRS = 12  # of classes that are confused
PAIR_ROWS = 8  # of each of them
WRONG = 12  # pairs that every method gets wrong, of each kind

_EMPTY: dict[str, Any] = {
    "kind": "distances",
    "created": "",
    "command": "",
    "seconds": None,
    "status": "complete",
    "versions": {},
    "machine": "",
    "data": {
        "name": "",
        "n_rows": None,
        "n_features": None,
        "features": [],
        "target": None,
        "classes": [],
        "class_counts": [],
        "dropped": [],
        "groups": None,
        "time": None,
        "test": None,
        "image_shape": None,
        "tensor_shape": None,
        "messages": [],
        "profile": None,
        "unit": "row",
        "of": "",
        "facts": [],
        "goal": "",
    },
    "warnings": [],
    "protocol": {
        "scheme": "",
        "n_splits": None,
        "repeats": None,
        "seed": 0,
        "min_gain": None,
        "confidence": 0.95,
        "measure": "error",
        "measure_note": "",
        "tuning": "",
        "tuning_note": "",
        "n_neighbors": None,
        "looked_at": [],
        "chance": None,
        "n_components": None,
        "scaling": "",
        "units": "",
        "time_budget": None,
        "plan": [],
        "n_rows_used": None,
        "notes": [],
    },
    "folds": [],
    "common_folds": [],
    "methods": [],
    "nested": None,
    "all_rows": None,
    "by_group": None,
    "next": [],
    "answer": {"verdict": "inconclusive", "method": None, "text": "", "notes": []},
    "best": None,
    "code": "",
    "held_out": {"rows": [], "true": [], "predicted": {}, "neighbors": {}, "labels": {}},
    "maps": {"rule": "", "rows": [], "classes": [], "methods": {}},
    "weights": {},
    "histories": {},
    "tensors": {},
    "local": {},
    "kernels": {},
    "pairs": {
        "strategy": "",
        "methods": {},
        "n_tested": 0,
        "n_wrong": 0,
        "n_wrong_alike": 0,
        "judged_by": [],
        "wrong": [],
    },
    "values": {
        "unit": None,
        "target": "",
        "sizes": [],
        "by_size": {},
        "n_tested": 0,
        "worst": [],
        "judged_by": [],
    },
    "pictures": {"rows": [], "held_out": 0, "methods": {}},
    "spectra": {},
    "colour": {"name": None, "kind": "scale", "codes": [], "names": [], "ends": None},
    "rows": None,
    "images": None,
    "picture": None,
}
_EMPTY_ROWS: dict[str, Any] = {"columns": [], "values": {}, "names": {}}
_EMPTY_METHOD: Method = {
    **dict.fromkeys(("reason", "error", "interval", "difference", "difference_interval", "p_holm")),
    **dict.fromkeys(("gain", "gain_interval", "folds_used")),
    **dict.fromkeys(("fit_seconds", "tune_seconds", "predict_seconds", "peak_mb")),
    "name": "",
    "label": "",
    "role": "learner",
    "status": "done",
    "folds_done": 0,
    "not_converged": 0,
    "recommended": False,
    "times_plain": None,
    "results": [],
}


class Document:
    """Read access to a document; every key of the format is there, empty where unknown.

    Parameters
    ----------
    document : dict
        What a comparison produced, format 1. It is not changed.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        if not isinstance(document, dict):
            raise TypeError(
                f"document should be the dict of a comparison; got {type(document).__name__}."
            )
        if document.get("format") != FORMAT:
            raise ValueError(
                f"The document has format {repr(document.get('format'))[:40]}; this version "
                f"of nearfar draws format {FORMAT}. Draw it with the nearfar that made it, or "
                "compare again."
            )
        self.document = _filled(document, _EMPTY)
        if self.document["rows"] is not None:
            self.document["rows"] = _filled(self.document["rows"], _EMPTY_ROWS)
        higher_is_better = self.document["kind"] == "embeddings"
        self.methods: list[Method] = [
            _with_gain(_filled(method, _EMPTY_METHOD), higher_is_better)
            for method in self.document["methods"]
        ]
        self.by_name = {method["name"]: method for method in self.methods}

    def __getitem__(self, key: str) -> Any:
        return self.document[key]

    @property
    def data(self) -> dict[str, Any]:
        """What is known of the data."""
        return self.document["data"]

    @property
    def noun(self) -> str:
        """What a row is called, as the kind of data says."""
        return str(self.data["unit"])[:20]

    @property
    def protocol(self) -> dict[str, Any]:
        """How the methods were compared."""
        return self.document["protocol"]

    @property
    def learners(self) -> list[Method]:
        """The learners that have results, in the order of the document."""
        return [m for m in self.methods if m["role"] == "learner" and _has_results(m)]

    @cached_property
    def reference(self) -> Method | None:
        """The baseline that the learners are compared with."""
        return next((m for m in self.methods if m["role"] == "reference"), None)

    @cached_property
    def best(self) -> Method | None:
        """The learner that the answer names; pages show it next to the baseline."""
        named = self.by_name.get(self.document["answer"]["method"])
        return named if named is not None and named in self.learners else None

    @property
    def fixed(self) -> bool:
        """Whether there is one test set instead of folds."""
        return bool(self.data["test"])

    @cached_property
    def held_out(self) -> dict[str, Any]:
        """What came of held-out rows, each once: folds of the user's own may test one again."""
        found = self.document["held_out"]
        first = {row: place for place, row in reversed(list(enumerate(found["rows"])))}
        if len(first) == len(found["rows"]):
            return found
        places = sorted(first.values())

        def once(values: Any) -> Any:
            return values and [values[i] for i in places if i < len(values)]

        return {
            "rows": once(found["rows"]),
            "true": once(found["true"]),
            "labels": found["labels"],
            **{
                key: {name: once(values) for name, values in found[key].items()}
                for key in ("predicted", "neighbors")
            },
        }

    @cached_property
    def labels(self) -> dict[int, Any]:
        """Class codes by row; rows that are never held out are named apart."""
        found = self.held_out
        apart = {int(row): code for row, code in found["labels"].items()}
        return apart | dict(zip(found["rows"], found["true"], strict=False))

    def predicted(self, name: str) -> dict[int, Any]:
        """What a method took held-out rows for, where that is known."""
        guesses = self.held_out["predicted"].get(name) or []
        by_row = zip(self.held_out["rows"], guesses, strict=False)
        return {row: guess for row, guess in by_row if guess is not None}

    @property
    def tested_again(self) -> int:
        """How many tests of rows are left out, since the rows were tested before."""
        return len(self.document["held_out"]["rows"]) - len(self.held_out["rows"])

    @property
    def shows_rows(self) -> bool:
        """False when the user asked that no contents of rows be shown."""
        return self.document["rows"] is not None

    def random(self) -> np.random.Generator:
        """A generator seeded like the comparison: the same document gives the same report."""
        seed = self.protocol["seed"]
        return np.random.default_rng(seed if isinstance(seed, int) and seed >= 0 else 0)


def rows_to_show(found: dict[str, Any]) -> list[int]:
    """The rows whose contents the page of this document can show.

    A comparison asks for them before it fills ``rows`` and ``images``, which may then leave out all
    others.

    Parameters
    ----------
    found : dict
        The document, with ``held_out`` and ``maps``.

    Returns
    -------
    list of int
        Row numbers; those of the sampled neighbors first, then those that a hover shows.

    Examples
    --------
    >>> rows_to_show({"format": 1})
    []
    """
    document = Document(found)
    rows = document["maps"]["rows"]
    drawn = [rows[i] for i in chosen_points(document)]
    confused = [row for pair in confused_pairs(document) for row in pair.rows[:PAIR_ROWS]]
    rebuilt = [one["row"] for each in document["tensors"].values() for one in each["samples"]]
    explained = explained_rows(document)
    return list(dict.fromkeys([*sampled_rows(document), *rebuilt, *explained, *drawn, *confused]))


def explained_rows(document: Document) -> list[int]:
    """Rows whose metric and voters the page shows, and after all of these their voters."""
    every = [one for each in document["local"].values() for one in each["rows"]]
    return [
        *(one["row"] for one in every),
        *(voter["row"] for one in every for voter in one["voters"]),
    ]


def wrong_pairs(found: dict[str, Any], alike: bool) -> list[dict[str, Any]]:
    """The pairs of one kind, of those that every method gets wrong, that the page shows."""
    return [one for one in found["wrong"] if bool(one["alike"]) is alike][:WRONG]


# Maps


def map_names(document: Document) -> list[str]:
    """Reference, best learner, then the others in their order."""
    methods = document["maps"]["methods"]
    first = [m["name"] for m in (document.reference, document.best) if m is not None]
    ordered = [*first, *(m["name"] for m in document.methods), *methods]
    return [name for name in dict.fromkeys(ordered) if name in methods][:MAPS]


def chosen_points(document: Document) -> list[int]:
    """Positions in the map's lists: all, or a seeded subsample that every map shares."""
    names = map_names(document)
    total = min(len(document["maps"]["rows"]), len(document["maps"]["classes"]))
    most = POINTS // max(len(names), 1)
    if total <= most:
        return list(range(total))
    return np.sort(document.random().choice(total, most, replace=False)).tolist()


# Neighbors


@dataclass(frozen=True)
class Change:
    """A held-out row and its neighbors with both distances, as (row, class code)."""

    row: int
    label: int
    before: list[tuple[int, int]]
    after: list[tuple[int, int]]

    def share(self, found: list[tuple[int, int]]) -> float:
        """The share of neighbors with the row's own label."""
        return sum(code == self.label for _, code in found) / len(found)

    @property
    def gain(self) -> float:
        """By how much that share grew."""
        return self.share(self.after) - self.share(self.before)


def find_changes(document: Document) -> list[Change]:
    """Held-out rows whose neighbors, and their labels, are known for both distances."""
    reference, best = document.reference, document.best
    held_out = document.held_out
    if reference is None or best is None:
        return []
    before = held_out["neighbors"].get(reference["name"]) or []
    after = held_out["neighbors"].get(best["name"]) or []
    labels, changes = document.labels, []
    for row, label, old, new in zip(
        held_out["rows"], held_out["true"], before, after, strict=False
    ):
        known_old, known_new = _with_labels(old, labels), _with_labels(new, labels)
        if label is not None and known_old and known_new:
            changes.append(Change(row, label, known_old, known_new))
    return changes


def sample(document: Document, changes: Sequence[Change]) -> list[Change]:
    """A seeded sample; rows whose contents the document holds come first."""
    shuffled = [changes[i] for i in document.random().permutation(len(changes))]
    if not document.shows_rows:
        return shuffled[:SAMPLE]
    known = {**document["rows"]["values"], **(document["images"] or {})}
    whole = (c for c in shuffled if all(str(row) in known for row in _rows_of(c)))
    chosen = list(islice(whole, SAMPLE))
    if len(chosen) < SAMPLE:
        others = [c for c in shuffled if c not in chosen]
        chosen += others[: SAMPLE - len(chosen)]
    return chosen


def sampled_rows(document: Document) -> list[int]:
    """The rows that the sample shows, neighbors included."""
    kinds = by_kind(find_changes(document))
    chosen = [*sample(document, kinds["improved"]), *sample(document, kinds["worsened"])]
    return sorted({row for change in chosen for row in _rows_of(change)})


def by_kind(changes: list[Change]) -> dict[str, list[Change]]:
    """Rows whose neighbors agree more than before, as much, and less."""
    kinds: dict[str, list[Change]] = {"improved": [], "same": [], "worsened": []}
    for change in changes:
        gain = change.gain
        kind = "improved" if gain > 1e-9 else "worsened" if gain < -1e-9 else "same"
        kinds[kind].append(change)
    return kinds


@dataclass(frozen=True)
class Pair:
    """A class, what the best learner took it for, and the held-out rows of which that is so."""

    label: int
    taken_for: int
    rows: list[int]


def confused_pairs(document: Document) -> list[Pair]:
    """The classes that the best learner confuses most often."""
    if document.best is None:
        return []
    found: dict[tuple[int, int], list[int]] = {}
    labels = document.labels
    for row, guess in document.predicted(document.best["name"]).items():
        if isinstance(guess, int) and isinstance(labels.get(row), int) and guess != labels[row]:
            found.setdefault((labels[row], guess), []).append(row)
    largest = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))[:PAIRS]
    return [Pair(*classes, sorted(rows)) for classes, rows in largest]


def _with_labels(found: Any, labels: dict[int, int]) -> list[tuple[int, int]]:
    """Neighbors with their labels; none at all when one is unknown, which would mislead."""
    rows = (found or [])[:NEIGHBORS]
    return [(row, labels[row]) for row in rows] if all(row in labels for row in rows) else []


def _rows_of(change: Change) -> list[int]:
    return [change.row, *(row for row, _ in change.before), *(row for row, _ in change.after)]


def _has_results(method: Method) -> bool:
    return method["status"] in ("done", "unfinished") and bool(method["results"])


def _with_gain(method: Method, higher_is_better: bool) -> Method:
    """The method with its gain and the folds used, also where an older document lacks them."""
    if method["folds_used"] is None:
        method["folds_used"] = method["folds_done"]
    if method["gain"] is None and method["difference"] is not None:
        ends, sign = method["difference_interval"], 1 if higher_is_better else -1
        method["gain"] = sign * method["difference"]
        method["gain_interval"] = None if ends is None else sorted(sign * end for end in ends)
    return method


def _filled(value: Any, default: Any) -> Any:
    """``value`` with the keys it lacks; a shallow copy down to the keys of ``default``."""
    if value is None:
        return deepcopy(default)
    if not isinstance(default, dict) or not isinstance(value, dict):
        return value
    return {**value, **{key: _filled(value.get(key), default[key]) for key in default}}
