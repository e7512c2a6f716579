r"""Unfolding a graph of known lengths: the problem, its certificate, its repair. No data here.

Given pairs of points with squared lengths :math:`D_e`, find the Gram matrix

.. math::
    \max_K \; \pm\mathrm{tr} K - \text{slack}(\xi), \qquad K \succeq 0, \; K \text{ centred}, \qquad
    K_{ii} - 2 K_{ij} + K_{jj} = D_e + \xi_e ,

where the kind of constraint says which :math:`\xi` are allowed and what they cost. What is here:

* :class:`Edges`: the pairs, with incidence, Laplacian of edge weights, lengths in an embedding;
  ``merged()`` makes one heavy point of those at distance zero;
* :class:`Problem`: edges, kind of constraint, direction, price of slack; value and residual of a
  factor Y of :math:`K = Y Y^T`;
* :func:`smallest_eigenpairs` of the Laplacian of edge weights, :func:`laplacian_basis` of the
  unweighted graph, :func:`principal_axes` of a factor;
* :func:`dual_bound`: from any edge weights, a proven bound on what any K could reach;
* :func:`repaired`: a feasible factor near a given one.

The solvers are in ``unfolding_interior`` (small problems, n×n matrices) and ``unfolding_low_rank``,
the certificate of what they find in ``unfolding_certificate``.
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
from nearfar.solvers.eigen import fix_signs, some_eigh

Constraints = Literal["equality", "inequality", "l1", "squared"]
Direction = Literal["max", "min"]

# Up to here all eigenvalues of a dense matrix are found as fast as a few of a sparse one.
_DENSE = 200


class _Places(NamedTuple):
    """Of points, edges and edges turned round: the place of each in a sparse matrix by columns."""

    where: Indices
    indices: NDArray[np.int32]
    indptr: NDArray[np.int32]


@dataclass(frozen=True)
class Edges:
    r"""Pairs of points and the squared length D of each.

    In each pair ``first < second``; they are in order and without repetition. ``masses`` tell how
    many points each stands for; all 1 by default. "Trace" and "centred" count each point so many
    times: :math:`\sum_i c_i \|y_i\|^2` and :math:`\sum_i c_i y_i = 0`.
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
        """From pairs in any order; of a pair named twice the shorter length counts."""
        ends = np.sort(np.asarray(pairs, np.intp).reshape(-1, 2), axis=1)
        lengths = np.asarray(squared, np.float64)
        keep = ends[:, 0] < ends[:, 1]
        ends, lengths = ends[keep], lengths[keep]
        codes, where = np.unique(ends[:, 0] * n_points + ends[:, 1], return_inverse=True)
        shortest = np.full(len(codes), np.inf)
        np.minimum.at(shortest, where.reshape(-1), lengths)
        return cls(n_points, *np.divmod(codes, n_points), shortest)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def dimension(self) -> int:
        """The rank that centred factors may have."""
        return self.n_points - 1

    @property
    def pairs(self) -> Indices:
        """The edges as an array of shape (n_edges, 2)."""
        return np.column_stack([self.first, self.second])

    @cached_property
    def incidence(self) -> sparse.csr_array:
        """U (n_edges, n_points) with rows :math:`e_i - e_j`."""
        m = len(self)
        columns = np.column_stack([self.first, self.second]).ravel()
        signs = np.tile([1.0, -1.0], m)
        return sparse.csr_array((signs, columns, 2 * np.arange(m + 1)), shape=(m, self.n_points))

    def differences(self, Y: Matrix) -> Matrix:
        """:math:`y_i - y_j` of each edge."""
        return np.asarray(Y[self.first] - Y[self.second])

    def squared_lengths(self, Y: Matrix) -> Vector:
        r""":math:`\|y_i - y_j\|^2` of each edge."""
        delta = self.differences(Y)
        return np.einsum("er,er->e", delta, delta)

    def laplacian(self, weights: Vector, diagonal: Vector | float = 0.0) -> sparse.csc_array:
        r""":math:`L_w = \sum_e w_e (e_i - e_j)(e_i - e_j)^T`, and what is added to its diagonal."""
        n, places = self.n_points, self._places
        degrees = np.bincount(self.first, weights, n) + np.bincount(self.second, weights, n)
        entries = np.empty(n + 2 * len(self))
        entries[places.where] = np.concatenate([degrees + diagonal, -weights, -weights])
        return sparse.csc_array((entries, places.indices, places.indptr), shape=(n, n))

    @cached_property
    def _places(self) -> _Places:
        """Where a Laplacian has its entries; many are built of the same edges."""
        here = np.arange(self.n_points)
        rows = np.concatenate([here, self.first, self.second])
        columns = np.concatenate([here, self.second, self.first])
        order = np.lexsort((rows, columns))
        indptr = np.searchsorted(columns[order], np.arange(self.n_points + 1))
        where = np.empty_like(order)
        where[order] = np.arange(len(order))
        return _Places(where, rows[order].astype(np.int32), indptr.astype(np.int32))

    def eigenpairs(self, weights: Vector, count: int) -> tuple[Vector, Matrix]:
        """Smallest eigenvalues and vectors of their Laplacian; see :func:`laplacian_eigenpairs`."""
        return laplacian_eigenpairs(self, weights, count)

    def components(self) -> tuple[int, NDArray[np.int32]]:
        """How many parts no edge joins, and the part of each point."""
        ones = np.ones(len(self))
        graph = sparse.coo_array((ones, (self.first, self.second)), shape=(self.n_points,) * 2)
        count, labels = csgraph.connected_components(graph.tocsr(), directed=False)
        return int(count), labels

    def centered(self, Y: Matrix) -> Matrix:
        """Y with its centre of mass at the origin."""
        return np.asarray(Y - (self.masses @ Y) / self.masses.sum())

    def trace(self, Y: Matrix) -> float:
        """The trace of :math:`K = Y Y^T`, points counted by their masses; Y is centred."""
        return float(self.masses @ np.einsum("ir,ir->i", Y, Y))

    def scaled(self, factor: float) -> Edges:
        """The same edges, squared lengths times a factor."""
        return replace(self, squared=self.squared * factor)

    def merged(self, tolerance: float = 0.0) -> tuple[Edges, Indices]:
        """Points joined by edges of no length made into one; with the new number of each point.

        Lengths up to ``tolerance`` count as none. Among edges that then join the same two points
        the shortest stays.
        """
        short = self.squared <= tolerance
        if not short.any():
            return self, np.arange(self.n_points)
        ends = self.first[short], self.second[short]
        graph = sparse.coo_array((np.ones(len(ends[0])), ends), shape=(self.n_points,) * 2)
        count, groups = csgraph.connected_components(graph.tocsr(), directed=False)
        pairs = groups[self.pairs[~short]].astype(np.intp)
        fewer = Edges.from_pairs(pairs, self.squared[~short], int(count))
        masses = np.bincount(groups, weights=self.masses, minlength=int(count)).astype(np.float64)
        return replace(fewer, masses=masses), groups.astype(np.intp)


