"""What a leader knows of one peer, and how much it may send there.

- PROBE: it is not known where the logs diverge. One message at a time, until one is accepted.
- REPLICATE: the logs agree up to `match`. Messages are sent ahead of the answers, within a window.
- SNAPSHOT: the peer needs entries that are compacted away. No entries are sent until it has the snapshot.

A peer that does not answer is sent at most a window of messages, then heartbeats only, and costs no memory however
long it is away: entries are read again from the log when it returns, or a snapshot if they are gone.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from chronik.errors import invariant
from chronik.raft.config import RaftConfig
from chronik.raft.entries import SnapshotMetadata
from chronik.raft.membership import UNBOUND


class Mode(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Transfer:
    """A snapshot on its way to a peer, one piece at a time: the next one is read when the last one is answered.

    The disk of the receiver sets the pace, and neither side ever holds more than one piece.
    """

    def __init__(self, snapshot: SnapshotMetadata) -> None:
        self.snapshot = snapshot
        self.offset = 0
        """Where the piece that is being read or sent begins."""
        self.is_reading = False
        self.waiting_ticks = 0


class Progress:
    def __init__(self, directory_id: bytes, next_index: int, config: RaftConfig) -> None:
        self.directory_id = directory_id
        self.match = 0
        """The peer's durable log is known to equal ours up to here."""
        self.next = next_index
        self.mode = Mode.PROBE
        self.is_recently_active = False
        self.acked_round = 0
        self.commit_sent = 0
        self.is_check_due = True
        """Send a message even without entries, for the sake of its answer: nothing is known of this peer yet, or the
        last message may be lost, and no further one follows whose rejection would tell."""
        self.transfer: Transfer | None = None
        self._is_probe_out = False
        self._window: deque[tuple[int, int]] = deque()
        self._window_bytes = 0
        self._messages_max = config.inflight_messages_max
        self._bytes_max = config.inflight_bytes_max

    @property
    def is_paused(self) -> bool:
        """Whether entries must wait for an answer."""
        if self.mode is Mode.SNAPSHOT:
            return True
        if self.mode is Mode.PROBE:
            return self._is_probe_out
        return len(self._window) >= self._messages_max or self._window_bytes >= self._bytes_max

    def is_on(self, directory_id: bytes) -> bool:
        """Whether a message from that disk is this peer's word."""
        return self.directory_id in (UNBOUND, directory_id)

    def sent(self, last_index: int, count: int, size_bytes: int) -> None:
        self.is_check_due = False
        if self.mode is Mode.PROBE:
            self._is_probe_out = True
        elif count:
            self.next = last_index + 1
            self._window.append((last_index, size_bytes))
            self._window_bytes += size_bytes

    def accepted(self, index: int) -> bool:
        """Notes that the peer holds everything up to `index`. Returns whether that is news."""
        is_news = index > self.match
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        while self._window and self._window[0][0] <= index:
            self._window_bytes -= self._window.popleft()[1]
        if self.mode is Mode.PROBE or (self.transfer is not None and index >= self.transfer.snapshot.index):
            self._enter(Mode.REPLICATE)
        return is_news

    def rejected(self, index: int, next_index: int) -> bool:
        """Notes that the peer does not hold `index`. Returns False for an old rejection that arrives late."""
        if index <= self.match or self.mode is Mode.SNAPSHOT:
            return False
        if self.mode is Mode.REPLICATE:
            self.probe()
            return True
        if index != self.next - 1:
            return False
        self.next = max(self.match + 1, min(next_index, index))
        self._is_probe_out = False
        return True

    def probe(self) -> None:
        """Begins again from what is known: what is in flight may be lost."""
        self._enter(Mode.PROBE)
        self.next = self.match + 1

    def begin_snapshot(self, snapshot: SnapshotMetadata) -> Transfer:
        self._enter(Mode.SNAPSHOT)
        self.transfer = Transfer(snapshot)
        return self.transfer

    def end_snapshot(self) -> None:
        invariant(self.transfer is not None, "no snapshot is on its way")
        self.probe()

    def answered_heartbeat(self, last_index: int) -> None:
        """The peer is alive. If a message was lost, no answer to it will ever come: one more may go out, and its
        rejection will tell of the loss."""
        self._is_probe_out = False
        self.is_check_due = self.match < last_index
        if self.mode is Mode.REPLICATE and self.is_paused:
            self._window_bytes -= self._window.popleft()[1]

    def _enter(self, mode: Mode) -> None:
        self.mode = mode
        self.transfer = None
        self._is_probe_out = False
        self._window.clear()
        self._window_bytes = 0
