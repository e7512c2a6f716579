"""Clustering by the normalized cut of a similarity graph."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from nearfar.arrays import Indices, Matrix
from nearfar.solvers.eigen import descending_eigh

# Maximum number of points in the cut, which needs a dense matrix of affinities. Any other point
# gets the cluster of the nearest point in the cut.
_MAX_POINTS = 500
# Rank of the neighbor whose distance to a point is used as the scale of the point.
_SCALE_NEIGHBOR = 7


def cluster_by_normalized_cut(
    points: Matrix, n_clusters: int, random: np.random.RandomState
) -> Indices:
    r"""Cluster points by the relaxed normalized cut. Return the cluster number of each point.

    The affinities are :math:`A_{ij} = \exp(-d_{ij}^2 / (s_i s_j))`, where :math:`s_i` is the
    distance of point i to its seventh neighbor, and D is the diagonal matrix of their row sums. The
    rows of the leading eigenvectors of :math:`D^{-1/2} A D^{-1/2}` are scaled to unit length and
    clustered by k-means.

    With more than 500 points, a random sample is clustered, and each other point joins the cluster
    of its nearest neighbor in the sample. If points coincide, there may be fewer than
    ``n_clusters`` clusters.
    """
    n_clusters = min(n_clusters, len(np.unique(points[:: 1 + len(points) // _MAX_POINTS], axis=0)))
    if n_clusters < 2:
        return np.zeros(len(points), dtype=np.intp)
    if len(points) > _MAX_POINTS:
        sample = np.sort(random.choice(len(points), _MAX_POINTS, replace=False))
        labels = cluster_by_normalized_cut(points[sample], n_clusters, random)
        return labels[pairwise_distances_argmin(points, points[sample])]
    distances = cdist(points, points)
    rank = min(_SCALE_NEIGHBOR, len(points) - 1)
    scale = np.partition(distances, rank, axis=1)[:, rank]
    # A point with many identical copies has scale zero. Use the smallest positive distance instead.
    scale = np.maximum(scale, distances[distances > 0].min())
    affinity = np.exp(-(distances**2) / np.outer(scale, scale))
    root = 1 / np.sqrt(affinity.sum(axis=1))
    _, vectors = descending_eigh(root[:, None] * affinity * root, n_clusters)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    labels = KMeans(n_clusters, n_init=10, random_state=random).fit_predict(vectors)
    return np.unique(labels, return_inverse=True)[1].astype(np.intp).reshape(-1)
