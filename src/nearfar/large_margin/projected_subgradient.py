"""The LMNN solver of Weinberger (2007), Algorithm 3: projected subgradient steps in M."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from nearfar.arrays import Indices, Matrix
from nearfar.large_margin.impostors import find_impostors
from nearfar.large_margin.pair_lists import (
    PairList,
    compute_listed_distances,
    compute_target_distances,
    make_pair_list,
)
from nearfar.large_margin.triplet_loss import multiply_laplacian, multiply_pull_laplacian
from nearfar.solvers.projections import project_psd, psd_factor

# A hinge (i, a, l) of row i, its target neighbor with position a, and the impostor l is encoded as
# the number (i k + a) n + l, where k is the number of target neighbors and n the number of rows.
Hinges = NDArray[np.int64]

# Number of iterations between two full searches for impostors.
_FULL_SEARCH_INTERVAL = 10
# Factor by which the step size is multiplied after the objective decreased.
_GROWTH_FACTOR = 1.01
# Factor by which the step size is multiplied after the objective increased.
_SHRINK_FACTOR = 0.5
# The solver stops after this many consecutive steps that change the objective by at most the
# fraction tol.
_MAX_SMALL_CHANGES = 5


@dataclass
class SubgradientResult:
    """Result of the solver: the best map, the history, and whether the solver converged."""

    L: Matrix
    history: dict[str, list[float]]
    converged: bool


def run_projected_subgradient(
    points: Matrix,
    codes: Indices,
    targets: Indices,
    push_weight: float,
    *,
    max_iter: int,
    tol: float,
) -> SubgradientResult:
    r"""Minimize the loss of LMNN by :math:`M \leftarrow P_{psd}(M - \alpha G)`.

    A full search finds all active hinges every ten iterations and before the end. In between, only
    pairs that have been active before are evaluated. The subgradient G is computed from scratch at
    each full search. In between, it is updated with the hinges that became active or inactive. The
    step size grows by 1% if the objective decreased, and is halved if it increased. The step is
    taken in both cases, and the best M is returned. The solver has converged if the relative change
    of the objective stays at or below ``tol``.

    This solver is provided for comparison. The step size is halved at each kink, so the solver
    stalls far above the optimum if the features have different scales.
    """
    working_set = WorkingSet(points, codes, targets, push_weight)
    M = np.eye(points.shape[1])
    history: dict[str, list[float]] = {"objective": [], "step": [], "active": [], "seconds": []}
    start_time = perf_counter()
    active_hinges = np.zeros(0, dtype=np.int64)
    G = working_set.pull_gradient
    alpha, last_objective, best = 0.0, np.inf, (np.inf, M)
    n_small_changes, converged = 0, False
    for iteration in range(max_iter):
        is_settled = n_small_changes >= _MAX_SMALL_CHANGES
        searches_all = iteration % _FULL_SEARCH_INTERVAL == 0 or is_settled
        n_added_pairs = working_set.search(M) if searches_all else 0
        objective, new_active_hinges = working_set.evaluate(M)
        if searches_all:
            # Computing G from scratch removes accumulated rounding errors.
            G = working_set.compute_gradient(new_active_hinges)
            # The loss over a larger working set cannot be compared with the previous loss.
            last_objective = last_objective if not n_added_pairs else np.inf
        else:
            G = G + working_set.compute_gradient_change(active_hinges, new_active_hinges)
        active_hinges = new_active_hinges
        if objective < best[0] and searches_all:
            best = (objective, M)
        history["objective"].append(objective)
        history["active"].append(len(active_hinges))
        history["seconds"].append(perf_counter() - start_time)
        if is_settled and not n_added_pairs:
            converged = True
            history["step"].append(0.0)
            break
        if iteration == 0:
            alpha = 1e-3 / max(float(np.linalg.norm(G, 2)), np.finfo(float).tiny)
        else:
            alpha *= _GROWTH_FACTOR if objective < last_objective else _SHRINK_FACTOR
        n_small_changes = (
            n_small_changes + 1 if abs(last_objective - objective) <= tol * objective else 0
        )
        last_objective = objective
        step = project_psd(M - alpha * G) - M
        history["step"].append(float(np.linalg.norm(step)))
        M = M + step
    if not converged:
        working_set.search(M)
        objective, _ = working_set.evaluate(M)
        best = min(best, (objective, M), key=lambda candidate: candidate[0])
    return SubgradientResult(_make_square_factor(best[1]), history, converged)


class WorkingSet:
    """All pairs that have been active so far, and the loss over these pairs."""

    def __init__(
        self, points: Matrix, codes: Indices, targets: Indices, push_weight: float
    ) -> None:
        self.points, self.codes, self.targets = points, codes, targets
        self.push_weight = push_weight
        self.pairs: PairList = make_pair_list([], len(points))
        self.pull_gradient = points.T @ multiply_pull_laplacian(targets, push_weight, points)

    def search(self, M: Matrix) -> int:
        """Add every pair that is active under M. Return the number of new pairs."""
        Z = self.points @ psd_factor(M).T
        max_squared_distances = 1.0 + compute_target_distances(Z, self.targets).max(axis=1)
        impostors = find_impostors(Z, self.codes, max_squared_distances, max_pairs=10**8)
        if impostors is None:
            raise ValueError(
                'solver="projected_subgradient" found more than 100 million impostor pairs, '
                'which is the limit of this solver. Use solver="lbfgs".'
            )
        n_previous_pairs = len(self.pairs.indices)
        lists = [(pair_list.centers, pair_list.indices) for pair_list in (self.pairs, impostors)]
        self.pairs = make_pair_list(lists, len(Z))
        return len(self.pairs.indices) - n_previous_pairs

    def evaluate(self, M: Matrix) -> tuple[float, Hinges]:
        """Return the loss over the working set and the active hinges."""
        n, k = self.targets.shape
        Z = self.points @ psd_factor(M).T
        squared_limits = 1.0 + compute_target_distances(Z, self.targets)
        centers = self.pairs.centers
        margins = (
            squared_limits[centers]
            - compute_listed_distances(Z, centers, self.pairs.indices)[:, None]
        )
        pair_indices, target_positions = np.nonzero(margins > 0)
        target_codes = centers[pair_indices].astype(np.int64) * k + target_positions
        hinges = target_codes * n + self.pairs.indices[pair_indices]
        pull_loss = float((squared_limits[self.targets >= 0] - 1.0).sum())
        push_loss = float(margins[pair_indices, target_positions].sum())
        loss = (1 - self.push_weight) * pull_loss + self.push_weight * push_loss
        return loss, np.sort(hinges)

    def compute_gradient(self, active_hinges: Hinges) -> Matrix:
        """Return the gradient G, computed from scratch."""
        return self.pull_gradient + self._compute_push_gradient(
            active_hinges, np.ones(len(active_hinges))
        )

    def compute_gradient_change(self, previous_hinges: Hinges, current_hinges: Hinges) -> Matrix:
        """Return the change of G due to the hinges that became active or inactive."""
        added_hinges = np.setdiff1d(current_hinges, previous_hinges, assume_unique=True)
        removed_hinges = np.setdiff1d(previous_hinges, current_hinges, assume_unique=True)
        signs = np.concatenate([np.ones(len(added_hinges)), -np.ones(len(removed_hinges))])
        return self._compute_push_gradient(np.concatenate([added_hinges, removed_hinges]), signs)

    def _compute_push_gradient(self, hinges: Hinges, weights: Matrix) -> Matrix:
        n, k = self.targets.shape
        target_codes, impostors = np.divmod(hinges, n)
        centers, target_positions = np.divmod(target_codes, k)
        rows = np.concatenate([centers, centers])
        columns = np.concatenate([self.targets[centers, target_positions], impostors])
        signed_weights = self.push_weight * np.concatenate([weights, -weights])
        W = sparse.csr_array((signed_weights, (rows, columns)), (n, n))
        return np.asarray(self.points.T @ multiply_laplacian(W, self.points))


def _make_square_factor(M: Matrix) -> Matrix:
    """Return a square L with M = L'L. L has zero rows if M is singular."""
    L = psd_factor(M)
    return np.vstack([L, np.zeros((M.shape[1] - len(L), M.shape[1]))])
