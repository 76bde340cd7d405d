"""The leader's side of replication: what followers ask for, and what there is to tell them.

A follower names a partition when its own state of it changes, and a leader tells of one when its state of it changes.
So the cost of a fetch depends on what has happened since the last one, not on the number of partitions. There is one
session per follower: it asks one thing at a time, over one connection, and begins anew when an answer was lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from chronik.broker.in_sync import Follower
from chronik.broker.replica import Replica
from chronik.broker.replicas import Replicas
from chronik.clock import Clock
from chronik.limits import KIB, MIB, REPLICA_FETCH_PARTITION_BYTES_MAX
from chronik.metadata.stores.store import MetadataStore
from chronik.news import News
from chronik.peers.calls import CallRefused
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from chronik.replication.messages import (
    NO_SESSION,
    NOTHING,
    UNKNOWN,
    FollowerFetch,
    Key,
    LeaderAnswer,
    Portion,
    Position,
    Wake,
    Woken,
)
from chronik.replication.throttle import ReplicationThrottle

logger = logging.getLogger("chronik.replication")

ANSWER_BYTES_MAX: Final = 7 * MIB
"""Somewhat more than two partitions full of records. With the rest of the answer it fits the memory that a follower's
connection keeps for large frames (8 MiB)."""

WAIT_SECONDS_MAX: Final = 10.0

WORTH_READING_BYTES: Final = 4 * KIB
"""When less room than this is left in an answer, the rest is kept for the next."""

OPENING_SECONDS_MAX: Final = 0.02
"""Time for opening logs in one turn of the loop."""


class _Wanted:
    """One partition of a session."""

    __slots__ = ("_session", "damaged_at", "follower", "has_all", "key", "position", "replica")

    def __init__(self, session: FollowerSession, key: Key) -> None:
        self._session = session
        self.key = key
        self.position: Position
        self.replica: Replica | None = None
        self.follower: Follower | None = None
        self.has_all = False
        """Whether the follower has said that it has everything: then whatever is appended is news."""
        self.damaged_at = UNKNOWN

    def __repr__(self) -> str:
        return repr(self.replica)

    def appended(self) -> None:
        if self.has_all:
            self.has_all = False
            if self.follower is not None:
                self.follower.falls_behind()
            self._session.has_something(self.key)

    def moved(self, *, is_urgent: bool) -> None:
        if is_urgent and self.has_all:
            self._session.has_something(self.key)
        else:
            self._session.news[self.key] = None

    def gone(self) -> None:
        self.replica = self.follower = None
        self.has_all = False
        self._session.has_something(self.key)

    def let_go(self) -> None:
        if self.replica is not None:
            self.replica.readers.pop(self, None)
        self.replica = self.follower = None
        self.has_all = False


class FollowerSession:
    """The session of a following broker, in one of its epochs."""

    def __init__(self, session_id: int, broker_id: int, broker_epoch: int, now: float) -> None:
        self.id = session_id
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.fetched_at = now
        self.turn = 0
        self.wanted: dict[Key, _Wanted] = {}
        self.ready: dict[Key, None] = {}
        """Partitions with records, or with something that went wrong; the one that has waited longest first."""
        self.news: dict[Key, None] = {}
        """Partitions whose high watermark or start has moved: told with the next answer, but no reason to give one."""
        self.woken: Final = News()

    def has_something(self, key: Key) -> None:
        if key in self.wanted:
            self.ready[key] = None
            self.woken.tell()

    def forget(self, key: Key) -> None:
        wanted = self.wanted.pop(key, None)
        if wanted is not None:
            wanted.let_go()
        self.ready.pop(key, None)
        self.news.pop(key, None)

    def end(self) -> None:
        for wanted in self.wanted.values():
            wanted.let_go()
        self.wanted.clear()
        self.woken.tell()


class ReplicaServer:
    def __init__(
        self,
        store: MetadataStore,
        replicas: Replicas,
        clock: Clock,
        on_progress: Callable[[Replica, Follower], None],
        throttle: ReplicationThrottle,
    ) -> None:
        """`on_progress` is told that a follower has got further."""
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._on_progress = on_progress
        self._throttle = throttle
        self._sessions: dict[int, FollowerSession] = {}
        self._ids: Iterator[int] = itertools.count(NO_SESSION + 1)

    async def fetch(self, peer: int, request: FollowerFetch) -> LeaderAnswer:
        """Raises CallRefused."""
        session = self._session_of(peer, request)
        if session is None:
            return LeaderAnswer(NO_SESSION)
        heard = session.woken.count  # it may be woken from now on, also while logs are opened
        session.fetched_at = self._clock.monotonic()
        for key in request.forgotten:
            session.forget(key)
        await self._open_logs(request.positions)
        if self._sessions.get(peer) is not session:
            return LeaderAnswer(NO_SESSION)
        for position in request.positions:
            self._take(session, position)
        if not session.ready and request.max_wait_ms > 0:
            await session.woken.since(heard, min(request.max_wait_ms / 1000, WAIT_SECONDS_MAX))
        if self._sessions.get(peer) is not session:
            return LeaderAnswer(NO_SESSION)
        return LeaderAnswer(session.id, tuple(self._portions(session, request.max_bytes)))

    async def _open_logs(self, positions: Sequence[Position]) -> None:
        """Opens a few at a time: after a start a follower asks for all at once, and each may take some reading."""
        until = self._clock.monotonic() + OPENING_SECONDS_MAX
        for position in positions:
            replica = self._replicas.led(position.topic_id, position.partition)
            if replica is not None and replica.opened_log is None:
                replica.open()
                if self._clock.monotonic() > until:
                    await asyncio.sleep(0)
                    until = self._clock.monotonic() + OPENING_SECONDS_MAX

    async def wake(self, peer: int, request: Wake) -> Woken:
        session = self._sessions.get(peer)
        if session is not None and request.session_id in (NO_SESSION, session.id):
            session.woken.tell()
        return Woken()

    def _session_of(self, peer: int, request: FollowerFetch) -> FollowerSession | None:
        broker = self._store.image.brokers.get(peer)
        if request.broker_epoch < (0 if broker is None else broker.epoch):
            raise CallRefused(f"broker {peer} is not registered, or has begun another life")
        session = self._sessions.get(peer)
        if request.session_id == NO_SESSION:
            if session is not None:
                session.end()
            now = self._clock.monotonic()
            session = FollowerSession(next(self._ids), peer, request.broker_epoch, now)
            self._sessions[peer] = session
        elif (
            session is None
            or (session.id, session.turn) != (request.session_id, request.turn)
            or session.broker_epoch != request.broker_epoch
        ):
            return None
        session.turn += 1
        return session

    # -- what the follower says -------------------------------------------------------------------------------------

    def _take(self, session: FollowerSession, position: Position) -> None:
        key = (position.topic_id, position.partition)
        wanted = session.wanted.get(key)
        if wanted is None:
            wanted = session.wanted[key] = _Wanted(session, key)
        wanted.position = position
        wanted.has_all = False
        session.ready[key] = None  # whatever is wrong, it is told when it is answered
        try:
            replica = self._led(session, position)
            if replica.divergence(position.offset, position.last_epoch) is not None:
                return
        except KafkaError:
            return
        if not replica.has(position.offset):
            return
        if wanted.replica is not replica:
            wanted.let_go()
            wanted.replica = replica
            replica.readers[wanted] = None
        wanted.follower = replica.follower_fetched(
            session.broker_id, position.offset, position.log_start_offset, session
        )
        self._on_progress(replica, wanted.follower)
        if position.offset >= replica.log.log_end_offset:
            wanted.has_all = True
            del session.ready[key]
        session.news[key] = None

    def _led(self, session: FollowerSession, position: Position) -> Replica:
        """Raises UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH."""
        replica = self._replicas.by_id(position.topic_id, position.partition, hidden_too=True)
        replica.check_epoch(position.leader_epoch)
        if replica.leading is None or session.broker_id not in replica.leading.followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    # -- what the follower is told ------------------------------------------------------------------------------------

    def _portions(self, session: FollowerSession, max_bytes: int) -> Iterator[Portion]:
        left = min(max_bytes, ANSWER_BYTES_MAX)
        is_first = True
        for key in list(session.ready):
            if not is_first and left < WORTH_READING_BYTES:
                break
            wanted = session.wanted[key]
            if self._has_to_wait(session, wanted):
                continue
            portions = self._portions_of(session, wanted, left, is_first)
            if not portions:
                continue
            del session.ready[key]
            session.news.pop(key, None)
            size = sum(len(portion.records) for portion in portions)
            left -= size
            if size and wanted.replica is not None:
                self._throttle.copied(wanted.replica, session.broker_id, size)
            is_first = is_first and not size
            yield from portions
        for key in list(session.news):
            wanted = session.wanted[key]
            if wanted.replica is not None and key not in session.ready:
                yield _told(wanted.replica, key)
        session.news = {key: None for key in session.news if key in session.ready}

    def _has_to_wait(self, session: FollowerSession, wanted: _Wanted) -> bool:
        if wanted.replica is None:
            return False
        seconds = self._throttle.delay(wanted.replica, session.broker_id)
        if seconds > 0:
            del session.ready[wanted.key]
            asyncio.get_running_loop().call_later(seconds, session.has_something, wanted.key)
        return seconds > 0

    def _portions_of(self, session: FollowerSession, wanted: _Wanted, left: int, is_first: bool) -> list[Portion]:
        """Returns several portions of one partition when its records lie in several places; none when there is no room
        for them."""
        position = wanted.position
        try:
            replica = self._led(session, position)
            diverging = replica.divergence(position.offset, position.last_epoch)
            if diverging is not None:
                return [_told(replica, wanted.key, diverging=diverging)]
            if not replica.has(position.offset):
                return [_told(replica, wanted.key, error=ErrorCode.OFFSET_OUT_OF_RANGE)]
            bytes_max = min(left, REPLICA_FETCH_PARTITION_BYTES_MAX)
            pieces = replica.read_for_follower(position.offset, bytes_max, min_one_batch=is_first)
        except CorruptRecords as error:
            if wanted.damaged_at != position.offset:
                wanted.damaged_at = position.offset
                logger.error("%s: node %d cannot follow, this disk is damaged: %s", wanted, session.broker_id, error)
            return [Portion(*wanted.key, UNKNOWN, UNKNOWN, UNKNOWN, NOTHING, error.code)]
        except KafkaError as error:
            return [Portion(*wanted.key, UNKNOWN, UNKNOWN, UNKNOWN, NOTHING, error.code)]
        if not pieces and position.offset >= replica.log.log_end_offset:
            return [_told(replica, wanted.key)]
        return [_told(replica, wanted.key, records) for records in pieces]


def _told(
    replica: Replica,
    key: Key,
    records: memoryview = NOTHING,
    error: ErrorCode = ErrorCode.NONE,
    diverging: tuple[int, int] = (UNKNOWN, UNKNOWN),
) -> Portion:
    log = replica.log
    return Portion(*key, replica.high_watermark, log.log_start_offset, log.log_end_offset, records, error, *diverging)
