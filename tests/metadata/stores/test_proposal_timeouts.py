"""Errors of proposals that time out in a cluster: "nothing was changed" only if that is certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.records import ApplyResult
from chronik.metadata.stores.raft_store import LEADERLESS_SECONDS, RaftStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.forwarder import ProposalForwarder
from chronik.quorum.outcomes import NotLeader, OutcomeUnknown
from tests.replication.virtual_loop import VirtualLoop

COMMAND = DeleteTopic(b"x" * 16)


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
            store._answer(1, ApplyResult())

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
        lambda loop, store: loop.call_later(0.01, store._answer, 1, ApplyResult())
    ) == pytest.approx(0.01)


def test_attempt_is_repeated_after_delay_without_leader_announcement() -> None:
    assert seconds_until_done(lambda loop, store: None) == pytest.approx(LEADERLESS_SECONDS)
