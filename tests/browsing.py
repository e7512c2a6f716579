"""A real browser for the tests of pages: Debian's chromium, driven by selenium."""

import os
import shutil

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")

from selenium import webdriver
from selenium.webdriver import ActionChains, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

CHROMIUM = shutil.which("chromium")
CHROMEDRIVER = shutil.which("chromedriver")
needed = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(CHROMEDRIVER is None, reason="chromedriver is not installed"),
]

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1400,1000",
)


def started(profile):
    """A driver with a profile of its own."""
    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # No proxy between the test and the driver on this machine.
    os.environ.setdefault("NO_PROXY", "localhost,127.0.0.1")
    return webdriver.Chrome(options=options, service=Service(CHROMEDRIVER))


def open_page(driver, address, width=1400, dark=False):
    """Open a page at a width, with nothing remembered."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(address)
    driver.execute_script(
        "localStorage.clear(); document.documentElement.style.scrollBehavior = 'auto'"
    )
    return driver


def find(driver, selector):
    return driver.find_elements(By.CSS_SELECTOR, selector)


def show(driver, element):
    """Scroll to an element and wait until the page has noticed."""
    driver.execute_async_script(
        "arguments[0].scrollIntoView({block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(arguments[1]))",
        element,
    )


def hover(driver, element):
    show(driver, element)
    ActionChains(driver).move_to_element(element).perform()
    return find(driver, "#tip")[0].text
