"""Sets of vectors, and their Gaussians."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.covariance import OAS, LedoitWolf
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split

from nearfar import Gaussians, Sets
from nearfar.summaries.sets import as_sets


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(t, 3)) + t for t in (4, 1, 7, 2, 5)]


@pytest.fixture
def sets(arrays):
    return Sets.from_list(arrays, ["a", "b", "a", "b", "a"], names=list("vwxyz"))


# ---------------------------------------------------------------------- sets as a sequence


def test_sets_hold_the_arrays_they_were_made_of(sets, arrays):
    assert len(sets) == 5 and sets.shape == (5, 3) and sets.n_vectors == 19
    assert sets.sizes.tolist() == [4, 1, 7, 2, 5]
    for mine, given in zip(sets, arrays, strict=True):
        np.testing.assert_array_equal(mine, given)
    np.testing.assert_array_equal(sets[-1], arrays[-1])
    np.testing.assert_array_equal(sets[np.int64(2)], arrays[2])


@pytest.mark.parametrize(
    ("key", "chosen"),
    [
        (slice(1, 4), [1, 2, 3]),
        (slice(None, None, -2), [4, 2, 0]),
        ([3, 0, 3], [3, 0, 3]),
        (np.array([-1, 1]), [4, 1]),
        (np.array([True, False, False, True, False]), [0, 3]),
        ((np.array([2, 1]), Ellipsis), [2, 1]),
        ([], []),
    ],
    ids=str,
)
def test_slices_masks_and_indices_give_sets(sets, arrays, key, chosen):
    part = sets[key]
    assert isinstance(part, Sets) and len(part) == len(chosen)
    assert part.names.tolist() == [list("vwxyz")[k] for k in chosen]
    assert part.labels.tolist() == [list("ababa")[k] for k in chosen]
    for mine, k in zip(part, chosen, strict=True):
        np.testing.assert_array_equal(mine, arrays[k])


@pytest.mark.parametrize("key", [5, -6, [0, 5], [True, False], "a", (0, 1), 1.5])
def test_wrong_indices_raise(sets, key):
    with pytest.raises(IndexError):
        sets[key]


class LargestMean(ClassifierMixin, BaseEstimator):
    """A classifier of sets that uses the mean of their first feature."""

    def __init__(self, shift=0.0):
        self.shift = shift

    def fit(self, X, y):
        assert isinstance(X, Sets) and len(X) == len(y)
        self.classes_ = np.unique(y)
        means = np.array([rows[:, 0].mean() for rows in X])
        self.cut_ = np.mean([means[y == c].mean() for c in self.classes_]) + self.shift
        return self

    def predict(self, X):
        assert isinstance(X, Sets)
        return self.classes_[[int(rows[:, 0].mean() > self.cut_) for rows in X]]


def test_sets_go_through_the_tools_of_scikit_learn():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = Sets.from_list([rng.normal(size=(rng.integers(1, 9), 2)) + 4 * c for c in y], y)
    train, test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    np.testing.assert_array_equal(train.labels, y_train)
    np.testing.assert_array_equal(test.labels, y_test)
    assert cross_val_score(LargestMean(), X, y, cv=4).mean() > 0.9
    search = GridSearchCV(LargestMean(), {"shift": [0.0, 100.0]}, cv=3).fit(X, y)
    assert search.best_params_ == {"shift": 0.0}


@pytest.mark.parametrize("of", [lambda sets: sets, Gaussians.from_sets], ids=["sets", "gaussians"])
def test_nothing_can_be_set_or_deleted(sets, of):
    made = of(sets)
    for name in list(vars(made)):
        with pytest.raises(AttributeError, match=f"immutable; cannot set '{name}'"):
            setattr(made, name, None)
        with pytest.raises(AttributeError, match=f"immutable; cannot delete '{name}'"):
            delattr(made, name)
    assert made == of(sets) and made != "sets"


def test_sets_are_equal_pickle_and_cannot_be_changed(sets, arrays):
    assert sets == Sets.from_list(arrays, list("ababa"), list("vwxyz"))
    assert sets != Sets.from_list(arrays) and sets != sets[::-1] and sets != 3
    for other in (pickle.loads(pickle.dumps(sets)), copy.deepcopy(sets)):
        assert other == sets and not other.X.flags.writeable
    with pytest.raises(AttributeError, match="immutable"):
        sets.X = 0
    with pytest.raises(ValueError, match="read-only"):
        sets[0][0, 0] = 1
    arrays[0][0, 0] = 77  # the input arrays were copied
    assert sets[0][0, 0] != 77
    with pytest.raises(TypeError, match="cannot be converted to a single array"):
        np.asarray(sets)


def test_concatenation_undoes_a_cut(sets):
    assert Sets.concatenate([sets[:2], sets[2:3], sets[3:]]) == sets
    assert Sets.concatenate([sets, Sets.from_list([np.ones((2, 3))])]).labels is None
    with pytest.raises(ValueError, match=r"parts\[1\] has 2 features"):
        Sets.concatenate([sets, Sets.from_list([np.ones((2, 2))])])


def test_joined_labels_keep_their_kinds():
    text, number = Sets.from_list([[[1.0]]], ["a"]), Sets.from_list([[[2.0]]], [1])
    assert Sets.concatenate([text, number]).labels.tolist() == ["a", 1]


def test_lists_and_blocks_of_equal_sets_are_taken(arrays):
    assert as_sets(arrays) == Sets.from_list(arrays)
    assert as_sets(np.zeros((4, 2, 3))).sizes.tolist() == [2, 2, 2, 2]
    with pytest.raises(ValueError, match=r"array of shape \(4, 2\)"):
        as_sets(np.zeros((4, 2)))
    with pytest.raises(TypeError, match="from_frame"):
        as_sets(pd.DataFrame({"a": [1.0]}))


def test_float32_stays_and_integers_become_float64():
    assert Sets.from_list([np.ones((2, 1), np.float32)]).X.dtype == np.float32
    assert Sets.from_list([[[1], [2]]]).X.dtype == np.float64


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.empty((0, 2)), r"Set 1 \('q'\) is empty"),
        ([], r"Set 1 \('q'\) is empty"),
        ([[0.0, np.nan]], r"Set 1 \('q'\) holds nan \(vector 0, feature 1\)"),
        ([[0.0, 1.0], [-np.inf, 1.0]], r"Set 1 \('q'\) holds -inf \(vector 1, feature 0\)"),
        ([[1.0, 2.0, 3.0]], r"Set 1 \('q'\) has vectors of 3 features, but set 0 \('p'\) has 2"),
        ([1.0, 2.0], r"Set 1 \('q'\) has shape \(2,\).*For a set of one vector v, pass \[v\]"),
        (np.zeros((1, 1, 2)), r"Set 1 \('q'\) has shape \(1, 1, 2\)"),
        ([["x", "y"]], r"Set 1 \('q'\) is not an array of numbers"),
        ([[1.0, 2.0], [3.0]], r"Set 1 \('q'\) is not an array of numbers"),
    ],
)
def test_bad_sets_are_named(bad, message):
    with pytest.raises(ValueError, match=message):
        Sets.from_list([[[0.0, 1.0]], bad], names=["p", "q"])


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0, 2, 2, 4], "Set 1 is empty"),
        ([0, 3, 2, 4], "Set 1 is empty"),
        ([0, 2], "run from 0 to the number of rows of X, 4"),
        ([1, 4], "run from 0"),
        ([0.0, 4.0], "integers"),
        ([], "integers"),
    ],
)
def test_bad_offsets_are_refused(offsets, message):
    with pytest.raises(ValueError, match=message):
        Sets(np.zeros((4, 2)), offsets)


def test_the_constructor_names_the_set_that_is_not_finite():
    X = np.zeros((4, 2))
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"Set 1 holds nan \(vector 0, feature 1\)"):
        Sets(X, [0, 2, 4])


def test_labels_and_names_must_be_one_a_set():
    with pytest.raises(
        ValueError, match=r"labels must have one entry per set; got shape \(2,\) for 1 set"
    ):
        Sets.from_list([[[1.0]]], [1, 2])
    with pytest.raises(ValueError, match="arrays is empty"):
        Sets.from_list([])


# ---------------------------------------------------------------------- frames and files


def long_frame(sets):
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    frame = pd.DataFrame(sets.X, columns=["f", "g", "h"])
    frame["utterance"], frame["speaker"] = sets.names[owner], sets.labels[owner]
    return frame


def test_a_long_frame_gives_the_same_sets(sets):
    frame = long_frame(sets)
    assert Sets.from_frame(frame, by="utterance", label="speaker") == sets
    some = Sets.from_frame(frame, by="utterance", columns=["h", "f"])
    np.testing.assert_array_equal(some.X, sets.X[:, [2, 0]])
    both = Sets.from_frame(frame, by=["speaker", "utterance"])
    assert both.names.tolist() == ["a/v", "b/w", "a/x", "b/y", "a/z"]


def test_rows_of_a_set_need_not_follow_one_another(sets):
    frame = long_frame(sets).sample(frac=1, random_state=0)
    found = Sets.from_frame(frame, by="utterance", label="speaker")
    assert found.names.tolist() == list(dict.fromkeys(frame["utterance"]))
    for rows, name in zip(found, found.names, strict=True):
        expected = frame.loc[frame["utterance"] == name, ["f", "g", "h"]].to_numpy()
        np.testing.assert_array_equal(rows, expected)


def test_columns_may_have_numbers_for_names_and_one_may_hold_vectors(sets, tmp_path):
    owner = np.repeat(np.arange(len(sets)), sets.sizes)
    numbered = pd.DataFrame(np.column_stack([owner, sets.X]))
    np.testing.assert_array_equal(Sets.from_frame(numbered, by=0).X, sets.X)
    assert len(Sets.from_frame(numbered, by=[0, 1])) == sets.n_vectors
    vectors = pd.DataFrame({"utterance": sets.names[owner], "v": list(sets.X)})
    vectors.to_parquet(tmp_path / "v.parquet")
    for found in (
        Sets.from_frame(vectors, by="utterance"),
        Sets.load(tmp_path / "v.parquet", by="utterance"),
    ):
        np.testing.assert_array_equal(found.X, sets.X)
        assert found.names.tolist() == sets.names.tolist()
    with pytest.raises(ValueError, match="one vector per row, pass by="):
        Sets.load(tmp_path / "v.parquet")
    ragged = vectors.assign(v=[[1.0], *list(sets.X[1:])])
    with pytest.raises(ValueError, match="Column 'v' must hold vectors of numbers, all of the"):
        Sets.from_frame(ragged, by="utterance")


def test_bad_frames_are_refused(sets):
    frame = long_frame(sets)
    with pytest.raises(TypeError, match="must be a pandas DataFrame; got dict"):
        Sets.from_frame({"utterance": [1]}, by="utterance")
    with pytest.raises(ValueError, match="must be unique; found duplicates of 'g'"):
        Sets.from_frame(frame.rename(columns={"f": "g"}), by="utterance", label="speaker")
    with pytest.raises(ValueError, match="Column 'uterance' not found.*Did you mean 'utterance'"):
        Sets.from_frame(frame, by="uterance")
    with pytest.raises(ValueError, match="must be numeric; 'speaker' are not"):
        Sets.from_frame(frame, by="utterance")
    mixed = frame.assign(speaker=["b", *frame["speaker"][1:]])
    with pytest.raises(ValueError, match=r"Set 0 \('v'\) has more than one label"):
        Sets.from_frame(mixed, by="utterance", label="speaker")
    with pytest.raises(ValueError, match="must name the set of each row, but row 3 has no value"):
        Sets.from_frame(
            frame.assign(utterance=frame["utterance"].where(frame.index != 3)),
            by="utterance",
            label="speaker",
        )
    with pytest.raises(ValueError, match=r"Set 1 \('w'\) holds nan"):
        Sets.from_frame(
            frame.assign(g=frame["g"].where(frame.index != 4)), by="utterance", label="speaker"
        )


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_files_bring_back_what_was_saved(sets, tmp_path, suffix):
    for k, some in enumerate([sets, Sets.from_list([[[1, 2]], [[3, 4], [5, 6]]], [7, 8])]):
        some.save(tmp_path / f"{k}.{suffix}")
        assert Sets.load(tmp_path / f"{k}.{suffix}") == some
    narrow = Sets(sets.X.astype(np.float32), sets.offsets)[1:4]
    narrow.save(tmp_path / f"narrow.{suffix}")
    again = Sets.load(tmp_path / f"narrow.{suffix}")
    assert again == narrow and again.X.dtype == np.float32


def test_long_tables_are_read_by_set(sets, tmp_path):
    frame = long_frame(sets)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        found = Sets.load(tmp_path / name, by="utterance", label="speaker")
        np.testing.assert_allclose(found.X, sets.X, rtol=1e-14)
        assert found.labels.tolist() == sets.labels.tolist()


def test_files_of_others_are_read_or_refused(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((3, 2), np.int16), offsets=[0, 1, 3], y=[4, 5], z=[1])
    assert Sets.load(tmp_path / "a.npz").labels.tolist() == [4, 5]
    np.savez(tmp_path / "b.npz", X=np.ones((3, 2)))
    with pytest.raises(ValueError, match="no array 'offsets'; it has 'X'"):
        Sets.load(tmp_path / "b.npz")
    labels = np.array(["a", None], dtype=object)
    np.savez(tmp_path / "f.npz", X=np.ones((3, 2)), offsets=[0, 1, 3], labels=labels)
    with pytest.raises(ValueError, match=r"f.npz holds Python objects.*astype\(str\)"):
        Sets.load(tmp_path / "f.npz")
    arrow, parquet = (pytest.importorskip(f"pyarrow{part}") for part in ("", ".parquet"))
    pairs = arrow.FixedSizeListArray.from_arrays(arrow.array(np.arange(12.0)), 2)
    equal = arrow.FixedSizeListArray.from_arrays(pairs, 3)
    parquet.write_table(arrow.table({"v": equal}), tmp_path / "g.parquet")
    np.testing.assert_array_equal(Sets.load(tmp_path / "g.parquet")[1], [[6, 7], [8, 9], [10, 11]])
    pd.DataFrame({"v": [[[1.0, 2.0]], []]}).to_parquet(tmp_path / "c.parquet")
    with pytest.raises(ValueError, match="Set 1 is empty"):
        Sets.load(tmp_path / "c.parquet")
    pd.DataFrame({"v": [1.0]}).to_parquet(tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="0 such columns among 'v'"):
        Sets.load(tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="by="):
        Sets.load(tmp_path / "e.csv")
    with pytest.raises(ValueError, match=r"\.npz, \.parquet"):
        Sets.load(tmp_path / "e.xlsx")


# ---------------------------------------------------------------------- Gaussians of sets


def test_gaussians_of_sets_are_means_and_unbiased_covariances_plus_ridge(sets, arrays):
    gaussians = Gaussians.from_sets(sets, ridge=0.25)
    for (mean, covariance), rows in zip(gaussians, arrays, strict=True):
        np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-14)
        expected = np.cov(rows, rowvar=False) if len(rows) > 1 else np.zeros((3, 3))
        np.testing.assert_allclose(covariance, expected + 0.25 * np.eye(3), atol=1e-13)
    assert gaussians.added_ridge == 0.25 and gaussians.names.tolist() == list("vwxyz")
    biased = Gaussians.from_sets(sets[2:3], ridge=0.25, ddof=0)
    expected = np.cov(arrays[2], rowvar=False, ddof=0) + 0.25 * np.eye(3)
    np.testing.assert_allclose(biased.covariances[0], expected, atol=1e-13)


def test_covariances_lose_no_digits_to_an_offset():
    rows = np.random.default_rng(0).normal(size=(50, 2))
    near, far = (Gaussians.from_sets([rows + shift], ridge=0.0) for shift in (0.0, 2.0**24))
    np.testing.assert_allclose(far.covariances, near.covariances, rtol=1e-6)
    single = Gaussians.from_sets([(rows + 1000).astype(np.float32)], ridge=0.0)
    np.testing.assert_allclose(single.covariances, near.covariances, rtol=1e-3)


def test_order_and_repetition_within_a_set(arrays):
    rows = arrays[2]
    plain, turned = (Gaussians.from_sets([r], ridge=1e-3) for r in (rows, rows[::-1]))
    np.testing.assert_allclose(plain.covariances, turned.covariances, rtol=1e-13)
    twice = Gaussians.from_sets([np.repeat(rows, 2, axis=0)], ridge=1e-3)
    t, ridge = len(rows), 1e-3 * np.eye(3)
    expected = (plain.covariances - ridge) * (t - 1) / t * (2 * t) / (2 * t - 1) + ridge
    np.testing.assert_allclose(twice.covariances, expected, rtol=1e-12)


def test_the_automatic_ridge_is_the_typical_variance(sets, arrays):
    variances = [np.cov(r, rowvar=False).trace() / 3 if len(r) > 1 else 0.0 for r in arrays]
    found = Gaussians.from_sets(sets).added_ridge
    assert found == pytest.approx(np.median(variances))
    assert Gaussians.from_sets(Sets.from_list([1e4 * r for r in arrays])).added_ridge == (
        pytest.approx(1e8 * found)
    )
    # Sets of single vectors vary only between sets. Equal sets do not vary at all.
    lone = Gaussians.from_sets([[[0.0]], [[2.0]]])
    assert lone.added_ridge == pytest.approx(1.0)
    assert Gaussians.from_sets([[[2.0]], [[2.0]]]).added_ridge > 0


def test_singular_covariances_are_named_and_large_ridges_warned_of(sets):
    with pytest.raises(ValueError, match=r"Set 1 \('w'\) has 1 vector of 3 features.*singular"):
        Gaussians.from_sets(sets, ridge=0.0)
    with pytest.warns(UserWarning, match="exceeds the median variance"):
        Gaussians.from_sets(sets, ridge=1e6)
    with pytest.raises(ValueError, match=r"Gaussian 1 \('b'\) is not positive definite"):
        Gaussians(np.zeros((2, 2)), [np.eye(2), np.ones((2, 2))], names=["a", "b"]).cholesky()


@pytest.mark.parametrize(("name", "estimator"), [("ledoit_wolf", LedoitWolf), ("oas", OAS)])
def test_shrinkage_is_that_of_scikit_learn(arrays, name, estimator):
    rows = arrays[2]
    t = len(rows)
    found = Gaussians.from_sets([rows], ridge=0.0, shrinkage=name).covariances[0]
    np.testing.assert_allclose(found, estimator().fit(rows).covariance_ * t / (t - 1), rtol=1e-10)


@pytest.mark.parametrize("storage", ["dense", "low_rank"])
def test_a_given_shrinkage_keeps_the_trace_and_the_ridge_comes_after(arrays, storage):
    found = Gaussians.from_sets(arrays[2:], ridge=0.2, shrinkage=0.3, storage=storage)
    for T, rows in zip(found.covariances, arrays[2:], strict=True):
        S = np.cov(rows.T)
        wanted = 0.7 * S + (0.3 * S.trace() / 3 + 0.2) * np.eye(3)
        np.testing.assert_allclose(T, wanted, atol=1e-12)


def test_low_rank_storage_holds_the_same_covariances():
    rng = np.random.default_rng(0)
    wide = [rng.normal(size=(t, 40)) for t in (3, 1, 6)]
    for shrinkage in (None, 0.2, "oas"):
        thin = Gaussians.from_sets(wide, ridge=0.1, shrinkage=shrinkage)
        dense = Gaussians.from_sets(wide, ridge=0.1, shrinkage=shrinkage, storage="dense")
        assert thin.is_low_rank and thin.rank == 5 and not dense.is_low_rank
        np.testing.assert_allclose(thin.covariances, dense.covariances, atol=1e-13)
        np.testing.assert_allclose(thin.means, dense.means, atol=1e-14)
    # The same holds if a set has more vectors than features.
    tall = Gaussians.from_sets([rng.normal(size=(9, 2))], ridge=0.1, storage="low_rank")
    again = Gaussians(tall.means, tall.covariances)
    np.testing.assert_allclose(tall.cholesky(), again.cholesky(), rtol=1e-12)
    assert not Gaussians.from_sets(wide[2:] * 2, ridge=0.1, storage="dense").is_low_rank


@pytest.mark.parametrize("storage", ["dense", "low_rank"])
def test_gaussians_slice_join_compare_and_pickle(sets, storage):
    gaussians = Gaussians.from_sets(sets, ridge=0.1, storage=storage)
    part = gaussians[[3, 0]]
    np.testing.assert_array_equal(part.means, gaussians.means[[3, 0]])
    np.testing.assert_array_equal(part.covariances, gaussians.covariances[[3, 0]])
    assert part.names.tolist() == ["y", "v"] and part.added_ridge == 0.1
    assert Gaussians.concatenate([gaussians[:2], gaussians[2:]]) == gaussians
    assert pickle.loads(pickle.dumps(gaussians)) == gaussians != part
    assert len(gaussians[np.arange(5) > 1]) == 3
    mean, covariance = gaussians[-1]
    np.testing.assert_array_equal(mean, gaussians.means[4])
    assert covariance.shape == (3, 3)
    train, _ = train_test_split(gaussians, random_state=0)
    assert isinstance(train, Gaussians)
    with pytest.raises(AttributeError, match="immutable"):
        gaussians.means = 0


def test_joined_ranks_differ():
    rng = np.random.default_rng(0)
    a, b = (Gaussians.from_sets(rng.normal(size=(2, t, 30)), ridge=0.1) for t in (3, 6))
    both = Gaussians.concatenate([a, b])
    assert both.is_low_rank and both.rank == 5
    np.testing.assert_allclose(both.covariances[:2], a.covariances, atol=1e-15)
    dense = Gaussians(b.means, b.covariances)
    assert not Gaussians.concatenate([a, dense]).is_low_rank


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.0]],), "either covariances, or factors"),
        (([[0.0]], [[[1.0]]], 2), "positional"),
        (([0.0], [[[1.0]]]), r"means must have shape \(n, p\)"),
        (([[0.0]], [[1.0]]), r"covariances must have shape"),
        (([[0.0, 0.0]], [[[1.0, 0.5], [0.0, 1.0]]]), "Gaussian 0 is not symmetric"),
        (([[0.0]], [[[np.nan]]]), "covariances must be finite; Gaussian 0 has nan"),
    ],
)
def test_bad_gaussians_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Gaussians(*arguments)


def test_factors_need_a_ridge():
    Z = np.ones((2, 3, 1))
    with pytest.raises(ValueError, match="ridge is required with factors"):
        Gaussians(np.zeros((2, 3)), factors=Z)
    with pytest.raises(ValueError, match="the ridge of Gaussian 1 is 0"):
        Gaussians(np.zeros((2, 3)), factors=Z, ridge=[1.0, 0.0])
    with pytest.raises(ValueError, match="ridge cannot be used with covariances"):
        Gaussians(np.zeros((2, 1)), np.ones((2, 1, 1)), ridge=1.0)


# ---------------------------------------------------------------------- neighborhoods


def neighbors(X, m):
    distances = cdist(X, X)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :m]


@pytest.mark.parametrize("storage", ["dense", "low_rank"])
@pytest.mark.parametrize("center", ["point", "mean"])
def test_neighbourhoods_are_those_of_the_equations(center, storage):
    X = np.random.default_rng(0).normal(size=(30, 4)) * [1, 2, 3, 4] + 100
    m, gamma = 5, 0.5
    found = Gaussians.from_neighborhoods(X, m, gamma, center, storage=storage)
    assert found.is_low_rank == (storage == "low_rank")
    for i, near in enumerate(neighbors(X, m)):
        if center == "point":
            mean, away, divisor = X[i], X[near] - X[i], m - 1
        else:
            closed = np.vstack([X[near], X[i]])
            mean, divisor = closed.mean(axis=0), m
            away = closed - mean
        np.testing.assert_allclose(found.means[i], mean, rtol=1e-13)
        expected = away.T @ away / divisor + gamma * np.eye(4)
        np.testing.assert_allclose(found.covariances[i], expected, rtol=1e-10, atol=1e-12)
    # No eigenvalue is below the ridge, and at most m eigenvalues exceed it.
    values = np.linalg.eigvalsh(found.covariances)
    assert values.min() > gamma - 1e-10


def test_smoothed_covariances_have_the_rank_of_the_neighbours():
    X = np.random.default_rng(0).normal(size=(40, 12))
    found = Gaussians.from_neighborhoods(X, 3, 1.0)
    assert found.is_low_rank and found.rank == 3
    assert np.linalg.matrix_rank(found.covariances - np.eye(12), tol=1e-10).max() == 3


def test_new_points_find_neighbours_among_the_old_and_old_ones_are_recognised():
    X = load_iris().data  # with duplicates
    old = Gaussians.from_neighborhoods(X, 6, 1.0)
    again = Gaussians.from_neighborhoods(X, 6, 1.0, queries=X[[3, 101, 142]])
    np.testing.assert_allclose(again.means, old.means[[3, 101, 142]], rtol=1e-14)
    np.testing.assert_allclose(again.covariances, old.covariances[[3, 101, 142]], atol=1e-13)
    stranger = Gaussians.from_neighborhoods(X, 6, 1.0, queries=X[[3]], match_training_points=False)
    assert np.abs(stranger.means - old.means[[3]]).max() > 1e-3
    new = Gaussians.from_neighborhoods(X[1:], 6, 1.0, "point", queries=X[:1] + 0.01)
    near = np.argsort(np.linalg.norm(X[1:] - X[0] - 0.01, axis=1), kind="stable")[:6]
    away = X[1:][near] - X[0] - 0.01
    np.testing.assert_allclose(new.covariances[0], away.T @ away / 5 + np.eye(4), atol=1e-12)


def test_neighbours_may_be_given():
    X = np.random.default_rng(0).normal(size=(20, 3))
    given = Gaussians.from_neighborhoods(X, ridge=1.0, neighbors=neighbors(X, 4))
    assert given == Gaussians.from_neighborhoods(X, 4, 1.0)
    with pytest.raises(ValueError, match="one row per point, 20; got 19 rows"):
        Gaussians.from_neighborhoods(X, ridge=1.0, neighbors=neighbors(X, 4)[1:])


def test_bad_neighbourhoods_are_refused():
    X = np.random.default_rng(0).normal(size=(10, 3))
    with pytest.raises(ValueError, match="at least 2 for center="):
        Gaussians.from_neighborhoods(X, 1, center="point")
    with pytest.raises(ValueError, match="n_neighbors"):
        Gaussians.from_neighborhoods(X, 10)
    with pytest.raises(ValueError, match="center must be"):
        Gaussians.from_neighborhoods(X, 3, center="rough")
    with pytest.raises(ValueError, match="ridge must be"):
        Gaussians.from_neighborhoods(X, 3, -1.0)
    with pytest.raises(ValueError, match="queries have 2 features"):
        Gaussians.from_neighborhoods(X, 3, queries=X[:, :2])
    with pytest.raises(ValueError, match="overflow"), np.errstate(all="ignore"):
        Gaussians.from_neighborhoods(X * 1e160, 3, neighbors=neighbors(X, 3))
