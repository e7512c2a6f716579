"""Maximum variance unfolding of landmarks, from which all other rows are interpolated."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.manifold.basis_unfolding import BASIS_PARAMETERS, _BasisUnfolding, _Component
from nearfar.manifold.placing import OutOfSampleMethod
from nearfar.parameters import integer
from nearfar.solvers.barycentric import reconstruction_matrix, weight_matrix
from nearfar.solvers.unfolding import Edges, symmetric_factor
from nearfar.state import State, indices
from nearfar.summaries.neighbor_graph import NeighborGraph


class LandmarkMVU(_BasisUnfolding):
    r"""Maximum variance unfolding of a few landmarks. All other rows are interpolated.

    Let :math:`\Phi = (I - W)^T (I - W)` be the matrix of locally linear embedding, partitioned into
    landmarks (l) and other rows (u). The landmarks determine the other rows, which minimize the
    reconstruction error:

    .. math::
        Y = Q Y_l, \quad Q = \begin{pmatrix} I \\ -\Phi_{uu}^{-1} \Phi_{ul} \end{pmatrix}, \qquad
        \max_{L \succeq 0} \; \mathrm{tr} K , \quad K = Q L Q^T , \quad \|y_i - y_j\|^2 \le D_{ij}

    over all pairs of neighbors, with K centered. The size of this semidefinite program is the
    number of landmarks. The fit solves it for a factor of L with few columns and certifies the
    result within the basis (``basis_gap_``).

    Use it if neighbors reconstruct each row well and a few landmarks suffice. It is exact on flat
    pieces. With inequalities, the sheet shrinks wherever one edge between interpolated rows would
    become too long, so more landmarks unfold the sheet further. With squared slack or ``refine``,
    few landmarks are enough.

    Cost: O(n² p) for the neighbors, O(m n log n) for the landmarks, and a sparse factorization of
    :math:`\Phi_{uu}` with m solves. Inequalities need about 30 steps of O(E m² r²) for E edges and
    r columns, with r from 3 to 12: a Swiss roll of 1,000 rows with 60 landmarks takes about four
    seconds, half of them for the ``bound_iter`` steps. Squared slack costs :math:`O(m^6)` for each
    of about 20 steps: use fewer than 60 landmarks there.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Number of neighbors per row.
    n_landmarks : int, default=20
        Number m of landmarks, greater than ``n_components``. The first landmark is drawn at random.
        Each further landmark is the row that is farthest, along the graph, from all earlier
        landmarks.
    constraints : {"inequality", "squared"}, default="inequality"
        Constraint on the squared length of each edge: "inequality" prevents edges from becoming
        longer, "squared" penalizes all deviations.
    slack_penalty : float or "auto", default="auto"
        Price of slack: see :class:`VariationalMVU`.
    angles : bool, default=True
        Whether to also constrain the distances between neighbors of the same row.
    refine : bool, default=False
        Whether to refine the solution by descent. See :class:`VariationalMVU`.
    max_iter : int, default=100
        Maximum number of iterations. The limit applies to each of the two stages of the refinement.
    bound_iter : int, default=200
        Number of additional steps that improve ``dual_bound_`` without changing the embedding. 0
        skips these steps.
    out_of_sample : {"lle", "sdp", "sdp_refined"}, default="lle"
        Method by which ``transform`` places new points.
    reg : float, default=1e-3
        Regularization of the LLE weights. The weights reconstruct rows from their neighbors.
    on_disconnected : {"link", "raise", "components"}, default="link"
        Action if the graph is not connected: "link" adds the shortest edges that connect it and
        warns, "raise" raises an error, "components" unfolds each component on its own, centered at
        the origin. Distances between components then have no meaning.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. It determines the first landmark, and the noise that is
        added before the steps that improve the bound.
    verbose : int, default=0
        If positive, print one line per iteration. Ctrl-C stops the fit and raises
        KeyboardInterrupt. The estimator keeps the best solution so far.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training rows. Identical rows are merged before the fit.
    landmarks_ : ndarray of shape (n_landmarks,)
        Indices of the landmarks among the distinct rows, in ascending order. Each component has up
        to ``n_landmarks`` landmarks.
    factor_, eigenvalues_, trace_, objective_, primal_residual_, stress_ : ndarrays and floats
        See :class:`VariationalMVU`.
    dual_bound_, duality_gap_, basis_gap_, edges_, edge_weights_ : ndarrays and floats
        See :class:`VariationalMVU`. The bound holds for any K, not only for matrices of the form
        Q L Q'.
    slack_penalty_, n_iter_, history_ : float, int, dict
        See :class:`VariationalMVU`.

    See Also
    --------
    VariationalMVU, MVU, LandmarkIsomap

    References
    ----------
    .. [1] Weinberger, K. Q., B. D. Packer, L. K. Saul, "Nonlinear dimensionality reduction by
       semidefinite programming and kernel matrix factorization", AISTATS 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_s_curve
    >>> from nearfar import LandmarkMVU
    >>> X, t = make_s_curve(500, random_state=0)
    >>> mvu = LandmarkMVU(n_neighbors=8).fit(X)
    >>> bool(abs(np.corrcoef(mvu.embedding_[:, 0], t)[0, 1]) > 0.95)
    True
    """

    learner_tags = LearnerTags(reads="graph", supervised=False)
    renamed: ClassVar = {"omega": "slack_penalty", "omega_": "slack_penalty_"}
    state = State({"landmarks_": indices("m", below="n")})
    parameters: ClassVar = {**BASIS_PARAMETERS, "n_landmarks": [integer(2)]}

    landmarks_: Indices

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_neighbors: int = 5,
        n_landmarks: int = 20,
        constraints: Literal["squared", "inequality"] = "inequality",
        slack_penalty: float | Literal["auto"] = "auto",
        angles: bool = True,
        refine: bool = False,
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
        self.n_landmarks = n_landmarks
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

    def _unfold(self, points: Floats, graph: NeighborGraph, rows: Indices) -> _Component:
        earlier_landmarks = vars(self).get("landmarks_", np.zeros(0, np.intp))
        component = super()._unfold(points, graph, rows)
        self.landmarks_ = np.sort(np.append(earlier_landmarks, rows[self.landmarks_]))
        return component

    def _compute_basis(
        self, points: Floats, graph: NeighborGraph, edges: Edges, representatives: Indices
    ) -> Matrix:
        n = len(points)
        if self.n_landmarks <= self.n_components:
            raise ValueError(
                f"n_landmarks={self.n_landmarks} must be greater than n_components="
                f"{self.n_components}."
            )
        first_landmark = int(check_random_state(self.random_state).randint(n))
        self.landmarks_ = select_farthest_rows(graph, first_landmark, min(self.n_landmarks, n))
        weights = weight_matrix(points, graph.indptr, graph.indices, self.reg)
        return compute_interpolation_matrix(reconstruction_matrix(weights), self.landmarks_)[
            representatives
        ]


def select_farthest_rows(graph: NeighborGraph, first: int, count: int) -> Indices:
    """Select ``count`` rows that are far apart along the graph, starting with the row ``first``.

    Each further row is the row farthest, along the graph, from all rows selected before. The result
    contains the row indices in ascending order.
    """
    lengths = graph.symmetrized()
    selected = [first]
    nearest = csgraph.dijkstra(lengths, indices=first)
    while len(selected) < count:
        selected.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, csgraph.dijkstra(lengths, indices=selected[-1]))
    return np.unique(np.array(selected, dtype=np.intp))


def compute_interpolation_matrix(Phi: sparse.csr_array, landmarks: Indices) -> Matrix:
    r"""Return the matrix Q that maps the coordinates of the landmarks to those of all rows.

    The rows of Q are unit vectors for landmarks, and :math:`-\Phi_{uu}^{-1} \Phi_{ul}` for other
    rows.
    """
    n = Phi.shape[0]
    other_rows = np.setdiff1d(np.arange(n), landmarks)
    Q = np.zeros((n, len(landmarks)))
    Q[landmarks, np.arange(len(landmarks))] = 1.0
    if other_rows.size:
        Phi_uu = Phi[other_rows][:, other_rows].tocsc()
        # The ridge keeps Phi_uu nonsingular if some rows reconstruct each other without landmarks.
        ridge = 1e-12 * float(Phi_uu.diagonal().mean())
        Phi_uu = Phi_uu + ridge * sparse.eye_array(len(other_rows), format="csc")
        Phi_ul = np.asarray(Phi[other_rows][:, landmarks].toarray())
        Q[other_rows] = -symmetric_factor(Phi_uu).solve(Phi_ul)
    return Q
