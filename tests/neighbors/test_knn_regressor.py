"""KNNRegressor, alone and after a learner."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from nearfar import LDA, MLKR, PCA, RCA, Chunklets, KNNRegressor, all_estimators, load, save
from nearfar.base import LearnerTags, LinearLearner

X, Y = load_diabetes(return_X_y=True)
X, Y = X[:200], Y[:200]


class OfValues(LinearLearner):
    """Projection onto the covariance of the target values with X."""

    learner_tags = LearnerTags(reads="instances", supervision=("values",))
    parameters = {}

    def fit(self, X, y):
        rows = self._check_X(X, reset=True)
        values = self._check_values(y, len(rows))
        self.components_ = ((values - values.mean()) @ (rows - rows.mean(axis=0)))[None]
        return self


def test_values_are_those_of_scikit_learn():
    ours = KNNRegressor().fit(X[:150], Y[:150])
    theirs = KNeighborsRegressor(5).fit(X[:150], Y[:150])
    np.testing.assert_allclose(ours.predict(X[150:]), theirs.predict(X[150:]), rtol=1e-12)
    assert ours.score(X[150:], Y[150:]) == pytest.approx(theirs.score(X[150:], Y[150:]))
    for mine, other in zip(ours.kneighbors(X[150:], 3), theirs.kneighbors(X[150:], 3), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-12)


def test_y_is_handed_on_to_the_learner():
    model = KNNRegressor(OfValues(), n_neighbors=7).fit(X[:150], Y[:150])
    learner = OfValues().fit(X[:150], Y[:150])
    alone = KNNRegressor(n_neighbors=7).fit(learner.transform(X[:150]), Y[:150])
    np.testing.assert_array_equal(model.predict(X[150:]), alone.predict(learner.transform(X[150:])))
    np.testing.assert_array_equal(model.estimator_.components_, learner.components_)


def test_supervision_goes_to_the_learner():
    groups = Chunklets.from_groups([[0, 1, 2], [5, 6, 7, 8]], n_samples=150)
    model = KNNRegressor(RCA(shrinkage=0.5)).fit(X[:150], Y[:150], supervision=groups)
    learner = RCA(shrinkage=0.5).fit(X[:150], supervision=groups)
    np.testing.assert_array_equal(model.estimator_.components_, learner.components_)
    with pytest.raises(ValueError, match="to estimator, but estimator is None"):
        KNNRegressor().fit(X, Y, supervision=groups)


def test_it_goes_where_regressors_go():
    pipeline = make_pipeline(StandardScaler(), KNNRegressor(PCA()))
    assert cross_val_score(pipeline, X, Y, cv=3, error_score="raise").mean() > 0.1
    search = GridSearchCV(
        KNNRegressor(), {"estimator": [None, OfValues()], "n_neighbors": [3, 9]}, cv=2
    ).fit(X, Y)
    assert search.best_params_["n_neighbors"] == 9
    assert "KNNRegressor" in all_estimators(role="regressor")


@pytest.mark.parametrize("estimator", [None, PCA(3)], ids=["alone", "after PCA"])
def test_model_files_and_pickles_keep_it(estimator, tmp_path):
    model = KNNRegressor(estimator, 4).fit(X, Y)
    save(model, tmp_path / "m.nf")
    for twin in (load(tmp_path / "m.nf"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(twin.predict(X), model.predict(X))


def test_values_of_any_kind_of_number_are_taken():
    wanted = KNNRegressor().fit(X, Y).predict(X)
    for y in (
        Y.tolist(),
        pd.Series(Y, dtype="Float64"),
        pd.Series(Y.astype(int), dtype="Int64"),
        Y.astype(int),
        Y.astype(object),
    ):
        np.testing.assert_allclose(KNNRegressor().fit(X, y).predict(X), wanted)
    flags = KNNRegressor(1).set_params(estimator=None, n_neighbors=1).fit(X, Y > 100)
    assert set(flags.predict(X)) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed, but the target y is None. Pass numbers as y"),
        (Y[:-1], r"X has 200 rows and y has 199 values"),
        (np.full(200, "red"), "y must contain numbers to predict .*'red' is not a number"),
        (["red", *Y[1:]], "y must contain numbers to predict .*'red'"),
        ([None, *Y[1:]], r"y contains NaN or a missing value \(row 0\)"),
        (pd.Series([1.0, None, *Y[2:]], dtype="Float64"), r"missing value \(row 1\)"),
        (np.append(Y[1:], np.nan), r"y contains NaN \(row 199\); every row needs a number"),
        (np.append(Y[1:], -np.inf), r"y contains infinity \(row 199\)"),
        (np.column_stack([Y, Y]), r"y should be a 1d array; got shape \(200, 2\)"),
        (pd.to_datetime(pd.Series(np.arange(200))), "y must contain numbers to predict"),
    ],
)
def test_values_that_are_none_raise(y, message):
    with pytest.raises(ValueError, match=message):
        KNNRegressor().fit(X, y)


def test_other_bad_input_raises():
    with pytest.raises(ValueError, match="n_neighbors=5 is larger than the number"):
        KNNRegressor().fit(X[:4], Y[:4])
    with pytest.raises(ValueError, match="y is continuous"):  # The learner needs labels.
        KNNRegressor(LDA()).fit(X, Y + 0.5)
    with pytest.raises(ValueError, match="must be from 1 to 200, the number of training points"):
        KNNRegressor().fit(X, Y).kneighbors(X, 201)


def test_after_mlkr_it_sees_the_direction_that_matters():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(240, 6)) * [1, 4, 4, 4, 4, 4]
    values = np.sin(2 * rows[:, 0])
    train, test = slice(0, 160), slice(160, None)
    plain = KNNRegressor().fit(rows[train], values[train]).score(rows[test], values[test])
    learned = KNNRegressor(MLKR(n_components=1)).fit(rows[train], values[train])
    assert learned.score(rows[test], values[test]) > 0.9 > 0.5 > plain
