"""LFM-SVM: features weighed by the slope of a support vector machine at its boundary nearby."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from nearfar.arrays import Indices, Mask, Matrix, Vector
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalVoter
from nearfar.blocks import row_blocks
from nearfar.parameters import boolean, integer, none, one_of, real
from nearfar.solvers.kernel_machine import Kernel, KernelMachine
from nearfar.state import Sizes, State, floats, list_of, need, number, object_of, whole
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows

#: So many nearest points say which two classes a query lies between.
PAIR_VOTERS = 15


class LFMSVMClassifier(LocalVoter):
    r"""Nearest neighbours with weights of features from the boundary of a support vector machine.

    With f the decision function of an SVM for two classes, d a point near the query
    :math:`x_0` at which f is zero, and s its unbounded support vectors,

    .. math:: w_i(x_0) \propto \exp(A R_i), \quad R_i = |n_{d,i}|, \quad n_d = \nabla f(d), \quad
              A = D - \min_s \|x_0 - s\|,

    where D is the mean over the training points of :math:`\min_s \|x - s\|`: near the boundary
    distance counts most across it, and far from it (:math:`A \le 0`) all features count alike.

    Use it where an SVM does well and one wants neighbours, or to see which features matter where
    along its boundary. With several classes there is an SVM for each two of them, and a query has
    the one of the two classes with most of its 15 nearest points.

    Cost: that of the SVMs to fit; then O(n p) for each query and about ten evaluations of f. Keeps
    the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner or transformer that is fitted first. Neighbors are searched in its transformed
        space. None searches X itself.
    n_neighbors : int, default=5
        Number of neighbors that vote.
    C : float, default=1.0
        Cost of errors of the SVM.
    kernel : {"rbf", "linear", "poly"}, default="rbf"
        As in scikit-learn.
    gamma : float or None, default=None
        Scale of the kernels "rbf" and "poly". None is 1 over the sum of the features' variances,
        after they were standardised.
    degree : int, default=3
        Of the kernel "poly".
    coef0 : float, default=1.0
        Of the kernel "poly".
    a_scale : float, default=10.0
        By what A is multiplied; 1 is the formula as published.
    leave_one_out : bool, default=True
        Let no training point be its own support vector in D. False is the formula as published,
        whose D is so small that hardly any query has A > 0.
    normalize_gradient : bool, default=True
        Divide :math:`n_d` by its length, without which A R has no scale.
    clip : bool, default=True
        Take 0 for a negative A, which would give features that matter less weight than others.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    ties : {"shrink", "first"}, default="shrink"
        How to break a tied vote. "shrink" drops the farthest neighbor until one label wins;
        "first" takes the tied label that sorts first, as scikit-learn does.
    n_jobs : int or None, default=None
        Number of threads. None means 1, -1 all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    deviations_ : ndarray of shape (n_features,)
        Standard deviations of the training points, after the learner's transform.
    svcs_ : list of KernelMachine
        The SVM for each two classes, on standardised points: classes 0 and 1, 0 and 2, ..., 1 and
        2, ...; f is positive for the second.
    svc_ : KernelMachine
        The SVM, where there are two classes.
    D_ : ndarray of shape (n_svms,)
        The D of each.
    gamma_ : float
        The gamma used.
    n_without_boundary_ : int
        Training points without a boundary point, where all features count alike; few, unless an
        SVM puts all points on one side.
    estimator_ : object or None
        Fitted learner, or None if ``estimator`` is None.

    See Also
    --------
    ADAMENNClassifier, DANNClassifier, KNNClassifier

    References
    ----------
    .. [1] C. Domeniconi, D. Gunopulos, "Adaptive nearest neighbor classification using support
       vector machines", Advances in Neural Information Processing Systems 14, 2001.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey",
       2006, section 3.1.7.

    Notes
    -----
    The leave-one-out error leaves a point out of its neighbours and of the support vectors it is
    held against; the SVMs themselves have seen it.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import LFMSVMClassifier
    >>> X = np.random.default_rng(0).normal(size=(300, 4))
    >>> y = X[:, 0] + X[:, 1] ** 2 > 1
    >>> rule = LFMSVMClassifier(C=10.0).fit(X, y)
    >>> points, found = rule.boundary_points(X[:3])
    >>> found.tolist()
    [True, True, True]
    >>> int(rule.weights_at([[1.0, 0.0, 0.0, 0.0]]).argmax())
    0
    """

    state = State(
        {
            "svcs_": list_of(object_of(KernelMachine, p="q"), "pairs"),
            "D_": floats("pairs"),
            "gamma_": number(0, open_low=True),
            "n_without_boundary_": whole(most="n"),
        }
    )
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "C": [real(0, open_low=True)],
        "kernel": [one_of("rbf", "linear", "poly")],
        "gamma": [none, real(0, open_low=True)],
        "degree": [integer(1)],
        "coef0": [real()],
        "a_scale": [real(0)],
        "leave_one_out": [boolean],
        "normalize_gradient": [boolean],
        "clip": [boolean],
    }
    settings = ({"C": 10.0}, {"a_scale": 3.0})
    at_once = 512  # they walk together

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
        a_scale: float = 10.0,
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
        self.a_scale = a_scale
        self.leave_one_out = leave_one_out
        self.normalize_gradient = normalize_gradient
        self.clip = clip
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    # ------------------------------------------------------------------ what users ask

    @property
    def svc_(self) -> KernelMachine:
        """The SVM, where there are two classes."""
        if len(getattr(self, "svcs_", ())) != 1:
            raise AttributeError("svc_ is there for two classes; see svcs_.")
        return self.svcs_[0]

    def boundary_points(self, X: ArrayLike) -> tuple[Matrix, Mask]:
        """A point near each point at which the decision function is zero.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Query points.

        Returns
        -------
        points : ndarray of shape (n_queries, p)
            In the units of X (of mapped points after a learner); the point itself if none is found.
        found : ndarray of bool, shape (n_queries,)
            Whether one was found.
        """
        rows = self._rows()

        def work(block: LocalQueries) -> tuple[Matrix, Mask]:
            points, found = block.given.copy(), np.zeros(len(block), dtype=np.bool_)
            for i, asking, others in self._by_pair(rows, block):
                machine = self.svcs_[i]
                near, there = machine.boundary(block.standard[asking], others)
                moved = (near - block.standard[asking]) * rows.scale  # exact for who stays
                points[asking], found[asking] = points[asking] + moved, there
            return points, found

        points, found = self._by_block(rows, X, work)
        return points, found

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
        (found,) = self._by_block(rows, X, lambda block: (self._metrics(rows, block).diagonals(),))
        return found

    # ------------------------------------------------------------------ fit

    def _learn(self, rows: LocalRows) -> None:
        spread = float(np.var(rows.standard, axis=0).sum())
        given = self.gamma if self.gamma is not None else 1 / spread if spread > 0 else 1.0
        self.gamma_ = float(given)
        kernel = Kernel(self.kernel, self.gamma_, int(self.degree), float(self.coef0))
        self.svcs_, means = [], []
        for first, second in combinations(range(rows.n_classes), 2):
            members = _members(rows, first, second)
            positive = rows.codes[members] == second
            machine = KernelMachine.fit(rows.standard[members], positive, float(self.C), kernel)
            machine.support = members[machine.support]
            self.svcs_.append(machine)
            means.append(self._mean_distance(rows, machine, members))
        self.D_ = np.array(means)
        self.n_without_boundary_ = self._count_without(rows)

    def _mean_distance(self, rows: LocalRows, machine: KernelMachine, members: Indices) -> float:
        """The mean distance of training rows from the nearest unbounded support vector."""
        blocks = row_blocks(len(members), 16 * len(machine.vectors))
        far = [
            _to_vectors(machine, rows.standard[some], some if self.leave_one_out else None)
            for some in (members[block] for block in blocks)
        ]
        distances = np.concatenate(far)
        known = distances[np.isfinite(distances)]  # a lone support vector has no other
        return float(known.mean()) if known.size else 0.0

    def _count_without(self, rows: LocalRows) -> int:
        """Training rows without a boundary point; only an SVM with one side may leave some."""
        n, missing = len(rows), 0
        if not self.svcs_:
            return n
        pairs = enumerate(combinations(range(rows.n_classes), 2))
        one_sided = {
            i
            for i, pair in pairs
            if not self.svcs_[i].has_two_sides(rows.standard[_members(rows, *pair)])
        }
        if not one_sided:
            return 0
        for block in row_blocks(n, 48 * n, at_most=self.at_once):
            queries = rows.queries(rows.given[block])
            for i, asking, others in self._by_pair(rows, queries):
                if i in one_sided:
                    found = self.svcs_[i].boundary(queries.standard[asking], others)[1]
                    missing += int(np.count_nonzero(~found))
        return missing

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        pairs = sizes["c"] * (sizes["c"] - 1) // 2
        need(sizes["pairs"] == pairs, "there must be an SVM for each two classes.")
        for machine in self.svcs_:
            need((machine.support < sizes["n"]).all(), "support vectors must be training rows.")

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        return {"n_neighbors": [3, 5], "C": [1.0, 10.0], "a_scale": [3.0, 10.0, 30.0]}

    # ------------------------------------------------------------------ queries

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        weights = np.full(queries.standard.shape, 1 / rows.n_features)
        for i, asking, others in self._by_pair(rows, queries):
            machine, some = self.svcs_[i], queries[asking]
            points, found = machine.boundary(some.standard, others)
            normals = np.abs(machine.gradients(points)[1])
            if self.normalize_gradient:
                lengths = np.sqrt(np.square(normals).sum(axis=1, keepdims=True))
                normals /= np.where(lengths > 0, lengths, 1.0)
            reach = self.D_[i] - _to_vectors(machine, some.standard, some.own)
            reach[~found | ~np.isfinite(reach)] = 0.0
            if self.clip:
                reach = np.maximum(reach, 0.0)
            weights[asking] = softmax(float(self.a_scale) * reach[:, None] * normals)
        return LocalMetrics(weights=weights)

    def _by_pair(
        self, rows: LocalRows, queries: LocalQueries
    ) -> Iterator[tuple[int, Indices, Matrix]]:
        """The number of each SVM, the queries that ask it, and the rows that it was trained on."""
        if rows.n_classes < 2:
            return
        pairs = two_classes(rows, queries)
        numbers = {pair: i for i, pair in enumerate(combinations(range(rows.n_classes), 2))}
        for first, second in np.unique(pairs, axis=0).tolist():
            asking = np.flatnonzero((pairs == (first, second)).all(axis=1))
            yield numbers[first, second], asking, rows.standard[_members(rows, first, second)]


def two_classes(rows: LocalRows, queries: LocalQueries) -> Indices:
    """The two classes with most of the nearest rows, (b, 2), ascending.

    Of classes with equally many the one with the nearest row, then the first.
    """
    b, J = len(queries), rows.n_classes
    if J == 2:
        return np.tile(np.arange(2), (b, 1))
    size = min(PAIR_VOTERS, len(rows) - (queries.own is not None))
    metrics = LocalMetrics.euclidean(b, rows.n_features)
    voters = rows.codes[rows.window(queries, metrics, size).found] + J * np.arange(b)[:, None]
    counts = np.bincount(voters.ravel(), minlength=b * J).reshape(b, J)
    order = np.argsort(rows.codes, kind="stable")
    starts = np.searchsorted(rows.codes[order], np.arange(J))
    squares, _ = rows.squared_distances(queries, metrics)
    # In single precision: what only rounding tells apart is equally far.
    nearest = np.minimum.reduceat(squares[:, order], starts, axis=1).astype(np.float32)
    first_two = np.lexsort((nearest, -counts), axis=1)[:, :2]
    return np.sort(first_two, axis=1)


def softmax(exponents: Matrix) -> Matrix:
    """Weights in proportion to exponentials, each row adding up to one."""
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _members(rows: LocalRows, first: int, second: int) -> Indices:
    return np.flatnonzero((rows.codes == first) | (rows.codes == second))


def _to_vectors(machine: KernelMachine, X: Matrix, own: Indices | None) -> Vector:
    """Distances to the nearest unbounded support vector; to one that is another row, if known.

    From differences: what lies on a support vector is at distance zero.
    """
    free = machine.unbounded
    distances = cdist(X, machine.vectors[free])
    if own is not None:
        distances[own[:, None] == machine.support[free]] = np.inf
    return np.asarray(distances.min(axis=1))
