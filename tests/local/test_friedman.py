"""Tests of machete and scythe against a loop over queries, written from their description."""

import numpy as np
import pytest

from nearfar import FriedmanClassifier


def draw(n=80, p=4, classes=2, seed=0, integers=False):
    random = np.random.default_rng(seed)
    y = random.integers(classes, size=n)
    X = random.normal(size=(n, p)) * (1.0 + np.arange(p))
    X[:, 0] += 2 * y
    return (np.round(X), y) if integers else (X, y)


def oracle(X, y, z, own=None, *, K, mode, alpha=0.7, window=0.2, least=10):
    """Return the relevances and boxes of all cuts, and the rows of the last region."""
    classes, codes = np.unique(y, return_inverse=True)
    scale = X.std(axis=0)
    rows, q, J, p = X / scale, z / scale, len(classes), X.shape[1]
    R = np.array([i for i in range(len(X)) if i != own])
    relevances, boxes, box = [], [], np.full(p, np.inf)
    while True:
        L = min(len(R), max(least, int(np.floor(window * len(R)))))
        overall = np.bincount(codes[R], minlength=J) / len(R)
        gain = np.empty(p)
        for i in range(p):
            far = np.abs(rows[R, i] - q[i])
            inside = R[far <= np.sort(far)[L - 1] + 1e-9]
            gain[i] = ((overall - np.bincount(codes[inside], minlength=J) / len(inside)) ** 2).sum()
        nothing = gain.sum() < 1e-20
        r = np.full(p, 1 / p) if nothing else gain / gain.sum()
        relevances.append(r)
        best = int(np.flatnonzero(r > r.max() - 1e-11)[0])
        if mode == "machete" and not nothing:
            score = (rows[R, best] - q[best]) ** 2
        else:
            s = rows[R].std(axis=0)
            score = (r * ((rows[R] - q) / np.where(s > 1e-12, s, 1)) ** 2).sum(axis=1)
        keep = max(K, int(np.floor(alpha * len(R)))) if len(R) > K else len(R)
        order = np.lexsort((R, np.round(score, 9)))[:keep]
        R, score = R[order], score[order]
        if mode == "machete" and not nothing:
            box[best] = min(box[best], np.abs(X[R, best] - z[best]).max())
        boxes.append(box.copy())
        if len(R) <= K:
            return np.array(relevances), np.array(boxes), R, np.sqrt(score)


CASES = [
    (mode, classes, integers)
    for mode in ("scythe", "machete")
    for classes in (2, 3)
    for integers in (False, True)
]


@pytest.mark.parametrize(("mode", "classes", "integers"), CASES)
def test_cuts_neighbours_and_votes_are_those_of_a_loop(mode, classes, integers):
    X, y = draw(classes=classes, integers=integers)
    rule = FriedmanClassifier(n_neighbors=7, variant=mode).fit(X, y)
    queries = X[:12] + (0 if integers else 0.3)
    distances, found = rule.kneighbors(queries)
    first, third, last = (rule.relevance_at(queries, step) for step in (0, 2, -1))
    for i, z in enumerate(queries):
        relevances, boxes, near, far = oracle(X, y, z, K=7, mode=mode)
        np.testing.assert_allclose(first[i], relevances[0], atol=1e-8)
        np.testing.assert_allclose(third[i], relevances[2], atol=1e-8)
        np.testing.assert_allclose(last[i], relevances[-1], atol=1e-8)
        assert found[i].tolist() == near.tolist()
        np.testing.assert_allclose(distances[i], far, atol=1e-8)
        if mode == "machete":
            low, high = rule.regions_at(queries)[i].T
            np.testing.assert_allclose((high - low) / 2, boxes[-1])
            cut = np.isfinite(high)
            np.testing.assert_allclose((high[cut] + low[cut]) / 2, z[cut], atol=1e-12)
        votes = np.bincount(y[near])
        if (votes == votes.max()).sum() == 1:
            assert rule.predict(queries[i : i + 1]) == votes.argmax()


@pytest.mark.parametrize(("mode", "classes", "integers"), CASES)
def test_left_out_a_row_takes_no_part_in_its_own_regions(mode, classes, integers):
    X, y = draw(classes=classes, integers=integers, seed=1)
    rule = FriedmanClassifier(n_neighbors=7, variant=mode).fit(X, y)
    _, found = rule._nearest(None, 7)
    for i in range(0, len(X), 7):
        assert found[i].tolist() == oracle(X, y, X[i], own=i, K=7, mode=mode)[2].tolist()


def test_the_measure_is_an_exact_identity_and_known_for_linear_functions():
    # E[(f - Ef)^2 | x] - E[(f - E[f|x])^2 | x] = (Ef - E[f|x])^2 on any sample.
    random = np.random.default_rng(0)
    x, f = random.integers(3, size=50), random.normal(size=50)
    for z in range(3):
        given = f[x == z]
        left = np.mean((given - f.mean()) ** 2) - np.mean((given - given.mean()) ** 2)
        np.testing.assert_allclose(left, (f.mean() - given.mean()) ** 2, atol=1e-12)
    # Independent features on a full grid, linear f: a_i^2 (z_i - mean)^2.
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(3.0)), axis=-1).reshape(-1, 2)
    slopes = np.array([2.0, -5.0])
    values = grid @ slopes
    for i, z in ((0, 3.0), (1, 0.0)):
        given = values[grid[:, i] == z]
        wanted = (slopes[i] * (z - grid[:, i].mean())) ** 2
        np.testing.assert_allclose((values.mean() - given.mean()) ** 2, wanted)


