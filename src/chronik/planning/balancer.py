"""Balancing of replicas and preferred leaders over the nodes with as few moves as possible.

The algorithm searches chains of moves. If node 1 has too many replicas and node 4 too few, one replica moves from 1 to
4; if racks prevent that, one moves from 1 to 2 and another from 2 to 4. A shortest chain needs the fewest moves. The
layout is balanced when no chain is left between two nodes whose loads differ by at least two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Final

from chronik.planning.views import PlannedNode, PlannedPartition, ReplicaMove

MIN_IMBALANCE: Final = 2
"""The minimum difference in load between two nodes at which a move reduces the imbalance."""

NodeMove = tuple[int, int]
"""A move of one partition, as the ids of the source node and the target node."""


class ReplicaLayout:
    """A planned assignment of replicas to nodes, with counters for balancing. Partitions are identified by position."""

    def __init__(self, nodes: Iterable[PlannedNode], partitions: Sequence[PlannedPartition]) -> None:
        nodes = list(nodes)
        self.partitions = partitions
        self.replicas = [partition.replicas for partition in partitions]
        self.takers = sorted(node.id for node in nodes if node.can_receive_replicas)
        """The ids of the nodes that may receive replicas."""
        self._racks = {node.id: node.rack for node in nodes}
        self._rack_count = len({node.rack for node in nodes if node.can_receive_replicas})
        self.held: dict[int, set[int]] = defaultdict(set)
        """The partitions with a replica on each node, by node id."""
        self.preferring: dict[int, set[int]] = defaultdict(set)
        """The partitions with their preferred leader on each node, by node id."""
        self.of_topic: Counter[tuple[str, int]] = Counter()
        """The number of replicas per topic and node."""
        self.led_of_topic: Counter[tuple[str, int]] = Counter()
        """The number of preferred leaders per topic and node."""
        for position, replicas in enumerate(self.replicas):
            self._update_replica_counts(position, replicas, 1)

    def set_replicas(self, position: int, replicas: tuple[int, ...]) -> None:
        """Set the replicas of the partition at `position` and update the counters."""
        self._update_replica_counts(position, self.replicas[position], -1)
        self.replicas[position] = replicas
        self._update_replica_counts(position, replicas, 1)

    def _update_replica_counts(self, position: int, replicas: tuple[int, ...], sign: int) -> None:
        change = set.add if sign > 0 else set.discard
        topic = self.partitions[position].topic
        for replica in replicas:
            change(self.held[replica], position)
            self.of_topic[topic, replica] += sign
        change(self.preferring[replicas[0]], position)
        self.led_of_topic[topic, replicas[0]] += sign

    def moves(self) -> tuple[ReplicaMove, ...]:
        """Return the replica moves that lead from the current assignment to the planned one."""
        pairs = zip(self.partitions, self.replicas, strict=True)
        return tuple(
            ReplicaMove(partition, replicas) for partition, replicas in pairs if replicas != partition.replicas
        )

    def replace_replica(self, position: int, old: int, new: int) -> tuple[int, ...]:
        """Return the partition's replica list with node `new` in place of node `old`."""
        return tuple(new if replica == old else replica for replica in self.replicas[position])

    # --- racks ---

    def count_shared_racks(self, replicas: Sequence[int]) -> int:
        """Return the number of replicas that are in the same rack as an earlier replica."""
        return len(replicas) - len({self._racks.get(replica) for replica in replicas})

    def has_avoidable_rack_sharing(self, position: int) -> bool:
        """Return whether two replicas of the partition are in the same rack although there are unused racks."""
        replicas = self.replicas[position]
        return self.count_shared_racks(replicas) > max(0, len(replicas) - self._rack_count)

    def preserves_rack_diversity(self, position: int, old: int, new: int) -> bool:
        """Return whether the partition's replicas stay in as many racks after node `new` replaces node `old`."""
        if self._racks.get(old) == self._racks.get(new):
            return True
        return self.count_shared_racks(self.replace_replica(position, old, new)) <= self.count_shared_racks(
            self.replicas[position]
        )

    def find_best_recipient(self, position: int, old: int) -> int | None:
        """Return the best node to take over the replica of node `old`, or None if no node can.

        Prefers racks without other replicas, then nodes with the fewest replicas.
        """
        replicas, topic = self.replicas[position], self.partitions[position].topic
        is_preferred = replicas[0] == old

        def cost(node: int) -> tuple[int, ...]:
            crowding = self.count_shared_racks(self.replace_replica(position, old, node))
            led = len(self.preferring[node]) if is_preferred else 0
            return crowding, len(self.held[node]), led, self.of_topic[topic, node], node

        return min((node for node in self.takers if node not in replicas), key=cost, default=None)


