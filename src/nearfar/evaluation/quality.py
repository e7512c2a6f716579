"""How well an embedding keeps neighbourhoods.

With the ``n_neighbors`` nearest rows of each point among the inputs X and among the outputs Y, and
the lengths :math:`a = ||x_i - x_j||`, :math:`b = ||y_i - y_j||` of pairs (i, j) where j is a
neighbour of i: :func:`local_continuity` asks whether neighbours stayed as they were,
:func:`local_trust` whether the neighbours one sees are neighbours,
:func:`neighborhood_intersection` how many are both. All are from 0 to 1, 1 the best, and do not
depend on the scale of Y. They look at lengths; :func:`rank_trustworthiness` looks at ranks, as
scikit-learn's measure of that name does.

Neighbours are sought exactly, in blocks; nothing of size n × n is kept.
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
from nearfar.blocks import row_blocks, squared_distances
from nearfar.parameters import check_parameter, integer, none, real
from nearfar.search.exact_search import kneighbors


def local_continuity(
    X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15, *, without_stretched: float = 0.0
) -> float:
    r"""How well lengths between neighbours of the input are kept, but for one common scale.

    .. math::
        C = 1 - \min_s \frac{\sum (s b - a)^2}{\sum a^2} = \frac{(\sum a b)^2}{\sum a^2 \sum b^2}

    over the pairs (i, j) with j among the neighbours of i in X.

    A few pairs decide it: where a manifold nearly touches itself, a correct unfolding must tear
    neighbours apart, and 0.2 % of such pairs brought it from 0.99 to 0.56 on a Swiss roll. Look at
    it also with ``without_stretched=0.01``.

    Cost: two searches for neighbours, O(n² (p + r)) at most.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs.
    Y : array-like of shape (n_samples, n_components)
        Outputs, row by row those of X.
    n_neighbors : int, default=15
        Neighbours of each point.
    without_stretched : float, default=0.0
        Share of the pairs to leave out, those with the largest b / a; from 0 to below 1.

    Returns
    -------
    float
        From 0 to 1; 0 when all outputs coincide.

    See Also
    --------
    local_trust : The same over neighbours of the output.
    rank_trustworthiness : By ranks.

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
    inputs, outputs = _check(X, Y, n_neighbors, without_stretched)
    lengths, near = kneighbors(inputs, n_neighbors=n_neighbors)
    return _agreement(lengths, _lengths(outputs, near), without_stretched)


def local_trust(
    X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15, *, without_stretched: float = 0.0
) -> float:
    r"""How far lengths between neighbours of the output are those of the input.

    .. math:: T = \frac{(\sum a b)^2}{\sum a^2 \sum b^2}

    over the pairs (i, j) with j among the neighbours of i in Y. It falls when points come to lie
    together that were far apart. Not the rank-based trustworthiness of Venna and Kaski, which is
    :func:`rank_trustworthiness`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs.
    Y : array-like of shape (n_samples, n_components)
        Outputs, row by row those of X.
    n_neighbors : int, default=15
        Neighbours of each point.
    without_stretched : float, default=0.0
        Share of the pairs to leave out, those with the largest a / b; from 0 to below 1.

    Returns
    -------
    float
        From 0 to 1; 0 when all outputs coincide.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.9.

    Examples
    --------
    Points of a line folded in the middle are as near as they look on one side only:

    >>> import numpy as np
    >>> from nearfar.evaluation import local_trust
    >>> line = np.linspace(-1, 1, 40)[:, None]
    >>> local_trust(line, np.abs(line), n_neighbors=4) < 0.3
    True
    """
    inputs, outputs = _check(X, Y, n_neighbors, without_stretched)
    lengths, near = kneighbors(outputs, n_neighbors=n_neighbors)
    return _agreement(lengths, _lengths(inputs, near), without_stretched)


