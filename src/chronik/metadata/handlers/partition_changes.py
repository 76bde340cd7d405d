"""Batched partition changes: each item succeeds or fails separately, and each topic is written once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chronik.metadata.errors import CommandRejectedError
from chronik.metadata.handlers.topics import require_partition
from chronik.metadata.records import ApplyResult, ItemFailure, Partition
from chronik.metadata.writer import ImageWriter


class PartitionChangeBatch:
    """The collected partition changes of one command.

    Writing a topic copies the tuple of its partitions, so a command on thousands of partitions writes each topic once.
    """

    def __init__(self, writer: ImageWriter, *, checkpoint: bool = False) -> None:
        self._writer = writer
        self._checkpoint = checkpoint
        self._changed: dict[bytes, dict[int, Partition]] = {}
        self._failures: list[ItemFailure] = []

    @contextmanager
    def collect_failures(self, number: int) -> Iterator[None]:
        """Record a rejection inside the `with` block as a failure of this item only."""
        try:
            yield
        except CommandRejectedError as rejected:
            self._failures.append(ItemFailure(number, rejected.code, rejected.message))

    def partition(self, topic_id: bytes, number: int) -> Partition:
        """Return the partition with the changes of earlier items.

        Raises:
            CommandRejectedError: The partition does not exist.
        """
        _, partition = require_partition(self._writer.image, topic_id, number)
        return self._changed.get(topic_id, {}).get(number, partition)

    def put(self, topic_id: bytes, number: int, partition: Partition) -> None:
        """Add the changed partition."""
        self._changed.setdefault(topic_id, {})[number] = partition

    def write(self) -> ApplyResult:
        """Write all changes to the image and return the result with the failures."""
        image = self._writer.image
        for topic_id, partitions in self._changed.items():
            topic = image.all_topics_by_id[topic_id]
            changes = {number: new for number, new in partitions.items() if new != topic.partitions[number]}
            if changes:
                self._writer.set_partitions(topic, changes, checkpoint=self._checkpoint)
        return ApplyResult(failures=tuple(self._failures))
