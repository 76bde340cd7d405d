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
"""The default timeout of proposals and reads in seconds, long enough for several elections."""


class DriverSettings(msgspec.Struct, frozen=True):
    """The settings of a node's Raft driver."""

    node_id: int
    directory_id: bytes
    bootstrap: Membership
    """The initial members of a new cluster; empty if a node with an empty disk must wait for its admission."""
    raft: RaftConfig = msgspec.field(default_factory=RaftConfig)
    tick_seconds: float = 0.1
    snapshot_entries: int = 100_000
    snapshot_bytes: int = 64 * 1024 * 1024
    """The number and the total size in bytes of applied entries after which a snapshot is taken."""
    snapshot_seconds: float = 10.0
    """The time in seconds spent applying entries after which a snapshot is taken, to limit replay after a restart."""
    retained_log_bytes: int = 8 * 1024 * 1024
    """The size of the log kept before a snapshot in bytes, from which slightly lagging peers can catch up."""
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
    """The match index of each peer if this node is the Raft leader, else empty."""
    peer_activity: dict[int, PeerActivity]
    """The activity of each peer as seen by the Raft leader, on the same clock as `now`."""
    now: float
    connected: tuple[int, ...]
    """The node ids of the peers to which this node has an open connection."""
    pending_requests: int
    """The number of pending proposals and reads of this node."""
