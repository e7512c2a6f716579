"""Parts of the report, each with the case in which what it says would be false."""

import copy
import csv
import re
from urllib.parse import unquote

import numpy as np
import pytest
import report_documents as documents

pytest.importorskip("jinja2")

from test_report import Page, method

from nearfar.app.compare.shown import Document, confused_pairs, rows_to_show
from nearfar.app.report import render
from nearfar.app.report.board import pareto
from nearfar.app.report.words import percent


@pytest.fixture(scope="module")
def wine():
    return documents.wine()


def plain(text):
    return text.replace("\u00a0", " ")


# ---------------------------------------------------------------------- ties of the vote


def with_votes(document, change):
    """Errors by the plain vote, from those by our own; None leaves them out."""
    document = copy.deepcopy(document)
    for one in document["methods"]:
        for result in one["results"]:
            value = change(one["name"], result)
            if value is not None:
                result["error_plain_vote"] = value
    return document


def test_ties_name_the_largest_difference_to_scikit_learn(wine):
    worse = {"rca": 0.02, "lda": -0.005}
    document = with_votes(wine, lambda name, result: result["error"] + worse.get(name, 0.0))
    page = Page(render(document))
    text = plain(page.text("leaderboard"))
    own = np.mean([result["error"] for result in method(wine, "rca")["results"]])
    assert "k-NN here breaks ties by shrinking k" in text
    assert (
        f"differs most for RCA: {100 * (own + 0.02):.1f}% instead of {100 * own:.1f}% (−2.0 "
        "points, positive where it makes fewer errors)"
    ) in text
    # Beside the errors it stands where it differs, and nowhere else.
    assert len(page.all("small", "leaderboard", **{"class": "plain-vote"})) == 2


def test_ties_that_change_nothing_are_said_to_change_nothing(wine):
    page = Page(render(with_votes(wine, lambda _, result: result["error"])))
    text = page.text("leaderboard")
    assert "it makes the same errors for all methods shown" in text
    assert "differs most" not in text and "plain vote" not in text


def test_nothing_is_said_of_ties_where_a_fold_is_not_known(wine):
    assert "Ties:" not in Page(render(wine)).text("leaderboard")
    half = with_votes(wine, lambda _, result: 0.5 if result["fold"] else None)
    assert "Ties:" not in Page(render(half)).text("leaderboard")


def test_ties_are_judged_on_the_folds_that_the_error_rests_on(wine):
    document = with_votes(
        wine, lambda _, result: result["error"] + (0.5 if result["fold"] >= 5 else 0.0)
    )
    document["common_folds"] = list(range(5))
    for one in document["methods"]:
        one["folds_used"] = 5 if one["results"] else one["folds_done"]
    assert "it makes the same errors" in Page(render(document)).text("leaderboard")


# ---------------------------------------------------------------------- cost


def test_the_front_holds_what_nothing_beats_in_both():
    random = np.random.default_rng(0)
    points = [tuple(point) for point in random.integers(1, 20, size=(60, 2)).tolist()]
    wanted = {
        p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)
    }
    assert pareto(points) == wanted


def test_error_against_cost_draws_every_method_and_names_the_front(wine):
    page = Page(render(wine))
    spots = page.all("circle", "cost", **{"class": "spot"})
    tips = [spot["data-tip"] for spot in spots]
    # The best plain distance is one of those drawn; of two planes the second lacks those for
    # context, of which no fold is known.
    names = [tip.partition(":")[0] for tip in tips]
    assert "Best standard distance" not in names
    assert names.count("LMNN") == 2 and names.count("Gradient-boosted trees") == 1
    assert plain(tips[names.index("LMNN")]).startswith("LMNN: 1.3%, 0.31 s")
    done = [m for m in wine["methods"] if m["role"] in ("baseline", "learner")]
    done = [m for m in done if m["status"] != "failed"]
    front = pareto([(m["fit_seconds"], m["error"]) for m in done])
    on = [m["label"] for m in done if (m["fit_seconds"], m["error"]) in front]
    marked = {
        spot["data-tip"].partition(":")[0]
        for spot in spots
        if "on-front" in spot["class"].split() and spot["data-tip"].endswith(" s")
    }
    assert marked == set(on)
    assert "Beyond the scale: Raw Euclidean and Majority class." in page.text("cost")


def test_one_method_alone_has_no_plane(wine):
    document = copy.deepcopy(wine)
    document["methods"] = [m for m in wine["methods"] if m["name"] in ("reference", "lmnn")]
    assert len(Page(render(document)).all("svg", "cost", **{"class": "plane"})) == 2
    document["methods"] = document["methods"][:1]
    assert "Error against cost" not in Page(render(document)).text("cost")


