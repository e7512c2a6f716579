"""Energy-based classification: the label that increases the large-margin loss least."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import AfterLearner, LearnerTags
from nearfar.base.mapping import A_LEARNER
from nearfar.blocks import compute_squared_distances, map_in_order, resolve_n_threads, split_rows
from nearfar.large_margin.energy_costs import compute_center_costs, compute_impostor_costs
from nearfar.large_margin.impostors import find_nearest_impostors, find_target_neighbors
from nearfar.large_margin.pair_lists import (
    compute_listed_distances,
    compute_target_distances,
    rank_by_distance,
)
from nearfar.notices import warn
from nearfar.parameters import integer, none, one_of, real
from nearfar.state import (
    Sizes,
    State,
    check_that,
    floats,
    indices,
    integer_value,
    labels,
    none_or,
    number,
    optional,
    table,
)


class EnergyClassifier(ClassifierMixin, AfterLearner):
    r"""Energy-based classifier: predicts the label that increases the large-margin loss least.

    Let D be the squared distances after the map of ``estimator``. The energy of a point t with
    the label c is

    .. math::
        E(t, c) = (1-\mu) \sum_{j \in N_c(t)} D_{tj}
        + \mu \sum_{j \in N_c(t)} \sum_{l: y_l \ne c} [1 + D_{tj} - D_{tl}]_+
        + \mu \sum_{i: y_i \ne c} \sum_{j \leadsto i} [1 + D_{ij} - D_{it}]_+ ,

    where :math:`N_c(t)` are the k training points of class c nearest to t, and
    :math:`j \leadsto i` means that j is a target neighbor of i. The energy is the amount that t
    with the label c adds to the loss of :class:`~nearfar.LMNN` if the target neighbors of the
    training points do not change. The first term pulls t toward its neighbors of class c, the
    second pushes points of other classes away from t, and the third counts t as an impostor of
    training points of other classes. The label with the lowest energy wins. In a tie, the smaller
    label wins.

    With LMNN as ``estimator``, this classifier is often more accurate than a vote of the nearest
    neighbors.

    The margin is 1, so predictions depend on the scale of the mapped points. LMNN learns this
    scale. For other estimators, choose it, for example by cross-validation. If typical distances
    are much larger or much smaller than 1, one part of the energy dominates.

    Cost: the fit of the estimator; then O(n q) per query in q dimensions, in blocks. Hinges are
    summed over the points that are near enough to have one: O(m log m) per query, if m points are
    nearer than the farthest class.

    A class with fewer than k points has fewer terms in its energy, which favors this class.
    ``fit`` then issues a warning.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Transformer that is cloned and fitted first. Energies are computed from its output. None
        uses X directly.
    n_neighbors : int or None, default=None
        Number k of nearest points per class in the pull term of a query. It is also the number of
        target neighbors per training point, unless ``estimator`` has target neighbors. None uses
        the value of ``estimator``. See Notes.
    push_weight : float from 0 to 1, or None, default=None
        Weight μ of the hinge terms. None uses the value of ``estimator``. See Notes.
    n_impostors : int, None or "auto", default="auto"
        Number of nearest impostors per point that enter the loss. None uses all. "auto" uses the
        value of ``estimator``. See Notes.
    n_jobs : int or None, default=None
        Number of threads. None means 1 and -1 means all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    estimator_ : object or None
        The fitted ``estimator``.
    target_neighbors_ : ndarray of shape (n_samples, k)
        Row indices of the target neighbors, with -1 for missing neighbors.
    n_neighbors_ : int
        The number k that is used, at most the size of the largest class.
    push_weight_ : float
        The weight μ that is used.
    n_impostors_ : int or None
        Number of nearest impostors per point that enter the loss. None means all.

    See Also
    --------
    LMNN, KNNClassifier, MultiMetricLMNN

    Notes
    -----
    If ``estimator`` is LMNN, or another learner with ``target_neighbors_``, or a Pipeline that
    ends with such a learner, the classifier uses the settings with which the metric was learned:

    ==================  ======================  ==============================================
    setting             learner with targets    other estimators
    ==================  ======================  ==============================================
    target neighbors    ``target_neighbors_``   nearest points of the same class after the map
    ``n_neighbors``     ``n_neighbors``         3
    ``push_weight``     ``push_weight``         0.5
    ``n_impostors``     ``n_impostors_``        None
    ==================  ======================  ==============================================

    If only the m nearest impostors of each point count, the third term of the energy is the
    amount by which t increases the hinge loss of the m nearest impostors of each training point.

    Prediction takes O(n q) per query in q dimensions, computed in blocks, in addition to
    O(h log h) for the hinge terms, where h is the number of training points that are close enough
    to have one.

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.1.4.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import EnergyClassifier, LMNN
    >>> X, y = load_wine(return_X_y=True)
    >>> classifier = EnergyClassifier(LMNN()).fit(X[::2], y[::2])
    >>> classifier.energies(X[1::2]).shape
    (89, 3)
    >>> classifier.score(X[1::2], y[1::2]) > 0.95
    True
    """

    learner_tags = LearnerTags(reads="instances", role="classifier")
    renamed: ClassVar = {"_centre": "_center"}
    state = State(
        {
            "classes_": labels("c"),
            "_points": table("n", "q"),
            "_center": floats("q"),
            "_order": indices("n", below="n"),
            "_edges": indices("edges"),
            "target_neighbors_": indices("n", "k", low=-1, below="n"),
            # 1 plus the squared distance to each target, or minus infinity for missing targets.
            "_reach": floats("n", "k"),
            "n_neighbors_": integer_value(low=1, max_size="n"),
            "push_weight_": number(0, 1),
            "n_impostors_": optional(none_or(integer_value(low=1))),
            # Squared distances to the farthest impostor that counts and to the next one. They are
            # infinite if fewer impostors are within reach.
            "_beyond": optional(none_or(floats("n", 2))),
        },
        rows="_points",
    )
    parameters: ClassVar = {
        "estimator": A_LEARNER,
        "n_neighbors": [none, integer(1)],
        "push_weight": [none, real(0, 1)],
        "n_impostors": [none, integer(1), one_of("auto")],
        "n_jobs": [none, integer(1), integer(high=-1)],
    }

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int | None = None,
        *,
        push_weight: float | None = None,
        n_impostors: int | Literal["auto"] | None = "auto",
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.push_weight = push_weight
        self.n_impostors = n_impostors
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Fit ``estimator``, and store the mapped training points and their target distances.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels, for the classifier and for ``estimator``.
        supervision : Pairs, Triplets, Chunklets or array-like, optional
            Supervision passed to the ``fit`` of ``estimator``.

        Returns
        -------
        EnergyClassifier
            The fitted classifier.
        """
        learner, points, classes, codes = self._fit_learner(X, y, supervision)
        source = _find_targets_learner(learner)
        n_neighbors, push_weight = self.n_neighbors, self.push_weight
        if n_neighbors is None:
            n_neighbors = getattr(source, "n_neighbors", 3)
        if push_weight is None:
            push_weight = getattr(source, "push_weight", 0.5)
        n_impostors = self.n_impostors
        if n_impostors == "auto":
            n_impostors = getattr(source, "n_impostors_", None)
        if source is None:
            targets = find_target_neighbors(points, codes, n_neighbors)
        else:
            targets = _check_targets(source, len(points))
        sizes = np.bincount(codes)
        if sizes.min() < n_neighbors:
            label = classes.tolist()[int(np.argmin(sizes))]
            warn(
                f"Class {label!r} has {sizes.min()} points, fewer than n_neighbors={n_neighbors}. "
                "Its energy has fewer terms, which favors this class. Reduce n_neighbors to avoid "
                "this.",
            )
        self.estimator_, self.classes_ = learner, classes
        self.target_neighbors_ = targets
        # A class cannot contribute more neighbors than the largest class has points.
        self.n_neighbors_ = min(int(n_neighbors), int(sizes.max()))
        self.push_weight_ = float(push_weight)
        # Sort points by class, so that each class is a range of columns of the distance matrix.
        self._order = np.argsort(codes, kind="stable")
        self._edges = np.concatenate([[0], np.cumsum(sizes)])
        # Any point inside the data can be used for centering. The median is robust to outliers.
        self._center = np.median(points[:: 1 + len(points) // 1000].astype(np.float64), axis=0)
        placed = self._center_points(points, "X")
        self._reach = 1.0 + compute_target_distances(placed, targets)[self._order]
        self._points = placed[self._order]
        # A point cannot have more impostors than there are points.
        self.n_impostors_ = None if n_impostors is None else min(int(n_impostors), len(points))
        self._beyond = (
            None if n_impostors is None else self._find_last_impostors(codes[self._order])
        )
        return self

    def _find_last_impostors(self, codes: Indices) -> Matrix:
        """Return squared distances to the farthest impostor that counts and to the next one.

        The result has shape (n, 2). A distance is infinite if fewer impostors are within reach.
        """
        m = int(self.n_impostors_ or 0)
        reach = np.where(self._reach > 0, self._reach, -np.inf).max(axis=1, initial=-np.inf)
        threads = resolve_n_threads(self.n_jobs)
        pairs, _ = find_nearest_impostors(self._points, codes, reach, m + 1, n_threads=threads)
        distances = compute_listed_distances(self._points, pairs.centers, pairs.indices)
        rank = rank_by_distance(pairs.centers, distances)
        beyond = np.full((len(codes), 2), np.inf)
        for column in (0, 1):
            at = rank == m - 1 + column
            beyond[pairs.centers[at], column] = distances[at]
        return beyond

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        n, edges = sizes["n"], self._edges
        check_that(len(np.unique(self._order)) == n, "_order contains duplicate points.")
        check_that(len(edges) == sizes["c"] + 1, "_edges does not match the number of classes.")
        rising = edges[0] == 0 and edges[-1] == n and (edges[1:] > edges[:-1]).all()
        check_that(rising, "_edges must increase from 0 to the number of points.")

    def energies(self, X: ArrayLike) -> Matrix:
        """Return the energy of each point under each label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Non-negative energies, with columns in the order of ``classes_``.
        """
        check_is_fitted(self)
        queries = self._center_points(self._queries(X), "X")
        beyond = self._get_beyond()
        last = None if beyond is None else beyond[:, 0]
        return self._run_in_blocks(
            queries, lambda block, distances: self._compute_energies(distances, last)
        )

    def decision_function(self, X: ArrayLike) -> Matrix:
        """Return negative energies, so that the predicted label has the largest value.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            Negative energies. With two classes, there is one value per point, as in scikit-learn:
            the energy of the first label minus that of the second. A value above 0 means the
            second label.
        """
        energies = self.energies(X)
        if energies.shape[1] == 2:
            return energies[:, 0] - energies[:, 1]
        return -energies

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the label with the lowest energy.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples,)
            Predicted labels.
        """
        winners = self.energies(X).argmin(axis=1)
        return np.asarray(self.classes_[winners])

    def leave_one_out_error(self) -> float:
        """Return the leave-one-out error rate on the training points.

        ``estimator`` is not refitted, and the target neighbors of the other points do not change,
        except that the left-out point is not a target. A point that is alone in its class counts
        as an error. The error is optimistic, because ``estimator`` was fitted with all labels.

        Returns
        -------
        float
            Fraction of misclassified training points.
        """
        check_is_fitted(self)
        if len(self._points) < 2:
            raise ValueError(
                "leave_one_out_error needs at least 2 training points, but the classifier was "
                "fitted with 1."
            )
        codes = np.repeat(np.arange(len(self.classes_)), np.diff(self._edges))
        winners = self._compute_leave_one_out_energies().argmin(axis=1)
        return float(np.mean(winners != codes))

    def _compute_leave_one_out_energies(self) -> Matrix:
        """Return the leave-one-out energies of the training points, sorted by class.

        The energy of a point is computed from all other points. The point is not a neighbor of
        itself, and it does not count as a target of other points. The energy is infinite for a
        class that has no other point.
        """
        n, n_classes = len(self._points), len(self.classes_)
        position = np.empty(n, dtype=np.intp)
        position[self._order] = np.arange(n)
        # Pairs (center, slot), sorted by target. All indices refer to the points sorted by class.
        center, slot = np.nonzero(self.target_neighbors_[self._order] >= 0)
        target = position[self.target_neighbors_[self._order][center, slot]]
        order = np.argsort(target, kind="stable")
        center, slot, target = center[order], slot[order], target[order]
        codes = np.repeat(np.arange(n_classes), np.diff(self._edges))
        beyond = self._get_beyond()

        def compute_energies_without(block: slice, distances: Matrix) -> Matrix:
            rows = np.arange(len(distances))
            distances[rows, rows + block.start] = np.inf
            block_targets = slice(*np.searchsorted(target, [block.start, block.stop]))
            row, point = target[block_targets] - block.start, center[block_targets]
            hinges = np.maximum(self._reach[point, slot[block_targets]] - distances[row, point], 0)
            limits = None
            if beyond is not None:
                last, following = beyond.T
                # If the omitted point was an impostor that counted, the next impostor counts
                # instead. The comparison allows for rounding.
                is_counted = distances <= last * (1 + 1e-9)
                is_same_class = codes[block, None] == codes
                limits = np.where(is_counted & ~is_same_class, following, last)
                kept_hinges = np.maximum(self._reach[point, slot[block_targets]] - last[point], 0)
                hinges = np.maximum(hinges - kept_hinges, 0)
            cells = row * n_classes + codes[point]
            dropped: Matrix = np.bincount(cells, hinges, len(rows) * n_classes).astype(float)
            return self._compute_energies(distances, limits, dropped.reshape(len(rows), n_classes))

        return self._run_in_blocks(self._points, compute_energies_without)

    def _get_beyond(self) -> Matrix | None:
        """Return squared distances beyond which impostors do not count, or None if all count."""
        return getattr(self, "_beyond", None)  # Older model files do not have this attribute.

    def _compute_energies(
        self, distances: Matrix, beyond: Matrix | None = None, dropped: Matrix | float = 0.0
    ) -> Matrix:
        """Return the sum of the three energy terms, with ``dropped`` subtracted from the third."""
        impostor_terms = (
            compute_impostor_costs(distances, self._edges, self._reach, beyond) - dropped
        )
        costs = compute_center_costs(
            distances,
            self._edges,
            self.n_neighbors_,
            self.push_weight_,
            getattr(self, "n_impostors_", None),
        )
        other_class_terms = impostor_terms.sum(axis=1, keepdims=True) - impostor_terms
        return costs + self.push_weight_ * np.maximum(other_class_terms, 0)

    def _run_in_blocks(
        self, queries: Matrix, energies: Callable[[slice, Matrix], Matrix]
    ) -> Matrix:
        """Return the energies. Squared distances to the training points are computed in blocks."""
        squares = np.einsum("ij,ij->i", self._points, self._points)

        def evaluate_block(block: slice) -> Matrix:
            return energies(block, compute_squared_distances(queries[block], self._points, squares))

        blocks = split_rows(len(queries), 16 * len(squares), max_rows=1024)
        energy_blocks = map_in_order(evaluate_block, blocks, resolve_n_threads(self.n_jobs))
        return np.concatenate([np.empty((0, len(self.classes_))), *energy_blocks])

    def _center_points(self, points: Floats, name: str) -> Matrix:
        """Return the points minus the center, in float64."""
        with np.errstate(over="ignore"):
            placed = points - self._center
            overflow = not np.isfinite(16 * np.einsum("ij,ij->i", placed, placed).max(initial=0))
        if overflow:
            raise ValueError(
                f"Squared distances overflow: the largest absolute value in {name} is "
                f"{np.abs(points).max():.3g}. Divide {name} by a constant."
            )
        return placed


def _find_targets_learner(learner: Any) -> Any:
    """Return the step of a fitted learner that has target neighbors, or None."""
    while isinstance(learner, Pipeline):
        learner = learner.steps[-1][1]
    return learner if hasattr(learner, "target_neighbors_") else None


def _check_targets(learner: Any, n_samples: int) -> Indices:
    targets = np.asarray(learner.target_neighbors_)
    fits = targets.ndim == 2 and len(targets) == n_samples
    if not fits or targets.min(initial=-1) < -1 or targets.max(initial=-1) >= n_samples:
        raise ValueError(
            f"target_neighbors_ of {type(learner).__name__} must have one row for each of the "
            f"{n_samples} training points, with row indices below {n_samples} or -1 for missing "
            f"targets; got shape {targets.shape} and values from {targets.min(initial=-1)} to "
            f"{targets.max(initial=-1)}."
        )
    return targets.astype(np.intp)
