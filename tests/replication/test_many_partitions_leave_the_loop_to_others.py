"""Whoever goes through all partitions of a node does so a few at a time, and leaves the loop to others in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.broker import housekeeping
from chronik.broker.housekeeping import Housekeeping
from chronik.broker.in_sync import InSync
from chronik.broker.replica import Replica
from chronik.broker.replicas import REPLICAS_PER_TURN
from chronik.broker.syncs import Syncs
from chronik.configs.resolver import ConfigResolver
from chronik.replication.checkpoints import OffsetCheckpoints
from chronik.replication.isr_keeper import IsrKeeper

from .rig import Rig

PARTITIONS = 4 * REPLICAS_PER_TURN + 1


class Looks:
    """At single partitions, counted for each turn of the loop."""

    def __init__(self) -> None:
        self.total = 0
        self.most_in_a_turn = 0
        self._before = 0

    def __call__(self, *_: object) -> None:
        self.total += 1

    async def until_all_are_looked_at(self) -> None:
        while self.total < PARTITIONS:
            await asyncio.sleep(0)
            self.most_in_a_turn = max(self.most_in_a_turn, self.total - self._before)
            self._before = self.total


def _watch(looks: Looks, job: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def story(rig: Rig) -> None:
        for index in range(PARTITIONS):
            rig.replica(index).open()
        work = asyncio.ensure_future(job(rig))
        await looks.until_all_are_looked_at()
        work.cancel()
        assert looks.most_in_a_turn <= REPLICAS_PER_TURN

    Rig(partitions=PARTITIONS).run(story)


def _housekeeping(rig: Rig) -> Housekeeping:
    configs = SimpleNamespace(broker_int=lambda name: 0, broker_flag=lambda name: True)
    return Housekeeping(rig.replicas, cast(Any, None), cast(ConfigResolver, configs), rig.clock)


def test_who_is_in_sync_is_looked_at_a_few_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks()
    monkeypatch.setattr(InSync, "change", looks)

    async def job(rig: Rig) -> None:
        keeper = IsrKeeper(1, rig.store, rig.replicas, rig.configs, rig.clock, lambda: rig.epoch_of(1))
        await keeper._mend(list(rig.replicas))

    _watch(looks, job)


def test_watermarks_are_looked_at_a_few_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks()
    monkeypatch.setattr(OffsetCheckpoints, "_moved", looks)
    _watch(looks, lambda rig: OffsetCheckpoints(rig.store, rig.replicas, interval_seconds=0).run())


def test_what_is_not_synced_is_looked_for_a_few_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks()
    monkeypatch.setattr(Syncs, "request_if_needed", looks)
    monkeypatch.setattr(housekeeping, "SYNC_SECONDS", 0)
    _watch(looks, lambda rig: _housekeeping(rig)._keep_syncing())


def test_what_to_compact_is_looked_for_a_few_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks()

    async def compact(*_: object) -> None:
        looks()

    monkeypatch.setattr(Housekeeping, "_compact", compact)
    monkeypatch.setattr(housekeeping, "COMPACTION_REST_SECONDS_MIN", 0.0)
    _watch(looks, lambda rig: _housekeeping(rig)._keep_compacting())


def test_what_is_too_old_is_looked_for_a_few_partitions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks()
    monkeypatch.setattr(Replica, "apply_retention", looks)
    _watch(looks, lambda rig: _housekeeping(rig)._keep_retention())
