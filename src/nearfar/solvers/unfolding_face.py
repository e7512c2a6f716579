r"""Unfolding with equalities that leave little freedom: optimization on the feasible face.

The lengths within a clique of points in few dimensions make it a rigid body. Weights v of its
points with :math:`\sum_i v_i = 0` and :math:`\sum_i v_i x_i = 0` have :math:`v^T K v = 0` for every
feasible K, so that :math:`K v = 0`. Let the columns of N be all these weights. Feasible matrices
are :math:`K = B Z B^T`, where B spans the orthogonal complement of N. Then no K is definite,
multipliers are unbounded, and solvers over all K converge slowly. Over Z, which often has only a
few rows, the problem is regular, and edge weights certify its optimum by
:math:`B^T L_w B \succeq \pm I`.
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
from nearfar.solvers.unfolding_interior import solve_by_interior_point
from nearfar.solvers.unfolding_span import EMPTY, SpannedEdges

# Fraction of the mean diagonal of N N' below which an eigenvalue of N N' is treated as zero.
_ZERO = 1e-13
# Number of refinement steps for the face. Computing N N' loses accuracy, and these steps restore
# it.
_REFINEMENTS = 6
# Maximum number of points for which all eigenvectors are computed.
_DENSE = 1000
# Maximum number of rows of Z for which this method is used.
_MAX_ROWS = 600
# Maximum number of equalities for which this method is used.
_MAX_EDGES = 6000
# Maximum relative error at which an equality counts as implied by the other equalities. Implied
# equalities are dropped.
_IMPLIED = 1e-6


def unfold_on_face(
    problem: Problem,
    dependencies: sparse.csr_array,
    *,
    tol: float = 1e-7,
    max_iter: int = 100,
    report: Callable[[dict[str, float]], None] | None = None,
) -> Unfolding | None:
    """Solve the unfolding problem with equalities on the feasible face, if the face is small.

    The face is the orthogonal complement of the columns of ``dependencies``, the matrix N of the
    module's description. Returns None if N has no columns, or if the face is too large.
    """
    edges = problem.edges
    face = find_face(edges, dependencies)
    if face is None:
        return None
    rows = edges.differences(face.basis)
    selected = select_independent(rows, edges.squared)
    if selected is None:
        return None
    small = Problem(
        SpannedEdges.from_rows(rows[selected], edges.squared[selected]),
        "equality",
        problem.objective,
    )

    def expand_to_points(solution: Unfolding) -> Unfolding:
        weights = np.zeros(len(edges))
        weights[selected] = solution.weights
        weights = minimize_weights(rows, edges.squared, weights)
        return Unfolding(
            face.basis @ solution.factor, weights, solution.n_iter, solution.history, face
        )

    try:
        return expand_to_points(
            solve_by_interior_point(small, tol=tol, max_iter=max_iter, report=report)
        )
    except UnfoldingInterrupted as interrupt:
        raise UnfoldingInterrupted(expand_to_points(interrupt.result)) from interrupt


def find_face(edges: Edges, N: sparse.csr_array) -> Face | None:
    """Return the centered functions that are orthogonal to the columns of N, or None.

    Returns None if no such function exists, or too many do.
    """
    if not N.shape[1]:
        return None
    root = np.sqrt(edges.masses)
    scaled = N.multiply(1 / root[:, None]).tocsr()
    M = (scaled @ scaled.T).tocsc()
    zero = _ZERO * float(M.diagonal().mean())
    factor = symmetric_factor((M + zero * sparse.eye_array(M.shape[0], format="csc")).tocsc())
    vectors = _find_lowest_vectors(M, factor, zero)
    if vectors is None:
        return None
    # Measure the distance of vectors from the null space with N itself, because N N' is less
    # accurate.
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
    if not 0 < axes.shape[1] <= _MAX_ROWS:
        return None
    deviation = float(np.linalg.norm(scaled.T @ axes)) + np.finfo(float).eps
    return Face(axes / root[:, None], deviation, factor)


def _find_lowest_vectors(M: sparse.csc_array, factor: SuperLU, zero: float) -> Matrix | None:
    """Return all eigenvectors with eigenvalue zero, and at least one other eigenvector.

    Return None if there are too many.
    """
    n = M.shape[0]
    if n <= _DENSE:
        return np.asarray(linalg.eigh(M.toarray())[1])
    invert = LinearOperator((n, n), matvec=factor.solve, dtype=np.float64)
    start = np.random.RandomState(0).standard_normal(n)
    count = 16
    while count <= min(2 * _MAX_ROWS, n // 2):
        values, vectors = eigsh(M, k=count, sigma=-zero, OPinv=invert, v0=start)
        if values.max() > 10 * zero:
            return np.asarray(vectors)
        count *= 2
    return None


def select_independent(rows: Matrix, squared: Vector) -> Indices | None:
    """Return indices of edges whose equalities imply all other equalities.

    Return None if there are too many.
    """
    q = rows / np.sqrt(squared)[:, None]
    # Give equal weight to functions of few points and functions of many points.
    q = q @ whitener(q.T @ q, EMPTY)
    m = q.shape[1]
    if m * (m + 1) // 2 <= len(q):
        _, R, order = linalg.qr(svec_of_squares(q).T, mode="economic", pivoting=True)
        sizes = np.abs(np.diag(R))
        return np.sort(order[: len(sizes)][sizes > _IMPLIED * sizes[0]])
    if len(q) > _MAX_EDGES:
        return None
    _, order, rank, _ = linalg.lapack.dpstrf((q @ q.T) ** 2, tol=_IMPLIED**2, lower=1)
    return np.sort(order[:rank] - 1)


def minimize_weights(rows: Matrix, squared: Vector, weights: Vector) -> Vector:
    r"""Return the edge weights of least norm with the same moment :math:`\sum_e w_e q_e q_e^T`.

    They certify the same bound, since lengths on the face, and thus :math:`w^T D`, depend on the
    moment alone. Small weights suffer less from rounding. If the moment has more entries than there
    are edges, the weights are returned as they are.
    """
    q = rows / np.sqrt(squared)[:, None]
    q = q @ whitener(q.T @ q, EMPTY)
    m = q.shape[1]
    if m * (m + 1) // 2 > len(q):
        return weights
    A = svec_of_squares(q).T
    return np.asarray(linalg.lstsq(A, A @ (weights * squared), cond=_IMPLIED)[0] / squared)
