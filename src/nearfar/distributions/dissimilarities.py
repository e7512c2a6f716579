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

# Upper limit for the number of rows per task. It is large enough for fast matrix products and
# small enough for short temporary arrays.
_ROWS = 64
# Upper limit for distances. Their squares must not overflow.
_FARTHEST = 1e140
_TOO_FAR = (
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
    "sqrt_kl",                the square roots of these three
    "sqrt_jeffreys",
    "sqrt_bhattacharyya"
    ========================  ================================================================

    Parameters
    ----------
    A : Gaussians
        Gaussians of the rows of the result.
    B : Gaussians, default=None
        Gaussians of the columns. None means A.
    metric : str or list of str, default="bhattacharyya_riemann"
        Name of the dissimilarity. A list is computed in one pass over the pairs.
    method : {"auto", "dense", "low_rank"}, default="auto"
        "dense" uses the covariances, "low_rank" their low-rank factors plus ridge, which A and B
        must both store. "auto" selects "low_rank" if that is possible and faster.
    n_jobs : int or None, default=None
        Number of threads. None means 1, -1 all cores.
    chunks : int, default=None
        If given, return a lazy dask array with blocks of this number of rows and columns
        (``pip install nearfar[dask]``).

    Returns
    -------
    ndarray of shape (n_A, n_B), or dict of them
        Dissimilarities in float64, or a dict by name if ``metric`` is a list. Without B, the result
        is exactly symmetric (except for "kl" and "sqrt_kl") and has an exactly zero diagonal. With
        ``chunks``, dask arrays.

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
    >>> found = dissimilarity(gaussians[:1], gaussians[1:], ["jeffreys", "hellinger"])
    >>> found["jeffreys"].round(4), found["hellinger"].round(4)
    (array([[ 3.625, 25.   ]]), array([[0.7317, 1.3828]]))
    """
    names = _checked_metrics(metric)
    _check_gaussians(A, "A")
    if B is A:
        B = None
    if B is not None:
        _check_gaussians(B, "B")
        if B.n_features != A.n_features:
            raise ValueError(f"A has {A.n_features} features, but B has {B.n_features}.")
    check_parameter("dissimilarity", "method", method, [one_of("auto", "dense", "low_rank")])
    check_parameter("dissimilarity", "n_jobs", n_jobs, [none, integer(1), integer(high=-1)])
    sides = _sides(A, B, names, _chosen_method(A, B, method))
    found: dict[str, Any]
    if chunks is None:
        found = _all_pairs(*sides, names, B is None, resolve_n_threads(n_jobs))
    else:
        check_parameter("dissimilarity", "chunks", chunks, [integer(1)])
        found = _on_dask(*sides, names, B is None, chunks)
    return found[metric] if isinstance(metric, str) else found


# ---------------------------------------------------------------------- closed forms


class _Formula(NamedTuple):
    needs: frozenset[str]
    value: Callable[[Terms, int], Matrix]
    symmetric: bool = True


def _kl(t: Terms, p: int) -> Matrix:
    return np.maximum(t["trace_ab"] + t["quad_b"] - p + t["log_ratio"], 0) / 2


def _jeffreys(t: Terms, p: int) -> Matrix:
    traces = t["trace_ab"] + t["trace_ba"] - 2 * p
    return (np.maximum(traces, 0) + _positive(t["quad_a"]) + _positive(t["quad_b"])) / 2


def _bhattacharyya(t: Terms, p: int) -> Matrix:
    return _positive(t["quad_mean"]) / 8 + _positive(t["log_mean"]) / 2


def _hellinger(t: Terms, p: int) -> Matrix:
    # expm1 is accurate for close pairs.
    return np.sqrt(-2 * np.expm1(-_bhattacharyya(t, p)))


def _riemann(t: Terms, p: int) -> Matrix:
    return t["riemann"]


def _jeffreys_riemann(t: Terms, p: int) -> Matrix:
    return np.sqrt(_positive(t["quad_a"]) + _positive(t["quad_b"])) + t["riemann"]


def _bhattacharyya_riemann(t: Terms, p: int) -> Matrix:
    return np.sqrt(_positive(t["quad_mean"])) + t["riemann"]


def _mean(t: Terms, p: int) -> Matrix:
    return t["distance"]


def _positive(values: Matrix) -> Matrix:
    """Replace negative values, which are rounding errors, by zero."""
    return np.maximum(values, 0)


def _needs(*names: str) -> frozenset[str]:
    return frozenset(names)


_BOTH = _needs("trace_ab", "trace_ba", "quad_a", "quad_b")
_MEAN = _needs("quad_mean", "log_mean")
_FORMULAS = {
    "kl": _Formula(_needs("trace_ab", "quad_b", "log_ratio"), _kl, False),
    "jeffreys": _Formula(_BOTH, _jeffreys),
    "bhattacharyya": _Formula(_MEAN, _bhattacharyya),
    "hellinger": _Formula(_MEAN, _hellinger),
    "riemann": _Formula(_needs("riemann"), _riemann),
    "jeffreys_riemann": _Formula(_needs("quad_a", "quad_b", "riemann"), _jeffreys_riemann),
    "bhattacharyya_riemann": _Formula(_needs("quad_mean", "riemann"), _bhattacharyya_riemann),
    "mean": _Formula(_needs("distance"), _mean),
}
for _name in ("kl", "jeffreys", "bhattacharyya"):
    _of = _FORMULAS[_name]
    _FORMULAS[f"sqrt_{_name}"] = _of._replace(
        value=lambda t, p, root=_of.value: np.sqrt(root(t, p))  # type: ignore[misc]
    )

#: Names of all dissimilarities.
METRICS = tuple(_FORMULAS)


# ---------------------------------------------------------------------- all pairs


class _Side(NamedTuple):
    """Preprocessed Gaussians for the covariance terms, and their original means."""

    means: Matrix
    made: Any  # DenseSide, LowRankSide, or None if only the means are used

    def part(self, rows: slice) -> _Side:
        return _Side(self.means[rows], None if self.made is None else self.made[rows])


def _sides(
    A: Gaussians, B: Gaussians | None, names: Sequence[str], method: PairMethod
) -> tuple[_Side, _Side]:
    """Return both stacks of Gaussians in common coordinates, which are those of the columns."""
    columns = A if B is None else B
    if set(names) <= {"mean"}:
        return _Side(A.means, None), _Side(columns.means, None)
    with use_one_blas_thread():  # several threads would slow down the small matrix products
        if method == "low_rank":
            center = columns.means.mean(axis=0)
            right: Any = LowRankSide.of(columns, center)
            left = right if B is None else LowRankSide.of(A, center)
        else:
            factors = columns.cholesky()
            frame = Frame.of(columns, factors)
            right = DenseSide.of(columns, frame, factors)
            left = right if B is None else DenseSide.of(A, frame, A.cholesky())
    for side in (left, right):
        if not side.reach < _FARTHEST:
            raise ValueError(_TOO_FAR.format("The distance"))
    return _Side(A.means, left), _Side(columns.means, right)


def _all_pairs(
    A: _Side, B: _Side, names: Sequence[str], same: bool, n_threads: int
) -> dict[str, Matrix]:
    """Return the matrices of all pairs by name. `same` means that B is A."""
    n, m = len(A.means), len(B.means)
    # Tasks are blocks of rows, so fewer rows than columns are faster. KL is not symmetric and
    # cannot be transposed.
    if not same and is_turned(n, m) and not any(name.endswith("kl") for name in names):
        turned = _all_pairs(B, A, names, False, n_threads)
        return {name: np.ascontiguousarray(D.T) for name, D in turned.items()}
    wanted = frozenset().union(*(_FORMULAS[name].needs for name in names))
    pairs = _pairs(A.made, B.made)
    whole = not same or not all(_FORMULAS[name].symmetric for name in names)
    found = {name: np.zeros((n, m)) for name in names}
    rows = min(_ROWS, max(1, n // (8 * n_threads))) if wanted & COSTLY or n_threads > 1 else _ROWS

    def work(start: int) -> None:
        block = slice(start, min(start + rows, n))
        first = 0 if whole else start
        terms: Terms = {}
        if pairs is not None:
            terms = pairs.terms(block, first, wanted - {"distance"}, same)
        if "distance" in wanted:
            terms["distance"] = cdist(A.means[block], B.means[first:])
        p = A.means.shape[1]
        for name in names:
            found[name][block, first:] = _FORMULAS[name].value(terms, p)

    starts = range(0, n, rows)
    with use_one_blas_thread():
        for _ in map_in_order(work, starts, n_threads):
            pass
    for name, D in found.items():
        if same:
            if _FORMULAS[name].symmetric:
                _mirror(D)
            np.fill_diagonal(D, 0.0)
        _check_finite(name, D)
    return found


def _check_finite(name: str, D: Matrix) -> None:
    if not np.isfinite(D).all():
        raise ValueError(_TOO_FAR.format(f"The dissimilarity {name!r}"))


def _pairs(A: Any, B: Any) -> GaussianPairs | None:
    if A is None:
        return None
    return LowRankPairs(A, B) if isinstance(A, LowRankSide) else DensePairs(A, B)


def _mirror(D: Matrix) -> None:
    """Copy the upper triangle to the lower one."""
    for start in range(0, len(D), 256):
        block = slice(start, start + 256)
        D[block.stop :, block] = D[block, block.stop :].T
        corner = np.triu(D[block, block], 1)
        D[block, block] = corner + corner.T


# ---------------------------------------------------------------------- separate terms


def costly_terms(metric: str) -> frozenset[str]:
    """Return the terms of a dissimilarity if all of them are costly, else an empty set.

    >>> sorted(costly_terms("bhattacharyya_riemann")), sorted(costly_terms("jeffreys"))
    (['quad_mean', 'riemann'], [])
    """
    needs = _FORMULAS[metric].needs
    return needs if needs <= COSTLY else frozenset()


class CostlyPairs:
    """The costly terms of all pairs, computed for some rows at a time, possibly in parallel.

    :func:`from_costly` converts them to the result of :func:`dissimilarity` for A and B.

    Parameters
    ----------
    A : Gaussians
        Gaussians of the rows.
    B : Gaussians, default=None
        Gaussians of the columns. None means A.
    """

    def __init__(self, A: Gaussians, B: Gaussians | None = None) -> None:
        left, right = _sides(A, B, tuple(COSTLY), _chosen_method(A, B, "auto"))
        if B is not None and is_turned(len(A), len(B)):
            left, right = right, left
        self._same = B is None
        with use_one_blas_thread():
            pairs = _pairs(left.made, right.made)
        assert pairs is not None
        self._pairs = pairs

    def terms(self, rows: slice, wanted: frozenset[str]) -> Terms:
        """Return terms of some rows. Without B, columns start at the first of these rows."""
        with use_one_blas_thread():
            first = rows.start if self._same else 0
            return self._pairs.terms(rows, first, wanted, self._same)


def is_turned(n_rows: int, n_columns: int) -> bool:
    """Return True if rows and columns are exchanged, so that there are at most as many rows."""
    return n_columns < n_rows


def from_costly(metric: str, terms: Terms, *, same: bool, turned: bool = False) -> Matrix:
    """Return the dissimilarities of all pairs from their costly terms.

    With `same`, B is A, and only terms above the diagonal are used. With `turned`, rows and columns
    of the terms are exchanged.
    """
    # These formulas do not use the number of features. The copy protects the terms.
    D = np.array(_FORMULAS[metric].value(terms, 0))
    if same:
        _mirror(D)
        np.fill_diagonal(D, 0.0)
    _check_finite(metric, D)
    return np.ascontiguousarray(D.T) if turned else D


def _on_dask(A: _Side, B: _Side, names: Sequence[str], same: bool, chunks: int) -> dict[str, Any]:
    """Return the matrices of all pairs as dask arrays."""
    dask, array = import_optional("dask", "dask"), import_optional("dask.array", "dask")

    def cut(side: _Side) -> list[_Side]:
        return [side.part(slice(s, s + chunks)) for s in range(0, len(side.means), chunks)]

    left, right = cut(A), cut(B)
    rows = [dask.delayed(part) for part in left]
    columns = rows if same else [dask.delayed(part) for part in right]
    block = dask.delayed(_block, pure=True)
    tasks: dict[tuple[int, int], Any] = {}
    symmetric = same and all(_FORMULAS[name].symmetric for name in names)
    for i, a in enumerate(rows):
        for j, b in enumerate(columns):
            if symmetric and j < i:
                continue
            tasks[i, j] = block(a, b, tuple(names), same and i == j)
    found = {}
    for name in names:
        grid = [[_piece(array, tasks, i, j, name, left, right) for j in range(len(right))]
                for i in range(len(left))]  # fmt: skip
        found[name] = array.block(grid)
    return found


def _piece(array: Any, tasks: Any, i: int, j: int, name: str, left: Any, right: Any) -> Any:
    there = (i, j) in tasks
    at, across = ((i, j), (left[i], right[j])) if there else ((j, i), (left[j], right[i]))
    shape = tuple(len(side.means) for side in across)
    piece = array.from_delayed(tasks[at][name], shape, dtype=np.float64)
    return piece if there else piece.T


def _block(A: _Side, B: _Side, names: Sequence[str], same: bool) -> dict[str, Matrix]:
    """Compute one block on a dask worker."""
    return _all_pairs(A, A if same else B, names, same, 1)


# ---------------------------------------------------------------------- checks


def _checked_metrics(metric: Any) -> list[str]:
    names = [metric] if isinstance(metric, str) else list(metric)
    if not names:
        raise ValueError(f"metric must contain at least one of {join_names(METRICS)}; got none.")
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


def _chosen_method(A: Gaussians, B: Gaussians | None, method: PairMethod) -> PairMethod:
    columns = A if B is None else B
    fits = A.is_low_rank and columns.is_low_rank and A.rank + columns.rank <= A.n_features
    if method == "low_rank" and not fits:
        raise ValueError(
            'method="low_rank" needs A and B with stored factors whose ranks add up to at most '
            f"{A.n_features}, the number of features. Pass storage='low_rank' when you create them."
        )
    if method == "auto":
        pays = is_low_rank_cheaper(max(A.rank, columns.rank), A.n_features)
        return "low_rank" if fits and pays else "dense"
    return method
