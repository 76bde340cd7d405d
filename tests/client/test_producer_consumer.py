from __future__ import annotations

import time

import pytest

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient
from chronik.client.connection import BrokerConnection
from chronik.client.consumer import Consumer, read_all
from chronik.client.errors import BrokerUnreachable, ClientError, ConnectionLost
from chronik.client.groups import commit_offsets, list_committed_offsets, list_groups, list_topic_committed_offsets
from chronik.client.offsets import list_earliest_offsets, list_latest_offsets, list_offsets
from chronik.client.partitioner import choose_partition
from chronik.client.producer import BATCH_BYTES_MAX, Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.create_topics import CreateTopicsRequest
from chronik.protocol.messages.produce import ProduceRequest
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory


def values(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.records(topic)]


@pytest.mark.parametrize("codec", Codec)
def test_records_round_trip_in_every_codec(chronik_broker: Broker, chronik_topic: str, codec: Codec) -> None:
    sent = [
        OutgoingRecord(b"value", b"key", (("name", b"\xff"), ("empty", None)), timestamp=1234),
        OutgoingRecord(None, b"key"),
        OutgoingRecord(b"", b""),
    ]
    with chronik_broker.cluster() as cluster:
        (written,) = Producer(cluster, codec=codec).send(chronik_topic, sent)
    received = chronik_broker.records(chronik_topic)
    assert [(each.key, each.value, each.headers) for each in received] == [
        (each.key, each.value, each.headers) for each in sent
    ]
    assert [each.offset for each in received] == [0, 1, 2]
    assert received[0].timestamp == 1234
    assert abs(received[1].timestamp - time.time() * 1000) < 60_000
    assert written == (0, 0, 3)


@pytest.mark.chronik_topic(partitions=3)
def test_producer_partitions_by_key_and_round_robin_without_key(chronik_broker: Broker, chronik_topic: str) -> None:
    with chronik_broker.cluster() as cluster:
        producer = Producer(cluster)
        producer.send(chronik_topic, [OutgoingRecord(b"", str(number).encode()) for number in range(30)])
        keyless_partitions = [producer.send(chronik_topic, [OutgoingRecord(b"keyless")])[0].partition for _ in range(3)]
        producer.send(chronik_topic, [OutgoingRecord(b"explicit", b"1", partition=2)])
    records = chronik_broker.records(chronik_topic)
    keyed = [record for record in records if record.value == b""]
    assert len(keyed) == 30
    assert all(record.partition == choose_partition(record.key or b"", 3) for record in keyed)
    assert sorted(keyless_partitions) == [0, 1, 2]
    assert [record.partition for record in records if record.value == b"explicit"] == [2]


