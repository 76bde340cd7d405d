"""Which node coordinates a key, such as a group's id: the leader of the partition of a system topic that the key
belongs to. A standalone node coordinates every key forever, whatever the topic says.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.metadata.commands.base import NO_EPOCH
from chronik.metadata.delta import Delta
from chronik.metadata.records import Topic
from chronik.metadata.stores.local_store import LocalStore
from chronik.metadata.stores.store import MetadataStore


class Tenure(NamedTuple):
    """One term of a coordinator. The same node, elected again, begins another: what it remembers may never have been
    stored, and others may have changed what is stored in between."""

    epoch: int
    """The partition's leader epoch: it goes with every command, and commands of a term that is over are refused."""


ALONE: Final = Tenure(NO_EPOCH)
"""The term of a standalone node, which nobody can replace."""


class Coordinators:
    def __init__(self, store: MetadataStore, node_id: int, topic: str) -> None:
        self._store = store
        self._node_id = node_id
        self._topic = topic
        # The image does not tell: before its nodes are written down, that of a cluster is just as empty.
        self.stands_alone: Final = isinstance(store, LocalStore)

    def node_of(self, key: str) -> int:
        """Returns -1 when nobody coordinates it at the moment."""
        if self.stands_alone:
            return self._node_id
        partition = self._store.image.coordinating_partition(self._topic, key)
        return -1 if partition is None else partition.leader

    def owns(self, key: str) -> Tenure | None:
        """Returns the term in which this node coordinates the key; None when it does not."""
        if self.stands_alone:
            return ALONE
        partition = self._store.image.coordinating_partition(self._topic, key)
        if partition is None or partition.leader != self._node_id:
            return None
        return Tenure(partition.leader_epoch)


def changes_terms(delta: Delta, topic: str) -> bool:
    """Whether any term began or ended: in-sync replicas come and go more often."""
    return any(
        _terms(change.old) != _terms(change.new)
        for change in delta.topics
        if topic in (change.old.name if change.old else "", change.new.name if change.new else "")
    )


def _terms(topic: Topic | None) -> list[tuple[int, int]]:
    return [(partition.leader, partition.leader_epoch) for partition in topic.partitions] if topic is not None else []
