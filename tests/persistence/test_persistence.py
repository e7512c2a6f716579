"""Model files: exact round trips, and malicious files.

The golden files of a format are written once, with ``python
tests/persistence/test_persistence.py``, and stay unchanged as long as this format is read.
"""

import contextlib
import importlib
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import warnings
import zipfile
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import sklearn
from near_twins import near_twins
from quick import learns_from_labels, quick, told
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA as ScikitPCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from nearfar import (
    LDA,
    LMNN,
    MODA,
    PCA,
    RCA,
    Chunklets,
    EnergyClassifier,
    Euclidean,
    KernelDA,
    KernelLMNN,
    KNNClassifier,
    MinimumMahalanobisClassifier,
    MultiMetricLMNN,
    MultiPassLMNN,
    NeighborGraph,
    Pairs,
    Triplets,
    all_learners,
)
from nearfar import persistence as module
from nearfar.base import LearnerTags, LinearLearner
from nearfar.persistence import ModelFileError, archive, describe, load, save, schema
from nearfar.persistence.archive import FORMAT

pytest.importorskip("skops", reason="model files need the extra 'app'")

DATA = Path(__file__).parents[1] / "data"
LEARNERS = [name for name, cls in all_learners().items() if cls.learner_tags.input == "vectors"]
OF_LABELS = [name for name in LEARNERS if learns_from_labels(name)]
X, Y = load_iris(return_X_y=True)
X, Y = X[::3], np.array(["setosa", "versicolor", "virginica"])[Y[::3]]


class Mine(LinearLearner):
    """A user-defined learner that stores an arbitrary object."""

    learner_tags = LearnerTags(reads="instances", supervised=False)
    parameters: ClassVar = {"held": []}

    def __init__(self, held=None):
        self.held = held

    def _check_parameters(self):
        pass

    def fit(self, X, y=None):
        rows = self._check_X(X, reset=True)
        self.components_, self.rows_ = np.eye(rows.shape[1]), rows
        return self


def round_trip(model, folder, **options):
    path = folder / "model.nf"
    save(model, path, force=True, **options)
    return load(path, **options)


@cache
def fitted(name, dtype=np.float64):
    """Return a fitted learner for tests that do not change it."""
    return quick(name).fit(X.astype(dtype), told(name, Y))


def identical(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---------------------------------------------------------------------- round trips


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_learner_comes_back_as_it_was(name, dtype, tmp_path):
    rows = X.astype(dtype)
    learner = fitted(name, dtype)
    again = round_trip(learner, tmp_path)
    assert type(again) is type(learner)
    assert identical(again.transform(rows), learner.transform(rows))
    for attribute in ("components_", "coefficients_"):
        if hasattr(learner, attribute):
            assert identical(getattr(again, attribute), getattr(learner, attribute))
    assert str(again.get_params()) == str(learner.get_params())
    assert sorted(vars(again)) == sorted(vars(learner))
    if dtype is np.float64:  # Its supervision does not depend on the rows.
        refitted = clone(again).fit(rows, told(name, Y))
        assert identical(refitted.transform(rows), learner.transform(rows))


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("name", LEARNERS)
def test_learner_that_was_not_fitted_comes_back(name, tmp_path):
    again = round_trip(quick(name), tmp_path)
    assert "n_features_in_" not in vars(again)
    assert identical(again.fit(X, told(name, Y)).transform(X), fitted(name).transform(X))


@pytest.mark.parametrize(
    "name", [name for name in LEARNERS if hasattr(all_learners()[name], "partial_fit")]
)
@pytest.mark.parametrize("n_features", [4, 30])
def test_batches_go_on_after_a_round_trip(name, n_features, tmp_path):
    # With 30 features and few rows the statistics keep the rows themselves.
    rows = np.random.default_rng(0).normal(size=(24, n_features))
    labels = np.repeat(["a", "b", "c"], 8)
    order = np.random.default_rng(1).permutation(24)
    first, second = order[:14], order[14:]
    learner = quick(name).partial_fit(rows[first], labels[first])
    again = round_trip(learner, tmp_path)
    assert "_learned" not in vars(again)
    # Only online learners have components_ after partial_fit; the others solve on access.
    online = learner.learner_tags.reads == "supervision"
    assert ("components_" in vars(again)) == online
    again.partial_fit(rows[second], labels[second])
    learner.partial_fit(rows[second], labels[second])
    assert identical(again.transform(rows), learner.transform(rows))


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("name", [None, *OF_LABELS])
def test_neighbours_come_back_as_they_were(name, tmp_path):
    learner = None if name is None else quick(name)
    model = KNNClassifier(learner, n_neighbors=4).fit(X, Y)
    again = round_trip(model, tmp_path)
    assert again.predict(X).tolist() == model.predict(X).tolist()
    assert identical(again.predict_proba(X), model.predict_proba(X))
    for a, b in zip(again.kneighbors(X), model.kneighbors(X), strict=True):
        assert identical(a, b)
    assert again.leave_one_out_error() == model.leave_one_out_error()


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("name", [None, *OF_LABELS])
def test_energies_come_back_as_they_were(name, tmp_path):
    learner = None if name is None else quick(name)
    model = EnergyClassifier(learner).fit(X, Y)
    again = round_trip(model, tmp_path)
    assert identical(again.predict(X), model.predict(X))
    assert identical(again.decision_function(X + 0.1), model.decision_function(X + 0.1))
    assert again.leave_one_out_error() == model.leave_one_out_error()


@pytest.mark.parametrize("learner", [None, LDA(), KernelDA(), MODA(n_clusters=2)])
def test_scores_of_classes_come_back_as_they_were(learner, tmp_path):
    model = MinimumMahalanobisClassifier(learner, rule="gaussian").fit(X, Y)
    again = round_trip(model, tmp_path)
    assert identical(again.predict(X), model.predict(X))
    assert identical(again.decision_function(X + 0.1), model.decision_function(X + 0.1))


def test_energies_of_a_class_without_targets_come_back(tmp_path):
    labels = Y.copy()
    labels[0] = "alone"
    with pytest.warns(UserWarning, match="'alone'"):
        model = EnergyClassifier(LMNN()).fit(X, labels)
    assert np.isneginf(model._reach).any()
    assert identical(round_trip(model, tmp_path).energies(X), model.energies(X))


@pytest.mark.parametrize("rule", ["knn", "energy"])
@pytest.mark.parametrize("cells", ["labels", "kmeans", np.arange(len(X)) % 2], ids=str)
def test_several_metrics_come_back_as_they_were(cells, rule, tmp_path):
    model = MultiMetricLMNN(LMNN(max_iter=300), partition=cells, rule=rule, patience=1).fit(X, Y)
    again = round_trip(model, tmp_path)
    assert identical(again.predict(X), model.predict(X))
    assert identical(again.energies(X), model.energies(X))
    assert identical(again.kneighbors(X)[0], model.kneighbors(X)[0])
    assert again.leave_one_out_error() == model.leave_one_out_error()
    assert identical(again.components_, model.components_)


def test_classifiers_that_were_not_fitted_come_back(tmp_path):
    for model in (EnergyClassifier(LMNN(), n_neighbors=2), MultiMetricLMNN(patience=1)):
        again = round_trip(model, tmp_path)
        assert identical(again.fit(X, Y).predict(X), clone(model).fit(X, Y).predict(X))


def test_passes_come_back_as_they_were(tmp_path):
    model = MultiPassLMNN(n_passes=2).fit(X, Y)
    again = round_trip(model, tmp_path)
    for a, b in zip(again.passes_, model.passes_, strict=True):
        assert identical(a.components_, b.components_)
    assert again.n_neighbors == 3


@pytest.mark.parametrize("kernel", ["linear", "poly", "laplacian", "precomputed"])
def test_kernels_come_back_as_they_were(kernel, tmp_path):
    rows = X @ X.T if kernel == "precomputed" else X
    model = KernelLMNN(kernel, estimator=LMNN(tol=1e-3)).fit(rows, Y)
    assert identical(round_trip(model, tmp_path).transform(rows), model.transform(rows))


def test_a_kernel_that_is_a_function_cannot_be_saved(tmp_path):
    model = KernelLMNN(lambda a, b: float(a @ b), estimator=LMNN(tol=1e-3)).fit(X, Y)
    with pytest.raises(ModelFileError, match=r"KernelLMNN\.kernel is '.*<lambda>', a .*function"):
        save(model, tmp_path / "model.nf")
    with pytest.raises(ModelFileError, match="kernel must be .*, or a function of two"):
        save(KernelLMNN(float), tmp_path / "model.nf")
    assert not os.listdir(tmp_path)


def raw_table():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame(
        {
            "weight": rng.normal(size=60),
            "height": rng.normal(size=60).astype(np.float32),
            "colour": pandas.Categorical(rng.choice(["red", "green", "blue"], 60)),
            "shape": rng.choice(["round", "square"], 60).astype(object),
            "rooms": rng.integers(1, 4, 60),
        }
    )
    table.loc[3, "weight"] = np.nan
    table.loc[5, "shape"] = None
    kind = np.where(table["height"] + rng.normal(size=60) > 0, "yes", "no")
    return table, kind


def prepared(**options):
    numbers = Pipeline(
        [("fill", SimpleImputer(strategy="median", add_indicator=True)), ("s", StandardScaler())]
    )
    words = Pipeline(
        [
            ("fill", SimpleImputer(strategy="most_frequent")),
            ("code", OneHotEncoder(handle_unknown="ignore", sparse_output=False)),
        ]
    )
    return ColumnTransformer(
        [("numbers", numbers, ["weight", "height"]), ("words", words, ["colour", "shape"])],
        **options,
    )


SCALES = {
    "none": "passthrough",
    "standard": StandardScaler(),
    "unit": Normalizer(),
    "whitened": ScikitPCA(whiten=True, n_components=4),
}


@pytest.mark.parametrize(
    ("scale", "name"),
    [(scale, "LDA") for scale in SCALES]
    + [
        # Near twins contain a function, which a file cannot store.
        pytest.param("standard", name, marks=[pytest.mark.slow] if name in near_twins() else [])
        for name in OF_LABELS[::3]
        if name != "LDA"
    ],
)
def test_chain_from_raw_table_to_neighbours_comes_back(scale, name, tmp_path):
    table, kind = raw_table()
    model = Pipeline(
        [
            ("prepare", prepared(remainder="passthrough")),
            ("scale", SCALES[scale]),
            ("learner", quick(name)),
            ("knn", KNNClassifier(n_neighbors=3)),
        ]
    ).fit(table, kind)
    again = round_trip(model, tmp_path)
    assert again.predict(table).tolist() == model.predict(table).tolist()
    assert identical(again[:-1].transform(table), model[:-1].transform(table))
    mapped = model[:-1].transform(table)
    for a, b in zip(again[-1].kneighbors(mapped), model[-1].kneighbors(mapped), strict=True):
        assert identical(a, b)
    assert again.feature_names_in_.tolist() == list(table.columns)
    if name == "LDA":  # Other refitted learners are tested above.
        refitted = clone(again).fit(table, kind)
        assert refitted.predict(table).tolist() == model.predict(table).tolist()


def test_output_setting_and_feature_names_come_back(tmp_path):
    table, kind = raw_table()
    model = Pipeline([("prepare", prepared()), ("learner", LDA())]).set_output(transform="pandas")
    model.fit(table, kind)
    again = round_trip(model, tmp_path)
    assert again.transform(table).equals(model.transform(table))
    assert again.get_feature_names_out().tolist() == model.get_feature_names_out().tolist()


@pytest.mark.parametrize("remainder", ["drop", "passthrough"])
def test_columns_by_mask_come_back(remainder, tmp_path):
    # scikit-learn up to 1.8 stores the remaining columns in a special class.
    mask = np.array([True, False, True, False])
    columns = ColumnTransformer([("some", StandardScaler(), mask)], remainder=remainder).fit(X)
    again = round_trip(columns, tmp_path)
    assert identical(again.transform(X), columns.transform(X))


@pytest.mark.parametrize(
    "encoder",
    [
        OneHotEncoder(drop="first"),
        OneHotEncoder(drop="if_binary", sparse_output=False, dtype=np.float32),
        OneHotEncoder(min_frequency=3, handle_unknown="infrequent_if_exist"),
        OneHotEncoder(max_categories=2, drop="first", sparse_output=False),
        OneHotEncoder(categories=[["low", "high", "mid"], ["x", "y"]], handle_unknown="ignore"),
        OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
    ],
    ids=lambda encoder: f"{encoder}".replace("\n", ""),
)
def test_encoders_of_every_kind_come_back(encoder, tmp_path):
    words = np.array([["low", "x"]] * 5 + [["mid", "y"]] * 4 + [["high", "y"]], dtype=object)
    fitted = clone(encoder).fit(words)
    again = round_trip(fitted, tmp_path)
    mapped, wanted = again.transform(words), fitted.transform(words)
    assert (mapped != wanted).sum() == 0
    assert again.dtype is fitted.dtype


@pytest.mark.parametrize(
    "column", [[1, 2, 2], [0.5, np.nan, 2.0], ["a", None, "b"], [True, False, True]]
)
def test_encoder_of_numbers_and_missing_values_comes_back(column, tmp_path):
    for dtype in (object, None):
        rows = np.array(column, dtype=dtype).reshape(-1, 1)
        fitted = OneHotEncoder().fit(rows)
        again = round_trip(fitted, tmp_path)
        assert (again.transform(rows) != fitted.transform(rows)).sum() == 0


def test_parameters_of_every_kind_come_back(tmp_path):
    learner = LMNN(init=np.asfortranarray(np.eye(4)), n_components=None, tol=1e-3).fit(X, Y)
    again = round_trip(learner, tmp_path)
    assert identical(again.init, learner.init)
    assert again.init.flags.f_contiguous
    assert again.history_ == learner.history_
    scores = round_trip(PCA(n_components=np.float32(0.5)), tmp_path)
    assert type(scores.n_components) is np.float32
    assert round_trip(LDA(n_components=np.int64(1)), tmp_path).n_components == 1
    assert type(round_trip(PCA(whiten=np.True_), tmp_path).whiten) is np.bool_


def test_random_state_goes_on_where_it_was(tmp_path):
    state = np.random.RandomState(3)
    state.normal(size=3)
    again = round_trip(LMNN(random_state=state), tmp_path)
    assert again.random_state.normal(size=5).tolist() == state.normal(size=5).tolist()
    with pytest.raises(
        ModelFileError, match=r"LMNN.random_state: the state of a RandomState .* Use an integer"
    ):
        save(LMNN(random_state=np.random.RandomState(np.random.PCG64(0))), tmp_path / "no.nf")


def test_labels_of_every_kind_come_back(tmp_path):
    for labels in (Y, Y.astype(object), np.arange(len(Y)) % 3, np.arange(len(Y)) % 2 == 0):
        model = KNNClassifier(LDA()).fit(X, labels)
        assert identical(round_trip(model, tmp_path).predict(X), model.predict(X))


def test_summaries_come_back(tmp_path):
    held = [
        Pairs([[0, 1]], [[1, 2]], n_samples=3),
        Triplets([[0, 1, 2]], n_samples=3),
        Chunklets([0, 0, -1]),
        LDA().fit(X, Y).statistics_,
    ]
    again = round_trip(Mine(held), tmp_path, trusted=[Mine])
    assert again.held[:3] == held[:3]
    assert identical(again.held[3].within_scatter(), held[3].within_scatter())
    graph = NeighborGraph.from_points(X, n_neighbors=3)
    again = round_trip(Mine(graph), tmp_path, trusted=[Mine])
    assert (again.held.to_sparse() != graph.to_sparse()).nnz == 0


def test_long_lists_stay_small_in_the_file(tmp_path):
    path = tmp_path / "model.nf"
    save(Mine([[0.1 * k for k in range(5_000)], list(range(5_000))]), path, trusted=[Mine])
    assert path.stat().st_size < 170_000
    assert load(path, trusted=[Mine]).held[0][-1] == 0.1 * 4_999


def test_same_model_gives_the_same_bytes(tmp_path):
    model = KNNClassifier(LDA()).fit(X, Y)
    members = []
    for copy in (model, pickle.loads(pickle.dumps(model))):
        save(copy, tmp_path / "model.nf", force=True)
        read = read_members(tmp_path / "model.nf")
        read.pop("nearfar.json")
        members.append(read)
    assert members[0] == members[1]


# ---------------------------------------------------------------------- saving


def test_nothing_is_overwritten_without_force(tmp_path):
    path = tmp_path / "model.nf"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="force=True"):
        save(LDA(), path)
    assert path.read_text() == "precious"
    save(LDA(), path, force=True)
    assert isinstance(load(path), LDA)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        save(LDA(), tmp_path, force=True)
    assert os.listdir(tmp_path) == ["model.nf"]


