"""GTA and GTDA in batches and on dask give the same result as a single fit."""

import logging
import os
import pickle
import signal

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from nearfar import GTA, GTDA, ModeStatistics, all_estimators

N, SHAPE, CLASSES = 180, (6, 5, 3), 4
# These tests compare single sweeps, so convergence does not matter.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def sample(n=N, shape=SHAPE, seed=0):
    """Return classes that differ by low-rank tensors, with structured noise and an offset."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % CLASSES)
    bases = [np.linalg.qr(rng.normal(size=(d, d)))[0] * 1.6 ** -np.arange(d) for d in shape]
    letters = "abcd"[: len(shape)]
    spec = ",".join([f"n{letters}", *[c.upper() + c for c in letters]]) + "->n" + letters.upper()
    noise, means = rng.normal(size=(n, *shape)), rng.normal(size=(CLASSES, *shape))
    return np.einsum(spec, noise + 2 * means[y], *bases) + 10, y


X, Y = sample()
LEARNERS = {
    "GTA": GTA(3, max_iter=6),
    "GTA of a share": GTA(energy=0.9, max_iter=6),
    "GTA from zero": GTA((3, 2, 2), center=False, max_iter=6),
    "GTA from a random start": GTA((3, 3, 2), init="random", max_iter=6),
    "GTA direct": GTA(3, max_iter=0),
    "GTDA": GTDA(3, max_iter=6),
    "GTDA, a larger weight": GTDA((3, 2, 2), within_weight=1.0, max_iter=6),
    "GTDA, weight zero": GTDA((3, 2, 2), within_weight=0.0, max_iter=6),
    "GTDA by the ratio of traces": GTDA((2, 2, 2), within_weight="trace_ratio", max_iter=6),
    "GTDA by a rule for dimensions": GTDA(dim_rule="abs_mass", dim_fraction=0.9, max_iter=6),
    "GTDA direct": GTDA(3, max_iter=0),
}
every_learner = pytest.mark.parametrize("name", LEARNERS)


def in_batches(learner, X, y, size=37):
    for start in range(0, len(X), size):
        learner.partial_fit(X[start : start + size], y[start : start + size])
    return learner


def batches_of_one(learner, X, y):
    return in_batches(learner, X, y, 1)


def shuffled(learner, X, y):
    order = np.random.default_rng(3).permutation(len(X))
    return in_batches(learner, X[order], y[order], 23)


def sorted_by_class(learner, X, y):
    order = np.argsort(-y, kind="stable")
    return in_batches(learner, X[order], y[order], 30)


def flat_rows(learner, X, y):
    return in_batches(learner.set_params(tensor_shape=X.shape[1:]), X.reshape(len(X), -1), y)


WAYS = [in_batches, batches_of_one, shuffled, sorted_by_class, flat_rows]


def projectors(learner):
    return [U.astype(float) @ U.T.astype(float) for U in learner.factors_]


def assert_same(found, expected, bound=1e-6):
    assert found.n_components_ == expected.n_components_
    for P, Q in zip(projectors(found), projectors(expected), strict=True):
        assert np.linalg.norm(P - Q) < bound
    if hasattr(expected, "mean_"):
        np.testing.assert_allclose(found.mean_, expected.mean_, rtol=1e-6)
    else:
        assert not hasattr(found, "mean_")


# ---------------------------------------------------------------------- batches


@pytest.mark.parametrize("name", ["GTA", "GTDA", "GTA direct", "GTDA direct"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_in_any_split_and_order(name, way):
    assert_same(way(clone(LEARNERS[name]), X, Y), clone(LEARNERS[name]).fit(X, Y))


@every_learner
def test_batches_say_what_one_fit_says(name):
    expected = clone(LEARNERS[name]).fit(X, Y)
    found = in_batches(clone(LEARNERS[name]), X, Y)
    assert_same(found, expected)
    energy = ((X - X.mean(axis=0)) ** 2).sum()
    np.testing.assert_allclose(
        found.history_["objective"], expected.history_["objective"], rtol=1e-8, atol=1e-9 * energy
    )
    np.testing.assert_allclose(found.transform(X), expected.transform(X), atol=1e-6)
    assert found.converged_ == expected.converged_
    if isinstance(found, GTDA):
        np.testing.assert_allclose(found.within_weight_, expected.within_weight_, rtol=1e-8)
        assert found.classes_.tolist() == list(range(CLASSES))


@pytest.mark.parametrize("name", ["GTA", "GTDA"])
def test_float32_keeps_its_dtype(name):
    narrow = X.astype(np.float32)
    found = in_batches(clone(LEARNERS[name]), narrow, Y)
    assert {U.dtype for U in found.factors_} == {np.dtype(np.float32)}
    assert found.transform(narrow).dtype == np.float32
    assert_same(found, clone(LEARNERS[name]).fit(X, Y), bound=1e-3)


def test_order_one_is_without_limit(monkeypatch):
    for module in ("base.mode_statistics_learner", "summaries.mode_statistics"):
        monkeypatch.setattr(f"nearfar.{module}.FULL_SIZE", 10)
    rows = X[:, :, :, 0].reshape(N, -1)
    found = in_batches(GTDA(2), rows, Y, 7)
    assert not found.statistics_.is_full
    assert_same(found, GTDA(2).fit(rows, Y))


@pytest.mark.slow
@pytest.mark.parametrize("learner", [GTA(2, max_iter=0), GTDA(2, max_iter=0)], ids=str)
def test_large_tensors_in_the_direct_form(learner):
    """With too many entries for the full moment, the per-mode scatters suffice."""
    X, y = sample(60, (50, 84))
    found = in_batches(clone(learner), X, y, 25)
    assert not found.statistics_.is_full
    assert_same(found, learner.fit(X, y))


@pytest.mark.parametrize("learner", [GTA(2), GTDA(2)], ids=str)
def test_large_tensors_with_sweeps_are_refused_with_three_ways_out(learner):
    X, y = sample(12, (50, 84))
    with pytest.raises(ValueError, match="4,200 entries") as refused:
        learner.partial_fit(X, y)
    assert all(way in str(refused.value) for way in ("max_iter=0", "GTA", "dask", "4,096"))
    assert not hasattr(learner, "statistics_")
    assert learner.fit(X, y).n_iter_ > 0


def test_sweeps_after_direct_batches_are_refused():
    learner = in_batches(GTDA(2, max_iter=0), X, Y)
    direct = projectors(learner)
    learner.set_params(max_iter=5)
    with pytest.raises(ValueError, match="were accumulated with max_iter=0"):
        learner.partial_fit(X, Y)
    learner.set_params(max_iter=0)
    for before, now in zip(direct, projectors(learner), strict=True):
        np.testing.assert_array_equal(before, now)
    assert learner.statistics_.counts.sum() == N
    learner.set_params(max_iter=5)._unsolve()
    with pytest.raises(ValueError, match="were accumulated with max_iter=0"):
        learner.transform(X)


# ---------------------------------------------------------------------- time of solution


def test_batches_are_solved_once_and_only_when_asked(monkeypatch):
    solves = []
    learn = GTDA._learn
    monkeypatch.setattr(
        GTDA, "_learn", lambda self, *given: solves.append(1) or learn(self, *given)
    )
    learner = in_batches(GTDA(2), X, Y)
    assert not solves
    assert learner.n_features_in_ == np.prod(SHAPE) and learner.tensor_shape_ == SHAPE
    assert not solves
    assert learner.transform(X).shape == (N, 8) and learner.components_.shape == (8, 90)
    assert learner.history_ and learner.within_weight_.shape == (3,)
    assert len(solves) == 1
    learner.partial_fit(X[:9], Y[:9])
    assert "factors_" not in vars(learner)
    assert len(learner.factors_) == 3 and len(solves) == 2


def test_new_classes_may_come_unless_all_were_named():
    few = GTDA(2).partial_fit(X[Y < 2], Y[Y < 2])
    assert few.classes_.tolist() == [0, 1]
    few.partial_fit(X[Y >= 2], Y[Y >= 2])
    assert few.classes_.tolist() == [0, 1, 2, 3]
    assert_same(few, GTDA(2).fit(X, Y))
    named = GTDA(2).partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1, 2])
    with pytest.raises(ValueError, match="label 3, which is not among"):
        named.partial_fit(X[Y == 3], Y[Y == 3])
    assert_same(named, GTDA(2).fit(X[Y < 2], Y[Y < 2]))


def test_one_class_so_far_says_so_when_it_is_solved():
    learner = GTDA(2).partial_fit(X[Y == 1], Y[Y == 1])
    with pytest.raises(ValueError, match=r"at least 2 classes.*one class \(1\)"):
        learner.transform(X)
    assert_same(learner.partial_fit(X[Y != 1], Y[Y != 1]), GTDA(2).fit(X, Y))


def test_a_fit_starts_anew_and_keeps_no_statistics():
    learner = in_batches(GTA(2), X + 5, Y)
    assert_same(learner.fit(X), GTA(2).fit(X))
    assert "statistics_" not in vars(learner)
    with pytest.raises(ValueError, match="does not store the statistics.*Call partial_fit"):
        learner.partial_fit(X)
    assert_same(learner, GTA(2).fit(X))


BAD = {
    "NaN": (lambda: (np.where(np.arange(N)[:, None, None, None] == 7, np.nan, X), Y), "sample 7"),
    "other shape": (lambda: (X[:, :, :, :2], Y), "shape"),
    "labels missing": (lambda: (X, None), "requires y"),
    "fewer labels": (lambda: (X, Y[:-1]), "inconsistent numbers of samples"),
    "other kind of label": (lambda: (X, Y.astype(str)), "no common order"),
    "no samples": (lambda: (X[:0], Y[:0]), "0 sample"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_refused_batch_leaves_no_trace(bad):
    make, message = BAD[bad]
    learner = in_batches(GTDA(2), X, Y)
    learner.transform(X)
    before = pickle.dumps(learner)
    with pytest.raises(ValueError, match=message):
        learner.partial_fit(*make())
    assert pickle.dumps(learner) == before
    new = GTDA(2)
    if bad not in ("other shape", "other kind of label"):
        with pytest.raises(ValueError, match=message):
            new.partial_fit(*make())
        with pytest.raises(NotFittedError):
            new.transform(X)
    assert_same(new.partial_fit(X, Y), learner)


def test_pickles_go_on():
    learner = in_batches(GTDA(2), X[:100], Y[:100])
    learner = pickle.loads(pickle.dumps(learner)).partial_fit(X[100:], Y[100:])
    assert_same(pickle.loads(pickle.dumps(learner)), GTDA(2).fit(X, Y))


@pytest.mark.parametrize("solved", [False, True])
@pytest.mark.parametrize("n", [20, N], ids=["kept as samples", "summed"])
@pytest.mark.parametrize("max_iter", [0, 50])
def test_model_files_of_batches(solved, n, max_iter, tmp_path):
    pytest.importorskip("skops")
    from nearfar import persistence

    learner = GTDA(2, max_iter=max_iter).partial_fit(X[:n], Y[:n])
    if solved:
        learner.transform(X)
    persistence.save(learner, tmp_path / "model.nf")
    says = persistence.describe(tmp_path / "model.nf")
    loaded = persistence.load(tmp_path / "model.nf")
    assert ("factors_" in vars(loaded)) == solved
    kept = n if n < np.prod(SHAPE) and max_iter else CLASSES
    assert says["n_training_rows"] == kept
    assert_same(loaded, learner)
    if n < N:
        loaded.partial_fit(X[n:], Y[n:])
        assert_same(loaded, GTDA(2, max_iter=max_iter).fit(X, Y))


def test_ctrl_c_in_the_solve_leaves_the_best_so_far():
    def stop(iteration, state):
        if iteration == 2:
            raise KeyboardInterrupt

    learner = GTA(2, tol=0.0)
    learner.callback = stop
    in_batches(learner, X, Y)
    with pytest.raises(KeyboardInterrupt):
        learner.transform(X)
    assert learner.n_iter_ == 2 and learner.transform(X).shape == (N, 8)
    learner.callback = None
    learner.partial_fit(X[:5])
    assert "factors_" not in vars(learner)


# ---------------------------------------------------------------------- dask


def lazy(array, size=61):
    da = pytest.importorskip("dask.array")
    return da.from_array(array, chunks=(size, *[-1] * (array.ndim - 1)))


@pytest.mark.by_turns(3)
@every_learner
def test_dask_arrays_say_what_arrays_say(name):
    found = clone(LEARNERS[name]).fit(lazy(X), lazy(Y))
    assert_same(found, clone(LEARNERS[name]).fit(X, Y))
    assert "statistics_" not in vars(found)


@every_learner
def test_batches_may_be_dask_arrays(name):
    learner = clone(LEARNERS[name]).partial_fit(X[:50], Y[:50])
    learner.partial_fit(lazy(X[50:], 30), Y[50:])
    assert_same(learner, clone(LEARNERS[name]).fit(X, Y))


def test_each_step_of_a_mode_is_one_reduction(monkeypatch):
    dask = pytest.importorskip("dask")
    computed, compute = [], dask.compute
    monkeypatch.setattr(dask, "compute", lambda *given: computed.append(1) or compute(*given))
    learner = GTDA(2, max_iter=3).fit(lazy(X), lazy(Y))
    # One more pass computes the means and the initial scatters.
    assert len(computed) == 1 + len(SHAPE) * learner.n_iter_
    computed.clear()
    GTDA(2, max_iter=0).fit(lazy(X), lazy(Y))
    assert len(computed) == 1


@pytest.mark.slow
def test_large_tensors_on_dask_have_sweeps():
    X, y = sample(60, (50, 84))
    learner = GTDA(2)
    assert_same(clone(learner).fit(lazy(X, 13), y), learner.fit(X, y))


@pytest.mark.parametrize(
    "given",
    [
        lambda: (lazy(X).rechunk((61, 3, 2, 3)), Y),
        lambda: (lazy(X).rechunk(((0, 100, 0, 80), *SHAPE)), Y.tolist()),
        lambda: (lazy(X)[lazy(Y) >= 0], lazy(Y)[lazy(Y) >= 0]),
        lambda: (lazy(X).astype(np.float32), np.array(["d", "a", "c", "b"])[Y]),
    ],
    ids=["cut in all modes", "empty blocks", "unknown sizes", "float32, text"],
)
def test_blocks_of_any_kind(given):
    X_lazy, labels = given()
    learner = GTDA(2, max_iter=6).fit(X_lazy, labels)
    narrow = X_lazy.dtype == np.float32
    assert learner.factors_[0].dtype == X_lazy.dtype
    assert_same(learner, GTDA(2, max_iter=6).fit(X, Y), 1e-4 if narrow else 1e-6)


def test_flat_rows_and_frames_with_a_shape():
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    expected = GTDA(2, max_iter=6).fit(X, Y)
    flat = X.reshape(N, -1)
    learner = GTDA(2, tensor_shape=SHAPE, max_iter=6)
    assert_same(clone(learner).fit(lazy(flat), Y), expected)
    frame = pd.DataFrame(flat, columns=[f"pixel {k}" for k in range(flat.shape[1])])
    assert_same(clone(learner).fit(dd.from_pandas(frame, npartitions=4), Y), expected)


def test_what_is_wrong_on_dask_is_said():
    bad = X.copy()
    bad[70, 1, 1, 1] = np.nan
    learner = GTDA(2).fit(X, Y)
    with pytest.raises(ValueError, match="Block 1 of X: Input X contains NaN in sample 9"):
        learner.fit(lazy(bad), Y)
    assert not hasattr(learner, "factors_")
    with pytest.raises(ValueError, match="requires y"):
        GTDA(2).fit(lazy(X))
    with pytest.raises(ValueError, match="only one class"):
        GTDA(2).fit(lazy(X), np.zeros(N))
    with pytest.raises(ValueError, match="minimum of 2"):
        GTA(2).fit(lazy(X[:1]))
    with pytest.raises(ValueError, match="tensor_shape"):
        GTA(2, tensor_shape=(5, 6, 3)).fit(lazy(X))


def test_labels_that_change_from_pass_to_pass_are_noticed():
    dask = pytest.importorskip("dask")
    da = pytest.importorskip("dask.array")
    calls = []

    def labels():
        calls.append(1)
        return Y + 10 * (len(calls) > 1)

    y = da.from_delayed(dask.delayed(labels, pure=False)(), (N,), dtype=Y.dtype)
    with pytest.raises(ValueError, match="did not occur when the blocks were first computed"):
        GTDA(2).fit(lazy(X, N), y)


def test_bits_depend_on_the_blocks_alone():
    dask = pytest.importorskip("dask")
    found = []
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(GTDA(2, max_iter=3).fit(lazy(X, 15), lazy(Y, 15)).factors_)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_cluster_that_loses_a_worker_in_a_sweep_says_the_same(tmp_path):
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    da = pytest.importorskip("dask.array")
    folder = str(tmp_path)

    def load(k):
        marks = len([name for name in os.listdir(folder) if name.startswith(f"read-{k}-")])
        with open(f"{folder}/read-{k}-{marks}-{os.getpid()}", "w"):
            pass
        # In the fourth pass, the class means are known and the sweeps have started.
        if k == 2 and marks >= 3 and not os.path.exists(f"{folder}/killed"):
            with open(f"{folder}/killed", "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return X[30 * k : 30 * k + 30]

    blocks = [da.from_delayed(dask.delayed(load)(k), (30, *SHAPE), dtype=X.dtype) for k in range(6)]
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=folder,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster),
    ):
        learner = GTDA(2, max_iter=4, tol=0.0)
        learner.fit(da.concatenate(blocks), Y)
    assert os.path.exists(f"{folder}/killed")
    assert_same(learner, GTDA(2, max_iter=4, tol=0.0).fit(X, Y))
    assert learner.n_iter_ == 4


def test_learners_of_tensors_that_read_statistics_take_batches():
    found = [
        name
        for name, kind in all_estimators(input="tensors").items()
        if kind.learner_tags.reads == "statistics"
    ]
    assert {"GTA", "GTDA"} <= set(found)
    for name in found:
        learner = all_estimators()[name]().partial_fit(X, Y)
        assert isinstance(learner.statistics_, ModeStatistics)
