"""LMNN in the feature space of a kernel."""

from __future__ import annotations

from nearfar.base import KernelizedLearner, LearnerTags
from nearfar.mahalanobis.lmnn import LMNN
from nearfar.mahalanobis.over_lmnn import TAKEN_OVER, OverLMNN, as_in_the_work
from nearfar.state import State, object_of


class KernelLMNN(OverLMNN, KernelizedLearner):
    r"""Large margin nearest neighbours in the feature space of a kernel.

    With the map :math:`L = \Omega \Phi`, :math:`\Phi` holding the training points in feature
    space, the loss of :class:`LMNN` depends on the kernel alone. A component of L off the span of
    the training points changes no distance between them; so LMNN is solved on the coordinates of
    kernel PCA, all of them or the leading ``n_directions``, where squared distances are
    :math:`K_{ii} + K_{jj} - 2K_{ij}`. Targets are chosen by that distance.

    Use it when classes are not told apart by any linear map. With all directions and a rich kernel
    it can satisfy any labels, so keep ``n_directions`` well below the number of rows, and look at
    the error on held-out rows. It keeps the training points, and a kernel matrix of n×n while it
    fits.

    Cost: O(n² p + n²·directions) for the kernel and its eigenvectors, then that of LMNN in so many
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
    estimator : LMNN, optional
        Its settings; None is ``LMNN()``. What is "auto" in it is as in the work: all impostors,
        one pass, nothing held out.

    Attributes
    ----------
    estimator_ : LMNN
        Fitted on kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Ω: a point with centred kernel values k is mapped to Ωk.
    n_directions_ : int
        Directions used.
    objective_, dual_bound_, duality_gap_ : float
        As in LMNN.
    target_neighbors_ : ndarray of shape (n_samples, k)
        As in LMNN.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    kernel_ : learner of kernels
        As fitted, if ``kernel`` is one.

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

    learner_tags = LearnerTags(reads="instances", learns_from=("labels", "triplets"))
    state = State({"estimator_": object_of(LMNN, q="q", p="d")})
    inner = LMNN
    taken_over = (*TAKEN_OVER, "classes_")

    def _inner(self) -> LMNN:
        return as_in_the_work(super()._inner())
