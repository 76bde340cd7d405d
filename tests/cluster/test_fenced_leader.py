"""The leader of all partitions is isolated from other nodes but not from clients, which switch to the new leaders."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError, Message, Producer

from chronik.testing.cluster import Cluster
from chronik.testing.plugin import ClusterFactory

from .partitions import create_topic, wait_until_in_sync

pytestmark = pytest.mark.xdist_group("cluster")

PARTITIONS = 3
PAUSE_SECONDS = 0.05
DEADLINE_SECONDS = 40.0
"""Time limit for a session and an election on a busy machine."""

Acknowledged = Callable[[int], None]
"""A callback with the partition of an acknowledged record."""


def produce_with_librdkafka(bootstrap: str, acknowledged: Acknowledged, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0})

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            partition = message.partition()
            assert partition is not None
            acknowledged(partition)

    number = 0
    while not over.is_set():
        producer.produce("topic", b"value", partition=number % PARTITIONS, on_delivery=delivered)
        producer.poll(PAUSE_SECONDS)
        number += 1


def produce_with_aiokafka(bootstrap: str, acknowledged: Acknowledged, over: threading.Event) -> None:
    async def send_one(producer: AIOKafkaProducer, partition: int) -> None:
        try:
            await producer.send_and_wait("topic", b"value", partition=partition)
            acknowledged(partition)
        except AiokafkaError:
            return

    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
        await producer.start()
        try:
            async with asyncio.TaskGroup() as sending:
                number = 0
                while not over.is_set():
                    sending.create_task(send_one(producer, number % PARTITIONS))
                    number += 1
                    await asyncio.sleep(PAUSE_SECONDS)
        finally:
            await producer.stop()

    asyncio.run(produce())


def wait_for_all_partitions(cluster: Cluster, acknowledged: Counter[int]) -> None:
    def missing() -> str | None:
        return None if len(acknowledged) == PARTITIONS else f"acknowledged: {dict(acknowledged)}"

    cluster.wait_until(missing, "acknowledgements of every partition", DEADLINE_SECONDS)


@pytest.mark.parametrize("produce", [produce_with_librdkafka, produce_with_aiokafka], ids=["librdkafka", "aiokafka"])
def test_producers_switch_to_new_leader_during_isolation(
    chronik_cluster_factory: ClusterFactory,
    record_property: Callable[[str, object], None],
    produce: Callable[[str, Acknowledged, threading.Event], None],
) -> None:
    cluster = chronik_cluster_factory(links=True)
    create_topic(cluster[1], "topic", [1, 2, 3], [1, 3, 2], [1, 2, 3])
    wait_until_in_sync(cluster, "topic")
    acknowledged: Counter[int] = Counter()
    over = threading.Event()

    def on_acknowledged(partition: int) -> None:
        acknowledged[partition] += 1

    producing = threading.Thread(target=produce, args=(cluster.bootstrap, on_acknowledged, over))
    producing.start()
    try:
        wait_for_all_partitions(cluster, acknowledged)
        cluster.isolate(1)
        began = time.monotonic()
        cluster.wait_until(lambda: None if cluster[1].status()["fenced"] else "not yet", "node 1 to be fenced")
        acknowledged.clear()
        wait_for_all_partitions(cluster, acknowledged)
        seconds = time.monotonic() - began
    finally:
        over.set()
        cluster.restore_links()
        producing.join()
    record_property("summary", f"{produce.__name__}: every partition acknowledged {seconds:.1f} s after the cut")
