"""What VariationalMVU and LandmarkMVU share: a Gram matrix within a basis, refined, certified."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from nearfar.manifold.embedding import GRAPH_PARAMETERS, _GraphEmbedding
from nearfar.manifold.placing import PLACING, Placing, place_new_points
from nearfar.parameters import Allowed, boolean, integer, one_of, random_state, real
from nearfar.solvers.proven_bound import mixed_bound
from nearfar.solvers.stress_descent import Descent, descend
from nearfar.solvers.unfolding import (
    Edges,
    Problem,
    laplacian_basis,
    principal_axes,
    relative_gap,
    repaired,
)
from nearfar.solvers.variational_program import (
    Unfolded,
    unfold_with_inequalities,
    unfold_with_slack,
)
from nearfar.summaries.class_statistics import Floats
from nearfar.summaries.cliques import clique_pairs, squared_lengths
from nearfar.summaries.neighbor_graph import NeighborGraph

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Indices = NDArray[np.intp]

BASIS_PARAMETERS: dict[str, list[Allowed]] = {
    **GRAPH_PARAMETERS,
    "constraints": [one_of("squared", "inequality")],
    "omega": [one_of("auto"), real(0, 1, open_low=True)],
    "angles": [boolean],
    "refine": [boolean],
    "max_iter": [integer(1)],
    "bound_iter": [integer(0)],
    "out_of_sample": PLACING,
    "reg": [real(0, open_low=True)],
    "random_state": [random_state],
}
# ω / (1 - ω) times λ_2 of the graph: a slack of some percent of the edges' lengths.
_AUTOMATIC_PRICE = 20.0
# Squared lengths, of the mean one, up to which two rows are one point.
_ONE_POINT = 1e-12
# Gaps of the small program that are worth a warning.
_LARGE_GAP = 1e-3
# Of the typical edge: what moves a factor off a saddle before the bound is sought.
_NOISE = 0.1


class _BasisUnfolding(_GraphEmbedding):
    """A learner that unfolds within the span of a few functions on the graph.

    Subclasses write ``_basis``.
    """

    n_neighbors: int
    constraints: Literal["squared", "inequality"]
    omega: float | Literal["auto"]
    angles: bool
    refine: bool
    max_iter: int
    bound_iter: int
    out_of_sample: Placing
    reg: float
    random_state: int | np.random.RandomState | None
    factor_: Matrix
    edges_: Indices

    @abstractmethod
    def _basis(self, points: Floats, graph: NeighborGraph, edges: Edges, first: Indices) -> Matrix:
        """Functions (n, m) on the points of the edges that span the embedding.

        Rows next to no distance apart are one point there; ``first`` has a row for each.
        """

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points by the method ``out_of_sample``, from their nearest training rows.

        "lle": :math:`y = \sum_i w_i y_i`, the weights rebuilding the point from its neighbours and
        summing to one. "sdp": y and s of
        :math:`\min \sum_i |\|y_i\|^2 - 2 y_i^T y + s - \|x_i - x\|^2| + s`, :math:`s \ge \|y\|^2`,
        about the neighbours' mean. "sdp-refined": from there to the nearest minimum of
        :math:`\sum_i (\|y - y_i\|^2 - \|x - x_i\|^2)^2`. Training rows get their own coordinates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In the dtype of X.
        """
        return self._transform(X)

    def _place(self, queries: Floats) -> Matrix:
        return place_new_points(
            self._points,
            self._places,
            queries,
            n_neighbors=self._listed,
            method=self.out_of_sample,
            reg=self.reg,
        )

    def _embed(self, points: Floats) -> Matrix:
        graph = self._connected(points, self.n_neighbors)
        given, unit = unit_edges(points, clique_pairs(graph, angles=self.angles))
        edges, groups = given.merged(_ONE_POINT)
        first = np.unique(groups, return_index=True)[1]  # a row for each point
        basis = edges.centred(self._basis(points, graph, edges, first))
        problem = Problem(edges, self.constraints, price=self._price(edges))
        found = unfold_in(problem, basis)
        if not found.gap < _LARGE_GAP:
            warnings.warn(
                f"{type(self).__name__}: the program within the basis stopped at a gap of "
                f"{found.gap:.1e} after {found.n_iter} steps; lengths from tiny to huge are the "
                'likely cause. Take constraints="squared", or look for outliers.',
                ConvergenceWarning,
                stacklevel=4,
            )
        factor, weights = basis @ root(found.Z), found.weights
        factors, places, steps = [factor], factor, []
        if self.refine:
            wide = self._descend(problem, factor, self.max_iter, "unfolding")
            flat = _columns(edges, wide.factor, self.n_components)
            steps = [wide, self._descend(problem, flat, self.max_iter, "flattening")]
            factor, weights, places = wide.factor, wide.weights, steps[1].factor
        if self.bound_iter:
            # Off the saddle, in all dimensions: for the bound, not for the embedding.
            noise = check_random_state(self.random_state).standard_normal(basis.shape)
            start = _columns(edges, factor, basis.shape[1]) + _NOISE * noise
            steps.append(self._descend(problem, start, self.bound_iter, "proving the bound"))
            weights = steps[-1].weights
        if self.refine:
            factors += [step.factor for step in steps]
        self._report(problem, factors, weights, unit, steps)
        # In terms of rows again.
        self.factor_, self.edges_ = self.factor_[groups], first[self.edges_]
        self.basis_gap_ = found.gap
        places = _columns(edges, places, self.n_components)
        slack = edges.squared_lengths(places) - edges.squared
        self.stress_ = float(np.sqrt(np.mean(slack**2)))
        return places[groups] * np.sqrt(unit)

    def _price(self, edges: Edges) -> float:
        if self.omega == "auto":
            values, _ = laplacian_basis(edges, 1)
            self.omega_ = _AUTOMATIC_PRICE / (_AUTOMATIC_PRICE + float(values[0]))
            return _AUTOMATIC_PRICE / float(values[0])
        self.omega_ = float(self.omega)
        if self.omega_ == 1:
            raise ValueError("omega=1 leaves no reward for variance; give less, such as 0.99.")
        return self.omega_ / (1 - self.omega_)

    def _descend(self, problem: Problem, Y: Matrix, max_iter: int, stage: str) -> Descent:
        watch, report = self._watch, None
        if watch is not None:

            def report(Y: Matrix, n_iter: int, seconds: float) -> None:
                row = {"stage": stage, "n_iter": n_iter, "of": max_iter, "seconds": seconds}
                watch(row | {"residual": problem.residual(Y)})

        return descend(
            problem.edges,
            Y,
            price=problem.price,
            one_sided=problem.constraints == "inequality",
            max_iter=max_iter,
            report=report,
        )

    def _report(
        self,
        problem: Problem,
        factors: list[Matrix],
        weights: Vector,
        unit: float,
        steps: list[Descent],
    ) -> None:
        """The best of the factors and its certificate, in the units of the data."""
        edges = problem.edges
        feasible = [repaired(problem, Y) for Y in factors]
        best = int(np.argmax([problem.value(Y) for Y in feasible]))
        values, Y = principal_axes(edges, feasible[best])
        bound = mixed_bound(problem, weights)
        value = problem.value(Y)
        self.factor_, self.eigenvalues_ = Y * np.sqrt(unit), values * unit
        self.trace_, self.objective_ = edges.trace(Y) * unit, value * unit
        self.primal_residual_ = problem.residual(factors[best])
        self.dual_bound_ = bound.value * unit
        self.duality_gap_ = relative_gap(value, bound.value)
        self.edges_, self.edge_weights_ = edges.pairs, bound.weights
        names = ("objective", "step", "seconds")
        self.history_ = {name: [x for part in steps for x in part.history[name]] for name in names}
        self.n_iter_ = sum(part.n_iter for part in steps)


