"""However many topics and groups there are, no piece of a scrape holds the loop for long. Time is that of this thread,
so that a busy machine does not count; the limit is five times what a piece is meant to take."""

from __future__ import annotations

import asyncio
import gc
import time
from pathlib import Path

import pytest

from chronik.console.prometheus import exposition_pieces
from chronik.metadata.commands.groups import CommitOffset, OffsetToCommit
from tests.console.metrics.nodes import Scraped, ShownNode, shown_node

HELD_SECONDS_MAX = 0.010


@pytest.mark.slow
def test_ten_thousand_topics_are_scraped_in_short_pieces(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with shown_node(tmp_path) as node:
            await node.create_topics(f"topic-{number}" for number in range(10_000))
            await commit_everywhere(node, 10_000)
            pieces, held = [], []
            gc.collect()
            gc.freeze()  # as a node does it: see `chronik.node.garbage`
            making = exposition_pieces(node.status.metrics())
            while True:
                began = time.thread_time()
                piece = next(making, None)
                held.append(time.thread_time() - began)
                if piece is None:
                    break
                pieces.append(piece)
                await asyncio.sleep(0)
        told = Scraped(b"".join(pieces).decode())
        assert told.series <= 20_000
        assert told.value("chronik_metrics_series_left_out") > 0
        assert told.value("chronik_topics") >= 10_000
        print(f"{told.series} series, {len(held)} pieces, {max(held) * 1000:.1f} of {sum(held) * 1000:.0f} ms")
        assert max(held) < HELD_SECONDS_MAX
        assert len(held) > 50

    try:
        asyncio.run(scenario())
    finally:
        gc.unfreeze()


async def commit_everywhere(node: ShownNode, topics: int) -> None:
    """A group with an offset of each topic."""
    offsets = [OffsetToCommit(f"topic-{number}", 0, 0) for number in range(topics)]
    for first in range(0, topics, 1000):
        await node.services.store.propose(
            CommitOffset("readers", tuple(offsets[first : first + 1000]), commit_time_ms=1)
        )


def test_who_asks_again_at_once_is_told_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with shown_node(tmp_path) as node:
            surveyor = node.status._all_metrics()._surveyor
            surveyor._rests_until = 0.0
            for _ in surveyor.look():
                pass
            surveyor._rests_until += 3600
            before = (await node.scrape()).value("chronik_metrics_survey_seconds")
            await node.create_topics(["orders"])
            told = await node.scrape()
            assert told.value("chronik_metrics_survey_seconds") == before
            assert "orders" not in told.labelled("chronik_topic_log_bytes", "topic")
            surveyor._rests_until = 0.0
            assert "orders" in (await node.scrape()).labelled("chronik_topic_log_bytes", "topic")

    asyncio.run(scenario())
