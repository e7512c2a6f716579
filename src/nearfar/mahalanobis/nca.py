"""Neighborhood components analysis."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.base.on_axes import N_PRINCIPAL
from nearfar.mahalanobis.soft_learner import (
    SolverFrame,
    _SoftLearner,
    find_best_descent,
    shrink_start,
)
from nearfar.mahalanobis.starts import STARTS, has_few_rows
from nearfar.notices import warn_not_converged
from nearfar.parameters import boolean, integer, none, one_of, random_state, real
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.descent import Descent, descend
from nearfar.solvers.soft_neighbors import SoftNeighbors
from nearfar.summaries.whitening import standardize_rows

# Maximum number of rows for which n_neighbors="auto" uses all points as neighbors.
_ALL_UP_TO = 10_000
# Value of n_neighbors="auto" for more than 10,000 rows.
_NEIGHBORS = 100
# With more than 10,000 rows, a fit with neighbor lists starts on a random subset of this many rows.
_SUBSET = 3_000
# Fraction of max_iter that is spent on the random subset.
_SUBSET_FRACTION = 0.3
# Number of iterations before the neighbor lists are updated for the first time. The number doubles
# after each update.
_FIRST_LISTS = 10


class NCA(_SoftLearner):
    r"""Neighborhood components analysis: a linear map for soft nearest-neighbor classification.

    Each point selects another point as its neighbor with probability
    :math:`p_{ij} \propto e^{-\|L(x_i - x_j)\|^2}`. It is classified correctly with probability
    :math:`p_i = \sum_{j \ne i, y_j = y_i} p_{ij}`. NCA maximizes over the linear map L

    .. math:: f(L) = \sum_i p_i \quad\text{or}\quad g(L) = \sum_i \log p_i ,

    the expected number of correct leave-one-out classifications, or the log-probability that all
    are correct. Neither is concave. L-BFGS finds a local maximum, in coordinates in which the
    features have unit variance, so that the units of the features do not affect it.

    Use it with labels if you want to classify by nearest neighbors, or to plot the data in few
    dimensions: it separates neighborhoods rather than class means. Outliers and wrong labels cost
    at most 1 each in f, but have no limit in g. It can fit noise if there are few rows for the
    number of entries of L. Set ``n_components`` or ``l2`` in that case.

    Cost: O(n² r) per evaluation for r rows of L, done in blocks; no n×n array is stored. With
    ``n_neighbors`` an evaluation is O(n k r), and there are a few searches of O(n² r).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. L has this number of rows. None learns a square map, with one row
        per direction in which X varies if ``init="auto"``.
    n_pca_components : int, "auto" or None, default=None
        Number of principal components to project X onto before learning. ``components_`` still maps
        X itself. None uses all features. "auto" projects only if there are more than 128 features,
        see Notes. The components depend on the units of the features.
    objective : {"sum", "log"}, default="sum"
        Objective to maximize: f ("sum") or g ("log"). Points that are alone in their class add 0
        to f and are left out of g.
    init : str or array of shape (n_components, n_features), default="auto"
        Starting point: "identity" (Euclidean distance), "pca" (whitened principal axes), "lda"
        (directions that separate the class means), "within" (whitened by the within-class
        covariance) or "random". See Notes for "auto" and for the scale.
    n_neighbors : int, None or "auto", default="auto"
        Number of nearest points that each point can select, under the current map. The lists are
        updated as the map changes. None uses all points. "auto" means None for up to 10,000 rows
        and 100 for more rows.
    l2 : float, default=0.0
        Weight of the penalty: the factor of :math:`n u^2 \|L\|_F^2`, where u² is the mean variance
        over the directions in which the data vary.
    n_init : int, default=1
        Number of starts. The best result is kept. The first start is ``init``, the others are
        random maps.
    max_iter : int, default=100
        Maximum number of iterations. The limit applies to each run.
    tol : float, default=1e-5
        Stop when two successive iterations improve the objective by less than this fraction.
    warm_start : bool, default=False
        If True, start from the previous fit. If its map has another shape, ``init`` is used.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used for random initial maps, and to sample the 3,000
        rows on which a fit starts if there are more than 10,000 rows and ``n_neighbors`` is not
        None.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores. The rows are divided among the
        threads.
    verbose : int, default=0
        If positive, print one line per iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The linear map L.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    objective_ : float
        Value of f or g at the solution, over all neighbors, minus the penalty. f is at most n.
    n_pca_components_ : int or None
        Number of principal components used; None if X was not projected.
    n_iter_ : int
        Number of iterations of the best run.
    history_ : dict of lists
        Lists with one entry per iteration: "objective", "step" and "seconds". If ``n_neighbors`` is
        a number, the objective is summed only over the lists of neighbors. In the first iterations,
        it may be summed over a subset of the rows.
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    Notes
    -----
    Rules of "auto":

    * ``init``: for a square map, the Euclidean distance of the standardized features. With fewer
      components, "within" if ``n_samples - n_classes`` is at least three times the number of
      directions in which X varies, otherwise "pca".
    * ``n_pca_components``: None up to 128 features. Otherwise 64, but at most ``n_samples // 2 -
      1`` and at least ``n_components``.

    A named initial map is scaled down if the mean squared distance under it is above 25, so that
    each point has more than one soft neighbor.

    If the classes can be separated without errors, the optimal map is infinitely large. The descent
    then stops when the objective is within ``tol`` of its limit.

    See Also
    --------
    MCML, MLKR, LMNN, nearfar.solvers.soft_neighbors.soft_neighbors

    References
    ----------
    .. [1] J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov, "Neighbourhood Components
       Analysis", NIPS 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> from nearfar import NCA, KNNClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> bool(cross_val_score(KNNClassifier(NCA(n_components=2)), X, y).mean() > 0.93)
    True
    """

    learner_tags = LearnerTags(reads="supervision")
    renamed: ClassVar = {
        "n_restarts": "n_init",
        "n_principal": "n_pca_components",
        "n_principal_": "n_pca_components_",
    }
    settings = ({"l2": 1e-3}, {"l2": 1e-2})
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "n_pca_components": N_PRINCIPAL,
        "objective": [one_of("sum", "log")],
        "init": STARTS,
        "n_neighbors": [one_of("auto"), none, integer(1)],
        "l2": [real(0)],
        "n_init": [integer(1)],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "warm_start": [boolean],
        "random_state": [random_state],
        "n_jobs": [none, integer(1), integer(high=-1)],
        "verbose": [integer(0)],
    }
    _sign = -1.0
    _coordinates = staticmethod(standardize_rows)

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_pca_components: int | Literal["auto"] | None = None,
        objective: Literal["sum", "log"] = "sum",
        init: str | ArrayLike = "auto",
        n_neighbors: int | Literal["auto"] | None = "auto",
        l2: float = 0.0,
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-5,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_pca_components = n_pca_components
        self.objective = objective
        self.init = init
        self.n_neighbors = n_neighbors
        self.l2 = l2
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map from labeled points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        NCA
            The fitted estimator.
        """
        self._check_parameters()
        previous_map = self.__dict__.get("components_") if self.warm_start else None
        rows = self._check_X(X, reset=True, min_samples=2)
        if self._fitted_on_axes(rows, previous_map, y):
            return self
        classes, codes = self._check_labels(y, len(rows))
        self._check_sizes(codes)
        order = np.argsort(codes, kind="stable")
        self._learn(rows[order], codes[order], previous_map)
        self.classes_ = classes
        return self

    def _learn(self, rows: Floats, codes: Indices, previous_map: Floats | None) -> None:
        """Learn from rows sorted by class."""
        frame = self._make_frame(rows, codes)
        has_few = has_few_rows(len(rows), int(codes[-1]) + 1, frame.into.shape[1])
        if self._starts_from_identity(previous_map, rows.shape[1]):
            n_directions = frame.into.shape[1]
            # Rows beyond the directions in which X varies stay zero.
            identity = np.eye(self.n_components or n_directions, n_directions)
            start = shrink_start(identity, frame)
        else:
            start = self._make_start(frame, "pca" if has_few else "within", previous_map)
        engine = self._make_engine(frame.points, codes, self.objective)
        loss = _NegativeMean(engine, self._make_penalty(frame))
        runs: list[Descent] = []
        with self._keep_best(runs, frame):
            for _ in range(self.n_init):
                runs.append(Descent(start))
                self._run(runs[-1], loss)
                runs[-1].objective = loss.value(runs[-1].point)
                start = self._make_random_start(frame, len(runs))
        best = find_best_descent(runs)
        self.objective_ = -best.objective * len(rows)
        if not best.converged:
            warn_not_converged("NCA", self.max_iter)

    def _starts_from_identity(self, previous_map: Floats | None, p: int) -> bool:
        """Return True if the descent starts from the identity in the solver's coordinates."""
        is_auto = isinstance(self.init, str) and self.init == "auto"
        resumes = previous_map is not None and previous_map.shape == (p, p)
        return is_auto and self.n_components in (None, p) and not resumes

    def _run(self, descent: Descent, loss: _NegativeMean) -> None:
        """Run one descent, over all points or over lists of nearest neighbors."""
        n = len(loss.engine.X)
        k = self.n_neighbors
        if k == "auto":
            k = None if n <= _ALL_UP_TO else _NEIGHBORS
        report = self._make_report(n)
        if k is None or k >= n - 1:
            descend(loss, descent, max_iter=self.max_iter, tol=self.tol, report=report)
            return
        if n > _ALL_UP_TO:
            subset_loss = loss.restrict_to_subset(_SUBSET, self.random_state)
            limit = max(1, int(_SUBSET_FRACTION * self.max_iter))
            descend(subset_loss, descent, max_iter=limit, tol=10 * self.tol, report=report)
        n_iterations = _FIRST_LISTS
        while descent.n_iter < self.max_iter:
            listed_loss = loss.restrict_to_lists(descent.point, k)
            n_before, limit = descent.n_iter, min(self.max_iter, descent.n_iter + n_iterations)
            first = listed_loss(descent.point)[0]
            descend(listed_loss, descent, max_iter=limit, tol=self.tol, report=report)
            gain = first - descent.objective
            # Convergence with old neighbor lists does not end the fit. The fit ends if updated
            # lists bring no improvement.
            if descent.converged and (
                descent.n_iter - n_before <= 2 or gain <= 10 * self.tol * abs(first)
            ):
                return
            descent.converged = False
            n_iterations *= 2

    def _make_penalty(self, frame: SolverFrame) -> Matrix:
        """Return the quadratic form of the penalty in the solver's coordinates."""
        unit = float(frame.statistics.total_variances().sum()) / frame.into.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):  # The objective is checked.
            return self.l2 * unit * (frame.into.T @ frame.into)


