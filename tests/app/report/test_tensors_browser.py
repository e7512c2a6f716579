"""The section of tensors in a real browser, wide and narrow."""

import json

import numpy as np
import pytest
from tensor_learners import stripes

pytest.importorskip("jinja2", reason="the report needs jinja2")
pytest.importorskip("selenium", reason="selenium is not installed")

import browsing
from browsing import find

from nearfar import GTA, GTDA, LDA, LSSTM, TR1A, compare
from nearfar.app.report import write

pytestmark = browsing.needed


@pytest.fixture(scope="module")
def document():
    images, y = stripes(60, shape=(8, 6, 3))
    quick = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}
    methods = {"gta": GTA(2), "gtda": GTDA(2), "tr1a": TR1A(9), "lda": LDA()}
    return compare(images, y, methods=methods, **quick).document


@pytest.fixture(scope="module")
def pages(tmp_path_factory, document):
    folder = tmp_path_factory.mktemp("pages")
    hidden = document | {"rows": None, "images": None}
    hostile = json.loads(json.dumps(document))
    found = hostile["tensors"]["gta"]
    found["eigen"][0]["picture"] = "https://example.org/x.png"
    found["eigen"][1]["picture"] = 'data:image/png;base64,AA"><script>window.smuggled=1</script>'
    found["samples"][0]["original"] = None
    found["factors"][0]["columns"] = [["<b>", None, float("nan")]]
    found["shape"] = ["<script>window.smuggled=1</script>"]
    made = {"plain": document, "hidden": hidden, "hostile": hostile}
    return {name: write(one, folder / f"{name}.html") for name, one in made.items()}


@pytest.fixture
def browser(driver, pages):
    """Opens a page with all panels of tensors; afterwards nothing may stand in the console."""
    driver.get_log("browser")

    def open_page(name, width):
        browsing.open_page(driver, pages[name].as_uri(), width)
        driver.execute_script(
            "document.querySelectorAll('details.tensor').forEach(one => one.open = true)"
        )
        return driver

    yield open_page
    assert [one for one in driver.get_log("browser") if one["level"] == "SEVERE"] == []


@pytest.mark.parametrize(("width", "fewest", "in_line"), [(400, 70, 3), (1400, 70, 8)])
def test_pictures_and_curves_fit_the_page(browser, pages, width, fewest, in_line):
    driver = browser("plain", width)
    assert pages["plain"].stat().st_size < 5_000_000
    assert len(find(driver, "#tensors details.tensor")) == 3
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    shown = driver.execute_script(
        "return [...document.querySelectorAll('#tensors .tensor-pictures img')].map(one => "
        "[one.naturalWidth, one.getBoundingClientRect().width, one.getBoundingClientRect().left,"
        " one.getBoundingClientRect().right, one.alt])"
    )
    assert len(shown) == 3 * (8 + 2 * 6)
    for natural, wide, left, right, words in shown:
        assert natural == 6 and wide >= fewest and words
        assert left >= 0 and right <= width
    eigen = find(driver, ".tensor-pictures")[0].find_elements("css selector", "img")
    heights = [one.rect["y"] for one in eigen]
    assert heights.count(heights[0]) >= in_line
    curves = find(driver, "#tensors .tensor-curves .sparkline")
    assert curves and all(one.size["width"] >= 50 for one in curves)
    assert find(driver, "a[href='#tensors']")


def test_what_is_kept_is_said_and_not_more(browser):
    text = find(browser("plain", 1400), "#tensors")[0].text
    assert "8 × 6 × 3 to" in text and "of the variance kept" in text
    assert "says nothing of how well classes are told apart" in text


def test_originals_and_rebuilt_stand_below_one_another(browser):
    driver = browser("plain", 1400)
    pair = find(driver, ".tensor-pictures")[1].find_elements("css selector", "figure")[0]
    above, below = pair.find_elements("css selector", "img")
    assert above.rect["x"] == below.rect["x"] and above.rect["y"] < below.rect["y"]
    assert above.get_attribute("src") != below.get_attribute("src")


def test_no_row_is_seen_where_none_may_be(browser):
    driver = browser("hidden", 1400)
    assert len(find(driver, "#tensors img")) == 3 * 8
    assert "not shown, as asked" in find(driver, "#tensors")[0].text


def test_nothing_but_pictures_becomes_a_picture(browser):
    driver = browser("hostile", 1400)
    assert driver.execute_script("return window.smuggled") is None
    sources = [one.get_attribute("src") for one in find(driver, "#tensors img")]
    assert len(sources) == 3 * 20 - 2 - 2
    assert all(one.startswith("data:image/png;base64,") for one in sources)


@pytest.mark.parametrize("width", [400, 1400])
def test_weights_of_classifiers_stand_below_the_maps(driver, tmp_path, width):
    images, y = stripes(60, shape=(8, 6))
    names = np.array(["ann", "<b>bob</b>", "cy"])[y]
    quick = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}
    methods = {"gta": GTA(2), "lsstm": LSSTM(rank=2)}
    document = compare(images, names, methods=methods, **quick).document
    hostile = json.loads(json.dumps(document))
    hostile["tensors"]["lsstm"]["weights"][0]["picture"] = "https://example.org/x.png"
    alone = document | {"tensors": {"lsstm": document["tensors"]["lsstm"]}}
    wanted = {"plain": (document, 2, 3), "hostile": (hostile, 2, 2), "alone": (alone, 1, 3)}
    for name, (one, panels, pictures) in wanted.items():
        page = write(one, tmp_path / f"{name}.html")
        browsing.open_page(driver, page.as_uri(), width)
        driver.execute_script(
            "document.querySelectorAll('details.tensor').forEach(one => one.open = true)"
        )
        assert len(find(driver, "#tensors details.tensor")) == panels
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
        shown = find(driver, "#tensors details.machine img")
        assert len(shown) == pictures and all(image.size["width"] >= 70 for image in shown)
    text = find(driver, "#tensors")[0].text
    assert "These are no distances." in text and "rank 2; 3 weight tensors" in text
    assert shown[0].get_attribute("alt") == "Weights of ann against <b>bob</b>"
    assert "map each mode" not in text  # there is no map on this page


def test_neighbors_are_images(browser):
    driver = browser("plain", 1400)
    cards = find(driver, "#neighbors .card")
    assert not cards or find(driver, "#neighbors .card img")


def test_a_document_of_old_has_no_such_section(driver, document, tmp_path):
    old = {key: value for key, value in document.items() if key != "tensors"}
    page = write(old, tmp_path / "old.html")
    browsing.open_page(driver, page.as_uri(), 1400)
    assert not find(driver, "#tensors") and find(driver, "#features")
