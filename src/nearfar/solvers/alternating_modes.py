"""A learner of vectors made one of tensors: all modes but one are held, and it learns that one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.tensor_algebra import best_rank_one, contract_except, rank_one, rank_one_gram

# Directions of the other modes' Gram matrix below this share of the largest depend on the others.
_DEPENDENT = 1e-12


class CPWeights(NamedTuple):
    r"""A weight tensor :math:`\sum_r s_r\, u_{1r} \otimes \cdots \otimes u_{Mr}`.

    Parameters
    ----------
    scales : ndarray of shape (R,)
        The s.
    factors : list of ndarray of shape (d_k, R)
        Columns of unit length, one matrix for each mode.
    """

    scales: Vector
    factors: list[Matrix]

    @property
    def rank(self) -> int:
        """Number of rank-one terms."""
        return len(self.scales)

    def tensor(self) -> Matrix:
        """The sum, of shape (d1, ..., dM)."""
        terms = [s * rank_one([U[:, r] for U in self.factors]) for r, s in enumerate(self.scales)]
        return np.asarray(sum(terms), dtype=np.float64)

    def inner(self, other: CPWeights) -> float:
        """The inner product with another sum."""
        return float(self.scales @ rank_one_gram(self.factors, other.factors) @ other.scales)

    def balanced(self) -> list[Matrix]:
        """Factors that hold the scales, those of a term of equal length in all modes."""
        lengths = np.abs(self.scales) ** (1 / len(self.factors))
        held = [U * lengths for U in self.factors]
        held[0] = held[0] * np.where(self.scales < 0, -1.0, 1.0)
        return held


def cp_weights(factors: Sequence[Matrix]) -> CPWeights:
    """Matrices of any lengths as unit columns and scales; columns of zeros stay zeros."""
    lengths = [np.linalg.norm(U, axis=0) for U in factors]
    units = [U / np.where(n > 0, n, 1.0) for U, n in zip(factors, lengths, strict=True)]
    return CPWeights(np.prod(lengths, axis=0), units)


class Alternation(NamedTuple):
    """Where alternation ended.

    Parameters
    ----------
    weights : CPWeights
        The weight tensor.
    plane : Hyperplane
        The last mode's: its intercept, objective and multipliers.
    objectives : list of float
        After every mode step.
    stages : list of (CPWeights, float)
        Weights and intercept after every sweep.
    steps : list of float
        The largest turn of a direction in every sweep.
    seconds : list of float
        Since the start, after every sweep.
    converged : bool
        Whether no direction moved any more.
    collapsed : bool
        Whether every mode of a sweep collapsed.
    interrupt : KeyboardInterrupt or None
        What ended it early, for the caller to raise; all else is that of the last whole sweep.
    """

    weights: CPWeights
    plane: Hyperplane
    objectives: list[float]
    stages: list[tuple[CPWeights, float]]
    steps: list[float]
    seconds: list[float]
    converged: bool
    collapsed: bool
    interrupt: KeyboardInterrupt | None = None

    @property
    def n_iter(self) -> int:
        """Sweeps."""
        return len(self.stages)


def alternate(
    X: Matrix,
    learn: VectorLearner,
    start: Sequence[Matrix],
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
    settled: bool = False,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> Alternation:
    r"""Learn one mode after the other with the others held, until no direction moves.

    With all other vectors of unit length the samples contracted with them are vectors like any
    others, and the criterion of the tensor is that of the vector learner: its objective never gets
    worse from step to step. Of a sum of R rank-one tensors, with G the elementwise product of the
    Gram matrices of the other factors, :math:`\|W\|^2 = \mathrm{tr}(U_j G U_j^T)`: the learner gets
    the contracted samples times :math:`G^{-1/2}`.

    Sweeps end when of every vector and the one before :math:`1 - |u^T v| \le` ``tol``; of sums of
    several terms, whose columns are not unique, the same of the whole tensors. A mode that
    collapses keeps its vector.

    Parameters
    ----------
    X : ndarray of shape (n, d1, ..., dM)
        Samples.
    learn : callable
        From the contracted samples (n, L) to a hyperplane.
    start : list of ndarray of shape (d_k, R)
        Columns of any length but zero; those of the first mode are learned first and not read.
    max_iter : int
        Most sweeps.
    tol : float
        Of the directions.
    settled : bool
        Whether the start comes from the same criterion, so that a first sweep that turns nothing,
        the first mode included, is the last.
    report : callable, optional
        Called after every sweep with what is known of it.

    Returns
    -------
    Alternation
        Ctrl-C ends it after one sweep at least; before, it is raised.
    """
    weights = cp_weights(start)
    weights = weights._replace(scales=np.ones(weights.rank))
    objectives: list[float] = []
    stages: list[tuple[CPWeights, float]] = []
    # Where a single mode is longer than 1 there is nothing to alternate with.
    at_once = weights.rank == 1 and sum(len(U) > 1 for U in weights.factors) <= 1
    plane = Hyperplane(np.zeros(0), 0.0, np.nan)
    steps, seconds, began = list[float](), list[float](), perf_counter()
    converged = collapsed = False
    whole, interrupt = (weights, plane), None
    try:
        while len(stages) < max_iter and not (converged or collapsed):
            before, alive = weights, False
            for mode in range(len(weights.factors)):
                found, new = _mode_step(X, learn, weights, mode)
                objectives.append(found.objective)
                if new is not None:
                    weights, plane, alive = new, found, True
            step = _moved(before, weights)
            collapsed = not alive
            converged = alive and (at_once or ((settled or len(stages) > 0) and step <= tol))
            whole = weights, plane if alive else found
            steps.append(step)
            seconds.append(perf_counter() - began)
            stages.append((weights, plane.b))
            if report is not None:
                report({"objective": objectives[-1], "step": step, "seconds": seconds[-1]})
    except KeyboardInterrupt as error:
        if not stages:
            raise
        interrupt = error
        del objectives[len(stages) * len(weights.factors) :]
    n = len(stages)
    return Alternation(
        *whole, objectives, stages, steps[:n], seconds[:n], converged, collapsed, interrupt
    )


def _mode_step(
    X: Matrix, learn: VectorLearner, weights: CPWeights, mode: int
) -> tuple[Hyperplane, CPWeights | None]:
    """What the learner says of a mode, and the weights with it; None if it collapsed."""
    root = inverse_root(other_gram(weights.factors, mode))
    Z = contracted(X, weights.factors, mode)
    Z = Z if root.shape == (1, 1) and abs(root[0, 0] - 1) < 1e-15 else Z @ root
    plane = learn(Z.reshape(len(X), -1))
    if plane.collapsed or not plane.w.any():
        return plane, None
    U = plane.w.reshape(-1, root.shape[1]) @ root.T
    lengths = np.linalg.norm(U, axis=0)
    # A term that is not needed keeps its direction, at scale zero.
    used = lengths > 0
    factors = list(weights.factors)
    factors[mode] = np.where(used, U / np.where(used, lengths, 1.0), factors[mode])
    return plane, CPWeights(lengths, factors)


def contracted(X: Matrix, factors: Sequence[Matrix], mode: int) -> Matrix:
    """Samples contracted with the terms in all modes but one, (n, d_mode, R)."""
    terms = [
        contract_except(X, [U[:, r] for U in factors], mode) for r in range(factors[0].shape[1])
    ]
    return np.asarray(terms[0][..., None] if len(terms) == 1 else np.stack(terms, axis=-1))


def other_gram(factors: Sequence[Matrix], mode: int) -> Matrix:
    """G (R, R): the elementwise product of the Gram matrices of all factors but one."""
    grams = [U.T @ U for k, U in enumerate(factors) if k != mode]
    ones = np.ones((factors[0].shape[1],) * 2)
    return np.asarray(reduce(np.multiply, grams, ones))


def inverse_root(G: Matrix) -> Matrix:
    """R (n, r) with R Rᵀ the pseudo-inverse of a positive semi-definite matrix of rank r."""
    if len(G) == 1:
        return np.asarray(1 / np.sqrt(G))
    values, vectors = np.linalg.eigh(G)
    kept = values > _DEPENDENT * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def _moved(before: CPWeights, after: CPWeights) -> float:
    """How far directions turned: the largest 1 - |cos|."""
    if after.rank == 1:
        cosines = [
            abs(float(U[:, 0] @ V[:, 0]))
            for U, V in zip(before.factors, after.factors, strict=True)
        ]
        return 1 - min(cosines)
    lengths = before.inner(before) * after.inner(after)
    return 1 - abs(before.inner(after)) / np.sqrt(lengths) if lengths > 0 else 1.0


# ---------------------------------------------------------------------- starts


def random_start(shape: Sequence[int], rank: int, random: np.random.RandomState) -> list[Matrix]:
    """Directions drawn evenly, independent in every mode and term."""
    factors = [random.standard_normal((d, rank)) for d in shape]
    return [U / np.linalg.norm(U, axis=0) for U in factors]


def rank_start(T: Matrix, rank: int, random: np.random.RandomState) -> list[Matrix]:
    """Factors of a tensor near T: of a matrix the leading singular vectors, else one by one.

    Where T has not so many terms the rest is random.
    """
    if T.ndim == 2:
        left, values, right = np.linalg.svd(T, full_matrices=False)
        n = min(rank, int((values > 1e-12 * max(values[0], np.finfo(float).tiny)).sum()))
        found = [left[:, :n], right[:n].T]
    else:
        terms: list[list[Vector]] = []
        rest, size = T.copy(), float(np.linalg.norm(T))
        while len(terms) < rank and np.linalg.norm(rest) > 1e-12 * size:
            weight, vectors = best_rank_one(rest, random_state=random)
            rest = rest - weight * rank_one(vectors)
            terms.append(vectors)
        found = [np.column_stack(vs) for vs in zip(*terms, strict=True)] if terms else []
    drawn = random_start(T.shape, rank, random)
    if not found:
        return drawn
    return [np.hstack([U, V[:, U.shape[1] :]]) for U, V in zip(found, drawn, strict=True)]
