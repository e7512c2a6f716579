r"""The unfolding problem on a graph of known edge lengths, its dual bound and its repair.

Given pairs of points with squared lengths :math:`D_e`, find the Gram matrix

.. math::
    \max_K \; \pm\mathrm{tr} K - \text{slack}(\xi), \qquad K \succeq 0, \; K \text{ centered},
    \qquad K_{ii} - 2 K_{ij} + K_{jj} = D_e + \xi_e ,

where the kind of constraint determines which :math:`\xi` are allowed and what they cost. Contents:

* :class:`Edges`: the pairs, their incidence matrix, the Laplacian of edge weights, and lengths in
  an embedding; ``merged()`` merges points at distance zero into one point of larger mass;
* :class:`Problem`: edges, kind of constraint, direction, price of slack; value and residual of a
  factor Y of :math:`K = Y Y^T`;
* :func:`laplacian_eigenpairs` of the Laplacian of edge weights, :func:`laplacian_basis` of the
  unweighted graph, :func:`rotate_to_axes` for the principal axes of a factor;
* :func:`dual_bound`: a bound on the objective of any K, from any edge weights;
* :func:`repair_factor`: a feasible factor close to a given one.

The solvers are in ``unfolding_interior`` (small problems, n×n matrices) and ``unfolding_low_rank``.
``unfolding_certificate`` certifies their results.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, SuperLU, eigsh, splu

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.solvers.eigen import fix_signs, partial_eigh

Constraints = Literal["equality", "inequality", "l1", "squared"]
Direction = Literal["max", "min"]

# Maximum number of points for which a dense eigensolver is as fast as a sparse one.
_DENSE = 200


class _SparsityPattern(NamedTuple):
    """Positions of the entries for points, edges and reversed edges in a sparse matrix (CSC)."""

    positions: Indices
    indices: NDArray[np.int32]
    indptr: NDArray[np.int32]


@dataclass(frozen=True)
class Edges:
    r"""Edges of a graph: pairs of points, and the squared length D of each edge.

    In each pair ``first < second``. Pairs are sorted and distinct. ``masses`` are the numbers of
    points that each point represents, by default 1. "Trace" and "centered" are weighted by them:
    :math:`\sum_i c_i \|y_i\|^2` and :math:`\sum_i c_i y_i = 0`.
    """

    n_points: int
    first: Indices
    second: Indices
    squared: Vector
    masses: Vector = field(default_factory=lambda: np.ones(0))

    def __post_init__(self) -> None:
        if not len(self.masses):
            object.__setattr__(self, "masses", np.ones(self.n_points))

    @classmethod
    def from_pairs(cls, pairs: ArrayLike, squared: ArrayLike, n_points: int) -> Edges:
        """Create edges from pairs in any order. For repeated pairs, the shortest length is used."""
        ends = np.sort(np.asarray(pairs, np.intp).reshape(-1, 2), axis=1)
        lengths = np.asarray(squared, np.float64)
        keep = ends[:, 0] < ends[:, 1]
        ends, lengths = ends[keep], lengths[keep]
        codes, groups = np.unique(ends[:, 0] * n_points + ends[:, 1], return_inverse=True)
        shortest = np.full(len(codes), np.inf)
        np.minimum.at(shortest, groups.reshape(-1), lengths)
        return cls(n_points, *np.divmod(codes, n_points), shortest)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def dimension(self) -> int:
        """Maximum rank of a centered factor."""
        return self.n_points - 1

    @property
    def pairs(self) -> Indices:
        """Edges as an array of shape (n_edges, 2)."""
        return np.column_stack([self.first, self.second])

    @cached_property
    def incidence(self) -> sparse.csr_array:
        """Incidence matrix U (n_edges, n_points) with rows :math:`e_i - e_j`."""
        m = len(self)
        columns = np.column_stack([self.first, self.second]).ravel()
        signs = np.tile([1.0, -1.0], m)
        return sparse.csr_array((signs, columns, 2 * np.arange(m + 1)), shape=(m, self.n_points))

    def differences(self, Y: Matrix) -> Matrix:
        """Return the difference :math:`y_i - y_j` of the end points of each edge."""
        return np.asarray(Y[self.first] - Y[self.second])

    def squared_lengths(self, Y: Matrix) -> Vector:
        r"""Return the squared length :math:`\|y_i - y_j\|^2` of each edge."""
        delta = self.differences(Y)
        return np.einsum("er,er->e", delta, delta)

    def laplacian(self, weights: Vector, diagonal: Vector | float = 0.0) -> sparse.csc_array:
        r"""Return the Laplacian :math:`\sum_e w_e (e_i - e_j)(e_i - e_j)^T` plus a diagonal."""
        n, pattern = self.n_points, self._pattern
        degrees = np.bincount(self.first, weights, n) + np.bincount(self.second, weights, n)
        entries = np.empty(n + 2 * len(self))
        entries[pattern.positions] = np.concatenate([degrees + diagonal, -weights, -weights])
        return sparse.csc_array((entries, pattern.indices, pattern.indptr), shape=(n, n))

    @cached_property
    def _pattern(self) -> _SparsityPattern:
        """Sparsity pattern of the Laplacian. It is cached, because all weights share it."""
        diagonal = np.arange(self.n_points)
        rows = np.concatenate([diagonal, self.first, self.second])
        columns = np.concatenate([diagonal, self.second, self.first])
        order = np.lexsort((rows, columns))
        indptr = np.searchsorted(columns[order], np.arange(self.n_points + 1))
        positions = np.empty_like(order)
        positions[order] = np.arange(len(order))
        return _SparsityPattern(positions, rows[order].astype(np.int32), indptr.astype(np.int32))

    def eigenpairs(self, weights: Vector, count: int) -> tuple[Vector, Matrix]:
        """Return the smallest eigenpairs of the Laplacian; see :func:`laplacian_eigenpairs`."""
        return laplacian_eigenpairs(self, weights, count)

    def components(self) -> tuple[int, NDArray[np.int32]]:
        """Return the number of connected components, and the component of each point."""
        ones = np.ones(len(self))
        graph = sparse.coo_array((ones, (self.first, self.second)), shape=(self.n_points,) * 2)
        count, labels = csgraph.connected_components(graph.tocsr(), directed=False)
        return int(count), labels

    def centered(self, Y: Matrix) -> Matrix:
        """Return Y with its center of mass at the origin."""
        return np.asarray(Y - (self.masses @ Y) / self.masses.sum())

    def trace(self, Y: Matrix) -> float:
        """Return the trace of :math:`K = Y Y^T`, weighted by the masses, for a centered Y."""
        return float(self.masses @ np.einsum("ir,ir->i", Y, Y))

    def scaled(self, factor: float) -> Edges:
        """Return the same edges, with squared lengths multiplied by a factor."""
        return replace(self, squared=self.squared * factor)

    def merged(self, tolerance: float = 0.0) -> tuple[Edges, Indices]:
        """Merge points that are joined by edges of zero length.

        Also return the new index of each point.

        Squared lengths up to ``tolerance`` count as zero. If several edges then join the same two
        points, the shortest is kept.
        """
        short = self.squared <= tolerance
        if not short.any():
            return self, np.arange(self.n_points)
        ends = self.first[short], self.second[short]
        graph = sparse.coo_array((np.ones(len(ends[0])), ends), shape=(self.n_points,) * 2)
        count, groups = csgraph.connected_components(graph.tocsr(), directed=False)
        pairs = groups[self.pairs[~short]].astype(np.intp)
        merged = Edges.from_pairs(pairs, self.squared[~short], int(count))
        masses = np.bincount(groups, weights=self.masses, minlength=int(count)).astype(np.float64)
        return replace(merged, masses=masses), groups.astype(np.intp)


@dataclass(frozen=True)
class Problem:
    r"""Problem: maximize :math:`\pm\mathrm{tr} K` of a Gram matrix K, minus the cost of slack.

    Solvers expect connected edges with squared lengths of mean 1, none of them 0. "inequality"
    allows :math:`\xi \le 0` at no cost. "equality" allows no slack. "l1" and "squared" allow any
    slack at the price :math:`c \sum_e |\xi_e|` or :math:`c \sum_e \xi_e^2`, with c = ω / (1 - ω).
    """

    edges: Edges
    constraints: Constraints = "inequality"
    objective: Direction = "max"
    price: float = 1.0

    @property
    def sign(self) -> float:
        """Sign of the objective: 1 to maximize the trace, -1 to minimize it."""
        return 1.0 if self.objective == "max" else -1.0

    @property
    def is_soft(self) -> bool:
        """Whether the constraints may be violated at a cost."""
        return self.constraints in ("l1", "squared")

    def value(self, Y: Matrix) -> float:
        """Return the objective of a centered factor. Violations of hard constraints are ignored."""
        trace = self.sign * self.edges.trace(Y)
        if not self.is_soft:
            return trace
        slack = self.edges.squared_lengths(Y) - self.edges.squared
        cost = np.abs(slack).sum() if self.constraints == "l1" else slack @ slack
        return trace - self.price * float(cost)

    def residual(self, Y: Matrix) -> float:
        """Return the largest relative violation of an edge constraint, or the largest slack."""
        over = self.edges.squared_lengths(Y) / self.edges.squared - 1
        if self.constraints == "inequality":
            return float(np.maximum(over, 0).max(initial=0.0))
        return float(np.abs(over).max(initial=0.0))


class Face(NamedTuple):
    """Functions on the points that span all feasible factors.

    They are orthonormal with respect to the masses.

    After multiplication by the square roots of the masses, they are orthogonal to the columns of N,
    the null vectors of all feasible K, up to ``deviation``. ``null_factor`` is a factorization of
    N N'.
    """

    basis: Matrix
    deviation: float
    null_factor: SuperLU

    def bound_error(self, edges: Edges, weights: Vector) -> float:
        """Return an upper bound on the change of the eigenvalues due to errors of the basis."""
        root = np.sqrt(edges.masses)[:, None]
        axes = root * self.basis
        pull = edges.incidence.T @ (weights[:, None] * edges.differences(self.basis)) / root
        pull = pull - axes @ (axes.T @ pull)
        return (
            2
            * self.deviation
            * float(np.sqrt(max(np.sum(pull * self.null_factor.solve(pull)), 0.0)))
        )


class Unfolding(NamedTuple):
    """Result of a solver: a factor, the edge weights that give a bound, and the history.

    If there is a ``face``, the weights are valid only on it.
    """

    factor: Matrix
    weights: Vector
    n_iter: int
    history: dict[str, list[float]]
    face: Face | None = None


class UnfoldingInterrupted(KeyboardInterrupt):
    """KeyboardInterrupt in a solver. ``result`` contains the best result so far."""

    def __init__(self, result: Unfolding) -> None:
        super().__init__("interrupted; the best unfolding so far is returned")
        self.result = result


def compute_min_price(edges: Edges) -> float:
    r"""Return the minimum price of L1 slack, :math:`1 / \lambda_2(L)`.

    Below it, the problem is unbounded.

    With a lower price, K can grow without limit along the Fiedler vector of the unweighted graph.
    """
    values, _ = laplacian_eigenpairs(edges, np.ones(len(edges)), 1)
    return 1.0 / float(values[0])


#: Change of a slack and of its multiplier in one step.
Move = tuple[Vector, Vector]


@dataclass
class Slack:
    """Nonnegative slack s of each edge, which adds ``sign · s`` to its squared length.

    Its multiplier is ``z``, with the dual constraint ``z = sign · w + price``.
    """

    sign: float
    price: float
    s: Vector
    z: Vector

    def excess(self, w: Vector) -> Vector:
        """Return the residual of the dual constraint."""
        return self.z - self.sign * w - self.price

    def direction(self, aim: float, correction: Vector, excess: Vector, dw: Vector) -> Move:
        """Return the Newton steps of slack and multiplier that move their product to ``aim``.

        The step ``dw`` of the edge weights is given.
        """
        dz = self.sign * dw - excess
        return (aim - correction - self.s * dz) / self.z - self.s, dz

    def advance(self, primal: float, dual: float, move: Move) -> None:
        """Move the slack and its multiplier by fractions of a step."""
        self.s, self.z = self.s + primal * move[0], self.z + dual * move[1]


def laplacian_eigenpairs(edges: Edges, weights: Vector, count: int) -> tuple[Vector, Matrix]:
    r"""Return the smallest eigenpairs of a weighted Laplacian, without the constant vector.

    They solve :math:`L_w v = \lambda C v`, where C is the diagonal matrix of masses. Vectors are
    columns, orthonormal with respect to C. Weights may be negative. The shift of the solver is then
    below all eigenvalues, as the signs of pivots show.
    """
    n = edges.n_points
    count = min(count, n - 1)
    root = np.sqrt(edges.masses)
    scaling = sparse.dia_array((1 / root[None, :], [0]), shape=(n, n))
    L = (scaling @ edges.laplacian(weights) @ scaling).tocsc()
    constant = root / np.linalg.norm(root)
    if n <= max(_DENSE, 4 * count):
        # Shift the constant vector to the other end of the spectrum.
        shift = 2 * float(np.abs(L).sum(axis=0).max()) + 1.0
        dense = L.toarray() + shift * np.outer(constant, constant)
        values, vectors = partial_eigh(dense, 0, count - 1)
        return values, vectors / root[:, None]
    lowest, factor = _factor_below(L)
    invert = LinearOperator((n, n), matvec=factor.solve, dtype=np.float64)
    start = np.random.RandomState(0).standard_normal(n)
    options: dict[str, Any] = {"sigma": lowest, "OPinv": invert, "v0": start, "tol": 1e-8}
    try:
        values, vectors = eigsh(L, k=count + 1, ncv=max(2 * count + 2, 40), **options)
    except ArpackNoConvergence:
        n_vectors = min(n, 4 * count + 80)
        values, vectors = eigsh(L, k=count + 1, ncv=n_vectors, maxiter=50 * n, **options)
    # Remove the constant vector from the computed subspace, and diagonalize L on the remaining
    # subspace.
    vectors -= np.outer(constant, constant @ vectors)
    axes, sizes, _ = linalg.svd(vectors, full_matrices=False)
    axes = axes[:, sizes > 0.5]
    values, rotation = linalg.eigh(axes.T @ (L @ axes))
    return values[:count], (axes @ rotation[:, :count]) / root[:, None]


def _factor_below(L: sparse.csc_array) -> tuple[float, SuperLU]:
    """Return a shift below all eigenvalues of L, and the factorization of the shifted L."""
    size = float(np.abs(L.diagonal()).mean()) + np.finfo(float).tiny
    identity = sparse.eye_array(L.shape[0], format="csc")
    shift = 1e-7 * size
    while True:
        try:
            factor = symmetric_factor(L + shift * identity)
            if (factor.U.diagonal() > 0).all():
                return -shift, factor
        except RuntimeError:  # A pivot is exactly zero.
            pass
        shift *= 10


def symmetric_factor(S: sparse.csc_array) -> SuperLU:
    """Return a sparse factorization with diagonal pivots.

    The pivots have the same signs as the eigenvalues.
    """
    return splu(
        S.tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


def laplacian_basis(edges: Edges, count: int) -> tuple[Vector, Matrix]:
    """Return the smoothest functions on the unweighted graph (columns).

    They are the eigenvectors with the smallest eigenvalues.
    """
    return laplacian_eigenpairs(edges, np.ones(len(edges)), count)


def rotate_to_axes(edges: Edges, Y: Matrix, tolerance: float = 1e-12) -> tuple[Vector, Matrix]:
    """Return the eigenvalues of :math:`K = Y Y^T` in descending order, and Y on its principal axes.

    Columns are orthogonal with their largest entry positive. Columns whose eigenvalue is below
    ``tolerance`` times the first are dropped.
    """
    Y = edges.centered(Y)
    weighted = Y * np.sqrt(edges.masses)[:, None]
    values, rotation = linalg.eigh(weighted.T @ weighted)
    values, rotation = np.maximum(values[::-1], 0), rotation[:, ::-1]
    n_kept = max(1, int((values > tolerance * values[0]).sum()))
    return values[:n_kept], fix_signs((Y @ rotation[:, :n_kept]).T).T


class Bound(NamedTuple):
    """A certified bound on the objective, and the edge weights that certify it.

    ``eigenvalue`` is the smallest eigenvalue of the weights' Laplacian on centered vectors.
    """

    value: float
    weights: Vector
    eigenvalue: float


def dual_bound(problem: Problem, weights: Vector, eigenvalue: float | None = None) -> Bound:
    r"""Return an upper bound on the optimal objective, or infinity if none is found.

    The dual is :math:`\min_w w^T D + \text{cost}(w)` subject to :math:`L_w \succeq \pm I` on
    centered vectors: :math:`w \ge 0` for inequalities, :math:`|w| \le c` for L1 slack, and the cost
    :math:`\|w\|^2 / 4c` for squared slack. The weights are scaled (for L1, mixed with equal
    weights) until they are feasible. ``eigenvalue`` is the smallest eigenvalue of their Laplacian
    on centered vectors. If it is passed, the weights must already satisfy the bounds on w.
    """
    D, c = problem.edges.squared, problem.price
    w = np.maximum(weights, 0.0) if problem.constraints == "inequality" else weights
    if problem.constraints == "l1":
        w = np.clip(w, -c, c)
    if eigenvalue is None:
        eigenvalue = float(laplacian_eigenpairs(problem.edges, w, 1)[0][0])
    if problem.objective == "max":
        if problem.constraints == "l1" and eigenvalue < 1:
            w, eigenvalue = _mix_with_equal(problem, w, eigenvalue)
        if eigenvalue <= 0:
            return Bound(np.inf, w, eigenvalue)
        low, high = 1 / eigenvalue, np.inf
        best = low
    else:
        low, high = 0.0, -1 / eigenvalue if eigenvalue < 0 else np.inf
        best = high if np.isfinite(high) else 1.0
        if problem.constraints == "l1":
            best = min(best, c / max(float(np.abs(w).max()), np.finfo(float).tiny))
    if problem.constraints == "squared" and (square := float(w @ w) / (2 * c)) > 0:
        best = float(np.clip(-(w @ D) / square, low, high))
    elif problem.objective == "min" and w @ D > 0:
        best = 0.0
    w = best * w
    cost = float(w @ w) / (4 * c) if problem.constraints == "squared" else 0.0
    return Bound(float(w @ D) + cost, w, best * eigenvalue)


def _mix_with_equal(problem: Problem, w: Vector, eigenvalue: float) -> tuple[Vector, float]:
    """Mix the weights w with the largest allowed equal weights until the smallest eigenvalue is 1.

    The eigenvalue is a concave function of the weights.
    """
    equal = problem.price / compute_min_price(problem.edges)
    if equal <= max(eigenvalue, 0.0) or equal < 1:
        return w, -np.inf
    fraction = (1 - eigenvalue) / (equal - eigenvalue)
    return (1 - fraction) * w + fraction * problem.price, 1.0


def relative_gap(value: float, bound: float) -> float:
    """Return the relative gap (bound - value) / abs(bound), or infinity if it is undefined."""
    if bound == value:
        return 0.0
    if bound == 0 or not np.isfinite([value, bound]).all():
        return np.inf
    return (bound - value) / abs(bound)


def repair_factor(problem: Problem, Y: Matrix) -> Matrix:
    """Shrink Y until no edge is too long, and return the feasible factor.

    With slack, every Y is feasible and returned as is. For equalities, Y is also returned as is,
    since shrinking does not repair it; use ``unfolding_certificate.restore_lengths``.
    """
    if problem.constraints != "inequality":
        return Y
    over = float((problem.edges.squared_lengths(Y) / problem.edges.squared).max(initial=0.0))
    return Y / np.sqrt(max(over, 1.0))
