"""LMNN in several passes, each with targets chosen by the metric learned so far."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Floats
from nearfar.base import LearnerTags, LinearLearner
from nearfar.base.progress import forward_progress
from nearfar.large_margin.held_out import hold_out
from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.over_lmnn import InnerLMNNMixin, copy_published_lmnn
from nearfar.neighbors.knn import KNNClassifier
from nearfar.parameters import integer, none, object_with, one_of, random_state, real
from nearfar.state import State, integer_value, list_of, object_of


class MultiPassLMNN(InnerLMNNMixin, LinearLearner):
    r"""LMNN run several times, each pass with targets chosen by the metric of the previous pass.

    With :math:`L_p` the map of pass p,

    .. math:: L = L_P \cdots L_2 L_1, \qquad
        L_p = \mathrm{LMNN}\ \text{of}\ X (L_{p-1} \cdots L_1)^T

    LMNN chooses its targets by the Euclidean distance of the given data, which may be a poor
    choice. A second pass chooses them by the metric of the first pass. One pass is exactly
    :class:`LMNN` with the settings of the thesis. More passes lower the training error and may
    overfit. ``n_passes="validate"`` holds out some of the rows, tries up to ``max_passes`` passes,
    selects the number with the lowest k-NN error and then fits all rows.

    :class:`LMNN` itself makes two passes by default, which is faster. This class follows the
    thesis [1]_: each pass is fitted to the data as mapped by the previous one, and all passes are
    kept.

    Use it to inspect the passes one by one or to make more than two, if there are enough rows to
    hold some out.

    Cost: that of LMNN times the number of passes, and as much again for the validation.

    Parameters
    ----------
    estimator : LMNN, optional
        Settings of each pass. None means ``LMNN()``. Settings that are "auto" take the values of
        the thesis: all impostors, one pass, no early stopping.
    n_passes : int or "validate", default="validate"
        Number of passes. "validate" selects the number on held-out rows.
    max_passes : int, default=5
        Maximum number of passes that "validate" tries.
    validation_fraction : float, default=0.3
        Fraction of the rows held out. These rows are stratified by class and used to select the
        number of passes.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. Used to select the held-out rows.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Product of the maps of all passes. It has fewer rows than columns if a pass lost dimensions.
    passes_ : list of LMNN
        The fitted passes, first to last.
    n_passes_ : int
        Number of passes.
    validation_errors_ : list of float
        k-NN error on the held-out rows before the first pass and after each pass. No pass is tried
        after a pass without errors. The list is empty without validation.
    target_neighbors_ : ndarray of shape (n_samples, k)
        Targets of the last pass.
    objective_, dual_bound_, duality_gap_ : float
        Values of the last pass, which is fitted to the output of the previous pass.
    classes_ : ndarray of shape (n_classes,)
        Class labels.

    See Also
    --------
    LMNN, MultiMetricLMNN

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.1.8.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from nearfar import KNNClassifier, MultiPassLMNN
    >>> X, y = load_wine(return_X_y=True)
    >>> lmnn = MultiPassLMNN(n_passes=2).fit(X, y)
    >>> len(lmnn.passes_)
    2
    >>> bool(KNNClassifier().fit(lmnn.transform(X), y).leave_one_out_error() < 0.02)
    True
    """

    learner_tags = LearnerTags(reads="supervision")
    state = State(
        {"passes_": list_of(object_of(LMNN), "passes"), "n_passes_": integer_value("passes")}
    )
    parameters: ClassVar = {
        "estimator": [none, object_with("fit", "transform", description="an LMNN")],
        "n_passes": [integer(1), one_of("validate")],
        "max_passes": [integer(1)],
        "validation_fraction": [real(0, 0.9, open_low=True)],
        "random_state": [random_state],
    }

    def __init__(
        self,
        estimator: LMNN | None = None,
        *,
        n_passes: int | Literal["validate"] = "validate",
        max_passes: int = 5,
        validation_fraction: float = 0.3,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.estimator = estimator
        self.n_passes = n_passes
        self.max_passes = max_passes
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit the passes one after the other.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        MultiPassLMNN
            The fitted estimator.
        """
        self._check_parameters()
        copy_published_lmnn(self.estimator, self)
        rows = self._check_X(X, reset=True, min_samples=2)
        labels, codes = self._check_labels(y, len(rows))
        self.validation_errors_: list[float] = []
        n_passes = (
            self._choose_n_passes(rows, codes) if self.n_passes == "validate" else self.n_passes
        )
        self.passes_ = self._fit_passes(rows, labels[codes], int(n_passes))
        last = self.passes_[-1]
        self.components_ = last.components_
        for earlier in self.passes_[-2::-1]:
            self.components_ = self.components_ @ earlier.components_
        self.mean_ = self.passes_[0].mean_
        self.n_passes_ = len(self.passes_)
        self.classes_ = labels
        self._copy_fitted(last)
        return self

    def _fit_passes(self, rows: Floats, labels: NDArray[Any], n_passes: int) -> list[LMNN]:
        passes: list[LMNN] = []
        for _ in range(n_passes):
            lmnn = copy_published_lmnn(self.estimator, self)
            with forward_progress(self, lmnn):
                passes.append(lmnn.fit(rows, labels))
            rows = lmnn.transform(rows)
        return passes

    def _choose_n_passes(self, rows: Floats, codes: NDArray[np.intp]) -> int:
        """Return the number of passes with the fewest errors on held-out rows."""
        training, validation = hold_out(codes, self.validation_fraction, self.random_state)
        points, queries, labels = rows[training], rows[validation], codes[training]
        errors = self.validation_errors_
        while len(errors) <= self.max_passes:
            if errors:
                with warnings.catch_warnings():
                    # Ignore warnings here, because the fit on all rows issues the same warnings.
                    warnings.simplefilter("ignore")
                    lmnn = copy_published_lmnn(self.estimator, self).fit(points, labels)
                points, queries = lmnn.transform(points), lmnn.transform(queries)
            knn = KNNClassifier(n_neighbors=min(self.n_neighbors, len(points))).fit(points, labels)
            errors.append(1 - float(knn.score(queries, codes[validation])))
            if len(errors) > 1 and errors[-1] == 0:
                break  # Another pass cannot have a lower error.
        return 1 + int(np.argmin(errors[1:]))