def neighborhood_intersection(X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15) -> float:
    r"""The share of neighbours that are the same in input and output.

    .. math:: N = \frac{1}{n l} \sum_i |N_X(i) \cap N_Y(i)|

    with :math:`l` neighbours of each point; at random it is :math:`l / (n - 1)`.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs.
    Y : array-like of shape (n_samples, n_components)
        Outputs, row by row those of X.
    n_neighbors : int, default=15
        Neighbours of each point; of points at one distance the first are taken.

    Returns
    -------
    float
        From 0 to 1.

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
    inputs, outputs = _check(X, Y, n_neighbors)
    _, near_inputs = kneighbors(inputs, n_neighbors=n_neighbors)
    _, near_outputs = kneighbors(outputs, n_neighbors=n_neighbors)
    return float(_shared(near_inputs, near_outputs).mean())


def rank_trustworthiness(X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15) -> float:
    r"""Trustworthiness by ranks, as scikit-learn computes it, without its n × n arrays.

    .. math::
        1 - \frac{2}{n l (2n - 3l - 1)} \sum_i \sum_{j \in N_Y(i)} \max(0, r(i, j) - l)

    with :math:`r(i, j)` the rank of j among the rows by their distance from i in X, ties by index.
    ``rank_trustworthiness(Y, X)`` is the continuity of Venna and Kaski.

    Cost: O(n² p) and O(n² l), in blocks.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs.
    Y : array-like of shape (n_samples, n_components)
        Outputs, row by row those of X.
    n_neighbors : int, default=15
        Neighbours of each point, fewer than half the rows.

    Returns
    -------
    float
        From 0 to 1.

    See Also
    --------
    sklearn.manifold.trustworthiness : The same number, with arrays of n × n.

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
    inputs, outputs = _check(X, Y, n_neighbors)
    n = len(inputs)
    if 2 * n_neighbors >= n:
        raise ValueError(
            f"n_neighbors={n_neighbors} must be less than half of the {n} rows for ranks."
        )
    _, near = kneighbors(outputs, n_neighbors=n_neighbors)
    centered = inputs - inputs.mean(axis=0)
    excess = 0
    for block in row_blocks(n, 24 * n, at_most=512):
        excess += int(np.maximum(_ranks(centered, block, near[block]) - n_neighbors, 0).sum())
    return 1.0 - excess * 2.0 / (n * n_neighbors * (2 * n - 3 * n_neighbors - 1))


def embedding_quality(X: ArrayLike, Y: ArrayLike, n_neighbors: int = 15) -> dict[str, float]:
    """All measures of this page at once, with one search for neighbours on each side.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs.
    Y : array-like of shape (n_samples, n_components)
        Outputs, row by row those of X.
    n_neighbors : int, default=15
        Neighbours of each point.

    Returns
    -------
    dict
        "continuity" and "continuity_without_stretched" (without the 1 % of most stretched pairs),
        "trust", "intersection".

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar.evaluation import embedding_quality
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> embedding_quality(X, 2 * X)["intersection"]
    1.0
    """
    inputs, outputs = _check(X, Y, n_neighbors)
    near, seen = (kneighbors(points, n_neighbors=n_neighbors) for points in (inputs, outputs))
    return _measures(near, seen, _lengths(outputs, near[1]), _lengths(inputs, seen[1]))


def pairs_quality(D: ArrayLike, Y: ArrayLike, n_neighbors: int = 15) -> dict[str, float]:
    """The measures of :func:`embedding_quality` for objects known by their dissimilarities.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.spatial.distance import cdist
    >>> from nearfar.evaluation.quality import pairs_quality
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> pairs_quality(cdist(X, X), 2 * X)["intersection"]
    1.0
    """
    pairs = np.array(D, dtype=np.float64)
    _, outputs = _check(pairs, Y, n_neighbors)
    np.fill_diagonal(pairs, np.inf)
    rows = np.argsort(pairs, axis=1, kind="stable")[:, :n_neighbors]
    near = np.take_along_axis(pairs, rows, axis=1), rows
    seen = kneighbors(outputs, n_neighbors=n_neighbors)
    here = np.take_along_axis(pairs, seen[1], axis=1)
    return _measures(near, seen, _lengths(outputs, rows), here)