class Balancer(ABC):
    """The base class of balancers, which move partitions from nodes with a high load to nodes with a low load."""

    def __init__(self, layout: ReplicaLayout) -> None:
        self._layout = layout

    @property
    @abstractmethod
    def _load(self) -> Mapping[int, set[int]]:
        """Return the load to balance, as the partitions that count for each node."""

    @abstractmethod
    def _find_movable_partition(self, source: int, target: int) -> int | None:
        """Return a partition that can move from `source` to `target`, or None."""

    @abstractmethod
    def _compute_replicas_after_move(self, partition_index: int, source: int, target: int) -> tuple[int, ...]:
        """Return the partition's replica list after a move from node `source` to node `target`."""

    def balance(self) -> None:
        """Move partitions until no chain of moves reduces the imbalance any more."""
        while self._move_partitions_off_loaded_nodes():
            pass

    def _move_partitions_off_loaded_nodes(self) -> bool:
        """Repeatedly move partitions away from the nodes with the highest load. Return whether any partition was moved.

        Nodes without a possible move are skipped until the next sweep, because other moves rarely change that.
        """
        has_changed = False
        left = set(self._layout.takers)
        while left:
            most = max(len(self._load[node]) for node in left)
            sources = sorted(node for node in left if len(self._load[node]) == most)
            chain = self._find_move_chain(sources, most)
            if chain is not None and self._execute_move_chain(chain):
                has_changed = True
            else:
                left -= set(sources)
        return has_changed

    def _find_move_chain(self, sources: list[int], most: int) -> list[NodeMove] | None:
        """Return the shortest chain of moves (last move first) to a node with a load lower by two or more, or None."""
        load = self._load
        by_load = sorted(self._layout.takers, key=lambda node: (len(load[node]), node))
        goals = {node for node in by_load if len(load[node]) + MIN_IMBALANCE <= most}
        predecessors = {source: source for source in sources}
        left = deque(sources if goals else [])
        while left:
            donor = left.popleft()
            for recipient in by_load:
                if recipient in predecessors or self._find_movable_partition(donor, recipient) is None:
                    continue
                predecessors[recipient] = donor
                if recipient in goals:
                    return _build_move_chain(predecessors, recipient)
                left.append(recipient)
        return None

    def _execute_move_chain(self, chain: list[NodeMove]) -> bool:
        """Execute all moves of a chain, or undo them if one of them is no longer possible.

        Return whether the chain was executed.
        """
        before: list[tuple[int, tuple[int, ...]]] = []
        for source, target in chain:
            partition_index = self._find_movable_partition(source, target)
            if partition_index is None:
                for changed, replicas in reversed(before):
                    self._layout.set_replicas(changed, replicas)
                return False
            before.append((partition_index, self._layout.replicas[partition_index]))
            self._layout.set_replicas(
                partition_index, self._compute_replicas_after_move(partition_index, source, target)
            )
        return True


