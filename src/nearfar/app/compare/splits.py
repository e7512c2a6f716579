"""Who is trained on and who is tested: outer folds, and the splits inside a training fold."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import (
    GroupShuffleSplit,
    KFold,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
    check_cv,
)

from nearfar.app.tables.inputs import UNKNOWN_GROUP
from nearfar.arrays import Indices
from nearfar.words import format_tested

#: How much is tried inside a training fold.
Tuning = Literal["full", "holdout", "k", "none"]
#: What the user may ask for; "none" is for embeddings, which have nothing to tune by.
TUNINGS = ("full", "holdout", "k")
N_SPLITS = 5
#: Groups of a sample at least; where whole ones would be fewer, rows of all groups are drawn.
LEAST_GROUPS = 10 * N_SPLITS
INNER_SPLITS = {"full": 3, "holdout": 1, "k": 1, "none": 0}


@dataclass(frozen=True)
class Fold:
    """One split of the rows."""

    repeat: int
    fold: int
    train: Indices
    test: Indices


@dataclass(frozen=True)
class Scheme:
    """All folds, how they were made in words, and what was checked."""

    folds: list[Fold]
    n_splits: int
    words: str
    notes: list[str]
    #: scikit-learn's constructor of the same folds, for the lines that repeat the run.
    code: str | None
    #: The rows that were drawn, in their order; None if all are used.
    rows: Indices | None = None
    #: Folds in time that were asked for, of which some may be left out.
    n_asked: int | None = field(default=None, kw_only=True)
    #: Of sets whose units all folds share: how much those of training sets alone differ, at most.
    units_differ: float | None = field(default=None, kw_only=True)

    @property
    def told(self) -> dict[str, bool]:
        """What a task on one of the folds is told beyond the rows."""
        return {} if self.units_differ is None else {"common_units": True}

    @property
    def n_rows(self) -> int:
        """Rows that the folds are made of."""
        return len(self.folds[0].train) + len(self.folds[0].test)

    @property
    def test_share(self) -> float:
        """Test rows for each training row, averaged over the folds."""
        return float(np.mean([len(fold.test) / len(fold.train) for fold in self.folds]))


def make_scheme(
    codes: Indices,
    *,
    repeats: int,
    seed: int = 0,
    groups: NDArray[Any] | None = None,
    time: NDArray[Any] | None = None,
    n_test_rows: int = 0,
    cv: Any = None,
    X: Any = None,
    noun: str = "row",
    sample: int | None = None,
    stratified: bool = True,
) -> Scheme:
    """The folds for the data at hand.

    Parameters
    ----------
    codes : ndarray of int
        Class of each row.
    repeats : int
        How often the rows are shuffled and split anew.
    groups, time : ndarray, optional
        Groups that stay together; times, so that the past predicts the future.
    n_test_rows : int
        The last so many rows are a fixed test set.
    cv : int, splitter or iterable, optional
        The user's own folds.
    noun : str
        What a row is called in notes and errors.
    sample : int, optional
        Use so many rows only, drawn by :func:`sample_rows`; of a fixed test set its share. The
        user's own folds are used as they are.
    stratified : bool
        Whether codes are classes, whose shares all folds have; if not, as where the target is a
        number, they only say how rows are drawn.
    """
    n = len(codes)
    if sample is not None and sample < n and (cv is None or isinstance(cv, int | np.integer)):
        rows = _sampled(codes, sample, groups, n_test_rows, seed)
        within = make_scheme(
            codes[rows],
            repeats=repeats,
            seed=seed,
            groups=None if groups is None else groups[rows],
            time=None if time is None else time[rows],
            n_test_rows=int((rows >= n - n_test_rows).sum()),
            cv=cv,
            noun=noun,
            stratified=stratified,
        )
        return on_sample(within, rows, n, noun)
    if n_test_rows:
        cut = n - n_test_rows
        folds = [Fold(0, 0, np.arange(cut), np.arange(cut, n))]
        scheme = Scheme(folds, 1, f"one fixed test set of {n_test_rows} {noun}s", [], None)
    elif cv is not None and not isinstance(cv, int | np.integer):
        place = np.zeros((n, 1)) if X is None else X
        kept = codes if stratified else np.zeros(n)
        splits = list(check_cv(cv, kept, classifier=stratified).split(place, kept, groups))
        size = _splits_a_repeat(cv, len(splits))
        scheme = Scheme(_folds(splits, size), size, f"the folds given ({len(splits)})", [], None)
    elif time is not None:
        wanted = N_SPLITS if cv is None else int(cv)
        folds = list(_time_folds(time, wanted, noun))
        scheme = Scheme(folds, len(folds), _in_time(folds), [], None, n_asked=wanted)
    else:
        wanted = N_SPLITS if cv is None else int(cv)
        shares = codes if stratified else None
        scheme = _shuffled(shares, n, groups, wanted, repeats, seed, noun)
    if time is not None and groups is not None and not n_test_rows:
        scheme = _without_shared_groups(scheme, groups, noun)
    if time is not None and not n_test_rows and stratified:
        scheme = _with_two_classes(scheme, codes)
    _check(scheme, codes if stratified else None, n, noun)
    if groups is not None:
        scheme.notes.append(_check_groups(scheme, groups, noun))
    return scheme


def sample_rows(
    codes: Indices, size: int, *, groups: NDArray[Any] | None = None, seed: int = 0
) -> Indices:
    """Row numbers of a sample that has the shares of the classes, in the order of the rows.

    Whole groups are drawn where they are many, and otherwise rows of all groups alike. Of a rare
    class at least as many rows are kept as there are folds. A smaller sample is part of a larger
    one, but for groups.

    >>> codes = np.repeat([0, 1, 2], [900, 90, 10])
    >>> np.bincount(codes[sample_rows(codes, 100)]).tolist()
    [90, 9, 5]
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        return _stratified(codes, size, rng)
    _, members, counts = np.unique(groups, return_inverse=True, return_counts=True)
    share = size / len(codes)
    if share * len(counts) < LEAST_GROUPS:
        # Few groups: all take part, each with its share of every class.
        both = np.unique(np.stack([members, codes]), axis=1, return_inverse=True)[1]
        return _stratified(both.ravel(), size, rng, least=1)
    # The class of a group is that of its first row.
    firsts = codes[np.unique(members, return_index=True)[1]]
    chosen = _stratified(firsts, max(LEAST_GROUPS, round(share * len(counts))), rng)
    return np.flatnonzero(np.isin(members, chosen)).astype(np.intp)


