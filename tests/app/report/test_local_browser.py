"""A row that is clicked on: its metric, its voters and what made them near."""

import pytest
from sklearn.datasets import load_wine

pytest.importorskip("jinja2", reason="the report needs jinja2")
pytest.importorskip("selenium", reason="selenium is not installed")

import browsing
from browsing import find

from nearfar import compare
from nearfar.app.report import write

pytestmark = browsing.needed


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    wine = load_wine(as_frame=True)
    quick = {"repeats": 1, "tuning": "k", "isolate": False, "verbose": False, "context": False}
    found = compare(wine.data[::2], wine.target[::2], methods=["dann", "short-fukunaga"], **quick)
    return write(found.document, tmp_path_factory.mktemp("page") / "report.html")


@pytest.mark.parametrize("width", [400, 1400])
def test_a_click_opens_the_metric_and_the_voters_of_a_row(driver, page, width):
    driver.get_log("browser")
    browsing.open_page(driver, page.as_uri(), width)
    first, second = find(driver, "#local details.explained")[:2]
    assert not find(first, ".voters")[0].is_displayed()
    for one in (first, second):
        summary = find(one, "summary")[0]
        browsing.show(driver, summary)
        summary.click()
        assert find(one, ".voters")[0].is_displayed()
        bars = find(one, "svg.relevance rect")
        widths = [bar.size["width"] for bar in bars]
        assert len(bars) == 9  # eight features, and all others as one
        assert widths[0] == max(widths[:-1]) > 0
    # One row at a time.
    assert not find(first, ".voters")[0].is_displayed()
    assert find(second, ".voters tbody tr")
    inside = driver.execute_script(
        "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    assert inside
    assert [one for one in driver.get_log("browser") if one["level"] == "SEVERE"] == []
