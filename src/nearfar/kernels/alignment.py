"""Alignment of two kernels, and of a kernel with labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.kernels.kernel_set import MatrixKernels, as_matrix
from nearfar.labels import encode_labels


def alignment(K: ArrayLike, L: ArrayLike, centered: bool = False) -> float:
    r"""Return the alignment of two kernels, :math:`\langle K, L \rangle_F / (\|K\|_F \|L\|_F)`.

    This is the cosine of the angle between the matrices. It is between -1 and 1, and between 0 and
    1 if both matrices are positive semi-definite. It does not depend on their scales.

    Parameters
    ----------
    K, L : array-like of shape (n, n)
        Symmetric matrices.
    centered : bool, default=False
        Center both kernels first. Without centering, kernels with only positive entries always
        have a large alignment, and the alignment with labels depends on the class sizes.

    Returns
    -------
    float

    Notes
    -----
    Cost: O(n²), in blocks of rows. If the feature vectors have unit norm, the alignment of a sample
    of n points differs from that of the distribution by at most
    :math:`O(\sqrt{\log(1/\delta)/n})`, with probability :math:`1 - \delta`.

    References
    ----------
    .. [1] N. Cristianini et al., "On kernel-target alignment",
       NIPS 2001.
    .. [2] C. Cortes, M. Mohri and A. Rostamizadeh, "Algorithms for learning kernels based on
       centered alignment", JMLR 13, 2012.

    Examples
    --------
    >>> from nearfar.kernels import alignment
    >>> alignment([[1, 0], [0, 1]], [[1, 1], [1, 1]])
    0.7071067811865475
    """
    pair = [as_matrix(K, "K"), as_matrix(L, "L")]
    if pair[0].shape != pair[1].shape:
        raise ValueError(
            f"K and L must have the same shape; got {pair[0].shape} and {pair[1].shape}."
        )
    return _compute_cosine(MatrixKernels(pair).compute_grams(centered), centered)


def center_kernel(K: ArrayLike) -> Matrix:
    r"""Return the kernel of centered features, :math:`HKH` with :math:`H = I - \tfrac1n ee^T`.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Kernel matrix.

    Returns
    -------
    ndarray of shape (n, n)

    Examples
    --------
    >>> from nearfar.kernels import center_kernel
    >>> center_kernel([[1.0, 0.0], [0.0, 1.0]])
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    values = np.array(as_matrix(K, "K"), dtype=np.float64)
    _check_finite(values)
    values -= values.mean(axis=0)
    values -= values.mean(axis=1)[:, None]
    return values


def target_kernel(y: ArrayLike) -> Matrix:
    r"""Return the target kernel: 1 within a class and :math:`-1/(J-1)` between classes (J classes).

    For two classes it is :math:`yy^T` with labels 1 and -1. In general, it contains the inner
    products of the corners of a regular simplex centered at zero.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels.

    Returns
    -------
    ndarray of shape (n, n)

    Examples
    --------
    >>> from nearfar.kernels import target_kernel
    >>> target_kernel(["a", "b", "c"])
    array([[ 1. , -0.5, -0.5],
           [-0.5,  1. , -0.5],
           [-0.5, -0.5,  1. ]])
    """
    classes, codes = encode_classes(y)
    return np.where(codes[:, None] == codes, 1.0, -1 / (classes - 1))


def target_alignment(K: ArrayLike, y: ArrayLike, centered: bool = False) -> float:
    r"""Return the :func:`alignment` of a kernel with the :func:`target_kernel` of labels.

    For two classes it is :math:`y^T K y / (n \|K\|_F)`.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Symmetric matrix.
    y : array-like of shape (n,)
        Class labels.
    centered : bool, default=False
        Center both kernels first. Recommended if the classes have unequal sizes.

    Returns
    -------
    float

    Examples
    --------
    >>> from nearfar.kernels import target_alignment
    >>> round(target_alignment([[1, 0], [0, 1]], [0, 1]), 4)
    0.7071
    """
    matrix = as_matrix(K, "K")
    F = compute_target_factor(y, centered)
    if len(F) != len(matrix):
        raise ValueError(
            f"y must have one label per point of K; got {len(F)} labels and {len(matrix)} points."
        )
    kernels = MatrixKernels([matrix])
    product = float(kernels.compute_forms(F).sum())
    target = float(np.sum((F.T @ F) ** 2))
    gram = np.array([[kernels.compute_grams(centered)[0, 0], product], [product, target]])
    return _compute_cosine(gram, centered)


def encode_classes(y: ArrayLike) -> tuple[int, np.ndarray]:
    """Return the number of classes and the class index of each row.

    Raises a ValueError if y has fewer than 2 classes.
    """
    classes, codes = encode_labels(y)
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes; all labels are {classes.tolist()[0]!r}.")
    return len(classes), codes


def compute_target_factor(y: ArrayLike, centered: bool) -> Matrix:
    """Return a matrix F such that F F' is the target kernel.

    With ``centered=True``, F is centered.
    """
    J, codes = encode_classes(y)
    if J == 2:
        F = np.where(codes == 1, 1.0, -1.0)[:, None]
    else:
        # The row of a point of class c is sqrt(J/(J-1)) (e_c - 1/J). Inner products of these rows
        # are 1 within a class and -1/(J-1) between classes.
        F = np.sqrt(J / (J - 1)) * (np.eye(J) - 1 / J)[codes]
    return F - F.mean(axis=0) if centered else F


def _compute_cosine(gram: Matrix, centered: bool) -> float:
    _check_finite(gram)
    for k, name in enumerate("KL"):
        if not gram[k, k] > 0:
            raise ValueError(
                f"{name} {'is constant, so the centered matrix' if centered else ''} is zero. Its "
                "alignment is not defined.".replace("  ", " ")
            )
    return float(np.clip(gram[0, 1] / np.sqrt(gram[0, 0]) / np.sqrt(gram[1, 1]), -1, 1))


def _check_finite(values: Matrix) -> None:
    if not np.isfinite(values).all():
        raise ValueError(
            "K must be finite, but an entry is NaN, infinite, or too large to be squared."
        )
