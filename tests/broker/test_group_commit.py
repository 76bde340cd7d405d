"""Group commit: many appends share one sync, and a failed sync commits nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from chronik.broker.flusher import INLINE_AFTER_FAST_SYNCS, INLINE_BYTES_MAX, Flusher
from chronik.errors import StorageError
from chronik.log.sync import SyncTask


class Ticket:
    def __init__(self, log: FakeLog, end: int) -> None:
        self.log = log
        self.end = end
        self.is_single_file = log.is_single_file

    def run(self) -> None:
        self.log.gate.wait(10)
        self.log.runs += 1
        self.log.threads.append(threading.current_thread())
        if self.log.broken:
            raise StorageError("the disk is gone")


class FakeLog:
    def __init__(self) -> None:
        self.end = self.synced = self.runs = 0
        self.broken = False
        self.is_single_file = True
        self.unsynced_bytes = 100
        self.threads: list[threading.Thread] = []
        self.gate = threading.Event()
        self.gate.set()

    def begin_sync(self) -> SyncTask | None:
        return cast(SyncTask, Ticket(self, self.end)) if self.end > self.synced else None

    def complete_sync(self, ticket: SyncTask) -> None:
        self.synced = cast(Ticket, ticket).end


def test_appends_during_sync_share_the_next_sync() -> None:
    async def scenario() -> None:
        log = FakeLog()
        flusher = Flusher(lambda error: pytest.fail(str(error)))
        log.gate.clear()
        log.end = 1
        flusher.request_sync(log)
        await asyncio.sleep(0)  # starts the first sync
        for end in range(2, 100):
            log.end = end
            flusher.request_sync(log)
        log.gate.set()
        await asyncio.wait_for(flusher.drain(), 10)
        assert (log.synced, log.runs) == (99, 2)
        flusher.close()

    asyncio.run(scenario())


def test_appends_of_one_loop_iteration_share_a_sync() -> None:
    async def scenario() -> None:
        log = FakeLog()
        flusher = Flusher(lambda error: pytest.fail(str(error)))
        for end in range(1, 10):
            log.end = end
            flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        assert (log.synced, log.runs) == (9, 1)
        flusher.close()

    asyncio.run(scenario())


def test_no_sync_runs_after_a_failed_sync() -> None:
    async def scenario() -> None:
        failures: list[BaseException] = []
        log = FakeLog()
        flusher = Flusher(failures.append)
        log.broken, log.end = True, 1
        flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        log.broken, log.end = False, 2
        flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        assert log.synced == 0
        assert [str(failure) for failure in failures] == ["the disk is gone"]
        flusher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("step", ["begin_sync", "complete_sync"])
def test_exception_in_log_is_reported_as_failure(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        failures: list[BaseException] = []
        log = FakeLog()
        log.end = 1

        def break_it(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(log, step, break_it)
        flusher = Flusher(failures.append)
        flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        assert [type(failure) for failure in failures] == [ZeroDivisionError]
        flusher.close()

    asyncio.run(scenario())


async def sync_once(flusher: Flusher, log: FakeLog) -> bool:
    """Return whether the event loop ran the sync inline."""
    log.end += 1
    flusher.request_sync(log)
    await asyncio.wait_for(flusher.drain(), 10)
    assert log.synced == log.end
    return log.threads[-1] is threading.current_thread()


def test_small_syncs_run_inline_while_disk_is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        log = FakeLog()
        flusher = Flusher(lambda error: pytest.fail(str(error)))
        monkeypatch.setattr("chronik.broker.flusher.INLINE_SECONDS_MAX", 10.0)
        assert not any([await sync_once(flusher, log) for _ in range(INLINE_AFTER_FAST_SYNCS)])
        assert await sync_once(flusher, log)
        log.unsynced_bytes = INLINE_BYTES_MAX
        assert await sync_once(flusher, log)
        log.unsynced_bytes = INLINE_BYTES_MAX + 1
        assert not await sync_once(flusher, log), "too many bytes for the event loop"
        log.unsynced_bytes, log.is_single_file = 100, False
        assert not await sync_once(flusher, log), "the task syncs more than one file"
        log.is_single_file = True
        assert await sync_once(flusher, log)
        monkeypatch.setattr("chronik.broker.flusher.INLINE_SECONDS_MAX", 0.0)
        assert await sync_once(flusher, log), "this sync turns out to be slow"
        assert not await sync_once(flusher, log), "the next sync runs in a thread"
        flusher.close()

    asyncio.run(scenario())


def test_syncs_of_several_logs_run_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        logs = [FakeLog(), FakeLog()]
        flusher = Flusher(lambda error: pytest.fail(str(error)))
        monkeypatch.setattr("chronik.broker.flusher.INLINE_SECONDS_MAX", 10.0)
        for _ in range(INLINE_AFTER_FAST_SYNCS):
            await sync_once(flusher, logs[0])
        for log in logs:
            log.end += 1
            flusher.request_sync(log)
        await asyncio.wait_for(flusher.drain(), 10)
        assert threading.current_thread() not in [logs[0].threads[-1], logs[1].threads[-1]]
        flusher.close()

    asyncio.run(scenario())
