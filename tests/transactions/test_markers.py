"""Markers are written to all partitions, whatever happens to the coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import msgspec
import pytest

from chronik.broker.requests.produced_records import validate_produced_records
from chronik.clock import SystemClock
from chronik.metadata.commands.topics import CreateTopic, PartitionAssignment
from chronik.metadata.commands.transactions import (
    NO_RECORD_INDEX,
    AddToTransaction,
    CompleteTransaction,
    EndTransaction,
    InitTransaction,
    TransactionPartition,
)
from chronik.metadata.delta import Delta, RecordChange
from chronik.metadata.records import TransactionState
from chronik.metadata.stores.store import MetadataStore
from chronik.peers.calls import PeerCalls
from chronik.protocol.errors import ErrorCode
from chronik.protocol.records import Record, encode_batch
from chronik.transactions.coordinator import DELTA_TRANSACTIONS_MAX, TransactionCoordinator
from chronik.transactions.markers import MarkerAppender, MarkerSender
from chronik.transactions.peer_calls import PENDING_MARKER_CALLS_MAX, TransactionPeerCalls
from chronik.transactions.peer_messages import NoTransactionPeers, WriteMarkersRequest, WriteMarkersResponse
from tests.groups.coordinator_helpers import run_scenario, until
from tests.groups.memory_store import MemoryStore
from tests.replication.rig import LEADER, Rig

FIRST_PRODUCER = 7
MANY = b"m" * 16


class MarkerBench:
    """A coordinator, and a leader of all partitions that accepts or rejects markers."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.is_fenced = False
        self.takes_markers = True
        self.refused = 0
        self.coordinator = TransactionCoordinator(
            self.store,
            SystemClock(),
            self._new_producer_id,
            MarkerSender(1, cast(MetadataStore, self.store), cast(MarkerAppender, self), NoTransactionPeers()),
            is_fenced=lambda: self.is_fenced,
        )

    async def _new_producer_id(self) -> int:
        return FIRST_PRODUCER

    async def append(self, markers: WriteMarkersRequest) -> Sequence[ErrorCode]:
        if self.takes_markers:
            return [ErrorCode.NONE] * len(markers.partitions)
        self.refused += 1
        return [ErrorCode.NOT_ENOUGH_REPLICAS] * len(markers.partitions)

    @property
    def state(self) -> TransactionState:
        return self.store.image.transactions["t"].state

    async def begin(self) -> None:
        await self.coordinator.init_producer("t", 60_000)
        partitions = [TransactionPartition(b"t" * 16, 0)]
        assert await self.coordinator.add_to_transaction("t", FIRST_PRODUCER, 0, partitions) is ErrorCode.NONE

    async def decide(self) -> None:
        await self.begin()
        given = await self.coordinator.end_transaction("t", FIRST_PRODUCER, 0, commit=True, bump_epoch=False)
        assert given.error is ErrorCode.NONE


def run_with_bench(script: Callable[[MarkerBench], Coroutine[Any, Any, None]]) -> None:
    async def run_with_desk() -> None:
        desk = MarkerBench()
        await desk.coordinator.start()
        try:
            await script(desk)
        finally:
            await desk.coordinator.close()

    run_scenario(run_with_desk)


def test_rejected_markers_are_sent_again() -> None:
    async def script(desk: MarkerBench) -> None:
        desk.takes_markers = False
        await desk.decide()
        await until(lambda: desk.refused > 1)
        assert desk.state is TransactionState.PREPARE_COMMIT
        desk.takes_markers = True
        await until(lambda: desk.state is TransactionState.COMPLETE_COMMIT)

    run_with_bench(script)


def test_briefly_fenced_coordinator_resumes_sending_markers() -> None:
    """The fencing is so short that it is over before anything checks for it."""

    async def script(desk: MarkerBench) -> None:
        desk.takes_markers = False
        await desk.decide()
        await until(lambda: desk.refused > 0)
        desk.is_fenced = True
        await until(lambda: not desk.coordinator._marker_tasks)
        desk.is_fenced, desk.takes_markers = False, True
        await until(lambda: desk.state is TransactionState.COMPLETE_COMMIT)

    run_with_bench(script)


