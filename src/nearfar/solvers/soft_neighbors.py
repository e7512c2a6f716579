r"""Soft neighbours: the objectives of NCA, MCML and MLKR under a linear map, and their gradients.

A point chooses another as its neighbour with the probability

.. math:: p_{ij} = e^{-D_{ij}} / \sum_{k \ne i} e^{-D_{ik}}, \qquad D_{ij} = \|L(x_i - x_j)\|^2 .

Every objective here is a function of these, so that its gradient is a sum over pairs,
:math:`\sum_{ij} W_{ij} \partial D_{ij} = 2 L X^T \Lambda X`, with the Laplacian Λ of
:math:`W + W^T`. Weights are never kept: a block of rows adds its share of :math:`W Z`,
:math:`W^T Z` and of the sums of rows and columns of W, where :math:`Z = X L^T`.
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

# Entries of a block: as many as stay near the processor, but never so few rows that adding up what
# they say of all columns takes longer than to find it.
_ENTRIES, _FEWEST_ROWS = 1 << 19, 64
# Rounding of a squared distance in single precision above which double precision is used.
_NOISE = 1e-3
# Exponents below which a neighbour does not count: far less than rounding, and products with what
# is left of it are still normal numbers, with which processors are many times faster.
_FLOOR = {np.dtype(np.float32): -60.0, np.dtype(np.float64): -600.0}


def soft_neighbors(
    L: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    objective: SoftObjective = "sum",
    neighbors: ArrayLike | None = None,
) -> tuple[float, Matrix]:
    r"""One of four objectives of the map L, and its gradient, in double precision.

    With :math:`p_i` the sum of :math:`p_{ij}` over the other points of the class of i:

    * "sum": :math:`\sum_i p_i`, the expected number of points that soft neighbours classify
      rightly (to be maximised: NCA);
    * "log": :math:`\sum_i \log p_i`, the log-probability that there is no error at all (to be
      maximised); points that are alone in their class are left out;
    * "collapse": :math:`\sum_i KL(q_i \| p_i)`, with :math:`q_i` uniform over the other points of
      the class of i (to be minimised: MCML); points that are alone in their class are left out;
    * "regression": :math:`\sum_i (y_i - \sum_j p_{ij} y_j)^2` (to be minimised: MLKR).

    Cost O(n² r + n p r) for r rows of L, in blocks: no n×n array. With ``neighbors`` O(n k r).

    Parameters
    ----------
    L : array of shape (r, n_features)
        The map.
    X : array of shape (n_samples, n_features)
        Points, at least two.
    y : array of shape (n_samples,)
        Labels; for "regression" numbers.
    objective : {"sum", "log", "collapse", "regression"}, default="sum"
        Which one.
    neighbors : array of int of shape (n_samples, k), optional
        Row numbers of the points from which each one chooses, itself not among them; None is all
        others. For "log", points without one of their class among them are left out; for "collapse"
        :math:`q_i` stays what it is, and only the sum below the fraction is cut short.

    Returns
    -------
    value : float
    gradient : ndarray of shape (r, n_features)

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
    lists = None if neighbors is None else np.asarray(neighbors, np.intp)
    if lists is not None and objective != "regression":
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        lists = place[lists[order]]
    engine = SoftNeighbors(points, targets, objective, precision="double")
    value, gradient = engine.evaluate(np.asarray(L, np.float64), lists)
    return value, gradient


