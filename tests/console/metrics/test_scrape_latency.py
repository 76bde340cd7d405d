"""No chunk of a scrape holds the event loop for long, however many topics and groups there are.

CPU time of the thread is measured, so that a busy machine does not matter. The limit is five times the target.
"""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import pytest

from chronik.console.prometheus import iter_exposition_chunks
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from tests.console.metrics.scraped_node import ScrapedMetrics, ScrapedNode, start_scraped_node

HELD_SECONDS_MAX = 0.010


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
            surveyor = node.status._metrics_source()._surveyor
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
