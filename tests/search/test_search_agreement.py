"""Trees, early abandoning and blocks must give results that are equal bit by bit."""

import numpy as np
import pytest

import nearfar.search.early_abandon as early_abandon
import nearfar.search.exact_search as exact_search
from nearfar.large_margin import impostor_trees, impostors
from nearfar.large_margin.impostor_trees import find_impostors_tree
from nearfar.large_margin.impostors import find_impostors
from nearfar.search.early_abandon import early_abandon_kneighbors
from nearfar.search.exact_search import choose_search, kneighbors

KINDS = {
    "normal": lambda rng: rng.normal(size=(150, 4)),
    "few axes carry all": lambda rng: rng.normal(size=(150, 30)) * 0.7 ** np.arange(30),
    "float32": lambda rng: rng.normal(size=(120, 12)).astype(np.float32),
    "offset": lambda rng: rng.normal(size=(120, 5)) + 1e6,
    "integers": lambda rng: rng.integers(0, 4, size=(150, 3)).astype(float),
    "tenths": lambda rng: rng.integers(0, 4, size=(120, 5)) * 0.1 + 1000,
    "bits": lambda rng: rng.integers(0, 2, size=(120, 12)).astype(float),
    "copies": lambda rng: np.repeat(rng.normal(size=(6, 3)), 50, axis=0),
    "all the same": lambda rng: np.full((50, 3), 0.1),
    "far row": lambda rng: np.vstack([rng.normal(size=(120, 4)), np.full((1, 4), 1e12)]),
    "one feature": lambda rng: rng.normal(size=(120, 1)),
    "huge": lambda rng: rng.normal(size=(120, 3)) * 1e100,
    "tiny": lambda rng: rng.normal(size=(120, 3)) * 1e-100,
}

SEARCHES = {
    "tree": lambda *args, **kwargs: kneighbors(*args, **kwargs, search="tree"),
    "early abandon": early_abandon_kneighbors,
    "early abandon, one axis": lambda *args, **kwargs: early_abandon_kneighbors(
        *args, **kwargs, n_leading=1
    ),
}


def brute_kneighbors(X, queries=None, *, n_neighbors):
    Q = X if queries is None else queries
    distances = np.array(
        [np.sqrt((np.subtract(X, q, dtype=np.float64) ** 2).sum(axis=1)) for q in Q]
    )
    if queries is None:
        np.fill_diagonal(distances, np.inf)
    indices = np.argsort(distances, axis=1, kind="stable")[:, :n_neighbors]
    return np.take_along_axis(distances, indices, axis=1), indices


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("search", SEARCHES)
def test_neighbours_equal_a_stable_sort_of_all_distances(search, kind):
    rng = np.random.default_rng(0)
    X = KINDS[kind](rng)
    before = X.copy()
    queries = X[rng.integers(0, len(X), 40)]
    queries[::2] += (X.std(axis=0) * rng.normal(size=queries[::2].shape)).astype(X.dtype)
    for k in (1, 6, len(X) - 1):
        assert_same(SEARCHES[search](X, n_neighbors=k), brute_kneighbors(X, n_neighbors=k))
    for k in (1, len(X)):
        found = SEARCHES[search](X, queries, n_neighbors=k)
        assert_same(found, brute_kneighbors(X, queries, n_neighbors=k))
    np.testing.assert_array_equal(X, before)


def test_of_many_copies_the_tree_holds_no_more_than_can_be_neighbours(monkeypatch):
    held = []

    class Recording(exact_search.KDTree):
        def __new__(cls, Z, *args, **kwargs):
            held.append(len(Z))
            return super().__new__(cls, Z, *args, **kwargs)

    monkeypatch.setattr(exact_search, "KDTree", Recording)
    X = np.repeat(np.random.default_rng(0).normal(size=(7, 2)), 500, axis=0)
    kneighbors(X, n_neighbors=3, search="tree")
    assert held == [7 * 4]  # the row itself and three more


