"""Rows that are tested beside a copy of themselves, exact or nearly so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from nearfar.app.tables.columns import MIN_ROWS_FOR_ID
from nearfar.app.tables.traps import Folds, Trap, frame_codes
from nearfar.blocks import split_rows
from nearfar.search.exact_search import kneighbors

# Near copies: the share of the usual distance to the nearest row, rows looked at, rows among which
# that distance is taken and for how many, and directions in which candidates are looked for.
_NEAR = 1e-3
_NEAR_ROWS = 5000
_NEAR_AMONG = 2000
_NEAR_MEASURED = 300
_NEAR_DIRECTIONS = 8
# How many times farther rows are counted, to say what chance would bring.
_NEAR_WIDER = 10
# Characters of a name that a warning shows.
_NAME = 40


def duplicates(
    X: Any,
    codes: NDArray[np.intp],
    folds: Folds,
    *,
    noun: str = "row",
    names: Sequence[Any] | None = None,
    same: NDArray[np.intp] | None = None,
    target: str = "label",
) -> list[Trap]:
    """Rows tested with an exact copy among the training rows.

    Cost: O(n p), one hash a row.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The columns in use. Missing values equal one another.
    codes : ndarray of shape (n_samples,)
        The class of each row.
    folds : iterable of (train, test)
        Row numbers.
    noun : str, default="row"
        What a row is called.
    names : sequence, optional
        Names of the rows, shown instead of their numbers.
    same : ndarray of shape (n_samples,), optional
        What :func:`same_rows` gave, if it is known.
    target : str, default="label"
        What codes stand for.

    Returns
    -------
    list of Trap
        One warning, or none.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [0.0], [2.0]])
    >>> found = duplicates(X, np.array([0, 0, 1, 1]), [(np.array([0, 1]), np.array([2, 3]))])
    >>> found[0].text[:65]
    '1 of 2 tested rows has an exact copy among its training rows (row'
    """
    same = same_rows(X) if same is None else same
    n = len(same)
    # A number for each pair of row content and class.
    labelled = np.unique(same * (codes.max() + 1) + codes, return_inverse=True)[1]
    tested, copied, contradicted = np.zeros((3, n), bool)
    pairs: dict[int, int] = {}
    for train, test in folds:
        copies = np.bincount(same[train], minlength=n)[same[test]]
        agreeing = np.bincount(labelled[train], minlength=n)[labelled[test]]
        tested[test] = True
        copied[test] |= copies > 0
        contradicted[test] |= copies > agreeing
        for row in np.asarray(test)[copies > 0][: 5 - len(pairs)]:
            pairs[int(row)] = int(train[np.argmax(same[train] == same[row])])
    count = int(copied.sum())
    if not count:
        return []
    called = str if names is None else lambda row: str(names[row])[:_NAME]
    shown = ", ".join(f"{called(row)} = {called(other)}" for row, other in pairs.items())
    has, its = ("has", "its") if count == 1 else ("have", "their")
    text = (
        f"{count:,} of {tested.sum():,} tested {noun}s {has} an exact copy among {its} training "
        f"{noun}s ({noun}s {shown}{', ...' if count > len(pairs) else ''})"
    )
    if contradicted.any():
        text += f", {contradicted.sum():,} of them with another {target}"
    text += (
        ". If they are one case entered twice, errors come out too low: remove the copies, or "
        "give them a common group with --groups."
    )
    return [Trap("duplicates", text)]


def same_rows(X: Any) -> NDArray[np.intp]:
    """A number for each row, in the order of their first, the same for rows that are equal.

    >>> import numpy as np
    >>> same_rows(np.array([[1.0, np.nan], [0.0, 2.0], [1.0, np.nan]])).tolist()
    [0, 1, 0]
    """
    rows = _as_codes(X)
    size = rows.shape[1] * rows.dtype.itemsize
    keys: list[int] = []
    for start in range(0, len(rows), 128):  # small blocks stay in the cache
        content = _comparable(rows[start : start + 128]).tobytes()
        keys += [hash(content[at : at + size]) for at in range(0, len(content), size)]
    _, first, same = np.unique(keys, return_index=True, return_inverse=True)
    # Different rows of one key are next to impossible, and yet would be called copies.
    again = np.setdiff1d(np.arange(len(rows)), first)
    for block in split_rows(len(again), 4 * size):
        own, its = (_comparable(rows[at]) for at in (again[block], first[same[again[block]]]))
        if own.tobytes() != its.tobytes():
            texts = np.array([_comparable(row[None]).tobytes() for row in rows], dtype=object)
            _, first, same = np.unique(texts, return_index=True, return_inverse=True)
            break
    order = np.argsort(np.argsort(first))
    return np.asarray(order[same.reshape(-1)], dtype=np.intp)


def _comparable(block: NDArray[Any]) -> NDArray[Any]:
    """Rows whose bytes are the same where their values are."""
    block = np.ascontiguousarray(block)
    if block.dtype.kind == "f":
        block = block + block.dtype.type(0)  # -0.0 becomes 0.0
        block[np.isnan(block)] = np.nan  # one of the many NaNs
    return block


def _as_codes(X: Any) -> NDArray[Any]:
    """Rows as an array, by :func:`frame_codes` if they are none."""
    if not hasattr(X, "iloc"):
        return np.asarray(X)
    kinds = set(X.dtypes)
    if len(kinds) == 1 and isinstance(one := kinds.pop(), np.dtype) and one.kind == "f":
        return np.asarray(X.to_numpy())  # no copy
    return frame_codes(X)


@dataclass
class _Scale:
    """How rows are standardised, and what is usual among them; learned of a sample."""

    centre: NDArray[np.float64]
    weight: NDArray[np.float64]  # 0 for what is constant in the sample
    usual: float  # the distance to the nearest row, of three quarters of the rows at most

    @classmethod
    def of(cls, rows: NDArray[Any], n_rows: int) -> _Scale:
        """What a sample of so many different rows says."""
        Z = np.array(rows, dtype=np.float64)
        known = ~np.isnan(Z)
        counts = np.maximum(known.sum(axis=0), 1)
        centre = np.where(known, Z, 0.0).sum(axis=0) / counts
        Z = np.where(known, Z - centre, 0.0)
        spread = np.sqrt((Z**2).sum(axis=0) / counts)
        varies = spread > 1e-12 * np.maximum(np.abs(centre), np.finfo(float).tiny)
        weight = np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0)
        Z *= weight
        # Among a tenth of the rows few meet their copy, should all of them have some.
        few = Z[: max(50, n_rows // 10)]
        near = kneighbors(few, few[:_NEAR_MEASURED], n_neighbors=2)[0][:, 1]
        usual, high = (float(part) for part in np.quantile(near, [0.75, 0.95]))
        # Of so many dimensions, 1 - exp(-c r^d) of the rows have one nearer than r.
        steep = np.log(high / usual) if usual > 0 else 0.0
        dimension = max(1.0, min(rows.shape[1], 0.77 / steep if steep > 0 else np.inf))
        return cls(centre, weight, usual * (len(few) / n_rows) ** (1 / dimension))

    def projected(self, rows: NDArray[Any], seed: int) -> NDArray[np.float64]:
        """Rows in few directions, in which no two are farther apart than they are."""
        p = rows.shape[1]
        wide = np.random.default_rng(seed).normal(size=(p, min(p, _NEAR_DIRECTIONS)))
        map_ = self.weight[:, None] * np.linalg.qr(wide)[0]
        found = np.empty((len(rows), map_.shape[1]))
        for block in split_rows(len(rows), 16 * p):
            part = np.asarray(rows[block], dtype=np.float64) - self.centre
            part[np.isnan(part)] = 0.0
            found[block] = part @ map_
        return found

    def distances(
        self, rows: NDArray[Any], one: NDArray[np.intp], other: NDArray[np.intp]
    ) -> NDArray[np.float64]:
        """Distances of pairs of rows; infinite where they do not miss the same values."""
        found = np.full(len(one), np.inf)
        fixed = self.weight == 0
        for block in split_rows(len(one), 64 * rows.shape[1]):
            a, b = (np.asarray(rows[side[block]], np.float64) for side in (one, other))
            gaps = np.isnan(a)
            unlike = (gaps != np.isnan(b)) | ((a != b) & ~gaps & fixed)
            apart = np.where(gaps | unlike, 0.0, (a - b) * self.weight)
            length = np.sqrt((apart**2).sum(axis=1))
            found[block] = np.where(unlike.any(axis=1), np.inf, length)
        return found


def near_copies(
    X: Any,
    folds: Folds,
    *,
    noun: str = "row",
    same: NDArray[np.intp] | None = None,
    seed: int = 0,
) -> list[Trap]:
    """Rows tested with a copy among the training rows that is not quite exact.

    Of at most 5,000 rows, those whose distance to a training row is below a thousandth of the
    usual distance to the nearest row, columns being standardised. As few as chance would bring,
    judged by how many are nearer than a hundredth, are not warned about.

    Cost: O(n p), and a search in 8 dimensions.

    Parameters
    ----------
    X : DataFrame or array of shape (n_samples, n_features)
        The columns in use.
    folds : iterable of (train, test)
        Row numbers.
    noun : str, default="row"
        What a row is called.
    same : ndarray of shape (n_samples,), optional
        What :func:`same_rows` gave, if it is known.
    seed : int, default=0
        For the rows drawn.

    Returns
    -------
    list of Trap
        One warning, or none.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 5))
    >>> X[59] = X[0] + 1e-7
    >>> found = near_copies(X, [(np.arange(30), np.arange(30, 60))])
    >>> found[0].text[:70]
    '1 of 30 tested rows has a nearly exact copy among its training rows (r'
    """
    rows = _as_codes(X)
    same = same_rows(X) if same is None else same
    cuts = [(np.asarray(train), np.asarray(test)) for train, test in folds]
    firsts = np.unique(same, return_index=True)[1]
    if len(firsts) < MIN_ROWS_FOR_ID:
        return []
    tested = np.unique(np.concatenate([test for _, test in cuts]))
    random = np.random.default_rng(seed)
    looked = tested
    if len(tested) > _NEAR_ROWS:
        looked = np.sort(random.choice(tested, _NEAR_ROWS, replace=False))
    drawn = random.permutation(firsts)[:_NEAR_AMONG]
    scale = _Scale.of(rows[drawn], len(firsts))
    reach = _NEAR * scale.usual
    if not reach > 0:
        return []
    places = scale.projected(rows[firsts] if len(firsts) < len(rows) else rows, seed)
    gaps, found = cKDTree(places).query(
        places[same[looked]], k=min(6, len(firsts)), distance_upper_bound=_NEAR_WIDER * reach
    )
    at, rank = np.nonzero(np.isfinite(gaps) & (found != same[looked][:, None]))
    one, other = looked[at], found[at, rank]
    distances = scale.distances(rows, one, firsts[other])
    near = distances < reach
    pairs = _across(one[near], other[near], same, cuts)
    # Without copies, the number grows with the distance, or faster.
    n_near, n_wider = (len(np.unique(one[distances < f * reach])) for f in (1, _NEAR_WIDER))
    chance = (n_wider - n_near) / (_NEAR_WIDER - 1)
    if len(pairs) <= chance + 3 * np.sqrt(chance):
        return []
    return [Trap("duplicates", _near_text(pairs, len(looked), len(tested), noun))]


def _across(
    one: NDArray[np.intp],
    other: NDArray[np.intp],
    same: NDArray[np.intp],
    cuts: list[tuple[NDArray[np.intp], NDArray[np.intp]]],
) -> dict[int, int]:
    """For each row of the pairs of row and content, a training row of that content."""
    pairs: dict[int, int] = {}
    if not len(one):
        return pairs
    place = np.full(len(same), -1)
    for train, test in cuts:
        is_tested = np.isin(one, test)
        if not is_tested.any():
            continue
        place[:] = -1
        place[same[train]] = train
        there = is_tested & (place[other] >= 0)
        for row, content in zip(one[there].tolist(), other[there].tolist(), strict=True):
            pairs.setdefault(row, int(place[content]))
    return dict(sorted(pairs.items()))


def _near_text(pairs: dict[int, int], n_looked: int, n_tested: int, noun: str) -> str:
    count = len(pairs)
    shown = ", ".join(f"{row} ≈ {other}" for row, other in list(pairs.items())[:5])
    has, its = ("has", "its") if count == 1 else ("have", "their")
    of = f"{n_looked:,} tested {noun}s"
    of += f" that were looked at, of {n_tested:,}," if n_looked < n_tested else ""
    return (
        f"{count:,} of {of} {has} a nearly exact copy among {its} training {noun}s ({noun}s {shown}"
        f"{', ...' if count > 5 else ''}): a thousand times nearer than {noun}s usually are. If "
        "they are one case recorded twice, errors come out too low: remove the copies, or give "
        "them a common group with --groups."
    )
