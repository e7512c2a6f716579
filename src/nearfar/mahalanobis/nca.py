"""Neighbourhood components analysis."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.base.on_axes import N_PRINCIPAL
from nearfar.mahalanobis.soft_learner import SolverFrame, _SoftLearner, best_of, softened
from nearfar.mahalanobis.starts import STARTS, has_few_rows
from nearfar.notices import warn_of_limit
from nearfar.parameters import boolean, integer, none, one_of, random_state, real
from nearfar.search.exact_search import kneighbors
from nearfar.solvers.descent import Descent, descend
from nearfar.solvers.soft_neighbors import SoftNeighbors
from nearfar.summaries.whitening import standardized

# "auto": up to so many rows all are neighbours, beyond so many.
_ALL_UP_TO, _NEIGHBORS = 10_000, 100
# Rows of the subset from which a large fit starts, and its share of the iterations.
_SUBSET, _SUBSET_SHARE = 3_000, 0.3
# Iterations until lists are renewed, at first; then each time twice as many.
_FIRST_LISTS = 10


class NCA(_SoftLearner):
    r"""Neighbourhood components analysis: let soft nearest neighbours classify as well as they can.

    A point chooses another as its neighbour with probability
    :math:`p_{ij} \propto e^{-\|L(x_i - x_j)\|^2}`, and is right with probability
    :math:`p_i = \sum_{j \ne i, y_j = y_i} p_{ij}`. NCA maximises over the linear map L

    .. math:: f(L) = \sum_i p_i \quad\text{or}\quad g(L) = \sum_i \log p_i ,

    the expected number of points that are classified rightly, leaving each out in turn, or the
    log-probability that all are. Neither is concave: L-BFGS finds a local maximum, in coordinates
    in which the features have unit variance, so that their units do not matter to it.

    Use it with labels when nearest neighbours are what you want, or for a picture in few
    dimensions, where it looks at the neighbours that there are and not at class means. Outliers and
    wrong labels cost f at most 1 each, and g without limit. It can fit noise where rows are few for
    the numbers in L: give ``n_components``, or ``l2``.

    Cost: O(n² r) an evaluation for r rows of L, in blocks; no n×n array. With ``n_neighbors`` an
    evaluation is O(n k r), and there are a few searches of O(n² r).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output: the rows of L; None learns a square map.
    n_principal : int, "auto" or None, default=None
        Principal components that are kept before anything is whitened: the map is learned along
        these axes, as behind :class:`PCA`, and ``components_`` is a map of X all the same. None is
        all. "auto" is None up to 128 features and 64 beyond, or as many as the map has rows. They
        depend on the units of the features.
    objective : {"sum", "log"}, default="sum"
        What is maximised: f or g. Points that are alone in their class count 0 in f and are left
        out of g.
    init : str or array of shape (n_components, n_features), default="auto"
        Where to start: "identity" is the Euclidean distance, "pca" the standardised principal axes,
        "lda" the directions in which class means differ, "within" all directions, whitened by the
        within-class covariance, "random" random numbers; each of them scaled down where the mean
        squared distance would be above 25, so that points have more than one soft neighbour. "auto"
        is the Euclidean distance of the standardised features for a square map; with fewer
        components it is "within" where there are three times as many rows as features, "pca" where
        fewer.
    n_neighbors : int, None or "auto", default="auto"
        Points that may be chosen: only the k nearest under the map, lists of which are renewed as
        the map moves; None is all others. "auto" is None up to 10,000 rows and 100 beyond.
    l2 : float, default=0.0
        Weight of a penalty: on :math:`n u^2 \|L\|_F^2`, u² being the mean variance of the
        directions in which the data vary.
    n_restarts : int, default=1
        Starts of which the best is kept: the first is ``init``, others are random.
    max_iter : int, default=100
        Steps at most: from each start.
    tol : float, default=1e-5
        Stops when an iteration lowers the objective by less than this share; here, when two raise
        it by less.
    warm_start : bool, default=False
        Start from the last fit: from its map, if there was one of the same shape.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: random starts, and the subset from which a large fit starts.
    n_jobs : int or None, default=None
        Threads; None is 1, -1 all cores. They share the rows.
    verbose : int, default=0
        Print the progress: a line for each iteration.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map L.
    mean_ : ndarray of shape (n_features,)
        Mean of the training points.
    objective_ : float
        f or g at the solution over all neighbours, less the penalty; f is at most n.
    n_principal_ : int or None
        What "auto" was, or what was given.
    n_iter_ : int
        Iterations from the start that was best.
    history_ : dict of lists
        "objective", "step" and "seconds" of each iteration. With ``n_neighbors`` this objective is
        what the solver sees: over the lists, and at first over a subset.
    classes_ : ndarray of shape (n_classes,)
        The labels.

    Notes
    -----
    Where classes can be told apart without error the best map is infinitely large. The descent then
    stops where the objective is within ``tol`` of it.

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
    settings = ({"l2": 1e-3}, {"l2": 1e-2})
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "n_principal": N_PRINCIPAL,
        "objective": [one_of("sum", "log")],
        "init": STARTS,
        "n_neighbors": [one_of("auto"), none, integer(1)],
        "l2": [real(0)],
        "n_restarts": [integer(1)],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "warm_start": [boolean],
        "random_state": [random_state],
        "n_jobs": [none, integer(1), integer(high=-1)],
        "verbose": [integer(0)],
    }
    _sign = -1.0
    _coordinates = staticmethod(standardized)

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_principal: int | Literal["auto"] | None = None,
        objective: Literal["sum", "log"] = "sum",
        init: str | ArrayLike = "auto",
        n_neighbors: int | Literal["auto"] | None = "auto",
        l2: float = 0.0,
        n_restarts: int = 1,
        max_iter: int = 100,
        tol: float = 1e-5,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_principal = n_principal
        self.objective = objective
        self.init = init
        self.n_neighbors = n_neighbors
        self.l2 = l2
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map from labelled points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        NCA
            Itself.
        """
        start_from = self.__dict__.get("components_") if self.warm_start else None
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        if self._fitted_on_axes(rows, start_from, y):
            return self
        classes, codes = self._check_labels(y, len(rows))
        self._check_sizes(codes)
        order = np.argsort(codes, kind="stable")
        self._learn(rows[order], codes[order], start_from)
        self.classes_ = classes
        return self

    def _learn(self, rows: Floats, codes: Indices, start_from: Floats | None) -> None:
        """From rows sorted by class."""
        frame = self._frame(rows, codes)
        few = has_few_rows(len(rows), int(codes[-1]) + 1, frame.into.shape[1])
        if self._plainly(start_from, rows.shape[1]):
            start = softened(np.eye(frame.into.shape[1]), frame)
        else:
            start = self._start(frame, "pca" if few else "within", start_from)
        engine = self._engine(frame.points, codes, self.objective)
        lowered = _Lowered(engine, self._penalty(frame))
        runs: list[Descent] = []
        with self._kept(runs, frame):
            for _ in range(self.n_restarts):
                runs.append(Descent(start))
                self._run(runs[-1], lowered)
                runs[-1].objective = lowered.value(runs[-1].point)
                start = self._random_start(frame, len(runs))
        best = best_of(runs)
        self.objective_ = -best.objective * len(rows)
        if not best.converged:
            warn_of_limit("NCA", self.max_iter)

    def _plainly(self, start_from: Floats | None, p: int) -> bool:
        """Whether to start from the coordinates of the solver as they are."""
        auto = isinstance(self.init, str) and self.init == "auto"
        goes_on = start_from is not None and start_from.shape == (p, p)
        return auto and self.n_components in (None, p) and not goes_on

    def _run(self, found: Descent, lowered: _Lowered) -> None:
        """One descent: over all neighbours, or over lists of the nearest."""
        n = len(lowered.engine.X)
        k = self.n_neighbors
        if k == "auto":
            k = None if n <= _ALL_UP_TO else _NEIGHBORS
        report = self._report(n)
        if k is None or k >= n - 1:
            descend(lowered, found, max_iter=self.max_iter, tol=self.tol, report=report)
            return
        if n > _ALL_UP_TO:
            some = lowered.subset(_SUBSET, self.random_state)
            limit = max(1, int(_SUBSET_SHARE * self.max_iter))
            descend(some, found, max_iter=limit, tol=10 * self.tol, report=report)
        pace = _FIRST_LISTS
        while found.n_iter < self.max_iter:
            listed = lowered.listed(found.point, k)
            before, limit = found.n_iter, min(self.max_iter, found.n_iter + pace)
            first = listed(found.point)[0]
            descend(listed, found, max_iter=limit, tol=self.tol, report=report)
            gained = first - found.objective
            # Only with new lists in hand is it known that there is nothing left to gain.
            if found.converged and (
                found.n_iter - before <= 2 or gained <= 10 * self.tol * abs(first)
            ):
                return
            found.converged = False
            pace *= 2

    def _penalty(self, frame: SolverFrame) -> Matrix:
        """The quadratic form of the penalty in the coordinates of the solver."""
        unit = float(frame.statistics.total_variances().sum()) / frame.into.shape[1]
        return self.l2 * unit * (frame.into.T @ frame.into)


class _Lowered:
    """What is lowered: minus the mean of the objective over rows, with the penalty."""

    def __init__(
        self, engine: SoftNeighbors, penalty: Matrix, neighbors: Indices | None = None
    ) -> None:
        self.engine, self.penalty, self.neighbors = engine, penalty, neighbors

    def __call__(self, L: Matrix) -> tuple[float, Matrix]:
        """Value and gradient."""
        n = len(self.engine.X)
        value, gradient = self.engine.evaluate(L, self.neighbors)
        drag = L @ self.penalty
        return float(np.sum(L * drag)) - value / n, 2 * drag - gradient / n

    def value(self, L: Matrix) -> float:
        """Over all neighbours, in double precision."""
        value = self.engine.value(L)
        return float(np.sum(L * (L @ self.penalty))) - value / len(self.engine.X)

    def subset(self, size: int, seed: Any) -> _Lowered:
        """Over all neighbours in a random subset of the rows."""
        engine = self.engine
        rng = check_random_state(seed)
        rows = np.sort(rng.choice(len(engine.X), size, replace=False))
        _, y = np.unique(engine.y[rows], return_inverse=True)
        return _Lowered(engine.of(engine.X[rows], y.reshape(-1)), self.penalty)

    def listed(self, L: Matrix, k: int) -> _Lowered:
        """Over lists of the nearest under a map."""
        engine = self.engine
        Z = (engine.X @ L.T).astype(np.float32)
        _, lists = kneighbors(Z, n_neighbors=k)
        if engine.objective == "log":
            _with_own(lists, Z, engine.y)
        return _Lowered(engine, self.penalty, lists)


def _with_own(lists: Indices, Z: Floats, y: Indices) -> None:
    """Points with no other of their class in their list get the nearest in place of the last."""
    lacking = ~(y[lists] == y[:, None]).any(axis=1)
    for label in np.unique(y[lacking]):
        members = np.flatnonzero(y == label)
        asked = np.flatnonzero(lacking[members])
        if len(members) > 1:
            _, nearest = kneighbors(Z[members], Z[members[asked]], n_neighbors=2)
            itself = nearest[:, 0] == asked
            lists[members[asked], -1] = members[np.where(itself, nearest[:, 1], nearest[:, 0])]