@dataclass(frozen=True)
class Problem:
    r"""What is to be maximised: :math:`\pm\mathrm{tr} K` less the price of slack.

    Edges are connected, with squared lengths of mean 1, none of them 0, as solvers expect. The
    constraints allow :math:`\xi \le 0` for nothing ("inequality"); none ("equality"); or any at the
    price :math:`c \sum_e |\xi_e|` ("l1") or :math:`c \sum_e \xi_e^2` ("squared"), c = ω / (1 - ω).
    """

    edges: Edges
    constraints: Constraints = "inequality"
    objective: Direction = "max"
    price: float = 1.0

    @property
    def sign(self) -> float:
        """+1 to maximise the trace, -1 to minimise it."""
        return 1.0 if self.objective == "max" else -1.0

    @property
    def is_soft(self) -> bool:
        """Whether every K is feasible, at a price."""
        return self.constraints in ("l1", "squared")

    def value(self, Y: Matrix) -> float:
        """The objective at a centred factor; slack that is forbidden is not counted."""
        trace = self.sign * self.edges.trace(Y)
        if not self.is_soft:
            return trace
        slack = self.edges.squared_lengths(Y) - self.edges.squared
        cost = np.abs(slack).sum() if self.constraints == "l1" else slack @ slack
        return trace - self.price * float(cost)

    def residual(self, Y: Matrix) -> float:
        """The largest relative violation of an edge; for slack constraints, the largest slack."""
        over = self.edges.squared_lengths(Y) / self.edges.squared - 1
        if self.constraints == "inequality":
            return float(np.maximum(over, 0).max(initial=0.0))
        return float(np.abs(over).max(initial=0.0))


