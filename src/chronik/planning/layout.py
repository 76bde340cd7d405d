"""Where all replicas are while a plan is made: counts that are kept as replicas change places."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from chronik.planning.views import Move, NodeView, PartitionView


class Layout:
    """Partitions are named by their place in the list."""

    def __init__(self, nodes: Iterable[NodeView], partitions: Sequence[PartitionView]) -> None:
        nodes = list(nodes)
        self.partitions = partitions
        self.replicas = [partition.replicas for partition in partitions]
        self.takers = sorted(node.id for node in nodes if node.takes_replicas)
        """Nodes that may get replicas."""
        self._racks = {node.id: node.rack for node in nodes}
        self._rack_count = len({node.rack for node in nodes if node.takes_replicas})
        self.held: dict[int, set[int]] = defaultdict(set)
        self.preferring: dict[int, set[int]] = defaultdict(set)
        """Partitions by their preferred leader."""
        self.of_topic: Counter[tuple[str, int]] = Counter()
        """Replicas by topic and node."""
        self.led_of_topic: Counter[tuple[str, int]] = Counter()
        """Partitions by topic and preferred leader."""
        for place, replicas in enumerate(self.replicas):
            self._count(place, replicas, 1)

    def change(self, place: int, replicas: tuple[int, ...]) -> None:
        self._count(place, self.replicas[place], -1)
        self.replicas[place] = replicas
        self._count(place, replicas, 1)

    def _count(self, place: int, replicas: tuple[int, ...], sign: int) -> None:
        change = set.add if sign > 0 else set.discard
        topic = self.partitions[place].topic
        for replica in replicas:
            change(self.held[replica], place)
            self.of_topic[topic, replica] += sign
        change(self.preferring[replicas[0]], place)
        self.led_of_topic[topic, replicas[0]] += sign

    def moves(self) -> tuple[Move, ...]:
        """Returns what differs from where the partitions are."""
        pairs = zip(self.partitions, self.replicas, strict=True)
        return tuple(Move(partition, replicas) for partition, replicas in pairs if replicas != partition.replicas)

    def exchanged(self, place: int, old: int, new: int) -> tuple[int, ...]:
        """Returns the replicas with `new` where `old` is, so that the order of the others stays."""
        return tuple(new if replica == old else replica for replica in self.replicas[place])

    # Racks

    def crowding(self, replicas: Sequence[int]) -> int:
        """Counts the replicas that share a rack with one before them."""
        return len(replicas) - len({self._racks.get(replica) for replica in replicas})

    def is_crowded(self, place: int) -> bool:
        """Whether replicas share a rack although there are enough racks."""
        replicas = self.replicas[place]
        return self.crowding(replicas) > max(0, len(replicas) - self._rack_count)

    def keeps_racks(self, place: int, old: int, new: int) -> bool:
        if self._racks.get(old) == self._racks.get(new):
            return True
        return self.crowding(self.exchanged(place, old, new)) <= self.crowding(self.replicas[place])

    def best_taker(self, place: int, old: int) -> int | None:
        """Returns who should hold the partition instead of `old`: away from the racks of the others, then where there
        are the fewest replicas."""
        replicas, topic = self.replicas[place], self.partitions[place].topic
        is_preferred = replicas[0] == old

        def cost(node: int) -> tuple[int, ...]:
            crowding = self.crowding(self.exchanged(place, old, node))
            led = len(self.preferring[node]) if is_preferred else 0
            return crowding, len(self.held[node]), led, self.of_topic[topic, node], node

        return min((node for node in self.takers if node not in replicas), key=cost, default=None)
