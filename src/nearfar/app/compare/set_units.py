"""Units of the vectors of sets: once for all folds, where training sets alone would give the same.

A Gaussian of a set is S_i + r diag(v): r is the ridge, which may be a median over sets, and v the
variances of the features over all vectors, if these are standardized. Strictly both come from the
training sets of a fold; with other units all eigenvalues of all pairs are others, and each fold has
to compute its own. But units look at no label, and four fifths of many sets have nearly the units
of all. So all sets give them *where it was measured* that in no fold those of the training sets
differ by more than :data:`TOLERANCE`. Then every pair serves all methods, folds and repeats, and
what is fitted to all sets for use has the very units that were compared. Elsewhere (few sets; a
group, or a few long sets, that pull the scale) each fold has its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nearfar.app.compare.splits import Fold
from nearfar.arrays import Indices, Matrix
from nearfar.summaries.sets import Sets

#: From so many sets on pairs are dear: at five folds and the four ways of the default comparison,
#: 2.4 million of them computed fold by fold, half a minute of one core at 13 features and minutes
#: at 50, against half a million computed once.
MANY_SETS = 500
#: How much the units of training sets may differ from those of all: far less than the ridges among
#: which tuning chooses, which are factors of ten apart. At the same setting and k, about one label
#: changed on average of 640 Japanese vowels (1.6%) and of 548 bird songs (7%), but 46 of 567
#: actions with subjects apart (37%).
TOLERANCE = 0.05
# As much of the largest number is rounding.
_ROUNDING = 1e-12


class Units(NamedTuple):
    """Of the vectors of some sets."""

    #: Standard deviation of each feature; 1 where it is constant.
    scale: Matrix
    #: The ridge "auto" of the vectors as they are, and of standardized ones; NaN where most sets
    #: have no variance.
    ridges: Matrix


class SetUnits:
    """The units of any of the sets, from sums over each of them.

    Parameters
    ----------
    X : Sets
        All sets.
    """

    def __init__(self, X: Sets) -> None:
        n, p = X.shape
        self._sizes = X.sizes
        self._sums, self._squares, self._most = np.empty((n, p)), np.empty((n, p)), np.empty(p)
        for j in range(p):
            values = X.X[:, j].astype(np.float64)
            self._most[j] = np.abs(values).max()
            values -= values.mean()  # against cancellation
            self._sums[:, j] = np.add.reduceat(values, X.offsets[:-1])
            self._squares[:, j] = np.add.reduceat(np.square(values), X.offsets[:-1])
        within = self._squares - np.square(self._sums) / self._sizes[:, None]
        self._variances = np.maximum(within, 0.0) / np.maximum(self._sizes - 1, 1)[:, None]

    def of(self, rows: Indices) -> Units:
        """The units of some sets."""
        n_vectors = self._sizes[rows].sum()
        mean = self._sums[rows].sum(axis=0) / n_vectors
        variances = self._squares[rows].sum(axis=0) / n_vectors - np.square(mean)
        deviations = np.sqrt(np.maximum(variances, 0.0))
        scale = np.where(deviations > _ROUNDING * self._most, deviations, 1.0)
        own = self._variances[rows]
        ridges = np.median([own.mean(axis=1), (own / scale**2).mean(axis=1)], axis=1)
        return Units(scale, np.where(ridges > 0, ridges, np.nan))

    def differences(self, folds: Sequence[Fold]) -> list[float] | None:
        """For each fold, by how much its training sets alone have other units than all its sets.

        The largest share over features and ridges. None if the folds are not all of the same sets.

        >>> from nearfar.app.compare.splits import make_scheme
        >>> sets = Sets.from_list([[[0.0], [size]] for size in (1.0, 1.0, 1.0, 1.2)])
        >>> folds = make_scheme(np.array([0, 0, 1, 1]), repeats=1, cv=2).folds
        >>> np.round(SetUnits(sets).differences(folds), 3).tolist()
        [0.22, 0.118]
        """
        every = [np.union1d(fold.train, fold.test) for fold in folds]
        if not all(np.array_equal(sets, every[0]) for sets in every):
            return None
        whole = self.of(every[0])
        return [_difference(self.of(fold.train), whole) for fold in folds]


def _difference(part: Units, whole: Units) -> float:
    """The largest share by which one of the numbers is another; infinite where it is not known."""
    ratios = np.concatenate([part.scale / whole.scale, part.ridges / whole.ridges])
    found = float(np.abs(ratios - 1).max())
    return found if np.isfinite(found) else np.inf


def units_text(n_sets: int, drawn: bool, difference: float) -> str:
    """What is to be said where all sets give the units.

    >>> units_text(3000, False, 0.0131).split("; ")[1]
    'those of the training sets alone differ by at most 1.4% in any fold.'
    """
    which = f"all {n_sets:,} sets{' that were drawn' * drawn}"
    # Rounded upwards: it is said to be the most.
    most = np.ceil(1000 * difference - 1e-9) / 10
    return (
        f"Scale and ridge of the Gaussians that methods share come from {which}, without their "
        "labels, so that all folds share their pairs; those of the training sets alone differ by "
        f"at most {most:.1f}% in any fold."
    )
