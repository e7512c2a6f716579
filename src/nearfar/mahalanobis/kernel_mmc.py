"""MMC in the feature space of a kernel."""

from __future__ import annotations

from nearfar.base import KernelizedLearner, LearnerTags
from nearfar.mahalanobis.mmc import MMC
from nearfar.state import State, object_of


class KernelMMC(KernelizedLearner):
    r"""Xing's metric in the feature space of a kernel.

    The program of :class:`MMC` depends on differences of training points alone, so a metric off
    their span changes nothing: it is solved on the coordinates of kernel PCA, all of them or the
    leading ``n_directions``, where squared distances are :math:`K_{ii} + K_{jj} - 2K_{ij}`.

    Use it with pairs that no linear map tells apart. With all directions and a rich kernel similar
    pairs leave most directions empty and the metric fits the pairs, not what they are like: keep
    ``n_directions`` well below the number of pairs. It keeps the training points, and a kernel
    matrix of n×n while it fits.

    Cost: O(n² p + n²·directions) for the kernel and its eigenvectors, then that of MMC in so many
    dimensions; O(n p) for each point to map.

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
        Leading directions of kernel PCA. "auto" is a tenth of the rows, from 10 to 50; None is all
        that are not empty.
    estimator : MMC, optional
        Its settings; None is ``MMC()``.

    Attributes
    ----------
    estimator_ : MMC
        Fitted on kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Ω: a point with centred kernel values k is mapped to Ωk.
    n_directions_ : int
        Directions used.
    objective_, dual_bound_, duality_gap_ : float
        As in MMC.
    kernel_ : learner of kernels
        As fitted, if ``kernel`` is one.

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

    learner_tags = LearnerTags(reads="instances", learns_from=("labels", "pairs"))
    state = State({"estimator_": object_of(MMC, q="q", p="d")})
    inner = MMC
    taken_over = ("objective_", "dual_bound_", "duality_gap_")
