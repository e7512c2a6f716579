"""One way through compare: one list of options, one driver, kinds behind one protocol."""

import inspect
import re
import shlex
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

import nearfar
from nearfar import KNNClassifier, compare
from nearfar.app.cli import main
from nearfar.app.cli.compare import add_compare
from nearfar.app.cli.parser import Parser
from nearfar.app.compare.kinds.choice import kind_of
from nearfar.app.compare.kinds.kind import Kind
from nearfar.app.compare.methods import learners
from nearfar.app.compare.question import Question
from nearfar.base import LearnerTags, LinearLearner
from nearfar.base.tensor_input import TENSOR_PARAMETERS, TensorEstimator
from nearfar.datasets import make_sets
from nearfar.datasets.tables import DataFile

APP = Path(nearfar.__file__).parent / "app"
EVERY = """--components 3 --color a --unlabeled --groups g --time t --test f --methods m --tuning k
--scale none --repeats 2 --time-budget 9 --min-gain 0.1 --seed 4 --jobs 2 --in-process --scoring s
--no-context --no-rows --sample 99 --without b --keep a --drop b --target y --set-id i
--min-vectors 3 --report-by r"""
EVERY += " --vector v --id i --pairs p --conflicts drop --task regression --images 8x8 --then lda"
OPTIONS = {field.name: field.default for field in fields(Question)}


# ---------------------------------------------------------------------- the options


def test_python_asks_what_the_question_holds():
    asked = inspect.signature(compare).parameters
    of_files = {"target", "labels", "set_id", "min_vectors", "unlabelled"} | {"vector", "ids"}
    of_files |= {"pairs", "conflicts", "images"}
    assert set(asked) - {"verbose"} == set(OPTIONS) - of_files
    for name, parameter in asked.items():
        if name not in ("X", "verbose", "keep", "drop"):
            assert parameter.default == OPTIONS[name], name


def test_the_command_line_asks_what_the_question_holds():
    parser = Parser()
    add_compare(parser.add_subparsers())
    words = ["compare", "iris"]
    given = vars(parser.parse_args(words))
    places = {"data", "run", "out", "json", "save", "resume", "force", "parser", "commands"}
    places |= {"quiet", "open", "debug", "code", "exit_code", "dry_run"}
    question = Question.of(given, X=DataFile("iris"))
    # Nothing is said twice: what is not asked for has the default of the question.
    assert set(given) - places <= set(OPTIONS)
    assert question == Question(question.X)
    words += shlex.split(EVERY)
    asked = set(vars(parser.parse_args(words))) - places
    assert asked == set(OPTIONS) - {"X", "y", "cv", "journal", "labels", "supervision"}


