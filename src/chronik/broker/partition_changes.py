"""Counts how partitions of this node change: followers that leave or join the ISR, and leaders that take over.

Each change is counted by one node of the cluster, the leader's, so that the counts of all nodes can be added up.
"""

from __future__ import annotations

from collections.abc import Callable

from chronik.metadata.delta import Delta
from chronik.metadata.records import Partition


class PartitionChanges:
    def __init__(self, node_id: int, is_counting: Callable[[], bool]) -> None:
        """`is_counting` says whether what comes is new: a node that starts sees once more what it had applied."""
        self._node_id = node_id
        self._is_counting = is_counting
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        """Partitions that this node leads now, or leads anew; the first leader of a new one is not elected."""
        self.unclean_elections = 0
        """Of those, the ones without which nobody in sync was left: records may be lost."""

    def follow(self, delta: Delta) -> None:
        if not delta.topics or not self._is_counting():
            return
        for change in delta.topics:
            if change.old is not None and change.new is not None:
                for old, new in zip(change.old.partitions, change.new.partitions, strict=False):
                    if old is not new and new.leader == self._node_id:
                        self._count(old, new)

    def _count(self, old: Partition, new: Partition) -> None:
        if old.leader_epoch != new.leader_epoch:
            self.elections += 1
            self.unclean_elections += self._node_id not in old.isr
        if old.isr is new.isr or old.isr == new.isr:
            return
        before, after = set(old.isr), set(new.isr)
        self.isr_shrinks += not before <= after
        self.isr_expands += not after <= before
