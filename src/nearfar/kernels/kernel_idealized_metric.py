"""The metric of an idealised kernel in the feature space of another kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from nearfar.arrays import Matrix
from nearfar.base import KernelizedLearner, LearnerTags
from nearfar.base.kernel_coordinates import KERNEL_PARAMETERS
from nearfar.kernels.idealized_metric import PROGRAM_PARAMETERS, IdealizedMetric
from nearfar.state import State, object_of


class KernelIdealizedMetric(KernelizedLearner):
    r"""The metric of :class:`IdealizedMetric` in the feature space of a kernel.

    The program depends on products of differences alone,
    :math:`(\phi_i - \phi_j)^T(\phi_k - \phi_l) = K_{ik} - K_{il} - K_{jk} + K_{jl}`, and its
    optimum is the kernel

    .. math:: \hat K(a, b) = \sum_{ij} s_{ij} \alpha_{ij} (K_{ai} - K_{aj})(K_{bi} - K_{bj})

    over the pairs, s = 1 for dissimilar and −1 for similar ones. It is solved in the coordinates of
    kernel PCA, where distances are those of the kernel and a matrix that is not positive
    semi-definite can be repaired.

    Use it where no linear map tells similar from dissimilar pairs. Values of rbf kernels lie
    between 0 and 1, so that units of X do not matter to C. It keeps the training points, and a
    matrix of n×n while it fits.

    Cost: O(n³) for kernel PCA, then some twenty steps of O(N d⁴) for N pairs and d directions, or
    O(N³) if that is less; O(n p) for each point to map. With all directions of some hundred rows
    that is hundreds of times the default's.

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
    C_S : float, default=1.0
        Price of similar pairs that come farther apart.
    C_D : float, default=1.0
        Price of dissimilar pairs that miss the margin, and worth of the margin.
    nu : float, default=0.5
        Bound on the share of margin errors: of dissimilar pairs that miss the margin. Above 0, at
        most 1.
    psd : {"project", "constrain", "raise", "none"}, default="project"
        What to do with negative eigenvalues of B: as in IdealizedMetric; "constrain" is for at most
        108 directions.
    n_similar : int or None, default=None
        Similar pairs drawn from labels at most; None is the cap of ``Pairs.from_labels``, and at
        most 1,000 where there are more than 108 directions.
    n_dissimilar : int or None, default=None
        Dissimilar pairs drawn from labels at most; None likewise.
    tol : float, default=1e-8
        Stops at this duality gap, relative to the objective or to that of B = 0, the larger.
    random_state : int, RandomState or None, default=0
        The seed of what is drawn: pairs from labels; the default gives the same every time.

    Attributes
    ----------
    estimator_ : IdealizedMetric
        Fitted on kernel coordinates.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Ω: a point with centred kernel values k is mapped to Ωk.
    n_directions_ : int
        Directions used.
    alpha_, ideal_weight_, objective_, duality_gap_, negative_share_
        As in IdealizedMetric.
    kernel_ : learner of kernels
        As fitted, if ``kernel`` is one.

    See Also
    --------
    IdealizedMetric, KernelMMC

    References
    ----------
    .. [1] L. Yang, R. Jin, "Distance Metric Learning: A Comprehensive Survey", 2006,
       section 6.4.5.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from nearfar import KernelIdealizedMetric, KNNClassifier
    >>> X, y = make_circles(100, noise=0.1, factor=0.5, random_state=0)
    >>> metric = KernelIdealizedMetric(n_similar=200, n_dissimilar=200)
    >>> mapped = metric.fit(X, y).transform(X)
    >>> bool(KNNClassifier().fit(mapped, y).leave_one_out_error() < 0.1)
    True
    """

    learner_tags = LearnerTags(reads="instances", learns_from=("labels", "pairs"))
    state = State({"estimator_": object_of(IdealizedMetric, q="q", p="d")})
    inner = IdealizedMetric
    taken_over = ("alpha_", "ideal_weight_", "objective_", "duality_gap_", "negative_share_")
    parameters: ClassVar = {**KERNEL_PARAMETERS, **PROGRAM_PARAMETERS}

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        n_directions: int | Literal["auto"] | None = "auto",
        C_S: float = 1.0,
        C_D: float = 1.0,
        nu: float = 0.5,
        psd: Literal["project", "constrain", "raise", "none"] = "project",
        n_similar: int | None = None,
        n_dissimilar: int | None = None,
        tol: float = 1e-8,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_directions = n_directions
        self.C_S = C_S
        self.C_D = C_D
        self.nu = nu
        self.psd = psd
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.tol = tol
        self.random_state = random_state

    def learned_kernel(self, X: ArrayLike, Z: ArrayLike | None = None) -> Matrix:
        """Values of the learned kernel between points, or their kernel values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points.
        Z : array-like of shape (n_others, n_features), optional
            Others; None is X.

        Returns
        -------
        ndarray of shape (n_samples, n_others)
        """
        check_is_fitted(self)
        first = self._features(X)
        return np.asarray(first @ (first if Z is None else self._features(Z)).T)

    def _features(self, X: ArrayLike) -> Matrix:
        """Ωk for the kernel values as they are, not centred: rows of Ω sum to zero."""
        rows = self._check_X(X, reset=False)
        return np.asarray(self._kernel(rows) @ self.coefficients_.T)

    def _inner(self) -> IdealizedMetric:
        return IdealizedMetric(**{name: getattr(self, name) for name in PROGRAM_PARAMETERS})
