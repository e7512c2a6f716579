r"""Unfolding with equalities where lengths leave little freedom: on the face of what is feasible.

Lengths within a clique of points in few dimensions are those of a rigid body. Weights v of its
points with :math:`\sum_i v_i = 0` and :math:`\sum_i v_i x_i = 0` have :math:`v^T K v = 0` for every
feasible K, so that :math:`K v = 0`. With all these in the columns of N, feasible matrices are
:math:`K = B Z B^T`, B spanning what is orthogonal to N: no K is definite, multipliers grow without
bound, and solvers over all K creep. Over Z, often of a few rows only, the problem is a plain one,
and weights of edges prove its optimum by :math:`B^T L_w B \succeq \pm I`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, SuperLU, eigsh

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.solvers.eigen import whitener
from nearfar.solvers.symmetric_vectors import svec_of_squares
from nearfar.solvers.unfolding import (
    Edges,
    Face,
    Problem,
    Unfolding,
    UnfoldingInterrupted,
    symmetric_factor,
)
from nearfar.solvers.unfolding_interior import interior_point
from nearfar.solvers.unfolding_span import EMPTY, Spanned

# Of the mean of a point's squared weights: what is still zero.
_ZERO = 1e-13
# Rounds that free the face of what squares of N have lost.
_REFINEMENTS = 6
# Up to so many points all eigenvectors are found at once.
_DENSE = 1000
# Rows of Z, and equalities on them, that are worth it.
_MOST_ROWS = 600
_MOST_EDGES = 6000
# Equalities that follow from others to this precision are left out.
_IMPLIED = 1e-6


def unfold_on_face(
    problem: Problem,
    dependencies: sparse.csr_array,
    *,
    tol: float = 1e-7,
    max_iter: int = 100,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Unfolding | None:
    """Solve equalities over the face that N, the columns of ``dependencies``, leaves.

    None where there is nothing to leave out, or too much is left.
    """
    edges = problem.edges
    face = face_beside(edges, dependencies)
    if face is None:
        return None
    rows = edges.differences(face.basis)
    chosen = independent(rows, edges.squared)
    if chosen is None:
        return None
    small = Problem(Spanned.of(rows[chosen], edges.squared[chosen]), "equality", problem.objective)

    def of_points(found: Unfolding) -> Unfolding:
        weights = np.zeros(len(edges))
        weights[chosen] = found.weights
        weights = spread(rows, edges.squared, weights)
        return Unfolding(face.basis @ found.factor, weights, found.n_iter, found.history, face)

    try:
        return of_points(interior_point(small, tol=tol, max_iter=max_iter, report=report))
    except UnfoldingInterrupted as interrupt:
        raise UnfoldingInterrupted(of_points(interrupt.found)) from interrupt


def face_beside(edges: Edges, N: sparse.csr_array) -> Face | None:
    """Centred functions orthogonal to N; None where there are too many of them."""
    if not N.shape[1]:
        return None
    root = np.sqrt(edges.masses)
    scaled = N.multiply(1 / root[:, None]).tocsr()
    M = (scaled @ scaled.T).tocsc()
    zero = _ZERO * float(M.diagonal().mean())
    factor = symmetric_factor((M + zero * sparse.eye_array(M.shape[0], format="csc")).tocsc())
    vectors = _lowest(M, factor, zero)
    if vectors is None:
        return None
    # How far vectors are from zero is measured on N itself, which does not square it.
    sizes = np.linalg.norm(scaled.T @ vectors, axis=0)
    constant = root / np.linalg.norm(root)
    axes = vectors[:, sizes**2 < zero]
    for _ in range(_REFINEMENTS):
        axes = axes - factor.solve(np.asarray(scaled @ (scaled.T @ axes)))
        axes = axes - np.outer(constant, constant @ axes)
        if not axes.shape[1]:
            return None
        axes, lengths, _ = linalg.svd(axes, full_matrices=False)
        axes = axes[:, lengths > 0.5]
    if not 0 < axes.shape[1] <= _MOST_ROWS:
        return None
    off = float(np.linalg.norm(scaled.T @ axes)) + np.finfo(float).eps
    return Face(axes / root[:, None], off, factor)


def _lowest(M: sparse.csc_array, factor: SuperLU, zero: float) -> Matrix | None:
    """Eigenvectors to beyond the last value of zero; None where they are too many."""
    n = M.shape[0]
    if n <= _DENSE:
        return np.asarray(linalg.eigh(M.toarray())[1])
    invert = LinearOperator((n, n), matvec=factor.solve, dtype=np.float64)
    start = np.random.RandomState(0).standard_normal(n)
    count = 16
    while count <= min(2 * _MOST_ROWS, n // 2):
        values, vectors = eigsh(M, k=count, sigma=-zero, OPinv=invert, v0=start)
        if values.max() > 10 * zero:
            return np.asarray(vectors)
        count *= 2
    return None


def independent(rows: Matrix, squared: Vector) -> Indices | None:
    """Equalities on Z that imply all others; None where they are too many."""
    q = rows / np.sqrt(squared)[:, None]
    q = q @ whitener(q.T @ q, EMPTY)  # functions of few points count as much as those of many
    m = q.shape[1]
    if m * (m + 1) // 2 <= len(q):
        _, R, order = linalg.qr(svec_of_squares(q).T, mode="economic", pivoting=True)
        sizes = np.abs(np.diag(R))
        return np.sort(order[: len(sizes)][sizes > _IMPLIED * sizes[0]])
    if len(q) > _MOST_EDGES:
        return None
    _, order, rank, _ = linalg.lapack.dpstrf((q @ q.T) ** 2, tol=_IMPLIED**2, lower=1)
    return np.sort(order[:rank] - 1)


def spread(rows: Matrix, squared: Vector, weights: Vector) -> Vector:
    r"""The least weights of all edges with the same moment :math:`\sum_e w_e q_e q_e^T`.

    They prove the same: lengths on the face, and so :math:`w^T D`, depend on the moment alone.
    Small ones suffer less from rounding. Where the moment has more entries than there are edges,
    they stay as they are.
    """
    q = rows / np.sqrt(squared)[:, None]
    q = q @ whitener(q.T @ q, EMPTY)
    m = q.shape[1]
    if m * (m + 1) // 2 > len(q):
        return weights
    A = svec_of_squares(q).T
    return np.asarray(linalg.lstsq(A, A @ (weights * squared), cond=_IMPLIED)[0] / squared)
