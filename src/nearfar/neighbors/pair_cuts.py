"""Where to cut distances into those of pairs alike and of pairs different."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Vector


class Cuts(NamedTuple):
    """Every cut that tells the pairs apart differently, from "none is alike" to "all are".

    Distances up to the threshold are called alike. ``hits`` counts the pairs alike that are called
    so, ``alarms`` the pairs different that are.
    """

    thresholds: Vector
    hits: NDArray[np.intp]
    alarms: NDArray[np.intp]

    @property
    def hit_rates(self) -> Vector:
        """The share of pairs alike that are called so."""
        return self.hits / self.hits[-1]

    @property
    def alarm_rates(self) -> Vector:
        """The share of pairs different that are called alike."""
        return self.alarms / self.alarms[-1]

    @property
    def accuracies(self) -> Vector:
        """The share of pairs that are called what they are."""
        return (self.hits + self.alarms[-1] - self.alarms) / (self.hits[-1] + self.alarms[-1])

    @property
    def equal_error_rate(self) -> float:
        """The rate at which pairs alike are missed as often as different ones are called alike.

        Between two cuts both rates are taken for linear.
        """
        alarms, misses = self.alarm_rates, 1 - self.hit_rates
        k = int(np.argmax(alarms >= misses))
        gap = (alarms - misses)[k - 1 : k + 1]
        share = -gap[0] / (gap[1] - gap[0])
        return float(alarms[k - 1] + share * (alarms[k] - alarms[k - 1]))


def all_cuts(distances: Vector, alike: NDArray[np.bool_]) -> Cuts:
    """All cuts, by rising threshold; a threshold lies midway between two distances.

    >>> import numpy as np
    >>> cuts = all_cuts(np.array([1.0, 3.0, 2.0, 2.0]), np.array([True, False, True, False]))
    >>> cuts.thresholds.tolist(), cuts.hits.tolist(), cuts.alarms.tolist()
    ([0.5, 1.5, 2.5, 3.0], [0, 1, 2, 2], [0, 0, 1, 2])
    """
    order = np.argsort(distances, kind="stable")
    ranked, alike = distances[order], alike[order]
    last = np.flatnonzero(np.append(ranked[1:] > ranked[:-1], True))  # of those equally far
    levels = ranked[last]
    middle = levels[:-1] + (levels[1:] - levels[:-1]) / 2
    middle = np.where(middle < levels[1:], middle, levels[:-1])  # next to each other, it may round
    lowest = levels[0] / 2 if levels[0] > 0 else -1.0
    return Cuts(
        np.concatenate([[lowest], middle, levels[-1:]]),
        np.concatenate([[0], np.cumsum(alike)[last]]),
        np.concatenate([[0], np.cumsum(~alike)[last]]),
    )
