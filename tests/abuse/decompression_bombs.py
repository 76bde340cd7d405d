"""Attacks with decompression bombs: batches that are small when compressed and large when decoded."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as Client
from chronik.client.records import TopicPartition
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from chronik.protocol.messages.produce import ProduceResponse
from tests.abuse.attack import SINGLE_NODE, Attack, AttackTarget
from tests.abuse.bomb_records import (
    TIME_MS,
    batch_of_tiny_records,
    batch_with_large_record,
    batch_with_many_headers,
    magic_1_messages,
)
from tests.api import request_builders

TOPIC: Final = "bombs"
PARTITIONS: Final = 6
MEGABYTE: Final = 1_000_000
LARGE: Final = {"max.message.bytes": str(20 * MEGABYTE)}
COMPACTED: Final = {"cleanup.policy": "compact"} | LARGE
MAX_TIMESTAMP: Final = -3
HOUR_MS: Final = 3_600_000
COMPACTION_SECONDS_MAX: Final = 120.0

Batch = Callable[[AttackTarget], bytes]


def topic(configs: dict[str, str], target: AttackTarget) -> None:
    """Create a topic with a partition that the victim leads."""
    with Client(str(target.kafka), client_id="abuse") as client:
        create_topics(client, [NewTopic(TOPIC, PARTITIONS, len(target.nodes), configs)])
        led_partition(target)


def led_partition(target: AttackTarget) -> int:
    with Client(str(target.kafka), client_id="abuse") as client:
        leaders = {
            index: client.retry(partial(client.leader_id, TopicPartition(TOPIC, index))) for index in range(PARTITIONS)
        }
    return next(index for index, leader in leaders.items() if leader == target.victim.node_id)


def store_bombs(batch: Batch, target: AttackTarget) -> None:
    """Store bombs in a topic whose batches the broker does not decode."""
    topic(LARGE, target)
    with target.connect() as client:
        for _ in range(3):
            answer = request_builders.produce(client, TOPIC, batch(target), partition=led_partition(target))
            assert answer.error_code == ErrorCode.NONE


def produce(batch: Batch, target: AttackTarget, version: int = 9) -> None:
    """Produce a bomb several times, as a retrying client does."""
    data, partition = batch(target), led_partition(target)
    with target.connect() as client:
        for _ in range(target.count(2, 5)):
            client.send(request_builders.produce_request(TOPIC, data, partition), version)
            assert client.receive(request_builders.produce_request(TOPIC, None), version, ProduceResponse).responses


def produce_at_once(batch: Batch, target: AttackTarget) -> None:
    """Produce bombs concurrently on many connections."""
    request = request_builders.produce_request(TOPIC, batch(target), led_partition(target))
    clients = [target.connect() for _ in range(target.count(4, 20))]
    for client in clients:
        client.send(request, 9)
    for client in clients:
        client.socket.settimeout(120)
        client.receive(request, 9, ProduceResponse)
        client.close()


def list_offsets(target: AttackTarget) -> None:
    partition = led_partition(target)
    with target.connect() as client:
        for timestamp in (TIME_MS, TIME_MS + 1, MAX_TIMESTAMP) * target.count(1, 3):
            for times in (1, 3):
                named = [ListOffsetsPartition(partition_index=partition, timestamp=timestamp)] * times
                request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=named)])
                answer = client.request(request, 7, ListOffsetsResponse).topics[0].partitions[0]
                assert (answer.error_code == ErrorCode.INVALID_REQUEST) == (times > 1)


def fetch_as_old_client(target: AttackTarget) -> None:
    partition, offset = led_partition(target), 0
    with target.connect() as client:
        for _ in range(target.count(2, 10)):
            data = request_builders.fetch(client, TOPIC, offset, version=2, partition=partition)
            assert data.error_code in (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE)


def prepare_compaction(batch: Batch, target: AttackTarget) -> None:
    """Store a bomb before the topic becomes compacted, so that it is not rejected."""
    segments = {"segment.ms": str(HOUR_MS // 2), "min.cleanable.dirty.ratio": "0.01"}
    topic(LARGE | segments, target)
    with target.connect() as client:
        assert (
            request_builders.produce(client, TOPIC, batch(target), partition=led_partition(target)).error_code
            == ErrorCode.NONE
        )
        later = request_builders.batch(b"v", timestamp=TIME_MS + HOUR_MS)  # starts a new segment
        request_builders.produce(client, TOPIC, later, partition=led_partition(target))


def compact(target: AttackTarget) -> None:
    with target.connect() as client:
        assert (
            request_builders.alter_configs(
                client, request_builders.TOPIC, TOPIC, ("cleanup.policy", request_builders.SET, "compact")
            )
            == ErrorCode.NONE
        )
    deadline = time.monotonic() + COMPACTION_SECONDS_MAX
    while "log compacted end_offset=" not in target.victim.log and "compaction failed" not in target.victim.log:
        assert time.monotonic() < deadline, "the topic was not compacted in time"
        time.sleep(0.1)


def headers_in(codec: Codec, megabytes: int = 40, key: bytes | None = b"k") -> Batch:
    return lambda target: batch_with_many_headers(target.count(megabytes // 3, megabytes) * MEGABYTE, codec, key=key)


def tiny_in(codec: Codec, key: bytes | None = b"") -> Batch:
    return lambda target: batch_of_tiny_records(target.count(400_000, 4_000_000), codec, key=key)


def old_in(codec: Codec) -> Batch:
    return lambda target: magic_1_messages(target.count(4, 10) * MEGABYTE, codec)


def large_in(codec: Codec) -> Batch:
    return lambda target: batch_with_large_record(target.count(20, 40) * MEGABYTE, codec)


COMPRESSED: Final = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
HUNDRED: Final = headers_in(Codec.ZSTD, 99)

ATTACKS: Final = (
    *(
        Attack(
            f"headers-to-compacted-{codec.name.lower()}",
            f"records of 100,000 headers, 40 MB in {codec.name.lower()}, to a compacted topic",
            partial(produce, headers_in(codec)),
            partial(topic, COMPACTED),
            quick=codec is Codec.ZSTD,
        )
        for codec in COMPRESSED
    ),
    Attack(
        "headers-to-compacted-at-once",
        "40 MB of headers to a compacted topic, on 20 connections at once",
        partial(produce_at_once, headers_in(Codec.ZSTD)),
        partial(topic, COMPACTED),
    ),
    Attack(
        "too-many-headers-to-compacted",
        "99 MB of headers to a compacted topic, over the limit",
        partial(produce, HUNDRED),
        partial(topic, COMPACTED),
        targets=(SINGLE_NODE,),
    ),
    Attack(
        "tiny-to-compacted",
        "4 million records of 9 bytes in one batch to a compacted topic",
        partial(produce, tiny_in(Codec.ZSTD)),
        partial(topic, COMPACTED),
        quick=True,
    ),
    Attack(
        "keyless-to-compacted",
        "800,000 records without keys in one batch to a compacted topic",
        partial(produce, lambda target: batch_of_tiny_records(target.count(80_000, 800_000), Codec.ZSTD, key=None)),
        partial(topic, COMPACTED),
        targets=(SINGLE_NODE,),
    ),
    Attack(
        "tiny-to-plain",
        "4 million records of 9 bytes in one batch, which the broker does not decode",
        partial(produce, tiny_in(Codec.ZSTD)),
        partial(topic, LARGE),
    ),
    Attack(
        "large-record-to-compacted",
        "one record of 40 MB in zstd to a compacted topic",
        partial(produce, large_in(Codec.ZSTD)),
        partial(topic, COMPACTED),
        targets=(SINGLE_NODE,),
    ),
    Attack(
        "headers-recompressed",
        "40 MB of headers in zstd to a topic that stores gzip",
        partial(produce, headers_in(Codec.ZSTD)),
        partial(topic, LARGE | {"compression.type": "gzip"}),
        targets=(SINGLE_NODE,),
    ),
    Attack(
        "headers-uncompressed",
        "40 MB of headers in zstd to a topic that stores them uncompressed",
        partial(produce, headers_in(Codec.ZSTD)),
        partial(topic, LARGE | {"compression.type": "uncompressed"}),
        targets=(SINGLE_NODE,),
    ),
    Attack(
        "headers-with-old-times",
        "40 MB of headers to a topic that rejects old records",
        partial(produce, headers_in(Codec.ZSTD)),
        partial(topic, LARGE | {"message.timestamp.before.max.ms": "1000"}),
        targets=(SINGLE_NODE,),
    ),
    *(
        Attack(
            f"old-messages-{codec.name.lower()}",
            f"Produce 2: 10 MB of empty messages in {codec.name.lower()}",
            partial(produce, old_in(codec), version=2),
            partial(topic, LARGE),
            targets=(SINGLE_NODE,),
            quick=codec is Codec.GZIP,
        )
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    ),
    *(
        Attack(
            f"{name}-by-time-{codec.name.lower()}",
            f"ListOffsets by time over stored batches of {what} in {codec.name.lower()}, listed three times",
            list_offsets,
            partial(store_bombs, batch),
            quick=name == "headers" and codec is Codec.ZSTD,
            targets=(SINGLE_NODE,),
        )
        for codec in COMPRESSED
        for name, what, batch in (
            ("headers", "40 MB of headers", headers_in(codec)),
            ("tiny", "4 million records", tiny_in(codec)),
        )
    ),
    *(
        Attack(
            f"{name}-for-old-client-{codec.name.lower()}",
            f"Fetch 2 over stored batches of {what} in {codec.name.lower()}",
            fetch_as_old_client,
            partial(store_bombs, batch),
            quick=name == "headers" and codec is Codec.GZIP,
            targets=(SINGLE_NODE,),
        )
        for codec in COMPRESSED
        for name, what, batch in (
            ("headers", "40 MB of headers", headers_in(codec)),
            ("tiny", "4 million records", tiny_in(codec)),
        )
    ),
    *(
        Attack(
            f"{name}-compacted",
            f"compaction of a stored batch of {what} in zstd",
            compact,
            partial(prepare_compaction, batch),
            config={"broker": {"log.cleaner.backoff.ms": 500}},
            targets=(SINGLE_NODE,),
        )
        for name, what, batch in (
            ("headers", "40 MB of headers", headers_in(Codec.ZSTD)),
            ("tiny", "4 million records", tiny_in(Codec.ZSTD)),
            ("large-record", "one record of 40 MB", large_in(Codec.ZSTD)),
        )
    ),
)