def test_a_question_is_checked_and_stays_as_it_is():
    question = Question(np.ones((4, 2)), [0, 1, 0, 1], keep="a", repeats=np.int64(2))
    assert question.keep == ["a"] and type(question.repeats) is int
    with pytest.raises(FrozenInstanceError):
        question.repeats = 3
    for wrong in ({"repeats": 0}, {"tuning": "none"}, {"min_gain": 2}, {"n_components": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Question(question.X, **wrong)


def test_time_is_limited_unless_repeats_are_given():
    assert Question(None).budget == 120
    assert Question(None, repeats=2).budget is None
    assert Question(None, repeats=2, time_budget=7).budget == 7


# ---------------------------------------------------------------------- the kinds


def test_each_question_has_its_kind(tmp_path):
    sets, X = make_sets(random_state=0), np.ones((4, 2))
    sets.save(tmp_path / "sets.npz")
    asked = [
        (Question(X, [0, 1, 0, 1]), "RowKind"),
        (Question(X), "EmbeddingKind"),
        (Question(sets), "SetKind"),
        (Question(DataFile("iris")), "RowKind"),
        (Question(DataFile("iris"), unlabelled=True), "EmbeddingKind"),
        (Question(DataFile(tmp_path / "sets.npz")), "SetKind"),
    ]
    for question, name in asked:
        kind = kind_of(question)
        assert type(kind).__name__ == name and isinstance(kind, Kind)


def test_what_the_data_are_is_asked_in_the_kinds_and_the_reader_only():
    asks = re.compile(r"isinstance\([^)]*\bSets\b|\bif (not )?(of_)?sets\b")
    found = [
        f"{path.relative_to(APP)}: {line.strip()}"
        for path in APP.rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if asks.search(line)
    ]
    assert len(found) < 10, found


# ---------------------------------------------------------------------- the way of a question


def test_a_question_is_handed_through_few_modules_and_never_upward(tmp_path, monkeypatch):
    """From the command line to the page; a kind that holds its question does not count again."""
    monkeypatch.chdir(tmp_path)
    layers = ["tables", "compare", "report", "cli"]
    hands: list[tuple[str, str]] = []

    def watch(frame, event, _):
        if event != "call" or not _holds_question(frame):
            return
        to, back = frame.f_globals.get("__name__", ""), frame.f_back
        came = "" if back is None else back.f_globals.get("__name__", "")
        if to.startswith("nearfar.app") and came.startswith("nearfar.app") and to != came:
            hands.append((came, to))

    X, y = load_iris(return_X_y=True)
    np.savez("iris.npz", X=X, y=y)
    sys.setprofile(watch)
    try:
        words = ["--repeats", "1", "--tuning", "k", "--in-process", "--methods", "lda"]
        words.append("--no-context")
        assert main(["compare", "iris.npz", *words]) == 0
    finally:
        sys.setprofile(None)
    modules = {module for hand in hands for module in hand}
    assert 4 <= len(modules) <= 12, modules
    for came, to in hands:
        rooms = [layers.index(module.split(".")[2]) for module in (came, to)]
        assert rooms[1] <= rooms[0], (came, to)


def _holds_question(frame):
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return any(isinstance(frame.f_locals.get(name), Question) for name in names)


# ---------------------------------------------------------------------- classifiers


def test_a_voter_is_tuned_as_a_learner_is():
    voter, learner = learners({"knn": KNNClassifier(), "lda": nearfar.LDA()})
    assert [s.scale for s in voter.settings][1] == "passthrough"
    assert [type(s.scale) for s in voter.settings] == [type(s.scale) for s in learner.settings]
    assert voter.role == "learner" and all(s.votes and s.neighbors for s in voter.settings)


def test_a_voter_gets_the_k_of_the_plain_distances():
    """k-NN without a map is the plain distance: the same scaling, the same k, the same errors."""
    X, y = load_iris(return_X_y=True)
    quick = {"repeats": 1, "tuning": "full", "isolate": False, "verbose": False, "context": False}
    result = compare(X, y, methods={"knn": KNNClassifier()}, scale="standard", **quick)
    rows = {method["name"]: method["results"] for method in result.document["methods"]}
    for key in ("k", "error", "inner_error"):
        assert [r[key] for r in rows["knn"]] == [r[key] for r in rows["standardized"]]
    assert len({r["k"] for r in rows["knn"]}) > 1


# ---------------------------------------------------------------------- tensors among rows


class Corner(TensorEstimator, LinearLearner):
    """The first rows of each tensor."""

    learner_tags = LearnerTags(reads="instances", input="tensors", supervised=False)
    parameters = dict(TENSOR_PARAMETERS)

    def __init__(self, tensor_shape=None):
        self.tensor_shape = tensor_shape

    def fit(self, X, y=None):
        tensors = self._check_tensors(X, reset=True)
        self.seen_ = tensors.shape[1:]
        return self

    def transform(self, X):
        return np.asarray(X, np.float64)[:, : self.seen_[1]]


def test_a_map_of_tensors_is_told_the_shape_of_images():
    images = np.random.default_rng(0).normal(size=(40, 3, 4))
    quick = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}
    given = Corner()
    result = compare(images, np.arange(40) % 2, methods={"corner": given}, **quick)
    rows = {method["name"]: method for method in result.document["methods"]}
    assert rows["corner"]["status"] == "done", rows["corner"]["reason"]
    assert given.tensor_shape is None
    with pytest.raises(ValueError, match="takes tensors, and these rows have no shape"):
        compare(images[:, 0], np.arange(40) % 2, methods={"corner": Corner()}, **quick)
    with pytest.raises(ValueError, match="takes sets, and these are rows"):
        compare(images, np.arange(40) % 2, methods="setembedding", **quick)
