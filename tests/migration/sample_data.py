"""Test data that is hard to migrate, and a client's view of a cluster for comparison."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Offset

from chronik.client.admin import NewTopic, create_topics, describe_topic_configs, list_topics
from chronik.client.cluster import ClusterClient
from chronik.client.configs import DYNAMIC_TOPIC_CONFIG
from chronik.client.consumer import read_all
from chronik.client.groups import list_committed_offsets, list_groups
from chronik.client.offsets import list_earliest_offsets, list_latest_offsets
from chronik.client.records import TopicPartition
from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
EAGER: Final = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 100}
SECONDS: Final = 30.0

COMPACTED: Final = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
"""Configs that give every batch its own segment, so that all but the last can be compacted."""


def create_sample_data(bootstrap: str, *, records: int = 200) -> None:
    """Create topics with compressed, compacted, deleted, transactional and old records, and committed offsets."""
    with ClusterClient(bootstrap) as cluster:
        create_topics(
            cluster,
            [
                NewTopic("plain", 3, configs={"retention.ms": "-1", "max.message.bytes": "2000000"}),
                NewTopic("keys", 1, configs=COMPACTED),
                NewTopic("cut", 1),
                NewTopic("emptied", 1),
                NewTopic("empty", 2),
                NewTopic("ended", 2),
                NewTopic("old", 1, configs={"retention.ms": "-1"}),
            ],
        )
        for codec in CODECS:
            produce(bootstrap, "plain", records, codec, {"enable.idempotence": True})
        produce(bootstrap, "keys", 100, batch=5)
        produce(bootstrap, "cut", records)
        produce(bootstrap, "emptied", 10)
        produce(bootstrap, "old", 10, timestamp=1)
        delete_records(cluster, TopicPartition("cut", 0), records // 2 + 1)
        delete_records(cluster, TopicPartition("emptied", 0), -1)
        run_transaction(bootstrap, "commits", commit=True)
        run_transaction(bootstrap, "aborts", commit=False)
    for group in ("readers", "others"):
        commit(bootstrap, group, {("plain", 0): 7, ("plain", 2): 3, ("keys", 0): 90, ("ended", 1): 2})


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    codec: str = "none",
    config: dict[str, Any] | None = None,
    timestamp: int = 0,
    batch: int = 0,
) -> None:
    """Produce records. With `batch`, records are sent in batches of that size."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, **(config or {})})
    times = {"timestamp": timestamp} if timestamp else {}
    for number in range(count):
        value = f"{codec} {number}" + "." * 50
        producer.produce(topic, value, f"key {number % (batch or 50)}", headers={"codec": codec.encode()}, **times)
        if batch and number % batch == batch - 1:
            assert producer.flush(SECONDS) == 0
    assert producer.flush(SECONDS) == 0


def run_transaction(bootstrap: str, transactional_id: str, *, commit: bool | None) -> Producer:
    """Run a transaction. Without `commit`, it is left open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    for number in range(6):
        producer.produce("ended", f"{transactional_id} {number}", partition=number % 2)
    producer.flush(SECONDS)
    if commit:
        producer.commit_transaction(SECONDS)
    elif commit is not None:
        producer.abort_transaction(SECONDS)
    return producer


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        wanted = [Offset(*key, offset, metadata=f"at {offset}") for key, offset in offsets.items()]
        for each in consumer.commit(offsets=wanted, asynchronous=False) or ():
            assert each.error is None, each.error
    finally:
        consumer.close()


def delete_records(cluster: ClusterClient, partition: TopicPartition, offset: int) -> None:
    wanted = DeleteRecordsTopic(
        name=partition.topic, partitions=[DeleteRecordsPartition(partition_index=partition.partition, offset=offset)]
    )
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000)
    answer = cluster.leader(partition).request(request, DeleteRecordsResponse)
    assert ErrorCode(answer.topics[0].partitions[0].error_code) is ErrorCode.NONE


def read_client_view(bootstrap: str, topics: set[str] | None = None) -> dict[str, Any]:
    """Return what clients see of these topics, or of all non-internal ones."""
    view: dict[str, Any] = {}
    with ClusterClient(bootstrap) as cluster:
        listed = [topic for topic in list_topics(cluster) if not topic.is_internal]
        wanted = {topic.name or "": topic.topic_id for topic in listed if topics is None or topic.name in topics}
        partitions = [each for name in wanted for each in cluster.partitions(name)]
        starts = list_earliest_offsets(cluster, partitions)
        committed = read_committed(bootstrap, partitions)
        for name, topic_id in wanted.items():
            configs = describe_topic_configs(cluster, name)
            view[name] = {
                "id": topic_id,
                "configs": {each.name: each.value for each in configs if each.config_source == DYNAMIC_TOPIC_CONFIG},
                "starts": {each: start for each, start in starts.items() if each.topic == name},
                "records": read_all(cluster, name),
                "committed": [each for each in committed if each[0].topic == name],
            }
        view["groups"] = {
            group.group_id: list_committed_offsets(cluster, group.group_id) for group in list_groups(cluster)
        }
    return view


def read_end_offsets(bootstrap: str, topic: str) -> dict[TopicPartition, int]:
    with ClusterClient(bootstrap) as cluster:
        return list_latest_offsets(cluster, cluster.partitions(topic))


def read_committed(bootstrap: str, partitions: list[TopicPartition]) -> list[tuple[TopicPartition, int, bytes | None]]:
    """Return partition, offset and value of all committed records, read with librdkafka."""
    config = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed"}
    consumer = Consumer(config | {"enable.auto.commit": False, "enable.partition.eof": True})
    found, left = [], set(partitions)
    with contextlib.closing(consumer):
        consumer.assign([Offset(*each, OFFSET_BEGINNING) for each in partitions])
        while left:
            message = consumer.poll(SECONDS)
            assert message is not None, f"no end of partition for {left}"
            error, place = message.error(), TopicPartition(message.topic(), message.partition())
            if error is None:
                found.append((place, message.offset(), message.value()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(place)
    return sorted(found)
