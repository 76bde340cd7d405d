"""Changes of many partitions by one command: each succeeds or fails alone, and each topic is written once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chronik.metadata.handlers.topics import known_partition
from chronik.metadata.records import Failure, Partition, Result
from chronik.metadata.rejection import Rejected
from chronik.metadata.writer import ImageWriter


class PartitionChanges:
    """Gathers changes, so that a command on thousands of partitions of a topic does not copy all of them each time."""

    def __init__(self, writer: ImageWriter, *, checkpoint: bool = False) -> None:
        self._writer = writer
        self._checkpoint = checkpoint
        self._changed: dict[bytes, dict[int, Partition]] = {}
        self._failures: list[Failure] = []

    @contextmanager
    def item(self, number: int) -> Iterator[None]:
        """Makes what is rejected within it a failure of this item alone."""
        try:
            yield
        except Rejected as rejected:
            self._failures.append(Failure(number, rejected.code, rejected.message))

    def partition(self, topic_id: bytes, number: int) -> Partition:
        """Returns the partition as the items before this one have left it. Raises Rejected."""
        _, partition = known_partition(self._writer.image, topic_id, number)
        return self._changed.get(topic_id, {}).get(number, partition)

    def put(self, topic_id: bytes, number: int, partition: Partition) -> None:
        self._changed.setdefault(topic_id, {})[number] = partition

    def written(self) -> Result:
        image = self._writer.image
        for topic_id, partitions in self._changed.items():
            topic = image.held_topics[topic_id]
            changes = {number: new for number, new in partitions.items() if new != topic.partitions[number]}
            if changes:
                self._writer.set_partitions(topic, changes, checkpoint=self._checkpoint)
        return Result(failures=tuple(self._failures))
