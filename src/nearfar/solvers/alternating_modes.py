"""Tensor classifiers from vector classifiers, by alternation over the modes.

Each step fits a vector classifier in one mode, while the factors of all other modes are fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from nearfar.arrays import Matrix, Vector
from nearfar.solvers.hyperplanes import Hyperplane, VectorLearner
from nearfar.solvers.tensor_algebra import best_rank_one, contract_except, rank_one, rank_one_gram

# Eigenvalues of a Gram matrix are treated as zero below this fraction of the largest eigenvalue.
_DEPENDENCE_RTOL = 1e-12


class CPWeights(NamedTuple):
    r"""Weight tensor with R rank-one terms.

    The tensor is :math:`\sum_r s_r\, u_{1r} \otimes \cdots \otimes u_{Mr}`.

    Parameters
    ----------
    scales : ndarray of shape (R,)
        Scales :math:`s_r` of the terms.
    factors : list of ndarray of shape (d_k, R)
        One matrix per mode. Its columns are the unit vectors :math:`u_{kr}`.
    """

    scales: Vector
    factors: list[Matrix]

    @property
    def rank(self) -> int:
        """Number of rank-one terms."""
        return len(self.scales)

    def tensor(self) -> Matrix:
        """Return the weight tensor, of shape (d1, ..., dM)."""
        terms = [s * rank_one([U[:, r] for U in self.factors]) for r, s in enumerate(self.scales)]
        return np.asarray(sum(terms), dtype=np.float64)

    def inner(self, other: CPWeights) -> float:
        """Return the inner product with another weight tensor."""
        return float(self.scales @ rank_one_gram(self.factors, other.factors) @ other.scales)

    def balance_factors(self) -> list[Matrix]:
        """Return factors that include the scales, distributed equally over the modes.

        The sign of a negative scale is applied to the first mode.
        """
        lengths = np.abs(self.scales) ** (1 / len(self.factors))
        factors = [U * lengths for U in self.factors]
        factors[0] = factors[0] * np.where(self.scales < 0, -1.0, 1.0)
        return factors


def make_cp_weights(factors: Sequence[Matrix]) -> CPWeights:
    """Split factors with columns of any length into unit columns and scales.

    Columns of zeros are left unchanged.
    """
    lengths = [np.linalg.norm(U, axis=0) for U in factors]
    units = [U / np.where(n > 0, n, 1.0) for U, n in zip(factors, lengths, strict=True)]
    return CPWeights(np.prod(lengths, axis=0), units)


class Alternation(NamedTuple):
    """Result of :func:`alternate`.

    Parameters
    ----------
    weights : CPWeights
        Learned weight tensor.
    plane : Hyperplane
        Hyperplane of the last mode, with the intercept, objective and multipliers.
    objectives : list of float
        Objective after every mode step.
    stages : list of (CPWeights, float)
        Weights and intercept after every sweep.
    steps : list of float
        Largest change of a direction in every sweep, as 1 - abs(cos).
    seconds : list of float
        Seconds since the start, after every sweep.
    converged : bool
        True if the directions changed by at most the tolerance.
    collapsed : bool
        True if every mode collapsed in a sweep.
    interrupt : KeyboardInterrupt or None
        Interrupt that ended the alternation. The caller raises it. The other fields then describe
        the last complete sweep.
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
        """Number of sweeps over the modes."""
        return len(self.stages)


def alternate(
    X: Matrix,
    learn: VectorLearner,
    start: Sequence[Matrix],
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
    start_is_converged: bool = False,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> Alternation:
    r"""Update one mode after the other, with all other modes fixed, until no direction changes.

    If the vectors of all other modes have unit length, the samples contracted with them are
    ordinary vectors, and the criterion of the weight tensor equals that of the vector learner.
    Therefore no step makes the objective worse. For a sum of R rank-one terms, let G be the
    elementwise product of the Gram matrices of the other factors. Then
    :math:`\|W\|^2 = \mathrm{tr}(U_j G U_j^T)`, and the learner receives the contracted samples
    times :math:`G^{-1/2}`.

    The alternation stops when :math:`1 - |u^T v| \le` ``tol`` for the vectors u and v of every mode
    before and after a sweep. The columns of a sum of several terms are not unique, so in that case
    the cosine of the two weight tensors is used instead. A mode that collapses keeps its vector.

    Parameters
    ----------
    X : ndarray of shape (n, d1, ..., dM)
        Samples.
    learn : callable
        Function that maps the contracted samples (n, L) to a hyperplane.
    start : list of ndarray of shape (d_k, R)
        Initial factors, with columns of any length except zero. The initial factor of the first
        mode is not used, because this mode is learned first.
    max_iter : int
        Maximum number of sweeps.
    tol : float
        Tolerance of the directions, as :math:`1 - |\cos|`.
    start_is_converged : bool
        True if the start is an optimum of the same criterion. The alternation then stops after the
        first sweep if no direction changed, including the direction of the first mode.
    report : callable, optional
        Called after every sweep with a dict of the objective, the step and the seconds.

    Returns
    -------
    Alternation
        Result. After Ctrl-C it describes the last complete sweep. Without a complete sweep, the
        KeyboardInterrupt is raised.
    """
    weights = make_cp_weights(start)
    weights = weights._replace(scales=np.ones(weights.rank))
    objectives: list[float] = []
    stages: list[tuple[CPWeights, float]] = []
    # If at most one mode has more than one entry, a single sweep finds the optimum.
    needs_one_sweep = weights.rank == 1 and sum(len(U) > 1 for U in weights.factors) <= 1
    plane = Hyperplane(np.zeros(0), 0.0, np.nan)
    steps, seconds, start_time = list[float](), list[float](), perf_counter()
    converged = collapsed = False
    result, interrupt = (weights, plane), None
    try:
        while len(stages) < max_iter and not (converged or collapsed):
            previous, has_learned = weights, False
            for mode in range(len(weights.factors)):
                mode_plane, new_weights = _update_mode(X, learn, weights, mode)
                objectives.append(mode_plane.objective)
                if new_weights is not None:
                    weights, plane, has_learned = new_weights, mode_plane, True
            step = _measure_turn(previous, weights)
            collapsed = not has_learned
            converged = has_learned and (
                needs_one_sweep or ((start_is_converged or len(stages) > 0) and step <= tol)
            )
            result = weights, plane if has_learned else mode_plane
            steps.append(step)
            seconds.append(perf_counter() - start_time)
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
        *result, objectives, stages, steps[:n], seconds[:n], converged, collapsed, interrupt
    )


