"""MGMKLD in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from nearfar.base import LearnerTags, LinearLearner
from nearfar.base.kernel_coordinates import (
    KERNEL_PARAMETERS,
    LANDMARK_PARAMETERS,
    LandmarkCoordinates,
)
from nearfar.base.progress import forward_progress
from nearfar.discriminant.mgmkld import MGMKLD
from nearfar.parameters import none, object_with
from nearfar.state import State, object_of

# Maximum number of kernel PCA directions with n_directions="auto".
_MAX_DIRECTIONS = 200


class KernelMGMKLD(LandmarkCoordinates):
    r"""MGMKLD in the feature space of a kernel.

    With :math:`U = \Phi \Lambda`, where :math:`\Phi` contains the training points in feature
    space, the projected class Gaussians have the means :math:`\Lambda^T K_i 1/n_i` and covariances
    :math:`\tfrac{1}{n_i} \Lambda^T K_i H_i K_i^T \Lambda`. Here :math:`K_i` are the columns of the
    kernel matrix for class i and :math:`H_i` is the centering matrix. The objective is that of
    :class:`MGMKLD`. Since it is invariant under invertible linear transformations, MGMKLD on the
    kernel PCA coordinates solves the problem.

    With all kernel PCA directions, the problem has no solution: along some of them a class does
    not vary, and its divergence is infinite. So only the leading ``n_directions`` are used.

    Use it if classes are curved or nested and differ in shape. A flexible kernel can separate the
    training rows for any labels, so evaluate it on held-out rows, and decrease ``n_directions`` if
    it overfits. The model stores training rows: all of them, or ``n_landmarks``.

    Cost: O(m² p + m³) for m landmarks, O(n m p) for the coordinates of n rows, then the cost of
    MGMKLD with ``n_directions`` features. Transforming a point costs O(m p).

    Parameters
    ----------
    kernel : str, kernel learner or callable, default="rbf"
        Kernel, as in scikit-learn: "linear", "rbf", "poly", "sigmoid", "laplacian", "cosine" or
        "precomputed"; or a kernel learner; or a function that returns the kernel of two points. See
        Notes.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly", "sigmoid" and "laplacian". None means 1 divided by the
        sum of the variances of the features, or of their standard deviations for "laplacian".
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant term of the kernels "poly" and "sigmoid".
    n_directions : int, "auto" or None, default="auto"
        Number of leading directions of kernel PCA. "auto" uses one direction per five rows of the
        smallest class, but at most 200 and at least the number of components. None uses all
        directions with nonzero variance.
    n_landmarks : int, "auto" or None, default="auto"
        Number of training rows that span the directions, drawn from each class in proportion to its
        size. "auto" uses ``min(n_samples, 1000)`` rows, and None uses all rows. A precomputed
        kernel always uses all rows.
    estimator : MGMKLD, optional
        Learner applied to the kernel coordinates. It is cloned. None means ``MGMKLD()``.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The seed determines the landmarks.

    Attributes
    ----------
    estimator_ : MGMKLD
        Learner fitted on the kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_landmarks)
        Matrix :math:`\Lambda^T`, which maps the centered kernel values k of a point to
        :math:`\Lambda^T k`.
    n_directions_ : int
        Number of kernel PCA directions used in the fit.
    objective_, equality_weight_ : float
        See :class:`MGMKLD`.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    kernel_ : kernel learner
        Fitted kernel learner. It exists only if ``kernel`` is a kernel learner.

    See Also
    --------
    MGMKLD, MultimodalKernelMGMKLD, KernelDA

    Notes
    -----
    ``kernel`` is one of the following:

    - A name. With "precomputed", X contains kernel values: of shape (n, n) in ``fit``, and
      (n_queries, n) in ``transform``.
    - A kernel learner such as ``AlignmentKernelLearner()``, which is fitted on the same rows and
      labels. ``gamma``, ``degree`` and ``coef0`` are then ignored.
    - A function of two points, which is called once per pair of points. The model cannot be saved
      to a model file then.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.5.3.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KNNClassifier, KernelMGMKLD
    >>> X, y = make_circles(400, noise=0.1, factor=0.5, random_state=0)
    >>> knn = KNNClassifier(KernelMGMKLD()).fit(X[::2], y[::2])
    >>> bool(knn.score(X[1::2], y[1::2]) > 0.95)
    True
    """

    learner_tags = LearnerTags(reads="instances")
    renamed: ClassVar = {"eta_": "equality_weight_"}
    state = State({"estimator_": object_of(LinearLearner, q="q", p="d")})
    settings = ({"kernel": "poly", "degree": 2},)
    parameters: ClassVar = {
        **KERNEL_PARAMETERS,
        **LANDMARK_PARAMETERS,
        "estimator": [none, object_with("fit", "transform", description="an MGMKLD")],
    }
    #: Class of the learner that is fitted on the kernel coordinates.
    linear_learner: ClassVar[type] = MGMKLD

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        n_directions: int | Literal["auto"] | None = "auto",
        n_landmarks: int | Literal["auto"] | None = "auto",
        estimator: Any = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_directions = n_directions
        self.n_landmarks = n_landmarks
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit the model to labeled points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_samples)
            Training points, or kernel values if ``kernel="precomputed"``.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        object
            The fitted learner.
        """
        self._check_parameters()
        learner_class = self.linear_learner
        if self.estimator is not None and not isinstance(self.estimator, learner_class):
            type_name = type(self.estimator).__name__
            raise TypeError(
                f"estimator must be a {learner_class.__name__} or None, but got {type_name}."
            )
        rows = self._check_X(X, reset=True, min_samples=2)
        self.classes_, codes = self._check_labels(y, len(rows))
        self._learn_kernel(X, y)
        estimator = learner_class() if self.estimator is None else clone(self.estimator)
        n_components = len(self.classes_) - 1
        if estimator.n_components is not None:
            n_components = estimator.n_components
        n_auto_directions = max(
            n_components, min(_MAX_DIRECTIONS, int(np.bincount(codes).min()) // 5)
        )
        landmarks = self._landmarks(codes)
        if len(landmarks) == len(rows):
            coordinates = self._fit_kernel(rows, n_auto_directions)
        else:
            self._fit_kernel(rows[landmarks], n_auto_directions)
            coordinates = self._kernel_transform(rows)
        try:
            with forward_progress(self, estimator):
                self.estimator_ = estimator.fit(coordinates, self.classes_[codes])
        finally:
            # After Ctrl-C, keep the result of the interrupted fit, if there is one.
            if hasattr(estimator, "components_"):
                self._keep(estimator)
        return self

    def _keep(self, estimator: Any) -> None:
        self.estimator_ = estimator
        self.coefficients_ = estimator.components_ @ self._basis.T
        self.objective_, self.equality_weight_ = estimator.objective_, estimator.equality_weight_
