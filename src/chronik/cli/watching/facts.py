"""What one look at a cluster has found. Data, and no more: whoever judges or draws it asks nobody.

What could not be seen is None, or missing from its list, and `unseen` says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")
WITH_MEMBERS: Final = ("Stable", *REBALANCING)


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    kafka: str = ""
    http: str | None = None
    rack: str | None = None
    status: str = "online"
    """online, fenced, drained, down (no answer at its port) or not known."""
    silence: str | None = None
    """Why it does not answer Kafka's protocol; None when it does, or was not asked."""
    is_unresponsive: bool = False
    """Whether its port accepts connections, and no answer comes."""
    role: str | None = None
    """leader, follower, observer or standalone."""
    is_voter: bool | None = None
    term: int | None = None
    applied_index: int | None = None
    log_end: int | None = None
    """The end of its metadata log, as the leader knows it."""
    state_hash: str | None = None
    version: str | None = None
    levels: tuple[int, int] | None = None
    """The lowest and the highest level that it supports."""
    uptime_s: float | None = None
    pid: int | None = None
    clock_ahead_ms: float | None = None
    """How far its clock is ahead of the one that looks."""
    clock_doubt_ms: float = 0.0
    """How long its answer was on the way: so far it may be off."""
    damaged: tuple[str, ...] = ()
    slow_syncs: int | None = None
    longest_sync_s: float | None = None
    requests: int | None = None
    """Counters since it started, here and below."""
    failures: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    connections: int | None = None
    log_bytes: int | None = None
    """What its data folder holds of partitions."""
    disk_bytes: int | None = None
    disk_free_bytes: int | None = None


class PartitionFacts(msgspec.Struct, frozen=True):
    topic: str
    index: int
    leader: int
    """-1: nobody."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_in_sync: int | None = None
    is_internal: bool = False
    end: int | None = None
    """The offset after its last record."""
    bytes: int | None = None
    """The size of its largest replica."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class GroupFacts(msgspec.Struct, frozen=True):
    name: str
    state: str
    lag: int | None = None
    """In records, of all partitions in which it has committed."""
    is_lag_whole: bool = True
    """Whether all of these partitions could be asked."""
    rebalancing_for_s: float = 0.0
    """For how long each look has found it rebalancing."""
    members: int | None = None


class TransactionFacts(msgspec.Struct, frozen=True):
    name: str
    """The transactional id, or the producer id of one that no coordinator knows."""
    state: str
    open_for_s: float
    timeout_s: float | None = None
    is_hanging: bool = False
    """No coordinator knows it: nobody will end it."""
    partitions: tuple[str, ...] = ()
    start_offset: int | None = None


class CertificateFacts(msgspec.Struct, frozen=True):
    where: str
    """The file, or the address that shows it."""
    subject: str
    not_after_s: float
    """Seconds since 1970."""


class Unseen(msgspec.Struct, frozen=True):
    what: str
    why: str


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    asked: str
    """The addresses that were asked first."""
    time_ms: int = 0
    monotonic_s: float = 0.0
    cluster_id: str | None = None
    controller: int | None = None
    term: int | None = None
    level: int | None = None
    note: str | None = None
    """What a broker says of itself that does not hear the others."""
    compared_nodes: int = 0
    compared_index: int | None = None
    """Where the states of nodes were compared; None when they were not."""
    same_state: bool | None = None
    nodes: tuple[NodeFacts, ...] = ()
    partitions: tuple[PartitionFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    transactions: tuple[TransactionFacts, ...] = ()
    moving: tuple[str, ...] = ()
    """Partitions that are on their way to other nodes."""
    certificates: tuple[CertificateFacts, ...] = ()
    unseen: tuple[Unseen, ...] = ()

    @property
    def verdict(self) -> str:
        """Whether nodes hold the same state, in words."""
        if self.same_state is None:
            return "stands alone" if len(self.nodes) == 1 else "not compared"
        return f"{self.compared_nodes} of {len(self.nodes)} agree" if self.same_state else "DIFFERENT STATES"


def to_json(facts: msgspec.Struct | Iterable[msgspec.Struct]) -> Any:
    return msgspec.to_builtins(facts)
