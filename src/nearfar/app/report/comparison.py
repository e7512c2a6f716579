"""The document of a comparison, with its gaps filled and the questions that sections share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from nearfar.app.compare.methods import title_of
from nearfar.app.compare.shown import Document
from nearfar.app.report.words import SPACE, cut, interval, number, pair, percent

Method = dict[str, Any]
# Nothing else may become the address of a picture.
PICTURE_BYTES = 20_000
_PICTURE = re.compile(r"data:image/png;base64,[A-Za-z0-9+/]+={0,2}")


class Comparison(Document):
    """A document in the words of the report."""

    @property
    def confidence(self) -> str:
        """The level of the confidence intervals, such as "95%"."""
        return f"{100 * (number(self.protocol['confidence']) or 0.95):.3g}%"

    @property
    def measure(self) -> str:
        """What the errors are, as the head of a column."""
        name = cut(self.protocol["measure"], 40) or "error"
        return name[0].upper() + name[1:]

    @property
    def measure_inside(self) -> str:
        """The same in a sentence."""
        name = cut(self.protocol["measure"], 40) or "error"
        return self.measure if self.higher_is_better else name

    @property
    def inside(self) -> str:
        """Where the method is selected."""
        return f"the training {self.noun}s" if self.fixed else "each fold"

    @property
    def higher_is_better(self) -> bool:
        """Whether what is shown is the share that an error lacks of one."""
        return bool(self.document["kind"] == "pairs")

    def level(self, error: Any) -> str:
        """An error as it is shown."""
        found = number(error)
        return percent(found if found is None or not self.higher_is_better else 1.0 - found)

    def levels(self, ends: Any) -> Any:
        """Both ends of the interval of an error as they are shown."""
        found = pair(ends)
        if found is None or not self.higher_is_better:
            return ends
        return [1.0 - found[1], 1.0 - found[0]]

    def said_interval(self, ends: Any, write: Callable[[Any], str] = percent) -> str:
        """Return an interval with its level."""
        text = interval(ends, write)
        return f"{self.confidence} CI {text}" if text else "no CI yet"

    def kind(self, method: Method) -> str:
        """Return what the interval of a gain shows: better, worse or unclear."""
        ends = pair(method["gain_interval"])
        if ends is None or ends[0] <= 0 <= ends[1]:
            return "unclear"
        return "better" if ends[0] > 0 else "worse"

    def folds_said(self, method: Method) -> str:
        """How many folds the numbers of a method rest on, of those planned."""
        used, common = method["folds_used"] or 0, self.document["common_folds"]
        planned = len(self.document["folds"]) or used
        done = {result["fold"] for result in method["results"]}
        shared = common and used == len(common) < planned and done.issuperset(common)
        # A narrow cell breaks it before "of", or not at all.
        of = f"of{SPACE}{planned:,}"
        return f"{used:,}{SPACE}common {of}" if shared else f"{used:,}{SPACE}{of}"

    def label(self, name: str) -> str:
        """Return the label of a method in a table, a figure or at the start of a sentence."""
        method = self.by_name.get(name)
        return cut(title_of(method["label"] or name, method["role"]) if method else name, 60)

    def label_inside(self, name: str) -> str:
        """Return the label of a method within a sentence."""
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
