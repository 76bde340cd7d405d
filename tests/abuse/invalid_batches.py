"""Attacks with invalid record batches."""

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
from tests.abuse.attack import Attack, AttackTarget
from tests.api.request_builders import batch, produce_request

TOPIC: Final = "harmed"
ATTRIBUTES: Final = 21
CRC: Final = 17
LENGTH: Final = 8
LAST_OFFSET_DELTA: Final = 23
RECORD_COUNT: Final = 57
RECORDS: Final = 61


def topic(target: AttackTarget) -> None:
    target.victim.create_topic(TOPIC)


def corrupt_batch(at: int, form: str, value: int, *, sealed: bool = True) -> bytes:
    """Return a batch with a modified header field, with a matching CRC if `sealed`."""
    data = bytearray(batch(b"v" * 100, b"w" * 100))
    struct.pack_into(form, data, at, value)
    return update_crc(data) if sealed else bytes(data)


def update_crc(data: bytearray) -> bytes:
    struct.pack_into(">I", data, CRC, crc32c.crc32c(bytes(data[ATTRIBUTES:])))
    return bytes(data)


def without_records() -> bytes:
    data = bytearray(batch(b"v"))[:RECORDS]
    struct.pack_into(">i", data, LENGTH, len(data) - 12)
    return update_crc(data)


def other_records(payload: bytes) -> bytes:
    data = bytearray(batch(b"v"))[:RECORDS] + payload
    struct.pack_into(">i", data, LENGTH, len(data) - 12)
    return update_crc(data)


def batches() -> Iterator[bytes]:
    for codec in (5, 6, 7):
        yield corrupt_batch(ATTRIBUTES, ">h", codec)
    for codec in (1, 2, 3, 4):  # not compressed although the attributes say so
        yield corrupt_batch(ATTRIBUTES, ">h", codec)
    yield corrupt_batch(CRC, ">I", 1, sealed=False)
    for count in (0, -1, 2**31 - 1):
        yield corrupt_batch(RECORD_COUNT, ">i", count)
        yield corrupt_batch(LAST_OFFSET_DELTA, ">i", count)
    for length in (0, -1, 2**31 - 1, 48, 49):
        yield corrupt_batch(LENGTH, ">i", length)
    yield without_records()
    for payload in (b"\0", b"\0" * 100, b"\x01", b"\xff" * 100, b"\x02\0", b"\x10\0\x01\x01\x01\x01\x01\x01\x01"):
        yield other_records(payload)


def produce_corrupt_batches(target: AttackTarget) -> None:
    """Produce invalid batches. They are rejected, or stored unchanged; other clients are not affected."""
    with target.connect_to_leader(TOPIC) as client:
        for _ in range(target.count(2, 100)):
            for data in batches():
                answer = client.request(produce_request(TOPIC, data), 9, ProduceResponse)
                assert ErrorCode(answer.responses[0].partition_responses[0].error_code) in ErrorCode


def delete_records_storm(target: AttackTarget) -> None:
    with target.connect_to_leader(TOPIC) as client:
        for number in range(target.count(50, 2_000)):
            client.request(produce_request(TOPIC, batch(b"v"), acks=1), 9, ProduceResponse)
            partition = DeleteRecordsPartition(partition_index=0, offset=-1 if number % 2 else number)
            topic_request = DeleteRecordsTopic(name=TOPIC, partitions=[partition])
            client.request(DeleteRecordsRequest(topics=[topic_request], timeout_ms=1_000), 2, DeleteRecordsResponse)


ATTACKS: Final = (
    Attack(
        "batches-corrupt",
        "batches with wrong CRCs, codecs, counts, lengths",
        produce_corrupt_batches,
        topic,
        quick=True,
    ),
    Attack(
        "delete-records-storm", "2,000 records, each followed by DeleteRecords", delete_records_storm, topic, quick=True
    ),
)
