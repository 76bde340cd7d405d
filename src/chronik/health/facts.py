"""The facts about a cluster that the health checks examine. Data only.

A fact that is unknown is None or missing, and its check then finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

NAMED_PARTITIONS_MAX: Final = 5
"""Maximum number of partitions of a set that are kept by name. The others are only counted."""


class TimedValue(NamedTuple):
    """A value that was measured at a time in seconds."""

    at_s: float
    value: float


Series = tuple[TimedValue, ...]
"""Values of one quantity, the oldest first."""


class ObservedGroup(msgspec.Struct, frozen=True):
    """A consumer group and its lag in records, summed over all partitions with committed offsets."""

    name: str
    lag: Series
    has_members: bool | None = None
    lag_budget: int | None = None
    """The lag in records above which the group may have a problem, or None for that of the cluster."""


class ObservedTransaction(msgspec.Struct, frozen=True):
    """An open transaction."""

    transactional_id: str
    open_since_s: float
    timeout_s: float | None = None
    partitions: tuple[str, ...] = ()


class PartitionSet(msgspec.Struct, frozen=True):
    """A number of partitions, some of their names, and the nodes whose replicas are out of sync."""

    count: int = 0
    names: tuple[str, ...] = ()
    missing_nodes: tuple[int, ...] = ()


class ObservedPartitions(msgspec.Struct, frozen=True):
    """The partitions of the cluster. Each is in at most one of the sets: the most severe one."""

    total: int = 0
    offline: PartitionSet = PartitionSet()
    under_min_isr: PartitionSet = PartitionSet()
    under_replicated: PartitionSet = PartitionSet()


class ObservedIsrShrinks(msgspec.Struct, frozen=True):
    """The number of times that a replica of a partition has left the ISR within `ISR_WINDOW_S`."""

    partition: str
    shrinks: int


class ObservedDisk(msgspec.Struct, frozen=True):
    """The disk of a node's data directory, and its free bytes."""

    node_id: int
    total_bytes: int
    free_bytes: Series


class ObservedClock(msgspec.Struct, frozen=True):
    """The time by which a node's clock is ahead of a reference, which is the same for all nodes."""

    node_id: int
    ahead_s: float
    uncertainty_s: float = 0.0


class ObservedStalls(msgspec.Struct, frozen=True):
    """The number of event-loop stalls of a node that were longer than `STALL_S`, within `STALL_WINDOW_S`."""

    node_id: int
    stalls: int


class ObservedCertificate(msgspec.Struct, frozen=True):
    """A certificate: where it is used or stored, its subject, and its expiry time in seconds since the epoch."""

    where: str
    subject: str
    not_after_s: float


class ObservedPipeline(msgspec.Struct, frozen=True):
    """One topic of a pipeline, as its driver reports it."""

    pipeline: str
    topic: str
    lag: Series = ()
    is_stopped: bool = False
    """Whether the driver has stopped after a final report, or the topic is paused."""
    is_failing: bool = False
    """Whether the last attempt to write to the table failed."""
    last_error: str | None = None
    reported_at_s: float | None = None


class ObservedNode(msgspec.Struct, frozen=True):
    """A node of the cluster as the other nodes see it."""

    id: int
    status: str = "online"
    """The status of its broker: online, fenced, offline, maintenance, or absent if it has never registered."""
    is_voter: bool = True
    is_drained: bool = False
    unreachable_why: str | None = None
    """Why the node does not respond, or None if it responds."""
    is_unresponsive: bool = False
    """Whether the node accepts connections, but does not respond to requests."""
    damaged: tuple[str, ...] = ()
    """The damaged partitions that the node reports."""

    @property
    def is_up(self) -> bool:
        """Whether the node takes part in the cluster."""
        return self.unreachable_why is None and self.status not in ("fenced", "offline", "absent")


class ObservedQuorum(msgspec.Struct, frozen=True):
    """The metadata log's quorum, as one node sees it."""

    has_controller: bool = True
    is_isolated: bool = False
    """Whether no majority of the voters responds to the node."""
    is_same_state: bool | None = None
    """Whether all nodes have the same metadata at the same index; None if that is unknown."""
    compared_index: int | None = None


class HealthFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts about a cluster at one time."""

    now_s: float
    """The time of the facts in seconds since the epoch."""
    has_history: bool = True
    """Whether the facts are collected repeatedly. Otherwise, a lag above the budget is assumed to be growing."""
    lag_budget: int = 10_000
    """The lag in records above which a group or a pipeline may have a problem."""
    quorum: ObservedQuorum = ObservedQuorum()
    nodes: tuple[ObservedNode, ...] = ()
    partitions: ObservedPartitions = ObservedPartitions()
    isr_shrinks: tuple[ObservedIsrShrinks, ...] = ()
    groups: tuple[ObservedGroup, ...] = ()
    transactions: tuple[ObservedTransaction, ...] = ()
    disks: tuple[ObservedDisk, ...] = ()
    clocks: tuple[ObservedClock, ...] = ()
    stalls: tuple[ObservedStalls, ...] = ()
    certificates: tuple[ObservedCertificate, ...] = ()
    pipelines: tuple[ObservedPipeline, ...] = ()


class PartitionTally:
    """Counts partitions one by one into `ObservedPartitions`."""

    def __init__(self) -> None:
        self.total = 0
        self._offline = _SetTally()
        self._under_min_isr = _SetTally()
        self._under_replicated = _SetTally()

    def add(
        self, topic: str, index: int, leader: int, replicas: Iterable[int], isr: Iterable[int], min_isr: int | None
    ) -> None:
        """Count a partition that is not fully replicated. Partitions without a problem only add to `total`."""
        in_sync = set(isr)
        missing = set(replicas) - in_sync
        if leader < 0:
            self._offline.add(topic, index, in_sync or missing)
        elif len(in_sync) < (min_isr or 0):
            self._under_min_isr.add(topic, index, missing)
        elif missing:
            self._under_replicated.add(topic, index, missing)

    def result(self) -> ObservedPartitions:
        """Return the partitions that were counted."""
        sets = (each.result() for each in (self._offline, self._under_min_isr, self._under_replicated))
        return ObservedPartitions(self.total, *sets)


class _SetTally:
    def __init__(self) -> None:
        self._count = 0
        self._names: list[str] = []
        self._internal_names: list[str] = []
        self._nodes: set[int] = set()

    def add(self, topic: str, index: int, nodes: set[int]) -> None:
        self._count += 1
        names = self._internal_names if topic.startswith("__") else self._names
        if len(names) < NAMED_PARTITIONS_MAX:
            names.append(f"{topic}-{index}")
        self._nodes |= nodes

    def result(self) -> PartitionSet:
        names = (self._names + self._internal_names)[:NAMED_PARTITIONS_MAX]  # name partitions of user topics first
        return PartitionSet(self._count, tuple(names), tuple(sorted(self._nodes)))
