"""Machete and scythe: a region around the query, cut smaller along the features that matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalVoter
from nearfar.blocks import row_blocks
from nearfar.parameters import integer, one_of, real
from nearfar.summaries.feature_slabs import EQUAL, FeatureColumns, Singles, slab_counts, smallest
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows

# Relevances nearer than this are equal: which of them is the largest must not depend on rounding.
_DIGITS = 12


class FriedmanClassifier(LocalVoter):
    r"""Vote in a region that is cut down, again and again, along the features that matter in it.

    The region R begins as all training points. In it, feature i matters at the query z as far as
    the shares of classes among the points nearest to :math:`z_i` along feature i alone differ from
    those in all of R,

    .. math:: I_i^2 = \sum_j (\bar P_j - \hat P_j(z_i))^2, \qquad
              r_i^2 = \frac{I_i^2}{\sum_l I_l^2},

    and the share ``alpha`` of R is kept that is nearest: along the most relevant feature alone
    (the *machete*, whose regions are boxes), or by

    .. math:: \sum_i r_i^2 (x_i - z_i)^2 / s_i^2

    with the deviations :math:`s_i` in R (the *scythe*). This goes on until ``n_neighbors`` points
    are left, which vote. Where no feature matters in a region, all do alike.

    Use it where few features matter and which ones differs from place to place; the machete where
    it is one at a time. Neighbours are the points of the last region in the order of the last cut,
    and ``metric_at`` is the metric of that cut.

    Cost: O(n p / (1 - alpha)) for each query. Keeps the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Fitted first; neighbours are searched after its ``transform``. None searches X itself.
    n_neighbors : int, default=10
        How many points vote.
    mode : {"scythe", "machete"}, default="scythe"
        Whether all features cut, each by its relevance, or the most relevant one alone.
    alpha : float, default=0.7
        The share of a region that a cut keeps, below one.
    window : float, default=0.2
        The share of a region that :math:`\hat P_j(z_i)` is taken from; all points at the distance
        of the last one count too.
    min_window : int, default=10
        The least number of points that it is taken from.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    ties : {"shrink", "first"}, default="shrink"
        "first" lets the smallest label win; scikit-learn's classifier does so.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    deviations_ : ndarray of shape (n_features,)
        Those of the training points, after the learner's map.
    estimator_ : object or None
        The fitted learner.

    See Also
    --------
    ADAMENNClassifier, DANNClassifier, KNNClassifier

    References
    ----------
    .. [1] J. H. Friedman, "Flexible metric nearest neighbor classification", Stanford University,
       1994.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey",
       2006, section 3.1.3.

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

    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "mode": [one_of("scythe", "machete")],
        "alpha": [real(0, np.nextafter(1, 0), open_low=True)],
        "window": [real(0, 1, open_low=True)],
        "min_window": [integer(1)],
    }
    settings = ({"mode": "machete"}, {"alpha": 0.5})
    also_called: ClassVar = {"scythe": {"mode": "scythe"}, "machete": {"mode": "machete"}}
    nested = False  # the cuts end at n_neighbors

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 10,
        *,
        mode: Literal["scythe", "machete"] = "scythe",
        alpha: float = 0.7,
        window: float = 0.2,
        min_window: int = 10,
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.alpha = alpha
        self.window = window
        self.min_window = min_window
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    # ------------------------------------------------------------------ what users ask

    def region_sizes(self) -> list[int]:
        """How many points there are in the regions, from all of them to those that vote."""
        return self._region_sizes(len(self._rows()), self.n_neighbors)

    def relevance_at(self, X: ArrayLike, step: int = 0) -> Matrix:
        """How much features matter at each point, in the region that a cut begins with.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Points.
        step : int, default=0
            The number of the cut; -1 is the last.

        Returns
        -------
        ndarray of shape (n_queries, p)
            Each row adds up to one.
        """
        rows, step = self._rows(), self._step(step)
        (found,) = self._by_block(
            rows, X, lambda block: (self._cuts(rows, block).relevances[step],)
        )
        return found

    def regions_at(self, X: ArrayLike, step: int = -1) -> NDArray[np.float64]:
        """The box around each point that a machete has cut.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Points.
        step : int, default=-1
            After which cut; -1 is the last.

        Returns
        -------
        ndarray of shape (n_queries, p, 2)
            From where to where along each feature, in the units of X (of mapped points after a
            learner); infinite where nothing was cut. A cut for which no feature mattered leaves
            the box as it was.
        """
        if self.mode != "machete":
            raise ValueError(
                f'regions_at is for mode="machete", whose regions are boxes; mode={self.mode!r}.'
            )
        rows, step = self._rows(), self._step(step)

        def work(block: LocalQueries) -> tuple[NDArray[np.float64]]:
            half = self._cuts(rows, block).boxes[step]
            return (np.stack([block.given - half, block.given + half], axis=2),)

        (found,) = self._by_block(rows, X, work)
        return found

    def _step(self, step: int) -> int:
        n_cuts = max(1, len(self.region_sizes()) - 1)
        if not -n_cuts <= step < n_cuts:
            raise ValueError(
                f"step={step} must be from {-n_cuts} to {n_cuts - 1}: there are {n_cuts} cuts."
            )
        return step % n_cuts

    # ------------------------------------------------------------------ the base's questions

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        return {"mode": ["scythe", "machete"], "n_neighbors": [5, 10], "alpha": [0.5, 0.7]}

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        return LocalMetrics(weights=self._cuts(rows, queries).weights)

    def _found(self, rows: LocalRows, queries: LocalQueries, k: int) -> tuple[Matrix, Indices]:
        return self._in_order(rows, queries, self._cuts(rows, queries, k), k)

    def _in_order(
        self, rows: LocalRows, queries: LocalQueries, cut: _Cuts | _Cut, k: int
    ) -> tuple[Matrix, Indices]:
        """The first k of the last region in the order of the last cut."""
        owner = np.repeat(np.arange(len(queries)), cut.region.shape[1])
        metrics = LocalMetrics(weights=cut.weights)
        squares = rows.measured(queries, metrics, owner, cut.region.ravel())
        squares = squares.reshape(cut.region.shape)
        order = np.argsort(squares, axis=1, kind="stable")[:, :k]
        distances = np.sqrt(np.take_along_axis(squares, order, axis=1))
        return distances, np.take_along_axis(cut.region, order, axis=1)

    def kneighbors_by_k(self, X: ArrayLike, most: int) -> list[Indices]:
        """Numbers of the nearest for each ``n_neighbors`` from 1, as if ``fit`` had been with it.

        All cuts but the last are the same for all, so that one pass serves.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            New points.
        most : int
            The largest number.

        Returns
        -------
        list of ndarray of shape (n_queries, k)
            For k from 1 to ``most``.
        """
        rows = self._rows()
        if not 1 <= most <= len(rows):
            raise ValueError(f"most={most} must be from 1 to the {len(rows)} training points.")
        return list(self._by_block(rows, X, lambda block: self._found_by_k(rows, block, most)))

    def _found_by_k(self, rows: _Rows, queries: LocalQueries, most: int) -> tuple[Indices, ...]:
        sizes = self._region_sizes(len(rows), 1)
        sizes += sizes if len(sizes) == 1 else []
        parts = []
        for block in row_blocks(len(queries), 24 * rows.n_features * sizes[1]):
            asked, found = queries[block], {}
            for cut, (size, kept) in zip(
                self._each_cut(rows, asked, sizes), pairwise(sizes), strict=True
            ):
                # Whoever wants no fewer than this cut leaves, and has not been served, ends here.
                for k in range(kept, min(size, most) + 1):
                    if k not in found:
                        last = cut._replace(region=cut.keep(k))
                        found[k] = self._in_order(rows, asked, last, k)[1]
            parts.append([found[k] for k in range(1, most + 1)])
        return tuple(np.concatenate(each) for each in zip(*parts, strict=True))

    def _explained(
        self, rows: LocalRows, queries: LocalQueries, k: int
    ) -> tuple[Matrix, NDArray[np.float64], Matrix, Indices]:
        cuts = self._cuts(rows, queries, k)
        distances, found = self._in_order(rows, queries, cuts, k)
        owner = np.repeat(np.arange(len(queries)), k)
        apart = rows.apart(queries, owner, found.ravel())
        parts = LocalMetrics(weights=cuts.weights).parts(apart, owner)
        relevance = np.mean(cuts.relevances, axis=0)
        return relevance, parts.reshape(*found.shape, -1), distances, found

    # ------------------------------------------------------------------ cuts

    def _rows(self) -> _Rows:
        rows = super()._rows()
        return _Rows(rows.given, rows.codes, rows.n_classes, rows.scale)

    def _region_sizes(self, n: int, k: int) -> list[int]:
        sizes = [n]
        while sizes[-1] > k:
            sizes.append(max(k, int(self.alpha * sizes[-1])))
        return sizes

    def _cuts(self, rows: LocalRows, queries: LocalQueries, k: int = 1) -> _Cuts:
        """All cuts of a block of queries, down to n_neighbors rows, or k if that is more."""
        assert isinstance(rows, _Rows)
        n = len(rows) - (queries.own is not None)
        sizes = self._region_sizes(n, min(n, max(k, self.n_neighbors)))
        sizes += sizes if len(sizes) == 1 else []  # a cut that cuts nothing off: it has an order
        numbers = rows.n_features * sizes[queries.own is None]
        parts = [
            self._cut_all(rows, queries[block], sizes)
            for block in row_blocks(len(queries), 24 * numbers)
        ]
        relevances, boxes, weights, region = zip(*parts, strict=True)
        return _Cuts(
            np.concatenate(relevances, axis=1),
            np.concatenate(boxes, axis=1),
            np.concatenate(weights),
            np.concatenate(region),
        )

    def _cut_all(self, rows: _Rows, queries: LocalQueries, sizes: list[int]) -> _Cuts:
        b = np.arange(len(queries))
        box = np.full(queries.given.shape, np.inf)
        relevances: list[Matrix] = []
        boxes: list[Matrix] = []
        for cut in self._each_cut(rows, queries, sizes):
            if self.mode == "machete":
                best, region = cut.best, cut.region
                far = np.abs(rows.given[region, best[:, None]] - queries.given[b, best][:, None])
                edge = np.where(cut.none, np.inf, far.max(axis=1))
                box[b, best] = np.minimum(box[b, best], edge)
            relevances.append(cut.relevant)
            boxes.append(box.copy())
        return _Cuts(np.stack(relevances), np.stack(boxes), cut.weights, cut.region)

    def _each_cut(self, rows: _Rows, queries: LocalQueries, sizes: list[int]) -> Iterator[_Cut]:
        """The cuts from one size of region to the next."""
        columns = rows.columns
        region: Indices | None = None  # all rows, which are sorted beforehand
        if queries.own is not None:
            others = np.arange(len(rows) - 1)
            region = others + (others >= queries.own[:, None])
        for size, kept in pairwise(sizes):
            window = int(min(size, max(self.min_window, int(self.window * size))))
            if region is None:
                counts = rows.by_feature.counts(queries.given / columns.unit, window)
                shares, variances = rows.shares, rows.variances
            else:
                squares, variances = squares_and_variances(columns, queries.given, region)
                indicators = columns.indicators[region]
                counts = slab_counts(squares, window, indicators)
                shares = (np.ones(size, np.float32) @ indicators).astype(np.float64) / size
            relevant, none = share_gains(counts, shares)
            best = np.round(relevant, _DIGITS).argmax(axis=1)
            weights = relevant / variances
            if self.mode == "machete":
                weights[~none] = np.eye(rows.n_features)[best[~none]]
            keep: Callable[[int], Indices]
            if region is None:
                keep = partial(_nearest_of_all, rows, queries, LocalMetrics(weights=weights))
            else:
                keep = partial(_lowest, region, _scores(squares, weights * columns.stretch))
            region = keep(kept)
            yield _Cut(relevant, none, best, weights, region, keep)


