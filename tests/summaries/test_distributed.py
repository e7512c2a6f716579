"""Statistics of dask arrays and dataframes, on threads and on a cluster that loses a worker."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from scipy import linalg
from scipy.spatial.distance import pdist

from nearfar import LDA, PCA, RCA, ClassStatistics, all_learners
from nearfar.summaries.distributed import FAN_IN, compute_block_statistics, is_dask, merge_summaries

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N, P, CLASSES = 600, 7, 4


def sample(n=N, seed=0):
    """Return correlated classes of unequal size and covariance, far from the origin."""
    rng = np.random.default_rng(seed)
    y = rng.choice(CLASSES, size=n, p=[0.4, 0.3, 0.2, 0.1])
    shapes = rng.normal(size=(CLASSES, P, P))
    X = np.einsum("ni,nij->nj", rng.normal(size=(n, P)), shapes[y])
    return X + 2 * rng.normal(size=(CLASSES, P))[y] + 50, y


X, Y = sample()
REFERENCE = LDA().fit(X, Y)


def blocks(array, size=70, columns=None):
    return da.from_array(array, chunks=size if array.ndim == 1 else (size, columns or P))


def cut_somewhere(array, size=70):
    """Return the same rows with unknown chunk sizes."""
    first = da.arange(len(array), chunks=size) < 333
    lazy = blocks(array, size)
    return da.concatenate([lazy[first], lazy[~first]])


def assert_like_reference(learner):
    np.testing.assert_allclose(learner.components_, REFERENCE.components_, rtol=0, atol=1e-10)
    np.testing.assert_allclose(learner.mean_, REFERENCE.mean_, rtol=1e-13)
    np.testing.assert_array_equal(learner.statistics_.counts, np.bincount(Y))


# ---------------------------------------------------------------------- every learner


STATISTICS = [n for n, cls in all_learners().items() if cls.learner_tags.reads == "statistics"]


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_statistics_learner_takes_dask_arrays(name):
    learner = all_learners()[name]
    learner = partial(learner, **getattr(learner, "batch_parameters", {}))
    whole = learner().fit(X, Y)
    lazy = learner().fit(blocks(X), blocks(Y))
    # Iterative learners may stop a step earlier or later because of rounding.
    np.testing.assert_allclose(pdist(lazy.transform(X)), pdist(whole.transform(X)), rtol=1e-4)


def test_the_solution_is_that_of_scipy_on_scatters_in_two_passes():
    own = np.array([X[c == Y].mean(axis=0) for c in range(CLASSES)])[Y]
    within = (X - own).T @ (X - own) / N
    between = (own - X.mean(axis=0)).T @ (own - X.mean(axis=0)) / N
    values = linalg.eigh(between, within, eigvals_only=True)[::-1][: CLASSES - 1]
    lazy = LDA().fit(blocks(X), blocks(Y))
    np.testing.assert_allclose(lazy.eigenvalues_, values, rtol=1e-9)
    np.testing.assert_allclose(lazy.statistics_.within_scatter() / N, within, rtol=1e-10)


# ---------------------------------------------------------------------- how X and y are cut


@pytest.mark.parametrize(
    "y",
    [
        pytest.param(lambda: blocks(Y), id="dask"),
        pytest.param(lambda: blocks(Y, 44), id="other chunks"),
        pytest.param(lambda: blocks(Y)[:, None], id="column"),
        pytest.param(lambda: Y, id="numpy"),
        pytest.param(lambda: Y.tolist(), id="list"),
    ],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_labels_of_any_kind_find_their_rows(y):
    assert_like_reference(LDA().fit(blocks(X), y()))


@pytest.mark.parametrize(
    "y",
    [
        pytest.param(lambda: cut_somewhere(Y), id="unknown as well"),
        pytest.param(lambda: Y, id="numpy"),
        pytest.param(lambda: blocks(Y, 44), id="known"),
    ],
)
def test_unknown_chunk_sizes(y):
    lazy = cut_somewhere(X)
    assert np.isnan(lazy.shape[0])
    assert_like_reference(LDA().fit(lazy, y()))


def test_several_chunks_along_the_features():
    assert_like_reference(LDA().fit(blocks(X, columns=3), blocks(Y)))
    unknown = blocks(X, columns=3)[da.arange(N, chunks=70) >= 0]
    assert_like_reference(LDA().fit(unknown, Y))


def test_an_unknown_number_of_features_says_what_to_do():
    lazy = blocks(X).T[da.arange(P, chunks=P) >= 0].T
    with pytest.raises(ValueError, match="unknown number of features.*compute_chunk_sizes"):
        LDA().fit(lazy, Y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: (blocks(X), blocks(Y[:-1])), "X has 600 rows and y has 599"),
        (lambda: (blocks(X), Y[:-1]), "X has 600 rows and y has 599"),
        (lambda: (cut_somewhere(X), cut_somewhere(Y, 35)), "18 blocks but y has 36.*unknown"),
        (lambda: (cut_somewhere(X), blocks(Y, 34)), r"Block \d+ of X: X has \d+ rows but y has 34"),
        (lambda: (blocks(X), None), "requires y to be passed"),
    ],
    ids=["dask", "numpy", "other number of blocks", "other sizes", "none"],
)
def test_labels_that_do_not_fit_say_so(make, message):
    with pytest.raises(ValueError, match=message):
        LDA().fit(*make())


def test_empty_blocks_add_nothing():
    sizes = (0, 100, 0, 0, 450, 50, 0)
    lazy, labels = blocks(X).rechunk((sizes, P)), blocks(Y).rechunk((sizes,))
    assert lazy.chunks[0] == sizes
    assert_like_reference(LDA().fit(lazy, labels))
    assert_like_reference(LDA().fit(lazy, Y))
    with pytest.raises(ValueError, match="0 sample"):
        LDA().fit(lazy[:0], labels[:0])
    none = da.arange(N, chunks=100) < 0
    with pytest.raises(ValueError, match="0 sample"):
        LDA().fit(blocks(X, 100)[none], blocks(Y, 100)[none])


def test_one_block_and_more_blocks_than_one_level_of_the_tree():
    assert_like_reference(LDA().fit(blocks(X, N), blocks(Y, N)))
    assert N > FAN_IN**2 * 7
    assert_like_reference(LDA().fit(blocks(X, 7), blocks(Y, 7)))


# ---------------------------------------------------------------------- classes, weights, dtypes


def test_classes_that_only_one_block_holds():
    order = np.argsort(Y, kind="stable")
    learner = LDA().fit(blocks(X[order], 40), blocks(np.array(list("dcba"))[Y[order]], 40))
    assert learner.classes_.tolist() == list("abcd")
    assert learner.statistics_.counts.tolist() == np.bincount(Y)[::-1].tolist()
    np.testing.assert_allclose(learner.eigenvalues_, REFERENCE.eigenvalues_, rtol=1e-9)


def test_labels_without_a_common_order_say_so():
    mixed = da.concatenate([blocks(Y[:300], 60), blocks(Y[300:], 60).astype(str)], axis=0)
    mixed = da.concatenate([blocks(Y[:300], 60).astype(object), mixed[300:].astype(object)])
    with pytest.raises(ValueError, match="no common order"):
        LDA().fit(blocks(X, 60), mixed)


@pytest.mark.parametrize("weights", [lambda w: blocks(w, 44), lambda w: w], ids=["dask", "numpy"])
def test_weights_count_rows(weights):
    times = np.random.default_rng(1).integers(0, 3, N)
    weighted = LDA().fit(blocks(X), blocks(Y), sample_weight=weights(times.astype(float)))
    repeated = LDA().fit(np.repeat(X, times, axis=0), np.repeat(Y, times))
    np.testing.assert_allclose(weighted.components_, repeated.components_, atol=1e-10)


def test_negative_weights_say_so():
    with pytest.raises(ValueError, match="sample_weight must not be negative"):
        LDA().fit(blocks(X), blocks(Y), sample_weight=-da.ones(N, chunks=70))


def test_dtypes_follow_X():
    narrow = LDA().fit(blocks(X.astype(np.float32)), blocks(Y))
    assert narrow.components_.dtype == np.float32
    np.testing.assert_allclose(narrow.eigenvalues_, REFERENCE.eigenvalues_, rtol=1e-3)
    counts = np.rint(10 * X).astype(np.int32)
    lazy = LDA().fit(blocks(counts), blocks(Y))
    assert lazy.components_.dtype == np.float64
    np.testing.assert_allclose(lazy.components_, LDA().fit(counts, Y).components_, atol=1e-10)


def test_float32_keeps_features_that_are_nearly_collinear():
    twin = np.hstack([X, X[:, :1] + 1e-3 * X[:, 1:2]]).astype(np.float32)
    whole = LDA().fit(twin, Y)  # detects this and multiplies in float64
    lazy = LDA().fit(da.from_array(twin, chunks=(70, 8)), blocks(Y))
    np.testing.assert_allclose(lazy.eigenvalues_, whole.eigenvalues_, rtol=1e-6)


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_bad_value_in_one_block_says_where(value):
    bad = X.copy()
    bad[215, 3] = value
    with pytest.raises(ValueError, match="Block 3 of X: Input X contains (NaN|infinity)"):
        LDA().fit(blocks(bad), blocks(Y))


def test_a_missing_label_says_where():
    labels = da.where(da.arange(N, chunks=70) == 145, np.nan, blocks(Y))
    with pytest.raises(ValueError, match=r"Block 2 of X: Input y contains NaN \(row 5\)"):
        LDA().fit(blocks(X), labels)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: blocks(X)[:, 0], "Expected 2D array"),
        (lambda: blocks(X)[:, :, None], "dim 3"),
        (lambda: da.from_array(np.full((N, P), "red"), chunks=(70, P)), "convert string"),
        (lambda: dask.delayed(X), "dask arrays or dataframes; got dask.delayed"),
    ],
    ids=["vector", "tensor", "strings", "delayed"],
)
def test_what_is_no_table_of_numbers_says_so(bad, message):
    with pytest.raises(ValueError, match=message):
        LDA().fit(bad(), blocks(Y))


def test_a_failed_fit_leaves_the_learner_unfitted():
    bad = X.copy()
    bad[0, 0] = np.nan
    learner = LDA().fit(X, Y)
    with pytest.raises(ValueError):
        learner.fit(blocks(bad), blocks(Y))
    assert not hasattr(learner, "components_")


# ---------------------------------------------------------------------- batches, chunklets


def test_batches_from_memory_and_from_dask_add_up():
    learner = LDA().partial_fit(X[:100], Y[:100])
    learner.partial_fit(blocks(X[100:450]), blocks(Y[100:450])).partial_fit(X[450:], Y[450:])
    assert_like_reference(learner)
    with pytest.raises(ValueError, match="7 features"):
        learner.partial_fit(blocks(X)[:, :3], blocks(Y))
    assert_like_reference(learner)


def test_pca_needs_no_labels():
    lazy, whole = PCA(3).fit(blocks(X)), PCA(3).fit(X)
    np.testing.assert_allclose(lazy.components_, whole.components_, atol=1e-10)


@pytest.mark.parametrize("lazily", [False, True])
def test_chunklets_for_rca(lazily):
    chunklets = np.where(Y == 3, -1, Y)
    lazy = RCA().fit(blocks(X), supervision=blocks(chunklets) if lazily else chunklets)
    whole = RCA().fit(X, supervision=chunklets)
    np.testing.assert_allclose(lazy.components_, whole.components_, atol=1e-10)
    assert lazy.statistics_.classes.tolist() == [0, 1, 2]


# ---------------------------------------------------------------------- dataframes


@pytest.fixture
def frame():
    pandas = pytest.importorskip("pandas")
    dataframe = pytest.importorskip("dask.dataframe")
    table = pandas.DataFrame(X, columns=[f"feature {k}" for k in range(P)])
    table["label"] = np.array(["red", "green", "blue", "grey"])[Y]
    return table, dataframe.from_pandas(table, npartitions=5)


def test_dataframes_bring_feature_names(frame):
    table, lazy = frame
    features = list(table.columns[:P])
    learner = LDA().fit(lazy[features], lazy["label"])
    whole = LDA().fit(table[features], table["label"])
    assert learner.feature_names_in_.tolist() == features
    assert learner.classes_.tolist() == ["blue", "green", "grey", "red"]
    np.testing.assert_allclose(learner.components_, whole.components_, atol=1e-10)
    with pytest.raises(ValueError, match="feature names"):
        learner.transform(table[features[::-1]])
    with pytest.raises(ValueError, match="feature names"):
        learner.partial_fit(lazy[features[::-1]], lazy["label"])


@pytest.mark.parametrize(
    "labels",
    [
        lambda table, lazy: table["label"],
        lambda table, lazy: lazy["label"].astype("category"),
        lambda table, lazy: lazy["label"].to_dask_array(lengths=True),
        lambda table, lazy: da.from_array(table["label"].to_numpy(str), chunks=44),
    ],
    ids=["pandas", "categorical", "array", "array of other chunks"],
)
@pytest.mark.filterwarnings("ignore:Dask currently has limited support")
def test_labels_beside_a_dataframe(frame, labels):
    table, lazy = frame
    learner = LDA().fit(lazy[list(table.columns[:P])], labels(table, lazy))
    np.testing.assert_allclose(learner.eigenvalues_, REFERENCE.eigenvalues_, rtol=1e-9)


def test_dataframes_cut_otherwise_than_their_labels_say_so(frame):
    table, lazy = frame
    features = list(table.columns[:P])
    with pytest.raises(ValueError, match="5 blocks but y has 2"):
        LDA().fit(lazy[features], lazy["label"].repartition(npartitions=2))
    with pytest.raises(ValueError, match="could not convert string"):
        LDA().fit(lazy, lazy["label"])
    with pytest.raises(ValueError, match="Expected 2D array"):
        LDA().fit(lazy["feature 0"], lazy["label"])


def test_nullable_columns_with_a_hole_say_so(frame):
    table, lazy = frame
    features = list(table.columns[:P])
    full = LDA().fit(lazy[features].astype("Float64"), lazy["label"])
    np.testing.assert_allclose(full.eigenvalues_, REFERENCE.eigenvalues_, rtol=1e-9)
    with pytest.raises(ValueError, match="Block . of X: Input X contains NaN"):
        LDA().fit(lazy[features].mask(lazy[features] > 58), lazy["label"])


# ---------------------------------------------------------------------- order and purity


def test_bits_depend_on_the_blocks_alone():
    found = []
    for scheduler in ("synchronous", "threads", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(LDA().fit(blocks(X, 20), blocks(Y, 20)).components_)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_merging_changes_none_of_the_parts():
    parts = [ClassStatistics().partial_fit(X[k::3], Y[k::3]) for k in range(3)]
    before = [part.within_scatter() for part in parts]
    once, twice = merge_summaries(parts), merge_summaries(parts)
    np.testing.assert_array_equal(once.within_scatter(), twice.within_scatter())
    np.testing.assert_array_equal(once.counts, np.bincount(Y))
    for part, scatter in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part.within_scatter(), scatter)


@pytest.mark.parametrize("known", [True, False])
def test_rows_and_labels_of_one_source_are_computed_once(known):
    calls = Counter()

    def load(k):
        calls[k] += 1
        return X[k : k + 100], Y[k : k + 100]

    sources = [dask.delayed(load)(k) for k in range(0, N, 100)]
    n = 100 if known else np.nan
    lazy = da.concatenate([da.from_delayed(s[0], (n, P), dtype=float) for s in sources])
    labels = da.concatenate([da.from_delayed(s[1], (n,), dtype=Y.dtype) for s in sources])
    assert_like_reference(LDA().fit(lazy - 0.0, labels + 0))
    assert set(calls.values()) == {1}


def test_statistics_by_class_hold_each_covariance():
    found = compute_block_statistics(blocks(X), blocks(Y))
    for label in range(CLASSES):
        expected = np.cov(X[label == Y].T)
        np.testing.assert_allclose(found.covariance(label, ddof=1), expected, rtol=1e-9)


def test_numpy_input_does_not_import_dask():
    code = (
        "import sys, numpy as np\n"
        "from nearfar import LDA\n"
        "LDA().fit(np.random.default_rng(0).normal(size=(20, 3)), [0, 1] * 10)\n"
        "assert not any(name.partition('.')[0] == 'dask' for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert is_dask(blocks(X)) and not is_dask(X) and not is_dask(None) and not is_dask([1])


# ---------------------------------------------------------------------- a real cluster

MEMORY = 400_000_000  # of one worker, in bytes
N_BLOCKS, BLOCK_ROWS, WIDTH = 44, 24_000, 50


@pytest.mark.slow  # tests/tensors/test_batches.py has a smaller test of a lost worker
def test_a_cluster_that_loses_a_worker_loses_no_row(tmp_path):
    """Two workers process more data than one can hold, and one of them is killed meanwhile."""
    distributed = pytest.importorskip("distributed")
    marks = tmp_path / "marks"
    marks.mkdir()

    def rows(k):
        rng = np.random.default_rng(k)
        y = rng.integers(0, 5 if k != 30 else 6, BLOCK_ROWS)  # the last class is in one block only
        drift = np.linspace(0, 1, WIDTH) * (y[:, None] + 1) ** 1.5
        return rng.normal(size=(BLOCK_ROWS, WIDTH)) + drift, y

    def load(k):
        (marks / f"{k}-{os.getpid()}-{time.time_ns()}").touch()
        if k == 20 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows(k)

    sources = [dask.delayed(load)(k) for k in range(N_BLOCKS)]
    shape = (BLOCK_ROWS, WIDTH)
    lazy = da.concatenate([da.from_delayed(s[0], shape, dtype=np.float64) for s in sources])
    labels = da.concatenate([da.from_delayed(s[1], shape[:1], dtype=np.int64) for s in sources])
    assert lazy.nbytes > MEMORY

    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            memory_limit=MEMORY,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(tmp_path),
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster),
    ):
        learner = LDA().fit(lazy, labels)

    runs = [name.name.split("-")[:2] for name in marks.iterdir()]
    pids_of_block_20 = {pid for block, pid in runs if block == "20"}
    assert len(pids_of_block_20) == 2, "the block that died with its worker ran again elsewhere"
    assert {int(block) for block, _ in runs} == set(range(N_BLOCKS))

    whole, codes = np.empty((N_BLOCKS * BLOCK_ROWS, WIDTH)), np.empty(N_BLOCKS * BLOCK_ROWS, int)
    for k in range(N_BLOCKS):
        part = slice(k * BLOCK_ROWS, (k + 1) * BLOCK_ROWS)
        whole[part], codes[part] = rows(k)
    # No row is lost or counted twice.
    np.testing.assert_array_equal(learner.statistics_.counts, np.bincount(codes))
    np.testing.assert_array_equal(learner.statistics_.weights, np.bincount(codes))
    in_memory = LDA().fit(whole, codes)
    np.testing.assert_allclose(learner.components_, in_memory.components_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(learner.mean_, in_memory.mean_, rtol=0, atol=1e-8)
    np.testing.assert_allclose(learner.eigenvalues_, in_memory.eigenvalues_, rtol=1e-8)
