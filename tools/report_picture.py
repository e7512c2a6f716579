"""Draw the picture of the README: the answer of a report, and its neighbors before and after.

Parts of both sections are left out to keep the picture small.

Run by hand after ``make demo``; it needs Chromium, its driver and the extra ``test``:

    .venv/bin/python tools/report_picture.py clothes.html docs/_static/report.png
"""

from __future__ import annotations

import argparse
import io
import shutil
from pathlib import Path

from PIL import Image
from selenium import webdriver

#: Pixels of the picture per pixel of the page, and width of the page.
SCALE, WIDTH = 2, 1180
#: Number of improved rows that the picture shows.
CARDS = 4


def screenshots(page: Path) -> list[Image.Image]:
    """Return pictures of the answer and of the first neighbors that improved."""
    options = webdriver.ChromeOptions()
    for flag in ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WIDTH},6000"):
        options.add_argument(flag)
    options.add_argument(f"--force-device-scale-factor={SCALE}")
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.get(page.absolute().as_uri())
        driver.execute_script(
            """
            const left_out = '#answer .next, #answer .step, #answer .notes, #answer .figures, '
              + '#neighbors h3 .quiet';
            document.querySelectorAll(left_out).forEach(e => e.remove());
            const cards = document.querySelectorAll('#neighbors .cards');
            [...cards[0].parentNode.children].forEach(
              e => { if (cards[0].compareDocumentPosition(e) & 4) e.remove(); });
            [...cards[0].children].slice(arguments[0]).forEach(e => e.remove());
            """,
            CARDS,
        )
        found = []
        for selector in ("#answer", "#neighbors"):
            element = driver.find_element("css selector", selector)
            found.append(Image.open(io.BytesIO(element.screenshot_as_png)))
        return found
    finally:
        driver.quit()


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("page", type=Path, help="the report")
    parser.add_argument("out", type=Path, help="the .png file to write")
    options = parser.parse_args()
    parts = screenshots(options.page)
    width = max(part.width for part in parts)
    picture = Image.new("RGB", (width, sum(part.height for part in parts)), "white")
    top = 0
    for part in parts:
        picture.paste(part, (0, top))
        top += part.height
    picture.quantize(128).save(options.out, optimize=True)


if __name__ == "__main__":
    main()
