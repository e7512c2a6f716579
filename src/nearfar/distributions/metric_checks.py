"""Is it a metric? Triangle inequalities, Euclidean or not, kernel positive definite or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.parameters import check_parameter, integer
from nearfar.solvers.kernel_repair import checked_square, exponential_kernel, quantile_width
from nearfar.solvers.spectral_step import double_centered, share_of_negative
from nearfar.words import count, percent

# An excess over the sum of the two other sides that is rounding, beside the median: roots of
# divergences, the Hellinger distance for one, have half the digits of their squares near zero.
_ROUNDING = 1e-7


@dataclass(frozen=True)
class MetricReport:
    """What :func:`metric_report` found.

    Attributes
    ----------
    n : int
        The number of objects.
    triangle_violations : float
        The share of ordered triples (i, k, j) of distinct objects with D[i, j] > D[i, k] + D[k, j],
        by more than 1e-7 of what is typical, which may be rounding: of n(n - 1)(n - 2), not of n³.
    largest_violation : float
        The largest D[i, j] - D[i, k] - D[k, j]; 0 if there is none above 0.
    worst_triple : tuple of int, or None
        Its (i, k, j).
    n_triples : int
        How many ordered triples were looked at.
    is_exhaustive : bool
        Whether these were all.
    negative_share : float
        The share of negative eigenvalues, by absolute value, in the double-centred matrix
        -½HD²H: 0 if and only if D embeds in a Euclidean space.
    smallest_eigenvalue, largest_eigenvalue : float
        The extreme eigenvalues of that matrix.
    kernel_width : float
        The width σ of the kernel exp(-D/σ).
    kernel_smallest_eigenvalue : float
        Its smallest eigenvalue: the kernel is positive semi-definite at that width if it is not
        below 0 but for rounding.
    """

    n: int
    triangle_violations: float
    largest_violation: float
    worst_triple: tuple[int, int, int] | None
    n_triples: int
    is_exhaustive: bool
    negative_share: float
    smallest_eigenvalue: float
    largest_eigenvalue: float
    kernel_width: float
    kernel_smallest_eigenvalue: float

    @property
    def is_metric(self) -> bool:
        """Whether no triangle inequality was found violated."""
        return self.worst_triple is None

    @property
    def is_euclidean(self) -> bool:
        """Whether there are points with these distances."""
        return self.negative_share == 0

    def __str__(self) -> str:
        looked = "all" if self.is_exhaustive else "a sample of"
        lines = [
            f"{count(self.n, 'object')}; of {looked} {self.n_triples:,} ordered triples "
            f"{percent(self.triangle_violations)} violate the triangle inequality"
        ]
        if self.worst_triple is not None:
            i, k, j = self.worst_triple
            lines.append(
                f"worst: D[{i}, {j}] exceeds D[{i}, {k}] + D[{k}, {j}] by "
                f"{self.largest_violation:.4g}"
            )
        lines.append(
            f"negative mass of the double-centred matrix: {percent(self.negative_share)}"
            + (" (Euclidean)" if self.is_euclidean else "")
        )
        lines.append(
            f"smallest eigenvalue of exp(-D/{self.kernel_width:.4g}): "
            f"{self.kernel_smallest_eigenvalue:.4g}"
        )
        return "\n".join(lines)


def metric_report(
    D: ArrayLike,
    width: float | None = None,
    *,
    max_triples: int = 300_000_000,
    random_state: int | np.random.RandomState | None = 0,
) -> MetricReport:
    r"""How far a matrix of dissimilarities is from a metric, and from a Euclidean one.

    Three things that are not the same: the triangle inequality; whether there are points with these
    distances, which is so if and only if :math:`-\frac12 H D^{\circ 2} H` has no negative
    eigenvalue; and whether :math:`\exp(-D/\sigma)` is a positive semi-definite kernel. A metric
    need be neither Euclidean nor have such kernels.

    Parameters
    ----------
    D : array-like of shape (n, n)
        Symmetric, with zero diagonal, finite and not negative.
    width : float, default=None
        σ of the kernel. By default the median of D over different objects, or over those that are
        apart where most are the same.
    max_triples : int, default=300_000_000
        If there are more ordered triples than that, a random sample of so many is looked at. (Of
        all triples of 600 objects 0.2·10⁹ are looked at in about a second.)
    random_state : int, RandomState instance or None, default=0
        The seed of that sample.

    Returns
    -------
    MetricReport

    Notes
    -----
    Cost: :math:`O(n^3)`, or one operation a triple where these are sampled.

    Examples
    --------
    The Bhattacharyya-Riemann dissimilarity is not a metric: a broad Gaussian is a shortcut.

    >>> from nearfar import Gaussians
    >>> from nearfar.distributions import dissimilarity, metric_report
    >>> gaussians = Gaussians([[0.0], [50.0], [100.0]], [[[1.0]], [[100.0]], [[1.0]]])
    >>> print(metric_report(dissimilarity(gaussians)))
    3 objects; of all 6 ordered triples 33.3% violate the triangle inequality
    worst: D[0, 2] exceeds D[0, 1] + D[1, 2] by 76.72
    negative mass of the double-centred matrix: 24.0%
    smallest eigenvalue of exp(-D/11.64): 0.4798
    """
    D = checked_square(D)
    check_parameter("metric_report", "max_triples", max_triples, [integer(1)])
    n = len(D)
    every = n * (n - 1) * (n - 2)
    looked, violated, worst = (
        _all_triples(D) if every <= max_triples else _sampled_triples(D, max_triples, random_state)
    )
    largest, triple = worst
    centered = np.asarray(np.linalg.eigvalsh(double_centered(D**2)), np.float64)
    sigma = _typical(D) or 1.0 if width is None else width
    kernel = np.linalg.eigvalsh(exponential_kernel(D, sigma))
    return MetricReport(
        n=n,
        triangle_violations=violated / looked if looked else 0.0,
        largest_violation=largest,
        worst_triple=triple,
        n_triples=looked,
        is_exhaustive=every <= max_triples,
        negative_share=share_of_negative(centered) if D.any() else 0.0,
        smallest_eigenvalue=float(centered[0]),
        largest_eigenvalue=float(centered[-1]),
        kernel_width=float(sigma),
        kernel_smallest_eigenvalue=float(kernel[0]),
    )


def _typical(D: Matrix) -> float:
    """The median of different objects; of those not all but equal, where most are."""
    if not D.any():
        return 0.0
    apart = D[_ROUNDING * D.max() < D]
    pairs = len(D) * (len(D) - 1)
    return quantile_width(D) if 2 * len(apart) > pairs else float(np.median(apart))


_Worst = tuple[float, tuple[int, int, int] | None]


def _all_triples(D: Matrix) -> tuple[int, int, _Worst]:
    n = len(D)
    violated = 0
    worst: _Worst = (0.0, None)
    allowed = D - _ROUNDING * _typical(D)
    for k in range(n):
        # Never for i or j equal to k: the sum then is D[i, j] itself. Nor for i = j.
        excess = allowed - D[k]
        excess -= D[:, k, None]
        bad = int(np.count_nonzero(excess > 0))
        if bad:
            violated += bad
            worst = _worse(worst, D, excess, k)
    return n * (n - 1) * (n - 2), violated, worst


def _worse(worst: _Worst, D: Matrix, excess: Matrix, k: int) -> _Worst:
    i, j = np.unravel_index(np.argmax(excess), excess.shape)
    gap = float(D[i, j] - D[i, k] - D[k, j])
    return (gap, (int(i), k, int(j))) if gap > worst[0] else worst


def _sampled_triples(
    D: Matrix, n_triples: int, random_state: int | np.random.RandomState | None
) -> tuple[int, int, _Worst]:
    rng = check_random_state(random_state)
    n, looked, violated = len(D), 0, 0
    rounding = _ROUNDING * _typical(D)
    worst: _Worst = (0.0, None)
    while looked < n_triples:
        size = min(1_000_000, n_triples - looked)
        # Three different ones: the second and third skip those before.
        i, k, j = (
            rng.randint(n, size=size),
            rng.randint(n - 1, size=size),
            rng.randint(n - 2, size=size),
        )
        k += k >= i
        low, high = np.minimum(i, k), np.maximum(i, k)
        j += j >= low
        j += j >= high
        sides = D[i, k] + D[k, j]
        gaps = D[i, j] - sides
        bad = gaps > rounding
        looked, violated = looked + size, violated + int(np.count_nonzero(bad))
        at = int(np.argmax(gaps))
        if bad[at] and gaps[at] > worst[0]:
            worst = float(gaps[at]), (int(i[at]), int(k[at]), int(j[at]))
    return looked, violated, worst


def metric_closure(D: ArrayLike) -> Matrix:
    r"""The largest metric below D: lengths of shortest paths over all objects.

    .. math:: \bar D_{ij} = \min_{i = k_0, \ldots, k_s = j} \sum_t D_{k_{t-1} k_t} .

    Parameters
    ----------
    D : array-like of shape (n, n)
        Symmetric, with zero diagonal, finite and not negative.

    Returns
    -------
    ndarray of shape (n, n)
        D itself where no triangle inequality is violated. It changes when objects are added, so
        there is no such value for one new object alone.

    Notes
    -----
    Cost: :math:`O(n^3)`, by Floyd's and Warshall's algorithm.

    Examples
    --------
    >>> from nearfar.distributions import metric_closure
    >>> metric_closure([[0, 1, 5], [1, 0, 2], [5, 2, 0]])
    array([[0., 1., 3.],
           [1., 0., 2.],
           [3., 2., 0.]])
    """
    closed = checked_square(D).copy()
    through = np.empty_like(closed)
    for k in range(len(closed)):
        np.add(closed[:, k, None], closed[k], out=through)
        np.minimum(closed, through, out=closed)
    return closed
