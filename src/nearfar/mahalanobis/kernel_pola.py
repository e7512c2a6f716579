"""POLA in the feature space of a kernel."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from nearfar.base import KernelizedLearner, LearnerTags
from nearfar.blocks import check_mask, check_range
from nearfar.mahalanobis.pola import POLA
from nearfar.state import State, object_of


class KernelPOLA(KernelizedLearner):
    """Pseudo-metric online learning (POLA) in the feature space of a kernel.

    :class:`POLA` starts from the zero metric and adds multiples of :math:`x x^T`, where x is a
    difference of two points, so its metric stays in the span of the points. It runs on the kernel
    PCA coordinates of the rows passed to ``fit``, with all directions or the leading
    ``n_directions``. Later pairs are mapped to these coordinates.

    Use it for a stream of pairs that no linear map separates. Pass rows to ``fit`` that resemble
    the points of later pairs, because only the part of a point along the directions is used.

    Cost: O(n² p + n²·directions) for the kernel and its eigenvectors, then that of POLA with this
    number of dimensions; O(n p) to map a point. The training points are stored.

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
    estimator : POLA, optional
        Settings of POLA. None means ``POLA()``.

    Attributes
    ----------
    estimator_ : POLA
        POLA fitted on kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Matrix Ω. A point with centered kernel values k is mapped to Ωk.
    n_directions_ : int
        Number of directions used.
    b_, n_seen_, n_updates_, n_epochs_, cumulative_loss_, regret_bound_
        As in :class:`POLA`.
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
    POLA, KernelLMNN, KernelMMC

    References
    ----------
    .. [1] S. Shalev-Shwartz, Y. Singer and A. Y. Ng, "Online and batch learning of pseudo-metrics",
       International Conference on Machine Learning, 2004.
    .. [2] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.2.2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelPOLA, KNNClassifier
    >>> X, y = make_circles(200, noise=0.1, factor=0.5, random_state=0)
    >>> pola = KernelPOLA().fit(X, y)
    >>> bool(KNNClassifier().fit(pola.transform(X), y).leave_one_out_error() < 0.05)
    True

    Update the metric with another pair:

    >>> pola = pola.partial_fit_pairs([[X[0], X[1]]], [1 if y[0] == y[1] else -1])
    >>> pola.n_seen_ == 2001
    True
    """

    learner_tags = LearnerTags(reads="instances", supervision=("labels", "pairs"))
    state = State({"estimator_": object_of(POLA, q="q", p="d")})
    inner = POLA
    copied_attributes = (
        *("b_", "n_seen_", "n_updates_", "n_epochs_"),
        *("cumulative_loss_", "regret_bound_"),
    )

    def partial_fit_pairs(self, pairs: ArrayLike, sign: ArrayLike) -> Self:
        """Process pairs of points once, in the given order. Call ``fit`` first.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points. With ``kernel="precomputed"``, each point is given by its kernel values
            with the training points.
        sign : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.

        Returns
        -------
        KernelPOLA
            The fitted estimator.
        """
        check_is_fitted(
            self,
            msg="%(name)s is not fitted: call fit with rows that resemble the points of the pairs.",
        )
        check_mask(pairs, "pairs")
        points = check_array(
            pairs, dtype=[np.float64, np.float32], allow_nd=True, input_name="pairs"
        )
        p = self.n_features_in_
        if points.ndim != 3 or points.shape[1:] != (2, p):
            raise ValueError(f"pairs must have shape (n_pairs, 2, {p}); got {points.shape}.")
        check_range(points, "pairs", small=False)
        coordinates = self._kernel_transform(points.reshape(-1, p)).reshape(len(points), 2, -1)
        equal = (points[:, 0] == points[:, 1]).all(axis=1)
        coordinates[equal, 1] = coordinates[equal, 0]
        self.estimator_.partial_fit_pairs(coordinates, sign)
        self._take(self.estimator_)
        return self