class Face(NamedTuple):
    """Functions that span all that is feasible, orthonormal with respect to the masses.

    In units of the masses' roots they are orthogonal to N up to ``off``, and ``beside`` is a factor
    of N N'.
    """

    basis: Matrix
    off: float
    beside: SuperLU

    def doubt(self, edges: Edges, weights: Vector) -> float:
        """By how much the errors of the basis may change eigenvalues of the weights on it."""
        root = np.sqrt(edges.masses)[:, None]
        axes = root * self.basis
        pull = edges.incidence.T @ (weights[:, None] * edges.differences(self.basis)) / root
        pull = pull - axes @ (axes.T @ pull)
        return 2 * self.off * float(np.sqrt(max(np.sum(pull * self.beside.solve(pull)), 0.0)))


class Unfolding(NamedTuple):
    """What a solver found: a factor, edge weights for the bound, and the way to them.

    Where there is a ``face``, the weights hold only what is on it.
    """

    factor: Matrix
    weights: Vector
    n_iter: int
    history: dict[str, list[float]]
    face: Face | None = None


class UnfoldingInterrupted(KeyboardInterrupt):
    """Ctrl-C in a solver, with the best that was found before in ``found``."""

    def __init__(self, found: Unfolding) -> None:
        super().__init__("interrupted; the best unfolding so far was kept")
        self.found = found


def least_price(edges: Edges) -> float:
    r"""The price of L1 slack below which the problem is unbounded, :math:`1 / \lambda_2(L)`.

    With less, K can grow along the Fiedler vector of the unweighted graph for ever.
    """
    values, _ = laplacian_eigenpairs(edges, np.ones(len(edges)), 1)
    return 1.0 / float(values[0])


#: A step of a slack and of its multiplier.
Move = tuple[Vector, Vector]


@dataclass
class Slack:
    """A non-negative slack of each edge that counts ``sign · s`` beside its squared length.

    Its multiplier is ``z``, with the dual constraint ``z = sign · w + price``.
    """

    sign: float
    price: float
    s: Vector
    z: Vector

    def excess(self, w: Vector) -> Vector:
        """By how much the dual constraint is missed."""
        return self.z - self.sign * w - self.price

    def direction(self, aim: float, correction: Vector, excess: Vector, dw: Vector) -> Move:
        """Newton's step of s and z to s · z = aim, for a step of the weights."""
        dz = self.sign * dw - excess
        return (aim - correction - self.s * dz) / self.z - self.s, dz

    def advance(self, primal: float, dual: float, move: Move) -> None:
        """Take such parts of a step."""
        self.s, self.z = self.s + primal * move[0], self.z + dual * move[1]


# ---------------------------------------------------------------------- spectra


def laplacian_eigenpairs(edges: Edges, weights: Vector, count: int) -> tuple[Vector, Matrix]:
    r"""Smallest eigenvalues of :math:`L_w v = \lambda C v`, the constant vector left out.

    C is the diagonal of masses. Vectors are columns, orthonormal with respect to C. Weights may be
    negative; that none smaller was missed is then checked by the signs of pivots.
    """
    n = edges.n_points
    count = min(count, n - 1)
    root = np.sqrt(edges.masses)
    scaling = sparse.dia_array((1 / root[None, :], [0]), shape=(n, n))
    L = (scaling @ edges.laplacian(weights) @ scaling).tocsc()
    constant = root / np.linalg.norm(root)
    if n <= max(_DENSE, 4 * count):
        # The constant vector is moved out of the way, to the far end.
        far = 2 * float(np.abs(L).sum(axis=0).max()) + 1.0
        dense = L.toarray() + far * np.outer(constant, constant)
        values, vectors = some_eigh(dense, 0, count - 1)
        return values, vectors / root[:, None]
    lowest, factor = _factor_below(L)
    invert = LinearOperator((n, n), matvec=factor.solve, dtype=np.float64)
    start = np.random.RandomState(0).standard_normal(n)
    options: dict[str, Any] = {"sigma": lowest, "OPinv": invert, "v0": start, "tol": 1e-8}
    try:
        values, vectors = eigsh(L, k=count + 1, ncv=max(2 * count + 2, 40), **options)
    except ArpackNoConvergence:
        wide = min(n, 4 * count + 80)
        values, vectors = eigsh(L, k=count + 1, ncv=wide, maxiter=50 * n, **options)
    # Take the constant vector out of the space found, and diagonalise what is left.
    vectors -= np.outer(constant, constant @ vectors)
    axes, sizes, _ = linalg.svd(vectors, full_matrices=False)
    axes = axes[:, sizes > 0.5]
    values, turn = linalg.eigh(axes.T @ (L @ axes))
    return values[:count], (axes @ turn[:, :count]) / root[:, None]


