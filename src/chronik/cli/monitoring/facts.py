"""Facts about a cluster at one moment. Data only; checks and displays need no other source.

Facts that could not be collected are None or missing, and `unseen` gives the reasons.
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
    """The node's status: online, fenced, drained, down (it does not respond) or not known."""
    silence: str | None = None
    """Reason why the node does not respond to Kafka requests; None if it responds or was not asked."""
    is_unresponsive: bool = False
    """Whether the node accepts connections but does not respond to requests."""
    role: str | None = None
    """The node's Raft role: leader, follower, observer or standalone."""
    is_voter: bool | None = None
    term: int | None = None
    applied_index: int | None = None
    log_end: int | None = None
    """End index of the node's metadata log, as reported by the leader."""
    state_hash: str | None = None
    version: str | None = None
    levels: tuple[int, int] | None = None
    """Lowest and highest feature level that the node supports.

    The feature level is the version of the metadata commands.
    """
    uptime_s: float | None = None
    pid: int | None = None
    clock_ahead_ms: float | None = None
    """Time in milliseconds by which the node's clock is ahead of the local clock."""
    clock_doubt_ms: float = 0.0
    """Uncertainty in milliseconds of the clock comparison: the round-trip time of the request."""
    damaged: tuple[str, ...] = ()
    slow_syncs: int | None = None
    longest_sync_s: float | None = None
    requests: int | None = None
    """Number of Kafka requests since the node started."""
    failures: int | None = None
    bytes_in: int | None = None
    bytes_out: int | None = None
    connections: int | None = None
    log_bytes: int | None = None
    """Total size of the partitions in the node's data directory."""
    disk_bytes: int | None = None
    disk_free_bytes: int | None = None


class PartitionFacts(msgspec.Struct, frozen=True):
    topic: str
    index: int
    leader: int
    """Node id of the leader, or -1 without a leader."""
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_in_sync: int | None = None
    is_internal: bool = False
    end: int | None = None
    """End offset: the offset after the last record."""
    bytes: int | None = None
    """Size of the partition's largest replica in bytes."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"


class GroupFacts(msgspec.Struct, frozen=True):
    name: str
    state: str
    lag: int | None = None
    """Total lag in records over all partitions with committed offsets."""
    is_lag_whole: bool = True
    """Whether the group's lag is complete, because all end offsets are known."""
    rebalancing_for_s: float = 0.0
    """Seconds for which every collection of facts has found the group rebalancing."""
    members: int | None = None


class TransactionFacts(msgspec.Struct, frozen=True):
    name: str
    """Transactional id, or the producer id if no coordinator knows the transaction."""
    state: str
    open_for_s: float
    timeout_s: float | None = None
    is_hanging: bool = False
    """Whether the transaction is hanging: no coordinator knows it, so it never completes."""
    partitions: tuple[str, ...] = ()
    start_offset: int | None = None


class CertificateFacts(msgspec.Struct, frozen=True):
    where: str
    """Path of the file, or address of the broker that presents the certificate."""
    subject: str
    not_after_s: float
    """Expiry time in seconds since the epoch."""


class UncollectedFact(msgspec.Struct, frozen=True):
    what: str
    why: str


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    asked: str
    """Bootstrap addresses of the brokers from which the facts were requested."""
    time_ms: int = 0
    monotonic_s: float = 0.0
    cluster_id: str | None = None
    controller: int | None = None
    term: int | None = None
    level: int | None = None
    note: str | None = None
    """The message in which a broker reports that it is isolated from its cluster, or None."""
    compared_nodes: int = 0
    compared_index: int | None = None
    """Metadata log index at which the nodes' state hashes were compared, or None without a comparison."""
    same_state: bool | None = None
    nodes: tuple[NodeFacts, ...] = ()
    partitions: tuple[PartitionFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    transactions: tuple[TransactionFacts, ...] = ()
    moving: tuple[str, ...] = ()
    """Partitions whose replicas are being reassigned."""
    certificates: tuple[CertificateFacts, ...] = ()
    unseen: tuple[UncollectedFact, ...] = ()
    health: dict[str, Any] | None = None
    """The problems that the cluster reports, as at `GET /health`; None if it runs an earlier version."""

    @property
    def verdict(self) -> str:
        """A text on whether all nodes have the same metadata, such as "3 of 3 agree"."""
        if self.same_state is None:
            return "standalone" if len(self.nodes) == 1 else "not compared"
        return f"{self.compared_nodes} of {len(self.nodes)} agree" if self.same_state else "DIFFERENT STATES"


def facts_to_json(facts: msgspec.Struct | Iterable[msgspec.Struct]) -> Any:
    return msgspec.to_builtins(facts)
