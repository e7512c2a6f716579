"""MultimodalMGMKLD in the feature space of a kernel."""

from __future__ import annotations

from typing import ClassVar

from nearfar.discriminant.kernel_mgmkld import KernelMGMKLD
from nearfar.discriminant.multimodal_mgmkld import MultimodalMGMKLD


class MultimodalKernelMGMKLD(KernelMGMKLD):
    r"""MultimodalMGMKLD in the feature space of a kernel.

    Like :class:`KernelMGMKLD`, but each class is a mixture of Gaussians
    :math:`N(m_i^k, \Sigma_i^k)` in feature space. It applies :class:`MultimodalMGMKLD` to the
    leading coordinates of kernel PCA.

    Use it if classes are curved and have several clusters. It is the most flexible method of the
    family and overfits most easily, so evaluate it on held-out rows. The model stores training
    rows: all of them, or ``n_landmarks``.

    Cost: O(m² p + m³) for m landmarks, O(n m p) for the coordinates of n rows, then the cost of
    MultimodalMGMKLD with ``n_directions`` features. Transforming a point costs O(m p).

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
    estimator : MultimodalMGMKLD, optional
        Learner applied to the kernel coordinates. It is cloned. None means ``MultimodalMGMKLD()``.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The seed determines the landmarks.

    Attributes
    ----------
    estimator_ : MultimodalMGMKLD
        Learner fitted on the kernel coordinates. The attributes of this learner describe the
        clusters.
    coefficients_ : ndarray of shape (n_components, n_landmarks)
        Matrix that multiplies the centered kernel values of a point.
    n_directions_ : int
        Number of kernel PCA directions used in the fit.
    objective_, equality_weight_ : float
        See :class:`MultimodalMGMKLD`.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    kernel_ : kernel learner
        Fitted kernel learner. It exists only if ``kernel`` is a kernel learner.

    See Also
    --------
    MultimodalMGMKLD, KernelMGMKLD

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
    >>> from nearfar import KNNClassifier, MultimodalKernelMGMKLD
    >>> X, y = make_circles(400, noise=0.1, factor=0.5, random_state=0)
    >>> knn = KNNClassifier(MultimodalKernelMGMKLD()).fit(X[::2], y[::2])
    >>> bool(knn.score(X[1::2], y[1::2]) > 0.95)
    True
    """

    renamed: ClassVar = {"eta_": "equality_weight_"}
    linear_learner: ClassVar[type] = MultimodalMGMKLD