class _Cut(NamedTuple):
    """A cut of a block of queries."""

    relevant: Matrix  # (b, p)
    none: Mask  # (b,): where no feature is relevant
    best: Indices  # (b,): the feature that is most so
    weights: Matrix  # (b, p), in standard units
    region: Indices  # (b, kept), what it leaves, ascending
    keep: Callable[[int], Indices]  # what it would leave of another size


def _nearest_of_all(
    rows: LocalRows, queries: LocalQueries, metrics: LocalMetrics, kept: int
) -> Indices:
    return rows.window(queries, metrics, kept).found


def _lowest(region: Indices, scores: Matrix, kept: int) -> Indices:
    """Rows of a region with the lowest scores, of about equal ones the first."""
    if kept == region.shape[1]:
        return region
    return region[smallest(scores, kept, EQUAL)].reshape(-1, kept)


class _Cuts(NamedTuple):
    """What has become of a block of queries."""

    relevances: NDArray[np.float64]  # (cuts, b, p)
    boxes: NDArray[np.float64]  # (cuts, b, p): half of the width, in the units of X
    weights: Matrix  # (b, p), of the last cut, in standard units
    region: Indices  # (b, k), the last, ascending


def share_gains(counts: NDArray[Any], shares: Matrix) -> tuple[Matrix, Mask]:
    """Relevances from counts in slabs (b, p, J), and shares in the region; who has none at all."""
    counts = counts.astype(np.float64)
    apart = counts / counts.sum(axis=2, keepdims=True)
    apart -= shares.reshape(-1, 1, shares.shape[-1])
    apart *= apart
    gain = apart.sum(axis=2)
    total = gain.sum(axis=1, keepdims=True)
    none = total[:, 0] == 0  # equal shares are equal quotients, exactly
    total[none] = 1.0
    gain[none] = 1 / gain.shape[1]
    return gain / total, none


