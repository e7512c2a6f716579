"""Classification of pairs as similar or dissimilar by a learned distance."""

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
from nearfar.blocks import check_range
from nearfar.neighbors.pair_cuts import find_cuts
from nearfar.neighbors.pair_distances import compute_learned_distances
from nearfar.parameters import boolean, check_parameter, none, one_of, real
from nearfar.state import Condition, Sizes, State, check_state, matches_size, number
from nearfar.summaries.index_checks import check_points, check_signs
from nearfar.summaries.supervision import Chunklets, Pairs, Quadruplets, Supervision, Triplets

Strategy = Literal["accuracy", "f_beta", "max_tpr", "max_tnr"]


def _accepts_features(learner: Any, sizes: Sizes) -> bool:
    """Return True if the learner accepts points with ``sizes["p"]`` features."""
    if learner is None:
        return True
    n_features = check_state(learner).get("p")
    return hasattr(type(learner), "transform") and (
        n_features is None or matches_size(n_features, "p", sizes)
    )


class PairClassifier(ClassifierMixin, Estimator):
    r"""Classifier of pairs as similar or dissimilar, by a threshold on their learned distance.

    .. math:: \hat y(x, z) = +1 \text{ if } d(x, z) \le \theta, \text{ else } -1

    ``fit`` clones the learner, fits it on the distinct points of the pairs, and then searches all
    distinct thresholds :math:`\theta` for the one that is best on the training pairs.

    Use it to decide whether two objects are the same, and to select a learner of pairs with
    ``cross_val_score`` or ``GridSearchCV``. If points occur in several pairs, split the folds by
    point with :class:`nearfar.evaluation.PairKFold`. `calibrate_threshold` chooses the threshold
    on pairs that the learner was not fitted on.

    Cost: the learner's fit, then O(n log n) for n pairs plus the cost of their distances.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that defines the distance by its method ``pair_distance``, or by ``transform`` if it
        has no ``pair_distance``. A Pipeline that ends with a learner is also accepted. None uses
        the Euclidean distance.
    strategy : {"accuracy", "f_beta", "max_tpr", "max_tnr"}, default="accuracy"
        Quantity that the threshold maximizes, see Notes.
    beta : float, default=1.0
        Weight of recall relative to precision, for "f_beta".
    min_rate : float in [0, 1] or None, default=None
        Minimum true negative rate for "max_tpr", or minimum true positive rate for "max_tnr". Both
        strategies require it.
    prefit : bool, default=False
        If True, ``estimator`` is already fitted and ``fit`` only chooses the threshold. ``clone``,
        and thus ``cross_val_score``, makes an unfitted copy, whose ``fit`` raises an error.

    Attributes
    ----------
    estimator_ : object or None
        Fitted learner.
    threshold_ : float
        Largest distance at which a pair is predicted similar. If it is negative, all pairs are
        predicted dissimilar.
    classes_ : ndarray of shape (2,)
        The labels -1 (dissimilar) and +1 (similar).

    See Also
    --------
    Pairs, KNNClassifier

    Notes
    -----
    The strategies maximize the following quantities, where similar pairs are the positive class.

    ========  ===================================================================================
    accuracy  fraction of pairs predicted correctly
    f_beta    F measure of the similar pairs
    max_tpr   true positive rate, with a true negative rate of at least ``min_rate``
    max_tnr   true negative rate, with a true positive rate of at least ``min_rate``
    ========  ===================================================================================

    The learner receives the pairs in the form of supervision that it accepts:

    - pairs, unchanged;
    - quadruplets or triplets that compare similar pairs with dissimilar ones;
    - chunklets: groups of points connected by similar pairs;
    - only the points, if it is unsupervised.

    A learner that accepts only labels or target values cannot be fitted from pairs. Fit it first
    and pass it with ``prefit=True``.

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
        reads="supervision", role="classifier", input="pairs", supervision=("pairs",)
    )
    state = State(
        {
            "estimator_": Condition(_accepts_features, "a learner of p features, or None"),
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
        """Class labels: -1 (dissimilar) and +1 (similar)."""
        return np.array([-1, 1])

    def fit(self, pairs: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit the learner and choose the threshold.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            The two points of each pair.
        y : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar pair. Both values must occur.

        Returns
        -------
        PairClassifier
            The fitted classifier.
        """
        self._forget()
        self._check_parameters()
        self._check_rate(self.strategy, self.min_rate)
        points = self._check_pairs(pairs)
        is_similar = self._check_signs(y, len(points))
        n_features = points.shape[2]
        learner = self.estimator
        if self.prefit and learner is not None:
            check_is_fitted(learner)
        elif learner is not None:
            learner = _fit_on_pairs(clone(learner), points, np.where(is_similar, 1, -1))
        distances = _compute_finite_distances(learner, points)
        self.estimator_, self.n_features_in_ = learner, n_features
        self.threshold_ = find_best_threshold(
            distances, is_similar, self.strategy, beta=self.beta, min_rate=self.min_rate
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
        """Choose the threshold on new pairs without fitting the learner again.

        The search over all distinct thresholds is exact.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            The two points of each pair.
        y : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar pair. Both values must occur.
        strategy, beta, min_rate : optional
            Override the parameters of the same name. None keeps the classifier's value.

        Returns
        -------
        PairClassifier
            The classifier with the new threshold.
        """
        check_is_fitted(self)
        overrides = {"strategy": strategy, "beta": beta, "min_rate": min_rate}
        settings: dict[str, Any] = {
            name: getattr(self, name) if value is None else value
            for name, value in overrides.items()
        }
        for name, value in settings.items():
            check_parameter("PairClassifier", name, value, self.parameters[name])
        self._check_rate(settings["strategy"], settings["min_rate"])
        points = self._check_pairs(pairs)
        is_similar = self._check_signs(y, len(points))
        self.threshold_ = find_best_threshold(
            _compute_finite_distances(self.estimator_, points), is_similar, **settings
        )
        return self

    def set_threshold(self, threshold: float) -> Self:
        """Set the threshold to a given distance.

        Parameters
        ----------
        threshold : float
            Largest distance at which a pair is predicted similar. With a negative threshold, all
            pairs are predicted dissimilar.

        Returns
        -------
        PairClassifier
            The classifier with the new threshold.
        """
        check_is_fitted(self)
        check_parameter("PairClassifier.set_threshold", "threshold", threshold, [real()])
        self.threshold_ = float(threshold)
        return self

    def pair_distance(self, pairs: ArrayLike) -> Vector:
        """Return the learned distance between the two points of each pair.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.

        Returns
        -------
        ndarray of shape (n_pairs,)
        """
        check_is_fitted(self)
        return _compute_finite_distances(self.estimator_, self._check_pairs(pairs))

    def decision_function(self, pairs: ArrayLike) -> Vector:
        """Return the similarity of each pair: the negative distance between its points.

        The decision boundary is ``-threshold_``, not zero.

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
        """Return +1 for each pair predicted similar and -1 for each pair predicted dissimilar.

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
        """Return the area under the ROC curve.

        It is the probability that a similar pair has a smaller distance than a dissimilar pair.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points.
        y : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar pair. Both values must occur.

        Returns
        -------
        float
            Area from 0 to 1, where 0.5 is chance level. It does not depend on the threshold.
        """
        scores = self.decision_function(pairs)
        return float(roc_auc_score(self._check_signs(y, len(scores)), scores))

    def _check_pairs(self, pairs: Any) -> Matrix:
        if sparse.issparse(pairs):
            raise TypeError(
                "PairClassifier needs dense data, but pairs is a sparse matrix. Pass an array of "
                "shape (n_pairs, 2, n_features)."
            )
        try:
            points = check_points(pairs, "pairs", 2)
        except ValueError as error:
            raise (
                error if "pairs" in str(error) else ValueError(f"pairs: {error}")
            ) from error.__cause__
        if not len(points):
            raise ValueError(
                f"pairs has 0 sample(s) (shape={points.shape}) while a minimum of 1 is required by "
                "PairClassifier."
            )
        if points.dtype.kind not in "biuf":
            raise ValueError(f"pairs must contain real numbers; got the dtype {points.dtype}.")
        if not points.shape[2]:
            raise ValueError(f"pairs has points with 0 features (shape={points.shape}).")
        n_features = getattr(self, "n_features_in_", points.shape[2])
        if points.shape[2] != n_features:
            raise ValueError(
                f"pairs has points with {points.shape[2]} features, but PairClassifier is "
                f"expecting {n_features} features as input."
            )
        check_range(points.reshape(-1, n_features), "pairs", small=not self.__sklearn_is_fitted__())
        return points.astype(np.float64, copy=False)

    def _check_signs(self, y: ArrayLike | None, n_pairs: int) -> NDArray[np.bool_]:
        if y is None:
            raise ValueError(
                "PairClassifier requires y to be passed, but the target y is None. Pass +1 for "
                "each similar pair and -1 for each dissimilar pair."
            )
        is_similar = check_signs(y, n_pairs, "y")
        if is_similar.all() or not is_similar.any():
            raise ValueError(
                f"y has only one class ({1 if is_similar.any() else -1}), but PairClassifier needs "
                "similar pairs (+1) and dissimilar pairs (-1)."
            )
        return is_similar

    @staticmethod
    def _check_rate(strategy: Strategy, min_rate: float | None) -> None:
        if strategy in ("max_tpr", "max_tnr") and min_rate is None:
            raise ValueError(
                f"PairClassifier: strategy={strategy!r} needs min_rate, but got None. Pass the "
                f"fraction of {'dissimilar' if strategy == 'max_tpr' else 'similar'} pairs that "
                "must be predicted correctly, from 0 to 1."
            )


def find_best_threshold(
    distances: Vector,
    is_similar: NDArray[np.bool_],
    strategy: Strategy,
    *,
    beta: float = 1.0,
    min_rate: float | None = None,
) -> float:
    """Return the smallest threshold that maximizes the criterion of the strategy.

    >>> import numpy as np
    >>> is_similar = np.array([True, True, False, True, False])
    >>> distances = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> find_best_threshold(distances, is_similar, "max_tpr", min_rate=0.5)
    4.5
    """
    cuts = find_cuts(distances, is_similar)
    if strategy == "accuracy":
        criterion = cuts.accuracies
    elif strategy == "f_beta":
        numerator = (1 + beta**2) * cuts.hits
        criterion = numerator / (cuts.alarms + cuts.hits + beta**2 * cuts.hits[-1])
    else:
        rates = cuts.hit_rates, 1 - cuts.alarm_rates
        maximized_rate, limited_rate = rates if strategy == "max_tpr" else rates[::-1]
        criterion = np.where(limited_rate >= (min_rate or 0.0), maximized_rate, -1.0)
        # If several thresholds are equally good, choose the one with the highest value of the rate
        # that min_rate limits.
        criterion = np.where(criterion == criterion.max(), limited_rate, -1.0)
    return float(cuts.thresholds[np.argmax(criterion)])


def _compute_finite_distances(learner: Any, points: Matrix) -> Vector:
    distances = compute_learned_distances(learner, points)
    if not np.isfinite(distances).all():
        row = int(np.argmin(np.isfinite(distances)))
        raise ValueError(
            f"The distance between the points of pairs[{row}] is {distances[row]} (estimator: "
            f"{type(learner).__name__}). The points are too far apart, or the estimator's fit "
            "failed. Scale the features of pairs."
        )
    return distances


def _fit_on_pairs(learner: Any, points: Matrix, signs: Indices) -> Any:
    """Fit the learner to the points of the pairs, with the kind of supervision that it accepts."""
    last_step = learner.steps[-1][1] if isinstance(learner, Pipeline) else learner
    if not _is_supervised(last_step):  # An unsupervised learner ignores the signs.
        return learner.fit(Pairs.from_arrays(points, signs, conflicts="keep")[0])
    X, pairs = Pairs.from_arrays(points, signs)
    supervision = derive_supervision(last_step, pairs)
    if not isinstance(learner, Pipeline):
        return learner.fit(X, supervision=supervision)
    with config_context(enable_metadata_routing=False):
        return learner.fit(X, **{f"{learner.steps[-1][0]}__supervision": supervision})


def _is_supervised(learner: Any) -> bool:
    """Return True if a learner needs supervision."""
    return hasattr(learner, "learner_tags") and bool(learner.learner_tags.supervised)


def derive_supervision(learner: Any, pairs: Pairs) -> Supervision | None:
    """Convert pairs to the supervision that a learner needs, or return None if it needs none.

    >>> from nearfar import RCA, Pairs
    >>> derive_supervision(RCA(), Pairs([[0, 1], [1, 2]], [[3, 4]], n_samples=6))
    Chunklets(1 chunklets of 3 rows, n_samples=6)
    """
    if not _is_supervised(learner):
        return None
    tags = learner.learner_tags
    if "pairs" in tags.supervision:
        return pairs
    if "quadruplets" in tags.supervision:
        return Quadruplets.from_pairs(pairs, random_state=0)
    if "triplets" in tags.supervision:
        return Triplets.from_pairs(pairs, random_state=0)
    if "chunklets" in tags.supervision:
        return Chunklets.from_pairs(pairs)
    raise ValueError(
        f"{type(learner).__name__} needs {' or '.join(tags.supervision)}, which cannot be derived "
        "from pairs. Use a learner that accepts pairs, triplets, quadruplets or chunklets, or fit "
        "this learner first and pass it with prefit=True."
    )
