"""Discriminant analysis in the feature space of a kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags
from nearfar.base.kernel_coordinates import (
    KERNEL_PARAMETERS,
    LANDMARK_PARAMETERS,
    LandmarkCoordinates,
)
from nearfar.blocks import split_rows
from nearfar.discriminant.checks import choose_n_mean_directions
from nearfar.parameters import integer, none, real
from nearfar.solvers.eigen import canonical_rows, whitener
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import find_between_axes


class KernelDA(LandmarkCoordinates):
    r"""Kernel discriminant analysis: LDA in the feature space of a kernel.

    With :math:`U = \Phi \Lambda`, where :math:`\Phi` contains the training points in feature
    space, and with the kernel matrix K, KernelDA solves

    .. math::
        \max_\Lambda \mathrm{tr}\left( (\Lambda^T (K_t + \mu I) \Lambda)^{-1} \Lambda^T K_b \Lambda
        \right), \qquad K_b = K (W - M)(W - M)^T K , \quad K_t = K (I - M) K ,

    where all entries of :math:`M` are 1/n and W has diagonal blocks with entries :math:`1/n_i`.
    The solution is LDA on the statistics of the kernel PCA coordinates. Since :math:`K_t` is
    singular, it is regularized by :math:`\mu`, which is ``ridge`` times the mean of the nonzero
    eigenvalues of :math:`K_t`.

    Use it if no linear transformation separates the classes. A flexible kernel can separate the
    training rows for any labels, so evaluate it on held-out rows, and increase ``ridge`` or
    decrease ``n_directions`` if it overfits. The model stores training rows: all of them, or
    ``n_landmarks``. With landmarks, the directions are combinations of landmarks, while means and
    scatters use all rows.

    Cost: O(m² p + m³) for m landmarks, then O(n m p + n m²). Transforming a point costs O(m p).

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. None uses the maximum, which is the number of directions that the
        class means span. This is at most ``n_classes - 1``.
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
    ridge : float, default=1e-6
        Value added to the variances: ``ridge`` times the mean nonzero eigenvalue of :math:`K_t`.
    n_directions : int, "auto" or None, default=None
        Number of leading directions of kernel PCA. None uses all directions with nonzero variance.
        "auto" uses one direction per ten landmarks, but at least 10 and at most 50.
    n_landmarks : int, "auto" or None, default="auto"
        Number of training rows that span the directions, drawn from each class in proportion to its
        size. "auto" uses ``min(n_samples, 1000)`` rows, and None uses all rows. A precomputed
        kernel always uses all rows.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The seed determines the landmarks.

    Attributes
    ----------
    coefficients_ : ndarray of shape (n_components, n_landmarks)
        Matrix :math:`\Lambda^T`, which maps the centered kernel values k of a point to
        :math:`\Lambda^T k`.
    eigenvalues_ : ndarray of shape (n_components,)
        Generalized eigenvalues of :math:`(K_b, K_t + \mu I)`, at most 1.
    n_directions_ : int
        Number of kernel PCA directions used in the fit.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    kernel_ : kernel learner
        Fitted kernel learner. It exists only if ``kernel`` is a kernel learner.

    See Also
    --------
    LDA, KernelMGMKLD, KernelPCA

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
       section 2.2.7.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelDA, KNNClassifier
    >>> X, y = make_circles(400, noise=0.1, factor=0.5, random_state=0)
    >>> knn = KNNClassifier(KernelDA()).fit(X[::2], y[::2])
    >>> knn.score(X[1::2], y[1::2]) > 0.95
    True
    """

    learner_tags = LearnerTags(reads="instances")
    settings = ({"ridge": 1e-3}, {"kernel": "poly", "degree": 2})
    renamed: ClassVar = {"reg": "ridge"}
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        **KERNEL_PARAMETERS,
        **LANDMARK_PARAMETERS,
        "ridge": [real(0, open_low=True)],
    }

    def __init__(
        self,
        n_components: int | None = None,
        *,
        kernel: Any = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        ridge: float = 1e-6,
        n_directions: int | Literal["auto"] | None = None,
        n_landmarks: int | Literal["auto"] | None = "auto",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.ridge = ridge
        self.n_directions = n_directions
        self.n_landmarks = n_landmarks
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
        KernelDA
            The fitted learner.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        self.classes_, codes = self._check_labels(y, len(rows))
        self._learn_kernel(X, y)
        landmarks = self._landmarks(codes)
        statistics = ClassStatistics(pooled=True)
        if len(landmarks) == len(rows):
            statistics.add(self._fit_kernel(rows), self.classes_, codes)
        else:
            self._fit_kernel(rows[landmarks])
            for block in split_rows(len(rows), 32 * len(landmarks)):
                statistics.add(self._kernel_transform(rows[block]), self.classes_, codes[block])
        self.coefficients_ = self._solve(statistics) @ self._basis.T
        return self

    def _solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the LDA components (n_components, n_directions) in kernel PCA coordinates."""
        # In the kernel PCA coordinates B, with Λ = B L', the penalty μ Λ'Λ becomes L diag(μ/λ) L'.
        # Here λ are the eigenvalues of the centered kernel matrix, so that λ² are the eigenvalues
        # of K_t. All terms are divided by n, so that the variances are λ/n.
        variances = self._kernel_eigenvalues / len(self._basis)
        penalty = self.ridge * np.mean(variances**2) / variances
        within = statistics.within_scatter() / statistics.total_weight + np.diag(penalty)
        T = whitener(within, np.finfo(float).eps)
        n_components = choose_n_mean_directions(
            self.n_components, "KernelDA", statistics, T.shape[1]
        )
        fisher, axes = find_between_axes(statistics, T)
        self.eigenvalues_ = fisher[:n_components] / (1 + fisher[:n_components])
        return canonical_rows(fisher[:n_components], axes[:n_components] @ T.T)
