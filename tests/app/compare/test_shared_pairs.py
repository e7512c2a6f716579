"""Pairs of sets computed once for all methods: the same numbers, by any number of processes."""

import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from nearfar import BagOfWords, SetEmbedding, SetKNeighborsClassifier, Sets
from nearfar.app.compare import folds, pair_shelf, shared_pairs
from nearfar.app.compare.folds import Problem, pilot, predict_all_k, run_fold, tune
from nearfar.app.compare.methods import Method, Setting
from nearfar.app.compare.pair_shelf import FolderShelf, MemoryShelf
from nearfar.app.compare.set_methods import set_baselines, set_learners
from nearfar.app.compare.shared_pairs import SharedPairs
from nearfar.datasets import make_sets
from nearfar.distributions.dissimilarities import (
    METRICS,
    CostlyPairs,
    combine_costly_terms,
    dissimilarity,
    get_costly_terms,
)
from nearfar.evaluation.measures import Measure
from nearfar.summaries.gaussians import Gaussians

TRAIN, TEST = np.flatnonzero(np.arange(60) % 4), np.arange(0, 60, 4)


@pytest.fixture(scope="module")
def sets():
    """Some are there twice, on one side or on both."""
    made = make_sets(20, 3, 4, sizes=(6, 14), means=0.25, covariances=0.4, random_state=2)
    arrays = list(made)
    arrays[5], arrays[8], arrays[9] = arrays[1], arrays[1], arrays[6]
    return Sets.from_list([array.astype(np.float32) for array in arrays], made.labels)


def problem_of(sets, shared=True):
    codes = sets.labels.astype(np.intp)
    made = Problem(sets, np.arange(3), codes, "passthrough", Measure("error", "accuracy", ""))
    made.pairs = SharedPairs(sets) if shared else None
    return made


def setting_of(estimator):
    return Setting("", "passthrough", estimator)


WAYS = [
    {"standardize": True},
    {"standardize": True, "ridge": 0.1},
    {"shrinkage": "oas"},
]


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("sides", [(TRAIN, TEST), (TEST, TRAIN)], ids=["few", "many"])
@pytest.mark.parametrize("metric", METRICS)
def test_neighbors_of_the_test_sets_are_those_of_the_method_alone(sets, metric, sides):
    problem = problem_of(sets)
    for way in WAYS:
        setting = setting_of(SetKNeighborsClassifier(metric=metric, **way))
        fold = problem.pairs.fold(*sides, [setting])
        alone = predict_all_k(problem, setting, *sides)
        found = predict_all_k(problem, setting, *sides, fold)
        assert np.array_equal(alone.neighbors, found.neighbors)
        assert np.array_equal(alone.codes, found.codes)
        knn = SetKNeighborsClassifier(1, metric=metric, **way)
        knn.fit(sets[sides[0]], sets.labels[sides[0]])
        [(_, D)] = knn._distance_blocks(sets[sides[1]])[1]
        assert np.array_equal(fold.given(setting, *sides).distances, D)


@pytest.mark.parametrize(
    "estimator",
    [
        SetEmbedding(5, standardize=True),
        SetEmbedding(3, embedding="laplacian", metric="hellinger"),
        SetEmbedding("positive", indefinite="shift", metric="jeffreys"),
        SetEmbedding(4, metric="bhattacharyya"),
    ],
    ids=lambda one: one.embedding + one.metric,
)
def test_embeddings_of_the_test_sets_are_those_of_the_method_alone(sets, estimator):
    problem, setting = problem_of(sets), setting_of(estimator)
    fold = problem.pairs.fold(TRAIN, TEST, [setting, setting_of(SetEmbedding(20))])
    alone = predict_all_k(problem, setting, TRAIN, TEST)
    found = predict_all_k(problem, setting, TRAIN, TEST, fold)
    # But for rounding: sets that are training sets too are not compared by the method alone.
    for a, b in zip(alone.mapped, found.mapped, strict=True):
        assert a.dtype == b.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    svm = setting_of(make_pipeline(estimator, SVC()))
    alone, found = (predict_all_k(problem, svm, TRAIN, TEST, one) for one in (None, fold))
    assert np.array_equal(alone.codes, found.codes)