class Slotted:
    __slots__ = ("value",)


class Itself:
    pass


def looped():
    item = [1]
    item.append(item)
    return item


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (lambda x: x, r"Mine\.held is '.*<lambda>', a builtins\.function"),
        ({"deep": [1, np.sin]}, r"Mine\.held\.deep\[1\] is 'sin', a numpy\.ufunc"),
        (print, r"Mine\.held is 'print', a builtins\.builtin_function"),
        (RandomForestClassifier(), r"Mine\.held is a sklearn\.ensemble\._forest\.RandomForest"),
        (Itself(), r"Mine\.held is a .*Itself\..*trusted=\[ThatClass\]"),
        (RandomForestClassifier, r"Mine\.held is 'RandomForestClassifier', a abc\.ABCMeta"),
        (np.zeros(2, dtype="f8,i4"), "Mine.held is an array of"),
        (np.zeros(2, dtype="M8[s]"), r"Mine.held is an array of datetime64\[s\]"),
        (np.zeros(2, dtype=complex), "Mine.held is an array of complex128"),
        (np.ma.zeros(2), r"Mine.held is a numpy\.ma\.\S*MaskedArray"),
        (np.array([object()]), r"Mine.held\[0\] is a builtins\.object"),
        ({(1, 2): 3}, r"Mine\.held has the key \(1, 2\)"),
        ({True: 3}, r"Mine\.held has the key True"),
        ({1, 2}, "Mine.held is a builtins.set"),
        (b"bytes", "Mine.held is a builtins.bytes"),
        (looped(), "nested more than 64 levels deep, or it contains itself"),
        (10**5000, "cannot be saved"),
        (np.array("0-d", dtype=object), "Mine.held"),
        (FunctionTransformer(np.abs), "Mine.held.func is 'absolute'"),
        (FunctionTransformer(float), "Mine.held: a FunctionTransformer .* must not have func"),
        (OneHotEncoder(feature_name_combiner=max), "Mine.held.feature_name_combiner is 'max'"),
        (Pipeline([("a", LDA())], memory="cache"), "Mine.held: memory must be None"),
        (ColumnTransformer([], n_jobs=10**6), "Mine.held: n_jobs must be"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_what_a_file_cannot_hold_is_named_when_saving(held, message, tmp_path):
    with pytest.raises(ModelFileError, match=message):
        save(Mine(held), tmp_path / "model.nf", trusted=[Mine])
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "model",
    [None, 3, {"a": LDA()}, LDA, RandomForestClassifier(), X, LDA().fit(X, Y).statistics_],
    ids=lambda model: type(model).__name__,
)
def test_only_models_are_saved(model, tmp_path):
    with pytest.raises(ModelFileError, match="is not a model that can be saved"):
        save(model, tmp_path / "model.nf")


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "model.nf"
    save(LDA(n_components=1), path)
    for place in ("check_equal", "_load", "_write_archive"):
        with monkeypatch.context() as patch:
            patch.setattr(module, place, lambda *_: 1 / 0)
            with pytest.raises((ZeroDivisionError, ModelFileError)):
                save(LDA(), path, force=True)
        assert os.listdir(tmp_path) == ["model.nf"]
        assert load(path).n_components == 1


class Forgetful(LDA):
    def __setstate__(self, state):
        super().__setstate__({**state, "n_components": 7})


class Adding(LDA):
    def __setstate__(self, state):
        super().__setstate__({**state, "more": [1]})


@pytest.mark.parametrize("kind", [Forgetful, Adding])
def test_what_would_not_come_back_is_not_saved(kind, tmp_path):
    with pytest.raises(ModelFileError, match=f"does not restore it: {kind.__name__}.* differs"):
        save(kind(), tmp_path / "model.nf", trusted=[kind])
    assert not os.listdir(tmp_path)


class Odd(Mine):
    def __getstate__(self):
        return (1, 2)


class Raising(LDA):
    def __setstate__(self, state):
        raise ValueError("\x1b[2J gone")


class Empty:
    pass


def test_own_classes_that_do_odd_things(tmp_path):
    path = tmp_path / "model.nf"
    with pytest.raises(ModelFileError, match="the state of a Odd must be a dict"):
        save(Odd(), path, trusted=[Odd])
    with pytest.raises(ModelFileError, match="ValueError:  .2J gone") as caught:
        save(Raising(), path, trusted=[Raising])
    assert str(caught.value).isprintable()
    assert isinstance(round_trip(Mine(Empty()), tmp_path, trusted=[Mine, Empty]).held, Empty)


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path, monkeypatch):
    path = tmp_path / "model.nf"
    monkeypatch.setattr(module, "check_equal", lambda *_: path.write_text("precious"))
    with pytest.raises(FileExistsError):
        save(LDA(), path)
    assert path.read_text() == "precious"
    with pytest.raises(FileNotFoundError, match="does not exist. Create it first"):
        save(LDA(), tmp_path / "none" / "model.nf")


