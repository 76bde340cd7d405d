"""What a node's Raft is started with, and how it stands."""

from __future__ import annotations

from typing import Final

import msgspec

from chronik.quorum.peer_times import PeerTime
from chronik.raft.config import RaftConfig
from chronik.raft.membership import Membership
from chronik.raft.roles import Role

FOLDER: Final = "__raft"

TIMEOUT_SECONDS: Final = 10.0
"""The timeout of a request that gives none: as long as several elections."""


class DriverSettings(msgspec.Struct, frozen=True):
    node_id: int
    directory_id: bytes
    bootstrap: Membership
    """The members with which a node that has nothing on its disk founds a cluster; empty when it waits to be added."""
    raft: RaftConfig = msgspec.field(default_factory=RaftConfig)
    tick_seconds: float = 0.1
    snapshot_entries: int = 100_000
    snapshot_bytes: int = 64 * 1024 * 1024
    """A snapshot is taken after this many entries, or this many bytes of them."""
    snapshot_seconds: float = 10.0
    """Or after this much time was spent on applying them: few commands may take long, and a node that starts would
    need as long for them again."""
    bytes_kept: int = 8 * 1024 * 1024
    """How much of the log before a snapshot stays: a peer that lags behind by less is spared the snapshot."""
    folder: str = FOLDER


class DriverStatus(msgspec.Struct, frozen=True):
    """What status pages and metrics show."""

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
    matches: dict[int, int]
    """How far each other node holds the log, as the leader knows it."""
    peer_times: dict[int, PeerTime]
    """When the leader last heard from each other node, by a clock that says `now`."""
    now: float
    connected: tuple[int, ...]
    """Peers to whom something can be sent."""
    waiting: int
    """Proposals and reads under way here."""
