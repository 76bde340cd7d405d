"""Pages of messages: older and newer ones across partitions, filters, and limits on time."""

from __future__ import annotations

import http.client
import json
import struct
import threading
import time
from base64 import b64encode
from itertools import islice
from typing import Any
from urllib.parse import urlencode

import pytest

from chronik.client.cluster import ClusterClient
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.console.rest.operation_table import BASE_PATH
from chronik.console.rest.operations import batch_reader, record_scan
from tests.api.authorizing_node import AuthorizingNode
from tests.console.rest.api_client import ApiClient
from tests.console.rest.test_typed_messages import frame, register_order

TOPIC = "paged"
SIZES = {0: (40,), 1: (1, 1, 1), 2: (7, 1, 30, 2), 3: ()}
"""Number of messages in each batch, by partition."""
COUNT = sum(map(sum, SIZES.values()))

BASE_MS = int(time.time() * 1000) - 3_600_000

UNORDERED = 20
"""Number of messages in a topic whose timestamps are not monotonic."""

Place = tuple[int, int]


def _time(partition: int, offset: int) -> int:
    """Return the timestamp of a message."""
    return BASE_MS + 1000 * offset + partition


@pytest.fixture(scope="module", autouse=True)
def topics(node: AuthorizingNode) -> None:
    root = ApiClient(node.http)
    root.log_in("root", "correct horse")
    assert root.post("/topics", {"name": TOPIC, "partitions": len(SIZES)}).status == 200
    for name in ("filtered", "unordered"):
        assert root.post("/topics", {"name": name, "partitions": 2}).status == 200
    with node.all_permitted(), ClusterClient(node.bootstrap) as client:
        producer = Producer(client)
        for partition, sizes in SIZES.items():
            offsets = iter(range(sum(sizes)))
            for size in sizes:
                batch = [(partition, offset) for offset in islice(offsets, size)]
                records = [
                    OutgoingRecord(b"x%d" % each[1], partition=partition, timestamp=_time(*each)) for each in batch
                ]
                producer.send(TOPIC, records)
        for offset in range(UNORDERED):
            record = OutgoingRecord(b"x", partition=offset % 2, timestamp=BASE_MS + 1000 * (offset * 7 % UNORDERED))
            producer.send("unordered", [record])
        producer.send("filtered", FILTERED)


FILTERED = [
    OutgoingRecord(b'{"customer": {"id": 7}, "city": "Gr\\u00fcnwald"}', b"ada", partition=0, timestamp=BASE_MS + 1000),
    OutgoingRecord(
        '{"customer": {"id": 8}, "city": "GRÜNWALD"}'.encode(), b"bob", partition=0, timestamp=BASE_MS + 2000
    ),
    OutgoingRecord(None, b"ada", partition=1, timestamp=BASE_MS + 3000),
    OutgoingRecord(b"plain", None, (("source", b"web"), ("trace", None)), partition=1, timestamp=BASE_MS + 4000),
    OutgoingRecord(b"a\0b", b"", (("source", b"app"),), partition=1, timestamp=BASE_MS + 5000),
]


def read(client: ApiClient, topic: str = TOPIC, **query: Any) -> Any:
    response = client.get(f"/topics/{topic}/messages?{urlencode({k.rstrip('_'): v for k, v in query.items()})}")
    assert response.status == 200, response
    return response.json


def places(page: Any) -> list[Place]:
    return [(each["partition"], each["offset"]) for each in page["items"]]


def read_all(client: ApiClient, topic: str = TOPIC, **query: Any) -> list[list[Place]]:
    """Follow `next` to the end."""
    pages = []
    page = read(client, topic, **query)
    while page["items"] or page["next"]:
        pages.append(places(page))
        if page["next"] is None:
            break
        page = read(client, topic, **query | {"from_": page["next"]})
    return pages


ALL = {(partition, offset) for partition, sizes in SIZES.items() for offset in range(sum(sizes))}


@pytest.mark.parametrize("order", ["oldest", "newest"])
@pytest.mark.parametrize("limit", [9, 500])
def test_every_message_is_on_exactly_one_page_in_both_orders(root: ApiClient, order: str, limit: int) -> None:
    start = {"oldest": "start", "newest": "end"}[order]
    pages = read_all(root, order=order, limit=limit, from_=start)
    found = [place for page in pages for place in page]
    assert len(found) == COUNT
    assert set(found) == ALL
    assert all(len(page) == limit for page in pages[:-1])
    for partition in SIZES:
        offsets = [offset for each, offset in found if each == partition]
        assert offsets == sorted(offsets, reverse=order == "newest")


