"""The inputs of planning: views of nodes and partitions, and moves of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from chronik.errors import ChronikError

NO_LEADER: Final = -1
NAMES_LISTED_MAX: Final = 3
"""The maximum number of partitions that a message lists by name."""


class PlanRejectedError(ChronikError):
    """The planned change is impossible or unsafe. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class PlannedNode:
    """A node of the cluster as seen by the planner: its rack, status and voter role."""

    id: int
    rack: str | None = None
    """The rack of the node. Nodes without a rack count as being in the same rack."""
    is_online: bool = True
    """Whether the node's broker is online; a drained broker is online as well."""
    is_draining: bool = False
    is_member: bool = True
    is_voter: bool = False
    """Whether the node is a voter of the metadata log."""
    should_vote: bool = False
    """Whether the node is intended to be a voter, which the controller brings about."""

    @property
    def can_receive_replicas(self) -> bool:
        """Return whether the node may receive new replicas."""
        return self.is_online and not self.is_draining


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A partition of the cluster as seen by the planner: its replicas, ISR and leader."""

    topic: str
    index: int
    replicas: tuple[int, ...]
    """The current replicas or, during a reassignment, the target replicas. The first is the preferred leader."""
    in_sync: tuple[int, ...] = ()
    leader: int = NO_LEADER
    min_in_sync: int = 1
    is_system_partition: bool = False
    """Whether the partition belongs to a system topic, which has no records and whose online replicas are in sync."""
    leaving: tuple[int, ...] = ()
    """The replicas that an ongoing reassignment removes."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """A planned change of a partition's replica list, which may only change the order of replicas."""

    partition: PlannedPartition
    replicas: tuple[int, ...]

    @property
    def added_replicas(self) -> tuple[int, ...]:
        """Return the replicas that the move adds and to which records must be copied."""
        return tuple(replica for replica in self.replicas if replica not in self.partition.replicas)


def format_partitions(partitions: Iterable[PlannedPartition]) -> str:
    """Return a list of partitions for a message: `orders-0, orders-1 and 12 more`."""
    names = [str(partition) for partition in partitions]
    if len(names) > NAMES_LISTED_MAX + 1:
        names[NAMES_LISTED_MAX:] = [f"{len(names) - NAMES_LISTED_MAX} more"]
    return join_words(names)


def join_words(words: Iterable[object]) -> str:
    """Join words with commas and "and" for a message: `1, 2 and 3`."""
    texts = [str(word) for word in words]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
