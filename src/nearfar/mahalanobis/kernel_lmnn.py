"""LMNN in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.validation import check_is_fitted

from nearfar.base import Learner, LearnerTags
from nearfar.blocks import row_blocks
from nearfar.mahalanobis.lmnn import LMNN, lmnn_of
from nearfar.parameters import having, integer, none, one_of, real
from nearfar.solvers.eigen import descending_eigh
from nearfar.summaries.class_statistics import Floats

_KERNELS = ("linear", "rbf", "poly", "sigmoid", "laplacian", "cosine")


class KernelLMNN(ClassNamePrefixFeaturesOutMixin, Learner):
    r"""Large margin nearest neighbours in the feature space of a kernel.

    With the map :math:`L = \Omega \Phi`, :math:`\Phi` holding the training points in feature
    space, the loss of :class:`LMNN` depends on the kernel alone. A component of L off the span of
    the training points changes no distance between them; so LMNN is solved on the coordinates of
    kernel PCA, all of them or the leading ``n_directions``, where squared distances are
    :math:`K_{ii} + K_{jj} - 2K_{ij}`. Targets are chosen by that distance.

    Use it when classes are not told apart by any linear map. With all directions and a rich kernel
    it can satisfy any labels, so keep ``n_directions`` well below the number of rows, and look at
    the error on held-out rows. It keeps the training points, and a kernel matrix of n×n while it
    fits.

    Cost: O(n² p + n²·directions) for the kernel and its eigenvectors, then that of LMNN in so many
    dimensions; O(n p) for each point to map.

    Parameters
    ----------
    kernel : {"linear", "rbf", "poly", "sigmoid", "laplacian", "cosine", "precomputed"} or callable
        As in scikit-learn; "precomputed" takes kernel values as X: (n, n) to fit, (queries, n) to
        transform. A function cannot be kept in a model file.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly", "sigmoid" and "laplacian". None is 1 over the sum of
        the features' variances (for "laplacian", of their deviations), so that units do not
        matter.
    degree : float, default=3
        Of the kernel "poly".
    coef0 : float, default=1
        Of the kernels "poly" and "sigmoid".
    n_directions : int, "auto" or None, default="auto"
        Leading directions of kernel PCA. "auto" is a tenth of the rows, from 10 to 50; None is all
        that are not empty.
    estimator : LMNN, optional
        Its settings; None is ``LMNN()``.

    Attributes
    ----------
    estimator_ : LMNN
        Fitted on kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Ω: a point with centred kernel values k is mapped to Ωk.
    n_directions_ : int
        Directions used.
    objective_, dual_bound_, duality_gap_ : float
        As in LMNN.
    target_neighbors_ : ndarray of shape (n_samples, k)
        As in LMNN.
    classes_ : ndarray of shape (n_classes,)
        The labels.

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.1.8.
    .. [2] L. Torresani and K. C. Lee, "Large margin component analysis", Advances in Neural
       Information Processing Systems 19, 2006.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelLMNN, KNNClassifier
    >>> X, y = make_circles(200, noise=0.1, factor=0.7, random_state=0)
    >>> knn = KNNClassifier(KernelLMNN(kernel="rbf")).fit(X, y)
    >>> bool(knn.leave_one_out_error() < 0.15)
    True
    """

    learner_tags = LearnerTags(kind="instance", linear=False)
    parameters: ClassVar = {
        "kernel": [
            one_of(*_KERNELS, "precomputed"),
            having("__call__", description="a function of two arrays"),
        ],
        "gamma": [none, real(0, open_low=True)],
        "degree": [real(0, open_low=True)],
        "coef0": [real()],
        "n_directions": [none, integer(1), one_of("auto")],
        "estimator": [none, having("fit", "transform", description="an LMNN")],
    }

    def __init__(
        self,
        kernel: Any = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        n_directions: int | Literal["auto"] | None = "auto",
        estimator: LMNN | None = None,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_directions = n_directions
        self.estimator = estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    @property
    def n_neighbors(self) -> int:
        """That of LMNN, for the energy rule."""
        return lmnn_of(self.estimator).n_neighbors

    @property
    def push_weight(self) -> float:
        """That of LMNN, for the energy rule."""
        return lmnn_of(self.estimator).push_weight

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the map.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_samples, n_samples) of a kernel
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        KernelLMNN
            Itself.
        """
        self._check_parameters()
        lmnn = lmnn_of(self.estimator)
        rows = self._check_X(X, reset=True, min_samples=2)
        labels, codes = self._check_labels(y, len(rows))
        # A copy: kernels of an array with itself are computed another way.
        self._rows = None if self._is_given() else _exact(rows).copy()
        self._gamma = self._choose_gamma()
        K = self._kernel(rows if self._rows is None else self._rows)
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"A precomputed kernel must be square to fit; got shape {K.shape}.")
        if not np.allclose(K, K.T, rtol=1e-6, atol=1e-8 * np.abs(K).max()):
            raise ValueError("The kernel matrix is not symmetric.")
        self._means = K.mean(axis=0)
        self._mean = float(self._means.mean())
        n_directions: Any = self.n_directions
        if self.n_directions == "auto":
            n_directions = min(50, max(10, len(K) // 10))
        values, vectors = descending_eigh(self._centred(K), n_directions)
        kept = values > 1e-10 * max(values[0], np.finfo(float).tiny)
        if not kept.any():
            raise ValueError("The kernel maps all points to one: there is nothing to learn.")
        self._basis = vectors[:, kept] / np.sqrt(values[kept])
        self.n_directions_ = int(kept.sum())
        self.estimator_ = lmnn.fit(self._coordinates(K), labels[codes])
        self.classes_ = labels
        L = self.estimator_.components_.astype(np.float64)
        self.coefficients_ = L @ self._basis.T
        for name in ("target_neighbors_", "objective_", "dual_bound_", "duality_gap_"):
            setattr(self, name, getattr(self.estimator_, name))
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coefficients_")

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
        mapped = np.empty((len(rows), self._n_features_out), dtype=rows.dtype)
        for block in row_blocks(len(rows), 32 * len(self._basis)):
            mapped[block] = self.estimator_.transform(self._coordinates(self._kernel(rows[block])))
        return mapped

    def _is_given(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _choose_gamma(self) -> float | None:
        if self._rows is None:
            return None
        if self.gamma is not None:
            return float(self.gamma)
        variances = self._rows.var(axis=0)
        spread = float((np.sqrt(variances) if self.kernel == "laplacian" else variances).sum())
        return 1 / spread if spread > 0 else 1.0

    def _kernel(self, rows: Floats) -> NDArray[np.float64]:
        """Kernel values of points with the training points."""
        points = _exact(rows)
        if self._rows is None:
            return points
        options: dict[str, Any] = {}
        if not callable(self.kernel):
            options = {"gamma": self._gamma, "degree": self.degree, "coef0": self.coef0}
            options["filter_params"] = True
        values = pairwise_kernels(points, self._rows, metric=self.kernel, **options)
        return np.asarray(values, np.float64)

    def _centred(self, K: NDArray[np.float64]) -> NDArray[np.float64]:
        """Kernel values about the mean of the training points."""
        return K - K.mean(axis=1, keepdims=True) - self._means + self._mean

    def _coordinates(self, K: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._centred(K) @ self._basis

    @property
    def _n_features_out(self) -> int:
        return len(self.coefficients_)


def _exact(rows: Floats) -> NDArray[np.float64]:
    # Kernels lose digits in float32; equal rows in another order of memory must give equal bits.
    return np.ascontiguousarray(rows, dtype=np.float64)
