"""The cluster and its nodes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.shapes.common import DryRun, Index
from chronik.console.rest.shapes.configs import Config


class Node(msgspec.Struct):
    id: int
    host: str | None
    """Where Kafka's clients find it; null while it was never there."""
    port: int | None
    rack: str | None
    status: str
    """online, fenced, maintenance, offline, or absent while it was never there."""
    draining: bool
    role: str | None
    """leader, follower, candidate, observer or standalone; null when it does not answer."""
    voter: bool
    reachable: bool
    version: str | None
    uptime_s: float | None
    term: int | None
    applied_index: int | None
    state_hash: str | None
    leads: int
    """Partitions that it leads."""
    replicas: int
    bytes: int | None
    is_me: bool
    is_controller: bool


class LogDirectory(msgspec.Struct):
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    partitions: int
    bytes: int


class NodeDetails(Node):
    configs: list[Config] = []
    """Those that are not as they come."""
    log_dirs: list[LogDirectory] = []


class Attention(msgspec.Struct):
    severity: Literal["error", "warning", "info"]
    text: str
    link: str | None
    """A path of the console, such as /topics/orders."""


class Summary(msgspec.Struct):
    cluster_id: str | None
    level: int
    controller_id: int | None
    leader_id: int | None
    """Who leads the metadata log: the controller, where there is one."""
    term: int | None
    verdict: str
    """Such as "3 of 3 agree"."""
    agrees: bool | None
    """Whether the nodes that answer hold the same metadata; null when they cannot be compared."""
    compared_index: int | None
    topics: int
    """Those that people made: as many as the list of topics shows."""
    internal_topics: int
    """Those that the cluster keeps for itself, which the list shows when asked to."""
    partitions: int
    """Of all topics."""
    under_replicated: int
    offline: int
    groups: int
    open_transactions: int
    attention: list[Attention]


class ClusterView(Summary, kw_only=True):
    nodes: list[Node]


class NewNode(DryRun, kw_only=True):
    id: Index
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    """Where its peers find it: host and port of its `raft` address."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class Stopping(msgspec.Struct):
    ok: bool
    reasons: list[str]
    """Why it should not be stopped now, a sentence each."""