def _stratified(
    codes: Indices, size: int, rng: np.random.Generator, least: int = N_SPLITS
) -> Indices:
    order = rng.permutation(len(codes))
    # Place of each row among those of its class.
    by_class = order[np.argsort(codes[order], kind="stable")]
    counts = np.bincount(codes)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    place = np.arange(len(codes)) - starts
    exact = counts * size / len(codes)
    kept = np.maximum(np.floor(exact), np.minimum(counts, least))
    # What rounding down leaves goes to the largest remainders.
    order = np.argsort(kept - exact, kind="stable")
    kept[order[: max(0, size - int(kept.sum()))]] += 1
    return np.sort(by_class[place < np.repeat(kept, counts)]).astype(np.intp)


def _sampled(
    codes: Indices, size: int, groups: NDArray[Any] | None, n_test_rows: int, seed: int
) -> Indices:
    """Rows drawn from those to train on, and from those of a fixed test set."""
    cut = len(codes) - n_test_rows
    parts = [slice(0, cut), slice(cut, None)] if n_test_rows else [slice(None)]
    return np.concatenate(
        [
            (part.start or 0)
            + sample_rows(
                codes[part],
                max(2, round(size * len(codes[part]) / len(codes))),
                groups=None if groups is None else groups[part],
                seed=seed,
            )
            for part in parts
        ]
    )


