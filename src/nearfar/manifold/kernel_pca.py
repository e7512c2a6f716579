"""Kernel principal component analysis."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Floats
from nearfar.base import Embedding, LearnerTags
from nearfar.base.kernel_coordinates import KERNEL_PARAMETERS, KernelCoordinates
from nearfar.parameters import integer
from nearfar.solvers.spectral_step import (
    clear_rounding,
    first_axes,
    first_solution,
    is_positive,
    leading_spectrum,
    warn_about_zero_coordinates,
)

# Kernels that are positive semidefinite for all parameter values.
_PSD_KERNELS = ("linear", "rbf", "laplacian", "cosine")


class KernelPCA(KernelCoordinates, Embedding):
    r"""Kernel PCA: projection onto the directions of largest variance in feature space.

    .. math:: \min_Y \|Y Y^T - H K H\|_F^2, \qquad H = I - \tfrac1n 1 1^T .

    The solution is :math:`Y = V \Lambda^{1/2}` with the largest eigenvalues of the centered kernel.
    This equals classical scaling of the squared distances :math:`K_{ii} + K_{jj} - 2 K_{ij}`.

    Use it if a kernel measures the similarity of points, or as a smooth nonlinear PCA. It does not
    unfold surfaces: a Gaussian kernel is almost zero except between close points, and has about as
    many large eigenvalues as there are neighborhoods.

    Cost: O(n² p) for the kernel and O(n²) for each of about twenty matrix products, with an n×n
    array during the fit. Mapping a point costs O(n p).

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    kernel : str, kernel learner or callable, default="rbf"
        Kernel, as in scikit-learn: "linear", "rbf", "poly", "sigmoid", "laplacian", "cosine",
        "precomputed", a kernel learner such as ``AlignmentKernelLearner()``, or a function of two
        points. See Notes.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly", "sigmoid" and "laplacian". None uses the reciprocal of
        the sum of the features' variances (standard deviations for "laplacian"), so that the scale
        of X does not matter.
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant term of the kernels "poly" and "sigmoid".

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        Coordinates of the training points.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Matrix of the learned map. The coordinates of a point are ``coefficients_ @ k``, where k
        contains the point's centered kernel values.
    eigenvalues_ : ndarray of shape (n_components,)
        Largest eigenvalues of the centered kernel, in descending order. If an eigenvalue is not
        positive, the corresponding coordinate is zero.
    negative_share_ : float
        Sum of the absolute values of the negative eigenvalues, divided by the sum of the absolute
        values of all eigenvalues. The value is 0 for a positive semidefinite kernel. The kernel
        "sigmoid" is not always positive semidefinite. The value is estimated if there are more than
        1000 rows.
    kernel_ : kernel learner
        Fitted copy of ``kernel``. It exists only if ``kernel`` is a kernel learner.

    See Also
    --------
    PCA, KernelDA

    Notes
    -----
    - ``kernel="precomputed"``: X contains kernel values, (n, n) for ``fit`` and (n_queries, n) for
      ``transform``.
    - A kernel learner is fitted on the same rows and labels. It ignores ``gamma``, ``degree`` and
      ``coef0``.
    - A function is called for each pair of points. It cannot be saved in a model file.

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.2. It
       prints the centered kernel with twice the mean of the columns.

    Examples
    --------
    The third component separates rings that no line separates:

    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelPCA
    >>> X, y = make_circles(200, noise=0.05, factor=0.4, random_state=0)
    >>> Y = KernelPCA(n_components=3, gamma=2).fit_transform(X)
    >>> bool(((Y[:, 2] > 0) == y).mean() in (0.0, 1.0))
    True
    """

    learner_tags = LearnerTags(reads="instances", supervised=False)
    parameters: ClassVar = {
        "n_components": [integer(1)],
        **{name: allowed for name, allowed in KERNEL_PARAMETERS.items() if name != "n_directions"},
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: Any = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0

    @property
    def n_directions(self) -> int:  # type: ignore[override]
        """Alias of ``n_components``, which other kernel methods call ``n_directions``."""
        return self.n_components

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Embed the training points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, n_samples)
            Training points, or their kernel values if ``kernel="precomputed"``.
        y : array-like of shape (n_samples,), optional
            Labels. Only a kernel learner uses them.

        Returns
        -------
        KernelPCA
            Fitted estimator.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        if self.n_components >= len(rows):
            raise ValueError(
                f"n_components={self.n_components} must be less than n_samples={len(rows)}."
            )
        self._learn_kernel(X, y)
        K = self._training_kernel(rows)
        if np.may_share_memory(K, rows):  # Do not modify X in place.
            K = K.copy()
        K -= K.mean(axis=1, keepdims=True)
        K -= self._means - self._mean
        values, vectors, self.negative_share_ = leading_spectrum(
            K, self.n_components, positive=self._is_learned() or self.kernel in _PSD_KERNELS
        )
        has_variance = is_positive(values)
        if not has_variance.any():
            raise ValueError(
                "The kernel maps all points to the same point, so the embedding would be zero. Use "
                "another kernel or another gamma."
            )
        warn_about_zero_coordinates("KernelPCA", values)
        self.eigenvalues_ = clear_rounding(values)
        self._basis = first_axes(values, vectors)[:, has_variance]
        self.n_directions_ = int(has_variance.sum())
        self.embedding_ = first_solution(values, vectors).astype(rows.dtype)
        self.coefficients_ = first_axes(values, vectors).T.copy()
        return self

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map new points with Nyström's formula.

        .. math::
            e_t(x) = \frac{1}{\sqrt{\lambda_t}} \sum_i v_{it} \tilde K(x, x_i), \qquad
            \tilde K(x, x_i) = K(x, x_i) - \overline{K(\cdot, x_i)} - \overline{K(x, \cdot)} +
            \overline{K} .

        A training point gets its own coordinates.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or (n_queries, n_samples)
            Points to map, or their kernel values with the training points if
            ``kernel="precomputed"``.

        Returns
        -------
        ndarray of shape (n_queries, n_components)
            Coordinates, in the dtype of X.
        """
        check_is_fitted(self)
        return self._map_by_coefficients(self._check_X(X, reset=False))
