"""Classes as Gaussians: means and regular covariances, for methods that compare distributions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Matrix
from nearfar.solvers.gaussian_divergences import GaussianFamily, SigmaDot
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.whitening import NO_WITHIN_SCATTER, Shrinkage, regularized_within

#: Share of the pooled covariance that "auto" mixes into the class covariances if one of them is
#: nearly singular. Less would make them regular, too; but divergences then feed on the noise of
#: their smallest eigenvalues. (Errors of MGMKLD in five dimensions for shares of 0.001, 0.01, 0.1
#: and 0.3: digits .47, .19, .11, .09; USPS .42, .30, .15, .13; LDA has .13 and .17.)
AUTO_CLASS_SHRINKAGE = 0.3
# Nearly singular: an eigenvalue, in units of the pooled covariance, below this.
_NEARLY_SINGULAR = 1e-3
# The same for a user who asks for no shrinkage: singular but for rounding.
_SINGULAR = 1e-10


@dataclass(frozen=True)
class ClassGaussians:
    """The classes of a sample as Gaussians.

    A point x has the coordinates xT, T being the ``basis``, in which the pooled within-class
    covariance is the identity; a subspace U of these coordinates is TU in those of the features.
    ``family`` is in these coordinates; ``priors`` are shares of the total weight; ``shrinkage`` is
    the share of another matrix that was mixed into every covariance.
    """

    basis: Matrix
    family: GaussianFamily
    priors: Matrix
    shrinkage: float

    @property
    def rank(self) -> int:
        """Number of coordinates."""
        return int(self.basis.shape[1])


def class_gaussians(
    statistics: ClassStatistics, shrinkage: Shrinkage, what: str = "class"
) -> ClassGaussians:
    r"""Means and regular covariances of the classes, divisor :math:`n_i`, pooled to the identity.

    With ``shrinkage`` a number g the covariances are :math:`(1-g) \Sigma_i + g\,(tr\,S_w/p)\,I`.
    With "auto" they are used as they are if each of them is regular, with no eigenvalue below 0.001
    in units of :math:`S_w`; else g = 0.3 of :math:`S_w` is mixed into all, which no change of units
    affects. With 0 a singular one raises: the divergence from it is infinite. A class of one row,
    or of copies of one, has no covariance: it gets the pooled one. ``what`` is the word for a class
    in messages.
    """
    B, image, _, W = regularized_within(statistics, shrinkage, standardize=True)
    if not W.size:
        raise ValueError(NO_WITHIN_SCATTER)
    priors = statistics.weights / statistics.total_weight
    if shrinkage == "auto":
        target = np.eye(W.shape[1])
    else:
        level = np.trace(image.within_scatter()) / statistics.total_weight
        target = (level / statistics.n_features) * (W.T @ W)
    image = image.project(W)
    dot: Matrix | SigmaDot
    if is_thin(image):
        g = AUTO_CLASS_SHRINKAGE if shrinkage == "auto" else float(shrinkage)
        if g == 0:
            _raise_singular(statistics, int(np.argmin(statistics.counts)), what)
        dot = thin_dot(image, shrinkage=g, target=target)
    else:
        dot = class_covariances(image)
        g = 0.0 if shrinkage == "auto" else float(shrinkage)
        if g == 0:
            floor = _NEARLY_SINGULAR if shrinkage == "auto" else _SINGULAR
            singular = first_below(dot, floor)
            if singular is not None and shrinkage != "auto":
                _raise_singular(statistics, singular, what)
            g = AUTO_CLASS_SHRINKAGE if singular is not None else 0.0
        dot = (1 - g) * dot + g * target
    # About the common mean, so that an offset of the data costs no digits.
    means = image.between_factor() / np.sqrt(image.weights)[:, None]
    return ClassGaussians(B @ W, GaussianFamily(means, dot), priors, g)


def divisors(weights: Matrix, counts: NDArray[np.int64], ddof: float = 1) -> Matrix:
    """What the scatter sums of classes are divided by: their weights less ddof.

    Weights that are less than one a row are no numbers of rows: nothing is taken off them.
    """
    return np.asarray(weights - ddof * (weights >= counts))


def class_covariances(statistics: ClassStatistics, *, ddof: float | Matrix = 0) -> Matrix:
    """Covariances of all classes, (c, p, p); a class of equal rows gets the pooled one."""
    stack = np.empty((statistics.n_classes, statistics.n_features, statistics.n_features))
    divisors = statistics.weights - ddof
    for k, label in enumerate(statistics.classes.tolist()):
        stack[k] = statistics.scatter(label)
    pooled = stack.sum(axis=0) / statistics.total_weight
    empty = without_scatter(statistics)
    stack[~empty] /= divisors[~empty, None, None]
    stack[empty] = pooled
    return stack


def thin_dot(
    statistics: ClassStatistics,
    *,
    ddof: float | Matrix = 0,
    shrinkage: float = 0.0,
    target: Matrix | None = None,
) -> SigmaDot:
    """The function U → ((1-g) Σ_k + g target) U, (c, p, q), with Σ_k kept as rows.

    A class of equal rows gets the pooled covariance.
    """
    empty = without_scatter(statistics)
    # Centred and scaled once: a search asks for hundreds of products. A class without scatter
    # stays so, whatever it is divided by.
    roots = np.sqrt(np.where(empty, 1.0, statistics.weights - ddof))
    factors = [H / root for H, root in zip(statistics.class_factors(), roots, strict=True)]
    shares = np.where(empty, 0.0, roots**2) / statistics.total_weight

    def dot(U: Matrix) -> Matrix:
        products = np.empty((len(factors), *U.shape))
        for k, H in enumerate(factors):
            products[k] = H.T @ (H @ U)
        if empty.any():
            products[empty] = np.tensordot(shares, products, axes=1)
        if shrinkage:
            products *= 1 - shrinkage
            products += shrinkage * (U if target is None else target @ U)
        return products

    return dot


def without_scatter(statistics: ClassStatistics) -> NDArray[np.bool_]:
    """Which classes have no scatter but rounding: those of one row, or of copies of it."""
    traces = statistics.scatter_traces() / statistics.weights
    return np.asarray(traces <= 1e-12 * traces.max())


def is_thin(statistics: ClassStatistics) -> bool:
    """Whether products with the rows cost less than those with the covariances."""
    return statistics.is_factored and 2 * int(statistics.counts.max()) < statistics.n_features


def first_below(covariances: Matrix, floor: float) -> int | None:
    """The first covariance with an eigenvalue below the floor."""
    shifted = covariances - floor * np.eye(covariances.shape[1])
    try:
        np.linalg.cholesky(shifted)
    except np.linalg.LinAlgError:
        return int(np.argmax(np.linalg.eigvalsh(shifted)[:, 0] <= 0))
    return None


def _raise_singular(statistics: ClassStatistics, k: int, what: str) -> None:
    label, count = statistics.classes.tolist()[k], int(statistics.counts[k])
    raise ValueError(
        f"The covariance of {what} {label!r} ({count} rows, {statistics.n_features} features) is "
        "singular: the divergence from it is infinite. Use shrinkage='auto' or a number above 0."
    )