class SoftNeighbors:
    """The objective of a set of points, to be evaluated at many maps.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Points; unless the objective is "regression", sorted by class.
    y : ndarray of shape (n_samples,)
        Codes of classes from 0 on, ascending; for "regression" numbers.
    objective : {"sum", "log", "collapse", "regression"}
        See :func:`soft_neighbors`.
    precision : {"single", "double"}, default="single"
        In what distances and their exponentials are computed. Single precision gives some six
        digits at several times the speed; it is left where the map is so large that it would not.
    n_threads : int, default=1
        Parts of the rows that are worked on at the same time.
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
        # About the mean, where expanded squares have the most digits.
        self.X = X - X.mean(axis=0, dtype=np.float64)
        self.y = y
        self.objective = objective
        self.precision = precision
        self.n_threads = n_threads
        self._pull: Matrix | None = None
        self._constant = 0.0
        if objective == "regression":
            self.y = np.asarray(y, np.float64)
            return
        sizes = np.bincount(y)
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self._alone = sizes[y] < 2
        if objective == "collapse":
            self._pull = self._within(sizes)
            others = sizes[y][~self._alone] - 1
            self._constant = -float(np.log(others).sum())

    def _within(self, sizes: Indices) -> Matrix:
        """The sum over i of the mean of xx' over differences to the others of its class."""
        total = np.zeros((self.X.shape[1],) * 2)
        for start, size in zip(self._starts[:-1], sizes, strict=True):
            if size > 1:
                own = self.X[start : start + size]
                own = own - own.mean(axis=0)
                total += 2 * size / (size - 1) * (own.T @ own)
        return total

    def of(self, X: Floats, y: NDArray[Any], precision: Precision | None = None) -> SoftNeighbors:
        """The same of other points, or in another precision."""
        precision = precision or self.precision
        return SoftNeighbors(X, y, self.objective, precision=precision, n_threads=self.n_threads)

    def value(self, L: Matrix) -> float:
        """The objective alone, over all neighbours."""
        Z = self._mapped(L)
        return np.inf * self._worst if Z is None else self._of_map(L, self._sums(_All(self, Z))[0])

    def evaluate(self, L: Matrix, neighbors: Indices | None = None) -> tuple[float, Matrix]:
        """Value and gradient. Where distances overflow, the worst value and zeros."""
        Z = self._mapped(L)
        if Z is None:
            return np.inf * self._worst, np.zeros_like(L)
        work = _All(self, Z) if neighbors is None else _Listed(self, Z, neighbors)
        value, sums = self._sums(work, Z)
        slope = 2 * self._laplacian(sums, Z).T @ self.X
        if self._pull is not None:
            slope += 2 * L @ self._pull
        return self._of_map(L, value), slope

    def metric_gradient(self, L: Matrix) -> Matrix:
        """The gradient G in M = L'L: that in L is 2 L G."""
        Z = self._mapped(L)
        assert Z is not None
        carried = self.X.astype(Z.dtype, copy=False)
        _, sums = self._sums(_All(self, Z, carried), carried)
        G = self._laplacian(sums, carried).T @ self.X
        return G if self._pull is None else G + self._pull

    @property
    def _worst(self) -> int:
        return -1 if self.objective in ("sum", "log") else 1

    def _mapped(self, L: Matrix) -> Floats | None:
        """The points under a map, in the precision that it needs."""
        Z = self.X @ L.T
        largest = float(np.einsum("ij,ij->i", Z, Z).max())
        if not np.isfinite(4 * largest):
            return None
        rough = np.finfo(np.float32).eps * largest
        single = self.precision == "single" and rough < _NOISE
        return Z.astype(np.float32 if single else np.float64, copy=False)

    def _sums(self, work: Any, carried: Floats | None = None) -> tuple[float, Matrix]:
        """The value of all rows; products of W + W' with what is carried, and their row sums."""
        n = len(self.X)
        # Each part has sums of its own, added up in order: equal threads give equal bits.
        bounds = np.linspace(0, n, self.n_threads + 1).astype(int)
        parts = [slice(a, b) for a, b in pairwise(bounds) if b > a]
        columns = 0 if carried is None else carried.shape[1] + 1

        def of_part(part: slice) -> tuple[float, Matrix]:
            sums = np.zeros((n, columns))
            value = 0.0
            for rows in work.blocks(part):
                value += work.add(rows, sums if columns else None)
            return value, sums

        value, sums = 0.0, np.zeros((n, columns))
        for of_rows, some in map_in_order(of_part, parts, self.n_threads):
            value += of_rows
            sums = some if len(parts) == 1 else sums + some
        return value, sums

    @staticmethod
    def _laplacian(sums: Matrix, carried: Floats) -> Matrix:
        return sums[:, -1:] * carried - sums[:, :-1]

    def _of_map(self, L: Matrix, value: float) -> float:
        """With what is the same for all maps, or needs no pairs."""
        if self._pull is not None:
            value += float(np.sum(L * (L @ self._pull)))
        return value + self._constant


