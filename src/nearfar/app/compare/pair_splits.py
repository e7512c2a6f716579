"""Folds of pairs: no row is in a training pair and in a test pair; pairs across are dropped."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nearfar.app.compare.splits import N_SPLITS, Fold, Scheme, Tuning, sample_rows
from nearfar.arrays import Indices
from nearfar.evaluation import PairKFold
from nearfar.summaries.supervision import Pairs
from nearfar.words import format_count, format_percent

#: Pairs of each kind that a fold should hold out: with fewer, there are fewer and larger folds.
ENOUGH = 10
#: Fewer than that, and nothing can be ranked.
LEAST = 2


@dataclass(frozen=True)
class PairScheme(Scheme):
    """Folds of pairs, and what is lost between them."""

    n_pairs: int = 0
    #: Rows that are tested for each that is trained on, averaged over the folds.
    row_share: float = 0.0

    @property
    def n_rows(self) -> int:
        """Pairs that the folds are made of, those that a fold drops too."""
        return self.n_pairs if self.rows is None else len(self.rows)

    @property
    def test_share(self) -> float:
        """By the rows: pairs that share one are not independent."""
        return self.row_share


def pair_scheme(
    pairs: Pairs,
    *,
    repeats: int,
    seed: int = 0,
    cv: int | None = None,
    sample: int | None = None,
    same: Indices | None = None,
) -> PairScheme:
    """Repeated folds of pairs, by their rows.

    Parameters
    ----------
    pairs : Pairs
        All pairs; in the folds they are numbered, those that are alike first.
    repeats : int
        How often the rows are dealt anew.
    cv : int, optional
        Folds; None is 5, or fewer where a fold would hold out too few pairs of a kind.
    sample : int, optional
        Use so many pairs only, drawn of each kind.
    same : ndarray of int, optional
        A number for each row, the same for copies of one another, which stay on one side.
    """
    ends, codes = _numbered(pairs)
    n = len(codes)
    if sample is not None and sample < n:
        rows = sample_rows(codes, sample, seed=seed)
        scheme = _dealt(ends[rows], codes[rows], repeats, seed, cv, same)
        folds = [Fold(f.repeat, f.fold, rows[f.train], rows[f.test]) for f in scheme.folds]
        words = f"{scheme.words}, on {len(rows):,} of {n:,} pairs"
        return PairScheme(
            folds, scheme.n_splits, words, scheme.notes, None, rows, n, scheme.row_share
        )
    return _dealt(ends, codes, repeats, seed, cv, same)


def _numbered(pairs: Pairs) -> tuple[Indices, Indices]:
    kinds = np.repeat(np.array([1, 0], np.intp), [len(pairs.similar), len(pairs.dissimilar)])
    return np.vstack([pairs.similar, pairs.dissimilar]), kinds


def _dealt(
    ends: Indices,
    codes: Indices,
    repeats: int,
    seed: int,
    cv: int | None,
    same: Indices | None,
) -> PairScheme:
    notes = []
    wanted = N_SPLITS if cv is None else cv
    n_splits = wanted if cv is not None else _fitting(ends, codes, seed, same)
    if n_splits < wanted:
        notes.append(
            f"{n_splits} folds instead of {wanted}: in more, a fold would hold out fewer than "
            f"{ENOUGH} pairs of a kind."
        )
    every = [split(ends, codes, n_splits, seed + repeat, same) for repeat in range(repeats)]
    folds = [
        Fold(repeat, fold, train, test)
        for repeat, splits in enumerate(every)
        for fold, (train, test) in enumerate(splits)
        if _has_both(codes, train) and _has_both(codes, test)
    ]
    if len({fold.fold for fold in folds if fold.repeat == 0}) < 2:
        raise ValueError(_too_few(codes, every[0], n_splits))
    left_out = repeats * n_splits - len(folds)
    if left_out:
        notes.append(
            f"{left_out} of {repeats * n_splits} folds left out: they would train on, or test, "
            "pairs of one kind only."
        )
    notes += [_check_rows(folds, ends, same), _dropped(folds, len(codes))]
    words = f"{repeats} × {n_splits}-fold by rows, shuffled, seed {seed}"
    shares = [_in(ends[f.test]).sum() / _in(ends[f.train]).sum() for f in folds]
    return PairScheme(folds, n_splits, words, notes, None, None, len(codes), float(np.mean(shares)))


def _fitting(ends: Indices, codes: Indices, seed: int, same: Indices | None) -> int:
    """As many folds, up to 5, as leave enough pairs of each kind to test."""
    for n_splits in range(N_SPLITS, 2, -1):
        tests = [codes[test] for _, test in split(ends, codes, n_splits, seed, same)]
        if tests and min(np.bincount(test, minlength=2).min() for test in tests) >= ENOUGH:
            return n_splits
    return 2


def _has_both(codes: Indices, numbers: Indices) -> bool:
    return bool(np.bincount(codes[numbers], minlength=2).min() >= LEAST)


def refuse_one_kind(alike: int, different: int) -> None:
    """Refuse pairs of which none is alike, or none different."""
    if alike and different:
        return
    if not alike + different:
        raise ValueError("There are no pairs: some must be alike, and some different.")
    there, wanted = ("alike", "different") if alike else ("different", "alike")
    raise ValueError(
        f"All {alike + different:,} pairs are {there}: a distance is judged by how well it tells "
        f"alike pairs from different ones, so some must be {wanted}."
    )


def _too_few(codes: Indices, splits: list[tuple[Indices, Indices]], n_splits: int) -> str:
    different, alike = np.bincount(codes, minlength=2)
    held = np.mean([len(test) for _, test in splits]) if splits else 0.0
    return (
        f"{format_count(int(alike), 'pair')} alike and {different:,} different are too few for "
        f"{n_splits} folds: where no row may be both trained on and tested, a fold holds out "
        f"{held:.0f} of them, and it needs {LEAST} of each kind at least. Judge more pairs, above "
        "all of rows that are in pairs already."
    )


def _check_rows(folds: list[Fold], ends: Indices, same: Indices | None) -> str:
    """Assert that no row is on both sides, and say so."""
    rows = ends if same is None else same[ends]
    for fold in folds:
        trained, tested = (_in(rows[side], int(rows.max()) + 1) for side in (fold.train, fold.test))
        if (trained & tested).any():
            raise ValueError(
                f"A row is trained on and tested in fold {fold.fold} of repeat {fold.repeat}."
            )
    copies = "" if same is None else ", nor a copy of one,"
    return f"Rows: none{copies} is on both sides of any of the {len(folds)} folds (checked)."


def _in(rows: Indices, n: int = 0) -> NDArray[np.bool_]:
    """Which rows there are among these."""
    return np.bincount(rows.ravel(), minlength=n) > 0


def _dropped(folds: list[Fold], n_pairs: int) -> str:
    """How many pairs are lost between the sides, and how many are never tested."""
    lost = [n_pairs - len(fold.train) - len(fold.test) for fold in folds]
    if not any(lost):
        return "Pairs across folds: none, so that every pair is used in every fold."
    tested = len(np.unique(np.concatenate([fold.test for fold in folds])))
    mean = float(np.mean(lost))
    text = (
        f"Pairs across folds: of {n_pairs:,} pairs {mean:,.0f} on average "
        f"({format_percent(mean / n_pairs)}) have a row on either side and are not used in that "
        "fold"
    )
    if tested == n_pairs:
        return f"{text}; each is tested in another."
    return f"{text}; {n_pairs - tested:,} are never tested."


def inner_pair_splits(
    tuning: Tuning, ends: Indices, codes: Indices, same: Indices | None = None
) -> list[tuple[Indices, Indices]]:
    """Splits of training pairs for tuning, by the rule outside; none where pairs are too few."""
    n_splits = 3 if tuning == "full" else 4
    found = split(ends, codes, n_splits, 0, same)[: 3 if tuning == "full" else 1]
    sound = [(a, b) for a, b in found if _has_both(codes, a) and _has_both(codes, b)]
    if not sound and tuning != "full":  # a quarter of the rows is too little
        half = split(ends, codes, 2, 0, same)[:1]
        sound = [(a, b) for a, b in half if _has_both(codes, a) and _has_both(codes, b)]
    return sound


def split(
    ends: Indices, codes: Indices, n_splits: int, seed: int, same: Indices | None = None
) -> list[tuple[Indices, Indices]]:
    """Numbers of pairs to train on and to test, of each fold; none where a side would be empty.

    ``same`` says which rows are copies of one another: they stay on one side.
    """
    rows, places = np.unique(ends, return_inverse=True)
    places = places.reshape(-1, 2)
    pairs = Pairs(places[codes == 1], places[codes == 0], n_samples=len(rows), conflicts="keep")
    groups = None if same is None else same[rows]
    try:
        folds = list(PairKFold(n_splits, random_state=seed).split(pairs, groups=groups))
    except ValueError:
        return []
    found = []
    for fold in folds:
        held = np.zeros(len(rows), dtype=bool)
        held[fold.test] = True
        inside = held[places]
        found.append((np.flatnonzero(~inside.any(axis=1)), np.flatnonzero(inside.all(axis=1))))
    return found
