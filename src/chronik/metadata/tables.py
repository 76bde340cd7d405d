"""Tables of the image that have indexes: replicas, transactional ids, staged offsets and users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from chronik.errors import check_invariant
from chronik.metadata.commands.topics import NO_LEADER
from chronik.metadata.records import Partition, ScramCredential, StagedOffset, Transaction

StagedByPartition = dict[tuple[str, int], StagedOffset]
"""Offsets staged in open transactions, by topic and partition."""

TopicCounts = dict[bytes, int]
"""The number of a topic's partitions with some property (such as having no leader), by topic id."""


class TransactionTable:
    """The records of transactional ids, with indexes by producer id and by state."""

    def __init__(self) -> None:
        self.by_id: dict[str, Transaction] = {}
        self._by_producer: dict[int, str] = {}
        self._unfinished: dict[str, None] = {}
        self.partition_count = 0
        """The number of partitions in all transactions together."""

    def get_transaction_by_producer_id(self, producer_id: int) -> Transaction | None:
        """Return the transaction record whose current producer id is `producer_id`, or None."""
        transactional_id = self._by_producer.get(producer_id)
        return None if transactional_id is None else self.by_id[transactional_id]

    def find_transactions_of_topic(self, topic_id: bytes) -> list[Transaction]:
        """Return the unfinished transactions that contain partitions of the topic, by scanning all of them."""
        return [
            each
            for each in self.iter_unfinished_transactions()
            if any(partition.topic_id == topic_id for partition in each.partitions)
        ]

    def iter_unfinished_transactions(self) -> Iterator[Transaction]:
        """Return an iterator over the transactions that are open or whose transaction markers are being written."""
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
    """Offsets staged in open transactions, by group and producer id."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[int, StagedByPartition]] = {}
        self.count = 0

    def group(self, group_id: str) -> Mapping[int, Mapping[tuple[str, int], StagedOffset]]:
        return self._groups.get(group_id, {})

    def find_groups_with_topic(self, topic: str) -> list[str]:
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
        """Return copies of all staged offsets, as (group id, producer id, offsets by partition) tuples."""
        return [
            (group_id, producer_id, dict(offsets))
            for group_id, producers in self._groups.items()
            for producer_id, offsets in producers.items()
        ]


class CredentialShape(NamedTuple):
    """The parameters of a SCRAM credential that the server reveals to unauthenticated clients, except the salt."""

    iterations: int
    salt_bytes: int
    is_lower_alphanumeric: bool
    """Whether the salt consists of lower-case letters and digits, like the salts that Kafka's tools generate."""

    @classmethod
    def from_credential(cls, credential: ScramCredential) -> CredentialShape:
        salt = credential.salt
        return cls(credential.iterations, len(salt), salt.isalnum() and salt.islower())


