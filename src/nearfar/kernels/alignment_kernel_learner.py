"""AlignmentKernelLearner: a weighted sum of kernels, aligned with the labels."""

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
    r"""Weighted sum of kernels that maximizes the alignment with the labels.

    It solves

    .. math:: \max_\mu\; \frac{\langle K, T \rangle_F}{\|K\|_F}, \qquad
        K = \sum_i \mu_i K_i,

    where the target T is 1 for two points of the same class and :math:`-1/(J-1)` for points of
    different classes, with J classes in all. Both matrices are centered unless ``centered=False``.
    See :func:`nearfar.kernels.alignment_weights`.

    Try it first: it has nothing to tune, supports any number of classes, and needs one pass over
    the kernels. It prefers kernels in which each class forms one cluster, while a support vector
    machine only needs to separate the classes. If classes consist of many clusters, compare it with
    ``AverageKernelLearner``.

    Cost: O(m² n²) for m kernels of n rows; O(m n) for the kernel values of a new point. The fitted
    learner stores the training points. Fitting needs two n × n matrices.

    Parameters
    ----------
    kernels : "auto", "features" or list, default="auto"
        Base kernels: the set "auto", one RBF kernel per feature ("features"), or a list. Each entry
        of the list is a name or a pair such as ``("rbf", {"gamma": 0.1, "columns": [0, 1]})``. See
        Notes.
    kernel_family : {"nonneg", "independent", "signed", "rank_one", "free"}, default="nonneg"
        Set of kernels over which the objective is optimized. See Notes.
    centered : bool, default=True
        Center the kernels and the target first. Without centering, even a constant kernel is
        aligned with the labels if the classes have unequal sizes.
    n_directions : int, "auto" or None, default="auto"
        Number of leading directions of kernel PCA. "auto" uses a tenth of the number of rows, but
        at least 10 and at most 50. None uses all nonzero directions, so that ``transform`` keeps
        the kernel's distances. See Notes for ``kernel_family="rank_one"``.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Weights of the kernels, or of the eigenvectors with ``kernel_family="rank_one"``, scaled so
        that the mean diagonal of the learned kernel is 1.
    shares_ : ndarray of shape (n_kernels,)
        Fraction of the trace of the learned kernel that comes from each kernel. Unlike
        ``weights_``, these are comparable between kernels.
    kernel_names_ : list of str
        Names of the kernels.
    objective_ : float
        Frobenius product of the target kernel with the learned kernel. The learned kernel is scaled
        to Frobenius norm 1 for this product.
    bound_ : float
        Upper bound on the objective for any choice of weights.
    duality_gap_ : float
        Difference between the bound and the objective, divided by the objective.
    alignment_ : float
        Objective divided by the Frobenius norm of the target kernel. If all rows are labeled, this
        is the alignment of the learned kernel with the target.
    n_directions_ : int
        Number of kernel PCA directions that were used.
    transduction_ : ndarray of shape (n_others,)
        Predicted labels of the rows in ``unlabeled``. This attribute exists only if ``unlabeled``
        was passed to ``fit`` and ``kernel_family`` is not "free".

    See Also
    --------
    AverageKernelLearner, EasyMKL, MarginKernelLearner, MKLClassifier

    Notes
    -----
    The base kernels can be passed as

    - "auto": a linear kernel, polynomial kernels of degree 2 and 3, and RBF kernels with seven
      widths around the median distance between rows;
    - "features": one RBF kernel per feature;
    - a list of names ("linear", "poly", "rbf", "laplacian", "cosine") and of pairs of a name and
      its options. The option ``columns`` selects features by index or name. See
      ``nearfar.kernels.BaseKernels``.

    The kernel families are

    - "nonneg": weights :math:`\mu \ge 0`;
    - "independent": each kernel, scaled to norm 1, is weighted by its own alignment;
    - "signed": any weights for which the sum is positive semi-definite on the training rows. On new
      rows it need not be;
    - "rank_one": weights of the leading eigenvectors of the mean of the kernels, extended to new
      points by Nyström's formula. ``n_directions`` is the number of eigenvectors; "auto" uses at
      most 100;
    - "free": any positive semi-definite matrix. It depends only on the labels and has no kernel
      values for new points.

    References
    ----------
    .. [1] C. Cortes, M. Mohri and A. Rostamizadeh, "Algorithms for learning kernels based on
       centered alignment", JMLR 13, 2012.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 6.3.

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
    renamed: ClassVar = {"mode": "kernel_family"}
    parameters: ClassVar = {
        **COMBINATION_PARAMETERS,
        "kernel_family": [one_of("nonneg", "independent", "signed", "rank_one", "free")],
        "centered": [boolean],
    }

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        kernel_family: AlignmentMode = "nonneg",
        centered: bool = True,
        n_directions: int | Literal["auto"] | None = "auto",
    ) -> None:
        self.kernels = kernels
        self.kernel_family = kernel_family
        self.centered = centered
        self.n_directions = n_directions

    def _solve(self, kernels: Any, codes: NDArray[np.intp], **options: Any) -> AlignmentWeights:
        result = alignment_weights(
            kernels, codes, kernel_family=self.kernel_family, centered=self.centered, **options
        )
        self.alignment_ = float(result.alignment)
        return result
