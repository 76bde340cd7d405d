"""Which node coordinates a group: the leader of the partition of `__consumer_offsets` that the group falls into.

A node without that topic stands alone, and coordinates every group.
"""

from __future__ import annotations

from chronik.metadata.names import OFFSETS_TOPIC, coordinator_partition
from chronik.metadata.store import MetadataStore


class Coordinators:
    def __init__(self, store: MetadataStore, node_id: int) -> None:
        self._store = store
        self._node_id = node_id

    def node_of(self, group_id: str) -> int:
        """-1 when nobody coordinates it at the moment."""
        topic = self._store.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return self._node_id if len(self._store.image.nodes) == 0 else -1
        return topic.partitions[coordinator_partition(group_id, len(topic.partitions))].leader

    def owns(self, group_id: str) -> bool:
        return self.node_of(group_id) == self._node_id