@pytest.mark.parametrize(
    "held",
    [
        np.zeros(0, dtype=bool),
        np.array([], dtype=str),
        np.array([["a", 1], [None, 2.5]], dtype=object),
        np.zeros((0, 5)),
        np.array(3.5),
        {"__loader__": 1, "content": {"__class__": "x"}, 3: [(), {}]},
        [float("nan"), float("inf"), -0.0, 10**40, "\ud800", "\0", True, None],
        (1, (2, [3, [4]])),
        slice(None, 3),
        np.dtype("U7"),
        np.array(["é", "日本"]),
        np.arange(3, dtype=">i4"),
        np.array([b"ab"]),
        [np.float64, int, np.bool_, np.object_],
    ],
    ids=lambda held: ascii(held).replace("\n", ""),
)
def test_values_of_every_kind_come_back(held, tmp_path):
    # save compares the models itself; this test checks that it does not raise.
    again = round_trip(Mine(held), tmp_path, trusted=[Mine]).held
    assert type(again) is type(held)
    assert repr(again) == repr(held)


def test_too_large_a_model_is_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10_000)
    with pytest.raises(ModelFileError, match="2 GiB"):
        save(KNNClassifier().fit(np.zeros((1000, 4)), np.zeros(1000, int)), tmp_path / "model.nf")
    assert not os.listdir(tmp_path)


def test_own_classes_must_be_named_on_both_sides(tmp_path):
    path = tmp_path / "model.nf"
    model = Pipeline([("mine", Mine()), ("knn", KNNClassifier())]).fit(X, Y)
    with pytest.raises(ModelFileError, match=r"Pipeline\.steps\[0\]\[1\] is a .*Mine\..*trusted="):
        save(model, path)
    save(model, path, trusted=[Mine])
    with pytest.raises(ModelFileError, match=r"type '.*\.Mine' is not on nearfar's list.*trusted="):
        load(path)
    assert load(path, trusted=[Mine]).predict(X).tolist() == model.predict(X).tolist()
    with pytest.raises(TypeError, match="must contain classes"):
        load(path, trusted=["test_persistence.Mine"])

    class Local(Mine):
        pass

    with pytest.raises(ValueError, match="top of a module"):
        save(Local(), tmp_path / "local.nf", trusted=[Local])


@pytest.mark.parametrize(
    "notes", [{"a": (1, 2)}, {1: "a"}, {"a": np.ones(2)}, {"a": float("nan")}, ["a"], {"a": {1, 2}}]
)
def test_notes_must_be_json(notes, tmp_path):
    with pytest.raises(ModelFileError, match="metadata must be a dict"):
        save(LDA(), tmp_path / "model.nf", metadata=notes)
    with pytest.raises(ModelFileError, match="bytes"):
        save(LDA(), tmp_path / "model.nf", metadata={"a": "x" * 10**6})


def test_whether_a_model_can_be_saved_is_known_without_skops(monkeypatch):
    monkeypatch.setattr(
        module, "import_optional", lambda *_: 1 / 0
    )  # Importing skops takes seconds.
    module.check_savable(KNNClassifier(LDA()))
    with pytest.raises(ModelFileError, match="estimator is a sklearn"):
        module.check_savable(KNNClassifier(RandomForestClassifier()))
    with pytest.raises(ModelFileError, match="is not a model that can be saved"):
        module.check_savable(np.zeros(3))


# ---------------------------------------------------------------------- metadata of a file


def test_describe_tells_what_is_in_a_file(tmp_path, monkeypatch):
    path = tmp_path / "model.nf"
    notes = {"columns": ["a", "b"], "target": "kind", "n": 3, "none": None}
    save(KNNClassifier(Euclidean()).fit(X, Y), path, metadata=notes)
    # describe needs neither skops nor the model.
    edit(path, "schema.json", lambda _: b"nonsense")
    monkeypatch.setattr(module, "import_optional", lambda *_: 1 / 0)
    says = describe(path)
    assert says["format"] == FORMAT
    assert says["model"] == "nearfar.KNNClassifier"
    assert says["metadata"] == notes
    assert says["holds_training_rows"] is True
    assert says["n_training_rows"] == len(X)
    assert says["training_rows"] == {"KNNClassifier": len(X)}
    assert says["bytes"] == path.stat().st_size
    assert says["created"].endswith("+00:00")
    assert says["versions"]["numpy"] == np.__version__
    assert set(says["versions"]) == {
        *("nearfar", "python", "numpy", "scipy", "scikit-learn", "skops")
    }


@pytest.mark.parametrize(
    ("model", "given", "rows"),
    [
        (KNNClassifier(LDA()), None, 0),
        (LMNN(), (X, Y), 0),
        (Euclidean(), (X,), 0),
        (MultiPassLMNN(n_passes=1), (X, Y), 0),
        (EnergyClassifier(LMNN()), None, 0),
        (EnergyClassifier(), (X, Y), len(X)),
        (MultiMetricLMNN(validation_fraction=0.5, patience=1), (X, Y), len(X)),
        (KernelLMNN(), None, 0),
        (KernelLMNN(estimator=LMNN(tol=1e-3)), (X, Y), len(X)),
        (KernelDA(n_landmarks=21), (X, Y), 21),
        (MinimumMahalanobisClassifier(), (X, Y), 0),
        # Moments are kept about the first row of each class.
        (LDA(), (X, Y), 3),
        (PCA(), (X,), 1),
        # Fewer rows than features are kept as they are.
        (LDA(), (np.random.default_rng(0).normal(size=(9, 20)), Y[[0, 20, 40] * 3]), 9),
        (Pipeline([("a", StandardScaler()), ("b", KNNClassifier(LDA()))]), (X, Y), len(X)),
        (Mine(), (X,), len(X)),
        (Mine(), None, 0),
    ],
)
def test_a_file_says_when_it_holds_training_rows(model, given, rows, tmp_path):
    path = tmp_path / "model.nf"
    if given is not None:
        model.fit(*given)
    save(model, path, trusted=[Mine])
    says = describe(path)
    assert says["n_training_rows"] == rows
    assert says["holds_training_rows"] == (rows > 0)


@pytest.mark.parametrize("reader", [load, describe])
def test_newer_formats_are_refused(reader, tmp_path):
    path = tmp_path / "model.nf"
    save(LDA(), path)
    edit_json(path, "nearfar.json", lambda says: says.update(format=FORMAT + 1))
    with pytest.raises(ModelFileError, match=f"format {FORMAT + 1}, .*newer nearfar.*Update"):
        reader(path)


@pytest.mark.parametrize(("model", "n_warnings"), [(StandardScaler(), 1), (LDA(), 0)])
def test_another_scikit_learn_is_warned_of_once(model, n_warnings, tmp_path):
    path = tmp_path / "model.nf"
    save(model, path)
    edit_json(path, "nearfar.json", lambda says: says["versions"].update({"scikit-learn": "0.1"}))
    ours = f'"{sklearn.__version__}"'
    # scikit-learn stores its version in each estimator.
    edit(path, "schema.json", lambda data: data.replace(inside(ours), inside('"0.1"')))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load(path)
    assert len(caught) == n_warnings
    assert all("saved with scikit-learn '0.1'" in str(one.message) for one in caught)


def inside(text):
    return json.dumps({"content": text}, separators=(",", ":"))[1:-1].encode()


def test_parameters_younger_than_the_file_have_their_defaults(tmp_path):
    path = tmp_path / "model.nf"
    save(LDA(within_weight=2.0).fit(X, Y), path)
    edit_schema(path, lambda schema: drop_key(schema["content"], "within_weight"))
    assert load(path).within_weight == LDA().within_weight
    save(Pipeline([("a", LDA())]), path, force=True)
    edit_schema(path, lambda schema: drop_key(schema["content"], "steps"))
    with pytest.raises(ModelFileError, match="steps"):
        load(path)


@pytest.mark.filterwarnings("ignore:.*was saved with scikit-learn")
def test_imputers_of_older_versions_work(tmp_path):
    path = tmp_path / "model.nf"
    rows = np.array([[1.0, np.nan], [3.0, 4.0]])
    imputer = SimpleImputer().fit(rows)
    save(imputer, path)
    edit_json(path, "nearfar.json", lambda says: says["versions"].update({"scikit-learn": "1.6"}))
    if "_fill_dtype" in vars(imputer):  # scikit-learn 1.6 has no such attribute.
        members = read_members(path)
        schema = json.loads(members["schema.json"])
        members.pop(attributes(schema)["_fill_dtype"]["content"]["file"])
        drop_key(schema["content"], "_fill_dtype")
        write_members(path, {**members, "schema.json": json.dumps(schema).encode()})
    assert load(path).transform(rows).tolist() == [[1.0, 4.0], [3.0, 4.0]]


def golden_models():
    chain = Pipeline(
        [("scale", StandardScaler()), ("knn", KNNClassifier(LMNN(n_components=2), n_neighbors=3))]
    )
    batches = RCA().partial_fit(X[::2], Y[::2])
    return {
        "model": chain.fit(X, Y),
        "learners": Pipeline([("pca", PCA(3)), ("lda", LDA()), ("same", Euclidean())]).fit(X, Y),
        "statistics": batches,
    }


@pytest.mark.filterwarnings("ignore:.*was saved with scikit-learn")
@pytest.mark.parametrize("number", range(1, FORMAT + 1))
def test_files_of_every_format_load(number):
    chain = load(DATA / f"model-format-{number}.nf")
    notes = describe(DATA / f"model-format-{number}.nf")["metadata"]
    assert describe(DATA / f"model-format-{number}.nf")["format"] == number
    assert chain.predict(X).tolist() == notes["predictions"]
    distances, _ = chain[-1].kneighbors(chain[0].transform(X))
    np.testing.assert_allclose(distances, notes["distances"], atol=1e-10)
    learners = load(DATA / f"learners-format-{number}.nf")
    notes = describe(DATA / f"learners-format-{number}.nf")["metadata"]
    np.testing.assert_allclose(learners.transform(X), notes["mapped"], atol=1e-10)
    statistics = load(DATA / f"statistics-format-{number}.nf")
    assert "components_" not in vars(statistics)
    notes = describe(DATA / f"statistics-format-{number}.nf")["metadata"]
    mapped = statistics.partial_fit(X[1::2], Y[1::2]).transform(X)
    np.testing.assert_allclose(mapped, notes["mapped"], atol=1e-8)
    # Models from golden files can be fitted again.
    assert clone(chain).fit(X, Y).predict(X).tolist() == chain.predict(X).tolist()


def write_golden_files():
    models = golden_models()
    chain = models["model"]
    distances = chain[-1].kneighbors(chain[0].transform(X))[0].tolist()
    mapped = RCA().partial_fit(X[::2], Y[::2]).partial_fit(X[1::2], Y[1::2]).transform(X)
    notes = {
        "model": {"predictions": chain.predict(X).tolist(), "distances": distances},
        "learners": {"mapped": models["learners"].transform(X).tolist()},
        "statistics": {"mapped": mapped.tolist()},
    }
    for name, model in models.items():
        save(model, DATA / f"{name}-format-{FORMAT}.nf", metadata=notes[name])


