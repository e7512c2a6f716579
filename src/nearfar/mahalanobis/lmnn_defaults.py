"""Rules for the "auto" settings of LMNN, and checks for invalid combinations of settings."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from nearfar.arrays import Floats, Indices
from nearfar.large_margin.held_out import hold_out
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.supervision import Triplets
from nearfar.summaries.whitening import find_total_whitener

#: Settings of the thesis: all impostors, one pass, no early stopping.
PUBLISHED: dict[str, Any] = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
#: Numbers of impostors per point that "auto" tries in this order; None means all. The next one is
#: tried if the loss is more than this fraction of the loss of the zero map.
IMPOSTORS = (3, 10, None)
MOST_OF_NOTHING = 0.98
#: Number of passes chosen by "auto".
PASSES = 2
#: Number of rows above which "auto" makes one pass and does not compare passes. A pass then takes
#: long, and Euclidean neighbors are close enough to be good targets.
MOST_ROWS = 20_000
#: Maximum number of rows whose errors are used to compare passes.
MOST_ASKED = 5000
#: Rows of X per row of the map below which LMNN overfits unless it stops early.
FEW_ROWS = 15
#: Fraction of the rows that "auto" holds out for early stopping.
HELD_OUT = 0.2
#: Number of held-out rows, summed over the splits, that "auto" aims at. Each row is held out at
#: most once.
ENOUGH_HELD = 500
#: Maximum number of validation checks per pass if there are several splits.
LOOKS = 3
# Minimum number of held-out rows: "auto" does not stop early with fewer.
_LEAST_HELD = 5


class Choice(NamedTuple):
    """The settings used for a fit, with "auto" resolved.

    ``impostors`` lists the numbers of impostors to try, in order. ``weigh`` is True if the passes
    and the Euclidean distance are compared by their errors.
    """

    impostors: tuple[int | None, ...]
    n_passes: int
    validation_fraction: float
    n_splits: int
    weigh: bool


def n_directions(rows: Floats) -> int:
    """Return the number of directions in which the rows vary.

    If there are at least 15 rows per column, return the number of columns without computing it.
    """
    n, p = rows.shape
    if n >= FEW_ROWS * p:
        return p
    one = np.zeros(n, dtype=np.intp)
    statistics = ClassStatistics(pooled=True, exact=True).add(rows, np.zeros(1, np.intp), one)
    return find_total_whitener(statistics).shape[1]


def decided(lmnn: Any, codes: Indices, n_directions: int, *, given: bool) -> Choice:
    """Resolve "auto" for rows of these classes. ``given`` is True if targets were passed."""
    published = lmnn.solver == "projected_subgradient"
    impostors, n_passes = lmnn.n_impostors, lmnn.n_passes
    fraction, n_splits = lmnn.validation_fraction, 1
    square = lmnn.structure == "full" and lmnn.n_components is None
    many = len(codes) >= FEW_ROWS * n_directions
    if fraction == "auto":
        learned = lmnn.n_components is not None and lmnn.reduction == "learned"
        n_rows = lmnn.n_components if learned else n_directions
        few = lmnn.structure == "full" and stops_early(codes, n_rows)
        fraction = HELD_OUT if few and not (given or published) else 0.0
        if fraction > 0 and lmnn.refit:
            n_splits = int(np.clip(np.ceil(ENOUGH_HELD / (fraction * len(codes))), 1, 5))
    if n_passes == "auto":
        n_passes = 1 if given or published or len(codes) > MOST_ROWS else PASSES
    by_itself = lmnn.n_passes == lmnn.validation_fraction == "auto" and n_passes == PASSES
    weigh = by_itself and square and many
    if impostors != "auto":
        return Choice((impostors,), n_passes, fraction, n_splits, weigh)
    return Choice((None,) if published else IMPOSTORS, n_passes, fraction, n_splits, weigh)


def splits_of(codes: Indices, choice: Choice, seed: Any) -> list[tuple[Indices, Indices]]:
    """Return (training rows, held-out rows) for each split."""
    if choice.n_splits == 1:
        return [hold_out(codes, choice.validation_fraction, seed)]
    parts = StratifiedKFold(round(1 / HELD_OUT), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # scikit-learn warns about classes with fewer points than splits.
        warnings.simplefilter("ignore")
        return list(parts.split(codes, codes))[: choice.n_splits]


def stops_early(codes: Indices, n_rows: int) -> bool:
    """Return True if there are few points for a map with ``n_rows`` rows.

    Also requires that there are enough points to hold some out.
    """
    sizes = np.bincount(codes)
    enough = HELD_OUT * len(codes) >= max(_LEAST_HELD, len(sizes))
    return bool(enough and len(codes) < FEW_ROWS * n_rows)


def check_combination(lmnn: Any, supervision: Any, target_neighbors: Any) -> None:
    """Raise ValueError if settings or arguments of fit cannot be combined."""
    stops = lmnn.validation_fraction not in ("auto", 0)
    if lmnn.structure == "diagonal":
        for name in ("n_components", "n_principal"):
            if getattr(lmnn, name) is not None:
                raise ValueError(
                    f'Omit {name}: structure="diagonal" learns one weight for every feature.'
                )
    if lmnn.solver == "projected_subgradient":
        learned = lmnn.n_components is not None and lmnn.reduction == "learned"
        for unfit, what in (
            (lmnn.structure == "diagonal", 'structure="diagonal"'),
            (learned, 'n_components with reduction="learned"'),
            (supervision is not None, "triplets"),
            (lmnn.n_impostors not in ("auto", None), "n_impostors"),
            (lmnn.n_passes not in ("auto", 1), "n_passes"),
            (stops, "early stopping (validation_fraction)"),
        ):
            if unfit:
                raise ValueError(
                    f'solver="projected_subgradient" does not support {what}. Use solver="lbfgs".'
                )
    if supervision is None:
        return
    if not isinstance(supervision, Triplets):
        raise ValueError(
            "LMNN learns from labels or triplets: supervision must be Triplets; got "
            f"{type(supervision).__name__}."
        )
    if target_neighbors is not None or stops:
        raise ValueError(
            "target_neighbors and validation_fraction > 0 cannot be combined with triplets. Omit "
            "them, or learn from labels."
        )
    if lmnn.n_passes not in ("auto", 1):
        raise ValueError(
            f"LMNN learns from triplets in one pass; got n_passes={lmnn.n_passes}. Set n_passes to "
            '1 or "auto".'
        )
