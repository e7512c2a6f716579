"""KernelIdealizedMetric: IdealizedMetric in the feature space of a kernel."""

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
    r""":class:`IdealizedMetric` in the feature space of a kernel.

    The program depends only on inner products of differences,
    :math:`(\phi_i - \phi_j)^T(\phi_k - \phi_l) = K_{ik} - K_{il} - K_{jk} + K_{jl}`. Its optimum
    is the kernel

    .. math:: \hat K(a, b) = \sum_{ij} s_{ij} \alpha_{ij} (K_{ai} - K_{aj})(K_{bi} - K_{bj})

    summed over the pairs, where s is 1 for dissimilar and −1 for similar pairs. The program is
    solved in the coordinates of kernel PCA, where Euclidean distances are those of the kernel and
    negative eigenvalues of B can be removed.

    Use it if no linear map separates similar from dissimilar pairs. The values of RBF kernels are
    between 0 and 1, so suitable values of C do not depend on the scale of X. The fitted learner
    stores the training points. Fitting needs an n × n matrix.

    Cost: O(n³) for kernel PCA, then about 20 steps of O(N d⁴) for N pairs and d directions, or
    O(N³) if that is less; O(n p) per point to transform. With some hundred rows,
    ``n_directions=None`` takes hundreds of times as long as the default.

    Parameters
    ----------
    kernel : str, kernel learner or callable, default="rbf"
        Kernel, as in scikit-learn: "linear", "rbf", "poly", "sigmoid", "laplacian", "cosine" or
        "precomputed"; or a kernel learner; or a function of two points. See Notes.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly", "sigmoid" and "laplacian". None means 1 divided by the
        sum of the feature variances. For "laplacian", standard deviations are used instead of
        variances.
    degree : float, default=3
        Degree of the kernel "poly".
    coef0 : float, default=1
        Constant term of the kernels "poly" and "sigmoid".
    n_directions : int, "auto" or None, default="auto"
        Number of leading directions of kernel PCA. "auto" uses a tenth of the number of rows, but
        at least 10 and at most 50. None uses all nonzero directions.
    C_similar : float, default=1.0
        Penalty for similar pairs whose distance increases.
    C_dissimilar : float, default=1.0
        Penalty for dissimilar pairs that miss the margin, and weight of the margin.
    nu : float, default=0.5
        Upper bound on the fraction of margin errors. A margin error is a dissimilar pair that
        misses the margin. ``nu`` must be above 0 and at most 1.
    psd : {"project", "constrain", "raise", "none"}, default="project"
        Treatment of negative eigenvalues of B: see :class:`IdealizedMetric`. "constrain" is
        possible for at most 109 directions.
    n_similar : int or None, default=None
        Maximum number of similar pairs drawn from labels. None uses the limit of
        ``Pairs.from_labels`` or, with more than 109 directions, 1,000.
    n_dissimilar : int or None, default=None
        Maximum number of dissimilar pairs drawn from labels. None has the same meaning as for
        ``n_similar``.
    tol : float, default=1e-8
        Stop at this duality gap, relative to the objective at B or at B = 0, whichever is larger.
    random_state : int, RandomState or None, default=0
        Seed of the random number generator. The generator is used to draw pairs from labels.

    Attributes
    ----------
    estimator_ : IdealizedMetric
        Metric fitted in the coordinates of kernel PCA.
    coefficients_ : ndarray of shape (n_components, n_samples)
        Matrix Ω, which maps the centered kernel values k of a point to Ωk.
    n_directions_ : int
        Number of kernel PCA directions that were used.
    alpha_, ideal_weight_, objective_, duality_gap_, negative_share_
        See :class:`IdealizedMetric`.
    kernel_ : kernel learner
        Fitted kernel learner. Exists only if ``kernel`` is a kernel learner.

    See Also
    --------
    IdealizedMetric, KernelMMC

    Notes
    -----
    Special values of ``kernel``:

    - With "precomputed", X contains kernel values: shape (n, n) in ``fit`` and (n_queries, n) in
      ``transform``.
    - A kernel learner, such as ``AlignmentKernelLearner()``, is fitted on the same rows and labels.
      ``gamma``, ``degree`` and ``coef0`` are ignored.
    - A function of two points is called once per pair of points. It cannot be stored in a model
      file.

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

    learner_tags = LearnerTags(reads="instances", supervision=("labels", "pairs"))
    renamed: ClassVar = {"C_S": "C_similar", "C_D": "C_dissimilar"}
    state = State({"estimator_": object_of(IdealizedMetric, q="q", p="d")})
    inner = IdealizedMetric
    copied_attributes = ("alpha_", "ideal_weight_", "objective_", "duality_gap_", "negative_share_")
    parameters: ClassVar = {**KERNEL_PARAMETERS, **PROGRAM_PARAMETERS}

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1.0,
        n_directions: int | Literal["auto"] | None = "auto",
        C_similar: float = 1.0,
        C_dissimilar: float = 1.0,
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
        self.C_similar = C_similar
        self.C_dissimilar = C_dissimilar
        self.nu = nu
        self.psd = psd
        self.n_similar = n_similar
        self.n_dissimilar = n_dissimilar
        self.tol = tol
        self.random_state = random_state

    def learned_kernel(self, X: ArrayLike, Z: ArrayLike | None = None) -> Matrix:
        """Return the values of the learned kernel between points.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Points for the rows of the result, or their kernel values if ``kernel="precomputed"``.
        Z : array-like of shape (n_others, n_features), optional
            Points for the columns of the result. None uses X.

        Returns
        -------
        ndarray of shape (n_samples, n_others)
        """
        check_is_fitted(self)
        first = self._compute_features(X)
        return np.asarray(first @ (first if Z is None else self._compute_features(Z)).T)

    def _compute_features(self, X: ArrayLike) -> Matrix:
        """Return the coordinates Ωk of points, computed from their kernel values k.

        The kernel values need not be centered, because the rows of Ω sum to zero.
        """
        rows = self._check_X(X, reset=False)
        return np.asarray(self._kernel(rows) @ self.coefficients_.T)

    def _inner(self) -> IdealizedMetric:
        return IdealizedMetric(**{name: getattr(self, name) for name in PROGRAM_PARAMETERS})
