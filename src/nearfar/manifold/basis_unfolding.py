"""Base class of VariationalMVU and LandmarkMVU: solve within a basis, refine, certify."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base.progress import report_of
from nearfar.manifold.cliques import clique_pairs, squared_lengths
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS
from nearfar.manifold.placing import PLACING, _Unfolding
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, boolean, integer, one_of, random_state, real
from nearfar.solvers.proven_bound import mixed_bound
from nearfar.solvers.stress_descent import StressDescent, descend_stress
from nearfar.solvers.unfolding import (
    Bound,
    Edges,
    Problem,
    Unfolding,
    UnfoldingInterrupted,
    laplacian_basis,
    relative_gap,
    repaired,
    turned_to_axes,
)
from nearfar.solvers.unfolding_low_rank import landmark_start
from nearfar.solvers.variational_program import (
    Unfolded,
    unfold_with_inequalities,
    unfold_with_slack,
)
from nearfar.summaries.neighbor_graph import NeighborGraph, extract_subgraph, link_components
from nearfar.summaries.weighted_graph import build_neighbor_graph

BASIS_PARAMETERS: dict[str, list[AllowedValues]] = {
    **GRAPH_PARAMETERS,
    "constraints": [one_of("squared", "inequality")],
    "omega": [one_of("auto"), real(0, 1, open_low=True)],
    "angles": [boolean],
    "refine": [boolean],
    "max_iter": [integer(1)],
    "bound_iter": [integer(0)],
    "out_of_sample": PLACING,
    "reg": [real(0, open_low=True)],
    "on_disconnected": [one_of("link", "raise", "components")],
    "random_state": [random_state],
    "verbose": [integer(0)],
}
# Default ω / (1 - ω) times λ_2 of the graph: gives a slack of a few percent of the edge lengths.
_AUTOMATIC_PRICE = 20.0
# Rows are merged if their squared distance is at most this multiple of the mean squared edge.
_ONE_POINT = 1e-12
# Relative gap of the program within the basis above which to warn.
_LARGE_GAP = 1e-3
# Noise that moves a factor off a saddle point before the steps for the bound. Unit: mean edge.
_NOISE = 0.1


class _BasisUnfolding(_Unfolding):
    """Base class of estimators that unfold within the span of a few functions on the graph.

    Subclasses implement ``_basis``.
    """

    n_neighbors: int
    constraints: Literal["squared", "inequality"]
    omega: float | Literal["auto"]
    angles: bool
    refine: bool
    max_iter: int
    bound_iter: int
    verbose: int
    random_state: int | np.random.RandomState | None
    factor_: Matrix
    edges_: Indices

    @abstractmethod
    def _basis(self, points: Floats, graph: NeighborGraph, edges: Edges, first: Indices) -> Matrix:
        """Return basis functions (n, m) on the points of the edges.

        Almost identical rows are merged to one point. ``first`` has one row index per point.
        """

    def _embed(self, points: Floats) -> Matrix:
        graph = build_neighbor_graph(points, self.n_neighbors)
        self._listed, self._labels = self.n_neighbors, None
        if self.on_disconnected == "components":
            n_parts, labels = graph.connected_components()
            self._labels = labels.astype(np.intp) if n_parts > 1 else None
        else:
            graph = link_components(graph, points, on_disconnected=self.on_disconnected)
        if self._labels is None:
            return self._gather(points, [self._unfold(points, graph, np.arange(len(points)))])
        parts = []
        for code in range(int(self._labels.max()) + 1):
            rows = np.flatnonzero(self._labels == code)
            parts.append(self._unfold(points[rows], extract_subgraph(graph, rows), rows))
            if self._interrupt is not None:
                break  # The remaining components stay at the origin.
        return self._gather(points, parts)

    def _unfold(self, points: Floats, graph: NeighborGraph, rows: Indices) -> _Part:
        """Unfold one connected component, in the units of the data."""
        given, unit = unit_edges(points, clique_pairs(graph, angles=self.angles))
        edges, groups = given.merged(_ONE_POINT)
        first = np.unique(groups, return_index=True)[1]  # one row per merged point
        basis = edges.centered(self._basis(points, graph, edges, first))
        omega, price = self._price(edges)
        problem = Problem(edges, self.constraints, price=price)
        found = unfold_in(problem, basis)
        if not found.gap < _LARGE_GAP:
            warn(
                f"{type(self).__name__}: the program within the basis stopped with a gap of "
                f"{found.gap:.1e} after {found.n_iter} steps. A likely cause are edge lengths of "
                'very different size. Use constraints="squared", or remove outliers.',
                ConvergenceWarning,
            )
        factor, steps = self._descents(problem, basis, root(found.Z))
        weights = steps[-1].weights if steps else found.weights
        refining = steps[: 2 * self.refine]
        factors = [factor, *(step.factor for step in (steps if self.refine else []))]
        proof = _Proof.of(problem, factors, weights)
        places = _columns(edges, refining[-1].factor if refining else factor, self.n_components)
        slack = edges.squared_lengths(places) - edges.squared
        return _Part(
            rows=rows,
            factor=proof.factor[groups] * np.sqrt(unit),  # back from merged points to rows
            values=proof.values * unit,
            places=places[groups] * np.sqrt(unit),
            objective=proof.value * unit,
            bound=proof.bound.value * unit,
            residual=proof.residual,
            edges=rows[first[edges.pairs]],
            weights=proof.bound.weights,
            basis_gap=found.gap,
            slack=slack,
            omega=omega,
            steps=steps,
        )

    def _descents(
        self, problem: Problem, basis: Matrix, start: Matrix
    ) -> tuple[Matrix, list[StressDescent]]:
        """Return the factor within the basis and the descents that refine it.

        The descents run in all dimensions, then in n_components, then for the bound.
        """
        edges, factor, steps = problem.edges, basis @ start, list[StressDescent]()

        def go_on(Y: Matrix, max_iter: int, stage: str) -> bool:
            steps.append(self._descend(problem, Y, max_iter, stage))
            return steps[-1].interrupt is None

        if self.refine and not (
            go_on(factor, self.max_iter, "unfolding")
            and go_on(
                _columns(edges, steps[0].factor, self.n_components), self.max_iter, "flattening"
            )
        ):
            return factor, steps
        if self.bound_iter:
            # Leave the saddle point. This improves the bound and does not change the embedding.
            wide = steps[0].factor if steps else factor
            noise = check_random_state(self.random_state).standard_normal(basis.shape)
            start = _columns(edges, wide, basis.shape[1]) + _NOISE * noise
            go_on(start, self.bound_iter, "proving the bound")
        return factor, steps

    def _price(self, edges: Edges) -> tuple[float, float]:
        """Return ω and the price of slack, ω / (1 - ω)."""
        if self.omega == "auto":
            values, _ = laplacian_basis(edges, 1)
            price = _AUTOMATIC_PRICE / float(values[0])
            return price / (1 + price), price
        if self.omega == 1:
            raise ValueError(
                "omega=1 gives the variance no weight. Set omega to less than 1, such as 0.99."
            )
        return float(self.omega), float(self.omega) / (1 - float(self.omega))

    def _descend(self, problem: Problem, Y: Matrix, max_iter: int, stage: str) -> StressDescent:
        watch, report = report_of(self), None
        if watch is not None:

            def report(Y: Matrix, row: dict[str, float]) -> None:
                watch({"stage": stage, "of": max_iter, "residual": problem.residual(Y)} | row)

        found = descend_stress(
            problem.edges,
            Y,
            price=problem.price,
            one_sided=problem.constraints == "inequality",
            max_iter=max_iter,
            report=report,
        )
        if found.interrupt is not None:
            self._interrupt = UnfoldingInterrupted(
                Unfolding(found.factor, found.weights, 0, found.history)
            )
        return found

    def _gather(self, points: Floats, parts: list[_Part]) -> Matrix:
        """Combine the components into one block-diagonal K and set the fitted attributes."""
        self.factor_, self.eigenvalues_ = gathered(
            len(points), [(part.rows, part.factor, part.values) for part in parts]
        )
        places = np.zeros((len(points), self.n_components))
        for part in parts:
            places[part.rows] = part.places
        self.trace_ = float(self.eigenvalues_.sum())
        self.objective_ = sum(part.objective for part in parts)
        self.dual_bound_ = sum(part.bound for part in parts)
        self.duality_gap_ = relative_gap(self.objective_, self.dual_bound_)
        self.primal_residual_ = max(part.residual for part in parts)
        self.edges_ = np.concatenate([part.edges for part in parts])
        self.edge_weights_ = np.concatenate([part.weights for part in parts])
        self.basis_gap_ = max(part.basis_gap for part in parts)
        self.stress_ = float(np.sqrt(np.mean(np.concatenate([part.slack for part in parts]) ** 2)))
        self.omega_ = max(part.omega for part in parts)
        steps = [step for part in parts for step in part.steps]
        names = ("objective", "step", "seconds")
        self.history_ = {name: [x for step in steps for x in step.history[name]] for name in names}
        self.n_iter_ = sum(step.n_iter for step in steps)
        return places


class _Part(NamedTuple):
    """Unfolding of one connected component, in the units of the data."""

    rows: Indices
    factor: Matrix
    values: Vector
    places: Matrix
    objective: float
    bound: float
    residual: float
    edges: Indices
    weights: Vector
    basis_gap: float
    slack: Vector
    omega: float
    steps: list[StressDescent]


class _Proof(NamedTuple):
    """The best of several repaired factors, and a bound on the objective."""

    factor: Matrix
    values: Vector
    value: float
    residual: float
    bound: Bound

    @classmethod
    def of(cls, problem: Problem, factors: list[Matrix], weights: Vector) -> _Proof:
        feasible = [repaired(problem, Y) for Y in factors]
        best = int(np.argmax([problem.value(Y) for Y in feasible]))
        values, Y = turned_to_axes(problem.edges, feasible[best])
        residual = problem.residual(factors[best])
        return cls(Y, values, problem.value(Y), residual, mixed_bound(problem, weights))


def gathered(n: int, parts: list[tuple[Indices, Matrix, Vector]]) -> tuple[Matrix, Vector]:
    """Return a block-diagonal factor of all components, with columns sorted by eigenvalue."""
    widths = [len(values) for _, _, values in parts]
    factor = np.zeros((n, sum(widths)))
    for (rows, block, _), end in zip(parts, np.cumsum(widths), strict=True):
        factor[rows, end - block.shape[1] : end] = block
    values = np.concatenate([values for _, _, values in parts])
    order = np.argsort(-values, kind="stable")
    return factor[:, order], values[order]


class UnitEdges(NamedTuple):
    """Edges scaled to squared lengths of mean 1, and the factor that restores their unit."""

    edges: Edges
    unit: float


def unit_edges(points: Floats, pairs: NDArray[np.intp]) -> UnitEdges:
    """Return the scaled edges between rows. Scaling before squaring prevents underflow."""
    spread = np.ptp(points.astype(np.float64), axis=0)
    size = float(np.linalg.norm(spread / spread.max()) * spread.max())
    squared = squared_lengths(points.astype(np.float64) / size, pairs)
    mean = float(squared.mean())
    edges = Edges(len(points), pairs[:, 0], pairs[:, 1], squared / mean)
    return UnitEdges(edges, mean * size**2)


def unfold_in(problem: Problem, basis: Matrix) -> Unfolded:
    """Return the best Gram matrix within the span of centered basis functions."""
    edges = problem.edges
    rows = edges.differences(basis)
    C = basis.T @ (edges.masses[:, None] * basis)
    if problem.constraints == "inequality":
        Y = landmark_start(edges)
        start = linalg.lstsq(C, basis.T @ (edges.masses[:, None] * Y))[0]
        return unfold_with_inequalities(rows, edges.squared, C, start)
    return unfold_with_slack(rows, edges.squared, C, problem.price)


def root(Z: Matrix) -> Matrix:
    """Return R with R R' = Z for a positive semidefinite Z."""
    values, vectors = linalg.eigh(Z)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _columns(edges: Edges, Y: Matrix, count: int) -> Matrix:
    """Return the first ``count`` principal axes of Y, padded with zero columns."""
    _, axes = turned_to_axes(edges, Y)
    axes = axes[:, :count]
    return np.pad(axes, ((0, 0), (0, count - axes.shape[1])))
