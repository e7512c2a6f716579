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
#: Numbers of impostors per point that "auto" tries, in this order. None means all.
IMPOSTORS = (3, 10, None)
#: "auto" tries the next number of impostors if the loss is at least this fraction of the loss of
#: the zero map.
NEAR_ZERO_LOSS = 0.98
#: Number of passes chosen by "auto".
PASSES = 2
#: Maximum number of rows for which "auto" makes two passes. With more rows, a pass takes long, and
#: Euclidean neighbors are close enough to be good targets.
MAX_ROWS_FOR_TWO_PASSES = 20_000
#: Maximum number of rows that are classified to compare the passes.
MAX_ROWS_COMPARED = 5000
#: Minimum number of rows of X per row of the map. With fewer rows, LMNN overfits unless it stops
#: early.
MIN_ROWS_PER_MAP_ROW = 15
#: Fraction of the rows that "auto" holds out for early stopping.
HELD_OUT_FRACTION = 0.2
#: "auto" adds splits, up to five, until at least this many rows are held out in total. Each row is
#: held out at most once.
TARGET_HELD_OUT = 500
#: Maximum number of validation checks per pass if there are several splits.
MAX_CHECKS = 3
# "auto" stops early only if at least this many rows can be held out.
_MIN_HELD_OUT = 5


class Choice(NamedTuple):
    """Settings of a fit, with every "auto" replaced by a value.

    ``impostors`` lists the numbers of impostors to try, in order. ``compares_passes`` is True if
    the passes and the Euclidean distance are compared by their errors.
    """

    impostors: tuple[int | None, ...]
    n_passes: int
    validation_fraction: float
    n_splits: int
    compares_passes: bool


def count_directions(rows: Floats) -> int:
    """Return the number of directions in which the rows vary.

    If there are at least 15 rows per column, return the number of columns without computing it.
    """
    n, p = rows.shape
    if n >= MIN_ROWS_PER_MAP_ROW * p:
        return p
    codes = np.zeros(n, dtype=np.intp)
    statistics = ClassStatistics(pooled=True, exact=True).add(rows, np.zeros(1, np.intp), codes)
    return find_total_whitener(statistics).shape[1]


def resolve_auto(lmnn: Any, codes: Indices, n_directions: int, *, has_targets: bool) -> Choice:
    """Return the settings of an LMNN for labeled rows, with each "auto" replaced by a value.

    ``has_targets`` is True if targets were passed to ``fit``.
    """
    is_published = lmnn.solver == "projected_subgradient"
    impostors, n_passes = lmnn.n_impostors, lmnn.n_passes
    fraction, n_splits = lmnn.validation_fraction, 1
    is_square = lmnn.structure == "full" and lmnn.n_components is None
    has_many_rows = len(codes) >= MIN_ROWS_PER_MAP_ROW * n_directions
    if fraction == "auto":
        is_learned = lmnn.n_components is not None and lmnn.reduction == "learned"
        n_rows = lmnn.n_components if is_learned else n_directions
        overfits = lmnn.structure == "full" and needs_early_stopping(codes, n_rows)
        fraction = HELD_OUT_FRACTION if overfits and not (has_targets or is_published) else 0.0
        if fraction > 0 and lmnn.refit:
            n_splits = int(np.clip(np.ceil(TARGET_HELD_OUT / (fraction * len(codes))), 1, 5))
    if n_passes == "auto":
        n_passes = (
            1 if has_targets or is_published or len(codes) > MAX_ROWS_FOR_TWO_PASSES else PASSES
        )
    is_automatic = lmnn.n_passes == lmnn.validation_fraction == "auto" and n_passes == PASSES
    compares_passes = is_automatic and is_square and has_many_rows
    if impostors != "auto":
        return Choice((impostors,), n_passes, fraction, n_splits, compares_passes)
    return Choice(
        (None,) if is_published else IMPOSTORS, n_passes, fraction, n_splits, compares_passes
    )


def split_for_validation(
    codes: Indices, choice: Choice, seed: Any
) -> list[tuple[Indices, Indices]]:
    """Return (training rows, held-out rows) for each split."""
    if choice.n_splits == 1:
        return [hold_out(codes, choice.validation_fraction, seed)]
    folds = StratifiedKFold(round(1 / HELD_OUT_FRACTION), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # scikit-learn warns about classes with fewer points than splits.
        warnings.simplefilter("ignore")
        return list(folds.split(codes, codes))[: choice.n_splits]


def needs_early_stopping(codes: Indices, n_rows: int) -> bool:
    """Return True if early stopping is needed and possible for a map with ``n_rows`` rows.

    It is needed if there are few points for the size of the map. It is possible if there are
    enough points to hold out a part of them.
    """
    sizes = np.bincount(codes)
    has_enough = HELD_OUT_FRACTION * len(codes) >= max(_MIN_HELD_OUT, len(sizes))
    return bool(has_enough and len(codes) < MIN_ROWS_PER_MAP_ROW * n_rows)


def check_combination(lmnn: Any, supervision: Any, target_neighbors: Any) -> None:
    """Raise ValueError if settings or arguments of fit cannot be combined."""
    stops_early = lmnn.validation_fraction not in ("auto", 0)
    if lmnn.structure == "diagonal":
        for name in ("n_components", "n_pca_components"):
            if getattr(lmnn, name) is not None:
                raise ValueError(
                    f'Omit {name}: structure="diagonal" learns one weight for every feature.'
                )
    if lmnn.solver == "projected_subgradient":
        is_learned = lmnn.n_components is not None and lmnn.reduction == "learned"
        for is_unsupported, setting in (
            (lmnn.structure == "diagonal", 'structure="diagonal"'),
            (is_learned, 'n_components with reduction="learned"'),
            (supervision is not None, "triplets"),
            (lmnn.n_impostors not in ("auto", None), "n_impostors"),
            (lmnn.n_passes not in ("auto", 1), "n_passes"),
            (stops_early, "early stopping (validation_fraction)"),
        ):
            if is_unsupported:
                raise ValueError(
                    f'solver="projected_subgradient" does not support {setting}. Use '
                    'solver="lbfgs".'
                )
    if supervision is None:
        return
    if not isinstance(supervision, Triplets):
        raise ValueError(
            "LMNN learns from labels or triplets: supervision must be Triplets; got "
            f"{type(supervision).__name__}."
        )
    if target_neighbors is not None or stops_early:
        raise ValueError(
            "target_neighbors and validation_fraction > 0 cannot be combined with triplets. Omit "
            "them, or learn from labels."
        )
    if lmnn.n_passes not in ("auto", 1):
        raise ValueError(
            f"LMNN learns from triplets in one pass; got n_passes={lmnn.n_passes}. Set n_passes to "
            '1 or "auto".'
        )
