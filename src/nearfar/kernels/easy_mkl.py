"""EasyMKL: weights of kernels by the nearest points of the classes' hulls."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Matrix, Vector
from nearfar.base import LearnerTags
from nearfar.kernels.kernel_combination import COMBINATION_PARAMETERS, KernelCombination
from nearfar.kernels.kernel_set import Kernels, KernelSet, kernel_set
from nearfar.kernels.margin_value import MarginSolution, one_against_rest, solve_margin
from nearfar.parameters import check_parameter, real


class EasyMKL(KernelCombination):
    r"""A sum of kernels in proportion to the distance that each sees between the classes.

    With :math:`\bar K` the mean of the kernels at unit diagonal, first the distributions γ over the
    points of each class that are nearest to one another,

    .. math:: \min_\gamma\; (1 - \lambda)\, \gamma^T Y \bar K Y \gamma + \lambda |\gamma|^2,
        \qquad \gamma \ge 0,\; \sum_{y_i = 1} \gamma_i = \sum_{y_i = -1} \gamma_i = 1,

    then :math:`\mu_i \propto \gamma^T Y K_i Y \gamma`. Of more than two classes, the distances of
    each to the rest are added.

    Use it for many kernels, hundreds of views or one for each feature: after one program, each
    costs one product with a vector, and no weight becomes exactly 0. The kernels are divided by the
    roots of their diagonals, for new points too.

    Cost: O(m n²) for m kernels of n rows, and one program; O(m n) for the kernel values of a new
    point. It keeps the training points, and a few matrices of n×n while it fits.

    Parameters
    ----------
    kernels : "auto", "features" or list, default="auto"
        The base kernels. "auto" is linear, polynomials of degree 2 and 3, and rbf at seven widths
        about the median of the distances; "features" is one rbf for each feature. A list has names
        ("linear", "poly", "rbf", "laplacian", "cosine") and pairs such as ``("rbf", {"gamma": 0.1,
        "columns": [0, 1]})``, with columns by index or name; see ``nearfar.kernels.BaseKernels``.
    lam : float, default=0.1
        λ from 0 (the nearest points of the classes) to 1 (their means).
    n_directions : int, "auto" or None, default="auto"
        Leading directions of kernel PCA. "auto" is a tenth of the rows, from 10 to 50; None is all
        that are not empty: distances after the map are then those of the kernel.

    Attributes
    ----------
    weights_ : ndarray of shape (n_kernels,)
        Of the kernels at unit diagonal, of sum 1.
    shares_ : ndarray of shape (n_kernels,)
        What each kernel has of the trace of the sum; these can be compared.
    kernel_names_ : list of str
        What the kernels are called.
    objective_ : float
        Of the program above; of more than two classes the sum of all programs.
    bound_ : float
        No distributions have less.
    duality_gap_ : float
        The objective less the bound, relative to the objective.
    n_directions_ : int
        Directions used.
    transduction_ : ndarray of shape (n_others,)
        Labels of the rows in ``unlabeled``, if there were any.

    See Also
    --------
    AlignmentKernelLearner, MarginKernelLearner, MKLClassifier

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
    parameters: ClassVar = {**COMBINATION_PARAMETERS, "lam": [real(0, 1)]}
    unit_diagonal = True

    objective_: float
    bound_: float
    duality_gap_: float

    def __init__(
        self,
        kernels: Any = "auto",
        *,
        lam: float = 0.1,
        n_directions: int | Literal["auto"] | None = "auto",
    ) -> None:
        self.kernels = kernels
        self.lam = lam
        self.n_directions = n_directions

    @staticmethod
    def weights_of(kernels: Kernels | KernelSet, y: ArrayLike, lam: float = 0.1) -> Vector:
        """Weights of kernel matrices: :func:`nearfar.kernels.easy_mkl_weights`.

        Parameters
        ----------
        kernels : sequence of (n, n) arrays, (m, n, n) array, or function of an index
            The base kernels, which are brought to unit diagonal.
        y : array-like of shape (n_labelled,)
            Labels of the first points.
        lam : float, default=0.1
            λ from 0 to 1.

        Returns
        -------
        ndarray of shape (n_kernels,)
            Not negative, of sum 1.
        """
        return easy_mkl_weights(kernels, y, lam)

    def _weigh(self, kernels: KernelSet, codes: NDArray[np.intp]) -> Vector:
        found = _solve(kernels, one_against_rest(codes), float(self.lam))
        self.objective_, self.bound_ = found.objective, found.bound
        self.duality_gap_ = (found.objective - found.bound) / max(found.objective, 1e-300)
        return found.weights


