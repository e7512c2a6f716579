"""The page of a comparison by pairs in a real browser."""

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="the report needs jinja2")
pytest.importorskip("selenium", reason="selenium is not installed")

import browsing
from browsing import find
from sklearn.datasets import load_wine

from nearfar import Pairs, compare

pytestmark = browsing.needed


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    frame, y = load_wine(return_X_y=True, as_frame=True)
    pairs = Pairs.from_labels(y, n_similar=400, n_dissimilar=400, random_state=0)
    result = compare(
        frame,
        supervision=pairs,
        methods="rca",
        repeats=1,
        tuning="k",
        isolate=False,
        verbose=False,
    )
    return result.to_html(tmp_path_factory.mktemp("pages") / "pairs.html").as_uri()


@pytest.fixture
def browser(driver, page):
    driver.get_log("browser")

    def open_page(width=1400):
        return browsing.open_page(driver, page, width)

    yield open_page
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_nothing_is_wider_than_the_page(browser, width):
    driver = browser(width)
    wide = "return document.documentElement.scrollWidth"
    assert driver.execute_script(wide) <= width
    for chart in find(driver, ".mirrored, .roc-plot"):
        assert 200 < chart.size["width"] <= width and chart.size["height"] > 120


def test_both_histograms_the_threshold_and_the_curves_are_seen(browser):
    driver = browser()
    assert len(find(driver, ".mirrored")) == 2
    for chart in find(driver, ".mirrored"):
        alike, different = (find(chart, f"rect.{kind}") for kind in ("alike", "different"))
        middle = np.mean([bar.rect["y"] for bar in different])
        assert all(bar.rect["y"] < middle for bar in alike) and find(chart, "line.cut")
        cut = find(chart, "line.cut")[0].rect["x"]
        # What is called wrongly: alike beyond the threshold, different before it.
        assert all(bar.rect["x"] >= cut - 1 for bar in find(chart, "rect.alike.wrong"))
        assert all(bar.rect["x"] < cut + 1 for bar in find(chart, "rect.different.wrong"))
        right = find(chart, "rect.alike:not(.wrong)")
        assert right and all(bar.rect["x"] < cut for bar in right)
    assert len(find(driver, ".roc")) == 2 and len(find(driver, ".roc-point")) == 2


def test_the_leaderboard_sorts_by_the_area(browser):
    driver = browser()

    def areas():
        cells = find(driver, "#board tbody td:nth-child(2)")
        return [float(cell.text.split("\n")[0].removesuffix("%")) for cell in cells]

    assert areas() == sorted(areas(), reverse=True)
    head = find(driver, "#board thead th:nth-child(2)")[0]
    assert head.get_attribute("aria-sort") == "descending"
    find(head, "button.sort")[0].click()
    assert areas() == sorted(areas())