class UnitEdges(NamedTuple):
    """Edges with squared lengths of mean 1, and what they are to be multiplied by."""

    edges: Edges
    unit: float


def unit_edges(points: Floats, pairs: NDArray[np.intp]) -> UnitEdges:
    """Edges between rows of X; scaled before squares are taken, so that none is lost."""
    spread = np.ptp(points.astype(np.float64), axis=0)
    size = float(np.linalg.norm(spread / spread.max()) * spread.max())
    squared = squared_lengths(points.astype(np.float64) / size, pairs)
    mean = float(squared.mean())
    edges = Edges(len(points), pairs[:, 0], pairs[:, 1], squared / mean)
    return UnitEdges(edges, mean * size**2)


def unfold_in(problem: Problem, basis: Matrix) -> Unfolded:
    """The best Gram matrix within the span of centred functions."""
    edges = problem.edges
    rows = edges.differences(basis)
    C = basis.T @ (edges.masses[:, None] * basis)
    if problem.constraints == "inequality":
        return unfold_with_inequalities(rows, edges.squared, C)
    return unfold_with_slack(rows, edges.squared, C, problem.price)


def root(Z: Matrix) -> Matrix:
    """R with R R' = Z for a positive semi-definite Z."""
    values, vectors = linalg.eigh(Z)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _columns(edges: Edges, Y: Matrix, count: int) -> Matrix:
    """So many principal axes of Y; zeros where there are fewer."""
    _, axes = principal_axes(edges, Y)
    axes = axes[:, :count]
    return np.pad(axes, ((0, 0), (0, count - axes.shape[1])))
