from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

import pytest

from chronik.bench.arguments import CLIENT_ID
from chronik.bench.commits import commit_request
from chronik.bench.errors import BenchFailed
from chronik.bench.numbered import NumberedPipe
from chronik.protocol.codec import RequestHeader, decode_request, encode_response
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from chronik.protocol.schema import Response

VERSION = 9


def answer(number: int, *codes: ErrorCode) -> bytes:
    parts = [OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="topic", partitions=parts)])
    return b"".join(encode_response(number, VERSION, response))


@pytest.mark.parametrize("number", [1, 2**31 - 1])
def test_each_number_is_the_offset_of_every_partition_and_the_correlation_id(number: int) -> None:
    frame = commit_request("topic", "group", 3, VERSION).frame(number)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header, request = decode_request(memoryview(frame)[4:])
    assert header == RequestHeader(8, VERSION, number, CLIENT_ID)
    assert isinstance(request, OffsetCommitRequest)
    assert request.group_id == "group"
    [topic] = request.topics
    assert [(part.partition_index, part.committed_offset) for part in topic.partitions] == [
        (0, number),
        (1, number),
        (2, number),
    ]


class Wire:
    """Keeps what a pipe sends, and what it tells of the answers."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.told: list[object] = []
        request = commit_request("topic", "group", 2, VERSION)
        self.pipe = NumberedPipe(request, self._note("well"), self._refused, self.told.append)
        self.pipe.connection_made(cast(asyncio.Transport, self))

    def _note(self, what: str) -> Callable[[float], None]:
        return lambda sent: self.told.append((what, sent))

    def _refused(self, number: int, sent: float, response: Response) -> None:
        assert isinstance(response, OffsetCommitResponse)
        self.told.append((number, sent, [part.error_code for part in response.topics[0].partitions]))

    def write(self, frame: bytes) -> None:
        self.sent.append(frame)

    def is_closing(self) -> bool:
        return False


def test_answers_are_told_apart_however_they_are_cut() -> None:
    none, moved = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR
    answers = answer(1, none, none) + answer(2, none, moved) + answer(3, none, none)
    for size in (1, 7, len(answers)):
        wire = Wire()
        for number in (1, 2, 3):
            wire.pipe.send(number, sent=float(number))
        for begin in range(0, len(answers), size):
            wire.pipe.data_received(answers[begin : begin + size])
        assert wire.told == [("well", 1.0), (2, 2.0, [none, moved]), ("well", 3.0)]


def test_the_answer_to_another_request_is_noticed() -> None:
    wire = Wire()
    wire.pipe.send(1)
    wire.pipe.data_received(answer(2, ErrorCode.NONE, ErrorCode.NONE))
    [failure] = wire.told
    assert isinstance(failure, BenchFailed)
    assert "request 1 was answered as 2" in str(failure)


def test_a_connection_that_ends_is_told_of_if_an_answer_is_missing() -> None:
    wire = Wire()
    wire.pipe.send(1)
    wire.pipe.data_received(answer(1, ErrorCode.NONE, ErrorCode.NONE))
    del wire.told[:]
    wire.pipe.connection_lost(None)
    assert not wire.told
    wire.pipe.send(2)
    wire.pipe.connection_lost(None)
    assert [type(failure) for failure in wire.told] == [BenchFailed]
