"""The metadata store of a cluster node: incarnations, the cost of commands, and timeouts.

A session that a delayed command of an earlier incarnation ended makes the node start a new incarnation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.metadata.commands.brokers import RegisterBroker
from chronik.metadata.commands.cluster import AllocateProducerIds
from chronik.metadata.commands.envelope import Envelope, decode_command, encode_command
from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.image_state_machine import ImageStateMachine
from chronik.metadata.records import ApplyResult
from chronik.metadata.sessions import RESULTS_KEPT_MAX
from chronik.metadata.stores.raft_store import LEADERLESS_SECONDS, RaftStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.forwarder import ProposalForwarder
from chronik.quorum.outcomes import NotLeader, OutcomeUnknown
from chronik.raft.entries import EntryKind, RaftEntry
from tests.metadata.metadata_world import encode_verified_snapshot
from tests.metadata.test_sessions import SENDER, Sender
from tests.replication.virtual_loop import VirtualLoop

NODE = 1
EARLIER = b"an earlier life!"

COMMAND = DeleteTopic(b"x" * 16)


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


class NotIterableDict(dict[int, Any]):
    """A dict that supports lookups but fails on iteration."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("all keys were walked through")


class Attempts:
    """Commands of a store that complete when the test says so."""

    def __init__(self) -> None:
        self.answered: list[int] = []
        """The completed sequence that each command reported."""
        self.store = RaftStore(1)
        self.store._forwarder = cast(ProposalForwarder, SimpleNamespace(propose=self._propose))
        self._tasks: dict[int, asyncio.Task[Any]] = {}

    async def _propose(self, data: bytes, *_: Any) -> None:
        self.answered.append(decode_command(data).answered)
        await asyncio.Event().wait()

    async def send(self) -> None:
        self._tasks[len(self._tasks) + 1] = asyncio.create_task(self.store.propose(COMMAND))
        await asyncio.sleep(0)

    async def give_up(self, *sequences: int) -> None:
        tasks = [self._tasks[sequence] for sequence in sequences]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("abandoned", "expected"), [((), 0), ((1,), 1), ((2, 3), 0), ((3, 1, 2), 3), ((1, 2, 3, 4, 5), 5), ((5,), 0)]
)
def test_command_reports_up_to_which_sequence_commands_completed(abandoned: tuple[int, ...], expected: int) -> None:
    async def scenario() -> list[int]:
        attempts = Attempts()
        for _ in range(5):
            await attempts.send()
        await attempts.give_up(*abandoned)
        await attempts.send()
        await attempts.give_up(*({1, 2, 3, 4, 5, 6} - set(abandoned)))
        return attempts.answered

    assert asyncio.run(scenario()) == [0, 0, 0, 0, 0, expected]


def test_proposing_does_not_iterate_over_pending_commands() -> None:
    async def scenario() -> list[int]:
        attempts = Attempts()
        attempts.store._pending = NotIterableDict()
        for _ in range(3):
            await attempts.send()
        await attempts.give_up(1, 2, 3)
        return attempts.answered

    assert asyncio.run(scenario()) == [0, 0, 0]


def test_dropping_results_does_not_iterate_over_kept_results() -> None:
    sender = Sender()
    for sequence in range(1, RESULTS_KEPT_MAX // 2):
        sender.send(sequence)
    session = sender.world.image.session(SENDER)
    assert session is not None
    session.results = NotIterableDict(session.results)
    sender.send(RESULTS_KEPT_MAX // 2, answered=2)
    assert session.floor == 2
    assert sorted(session.results.keys())[:2] == [3, 4]


def test_completed_sequence_above_all_results_drops_them() -> None:
    sender = Sender()
    for sequence in (1, 2, 5):
        sender.send(sequence)
    sender.send(2**62, answered=2**62 - 1)
    session = sender.world.image.session(SENDER)
    assert session is not None
    assert (list(session.results), session.floor) == ([2**62], 2**62 - 1)
    encode_verified_snapshot(sender.world.image)


def failure_of(*attempts: BaseException | None) -> ErrorCode:
    """Return the error code of a proposal whose attempts end as given; the last one repeats, None never ends."""
    left = list(attempts)

    async def propose(*_: Any) -> None:
        attempt = left.pop(0) if len(left) > 1 else left[0]
        if attempt is not None:
            raise attempt
        await asyncio.Event().wait()

    async def scenario() -> ErrorCode:
        store = RaftStore(1)
        store._forwarder = cast(ProposalForwarder, SimpleNamespace(propose=propose))
        store._driver = cast(RaftDriver, SimpleNamespace(propose=propose))
        with pytest.raises(KafkaError) as raised:
            await store.propose(COMMAND, timeout=0.3)
        return raised.value.code

    return asyncio.run(scenario())


def test_proposal_without_leader_reports_that_nothing_changed() -> None:
    assert failure_of(NotLeader(-1)) is ErrorCode.NOT_CONTROLLER


def test_proposal_with_pending_attempt_reports_unknown_outcome() -> None:
    assert failure_of(NotLeader(-1), NotLeader(-1), None) is ErrorCode.REQUEST_TIMED_OUT


def test_outcome_stays_unknown_after_later_attempt_without_leader() -> None:
    assert failure_of(OutcomeUnknown("lost"), NotLeader(-1)) is ErrorCode.REQUEST_TIMED_OUT


def test_controller_command_is_not_forwarded_to_next_leader() -> None:
    async def scenario() -> ErrorCode:
        async def propose(*_: Any) -> None:
            raise NotLeader(2)

        store = RaftStore(1)
        store._driver = cast(RaftDriver, SimpleNamespace(propose=propose))
        with pytest.raises(KafkaError) as raised:
            await store.propose(COMMAND, local_only=True)
        return raised.value.code

    assert asyncio.run(scenario()) is ErrorCode.NOT_CONTROLLER


def seconds_until_done(attempt: Callable[[VirtualLoop, RaftStore], object]) -> float:
    """Return the duration of a command whose first attempt finds no leader and whose second one succeeds."""
    loop = VirtualLoop()

    async def scenario() -> None:
        store = RaftStore(1)
        store._driver = cast(RaftDriver, SimpleNamespace(leader=2))
        attempts: list[bool] = []

        async def propose(*_: Any) -> None:
            attempts.append(True)
            if len(attempts) == 1:
                attempt(loop, store)
                raise NotLeader(-1)
            store._complete_proposal(1, ApplyResult())

        store._forwarder = cast(ProposalForwarder, SimpleNamespace(propose=propose))
        await store.propose(COMMAND)

    loop.run(scenario(), [])
    return loop.time()


def test_leader_elected_during_attempt_is_tried_immediately() -> None:
    assert seconds_until_done(lambda _, store: store.notify_leader_change()) == 0.0


def test_leader_elected_later_is_tried_when_announced() -> None:
    assert seconds_until_done(lambda loop, store: loop.call_later(0.01, store.notify_leader_change)) == pytest.approx(
        0.01
    )


def test_result_that_arrives_without_leader_is_returned_immediately() -> None:
    assert seconds_until_done(
        lambda loop, store: loop.call_later(0.01, store._complete_proposal, 1, ApplyResult())
    ) == pytest.approx(0.01)


def test_attempt_is_repeated_after_delay_without_leader_announcement() -> None:
    assert seconds_until_done(lambda loop, store: None) == pytest.approx(LEADERLESS_SECONDS)
