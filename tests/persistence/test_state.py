"""State declarations: fitted models satisfy them, and changed attributes are rejected.

The tests are generated from the declarations, so that new classes are covered automatically.
"""

import copy
import json
import warnings
import zipfile
from functools import cache

import numpy as np
import pytest
from sklearn.datasets import load_iris

from nearfar import LDA, LMNN, KNNClassifier, NeighborGraph, Pairs, all_estimators
from nearfar.persistence import load, save
from nearfar.persistence.model import count_training_rows, walk_components
from nearfar.persistence.types import get_listed_types
from nearfar.state import (
    State,
    check_state,
    check_that,
    choice,
    count_stored_rows,
    flag,
    floats,
    get_state,
    indices,
    integer_value,
    labels,
    list_of,
    none_or,
    number,
    object_of,
    optional,
    strings,
    table,
    text,
    unsigned,
)

NAMES = list(all_estimators())
X, Y = load_iris(return_X_y=True)
X, Y = X[::3], np.array(["setosa", "versicolor", "virginica"])[Y[::3]]


@cache
def fitted(name):
    kind = all_estimators()[name]
    rows, labels = X, Y
    if kind.learner_tags.input == "sets":
        rng = np.random.default_rng(0)
        rows = [rng.normal(k % 2, size=(6, 3)) for k in range(20)]
        labels = np.array(["a", "b"] * 10)
    elif kind.learner_tags.input == "tensors":
        rows = X.reshape(-1, 2, 2)
    elif kind.learner_tags.input == "pairs":
        rows, labels = Pairs.from_labels(
            Y, n_similar=20, n_dissimilar=20, random_state=0
        ).to_arrays(X)
    if kind.learner_tags.supervision == ("values",):
        labels = X[:, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind().fit(rows, labels)


def renamings(kind, what):
    merged = {}
    for base in reversed(kind.__mro__):
        merged |= vars(base).get(what, {})
    return merged


# ---------------------------------------------------------------------- declarations


@pytest.mark.parametrize("name", NAMES)
def test_every_estimator_learns_what_it_says(name):
    check_state(all_estimators()[name]())
    model = fitted(name)
    state = get_state(type(model))
    assert state.fitted in vars(model)
    assert len(state.conditions) > 1, "an estimator says more than how many features it has seen"
    assert check_state(model)["p"] == model.n_features_in_


@pytest.mark.parametrize("name", NAMES)
def test_estimators_that_keep_rows_say_how_many(name):
    model = fitted(name)
    own = count_stored_rows(model)
    if model.learner_tags.reads == "instances":
        assert own is not None
    parts = list(walk_components(model, get_listed_types(), name))
    held = count_training_rows(parts)
    assert all(0 < n <= len(X) for n in held.values())
    # A table with one row per training row must be declared as training rows.
    arrays = [value for _, value in parts if isinstance(value, np.ndarray) and value.ndim > 1]
    if any(array.dtype.kind == "f" and array.shape == X.shape for array in arrays):
        assert max(held.values(), default=0) == len(X)


def wrong_values(value):
    """Yield values with another type, shape or range than the given value."""
    if isinstance(value, np.ndarray):
        yield "text"
        yield value[..., None]
        if value.dtype.kind in "iu" and value.size:
            yield value.astype(float)
        if value.dtype.kind == "i":
            yield np.full_like(value, 10**6)
            yield np.full_like(value, -(10**6))
        if value.dtype.kind == "f":
            yield np.zeros(value.shape, dtype=int)
            yield value.astype(complex)
    elif isinstance(value, str):
        yield from (3, "no such text")
    elif value is not None:
        yield from ("text", -7, [None])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_as_a_class_says_is_refused(name):
    model = fitted(name)
    for attribute, condition in get_state(type(model)).conditions.items():
        if attribute not in vars(model):
            continue
        for wrong in wrong_values(vars(model)[attribute]):
            spoilt = copy.copy(model)
            spoilt.__dict__[attribute] = wrong
            with pytest.raises(ValueError, match=r"must|do not|not |without|twice|more than"):
                check_state(spoilt)
        if condition.is_required and attribute != get_state(type(model)).fitted:
            spoilt = copy.copy(model)
            del spoilt.__dict__[attribute]
            with pytest.raises(ValueError, match=f"{attribute} must be .*; it is missing"):
                check_state(spoilt)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_do_not_agree_are_refused(name):
    model = fitted(name)
    held = vars(model)
    conditions = get_state(type(model)).conditions
    arrays = {key: held[key] for key in conditions if isinstance(held.get(key), np.ndarray)}
    refused = set()
    for key, array in arrays.items():
        spoilt = copy.copy(model)
        spoilt.__dict__[key] = np.pad(array, 1, mode="edge")
        try:
            check_state(spoilt)
        except ValueError:
            refused.add(key)
    # Classes, words and targets have independent lengths.
    assert {key for key in arrays if arrays[key].ndim > 1} <= refused


@pytest.mark.parametrize(
    ("word", "good", "bad"),
    [
        (floats("p", 2), np.zeros((4, 2)), [np.zeros((3, 2)), np.zeros((4, 3)), np.zeros(4), None]),
        (floats("p", above=0), np.ones(4), [np.zeros(4), np.full(4, np.nan)]),
        (table("n", "p"), np.zeros((1, 4)), [np.zeros((0, 4)), np.zeros((1, 3))]),
        (indices("p", below="c"), np.full(4, 2), [np.full(4, 3), np.full(4, -1), np.zeros(4)]),
        (indices("p", low=-1), np.full(4, -1), [np.full(4, -2)]),
        (unsigned("p"), np.zeros(4, dtype=np.uint64), [np.zeros(4, dtype=int)]),
        (labels("c"), np.array(["a", "b", "c"]), [np.zeros(0), ["a", "b", "c"], np.zeros((3, 1))]),
        (strings("c"), np.array(["a", "b", "c"]), [np.zeros(3), np.array(["a"])]),
        (integer_value("p"), 4, [3, 4.0, True, np.int64(4), 2**40]),
        (integer_value(low=1, max_size="p"), 4, [0, 5, "4"]),
        (number(0, 1), 0.5, [-0.5, 1.5, np.nan, 1, "0.5", None]),
        (number(0, open_low=True), 1e9, [0.0, np.inf]),
        (choice("a", "b"), "a", ["c", None, ["a"]]),
        (text, "a", [3, None]),
        (flag, True, [1, None, "yes"]),
        (list_of(text, "c"), ["a", "b", "c"], [["a"], ("a", "b", "c"), ["a", "b", 3]]),
        (none_or(integer_value("p")), None, [3]),
        (optional(integer_value("p")), 4, [None]),
        (object_of(LMNN), LMNN(), [LDA(), None, LMNN]),
        (object_of(NeighborGraph, n="c"), NeighborGraph([0, 1, 2, 2], [1, 0], [1.0, 1.0]), [None]),
    ],
)
def test_words_take_what_they_say_and_nothing_else(word, good, bad):
    assert word.fits(good, {"p": 4, "c": 3})
    for value in bad:
        assert not word.fits(value, {"p": 4, "c": 3})
    assert word.description


def test_the_state_of_a_part_must_agree_with_that_of_the_whole():
    graph = NeighborGraph([0, 1, 2, 2], [1, 0], [1.0, 1.0])
    assert not object_of(NeighborGraph, n="p").fits(graph, {"p": 4})
    # A size that a part does not have cannot match.
    assert not object_of(LMNN, q="q").fits(LMNN(), {"q": 4})


class Thing:
    state = State({"a": floats("n"), "b": optional(floats("n"))}, fitted="a", rows="a")

    def __init__(self, **held):
        vars(self).update(held)

    def _check_state(self, sizes):
        check_that(sizes["n"] != 7, "the size must not be seven.")


class Larger(Thing):
    state = State({"c": integer_value(max_size="n")}, fit_conditions={"kernel": text})


def test_subclasses_say_what_comes_on_top():
    assert list(get_state(Larger).conditions) == ["a", "b", "c"]
    assert get_state(Larger).fitted == get_state(Larger).rows == "a"
    assert check_state(Larger(kernel="rbf", a=np.zeros(3), c=3)) == {"n": 3}
    assert check_state(Larger(kernel="rbf", c="nothing was learned")) == {}
    assert (count_stored_rows(Larger()), count_stored_rows(Larger(a=np.zeros(3)))) == (0, 3)
    for held, message in [
        ({"a": np.zeros(3), "c": 1}, "kernel must be text; it is missing"),
        ({"kernel": max}, "kernel must be text; found builtin_function_or_method"),
        ({"kernel": "a", "a": np.zeros(3), "c": 4}, "c must be .* where n = 3; found 4"),
        ({"kernel": "a", "a": np.zeros(3), "b": np.zeros(2), "c": 1}, r"b must be .*shape \(2,\)"),
        ({"kernel": "a", "a": np.zeros(7), "c": 1}, "the size must not be seven"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_state(Larger(**held))
    assert get_state(int) is None
    assert check_state(3) == {}


# ---------------------------------------------------------------------- older files


def rewrite(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["schema.json"] = change(members["schema.json"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize("name", [n for n in NAMES if renamings(all_estimators()[n], "renamed")])
def test_parameters_and_attributes_of_older_files_are_renamed(name, tmp_path):
    model, path = fitted(name), tmp_path / "model.nf"
    save(model, path)

    def aged(data):
        schema = json.loads(data)
        held = schema["content"]["content"]
        for old, new in renamings(type(model), "renamed").items():
            if new in held:
                held[old] = held.pop(new)
        return json.dumps(schema).encode()

    rewrite(path, aged)
    again = load(path)
    assert sorted(vars(again)) == sorted(vars(model))
    assert again.get_params() == model.get_params()


@pytest.mark.parametrize(
    "name", [n for n in NAMES if renamings(all_estimators()[n], "renamed_values")]
)
def test_choices_of_older_files_are_renamed(name, tmp_path):
    kind, path = all_estimators()[name], tmp_path / "model.nf"
    for parameter, values in renamings(kind, "renamed_values").items():
        for old, new in values.items():
            save(kind(**{parameter: new}), path, force=True)
            rewrite(path, lambda data, a=new, b=old: data.replace(inside(a), inside(b)))
            again = load(path)
            assert getattr(again, parameter) == new
            again._check_parameters()


def inside(value):
    return json.dumps({"content": json.dumps(value)}, separators=(",", ":"))[1:-1].encode()


def test_classes_of_older_files_are_found_by_their_former_names(tmp_path, monkeypatch):
    monkeypatch.setattr(
        LDA, "former_names", ("Fisher", "nearfar.old_room.FisherMap"), raising=False
    )
    model, path = KNNClassifier(LDA()).fit(X, Y), tmp_path / "model.nf"
    new = b'"__class__":"LDA","__module__":"nearfar"'
    for module, name in [("nearfar", "Fisher"), ("nearfar.old_room", "FisherMap")]:
        save(model, path, force=True)
        old = f'"__class__":"{name}","__module__":"{module}"'.encode()
        rewrite(path, lambda data, old=old: data.replace(new, old))
        again = load(path)
        assert type(again.estimator_) is LDA
        assert again.predict(X).tolist() == model.predict(X).tolist()
    save(LDA().fit(X, Y), path, force=True)
    rewrite(path, lambda data: data.replace(b'"__class__":"LDA"', b'"__class__":"Fisher"'))
    assert type(load(path)) is LDA
