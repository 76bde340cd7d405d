"""A follower's fetch session with one leader: the followed partitions and the changes since the last request."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from chronik.broker.replica import Replica
from chronik.metadata.commands.base import NO_EPOCH
from chronik.replication.fetch_server import FETCH_RESPONSE_BYTES_MAX
from chronik.replication.messages import (
    NO_SESSION,
    FollowerFetchRequest,
    FollowerFetchResponse,
    FollowerPosition,
    PartitionId,
)

FETCH_WAIT_SECONDS_MAX: Final = 0.5
"""Maximum time in seconds for which the leader may delay a fetch without new records (Kafka's
`replica.fetch.wait.max.ms`)."""

RETRY_SECONDS_FIRST: Final = 0.02
RETRY_SECONDS_MAX: Final = 1.0
"""Minimum and maximum delay in seconds before a failed partition is fetched again. Most failures occur while one of the
nodes has not yet applied a leader election."""


class FollowedPartition(msgspec.Struct):
    """A partition that this node follows, and the state of its fetches from the leader."""

    replica: Replica
    leader_epoch: int
    is_requested: bool = False
    """Whether a fetch in this leader epoch has requested the partition. If not, responses to earlier requests are
    ignored."""
    failures: int = 0
    paused_until: float = 0.0
    truncations: int = 0
    """Number of consecutive log truncations since records were last replicated."""
    truncated_from: int = -1
    reported_start: int = -1
    """Log start offset of the follower's replica that was last reported to the leader."""


