"""How often pairs of sets are computed in a comparison: once for all folds, or once a fold."""

import multiprocessing
import threading
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from nearfar import SetEmbedding, SetKNeighborsClassifier, Sets, compare
from nearfar.app.compare import pair_shelf, shared_pairs
from nearfar.app.compare.folds import Problem, run_fold
from nearfar.app.compare.methods import OWN_SHARE
from nearfar.app.compare.pair_shelf import CORES, FolderShelf, MemoryShelf
from nearfar.app.compare.pool import ProcessPool
from nearfar.app.compare.schedule import Run, Schedule
from nearfar.app.compare.set_methods import set_learners
from nearfar.app.compare.shared_pairs import SharedPairs
from nearfar.app.compare.splits import make_scheme
from nearfar.datasets import make_sets
from nearfar.distributions.dissimilarities import METRICS, CostlyPairs, get_costly_terms
from nearfar.evaluation.measures import Measure

N = 60
# A ridge in units of the vectors, or none at all: no fold has a say in these Gaussians.
LASTING = {
    "d_BR": [SetKNeighborsClassifier(ridge=0.5), SetKNeighborsClassifier(ridge=0.05)],
    "Riemann": [SetKNeighborsClassifier(metric="riemann", ridge=r) for r in (0.5, 0.05)],
    "Hellinger": SetKNeighborsClassifier(metric="hellinger", ridge=0.5),
    "SVM": [SetEmbedding(q, ridge=0.5) for q in (3, 5)],
}


