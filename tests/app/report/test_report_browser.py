"""The report in a real browser: Debian's chromium, driven by selenium."""

import csv
import re
import time

import pytest
import report_documents as documents

pytest.importorskip("jinja2", reason="the report needs jinja2")
pytest.importorskip("selenium", reason="selenium is not installed")

import browsing
from browsing import find, hover, show
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By

from nearfar.app.report import write
from nearfar.app.report.words import interval, megabytes, percent, points, seconds

pytestmark = browsing.needed


@pytest.fixture(scope="module")
def made():
    """The documents by name."""
    wine = documents.wine()
    return {
        "wine": wine,
        "digits": documents.digits(),
        "hidden": documents.without_rows(wine),
        "hostile": documents.hostile(),
        "interrupted": documents.interrupted(),
        "failed": documents.all_failed(),
        "wide": documents.wide(),
        "embeddings": documents.embeddings(),
    }


@pytest.fixture(scope="module")
def pages(tmp_path_factory, made):
    """The file of each document, written once."""
    folder = tmp_path_factory.mktemp("reports")
    return {name: write(made[name], folder / f"{name}.html").as_uri() for name in made}


@pytest.fixture
def browser(driver, pages):
    """Opens a page at a width; afterwards nothing may stand in the console."""
    driver.get_log("browser")

    def open_page(name, width=1400, dark=False):
        return browsing.open_page(driver, pages[name], width, dark)

    yield open_page
    severe = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def test_answer_and_leaderboard_are_read(browser):
    driver = browser("wine")
    assert find(driver, "h1")[0].text.startswith(
        "Use LMNN: 1.3% error vs 4.1% for the best standard distance"
    )
    rows = [row.text for row in find(driver, "#board tbody tr")]
    assert rows[0].startswith("LMNN")
    assert "1.3%" in rows[0]
    assert "+2.8" in rows[0]
    assert any("MCML" in row and "failed" in row and "singular" in row for row in rows)
    # Nothing was asked of any network.
    loaded = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert [name for name in driver.execute_script(loaded) if not name.startswith("data:")] == []


def test_only_the_script_of_the_page_is_run(browser):
    """By its hash; one that got into the page some other way is not."""
    driver = browser("digits")
    driver.execute_script(
        "const script = document.createElement('script');"
        "script.textContent = 'window.smuggled = true';"
        "document.body.append(script);"
        "document.body.insertAdjacentHTML('beforeend', '<i onclick=window.smuggled=true>');"
        "document.body.lastElementChild.click()"
    )
    assert driver.execute_script("return window.smuggled") is None
    logged = driver.get_log("browser")  # read, and so not counted as trouble
    assert any("Content Security Policy" in entry["message"] for entry in logged)


def test_the_cells_of_the_confusion_matrix_are_shaded(browser):
    driver = browser("digits")
    looks = "return [...document.querySelectorAll('.confusion td')].map(c => getComputedStyle(c)"
    assert len(set(driver.execute_script(f"{looks}.backgroundColor)"))) > 3


def test_a_column_sorts_both_ways_with_empty_cells_last(browser):
    driver = browser("wine")
    button = next(b for b in find(driver, "#board button.sort") if b.text.startswith("Fit"))
    head = button.find_element(By.XPATH, "..")

    def cells():
        rows = "[...document.querySelector('#board').tBodies[0].rows]"
        return driver.execute_script(f"return {rows}.map(row => row.cells[6].innerText)")

    assert head.get_attribute("aria-sort") == "none"
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert cells()[0] == "< 0.001"
    assert cells()[-4:] == ["1.9", "3.1", "61", "–"]
    button.send_keys(Keys.ENTER)
    assert head.get_attribute("aria-sort") == "descending"
    assert cells()[:3] == ["61", "3.1", "1.9"]
    assert cells()[-2:] == ["< 0.001", "–"]
    sorted_by = [h for h in find(driver, "#board th[aria-sort]") if h != head]
    assert {h.get_attribute("aria-sort") for h in sorted_by} == {"none"}


def test_methods_sort_by_name(browser):
    driver = browser("wine")
    find(driver, "#board button.sort")[0].click()
    names = [cell.text for cell in find(driver, "#board .method")]
    assert names == sorted(names, key=str.casefold)


