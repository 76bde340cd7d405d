"""Sample requests: each is given to one driver, and its response reaches the client that sent it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from chronik.broker.requests.sample_requests import SampleRequest, SampleRequests
from chronik.limits import PENDING_SAMPLES_MAX, PENDING_SAMPLES_PER_ACCOUNT_MAX, SAMPLE_BYTES_MAX
from chronik.protocol.errors import ErrorCode, KafkaError

LONG_SECONDS = 60.0


def run(scenario: Callable[[SampleRequests], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LONG_SECONDS):
            await scenario(SampleRequests())

    asyncio.run(limited())


async def taken(samples: SampleRequests, pipeline: str = "p") -> SampleRequest:
    question = await samples.take_request(pipeline, LONG_SECONDS)
    assert question is not None
    return question


def asking(samples: SampleRequests, topic: str, pipeline: str = "p", account: object = None) -> asyncio.Task[bytes]:
    return asyncio.create_task(samples.request(pipeline, topic, 20, LONG_SECONDS, account))


def test_responses_reach_their_requesters_in_any_order() -> None:
    async def scenario(samples: SampleRequests) -> None:
        first, second = asking(samples, "orders"), asking(samples, "clicks")
        questions = [await taken(samples), await taken(samples)]
        assert [(each.topic, each.rows) for each in questions] == [("orders", 20), ("clicks", 20)]
        for question in reversed(questions):
            samples.respond("p", question.id, question.topic.encode())
        assert (await first, await second) == (b"orders", b"clicks")

    run(scenario)


def test_waiting_driver_is_woken_only_by_its_pipeline() -> None:
    async def scenario(samples: SampleRequests) -> None:
        others = asyncio.create_task(samples.take_request("another", LONG_SECONDS))
        mine = asyncio.create_task(samples.take_request("p", LONG_SECONDS))
        await asyncio.sleep(0)
        asked = asking(samples, "orders")
        question = await mine
        assert question is not None
        assert not others.done()
        samples.respond("p", question.id, b"rows")
        assert await asked == b"rows"
        others.cancel()

    run(scenario)


def test_request_is_given_to_one_driver_once() -> None:
    async def scenario(samples: SampleRequests) -> None:
        drivers = [asyncio.create_task(samples.take_request("p", LONG_SECONDS)) for _ in range(2)]
        await asyncio.sleep(0)
        asked = asking(samples, "orders")
        done, waiting = await asyncio.wait(drivers, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, 1)
        assert await samples.take_request("p", 0) is None
        second = asking(samples, "clicks")
        (other,) = waiting
        found = await other
        assert found is not None
        assert found.topic == "clicks"
        for each in (asked, second, *waiting):
            each.cancel()

    run(scenario)


def test_only_first_response_of_assigned_pipeline_counts() -> None:
    async def scenario(samples: SampleRequests) -> None:
        asked = asking(samples, "orders")
        await asyncio.sleep(0)
        (untaken,) = samples._questions.values()
        samples.respond("p", untaken.id, b"nobody was asked")
        question = await taken(samples)
        samples.respond("another", question.id, b"of another pipeline")
        samples.respond("p", bytes(16), b"to another question")
        samples.respond("p", question.id, b"rows")
        samples.respond("p", question.id, b"again")
        assert await asked == b"rows"
        samples.respond("p", question.id, b"too late")
        assert not samples._questions
        assert not samples._drivers

    run(scenario)


def test_timeout_error_tells_whether_driver_took_request() -> None:
    async def scenario(samples: SampleRequests) -> None:
        with pytest.raises(KafkaError, match=r"pipeline p did not fetch the request within 0.01 s") as failed:
            await samples.request("p", "orders", 20, 0.01)
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
        driver = asyncio.create_task(samples.take_request("p", LONG_SECONDS))
        with pytest.raises(KafkaError, match=r"pipeline p did not respond within 0.01 s"):
            await samples.request("p", "orders", 20, 0.01)
        late = await driver
        assert late is not None
        samples.respond("p", late.id, b"too late")
        assert await samples.take_request("p", 0) is None, "expired requests are not given to a driver"

    run(scenario)


def test_driver_without_requests_returns_after_wait() -> None:
    async def scenario(samples: SampleRequests) -> None:
        assert await samples.take_request("p", 0) is None
        assert await samples.take_request("p", 0.01) is None
        assert not samples._drivers

    run(scenario)


@pytest.mark.parametrize("size", [SAMPLE_BYTES_MAX, SAMPLE_BYTES_MAX + 1])
def test_too_large_response_is_rejected(size: int) -> None:
    async def scenario(samples: SampleRequests) -> None:
        asked = asking(samples, "orders")
        question = await taken(samples)
        samples.respond("p", question.id, bytes(size))
        if size == SAMPLE_BYTES_MAX:
            assert len(await asked) == size
            return
        with pytest.raises(KafkaError, match="65,537 bytes") as failed:
            await asked
        assert failed.value.code is ErrorCode.MESSAGE_TOO_LARGE

    run(scenario)


def test_requests_per_account_are_limited() -> None:
    async def scenario(samples: SampleRequests) -> None:
        waiting = [asking(samples, "orders", account="mallory") for _ in range(PENDING_SAMPLES_PER_ACCOUNT_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(KafkaError) as failed:
            await samples.request("p", "orders", 20, LONG_SECONDS, "mallory")
        assert failed.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        other = asking(samples, "orders", account="alice")
        await asyncio.sleep(0)
        assert not other.done()
        for each in (*waiting, other):
            each.cancel()

    run(scenario)


def test_number_of_pending_requests_is_limited() -> None:
    async def scenario(samples: SampleRequests) -> None:
        waiting = [asking(samples, "orders", account=number) for number in range(PENDING_SAMPLES_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(KafkaError) as failed:
            await samples.request("p", "orders", 20, LONG_SECONDS, "one more")
        assert failed.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        question = await taken(samples)
        samples.respond("p", question.id, b"rows")
        assert await waiting[0] == b"rows"
        waiting.append(asking(samples, "orders"))
        await asyncio.sleep(0)
        assert not any(each.done() for each in waiting[1:])
        for each in waiting:
            each.cancel()

    run(scenario)


def test_stop_fails_all_waiting_clients_and_drivers() -> None:
    async def scenario(samples: SampleRequests) -> None:
        waiting = [asking(samples, "orders"), asyncio.create_task(samples.take_request("another", LONG_SECONDS))]
        await asyncio.sleep(0)
        samples.stop()
        for each in (
            *waiting,
            samples.request("p", "orders", 20, LONG_SECONDS),
            samples.take_request("p", LONG_SECONDS),
        ):
            with pytest.raises(KafkaError) as failed:
                await each
            assert failed.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not samples._questions
        assert not samples._drivers

    run(scenario)
