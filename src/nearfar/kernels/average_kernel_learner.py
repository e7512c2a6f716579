"""The mean of kernels: what learned weights are compared with."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Vector
from nearfar.base import LearnerTags
from nearfar.kernels.kernel_combination import COMBINATION_PARAMETERS, KernelCombination
from nearfar.kernels.kernel_set import KernelSet


class AverageKernelLearner(KernelCombination):
    r"""The mean of kernels, each brought to the same trace: what learned weights must beat.

    Its weights are :math:`\mu_i = n / (m\, \mathrm{tr} K_i)`; nothing is learned from labels. Use
    it as the baseline: weights that do no better than it are not worth their time, and on few rows
    they often do not. Labels are needed only for ``transduction_``, and are checked in any case.

    Cost: one sum of the m kernels, O(m n²); O(m n) for the kernel values of a new point. It keeps
    the training points, and a matrix of n×n while it fits.

    Parameters
    ----------
    kernels : "auto", "features" or list, default="auto"
        The base kernels. "auto" is linear, polynomials of degree 2 and 3, and rbf at seven widths
        about the median of the distances; "features" is one rbf for each feature. A list has names
        ("linear", "poly", "rbf", "laplacian", "cosine") and pairs such as ``("rbf", {"gamma": 0.1,
        "columns": [0, 1]})``, with columns by index or name; see ``nearfar.kernels.BaseKernels``.
    n_directions : int, "auto" or None, default="auto"
        Leading directions of kernel PCA. "auto" is a tenth of the rows, from 10 to 50; None is all
        that are not empty: distances after the map are then those of the kernel.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Of the kernels, so that the mean of the sum's diagonal is 1.
    shares_ : ndarray of shape (n_kernels,)
        What each kernel has of the trace of the sum; these can be compared.
    kernel_names_ : list of str
        What the kernels are called.
    n_directions_ : int
        Directions used.
    transduction_ : ndarray of shape (n_others,)
        Labels of the rows in ``unlabeled``, if there were any.

    See Also
    --------
    AlignmentKernelLearner, EasyMKL, MarginKernelLearner, MKLClassifier

    References
    ----------
    .. [1] C. Cortes, M. Mohri and A. Rostamizadeh, "Algorithms for learning kernels based on
       centered alignment", JMLR 13, 2012, where it is the baseline "unif".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.svm import SVC
    >>> from nearfar import AverageKernelLearner
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = AverageKernelLearner().fit(X, y)
    >>> SVC(kernel=learner.kernel).fit(X, y).score(X, y) > 0.95
    True
    """

    learner_tags = LearnerTags(reads="instances", role="kernel")
    parameters: ClassVar = COMBINATION_PARAMETERS

    def __init__(
        self, kernels: Any = "auto", *, n_directions: int | Literal["auto"] | None = "auto"
    ) -> None:
        self.kernels = kernels
        self.n_directions = n_directions

    def _weigh(self, kernels: KernelSet, codes: NDArray[np.intp]) -> Vector:
        return 1 / kernels.traces
