"""Nearest-neighbor classifier with the local metric of Short and Fukunaga."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from nearfar.arrays import Matrix
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalClassifier
from nearfar.parameters import integer, none, real
from nearfar.state import State, integer_value
from nearfar.summaries.local_moments import ClassSums
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows


class ShortFukunagaClassifier(LocalClassifier):
    r"""Nearest-neighbor classifier with extra weight on the line between two local class means.

    Among the ``n_metric_neighbors`` nearest training points of a query :math:`x_0`, let v be the
    difference between the means of the two most frequent classes. The metric of the query is

    .. math:: M(x_0) = v v^T / \|v\|^2 + \epsilon I .

    It is a simpler form of :class:`DANNClassifier`, with one direction and without the
    within-class scatter. It is faster, and it works with too few rows to estimate that scatter. If
    all ``n_metric_neighbors`` points have the same label, the metric is Euclidean.

    Cost: :math:`O(n p)` per query. The fitted classifier stores the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. If None, X itself is searched.
    n_neighbors : int, default=5
        Number of neighbors that vote.
    n_metric_neighbors : int or None, default=None
        Number of nearest training points that define a metric. None uses a fifth of the rows,
        but at least 50 (or all rows, if there are fewer).
    epsilon : float, default=0.1
        Weight of the directions in which the classes do not differ. These are all directions
        orthogonal to v. The direction v has the weight 1 + epsilon.
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
    n_metric_neighbors_ : int
        Value of ``n_metric_neighbors`` that was used.
    estimator_ : object or None
        Fitted learner, or None if ``estimator`` is None.

    See Also
    --------
    DANNClassifier, KNNClassifier

    References
    ----------
    .. [1] R. Short, K. Fukunaga, "The optimal distance measure for nearest neighbor
       classification", IEEE Transactions on Information Theory 27, 1981.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 3.1.4.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import ShortFukunagaClassifier
    >>> classifier = ShortFukunagaClassifier().fit(*load_wine(return_X_y=True))
    >>> classifier.n_metric_neighbors_, round(classifier.leave_one_out_error(), 3)
    (50, 0.039)
    """

    renamed: ClassVar = {"n_metric": "n_metric_neighbors", "n_metric_": "n_metric_neighbors_"}
    state = State({"n_metric_neighbors_": integer_value(low=1, max_size="n")})
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "n_metric_neighbors": [none, integer(1)],
        "epsilon": [real(0, open_low=True)],
    }
    settings = ({"epsilon": 1.0},)

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 5,
        *,
        n_metric_neighbors: int | None = None,
        epsilon: float = 0.1,
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.n_metric_neighbors = n_metric_neighbors
        self.epsilon = epsilon
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    def _learn(self, rows: LocalRows) -> None:
        self._check_size("n_metric_neighbors", len(rows))
        n = len(rows)
        self.n_metric_neighbors_ = int(
            min(n, max(n // 5, 50)) if self.n_metric_neighbors is None else self.n_metric_neighbors
        )

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        b, p = queries.standard.shape
        m = min(self.n_metric_neighbors_, len(rows) - (queries.excluded is not None))
        window = rows.find_window(queries, LocalMetrics.euclidean(b, p), m)
        sums = rows.moments.compute_class_sums(rows.moments.make_dense_weights(window.indices, 1.0))
        weights = np.full((b, p), float(self.epsilon))
        return LocalMetrics(weights=weights, directions=compute_mean_directions(sums)[:, None, :])

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        sizes = {min(n, 50), max(1, n // 5), max(1, n // 2)}
        return {
            "n_neighbors": [3, 5, 9],
            "n_metric_neighbors": sorted(sizes),
            "epsilon": [0.1, 1.0],
        }


def compute_mean_directions(sums: ClassSums) -> Matrix:
    """Return unit vectors between the means of the two classes with the largest weights.

    If only one class has weight, the vector is zero.
    """
    b = np.arange(len(sums.weights))
    # A stable sort selects the first of several classes with equal weights. If only one class has a
    # positive weight, the difference is zero.
    order = np.argsort(-sums.weights, axis=1, kind="stable")
    first, second = order[:, 0], order[:, min(1, order.shape[1] - 1)]
    differences = sums.means[b, first] - sums.means[b, second]
    differences[sums.weights[b, second] == 0] = 0
    lengths = np.sqrt(np.square(differences).sum(axis=1))
    # Means that are equal in exact arithmetic may differ by rounding. Treat them as equal.
    sizes = np.sqrt(np.square(sums.means[b, first]).sum(axis=1))
    is_nonzero = lengths > 1e-13 * sizes
    return np.asarray(
        np.where(is_nonzero, 1 / np.where(is_nonzero, lengths, 1.0), 0.0)[:, None] * differences
    )
