"""One channel for progress: numbered iterations, printed lines, and a callback that may end it."""

import pickle

import numpy as np
import pytest
from quick import quick
from sklearn.base import clone

from nearfar import LMNN, KernelLMNN, MultiPassLMNN, all_estimators
from nearfar.contract import KINDS

# Whose page says that they record what they did.
ITERATIVE = [name for name, kind in all_estimators().items() if "history_" in (kind.__doc__ or "")]
X, Y = KINDS["vectors"].data()


def data(name):
    return KINDS[all_estimators()[name].learner_tags.input].data()


def record_progress(learner, stop_at=None):
    reports = []

    def record(iteration, state):
        reports.append((iteration, state))
        if iteration == stop_at:
            raise KeyboardInterrupt

    learner.callback = record
    return reports


def list_iteration_counts(learner):
    """Return the numbers of iterations, one for each problem of a classifier."""
    return learner.n_iter_ if isinstance(learner.n_iter_, list) else [learner.n_iter_]


def test_there_are_iterative_estimators():
    assert {"LMNN", "MVU", "PARDA", "GADA"} <= set(ITERATIVE)


@pytest.mark.parametrize("name", ITERATIVE)
@pytest.mark.filterwarnings("ignore")
def test_the_callback_hears_of_every_iteration(name, capsys):
    learner = quick(name)
    reports = record_progress(learner)
    X, Y = data(name)
    learner.fit(X, Y)
    numbers = [iteration for iteration, _ in reports]
    assert numbers == list(range(1, len(reports) + 1)) and len(reports) >= max(
        1, sum(list_iteration_counts(learner))
    )
    assert all(np.isfinite(state["seconds"]) for _, state in reports)
    assert not capsys.readouterr().out
    again = learner.fit(X, Y)  # counts from 1 again
    assert [iteration for iteration, _ in reports[len(numbers) :]] == numbers
    # Tensors note the objective at each step of a mode, of which an iteration has several.
    histories = again.history_ if isinstance(again.history_, list) else [again.history_]
    for count, history in zip(list_iteration_counts(again), histories, strict=True):
        assert count in {len(values) for values in history.values()} or name == "MVU"


@pytest.mark.parametrize("name", ITERATIVE)
@pytest.mark.filterwarnings("ignore")
def test_ctrl_c_from_a_callback_leaves_the_best_so_far(name):
    learner = quick(name)
    X, Y = data(name)
    # Small tensors are done in two or three sweeps.
    record_progress(learner, stop_at=1 if learner.learner_tags.input == "tensors" else 3)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(X, Y)
    found = learner.transform(X) if hasattr(learner, "transform") else learner.predict(X)
    assert np.isfinite(found).all()
    assert all(0 < count <= 3 for count in list_iteration_counts(learner))


@pytest.mark.parametrize("name", ITERATIVE)
@pytest.mark.filterwarnings("ignore")
def test_a_line_is_printed_for_each_iteration(name, capsys):
    learner = quick(name)
    if "verbose" in learner.get_params():
        reports = record_progress(learner.set_params(verbose=1))
        learner.fit(*data(name))
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == len(reports) and lines[0].startswith(f"{name}: iteration 1, ")


@pytest.mark.parametrize(
    "learner", [KernelLMNN(estimator=LMNN(max_iter=9)), MultiPassLMNN(estimator=LMNN(max_iter=5))]
)
@pytest.mark.filterwarnings("ignore")
def test_iterations_of_inner_learners_count_as_those_of_the_outer(learner):
    reports = record_progress(learner)
    learner.fit(X, Y)
    assert [iteration for iteration, _ in reports] == list(range(1, len(reports) + 1))
    inner = learner.passes_ if hasattr(learner, "passes_") else [learner.estimator_]
    assert len(reports) == sum(one.n_iter_ for one in inner)
    assert not any("callback" in vars(one) for one in inner)


def test_copies_go_without_the_callback():
    learner = LMNN(max_iter=20, tol=1e-2)
    record_progress(learner)
    learner.fit(X, Y)
    for copy in (clone(learner), pickle.loads(pickle.dumps(learner))):
        assert copy.callback is None
    assert learner.callback is not None
