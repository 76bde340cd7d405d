"""Models of the cluster and its nodes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.models.common import DryRun, Index
from chronik.console.rest.models.configs import Config


class Node(msgspec.Struct):
    """A node of the cluster."""

    id: int
    host: str | None
    """The host that Kafka clients connect to; null if the node has never registered."""
    port: int | None
    rack: str | None
    status: str
    """online, fenced, maintenance, offline, or absent if the node has never registered."""
    draining: bool
    role: str | None
    """leader, follower, candidate, observer or standalone; null if the node does not respond."""
    voter: bool
    reachable: bool
    version: str | None
    uptime_s: float | None
    term: int | None
    applied_index: int | None
    state_hash: str | None
    leads: int
    """Partitions that the node leads."""
    replicas: int
    bytes: int | None
    is_me: bool
    is_controller: bool


class LogDirectory(msgspec.Struct):
    """A log directory of a broker."""

    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    partitions: int
    bytes: int


class NodeDetails(Node):
    """A node with its configs and log directories."""

    configs: list[Config] = []
    """Configs that differ from their defaults."""
    log_dirs: list[LogDirectory] = []


class Attention(msgspec.Struct):
    """A condition that an operator should look at."""

    severity: Literal["error", "warning", "info"]
    text: str
    link: str | None
    """A path of the console, such as /topics/orders."""


class Summary(msgspec.Struct):
    """A summary of the cluster's state."""

    cluster_id: str | None
    level: int
    controller_id: int | None
    leader_id: int | None
    """The leader of the metadata log, which is also the controller."""
    term: int | None
    verdict: str
    """The result of comparing the nodes' metadata, such as "3 of 3 agree"."""
    agrees: bool | None
    """Whether all nodes that respond have the same metadata; null if they cannot be compared."""
    compared_index: int | None
    topics: int
    """Topics that are not internal."""
    internal_topics: int
    """Internal topics, which the list of topics includes on request."""
    partitions: int
    """Partitions of all topics."""
    under_replicated: int
    offline: int
    groups: int
    open_transactions: int
    attention: list[Attention]


class ClusterView(Summary, kw_only=True):
    """The state of the cluster and its nodes."""

    nodes: list[Node]


class NewNode(DryRun, kw_only=True):
    """A node to be added to the cluster."""

    id: Index
    host: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    """Host of the node's `raft` address, which its peers connect to."""
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class Stopping(msgspec.Struct):
    """Whether a node can be stopped safely."""

    ok: bool
    reasons: list[str]
    """Reasons not to stop the node now, one sentence each."""
