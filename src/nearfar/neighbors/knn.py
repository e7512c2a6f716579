"""Nearest-neighbour classification after any learner."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import LearnerTags, LocalExplanation, NeighborVoter, ThroughLearner
from nearfar.base.mapping import A_LEARNER
from nearfar.base.relevance import names_of_features
from nearfar.neighbors.linear_votes import explain_linear, kept_rows, linear_map, may_be_linear
from nearfar.parameters import integer, one_of
from nearfar.search.exact_search import kneighbors
from nearfar.state import State, none_or, optional, table


class KNNClassifier(ThroughLearner, NeighborVoter):
    r"""Majority vote of the k nearest training points, after a learner's map.

    .. math:: \hat y(x) = \arg\max_c |\{i \in N_k(x) : y_i = c\}|

    for the k training points :math:`N_k(x)` nearest to x. The search is exact and works in blocks.
    Ties between classes shrink k: the vote is repeated with k-1, k-2, … nearest points until one
    class leads.

    Use it alone, as the last step of a Pipeline, or around a learner. The learner is cloned and
    fitted on the same rows and labels. Which features and which neighbours made a label,
    :meth:`explain` tells, without a learner or behind a linear one.

    Cost: the learner's fit; then O(n q) for each query in q dimensions. Keeps the mapped points,
    and behind a linear learner the training rows too. Without a learner float16, float32 and
    memory-mapped rows stay as they are, and no copy is made of them.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Fitted first; neighbours are searched after its ``transform``. None searches X itself.
    n_neighbors : int, default=3
        How many points vote.
    ties : {"shrink", "first"}, default="shrink"
        "first" lets the smallest label win; scikit-learn's classifier does so.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    estimator_ : object or None
        The fitted learner.

    See Also
    --------
    EnergyClassifier, MVEMClassifier, SetKNeighborsClassifier

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007, sections 2.1.1 and
       2.1.6.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import KNNClassifier, LDA
    >>> X, y = load_iris(return_X_y=True)
    >>> knn = KNNClassifier(LDA(), n_neighbors=5).fit(X, y)
    >>> knn.predict(X[:2]).tolist()
    [0, 0]
    >>> round(knn.leave_one_out_error(), 3)
    0.04
    """

    learner_tags = LearnerTags(reads="instances", role="classifier")
    state = State(
        {"_points": table("n", "q", half=True), "_rows": optional(none_or(table("n", "given")))},
        rows="_points",
    )
    parameters: ClassVar = {
        "estimator": A_LEARNER,
        "n_neighbors": [integer(1)],
        "ties": [one_of("shrink", "first")],
    }
    half = True

    #: Training rows before a map that may be linear, for explanations.
    _rows: Floats | None

    def __init__(
        self,
        estimator: Any = None,
        n_neighbors: int = 3,
        *,
        ties: Literal["shrink", "first"] = "shrink",
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.ties = ties

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Fit the learner and keep the mapped training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels, for the vote and for the learner.
        supervision : Pairs, Triplets, Quadruplets, Chunklets or array-like, optional
            Handed to the learner.

        Returns
        -------
        KNNClassifier
            Itself.
        """
        learner, points, classes, codes = self._fit_learner(X, y, supervision)
        self._check_neighbors(len(points))
        self.estimator_, self.classes_ = learner, classes
        self._points, self._codes = points, codes
        self._rows = kept_rows(X) if learner is not None and may_be_linear(learner) else None
        return self

    def explain(self, X: ArrayLike) -> LocalExplanation:
        r"""Which training rows voted for each label, and what the features did to their distances.

        The metric is one for all rows, :math:`M = L^T L` in the units of X, for a linear learner L
        or the identity. The relevance of a feature is its share of the diagonal of S M S, with S
        the deviations of the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            New points.

        Returns
        -------
        LocalExplanation
        """
        check_is_fitted(self)
        queries, rows, linear = self._queries(X), self._points, None
        if self.estimator_ is not None:
            kept, given = getattr(self, "_rows", None), kept_rows(X)
            if kept is not None:
                linear = linear_map(self.estimator_, kept.astype(np.float64), self._points)
            if kept is None or given is None or linear is None:
                raise ValueError(self._why_not(kept))
            queries, rows = given, kept
        names = names_of_features(self, rows.shape[1])
        return explain_linear(
            self, X, queries.astype(np.float64), rows.astype(np.float64), linear, names
        )

    def _why_not(self, rows: Floats | None) -> str:
        """Why labels cannot be explained, and what would do."""
        name = type(self.estimator_).__name__
        if rows is None and may_be_linear(self.estimator_):
            return (
                "explain needs the training rows as numbers, and this classifier has not kept "
                "them: X was a table with other cells, sparse, or the model file is older. Fit it "
                "to numbers."
            )
        return (
            f"explain needs a linear map, and {name} is none: no feature has a share of its "
            "distances. A linear learner such as LMNN or LDA would do, estimator=None, or a "
            "classifier with a metric for each query."
        )

    def _nearest(self, X: ArrayLike | None, k: int) -> tuple[Matrix, Indices]:
        queries = None if X is None else self._queries(X)
        return kneighbors(self._points, queries, n_neighbors=k)