def test_hovering_a_point_shows_its_row_and_finds_it_in_all_maps(browser):
    driver = browser("wine")
    document = documents.wine()
    point = find(driver, "svg.map [data-i='3']")[0]
    text = hover(driver, point)
    row = document["maps"]["rows"][3]
    assert text.startswith(f"Row {row}\nclass")
    assert document["data"]["classes"][document["held_out"]["true"][row]] in text
    proline = document["rows"]["values"][str(row)][document["rows"]["columns"].index("proline")]
    assert re.search(rf"proline\s+{re.escape(proline)}\b", text)
    assert len(find(driver, "svg.map .on")) == 4


def test_hovering_shows_no_values_when_rows_are_hidden(browser):
    driver = browser("hidden")
    document = documents.wine()
    text = hover(driver, find(driver, "svg.map [data-i='3']")[0])
    row = document["maps"]["rows"][3]
    assert text.startswith(f"Row {row}\nclass")
    assert "predicted" in text
    assert not [name for name in document["rows"]["columns"] if name in text]
    words = set(text.split())
    assert not words & (set(document["rows"]["values"][str(row)]) - {str(row)})


def test_hovering_an_image_shows_it(browser):
    driver = browser("digits")
    hover(driver, find(driver, "svg.map [data-i='3']")[0])
    width = "return document.querySelector('#tip img').naturalWidth"
    assert driver.execute_script(width) == 8


def test_arrow_keys_walk_through_a_map(browser):
    driver = browser("wine")
    rows = documents.wine()["maps"]["rows"]
    map_ = find(driver, "svg.map")[0]
    show(driver, map_)
    map_.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert find(driver, "#tip")[0].text.startswith(f"Row {rows[1]}\n")
    map_.send_keys(Keys.ESCAPE)
    assert not find(driver, "#tip")[0].is_displayed()


def test_hovering_a_fold_tells_its_difference(browser):
    driver = browser("wine")
    assert "points" in hover(driver, find(driver, "#paired circle.fold")[0])


def test_a_class_of_the_legend_stands_alone(browser):
    driver = browser("wine")
    button = find(driver, ".class-button")[1]
    show(driver, button)
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    marks = "[...document.querySelectorAll('svg.map [data-i]:not(.dim)')]"
    bright = driver.execute_script(f"return {marks}.map(mark => mark.classList[0])")
    assert set(bright) == {"c1"}
    button.click()
    assert not find(driver, "svg.map .dim")


def test_the_theme_follows_the_system_until_the_button_is_used(browser):
    ground = "return getComputedStyle(document.body).backgroundColor"

    def light(driver):
        return min(map(int, re.findall(r"\d+", driver.execute_script(ground))[:3])) > 200

    driver = browser("wine", dark=True)
    assert not light(driver)
    driver = browser("wine")
    assert light(driver)
    button = find(driver, "#theme")[0]
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert not light(driver)
    assert button.get_attribute("aria-pressed") == "true"
    button.send_keys(Keys.SPACE)
    assert light(driver)


def test_code_can_be_copied(browser):
    driver = browser("wine")
    button = find(driver, "#protocol button.copy")[1]
    show(driver, button)
    button.click()
    # The clipboard may be closed to headless browsers; then the code is selected instead.
    selected = driver.execute_async_script(
        "const done = arguments[0]; setTimeout(() => done([getSelection().toString(), "
        "document.querySelectorAll('#protocol button.copy')[1].textContent]), 200)"
    )
    assert selected[1] == "Copied" or "make_pipeline" in selected[0]


@pytest.mark.parametrize("name", ["wine", "digits", "hostile", "interrupted", "failed"])
def test_a_phone_never_scrolls_sideways(browser, name):
    driver = browser(name, width=390)
    assert driver.execute_script("return innerWidth") == 390
    driver.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= 390
    # Other wide tables scroll inside their frames; the leaderboard is no table any more.
    for board in find(driver, "#leaderboard .scroll"):
        inside = "return arguments[0].scrollWidth <= arguments[0].clientWidth"
        assert driver.execute_script(inside, board)


