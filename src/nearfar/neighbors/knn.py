"""k-nearest-neighbor classification in the space of a fitted learner."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.base import AfterLearner, LearnerTags, LocalExplanation, NeighborsClassifier
from nearfar.base.mapping import A_LEARNER
from nearfar.base.relevance import get_feature_names
from nearfar.neighbors.linear_votes import (
    explain_linear,
    find_linear_map,
    may_be_linear,
    to_numeric_rows,
)
from nearfar.parameters import integer, one_of
from nearfar.search.exact_search import kneighbors
from nearfar.state import State, none_or, optional, table


class KNNClassifier(AfterLearner, NeighborsClassifier):
    r"""k-nearest-neighbor classifier for points transformed by a learner.

    .. math:: \hat y(x) = \arg\max_c |\{i \in N_k(x) : y_i = c\}|

    where :math:`N_k(x)` are the k training points nearest to x. The search is exact and processes
    the queries in blocks.

    Use the classifier alone, as the last step of a Pipeline, or around a learner, which is cloned
    and fitted on the same rows and labels. :meth:`explain` reports the neighbors and features
    behind each predicted label. It needs ``estimator=None`` or a linear learner.

    Cost: the learner's fit, then O(n q) per query in q dimensions. The classifier stores the
    transformed training points and, if the learner may be linear, the training rows. Without a
    learner, float16, float32 and memory-mapped rows are stored in their own type without a copy.

    Parameters
    ----------
    estimator : learner or transformer, optional
        Learner that transforms the points before the neighbor search. It is cloned and fitted
        first. None uses X without a transformation.
    n_neighbors : int, default=3
        Number of neighbors that vote.
    ties : {"shrink", "first"}, default="shrink"
        How ties between classes are broken: "shrink" repeats the vote with k-1, k-2, … neighbors
        until one class leads; "first" takes the smallest label, as scikit-learn does.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    estimator_ : object or None
        Fitted learner.

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

    #: Training rows before the transform, which `explain` needs. None if the learner is not linear.
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
        """Fit the learner and store the transformed training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels, used by the vote and by the learner.
        supervision : Pairs, Triplets, Quadruplets, Chunklets or array-like, optional
            Supervision passed to the learner's ``fit``.

        Returns
        -------
        KNNClassifier
            The fitted classifier.
        """
        learner, points, classes, codes = self._fit_learner(X, y, supervision)
        self._check_neighbors(len(points))
        self.estimator_, self.classes_ = learner, classes
        self._points, self._codes = points, codes
        self._rows = to_numeric_rows(X) if learner is not None and may_be_linear(learner) else None
        return self

    def explain(self, X: ArrayLike) -> LocalExplanation:
        r"""Return the neighbors that vote, and each feature's contribution to their distances.

        All rows have the same metric :math:`M = L^T L` in the units of X, where L is the matrix of
        the linear learner, or the identity without a learner. The relevance of a feature is its
        fraction of the diagonal of S M S, where S is the diagonal matrix of the standard
        deviations of the training rows.

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
            training_rows, query_rows = getattr(self, "_rows", None), to_numeric_rows(X)
            if training_rows is not None:
                linear = find_linear_map(
                    self.estimator_, training_rows.astype(np.float64), self._points
                )
            if training_rows is None or query_rows is None or linear is None:
                raise ValueError(self._explain_failure(training_rows))
            queries, rows = query_rows, training_rows
        names = get_feature_names(self, rows.shape[1])
        return explain_linear(
            self, X, queries.astype(np.float64), rows.astype(np.float64), linear, names
        )

    def _explain_failure(self, rows: Floats | None) -> str:
        """Return the message of the error that `explain` raises."""
        name = type(self.estimator_).__name__
        if rows is None and may_be_linear(self.estimator_):
            return (
                "explain needs numeric training rows, but this classifier did not store them: X "
                "was sparse or had non-numeric cells, or the model file was written by an older "
                "version. Fit the classifier again with a dense numeric X."
            )
        return (
            f"explain needs a linear learner, but {name} is not linear, so its distances cannot be "
            "split into features. Use a linear learner such as LMNN or LDA, estimator=None, or a "
            "classifier with one metric per query, such as DANNClassifier."
        )

    def _nearest(self, X: ArrayLike | None, k: int) -> tuple[Matrix, Indices]:
        queries = None if X is None else self._queries(X)
        return kneighbors(self._points, queries, n_neighbors=k)
