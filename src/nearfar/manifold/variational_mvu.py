"""Maximum variance unfolding within the smoothest functions on the graph."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.manifold.basis_unfolding import BASIS_PARAMETERS, _BasisUnfolding
from nearfar.manifold.placing import Placing
from nearfar.parameters import integer, one_of
from nearfar.solvers.barycentric import reconstruction_matrix, weight_matrix
from nearfar.solvers.spectral_step import smallest_eigenpairs
from nearfar.solvers.unfolding import Edges, laplacian_basis
from nearfar.summaries.neighbor_graph import NeighborGraph


class VariationalMVU(_BasisUnfolding):
    r"""Maximum variance unfolding for many rows: the Gram matrix within a few smooth functions.

    With Q holding the m smoothest functions on the neighbour graph and :math:`K = Q Z Q^T`,

    .. math::
        \max_{Z \succeq 0} \; \mathrm{tr} Z - \frac{\omega}{1 - \omega}
        \sum_{ij} \bigl( \|y_i - y_j\|^2 - D_{ij} \bigr)^2 , \qquad Y = Q Z^{1/2}

    over all pairs of neighbours (i, j): a semidefinite program of m × m, solved in milliseconds.
    What the basis cannot follow is then put right by descent on the same objective in the places
    themselves, first in m dimensions, then in ``n_components``.

    Use it to unfold a surface of thousands of rows without holes or short cuts; on a Swiss roll of
    20,000 it finds the sheet in half a minute. It needs a graph that is connected along the
    manifold, and fails where a too large ``n_neighbors`` joins what should be apart: compare
    ``eigenvalues_`` for several. The second stage is not convex: with ω near 1 the start may be
    folded and stays so. :class:`MVU` finds the best K of all, for fewer rows.

    How good the result is, is proven. ``dual_bound_`` is a bound on what any K could reach, not
    only those of the basis, and ``duality_gap_`` is how far ``factor_``, in all m dimensions, stays
    below; the gap of Z within the basis is ``basis_gap_``. The bound needs edge weights that are
    right everywhere, which takes more steps than the embedding does: ``bound_iter``.

    Cost: O(n² p) for the neighbours, a sparse factor of the graph, :math:`O(E m^4)` for E edges,
    and O(E m) for each step.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Neighbours of each row.
    n_basis : int, default=10
        m, at least ``n_components``; more make the program slower and seldom the result better.
    basis : {"laplacian", "lle"}, default="laplacian"
        Lowest eigenvectors of the graph's Laplacian, or of the matrix of locally linear embedding.
    constraints : {"squared", "inequality"}, default="squared"
        What edges must do: they have slack at the price above; or lengths may only shrink. With the
        latter the basis can stretch little, as every single edge holds it, and the descent pays for
        edges that are too long; ``factor_`` is then shrunk until none is.
    omega : float or "auto", default="auto"
        The price of slack; ω, between 0 and 1, for squared lengths of mean 1. "auto" is
        :math:`\omega / (1 - \omega) = 20 / \lambda_2` of the graph's Laplacian, since the pull on
        an edge grows with the number of edges from end to end.
    angles : bool, default=True
        Whether neighbours of one row also keep their distance from each other.
    refine : bool, default=True
        Whether to descend after the program.
    max_iter : int, default=100
        Steps at most: in each of the two stages. Far more in the first crumple the sheet.
    bound_iter : int, default=200
        Further steps for the bound, which do not change the embedding; 0 for none. They are in m
        dimensions.
    out_of_sample : {"lle", "sdp", "sdp_refined"}, default="lle"
        How ``transform`` places new points.
    reg : float, default=1e-3
        Regularisation of the weights of LLE; they rebuild rows from their neighbours.
    on_disconnected : {"link", "raise", "components"}, default="link"
        What to do if the graph is not connected: add the shortest edges that connect it, with a
        warning; raise; or unfold each part by itself, about the origin. K then has a block for each
        part, and distances between parts mean nothing.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: what moves the factor off a saddle before the steps for the
        bound.
    verbose : int, default=0
        Print the progress: a line for each iteration. Ctrl-C ends the steps, keeps the best so far
        on the learner, and raises.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        The training rows. Identical rows count as one.
    factor_ : ndarray of shape (n_distinct, n_columns)
        Y in all dimensions, :math:`K = Y Y^T`, on its principal axes.
    eigenvalues_ : ndarray of shape (n_columns,)
        Of K, the largest first.
    trace_ : float
        Of K.
    objective_ : float
        Trace less the price of slack.
    primal_residual_ : float
        The largest relative slack of a squared length (of one that is too long, for inequalities).
    dual_bound_ : float
        No K has a larger objective.
    duality_gap_ : float
        (bound - objective) / bound.
    basis_gap_ : float
        The same for Z within the basis.
    stress_ : float
        Root mean square of the slack in ``embedding_``, relative to the mean squared length.
    edges_ : ndarray of shape (n_edges, 2)
        Pairs of distinct rows whose distance is to be kept.
    edge_weights_ : ndarray of shape (n_edges,)
        Those that prove the bound.
    omega_ : float
        ω; of several parts the largest.
    n_iter_ : int
        Steps taken.
    history_ : dict
        "objective" (to be made small), "step" and "seconds" of each, stage after stage.

    See Also
    --------
    MVU, LandmarkMVU

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.8; the
       penalty is squared, as its inconsistent forms leave open.
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
        omega: float | Literal["auto"] = "auto",
        angles: bool = True,
        refine: bool = True,
        max_iter: int = 100,
        bound_iter: int = 200,
        out_of_sample: Placing = "lle",
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
        self.omega = omega
        self.angles = angles
        self.refine = refine
        self.max_iter = max_iter
        self.bound_iter = bound_iter
        self.out_of_sample = out_of_sample
        self.reg = reg
        self.on_disconnected = on_disconnected  # type: ignore[assignment]
        self.random_state = random_state
        self.verbose = verbose

    def _basis(self, points: Floats, graph: NeighborGraph, edges: Edges, first: Indices) -> Matrix:
        if self.n_basis < self.n_components:
            raise ValueError(
                f"n_basis={self.n_basis} must be at least n_components={self.n_components}."
            )
        m = min(self.n_basis, edges.n_points - 1)
        if self.basis == "laplacian":
            return laplacian_basis(edges, m)[1]
        weights = weight_matrix(points, graph.indptr, graph.indices, self.reg)
        constant = np.full(len(points), len(points) ** -0.5)
        return np.asarray(
            smallest_eigenpairs(reconstruction_matrix(weights), m, constant)[1][first]
        )
