"""Models of the cluster, its nodes, configs of topics and brokers, and the live overview stream."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from chronik.console.rest.models.common import DryRun, Index


class Config(msgspec.Struct):
    """A config and its value."""

    name: str
    value: str | None
    """The current value; null if it is sensitive, such as a password."""
    source: str
    """The level at which the value is set: topic, broker, cluster, file or default."""
    default: str | None
    read_only: bool
    sensitive: bool
    documentation: str | None
    type: str = "unknown"
    """The type of the value: boolean, string, int, short, long, double, list, class, password or unknown."""
    unit: str | None = None
    """The unit of a number: ms, s, min, h or bytes; null if it has none or the name does not tell it."""
    choices: list[str] = []
    """The allowed values, or elements of a list; empty if any value of the type is allowed."""
    minimum: int | None = None
    maximum: int | None = None
    """The largest allowed number; null if only the type limits it."""
    unlimited: bool = False
    """Whether -1 stands for no limit."""


class Configs(msgspec.Struct):
    """The configs of a resource."""

    items: list[Config]


class ConfigChanges(DryRun, kw_only=True):
    """Changes to the configs of a resource."""

    set: dict[str, str] = {}
    delete: list[str] = []
    """Configs to reset to their defaults."""


class Node(msgspec.Struct):
    """A node of the cluster."""

    id: int
    host: str | None
    """The host that Kafka clients connect to; null if the node has never registered."""
    port: int | None
    rack: str | None
    status: str
    """The node's status: online, fenced, maintenance, offline, or absent if the node has never registered."""
    draining: bool
    role: str | None
    """The node's Raft role: leader, follower, candidate, observer or standalone; null if the node does not respond."""
    voter: bool
    reachable: bool
    version: str | None
    uptime_s: float | None
    term: int | None
    applied_index: int | None
    state_hash: str | None
    leads: int
    """Number of partitions that the node leads."""
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
    """A condition that requires an operator's attention."""

    severity: Literal["error", "warning", "info"]
    text: str
    link: str | None
    """The console page with details, as a path such as /topics/orders."""


class Problem(msgspec.Struct):
    """A problem of the cluster."""

    id: str
    """The stable id of the problem: its kind and its subject."""
    kind: str
    severity: Literal["critical", "warning", "info"]
    subject: str
    """What has the problem: a group, a node id, a transactional id, …; empty for the whole cluster."""
    since_ms: int
    """The time since which the problem exists, in milliseconds since 1970."""
    message: str
    effect: str
    action: str
    """What to do."""
    console: str
    """The console page with details, as a path such as /groups/billing."""
    docs: str
    """The section of the documentation about problems of this kind."""


class Health(msgspec.Struct):
    """The health of the cluster."""

    status: Literal["ok", "info", "warning", "critical"]
    """The severity of the worst problem."""
    node_id: int
    """The node that has found the problems: the controller or, if none is reachable, this node."""
    checked_ms: int
    """The time of the latest check, in milliseconds since 1970."""
    problems: list[Problem]
    """All problems, the most severe first."""


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
    """Whether all responding nodes have the same metadata; null if their metadata cannot be compared."""
    compared_index: int | None
    topics: int
    """Number of topics, without internal ones."""
    internal_topics: int
    """Number of internal topics, which the topic list includes only on request."""
    partitions: int
    """Number of partitions of all topics."""
    under_replicated: int
    offline: int
    groups: int
    open_transactions: int
    attention: list[Attention]
    """The messages of the problems in `health`, with links to their pages."""
    health: Health | None = None
    """The health of the cluster; null if this node does not know it."""


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
    """The result of the check whether a node can be stopped safely."""

    ok: bool
    reasons: list[str]
    """Reasons not to stop the node now, one sentence each."""


class Rates(msgspec.Struct):
    """Request, error and traffic rates of the responding node since the previous overview event."""

    requests_s: float
    errors_s: float
    in_bytes_s: float | None = None
    out_bytes_s: float | None = None
    in_messages_s: float | None = None


class Percentiles(msgspec.Struct):
    """Latency percentiles in milliseconds."""

    p50: float | None = None
    p99: float | None = None


class Latency(msgspec.Struct):
    """The latency of Produce and Fetch requests."""

    produce: Percentiles
    fetch: Percentiles


class GroupLag(msgspec.Struct):
    """The lag of a consumer group."""

    group: str
    lag: int | None


class LiveCluster(Summary, kw_only=True):
    """The state of the cluster in an event of the overview stream, which updates the console's overview page."""

    nodes: list[Node]


class Overview(msgspec.Struct):
    """An event of the overview stream, which updates the console's overview page."""

    time_ms: int
    cluster: LiveCluster | None
    """The state of the cluster; null if the principal lacks the Describe permission on the cluster."""
    rates: Rates | None
    latency_ms: Latency | None
    lag: list[GroupLag]
    """Up to ten groups with the largest lag, among those that the principal may describe."""
    connections: int | None
    memory_bytes: int | None
    cpu: float | None
    """CPU usage since the previous event; 1.0 is one core."""
