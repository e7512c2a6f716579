"""The large-margin loss if only the nearest impostors count, computed with dense tables.

All centers have the same number of targets and of impostors that count. Hinges therefore form a
table, and the weighted pairs have the same positions in a sparse matrix for every map. Arrays that
depend only on the list are computed once, which saves most of the time on small data.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.large_margin.pair_lists import (
    THREADED_SIZE,
    Integers,
    PairList,
    compute_listed_distances,
)
from nearfar.large_margin.triplet_loss import (
    Evaluation,
    HingeDistances,
    evaluate_rounded_hinge,
    multiply_laplacian,
)


class NearestTable:
    """Hinges between the targets of each center and its ``nearest`` closest listed impostors."""

    def __init__(self, impostors: PairList, targets: Integers, nearest: int) -> None:
        n, k = targets.shape
        self.impostors, self.targets = impostors, targets
        counts = np.diff(impostors.indptr)
        width = max(1, int(counts.max(initial=0)))
        n_counted = min(nearest, width)
        self._shape, self._enough = (n, width), n_counted == nearest
        centers = impostors.centers.astype(np.intp)
        self._present = targets >= 0
        rows, slots = np.nonzero(self._present)
        # One call computes the distances of the targets, followed by the distances of the
        # impostors.
        self._n_pulled = len(rows)
        self._first = np.concatenate([rows, centers])
        self._second = np.concatenate([targets[rows, slots], impostors.indices]).astype(np.intp)
        # Positions of the listed impostors in a table with one row per center.
        self._begins = (np.arange(n) * width)[:, None]
        self._place = centers * width + np.arange(len(centers)) - impostors.indptr[centers]
        self._impostors = np.zeros(n * width, dtype=np.int32)
        self._impostors[self._place] = impostors.indices
        # Second point of each weighted pair: the targets, then the impostors that count. Missing
        # points have the weight 0.
        self._second_of = np.zeros((n, k + n_counted), dtype=np.int32)
        self._second_of[:, :k] = np.where(self._present, targets, 0)
        indptr = np.arange(n + 1, dtype=np.int32) * (k + n_counted)
        matrix_parts = (np.zeros(self._second_of.size), self._second_of.ravel(), indptr)
        # W in row format and in column format. Both are stored, because creating them takes as long
        # as multiplying by them.
        self._sparse = (
            sparse.csr_array(matrix_parts, (n, n)),
            sparse.csc_array(matrix_parts, (n, n)),
        )

    def measure(self, Z: Floats, n_threads: int = 1) -> HingeDistances:
        """Return 1 plus the target distances, and the impostor distances.

        Missing targets have the distance -inf.
        """
        distances = compute_listed_distances(Z, self._first, self._second, n_threads)
        pulled = distances[: self._n_pulled] + 1.0
        if self._n_pulled == self.targets.size:
            reach = pulled.reshape(self.targets.shape)
        else:
            reach = np.full(self.targets.shape, -np.inf)
            reach[self._present] = pulled
        return HingeDistances(reach, distances[self._n_pulled :])

    def _find_nearest(self, distances: Matrix) -> tuple[Indices, Matrix]:
        """Return the positions and distances of the impostors that count, nearest first."""
        table = np.full(self._shape, np.inf)
        table.ravel()[self._place] = distances
        n_counted = self._second_of.shape[1] - self.targets.shape[1]
        # A stable sort selects the same impostors on every processor if distances are equal.
        at = table.argsort(axis=1, kind="stable")[:, :n_counted] + self._begins
        return at, table.ravel()[at]

    def find_last_distances(self, distances: Matrix) -> Matrix:
        """Return the distance of the last impostor that counts, or inf if too few are listed."""
        if not self._enough:
            return np.full(self._shape[0], np.inf)
        return self._find_nearest(distances)[1][:, -1]

    def loss(
        self,
        measured: HingeDistances,
        V: Floats,
        push_weight: float,
        smoothing: float,
        n_threads: int = 1,
    ) -> Evaluation:
        """Return the loss and ``Lap(W) @ V``."""
        k = self.targets.shape[1]
        at, near = self._find_nearest(measured.distances)
        losses, slopes = evaluate_rounded_hinge(
            measured.reach[:, :, None] - near[:, None, :], smoothing
        )
        pulls, pushes = slopes.sum(axis=2), slopes.sum(axis=1)
        weights = np.empty(self._second_of.shape, V.dtype)
        weights[:, :k] = (1 - push_weight) + push_weight * pulls
        weights[:, k:] = -push_weight * pushes
        if self._n_pulled < self.targets.size:
            weights[:, :k][~self._present] = 0.0
        self._second_of[:, k:] = self._impostors[at]
        pulled = float(measured.reach[self._present].sum()) - self._n_pulled
        loss = (1 - push_weight) * pulled + push_weight * float(losses.sum())
        return Evaluation(
            loss,
            self._multiply_laplacian(weights, V, n_threads),
            int(np.count_nonzero(slopes)),
            float(pushes.sum()),
        )

    def _multiply_laplacian(self, weights: Floats, V: Floats, n_threads: int) -> Floats:
        W, transposed = self._sparse
        W.data = transposed.data = weights.ravel()
        W.indices = transposed.indices = self._second_of.ravel()
        if n_threads > 1 and weights.size * V.shape[1] >= THREADED_SIZE:
            return multiply_laplacian(W, V, n_threads)
        degrees = weights.sum(axis=1) + np.bincount(W.indices, W.data, len(V))
        result = degrees.astype(V.dtype)[:, None] * V
        result -= W @ V
        result -= transposed @ V
        return result
