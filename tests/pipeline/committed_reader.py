"""A read_committed consumer based on librdkafka, which verifies writes independently of Chronik's own client."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

READ_SECONDS_MAX = 60.0
MESSAGES_AT_ONCE = 10_000


class CommittedReader:
    """A consumer that reads all partitions of a topic from the beginning with read_committed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"committed-{uuid.uuid4().hex}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        self._partitions = partitions
        self._ended: set[int] = set()
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self, wait_s: float = 0.1) -> list[bytes]:
        """Return the values that have arrived since the last call."""
        values = []
        for message in self._consumer.consume(MESSAGES_AT_ONCE, wait_s):
            error = message.error()
            if error is None:
                values.append(message.value())
                self._ended.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())
        return values

    def read_to_end(self) -> Iterator[bytes]:
        """Yield all values that are committed now; requires a new reader."""
        deadline = time.monotonic() + READ_SECONDS_MAX
        while len(self._ended) < self._partitions:
            assert time.monotonic() < deadline, f"only partitions {self._ended} were read to their end"
            yield from self.poll()


def read_committed_values(bootstrap: str, topic: str, partitions: int) -> list[bytes]:
    with CommittedReader(bootstrap, topic, partitions) as reader:
        return sorted(reader.read_to_end())
