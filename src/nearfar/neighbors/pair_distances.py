"""Distances between the points of pairs under a learned metric."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from nearfar.arrays import Vector
from nearfar.blocks import split_rows


def compute_learned_distances(learner: Any, pairs: NDArray[Any]) -> Vector:
    """Return the learned distance between the two points of each pair.

    ``pairs`` has shape (n_pairs, 2, n_features). The distance is the learner's own
    ``pair_distance`` if it has one, else the Euclidean distance after its ``transform``. In a
    Pipeline, the last step decides. If the learner is None, the distance is Euclidean.

    >>> import numpy as np
    >>> compute_learned_distances(None, np.array([[[0.0, 0.0], [3.0, 4.0]]])).tolist()
    [5.0]
    """
    if isinstance(learner, Pipeline):
        if len(learner.steps) > 1:
            pairs = _map_pairs(learner[:-1], pairs)
        learner = learner[-1]
    if hasattr(learner, "pair_distance"):
        return np.asarray(learner.pair_distance(pairs))
    distances = np.empty(len(pairs))
    for block in split_rows(len(pairs), 64 * pairs.shape[2]):
        mapped = pairs[block] if learner is None else _map_pairs(learner, pairs[block])
        differences = mapped[:, 0].astype(np.float64) - mapped[:, 1]
        distances[block] = np.linalg.norm(differences, axis=1)
    return distances


def _map_pairs(transformer: Any, pairs: NDArray[Any]) -> NDArray[Any]:
    points = np.asarray(transformer.transform(pairs.reshape(-1, pairs.shape[2])))
    return points.reshape(len(pairs), 2, -1)
