"""The console with many topics and messages: page load times, response sizes, and one stream for all tabs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from chronik.client.admin import NewTopic, create_topics
from chronik.config import Address
from chronik.testing.plugin import BrokerFactory
from chronik.testing.ports import HOST, ReservedPorts
from tests import run_size
from tests.console.web.browser import ConsoleTab, start_browser

SECONDS_MAX = 1.0 if run_size.IS_LONG_RUN else 10.0
"""The limit in short runs is ten times higher, for busy machines."""
BYTES_MAX = 1_000_000
TOPICS, MESSAGES = run_size.sized(300, 10_000), run_size.sized(5_000, 1_000_000)
TABS = 10
TOKEN = "correct-horse"


@pytest.fixture
def http() -> Iterator[Address]:
    reserved = ReservedPorts(1)
    yield Address(HOST, reserved.ports[0])
    reserved.release()


def test_pages_load_quickly_with_many_topics_and_messages(
    chronik_broker_factory: BrokerFactory, http: Address, record_property: Callable[[str, object], None]
) -> None:
    broker = chronik_broker_factory(http=str(http), http_token=TOKEN)
    with broker.cluster() as client:
        for first in range(0, TOPICS, 1000):
            create_topics(client, [NewTopic(f"topic-{n:05}", 1) for n in range(first, min(first + 1000, TOPICS))])
        create_topics(client, [NewTopic("many", 1)])
    _produce(broker.bootstrap)
    with start_browser() as started:
        tab = ConsoleTab(started, str(http))
        sizes: list[int] = []
        tab.page.on("response", lambda response: sizes.append(_size(response)))
        tab.page.goto(tab.address)
        tab.page.get_by_label("Token").fill(TOKEN)
        tab.press("log-in")
        tab.page.get_by_role("heading", name="Overview").wait_for()
        load_seconds = {
            "overview": _time(tab, "/overview", ".verdict-text"),
            "topics": _time(tab, "/topics", "tbody tr:nth-child(50)"),
            "search": _time(tab, "/topics?search=00123", "tbody tr[data-key='topic-00123']:only-child"),
            "topic": _time(tab, "/topics/many", "tbody tr"),
            "messages": _time(tab, "/topics/many?tab=messages", "tr.message:nth-child(50)"),
            "by offset": _time(
                tab,
                f"/topics/many?tab=messages&partition=0&from={MESSAGES // 2}",
                f"tr[data-place='0:{MESSAGES // 2}']",
            ),
            "groups": _time(tab, "/groups", "tbody tr"),
        }
        record_property(
            "summary", f"console, {TOPICS:,} topics, {MESSAGES:,} messages: {load_seconds}, {max(sizes):,} bytes"
        )
        assert max(load_seconds.values()) < SECONDS_MAX, load_seconds
        assert max(sizes) < BYTES_MAX
        _open_ten_tabs(tab)
        tab.close()


def _produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000})
    for number in range(MESSAGES):
        producer.produce("many", b'{"number": %d, "some": "words that make it longer than it was"}' % number)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def _size(response: Any) -> int:
    return int(response.headers.get("content-length", 0)) if "/api/v1/" in response.url else 0


def _time(tab: ConsoleTab, path: str, selector: str) -> float:
    started_at = time.monotonic()
    tab.page.goto(f"{tab.address}/#{path}")
    tab.page.locator(f"main {selector}").first.wait_for()
    return round(time.monotonic() - started_at, 2)


def _open_ten_tabs(tab: ConsoleTab) -> None:
    """Open ten tabs: browsers limit connections per host to six, so the tabs must share one stream."""
    tabs = [tab.page.context.new_page() for _ in range(TABS - 1)]
    for page in tabs:
        page.goto(f"{tab.address}/#/overview")
        page.locator(".pulse", has_text="Live").wait_for()