def _update_mode(
    X: Matrix, learn: VectorLearner, weights: CPWeights, mode: int
) -> tuple[Hyperplane, CPWeights | None]:
    """Return the learned hyperplane of a mode and the new weights.

    The weights are None if the hyperplane collapsed.
    """
    root = compute_inverse_root(compute_other_gram(weights.factors, mode))
    Z = contract_terms(X, weights.factors, mode)
    Z = Z if root.shape == (1, 1) and abs(root[0, 0] - 1) < 1e-15 else Z @ root
    plane = learn(Z.reshape(len(X), -1))
    if plane.collapsed or not plane.w.any():
        return plane, None
    U = plane.w.reshape(-1, root.shape[1]) @ root.T
    lengths = np.linalg.norm(U, axis=0)
    # A term whose scale becomes zero keeps its direction.
    is_used = lengths > 0
    factors = list(weights.factors)
    factors[mode] = np.where(is_used, U / np.where(is_used, lengths, 1.0), factors[mode])
    return plane, CPWeights(lengths, factors)


def contract_terms(X: Matrix, factors: Sequence[Matrix], mode: int) -> Matrix:
    """Contract the samples with each term in all modes except one.

    The result has shape (n, d_mode, R).
    """
    terms = [
        contract_except(X, [U[:, r] for U in factors], mode) for r in range(factors[0].shape[1])
    ]
    return np.asarray(terms[0][..., None] if len(terms) == 1 else np.stack(terms, axis=-1))


def compute_other_gram(factors: Sequence[Matrix], mode: int) -> Matrix:
    """Multiply the Gram matrices of all factors except one elementwise.

    The result has shape (R, R).
    """
    grams = [U.T @ U for k, U in enumerate(factors) if k != mode]
    ones = np.ones((factors[0].shape[1],) * 2)
    return np.asarray(reduce(np.multiply, grams, ones))


def compute_inverse_root(G: Matrix) -> Matrix:
    """Return R, of shape (n, r), with R Rᵀ the pseudo-inverse of a PSD matrix G of rank r."""
    if len(G) == 1:
        return np.asarray(1 / np.sqrt(G))
    values, vectors = np.linalg.eigh(G)
    mask = values > _DEPENDENCE_RTOL * values[-1]
    return np.asarray(vectors[:, mask] / np.sqrt(values[mask]))


def _measure_turn(before: CPWeights, after: CPWeights) -> float:
    """Return the change of the directions in a sweep, as 1 - |cos|.

    With one term, this is the largest change of a mode. With several terms, it is the change of the
    weight tensor.
    """
    if after.rank == 1:
        cosines = [
            abs(float(U[:, 0] @ V[:, 0]))
            for U, V in zip(before.factors, after.factors, strict=True)
        ]
        return 1 - min(cosines)
    lengths = before.inner(before) * after.inner(after)
    return 1 - abs(before.inner(after)) / np.sqrt(lengths) if lengths > 0 else 1.0


def draw_random_start(
    shape: Sequence[int], rank: int, random: np.random.RandomState
) -> list[Matrix]:
    """Draw factors whose columns are independent unit vectors with uniformly random directions."""
    factors = [random.standard_normal((d, rank)) for d in shape]
    return [U / np.linalg.norm(U, axis=0) for U in factors]


def find_low_rank_start(T: Matrix, rank: int, random: np.random.RandomState) -> list[Matrix]:
    """Return the factors of a low-rank approximation of T, as a start for :func:`alternate`.

    For a matrix these are the leading singular vectors. For more modes, rank-one terms are fitted
    to the residual one after the other. If fewer than ``rank`` terms reproduce T, the other columns
    are random.
    """
    if T.ndim == 2:
        left, values, right = np.linalg.svd(T, full_matrices=False)
        n = min(rank, int((values > 1e-12 * max(values[0], np.finfo(float).tiny)).sum()))
        start_factors = [left[:, :n], right[:n].T]
    else:
        terms: list[list[Vector]] = []
        residual, size = T.copy(), float(np.linalg.norm(T))
        while len(terms) < rank and np.linalg.norm(residual) > 1e-12 * size:
            weight, vectors = best_rank_one(residual, random_state=random)
            residual = residual - weight * rank_one(vectors)
            terms.append(vectors)
        start_factors = [np.column_stack(vs) for vs in zip(*terms, strict=True)] if terms else []
    random_columns = draw_random_start(T.shape, rank, random)
    if not start_factors:
        return random_columns
    return [
        np.hstack([U, V[:, U.shape[1] :]])
        for U, V in zip(start_factors, random_columns, strict=True)
    ]
