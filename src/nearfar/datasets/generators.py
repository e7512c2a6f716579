"""Synthetic classification datasets, some of them from D. Tao's thesis (2006)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nearfar.arrays import Matrix

Labels = NDArray[np.int64]
Seed = int | np.random.Generator | None

# Pairs of variances for the five-class model: first of the loadings, then of the noise.
_VARIANCES = {"literal": (5.0, 2.0), "calibrated": (0.25, 5.0)}


def make_five_classes(
    n_train: int = 200,
    n_test: int = 200,
    *,
    variances: Literal["calibrated", "literal"] | tuple[float, float] = "calibrated",
    random_state: Seed = None,
) -> tuple[Matrix, Labels, Matrix, Labels]:
    r"""Generate five Gaussian classes in 20 dimensions with unequal random covariances.

    A row of class i is

    .. math:: x = T_i z + m_i + \epsilon, \qquad z \sim N(0, I_7),

    with random loadings :math:`T_i` (20×7) per class and white noise :math:`\epsilon`. The means
    follow [1]_, with one standard normal number g per class. Coordinates that are not listed are
    0.

    =====  =================================================================
    Class  Mean
    =====  =================================================================
    1      2g + 4 in all coordinates
    2      0
    3      2g - 4 in the last ten coordinates
    4      2g + 4 in the first ten coordinates
    5      2g + 4 in coordinates 1 to 5 and 11 to 15
    =====  =================================================================

    Parameters
    ----------
    n_train, n_test : int, default=200
        Number of training and test rows per class.
    variances : {"calibrated", "literal"} or two floats, default="calibrated"
        Variances of the entries of the loadings and of the noise: 0.25 and 5 for "calibrated", 5
        and 2 for "literal". See Notes.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    X, y, X_test, y_test : ndarrays
        Training and test rows ordered by class, with labels 0 to 4.

    Notes
    -----
    The variances of "literal" are those printed in [1]_, but they do not reproduce its tables. The
    variances of "calibrated" were chosen so that LDA has the published errors.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.7.

    Examples
    --------
    >>> from nearfar.datasets import make_five_classes
    >>> X, y, X_test, y_test = make_five_classes(random_state=0)
    >>> X.shape, X_test.shape
    ((1000, 20), (1000, 20))
    """
    if isinstance(variances, str) and variances not in _VARIANCES:
        raise ValueError(
            f"variances must be 'calibrated', 'literal' or two numbers; got {variances!r}."
        )
    loading, noise = _VARIANCES[variances] if isinstance(variances, str) else variances
    random = np.random.default_rng(random_state)
    support = np.zeros((5, 20))
    support[0] = 1
    support[2, 10:] = 1
    support[3, :10] = 1
    support[4, :5] = support[4, 10:15] = 1
    offsets = np.array([4.0, 4.0, -4.0, 4.0, 4.0])
    levels = 2 * random.normal(size=5) + offsets
    n = n_train + n_test
    rows = np.empty((5, n, 20))
    for i in range(5):
        T = np.sqrt(loading) * random.normal(size=(20, 7))
        rows[i] = random.normal(size=(n, 7)) @ T.T + levels[i] * support[i]
        rows[i] += np.sqrt(noise) * random.normal(size=(n, 20))
    train, test = rows[:, :n_train].reshape(-1, 20), rows[:, n_train:].reshape(-1, 20)
    return train, np.repeat(np.arange(5), n_train), test, np.repeat(np.arange(5), n_test)


def make_unequal_covariances(
    n_per_class: int = 500, *, random_state: Seed = None
) -> tuple[Matrix, Labels]:
    """Generate two Gaussian classes with the same mean: a circle and an ellipse rotated by 30°.

    The class means do not differ, so LDA finds no useful direction. The best single direction is
    the long axis of the ellipse, with 23.9% error. The data imitates figure 2.4 of [1]_, which
    does not give the parameters of its classes.

    Parameters
    ----------
    n_per_class : int, default=500
        Number of rows per class.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    X : ndarray of shape (2 * n_per_class, 2)
        Rows ordered by class.
    y : ndarray of shape (2 * n_per_class,)
        Labels 0 and 1.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.6.

    Examples
    --------
    >>> from nearfar.datasets import make_unequal_covariances
    >>> make_unequal_covariances()[0].shape
    (1000, 2)
    """
    angle = np.pi / 6
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    ellipse = rotation @ np.diag([11.13, 1.0]) @ rotation.T
    return _draw_gaussians(
        np.zeros((2, 2)), [np.eye(2), ellipse], [0, 1], n_per_class, random_state
    )


def make_multimodal(n_per_cluster: int = 30, *, random_state: Seed = None) -> tuple[Matrix, Labels]:
    """Generate two classes of two round Gaussian clusters each, as in figure 2.6 of [1]_.

    The clusters of the first class are to the left and to the right of those of the second, which
    are above each other. A model with one Gaussian per class does not describe this structure.

    Parameters
    ----------
    n_per_cluster : int, default=30
        Number of rows in each of the four clusters.
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    X : ndarray of shape (4 * n_per_cluster, 2)
        Rows ordered by cluster.
    y : ndarray of shape (4 * n_per_cluster,)
        Labels 0 and 1.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.6.

    Examples
    --------
    >>> from nearfar.datasets import make_multimodal
    >>> make_multimodal()[0].shape
    (120, 2)
    """
    means = [[-7, 0], [7, 0], [0, 2], [0, 6]]
    return _draw_gaussians(means, 4 * [np.eye(2)], [0, 0, 1, 1], n_per_cluster, random_state)


def make_class_separation(
    n_per_class: int = 100, *, equal_covariances: bool = True, random_state: Seed = None
) -> tuple[Matrix, Labels]:
    """Generate two close Gaussian classes and a distant one, as in figures 2.7 and 2.8 of [1]_.

    A one-dimensional LDA projection separates the distant class and merges the two close ones.

    Parameters
    ----------
    n_per_class : int, default=100
        Number of rows per class.
    equal_covariances : bool, default=True
        If True, all covariances are the identity (figure 2.7). If False, each class has a different
        covariance (figure 2.8).
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    X : ndarray of shape (3 * n_per_class, 2)
        Rows ordered by class.
    y : ndarray of shape (3 * n_per_class,)
        Labels 0 to 2. The distant class is 2.

    References
    ----------
    .. [1] D. Tao, "Discriminative Linear and Multilinear Subspace Methods", 2006,
       section 2.6.

    Examples
    --------
    >>> from nearfar.datasets import make_class_separation
    >>> make_class_separation()[0].shape
    (300, 2)
    """
    if equal_covariances:
        means = [[0.0, -2.2], [0.0, 2.2], [12.0, 0.0]]
        return _draw_gaussians(means, 3 * [np.eye(2)], [0, 1, 2], n_per_class, random_state)
    means = [[0.0, -2.2], [0.0, 2.2], [6.5, 0.15]]
    shapes = [
        [[1.0, 0.0], [0.0, 1.1]],
        [[4.1, -2.6], [-2.6, 2.2]],
        [[1.3, 1.2], [1.2, 2.05]],
    ]
    return _draw_gaussians(means, shapes, [0, 1, 2], n_per_class, random_state)


def make_few_relevant(
    problem: Literal["ring", "noise"] = "ring",
    *,
    n_samples: int = 200,
    n_features: int | None = None,
    random_state: Seed = None,
) -> tuple[Matrix, Labels]:
    """Generate two classes that depend on the first two features only; the others are noise.

    All features are drawn from a standard normal distribution.

    - "ring": the second class has :math:`x_0^2 + x_1^2 > 1.4`. Which of the two features is more
      relevant changes along the boundary.
    - "noise": the classes are equally likely. They are shifted in opposite directions by 1.5 along
      the first feature and by 0.8 along the second.

    Parameters
    ----------
    problem : {"ring", "noise"}, default="ring"
        Shape of the classes.
    n_samples : int, default=200
        Number of rows.
    n_features : int or None, default=None
        Number of features, at least 2. None means 6 for "ring" and 10 for "noise".
    random_state : int, Generator or None, default=None
        Seed or random number generator.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The rows.
    y : ndarray of shape (n_samples,)
        Labels 0 and 1.

    Examples
    --------
    >>> from nearfar.datasets import make_few_relevant
    >>> X, y = make_few_relevant("ring", n_samples=100, random_state=0)
    >>> X.shape
    (100, 6)
    """
    default_widths = {"ring": 6, "noise": 10}
    if problem not in default_widths:
        raise ValueError(f"problem must be 'ring' or 'noise'; got {problem!r}.")
    p = default_widths[problem] if n_features is None else n_features
    if p < 2:
        raise ValueError(f"n_features must be at least 2; got {n_features!r}.")
    random = np.random.default_rng(random_state)
    X = random.standard_normal((n_samples, p))
    if problem == "ring":
        return X, ((X[:, :2] ** 2).sum(axis=1) > 1.4).astype(np.int64)
    y = random.integers(2, size=n_samples)
    X[:, :2] += np.where(y, 1, -1)[:, None] * [1.5, 0.8]
    return X, y


def _draw_gaussians(
    means: ArrayLike,
    covariances: Sequence[Any],
    labels: Sequence[int],
    n_per_cluster: int,
    random_state: Seed,
) -> tuple[Matrix, Labels]:
    random = np.random.default_rng(random_state)
    rows = [
        mean + random.normal(size=(n_per_cluster, len(mean))) @ np.linalg.cholesky(covariance).T
        for mean, covariance in zip(np.asarray(means, dtype=float), covariances, strict=True)
    ]
    return np.concatenate(rows), np.repeat(np.asarray(labels, dtype=np.int64), n_per_cluster)