class UserTable:
    """The SCRAM credentials of all users."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[int, ScramCredential]] = {}
        self._shapes: dict[int, Counter[CredentialShape]] = {}

    def credentials(self, name: str) -> Mapping[int, ScramCredential]:
        """Return the credentials of a user by mechanism; empty for an unknown user."""
        return self.by_name.get(name, {})

    def put(self, credential: ScramCredential) -> ScramCredential | None:
        """Store a credential and return the one that it replaces, if any."""
        old = self.remove(credential.name, credential.mechanism)
        self.by_name.setdefault(credential.name, {})[credential.mechanism] = credential
        self._shapes.setdefault(credential.mechanism, Counter())[CredentialShape.from_credential(credential)] += 1
        return old

    def remove(self, name: str, mechanism: int) -> ScramCredential | None:
        """Remove a credential and return it, or None if it does not exist."""
        old = self.by_name.get(name, {}).pop(mechanism, None)
        if old is not None:
            shapes = self._shapes[mechanism]
            shapes[CredentialShape.from_credential(old)] -= 1
            if not shapes[CredentialShape.from_credential(old)]:
                del shapes[CredentialShape.from_credential(old)]
            if not self.by_name[name]:
                del self.by_name[name]
        return old

    def iter_credentials(self) -> Iterator[ScramCredential]:
        """Return an iterator over all credentials."""
        for credentials in self.by_name.values():
            yield from credentials.values()

    def get_credential_shape_at(self, mechanism: int, position: float) -> CredentialShape | None:
        """Return the shape of the credential at a relative position from 0 to 1 in the order of all shapes.

        The mechanism's credentials are ordered by shape, so a uniformly distributed position returns each shape as
        often as it is in use. Returns None if the mechanism has no credentials.
        """
        shapes = self._shapes.get(mechanism)
        if not shapes:
            return None
        left = int(position * shapes.total())
        for shape in sorted(shapes):
            left -= shapes[shape]
            if left < 0:
                return shape
        return max(shapes)

    def find_most_common_mechanism(self) -> int | None:
        """Return the SCRAM mechanism that most users have a credential for, or None without users."""
        counts = {mechanism: shapes.total() for mechanism, shapes in self._shapes.items() if shapes}
        return max(counts, key=lambda mechanism: (counts[mechanism], mechanism)) if counts else None


class ReplicaIndex:
    """An index that finds the topics with replicas on a broker and the topics with offline partitions.

    The index is updated with every partition change, so that work on one broker need not scan all partitions. It counts
    per topic, because an index of partitions would take as much memory as the partitions themselves.
    """

    def __init__(self) -> None:
        self._hosted: dict[int, TopicCounts] = {}
        self._leaderless: TopicCounts = {}

    def topics_on_broker(self, broker_id: int) -> list[bytes]:
        """Return the topics that have a replica on the broker, in sync or not."""
        return list(self._hosted.get(broker_id, ()))

    def replica_count(self, broker_id: int) -> int:
        return sum(self._hosted.get(broker_id, {}).values())

    def leaderless_topics(self) -> list[bytes]:
        """Return the topics that have a partition without a leader."""
        return list(self._leaderless)

    def add(self, topic_id: bytes, partitions: Sequence[Partition]) -> None:
        self._update_partition_counts(topic_id, partitions, 1)

    def remove(self, topic_id: bytes, partitions: Sequence[Partition]) -> None:
        self._update_partition_counts(topic_id, partitions, -1)

    def update(self, topic_id: bytes, old: Partition, new: Partition) -> None:
        """Update the index after a partition's replicas or leader changed."""
        # Most changes keep the replicas, and with them the same tuple.
        if old.replicas is not new.replicas and old.replicas != new.replicas:
            self._update_replica_counts(topic_id, (old,), -1)
            self._update_replica_counts(topic_id, (new,), 1)
        is_leaderless = new.leader == NO_LEADER
        if is_leaderless != (old.leader == NO_LEADER):
            _adjust_topic_count(self._leaderless, topic_id, 1 if is_leaderless else -1)

    def _update_partition_counts(self, topic_id: bytes, partitions: Sequence[Partition], sign: int) -> None:
        self._update_replica_counts(topic_id, partitions, sign)
        leaderless = sum(partition.leader == NO_LEADER for partition in partitions)
        if leaderless:
            _adjust_topic_count(self._leaderless, topic_id, sign * leaderless)

    def _update_replica_counts(self, topic_id: bytes, partitions: Sequence[Partition], sign: int) -> None:
        for broker_id, count in Counter(chain.from_iterable(each.replicas for each in partitions)).items():
            _adjust_topic_count(self._hosted.setdefault(broker_id, {}), topic_id, sign * count)


def _adjust_topic_count(counts: TopicCounts, topic_id: bytes, by: int) -> None:
    count = counts.get(topic_id, 0) + by
    check_invariant(count >= 0, "a partition was removed that was never counted")
    if count:
        counts[topic_id] = count
    else:
        del counts[topic_id]