def held_out_quality(
    X: ArrayLike,
    Y: ArrayLike,
    X_new: ArrayLike,
    Y_new: ArrayLike,
    n_neighbors: int = 15,
) -> dict[str, float]:
    """The measures of this page for rows that an embedding was not fitted to.

    The neighbours of a new row are those among the fitted rows, in input and output: what a method
    did to keep its own neighbours does not help it here.

    Cost: O(m n (p + r)) for m new rows, in blocks, and m sorts of n.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Inputs the embedding was fitted to.
    Y : array-like of shape (n_samples, n_components)
        Their outputs.
    X_new : array-like of shape (n_new, n_features)
        New inputs.
    Y_new : array-like of shape (n_new, n_components)
        Where ``transform`` put them.
    n_neighbors : int, default=15
        Neighbours of each new row.

    Returns
    -------
    dict
        As :func:`embedding_quality`, and "rank_trust", :func:`rank_trustworthiness` of the new
        rows; NaN where the neighbours are half of the rows or more.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import PCA
    >>> from nearfar.evaluation import held_out_quality
    >>> X = np.random.default_rng(0).normal(size=(120, 3)) * [5, 3, 0.01]
    >>> pca = PCA(2).fit(X[:100])
    >>> found = held_out_quality(X[:100], pca.transform(X[:100]), X[100:], pca.transform(X[100:]))
    >>> found["intersection"] > 0.98
    True
    """
    inputs, outputs = _check(X, Y, n_neighbors)
    new = check_array(X_new, dtype=[np.float64, np.float32], input_name="X_new")
    placed = check_array(Y_new, dtype=[np.float64, np.float32], input_name="Y_new")
    if len(new) != len(placed):
        raise ValueError(f"X_new has {len(new)} rows and Y_new has {len(placed)}; they must agree.")
    for name, known, other in (("X", inputs, new), ("Y", outputs, placed)):
        if known.shape[1] != other.shape[1]:
            raise ValueError(
                f"{name} has {known.shape[1]} columns and {name}_new {other.shape[1]}; they must "
                "agree."
            )
    near = kneighbors(inputs, new, n_neighbors=n_neighbors)
    seen = kneighbors(outputs, placed, n_neighbors=n_neighbors)
    there, here = _lengths(outputs, near[1], placed), _lengths(inputs, seen[1], new)
    return _measures(near, seen, there, here) | {
        "rank_trust": _new_rank_trust(inputs, new, seen[1])
    }


def shares_kept(
    X: NDArray[Any],
    Y: NDArray[Any],
    counts: Sequence[int],
    asked: tuple[NDArray[Any], NDArray[Any]] | Indices,
) -> dict[int, float]:
    """:func:`neighborhood_intersection` by number of neighbours, with one search a side.

    Neighbours are sought among the fitted rows, of which X and Y are inputs and outputs. Asked of
    are inputs and outputs of new rows; or some of the fitted rows, no neighbours of themselves.
    """
    most = max(counts)
    if isinstance(asked, tuple):
        near = [
            kneighbors(points, new, n_neighbors=most)[1]
            for points, new in zip((X, Y), asked, strict=True)
        ]
    else:
        near = [
            _without_own(kneighbors(points, points[asked], n_neighbors=most + 1)[1], asked)
            for points in (X, Y)
        ]
    return {
        count: float(_shared(near[0][:, :count], near[1][:, :count]).mean()) for count in counts
    }


