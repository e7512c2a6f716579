"""DANN: discriminant analysis around each query makes its metric."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from nearfar.arrays import Indices
from nearfar.base.local_voter import LOCAL_PARAMETERS, LocalVoter
from nearfar.notices import warn
from nearfar.parameters import integer, none, one_of, real
from nearfar.state import State, whole
from nearfar.summaries.local_rows import LocalMetrics, LocalQueries, LocalRows
from nearfar.summaries.local_scatters import (
    LocalScatters,
    inverses,
    scatters_around,
    shrunk,
    window_size,
)

# Metrics that change by less are the same.
_SETTLED = 1e-3


class DANNClassifier(LocalVoter):
    r"""Nearest neighbours under the metric of a discriminant analysis around each query.

    Of the ``n_metric`` nearest training points of :math:`x_0`, weighted by
    :math:`(1 - (d_i/h)^3)^3` where h is the distance of the farthest, let :math:`S_w` be the
    covariance within and :math:`S_b` that between classes. Then

    .. math:: M(x_0) = S_w^{-1} S_b S_w^{-1} + \epsilon\, S_w^{-1} ,

    so that neighbourhoods are stretched along the boundary of classes and shrunk across it. With
    ``n_iter`` the points are found anew under the metric (a query stops at a set of points that it
    has seen, or when its metric changes by less than 0.001); such steps need not converge, and
    more than one rarely helps.

    Use it where few directions matter at each place, but not the same everywhere. It needs many
    points for :math:`S_w`: with few rows of many features it is worse than plain neighbours. Map
    by :class:`DANNSubspace` first, then.

    A window of one class has no :math:`S_b`; where no class varies at all, :math:`S_w` is I.

    Cost: :math:`O(n p^2 + p^3)` for each query and step, as matrix products over blocks of queries.
    Keeps the training points.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Fitted first; neighbours are searched after its ``transform``. None searches X itself.
    n_neighbors : int, default=5
        How many points vote.
    n_metric : int or None, default=None
        How many nearest points make a metric; None is a fifth of the rows, but at least 50 and 10
        for each feature and class.
    epsilon : float, default=1.0
        How much directions count in which classes do not differ.
    n_iter : int, default=1
        Steps, at most.
    shrinkage : float, default=1e-3
        What is mixed into covariances: this share of the mean variance, into that within classes.
    weights : {"tricube", "uniform"}, default="tricube"
        Weights of the points that make a metric.
    standardize : bool, default=True
        Divide each feature by its standard deviation first.
    ties : {"shrink", "first"}, default="shrink"
        "first" lets the smallest label win; scikit-learn's classifier does so.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    deviations_ : ndarray of shape (n_features,)
        Those of the training points, after the learner's map.
    n_metric_ : int
        The size used.
    estimator_ : object or None
        The fitted learner.

    See Also
    --------
    DANNSubspace, ShortFukunagaClassifier, MVEMClassifier, KNNClassifier

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
    >>> dann.n_metric_, round(dann.leave_one_out_error(), 3)
    (160, 0.011)
    """

    state = State({"n_metric_": whole(low=1, most="n")})
    parameters: ClassVar = {
        **LOCAL_PARAMETERS,
        "n_metric": [none, integer(1)],
        "epsilon": [real(0, open_low=True)],
        "n_iter": [integer(1)],
        "shrinkage": [real(0, 1)],
        "weights": [one_of("tricube", "uniform")],
    }
    settings = ({"epsilon": 10.0}, {"shrinkage": 0.3})
    at_once = 128

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 5,
        *,
        n_metric: int | None = None,
        epsilon: float = 1.0,
        n_iter: int = 1,
        shrinkage: float = 1e-3,
        weights: Literal["tricube", "uniform"] = "tricube",
        standardize: bool = True,
        ties: Literal["shrink", "first"] = "shrink",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.n_metric = n_metric
        self.epsilon = epsilon
        self.n_iter = n_iter
        self.shrinkage = shrinkage
        self.weights = weights
        self.standardize = standardize
        self.ties = ties
        self.n_jobs = n_jobs

    def _learn(self, rows: LocalRows) -> None:
        (n, p), c = rows.given.shape, rows.n_classes
        self._check_size("n_metric", n)
        self.n_metric_ = window_size(n, p, c) if self.n_metric is None else int(self.n_metric)
        if self.n_metric_ < p + c:
            warn(
                f"DANNClassifier: {self.n_metric_} points make a metric of {p} features and {c} "
                "classes: their covariance within classes is singular, and its inverse is that of "
                f"shrinkage={self.shrinkage:g}. Raise shrinkage or n_metric, or reduce X first, "
                "for example with DANNSubspace."
            )

    def _metrics(self, rows: LocalRows, queries: LocalQueries) -> LocalMetrics:
        m = min(self.n_metric_, len(rows) - (queries.own is not None))
        metrics = LocalMetrics.euclidean(len(queries), rows.n_features)
        at_work = np.arange(len(queries))
        matrices = np.empty((len(queries), rows.n_features, rows.n_features))
        seen: list[Indices] = []
        for step in range(self.n_iter):
            asked, window = queries[at_work], None
            if self.n_iter > 1:
                window = rows.window(asked, metrics, m)
                new = np.ones(len(at_work), dtype=bool)
                for before in seen:
                    new &= (before[at_work] != window.found).any(axis=1)
                at_work, window = at_work[new], window[new]
                asked, metrics = asked[new], metrics[new]
                seen.append(np.full((len(queries), m), -1))
                seen[-1][at_work] = window.found
            if not len(at_work):
                break
            scatters = scatters_around(
                rows, asked, metrics, m, window=window, tricube=self.weights == "tricube"
            )
            made = discriminant_metrics(scatters, self.epsilon, self.shrinkage)
            moving = np.ones(len(at_work), dtype=bool)
            if step:
                change = np.square(made - matrices[at_work]).sum(axis=(1, 2))
                size = np.square(matrices[at_work]).sum(axis=(1, 2))
                moving = change > _SETTLED**2 * size
            matrices[at_work] = made
            at_work = at_work[moving]
            metrics = LocalMetrics(full=matrices[at_work])
        return LocalMetrics(full=matrices)

    @classmethod
    def _grid(cls, n: int, p: int, n_classes: int) -> dict[str, list[Any]]:
        return {
            "n_neighbors": [3, 5, 9],
            "n_metric": sorted({window_size(n, p, n_classes), max(1, n // 2), n}),
            "epsilon": [0.1, 1.0, 10.0],
            "shrinkage": [1e-3, 0.1],
        }


def discriminant_metrics(
    scatters: LocalScatters, epsilon: float, shrinkage: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The metric of each pair of scatters, within and between, of shape (b, p, p)."""
    p = scatters.within.shape[1]
    inverse = inverses(shrunk(scatters.within, shrinkage), regular=shrinkage > 1e-8 * p)
    found = np.matmul(np.matmul(inverse, scatters.between), inverse)
    found = (found + found.transpose(0, 2, 1)) / 2
    found += epsilon * inverse
    return np.asarray(found)