def _factor_below(L: sparse.csc_array) -> tuple[float, SuperLU]:
    """A shift that is below all eigenvalues of L, and the factor of L less it."""
    size = float(np.abs(L.diagonal()).mean()) + np.finfo(float).tiny
    identity = sparse.eye_array(L.shape[0], format="csc")
    shift = 1e-7 * size
    while True:
        try:
            factor = symmetric_factor(L + shift * identity)
            if (factor.U.diagonal() > 0).all():
                return -shift, factor
        except RuntimeError:  # a pivot of exactly zero
            pass
        shift *= 10


def symmetric_factor(S: sparse.csc_array) -> SuperLU:
    """A sparse factor with pivots on the diagonal: their signs are those of the eigenvalues."""
    return splu(
        S.tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


def laplacian_basis(edges: Edges, count: int) -> tuple[Vector, Matrix]:
    """Smoothest functions on the unweighted graph: lowest eigenvalues and vectors (columns)."""
    return laplacian_eigenpairs(edges, np.ones(len(edges)), count)


def turned_to_axes(edges: Edges, Y: Matrix, tolerance: float = 1e-12) -> tuple[Vector, Matrix]:
    """Eigenvalues of :math:`K = Y Y^T`, largest first, and Y turned to its principal axes.

    Columns are orthogonal with their largest entry positive; those below ``tolerance`` of the
    first are dropped.
    """
    Y = edges.centered(Y)
    weighted = Y * np.sqrt(edges.masses)[:, None]
    values, turn = linalg.eigh(weighted.T @ weighted)
    values, turn = np.maximum(values[::-1], 0), turn[:, ::-1]
    kept = max(1, int((values > tolerance * values[0]).sum()))
    return values[:kept], fix_signs((Y @ turn[:, :kept]).T).T


# ---------------------------------------------------------------------- the certificate


class Bound(NamedTuple):
    """A proven bound on the objective, the edge weights that prove it, and their λ_2."""

    value: float
    weights: Vector
    eigenvalue: float


def dual_bound(problem: Problem, weights: Vector, eigenvalue: float | None = None) -> Bound:
    r"""From any edge weights, what no K can exceed; infinite where they prove nothing.

    The dual is :math:`\min_w w^T D + \text{cost}(w)` subject to :math:`L_w \succeq \pm I` on
    centred vectors: :math:`w \ge 0` for inequalities, :math:`|w| \le c` for L1 slack, and the cost
    :math:`\|w\|^2 / 4c` for squared slack. The weights are scaled (for L1, mixed with equal ones)
    until they satisfy it. If the smallest ``eigenvalue`` of their Laplacian on centred vectors is
    given, they must need no clipping.
    """
    D, c = problem.edges.squared, problem.price
    w = np.maximum(weights, 0.0) if problem.constraints == "inequality" else weights
    if problem.constraints == "l1":
        w = np.clip(w, -c, c)
    if eigenvalue is None:
        eigenvalue = float(laplacian_eigenpairs(problem.edges, w, 1)[0][0])
    if problem.objective == "max":
        if problem.constraints == "l1" and eigenvalue < 1:
            w, eigenvalue = _mixed(problem, w, eigenvalue)
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


def _mixed(problem: Problem, w: Vector, eigenvalue: float) -> tuple[Vector, float]:
    """Weights mixed with the largest allowed ones until their λ_2, a concave function, is 1."""
    equal = problem.price / least_price(problem.edges)
    if equal <= max(eigenvalue, 0.0) or equal < 1:
        return w, -np.inf
    share = (1 - eigenvalue) / (equal - eigenvalue)
    return (1 - share) * w + share * problem.price, 1.0


def relative_gap(value: float, bound: float) -> float:
    """(bound - value) / bound, in size; infinite where the bound is, or is 0 and not reached."""
    if bound == value:
        return 0.0
    if bound == 0 or not np.isfinite([value, bound]).all():
        return np.inf
    return (bound - value) / abs(bound)


# ---------------------------------------------------------------------- repair


def repaired(problem: Problem, Y: Matrix) -> Matrix:
    """A feasible factor near Y: shrunk until no edge is too long.

    With slack every Y is feasible, and stays. Y also stays for equalities, which shrinking does not
    repair (``unfolding_certificate.at_length`` does).
    """
    if problem.constraints != "inequality":
        return Y
    over = float((problem.edges.squared_lengths(Y) / problem.edges.squared).max(initial=0.0))
    return Y / np.sqrt(max(over, 1.0))
