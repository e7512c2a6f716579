"""Clusters by the normalised cut of a graph of similarities."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from nearfar.arrays import Indices, Matrix
from nearfar.solvers.eigen import descending_eigh

# Points that are cut at most: the affinities are a dense matrix. Others follow the nearest of them.
_CUT = 500
# The distance to this neighbour is a point's own scale.
_SCALE_NEIGHBOR = 7


def normalized_cut(points: Matrix, n_clusters: int, random: np.random.RandomState) -> Indices:
    r"""The cluster of each point, numbered from 0.

    With affinities :math:`A_{ij} = \exp(-d_{ij}^2 / (s_i s_j))`, :math:`s_i` being the distance to
    the seventh neighbour, the relaxed normalised cut: the leading eigenvectors of :math:`D^{-1/2} A
    D^{-1/2}`, rows brought to unit length, then k-means.

    Of more than 500 points a random sample is cut, and the others join their nearest neighbour in
    it. There may be fewer clusters than asked for, where points coincide.
    """
    n_clusters = min(n_clusters, len(np.unique(points[:: 1 + len(points) // _CUT], axis=0)))
    if n_clusters < 2:
        return np.zeros(len(points), dtype=np.intp)
    if len(points) > _CUT:
        sample = np.sort(random.choice(len(points), _CUT, replace=False))
        labels = normalized_cut(points[sample], n_clusters, random)
        return labels[pairwise_distances_argmin(points, points[sample])]
    distances = cdist(points, points)
    rank = min(_SCALE_NEIGHBOR, len(points) - 1)
    scale = np.partition(distances, rank, axis=1)[:, rank]
    # Among many equal points the scale is zero; the least positive distance does as well.
    scale = np.maximum(scale, distances[distances > 0].min())
    affinity = np.exp(-(distances**2) / np.outer(scale, scale))
    root = 1 / np.sqrt(affinity.sum(axis=1))
    _, vectors = descending_eigh(root[:, None] * affinity * root, n_clusters)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    found = KMeans(n_clusters, n_init=10, random_state=random).fit_predict(vectors)
    return np.unique(found, return_inverse=True)[1].astype(np.intp).reshape(-1)
