"""Alike or different: pairs of points told apart by a learned distance."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn import config_context
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Indices, Matrix, Vector
from nearfar.base import Estimator, LearnerTags
from nearfar.base.mapping import A_LEARNER
from nearfar.neighbors.pair_cuts import all_cuts
from nearfar.neighbors.pair_distances import distances_of_pairs
from nearfar.parameters import boolean, check_parameter, none, one_of, real
from nearfar.state import Sizes, State, Word, agrees, check_state, number
from nearfar.summaries.index_checks import check_signs, finite_points
from nearfar.summaries.supervision import Chunklets, Pairs, Quadruplets, Supervision, Triplets

Strategy = Literal["accuracy", "f_beta", "max_tpr", "max_tnr"]


def _measures(learner: Any, sizes: Sizes) -> bool:
    """Whether it can tell the distance of points of so many features."""
    if learner is None:
        return True
    taken = check_state(learner).get("p")
    return hasattr(type(learner), "transform") and (taken is None or agrees(taken, "p", sizes))


class PairClassifier(ClassifierMixin, Estimator):
    r"""Pairs of points called alike up to a distance, learned from pairs.

    .. math:: \hat y(x, z) = +1 \text{ if } d(x, z) \le \theta, \text{ else } -1

    The learner is cloned and fitted on the distinct points of the pairs, and the threshold
    :math:`\theta` is then the best of all that tell the training pairs apart differently. A
    learner of pairs gets them as they are; one of chunklets gets groups of points that similar
    pairs connect, one of triplets or quadruplets gets similar pairs compared with dissimilar
    ones; what needs no supervision gets the points. Learners of labels or values alone have
    nothing to learn from here: fit them first and give them with ``prefit=True``.

    Use it to decide whether two things are the same, and to choose a learner of pairs by
    ``cross_val_score`` or ``GridSearchCV``. With points that are in several pairs, fold by points
    (:class:`nearfar.evaluation.PairKFold`). The threshold of ``fit`` is that of the training
    pairs; `calibrate_threshold` takes one from others.

    Cost: the learner's fit; then O(n log n) for n pairs, and what its distances cost.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Fitted first; distances are those of its ``pair_distance``, or after its ``transform``. None
        is the Euclidean distance. A Pipeline that ends with a learner will do.
    strategy : {"accuracy", "f_beta", "max_tpr", "max_tnr"}, default="accuracy"
        What the threshold makes as large as can be: the share of pairs told rightly; the F measure
        of pairs alike; the share of pairs alike that are found, while at least ``min_rate`` of the
        different ones are; or the share of different ones, while at least ``min_rate`` of those
        alike are.
    beta : float, default=1.0
        Weight of finding pairs alike beside being right about them, for "f_beta".
    min_rate : float in [0, 1] or None, default=None
        The rate to keep, which "max_tpr" and "max_tnr" need.
    prefit : bool, default=False
        Whether ``estimator`` was fitted before and is used as it is; ``fit`` then looks for the
        threshold alone. A copy by ``clone``, and so a fold of ``cross_val_score``, is not fitted.

    Attributes
    ----------
    estimator_ : object or None
        The fitted learner.
    threshold_ : float
        The largest distance of pairs called alike; below zero when none is.
    classes_ : ndarray of shape (2,)
        -1 for different and +1 for alike.

    See Also
    --------
    Pairs, KNNClassifier

    References
    ----------
    .. [1] W. de Vazelhes, C. Carey, Y. Tang, N. Vauquier, A. Bellet, "metric-learn: Metric Learning
       Algorithms in Python", Journal of Machine Learning Research 21, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import RCA, PairClassifier, Pairs
    >>> X, y = load_wine(return_X_y=True)
    >>> known = Pairs.from_labels(y, n_similar=100, n_dissimilar=100, random_state=0)
    >>> pairs, sign = known.to_arrays(X)
    >>> same = PairClassifier(RCA()).fit(pairs, sign)
    >>> same.predict(pairs[[0, -1]]).tolist()
    [1, -1]
    >>> bool(same.score(pairs, sign) > PairClassifier().fit(pairs, sign).score(pairs, sign))
    True
    """

    learner_tags = LearnerTags(
        reads="supervision", role="classifier", input="pairs", learns_from=("pairs",)
    )
    state = State(
        {
            "estimator_": Word(_measures, "a learner of p features, or None"),
            "threshold_": number(),
        },
        fitted="threshold_",
        rows=0,
    )
    parameters: ClassVar = {
        "estimator": A_LEARNER,
        "strategy": [one_of("accuracy", "f_beta", "max_tpr", "max_tnr")],
        "beta": [real(0, open_low=True)],
        "min_rate": [none, real(0, 1)],
        "prefit": [boolean],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        strategy: Strategy = "accuracy",
        beta: float = 1.0,
        min_rate: float | None = None,
        prefit: bool = False,
    ) -> None:
        self.estimator = estimator
        self.strategy = strategy
        self.beta = beta
        self.min_rate = min_rate
        self.prefit = prefit

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "threshold_")

    @property
    def classes_(self) -> Indices:
        """-1 for different and +1 for alike."""
        return np.array([-1, 1])

    def fit(self, pairs: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit the learner, and find the threshold.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            The two points of each pair.
        y : array-like of shape (n_pairs,)
            +1 for a pair alike, -1 for a pair different; some of either.

        Returns
        -------
        PairClassifier
            Itself.
        """
        self._forget()
        self._check_parameters()
        self._check_rate(self.strategy, self.min_rate)
        points = self._check_pairs(pairs)
        alike = self._check_signs(y, len(points))
        n_features = points.shape[2]
        learner = self.estimator
        if self.prefit and learner is not None:
            check_is_fitted(learner)
        elif learner is not None:
            learner = _fitted_on_pairs(clone(learner), points, np.where(alike, 1, -1))
        distances = _finite_distances(learner, points)
        self.estimator_, self.n_features_in_ = learner, n_features
        self.threshold_ = best_threshold(
            distances, alike, self.strategy, beta=self.beta, min_rate=self.min_rate
        )
        return self

    def calibrate_threshold(
        self,
        pairs: ArrayLike,
        y: ArrayLike,
        *,
        strategy: Strategy | None = None,
        beta: float | None = None,
        min_rate: float | None = None,
    ) -> Self:
        """Find the threshold anew, exactly over all cuts, on pairs that were not learned from.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            The two points of each pair.
        y : array-like of shape (n_pairs,)
            +1 for a pair alike, -1 for a pair different; some of either.
        strategy, beta, min_rate : optional
            As the parameters of the class, which hold where None is given.

        Returns
        -------
        PairClassifier
            Itself.
        """
        check_is_fitted(self)
        given = {"strategy": strategy, "beta": beta, "min_rate": min_rate}
        chosen: dict[str, Any] = {
            name: getattr(self, name) if value is None else value for name, value in given.items()
        }
        for name, value in chosen.items():
            check_parameter("PairClassifier", name, value, self.parameters[name])
        self._check_rate(chosen["strategy"], chosen["min_rate"])
        points = self._check_pairs(pairs)
        alike = self._check_signs(y, len(points))
        self.threshold_ = best_threshold(
            _finite_distances(self.estimator_, points), alike, **chosen
        )
        return self

    def set_threshold(self, threshold: float) -> Self:
        """Call pairs alike up to a distance of one's own choice.

        Parameters
        ----------
        threshold : float
            A distance; below zero no pair is called alike.

        Returns
        -------
        PairClassifier
            Itself.
        """
        check_is_fitted(self)
        check_parameter("PairClassifier.set_threshold", "threshold", threshold, [real()])
        self.threshold_ = float(threshold)
        return self

    def pair_distance(self, pairs: ArrayLike) -> Vector:
        """Learned distance between the two points of each pair.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        check_is_fitted(self)
        return _finite_distances(self.estimator_, self._check_pairs(pairs))

    def decision_function(self, pairs: ArrayLike) -> Vector:
        """How alike the points of each pair are: minus their distance.

        It is compared with ``-threshold_``, not with zero.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return -self.pair_distance(pairs)

    def predict(self, pairs: ArrayLike) -> Indices:
        """Whether the points of each pair are alike, +1, or different, -1.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        return np.where(self.pair_distance(pairs) <= self.threshold_, 1, -1)

    def score(self, pairs: ArrayLike, y: ArrayLike) -> float:
        """Area under the ROC curve: how often a pair alike is nearer than a different one.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.
        y : array-like of shape (n_pairs,)
            +1 for a pair alike, -1 for a pair different; some of either.

        Returns
        -------
        float
            From 0 to 1; 0.5 is chance. It does not depend on the threshold.
        """
        scores = self.decision_function(pairs)
        return float(roc_auc_score(self._check_signs(y, len(scores)), scores))

    def _check_pairs(self, pairs: Any) -> Matrix:
        if sparse.issparse(pairs):
            raise TypeError("PairClassifier takes dense data, but pairs is a sparse matrix.")
        try:
            points = finite_points(pairs, "pairs", 2)
        except ValueError as error:
            raise (
                error if "pairs" in str(error) else ValueError(f"pairs: {error}")
            ) from error.__cause__
        if not len(points):
            raise ValueError(
                f"pairs has 0 sample(s) (shape={points.shape}) while a minimum of 1 is required by "
                "PairClassifier."
            )
        known = getattr(self, "n_features_in_", points.shape[2])
        if points.shape[2] != known:
            raise ValueError(
                f"pairs has points of {points.shape[2]} features, but PairClassifier is expecting "
                f"{known} features as input."
            )
        return points.astype(np.float64, copy=False)

    def _check_signs(self, y: ArrayLike | None, n_pairs: int) -> NDArray[np.bool_]:
        if y is None:
            raise ValueError(
                "PairClassifier requires y to be passed, but the target y is None: +1 for each "
                "pair alike, -1 for each pair different."
            )
        alike = check_signs(y, n_pairs, "y")
        if alike.all() or not alike.any():
            raise ValueError(
                f"y has only one class ({1 if alike.any() else -1}); PairClassifier needs pairs "
                "alike, +1, and pairs different, -1."
            )
        return alike

    @staticmethod
    def _check_rate(strategy: Strategy, min_rate: float | None) -> None:
        if strategy in ("max_tpr", "max_tnr") and min_rate is None:
            raise ValueError(
                f"PairClassifier: strategy={strategy!r} needs min_rate, the share of pairs "
                f"{'different' if strategy == 'max_tpr' else 'alike'} that must be found, from 0 "
                "to 1; got None."
            )


# ---------------------------------------------------------------------- the threshold


def best_threshold(
    distances: Vector,
    alike: NDArray[np.bool_],
    strategy: Strategy,
    *,
    beta: float = 1.0,
    min_rate: float | None = None,
) -> float:
    """The distance that tells pairs apart best; the smallest of several.

    >>> import numpy as np
    >>> alike = np.array([True, True, False, True, False])
    >>> best_threshold(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), alike, "max_tpr", min_rate=0.5)
    4.5
    """
    cuts = all_cuts(distances, alike)
    if strategy == "accuracy":
        worth = cuts.accuracies
    elif strategy == "f_beta":
        found = (1 + beta**2) * cuts.hits
        worth = found / (cuts.alarms + cuts.hits + beta**2 * cuts.hits[-1])
    else:
        rates = cuts.hit_rates, 1 - cuts.alarm_rates
        sought, kept = rates if strategy == "max_tpr" else rates[::-1]
        worth = np.where(kept >= (min_rate or 0.0), sought, -1.0)
        # Of those equally good, the one that finds most of the other kind.
        worth = np.where(worth == worth.max(), kept, -1.0)
    return float(cuts.thresholds[np.argmax(worth)])


# ---------------------------------------------------------------------- the learner


def _finite_distances(learner: Any, points: Matrix) -> Vector:
    distances = distances_of_pairs(learner, points)
    if not np.isfinite(distances).all():
        row = int(np.argmin(np.isfinite(distances)))
        raise ValueError(
            f"The distance of pairs row {row} is {distances[row]}: its points are too far apart, "
            f"or {type(learner).__name__} has learned no distance."
        )
    return distances


def _fitted_on_pairs(learner: Any, points: Matrix, signs: Indices) -> Any:
    """The learner, fitted on the points and what it can read of the pairs."""
    last = learner.steps[-1][1] if isinstance(learner, Pipeline) else learner
    if not _is_guided(last):  # what was said of the pairs is nothing to it
        return learner.fit(Pairs.from_arrays(points, signs, conflicts="keep")[0])
    X, pairs = Pairs.from_arrays(points, signs)
    guide = guide_of(last, pairs)
    if not isinstance(learner, Pipeline):
        return learner.fit(X, supervision=guide)
    with config_context(enable_metadata_routing=False):
        return learner.fit(X, **{f"{learner.steps[-1][0]}__supervision": guide})


def _is_guided(learner: Any) -> bool:
    """Whether a learner needs to be told something of the points."""
    return hasattr(learner, "learner_tags") and bool(learner.learner_tags.supervised)


def guide_of(learner: Any, pairs: Pairs) -> Supervision | None:
    """Pairs in the form that a learner reads; None if it needs none.

    >>> from nearfar import RCA, Pairs
    >>> guide_of(RCA(), Pairs([[0, 1], [1, 2]], [[3, 4]], n_samples=6))
    Chunklets(1 chunklets of 3 rows, n_samples=6)
    """
    if not _is_guided(learner):
        return None
    tags = learner.learner_tags
    if "pairs" in tags.learns_from:
        return pairs
    if "quadruplets" in tags.learns_from:
        return Quadruplets.from_pairs(pairs, random_state=0)
    if "triplets" in tags.learns_from:
        return Triplets.from_pairs(pairs, random_state=0)
    if "chunklets" in tags.learns_from:
        return Chunklets.from_pairs(pairs)
    raise ValueError(
        f"{type(learner).__name__} learns from {' or '.join(tags.learns_from)}, which pairs do not "
        "give. Take a learner of pairs, comparisons or chunklets, or fit it first and give it with "
        "prefit=True."
    )
