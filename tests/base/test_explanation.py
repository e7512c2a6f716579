"""What made a label: numbers that add up, and sentences that are never false."""

import sys

import numpy as np
import pytest

from nearfar.base import LocalExplanation
from nearfar.base.relevance import (
    compute_relevance,
    find_leading_features,
    format_fraction,
    get_feature_names,
)


def make_explanation(relevance, votes="bbbba", label=None, *, overall=None, names=None, **options):
    """Return the explanation of rows whose neighbors have the letters of `votes` as labels."""
    relevance, k = np.atleast_2d(relevance), len(votes)
    q, p = relevance.shape
    return LocalExplanation(
        relevance=relevance,
        contributions=np.ones((q, k, p)) / p,
        neighbors=np.tile(np.arange(k), (q, 1)),
        distances=np.ones((q, k)),
        neighbor_labels=[list(votes)] * q,
        labels=[label or max(sorted(votes), key=votes.count)] * q,
        feature_names=names or [f"x{j}" for j in range(p)],
        overall=overall,
        **options,
    )


def test_the_sentence_of_the_guide():
    why = make_explanation(
        [[0.45, 0.04, 0.26, 0.25]] * 18,
        overall=[0.12, 0.5, 0.1, 0.28],
        names=["malic acid", "ash", "hue", "proline"],
    )
    assert why.sentence(17) == (
        "row 17 is 'b' by 4 of 5; malic acid and hue carry 71% of the metric here, against 22% "
        "over all rows"
    )
    assert why.sentence(17, "row 'A12'").startswith("row 'A12' is 'b' by 4 of 5; ")
    assert str(why).split("\n")[0] == why.sentence(0)
    assert str(why).endswith("\nand 8 more rows")


# ------------------------------------------------------------------ how the vote went


@pytest.mark.parametrize(
    ("votes", "label", "ties", "words"),
    [
        ("bbbbb", "b", "shrink", "'b' by 5 of 5"),
        ("b", "b", "shrink", "'b' by its nearest neighbor"),
        # A third of the votes wins where the others are divided: no majority is claimed.
        ("bbacde", "b", "shrink", "'b' by 2 of 6"),
        # After ties shrank k, those who decided are fewer.
        ("abba", "b", "shrink", "'b' by 2 of the nearest 3 (all 4 are tied)"),
        ("ababc", "a", "shrink", "'a' by 2 of the nearest 3 (all 5 are tied)"),
        ("ba", "b", "shrink", "'b' by its nearest neighbor (the nearest 2 are tied)"),
        ("bacd", "b", "shrink", "'b' by its nearest neighbor (the nearest 4 are tied)"),
        # By the order of labels nobody decided.
        ("abba", "a", "first", "'a' by 2 of 4, the first of 2 tied labels"),
        ("cab", "a", "first", "'a' by 1 of 3, the first of 3 tied labels"),
        ("abbab", "b", "first", "'b' by 3 of 5"),
    ],
)
def test_votes(votes, label, ties, words):
    why = make_explanation([0.9, 0.1], votes, label, ties=ties)
    assert why.sentence(0).startswith(f"row 0 is {words}; ")


def test_labels_that_did_not_win_are_refused():
    with pytest.raises(ValueError, match="row 0 has the label 'a', but its neighbors vote for 'b'"):
        make_explanation([0.5, 0.5], "bba", "a")
    with pytest.raises(ValueError, match="has the label 'a', but its neighbors vote for 'b'"):
        make_explanation([0.5, 0.5], "abba", "a")  # by the order of labels it would be


def test_labels_that_are_numbers_are_said_as_such():
    why = LocalExplanation(
        relevance=[[1.0, 0.0]],
        contributions=np.zeros((1, 1, 2)),
        neighbors=[[3]],
        distances=[[0.0]],
        neighbor_labels=np.array([[2]]),
        labels=np.array([2]),
        feature_names=["a", "b"],
    )
    assert why.sentence(0) == (
        "row 0 is 2 by its nearest neighbor; a carries 100% of the metric here"
    )
    assert why.by_class().keys() == {2}


# ------------------------------------------------------------------ which features


