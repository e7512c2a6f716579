import numpy as np
import pytest

from nearfar.search.ball_tree import MeanSplitBallTree


def rows(kind, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "normal": lambda: rng.normal(size=(300, 3)),
        "one feature": lambda: rng.normal(size=(200, 1)),
        "clusters": lambda: (
            np.repeat(5 * rng.normal(size=(8, 4)), 40, 0) + rng.normal(size=(320, 4))
        ),
        "integers": lambda: rng.integers(0, 4, size=(300, 2)).astype(float),
        "duplicates": lambda: np.repeat(rng.normal(size=(5, 3)), 50, axis=0),
        "all the same": lambda: np.full((60, 2), 0.1),
        "fewer than a leaf": lambda: rng.normal(size=(6, 2)),
        "one": lambda: rng.normal(size=(1, 2)),
        "far from the origin": lambda: rng.normal(size=(200, 3)) + 1e6,
        "growing": lambda: 2.0 ** np.arange(-150, 150)[:, None],
    }[kind]()


KINDS = [
    "normal",
    "one feature",
    "clusters",
    "integers",
    "duplicates",
    "all the same",
    "fewer than a leaf",
    "one",
    "far from the origin",
    "growing",
]


def brute(X, Q):
    distances = np.array([np.sqrt(((X - q) ** 2).sum(axis=1)) for q in Q])
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(distances, order, 1), order


def queries_for(X, seed=1):
    rng = np.random.default_rng(seed)
    with_noise = X[rng.integers(0, len(X), 10)] * (1 + rng.normal(size=(10, 1)))
    return np.vstack([X[:: max(1, len(X) // 10)], with_noise])


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leaf_size", [1, 10])
def test_neighbours_equal_brute_force(kind, leaf_size):
    X = rows(kind)
    Q = queries_for(X)
    tree = MeanSplitBallTree(X, leaf_size=leaf_size, random_state=0)
    distances, order = brute(X, Q)
    for k in (1, 7, len(X), len(X) + 5):
        found, indices = tree.query(Q, k)
        np.testing.assert_array_equal(indices, order[:, :k])
        np.testing.assert_array_equal(found, distances[:, :k])


@pytest.mark.parametrize("kind", KINDS)
def test_points_within_a_radius_equal_brute_force(kind):
    X = rows(kind)
    Q = queries_for(X)
    tree = MeanSplitBallTree(X, leaf_size=3)
    for q, distances, order in zip(Q, *brute(X, Q), strict=True):
        # The radii are distances themselves: a point exactly at the radius is included.
        for r in (0.0, *distances[:: max(1, len(X) // 5)], 2 * distances[-1]):
            np.testing.assert_array_equal(tree.query_radius(q, r), np.sort(order[distances <= r]))
    assert tree.query_radius(X[0], -1.0).size == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_ball_holds_its_points_and_bounds_their_distances(kind):
    X = rows(kind)
    tree = MeanSplitBallTree(X, leaf_size=2, random_state=3)
    rng = np.random.default_rng(4)
    for node in tree.nodes:
        lengths = np.linalg.norm(X[node.rows] - node.center, axis=1)
        assert lengths.max() <= node.radius * (1 + 1e-12)
        if node.children:
            children = np.concatenate([tree.nodes[child].rows for child in node.children])
            assert len(node.children) == 2
            assert sorted(children) == sorted(node.rows)
        for q in X[rng.integers(0, len(X), 5)] + X.std(axis=0) * rng.normal(size=(5, X.shape[1])):
            nearest = np.linalg.norm(X[node.rows] - q, axis=1).min()
            assert tree._bound_distance(q, node) <= nearest
    assert sorted(tree.nodes[0].rows) == list(range(len(X)))


def test_only_duplicates_make_large_leaves():
    for kind in KINDS:
        X = rows(kind)
        for node in MeanSplitBallTree(X, leaf_size=4).nodes:
            if not node.children:
                assert len(node.rows) <= 4 or np.ptp(X[node.rows], axis=0).max() == 0


def test_the_tree_leaves_most_points_unseen(monkeypatch):
    X = np.random.default_rng(0).normal(size=(3000, 2))
    tree = MeanSplitBallTree(X)
    seen = []
    monkeypatch.setattr(
        "nearfar.search.ball_tree._compute_distances",
        lambda points, q: seen.append(len(points)) or np.linalg.norm(points - q, axis=1),
    )
    tree.query(X[:50], k=3)
    assert sum(seen) < 0.05 * 50 * len(X)


def test_bounds_in_squares_would_lose_neighbours(monkeypatch):
    # |q - c|^2 - R^2 does not bound |q - x|^2: q = 2, c = 0, x = R = 1 gives 3 instead of 1.
    X = rows("normal")
    Q = queries_for(X)
    tree = MeanSplitBallTree(X, leaf_size=3)
    right = tree.query(Q, 5)[1]

    def squared(self, query, node):
        return np.sqrt(max(np.sum((query - node.center) ** 2) - node.radius**2, 0.0))

    monkeypatch.setattr(MeanSplitBallTree, "_bound_distance", squared)
    assert (tree.query(Q, 5)[1] != right).any()
    assert any(
        len(tree.query_radius(q, 0.5)) < (np.linalg.norm(X - q, axis=1) <= 0.5).sum() for q in Q
    )


def test_leaving_nodes_at_the_kth_distance_would_lose_ties(monkeypatch):
    # A grid: each point has four at the same distance. Balls of one point have exact bounds.
    grid = np.stack(np.meshgrid(np.arange(8.0), np.arange(8.0)), axis=-1).reshape(-1, 2)
    X = np.random.default_rng(0).permutation(grid)
    tree = MeanSplitBallTree(X, leaf_size=1)
    original = MeanSplitBallTree._bound_distance
    right = tree.query(X, 3)[1]
    np.testing.assert_array_equal(right, brute(X, X)[1][:, :3])
    monkeypatch.setattr(MeanSplitBallTree, "_bound_distance", lambda *args: original(*args) + 1e-12)
    assert (tree.query(X, 3)[1] != right).any()


def test_random_state_changes_the_tree_but_no_result():
    X = rows("clusters")
    one, two, again = (MeanSplitBallTree(X, random_state=seed) for seed in (0, 1, 0))
    shapes = [[node.rows.tolist() for node in tree.nodes] for tree in (one, two, again)]
    assert shapes[0] == shapes[2] != shapes[1]
    np.testing.assert_array_equal(one.query(X, 4)[1], two.query(X, 4)[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MeanSplitBallTree([1.0, 2.0]), r"got shape \(2,\)"),
        (lambda: MeanSplitBallTree(np.zeros((0, 2))), "at least one row"),
        (lambda: MeanSplitBallTree([[np.nan]]), "finite"),
        (lambda: MeanSplitBallTree([[1.0]], leaf_size=0), "leaf_size must be at least 1; got 0"),
        (lambda: MeanSplitBallTree([[1.0]]).query([[1.0, 2.0]]), r"\(n_queries, 1\); got \(1, 2\)"),
        (lambda: MeanSplitBallTree([[1.0]]).query([[1.0]], k=0), "k must be at least 1; got 0"),
        (lambda: MeanSplitBallTree([[1.0]]).query_radius([1.0, 2.0], 1), r"q must have shape"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
