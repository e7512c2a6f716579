"""From raw data to neighbors in one Pipeline: a method at the setting and k to be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from nearfar.app.compare.explaining import keep_for_explaining
from nearfar.app.compare.methods import Method, Setting
from nearfar.neighbors.knn import KNNClassifier


@dataclass(frozen=True)
class Chosen:
    """A method at one of its settings."""

    method: Method
    setting: Setting
    #: How many neighbors vote; None where none do.
    k: int | None

    def words(self) -> str:
        """Setting and k, as far as there are such."""
        # The label of a standard distance names its setting.
        label = "" if self.method.role == "baseline" else self.setting.label
        return ", ".join(filter(None, [label, "" if self.k is None else f"k = {self.k}"]))

    def parameters(self) -> dict[str, Any]:
        """What of the learner must be said to mean this setting and no other of the method."""
        own = _parameters(self.setting)
        others = [_parameters(one) for one in self.method.settings]
        return {
            name: value
            for name, value in own.items()
            if any(repr(other.get(name, value)) != repr(value) for other in others)
        }


@dataclass(frozen=True)
class Chain:
    """What is to be used: the whole way from raw rows to neighbors, not yet fitted."""

    chosen: Chosen
    #: The first step, and before it what takes the columns in use from a table.
    prepare: Any
    select: Callable[[Any], Any]
    #: The last step of what neighbors answer, where the learner has none of its own.
    voter: type = field(default=KNNClassifier, kw_only=True)

    def pipeline(self) -> Pipeline:
        """Steps prepare, scale, reduce, learner, after and knn, as far as there are such."""
        setting, k = self.chosen.setting, self.chosen.k
        steps = setting.steps(self.prepare)
        if setting.neighbors and k is not None:  # such a one is the last: it has no map
            steps[-1][1].set_params(n_neighbors=k)
        elif k is not None:
            steps.append(("knn", self.voter(n_neighbors=k)))
        return Pipeline(steps)

    def fit(self, X: Any, y: Any = None) -> Pipeline:
        """The Pipeline, fitted to rows as they were compared: a table may have more columns.

        Images become flat rows, which is what the Pipeline takes.
        """
        if getattr(X, "ndim", 2) > 2:
            X = np.asarray(X).reshape(len(X), -1)
        return self.fitted(self.select(X), y)

    def fitted(self, rows: Any, y: Any = None) -> Pipeline:
        """The Pipeline, fitted to the columns in use."""
        chain = self.pipeline().fit(rows, y)
        keep_for_explaining(chain, rows)
        return chain


def chosen_by_folds(document: dict[str, Any], methods: Iterable[Method]) -> Chosen | None:
    """Return the recommended method, or the standard distance, as most folds selected it.

    Without tuning no fold selects, and the standard distance with the lowest error is returned.
    The setting is the most frequent one, and k the median of its folds. Returns None if no fold
    was completed.
    """
    entries = {entry["name"]: entry for entry in document["methods"]}
    common = set(document["common_folds"])
    name = document["best"]
    results = _results(entries.get(name), common)
    if not results:
        return None
    plain = Counter(result["baseline"] for result in results if "baseline" in result)
    if plain:
        name = plain.most_common(1)[0][0]
        if document["protocol"]["tuning"] == "k":
            able = [
                entry
                for entry in entries.values()
                if entry["role"] == "baseline" and len(_results(entry, common)) == len(common)
            ]
            name = min(able, key=lambda entry: entry["error"], default=entries[name])["name"]
        results = _results(entries[name], common)
    method = next(one for one in methods if one.name == name)
    label = Counter(result.get("setting") for result in results).most_common(1)[0][0]
    setting = next((one for one in method.settings if one.label == label), method.settings[0])
    ks = [r["k"] for r in results if r.get("setting") == label and r.get("k") is not None]
    return Chosen(method, setting, int(np.median(ks)) if ks else None)


def _results(entry: dict[str, Any] | None, folds: set[int]) -> list[dict[str, Any]]:
    results = [] if entry is None else entry["results"]
    return [result for result in results if result["fold"] in folds]


def _parameters(setting: Setting) -> dict[str, Any]:
    estimator = setting.estimator
    if not isinstance(estimator, BaseEstimator) or isinstance(estimator, Pipeline):
        return {}
    found: dict[str, Any] = estimator.get_params(deep=False)
    # Of what votes by itself the k is tuned.
    return {name: v for name, v in found.items() if name != "n_neighbors" or not setting.neighbors}
