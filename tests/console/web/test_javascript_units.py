"""Unit tests of the console's scripts in a browser: each `test("…")` of javascript/*.test.js is a test here.

The browser gets all files from the test, without a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.console.web.browser import start_browser
from tests.console.web.buttons import STATIC

pytestmark = pytest.mark.slow

SOURCES: Final = Path(__file__).parent / "javascript"
ORIGIN: Final = "http://console.test"
TIME_ZONE: Final = "America/St_Johns"
"""A zone with an offset of half an hour and daylight saving time."""
DECLARATION: Final = re.compile(r'^test\(\s*"([^"]+)"', re.MULTILINE)
TESTS: Final = [
    (path.name, name)
    for path in sorted(SOURCES.glob("*.test.js"))
    for name in DECLARATION.findall(path.read_text(encoding="utf-8"))
]
RUN: Final = """async (files) => {
    const { run } = await import("/tests/harness.js");
    for (const file of files) await import(`/tests/${file}`);
    return run();
}"""


def serve(route: Any) -> None:
    """Respond to a request of the browser with a file of the console or of the tests."""
    path = route.request.url.removeprefix(ORIGIN).partition("#")[0]
    for prefix, directory in (("/ui/", STATIC), ("/tests/", SOURCES)):
        if path.startswith(prefix):
            route.fulfill(path=directory / path.removeprefix(prefix), content_type="text/javascript")
            return
    route.fulfill(body="<!doctype html>", content_type="text/html")


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, str | None]]:
    """Run all tests in one page; return their errors by name."""
    with start_browser() as browser:
        page = browser.new_context(timezone_id=TIME_ZONE, locale="de-DE").new_page()
        page.route(f"{ORIGIN}/**", serve)
        page.goto(ORIGIN)
        yield dict(page.evaluate(RUN, sorted({file for file, _ in TESTS})))


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_javascript(file: str, name: str, results: dict[str, str | None]) -> None:
    assert results[name] is None, results[name]


def test_all_javascript_tests_are_collected(results: dict[str, str | None]) -> None:
    assert sorted(results) == sorted(name for _, name in TESTS)
    assert len(TESTS) > 30
