"""Errors by group, and what a recommendation says of the groups it makes worse."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binomtest

from nearfar import LDA, compare
from nearfar.app.compare.by_group import errors_by_group, group_names, group_notes
from nearfar.app.compare.kinds.rows import RowKind
from nearfar.app.compare.question import Question

OPTIONS = {"repeats": 1, "isolate": False, "verbose": False, "context": False, "tuning": "k"}


def held_out(groups, before, after):
    """A document of rows of class 0, which are taken for 0 or 1 before and after."""
    n = len(groups)
    return {
        "format": 1,
        "methods": [
            {"name": "reference", "label": "Plain", "role": "reference", "results": [{"fold": 0}]},
            {"name": "lda", "label": "LDA", "role": "learner", "results": [{"fold": 0}]},
        ],
        "answer": {"verdict": "use", "method": "lda", "text": "Use LDA", "notes": []},
        "held_out": {
            "rows": list(range(n)),
            "true": [0] * n,
            "predicted": {"reference": list(before), "lda": list(after)},
            "neighbors": {},
            "labels": {},
        },
    }


def mixed():
    """A large group gains, one of 40 rows loses, and so does one of 10."""
    groups = ["north"] * 100 + ["south"] * 40 + ["tiny"] * 10
    before = [1] * 50 + [0] * 50 + [0] * 40 + [0] * 10
    after = [0] * 100 + [1] * 20 + [0] * 20 + [1] * 10
    return groups, before, after


def test_errors_by_group_are_those_of_the_rows_and_the_worst_comes_first():
    groups, before, after = mixed()
    found = errors_by_group(held_out(groups, before, after), "region", groups)
    by_name = {entry["group"]: entry for entry in found["groups"]}
    assert [entry["group"] for entry in found["groups"]] == ["tiny", "south", "north"]
    assert (
        by_name["south"] | {"reference": 0.0, "learner": 0.5, "gain": -0.5, "n": 40}
        == (by_name["south"])
    )
    assert by_name["north"]["gain"] == 0.5
    # Holm over the two groups of 20 rows or more; the smallest p twice.
    p = {name: binomtest(n, n).pvalue for name, n in (("north", 50), ("south", 20))}
    assert by_name["north"]["p_holm"] == pytest.approx(2 * p["north"])
    assert by_name["south"]["p_holm"] == pytest.approx(p["south"])
    assert by_name["north"]["clear"] == "better"
    assert by_name["south"]["clear"] == "worse"
    assert by_name["tiny"]["clear"] is None and by_name["tiny"]["p_holm"] is None


def test_most_errors_come_first_whatever_was_gained_and_a_clear_loss_is_never_cut_off():
    # Of a hundred bad groups that nothing changes, and one that is made clearly worse.
    groups = [f"bad {k:03}" for k in range(100) for _ in range(2)] + ["worse"] * 40
    before = [1] * 200 + [0] * 40
    after = [1] * 200 + [1] * 20 + [0] * 20
    found = errors_by_group(held_out(groups, before, after), "region", groups)
    assert [entry["group"] for entry in found["groups"][:2]] == ["bad 000", "bad 001"]
    assert found["groups"][-1]["group"] == "worse" and found["more"] == 1
    assert len(group_notes(found, "LDA", "row")) == 1


def test_only_a_group_that_is_clearly_worse_is_spoken_of():
    groups, before, after = mixed()
    found = errors_by_group(held_out(groups, before, after), "region", groups)
    (note,) = group_notes(found, "LDA", "row")
    assert note.startswith(
        "LDA is clearly worse where region is 'south': 50.0% error vs 0.0% on 40 rows"
    )
    assert "adjusted p < 0.001" in note and "over 2 groups)" in note
    # Five of forty rows could be chance, and so could as many lost as won.
    few = [0] * 100 + [1] * 5 + [0] * 45
    assert not group_notes(
        errors_by_group(held_out(groups, before, few), "r", groups), "LDA", "row"
    )
    even = [1] * 50 + [0] * 50 + [0] * 50
    assert not group_notes(errors_by_group(held_out(groups, even, even), "r", groups), "LDA", "row")


def test_rows_without_a_prediction_count_for_nothing():
    groups, before, after = mixed()
    after[:30] = [None] * 30
    found = errors_by_group(held_out(groups, before, after), "region", groups)
    assert {entry["group"]: entry["n"] for entry in found["groups"]}["north"] == 70


def table(n=400, seed=0):
    """Two classes that LDA tells apart but in one site, where they are exchanged.

    That site lies apart, which the standard distance sees and LDA does away.
    """
    pandas = pytest.importorskip("pandas")
    random = np.random.default_rng(seed)
    y = np.arange(n) // 10 % 2
    site = np.where(np.arange(n) % 10 < 9, "big", "odd")
    signal = 2.0 * np.where(site == "big", y, 1 - y) + 0.1 * random.normal(size=n)
    noise = random.normal(size=(n, 40)) * np.where(site == "big", 3.0, 0.1)[:, None]
    frame = pandas.DataFrame({"signal": signal, "place": 30.0 * (site == "odd")})
    for i in range(40):
        frame[f"noise {i}"] = noise[:, i]
    return frame.assign(site=site), y


def test_a_column_that_is_reported_by_is_no_feature():
    frame, y = table()
    result = compare(frame, y, methods={"lda": LDA()}, report_by="site", **OPTIONS)
    data, found = result.document["data"], result.document["by_group"]
    assert "site" not in data["features"]
    assert ["site", "errors are reported by it"] in data["dropped"]
    assert {entry["group"]: entry["n"] for entry in found["groups"]} == {"big": 360, "odd": 40}
    again = compare(
        frame.drop(columns="site"), y, methods={"lda": LDA()}, report_by=frame["site"], **OPTIONS
    )
    assert again.document["by_group"] == found
    assert again.document["methods"][0]["error"] == result.document["methods"][0]["error"]


def test_a_recommendation_that_harms_a_group_says_so_and_no_other_does():
    frame, y = table()
    result = compare(frame, y, methods={"lda": LDA()}, report_by="site", **OPTIONS)
    answer = result.document["answer"]
    assert answer["verdict"] == "use"
    worse = [e for e in result.document["by_group"]["groups"] if e["clear"] == "worse"]
    assert [e["group"] for e in worse] == ["odd"]
    assert "clearly worse where site is 'odd'" in answer["notes"][0]
    # Groups that have nothing to do with it.
    even = np.arange(len(y)) // 2 % 3
    other = compare(
        frame.drop(columns="site"), y, methods={"lda": LDA()}, report_by=even, **OPTIONS
    )
    assert other.document["answer"]["verdict"] == "use"
    assert not [note for note in other.document["answer"]["notes"] if "clearly worse" in note]
    assert len(other.document["by_group"]["groups"]) == 3


def test_without_it_there_is_nothing_by_group():
    frame, y = table(80)
    document = compare(frame, y, methods={"lda": LDA()}, **OPTIONS).document
    assert document["by_group"] is None and "site" in document["data"]["features"]


def test_many_numbers_are_cut_at_their_quartiles_and_few_are_not():
    assert set(group_names([1, 2, 3] * 10)) == {"1", "2", "3"}
    cut = group_names(list(np.arange(40.0)) + [np.nan])
    assert {name: cut.count(name) for name in cut[:40]} == dict.fromkeys(
        ("below 9.75", "9.75 to 19.5", "19.5 to 29.25", "29.25 or more"), 10
    )
    assert cut[-1] == "(missing)"


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("sit", r"no such column. Did you mean 'site'\?"),
        ([1, 2, 3], r"a value for each of 80 rows; got shape \(3,\)"),
    ],
)
def test_what_cannot_be_reported_by_is_refused(by, words):
    frame, y = table(80)
    with pytest.raises(ValueError, match=words):
        compare(frame, y, methods={"lda": LDA()}, report_by=by, **OPTIONS)


def test_without_labels_there_are_no_errors_to_report():
    frame, _ = table(80)
    with pytest.raises(ValueError, match="report_by needs labels"):
        compare(frame, report_by="site", **OPTIONS | {"tuning": None})


@pytest.mark.parametrize(("verdict", "said"), [("use", 1), ("inconclusive", 0), ("keep", 0)])
def test_only_a_recommendation_speaks_of_the_groups_it_harms(verdict, said):
    groups, before, after = mixed()
    document = held_out(groups, before, after)
    document["answer"]["verdict"] = verdict
    kind = RowKind(Question(np.ones((4, 2)), [0, 1, 0, 1]))
    kind.reported = ("region", np.array(groups, dtype=object), False)
    kind.problem = SimpleNamespace(noun="row")
    found = document | kind._by_group(document)
    assert len(found["answer"]["notes"]) == said
    assert [entry["group"] for entry in found["by_group"]["groups"]] == ["tiny", "south", "north"]
