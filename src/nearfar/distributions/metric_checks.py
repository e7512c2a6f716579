"""Checks of dissimilarities: triangle inequality, Euclidean embedding, positive definite kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from nearfar.arrays import Matrix
from nearfar.parameters import check_parameter, integer
from nearfar.solvers.kernel_repair import (
    check_square_dissimilarities,
    exponential_kernel,
    quantile_width,
)
from nearfar.solvers.spectral_step import compute_negative_share, double_center
from nearfar.words import format_count, format_percent

# Violations of the triangle inequality are treated as rounding errors if they are at most this
# fraction of the median dissimilarity. Square roots of divergences, such as the Hellinger distance,
# have only half as many correct digits near zero.
_ROUNDING = 1e-7


@dataclass(frozen=True)
class MetricReport:
    """Result of :func:`metric_report`.

    Attributes
    ----------
    n : int
        Number of objects.
    triangle_violations : float
        Fraction of the ordered triples (i, k, j) of distinct objects for which D[i, j] exceeds
        D[i, k] + D[k, j] by more than 1e-7 of a typical dissimilarity. Smaller differences are
        treated as rounding errors.
    largest_violation : float
        The largest D[i, j] - D[i, k] - D[k, j], or 0 if no triple violates the inequality.
    worst_triple : tuple of int, or None
        The triple (i, k, j) with the largest violation.
    n_triples : int
        Number of ordered triples that were checked.
    is_exhaustive : bool
        True if all triples were checked.
    negative_share : float
        Sum of the absolute values of the negative eigenvalues of the double-centered matrix -½HD²H,
        as a fraction of the sum over all eigenvalues. The fraction is 0 if and only if D embeds in
        a Euclidean space.
    smallest_eigenvalue, largest_eigenvalue : float
        The smallest and the largest eigenvalue of -½HD²H.
    kernel_width : float
        The width σ of the kernel exp(-D/σ).
    kernel_smallest_eigenvalue : float
        The smallest eigenvalue of the kernel exp(-D/σ). The kernel is positive semidefinite if this
        eigenvalue is not negative, apart from rounding.
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
        """True if no checked triple violates the triangle inequality."""
        return self.worst_triple is None

    @property
    def is_euclidean(self) -> bool:
        """True if Euclidean points with these distances exist."""
        return self.negative_share == 0

    def __str__(self) -> str:
        scope = "all" if self.is_exhaustive else "a sample of"
        lines = [
            f"{format_count(self.n, 'object')}; of {scope} {self.n_triples:,} ordered triples "
            f"{format_percent(self.triangle_violations)} violate the triangle inequality"
        ]
        if self.worst_triple is not None:
            i, k, j = self.worst_triple
            lines.append(
                f"worst: D[{i}, {j}] exceeds D[{i}, {k}] + D[{k}, {j}] by "
                f"{self.largest_violation:.4g}"
            )
        lines.append(
            "negative fraction of the double-centered spectrum: "
            f"{format_percent(self.negative_share)}" + (" (Euclidean)" if self.is_euclidean else "")
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
    r"""Check if dissimilarities form a metric, are Euclidean and give a positive definite kernel.

    These are three different properties:

    - D is a metric if it satisfies the triangle inequality.
    - D is Euclidean, that is points with these distances exist, if and only if
      :math:`-\frac12 H D^{\circ 2} H` has no negative eigenvalue.
    - The kernel :math:`\exp(-D/\sigma)` is positive semidefinite if it has no negative eigenvalue.

    A metric need not be Euclidean, and its kernel need not be positive semidefinite.

    Parameters
    ----------
    D : array-like of shape (n, n)
        Dissimilarities. The matrix must be symmetric, finite and nonnegative, with a zero diagonal.
    width : float, default=None
        Width σ of the kernel. None uses the median dissimilarity of all pairs. If most objects are
        equal, None uses the median of the positive dissimilarities.
    max_triples : int, default=300_000_000
        Maximum number of ordered triples to check. If there are more, a random sample of this size
        is checked. For example, 600 objects have about 2·10⁸ triples, which take about a second to
        check.
    random_state : int, RandomState instance or None, default=0
        Seed of the random number generator for the sample of triples.

    Returns
    -------
    MetricReport
        The results of the checks. ``print`` shows a summary.

    Notes
    -----
    Cost: :math:`O(n^3)`, or one operation per triple if triples are sampled.

    Examples
    --------
    The Bhattacharyya-Riemann dissimilarity is not a metric: the path via a broad Gaussian is
    shorter than the direct one.

    >>> from nearfar import Gaussians
    >>> from nearfar.distributions import dissimilarity, metric_report
    >>> gaussians = Gaussians([[0.0], [50.0], [100.0]], [[[1.0]], [[100.0]], [[1.0]]])
    >>> print(metric_report(dissimilarity(gaussians)))
    3 objects; of all 6 ordered triples 33.3% violate the triangle inequality
    worst: D[0, 2] exceeds D[0, 1] + D[1, 2] by 76.72
    negative fraction of the double-centered spectrum: 24.0%
    smallest eigenvalue of exp(-D/11.64): 0.4798
    """
    D = check_square_dissimilarities(D)
    check_parameter("metric_report", "max_triples", max_triples, [integer(1)])
    n = len(D)
    n_all_triples = n * (n - 1) * (n - 2)
    n_checked, n_violated, worst = (
        _check_all_triples(D)
        if n_all_triples <= max_triples
        else _check_sampled_triples(D, max_triples, random_state)
    )
    largest, triple = worst
    centered = np.asarray(np.linalg.eigvalsh(double_center(D**2)), np.float64)
    sigma = _compute_typical(D) or 1.0 if width is None else width
    kernel = np.linalg.eigvalsh(exponential_kernel(D, sigma))
    return MetricReport(
        n=n,
        triangle_violations=n_violated / n_checked if n_checked else 0.0,
        largest_violation=largest,
        worst_triple=triple,
        n_triples=n_checked,
        is_exhaustive=n_all_triples <= max_triples,
        negative_share=compute_negative_share(centered) if D.any() else 0.0,
        smallest_eigenvalue=float(centered[0]),
        largest_eigenvalue=float(centered[-1]),
        kernel_width=float(sigma),
        kernel_smallest_eigenvalue=float(kernel[0]),
    )


def _compute_typical(D: Matrix) -> float:
    """Return the median dissimilarity of all pairs.

    If at most half of the dissimilarities are positive, return the median of the positive ones.
    """
    if not D.any():
        return 0.0
    positive = D[_ROUNDING * D.max() < D]
    pairs = len(D) * (len(D) - 1)
    return quantile_width(D) if 2 * len(positive) > pairs else float(np.median(positive))


_WorstTriple = tuple[float, tuple[int, int, int] | None]


def _check_all_triples(D: Matrix) -> tuple[int, int, _WorstTriple]:
    n = len(D)
    n_violated = 0
    worst: _WorstTriple = (0.0, None)
    allowed = D - _ROUNDING * _compute_typical(D)
    for k in range(n):
        # Triples with repeated indices never violate the inequality: for i = k or j = k, D[i, k] +
        # D[k, j] equals D[i, j], and for i = j, D[i, j] is 0.
        excess = allowed - D[k]
        excess -= D[:, k, None]
        n_bad = int(np.count_nonzero(excess > 0))
        if n_bad:
            n_violated += n_bad
            worst = _update_worst(worst, D, excess, k)
    return n * (n - 1) * (n - 2), n_violated, worst


def _update_worst(worst: _WorstTriple, D: Matrix, excess: Matrix, k: int) -> _WorstTriple:
    i, j = np.unravel_index(np.argmax(excess), excess.shape)
    gap = float(D[i, j] - D[i, k] - D[k, j])
    return (gap, (int(i), k, int(j))) if gap > worst[0] else worst


def _check_sampled_triples(
    D: Matrix, n_triples: int, random_state: int | np.random.RandomState | None
) -> tuple[int, int, _WorstTriple]:
    rng = check_random_state(random_state)
    n, n_checked, n_violated = len(D), 0, 0
    rounding = _ROUNDING * _compute_typical(D)
    worst: _WorstTriple = (0.0, None)
    while n_checked < n_triples:
        size = min(1_000_000, n_triples - n_checked)
        # Draw three distinct indices: k skips i, and j skips both i and k.
        i, k, j = (
            rng.randint(n, size=size),
            rng.randint(n - 1, size=size),
            rng.randint(n - 2, size=size),
        )
        k += k >= i
        low, high = np.minimum(i, k), np.maximum(i, k)
        j += j >= low
        j += j >= high
        detours = D[i, k] + D[k, j]
        gaps = D[i, j] - detours
        is_violated = gaps > rounding
        n_checked, n_violated = n_checked + size, n_violated + int(np.count_nonzero(is_violated))
        worst_position = int(np.argmax(gaps))
        if is_violated[worst_position] and gaps[worst_position] > worst[0]:
            worst = (
                float(gaps[worst_position]),
                (int(i[worst_position]), int(k[worst_position]), int(j[worst_position])),
            )
    return n_checked, n_violated, worst


def metric_closure(D: ArrayLike) -> Matrix:
    r"""Compute the largest metric that does not exceed D: the lengths of shortest paths.

    .. math:: \bar D_{ij} = \min_{i = k_0, \ldots, k_s = j} \sum_t D_{k_{t-1} k_t} .

    Parameters
    ----------
    D : array-like of shape (n, n)
        Dissimilarities. The matrix must be symmetric, finite and nonnegative, with a zero diagonal.

    Returns
    -------
    ndarray of shape (n, n)
        The metric, which is equal to D if no triangle inequality is violated. It changes when
        objects are added, so it is not defined for a single new object.

    Notes
    -----
    Cost: :math:`O(n^3)`, by the Floyd-Warshall algorithm.

    Examples
    --------
    >>> from nearfar.distributions import metric_closure
    >>> metric_closure([[0, 1, 5], [1, 0, 2], [5, 2, 0]])
    array([[0., 1., 3.],
           [1., 0., 2.],
           [3., 2., 0.]])
    """
    closure = check_square_dissimilarities(D).copy()
    via_k = np.empty_like(closure)
    for k in range(len(closure)):
        np.add(closure[:, k, None], closure[k], out=via_k)
        np.minimum(closure, via_k, out=closure)
    return closure
