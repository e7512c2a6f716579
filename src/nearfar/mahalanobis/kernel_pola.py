"""POLA in the feature space of a kernel."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from nearfar.base import KernelizedLearner, LearnerTags
from nearfar.mahalanobis.pola import POLA
from nearfar.state import State, object_of


class KernelPOLA(KernelizedLearner):
    r"""Pseudo-metric online learning in the feature space of a kernel.

    :class:`POLA` starts from zero and adds multiples of :math:`x x^T`, x a difference of two
    points: its metric never leaves the span of the points. It runs on the coordinates of kernel PCA
    of the rows that ``fit`` was given, all directions or the leading ``n_directions``; later pairs
    are mapped onto them.

    Use it for a stream of pairs that no linear map tells apart. Give ``fit`` rows that are like
    those to come: of a new point only what the directions show is learned from.

    Cost: O(n² p + n²·directions) for the kernel and its eigenvectors, then that of POLA in so many
    dimensions; O(n p) for each point to map. It keeps the training points.

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
    estimator : POLA, optional
        Its settings; None is ``POLA()``.

    Attributes
    ----------
    estimator_ : POLA
        Fitted on kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Ω: a point with centred kernel values k is mapped to Ωk.
    n_directions_ : int
        Directions used.
    b_, n_seen_, n_updates_, n_epochs_, cumulative_loss_, regret_bound_
        As in POLA.
    kernel_ : learner of kernels
        As fitted, if ``kernel`` is one.

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

    More pairs, as they come:

    >>> pola = pola.partial_fit_pairs([[X[0], X[1]]], [1 if y[0] == y[1] else -1])
    >>> pola.n_seen_ == 2001
    True
    """

    learner_tags = LearnerTags(reads="instances", learns_from=("labels", "pairs"))
    state = State({"estimator_": object_of(POLA, q="q", p="d")})
    inner = POLA
    taken_over = (
        *("b_", "n_seen_", "n_updates_", "n_epochs_"),
        *("cumulative_loss_", "regret_bound_"),
    )

    def partial_fit_pairs(self, pairs: ArrayLike, sign: ArrayLike) -> Self:
        """Go once through pairs of points, in their order; ``fit`` comes first.

        Parameters
        ----------
        pairs : array-like of shape (n_pairs, 2, n_features)
            Pairs of points, or of their kernel values with the training points.
        sign : array-like of shape (n_pairs,)
            +1 for a similar pair, -1 for a dissimilar one.

        Returns
        -------
        KernelPOLA
            Itself.
        """
        check_is_fitted(
            self,
            msg="%(name)s has no coordinates yet: call fit with rows like those to come first.",
        )
        points = check_array(
            pairs, dtype=[np.float64, np.float32], allow_nd=True, input_name="pairs"
        )
        p = self.n_features_in_
        if points.ndim != 3 or points.shape[1:] != (2, p):
            raise ValueError(f"pairs must have shape (n_pairs, 2, {p}); got {points.shape}.")
        coordinates = self._kernel_transform(points.reshape(-1, p)).reshape(len(points), 2, -1)
        equal = (points[:, 0] == points[:, 1]).all(axis=1)
        coordinates[equal, 1] = coordinates[equal, 0]
        self.estimator_.partial_fit_pairs(coordinates, sign)
        self._take(self.estimator_)
        return self
