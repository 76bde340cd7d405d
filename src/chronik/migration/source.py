"""The interface of import sources: an image of the metadata, and the logs of the partitions."""

from __future__ import annotations

from typing import Protocol

from chronik.errors import ChronikError
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.protocol.batch import Bytes


class MigrationError(ChronikError):
    """An import or backup cannot be started or continued."""


class SourceLog(Protocol):
    """The interface to the log of one partition of an import source."""

    @property
    def start(self) -> int:
        """Return the log start offset, which may be inside the first batch."""

    @property
    def end(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """Return the leader epoch of the last batch, or -1 for an empty log."""

    @property
    def producer_ids(self) -> int:
        """Return an exclusive upper bound of the producer ids in the log."""

    def read(self, offset: int, max_bytes: int) -> Bytes:
        """Return complete record batches, starting with the batch that contains `offset`, whatever its size.

        Raises:
            MigrationError: The records cannot be read.
            KafkaError: The log is damaged.
        """


class ImportSource(Protocol):
    """The interface to an import source: a data directory or a backup."""

    @property
    def name(self) -> str:
        """Return the display name of the import source."""

    @property
    def id(self) -> bytes:
        """Return a 16-byte id of the source, which changes only if the source's data changes."""

    @property
    def image(self) -> Image: ...

    @property
    def is_backup(self) -> bool: ...

    def topics(self) -> list[Topic]:
        """Return the topics of the source to import, sorted by name."""

    def log(self, topic: Topic, partition: int) -> SourceLog:
        """Return the log of a partition.

        Raises:
            MigrationError: The log is incomplete.
        """

    def close(self) -> None: ...


def list_visible_topics(image: Image) -> list[Topic]:
    """Return the topics of an image that clients can see, sorted by name, without system topics."""
    return sorted((each for each in image.topics.values() if not each.internal), key=lambda topic: topic.name)
