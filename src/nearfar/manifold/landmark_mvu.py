"""Maximum variance unfolding of some rows, to which all others are tied."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.manifold.basis_unfolding import BASIS_PARAMETERS, _BasisUnfolding, _Part
from nearfar.manifold.placing import Placing
from nearfar.parameters import integer
from nearfar.solvers.barycentric import reconstruction_matrix, weight_matrix
from nearfar.solvers.unfolding import Edges, symmetric_factor
from nearfar.state import State, indices
from nearfar.summaries.neighbor_graph import NeighborGraph


class LandmarkMVU(_BasisUnfolding):
    r"""Maximum variance unfolding of landmarks; the other rows are combinations of these.

    With the matrix :math:`\Phi = (I - W)^T (I - W)` of locally linear embedding, parted into
    landmarks (l) and other rows (u), all rows follow from the landmarks as those of least error do:

    .. math::
        Y = Q Y_l, \quad Q = \begin{pmatrix} I \\ -\Phi_{uu}^{-1} \Phi_{ul} \end{pmatrix}, \qquad
        \max_{L \succeq 0} \; \mathrm{tr} K , \quad K = Q L Q^T , \quad \|y_i - y_j\|^2 \le D_{ij}

    over all pairs of neighbours, K centred: a semidefinite program of the size of the landmarks,
    solved for a factor of L with few columns and proven within the basis (``basis_gap_``).

    Use it where neighbours rebuild each row well and a few landmarks suffice; it is exact on flat
    pieces. Inequalities let the sheet shrink wherever one edge of the interpolated rows would be
    too long, so that more landmarks unfold more: with squared slack, or ``refine``, few do.

    Cost: O(n² p) for the neighbours, O(m n log n) for the landmarks, a sparse factor of
    :math:`\Phi_{uu}` with m solves, and for inequalities some 30 steps of O(E m² r²) for E edges
    and r columns, 3 to 12 of them: 1,000 rows of a Swiss roll with 60 landmarks take some four
    seconds, half of them for the ``bound_iter`` steps of the bound. Squared slack costs
    :math:`O(m^6)` for each of some 20 steps: stay below 60 landmarks there.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    n_neighbors : int, default=5
        Neighbours of each row.
    n_landmarks : int, default=20
        m, more than ``n_components``. The first is drawn, each further one is that farthest from
        the others along the graph.
    constraints : {"inequality", "squared"}, default="inequality"
        What edges must do: lengths may only shrink; or they may deviate, at a price.
    omega : float or "auto", default="auto"
        The price of slack; as in :class:`VariationalMVU`.
    angles : bool, default=True
        Whether neighbours of one row also keep their distance from each other.
    refine : bool, default=False
        Whether to descend after the program; as :class:`VariationalMVU` does.
    max_iter : int, default=100
        Steps at most: in each of the two stages.
    bound_iter : int, default=200
        Further steps for the bound, which do not change the embedding; 0 for none.
    out_of_sample : {"lle", "sdp", "sdp_refined"}, default="lle"
        How ``transform`` places new points.
    reg : float, default=1e-3
        Regularisation of the weights of LLE; they rebuild rows from their neighbours.
    on_disconnected : {"link", "raise", "components"}, default="link"
        What to do if the graph is not connected: add the shortest edges that connect it, with a
        warning; raise; or unfold each part by itself, about the origin. K then has a block for each
        part, and distances between parts mean nothing.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the first landmark.
    verbose : int, default=0
        Print the progress: a line for each iteration. Ctrl-C ends the steps, keeps the best so far
        on the learner, and raises.

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        The training rows. Identical rows count as one.
    landmarks_ : ndarray of shape (n_landmarks,)
        Which of the distinct rows are landmarks, ascending; so many of each part.
    factor_, eigenvalues_, trace_, objective_, primal_residual_, stress_ : ndarrays and floats
        As in :class:`VariationalMVU`.
    dual_bound_, duality_gap_, basis_gap_, edges_, edge_weights_ : ndarrays and floats
        As in :class:`VariationalMVU`. The bound is on any K, tied to landmarks or not.
    omega_, n_iter_, history_ : float, int, dict
        As in :class:`VariationalMVU`.

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
        omega: float | Literal["auto"] = "auto",
        angles: bool = True,
        refine: bool = False,
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
        self.n_landmarks = n_landmarks
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

    def _unfold(self, points: Floats, graph: NeighborGraph, rows: Indices) -> _Part:
        before = vars(self).get("landmarks_", np.zeros(0, np.intp))  # of earlier parts
        part = super()._unfold(points, graph, rows)
        self.landmarks_ = np.sort(np.append(before, rows[self.landmarks_]))
        return part

    def _basis(self, points: Floats, graph: NeighborGraph, edges: Edges, first: Indices) -> Matrix:
        n = len(points)
        if self.n_landmarks <= self.n_components:
            raise ValueError(
                f"n_landmarks={self.n_landmarks} must be more than n_components="
                f"{self.n_components}."
            )
        begin = int(check_random_state(self.random_state).randint(n))
        self.landmarks_ = farthest_points(graph, begin, min(self.n_landmarks, n))
        weights = weight_matrix(points, graph.indptr, graph.indices, self.reg)
        return tied_to(reconstruction_matrix(weights), self.landmarks_)[first]


def farthest_points(graph: NeighborGraph, first: int, count: int) -> Indices:
    """Rows each of which is farthest, along the graph, from those before; in ascending order."""
    lengths = graph.symmetrized()
    chosen = [first]
    nearest = csgraph.dijkstra(lengths, indices=first)
    while len(chosen) < count:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, csgraph.dijkstra(lengths, indices=chosen[-1]))
    return np.unique(np.array(chosen, dtype=np.intp))


def tied_to(Phi: sparse.csr_array, landmarks: Indices) -> Matrix:
    r"""Q: the identity on landmarks, :math:`-\Phi_{uu}^{-1} \Phi_{ul}` elsewhere."""
    n = Phi.shape[0]
    others = np.setdiff1d(np.arange(n), landmarks)
    Q = np.zeros((n, len(landmarks)))
    Q[landmarks, np.arange(len(landmarks))] = 1.0
    if others.size:
        Phi_uu = Phi[others][:, others].tocsc()
        # Where neighbours rebuild one another without landmarks, nothing else would hold them.
        ridge = 1e-12 * float(Phi_uu.diagonal().mean())
        Phi_uu = Phi_uu + ridge * sparse.eye_array(len(others), format="csc")
        right = np.asarray(Phi[others][:, landmarks].toarray())
        Q[others] = -symmetric_factor(Phi_uu).solve(right)
    return Q