def test_producer_splits_records_into_batches(chronik_broker: Broker, chronik_topic: str) -> None:
    sent = [OutgoingRecord(bytes([number]) * (BATCH_BYTES_MAX // 3)) for number in range(8)]
    with chronik_broker.cluster() as cluster:
        written = Producer(cluster).send(chronik_topic, sent)
    assert len(written) == 4
    assert values(chronik_broker, chronik_topic) == [record.value for record in sent]


def test_retriable_errors_are_retried(chronik_broker: Broker, chronik_topic: str) -> None:
    chronik_broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    chronik_broker.fail("ListOffsets", "LEADER_NOT_AVAILABLE")
    chronik_broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=2)
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, [OutgoingRecord(b"once")])
    assert values(chronik_broker, chronik_topic) == [b"once"]
    error_outcomes = [seen.outcome for seen in chronik_broker.last_requests() if seen.outcome != "ok"]
    assert sorted(error_outcomes) == ["LEADER_NOT_AVAILABLE"] + 4 * ["NOT_LEADER_OR_FOLLOWER"]


def test_producer_raises_fatal_error_and_remains_usable(chronik_broker: Broker, chronik_topic: str) -> None:
    with chronik_broker.cluster() as cluster:
        producer = Producer(cluster)
        producer.send(chronik_topic, [OutgoingRecord(b"first")])
        chronik_broker.fail("Produce", "MESSAGE_TOO_LARGE")
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            producer.send(chronik_topic, [OutgoingRecord(b"refused")])
        producer.send(chronik_topic, [OutgoingRecord(b"second")])
    assert values(chronik_broker, chronik_topic) == [b"first", b"second"]


def test_producer_retry_after_lost_response_creates_no_duplicate(
    chronik_broker: Broker, chronik_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_requests: list[ProduceRequest] = []
    exchange = BrokerConnection._exchange

    def lose_first_responses(self: BrokerConnection, request: object, *rest: object) -> memoryview:
        response = exchange(self, request, *rest)  # type: ignore[arg-type]
        if isinstance(request, ProduceRequest) and len(lost_requests) < 2:
            lost_requests.append(request)
            self.close()
            raise ConnectionLost("the response was lost")
        return response

    with chronik_broker.cluster() as cluster:
        producer = Producer(cluster)
        producer.send(chronik_topic, [OutgoingRecord(b"before")])
        monkeypatch.setattr(BrokerConnection, "_exchange", lose_first_responses)
        (written,) = producer.send(chronik_topic, [OutgoingRecord(b"a"), OutgoingRecord(b"b")])
        producer.send(chronik_topic, [OutgoingRecord(b"after")])
    assert len(lost_requests) == 2
    assert written.base_offset == 1
    assert values(chronik_broker, chronik_topic) == [b"before", b"a", b"b", b"after"]


def test_non_repeatable_request_is_not_retried_after_lost_response(
    chronik_broker: Broker, chronik_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_requests: list[CreateTopicsRequest] = []
    exchange = BrokerConnection._exchange

    def lose_response(self: BrokerConnection, request: object, *rest: object) -> memoryview:
        response = exchange(self, request, *rest)  # type: ignore[arg-type]
        if isinstance(request, CreateTopicsRequest):
            sent_requests.append(request)
            self.close()
            raise ConnectionLost("the response was lost")
        return response

    monkeypatch.setattr(BrokerConnection, "_exchange", lose_response)
    with chronik_broker.cluster() as cluster, pytest.raises(ConnectionLost):
        create_topics(cluster, [NewTopic(f"{chronik_topic}-new")])
    assert len(sent_requests) == 1
    assert chronik_broker.records(f"{chronik_topic}-new") == []


def test_producer_and_consumer_survive_broker_crash(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("t")
    with broker.cluster() as cluster:
        producer = Producer(cluster)
        consumer = Consumer(cluster, {TopicPartition("t", 0): 0})
        producer.send("t", [OutgoingRecord(b"before")])
        assert [record.value for record in consumer.poll(30)] == [b"before"]
        broker.kill()
        broker.restart()
        producer.send("t", [OutgoingRecord(b"after")])
        assert [record.value for record in consumer.poll(30)] == [b"after"]
    assert values(broker, "t") == [b"before", b"after"]


def test_consumer_reads_from_offset_within_batch(chronik_broker: Broker, chronik_topic: str) -> None:
    partition = TopicPartition(chronik_topic, 0)
    with chronik_broker.cluster() as cluster:
        Producer(cluster).send(chronik_topic, [OutgoingRecord(b"%d" % number) for number in range(10)])
        consumer = Consumer(cluster, {partition: 7})
        assert [record.value for record in consumer.read_until({partition: 9})] == [b"7", b"8"]
        consumer.positions[partition] = 9
        assert [record.value for record in consumer.poll(30)] == [b"9"]
        assert consumer.positions == {partition: 10}
        assert consumer.poll(0) == []


def test_consumer_position_out_of_range_raises_and_keeps_positions(chronik_broker: Broker, chronik_topic: str) -> None:
    with chronik_broker.cluster() as cluster:
        consumer = Consumer(cluster, {TopicPartition(chronik_topic, 0): 5})
        with pytest.raises(KafkaError, match="offset 5 is out of range"):
            consumer.poll(0)
        assert consumer.positions == {TopicPartition(chronik_topic, 0): 5}


@pytest.mark.chronik_topic(partitions=2)
def test_offsets_are_listed_by_earliest_latest_and_timestamp(chronik_broker: Broker, chronik_topic: str) -> None:
    full, empty = TopicPartition(chronik_topic, 0), TopicPartition(chronik_topic, 1)
    with chronik_broker.cluster() as cluster:
        for number in range(3):
            record = OutgoingRecord(b"", timestamp=1000 * number, partition=0)
            Producer(cluster).send(chronik_topic, [record])
        assert list_earliest_offsets(cluster, [full, empty]) == {full: 0, empty: 0}
        assert list_latest_offsets(cluster, [full, empty]) == {full: 3, empty: 0}
        assert list_offsets(cluster, {full: 500, empty: 500}) == {full: 1, empty: -1}


def test_offsets_of_group_without_members_are_committed(chronik_broker: Broker, chronik_topic: str) -> None:
    partition = TopicPartition(chronik_topic, 0)
    group = f"group-of-{chronik_topic}"
    with chronik_broker.cluster() as cluster:
        assert list_topic_committed_offsets(cluster, group, chronik_topic) == {}
        commit_offsets(cluster, group, {partition: 42})
        assert list_topic_committed_offsets(cluster, group, chronik_topic)[partition].offset == 42
        assert list_committed_offsets(cluster, group)[partition].offset == 42
        assert group in [each.group_id for each in list_groups(cluster)]


def test_unknown_topic_raises_error_naming_it(chronik_broker: Broker) -> None:
    with chronik_broker.cluster() as cluster, pytest.raises(KafkaError) as raised:
        read_all(cluster, "no-such-topic")
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert "no-such-topic" in str(raised.value)


def test_create_topics_error_names_every_rejected_topic(chronik_broker: Broker, chronik_topic: str) -> None:
    with chronik_broker.cluster() as cluster, pytest.raises(KafkaError) as raised:
        create_topics(cluster, [NewTopic(chronik_topic), NewTopic("in valid"), NewTopic(f"{chronik_topic}-new")])
    assert raised.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert chronik_topic in str(raised.value)
    assert "in valid" in str(raised.value)
    assert chronik_broker.records(f"{chronik_topic}-new") == []


def test_unreachable_bootstrap_server_fails_without_retries(chronik_broker: Broker) -> None:
    started = time.monotonic()
    with ClusterClient("127.0.0.1:1") as cluster, pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        cluster.retry(lambda: cluster.metadata(None))
    assert time.monotonic() - started < 10
    with ClusterClient(f"127.0.0.1:1, {chronik_broker.bootstrap}") as cluster:
        assert len(cluster.metadata([]).brokers) == 1


def test_bootstrap_server_without_port_is_rejected() -> None:
    with pytest.raises(ClientError, match="expected HOST:PORT"):
        ClusterClient("localhost")