def on_sample(scheme: Scheme, rows: Indices, n: int, noun: str) -> Scheme:
    """Folds of a sample in the numbers of all rows."""
    folds = [Fold(f.repeat, f.fold, rows[f.train], rows[f.test]) for f in scheme.folds]
    words = f"{scheme.words}, on {len(rows):,} of {n:,} {noun}s"
    return replace(scheme, folds=folds, words=words, rows=rows)


def make_unlabelled_scheme(
    n: int,
    *,
    repeats: int,
    seed: int = 0,
    cv: Any = None,
    X: Any = None,
    sample: int | None = None,
) -> Scheme:
    """Folds of rows without labels: shuffled, or the user's own.

    >>> scheme = make_unlabelled_scheme(100, repeats=2)
    >>> scheme.words, scheme.code
    ('2 × 5-fold, shuffled, seed 0', 'RepeatedKFold(n_repeats=2, n_splits=5, random_state=0)')
    """
    if sample is not None and sample < n and (cv is None or isinstance(cv, int | np.integer)):
        rows = sample_rows(np.zeros(n, np.intp), sample, seed=seed)
        within = make_unlabelled_scheme(len(rows), repeats=repeats, seed=seed, cv=cv)
        return on_sample(within, rows, n, "row")
    if cv is not None and not isinstance(cv, int | np.integer):
        place = np.zeros((n, 1)) if X is None else X
        splits = list(check_cv(cv).split(place))
        size = _splits_a_repeat(cv, len(splits))
        words, code = f"the folds given ({len(splits)})", None
    else:
        size = N_SPLITS if cv is None else int(cv)
        splitter = RepeatedKFold(n_splits=size, n_repeats=repeats, random_state=seed)
        splits = list(splitter.split(np.zeros((n, 1))))
        words, code = f"{repeats} × {size}-fold, shuffled, seed {seed}", repr(splitter)
    scheme = Scheme(_folds(splits, size), size, words, [], code)
    _check_rows(scheme, n, "row")
    return scheme


def _splits_a_repeat(cv: Any, n_folds: int) -> int:
    """Folds that test every row once, where the splitter says how many these are."""
    n_repeats = getattr(cv, "n_repeats", 1)
    return n_folds // n_repeats if n_folds % n_repeats == 0 else n_folds


