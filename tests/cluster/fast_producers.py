"""confluent-kafka producers that send as fast as the brokers take it, and the ISR changes that leaders log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Producer

from chronik.testing.cluster import Cluster

FLUSH_SECONDS_MAX = 120.0
QUEUE_KBYTES_MAX = 128 * 1024
"""For all producers together. librdkafka's default for each is 1 GiB, which takes as long to deliver as the test."""

ISR_CHANGED = "ISR changed"


class Delivered(NamedTuple):
    """What all producers have delivered."""

    records: int
    failures: list[str]
    seconds: float

    def megabytes_per_second(self, size: int) -> float:
        return self.records * size / self.seconds / 1e6


class FastProducer:
    """One producer on its own thread, with librdkafka's defaults: not idempotent, unlimited requests in flight."""

    def __init__(self, bootstrap: str, topic: str, settings: dict[str, Any]) -> None:
        self.topic = topic
        self.records = 0
        self.failures: list[str] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0} | settings)

    def send(self, value: bytes, has_next: Callable[[], bool]) -> None:
        """Send records until `has_next` returns False, then wait until all are delivered."""
        while has_next():
            try:
                self._producer.produce(self.topic, value, on_delivery=self._delivered)
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.01)
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        if left:
            self.failures.append(f"{left} records were not delivered within {FLUSH_SECONDS_MAX:g} s")

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is None:
            self.records += 1
        else:
            self.failures.append(str(error))


def produce_at_full_speed(
    bootstrap: str, topic: str, size: int, seconds: float, producers: int = 1, **settings: Any
) -> Delivered:
    """Produce values of `size` bytes for `seconds`. Settings name librdkafka's with `_` for `.`."""
    named = {"queue.buffering.max.kbytes": max(QUEUE_KBYTES_MAX // producers, 1024)}
    named |= {name.replace("_", "."): value for name, value in settings.items()}
    running = [FastProducer(bootstrap, topic, named) for _ in range(producers)]
    began = time.monotonic()

    def has_next() -> bool:
        return time.monotonic() < began + seconds

    threads = [threading.Thread(target=each.send, args=(bytes(size), has_next)) for each in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    return Delivered(sum(each.records for each in running), [line for each in running for line in each.failures], took)


class IsrChanges:
    """The ISR changes that leaders log from now on, of any partition."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = list(cluster.nodes.values())
        self._seen = [len(node.log) for node in self._nodes]

    def lines(self) -> list[str]:
        """Return the log lines; a leader names only the first partitions of each command."""
        logs = [node.log[seen:] for node, seen in zip(self._nodes, self._seen, strict=True)]
        return [line for log in logs for line in log.splitlines() if ISR_CHANGED in line]
