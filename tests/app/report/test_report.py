"""The HTML report: what it says, what it hides, what it survives."""

import base64
import copy
import hashlib
import json
import re
import zlib
from base64 import b64decode
from html import unescape
from html.parser import HTMLParser
from importlib import resources
from struct import unpack

import numpy as np
import pytest
import report_documents as documents
from sklearn.datasets import load_digits

pytest.importorskip("jinja2")

from nearfar import words
from nearfar.app.compare.shown import rows_to_show
from nearfar.app.report import render, write
from nearfar.app.report.charts import Scale, difference_scale
from nearfar.app.report.classes import shade
from nearfar.app.report.markup import script_json
from nearfar.app.report.words import p_value, percent, points, seconds
from nearfar.app.tables.images import data_uri

VOID = {"meta", "link", "img", "br", "wbr", "input", "hr"}


class Page(HTMLParser):
    """Elements and texts of a page; fails where tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.sections, self.scripts = [], [], {}, []
        self.section = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag == "section":
            self.section = dict(attributes)["id"]
            self.sections[self.section] = []
        self.elements.append((tag, dict(attributes), self.section))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes), self.section))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "section":
            self.section = ""

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.section and data.strip():
            self.sections[self.section].append(data)

    def text(self, section):
        return " ".join(" ".join(self.sections[section]).split())

    def all(self, name, section=None, **wanted):
        return [
            attributes
            for tag, attributes, where in self.elements
            if tag == name
            and section in (None, where)
            and all(value in (attributes.get(key) or "").split() for key, value in wanted.items())
        ]

    def hover(self):
        return json.loads(next(s for s in self.scripts if s.startswith("{")))


@pytest.fixture(scope="module")
def wine():
    return documents.wine()


@pytest.fixture(scope="module")
def page(wine):
    return Page(render(wine))


@pytest.fixture(scope="module")
def monstrous_page():
    return render(documents.monstrous())


def method(document, name):
    return next(m for m in document["methods"] if m["name"] == name)


def test_sections_come_in_order_and_the_answer_first(page):
    assert list(page.sections) == [
        "answer",
        "data",
        "leaderboard",
        "paired",
        "neighbors",
        "classes",
        "maps",
        "features",
        "cost",
        "protocol",
    ]
    links = [a["href"] for tag, a, where in page.elements if tag == "a" and not where]
    assert links[1:] == [f"#{name}" for name in page.sections]


def test_answer_gives_the_verdict_its_numbers_and_its_notes(wine, page):
    text = page.text("answer")
    assert wine["answer"]["text"] in text
    for note in wine["answer"]["notes"]:
        assert note in text
    best = method(wine, "lmnn")
    assert f"Gain {points(-best['difference'])} points" in text
    assert percent(wine["nested"]["error"]).replace("\u00a0", " ") in text


def test_data_lists_dropped_columns_warnings_and_messages(wine, page):
    text = page.text("data")
    for name, reason in wine["data"]["dropped"]:
        assert f"{name} {reason}" in text
    assert wine["warnings"][0]["text"] in text
    assert wine["data"]["messages"][0] in text


def test_leaderboard_has_a_row_for_every_method_with_its_numbers(wine, page):
    assert len(page.all("tr", "leaderboard")) == 1 + len(wine["methods"])
    text = page.text("leaderboard")
    assert "LMNN recommended 3 not converged 1.3% " in text
    assert "+2.8" in text and "−2.8" not in text
    assert "< 0.001 25 of 25 0.31 110 184" in text
    assert "Method selected within each fold: 1.5%" in text
    assert "LMNN 24 times and best standard distance 1 time" in text


def test_leaderboard_shows_failed_and_unfinished_rows_with_their_reason(wine, page):
    text = page.text("leaderboard")
    for name, status in (("mcml", "failed"), ("mvu", "failed"), ("mine", "unfinished")):
        row = method(wine, name)
        assert f"{row['label']} {status} {row['reason']}" in text
        assert page.all("tr", "leaderboard", **{"class": status})


def test_reference_baselines_and_context_are_marked(page):
    for role in ("reference", "baseline", "context", "learner"):
        assert page.all("tr", "leaderboard", **{"class": role})
    assert "Best standard distance baseline" in page.text("leaderboard")
    assert "Gradient-boosted trees for context" in page.text("leaderboard")


def test_paired_differences_draw_each_fold_once_with_one_line_per_repeat(wine, page):
    dots = page.all("circle", "paired", **{"class": "fold"})
    assert len(dots) == 3 * 25
    assert len({dot["cy"] for dot in dots[:25]}) == 5
    reference, best = method(wine, "reference"), method(wine, "lmnn")
    change = reference["results"][7]["error"] - best["results"][7]["error"]
    tip = next(dot["data-tip"] for dot in dots if "Repeat 2, fold 3" in dot["data-tip"])
    assert f": {points(change)}\u00a0points (" in tip


def test_paired_differences_use_the_folds_that_all_methods_have(wine):
    page = Page(render(wine | {"common_folds": list(range(9))}))
    assert len(page.all("circle", "paired", **{"class": "fold"})) == 3 * 9
    assert "9 of 25 folds" in page.text("paired")


def test_a_gain_is_positive_where_a_method_is_better_everywhere_on_the_page(wine, page):
    gain = -method(wine, "lmnn")["difference"]
    assert gain > 0
    labels = [a["aria-label"] for a in page.all("svg") if "aria-label" in a]
    said = points(gain, unit=True)
    assert [text for text in labels if text.startswith(f"LMNN: gain {said}, 95% CI +")]
    assert [text for text in labels if text.startswith(f"LMNN: mean {said}, better in")]
    # Dots to the right of zero are better, those to the left worse.
    for dot in page.all("circle", "paired", **{"class": "fold"}):
        place = float(dot["cx"].rstrip("%")) - 50
        side = "better" if place > 0 else "worse" if place < 0 else "even"
        assert side in dot["class"].split()
        sign = re.search(r": ([+−]?)", dot["data-tip"].replace("Repeat", ""))[1]
        assert {"better": "+", "worse": "−", "even": ""}[side] == sign
    # The gain that would count lies on the side of better.
    lines = page.all("line", "leaderboard", **{"class": "threshold"})
    assert lines and all(float(line["x1"].rstrip("%")) > 50 for line in lines)
    text = page.text("leaderboard")
    assert "← worse better →" in text and "smallest gain that counts (+0.2" in text


def test_a_document_that_says_its_gain_is_believed(wine):
    document = copy.deepcopy(wine)
    method(document, "rca").update(gain=0.123, gain_interval=[0.1, 0.2])
    assert "+12.3 +10.0 to +20.0" in Page(render(document)).text("leaderboard")


def test_folds_beside_an_error_are_those_it_was_computed_from(wine):
    document = copy.deepcopy(wine) | {"common_folds": list(range(5))}
    for entry in document["methods"]:
        entry["folds_used"] = 5 if entry["results"] else entry["folds_done"]
    text = Page(render(document)).text("leaderboard")
    assert text.count("5 common of 25") == 6
    # Folds of one's own are not common, and all of them need no such word.
    assert "2 of 25" in text and "2 common" not in text
    assert "common" not in Page(render(wine)).text("leaderboard")


def test_a_comparison_on_some_rows_says_so_and_shows_the_fit_to_all():
    document = documents.wine()
    document["data"]["n_rows"] = 100_000
    document["protocol"]["n_rows_used"] = 8_000
    learner, plain = {"label": "LMNN", "error": 0.012}, {"label": "Euclidean", "error": 0.02}
    split = {"n_train": 80_000, "n_test": 20_000}
    document["all_rows"] = split | {"results": {"learner": learner, "reference": plain}}
    text = Page(render(document)).text("answer").replace("\u00a0", " ")
    assert "Compared on 8,000 of 100,000 rows." in text
    assert "On all rows: LMNN 1.2% Euclidean 2.0%, gain +0.8 points" in text
    assert "one split, no CI (80,000 to train, 20,000 held out)" in text
    document["all_rows"] = split | {"reason": "it would take about 50 s, and 3 s are left"}
    text = Page(render(document)).text("answer")
    assert (
        "The result was not confirmed on all rows: it would take about 50 s, and 3 s are left."
        in text
    )
    assert "Fitted once" not in text


@pytest.mark.parametrize("used", [None, 178])
def test_a_comparison_on_all_rows_says_nothing_of_a_sample(wine, used):
    protocol = wine["protocol"] | {"n_rows_used": used}
    text = Page(render(wine | {"protocol": protocol})).text("answer")
    assert "Compared on" not in text and "all rows" not in text


def test_methods_left_out_are_listed_with_their_reasons(wine):
    document = copy.deepcopy(wine)
    why = "foretold 300 s, and 100 s are left"
    method(document, "mine").update(status="left out", reason=why, error=None, difference=None)
    page = Page(render(document))
    text = page.text("leaderboard")
    assert f"Left out to fit the time, and not judged: Mine : {why}" in text
    assert page.all("tr", "leaderboard", **{"class": "left-out"})
    assert "Left out to fit the time" not in Page(render(wine)).text("leaderboard")


def test_what_to_do_next_ends_the_answer(wine):
    steps = [{"text": "Fit it to all rows:", "command": "nearfar fit wine.csv --method lmnn"}]
    page = Page(render(wine | {"next": steps}))
    assert page.text("answer").endswith(
        "What to do next Fit it to all rows: nearfar fit wine.csv --method lmnn Copy"
    )
    assert "What to do next" not in Page(render(wine)).text("answer")


def test_neighbor_totals_count_improved_worsened_and_same(wine, page):
    held_out = wine["held_out"]
    true = dict(zip(held_out["rows"], held_out["true"], strict=True))
    counts = {"improved": 0, "same": 0, "worsened": 0}
    for row, old, new in zip(
        held_out["rows"],
        held_out["neighbors"]["reference"],
        held_out["neighbors"]["lmnn"],
        strict=True,
    ):
        gain = sum(true[n] == true[row] for n in new) - sum(true[n] == true[row] for n in old)
        counts["improved" if gain > 0 else "worsened" if gain < 0 else "same"] += 1
    text = page.text("neighbors")
    assert counts["improved"] > 6 > counts["worsened"] > 0
    for kind, n in counts.items():
        assert f"{kind} {n} " in text
    assert len(page.all("article", "neighbors", **{"class": "improved"})) == 6
    assert len(page.all("article", "neighbors", **{"class": "worsened"})) == counts["worsened"]


def test_sampled_neighbors_show_the_columns_the_metric_weighs_most(wine, page):
    shares = np.mean(wine["weights"]["lmnn"]["folds"], axis=0)
    features = wine["weights"]["lmnn"]["features"]
    heads = [a["title"] for a in page.all("th", "neighbors", **{"class": "num"}) if a.get("title")]
    assert heads[:3] == [features[i] for i in np.argsort(-shares)[:3]]


def test_labels_of_rows_that_are_never_held_out_may_come_apart():
    document = documents.wine()
    held_out = document["held_out"]
    labels = dict(zip(map(str, held_out["rows"]), held_out["true"], strict=True))
    for part in ("predicted", "neighbors"):
        held_out[part] = {name: found[60:70] for name, found in held_out[part].items()}
    held_out |= {"rows": held_out["rows"][60:70], "true": held_out["true"][60:70]}
    alone = Page(render(document))
    assert "or their labels, were not recorded" in alone.text("neighbors")
    held_out["labels"] = labels
    totals = re.findall(
        r"(?:improved|same|worsened) (\d+)", Page(render(document)).text("neighbors")
    )
    assert sum(map(int, totals)) == 10


def test_confusion_and_class_errors_agree_with_the_predictions(wine, page):
    true = np.array(wine["held_out"]["true"])
    best = np.array(wine["held_out"]["predicted"]["lmnn"])
    reference = np.array(wine["held_out"]["predicted"]["reference"])
    text = page.text("classes").replace("\u00a0", " ")
    for code, name in enumerate(wine["data"]["classes"]):
        rows = true == code
        before, after = np.mean(reference[rows] != code), np.mean(best[rows] != code)
        assert f"{name} {rows.sum()} {100 * before:.1f}% {100 * after:.1f}%" in text
    tips = [a["data-tip"] for a in page.all("td", "classes") if a.get("data-tip")]
    assert len(tips) == 9
    wrong = np.sum((true == 1) & (best == 2))
    assert f"grignolino taken for barbera: {wrong} of {np.sum(true == 1)}" in tips


def test_maps_draw_reference_first_with_rings_around_wrong_rows(wine, page):
    assert [a["data-map"] for a in page.all("svg", "maps", **{"class": "map"})] == list("0123")
    drawn = [a for a in page.all("circle", "maps") if a.get("data-i")]
    assert len(drawn) == 4 * len(wine["maps"]["rows"])
    guesses = wine["held_out"]["predicted"]
    wrong = sum(
        guesses[name][row] != wine["held_out"]["true"][row]
        for name in wine["maps"]["methods"]
        for row in wine["maps"]["rows"]
    )
    assert len(page.all("circle", "maps", **{"class": "wrong"})) == wrong
    assert page.text("maps").index("Best standard distance") < page.text("maps").index("LMNN")


def test_hover_data_hold_the_row(wine, page):
    hover = page.hover()
    row = hover["rows"][0]
    values = dict(zip(hover["columns"], hover["values"][0], strict=True))
    column = wine["rows"]["columns"].index("proline")
    assert values["proline"] == wine["rows"]["values"][str(row)][column]
    assert hover["names"][hover["true"][0]] == "barolo"


def test_features_give_mean_share_range_and_stability(wine, page):
    folds = np.array(wine["weights"]["lmnn"]["folds"])
    ranks = np.argsort(np.argsort(-folds, axis=1), axis=1)
    between = np.corrcoef(ranks)[np.triu_indices(len(folds), 1)].mean()
    text = page.text("features")
    assert f"rank correlation between folds {between:.2f}" in text
    assert f"flavanoids {100 * folds.mean(axis=0).max():.1f}% rank 1" in text.replace("_ ", "_")
    assert "RCA has no weights of features to show." in text


def test_features_whose_order_turns_around_are_called_unstable(wine):
    weights = {"features": ["a", "b", "c"], "folds": [[0.6, 0.3, 0.1], [0.1, 0.3, 0.6]]}
    text = Page(render(wine | {"weights": {"lmnn": weights}})).text("features")
    assert "unstable: rank correlation between folds −1.00" in text
    assert "a 35.0% rank 1 to 3" in text.replace("\u00a0", " ")


def test_cost_lists_seconds_settings_and_warnings(page):
    text = page.text("cost")
    assert "LMNN 4.0 0.31 0.011 110 184 3 to 7 standardized, n_neighbors=5 × 25" in text
    assert "ConvergenceWarning: stopped after 50 iterations × 3" in text
    assert "59 steps, 0.30 s" in text


def test_protocol_repeats_command_code_seeds_versions_and_folds(wine, page):
    text = page.text("protocol")
    for wanted in (
        wine["command"],
        "model = make_pipeline(StandardScaler()",
        "Seed 0",
        "numpy 2.3.0",
        wine["protocol"]["plan"][0],
        wine["protocol"]["notes"][0],
        " ".join(map(str, wine["folds"][3]["test"])),
    ):
        assert wanted in text
    assert {a["data-copy"] for a in page.all("button", "protocol")} == {"command", "pipeline"}


def test_images_are_shown_and_decode_to_the_pixels_given():
    document = documents.digits()
    page = Page(render(document))
    pictures = page.all("img", "neighbors")
    assert len(pictures) == 12 * 11
    row = re.match(r"Row (\d+), class", pictures[0]["alt"])[1]
    assert pictures[0]["src"] == document["images"][row]
    pixels = load_digits().images[int(row)] * 255 / 16
    assert np.abs(decode(pictures[0]["src"]) - pixels).max() <= 0.5
    assert all(page.hover()["images"])
    # A comparison of images may leave out the values of the pixels.
    document["rows"] = {"columns": [], "values": {}}
    assert Page(render(document)).all("img", "neighbors") == pictures
    assert page.all("img", "features")  # the weights of the pixels


def decode(uri):
    content = b64decode(uri.removeprefix("data:image/png;base64,"))
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, colour = unpack(">IIBB", content[16:26])
    assert depth == 8
    size = unpack(">I", content[33:37])[0]
    lines = np.frombuffer(zlib.decompress(content[41 : 41 + size]), np.uint8)
    lines = lines.reshape(height, -1)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape((height, width, 3) if colour == 2 else (height, width))


def test_png_keeps_colours_and_shrinks_large_pictures():
    colours = np.arange(2 * 3 * 3).reshape(2, 3, 3)
    assert decode(data_uri(colours)).tolist() == colours.tolist()
    assert max(decode(data_uri(np.zeros((1000, 30)))).shape) <= 48
    assert data_uri([]) is None
    assert data_uri([[1, 2], [3]]) is None


def test_no_rows_hides_every_value_of_every_row(wine):
    document = copy.deepcopy(wine)
    secret = "37.123456789"
    document["rows"]["values"] = {
        row: [secret for _ in values] for row, values in document["rows"]["values"].items()
    }
    assert secret in render(document)
    hidden = documents.without_rows(document)
    text = render(hidden)
    assert secret not in text
    page = Page(text)
    assert not page.all("article")
    assert page.hover()["values"] == []
    assert "--no-rows" in page.text("neighbors")
    assert "improved 23" in page.text("neighbors")


def test_no_rows_hides_images_even_when_the_document_has_them():
    document = documents.digits() | {"rows": None}
    assert document["images"]
    assert "data:image/png" not in render(document)


def test_hostile_texts_stay_texts():
    text = render(documents.hostile())
    page = Page(text)
    # Only our two scripts: the points and the program; no element or handler from the data.
    assert [a.get("type") for a in page.all("script")] == ["application/json", None]
    assert not page.all("img")
    assert not any(name.startswith("on") for _, a, _ in page.elements for name in a)
    assert page.hover()["names"][0].startswith("</script><script>")
    assert page.hover()["values"][0][0].startswith("</script><script>")
    assert not set("\u2028\u2029\u202e\x00\ud800") & set(text)
    assert "{{ 7 * 7 }}" in unescape(text)
    text.encode("utf-8")


def test_json_in_a_script_element_cannot_leave_it():
    value = {"</script>": ["<!--", "\u2028&", 'quote"', "]]>"]}
    text = script_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value
    with pytest.raises(ValueError):
        script_json(float("nan"))


def hashed(tag, page):
    """How a policy names the one element of a page."""
    (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def test_page_asks_for_nothing_from_the_network(page, wine):
    for tag, attributes, _ in page.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, name)
    policy = next(a["content"] for a in page.all("meta") if "http-equiv" in a)
    written = render(wine)
    assert policy == (
        f"default-src 'none'; style-src {hashed('style', written)}; "
        f"script-src {hashed('script', written)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    assert not re.search(r"https?://|url\(|@import", written)
    # A policy without unsafe-inline leaves these out.
    assert not [a for _, a, _ in page.elements if "style" in a or any(n[:2] == "on" for n in a)]


def test_page_stays_small_whatever_the_data(monstrous_page):
    assert len(monstrous_page.encode("utf-8")) < 5_000_000
    page = Page(monstrous_page)
    folds = page.all("circle", "paired", **{"class": "fold"})
    marks = [a for tag, a, where in page.elements if where == "maps" and "data-i" in a]
    assert 4_000 < len(folds) + len(marks) <= 5_000
    # 25 classes in both tables, and 12 pairs with their heads; images stand for their rows.
    assert len(page.all("tr", "classes")) == 2 * (1 + 25)
    assert len(page.all("details", "classes")) == 12
    assert "Of 500 classes, the 25 with the most errors" in page.text("classes")
    assert "4,980 more features share" in page.text("features")
    assert "4,950 more columns" in page.text("data")
    assert "random 333 of 20,000 rows" in page.text("maps")
    assert "a random 6 of" in page.text("neighbors")
    # Long texts are cut: no piece of text is longer than the code may be.
    assert max(len(piece) for part in page.sections.values() for piece in part) <= 20_000


def test_page_is_the_same_every_time(wine):
    assert render(wine) == render(copy.deepcopy(wine))


def test_rendering_leaves_the_document_as_it_is(wine):
    before = json.dumps(wine)
    render(wine)
    assert json.dumps(wine) == before


def test_interrupted_run_shows_what_there_is():
    page = Page(render(documents.interrupted()))
    assert "Every compared method has 1 of 25 folds." in page.text("answer")
    assert len(page.all("circle", "paired", **{"class": "fold"})) == 3
    assert "142 held-out rows are left out" in page.text("neighbors")
    assert "There is no map" in page.text("maps")
    assert "1 fold, too little to judge stability" in page.text("features")
    assert "no method was chosen" in page.text("protocol")
    assert "After choosing" not in page.text("answer") + page.text("leaderboard")


@pytest.mark.parametrize("document", [{"format": 1}, documents.all_failed()])
def test_missing_parts_leave_one_sentence_each(document):
    page = Page(render(document))
    for section in ("paired", "neighbors", "classes", "maps", "features", "cost"):
        assert len(page.sections[section]) == 3  # number, title, sentence
        assert not page.all("svg", section)
        assert not page.all("table", section)
    assert "There is no answer" in page.text("answer")


def test_no_learner_leaves_the_leaderboard_of_baselines(wine):
    document = copy.deepcopy(wine)
    document["methods"] = [m for m in wine["methods"] if m["role"] != "learner"]
    document |= {"best": None, "nested": None}
    page = Page(render(document))
    assert "Best standard distance" in page.text("leaderboard")
    assert "No learner shares a finished fold" in page.text("paired")
    assert "No learner" in page.text("neighbors")


def test_numbers_that_are_not_finite_are_left_out(wine):
    document = copy.deepcopy(wine)
    document["maps"]["methods"]["lmnn"]["x"][0] = float("nan")
    method(document, "lda").update(error=float("inf"), p_holm=float("nan"))
    page = Page(render(document))
    drawn = [a for a in page.all("circle", "maps") if a.get("data-i")]
    assert len(drawn) == 4 * len(wine["maps"]["rows"]) - 1
    assert "LDA –" in page.text("leaderboard")


def test_classes_beyond_ten_get_other_shapes():
    document = documents.wine()
    document["data"]["classes"] = [f"class {i}" for i in range(30)]
    document["maps"]["classes"] = [i % 30 for i in range(len(document["maps"]["rows"]))]
    page = Page(render(document))
    marks = [
        a["class"] + re.sub(r"M[\d. ]+", "", a.get("d", ""))
        for tag, a, where in page.elements
        if where == "maps" and "data-i" in a
    ]
    assert len({mark.replace(" wrong", "") for mark in marks}) == 30
    assert len(page.all("button", "maps", **{"class": "class-button"})) == 30


def test_charts_tables_and_heads_can_be_heard(page):
    for attributes in page.all("svg"):
        spoken = attributes.get("role") == "img" and attributes.get("aria-label")
        inside = "spill" in attributes.get("class", "") or "preserveaspectratio" in attributes
        assert spoken or attributes.get("aria-hidden") or inside
    for attributes in page.all("th"):
        assert attributes.get("scope") in ("col", "row", "rowgroup")
    sorted_ones = [a for a in page.all("th", "leaderboard") if "aria-sort" in a]
    assert [a["aria-sort"] for a in sorted_ones].count("ascending") == 1
    assert len(page.all("button", "leaderboard", **{"class": "sort"})) == len(sorted_ones)
    levels = [tag for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count("h1") == 1
    assert levels[0] == "h1"
    assert levels.count("h2") == 9


def test_rows_to_show_are_those_the_page_needs(wine):
    bare = documents.without_rows(wine)
    rows = rows_to_show(bare)
    assert 36 < len(rows) < 178
    # With these rows alone the page is the same as with all of them.
    values = {str(row): wine["rows"]["values"][str(row)] for row in rows}
    assert render(wine | {"rows": {**wine["rows"], "values": values}}) == render(wine)


def test_writing_refuses_to_overwrite_without_force(tmp_path, wine):
    path = tmp_path / "report.html"
    assert write(wine, path) == path
    assert path.read_text("utf-8") == render(wine)
    path.write_text("mine")
    with pytest.raises(FileExistsError, match=r"report\.html exists.*--force"):
        write(wine, path)
    assert path.read_text() == "mine"
    write(wine, str(path), force=True)
    assert path.read_text("utf-8") == render(wine)
    assert list(tmp_path.iterdir()) == [path]


def test_writing_names_what_is_wrong_with_the_path(tmp_path, wine):
    with pytest.raises(IsADirectoryError, match=r"is a folder; name a file"):
        write(wine, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"does not exist; create it first"):
        write(wine, tmp_path / "no" / "report.html")


def test_a_failure_while_writing_leaves_the_old_file(tmp_path, wine, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write(wine, path, force=True)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_other_formats_and_types_are_refused():
    with pytest.raises(ValueError, match=r"format 2; this version of nearfar draws format 1"):
        render({"format": 2})
    with pytest.raises(TypeError, match=r"got list"):
        render([])


def test_scales_hold_zero_and_ignore_what_is_far_away():
    scale = difference_scale([-0.02, 0.01, 0.015, 0.57])
    assert (scale.low, scale.high) == (-scale.high, scale.high)
    assert 0.02 <= scale.high < 0.1
    assert scale.at(0) == "50.00%"
    assert difference_scale([]).holds(0)
    ticks = Scale(-0.06, 0.06).ticks(6)
    assert ticks == pytest.approx([-0.06, -0.04, -0.02, 0, 0.02, 0.04, 0.06])


@pytest.mark.parametrize("value", [0.0, 0.0004, -0.00061, 0.0123, -0.0507, 0.5])
def test_numbers_are_rounded_as_in_the_terminal(value):
    assert percent(value) == words.format_percent(value)
    assert points(value).lstrip("+") == words.format_points(value)
    assert p_value(abs(value)) == words.format_p_value(abs(value))
    assert f"{seconds(abs(value))} s" == words.format_seconds(abs(value))


def test_numbers_of_the_answer_stay_with_their_units(wine):
    text = render(wine)
    assert "1.3% error vs" in text and "0.3\u00a0s on 142 rows" in text
    assert "0.3 s on" not in text.partition("<main>")[2]


def test_the_learner_beside_the_reference_is_the_one_of_the_answer(wine):
    answer = {"verdict": "keep", "method": "rca", "text": "Keep it: RCA is no better."}
    page = Page(render(wine | {"answer": answer, "best": "reference"}))
    assert "Best learner: RCA" in page.text("answer")
    assert "After: RCA." in page.text("neighbors")
    assert "Confusion of RCA" in page.text("classes")
    # An answer about no learner shows none as the best.
    page = Page(render(wine | {"answer": answer | {"method": None}}))
    assert "Best learner" not in page.text("answer")
    assert "No learner" in page.text("neighbors")


def test_features_beyond_the_first_are_counted():
    wine = documents.wine()
    wine["data"]["features"] = [f"f{i}" for i in range(64)]
    assert "f29 and 34 more" in Page(render(wine)).text("data")


def test_a_row_that_is_tested_twice_counts_once(wine):
    page = Page(render(wine))
    held_out = wine["held_out"]
    again = {
        "rows": [*held_out["rows"], *held_out["rows"][:50]],
        "true": [*held_out["true"], *held_out["true"][:50]],
        "predicted": {n: [*v, *[0] * 50] for n, v in held_out["predicted"].items()},
        "neighbors": {n: [*v, *[None] * 50] for n, v in held_out["neighbors"].items()},
    }
    twice = Page(render(wine | {"held_out": again}))
    assert twice.text("neighbors") == page.text("neighbors")
    assert "178 held-out rows of the first repeat. Rows that were tested again (50 times)" in (
        twice.text("classes")
    )
    assert twice.text("classes")[-300:] == page.text("classes")[-300:]


def test_a_fixed_test_set_is_not_called_folds():
    wine = documents.wine()
    wine["data"]["test"] = {"name": "test.csv", "n_rows": 36}
    wine["protocol"]["scheme"] = "one fixed test set of 36 rows"
    page = Page(render(wine))
    text = page.text("protocol")
    assert "Test one fixed test set of 36 rows" in text and "over the test rows" in text
    assert "share training rows" not in text and "Folds one fixed" not in text
    assert "no folds" in page.text("paired")
    assert "within the training rows" in page.text("answer")
    assert "of the test set" in page.text("classes")


@pytest.mark.parametrize(
    "picture", ["javascript:alert(1)", "data:text/html,x", "data:image/png;base64,x y", "A" * 99, 7]
)
def test_only_pictures_become_pictures(picture):
    document = documents.digits()
    document["images"] = dict.fromkeys(document["images"], picture)
    page = Page(render(document))
    assert not page.all("img", "neighbors") and not any(page.hover()["images"])


# Contrast and colours, from the style sheet itself.


def colours():
    css = resources.files("nearfar.app.report").joinpath("report.css").read_text("utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)
    assert len(found) > 20
    parse = lambda text: np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)]) / 255  # noqa: E731
    return [{name: parse(pair[i]) for name, *pair in found} for i in (0, 1)]


def linear(colour):
    return np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    dark, light = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_texts_have_enough_contrast(theme):
    c = colours()[theme]
    grounds = ("page", "surface", "sunken", "neutral-soft")
    pairs = [(text, ground) for text in ("text", "quiet") for ground in grounds]
    pairs += [(text, g) for text in ("accent", "better", "worse") for g in ("surface", "sunken")]
    pairs += [("better", "better-soft"), ("worse", "worse-soft"), ("warn", "warn-soft")]
    pairs += [("neutral", "neutral-soft"), ("quiet", "worse-soft"), ("text", "worse-soft")]
    pairs += [("warn", "surface"), ("warn", "sunken"), ("text", "warn-soft")]
    poor = {pair: contrast(c[pair[0]], c[pair[1]]) for pair in pairs}
    assert not {pair: ratio for pair, ratio in poor.items() if ratio < 4.5}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_class_colours_differ_for_those_who_see_fewer_colours(theme):
    c = colours()[theme]
    ten = linear(np.array([c[f"class-{i}"] for i in range(10)]))
    # Machado, Oliveira and Fernandes (2009): no red, no green, no blue cones.
    kinds = [
        np.eye(3),
        [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
        [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
    ]
    # Distances in Oklab, where 0.02 is about the least that is seen side by side.
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.63]])
    lab = np.array([[0.2105, 0.7936, -0.0041], [1.978, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    for kind in kinds:
        seen = np.cbrt(np.clip(ten @ np.transpose(kind), 0, 1) @ cones.T) @ lab.T
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + np.eye(10)
        assert apart.min() > 0.085
    for i in range(10):
        assert contrast(c[f"class-{i}"], c["plot"]) > 2


def test_shades_of_the_confusion_matrix_leave_its_numbers_readable():
    for theme in colours():
        for share in np.linspace(0, 1, 101):
            depth = shade(float(share), hit=True)
            text = theme["on-strong" if depth > 0.6 else "text"]
            # Mixed as light, which is near enough to how browsers mix in Oklab.
            mixed = (depth * theme["better"] + (1 - depth) * theme["sunken"]).clip(0, 1)
            assert contrast(mixed, text) > 4.3
