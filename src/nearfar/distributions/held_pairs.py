"""Cache for the dissimilarities of all pairs of one stack of Gaussians."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from nearfar.arrays import Matrix
from nearfar.distributions.dissimilarities import dissimilarity
from nearfar.summaries.gaussians import Gaussians

# Each entry of the cache contains the Gaussians, the metric, and the matrix of dissimilarities.
_Cache = list[tuple[Gaussians, str, Matrix]]
_CACHE: ContextVar[_Cache | None] = ContextVar("dissimilarity_cache", default=None)


@contextmanager
def cache_dissimilarities() -> Iterator[None]:
    """Cache the results of :func:`compute_pairwise` within the context.

    The cache stores one n×n matrix per metric and stack of n Gaussians.
    """
    token = _CACHE.set([])
    try:
        yield
    finally:
        _CACHE.reset(token)


def compute_pairwise(gaussians: Gaussians, metric: str, n_jobs: int | None) -> Matrix:
    """Return the dissimilarities of all pairs of Gaussians, from the cache if possible.

    The caller may modify the returned matrix.

    >>> gaussians = Gaussians([[0.0], [2.0]], [[[1.0]], [[4.0]]])
    >>> with cache_dissimilarities():
    ...     D = compute_pairwise(gaussians, "mean", None)
    ...     bool((D == compute_pairwise(gaussians, "mean", None)).all())
    True
    """
    cache = _CACHE.get()
    if cache is None:
        return dissimilarity(gaussians, metric=metric, n_jobs=n_jobs)
    for cached_gaussians, name, D in cache:
        if cached_gaussians is gaussians and name == metric:
            return D.copy()
    D = dissimilarity(gaussians, metric=metric, n_jobs=n_jobs)
    cache.append((gaussians, metric, D.copy()))
    return D
