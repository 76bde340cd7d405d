"""Raft timeouts (in ticks) and size limits (in bytes). Every buffer of the core has a limit."""

from __future__ import annotations

import msgspec

from chronik.errors import ConfigError


class RaftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and limits of a Raft node.

    With ticks of 100 ms, the leader sends heartbeats every 200 ms, and elections start after 1.0 to 1.5 s of silence.
    """

    election_ticks: int = 10
    """Minimum election timeout and duration of the leader lease, in ticks.

    Use a second or more, so that a stalled event loop does not cause an election."""
    election_spread_ticks: int = 5
    """Number of ticks over which election timeouts are randomized, so that two nodes rarely campaign together."""
    heartbeat_ticks: int = 2

    entry_bytes_max: int = 16 * 1024 * 1024
    """Maximum size of an entry: the size of the largest metadata command."""
    append_bytes_max: int = 1024 * 1024
    """Maximum size of the entries in an Append message, unless a single entry is larger.

    Small enough not to delay the heartbeats that are queued after it."""
    inflight_messages_max: int = 64
    inflight_bytes_max: int = 4 * 1024 * 1024
    """Maximum size of unacknowledged messages to a peer, which bounds the memory that a silent peer can use."""
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    """Maximum size of uncommitted proposals. Beyond it, the leader rejects proposals.

    Without a majority, the log would otherwise grow for as long as clients retry."""
    apply_bytes_max: int = 1024 * 1024
    """Maximum size of a batch of entries to apply, unless a single entry is larger."""
    snapshot_chunk_bytes: int = 1024 * 1024
    snapshot_retry_ticks: int = 10
    """Ticks after which an unacknowledged snapshot chunk is sent again."""
    promotion_lag_max_entries: int = 1000
    """Maximum lag of a learner that is promoted to voter: a fraction of a second of a busy log."""
    reads_pending_max: int = 10_000
    forwarded_read_ticks: int = 30
    """Ticks after which a follower abandons an unanswered ReadIndex request to the leader.

    Equal to the broker session timeout, and longer than the slowest supported round trip."""

    def check(self) -> None:
        """Raise ConfigError if the timeouts or limits are inconsistent."""
        if not 0 < self.heartbeat_ticks * 2 <= self.election_ticks:
            raise ConfigError(
                "Raft: election_ticks must be at least twice heartbeat_ticks to tolerate a lost heartbeat"
            )
        if self.election_spread_ticks < 1:
            raise ConfigError("Raft: election_spread_ticks must be at least 1")
        limits = (self.append_bytes_max, self.inflight_messages_max, self.inflight_bytes_max, self.apply_bytes_max)
        read_limits = (self.reads_pending_max, self.forwarded_read_ticks)
        if min(*limits, *read_limits, self.snapshot_chunk_bytes, self.snapshot_retry_ticks) < 1:
            raise ConfigError("Raft: all limits must be positive")
        if self.uncommitted_bytes_max < self.entry_bytes_max:
            raise ConfigError("Raft: uncommitted_bytes_max must be at least entry_bytes_max")