def made_sets(n=N, p=3):
    made = make_sets(n // 3, 3, p, sizes=(6, 14), means=0.25, covariances=0.4, random_state=2)
    return Sets(made.X * np.geomspace(0.1, 10, p), made.offsets, made.labels)


@pytest.fixture(scope="module")
def sets():
    return made_sets()


def problem_of(sets, n_folds=5):
    codes = sets.labels.astype(np.intp)
    made = Problem(sets, np.arange(3), codes, "passthrough", Measure("error", "accuracy", ""))
    made.pairs = SharedPairs(sets)
    made.pairs.expect([], n_folds)
    return made


def folds_of(sets, n_folds=5):
    codes = sets.labels.astype(np.intp)
    return [(f.train, f.test) for f in make_scheme(codes, repeats=1, cv=n_folds).folds]


@pytest.fixture
def counted(monkeypatch):
    """Pairs of which costly terms were computed, by these terms and the sets they were among."""
    pairs = Counter()
    terms = CostlyPairs.compute_terms

    def counting(self, rows, wanted):
        found = terms(self, rows, wanted)
        n, m = len(self._pairs.A), len(self._pairs.B)
        new = sum(m - a - 1 if self._b_is_a else m for a in range(rows.start, rows.stop))
        for term in wanted:
            pairs[term, n, m] += new
        return found

    monkeypatch.setattr(CostlyPairs, "compute_terms", counting)
    return pairs


def test_a_comparison_computes_all_pairs_once_for_all_folds_repeats_and_methods(sets, counted):
    found = compare(sets, methods=LASTING, repeats=2, isolate=False, verbose=False, n_jobs=1)
    assert len(found.document["folds"]) == 10
    # One matrix for each term and each of the two ridges.
    every = N * (N - 1) // 2
    assert counted == {("riemann", N, N): 2 * every} | {
        (term, N, N): 2 * every for term in ("quad_mean", "log_mean")
    }


def test_what_folds_have_a_say_in_is_computed_once_a_fold(sets, counted):
    """Once for all methods; and that it differs between folds is why."""
    scaled = [SetKNeighborsClassifier(metric=m, standardize=True) for m in ("riemann", "hellinger")]
    methods = {"a": scaled[0], "b": scaled[1], "c": SetEmbedding(3, standardize=True)}
    compare(sets, methods=methods, cv=5, repeats=1, isolate=False, verbose=False, n_jobs=1)
    among = 48 * 47 // 2
    assert counted == {
        (term, *shape): 5 * n
        for term in ("riemann", "quad_mean", "log_mean")
        for shape, n in (((48, 48), among), ((12, 48), 12 * 48))
    }
    first, second = folds_of(sets)[:2]
    both = np.intersect1d(first[0], second[0])
    problem = problem_of(sets)
    method = set_learners({"a": scaled[0]})[0]
    one, other = (
        problem.pairs.fold(*fold, method.settings).given(method.settings[0], both[1:], both[:1])
        for fold in (first, second)
    )
    assert np.abs(one.distances / other.distances - 1).max() > 1e-4


@pytest.mark.parametrize("tuning", ["full", "holdout", "k"])
def test_results_are_those_of_folds_that_share_nothing(sets, tuning):
    for method in set_learners(LASTING):
        shared, apart = problem_of(sets), problem_of(sets, n_folds=1)
        for fold in folds_of(sets):
            found, alone = (
                run_fold(p, method, *fold, tuning, details=True) for p in (shared, apart)
            )
            for key in ("error", "inner_error", "setting", "k", "predicted", "neighbors"):
                assert found[key] == alone[key]


@pytest.mark.parametrize("metric", [name for name in METRICS if get_costly_terms(name)])
@pytest.mark.parametrize(
    "way",
    [{"ridge": 0.5}, {"ridge": 0.1, "shrinkage": "oas"}, {"ridge": 0, "standardize": True}],
    ids=str,
)
def test_distances_are_those_of_the_method_alone(metric, way):
    """Without a ridge of scaled vectors too, for what scales all Gaussians changes no distance."""
    sets = made_sets(60, 3)
    problem, knn = problem_of(sets), SetKNeighborsClassifier(1, metric=metric, **way)
    method = set_learners({"mine": knn})[0]
    assert method.lasting == (0,)
    for train, test in folds_of(sets):
        fold = problem.pairs.fold(train, test, method.settings)
        knn.fit(sets[train], sets.labels[train])
        [(_, D)] = knn._distance_blocks(sets[test])[1]
        found = fold.given(method.settings[0], train, test).distances
        np.testing.assert_allclose(found, D, rtol=1e-9, atol=1e-9)
    boxes = problem.pairs._shelf._boxes
    assert len(boxes) == 1 and next(iter(boxes)).startswith("all")


def test_equal_sets_are_at_no_distance_in_all_folds():
    made = list(made_sets(30))
    made[7] = made[20] = made[1]
    sets = Sets.from_list(made, np.arange(30) % 3)
    problem, method = problem_of(sets), set_learners({"mine": LASTING["d_BR"][0]})[0]
    test = np.array([1, 2])
    train = np.setdiff1d(np.arange(30), test)
    fold = problem.pairs.fold(train, test, method.settings)
    D = fold.given(method.settings[0], train, test).distances
    assert np.array_equal(train[D[0] == 0], [7, 20]) and (D[1] > 0).all()


def test_of_a_single_fold_test_sets_are_not_compared_with_one_another(sets, counted):
    cut = [(np.arange(0, 40), np.arange(40, N))]
    mine = {"mine": SetKNeighborsClassifier(metric="riemann", ridge=0.5)}
    compare(sets, methods=mine, cv=cut, repeats=1, isolate=False, verbose=False)
    assert counted == {("riemann", 40, 40): 40 * 39 // 2, ("riemann", 20, 40): 20 * 40}


def test_a_fold_is_charged_for_its_own_pairs_whoever_computed_them(sets):
    problem, method = problem_of(sets), set_learners({"mine": LASTING["Hellinger"]})[0]
    setting, every = method.settings[0], N * (N - 1) / 2
    for train, test in folds_of(sets)[:2]:
        fold = problem.pairs.fold(train, test, method.settings)
        fold.given(setting, train[::2], train[1::2])
        [whole] = fold._whole_seconds.values()
        # What tuning asks for is known now, and what the test sets ask for is not.
        among = {key[1:]: spent for key, spent in fold.charged.items()}
        assert among.keys() == {("gaussians",), ("train", ("quad_mean", "log_mean"))}
        own = whole * (48 * 47 / 2) / every
        assert among["train", ("quad_mean", "log_mean")] == pytest.approx(own)
        told = fold.given(setting, train, test)
        assert whole * 12 * 48 / every <= told.predict_seconds
        assert sum(fold.charged.values()) - among["gaussians",] < whole


def test_methods_say_what_is_done_once_for_all_folds():
    found = {method.name: method.lasting for method in set_learners()}
    assert set(found.values()) == {()}
    mixed = [SetEmbedding(3, standardize=True), SetEmbedding(3, ridge=0.1), SetEmbedding(5)]
    method = set_learners({"mixed": mixed})[0]
    assert (method.n_parts, method.lasting) == (3, (1,))
    # A ridge makes scale count, and so does what is mixed in without regard to units.
    for unlike in ({"ridge": 0.1}, {"ridge": 0, "shrinkage": 0.1}):
        knn = SetKNeighborsClassifier(standardize=True, **unlike)
        assert set_learners({"mine": knn})[0].lasting == ()


def test_what_is_done_once_is_foretold_once():
    """In seconds of one repeat of five folds, of which each matrix takes one."""
    clock = SimpleNamespace(seconds=lambda run, n_train: 1.0)
    scheme = make_scheme(np.arange(60) % 3, repeats=1)

    def seconds(tuning, *ridges, units_differ=None):
        several = [SetKNeighborsClassifier(ridge=ridge) for ridge in ridges]
        run = Run(set_learners({"mine": several})[0])
        return Schedule._round(clock, run, tuning, replace(scheme, units_differ=units_differ))

    assert seconds("full", "auto", 0.1) - seconds("full", 0.5, 0.1) == pytest.approx(4)
    assert seconds("k", "auto", 0.1) - seconds("k", 0.1, "auto") == pytest.approx(4)
    assert seconds("k", 0.5, 0.1) == pytest.approx(1 + 5 * OWN_SHARE * 0.8)
    # In units of all sets every matrix lasts.
    assert seconds("full", "auto", 0.1, units_differ=0.01) == seconds("full", 0.5, 0.1)


# ---------------------------------------------------------------------- processes and threads


def run_some_folds(folder, note, names):
    terms = CostlyPairs.compute_terms

    def counting(self, rows, wanted):
        with open(note, "a") as file:
            file.write("".join(f"{term} {rows.start} {rows.stop}\n" for term in wanted))
        return terms(self, rows, wanted)

    CostlyPairs.compute_terms = counting
    sets = made_sets(240)
    problem = problem_of(sets)
    problem.share_in(folder)
    for fold in folds_of(sets):
        for method in set_learners({name: LASTING[name] for name in names}):
            run_fold(problem, method, *fold, "k")


@pytest.mark.process
@pytest.mark.skipif(not FolderShelf.possible, reason="this system has no such locks")
def test_processes_compute_each_pair_once_together(tmp_path):
    note = tmp_path / "note"
    context = multiprocessing.get_context("spawn")
    each = (["d_BR", "SVM"], ["Riemann", "Hellinger"])
    runs = [
        context.Process(target=run_some_folds, args=(str(tmp_path), str(note), names))
        for names in each
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join(120)
        assert run.exitcode == 0
    lines = Counter(note.read_text().splitlines())
    assert set(lines.values()) == {1}  # each block once
    for term in ("riemann", "quad_mean", "log_mean"):
        blocks = [tuple(map(int, line.split()[1:])) for line in lines if line.startswith(term)]
        starts, stops = np.sort(blocks, axis=0).T
        assert starts[0] == 0 and stops[-1] == 240 and (starts[1:] == stops[:-1]).all()


def test_there_is_room_for_all_pairs_of_a_fold(counted, monkeypatch):
    """At the size of 3,000 sets; if the first of four left, all methods would compute all anew."""
    sets = made_sets(120)
    size = 120 / 3000
    monkeypatch.setattr(pair_shelf, "MAX_BYTES", int(pair_shelf.MAX_BYTES * size**2))
    monkeypatch.setattr(shared_pairs, "_PAIRS", int(shared_pairs._PAIRS * size**2))
    problem, methods = problem_of(sets), set_learners("riemann,hellinger,bhattacharyya-riemann")
    folds = folds_of(sets)[:2]
    for fold in folds:
        for method in methods:
            run_fold(problem, method, *fold, "full")
    among = 96 * 95 // 2
    for term in ("riemann", "quad_mean", "log_mean"):
        assert counted[term, 96, 96] == len(folds) * 4 * among


SHAPE = (1, 8, 8)
BLOCKS = [(slice(i, i + 1), i) for i in range(8)]


@pytest.mark.parametrize("kind", ["memory", "folder"])
def test_blocks_are_computed_on_the_cores_there_are(kind, tmp_path):
    """A barrier that only two threads at once pass; with one thread nobody waits for another."""
    if kind == "folder" and not FolderShelf.possible:
        pytest.skip("this system has no such locks")
    for cores in (2, 1):
        both = threading.Barrier(cores, timeout=60)
        names = set()

        def work(rows, both=both, names=names):
            both.wait()
            names.add(threading.current_thread().name)
            return [np.full((1, 8 - rows.start), float(rows.start))]

        (tmp_path / CORES).write_bytes(bytes([cores]))
        shelf = MemoryShelf(cores) if kind == "memory" else FolderShelf(str(tmp_path))
        found, seconds = shelf.blocks(f"box{cores}", "name", SHAPE, BLOCKS, work)
        assert np.array_equal(found[0], np.triu(np.arange(8.0)[:, None] * np.ones(8)))
        assert len(names) == cores and seconds > 0


@pytest.mark.process
def test_a_method_that_runs_alone_has_all_cores(sets, monkeypatch):
    told = []
    share = ProcessPool.share_cores

    def sharing(self, each):
        told.append(each)
        share(self, each)

    monkeypatch.setattr(ProcessPool, "share_cores", sharing)
    at_work = []
    next_event = ProcessPool.next_event
    monkeypatch.setattr(
        ProcessPool,
        "next_event",
        lambda self, t: (at_work.append(told[-1]), next_event(self, t))[1],
    )
    mine = {"mine": SetKNeighborsClassifier(metric="riemann", ridge=0.5)}
    compare(sets, methods=mine, cv=3, repeats=1, verbose=False, context=False, n_jobs=4)
    # With two baselines beside it at first, then with one, then alone; nobody waits for no one.
    assert at_work[0] == 1 and set(at_work) == {1, 2, 4}


def test_a_process_reads_how_many_cores_it_has(sets, tmp_path):
    problem = problem_of(sets)
    pool = ProcessPool(problem)
    try:
        shelf = FolderShelf(str(pool._folder))
        found = [shelf._n_threads()]
        for each in (3, 0, 1000):
            pool.share_cores(each)
            found.append(shelf._n_threads())
    finally:
        pool.close()
    assert found == [1, 3, 1, 255]
