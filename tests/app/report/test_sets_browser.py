"""The pages of sets in a real browser: marks, names, ellipses."""

import base64
import json

import numpy as np
import pytest

pytest.importorskip("jinja2", reason="the page needs jinja2")
pytest.importorskip("selenium", reason="selenium is not installed")

import browsing
from browsing import find, show
from selenium.webdriver import ActionChains, Keys

from nearfar import Sets
from nearfar.app.cli import main
from nearfar.datasets import make_sets

pytestmark = browsing.needed

EVIL = "</script><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def sets():
    made = make_sets(12, 3, 3, sizes=(8, 20), random_state=0)
    names = [EVIL, *(f"u{i}" for i in range(1, 36))]
    return Sets(made.X, made.offsets, np.array(["ah", "eh", "oh"])[made.labels], names)


@pytest.fixture(scope="module")
def pages(tmp_path_factory, sets):
    folder = tmp_path_factory.mktemp("sets")
    data = str(folder / "s.npz")
    sets.save(data)
    quick = ["--repeats", "1", "--tuning", "k", "--in-process", "--methods", "hellinger"]
    found = {"compare": folder / "c.html", "embed": folder / "e.html", "hidden": folder / "h.html"}
    metric = ["--set", "metric=hellinger"]
    assert main(["compare", data, *quick, "--out", str(found["compare"])]) == 0
    assert main(["embed", data, *metric, "--out", str(found["embed"])]) == 0
    assert main(["embed", data, "--no-rows", "--out", str(found["hidden"])]) == 0
    return {name: path.as_uri() for name, path in found.items()}


@pytest.fixture
def browser(driver, pages):
    """Opens a page; afterwards nothing may stand in the console."""
    driver.get_log("browser")

    def open_page(name, width=1400):
        browsing.open_page(driver, pages[name], width)
        canvas = find(driver, "#canvas")[0]
        show(driver, canvas)
        return driver, canvas

    yield open_page
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == [] and driver.execute_script("return window.hacked") is None


def points(driver):
    return json.loads(find(driver, "#points")[0].get_attribute("textContent"))


def listed(driver):
    """Names and dissimilarities in the table beside the ellipses."""
    rows = find(driver, "#ellipse-table tbody tr")
    return [row.text.split() for row in rows]


@pytest.mark.parametrize("name", ["compare", "embed"])
def test_keys_walk_to_a_set_and_enter_shows_its_ellipse(browser, name):
    driver, canvas = browser(name)
    assert EVIL[:20] in find(driver, "#ellipse-said")[0].text  # the first set, from the start
    for _ in range(8):
        canvas.send_keys(Keys.ARROW_RIGHT)
    tip = find(driver, "#tip")[0].text
    assert tip.startswith("u7") and "ah" in tip and "vectors" in tip
    canvas.send_keys(Keys.ENTER)
    assert find(driver, "#ellipse-said")[0].text.startswith("u7 (ah): ")
    rows = listed(driver)
    assert len(rows) == 6 and len(find(driver, "#ellipse-plot ellipse")) == 6
    far = [float(row[-1]) for row in rows[1:]]
    assert far == sorted(far)
    # Its neighbors are buttons that lead on.
    button = find(driver, "#ellipse-table button")[0]
    wanted = button.text
    button.send_keys(Keys.ENTER)
    assert find(driver, "#ellipse-said")[0].text.startswith(wanted)
    assert driver.switch_to.active_element.tag_name == "button"


def test_a_click_chooses_and_a_drag_does_not(browser):
    driver, canvas = browser("embed")
    canvas.send_keys(Keys.ARROW_RIGHT)
    for _ in range(4):
        canvas.send_keys(Keys.ARROW_RIGHT)
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    x, y = map(float, canvas.get_attribute("data-at").split())
    box = canvas.size
    at = (round(x - box["width"] / 2), round(y - box["height"] / 2))
    ActionChains(driver).move_to_element_with_offset(canvas, *at).click().perform()
    chosen = find(driver, "#ellipse-panel")[0].get_attribute("data-chosen")
    titles = points(driver)["titles"]
    assert find(driver, "#tip")[0].text.startswith(titles[int(chosen)])
    assert find(driver, "#ellipse-said")[0].text.startswith(titles[int(chosen)])
    moves = ActionChains(driver).move_to_element_with_offset(canvas, at[0] + 90, at[1] + 60)
    moves.click_and_hold().move_by_offset(-30, -20).move_by_offset(-30, -20).release().perform()
    assert find(driver, "#ellipse-panel")[0].get_attribute("data-chosen") == chosen


def test_the_ellipse_is_that_of_the_covariance(browser):
    driver, _ = browser("embed")
    data = points(driver)
    raw = np.frombuffer(base64.b64decode(data["ellipses"]), "<f4").reshape(-1, 5)
    a, b, c = raw[0, 2:].astype(float)
    values = np.linalg.eigvalsh([[a, b], [b, c]])
    drawn = find(driver, "#ellipse-plot g.chosen ellipse")[0]
    rx, ry = (float(drawn.get_attribute(name)) for name in ("rx", "ry"))
    assert rx / ry == pytest.approx(np.sqrt(values[1] / values[0]), rel=0.02)


def test_a_class_of_the_legend_alone(browser):
    driver, canvas = browser("compare")
    button = find(driver, "#maps button.class-button")[1]
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert "eh" in find(driver, "#tip")[0].text
    button.click()
    assert button.get_attribute("aria-pressed") == "false"


@pytest.mark.parametrize("name", ["compare", "embed"])
def test_a_phone_needs_no_sideways_scrolling(browser, name):
    driver, _ = browser(name, width=390)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 390


def test_nothing_is_named_where_rows_are_hidden(browser):
    driver, canvas = browser("hidden")
    assert not find(driver, "#ellipse-panel")
    canvas.send_keys(Keys.ARROW_RIGHT)
    canvas.send_keys(Keys.ENTER)
    assert find(driver, "#tip")[0].text.startswith("Set 0")
