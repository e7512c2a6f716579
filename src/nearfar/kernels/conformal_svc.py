"""ConformalSVC: an SVM whose kernel is stretched near the boundary of a first SVM."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.kernel_coordinates import compute_gamma
from nearfar.base.kernel_learner import exact
from nearfar.kernels.base_kernels import OPTIONS, BaseKernels
from nearfar.kernels.kernel_svm import KernelSVM, fit_svc
from nearfar.parameters import integer, none, one_of, real
from nearfar.state import Sizes, State, check_that, floats, number, object_of


class ConformalSVC(KernelSVM):
    r"""Support vector machine with a kernel that is stretched near the boundary of a previous SVM.

    A first SVM with kernel k has the support vectors s. The next SVM uses the kernel

    .. math:: \tilde k(x, z) = c(x)\, k(x, z)\, c(z), \qquad
        c(x) \propto \sum_s e^{-|x - s|^2 / 2\tau^2},

    which is a conformal transformation of k: it moves points apart near the support vectors, where
    the classes meet. :math:`c` is divided by its root mean square over the training points, because
    a change of the kernel's scale has the same effect as a change of C.

    Use it for comparison if an SVM works well: it is sometimes slightly better, and as often
    slightly worse. The features should have similar scales.

    Cost: ``n_rounds`` + 1 support vector machines per pair of classes. The fitted
    classifier stores their support vectors. Fitting needs an n × n matrix.

    Parameters
    ----------
    C : float, default=1.0
        Penalty parameter of the SVM.
    kernel : {"rbf", "laplacian", "linear", "poly", "cosine"}, default="rbf"
        Kernel k, as in scikit-learn, computed from centered rows. "poly" has degree 3.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly" and "laplacian". None means 1 divided by the sum of the
        feature variances. For "laplacian", standard deviations are used instead of variances.
    width : float or None, default=None
        Width τ of the stretched regions. None uses the median distance between support vectors.
        With a much smaller width, rows far from all support vectors have kernel values near zero.
    n_rounds : int, default=1
        Number of times the kernel is stretched. Each time, the support vectors of the previous SVM
        define the stretched regions. 0 fits an ordinary SVM.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    width_ : float
        Width τ of the last round.
    support_ : ndarray of shape (n_support,)
        Row indices of the support vectors.
    dual_coef_ : ndarray of shape (n_support, n_pairs)
        Coefficients of the support vectors in the SVM of each pair of classes, in the order (0, 1),
        (0, 2), ..., (1, 2), .... Decision values are positive for the second class of the pair.
    intercept_ : ndarray of shape (n_pairs,)
        Intercepts of the SVMs.

    See Also
    --------
    LFMSVMClassifier, MKLClassifier

    References
    ----------
    .. [1] S. Amari and S. Wu, "Improving support vector machine classifiers by modifying kernel
       functions", Neural Networks 12, 1999.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 3.1.7.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from nearfar import ConformalSVC
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> ConformalSVC(C=10.0).fit(X[:100], y[:100]).score(X[100:], y[100:]) > 0.9
    True
    """

    learner_tags = LearnerTags(reads="instances", role="classifier")
    state = State(
        {
            "_base": object_of(BaseKernels, p="p"),
            "_vectors": floats("s", "p"),
            "_centers": floats("v", "p"),
            "_size": number(0, open_low=True),
            "width_": number(0, open_low=True),
        },
        rows="_vectors",
    )
    parameters: ClassVar = {
        "C": [real(0, open_low=True)],
        "kernel": [one_of("rbf", "laplacian", "linear", "poly", "cosine")],
        "gamma": [none, real(0, open_low=True)],
        "width": [none, real(0, open_low=True)],
        "n_rounds": [integer(0)],
    }
    settings = ({"C": 10.0}, {"C": 100.0})

    def __init__(
        self,
        C: float = 1.0,
        *,
        kernel: Literal["rbf", "laplacian", "linear", "poly", "cosine"] = "rbf",
        gamma: float | None = None,
        width: float | None = None,
        n_rounds: int = 1,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.width = width
        self.n_rounds = n_rounds

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Fit an ordinary SVM, then one SVM per round with the stretched kernel.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        ConformalSVC
            The fitted classifier.
        """
        self._check_parameters()
        rows = exact(self._check_X(X, reset=True))
        self.classes_, codes = self._check_labels(y, len(rows), min_classes=1)
        self._base = BaseKernels([(self.kernel, self._get_options(rows))], rows)
        self._centers, self._size, self.width_ = rows[:0], 1.0, 1.0
        self._vectors = rows[:0]
        if len(self.classes_) == 1:
            self._store_empty()
            return self
        K = self._base.values(0, rows, rows)
        if not np.isfinite(K).all():
            raise ValueError(
                "The kernel has NaN or infinite values. Rescale the features of X, or choose "
                "another kernel or gamma."
            )
        machine = fit_svc(K, codes, self.C)
        for _ in range(self.n_rounds):
            self._centers = rows[machine.support_]
            self.width_ = self._compute_width()
            self._size = 1.0
            c = self._compute_stretch(rows)
            self._size = float(np.sqrt(np.mean(c**2)))
            c /= self._size
            machine = fit_svc(K * np.outer(c, c), codes, self.C)
        self._vectors = rows[machine.support_]
        self._store_svm(machine)
        return self

    def _get_options(self, rows: Matrix) -> dict[str, Any]:
        if "gamma" not in OPTIONS[self.kernel]:
            return {}
        gamma = compute_gamma(rows, self.kernel) if self.gamma is None else float(self.gamma)
        return {"gamma": gamma}

    def _compute_width(self) -> float:
        if self.width is not None:
            return float(self.width)
        # With a smaller width, rows far from the boundary would have kernel values near zero.
        distances = cdist(self._centers, self._centers)
        nonzero = distances[distances > 0]
        return float(np.median(nonzero)) if nonzero.size else 1.0

    def _compute_stretch(self, rows: Matrix) -> Vector:
        """Return the stretching factor c of each row. Without stretching, c is 1."""
        if not len(self._centers):
            return np.ones(len(rows))
        squares = cdist(rows / self.width_, self._centers / self.width_, "sqeuclidean")
        return np.asarray(np.exp(-squares / 2).sum(axis=1) / self._size)

    def _values(self, rows: Matrix) -> Matrix:
        stretched = np.outer(self._compute_stretch(rows), self._compute_stretch(self._vectors))
        return stretched * self._base.values(0, rows, self._vectors)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        check_that(len(self._base) == 1, "_base must have exactly one kernel.")
        finite = np.isfinite(self._vectors).all() and np.isfinite(self._centers).all()
        check_that(finite, "support vectors must be finite.")
