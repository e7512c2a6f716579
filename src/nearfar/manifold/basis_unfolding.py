"""Base class of VariationalMVU and LandmarkMVU, which unfold within a basis."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix, Vector
from nearfar.base.progress import get_reporter
from nearfar.manifold.cliques import compute_squared_lengths, list_clique_pairs
from nearfar.manifold.graph_embedding import GRAPH_PARAMETERS
from nearfar.manifold.placing import OUT_OF_SAMPLE_METHODS, _Unfolding
from nearfar.notices import warn
from nearfar.parameters import AllowedValues, boolean, integer, one_of, random_state, real
from nearfar.solvers.proven_bound import find_mixed_bound
from nearfar.solvers.stress_descent import StressDescent, descend_stress
from nearfar.solvers.unfolding import (
    Bound,
    Edges,
    Problem,
    Unfolding,
    UnfoldingInterrupted,
    laplacian_basis,
    relative_gap,
    repair_factor,
    rotate_to_axes,
)
from nearfar.solvers.unfolding_low_rank import place_by_landmarks
from nearfar.solvers.variational_program import (
    BasisSolution,
    unfold_with_inequalities,
    unfold_with_slack,
)
from nearfar.summaries.neighbor_graph import NeighborGraph, extract_subgraph, link_components
from nearfar.summaries.weighted_graph import build_neighbor_graph

#: Allowed parameter values of VariationalMVU and LandmarkMVU.
BASIS_PARAMETERS: dict[str, list[AllowedValues]] = {
    **GRAPH_PARAMETERS,
    "constraints": [one_of("squared", "inequality")],
    "slack_penalty": [one_of("auto"), real(1e-100, 1)],
    "angles": [boolean],
    "refine": [boolean],
    "max_iter": [integer(1)],
    "bound_iter": [integer(0)],
    "out_of_sample": OUT_OF_SAMPLE_METHODS,
    "reg": [real(0, open_low=True)],
    "on_disconnected": [one_of("link", "raise", "components")],
    "random_state": [random_state],
    "verbose": [integer(0)],
}
# The default price of slack, ω / (1 - ω), is this constant divided by λ_2, the second smallest
# eigenvalue of the graph Laplacian. The slack is then a few percent of the edge lengths.
_AUTOMATIC_PRICE = 20.0
# Rows are merged if their squared distance is at most this multiple of the mean squared edge
# length.
_MERGE_TOLERANCE = 1e-12
# If the relative duality gap is larger than this, a warning says that the semidefinite program has
# not converged.
_LARGE_GAP = 1e-3
# Standard deviation of the noise that is added to the factor before the steps that improve the
# bound. The noise moves the factor away from a saddle point. The unit is the root mean square edge
# length.
_NOISE = 0.1


class _BasisUnfolding(_Unfolding):
    """Base class of unfolding methods whose coordinates are combinations of a few basis functions.

    Subclasses implement ``_compute_basis``.
    """

    n_neighbors: int
    constraints: Literal["squared", "inequality"]
    slack_penalty: float | Literal["auto"]
    angles: bool
    refine: bool
    max_iter: int
    bound_iter: int
    verbose: int
    random_state: int | np.random.RandomState | None
    factor_: Matrix
    edges_: Indices

    @abstractmethod
    def _compute_basis(
        self, points: Floats, graph: NeighborGraph, edges: Edges, representatives: Indices
    ) -> Matrix:
        """Return an (n, m) array whose columns are basis functions on the n merged points.

        Almost identical rows are merged into one point. ``representatives`` contains the index of
        one row per point.
        """

    def _embed(self, points: Floats) -> Matrix:
        graph = build_neighbor_graph(points, self.n_neighbors)
        self._n_neighbors, self._labels = self.n_neighbors, None
        if self.on_disconnected == "components":
            n_labels, labels = graph.connected_components()
            self._labels = labels.astype(np.intp) if n_labels > 1 else None
        else:
            graph = link_components(graph, points, on_disconnected=self.on_disconnected)
        if self._labels is None:
            return self._gather(points, [self._unfold(points, graph, np.arange(len(points)))])
        components = []
        for label in range(int(self._labels.max()) + 1):
            rows = np.flatnonzero(self._labels == label)
            components.append(self._unfold(points[rows], extract_subgraph(graph, rows), rows))
            if self._interrupt is not None:
                break  # After Ctrl-C, rows that were not placed yet stay at the origin.
        return self._gather(points, components)

    def _unfold(self, points: Floats, graph: NeighborGraph, rows: Indices) -> _Component:
        """Unfold one connected component and return the result in the units of the data."""
        all_edges, unit = scale_edges(points, list_clique_pairs(graph, angles=self.angles))
        edges, groups = all_edges.merged(_MERGE_TOLERANCE)
        representatives = np.unique(groups, return_index=True)[1]
        basis = edges.centered(self._compute_basis(points, graph, edges, representatives))
        slack_penalty, price = self._compute_price(edges)
        problem = Problem(edges, self.constraints, price=price)
        solution = unfold_in_basis(problem, basis)
        if not solution.gap < _LARGE_GAP:
            warn(
                f"{type(self).__name__}: the semidefinite program stopped with a duality gap of "
                f"{solution.gap:.1e} after {solution.n_iter} steps. The edge lengths probably "
                'differ too much. Use constraints="squared", or remove outliers.',
                ConvergenceWarning,
            )
        factor, steps = self._run_descents(problem, basis, compute_root(solution.Z))
        weights = steps[-1].weights if steps else solution.weights
        refining = steps[: 2 * self.refine]
        factors = [factor, *(step.factor for step in (steps if self.refine else []))]
        proof = _Proof.from_factors(problem, factors, weights)
        coordinates = _take_leading_axes(
            edges, refining[-1].factor if refining else factor, self.n_components
        )
        slack = edges.squared_lengths(coordinates) - edges.squared
        return _Component(
            rows=rows,
            factor=proof.factor[groups] * np.sqrt(unit),
            values=proof.values * unit,
            coordinates=coordinates[groups] * np.sqrt(unit),
            objective=proof.value * unit,
            bound=proof.bound.value * unit,
            residual=proof.residual,
            edges=rows[representatives[edges.pairs]],
            weights=proof.bound.weights,
            basis_gap=solution.gap,
            slack=slack,
            slack_penalty=slack_penalty,
            steps=steps,
        )

    def _run_descents(
        self, problem: Problem, basis: Matrix, start: Matrix
    ) -> tuple[Matrix, list[StressDescent]]:
        """Refine the solution by up to three descents. Return the initial factor and the descents.

        The first descent runs in all dimensions, the second in n_components dimensions. The third
        improves the bound.
        """
        edges, factor, steps = problem.edges, basis @ start, list[StressDescent]()

        def run_stage(Y: Matrix, max_iter: int, stage: str) -> bool:
            steps.append(self._descend(problem, Y, max_iter, stage))
            return steps[-1].interrupt is None

        if self.refine and not (
            run_stage(factor, self.max_iter, "unfolding")
            and run_stage(
                _take_leading_axes(edges, steps[0].factor, self.n_components),
                self.max_iter,
                "flattening",
            )
        ):
            return factor, steps
        if self.bound_iter:
            # The noise moves the factor away from a saddle point, which improves the bound. The
            # embedding does not change.
            wide_factor = steps[0].factor if steps else factor
            noise = check_random_state(self.random_state).standard_normal(basis.shape)
            start = _take_leading_axes(edges, wide_factor, basis.shape[1]) + _NOISE * noise
            run_stage(start, self.bound_iter, "proving the bound")
        return factor, steps

    def _compute_price(self, edges: Edges) -> tuple[float, float]:
        """Return ω and the price of slack, which is ω / (1 - ω)."""
        if self.slack_penalty == "auto":
            values, _ = laplacian_basis(edges, 1)
            price = _AUTOMATIC_PRICE / float(values[0])
            return price / (1 + price), price
        if self.slack_penalty == 1:
            raise ValueError(
                "slack_penalty=1 gives the variance no weight. Set slack_penalty to a value "
                "below 1, such as 0.99."
            )
        return float(self.slack_penalty), float(self.slack_penalty) / (
            1 - float(self.slack_penalty)
        )

    def _descend(self, problem: Problem, Y: Matrix, max_iter: int, stage: str) -> StressDescent:
        send, report = get_reporter(self), None
        if send is not None:

            def report(Y: Matrix, row: dict[str, float]) -> None:
                send({"stage": stage, "of": max_iter, "residual": problem.residual(Y)} | row)

        descent = descend_stress(
            problem.edges,
            Y,
            price=problem.price,
            one_sided=problem.constraints == "inequality",
            max_iter=max_iter,
            report=report,
        )
        if descent.interrupt is not None:
            self._interrupt = UnfoldingInterrupted(
                Unfolding(descent.factor, descent.weights, 0, descent.history)
            )
        return descent

    def _gather(self, points: Floats, components: list[_Component]) -> Matrix:
        """Combine the components into one block-diagonal K and set the fitted attributes."""
        self.factor_, self.eigenvalues_ = combine_components(
            len(points),
            [(component.rows, component.factor, component.values) for component in components],
        )
        coordinates = np.zeros((len(points), self.n_components))
        for component in components:
            coordinates[component.rows] = component.coordinates
        self.trace_ = float(self.eigenvalues_.sum())
        self.objective_ = sum(component.objective for component in components)
        self.dual_bound_ = sum(component.bound for component in components)
        self.duality_gap_ = relative_gap(self.objective_, self.dual_bound_)
        self.primal_residual_ = max(component.residual for component in components)
        self.edges_ = np.concatenate([component.edges for component in components])
        self.edge_weights_ = np.concatenate([component.weights for component in components])
        self.basis_gap_ = max(component.basis_gap for component in components)
        self.stress_ = float(
            np.sqrt(np.mean(np.concatenate([component.slack for component in components]) ** 2))
        )
        self.slack_penalty_ = max(component.slack_penalty for component in components)
        steps = [step for component in components for step in component.steps]
        names = ("objective", "step", "seconds")
        self.history_ = {
            name: [value for step in steps for value in step.history[name]] for name in names
        }
        self.n_iter_ = sum(step.n_iter for step in steps)
        return coordinates


class _Component(NamedTuple):
    """Unfolding of one connected component, in the units of the data."""

    rows: Indices
    factor: Matrix
    values: Vector
    coordinates: Matrix
    objective: float
    bound: float
    residual: float
    edges: Indices
    weights: Vector
    basis_gap: float
    slack: Vector
    slack_penalty: float
    steps: list[StressDescent]


class _Proof(NamedTuple):
    """The feasible factor with the best objective, and an upper bound on the objective."""

    factor: Matrix
    values: Vector
    value: float
    residual: float
    bound: Bound

    @classmethod
    def from_factors(cls, problem: Problem, factors: list[Matrix], weights: Vector) -> _Proof:
        feasible = [repair_factor(problem, Y) for Y in factors]
        best = int(np.argmax([problem.value(Y) for Y in feasible]))
        values, Y = rotate_to_axes(problem.edges, feasible[best])
        residual = problem.residual(factors[best])
        return cls(Y, values, problem.value(Y), residual, find_mixed_bound(problem, weights))


def combine_components(
    n: int, components: list[tuple[Indices, Matrix, Vector]]
) -> tuple[Matrix, Vector]:
    """Combine the factors of all components into one matrix with columns sorted by eigenvalue."""
    widths = [len(values) for _, _, values in components]
    factor = np.zeros((n, sum(widths)))
    for (rows, block, _), end in zip(components, np.cumsum(widths), strict=True):
        factor[rows, end - block.shape[1] : end] = block
    values = np.concatenate([values for _, _, values in components])
    order = np.argsort(-values, kind="stable")
    return factor[:, order], values[order]


class UnitEdges(NamedTuple):
    """Edges scaled to a mean squared length of 1, and the factor that undoes the scaling."""

    edges: Edges
    unit: float


def scale_edges(points: Floats, pairs: NDArray[np.intp]) -> UnitEdges:
    """Scale edges to a mean squared length of 1. Also return the factor that undoes the scaling.

    Lengths are scaled before they are squared, which prevents underflow.
    """
    spread = np.ptp(points.astype(np.float64), axis=0)
    size = float(np.linalg.norm(spread / spread.max()) * spread.max())
    squared = compute_squared_lengths(points.astype(np.float64) / size, pairs)
    mean = float(squared.mean())
    edges = Edges(len(points), pairs[:, 0], pairs[:, 1], squared / mean)
    return UnitEdges(edges, mean * size**2)


def unfold_in_basis(problem: Problem, basis: Matrix) -> BasisSolution:
    """Unfold the points, with coordinates that are combinations of the centered basis functions."""
    edges = problem.edges
    differences = edges.differences(basis)
    C = basis.T @ (edges.masses[:, None] * basis)
    if problem.constraints == "inequality":
        Y = place_by_landmarks(edges)
        start = linalg.lstsq(C, basis.T @ (edges.masses[:, None] * Y))[0]
        return unfold_with_inequalities(differences, edges.squared, C, start)
    return unfold_with_slack(differences, edges.squared, C, problem.price)


def compute_root(Z: Matrix) -> Matrix:
    """Return a matrix R with R R' = Z, for a positive semidefinite matrix Z."""
    values, vectors = linalg.eigh(Z)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _take_leading_axes(edges: Edges, Y: Matrix, count: int) -> Matrix:
    """Return the coordinates of Y on its first ``count`` principal axes, padded with zeros."""
    _, axes = rotate_to_axes(edges, Y)
    axes = axes[:, :count]
    return np.pad(axes, ((0, 0), (0, count - axes.shape[1])))
