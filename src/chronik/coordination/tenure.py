"""Which node coordinates a group: the leader of the partition of `__consumer_offsets` that the group falls into.

A node that stands alone coordinates every group, for ever. It makes the topic when a group first commits, for tools
that look for it, and goes by nothing that the topic says.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from chronik.metadata.commands import NO_EPOCH
from chronik.metadata.local_store import LocalStore
from chronik.metadata.names import OFFSETS_TOPIC, coordinator_partition
from chronik.metadata.records import Partition
from chronik.metadata.store import MetadataStore


class Tenure(NamedTuple):
    """One term of a coordinator. The same node elected again begins another: what it remembers may never have been
    stored, and others may have changed the group in between."""

    epoch: int
    """Of the partition's leader: goes with every command, and apply refuses those of a term that is over."""


ALONE: Final = Tenure(NO_EPOCH)
"""Where there is nobody to be replaced by."""


class Coordinators:
    def __init__(self, store: MetadataStore, node_id: int) -> None:
        self._store = store
        self._node_id = node_id
        # Not to be told from the image: that of a cluster is as empty as any before its nodes are written down.
        self.stands_alone: Final = isinstance(store, LocalStore)

    def node_of(self, group_id: str) -> int:
        """-1 when nobody coordinates it at the moment."""
        if self.stands_alone:
            return self._node_id
        partition = self._partition_of(group_id)
        return -1 if partition is None else partition.leader

    def owns(self, group_id: str) -> Tenure | None:
        """The term in which this node coordinates the group; None when it does not."""
        if self.stands_alone:
            return ALONE
        partition = self._partition_of(group_id)
        if partition is None or partition.leader != self._node_id:
            return None
        return Tenure(partition.leader_epoch)

    def _partition_of(self, group_id: str) -> Partition | None:
        topic = self._store.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else topic.partitions[coordinator_partition(group_id, len(topic.partitions))]
