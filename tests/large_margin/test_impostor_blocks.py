"""Impostors by blocks, against all distances; however rows are divided."""

import tracemalloc

import numpy as np
import pytest
from sklearn import config_context

from nearfar.large_margin import impostor_blocks, impostors
from nearfar.large_margin.impostor_blocks import find_impostors_blocks, shorten_reach
from nearfar.large_margin.impostors import find_nearest_impostors
from nearfar.search import block_search


@pytest.fixture(params=["as they are", "small blocks", "small blocks, nothing held", "each class"])
def blocks(request, monkeypatch):
    if request.param != "as they are":
        monkeypatch.setattr(
            impostor_blocks, "_MAX_GROUPED_ROWS", 1 if request.param == "each class" else 40
        )
        monkeypatch.setattr(impostor_blocks, "_ROWS", 13)
        monkeypatch.setattr(impostor_blocks, "_DISTANCES", 200)
        monkeypatch.setattr(block_search, "_MAX_ROWS_PER_BLOCK", 16)
    if request.param.endswith("nothing held"):
        monkeypatch.setattr(impostor_blocks, "_MAX_BYTES_CONVERTED", 0)


def points(kind, n=230, n_classes=7):
    """Points, classes of unequal sizes and reaches, some of them none."""
    rng = np.random.default_rng(0)
    Z = {
        "normal": lambda: rng.normal(size=(n, 6)),
        "float32, far from the origin": lambda: (rng.normal(size=(n, 6)) + 1e3).astype(np.float32),
        "integers": lambda: rng.integers(0, 4, size=(n, 3)).astype(float),
        "tiny": lambda: rng.normal(size=(n, 6)) * 1e-60,
        "huge": lambda: rng.normal(size=(n, 6)) * 1e60,
    }[kind]()
    codes = np.minimum(rng.geometric(0.3, n) - 1, n_classes - 1)
    some = ((Z[:40, None].astype(float) - Z[40:80]) ** 2).sum(axis=2)
    reach = rng.choice([0.05, 0.3, 1.0], n) * np.median(some)
    if kind == "integers":
        reach = np.round(reach)  # many pairs lie at the reach itself
    reach[3], reach[4], reach[5] = -np.inf, 0.0, -1.0
    return Z, codes, reach


def squared_distances(Z, codes):
    D = np.array([((Z - z) ** 2).sum(axis=1, dtype=float) for z in Z])
    D[codes[:, None] == codes] = np.inf
    return D


KINDS = ["normal", "float32, far from the origin", "integers", "tiny", "huge"]


@pytest.mark.parametrize("n_centers", [230, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_impostors_are_all_pairs_below_the_reach(kind, n_centers, blocks):
    Z, codes, reach = points(kind)
    reach[np.random.default_rng(1).permutation(len(Z))[n_centers:]] = -np.inf
    D = squared_distances(Z, codes)
    wanted = np.argwhere(reach[:, None] > D)
    assert len(wanted) > 200
    for n_threads in (1, 2):
        found = find_impostors_blocks(Z, codes, reach, max_pairs=10**6, n_threads=n_threads)
        np.testing.assert_array_equal(np.c_[found.centers, found.indices], wanted)
    among = np.random.default_rng(2).permutation(len(Z))[:90]
    found = find_impostors_blocks(Z, codes, reach, max_pairs=10**6, among=among)
    wanted = wanted[np.isin(wanted[:, 1], among)]
    np.testing.assert_array_equal(np.c_[found.centers, found.indices], wanted)


def test_products_without_room_for_rounding_would_miss_impostors(monkeypatch):
    Z, codes, _ = points("normal")
    D = squared_distances(Z, codes)
    # Each reach just above a distance that counts.
    reach = np.partition(D, 9, axis=1)[:, 9] * (1 + 1e-12)
    n_wanted = np.count_nonzero(reach[:, None] > D)
    found = find_impostors_blocks(Z, codes, reach, max_pairs=10**6)
    assert len(found.indices) == n_wanted
    monkeypatch.setattr(impostor_blocks, "compute_reach", lambda norms, radius, p, dtype: radius**2)
    fewer = find_impostors_blocks(Z, codes, reach, max_pairs=10**6)
    assert len(fewer.indices) < n_wanted


def test_more_candidates_than_allowed_end_the_search(blocks):
    Z, codes, reach = points("normal")
    n_pairs = np.count_nonzero(squared_distances(Z, codes) < reach[:, None])
    assert find_impostors_blocks(Z, codes, reach, max_pairs=n_pairs // 2) is None


@pytest.mark.by_turns(2)
@pytest.mark.parametrize(
    "way", ["all below the reach", "all at once", "a closer reach", "each class by itself"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_nearest_impostors_come_by_distance_then_index(kind, way, monkeypatch, blocks):
    Z, codes, reach = points(kind)
    reach = np.where(reach > 0, 4 * reach, reach)
    monkeypatch.setattr(impostors, "_FEW_POINTS", len(Z) if way == "all at once" else 0)
    monkeypatch.setattr(impostors, "_PILOTS", 10)
    monkeypatch.setattr(impostors, "_MANY", 1000 if way == "all below the reach" else 1)
    monkeypatch.setattr(impostors, "_TOO_MANY", 0 if way == "each class by itself" else 1000)
    monkeypatch.setattr(impostor_blocks, "_MANY_ROWS", 60)
    D = squared_distances(Z, codes)
    found, radius = find_nearest_impostors(Z, codes, reach, 3)
    for i in range(len(Z)):
        below = np.flatnonzero(D[i] < reach[i])
        nearest = below[np.argsort(D[i, below], kind="stable")][:3]
        mine = found.indices[found.indptr[i] : found.indptr[i + 1]]
        assert mine.tolist() == sorted(nearest)
        last = D[i, nearest[-1]] if len(nearest) == 3 else reach[i]
        assert radius[i] == pytest.approx(last, rel=1e-5, abs=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_closer_reach_holds_the_nearest_and_not_many_more(kind, monkeypatch):
    Z, codes, reach = points(kind)
    D = squared_distances(Z, codes)
    third = np.partition(D, 2, axis=1)[:, 2]
    centers = np.isfinite(reach) & (reach > 0)
    wide = np.where(centers, 10 * D[np.isfinite(D)].max(), -np.inf)
    closer = shorten_reach(Z, codes, wide, 3)
    assert (closer[centers] > third[centers]).all()
    assert (closer[~centers] == -np.inf).all()
    if kind != "integers":
        assert np.mean((closer[:, None] > D).sum(axis=1)[centers]) < 6
    # Of each second row only.
    monkeypatch.setattr(impostor_blocks, "_MANY_ROWS", 115)
    closer = shorten_reach(Z, codes, wide, 3)
    assert (closer[centers] > third[centers]).all()
    np.testing.assert_array_equal(shorten_reach(Z, codes, reach, 3) <= reach, True)


def test_memory_stays_within_blocks():
    rng = np.random.default_rng(0)
    Z, codes = rng.normal(size=(8000, 300)).astype(np.float32), rng.integers(0, 3, 8000)
    with config_context(working_memory=4):
        tracemalloc.start()
        try:
            found = find_impostors_blocks(Z, codes, np.full(8000, 430.0), max_pairs=10**6)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(found.indices) > 100
    # One copy of the points is 9.6 MB.
    assert peak < 8 * 2**20
