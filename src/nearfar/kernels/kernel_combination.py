"""Base class of learners of a weighted sum of base kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix, Vector
from nearfar.base.kernel_learner import KernelLearner, exact
from nearfar.kernels.base_kernels import BaseKernels
from nearfar.kernels.kernel_set import KernelSet
from nearfar.parameters import AllowedValues, instance, integer, none, one_of
from nearfar.state import Sizes, State, check_that, floats, object_of

#: Allowed values of the parameters that all kernel combinations have. ``fit`` checks the entries of
#: a list of kernels.
COMBINATION_PARAMETERS: dict[str, Sequence[AllowedValues]] = {
    "kernels": [instance(str, list, tuple, description='"auto", "features" or a list of kernels')],
    "n_directions": [none, integer(1), one_of("auto")],
}


class KernelCombination(KernelLearner):
    r"""Base class of estimators that learn a weighted sum of kernels :math:`\sum_i \mu_i k_i`.

    Subclasses implement `_compute_weights`, which returns the weights.

    The weights are scaled to :math:`\sum_i \mu_i \mathrm{tr} K_i = n`. The points then have a mean
    squared norm of 1 in the learned kernel, for any scale of the base kernels.
    """

    state = State(
        {
            "_base": object_of(BaseKernels, m="m", p="p"),
            "weights_": floats("w"),
            "shares_": floats("w"),
        },
        fitted="weights_",
    )
    #: True if the base kernels are scaled to unit diagonal.
    unit_diagonal: ClassVar[bool] = False

    kernels: Any
    weights_: Vector
    shares_: Vector
    kernel_names_: list[str]
    transduction_: NDArray[Any]
    _base: BaseKernels

    def fit(
        self, X: ArrayLike, y: ArrayLike | None = None, *, unlabeled: ArrayLike | None = None
    ) -> Self:
        """Fit the weights of the kernels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Class labels.
        unlabeled : array-like of shape (n_others, n_features), optional
            Points without labels. Traces and norms of the kernels include these points, and
            ``transduction_`` contains their predicted labels.

        Returns
        -------
        object
            The fitted learner.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        classes, codes = self._check_labels(y, len(rows))
        points = exact(rows)
        if unlabeled is not None:
            points = np.vstack([points, exact(self._check_unlabeled(unlabeled))])
        names = vars(self).get("feature_names_in_")
        try:
            self._base = BaseKernels(self.kernels, points, names, self.unit_diagonal)
            self._learn(points, codes)
        except Exception:
            self._forget()
            raise
        if unlabeled is not None and len(self.weights_):
            self.transduction_ = classes[self._transduce(points, codes)]
        return self

    def base_kernel(self, i: int, X: ArrayLike, Z: ArrayLike | None = None) -> Matrix:
        """Return the values of one base kernel between points.

        Parameters
        ----------
        i : int
            Index of the kernel, in the order of ``kernel_names_``.
        X : array-like of shape (n_samples, n_features)
            Points for the rows of the result.
        Z : array-like of shape (n_others, n_features), optional
            Points for the columns of the result. None uses X.

        Returns
        -------
        ndarray of shape (n_samples, n_others)
        """
        check_is_fitted(self)
        if not isinstance(i, int | np.integer) or not 0 <= i < len(self.weights_):
            raise ValueError(
                f"i must be the index of a kernel, from 0 to {len(self.weights_) - 1}; got {i!r}."
            )
        first = self._points(X)
        return self._compute_base_kernel(int(i), first, first if Z is None else self._points(Z))

    def _learn(self, points: Matrix, codes: NDArray[np.intp]) -> None:
        """Compute the weights, and store the learned kernel."""
        kernels = self._base.build_kernel_set(points)
        weights = self._compute_weights(kernels, codes)
        self._keep_weights(weights, kernels.traces, len(points))
        self.kernel_names_ = self._base.names.tolist()
        self._keep_kernel(points, kernels.compute_weighted_sum(self.weights_))

    def _compute_weights(self, kernels: KernelSet, codes: NDArray[np.intp]) -> Vector:
        """Return the kernel weights, up to a common factor. Fitted attributes can be set here."""
        raise NotImplementedError

    def _keep_weights(self, weights: Vector, traces: Vector, n: int) -> None:
        """Scale the weights with `_scale_weights`, and set ``weights_`` and ``shares_``."""
        total = float(weights @ traces)
        self.shares_ = np.asarray(weights * traces / total)
        self.weights_ = self._scale_weights(weights, n / total)

    def _scale_weights(self, weights: Vector, factor: float) -> Vector:
        return np.asarray(weights * factor)

    def _transduce(self, points: Matrix, codes: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the class codes that an SVM predicts for the unlabeled points."""
        labeled, unlabeled = points[: len(codes)], points[len(codes) :]
        machine = SVC(C=getattr(self, "C", None) or 1.0, kernel="precomputed", random_state=0)
        machine.fit(self._values(labeled, labeled), codes)
        return np.asarray(machine.predict(self._values(unlabeled, labeled)))

    def _values(self, first: Matrix, second: Matrix) -> Matrix:
        return self._base.compute_weighted_sum(self.weights_, first, second)

    def _compute_base_kernel(self, i: int, first: Matrix, second: Matrix) -> Matrix:
        return self._base.values(i, first, second)

    def _check_unlabeled(self, unlabeled: ArrayLike) -> Any:
        try:
            return self._check_X(unlabeled, reset=False)
        except (TypeError, ValueError) as error:
            raise type(error)(f"unlabeled: {error}") from error

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        check_that(np.isfinite(self.weights_).all(), "weights_ must be finite.")
        check_that(sizes["w"] == sizes["m"], "weights_ must have one number per kernel.")
