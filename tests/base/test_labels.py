"""Labels of unusual kinds: hashes above 2^63, larger numbers, dates."""

import datetime

import numpy as np
import pytest
from quick import quick

from nearfar import all_estimators
from nearfar.labels import encode_labels, encode_values, make_label_array
from nearfar.summaries.class_statistics import ClassStatistics

HASHES = np.array([5, 2**63 + 11, 2**64 - 3], dtype=np.uint64)
CODES = np.arange(60) % 3


def rows():
    return np.random.default_rng(0).normal(size=(60, 4)) + CODES[:, None]


def supervised():
    return [
        name
        for name, kind in all_estimators(input="vectors").items()
        if "labels" in kind.learner_tags.supervision
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", supervised())
def test_hashes_on_both_sides_of_two_to_the_63_are_labels(name):
    model = quick(name).fit(rows(), HASHES[CODES])
    if hasattr(model, "classes_"):
        assert model.classes_.dtype == np.uint64
        np.testing.assert_array_equal(model.classes_, HASHES)
    if hasattr(model, "predict"):
        predicted = model.predict(rows())
        assert predicted.dtype == np.uint64 and (predicted == HASHES[CODES]).mean() > 0.5


def test_statistics_keep_hashes_as_they_are():
    some = ClassStatistics().partial_fit(rows()[:2], HASHES[:2])
    more = ClassStatistics().partial_fit(rows()[:1], HASHES[2:])
    both = some.merge(more)
    assert both.classes.dtype == np.uint64 and both.classes.tolist() == HASHES.tolist()
    assert both.covariance(2**63 + 11).shape == (4, 4)


def test_python_numbers_take_the_kind_that_holds_them():
    given = np.array([5, 2**63 + 11, True], dtype=object)
    assert encode_labels(given)[0].dtype == np.uint64
    assert encode_labels(np.array([-5, 7], dtype=object))[0].dtype == np.int64
    assert make_label_array([]).size == 0 and make_label_array(["a"]).dtype.kind == "U"


@pytest.mark.parametrize("large", [[5, 2**64], [-1, 2**63], [-(2**63) - 1, 0]])
def test_numbers_beyond_64_bits_are_to_be_made_text(large):
    with pytest.raises(
        ValueError, match="do not fit into one 64-bit type.*Convert them to strings"
    ):
        encode_labels(np.array(large, dtype=object))


@pytest.mark.parametrize(
    "dates",
    [
        np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"),
        np.array([1, 2], dtype="timedelta64[s]"),
        [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)],
        [datetime.datetime(2020, 1, 1), datetime.datetime(2021, 1, 1)],
    ],
)
def test_dates_are_no_classes(dates):
    with pytest.raises(ValueError, match="contains dates, but labels must be classes"):
        encode_labels(dates)


def test_a_column_of_dates_is_no_class_either():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="contains dates"):
        encode_labels(pandas.Series(pandas.date_range("2020-01-01", periods=3, tz="UTC")))


def test_structured_and_ragged_labels_are_refused():
    with pytest.raises(ValueError, match=r"y is a structured array.*y\['f0'\]"):
        encode_labels(np.zeros(4, "i,i"))
    with pytest.raises(ValueError, match="y should be a 1d array"):
        encode_labels([[1], [1, 2]])
    with pytest.raises(ValueError, match="y must contain numbers"):
        encode_values(np.array([10**400, 1], dtype=object))
