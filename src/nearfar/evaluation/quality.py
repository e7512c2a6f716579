"""Measures of how well an embedding preserves neighborhoods.

All measures compare the ``n_neighbors`` nearest neighbors of each row in the inputs X with those in
the outputs Y. Let :math:`a = ||x_i - x_j||` and :math:`b = ||y_i - y_j||` for pairs (i, j) where j
is a neighbor of i.

- :func:`local_continuity` compares a and b for neighbors in the input.
- :func:`local_trust` compares a and b for neighbors in the output.
- :func:`neighborhood_intersection` is the fraction of neighbors that are the same in both.
- :func:`rank_trustworthiness` uses ranks of distances, as scikit-learn's ``trustworthiness`` does.

All of them range from 0 to 1 (best) and do not depend on the scale of Y. The neighbor search is
exact and processes blocks of rows; no n × n array is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.base import clone
from sklearn.utils import check_array, check_consistent_length, check_random_state

from nearfar.arrays import Indices, Matrix
from nearfar.blocks import compute_squared_distances, split_rows
from nearfar.parameters import check_parameter, integer, none, real
from nearfar.search.exact_search import kneighbors


def local_continuity(
    X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15, *, without_stretched: float = 0.0
) -> float:
    r"""Return how well an embedding preserves distances between neighbors in the input.

    Distances are compared up to one common scale s:

    .. math::
        C = 1 - \min_s \frac{\sum (s b - a)^2}{\sum a^2} = \frac{(\sum a b)^2}{\sum a^2 \sum b^2}

    over the pairs (i, j) with j among the nearest neighbors of i in X.

    A few pairs can dominate the result. Where a manifold nearly touches itself, a correct unfolding
    separates neighbors, and 0.2% of such pairs decreased the value from 0.99 to 0.56 on a Swiss
    roll. Compare the result with the value for ``without_stretched=0.01``.

    Cost: one neighbor search, at most O(n² p).

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs of the embedding.
    Y : array-like of shape (n_samples, n_components)
        Outputs of the embedding, one per row of X.
    n_neighbors : int, default=15
        Number of neighbors per row.
    without_stretched : float, default=0.0
        Fraction of the pairs to omit, in [0, 1): the pairs with the largest ratio of output to
        input distance.

    Returns
    -------
    float
        A number from 0 to 1. It is 0 if all outputs coincide.

    See Also
    --------
    local_trust : The same measure over neighbors in the output.
    rank_trustworthiness : A measure based on ranks instead of distances.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.9.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.evaluation import local_continuity
    >>> angle = np.linspace(0, 3, 50)
    >>> arc = np.c_[np.cos(angle), np.sin(angle)]
    >>> round(local_continuity(arc, angle[:, None], n_neighbors=5), 3)
    1.0
    """
    inputs, outputs = _check_inputs(X, Y, n_neighbors, without_stretched)
    lengths, near = kneighbors(inputs, n_neighbors=n_neighbors)
    return _compute_agreement(lengths, _compute_lengths(outputs, near), without_stretched)


def local_trust(
    X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15, *, without_stretched: float = 0.0
) -> float:
    r"""Return how well distances between neighbors in the output match their input distances.

    .. math:: T = \frac{(\sum a b)^2}{\sum a^2 \sum b^2}

    over the pairs (i, j) with j among the nearest neighbors of i in Y. T decreases when points
    that are far apart in X become neighbors in Y. T differs from the rank-based trustworthiness of
    Venna and Kaski, which is :func:`rank_trustworthiness`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs of the embedding.
    Y : array-like of shape (n_samples, n_components)
        Outputs of the embedding, one per row of X.
    n_neighbors : int, default=15
        Number of neighbors per row.
    without_stretched : float, default=0.0
        Fraction of the pairs to omit, in [0, 1): the pairs with the largest ratio of input to
        output distance.

    Returns
    -------
    float
        A number from 0 to 1. It is 0 if all outputs coincide.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.9.

    Examples
    --------
    Folding a line in the middle makes distant points neighbors:

    >>> import numpy as np
    >>> from nearfar.evaluation import local_trust
    >>> line = np.linspace(-1, 1, 40)[:, None]
    >>> local_trust(line, np.abs(line), n_neighbors=4) < 0.3
    True
    """
    inputs, outputs = _check_inputs(X, Y, n_neighbors, without_stretched)
    lengths, near = kneighbors(outputs, n_neighbors=n_neighbors)
    return _compute_agreement(lengths, _compute_lengths(inputs, near), without_stretched)


def neighborhood_intersection(X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15) -> float:
    r"""Return the fraction of neighbors that are the same in the input and the output.

    .. math:: N = \frac{1}{n l} \sum_i |N_X(i) \cap N_Y(i)|

    with :math:`l` neighbors per row. Its expected value for random outputs is
    :math:`l / (n - 1)`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs of the embedding.
    Y : array-like of shape (n_samples, n_components)
        Outputs of the embedding, one per row of X.
    n_neighbors : int, default=15
        Number of neighbors per row. Ties are broken by row index.

    Returns
    -------
    float
        A number from 0 to 1.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.9.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.evaluation import neighborhood_intersection
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> neighborhood_intersection(X, -3 * X[:, ::-1], n_neighbors=5)
    1.0
    """
    inputs, outputs = _check_inputs(X, Y, n_neighbors)
    _, near_inputs = kneighbors(inputs, n_neighbors=n_neighbors)
    _, near_outputs = kneighbors(outputs, n_neighbors=n_neighbors)
    return float(_find_shared(near_inputs, near_outputs).mean())


def rank_trustworthiness(X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15) -> float:
    r"""Return the rank-based trustworthiness of an embedding, computed without n × n arrays.

    .. math::
        1 - \frac{2}{n l (2n - 3l - 1)} \sum_i \sum_{j \in N_Y(i)} \max(0, r(i, j) - l)

    where :math:`r(i, j)` is the rank of j among the rows, ordered by their distance from i in X
    with ties broken by index. ``rank_trustworthiness(Y, X)`` is the continuity of Venna and Kaski.

    Cost: O(n² (p + r)) for the distances in p input and r output columns, and a sort of n numbers
    per row, in blocks of rows.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs of the embedding.
    Y : array-like of shape (n_samples, n_components)
        Outputs of the embedding, one per row of X.
    n_neighbors : int, default=15
        Number of neighbors per row. It must be less than half the number of rows.

    Returns
    -------
    float
        A number from 0 to 1.

    See Also
    --------
    sklearn.manifold.trustworthiness : The same measure, computed with n × n arrays.

    References
    ----------
    .. [1] Venna, J., and S. Kaski, "Neighborhood preservation in nonlinear projection methods",
       ICANN 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.evaluation import rank_trustworthiness
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> rank_trustworthiness(X, X, n_neighbors=5)
    1.0
    """
    inputs, outputs = _check_inputs(X, Y, n_neighbors)
    n = len(inputs)
    if 2 * n_neighbors >= n:
        raise ValueError(
            f"n_neighbors={n_neighbors} must be less than half the number of rows, {n}."
        )
    _, near = kneighbors(outputs, n_neighbors=n_neighbors)
    centered = inputs - inputs.mean(axis=0)
    excess = 0
    for block in split_rows(n, 24 * n, max_rows=512):
        excess += int(
            np.maximum(_compute_ranks(centered, block, near[block]) - n_neighbors, 0).sum()
        )
    return 1.0 - excess * 2.0 / (n * n_neighbors * (2 * n - 3 * n_neighbors - 1))


def embedding_quality(X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15) -> dict[str, float]:
    """Return all distance-based quality measures of an embedding.

    The measures share one neighbor search in the inputs and one in the outputs.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs of the embedding.
    Y : array-like of shape (n_samples, n_components)
        Outputs of the embedding, one per row of X.
    n_neighbors : int, default=15
        Number of neighbors per row.

    Returns
    -------
    dict
        "continuity"
            :func:`local_continuity`.
        "continuity_without_stretched"
            :func:`local_continuity` without the 1% most stretched pairs.
        "trust"
            :func:`local_trust`.
        "intersection"
            :func:`neighborhood_intersection`.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.evaluation import embedding_quality
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> embedding_quality(X, 2 * X)["intersection"]
    1.0
    """
    inputs, outputs = _check_inputs(X, Y, n_neighbors)
    input_neighbors, output_neighbors = (
        kneighbors(points, n_neighbors=n_neighbors) for points in (inputs, outputs)
    )
    return _compute_measures(
        input_neighbors,
        output_neighbors,
        _compute_lengths(outputs, input_neighbors[1]),
        _compute_lengths(inputs, output_neighbors[1]),
    )


def dissimilarity_quality(D: ArrayLike, Y: ArrayLike, n_neighbors: int = 15) -> dict[str, float]:
    """Return the measures of :func:`embedding_quality` for a dissimilarity matrix D.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.spatial.distance import cdist
    >>> from nearfar.evaluation.quality import dissimilarity_quality
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> dissimilarity_quality(cdist(X, X), 2 * X)["intersection"]
    1.0
    """
    pairs = np.array(D, dtype=np.float64)
    _, outputs = _check_inputs(pairs, Y, n_neighbors)
    np.fill_diagonal(pairs, np.inf)
    rows = np.argsort(pairs, axis=1, kind="stable")[:, :n_neighbors]
    input_neighbors = np.take_along_axis(pairs, rows, axis=1), rows
    output_neighbors = kneighbors(outputs, n_neighbors=n_neighbors)
    input_lengths = np.take_along_axis(pairs, output_neighbors[1], axis=1)
    return _compute_measures(
        input_neighbors, output_neighbors, _compute_lengths(outputs, rows), input_lengths
    )


def held_out_quality(
    X: ArrayLike,
    Y: ArrayLike,
    X_new: ArrayLike,
    Y_new: ArrayLike,
    n_neighbors: int = 15,
) -> dict[str, float]:
    """Return quality measures of an embedding for new rows that were not used to fit it.

    The neighbors of a new row are searched among the fitted rows, in the inputs and in the outputs.
    The result shows how well the embedding generalizes: fitting the training rows closely does not
    improve it by itself.

    Cost: O(m n (p + r)) for m new rows and r components, in blocks of rows, plus O(m n l) for the
    ranks of l neighbors.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs on which the embedding was fitted.
    Y : array-like of shape (n_samples, n_components)
        Outputs of the rows of X.
    X_new : array-like of shape (n_new, n_features)
        New inputs.
    Y_new : array-like of shape (n_new, n_components)
        Outputs of ``transform`` for the new inputs.
    n_neighbors : int, default=15
        Number of neighbors per new row.

    Returns
    -------
    dict
        The measures of :func:`embedding_quality`, and "rank_trust", the
        :func:`rank_trustworthiness` of the new rows. "rank_trust" is NaN if ``n_neighbors`` is at
        least half the number of rows of X.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import PCA
    >>> from nearfar.evaluation import held_out_quality
    >>> X = np.random.default_rng(0).normal(size=(120, 3)) * [5, 3, 0.01]
    >>> pca = PCA(2).fit(X[:100])
    >>> Y = pca.transform(X)
    >>> quality = held_out_quality(X[:100], Y[:100], X[100:], Y[100:])
    >>> quality["intersection"] > 0.98
    True
    """
    inputs, outputs = _check_inputs(X, Y, n_neighbors)
    new_inputs = check_array(X_new, dtype=[np.float64, np.float32], input_name="X_new")
    new_outputs = check_array(Y_new, dtype=[np.float64, np.float32], input_name="Y_new")
    if len(new_inputs) != len(new_outputs):
        raise ValueError(
            f"X_new has {len(new_inputs)} rows but Y_new has {len(new_outputs)}; they must match."
        )
    for name, fitted, new in (("X", inputs, new_inputs), ("Y", outputs, new_outputs)):
        if fitted.shape[1] != new.shape[1]:
            raise ValueError(
                f"{name} has {fitted.shape[1]} columns but {name}_new has {new.shape[1]}; they "
                "must match."
            )
    input_neighbors = kneighbors(inputs, new_inputs, n_neighbors=n_neighbors)
    output_neighbors = kneighbors(outputs, new_outputs, n_neighbors=n_neighbors)
    output_lengths = _compute_lengths(outputs, input_neighbors[1], new_outputs)
    input_lengths = _compute_lengths(inputs, output_neighbors[1], new_inputs)
    return _compute_measures(input_neighbors, output_neighbors, output_lengths, input_lengths) | {
        "rank_trust": _compute_new_rank_trust(inputs, new_inputs, output_neighbors[1])
    }


def compute_intersections(
    X: NDArray[Any],
    Y: NDArray[Any],
    counts: Sequence[int],
    queries: tuple[NDArray[Any], NDArray[Any]] | Indices,
) -> dict[int, float]:
    """Return :func:`neighborhood_intersection` for several numbers of neighbors.

    X and Y are the inputs and outputs of the fitted rows, among which neighbors are searched once
    in each space. ``queries`` is either a tuple (inputs, outputs) of new rows, or indices of fitted
    rows. A fitted row is not its own neighbor.
    """
    max_count = max(counts)
    if isinstance(queries, tuple):
        neighbors = [
            kneighbors(points, new, n_neighbors=max_count)[1]
            for points, new in zip((X, Y), queries, strict=True)
        ]
    else:
        neighbors = [
            _remove_self(kneighbors(points, points[queries], n_neighbors=max_count + 1)[1], queries)
            for points in (X, Y)
        ]
    return {
        count: float(_find_shared(neighbors[0][:, :count], neighbors[1][:, :count]).mean())
        for count in counts
    }


def procrustes_error(
    U: ArrayLike,
    V: ArrayLike,
    *,
    by: Literal["rotation", "similarity", "linear"] = "rotation",
    relative: bool = True,
) -> float:
    r"""Return the distance between two configurations of points after the best alignment.

    .. math:: \min_Q \frac{||U - V Q||_F}{||U||_F}

    Both configurations are centered first. The error is 0 if they are equal up to alignment. If
    they differ in the number of columns, the narrower one is padded with zeros.

    Parameters
    ----------
    U, V : array-like of shape (n_samples, n_dimensions)
        The target configuration, and the configuration that is aligned with it.
    by : {"rotation", "similarity", "linear"}, default="rotation"
        The set of allowed matrices Q. "rotation" allows rotations and reflections, "similarity"
        also allows a common scale, and "linear" allows any matrix.
    relative : bool, default=True
        Whether to divide the error :math:`||U - V Q||_F` by :math:`||U||_F`.

    Returns
    -------
    float
        The error. It is at most 1 for "similarity" and "linear" if ``relative=True``.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.10,
       which does not specify the set of allowed Q.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.evaluation import procrustes_error
    >>> U = np.random.default_rng(0).normal(size=(30, 2))
    >>> V = U @ [[0, 1], [-1, 0]] + 5
    >>> bool(procrustes_error(U, V) < 1e-12)
    True
    >>> round(procrustes_error(U, 2 * V), 3), round(procrustes_error(U, 2 * V, by="similarity"), 3)
    (1.0, 0.0)
    """
    if by not in ("rotation", "similarity", "linear"):
        raise ValueError(f"by must be 'rotation', 'similarity' or 'linear'; got {by!r}.")
    A, B = (
        check_array(item, dtype=np.float64, input_name=name) for item, name in ((U, "U"), (V, "V"))
    )
    check_consistent_length(A, B)
    size = np.abs(A - A.mean(axis=0)).max()
    if relative and size == 0:
        raise ValueError(
            "All rows of U are equal, so the relative error is undefined. Pass relative=False."
        )
    scale = max(size, np.abs(B - B.mean(axis=0)).max(), np.finfo(float).tiny)
    A, B = (A - A.mean(axis=0)) / scale, (B - B.mean(axis=0)) / scale
    width = max(A.shape[1], B.shape[1])
    A, B = (np.pad(M, ((0, 0), (0, width - M.shape[1]))) for M in (A, B))
    error = float(np.linalg.norm(A - _align(A, B, by)))
    return error / float(np.linalg.norm(A)) if relative else error * float(scale)


def out_of_sample_consistency(
    estimator: Any,
    X: ArrayLike,
    *,
    n_held_out: int | None = None,
    n_trials: int = 10,
    by: Literal["rotation", "similarity", "linear"] = "rotation",
    random_state: int | np.random.RandomState | None = None,
) -> dict[str, Any]:
    r"""Return how consistently an embedding places new points, compared with fitted points.

    Each trial splits the rows at random into A and B, which have equal size, and C. The result is
    the ratio of two errors of :func:`procrustes_error` (not relative),

    .. math:: \frac{err(\hat Y_C^A, \hat Y_C^B)}{err(Y_C^{AC}, Y_C^{BC})}

    The numerator compares the outputs of ``transform`` for C after a fit to A and after a fit to B.
    The denominator compares the embeddings of C in fits to A ∪ C and to B ∪ C. A ratio of 1 means
    that new points are placed as consistently as fitted points.

    Cost: four fits per trial.

    Parameters
    ----------
    estimator : estimator
        An estimator with ``fit`` and ``transform``, which is cloned. The outputs of fitted rows are
        read from the attribute ``embedding_``, in the order of the rows. If this attribute does not
        exist, the outputs are computed with ``transform``.
    X : array-like of shape (n_samples, n_features)
        The data.
    n_held_out : int or None, default=None
        Number of held-out rows, which form the set C. None means a tenth of the rows.
    n_trials : int, default=10
        Number of random splits.
    by : {"rotation", "similarity", "linear"}, default="rotation"
        Allowed alignments; see :func:`procrustes_error`.
    random_state : int, RandomState or None, default=None
        Seed of the random splits.

    Returns
    -------
    dict
        "ratio"
            Harmonic mean of the ratios of the trials.
        "ratios"
            Ratio of each trial.
        "new", "fitted"
            Numerators and denominators of the ratios.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.10,
       equation 3.34 and figure 3.23.

    Examples
    --------
    A linear transformation places new points as it places fitted points:

    >>> import numpy as np
    >>> from nearfar import PCA
    >>> from nearfar.evaluation import out_of_sample_consistency
    >>> X = np.random.default_rng(0).normal(size=(300, 3)) * [5, 3, 1]
    >>> result = out_of_sample_consistency(PCA(2), X, n_trials=3, random_state=0)
    >>> 0.5 < result["ratio"] < 2
    True
    """
    rows = check_array(X, dtype=[np.float64, np.float32], ensure_min_samples=4)
    n = len(rows)
    check_parameter("out_of_sample_consistency", "n_trials", n_trials, [integer(1)])
    check_parameter("out_of_sample_consistency", "n_held_out", n_held_out, [none, integer(1)])
    n_new = max(1, n // 10) if n_held_out is None else n_held_out
    if n_new > n - 2:
        raise ValueError(
            f"n_held_out={n_new} is too large for {n} rows; at least two other rows are needed."
        )
    random = check_random_state(random_state)
    half = (n - n_new) // 2
    new, fitted = np.empty(n_trials), np.empty(n_trials)
    for trial in range(n_trials):
        order = random.permutation(n)
        C, A, B = np.split(order[: n_new + 2 * half], [n_new, n_new + half])
        new_outputs = [
            clone(estimator).fit(rows[half_rows]).transform(rows[C]) for half_rows in (A, B)
        ]
        fitted_outputs = [
            _embed_rows(estimator, rows[np.append(half_rows, C)])[half:] for half_rows in (A, B)
        ]
        new[trial] = procrustes_error(*new_outputs, by=by, relative=False)
        fitted[trial] = procrustes_error(*fitted_outputs, by=by, relative=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(new == fitted, 1.0, new / fitted)
        ratio = float(1.0 / np.mean(1.0 / ratios))
    return {"ratio": ratio, "ratios": ratios, "new": new, "fitted": fitted}


def _check_inputs(
    X: ArrayLike, Y: ArrayLike, n_neighbors: int, without_stretched: float = 0.0
) -> tuple[NDArray[Any], NDArray[Any]]:
    inputs = check_array(X, dtype=[np.float64, np.float32], input_name="X")
    outputs = check_array(Y, dtype=[np.float64, np.float32], input_name="Y")
    if len(inputs) != len(outputs):
        raise ValueError(f"X has {len(inputs)} rows but Y has {len(outputs)}; they must match.")
    check_parameter("quality", "n_neighbors", n_neighbors, [integer(1)])
    if n_neighbors >= len(inputs):
        raise ValueError(
            f"n_neighbors={n_neighbors} must be less than the number of rows, {len(inputs)}."
        )
    check_parameter("quality", "without_stretched", without_stretched, [real(0, 1)])
    if without_stretched == 1:
        raise ValueError("without_stretched=1 omits all pairs; it must be less than 1.")
    return _rescale_tiny(inputs), _rescale_tiny(outputs)


def _rescale_tiny(points: NDArray[Any]) -> NDArray[Any]:
    """Rescale tiny points so that squares do not underflow. No measure depends on the scale."""
    size = float(np.abs(points).max())
    return points / size if 0 < size < 1e-100 else points


def _compute_lengths(
    points: NDArray[Any], neighbors: Indices, queries: NDArray[Any] | None = None
) -> Matrix:
    """Return the distances from each query to its neighbors. By default, each row is a query."""
    lengths = np.empty(neighbors.shape)
    origins = points if queries is None else queries
    for block in split_rows(len(origins), 16 * neighbors.shape[1] * points.shape[1]):
        differences = points[neighbors[block]].astype(np.float64) - origins[block, None]
        # The norm cannot overflow, because the neighbor search rejects points that are too large.
        lengths[block] = np.linalg.norm(differences, axis=2)
    return lengths


def _compute_measures(
    input_neighbors: tuple[Matrix, Indices],
    output_neighbors: tuple[Matrix, Indices],
    output_lengths: Matrix,
    input_lengths: Matrix,
) -> dict[str, float]:
    """Return the measures of :func:`embedding_quality`.

    ``output_lengths`` are the distances, in the output, from each row to its neighbors in the
    input. ``input_lengths`` are the distances, in the input, from each row to its neighbors in the
    output.
    """
    return {
        "continuity": _compute_agreement(input_neighbors[0], output_lengths, 0.0),
        "continuity_without_stretched": _compute_agreement(
            input_neighbors[0], output_lengths, 0.01
        ),
        "trust": _compute_agreement(output_neighbors[0], input_lengths, 0.0),
        "intersection": float(_find_shared(input_neighbors[1], output_neighbors[1]).mean()),
    }


def _compute_agreement(lengths: Matrix, other_lengths: Matrix, omitted_fraction: float) -> float:
    """Return the squared cosine similarity of two arrays of edge lengths.

    The pairs with the largest stretch, a fraction ``omitted_fraction`` of all pairs, are omitted.
    """
    a, b = lengths.ravel(), other_lengths.ravel()
    n_kept = a.size - int(omitted_fraction * a.size)
    if n_kept < a.size:
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch = np.where(b > 0, b / a, 0.0)
        smallest = np.argsort(stretch, kind="stable")[:n_kept]
        a, b = a[smallest], b[smallest]
    if a.max() == 0 or b.max() == 0:
        return 1.0 if a.max() == b.max() else 0.0
    a, b = a / a.max(), b / b.max()
    return float(min(1.0, (a @ b) ** 2 / ((a @ a) * (b @ b))))


def _remove_self(neighbors: Indices, rows: Indices) -> Indices:
    """Remove each row from its own list of neighbors.

    If a row is not in its list, remove the last neighbor.

    A row can be missing from its own list if it has many identical copies.
    """
    is_other = neighbors != rows[:, None]
    is_other[is_other.all(axis=1), -1] = False
    return neighbors[is_other].reshape(len(neighbors), -1)


def _find_shared(neighbors: Indices, other_neighbors: Indices) -> NDArray[np.bool_]:
    """Return a mask of the ``neighbors`` that are also in the same row of ``other_neighbors``."""
    is_shared = np.empty(neighbors.shape, dtype=bool)
    for block in split_rows(len(neighbors), neighbors.shape[1] * other_neighbors.shape[1]):
        is_shared[block] = (neighbors[block, :, None] == other_neighbors[block, None, :]).any(
            axis=2
        )
    return is_shared


def _compute_ranks(points: NDArray[Any], block: slice, columns: Indices) -> NDArray[np.intp]:
    """Rank points by their distance from each row of a block, and return the ranks of ``columns``.

    The nearest other point has rank 1.
    """
    rows = np.arange(block.start, block.stop)
    distances = compute_squared_distances(points[block], points)
    distances[np.arange(len(rows)), rows] = -1.0
    order = np.argsort(distances, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(points))[None], axis=1)
    return np.take_along_axis(ranks, columns, axis=1)


def _compute_new_rank_trust(
    points: NDArray[Any], queries: NDArray[Any], neighbors: Indices
) -> float:
    """Return the rank-based trustworthiness of new rows whose neighbors are fitted rows."""
    n, l_ = len(points), neighbors.shape[1]
    if 2 * l_ >= n:
        return float("nan")
    center = points.mean(axis=0)
    centered, centered_queries = points - center, queries - center
    excess = 0
    for block in split_rows(len(centered_queries), (16 + l_) * n):
        distances = compute_squared_distances(centered_queries[block], centered)
        neighbor_distances = np.take_along_axis(distances, neighbors[block], axis=1)
        # The rank is 1 plus the number of closer rows, so tied rows share the best rank.
        ranks = 1 + (distances[:, None] < neighbor_distances[:, :, None]).sum(axis=2)
        excess += int(np.maximum(ranks - l_, 0).sum())
    # In the worst case, the l neighbors of a row have the last l of n ranks. The excess of the row
    # is then l (2n - 3l + 1) / 2.
    return 1.0 - excess * 2.0 / (len(centered_queries) * l_ * (2 * n - 3 * l_ + 1))


def _align(A: Matrix, B: Matrix, by: str) -> Matrix:
    if by == "linear":
        return np.asarray(B @ linalg.lstsq(B, A)[0])
    U, singular_values, Vt = linalg.svd(B.T @ A)
    aligned = B @ (U @ Vt)
    square = float(np.sum(B * B))
    if by == "similarity" and square > 0:
        aligned *= float(singular_values.sum()) / square
    return np.asarray(aligned)


def _embed_rows(estimator: Any, rows: NDArray[Any]) -> NDArray[Any]:
    fitted = clone(estimator).fit(rows)
    has_embedding = hasattr(fitted, "embedding_")
    return np.asarray(fitted.embedding_ if has_embedding else fitted.transform(rows))
