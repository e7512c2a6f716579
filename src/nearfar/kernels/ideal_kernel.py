"""The ideal kernel of labels, and kernels that are shifted toward it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from nearfar.arrays import Matrix
from nearfar.kernels.kernel_set import as_kernel
from nearfar.labels import encode_labels
from nearfar.parameters import check_parameter, real


def ideal_kernel(y: ArrayLike) -> Matrix:
    r"""Return the ideal kernel of labels: :math:`K^*_{ij} = 1` if :math:`y_i = y_j`, else 0.

    Parameters
    ----------
    y : array-like of shape (n,)
        Class labels, with any number of classes.

    Returns
    -------
    ndarray of shape (n, n)

    References
    ----------
    .. [1] J. Kwok and I. Tsang, "Learning with idealized kernels",
       ICML 2003.

    Examples
    --------
    >>> from nearfar.kernels import ideal_kernel
    >>> ideal_kernel(["a", "b", "a"])
    array([[1., 0., 1.],
           [0., 1., 0.],
           [1., 0., 1.]])
    """
    codes = encode_labels(y)[1]
    return (codes[:, None] == codes).astype(np.float64)


def idealize(K: ArrayLike, y: ArrayLike, gamma: float) -> Matrix:
    r"""Return the idealized kernel :math:`\hat K = K + \tfrac\gamma2 K^*`.

    Squared distances between points of different classes grow by γ; those within a class do not
    change. For every γ > 0, the alignment with the ideal kernel :math:`K^*` increases, unless K is
    a multiple of it. The idealized kernel is defined only for labeled points.
    :class:`nearfar.IdealizedMetric` learns a metric that extends it to other points.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Kernel matrix, symmetric and positive semi-definite.
    y : array-like of shape (n,)
        Class labels.
    gamma : float
        Nonnegative value γ that is added to squared distances between classes.

    Returns
    -------
    ndarray of shape (n, n)

    References
    ----------
    .. [1] J. Kwok and I. Tsang, "Learning with idealized kernels",
       ICML 2003.
    .. [2] L. Yang, "Distance Metric Learning: A Comprehensive Survey", Michigan State University,
       2006, section 6.4. Its condition on γ always holds, because no kernel has a negative
       Frobenius product with :math:`K^*`.

    Examples
    --------
    >>> from nearfar.kernels import idealize
    >>> idealize([[1.0, 0.5], [0.5, 1.0]], ["a", "b"], gamma=2.0)
    array([[2. , 0.5],
           [0.5, 2. ]])
    """
    check_parameter("idealize", "gamma", gamma, [real(0)])
    kernel, codes = as_kernel(K), encode_labels(y)[1]
    if len(kernel) != len(codes):
        raise ValueError(
            f"y must have one label per point of K; got {len(codes)} labels and {len(kernel)} "
            "points."
        )
    result = kernel.copy()
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        result[np.ix_(rows, rows)] += gamma / 2
    return result
