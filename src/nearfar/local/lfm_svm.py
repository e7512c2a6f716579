"""LFM-SVM: a nearest-neighbor classifier with local feature weights from an SVM."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalClassifier
from nearfar.blocks import split_rows
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.solvers.kernel_machine import Kernel, KernelMachine
from nearfar.state import (
    Sizes,
    State,
    check_that,
    floats,
    integer_value,
    list_of,
    number,
    object_of,
)
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows

#: Number of nearest training points whose labels determine the two classes, and thus the SVM, of a
#: query.
PAIR_VOTERS = 15


class LFMSVMClassifier(LocalClassifier):
    r"""Nearest-neighbor classifier with local feature weights from an SVM (LFM-SVM).

    Let f be the decision function of an SVM for two classes, d a point near the query :math:`x_0`
    where f is zero, and s the unbounded support vectors (or all of them, if none is unbounded). The
    weights are

    .. math:: w_i(x_0) \propto \exp(A R_i), \quad R_i = |n_{d,i}|, \quad n_d = \nabla f(d), \quad
              A = D - \min_s \|x_0 - s\|,

    where D is the mean of :math:`\min_s \|x - s\|` over the training points. Near the class
    boundary, differences across the boundary get the largest weights. Far from it
    (:math:`A \le 0`), all features have the same weight.

    Use it if an SVM classifies well but neighbors are needed, or to see which features matter in
    each part of the boundary. With more than two classes, one SVM is fitted per pair of classes. A
    query uses the SVM of the two most frequent classes among its 15 nearest points.

    Cost: fitting the SVMs, then O(n p) and about ten evaluations of f per query. The fitted
    classifier stores the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. None uses X without a transformation.
    n_neighbors : int, default=5
        Number of neighbors that vote.
    C : float, default=1.0
        Penalty parameter of the SVM.
    kernel : {"rbf", "linear", "poly"}, default="rbf"
        Kernel, as in scikit-learn.
    gamma : float or None, default=None
        Scale of the kernels "rbf" and "poly". None uses 1 divided by the sum of the variances of
        the standardized features.
    degree : int, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1.0
        Constant term of the kernel "poly".
    weight_scale : float, default=10.0
        Factor in the exponent of the feature weights: it multiplies A. 1 gives the published
        formula.
    leave_one_out : bool, default=True
        In D, ignore the distance of a support vector to itself. False uses the published
        formula, which makes D so small that almost no query has A > 0.
    normalize_gradient : bool, default=True
        Divide :math:`n_d` by its length. If False, the scale of A R depends on the scale of f.
    clip : bool, default=True
        Replace a negative A by 0. A negative A would give relevant features smaller weights.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    ties : {"shrink", "first"}, default="shrink"
        How ties between classes are broken: "shrink" repeats the vote with k-1, k-2, … neighbors
        until one class leads, "first" takes the smallest label, as scikit-learn does.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    deviations_ : ndarray of shape (n_features,)
        Standard deviations of the training points, after the learner's transform.
    svcs_ : list of KernelMachine
        One SVM per pair of classes, in the order (0, 1), (0, 2), ..., (1, 2), .... Each decision
        function is positive for the second class of its pair. The points are first centered and
        standardized; see Notes.
    svc_ : KernelMachine
        The SVM. Available only with two classes.
    D_ : ndarray of shape (n_svms,)
        Mean distance D in the formula above, for each SVM.
    gamma_ : float
        Value of ``gamma`` that was used.
    n_without_boundary_ : int
        Number of training points without a boundary point. At these points, all features have the
        same weight. The number is 0 unless an SVM puts all points on one side, or X has only one
        class.
    estimator_ : object or None
        Fitted learner, or None if ``estimator`` is None.

    See Also
    --------
    ADAMENNClassifier, DANNClassifier, KNNClassifier

    Notes
    -----
    The SVMs are fitted on the training points minus the median of each feature, divided by its
    standard deviation if ``standardize`` is True. The kernel "poly" depends on this center, which
    is the median of all training points.

    For the leave-one-out error, a point is not counted among its own neighbors, nor among the
    support vectors in A. The SVMs are not fitted again, so their training data include the point.

    References
    ----------
    .. [1] C. Domeniconi, D. Gunopulos, "Adaptive nearest neighbor classification using support
       vector machines", Advances in Neural Information Processing Systems 14, 2001.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey",
       Michigan State University, 2006, section 3.1.7.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import LFMSVMClassifier
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> y = X[:, 0] + X[:, 1] ** 2 > 1
    >>> classifier = LFMSVMClassifier(C=10.0).fit(X, y)
    >>> points, has_boundary = classifier.boundary_points(X[:3])
    >>> has_boundary.tolist()
    [True, True, True]
    >>> int(classifier.weights_at([[1.0, 0.0, 0.0, 0.0]]).argmax())
    0
    """

    renamed: ClassVar = {"a_scale": "weight_scale"}
    state = State(
        {
            "svcs_": list_of(object_of(KernelMachine, p="q"), "pairs"),
            "D_": floats("pairs"),
            "gamma_": number(0, open_low=True),
            "n_without_boundary_": integer_value(max_size="n"),
        }
    )
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "C": [real(0, open_low=True)],
        "kernel": [one_of("rbf", "linear", "poly")],
        "gamma": [none, real(0, open_low=True)],
        "degree": [integer(1, 1000)],
        "coef0": [real()],
        "weight_scale": [real(0)],
        "leave_one_out": [boolean],
        "normalize_gradient": [boolean],
        "clip": [boolean],
    }
    settings = ({"C": 10.0}, {"weight_scale": 3.0})
    # Larger blocks are faster, because the search for boundary points is vectorized over queries.
    max_queries_per_block = 512

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 5,
        *,
        C: float = 1.0,
        kernel: Literal["rbf", "linear", "poly"] = "rbf",
        gamma: float | None = None,
        degree: int = 3,
        coef0: float = 1.0,
        weight_scale: float = 10.0,
        leave_one_out: bool = True,
        normalize_gradient: bool = True,
        clip: bool = True,
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.weight_scale = weight_scale
        self.leave_one_out = leave_one_out
        self.normalize_gradient = normalize_gradient
        self.clip = clip
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    @property
    def svc_(self) -> KernelMachine:
        """The SVM. Available only with two classes."""
        if len(getattr(self, "svcs_", ())) != 1:
            raise AttributeError("svc_ is available only with two classes. Use svcs_ instead.")
        return self.svcs_[0]

    def boundary_points(self, X: ArrayLike) -> tuple[Matrix, Mask]:
        """Return, for each point, a nearby point where the decision function is zero.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points.

        Returns
        -------
        points : ndarray of shape (n_queries, p)
            Boundary points, in the units of X, or of the transformed points if there is a learner.
            For a query without a boundary point, the query itself is returned.
        has_boundary : ndarray of bool, shape (n_queries,)
            True where a boundary point was found.
        """
        rows = self._rows()

        def find_boundary(block: LocalQueries) -> tuple[Matrix, Mask]:
            points, has_boundary = block.X.copy(), np.zeros(len(block), dtype=np.bool_)
            for i, indices, pair_rows in self._iterate_pairs(rows, block):
                machine = self.svcs_[i]
                boundary, is_found = machine.find_boundary(block.standard[indices], pair_rows)
                # The offset of a query without a boundary point is exactly 0.
                offsets = (boundary - block.standard[indices]) * rows.scale
                points[indices], has_boundary[indices] = points[indices] + offsets, is_found
            return points, has_boundary

        points, has_boundary = self._by_block(rows, X, find_boundary)
        return points, has_boundary

    def weights_at(self, X: ArrayLike) -> Matrix:
        """Return the feature weights at each point.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points.

        Returns
        -------
        ndarray of shape (n_queries, p)
            Weights for standardized features. Each row sums to 1.
        """
        rows = self._rows()
        (weights,) = self._by_block(
            rows, X, lambda block: (self._metrics(rows, block).get_diagonals(),)
        )
        return weights

    def _learn(self, rows: LocalRows) -> None:
        spread = float(np.var(rows.standard, axis=0).sum())
        gamma = self.gamma if self.gamma is not None else 1 / spread if spread > 0 else 1.0
        self.gamma_ = float(gamma)
        kernel = Kernel(self.kernel, self.gamma_, int(self.degree), float(self.coef0))
        self.svcs_, means = [], []
        for first, second in combinations(range(rows.n_classes), 2):
            members = _find_members(rows, first, second)
            positive = rows.codes[members] == second
            machine = KernelMachine.fit(rows.standard[members], positive, float(self.C), kernel)
            machine.support = members[machine.support]
            self.svcs_.append(machine)
            means.append(self._compute_mean_distance(rows, machine, members))
        self.D_ = np.array(means)
        self.n_without_boundary_ = self._count_without_boundary(rows)

    def _compute_mean_distance(
        self, rows: LocalRows, machine: KernelMachine, members: Indices
    ) -> float:
        """Return the mean distance from training rows to the nearest unbounded support vector."""
        blocks = split_rows(len(members), 16 * len(machine.vectors))
        block_distances = [
            _compute_vector_distances(
                machine, rows.standard[block_members], block_members if self.leave_one_out else None
            )
            for block_members in (members[block] for block in blocks)
        ]
        distances = np.concatenate(block_distances)
        # A row that is the only unbounded support vector has an infinite distance.
        finite = distances[np.isfinite(distances)]
        return float(finite.mean()) if finite.size else 0.0

    def _count_without_boundary(self, rows: LocalRows) -> int:
        """Return the number of training rows without a boundary point.

        Such rows exist only for an SVM that puts all points on one side.
        """
        n, n_missing = len(rows), 0
        if not self.svcs_:
            return n
        pairs = enumerate(combinations(range(rows.n_classes), 2))
        one_sided_svms = {
            i
            for i, pair in pairs
            if not self.svcs_[i].has_two_sides(rows.standard[_find_members(rows, *pair)])
        }
        if not one_sided_svms:
            return 0
        for block in split_rows(n, 48 * n, max_rows=self.max_queries_per_block):
            queries = rows.make_queries(rows.X[block])
            for i, indices, pair_rows in self._iterate_pairs(rows, queries):
                if i in one_sided_svms:
                    has_boundary = self.svcs_[i].find_boundary(
                        queries.standard[indices], pair_rows
                    )[1]
                    n_missing += int(np.count_nonzero(~has_boundary))
        return n_missing

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        pairs = sizes["c"] * (sizes["c"] - 1) // 2
        check_that(sizes["pairs"] == pairs, "svcs_ must have one SVM per pair of classes.")
        for machine in self.svcs_:
            check_that(
                (machine.support < sizes["n"]).all(), "support vectors must be training rows."
            )

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        return {"n_neighbors": [3, 5], "C": [1.0, 10.0], "weight_scale": [3.0, 10.0, 30.0]}

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        weights = np.full(queries.standard.shape, 1 / rows.n_features)
        for i, indices, pair_rows in self._iterate_pairs(rows, queries):
            machine, pair_queries = self.svcs_[i], queries[indices]
            points, has_boundary = machine.find_boundary(pair_queries.standard, pair_rows)
            normals = np.abs(machine.gradients(points)[1])
            if self.normalize_gradient:
                lengths = np.sqrt(np.square(normals).sum(axis=1, keepdims=True))
                normals /= np.where(lengths > 0, lengths, 1.0)
            reach = self.D_[i] - _compute_vector_distances(
                machine, pair_queries.standard, pair_queries.excluded
            )
            reach[~has_boundary | ~np.isfinite(reach)] = 0.0
            if self.clip:
                reach = np.maximum(reach, 0.0)
            weights[indices] = compute_softmax(float(self.weight_scale) * reach[:, None] * normals)
        return LocalMetrics(weights=weights)

    def _iterate_pairs(
        self, rows: LocalRows, queries: LocalQueries
    ) -> Iterator[tuple[int, Indices, Matrix]]:
        """Yield the index of each SVM, the queries that use it, and its training rows."""
        if rows.n_classes < 2:
            return
        pairs = find_two_classes(rows, queries)
        pair_indices = {pair: i for i, pair in enumerate(combinations(range(rows.n_classes), 2))}
        for first, second in np.unique(pairs, axis=0).tolist():
            indices = np.flatnonzero((pairs == (first, second)).all(axis=1))
            yield (
                pair_indices[first, second],
                indices,
                rows.standard[_find_members(rows, first, second)],
            )


def find_two_classes(rows: LocalRows, queries: LocalQueries) -> Indices:
    """Return, for each query, the two most frequent classes among the nearest training rows.

    The result has shape (n_queries, 2). The two classes of each query are in ascending order.

    Ties are broken in favor of the class with the nearest row, then of the first class.
    """
    b, J = len(queries), rows.n_classes
    if J == 2:
        return np.tile(np.arange(2), (b, 1))
    size = min(PAIR_VOTERS, len(rows) - (queries.excluded is not None))
    metrics = LocalMetrics.euclidean(b, rows.n_features)
    voters = (
        rows.codes[rows.find_window(queries, metrics, size).indices] + J * np.arange(b)[:, None]
    )
    counts = np.bincount(voters.ravel(), minlength=b * J).reshape(b, J)
    order = np.argsort(rows.codes, kind="stable")
    starts = np.searchsorted(rows.codes[order], np.arange(J))
    squares, _ = rows.compute_squared_distances(queries, metrics)
    # In single precision, distances that differ only by rounding become equal.
    with np.errstate(over="ignore"):
        nearest = np.minimum.reduceat(squares[:, order], starts, axis=1).astype(np.float32)
    first_two = np.lexsort((nearest, -counts), axis=1)[:, :2]
    return np.sort(first_two, axis=1)


def compute_softmax(exponents: Matrix) -> Matrix:
    """Return the softmax of each row."""
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _find_members(rows: LocalRows, first: int, second: int) -> Indices:
    return np.flatnonzero((rows.codes == first) | (rows.codes == second))


def _compute_vector_distances(machine: KernelMachine, X: Matrix, own: Indices | None) -> Vector:
    """Return the distances to the nearest unbounded support vector.

    If ``own`` is given, row i of X is training row ``own[i]``, and its distance to itself is
    ignored. The distances are computed from differences, so that a point on a support vector has
    distance 0.
    """
    free = machine.unbounded
    distances = cdist(X, machine.vectors[free])
    if own is not None:
        distances[own[:, None] == machine.support[free]] = np.inf
    return np.asarray(distances.min(axis=1))
