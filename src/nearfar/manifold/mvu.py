"""Maximum variance unfolding."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.progress import get_reporter
from nearfar.manifold.bad_edges import prune_graph
from nearfar.manifold.basis_unfolding import combine_components, scale_edges
from nearfar.manifold.cliques import find_clique_dependencies, list_clique_pairs
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS
from nearfar.manifold.placing import OUT_OF_SAMPLE_METHODS, OutOfSampleMethod, _Unfolding
from nearfar.notices import warn
from nearfar.parameters import boolean, integer, one_of, real
from nearfar.solvers.unfolding import (
    Constraints,
    Direction,
    Edges,
    Problem,
    Unfolding,
    UnfoldingInterrupted,
    compute_min_price,
    relative_gap,
    rotate_to_axes,
)
from nearfar.solvers.unfolding_certificate import Certificate, certify
from nearfar.solvers.unfolding_face import unfold_on_face
from nearfar.solvers.unfolding_interior import solve_by_interior_point
from nearfar.solvers.unfolding_low_rank import solve_low_rank
from nearfar.summaries.neighbor_graph import NeighborGraph, link_components
from nearfar.summaries.weighted_graph import build_neighbor_graph

# Maximum number of edges for which solver="auto" tries the interior-point solver first. The keys
# are the types of constraints. The limit is lower for inequalities, because the low-rank solver is
# fast for them. With other constraints, the low-rank solver may need many columns, which makes it
# slow.
_MAX_INTERIOR_FIRST_EDGES = {"inequality": 600, "equality": 2000, "l1": 2000, "squared": 2000}
# Maximum number of edges for which solver="auto" tries the interior-point solver after the low-rank
# solver has failed.
_MAX_INTERIOR_EDGES = 2000
# A solver has failed if its relative duality gap is larger than this.
_FAILURE_GAP = 1e-3
# Default price of L1 slack, as a multiple of the lowest price for which the problem is bounded.
_AUTOMATIC_PRICE = 5.0
# Default value of ω for squared slack.
_AUTOMATIC_OMEGA = 0.99
# Points are merged if their squared distance is below this multiple of the mean squared edge
# length.
_MERGE_TOLERANCE = 1e-12
# The rows are considered locked if the trace of K is at most this multiple of the trace of the
# data's Gram matrix.
_MAX_LOCKED_RATIO = 1.001
# With equalities, the warning about locked rows is also issued if the trace of K exceeds the trace
# of the data's Gram matrix by at most this fraction.
_MAX_NEARLY_LOCKED_GAIN = 0.02
# The leading dimensions are considered sufficient if the other dimensions contain at most this
# fraction of the trace.
_MAX_REMAINING_FRACTION = 0.05


class MVU(_Unfolding):
    r"""Maximum variance unfolding, which spreads rows out but preserves local distances.

    The centered Gram matrix K of the embedding solves

    .. math::
        \max_{K \succeq 0} \; \mathrm{tr} K \qquad\text{subject to}\qquad
        K_{ii} - 2 K_{ij} + K_{jj} \le D_{ij}

    for all pairs (edges) among a row and its nearest neighbors, with
    :math:`D_{ij} = \|x_i - x_j\|^2`. A rolled-up flat sheet becomes flat. The coordinates belong to
    the largest eigenvalues of K, and the number of large eigenvalues is the dimension. Other
    constraints are

    * ``"equality"``: :math:`= D_{ij}`, the published form;
    * ``"l1"``: :math:`= D_{ij} + \xi_{ij}`, with the objective
      :math:`(1-\omega)\,\mathrm{tr} K - \omega \sum |\xi_{ij}|`;
    * ``"squared"``: the same with :math:`\omega \sum \xi_{ij}^2`.

    The problem is convex, and each fit certifies its result. For any edge weights w whose Laplacian
    has :math:`\lambda_2(L_w) > 0` (and :math:`w \ge 0` for inequalities),

    .. math:: \mathrm{tr} K \le \sum_e w_e D_e / \lambda_2(L_w) ,

    with equality at the optimum. ``duality_gap_`` is the relative difference between this bound
    and the objective of a feasible point, which is the solution after a small repair.

    Use MVU if a low-dimensional manifold is bent but not stretched and you want its true shape.
    Unlike Isomap, it does not need a convex domain, and its eigenvalues show the dimension
    reliably. MVU fails if shortcuts join parts that are far apart on the manifold (see
    ``prune_edges``). With few features, equalities may allow no movement at all. The result is then
    PCA and ``locked_up_`` is True: use inequalities, slack or fewer neighbors. Inequalities with
    few neighbors stretch the sheet where it is thinly sampled.

    Cost: O(n² p) for the neighbors, then about 30 steps. A step of "interior_point" is a dense
    factorization, m³/3 for m edges, and uses n×n arrays. A step of "low_rank" factorizes a sparse
    matrix with n r rows, where r is about 5, without n×n arrays. That takes O(n^1.5) for surfaces
    (half a minute for a Swiss roll of 10,000 rows) and far more if rows fill many dimensions.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row. With fewer than 3, most graphs are underconstrained.
    constraints : {"inequality", "equality", "l1", "squared"}, default="inequality"
        Constraint on the squared length of each edge. See the list above, and Notes for
        equalities on rows with few features.
    slack_penalty : float or "auto", default="auto"
        Price of slack: ω between 0 and 1. Squared lengths are first scaled to mean 1. Only the
        constraints "l1" and "squared" use this parameter. See Notes for "auto" and for the lower
        limit with "l1".
    angles : bool, default=True
        Whether to also constrain the distances between neighbors of the same row.
    objective : {"max", "min"}, default="max"
        "max" maximizes the trace. "min" minimizes the trace, which does not unfold the data and is
        meant for comparison. "min" cannot be combined with inequalities, because they allow K = 0.
    solver : {"auto", "interior_point", "low_rank"}, default="auto"
        "interior_point" solves for the full matrix K. "low_rank" solves for a factor of K with few
        columns, and adds columns as needed. See Notes for "auto".
    tol : float, default=1e-6
        Relative duality gap at which to stop. Equalities must also hold with an error of at most
        1e-6.
    max_iter : int, default=300
        Maximum number of iterations.
    on_disconnected : {"link", "raise", "components"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error, "components" unfolds each component on its own, centered at
        the origin; see Notes.
    prune_edges : bool, default=False
        Whether to remove likely shortcuts, that is, edges between rows that random walks rarely
        connect.
    prune_steps : int, default=7
        Number of steps of the random walks.
    prune_scale : float, default=1.0
        Length scale of the transition probabilities, in units of the median edge length.
    out_of_sample : {"lle", "sdp", "sdp_refined"}, default="lle"
        Method by which ``transform`` places new points.
    reg : float, default=1e-3
        Regularization of the LLE weights. The weights place new points if ``out_of_sample="lle"``.
    warm_start : bool, default=False
        If True, start from the previous fit: from ``factor_``, if the number of distinct rows is
        the same. Only the solver "low_rank" supports this.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged. Neighbors are also merged if
        their distance is below a millionth of the typical edge length.
    factor_ : ndarray of shape (n_rows, r)
        Factor of K for the distinct rows: K = ``factor_ @ factor_.T``. Columns are orthogonal and
        in descending order of length. With inequalities, no edge is too long.
    eigenvalues_ : ndarray of shape (r,)
        Eigenvalues of K, in descending order.
    trace_ : float
        Trace of K, that is, the sum of the eigenvalues.
    objective_ : float
        Value of the objective: ``trace_``, minus the price of slack divided by :math:`1 - \omega`.
        For "min", the price is added.
    dual_bound_ : float
        Certified bound on the optimal ``objective_``: an upper bound for "max", a lower bound for
        "min".
    duality_gap_ : float
        Relative duality gap (bound - p) / bound, where p is the objective of a feasible point. See
        Notes.
    primal_residual_ : float
        Largest relative error of a squared edge length when the solver stopped, before the solution
        was corrected. With inequalities, only edges that are too long count. With slack, this is
        the largest slack.
    edges_ : ndarray of shape (n_edges, 2)
        Pairs of distinct rows whose distance is constrained.
    edge_weights_ : ndarray of shape (n_edges,)
        Multipliers of the edges, scaled so that they certify the bound. An edge of weight 0 is not
        active. If equalities make neighborhoods rigid, the weights refer only to the remaining
        degrees of freedom.
    intrinsic_dim_ : int
        Estimated dimension: the position of the largest drop among the eigenvalues. Only positions
        after which at most 5% of the trace remains are considered.
    gram_trace_ : float
        Trace of the Gram matrix of the data.
    locked_up_ : bool
        Whether ``trace_`` exceeds ``gram_trace_`` by at most 0.1%, so that no row could move. This
        is expected if the data are already flat.
    slack_penalty_ : float
        Value of ω that the fit used, or 1 without slack. If there are several components, this is
        the value of the last component.
    n_iter_ : int
        Number of iterations.
    history_ : dict of lists
        Values of "trace", "gap", "residual", "step", "active" (number of edges with a weight) and
        "seconds" at each step. Squared lengths are scaled to mean 1.

    See Also
    --------
    VariationalMVU, LandmarkMVU, Isomap

    Notes
    -----
    ``slack_penalty="auto"``:

    - "squared": 0.99.
    - "l1": :math:`\omega / (1-\omega) = 5 / \lambda_2(L)`, where L is the Laplacian of the graph.
      Below :math:`\omega = 1 / (1 + \lambda_2(L))` the trace grows faster than the price of slack,
      so an optimum does not exist, and ``fit`` raises a ValueError.

    ``solver="auto"``:

    - Equalities on rows with fewer features than ``n_neighbors`` make each neighborhood rigid. Then
      a special solver optimizes only the few remaining degrees of freedom. The other solvers are
      less accurate there; ``primal_residual_`` shows by how much.
    - Otherwise "interior_point" up to 600 edges with inequalities and up to 2000 edges with other
      constraints, "low_rank" beyond.
    - If the gap of the first solver exceeds 1e-3, the other one is tried too ("interior_point" up
      to 2000 edges).

    ``on_disconnected="components"``: K has one block per component, because the trace over several
    components is unbounded. Distances between components have no meaning.

    The feasible point of ``duality_gap_``:

    - Inequalities: the solution, shrunk until no edge is too long.
    - Equalities: the solution, adjusted until the squared edge lengths are correct to 1e-6 or
      better. The objective is reduced by the largest gain that the remaining errors allow. If the
      adjustment fails, the data themselves are the feasible point.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, sections 3.1.3 to
       3.1.7, 3.1.11 and 3.1.12.

    Examples
    --------
    MVU unrolls a Swiss roll:

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
    renamed: ClassVar = {"omega": "slack_penalty", "omega_": "slack_penalty_"}
    settings = ({"n_neighbors": 8},)
    renamed_values: ClassVar = {
        "solver": {"interior-point": "interior_point", "low-rank": "low_rank"}
    }
    parameters: ClassVar = {
        **GRAPH_PARAMETERS,
        "constraints": [one_of("inequality", "equality", "l1", "squared")],
        "slack_penalty": [one_of("auto"), real(0, 1, open_low=True)],
        "angles": [boolean],
        "objective": [one_of("max", "min")],
        "solver": [one_of("auto", "interior_point", "low_rank")],
        "tol": [real(0, open_low=True)],
        "max_iter": [integer(1)],
        "on_disconnected": [one_of("link", "raise", "components")],
        "prune_edges": [boolean],
        "prune_steps": [integer(1)],
        "prune_scale": [real(0, open_low=True)],
        "out_of_sample": OUT_OF_SAMPLE_METHODS,
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
        slack_penalty: float | Literal["auto"] = "auto",
        angles: bool = True,
        objective: Direction = "max",
        solver: Literal["auto", "interior_point", "low_rank"] = "auto",
        tol: float = 1e-6,
        max_iter: int = 300,
        on_disconnected: Literal["link", "raise", "components"] = "link",
        prune_edges: bool = False,
        prune_steps: int = 7,
        prune_scale: float = 1.0,
        out_of_sample: OutOfSampleMethod = "lle",
        reg: float = 1e-3,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.constraints = constraints
        self.slack_penalty = slack_penalty
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
        """Unfold the training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points. Identical rows are merged and get the same coordinates.
        y : ignored
            Not used, present for API consistency.

        Returns
        -------
        MVU
            Fitted estimator.
        """
        self._check_parameters()
        self._start = self.__dict__.get("factor_") if self.warm_start else None
        try:
            return super().fit(X)
        finally:
            del self._start

    def _embed(self, points: Floats) -> Matrix:
        if self.objective == "min" and self.constraints == "inequality":
            raise ValueError(
                'objective="min" with constraints="inequality" has the trivial solution K = 0. Use '
                'constraints="equality", "l1" or "squared".'
            )
        self._n_neighbors = self.n_neighbors
        pairs, labels, dependencies = self._find_pairs(points)
        self._labels = labels
        codes = np.zeros(len(points), np.intp) if labels is None else labels
        components = []
        for code in range(int(codes.max()) + 1):
            rows = np.flatnonzero(codes == code)
            component_pairs = np.searchsorted(rows, pairs[codes[pairs[:, 0]] == code])
            components.append(self._unfold(points[rows], component_pairs, rows, dependencies[rows]))
            if self._interrupt is not None:
                components += (
                    [_make_zero_component(np.flatnonzero(codes > code))]
                    if (codes > code).any()
                    else []
                )
                break
        return self._gather(points, codes, components)

    def _find_pairs(self, points: Floats) -> tuple[Indices, Indices | None, sparse.csr_array]:
        """Return the constrained pairs, the component of each row, and the clique dependencies.

        The second item is None unless components are unfolded separately.
        """
        graph = build_neighbor_graph(points, self.n_neighbors)
        if self.prune_edges:
            graph = prune_graph(graph, n_steps=self.prune_steps, scale=self.prune_scale)
        n_listed, labels = np.diff(graph.indptr), None
        linked: NeighborGraph = graph
        if self.on_disconnected == "components":
            n_labels, component_labels = graph.connected_components()
            labels = component_labels.astype(np.intp) if n_labels > 1 else None
        else:
            linked = link_components(graph, points, on_disconnected=self.on_disconnected)
        implied = sparse.csr_array((len(points), 0))
        if self.constraints == "equality" and self.angles and self.solver == "auto":
            implied = find_clique_dependencies(points, linked, n_listed)
        pairs = list_clique_pairs(linked, angles=self.angles, n_neighbors=n_listed)
        return pairs, labels, implied

    def _unfold(
        self, points: Floats, pairs: Indices, rows: Indices, implied: sparse.csr_array
    ) -> _Component:
        """Unfold one connected component and return the result in the units of the data."""
        if len(points) == 1:
            return _make_zero_component(rows)
        all_edges, unit = scale_edges(points, pairs)
        edges, groups = all_edges.merged(_MERGE_TOLERANCE)
        problem = Problem(edges, self.constraints, self.objective, self._compute_price(edges))
        centered = points - points.mean(axis=0, dtype=np.float64)
        gram_trace = float(np.einsum("ij,ij->", centered, centered))
        feasible = problem.sign * gram_trace / unit if self.constraints == "equality" else -np.inf
        solution, certificate = self._solve_and_certify(problem, groups, feasible, implied)
        residual = certificate.residual
        if self.constraints == "inequality":  # The solver may have repaired the solution already.
            residual = max(residual, solution.history["residual"][-1])
        if not self._has_converged(certificate) and self._interrupt is None:
            warn(
                f"MVU stopped after {solution.n_iter} steps with a duality gap of "
                f"{certificate.gap:.1e} (tol={self.tol:.1e}) and a relative error of up to "
                f"{residual:.1e} in the squared edge lengths. Increase max_iter or tol, or use "
                'other constraints: "inequality" is the easiest to solve.',
                ConvergenceWarning,
            )
        values, factor = rotate_to_axes(edges, certificate.factor)
        representatives = np.unique(groups, return_index=True)[1]
        return _Component(
            rows,
            factor[groups] * np.sqrt(unit),
            values * unit,
            problem.value(certificate.factor) * unit,
            certificate.value * unit,
            certificate.bound.value * unit,
            residual,
            rows[representatives[edges.pairs]],
            certificate.bound.weights,
            gram_trace,
            solution.n_iter,
            solution.history,
        )

    def _compute_price(self, edges: Edges) -> float:
        """Return the price of slack, which is ω / (1 - ω), and set ``slack_penalty_``."""
        self.slack_penalty_ = 1.0
        if self.constraints not in ("l1", "squared"):
            return 1.0
        min_price = (
            compute_min_price(edges)
            if self.constraints == "l1" and self.objective == "max"
            else 0.0
        )
        if self.slack_penalty == "auto":
            price = _AUTOMATIC_OMEGA / (1 - _AUTOMATIC_OMEGA)
            if self.constraints == "l1":
                price = _AUTOMATIC_PRICE * (min_price or compute_min_price(edges))
        elif self.slack_penalty == 1:
            raise ValueError(
                "slack_penalty=1 gives the variance no weight. Set slack_penalty to a value "
                "below 1."
            )
        else:
            price = float(self.slack_penalty) / (1 - float(self.slack_penalty))
        if price < min_price:
            raise ValueError(
                f"slack_penalty={self.slack_penalty} is too small for L1 slack: the trace would "
                f"grow without bound. For this graph, slack_penalty must be at least "
                f"{min_price / (1 + min_price):.6g}."
            )
        self.slack_penalty_ = price / (1 + price)
        return price

    def _solve_and_certify(
        self, problem: Problem, groups: Indices, feasible: float, implied: sparse.csr_array
    ) -> tuple[Unfolding, Certificate]:
        """Return a solution and its certificate.

        With ``solver="auto"``, the second solver is tried if the first one fails.
        """
        on_face = self._solve_on_face(problem, groups, implied)
        if on_face is not None:
            certificate = certify(problem, *on_face[:2], feasible, on_face.face)
            # The other solvers do not converge if there are many equalities and no feasible K is
            # positive definite.
            has_many_edges = len(problem.edges) > _MAX_INTERIOR_FIRST_EDGES["equality"]
            if (
                has_many_edges
                or certificate.gap <= max(self.tol, _FAILURE_GAP)
                or self._interrupt is not None
            ):
                return on_face, certificate
        first, second = self._select_solvers(len(problem.edges))
        solution = self._solve(problem, groups, first)
        certificate = certify(problem, solution.factor, solution.weights, feasible)
        has_failed = (
            certificate.gap > max(self.tol, _FAILURE_GAP) and solution.n_iter < self.max_iter
        )
        if second is None or not has_failed or self._interrupt is not None:
            return solution, certificate
        second_solution = self._solve(problem, groups, second)
        second_certificate = certify(
            problem, second_solution.factor, second_solution.weights, feasible
        )
        is_better = second_certificate.gap < certificate.gap or self._interrupt is not None
        return (second_solution, second_certificate) if is_better else (solution, certificate)

    def _has_converged(self, certificate: Certificate) -> bool:
        return certificate.gap <= self.tol and certificate.is_feasible

    def _select_solvers(self, n_edges: int) -> tuple[str, str | None]:
        """Return the first solver, and the solver to try if the first one fails, or None."""
        if self.solver != "auto":
            return self.solver, None
        if n_edges <= _MAX_INTERIOR_FIRST_EDGES[self.constraints]:
            return "interior_point", "low_rank"
        return "low_rank", "interior_point" if n_edges <= _MAX_INTERIOR_EDGES else None

    def _solve_on_face(
        self, problem: Problem, groups: Indices, implied: sparse.csr_array
    ) -> Unfolding | None:
        """Return the solution of the special solver for rigid cliques.

        Returns None if this solver does not apply.
        """
        # Select the dependencies (columns) of this component.
        component_dependencies = implied[:, np.diff(implied.tocsc().indptr) > 0]
        row_indices = np.arange(len(groups))
        merge_matrix = sparse.csr_array((np.ones(len(groups)), (groups, row_indices)))
        options: dict[str, Any] = {"max_iter": self.max_iter, "report": get_reporter(self)}
        try:
            return unfold_on_face(
                problem,
                (merge_matrix @ component_dependencies).tocsr(),
                tol=0.1 * self.tol,
                **options,
            )
        except UnfoldingInterrupted as interrupt:
            self._interrupt = interrupt
            return interrupt.result

    def _solve(self, problem: Problem, groups: Indices, solver: str) -> Unfolding:
        options: dict[str, Any] = {"max_iter": self.max_iter, "report": get_reporter(self)}
        try:
            if solver == "interior_point":
                return solve_by_interior_point(problem, tol=0.1 * self.tol, **options)
            start = self._start
            if start is not None:
                start = (
                    start[np.unique(groups, return_index=True)[1]]
                    if len(start) == len(groups)
                    else None
                )
            return solve_low_rank(problem, start=start, tol=self.tol, **options)
        except UnfoldingInterrupted as interrupt:
            self._interrupt = interrupt
            return interrupt.result

    def _gather(self, points: Floats, codes: Indices, components: list[_Component]) -> Matrix:
        """Combine the components into one block-diagonal K and set the fitted attributes."""
        sign = 1.0 if self.objective == "max" else -1.0
        self.factor_, self.eigenvalues_ = combine_components(
            len(points),
            [(component.rows, component.factor, component.values) for component in components],
        )
        coordinates = np.zeros((len(points), self.n_components))
        for component in components:
            leading_columns = component.factor[:, : self.n_components]
            coordinates[component.rows, : leading_columns.shape[1]] = leading_columns
        self.trace_ = float(self.eigenvalues_.sum())
        self.objective_ = sign * sum(component.objective for component in components)
        bound = sum(component.bound for component in components)
        self.dual_bound_ = sign * bound
        self.duality_gap_ = relative_gap(sum(component.value for component in components), bound)
        self.primal_residual_ = max(component.residual for component in components)
        self.edges_ = np.concatenate([component.edges for component in components])
        self.edge_weights_ = np.concatenate([component.weights for component in components])
        self.n_iter_ = sum(component.n_iter for component in components)
        self.history_ = {
            name: [value for component in components for value in component.history.get(name, [])]
            for name in ("trace", "gap", "residual", "step", "active", "seconds")
        }
        self.intrinsic_dim_ = estimate_intrinsic_dimension(self.eigenvalues_)
        self.gram_trace_ = sum(component.gram_trace for component in components)
        self._check_locked(points)
        return coordinates

    def _check_locked(self, points: Floats) -> None:
        """Set ``locked_up_``. Warn if rows are locked and n_components is too small."""
        is_exact = self.constraints in ("equality", "inequality") and self.objective == "max"
        self.locked_up_ = bool(is_exact and self.trace_ <= _MAX_LOCKED_RATIO * self.gram_trace_)
        gain = self.trace_ / self.gram_trace_ - 1
        is_nearly_locked = (
            self.constraints == "equality" and is_exact and gain <= _MAX_NEARLY_LOCKED_GAIN
        )
        remaining_fraction = 1 - self.eigenvalues_[: self.n_components].sum() / self.trace_
        if (
            not (self.locked_up_ or is_nearly_locked)
            or remaining_fraction <= _MAX_REMAINING_FRACTION
            or self._interrupt is not None
        ):
            return
        result = "lock the rows: the embedding equals that of PCA"
        if not self.locked_up_:
            result = f"almost lock the rows: variance grows by only {100 * gain:.1f}%"
        warn(
            f"The edge constraints {result}, and {100 * remaining_fraction:.0f}% of the variance "
            f"lies beyond n_components={self.n_components}. Lower n_neighbors, or use "
            'constraints="inequality", "l1" or "squared".',
        )


class _Component(NamedTuple):
    """Unfolding of one connected component, in the units of the data."""

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


def _make_zero_component(rows: Indices) -> _Component:
    """Return a component with all rows at the origin."""
    empty = np.zeros((len(rows), 1)), np.zeros(1), 0.0, 0.0, 0.0, 0.0
    return _Component(rows, *empty, np.zeros((0, 2), np.intp), np.zeros(0), 0.0, 0, {})


def estimate_intrinsic_dimension(eigenvalues: Vector) -> int:
    """Return the position of the largest drop among eigenvalues in descending order.

    Only positions after which at most 5% of the sum remains are considered. 1e-4 of the sum is
    added to each eigenvalue, so that drops between negligible eigenvalues are ignored.

    Examples
    --------
    >>> estimate_intrinsic_dimension(np.array([50.0, 30.0, 0.01, 0.0001, 1e-9]))
    2
    """
    fractions = eigenvalues / eigenvalues.sum()
    next_fractions = np.append(fractions[1:], 0.0)
    drops = (fractions + 1e-4) / (next_fractions + 1e-4)
    drops[1 - np.cumsum(fractions) > _MAX_REMAINING_FRACTION] = 0.0
    return int(np.argmax(drops)) + 1