def test_pages_are_in_time_order_across_partitions(root: ApiClient) -> None:
    expected = sorted(ALL, key=lambda place: _time(*place))
    for order, step in (("oldest", 1), ("newest", -1)):
        found = [place for page in read_all(root, order=order, from_="start" if step == 1 else "end") for place in page]
        assert found == expected[::step]


def test_messages_with_unordered_timestamps_are_on_exactly_one_page(root: ApiClient) -> None:
    for order, start in (("oldest", "start"), ("newest", "end")):
        found = [place for page in read_all(root, "unordered", order=order, from_=start, limit=3) for place in page]
        assert sorted(found) == [(partition, offset) for partition in range(2) for offset in range(UNORDERED // 2)]


def test_message_with_an_old_timestamp_delays_no_others(root: ApiClient, node: AuthorizingNode) -> None:
    assert root.post("/topics", {"name": "late", "partitions": 2}).status == 200
    moments = {0: [1000, 2000, 3000, 4000, 0, 5000], 1: [1500, 2500, 3500, 4500, 5500, 0]}
    with node.all_permitted(), ClusterClient(node.bootstrap) as client:
        for partition, times in moments.items():
            for each in times:
                record = OutgoingRecord(b"x", partition=partition, timestamp=BASE_MS + each)
                Producer(client).send("late", [record])
    expected = [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (0, 4), (1, 3), (0, 5), (1, 4), (1, 5)]
    assert places(read(root, "late", from_="start")) == expected
    assert places(read(root, "late", order="newest")) == expected[::-1]


def test_older_and_newer_pages_lead_back(root: ApiClient) -> None:
    newest = read(root, order="newest", limit=10)
    assert newest["previous"] is None
    older = read(root, order="newest", limit=10, from_=newest["next"])
    back = read(root, order="oldest", limit=10, from_=older["previous"])
    assert places(back) == places(newest)[::-1]
    oldest = read(root, order="oldest", limit=10, from_="start")
    assert oldest["previous"] is None
    newer = read(root, order="oldest", limit=10, from_=oldest["next"])
    assert places(read(root, order="newest", limit=10, from_=newer["previous"])) == places(oldest)[::-1]


def test_last_messages_lead_to_older_and_new_ones(root: ApiClient) -> None:
    last = read(root, from_="-5")
    assert places(last) == places(read(root, order="newest", limit=5))[::-1]
    assert read(root, from_=last["next"])["items"] == []
    older = read(root, order="newest", limit=5, from_=last["previous"])
    assert places(older) == places(read(root, order="newest", limit=10))[5:]


def test_until_bounds_both_orders(root: ApiClient) -> None:
    assert places(read(root, partition=0, from_="3", until="6")) == [(0, 3), (0, 4), (0, 5)]
    assert places(read(root, partition=0, order="newest", from_="6", until="3")) == [(0, 5), (0, 4), (0, 3)]
    assert read(root, partition=0, from_="6", until="3") | {"ends": None} == read(
        root, partition=0, order="newest", from_="3", until="6"
    ) | {"ends": None, "previous": "~0:6"}
    between = read(root, "filtered", from_=f"@{BASE_MS + 2000}", until=f"@{BASE_MS + 4000}")
    assert places(between) == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ({"text": "grünwald"}, [(0, 0), (0, 1)]),
        ({"text": "Grünwald", "key": "ada"}, [(0, 0)]),
        ({"where": "$.customer.id = 7"}, [(0, 0)]),
        ({"where": "$.customer.id > 1 and not $.customer.id = 7"}, [(0, 1)]),
        ({"where": "partition = 1 and offset < 2"}, [(1, 0), (1, 1)]),
        ({"key": "ada"}, [(0, 0), (1, 0)]),
        ({"key": ""}, [(1, 2)]),
        ({"header": "source"}, [(1, 1), (1, 2)]),
        ({"header": "source=web"}, [(1, 1)]),
        ({"header": "trace="}, []),
        ({"where": "header.source = app"}, [(1, 2)]),
        ({"where": "key = null"}, [(1, 1)]),
        ({"where": "value = null"}, [(1, 0)]),
        ({"text": "WEB"}, [(1, 1)]),
        ({"text": "nothing"}, []),
    ],
)
def test_filters_select_messages(root: ApiClient, query: dict[str, str], offsets: list[Place]) -> None:
    for order, start, step in (("oldest", "start", 1), ("newest", "end", -1)):
        page = read(root, "filtered", order=order, from_=start, **query)
        assert places(page)[::step] == offsets
        assert (page["next"], page["is_complete"], page["scanned"]) == (None, True, len(FILTERED))
        assert page["scanned_bytes"] > 100
    events = list(root.events(f"/topics/filtered/search?{urlencode(query)}"))
    assert [(each["partition"], each["offset"]) for name, each in events if name == "match"] == offsets