def test_seconds_of_a_prediction_are_those_of_one_row(wine):
    document = copy.deepcopy(wine)
    for result in method(document, "lmnn")["results"]:
        result["predict_seconds"] = 0.0036 * document["folds"][result["fold"]]["n_test"]
    assert "LMNN 4.0 0.31 0.011 3,600 184" in Page(render(document)).text("cost")


# ---------------------------------------------------------------------- the table as text


def test_the_table_as_text_holds_the_numbers_in_full(wine):
    page = Page(render(wine))
    link = next(a for a in page.all("a", "leaderboard") if "download" in a)
    assert link["download"] == "wine-leaderboard.csv"
    head, _, text = link["href"].partition(",")
    assert head == "data:text/csv;charset=utf-8"
    rows = list(csv.DictReader(unquote(text).splitlines()))
    assert [row["method"] for row in rows] == [m["label"] for m in wine["methods"]]
    for row, one in zip(rows, wine["methods"], strict=True):
        assert row["error"] == ("" if one["error"] is None else repr(one["error"]))
        assert row["gain"] == ("" if one["difference"] is None else repr(-one["difference"]))
        assert row["folds_planned"] == "25"


def test_no_cell_of_the_table_as_text_is_a_formula():
    document = documents.wine()
    method(document, "lmnn")["label"] = '=HYPERLINK("x")'
    method(document, "lda")["label"] = "a,b\n+c"
    link = next(a for a in Page(render(document)).all("a", "leaderboard") if "download" in a)
    rows = list(csv.DictReader(unquote(link["href"].partition(",")[2]).splitlines()))
    assert {'\'=HYPERLINK("x")', "a,b +c"} <= {row["method"] for row in rows}


# ---------------------------------------------------------------------- columns


def profiled(wine, **more):
    columns = [
        {"name": "alcohol", "kind": "numbers", "missing": 0.0, "counts": [1, 5, 2], "treated": ""}
        | {"range": [11.03, 14.83], "median": 13.05},
        {"name": "colour", "kind": "levels", "missing": 0.0001, "counts": [60, 30], "others": 10}
        | {"levels": ["red", "white"], "n_levels": 5, "treated": "6 columns of zeros and ones"},
    ]
    profile = {"columns": columns, "more": 3, "n_rows": 5000, "sampled": True} | more
    return wine | {"data": wine["data"] | {"profile": profile}}


def test_columns_show_their_distribution_and_what_is_missing(wine):
    page = Page(render(profiled(wine)))
    text = plain(page.text("data"))
    assert "What the columns hold 2 columns, drawn from 5,000 rows" in text
    assert "alcohol 11 to 14.8 median 13.1 colour 5 levels red 60.0%, white 30.0%" in text
    # A share that is not nothing is not written as nothing.
    assert "and 3 more < 0.1% missing 6 columns of zeros and ones" in text
    assert "3 more columns are used and not drawn." in text
    assert len(page.all("svg", "data", **{"class": "columns-chart"})) == 2
    whole = plain(Page(render(profiled(wine, sampled=False, more=0))).text("data"))
    assert "drawn from" not in whole and "not drawn" not in whole


def test_columns_of_hidden_rows_show_shapes_only(wine):
    document = documents.without_rows(profiled(wine))
    first, second = document["data"]["profile"]["columns"]
    for key in ("range", "median"):
        first.pop(key)
    second["levels"] = None
    text = plain(Page(render(document)).text("data"))
    assert "Shapes only: no value of any column is shown, as asked (--no-rows)." in text
    assert "median" not in text and "red" not in text
    assert "Shapes only" not in Page(render(profiled(wine))).text("data")


def test_a_document_without_a_profile_has_none(wine):
    assert "What the columns hold" not in Page(render(wine)).text("data")


# ---------------------------------------------------------------------- many classes


def many_classes(n_classes=60, n_rows=900):
    """Classes of which 0 is often taken for 1, and the last for the first but one."""
    random = np.random.default_rng(0)
    document = documents.wine()
    true = random.integers(n_classes, size=n_rows)
    guess = true.copy()
    guess[np.flatnonzero(true == 0)[:9]] = 1
    guess[np.flatnonzero(true == n_classes - 1)[:5]] = 1
    rows = list(range(n_rows))
    document["data"] |= {
        "classes": [f"kind {i}" for i in range(n_classes)],
        "class_counts": np.bincount(true, minlength=n_classes).tolist(),
    }
    document["held_out"] = {
        "rows": rows,
        "true": true.tolist(),
        "predicted": {"lmnn": guess.tolist(), "reference": true.tolist()},
        "neighbors": {},
        "labels": {},
    }
    places = {"x": random.normal(size=300).tolist(), "y": random.normal(size=300).tolist()}
    document["maps"] = {
        "rule": "Axes.",
        "rows": rows[:300],
        "classes": true[:300].tolist(),
        "methods": {"reference": places, "lmnn": places},
    }
    return document


