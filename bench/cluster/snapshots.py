"""How large a snapshot of the metadata is, and how long the event loop stands still while one is taken or installed."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from bench.cluster.figures import Figure, Plan
from bench.cluster.stores import PARTITIONS, commit, found, new_topic, open_store
from chronik.bench.cluster_pipes import run_on_best_loop
from chronik.bench.measures import MEGABYTE
from chronik.metadata.commands.topics import CreateTopics
from chronik.metadata.image import Image
from chronik.metadata.image_machine import ImageMachine
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
HELD_MS_MAX: Final = 50.0

COMMITS_BEFORE: Final = 200
"""Small commits before each snapshot: what the loop does without one."""

BEAT_SECONDS: Final = 0.001
"""Gaps are known to a millisecond. The node's own watchdog looks every 25 ms, and so may miss half of 50."""


def measure_snapshots(plan: Plan) -> list[Figure]:
    """A store alone, so that nobody else's work is on its loop: its snapshots are those of every node."""
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    try:
        return run_on_best_loop(_topics(plan)) + run_on_best_loop(_offsets(plan))
    finally:
        sys.setswitchinterval(switch_interval)


async def _topics(plan: Plan) -> list[Figure]:
    async with _store_alone(plan) as (store, _):
        empty_bytes = sum(map(len, _encoded(store.image)))
        for first in range(2, 2 + TOPICS, TOPICS_PER_COMMAND):
            topics = [new_topic(f"topic-of-20-{n:08d}", n) for n in range(first, first + TOPICS_PER_COMMAND)]
            await store.propose(CreateTopics(tuple(topics)))
        size = sum(map(len, _encoded(store.image))) - empty_bytes
    return [Figure(f"snapshot of {TOPICS:,} topics, MB", [size / MEGABYTE], below=TOPICS_MB_MAX)]


async def _offsets(plan: Plan) -> list[Figure]:
    commands = plan.offsets // PARTITIONS
    snapshot_entries = commands + COMMITS_BEFORE
    quiet, held = [], []
    async with _store_alone(plan, snapshot_entries) as (store, driver):
        for number in range(commands):
            await store.propose(commit(f"a-group-{number:06d}", 0, PARTITIONS, 10**12 + number))
        for _ in range(plan.rounds):
            before_ms, during_ms = await _one_snapshot(store, driver, snapshot_entries)
            quiet.append(before_ms)
            held.append(during_ms)
        chunks = _encoded(store.image)
        installed = [await _one_installation(store, chunks) for _ in range(plan.rounds)]
    per_million_mb = sum(map(len, chunks)) / MEGABYTE * MILLION / plan.offsets
    return [
        Figure("snapshot per 1,000,000 offsets, MB", [per_million_mb], below=MILLION_OFFSETS_MB_MAX),
        Figure(f"loop held while {plan.offsets:,} offsets are snapshotted, ms", held, below=HELD_MS_MAX),
        Figure("loop held by the same commits without a snapshot, ms", quiet),
        Figure(f"loop held while {plan.offsets:,} offsets are installed, ms", installed, below=HELD_MS_MAX),
    ]


@asynccontextmanager
async def _store_alone(plan: Plan, snapshot_entries: int = MILLION) -> AsyncIterator[tuple[RaftStore, RaftDriver]]:
    reserved = ReservedPorts(1)
    try:
        with tempfile.TemporaryDirectory(prefix="snapshots-", dir=plan.folder) as folder:
            async with open_store(Path(folder), 1, {1: reserved.ports[0]}, snapshot_entries) as (store, driver):
                await found(store)
                yield store, driver
    finally:
        reserved.release()


async def _one_snapshot(store: RaftStore, driver: RaftDriver, snapshot_entries: int) -> tuple[float, float]:
    """The longest gaps, before and during it, in milliseconds; small commits go on all the time."""
    last = driver.status.snapshot_index
    beat = _Beat()
    number = 0

    async def commit_once() -> None:
        nonlocal number
        number += 1
        await store.propose(commit(f"a-group-{number % 100:06d}", number % PARTITIONS, 1, number))

    while driver.status.applied_index < last + snapshot_entries - COMMITS_BEFORE // 2:
        await commit_once()
    beat.longest_seconds = 0.0
    while driver.status.applied_index < last + snapshot_entries - 2:
        await commit_once()
    before_s, beat.longest_seconds = beat.longest_seconds, 0.0
    while driver.status.snapshot_index == last:
        await commit_once()
    beat.stop()
    return 1000 * before_s, 1000 * beat.longest_seconds


async def _one_installation(store: RaftStore, chunks: list[bytes]) -> float:
    """The longest gap in milliseconds, when a node that has as many offsets already gets a snapshot from the leader:
    all of it is decoded, compared and put in the old one's place, which is then freed."""

    async def received() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    machine = ImageMachine(lambda _: None, lambda *_: None, lambda: None)
    machine.image = decode_snapshot(chunks)
    beat = _Beat()
    await machine.install_snapshot(store.image.applied_index, received())
    beat.stop()
    return 1000 * beat.longest_seconds


class _Beat:
    """A timer that comes as often as it can: between two of its beats the loop did something else."""

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        self._loop = asyncio.get_running_loop()
        self._last = time.perf_counter()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    def stop(self) -> None:
        self._timer.cancel()

    def _beat(self) -> None:
        now = time.perf_counter()
        self.longest_seconds = max(self.longest_seconds, now - self._last - BEAT_SECONDS)
        self._last = now
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)


def _encoded(image: Image) -> list[bytes]:
    return list(encode_snapshot(image.freeze()))
