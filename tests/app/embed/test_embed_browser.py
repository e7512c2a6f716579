"""The page of an embedding in a real browser."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_swiss_roll

pytest.importorskip("jinja2", reason="the page needs jinja2")
pytest.importorskip("selenium", reason="selenium is not installed")

import browsing
from browsing import find, show
from selenium.webdriver import ActionChains, Keys

from nearfar import PCA, Isomap
from nearfar.app.embed import write_embedding

pytestmark = browsing.needed


@pytest.fixture(scope="module")
def roll():
    return make_swiss_roll(300, random_state=0)


@pytest.fixture(scope="module")
def pages(tmp_path_factory, roll):
    folder = tmp_path_factory.mktemp("embeddings")
    X, angle = roll
    halves = np.where(angle > np.median(angle), "outer", "inner")
    digits = load_digits()
    few = slice(0, 120)
    many = np.random.default_rng(0).normal(size=(20_000, 3))
    evil = ["</script><script>window.hacked=1</script>", "<img src=x onerror=window.hacked=1>"]
    made = {
        "flat": (Isomap(n_neighbors=8).fit(X), X, {"color": angle, "color_name": "angle"}),
        "deep": (PCA(3).fit(X), X, {"color": halves}),
        "digits": (
            PCA(2).fit(digits.data[few]),
            digits.data[few],
            {"color": digits.target[few], "image_shape": (8, 8)},
        ),
        "many": (PCA(3).fit(many), many, {"color": many[:, 0]}),
        "hostile": (PCA(2).fit(X), X, {"color": evil * 150, "name": evil[0]}),
    }
    return {
        name: write_embedding(learner, data, folder / f"{name}.html", **options).as_uri()
        for name, (learner, data, options) in made.items()
    }


@pytest.fixture
def browser(driver, pages):
    """Opens a page; afterwards nothing may stand in the console."""
    driver.get_log("browser")

    def open_page(name, width=1400, dark=False):
        browsing.open_page(driver, pages[name], width, dark)
        canvas = find(driver, "#canvas")[0]
        show(driver, canvas)
        return driver, canvas

    yield open_page
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def settled(driver):
    """Wait until what was asked for is drawn."""
    driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def view(driver, canvas):
    settled(driver)
    return [float(part) for part in canvas.get_attribute("data-view").split()]


def tip(driver):
    return find(driver, "#tip")[0]


def drag(driver, canvas, dx, dy):
    chain = ActionChains(driver).move_to_element(canvas).click_and_hold()
    chain.move_by_offset(dx // 2, dy // 2).move_by_offset(dx - dx // 2, dy - dy // 2)
    chain.release().perform()


def painted(driver):
    """How many pixels of the picture are no ground, and how many colours there are."""
    return driver.execute_script(
        "const c = document.getElementById('canvas');"
        "const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height)"
        ".data.buffer);"
        "const filled = d.filter((p) => p !== 0); return [filled.length, new Set(filled).size]"
    )


def test_the_canvas_takes_the_place_of_the_still_picture(browser):
    driver, canvas = browser("flat")
    assert canvas.is_displayed() and not find(driver, "svg.still")[0].is_displayed()
    assert canvas.get_attribute("data-points") == "300"
    filled, colours = painted(driver)
    assert filled > 3000 and colours > 16


def test_hovering_a_point_shows_its_row(browser, roll):
    driver, canvas = browser("flat")
    canvas.send_keys(*[Keys.ARROW_RIGHT] * 5)
    settled(driver)
    assert tip(driver).text.startswith("Row 4\n")
    x, y = map(float, canvas.get_attribute("data-at").split())
    canvas.send_keys(Keys.ESCAPE)
    assert not tip(driver).is_displayed()
    box = canvas.size
    ActionChains(driver).move_to_element_with_offset(
        canvas, round(x - box["width"] / 2), round(y - box["height"] / 2)
    ).perform()
    text = tip(driver).text
    row = int(re.match(r"Row (\d+)", text)[1])
    X, angle = roll
    assert re.search(rf"angle\s+{re.escape(f'{angle[row]:.4g}')}", text)
    assert re.search(rf"column 1\s+{re.escape(f'{X[row, 1]:.4g}')}", text)
    ActionChains(driver).move_to_element(find(driver, "h1")[0]).perform()
    assert not tip(driver).is_displayed()


def test_edges_are_drawn_on_demand(browser):
    driver, canvas = browser("flat")
    before = painted(driver)[0]
    button = find(driver, "#edges")[0]
    assert button.get_attribute("aria-pressed") == "false"
    assert canvas.get_attribute("data-edges") == "0"
    button.click()
    settled(driver)
    assert button.get_attribute("aria-pressed") == "true"
    n_edges = int(canvas.get_attribute("data-edges"))
    assert 300 * 8 / 2 <= n_edges <= 300 * 8
    assert painted(driver)[0] > before + 2000
    button.send_keys(Keys.SPACE)
    settled(driver)
    assert painted(driver)[0] == before


def test_dragging_turns_three_dimensions(browser):
    driver, canvas = browser("deep")
    first = view(driver, canvas)
    drag(driver, canvas, 120, 40)
    turned = view(driver, canvas)
    assert turned[:3] == first[:3]  # neither zoom nor shift
    R = np.array(turned[3:]).reshape(3, 3)
    assert np.abs(R - np.array(first[3:]).reshape(3, 3)).max() > 0.3
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=5e-3)  # a turn, nothing else
    find(driver, "#reset")[0].click()
    assert view(driver, canvas) == first


def test_dragging_moves_two_dimensions(browser):
    driver, canvas = browser("flat")
    first = view(driver, canvas)
    drag(driver, canvas, 60, -30)
    moved = view(driver, canvas)
    assert moved[1] - first[1] == pytest.approx(60, abs=4)
    assert moved[2] - first[2] == pytest.approx(-30, abs=4)
    assert not tip(driver).is_displayed()


def test_the_keyboard_turns_zooms_and_resets(browser):
    driver, canvas = browser("deep")
    first = view(driver, canvas)
    canvas.send_keys(Keys.SHIFT, Keys.ARROW_LEFT)
    assert view(driver, canvas)[3:] != first[3:]
    canvas.send_keys("+")
    assert view(driver, canvas)[0] == pytest.approx(1.3)
    canvas.send_keys("0")
    assert view(driver, canvas) == first


def test_zoom_keeps_the_middle_in_place(browser):
    driver, canvas = browser("flat")
    find(driver, "#closer")[0].click()
    assert view(driver, canvas)[:3] == [1.5, 0.0, 0.0]
    find(driver, "#farther")[0].click()
    assert view(driver, canvas)[:3] == [1.0, 0.0, 0.0]


def test_a_class_of_the_legend_stands_alone(browser):
    driver, canvas = browser("deep")
    before = painted(driver)
    button = find(driver, ".class-button")[1]
    button.click()
    settled(driver)
    assert button.get_attribute("aria-pressed") == "true"
    # The arrow keys walk through its rows only.
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert re.search(r"label\s+outer", tip(driver).text)
    canvas.send_keys(Keys.ESCAPE)
    button.click()
    settled(driver)
    assert painted(driver) == before


def test_images_are_shown_where_one_points_and_in_the_picture(browser):
    driver, canvas = browser("digits")
    canvas.send_keys(Keys.ARROW_RIGHT)
    size = driver.execute_async_script(
        "const image = document.querySelector('#tip img'), done = arguments[0];"
        "image.decode().then(() => done(image.naturalWidth))"
    )
    assert size == 8
    canvas.send_keys(Keys.ESCAPE)
    find(driver, "#pictures")[0].click()
    settled(driver)
    assert int(canvas.get_attribute("data-pictures")) > 10


def test_colours_follow_the_theme(browser):
    driver, _ = browser("deep")
    light = driver.execute_script("return document.getElementById('canvas').toDataURL()")
    find(driver, "#theme")[0].click()
    settled(driver)
    assert driver.execute_script("return document.getElementById('canvas').toDataURL()") != light
    find(driver, "#theme")[0].click()
    settled(driver)
    assert driver.execute_script("return document.getElementById('canvas').toDataURL()") == light


def test_twenty_thousand_points_turn_fluently(browser):
    driver, canvas = browser("many")
    assert canvas.get_attribute("data-points") == "20000"
    # The program's own time for a frame, whatever else the machine does: the best of ten.
    best = driver.execute_async_script(
        "const done = arguments[0], canvas = document.getElementById('canvas');"
        "let best = 1e9, k = 0;"
        "const step = () => {"
        "  canvas.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', shiftKey: true}));"
        "  requestAnimationFrame(() => {"
        "    const began = performance.now();"
        "    requestAnimationFrame(() => {"
        "      best = Math.min(best, performance.now() - began);"
        "      k += 1; if (k < 10) step(); else done(best); }); }); };"
        "step();"
    )
    assert best < 250


def test_a_still_picture_is_printed(browser):
    driver, canvas = browser("deep")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert find(driver, "svg.still")[0].is_displayed() and not canvas.is_displayed()
        assert not find(driver, "#tools")[0].is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_script_the_picture_and_the_words_are_there(driver, pages):
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get(pages["deep"])
        assert find(driver, "svg.still")[0].is_displayed()
        assert not find(driver, "#canvas")[0].is_displayed()
        assert not find(driver, "#tools")[0].is_displayed()
        assert "PCA drew 300 rows in 3 dimensions" in find(driver, "h1")[0].text
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("name", ["flat", "deep", "digits", "hostile"])
def test_a_phone_never_scrolls_sideways(browser, name):
    driver, _ = browser(name, width=390)
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 390


def test_hostile_texts_run_nothing(browser):
    driver, canvas = browser("hostile")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert "</script>" in tip(driver).text
    assert driver.execute_script("return window.hacked") is None
