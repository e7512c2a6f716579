"""Learners of vectors in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base.kernel_coordinates import KERNEL_PARAMETERS, KernelCoordinates
from nearfar.base.learner import LinearLearner
from nearfar.base.progress import lent_channel
from nearfar.parameters import having, none


class KernelizedLearner(KernelCoordinates):
    """A linear learner on kernel coordinates: ``estimator`` has its settings.

    A subclass says the class of the ``inner`` learner, and what of it is ``taken_over``.
    """

    #: The class of the learner.
    inner: ClassVar[type[LinearLearner]]
    #: Attributes of the fitted learner that are its own too.
    taken_over: ClassVar[tuple[str, ...]] = ()
    parameters: ClassVar = {
        **KERNEL_PARAMETERS,
        "estimator": [none, having("fit", "transform", description="a learner of its kind")],
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
        X : array-like of shape (n_samples, n_features), or (n_samples, n_samples) of a kernel
            Training points.
        y : array-like of shape (n_samples,), optional
            Labels; where supervision is given, only a kernel that is learned reads them.
        supervision : optional
            What the inner learner reads, of the rows of X.

        Returns
        -------
        object
            Itself.
        """
        self._check_parameters()
        self._forget()
        learner = self._inner()
        rows = self._check_X(X, reset=True, min_samples=2)
        if y is None and supervision is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it "
                f"learns from {' or '.join(self.learner_tags.learns_from)}."
            )
        self._learn_kernel(X, y)
        # Products round equal rows in different ways; to the learner they are equal.
        _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        coordinates = self._fit_kernel(rows)[first[same.ravel()]]
        guided = {} if supervision is None else {"supervision": supervision}
        try:
            with lent_channel(self, learner):
                learner.fit(coordinates, y, **guided)
        finally:
            # Also after Ctrl-C: what was reached so far is left on the learner.
            if hasattr(learner, "components_"):
                self._take(learner)
        return self

    def transform(self, X: ArrayLike) -> Floats:
        """Map points, or their kernel values with the training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.

        Returns
        -------
        ndarray of shape (n_samples, n_components)
            In the dtype of X.
        """
        check_is_fitted(self)
        rows = self._check_X(X, reset=False)
        mapped = self.estimator_.transform(self._kernel_transform(rows))
        return np.asarray(mapped, dtype=rows.dtype)

    def _inner(self) -> Any:
        """A copy of the learner that was given; with None, one of the defaults."""
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
        for name in self.taken_over:
            if hasattr(learner, name):
                setattr(self, name, getattr(learner, name))
