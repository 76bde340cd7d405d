"""Tables of the image: transactional ids, and offsets that wait for the end of their transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from chronik.metadata.records import StagedOffset, Transaction

StagedByPartition = dict[tuple[str, int], StagedOffset]
"""Staged offsets by topic and partition."""


class TransactionTable:
    """The records of transactional ids, with indexes by producer id and by state."""

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        self._by_producer: dict[int, str] = {}
        self._unfinished: dict[str, None] = {}
        self.partition_count = 0
        """The number of partitions in all transactions together."""

    def by_producer(self, producer_id: int) -> Transaction | None:
        """Return the record that currently has the producer id, or None."""
        transactional_id = self._by_producer.get(producer_id)
        return None if transactional_id is None else self.by_id[transactional_id]

    def with_topic(self, topic_id: bytes) -> list[Transaction]:
        """Return the transactions that contain partitions of the topic, by scanning all unfinished ones."""
        return [
            each for each in self.unfinished() if any(partition.topic_id == topic_id for partition in each.partitions)
        ]

    def unfinished(self) -> Iterator[Transaction]:
        """Return an iterator over transactions that are open or whose markers are being written."""
        return (self.by_id[each] for each in self._unfinished)

    def put(self, transaction: Transaction) -> None:
        key = transaction.transactional_id
        self.remove(key)
        self.by_id[key] = transaction
        self._by_producer[transaction.producer_id] = key
        self.partition_count += len(transaction.partitions)
        if not transaction.state.is_idle:
            self._unfinished[key] = None

    def remove(self, transactional_id: str) -> None:
        old = self.by_id.pop(transactional_id, None)
        if old is not None:
            del self._by_producer[old.producer_id]
            self._unfinished.pop(transactional_id, None)
            self.partition_count -= len(old.partitions)


class StagedOffsetTable:
    """Offsets that wait for the end of their transaction, by group and producer id."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, StagedByPartition]] = {}
        self.count = 0

    def group(self, group_id: str) -> Mapping[int, Mapping[tuple[str, int], StagedOffset]]:
        return self._groups.get(group_id, {})

    def groups_with_topic(self, topic: str) -> list[str]:
        return [
            group_id
            for group_id, producers in self._groups.items()
            if any(name == topic for staged in producers.values() for name, _ in staged)
        ]

    def get(self, group_id: str, producer_id: int, topic: str, partition: int) -> StagedOffset | None:
        return self._groups.get(group_id, {}).get(producer_id, {}).get((topic, partition))

    def put(self, group_id: str, producer_id: int, topic: str, partition: int, staged: StagedOffset) -> None:
        offsets = self._groups.setdefault(group_id, {}).setdefault(producer_id, {})
        self.count += (topic, partition) not in offsets
        offsets[topic, partition] = staged

    def remove(self, group_id: str, producer_id: int, topic: str, partition: int) -> None:
        producers = self._groups[group_id]
        offsets = producers[producer_id]
        del offsets[topic, partition]
        self.count -= 1
        if not offsets:
            del producers[producer_id]
        if not producers:
            del self._groups[group_id]

    def copy(self) -> list[tuple[str, int, StagedByPartition]]:
        """Return all staged offsets as of now."""
        return [
            (group_id, producer_id, dict(offsets))
            for group_id, producers in self._groups.items()
            for producer_id, offsets in producers.items()
        ]
