"""EasyMKL: weights of kernels by the nearest points of the classes' hulls."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Matrix, Vector
from nearfar.kernels.kernel_set import Kernels, KernelSet, kernel_set
from nearfar.kernels.margin_value import one_against_rest, solve_margin
from nearfar.parameters import check_parameter, real


def easy_mkl_weights(kernels: Kernels | KernelSet, y: ArrayLike, lam: float = 0.1) -> Vector:
    r"""Weights of kernels in proportion to the distance that each sees between the classes.

    With :math:`\bar K` the mean of the kernels at unit diagonal, first the distributions γ over the
    points of each class that are nearest to one another,

    .. math:: \min_\gamma\; (1 - \lambda)\, \gamma^T Y \bar K Y \gamma + \lambda |\gamma|^2, \qquad
        \gamma \ge 0,\; \textstyle\sum_{y_i = 1} \gamma_i = \sum_{y_i = -1} \gamma_i = 1,

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
    n = signs.shape[1]
    base = unit_diagonal(kernel_set(kernels, n))
    if lam == 1:
        gammas = np.array([_uniform(sign) for sign in signs])
    else:
        mean = base.weighted(np.full(base.n_kernels, 1 / base.n_kernels), n)
        found = [solve_margin(mean, sign, None, lam / (1 - lam)) for sign in signs]
        if not all(np.isfinite(solution.value) for solution in found):
            raise ValueError(
                "lam=0 asks for the nearest points of classes, and their hulls meet in the mean "
                "kernel; give a lam above 0."
            )
        gammas = np.array([2 * solution.alpha / solution.alpha.sum() for solution in found])
    weights = np.maximum(base.forms((signs * gammas).T).sum(axis=1), 0)
    if not weights.sum() > 0:
        raise ValueError("kernels: in none of them the classes of y differ.")
    return np.asarray(weights / weights.sum())


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