def _shuffled(
    codes: Indices | None,
    n: int,
    groups: NDArray[Any] | None,
    n_splits: int,
    repeats: int,
    seed: int,
    noun: str,
) -> Scheme:
    """Folds with the shares of the classes; without codes, of so many rows."""
    notes = []
    units, what = n, f"{noun}s"
    if codes is not None:
        units, what = int(np.bincount(codes).max()), f"{noun}s in the largest class"
    if groups is not None:
        units, what = len(np.unique(groups)), "groups"
    if units < 2:
        raise ValueError(
            f"All {noun}s are of one group: none can be held out. Are these the right groups?"
            if groups is not None
            else f"No class has two {noun}s: none can be held out."
            if codes is not None
            else f"There is one {noun} only: none can be held out."
        )
    if units < n_splits:
        notes.append(f"Only {units} {what}: {units} folds instead of {n_splits}.")
        n_splits = units
    if repeats < 1:
        raise ValueError(f"repeats={repeats} must be 1 or more.")
    if groups is not None and units <= 2 * n_splits and repeats > 1:
        # With so few groups, splitting anew gives much the same folds and no new knowledge.
        notes.append(f"Only {units} groups: they are split once, not {repeats} times.")
        repeats = 1
    place = np.zeros((n, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small classes are warned about by name
        if groups is None:
            made = RepeatedKFold if codes is None else RepeatedStratifiedKFold
            splitter = made(n_splits=n_splits, n_repeats=repeats, random_state=seed)
            splits = list(splitter.split(place, codes))
            kind, code = "stratified, " * (codes is not None), repr(splitter)
        else:
            shares = np.zeros(n, np.intp) if codes is None else codes
            splits = [
                split
                for repeat in range(repeats)
                for split in StratifiedGroupKFold(
                    n_splits, shuffle=True, random_state=seed + repeat
                ).split(place, shares, groups)
            ]
            kind, code = f"group-wise{' stratified' * (codes is not None)}, ", None
    words = f"{repeats} × {n_splits}-fold, {kind}shuffled, seed {seed}"
    return Scheme(_folds(splits, n_splits), n_splits, words, notes, code)


def _folds(splits: list[tuple[Any, Any]], size: int) -> list[Fold]:
    """Splits by repeat and number; so many are a repeat."""
    return [Fold(*divmod(i, size), *map(np.asarray, split)) for i, split in enumerate(splits)]


def _in_time(folds: list[Fold]) -> str:
    return f"{len(folds)} folds in time order: train on earlier rows, test on later ones"


def _time_folds(time: NDArray[Any], n_splits: int, noun: str) -> Iterator[Fold]:
    order = np.argsort(time, kind="stable")
    if len(order) <= n_splits:
        raise ValueError(f"{len(order)} {noun}s are too few for {n_splits} folds in time.")
    for i, (train, test) in enumerate(TimeSeriesSplit(n_splits).split(order)):
        rows, held = _before(time, order[train], order[test]), order[test]
        if len(rows):
            yield Fold(0, i, np.sort(rows), np.sort(held))


def _before(time: NDArray[Any], rows: Indices, held: Indices) -> Indices:
    """Rows of the past; those of the same moment as the first held-out row are not."""
    return rows[time[rows] < time[held].min()]


def _without_shared_groups(scheme: Scheme, groups: NDArray[Any], noun: str) -> Scheme:
    """Leave the training rows out whose group is tested."""
    folds = [
        Fold(f.repeat, f.fold, f.train[~np.isin(groups[f.train], groups[f.test])], f.test)
        for f in scheme.folds
    ]
    words = f"{scheme.words}; training {noun}s of tested groups left out"
    return replace(scheme, folds=folds, words=words, code=None)


def _with_two_classes(scheme: Scheme, codes: Indices) -> Scheme:
    """Leave out the folds in time whose past knows one class only."""
    folds = [f for f in scheme.folds if len(np.unique(codes[f.train])) > 1]
    left_out = len(scheme.folds) - len(folds)
    if scheme.folds and not folds:
        raise ValueError(
            "In every fold in time the past has a single class: the classes follow one another, "
            "and none can be told from the past. Compare without the time."
        )
    if not left_out:
        return scheme
    note = f"{left_out} of {len(scheme.folds)} folds left out: a single class in the past."
    words, notes = _in_time(folds), [*scheme.notes, note]
    return replace(scheme, folds=folds, n_splits=len(folds), words=words, notes=notes, code=None)


def _check(scheme: Scheme, codes: Indices | None, n: int, noun: str) -> None:
    if not scheme.folds:
        raise ValueError(f"There is no fold: the times leave no {noun} to train on.")
    _check_rows(scheme, n, noun)
    for fold in scheme.folds if codes is not None else ():
        if len(np.unique(codes[fold.train])) < 2:  # type: ignore[index]
            raise ValueError(
                f"fold {fold.fold} of repeat {fold.repeat} has a single class among its "
                f"{len(fold.train)} training {noun}s."
            )


def _check_rows(scheme: Scheme, n: int, noun: str) -> None:
    for fold in scheme.folds:
        where = f"fold {fold.fold} of repeat {fold.repeat}"
        for rows in (fold.train, fold.test):
            if len(rows) == 0:
                raise ValueError(
                    f"{where} has {len(fold.train)} training and {len(fold.test)} "
                    f"{format_tested(noun)}; it needs both."
                )
            if rows.min() < 0 or rows.max() >= n:
                raise ValueError(f"{where} names {noun}s outside 0 to {n - 1}.")
        if len(np.intersect1d(fold.train, fold.test)):
            raise ValueError(f"{where} has {noun}s that are both trained on and tested.")


def _check_groups(scheme: Scheme, groups: NDArray[Any], noun: str) -> str:
    """Assert that no group is on both sides, and say so."""
    if len(scheme.folds) == 1 and np.all(groups[scheme.folds[0].test] == UNKNOWN_GROUP):
        return (
            "The test file names no groups: whether one is also trained on cannot be checked. "
            f"Tuning keeps the groups of the training {noun}s together."
        )
    for fold in scheme.folds:
        shared = np.intersect1d(groups[fold.train], groups[fold.test])
        if len(shared):
            raise ValueError(
                f"Group {shared.tolist()[0]!r} is trained on and tested in fold {fold.fold} of "
                f"repeat {fold.repeat}."
            )
    return (
        f"Groups: {len(np.unique(groups))}; none is on both sides of "
        + (f"any of the {len(scheme.folds)} folds" if len(scheme.folds) > 1 else "the split")
        + " (checked)."
    )


def inner_splits(
    tuning: Tuning,
    codes: Indices,
    groups: NDArray[Any] | None = None,
    time: NDArray[Any] | None = None,
    *,
    stratified: bool = True,
) -> list[tuple[Indices, Indices]]:
    """Splits of a training fold for tuning: the same for every method, by the rules outside."""
    n, full = len(codes), tuning == "full"
    if not stratified:  # all are of one class, and none lacks another
        codes = np.zeros(n, np.intp)
    least = 2 if stratified else 1
    place = np.zeros((n, 1))
    if time is not None:
        order = np.argsort(time, kind="stable")
        splits = list(TimeSeriesSplit(3).split(order)) if full and n > 3 else []
        if not splits:
            cut = max(1, round(0.75 * n))
            splits = [(np.arange(cut), np.arange(cut, n))]
        in_time = [(_before(time, order[a], order[b]), order[b]) for a, b in splits if len(b)]
        if groups is not None:
            in_time = [(a[~np.isin(groups[a], groups[b])], b) for a, b in in_time]
        return [(a, b) for a, b in in_time if len(np.unique(codes[a])) >= least]
    splitter = inner_splitter(tuning, codes, groups, stratified=stratified)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return [
            (a, b)
            for a, b in splitter.split(place, codes, groups)
            if len(a) and len(b) and len(np.unique(codes[a])) >= least
        ]


def inner_splitter(
    tuning: Tuning,
    codes: Indices,
    groups: NDArray[Any] | None = None,
    *,
    stratified: bool = True,
) -> Any:
    """scikit-learn's splitter for tuning, for data without times.

    Where the training rows are all of one group, rows of it are split.
    """
    full = tuning == "full"
    n_groups = 0 if groups is None else len(np.unique(groups))
    if n_groups >= 2:
        if full and n_groups >= 3:
            return StratifiedGroupKFold(3, shuffle=True, random_state=0)
        return GroupShuffleSplit(1, test_size=0.25, random_state=0)
    if not stratified:
        few = len(codes) < 3
        whole = KFold(3, shuffle=True, random_state=0)
        return whole if full and not few else ShuffleSplit(1, test_size=0.25, random_state=0)
    counts = np.bincount(codes)
    counts = counts[counts > 0]
    if full:
        if counts.max() >= 3:
            return StratifiedKFold(3, shuffle=True, random_state=0)
        return KFold(3, shuffle=True, random_state=0)
    held = int(np.ceil(0.25 * len(codes)))
    if counts.min() >= 2 and held >= len(counts) and len(codes) - held >= len(counts):
        return StratifiedShuffleSplit(1, test_size=0.25, random_state=0)
    return ShuffleSplit(1, test_size=0.25, random_state=0)
