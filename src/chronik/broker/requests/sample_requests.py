"""Requests for sample rows of a table, which connect clients with the driver that lands the table.

They exist only in the memory of the node that leads `__chronik_pipelines`. Rows are never written to a log, where other
clients could read them. One driver receives each request, once, and only its response counts; late responses are
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import msgspec

from chronik.ids import generate_id
from chronik.limits import (
    PENDING_SAMPLES_MAX,
    PENDING_SAMPLES_PER_ACCOUNT_MAX,
    PIPELINE_NAME_CHARACTERS_MAX,
    SAMPLE_BYTES_MAX,
)
from chronik.metadata.names import find_topic_name_error
from chronik.protocol.errors import ErrorCode, KafkaError


class SampleRequest(msgspec.Struct, eq=False):
    """A client's request for sample rows of a topic's table, which a pipeline driver answers."""

    pipeline: str
    topic: str
    rows: int
    response: asyncio.Future[bytes]
    id: bytes = msgspec.field(default_factory=generate_id)
    """A unique random id, which ensures that a response reaches only the client that sent the request."""
    is_taken: bool = False
    account: Hashable = None


class SampleRequests:
    """The pending requests for sample rows, and the pipeline drivers that wait for such requests."""

    def __init__(self) -> None:
        self._questions: dict[bytes, SampleRequest] = {}
        """Pending requests for sample rows by request id, in order of arrival."""
        self._drivers: dict[asyncio.Future[None], str] = {}
        """Pipeline drivers that wait for a request for sample rows, with their pipeline names."""
        self._has_stopped = False

    def stop(self) -> None:
        """Fail all current and later requests for sample rows, because this node is stopping."""
        self._has_stopped = True
        for question in self._questions.values():
            if not question.response.done():
                question.response.set_exception(_build_stopping_error())
        for driver in self._drivers:
            if not driver.done():
                driver.set_exception(_build_stopping_error())

    async def request(self, pipeline: str, topic: str, rows: int, wait_s: float, account: Hashable = None) -> bytes:
        """Request sample rows of a table from the pipeline's driver, and return the driver's response.

        Raises:
            KafkaError: REQUEST_TIMED_OUT, THROTTLING_QUOTA_EXCEEDED, MESSAGE_TOO_LARGE, or NOT_LEADER_OR_FOLLOWER when
                this node is stopping.
        """
        _check_pipeline(pipeline)
        fault = find_topic_name_error(topic)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic: {fault}")
        if self._has_stopped:
            raise _build_stopping_error()
        account_requests = sum(each.account == account for each in self._questions.values())
        if len(self._questions) >= PENDING_SAMPLES_MAX or account_requests >= PENDING_SAMPLES_PER_ACCOUNT_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many pending sample requests; retry later")
        question = SampleRequest(pipeline, topic, rows, asyncio.get_running_loop().create_future(), account=account)
        self._questions[question.id] = question
        self._wake(pipeline)
        try:
            async with asyncio.timeout(wait_s):
                return await question.response
        except TimeoutError:
            did_not = "respond" if question.is_taken else "fetch the request"
            message = f"the driver of pipeline {pipeline} did not {did_not} within {wait_s:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message) from None
        finally:
            del self._questions[question.id]

    async def take_request(self, pipeline: str, wait_s: float) -> SampleRequest | None:
        """Return the oldest pending sample request of a pipeline, or None after `wait_s` seconds."""
        _check_pipeline(pipeline)
        if self._has_stopped:
            raise _build_stopping_error()
        question = self._next(pipeline)
        if question is None and wait_s > 0:
            waiter = asyncio.get_running_loop().create_future()
            self._drivers[waiter] = pipeline
            try:
                async with asyncio.timeout(wait_s):
                    await waiter
            except TimeoutError:
                return None
            finally:
                del self._drivers[waiter]
            question = self._next(pipeline)
        if question is not None:
            question.is_taken = True
        return question

    def respond(self, pipeline: str, question_id: bytes, sample: bytes) -> None:
        """Send a pipeline driver's sample rows to the requesting client.

        Late or unknown responses are dropped.
        """
        question = self._questions.get(question_id)
        if question is None or question.pipeline != pipeline or not question.is_taken or question.response.done():
            return
        if len(sample) > SAMPLE_BYTES_MAX:
            message = f"the driver of pipeline {pipeline} responded with {len(sample):,} bytes; the limit is exceeded"
            question.response.set_exception(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, message))
        else:
            question.response.set_result(sample)

    def _next(self, pipeline: str) -> SampleRequest | None:
        waiting = (each for each in self._questions.values() if each.pipeline == pipeline and not each.is_taken)
        return next(waiting, None)

    def _wake(self, pipeline: str) -> None:
        """Wake one of the pipeline's drivers that wait for a sample request."""
        for driver, its_pipeline in self._drivers.items():
            if its_pipeline == pipeline and not driver.done():
                driver.set_result(None)
                return


def _check_pipeline(name: str) -> None:
    if len(name) > PIPELINE_NAME_CHARACTERS_MAX:
        message = f"A pipeline name may have at most {PIPELINE_NAME_CHARACTERS_MAX} characters, not {len(name)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _build_stopping_error() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node is stopping")
