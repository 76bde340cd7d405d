"""What topics come from: an image of all that was agreed there, and the logs of its partitions."""

from __future__ import annotations

from typing import Protocol

from chronik.errors import ChronikError
from chronik.metadata.image import Image
from chronik.metadata.records import Topic
from chronik.protocol.batch import Bytes


class CannotMove(ChronikError):
    """Why topics cannot come along, or not go on coming."""


class SourceLog(Protocol):
    """One partition."""

    @property
    def start(self) -> int:
        """Its first offset, which may lie within its first batch."""

    @property
    def end(self) -> int: ...

    @property
    def last_epoch(self) -> int:
        """The leader epoch of the last batch; -1 without any."""

    @property
    def producer_ids(self) -> int:
        """One more than the highest producer id that it is known to have seen."""

    def read(self, offset: int, max_bytes: int) -> Bytes:
        """Returns whole batches, from the one that contains `offset` on; the first however large it is. Raises
        CannotMove, or KafkaError when it is damaged."""


class Source(Protocol):
    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def id(self) -> bytes:
        """16 bytes which are the same as long as nothing in it has changed."""

    @property
    def image(self) -> Image: ...

    @property
    def is_backup(self) -> bool: ...

    def topics(self) -> list[Topic]:
        """Returns the topics that come along, by name."""

    def log(self, topic: Topic, partition: int) -> SourceLog:
        """Raises CannotMove when it is not whole."""

    def close(self) -> None: ...


def visible_topics(image: Image) -> list[Topic]:
    """Returns the topics that clients see, by name, without those that a cluster has for itself."""
    return sorted((each for each in image.topics.values() if not each.internal), key=lambda topic: topic.name)
