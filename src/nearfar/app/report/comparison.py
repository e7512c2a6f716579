"""The document of a comparison, with its gaps filled and the questions that sections share."""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cached_property
from typing import Any

import numpy as np

from nearfar.app.report.words import cut, number

FORMAT = 1
Method = dict[str, Any]
# Nothing else may become the address of a picture.
PICTURE_BYTES = 20_000
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+={0,2}")

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
        "messages": [],
        "unit": "row",
        "sets": None,
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
        "time_budget": None,
        "plan": [],
        "notes": [],
    },
    "folds": [],
    "common_folds": [],
    "methods": [],
    "nested": None,
    "answer": {"verdict": "unsure", "method": None, "text": "", "notes": []},
    "best": None,
    "code": "",
    "held_out": {"rows": [], "true": [], "predicted": {}, "neighbors": {}, "labels": {}},
    "maps": {"rule": "", "rows": [], "classes": [], "methods": {}},
    "weights": {},
    "histories": {},
    "pictures": {"rows": [], "held_out": 0, "methods": {}},
    "spectra": {},
    "colour": {"name": None, "kind": "scale", "codes": [], "names": [], "ends": None},
    "rows": None,
    "images": None,
    "sets": None,
}
_EMPTY_ROWS: dict[str, Any] = {"columns": [], "values": {}, "names": {}}
_EMPTY_METHOD: Method = {
    "name": "",
    "label": "",
    "role": "learner",
    "status": "done",
    "reason": None,
    "folds_done": 0,
    "error": None,
    "interval": None,
    "difference": None,
    "difference_interval": None,
    "p_holm": None,
    "fit_seconds": None,
    "tune_seconds": None,
    "predict_seconds": None,
    "peak_mb": None,
    "not_converged": 0,
    "recommended": False,
    "results": [],
}


class Comparison:
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
                f"The document has format {cut(repr(document.get('format')), 40)}; this version "
                f"of nearfar draws format {FORMAT}. Draw it with the nearfar that made it, or "
                "compare again."
            )
        self.document = _filled(document, _EMPTY)
        if self.document["rows"] is not None:
            self.document["rows"] = _filled(self.document["rows"], _EMPTY_ROWS)
        self.methods: list[Method] = [
            _filled(method, _EMPTY_METHOD) for method in self.document["methods"]
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
        """What a row is called: "row" or "set"."""
        return "set" if self.data["unit"] == "set" else "row"

    @property
    def protocol(self) -> dict[str, Any]:
        """How the methods were compared."""
        return self.document["protocol"]

    @property
    def confidence(self) -> str:
        """The level of the intervals, as "95 %"."""
        return f"{100 * (number(self.protocol['confidence']) or 0.95):.3g}\u00a0%"

    @property
    def measure(self) -> str:
        """What the errors are, as the head of a column."""
        name = cut(self.protocol["measure"], 40) or "error"
        return name[0].upper() + name[1:]

    @property
    def sense(self) -> int:
        """1 where larger numbers are better, as shares kept are; -1 for errors."""
        return 1 if self.document["kind"] == "embeddings" else -1

    @property
    def learners(self) -> list[Method]:
        """The learners that have results, in the order of the document."""
        return [m for m in self.methods if m["role"] == "learner" and _has_results(m)]

    @cached_property
    def reference(self) -> Method | None:
        """The baseline that the others are compared with."""
        return next((m for m in self.methods if m["role"] == "reference"), None)

    @cached_property
    def best(self) -> Method | None:
        """The learner that is shown beside the reference: the one the answer speaks about."""
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

    def label(self, name: str) -> str:
        """How a method is called in the report."""
        method = self.by_name.get(name)
        return cut((method and method["label"]) or name, 60)

    def class_name(self, code: Any) -> str:
        """The name of a class, from its code."""
        classes = self.data["classes"]
        if isinstance(code, int) and 0 <= code < len(classes):
            return cut(classes[code], 40) or "(empty)"
        return "unknown"

    def column_name(self, name: Any) -> str:
        """The name of a column, short enough for a table."""
        return cut(name, 30) or "(no name)"

    def row_values(self, row: Any, columns: list[int], length: int = 24) -> list[str] | None:
        """Some columns of a row; None when the row is not in the document."""
        if not self.shows_rows:
            return None
        values = self.document["rows"]["values"].get(str(row))
        if values is None:
            return None
        return [cut(values[c], length) if c < len(values) else "" for c in columns]

    def row_name(self, row: Any) -> str:
        """The name of a row, where it has one; "" where not."""
        return cut(self.document["rows"]["names"].get(str(row)), 40) if self.shows_rows else ""

    def row_image(self, row: Any) -> str | None:
        """The picture of a row as a data URI, or None."""
        if not self.shows_rows or not self.document["images"]:
            return None
        found = self.document["images"].get(str(row))
        return found if is_picture(found) else None

    def telling_columns(self, limit: int) -> list[int]:
        """The columns of the rows that the best learner weighs most, then the first ones."""
        if not self.shows_rows:
            return []
        columns = self.document["rows"]["columns"]
        position = {name: i for i, name in reversed(list(enumerate(columns)))}
        ranked = [position[name] for name in self.heaviest_features() if name in position]
        return list(dict.fromkeys([*ranked, *range(len(columns))]))[:limit]

    def heaviest_features(self) -> list[str]:
        """The features of the best learner by their mean weight, or none."""
        weights = self.document["weights"].get(self.best["name"]) if self.best else None
        shares = mean_shares(weights)
        if weights is None or shares is None:
            return []
        return [weights["features"][i] for i in np.argsort(-shares, kind="stable")]


def is_picture(found: Any, most_bytes: int = PICTURE_BYTES) -> bool:
    """Whether it may become the address of a picture."""
    return isinstance(found, str) and len(found) <= most_bytes and bool(_PICTURE.fullmatch(found))


def mean_shares(weights: Any) -> Any:
    """The mean over folds of each feature's share; None when there is none."""
    table = shares_by_fold(weights)
    return None if table is None else table.mean(axis=0)


def shares_by_fold(weights: Any) -> Any:
    """Shares as an array (folds, features), without folds that are missing; or None."""
    if not weights or not weights.get("features"):
        return None
    width = len(weights["features"])
    folds = [fold for fold in weights.get("folds") or [] if fold and len(fold) == width]
    table = np.array([[number(share) or 0.0 for share in fold] for fold in folds])
    return table if table.size else None


def _has_results(method: Method) -> bool:
    return method["status"] in ("done", "unfinished") and bool(method["results"])


def _filled(value: Any, default: Any) -> Any:
    """``value`` with the keys it lacks; a shallow copy down to the keys of ``default``."""
    if value is None:
        return deepcopy(default)
    if not isinstance(default, dict) or not isinstance(value, dict):
        return value
    return {**value, **{key: _filled(value.get(key), default[key]) for key in default}}
