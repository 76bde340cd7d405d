"""The metrics of a running node, parsed by the official Prometheus parser; the limit of series; and scrape latency.

No chunk of a scrape holds the event loop for long, however many topics and groups there are. CPU time of the thread is
measured, so that a busy machine does not matter. The limit is five times the target.
"""

from __future__ import annotations

import asyncio
import gc
import random
import struct
import time
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from chronik.console.metrics.collector import HISTOGRAM_SERIES, OTHER, divide_series, iter_limited_metrics
from chronik.console.metrics.families import COUNTER, FAMILIES, HISTOGRAM
from chronik.console.metrics.partition_stats import GroupTopicLag, PartitionStats, TopicTotals
from chronik.console.prometheus import format_exposition, iter_exposition_chunks
from chronik.console.status_source import Metric, Sample
from chronik.histogram import Histogram
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from chronik.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.api.request_builders import batch, fetch, produce
from tests.console.metrics.scraped_node import ScrapedMetrics, ScrapedNode, start_scraped_node
from tests.raw import RawClient

T = TypeVar("T")
MINUTE_MS = 60_000

HELD_SECONDS_MAX = 0.050


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
        silent = {name for name in declared if name.startswith(("chronik_raft_", "chronik_registry_"))}
        assert set(scraped.types) == declared - silent - {"chronik_request_errors", "chronik_problems"}, (
            "no request failed, there are no problems, the schema registry was not used, and the node is standalone"
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


def limit_series(stats: PartitionStats, series_max: int, series: int = 100) -> ScrapedMetrics:
    return ScrapedMetrics(format_exposition(iter_limited_metrics(stats, series, series_max)))


def build_stats(topics: int, lags: int) -> PartitionStats:
    stats = PartitionStats()
    for number in random.Random(topics).sample(range(topics), topics):
        stats.topics[f"t{number}"] = TopicTotals(log_bytes=number, partitions=1, produced_bytes=2 * number)
    for number in range(lags):
        stats.lags[f"g{number}", "t1"] = GroupTopicLag(number, number / 10)
    return stats


def test_all_series_are_exported_below_limit() -> None:
    scraped = limit_series(build_stats(50, 20), 1000)
    assert len(scraped.values["chronik_topic_log_bytes"]) == 50
    assert len(scraped.values["chronik_group_lag_records"]) == 20
    assert scraped.value("chronik_metrics_series_left_out") == 0
    assert scraped.value("chronik_metrics_series") == 100 + 50 * 3 + 20 * 2


def test_largest_rows_are_exported_and_rest_aggregated() -> None:
    scraped = limit_series(build_stats(1000, 500), 700)
    sizes = scraped.values_by_label("chronik_topic_log_bytes", "topic")
    assert len(sizes) == 100, "half of 600 series, three per topic"
    assert sizes.keys() == {f"t{number}" for number in range(901, 1000)} | {OTHER}
    assert sizes[OTHER] == sum(range(901))
    assert scraped.values_by_label("chronik_topic_partitions", "topic")[OTHER] == 901
    assert sum(scraped.values_by_label("chronik_topic_produced_bytes_total", "topic").values()) == 2 * sum(range(1000))
    lags = scraped.values_by_label("chronik_group_lag_records", "group")
    assert len(lags) == 150
    assert sum(lags.values()) == sum(range(500))
    assert scraped.value("chronik_group_lag_seconds", group=OTHER, topic=OTHER) == 35.0, (
        "the maximum of the aggregated lags"
    )
    assert scraped.value("chronik_metrics_series_left_out") == 901 * 3 + 351 * 2
    assert scraped.value("chronik_metrics_series") == 700


@pytest.mark.parametrize(
    ("topics", "lags", "budget"), [(10_000, 10, (60, 10)), (10, 10_000, (10, 85)), (0, 10_000, (0, 100))]
)
def test_unused_series_budget_goes_to_other_family(topics: int, lags: int, budget: tuple[int, int]) -> None:
    assert divide_series(200, topics, 3, lags, 2) == budget


def test_everything_is_aggregated_without_series_budget() -> None:
    for series_max in (0, 50, 100, 104):
        scraped = limit_series(build_stats(5, 5), series_max)
        assert scraped.values_by_label("chronik_topic_log_bytes", "topic") == {OTHER: 10}
        assert scraped.values_by_label("chronik_group_lag_records", "group") == {OTHER: 10}


def test_topic_named_other_is_aggregated() -> None:
    stats = build_stats(3, 0)
    stats.topics[OTHER] = TopicTotals(log_bytes=100)
    stats.lags[OTHER, "t1"] = GroupTopicLag(5)
    scraped = limit_series(stats, 1000)
    assert scraped.values_by_label("chronik_topic_log_bytes", "topic") == {"t0": 0, "t1": 1, "t2": 2, OTHER: 100}
    assert scraped.value("chronik_group_lag_records", group=OTHER, topic=OTHER) == 5


def test_overlong_names_are_aggregated() -> None:
    stats = build_stats(1, 1)
    stats.lags["g" * 255, "t1"] = GroupTopicLag(1)
    stats.lags["g" * 256, "t1"] = GroupTopicLag(5)
    stats.lags["h" * 30_000, "t1"] = GroupTopicLag(2)
    scraped = limit_series(stats, 1000)
    assert scraped.values_by_label("chronik_group_lag_records", "group") == {"g0": 0, "g" * 255: 1, OTHER: 7}
    assert scraped.value("chronik_metrics_series_left_out") == 4


def test_histogram_series_count_matches_exposition() -> None:
    text = format_exposition([Metric("a", "histogram", "A.", [Sample(Histogram())])])
    assert ScrapedMetrics(text).series == HISTOGRAM_SERIES


@pytest.mark.slow
def test_scrape_of_many_topics_yields_short_chunks(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with start_scraped_node(tmp_path) as node:
            await node.create_topics(f"topic-{number}" for number in range(10_000))
            await commit_everywhere(node, 10_000)
            chunks, held_seconds = [], []
            gc.collect()
            gc.freeze()  # as a node does, see `chronik.node.memory_tuning`
            chunk_iterator = iter_exposition_chunks(node.status.metrics())
            while True:
                started = time.thread_time()
                chunk = next(chunk_iterator, None)
                held_seconds.append(time.thread_time() - started)
                if chunk is None:
                    break
                chunks.append(chunk)
                await asyncio.sleep(0)
        scraped = ScrapedMetrics(b"".join(chunks).decode())
        assert scraped.series <= 20_000
        assert scraped.value("chronik_metrics_series_left_out") > 0
        assert scraped.value("chronik_topics") >= 10_000
        print(
            f"{scraped.series} series, {len(held_seconds)} chunks, {max(held_seconds):.4f} of {sum(held_seconds):.3f} s"
        )
        assert max(held_seconds) < HELD_SECONDS_MAX
        assert len(held_seconds) > 50

    try:
        asyncio.run(scenario())
    finally:
        gc.unfreeze()


async def commit_everywhere(node: ScrapedNode, topics: int) -> None:
    """Commit an offset of every topic for one group."""
    offsets = [OffsetToCommit(f"topic-{number}", 0, 0) for number in range(topics)]
    for first in range(0, topics, 1000):
        await node.services.store.propose(
            CommitOffset("readers", tuple(offsets[first : first + 1000]), commit_time_ms=1)
        )


def test_partition_stats_are_cached_between_scrapes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with start_scraped_node(tmp_path) as node:
            surveyor = node.status._get_metrics_collector()._surveyor
            surveyor._cached_until = 0.0
            for _ in surveyor.collect():
                pass
            surveyor._cached_until += 3600
            before = (await node.scrape()).value("chronik_metrics_survey_seconds")
            await node.create_topics(["orders"])
            scraped = await node.scrape()
            assert scraped.value("chronik_metrics_survey_seconds") == before
            assert "orders" not in scraped.values_by_label("chronik_topic_log_bytes", "topic")
            surveyor._cached_until = 0.0
            assert "orders" in (await node.scrape()).values_by_label("chronik_topic_log_bytes", "topic")

    asyncio.run(scenario())
