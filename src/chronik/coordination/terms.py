"""Coordinator terms: the leader of a partition of a system topic coordinates the keys of that partition.

A standalone node coordinates every key permanently.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.delta import Delta
from chronik.metadata.records import Topic
from chronik.metadata.stores.local_store import LocalStore
from chronik.metadata.stores.store import MetadataStore


class CoordinatorTerm(NamedTuple):
    """A term of a coordinator. A node that is elected again starts a new term.

    Its memory may contain state that was never stored, and another node may have changed the stored state in between.
    """

    epoch: int
    """Leader epoch of the partition. Commands carry it, and those of an earlier term are rejected."""


STANDALONE_TERM: Final = CoordinatorTerm(NO_EPOCH)
"""The term of a standalone node."""


class CoordinatorTerms:
    """The assignment of keys to coordinators, as the image defines it."""

    def __init__(self, store: MetadataStore, node_id: int, topic: str) -> None:
        self._store = store
        self._node_id = node_id
        self._topic = topic
        # The image cannot tell: before its nodes are recorded, a cluster's image is empty, too.
        self.is_standalone: Final = isinstance(store, LocalStore)

    def coordinator_of(self, key: str) -> int:
        """Return the node that coordinates the key, or -1 if there is none."""
        if self.is_standalone:
            return self._node_id
        partition = self._store.image.find_coordinator_partition(self._topic, key)
        return -1 if partition is None else partition.leader

    def owned_term(self, key: str) -> CoordinatorTerm | None:
        """Return the term in which this node coordinates the key, or None."""
        if self.is_standalone:
            return STANDALONE_TERM
        partition = self._store.image.find_coordinator_partition(self._topic, key)
        if partition is None or partition.leader != self._node_id:
            return None
        return CoordinatorTerm(partition.leader_epoch)


def has_term_changes(delta: Delta, topic: str) -> bool:
    """Return whether a metadata change starts or ends a coordinator term; ISR changes do not."""
    return any(
        _terms(change.old) != _terms(change.new)
        for change in delta.topics
        if topic in (change.old.name if change.old else "", change.new.name if change.new else "")
    )


def _terms(topic: Topic | None) -> list[tuple[int, int]]:
    return [(partition.leader, partition.leader_epoch) for partition in topic.partitions] if topic is not None else []
