"""Approximate neighbors: a faiss index proposes candidates, which are ranked by exact distance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from nearfar.arrays import Floats, Indices, Matrix
from nearfar.blocks import count_blas_threads, map_in_order, split_rows
from nearfar.search.candidates import SPARE, check_n_neighbors, rank_candidates, remove_self
from nearfar.search.exact_search import kneighbors
from nearfar.search.faiss_search import set_faiss_threads
from nearfar.search.placed_rows import PlacedRows, place_rows

INDEXES = ("ivf", "hnsw")
_FLOAT32 = np.dtype(np.float32)
# Minimum recall: fraction of the true neighbors that must be found for a sample of rows. The search
# effort is doubled until this recall is reached.
_RECALL = 0.95
# Number of rows in the sample with which the search effort is tuned. A second sample of the same
# size measures the final recall.
_SAMPLE = 256
# Search effort of the first attempt. The effort is the number of lists searched ("ivf") or the size
# of the candidate list ("hnsw").
_MIN_EFFORT = 8
# Minimum number of rows per list. With fewer rows, the center of a list is estimated poorly.
_MIN_ROWS_PER_LIST = 39

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
    check_n_neighbors(n_neighbors, n, excludes_self=True)
    random = check_random_state(random_state)
    seed = int(random.randint(np.iinfo(np.int32).max))
    rows, _ = place_rows(X, X)
    search, max_effort = (_build_inverted_file if kind == "ivf" else _build_graph)(rows, seed)
    n_requested = n_neighbors + 1  # Search for one more neighbor, because each row finds itself.
    n_candidates = min(n_requested + SPARE, n)

    def find_candidates(query_ids: Indices, effort: int) -> Indices:
        return search(rows.block(query_ids, _FLOAT32), n_candidates, effort)

    def measure_recall(sample: Indices, effort: int) -> float:
        neighbors = kneighbors(X, X[sample], n_neighbors=n_requested)[1]
        is_found = (neighbors[:, :, None] == find_candidates(sample, effort)[:, None]).any(axis=2)
        return float(is_found[neighbors != sample[:, None]].mean())

    tuning_rows, test_rows = np.array_split(random.permutation(n)[: 2 * _SAMPLE], 2)
    effort = min(_MIN_EFFORT, max_effort)
    while effort < max_effort and measure_recall(tuning_rows, effort) < _RECALL:
        effort = min(2 * effort, max_effort)
    recall = measure_recall(test_rows, effort)

    distances = np.empty((n, n_requested))
    indices = np.empty((n, n_requested), np.intp)

    def process_block(block: slice) -> None:
        query_ids = np.arange(n)[block]
        candidates = find_candidates(query_ids, effort)
        has_too_few = np.asarray((candidates < 0).any(axis=1))
        measured, order = rank_candidates(
            X, X[block], np.where(has_too_few[:, None], 0, candidates)
        )
        distances[block], indices[block] = measured[:, :n_requested], order[:, :n_requested]
        if has_too_few.any():
            # Rows for which the index found too few candidates are searched exactly.
            incomplete = query_ids[has_too_few]
            distances[incomplete], indices[incomplete] = kneighbors(
                X, X[incomplete], n_neighbors=n_requested, n_threads=1
            )

    blocks = split_rows(n, 64 * n_candidates, max_rows=1024)
    for _ in map_in_order(process_block, blocks, count_blas_threads()):
        pass
    return *remove_self(distances, indices), recall


def _build_inverted_file(rows: PlacedRows, seed: int) -> tuple[_Search, int]:
    """Build an inverted-file index. The search effort is the number of lists searched."""
    n, p = rows.X.shape
    n_lists = max(1, min(int(4 * np.sqrt(n)), n // _MIN_ROWS_PER_LIST))
    with set_faiss_threads(1) as faiss:
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(p), p, n_lists, faiss.METRIC_L2)
        index.own_fields = False
        index.cp.seed = seed
        training_rows = np.random.RandomState(seed).permutation(n)[: 64 * n_lists]
        index.train(rows.block(np.sort(training_rows), _FLOAT32))
        _add_rows(index, rows)

    def search(queries: Floats, n_candidates: int, effort: int) -> Indices:
        with set_faiss_threads(1) as faiss:
            parameters = faiss.SearchParametersIVF(nprobe=effort)
            return np.asarray(index.search(queries, n_candidates, params=parameters)[1], np.intp)

    return search, n_lists


def _build_graph(rows: PlacedRows, seed: int) -> tuple[_Search, int]:
    """Build a hierarchical graph of close rows. The search effort is the candidate list's size."""
    n, p = rows.X.shape
    with set_faiss_threads(1) as faiss:
        index = faiss.IndexHNSWFlat(p, 16)
        index.hnsw.efConstruction = 100
        index.hnsw.rng = faiss.RandomGenerator(seed)
        _add_rows(index, rows)

    def search(queries: Floats, n_candidates: int, effort: int) -> Indices:
        with set_faiss_threads(1) as faiss:
            parameters = faiss.SearchParametersHNSW(efSearch=max(effort, n_candidates))
            return np.asarray(index.search(queries, n_candidates, params=parameters)[1], np.intp)

    return search, n


def _add_rows(index: Any, rows: PlacedRows) -> None:
    n, p = rows.X.shape
    for block in split_rows(n, 4 * p, max_rows=1 << 16):
        index.add(rows.block(block, _FLOAT32))
