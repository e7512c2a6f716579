"""Machete and scythe: a region around the query that shrinks along the relevant features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalClassifier
from nearfar.blocks import split_rows
from nearfar.parameters import integer, one_of, real
from nearfar.summaries.feature_slabs import (
    EQUAL,
    FeatureColumns,
    Singles,
    count_in_slabs,
    mask_smallest,
)
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows

# Decimal digits to which relevances are rounded before the largest is chosen, so that the choice
# does not depend on rounding errors.
_DIGITS = 12


class FriedmanClassifier(LocalClassifier):
    r"""Friedman's machete and scythe: vote in a region that shrinks along the relevant features.

    For a query z, the region R starts as all training points and is cut repeatedly. In each step,
    the relevance of feature i compares the class fractions :math:`\bar P_j` in R with
    :math:`\hat P_j(z_i)`, those among the points of R that are nearest to z along feature i alone:

    .. math:: I_i^2 = \sum_j (\bar P_j - \hat P_j(z_i))^2, \qquad
              r_i^2 = \frac{I_i^2}{\sum_l I_l^2}.

    A cut keeps the fraction ``keep_fraction`` of R that is nearest to z. The *machete* measures the
    distance along the most relevant feature alone, so that its regions are boxes. The *scythe* uses
    all features, with the standard deviations :math:`s_i` in R:

    .. math:: \sum_i r_i^2 (x_i - z_i)^2 / s_i^2 .

    The cuts end when ``n_neighbors`` points are left; these vote. If no feature is relevant in a
    region, all features get the same relevance.

    Use it if few features matter and they differ from place to place; use the machete if one
    feature at a time matters. ``kneighbors`` returns the points of the last region in the order of
    the last cut, and ``metric_at`` the metric of that cut.

    Cost: O(n p / (1 - keep_fraction)) per query. The fitted classifier stores the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. If None, X itself is searched.
    n_neighbors : int, default=10
        Number of neighbors that vote.
    variant : {"scythe", "machete"}, default="scythe"
        Features used by a cut: "scythe" uses all features, weighted by relevance, and "machete"
        uses only the most relevant feature.
    keep_fraction : float, default=0.7
        Fraction of a region's points that each cut keeps, above 0 and below 1.
    window : float, default=0.2
        Fraction of a region's points used to estimate :math:`\hat P_j(z_i)`. Points at the same
        distance as the farthest of them are also included.
    min_window : int, default=10
        Minimum number of points used to estimate :math:`\hat P_j(z_i)`.
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
    estimator_ : object or None
        Fitted learner, or None if ``estimator`` is None.

    See Also
    --------
    ADAMENNClassifier, DANNClassifier, KNNClassifier

    References
    ----------
    .. [1] J. H. Friedman, "Flexible metric nearest neighbor classification", Stanford University,
       1994.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey",
       Michigan State University, 2006, section 3.1.3.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import FriedmanClassifier
    >>> X = np.random.default_rng(0).normal(size=(400, 6))
    >>> y = (X[:, :2] ** 2).sum(axis=1) > 1.4
    >>> scythe = FriedmanClassifier().fit(X[:200], y[:200])
    >>> scythe.region_sizes()
    [200, 140, 98, 68, 47, 32, 22, 15, 10]
    >>> sorted(scythe.relevance_at(X[200:]).mean(axis=0).argsort()[-2:].tolist())
    [0, 1]
    """

    renamed: ClassVar = {"mode": "variant", "alpha": "keep_fraction"}
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "variant": [one_of("scythe", "machete")],
        "keep_fraction": [real(0, np.nextafter(1, 0), open_low=True)],
        "window": [real(0, 1, open_low=True)],
        "min_window": [integer(1)],
    }
    settings = ({"variant": "machete"}, {"keep_fraction": 0.5})
    aliases: ClassVar = {"scythe": {"variant": "scythe"}, "machete": {"variant": "machete"}}
    # The last region depends on n_neighbors, so a row among the k - 1 nearest rows may be missing
    # from the k nearest rows.
    nested = False

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 10,
        *,
        variant: Literal["scythe", "machete"] = "scythe",
        keep_fraction: float = 0.7,
        window: float = 0.2,
        min_window: int = 10,
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.variant = variant
        self.keep_fraction = keep_fraction
        self.window = window
        self.min_window = min_window
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    def region_sizes(self) -> list[int]:
        """Return the number of points in each region, from the largest to the smallest region."""
        return self._region_sizes(len(self._rows()), self.n_neighbors)

    def relevance_at(self, X: ArrayLike, step: int = 0) -> Matrix:
        """Return the relevance of each feature at each point, before a given cut.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points.
        step : int, default=0
            Index of the cut whose starting region is used. -1 is the last cut.

        Returns
        -------
        ndarray of shape (n_queries, p)
            Relevances :math:`r_i^2`. Each row sums to 1.
        """
        rows, step = self._rows(), self._check_step(step)
        (relevances,) = self._by_block(
            rows, X, lambda block: (self._compute_cuts(rows, block).relevances[step],)
        )
        return relevances

    def regions_at(self, X: ArrayLike, step: int = -1) -> NDArray[np.float64]:
        """Return the box around each point after a given cut, for ``variant="machete"``.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points.
        step : int, default=-1
            Index of the cut after which the box is returned. -1 is the last cut.

        Returns
        -------
        ndarray of shape (n_queries, p, 2)
            Lower and upper end along each feature, in the units of X, or of the transformed
            points if there is a learner. A feature that was not cut has infinite ends. A cut in
            which no feature is relevant does not change the box.
        """
        if self.variant != "machete":
            raise ValueError(
                'regions_at needs variant="machete", whose regions are boxes; got '
                f"variant={self.variant!r}."
            )
        rows, step = self._rows(), self._check_step(step)

        def compute_boxes(block: LocalQueries) -> tuple[NDArray[np.float64]]:
            half_widths = self._compute_cuts(rows, block).boxes[step]
            return (np.stack([block.X - half_widths, block.X + half_widths], axis=2),)

        (regions,) = self._by_block(rows, X, compute_boxes)
        return regions

    def _check_step(self, step: int) -> int:
        n_cuts = max(1, len(self.region_sizes()) - 1)
        if not -n_cuts <= step < n_cuts:
            raise ValueError(
                f"step={step} must be from {-n_cuts} to {n_cuts - 1}, as there are {n_cuts} cuts."
            )
        return step % n_cuts

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        return {
            "variant": ["scythe", "machete"],
            "n_neighbors": [5, 10],
            "keep_fraction": [0.5, 0.7],
        }

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        return LocalMetrics(weights=self._compute_cuts(rows, queries).weights)

    def _find_neighbors(
        self, rows: LocalRows, queries: LocalQueries, k: int
    ) -> tuple[Matrix, Indices]:
        return self._order_region(rows, queries, self._compute_cuts(rows, queries, k), k)

    def _order_region(
        self, rows: LocalRows, queries: LocalQueries, cut: _Cuts | _Cut, k: int
    ) -> tuple[Matrix, Indices]:
        """Return the k nearest rows of the last region, with the weights of the last cut."""
        owner = np.repeat(np.arange(len(queries)), cut.region.shape[1])
        metrics = LocalMetrics(weights=cut.weights)
        squares = rows.measure(queries, metrics, owner, cut.region.ravel())
        squares = squares.reshape(cut.region.shape)
        order = np.argsort(squares, axis=1, kind="stable")[:, :k]
        distances = np.sqrt(np.take_along_axis(squares, order, axis=1))
        return distances, np.take_along_axis(cut.region, order, axis=1)

    def kneighbors_by_k(self, X: ArrayLike, max_neighbors: int) -> list[Indices]:
        """Return the nearest points for each ``n_neighbors`` from 1 to ``max_neighbors``.

        The result for each k is the same as from a classifier fitted with ``n_neighbors=k``. Only
        the last cut depends on k, so the results for all k are computed in one pass.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points.
        max_neighbors : int
            Largest ``n_neighbors``.

        Returns
        -------
        list of ndarray of shape (n_queries, k)
            One array for each k from 1 to ``max_neighbors``.
        """
        rows = self._rows()
        if not 1 <= max_neighbors <= len(rows):
            raise ValueError(
                f"max_neighbors={max_neighbors} must be from 1 to the number of training points, "
                f"{len(rows)}."
            )
        return list(
            self._by_block(
                rows, X, lambda block: self._find_neighbors_by_k(rows, block, max_neighbors)
            )
        )

    def _find_neighbors_by_k(
        self, rows: _Rows, queries: LocalQueries, max_neighbors: int
    ) -> tuple[Indices, ...]:
        sizes = self._region_sizes(len(rows), 1)
        sizes += sizes if len(sizes) == 1 else []
        blocks = []
        for block in split_rows(len(queries), 24 * rows.n_features * sizes[1]):
            block_queries, neighbors = queries[block], {}
            for cut, (size, n_kept) in zip(
                self._iterate_cuts(rows, block_queries, sizes), pairwise(sizes), strict=True
            ):
                # If k is at least ``n_kept``, this cut is the last one for k.
                for k in range(n_kept, min(size, max_neighbors) + 1):
                    if k not in neighbors:
                        last_cut = cut._replace(region=cut.select(k))
                        neighbors[k] = self._order_region(rows, block_queries, last_cut, k)[1]
            blocks.append([neighbors[k] for k in range(1, max_neighbors + 1)])
        return tuple(np.concatenate(arrays) for arrays in zip(*blocks, strict=True))

    def _explain_block(
        self, rows: LocalRows, queries: LocalQueries, k: int
    ) -> tuple[Matrix, NDArray[np.float64], Matrix, Indices]:
        cuts = self._compute_cuts(rows, queries, k)
        distances, neighbors = self._order_region(rows, queries, cuts, k)
        owner = np.repeat(np.arange(len(queries)), k)
        differences = rows.compute_differences(queries, owner, neighbors.ravel())
        contributions = LocalMetrics(weights=cuts.weights).split_by_feature(differences, owner)
        relevance = np.mean(cuts.relevances, axis=0)
        return relevance, contributions.reshape(*neighbors.shape, -1), distances, neighbors

    def _rows(self) -> _Rows:
        rows = super()._rows()
        return _Rows(rows.X, rows.codes, rows.n_classes, rows.scale)

    def _region_sizes(self, n: int, k: int) -> list[int]:
        sizes = [n]
        while sizes[-1] > k:
            sizes.append(max(k, int(self.keep_fraction * sizes[-1])))
        return sizes

    def _compute_cuts(self, rows: LocalRows, queries: LocalQueries, k: int = 1) -> _Cuts:
        """Return all cuts of a block of queries, down to ``max(k, n_neighbors)`` rows."""
        assert isinstance(rows, _Rows)
        n = len(rows) - (queries.excluded is not None)
        sizes = self._region_sizes(n, min(n, max(k, self.n_neighbors)))
        # Even if all rows are kept, one cut is needed to order them.
        sizes += sizes if len(sizes) == 1 else []
        n_entries = rows.n_features * sizes[queries.excluded is None]
        blocks = [
            self._compute_all_cuts(rows, queries[block], sizes)
            for block in split_rows(len(queries), 24 * n_entries)
        ]
        relevances, boxes, weights, region = zip(*blocks, strict=True)
        return _Cuts(
            np.concatenate(relevances, axis=1),
            np.concatenate(boxes, axis=1),
            np.concatenate(weights),
            np.concatenate(region),
        )

    def _compute_all_cuts(self, rows: _Rows, queries: LocalQueries, sizes: list[int]) -> _Cuts:
        b = np.arange(len(queries))
        box = np.full(queries.X.shape, np.inf)
        relevances: list[Matrix] = []
        boxes: list[Matrix] = []
        for cut in self._iterate_cuts(rows, queries, sizes):
            if self.variant == "machete":
                best, region = cut.best, cut.region
                offsets = np.abs(rows.X[region, best[:, None]] - queries.X[b, best][:, None])
                half_width = np.where(cut.is_irrelevant, np.inf, offsets.max(axis=1))
                box[b, best] = np.minimum(box[b, best], half_width)
            relevances.append(cut.relevance)
            boxes.append(box.copy())
        return _Cuts(np.stack(relevances), np.stack(boxes), cut.weights, cut.region)

    def _iterate_cuts(self, rows: _Rows, queries: LocalQueries, sizes: list[int]) -> Iterator[_Cut]:
        """Yield the cut from each region to the next smaller one."""
        columns = rows.columns
        # None stands for all rows. These are sorted in advance.
        region: Indices | None = None
        if queries.excluded is not None:
            row_indices = np.arange(len(rows) - 1)
            region = row_indices + (row_indices >= queries.excluded[:, None])
        for size, n_kept in pairwise(sizes):
            window = int(min(size, max(self.min_window, int(self.window * size))))
            if region is None:
                counts = rows.sorted_features.count_classes(queries.X / columns.unit, window)
                fractions, variances = rows.class_fractions, rows.variances
            else:
                squares, variances = compute_squares_and_variances(columns, queries.X, region)
                indicators = columns.indicators[region]
                counts = count_in_slabs(squares, window, indicators)
                fractions = (np.ones(size, np.float32) @ indicators).astype(np.float64) / size
            relevance, is_irrelevant = compute_slab_relevance(counts, fractions)
            best = np.round(relevance, _DIGITS).argmax(axis=1)
            weights = relevance / variances
            if self.variant == "machete":
                weights[~is_irrelevant] = np.eye(rows.n_features)[best[~is_irrelevant]]
            select: Callable[[int], Indices]
            if region is None:
                select = partial(_select_nearest, rows, queries, LocalMetrics(weights=weights))
            else:
                select = partial(
                    _select_lowest, region, _compute_scores(squares, weights * columns.stretch)
                )
            region = select(n_kept)
            yield _Cut(relevance, is_irrelevant, best, weights, region, select)


class _Cut(NamedTuple):
    """One cut for a block of queries."""

    # Relevance of each feature, of shape (b, p).
    relevance: Matrix
    # True for queries for which no feature is relevant, of shape (b,).
    is_irrelevant: Mask
    # Index of the most relevant feature, of shape (b,).
    best: Indices
    # Weights of the standardized features, of shape (b, p).
    weights: Matrix
    # Indices of the rows that the cut keeps, in ascending order, of shape (b, n_kept).
    region: Indices
    # Function that returns the rows that remain if the cut keeps a given number of rows.
    select: Callable[[int], Indices]


def _select_nearest(
    rows: LocalRows, queries: LocalQueries, metrics: LocalMetrics, n_kept: int
) -> Indices:
    return rows.find_window(queries, metrics, n_kept).indices


def _select_lowest(region: Indices, scores: Matrix, n_kept: int) -> Indices:
    """Return the rows of a region with the lowest scores. Ties go to the first rows."""
    if n_kept == region.shape[1]:
        return region
    return region[mask_smallest(scores, n_kept, EQUAL)].reshape(-1, n_kept)


class _Cuts(NamedTuple):
    """All cuts for a block of queries."""

    # Relevance of each feature before each cut, of shape (n_cuts, b, p).
    relevances: NDArray[np.float64]
    # Half widths of the box after each cut, in the units of X, of shape (n_cuts, b, p).
    boxes: NDArray[np.float64]
    # Weights of the standardized features in the last cut, of shape (b, p).
    weights: Matrix
    # Indices of the rows of the last region, in ascending order, of shape (b, k).
    region: Indices


def compute_slab_relevance(counts: NDArray[Any], fractions: Matrix) -> tuple[Matrix, Mask]:
    """Return the relevances (b, p), and a mask of the queries without a relevant feature.

    ``counts`` are the class counts in slabs, (b, p, J), and ``fractions`` the class fractions in
    the region.
    """
    counts = counts.astype(np.float64)
    gaps = counts / counts.sum(axis=2, keepdims=True)
    gaps -= fractions.reshape(-1, 1, fractions.shape[-1])
    gaps *= gaps
    gain = gaps.sum(axis=2)
    total = gain.sum(axis=1, keepdims=True)
    # The comparison is exact, because equal fractions give a gap of exactly 0.
    is_irrelevant = total[:, 0] == 0
    total[is_irrelevant] = 1.0
    gain[is_irrelevant] = 1 / gain.shape[1]
    return gain / total, is_irrelevant


def compute_squares_and_variances(
    columns: FeatureColumns, given: Matrix, region: Indices
) -> tuple[NDArray[np.float64], Matrix]:
    """Return squared differences to the rows of a region, and variances in the region.

    The squared differences are in the units of ``columns`` and have shape (p, b, m). The variances
    have shape (b, p).
    """
    squares = columns.compute_differences(given, region)
    means = squares.mean(axis=2)
    np.multiply(squares, squares, out=squares)
    seconds = squares.mean(axis=2)
    variances = seconds - means**2
    # Far from the query, and for features that are constant in a region, this subtraction leaves
    # only rounding errors. Compute these variances directly.
    feature, query = np.nonzero(variances < 1e-6 * seconds)
    if feature.size:
        values = columns.columns[feature[:, None], region[query]]
        variances[feature, query] = np.var(values - values[:, :1], axis=1)
    variances *= columns.stretch[:, None]
    return squares, np.where(variances > 0, variances, 1.0).T


def _compute_scores(squares: NDArray[np.float64], weights: Matrix) -> Matrix:
    """Return sums over the features, weighted by ``weights``, of shape (b, m).

    The terms are added one feature at a time, so that equal terms give exactly equal sums.
    """
    total = np.zeros(squares.shape[1:])
    terms = np.empty_like(total)
    for feature_squares, weight in zip(squares, weights.T, strict=True):
        np.multiply(feature_squares, weight[:, None], out=terms)
        total += terms
    return total


@dataclass(frozen=True)
class _Rows(LocalRows):
    """Training rows. Data that the first cuts of all queries share are computed on first use."""

    @cached_property
    def columns(self) -> FeatureColumns:
        return FeatureColumns.from_rows(self)

    @cached_property
    def sorted_features(self) -> _SortedFeatures:
        return _SortedFeatures.from_columns(self.columns)

    @cached_property
    def class_fractions(self) -> Vector:
        return np.bincount(self.codes, minlength=self.n_classes) / len(self)

    @cached_property
    def variances(self) -> Vector:
        columns = self.columns
        variances = np.var(columns.columns - columns.columns[:, :1], axis=1) * columns.stretch
        return np.where(variances > 0, variances, 1.0)


@dataclass(frozen=True)
class _SortedFeatures:
    """The training values of each feature in ascending order. A slab is a range of positions."""

    # Sorted values of each feature, of shape (p, n).
    columns: Matrix
    # Class counts before each position, of shape (p, n + 1, J).
    below: Singles

    @classmethod
    def from_columns(cls, columns: FeatureColumns) -> _SortedFeatures:
        order = np.argsort(columns.columns, axis=1)
        p, n = order.shape
        below = np.zeros((p, n + 1, columns.n_classes), dtype=np.float32)
        np.cumsum(columns.indicators[order], axis=1, out=below[:, 1:])
        return cls(np.take_along_axis(columns.columns, order, axis=1), below)

    def count_classes(self, queries: Matrix, size: int) -> Singles:
        """Return the class counts (b, p, J) of all training rows in the slabs of each query.

        ``queries`` has shape (b, p), in the units of the columns.
        """
        n, p = self.columns.shape[1], queries.shape[1]
        features, z = np.arange(p), queries

        def value_at(position: Indices) -> Matrix:
            return np.asarray(self.columns[features, np.clip(position, 0, n - 1)])

        # The slab starts at the first position whose value is at most as far from the query as the
        # value ``size`` positions later.
        start = _find_first(lambda k: z - value_at(k) <= value_at(k + size) - z, n - size, z.shape)
        radius = np.maximum(z - value_at(start), value_at(start + size - 1) - z) * (1 + EQUAL)
        begin = _find_first(lambda k: z - value_at(k) <= radius, n, z.shape)
        end = _find_first(lambda k: value_at(k) - z > radius, n, z.shape)
        return np.asarray(self.below[features, end] - self.below[features, begin])


def _find_first(holds: Callable[[Indices], Mask], n: int, shape: tuple[int, ...]) -> Indices:
    """Return the first of n positions where a monotone condition holds, or n if it never does."""
    low, high = np.zeros(shape, dtype=np.intp), np.full(shape, n, dtype=np.intp)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        is_found = holds(middle) | (middle >= high)
        low, high = np.where(is_found, low, middle + 1), np.where(is_found, middle, high)
    return low
