"""Dynamic time warping between sets whose vectors are ordered."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.distributions.set_pairs import convert_sides
from nearfar.extras import import_optional
from nearfar.parameters import check_parameter, integer, none
from nearfar.summaries.sets import Sets


def dtw_distances(
    A: Sets | ArrayLike,
    B: Sets | ArrayLike | None = None,
    *,
    window: int | None = None,
    n_jobs: int | None = None,
) -> Matrix:
    r"""Compute dynamic time warping distances between sequences, within A or between A and B.

    The vectors of a set are used in their order. Two sequences are compared along the best path
    :math:`\pi`, which begins with both first vectors, ends with both last vectors, and advances by
    one vector in either sequence or in both:

    .. math:: d = \left( \min_\pi \sum_{(i, j) \in \pi} \|x_i - z_j\|^2 \right)^{1/2} .

    Unlike distances between sets, it uses the order of the vectors: it distinguishes a rising tone
    from a falling one, independent of their speeds. It is not a metric, because it can violate the
    triangle inequality. It depends on the units of the features, and it is a sum over the path, so
    long sequences have large distances to all others. tslearn computes it (``pip install
    nearfar[dtw]``).

    Parameters
    ----------
    A : Sets, or list of array-likes
        Sequences, one per row of the result.
    B : Sets, or list of array-likes, default=None
        Sequences, one per column of the result. None means A.
    window : int, default=None
        Sakoe-Chiba radius: maximum difference between i and j on the path. Larger differences are
        allowed for sequences of different lengths. None sets no limit.
    n_jobs : int or None, default=None
        Number of joblib processes. None means 1 and -1 means all cores.

    Returns
    -------
    ndarray of shape (n_A, n_B)
        Distances. Without B, the result is exactly symmetric with a zero diagonal. Use it with
        ``SetKNeighborsClassifier(metric="precomputed")``, or, after
        :func:`~nearfar.distributions.exponential_kernel`, with ``SVC(kernel="precomputed")``.

    Notes
    -----
    Cost: :math:`O(t^2 p)` per pair of sequences with t vectors. The first call takes some seconds
    longer, because tslearn compiles its code.

    References
    ----------
    .. [1] H. Sakoe, S. Chiba, "Dynamic programming algorithm optimization for spoken word
       recognition", 1978.

    Examples
    --------
    >>> from nearfar.distributions import dtw_distances
    >>> rising, slow, falling = [[0.0], [1.0]], [[0.0], [0.0], [1.0]], [[1.0], [0.0]]
    >>> dtw_distances([rising], [slow, falling])  # doctest: +SKIP
    array([[0.        , 1.41421356]])
    """
    check_parameter("dtw_distances", "window", window, [none, integer(1)])
    row_sets, column_sets = convert_sides(A, B)
    import_optional("tslearn", "dtw")
    metrics = import_optional("tslearn.metrics", "dtw")
    constraint: dict[str, Any] = {}
    if window is not None:
        constraint = {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": window}
    columns = None if column_sets is None else _pad_sequences(column_sets)
    D = metrics.cdist_dtw(_pad_sequences(row_sets), columns, n_jobs=n_jobs, **constraint)
    D = np.asarray(D, dtype=np.float64)
    if column_sets is None:
        # The results for (i, j) and (j, i) can differ by rounding errors, so the upper triangle is
        # used for both.
        D = np.triu(D, 1)
        D = D + D.T
    return D


def _pad_sequences(sets: Sets) -> Matrix:
    """Pad the sequences with NaN to equal length, as tslearn expects them."""
    sequences = np.full((len(sets), int(sets.sizes.max()), sets.n_features), np.nan)
    for k, rows in enumerate(sets):
        sequences[k, : len(rows)] = rows
    return sequences
