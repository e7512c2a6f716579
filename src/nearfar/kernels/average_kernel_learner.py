"""AverageKernelLearner: the mean of kernels, as a baseline for learned weights."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Vector
from nearfar.base import LearnerTags
from nearfar.kernels.kernel_combination import COMBINATION_PARAMETERS, KernelCombination
from nearfar.kernels.kernel_set import KernelSet


class AverageKernelLearner(KernelCombination):
    r"""Mean of kernels that are scaled to the same trace, as a baseline for learned weights.

    The weights of m kernels of n rows are :math:`\mu_i = n / (m\, \mathrm{tr} K_i)`. They do not
    depend on the labels. Use this learner as the baseline. Learned weights are worth their
    computing time only if they are better, and with few rows they often are not better. Labels are
    used only for ``transduction_``, but they are always checked.

    Cost: one sum of the m kernels, O(m n²); O(m n) for the kernel values of a new point. The fitted
    learner stores the training points. Fitting needs one n × n matrix.

    Parameters
    ----------
    kernels : "auto", "features" or list, default="auto"
        Base kernels: the set "auto", one RBF kernel per feature ("features"), or a list. Each entry
        of the list is a name or a pair such as ``("rbf", {"gamma": 0.1, "columns": [0, 1]})``. See
        Notes.
    n_directions : int, "auto" or None, default="auto"
        Number of leading directions of kernel PCA. "auto" uses a tenth of the number of rows, but
        at least 10 and at most 50. None uses all nonzero directions, so that ``transform`` keeps
        the kernel's distances.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Weights of the kernels, scaled so that the mean diagonal of the learned kernel is 1.
    shares_ : ndarray of shape (n_kernels,)
        Fraction of the trace of the learned kernel that comes from each kernel. Unlike
        ``weights_``, these are comparable between kernels.
    kernel_names_ : list of str
        Names of the kernels.
    n_directions_ : int
        Number of kernel PCA directions that were used.
    transduction_ : ndarray of shape (n_others,)
        Predicted labels of the rows in ``unlabeled``. This attribute exists only if ``unlabeled``
        was passed to ``fit``.

    See Also
    --------
    AlignmentKernelLearner, EasyMKL, MarginKernelLearner, MKLClassifier

    Notes
    -----
    The base kernels can be passed as

    - "auto": a linear kernel, polynomial kernels of degree 2 and 3, and RBF kernels with seven
      widths around the median distance between rows;
    - "features": one RBF kernel per feature;
    - a list of names ("linear", "poly", "rbf", "laplacian", "cosine") and of pairs of a name and
      its options. The option ``columns`` selects features by index or name. See
      ``nearfar.kernels.BaseKernels``.

    References
    ----------
    .. [1] C. Cortes, M. Mohri and A. Rostamizadeh, "Algorithms for learning kernels based on
       centered alignment", JMLR 13, 2012. There it is the baseline "unif".

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

    def _compute_weights(self, kernels: KernelSet, codes: NDArray[np.intp]) -> Vector:
        return 1 / kernels.traces
