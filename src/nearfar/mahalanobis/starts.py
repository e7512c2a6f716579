"""Initial maps, shared by all learners with an ``init`` parameter."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.parameters import AllowedValues, array, one_of
from nearfar.solvers.eigen import descending_eigh, fix_signs, whitener
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import find_mixed_whitener

#: Allowed values of the parameter ``init``.
STARTS: list[AllowedValues] = [one_of("auto", "identity", "pca", "lda", "within", "random"), array]
# Eigenvalues below this fraction of the largest eigenvalue are treated as zero.
_EMPTY = 1e-12


class Spread(NamedTuple):
    """Total, within-class and between-class covariances.

    With pairs, these are the covariances of all, of similar and of dissimilar pairs.
    """

    total: Matrix
    within: Matrix | None = None
    between: Matrix | None = None


def compute_spread(statistics: ClassStatistics) -> Spread:
    """Return the covariances of labeled rows."""
    within, between = statistics.within_scatter(), statistics.between_scatter()
    return Spread(*(S / statistics.total_weight for S in (within + between, within, between)))


def make_start_map(
    init: str | ArrayLike,
    spread: Spread,
    n_components: int | None,
    *,
    auto: str,
    random_state: Any = None,
    unit: float = 1.0,
) -> Matrix:
    """Return the initial map, of shape (n_components, p), or (p, p) if n_components is None.

    * "identity": the Euclidean distance; with fewer components than features, the projection onto
      the leading principal axes;
    * "pca": the leading principal axes of the standardized features, each scaled to unit variance;
    * "within": whitened by the within-class covariance, ordered by the between-class variance;
    * "lda": as "within", but only the directions in which the classes differ at all, at most one
      less than the number of classes; the other rows are zero;
    * "random": standard normal numbers for features of unit variance, divided by √p.

    Rows beyond the rank of the data are zero.

    Parameters
    ----------
    init : str or array
        One of the names above, "auto", or an array that maps X.
    spread : Spread
        Covariances of the points in the solver's units.
    n_components : int or None
        Number of rows of the map.
    auto : str
        The name that ``init="auto"`` stands for.
    random_state : int, RandomState or None
        Seed for "random".
    unit : float, default=1
        The number by which X was divided. An array passed as ``init`` is a map of X before that
        division.

    Examples
    --------
    >>> import numpy as np
    >>> make_start_map("identity", Spread(np.diag([4.0, 1.0])), 1, auto="pca").tolist()
    [[1.0, 0.0]]
    >>> within, between = np.diag([4.0, 1.0]), np.diag([0.0, 9.0])
    >>> spread = Spread(within + between, within, between)
    >>> make_start_map("auto", spread, None, auto="within").tolist()
    [[0.0, 1.0], [0.5, 0.0]]
    >>> make_start_map("lda", spread, None, auto="within").tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    p = len(spread.total)
    if n_components is not None and n_components > p:
        raise ValueError(f"n_components={n_components} is more than the {p} features of X.")
    size = p if n_components is None else n_components
    if not isinstance(init, str):
        return _check_init_array(init, size, p) * unit
    name = auto if init == "auto" else init
    if name == "random":
        return _make_random(spread, size, random_state)
    rows = {"identity": _make_identity, "pca": _make_pca, "lda": _make_lda, "within": _make_within}[
        name
    ](spread, size)
    start = np.zeros((size, p))
    start[: len(rows)] = rows
    return start + 0.0  # Adding zero removes negative zeros.


def _make_identity(spread: Spread, size: int) -> Matrix:
    p = len(spread.total)
    return np.eye(p) if size == p else fix_signs(descending_eigh(spread.total, size)[1].T)


def _make_pca(spread: Spread, size: int) -> Matrix:
    return fix_signs(whitener(spread.total, _EMPTY).T[:size])


def _make_within(spread: Spread, size: int) -> Matrix:
    return _solve_discriminant(spread, size)[1]


def _make_lda(spread: Spread, size: int) -> Matrix:
    values, rows = _solve_discriminant(spread, size)
    if not values[0] > 1e-10:
        raise ValueError(
            'init="lda" needs classes whose means differ. Use init="within" or init="pca".'
        )
    return rows[values > 1e-10 * values[0]]


def _solve_discriminant(spread: Spread, size: int) -> tuple[Matrix, Matrix]:
    """Return the between-class variances, and directions with unit variance within classes.

    The directions are rows.
    """
    if spread.within is None or spread.between is None:
        raise ValueError(
            'init="lda" and init="within" need class labels, or similar and dissimilar pairs. Use '
            '"identity", "pca" or "random".'
        )
    _, T = find_mixed_whitener(spread.within, lambda: spread.total, _EMPTY)
    values, axes = descending_eigh(T.T @ spread.between @ T, min(size, T.shape[1]))
    return values, fix_signs((T @ axes).T)


def _make_random(spread: Spread, size: int, random_state: Any) -> Matrix:
    deviation = np.sqrt(np.diag(spread.total))
    numbers = check_random_state(random_state).normal(size=(size, len(deviation)))
    varies = deviation > 0
    return np.where(varies, numbers / np.where(varies, deviation, 1.0), 0.0) / np.sqrt(
        len(deviation)
    )


def _check_init_array(init: ArrayLike, n_rows: int, p: int) -> Matrix:
    try:
        L = np.asarray(init, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"init must be an array of numbers: {error}") from error
    if L.shape != (n_rows, p):
        raise ValueError(f"init must have shape {(n_rows, p)}; got {L.shape}.")
    if not np.isfinite(L).all():
        raise ValueError("init contains NaN or infinity.")
    check_start(L)
    return L


def has_few_rows(n_rows: float, n_classes: int, n_directions: int) -> bool:
    """Return True if there are too few rows to whiten the within-class covariance reliably."""
    return n_rows - n_classes < 3 * n_directions


def check_start(start: Matrix) -> None:
    """Raise ValueError if the initial map sends all points to one point."""
    if not start.any():
        raise ValueError(
            "init maps all rows of X to one point, so the gradient is zero. Pass another init."
        )


def convert_start(start: Matrix, coordinates: Matrix, *, square: bool) -> Matrix:
    """Convert an initial map A of X to a map L of the solver's coordinates ``X @ coordinates``.

    L solves L coordinates' = A. A square map is rotated so that it has one row per coordinate.
    """
    L = np.asarray(start @ np.linalg.pinv(coordinates.T))
    check_start(L)
    if square and len(L) > coordinates.shape[1]:
        L = np.asarray(linalg.qr(L, mode="r")[0][: coordinates.shape[1]])
    return L