@pytest.mark.parametrize("others", [0, DELTA_TRANSACTIONS_MAX])
def test_markers_are_sent_for_decision_with_unknown_outcome(others: int) -> None:
    """By a command whose outcome was unknown, or by a snapshot with many other transactions."""

    async def script(desk: MarkerBench) -> None:
        await desk.begin()
        await desk.store.propose(EndTransaction("t", desk.store.image.transactions["t"].index, True, 0, 0))
        for number in range(others):
            await desk.store.propose(InitTransaction(f"other-{number}", NO_RECORD_INDEX, 100 + number, 0, 60_000, 0))
        changes = [RecordChange(None, each) for each in desk.store.image.transactions.values()]
        desk.coordinator.on_delta(Delta(desk.store.image.applied_index, transactions=tuple(changes)))
        await until(lambda: desk.state is TransactionState.COMPLETE_COMMIT)

    run_with_bench(script)


def test_slow_node_does_not_delay_markers_for_other_nodes() -> None:
    markers = WriteMarkersRequest(FIRST_PRODUCER, 0, 0, 1, True, (TransactionPartition(b"t" * 16, 0),))

    async def script() -> None:
        silent = SilentNode(2)
        calls = TransactionPeerCalls(cast(PeerCalls, silent))
        waiting = [
            asyncio.ensure_future(calls.send_markers(2, markers, 60.0)) for _ in range(PENDING_MARKER_CALLS_MAX + 1)
        ]
        await until(lambda: silent.asked == PENDING_MARKER_CALLS_MAX)
        assert await calls.send_markers(3, markers, 60.0) == (ErrorCode.NONE,)
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)

    run_scenario(script)


class SilentNode:
    """Peer calls that one node does not respond to."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.asked = 0

    async def call(self, peer: int, kind: int, payload: bytes, timeout: float) -> memoryview:
        if peer == self._node_id:
            self.asked += 1
            await asyncio.sleep(timeout)
        return memoryview(msgspec.msgpack.encode(WriteMarkersResponse((ErrorCode.NONE,))))


@pytest.mark.parametrize("count", [1, 1_001])
def test_leader_appends_each_due_marker_once(count: int) -> None:
    async def script(rig: Rig) -> None:
        markers = decide_transaction(rig, count)
        appender = MarkerAppender(rig.store, rig.replicas, SystemClock(), lambda: False)
        assert await appender.append(markers) == [ErrorCode.NONE] * count
        assert [rig.replicas.get_leader_by_id(MANY, index).log.log_end_offset for index in range(count)] == [1] * count
        rig.command(CompleteTransaction("t", markers.decision_index, 0))
        assert await appender.append(markers) == [ErrorCode.NONE] * count
        assert rig.replicas.get_leader_by_id(MANY, count - 1).log.log_end_offset == 1

    Rig().run(script)


def test_record_with_later_epoch_does_not_block_completion() -> None:
    async def script(rig: Rig) -> None:
        markers = decide_transaction(rig, 1)
        replica = rig.replicas.get_leader_by_id(MANY, 0)
        records = [Record(0, 0, None, b"outside of transactions")]
        stray = encode_batch(records, producer_id=FIRST_PRODUCER, producer_epoch=9, base_sequence=0)
        replica.append(validate_produced_records(memoryview(bytearray(stray)), replica.produce_rules, 13, 0))
        appender = MarkerAppender(rig.store, rig.replicas, SystemClock(), lambda: False)
        assert await appender.append(markers) == [ErrorCode.NONE]
        assert replica.log.log_end_offset == 1, "a marker of an old epoch has no effect"

    Rig().run(script)


def decide_transaction(rig: Rig, count: int) -> WriteMarkersRequest:
    """Decide a transaction with all partitions of a topic, each of which has one replica."""
    rig.command(CreateTopic(MANY, "many", (PartitionAssignment((LEADER,), (LEADER,), LEADER),) * count, {}, 0))
    partitions = tuple(TransactionPartition(MANY, index) for index in range(count))
    rig.command(InitTransaction("t", NO_RECORD_INDEX, FIRST_PRODUCER, 2, 60_000, 0))
    rig.command(AddToTransaction("t", rig.store.image.transactions["t"].index, partitions, (), 0))
    rig.command(EndTransaction("t", rig.store.image.transactions["t"].index, True, 2, 0))
    return WriteMarkersRequest(FIRST_PRODUCER, 2, 0, rig.store.image.transactions["t"].index, True, partitions)