def easy_mkl_weights(kernels: Kernels | KernelSet, y: ArrayLike, lam: float = 0.1) -> Vector:
    r"""Weights of kernels in proportion to the distance that each sees between the classes.

    With :math:`\bar K` the mean of the kernels at unit diagonal, first the distributions γ over the
    points of each class that are nearest to one another,

    .. math:: \min_\gamma\; (1 - \lambda)\, \gamma^T Y \bar K Y \gamma + \lambda |\gamma|^2, \qquad
        \gamma \ge 0,\; \sum_{y_i = 1} \gamma_i = \sum_{y_i = -1} \gamma_i = 1,

    then :math:`\mu_i \propto \gamma^T Y K_i Y \gamma`. The nearest points of hulls are those of a
    support vector machine of squared hinges with :math:`\tau = \lambda / (1 - \lambda)`.

    Use it for many kernels: after one machine, each costs one product with a vector.

    Parameters
    ----------
    kernels : sequence of (n, n) arrays, (m, n, n) array, or function of an index
        The base kernels. They are brought to unit diagonal,
        :math:`K_{ij} / \sqrt{K_{ii} K_{jj}}`, and the weights are for these; a point whose own
        entry is 0 has 0 with all.
    y : array-like of shape (n_labelled,)
        Labels of the first points. Of more than two classes, the distances of each to the rest are
        added.
    lam : float, default=0.1
        λ from 0 (the nearest points) to 1 (the means of the classes).

    Returns
    -------
    ndarray of shape (n_kernels,)
        Not negative, of sum 1.

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
    check_parameter("easy_mkl_weights", "lam", lam, [real(0, 1)])
    signs = one_against_rest(y)
    return _solve(unit_diagonal(kernel_set(kernels, signs.shape[1])), signs, lam).weights


class _Found(NamedTuple):
    """Weights of sum 1, the objective of the distributions they come from, and a bound of it."""

    weights: Vector
    objective: float
    bound: float


def _solve(base: KernelSet, signs: Matrix, lam: float) -> _Found:
    """Weights of kernels at unit diagonal."""
    n = signs.shape[1]
    if lam == 1:
        gammas = np.array([_uniform(sign) for sign in signs])
        objective = bound = float(np.sum(gammas**2))
    else:
        mean = base.weighted(np.full(base.n_kernels, 1 / base.n_kernels), n)
        found = [solve_margin(mean, sign, None, lam / (1 - lam)) for sign in signs]
        if not all(np.isfinite(solution.value) for solution in found):
            raise ValueError(
                "lam=0 asks for the nearest points of classes, and their hulls meet in the mean "
                "kernel; give a lam above 0."
            )
        gammas = np.array([2 * solution.alpha / solution.alpha.sum() for solution in found])
        objective = (1 - lam) * sum(_of_hulls(solution) for solution in found)
        # The margin functional is 4 over the squared distance of the hulls.
        bound = min(objective, (1 - lam) * sum(4 / solution.value for solution in found))
    weights = np.maximum(base.forms((signs * gammas).T).sum(axis=1), 0)
    # Squared distances of means of unit vectors: the rounding of sums that cancel is below this.
    if not weights.max() > 16 * np.finfo(float).eps * len(signs):
        raise ValueError("kernels: in none of them the classes of y differ.")
    return _Found(np.asarray(weights / weights.sum()), float(objective), float(bound))


def _of_hulls(solution: MarginSolution) -> float:
    """The quadratic form, with the ridge, of multipliers scaled to sum 1 in each class."""
    total = float(solution.alpha.sum())
    return 4 * (2 * total - solution.bound) / total**2


def unit_diagonal(kernels: KernelSet) -> KernelSet:
    """The kernels over the roots of their diagonals; themselves, where these are 1."""
    diagonals = kernels.diagonals()
    if np.abs(diagonals - 1).max() <= 1e-12:
        return kernels
    return _UnitDiagonal(kernels, diagonals)


class _UnitDiagonal(KernelSet):
    """Kernels scaled row by row as they are read."""

    def __init__(self, kernels: KernelSet, diagonals: Matrix) -> None:
        self.kernels, self.by_rows = kernels, kernels.by_rows
        self.n_kernels, self.n_points = kernels.n_kernels, kernels.n_points
        positive = diagonals > 0
        self.factors = np.where(positive, 1 / np.sqrt(np.where(positive, diagonals, 1.0)), 0.0)

    def rows(self, i: int, block: slice) -> NDArray[np.floating[Any]]:
        rows = self.kernels.rows(i, block) * self.factors[i]
        rows *= self.factors[i, block, None]
        return rows


def _uniform(sign: Vector) -> Vector:
    return np.where(sign > 0, 1 / (sign > 0).sum(), 1 / (sign < 0).sum())
