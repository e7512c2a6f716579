"""The first part of a descent over wide maps: steps along gradients of samples, each drawn anew.

A descent that is led by one sample fits its impostors and lets all others in: the wider the map,
the worse. A new sample for each step is an honest estimate of the whole loss each time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.large_margin.descent_progress import Progress
from nearfar.large_margin.triplet_loss import Evaluation, compute_full_loss
from nearfar.large_margin.working_set import ListedMargin

# Centres and impostors of a sample, and steps. Tuned on generated embeddings.
CENTERS, IMPOSTORS, STEPS = 1000, 1000, 160
# A step over the root mean square of the first map, and how much of the past it remembers: of the
# direction, and of its length.
RATE, DIRECTION_DECAY, LENGTH_DECAY = 0.2, 0.9, 0.98
# A start with a loss of less than this share of that of no map at all is near enough.
GOOD_FRACTION = 0.01
# Squared factors of a diagonal map below this share of the largest are left out: samples leave so
# much to columns that tell nothing.
NEGLIGIBLE = 0.02
# Factors tried for the rows of a start that tell least.
TAIL_FACTORS = (1.0, 0.3, 0.1)


class Sample(NamedTuple):
    """Some centres with their targets, and some impostors, each for ``weight`` of them."""

    points: Floats
    codes: Indices
    targets: Indices
    among: Indices
    weight: float
    nearest: int | None
    n_centers: int


def draw_sample(problem: ListedMargin, seed: int) -> Sample:
    """A sample of a problem; every seed has its own."""
    rng = np.random.default_rng(seed)
    n = len(problem.points)
    all_targets = problem.all_targets
    candidates = np.flatnonzero((all_targets >= 0).any(axis=1))
    centers = np.sort(rng.choice(candidates, min(CENTERS, len(candidates)), replace=False))
    impostors = np.sort(rng.choice(n, min(IMPOSTORS, n), replace=False))
    center_targets = all_targets[centers]
    rows = np.unique(np.concatenate([centers, impostors, center_targets[center_targets >= 0]]))
    position = np.full(n + 1, -1, dtype=np.intp)  # the last is that of no target
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
    """The loss over a sample."""
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
    """The loss of a sample over that of the zero map, under which every hinge is 1."""
    sample = draw_sample(problem, 0)
    loss = compute_sampled_loss(problem, sample, L).loss
    return loss / max(compute_sampled_loss(problem, sample, np.zeros_like(L)).loss, 1e-300)


def damp_tail(problem: ListedMargin, L: Matrix) -> Matrix:
    """A start whose rows beyond one less than there are classes are scaled as suits the loss.

    Means of classes differ along no more; what else a start has is as large as noise may be.
    """
    n_informative = int(problem.codes.max())
    if L.ndim == 1 or len(L) <= n_informative:
        return problem.rescale(L)
    _, singular, axes = np.linalg.svd(L, full_matrices=False)
    rows = singular[:, None] * axes
    sample = draw_sample(problem, 0)
    best, lowest = L, np.inf
    for tail in TAIL_FACTORS:
        factors = np.where(np.arange(len(rows)) < n_informative, 1.0, tail)
        trial = problem.rescale(factors[:, None] * rows)
        loss = compute_sampled_loss(problem, sample, trial).loss
        if loss < lowest:
            best, lowest = trial, loss
    return best


def run_sampled_descent(problem: ListedMargin, progress: Progress, max_iter: int) -> None:
    """Bring ``progress`` near to where the whole loss is least.

    Steps have the length of a mean of past gradients over a mean of their lengths, one for all
    entries: the map may be turned without turning the steps. They shorten in the second half.
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
        sample = draw_sample(problem, step)
        evaluation = compute_sampled_loss(problem, sample, L)
        slope = problem.compute_gradient(evaluation.laplacian_v, sample.points)
        direction = DIRECTION_DECAY * direction + (1 - DIRECTION_DECAY) * slope
        length = LENGTH_DECAY * length + (1 - LENGTH_DECAY) * float(np.mean(slope**2))
        mean = direction / (1 - DIRECTION_DECAY**step)
        size = np.sqrt(length / (1 - LENGTH_DECAY**step))
        if size == 0:  # no hinge and no pull is left
            return
        decay = min(1.0, 2 * (1 - (step - 1) / STEPS))
        full_loss = evaluation.loss * n_centers / sample.n_centers
        if progress.note(L - rate * decay * mean / size, full_loss, evaluation.n_active):
            return


def prune_factors(L: Vector) -> Vector:
    """A diagonal map without its small factors: whether they are missed is seen at the end."""
    return np.where(NEGLIGIBLE * np.max(L**2) > L**2, 0.0, L)
