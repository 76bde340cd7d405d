"""A waiting fetch notices every event, in whichever event-loop iteration it happens.

The event loop runs on virtual time and is driven step by step, so the order of callbacks is exact.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from chronik.api import fetch
from chronik.api.fetch import _PendingFetch
from chronik.broker.requests.delayed_fetch import DelayedFetch
from chronik.log.partition_log import PartitionLog
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import DeleteTopic
from chronik.protocol.errors import ErrorCode
from tests.api import request_builders
from tests.api.leader_node import TIMEOUT_SECONDS, Leader, fetch_response, partition_response, run_scenario
from tests.replication.rig import FOLLOWER, OTHER, TOPIC_ID, Rig

# Between the first read and the next event-loop iteration


def test_commit_in_the_same_iteration_completes_fetch_immediately() -> None:
    async def scenario(leader: Leader) -> None:
        await leader.write(b"value")
        began = leader.rig.loop.time()
        pending = leader.fetch()
        leader.commit()
        assert request_builders.values(await partition_response(pending)) == [b"value"]
        assert leader.rig.loop.time() == began

    run_scenario(scenario)


def test_commit_by_pending_callback_completes_fetch_immediately() -> None:
    """The commit is a callback that was scheduled before the first read."""

    async def scenario(leader: Leader) -> None:
        await leader.write(b"value")
        began = leader.rig.loop.time()
        leader.rig.loop.call_soon(leader.commit)
        pending = leader.fetch()
        assert request_builders.values(await partition_response(pending)) == [b"value"]
        assert leader.rig.loop.time() == began

    run_scenario(scenario)


def test_fetch_waits_until_min_bytes_are_committed() -> None:
    async def scenario(leader: Leader) -> None:
        await leader.write(b"one", b"two")
        began = leader.rig.loop.time()
        pending = leader.fetch(min_bytes=100)  # a batch of one such record has 71 bytes
        leader.commit(1)
        await asyncio.sleep(0.1)
        assert not pending.is_ready
        leader.commit(2)
        assert request_builders.values(await partition_response(pending)) == [b"one", b"two"]
        assert leader.rig.loop.time() == pytest.approx(began + 0.1)

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda rig: SetPartitionLeader(TOPIC_ID, 0, FOLLOWER, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda rig: DeleteTopic(TOPIC_ID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_lost_leadership_or_deleted_topic_fails_waiting_fetch_immediately(
    change: Callable[[Rig], Any], code: ErrorCode
) -> None:
    async def scenario(leader: Leader) -> None:
        pending = leader.fetch()
        leader.rig.command(change(leader.rig))
        assert (await partition_response(pending)).error_code == code
        assert leader.rig.loop.time() == 0.0

    run_scenario(scenario)


def test_node_stop_completes_waiting_fetch_immediately() -> None:
    async def scenario(leader: Leader) -> None:
        pending = leader.fetch()
        leader.rig.replicas.wake_fetches()
        assert not request_builders.values(await partition_response(pending))
        assert leader.rig.loop.time() == 0.0

    run_scenario(scenario)


# Later requests of the connection wait for the fetch


def test_early_completion_in_the_same_iteration_completes_fetch() -> None:
    async def scenario(leader: Leader) -> None:
        leader.rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        pending = leader.fetch()
        assert pending.early_completion is not None
        pending.early_completion.request()
        await partition_response(pending)
        assert leader.rig.loop.time() == 0.0

    run_scenario(scenario)


def test_requested_early_completion_takes_effect_when_a_broker_is_fenced() -> None:
    async def scenario(leader: Leader) -> None:
        pending = leader.fetch()
        assert pending.early_completion is not None
        pending.early_completion.request()
        await asyncio.sleep(0.1)
        assert not pending.is_ready
        leader.rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        await partition_response(pending)
        assert leader.rig.loop.time() == pytest.approx(0.1)

    run_scenario(scenario)


# Between the wake-up and the second read


def test_records_committed_after_wake_up_are_in_the_response() -> None:
    async def scenario(leader: Leader) -> None:
        await leader.write(b"one", b"two")
        pending = leader.fetch()
        await asyncio.sleep(0.1)
        leader.commit(1)
        leader.rig.loop.call_soon(leader.commit, 2)
        leader.commit(2)
        assert request_builders.values(await partition_response(pending)) == [b"one", b"two"]

    run_scenario(scenario)


def test_early_completion_after_wake_up_completes_fetch() -> None:
    async def scenario(leader: Leader) -> None:
        leader.rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        pending = leader.fetch()
        await asyncio.sleep(0.1)
        leader.rig.replica().wake_fetches()  # it reads again and finds nothing
        assert pending.early_completion is not None
        pending.early_completion.request()
        await partition_response(pending)
        assert leader.rig.loop.time() == pytest.approx(0.1)

    run_scenario(scenario)


def test_commit_in_the_iteration_of_a_second_read_completes_fetch() -> None:
    async def scenario(leader: Leader) -> None:
        await leader.write(b"value")
        began = leader.rig.loop.time()
        pending = leader.fetch()
        for _ in range(3):  # reads again several times and finds nothing
            leader.rig.replica().wake_fetches()
            await asyncio.sleep(0)
        assert not pending.is_ready
        leader.rig.replica().wake_fetches()
        leader.rig.loop.call_soon(leader.commit)  # after the read, in the same event-loop iteration
        assert request_builders.values(await partition_response(pending)) == [b"value"]
        assert leader.rig.loop.time() == began

    run_scenario(scenario)


# The timeout


@pytest.mark.parametrize("is_timer_first", [True, False])
def test_record_committed_at_the_timeout_is_returned(is_timer_first: bool) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.write(b"value")
        due = leader.rig.loop.time() + TIMEOUT_SECONDS
        if not is_timer_first:
            leader.rig.loop.call_at(due, leader.commit)
        pending = leader.fetch()
        if is_timer_first:
            leader.rig.loop.call_at(due, leader.commit)
        assert request_builders.values(await partition_response(pending)) == [b"value"]
        assert leader.rig.loop.time() == pytest.approx(due)

    run_scenario(scenario)


def test_fetch_without_records_returns_empty_after_timeout() -> None:
    async def scenario(leader: Leader) -> None:
        assert not request_builders.values(await partition_response(leader.fetch()))
        assert leader.rig.loop.time() == pytest.approx(TIMEOUT_SECONDS)

    run_scenario(scenario)


# The client disconnects


@pytest.mark.parametrize("iterations", [0, 1, 3])
@pytest.mark.parametrize("is_woken", [True, False])
def test_cancelled_fetch_releases_its_watchers(iterations: int, is_woken: bool) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.write(b"value")
        pending = leader.fetch()
        for _ in range(iterations):
            await asyncio.sleep(0)
        if is_woken:
            leader.commit()
        pending.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not leader.rig.replica().delayed_fetches
        await asyncio.sleep(2 * TIMEOUT_SECONDS)
        assert pending.is_cancelled
        assert not leader.rig.loop.failures

    run_scenario(scenario)


def test_answered_fetch_is_freed_without_garbage_collector() -> None:
    """Its records are megabytes, and the garbage collector runs rarely."""

    async def scenario(leader: Leader) -> None:
        await leader.write(b"value")
        pending = leader.fetch()
        await asyncio.sleep(0)
        leader.commit()
        await partition_response(pending)
        del pending
        await asyncio.sleep(TIMEOUT_SECONDS)
        assert not [each for each in gc.get_objects() if isinstance(each, DelayedFetch | _PendingFetch)]

    gc.collect()
    gc.disable()
    try:
        run_scenario(scenario)
    finally:
        gc.enable()


def test_failed_read_answers_waiting_fetch_with_unknown_server_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(leader: Leader) -> None:
        await leader.write(b"value")
        pending = leader.fetch()
        monkeypatch.setattr(PartitionLog, "read", None)
        leader.commit()
        assert (await fetch_response(pending)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run_scenario(scenario)


# Reads in slices


@pytest.mark.parametrize(("min_bytes", "reads"), [(1, 1), (1 << 20, 3)])
def test_fetch_in_slices_reads_sufficient_records_once(
    monkeypatch: pytest.MonkeyPatch, min_bytes: int, reads: int
) -> None:
    """If there are too few bytes, partitions are read again when the wait starts and when the timeout expires."""
    seen: list[int] = []
    read = PartitionLog.read

    def count_read(log: PartitionLog, offset: int, *args: Any, **more: Any) -> Any:
        seen.append(offset)
        return read(log, offset, *args, **more)

    async def scenario(leader: Leader) -> None:
        await leader.write(b"value")
        leader.commit()
        monkeypatch.setattr(PartitionLog, "read", count_read)
        assert request_builders.values(await partition_response(leader.fetch(min_bytes))) == [b"value"]
        assert len(seen) == reads

    monkeypatch.setattr(fetch, "PARTITIONS_PER_ITERATION_MAX", 0)
    run_scenario(scenario)
