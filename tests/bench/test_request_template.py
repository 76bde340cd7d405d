from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

import pytest

from chronik.bench.arguments import CLIENT_ID
from chronik.bench.commits import build_commit_request
from chronik.bench.errors import BenchmarkError
from chronik.bench.request_template import TemplateConnection
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


def encode_commit_response(number: int, *codes: ErrorCode) -> bytes:
    partitions_list = [
        OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in enumerate(codes)
    ]
    response = OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="topic", partitions=partitions_list)])
    return b"".join(encode_response(number, VERSION, response))


@pytest.mark.parametrize("number", [1, 2**31 - 1])
def test_request_template_inserts_number_as_offsets_and_correlation_id(number: int) -> None:
    frame = build_commit_request("topic", "group", 3, VERSION).build_frame(number)
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


class FakeTransport:
    """A fake transport that records what the connection sends and which callbacks it calls."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.callbacks: list[object] = []
        request = build_commit_request("topic", "group", 2, VERSION)
        self.pipe = TemplateConnection(request, self._record("well"), self._on_error_response, self.callbacks.append)
        self.pipe.connection_made(cast(asyncio.Transport, self))

    def _record(self, what: str) -> Callable[[float], None]:
        return lambda sent: self.callbacks.append((what, sent))

    def _on_error_response(self, number: int, sent: float, response: Response) -> None:
        assert isinstance(response, OffsetCommitResponse)
        self.callbacks.append((number, sent, [part.error_code for part in response.topics[0].partitions]))

    def write(self, frame: bytes) -> None:
        self.sent.append(frame)

    def is_closing(self) -> bool:
        return False


def test_responses_split_at_any_byte_are_decoded() -> None:
    none, moved = ErrorCode.NONE, ErrorCode.NOT_COORDINATOR
    responses = (
        encode_commit_response(1, none, none)
        + encode_commit_response(2, none, moved)
        + encode_commit_response(3, none, none)
    )
    for size in (1, 7, len(responses)):
        fake_transport = FakeTransport()
        for number in (1, 2, 3):
            fake_transport.pipe.send(number, sent=float(number))
        for chunk_start in range(0, len(responses), size):
            fake_transport.pipe.data_received(responses[chunk_start : chunk_start + size])
        assert fake_transport.callbacks == [("well", 1.0), (2, 2.0, [none, moved]), ("well", 3.0)]


def test_response_with_wrong_correlation_id_is_reported() -> None:
    fake_transport = FakeTransport()
    fake_transport.pipe.send(1)
    fake_transport.pipe.data_received(encode_commit_response(2, ErrorCode.NONE, ErrorCode.NONE))
    [failure] = fake_transport.callbacks
    assert isinstance(failure, BenchmarkError)
    assert "request 1: response has correlation id 2" in str(failure)


def test_lost_connection_is_reported_only_with_requests_in_flight() -> None:
    fake_transport = FakeTransport()
    fake_transport.pipe.send(1)
    fake_transport.pipe.data_received(encode_commit_response(1, ErrorCode.NONE, ErrorCode.NONE))
    del fake_transport.callbacks[:]
    fake_transport.pipe.connection_lost(None)
    assert not fake_transport.callbacks
    fake_transport.pipe.send(2)
    fake_transport.pipe.connection_lost(None)
    assert [type(failure) for failure in fake_transport.callbacks] == [BenchmarkError]