def test_of_many_classes_the_most_confused_have_colours_and_the_others_are_grey():
    document = many_classes()
    page = Page(render(document))
    names = page.text("maps")
    assert len(page.all("button", "maps", **{"class": "class-button"})) == 10
    present = len(set(document["maps"]["classes"]))
    assert f"{present - 10} other classes" in names
    for name in ("kind 0", "kind 1", "kind 59"):
        assert re.search(rf"{name}\b", names)
    assert "too many classes to color" in names and "colors repeat" not in names
    grey = page.all("circle", "maps", **{"class": "none"})
    assert len(grey) > 300
    # Forty can still be told apart by colours and shapes.
    fewer = Page(render(many_classes(40)))
    assert "too many classes to color" not in fewer.text("maps")
    assert not [c for c in fewer.all("circle", "maps") if "none" in (c.get("class") or "")]


def test_sizes_of_many_classes_are_drawn_in_one_picture(wine):
    counts = many_classes()["data"]["class_counts"]
    text = Page(render(many_classes())).text("data")
    assert (
        f"All classes by size: {max(counts)} in the largest, {np.median(counts):.0f} in the middle "
        f"one, {min(counts)} in the smallest of 60 classes." in text
    )
    assert "All classes by size" not in Page(render(wine)).text("data")


def test_confused_pairs_are_those_of_the_predictions_and_open_to_their_rows():
    document = many_classes()
    page = Page(render(document))
    true = np.array(document["held_out"]["true"])
    text = page.text("classes")
    assert f"kind 0 taken for kind 1 9 of {np.sum(true == 0)}, 0 by best standard distance" in text
    assert f"kind 59 taken for kind 1 5 of {np.sum(true == 59)}" in text
    assert len(page.all("details", "classes")) == 2
    rows = np.flatnonzero(true == 0)[:9]
    assert f"Also {rows[8]}." in text  # eight of them in the table
    for row in rows[:8]:
        assert re.search(rf"\b{row}\b", text)


def test_without_a_mistake_there_is_no_pair(wine):
    document = copy.deepcopy(wine)
    document["held_out"]["predicted"]["lmnn"] = document["held_out"]["true"]
    page = Page(render(document))
    assert "Most confused" not in page.text("classes") and not page.all("details", "classes")


def test_rows_of_confused_pairs_are_numbers_alone_where_rows_are_hidden(wine):
    page = Page(render(documents.without_rows(wine)))
    assert "Most confused" in page.text("classes")
    assert len(page.all("table", "classes", **{"class": "plain"})) == 1  # that of the classes


def test_contents_of_confused_rows_are_asked_for(wine):
    pairs = confused_pairs(Document(wine))
    assert pairs and {row for pair in pairs for row in pair.rows[:8]} <= set(rows_to_show(wine))


# ---------------------------------------------------------------------- groups


def grouped(wine, clear):
    entry = {"n": 40, "mended": 1, "broken": 12, "p": 0.003, "p_holm": 0.006}
    groups = [
        {"group": "south", "reference": 0.05, "learner": 0.325, "gain": -0.275, "clear": clear}
        | entry,
        {"group": "<tiny>", "reference": 0.5, "learner": 0.4, "gain": 0.1, "clear": None}
        | entry
        | {"n": 10, "p_holm": None},
    ]
    found = {"name": "region", "method": "lmnn", "groups": groups, "more": 2, "tested": 1}
    return wine | {"by_group": found | {"least_rows": 20}}


def test_errors_by_group_are_a_table_with_the_worst_first(wine):
    page = Page(render(grouped(wine, "worse")))
    text = plain(page.text("groups"))
    assert "7 Errors by region" in text
    assert "south 40 5.0% 32.5% −27.5 clearly worse 0.006 <tiny> 10 50.0% 40.0% +10.0 –" in text
    assert "2 more groups are not listed." in text
    assert "8 Maps of held-out rows" in page.text("maps")
    assert "11 Protocol" in page.text("protocol")
    assert "clearly" not in plain(Page(render(grouped(wine, None))).text("groups")).replace(
        "is called clear", ""
    )


def test_without_groups_there_is_no_such_section(wine):
    page = Page(render(wine))
    assert "groups" not in page.sections and "7 Maps" in page.text("maps")


def test_groups_without_a_learner_say_so(wine):
    document = grouped(wine, None)
    document["by_group"]["method"] = None
    text = Page(render(document)).text("groups")
    assert "No learner has predictions to report by group." in text
    assert percent(0.325) not in text


# ---------------------------------------------------------------------- a strict content policy


def test_no_element_has_a_style_or_a_handler_of_its_own(wine):
    for document in (wine, documents.digits(), many_classes(), documents.embeddings()):
        for _, attributes, _ in Page(render(document)).elements:
            assert "style" not in attributes
            assert not [name for name in attributes if name.startswith("on")]
