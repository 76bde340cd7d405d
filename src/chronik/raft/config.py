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

    Should be at least one second, so that a stalled event loop does not cause an election.
    """
    election_spread_ticks: int = 5
    """Range of the random part of the election timeout, in ticks, so that two nodes rarely campaign together."""
    heartbeat_ticks: int = 2

    entry_bytes_max: int = 16 * 1024 * 1024
    """Maximum size of an entry in bytes: the size of the largest metadata command."""
    append_bytes_max: int = 1024 * 1024
    """Maximum size of the entries in an Append message in bytes, unless a single entry is larger.

    Larger messages would delay the heartbeats that are queued behind them.
    """
    inflight_messages_max: int = 64
    inflight_bytes_max: int = 4 * 1024 * 1024
    """Maximum size of unacknowledged messages to a peer in bytes, which bounds the memory per unresponsive peer."""
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    """Maximum size of uncommitted proposals in bytes. Above this limit, the leader rejects proposals.

    Otherwise, client retries would grow the log without bound while there is no majority.
    """
    apply_bytes_max: int = 1024 * 1024
    """Maximum size in bytes of a batch of committed entries to apply, unless a single entry is larger."""
    snapshot_chunk_bytes: int = 1024 * 1024
    snapshot_retry_ticks: int = 10
    """Ticks after which an unacknowledged snapshot chunk is sent again."""
    promotion_lag_max_entries: int = 1000
    """Maximum number of entries that a learner may lag behind when it is promoted to voter."""
    reads_pending_max: int = 10_000
    forwarded_read_ticks: int = 30
    """Ticks after which a follower abandons an unanswered ReadIndex request to the leader.

    Equal to the broker session timeout and longer than the maximum supported round-trip time.
    """

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
