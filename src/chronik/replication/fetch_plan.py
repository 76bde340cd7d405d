"""What a follower asks one leader for next: the partitions that it follows there, and what has changed since it last
asked. Pure: the caller hands in the time."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from chronik.broker.replica import Replica
from chronik.metadata.commands.base import NO_EPOCH
from chronik.replication.messages import NO_SESSION, FollowerFetch, Key, LeaderAnswer, Position
from chronik.replication.serving import ANSWER_BYTES_MAX

WAIT_SECONDS_MAX: Final = 0.5
"""How long a leader with nothing to tell may hold a fetch: Kafka's `replica.fetch.wait.max.ms`."""

RETRY_SECONDS_FIRST: Final = 0.02
RETRY_SECONDS_MAX: Final = 1.0
"""A partition that failed is asked for again after a while: mostly one of the two has not heard of an election."""


class Followed(msgspec.Struct):
    replica: Replica
    leader_epoch: int
    is_asked_for: bool = False
    """Whether it was asked for in this epoch; until then what the leader says of it is about an earlier one."""
    failures: int = 0
    rests_until: float = 0.0
    cuts: int = 0
    """How often the log was cut without getting further than before."""
    cut_at: int = -1
    told_start: int = -1
    """Where the leader believes that this log starts."""


class FetchPlan:
    def __init__(self) -> None:
        self.followed: dict[Key, Followed] = {}
        self._changed: dict[Key, None] = {}  # what the leader has to be told, the oldest first
        self._resting: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._session_id = NO_SESSION
        self._turn = 0

    @property
    def session_id(self) -> int:
        return self._session_id

    def follow(self, replica: Replica) -> bool:
        """Returns whether that is new."""
        key = (replica.topic_id, replica.index)
        known = self.followed.get(key)
        if known is not None and known.replica is replica and known.leader_epoch == replica.leader_epoch:
            return False
        self.followed[key] = Followed(replica, replica.leader_epoch)
        self._forgotten.pop(key, None)
        self._resting.pop(key, None)
        self._changed[key] = None
        return True

    def forget(self, key: Key) -> None:
        if self.followed.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._resting.pop(key, None)
            self._forgotten[key] = None

    def answerable(self, key: Key) -> Followed | None:
        """Returns the partition, if an answer can be about it."""
        followed = self.followed.get(key)
        return followed if followed is not None and followed.is_asked_for else None

    def is_current(self, key: Key, followed: Followed) -> bool:
        """Whether the partition is still followed here, in the epoch in which it was asked for."""
        return self.followed.get(key) is followed

    def changed(self, key: Key) -> None:
        """Notes that the leader has to be told how far this partition is now."""
        followed = self.followed.get(key)
        if followed is not None:
            followed.failures = 0
            self._resting.pop(key, None)
            self._changed[key] = None

    def failed(self, key: Key, now: float) -> float:
        """Has it asked for again after a rest, whose seconds are returned; each time longer."""
        followed = self.followed[key]
        seconds = min(RETRY_SECONDS_FIRST * 2.0**followed.failures, RETRY_SECONDS_MAX)
        followed.failures = min(followed.failures + 1, 16)
        self.rest(key, now + seconds)
        return seconds

    def cut(self, key: Key, end_offset: int, now: float) -> None:
        """Notes that the log, which had reached `end_offset`, was cut. The leader hears of it at once, but not if that
        goes on and on: whatever is wrong then, it must not keep both of them from all other partitions."""
        followed = self.followed[key]
        followed.cuts = followed.cuts + 1 if end_offset <= followed.cut_at else 0
        followed.cut_at = max(followed.cut_at, end_offset)
        self.changed(key)
        if followed.cuts:
            self.rest(key, now + min(RETRY_SECONDS_FIRST * 2.0 ** min(followed.cuts, 16), RETRY_SECONDS_MAX))

    def rest(self, key: Key, until: float) -> None:
        """Lets the partition rest, if it is still followed: that may change while a log waits for its disk."""
        followed = self.followed.get(key)
        if followed is not None:
            followed.rests_until = until
            self._changed.pop(key, None)
            self._resting[key] = None

    def rested(self, now: float) -> list[Key]:
        """Returns the partitions whose rest is over, and which the next request asks for."""
        return [key for key in self._resting if self.followed[key].rests_until <= now]

    def unopened(self) -> list[Replica]:
        """Returns the replicas whose logs have to be opened before they can be asked for."""
        replicas = (self.followed[key].replica for key in self._changed)
        return [replica for replica in replicas if replica.opened_log is None]

    def incomplete(self) -> list[Replica]:
        """Returns the replicas whose disks have lost a part of what was once synced, which the leader must not take for
        whole logs; and all that have lost something and are still in the ISR, which they have to leave first."""
        replicas = (self.followed[key].replica for key in self._changed)
        return [replica for replica in replicas if replica.opened_log is not None and _has_to_be_cut(replica)]

    def undurable(self) -> list[Replica]:
        """Returns what must be made durable before the leader may be told of it: a former leader may have such logs."""
        replicas = (self.followed[key].replica for key in self._changed)
        return [replica for replica in replicas if replica.opened_log is not None and not replica.is_all_durable]

    # -- fetches ------------------------------------------------------------------------------------------------------

    def request(self, broker_epoch: int, now: float) -> FollowerFetch:
        for key in self.rested(now):
            del self._resting[key]
            self._changed[key] = None
        if self._session_id == NO_SESSION:
            self._changed = {key: None for key in self.followed if key not in self._resting}
        positions = tuple(self._positions())
        forgotten, self._forgotten = tuple(self._forgotten), {}
        return FollowerFetch(
            broker_epoch,
            self._session_id,
            self._turn,
            positions,
            forgotten if self._session_id != NO_SESSION else (),
            int(self._patience_seconds(now) * 1000),
            ANSWER_BYTES_MAX,
        )

    def _positions(self) -> list[Position]:
        positions = []
        for key in list(self._changed):
            followed = self.followed[key]
            replica = followed.replica
            if replica.opened_log is None or _has_to_be_cut(replica) or not replica.is_all_durable:
                continue
            del self._changed[key]
            followed.is_asked_for = True
            place = _place_of(replica)
            followed.told_start = place.log_start_offset
            positions.append(Position(*key, followed.leader_epoch, *place))
        return positions

    def _patience_seconds(self, now: float) -> float:
        if self._changed:
            return 0.0  # some logs have yet to be opened, or synced
        rests = (self.followed[key].rests_until - now for key in self._resting)
        return max(min(WAIT_SECONDS_MAX, *rests) if self._resting else WAIT_SECONDS_MAX, 0.001)

    def answered(self, answer: LeaderAnswer) -> bool:
        """Returns whether the session goes on; if not, nothing of the answer counts."""
        if answer.session_id == NO_SESSION:
            self.lost()
            return False
        self._turn = 1 if self._session_id == NO_SESSION else self._turn + 1
        self._session_id = answer.session_id
        return True

    def lost(self) -> None:
        """Begins a new session: nobody knows what the leader has heard, so everything is said again."""
        self._session_id = NO_SESSION
        self._turn = 0
        self._forgotten.clear()
        self._changed = {key: None for key in self.followed if key not in self._resting}


class _Place(NamedTuple):
    offset: int
    last_epoch: int
    log_start_offset: int


def _has_to_be_cut(replica: Replica) -> bool:
    log = replica.log
    return log.missing_from is not None and (replica.is_in_isr or not log.is_lost)


def _place_of(replica: Replica) -> _Place:
    """Treats a lost log as an empty one: it becomes one when the leader turns out to have something. Until then it is
    known to be lost, should it be elected."""
    log = replica.log
    if log.missing_from is not None:
        return _Place(log.missing_from, NO_EPOCH, log.missing_from)
    return _Place(replica.durable_end, replica.last_epoch, log.log_start_offset)