# ---------------------------------------------------------------------- malicious files


def read_members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def edit(path, name, change):
    members = read_members(path)
    members[name] = change(members[name])
    write_members(path, members)


def edit_json(path, name, change):
    def changed(data):
        value = json.loads(data)
        return json.dumps(change(value) or value).encode()

    edit(path, name, changed)


def edit_schema(path, change):
    edit_json(path, "schema.json", change)


def node(loader, name, **fields):
    where, _, last = name.rpartition(".")
    return {"__class__": last, "__module__": where, "__loader__": loader, **fields}


def value(item):
    return node("JsonNode", "builtins.str", content=json.dumps(item), is_json=True)


def items(loader, *children):
    return node(loader, f"builtins.{loader[:-4].lower()}", content=list(children))


def mapping(**children):
    keys = [node("TypeNode", "builtins.str")] * len(children)
    kinds = items("ListNode", *keys)
    return node("DictNode", "builtins.dict", content=children, key_types=kinds)


def attributes(schema):
    return schema["content"]["content"]


def set_key(entry, key, child):
    if key not in entry["content"]:
        entry["key_types"]["content"].append(node("TypeNode", "builtins.str"))
    entry["content"][key] = child


def drop_key(entry, key):
    entry["content"].pop(key)
    entry["key_types"]["content"].pop()


@pytest.fixture(scope="module")
def good_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "model.nf"
    save(KNNClassifier(LDA()).fit(X, Y), path)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, good_file):
    path = tmp_path / "model.nf"
    path.write_bytes(good_file)
    return path


def refuses(path, message, **options):
    with pytest.raises(ModelFileError, match=message) as caught:
        load(path, **options)
    assert str(caught.value).startswith(str(path))


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "foreign"
    refuses(path, "the file does not exist")
    refuses(tmp_path, "not a regular file")
    contents = [
        b"",
        b"PK",
        b"hello, this is a text file\n" * 10,
        pickle.dumps({"a": list(range(100))}),
        os.urandom(1000),
        b"\x93NUMPY" + bytes(200),
        b"PK\5\6" + bytes(18),
        b"PK\3\4" + bytes(100) + b"PK\5\6" + bytes(18),
    ]
    for content in contents:
        path.write_bytes(content)
        refuses(path, "not a nearfar model file")
        with pytest.raises(ModelFileError):
            describe(path)
    write_members(path, {"a.txt": b"x" * 100})
    refuses(path, r"it has no nearfar\.json")
    write_members(path, {"nearfar.json": b"[]", "schema.json": b"{}"})
    refuses(path, "not a nearfar model file")
    write_members(path, {"nearfar.json": b"{]", "schema.json": b"{}"})
    refuses(path, r"nearfar\.json is not valid JSON")
    with pytest.raises(ModelFileError, match="the file does not exist"):
        describe(tmp_path / "none")


def test_file_of_skops_itself_is_refused(tmp_path):
    skops = importlib.import_module("skops.io")
    skops.dump(LDA(), tmp_path / "model.skops")
    refuses(tmp_path / "model.skops", r"it has no nearfar\.json")


def test_files_cut_short_are_refused(path):
    whole = path.read_bytes()
    for length in [*range(0, len(whole), 701), len(whole) - 1]:
        path.write_bytes(whole[:length])
        refuses(path, ": ")


