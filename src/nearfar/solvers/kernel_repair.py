"""Kernels of dissimilarities, their widths, and the repair of those that are indefinite."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.parameters import check_parameter, integer, none, one_of, real
from nearfar.solvers.spectral_step import compute_negative_share


def exponential_kernel(D: ArrayLike, width: float | None = None) -> Matrix:
    r"""The kernel :math:`K_{ij} = \exp(-D_{ij} / \sigma)` of dissimilarities.

    With D from :func:`~nearfar.distributions.dissimilarity` these are the kernels :math:`K_J, K_B,
    K_H, K_R, K_{JR}, K_{BR}` of the works, for ``SVC(kernel="precomputed")`` or spectral
    clustering. At every width only :math:`K_H` is positive semi-definite for certain (and that of
    "mean"); :math:`K_B` is at σ = 1, its width in the works. The others need not be: see
    :func:`repair_kernel`.

    Parameters
    ----------
    D : array-like of shape (n, m)
        Dissimilarities, finite and not negative; of new objects to old ones, for instance.
    width : float, default=None
        σ, above 0. By default the median of D, which must then be that of one set of objects with
        itself; for new objects give the width of the old.

    Returns
    -------
    ndarray of shape (n, m)

    Examples
    --------
    >>> from nearfar.distributions import exponential_kernel
    >>> exponential_kernel([[0.0, 2.0], [2.0, 0.0]], width=2.0).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    """
    values = checked_dissimilarities(D)
    check_parameter("exponential_kernel", "width", width, [none, real(0, open_low=True)])
    if width is None:
        if values.shape[0] != values.shape[1] or values.diagonal().any():
            raise ValueError(
                "width=None takes the median of a square D with zero diagonal; got one of shape "
                f"{values.shape}. Give the width that the training kernel has."
            )
        width = quantile_width(values)
    return np.asarray(np.exp(values / -width))


def quantile_width(
    D: ArrayLike,
    q: float = 0.5,
    *,
    n_pairs: int | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> float:
    """A width for the kernel: a quantile of the dissimilarities of different objects.

    Each dissimilarity needs its own, since they differ in scale; 0.1, 0.5 and 0.9 are what to try.

    Parameters
    ----------
    D : array-like of shape (n, n) or (n, m)
        Dissimilarities. The diagonal of a square D that is zero there is left out.
    q : float from 0 to 1, default=0.5
        Which quantile.
    n_pairs : int, default=None
        Take so many random pairs (1000 are customary) rather than all.
    random_state : int, RandomState instance or None, default=None
        The seed for them.

    Returns
    -------
    float
        Above 0.

    Examples
    --------
    >>> from nearfar.distributions import quantile_width
    >>> quantile_width([[0, 1, 2], [1, 0, 4], [2, 4, 0]])
    2.0
    """
    values = checked_dissimilarities(D)
    check_parameter("quantile_width", "q", q, [real(0, 1)])
    check_parameter("quantile_width", "n_pairs", n_pairs, [none, integer(1)])
    n, m = values.shape
    if n == m and not values.diagonal().any():
        if n < 2:
            raise ValueError("D is of one object; there is no pair to take a width from.")
        # Without the diagonal, each row of the rest is one longer than the matrix.
        values = values.reshape(-1)[1:].reshape(n - 1, n + 1)[:, :-1]
    pairs = values.reshape(-1)
    if n_pairs is not None:
        pairs = pairs[check_random_state(random_state).randint(len(pairs), size=n_pairs)]
    width = float(np.quantile(pairs, q))
    if not width > 0:
        raise ValueError(
            f"The {q:g} quantile of D is 0: so many objects are the same. Take a higher q, or give "
            "a width."
        )
    return width


@dataclass(frozen=True)
class KernelRepair:
    """A kernel made positive semi-definite, and what it took.

    Attributes
    ----------
    kernel : ndarray of shape (n, n)
        The repaired kernel.
    method : {"clip", "shift"}
        How.
    smallest_eigenvalue : float
        Of the kernel before.
    negative_share : float
        The share of its negative eigenvalues, by absolute value.
    change : float
        The Frobenius norm of what was added, relative to that of the kernel before.
    """

    kernel: Matrix
    method: str
    smallest_eigenvalue: float
    negative_share: float
    change: float
    _projection: Matrix | None = field(repr=False)

    def rows(self, K: ArrayLike) -> Matrix:
        """The rows of new objects, shape (m, n), changed as those of the kernel were.

        A training object gets its row of the repaired kernel by "clip". By "shift" only the
        diagonal has changed: the rows of new objects stay as they are.

        Parameters
        ----------
        K : array-like of shape (m, n)
            The kernel of new objects (rows) with the training ones.
        """
        values = np.asarray(K, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.kernel):
            raise ValueError(
                f"K must have shape (m, {len(self.kernel)}), new objects by training objects; got "
                f"{values.shape}."
            )
        return values.copy() if self._projection is None else values @ self._projection


def repair_kernel(K: ArrayLike, method: Literal["clip", "shift"] = "clip") -> KernelRepair:
    r"""A positive semi-definite kernel near a symmetric matrix.

    With :math:`K = V \Lambda V^T`: "clip" sets negative eigenvalues to zero, which gives the
    nearest one in the Frobenius norm; "shift" adds :math:`-\lambda_{min} I`, which keeps all
    entries off the diagonal.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Symmetric.
    method : {"clip", "shift"}, default="clip"
        As above.

    Returns
    -------
    KernelRepair
        With K itself if nothing is negative but for rounding.

    Notes
    -----
    Cost: :math:`O(n^3)`.

    Examples
    --------
    >>> from nearfar.distributions import repair_kernel
    >>> repair = repair_kernel([[1.0, 2.0], [2.0, 1.0]])
    >>> repair.kernel
    array([[1.5, 1.5],
           [1.5, 1.5]])
    >>> repair.smallest_eigenvalue, repair.negative_share
    (-1.0, 0.25)
    """
    check_parameter("repair_kernel", "method", method, [one_of("clip", "shift")])
    values = np.asarray(K, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not len(values):
        raise ValueError(f"K must be a square matrix; got shape {values.shape}.")
    _refuse_asymmetric(values, "K")
    eigenvalues, V = linalg.eigh(values)
    smallest = float(eigenvalues[0])
    mass = compute_negative_share(eigenvalues) if values.any() else 0.0
    if mass == 0:
        return KernelRepair(values.copy(), method, smallest, 0.0, 0.0, None)
    projection = None
    if method == "shift":
        kernel = values.copy()
        kernel[np.diag_indices_from(kernel)] -= smallest
    else:
        good = V[:, eigenvalues > 0]
        projection = good @ good.T
        kernel = (good * eigenvalues[eigenvalues > 0]) @ good.T
        kernel = (kernel + kernel.T) / 2
    change = float(np.linalg.norm(kernel - values) / np.linalg.norm(values))
    return KernelRepair(kernel, method, smallest, mass, change, projection)


# ---------------------------------------------------------------------- checks


def checked_dissimilarities(D: ArrayLike, name: str = "D", *, square: bool = False) -> Matrix:
    """D as a matrix of finite numbers that are not negative."""
    try:
        values = np.asarray(D, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a matrix of numbers.") from None
    if values.ndim != 2 or not values.size:
        raise ValueError(f"{name} must be a matrix of dissimilarities; got shape {values.shape}.")
    if square and values.shape[0] != values.shape[1]:
        raise ValueError(f"{name} must be square; got shape {values.shape}.")
    for bad, what in ((~np.isfinite(values), "finite"), (values < 0, "at least 0")):
        if bad.any():
            i, j = np.unravel_index(np.argmax(bad), bad.shape)
            raise ValueError(f"{name} must be {what}; {name}[{i}, {j}] is {values[i, j]}.")
    return values


def checked_square(D: ArrayLike) -> Matrix:
    """D as a symmetric matrix of dissimilarities with zero diagonal."""
    values = checked_dissimilarities(D, square=True)
    if values.diagonal().any():
        k = int(np.argmax(values.diagonal() != 0))
        raise ValueError(f"The diagonal of D must be 0; D[{k}, {k}] is {values[k, k]}.")
    _refuse_asymmetric(values, "D", 1e-5 if getattr(D, "dtype", None) == np.float32 else 1e-8)
    return values


def _refuse_asymmetric(values: Matrix, name: str, rounding: float = 1e-8) -> None:
    gap = np.abs(values - values.T)
    if not gap.max() <= rounding * np.abs(values).max():
        i, j = np.unravel_index(np.argmax(gap), gap.shape)
        raise ValueError(
            f"{name} must be symmetric; {name}[{i}, {j}] is {values[i, j]} and {name}[{j}, {i}] is "
            f"{values[j, i]}."
        )
