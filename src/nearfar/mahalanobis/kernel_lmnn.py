"""LMNN in the feature space of a kernel."""

from __future__ import annotations

from nearfar.base import KernelizedLearner, LearnerTags
from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.over_lmnn import COPIED_ATTRIBUTES, InnerLMNNMixin, use_published_settings
from nearfar.state import State, object_of


class KernelLMNN(InnerLMNNMixin, KernelizedLearner):
    r"""Large margin nearest neighbors (LMNN) in the feature space of a kernel.

    With the map :math:`L = \Omega \Phi`, where :math:`\Phi` contains the training points in feature
    space, the loss of :class:`LMNN` depends on the kernel alone. A component of L outside the span
    of the training points changes no distance between them. LMNN is therefore solved on the
    coordinates of kernel PCA, all of them or the leading ``n_directions``, in which squared
    distances are :math:`K_{ii} + K_{jj} - 2K_{ij}`. The targets are chosen by this distance.

    Use it if no linear map separates the classes. With all directions and a flexible kernel it can
    fit any labels. Keep ``n_directions`` well below the number of rows, and check the error on
    held-out rows. The training points are stored, and an n×n kernel matrix during the fit.

    Cost: O(n² p + n²·directions) for the kernel and its eigenvectors, then that of LMNN with this
    number of dimensions; O(n p) to map a point.

    Parameters
    ----------
    kernel : str, kernel learner or callable, default="rbf"
        Kernel, as in scikit-learn: "linear", "rbf", "poly", "sigmoid", "laplacian", "cosine" or
        "precomputed"; a kernel learner such as ``AlignmentKernelLearner()``; or a function of two
        points. See Notes.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly", "sigmoid" and "laplacian". None means 1 divided by the
        sum of the variances of the features, or of their standard deviations for "laplacian". The
        result then does not depend on the unit of X.
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant term of the kernels "poly" and "sigmoid".
    n_directions : int, "auto" or None, default="auto"
        Number of leading directions of kernel PCA. "auto" uses a tenth of the number of rows, but
        at least 10 and at most 50. None uses all directions with nonzero variance.
    estimator : LMNN, optional
        Settings of LMNN. None means ``LMNN()``. Settings that are "auto" take the values of the
        thesis [1]_: all impostors, one pass, no early stopping.

    Attributes
    ----------
    estimator_ : LMNN
        LMNN fitted on kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Matrix Ω. A point with centered kernel values k is mapped to Ωk.
    n_directions_ : int
        Number of directions used.
    objective_, dual_bound_, duality_gap_ : float
        As in :class:`LMNN`.
    target_neighbors_ : ndarray of shape (n_samples, k)
        As in :class:`LMNN`.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    kernel_ : kernel learner
        The fitted kernel learner, if ``kernel`` is a kernel learner.

    Notes
    -----
    With ``kernel="precomputed"``, X contains kernel values, of shape (n, n) in ``fit`` and
    (n_queries, n) in ``transform``. A kernel learner is fitted on the same rows and labels; gamma,
    degree and coef0 are not used then. A function is called once per pair of points, and an
    estimator with a function as kernel cannot be saved to a model file.

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

    learner_tags = LearnerTags(reads="instances", supervision=("labels", "triplets"))
    state = State({"estimator_": object_of(LMNN, q="q", p="d")})
    inner = LMNN
    copied_attributes = (*COPIED_ATTRIBUTES, "classes_")

    def _inner(self) -> LMNN:
        return use_published_settings(super()._inner())
