"""Folds of a table of numbers do without the step that would change nothing."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from nearfar import LDA, compare
from nearfar.app.compare.fold_rows import FoldRows
from nearfar.app.tables.columns import choose_columns

FRAME, KIND = load_wine(return_X_y=True, as_frame=True)
SOME = np.arange(0, 150, 3)


def of(frame):
    columns = choose_columns(frame)
    found = FoldRows()
    found.X, found.prepare = columns.select(frame), columns.preprocessor()
    return found


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_complete_numbers_are_what_the_step_would_make_of_them(dtype):
    found = of(FRAME.astype(dtype)[FRAME.columns[::-1]])
    assert found.first_step == "passthrough"
    made, wanted = found.inputs(SOME), found.prepare.fit_transform(found.rows(SOME))
    assert made.dtype == wanted.dtype == dtype
    np.testing.assert_array_equal(made, wanted)
    # The same sums in the same order, too.
    assert made.strides == wanted.strides and made.flags.writeable
    made[:] = 0
    assert (found.X.to_numpy() != 0).any()


def with_a_hole():
    frame = FRAME.copy()
    frame.iloc[170, 2] = np.nan
    return frame


@pytest.mark.parametrize(
    "frame",
    [with_a_hole(), FRAME.assign(colour=np.where(KIND == 1, "red", "white"))],
    ids=["a hole in another row", "a category"],
)
def test_all_else_is_prepared_in_each_fold(frame):
    found = of(frame)
    assert found.first_step is found.prepare
    assert isinstance(found.inputs(SOME), pd.DataFrame)


def test_the_numbers_are_those_of_folds_with_the_step_and_models_have_it(monkeypatch):
    options = {"repeats": 1, "context": False, "isolate": False, "verbose": False}
    options |= {"cv": 3, "tuning": "holdout", "methods": {"lda": LDA()}}
    without = compare(FRAME, KIND, **options)
    monkeypatch.setattr(FoldRows, "_is_prepared", False)
    with_it = compare(FRAME, KIND, **options)
    for one, other in zip(without.document["methods"], with_it.document["methods"], strict=True):
        for key in ("error", "inner_error", "setting", "k"):
            assert [r[key] for r in one["results"]] == [r[key] for r in other["results"]]
    for part in ("held_out", "weights"):
        assert without.document[part] == with_it.document[part]
    model = without.fit(FRAME, KIND)
    assert model.predict(with_a_hole())[170] == 2
