"""The leader's side of replication: fetch sessions of the followers.

Followers and leaders send only partitions whose state has changed, so the cost of a fetch depends on the changes since
the previous one and not on the number of partitions. Each follower has one session with one fetch in flight, and starts
a new session when a response was lost.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from chronik.broker.isr_state import Follower
from chronik.broker.replica import Replica
from chronik.broker.replica_manager import ReplicaManager
from chronik.clock import Clock
from chronik.limits import KIB, MIB, REPLICA_FETCH_PARTITION_BYTES_MAX
from chronik.metadata.stores.store import MetadataStore
from chronik.notifier import Notifier
from chronik.peers.calls import CallRejected
from chronik.protocol.errors import CorruptRecords, ErrorCode, KafkaError
from chronik.replication.messages import (
    NO_RECORDS,
    NO_SESSION,
    UNKNOWN,
    FollowerFetchRequest,
    FollowerFetchResponse,
    FollowerPosition,
    PartitionChunk,
    PartitionId,
    WakeRequest,
    WakeResponse,
)
from chronik.replication.throttle import ReplicationThrottle

logger = logging.getLogger("chronik.replication")

FETCH_RESPONSE_BYTES_MAX: Final = 7 * MIB
"""Maximum size in bytes of the records in a fetch response: a little more than two full partitions. The whole response
fits into a peer connection's 8 MiB buffer for large frames."""

FETCH_WAIT_SECONDS_MAX: Final = 10.0

READ_BYTES_MIN: Final = 4 * KIB
"""Minimum remaining response capacity in bytes for reading another partition."""

OPENING_SECONDS_MAX: Final = 0.02
"""Maximum time in seconds per event-loop iteration that the leader spends opening partition logs."""


class _SessionPartition:
    """A partition in a follower's fetch session, notified when the leader's replica has new records or offsets."""

    __slots__ = ("_session", "damaged_at", "follower", "has_all", "key", "position", "replica")

    def __init__(self, session: FollowerSession, key: PartitionId) -> None:
        self._session = session
        self.key = key
        self.position: FollowerPosition
        self.replica: Replica | None = None
        self.follower: Follower | None = None
        self.has_all = False
        """Whether the follower has fetched all of the partition's records, so that the next append makes it ready."""
        self.damaged_at = UNKNOWN

    def __repr__(self) -> str:
        return repr(self.replica)

    def on_append(self) -> None:
        if self.has_all:
            self.has_all = False
            if self.follower is not None:
                self.follower.record_leader_append()
            self._session.mark_ready(self.key)

    def on_offsets_changed(self, *, is_urgent: bool) -> None:
        if is_urgent and self.has_all:
            self._session.mark_ready(self.key)
        else:
            self._session.changed[self.key] = None

    def on_leadership_lost(self) -> None:
        self.replica = self.follower = None
        self.has_all = False
        self._session.mark_ready(self.key)

    def release_replica(self) -> None:
        if self.replica is not None:
            self.replica.follower_listeners.pop(self, None)
        self.replica = self.follower = None
        self.has_all = False


class FollowerSession:
    """The leader's state of a follower's fetch session, which is valid for one epoch of the follower's broker."""

    def __init__(self, session_id: int, broker_id: int, broker_epoch: int, now: float) -> None:
        self.id = session_id
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.fetched_at = now
        self.epoch = 0
        self.partitions: dict[PartitionId, _SessionPartition] = {}
        self.ready: dict[PartitionId, None] = {}
        """Partitions with records or errors to send to the follower; the one that has waited longest comes first."""
        self.changed: dict[PartitionId, None] = {}
        """Partitions whose high watermark or log start offset has changed and is sent in the next response."""
        self.notifications: Final = Notifier()

    def mark_ready(self, key: PartitionId) -> None:
        if key in self.partitions:
            self.ready[key] = None
            self.notifications.notify()

    def remove_partition(self, key: PartitionId) -> None:
        wanted = self.partitions.pop(key, None)
        if wanted is not None:
            wanted.release_replica()
        self.ready.pop(key, None)
        self.changed.pop(key, None)

    def close(self) -> None:
        for wanted in self.partitions.values():
            wanted.release_replica()
        self.partitions.clear()
        self.notifications.notify()


