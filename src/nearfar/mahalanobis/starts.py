"""Where a descent over maps begins: one vocabulary for all that have a start."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.parameters import Allowed, array, one_of
from nearfar.solvers.eigen import descending_eigh
from nearfar.summaries.whitening import mixed_whitener

#: What the parameter ``init`` may be.
STARTS: list[Allowed] = [one_of("auto", "identity", "pca", "lda", "within", "random"), array]


class Spread(NamedTuple):
    """Covariances of the points in all, of alike ones and between those that are not."""

    total: Matrix
    within: Matrix | None = None
    between: Matrix | None = None


def start_map(
    init: str | ArrayLike,
    spread: Spread,
    n_components: int | None,
    *,
    auto: str,
    random_state: Any = None,
    unit: float = 1.0,
) -> Matrix:
    r"""The first map, of shape (n_components, p), or (p, p) where there is no limit.

    * "identity": the Euclidean distance; with fewer components than features, its part along the
      leading principal axes;
    * "pca": principal axes, each brought to unit variance;
    * "within": whitened by the covariance of alike points, along the directions in which others
      differ most;
    * "lda": the directions in which those that are not alike differ, as far as there are any, with
      alike points white; the rest is zero in a square map;
    * "random": independent normal numbers, over the root of p.

    Parameters
    ----------
    init : str or array
        One of these, "auto" for ``auto``, or a map of X.
    spread : Spread
        Of the points as the solver sees them.
    n_components : int or None
        Rows of the map.
    auto : str
        What "auto" is here.
    random_state : int, RandomState or None
        For "random".
    unit : float, default=1
        What rows of X were divided by: an array is a map of X.

    Examples
    --------
    >>> import numpy as np
    >>> start_map("pca", Spread(np.diag([4.0, 1.0])), 1, auto="identity").tolist()
    [[0.5, 0.0]]
    """
    p = len(spread.total)
    if n_components is not None and n_components > p:
        raise ValueError(f"n_components={n_components} is more than the {p} features of X.")
    rows = p if n_components is None else n_components
    if not isinstance(init, str):
        return _given(init, rows, p) * unit
    kind = auto if init == "auto" else init
    if kind == "random":
        return check_random_state(random_state).normal(size=(rows, p)) / np.sqrt(p)
    if kind == "identity":
        return np.eye(p) if rows == p else descending_eigh(spread.total, rows)[1].T
    start = np.zeros((rows, p))
    if kind == "pca":
        values, axes = descending_eigh(spread.total, rows)
        kept = values > 1e-12 * values[0]
        start[: kept.sum()] = (axes[:, kept] / np.sqrt(values[kept])).T
        return start
    if spread.within is None or spread.between is None:
        raise ValueError(
            f'init="{kind}" needs points known to be alike; use "identity", "pca" or "random".'
        )
    _, T = mixed_whitener(spread.within, lambda: spread.total, 1e-12)
    values, axes = descending_eigh(T.T @ spread.between @ T, min(rows, T.shape[1]))
    if kind == "lda":
        axes = axes[:, values > 1e-10 * max(values[0], np.finfo(float).tiny)]
    start[: axes.shape[1]] = (T @ axes).T
    return start


def _given(init: ArrayLike, rows: int, p: int) -> Matrix:
    try:
        given = np.asarray(init, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"init must be an array of numbers: {error}") from error
    if given.shape != (rows, p):
        raise ValueError(f"init must have shape {(rows, p)}; got {given.shape}.")
    if not np.isfinite(given).all():
        raise ValueError("init contains NaN or infinity.")
    if not given.any():
        raise ValueError("init maps all of X to one point, from which no step leads away.")
    return given
