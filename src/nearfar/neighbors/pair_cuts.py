"""Thresholds that separate the distances of similar pairs from those of dissimilar pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Vector


class Cuts(NamedTuple):
    """Ascending thresholds, and how many pairs are predicted similar at each threshold.

    A pair is predicted similar if its distance is at most the threshold. ``hits`` counts the
    similar pairs that are predicted similar (true positives), ``alarms`` the dissimilar pairs that
    are predicted similar (false positives). The first threshold predicts no pair similar, the last
    one all pairs.
    """

    thresholds: Vector
    hits: NDArray[np.intp]
    alarms: NDArray[np.intp]

    @property
    def hit_rates(self) -> Vector:
        """True positive rate: the fraction of similar pairs that are predicted similar."""
        return self.hits / self.hits[-1]

    @property
    def alarm_rates(self) -> Vector:
        """False positive rate: the fraction of dissimilar pairs that are predicted similar."""
        return self.alarms / self.alarms[-1]

    @property
    def accuracies(self) -> Vector:
        """Fraction of pairs that are predicted correctly."""
        return (self.hits + self.alarms[-1] - self.alarms) / (self.hits[-1] + self.alarms[-1])

    @property
    def equal_error_rate(self) -> float:
        """Error rate at the threshold where the false positive and false negative rates are equal.

        Both rates are interpolated linearly between neighboring thresholds.
        """
        alarms, misses = self.alarm_rates, 1 - self.hit_rates
        k = int(np.argmax(alarms >= misses))
        gap = (alarms - misses)[k - 1 : k + 1]
        fraction = -gap[0] / (gap[1] - gap[0])
        return float(alarms[k - 1] + fraction * (alarms[k] - alarms[k - 1]))


def find_cuts(distances: Vector, is_similar: NDArray[np.bool_]) -> Cuts:
    """Return thresholds midway between successive distinct distances, and their pair counts.

    The first threshold is below all distances, and the last one is the largest distance.

    >>> import numpy as np
    >>> cuts = find_cuts(np.array([1.0, 3.0, 2.0, 2.0]), np.array([True, False, True, False]))
    >>> cuts.thresholds.tolist(), cuts.hits.tolist(), cuts.alarms.tolist()
    ([0.5, 1.5, 2.5, 3.0], [0, 1, 2, 2], [0, 0, 1, 2])
    """
    order = np.argsort(distances, kind="stable")
    sorted_distances, is_similar = distances[order], is_similar[order]
    # No threshold separates pairs with equal distances. Keep the last pair of each distance.
    last = np.flatnonzero(np.append(sorted_distances[1:] > sorted_distances[:-1], True))
    levels = sorted_distances[last]
    middle = levels[:-1] + (levels[1:] - levels[:-1]) / 2
    # The midpoint of two adjacent floating-point numbers may round up to the larger one.
    middle = np.where(middle < levels[1:], middle, levels[:-1])
    lowest = levels[0] / 2 if levels[0] > 0 else -1.0
    return Cuts(
        np.concatenate([[lowest], middle, levels[-1:]]),
        np.concatenate([[0], np.cumsum(is_similar)[last]]),
        np.concatenate([[0], np.cumsum(~is_similar)[last]]),
    )