def procrustes_error(
    U: ArrayLike,
    V: ArrayLike,
    *,
    by: Literal["rotation", "similarity", "linear"] = "rotation",
    relative: bool = True,
) -> float:
    r"""What is left between two configurations of the same points after the best alignment.

    .. math:: \min_Q \frac{||U - V Q||_F}{||U||_F}

    after both are centred. It is 0 for equal shapes. The narrower of the two gets columns of zeros.

    Parameters
    ----------
    U, V : array-like of shape (n_samples, n_dimensions)
        The configuration to be met, and the one to be moved.
    by : {"rotation", "similarity", "linear"}, default="rotation"
        Which Q: rotations and reflections; these with one common scale; or any matrix.
    relative : bool, default=True
        Divide by :math:`||U||_F`; otherwise the error is :math:`||U - V Q||_F` itself.

    Returns
    -------
    float
        At most 1 for "similarity" and "linear" when relative.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.10,
       which leaves the class of Q open.

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
        raise ValueError("U is one point only, to which no error can be relative.")
    scale = max(size, np.abs(B - B.mean(axis=0)).max(), np.finfo(float).tiny)
    A, B = (A - A.mean(axis=0)) / scale, (B - B.mean(axis=0)) / scale
    width = max(A.shape[1], B.shape[1])
    A, B = (np.pad(M, ((0, 0), (0, width - M.shape[1]))) for M in (A, B))
    error = float(np.linalg.norm(A - _moved(A, B, by)))
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
    r"""How much worse new points are placed than points that were there from the start.

    The rows fall at random into A, B of equal size and C. With :math:`err` of
    :func:`procrustes_error`,

    .. math:: \frac{err(\hat Y_C^A, \hat Y_C^B)}{err(Y_C^{AC}, Y_C^{BC})}

    compares what ``transform`` makes of C after a fit to A, and to B, with the places C has in fits
    to A ∪ C and to B ∪ C: two views of C that agree as well as two fits do give 1.

    Cost: four fits a trial.

    Parameters
    ----------
    estimator : estimator
        With ``fit``, ``transform`` and, once fitted, ``embedding_`` in the order of the rows; a
        clone is used. Without ``embedding_``, rows are transformed.
    X : array-like of shape (n_samples, n_features)
        Data.
    n_held_out : int or None, default=None
        Rows in C; None is a tenth.
    n_trials : int, default=10
        Random parts.
    by : {"rotation", "similarity", "linear"}, default="rotation"
        As in :func:`procrustes_error`.
    random_state : int, RandomState or None, default=None
        For the parts.

    Returns
    -------
    dict
        "ratio", the harmonic mean over the trials; "ratios", one for each; "new" and "fitted", the
        numerators and denominators.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.10,
       equation 3.34 and figure 3.23.

    Examples
    --------
    A linear map places new points as it does those it was fitted to:

    >>> import numpy as np
    >>> from nearfar import PCA
    >>> from nearfar.evaluation import out_of_sample_consistency
    >>> X = np.random.default_rng(0).normal(size=(300, 3)) * [5, 3, 1]
    >>> found = out_of_sample_consistency(PCA(2), X, n_trials=3, random_state=0)
    >>> 0.5 < found["ratio"] < 2
    True
    """
    rows = check_array(X, dtype=[np.float64, np.float32], ensure_min_samples=4)
    n = len(rows)
    check_parameter("out_of_sample_consistency", "n_trials", n_trials, [integer(1)])
    check_parameter("out_of_sample_consistency", "n_held_out", n_held_out, [none, integer(1)])
    held_out = max(1, n // 10) if n_held_out is None else n_held_out
    if held_out > n - 2:
        raise ValueError(f"n_held_out={held_out} leaves no rows to fit among {n}.")
    random = check_random_state(random_state)
    half = (n - held_out) // 2
    new, fitted = np.empty(n_trials), np.empty(n_trials)
    for trial in range(n_trials):
        order = random.permutation(n)
        C, A, B = np.split(order[: held_out + 2 * half], [held_out, held_out + half])
        placed = [clone(estimator).fit(rows[part]).transform(rows[C]) for part in (A, B)]
        present = [_placed(estimator, rows[np.append(part, C)])[half:] for part in (A, B)]
        new[trial] = procrustes_error(*placed, by=by, relative=False)
        fitted[trial] = procrustes_error(*present, by=by, relative=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(new == fitted, 1.0, new / fitted)
        ratio = float(1.0 / np.mean(1.0 / ratios))
    return {"ratio": ratio, "ratios": ratios, "new": new, "fitted": fitted}


# ---------------------------------------------------------------------- helpers


def _check(
    X: ArrayLike, Y: ArrayLike, n_neighbors: int, without_stretched: float = 0.0
) -> tuple[NDArray[Any], NDArray[Any]]:
    inputs = check_array(X, dtype=[np.float64, np.float32], input_name="X")
    outputs = check_array(Y, dtype=[np.float64, np.float32], input_name="Y")
    if len(inputs) != len(outputs):
        raise ValueError(f"X has {len(inputs)} rows and Y has {len(outputs)}; they must agree.")
    check_parameter("quality", "n_neighbors", n_neighbors, [integer(1)])
    if n_neighbors >= len(inputs):
        raise ValueError(f"n_neighbors={n_neighbors} must be less than the {len(inputs)} rows.")
    check_parameter("quality", "without_stretched", without_stretched, [real(0, 1)])
    if without_stretched == 1:
        raise ValueError("without_stretched=1 leaves no pairs.")
    return _of_usual_size(inputs), _of_usual_size(outputs)


def _of_usual_size(points: NDArray[Any]) -> NDArray[Any]:
    """Points on a scale where squares do not underflow; no measure here depends on it."""
    size = float(np.abs(points).max())
    return points / size if 0 < size < 1e-100 else points


def _lengths(points: NDArray[Any], near: Indices, queries: NDArray[Any] | None = None) -> Matrix:
    """Distances from each query, or each row, to the rows listed for it."""
    lengths = np.empty(near.shape)
    asked = points if queries is None else queries
    for block in row_blocks(len(asked), 16 * near.shape[1] * points.shape[1]):
        differences = points[near[block]].astype(np.float64) - asked[block, None]
        # NumPy's norm does not overflow for what fits an exact search.
        lengths[block] = np.linalg.norm(differences, axis=2)
    return lengths


def _measures(
    near: tuple[Matrix, Indices], seen: tuple[Matrix, Indices], there: Matrix, here: Matrix
) -> dict[str, float]:
    """From lengths and rows of neighbours in the input and in the output, and the other lengths."""
    return {
        "continuity": _agreement(near[0], there, 0.0),
        "continuity_without_stretched": _agreement(near[0], there, 0.01),
        "trust": _agreement(seen[0], here, 0.0),
        "intersection": float(_shared(near[1], seen[1]).mean()),
    }


def _agreement(own: Matrix, other: Matrix, without: float) -> float:
    """The squared cosine of two arrays of lengths, without those most stretched in the other."""
    a, b = own.ravel(), other.ravel()
    n_left = a.size - int(without * a.size)
    if n_left < a.size:
        with np.errstate(divide="ignore", invalid="ignore"):
            stretch = np.where(b > 0, b / a, 0.0)
        left = np.argsort(stretch, kind="stable")[:n_left]
        a, b = a[left], b[left]
    if a.max() == 0 or b.max() == 0:
        return 1.0 if a.max() == b.max() else 0.0
    a, b = a / a.max(), b / b.max()
    return float(min(1.0, (a @ b) ** 2 / ((a @ a) * (b @ b))))


def _without_own(near: Indices, own: Indices) -> Indices:
    """Lists of neighbours without the row itself; of many identical rows the last one goes."""
    others = near != own[:, None]
    others[others.all(axis=1), -1] = False
    return near[others].reshape(len(near), -1)


def _shared(near: Indices, others: Indices) -> NDArray[np.bool_]:
    """For each row and each of its neighbours, whether the other list names it too."""
    shared = np.empty(near.shape, dtype=bool)
    for block in row_blocks(len(near), near.shape[1] * others.shape[1]):
        shared[block] = (near[block, :, None] == others[block, None, :]).any(axis=2)
    return shared


def _ranks(points: NDArray[Any], block: slice, columns: Indices) -> NDArray[np.intp]:
    """Ranks, from 1, of some columns by their distance from each row of a block."""
    rows = np.arange(block.start, block.stop)
    distances = squared_distances(points[block], points)
    distances[np.arange(len(rows)), rows] = -1.0
    order = np.argsort(distances, axis=1, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(points))[None], axis=1)
    return np.take_along_axis(ranks, columns, axis=1)


def _new_rank_trust(points: NDArray[Any], queries: NDArray[Any], near: Indices) -> float:
    """Trustworthiness by ranks where the neighbours of new rows are among n others."""
    n, l_ = len(points), near.shape[1]
    if 2 * l_ >= n:
        return float("nan")
    center = points.mean(axis=0)
    centered, asked = points - center, queries - center
    excess = 0
    for block in row_blocks(len(asked), (16 + l_) * n):
        distances = squared_distances(asked[block], centered)
        mine = np.take_along_axis(distances, near[block], axis=1)
        # One more than are nearer: of equals each has the best rank.
        ranks = 1 + (distances[:, None] < mine[:, :, None]).sum(axis=2)
        excess += int(np.maximum(ranks - l_, 0).sum())
    # At worst the last l of the n: l (2n - 3l + 1) / 2 for each row.
    return 1.0 - excess * 2.0 / (len(asked) * l_ * (2 * n - 3 * l_ + 1))


def _moved(A: Matrix, B: Matrix, by: str) -> Matrix:
    if by == "linear":
        return np.asarray(B @ linalg.lstsq(B, A)[0])
    left, singular, right = linalg.svd(B.T @ A)
    turned = B @ (left @ right)
    square = float(np.sum(B * B))
    if by == "similarity" and square > 0:
        turned *= float(singular.sum()) / square
    return np.asarray(turned)


def _placed(estimator: Any, rows: NDArray[Any]) -> NDArray[Any]:
    fitted = clone(estimator).fit(rows)
    own = hasattr(fitted, "embedding_")
    return np.asarray(fitted.embedding_ if own else fitted.transform(rows))
