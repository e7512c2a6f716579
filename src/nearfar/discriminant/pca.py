"""Principal component analysis from class statistics."""

from __future__ import annotations

from numbers import Integral
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.parameters import boolean, integer, none, real
from nearfar.solvers.eigen import descending_eigh, fix_signs
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import find_total_range


class PCA(StatisticsLearner):
    r"""Principal component analysis: projection onto the directions of largest variance.

    .. math:: \max_{U^T U = I} \mathrm{tr}(U^T S_t U)

    The solution is the leading eigenvectors of the total covariance :math:`S_t`. With ``whiten``,
    each direction is divided by its standard deviation, so that distances after the transformation
    are Mahalanobis distances under :math:`S_t`.

    Use it to reduce the dimension before a slower learner or to plot data. Whitened, it is the
    simplest distance that does not depend on the units of the features, as long as their standard
    deviations differ by a factor of at most about 1e7. It needs no labels and accepts batches
    through ``partial_fit``. For a few components of very wide data, use scikit-learn's PCA.

    Cost: O(n p²) for one pass plus O(p³), or O(n² p) with fewer rows than features.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Dimension of the output. A float below 1 is the fraction of the variance to keep. None
        keeps every direction that has variance.
    whiten : bool, default=False
        If True, scale the components to unit variance.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix. Its rows are orthonormal. With ``whiten=True``, they are scaled so that
        the output has unit variance.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    explained_variance_, explained_variance_ratio_ : ndarray of shape (n_components,)
        Variance along each component, and its fraction of the total variance. The divisor is the
        sum of the sample weights minus 1, which is n - 1 without weights. If the sum of the weights
        is below 2, the sum itself is the divisor.
    statistics_ : ClassStatistics
        Statistics of the training rows.

    See Also
    --------
    LDA, KernelPCA, RandomProjection

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.1.
    .. [2] K. Q. Weinberger, "Metric Learning with Convex Optimization", 2007,
       section 2.2.1.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import PCA
    >>> pca = PCA(n_components=2).fit(load_iris().data)
    >>> pca.explained_variance_ratio_.round(3)
    array([0.925, 0.053])
    """

    learner_tags = LearnerTags(reads="statistics", supervised=False)
    parameters: ClassVar = {
        "n_components": [none, integer(1), real(0, 1, open_low=True)],
        "whiten": [boolean],
    }

    def __init__(self, n_components: int | float | None = None, *, whiten: bool = False) -> None:
        self.n_components = n_components
        self.whiten = whiten

    def solve(self, statistics: ClassStatistics) -> NDArray[np.float64]:
        """Return the leading eigenvectors of the total covariance as rows."""
        basis, image = find_total_range(statistics, standardize=False)
        weight = statistics.total_weight
        divisor = weight - 1 if weight >= 2 else weight
        variances, axes = descending_eigh(image.total_scatter() / divisor)
        # Drop only eigenvalues that are zero up to rounding. A variance may be small just because
        # of the units of the features.
        rounding = np.finfo(np.float32 if statistics.is_rounded else np.float64).eps
        noise = statistics.n_features * rounding * variances[0]
        rank = int((variances > noise).sum())
        n_components = self._choose_n_components(variances[:rank])
        self.explained_variance_ = variances[:n_components]
        self.explained_variance_ratio_ = variances[:n_components] / variances[:rank].sum()
        components = fix_signs((basis @ axes[:, :n_components]).T)
        if self.whiten:
            components /= np.sqrt(variances[:n_components])[:, None]
        return components

    def _choose_n_components(self, variances: NDArray[np.float64]) -> int:
        rank = len(variances)
        if self.n_components is None:
            return rank
        if not isinstance(self.n_components, Integral):
            cumulative_fractions = np.cumsum(variances) / variances.sum()
            # Without the tolerance, rounding could add a direction that does not exist.
            return min(
                int(np.searchsorted(cumulative_fractions, self.n_components - 1e-12)) + 1, rank
            )
        if self.n_components > rank:
            raise ValueError(
                f"n_components={self.n_components} is more than the {rank} directions in which X "
                f"varies. Use n_components={rank} or None."
            )
        return int(self.n_components)
