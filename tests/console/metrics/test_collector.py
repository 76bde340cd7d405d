"""The metrics of a running node, parsed by the official Prometheus parser."""

from __future__ import annotations

import asyncio
import struct
from functools import partial
from pathlib import Path
from typing import TypeVar

from chronik.console.metrics.families import COUNTER, FAMILIES, HISTOGRAM
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.api.request_builders import batch, fetch, produce
from tests.console.metrics.scraped_node import ScrapedMetrics, ScrapedNode, start_scraped_node
from tests.raw import RawClient

T = TypeVar("T")
MINUTE_MS = 60_000


def test_scraped_metrics_match_declared_families(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with start_scraped_node(tmp_path) as node:
            await node.create_topics(["orders"])
            await asyncio.to_thread(_produce_and_fetch, node, "orders")
            await commit(node, 0)
            scraped = await node.scrape()
        declared = {
            name.removesuffix("_total") if family.kind == COUNTER else name for name, family in FAMILIES.items()
        }
        silent = {name for name in declared if name.startswith("chronik_raft_")}
        assert set(scraped.types) == declared - silent - {"chronik_request_errors"}, (
            "no request failed, and the node is standalone"
        )
        for name, family in FAMILIES.items():
            for sampled in (name, f"{name}_count") if family.kind == HISTOGRAM else (name,):
                for labels in scraped.values.get(sampled, {}):
                    assert sorted(family.labels) == [label for label, _ in labels], name
        assert scraped.types["chronik_request_seconds"] == "histogram"
        assert scraped.series == scraped.value("chronik_metrics_series")

    asyncio.run(scenario())


def _produce_and_fetch(node: ScrapedNode, topic: str) -> None:
    with RawClient(str(node.address)) as client:
        assert produce(client, topic, batch(b"one", b"two", timestamp=1000)).error_code == 0
        assert fetch(client, topic, 0).error_code == 0


async def commit(node: ScrapedNode, offset: int, group: str = "readers", topic: str = "orders") -> None:
    now_ms = node.services.clock.now_ms()
    await node.services.store.propose(CommitOffset(group, (OffsetToCommit(topic, 0, offset),), commit_time_ms=now_ms))


def test_requests_are_counted_with_latency_and_bytes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with start_scraped_node(tmp_path) as node:
            await node.create_topics(["orders"])
            before = await node.scrape()
            await asyncio.to_thread(_produce_and_fetch, node, "orders")
            after = await node.scrape_until(
                lambda scraped: scraped.value("chronik_topic_produced_bytes_total", topic="orders") > 0
            )
            vitals = node.status.node_stats()
        assert before.values_by_label("chronik_requests_total", "api")["Produce"] == 0
        assert after.values_by_label("chronik_requests_total", "api")["Produce"] == 1
        assert after.value("chronik_request_seconds_count", api="Produce", answered="later") == 1, (
            "Produce waits for the disk"
        )
        assert after.value("chronik_request_seconds_count", api="Fetch", answered="at_once") == 1
        buckets = [
            (float(dict(labels)["le"]), count)
            for labels, count in after.values["chronik_request_seconds_bucket"].items()
            if ("api", "Fetch") in labels
        ]
        assert [count for _, count in sorted(buckets)] == sorted(count for _, count in buckets)
        assert max(buckets) == (float("inf"), 1)
        for api, way in (("Produce", "received"), ("Fetch", "sent")):
            assert after.values_by_label(f"chronik_{way}_bytes_total", "api")[api] > len(batch(b"one", b"two"))
        assert after.value("chronik_topic_produced_bytes_total", topic="orders") == len(batch(b"one", b"two"))
        assert after.value("chronik_topic_log_bytes", topic="orders") == len(batch(b"one", b"two"))
        assert after.value("chronik_sync_seconds_count", log="records") >= 1
        assert after.value("chronik_sync_seconds_count", log="metadata") >= 1
        assert vitals.requests == sum(after.values_by_label("chronik_requests_total", "api").values())
        assert 0 < (vitals.produce_latency_since(None).p99 or 0) <= 10
        assert vitals.produce_latency_since(vitals).p50 is None, "no requests since"

    asyncio.run(scenario())


def test_errors_are_counted_by_api_and_error_code(tmp_path: Path) -> None:
    def ask(node: ScrapedNode) -> None:
        with RawClient(str(node.address)) as client:
            produce(client, "nowhere", batch(b"one"))
            produce(client, "nowhere", batch(b"one"))
            fetch(client, "nowhere", 0)
            client.send_frame(struct.pack(">hhih", 18, 99, 7, -1))
            client.read_frame()

    async def scenario() -> ScrapedMetrics:
        async with start_scraped_node(tmp_path, **{"auto.create.topics.enable": "false"}) as node:
            await asyncio.to_thread(ask, node)
            return await node.scrape()

    scraped = asyncio.run(scenario())
    assert scraped.value("chronik_request_errors_total", api="Produce", code="UNKNOWN_TOPIC_OR_PARTITION") == 2
    assert scraped.value("chronik_request_errors_total", api="Fetch", code="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert scraped.value("chronik_request_errors_total", api="ApiVersions", code="UNSUPPORTED_VERSION") == 1


def test_connections_are_counted_by_listener(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with start_scraped_node(tmp_path, **{"max.connections": "1"}) as node:
            first = await asyncio.to_thread(RawClient, str(node.address))
            await asyncio.to_thread(first.request, ApiVersionsRequest(), 0, ApiVersionsResponse)
            refused = await asyncio.to_thread(RawClient, str(node.address))
            assert await asyncio.to_thread(refused.wait_for_close)
            scraped = await node.scrape()
            assert scraped.value("chronik_connections", listener="PLAINTEXT") == 1
            assert scraped.value("chronik_connections_accepted_total", listener="PLAINTEXT") == 1
            assert scraped.value("chronik_connections_refused_total", listener="PLAINTEXT") == 1
            first.close()
            refused.close()
            async with asyncio.timeout(30):
                while (await node.scrape()).value("chronik_connections", listener="PLAINTEXT"):
                    pass

    asyncio.run(scenario())


def has_lag(records: int, scraped: ScrapedMetrics) -> bool:
    """Return whether the lag of group `readers` on topic `orders` has this many records."""
    lag = scraped.values_by_label("chronik_group_lag_records", "topic")
    return lag.get("orders") == records


def test_group_lag_is_measured_in_records_and_seconds(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with start_scraped_node(tmp_path) as node:
            await node.create_topics(["orders"])
            now_ms = node.services.clock.now_ms()

            def write() -> None:
                with RawClient(str(node.address)) as client:
                    for minutes in (30, 20, 10):
                        produce(client, "orders", batch(b"one", b"two", timestamp=now_ms - minutes * MINUTE_MS))

            await asyncio.to_thread(write)
            for committed, records, minutes in ((0, 6, 30), (2, 4, 20), (5, 1, 10)):
                await commit(node, committed)
                scraped = await node.scrape_until(partial(has_lag, records))
                seconds = scraped.value("chronik_group_lag_seconds", group="readers", topic="orders")
                assert minutes * 60 <= seconds < minutes * 60 + 60
            await commit(node, 6)
            scraped = await node.scrape_until(partial(has_lag, 0))
            assert scraped.value("chronik_group_lag_seconds", group="readers", topic="orders") == 0

    asyncio.run(scenario())
