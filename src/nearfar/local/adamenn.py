"""ADAMENN: a nearest-neighbor classifier with local feature weights for each query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalVoter
from nearfar.blocks import map_in_order, resolve_n_threads, split_rows
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.state import Sizes, State, check_that, floats, integer_value
from nearfar.summaries.feature_slabs import (
    EQUAL,
    FeatureColumns,
    Singles,
    mask_smallest,
)
from nearfar.summaries.local_rows import (
    LocalMetrics,
    LocalQueries,
    LocalRows,
    bound_kth_smallest,
    find_entries_within,
)

_Result = TypeVar("_Result")


class ADAMENNClassifier(LocalVoter):
    r"""Adaptive metric nearest-neighbor classifier (ADAMENN): local feature weights per query.

    Two estimates of the class probabilities at a training point z are compared:

    - :math:`P(j|z)`, the fraction of class j among the ``n_posterior`` nearest points of z;
    - :math:`\bar P(j|x_i=z_i)`, which uses feature i alone. Of the ``n_region`` nearest points of
      z, it takes the ``n_slab`` points (the slab) that are nearest to z along feature i.

    The difference between them,

    .. math:: r_i(z) = \sum_j \frac{(P(j|z) - \bar P(j|x_i=z_i))^2}{\bar P(j|x_i=z_i)},

    is small if feature i alone predicts the classes as well as all features do. For a query
    :math:`x_0`, :math:`\bar r_i` is the mean of :math:`r_i` over its ``n_average`` nearest points.
    With :math:`R_i = \max_l \bar r_l - \bar r_i`, the weights and the distance are

    .. math:: w_i(x_0) \propto \exp(c R_i), \qquad
              d(x, x_0)^2 = \sum_i w_i(x_0) (x_i - x_{0i})^2 .

    Use it if few features matter, these features differ from place to place, and the classes are
    not Gaussian. The result depends strongly on ``c``; tune it, for example over :meth:`grid`.

    Cost: O(n² p) to fit, which computes :math:`r_i(z)` for all training points; then O(n p) per
    query and iteration. With ``region="weighted"``, :math:`r_i(z)` is computed again for each query
    in every iteration after the first, which takes ``n_average`` times as long. The fitted
    classifier stores the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. None searches X itself.
    n_neighbors : int, default=3
        Number of neighbors that vote.
    n_average : int or None, default=None
        Number of nearest points of a query over which :math:`r_i` is averaged (:math:`K_0` in
        [1]_). None uses a tenth of the rows, but at least 20.
    n_posterior : int, default=3
        Number of nearest points that estimate a posterior. It is :math:`P(j|z)` here, and the
        number is :math:`K_1` in [1]_.
    n_region : int or None, default=None
        Number of nearest points from which the slabs are taken (:math:`K_2` in [1]_). None uses
        15% of the rows, but more than ``n_posterior``.
    n_slab : int or None, default=None
        Number of points per slab (L in [1]_). Points at the same distance as the last one are
        included too. None uses half of ``n_region``.
    c : float, default=5.0
        Factor in the exponential weights. With 0, all features have the same weight.
    weighting : {"exponential", "linear", "quadratic"}, default="exponential"
        Form of the feature weights: proportional to :math:`\exp(c R_i)`, :math:`R_i` or
        :math:`R_i^2`.
    n_iter : int, default=1
        Maximum number of iterations. It must be at most 100. After the first, the nearest points
        are searched under the weights of the iteration before. The weights need not converge.
    region : {"euclidean", "weighted"}, default="euclidean"
        Distance that defines the nearest points of a training point z. "weighted" uses the weights
        of the query, as in [1]_; with "euclidean", :math:`r_i(z)` is the same for all queries.
    exclude_self : bool, default=False
        Do not count a training point z in its own :math:`P(j|z)` and :math:`\bar P(j|x_i=z_i)`.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    ties : {"shrink", "first"}, default="shrink"
        How ties between classes are broken: "shrink" repeats the vote with k-1, k-2, … neighbors
        until one class leads, "first" takes the smallest label, as scikit-learn does.
    n_jobs : int or None, default=None
        Number of threads. None means 1, -1 all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    deviations_ : ndarray of shape (n_features,)
        Standard deviations of the training points, after the learner's transform.
    n_average_, n_region_, n_slab_ : int
        Values of ``n_average``, ``n_region`` and ``n_slab`` that were used.
    relevances_ : ndarray of shape (n_samples, n_features)
        :math:`r_i(z)` at the training points. Small values belong to relevant features.
    estimator_ : object or None
        Fitted learner, or None if ``estimator`` is None.

    See Also
    --------
    FriedmanClassifier, DANNClassifier, KNNClassifier

    Notes
    -----
    :math:`\bar P(j|x_i=z_i)` is smoothed: (count + 1) / (points in the slab + number of classes).
    :math:`P(j|z)` is not smoothed.

    References
    ----------
    .. [1] C. Domeniconi, J. Peng, D. Gunopulos, "Locally adaptive metric nearest-neighbor
       classification", IEEE Transactions on Pattern Analysis and Machine Intelligence 24, 2002.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey",
       Michigan State University, 2006, section 3.1.5.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import ADAMENNClassifier
    >>> X = np.random.default_rng(0).normal(size=(300, 6))
    >>> y = X[:, 0] > 0
    >>> rule = ADAMENNClassifier(c=20.0).fit(X, y)
    >>> int(rule.weights_at(X).mean(axis=0).argmax())
    0
    """

    state = State(
        {
            "n_average_": integer_value(low=1, max_size="n"),
            "n_region_": integer_value(low=1, max_size="n"),
            "n_slab_": integer_value(low=1, max_size="n"),
            "relevances_": floats("n", "q"),
        }
    )
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "n_average": [none, integer(1)],
        "n_posterior": [integer(1)],
        "n_region": [none, integer(1)],
        "n_slab": [none, integer(1)],
        "c": [real(0)],
        "weighting": [one_of("exponential", "linear", "quadratic")],
        "n_iter": [integer(1, 100)],
        "region": [one_of("euclidean", "weighted")],
        "exclude_self": [boolean],
    }
    settings = ({"c": 20.0}, {"weighting": "linear"})
    at_once = 96  # distances from this many queries to thousands of rows fit into the CPU cache

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 3,
        *,
        n_average: int | None = None,
        n_posterior: int = 3,
        n_region: int | None = None,
        n_slab: int | None = None,
        c: float = 5.0,
        weighting: Literal["exponential", "linear", "quadratic"] = "exponential",
        n_iter: int = 1,
        region: Literal["euclidean", "weighted"] = "euclidean",
        exclude_self: bool = False,
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.n_average = n_average
        self.n_posterior = n_posterior
        self.n_region = n_region
        self.n_slab = n_slab
        self.c = c
        self.weighting = weighting
        self.n_iter = n_iter
        self.region = region
        self.exclude_self = exclude_self
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    def weights_at(self, X: ArrayLike) -> Matrix:
        """Return the feature weights at each point.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points.

        Returns
        -------
        ndarray of shape (n_queries, p)
            Weights for standardized features. Each row sums to 1.
        """
        rows = self._rows()
        (found,) = self._by_block(
            rows, X, lambda block: (self._metrics(rows, block).get_diagonals(),)
        )
        return found

    # ------------------------------------------------------------------ fit

    def _learn(self, rows: LocalRows) -> None:
        n = len(rows)
        others = n - bool(self.exclude_self)
        for name, most in (("n_average", n), ("n_posterior", others), ("n_region", others)):
            self._check_size(name, most)
        region = self.n_region or min(others, max(int(0.15 * n), self.n_posterior + 1))
        for name in ("n_posterior", "n_slab"):
            size = getattr(self, name)
            if size is not None and size > region:
                raise ValueError(
                    f"{name}={size} must be at most the number of points in a region "
                    f"(n_region={region})."
                )
        self.n_average_ = int(self.n_average or min(n, max(n // 10, 20)))
        self.n_region_ = int(region)
        self.n_slab_ = int(self.n_slab or max(1, region // 2))
        columns = FeatureColumns.from_rows(rows)

        def work(block: slice) -> Matrix:
            return self._lists(rows, columns, block, self._sizes(others)).relevances()

        self.relevances_ = np.concatenate(list(self._over(rows, len(rows), work)))

    def _sizes(self, most: int) -> _Sizes:
        """Return the sizes of the lists of nearest rows if there are ``most`` rows in all."""
        region = min(self.n_region_, most)
        return _Sizes(min(self.n_posterior, region), region, min(self.n_slab_, region))

    def _lists(
        self, rows: LocalRows, columns: FeatureColumns, block: slice, sizes: _Sizes
    ) -> _Lists:
        """Return the lists of Euclidean nearest rows for a block of training rows."""
        own = np.arange(block.start, block.stop) if self.exclude_self else None
        queries = rows.make_queries(rows.X[block], own)
        metrics = LocalMetrics.euclidean(len(queries), rows.n_features)
        return _Lists(rows, columns, queries, metrics, sizes)

    def _over(self, rows: LocalRows, n: int, work: Callable[[slice], _Result]) -> Iterator[_Result]:
        """Apply ``work`` to n lists, block by block."""
        each = 32 * len(rows) + 64 * (self.n_region_ + 1)
        blocks = split_rows(n, each, max_rows=self.at_once)
        return map_in_order(work, blocks, resolve_n_threads(self.n_jobs))

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        enough = max(self.n_posterior, self.n_slab_) <= self.n_region_
        check_that(enough, "n_region_ must be at least n_posterior and n_slab_.")
        check_that((self.relevances_ >= 0).all(), "relevances_ must not be negative.")

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        return {"n_neighbors": [3, 5], "n_posterior": [3, 9], "c": [1.0, 5.0, 20.0]}

    # ------------------------------------------------------------------ queries

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        size = min(self.n_average_, len(rows) - (queries.excluded is not None))
        W = np.full(queries.standard.shape, 1 / rows.n_features)
        for step in range(self.n_iter):
            near = rows.find_window(queries, LocalMetrics(weights=W), size).indices
            if step and self.region == "weighted":
                means = self._anew(rows, queries, near, W)
            elif queries.excluded is None:
                means = self._averaged(near)
            else:
                assert isinstance(rows, _Rows)
                means = rows.left_out.means(queries.excluded, near, self.relevances_)
            before, W = W, weights_of(means, self.weighting, self.c)
            if np.array_equal(before, W):  # further iterations would not change the weights
                break
        return LocalMetrics(weights=W)

    def _averaged(self, near: Indices) -> Matrix:
        """Return the mean relevances over the rows ``near`` each query."""
        table = self.relevances_
        blocks = split_rows(len(near), 16 * near.shape[1] * table.shape[1])
        return np.concatenate([table[near[block]].mean(axis=1) for block in blocks])

    def _anew(self, rows: LocalRows, queries: LocalQueries, near: Indices, W: Matrix) -> Matrix:
        """Return the mean relevances over the rows ``near`` each query, under its own weights."""
        columns, z = FeatureColumns.from_rows(rows), near.ravel()
        owner = np.repeat(np.arange(len(near)), near.shape[1])
        hidden = [] if queries.excluded is None else [queries.excluded[owner]]
        hidden += [z] if self.exclude_self else []
        sizes = self._sizes(len(rows) - len(hidden))

        def work(block: slice) -> Matrix:
            unseen = np.stack([rows[block] for rows in hidden], axis=1) if hidden else None
            asked = rows.make_queries(rows.X[z[block]], unseen)
            metrics = LocalMetrics(weights=W[owner[block]])
            return _Lists(rows, columns, asked, metrics, sizes).relevances()

        found = np.concatenate(list(self._over(rows, len(z), work)))
        return np.asarray(found.reshape(*near.shape, -1).mean(axis=1))

    # ------------------------------------------------------------------ leaving one out

    def _rows(self) -> _Rows:
        rows = super()._rows()
        return _Rows(rows.X, rows.codes, rows.n_classes, rows.scale, self)

    def _by_block(
        self,
        rows: LocalRows,
        X: ArrayLike | None,
        work: Callable[[LocalQueries], tuple[NDArray[Any], ...]],
    ) -> tuple[NDArray[Any], ...]:
        if X is None and isinstance(rows, _Rows):
            rows.left_out  # noqa: B018 - computed once, before the threads need it
        return super()._by_block(rows, X, work)

    def _left_out(self, rows: LocalRows) -> _LeftOut:
        """Return the lists of training rows, prepared for leaving out one other row."""
        columns = FeatureColumns.from_rows(rows)
        sizes = self._sizes(len(rows) - 1 - bool(self.exclude_self))
        # One extra row: whichever row is left out, the rest of the list has the right size.
        more = _Sizes(sizes.posterior + 1, sizes.region + 1, sizes.slab)

        def work(block: slice) -> tuple[NDArray[Any], ...]:
            return self._lists(rows, columns, block, more).ready_to_lose_one(sizes)

        parts = zip(*self._over(rows, len(rows), work), strict=True)
        return _LeftOut(columns, sizes.posterior, *map(np.concatenate, parts))


# ---------------------------------------------------------------------- relevance


def chi_squared(shares: Matrix, counts: NDArray[Any]) -> Matrix:
    """Return chi-squared distances (b, p) of class fractions (b, J) from slab counts (b, p, J)."""
    slab = counts.astype(np.float64) + 1.0
    slab /= slab.sum(axis=2, keepdims=True)
    apart = shares[:, None, :] - slab
    apart *= apart
    apart /= slab
    return np.asarray(apart.sum(axis=2))


def weights_of(means: Matrix, weighting: str, c: float) -> Matrix:
    """Return feature weights from mean relevances. Smaller relevances give larger weights."""
    gain = means.max(axis=1, keepdims=True) - means
    if weighting == "exponential":
        weights = np.exp(c * (gain - gain.max(axis=1, keepdims=True)))
    else:
        # Relevances that differ only by rounding count as equal.
        gain[gain.max(axis=1) <= 1e-12 * means.max(axis=1)] = 1.0
        weights = gain if weighting == "linear" else gain**2
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


# ---------------------------------------------------------------------- lists of training rows


class _Sizes(NamedTuple):
    """Numbers of rows in the lists of a training row."""

    posterior: int
    region: int
    slab: int


class _Lists:
    """Lists of the nearest rows for a block of training rows."""

    def __init__(
        self,
        rows: LocalRows,
        columns: FeatureColumns,
        queries: LocalQueries,
        metrics: LocalMetrics,
        sizes: _Sizes,
    ) -> None:
        assert metrics.weights is not None
        self.columns, self.sizes = columns, sizes
        self.X, self.weights = queries.X, metrics.weights
        self.window = rows.find_window(queries, metrics, sizes.region)
        self.region = self.window.indices

    def relevances(self) -> Matrix:
        """Return :math:`r_i` of each training row and feature, of shape (b, p)."""
        k = self.sizes.posterior
        few = mask_smallest(self._squares_of_few(k), k)
        return chi_squared(self._counts(few) / k, self._slabs(self.sizes.slab)[1][0])

    def ready_to_lose_one(self, sizes: _Sizes) -> tuple[NDArray[Any], ...]:
        """Return the arrays of :class:`_LeftOut` for this block."""
        k = sizes.posterior
        squares = self.columns.compute_weighted_squares(self.X, self.region, self.weights)
        fewer, few = mask_smallest(squares, k), mask_smallest(squares, k + 1)
        reach, counts = self._slabs(sizes.slab, sizes.slab + 1)
        return (
            *self._last(squares, np.ones_like(few)),
            *self._last(squares, few),
            self._counts(fewer),
            self._counts(few),
            reach[0],
            *counts,
        )

    def _squares_of_few(self, k: int) -> Matrix:
        """Return squared distances of possible k nearest rows, and infinity for all others."""
        window = self.window
        owner, place = find_entries_within(
            window.squares, bound_kth_smallest(window.squares, k)[1] + 2 * window.errors
        )
        exact = self.columns.compute_weighted_squares(
            self.X[owner], self.region[owner, place, None], self.weights[owner]
        )
        squares = np.full(self.region.shape, np.inf)
        squares[owner, place] = exact[:, 0]
        return squares

    def _slabs(self, *sizes: int) -> tuple[NDArray[np.float64], Singles]:
        return self.columns.find_slabs(self.X, self.region, list(sizes))

    def _counts(self, inside: Mask) -> Matrix:
        """Return the number of rows per class among those inside, (b, J)."""
        owner, place = np.nonzero(inside)
        J = self.columns.n_classes
        codes = self.columns.codes[self.region[owner, place]]
        counts = np.bincount(owner * J + codes, minlength=len(inside) * J)
        return counts.reshape(len(inside), J).astype(np.float64)

    def _last(self, squares: Matrix, inside: Mask) -> tuple[Vector, Indices]:
        """Return the squared distance and the index of the last row among those inside."""
        squares = np.where(inside, squares, -1.0)
        radius = squares.max(axis=1)
        last = squares.shape[1] - 1 - (squares == radius[:, None])[:, ::-1].argmax(axis=1)
        return radius, self.region[np.arange(len(last)), last]


@dataclass(frozen=True)
class _LeftOut:
    """Relevances of training rows when one other row is left out, without a new search.

    The lists contain one extra row. If the row that is left out is in a list, the other rows are
    the new list. If not, the list does not change.
    """

    columns: FeatureColumns
    n_posterior: int
    # Squared distance and index of the last row of each list.
    region_end: Vector
    region_last: Indices
    posterior_end: Vector
    posterior_last: Indices
    # Class counts among the n_posterior nearest rows, and among n_posterior + 1.
    fewer: Matrix
    few: Matrix
    # Width of the slabs, class counts in them, and class counts in slabs with one more row.
    width: Matrix
    narrow: Singles
    wide: Singles

    def means(self, own: Indices, near: Indices, plain: Matrix) -> Matrix:
        """Return the mean relevances over the rows ``near`` (b, m) when row ``own`` is left out."""
        left, z = np.repeat(own, near.shape[1]), near.ravel()
        found = plain[z]
        each = 40 * plain.shape[1] * self.columns.n_classes
        for block in split_rows(len(z), each, max_rows=4096):
            self._replace(left[block], z[block], found[block])
        return np.asarray(found.reshape(*near.shape, -1).mean(axis=1))

    def _replace(self, left: Indices, z: Indices, found: Matrix) -> None:
        apart = self.columns.columns[:, left] - self.columns.columns[:, z]
        squares = self.columns.compute_squares(apart)
        listed = _not_after(squares, left, self.region_end[z], self.region_last[z])
        apart, squares, left, z = apart[:, listed], squares[listed], left[listed], z[listed]
        lost = self.columns.indicators[left]
        among = _not_after(squares, left, self.posterior_end[z], self.posterior_last[z])
        shares = np.where(among[:, None], self.few[z] - lost, self.fewer[z]) / self.n_posterior
        inside = self.width[z] * (1 + EQUAL) >= np.abs(apart).T
        counts = np.where(inside[:, :, None], self.wide[z] - lost[:, None, :], self.narrow[z])
        found[listed] = chi_squared(shares, counts)


@dataclass(frozen=True)
class _Rows(LocalRows):
    """Training rows with the data for leave-one-out, computed on first use."""

    rule: ADAMENNClassifier

    @cached_property
    def left_out(self) -> _LeftOut:
        return self.rule._left_out(self)


def _not_after(squares: Vector, rows: Indices, end: Vector, last: Indices) -> Mask:
    """Return True for rows that are not after the last row of a list, by distance and index."""
    return np.asarray((squares < end) | ((squares == end) & (rows <= last)))