def squares_and_variances(
    columns: FeatureColumns, given: Matrix, region: Indices
) -> tuple[NDArray[np.float64], Matrix]:
    """Squared differences (p, b, m) in the units of columns, and standard variances (b, p)."""
    squares = columns.apart(given, region)
    means = squares.mean(axis=2)
    np.multiply(squares, squares, out=squares)
    seconds = squares.mean(axis=2)
    variances = seconds - means**2
    # Far from the query, and of features that are constant in a region, that is all rounding.
    feature, query = np.nonzero(variances < 1e-6 * seconds)
    if feature.size:
        some = columns.columns[feature[:, None], region[query]]
        variances[feature, query] = np.var(some - some[:, :1], axis=1)
    variances *= columns.stretch[:, None]
    return squares, np.where(variances > 0, variances, 1.0).T


def _scores(squares: NDArray[np.float64], weights: Matrix) -> Matrix:
    """Weighted sums over features, (b, m), added in order so that equal parts make equal sums."""
    total = np.zeros(squares.shape[1:])
    part = np.empty_like(total)
    for along, weight in zip(squares, weights.T, strict=True):
        np.multiply(along, weight[:, None], out=part)
        total += part
    return total


# ---------------------------------------------------------------------- the first region


@dataclass(frozen=True)
class _Rows(LocalRows):
    """Training rows, with what all first cuts share, made when asked for."""

    @cached_property
    def columns(self) -> FeatureColumns:
        return FeatureColumns.of(self)

    @cached_property
    def by_feature(self) -> _Sorted:
        return _Sorted.of(self.columns)

    @cached_property
    def shares(self) -> Vector:
        return np.bincount(self.codes, minlength=self.n_classes) / len(self)

    @cached_property
    def variances(self) -> Vector:
        columns = self.columns
        variances = np.var(columns.columns - columns.columns[:, :1], axis=1) * columns.stretch
        return np.where(variances > 0, variances, 1.0)


