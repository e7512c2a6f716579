"""Mixin for estimators that map points with a learner first."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_array

from nearfar.arrays import Floats
from nearfar.base.estimator import Estimator
from nearfar.parameters import none, object_with
from nearfar.state import Condition, Sizes, State, check_state, matches_size

#: Allowed values of the parameter ``estimator``.
A_LEARNER = [none, object_with("fit", "transform", description="a learner with fit and transform")]


def _has_matching_output(learner: Any, sizes: Sizes) -> bool:
    """Return True if the learner's number of output features matches the stored points."""
    if learner is None:
        return "p" in sizes and matches_size(sizes["p"], "q", sizes)
    n_outputs = check_state(learner).get("q")
    return hasattr(type(learner), "transform") and (
        n_outputs is None or matches_size(n_outputs, "q", sizes)
    )


class AfterLearner(Estimator):
    """Estimator that maps X with ``estimator`` first, unless ``estimator`` is None."""

    state = State(
        {"estimator_": Condition(_has_matching_output, "a learner that gives q features, or None")},
        fitted="_points",
    )

    #: Whether float16 points are stored without conversion if ``estimator`` is None.
    half: ClassVar = False

    estimator: Any
    estimator_: Any

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_points")

    def _fit_learner(
        self, X: ArrayLike, y: ArrayLike | None, supervision: Any
    ) -> tuple[Any, Floats, NDArray[Any], NDArray[np.intp]]:
        """Fit a clone of ``estimator`` and map X.

        Return the clone (None if ``estimator`` is None), the mapped points, the classes and the
        class codes.
        """
        learner, points = self._fit_map(X, y, supervision)
        return learner, points, *self._check_labels(y, len(points), min_classes=1)

    def _fit_map(self, X: ArrayLike, y: ArrayLike | None, supervision: Any) -> tuple[Any, Floats]:
        """Fit a clone of ``estimator`` and map X.

        Return the clone (None if ``estimator`` is None) and the mapped points.
        """
        self._forget()
        self.__dict__.pop("_points", None)
        self._check_parameters()
        learner = None
        if self.estimator is None:
            if supervision is not None:
                raise ValueError(
                    "supervision is passed to estimator, but estimator is None. Set estimator to "
                    "a learner, or omit supervision."
                )
            points = self._check_X(X, reset=True, half=self.half)
        else:
            options = {} if supervision is None else {"supervision": supervision}
            learner = clone(self.estimator).fit(X, y, **options)
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(learner, name):
                    setattr(self, name, getattr(learner, name))
            points = _transform(learner, X)
        return learner, points

    def _queries(self, X: ArrayLike) -> Floats:
        """Validate and map new points."""
        if self.estimator_ is None:
            return self._check_X(X, reset=False, half=self.half)
        return _transform(self.estimator_, X)


def _transform(transformer: Any, X: ArrayLike) -> Floats:
    """Transform X and return the result as an array of finite floats."""
    points = transformer.transform(X)
    name = type(transformer).__name__
    if sparse.issparse(points):
        raise TypeError(
            f"{name}.transform returned a sparse matrix, but the neighbor search requires dense "
            "data. Reduce its dimension first, for example with "
            "sklearn.decomposition.TruncatedSVD."
        )
    checked: Floats = check_array(
        points, dtype=[np.float64, np.float32], input_name=f"the output of {name}.transform"
    )
    return checked
