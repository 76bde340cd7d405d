"""Helpers for tests of replicated partitions: clients that number their records, and checks of the results.

Producers and consumers have stock settings. Each producer numbers its records per partition from 0, so that a lost,
duplicated or reordered record is identified by its number.
"""

from __future__ import annotations

import gc
import logging
import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer

from chronik.client.admin import NewTopic, create_topics
from chronik.client.cluster import ClusterClient as ClusterClient
from chronik.client.consumer import Consumer as PlainConsumer
from chronik.client.offsets import list_earliest_offsets, list_latest_offsets
from chronik.client.records import ConsumedRecord, TopicPartition
from chronik.testing.cluster import Cluster, ClusterNode
from tests.chaos import partition_states
from tests.chaos.history import Place
from tests.chaos.replicas import StoredLog, compare_replica_logs, partition_directory, read_log

DEADLINE_SECONDS = 60.0
"""Time limit for anything that takes seconds at most."""

KAFKA_PYTHON_LEAVES_SOCKETS = (
    pytest.mark.usefixtures("collect_unclosed_sockets"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
)
"""kafka-python drops sockets without closing them when a node is down, and Python warns of them later."""


@pytest.fixture
def collect_unclosed_sockets() -> Iterator[None]:
    """Collect unclosed sockets before the next test. Logged exceptions would keep them alive."""
    loggers = [logging.getLogger(name) for name in ("kafka", "aiokafka", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    gc.collect()


READ_SECONDS_MAX = 120.0
FLUSH_SECONDS_MAX = 30.0
CLOSE_SECONDS_MAX = 5.0


UNKNOWN = -1


class AcknowledgedRecord(NamedTuple):
    number: int
    offset: int
    """The offset, or UNKNOWN if the client does not report it."""


def wait_for(what: str, state: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> Any:
    """Return the first true value of `state`. Raises AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := state()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.02)
    return value


def create_topic(cluster: Cluster, topic: str, partitions: int = 1, copies: int = 3, **configs: str) -> list[Place]:
    """Create a topic and wait until every node knows its leaders. In config names, '_' stands for '.'."""
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with cluster.live_nodes[0].cluster() as client:
        create_topics(client, [NewTopic(topic, partitions, copies, named)])
    places = [Place(topic, index) for index in range(partitions)]
    wait_until_in_sync(cluster, places)
    return places


def wait_until_in_sync(cluster: Cluster, places: Iterable[Place], seconds: float = DEADLINE_SECONDS) -> None:
    places = list(places)
    cluster.wait_until(
        lambda: partition_states.out_of_sync_reason(cluster, places), f"all replicas of {places} in sync", seconds
    )


def wait_until_all_voters(cluster: Cluster) -> None:
    """Wait until all nodes are voters. A node on a new disk starts as a learner."""

    def missing() -> str | None:
        members = cluster.leader().status()["members"]
        voters = {member["id"] for member in members if member["voter"]}
        return None if voters == set(cluster.nodes) else f"members: {members}"

    cluster.wait_until(missing, "all nodes to be voters")


def leader_of(cluster: Cluster, place: Place) -> ClusterNode:
    """Return the leader, according to a live node, when it is alive."""

    def led_by() -> int:
        return partition_states.leader_of(cluster, place)

    live = {node.node_id for node in cluster.live_nodes}
    wait_for(f"a living leader of {place}", lambda: led_by() in live)
    return cluster.nodes[led_by()]


# -- producers ---------------------------------------------------------------------------------------------------------


class ProducerLoad:
    """Sends `rate` records per second to all partitions in turn, on its own thread, until `end`."""

    client = ""
    is_idempotent = True
    """Whether the client guarantees exactly-once production; others may duplicate records."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: float = 300.0, padding: int = 60) -> None:
        self.name = f"{self.client}-{topic}"
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._rate, self._padding = rate, b"." * padding
        self.acknowledged: dict[int, list[AcknowledgedRecord]] = defaultdict(list)
        self.problems: list[str] = []
        """Everything that an application would notice: failed records, exceptions and fatal errors."""
        self.sent: dict[int, int] = defaultdict(int)
        self._acknowledged_at: dict[int, float] = {}
        self._gaps: dict[int, float] = defaultdict(float)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run_and_catch, name=self.name)

    def _run_and_catch(self) -> None:
        try:
            self._run()
        except Exception as error:  # an application would get this exception
            self.problems.append(f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        raise NotImplementedError

    def _numbered(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield partition, number and value of each record when it is due."""
        due_at = time.monotonic()
        turn = 0
        while not self._ending.is_set():
            due_at += 1 / self._rate
            if (early := due_at - time.monotonic()) > 0:
                self._ending.wait(early)
            partition = turn % self._partitions
            number = self.sent[partition]
            self.sent[partition] += 1
            turn += 1
            yield partition, number, b"%s/%d " % (self.client.encode(), number) + self._padding

    def _record_ack(self, partition: int, number: int, offset: int) -> None:
        now = time.monotonic()
        self.acknowledged[partition].append(AcknowledgedRecord(number, offset))
        before = self._acknowledged_at.get(partition, now)
        self._gaps[partition] = max(self._gaps[partition], now - before)
        self._acknowledged_at[partition] = now

    @property
    def count(self) -> int:
        return sum(map(len, list(self.acknowledged.values())))

    def reset_gaps(self) -> None:
        self._gaps.clear()

    def longest_gap(self, partition: int) -> float:
        """Return the longest time without an acknowledgement in a partition since `forget_gaps`."""
        return self._gaps[partition]

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()

    def join(self) -> None:
        self._thread.join()

    def wait_until_progress(
        self, partitions: Sequence[int] | None = None, records: int = 5, seconds: float = DEADLINE_SECONDS
    ) -> None:
        """Wait until records that are sent from now on are acknowledged in each partition."""
        wanted = range(self._partitions) if partitions is None else partitions
        goal = {partition: self.sent[partition] + records for partition in wanted}

        def waiting() -> list[int]:
            last = {index: self.acknowledged[index][-1].number for index in wanted if self.acknowledged[index]}
            return [index for index in wanted if last.get(index, -1) < goal[index]]

        wait_for(f"{self.name} to continue in {list(wanted)}", lambda: not waiting() or self.problems, seconds)
        assert not self.problems, self.problems


class ConfluentLoad(ProducerLoad):
    client = "confluent"

    def __init__(self, *arguments: Any, settings: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0, "error_cb": self._error}
            | (settings or {})
        )

    def _error(self, error: KafkaError) -> None:
        """Record fatal errors. librdkafka also reports every lost connection here."""
        if error.fatal():
            self.problems.append(str(error))

    def _run(self) -> None:
        for partition, number, value in self._numbered():
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered(number))
            self._producer.poll(0)
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        if left:
            self.problems.append(f"{left} records were never settled")

    def _delivered(self, number: int) -> Callable[[KafkaError | None, Any], None]:
        def settle(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.problems.append(f"record {number} of partition {message.partition()}: {error}")
            else:
                offset = message.offset()  # None if the response was lost and a retry was a duplicate
                self._record_ack(message.partition(), number, UNKNOWN if offset is None else offset)

        return settle


class KafkaPythonLoad(ProducerLoad):
    """A kafka-python producer, which is idempotent by default."""

    client = "kafka-python"

    def _run(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap.split(","))
        try:
            for partition, number, value in self._numbered():
                future = producer.send(self._topic, value, partition=partition)
                future.add_callback(self._succeeded, partition, number)
                future.add_errback(self._failed, partition, number)
            producer.flush(FLUSH_SECONDS_MAX)
        finally:
            producer.close(timeout=CLOSE_SECONDS_MAX)

    def _succeeded(self, partition: int, number: int, metadata: Any) -> None:
        self._record_ack(partition, number, metadata.offset)

    def _failed(self, partition: int, number: int, error: Exception) -> None:
        self.problems.append(f"record {number} of partition {partition}: {error!r}")


# -- consumers ---------------------------------------------------------------------------------------------------------


class ConsumerLoad:
    """Consumes on its own thread. No record that it received may be missing, duplicated or changed later."""

    client = ""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.name = f"{self.client}-reader"
        self._bootstrap, self._topic, self.group = bootstrap, topic, group
        self.seen: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
        """Offset and value of each received record, by partition."""
        self.problems: list[str] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run_and_catch, name=self.name)

    def _run_and_catch(self) -> None:
        try:
            self._run()
        except Exception as error:  # an application would get this exception
            self.problems.append(f"{type(error).__name__}: {error}")

    def _run(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()

    def join(self) -> None:
        self._thread.join()

    @property
    def count(self) -> int:
        return sum(map(len, list(self.seen.values())))

    def wait_until_progress(self, records: int = 5, seconds: float = DEADLINE_SECONDS) -> None:
        goal = self.count + records
        wait_for(f"{self.name} to continue", lambda: self.count >= goal or self.problems, seconds)
        assert not self.problems, self.problems

    def wait_until_read(self, ends: dict[int, int]) -> None:
        def is_there(partition: int) -> bool:
            return bool(self.seen[partition]) and self.seen[partition][-1][0] + 1 >= ends[partition]

        wait_for(f"{self.name} to read up to {ends}", lambda: all(map(is_there, ends)) or self.problems)
        assert not self.problems, self.problems


class ConfluentConsumerLoad(ConsumerLoad):
    client = "confluent"

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        try:
            while not self._ending.is_set():
                message = consumer.poll(0.1)
                if message is None:
                    continue
                if message.error() is not None:
                    raise KafkaException(message.error())
                self.seen[message.partition()].append((message.offset(), message.value()))
        finally:
            consumer.close()


class KafkaPythonConsumerLoad(ConsumerLoad):
    client = "kafka-python"

    def _run(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap.split(","), group_id=self.group, auto_offset_reset="earliest"
        )
        consumer.subscribe([self._topic])
        try:
            assert self._topic in consumer.topics()  # before joining, to avoid a second join
            while not self._ending.is_set():
                for messages in consumer.poll(timeout_ms=100).values():
                    for message in messages:
                        self.seen[message.partition].append((message.offset, message.value))
        finally:
            consumer.close()


@contextmanager
def running_clients(*clients: ProducerLoad | ConsumerLoad) -> Iterator[None]:
    """Run the clients during the block and stop them at its end."""
    for client in clients:
        client.start()
    try:
        yield
    finally:
        for client in clients:
            client.stop()
        for client in clients:
            client.join()


# -- checks ------------------------------------------------------------------------------------------------------------


def read_all(bootstrap: str, places: Iterable[Place]) -> dict[Place, list[ConsumedRecord]]:
    """Read each log from its start to its current end."""
    partitions = [TopicPartition(*place) for place in places]
    found: dict[Place, list[ConsumedRecord]] = {Place(*each): [] for each in partitions}
    with ClusterClient(bootstrap, client_id="replicated") as client:
        ends = list_latest_offsets(client, partitions)
        consumer = PlainConsumer(client, list_earliest_offsets(client, partitions))
        deadline = time.monotonic() + READ_SECONDS_MAX
        while unread := [each for each, offset in consumer.positions.items() if offset < ends[each]]:
            assert time.monotonic() < deadline, f"{unread} of {ends} are still unread"
            for record in consumer.poll(only=unread):
                found[Place(record.topic, record.partition)].append(record)
    return found


def end_offsets(bootstrap: str, places: Iterable[Place]) -> dict[Place, int]:
    partitions = [TopicPartition(*place) for place in places]
    with ClusterClient(bootstrap, client_id="replicated") as client:
        return {Place(*each): end for each, end in list_latest_offsets(client, partitions).items()}


def check_records(bootstrap: str, places: Iterable[Place], loads: Sequence[ProducerLoad]) -> int:
    """Check that no acknowledged record is lost or moved, that there are no duplicates, and that the order is kept.

    Returns the number of records.
    """
    read = read_all(bootstrap, places)
    for place, records in read.items():
        by_client: dict[str, list[AcknowledgedRecord]] = defaultdict(list)
        for record in records:
            assert record.value is not None
            client, number = record.value.split(b" ")[0].split(b"/")
            by_client[client.decode()].append(AcknowledgedRecord(int(number), record.offset))
        for load in loads:
            _check_one(place, load, by_client[load.client])
    return sum(map(len, read.values()))


def _check_one(place: Place, load: ProducerLoad, found: list[AcknowledgedRecord]) -> None:
    numbers = [each.number for each in found]
    acknowledged = load.acknowledged[place.partition]
    there, numbers_there = set(found), set(numbers)
    lost = [
        each
        for each in acknowledged
        if (each not in there if each.offset != UNKNOWN else each.number not in numbers_there)
    ]
    assert not lost, f"{load.name}: {len(lost)} acknowledged records are missing in {place}: {lost[:5]}"
    if load.is_idempotent:
        times = Counter(numbers)
        doubled = [each for each in found if times[each.number] > 1]
        assert not doubled, f"{load.name}: {len(doubled)} records are duplicated in {place}: {doubled[:5]}"
        assert numbers == sorted(numbers), f"{load.name}: records are reordered in {place}"


def check_consumer(bootstrap: str, places: Iterable[Place], follower: ConsumerLoad) -> None:
    """Check that the records that a consumer received are in the log, complete, in order and at the same offsets.

    After a rebalance, a member may receive the same record again.
    """
    for place, records in read_all(bootstrap, places).items():
        there = {record.offset: record.value for record in records}
        shown = follower.seen[place.partition]
        changed = [offset for offset, value in shown if there.get(offset) != value]
        assert not changed, f"{follower.name} received records of {place} that have changed: {changed[:5]}"
        missing = sorted(there.keys() - {offset for offset, _ in shown})
        assert not missing, f"{follower.name} did not receive {len(missing)} records of {place}: {missing[:5]}"


def read_stored_logs(cluster: Cluster, place: Place) -> dict[int, StoredLog]:
    """Return the log of each replica on disk."""
    anyone = cluster.live_nodes[0]
    topic_id = partition_states.topic_ids(anyone, [place.topic])[place.topic]
    replicas = partition_states.read_partition_states(anyone, [place.topic])[place].replicas
    return {
        node_id: read_log(partition_directory(cluster.nodes[node_id].data_dir, topic_id, place.partition))
        for node_id in replicas
    }


def check_replicas(cluster: Cluster, places: Iterable[Place]) -> None:
    """Check that all replicas have the same bytes from the highest log start to the high watermark."""
    places = list(places)
    wait_until_in_sync(cluster, places)
    for place, end in end_offsets(cluster.bootstrap, places).items():
        findings = compare_replica_logs(place, read_stored_logs(cluster, place), end)
        assert not findings, findings


def format_median_and_max(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s (most)"
