"""How alike two kernels are, and how alike a kernel is to the labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.kernels.kernel_set import GivenKernels, as_matrix
from nearfar.labels import encode_labels


def alignment(K: ArrayLike, L: ArrayLike, centered: bool = False) -> float:
    r"""The cosine of two kernels, :math:`\langle K, L \rangle_F / (\|K\|_F \|L\|_F)`.

    From -1 to 1; from 0 to 1 for kernels, that is, positive semi-definite matrices. It does not
    change with the scale of either.

    Parameters
    ----------
    K, L : array-like of shape (n, n)
        Symmetric matrices.
    centered : bool, default=False
        Whether to centre both first. Without it two kernels whose entries are all positive are
        aligned by that alone, and the alignment with labels depends on the sizes of classes.

    Returns
    -------
    float

    Notes
    -----
    O(n²), in blocks of rows. With features of unit norm the alignment of a sample is within
    :math:`O(\sqrt{\log(1/\delta)/n})` of that of the distribution, with probability
    :math:`1 - \delta`.

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
            f"K and L must be of one size; got shapes {pair[0].shape} and {pair[1].shape}."
        )
    return _cosine(GivenKernels(pair).grams(centered), centered)


def center_kernel(K: ArrayLike) -> Matrix:
    r"""The kernel of centred features, :math:`HKH` with :math:`H = I - \tfrac1n ee^T`.

    Parameters
    ----------
    K : array-like of shape (n, n)
        A kernel.

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
    _refuse_infinite(values)
    values -= values.mean(axis=0)
    values -= values.mean(axis=1)[:, None]
    return values


def target_kernel(y: ArrayLike) -> Matrix:
    r"""The kernel that labels would have: 1 within a class, :math:`-1/(J-1)` across J classes.

    For two classes :math:`yy^T` of labels 1 and -1. It is that of the corners of a regular simplex
    about zero.

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels.

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
    classes, codes = target_codes(y)
    return np.where(codes[:, None] == codes, 1.0, -1 / (classes - 1))


def target_alignment(K: ArrayLike, y: ArrayLike, centered: bool = False) -> float:
    r"""The alignment of a kernel with the labels, :func:`alignment` with :func:`target_kernel`.

    For two classes :math:`y^T K y / (n \|K\|_F)`.

    Parameters
    ----------
    K : array-like of shape (n, n)
        A symmetric matrix.
    y : array-like of shape (n,)
        Labels.
    centered : bool, default=False
        Whether to centre both; do so where classes are of unequal size.

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
    F = target_factor(y, centered)
    if len(F) != len(matrix):
        raise ValueError(
            f"y must have a label for each point of K; got {len(F)} labels and {len(matrix)} "
            "points."
        )
    own = GivenKernels([matrix])
    product = float(own.forms(F).sum())
    target = float(np.sum((F.T @ F) ** 2))
    gram = np.array([[own.grams(centered)[0, 0], product], [product, target]])
    return _cosine(gram, centered)


def target_codes(y: ArrayLike) -> tuple[int, np.ndarray]:
    """The number of classes, at least 2, and the class of each row."""
    classes, codes = encode_labels(y)
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes; all labels are {classes.tolist()[0]!r}.")
    return len(classes), codes


def target_factor(y: ArrayLike, centered: bool) -> Matrix:
    """F with the target kernel F F', centred if that is wished; one column for two classes."""
    J, codes = target_codes(y)
    if J == 2:
        F = np.where(codes == 1, 1.0, -1.0)[:, None]
    else:
        # sqrt(J/(J-1)) (e_c - mean): the products are 1 and -1/(J-1).
        F = np.sqrt(J / (J - 1)) * (np.eye(J) - 1 / J)[codes]
    return F - F.mean(axis=0) if centered else F


def _cosine(gram: Matrix, centered: bool) -> float:
    _refuse_infinite(gram)
    for k, name in enumerate("KL"):
        if not gram[k, k] > 0:
            raise ValueError(
                f"{name} {'is constant: centred, it' if centered else ''} is zero, and has no "
                "alignment.".replace("  ", " ")
            )
    return float(np.clip(gram[0, 1] / np.sqrt(gram[0, 0]) / np.sqrt(gram[1, 1]), -1, 1))


def _refuse_infinite(values: Matrix) -> None:
    if not np.isfinite(values).all():
        raise ValueError("K must be finite; an entry is NaN or infinite, or too large to square.")
