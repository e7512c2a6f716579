"""Exponential kernels of dissimilarities, their widths, and the repair of indefinite kernels."""

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
    r"""Return the kernel :math:`K_{ij} = \exp(-D_{ij} / \sigma)` of dissimilarities.

    With D from :func:`~nearfar.distributions.dissimilarity` these are the kernels :math:`K_J, K_B,
    K_H, K_R, K_{JR}, K_{BR}` of the literature, for ``SVC(kernel="precomputed")`` or spectral
    clustering. Only :math:`K_H` and the kernel of "mean" are positive semi-definite at every width.
    :math:`K_B` is positive semi-definite at σ = 1, the width used in the literature. The other
    kernels may be indefinite: see :func:`repair_kernel`.

    Parameters
    ----------
    D : array-like of shape (n, m)
        Finite, nonnegative dissimilarities, for example between new objects and training objects.
    width : float, default=None
        The width σ > 0. None uses the median of D. In this case D must contain the dissimilarities
        within one set of objects. For new objects, pass the width of the training kernel.

    Returns
    -------
    ndarray of shape (n, m)
        The kernel.

    Examples
    --------
    >>> from nearfar.distributions import exponential_kernel
    >>> exponential_kernel([[0.0, 2.0], [2.0, 0.0]], width=2.0).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    """
    values = check_dissimilarities(D)
    check_parameter("exponential_kernel", "width", width, [none, real(0, open_low=True)])
    if width is None:
        if values.shape[0] != values.shape[1] or values.diagonal().any():
            raise ValueError(
                "width=None uses the median of D and needs a square D with zero diagonal; got "
                f"shape {values.shape}. Pass the width of the training kernel."
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
    """Return a kernel width: a quantile of the dissimilarities between different objects.

    Dissimilarities differ in scale, so each of them needs a width of its own. The quantiles 0.1,
    0.5 and 0.9 are good candidates.

    Parameters
    ----------
    D : array-like of shape (n, n) or (n, m)
        Dissimilarities. If D is square with a zero diagonal, the diagonal is excluded.
    q : float from 0 to 1, default=0.5
        The quantile.
    n_pairs : int, default=None
        Number of random pairs to use, typically 1000. None uses all pairs.
    random_state : int, RandomState instance or None, default=None
        Seed for the selection of random pairs.

    Returns
    -------
    float
        The width, greater than 0.

    Examples
    --------
    >>> from nearfar.distributions import quantile_width
    >>> quantile_width([[0, 1, 2], [1, 0, 4], [2, 4, 0]])
    2.0
    """
    values = check_dissimilarities(D)
    check_parameter("quantile_width", "q", q, [real(0, 1)])
    check_parameter("quantile_width", "n_pairs", n_pairs, [none, integer(1)])
    n, m = values.shape
    if n == m and not values.diagonal().any():
        if n < 2:
            raise ValueError("D has only one object, but a width needs at least one pair.")
        # Drop the first entry and reshape to rows of n + 1 entries. The last column is then the
        # diagonal.
        values = values.reshape(-1)[1:].reshape(n - 1, n + 1)[:, :-1]
    pairs = values.reshape(-1)
    if n_pairs is not None:
        pairs = pairs[check_random_state(random_state).randint(len(pairs), size=n_pairs)]
    width = float(np.quantile(pairs, q))
    if not width > 0:
        raise ValueError(
            f"The {q:g} quantile of D is 0, because many objects are identical. Use a higher q, or "
            "pass a width."
        )
    return width


@dataclass(frozen=True)
class KernelRepair:
    """A repaired, positive semi-definite kernel, with measures of the change.

    Attributes
    ----------
    kernel : ndarray of shape (n, n)
        The repaired kernel.
    method : {"clip", "shift"}
        The repair method.
    smallest_eigenvalue : float
        Smallest eigenvalue of the original kernel.
    negative_share : float
        Sum of the absolute values of the original kernel's negative eigenvalues, divided by the sum
        over all eigenvalues.
    change : float
        Frobenius norm of the difference between repaired and original kernel, divided by the norm
        of the original kernel.
    """

    kernel: Matrix
    method: str
    smallest_eigenvalue: float
    negative_share: float
    change: float
    _projection: Matrix | None = field(repr=False)

    def rows(self, K: ArrayLike) -> Matrix:
        """Apply the repair to the kernel rows of new objects. Returns shape (m, n).

        With "clip", the row of a training object becomes its row of the repaired kernel. "shift"
        changes only the diagonal, so the rows of new objects are returned unchanged.

        Parameters
        ----------
        K : array-like of shape (m, n)
            Kernel between new objects (rows) and training objects (columns).
        """
        values = np.asarray(K, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.kernel):
            raise ValueError(
                f"K must have shape (m, {len(self.kernel)}): new objects × training objects; got "
                f"{values.shape}."
            )
        return values.copy() if self._projection is None else values @ self._projection


def repair_kernel(K: ArrayLike, method: Literal["clip", "shift"] = "clip") -> KernelRepair:
    r"""Return a positive semi-definite kernel close to a symmetric matrix.

    For :math:`K = V \Lambda V^T`, "clip" sets negative eigenvalues to zero. The result is the
    nearest positive semi-definite matrix in the Frobenius norm. "shift" adds
    :math:`-\lambda_{min} I`, which does not change entries off the diagonal.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Symmetric matrix.
    method : {"clip", "shift"}, default="clip"
        Repair method: "clip" sets negative eigenvalues to zero, "shift" adds a constant to all
        eigenvalues.

    Returns
    -------
    KernelRepair
        The repaired kernel, which is K itself if no eigenvalue is negative beyond rounding.

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
    _check_symmetric(values, "K")
    eigenvalues, V = linalg.eigh(values)
    smallest_eigenvalue = float(eigenvalues[0])
    negative_share = compute_negative_share(eigenvalues) if values.any() else 0.0
    if negative_share == 0:
        return KernelRepair(values.copy(), method, smallest_eigenvalue, 0.0, 0.0, None)
    projection = None
    if method == "shift":
        kernel = values.copy()
        kernel[np.diag_indices_from(kernel)] -= smallest_eigenvalue
    else:
        positive_vectors = V[:, eigenvalues > 0]
        projection = positive_vectors @ positive_vectors.T
        kernel = (positive_vectors * eigenvalues[eigenvalues > 0]) @ positive_vectors.T
        kernel = (kernel + kernel.T) / 2
    change = float(np.linalg.norm(kernel - values) / np.linalg.norm(values))
    return KernelRepair(kernel, method, smallest_eigenvalue, negative_share, change, projection)


def check_dissimilarities(D: ArrayLike, name: str = "D", *, square: bool = False) -> Matrix:
    """Return D as a matrix of floats. Raise ValueError if an entry is negative or not finite."""
    try:
        values = np.asarray(D, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a matrix of numbers.") from None
    if values.ndim != 2 or not values.size:
        raise ValueError(f"{name} must be a matrix of dissimilarities; got shape {values.shape}.")
    if square and values.shape[0] != values.shape[1]:
        raise ValueError(f"{name} must be square; got shape {values.shape}.")
    for bad, expected in ((~np.isfinite(values), "finite"), (values < 0, "at least 0")):
        if bad.any():
            i, j = np.unravel_index(np.argmax(bad), bad.shape)
            raise ValueError(f"{name} must be {expected}; {name}[{i}, {j}] is {values[i, j]}.")
    return values


def check_square_dissimilarities(D: ArrayLike) -> Matrix:
    """Return D as a matrix of floats, after checks.

    Raise ValueError if D is not symmetric or if its diagonal is not zero.
    """
    values = check_dissimilarities(D, square=True)
    if values.diagonal().any():
        k = int(np.argmax(values.diagonal() != 0))
        raise ValueError(f"The diagonal of D must be 0; D[{k}, {k}] is {values[k, k]}.")
    _check_symmetric(values, "D", 1e-5 if getattr(D, "dtype", None) == np.float32 else 1e-8)
    return values


def _check_symmetric(values: Matrix, name: str, tolerance: float = 1e-8) -> None:
    gap = np.abs(values - values.T)
    if not gap.max() <= tolerance * np.abs(values).max():
        i, j = np.unravel_index(np.argmax(gap), gap.shape)
        raise ValueError(
            f"{name} must be symmetric; {name}[{i}, {j}] is {values[i, j]} and {name}[{j}, {i}] is "
            f"{values[j, i]}."
        )
