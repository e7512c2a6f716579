"""Maximum variance unfolding."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.progress import report_of
from nearfar.manifold.bad_edges import pruned_graph
from nearfar.manifold.basis_unfolding import gathered, unit_edges
from nearfar.manifold.cliques import clique_dependencies, clique_pairs
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS
from nearfar.manifold.placing import PLACING, Placing, _Unfolding
from nearfar.notices import warn
from nearfar.parameters import boolean, integer, one_of, real
from nearfar.solvers.unfolding import (
    Constraints,
    Direction,
    Edges,
    Problem,
    Unfolding,
    UnfoldingInterrupted,
    least_price,
    relative_gap,
    turned_to_axes,
)
from nearfar.solvers.unfolding_certificate import Certificate, certify
from nearfar.solvers.unfolding_face import unfold_on_face
from nearfar.solvers.unfolding_interior import interior_point
from nearfar.solvers.unfolding_low_rank import low_rank
from nearfar.summaries.neighbor_graph import NeighborGraph, linked_graph
from nearfar.summaries.weighted_graph import neighbor_graph

# Up to so many edges the Gram matrix of all points is solved for. The factor of few columns is
# quick for inequalities; other constraints may need many columns, and then steps are dear.
_EDGES_FOR_ALL = {"inequality": 600, "equality": 2000, "l1": 2000, "squared": 2000}
# Up to so many, that is a second resort, where the first ends with a larger gap than this.
_EDGES_AT_MOST = 2000
_FAILED = 1e-3
# The price of L1 slack, in units of the least with which the problem is bounded; and ω for squares.
_AUTOMATIC_PRICE = 5.0
_AUTOMATIC_OMEGA = 0.99
# Squared lengths, relative to their mean, below which points are one.
_ONE_POINT = 1e-12
# A trace no larger than this times that of the data means that nothing has moved.
_LOCKED = 1.001
# The share it may grow by while next to nothing has.
_NEARLY_LOCKED = 0.02
# The share of the trace that may lie beyond the estimated dimension.
_BEYOND = 0.05


class MVU(_Unfolding):
    r"""Maximum variance unfolding: draw the rows apart as far as their neighbourhoods allow.

    Over all Gram matrices K of centred points

    .. math::
        \max_{K \succeq 0} \; \mathrm{tr} K \qquad\text{subject to}\qquad
        K_{ii} - 2 K_{ij} + K_{jj} \le D_{ij}

    for all pairs within a row and its nearest neighbours, :math:`D_{ij} = \|x_i - x_j\|^2`. A flat
    sheet that is rolled up comes out flat. The coordinates are those of the largest eigenvalues of
    K, which say how many dimensions there are. Constraints may also be

    * ``"equality"``: :math:`= D_{ij}`, the published form;
    * ``"l1"``: :math:`= D_{ij} + \xi_{ij}`, the objective being
      :math:`(1-\omega)\,\mathrm{tr} K - \omega \sum |\xi_{ij}|`;
    * ``"squared"``: the same with :math:`\omega \sum \xi_{ij}^2`.

    The problem is convex, and each fit ends with a proof. For any edge weights w whose Laplacian
    has :math:`\lambda_2(L_w) > 0` (and :math:`w \ge 0` for inequalities),

    .. math:: \mathrm{tr} K \le \sum_e w_e D_e / \lambda_2(L_w) ,

    and at the optimum this holds with equality: ``duality_gap_`` is how far a feasible point, the
    solution repaired, is below it.

    Use it when a manifold of few dimensions is bent but not stretched and you want its true shape;
    unlike Isomap it needs no convex domain, and its eigenvalues are honest about the dimension.
    It fails where short cuts join parts that are far apart on the manifold (``prune_edges``), and
    equalities on rows of few features may lock: with so many constraints nothing can move, and the
    result is PCA (``locked_up_``; take inequalities or slack, or fewer neighbours). Inequalities
    with few neighbours stretch the sheet where it is thin.

    Cost: O(n² p) for the neighbours; then some 30 steps. With "interior_point" each is a dense
    factorisation, m³/3 for m edges; with "low_rank" a sparse one of a matrix of n r rows, r columns
    being some 5: O(n^1.5) for surfaces (10,000 rows of a Swiss roll in half a minute), far more
    where rows fill many dimensions. Only the first has arrays of n×n.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Neighbours of each row; fewer than 3 leave most graphs floppy.
    constraints : {"inequality", "equality", "l1", "squared"}, default="inequality"
        What edges must do. Equalities on rows with fewer features than ``n_neighbors`` make a rigid
        body of each neighbourhood: hardly anything can move, and "auto" solves for the little that
        can. The other solvers are less accurate there, and ``primal_residual_`` says by how much.
    omega : float or "auto", default="auto"
        The price of slack; for "l1" and "squared", with squared lengths in units of their mean.
        "auto" is 0.99 for squares, and :math:`\omega / (1-\omega) = 5 / \lambda_2(L)` for L1, L
        being the Laplacian of the graph. Below :math:`1 / (1 + \lambda_2(L))` L1 has no optimum, as
        the trace grows faster than its price, and a ValueError says so.
    angles : bool, default=True
        Whether neighbours of one row also keep their distance from each other.
    objective : {"max", "min"}, default="max"
        The sign of the trace; "min" is minimum variance unfolding, for comparison, which does not
        unfold. Not with inequalities: points could shrink to one.
    solver : {"auto", "interior_point", "low_rank"}, default="auto"
        All of K, or a factor of few columns to which more are added when needed. "auto" takes the
        first up to some 600 edges with inequalities, and up to 2000 with other constraints; where
        one fails (a gap above 1e-3) it also tries the other, the first up to 2000 edges.
    tol : float, default=1e-6
        The relative gap to reach. For equalities also lengths must be right to 1e-6.
    max_iter : int, default=300
        Steps at most.
    on_disconnected : {"link", "raise", "components"}, default="link"
        What to do if the graph is not connected: add the shortest edges that connect it, with a
        warning; raise; or unfold each part by itself, about the origin. K then has a block for each
        part, and distances between parts mean nothing. (The trace of the whole has no bound.)
    prune_edges : bool, default=False
        Cut edges first that a random walk along the others hardly takes, as short cuts are.
    prune_steps : int, default=7
        Length of the walks.
    prune_scale : float, default=1.0
        Of the walk's probabilities, in units of the median edge.
    out_of_sample : {"lle", "sdp", "sdp_refined"}, default="lle"
        How ``transform`` places new points.
    reg : float, default=1e-3
        Regularisation of the weights of LLE; they place new points with ``out_of_sample="lle"``.
    warm_start : bool, default=False
        Start from the last fit: from its factor, if there was one of as many rows; "low_rank" only.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        The training rows. Identical rows count as one, and so do, for the unfolding, neighbours
        nearer to each other than a millionth of the typical edge.
    factor_ : ndarray of shape (n_rows, r)
        All columns: K = ``factor_ @ factor_.T`` of the distinct rows. Columns are orthogonal, the
        longest first. With inequalities no edge is too long.
    eigenvalues_ : ndarray of shape (r,)
        Of K, descending.
    trace_ : float
        Of K: the sum of the eigenvalues.
    objective_ : float
        What is maximised: ``trace_`` (less the price of slack over :math:`1 - \omega`), negative
        for "min".
    dual_bound_ : float
        What no K can exceed (for "min", undercut), proven.
    duality_gap_ : float
        (bound - p) / bound, p being the objective of a feasible point. With inequalities that is
        the solution, shrunk until no edge is too long; with equalities the solution, moved until
        edges have their lengths to 1e-6 or better, less what the errors left may have gained. Where
        that fails it is the data themselves, as there is no other.
    primal_residual_ : float
        The largest relative error of an edge's squared length when the solver ended, before the
        repair; with inequalities only of edges too long. With slack the largest slack.
    edges_ : ndarray of shape (n_edges, 2)
        The pairs of rows with constraints.
    edge_weights_ : ndarray of shape (n_edges,)
        Their multipliers, scaled so that they prove the bound. An edge of weight 0 holds nothing.
        Where equalities make rigid bodies of neighbourhoods, they hold what these leave free.
    intrinsic_dim_ : int
        Where the largest drop of the eigenvalues is, of those beyond which at most 5 % of the trace
        lies.
    gram_trace_ : float
        The trace of the data's own Gram matrix.
    locked_up_ : bool
        Whether the trace is no more than 0.1 % above that: nothing could move. For data that are
        flat that is as it should be.
    omega_ : float
        ω as used, 1 where there is no slack.
    n_iter_ : int
        Steps.
    history_ : dict of lists
        "trace", "gap", "residual", "step", "active" (edges with a weight) and "seconds" of each
        step, with squared lengths of mean 1.

    See Also
    --------
    VariationalMVU, LandmarkMVU, Isomap

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, sections 3.1.3 to
       3.1.7, 3.1.11 and 3.1.12.

    Examples
    --------
    A roll of paper:

    >>> import numpy as np
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import MVU
    >>> X, angle = make_swiss_roll(500, random_state=0)
    >>> mvu = MVU(n_neighbors=6).fit(X)
    >>> arc = (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle)) / 2
    >>> bool(abs(np.corrcoef(mvu.embedding_[:, 0], arc)[0, 1]) > 0.99)
    True
    >>> mvu.intrinsic_dim_, bool(mvu.duality_gap_ < 1e-5)
    (2, True)
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    settings = ({"n_neighbors": 8},)
    renamed_values: ClassVar = {
        "solver": {"interior-point": "interior_point", "low-rank": "low_rank"}
    }
    parameters: ClassVar = {
        **GRAPH_PARAMETERS,
        "constraints": [one_of("inequality", "equality", "l1", "squared")],
        "omega": [one_of("auto"), real(0, 1, open_low=True)],
        "angles": [boolean],
        "objective": [one_of("max", "min")],
        "solver": [one_of("auto", "interior_point", "low_rank")],
        "tol": [real(0, open_low=True)],
        "max_iter": [integer(1)],
        "on_disconnected": [one_of("link", "raise", "components")],
        "prune_edges": [boolean],
        "prune_steps": [integer(1)],
        "prune_scale": [real(0, open_low=True)],
        "out_of_sample": PLACING,
        "reg": [real(0, open_low=True)],
        "warm_start": [boolean],
        "verbose": [boolean, integer(0)],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        constraints: Constraints = "inequality",
        omega: float | Literal["auto"] = "auto",
        angles: bool = True,
        objective: Direction = "max",
        solver: Literal["auto", "interior_point", "low_rank"] = "auto",
        tol: float = 1e-6,
        max_iter: int = 300,
        on_disconnected: Literal["link", "raise", "components"] = "link",
        prune_edges: bool = False,
        prune_steps: int = 7,
        prune_scale: float = 1.0,
        out_of_sample: Placing = "lle",
        reg: float = 1e-3,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.constraints = constraints
        self.omega = omega
        self.angles = angles
        self.objective = objective
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.on_disconnected = on_disconnected  # type: ignore[assignment]
        self.prune_edges = prune_edges
        self.prune_steps = prune_steps
        self.prune_scale = prune_scale
        self.out_of_sample = out_of_sample
        self.reg = reg
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Unfold the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points. Identical rows count as one, and get the same coordinates.
        y : ignored
            For the API.

        Returns
        -------
        MVU
            Itself.
        """
        self._start = self.__dict__.get("factor_") if self.warm_start else None
        try:
            return super().fit(X)
        finally:
            del self._start

    # The problem

    def _embed(self, points: Floats) -> Matrix:
        if self.objective == "min" and self.constraints == "inequality":
            raise ValueError(
                'objective="min" with constraints="inequality" has the solution zero: take '
                'constraints="equality", "l1" or "squared".'
            )
        self._listed = self.n_neighbors
        pairs, labels, dependencies = self._pairs(points)
        self._labels = labels
        codes = np.zeros(len(points), np.intp) if labels is None else labels
        parts = []
        for code in range(int(codes.max()) + 1):
            rows = np.flatnonzero(codes == code)
            own = np.searchsorted(rows, pairs[codes[pairs[:, 0]] == code])
            parts.append(self._unfold(points[rows], own, rows, dependencies[rows]))
            if self._interrupt is not None:
                parts += [_nothing(np.flatnonzero(codes > code))] if (codes > code).any() else []
                break
        return self._gather(points, codes, parts)

    def _pairs(self, points: Floats) -> tuple[Indices, Indices | None, sparse.csr_array]:
        """The pairs with constraints, the part of each row where parts stay apart, and what fixed
        lengths within cliques imply."""
        graph = neighbor_graph(points, self.n_neighbors)
        if self.prune_edges:
            graph = pruned_graph(graph, n_steps=self.prune_steps, scale=self.prune_scale)
        listed, labels = np.diff(graph.indptr), None
        linked: NeighborGraph = graph
        if self.on_disconnected == "components":
            n_parts, found = graph.connected_components()
            labels = found.astype(np.intp) if n_parts > 1 else None
        else:
            linked = linked_graph(graph, points, on_disconnected=self.on_disconnected)
        implied = sparse.csr_array((len(points), 0))
        if self.constraints == "equality" and self.angles and self.solver == "auto":
            implied = clique_dependencies(points, linked, listed)
        return clique_pairs(linked, angles=self.angles, listed=listed), labels, implied

    def _unfold(
        self, points: Floats, pairs: Indices, rows: Indices, implied: sparse.csr_array
    ) -> _Part:
        """One connected part, in the units of the data."""
        if len(points) == 1:
            return _nothing(rows)
        given, unit = unit_edges(points, pairs)
        edges, groups = given.merged(_ONE_POINT)
        problem = Problem(edges, self.constraints, self.objective, self._price(edges))
        centered = points - points.mean(axis=0, dtype=np.float64)
        gram_trace = float(np.einsum("ij,ij->", centered, centered))
        feasible = problem.sign * gram_trace / unit if self.constraints == "equality" else -np.inf
        found, proof = self._proven(problem, groups, feasible, implied)
        residual = proof.residual
        if self.constraints == "inequality":  # the solver may have repaired it already
            residual = max(residual, found.history["residual"][-1])
        if not self._is_reached(proof) and self._interrupt is None:
            warn(
                f"MVU stopped after {found.n_iter} steps with a gap of {proof.gap:.1e} (tol="
                f"{self.tol:.1e}) and edges wrong by up to {residual:.1e}. Raise max_iter or tol, "
                'or take another kind of constraints: "inequality" is the most benign.',
                ConvergenceWarning,
            )
        values, factor = turned_to_axes(edges, proof.factor)
        first = np.unique(groups, return_index=True)[1]  # a row for each point
        return _Part(
            rows,
            factor[groups] * np.sqrt(unit),
            values * unit,
            problem.value(proof.factor) * unit,
            proof.value * unit,
            proof.bound.value * unit,
            residual,
            rows[first[edges.pairs]],
            proof.bound.weights,
            gram_trace,
            found.n_iter,
            found.history,
        )

    def _price(self, edges: Edges) -> float:
        """The price of slack, ω / (1 - ω)."""
        self.omega_ = 1.0
        if self.constraints not in ("l1", "squared"):
            return 1.0
        least = least_price(edges) if self.constraints == "l1" and self.objective == "max" else 0.0
        if self.omega == "auto":
            price = _AUTOMATIC_OMEGA / (1 - _AUTOMATIC_OMEGA)
            if self.constraints == "l1":
                price = _AUTOMATIC_PRICE * (least or least_price(edges))
        elif self.omega == 1:
            raise ValueError("omega=1 leaves nothing to unfold: it must be less than 1.")
        else:
            price = float(self.omega) / (1 - float(self.omega))
        if price < least:
            raise ValueError(
                f"omega={self.omega} is too small for L1 slack: the trace would grow without "
                f"bound. On this graph it must be at least {least / (1 + least):.6g}."
            )
        self.omega_ = price / (1 + price)
        return price

    def _proven(
        self, problem: Problem, groups: Indices, feasible: float, implied: sparse.csr_array
    ) -> tuple[Unfolding, Certificate]:
        """The solution and its certificate; "auto" tries the other solver where one gives up."""
        on_face = self._on_face(problem, groups, implied)
        if on_face is not None:
            proof = certify(problem, *on_face[:2], feasible, on_face.face)
            # Many equalities without a definite K are hopeless for the other solvers.
            many = len(problem.edges) > _EDGES_FOR_ALL["equality"]
            if many or proof.gap <= max(self.tol, _FAILED) or self._interrupt is not None:
                return on_face, proof
        first, second = self._solvers(len(problem.edges))
        found = self._solve(problem, groups, first)
        proof = certify(problem, found.factor, found.weights, feasible)
        gave_up = proof.gap > max(self.tol, _FAILED) and found.n_iter < self.max_iter
        if second is None or not gave_up or self._interrupt is not None:
            return found, proof
        other = self._solve(problem, groups, second)
        other_proof = certify(problem, other.factor, other.weights, feasible)
        better = other_proof.gap < proof.gap or self._interrupt is not None
        return (other, other_proof) if better else (found, proof)

    def _is_reached(self, proof: Certificate) -> bool:
        return proof.gap <= self.tol and proof.met

    def _solvers(self, n_edges: int) -> tuple[str, str | None]:
        """The solver to take, and another for where it fails."""
        if self.solver != "auto":
            return self.solver, None
        if n_edges <= _EDGES_FOR_ALL[self.constraints]:
            return "interior_point", "low_rank"
        return "low_rank", "interior_point" if n_edges <= _EDGES_AT_MOST else None

    def _on_face(
        self, problem: Problem, groups: Indices, implied: sparse.csr_array
    ) -> Unfolding | None:
        """The solution where lengths within cliques leave little freedom, if they do."""
        here = implied[:, np.diff(implied.tocsc().indptr) > 0]  # of this part
        one = np.arange(len(groups))
        merging = sparse.csr_array((np.ones(len(groups)), (groups, one)))
        options: dict[str, Any] = {"max_iter": self.max_iter, "report": report_of(self)}
        try:
            return unfold_on_face(problem, (merging @ here).tocsr(), tol=0.1 * self.tol, **options)
        except UnfoldingInterrupted as interrupt:
            self._interrupt = interrupt
            return interrupt.found

    def _solve(self, problem: Problem, groups: Indices, solver: str) -> Unfolding:
        options: dict[str, Any] = {"max_iter": self.max_iter, "report": report_of(self)}
        try:
            if solver == "interior_point":
                return interior_point(problem, tol=0.1 * self.tol, **options)
            start = self._start
            if start is not None:
                start = (
                    start[np.unique(groups, return_index=True)[1]]
                    if len(start) == len(groups)
                    else None
                )
            return low_rank(problem, start=start, tol=self.tol, **options)
        except UnfoldingInterrupted as interrupt:
            self._interrupt = interrupt
            return interrupt.found

    # What was found

    def _gather(self, points: Floats, codes: Indices, parts: list[_Part]) -> Matrix:
        """All parts put together: K has a block for each."""
        sign = 1.0 if self.objective == "max" else -1.0
        self.factor_, self.eigenvalues_ = gathered(
            len(points), [(part.rows, part.factor, part.values) for part in parts]
        )
        places = np.zeros((len(points), self.n_components))
        for part in parts:
            kept = part.factor[:, : self.n_components]
            places[part.rows, : kept.shape[1]] = kept
        self.trace_ = float(self.eigenvalues_.sum())
        self.objective_ = sum(part.objective for part in parts)
        bound = sum(part.bound for part in parts)
        self.dual_bound_ = sign * bound
        self.duality_gap_ = relative_gap(sum(part.value for part in parts), bound)
        self.primal_residual_ = max(part.residual for part in parts)
        self.edges_ = np.concatenate([part.edges for part in parts])
        self.edge_weights_ = np.concatenate([part.weights for part in parts])
        self.n_iter_ = sum(part.n_iter for part in parts)
        self.history_ = {
            name: [value for part in parts for value in part.history.get(name, [])]
            for name in ("trace", "gap", "residual", "step", "active", "seconds")
        }
        self.intrinsic_dim_ = intrinsic_dimension(self.eigenvalues_)
        self.gram_trace_ = sum(part.gram_trace for part in parts)
        self._judge_lock(points)
        return places

    def _judge_lock(self, points: Floats) -> None:
        """Whether nothing has moved, and whether that is a pity."""
        exact = self.constraints in ("equality", "inequality") and self.objective == "max"
        self.locked_up_ = bool(exact and self.trace_ <= _LOCKED * self.gram_trace_)
        gained = self.trace_ / self.gram_trace_ - 1
        nearly = self.constraints == "equality" and exact and gained <= _NEARLY_LOCKED
        beyond = 1 - self.eigenvalues_[: self.n_components].sum() / self.trace_
        if not (self.locked_up_ or nearly) or beyond <= _BEYOND or self._interrupt is not None:
            return
        result = "lock the rows: the embedding is that of PCA"
        if not self.locked_up_:
            result = f"all but lock the rows: variance grows by {100 * gained:.1f} %"
        warn(
            f"The edges {result}, with {100 * beyond:.0f} % of the variance beyond n_components="
            f'{self.n_components}. Lower n_neighbors, or take constraints="inequality", "l1" or '
            '"squared".',
        )


class _Part(NamedTuple):
    """A connected part of the rows, unfolded; in the units of the data."""

    rows: Indices
    factor: Matrix
    values: Vector
    objective: float
    value: float
    bound: float
    residual: float
    edges: Indices
    weights: Vector
    gram_trace: float
    n_iter: int
    history: dict[str, list[float]]


def _nothing(rows: Indices) -> _Part:
    """Rows at the origin."""
    empty = np.zeros((len(rows), 1)), np.zeros(1), 0.0, 0.0, 0.0, 0.0
    return _Part(rows, *empty, np.zeros((0, 2), np.intp), np.zeros(0), 0.0, 0, {})


def intrinsic_dimension(eigenvalues: Vector) -> int:
    """Where descending eigenvalues drop most, at most 5 % of their sum being beyond.

    A share of 1e-4 is added to each: drops among what is next to nothing do not count.

    >>> intrinsic_dimension(np.array([50.0, 30.0, 0.01, 0.0001, 1e-9]))
    2
    """
    shares = eigenvalues / eigenvalues.sum()
    after = np.append(shares[1:], 0.0)
    drops = (shares + 1e-4) / (after + 1e-4)
    drops[1 - np.cumsum(shares) > _BEYOND] = 0.0
    return int(np.argmax(drops)) + 1
