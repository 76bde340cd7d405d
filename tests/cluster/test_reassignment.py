"""Partitions are reassigned to other brokers with all records, under load, and while nodes are killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import Message, Producer
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.chaos.history import Place
from tests.cluster.partitions import (
    PartitionView,
    create_topic,
    list_reassignments,
    read_partitions,
    reassign,
    reassign_all,
    wait_until_reassigned,
    wait_until_seen,
)
from tests.cluster.replication_helpers import (
    ConfluentLoad,
    check_records,
    check_replicas,
    running_clients,
    wait_until_in_sync,
)
from tests.raw import RawClient
from tests.run_size import SEED, sized

pytestmark = pytest.mark.xdist_group("cluster")

NONE = ErrorCode.NONE

ROUNDS = sized(4, 50)
PARTITIONS = 4
TOPIC = "moving"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def whole_again(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.start()
    cluster.wait_until_ready()


class Writer:
    """Writes numbers to all partitions in turn, with acks=all, until `end`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
        self._topic, self._partitions = topic, partitions
        self._ending = threading.Event()
        self.acknowledged: dict[int, list[tuple[int, int]]] = {index: [] for index in range(partitions)}
        self.failures: list[ConfluentError] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            partition = number % self._partitions
            self._producer.produce(self._topic, str(number).encode(), partition=partition, callback=self._delivered)
            self._producer.poll(0.002)
            number += 1
        self._producer.flush(60)

    def _delivered(self, error: ConfluentError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acknowledged[partition].append((offset, int(value)))

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


def wait_until_written(cluster: Cluster, writer: Writer, more: int) -> None:
    goal = writer.count + more
    cluster.wait_until(lambda: None if writer.count >= goal else f"{writer.count} written", f"{goal} records written")


def test_partitions_move_with_records_under_load(cluster: Cluster) -> None:
    create_topic(cluster[1], "moved", [1, 3], [1, 2], [2, 3], min_insync_replicas="1")
    writer = Writer(cluster.bootstrap, "moved", 3)
    try:
        wait_until_written(cluster, writer, 300)
        assert reassign(cluster[2], "moved", p0=[2], p1=[3, 2, 1], p2=[1]) == [NONE] * 3
        wait_until_reassigned(cluster)
        wait_until_seen(
            cluster,
            "moved",
            PartitionView(2, [2], [2]),
            PartitionView(1, [3, 2, 1], [1, 2, 3]),
            PartitionView(1, [1], [1]),
        )
        wait_until_written(cluster, writer, 300)
        assert reassign_all(cluster[3], "moved", {0: [3, 1], 1: [2], 2: [2, 3]}, version=0) == [NONE] * 3
        wait_until_reassigned(cluster)
        wait_until_seen(
            cluster,
            "moved",
            PartitionView(3, [3, 1], [1, 3]),
            PartitionView(2, [2], [2]),
            PartitionView(2, [2, 3], [2, 3]),
        )
        wait_until_written(cluster, writer, 300)
    finally:
        writer.end()
    assert not writer.failures
    read: dict[int, list[tuple[int, int]]] = {index: [] for index in range(3)}
    for record in cluster[1].records("moved"):
        read[record.partition].append((record.offset, int(record.value or b"")))
    for partition, acknowledged in writer.acknowledged.items():
        assert len(acknowledged) > 200
        assert set(acknowledged) <= set(read[partition])


def test_reassignment_to_offline_broker_is_listed_and_cancellable(cluster: Cluster) -> None:
    create_topic(cluster[1], "waiting", [1, 2])
    cluster[3].kill()
    cluster.wait_until_listed([1, 2])
    assert reassign(cluster[1], "waiting", p0=None) == [ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    assert reassign(cluster[1], "waiting", p0=[3, 1]) == [NONE]
    wait_until_seen(cluster, "waiting", PartitionView(1, [3, 1, 2], [1, 2]))
    moving = list_reassignments(cluster[2])["waiting", 0]
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([3, 1, 2], [3], [2])
    assert add_partitions(cluster, "waiting", 2) is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert reassign(cluster[1], "waiting", p0=None) == [NONE]
    wait_until_seen(cluster, "waiting", PartitionView(1, [1, 2], [1, 2]))
    assert not list_reassignments(cluster[1])
    assert add_partitions(cluster, "waiting", 2) is NONE


def test_reassignment_resumes_when_broker_returns(cluster: Cluster) -> None:
    create_topic(cluster[1], "patient", [1])
    cluster[3].kill()
    cluster.wait_until_listed([1, 2])
    assert reassign(cluster[1], "patient", p0=[3]) == [NONE]
    assert list_reassignments(cluster[1])
    cluster[3].start()
    wait_until_seen(cluster, "patient", PartitionView(3, [3], [3]))
    assert not list_reassignments(cluster[3])


def test_topic_can_be_deleted_during_reassignment(cluster: Cluster) -> None:
    create_topic(cluster[1], "doomed", [1])
    cluster[3].kill()
    cluster.wait_until_listed([1, 2])
    assert reassign(cluster[1], "doomed", p0=[3]) == [NONE]
    with RawClient(cluster[2].bootstrap) as client:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")])
        assert client.request(request, 6, DeleteTopicsResponse).responses[0].error_code == NONE
    wait_until_reassigned(cluster)
    assert read_partitions(cluster[2], "doomed") == []


def test_partition_moved_away_and_back_survives_crash(cluster: Cluster) -> None:
    """A restarted node replays the reassignment and must not delete the replica again."""
    create_topic(cluster[1], "returned", [3], min_insync_replicas="1")
    values = write_hundred(cluster, "returned")
    for home in (1, 3):
        assert reassign(cluster[1], "returned", p0=[home]) == [NONE]
        wait_until_seen(cluster, "returned", PartitionView(home, [home], [home]))
    cluster[3].kill()
    cluster.wait_until_listed([1, 2])
    cluster[3].start()
    wait_until_seen(cluster, "returned", PartitionView(3, [3], [3]))
    assert [record.value for record in cluster[1].records("returned")] == values


def test_partition_moved_from_offline_broker_returns_complete(cluster: Cluster) -> None:
    """The broker's old replica must not be used for the new one."""
    create_topic(cluster[1], "recalled", [3, 1], min_insync_replicas="1")
    values = write_hundred(cluster, "recalled")
    cluster[3].kill()
    wait_until_seen(cluster, "recalled", PartitionView(1, [3, 1], [1]))
    assert reassign(cluster[1], "recalled", p0=[1]) == [NONE]
    cluster[3].start()
    cluster.wait_until_ready()
    assert reassign(cluster[1], "recalled", p0=[3]) == [NONE]
    wait_until_seen(cluster, "recalled", PartitionView(3, [3], [3]))
    assert [record.value for record in cluster[1].records("recalled")] == values


def write_hundred(cluster: Cluster, topic: str) -> list[bytes]:
    values = [b"%d" % number for number in range(100)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    return values


def test_reassignment_by_stock_client(cluster: Cluster) -> None:
    create_topic(cluster[1], "stock", [1], [1])
    moved, unknown = TopicPartition("stock", 0), TopicPartition("stock", 7)
    admin = KafkaAdminClient(bootstrap_servers=cluster[2].bootstrap)
    try:
        answers = admin.alter_partition_reassignments({moved: [2, 3], unknown: [1]})
        assert answers[moved] is None
        assert answers[unknown].errno == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cluster.wait_until(
            lambda: "in progress" if admin.list_partition_reassignments() else None, "no reassignment in progress"
        )
        (cancelled,) = admin.alter_partition_reassignments({moved: None}).values()
        assert cancelled.errno == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    finally:
        admin.close()
    wait_until_seen(cluster, "stock", PartitionView(2, [2, 3], [2, 3]), PartitionView(1, [1], [1]))


def add_partitions(cluster: Cluster, topic: str, total: int) -> ErrorCode:
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=topic, count=total, assignments=None)])
    with RawClient(cluster[1].bootstrap) as client:
        return ErrorCode(client.request(request, 3, CreatePartitionsResponse).results[0].error_code)