class ReplicaBalancer(Balancer):
    """A balancer that moves replicas until all nodes host about the same number of replicas.

    It moves only replicas that `may_move(partition, node)` allows and preserves rack diversity.
    """

    def __init__(self, layout: ReplicaLayout, may_move: Callable[[int, int], bool]) -> None:
        super().__init__(layout)
        self._may_move = may_move
        self._candidates: dict[NodeMove, _MovablePartitions] = {}

    @property
    def _load(self) -> Mapping[int, set[int]]:
        return self._layout.held

    def _find_movable_partition(self, source: int, target: int) -> int | None:
        candidates = self._candidates.get((source, target))
        partition_index = candidates.best(self._layout) if candidates is not None else None
        if partition_index is None:  # other moves may have made more partitions movable
            held = sorted(self._layout.held[source], reverse=True)
            partition_indexes = [each for each in held if self._is_movable(each, source, target)]
            candidates = _MovablePartitions(self._layout, source, target, partition_indexes, self._is_movable)
            self._candidates[source, target] = candidates
            partition_index = candidates.best(self._layout)
        return partition_index

    def _is_movable(self, partition_index: int, source: int, target: int) -> bool:
        replicas = self._layout.replicas[partition_index]
        if source not in replicas or target in replicas or not self._may_move(partition_index, source):
            return False
        return self._layout.preserves_rack_diversity(partition_index, source, target)

    def _compute_replicas_after_move(self, partition_index: int, source: int, target: int) -> tuple[int, ...]:
        return self._layout.replace_replica(partition_index, source, target)


class _MovablePartitions:
    """The cached partitions whose replica can move from one node to another, in the order of preference."""

    def __init__(
        self,
        layout: ReplicaLayout,
        source: int,
        target: int,
        partition_indexes: Iterable[int],
        is_movable: Callable[[int, int, int], bool],
    ) -> None:
        self._source, self._target, self._is_movable = source, target, is_movable
        self._led: dict[str, list[int]] = defaultdict(list)
        self._followed: dict[str, list[int]] = defaultdict(list)
        for partition_index in partition_indexes:
            by_topic = self._led if layout.replicas[partition_index][0] == source else self._followed
            by_topic[layout.partitions[partition_index].topic].append(partition_index)
        topics = {*self._led, *self._followed}
        self._topics = [(-self._compute_topic_imbalance(layout, topic), topic) for topic in topics]
        heapify(self._topics)

    def best(self, layout: ReplicaLayout) -> int | None:
        """Return the partition whose move best balances topics and leaders, or None if no partition can move.

        Prefers a topic of which the source hosts many more partitions than the target, and a partition led by the
        source if it leads more partitions than the target.
        """
        leads_more = len(layout.preferring[self._source]) > len(layout.preferring[self._target])
        kinds = (self._led, self._followed) if leads_more else (self._followed, self._led)
        while self._topics:
            crowd, topic = self._topics[0]
            now = -self._compute_topic_imbalance(layout, topic)
            if now > crowd:
                heapreplace(self._topics, (now, topic))
                continue
            for partition_indexes in (by_topic[topic] for by_topic in kinds):
                while partition_indexes and not self._is_movable(partition_indexes[-1], self._source, self._target):
                    partition_indexes.pop()
                if partition_indexes:
                    return partition_indexes[-1]
            heappop(self._topics)
        return None

    def _compute_topic_imbalance(self, layout: ReplicaLayout, topic: str) -> int:
        return layout.of_topic[topic, self._source] - layout.of_topic[topic, self._target]


class LeaderBalancer(Balancer):
    """A balancer that changes preferred leaders by reordering replica lists, so that no data is copied."""

    def __init__(self, layout: ReplicaLayout, may_change: Callable[[int], bool]) -> None:
        super().__init__(layout)
        self._may_change = may_change

    @property
    def _load(self) -> Mapping[int, set[int]]:
        return self._layout.preferring

    def _find_movable_partition(self, source: int, target: int) -> int | None:
        """Return a partition whose preferred leader can change from `source` to `target`, or None.

        Prefers topics of which the source leads more partitions than the target.
        """
        layout = self._layout
        partition_indexes = filter(self._may_change, layout.preferring[source] & layout.held[target])

        def cost(partition_index: int) -> tuple[int, int]:
            topic = layout.partitions[partition_index].topic
            return layout.led_of_topic[topic, target] - layout.led_of_topic[topic, source], partition_index

        return min(partition_indexes, key=cost, default=None)

    def _compute_replicas_after_move(self, partition_index: int, source: int, target: int) -> tuple[int, ...]:
        return target, *(replica for replica in self._layout.replicas[partition_index] if replica != target)


def _build_move_chain(predecessors: Mapping[int, int], end: int) -> list[NodeMove]:
    links = []
    while predecessors[end] != end:
        links.append((predecessors[end], end))
        end = predecessors[end]
    return links
