"""Jobs that process all partitions of a node yield to the event loop after a few of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.broker.log_maintenance import LogMaintenance
from chronik.broker.replica_manager import REPLICAS_PER_ITERATION
from chronik.configs.resolver import ConfigResolver
from chronik.replication.isr_manager import IsrManager
from chronik.replication.replication import OffsetCheckpoints
from tests.replication.rig import Rig

PARTITIONS = 4 * REPLICAS_PER_ITERATION + 1


class ProcessedPartitions:
    """A counter of processed partitions per event-loop iteration."""

    def __init__(self) -> None:
        self.total = 0
        self.most_in_a_turn = 0
        self._before = 0

    def __call__(self, *_: object) -> None:
        self.total += 1

    async def until_all_are_processed(self) -> None:
        while self.total < PARTITIONS:
            await asyncio.sleep(0)
            self.most_in_a_turn = max(self.most_in_a_turn, self.total - self._before)
            self._before = self.total


def _check_job(processed: ProcessedPartitions, job: Callable[[Rig], Coroutine[Any, Any, None]]) -> None:
    async def scenario(rig: Rig) -> None:
        for index in range(PARTITIONS):
            rig.replica(index).open()
        work = asyncio.ensure_future(job(rig))
        await processed.until_all_are_processed()
        work.cancel()
        assert processed.most_in_a_turn <= REPLICAS_PER_ITERATION

    Rig(partitions=PARTITIONS).run(scenario)


def _housekeeping(rig: Rig) -> LogMaintenance:
    configs = SimpleNamespace(broker_int=lambda name: 0, broker_flag=lambda name: True)
    return LogMaintenance(rig.replicas, cast(Any, None), cast(ConfigResolver, configs), rig.clock)


def test_isr_check_yields_between_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    processed = ProcessedPartitions()
    monkeypatch.setattr("chronik.broker.isr_state.IsrState.compute_next_isr", processed)

    async def job(rig: Rig) -> None:
        keeper = IsrManager(1, rig.store, rig.replicas, rig.configs, rig.clock, lambda: rig.epoch_of(1))
        await keeper._update_isrs(list(rig.replicas))

    _check_job(processed, job)


def test_offset_checkpoint_yields_between_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    processed = ProcessedPartitions()
    monkeypatch.setattr("chronik.replication.replication.OffsetCheckpoints._checkpoint", processed)
    _check_job(processed, lambda rig: OffsetCheckpoints(rig.store, rig.replicas, interval_seconds=0).run())


def test_periodic_sync_yields_between_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    processed = ProcessedPartitions()
    monkeypatch.setattr("chronik.broker.flusher.LogSyncer.request_sync_if_needed", processed)
    monkeypatch.setattr("chronik.broker.log_maintenance.SYNC_SECONDS", 0)
    _check_job(processed, lambda rig: _housekeeping(rig)._run_periodic_syncs())


def test_compaction_check_yields_between_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    processed = ProcessedPartitions()

    async def compact(*_: object) -> None:
        processed()

    monkeypatch.setattr("chronik.broker.log_maintenance.LogMaintenance._compact_log", compact)
    monkeypatch.setattr("chronik.broker.log_maintenance.COMPACTION_PAUSE_SECONDS_MIN", 0.0)
    _check_job(processed, lambda rig: _housekeeping(rig)._run_compaction())


def test_retention_check_yields_between_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    processed = ProcessedPartitions()
    monkeypatch.setattr("chronik.broker.replica.Replica.apply_retention", processed)
    _check_job(processed, lambda rig: _housekeeping(rig)._run_retention())