@pytest.mark.parametrize("p", [3, 60])
@pytest.mark.parametrize("metric", [name for name in METRICS if get_costly_terms(name)])
def test_terms_of_some_rows_at_a_time_make_the_same_matrix(metric, p):
    """Ill-conditioned and of low rank too, there but for rounding."""
    random = np.random.default_rng(0)
    sizes = 10.0 ** random.uniform(-3, 3, size=(30, 1, 1)) * np.geomspace(1, 1e-4, p)
    given = Sets.from_list([random.normal(size=(5, p)) * size for size in sizes])
    gaussians = Gaussians.from_sets(given, 1e-3)
    assert gaussians.is_low_rank == (p == 60)
    for A, B in ((gaussians, None), (gaussians[:10], gaussians[10:])):
        pairs, same = CostlyPairs(A, B), B is None
        terms = {
            name: np.zeros((len(A), len(A if same else B))) for name in get_costly_terms(metric)
        }
        for start in range(0, len(A), 7):
            rows = slice(start, min(start + 7, len(A)))
            for name, part in pairs.compute_terms(rows, get_costly_terms(metric)).items():
                terms[name][rows, start if same else 0 :] = part
        found = combine_costly_terms(metric, terms, b_is_a=same)
        assert np.allclose(found, dissimilarity(A, B, metric), rtol=1e-7, atol=1e-9)


def test_splits_inside_take_scale_and_ridge_of_the_training_fold(sets):
    """What a setting sees there is a part of one matrix, in which the test sets have no say."""
    problem = problem_of(sets)
    setting = setting_of(SetKNeighborsClassifier(standardize=True))
    fold = problem.pairs.fold(TRAIN, TEST, [setting])
    part, held = TRAIN[::2], TRAIN[1::2]
    D = fold.given(setting, part, held).distances
    knn = SetKNeighborsClassifier(1, standardize=True).fit(sets[TRAIN], sets.labels[TRAIN])
    [(_, whole)] = knn._distance_blocks(sets[TRAIN])[1]
    assert np.allclose(D, whole[1::2, ::2], rtol=1e-6, atol=1e-9)
    # All splits of all dimensions ask for one embedding each.
    settings = [setting_of(SetEmbedding(q, standardize=True)) for q in (3, 6)]
    fold = problem.pairs.fold(TRAIN, TEST, settings)
    narrow, wide = (fold.given(one, part, held) for one in settings)
    assert np.array_equal(narrow.known, wide.known[:, :3]) and wide.known.shape[1] == 6
    assert len(fold._placed) == 1


def test_pairs_are_computed_once_for_all_methods(sets, gaussians_made, monkeypatch):
    calls = []
    terms = CostlyPairs.compute_terms
    monkeypatch.setattr(
        CostlyPairs, "compute_terms", lambda *a: (calls.append(sorted(a[2])), terms(*a))[1]
    )
    problem, plain = problem_of(sets), problem_of(sets, shared=False)
    for method in [*set_baselines(), *set_learners()]:
        if method.name == "bag-of-words":
            continue
        found = run_fold(problem, method, TRAIN, TEST, "full")
        # With the choice given there is nothing that sharing may change.
        chosen = [s for s in method.settings if s.label == found["setting"]]
        alone = run_fold(plain, replace(method, settings=tuple(chosen)), TRAIN, TEST, "k")
        if found["k"] == alone["k"]:
            assert found["error"] == alone["error"]
    # Four ways, and of each the test side of those that were chosen.
    inside = [call for call in calls if call == ["riemann"]]
    assert 4 <= len(inside) <= 8
    assert all(call in (["riemann"], ["log_mean", "quad_mean"]) for call in calls)
    shared = [n for n in gaussians_made if n == len(TRAIN)]
    assert len(shared) <= 4 + 10  # and once for each method alone


def test_of_one_split_neighbors_need_no_more_pairs_than_it_has(sets):
    """Unless what is embedded needs all of them, with the same scale and ridge, anyway."""
    names = {}
    for together in ("riemann", "riemann,embedding-svm"):
        problem, methods = problem_of(sets), set_learners(together)
        problem.pairs.expect(methods)
        found = run_fold(problem, methods[0], TRAIN, TEST, "holdout")
        boxes = problem.pairs._shelf._boxes.values()
        names[together] = sorted(
            name.split("-")[0] for box in boxes for name in box if name.startswith(("in", "tr"))
        )
        names[together].append((found["error"], found["inner_error"], found["setting"], found["k"]))
    alone, beside = names.values()
    assert alone[:-1] == 4 * ["inside"] and beside[:-1] == [*(3 * ["inside"]), "train"]
    assert alone[-1] == beside[-1]


def test_what_is_wrong_is_said_as_ever(sets):
    for bad in (SetKNeighborsClassifier(ridge=[1]), SetKNeighborsClassifier(metric="none")):
        method = set_learners({"bad": bad})[0]
        assert method.shares is None
        with pytest.raises(ValueError, match=r"ridge|metric"):
            run_fold(problem_of(sets), method, TRAIN, TEST, "k")


