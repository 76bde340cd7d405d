"""Counters of ISR changes and leader elections of this node's partitions.

Only the leader's node counts a change, so the counters of all nodes can be summed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from chronik.metadata.delta import Delta
from chronik.metadata.records import Partition

SHRUNK_PARTITIONS_MAX: Final = 1000
"""Maximum number of partitions whose ISR shrinks are counted separately."""


class PartitionChangeCounters:
    """Counters of ISR changes and leader elections of the partitions that this node leads."""

    def __init__(self, node_id: int, is_counting: Callable[[], bool]) -> None:
        """Create the counters; they count only while `is_counting` returns True, which is not during replay."""
        self._node_id = node_id
        self._is_counting = is_counting
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.elections = 0
        """Number of leader elections that this node has won, excluding the first election of each partition."""
        self.unclean_elections = 0
        """Number of unclean elections, in which this node became the leader without being in the ISR.

        Records may have been lost.
        """
        self._shrinks_by_partition: dict[str, int] = {}

    def take_isr_shrinks(self) -> dict[str, int]:
        """Return the number of ISR shrinks by partition since the previous call."""
        taken, self._shrinks_by_partition = self._shrinks_by_partition, {}
        return taken

    def apply_delta(self, delta: Delta) -> None:
        """Count the ISR changes and leader elections in a metadata delta."""
        if not delta.topics or not self._is_counting():
            return
        for change in delta.topics:
            if change.old is not None and change.new is not None:
                pairs = zip(change.old.partitions, change.new.partitions, strict=False)
                for index, (old, new) in enumerate(pairs):
                    if old is not new and new.leader == self._node_id:
                        self._count_partition_changes(change.new.name, index, old, new)

    def _count_partition_changes(self, topic: str, index: int, old: Partition, new: Partition) -> None:
        if old.leader_epoch != new.leader_epoch:
            self.elections += 1
            self.unclean_elections += self._node_id not in old.isr
        if old.isr is new.isr or old.isr == new.isr:
            return
        before, after = set(old.isr), set(new.isr)
        if not before <= after:
            self.isr_shrinks += 1
            partition, shrinks = f"{topic}-{index}", self._shrinks_by_partition
            if partition in shrinks or len(shrinks) < SHRUNK_PARTITIONS_MAX:
                shrinks[partition] = shrinks.get(partition, 0) + 1
        self.isr_expands += not after <= before
