"""A support vector machine whose kernel is magnified near the boundary of another."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.base.kernel_coordinates import natural_gamma
from nearfar.base.kernel_learner import exact
from nearfar.kernels.base_kernels import OPTIONS, BaseKernels
from nearfar.kernels.kernel_svm import KernelSVM, fitted_svc
from nearfar.parameters import integer, none, one_of, real
from nearfar.state import Sizes, State, floats, need, number, object_of


class ConformalSVC(KernelSVM):
    r"""A support vector machine, then another with distances stretched where the first decides.

    With the support vectors s of a machine with kernel k, the next one has

    .. math:: \tilde k(x, z) = c(x)\, k(x, z)\, c(z), \qquad
        c(x) \propto \sum_s e^{-|x - s|^2 / 2\tau^2},

    a conformal change of the geometry: near support vectors, where classes meet, points move apart.
    :math:`c` is divided by its root mean square over the training points, since a kernel of another
    size would be another C.

    Use it for context, where an SVM does well and might do a little better; as often it does a
    little worse. Features should have like units.

    Cost: that of ``n_rounds`` + 1 support vector machines for each two classes. It keeps their
    support vectors, and a matrix of n×n while it fits.

    Parameters
    ----------
    C : float, default=1.0
        Cost of errors of the SVM.
    kernel : {"rbf", "laplacian", "linear", "poly", "cosine"}, default="rbf"
        As in scikit-learn, of rows less their mean; "poly" of degree 3.
    gamma : float or None, default=None
        Scale of the kernels "rbf", "poly" and "laplacian". None is 1 over the sum of the features'
        variances (for "laplacian", of their deviations), so that units do not matter.
    width : float or None, default=None
        Width of the stretched regions, τ. None is the median distance between support vectors:
        with much less, rows far from all of them are told apart no more.
    n_rounds : int, default=1
        How often to stretch anew by the last machine's support vectors; 0 is the plain machine.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    width_ : float
        The τ of the last round.
    support_ : ndarray of shape (n_support,)
        Row numbers of support vectors.
    dual_coef_ : ndarray of shape (n_support, n_pairs)
        Their coefficients in the machine of each two classes (0 and 1, 0 and 2, ..., 1 and 2, ...),
        which is positive for the second.
    intercept_ : ndarray of shape (n_pairs,)
        Those of the machines.

    See Also
    --------
    LFMSVMClassifier, MKLClassifier

    References
    ----------
    .. [1] S. Amari and S. Wu, "Improving support vector machine classifiers by modifying kernel
       functions", Neural Networks 12, 1999.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", 2006,
       section 3.1.7.

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
        """Learn the machines, one after the other.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        ConformalSVC
            Itself.
        """
        self._check_parameters()
        rows = exact(self._check_X(X, reset=True))
        self.classes_, codes = self._check_labels(y, len(rows), min_classes=1)
        self._base = BaseKernels([(self.kernel, self._options(rows))], rows)
        self._centers, self._size, self.width_ = rows[:0], 1.0, 1.0
        self._vectors = rows[:0]
        if len(self.classes_) == 1:
            self._keep_nothing()
            return self
        K = self._base.values(0, rows, rows)
        if not np.isfinite(K).all():
            raise ValueError(
                "The kernel has values that are NaN or infinite: rescale the features of X, or "
                "choose another kernel or gamma."
            )
        machine = fitted_svc(K, codes, self.C)
        for _ in range(self.n_rounds):
            self._centers = rows[machine.support_]
            self.width_ = self._width()
            self._size = 1.0
            c = self._stretch(rows)
            self._size = float(np.sqrt(np.mean(c**2)))
            c /= self._size
            machine = fitted_svc(K * np.outer(c, c), codes, self.C)
        self._vectors = rows[machine.support_]
        self._keep_machine(machine)
        return self

    def _options(self, rows: Matrix) -> dict[str, Any]:
        if "gamma" not in OPTIONS[self.kernel]:
            return {}
        gamma = natural_gamma(rows, self.kernel) if self.gamma is None else float(self.gamma)
        return {"gamma": gamma}

    def _width(self) -> float:
        if self.width is not None:
            return float(self.width)
        # Narrow regions leave rows far from the boundary with kernel values of nothing.
        distances = cdist(self._centers, self._centers)
        apart = distances[distances > 0]
        return float(np.median(apart)) if apart.size else 1.0

    def _stretch(self, rows: Matrix) -> Vector:
        """c at rows; 1 where nothing is stretched."""
        if not len(self._centers):
            return np.ones(len(rows))
        squares = cdist(rows / self.width_, self._centers / self.width_, "sqeuclidean")
        return np.asarray(np.exp(-squares / 2).sum(axis=1) / self._size)

    def _values(self, rows: Matrix) -> Matrix:
        stretched = np.outer(self._stretch(rows), self._stretch(self._vectors))
        return stretched * self._base.values(0, rows, self._vectors)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        need(len(self._base) == 1, "there must be one kernel.")
        finite = np.isfinite(self._vectors).all() and np.isfinite(self._centers).all()
        need(finite, "support vectors must be finite.")
