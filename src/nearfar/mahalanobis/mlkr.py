"""Metric learning for kernel regression."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from nearfar.arrays import Floats, Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.on_axes import N_PRINCIPAL
from nearfar.blocks import check_range
from nearfar.mahalanobis.soft_learner import _SoftLearner, find_best_descent
from nearfar.mahalanobis.starts import STARTS
from nearfar.notices import warn_not_converged
from nearfar.parameters import boolean, integer, none, random_state, real
from nearfar.solvers.descent import Descent, descend


class MLKR(_SoftLearner):
    r"""Metric learning for kernel regression: a linear map for predicting a number from neighbors.

    The target of each point is predicted by the weighted mean of the targets of all other points,

    .. math:: \hat y_i = \sum_{j \ne i} p_{ij} y_j, \qquad p_{ij} \propto e^{-\|L(x_i - x_j)\|^2},

    and MLKR minimizes :math:`\sum_i (y_i - \hat y_i)^2` over the linear map L, by L-BFGS in
    coordinates in which the data are white. L determines both the relevant directions and the width
    of the kernel in them. The problem is not convex.

    Use it before nearest neighbors or kernel methods that predict a number. With few components it
    shows on which directions the target depends.

    Cost: O(n² r) per evaluation for r rows of L, done in blocks; no n×n array is stored.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. L has this number of rows. None learns a square map.
    n_pca_components : int, "auto" or None, default=None
        Number of principal components to project X onto before learning. ``components_`` still maps
        X itself. None uses all features. "auto" projects only if there are more than 128 features,
        see Notes. The components depend on the units of the features.
    init : str or array of shape (n_components, n_features), default="auto"
        Starting point: "identity" (Euclidean distance), "pca" (whitened principal axes) or
        "random". "lda" and "within" need labels and raise an error. See Notes for "auto" and for
        the scale.
    n_init : int, default=1
        Number of starts. The best result is kept. The first start is ``init``, the others are
        random maps.
    max_iter : int, default=200
        Maximum number of iterations. The limit applies to each run.
    tol : float, default=1e-5
        Stop when two successive iterations lower the objective by less than this fraction.
    warm_start : bool, default=False
        If True, start from the previous fit. If its map has another shape, ``init`` is used.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used for random initial maps.
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
        Sum of squared leave-one-out errors.
    n_pca_components_ : int or None
        Number of principal components used; None if X was not projected.
    n_iter_ : int
        Number of iterations of the best run.
    history_ : dict of lists
        Lists with one entry per iteration: "objective", "step" and "seconds".

    Notes
    -----
    Rules of "auto":

    * ``init``: "pca" for a square map. With fewer components, a square map is optimized for a
      quarter of ``max_iter`` first, and its leading directions are the initial map.
    * ``n_pca_components``: None up to 128 features. Otherwise 64, but at most ``n_samples // 2 -
      1`` and at least ``n_components``.

    A named initial map is scaled down if the mean squared distance under it is above 25, so that
    each point has more than one soft neighbor.

    See Also
    --------
    NCA, nearfar.solvers.soft_neighbors.soft_neighbors

    References
    ----------
    .. [1] K. Q. Weinberger, G. Tesauro, "Metric Learning for Kernel Regression",
       AISTATS 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import MLKR
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> mlkr = MLKR(n_components=1).fit(X, np.sin(2 * X[:, 1]))
    >>> direction = mlkr.components_[0] / np.linalg.norm(mlkr.components_[0])
    >>> bool(abs(direction[1]) > 0.99)
    True
    """

    learner_tags = LearnerTags(reads="supervision", supervision=("values",))
    renamed: ClassVar = {
        "n_restarts": "n_init",
        "n_principal": "n_pca_components",
        "n_principal_": "n_pca_components_",
    }
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "n_pca_components": N_PRINCIPAL,
        "init": STARTS,
        "n_init": [integer(1)],
        "max_iter": [integer(1)],
        "tol": [real(0)],
        "warm_start": [boolean],
        "random_state": [random_state],
        "n_jobs": [none, integer(1), integer(high=-1)],
        "verbose": [integer(0)],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        n_pca_components: int | Literal["auto"] | None = None,
        init: str | ArrayLike = "auto",
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 1e-5,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_pca_components = n_pca_components
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map from points and numeric targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Numeric targets.

        Returns
        -------
        MLKR
            The fitted estimator.
        """
        self._check_parameters()
        previous_map = self.__dict__.get("components_") if self.warm_start else None
        rows = self._check_X(X, reset=True, min_samples=2)
        if self._fitted_on_axes(rows, previous_map, y):
            return self
        values = self._check_values(y, len(rows))
        check_range(values, "y")
        self._learn(rows, values, previous_map)
        return self

    def _learn(self, rows: Floats, values: Vector, previous_map: Floats | None) -> None:
        n = len(rows)
        centered = values - values.mean()
        unit = float(np.abs(centered).max())
        unit *= float(np.sqrt(np.mean((centered / unit) ** 2)))
        frame = self._make_frame(rows, np.zeros(n, np.intp))
        engine = self._make_engine(frame.points, centered / unit, "regression")

        def evaluate_mean(L: Matrix) -> tuple[float, Matrix]:
            value, gradient = engine.evaluate(L)
            return value / n * unit**2, gradient / n * unit**2

        runs: list[Descent] = []
        report = self._make_report(n)
        start = self._make_start(frame, "pca", previous_map)
        resumes = previous_map is not None and previous_map.shape == (len(start), rows.shape[1])
        starts_square = (
            isinstance(self.init, str) and self.init == "auto" and self._n_rows and not resumes
        )
        with self._keep_best(runs, frame):
            for _ in range(self.n_init):
                descent = Descent(start)
                runs.append(descent)
                if starts_square and len(runs) == 1:
                    # Start with all principal axes. The first few may not contain the direction
                    # that y depends on.
                    square = Descent(self._make_start(frame, "pca", None, init="pca", square=True))
                    try:
                        descend(
                            evaluate_mean,
                            square,
                            max_iter=_count_square_iterations(self.max_iter),
                            tol=self.tol,
                            report=report,
                        )
                    finally:
                        descent.point, descent.history = (
                            _keep_leading_directions(square.point, len(start)),
                            square.history,
                        )
                descend(evaluate_mean, descent, max_iter=self.max_iter, tol=self.tol, report=report)
                start = self._make_random_start(frame, len(runs))
        best = find_best_descent(runs)
        self.objective_ = engine.value(best.point) * unit**2
        if not best.converged:
            warn_not_converged("MLKR", self.max_iter)


def _count_square_iterations(max_iter: int) -> int:
    """Return the number of iterations for the initial square map."""
    return max(1, max_iter // 4)


def _keep_leading_directions(L: Matrix, size: int) -> Matrix:
    """Return the ``size`` directions of a map along which whitened points vary most."""
    _, lengths, axes = linalg.svd(L, full_matrices=False)
    rows = np.zeros((size, L.shape[1]))
    rows[: len(axes)] = (lengths[:, None] * axes)[:size]
    return rows
