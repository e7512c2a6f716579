"""Earth mover's distance between sets of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from nearfar.arrays import Floats, Matrix
from nearfar.blocks import map_in_order, resolve_n_threads
from nearfar.distributions.set_pairs import compute_distance_matrix, convert_sides
from nearfar.extras import import_optional
from nearfar.parameters import check_parameter, integer, none, real
from nearfar.summaries.sets import Sets


def emd_distances(
    A: Sets | ArrayLike,
    B: Sets | ArrayLike | None = None,
    *,
    power: float = 1.0,
    n_clusters: int | None = None,
    n_jobs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Matrix:
    r"""Compute the earth mover's distance between all pairs of sets, within A or between A and B.

    The mass of each set is distributed evenly over its vectors. The distance is the minimum cost of
    moving the mass of one set, with t vectors :math:`x_i`, to the other set, with s vectors
    :math:`z_j`:

    .. math:: d = \left( \min_{T \ge 0} \sum_{ij} T_{ij} \|x_i - z_j\|^q \right)^{1/q}, \qquad
              \sum_j T_{ij} = \tfrac1t, \quad \sum_i T_{ij} = \tfrac1s .

    It is a metric between the empirical distributions. It assumes no Gaussian and estimates no
    covariance, so it also suits sets with few vectors or with several clusters. It depends on the
    units of the features, so scale them first. POT solves the linear program (``pip install
    nearfar[ot]``).

    Parameters
    ----------
    A : Sets, or list of array-likes
        Sets, one per row of the result.
    B : Sets, or list of array-likes, default=None
        Sets, one per column of the result. None means A.
    power : float, default=1.0
        The power q, at least 1. The value 1 gives the earth mover's distance of [1]_. Larger values
        give long moves more weight.
    n_clusters : int, default=None
        Maximum number of vectors per set. The vectors of a larger set are replaced by this number
        of weighted k-means centers, the "signature" of the set. None uses all vectors.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.
    random_state : int, RandomState instance or None, default=None
        Seed of the random number generator for k-means.

    Returns
    -------
    ndarray of shape (n_A, n_B)
        Distances. Without B, the result is exactly symmetric with a zero diagonal. Use it with
        ``SetKNeighborsClassifier(metric="precomputed")``, or, after
        :func:`~nearfar.distributions.exponential_kernel`, with ``SVC(kernel="precomputed")``.

    Notes
    -----
    Cost: about :math:`O(t^3)` per pair of sets with t vectors, for example 50 ms for t = 500.

    References
    ----------
    .. [1] Y. Rubner, C. Tomasi, L. J. Guibas, "The earth mover's distance as a metric for image
       retrieval", 2000.

    Examples
    --------
    >>> from nearfar.distributions import emd_distances
    >>> emd_distances([[[0.0], [1.0]], [[2.0], [5.0]]])  # doctest: +SKIP
    array([[0., 3.],
           [3., 0.]])
    """
    check_parameter("emd_distances", "power", power, [real(1)])
    check_parameter("emd_distances", "n_clusters", n_clusters, [none, integer(1)])
    row_sets, column_sets = convert_sides(A, B)
    ot = import_optional("ot", "ot")
    row_signatures = _compute_signatures(row_sets, n_clusters, random_state, n_jobs)
    column_signatures = row_signatures
    if column_sets is not None:
        column_signatures = _compute_signatures(column_sets, n_clusters, random_state, n_jobs)

    def distance(i: int, j: int) -> float:
        (x, a), (z, b) = row_signatures[i], column_signatures[j]
        cost = cdist(x, z)
        # If one of the sets has a single vector, there is only one transport plan.
        if len(x) == 1 or len(z) == 1:
            return float((a @ cost**power @ b) ** (1 / power))
        # The solver's tolerance is absolute, so costs are divided by the largest cost.
        max_cost = cost.max() or 1.0
        value = ot.emd2(a, b, (cost / max_cost) ** power, numItermax=1_000_000)
        return float(max_cost * max(float(value), 0.0) ** (1 / power))

    return compute_distance_matrix(
        distance, len(row_sets), None if column_sets is None else len(column_sets), n_jobs
    )


def _compute_signatures(
    sets: Sets, n_clusters: int | None, random_state: Any, n_jobs: int | None
) -> list[tuple[Floats, Matrix]]:
    def compute_signature(rows: Floats) -> tuple[Floats, Matrix]:
        rows = np.asarray(rows, np.float64)
        if n_clusters is None or len(rows) <= n_clusters:
            return rows, np.full(len(rows), 1 / len(rows))
        kmeans = KMeans(n_clusters, n_init=1, random_state=random_state).fit(rows)
        weights = np.bincount(kmeans.labels_, minlength=n_clusters) / len(rows)
        return kmeans.cluster_centers_[weights > 0], weights[weights > 0]

    # With a shared generator, results depend on the order of draws, so only one thread is used.
    uses_shared_generator = isinstance(random_state, np.random.RandomState)
    return list(
        map_in_order(
            compute_signature, sets, 1 if uses_shared_generator else resolve_n_threads(n_jobs)
        )
    )
