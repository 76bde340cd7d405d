"""The replica layout of a cluster while a plan is being made, with counters that are updated with every change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from chronik.planning.views import PlannedNode, PlannedPartition, ReplicaMove


class ReplicaLayout:
    """The replicas of all partitions. Partitions are identified by their position in the list."""

    def __init__(self, nodes: Iterable[PlannedNode], partitions: Sequence[PlannedPartition]) -> None:
        nodes = list(nodes)
        self.partitions = partitions
        self.replicas = [partition.replicas for partition in partitions]
        self.takers = sorted(node.id for node in nodes if node.can_receive_replicas)
        """Ids of the nodes that may receive replicas."""
        self._racks = {node.id: node.rack for node in nodes}
        self._rack_count = len({node.rack for node in nodes if node.can_receive_replicas})
        self.held: dict[int, set[int]] = defaultdict(set)
        """Partitions by hosting node."""
        self.preferring: dict[int, set[int]] = defaultdict(set)
        """Partitions by preferred leader."""
        self.of_topic: Counter[tuple[str, int]] = Counter()
        """Number of replicas by topic and node."""
        self.led_of_topic: Counter[tuple[str, int]] = Counter()
        """Number of partitions by topic and preferred leader."""
        for position, replicas in enumerate(self.replicas):
            self._count(position, replicas, 1)

    def set_replicas(self, position: int, replicas: tuple[int, ...]) -> None:
        """Set the replicas of a partition."""
        self._count(position, self.replicas[position], -1)
        self.replicas[position] = replicas
        self._count(position, replicas, 1)

    def _count(self, position: int, replicas: tuple[int, ...], sign: int) -> None:
        change = set.add if sign > 0 else set.discard
        topic = self.partitions[position].topic
        for replica in replicas:
            change(self.held[replica], position)
            self.of_topic[topic, replica] += sign
        change(self.preferring[replicas[0]], position)
        self.led_of_topic[topic, replicas[0]] += sign

    def moves(self) -> tuple[ReplicaMove, ...]:
        """Return the moves from the current assignment to this layout."""
        pairs = zip(self.partitions, self.replicas, strict=True)
        return tuple(
            ReplicaMove(partition, replicas) for partition, replicas in pairs if replicas != partition.replicas
        )

    def replace_replica(self, position: int, old: int, new: int) -> tuple[int, ...]:
        """Return the partition's replicas with `new` at the position of `old`."""
        return tuple(new if replica == old else replica for replica in self.replicas[position])

    # --- racks ---

    def count_shared_racks(self, replicas: Sequence[int]) -> int:
        """Return the number of replicas that share a rack with an earlier replica."""
        return len(replicas) - len({self._racks.get(replica) for replica in replicas})

    def has_avoidable_rack_sharing(self, position: int) -> bool:
        """Return whether replicas of the partition share a rack although there are enough racks."""
        replicas = self.replicas[position]
        return self.count_shared_racks(replicas) > max(0, len(replicas) - self._rack_count)

    def preserves_rack_diversity(self, position: int, old: int, new: int) -> bool:
        """Return whether replacing a replica keeps the rack diversity of the partition."""
        if self._racks.get(old) == self._racks.get(new):
            return True
        return self.count_shared_racks(self.replace_replica(position, old, new)) <= self.count_shared_racks(
            self.replicas[position]
        )

    def best_recipient(self, position: int, old: int) -> int | None:
        """Return the best node to host the replica of `old`, or None if no node can.

        Prefers racks without other replicas, then nodes with the fewest replicas.
        """
        replicas, topic = self.replicas[position], self.partitions[position].topic
        is_preferred = replicas[0] == old

        def cost(node: int) -> tuple[int, ...]:
            crowding = self.count_shared_racks(self.replace_replica(position, old, node))
            led = len(self.preferring[node]) if is_preferred else 0
            return crowding, len(self.held[node]), led, self.of_topic[topic, node], node

        return min((node for node in self.takers if node not in replicas), key=cost, default=None)
