"""Synthetic classes of low-rank tensors."""

from __future__ import annotations

import numpy as np
from scipy import linalg

from nearfar.arrays import Matrix
from nearfar.datasets.generators import Labels, Seed


def make_low_rank_tensors(
    n_classes: int = 20,
    n_train: int = 6,
    n_test: int = 6,
    *,
    shape: tuple[int, ...] = (24, 18),
    core: tuple[int, ...] = (4, 3),
    nuisance: float = 0.0,
    noise: float = 0.3,
    random_state: Seed = None,
) -> tuple[Matrix, Labels, Matrix, Labels]:
    r"""Generate noisy tensors in classes whose means are low-rank tensors in a common subspace.

    A sample of class c is

    .. math:: X = C_c \times_1 Q_1 \cdots \times_k Q_k
        + \nu \sum_{l=1}^3 g_l\; u_l^{(1)} \circ \cdots \circ u_l^{(k)} + \sigma E,

    where

    - the core :math:`C_c` has standard normal entries that are drawn per class,
    - the matrices :math:`Q_j` have orthonormal columns and are common to all classes,
    - the :math:`u_l^{(j)}` are random unit vectors, common to all classes, and the standard normal
      weights :math:`g_l` are drawn per sample,
    - E is white noise.

    With few samples per class, a multilinear subspace method can estimate the :math:`Q_j`, whereas
    a method for flattened vectors, with :math:`\prod_j d_j` features, mostly fits the noise.

    Parameters
    ----------
    n_classes : int, default=20
        Number of classes.
    n_train, n_test : int, default=6
        Number of training and test samples per class.
    shape, core : tuple of int, default=(24, 18) and (4, 3)
        Shape of a sample, and shape of the cores. Both have the same length, and each entry of
        `core` is at most the corresponding entry of `shape`.
    nuisance : float, default=0
        The factor :math:`\nu` of the nuisance term. A value of 2 is strong.
    noise : float, default=0.3
        The standard deviation :math:`\sigma` of the noise.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    X, y, X_test, y_test : ndarrays
        Training and test tensors ordered by class, with labels from 0.

    Examples
    --------
    >>> from nearfar.datasets import make_low_rank_tensors
    >>> X, y, X_test, y_test = make_low_rank_tensors(random_state=0)
    >>> X.shape, X_test.shape
    ((120, 24, 18), (120, 24, 18))
    """
    if min(n_classes, n_train) < 1 or n_test < 0:
        raise ValueError(
            f"n_classes={n_classes} and n_train={n_train} must be at least 1, n_test={n_test} at "
            "least 0."
        )
    if (
        not shape
        or len(shape) != len(core)
        or any(not 1 <= q <= d for q, d in zip(core, shape, strict=True))
    ):
        raise ValueError(
            f"core={core} must have as many entries as shape={shape}, each from 1 to the "
            "corresponding entry of shape."
        )
    if not min(nuisance, noise) >= 0:
        raise ValueError(f"nuisance={nuisance} and noise={noise} must be at least 0.")
    random = np.random.default_rng(random_state)
    means = random.normal(size=(n_classes, *core))
    nuisance_tensors = np.ones((3, 1))
    for d, q in zip(shape, core, strict=True):
        Q, _ = linalg.qr(random.normal(size=(d, q)), mode="economic")
        # tensordot moves the first mode of the core to the end. After the loop over all modes, the
        # modes are in the original order.
        means = np.tensordot(means, Q, axes=(1, 1))
        u = random.normal(size=(3, d))
        u /= np.linalg.norm(u, axis=1, keepdims=True)
        nuisance_tensors = (nuisance_tensors[:, :, None] * u[:, None]).reshape(3, -1)
    n = n_train + n_test
    samples = np.repeat(means[:, None], n, axis=1)
    weights = nuisance * random.normal(size=(n_classes, n, 3))
    samples += (weights @ nuisance_tensors).reshape(samples.shape)
    samples += noise * random.normal(size=samples.shape)
    train, test = (tensors.reshape(-1, *shape) for tensors in np.split(samples, [n_train], axis=1))
    labels = np.arange(n_classes)
    return train, np.repeat(labels, n_train), test, np.repeat(labels, n_test)
