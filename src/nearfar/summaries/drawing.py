"""Random pairs, triplets and quadruplets drawn from labels without enumerating all of them.

The rows are sorted by class, and each constraint has a rank: constraints of the first class come
first, and within a class the rank is a number in a mixed base. Ranks are drawn, then decoded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices
from nearfar.labels import encode_known_labels

# Maximum number of triplets or quadruplets that are numbered with 64-bit integers. Sums of larger
# numbers could overflow.
_MAX_RANK = 2**62


class ClassBlocks(NamedTuple):
    """Rows sorted by class. Class c has ``size[c]`` rows, which begin at position ``start[c]``."""

    rows: Indices
    start: NDArray[np.int64]
    size: NDArray[np.int64]
    #: Number of rows, including rows of unknown class.
    n_samples: int


def sort_by_class(y: Any, unknown: Any = None) -> ClassBlocks:
    """Sort the rows of known classes by class."""
    codes, is_known = encode_known_labels(y, unknown)
    if is_known.all():
        rows = np.argsort(codes, kind="stable")
    else:
        rows, codes = np.flatnonzero(is_known), codes[is_known]
        rows = rows[np.argsort(codes, kind="stable")]
    size = np.bincount(codes).astype(np.int64)
    return ClassBlocks(rows, np.cumsum(size) - size, size, is_known.size)


def limit_draws(n_requested: int | None, blocks: ClassBlocks) -> int:
    """Return the requested number of draws. The default is 20 c (c - 1) for c classes.

    The default is at least 1,000 and at most 100,000.
    """
    n_classes = blocks.size.size
    return (
        min(max(20 * n_classes * (n_classes - 1), 1_000), 100_000)
        if n_requested is None
        else n_requested
    )


def limit_comparisons(n_requested: int | None, n_pairs: int) -> int:
    """Return the requested number of comparisons. The default is 20 per pair.

    The default is at least 1,000 and at most 100,000.
    """
    return min(max(20 * n_pairs, 1_000), 100_000) if n_requested is None else n_requested


def draw_ranks(total: int, cap: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """Draw at most ``cap`` distinct integers below ``total``, uniformly."""
    if cap >= total:
        return np.arange(total)
    if cap > total // 3:
        return rng.permutation(total)[:cap]
    ranks = np.empty(0, np.int64)
    # Draw again until there are enough distinct integers.
    while ranks.size < cap:
        new_ranks = rng.randint(total, size=cap - ranks.size, dtype=np.int64)
        ranks = np.sort(np.concatenate([ranks, new_ranks]))
        # `np.unique` would use hashes here, which takes ten times as long.
        ranks = ranks[np.diff(ranks, prepend=-1) > 0]
    return rng.permutation(ranks)


def _locate_ranks(
    sizes: NDArray[np.int64], ranks: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the class of each item and its position in the class, from its overall position.

    Class c has ``sizes[c]`` items.
    """
    ends = np.cumsum(sizes)
    c = np.searchsorted(ends, ranks, side="right")
    return c, ranks - (ends - sizes)[c]


def draw_within(blocks: ClassBlocks, cap: int, rng: np.random.RandomState) -> Indices:
    """Draw pairs of rows of the same class."""
    return _decode_within(blocks, draw_ranks(_count_within_pairs(blocks), cap, rng))


