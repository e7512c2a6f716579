"""MultimodalMGMKLD in the feature space of a kernel."""

from __future__ import annotations

from typing import ClassVar

from nearfar.discriminant.kernel_mgmkld import KernelMGMKLD
from nearfar.discriminant.multimodal_mgmkld import MultimodalMGMKLD


class MultimodalKernelMGMKLD(KernelMGMKLD):
    r"""MultimodalMGMKLD in the feature space of a kernel.

    As :class:`KernelMGMKLD`, but each class is a mixture of Gaussians :math:`N(m_i^k, \Sigma_i^k)`
    in feature space: :class:`MultimodalMGMKLD` on the leading coordinates of kernel PCA.

    Use it when classes are curved and of several clusters. It has the most freedom of the family,
    and overfits first: judge it by held-out rows. It keeps training rows, all of them or
    ``n_landmarks``.

    Cost: O(m² p + m³) for m landmarks, O(n m p) for the coordinates of n rows, then that of
    MultimodalMGMKLD in so many directions; O(m p) for each point to map.

    Parameters
    ----------
    kernel : str, kernel learner or callable, default="rbf"
        Kernel, as in scikit-learn: "linear", "rbf", "poly", "sigmoid", "laplacian", "cosine" or
        "precomputed"; or a kernel learner; or a function of two points. See Notes.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly", "sigmoid" and "laplacian". None means 1 over the sum of
        the features' variances (for "laplacian", of their standard deviations).
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant term of the kernels "poly" and "sigmoid".
    n_directions : int, "auto" or None, default="auto"
        Number of leading kernel PCA directions. "auto" uses a fifth of the rows of the smallest
        class, at most 200 and at least the number of components. None uses all with nonzero
        variance.
    n_landmarks : int, "auto" or None, default="auto"
        Number of training rows that span the directions, drawn from each class in proportion to
        its size. "auto" uses ``min(n_samples, 1000)``, None uses all rows. A precomputed kernel
        always uses all.
    estimator : MultimodalMGMKLD, optional
        Its settings; None is ``MultimodalMGMKLD()``.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. It draws the landmarks.

    Attributes
    ----------
    estimator_ : MultimodalMGMKLD
        Fitted on kernel coordinates; it knows the clusters.
    coefficients_ : ndarray of shape (n_components, n_landmarks)
        A point with centred kernel values k is mapped to their product.
    n_directions_ : int
        Number of kernel PCA directions that were used.
    objective_, eta_ : float
        As in MultimodalMGMKLD.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    kernel_ : kernel learner
        Fitted kernel learner, if ``kernel`` is one.

    See Also
    --------
    MultimodalMGMKLD, KernelMGMKLD

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.5.3.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KNNClassifier, MultimodalKernelMGMKLD
    >>> X, y = make_circles(400, noise=0.1, factor=0.5, random_state=0)
    >>> knn = KNNClassifier(MultimodalKernelMGMKLD()).fit(X[::2], y[::2])
    >>> bool(knn.score(X[1::2], y[1::2]) > 0.95)
    True
    """

    linear_learner: ClassVar[type] = MultimodalMGMKLD
