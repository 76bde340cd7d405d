"""Clients of every kind that write and read while a test changes the cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.chaos.history import Place
from tests.clients.client_catalog import CLIENTS
from tests.clients.client_process import ClientProcess, CommandFailed, DriverDied, GroupMember
from tests.clients.drivers.wire import ReceivedRecord, Record
from tests.cluster import replication_helpers
from tests.run_size import IS_LONG_RUN

PARTITIONS = 3
DRIVEN_CLIENTS = ("kafkajs", "java-3.9", "java-4") if IS_LONG_RUN else ("kafkajs", "java-4")
"""Clients in addition to librdkafka, kafka-python and aiokafka. `make test` uses fewer."""
RECORDS_PER_CALL = 20
MEMBER_SECONDS = 0.2
PAUSE_SECONDS = 0.0 if IS_LONG_RUN else 0.3
"""Pause between two calls of a driver. Creating producers without a pause uses a whole core."""


class AiokafkaLoad(replication_helpers.ProducerLoad):
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
            await asyncio.wait_for(asyncio.gather(*waiting), replication_helpers.FLUSH_SECONDS_MAX)
        finally:
            await producer.stop()

    async def _settle(self, sent: Any, partition: int, number: int) -> None:
        try:
            metadata = await sent
        except Exception as error:  # an application would get this exception
            self.problems.append(f"record {number} of partition {partition}: {error!r}")
        else:
            self._record_ack(partition, number, metadata.offset)


class AiokafkaConsumerLoad(replication_helpers.ConsumerLoad):
    client = "aiokafka"

    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            self._topic, bootstrap_servers=self._bootstrap, group_id=self.group, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            while not self._ending.is_set():
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    for message in messages:
                        self.seen[message.partition].append((message.offset, message.value))
        finally:
            await consumer.stop()


class DrivenLoad(replication_helpers.ProducerLoad):
    """A client in its own process, with a new producer for every few records, `pause_s` apart."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, pause_s: float = PAUSE_SECONDS) -> None:
        self.client = name
        self.is_idempotent = name != "kafkajs"  # its idempotence is experimental
        super().__init__(bootstrap, topic, partitions)
        self._pause_s = pause_s
        self._driver = ClientProcess(CLIENTS[name], _addresses(name, bootstrap))

    def _run(self) -> None:
        try:
            for first in itertools.count(0, RECORDS_PER_CALL):
                if self._ending.wait(self._pause_s):
                    return
                self._call(range(first, first + RECORDS_PER_CALL))
        finally:
            self._driver.close()

    def _call(self, numbers: range) -> None:
        """Send one partition at a time.

        If a new leader has already accepted another partition of the same call, kafkajs does not retry the rest, but
        reports success.
        """
        for partition in range(self._partitions):
            values = [b"%s/%d " % (self.client.encode(), number) + self._padding for number in numbers]
            self.sent[partition] = numbers.stop
            try:
                records = [Record(b"key", value, partition=partition) for value in values]
                self._driver.produce(self._topic, records, idempotent=self.is_idempotent)
            except (CommandFailed, DriverDied) as failure:
                self.problems.append(f"{failure}")
                continue
            for number in numbers:
                self._record_ack(partition, number, replication_helpers.UNKNOWN)


class DrivenConsumerLoad(replication_helpers.ConsumerLoad):
    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self.client = name
        super().__init__(bootstrap, topic, f"readers-{name}")
        self._driver = ClientProcess(CLIENTS[name], _addresses(name, bootstrap))

    def _run(self) -> None:
        try:
            member = self._driver.join(self.group, [self._topic])
            while not self._ending.wait(MEMBER_SECONDS):
                self._record_consumed(member)
            member.leave()
        finally:
            self._driver.close()

    def _record_consumed(self, member: GroupMember) -> None:
        state = self._driver.call("member", member=member._name)
        if state["problem"] is not None and self.client != "kafkajs":
            raise AssertionError(state["problem"])
        # kafkajs reports the loss of a coordinator as a crash and restarts by itself.
        for fields in state["records"]:
            received = ReceivedRecord.from_json(fields)
            self.seen[received.partition].append((received.offset, received.value or b""))


def _addresses(name: str, bootstrap: str) -> str:
    """Return the bootstrap addresses. The driver of kafkajs accepts only one."""
    return bootstrap.partition(",")[0] if name == "kafkajs" else bootstrap


@contextmanager
def running_client_loads(
    bootstrap: str,
    topic: str,
    partitions: int = PARTITIONS,
    driven: Sequence[str] = DRIVEN_CLIENTS,
    *,
    rate: float = 60.0,
    pause_s: float = PAUSE_SECONDS,
    not_reading: Collection[str] = (),
) -> Iterator[tuple[list[replication_helpers.ProducerLoad], list[replication_helpers.ConsumerLoad]]]:
    """Run all available clients. Producers stop first, and consumers when they have read everything.

    Python clients send `rate` records per second, and `driven` clients a few every `pause_s`.
    """
    present = [name for name in driven if CLIENTS[name].missing_reason() is None]
    loads: list[replication_helpers.ProducerLoad] = [
        replication_helpers.ConfluentLoad(bootstrap, topic, partitions, rate=rate),
        replication_helpers.KafkaPythonLoad(bootstrap, topic, partitions, rate=rate),
        AiokafkaLoad(bootstrap, topic, partitions, rate=rate),
    ]
    followers: list[replication_helpers.ConsumerLoad] = [
        replication_helpers.ConfluentConsumerLoad(bootstrap, topic, "readers-confluent"),
        replication_helpers.KafkaPythonConsumerLoad(bootstrap, topic, "readers-kafka-python"),
        AiokafkaConsumerLoad(bootstrap, topic, "readers-aiokafka"),
    ]
    with ExitStack() as stack:
        loads += [DrivenLoad(name, bootstrap, topic, partitions, pause_s) for name in present]
        followers += [DrivenConsumerLoad(name, bootstrap, topic) for name in present]
        followers = [each for each in followers if each.client not in not_reading]
        stack.enter_context(replication_helpers.running_clients(*followers))
        with replication_helpers.running_clients(*loads):
            yield loads, followers
        ends = replication_helpers.end_offsets(bootstrap, [Place(topic, index) for index in range(partitions)])
        for follower in followers:
            follower.wait_until_read({place.partition: end for place, end in ends.items()})
