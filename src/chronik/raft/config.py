"""Raft timeouts (in ticks) and size limits (in bytes). Every buffer of the core has a limit."""

from __future__ import annotations

import msgspec

from chronik.errors import ConfigError


class RaftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The timeouts and limits of a Raft node.

    With ticks of 100 ms, the leader sends heartbeats every 200 ms, and elections start after 1.0 to 1.5 s of silence.
    """

    election_ticks: int = 10
    """The minimum election timeout and the duration of the leader lease, in ticks.

    Should be at least one second, so that a stalled event loop does not cause an election.
    """
    election_spread_ticks: int = 5
    """The range of the random part of the election timeout, in ticks."""
    heartbeat_ticks: int = 2

    entry_bytes_max: int = 16 * 1024 * 1024
    """The maximum size of a log entry in bytes."""
    append_bytes_max: int = 1024 * 1024
    """The maximum total size in bytes of the entries in an Append message, unless a single entry is larger.

    Larger messages would delay the heartbeats that are queued behind them.
    """
    inflight_messages_max: int = 64
    inflight_bytes_max: int = 4 * 1024 * 1024
    """The maximum total size in bytes of unacknowledged Append messages to a peer."""
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    """The maximum total size in bytes of uncommitted proposals, above which the leader rejects proposals.

    Otherwise, client retries would grow the log without bound while there is no majority.
    """
    apply_bytes_max: int = 1024 * 1024
    """The maximum total size in bytes of committed entries applied as one batch, unless a single entry is larger."""
    snapshot_chunk_bytes: int = 1024 * 1024
    snapshot_retry_ticks: int = 10
    """The time in ticks after which an unacknowledged snapshot chunk is sent again."""
    promotion_lag_max_entries: int = 1000
    """The maximum number of log entries by which a learner may lag behind when it is promoted to a voter."""
    reads_pending_max: int = 10_000
    forwarded_read_ticks: int = 30
    """The time in ticks after which a follower abandons an unanswered ReadIndex request to the leader.

    Equal to the broker session timeout and longer than the maximum supported round-trip time.
    """

    def check(self) -> None:
        """Raise ConfigError if the timeouts or limits contradict each other."""
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
