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
    n_directions : int, "auto" or None, default="auto"
        Leading directions of kernel PCA. "auto" is a fifth of the rows of the smallest class, but
        at least as many as components are wanted and at most 200; None is all that are not empty.
    n_landmarks : int, "auto" or None, default="auto"
        Training rows that span the directions, drawn from each class by its share. "auto" is all
        of up to 1000 rows, else 1000; None is all. A precomputed kernel uses all.
    estimator : MultimodalMGMKLD, optional
        Its settings; None is ``MultimodalMGMKLD()``.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the landmarks.

    Attributes
    ----------
    estimator_ : MultimodalMGMKLD
        Fitted on kernel coordinates; it knows the clusters.
    coefficients_ : ndarray of shape (n_components, n_landmarks)
        A point with centred kernel values k is mapped to their product.
    n_directions_ : int
        Directions used.
    objective_, eta_ : float
        As in MultimodalMGMKLD.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    kernel_ : learner of kernels
        As fitted, if ``kernel`` is one.

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
