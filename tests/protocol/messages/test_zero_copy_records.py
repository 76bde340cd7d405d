from __future__ import annotations

import struct

import pytest

from chronik.protocol import codec
from chronik.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from chronik.protocol.schema import Records
from chronik.protocol.wire import COPIED_RECORDS_BYTES_MAX


def response(*records: Records | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=held) for index, held in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 12, 18])
def test_large_records_are_passed_by_reference(version: int) -> None:
    large = memoryview(bytearray(b"L" * (COPIED_RECORDS_BYTES_MAX + 1)))
    small = b"s" * COPIED_RECORDS_BYTES_MAX
    chunks = codec.encode_response(1, version, response(small, large, None, small, large))
    assert [chunk is large for chunk in chunks] == [False, True, False, True, False]
    frame = b"".join(chunks)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    _, decoded = codec.decode_response(1, version, memoryview(frame)[4:])
    assert isinstance(decoded, FetchResponse)
    assert [part.records for part in decoded.responses[0].partitions] == [small, large, None, small, large]


@pytest.mark.parametrize("version", [4, 12])
def test_list_of_record_chunks_is_encoded_as_one_field(version: int) -> None:
    whole = b"a" * 10 + b"b" * 50_000 + b"c" * 10
    pieces: Records = [b"a" * 10, memoryview(b"b" * 50_000), bytearray(b"c" * 10)]
    assert b"".join(codec.encode_response(1, version, response(pieces))) == b"".join(
        codec.encode_response(1, version, response(whole))
    )
    assert b"".join(codec.encode_response(1, version, response([]))) == b"".join(
        codec.encode_response(1, version, response(b""))
    )


def test_response_without_large_records_is_one_buffer() -> None:
    assert len(codec.encode_response(1, 12, response(b"x" * 100, b"y"))) == 1