def test_flipped_bytes_are_refused_or_harmless(path):
    whole = path.read_bytes()
    rng = random.Random(0)
    for _ in range(100):
        broken = bytearray(whole)
        broken[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        loaded_or_refused(path)


def loaded_or_refused(path):
    """Return the model, or None if loading raises a ModelFileError. Other errors fail the test."""
    try:
        model = load(path)
    except ModelFileError as error:
        assert str(path) in str(error)
        return None
    with contextlib.suppress(Exception):  # A loaded model must not crash the process.
        model.predict(X)
    return model


def test_file_beyond_the_limit_is_refused(path):
    refuses(path, "more than max_bytes=1000 allows", max_bytes=1000)
    assert load(path, max_bytes=path.stat().st_size) is not None


BAD_NAMES = ["../a.npy", "/etc/passwd", "..\\a.npy", "a/0.npy", "0.npz", "0.bin", "x.py", "0.npy/"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_members_of_other_names_are_refused(name, path):
    members = read_members(path)
    write_members(path, {**members, name: b""})
    refuses(path, "which is not part of a model file")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives_of_another_form_are_refused(path):
    members, whole = read_members(path), path.read_bytes()

    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("0.npy", members["0.npy"])
    refuses(path, r"two members named 0\.npy")

    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            information = zipfile.ZipInfo(name)
            if name == "0.npy":
                information.external_attr = 0o120777 << 16  # a symbolic link
            archive.writestr(information, data)
    refuses(path, "is not a regular file")

    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        write_members(path, members, compression=method)
        refuses(path, r"nearfar\.json is compressed, or larger than")
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                stored = name == "nearfar.json"
                archive.writestr(name, data, compress_type=None if stored else method)
        refuses(path, "is compressed or encrypted")

    entry = whole.rindex(b"PK\1\2")  # Directory entry of the last member.

    def patched(offset, code, number):
        broken = bytearray(whole)
        struct.pack_into(code, broken, entry + offset, number)
        path.write_bytes(broken)

    patched(8, "<H", 1)
    refuses(path, "is compressed or encrypted")
    patched(24, "<L", 10**9)
    refuses(path, "has two different sizes")
    patched(20, "<LL"[:2], 10**9)
    refuses(path, "has two different sizes")
    broken = bytearray(whole)
    struct.pack_into("<LL", broken, entry + 20, 10**9, 10**9)
    path.write_bytes(broken)
    refuses(path, "sizes of all members exceeds the size of the file")

    for form in (b"#!/bin/sh\n" + whole, whole + b"\0", whole[:-2] + b"\5\0hello"):
        path.write_bytes(form)
        refuses(path, "this is not a nearfar model file, or it is truncated")
    locator = b"PK\6\7" + bytes(16)
    path.write_bytes(whole[:-22] + locator + whole[-22:])
    refuses(path, "this is not a nearfar model file, or it is truncated")
    broken = bytearray(whole)
    struct.pack_into("<L", broken, len(whole) - 10, 2**23)
    path.write_bytes(broken)
    refuses(path, "central directory of the zip archive is larger than")


SAYS = [
    ({"program": "other"}, "not a nearfar model file"),
    ({"format": "1"}, "format must be a positive integer"),
    ({"format": True}, "format must be a positive integer"),
    ({"format": 0}, "format must be a positive integer"),
    ({"format": None}, "format must be a positive integer"),
    ({"format": 10**300}, "newer nearfar"),
    ({"model": 3}, "model is missing or not a str"),
    ({"created": []}, "created is missing"),
    ({"versions": []}, "versions is missing"),
    ({"versions": {"scikit-learn": 3}}, "values of versions must be strings"),
    ({"training_rows": None}, "training_rows is missing"),
    ({"training_rows": {"a": "b"}}, "training_rows must be nonnegative integers"),
    ({"training_rows": {"a": -1}}, "training_rows must be nonnegative integers"),
    ({"metadata": "x"}, "metadata is missing"),
]


@pytest.mark.parametrize(("change", "message"), SAYS)
def test_wrong_information_is_refused(change, message, path):
    edit_json(path, "nearfar.json", lambda says: says.update(change))
    refuses(path, message)
    with pytest.raises(ModelFileError, match=message):
        describe(path)


CALL = "touch canary"
HARM = {
    "a function": node("FunctionNode", "os.system"),
    "a function of NumPy": node("FunctionNode", "numpy.sin"),
    "a method": node(
        "MethodNode",
        "nearfar.LDA",
        content={"func": "fit", "obj": node("ObjectNode", "nearfar.LDA")},
    ),
    "a partial": node(
        "PartialNode",
        "functools.partial",
        content={
            "func": node("FunctionNode", "os.system"),
            "args": items("TupleNode", value(CALL)),
            "kwds": mapping(),
            "namespace": value(None),
        },
    ),
    "an operator": node(
        "OperatorFuncNode", "operator.methodcaller", attrs=items("TupleNode", value("fit"))
    ),
    "a tree": node(
        "TreeNode",
        "sklearn.tree._tree.Tree",
        content=mapping(),
        __reduce__={"args": items("TupleNode")},
    ),
    "a loss": node(
        "LossNode", "os.system", content=mapping(), __reduce__={"args": items("TupleNode")}
    ),
    "a sparse matrix": node(
        "SparseMatrixNode", "scipy.sparse.csr_matrix", type="scipy", file="0.npy"
    ),
    "bytes": node("BytesNode", "builtins.bytes", file="0.npy"),
    "a default": node(
        "DefaultDictNode",
        "collections.defaultdict",
        content={"main": mapping(), "default_factory": node("TypeNode", "builtins.list")},
    ),
    "a set": items("SetNode", value(1)),
    "a cached node": {**node("CachedNode", "nearfar.LDA"), "__id__": 1},
    "a generator": node(
        "RandomGeneratorNode",
        "numpy.random._generator.Generator",
        content={"bit_generator": mapping(bit_generator=value("seed")), "seed_seq": mapping()},
    ),
    "a masked array": node(
        "MaskedArrayNode", "numpy.ma.MaskedArray", content={"data": value(1), "mask": value(1)}
    ),
    "no such kind": node("EvilNode", "builtins.str", content="1"),
}
OTHER_TYPES = {
    "a call": node(
        "ConstructorFromReduceNode", "os.system", content=items("TupleNode", value(CALL))
    ),
    "a call of a known class": node(
        "ConstructorFromReduceNode", "nearfar.KNNClassifier", content=items("TupleNode", value(1))
    ),
    "a graph without a call": node("ObjectNode", "numpy.NeighborGraph", content=mapping()),
    "an unknown class": node("ObjectNode", "subprocess.Popen", content=mapping()),
    "a function as a class": node("ObjectNode", "os.system", content=mapping()),
    "a class of scikit-learn": node(
        "ObjectNode", "sklearn.ensemble.RandomForestClassifier", content=mapping()
    ),
    "the private name of a class": node(
        "ObjectNode", "nearfar.discriminant.lda.LDA", content=mapping()
    ),
    "a type": node("TypeNode", "os.system"),
    "a type that takes memory": node("TypeNode", "numpy.ndarray"),
    "a list that is none": node("ListNode", "subprocess.Popen", content=[value("ls")]),
    "a tuple that is none": node("TupleNode", "subprocess.Popen", content=[value("ls")]),
    "a dict that is none": {**mapping(), "__class__": "OrderedDict", "__module__": "collections"},
    "an array that is none": {
        **node("NdArrayNode", "os.system", type="numpy", file="0.npy"),
    },
    "random numbers that are none": node("RandomStateNode", "os.system", content=mapping()),
    "a dtype that is none": node("DTypeNode", "os.system", content=value(1)),
}


@pytest.mark.parametrize("name", [*HARM, *OTHER_TYPES])
def test_only_listed_kinds_and_types_load(name, path, monkeypatch):
    monkeypatch.chdir(path.parent)
    child = {**HARM, **OTHER_TYPES}[name]
    kind = f"{child['__module__']}.{child['__class__']}"
    what = "which is not on nearfar's list" if name in HARM else "is not on nearfar's list of types"
    edit_schema(path, lambda schema: set_key(schema["content"], "more", child))
    refuses(path, f"'{kind}'.*{what}")
    edit_schema(path, lambda schema: attributes(schema).update(ties=items("ListNode", child)))
    refuses(path, f"'{kind}'.*{what}")
    assert not Path("canary").exists()


def test_root_must_be_a_model(path):
    original = read_members(path)["schema.json"]
    versions = {"protocol": 2, "_skops_version": "0.16.0"}
    for root in (value(1), items("ListNode"), node("FunctionNode", "os.system"), mapping()):
        edit_schema(path, lambda _, root=root: {**root, **versions})
        refuses(path, "does not contain a model")
    for root in (b"[]", b"3", b"null", b'"a"', b"{}", b"", b"\xff\xfe", b"NaN"):
        edit(path, "schema.json", lambda _, root=root: root)
        refuses(path, r"schema\.json")
    for key, wrong in (("protocol", 0), ("protocol", "2"), ("_skops_version", 3)):
        edit(path, "schema.json", lambda _: original)
        edit_schema(path, lambda schema, key=key, wrong=wrong: schema.update({key: wrong}))
        refuses(path, "the protocol must be")


WRONG_FORMS = {
    "no node": (3, "expected a node, got"),
    "a list": ([value(1)], "expected a node, got"),
    "no kind": ({"__class__": "a", "__module__": "b"}, "the node has no kind or type"),
    "a kind that is none": (node(["ObjectNode"], "a.b"), "the node has no kind or type"),
    "more keys": ({**value(1), "__id__": 3}, "has unexpected keys"),
    "fewer keys": (node("ListNode", "builtins.list"), "has unexpected keys"),
    "content that is none": (
        node("ListNode", "builtins.list", content="ab"),
        "must be a list; got 'ab'",
    ),
    "a tuple of numbers": (node("TupleNode", "builtins.tuple", content=3), "must be a list; got 3"),
    "a value that is no text": (
        node("JsonNode", "builtins.str", content=[1], is_json=True),
        "is not a scalar",
    ),
    "a value with parts": (value({"a": 1}), "is not a scalar"),
    "a value with lists": (value([[1]]), "is not a scalar"),
    "no JSON": (node("JsonNode", "builtins.str", content="{", is_json=True), "JSONDecodeError"),
    "is_json that is none": (
        node("JsonNode", "builtins.str", content="1", is_json=1),
        "is not a scalar",
    ),
    "a huge integer": (
        node("JsonNode", "builtins.str", content="9" * 10_000, is_json=True),
        "ValueError",
    ),
    "nested text": (
        node("JsonNode", "builtins.str", content="[" * 100_000, is_json=True),
        "RecursionError",
    ),
    "a dict of lists": (
        node("DictNode", "builtins.dict", content=[], key_types=items("ListNode")),
        "keys and key types of a dict do not match",
    ),
    "too few keys": (
        node("DictNode", "builtins.dict", content={"a": value(1)}, key_types=items("ListNode")),
        "keys and key types of a dict do not match",
    ),
    "keys of no type": (
        node(
            "DictNode", "builtins.dict", content={"a": value(1)}, key_types=items("ListNode", "int")
        ),
        "cannot be the key of a dict",
    ),
    "keys that are called": (
        node(
            "DictNode",
            "builtins.dict",
            content={"a": value(1)},
            key_types=items("ListNode", node("TypeNode", "builtins.float")),
        ),
        "keys must be",
    ),
    "a slice of text": (
        node("SliceNode", "builtins.slice", content={"start": "a", "stop": 1, "step": 1}),
        "is not a slice",
    ),
    "half a slice": (node("SliceNode", "builtins.slice", content={"start": 1}), "is not a slice"),
    "attributes in a list": (
        node("ObjectNode", "nearfar.LDA", content=items("ListNode")),
        "attributes must be a dict",
    ),
    "attributes that are none": (
        node("ObjectNode", "nearfar.LDA", content=3),
        "attributes must be a dict",
    ),
    "a call with a dict": (
        node("ConstructorFromReduceNode", "nearfar.NeighborGraph", content=mapping()),
        "a ConstructorFromReduceNode must be a TupleNode",
    ),
    "attributes by number": (
        node(
            "ObjectNode",
            "nearfar.LDA",
            content=node(
                "DictNode",
                "builtins.dict",
                content={"1": value(1)},
                key_types=items("ListNode", node("TypeNode", "builtins.int")),
            ),
        ),
        "keys must be builtins.str",
    ),
    "an array of no type": (
        node("NdArrayNode", "numpy.ndarray", type="pickle", content=[], shape=items("TupleNode")),
        "invalid content, shape or type 'pickle'",
    ),
    "an array without shape": (
        node("NdArrayNode", "numpy.ndarray", type="json", content=[], shape=value(1)),
        "does not have a valid shape",
    ),
    "an array of arrays": (
        node(
            "NdArrayNode",
            "numpy.ndarray",
            type="json",
            content=[node("NdArrayNode", "numpy.ndarray", type="numpy", file="999.npy")],
            shape=items("TupleNode", value(1), value(2)),
        ),
        "an array must not contain {",
    ),
    "an array of models": (
        node(
            "NdArrayNode",
            "numpy.ndarray",
            type="json",
            content=[node("ObjectNode", "nearfar.LDA", content=mapping())],
            shape=items("TupleNode", value(1)),
        ),
        "an array must not contain {",
    ),
    "a file that is none": (
        node("NdArrayNode", "numpy.ndarray", type="numpy", file=["999.npy"]),
        "is missing, or it is used twice",
    ),
    "a file elsewhere": (
        node("NdArrayNode", "numpy.ndarray", type="numpy", file="../999.npy"),
        "is missing, or it is used twice",
    ),
    "a file as an array": (
        node("NdArrayNode", "numpy.ndarray", type="numpy", file="schema.json"),
        "is missing, or it is used twice",
    ),
    "an array twice": (
        items(
            "ListNode",
            node("NdArrayNode", "numpy.ndarray", type="numpy", file="999.npy"),
            node("NdArrayNode", "numpy.ndarray", type="numpy", file="999.npy"),
        ),
        "is missing, or it is used twice",
    ),
    "a number of a shape": (
        node("NdArrayNode", "numpy.float64", type="numpy", file="999.npy"),
        "a NumPy scalar must not have the shape",
    ),
    "an object as a number": (
        node("NdArrayNode", "numpy.float64", type="json", content=[], shape=items("TupleNode")),
        "does not have a valid shape",
    ),
    "a dtype of a number": (
        node("DTypeNode", "numpy.dtype", content=3),
        "a DTypeNode must be a NdArrayNode; got 3",
    ),
    "attributes that are a number": (
        node("ObjectNode", "nearfar.LDA", content=value(3)),
        "attributes must be a dict",
    ),
    "keys in a dict": (
        node("DictNode", "builtins.dict", content={}, key_types={"content": {}}),
        "keys and key types of a dict do not match",
    ),
    "keys that are values": (
        node(
            "DictNode",
            "builtins.dict",
            content={"a": value(1)},
            key_types=items("ListNode", value("text")),
        ),
        "cannot be the key of a dict",
    ),
    "an array of letters": (
        node("NdArrayNode", "numpy.ndarray", type="json", content="a", shape=items("TupleNode")),
        "invalid content, shape or type",
    ),
    "an array with a number for shape": (
        node("NdArrayNode", "numpy.ndarray", type="json", content=[], shape=3),
        "invalid content, shape or type",
    ),
    "a dtype of nothing": (
        node("DTypeNode", "numpy.dtype", content=value(1)),
        "a DTypeNode must be a NdArrayNode",
    ),
    "random numbers of nothing": (
        node("RandomStateNode", "numpy.random.RandomState", content=value(1)),
        "a RandomStateNode must be a DictNode",
    ),
}


@pytest.mark.parametrize("name", WRONG_FORMS)
def test_wrong_forms_in_the_schema_are_refused(name, path):
    child, message = WRONG_FORMS[name]
    write_members(path, {**read_members(path), "999.npy": npy()})
    edit_schema(path, lambda schema: attributes(schema).update(ties=child))
    refuses(path, message)


def test_names_out_of_a_file_reach_no_terminal(path):
    hidden = "\x1b[2Jgone"
    edit_schema(path, lambda schema: set_key(schema["content"], hidden, node("A\x1bNode", hidden)))
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert str(caught.value).isprintable()
    edit_schema(path, lambda schema: set_key(schema["content"], hidden, value(1)))
    edit_schema(path, lambda schema: attributes(schema).update(ties=value(hidden)))
    with pytest.raises(ModelFileError, match="ties must be") as caught:
        load(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(("depth", "loads"), [(12, True), (16, False)])
def test_chains_in_chains_come_back_up_to_a_depth(depth, loads, tmp_path):
    model = LDA()
    for _ in range(depth):
        model = Pipeline([("inner", model)])
    if loads:
        again = round_trip(model.fit(X, Y), tmp_path)
        for _ in range(depth):
            again, model = again[0], model[0]
        assert identical(again.transform(X), model.transform(X))
    else:
        with pytest.raises(ModelFileError, match="more than 64 levels"):
            save(model, tmp_path / "model.nf")


def test_deep_and_large_documents_are_refused_before_they_are_read(path):
    members = read_members(path)
    for name in ("nearfar.json", "schema.json"):
        for deep in (b"[" * 100_000, b'{"content":' * 50_000):
            write_members(path, {**members, name: deep})
            refuses(path, f"{name} is nested too deeply")
        write_members(path, {**members, name: members[name] + b" " * 2**25})
        refuses(path, f"{name} is compressed, or larger than")
    write_members(path, members, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelFileError, match=r"nearfar\.json is compressed, or larger than"):
        describe(path)


def test_depth_is_known_before_skops_recurses(path):
    child = value(1)
    for _ in range(300):
        child = items("ListNode", child)
    edit_schema(path, lambda schema: attributes(schema).update(ties=child))
    refuses(path, "more than 64 levels")


def test_number_of_parts_is_known_before_skops_begins(path, monkeypatch):
    for place in (archive, schema):
        monkeypatch.setattr(place, "MAX_NODES", 1000)
    edit_schema(
        path, lambda schema: attributes(schema).update(ties=items("ListNode", *[value(1)] * 999))
    )
    refuses(path, "or 1000 nodes")
    many = items("ListNode", *[items("ListNode")] * 5000)
    edit_schema(path, lambda schema: attributes(schema).update(ties=many))
    refuses(path, r"schema\.json has more than 4000 brackets")


def test_arrays_that_no_part_uses_are_refused(path):
    members = read_members(path)
    write_members(path, {**members, "999.npy": members["0.npy"]})
    refuses(path, r"999\.npy is not used by any component")


def npy(descr="'<f8'", shape="(2,)", data=bytes(16), order="False", version=b"\1\0", tail=", }"):
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}{tail}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    length = struct.pack("<H" if version == b"\1\0" else "<L", len(header))
    return b"\x93NUMPY" + version + length + header + data


ARRAYS = {
    "nothing": (b"", "is not an array"),
    "text": (b"hello", "is not an array"),
    "a pickle": (pickle.dumps([1, 2]), "is not an array"),
    "an archive": (b"PK\3\4" + bytes(100), "is not an array"),
    "objects": (npy("'|O'", "(1,)", pickle.dumps([1])), "is not an array"),
    "a record": (npy("[('a', '<f8')]"), "is not an array"),
    "a record of objects": (npy("[('a', '|O')]"), "is not an array"),
    "a void": (npy("'|V8'"), "is not an array"),
    "complex numbers": (npy("'<c16'", "(1,)"), "is not an array"),
    "dates": (npy("'<M8[s]'"), "is not an array"),
    "a call": (npy("__import__('os').system('touch canary')"), "is not an array"),
    "signs": (npy("'<f8'", "-" * 5000 + "1"), "is not an array"),
    "brackets": (npy("'<f8'", "(" * 5000), "is not an array"),
    "a negative shape": (npy(shape="(-1,)"), "is not an array"),
    "a huge number": (npy(shape=f"({'9' * 4000},)"), "is not an array"),
    "more keys": (npy(tail=", 'more': 1, }"), "is not an array"),
    "another version": (npy(version=b"\2\0"), "is not an array"),
    "no such version": (npy(version=b"\7\0"), "is not an array"),
    "cut short": (npy()[:30], "is not an array"),
    "wide floats": (npy("'<f16'", "(1,)"), "items of the unsupported type f16"),
    "wide integers": (npy("'<i3'", "(1,)", bytes(3)), "items of the unsupported type i3"),
    "a terabyte": (npy(shape="(999999999999,)"), "does not match"),
    "a product beyond integers": (npy(shape="(4294967296, 4294967296, 2)"), "does not match"),
    "a long text": (npy("'<U999999999'", "(1,)"), "does not match"),
    "one byte less": (npy(data=bytes(15)), "does not match"),
    "one byte more": (npy(data=bytes(17)), "does not match"),
    "empty but long": (
        npy(shape="(1000000000, 0)", data=b""),
        "the empty array has an invalid shape",
    ),
    "empty but wide": (npy("'<U999999999'", "(0,)", b""), "the empty array has an invalid shape"),
    "empty items": (npy("'<U0'", "(1000000000,)", b""), "the empty array has an invalid shape"),
    "booleans that are none": (npy("'|b1'", "(2,)", b"\1\2"), "invalid booleans or characters"),
    "letters that are none": (
        npy("'<U1'", "(1,)", b"\xff\xff\xff\xff"),
        "invalid booleans or characters",
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_wrong_arrays_are_refused(name, path, monkeypatch):
    monkeypatch.chdir(path.parent)
    data, message = ARRAYS[name]
    child = node("NdArrayNode", "numpy.ndarray", type="numpy", file="999.npy")
    write_members(path, {**read_members(path), "999.npy": data})
    edit_schema(path, lambda schema: attributes(schema).update(ties=child))
    refuses(path, rf"999\.npy.*{message}")
    assert not Path("canary").exists()


def test_a_plain_array_in_the_same_place_is_read(path):
    # The valid case from which those above differ.
    write_members(path, {**read_members(path), "999.npy": npy()})
    child = node("NdArrayNode", "numpy.ndarray", type="numpy", file="999.npy")
    edit_schema(path, lambda schema: set_key(schema["content"], "more", child))
    assert load(path).more.tolist() == [0, 0]


# ---------------------------------------------------------------------- inconsistent models


def stored(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def child_of(entry, key):
    """Return the list or dict that contains a child of a node, and its key."""
    if entry["__loader__"] in ("ObjectNode", "ConstructorFromReduceNode"):
        entry = entry["content"]
    if entry["__loader__"] == "RandomStateNode":
        return entry, "content"
    if entry["__loader__"] == "DictNode":
        set_key(entry, key, entry["content"].get(key, value(None)))
        return entry["content"], key
    return entry["content"], int(key)


def replace(path, place, new):
    """Put an array, a node or a plain value at a place such as ``estimator_.components_``."""
    members = read_members(path)
    schema = json.loads(members["schema.json"])
    entry = schema
    *way, last = place.split(".")
    for step in way:
        holder, key = child_of(entry, step)
        entry = holder[key]
    holder, key = child_of(entry, last)
    if isinstance(new, np.ndarray):
        members["999.npy"] = stored(new)
        new = node("NdArrayNode", "numpy.ndarray", type="numpy", file="999.npy")
    holder[key] = new if isinstance(new, dict) else value(new)
    members["schema.json"] = json.dumps(schema).encode()
    unused = [name for name in members if f'"{name}"' not in json.dumps(schema)]
    for name in unused:
        if name.endswith(".npy"):
            members.pop(name)
    write_members(path, members)


NONSENSE = [
    ("_points", "text", "_points must be a table of numbers"),
    ("_points", np.zeros(5), "_points must be a table of numbers"),
    ("_points", np.zeros((len(X), 2), dtype=int), "_points must be a table of numbers"),
    ("_points", np.zeros((len(X), 3)), "_points must be a table of numbers"),
    ("_points", np.zeros((7, 2)), "_points must be a table of numbers"),
    ("_codes", np.zeros(7, dtype=int), "_points must be a table of numbers"),
    ("_codes", np.zeros(len(X)), "_codes must be integers"),
    ("_codes", np.full(len(X), 10**12), "_codes must be integers"),
    ("_codes", np.full(len(X), -1), "_codes must be integers"),
    ("_codes", None, "_codes must be integers"),
    ("classes_", "abc", "classes_ must be labels"),
    ("classes_", np.zeros((3, 3)), "classes_ must be labels"),
    ("classes_", np.zeros(2), "_codes must be integers"),
    ("n_neighbors", 10**9, "n_neighbors=1000000000 is larger than the number of training points"),
    ("n_neighbors", "3", "n_neighbors must be"),
    ("n_neighbors", True, "n_neighbors must be"),
    ("ties", "other", "ties must be"),
    ("estimator", "text", "estimator must be"),
    ("estimator_", "text", "estimator_ must be a learner that gives q features"),
    ("n_features_in_", 10**12, "n_features_in_ must be a nonnegative integer"),
    ("n_features_in_", "4", "n_features_in_ must be a nonnegative integer"),
    ("n_features_in_", -1, "n_features_in_ must be a nonnegative integer"),
    ("predict", "text", r"must not hide \['predict'\]"),
    ("parameters", None, r"must not hide \['parameters'\]"),
    ("estimator_.learner_tags", "text", r"must not hide \['learner_tags'\]"),
    ("estimator_.components_", "text", "components_ must be numbers"),
    ("estimator_.components_", np.zeros((2, 9)), "components_ must be numbers"),
    ("estimator_.components_", np.zeros(4), "components_ must be numbers"),
    ("estimator_.components_", np.zeros((2, 4), dtype=int), "components_ must be numbers"),
    ("estimator_.mean_", np.zeros(3), "mean_ must be numbers"),
    ("estimator_.mean_", None, "mean_ must be numbers"),
    ("estimator_._dtype", "float", "_dtype must be float32 or float64"),
    ("estimator_._learned", "components_", "fitted attributes are missing"),
    ("estimator_._learned", ["components_", "mean_", "more_"], "fitted attributes are missing"),
    ("estimator_.n_features_in_", 5, "components_ must be numbers"),
    ("estimator_.statistics_", "text", "statistics_ must be ClassStatistics"),
    ("estimator_.statistics_._shifts", np.zeros((3, 5)), "_firsts must be numbers"),
    ("estimator_.statistics_._shifts", "text", "_shifts must be numbers"),
    ("estimator_.statistics_._shifts", np.zeros((3, 4), dtype=int), "_shifts must be numbers"),
    ("estimator_.statistics_._firsts", np.zeros((3, 5)), "_firsts must be numbers"),
    ("estimator_.statistics_._counts", np.zeros(3), "_counts must be integers"),
    ("estimator_.statistics_._weights", np.zeros(4), "_weights must be numbers"),
    ("estimator_.statistics_._origin", "text", "_origin must be numbers"),
    ("estimator_.statistics_._labels", "abc", "_labels must be a list of c"),
    ("estimator_.statistics_._labels", [1, 2], "_shifts must be numbers"),
    ("estimator_.statistics_._seconds", None, "_seconds must be a list of scatters"),
    ("estimator_.statistics_._seconds", [], "expected one scatter per class"),
    ("estimator_.statistics_._seconds", [1], "_seconds must be a list of scatters"),
    ("estimator_.statistics_.storage", "disk", "storage must be 'auto' or 'dense'"),
    ("estimator_.statistics_.pooled", "yes", "pooled must be True or False"),
    ("estimator_.statistics_._precision", "x", "_precision must be a number from 0"),
    ("estimator_.statistics_._seconds.0.dense", np.zeros((2, 2)), "dense must be None or numbers"),
    ("estimator_.statistics_._seconds.0.n_features", 9, "dense must be None or numbers"),
]


@pytest.mark.parametrize(("place", "new", "message"), NONSENSE)
def test_models_without_sense_are_refused(place, new, message, path):
    replace(path, place, new)
    refuses(path, message)


def test_more_models_without_sense_are_refused(path):
    save(LDA().partial_fit(X, Y), path, force=True)
    replace(path, "n_features_in_", 5)
    refuses(path, "statistics_ do not match")
    save(KNNClassifier().fit(X, Y), path, force=True)
    replace(path, "n_features_in_", 5)
    refuses(path, "_points must be a table of numbers")
    save(KNNClassifier().fit(X, Y), path, force=True)
    edit_schema(path, lambda schema: drop_key(schema["content"], "estimator_"))
    refuses(path, "estimator_ must be a learner.* missing")


N = len(X)
FAMILY = {
    "energy": lambda: EnergyClassifier(LMNN(n_components=2, tol=1e-3)).fit(X, Y),
    "cells": lambda: MultiMetricLMNN(LMNN(tol=1e-3), validation_fraction=0).fit(X, Y),
    "groups": lambda: MultiMetricLMNN(partition="kmeans", n_regions=2, patience=1).fit(X, Y),
    "passes": lambda: MultiPassLMNN(n_passes=2).fit(X, Y),
    "kernel": lambda: KernelLMNN(n_directions=5, estimator=LMNN(tol=1e-3)).fit(X, Y),
    "voting": lambda: KNNClassifier(KernelLMNN(n_directions=5)).fit(X, Y),
    "given": lambda: KernelLMNN("precomputed", n_directions=4).fit(X @ X.T, Y),
    "scores": lambda: MinimumMahalanobisClassifier(LDA()).fit(X, Y),
    "clusters": lambda: MODA(n_clusters=2).fit(X, Y),
    "landmarks": lambda: KernelDA(n_landmarks=20).fit(X, Y),
}
FAMILY_NONSENSE = {
    "energy": [
        ("_points", np.zeros(N), "_points must be a table of numbers"),
        ("_points", np.zeros((N - 1, 2)), "_order must be integers"),
        ("_points", np.zeros((N, 3)), "_points must be a table of numbers"),
        ("_points", np.zeros((0, 2)), "_points must be a table of numbers"),
        ("_center", np.zeros(3), "_center must be numbers"),
        ("_center", None, "_center must be numbers"),
        ("_order", np.full(N, N), "_order must be integers"),
        ("_order", np.arange(N) - 1, "_order must be integers"),
        ("_order", np.arange(N, dtype=float), "_order must be integers"),
        ("_order", np.zeros(N, dtype=int), "_order contains duplicate points"),
        ("_edges", np.array([0, 20, N]), "_edges does not match the number of classes"),
        ("_edges", np.array([0, 20, 20, N]), "_edges must increase from 0"),
        ("_edges", np.array([0, 40, 20, N]), "_edges must increase from 0"),
        ("_edges", np.array([0, 20, 40, 10**9]), "_edges must increase from 0"),
        ("_edges", np.array([-5, 20, 40, N]), "_edges must be integers"),
        ("_edges", np.array([0.0, 20, 40, N]), "_edges must be integers"),
        ("classes_", np.zeros(2), "_edges does not match the number of classes"),
        ("classes_", None, "classes_ must be labels"),
        ("target_neighbors_", np.full((N, 3), N), "target_neighbors_ must be integers"),
        ("target_neighbors_", np.full((N, 3), -2), "target_neighbors_ must be integers"),
        ("target_neighbors_", np.zeros((N, 2), dtype=int), "_reach must be numbers"),
        ("target_neighbors_", np.zeros((N, 3)), "target_neighbors_ must be integers"),
        ("_reach", np.zeros((N, 2)), "_reach must be numbers"),
        ("_reach", np.zeros((N, 3), dtype=int), "_reach must be numbers"),
        ("n_neighbors_", 10**9, "n_neighbors_ must be a count"),
        ("n_neighbors_", 0, "n_neighbors_ must be a count"),
        ("n_neighbors_", 2.5, "n_neighbors_ must be a count"),
        ("push_weight_", 1.5, "push_weight_ must be"),
        ("push_weight_", "half", "push_weight_ must be"),
        ("push_weight", 2.0, "push_weight must be"),
        ("estimator_", "text", "estimator_ must be a learner that gives q features"),
        ("estimator_", None, "_points must be a table of numbers"),
        ("estimator_.components_", np.zeros((3, 4)), "_points must be a table of numbers"),
        ("energies", 1, r"must not hide \['energies'\]"),
    ],
    "cells": [
        ("_rows", np.zeros((N, 3)), "_rows must be a table of numbers"),
        ("_rows", np.zeros((N - 1, 4)), "_rows must be a table of numbers"),
        ("components_", np.zeros((4, 4)), "components_ must be numbers"),
        ("components_", np.zeros((3, 4, 5)), "components_ must be numbers"),
        ("components_", np.zeros((1, 4, 4)), "regions_ must be integers"),
        ("components_", np.zeros((4, 4, 4)), "regions without a centroid"),
        ("mean_", np.zeros(3), "mean_ must be numbers"),
        ("_codes", np.full(N, 3), "_codes must be integers"),
        ("_codes", np.full(N, -1), "_codes must be integers"),
        ("regions_", np.full(N, 3), "regions_ must be integers"),
        ("regions_", np.full(N, -1), "regions_ must be integers"),
        ("_targets", np.full((N, 3), N), "_targets must be integers"),
        ("_targets", None, "_targets must be integers"),
        ("_centroids", np.zeros((2, 4)), "_centroids must be None or numbers"),
        ("estimator_", None, "estimator_ must be LMNN"),
        ("estimator_.push_weight", "x", "push_weight must be"),
        ("rule", "vote", "rule must be"),
    ],
    "groups": [
        ("_centroids", None, "regions without a centroid"),
        ("_centroids", np.zeros((2, 3)), "_centroids must be None or numbers"),
        ("_centroids", np.zeros((9, 4)), "_centroids must be None or numbers"),
    ],
    "passes": [
        ("passes_", [1, 2], "passes_ must be a list of passes"),
        ("passes_", [], "n_passes_ must be the count passes"),
        ("n_passes_", 3, "n_passes_ must be the count passes"),
        ("components_", np.zeros((4, 3)), "components_ must be numbers"),
        ("push_weight", 0.5, r"must not hide \['push_weight'\]"),
    ],
    "kernel": [
        ("kernel", None, "kernel must be"),
        ("kernel", "precomputed", "_rows must be set unless the kernel is precomputed"),
        ("_basis", np.zeros(N), "_basis must be numbers"),
        ("_basis", np.zeros((N - 1, 5)), "_rows must be None or a table of numbers"),
        ("_basis", np.zeros((N, 4)), "estimator_ must be LMNN"),
        ("_rows", np.zeros((N, 3)), "_rows must be None or a table of numbers"),
        ("_rows", None, "_rows must be set unless the kernel is precomputed"),
        ("_gamma", "x", "_gamma must be None or a number above 0"),
        ("_gamma", -1.0, "_gamma must be None or a number above 0"),
        ("_gamma", None, "_gamma must be set unless the kernel is precomputed"),
        ("_means", np.zeros(3), "_means must be numbers"),
        ("_mean", None, "_mean must be a number"),
        ("coefficients_", np.zeros((5, 3)), "coefficients_ must be numbers"),
        ("coefficients_", np.zeros((4, N)), "estimator_ must be LMNN"),
        ("estimator_", None, "estimator_ must be LMNN"),
        ("estimator_.components_", np.zeros((5, 9)), "components_ must be numbers"),
    ],
    "voting": [("_points", np.zeros((N, 3)), "_points must be a table of numbers")],
    "given": [
        ("_rows", np.zeros((N, 4)), "_rows must be None or a table of numbers"),
        ("kernel", "rbf", "_rows must be set unless the kernel is precomputed"),
    ],
    "scores": [
        ("means_", np.zeros((2, 2)), "means_ must be numbers"),
        ("means_", np.zeros((3, 3)), "means_ must be numbers"),
        ("classes_", None, "classes_ must be labels"),
        ("_factors", np.zeros((3, 3, 2)), "_factors must be numbers"),
        ("_factors", None, "_factors must be numbers"),
        ("_log_dets", np.zeros(2), "_log_dets must be numbers"),
        ("_log_priors", np.zeros(2), "_log_priors must be numbers"),
        ("estimator_", None, "means_ must be numbers"),
        ("estimator_.components_", np.zeros((3, 4)), "means_ must be numbers"),
        ("rule", "vote", "rule must be"),
    ],
    "clusters": [
        ("_owners", np.zeros((6, 1), dtype=int), "_owners must be labels"),
        ("_owners", np.zeros(5, dtype=int), "every cluster in statistics_ must have a class"),
        ("_owners", None, "_owners must be labels"),
    ],
    "landmarks": [
        ("_rows", np.zeros((19, 4)), "_rows must be None or a table of numbers"),
        ("coefficients_", np.zeros((2, 3)), "coefficients_ must be numbers"),
        ("ridge", -1.0, "ridge must be"),
    ],
}


@pytest.mark.by_turns(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILY)
def test_large_margin_models_without_sense_are_refused(name, tmp_path):
    sound = tmp_path / "sound.nf"
    save(FAMILY[name](), sound)
    path = tmp_path / "model.nf"
    for place, new, message in FAMILY_NONSENSE[name]:
        path.write_bytes(sound.read_bytes())
        replace(path, place, new)
        refuses(path, message)


@pytest.mark.parametrize(
    ("place", "new", "message"),
    [
        ("rows.0", np.zeros((9, 3)), "rows must be numbers"),
        ("roots.0", np.zeros(3), "roots must be numbers"),
        ("slots.0", np.zeros(9), "slots must be integers"),
        ("slots.0", np.full(9, 5), "rows without a class"),
        ("slots.0", np.full(9, -1), "slots must be integers"),
        ("rows", [], "zip"),
    ],
)
def test_kept_rows_without_sense_are_refused(place, new, message, path):
    rows = np.random.default_rng(0).normal(size=(9, 20))
    save(LDA().fit(rows, [0, 1, 2] * 3), path, force=True)
    replace(path, f"statistics_._seconds.0.{place}", new)
    refuses(path, message)


def words_path(folder, **options):
    path = folder / "words.nf"
    words = np.array([["a"], ["b"], ["c"], ["c"]], dtype=object)
    save(OneHotEncoder(**options).fit(words), path)
    return path


@pytest.mark.parametrize(
    ("options", "place", "new", "message"),
    [
        ({}, "_n_features_outs", [1], "must range from 0 to _n_features_outs - 1"),
        ({}, "_n_features_outs", ["3"], "category numbers must be integers"),
        ({}, "_n_features_outs", [10**12], "must range from 0 to _n_features_outs - 1"),
        ({}, "_n_features_outs", [-1], "must range from 0 to _n_features_outs - 1"),
        ({}, "_n_features_outs", [3, 3], "must have one entry per feature"),
        ({}, "_n_features_outs", "3", "categories_ and _n_features_outs must be lists"),
        ({}, "n_features_in_", 3, "categories_ must have one entry per feature"),
        ({}, "categories_.0", np.zeros((3, 3)), "must contain one-dimensional arrays"),
        ({}, "categories_.0", np.array([3, 2, 1]), "categories_ must be in ascending order"),
        (
            {},
            "categories_.0",
            np.array([1.0, np.nan, 2.0]),
            "categories_ must be in ascending order",
        ),
        ({}, "categories_.0", np.array(["b", "a", "c"]), "categories_ must be in ascending order"),
        ({}, "categories_.0", np.arange(4), "must range from 0 to _n_features_outs - 1"),
        (
            {},
            "_drop_idx_after_grouping",
            np.array([-5]),
            "must range from 0 to _n_features_outs - 1",
        ),
        (
            {},
            "_drop_idx_after_grouping",
            [1, 1],
            "_drop_idx_after_grouping must be None or an array",
        ),
        (
            {"drop": "first"},
            "_drop_idx_after_grouping",
            None,
            "must range from 0 to _n_features_outs - 1",
        ),
        ({}, "_infrequent_enabled", True, "_infrequent_indices must be a list"),
        (
            {"min_frequency": 2},
            "_infrequent_enabled",
            0,
            "_infrequent_enabled must be True or False",
        ),
        ({}, "categories_.0", np.zeros(0), "must range from 0 to _n_features_outs - 1"),
        ({}, "categories_.0", "abc", "must contain one-dimensional arrays"),
        (
            {},
            "_drop_idx_after_grouping",
            ["a"],
            "_drop_idx_after_grouping must be None or an array",
        ),
        (
            {"min_frequency": 2},
            "_default_to_infrequent_mappings.0",
            np.array([0.0, 1.0, np.nan]),
            "category numbers must be integers",
        ),
        (
            {"min_frequency": 2},
            "_infrequent_enabled",
            False,
            "must range from 0 to _n_features_outs - 1",
        ),
        (
            {"min_frequency": 2},
            "_default_to_infrequent_mappings.0",
            np.array([0, 1, 10**6]),
            "must range from 0 to _n_features_outs - 1",
        ),
        ({"min_frequency": 2}, "_infrequent_indices.0", np.array([10**6]), "IndexError"),
    ],
)
def test_encoders_that_would_write_beyond_their_memory_are_refused(
    options, place, new, message, tmp_path
):
    path = words_path(tmp_path, **options)
    replace(path, place, new)
    refuses(path, message)


def test_parts_that_reach_beyond_the_model_are_refused(tmp_path):
    path = tmp_path / "model.nf"
    for place, new, message in [
        ("memory", "//elsewhere/share", "cannot name a cache folder"),
        ("steps", "text", "steps must be a list"),
        ("steps", ["ab"], "steps must contain tuples"),
        ("steps", items("ListNode", items("TupleNode", value("a"))), "steps must contain tuples"),
        (
            "steps",
            items("ListNode", items("TupleNode", value(1), value(2))),
            "steps must contain tuples",
        ),
        (
            "steps",
            items("ListNode", items("ListNode", value("a"), value(2))),
            "steps must contain tuples",
        ),
    ]:
        save(Pipeline([("a", StandardScaler())]).fit(X), path, force=True)
        replace(path, place, new)
        refuses(path, message)
    for jobs in (10**6, "2", True):
        save(LMNN(), path, force=True)
        replace(path, "n_jobs", jobs)
        refuses(path, "n_jobs must be")
    save(FunctionTransformer(), path, force=True)
    replace(path, "func", node("TypeNode", "numpy.float64"))
    refuses(path, "must not have func")


@pytest.mark.parametrize("place", [-1, 625, 10**8])
def test_random_states_that_would_read_beyond_their_memory_are_refused(place, tmp_path):
    path = tmp_path / "model.nf"
    save(LMNN(random_state=np.random.RandomState(0)), path)

    replace(path, "random_state.content.state.pos", place)
    refuses(path, "state of a RandomState is invalid")


@pytest.mark.parametrize(
    ("held", "name", "new", "message"),
    [
        (Pairs([[0, 1]], [[1, 2]], n_samples=3), "similar", np.array([[0, 9]]), "similar"),
        (Triplets([[0, 1, 2]], n_samples=3), "indices", np.array([[0, 1, 9]]), "indices"),
        (Chunklets([0, 0, -1]), "n_samples", 9, "n_samples does not match"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_summaries_without_sense_are_refused(held, name, new, message, tmp_path):
    path = tmp_path / "model.nf"
    save(Mine(held), path, trusted=[Mine])
    replace(path, f"held.{name}", new)
    refuses(path, message, trusted=[Mine])


@pytest.mark.parametrize("called", [True, False])
def test_graphs_without_sense_are_refused(called, tmp_path):
    # The form depends on the version of skops.
    path = tmp_path / "model.nf"
    save(Mine([np.array([0, 1, 2]), np.array([10**6, 10**6]), np.ones(2)]), path, trusted=[Mine])

    def change(schema):
        held = attributes(schema)["held"]["content"]
        if called:
            arguments = items("TupleNode", *held, value(True))
            child = node("ConstructorFromReduceNode", "nearfar.NeighborGraph", content=arguments)
        else:
            names = ("indptr", "indices", "distances")
            fields = mapping(**dict(zip(names, held, strict=True)), is_exact=value(True))
            child = node("ObjectNode", "nearfar.NeighborGraph", content=fields)
        attributes(schema)["held"] = child

    edit_schema(path, change)
    refuses(path, "indices", trusted=[Mine])


# ---------------------------------------------------------------------- fuzz


def spots(entry, way=()):
    """Yield the path of every value in a JSON document."""
    children = entry.items() if isinstance(entry, dict) else enumerate(entry)
    for key, child in children:
        yield (*way, key)
        if isinstance(child, dict | list):
            yield from spots(child, (*way, key))


WRONG = [
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    "",
    "x",
    "../0.npy",
    "0.npy",
    "1.npy",
    [],
    [1],
    {},
    {"a": 1},
]


def mutated(members, rng):
    members = dict(members)
    arrays = [name for name in members if name.endswith(".npy")]
    if arrays and rng.random() < 0.25:
        name = rng.choice(arrays)
        data = bytearray(members[name])
        for _ in range(rng.randrange(1, 4)):
            # Most mutations are in the header.
            data[rng.randrange(min(len(data), 128))] = rng.randrange(256)
        members[name] = bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        return members
    name = "nearfar.json" if rng.random() < 0.1 else "schema.json"
    document = json.loads(members[name])
    for _ in range(rng.randrange(1, 3)):
        *way, last = rng.choice(list(spots(document)))
        entry = document
        for key in way:
            entry = entry[key]
        if rng.random() < 0.3:
            del entry[last]
        elif rng.random() < 0.3:
            other = document
            for key in rng.choice(list(spots(document))):
                other = other[key]
            entry[last] = json.loads(json.dumps(other))
        else:
            entry[last] = rng.choice(WRONG)
    members[name] = json.dumps(document).encode()
    return members


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(6))
def test_mutated_files_raise_one_kind_of_error_or_load(seed, tmp_path):
    path = tmp_path / "model.nf"
    words = np.array([["a"], ["b"]] * 5, dtype=object)
    few = LMNN(n_neighbors=1, tol=1e-2)
    models = [
        KNNClassifier(LDA(), n_neighbors=2).fit(X[:9, :2], [0, 1, 2] * 3),
        Pipeline([("scale", StandardScaler()), ("rca", RCA())]).fit(X[:, :2], Y),
        ColumnTransformer([("a", OneHotEncoder(sparse_output=False), [0])]).fit(words),
        EnergyClassifier(LDA(), n_neighbors=2).fit(X[:9, :2], [0, 1, 2] * 3),
        KNNClassifier(KernelLMNN(estimator=few), n_neighbors=2).fit(X[::5, :2], Y[::5]),
        MultiMetricLMNN(few, rule="energy", patience=1).fit(X[::5, :2], Y[::5]),
    ]
    save(models[seed], path)
    members = read_members(path)
    rng = random.Random(seed)
    outcomes = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for _ in range(110):
            write_members(path, mutated(members, rng))
            outcomes.append(loaded_or_refused(path) is None)
    # Some mutations are harmless, but most are rejected.
    assert 0.5 < np.mean(outcomes) < 1


BOMBS = """
import io, json, resource, struct, sys, zipfile
from nearfar.persistence import ModelFileError, describe, load
import skops.io

folder = sys.argv[1]
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
members = {}
with zipfile.ZipFile(folder + "/model.nf") as archive:
    members = {name: archive.read(name) for name in archive.namelist()}
schema = json.loads(members["schema.json"])
attributes = schema["content"]["content"]

def node(loader, name, **fields):
    module, _, last = name.rpartition(".")
    return {"__class__": last, "__module__": module, "__loader__": loader, **fields}

def attempt(name, **changed):
    path = folder + "/bomb.nf"
    compression = changed.pop("compression", zipfile.ZIP_STORED)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for key, data in {**members, **changed.pop("files", {})}.items():
            archive.writestr(key, data)
    verdict(name, path)

def verdict(name, path):
    for reader in (describe, load):
        try:
            reader(path)
        except ModelFileError as error:
            print(name, "refused", str(error)[-60:])
        else:
            print(name, "read by", reader.__name__)

def items(children):
    return node("ListNode", "builtins.list", content=children)

def with_ties(child):
    attributes["ties"] = child
    return json.dumps(schema, separators=(",", ":")).encode()

deep = b"[" * 100_000 + b"]" * 100_000
attempt("deep", files={"schema.json": deep})
attempt("deep", files={"nearfar.json": b'{"a":' * 100_000})
nested = '{"content":' * 100_000 + "1" + "}" * 100_000
attempt("deep", files={"schema.json": nested.encode()})
attempt("compressed", files={"0.npy": bytes(2**25)}, compression=zipfile.ZIP_DEFLATED)
attempt("compressed", files={"nearfar.json": b" " * 2**25}, compression=zipfile.ZIP_DEFLATED)
attempt("compressed", files={"schema.json": b" " * 2**25}, compression=zipfile.ZIP_DEFLATED)
one = node("JsonNode", "builtins.str", content="1", is_json=True)
attempt("many", files={"schema.json": with_ties(items([one] * 20_000))})
attempt("many", files={"schema.json": with_ties(items([items([])] * 210_000))})
attempt("many", files={"schema.json": b"[" + b"[]," * 5_000_000 + b"[]]"})
attempt("many", files={"schema.json": b"[" + b"1.5," * 4_000_000 + b"1]"})
header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }"
header += b" " * (-(len(header) + 11) % 64) + b"\\n"
huge = b"\\x93NUMPY\\1\\0" + struct.pack("<H", len(header)) + header + bytes(80)
attempt("shape", files={"0.npy": huge})

# Many directory entries without content.
numbers = (20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0)
entry = struct.pack("<4s4B4HL2L5H2L", b"PK\\1\\2", *numbers)
entries = (entry + b"0.npy") * 400_000
with open(folder + "/bomb.nf", "wb") as file:
    start = b"PK\\3\\4" + bytes(26)
    file.write(start + entries)
    end = (0, 0, 65535, 65535, len(entries), len(start), 0)
    file.write(struct.pack("<4s4H2LH", b"PK\\5\\6", *end))
verdict("directory", folder + "/bomb.nf")
del entries
print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on memory")
def test_bombs_take_little_memory_and_crash_nothing(path):
    done = subprocess.run(
        [sys.executable, "-c", BOMBS, str(path.parent)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert not [line for line in lines if line.endswith("read by load")], lines
    assert len([line for line in lines if "refused" in line]) >= 12
    peak = int(lines[-1].removeprefix("peak "))
    assert peak < 500_000, lines  # kilobytes


if __name__ == "__main__":
    write_golden_files()
