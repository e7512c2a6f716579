"""A sum of kernels that is aligned with the labels."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from nearfar.base import LearnerTags
from nearfar.kernels.alignment_weights import AlignmentMode, AlignmentWeights, alignment_weights
from nearfar.kernels.kernel_combination import COMBINATION_PARAMETERS
from nearfar.kernels.kernel_program import KernelProgram
from nearfar.parameters import boolean, one_of


class AlignmentKernelLearner(KernelProgram):
    r"""The sum of kernels that is most aligned with the labels.

    .. math:: \max_\mu\; \frac{\langle K, T \rangle_F}{\|K\|_F}, \qquad
        K = \sum_i \mu_i K_i,

    where T is 1 for two points of a class and :math:`-1/(J-1)` for points of two of the J classes,
    and both are centred unless that is not wished. See :func:`nearfar.kernels.alignment_weights`.

    Use it first: it has nothing to tune, takes any number of classes, and one pass over the kernels
    is all. It prefers kernels that show classes as wholes, while a support vector machine only
    needs to separate them; where classes have many parts, compare with ``AverageKernelLearner``.

    Cost: O(m² n²) for m kernels of n rows; O(m n) for the kernel values of a new point. It keeps
    the training points, and two matrices of n×n while it fits.

    Parameters
    ----------
    kernels : "auto", "features" or list, default="auto"
        The base kernels. "auto" is linear, polynomials of degree 2 and 3, and rbf at seven widths
        about the median of the distances; "features" is one rbf for each feature. A list has names
        ("linear", "poly", "rbf", "laplacian", "cosine") and pairs such as ``("rbf", {"gamma": 0.1,
        "columns": [0, 1]})``, with columns by index or name; see ``nearfar.kernels.BaseKernels``.
    mode : {"nonneg", "independent", "signed", "rank_one", "free"}, default="nonneg"
        What weights may be. "nonneg" is :math:`\mu \ge 0`. "independent" weighs each kernel, at
        norm 1, by its own alignment. "signed" takes any weights whose sum is positive semi-definite
        on the training rows; for new ones it need not be. "rank_one" weighs the leading
        eigenvectors of the mean of the kernels, which new points get by Nyström's formula. "free"
        is any matrix: it repeats the labels, and there is no kernel for new points.
    centered : bool, default=True
        Whether kernels and target are centred first; otherwise constant kernels are aligned with
        classes of unequal size.
    n_directions : int, "auto" or None, default="auto"
        Leading directions of kernel PCA. "auto" is a tenth of the rows, from 10 to 50; None is all
        that are not empty: distances after the map are then those of the kernel. In mode "rank_one"
        the eigenvectors that are weighted, with "auto" at most 100.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Of the kernels, or of the eigenvectors, so that the mean of the sum's diagonal is 1.
    shares_ : ndarray of shape (n_kernels,)
        What each kernel has of the trace of the sum; these can be compared.
    kernel_names_ : list of str
        What the kernels are called.
    objective_ : float
        The product with the target, of the kernel at norm 1.
    bound_ : float
        No weights have more.
    duality_gap_ : float
        The bound less the objective, relative to the objective.
    alignment_ : float
        The objective over the norm of the target: with all rows labelled, the alignment.
    n_directions_ : int
        Directions used.
    transduction_ : ndarray of shape (n_others,)
        Labels of the rows in ``unlabeled``, if there were any; mode "free" has none to give.

    See Also
    --------
    AverageKernelLearner, EasyMKL, MarginKernelLearner, MKLClassifier

    References
    ----------
    .. [1] C. Cortes, M. Mohri and A. Rostamizadeh, "Algorithms for learning kernels based on
       centered alignment", JMLR 13, 2012.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", 2006,
       section 6.3.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import AlignmentKernelLearner
    >>> X, y = load_iris(return_X_y=True)
    >>> views = ["linear", ("rbf", {"columns": [0, 1]}), ("rbf", {"columns": [2, 3]})]
    >>> learner = AlignmentKernelLearner(views).fit(X, y)
    >>> learner.kernel_names_[int(learner.weights_.argmax())]
    'rbf 0.258 of x2, x3'
    >>> learner.kernel(X[:2], X).shape
    (2, 150)
    """

    learner_tags = LearnerTags(reads="instances", role="kernel")
    parameters: ClassVar = {
        **COMBINATION_PARAMETERS,
        "mode": [one_of("nonneg", "independent", "signed", "rank_one", "free")],
        "centered": [boolean],
    }

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        mode: AlignmentMode = "nonneg",
        centered: bool = True,
        n_directions: int | Literal["auto"] | None = "auto",
    ) -> None:
        self.kernels = kernels
        self.mode = mode
        self.centered = centered
        self.n_directions = n_directions

    def _solve(self, kernels: Any, codes: NDArray[np.intp], **options: Any) -> AlignmentWeights:
        found = alignment_weights(kernels, codes, mode=self.mode, centered=self.centered, **options)
        self.alignment_ = float(found.alignment)
        return found
