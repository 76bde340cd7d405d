"""A session ended by a delayed command of an earlier incarnation: the node starts a new incarnation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.cluster import AllocateProducerIds
from chronik.metadata.commands.envelope import Envelope, encode_command
from chronik.metadata.image_state_machine import ImageStateMachine
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.raft_store import RaftStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.forwarder import ProposalForwarder
from chronik.raft.entries import EntryKind, RaftEntry

NODE = 1
EARLIER = b"an earlier life!"


class Log:
    """A metadata log as applied by one node; commands can be delayed."""

    def __init__(self) -> None:
        self.store = RaftStore(NODE)
        self.store._forwarder = cast(ProposalForwarder, SimpleNamespace(propose=self._propose))
        self.entries: list[RaftEntry] = []
        self.held: list[bytes] | None = None

    async def _propose(self, data: bytes, *_: Any) -> None:
        if self.held is not None:
            self.held.append(data)
            await asyncio.Event().wait()
        self.append(data)

    def append(self, data: bytes) -> None:
        self.entries.append(self.entry(data))
        self.store.machine.apply(self.entries[-1:])

    def entry(self, data: bytes) -> RaftEntry:
        return RaftEntry(len(self.entries) + 1, 1, EntryKind.COMMAND, data)

    async def register(self) -> ApplyResult:
        return await self.store.propose(registration(self.store.incarnation))

    async def allocate(self, epoch: int) -> ApplyResult:
        return await self.store.propose(AllocateProducerIds(NODE, epoch, 10))

    @property
    def allocated(self) -> int:
        return self.store.image.next_producer_id


def registration(incarnation: bytes) -> RegisterBroker:
    return RegisterBroker(NODE, "host", 9092, None, incarnation, b"d" * 16)


LATE = encode_command(Envelope(NODE, EARLIER, 1, 0, registration(EARLIER)))


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 10))


async def outcome_of(proposal: Coroutine[Any, Any, ApplyResult]) -> ErrorCode:
    try:
        return (await proposal).code
    except KafkaError as error:
        return error.code


def test_node_registers_again_after_delayed_command_of_earlier_incarnation() -> None:
    async def scenario() -> None:
        log = Log()
        await log.register()
        before = log.store.incarnation
        log.append(LATE)
        assert log.store.image.brokers[NODE].incarnation == EARLIER
        assert await outcome_of(log.register()) is ErrorCode.REQUEST_TIMED_OUT
        assert log.store.incarnation not in (before, EARLIER)
        assert await outcome_of(log.register()) is ErrorCode.NONE
        assert log.store.image.brokers[NODE].incarnation == log.store.incarnation
        log.append(encode_command(Envelope(NODE, EARLIER, 2, 0, registration(EARLIER))))
        assert log.store.image.brokers[NODE].incarnation == log.store.incarnation

    run(scenario)


def test_pending_commands_of_ended_incarnation_are_never_applied() -> None:
    async def scenario() -> None:
        log = Log()
        epoch = (await log.register()).value
        assert await outcome_of(log.allocate(epoch)) is ErrorCode.NONE
        log.held = []
        waiting = [asyncio.create_task(log.allocate(epoch)) for _ in range(3)]
        while len(log.held) < len(waiting):
            await asyncio.sleep(0)
        first, *others = log.held
        log.append(LATE)
        log.append(first)  # ends the session and all pending commands
        log.held = None
        pending = log.store._pending
        assert not pending
        new_epoch = (await log.register()).value
        assert await outcome_of(log.allocate(new_epoch)) is ErrorCode.NONE
        before = log.allocated
        for late in others:
            log.append(late)
        assert log.allocated == before == 20
        for task in waiting:
            task.cancel()  # the attempts never complete
        await asyncio.gather(*waiting, return_exceptions=True)
        assert await outcome_of(log.allocate(new_epoch)) is ErrorCode.NONE

    run(scenario)


def test_pending_proposals_of_ended_incarnation_report_unknown_outcome() -> None:
    async def scenario() -> None:
        log = Log()
        epoch = (await log.register()).value
        gate = asyncio.Event()

        async def propose(data: bytes, *_: Any) -> None:
            await gate.wait()
            log.append(data)

        log.store._forwarder = cast(ProposalForwarder, SimpleNamespace(propose=propose))
        waiting = [asyncio.create_task(outcome_of(log.allocate(epoch))) for _ in range(3)]
        await asyncio.sleep(0)
        log.append(LATE)
        gate.set()
        assert await asyncio.gather(*waiting) == [ErrorCode.REQUEST_TIMED_OUT] * 3
        assert log.allocated == 0

    run(scenario)


def test_installed_snapshot_can_end_the_incarnation() -> None:
    async def scenario() -> None:
        log = Log()
        epoch = (await log.register()).value
        other = ImageStateMachine(lambda delta: None, lambda envelope, result: None, lambda: None)
        other.apply([*log.entries, log.entry(LATE)])
        log.held = []
        waiting = asyncio.create_task(log.allocate(epoch))
        await asyncio.sleep(0)
        before = log.store.incarnation

        async def chunks() -> AsyncIterator[bytes]:
            for chunk in other.begin_snapshot():
                yield chunk

        await log.store.machine.install_snapshot(other.image.applied_index, chunks())
        assert log.store.incarnation != before
        assert not log.store._pending
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(scenario)