def test_filters_see_decoded_values(root: ApiClient) -> None:
    assert root.post("/topics", {"name": "decoded", "partitions": 1}).status == 200
    body = {"value": b64encode(frame(register_order(root, "decoded"))).decode()}
    assert root.post("/topics/decoded/messages", body | {"value_format": "base64"}).status == 201
    for query in ({"text": "s-17"}, {"where": "$.item.sku = 'S-17' and $.id = 7"}):
        assert places(read(root, "decoded", **query)) == [(0, 0)]
    assert places(read(root, "decoded", where="$.id = 8")) == []


def test_malformed_condition_is_rejected(root: ApiClient) -> None:
    for operation in ("messages", "search", "tail"):
        response = root.get(f"/topics/filtered/{operation}?{urlencode({'where': '$.id ~ 7'})}")
        assert response.status == 400
        assert "expected =, !=" in response.json["error"]


def test_text_with_a_nul_is_text_and_binary_numbers_are_not(root: ApiClient) -> None:
    (message,) = read(root, "filtered", key="")["items"]
    assert (message["value"]["kind"], message["value"]["text"]) == ("text", "a\0b")
    assert (message["key"]["kind"], message["key"]["text"]) == ("text", "")
    assert root.post("/topics", {"name": "numbers", "partitions": 1}).status == 200
    number = b64encode(struct.pack(">q", 77)).decode()
    assert root.post("/topics/numbers/messages", {"value": number, "value_format": "base64"}).status == 201
    assert read(root, "numbers")["items"][0]["value"]["kind"] == "bytes"


def test_scan_without_time_returns_each_match_once(root: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request reads one chunk of a few bytes, and the next one continues."""
    monkeypatch.setattr(record_scan, "CHUNK_BYTES", 1)
    monkeypatch.setattr(batch_reader, "PARTITION_BYTES_MAX", 1)
    scan = record_scan.RecordScan.iter_found
    monkeypatch.setattr(record_scan.RecordScan, "iter_found", lambda self, seconds: scan(self, 0.0))
    for order, start in (("oldest", "start"), ("newest", "end")):
        for text in ("x3", "x"):
            found: list[Place] = []
            page = read(root, order=order, from_=start, text=text)
            requests = 1
            while page["next"]:
                assert requests < 200
                found += places(page)
                assert not page["is_complete"] or page["items"]
                page = read(root, order=order, from_=page["next"], text=text)
                requests += 1
            found += places(page)
            assert len(found) == len(set(found)) == (COUNT if text == "x" else _count_containing("x3"))
            assert requests > 1


def _count_containing(text: str) -> int:
    return sum(text in f"x{offset}" for _, offset in ALL)


def test_large_records_are_read_in_small_steps(
    root: ApiClient, node: AuthorizingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_scan, "CHUNK_BYTES", 2_000)
    monkeypatch.setattr(record_scan, "CHUNK_BYTES_MAX", 8_000)
    assert root.post("/topics", {"name": "large", "partitions": 1}).status == 200
    with node.all_permitted(), ClusterClient(node.bootstrap) as client:
        sizes = [10] * 30 + [10_000] * 8 + [10] * 3
        for size in sizes:
            Producer(client).send("large", [OutgoingRecord(json.dumps({"size": "x" * size}).encode())])
    found = [place for page in read_all(root, "large", order="newest", limit=20) for place in page]
    assert found == [(0, offset) for offset in reversed(range(len(sizes)))]


def test_request_ends_when_the_client_disconnects(root: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan waits in its first fetch until the operation is cancelled."""
    reading, cancelled = threading.Event(), threading.Event()

    def fetch(reader: batch_reader.BatchReader, partitions: Any) -> Any:
        reading.set()
        if reader._context.abandoned.wait(60):
            cancelled.set()
        return []

    monkeypatch.setattr(batch_reader.BatchReader, "fetch", fetch)
    connection = _send(root, f"/topics/{TOPIC}/messages?text=nothing")
    assert reading.wait(60)
    assert not cancelled.is_set()
    connection.close()
    assert cancelled.wait(60)


def _send(client: ApiClient, path: str) -> http.client.HTTPConnection:
    """Send a request without waiting for the response."""
    connection = http.client.HTTPConnection(client.address, timeout=60)
    connection.request("GET", BASE_PATH + path, headers={"cookie": client.cookie})
    return connection
