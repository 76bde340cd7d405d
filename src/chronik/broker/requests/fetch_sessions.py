"""Incremental fetch sessions (KIP-227): a client names only the partitions that changed since its last fetch.

If a session is unknown or its epoch does not match, the client has to create a new one. If the cache is full, the
response has session id 0, which means "no session". The module does no I/O, and callers pass the current time.

As in Kafka, a client may continue or close a session by its id on any connection. So ids are random, and a session
belongs to the principal and host that created it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from random import SystemRandom

import msgspec

from chronik.limits import FETCH_SESSION_IDLE_SECONDS, FETCH_SESSION_PARTITIONS_MAX, FETCH_SESSIONS_MAX
from chronik.principals import Principal
from chronik.protocol.errors import ErrorCode, KafkaError

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1

TopicKey = str | bytes
"""Identifier of a topic in a Fetch request: its name up to version 12, its id from version 13 on."""
PartitionKey = tuple[TopicKey, int]
SessionOwner = tuple[str, Principal]


class SessionPartition(msgspec.Struct):
    """A partition of a fetch session, with the offset from which the client fetches next."""

    topic: TopicKey
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1

    @property
    def key(self) -> PartitionKey:
        return self.topic, self.partition


class SentOffsets(msgspec.Struct):
    """The high watermark and log start offset that the client last received for a partition.

    Incremental responses omit unchanged partitions.
    """

    high_watermark: int
    log_start_offset: int


class FetchSession(msgspec.Struct):
    """A client's incremental fetch session (KIP-227), which remembers the fetched partitions."""

    id: int
    epoch: int
    last_used: float
    uses_topic_ids: bool
    """Whether the session uses topic ids instead of names."""
    owner: SessionOwner
    """The host and principal of the client that created the session."""
    partitions: OrderedDict[PartitionKey, SessionPartition] = msgspec.field(default_factory=OrderedDict)
    sent_offsets: dict[PartitionKey, SentOffsets] = msgspec.field(default_factory=dict)

    def update(self, changed: Iterable[SessionPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Add, change and remove partitions of the fetch session, as the client requests."""
        for key in forgotten:
            self.partitions.pop(key, None)
            self.sent_offsets.pop(key, None)
        for partition in changed:
            self.partitions[partition.key] = partition

    def must_include_partition(
        self, key: PartitionKey, high_watermark: int, log_start_offset: int, has_records: bool
    ) -> bool:
        """Return whether an incremental Fetch response must include the partition, and record its offsets."""
        if key not in self.partitions:
            return True  # removed by a later request on another connection
        before = self.sent_offsets.get(key)
        now = SentOffsets(high_watermark, log_start_offset)
        if has_records:
            self.partitions.move_to_end(key)  # otherwise a partition with much data could starve those after it
        if before == now and not has_records:
            return False
        self.sent_offsets[key] = now
        return True

    def record_partition_error(self, key: PartitionKey) -> None:
        """Record that an error was sent for the partition, so that the next response always includes the partition."""
        self.sent_offsets.pop(key, None)


def generate_session_id() -> int:
    return SystemRandom().randint(1, SESSION_ID_MAX)


class FetchSessionCache:
    """The fetch sessions of a broker, least recently used first (Kafka's `FetchSessionCache`)."""

    def __init__(
        self,
        sessions_max: int = FETCH_SESSIONS_MAX,
        partitions_max: int = FETCH_SESSION_PARTITIONS_MAX,
        choose_id: Callable[[], int] = generate_session_id,
    ) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._choose_id = choose_id
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def create(
        self, partitions: list[SessionPartition], now: float, *, uses_topic_ids: bool, owner: SessionOwner
    ) -> FetchSession | None:
        """Create and cache a fetch session for the partitions, or return None if the cache is full."""
        if not self._evict_sessions_for(len(partitions), now):
            return None
        session = FetchSession(self._generate_unused_session_id(), INITIAL_EPOCH + 1, now, uses_topic_ids, owner)
        session.update(partitions, ())
        self._sessions[session.id] = session
        self._partition_count += len(session.partitions)
        return session

    def resume(
        self,
        session_id: int,
        epoch: int,
        changed: Iterable[SessionPartition],
        forgotten: Iterable[PartitionKey],
        now: float,
        *,
        uses_topic_ids: bool,
        owner: SessionOwner,
    ) -> FetchSession:
        """Apply a request's changes to the client's fetch session, and return the session.

        Raises:
            KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids is not uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._partition_count -= len(session.partitions)
        session.update(changed, forgotten)
        self._partition_count += len(session.partitions)
        if self._partition_count > self._partitions_max:
            self.close(session_id, owner)  # the client's next full fetch is answered without a session
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.last_used = now
        self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int, owner: SessionOwner) -> None:
        """Close a fetch session if it belongs to the given client."""
        session = self._sessions.get(session_id)
        if session is not None and session.owner == owner:
            del self._sessions[session_id]
            self._partition_count -= len(session.partitions)

    def _generate_unused_session_id(self) -> int:
        while (session_id := self._choose_id()) in self._sessions:
            pass
        return session_id

    def _evict_sessions_for(self, partition_count: int, now: float) -> bool:
        while not self._has_capacity(partition_count):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.last_used < FETCH_SESSION_IDLE_SECONDS:
                return False
            self.close(oldest.id, oldest.owner)
        return True

    def _has_capacity(self, partition_count: int) -> bool:
        partitions = self._partition_count + partition_count
        return len(self._sessions) < self._sessions_max and partitions <= self._partitions_max