def test_counts_of_all_rows_are_those_of_slabs():
    X, y = draw(n=70, classes=3, integers=True)
    rows = FriedmanClassifier().fit(X, y)._rows()
    queries, codes = X[:20] + np.array([0, 0.5, 0, 100.0]), rows.codes
    for size in (1, 10, 69, 70):
        found = rows.by_feature.counts(queries / rows.columns.unit, size)
        for b in range(20):
            for i in range(4):
                far = np.abs(X[:, i] - queries[b, i])
                inside = codes[far <= np.sort(far)[size - 1] + 1e-9]
                assert found[b, i].tolist() == np.bincount(inside, minlength=3).tolist()


def test_where_nothing_matters_the_cut_is_by_scaled_distance():
    # Only one class is near the query: the labels of a far cluster do not matter.
    random = np.random.default_rng(0)
    X = np.concatenate([random.normal(size=(40, 3)), random.normal(size=(40, 3)) + 50])
    y = np.repeat([0, 1], 40)
    for mode in ("scythe", "machete"):
        rule = FriedmanClassifier(n_neighbors=5, variant=mode, keep_fraction=0.5).fit(X, y)
        np.testing.assert_allclose(rule.relevance_at(X[:3], -1), 1 / 3)
        distances, found = rule.kneighbors(X[:3])
        for i in range(3):
            _, _, near, far = oracle(X, y, X[i], K=5, mode=mode, alpha=0.5)
            assert found[i].tolist() == near.tolist()
            np.testing.assert_allclose(distances[i], far, atol=1e-8)
    one = FriedmanClassifier(n_neighbors=5).fit(X, np.zeros(80))
    np.testing.assert_allclose(one.relevance_at(X), 1 / 3)


def test_boxes_shrink_and_hold_the_neighbours():
    X, y = draw(n=200, classes=2)
    rule = FriedmanClassifier(variant="machete").fit(X, y)
    steps = range(len(rule.region_sizes()) - 1)
    boxes = np.array([rule.regions_at(X[:9], step) for step in steps])
    widths = boxes[..., 1] - boxes[..., 0]
    assert (widths[1:] <= widths[:-1]).all()
    assert np.isfinite(boxes[-1]).any()
    near = X[rule.kneighbors(X[:9])[1]]
    last = boxes[-1][:, None]
    assert ((near >= last[..., 0] - 1e-12) & (near <= last[..., 1] + 1e-12)).all()


def test_what_it_refuses_and_what_it_may_be_asked():
    X, y = draw()
    rule = FriedmanClassifier(n_neighbors=7).fit(X, y)
    with pytest.raises(ValueError, match="variant"):
        rule.regions_at(X)
    with pytest.raises(ValueError, match="step=99 must be from"):
        rule.relevance_at(X, 99)
    with pytest.raises(ValueError, match="n_neighbors=81 is larger"):
        FriedmanClassifier(n_neighbors=81).fit(X, y)
    for bad in ({"keep_fraction": 1.0}, {"keep_fraction": 0.0}, {"window": 0.0}, {"min_window": 0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            FriedmanClassifier(**bad).fit(X, y)
    # With fewer than n_neighbors, kneighbors returns the first of them. It can also order all rows.
    _, found = rule.kneighbors(X[:5])
    np.testing.assert_array_equal(rule.kneighbors(X[:5], 3)[1], found[:, :3])
    distances, everything = rule.kneighbors(X[:5], 80)
    assert (np.sort(everything, axis=1) == np.arange(80)).all() and (np.diff(distances) >= 0).all()
    assert len(FriedmanClassifier(n_neighbors=80).fit(X, y).explain(X[:2]).neighbors[0]) == 80


def test_duplicates_and_more_features_than_rows():
    X = np.repeat([[0.0, 1, 2], [3, 1, 0]], 8, axis=0)
    for mode in ("scythe", "machete"):
        rule = FriedmanClassifier(n_neighbors=3, variant=mode).fit(X, [0] * 8 + [1] * 8)
        assert rule.predict([[0.0, 1, 2], [3, 1, 0.1]]).tolist() == [0, 1]
        assert rule.kneighbors(X[:1])[1].tolist() == [[0, 1, 2]]
        assert np.isfinite(rule.explain(X[:2]).relevance).all()
        wide = FriedmanClassifier(n_neighbors=1, variant=mode).fit(np.eye(3, 20), [0, 1, 1])
        assert wide.predict(np.eye(3, 20)).tolist() == [0, 1, 1]


def test_sizes_may_be_numbers_of_numpy():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(40, 3)), np.arange(40) % 2
    given = FriedmanClassifier(min_window=np.int64(10)).fit(X, y).predict(X)
    np.testing.assert_array_equal(given, FriedmanClassifier(min_window=10).fit(X, y).predict(X))


@pytest.mark.parametrize("mode", ["scythe", "machete"])
@pytest.mark.parametrize(("n", "most", "alpha"), [(90, 15, 0.7), (12, 12, 0.5), (40, 20, 0.95)])
def test_one_pass_finds_the_neighbours_for_each_k(mode, n, most, alpha):
    random = np.random.default_rng(n)
    X = np.round(random.normal(size=(n + 20, 3)), 1)  # with ties
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    rule = FriedmanClassifier(variant=mode, keep_fraction=alpha, n_neighbors=5).fit(X[:n], y[:n])
    found = rule.kneighbors_by_k(X[n:], most)
    assert [near.shape for near in found] == [(20, k) for k in range(1, most + 1)]
    for k, near in enumerate(found, 1):
        alone = FriedmanClassifier(variant=mode, keep_fraction=alpha, n_neighbors=k).fit(
            X[:n], y[:n]
        )
        np.testing.assert_array_equal(near, alone.kneighbors(X[n:])[1])
    with pytest.raises(
        ValueError, match=f"most={n + 1} must be from 1 to the number of training points, {n}"
    ):
        rule.kneighbors_by_k(X[n:], n + 1)
