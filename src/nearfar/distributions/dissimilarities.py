"""Dissimilarities between Gaussians in closed form, and their computation for all pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from scipy.spatial.distance import cdist

from nearfar.arrays import Matrix
from nearfar.blocks import map_in_order, resolve_n_threads, use_one_blas_thread
from nearfar.distributions.dense_pairs import DensePairs, DenseSide, Frame
from nearfar.distributions.low_rank_pairs import LowRankPairs, LowRankSide
from nearfar.distributions.pair_terms import COSTLY, GaussianPairs, Terms
from nearfar.extras import import_optional
from nearfar.parameters import check_parameter, integer, none, one_of
from nearfar.summaries.gaussians import Gaussians, is_low_rank_cheaper
from nearfar.summaries.sets import Sets
from nearfar.words import join_names, suggest_name

PairMethod = Literal["auto", "dense", "low_rank"]

# Maximum number of rows per task: enough for fast matrix products, and few enough to keep the
# temporary arrays small.
_MAX_ROWS_PER_TASK = 64
# Upper limit for the coordinates of transformed means, whose squares must not overflow.
_MAX_COORDINATE = 1e140
_OVERFLOW_MESSAGE = (
    "{} between some Gaussians is too large for floating-point numbers, because their means or "
    "covariances differ too much. Scale the data, or pass a larger ridge."
)


@overload
def dissimilarity(
    A: Gaussians,
    B: Gaussians | None = None,
    metric: str = "bhattacharyya_riemann",
    *,
    method: PairMethod = "auto",
    n_jobs: int | None = None,
    chunks: None = None,
) -> Matrix: ...
@overload
def dissimilarity(
    A: Gaussians,
    B: Gaussians | None = None,
    metric: str | Sequence[str] = "bhattacharyya_riemann",
    *,
    method: PairMethod = "auto",
    n_jobs: int | None = None,
    chunks: int | None = None,
) -> Any: ...
def dissimilarity(
    A: Gaussians,
    B: Gaussians | None = None,
    metric: str | Sequence[str] = "bhattacharyya_riemann",
    *,
    method: PairMethod = "auto",
    n_jobs: int | None = None,
    chunks: int | None = None,
) -> Any:
    r"""Compute a dissimilarity between all pairs of Gaussians, within A or between A and B.

    With :math:`u = \mu_1 - \mu_2`, :math:`\Psi = \Sigma_1^{-1} + \Sigma_2^{-1}`, :math:`\Gamma =
    (\Sigma_1 + \Sigma_2)/2` and the :math:`\lambda_k` of :math:`\Sigma_1 v = \lambda \Sigma_2 v`:

    ========================  ================================================================
    "kl"                      :math:`KL(1||2) = \frac12 [tr(\Sigma_2^{-1} \Sigma_1) +
                              u^T \Sigma_2^{-1} u - p + \ln (|\Sigma_2| / |\Sigma_1|)]`,
                              not symmetric: entry (i, j) is :math:`KL(A_i||B_j)`
    "jeffreys"                :math:`d_J = \frac12 u^T \Psi u + \frac12 tr(\Sigma_1^{-1} \Sigma_2
                              + \Sigma_2^{-1} \Sigma_1) - p = KL(1||2) + KL(2||1)`
    "bhattacharyya"           :math:`d_B = \frac18 u^T \Gamma^{-1} u + \frac12 \ln (|\Gamma| /
                              \sqrt{|\Sigma_1| |\Sigma_2|})`
    "hellinger"               :math:`d_H = \sqrt{2 (1 - e^{-d_B})}`, below :math:`\sqrt 2`
    "riemann"                 :math:`d_R = (\sum_k \ln^2 \lambda_k)^{1/2}`, of the covariances only
    "jeffreys_riemann"        :math:`d_{JR} = \sqrt{u^T \Psi u} + d_R`
    "bhattacharyya_riemann"   :math:`d_{BR} = \sqrt{u^T \Gamma^{-1} u} + d_R`
    "mean"                    :math:`\|u\|`, of the means only
    "sqrt_kl",                the square roots of "kl", "jeffreys" and "bhattacharyya"
    "sqrt_jeffreys",
    "sqrt_bhattacharyya"
    ========================  ================================================================

    Parameters
    ----------
    A : Gaussians
        Gaussians, one per row of the result.
    B : Gaussians, default=None
        Gaussians, one per column of the result. None means A.
    metric : str or list of str, default="bhattacharyya_riemann"
        Name of the dissimilarity, or a list of names. A list is computed in one pass over the
        pairs.
    method : {"auto", "dense", "low_rank"}, default="auto"
        "dense" uses the covariances. "low_rank" uses low-rank factors plus ridge, which both A and
        B must store. "auto" selects "low_rank" if it is possible and faster.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.
    chunks : int, default=None
        If given, return a lazy dask array with blocks of this number of rows and columns
        (``pip install nearfar[dask]``).

    Returns
    -------
    ndarray of shape (n_A, n_B), or dict of them
        Dissimilarities in float64, or a dict by name if ``metric`` is a list. Without B, the result
        is exactly symmetric (except for "kl" and "sqrt_kl") and has an exactly zero diagonal. With
        ``chunks``, the results are dask arrays.

    Raises
    ------
    ValueError
        If a covariance is not positive definite, or A and B have different numbers of features.

    Notes
    -----
    *Invariance*: all dissimilarities except "mean" are invariant to an invertible affine map of all
    Gaussians.

    *Metric properties*: only "hellinger", "riemann" and "mean" are metrics. [1]_ and [2]_ call
    :math:`d_{JR}` and :math:`d_{BR}` metrics, too. They are metrics on Gaussians with a common mean
    or a common covariance, but not in general: a broad Gaussian between two narrow ones violates
    the triangle inequality. See :func:`~nearfar.distributions.metric_report`.

    *Choice*: use "bhattacharyya_riemann" on scaled data, "riemann" to ignore means, and "mean" to
    ignore covariances. "hellinger" is the only one whose kernel is always positive definite, but
    with many features it is almost the same for all pairs. "jeffreys" is the cheapest, and is
    dominated by the direction in which the covariances differ most.

    *Cost* for N pairs: :math:`O(N p^3)`. "riemann" computes eigenvalues for each pair (about 5 to
    10 times as long as the others), "bhattacharyya" one Cholesky factorization, and "kl" and
    "jeffreys" a matrix product. With factors of rank r, the cost is :math:`O(N (r^3 + p r^2))`.
    Memory: the result, a few copies of A and B, and a few megabytes of temporary arrays per thread.

    References
    ----------
    .. [1] K. T. Abou-Moustafa, "Metric Learning Revisited", PhD thesis, McGill University, 2011,
       sections 5.5 and 5.6.
    .. [2] K. T. Abou-Moustafa, F. P. Ferrie, "A Framework for Hypothesis Learning Over Sets of
       Vectors", MLG 2011, section 3 (here with corrected constants).

    Examples
    --------
    >>> from nearfar import Gaussians
    >>> from nearfar.distributions import dissimilarity
    >>> gaussians = Gaussians([[0.0], [2.0], [5.0]], [[[1.0]], [[4.0]], [[1.0]]])
    >>> dissimilarity(gaussians).round(4)
    array([[0.    , 2.6512, 5.    ],
           [2.6512, 0.    , 3.2837],
           [5.    , 3.2837, 0.    ]])
    >>> matrices = dissimilarity(gaussians[:1], gaussians[1:], ["jeffreys", "hellinger"])
    >>> matrices["jeffreys"].round(4), matrices["hellinger"].round(4)
    (array([[ 3.625, 25.   ]]), array([[0.7317, 1.3828]]))
    """
    names = _check_metrics(metric)
    _check_gaussians(A, "A")
    if B is A:
        B = None
    if B is not None:
        _check_gaussians(B, "B")
        if B.n_features != A.n_features:
            raise ValueError(f"A has {A.n_features} features, but B has {B.n_features}.")
    check_parameter("dissimilarity", "method", method, [one_of("auto", "dense", "low_rank")])
    check_parameter("dissimilarity", "n_jobs", n_jobs, [none, integer(1), integer(high=-1)])
    sides = _prepare_sides(A, B, names, _select_method(A, B, method))
    matrices: dict[str, Any]
    if chunks is None:
        matrices = _compute_matrices(*sides, names, B is None, resolve_n_threads(n_jobs))
    else:
        check_parameter("dissimilarity", "chunks", chunks, [integer(1)])
        matrices = _compute_on_dask(*sides, names, B is None, chunks)
    return matrices[metric] if isinstance(metric, str) else matrices


class _Formula(NamedTuple):
    terms: frozenset[str]
    compute: Callable[[Terms, int], Matrix]
    is_symmetric: bool = True


def _compute_kl(t: Terms, p: int) -> Matrix:
    return np.maximum(t["trace_ab"] + t["quad_b"] - p + t["log_ratio"], 0) / 2


def _compute_jeffreys(t: Terms, p: int) -> Matrix:
    traces = t["trace_ab"] + t["trace_ba"] - 2 * p
    return (np.maximum(traces, 0) + _clip_negative(t["quad_a"]) + _clip_negative(t["quad_b"])) / 2


def _compute_bhattacharyya(t: Terms, p: int) -> Matrix:
    return _clip_negative(t["quad_mean"]) / 8 + _clip_negative(t["log_mean"]) / 2


def _compute_hellinger(t: Terms, p: int) -> Matrix:
    # expm1 is accurate for pairs with a small dissimilarity.
    return np.sqrt(-2 * np.expm1(-_compute_bhattacharyya(t, p)))


def _get_riemann(t: Terms, p: int) -> Matrix:
    return t["riemann"]


def _compute_jeffreys_riemann(t: Terms, p: int) -> Matrix:
    return np.sqrt(_clip_negative(t["quad_a"]) + _clip_negative(t["quad_b"])) + t["riemann"]


def _compute_bhattacharyya_riemann(t: Terms, p: int) -> Matrix:
    return np.sqrt(_clip_negative(t["quad_mean"])) + t["riemann"]


def _get_mean_distance(t: Terms, p: int) -> Matrix:
    return t["distance"]


def _clip_negative(values: Matrix) -> Matrix:
    """Replace negative values, which are rounding errors, by zero."""
    return np.maximum(values, 0)


def _name_terms(*names: str) -> frozenset[str]:
    return frozenset(names)


_JEFFREYS_TERMS = _name_terms("trace_ab", "trace_ba", "quad_a", "quad_b")
_BHATTACHARYYA_TERMS = _name_terms("quad_mean", "log_mean")
_FORMULAS = {
    "kl": _Formula(_name_terms("trace_ab", "quad_b", "log_ratio"), _compute_kl, False),
    "jeffreys": _Formula(_JEFFREYS_TERMS, _compute_jeffreys),
    "bhattacharyya": _Formula(_BHATTACHARYYA_TERMS, _compute_bhattacharyya),
    "hellinger": _Formula(_BHATTACHARYYA_TERMS, _compute_hellinger),
    "riemann": _Formula(_name_terms("riemann"), _get_riemann),
    "jeffreys_riemann": _Formula(
        _name_terms("quad_a", "quad_b", "riemann"), _compute_jeffreys_riemann
    ),
    "bhattacharyya_riemann": _Formula(
        _name_terms("quad_mean", "riemann"), _compute_bhattacharyya_riemann
    ),
    "mean": _Formula(_name_terms("distance"), _get_mean_distance),
}
for _name in ("kl", "jeffreys", "bhattacharyya"):
    _formula = _FORMULAS[_name]
    _FORMULAS[f"sqrt_{_name}"] = _formula._replace(
        compute=lambda t, p, root=_formula.compute: np.sqrt(root(t, p))  # type: ignore[misc]
    )

#: Names of all dissimilarities.
METRICS = tuple(_FORMULAS)


class _Side(NamedTuple):
    """Means of Gaussians, and the data from which terms with covariances are computed."""

    means: Matrix
    # A DenseSide, a LowRankSide, or None if only the means are used.
    prepared: Any

    def select_rows(self, rows: slice) -> _Side:
        return _Side(self.means[rows], None if self.prepared is None else self.prepared[rows])


def _prepare_sides(
    A: Gaussians, B: Gaussians | None, names: Sequence[str], method: PairMethod
) -> tuple[_Side, _Side]:
    """Convert A and B to common coordinates, which depend on B (or on A if B is None)."""
    columns = A if B is None else B
    if set(names) <= {"mean"}:
        return _Side(A.means, None), _Side(columns.means, None)
    # Several threads would slow down the small matrix products.
    with use_one_blas_thread():
        if method == "low_rank":
            center = columns.means.mean(axis=0)
            column_side: Any = LowRankSide.from_gaussians(columns, center)
            row_side = column_side if B is None else LowRankSide.from_gaussians(A, center)
        else:
            factors = columns.cholesky()
            frame = Frame.from_gaussians(columns, factors)
            column_side = DenseSide.from_gaussians(columns, frame, factors)
            row_side = (
                column_side if B is None else DenseSide.from_gaussians(A, frame, A.cholesky())
            )
    for side in (row_side, column_side):
        if not side.max_coordinate < _MAX_COORDINATE:
            raise ValueError(_OVERFLOW_MESSAGE.format("The distance"))
    return _Side(A.means, row_side), _Side(columns.means, column_side)


def _compute_matrices(
    A: _Side, B: _Side, names: Sequence[str], b_is_a: bool, n_threads: int
) -> dict[str, Matrix]:
    """Return the matrix of all pairs for each named dissimilarity."""
    n, m = len(A.means), len(B.means)
    # Tasks are blocks of rows, so the computation is faster with fewer rows than columns. KL is not
    # symmetric and cannot be transposed.
    if not b_is_a and should_transpose(n, m) and not any(name.endswith("kl") for name in names):
        transposed = _compute_matrices(B, A, names, False, n_threads)
        return {name: np.ascontiguousarray(D.T) for name, D in transposed.items()}
    term_names = frozenset().union(*(_FORMULAS[name].terms for name in names))
    pairs = _pair_sides(A.prepared, B.prepared)
    uses_all_columns = not b_is_a or not all(_FORMULAS[name].is_symmetric for name in names)
    matrices = {name: np.zeros((n, m)) for name in names}
    block_rows = (
        min(_MAX_ROWS_PER_TASK, max(1, n // (8 * n_threads)))
        if term_names & COSTLY or n_threads > 1
        else _MAX_ROWS_PER_TASK
    )

    def compute_block(start: int) -> None:
        block = slice(start, min(start + block_rows, n))
        first = 0 if uses_all_columns else start
        terms: Terms = {}
        if pairs is not None:
            terms = pairs.compute_terms(block, first, term_names - {"distance"}, b_is_a)
        if "distance" in term_names:
            terms["distance"] = cdist(A.means[block], B.means[first:])
        p = A.means.shape[1]
        for name in names:
            matrices[name][block, first:] = _FORMULAS[name].compute(terms, p)

    starts = range(0, n, block_rows)
    with use_one_blas_thread():
        for _ in map_in_order(compute_block, starts, n_threads):
            pass
    for name, D in matrices.items():
        if b_is_a:
            if _FORMULAS[name].is_symmetric:
                _mirror_upper_triangle(D)
            np.fill_diagonal(D, 0.0)
        _check_finite(name, D)
    return matrices


def _check_finite(name: str, D: Matrix) -> None:
    if not np.isfinite(D).all():
        raise ValueError(_OVERFLOW_MESSAGE.format(f"The dissimilarity {name!r}"))


def _pair_sides(A: Any, B: Any) -> GaussianPairs | None:
    if A is None:
        return None
    return LowRankPairs(A, B) if isinstance(A, LowRankSide) else DensePairs(A, B)


def _mirror_upper_triangle(D: Matrix) -> None:
    """Copy the upper triangle to the lower one."""
    for start in range(0, len(D), 256):
        block = slice(start, start + 256)
        D[block.stop :, block] = D[block, block.stop :].T
        corner = np.triu(D[block, block], 1)
        D[block, block] = corner + corner.T


def get_costly_terms(metric: str) -> frozenset[str]:
    """Return the names of a dissimilarity's terms, or an empty set unless all terms are costly.

    >>> sorted(get_costly_terms("bhattacharyya_riemann")), sorted(get_costly_terms("jeffreys"))
    (['quad_mean', 'riemann'], [])
    """
    names = _FORMULAS[metric].terms
    return names if names <= COSTLY else frozenset()


class CostlyPairs:
    """Computation of the costly terms of all pairs, one block of rows at a time.

    Several blocks may be computed in parallel. :func:`combine_costly_terms` converts the terms to
    the result of :func:`dissimilarity` for A and B.

    Parameters
    ----------
    A : Gaussians
        Gaussians, one per row of the result.
    B : Gaussians, default=None
        Gaussians, one per column of the result. None means A.
    """

    def __init__(self, A: Gaussians, B: Gaussians | None = None) -> None:
        row_side, column_side = _prepare_sides(A, B, tuple(COSTLY), _select_method(A, B, "auto"))
        if B is not None and should_transpose(len(A), len(B)):
            row_side, column_side = column_side, row_side
        self._b_is_a = B is None
        with use_one_blas_thread():
            pairs = _pair_sides(row_side.prepared, column_side.prepared)
        assert pairs is not None
        self._pairs = pairs

    def compute_terms(self, rows: slice, names: frozenset[str]) -> Terms:
        """Return the named terms of a block of rows.

        If B is None, the columns start at the first row of the block.
        """
        with use_one_blas_thread():
            first = rows.start if self._b_is_a else 0
            return self._pairs.compute_terms(rows, first, names, self._b_is_a)


def should_transpose(n_rows: int, n_columns: int) -> bool:
    """Return True if there are fewer columns than rows, so that exchanging them is faster."""
    return n_columns < n_rows


def combine_costly_terms(
    metric: str, terms: Terms, *, b_is_a: bool, is_transposed: bool = False
) -> Matrix:
    """Compute the dissimilarities of all pairs from their costly terms.

    With `b_is_a`, only terms above the diagonal are used. With `is_transposed`, the rows and
    columns of the terms are exchanged.
    """
    # Formulas with only costly terms do not use the number of features, so 0 is passed. Copy the
    # result, because it can share memory with the terms.
    D = np.array(_FORMULAS[metric].compute(terms, 0))
    if b_is_a:
        _mirror_upper_triangle(D)
        np.fill_diagonal(D, 0.0)
    _check_finite(metric, D)
    return np.ascontiguousarray(D.T) if is_transposed else D


def _compute_on_dask(
    A: _Side, B: _Side, names: Sequence[str], b_is_a: bool, chunks: int
) -> dict[str, Any]:
    """Return the matrices of all pairs as dask arrays."""
    dask, array = import_optional("dask", "dask"), import_optional("dask.array", "dask")

    def split(side: _Side) -> list[_Side]:
        return [side.select_rows(slice(s, s + chunks)) for s in range(0, len(side.means), chunks)]

    row_sides, column_sides = split(A), split(B)
    rows = [dask.delayed(side) for side in row_sides]
    columns = rows if b_is_a else [dask.delayed(side) for side in column_sides]
    block = dask.delayed(_compute_block, pure=True)
    tasks: dict[tuple[int, int], Any] = {}
    symmetric = b_is_a and all(_FORMULAS[name].is_symmetric for name in names)
    for i, a in enumerate(rows):
        for j, b in enumerate(columns):
            if symmetric and j < i:
                continue
            tasks[i, j] = block(a, b, tuple(names), b_is_a and i == j)
    arrays = {}
    for name in names:
        grid = [
            [
                _get_block(array, tasks, i, j, name, row_sides, column_sides)
                for j in range(len(column_sides))
            ]
            for i in range(len(row_sides))
        ]
        arrays[name] = array.block(grid)
    return arrays


def _get_block(
    array: Any, tasks: Any, i: int, j: int, name: str, row_sides: Any, column_sides: Any
) -> Any:
    is_computed = (i, j) in tasks
    key, sides = (
        ((i, j), (row_sides[i], column_sides[j]))
        if is_computed
        else ((j, i), (row_sides[j], column_sides[i]))
    )
    shape = tuple(len(side.means) for side in sides)
    block = array.from_delayed(tasks[key][name], shape, dtype=np.float64)
    return block if is_computed else block.T


def _compute_block(A: _Side, B: _Side, names: Sequence[str], b_is_a: bool) -> dict[str, Matrix]:
    """Compute one block on a dask worker."""
    return _compute_matrices(A, A if b_is_a else B, names, b_is_a, 1)


def _check_metrics(metric: Any) -> list[str]:
    names = [metric] if isinstance(metric, str) else list(metric)
    if not names:
        raise ValueError(
            f"metric must contain at least one of {join_names(METRICS)}; got an empty list."
        )
    for name in names:
        if name not in METRICS:
            close = suggest_name(name, METRICS)
            raise ValueError(f"metric must be one of {join_names(METRICS)}; got {name!r}.{close}")
    return names


def _check_gaussians(value: Any, name: str) -> None:
    if isinstance(value, Gaussians):
        if not len(value):
            raise ValueError(f"{name} is empty. At least one Gaussian is needed.")
        return
    hint = "Gaussians.from_sets" if isinstance(value, Sets | list | tuple) else "Gaussians(...)"
    raise TypeError(f"{name} must be Gaussians; got {type(value).__name__}. Use {hint} first.")


def _select_method(A: Gaussians, B: Gaussians | None, method: PairMethod) -> PairMethod:
    columns = A if B is None else B
    fits = A.is_low_rank and columns.is_low_rank and A.rank + columns.rank <= A.n_features
    if method == "low_rank" and not fits:
        raise ValueError(
            'method="low_rank" needs A and B with stored factors whose ranks add up to at most '
            f"{A.n_features}, the number of features. Pass storage='low_rank' when you create A "
            "and B."
        )
    if method == "auto":
        pays = is_low_rank_cheaper(max(A.rank, columns.rank), A.n_features)
        return "low_rank" if fits and pays else "dense"
    return method