def test_no_record_is_lost_when_nodes_die_during_reassignment(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory(min_insync_replicas=1)
    create_topic(cluster[1], TOPIC, [1, 2], [2, 3], [3, 1], [1, 3])
    places = [Place(TOPIC, index) for index in range(PARTITIONS)]
    load = ConfluentLoad(cluster.bootstrap, TOPIC, PARTITIONS)
    randomness = random.Random(SEED)
    moved = 0
    with running_clients(load):
        load.wait_until_progress()
        for _ in range(ROUNDS):
            targets = [randomness.sample([1, 2, 3], randomness.randint(2, 3)) for _ in range(PARTITIONS)]
            before = [each.replicas for each in read_partitions(cluster[1], TOPIC)]
            asked = reassign_all(cluster[randomness.randint(1, 3)], TOPIC, dict(enumerate(targets)))
            assert asked == [ErrorCode.NONE] * PARTITIONS
            victim = cluster[randomness.randint(1, 3)]
            time.sleep(randomness.uniform(0, 0.2))  # at a random moment of the reassignments
            victim.kill()
            cluster.leader()
            victim.start()
            cluster.wait_until_agreed()  # a restarted node may not know the reassignments yet
            wait_until_reassigned(cluster)
            load.wait_until_progress()
            after = [each.replicas for each in read_partitions(cluster[1], TOPIC)]
            assert after == targets
            moved += sum(old != new for old, new in zip(before, after, strict=True))
    assert not load.problems
    cluster.wait_until_ready()
    wait_until_in_sync(cluster, places)
    records = check_records(cluster.bootstrap, places, [load])
    check_replicas(cluster, places)
    cluster.wait_until_agreed()
    assert moved >= ROUNDS
    record_property(
        "summary", f"{moved} reassignments with {ROUNDS} kills: {records:,} records, none lost or duplicated"
    )
