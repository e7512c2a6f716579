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

# A hinge (center, slot, impostor), encoded as the number (center k + slot) n + impostor.
Hinges = NDArray[np.int64]

# Number of iterations between two full searches for impostors.
_FULL_CHECK = 10
# Factor by which the step size is multiplied after the objective decreased.
_GROW = 1.01
# Factor by which the step size is multiplied after the objective increased.
_SHRINK = 0.5
# Number of consecutive steps with a relative change of at most tol after which the solver stops.
_SMALL_STEPS = 5


@dataclass
class SubgradientDescent:
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
) -> SubgradientDescent:
    r"""Minimize the loss of LMNN by :math:`M \leftarrow P_{psd}(M - \alpha G)`.

    All active hinges are searched for every ten iterations and before the end. In between, only
    pairs that have been active before are evaluated. G is updated by the hinges that became active
    or inactive, and computed from scratch at each full search. The step size grows by 1% if the
    objective decreased, and is halved if it increased. The step is taken in both cases, and the
    best M is returned. The solver has converged if the relative change of the objective stays at or
    below ``tol``.

    This solver is provided for comparison. The step size is halved at each kink, so the solver
    stalls far above the optimum if the features have different scales.
    """
    loss = WorkingSet(points, codes, targets, push_weight)
    M = np.eye(points.shape[1])
    history: dict[str, list[float]] = {"objective": [], "step": [], "active": [], "seconds": []}
    began = perf_counter()
    active = np.zeros(0, dtype=np.int64)
    G = loss.pull
    alpha, last_objective, best = 0.0, np.inf, (np.inf, M)
    n_small, converged = 0, False
    for iteration in range(max_iter):
        is_settled = n_small >= _SMALL_STEPS
        searches_all = iteration % _FULL_CHECK == 0 or is_settled
        added = loss.search(M) if searches_all else 0
        objective, new_active = loss.evaluate(M)
        if searches_all:
            G = loss.compute_gradient(new_active)  # This removes accumulated rounding errors.
            # The loss over a larger working set cannot be compared with the previous loss.
            last_objective = last_objective if not added else np.inf
        else:
            G = G + loss.update_gradient(active, new_active)
        active = new_active
        if objective < best[0] and searches_all:
            best = (objective, M)
        history["objective"].append(objective)
        history["active"].append(len(active))
        history["seconds"].append(perf_counter() - began)
        if is_settled and not added:
            converged = True
            history["step"].append(0.0)
            break
        if iteration == 0:
            alpha = 1e-3 / max(float(np.linalg.norm(G, 2)), np.finfo(float).tiny)
        else:
            alpha *= _GROW if objective < last_objective else _SHRINK
        n_small = n_small + 1 if abs(last_objective - objective) <= tol * objective else 0
        last_objective = objective
        step = project_psd(M - alpha * G) - M
        history["step"].append(float(np.linalg.norm(step)))
        M = M + step
    if not converged:
        loss.search(M)
        objective, _ = loss.evaluate(M)
        best = min(best, (objective, M), key=lambda pair: pair[0])
    return SubgradientDescent(_make_square_factor(best[1]), history, converged)


class WorkingSet:
    """The loss over all pairs that were found to be active so far."""

    def __init__(
        self, points: Matrix, codes: Indices, targets: Indices, push_weight: float
    ) -> None:
        self.points, self.codes, self.targets = points, codes, targets
        self.push_weight = push_weight
        self.pairs: PairList = make_pair_list([], len(points))
        self.pull = points.T @ multiply_pull_laplacian(targets, push_weight, points)

    def search(self, M: Matrix) -> int:
        """Add every pair that is active under M. Return the number of new pairs."""
        Z = self.points @ psd_factor(M).T
        reach = 1.0 + compute_target_distances(Z, self.targets).max(axis=1)
        impostors = find_impostors(Z, self.codes, reach, max_pairs=10**8)
        if impostors is None:
            raise ValueError(
                'solver="projected_subgradient" found more than 100 million impostor pairs, '
                'which is the limit of this solver. Use solver="lbfgs".'
            )
        previous = len(self.pairs.indices)
        lists = [(old.centers, old.indices) for old in (self.pairs, impostors)]
        self.pairs = make_pair_list(lists, len(Z))
        return len(self.pairs.indices) - previous

    def evaluate(self, M: Matrix) -> tuple[float, Hinges]:
        """Return the loss over the working set and the active hinges."""
        n, k = self.targets.shape
        Z = self.points @ psd_factor(M).T
        reach = 1.0 + compute_target_distances(Z, self.targets)
        centers = self.pairs.centers
        margins = reach[centers] - compute_listed_distances(Z, centers, self.pairs.indices)[:, None]
        pairs, slots = np.nonzero(margins > 0)
        active = (centers[pairs].astype(np.int64) * k + slots) * n + self.pairs.indices[pairs]
        pulled = float((reach[self.targets >= 0] - 1.0).sum())
        pushed = float(margins[pairs, slots].sum())
        return (1 - self.push_weight) * pulled + self.push_weight * pushed, np.sort(active)

    def compute_gradient(self, active: Hinges) -> Matrix:
        """Return the gradient G, computed from scratch."""
        return self.pull + self._compute_push(active, np.ones(len(active)))

    def update_gradient(self, previous: Hinges, current: Hinges) -> Matrix:
        """Return the change of G due to the hinges that became active or inactive."""
        added = np.setdiff1d(current, previous, assume_unique=True)
        removed = np.setdiff1d(previous, current, assume_unique=True)
        signs = np.concatenate([np.ones(len(added)), -np.ones(len(removed))])
        return self._compute_push(np.concatenate([added, removed]), signs)

    def _compute_push(self, hinges: Hinges, weights: Matrix) -> Matrix:
        n, k = self.targets.shape
        cells, impostors = np.divmod(hinges, n)
        centers, slots = np.divmod(cells, k)
        rows = np.concatenate([centers, centers])
        columns = np.concatenate([self.targets[centers, slots], impostors])
        signed = self.push_weight * np.concatenate([weights, -weights])
        W = sparse.csr_array((signed, (rows, columns)), (n, n))
        return np.asarray(self.points.T @ multiply_laplacian(W, self.points))


def _make_square_factor(M: Matrix) -> Matrix:
    """Return a square L with M = L'L. L has zero rows if M is singular."""
    L = psd_factor(M)
    return np.vstack([L, np.zeros((M.shape[1] - len(L), M.shape[1]))])