def test_early_abandon_measures_few_pairs_fully(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 60)) * 0.8 ** np.arange(60)
    parts = []
    original = early_abandon.compute_pair_distances

    def counting(X, Q, columns, rows):
        parts.append((X.shape[1], len(rows)))
        return original(X, Q, columns, rows)

    monkeypatch.setattr(early_abandon, "compute_pair_distances", counting)
    early_abandon_kneighbors(X, n_neighbors=3)
    whole = sum(pairs for width, pairs in parts if width == 60)
    assert whole < 6 * len(X)
    # The leading axes remove most pairs, and each further part of the sum removes more.
    entered, *later = [pairs for width, pairs in parts[:5] if width < 60]
    assert entered < 0.05 * len(X) ** 2
    assert later and later[-1] < entered


def test_a_bound_without_room_for_rounding_would_lose_neighbours(monkeypatch):
    X = KINDS["tenths"](np.random.default_rng(0)) + 1e7
    monkeypatch.setattr(early_abandon, "compute_reach", lambda norms, radius, p, dtype: radius**2)
    try:
        found = early_abandon_kneighbors(X, n_neighbors=6)[1]
    except IndexError:  # fewer than k survivors
        return
    assert (found != brute_kneighbors(X, n_neighbors=6)[1]).any()


@pytest.mark.parametrize("n_leading", [0, 5])
def test_a_number_of_leading_axes_out_of_range_is_named(n_leading):
    with pytest.raises(ValueError, match=f"n_leading must be from 1 to 4 .* got {n_leading}"):
        early_abandon_kneighbors(np.eye(4), n_neighbors=1, n_leading=n_leading)


def test_a_search_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match='"auto", "blocks", "tree" or "faiss"; got \'ball\''):
        kneighbors(np.eye(4), n_neighbors=1, search="ball")
    with pytest.raises(ValueError, match="method must be .* got 'ball'"):
        find_impostors(np.eye(4), np.arange(4), np.ones(4), max_pairs=9, method="ball")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("offset", [0, 1e3])
@pytest.mark.parametrize("n_classes", [1, 2, 6])
def test_impostors_by_trees_equal_those_by_blocks_and_brute_force(n_classes, offset, dtype):
    rng = np.random.default_rng(1)
    Z = (rng.normal(size=(180, 3)) + offset).astype(dtype)
    Z[10] = Z[20]
    codes = rng.integers(0, n_classes, 180)
    reach = rng.uniform(0.1, 2, 180)
    reach[7], reach[8], reach[9] = -np.inf, 0.0, -1.0
    found = find_impostors_tree(Z, codes, reach, max_pairs=10**6)
    exact = Z.astype(np.float64)
    squared = ((exact[:, None] - exact) ** 2).sum(axis=2)
    wanted = (squared < reach[:, None]) & (codes[:, None] != codes)
    # No distance is so close to its reach that float32 could change the comparison.
    assert np.abs(squared / np.where(reach == 0, 1, reach)[:, None] - 1).min() > 1e-6
    np.testing.assert_array_equal(np.argwhere(wanted), np.c_[found.centers, found.indices])
    blocks = find_impostors(Z, codes, reach, max_pairs=10**6, method="blocks")
    assert_same(found, blocks)
    assert [a.dtype for a in found] == [a.dtype for a in blocks]
    assert (len(found.indices) > 200) == (n_classes > 1)


def test_impostors_at_the_reach_itself_do_not_count_by_either_method():
    Z = np.array([[0.0], [2.0], [2.0], [1.9]])
    codes = np.array([0, 1, 2, 0])
    for method in ("tree", "blocks"):
        found = find_impostors(Z, codes, np.full(4, 4.0), max_pairs=20, method=method)
        # Row 0 is exactly 2 away from rows 1 and 2, and the reach is 4.
        pairs = set(zip(found.centers.tolist(), found.indices.tolist(), strict=True))
        assert pairs == {(1, 2), (2, 1), (1, 3), (3, 1), (2, 3), (3, 2)}


def test_trees_of_squared_reach_would_find_other_impostors():
    # Reaches are squared lengths: with reach 4, a point 3 away is not within it, one 1.5 away is.
    Z = np.array([[0.0], [3.0], [-1.5]])
    found = find_impostors_tree(Z, np.array([0, 1, 1]), np.array([4.0, -1, -1]), max_pairs=9)
    assert found.indices.tolist() == [2]
    # Below 1 the square would be smaller than the length.
    found = find_impostors_tree(Z / 10, np.array([0, 1, 1]), np.array([0.04, -1, -1]), max_pairs=9)
    assert found.indices.tolist() == [2]


