"""Nearest rows under a separate metric for each query.

Distances of a block of queries are computed by one matrix product. If its rounding error could
change the order of rows, their distances are computed again from differences. The nearest rows
therefore do not depend on the block, and ties are broken by row index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.blocks import row_blocks
from nearfar.search.candidates import centered
from nearfar.summaries.local_moments import LocalMoments

# Maximum memory, in bytes, for products of features, with which distances are one matrix product.
_PRODUCTS = 2**25
# Maximum number of entries for which pairs are measured at once, so that they stay in cache.
_NUMBERS_AT_ONCE = 1 << 16
_DOUBLE = np.dtype(np.float64)
# Squared distances in float32 are used if they lie between these limits, and if at most this many
# candidate rows per neighbor remain.
_LEAST_SINGLE, _MOST_SINGLE, _MAY_BE_NEAR = 1e-25, 1e30, 16
# Maximum number of distances converted to weights at once, so that they stay in cache.
_WEIGHTS_AT_ONCE = 40_000


@dataclass(frozen=True)
class LocalMetrics:
    r"""A metric for each of b queries, in units in which the rows are standardized.

    The metrics are either ``full`` matrices, or :math:`\mathrm{diag}(w) + V^T V` with ``weights`` w
    and optional ``directions`` V (a small number r of them).

    Parameters
    ----------
    full : ndarray of shape (b, p, p), optional
        Symmetric positive semidefinite matrices.
    weights : ndarray of shape (b, p), optional
        Non-negative feature weights.
    directions : ndarray of shape (b, r, p), optional
        Directions V, used in addition to ``weights``.
    """

    full: NDArray[np.float64] | None = None
    weights: Matrix | None = None
    directions: NDArray[np.float64] | None = None

    @classmethod
    def euclidean(cls, n: int, p: int) -> LocalMetrics:
        """Return the Euclidean metric for n queries."""
        return cls(weights=np.ones((n, p)))

    def __len__(self) -> int:
        known = self.weights if self.full is None else self.full
        assert known is not None
        return len(known)

    def __getitem__(self, which: slice | Indices | Mask) -> LocalMetrics:
        parts = (self.full, self.weights, self.directions)
        return LocalMetrics(*(None if part is None else part[which] for part in parts))

    def matrices(self) -> NDArray[np.float64]:
        """Return the metrics as matrices, of shape (b, p, p)."""
        if self.full is not None:
            return self.full
        assert self.weights is not None
        matrices = np.zeros((*self.weights.shape, self.weights.shape[1]))
        np.einsum("ijj->ij", matrices)[:] = self.weights
        if self.directions is not None:
            matrices += np.matmul(self.directions.transpose(0, 2, 1), self.directions)
        return matrices

    def diagonals(self) -> Matrix:
        """Return the diagonals of the metrics, of shape (b, p)."""
        if self.full is not None:
            return np.einsum("ijj->ij", self.full)
        assert self.weights is not None
        if self.directions is None:
            return self.weights
        return np.asarray(self.weights + np.square(self.directions).sum(axis=1))

    def sizes(self) -> Vector:
        """Return an upper bound of the largest eigenvalue of each metric."""
        if self.full is not None:
            return np.sqrt(np.square(self.full).sum(axis=(1, 2)))
        assert self.weights is not None
        sizes = np.abs(self.weights).max(axis=1)
        if self.directions is not None:
            sizes = sizes + np.square(self.directions).sum(axis=(1, 2))
        return np.asarray(sizes)

    def parts(self, apart: Matrix, owner: Indices) -> Matrix:
        """Return the contribution of each feature to squared lengths, u_j [M u]_j, (m, p).

        ``apart[i]`` is measured by the metric with index ``owner[i]``. Sums are computed in the
        same order at every position, so that identical rows have equal distances.
        """
        if self.full is not None:
            return np.asarray((apart[:, :, None] * self.full[owner]).sum(axis=1) * apart)
        assert self.weights is not None
        parts = self.weights[owner] * apart**2
        if self.directions is not None:
            V = self.directions[owner]
            along = (V * apart[:, None, :]).sum(axis=2)
            parts += (V * along[:, :, None]).sum(axis=1) * apart
        return np.asarray(parts)


@dataclass(frozen=True)
class LocalQueries:
    """A block of queries.

    Parameters
    ----------
    given : ndarray of shape (b, p)
        Queries in the units of the training rows.
    standard : ndarray of shape (b, p)
        Queries in standard units.
    own : ndarray of shape (b,) or (b, m), optional
        Row indices of the queries, if they are training rows that are not their own neighbors. With
        shape (b, m), the indices of all rows to exclude.
    """

    given: Matrix
    standard: Matrix
    own: Indices | None = None

    def __len__(self) -> int:
        return len(self.given)

    def __getitem__(self, which: slice | Indices | Mask) -> LocalQueries:
        own = None if self.own is None else self.own[which]
        return LocalQueries(self.given[which], self.standard[which], own)


@dataclass(frozen=True)
class LocalRows:
    """Training rows, prepared for searches under any metric.

    Parameters
    ----------
    given : ndarray of shape (n, p)
        The rows.
    codes : ndarray of shape (n,)
        Class code of each row.
    n_classes : int
        Number of classes.
    scale : ndarray of shape (p,)
        Divisor of each feature, for standard units.
    """

    given: Matrix
    codes: Indices
    n_classes: int
    scale: Vector

    def __len__(self) -> int:
        return len(self.given)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.given.shape[1])

    @cached_property
    def _center(self) -> Vector:
        # Use the median of all rows: kernels that are not functions of distances depend on it.
        with np.errstate(over="ignore"):  # reported when rows are centered
            return np.asarray(np.median(self.given.astype(np.float64), axis=0))

    @cached_property
    def standard(self) -> Matrix:
        """Centered rows in standard units."""
        return self._standardized(self.given)

    def _standardized(self, given: Matrix) -> Matrix:
        # Check after the division as well, because a tiny deviation gives large numbers.
        return np.asarray(centered(given - self._center, 0 * self.scale, given.dtype) / self.scale)

    def queries(self, given: Matrix, own: Indices | None = None) -> LocalQueries:
        """Return queries for points in the units of the rows."""
        return LocalQueries(given, self._standardized(given), own)

    @cached_property
    def by_class(self) -> LocalRows:
        """The rows sorted by class, with the same center and standard units."""
        order = self.moments.order
        rows = LocalRows(self.given[order], self.codes[order], self.n_classes, self.scale)
        rows.__dict__.update(_center=self._center, standard=self.standard[order])
        return rows

    def tricube(
        self, queries: LocalQueries, metrics: LocalMetrics, m: int
    ) -> tuple[Matrix, Vector, Vector]:
        """Return tricube weights (b, n) of all rows, sorted by class, for the m nearest rows.

        Also return the squared distance of the farthest of the m rows, and error bounds of the
        squared distances. The farthest rows have weight 0, so ties among them do not matter.
        """
        own = None if queries.own is None else self.moments.places[queries.own]
        asked = LocalQueries(queries.given, queries.standard, own)
        weights, errors = self.by_class.squared_distances(asked, metrics)
        radius = np.empty(len(weights))
        for part in row_blocks(len(weights), 1, at_most=_WEIGHTS_AT_ONCE // len(self) + 1):
            radius[part] = convert_to_tricube(weights[part], m)
        return weights, radius, errors

    @cached_property
    def moments(self) -> LocalMoments:
        """Weighted sums over the rows of each class, in standard units."""
        return LocalMoments(self.standard, self.codes, self.n_classes)

    @cached_property
    def _longest(self) -> float:
        return float(np.square(self.standard).sum(axis=1).max())

    def squared_distances(
        self, queries: LocalQueries, metrics: LocalMetrics, dtype: type[np.floating] = np.float64
    ) -> tuple[NDArray[Any], Vector]:
        """Return squared distances of shape (b, n), and error bounds of shape (b,).

        They are computed by matrix products, for full metrics in the given dtype. The distance of
        a training row from itself is infinite.
        """
        Q, n = queries.standard, len(self)
        squares = np.empty((len(Q), n), dtype)
        if metrics.full is not None:
            n_terms = self._by_products(Q, metrics.full, squares)
        else:
            assert metrics.weights is not None
            W = metrics.weights
            rest = (W * Q**2).sum(axis=1)[:, None]
            if (W[:, :1] == W).all():  # equal weights: squared lengths of rows suffice
                np.matmul(np.hstack([-2 * W * Q, W[:, :1], rest]), self._lengths, out=squares)
            else:
                np.matmul(np.hstack([W, -2 * W * Q, rest]), self._squares, out=squares)
            n_terms = 2 * self.n_features
            if metrics.directions is not None:
                for V in metrics.directions.transpose(1, 0, 2):
                    along = V @ self.standard.T
                    along -= (V * Q).sum(axis=1)[:, None]
                    squares += np.square(along, out=along)
                n_terms *= 2
        reach = metrics.sizes() * (self._longest + np.square(Q).sum(axis=1))
        errors = 4 * (n_terms + 8) * float(np.finfo(dtype).eps) * reach
        if queries.own is not None:
            hidden = queries.own.reshape(len(Q), -1)
            squares[np.arange(len(Q))[:, None], hidden] = np.inf
        return squares, errors

    @cached_property
    def _lengths(self) -> Matrix:
        """Features (as rows), their sum of squares and a row of ones, stacked."""
        columns = self.standard.T
        squares = np.square(columns).sum(axis=0)
        return np.vstack([columns, squares, np.ones(len(self))])

    @cached_property
    def _squares(self) -> Matrix:
        """Squares of features, features and a row of ones, stacked."""
        columns = self.standard.T
        return np.vstack([np.square(columns), columns, np.ones((1, len(self)))])

    def _by_products(self, Q: Matrix, full: NDArray[np.float64], squares: NDArray[Any]) -> int:
        """Write squared distances under full metrics; return the number of terms of each sum."""
        p = self.n_features
        if len(Q) == 1:  # computing the products would take as long
            apart = self.standard - Q[0]
            squares[0] = ((apart @ full[0]) * apart).sum(axis=1)
            return p * p
        upper = np.triu_indices(p)
        twice = np.where(upper[0] == upper[1], 1.0, 2.0)
        along = np.matmul(full, Q[:, :, None])[:, :, 0]
        rest = (along * Q).sum(axis=1)[:, None]
        terms = np.hstack([full[:, upper[0], upper[1]] * twice, -2 * along, rest])
        with np.errstate(over="ignore", invalid="ignore"):  # float32 distances are then discarded
            terms = terms.astype(squares.dtype)
            for block, products in self._products(squares.dtype):
                np.matmul(terms, products, out=squares[:, block])
        return int(terms.shape[1])

    def _products(self, dtype: np.dtype[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Iterate over blocks of rows and the results of `compute_feature_products` for them."""
        if 8 * len(self) * self._n_products <= _PRODUCTS:
            single = dtype == np.float32
            yield slice(0, len(self)), self._all_singles if single else self._all_products
            return
        for block in row_blocks(len(self), 1, at_most=_PRODUCTS // (16 * self._n_products) + 1):
            yield block, compute_feature_products(self.standard[block], dtype)

    @property
    def _n_products(self) -> int:
        return self.n_features * (self.n_features + 3) // 2 + 1

    @cached_property
    def _all_products(self) -> NDArray[Any]:
        return compute_feature_products(self.standard)

    @cached_property
    def _all_singles(self) -> NDArray[Any]:
        return compute_feature_products(self.standard, np.dtype(np.float32))

    def measured(
        self, queries: LocalQueries, metrics: LocalMetrics, owner: Indices, found: Indices
    ) -> Vector:
        """Return squared distances of row ``found[i]`` from query ``owner[i]``, for each i."""
        p = self.n_features
        squares = np.empty(len(found))
        at_once = max(1, _NUMBERS_AT_ONCE // (p * p if metrics.full is not None else p))
        for pairs in row_blocks(len(found), 24 * p * p, at_most=at_once):
            apart = self.apart(queries, owner[pairs], found[pairs])
            squares[pairs] = metrics.parts(apart, owner[pairs]).sum(axis=1)
        return np.maximum(squares, 0, out=squares)

    def apart(self, queries: LocalQueries, owner: Indices, found: Indices) -> Matrix:
        """Return differences of rows and queries in standard units, of shape (m, p)."""
        # Subtract before dividing, so that equal differences stay equal.
        return np.asarray((self.given[found] - queries.given[owner]) / self.scale)

    def nearest(
        self, queries: LocalQueries, metrics: LocalMetrics, k: int
    ) -> tuple[Matrix, Indices]:
        """Return distances and indices of the k nearest rows, each (b, k), nearest first."""
        owner, found = self._near(queries, metrics, k)
        exact = self.measured(queries, metrics, owner, found)
        order = np.lexsort((exact, owner))  # stable, so ties keep the order of rows
        first = np.searchsorted(owner, np.arange(len(queries)))
        best = order[first[:, None] + np.arange(k)]
        return np.sqrt(exact[best]), found[best]

    def _near(
        self, queries: LocalQueries, metrics: LocalMetrics, k: int
    ) -> tuple[Indices, Indices]:
        """Return query and row of all pairs that may be among the k nearest, in order.

        The search uses float32 if this leaves few candidates.
        """
        if metrics.full is not None and len(queries) > 1:
            squares, errors = self.squared_distances(queries, metrics, np.float32)
            reach = (bound_kth_smallest(squares, k)[1] + 2 * errors).astype(np.float32)
            if ((errors > _LEAST_SINGLE) & (reach < _MOST_SINGLE)).all():
                # Round up to float32, because a comparison of two dtypes takes twice as long.
                found = find_entries_within(squares, np.nextafter(reach, np.float32(np.inf)))
                if len(found[0]) <= _MAY_BE_NEAR * k * len(queries):
                    return found
        squares, errors = self.squared_distances(queries, metrics)
        return find_entries_within(squares, bound_kth_smallest(squares, k)[1] + 2 * errors)

    def window(self, queries: LocalQueries, metrics: LocalMetrics, m: int) -> Window:
        """Return the m nearest rows of each query."""
        squares, errors = self.squared_distances(queries, metrics)
        least, most = bound_kth_smallest(squares, m)
        owner, found = find_entries_within(squares, most + 2 * errors)
        values = squares[owner, found]
        # Only rows close to the limit are measured exactly; closer rows are included anyway.
        doubt = np.flatnonzero(values >= (least - 2 * errors)[owner])
        values[doubt] = self.measured(queries, metrics, owner[doubt], found[doubt])
        counts = np.bincount(owner, minlength=len(queries))
        left = counts - m
        # Remove the farthest of the measured rows until m are left, the last ones first among ties.
        order = doubt[np.lexsort((found[doubt], values[doubt], owner[doubt]))]
        ends = np.cumsum(np.bincount(owner[doubt], minlength=len(queries)))
        from_end = ends[owner[order]] - np.arange(len(order))
        inside = np.ones(len(owner), dtype=bool)
        inside[order[from_end <= left[owner[order]]]] = False
        radius = values[order[ends - left - 1]]
        shape = (len(queries), m)
        return Window(found[inside].reshape(shape), values[inside].reshape(shape), radius, errors)


@dataclass(frozen=True)
class Window:
    """The m nearest rows of each of b queries.

    Parameters
    ----------
    found : ndarray of shape (b, m)
        Row indices, ascending.
    squares : ndarray of shape (b, m)
        Squared distances, with rounding errors.
    radius : ndarray of shape (b,)
        Exact squared distance of the farthest row.
    errors : ndarray of shape (b,)
        Error bounds of ``squares``.
    """

    found: Indices
    squares: Matrix
    radius: Vector
    errors: Vector

    def __getitem__(self, which: slice | Indices | Mask) -> Window:
        found, squares = self.found[which], self.squares[which]
        return Window(found, squares, self.radius[which], self.errors[which])

    def tricube(self) -> Matrix:
        """Return weights (1 - (d / h)^3)^3, where h is the distance of the farthest row.

        If all weights would be 0 (all rows at equal distance, or equal to the query), they are 1.
        """
        some = self.radius > 0
        ratios = np.clip(self.squares / np.where(some, self.radius, 1.0)[:, None], 0, 1)
        weights = (1 - ratios * np.sqrt(ratios)) ** 3
        # Rows at the distance of the farthest may have tiny weights due to rounding.
        none = weights.max(axis=1) <= 1e-20
        weights[none | ~some] = 1.0
        return np.asarray(weights)


def convert_to_tricube(squares: Matrix, m: int) -> Vector:
    """Replace squared distances by tricube weights, in place; return the squared radius."""
    radius = find_kth_smallest(squares, m)
    near, flat = np.flatnonzero(squares < radius[:, None]), squares.reshape(-1)
    counts = np.diff(np.searchsorted(near, np.arange(len(squares) + 1) * squares.shape[1]))
    ratios = flat[near]  # most rows have weight 0
    ratios /= np.repeat(np.maximum(radius, np.finfo(np.float64).tiny), counts)
    np.maximum(ratios, 0, out=ratios)
    rest = np.sqrt(ratios)
    rest *= ratios
    np.subtract(1, rest, out=rest)
    squares.fill(0)
    flat[near] = rest * rest * rest
    return radius


def find_kth_smallest(squares: NDArray[Any], k: int) -> Vector:
    """Return the k-th smallest value of each row."""
    return np.asarray(np.partition(squares, k - 1, axis=1)[:, k - 1])


def bound_kth_smallest(squares: NDArray[Any], k: int) -> tuple[Vector, Vector]:
    """Return lower and upper bounds of the k-th smallest value of each row.

    They are computed in float32, which takes half the time, or exactly if values exceed its range.
    """
    with np.errstate(over="ignore"):
        single = squares.astype(np.float32)
    single.partition(k - 1, axis=1)
    cut = single[:, k - 1].astype(np.float64)
    if np.isfinite(cut).all() and (cut > 1e-30).all():
        return cut * (1 - 1e-6), cut * (1 + 1e-6)
    exact = find_kth_smallest(squares, k)
    return exact, exact


def find_entries_within(squares: NDArray[Any], reach: NDArray[Any]) -> tuple[Indices, Indices]:
    """Return rows and columns of the entries up to a bound per row, in order."""
    flat = np.flatnonzero(squares <= reach[:, None])
    owner, found = np.divmod(flat, squares.shape[1])
    return owner, found


def compute_feature_products(rows: Matrix, dtype: np.dtype[Any] = _DOUBLE) -> NDArray[Any]:
    """Return products of all pairs of features, features and a row of ones, stacked."""
    p = rows.shape[1]
    columns = np.ascontiguousarray(rows.T)
    products = np.empty((p * (p + 3) // 2 + 1, len(rows)), dtype)
    start = 0
    for i in range(p):
        np.multiply(
            columns[i], columns[i:], out=products[start : start + p - i], casting="same_kind"
        )
        start += p - i
    products[start:-1] = columns
    products[-1] = 1
    return products
