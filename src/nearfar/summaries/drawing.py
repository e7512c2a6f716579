"""Random constraints drawn from labels, without a list of all there are.

With the rows sorted by class, each constraint has a rank: those of the first class come first, and
within a class the rank is a number in a mixed base. Ranks are drawn and decoded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nearfar.arrays import Indices
from nearfar.labels import encode_labels

# Ranks of constraints are 64-bit integers; beyond this their sums could overflow.
_MAX_RANK = 2**62


class ClassBlocks(NamedTuple):
    """Rows sorted by class: class c has ``size[c]`` of them from place ``start[c]`` on."""

    rows: Indices
    start: NDArray[np.int64]
    size: NDArray[np.int64]


def class_blocks(y: Any) -> ClassBlocks:
    """Sort the rows by class."""
    _, codes = encode_labels(y)
    size = np.bincount(codes).astype(np.int64)
    return ClassBlocks(np.argsort(codes, kind="stable"), np.cumsum(size) - size, size)


def cap_on(asked: int | None, blocks: ClassBlocks) -> int:
    """How many to draw: what was asked for, else 20 for each pair of classes within limits."""
    n_classes = blocks.size.size
    return min(max(20 * n_classes * (n_classes - 1), 1_000), 100_000) if asked is None else asked


def _draw_ranks(total: int, cap: int, rng: np.random.RandomState) -> NDArray[np.int64]:
    """At most ``cap`` distinct integers below ``total``, each set of them equally likely."""
    if cap >= total:
        return np.arange(total)
    if cap > total // 3:
        return rng.permutation(total)[:cap]
    ranks = np.empty(0, np.int64)
    while ranks.size < cap:  # a repeated draw is drawn again
        fresh = rng.randint(total, size=cap - ranks.size, dtype=np.int64)
        ranks = np.sort(np.concatenate([ranks, fresh]))
        ranks = ranks[np.diff(ranks, prepend=-1) > 0]  # np.unique hashes, ten times slower
    return rng.permutation(ranks)


def _draw_in_blocks(
    sizes: NDArray[np.int64], cap: int, rng: np.random.RandomState
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw from constraints of which class c has ``sizes[c]``: the class, and the rank in it."""
    ends = np.cumsum(sizes)
    ranks = _draw_ranks(int(sizes.sum()), cap, rng)
    c = np.searchsorted(ends, ranks, side="right")
    return c, ranks - (ends - sizes)[c]


def draw_within(blocks: ClassBlocks, cap: int, rng: np.random.RandomState) -> Indices:
    """Pairs of rows of one class."""
    rows, start, size = blocks
    c, rank = _draw_in_blocks(size * (size - 1) // 2, cap, rng)
    i, j = _unrank_pair(rank)
    return rows[np.column_stack([start[c] + i, start[c] + j])]


def _unrank_pair(rank: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The i < j with ``rank = j (j - 1) / 2 + i``."""
    j = ((1 + np.sqrt(1 + 8.0 * rank)) / 2).astype(np.int64)
    # Rounding can lift the root to the next integer, but never below one that it has reached.
    j -= j * (j - 1) // 2 > rank
    return rank - j * (j - 1) // 2, j


def draw_between(blocks: ClassBlocks, cap: int, rng: np.random.RandomState) -> Indices:
    """Pairs of rows of two classes, each counted with the first of them."""
    rows, start, size = blocks
    end = start + size
    later = rows.size - end
    c, rank = _draw_in_blocks(size * later, cap, rng)
    i, j = np.divmod(rank, later[c])
    return rows[np.column_stack([start[c] + i, end[c] + j])]


def draw_triplets(blocks: ClassBlocks, cap: int, rng: np.random.RandomState) -> Indices:
    """Two rows of one class in order, and one of another."""
    rows, start, size = blocks
    others = rows.size - size
    if np.sum(size * (size - 1.0) * others) > _MAX_RANK:
        raise ValueError(
            f"y has {rows.size} rows, with more triplets than 64-bit integers can count; "
            "draw from a random subset of the rows."
        )
    c, rank = _draw_in_blocks(size * (size - 1) * others, cap, rng)
    pair, far = np.divmod(rank, others[c])
    anchor, near = np.divmod(pair, size[c] - 1)
    near += near >= anchor  # step over the anchor
    far += (far >= start[c]) * size[c]  # step over the anchor's class
    return rows[np.column_stack([start[c] + anchor, start[c] + near, far])]
