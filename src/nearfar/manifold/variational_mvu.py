"""Maximum variance unfolding in the span of the smoothest functions on the neighbor graph."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.manifold.basis_unfolding import BASIS_PARAMETERS, _BasisUnfolding
from nearfar.manifold.placing import OutOfSampleMethod
from nearfar.parameters import integer, one_of
from nearfar.solvers.barycentric import reconstruction_matrix, weight_matrix
from nearfar.solvers.spectral_step import smallest_eigenpairs
from nearfar.solvers.unfolding import Edges, laplacian_basis
from nearfar.summaries.neighbor_graph import NeighborGraph


class VariationalMVU(_BasisUnfolding):
    r"""Maximum variance unfolding for many rows, restricted to combinations of smooth functions.

    Let the columns of Q be the m smoothest functions on the neighbor graph, and
    :math:`K = Q Z Q^T`. VariationalMVU solves

    .. math::
        \max_{Z \succeq 0} \; \mathrm{tr} Z - \frac{\omega}{1 - \omega}
        \sum_{ij} \bigl( \|y_i - y_j\|^2 - D_{ij} \bigr)^2 , \qquad Y = Q Z^{1/2}

    where the sum is over all pairs of neighbors, :math:`D_{ij}` are the squared distances of the
    data and ω is ``slack_penalty``. This is an m × m semidefinite program, solved in
    milliseconds. A descent on the same objective then refines the coordinates beyond the basis,
    first in m dimensions, then in ``n_components``.

    Use it to unfold a surface that has no holes and is sampled by thousands of rows. It flattens a
    Swiss roll of 20,000 rows in half a minute. It needs a graph that is connected along the
    manifold, and fails if ``n_neighbors`` is so large that edges join distant parts: compare
    ``eigenvalues_`` for several values. The refinement is not convex: with ω near 1 the start may
    be folded and stay folded. :class:`MVU` finds the best K without a basis, but only for fewer
    rows.

    The fit certifies the quality of the result. ``dual_bound_`` bounds the objective of any K, not
    only of those within the basis. ``duality_gap_`` is the relative distance of ``factor_``, in all
    m dimensions, from this bound. ``basis_gap_`` is the gap of Z within the basis. A tight bound
    needs correct weights for all edges, which takes more steps than the embedding
    (``bound_iter``).

    Cost: O(n² p) for the neighbors, a sparse factorization of the graph, :math:`O(E m^4)` for E
    edges, and O(E m) for each step.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row.
    n_basis : int, default=10
        Number m of basis functions, at least ``n_components``. More functions make the semidefinite
        program slower and rarely improve the result.
    basis : {"laplacian", "lle"}, default="laplacian"
        Basis functions: the lowest eigenvectors of the graph Laplacian ("laplacian") or of the
        matrix of locally linear embedding ("lle").
    constraints : {"squared", "inequality"}, default="squared"
        Constraint on the squared length of each edge: "squared" penalizes all deviations,
        "inequality" prevents edges from becoming longer. See Notes.
    slack_penalty : float or "auto", default="auto"
        Price of slack: ω between 0 and 1. Squared lengths are first scaled to mean 1. See Notes for
        "auto".
    angles : bool, default=True
        Whether to also constrain the distances between neighbors of the same row.
    refine : bool, default=True
        Whether to refine the solution by descent.
    max_iter : int, default=100
        Maximum number of iterations. The limit applies to each of the two stages of the refinement.
        Far more iterations can crumple the embedding in the first stage.
    bound_iter : int, default=200
        Number of additional steps that improve ``dual_bound_`` without changing the embedding. The
        steps use m dimensions. 0 skips these steps.
    out_of_sample : {"lle", "sdp", "sdp_refined"}, default="lle"
        Method by which ``transform`` places new points.
    reg : float, default=1e-3
        Regularization of the LLE weights. The weights reconstruct rows from their neighbors.
    on_disconnected : {"link", "raise", "components"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error, "components" unfolds each component on its own, centered at
        the origin. Distances between components then have no meaning.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. It determines the noise that moves the factor away from
        a saddle point before the steps that improve the bound.
    verbose : int, default=0
        If positive, print one line per iteration. Ctrl-C stops the fit and raises
        KeyboardInterrupt. The estimator keeps the best solution so far.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    factor_ : ndarray of shape (n_distinct, n_columns)
        Matrix Y with :math:`K = Y Y^T`, rotated to its principal axes. Y has all dimensions, not
        only the first ``n_components``. K has one block per connected component of the graph.
    eigenvalues_ : ndarray of shape (n_columns,)
        Eigenvalues of K, in descending order.
    trace_ : float
        Trace of K.
    objective_ : float
        Value of the objective: the trace of K minus the price of slack.
    primal_residual_ : float
        Largest relative slack of a squared length. With inequalities, only edges that are too long
        count.
    dual_bound_ : float
        Certified upper bound on the objective of any K.
    duality_gap_ : float
        Relative duality gap (bound - objective) / bound.
    basis_gap_ : float
        Relative duality gap of the semidefinite program that determines Z.
    stress_ : float
        Root mean square of the slack in ``embedding_``, relative to the mean squared length.
    edges_ : ndarray of shape (n_edges, 2)
        Pairs of distinct rows whose distance is constrained.
    edge_weights_ : ndarray of shape (n_edges,)
        Multipliers of the edges, which certify the bound.
    slack_penalty_ : float
        Value of ω that the fit used. If there are several components, this is the largest value.
    n_iter_ : int
        Number of iterations.
    history_ : dict
        Values of "objective" (which the descent minimizes), "step" and "seconds" at each step of
        all stages.

    See Also
    --------
    MVU, LandmarkMVU

    Notes
    -----
    ``slack_penalty="auto"`` sets :math:`\omega / (1 - \omega) = 20 / \lambda_2` of the graph
    Laplacian, because the force on an edge grows with the number of edges between opposite ends of
    the manifold.

    With ``constraints="inequality"``, every edge limits the solution within the basis, so this
    solution can stretch only a little. The descent then penalizes edges that are too long, and
    ``factor_`` is shrunk until no edge is too long.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.8. Its
       formulas for the penalty are inconsistent. Here the slack is squared.
    .. [2] Weinberger, K. Q., F. Sha, Q. Zhu, L. K. Saul, "Graph Laplacian regularization for
       large-scale semidefinite programming", Advances in Neural Information Processing Systems
       19, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_swiss_roll
    >>> from nearfar import VariationalMVU
    >>> X, t = make_swiss_roll(1000, random_state=0)
    >>> mvu = VariationalMVU(bound_iter=0).fit(X)
    >>> bool(abs(np.corrcoef(mvu.embedding_[:, 0], t)[0, 1]) > 0.98)
    True
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    renamed: ClassVar = {"omega": "slack_penalty", "omega_": "slack_penalty_"}
    settings = ({"n_neighbors": 8}, {"basis": "lle", "n_neighbors": 8})
    parameters: ClassVar = {
        **BASIS_PARAMETERS,
        "n_basis": [integer(1)],
        "basis": [one_of("laplacian", "lle")],
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        n_basis: int = 10,
        basis: Literal["laplacian", "lle"] = "laplacian",
        constraints: Literal["squared", "inequality"] = "squared",
        slack_penalty: float | Literal["auto"] = "auto",
        angles: bool = True,
        refine: bool = True,
        max_iter: int = 100,
        bound_iter: int = 200,
        out_of_sample: OutOfSampleMethod = "lle",
        reg: float = 1e-3,
        on_disconnected: Literal["link", "raise", "components"] = "link",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.n_basis = n_basis
        self.basis = basis
        self.constraints = constraints
        self.slack_penalty = slack_penalty
        self.angles = angles
        self.refine = refine
        self.max_iter = max_iter
        self.bound_iter = bound_iter
        self.out_of_sample = out_of_sample
        self.reg = reg
        self.on_disconnected = on_disconnected  # type: ignore[assignment]
        self.random_state = random_state
        self.verbose = verbose

    def _compute_basis(
        self, points: Floats, graph: NeighborGraph, edges: Edges, representatives: Indices
    ) -> Matrix:
        if self.n_basis < self.n_components:
            raise ValueError(
                f"n_basis={self.n_basis} must be at least n_components={self.n_components}."
            )
        m = min(self.n_basis, edges.n_points - 1)
        if self.basis == "laplacian":
            return laplacian_basis(edges, m)[1]
        weights = weight_matrix(points, graph.indptr, graph.indices, self.reg)
        constant_eigenvector = np.full(len(points), len(points) ** -0.5)
        return np.asarray(
            smallest_eigenpairs(reconstruction_matrix(weights), m, constant_eigenvector)[1][
                representatives
            ]
        )
