"""Dynamic time warping between sets whose vectors are in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.distributions.set_pairs import two_sides
from nearfar.extras import require
from nearfar.parameters import check_parameter, integer, none
from nearfar.summaries.sets import Sets


def dtw_distances(
    A: Sets | ArrayLike,
    B: Sets | ArrayLike | None = None,
    *,
    window: int | None = None,
    n_jobs: int | None = None,
) -> Matrix:
    r"""Dynamic time warping between sequences, all pairs of one collection or of two.

    The vectors of a set are taken in their order, and two sequences compared along the best path
    :math:`\pi` that begins with both first vectors, ends with both last ones and goes on by one
    vector in either sequence or in both:

    .. math:: d = \left( \min_\pi \sum_{(i, j) \in \pi} \|x_i - z_j\|^2 \right)^{1/2} .

    It sees the order that sets forget, a rising tone from a falling one, whatever their speeds. It
    is no metric: the triangle inequality fails. It depends on the units of the features, and adds
    up over the path: long sequences are far from everything. tslearn computes it (``pip install
    nearfar[dtw]``).

    Parameters
    ----------
    A : Sets, or list of array-likes
        The rows.
    B : Sets, or list of array-likes, default=None
        The columns; A itself by default.
    window : int, default=None
        Sakoe and Chiba's radius: how far i and j on the path may differ, more if the lengths do.
        None sets no bound.
    n_jobs : int or None, default=None
        Processes of joblib; None means 1, -1 all cores.

    Returns
    -------
    ndarray of shape (n_A, n_B)
        Exactly symmetric and with a diagonal of zero if there is no B; for
        ``SetKNeighborsClassifier(metric="precomputed")``, or, through
        :func:`~nearfar.distributions.exponential_kernel`, for ``SVC(kernel="precomputed")``.

    Notes
    -----
    Cost: :math:`O(t^2 p)` a pair for sequences of t vectors. The first call compiles, for some
    seconds.

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
    left, right = two_sides(A, B)
    require("tslearn", "dtw")
    metrics = require("tslearn.metrics", "dtw")
    bound: dict[str, Any] = {}
    if window is not None:
        bound = {"global_constraint": "sakoe_chiba", "sakoe_chiba_radius": window}
    columns = None if right is None else _padded(right)
    D = metrics.cdist_dtw(_padded(left), columns, n_jobs=n_jobs, **bound)
    D = np.asarray(D, dtype=np.float64)
    if right is None:
        # Paths there and back differ by rounding.
        D = np.triu(D, 1)
        D = D + D.T
    return D


def _padded(sets: Sets) -> Matrix:
    """Sequences of one length, with NaN after the end, as tslearn has them."""
    sequences = np.full((len(sets), int(sets.sizes.max()), sets.n_features), np.nan)
    for k, rows in enumerate(sets):
        sequences[k, : len(rows)] = rows
    return sequences