def test_too_many_impostors_end_the_search():
    rng = np.random.default_rng(0)
    Z, codes = rng.normal(size=(300, 2)), rng.integers(0, 3, 300)
    reach = np.full(300, 100.0)
    n_pairs = int((codes[:, None] != codes).sum())
    assert find_impostors_tree(Z, codes, reach, max_pairs=n_pairs - 1) is None
    assert len(find_impostors_tree(Z, codes, reach, max_pairs=n_pairs).indices) == n_pairs


@pytest.mark.parametrize("method", ["tree", "blocks"])
def test_impostors_come_from_the_named_rows_only(method):
    rng = np.random.default_rng(2)
    Z, codes = rng.normal(size=(120, 2)), rng.integers(0, 3, 120)
    among = rng.permutation(120)[:50]
    reach = rng.uniform(0.1, 2, 120)
    found = find_impostors(Z, codes, reach, max_pairs=10**6, method=method, among=among)
    wanted = (((Z[:, None] - Z) ** 2).sum(axis=2) < reach[:, None]) & (codes[:, None] != codes)
    wanted &= np.isin(np.arange(120), among)
    np.testing.assert_array_equal(np.argwhere(wanted), np.c_[found.centers, found.indices])


def test_the_automatic_choice_takes_trees_for_few_features_and_many_rows():
    assert choose_search(60_000, 2) == choose_search(60_000, 5) == "tree"
    assert choose_search(6_000, 3, n_threads=8) == "tree"
    assert choose_search(6_000, 3) == "tree"
    assert choose_search(6_000, 5) == choose_search(500, 2) == "blocks"
    assert {choose_search(n, p) for n in (100, 10**6) for p in (10, 50, 784)} == {"blocks"}
    # Building the tree costs more than a few queries.
    assert choose_search(60_000, 2, n_queries=1) == "blocks"


def test_impostors_are_searched_by_trees_only_where_blocks_of_all_threads_are_slower():
    def choice(n, p, n_threads=1):
        return choose_search(n, p, task="impostors", n_threads=n_threads)

    assert choice(20_000, 2) == choice(60_000, 3) == choice(200_000, 5) == "blocks"
    assert choice(80_000, 2) == choice(200_000, 3) == "tree"
    assert choice(80_000, 2, n_threads=2) == "blocks"
    assert choice(10**6, 10) == "blocks"


def test_faiss_is_chosen_for_many_neighbours_in_many_features_where_it_is_installed(monkeypatch):
    monkeypatch.setattr(exact_search, "find_spec", lambda name: name)
    assert choose_search(200_000, 128, n_queries=10_000, n_neighbors=100) == "faiss"
    # On two threads it took six times as long.
    assert choose_search(200_000, 128, n_queries=10_000, n_neighbors=100, n_threads=2) == "blocks"
    assert choose_search(200_000, 128, n_queries=10_000, n_neighbors=10) == "blocks"
    assert choose_search(200_000, 50, n_queries=10_000, n_neighbors=100) == "blocks"
    assert choose_search(2000, 128, n_neighbors=100) == "blocks"
    monkeypatch.setattr(exact_search, "find_spec", lambda name: None)
    assert choose_search(200_000, 128, n_queries=10_000, n_neighbors=100) == "blocks"


@pytest.mark.parametrize("choice", ["tree", "blocks"])
def test_the_choice_is_followed(choice, monkeypatch):
    used = []
    monkeypatch.setattr(exact_search, "choose_search", lambda *args, **kwargs: choice)
    monkeypatch.setattr(impostors, "choose_search", lambda *args, **kwargs: choice)
    for module in (exact_search, impostor_trees):
        original = module.KDTree
        monkeypatch.setattr(
            module, "KDTree", lambda Z, tree=original: used.append(len(Z)) or tree(Z)
        )
    X = np.random.default_rng(0).normal(size=(60, 2))
    kneighbors(X, n_neighbors=2)
    assert used == ([60] if choice == "tree" else [])
    find_impostors(X, np.repeat([0, 1], 30), np.ones(60), max_pairs=10**6)
    assert used == ([60, 30, 30] if choice == "tree" else [])