class _NegativeMean:
    """Function to minimize: the negative mean of the objective over the rows, plus the penalty."""

    def __init__(
        self, engine: SoftNeighbors, penalty: Matrix, neighbors: Indices | None = None
    ) -> None:
        self.engine, self.penalty, self.neighbors = engine, penalty, neighbors

    def __call__(self, L: Matrix) -> tuple[float, Matrix]:
        """Return the value and the gradient."""
        n = len(self.engine.X)
        value, gradient = self.engine.evaluate(L, self.neighbors)
        penalty_gradient = L @ self.penalty
        return float(np.sum(L * penalty_gradient)) - value / n, 2 * penalty_gradient - gradient / n

    def value(self, L: Matrix) -> float:
        """Return the value with all points as neighbors, in double precision."""
        value = self.engine.value(L)
        return float(np.sum(L * (L @ self.penalty))) - value / len(self.engine.X)

    def restrict_to_subset(self, size: int, seed: Any) -> _NegativeMean:
        """Return the same function for a random subset of the rows, without neighbor lists."""
        engine = self.engine
        rng = check_random_state(seed)
        rows = np.sort(rng.choice(len(engine.X), size, replace=False))
        _, y = np.unique(engine.y[rows], return_inverse=True)
        return _NegativeMean(engine.with_points(engine.X[rows], y.reshape(-1)), self.penalty)

    def restrict_to_lists(self, L: Matrix, k: int) -> _NegativeMean:
        """Return the same function, restricted to the k nearest neighbors of each point under L."""
        engine = self.engine
        Z = (engine.X @ L.T).astype(np.float32)
        _, lists = kneighbors(Z, n_neighbors=k)
        if engine.objective == "log":
            _add_own_class(lists, Z, engine.y)
        return _NegativeMean(engine, self.penalty, lists)


def _add_own_class(lists: Indices, Z: Floats, y: Indices) -> None:
    """Make sure that the neighbor list of each point contains a point of its class.

    If there is none, the nearest point of the class replaces the last point of the list.
    """
    has_no_own = ~(y[lists] == y[:, None]).any(axis=1)
    for label in np.unique(y[has_no_own]):
        members = np.flatnonzero(y == label)
        queries = np.flatnonzero(has_no_own[members])
        if len(members) > 1:
            _, nearest = kneighbors(Z[members], Z[members[queries]], n_neighbors=2)
            is_itself = nearest[:, 0] == queries
            lists[members[queries], -1] = members[np.where(is_itself, nearest[:, 1], nearest[:, 0])]
