"""The first part of a descent over wide maps: each step uses the gradient of a new sample.

A descent on a single sample fits the impostors of this sample and ignores all others, and more so
the wider the map is. A new sample per step gives an unbiased estimate of the full loss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.large_margin.descent_progress import Progress
from nearfar.large_margin.triplet_loss import Evaluation, compute_full_loss
from nearfar.large_margin.working_set import ListedMargin

# Number of centers and number of impostors per sample, tuned on generated embeddings.
CENTERS, IMPOSTORS = 1000, 1000
# Number of steps, tuned on generated embeddings.
STEPS = 160
# Step size, relative to the root mean square of the entries of the first map.
RATE = 0.2
# Decay rate of the moving average of the gradient.
DIRECTION_DECAY = 0.9
# Decay rate of the moving average of the squared length of the gradient.
LENGTH_DECAY = 0.98
# Minimum ratio of the loss of the initial map to the loss of the zero map at which the sampled
# descent is run.
GOOD_FRACTION = 0.01
# Squared factors of a diagonal map below this fraction of the largest are set to zero. Sampling
# noise gives factors of this size to irrelevant columns.
NEGLIGIBLE = 0.02
# Factors that are tried for the least informative rows of the initial map.
TAIL_FACTORS = (1.0, 0.3, 0.1)


class Sample(NamedTuple):
    """Sampled centers with their targets, and sampled impostors, which all have the same weight."""

    points: Floats
    codes: Indices
    targets: Indices
    among: Indices
    weight: float
    nearest: int | None
    n_centers: int


def draw_center_sample(problem: ListedMargin, seed: int) -> Sample:
    """Draw a random sample of the centers and impostors of a problem."""
    rng = np.random.default_rng(seed)
    n = len(problem.points)
    all_targets = problem.all_targets
    candidates = np.flatnonzero((all_targets >= 0).any(axis=1))
    centers = np.sort(rng.choice(candidates, min(CENTERS, len(candidates)), replace=False))
    impostors = np.sort(rng.choice(n, min(IMPOSTORS, n), replace=False))
    center_targets = all_targets[centers]
    rows = np.unique(np.concatenate([centers, impostors, center_targets[center_targets >= 0]]))
    position = np.full(n + 1, -1, dtype=np.intp)  # The last entry stands for a missing target.
    position[rows] = np.arange(len(rows))
    targets = np.full((len(rows), all_targets.shape[1]), -1, dtype=np.intp)
    targets[position[centers]] = position[center_targets]
    nearest, weight = None, n / len(impostors)
    if problem.nearest is not None:
        nearest = max(1, round(problem.nearest / weight))
        weight = problem.nearest / nearest
    return Sample(
        problem.working[rows],
        problem.codes[rows],
        targets,
        position[impostors],
        weight,
        nearest,
        len(centers),
    )


def compute_sampled_loss(problem: ListedMargin, sample: Sample, L: Matrix) -> Evaluation:
    """Return the loss over a sample."""
    return compute_full_loss(
        problem.map_points(L, sample.points),
        sample.codes,
        sample.targets,
        problem.push_weight,
        problem.smoothing,
        among=sample.among,
        weight=sample.weight,
        nearest=sample.nearest,
        n_threads=problem.n_threads,
        compiled=problem.compiled,
    )


def compute_sampled_fraction(problem: ListedMargin, L: Matrix) -> float:
    """Return the loss over a sample, divided by the loss of the zero map over the same sample."""
    sample = draw_center_sample(problem, 0)
    loss = compute_sampled_loss(problem, sample, L).loss
    return loss / max(compute_sampled_loss(problem, sample, np.zeros_like(L)).loss, 1e-300)


def damp_tail(problem: ListedMargin, L: Matrix) -> Matrix:
    """Return the initial map with all rows after the first ``n_classes - 1`` scaled down.

    The class means differ in at most ``n_classes - 1`` directions, so the other rows may be noise.
    The factor with the lowest loss over a sample is used.
    """
    n_informative = int(problem.codes.max())
    if L.ndim == 1 or len(L) <= n_informative:
        return problem.rescale(L)
    _, singular, axes = np.linalg.svd(L, full_matrices=False)
    rows = singular[:, None] * axes
    sample = draw_center_sample(problem, 0)
    best, lowest = L, np.inf
    for tail in TAIL_FACTORS:
        factors = np.where(np.arange(len(rows)) < n_informative, 1.0, tail)
        trial = problem.rescale(factors[:, None] * rows)
        loss = compute_sampled_loss(problem, sample, trial).loss
        if loss < lowest:
            best, lowest = trial, loss
    return best


def run_sampled_descent(problem: ListedMargin, progress: Progress, max_iter: int) -> None:
    """Move ``progress.L`` close to the minimum of the loss, by steps on random samples.

    A step is the moving average of the gradients, divided by the moving average of their lengths.
    All entries have the same divisor, so the descent does not depend on a rotation of the map.
    Steps become shorter in the second half.
    """
    n_centers = int((problem.all_targets >= 0).any(axis=1).sum())
    n_pairs = min(CENTERS, n_centers) * min(IMPOSTORS, len(problem.points))
    problem.compile_for(n_pairs * len(progress.L))
    start = problem.rescale(progress.L)
    if compute_sampled_fraction(problem, start) < GOOD_FRACTION:
        return
    progress.L = damp_tail(problem, progress.L)
    rate = RATE * float(np.sqrt(np.mean(progress.L**2)))
    direction, length = np.zeros_like(progress.L), 0.0
    for step in range(1, STEPS + 1):
        if progress.n_iter >= max_iter:
            return
        L = progress.L
        sample = draw_center_sample(problem, step)
        evaluation = compute_sampled_loss(problem, sample, L)
        slope = problem.compute_gradient(evaluation.laplacian_v, sample.points)
        direction = DIRECTION_DECAY * direction + (1 - DIRECTION_DECAY) * slope
        length = LENGTH_DECAY * length + (1 - LENGTH_DECAY) * float(np.mean(slope**2))
        mean = direction / (1 - DIRECTION_DECAY**step)
        size = np.sqrt(length / (1 - LENGTH_DECAY**step))
        if size == 0:  # All gradients were zero.
            return
        decay = min(1.0, 2 * (1 - (step - 1) / STEPS))
        full_loss = evaluation.loss * n_centers / sample.n_centers
        if progress.note(L - rate * decay * mean / size, full_loss, evaluation.n_active):
            return


def prune_factors(L: Vector) -> Vector:
    """Set small factors of a diagonal map to zero. The solver can restore them."""
    return np.where(NEGLIGIBLE * np.max(L**2) > L**2, 0.0, L)
