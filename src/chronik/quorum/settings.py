"""Settings and status of the Raft driver."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.quorum.peer_activity import PeerActivity
from chronik.raft.config import RaftConfig
from chronik.raft.membership import Membership
from chronik.raft.roles import Role

DIRECTORY_NAME: Final = "__raft"

DEFAULT_TIMEOUT_SECONDS: Final = 10.0
"""Default timeout of requests: long enough for several elections."""


class DriverSettings(msgspec.Struct, frozen=True):
    """The settings of a node's Raft driver."""

    node_id: int
    directory_id: bytes
    bootstrap: Membership
    """Initial members of a new cluster, for a node with an empty disk. Empty if the node must wait for admission."""
    raft: RaftConfig = msgspec.field(default_factory=RaftConfig)
    tick_seconds: float = 0.1
    snapshot_entries: int = 100_000
    snapshot_bytes: int = 64 * 1024 * 1024
    """Number of applied entries, or their total size in bytes, after which a snapshot is taken."""
    snapshot_seconds: float = 10.0
    """Time spent applying entries after which a snapshot is taken, to limit the replay time after a restart."""
    retained_log_bytes: int = 8 * 1024 * 1024
    """Size of the log kept before a snapshot in bytes, so that a slightly lagging peer does not need the snapshot."""
    directory: str = DIRECTORY_NAME


class DriverStatus(msgspec.Struct, frozen=True):
    """The status of a node's Raft driver, for status pages and metrics."""

    role: Role
    term: int
    leader: int
    first_index: int
    last_index: int
    durable_index: int
    commit_index: int
    applied_index: int
    snapshot_index: int
    membership: Membership
    membership_index: int
    match_indexes: dict[int, int]
    """Match index of each peer; empty unless this node is the leader."""
    peer_activity: dict[int, PeerActivity]
    """Activity of each peer as seen by the leader, on the same clock as `now`."""
    now: float
    connected: tuple[int, ...]
    """Peers with an open outgoing connection."""
    pending_requests: int
    """Number of pending proposals and reads."""
