"""The large-margin loss where only the nearest impostors count: tables of one width for all.

Of each centre as many impostors count, and as many targets; so hinges are a table, and the pairs
that weigh have the same place in a sparse matrix at every map. What depends on the list alone is
made once: on small sets that is most of the time of an evaluation.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.large_margin.pair_lists import (
    THREADED_SIZE,
    Integers,
    PairList,
    compute_pair_distances,
)
from nearfar.large_margin.triplet_loss import (
    Evaluation,
    Measured,
    evaluate_hinge,
    multiply_laplacian,
)


class NearestTable:
    """Hinges of each centre's targets with the ``nearest`` of its listed impostors."""

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
        # All distances at once: those of the targets come first.
        self._n_pulled = len(rows)
        self._first = np.concatenate([rows, centers])
        self._second = np.concatenate([targets[rows, slots], impostors.indices]).astype(np.intp)
        # Where each listed impostor is in a table with a row for each centre.
        self._begins = (np.arange(n) * width)[:, None]
        self._place = centers * width + np.arange(len(centers)) - impostors.indptr[centers]
        self._impostors = np.zeros(n * width, dtype=np.int32)
        self._impostors[self._place] = impostors.indices
        # Pairs that weigh: the targets, then the impostors that count. Who is absent weighs 0.
        self._second_of = np.zeros((n, k + n_counted), dtype=np.int32)
        self._second_of[:, :k] = np.where(self._present, targets, 0)
        indptr = np.arange(n + 1, dtype=np.int32) * (k + n_counted)
        matrix_parts = (np.zeros(self._second_of.size), self._second_of.ravel(), indptr)
        # W and its transpose; to make them takes as long as to multiply by them.
        self._sparse = (
            sparse.csr_array(matrix_parts, (n, n)),
            sparse.csc_array(matrix_parts, (n, n)),
        )

    def measure(self, Z: Floats, n_threads: int = 1) -> Measured:
        """1 plus the distance of each target, -inf where there is none; those of the impostors."""
        distances = compute_pair_distances(Z, self._first, self._second, n_threads)
        pulled = distances[: self._n_pulled] + 1.0
        if self._n_pulled == self.targets.size:
            reach = pulled.reshape(self.targets.shape)
        else:
            reach = np.full(self.targets.shape, -np.inf)
            reach[self._present] = pulled
        return Measured(reach, distances[self._n_pulled :])

    def _find_nearest(self, distances: Matrix) -> tuple[Indices, Matrix]:
        """Places and distances of the impostors that count, the nearest first; inf for none."""
        table = np.full(self._shape, np.inf)
        table.ravel()[self._place] = distances
        n_counted = self._second_of.shape[1] - self.targets.shape[1]
        # Sorted stably, so that of equals the same count on every processor.
        at = table.argsort(axis=1, kind="stable")[:, :n_counted] + self._begins
        return at, table.ravel()[at]

    def find_last_distances(self, distances: Matrix) -> Matrix:
        """The distance of the last impostor that counts; inf where fewer are listed."""
        if not self._enough:
            return np.full(self._shape[0], np.inf)
        return self._find_nearest(distances)[1][:, -1]

    def loss(
        self,
        measured: Measured,
        V: Floats,
        push_weight: float,
        smoothing: float,
        n_threads: int = 1,
    ) -> Evaluation:
        """The loss, and ``Lap(W) @ V``."""
        k = self.targets.shape[1]
        at, near = self._find_nearest(measured.distances)
        losses, slopes = evaluate_hinge(measured.reach[:, :, None] - near[:, None, :], smoothing)
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
            self._laplacian_dot(weights, V, n_threads),
            int(np.count_nonzero(slopes)),
            float(pushes.sum()),
        )

    def _laplacian_dot(self, weights: Floats, V: Floats, n_threads: int) -> Floats:
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
