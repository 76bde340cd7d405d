"""Where those who want to see rows of a table and the drivers that land it meet: in the memory of one node, which leads
`__chronik_pipelines`. Nothing of it is written, so that nobody reads rows who was not meant to, and none are left over.

A question is given to one driver, once, and only its answer counts; one that is too late is for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import msgspec

from chronik.ids import new_id
from chronik.limits import (
    PIPELINE_NAME_CHARACTERS_MAX,
    SAMPLE_BYTES_MAX,
    SAMPLES_ASKED_MAX,
    SAMPLES_ASKED_PER_ACCOUNT_MAX,
)
from chronik.metadata.names import name_fault
from chronik.protocol.errors import ErrorCode, KafkaError


class Question(msgspec.Struct, eq=False):
    pipeline: str
    topic: str
    rows: int
    answer: asyncio.Future[bytes]
    id: bytes = msgspec.field(default_factory=new_id)
    """Cannot be guessed, and is never used again, by no node: an answer reaches the one who asked, or nobody."""
    is_taken: bool = False
    account: Hashable = None


class Samples:
    def __init__(self) -> None:
        self._questions: dict[bytes, Question] = {}
        """In the order in which they came."""
        self._drivers: dict[asyncio.Future[None], str] = {}
        """Those that wait for a question, with their pipelines."""
        self._has_stopped = False

    def stop_waiting(self) -> None:
        """Sends all who wait to another leader, and those who come from now on: this node stops."""
        self._has_stopped = True
        for question in self._questions.values():
            if not question.answer.done():
                question.answer.set_exception(_stopped())
        for driver in self._drivers:
            if not driver.done():
                driver.set_exception(_stopped())

    async def ask(self, pipeline: str, topic: str, rows: int, wait_s: float, account: Hashable = None) -> bytes:
        """Returns the driver's answer. Raises REQUEST_TIMED_OUT, THROTTLING_QUOTA_EXCEEDED, MESSAGE_TOO_LARGE, and
        NOT_LEADER_OR_FOLLOWER when this node stops, as `take` does."""
        _check_pipeline(pipeline)
        fault = name_fault(topic)
        if fault is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Invalid topic: {fault}")
        if self._has_stopped:
            raise _stopped()
        of_account = sum(each.account == account for each in self._questions.values())
        if len(self._questions) >= SAMPLES_ASKED_MAX or of_account >= SAMPLES_ASKED_PER_ACCOUNT_MAX:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "too many ask for rows of tables: try again")
        question = Question(pipeline, topic, rows, asyncio.get_running_loop().create_future(), account=account)
        self._questions[question.id] = question
        self._wake(pipeline)
        try:
            async with asyncio.timeout(wait_s):
                return await question.answer
        except TimeoutError:
            did_not = "answer" if question.is_taken else "come for the question"
            told = f"the driver of pipeline {pipeline} did not {did_not} within {wait_s:g} s"
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, told) from None
        finally:
            del self._questions[question.id]

    async def take(self, pipeline: str, wait_s: float) -> Question | None:
        """Gives the oldest question that no driver has; None if there is none in this time."""
        _check_pipeline(pipeline)
        if self._has_stopped:
            raise _stopped()
        question = self._next(pipeline)
        if question is None and wait_s > 0:
            woken = asyncio.get_running_loop().create_future()
            self._drivers[woken] = pipeline
            try:
                async with asyncio.timeout(wait_s):
                    await woken
            except TimeoutError:
                return None
            finally:
                del self._drivers[woken]
            question = self._next(pipeline)
        if question is not None:
            question.is_taken = True
        return question

    def answer(self, pipeline: str, question_id: bytes, sample: bytes) -> None:
        question = self._questions.get(question_id)
        if question is None or question.pipeline != pipeline or not question.is_taken or question.answer.done():
            return
        if len(sample) > SAMPLE_BYTES_MAX:
            told = f"the driver of pipeline {pipeline} has answered {len(sample):,} bytes, which is too much"
            question.answer.set_exception(KafkaError(ErrorCode.MESSAGE_TOO_LARGE, told))
        else:
            question.answer.set_result(sample)

    def _next(self, pipeline: str) -> Question | None:
        waiting = (each for each in self._questions.values() if each.pipeline == pipeline and not each.is_taken)
        return next(waiting, None)

    def _wake(self, pipeline: str) -> None:
        """Wakes one driver: another may land the same pipeline, and is woken by the next question."""
        for driver, its_pipeline in self._drivers.items():
            if its_pipeline == pipeline and not driver.done():
                driver.set_result(None)
                return


def _check_pipeline(name: str) -> None:
    if len(name) > PIPELINE_NAME_CHARACTERS_MAX:
        told = f"A pipeline's name has at most {PIPELINE_NAME_CHARACTERS_MAX} characters, not {len(name)}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, told)


def _stopped() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node stops")
