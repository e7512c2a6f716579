"""EasyMKL: kernel weights from the distance between the convex hulls of the classes."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.kernels.kernel_combination import COMBINATION_PARAMETERS, KernelCombination
from nearfar.kernels.kernel_set import Kernels, KernelSet, make_kernel_set
from nearfar.kernels.margin_value import MarginSolution, encode_one_vs_rest, solve_margin
from nearfar.parameters import check_parameter, real


class EasyMKL(KernelCombination):
    r"""Sum of kernels, each weighted by the distance between the classes in its feature space.

    Let :math:`\bar K` be the mean of the kernels, scaled to unit diagonal, and Y the diagonal
    matrix of the labels 1 and -1. First, EasyMKL computes the distributions γ over the points of
    each class whose means are nearest to each other,

    .. math:: \min_\gamma\; (1 - \lambda)\, \gamma^T Y \bar K Y \gamma + \lambda |\gamma|^2,
        \qquad \gamma \ge 0,\; \sum_{y_i = 1} \gamma_i = \sum_{y_i = -1} \gamma_i = 1,

    then the weights are :math:`\mu_i \propto \gamma^T Y K_i Y \gamma`. With more than two classes,
    the weights of all one-vs-rest problems are added.

    Use it for many kernels, such as hundreds of views or one kernel per feature. After the
    quadratic program above, each kernel costs only one product with a vector, and no weight is
    exactly 0. All kernels are scaled to unit diagonal, for new points too.

    Cost: O(m n²) for m kernels of n rows, and one quadratic program; O(m n) for the kernel values
    of a new point. The fitted learner stores the training points. Fitting needs a few n × n
    matrices.

    Parameters
    ----------
    kernels : "auto", "features" or list, default="auto"
        Base kernels: the set "auto", one RBF kernel per feature ("features"), or a list. Each entry
        of the list is a name or a pair such as ``("rbf", {"gamma": 0.1, "columns": [0, 1]})``. See
        Notes.
    regularization : float, default=0.1
        Regularization λ, from 0 to 1. With 0, the distance between the classes is the distance
        between their convex hulls. With 1, it is the distance between the class means.
    n_directions : int, "auto" or None, default="auto"
        Number of leading directions of kernel PCA. "auto" uses a tenth of the number of rows, but
        at least 10 and at most 50. None uses all nonzero directions, so that ``transform`` keeps
        the kernel's distances.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Weights of the kernels after scaling them to unit diagonal. The weights sum to 1.
    shares_ : ndarray of shape (n_kernels,)
        Fraction of the trace of the learned kernel that comes from each kernel. Unlike
        ``weights_``, these are comparable between kernels.
    kernel_names_ : list of str
        Names of the kernels.
    objective_ : float
        Objective of the quadratic program. With more than two classes, it is the sum over all
        one-vs-rest problems.
    bound_ : float
        Lower bound on the objective.
    duality_gap_ : float
        Difference between the objective and the bound, divided by the objective.
    n_directions_ : int
        Number of kernel PCA directions that were used.
    transduction_ : ndarray of shape (n_others,)
        Predicted labels of the rows in ``unlabeled``. This attribute exists only if ``unlabeled``
        was passed to ``fit``.

    See Also
    --------
    AlignmentKernelLearner, MarginKernelLearner, MKLClassifier

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
    .. [1] F. Aiolli and M. Donini, "EasyMKL: a scalable multiple kernel learning algorithm",
       Neurocomputing 169, 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from nearfar import EasyMKL
    >>> X, y = load_iris(return_X_y=True)
    >>> learner = EasyMKL("features").fit(X, y)
    >>> learner.weights_.round(2)
    array([0.05, 0.08, 0.5 , 0.37])
    """

    learner_tags = LearnerTags(reads="instances", role="kernel")
    renamed: ClassVar = {"lam": "regularization"}
    parameters: ClassVar = {**COMBINATION_PARAMETERS, "regularization": [real(0, 1)]}
    unit_diagonal = True

    objective_: float
    bound_: float
    duality_gap_: float

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        regularization: float = 0.1,
        n_directions: int | Literal["auto"] | None = "auto",
    ) -> None:
        self.kernels = kernels
        self.regularization = regularization
        self.n_directions = n_directions

    @staticmethod
    def weights_of(
        kernels: Kernels | KernelSet, y: ArrayLike, regularization: float = 0.1
    ) -> Vector:
        """Return the weights of kernel matrices; see :func:`nearfar.kernels.easy_mkl_weights`.

        Parameters
        ----------
        kernels : sequence of (n, n) arrays, (m, n, n) array, or function of an index
            Base kernels, which are scaled to unit diagonal.
        y : array-like of shape (n_labeled,)
            Labels of the first points.
        regularization : float, default=0.1
            Regularization λ, from 0 to 1.

        Returns
        -------
        ndarray of shape (n_kernels,)
            Nonnegative weights with sum 1.
        """
        return easy_mkl_weights(kernels, y, regularization)

    def _compute_weights(self, kernels: KernelSet, codes: NDArray[np.intp]) -> Vector:
        solution = _solve(kernels, encode_one_vs_rest(codes), float(self.regularization))
        self.objective_, self.bound_ = solution.objective, solution.bound
        self.duality_gap_ = (solution.objective - solution.bound) / max(solution.objective, 1e-300)
        return solution.weights


def easy_mkl_weights(
    kernels: Kernels | KernelSet, y: ArrayLike, regularization: float = 0.1
) -> Vector:
    r"""Return kernel weights proportional to the distance between the classes in each kernel.

    Let :math:`\bar K` be the mean of the kernels, scaled to unit diagonal, and Y the diagonal
    matrix of the labels 1 and -1. First, EasyMKL computes the distributions γ over the points of
    each class whose means are nearest to each other,

    .. math:: \min_\gamma\; (1 - \lambda)\, \gamma^T Y \bar K Y \gamma + \lambda |\gamma|^2, \qquad
        \gamma \ge 0,\; \sum_{y_i = 1} \gamma_i = \sum_{y_i = -1} \gamma_i = 1,

    then the weights are :math:`\mu_i \propto \gamma^T Y K_i Y \gamma`. The problem is solved as a
    support vector machine with squared hinge loss and :math:`\tau = \lambda / (1 - \lambda)`.

    Use it for many kernels: after one SVM, each kernel costs one product with a vector.

    Parameters
    ----------
    kernels : sequence of (n, n) arrays, (m, n, n) array, or function of an index
        Base kernels. They are scaled to unit diagonal, :math:`K_{ij} / \sqrt{K_{ii} K_{jj}}`, and
        the weights apply to the scaled kernels. If :math:`K_{ii} = 0`, row and column i become
        zero.
    y : array-like of shape (n_labeled,)
        Labels of the first points. With more than two classes, the weights of all one-vs-rest
        problems are added.
    regularization : float, default=0.1
        Regularization λ, from 0 to 1. With 0, the distance between the classes is the distance
        between their convex hulls. With 1, it is the distance between the class means.

    Returns
    -------
    ndarray of shape (n_kernels,)
        Nonnegative weights with sum 1.

    References
    ----------
    .. [1] F. Aiolli and M. Donini, "EasyMKL: a scalable multiple kernel learning algorithm",
       Neurocomputing 169, 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.metrics.pairwise import rbf_kernel
    >>> from nearfar.kernels import easy_mkl_weights
    >>> X, y = load_iris(return_X_y=True)
    >>> easy_mkl_weights([rbf_kernel(X, gamma=g) for g in (0.01, 0.1, 1.0)], y).round(2)
    array([0.1 , 0.44, 0.46])
    """
    check_parameter("easy_mkl_weights", "regularization", regularization, [real(0, 1)])
    signs = encode_one_vs_rest(y)
    return _solve(
        scale_to_unit_diagonal(make_kernel_set(kernels, signs.shape[1])), signs, regularization
    ).weights


class _Solution(NamedTuple):
    """Weights that sum to 1, objective of the quadratic program, and bound on the objective."""

    weights: Vector
    objective: float
    bound: float


def _solve(base: KernelSet, signs: Matrix, regularization: float) -> _Solution:
    """Return the weights of kernels that have unit diagonal."""
    n = signs.shape[1]
    if regularization == 1:
        gammas = np.array([_make_uniform_weights(sign) for sign in signs])
        objective = bound = float(np.sum(gammas**2))
    else:
        mean = base.compute_weighted_sum(np.full(base.n_kernels, 1 / base.n_kernels), n)
        solutions = [
            solve_margin(mean, sign, None, regularization / (1 - regularization)) for sign in signs
        ]
        if not all(np.isfinite(solution.value) for solution in solutions):
            raise ValueError(
                "regularization=0 requires that the convex hulls of the classes do not intersect "
                "in the mean kernel, but they intersect. Set regularization above 0."
            )
        gammas = np.array([2 * solution.alpha / solution.alpha.sum() for solution in solutions])
        objective = (1 - regularization) * sum(
            _compute_hull_objective(solution) for solution in solutions
        )
        # The margin functional is 4 divided by the squared distance between the convex hulls.
        bound = min(
            objective, (1 - regularization) * sum(4 / solution.value for solution in solutions)
        )
    weights = np.maximum(base.compute_forms((signs * gammas).T).sum(axis=1), 0)
    # The weights are squared distances between means of unit vectors. Weights below this limit are
    # rounding errors.
    if not weights.max() > 16 * np.finfo(float).eps * len(signs):
        raise ValueError(
            "kernels: no kernel separates the classes of y. The distance between the classes is "
            "zero in every kernel. Use other kernels."
        )
    return _Solution(np.asarray(weights / weights.sum()), float(objective), float(bound))


def _compute_hull_objective(solution: MarginSolution) -> float:
    """Return the objective of the dual variables, scaled so that they sum to 1 in each class."""
    total = float(solution.alpha.sum())
    return 4 * (2 * total - solution.bound) / total**2


def scale_to_unit_diagonal(kernels: KernelSet) -> KernelSet:
    """Return the kernels scaled to unit diagonal.

    A set whose diagonals are already 1 is returned unchanged.
    """
    diagonals = kernels.diagonals()
    if np.abs(diagonals - 1).max() <= 1e-12:
        return kernels
    return _UnitDiagonal(kernels, diagonals)


class _UnitDiagonal(KernelSet):
    """Set of kernels that are scaled to unit diagonal when their rows are read."""

    def __init__(self, kernels: KernelSet, diagonals: Matrix) -> None:
        self.kernels, self.by_rows = kernels, kernels.by_rows
        self.n_kernels, self.n_points = kernels.n_kernels, kernels.n_points
        positive = diagonals > 0
        self.factors = np.where(positive, 1 / np.sqrt(np.where(positive, diagonals, 1.0)), 0.0)

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        rows = self.kernels.rows(i, block) * self.factors[i]
        rows *= self.factors[i, block, None]
        return rows


def _make_uniform_weights(sign: Vector) -> Vector:
    return np.where(sign > 0, 1 / (sign > 0).sum(), 1 / (sign < 0).sum())