def _count_within_pairs(blocks: ClassBlocks) -> int:
    return int(np.sum(blocks.size * (blocks.size - 1) // 2))


def _decode_within(blocks: ClassBlocks, ranks: NDArray[np.int64]) -> Indices:
    rows, start, size, _ = blocks
    c, rank = _locate_ranks(size * (size - 1) // 2, ranks)
    i, j = _unrank_pair(rank)
    return rows[np.column_stack([start[c] + i, start[c] + j])]


def _unrank_pair(rank: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return i and j, with i < j, such that ``rank = j (j - 1) / 2 + i``."""
    j = ((1 + np.sqrt(1 + 8.0 * rank)) / 2).astype(np.int64)
    # Rounding can make j too large by one, but not too small.
    j -= j * (j - 1) // 2 > rank
    return rank - j * (j - 1) // 2, j


def draw_between(blocks: ClassBlocks, cap: int, rng: np.random.RandomState) -> Indices:
    """Draw pairs of rows of different classes."""
    return _decode_between(blocks, draw_ranks(_count_between_pairs(blocks), cap, rng))


def _count_between_pairs(blocks: ClassBlocks) -> int:
    return int(np.sum(blocks.size * (blocks.rows.size - blocks.start - blocks.size)))


def _decode_between(blocks: ClassBlocks, ranks: NDArray[np.int64]) -> Indices:
    # A pair belongs to the first of its two classes, so that it is counted only once.
    rows, start, size, _ = blocks
    end = start + size
    later = rows.size - end
    c, rank = _locate_ranks(size * later, ranks)
    i, j = np.divmod(rank, later[c])
    return rows[np.column_stack([start[c] + i, end[c] + j])]


def draw_triplets(blocks: ClassBlocks, cap: int, rng: np.random.RandomState) -> Indices:
    """Draw triplets: the first two rows have the same class, and the third has another class."""
    rows, start, size, _ = blocks
    n_others = rows.size - size
    if np.sum(size * (size - 1.0) * n_others) > _MAX_RANK:
        raise ValueError(
            f"y has {rows.size} rows, with more triplets than 64-bit integers can count; "
            "pass the labels of a random subset of the rows."
        )
    sizes = size * (size - 1) * n_others
    c, rank = _locate_ranks(sizes, draw_ranks(int(sizes.sum()), cap, rng))
    pair, far = np.divmod(rank, n_others[c])
    anchor, near = np.divmod(pair, size[c] - 1)
    # The near row must differ from the anchor, so skip the anchor. The far row must be in another
    # class, so skip the class of the anchor.
    near += near >= anchor
    far += (far >= start[c]) * size[c]
    return rows[np.column_stack([start[c] + anchor, start[c] + near, far])]


def draw_quadruplets(blocks: ClassBlocks, cap: int, rng: np.random.RandomState) -> Indices:
    """Draw quadruplets (a, b, c, d), where a and b have the same class, but c and d do not."""
    n_within, n_between = _count_within_pairs(blocks), _count_between_pairs(blocks)
    if n_within * n_between <= _MAX_RANK:
        ranks = draw_ranks(n_within * n_between, cap, rng)
        within, between = np.divmod(ranks, max(n_between, 1))
    else:
        # Draw the two pairs separately, because there are too many quadruplets to number them with
        # 64-bit integers. Few of them are drawn twice, because ``cap`` is much smaller than their
        # number.
        ranks_drawn = np.empty((0, 2), np.int64)
        while len(ranks_drawn) < cap:
            sides = [
                rng.randint(n, size=cap - len(ranks_drawn), dtype=np.int64)
                for n in (n_within, n_between)
            ]
            ranks_drawn = np.unique(np.vstack([ranks_drawn, np.column_stack(sides)]), axis=0)
        within, between = rng.permutation(ranks_drawn).T
    return np.hstack([_decode_within(blocks, within), _decode_between(blocks, between)])


def draw_joined_triplets(
    near: Indices, far: Indices, n_samples: int, cap: int, rng: np.random.RandomState
) -> Indices:
    """Draw triplets (anchor, near, far) from a near pair and a far pair that share the anchor."""
    sides = [np.vstack([pairs, pairs[:, ::-1]]) for pairs in (near, far)]
    sides = [ends[np.argsort(ends[:, 0], kind="stable")] for ends in sides]
    counts = [np.bincount(ends[:, 0], minlength=n_samples) for ends in sides]
    start = [np.cumsum(count) - count for count in counts]
    sizes = counts[0] * counts[1]
    row, rank = _locate_ranks(sizes, draw_ranks(int(sizes.sum()), cap, rng))
    i, j = np.divmod(rank, counts[1][row])
    return np.column_stack([row, sides[0][start[0][row] + i, 1], sides[1][start[1][row] + j, 1]])