class _All:
    """A block of rows at a time against all points."""

    def __init__(self, engine: SoftNeighbors, Z: Floats, carried: Floats | None = None) -> None:
        self.engine = engine
        one = np.ones((len(Z), 1), Z.dtype)
        squares = np.einsum("ij,ij->i", Z, Z)[:, None]
        # One product is all of ||z_i||^2 - 2 z_i'z_j + ||z_j||^2.
        self.left = np.hstack([-2 * Z, squares, one])
        self.right = np.hstack([Z, one, squares]).T
        self.points = np.hstack([Z if carried is None else carried, one])
        if engine.objective == "regression":
            self.values = engine.y.astype(Z.dtype)
            self.points = np.hstack([self.points, self.values[:, None] * self.points])

    def blocks(self, part: slice) -> Iterator[slice]:
        n = len(self.left)
        at_most = max(_FEWEST_ROWS, _ENTRIES // n)
        for rows in split_rows(part.stop - part.start, 8 * n, max_rows=at_most):
            yield slice(part.start + rows.start, part.start + rows.stop)

    def add(self, rows: slice, sums: Matrix | None) -> float:
        """The part of the value that some rows have; their part of the sums is added to these."""
        E = self.left[rows] @ self.right
        itself = np.arange(rows.start, rows.stop)
        E[itself - rows.start, itself] = np.inf
        nearest = E.min(axis=1)
        if self.engine.objective == "regression":
            return self._add_values(rows, _decay(E, nearest), sums)
        return self._add_labels(rows, E, nearest, sums)

    def _add_labels(self, rows: slice, D: Floats, nearest: Floats, sums: Matrix | None) -> float:
        engine = self.engine
        alone = engine._alone[rows]
        size, kind = len(D), engine.objective
        own_nearest = np.zeros(size)
        classes = list(self._classes(rows)) if kind != "collapse" else []
        # What is far from all but the rest of its class would vanish beside other classes.
        own = {}
        if kind == "log":
            for inside, members in classes:
                if members.stop - members.start > 1:
                    some = D[inside, members].copy()
                    own_nearest[inside] = near = some.min(axis=1)
                    own[inside.start] = _decay(some, near)
        E = _decay(D, nearest)
        if kind == "sum":
            own = {inside.start: E[inside, members] for inside, members in classes}
        columns = self.points.shape[1]
        of_all = (E @ self.points).astype(np.float64)
        of_own = np.zeros((size, columns))
        for inside, members in classes:
            if inside.start in own:
                of_own[inside] = own[inside.start] @ self.points[members]
        total, total_own = of_all[:, -1], of_own[:, -1]
        if kind == "sum":
            share = total_own / total
            value, a, b = float(share.sum()), share / total, 1 / total
        elif kind == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                b = np.where(alone, 0.0, 1 / total_own)
                logs = np.log(total_own) - own_nearest + nearest - np.log(total)
            logs = np.minimum(logs, 0)  # rounding aside, it is
            value, a = float(logs[~alone].sum()), np.where(alone, 0.0, 1 / total)
        else:
            logs = np.log(total) - nearest
            value, a = float(logs[~alone].sum()), np.where(alone, 0.0, -1 / total)
            b = np.zeros(size)
        if sums is not None:
            sums[rows] += a[:, None] * of_all - b[:, None] * of_own
            points = self.points[rows]
            sums += E.T @ (a[:, None].astype(E.dtype) * points)
            weighted = b[:, None].astype(E.dtype) * points
            for inside, members in classes:
                if inside.start in own:
                    sums[members] -= own[inside.start].T @ weighted[inside]
        return value

    def _classes(self, rows: slice) -> Iterator[tuple[slice, slice]]:
        """The rows of each class within a block, counted from its start, and all its rows."""
        starts, y = self.engine._starts, self.engine.y
        for c in range(int(y[rows.start]), int(y[rows.stop - 1]) + 1):
            low, high = max(starts[c], rows.start), min(starts[c + 1], rows.stop)
            if high > low:
                yield (
                    slice(int(low - rows.start), int(high - rows.start)),
                    slice(int(starts[c]), int(starts[c + 1])),
                )

    def _add_values(self, rows: slice, E: Floats, sums: Matrix | None) -> float:
        y, r = self.engine.y, self.points.shape[1] // 2
        of_all = (E @ self.points).astype(np.float64)
        total = of_all[:, r - 1]
        guess = of_all[:, -1] / total
        error = guess - y[rows]
        if sums is not None:
            a = (2 * error / total)[:, None]
            sums[rows] += a * (guess[:, None] * of_all[:, :r] - of_all[:, r:])
            points = self.points[rows, :r]
            factors = np.hstack([a * guess[:, None] * points, a * points]).astype(E.dtype)
            found = E.T @ factors
            found[:, :r] -= self.values[:, None] * found[:, r:]
            sums += found[:, :r]
        return float(error @ error)


class _Listed:
    """A block of rows at a time against the neighbours that each one has."""

    def __init__(self, engine: SoftNeighbors, Z: Floats, neighbors: Indices) -> None:
        self.engine, self.Z, self.neighbors = engine, Z, neighbors
        self.points = np.hstack([Z, np.ones((len(Z), 1), Z.dtype)])
        self.squares = np.einsum("ij,ij->i", Z, Z)

    def blocks(self, part: slice) -> Iterator[slice]:
        k = self.neighbors.shape[1]
        per_row = max(1, k * self.points.shape[1])
        at_most = max(1, 4 * _ENTRIES // per_row)
        for rows in split_rows(part.stop - part.start, 8 * per_row, max_rows=at_most):
            yield slice(part.start + rows.start, part.start + rows.stop)

    def add(self, rows: slice, sums: Matrix | None) -> float:
        """As for all points."""
        engine, listed = self.engine, self.neighbors[rows]
        near = np.take(self.points, listed, axis=0)
        D = self.squares[listed] - 2 * (near[..., :-1] @ self.Z[rows][:, :, None])[..., 0]
        D += self.squares[rows][:, None]
        nearest = D.min(axis=1)
        if engine.objective == "regression":
            value, W = self._of_values(rows, _decay(D, nearest))
        else:
            value, W = self._of_labels(rows, D, nearest)
        if sums is not None:
            W = W.astype(self.Z.dtype, copy=False)
            sums[rows] += (W[:, None, :] @ near)[:, 0]
            starts = np.arange(0, listed.size + 1, listed.shape[1])
            shape = (len(listed), len(self.Z))
            # Transposed without a copy: columns are where the sums go.
            across = sparse.csr_array((W.ravel(), listed.ravel(), starts), shape=shape).T
            sums += across @ self.points[rows]
        return value

    def _of_labels(self, rows: slice, D: Floats, nearest: Floats) -> tuple[float, Matrix]:
        engine = self.engine
        kind, alone = engine.objective, engine._alone[rows]
        same = engine.y[self.neighbors[rows]] == engine.y[rows][:, None]
        if kind == "log":
            own = np.where(same, D, np.inf)
            own_nearest = own.min(axis=1)
            alone = alone | ~same.any(axis=1)
            own_nearest[alone] = 0
            own = np.where(same, _decay(own, own_nearest), 0)
        E = _decay(D, nearest)
        total = E.sum(axis=1, dtype=np.float64)
        P = E / total[:, None]
        if kind == "sum":
            share = np.sum(P, axis=1, where=same)
            return float(share.sum()), P * (share[:, None] - same)
        if kind == "collapse":
            logs = np.log(total) - nearest
            return float(logs[~alone].sum()), np.where(alone[:, None], 0.0, -P)
        total_own = np.where(alone, 1.0, own.sum(axis=1, dtype=np.float64))
        logs = np.minimum(np.log(total_own) - own_nearest + nearest - np.log(total), 0)
        W = np.where(alone[:, None], 0.0, P - own / total_own[:, None])
        return float(logs[~alone].sum()), W

    def _of_values(self, rows: slice, E: Floats) -> tuple[float, Matrix]:
        y = self.engine.y
        P = E / E.sum(axis=1, dtype=np.float64)[:, None]
        theirs = y[self.neighbors[rows]]
        guess = np.einsum("ij,ij->i", P, theirs)
        error = guess - y[rows]
        return float(error @ error), 2 * error[:, None] * P * (guess[:, None] - theirs)


def _decay(D: Floats, nearest: Floats) -> Floats:
    """exp(nearest - D), in place; what is infinitely far is as good as zero."""
    np.subtract(nearest.astype(D.dtype)[:, None], D, out=D)
    np.maximum(D, _FLOOR[D.dtype], out=D)
    return np.exp(D, out=D)
