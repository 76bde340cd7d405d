"""A leader's view of a peer's replication progress, with flow control.

- PROBE: the point where the logs diverge is unknown. One message at a time is sent until one is accepted.
- REPLICATE: the logs match up to `match`. Messages are pipelined within a window.
- SNAPSHOT: the peer needs compacted entries. No entries are sent until it has the snapshot.

A peer that does not respond receives at most a window of messages and then only heartbeats, and uses no memory while it
is away: when it returns, entries are read from the log again, or a snapshot is sent if they were compacted.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from chronik.errors import check_invariant
from chronik.raft.config import RaftConfig
from chronik.raft.entries import SnapshotMetadata
from chronik.raft.membership import UNBOUND_DIRECTORY


class ProgressState(Enum):
    """The replication state of a peer: PROBE, REPLICATE or SNAPSHOT, as in etcd."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class SnapshotTransfer:
    """A transfer of the leader's snapshot to a peer, one chunk at a time.

    The receiver's disk sets the pace, and neither side holds more than one chunk in memory.
    """

    def __init__(self, snapshot: SnapshotMetadata) -> None:
        self.snapshot = snapshot
        self.offset = 0
        """The offset of the snapshot chunk that is being read or sent."""
        self.is_chunk_read_pending = False
        self.waiting_ticks = 0


class PeerProgress:
    """The leader's view of the replication to a peer: its match index and unacknowledged messages."""

    def __init__(self, directory_id: bytes, next_index: int, config: RaftConfig) -> None:
        self.directory_id = directory_id
        self.match_index = 0
        """The last index up to which the peer's durable log is known to match the leader's log."""
        self.next_index = next_index
        self.state = ProgressState.PROBE
        self.is_recently_active = False
        self.acked_round = 0
        self.commit_sent = 0
        self.is_append_due = True
        """Whether to send an Append even if it is empty, to find out the state of the peer's log.

        Set for a new peer, and after the last message may have been lost.
        """
        self.transfer: SnapshotTransfer | None = None
        self._is_probe_pending = False
        self._window: deque[tuple[int, int]] = deque()
        self._window_bytes = 0
        self._messages_max = config.inflight_messages_max
        self._bytes_max = config.inflight_bytes_max

    @property
    def is_paused(self) -> bool:
        """Whether the leader must wait for a response of the peer before it sends more entries."""
        if self.state is ProgressState.SNAPSHOT:
            return True
        if self.state is ProgressState.PROBE:
            return self._is_probe_pending
        return len(self._window) >= self._messages_max or self._window_bytes >= self._bytes_max

    def matches_directory(self, directory_id: bytes) -> bool:
        """Return whether the peer has this data directory. A peer without a known directory matches any."""
        return self.directory_id in (UNBOUND_DIRECTORY, directory_id)

    def on_append_sent(self, last_index: int, count: int, size_bytes: int) -> None:
        """Record that an Append with `count` entries up to `last_index` was sent."""
        self.is_append_due = False
        if self.state is ProgressState.PROBE:
            self._is_probe_pending = True
        elif count:
            self.next_index = last_index + 1
            self._window.append((last_index, size_bytes))
            self._window_bytes += size_bytes

    def on_append_accepted(self, index: int) -> bool:
        """Record that the peer's log matches up to `index`. Return whether its match index has advanced."""
        has_advanced = index > self.match_index
        self.match_index = max(self.match_index, index)
        self.next_index = max(self.next_index, self.match_index + 1)
        while self._window and self._window[0][0] <= index:
            self._window_bytes -= self._window.popleft()[1]
        if self.state is ProgressState.PROBE or (self.transfer is not None and index >= self.transfer.snapshot.index):
            self._enter_state(ProgressState.REPLICATE)
        return has_advanced

    def on_append_rejected(self, index: int, next_index: int) -> bool:
        """Record that the peer's log does not match at `index`. Return False if the rejection is outdated."""
        if index <= self.match_index or self.state is ProgressState.SNAPSHOT:
            return False
        if self.state is ProgressState.REPLICATE:
            self.probe()
            return True
        if index != self.next_index - 1:
            return False
        self.next_index = max(self.match_index + 1, min(next_index, index))
        self._is_probe_pending = False
        return True

    def probe(self) -> None:
        """Return to the PROBE state and send again from the match index, because messages may be lost."""
        self._enter_state(ProgressState.PROBE)
        self.next_index = self.match_index + 1

    def start_snapshot(self, snapshot: SnapshotMetadata) -> SnapshotTransfer:
        self._enter_state(ProgressState.SNAPSHOT)
        self.transfer = SnapshotTransfer(snapshot)
        return self.transfer

    def abort_snapshot(self) -> None:
        check_invariant(self.transfer is not None, "Raft: no snapshot transfer in progress")
        self.probe()

    def on_heartbeat_ack(self, last_index: int) -> None:
        """Allow another Append to the peer, because the peer has responded to a heartbeat.

        If an earlier message was lost, no response to it will arrive; the rejection of the next one reveals the loss.
        """
        self._is_probe_pending = False
        self.is_append_due = self.match_index < last_index
        if self.state is ProgressState.REPLICATE and self.is_paused:
            self._window_bytes -= self._window.popleft()[1]

    def _enter_state(self, mode: ProgressState) -> None:
        self.state = mode
        self.transfer = None
        self._is_probe_pending = False
        self._window.clear()
        self._window_bytes = 0
