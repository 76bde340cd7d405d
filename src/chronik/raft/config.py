"""Times in ticks and limits in bytes; every buffer of the core has one of these limits."""

from __future__ import annotations

import msgspec

from chronik.errors import ConfigError


class RaftConfig(msgspec.Struct, frozen=True, kw_only=True):
    """With ticks of 100 ms: heartbeats every 200 ms, elections after 1.0 to 1.5 s of silence."""

    election_ticks: int = 10
    """The shortest election timeout, and the lease: a second or more in practice, lest a stalled loop move the term."""
    election_spread_ticks: int = 5
    """Timeouts are spread at random over this many more ticks, so that two nodes rarely stand at once."""
    heartbeat_ticks: int = 2

    entry_bytes_max: int = 16 * 1024 * 1024
    """As large as the largest command of the metadata."""
    append_bytes_max: int = 1024 * 1024
    """Entries per message, unless one alone is larger: long enough to be efficient, and short enough not to hold up
    the heartbeats that queue after it."""
    inflight_messages_max: int = 64
    inflight_bytes_max: int = 4 * 1024 * 1024
    """What was sent to one peer and is not answered yet: the most that a silent peer may cost in queues."""
    uncommitted_bytes_max: int = 64 * 1024 * 1024
    """Proposals that wait for a majority, or for our own disk. Beyond this they are refused: without a majority the
    log would grow for as long as clients retry."""
    apply_bytes_max: int = 1024 * 1024
    """Entries handed out to be applied at a time, unless one alone is larger."""
    snapshot_chunk_bytes: int = 1024 * 1024
    snapshot_retry_ticks: int = 10
    """A piece of a snapshot that is not answered for this long is sent again."""
    promotion_lag_max_entries: int = 1000
    """How far a learner may lag behind and still be made a voter: a fraction of a second of a busy log."""
    reads_pending_max: int = 10_000
    forwarded_read_ticks: int = 30
    """A follower gives up a question that is not answered for this long: as long as a broker's session, and longer than
    the way to the leader and back over the slowest line on which a broker may stay online."""

    def check(self) -> None:
        """Raises ConfigError."""
        if not 0 < self.heartbeat_ticks * 2 <= self.election_ticks:
            raise ConfigError("an election timeout must be at least two heartbeats, or one lost heartbeat ends a term")
        if self.election_spread_ticks < 1:
            raise ConfigError("election timeouts must be spread over at least one tick")
        limits = (self.append_bytes_max, self.inflight_messages_max, self.inflight_bytes_max, self.apply_bytes_max)
        reading = (self.reads_pending_max, self.forwarded_read_ticks)
        if min(*limits, *reading, self.snapshot_chunk_bytes, self.snapshot_retry_ticks) < 1:
            raise ConfigError("the limits of Raft must be positive")
        if self.uncommitted_bytes_max < self.entry_bytes_max:
            raise ConfigError("the largest entry must fit into what may be uncommitted")
