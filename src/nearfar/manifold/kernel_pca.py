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
    first_axes,
    first_solution,
    is_positive,
    leading_spectrum,
    warn_of_empty,
)

# Kernels without negative eigenvalues, whatever their parameters.
_POSITIVE = ("linear", "rbf", "laplacian", "cosine")


class KernelPCA(KernelCoordinates, Embedding):
    r"""Kernel principal component analysis: the directions of largest variance in feature space.

    .. math:: \min_Y \|Y Y^T - H K H\|_F^2, \qquad H = I - \tfrac1n 1 1^T ,

    solved by :math:`Y = V \Lambda^{1/2}` with the largest eigenvalues of the centred kernel. It is
    classical scaling of the distances :math:`K_{ii} + K_{jj} - 2 K_{ij}`.

    Use it where a kernel says how alike points are, or as a smooth non-linear PCA. It does not
    unfold surfaces: a Gaussian kernel sees near points only, and has about as many large
    eigenvalues as there are neighbourhoods.

    Cost: O(n² p) for the kernel and O(n²) for each of some twenty products; an array of n×n while
    it fits. O(n p) for each point to map.

    Parameters
    ----------
    n_components : int, default=2
        Dimension of the output.
    kernel : str, learner of kernels or callable, default="rbf"
        As in scikit-learn; a name is one of "linear", "rbf", "poly", "sigmoid", "laplacian" and
        "cosine". "precomputed" takes kernel values as X: (n, n) to fit, (queries, n) to transform.
        A learner such as ``AlignmentKernelLearner()`` is fitted on the same rows and labels; gamma,
        degree and coef0 are not read then. A function of two points is called pair by pair, and
        cannot be kept in a model file.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly", "sigmoid" and "laplacian". None is 1 over the sum of
        the features' variances (for "laplacian", of their deviations), so that units do not
        matter.
    degree : float, default=3
        Of the kernel "poly".
    coef0 : float, default=1
        Of the kernels "poly" and "sigmoid".

    Attributes
    ----------
    embedding_ : ndarray of shape (n_samples, n_components)
        The training points.
    coefficients_ : ndarray of shape (n_components, n_samples)
        A point with centred kernel values k is mapped to ``coefficients_ @ k``.
    eigenvalues_ : ndarray of shape (n_components,)
        Of the centred kernel, the largest first. Where one is not positive the coordinate is zero.
    negative_share_ : float
        The share of the negative eigenvalues in the sum of the absolute values of all: 0 for a
        kernel that is one ("sigmoid" is not always). Estimated beyond 1000 rows.
    kernel_ : learner of kernels
        As fitted, if ``kernel`` is one.

    See Also
    --------
    PCA, KernelDA

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.2. It
       prints the centred kernel with twice the mean of the columns.

    Examples
    --------
    Rings that no line parts are parted by the third component:

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
        **{name: kinds for name, kinds in KERNEL_PARAMETERS.items() if name != "n_directions"},
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
        """The number of components, by the name that all kernel methods know."""
        return self.n_components

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Embed points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or (n_samples, n_samples) of a kernel
            Training points.
        y : array-like of shape (n_samples,), optional
            Labels; only a kernel that is learned reads them.

        Returns
        -------
        KernelPCA
            Itself.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True, min_samples=2)
        if self.n_components >= len(rows):
            raise ValueError(
                f"n_components={self.n_components} must be less than n_samples={len(rows)}."
            )
        self._learn_kernel(X, y)
        K = self._training_kernel(rows)
        if np.may_share_memory(K, rows):  # X stays as it is
            K = K.copy()
        K -= K.mean(axis=1, keepdims=True)
        K -= self._means - self._mean
        values, vectors, self.negative_share_ = leading_spectrum(
            K, self.n_components, positive=self._is_learned() or self.kernel in _POSITIVE
        )
        good = is_positive(values)
        if not good.any():
            raise ValueError("The kernel maps all points to one: there is nothing to learn.")
        warn_of_empty("KernelPCA", values)
        self.eigenvalues_ = values
        self._basis = first_axes(values, vectors)[:, good]
        self.n_directions_ = int(good.sum())
        self.embedding_ = first_solution(values, vectors).astype(rows.dtype)
        self.coefficients_ = first_axes(values, vectors).T.copy()
        return self

    def transform(self, X: ArrayLike) -> Floats:
        r"""Map points, or their kernel values with the training points, by Nyström's formula,

        .. math::
            e_t(x) = \frac{1}{\sqrt{\lambda_t}} \sum_i v_{it} \tilde K(x, x_i), \qquad
            \tilde K(x, x_i) = K(x, x_i) - \overline{K(\cdot, x_i)} - \overline{K(x, \cdot)} +
            \overline{K} .

        Training points get their own coordinates.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), or (n_queries, n_samples) of a kernel
            Points.

        Returns
        -------
        ndarray of shape (n_queries, n_components)
            In the dtype of X.
        """
        check_is_fitted(self)
        return self._map_by_coefficients(self._check_X(X, reset=False))
