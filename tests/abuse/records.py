"""Batches that are not what they say."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import crc32c

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from chronik.protocol.messages.produce import ProduceResponse
from tests.abuse.attack import Attack, Target
from tests.api.talk import batch, produce_request

TOPIC: Final = "harmed"
ATTRIBUTES: Final = 21
CRC: Final = 17
LENGTH: Final = 8
LAST_OFFSET_DELTA: Final = 23
RECORD_COUNT: Final = 57
RECORDS: Final = 61


def topic(target: Target) -> None:
    target.victim.create_topic(TOPIC)


def harmed(at: int, form: str, value: int, *, sealed: bool = True) -> bytes:
    """A batch with another value in its head; sealed with a right CRC, or not."""
    data = bytearray(batch(b"v" * 100, b"w" * 100))
    struct.pack_into(form, data, at, value)
    return resealed(data) if sealed else bytes(data)


def resealed(data: bytearray) -> bytes:
    struct.pack_into(">I", data, CRC, crc32c.crc32c(bytes(data[ATTRIBUTES:])))
    return bytes(data)


def without_records() -> bytes:
    data = bytearray(batch(b"v"))[:RECORDS]
    struct.pack_into(">i", data, LENGTH, len(data) - 12)
    return resealed(data)


def other_records(said: bytes) -> bytes:
    data = bytearray(batch(b"v"))[:RECORDS] + said
    struct.pack_into(">i", data, LENGTH, len(data) - 12)
    return resealed(data)


def batches() -> Iterator[bytes]:
    for codec in (5, 6, 7):
        yield harmed(ATTRIBUTES, ">h", codec)
    for codec in (1, 2, 3, 4):  # what is not compressed as it says
        yield harmed(ATTRIBUTES, ">h", codec)
    yield harmed(CRC, ">I", 1, sealed=False)
    for count in (0, -1, 2**31 - 1):
        yield harmed(RECORD_COUNT, ">i", count)
        yield harmed(LAST_OFFSET_DELTA, ">i", count)
    for length in (0, -1, 2**31 - 1, 48, 49):
        yield harmed(LENGTH, ">i", length)
    yield without_records()
    for said in (b"\0", b"\0" * 100, b"\x01", b"\xff" * 100, b"\x02\0", b"\x10\0\x01\x01\x01\x01\x01\x01\x01"):
        yield other_records(said)


def harmed_batches(target: Target) -> None:
    """Refused, or stored as they are where nobody may look into them; never a broken connection for the others."""
    with target.connect_to_leader(TOPIC) as client:
        for _ in range(target.count(2, 100)):
            for data in batches():
                answer = client.ask(produce_request(TOPIC, data), 9, ProduceResponse)
                assert ErrorCode(answer.responses[0].partition_responses[0].error_code) in ErrorCode


def delete_records_storm(target: Target) -> None:
    with target.connect_to_leader(TOPIC) as client:
        for number in range(target.count(50, 2_000)):
            client.ask(produce_request(TOPIC, batch(b"v"), acks=1), 9, ProduceResponse)
            partition = DeleteRecordsPartition(partition_index=0, offset=-1 if number % 2 else number)
            wanted = DeleteRecordsTopic(name=TOPIC, partitions=[partition])
            client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1_000), 2, DeleteRecordsResponse)


ATTACKS: Final = (
    Attack("batches-harmed", "batches with wrong CRCs, codecs, counts, lengths", harmed_batches, topic, quick=True),
    Attack("delete-records-storm", "2,000 times a record and DeleteRecords", delete_records_storm, topic, quick=True),
)
