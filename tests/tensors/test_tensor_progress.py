"""Progress reports of tensor methods, and their state after Ctrl-C with several problems."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from nearfar import (
    GTA,
    GTDA,
    IFEM,
    LSSTM,
    STM,
    TFDA,
    TMPM,
    TR1A,
    NuSTM,
    TensorGraphEmbedding,
    TwoDLDA,
)
from nearfar.base.progress import told_in_order
from nearfar.contract import KINDS
from nearfar.solvers import alternating_modes

X, Y = KINDS["tensors"].data()  # Three classes give three two-class problems.
MACHINES = [LSSTM, NuSTM, STM, TFDA, TMPM]


def fitted_until(learner, stop_at=None, y=Y):
    heard = []

    def listen(iteration, state):
        heard.append(state)
        if iteration == stop_at:
            raise KeyboardInterrupt

    learner.callback = listen
    if stop_at is None:
        learner.fit(X, y)
    else:
        with pytest.raises(KeyboardInterrupt):
            learner.fit(X, y)
    return heard


def numbers(heard):
    return [(state["stage"], state["objective"]) for state in heard]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("kind", [*MACHINES, GTA, GTDA, IFEM, TR1A, TensorGraphEmbedding, TwoDLDA])
def test_verbose_prints_a_line_for_each_iteration(kind, capsys):
    learner = kind(verbose=1)
    heard = fitted_until(learner)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(heard) > 0
    for k, (line, state) in enumerate(zip(lines, heard, strict=True), 1):
        assert line.startswith(f"{kind.__name__}: iteration {k}, ")
        assert line.endswith(f"{state['seconds']:.1f} s")
    kind().fit(X, Y)
    assert not capsys.readouterr().out


@pytest.mark.parametrize("kind", MACHINES)
def test_problems_are_told_one_after_the_other_whatever_the_threads(kind):
    alone = kind()
    heard = numbers(fitted_until(alone))
    problems = [stage.split(",")[0] for stage, _ in heard]
    assert sorted(set(problems)) == [f"problem {k} of 3" for k in (1, 2, 3)]
    assert problems == sorted(problems)
    several = kind(n_jobs=3)
    told = numbers(fitted_until(several))
    assert [stage for stage, _ in told] == [stage for stage, _ in heard]
    np.testing.assert_allclose([v for _, v in told], [v for _, v in heard], rtol=1e-6)
    np.testing.assert_allclose(several.coef_, alone.coef_, rtol=1e-5, atol=1e-8)


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("n_jobs", [None, 3])
@pytest.mark.parametrize("kind", MACHINES)
def test_ctrl_c_keeps_problems_that_were_done_and_gives_the_others_one_sweep(kind, n_jobs):
    whole = kind()
    heard = fitted_until(whole)
    second = [state["stage"][:9] for state in heard].index("problem 2") + 1
    stopped = kind(n_jobs=n_jobs)
    fitted_until(stopped, stop_at=second)
    np.testing.assert_allclose(stopped.coef_[0], whole.coef_[0], rtol=1e-5, atol=1e-8)
    assert stopped.n_iter_[2] == 1
    assert np.isfinite(stopped.coef_).all() and (stopped.score(X, Y) > 0.5)
    staged = list(stopped.staged_decision_function(X))
    np.testing.assert_allclose(staged[-1], stopped.decision_function(X), atol=1e-10)
    lengths = [len(history["seconds"]) for history in stopped.history_]
    assert lengths == stopped.n_iter_


def test_of_one_problem_the_last_whole_sweep_is_left():
    y = Y == 0
    stopped, limited = LSSTM(tol=0), LSSTM(tol=0, max_iter=2)
    fitted_until(stopped, stop_at=2, y=y)
    with pytest.warns(UserWarning, match="max_iter"):
        limited.fit(X, y)
    np.testing.assert_array_equal(stopped.coef_, limited.coef_)
    assert stopped.n_iter_ == 2 and not stopped.converged_
    assert len(stopped.history_["objective"]) == 4


def test_ctrl_c_within_a_sweep_falls_back_to_the_one_before(monkeypatch):
    true, calls = alternating_modes._update_mode, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 4:  # The second mode of the second sweep.
            raise KeyboardInterrupt
        return true(*arguments)

    y, limited = Y == 0, LSSTM(max_iter=1)
    with pytest.warns(UserWarning, match="max_iter"):
        limited.fit(X, y)
    monkeypatch.setattr(alternating_modes, "_update_mode", interrupted)
    stopped = LSSTM()
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(X, y)
    np.testing.assert_array_equal(stopped.coef_, limited.coef_)
    assert len(stopped.history_["objective"]) == 2 and stopped.n_iter_ == 1


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_second_ctrl_c_leaves_nothing(monkeypatch, n_jobs):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    learner = LSSTM(n_jobs=n_jobs).fit(X, Y)
    monkeypatch.setattr(alternating_modes, "_update_mode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learner.fit(X, Y)
    with pytest.raises(NotFittedError):
        learner.predict(X)


def test_what_else_a_callback_raises_leaves_nothing():
    def listen(iteration, state):
        raise RuntimeError("enough")

    for n_jobs in (None, 2):
        learner = LSSTM(n_jobs=n_jobs)
        learner.callback = listen
        with pytest.raises(RuntimeError, match="enough"):
            learner.fit(X, Y)
        with pytest.raises(NotFittedError):
            learner.predict(X)


@pytest.mark.parametrize("n_init", [1, 2])
def test_tr1a_keeps_the_atoms_before_ctrl_c(n_init):
    whole = TR1A(3, n_init=n_init)
    heard = fitted_until(whole)
    third = [state["stage"] for state in heard].index("atom 3") + 1
    stopped = TR1A(3, n_init=n_init)
    fitted_until(stopped, stop_at=third)
    assert stopped.n_components_ == (3,) and stopped.history_["sweeps"][2] == 1
    np.testing.assert_array_equal(stopped.factors_[0][:, :2], whole.factors_[0][:, :2])
    np.testing.assert_array_equal(stopped.energies_[:2], whole.energies_[:2])
    assert stopped.energies_[2] <= whole.energies_[2] * (1 + 1e-12)
    assert len(stopped.history_["seconds"]) == len(stopped.history_["step"]) == stopped.n_iter_


def test_ifem_keeps_the_features_before_ctrl_c():
    y = Y == 0
    whole = IFEM(n_components=3)
    heard = fitted_until(whole, y=y)
    first = LSSTM()
    stopped = IFEM(n_components=3)
    fitted_until(stopped, stop_at=len(fitted_until(first, y=y)) + 1, y=y)
    assert 1 <= stopped.factors_[0].shape[1] < 3 < len(heard)
    np.testing.assert_array_equal(stopped.factors_[0][:, 0], whole.factors_[0][:, 0])


def test_two_d_lda_keeps_whole_iterations():
    stopped, limited = TwoDLDA(2, n_iter=5), TwoDLDA(2, n_iter=2).fit(X, Y)
    fitted_until(stopped, stop_at=2)
    assert stopped.n_iter_ == 2 == len(stopped.history_["seconds"])
    for U, V in zip(stopped.factors_, limited.factors_, strict=True):
        np.testing.assert_array_equal(U, V)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_tasks_are_told_in_order_and_end_at_ctrl_c(n_threads):
    told = []

    def report(state):
        told.append(state["at"])
        if state["at"] == (2, 1):
            raise KeyboardInterrupt

    def work(task, tell):
        for step in range(3):
            tell({"at": (task, step)})
        return task, None

    results, interrupt = told_in_order(work, range(6), n_threads, report)
    assert isinstance(interrupt, KeyboardInterrupt)
    assert told == [(k, step) for k in range(3) for step in range(3)][:-1]
    assert results[:2] == [0, 1] and results[-1] is None
    results, interrupt = told_in_order(work, range(6), n_threads, None)
    assert results == list(range(6)) and interrupt is None