@pytest.mark.parametrize(
    ("shares", "overall", "words"),
    [
        ([0.9, 0.05, 0.05], None, "x0 carries 90% of the metric here"),
        ([0.5, 0.3, 0.2], None, "x0 carries 50% of the metric here"),
        ([0.4, 0.35, 0.25], None, "x0 and x1 carry 75% of the metric here"),
        # Who is as relevant as the last that is named is named too.
        ([0.4, 0.3, 0.3], None, "x0, x1 and x2 carry 100% of the metric here"),
        ([0.48, 0.26, 0.26 - 1e-13], None, "x0, x1 and x2 carry 100% of the metric here"),
        # To name some of many equal ones would single them out.
        (
            [0.2, 0.2, 0.2, 0.4 / 3, 0.4 / 3, 0.4 / 3],
            None,
            "x0, x1 and x2 carry 60% of the metric here",
        ),
        (
            [0.25, *[0.15] * 5],
            [1 / 6] * 6,
            "all 6 features contribute to the metric here, each at most 25%",
        ),
        ([0.5, 0.5, 0.0], None, "x0 and x1 carry 100% of the metric here"),
        ([1 / 3] * 3, None, "all 3 features count equally here"),
        ([1 / 3] * 3, [1 / 3] * 3, "all 3 features count equally here, as over all rows"),
        (
            [1 / 3] * 3,
            [0.6, 0.2, 0.2],
            "all 3 features count equally here; over all rows x0 carries 60%",
        ),
        ([1.0], None, "x0 is the only feature"),
        ([1.0], [1.0], "x0 is the only feature"),
        # The same here as everywhere is no contrast.
        ([0.7, 0.3], [0.701, 0.299], "x0 carries 70% of the metric here, as over all rows"),
        # Nearly all is not all, and little not nothing.
        (
            [0.9997, 0.0003],
            [0.001, 0.999],
            "x0 carries over 99% of the metric here, against under 1% over all rows",
        ),
        ([1.0, 0.0], [0.0, 1.0], "x0 carries 100% of the metric here, against 0% over all rows"),
    ],
)
def test_features(shares, overall, words):
    assert make_explanation(shares, overall=overall).sentence(0).partition("; ")[2] == words


def test_many_features_are_counted_not_named():
    shares = np.linspace(1.5, 0.5, 100)
    why = make_explanation(shares / shares.sum())
    assert why.sentence(0).endswith("x0, x1, x2 and 36 more carry 51% of the metric here")
    assert len(find_leading_features(why.relevance[0])) == 39


def test_one_metric_for_all_rows_is_not_held_against_itself():
    why = make_explanation([0.7, 0.3], overall=[0.7, 0.3], is_global=True)
    assert why.sentence(0).endswith("x0 carries 70% of the metric, which is the same for all rows")
    why = make_explanation([0.5, 0.5], overall=[0.5, 0.5], is_global=True)
    assert why.sentence(0).endswith("all 2 features count equally")


def test_names_that_would_be_read_as_several_are_quoted():
    why = make_explanation([0.4, 0.35, 0.25], names=["length, cm", "salt and pepper", "z"])
    assert "; 'length, cm' and 'salt and pepper' carry 75%" in why.sentence(0)
    why = make_explanation([0.9, 0.1], names=[" ", "z"])
    assert "; ' ' carries 90%" in why.sentence(0)


def test_shares_in_percent_are_whole_numbers_only_where_they_are():
    assert [format_fraction(s) for s in (0.0, 1e-15, 0.004, 0.994, 0.995, 1 - 1e-15)] == [
        *("0%", "0%", "under 1%", "99%", "over 99%", "100%")
    ]


# ------------------------------------------------------------------ numbers


