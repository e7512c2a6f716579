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
    r"""Random projection: few dimensions in which all distances are nearly what they were.

    .. math:: x \mapsto \sqrt{p/q}\; P x, \qquad P P^T = I ,

    with the projection P on a random subspace of q dimensions, so that :math:`E \|Lx\|^2 =
    \|x\|^2`. For :math:`q \ge 4 \ln n / (\epsilon^2/2 - \epsilon^3/3)` the squared distances of n
    points are with a probability of at least :math:`1 - 1/n` all within a factor of
    :math:`1 \pm \epsilon` (Johnson and Lindenstrauss).

    Use it to shorten very long rows before something slower; it looks at no data but their number.
    For few components it is much worse than :class:`PCA`.

    Cost: O(p q²), or O(p q) for the other kinds.

    Parameters
    ----------
    n_components : int or "auto", default="auto"
        Dimension of the output: q. "auto" is the bound above, or the number of features if that is
        less; distances are then exactly what they were.
    eps : float in (0, 1), default=0.1
        :math:`\epsilon` of the bound.
    kind : {"orthogonal", "gaussian", "sparse"}, default="orthogonal"
        P as above; or independent entries, normal or mostly zero, by scikit-learn's
        ``GaussianRandomProjection`` and ``SparseRandomProjection``.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: the map.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The map.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    statistics_ : ClassStatistics
        What was accumulated; only its size is used.

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
    parameters: ClassVar = {
        "n_components": [integer(1), one_of("auto")],
        "eps": [real(1e-6, 0.999)],
        "kind": [one_of("orthogonal", "gaussian", "sparse")],
        "random_state": [random_state],
    }

    def __init__(
        self,
        n_components: int | Literal["auto"] = "auto",
        *,
        eps: float = 0.1,
        kind: Literal["orthogonal", "gaussian", "sparse"] = "orthogonal",
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_components = n_components
        self.eps = eps
        self.kind = kind
        self.random_state = random_state

    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """Draw the map; of the statistics only their size counts."""
        p = statistics.n_features
        if self.n_components == "auto":
            n = max(2, round(statistics.total_weight))
            q = min(p, int(johnson_lindenstrauss_min_dim(n, eps=self.eps)))
        else:
            q = int(self.n_components)
        if q > p:
            raise ValueError(
                f"n_components={q} is more than the {p} feature(s) of X: there is nothing to "
                "shorten."
            )
        draws = SparseRandomProjection if self.kind == "sparse" else GaussianRandomProjection
        drawn = draws(q, random_state=self.random_state).fit(np.zeros((2, p))).components_
        if self.kind == "sparse":
            return np.asarray(drawn.toarray(), np.float64)
        if self.kind == "gaussian":
            return np.asarray(drawn, np.float64)
        axes, triangle = np.linalg.qr(drawn.T)
        # With this sign the subspace's basis is uniformly distributed, and unique.
        return np.sqrt(p / q) * (axes * np.sign(np.diag(triangle))).T
