"""A support vector machine on a learned kernel."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone

from nearfar.arrays import Matrix, Vector
from nearfar.base import KernelLearner, LearnerTags
from nearfar.base.kernel_learner import exact
from nearfar.kernels.alignment_kernel_learner import AlignmentKernelLearner
from nearfar.kernels.kernel_svm import KernelSVM, fitted_svc
from nearfar.parameters import instance, none, real
from nearfar.state import Sizes, State, need, none_or, object_of


class MKLClassifier(KernelSVM):
    r"""A support vector machine on a kernel that is learned first: multiple kernel learning.

    With weights :math:`\mu` of base kernels from the learner and multipliers :math:`\alpha` of the
    machine,

    .. math:: f(x) = \sum_j \alpha_j y_j \sum_i \mu_i k_i(x_j, x) + b.

    Use it where one does not know which kernel, how wide, or which of several views of the data
    tells classes apart. By default the kernel is the one most aligned with the labels; with
    ``MarginKernelLearner`` kernel and machine have one objective, but it can put much weight on
    narrow kernels of noise columns, since these separate the training rows.

    Cost: that of the learner, and of one SVM for each two classes. It keeps the training points.

    Parameters
    ----------
    learner : learner of a kernel, optional
        Fitted first: ``AlignmentKernelLearner()`` with None. Its kernel has a mean diagonal of 1.
    C : float, default=1.0
        Cost of errors of the SVM.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    learner_ : KernelLearner or None
        The learner, fitted; None where y has one class.
    weights_ : ndarray of shape (n_kernels,)
        Those that it found.
    kernel_names_ : list of str
        What its kernels are called.
    support_ : ndarray of shape (n_support,)
        Row numbers of support vectors.
    dual_coef_ : ndarray of shape (n_support, n_pairs)
        Their coefficients in the machine of each two classes (0 and 1, 0 and 2, ..., 1 and 2, ...),
        which is positive for the second.
    intercept_ : ndarray of shape (n_pairs,)
        Those of the machines.

    See Also
    --------
    AlignmentKernelLearner, AverageKernelLearner, ConformalSVC, EasyMKL, MarginKernelLearner

    References
    ----------
    .. [1] G. Lanckriet et al., "Learning the kernel matrix with semidefinite programming", JMLR 5,
       2004.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import cross_val_score
    >>> from nearfar import MKLClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> float(cross_val_score(MKLClassifier(), X / X.std(axis=0), y).mean()) > 0.95
    True
    """

    learner_tags = LearnerTags(reads="instances", role="classifier")
    state = State({"learner_": none_or(object_of(KernelLearner, p="p", n="n"))}, rows=0)
    parameters: ClassVar = {
        "learner": [
            none,
            instance(
                KernelLearner, description="a learner of a kernel such as MarginKernelLearner()"
            ),
        ],
        "C": [real(0, open_low=True)],
    }
    settings = ({"C": 10.0}, {"C": 100.0})

    learner_: Any

    def __init__(self, learner: Any = None, *, C: float = 1.0) -> None:
        self.learner = learner
        self.C = C

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn the kernel, then the machine.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training points.
        y : array-like of shape (n_samples,)
            Labels.

        Returns
        -------
        MKLClassifier
            Itself.
        """
        self._check_parameters()
        rows = self._check_X(X, reset=True)
        self.classes_, codes = self._check_labels(y, len(rows), min_classes=1)
        if len(self.classes_) == 1:
            self.learner_ = None
            self._keep_nothing()
            return self
        learner = AlignmentKernelLearner() if self.learner is None else clone(self.learner)
        self.learner_ = learner.fit(X, y)
        points = exact(rows)
        self._keep_machine(fitted_svc(learner._values(points, points), codes, self.C))
        return self

    @property
    def weights_(self) -> Vector:
        """Those that the learner found."""
        return np.asarray(self.learner_.weights_)

    @property
    def kernel_names_(self) -> list[str]:
        """What its kernels are called."""
        return list(self.learner_.kernel_names_)

    def _check_state(self, sizes: Sizes) -> None:
        super()._check_state(sizes)
        need((self.learner_ is None) == (sizes["c"] == 1), "learner_ goes with several classes.")

    def _values(self, rows: Matrix) -> Matrix:
        return np.asarray(self.learner_._values(rows, self.learner_._rows[self.support_]))
