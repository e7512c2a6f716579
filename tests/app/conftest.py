"""One browser for all tests of pages."""

import pytest


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    """Started once in each process of the tests: that takes longer than most tests of a page."""
    import browsing  # here: it skips the module that imports it where selenium is missing

    driver = browsing.started(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def driver(chromium):
    """The browser; no page of one module is left to work in the next."""
    yield chromium
    chromium.get("about:blank")
