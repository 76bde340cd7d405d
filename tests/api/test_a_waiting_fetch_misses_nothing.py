"""A fetch looks, finds too little, and waits: whatever happens at whatever moment after the look is noticed.

The loop is driven by hand, on virtual time: what "between two turns" means is written down, not hoped for.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from chronik.api import fetch
from chronik.api.fetch import _Fetching
from chronik.broker.requests.purgatory import RecordsArrived
from chronik.log.partition import PartitionLog
from chronik.metadata.commands.brokers import BrokerStatus, UpdateBrokerStatus
from chronik.metadata.commands.partitions import SetPartitionLeader
from chronik.metadata.commands.topics import DeleteTopic
from chronik.protocol.errors import ErrorCode
from tests.api import talk
from tests.api.leading import PATIENCE_SECONDS, Leader, answered, response_of, tell
from tests.replication.rig import FOLLOWER, OTHER, TOPIC_ID, Rig

# Between the look and the next turn


def test_what_is_committed_in_the_turn_of_the_look_is_answered_at_once() -> None:
    async def story(leader: Leader) -> None:
        await leader.write(b"value")
        began = leader.rig.loop.time()
        pending = leader.fetch()
        leader.commit()
        assert talk.values(await answered(pending)) == [b"value"]
        assert leader.rig.loop.time() == began

    tell(story)


def test_what_is_committed_before_the_next_turn_is_answered_at_once() -> None:
    """By a callback that was due before the look."""

    async def story(leader: Leader) -> None:
        await leader.write(b"value")
        began = leader.rig.loop.time()
        leader.rig.loop.call_soon(leader.commit)
        pending = leader.fetch()
        assert talk.values(await answered(pending)) == [b"value"]
        assert leader.rig.loop.time() == began

    tell(story)


def test_only_as_many_bytes_as_are_missing_end_the_wait() -> None:
    async def story(leader: Leader) -> None:
        await leader.write(b"one", b"two")
        began = leader.rig.loop.time()
        pending = leader.fetch(min_bytes=100)  # a batch of one such record has 71 bytes
        leader.commit(1)
        await asyncio.sleep(0.1)
        assert not pending.is_ready
        leader.commit(2)
        assert talk.values(await answered(pending)) == [b"one", b"two"]
        assert leader.rig.loop.time() == pytest.approx(began + 0.1)

    tell(story)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda rig: SetPartitionLeader(TOPIC_ID, 0, FOLLOWER, 0), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (lambda rig: DeleteTopic(TOPIC_ID), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_partition_that_goes_away_in_the_turn_of_the_look_is_told_at_once(
    change: Callable[[Rig], Any], code: ErrorCode
) -> None:
    async def story(leader: Leader) -> None:
        pending = leader.fetch()
        leader.rig.command(change(leader.rig))
        assert (await answered(pending)).error_code == code
        assert leader.rig.loop.time() == 0.0

    tell(story)


def test_a_node_that_stops_in_the_turn_of_the_look_keeps_nobody_waiting() -> None:
    async def story(leader: Leader) -> None:
        pending = leader.fetch()
        leader.rig.replicas.stop_waiting()
        assert not talk.values(await answered(pending))
        assert leader.rig.loop.time() == 0.0

    tell(story)


# Others wait behind it


def test_a_hurry_in_the_turn_of_the_look_is_heard() -> None:
    async def story(leader: Leader) -> None:
        leader.rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        pending = leader.fetch()
        assert pending.hurry is not None
        pending.hurry.ask()
        await answered(pending)
        assert leader.rig.loop.time() == 0.0

    tell(story)


def test_a_hurry_that_was_asked_for_before_a_broker_went_is_heard_when_it_goes() -> None:
    async def story(leader: Leader) -> None:
        pending = leader.fetch()
        assert pending.hurry is not None
        pending.hurry.ask()
        await asyncio.sleep(0.1)
        assert not pending.is_ready
        leader.rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        await answered(pending)
        assert leader.rig.loop.time() == pytest.approx(0.1)

    tell(story)


# Between the wake and the second look


def test_what_comes_between_the_wake_and_the_second_look_is_in_the_answer() -> None:
    async def story(leader: Leader) -> None:
        await leader.write(b"one", b"two")
        pending = leader.fetch()
        await asyncio.sleep(0.1)
        leader.commit(1)
        leader.rig.loop.call_soon(leader.commit, 2)
        leader.commit(2)
        assert talk.values(await answered(pending)) == [b"one", b"two"]

    tell(story)


def test_a_hurry_between_the_wake_and_the_second_look_is_heard() -> None:
    async def story(leader: Leader) -> None:
        leader.rig.command(UpdateBrokerStatus(OTHER, BrokerStatus.OFFLINE))
        pending = leader.fetch()
        await asyncio.sleep(0.1)
        leader.rig.replica().stop_waiting()  # it will look, and find nothing
        assert pending.hurry is not None
        pending.hurry.ask()
        await answered(pending)
        assert leader.rig.loop.time() == pytest.approx(0.1)

    tell(story)


def test_what_comes_in_the_turn_of_a_second_look_that_found_too_little_ends_the_wait() -> None:
    async def story(leader: Leader) -> None:
        await leader.write(b"value")
        began = leader.rig.loop.time()
        pending = leader.fetch()
        for _ in range(3):  # looks again and again, and finds nothing
            leader.rig.replica().stop_waiting()
            await asyncio.sleep(0)
        assert not pending.is_ready
        leader.rig.replica().stop_waiting()
        leader.rig.loop.call_soon(leader.commit)  # after its look, in the same turn
        assert talk.values(await answered(pending)) == [b"value"]
        assert leader.rig.loop.time() == began

    tell(story)


# The timer


@pytest.mark.parametrize("is_timer_first", [True, False])
def test_a_record_and_the_end_of_patience_in_the_same_turn_give_the_record(is_timer_first: bool) -> None:
    async def story(leader: Leader) -> None:
        await leader.write(b"value")
        due = leader.rig.loop.time() + PATIENCE_SECONDS
        if not is_timer_first:
            leader.rig.loop.call_at(due, leader.commit)
        pending = leader.fetch()
        if is_timer_first:
            leader.rig.loop.call_at(due, leader.commit)
        assert talk.values(await answered(pending)) == [b"value"]
        assert leader.rig.loop.time() == pytest.approx(due)

    tell(story)


def test_without_anything_the_wait_ends_with_the_patience() -> None:
    async def story(leader: Leader) -> None:
        assert not talk.values(await answered(leader.fetch()))
        assert leader.rig.loop.time() == pytest.approx(PATIENCE_SECONDS)

    tell(story)


# Whoever asked goes away


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("is_woken", [True, False])
def test_nothing_is_left_of_a_fetch_that_nobody_waits_for(turns: int, is_woken: bool) -> None:
    async def story(leader: Leader) -> None:
        await leader.write(b"value")
        pending = leader.fetch()
        for _ in range(turns):
            await asyncio.sleep(0)
        if is_woken:
            leader.commit()
        pending.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not leader.rig.replica().watchers
        await asyncio.sleep(2 * PATIENCE_SECONDS)
        assert pending.is_cancelled
        assert not leader.rig.loop.failures

    tell(story)


def test_an_answered_fetch_is_freed_without_the_collector() -> None:
    """Its records are megabytes, and the collector runs seldom."""

    async def story(leader: Leader) -> None:
        await leader.write(b"value")
        pending = leader.fetch()
        await asyncio.sleep(0)
        leader.commit()
        await answered(pending)
        del pending
        await asyncio.sleep(PATIENCE_SECONDS)
        assert not [each for each in gc.get_objects() if isinstance(each, RecordsArrived | _Fetching)]

    gc.collect()
    gc.disable()
    try:
        tell(story)
    finally:
        gc.enable()


def test_a_look_that_fails_is_told_to_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(leader: Leader) -> None:
        await leader.write(b"value")
        pending = leader.fetch()
        monkeypatch.setattr(PartitionLog, "read", None)
        leader.commit()
        assert (await response_of(pending)).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    tell(story)


# Where so much is asked for that it is looked for in slices


@pytest.mark.parametrize(("min_bytes", "reads"), [(1, 1), (1 << 20, 3)])
def test_what_was_found_in_slices_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch, min_bytes: int, reads: int
) -> None:
    """When it is not enough it is: in the turn from which on it is listened, and when the patience ends."""
    seen: list[int] = []
    read = PartitionLog.read

    def counted(log: PartitionLog, offset: int, *args: Any, **more: Any) -> Any:
        seen.append(offset)
        return read(log, offset, *args, **more)

    async def story(leader: Leader) -> None:
        await leader.write(b"value")
        leader.commit()
        monkeypatch.setattr(PartitionLog, "read", counted)
        assert talk.values(await answered(leader.fetch(min_bytes))) == [b"value"]
        assert len(seen) == reads

    monkeypatch.setattr(fetch, "PARTITIONS_LOOKED_AT_AT_ONCE", 0)
    tell(story)
