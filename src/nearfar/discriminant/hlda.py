"""Heteroscedastic LDA with the Chernoff criterion."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from nearfar.arrays import Matrix
from nearfar.base import LearnerTags, StatisticsLearner
from nearfar.discriminant.checks import check_classes, choose_n_varying_directions
from nearfar.parameters import integer, none, one_of, real
from nearfar.solvers.eigen import canonical_rows, descending_eigh
from nearfar.summaries.class_gaussians import fit_class_gaussians
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import Shrinkage


class HLDA(StatisticsLearner):
    r"""Heteroscedastic LDA: LDA with Chernoff distances, for classes with different covariances.

    In coordinates where :math:`S_w` is the identity, with class frequencies :math:`q_i`,
    :math:`\pi_i = q_i/(q_i + q_j)`, :math:`\Sigma_{ij} = \pi_i \Sigma_i + \pi_j \Sigma_j` and
    :math:`\delta = m_i - m_j`, the components are the leading eigenvectors of

    .. math::
        \sum_{i<j} q_i q_j \left[ \Sigma_{ij}^{-1/2} \delta\delta^T \Sigma_{ij}^{-1/2} +
        \frac{1}{\pi_i \pi_j} \left( \log \Sigma_{ij} - \pi_i \log \Sigma_i - \pi_j \log \Sigma_j
        \right) \right] .

    The first term depends on the means, the second on the covariances, so two classes with the
    same mean can be separated by their covariances. If all covariances are equal, HLDA is LDA.

    Use it if classes differ in shape, or if LDA has too few directions: HLDA may have more than
    ``n_classes - 1``. It has a closed-form solution and needs no starting point. The closed form
    has a price: the matrix describes the whole space, and its leading eigenvectors do not span the
    subspace with the largest Chernoff distances. As in LDA, the sum over pairs lets distant
    classes mask close ones. Each class needs more rows than features. With fewer rows, the
    covariances are shrunk, and their logarithms mostly reflect the shrinkage target.

    Cost: one pass of O(n p²), then O(c² p³) for c classes.

    Parameters
    ----------
    n_components : int or None, default=None
        Dimension of the output. None means ``n_classes - 1``. The maximum is n_features.
    shrinkage : float in [0, 1] or "auto", default="auto"
        Shrinkage of the covariances. A number g replaces each class covariance by
        :math:`(1-g) \Sigma_i + g (\mathrm{tr} S_w / p) I`. "auto" changes the covariances only if
        one of them is nearly singular, see Notes.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Projection matrix, scaled so that the within-class covariance of the output is the
        identity.
    mean_ : ndarray of shape (n_features,)
        Mean of the training rows.
    eigenvalues_ : ndarray of shape (n_components,)
        Leading eigenvalues of the matrix above.
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    statistics_ : ClassStatistics
        Class statistics of the training rows.

    See Also
    --------
    HDA, LDA

    Notes
    -----
    ``shrinkage="auto"`` leaves the class covariances unchanged if none has an eigenvalue below
    0.001 relative to the pooled within-class covariance :math:`S_w`. Otherwise it mixes 30% of
    :math:`S_w` into each. A class whose rows are all equal gets :math:`S_w`.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006, section 2.2.1,
       equation 2.15. The printed equation has :math:`S_w^{-1/2} S_{ij} S_w^{1/2}`. The second
       exponent should be :math:`-1/2`.

    Examples
    --------
    Two classes with the same mean, one of them elongated along the second feature:

    >>> import numpy as np
    >>> from nearfar import HLDA
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 500)
    >>> X = rng.normal(size=(1000, 3))
    >>> X[y == 1, 1] *= 5
    >>> direction = HLDA(1).fit(X, y).components_[0]
    >>> abs(direction / np.linalg.norm(direction)).round(1)
    array([0., 1., 0.])
    """

    learner_tags = LearnerTags(reads="statistics")
    pooled_statistics = False
    settings = ({"shrinkage": 0.1},)
    parameters: ClassVar = {
        "n_components": [none, integer(1)],
        "shrinkage": [real(0, 1), one_of("auto")],
    }

    def __init__(self, n_components: int | None = None, *, shrinkage: Shrinkage = "auto") -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage

    def solve(self, statistics: ClassStatistics) -> Matrix:
        """Return the leading eigenvectors of the Chernoff matrix in whitened coordinates."""
        self.classes_ = statistics.classes
        check_classes("HLDA", statistics.classes)
        gaussians = fit_class_gaussians(statistics, self.shrinkage)
        rank, family = gaussians.rank, gaussians.family
        n_components = choose_n_varying_directions(
            self.n_components, "HLDA", statistics.n_classes, rank
        )
        J = compute_chernoff_matrix(family.means, family.dot(np.eye(rank)), gaussians.priors)
        self.eigenvalues_, eigenvectors = descending_eigh(J, n_components)
        return canonical_rows(self.eigenvalues_, (gaussians.basis @ eigenvectors).T)


def compute_chernoff_matrix(means: Matrix, covariances: Matrix, priors: Matrix) -> Matrix:
    """Return the matrix J of the criterion for means (c, p) and covariances (c, p, p)."""
    J = np.zeros_like(covariances[0])
    weights_of_logs = np.zeros(len(priors))
    for i in range(len(priors)):
        for j in range(i + 1, len(priors)):
            pair_prior = priors[i] + priors[j]
            values, eigenvectors = np.linalg.eigh(
                (priors[i] * covariances[i] + priors[j] * covariances[j]) / pair_prior
            )
            whitened_difference = (
                eigenvectors / np.sqrt(values) @ (eigenvectors.T @ (means[i] - means[j]))
            )
            J += priors[i] * priors[j] * np.outer(whitened_difference, whitened_difference)
            # The factor q_i q_j / (π_i π_j) equals (q_i + q_j)². Its product with π_i is (q_i +
            # q_j) q_i.
            J += pair_prior**2 * (eigenvectors * np.log(values)) @ eigenvectors.T
            weights_of_logs[[i, j]] += pair_prior * priors[[i, j]]
    for weight, covariance in zip(weights_of_logs, covariances, strict=True):
        values, eigenvectors = np.linalg.eigh(covariance)
        J -= weight * (eigenvectors * np.log(values)) @ eigenvectors.T
    return J
