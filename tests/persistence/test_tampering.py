"""Tampered models: loading rejects them, or their use raises an error with a clear message."""

import copy
import json
import warnings
import zipfile
import zlib
from functools import cache

import numpy as np
import pandas as pd
import pytest
from quick import quick
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)

from nearfar import (
    LDA,
    EigenEmbedding,
    KNNClassifier,
    LaplacianEigenmaps,
    Pairs,
    all_estimators,
    load,
    save,
)
from nearfar.persistence import ModelFileError
from nearfar.persistence.model import check_components, walk_components
from nearfar.persistence.types import get_listed_types

X, Y = load_iris(return_X_y=True)
X, Y = X[::3], np.array(["setosa", "versicolor", "virginica"])[Y[::3]]
TYPES = get_listed_types()
# Number of mutants per attribute in the default run. The slow tests try all of them.
FEW = 3


def data(name):
    tags = all_estimators()[name].learner_tags
    if tags.input == "sets":
        rng = np.random.default_rng(0)
        return [rng.normal(k % 2, size=(6, 3)) for k in range(20)], np.array(["a", "b"] * 10)
    if tags.input == "pairs":
        return Pairs.from_labels(Y, n_similar=20, n_dissimilar=20, random_state=0).to_arrays(X)
    labels = X[:, 0] if tags.supervision == ("values",) else Y
    return (X.reshape(-1, 2, 2) if tags.input == "tensors" else X), labels


def mutants(value):
    """Return values that a file may contain instead of the given one."""
    yield from (None, "text", True, 7, -1, 0.5, float("nan"), 10**30, [], ["a"], {}, (1, 2))
    yield from (LDA(), slice(0, 1), np.dtype("float64"), np.float32(2.0))
    yield from (np.zeros(0), np.zeros((1, 1)), np.array(3.0), np.array(["a"]))
    yield np.array([None, 1], dtype=object)
    if isinstance(value, np.ndarray):
        yield from (value[..., None], value.astype(str), value.ravel()[:-1], value.tolist())
        if value.dtype.kind in "fiu":
            yield from (value.astype(kind) for kind in (np.float16, np.int8, object, bool))
        if value.dtype.kind == "f":
            yield np.full_like(value, np.nan)
    elif isinstance(value, list):
        yield from (tuple(value), value + value, value[:-1], dict(enumerate(value)))
    elif isinstance(value, dict):
        yield list(value.items())
    elif isinstance(value, str):
        yield value + "x"
    elif isinstance(value, int):
        yield from (float(value), str(value), value + 1, np.int64(value))


def use(model, rows):
    few = rows[:5]
    for name in ("transform", "predict", "predict_proba", "kneighbors"):
        if hasattr(model, name):
            getattr(model, name)(few)
    for name in ("get_metric", "get_feature_names_out"):
        # A Pipeline may list feature names although its last step has none.
        if hasattr(model, name) and not isinstance(model, Pipeline):
            getattr(model, name)()


def tamper(model, rows, few=None, seed=0):
    """Return the number of mutants, the number that can be loaded, and those that fail unclearly.

    Each mutant has one changed attribute and passes through the same checks as a model that
    :func:`nearfar.load` has read.
    """
    rng = np.random.default_rng(seed)
    tried, loaded, failed = 0, 0, []
    for where, part in list(walk_components(model, TYPES, "model")):
        if type(part) not in TYPES.values():
            continue
        for attribute, value in list(vars(part).items()):
            wrong = list(mutants(value))
            for i in rng.permutation(len(wrong))[:few]:
                vars(part)[attribute] = wrong[i]
                tried += 1
                try:
                    check_components(list(walk_components(model, TYPES, "model")))
                except ModelFileError:
                    continue
                else:
                    loaded += 1
                    try:
                        use(copy.deepcopy(model), rows)
                    except (ValueError, MemoryError):
                        pass
                    except Exception as error:
                        failed.append((f"{where}.{attribute}", repr(wrong[i])[:60], repr(error)))
                finally:
                    vars(part)[attribute] = value
    return tried, loaded, failed


@cache
def fitted(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return quick(name).fit(*data(name))


@pytest.mark.by_turns(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(all_estimators()))
def test_what_was_tampered_with_is_refused_or_fails_in_words(name):
    # hash() of a string differs between processes.
    tried, _, failed = tamper(fitted(name), data(name)[0], FEW, seed=zlib.crc32(name.encode()))
    assert tried >= 2 * FEW and not failed


CHAINS = [
    make_pipeline(StandardScaler(), KNNClassifier(LDA())),
    make_pipeline(MinMaxScaler(), MaxAbsScaler(), RobustScaler(), Normalizer(), LDA()),
    make_pipeline(PCA(3, whiten=True), TruncatedSVD(2), LDA(1)),
    make_pipeline(SimpleImputer(add_indicator=True), LDA()),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.steps[0][0])
def test_parts_of_scikit_learn_that_were_tampered_with_are_refused_too(chain):
    rows = X.copy()
    if isinstance(chain[0], SimpleImputer):
        rows[::7, 1] = np.nan
    tried, _, failed = tamper(clone(chain).fit(rows, Y), rows, FEW)
    assert tried > 50 and not failed


COLUMNS = [
    make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
        (OneHotEncoder(handle_unknown="ignore", min_frequency=2, sparse_output=False), ["c"]),
        (OrdinalEncoder(), ["d"]),
    ),
    make_column_transformer(
        (OneHotEncoder(sparse_output=False, drop="first"), ["c", "d"]), remainder="passthrough"
    ),
]


@pytest.mark.by_turns(2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("columns", COLUMNS, ids=["pipeline", "remainder"])
def test_encoders_that_were_tampered_with_are_refused_too(columns):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(50, 2)), columns=["a", "b"])
    frame = frame.assign(c=rng.choice(["x", "y", "z"], 50), d=rng.choice(["u", "v"], 50))
    chain = make_pipeline(clone(columns), KNNClassifier(LDA())).fit(frame, Y)
    tried, _, failed = tamper(chain, frame, 2)
    assert tried > 100 and not failed


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(all_estimators()))
def test_whatever_was_tampered_with_is_refused_or_fails_in_words(name):
    assert not tamper(fitted(name), data(name)[0])[2]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "method", ["mds", "isomap", "spectral_clustering", "laplacian_eigenmaps", "lle"]
)
def test_a_method_that_goes_with_other_values_is_refused(method):
    model = EigenEmbedding(method=method).fit(X)
    for other in ("mds", "isomap", "spectral_clustering", "laplacian_eigenmaps", "lle"):
        model.method = other
        try:
            check_components(list(walk_components(model, TYPES, "model")))
        except ModelFileError:
            assert other != method
        else:
            model.transform(X[:5])


def test_a_width_that_is_none_is_refused(tmp_path):
    path = tmp_path / "a.nf"
    save(LaplacianEigenmaps().fit(X), path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    schema["content"]["content"]["width_"]["content"] = "null"
    members["schema.json"] = json.dumps(schema).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(ModelFileError, match="width_ must be a number above 0"):
        load(path)
