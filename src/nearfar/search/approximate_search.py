"""Approximate neighbors: a faiss index proposes candidates, which are ranked by exact distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import count_blas_threads, map_in_order, split_rows
from nearfar.search.candidates import SPARE, check_n_neighbors, ranked, without_self
from nearfar.search.exact_search import kneighbors
from nearfar.search.faiss_search import faiss_threads
from nearfar.search.placed_rows import PlacedRows, placed

INDEXES = ("ivf", "hnsw")
_FLOAT32 = np.dtype(np.float32)
# The effort is doubled until this fraction of the neighbors of _SAMPLE rows is found. The recall is
# then measured on as many other rows.
_RECALL = 0.95
_SAMPLE = 256
_LEAST_EFFORT = 8
# Minimum number of rows per list, below which its center cannot be estimated well.
_ROWS_IN_A_LIST = 39

_Search = Callable[[Floats, int, int], Indices]


def approximate_kneighbors(
    X: Floats,
    n_neighbors: int,
    random_state: int | np.random.RandomState | None,
    *,
    kind: str = "ivf",
) -> tuple[Matrix, Indices, float]:
    """Return approximate neighbors of each row, found by a faiss index, and the recall.

    The result is like that of :func:`~nearfar.search.exact_search.kneighbors` without queries. The
    recall is the fraction of the true neighbors that was found, measured on a sample of rows.

    ``kind`` "ivf" assigns rows to the nearest of about 4 √n centers and searches the lists closest
    to a query. "hnsw" walks along a graph of close rows, which takes longer to build. Both double
    their effort until they find 95% of the neighbors of a sample. The index is built on one thread:
    equal seeds give equal results.
    """
    n = len(X)
    check_n_neighbors(n_neighbors, n, without_self=True)
    random = check_random_state(random_state)
    seed = int(random.randint(np.iinfo(np.int32).max))
    rows, _ = placed(X, X)
    search, most = (_parted if kind == "ivf" else _graph)(rows, seed)
    wanted = n_neighbors + 1  # Each row finds itself.
    n_candidates = min(wanted + SPARE, n)

    def found(asked: Indices, effort: int) -> Indices:
        return search(rows.block(asked, _FLOAT32), n_candidates, effort)

    def recall_on(sample: Indices, effort: int) -> float:
        near = kneighbors(X, X[sample], n_neighbors=wanted)[1]
        hit = (near[:, :, None] == found(sample, effort)[:, None]).any(axis=2)
        return float(hit[near != sample[:, None]].mean())

    tuned_on, judged_on = np.array_split(random.permutation(n)[: 2 * _SAMPLE], 2)
    effort = min(_LEAST_EFFORT, most)
    while effort < most and recall_on(tuned_on, effort) < _RECALL:
        effort = min(2 * effort, most)
    recall = recall_on(judged_on, effort)

    distances = np.empty((n, wanted))
    indices = np.empty((n, wanted), np.intp)

    def settle(block: slice) -> None:
        asked = np.arange(n)[block]
        candidates = found(asked, effort)
        short = np.asarray((candidates < 0).any(axis=1))
        measured, order = ranked(X, X[block], np.where(short[:, None], 0, candidates))
        distances[block], indices[block] = measured[:, :wanted], order[:, :wanted]
        if short.any():  # The index found too few candidates for these rows: search them exactly.
            again = asked[short]
            distances[again], indices[again] = kneighbors(
                X, X[again], n_neighbors=wanted, n_threads=1
            )

    blocks = split_rows(n, 64 * n_candidates, max_rows=1024)
    for _ in map_in_order(settle, blocks, count_blas_threads()):
        pass
    return *without_self(distances, indices), recall


def _parted(rows: PlacedRows, seed: int) -> tuple[_Search, int]:
    """Build an inverted file. Its effort is the number of lists searched."""
    n, p = rows.X.shape
    n_parts = max(1, min(int(4 * np.sqrt(n)), n // _ROWS_IN_A_LIST))
    with faiss_threads(1) as faiss:
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(p), p, n_parts, faiss.METRIC_L2)
        index.own_fields = False
        index.cp.seed = seed
        trained = np.random.RandomState(seed).permutation(n)[: 64 * n_parts]
        index.train(rows.block(np.sort(trained), _FLOAT32))
        _add(index, rows)

    def search(queries: Floats, n_candidates: int, effort: int) -> Indices:
        with faiss_threads(1) as faiss:
            how = faiss.SearchParametersIVF(nprobe=effort)
            return np.asarray(index.search(queries, n_candidates, params=how)[1], np.intp)

    return search, n_parts


def _graph(rows: PlacedRows, seed: int) -> tuple[_Search, int]:
    """Build a hierarchical graph of close rows. Its effort is the size of the candidate list."""
    n, p = rows.X.shape
    with faiss_threads(1) as faiss:
        index = faiss.IndexHNSWFlat(p, 16)
        index.hnsw.efConstruction = 100
        index.hnsw.rng = faiss.RandomGenerator(seed)
        _add(index, rows)

    def search(queries: Floats, n_candidates: int, effort: int) -> Indices:
        with faiss_threads(1) as faiss:
            how = faiss.SearchParametersHNSW(efSearch=max(effort, n_candidates))
            return np.asarray(index.search(queries, n_candidates, params=how)[1], np.intp)

    return search, n


def _add(index: Any, rows: PlacedRows) -> None:
    n, p = rows.X.shape
    for block in split_rows(n, 4 * p, max_rows=1 << 16):
        index.add(rows.block(block, _FLOAT32))