def test_a_codebook_is_found_once_for_all_classifiers_behind_it(sets, monkeypatch):
    fits = []
    fit = BagOfWords.fit

    def slow_fit(self, X, y=None):
        fits.append(self.n_words)
        time.sleep(0.05)
        return fit(self, X)

    monkeypatch.setattr(BagOfWords, "fit", slow_fit)
    method = set_learners("bag-of-words")[0]
    found, alone = (
        run_fold(problem_of(sets, shared), method, TRAIN, TEST, "full") for shared in (True, False)
    )
    assert len(fits) == (3 * 3 + 1) + (3 * 4 + 1)
    same = ("error", "inner_error", "setting")
    assert [found[key] for key in same] == [alone[key] for key in same]
    # Who reads a codebook that was found before is charged for it.
    assert min(found["fit_seconds"], alone["fit_seconds"]) >= 0.05


def test_only_what_a_named_method_needs_is_computed(sets):
    problem = problem_of(sets)
    run_fold(problem, set_learners("hellinger")[0], TRAIN, TEST, "full")
    kept = {name for box in problem.pairs._shelf._boxes.values() for name in box}
    assert kept == {"", "train-quad_mean", "test-quad_mean"}
    problem = problem_of(sets)
    run_fold(problem, set_learners("jeffreys-riemann")[0], TRAIN, TEST, "full")
    assert {name for box in problem.pairs._shelf._boxes.values() for name in box} == {""}


def test_seconds_are_those_of_a_method_alone(sets, monkeypatch):
    """Whoever comes second reads what the first computed, and is charged for it."""
    # By a clock on which nothing but terms takes time: the others' depends on the machine.
    terms, passed = CostlyPairs.compute_terms, []
    monkeypatch.setattr(CostlyPairs, "compute_terms", lambda *a: (passed.append(0.1), terms(*a))[1])
    for module in (folds, pair_shelf, shared_pairs):
        monkeypatch.setattr(module, "perf_counter", lambda: sum(passed))
    problem = problem_of(sets)
    bhattacharyya, hellinger = set_learners("bhattacharyya,hellinger")
    first, n_computed = run_fold(problem, bhattacharyya, TRAIN, TEST, "k"), len(passed)
    second = run_fold(problem, hellinger, TRAIN, TEST, "k")
    assert len(passed) == n_computed
    for result in (first, second):
        assert result["tune_seconds"] == pytest.approx(0.1)
        assert result["predict_seconds"] == pytest.approx(0.1)
        assert result["fit_seconds"] == pytest.approx(0.0)
    embedding = set_learners("set-embedding")[0]
    result = run_fold(problem, embedding, TRAIN, TEST, "k")
    # Both terms of all pairs: fitting needs those among training sets.
    assert result["fit_seconds"] == pytest.approx(0.2)
    assert result["predict_seconds"] == pytest.approx(0.2)
    # In the pilot a method is alone.
    assert pilot(problem, hellinger, TRAIN, TEST, 40) == pytest.approx(0.2)


def test_methods_that_share_say_so():
    found = {method.name: (method.shares, method.n_parts) for method in set_learners()}
    assert found["riemann"] == found["hellinger"] == ("pairs", 4)
    assert found["set-embedding"] == ("pairs", 2) and found["mvem"] == ("pairs", 1)
    assert found["jeffreys"] == found["bag-of-words"] == (None, 1)
    mine = set_learners({"mine": [SetEmbedding(3), SetEmbedding(3, ridge=0.1)]})[0]
    assert (mine.shares, mine.n_parts) == ("pairs", 2)


def test_too_many_sets_are_not_shared(sets, monkeypatch):
    monkeypatch.setattr(shared_pairs, "MAX_BYTES", 10_000)
    problem, method = problem_of(sets), set_learners("riemann")[0]
    assert problem.pairs.fold(TRAIN, TEST, method.settings) is None
    assert run_fold(problem, method, TRAIN, TEST, "k")["error"] < 0.7


def test_tuning_without_a_fold_goes_alone(sets):
    assert tune(problem_of(sets), set_learners("mvem")[0], TRAIN, "k").error is not None


def test_a_setting_that_fails_leaves_the_others(sets):
    bad = Setting("bad", "passthrough", SetKNeighborsClassifier(ridge=-1.0))
    good = Setting("good", "passthrough", SetKNeighborsClassifier())
    found = run_fold(
        problem_of(sets), Method("a", "a", "learner", (bad, good)), TRAIN, TEST, "full"
    )
    assert found["setting"] == "good" and "'bad' failed" in found["warnings"][0]


# ---------------------------------------------------------------------- shelves

