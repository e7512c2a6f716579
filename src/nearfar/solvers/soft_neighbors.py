r"""Soft neighbors: the objectives of NCA, MCML and MLKR under a linear map, and their gradients.

Point i selects point j as its neighbor with the probability

.. math:: p_{ij} = e^{-D_{ij}} / \sum_{k \ne i} e^{-D_{ik}}, \qquad D_{ij} = \|L(x_i - x_j)\|^2 .

Every objective in this module is a function of these probabilities. Its gradient is therefore a sum
over pairs, :math:`\sum_{ij} W_{ij} \partial D_{ij} = 2 L X^T \Lambda X`, with the Laplacian Λ of
:math:`W + W^T`. The weights W are never stored: each block of rows adds its terms of :math:`W Z`,
:math:`W^T Z` and of the row and column sums of W, where :math:`Z = X L^T`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import map_in_order, split_rows

SoftObjective = Literal["sum", "log", "collapse", "regression"]
Precision = Literal["single", "double"]

# Target number of entries of a block, so that a block fits into the processor's cache.
_BLOCK_ENTRIES = 1 << 19
# Minimum number of rows of a block. With fewer rows, adding the column sums of the block to the
# total would take longer than computing these sums.
_MIN_BLOCK_ROWS = 64
# Maximum rounding error of a squared distance in single precision. If the error may be larger,
# double precision is used.
_MAX_SINGLE_ROUNDING = 1e-3
# Minimum exponent per dtype. Smaller exponents are replaced by the minimum. The resulting terms are
# far smaller than rounding errors, but their products are not subnormal numbers, which are many
# times slower on most processors.
_MIN_EXPONENT = {np.dtype(np.float32): -60.0, np.dtype(np.float64): -600.0}


def soft_neighbors(
    L: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    objective: SoftObjective = "sum",
    neighbors: ArrayLike | None = None,
) -> tuple[float, Matrix]:
    r"""Return the value and the gradient of an objective of a linear map L, in double precision.

    With :math:`p_i` the sum of :math:`p_{ij}` over the other points of the class of i:

    * "sum": :math:`\sum_i p_i`, the expected number of points that soft neighbors classify
      correctly (to be maximized: NCA);
    * "log": :math:`\sum_i \log p_i`, the log-probability that all points are classified correctly
      (to be maximized); points that are alone in their class are left out;
    * "collapse": :math:`\sum_i KL(q_i \| p_i)`, with :math:`q_i` uniform over the other points of
      the class of i (to be minimized: MCML); points that are alone in their class are left out;
    * "regression": :math:`\sum_i (y_i - \sum_j p_{ij} y_j)^2` (to be minimized: MLKR).

    The cost is O(n² r + n p r) for an L with r rows, or O(n k r) with ``neighbors``. Blocks of
    rows are processed in turn, so no n×n array is needed.

    Parameters
    ----------
    L : array of shape (r, n_features)
        Linear map.
    X : array of shape (n_samples, n_features)
        Points, at least two.
    y : array of shape (n_samples,)
        Labels, or numbers for "regression".
    objective : {"sum", "log", "collapse", "regression"}, default="sum"
        Objective to evaluate.
    neighbors : array of int of shape (n_samples, k), optional
        Row indices of the candidate neighbors of each point, without the point itself. None means
        all other points. See Notes.

    Returns
    -------
    value : float
        Value of the objective.
    gradient : ndarray of shape (r, n_features)
        Gradient of the objective with respect to L.

    Notes
    -----
    ``neighbors`` restricts the sum in the denominator of :math:`p_{ij}`. For "log", points without
    a candidate of their own class are left out. For "collapse", :math:`q_i` stays uniform over all
    other points of the class.

    References
    ----------
    .. [1] J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood Components
       Analysis", 2005.
    .. [2] A. Globerson, S. Roweis, "Metric Learning by Collapsing Classes",
       2006.
    .. [3] K. Q. Weinberger, G. Tesauro, "Metric Learning for Kernel Regression",
       2007.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0, 0.0], [0.0, 9.0], [3.0, 0.0], [3.0, 9.0]])
    >>> value, gradient = soft_neighbors(np.diag([1.0, 0.1]), X, [0, 0, 1, 1])
    >>> round(value, 4), gradient.shape
    (3.9984, (2, 2))
    """
    points = np.asarray(X, np.float64)
    targets: NDArray[Any] = np.asarray(y)
    if objective != "regression":
        targets = np.unique(targets, return_inverse=True)[1].reshape(-1)
        order = np.argsort(targets, kind="stable")
        points, targets = points[order], targets[order]
    neighbor_lists = None if neighbors is None else np.asarray(neighbors, np.intp)
    if neighbor_lists is not None and objective != "regression":
        position = np.empty(len(order), np.intp)
        position[order] = np.arange(len(order))
        neighbor_lists = position[neighbor_lists[order]]
    engine = SoftNeighbors(points, targets, objective, precision="double")
    value, gradient = engine.evaluate(np.asarray(L, np.float64), neighbor_lists)
    return value, gradient


class SoftNeighbors:
    """Objective of a fixed set of points, which can be evaluated for many linear maps.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Points. They must be sorted by class, unless the objective is "regression".
    y : ndarray of shape (n_samples,)
        Class codes from 0 in ascending order, or numbers for "regression".
    objective : {"sum", "log", "collapse", "regression"}
        Objective to evaluate; see :func:`soft_neighbors`.
    precision : {"single", "double"}, default="single"
        Precision of the distances and their exponentials. Single precision is several times faster
        and gives about six digits. If the map is too large for this accuracy, double precision is
        used.
    n_threads : int, default=1
        Number of threads. Each thread processes one chunk of the rows.
    """

    def __init__(
        self,
        X: Floats,
        y: NDArray[Any],
        objective: SoftObjective,
        *,
        precision: Precision = "single",
        n_threads: int = 1,
    ) -> None:
        # Center the points, because expanded squared distances then lose the fewest digits.
        self.X = X - X.mean(axis=0, dtype=np.float64)
        self.y = y
        self.objective = objective
        self.precision = precision
        self.n_threads = n_threads
        self._class_scatter: Matrix | None = None
        self._constant = 0.0
        if objective == "regression":
            self.y = np.asarray(y, np.float64)
            return
        sizes = np.bincount(y)
        self._class_starts = np.concatenate([[0], np.cumsum(sizes)])
        self._is_alone = sizes[y] < 2
        if objective == "collapse":
            self._class_scatter = self._compute_class_scatter(sizes)
            n_others = sizes[y][~self._is_alone] - 1
            self._constant = -float(np.log(n_others).sum())

    def _compute_class_scatter(self, sizes: Indices) -> Matrix:
        """Return the sum of the mean scatters of all points.

        The mean scatter of a point is the mean of xx' over its differences x from the other points
        of its class.
        """
        total = np.zeros((self.X.shape[1],) * 2)
        for start, size in zip(self._class_starts[:-1], sizes, strict=True):
            if size > 1:
                members = self.X[start : start + size]
                members = members - members.mean(axis=0)
                total += 2 * size / (size - 1) * (members.T @ members)
        return total

    def with_points(
        self, X: Floats, y: NDArray[Any], precision: Precision | None = None
    ) -> SoftNeighbors:
        """Return the same objective for other points, optionally in another precision."""
        precision = precision or self.precision
        return SoftNeighbors(X, y, self.objective, precision=precision, n_threads=self.n_threads)

    def value(self, L: Matrix) -> float:
        """Return the objective without its gradient, with all points as candidate neighbors."""
        Z = self._map_points(L)
        return (
            np.inf * self._worst_sign
            if Z is None
            else self._complete_value(L, self._accumulate(_AllPairs(self, Z))[0])
        )

    def evaluate(self, L: Matrix, neighbors: Indices | None = None) -> tuple[float, Matrix]:
        """Return the objective and its gradient with respect to L.

        If distances overflow, return the worst possible value and a gradient of zeros.
        """
        Z = self._map_points(L)
        if Z is None:
            return np.inf * self._worst_sign, np.zeros_like(L)
        pairs = _AllPairs(self, Z) if neighbors is None else _ListedPairs(self, Z, neighbors)
        value, sums = self._accumulate(pairs, Z)
        slope = 2 * self._apply_laplacian(sums, Z).T @ self.X
        if self._class_scatter is not None:
            slope += 2 * L @ self._class_scatter
        return self._complete_value(L, value), slope

    def metric_gradient(self, L: Matrix) -> Matrix:
        """Return the gradient G with respect to M = L'L. The gradient for L is 2 L G."""
        Z = self._map_points(L)
        assert Z is not None
        vectors = self.X.astype(Z.dtype, copy=False)
        _, sums = self._accumulate(_AllPairs(self, Z, vectors), vectors)
        G = self._apply_laplacian(sums, vectors).T @ self.X
        return G if self._class_scatter is None else G + self._class_scatter

    @property
    def _worst_sign(self) -> int:
        return -1 if self.objective in ("sum", "log") else 1

    def _map_points(self, L: Matrix) -> Floats | None:
        """Return the mapped points in the required precision, or None if distances overflow."""
        Z = self.X @ L.T
        largest = float(np.einsum("ij,ij->i", Z, Z).max())
        if not np.isfinite(4 * largest):
            return None
        rounding = np.finfo(np.float32).eps * largest
        uses_single = self.precision == "single" and rounding < _MAX_SINGLE_ROUNDING
        return Z.astype(np.float32 if uses_single else np.float64, copy=False)

    def _accumulate(self, pairs: Any, vectors: Floats | None = None) -> tuple[float, Matrix]:
        """Return the value of all rows, and the products of W + W' with vectors and with ones."""
        n = len(self.X)
        # Each chunk has separate sums, which are added in a fixed order. The same number of threads
        # therefore always gives the same result.
        bounds = np.linspace(0, n, self.n_threads + 1).astype(int)
        chunks = [slice(a, b) for a, b in pairwise(bounds) if b > a]
        columns = 0 if vectors is None else vectors.shape[1] + 1

        def process_chunk(chunk: slice) -> tuple[float, Matrix]:
            sums = np.zeros((n, columns))
            value = 0.0
            for rows in pairs.iter_blocks(chunk):
                value += pairs.add(rows, sums if columns else None)
            return value, sums

        value, sums = 0.0, np.zeros((n, columns))
        for chunk_value, chunk_sums in map_in_order(process_chunk, chunks, self.n_threads):
            value += chunk_value
            sums = chunk_sums if len(chunks) == 1 else sums + chunk_sums
        return value, sums

    @staticmethod
    def _apply_laplacian(sums: Matrix, vectors: Floats) -> Matrix:
        return sums[:, -1:] * vectors - sums[:, :-1]

    def _complete_value(self, L: Matrix, value: float) -> float:
        """Add the terms that need no sum over pairs, or that are the same for all maps."""
        if self._class_scatter is not None:
            value += float(np.sum(L * (L @ self._class_scatter)))
        return value + self._constant


