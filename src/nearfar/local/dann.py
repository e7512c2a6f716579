"""DANN: a nearest-neighbor classifier with a local discriminant metric per query."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from nearfar.arrays import Indices
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalClassifier
from nearfar.notices import warn
from nearfar.parameters import integer, none, one_of, real
from nearfar.state import State, integer_value
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows
from nearfar.summaries.local_scatters import (
    LocalScatters,
    choose_window_size,
    compute_scatters,
    invert_matrices,
    shrink_scatters,
)

# A query stops iterating when its metric changes by less than this fraction of the metric's
# Frobenius norm.
_TOLERANCE = 1e-3


class DANNClassifier(LocalClassifier):
    r"""Discriminant adaptive nearest-neighbor classifier (DANN): one local metric per query.

    For a query :math:`x_0`, the ``n_metric_neighbors`` nearest training points are weighted by
    :math:`(1 - (d_i/h)^3)^3`, where :math:`d_i` is the distance from the query and h the distance
    of the farthest of these points. With :math:`S_w` and :math:`S_b` the weighted covariances
    within and between classes, the metric of the query is

    .. math:: M(x_0) = S_w^{-1} S_b S_w^{-1} + \epsilon\, S_w^{-1} .

    It stretches the neighborhood along the class boundary and shrinks it across the boundary.

    Use it if few directions matter around each point, and these directions differ from place to
    place. Estimating :math:`S_w` takes many points: with few rows and many features, DANN is worse
    than k-NN with the Euclidean distance. In this case, reduce X with :class:`DANNSubspace` first.

    Cost: :math:`O(n p^2 + p^3)` per query and iteration, as matrix products over blocks of queries.
    The fitted classifier stores the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. If None, X itself is searched.
    n_neighbors : int, default=5
        Number of neighbors that vote.
    n_metric_neighbors : int or None, default=None
        Number of nearest training points that define a metric. None uses a fifth of the rows, but
        at least 50 and at least ``10 * (n_features + n_classes)`` rows (or all rows, if there are
        fewer).
    epsilon : float, default=1.0
        Weight of the directions in which the classes do not differ. With larger values, the metric
        is closer to a multiple of :math:`S_w^{-1}`.
    max_iter : int, default=1
        Maximum number of iterations. From the second iteration on, the nearest points are found
        with the metric of the previous iteration. More than one iteration rarely helps. See Notes.
    shrinkage : float, default=1e-3
        Shrinkage of the covariances. :math:`S_w` is replaced by
        :math:`(1-s) S_w + s (\mathrm{tr}\, S_w / p) I`, where s is this number.
    weights : {"tricube", "uniform"}, default="tricube"
        Weights of the ``n_metric_neighbors`` points: "tricube" uses the formula above, "uniform"
        weights all points equally.
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
    n_iter_ : int
        Maximum number of iterations per query, equal to ``max_iter``. Queries iterate in
        ``predict``, not in ``fit``.
    n_metric_neighbors_ : int
        Value of ``n_metric_neighbors`` that was used.
    estimator_ : object or None
        Fitted learner, or None if ``estimator`` is None.

    See Also
    --------
    DANNSubspace, ShortFukunagaClassifier, MVEMClassifier, KNNClassifier

    Notes
    -----
    The iterations of a query need not converge. A query stops early if it gets a set of nearest
    points that it has had before, or if its metric changes by less than 0.001 in relative norm.

    If all ``n_metric_neighbors`` points have the same label, :math:`S_b` is zero. If no class
    varies among them, :math:`S_w` is the identity.

    References
    ----------
    .. [1] T. Hastie, R. Tibshirani, "Discriminant adaptive nearest neighbor classification", IEEE
       Transactions on Pattern Analysis and Machine Intelligence 18, 1996.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 3.1.4.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import DANNClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> dann = DANNClassifier().fit(X, y)
    >>> dann.n_metric_neighbors_, round(dann.leave_one_out_error(), 3)
    (160, 0.011)
    """

    renamed: ClassVar = {
        "n_metric": "n_metric_neighbors",
        "n_iter": "max_iter",
        "n_metric_": "n_metric_neighbors_",
    }
    state = State({"n_metric_neighbors_": integer_value(low=1, max_size="n")})
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "n_metric_neighbors": [none, integer(1)],
        "epsilon": [real(0, open_low=True)],
        "max_iter": [integer(1)],
        "shrinkage": [real(0, 1)],
        "weights": [one_of("tricube", "uniform")],
    }
    settings = ({"epsilon": 10.0}, {"shrinkage": 0.3})
    max_queries_per_block = 128

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 5,
        *,
        n_metric_neighbors: int | None = None,
        epsilon: float = 1.0,
        max_iter: int = 1,
        shrinkage: float = 1e-3,
        weights: Literal["tricube", "uniform"] = "tricube",
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.n_metric_neighbors = n_metric_neighbors
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.shrinkage = shrinkage
        self.weights = weights
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    @property
    def n_iter_(self) -> int:
        """Maximum number of iterations per query, equal to ``max_iter``."""
        return int(self.max_iter)

    def _learn(self, rows: LocalRows) -> None:
        (n, p), c = rows.X.shape, rows.n_classes
        self._check_size("n_metric_neighbors", n)
        self.n_metric_neighbors_ = (
            choose_window_size(n, p, c)
            if self.n_metric_neighbors is None
            else int(self.n_metric_neighbors)
        )
        if self.n_metric_neighbors_ < p + c:
            warn(
                f"DANNClassifier: n_metric_neighbors={self.n_metric_neighbors_} points are too few "
                f"for {p} features and {c} classes: the local within-class covariance is singular, "
                f"and its inverse depends on shrinkage={self.shrinkage:g}. Increase shrinkage or "
                "n_metric_neighbors, or reduce X first, for example with DANNSubspace."
            )

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        m = min(self.n_metric_neighbors_, len(rows) - (queries.excluded is not None))
        metrics = LocalMetrics.euclidean(len(queries), rows.n_features)
        active = np.arange(len(queries))
        matrices = np.empty((len(queries), rows.n_features, rows.n_features))
        past_windows: list[Indices] = []
        for step in range(self.max_iter):
            active_queries, window = queries[active], None
            if self.max_iter > 1:
                window = rows.find_window(active_queries, metrics, m)
                is_new = np.ones(len(active), dtype=bool)
                for past_window in past_windows:
                    is_new &= (past_window[active] != window.indices).any(axis=1)
                active, window = active[is_new], window[is_new]
                active_queries, metrics = active_queries[is_new], metrics[is_new]
                past_windows.append(np.full((len(queries), m), -1))
                past_windows[-1][active] = window.indices
            if not len(active):
                break
            scatters = compute_scatters(
                rows, active_queries, metrics, m, window=window, tricube=self.weights == "tricube"
            )
            new_matrices = compute_discriminant_metrics(scatters, self.epsilon, self.shrinkage)
            is_moving = np.ones(len(active), dtype=bool)
            if step:
                squared_change = np.square(new_matrices - matrices[active]).sum(axis=(1, 2))
                squared_norm = np.square(matrices[active]).sum(axis=(1, 2))
                is_moving = squared_change > _TOLERANCE**2 * squared_norm
            matrices[active] = new_matrices
            active = active[is_moving]
            metrics = LocalMetrics(full=matrices[active])
        return LocalMetrics(full=matrices)

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        return {
            "n_neighbors": [3, 5, 9],
            "n_metric_neighbors": sorted({choose_window_size(n, p, n_classes), max(1, n // 2), n}),
            "epsilon": [0.1, 1.0, 10.0],
            "shrinkage": [1e-3, 0.1],
        }


def compute_discriminant_metrics(
    scatters: LocalScatters, epsilon: float, shrinkage: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the DANN metrics for within-class and between-class scatters, of shape (b, p, p)."""
    p = scatters.within.shape[1]
    inverse = invert_matrices(
        shrink_scatters(scatters.within, shrinkage), regular=shrinkage > 1e-8 * p
    )
    metrics = np.matmul(np.matmul(inverse, scatters.between), inverse)
    metrics = (metrics + metrics.transpose(0, 2, 1)) / 2
    metrics += epsilon * inverse
    return np.asarray(metrics)