class FollowerFetchServer:
    """The leader's side of partition replication, which handles fetch requests from followers."""

    def __init__(
        self,
        store: MetadataStore,
        replicas: ReplicaManager,
        clock: Clock,
        on_progress: Callable[[Replica, Follower], None],
        throttle: ReplicationThrottle,
    ) -> None:
        """Create a server. `on_progress` is called when a follower's fetch offset advances."""
        self._store = store
        self._replicas = replicas
        self._clock = clock
        self._on_progress = on_progress
        self._throttle = throttle
        self._sessions: dict[int, FollowerSession] = {}
        self._ids: Iterator[int] = itertools.count(NO_SESSION + 1)

    async def fetch(self, peer: int, request: FollowerFetchRequest) -> FollowerFetchResponse:
        """Handle a follower's fetch and return the response. Raise CallRejected if its broker epoch is outdated."""
        session = self._find_session(peer, request)
        if session is None:
            return FollowerFetchResponse(NO_SESSION)
        seen_notifications = (
            session.notifications.generation
        )  # before logs are opened, so that no notification is missed
        session.fetched_at = self._clock.monotonic()
        for key in request.forgotten:
            session.remove_partition(key)
        await self._open_logs(request.positions)
        if self._sessions.get(peer) is not session:
            return FollowerFetchResponse(NO_SESSION)
        for position in request.positions:
            self._update_follower_position(session, position)
        if not session.ready and request.max_wait_ms > 0:
            await session.notifications.wait(
                seen_notifications, min(request.max_wait_ms / 1000, FETCH_WAIT_SECONDS_MAX)
            )
        if self._sessions.get(peer) is not session:
            return FollowerFetchResponse(NO_SESSION)
        return FollowerFetchResponse(session.id, tuple(self._collect_chunks(session, request.max_bytes)))

    async def _open_logs(self, positions: Sequence[FollowerPosition]) -> None:
        """Open partition logs in slices, because after a start a follower requests all its partitions in one fetch."""
        deadline = self._clock.monotonic() + OPENING_SECONDS_MAX
        for position in positions:
            replica = self._replicas.find_led_replica(position.topic_id, position.partition)
            if replica is not None and replica.log_if_open is None:
                replica.open()
                if self._clock.monotonic() > deadline:
                    await asyncio.sleep(0)
                    deadline = self._clock.monotonic() + OPENING_SECONDS_MAX

    async def wake(self, peer: int, request: WakeRequest) -> WakeResponse:
        session = self._sessions.get(peer)
        if session is not None and request.session_id in (NO_SESSION, session.id):
            session.notifications.notify()
        return WakeResponse()

    def _find_session(self, peer: int, request: FollowerFetchRequest) -> FollowerSession | None:
        broker = self._store.image.brokers.get(peer)
        if request.broker_epoch < (0 if broker is None else broker.epoch):
            raise CallRejected(f"broker {peer} is not registered or has a newer epoch than {request.broker_epoch}")
        session = self._sessions.get(peer)
        if request.session_id == NO_SESSION:
            if session is not None:
                session.close()
            now = self._clock.monotonic()
            session = FollowerSession(next(self._ids), peer, request.broker_epoch, now)
            self._sessions[peer] = session
        elif (
            session is None
            or (session.id, session.epoch) != (request.session_id, request.session_epoch)
            or session.broker_epoch != request.broker_epoch
        ):
            return None
        session.epoch += 1
        return session

    # -- requests -----------------------------------------------------------------------------------------------------

    def _update_follower_position(self, session: FollowerSession, position: FollowerPosition) -> None:
        key = (position.topic_id, position.partition)
        wanted = session.partitions.get(key)
        if wanted is None:
            wanted = session.partitions[key] = _SessionPartition(session, key)
        wanted.position = position
        wanted.has_all = False
        session.ready[key] = None  # errors are reported by the response
        try:
            replica = self._get_leader_replica(session, position)
            if replica.find_log_divergence(position.offset, position.last_epoch) is not None:
                return
        except KafkaError:
            return
        if not replica.can_extend_follower_from(position.offset):
            return
        if wanted.replica is not replica:
            wanted.release_replica()
            wanted.replica = replica
            replica.follower_listeners[wanted] = None
        wanted.follower = replica.record_follower_fetch(
            session.broker_id, position.offset, position.log_start_offset, session
        )
        self._on_progress(replica, wanted.follower)
        if position.offset >= replica.log.log_end_offset:
            wanted.has_all = True
            del session.ready[key]
        session.changed[key] = None

    def _get_leader_replica(self, session: FollowerSession, position: FollowerPosition) -> Replica:
        """Return the replica that this node leads; raise a KafkaError if the follower may not fetch from it."""
        replica = self._replicas.get_leader_by_id(position.topic_id, position.partition, include_hidden=True)
        replica.check_leader_epoch(position.leader_epoch)
        if replica.isr_state is None or session.broker_id not in replica.isr_state.followers:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica

    # -- responses ----------------------------------------------------------------------------------------------------

    def _collect_chunks(self, session: FollowerSession, max_bytes: int) -> Iterator[PartitionChunk]:
        bytes_left = min(max_bytes, FETCH_RESPONSE_BYTES_MAX)
        is_first = True
        for key in list(session.ready):
            if not is_first and bytes_left < READ_BYTES_MIN:
                break
            wanted = session.partitions[key]
            if self._is_throttled(session, wanted):
                continue
            partition_chunks = self._read_partition_chunks(session, wanted, bytes_left, is_first)
            if not partition_chunks:
                continue
            del session.ready[key]
            session.changed.pop(key, None)
            size = sum(len(portion.records) for portion in partition_chunks)
            bytes_left -= size
            if size and wanted.replica is not None:
                self._throttle.record_copied_bytes(wanted.replica, session.broker_id, size)
            is_first = is_first and not size
            yield from partition_chunks
        for key in list(session.changed):
            wanted = session.partitions[key]
            if wanted.replica is not None and key not in session.ready:
                yield _build_chunk(wanted.replica, key)
        session.changed = {key: None for key in session.changed if key in session.ready}

    def _is_throttled(self, session: FollowerSession, wanted: _SessionPartition) -> bool:
        if wanted.replica is None:
            return False
        seconds = self._throttle.delay(wanted.replica, session.broker_id)
        if seconds > 0:
            del session.ready[wanted.key]
            asyncio.get_running_loop().call_later(seconds, session.mark_ready, wanted.key)
        return seconds > 0

    def _read_partition_chunks(
        self, session: FollowerSession, wanted: _SessionPartition, bytes_left: int, is_first: bool
    ) -> list[PartitionChunk]:
        """Return the chunks of a partition for a fetch response: one per segment file, none if the response is full."""
        position = wanted.position
        try:
            replica = self._get_leader_replica(session, position)
            diverging = replica.find_log_divergence(position.offset, position.last_epoch)
            if diverging is not None:
                return [_build_chunk(replica, wanted.key, diverging=diverging)]
            if not replica.can_extend_follower_from(position.offset):
                return [_build_chunk(replica, wanted.key, error=ErrorCode.OFFSET_OUT_OF_RANGE)]
            bytes_max = min(bytes_left, REPLICA_FETCH_PARTITION_BYTES_MAX)
            record_buffers = replica.read_for_follower(position.offset, bytes_max, min_one_batch=is_first)
        except CorruptRecords as error:
            if wanted.damaged_at != position.offset:
                wanted.damaged_at = position.offset
                logger.error(
                    "%s: fetch by node %d failed: records on this disk are damaged: %s",
                    wanted,
                    session.broker_id,
                    error,
                )
            return [PartitionChunk(*wanted.key, UNKNOWN, UNKNOWN, UNKNOWN, NO_RECORDS, error.code)]
        except KafkaError as error:
            return [PartitionChunk(*wanted.key, UNKNOWN, UNKNOWN, UNKNOWN, NO_RECORDS, error.code)]
        if not record_buffers and position.offset >= replica.log.log_end_offset:
            return [_build_chunk(replica, wanted.key)]
        return [_build_chunk(replica, wanted.key, records) for records in record_buffers]


def _build_chunk(
    replica: Replica,
    key: PartitionId,
    records: memoryview = NO_RECORDS,
    error: ErrorCode = ErrorCode.NONE,
    diverging: tuple[int, int] = (UNKNOWN, UNKNOWN),
) -> PartitionChunk:
    log = replica.log
    return PartitionChunk(
        *key, replica.high_watermark, log.log_start_offset, log.log_end_offset, records, error, *diverging
    )
