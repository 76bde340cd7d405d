"""Batched partition changes: each item succeeds or fails separately, and each topic is written once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chronik.metadata.handlers.topics import known_partition
from chronik.metadata.records import Failure, Partition, Result
from chronik.metadata.rejection import Rejected
from chronik.metadata.writer import ImageWriter


class PartitionChanges:
    """The collected partition changes of one command.

    Writing a topic copies the tuple of its partitions, so a command on thousands of partitions writes each topic once.
    """

    def __init__(self, writer: ImageWriter, *, checkpoint: bool = False) -> None:
        self._writer = writer
        self._checkpoint = checkpoint
        self._changed: dict[bytes, dict[int, Partition]] = {}
        self._failures: list[Failure] = []

    @contextmanager
    def item(self, number: int) -> Iterator[None]:
        """Record a rejection inside the `with` block as a failure of this item only."""
        try:
            yield
        except Rejected as rejected:
            self._failures.append(Failure(number, rejected.code, rejected.message))

    def partition(self, topic_id: bytes, number: int) -> Partition:
        """Return the partition with the changes of earlier items.

        Raises:
            CommandRejectedError: The partition does not exist.
        """
        _, partition = known_partition(self._writer.image, topic_id, number)
        return self._changed.get(topic_id, {}).get(number, partition)

    def put(self, topic_id: bytes, number: int, partition: Partition) -> None:
        """Add the changed partition."""
        self._changed.setdefault(topic_id, {})[number] = partition

    def written(self) -> Result:
        """Write all changes to the image and return the result with the failures."""
        image = self._writer.image
        for topic_id, partitions in self._changed.items():
            topic = image.held_topics[topic_id]
            changes = {number: new for number, new in partitions.items() if new != topic.partitions[number]}
            if changes:
                self._writer.set_partitions(topic, changes, checkpoint=self._checkpoint)
        return Result(failures=tuple(self._failures))