CUT = """
const frame = document.querySelector('#leaderboard .frame').getBoundingClientRect();
const cut = [];
for (const cell of document.querySelectorAll('#board tbody td.num')) {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    if (!texts.currentNode.data.trim()) continue;
    const range = document.createRange();
    range.selectNodeContents(texts.currentNode);
    for (const box of range.getClientRects()) {
      const own = cell.getBoundingClientRect();
      const inside = box.left >= own.left - 0.5 && box.right <= own.right + 0.5
        && box.left >= frame.left - 0.5 && box.right <= frame.right + 0.5
        && box.right <= innerWidth && box.width > 0 && box.height > 0;
      const x = (box.left + box.right) / 2;
      scrollTo(0, scrollY + box.top - 500);
      const now = range.getClientRects()[0];
      const top = document.elementFromPoint(x, (now.top + now.bottom) / 2);
      if (!inside || !(cell.contains(top))) cut.push(cell.textContent.trim());
    }
  }
}
return cut;
"""


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 760, 1100, 1400])
@pytest.mark.parametrize("name", ["wine", "interrupted", "wide", "embeddings"])
def test_no_number_of_the_leaderboard_is_cut(browser, made, name, width, dark):
    driver = browser(name, width=width, dark=dark)
    frame = find(driver, "#leaderboard .frame")[0]
    sizes = "return [arguments[0].scrollWidth, arguments[0].clientWidth]"
    inside, seen = driver.execute_script(sizes, frame)
    assert inside <= seen
    assert driver.execute_script(CUT) == []
    # What stands there is what the document holds.
    rows = "return [...document.querySelectorAll('#board tbody tr')].map(row => row.innerText)"
    texts = driver.execute_script(rows)
    assert len(texts) == len(made[name]["methods"])
    for text, method in zip(texts, made[name]["methods"], strict=True):
        text = text.replace("\u00a0", " ")
        measured = method.get("kept") if name == "embeddings" else method["error"]
        gain = method["difference"]
        gain = gain if gain is None or name == "embeddings" else -gain
        wanted = [percent(measured), interval(method["interval"]), points(gain)]
        wanted += [seconds(method.get("fit_seconds")), megabytes(method.get("peak_mb"))]
        for value in wanted:
            assert value.replace("\u00a0", " ") in text


def test_the_leaderboard_can_be_downloaded(browser, made, driver, tmp_path):
    allow = {"behavior": "allow", "downloadPath": str(tmp_path)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", allow)
    browser("wine")
    find(driver, "details.csv summary")[0].click()
    find(driver, "a.download")[0].click()
    path = tmp_path / "wine-leaderboard.csv"
    for _ in range(100):
        if path.exists() and path.read_text("utf-8").endswith("\n"):
            break
        time.sleep(0.05)
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    assert [row["method"] for row in rows] == [m["label"] for m in made["wine"]["methods"]]
    assert float(rows[0]["error"]) == made["wine"]["methods"][0]["error"]
    assert float(rows[0]["gain"]) == -made["wine"]["methods"][0]["difference"]


def test_the_table_can_be_copied(browser):
    driver = browser("wine")
    find(driver, "details.csv summary")[0].click()
    button = find(driver, "button.copy[data-copy='board-csv']")[0]
    show(driver, button)
    button.click()
    told = driver.execute_async_script(
        "const done = arguments[0]; setTimeout(() => done([getSelection().toString(), "
        "document.querySelector('button.copy[data-copy=board-csv]').textContent]), 200)"
    )
    assert told[1] == "Copied" or told[0].startswith("method,role,status")


def test_a_confused_pair_opens_to_its_rows(browser):
    driver = browser("wine")
    pair = find(driver, "#classes .pairs details")[0]
    assert not pair.find_elements(By.CSS_SELECTOR, "table")[0].is_displayed()
    show(driver, pair)
    pair.find_element(By.CSS_SELECTOR, "summary").click()
    assert pair.find_elements(By.CSS_SELECTOR, "tbody tr")[0].is_displayed()


def test_hostile_texts_run_nothing(browser):
    driver = browser("hostile")
    assert driver.execute_script("return window.hacked") is None
    text = hover(driver, find(driver, "svg.map [data-i='3']")[0])
    assert "</script><script>" in text
    assert driver.execute_script("return window.hacked") is None
    assert find(driver, "#tip script") == []
