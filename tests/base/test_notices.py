"""Warnings point at the line of the user, through whatever called the learner on his behalf."""

import inspect
import re
import warnings
from pathlib import Path

import pytest
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import nearfar
from nearfar import LMNN, MGMKLD, MVU, KernelLMNN, KNNClassifier, MultiMetricLMNN, MultiPassLMNN

X, Y = load_wine(return_X_y=True)
HASTY = LMNN(max_iter=1)
SCALED = StandardScaler().fit_transform(X)
LIMITS = {"estimator__max_iter": [1, 2]}


@pytest.mark.parametrize(
    "fit",
    [
        lambda: HASTY.fit(X, Y),
        lambda: HASTY.fit_transform(X, Y),
        lambda: make_pipeline(StandardScaler(), HASTY).fit(X, Y),
        lambda: KNNClassifier(HASTY).fit(X, Y),
        lambda: KernelLMNN(estimator=HASTY).fit(SCALED, Y),
        lambda: MultiMetricLMNN(estimator=HASTY).fit(X, Y),
        lambda: MultiPassLMNN(estimator=HASTY, n_passes=2).fit(X, Y),
        lambda: cross_val_score(KNNClassifier(HASTY), X, Y, cv=3),
        lambda: cross_val_score(make_pipeline(StandardScaler(), KNNClassifier(HASTY)), X, Y, cv=3),
        lambda: GridSearchCV(KNNClassifier(HASTY), LIMITS, cv=2).fit(X, Y),
        lambda: MGMKLD(max_iter=1, n_init=1).fit(SCALED, Y),
        lambda: MVU(max_iter=1).fit(SCALED[::4]),
    ],
)
def test_a_fit_that_did_not_converge_is_told_at_the_line_of_the_user(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    places = {
        (Path(one.filename).name, one.lineno)
        for one in caught
        if issubclass(one.category, ConvergenceWarning)
    }
    assert places == {(Path(__file__).name, inspect.getsourcelines(fit)[1])}


def test_nothing_warns_past_the_notices():
    folder = Path(nearfar.__file__).parent
    found = [
        path.name
        for path in folder.rglob("*.py")
        if re.search(r"warnings\.warn\(", path.read_text(encoding="utf-8"))
    ]
    assert found == ["notices.py"]