def test_top_by_class_and_merged():
    relevance = np.array([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
    why = LocalExplanation(
        relevance=relevance,
        contributions=np.arange(9.0).reshape(3, 1, 3),
        neighbors=[[5], [6], [7]],
        distances=np.ones((3, 1)),
        neighbor_labels=[["a"], ["b"], ["a"]],
        labels=["a", "b", "a"],
        feature_names=["x", "y", "z"],
        overall=[0.3, 0.3, 0.4],
    )
    assert len(why) == 3
    assert why.top(0) == [("y", 0.5), ("z", 0.3), ("x", 0.2)]
    assert why.top(1, 2) == [("x", 0.6), ("y", 0.2)]  # equal ones in their order
    found = why.by_class()
    np.testing.assert_allclose(found["a"], [0.15, 0.3, 0.55])
    np.testing.assert_allclose(found["b"], [0.6, 0.2, 0.2])
    one = why.merge_features(["colour", "size", "colour"])
    assert one.feature_names == ["colour", "size"]
    np.testing.assert_allclose(one.relevance, [[0.5, 0.5], [0.8, 0.2], [0.9, 0.1]])
    np.testing.assert_allclose(one.contributions[:, 0], [[2, 1], [8, 4], [14, 7]])
    np.testing.assert_allclose(one.overall, [0.7, 0.3])
    names, parts = make_explanation(np.full(30, 1 / 30)).summarize_features(0, 4)
    assert names == ["x0", "x1", "x2", "x3", "26 others"]
    np.testing.assert_allclose(parts["relevance"], [1 / 30] * 4 + [26 / 30])
    np.testing.assert_allclose(parts["contributions"].sum(axis=1), 1.0)
    assert make_explanation(np.full(5, 0.2)).summarize_features(0, 4)[0] == [
        "x0",
        "x1",
        "x2",
        "x3",
        "x4",
    ]


def test_features_that_the_sentence_names_are_shown_though_voters_do_not_differ_in_them():
    shares = np.full(12, 0.04)
    shares[[4, 7, 9]] = 0.2, 0.21, 0.23
    why = make_explanation(shares)
    why.contributions[:] = 0.0
    why.contributions[0, :, :4] = 0.3
    assert "x9, x7 and x4 carry 64%" in why.sentence(0)
    names, parts = why.summarize_features(0, 4)
    assert names == ["x9", "x7", "x4", "x0", "8 others"]
    np.testing.assert_allclose(parts["relevance"].sum(), shares.sum())
    # Where all count equally none is named, and those that make the distances are shown.
    why = make_explanation(np.full(12, 1 / 12))
    why.contributions[:] = 0.0
    why.contributions[0, :, 8:] = 0.25
    assert why.summarize_features(0, 4)[0] == ["x8", "x9", "x10", "x11", "8 others"]


def test_a_table_with_a_line_for_each_row_voter_and_feature():
    why = make_explanation([[0.2, 0.8], [0.7, 0.3]], "bba", overall=[0.5, 0.5])
    frame = why.to_frame()
    assert len(frame) == 2 * 3 * 2
    assert list(frame) == [
        *("row", "label", "neighbor", "neighbor_label", "distance", "feature"),
        *("relevance", "overall", "contribution"),
    ]
    last = frame.iloc[-1]
    assert (last["row"], last["neighbor"], last["neighbor_label"]) == (1, 2, "a")
    assert (last["feature"], last["relevance"], last["contribution"]) == ("x1", 0.3, 0.5)
    np.testing.assert_allclose(frame.groupby(["row", "neighbor"])["relevance"].sum(), 1.0)


def test_the_picture_has_a_bar_for_each_feature_and_voter():
    pytest.importorskip("matplotlib")
    why = make_explanation([[0.2, 0.7, 0.1]], "bba", overall=[0.5, 0.3, 0.2])
    left, right = why.plot(0)
    assert [text.get_text() for text in left.get_yticklabels()] == ["x1", "x0", "x2"]
    assert [bar.get_width() for bar in left.patches] == [0.7, 0.2, 0.1]
    assert [text.get_text() for text in right.get_yticklabels()] == ["0 (b)", "1 (b)", "2 (a)"]
    assert len(right.patches) == 9


def test_without_matplotlib_the_picture_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"nearfar\[plot\]"):
        make_explanation([0.5, 0.5]).plot(0)


def test_relevance_is_the_share_of_a_step_of_one_deviation():
    M = np.array([[[4.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    found = compute_relevance(M, np.array([1.0, 3.0]))
    np.testing.assert_allclose(found, [[4 / 13, 9 / 13], [0.5, 0.5]])
    np.testing.assert_allclose(found[:1], compute_relevance(M[:1] * 1e-300, np.array([1.0, 3.0])))
    diagonals = np.einsum("ijj->ij", M)
    np.testing.assert_array_equal(found, compute_relevance(diagonals, np.array([1.0, 3.0])))


def test_features_without_names_are_numbered():
    assert get_feature_names(object(), 2) == ["x0", "x1"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"relevance": [[0.5, 0.6]]}, "relevance must be fractions .* row 0 sums to 1.1"),
        ({"relevance": [[1.5, -0.5]]}, "its minimum is -0.5"),
        ({"relevance": [[np.nan, 1.0]]}, "relevance must be finite"),
        ({"relevance": [0.5, 0.5]}, r"relevance must have shape \(any, any\); got \(2,\)"),
        ({"contributions": np.zeros((1, 3, 4))}, r"contributions must have shape \(1, any, 2\)"),
        ({"neighbors": [[1, 2]]}, r"neighbors must have shape \(1, 3\); got \(1, 2\)"),
        ({"labels": ["b", "b"]}, r"labels must have shape \(1,\)"),
        ({"feature_names": ["x"]}, r"feature_names must have one name per .* \(2\); got 1 "),
        ({"overall": [0.2, 0.2]}, "overall must be fractions"),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    given = {
        "relevance": [[0.5, 0.5]],
        "contributions": np.zeros((1, 3, 2)),
        "neighbors": [[1, 2, 3]],
        "distances": [[1.0, 2.0, 3.0]],
        "neighbor_labels": [["b", "b", "a"]],
        "labels": ["b"],
        "feature_names": ["x", "y"],
    }
    LocalExplanation(**given)
    with pytest.raises(ValueError, match=words):
        LocalExplanation(**given | change)


@pytest.mark.parametrize("row", [-1, 1])
def test_a_row_that_was_not_explained(row):
    for ask in ("top", "sentence", "summarize_features"):
        with pytest.raises(ValueError, match=f"row={row} must be from 0 to 0"):
            getattr(make_explanation([0.5, 0.5]), ask)(row)
