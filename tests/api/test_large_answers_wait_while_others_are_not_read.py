"""While there is no memory for it, a large answer waits until others have read: nobody is cut off for their sake."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chronik.api.routing import held_answers
from chronik.api.routing.held_answers import HeldAnswers
from chronik.api.routing.router import Router
from chronik.api.shared.context import Services
from chronik.exchange import Disconnect, Outbox, Peer, Reply
from chronik.limits import (
    ANSWER_HELD_SECONDS_MAX,
    ANSWERS_HELD_BYTES_MAX,
    KIB,
    RESPONSE_BYTES_LEAST,
    RESPONSE_STUCK_SECONDS_MAX,
    RESPONSES_BYTES_MAX,
)
from chronik.protocol.codec import RequestHeader, encode_request
from chronik.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from chronik.scheduler import Scheduler

DESCRIBE_CONFIGS = 32
TOO_FULL = RESPONSES_BYTES_MAX + 1
UNKNOWN_RESOURCE = 99


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))


def held(answers: HeldAnswers, size: int) -> Reply[Any]:
    reply: Reply[Any] = Reply()
    answers.hold([bytes(size)], reply)
    return reply


def test_a_request_whose_answer_is_large_is_answered_once_others_have_read() -> None:
    async def story() -> None:
        outbox = Outbox(TOO_FULL)
        store = SimpleNamespace(is_shared=False)
        services = SimpleNamespace(
            authorizer=None, outbox=outbox, store=store, is_fenced=lambda: False, scheduler=Scheduler()
        )
        router = Router(cast(Services, services), lambda error: None)
        names = [
            DescribeConfigsResource(resource_type=UNKNOWN_RESOURCE, resource_name="n" * 200 + str(n))
            for n in range(500)
        ]
        frame = encode_request(RequestHeader(DESCRIBE_CONFIGS, 4, 7, "test"), DescribeConfigsRequest(resources=names))
        pending = router.dispatch(bytearray(frame[4:]), Peer("test", 0, 1))
        while not (pending.is_ready or router._deferred._deferred):
            await asyncio.sleep(0)
        assert not pending.is_ready
        outbox.count(-1)
        assert sum(map(len, await pending.wait() or ())) > RESPONSE_BYTES_LEAST

    run(story)


def test_only_what_is_large_waits_and_only_while_there_is_no_memory() -> None:
    async def story() -> None:
        outbox = Outbox(TOO_FULL)
        answers = HeldAnswers(outbox)
        assert answers.must_wait([bytes(RESPONSE_BYTES_LEAST), b"x"])
        assert not answers.must_wait([bytes(RESPONSE_BYTES_LEAST)])
        assert not answers.must_wait(None)
        outbox.count(-1)
        assert not answers.must_wait([bytes(2 * RESPONSE_BYTES_LEAST)])

    run(story)


def test_no_more_is_let_go_at_once_than_there_is_room_for() -> None:
    async def story() -> None:
        outbox = Outbox(TOO_FULL)
        answers = HeldAnswers(outbox)
        first, second, third = (held(answers, 100 * KIB) for _ in range(3))
        outbox.count(-150 * KIB)
        await asyncio.sleep(0)
        assert [answer.is_ready for answer in (first, second, third)] == [True, True, False]
        outbox.count(300 * KIB)
        outbox.count(-10 * KIB)
        await asyncio.sleep(0)
        assert not third.is_ready, "those who were answered have not read yet"
        outbox.count(-290 * KIB)
        await asyncio.sleep(0)
        assert third.is_ready

    run(story)


def test_as_much_is_held_as_allowed_and_whoever_asks_for_more_is_cut_off() -> None:
    async def story() -> None:
        answers = HeldAnswers(Outbox(TOO_FULL))
        first = held(answers, ANSWERS_HELD_BYTES_MAX // 2)
        second = held(answers, ANSWERS_HELD_BYTES_MAX - ANSWERS_HELD_BYTES_MAX // 2)
        refused = held(answers, 1)
        assert isinstance(refused.error, Disconnect)
        assert [first.is_ready, second.is_ready] == [False, False]
        first.cancel()  # its connection has gone
        assert not held(answers, 1).is_ready

    run(story)


def test_who_waits_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_answers, "ANSWER_HELD_SECONDS_MAX", 0.01)

    async def story() -> None:
        answers = HeldAnswers(Outbox(TOO_FULL))
        with pytest.raises(Disconnect):
            await held(answers, ANSWERS_HELD_BYTES_MAX).wait()
        assert not held(answers, ANSWERS_HELD_BYTES_MAX).is_ready, "it is not held any more"

    run(story)


def test_an_answer_is_held_for_longer_than_those_who_do_not_read_are_borne_with() -> None:
    assert ANSWER_HELD_SECONDS_MAX >= 3 * RESPONSE_STUCK_SECONDS_MAX
