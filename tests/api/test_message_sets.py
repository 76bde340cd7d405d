"""Produce versions 0 to 2 and Fetch versions 0 to 3: conversion of message sets with magic 0 and 1."""

from __future__ import annotations

import struct
import time
import zlib

import pytest

from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode
from chronik.protocol.message_set import iter_message_set
from chronik.protocol.records import Record, encode_batch
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.raw import RawClient

DEADLINE_SECONDS = 60


def message(magic: int, value: bytes) -> bytes:
    fields = struct.pack(">bb", magic, 0) + (struct.pack(">q", 1_000) if magic else b"")
    fields += struct.pack(">i", 1) + b"k" + struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 0, len(fields) + 4, zlib.crc32(fields)) + fields


def offsets(client: RawClient, topic: str, offset: int, version: int) -> list[int]:
    data = request_builders.fetch(client, topic, offset, version=version)
    assert data.error_code == ErrorCode.NONE
    return [record.offset for record in iter_message_set(request_builders.records_of(data))]


@pytest.mark.parametrize(("produce_version", "magic"), [(0, 0), (1, 0), (2, 1)])
@pytest.mark.parametrize("fetch_version", [0, 1, 2, 3, 4, 12])
def test_message_sets_are_readable_in_every_fetch_version(
    client: RawClient, chronik_topic: str, produce_version: int, magic: int, fetch_version: int
) -> None:
    sent = message(magic, b"first") + message(magic, b"second")
    assert request_builders.produce(client, chronik_topic, sent, version=produce_version).base_offset == 0
    assert request_builders.produce(client, chronik_topic, sent, version=produce_version).base_offset == 2
    data = request_builders.fetch(client, chronik_topic, 0, version=fetch_version)
    if fetch_version >= 4:
        assert request_builders.values(data) == [b"first", b"second"] * 2
        return
    read = list(iter_message_set(request_builders.records_of(data)))
    assert [record.value for record in read] == [b"first", b"second"] * 2
    assert [record.offset for record in read] == [0, 1, 2, 3]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("version", [0, 3])
def test_old_fetch_within_a_batch_makes_progress(
    client: RawClient, chronik_topic: str, codec: Codec, version: int
) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"0", b"1", b"2", codec=codec))
    request_builders.produce(client, chronik_topic, request_builders.batch(b"3"))
    assert [each for each in offsets(client, chronik_topic, 2, version) if each >= 2] == [2, 3]


@pytest.mark.parametrize("version", range(4, 13))
@pytest.mark.parametrize(
    "topic",
    [
        pytest.param("as it came", marks=pytest.mark.chronik_topic()),
        pytest.param("zstd", marks=pytest.mark.chronik_topic(configs={"compression.type": "zstd"})),
    ],
)
def test_zstd_batches_are_fetched_unchanged(client: RawClient, chronik_topic: str, topic: str, version: int) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"plain"))
    request_builders.produce(client, chronik_topic, request_builders.batch(b"v", codec=Codec.ZSTD))
    data = request_builders.fetch(client, chronik_topic, 0, version=version)
    assert (data.error_code, data.high_watermark) == (ErrorCode.NONE, 2)
    assert request_builders.records_of(data) == request_builders.records_of(
        request_builders.fetch(client, chronik_topic, 0, version=12)
    )
    assert request_builders.values(data) == [b"plain", b"v"]


@pytest.mark.parametrize("version", range(4))
def test_zstd_batches_are_converted_for_message_set_clients(
    client: RawClient, chronik_topic: str, version: int
) -> None:
    request_builders.produce(client, chronik_topic, request_builders.batch(b"plain"))
    request_builders.produce(client, chronik_topic, request_builders.batch(b"v", b"w", codec=Codec.ZSTD))
    data = request_builders.fetch(client, chronik_topic, 0, version=version)
    read = list(iter_message_set(request_builders.records_of(data)))
    assert [(record.offset, record.value) for record in read] == [(0, b"plain"), (1, b"v"), (2, b"w")]


@pytest.mark.chronik_topic(configs={"compression.type": "zstd"})
def test_message_set_is_accepted_by_topic_with_zstd(client: RawClient, chronik_topic: str) -> None:
    assert request_builders.produce(client, chronik_topic, message(1, b"v"), version=2).error_code == ErrorCode.NONE
    assert request_builders.values(request_builders.fetch(client, chronik_topic, 0)) == [b"v"]
    sent = request_builders.produce(client, chronik_topic, request_builders.batch(b"v", codec=Codec.ZSTD), version=6)
    assert sent.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_fetch_skips_batches_emptied_by_compaction(chronik_broker_factory: BrokerFactory, codec: Codec) -> None:
    broker = chronik_broker_factory(broker={"log.cleaner.backoff.ms": 50})
    configs = {"cleanup.policy": "compact", "internal.segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
    broker.create_topic("compacted", configs=configs)
    with RawClient(broker.bootstrap) as client:
        overwritten = [Record(0, -1, b"stays", b"v")] + [Record(n, -1, b"k", b"v" * 30) for n in range(1, 10)]
        for _ in range(40):
            request_builders.produce(client, "compacted", encode_batch(overwritten, codec=codec))
        last = 399
        _wait_until_compacted(broker, client)
        for version in (0, 3):
            position = reads = 1
            while position <= last:
                found = [each for each in offsets(client, "compacted", position, version) if each >= position]
                assert found, f"stuck at offset {position}"
                position, reads = found[-1] + 1, reads + 1
            assert position == last + 1


def _wait_until_compacted(broker: Broker, client: RawClient) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(offsets(client, "compacted", 0, 3)) > 100 or "log compacted end_offset=" not in broker.log:
        assert time.monotonic() < deadline
        time.sleep(0.05)
