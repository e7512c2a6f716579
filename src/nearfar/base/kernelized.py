"""Base class of linear learners that are fitted in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base.guided import reject_index_pairs
from nearfar.base.kernel_coordinates import KERNEL_PARAMETERS, KernelCoordinates
from nearfar.base.learner import LinearLearner
from nearfar.base.progress import forward_progress
from nearfar.parameters import none, object_with


class KernelizedLearner(KernelCoordinates):
    """Linear learner that is fitted to kernel PCA coordinates.

    The parameter ``estimator`` is the linear learner. A subclass sets ``inner``, the class of the
    linear learner, and ``copied_attributes``, the attributes that are copied from the fitted linear
    learner.
    """

    #: The class of the linear learner.
    inner: ClassVar[type[LinearLearner]]
    #: Attributes copied from the fitted linear learner.
    copied_attributes: ClassVar[tuple[str, ...]] = ()
    parameters: ClassVar = {
        **KERNEL_PARAMETERS,
        "estimator": [
            none,
            object_with("fit", "transform", description="a learner of the class it kernelizes"),
        ],
    }

    estimator_: Any

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        n_directions: int | Literal["auto"] | None = "auto",
        estimator: Any = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_directions = n_directions
        self.estimator = estimator

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, *, supervision: Any = None) -> Self:
        """Learn the map from labels or from supervision.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_samples)
            Training points, or their kernel matrix if ``kernel="precomputed"``.
        y : array-like of shape (n_samples,), optional
            Labels. If ``supervision`` is passed, only a learned kernel uses them.
        supervision : optional
            Supervision for the rows of X, of a class that the linear learner accepts.

        Returns
        -------
        object
            The fitted learner.
        """
        self._check_parameters()
        self._forget()
        learner = self._inner()
        rows = self._check_X(X, reset=True, min_samples=2)
        if y is None and supervision is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. "
                f"This estimator learns from {' or '.join(self.learner_tags.supervision)}."
            )
        if supervision is None:
            reject_index_pairs(self, X, y)
        self._learn_kernel(X, y)
        # Matrix products can round equal rows differently. Give equal rows equal coordinates.
        _, first, groups = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        coordinates = self._fit_kernel(rows)[first[groups.ravel()]]
        options = {} if supervision is None else {"supervision": supervision}
        try:
            with forward_progress(self, learner):
                learner.fit(coordinates, y, **options)
        finally:
            # Keep the best solution so far, even after Ctrl-C.
            if hasattr(learner, "components_"):
                self._take(learner)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Map points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_training)
            Points, or their kernel values with the training points if ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            Mapped points, in the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        mapped = self.estimator_.transform(self._kernel_transform(rows))
        return np.asarray(mapped, dtype=rows.dtype)

    def _inner(self) -> Any:
        """Return a clone of ``estimator``, or the default learner if ``estimator`` is None."""
        if self.estimator is None:
            return self.inner()
        if not isinstance(self.estimator, self.inner):
            raise TypeError(
                f"{type(self).__name__}: estimator must be of class {self.inner.__name__}; got "
                f"{type(self.estimator).__name__}."
            )
        return clone(self.estimator)

    def _take(self, learner: Any) -> None:
        self.estimator_ = learner
        self.coefficients_ = learner.components_.astype(np.float64) @ self._basis.T
        for name in self.copied_attributes:
            if hasattr(learner, name):
                setattr(self, name, getattr(learner, name))
