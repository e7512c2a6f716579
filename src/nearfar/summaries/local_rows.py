"""Nearest rows under a separate metric for each query.

Distances of a block of queries are computed with one matrix product. If rounding could change the
order of some rows, their distances are computed again from differences. The nearest rows therefore
do not depend on the block, and ties are broken by row index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.blocks import split_rows
from nearfar.search.candidates import subtract_center
from nearfar.summaries.local_moments import LocalMoments

# Maximum size, in bytes, of the stored result of `compute_feature_products`. Larger results are
# computed again, in blocks, for each search.
_MAX_PRODUCT_BYTES = 2**25
# Exact distances are computed in blocks. This is the maximum number of array entries per block, so
# that the arrays stay in cache.
_MAX_PAIR_ENTRIES = 1 << 16
_FLOAT64 = np.dtype(np.float64)
# A search uses float32 only if the error bounds of the squared distances are above this value.
# Smaller values could underflow.
_MIN_FLOAT32 = 1e-25
# A search uses float32 only if the squared distances of the nearest rows are below this value.
# Larger values could overflow.
_MAX_FLOAT32 = 1e30
# Maximum number of candidate rows per neighbor after a search in float32. With more candidates, the
# search is repeated in float64.
_MAX_CANDIDATES = 16
# Maximum number of distances that are converted to weights at once, so that they stay in cache.
_MAX_WEIGHTS = 40_000


@dataclass(frozen=True)
class LocalMetrics:
    r"""One metric for each of b queries, for features in standard units.

    The metrics are either ``full`` matrices, or :math:`\mathrm{diag}(w) + V^T V` with ``weights`` w
    and optional ``directions`` V, where V has a small number r of rows.

    Parameters
    ----------
    full : ndarray of shape (b, p, p), optional
        Symmetric positive semidefinite matrices.
    weights : ndarray of shape (b, p), optional
        Non-negative feature weights.
    directions : ndarray of shape (b, r, p), optional
        The matrices V, used in addition to ``weights``.
    """

    full: NDArray[np.float64] | None = None
    weights: Matrix | None = None
    directions: NDArray[np.float64] | None = None

    @classmethod
    def euclidean(cls, n: int, p: int) -> LocalMetrics:
        """Return the Euclidean metric for n queries."""
        return cls(weights=np.ones((n, p)))

    def __len__(self) -> int:
        array = self.weights if self.full is None else self.full
        assert array is not None
        return len(array)

    def __getitem__(self, key: slice | Indices | Mask) -> LocalMetrics:
        arrays = (self.full, self.weights, self.directions)
        return LocalMetrics(*(None if array is None else array[key] for array in arrays))

    def to_matrices(self) -> NDArray[np.float64]:
        """Return the metrics as matrices, of shape (b, p, p)."""
        if self.full is not None:
            return self.full
        assert self.weights is not None
        matrices = np.zeros((*self.weights.shape, self.weights.shape[1]))
        np.einsum("ijj->ij", matrices)[:] = self.weights
        if self.directions is not None:
            matrices += np.matmul(self.directions.transpose(0, 2, 1), self.directions)
        return matrices

    def get_diagonals(self) -> Matrix:
        """Return the diagonals of the metrics, of shape (b, p)."""
        if self.full is not None:
            return np.einsum("ijj->ij", self.full)
        assert self.weights is not None
        if self.directions is None:
            return self.weights
        return np.asarray(self.weights + np.square(self.directions).sum(axis=1))

    def bound_eigenvalues(self) -> Vector:
        """Return an upper bound of the largest eigenvalue of each metric."""
        if self.full is not None:
            return np.sqrt(np.square(self.full).sum(axis=(1, 2)))
        assert self.weights is not None
        bounds = np.abs(self.weights).max(axis=1)
        if self.directions is not None:
            bounds = bounds + np.square(self.directions).sum(axis=(1, 2))
        return np.asarray(bounds)

    def split_by_feature(self, differences: Matrix, owner: Indices) -> Matrix:
        """Return the contribution u_j [M u]_j of each feature to the squared length of u.

        The vectors u are the m rows of ``differences``, and row i is measured by the metric with
        index ``owner[i]``. The result has the shape (m, p). Sums are computed in the same order at
        every position, so that identical rows have equal distances.
        """
        if self.full is not None:
            images = (differences[:, :, None] * self.full[owner]).sum(axis=1)
            return np.asarray(images * differences)
        assert self.weights is not None
        contributions = self.weights[owner] * differences**2
        if self.directions is not None:
            V = self.directions[owner]
            projections = (V * differences[:, None, :]).sum(axis=2)
            contributions += (V * projections[:, :, None]).sum(axis=1) * differences
        return np.asarray(contributions)


@dataclass(frozen=True)
class LocalQueries:
    """Queries in the units of the training rows and in standard units.

    Parameters
    ----------
    X : ndarray of shape (b, p)
        Queries in the units of the training rows.
    standard : ndarray of shape (b, p)
        Queries in standard units.
    excluded : ndarray of shape (b,) or (b, m), optional
        Indices of one or m training rows per query that are not returned as its neighbors, for
        example the query itself if it is a training row.
    """

    X: Matrix
    standard: Matrix
    excluded: Indices | None = None

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, key: slice | Indices | Mask) -> LocalQueries:
        excluded = None if self.excluded is None else self.excluded[key]
        return LocalQueries(self.X[key], self.standard[key], excluded)


@dataclass(frozen=True)
class LocalRows:
    """Training rows, prepared for searches under any metric.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        The rows.
    codes : ndarray of shape (n,)
        Class code of each row.
    n_classes : int
        Number of classes.
    scale : ndarray of shape (p,)
        Divisor that converts each feature to standard units.
    """

    X: Matrix
    codes: Indices
    n_classes: int
    scale: Vector

    def __len__(self) -> int:
        return len(self.X)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.X.shape[1])

    @cached_property
    def _center(self) -> Vector:
        # Center at the median of all rows, because some kernels depend on the choice of the origin.
        # Ignore overflow here, because it is reported when the rows are centered.
        with np.errstate(over="ignore"):
            return np.asarray(np.median(self.X.astype(np.float64), axis=0))

    @cached_property
    def standard(self) -> Matrix:
        """Centered rows in standard units."""
        return self._standardize(self.X)

    def _standardize(self, X: Matrix) -> Matrix:
        # Check the result of the division too, because a tiny scale gives large numbers.
        return np.asarray(subtract_center(X - self._center, 0 * self.scale, X.dtype) / self.scale)

    def make_queries(self, X: Matrix, excluded: Indices | None = None) -> LocalQueries:
        """Create queries from points, which have the same units as the rows."""
        return LocalQueries(X, self._standardize(X), excluded)

    @cached_property
    def by_class(self) -> LocalRows:
        """The rows sorted by class, with the same center and standard units."""
        order = self.moments.order
        rows = LocalRows(self.X[order], self.codes[order], self.n_classes, self.scale)
        rows.__dict__.update(_center=self._center, standard=self.standard[order])
        return rows

    def compute_tricube_weights(
        self, queries: LocalQueries, metrics: LocalMetrics, m: int
    ) -> tuple[Matrix, Vector, Vector]:
        """Return the tricube weights of all rows for each query. The rows are sorted by class.

        The weights have the shape (b, n) and are 0 for rows that are not among the m nearest. Also
        return the squared distance of the farthest of the m nearest rows, and error bounds of the
        squared distances. The farthest row has weight 0, so ties with it do not matter.
        """
        excluded = None if queries.excluded is None else self.moments.places[queries.excluded]
        sorted_queries = LocalQueries(queries.X, queries.standard, excluded)
        weights, errors = self.by_class.compute_squared_distances(sorted_queries, metrics)
        radius = np.empty(len(weights))
        for block in split_rows(len(weights), 1, max_rows=_MAX_WEIGHTS // len(self) + 1):
            radius[block] = convert_to_tricube(weights[block], m)
        return weights, radius, errors

    @cached_property
    def moments(self) -> LocalMoments:
        """Object that computes weighted sums over the rows of each class, in standard units."""
        return LocalMoments(self.standard, self.codes, self.n_classes)

    @cached_property
    def _max_squared_norm(self) -> float:
        return float(np.square(self.standard).sum(axis=1).max())

    def compute_squared_distances(
        self, queries: LocalQueries, metrics: LocalMetrics, dtype: type[np.floating] = np.float64
    ) -> tuple[NDArray[Any], Vector]:
        """Return squared distances of shape (b, n), and error bounds of shape (b,).

        Distances are computed with matrix products. Products with full metrics have the given
        dtype. Distances of excluded rows are infinite.
        """
        Q, n = queries.standard, len(self)
        squares = np.empty((len(Q), n), dtype)
        if metrics.full is not None:
            n_terms = self._multiply_products(Q, metrics.full, squares)
        else:
            assert metrics.weights is not None
            W = metrics.weights
            constant = (W * Q**2).sum(axis=1)[:, None]
            # If all weights of a query are equal, the squared lengths of the rows are sufficient.
            if (W[:, :1] == W).all():
                np.matmul(np.hstack([-2 * W * Q, W[:, :1], constant]), self._lengths, out=squares)
            else:
                np.matmul(np.hstack([W, -2 * W * Q, constant]), self._squares, out=squares)
            n_terms = 2 * self.n_features
            if metrics.directions is not None:
                for V in metrics.directions.transpose(1, 0, 2):
                    projections = V @ self.standard.T
                    projections -= (V * Q).sum(axis=1)[:, None]
                    squares += np.square(projections, out=projections)
                n_terms *= 2
        reach = metrics.bound_eigenvalues() * (self._max_squared_norm + np.square(Q).sum(axis=1))
        errors = 4 * (n_terms + 8) * float(np.finfo(dtype).eps) * reach
        if queries.excluded is not None:
            excluded = queries.excluded.reshape(len(Q), -1)
            squares[np.arange(len(Q))[:, None], excluded] = np.inf
        return squares, errors

    @cached_property
    def _lengths(self) -> Matrix:
        """Matrix with one column per training row: its features, its squared length and a 1."""
        columns = self.standard.T
        squares = np.square(columns).sum(axis=0)
        return np.vstack([columns, squares, np.ones(len(self))])

    @cached_property
    def _squares(self) -> Matrix:
        """Matrix with one column per training row: its squared features, its features and a 1."""
        columns = self.standard.T
        return np.vstack([np.square(columns), columns, np.ones((1, len(self)))])

    def _multiply_products(
        self, Q: Matrix, full: NDArray[np.float64], squares: NDArray[Any]
    ) -> int:
        """Compute squared distances for metrics with full matrices, and write them to ``squares``.

        Return the number of terms that are added for each distance.
        """
        p = self.n_features
        # For a single query, computing products of features would take as long as computing
        # distances directly.
        if len(Q) == 1:
            differences = self.standard - Q[0]
            squares[0] = ((differences @ full[0]) * differences).sum(axis=1)
            return p * p
        upper = np.triu_indices(p)
        multiplicity = np.where(upper[0] == upper[1], 1.0, 2.0)
        images = np.matmul(full, Q[:, :, None])[:, :, 0]
        constant = (images * Q).sum(axis=1)[:, None]
        terms = np.hstack([full[:, upper[0], upper[1]] * multiplicity, -2 * images, constant])
        # Distances that overflow in float32 are discarded by the caller.
        with np.errstate(over="ignore", invalid="ignore"):
            terms = terms.astype(squares.dtype)
            for block, products in self._iterate_products(squares.dtype):
                np.matmul(terms, products, out=squares[:, block])
        return int(terms.shape[1])

    def _iterate_products(self, dtype: np.dtype[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield slices of rows and the result of `compute_feature_products` for each slice."""
        if 8 * len(self) * self._n_product_rows <= _MAX_PRODUCT_BYTES:
            is_float32 = dtype == np.float32
            products = self._cached_float32_products if is_float32 else self._cached_products
            yield slice(0, len(self)), products
            return
        n_rows = _MAX_PRODUCT_BYTES // (16 * self._n_product_rows) + 1
        for block in split_rows(len(self), 1, max_rows=n_rows):
            yield block, compute_feature_products(self.standard[block], dtype)

    @property
    def _n_product_rows(self) -> int:
        return self.n_features * (self.n_features + 3) // 2 + 1

    @cached_property
    def _cached_products(self) -> NDArray[Any]:
        return compute_feature_products(self.standard)

    @cached_property
    def _cached_float32_products(self) -> NDArray[Any]:
        return compute_feature_products(self.standard, np.dtype(np.float32))

    def measure(
        self, queries: LocalQueries, metrics: LocalMetrics, owner: Indices, indices: Indices
    ) -> Vector:
        """Return the squared distance of row ``indices[i]`` from query ``owner[i]``, for each i."""
        p = self.n_features
        squares = np.empty(len(indices))
        n_pairs = max(1, _MAX_PAIR_ENTRIES // (p * p if metrics.full is not None else p))
        for pairs in split_rows(len(indices), 24 * p * p, max_rows=n_pairs):
            differences = self.compute_differences(queries, owner[pairs], indices[pairs])
            squares[pairs] = metrics.split_by_feature(differences, owner[pairs]).sum(axis=1)
        return np.maximum(squares, 0, out=squares)

    def compute_differences(
        self, queries: LocalQueries, owner: Indices, indices: Indices
    ) -> Matrix:
        """Return differences between rows and queries in standard units, of shape (m, p)."""
        # Subtract before dividing, so that equal differences stay equal.
        return np.asarray((self.X[indices] - queries.X[owner]) / self.scale)

    @np.errstate(over="ignore", invalid="ignore")  # Overflow is reported by _check_counts.
    def find_nearest(
        self, queries: LocalQueries, metrics: LocalMetrics, k: int
    ) -> tuple[Matrix, Indices]:
        """Return distances and indices of the k nearest rows of each query, nearest first."""
        owner, indices = self._find_candidates(queries, metrics, k)
        _check_counts(owner, len(queries), k)
        exact = self.measure(queries, metrics, owner, indices)
        # This sort is stable, so tied rows keep their order.
        order = np.lexsort((exact, owner))
        first = np.searchsorted(owner, np.arange(len(queries)))
        best = order[first[:, None] + np.arange(k)]
        return np.sqrt(exact[best]), indices[best]

    def rank_classes(self, queries: LocalQueries, indices: Indices) -> Indices:
        """Rank the nearest row of each class, to break ties. The ranks have shape (b, c).

        ``indices`` contains m rows per query, ascending. The nearest of them has rank 0. Rows at
        the same distance are ranked by index. A class without a row has rank m.
        """
        b, m = indices.shape
        owner = np.repeat(np.arange(b), m)
        euclidean = LocalMetrics.euclidean(b, self.n_features)
        squares = self.measure(queries, euclidean, owner, indices.ravel()).reshape(b, m)
        order = np.argsort(squares, axis=1, kind="stable")
        codes = np.take_along_axis(self.codes[indices], order, axis=1)
        ranks = np.full((b, self.n_classes), m)
        np.minimum.at(ranks, (np.arange(b)[:, None], codes), np.arange(m))
        return ranks

    def _find_candidates(
        self, queries: LocalQueries, metrics: LocalMetrics, k: int
    ) -> tuple[Indices, Indices]:
        """Return pairs of a query and a row that may be among the query's k nearest rows.

        The pairs are sorted by query, then by row. The search uses float32 if this leaves few
        candidates.
        """
        if metrics.full is not None and len(queries) > 1:
            squares, errors = self.compute_squared_distances(queries, metrics, np.float32)
            reach = (bound_kth_distance(squares, k)[1] + 2 * errors).astype(np.float32)
            if ((errors > _MIN_FLOAT32) & (reach < _MAX_FLOAT32)).all():
                # Round up to float32, because comparing arrays of two dtypes takes twice as long.
                candidates = find_entries_within(squares, np.nextafter(reach, np.float32(np.inf)))
                if len(candidates[0]) <= _MAX_CANDIDATES * k * len(queries):
                    return candidates
        squares, errors = self.compute_squared_distances(queries, metrics)
        return find_entries_within(squares, bound_kth_distance(squares, k)[1] + 2 * errors)

    @np.errstate(over="ignore", invalid="ignore")
    def find_window(self, queries: LocalQueries, metrics: LocalMetrics, m: int) -> Window:
        """Return the m nearest rows of each query."""
        squares, errors = self.compute_squared_distances(queries, metrics)
        lower, upper = bound_kth_distance(squares, m)
        owner, indices = find_entries_within(squares, upper + 2 * errors)
        _check_counts(owner, len(queries), m)
        values = squares[owner, indices]
        # Compute exact distances only for rows that are about as far away as the m-th nearest row.
        # Closer rows are included in any case.
        boundary = np.flatnonzero(values >= (lower - 2 * errors)[owner])
        values[boundary] = self.measure(queries, metrics, owner[boundary], indices[boundary])
        counts = np.bincount(owner, minlength=len(queries))
        n_excess = counts - m
        # Remove the farthest row until m rows remain. If distances are equal, remove the row with
        # the largest index.
        order = boundary[np.lexsort((indices[boundary], values[boundary], owner[boundary]))]
        ends = np.cumsum(np.bincount(owner[boundary], minlength=len(queries)))
        from_end = ends[owner[order]] - np.arange(len(order))
        inside = np.ones(len(owner), dtype=bool)
        inside[order[from_end <= n_excess[owner[order]]]] = False
        radius = values[order[ends - n_excess - 1]]
        shape = (len(queries), m)
        return Window(indices[inside].reshape(shape), values[inside].reshape(shape), radius, errors)


@dataclass(frozen=True)
class Window:
    """The m nearest rows of each query, for b queries.

    Parameters
    ----------
    indices : ndarray of shape (b, m)
        Row indices, ascending.
    squares : ndarray of shape (b, m)
        Squared distances, with rounding errors.
    radius : ndarray of shape (b,)
        Exact squared distance of the farthest row.
    errors : ndarray of shape (b,)
        Error bounds of ``squares``.
    """

    indices: Indices
    squares: Matrix
    radius: Vector
    errors: Vector

    def __getitem__(self, key: slice | Indices | Mask) -> Window:
        indices, squares = self.indices[key], self.squares[key]
        return Window(indices, squares, self.radius[key], self.errors[key])

    def compute_tricube_weights(self) -> Matrix:
        """Return weights (1 - (d / h)^3)^3, where h is the distance of the farthest row.

        If all weights would be 0, they are set to 1. This happens if all rows have the same
        distance, or if they all equal the query.
        """
        has_radius = self.radius > 0
        ratios = np.clip(self.squares / np.where(has_radius, self.radius, 1.0)[:, None], 0, 1)
        weights = (1 - ratios * np.sqrt(ratios)) ** 3
        # If all rows are equally far away, rounding may lead to tiny weights instead of zero.
        is_zero = weights.max(axis=1) <= 1e-20
        weights[is_zero | ~has_radius] = 1.0
        return np.asarray(weights)


def convert_to_tricube(squares: Matrix, m: int) -> Vector:
    """Replace squared distances with tricube weights in place, and return the squared radii."""
    radius = find_kth_smallest(squares, m)
    near, flat = np.flatnonzero(squares < radius[:, None]), squares.reshape(-1)
    counts = np.diff(np.searchsorted(near, np.arange(len(squares) + 1) * squares.shape[1]))
    # Compute only the nonzero weights, because most weights are 0.
    ratios = flat[near]
    ratios /= np.repeat(np.maximum(radius, np.finfo(np.float64).tiny), counts)
    np.maximum(ratios, 0, out=ratios)
    weights = np.sqrt(ratios)
    weights *= ratios
    np.subtract(1, weights, out=weights)
    squares.fill(0)
    flat[near] = weights * weights * weights
    return radius


def find_kth_smallest(squares: NDArray[Any], k: int) -> Vector:
    """Return the k-th smallest value of each row."""
    return np.asarray(np.partition(squares, k - 1, axis=1)[:, k - 1])


def bound_kth_distance(squares: NDArray[Any], k: int) -> tuple[Vector, Vector]:
    """Return lower and upper bounds of the k-th smallest value of each row.

    The bounds are computed in float32, which takes half the time. If values are outside the range
    of float32, both bounds are the exact value.
    """
    with np.errstate(over="ignore"):
        rounded = squares.astype(np.float32)
    rounded.partition(k - 1, axis=1)
    cut = rounded[:, k - 1].astype(np.float64)
    if np.isfinite(cut).all() and (cut > 1e-30).all():
        return cut * (1 - 1e-6), cut * (1 + 1e-6)
    exact = find_kth_smallest(squares, k)
    return exact, exact


def find_entries_within(squares: NDArray[Any], reach: NDArray[Any]) -> tuple[Indices, Indices]:
    """Return the indices (i, j) of all entries for which ``squares[i, j] <= reach[i]``."""
    flat = np.flatnonzero(squares <= reach[:, None])
    owner, indices = np.divmod(flat, squares.shape[1])
    return owner, indices


def _check_counts(owner: Indices, n_queries: int, k: int) -> None:
    """Raise if a query has fewer than k candidates, because its distances are NaN or infinite."""
    if (np.bincount(owner, minlength=n_queries) < k).any():
        raise ValueError(
            "Squared distances between rows of X overflow: a query is too far from the training "
            "rows, or a parameter of the metric, such as gamma, is too large. Rescale X."
        )


def compute_feature_products(rows: Matrix, dtype: np.dtype[Any] = _FLOAT64) -> NDArray[Any]:
    """Return a matrix with one row per pair of features, one row per feature and a row of ones.

    A row of the matrix holds the product of two features, or the feature, for all data rows.
    """
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
