"""ADAMENN: a nearest-neighbor classifier with local feature weights for each query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalClassifier
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
    bound_kth_distance,
    find_entries_within,
)

_Result = TypeVar("_Result")


class ADAMENNClassifier(LocalClassifier):
    r"""Adaptive metric nearest-neighbor classifier (ADAMENN): local feature weights per query.

    Two estimates of the class probabilities at a training point z are compared:

    - :math:`P(j|z)`, the fraction of class j among the ``n_posterior_neighbors`` nearest points of
      z;
    - :math:`\bar P(j|x_i=z_i)`, which uses feature i alone. Of the ``n_region_neighbors`` nearest
      points of z, it takes the ``n_slab_neighbors`` points (the slab) that are nearest to z along
      feature i.

    The difference between them,

    .. math:: r_i(z) = \sum_j \frac{(P(j|z) - \bar P(j|x_i=z_i))^2}{\bar P(j|x_i=z_i)},

    is small if feature i alone predicts the classes as well as all features do. For a query
    :math:`x_0`, :math:`\bar r_i` is the mean of :math:`r_i` over its ``n_average_neighbors``
    nearest points. With :math:`R_i = \max_l \bar r_l - \bar r_i`, the weights and the distance are

    .. math:: w_i(x_0) \propto \exp(c R_i), \qquad
              d(x, x_0)^2 = \sum_i w_i(x_0) (x_i - x_{0i})^2 .

    Use it if few features matter, these features differ from place to place, and the classes are
    not Gaussian. The result depends strongly on ``weight_scale``; tune it, for example over
    :meth:`grid`.

    Cost: O(n² p) to fit, which computes :math:`r_i(z)` for all training points; then O(n p) per
    query and iteration. With ``region="weighted"``, :math:`r_i(z)` is computed again for each query
    in every iteration after the first, which takes ``n_average_neighbors`` times as long. The
    fitted classifier stores the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. If None, X itself is searched.
    n_neighbors : int, default=3
        Number of neighbors that vote.
    n_average_neighbors : int or None, default=None
        Number of nearest points of a query over which :math:`r_i` is averaged (:math:`K_0` in
        [1]_). None uses a tenth of the rows, but at least 20 rows.
    n_posterior_neighbors : int, default=3
        Number of nearest points from which a posterior is estimated. The posterior is
        :math:`P(j|z)`, and the number is :math:`K_1` in [1]_.
    n_region_neighbors : int or None, default=None
        Number of nearest points from which the slabs are taken (:math:`K_2` in [1]_). None uses 15%
        of the rows, but at least ``n_posterior_neighbors + 1`` rows.
    n_slab_neighbors : int or None, default=None
        Number of points per slab (L in [1]_). Points at the same distance as the farthest of them
        are also included. None uses half of ``n_region_neighbors``.
    weight_scale : float, default=5.0
        Factor in the exponent of the feature weights: c in the formula above. With 0, all features
        have the same weight. Used only if ``weighting="exponential"``.
    weighting : {"exponential", "linear", "quadratic"}, default="exponential"
        Form of the feature weights: proportional to :math:`\exp(c R_i)`, :math:`R_i` or
        :math:`R_i^2`.
    max_iter : int, default=1
        Maximum number of iterations. It must be at most 100. From the second iteration on, the
        nearest points are found with the weights of the previous iteration. The weights need not
        converge.
    region : {"euclidean", "weighted"}, default="euclidean"
        Distance that defines the nearest points of a training point z. "weighted" uses the weights
        of the query, as in [1]_. With "euclidean", :math:`r_i(z)` is the same for all queries.
    exclude_self : bool, default=False
        Exclude each training point z from its own estimates, :math:`P(j|z)` and
        :math:`\bar{P}(j|x_i=z_i)`.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    ties : {"shrink", "first"}, default="shrink"
        How ties between classes are broken: "shrink" repeats the vote with k-1, k-2, … neighbors
        until one class leads, "first" takes the smallest label, as scikit-learn does.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    deviations_ : ndarray of shape (n_features,)
        Standard deviations of the training points, after the learner's transform.
    n_iter_ : int
        Maximum number of iterations per query, equal to ``max_iter``. Queries iterate in
        ``predict``, not in ``fit``.
    n_average_neighbors_, n_region_neighbors_, n_slab_neighbors_ : int
        Values of ``n_average_neighbors``, ``n_region_neighbors`` and ``n_slab_neighbors`` that were
        used.
    relevances_ : ndarray of shape (n_samples, n_features)
        Values :math:`r_i(z)` at the training points. Relevant features have small values.
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
    >>> classifier = ADAMENNClassifier(weight_scale=20.0).fit(X, y)
    >>> int(classifier.weights_at(X).mean(axis=0).argmax())
    0
    """

    renamed: ClassVar = {
        "n_region": "n_region_neighbors",
        "n_slab": "n_slab_neighbors",
        "n_average": "n_average_neighbors",
        "n_posterior": "n_posterior_neighbors",
        "c": "weight_scale",
        "n_iter": "max_iter",
        "n_region_": "n_region_neighbors_",
        "n_slab_": "n_slab_neighbors_",
        "n_average_": "n_average_neighbors_",
    }
    state = State(
        {
            "n_average_neighbors_": integer_value(low=1, max_size="n"),
            "n_region_neighbors_": integer_value(low=1, max_size="n"),
            "n_slab_neighbors_": integer_value(low=1, max_size="n"),
            "relevances_": floats("n", "q"),
        }
    )
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "n_average_neighbors": [none, integer(1)],
        "n_posterior_neighbors": [integer(1)],
        "n_region_neighbors": [none, integer(1)],
        "n_slab_neighbors": [none, integer(1)],
        "weight_scale": [real(0)],
        "weighting": [one_of("exponential", "linear", "quadratic")],
        "max_iter": [integer(1, 100)],
        "region": [one_of("euclidean", "weighted")],
        "exclude_self": [boolean],
    }
    settings = ({"weight_scale": 20.0}, {"weighting": "linear"})
    # Maximum number of queries for which the distances to thousands of rows fit into the CPU cache.
    max_queries_per_block = 96

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 3,
        *,
        n_average_neighbors: int | None = None,
        n_posterior_neighbors: int = 3,
        n_region_neighbors: int | None = None,
        n_slab_neighbors: int | None = None,
        weight_scale: float = 5.0,
        weighting: Literal["exponential", "linear", "quadratic"] = "exponential",
        max_iter: int = 1,
        region: Literal["euclidean", "weighted"] = "euclidean",
        exclude_self: bool = False,
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.n_average_neighbors = n_average_neighbors
        self.n_posterior_neighbors = n_posterior_neighbors
        self.n_region_neighbors = n_region_neighbors
        self.n_slab_neighbors = n_slab_neighbors
        self.weight_scale = weight_scale
        self.weighting = weighting
        self.max_iter = max_iter
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
        (weights,) = self._by_block(
            rows, X, lambda block: (self._metrics(rows, block).get_diagonals(),)
        )
        return weights

    @property
    def n_iter_(self) -> int:
        """Maximum number of iterations per query, equal to ``max_iter``."""
        return int(self.max_iter)

    def _learn(self, rows: LocalRows) -> None:
        n = len(rows)
        n_others = n - bool(self.exclude_self)
        for name, n_rows in (
            ("n_average_neighbors", n),
            ("n_posterior_neighbors", n_others),
            ("n_region_neighbors", n_others),
        ):
            self._check_size(name, n_rows)
        region = self.n_region_neighbors or min(
            n_others, max(int(0.15 * n), self.n_posterior_neighbors + 1)
        )
        for name in ("n_posterior_neighbors", "n_slab_neighbors"):
            size = getattr(self, name)
            if size is not None and size > region:
                raise ValueError(
                    f"{name}={size} must be at most the number of points in a region "
                    f"(n_region_neighbors={region})."
                )
        self.n_average_neighbors_ = int(self.n_average_neighbors or min(n, max(n // 10, 20)))
        self.n_region_neighbors_ = int(region)
        self.n_slab_neighbors_ = int(self.n_slab_neighbors or max(1, region // 2))
        columns = FeatureColumns.from_rows(rows)

        def compute_relevances(block: slice) -> Matrix:
            return self._make_lists(
                rows, columns, block, self._limit_sizes(n_others)
            ).compute_relevances()

        self.relevances_ = np.concatenate(
            list(self._map_lists(rows, len(rows), compute_relevances))
        )

    def _limit_sizes(self, n_rows: int) -> _Sizes:
        """Return the sizes of the neighbor lists, limited to ``n_rows`` rows."""
        region = min(self.n_region_neighbors_, n_rows)
        return _Sizes(
            min(self.n_posterior_neighbors, region), region, min(self.n_slab_neighbors_, region)
        )

    def _make_lists(
        self, rows: LocalRows, columns: FeatureColumns, block: slice, sizes: _Sizes
    ) -> _NeighborLists:
        """Return the nearest rows, by Euclidean distance, of each training row in a block."""
        excluded = np.arange(block.start, block.stop) if self.exclude_self else None
        queries = rows.make_queries(rows.X[block], excluded)
        metrics = LocalMetrics.euclidean(len(queries), rows.n_features)
        return _NeighborLists(rows, columns, queries, metrics, sizes)

    def _map_lists(
        self, rows: LocalRows, n: int, work: Callable[[slice], _Result]
    ) -> Iterator[_Result]:
        """Call ``work`` with slices of n neighbor lists and yield the results in order."""
        bytes_per_list = 32 * len(rows) + 64 * (self.n_region_neighbors_ + 1)
        blocks = split_rows(n, bytes_per_list, max_rows=self.max_queries_per_block)
        return map_in_order(work, blocks, resolve_n_threads(self.n_jobs))

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        enough = max(self.n_posterior_neighbors, self.n_slab_neighbors_) <= self.n_region_neighbors_
        check_that(
            enough,
            "n_region_neighbors_ must be at least n_posterior_neighbors and n_slab_neighbors_.",
        )
        check_that((self.relevances_ >= 0).all(), "relevances_ must not be negative.")

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        return {
            "n_neighbors": [3, 5],
            "n_posterior_neighbors": [3, 9],
            "weight_scale": [1.0, 5.0, 20.0],
        }

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        size = min(self.n_average_neighbors_, len(rows) - (queries.excluded is not None))
        W = np.full(queries.standard.shape, 1 / rows.n_features)
        for step in range(self.max_iter):
            near = rows.find_window(queries, LocalMetrics(weights=W), size).indices
            if step and self.region == "weighted":
                means = self._recompute_relevances(rows, queries, near, W)
            elif queries.excluded is None:
                means = self._average_relevances(near)
            else:
                assert isinstance(rows, _Rows)
                means = rows.leave_one_out.compute_means(queries.excluded, near, self.relevances_)
            previous_W, W = W, compute_feature_weights(means, self.weighting, self.weight_scale)
            if np.array_equal(previous_W, W):  # Further iterations would not change the weights.
                break
        return LocalMetrics(weights=W)

    def _average_relevances(self, near: Indices) -> Matrix:
        """Return the mean of the relevances over the nearest rows (``near``) of each query."""
        table = self.relevances_
        blocks = split_rows(len(near), 16 * near.shape[1] * table.shape[1])
        return np.concatenate([table[near[block]].mean(axis=1) for block in blocks])

    def _recompute_relevances(
        self, rows: LocalRows, queries: LocalQueries, near: Indices, W: Matrix
    ) -> Matrix:
        """Recompute relevances with the weights of each query, and return their means."""
        columns, z = FeatureColumns.from_rows(rows), near.ravel()
        owner = np.repeat(np.arange(len(near)), near.shape[1])
        excluded = [] if queries.excluded is None else [queries.excluded[owner]]
        excluded += [z] if self.exclude_self else []
        sizes = self._limit_sizes(len(rows) - len(excluded))

        def compute_relevances(block: slice) -> Matrix:
            block_excluded = (
                np.stack([column[block] for column in excluded], axis=1) if excluded else None
            )
            block_queries = rows.make_queries(rows.X[z[block]], block_excluded)
            metrics = LocalMetrics(weights=W[owner[block]])
            return _NeighborLists(rows, columns, block_queries, metrics, sizes).compute_relevances()

        relevances = np.concatenate(list(self._map_lists(rows, len(z), compute_relevances)))
        return np.asarray(relevances.reshape(*near.shape, -1).mean(axis=1))

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
            rows.leave_one_out  # noqa: B018 - Computed here, before the threads start.
        return super()._by_block(rows, X, work)

    def _prepare_leave_one_out(self, rows: LocalRows) -> _LeaveOneOut:
        """Return the neighbor lists of all training rows, with the data for leaving out one row."""
        columns = FeatureColumns.from_rows(rows)
        sizes = self._limit_sizes(len(rows) - 1 - bool(self.exclude_self))
        # Each list has one extra row, so that it has the right size after any row is left out.
        larger_sizes = _Sizes(sizes.posterior + 1, sizes.region + 1, sizes.slab)

        def prepare_block(block: slice) -> tuple[NDArray[Any], ...]:
            return self._make_lists(rows, columns, block, larger_sizes).prepare_leave_one_out(sizes)

        arrays = zip(*self._map_lists(rows, len(rows), prepare_block), strict=True)
        return _LeaveOneOut(columns, sizes.posterior, *map(np.concatenate, arrays))


def compute_chi_squared(fractions: Matrix, counts: NDArray[Any]) -> Matrix:
    """Return the chi-squared distance between the class fractions of a row and of each slab.

    ``fractions`` has shape (b, J), ``counts`` are class counts in slabs of shape (b, p, J), and the
    result has shape (b, p).
    """
    slab = counts.astype(np.float64) + 1.0
    slab /= slab.sum(axis=2, keepdims=True)
    gaps = fractions[:, None, :] - slab
    gaps *= gaps
    gaps /= slab
    return np.asarray(gaps.sum(axis=2))


def compute_feature_weights(means: Matrix, weighting: str, c: float) -> Matrix:
    """Return feature weights from mean relevances. Smaller relevances give larger weights."""
    gain = means.max(axis=1, keepdims=True) - means
    if weighting == "exponential":
        weights = np.exp(c * (gain - gain.max(axis=1, keepdims=True)))
    else:
        # Treat relevances that differ only by rounding as equal.
        gain[gain.max(axis=1) <= 1e-12 * means.max(axis=1)] = 1.0
        weights = gain if weighting == "linear" else gain**2
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


class _Sizes(NamedTuple):
    """Numbers of neighbors of a training row in its posterior, its region and its slabs."""

    posterior: int
    region: int
    slab: int


class _NeighborLists:
    """Nearest rows of each training row in a block."""

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

    def compute_relevances(self) -> Matrix:
        """Return :math:`r_i` of each training row and feature, of shape (b, p)."""
        k = self.sizes.posterior
        is_nearest = mask_smallest(self._compute_candidate_squares(k), k)
        return compute_chi_squared(
            self._count_classes(is_nearest) / k, self._count_slabs(self.sizes.slab)[1][0]
        )

    def prepare_leave_one_out(self, sizes: _Sizes) -> tuple[NDArray[Any], ...]:
        """Return the array fields of :class:`_LeaveOneOut` for this block."""
        k = sizes.posterior
        squares = self.columns.compute_weighted_squares(self.X, self.region, self.weights)
        is_nearest_without_last, is_nearest = (
            mask_smallest(squares, k),
            mask_smallest(squares, k + 1),
        )
        reach, counts = self._count_slabs(sizes.slab, sizes.slab + 1)
        return (
            *self._find_last(squares, np.ones_like(is_nearest)),
            *self._find_last(squares, is_nearest),
            self._count_classes(is_nearest_without_last),
            self._count_classes(is_nearest),
            reach[0],
            *counts,
        )

    def _compute_candidate_squares(self, k: int) -> Matrix:
        """Return squared distances, with infinity for rows that cannot be among the k nearest."""
        window = self.window
        owner, place = find_entries_within(
            window.squares, bound_kth_distance(window.squares, k)[1] + 2 * window.errors
        )
        exact = self.columns.compute_weighted_squares(
            self.X[owner], self.region[owner, place, None], self.weights[owner]
        )
        squares = np.full(self.region.shape, np.inf)
        squares[owner, place] = exact[:, 0]
        return squares

    def _count_slabs(self, *sizes: int) -> tuple[NDArray[np.float64], Singles]:
        return self.columns.find_slabs(self.X, self.region, list(sizes))

    def _count_classes(self, is_inside: Mask) -> Matrix:
        """Return the class counts of the rows selected by the mask, of shape (b, J)."""
        owner, place = np.nonzero(is_inside)
        J = self.columns.n_classes
        codes = self.columns.codes[self.region[owner, place]]
        counts = np.bincount(owner * J + codes, minlength=len(is_inside) * J)
        return counts.reshape(len(is_inside), J).astype(np.float64)

    def _find_last(self, squares: Matrix, is_inside: Mask) -> tuple[Vector, Indices]:
        """Return the squared distance and the index of the farthest row selected by the mask."""
        squares = np.where(is_inside, squares, -1.0)
        radius = squares.max(axis=1)
        last = squares.shape[1] - 1 - (squares == radius[:, None])[:, ::-1].argmax(axis=1)
        return radius, self.region[np.arange(len(last)), last]


@dataclass(frozen=True)
class _LeaveOneOut:
    """Relevances after a training row is left out, computed without a new neighbor search.

    The lists contain one extra row. If a list contains the row that is left out, the other rows
    form the new list. If not, the list without its extra row is used.
    """

    columns: FeatureColumns
    n_posterior_neighbors: int
    # Squared distance and index of the farthest row of each list.
    region_end: Vector
    region_last: Indices
    posterior_end: Vector
    posterior_last: Indices
    # Class counts among the n_posterior_neighbors nearest rows.
    counts: Matrix
    # Class counts among the n_posterior_neighbors + 1 nearest rows.
    counts_with_extra: Matrix
    # Half width of each slab.
    width: Matrix
    # Class counts in each slab.
    narrow: Singles
    # Class counts in the slab with one more row.
    wide: Singles

    def compute_means(self, own: Indices, near: Indices, full_relevances: Matrix) -> Matrix:
        """Return mean relevances over the rows ``near``, (b, m), without the row ``own``."""
        left_out_rows, z = np.repeat(own, near.shape[1]), near.ravel()
        relevances = full_relevances[z]
        bytes_per_list = 40 * full_relevances.shape[1] * self.columns.n_classes
        for block in split_rows(len(z), bytes_per_list, max_rows=4096):
            self._replace_relevances(left_out_rows[block], z[block], relevances[block])
        return np.asarray(relevances.reshape(*near.shape, -1).mean(axis=1))

    def _replace_relevances(self, left_out_rows: Indices, z: Indices, relevances: Matrix) -> None:
        differences = self.columns.columns[:, left_out_rows] - self.columns.columns[:, z]
        squares = self.columns.compute_squares(differences)
        is_listed = _is_not_after(squares, left_out_rows, self.region_end[z], self.region_last[z])
        differences, squares, left_out_rows, z = (
            differences[:, is_listed],
            squares[is_listed],
            left_out_rows[is_listed],
            z[is_listed],
        )
        lost_classes = self.columns.indicators[left_out_rows]
        is_posterior = _is_not_after(
            squares, left_out_rows, self.posterior_end[z], self.posterior_last[z]
        )
        fractions = (
            np.where(
                is_posterior[:, None], self.counts_with_extra[z] - lost_classes, self.counts[z]
            )
            / self.n_posterior_neighbors
        )
        is_inside = self.width[z] * (1 + EQUAL) >= np.abs(differences).T
        counts = np.where(
            is_inside[:, :, None], self.wide[z] - lost_classes[:, None, :], self.narrow[z]
        )
        relevances[is_listed] = compute_chi_squared(fractions, counts)


@dataclass(frozen=True)
class _Rows(LocalRows):
    """Training rows. The data for leave-one-out are computed on first use."""

    classifier: ADAMENNClassifier

    @cached_property
    def leave_one_out(self) -> _LeaveOneOut:
        return self.classifier._prepare_leave_one_out(self)


def _is_not_after(squares: Vector, rows: Indices, end: Vector, last: Indices) -> Mask:
    """Return True for rows that precede or equal the last row of a list.

    The last row has the squared distance ``end`` and the index ``last``.
    """
    return np.asarray((squares < end) | ((squares == end) & (rows <= last)))
