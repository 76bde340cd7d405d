"""A command that was not answered in time: the error says that nothing was changed only where that is certain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.metadata.commands.topics import DeleteTopic
from chronik.metadata.records import Result
from chronik.metadata.stores.raft_store import LEADERLESS_SECONDS, RaftStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.quorum.driver import RaftDriver
from chronik.quorum.forwarding import Forwarder
from chronik.quorum.outcomes import NotLeader, OutcomeUnknown
from tests.replication.virtual_loop import VirtualLoop

COMMAND = DeleteTopic(b"x" * 16)


def failure_of(*attempts: BaseException | None) -> ErrorCode:
    """What the store says when its attempts end so, the last one again and again; None never ends."""
    left = list(attempts)

    async def propose(*_: Any) -> None:
        attempt = left.pop(0) if len(left) > 1 else left[0]
        if attempt is not None:
            raise attempt
        await asyncio.Event().wait()

    async def scenario() -> ErrorCode:
        store = RaftStore(1)
        store._forwarder = cast(Forwarder, SimpleNamespace(propose=propose))
        store._driver = cast(RaftDriver, SimpleNamespace(propose=propose))
        with pytest.raises(KafkaError) as raised:
            await store.propose(COMMAND, timeout=0.3)
        return raised.value.code

    return asyncio.run(scenario())


def test_nothing_was_changed_when_no_leader_was_ever_reached() -> None:
    assert failure_of(NotLeader(-1)) is ErrorCode.NOT_CONTROLLER


def test_the_outcome_is_unknown_when_an_attempt_was_under_way_at_the_end() -> None:
    assert failure_of(NotLeader(-1), NotLeader(-1), None) is ErrorCode.REQUEST_TIMED_OUT


def test_the_outcome_stays_unknown_when_a_later_attempt_found_no_leader() -> None:
    assert failure_of(OutcomeUnknown("lost"), NotLeader(-1)) is ErrorCode.REQUEST_TIMED_OUT


def test_a_controllers_decision_is_not_carried_to_the_next_leader() -> None:
    async def scenario() -> ErrorCode:
        async def propose(*_: Any) -> None:
            raise NotLeader(2)

        store = RaftStore(1)
        store._driver = cast(RaftDriver, SimpleNamespace(propose=propose))
        with pytest.raises(KafkaError) as raised:
            await store.propose(COMMAND, only_here=True)
        return raised.value.code

    assert asyncio.run(scenario()) is ErrorCode.NOT_CONTROLLER


def seconds_until_done(attempt: Callable[[VirtualLoop, RaftStore], object]) -> float:
    """Of a command whose first attempt finds no leader, and does that; the second one succeeds."""
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
            store._answer(1, Result())

        store._forwarder = cast(Forwarder, SimpleNamespace(propose=propose))
        await store.propose(COMMAND)

    loop.run(scenario(), [])
    return loop.time()


def test_a_leader_that_comes_forward_during_the_attempt_is_asked_at_once() -> None:
    assert seconds_until_done(lambda _, store: store.leader_changed()) == 0.0


def test_a_leader_that_comes_forward_later_is_asked_then() -> None:
    assert seconds_until_done(lambda loop, store: loop.call_later(0.01, store.leader_changed)) == pytest.approx(0.01)


def test_an_answer_that_comes_while_there_is_no_leader_is_told_at_once() -> None:
    assert seconds_until_done(lambda loop, store: loop.call_later(0.01, store._answer, 1, Result())) == pytest.approx(
        0.01
    )


def test_without_news_of_a_leader_another_attempt_is_made_after_a_while() -> None:
    assert seconds_until_done(lambda loop, store: None) == pytest.approx(LEADERLESS_SECONDS)
