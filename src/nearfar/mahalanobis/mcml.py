"""Maximally collapsing metric learning."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags
from nearfar.base.on_axes import N_PRINCIPAL
from nearfar.mahalanobis.soft_learner import SolverFrame, _SoftLearner
from nearfar.mahalanobis.starts import STARTS, has_few_rows
from nearfar.notices import warn_not_converged
from nearfar.parameters import boolean, integer, none, random_state, real
from nearfar.solvers.descent import Descent, descend
from nearfar.solvers.eigen import descending_eigh, partial_eigh
from nearfar.solvers.soft_neighbors import SoftNeighbors

# Maximum number of descents. After each descent, a direction is added if the rank is too low.
_ESCAPES = 5


class MCML(_SoftLearner):
    r"""Maximally collapsing metric learning: a metric that maps each class close to one point.

    Each point selects another point with probability :math:`p_{ij} \propto e^{-d_M(x_i, x_j)^2}`.
    If each class were a single point, infinitely far from the other classes, a point would select
    each other point of its class with equal probability :math:`q_{ij}`. MCML finds the Mahalanobis
    distance that comes closest to this,

    .. math:: \min_{M \succeq 0} \; \sum_i KL(q_i \,\|\, p_i) .

    The problem is convex in M. L-BFGS solves it over L with :math:`M = L^T L`, in coordinates in
    which the data are white. If the map has lost a rank that M needs, the rank is restored.
    ``optimality_`` measures the violation of the optimality conditions.

    Use it with labels if each class is one cluster. It tries to bring all points of a class
    together, which does not work for classes with several clusters; use :class:`NCA` or
    :class:`LMNN` for those.

    Cost: O(n² p) per evaluation, done in blocks; no n×n array is stored.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. M is learned without this limit. Then the leading eigenvectors in
        white coordinates are kept, along which the mapped points vary most. None keeps all
        dimensions.
    n_pca_components : int, "auto" or None, default=None
        Number of principal components to project X onto before learning. ``components_`` still maps
        X itself. None uses all features. "auto" projects only if there are more than 128 features,
        see Notes. The components depend on the units of the features.
    init : str or array of shape (n_features, n_features), default="auto"
        Starting point: a name as in :class:`NCA`, or an array. The optimum does not depend on
        ``init``. See Notes for "auto".
    max_iter : int, default=1000
        Maximum number of iterations.
    tol : float, default=1e-8
        Stop when two successive iterations lower the objective by less than this fraction.
    warm_start : bool, default=False
        If True, start from the previous fit. If its map has another shape, ``init`` is used.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used for ``init="random"``.
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
        Sum of the divergences for M, before the reduction to ``n_components``.
    optimality_ : float
        The larger of :math:`\langle G, M \rangle` and minus the smallest eigenvalue of G, where G
        is the gradient with respect to M, divided by n, in white coordinates. A value of 0 proves
        that M is optimal. In general, no :math:`M'` has an objective that is lower by more than
        :math:`n\,(1 + \mathrm{tr}\,M')` times ``optimality_``.
    n_pca_components_ : int or None
        Number of principal components used; None if X was not projected.
    n_iter_ : int
        Number of iterations.
    history_ : dict of lists
        Lists with one entry per iteration: "objective", "step" and "seconds".
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    Notes
    -----
    Rules of "auto":

    * ``init``: "within" if ``n_samples - n_classes`` is at least three times the number of
      directions in which X varies, otherwise "pca".
    * ``n_pca_components``: None up to 128 features. Otherwise 64, but at most ``n_samples // 2 -
      1`` and at least ``n_components``.

    Points that are alone in their class are left out of the sum, but other points can select them.
    If a direction does not vary within classes and separates them, as happens with fewer rows than
    features, the optimal metric is infinitely large in it. The descent then stops by ``tol`` or
    ``max_iter``.

    See Also
    --------
    NCA, LMNN, nearfar.solvers.soft_neighbors.soft_neighbors

    References
    ----------
    .. [1] A. Globerson, S. Roweis, "Metric Learning by Collapsing Classes",
       NIPS 2006.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import MCML
    >>> mcml = MCML(n_components=2).fit(*load_wine(return_X_y=True))
    >>> mcml.components_.shape, bool(mcml.optimality_ < 1e-4)
    ((2, 13), True)
    """

    learner_tags = LearnerTags(reads="supervision")
    renamed: ClassVar = {"n_principal": "n_pca_components", "n_principal_": "n_pca_components_"}
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "n_pca_components": N_PRINCIPAL,
        "init": STARTS,
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
        max_iter: int = 1000,
        tol: float = 1e-8,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_pca_components = n_pca_components
        self.init = init
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
        MCML
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

    @property
    def _n_rows(self) -> None:
        return None

    def _learn(self, rows: Floats, codes: Indices, previous_map: Floats | None) -> None:
        """Learn from rows sorted by class."""
        p, size = rows.shape[1], self.n_components
        if size is not None and size > p:
            raise ValueError(f"n_components={size} is more than the {p} features of X.")
        frame = self._make_frame(rows, codes)
        has_few = has_few_rows(len(rows), int(codes[-1]) + 1, frame.into.shape[1])
        descent = Descent(self._make_start(frame, "pca" if has_few else "within", previous_map))
        rough_engine = self._make_engine(frame.points, codes, "collapse")
        engine = rough_engine.with_points(frame.points, codes, precision="double")
        with self._keep_best([descent], frame):
            if rough_engine.precision == "single":
                # Descend in single precision first and finish in double precision.
                self._descend(rough_engine, descent, max(self.tol, 1e-5))
            for _ in range(_ESCAPES):
                self._descend(engine, descent, self.tol)
                G = engine.metric_gradient(descent.point) / len(rows)
                M = descent.point.T @ descent.point
                slack = float(np.sum(G * M))
                (min_eigenvalue,), direction = partial_eigh(G, 0, 0)
                if not descent.converged or -min_eigenvalue <= max(slack, 1e-7):
                    break
                descent.point = _replace_shortest_direction(
                    descent.point, direction[:, 0], descent, engine
                )
        self.objective_ = engine.value(descent.point)
        self.optimality_ = max(abs(slack), -float(min_eigenvalue))
        if not descent.converged:
            warn_not_converged("MCML", self.max_iter)

    def _descend(self, engine: SoftNeighbors, descent: Descent, tol: float) -> None:
        n = len(engine.X)

        def evaluate_mean(L: Matrix) -> tuple[float, Matrix]:
            value, gradient = engine.evaluate(L)
            return value / n, gradient / n

        descend(
            evaluate_mean, descent, max_iter=self.max_iter, tol=tol, report=self._make_report(n)
        )

    def _keep(self, descent: Descent, frame: SolverFrame) -> None:
        super()._keep(descent, frame)
        p = len(self.mean_)
        size = p if self.n_components is None else self.n_components
        values, axes = descending_eigh(descent.point.T @ descent.point, size)
        rows = np.sqrt(np.maximum(values, 0))[:, None] * axes.T
        components = np.zeros((size, p))
        components[: len(rows)] = rows @ frame.into.T
        self.components_ = components.astype(self.mean_.dtype)


def _replace_shortest_direction(
    L: Matrix, v: Matrix, descent: Descent, engine: SoftNeighbors
) -> Matrix:
    """Return L with its shortest direction replaced by a step along v that lowers the objective.

    The gradient of a square map that has lost rank does not show that a higher rank is needed.
    """
    values, axes = descending_eigh(L.T @ L)
    rotated = np.sqrt(np.maximum(values, 0))[:, None] * axes.T
    current_value = engine.value(L)
    for step in 10.0 ** np.arange(0, -7, -1):
        rotated[-1] = step * v
        if engine.value(rotated) < current_value:
            return rotated
    return L