@dataclass(frozen=True)
class _Sorted:
    """All rows in the order of each feature: a slab is what lies between two places."""

    columns: Matrix  # (p, n), ascending
    below: Singles  # (p, n + 1, J): how many of each class come before a place

    @classmethod
    def of(cls, columns: FeatureColumns) -> _Sorted:
        order = np.argsort(columns.columns, axis=1)
        p, n = order.shape
        below = np.zeros((p, n + 1, columns.n_classes), dtype=np.float32)
        np.cumsum(columns.indicators[order], axis=1, out=below[:, 1:])
        return cls(np.take_along_axis(columns.columns, order, axis=1), below)

    def counts(self, queries: Matrix, size: int) -> Singles:
        """As :func:`slab_counts` of all rows, for queries (b, p) in the units of the columns."""
        n, p = self.columns.shape[1], queries.shape[1]
        features, z = np.arange(p), queries

        def at(place: Indices) -> Matrix:
            return np.asarray(self.columns[features, np.clip(place, 0, n - 1)])

        # The nearest ones begin at the first place that is no farther than where they would end.
        start = _first(lambda k: z - at(k) <= at(k + size) - z, n - size, z.shape)
        far = np.maximum(z - at(start), at(start + size - 1) - z) * (1 + EQUAL)
        begin = _first(lambda k: z - at(k) <= far, n, z.shape)
        end = _first(lambda k: at(k) - z > far, n, z.shape)
        return np.asarray(self.below[features, end] - self.below[features, begin])


def _first(holds: Callable[[Indices], Mask], n: int, shape: tuple[int, ...]) -> Indices:
    """The first of n places at which something holds that goes on to hold; n if nowhere."""
    low, high = np.zeros(shape, dtype=np.intp), np.full(shape, n, dtype=np.intp)
    for _ in range(n.bit_length()):
        middle = (low + high) // 2
        done = holds(middle) | (middle >= high)
        low, high = np.where(done, low, middle + 1), np.where(done, middle, high)
    return low
