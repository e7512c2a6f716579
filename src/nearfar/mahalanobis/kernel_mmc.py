"""MMC in the feature space of a kernel."""

from __future__ import annotations

from nearfar.base import KernelizedLearner, LearnerTags
from nearfar.mahalanobis.mmc import MMC
from nearfar.state import State, object_of


class KernelMMC(KernelizedLearner):
    """Xing's metric (MMC) in the feature space of a kernel.

    The program of :class:`MMC` depends only on differences of training points, so a metric outside
    their span changes nothing. It is solved on the coordinates of kernel PCA, all of them or the
    leading ``n_directions``, in which squared distances are :math:`K_{ii} + K_{jj} - 2K_{ij}`.

    Use it with pairs that no linear map separates. With all directions and a flexible kernel,
    similar pairs do not vary in most directions, and the metric overfits the pairs. Keep
    ``n_directions`` well below the number of pairs. The training points are stored, and an n×n
    kernel matrix during the fit.

    Cost: O(n² p + n²·directions) for the kernel and its eigenvectors, then that of MMC with this
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
    estimator : MMC, optional
        Settings of MMC. None means ``MMC()``.

    Attributes
    ----------
    estimator_ : MMC
        MMC fitted on kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Matrix Ω. A point with centered kernel values k is mapped to Ωk.
    n_directions_ : int
        Number of directions used.
    objective_, dual_bound_, duality_gap_ : float
        As in :class:`MMC`.
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
    MMC, KernelLMNN, KernelPOLA

    References
    ----------
    .. [1] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.2.2.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelMMC, KNNClassifier, Pairs
    >>> X, y = make_circles(200, noise=0.1, factor=0.5, random_state=0)
    >>> pairs = Pairs.from_labels(y, n_similar=300, n_dissimilar=300, random_state=0)
    >>> mapped = KernelMMC().fit(X, supervision=pairs).transform(X)
    >>> bool(KNNClassifier().fit(mapped, y).leave_one_out_error() < 0.05)
    True
    """

    learner_tags = LearnerTags(reads="instances", supervision=("labels", "pairs"))
    state = State({"estimator_": object_of(MMC, q="q", p="d")})
    inner = MMC
    copied_attributes = ("objective_", "dual_bound_", "duality_gap_")
