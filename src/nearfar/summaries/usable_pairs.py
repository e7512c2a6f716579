"""Pairs that a metric can learn from: what real pairs have that none can use."""

from __future__ import annotations

import numpy as np

from nearfar.arrays import Indices, Mask, Matrix
from nearfar.notices import warn
from nearfar.summaries.pair_differences import PairDifferences
from nearfar.summaries.supervision import Pairs

# Squared lengths below this share of the largest are zero but for rounding.
_NOTHING = 1e-26


def usable_pairs(
    name: str, points: Matrix, pairs: Pairs, *, needs_both: bool = False
) -> tuple[Indices, Indices]:
    """Similar and dissimilar pairs; no pairs, or none that say anything, raise.

    Dissimilar pairs of equal points are left out with one warning: no metric tells them apart.

    >>> import numpy as np
    >>> usable_pairs("ITML", np.zeros((2, 1)), Pairs([], [], n_samples=2))
    Traceback (most recent call last):
    ...
    ValueError: ITML needs pairs: supervision has no pair at all.
    """
    similar, dissimilar = pairs.similar, pairs.dissimilar
    if not len(similar) and not len(dissimilar):
        raise ValueError(f"{name} needs pairs: supervision has no pair at all.")
    apart = has_length(points, np.vstack([similar, dissimilar]))
    near, far = apart[: len(similar)], apart[len(similar) :]
    if len(similar) and not near.any():
        raise ValueError(
            f"{name}: every similar pair in supervision ({len(similar)}) has zero length: its two "
            "points are equal, which says nothing of a distance."
        )
    if not near.any() and not far.any():
        raise ValueError(
            f"{name}: every pair in supervision has zero length: its two points are equal."
        )
    for kind, usable in (("similar", near), ("dissimilar", far)):
        if needs_both and not usable.any():
            raise ValueError(
                f"{name} needs {kind} pairs of points that differ: supervision has none."
            )
    if not far.all():
        warn(
            f"{name}: {(~far).sum()} dissimilar pair(s) of {len(far)} have zero length: no metric "
            "tells equal points apart; they are left out."
        )
        dissimilar = dissimilar[far]
    return similar, dissimilar


def has_length(points: Matrix, pairs: Indices) -> Mask:
    """Which pairs are of two points that differ, by more than rounding."""
    squared = PairDifferences(points, pairs).squared(np.eye(points.shape[1]))
    spread = float(np.einsum("ij,ij->i", points, points).max(initial=0.0))
    return np.asarray(squared > _NOTHING * spread)
