"""Random projections."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.random_projection import (
    GaussianRandomProjection,
    SparseRandomProjection,
    johnson_lindenstrauss_min_dim,
)

from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.parameters import integer, one_of, random_state, real
from nearfar.summaries.class_statistics import ClassStatistics


class RandomProjection(StatisticsLearner):
    r"""Random projection to few dimensions, which approximately preserves all distances.

    .. math:: x \mapsto \sqrt{p/q}\; P x, \qquad P P^T = I ,

    where P projects onto a random q-dimensional subspace, so that :math:`E \|Lx\|^2 = \|x\|^2`. For
    :math:`q \ge 4 \ln n / (\epsilon^2/2 - \epsilon^3/3)`, the squared distances between n points
    all change by a factor within :math:`1 \pm \epsilon`, with a probability of at least
    :math:`1 - 1/n` (Johnson and Lindenstrauss).

    Use it to shorten very long rows before a slower method. It uses only the number of rows and
    features, not their values. With few components it is much worse than :class:`PCA`.

    Cost: O(p q²) for ``matrix_type="orthogonal"``, O(p q) for the others.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Dimension of the output: q. "auto" uses the bound above, or the number of features if that
        is smaller. If q equals the number of features, an "orthogonal" matrix does not change
        distances.
    eps : float in (0, 1), default=0.1
        Maximum relative change of a squared distance: :math:`\epsilon` in the bound above.
    matrix_type : {"orthogonal", "gaussian", "sparse"}, default="orthogonal"
        Type of the random matrix: "orthogonal" is the matrix P above, "gaussian" has independent
        normal entries, "sparse" has independent entries that are mostly zero. The last two types
        are the same as in scikit-learn's ``GaussianRandomProjection`` and
        ``SparseRandomProjection``.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. It determines the projection.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    statistics_ : ClassStatistics
        Accumulated statistics. Only the numbers of rows and features are used.

    See Also
    --------
    PCA

    References
    ----------
    .. [1] Weinberger, K. Q., "Metric Learning with Convex Optimization", 2007, section 3.1.1.
    .. [2] Dasgupta, S., A. Gupta, "An elementary proof of a theorem of Johnson and Lindenstrauss",
       Random Structures and Algorithms 22, 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from nearfar import RandomProjection
    >>> X = np.random.default_rng(0).normal(size=(50, 10_000))
    >>> short = RandomProjection(eps=0.3).fit_transform(X)
    >>> short.shape
    (50, 434)
    >>> ratio = np.linalg.norm(short[0] - short[1:], axis=1) / np.linalg.norm(X[0] - X[1:], axis=1)
    >>> bool((np.abs(ratio**2 - 1) < 0.3).all())
    True
    """

    learner_tags = LearnerTags(reads="statistics", supervised=False)
    renamed: ClassVar = {"kind": "matrix_type"}
    parameters: ClassVar = {
        "n_components": [integer(1), one_of("auto")],
        "eps": [real(1e-6, 0.999)],
        "matrix_type": [one_of("orthogonal", "gaussian", "sparse")],
        "random_state": [random_state],
    }

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        eps: float = 0.1,
        matrix_type: Literal["orthogonal", "gaussian", "sparse"] = "orthogonal",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.eps = eps
        self.matrix_type = matrix_type
        self.random_state = random_state

    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """Draw the projection matrix. Only the numbers of rows and features are used."""
        p = statistics.n_features
        if self.n_components == "auto":
            n = max(2, round(statistics.total_weight))
            q = min(p, int(johnson_lindenstrauss_min_dim(n, eps=self.eps)))
        else:
            q = int(self.n_components)
        if q > p:
            raise ValueError(
                f"n_components={q} must not exceed the number of features of X, which is {p}. "
                "Decrease n_components."
            )
        projection_class = (
            SparseRandomProjection if self.matrix_type == "sparse" else GaussianRandomProjection
        )
        matrix = (
            projection_class(q, random_state=self.random_state).fit(np.zeros((2, p))).components_
        )
        if self.matrix_type == "sparse":
            return np.asarray(matrix.toarray(), np.float64)
        if self.matrix_type == "gaussian":
            return np.asarray(matrix, np.float64)
        axes, triangle = np.linalg.qr(matrix.T)
        # With these signs, the QR factorization is unique and the axes are uniformly distributed.
        return np.sqrt(p / q) * (axes * np.sign(np.diag(triangle))).T
