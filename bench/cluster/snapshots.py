"""The size of metadata snapshots, and how long taking or installing one stalls the event loop."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.cluster.figures import ClusterBenchmarkPlan, Figure
from bench.cluster.stores import PARTITIONS, build_commit, build_create_topic, create_broker_and_topic, open_store
from chronik.bench.pipelined import run_with_uvloop
from chronik.bench.statistics import MEGABYTE
from chronik.metadata.commands.topics import CreateTopics
from chronik.metadata.image import Image
from chronik.metadata.image_state_machine import ImageStateMachine
from chronik.metadata.snapshot import decode_snapshot, encode_snapshot
from chronik.metadata.stores.raft_store import RaftStore
from chronik.node.run import THREAD_SWITCH_SECONDS
from chronik.quorum.driver import RaftDriver
from chronik.testing.ports import ReservedPorts

TOPICS: Final = 10_000
TOPICS_PER_COMMAND: Final = 1000
TOPICS_MB_MAX: Final = 1.0
MILLION: Final = 1_000_000
MILLION_OFFSETS_MB_MAX: Final = 100.0
STALL_MS_MAX: Final = 50.0

COMMITS_BEFORE: Final = 200
"""Small commits before each snapshot, to measure stalls without one."""

TICK_SECONDS: Final = 0.001
"""The resolution of measured stalls. The node's watchdog checks every 25 ms and may miss half of a 50 ms stall."""


def measure_snapshots(plan: ClusterBenchmarkPlan) -> list[Figure]:
    """Measure a standalone store, so that nothing else runs on its event loop."""
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    try:
        return run_with_uvloop(_measure_topics(plan)) + run_with_uvloop(_measure_offsets(plan))
    finally:
        sys.setswitchinterval(switch_interval)


async def _measure_topics(plan: ClusterBenchmarkPlan) -> list[Figure]:
    async with _open_standalone_store(plan) as (store, _):
        empty_bytes = sum(map(len, _encode_image(store.image)))
        for first in range(2, 2 + TOPICS, TOPICS_PER_COMMAND):
            topics = [build_create_topic(f"topic-of-20-{n:08d}", n) for n in range(first, first + TOPICS_PER_COMMAND)]
            await store.propose(CreateTopics(tuple(topics)))
        size = sum(map(len, _encode_image(store.image))) - empty_bytes
    return [Figure(f"snapshot of {TOPICS:,} topics, MB", [size / MEGABYTE], below=TOPICS_MB_MAX)]


async def _measure_offsets(plan: ClusterBenchmarkPlan) -> list[Figure]:
    commands = plan.offsets // PARTITIONS
    snapshot_entries = commands + COMMITS_BEFORE
    baseline_stalls, stalls = [], []
    async with _open_standalone_store(plan, snapshot_entries) as (store, driver):
        for number in range(commands):
            await store.propose(build_commit(f"a-group-{number:06d}", 0, PARTITIONS, 10**12 + number))
        for _ in range(plan.rounds):
            before_ms, during_ms = await _measure_snapshot(store, driver, snapshot_entries)
            baseline_stalls.append(before_ms)
            stalls.append(during_ms)
        chunks = _encode_image(store.image)
        installed = [await _measure_installation(store, chunks) for _ in range(plan.rounds)]
    per_million_mb = sum(map(len, chunks)) / MEGABYTE * MILLION / plan.offsets
    return [
        Figure("snapshot per 1,000,000 offsets, MB", [per_million_mb], below=MILLION_OFFSETS_MB_MAX),
        Figure(f"event loop stall while {plan.offsets:,} offsets are snapshotted, ms", stalls, below=STALL_MS_MAX),
        Figure("event loop stall of the same commits without a snapshot, ms", baseline_stalls),
        Figure(f"event loop stall while {plan.offsets:,} offsets are installed, ms", installed, below=STALL_MS_MAX),
    ]


@asynccontextmanager
async def _open_standalone_store(
    plan: ClusterBenchmarkPlan, snapshot_entries: int = MILLION
) -> AsyncIterator[tuple[RaftStore, RaftDriver]]:
    reserved = ReservedPorts(1)
    try:
        with tempfile.TemporaryDirectory(prefix="snapshots-", dir=plan.directory) as folder:
            async with open_store(Path(folder), 1, {1: reserved.ports[0]}, snapshot_entries) as (store, driver):
                await create_broker_and_topic(store)
                yield store, driver
    finally:
        reserved.release()


async def _measure_snapshot(store: RaftStore, driver: RaftDriver, snapshot_entries: int) -> tuple[float, float]:
    """Return the longest stalls before and during a snapshot in milliseconds, while small commits continue."""
    last = driver.status.snapshot_index
    stall_timer = _StallTimer()
    number = 0

    async def commit_once() -> None:
        nonlocal number
        number += 1
        await store.propose(build_commit(f"a-group-{number % 100:06d}", number % PARTITIONS, 1, number))

    while driver.status.applied_index < last + snapshot_entries - COMMITS_BEFORE // 2:
        await commit_once()
    stall_timer.longest_seconds = 0.0
    while driver.status.applied_index < last + snapshot_entries - 2:
        await commit_once()
    before_s, stall_timer.longest_seconds = stall_timer.longest_seconds, 0.0
    while driver.status.snapshot_index == last:
        await commit_once()
    stall_timer.stop()
    return 1000 * before_s, 1000 * stall_timer.longest_seconds


async def _measure_installation(store: RaftStore, chunks: list[bytes]) -> float:
    """Return the longest stall in milliseconds while a node with as many offsets installs the leader's snapshot.

    The snapshot is decoded, compared with the current image and replaces it; the old image is then freed.
    """

    async def iter_chunks() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    machine = ImageStateMachine(lambda _: None, lambda *_: None, lambda: None)
    machine.image = decode_snapshot(chunks)
    stall_timer = _StallTimer()
    await machine.install_snapshot(store.image.applied_index, iter_chunks())
    stall_timer.stop()
    return 1000 * stall_timer.longest_seconds


class _StallTimer:
    """A frequent timer that measures for how long other work occupied the event loop."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.perf_counter()
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        now = time.perf_counter()
        self.longest_seconds = max(self.longest_seconds, now - self._last - TICK_SECONDS)
        self._last = now
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)


def _encode_image(image: Image) -> list[bytes]:
    return list(encode_snapshot(image.freeze()))
