"""All nodes are restarted one after the other, gracefully and under load: no error reaches any client's application."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory
from tests.chaos.history import Place
from tests.clients.catalogue import CLIENTS
from tests.clients.drivers.wire import Received, Record
from tests.clients.running import CommandFailed, DriverDied, GroupMember, RunningClient
from tests.cluster import replicated
from tests.cluster.replicated import sockets_let_go  # noqa: F401 - a fixture
from tests.long import LONG, count

pytestmark = [pytest.mark.xdist_group("cluster"), *replicated.KAFKA_PYTHON_LEAVES_SOCKETS]

ROUNDS = count(1, 3)
PARTITIONS = 3
RATE = 60.0
SYSTEM_PARTITIONS = 50
DRIVEN = ("kafkajs", "java-3.9", "java-4") if LONG else ("kafkajs", "java-4")
RECORDS_PER_CALL = 20
MEMBER_SECONDS = 0.2
NODES_ARE_BACK_SECONDS_MAX = 90.0


class AiokafkaLoad(replicated.Load):
    client = "aiokafka"

    def _run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            waiting = []
            due = self._numbered()
            while (each := await asyncio.to_thread(next, due, None)) is not None:
                partition, number, value = each
                sent = await producer.send(self._topic, value, partition=partition)
                waiting.append(asyncio.ensure_future(self._settle(sent, partition, number)))
            await asyncio.wait_for(asyncio.gather(*waiting), replicated.FLUSH_SECONDS_MAX)
        finally:
            await producer.stop()

    async def _settle(self, sent: Any, partition: int, number: int) -> None:
        try:
            metadata = await sent
        except Exception as error:  # an application would have seen it
            self.problems.append(f"record {number} of partition {partition}: {error!r}")
        else:
            self._settled(partition, number, metadata.offset)


class AiokafkaFollower(replicated.Follower):
    client = "aiokafka"

    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self._topic, bootstrap_servers=self._bootstrap, group_id=self._group, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            while not self._ending.is_set():
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    for message in messages:
                        self.seen[message.partition].append((message.offset, message.value))
        finally:
            await consumer.stop()


class DrivenLoad(replicated.Load):
    """A client in a process of its own: a producer for every few records, one right after the other."""

    def __init__(self, name: str, cluster: Cluster, topic: str) -> None:
        self.client = name
        self.is_once = name != "kafkajs"  # its idempotence is an experiment, by its own account
        super().__init__(cluster.bootstrap, topic, PARTITIONS)
        self._driver = RunningClient(CLIENTS[name], _addresses(name, cluster))

    def _run(self) -> None:
        try:
            for first in itertools.count(0, RECORDS_PER_CALL):
                if self._ending.is_set():
                    return
                self._call(range(first, first + RECORDS_PER_CALL))
        finally:
            self._driver.close()

    def _call(self, numbers: range) -> None:
        """One partition at a time. kafkajs does not send a partition again whose new leader has already taken another
        partition of the same call, and yet says that all is sent: it remembers who has answered, not for what."""
        for partition in range(PARTITIONS):
            values = [b"%s/%d " % (self.client.encode(), number) + self._padding for number in numbers]
            self.sent[partition] = numbers.stop
            try:
                records = [Record(b"key", value, partition=partition) for value in values]
                self._driver.produce(self._topic, records, idempotent=self.is_once)
            except (CommandFailed, DriverDied) as failure:
                self.problems.append(f"{failure}")
                continue
            for number in numbers:
                self._settled(partition, number, replicated.UNKNOWN)


class DrivenFollower(replicated.Follower):
    def __init__(self, name: str, cluster: Cluster, topic: str) -> None:
        self.client = name
        super().__init__(cluster.bootstrap, topic, f"readers-{name}")
        self._driver = RunningClient(CLIENTS[name], _addresses(name, cluster))

    def _run(self) -> None:
        try:
            member = self._driver.join(self._group, [self._topic])
            while not self._ending.wait(MEMBER_SECONDS):
                self._take(member)
            member.leave()
        finally:
            self._driver.close()

    def _take(self, member: GroupMember) -> None:
        state = self._driver.call("member", member=member._name)
        if state["problem"] is not None and self.client != "kafkajs":
            raise AssertionError(state["problem"])
        # kafkajs tells of every coordinator that it loses as of a crash, and starts anew by itself.
        for fields in state["records"]:
            received = Received.from_json(fields)
            self.seen[received.partition].append((received.offset, received.value or b""))


def _addresses(name: str, cluster: Cluster) -> str:
    """The driver of kafkajs takes one address to begin with."""
    return cluster.nodes[1].bootstrap if name == "kafkajs" else cluster.bootstrap


@contextmanager
def every_client(cluster: Cluster, topic: str) -> Iterator[tuple[list[replicated.Load], list[replicated.Follower]]]:
    """Those that are here, writing and reading. Writers end first, and readers when they have read everything."""
    present = [name for name in DRIVEN if CLIENTS[name].missing() is None]
    bootstrap = cluster.bootstrap
    loads: list[replicated.Load] = [
        replicated.ConfluentLoad(bootstrap, topic, PARTITIONS, rate=RATE),
        replicated.KafkaPythonLoad(bootstrap, topic, PARTITIONS, rate=RATE),
        AiokafkaLoad(bootstrap, topic, PARTITIONS, rate=RATE),
    ]
    followers: list[replicated.Follower] = [
        replicated.ConfluentFollower(bootstrap, topic, "readers-confluent"),
        replicated.KafkaPythonFollower(bootstrap, topic, "readers-kafka-python"),
        AiokafkaFollower(bootstrap, topic, "readers-aiokafka"),
    ]
    with ExitStack() as stack:
        loads += [DrivenLoad(name, cluster, topic) for name in present]
        followers += [DrivenFollower(name, cluster, topic) for name in present]
        stack.enter_context(replicated.running(*followers))
        with replicated.running(*loads):
            yield loads, followers
        ends = replicated.ends_of(bootstrap, [Place(topic, index) for index in range(PARTITIONS)])
        for follower in followers:
            follower.wait_until_it_has_read({place.partition: end for place, end in ends.items()})


def test_no_client_s_application_notices_a_rolling_restart_and_nothing_is_lost(
    chronik_cluster_factory: ClusterFactory, record_property: Callable[[str, object], None]
) -> None:
    cluster = chronik_cluster_factory()
    places = replicated.make_topic(cluster, "rolled", PARTITIONS)
    offsets = [Place("__consumer_offsets", index) for index in range(SYSTEM_PARTITIONS)]
    took: list[float] = []
    gaps: list[float] = []
    with every_client(cluster, "rolled") as (loads, followers):
        clients: list[replicated.Load | replicated.Follower] = [*loads, *followers]
        for client in clients:
            client.wait_until_it_goes_on()
        replicated.wait_until_in_sync(cluster, offsets)
        for node in list(cluster.nodes.values()) * ROUNDS:
            loads[0].forget_gaps()
            began = time.monotonic()
            node.stop()
            node.start()
            replicated.wait_until_in_sync(cluster, [*places, *offsets], NODES_ARE_BACK_SECONDS_MAX)
            took.append(time.monotonic() - began)
            for client in clients:
                client.wait_until_it_goes_on()
            gaps.append(max(loads[0].gap(partition) for partition in range(PARTITIONS)))
    problems = {client.name: client.problems[:3] for client in clients if client.problems}
    assert not problems, problems
    records = replicated.check_records(cluster.bootstrap, places, loads)
    for follower in followers:
        replicated.check_follower(cluster.bootstrap, places, follower)
    replicated.check_replicas(cluster, places)
    record_property(
        "summary",
        f"rolling restart under {', '.join(load.client for load in loads)}: {records:,} records, no error, 0 lost; "
        f"each node's restart took {replicated.median_and_most(took)}; "
        f"no acknowledgement for {replicated.median_and_most(gaps)}",
    )