class _AllPairs:
    """All pairs of a row in a block and any point."""

    def __init__(self, engine: SoftNeighbors, Z: Floats, vectors: Floats | None = None) -> None:
        self.engine = engine
        ones = np.ones((len(Z), 1), Z.dtype)
        squares = np.einsum("ij,ij->i", Z, Z)[:, None]
        # A single matrix product gives ||z_i||^2 - 2 z_i'z_j + ||z_j||^2.
        self.left_factor = np.hstack([-2 * Z, squares, ones])
        self.right_factor = np.hstack([Z, ones, squares]).T
        self.points = np.hstack([Z if vectors is None else vectors, ones])
        if engine.objective == "regression":
            self.values = engine.y.astype(Z.dtype)
            self.points = np.hstack([self.points, self.values[:, None] * self.points])

    def iter_blocks(self, chunk: slice) -> Iterator[slice]:
        n = len(self.left_factor)
        max_rows = max(_MIN_BLOCK_ROWS, _BLOCK_ENTRIES // n)
        for rows in split_rows(chunk.stop - chunk.start, 8 * n, max_rows=max_rows):
            yield slice(chunk.start + rows.start, chunk.start + rows.stop)

    def add(self, rows: slice, sums: Matrix | None) -> float:
        """Return the contribution of a block of rows to the value, and update the sums."""
        E = self.left_factor[rows] @ self.right_factor
        diagonal = np.arange(rows.start, rows.stop)
        E[diagonal - rows.start, diagonal] = np.inf
        nearest = E.min(axis=1)
        if self.engine.objective == "regression":
            return self._add_targets(rows, _decay(E, nearest), sums)
        return self._add_labels(rows, E, nearest, sums)

    def _add_labels(self, rows: slice, D: Floats, nearest: Floats, sums: Matrix | None) -> float:
        engine = self.engine
        is_alone = engine._is_alone[rows]
        size, objective = len(D), engine.objective
        class_nearest = np.zeros(size)
        classes = list(self._iter_classes(rows)) if objective != "collapse" else []
        # If a class is far from a point, its exponentials would vanish compared with the
        # exponentials of nearer classes. For the objective "log", the exponentials of each class
        # are therefore computed relative to the nearest point of the class.
        class_kernels = {}
        if objective == "log":
            for inside, members in classes:
                if members.stop - members.start > 1:
                    class_distances = D[inside, members].copy()
                    class_nearest[inside] = nearest_in_class = class_distances.min(axis=1)
                    class_kernels[inside.start] = _decay(class_distances, nearest_in_class)
        E = _decay(D, nearest)
        if objective == "sum":
            class_kernels = {inside.start: E[inside, members] for inside, members in classes}
        columns = self.points.shape[1]
        all_sums = (E @ self.points).astype(np.float64)
        class_sums = np.zeros((size, columns))
        for inside, members in classes:
            if inside.start in class_kernels:
                class_sums[inside] = class_kernels[inside.start] @ self.points[members]
        total, class_total = all_sums[:, -1], class_sums[:, -1]
        if objective == "sum":
            probability = class_total / total
            value, a, b = float(probability.sum()), probability / total, 1 / total
        elif objective == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                b = np.where(is_alone, 0.0, 1 / class_total)
                logs = np.log(class_total) - class_nearest + nearest - np.log(total)
            logs = np.minimum(logs, 0)  # Rounding can make the logarithms positive.
            value, a = float(logs[~is_alone].sum()), np.where(is_alone, 0.0, 1 / total)
        else:
            logs = np.log(total) - nearest
            value, a = float(logs[~is_alone].sum()), np.where(is_alone, 0.0, -1 / total)
            b = np.zeros(size)
        if sums is not None:
            sums[rows] += a[:, None] * all_sums - b[:, None] * class_sums
            points = self.points[rows]
            sums += E.T @ (a[:, None].astype(E.dtype) * points)
            weighted = b[:, None].astype(E.dtype) * points
            for inside, members in classes:
                if inside.start in class_kernels:
                    sums[members] -= class_kernels[inside.start].T @ weighted[inside]
        return value

    def _iter_classes(self, rows: slice) -> Iterator[tuple[slice, slice]]:
        """Yield two ranges per class: its rows in the block, as offsets, and all of its rows."""
        starts, y = self.engine._class_starts, self.engine.y
        for c in range(int(y[rows.start]), int(y[rows.stop - 1]) + 1):
            low, high = max(starts[c], rows.start), min(starts[c + 1], rows.stop)
            if high > low:
                yield (
                    slice(int(low - rows.start), int(high - rows.start)),
                    slice(int(starts[c]), int(starts[c + 1])),
                )

    def _add_targets(self, rows: slice, E: Floats, sums: Matrix | None) -> float:
        y, r = self.engine.y, self.points.shape[1] // 2
        all_sums = (E @ self.points).astype(np.float64)
        total = all_sums[:, r - 1]
        prediction = all_sums[:, -1] / total
        error = prediction - y[rows]
        if sums is not None:
            a = (2 * error / total)[:, None]
            sums[rows] += a * (prediction[:, None] * all_sums[:, :r] - all_sums[:, r:])
            points = self.points[rows, :r]
            factors = np.hstack([a * prediction[:, None] * points, a * points]).astype(E.dtype)
            products = E.T @ factors
            products[:, :r] -= self.values[:, None] * products[:, r:]
            sums += products[:, :r]
        return float(error @ error)


class _ListedPairs:
    """All pairs of a row in a block and one of its listed neighbors."""

    def __init__(self, engine: SoftNeighbors, Z: Floats, neighbors: Indices) -> None:
        self.engine, self.Z, self.neighbors = engine, Z, neighbors
        self.points = np.hstack([Z, np.ones((len(Z), 1), Z.dtype)])
        self.squares = np.einsum("ij,ij->i", Z, Z)

    def iter_blocks(self, chunk: slice) -> Iterator[slice]:
        k = self.neighbors.shape[1]
        per_row = max(1, k * self.points.shape[1])
        max_rows = max(1, 4 * _BLOCK_ENTRIES // per_row)
        for rows in split_rows(chunk.stop - chunk.start, 8 * per_row, max_rows=max_rows):
            yield slice(chunk.start + rows.start, chunk.start + rows.stop)

    def add(self, rows: slice, sums: Matrix | None) -> float:
        """Return the contribution of a block of rows to the value, and update the sums."""
        engine, listed = self.engine, self.neighbors[rows]
        neighbor_points = np.take(self.points, listed, axis=0)
        D = (
            self.squares[listed]
            - 2 * (neighbor_points[..., :-1] @ self.Z[rows][:, :, None])[..., 0]
        )
        D += self.squares[rows][:, None]
        nearest = D.min(axis=1)
        if engine.objective == "regression":
            value, W = self._weigh_targets(rows, _decay(D, nearest))
        else:
            value, W = self._weigh_labels(rows, D, nearest)
        if sums is not None:
            W = W.astype(self.Z.dtype, copy=False)
            sums[rows] += (W[:, None, :] @ neighbor_points)[:, 0]
            starts = np.arange(0, listed.size + 1, listed.shape[1])
            shape = (len(listed), len(self.Z))
            # Transposing makes no copy. Row j of the transpose contains the terms of point j.
            transposed_weights = sparse.csr_array(
                (W.ravel(), listed.ravel(), starts), shape=shape
            ).T
            sums += transposed_weights @ self.points[rows]
        return value

    def _weigh_labels(self, rows: slice, D: Floats, nearest: Floats) -> tuple[float, Matrix]:
        engine = self.engine
        objective, is_alone = engine.objective, engine._is_alone[rows]
        is_same_class = engine.y[self.neighbors[rows]] == engine.y[rows][:, None]
        if objective == "log":
            class_kernels = np.where(is_same_class, D, np.inf)
            class_nearest = class_kernels.min(axis=1)
            is_alone = is_alone | ~is_same_class.any(axis=1)
            class_nearest[is_alone] = 0
            class_kernels = np.where(is_same_class, _decay(class_kernels, class_nearest), 0)
        E = _decay(D, nearest)
        total = E.sum(axis=1, dtype=np.float64)
        P = E / total[:, None]
        if objective == "sum":
            probability = np.sum(P, axis=1, where=is_same_class)
            return float(probability.sum()), P * (probability[:, None] - is_same_class)
        if objective == "collapse":
            logs = np.log(total) - nearest
            return float(logs[~is_alone].sum()), np.where(is_alone[:, None], 0.0, -P)
        class_total = np.where(is_alone, 1.0, class_kernels.sum(axis=1, dtype=np.float64))
        logs = np.minimum(np.log(class_total) - class_nearest + nearest - np.log(total), 0)
        W = np.where(is_alone[:, None], 0.0, P - class_kernels / class_total[:, None])
        return float(logs[~is_alone].sum()), W

    def _weigh_targets(self, rows: slice, E: Floats) -> tuple[float, Matrix]:
        y = self.engine.y
        P = E / E.sum(axis=1, dtype=np.float64)[:, None]
        neighbor_targets = y[self.neighbors[rows]]
        prediction = np.einsum("ij,ij->i", P, neighbor_targets)
        error = prediction - y[rows]
        return float(error @ error), 2 * error[:, None] * P * (
            prediction[:, None] - neighbor_targets
        )


def _decay(D: Floats, nearest: Floats) -> Floats:
    """Compute exp(nearest - D) in place, with a lower limit of the exponents."""
    np.subtract(nearest.astype(D.dtype)[:, None], D, out=D)
    np.maximum(D, _MIN_EXPONENT[D.dtype], out=D)
    return np.exp(D, out=D)
