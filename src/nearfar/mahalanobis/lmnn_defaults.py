"""What LMNN decides by itself: impostors, passes, when to stop early; and what cannot be."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import StratifiedKFold

from nearfar.arrays import Floats, Indices
from nearfar.large_margin.held_out import hold_out
from nearfar.summaries.class_statistics import ClassStatistics
from nearfar.summaries.supervision import Triplets
from nearfar.summaries.whitening import total_whitener

#: LMNN as the work has it: every impostor counts, one pass, to the end.
PUBLISHED: dict[str, Any] = {"n_impostors": None, "n_passes": 1, "validation_fraction": 0.0}
#: Impostors that count, by "auto"; the next where with so few the best map is hardly better than
#: none: where it costs more than this share of what the zero map costs.
IMPOSTORS = (3, 10, None)
MOST_OF_NOTHING = 0.98
#: Passes, by "auto".
PASSES = 2
#: Beyond so many rows one pass is made, and not weighed: it takes long, and plain neighbours are
#: near.
MOST_ROWS = 20_000
#: Passes are weighed by the errors of so many rows at most.
MOST_ASKED = 5000
#: With fewer rows of X for each row of the map than this, it overfits unless it is stopped early.
FEW_ROWS = 15
#: Share of the rows that is held out then,
HELD_OUT = 0.2
#: so often, each time others, that there are at least so many in all (or every row once),
ENOUGH_HELD = 500
#: and most looks at rows held out more than once.
LOOKS = 3
# Fewer rows held out than this tell nothing.
_LEAST_HELD = 5


class Choice(NamedTuple):
    """What is used: numbers of impostors to try in this order, passes, what is held out.

    ``weigh`` says whether passes are weighed by errors, the plain distance among them.
    """

    impostors: tuple[int | None, ...]
    n_passes: int
    validation_fraction: float
    n_splits: int
    weigh: bool


def n_directions(rows: Floats) -> int:
    """In how many directions rows vary; where they are many for their columns, these."""
    n, p = rows.shape
    if n >= FEW_ROWS * p:
        return p
    one = np.zeros(n, dtype=np.intp)
    statistics = ClassStatistics(pooled=True, exact=True).add(rows, np.zeros(1, np.intp), one)
    return total_whitener(statistics).shape[1]


def decided(lmnn: Any, codes: Indices, n_directions: int, *, given: bool) -> Choice:
    """What "auto" means for rows of these classes; ``given`` says that targets are given."""
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
    """Rows to train on and rows held out, several times."""
    if choice.n_splits == 1:
        return [hold_out(codes, choice.validation_fraction, seed)]
    parts = StratifiedKFold(round(1 / HELD_OUT), shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of classes with fewer points than there are parts
        return list(parts.split(codes, codes))[: choice.n_splits]


def stops_early(codes: Indices, n_rows: int) -> bool:
    """Whether points are few for a map of so many rows, and yet enough to hold some out."""
    sizes = np.bincount(codes)
    enough = HELD_OUT * len(codes) >= max(_LEAST_HELD, len(sizes))
    return bool(enough and len(codes) < FEW_ROWS * n_rows)


def check_combination(lmnn: Any, supervision: Any, target_neighbors: Any) -> None:
    """Raise where settings, or what is given to fit, do not go together."""
    stops = lmnn.validation_fraction not in ("auto", 0)
    if lmnn.structure == "diagonal":
        for name in ("n_components", "n_principal"):
            if getattr(lmnn, name) is not None:
                raise ValueError(f'structure="diagonal" keeps every feature; leave {name} out.')
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
                raise ValueError(f'solver="projected_subgradient" does not do {what}.')
    if supervision is None:
        return
    if not isinstance(supervision, Triplets):
        raise ValueError(
            "LMNN learns from labels or triplets: supervision must be Triplets; got "
            f"{type(supervision).__name__}."
        )
    if target_neighbors is not None or stops:
        raise ValueError("With triplets there are no target_neighbors and nothing is held out.")
    if lmnn.n_passes not in ("auto", 1):
        raise ValueError(
            f"With triplets targets are not chosen anew; got n_passes={lmnn.n_passes}, 1 or "
            '"auto" would do.'
        )