class LeaderFetchSession:
    """A follower's fetch session with one leader: the followed partitions and the next fetch request."""

    def __init__(self) -> None:
        self.followed: dict[PartitionId, FollowedPartition] = {}
        self._changed: dict[PartitionId, None] = {}  # partitions whose state the leader must be sent, oldest first
        self._paused: dict[PartitionId, None] = {}
        self._forgotten: dict[PartitionId, None] = {}
        self._session_id = NO_SESSION
        self._session_epoch = 0

    @property
    def session_id(self) -> int:
        return self._session_id

    def follow(self, replica: Replica) -> bool:
        """Start following a partition; return False if it is already followed in this leader epoch."""
        key = (replica.topic_id, replica.index)
        current = self.followed.get(key)
        if current is not None and current.replica is replica and current.leader_epoch == replica.leader_epoch:
            return False
        self.followed[key] = FollowedPartition(replica, replica.leader_epoch)
        self._forgotten.pop(key, None)
        self._paused.pop(key, None)
        self._changed[key] = None
        return True

    def unfollow(self, key: PartitionId) -> None:
        if self.followed.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._paused.pop(key, None)
            self._forgotten[key] = None

    def get_requested_partition(self, key: PartitionId) -> FollowedPartition | None:
        """Return the followed partition, or None if a fetch response for it is outdated and must be ignored."""
        followed = self.followed.get(key)
        return followed if followed is not None and followed.is_requested else None

    def is_current(self, key: PartitionId, followed: FollowedPartition) -> bool:
        """Return whether the partition is still followed in the leader epoch in which it was requested."""
        return self.followed.get(key) is followed

    def mark_position_changed(self, key: PartitionId) -> None:
        """Include the partition's current position in the next request."""
        followed = self.followed.get(key)
        if followed is not None:
            followed.failures = 0
            self._paused.pop(key, None)
            self._changed[key] = None

    def delay_failed_partition(self, key: PartitionId, now: float) -> float:
        """Delay the next fetch of a failed partition with exponential backoff; return the delay in seconds."""
        followed = self.followed[key]
        seconds = min(RETRY_SECONDS_FIRST * 2.0**followed.failures, RETRY_SECONDS_MAX)
        followed.failures = min(followed.failures + 1, 16)
        self.pause(key, now + seconds)
        return seconds

    def record_truncation(self, key: PartitionId, end_offset: int, now: float) -> None:
        """Record that the log was truncated; `end_offset` is the log end offset before the truncation.

        The next request reports it. Repeated truncations without progress are delayed, so that they do not impede the
        other partitions.
        """
        followed = self.followed[key]
        followed.truncations = followed.truncations + 1 if end_offset <= followed.truncated_from else 0
        followed.truncated_from = max(followed.truncated_from, end_offset)
        self.mark_position_changed(key)
        if followed.truncations:
            self.pause(key, now + min(RETRY_SECONDS_FIRST * 2.0 ** min(followed.truncations, 16), RETRY_SECONDS_MAX))

    def pause(self, key: PartitionId, until: float) -> None:
        """Pause fetching the partition. Do nothing if it was unfollowed, for example while its log was being synced."""
        followed = self.followed.get(key)
        if followed is not None:
            followed.paused_until = until
            self._changed.pop(key, None)
            self._paused[key] = None

    def list_due_partitions(self, now: float) -> list[PartitionId]:
        """Return the paused partitions whose delay has expired, so that the next fetch requests them again."""
        return [key for key in self._paused if self.followed[key].paused_until <= now]

    def list_replicas_to_open(self) -> list[Replica]:
        """Return the replicas whose logs must be opened before the next request."""
        replicas = (self.followed[key].replica for key in self._changed)
        return [replica for replica in replicas if replica.log_if_open is None]

    def list_replicas_to_truncate(self) -> list[Replica]:
        """Return the replicas whose logs must be truncated because their disks have lost synced records.

        Their positions must not be reported to the leader as complete. A replica in the ISR must leave it first.
        """
        replicas = (self.followed[key].replica for key in self._changed)
        return [replica for replica in replicas if replica.log_if_open is not None and _must_be_truncated(replica)]

    def list_replicas_to_sync(self) -> list[Replica]:
        """Return the replicas whose logs must be synced before their offsets are reported, such as former leaders'."""
        replicas = (self.followed[key].replica for key in self._changed)
        return [replica for replica in replicas if replica.log_if_open is not None and not replica.is_fully_durable]

    # -- fetches ------------------------------------------------------------------------------------------------------

    def build_request(self, broker_epoch: int, now: float) -> FollowerFetchRequest:
        for key in self.list_due_partitions(now):
            del self._paused[key]
            self._changed[key] = None
        if self._session_id == NO_SESSION:
            self._changed = {key: None for key in self.followed if key not in self._paused}
        positions = tuple(self._take_changed_positions())
        forgotten, self._forgotten = tuple(self._forgotten), {}
        return FollowerFetchRequest(
            broker_epoch,
            self._session_id,
            self._session_epoch,
            positions,
            forgotten if self._session_id != NO_SESSION else (),
            int(self._compute_max_wait_seconds(now) * 1000),
            FETCH_RESPONSE_BYTES_MAX,
        )

    def _take_changed_positions(self) -> list[FollowerPosition]:
        positions = []
        for key in list(self._changed):
            followed = self.followed[key]
            replica = followed.replica
            if replica.log_if_open is None or _must_be_truncated(replica) or not replica.is_fully_durable:
                continue
            del self._changed[key]
            followed.is_requested = True
            log_position = _get_log_position(replica)
            followed.reported_start = log_position.log_start_offset
            positions.append(FollowerPosition(*key, followed.leader_epoch, *log_position))
        return positions

    def _compute_max_wait_seconds(self, now: float) -> float:
        if self._changed:
            return 0.0  # some logs must still be opened or synced
        delays = (self.followed[key].paused_until - now for key in self._paused)
        return max(min(FETCH_WAIT_SECONDS_MAX, *delays) if self._paused else FETCH_WAIT_SECONDS_MAX, 0.001)

    def on_response(self, answer: FollowerFetchResponse) -> bool:
        """Update the session from a fetch response; return False if the leader has ended the session."""
        if answer.session_id == NO_SESSION:
            self.reset()
            return False
        self._session_epoch = 1 if self._session_id == NO_SESSION else self._session_epoch + 1
        self._session_id = answer.session_id
        return True

    def reset(self) -> None:
        """Start a new session, in which the positions of all partitions are sent again."""
        self._session_id = NO_SESSION
        self._session_epoch = 0
        self._forgotten.clear()
        self._changed = {key: None for key in self.followed if key not in self._paused}


class _LogPosition(NamedTuple):
    offset: int
    last_epoch: int
    log_start_offset: int


def _must_be_truncated(replica: Replica) -> bool:
    log = replica.log
    return log.missing_start_offset is not None and (replica.is_in_isr or not log.has_lost_all_records)


def _get_log_position(replica: Replica) -> _LogPosition:
    """Return the fetch position of a replica.

    A lost log counts as empty. It remains marked as lost until the leader sends records, because this node may be
    elected before.
    """
    log = replica.log
    if log.missing_start_offset is not None:
        return _LogPosition(log.missing_start_offset, NO_EPOCH, log.missing_start_offset)
    return _LogPosition(replica.durable_end_offset, replica.latest_epoch, log.log_start_offset)
