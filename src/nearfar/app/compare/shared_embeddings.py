"""Embeddings of sets that differ only in their dimension, computed once while settings are tuned.

Their cost is that of the dissimilarities, and the first q coordinates of an embedding in more
dimensions are the embedding in q.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from nearfar.app.compare.methods import Setting
from nearfar.arrays import Floats
from nearfar.distributions.set_embedding import SetEmbedding
from nearfar.summaries.sets import Sets


class SharedEmbeddings:
    """Coordinates of the sets of each split, shared by settings that begin with one embedding.

    Scale and ridge come from the training sets of the split, as without sharing: what is chosen
    is the same, only sooner.

    Parameters
    ----------
    settings : iterable of Setting
        Those to be tried on every split.
    """

    def __init__(self, settings: Iterable[Setting]) -> None:
        self._widest: dict[str, SetEmbedding] = {}
        for setting in settings:
            first = _first(setting)
            if first is not None:
                widest = self._widest.setdefault(_key(first), first)
                if _dimension(first) > _dimension(widest):
                    self._widest[_key(first)] = first
        self._placed: dict[tuple[str, bytes, bytes], tuple[Floats, Floats]] = {}

    def after(
        self, setting: Setting, X: Sets, train: NDArray[np.intp], test: NDArray[np.intp]
    ) -> tuple[Setting, Any, Any]:
        """What follows the embedding, and both parts embedded; all as it is where there is none."""
        first = _first(setting)
        if first is None:
            return setting, X[train], X[test]
        split = (_key(first), train.tobytes(), test.tobytes())
        if split not in self._placed:
            learner = clone(self._widest[split[0]])
            self._placed[split] = (learner.fit_transform(X[train]), learner.transform(X[test]))
        known, new = (part[:, : _dimension(first)] for part in self._placed[split])
        return replace(setting, estimator=_rest(setting.estimator)), known, new


def _first(setting: Setting) -> SetEmbedding | None:
    """The embedding that a setting begins with, if its first coordinates can be taken."""
    first = setting.estimator
    if isinstance(first, Pipeline):
        first = first.steps[0][1]
    if not isinstance(setting.scale, str) or type(first) is not SetEmbedding:
        return None
    shares = first.embedding == "euclidean" and isinstance(first.n_components, Integral)
    return first if shares else None


def _dimension(embedding: SetEmbedding) -> int:
    return int(embedding.n_components)


def _rest(estimator: Any) -> Any:
    if isinstance(estimator, Pipeline) and len(estimator.steps) > 1:
        return Pipeline(estimator.steps[1:])
    return "passthrough"


def _key(embedding: SetEmbedding) -> str:
    """All that its dissimilarities depend on."""
    given = embedding.get_params(deep=False)
    return repr(sorted((name, given[name]) for name in given if name != "n_components"))