SHAPE = (2, 40, 30)
BLOCKS = [(slice(start, start + 5), start // 2) for start in range(0, 40, 5)]


def filled(rows):
    first = rows.start // 2
    numbers = np.arange(SHAPE[1] * SHAPE[2], dtype=float).reshape(SHAPE[1:])[rows, first:]
    return [numbers, -numbers]


def everything():
    found = np.zeros(SHAPE)
    for rows, first in BLOCKS:
        found[:, rows, first:] = filled(rows)
    return found


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_blocks_are_filled_once(kind, tmp_path):
    shelf = MemoryShelf() if kind == "memory" else FolderShelf(str(tmp_path))
    calls = []

    def work(rows):
        calls.append(rows.start)
        time.sleep(0.001)
        return filled(rows)

    for _ in range(2):
        found, seconds = shelf.blocks("box", "name", SHAPE, BLOCKS, work)
        assert np.array_equal(found, everything()) and seconds >= 0.008
        assert shelf.once("box", lambda: calls.append(-1))[0] is None
    assert calls == [*(rows.start for rows, _ in BLOCKS), -1]


def test_without_room_for_files_memory_does(tmp_path):
    (tmp_path / "pairs").write_text("in the way")
    shelf = FolderShelf(str(tmp_path))
    for _ in range(2):
        found, _ = shelf.blocks("box", "name", SHAPE, BLOCKS, filled)
        assert np.array_equal(found, everything())
        assert shelf.once("box", lambda: 3)[0] == 3


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_the_oldest_boxes_make_room(kind, tmp_path, monkeypatch):
    for room in ("MAX_BYTES", "MAX_FILE_BYTES"):
        monkeypatch.setattr(pair_shelf, room, 8 * 2 * 40 * 30 * 2 + 500)
    shelf = MemoryShelf() if kind == "memory" else FolderShelf(str(tmp_path))
    kept = []
    for box in "abc":
        kept.append(shelf.blocks(box, "name", SHAPE, BLOCKS, filled)[0])
        time.sleep(0.02)
    there = shelf._boxes if kind == "memory" else os.listdir(tmp_path / "pairs")
    assert set(there) == {"b", "c"}
    assert all(np.array_equal(one, everything()) for one in kept)  # for who still has it


def test_a_shelf_in_memory_stays_at_home():
    shelf = MemoryShelf()
    shelf.once("box", lambda: 1)
    copy = pickle.loads(pickle.dumps(shelf))
    assert copy._boxes == {} and copy.once("box", lambda: 2)[0] == 2


def fill_slowly(folder, note, stuck_at):
    def work(rows):
        with open(note, "a") as file:
            file.write(f"{rows.start}\n")
        time.sleep(60 if rows.start == stuck_at else 0.05)
        return filled(rows)

    found, seconds = FolderShelf(folder).blocks("box", "name", SHAPE, BLOCKS, work)
    assert np.array_equal(found, everything()) and seconds >= 0.4


def filling(*given):
    """A process that does."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import test_shared_pairs as here\n"
    code += "here.fill_slowly(*sys.argv[2:4], int(sys.argv[4]))"
    words = [Path(__file__).parent, *given]
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)])


@pytest.mark.process
@pytest.mark.skipif(not FolderShelf.possible, reason="this system has no such locks")
def test_processes_fill_blocks_together_and_who_is_killed_is_replaced(tmp_path):
    note = tmp_path / "note"
    stuck = filling(tmp_path, note, 10)
    wait_for(lambda: note.exists() and "10\n" in note.read_text())
    others = [filling(tmp_path, note, -1) for _ in range(2)]
    # All but the one in work, which they wait for.
    wait_for(lambda: len(note.read_text().split()) == len(BLOCKS))
    time.sleep(0.3)
    assert all(other.poll() is None for other in others)
    stuck.kill()
    assert stuck.wait(100) == -signal.SIGKILL
    assert [other.wait(100) for other in others] == [0, 0]
    done = sorted(map(int, note.read_text().split()))
    assert done == sorted([*(rows.start for rows, _ in BLOCKS), 10])


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.process
def test_workers_leave_no_pairs_behind(sets, tmp_path, monkeypatch):
    """And come to the results of one process."""
    from nearfar import compare

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    options = {"cv": 3, "repeats": 1, "tuning": "holdout", "verbose": False, "context": False}
    methods = ["riemann", "set-embedding", "bhattacharyya-riemann"]
    results = [
        compare(sets, methods=methods, isolate=isolate, **options).document["methods"]
        for isolate in (False, True)
    ]
    assert [m["error"] for m in results[0]] == [m["error"] for m in results[1]]
    assert not list(Path(tmp_path).glob("nearfar-*"))
