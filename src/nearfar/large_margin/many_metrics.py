"""The large-margin loss with one metric per cell of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Indices, Matrix
from nearfar.large_margin.impostors import find_impostors
from nearfar.large_margin.pair_lists import PairList, compute_listed_distances, make_pair_list
from nearfar.large_margin.problem import LargeMargin, Progress, compute_min_form_ratio
from nearfar.large_margin.triplet_loss import Evaluation, multiply_laplacian, weigh_hinges
from nearfar.large_margin.working_set import SLACK, compute_map_shrinkage


class ManyMetrics(LargeMargin):
    """The large-margin loss with one linear map for each group of points (cell).

    L has shape (cells, rows, columns).
    """

    def __init__(
        self,
        points: Matrix,
        codes: Indices,
        targets: Indices,
        cells: Indices,
        push_weight: float,
        *,
        n_threads: int = 1,
        nearest: int | None = None,
    ) -> None:
        super().__init__(points, codes, targets, push_weight, n_threads=n_threads, nearest=nearest)
        self.cells = cells
        self.members = [np.flatnonzero(cells == cell) for cell in range(int(cells.max()) + 1)]

    def evaluate(
        self,
        L: Matrix,
        smoothing: float | None = None,
        V: Any = None,
        points: Any = None,
        measured: Any = None,
    ) -> Evaluation:
        """Return the loss. The field ``laplacian_v`` of the result is the gradient in L."""
        weighing, mapped = self._weigh_pairs(L, smoothing, points)
        X = self.working if points is None else points
        gradient = np.empty(L.shape)
        for cell, W in enumerate(self._split_by_cell(weighing)):
            gradient[cell] = 2 * (multiply_laplacian(W, mapped[cell]).T @ X)
        return Evaluation(weighing.loss, gradient, weighing.n_active, weighing.slopes)

    def _weigh_pairs(self, L: Matrix, smoothing: float | None, points: Any) -> Any:
        width = self.smoothing if smoothing is None else smoothing
        X = self.working if points is None else points
        mapped = [X @ L_cell.T.astype(X.dtype) for L_cell in L]
        reach = 1.0 + compute_cell_target_distances(mapped, self.cells, self.targets)
        assert self.pairs is not None
        distances = compute_cell_pair_distances(
            mapped, self.cells, self.pairs.centers, self.pairs.indices
        )
        weighing = weigh_hinges(
            reach,
            self.targets,
            self.pairs,
            distances,
            self.push_weight,
            width,
            X.dtype,
            self.nearest,
        )
        return weighing, mapped

    def _split_by_cell(self, weighing: Any) -> list[sparse.csr_array]:
        """Return one copy of W per cell, in which the columns of all other cells are zero."""
        W = (weighing.push + weighing.pull).tocoo()
        owner = self.cells[W.col]
        matrices = []
        for cell in range(len(self.members)):
            is_in_cell = owner == cell
            rows, columns = W.row[is_in_cell], W.col[is_in_cell]
            matrices.append(sparse.csr_array((W.data[is_in_cell], (rows, columns)), W.shape))
        return matrices

    def compute_gradient(self, laplacian_z: Any, points: Any = None) -> Matrix:
        """Return the gradient that `evaluate` has already computed."""
        return np.asarray(laplacian_z)

    def rescale(self, L: Matrix) -> Matrix:
        """Return L unchanged, because it starts from a map that is already scaled."""
        return L

    def _plan_stages(self, L: Matrix) -> list[int | None]:
        return [None]  # The initial map, learned as a single metric, is a good start.

    def _is_sampled(self, L: Matrix) -> bool:
        return False

    def search(
        self, L: Matrix, *, keep: bool = False, coarse: bool = False, max_listed: int | None = None
    ) -> float:
        """List every pair with an active hinge, for each cell of impostors."""
        mapped = [self.points @ L_cell.T for L_cell in L]
        reach = 1.0 + compute_cell_target_distances(mapped, self.cells, self.targets).max(axis=1)
        radius = np.maximum(SLACK * reach, reach + self.smoothing)
        loss_before = self.evaluate(L).loss
        lists = []
        for Z, members in zip(mapped, self.members, strict=True):
            pairs = find_impostors(
                Z,
                self.codes,
                radius,
                max_pairs=10**8,
                n_threads=self.n_threads,
                among=members,
            )
            if pairs is None:
                raise ValueError(
                    "More than 100 million impostor pairs were found, which is the limit if there "
                    "are several metrics. Use fewer training rows, or start from a better map."
                )
            lists.append((pairs.centers, pairs.indices))
        if keep and self.pairs is not None:
            lists.append((self.pairs.centers, self.pairs.indices))
        self.pairs: PairList | None = make_pair_list(lists, len(self.points))
        self._listed_at = (L, radius, radius)
        loss_after = self.evaluate(L).loss
        return (loss_after - loss_before) / loss_after if loss_after > 0 else 0.0

    def is_complete(self, L: Matrix) -> bool:
        """Return True if a bound proves that the list contains every active pair under L."""
        if self._listed_at is None:
            return False
        L_before, radius, _ = self._listed_at
        if np.array_equal(L, L_before):
            return True
        alpha = min(compute_map_shrinkage(a, b) for a, b in zip(L_before, L, strict=True))
        mapped = [self.points @ L_cell.T for L_cell in L]
        reach = 1.0 + compute_cell_target_distances(mapped, self.cells, self.targets).max(axis=1)
        centers = np.isfinite(reach)
        return bool(np.all(alpha * radius[centers] >= reach[centers] + self.smoothing / 2))

    def _escape(self, progress: Progress, tol: float) -> bool:
        return False

    def compute_dual_bound(self, L: Matrix) -> float:
        """Return a lower bound on the loss that any set of metrics can have.

        The bound is 0 if a cell contains no target, because no pull term bounds its metric.
        """
        X = self.points
        best = self.bound
        pull = None
        for width in self.smoothing * np.array([1.0, 0.3, 3.0]):
            weighing, _ = self._weigh_pairs(L, width, X)
            S = [X.T @ multiply_laplacian(W, X) for W in self._split_by_cell(weighing)]
            if pull is None:
                pull = self._compute_pulls()
            lowest = min(
                compute_min_form_ratio((s + s.T) / 2 - P, P) for s, P in zip(S, pull, strict=True)
            )
            factor = 1.0 if lowest >= -1.0 else -1.0 / lowest
            best = max(best, factor * self.push_weight * weighing.slopes)
        return best

    def _compute_pulls(self) -> list[Matrix]:
        rows, slots = np.nonzero(self.targets >= 0)
        columns = self.targets[rows, slots]
        weights = np.full(len(rows), 1 - self.push_weight)
        n = len(self.points)
        pulls = []
        for cell in range(len(self.members)):
            is_in_cell = self.cells[columns] == cell
            W = sparse.csr_array(
                (weights[is_in_cell], (rows[is_in_cell], columns[is_in_cell])), (n, n)
            )
            P = self.points.T @ multiply_laplacian(W, self.points)
            pulls.append((P + P.T) / 2)
        return pulls


def compute_cell_pair_distances(
    mapped: list[Any], cells: Indices, first: NDArray[Any], second: NDArray[Any]
) -> Matrix:
    """Return squared distances of pairs under the metric of the second point."""
    distances = np.empty(len(first))
    owner = cells[second]
    for cell, Z in enumerate(mapped):
        cell_pairs = np.flatnonzero(owner == cell)
        distances[cell_pairs] = compute_listed_distances(Z, first[cell_pairs], second[cell_pairs])
    return distances


def compute_cell_target_distances(mapped: list[Any], cells: Indices, targets: Indices) -> Matrix:
    """Return squared distances (n, k) to the targets, under the metric of each target.

    Missing targets have the distance -inf.
    """
    distances = np.full(targets.shape, -np.inf)
    rows, slots = np.nonzero(targets >= 0)
    distances[rows, slots] = compute_cell_pair_distances(mapped, cells, rows, targets[rows, slots])
    return distances
