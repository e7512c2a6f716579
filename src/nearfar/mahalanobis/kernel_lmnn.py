"""LMNN in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base import LearnerTags
from nearfar.base.kernel_coordinates import KERNEL_PARAMETERS, KernelCoordinates
from nearfar.base.progress import lent_channel
from nearfar.mahalanobis.lmnn import LMNN, OverLMNN, lmnn_of
from nearfar.parameters import having, none
from nearfar.state import State, object_of


class KernelLMNN(OverLMNN, KernelCoordinates):
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

    See Also
    --------
    LMNN, KernelDA, KernelPCA

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

    learner_tags = LearnerTags(reads="instances")
    state = State({"estimator_": object_of(LMNN, q="q", p="d")})
    parameters: ClassVar = {
        **KERNEL_PARAMETERS,
        "estimator": [none, having("fit", "transform", description="an LMNN")],
    }

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
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
        self._forget()
        lmnn = lmnn_of(self.estimator)
        rows = self._check_X(X, reset=True, min_samples=2)
        labels, codes = self._check_labels(y, len(rows))
        coordinates = self._fit_kernel(rows)
        with lent_channel(self, lmnn):
            self.estimator_ = lmnn.fit(coordinates, labels[codes])
        self.classes_ = labels
        L = self.estimator_.components_.astype(np.float64)
        self.coefficients_ = L @ self._basis.T
        self._take_over(self.estimator_)
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
