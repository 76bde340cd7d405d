"""Fetch (API key 1): reads records of partitions.

The response is sent when `min_bytes` are available, when a partition has an error, or after `max_wait_ms`. Fetch
sessions (version 7 and newer) keep a client's partitions between requests. With isolation level read_committed, a fetch
returns records up to the last stable offset and the list of aborted transactions. Difference from Kafka: fetches of
followers are rejected, because replication uses the peer protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import msgspec

from chronik.api.shared.authorization import NamePredicate, build_authorization_predicate
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.leaders import find_partition, iter_broker_endpoints
from chronik.api.shared.read_consistency import CONFIRM_TIMEOUT_SECONDS
from chronik.broker.replica import Replica
from chronik.broker.requests.delayed_fetch import DelayedFetch
from chronik.broker.requests.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    SessionPartition,
)
from chronik.limits import (
    FETCH_PARTITIONS_MAX,
    FETCH_RESPONSE_BYTES_MAX,
    FETCH_WAIT_SECONDS_MAX,
    MIB,
    RESPONSE_BYTES_MIN,
    RESPONSES_BYTES_MAX,
)
from chronik.metadata.chunking import iter_chunks
from chronik.metadata.records import Topic
from chronik.protocol.batch import end_offset
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode, KafkaError, RecordsTooLarge
from chronik.protocol.message_set import convert_to_message_set
from chronik.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchAbortedTransaction,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchNodeEndpoint,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import ConnectedClient, Disconnect, Reply, UnsentByteCounter
from chronik.scheduler import Work, yield_loop
from chronik.security.sasl.session import SaslSession

FIRST_VERSION_WITH_BATCHES = 4
FIRST_VERSION_WITH_SESSIONS = 7
RESPONSE_MEMORY_FRACTION = 4
PARTITIONS_PER_ITERATION_MAX = 2_000
FIRST_VERSION_WITH_NOT_AVAILABLE = 11
READ_COMMITTED = 1

FIRST_VERSION_WITH_MAGIC_1 = 2

READ_ON_BYTES = 1 * MIB
"""Minimum size in bytes of the next read after a read that returned no records.

Compaction leaves empty batches of 61 bytes, which are too small to be read one by one.
"""

FetchBatches = Callable[[], Reply[FetchResponse]]
"""A function that starts a fetch of record batches and returns its pending reply."""

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_ENDPOINTS = 16
UNKNOWN_OFFSET = -1
HIGH_WATERMARK_UNKNOWN = ErrorCode.OFFSET_NOT_AVAILABLE
"""Error code of a new partition leader that does not know its high watermark yet.

The fetch waits until the high watermark is known. Clients that do not support this error receive
NOT_LEADER_OR_FOLLOWER.
"""
LEADERSHIP_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(services: Services, request: FetchRequest, context: RequestContext) -> Reply[FetchResponse]:
    """Handle a Fetch request: return the records if enough are available, or wait for more."""
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        # An unauthenticated client that poses as a follower could advance the high watermark.
        return Reply.from_response(build_error_response(FetchResponse, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    _check_partition_count(request)
    wanted = _list_requested_partitions(request, context.version)
    may_read = None
    if services.authorizer is not None:
        may_read = build_authorization_predicate(services, context, AclOperation.READ, AclResourceType.TOPIC)
    if context.usage is not None and context.usage.is_fetch_throttled():
        return Reply.from_response(_build_empty_response(services, request, context, wanted, may_read))
    try:
        session = _resume_or_create_session(services, request, context, wanted, may_read)
    except KafkaError as error:
        return Reply.from_response(FetchResponse(error_code=error.code))
    if session is not None:
        wanted = list(session.partitions.values())
    pending_fetch = _PendingFetch(services, request, context, wanted, session, may_read)
    if context.version < FIRST_VERSION_WITH_BATCHES:
        return Reply.from_coroutine(fetch_message_sets(services, pending_fetch.start, wanted, context.version))
    return pending_fetch.start()


def _resume_or_create_session(
    services: Services,
    request: FetchRequest,
    context: RequestContext,
    wanted: list[SessionPartition],
    may_read: NamePredicate | None,
) -> FetchSession | None:
    """Resume or create the fetch session of a request; return None for a fetch without a session.

    Sessions do not keep unknown topics, because a client can invent any number of them. A fetch with an unknown topic
    gets no session; neither does one with a topic that the client may not read, so that the two look the same.
    """
    sessions, now = services.fetch_sessions, services.clock.monotonic()
    version, owner = context.version, (context.peer.host, context.peer.principal)
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    if version >= FIRST_VERSION_WITH_SESSIONS and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        if not _can_read_all_topics(services, wanted, by_id, may_read):
            sessions.close(request.session_id, owner)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        forgotten = _list_forgotten_partitions(request, version)
        return sessions.resume(
            request.session_id, request.session_epoch, wanted, forgotten, now, uses_topic_ids=by_id, owner=owner
        )
    if request.session_id != NO_SESSION:
        sessions.close(request.session_id, owner)
    if version >= FIRST_VERSION_WITH_SESSIONS and request.session_epoch == INITIAL_EPOCH:
        return (
            sessions.create(wanted, now, uses_topic_ids=by_id, owner=owner)
            if _can_read_all_topics(services, wanted, by_id, may_read)
            else None
        )
    return None


def _build_empty_response(
    services: Services,
    request: FetchRequest,
    context: RequestContext,
    wanted: list[SessionPartition],
    may_read: NamePredicate | None,
) -> FetchResponse:
    """Return an empty Fetch response for a client that exceeds its quota.

    An existing session continues and no session is created. As in Kafka, the response names no partition.
    """
    if context.version < FIRST_VERSION_WITH_SESSIONS or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return FetchResponse()
    try:
        session = _resume_or_create_session(services, request, context, wanted, may_read)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return FetchResponse(session_id=session.id if session else NO_SESSION)


def _can_read_all_topics(
    services: Services, wanted: list[SessionPartition], by_id: bool, may_read: NamePredicate | None
) -> bool:
    """Return whether all requested topics exist and the client may read them."""
    known: Mapping[Any, Topic] = services.image.topics_by_id if by_id else services.image.topics
    if not all(partition.topic in known for partition in wanted):
        return False
    return may_read is None or all(may_read(known[partition.topic].name) for partition in wanted)


def compute_response_bytes_max(outbox: UnsentByteCounter) -> int:
    """Return the maximum size in bytes of a Fetch response, a fraction of the free response memory."""
    left = RESPONSES_BYTES_MAX - outbox.unsent_bytes
    return max(min(left // RESPONSE_MEMORY_FRACTION, FETCH_RESPONSE_BYTES_MAX), RESPONSE_BYTES_MIN)


def compute_fetch_wait_seconds(max_wait_ms: int) -> float:
    """Return the maximum wait time of a fetch: the client's `max_wait_ms`, but at most FETCH_WAIT_SECONDS_MAX."""
    return min(max_wait_ms / 1000, FETCH_WAIT_SECONDS_MAX)


def _get_session_expiry(peer: ConnectedClient) -> float:
    """Return the monotonic time at which the client's SASL session expires.

    A fetch waits no longer than that: the client has to reauthenticate before its next request.
    """
    session = peer.session
    expires_at = session.expires_at if isinstance(session, SaslSession) else None
    return float("inf") if expires_at is None else expires_at


class _PendingFetch(Work):
    """A Fetch request in progress, which may wait until new records are appended to its partitions."""

    def __init__(
        self,
        services: Services,
        request: FetchRequest,
        context: RequestContext,
        wanted: list[SessionPartition],
        session: FetchSession | None,
        may_read: NamePredicate | None,
    ) -> None:
        super().__init__()
        self._services = services
        self._account = context.peer.account
        self._may_read = may_read
        self._request = request
        self._hurry = context.early_completion
        self._version = context.version
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._listener = context.listener
        self._requested_partitions = wanted
        self._session = session
        self._deadline = min(
            services.clock.monotonic() + compute_fetch_wait_seconds(request.max_wait_ms),
            _get_session_expiry(context.peer),
        )
        self._usage = context.usage
        self._requested_bytes = min(request.max_bytes, services.configs.broker_int("fetch.max.bytes"))
        self._max_bytes = 0
        self._arrived: DelayedFetch
        self._reply: Reply[FetchResponse]

    def start(self) -> Reply[FetchResponse]:
        """Read the requested partitions, and respond or wait for more records."""
        if len(self._requested_partitions) > PARTITIONS_PER_ITERATION_MAX:
            return Reply.from_coroutine(self._start_fetch_in_slices())
        return self._start_fetch()

    async def _start_fetch_in_slices(self) -> FetchResponse:
        """Read the requested partitions over several event-loop iterations, then respond or wait for records.

        If there is anything to return (records or errors), that is the response. Otherwise all partitions are read
        again in the event-loop iteration that registers for append notifications.
        """
        self._max_bytes = self._compute_response_bytes_max()
        found = self._build_empty_fetch_result()
        for chunk in iter_chunks(self._requested_partitions):
            read_partitions(self._services, chunk, self._max_bytes, self._version, found, self._may_read)
            await yield_loop()
        services = self._services
        is_doubtful = services.may_be_replaced() or (found.needs_leadership_confirmation and services.store.is_shared)
        if not is_doubtful and self.can_respond(found):
            return self.build_response(found)
        return cast(FetchResponse, await self._start_fetch())

    def _start_fetch(self) -> Reply[FetchResponse]:
        services = self._services
        if services.may_be_replaced() and not services.is_fenced():
            return Reply.from_coroutine(self._read_after_leadership_confirmation())
        result = self.read()
        if result.needs_leadership_confirmation and services.store.is_shared:
            return Reply.from_coroutine(self._read_after_leadership_confirmation())
        return (
            Reply.from_response(self.build_response(result))
            if self.can_respond(result)
            else self.wait_for_records(result)
        )

    def read(self) -> FetchedPartitions:
        self._max_bytes = self._compute_response_bytes_max()
        found = self._build_empty_fetch_result()
        return read_partitions(
            self._services, self._requested_partitions, self._max_bytes, self._version, found, self._may_read
        )

    def _build_empty_fetch_result(self) -> FetchedPartitions:
        return FetchedPartitions([], [], 0, False, self._committed_only)

    def _compute_response_bytes_max(self) -> int:
        allowed = min(self._requested_bytes, compute_response_bytes_max(self._services.outbox))
        return allowed if self._usage is None else min(allowed, self._usage.fetch_bytes_max)

    async def _read_after_leadership_confirmation(self) -> FetchResponse:
        """Wait until a majority has confirmed this node's leadership, then read the partitions or return errors."""
        try:
            await self._services.store.read_barrier(CONFIRM_TIMEOUT_SECONDS)
        except KafkaError:
            return self.build_response(
                add_not_leader_errors(self._requested_partitions, self._build_empty_fetch_result())
            )
        result = self.read()
        if self.can_respond(result):
            return self.build_response(result)
        return cast(FetchResponse, await self.wait_for_records(result))

    def can_respond(self, result: FetchedPartitions) -> bool:
        """Return whether the fetch has enough bytes or an error to respond, or must not wait any longer."""
        return (
            self._count_missing_bytes(result) <= 0
            or result.is_urgent
            or not self._requested_partitions
            or self._remaining_seconds <= 0
            or self._services.replicas.is_stopping
            or self._hurry.must_complete
            or has_more_records(result)
        )

    def wait_for_records(self, result: FetchedPartitions) -> Reply[FetchResponse]:
        """Register for append notifications, then wait until enough bytes are available or the timeout expires.

        Call this in the event-loop iteration that found too few bytes: an append in between would be missed.
        """
        self._reply = Reply()
        self._reply.on_cancel = self._cancel_fetch_wait
        self._register_delayed_fetch(result)
        return self._reply

    def _register_delayed_fetch(self, result: FetchedPartitions) -> None:
        authorizer = self._services.authorizer  # also a wake-up source: a permission may be revoked
        self._arrived = DelayedFetch(
            result.replicas if authorizer is None else [*result.replicas, authorizer],
            self._count_missing_bytes(result),
            self._remaining_seconds,
            self._wake,
            self._hurry,
            committed_only=self._committed_only,
        )

    def _wake(self) -> None:
        if not self._reply.is_cancelled:
            self._services.scheduler.run(self._account, self)

    def resume(self) -> None:
        """Read the partitions again after an append, and respond if there are enough records."""
        if self._reply.is_cancelled:
            return
        try:
            if (
                self._usage is not None and self._usage.is_fetch_throttled()
            ):  # other clients have used up the same quota
                response = self._build_empty_response()
            else:
                result = self.read()
                if not self.can_respond(result):
                    self._register_delayed_fetch(result)
                    return
                response = self.build_response(result)
        except Exception as error:  # on any error, the client must not be left waiting
            self._reply.fail(error)
        else:
            del self._arrived  # break the reference cycle, which would keep all replicas
            self._reply.resolve(response)

    def _build_empty_response(self) -> FetchResponse:
        """Return an empty Fetch response because of the quota, and close a session that this request created.

        Clients do not accept an empty throttled response as the first one of a session.
        """
        session = self._session
        if session is not None and self._request.session_epoch == INITIAL_EPOCH:
            self._services.fetch_sessions.close(session.id, session.owner)
            session = None
        return FetchResponse(session_id=session.id if session else NO_SESSION)

    def _cancel_fetch_wait(self) -> None:
        """Stop waiting for new records, because the client has disconnected."""
        self._arrived.cancel()
        self._services.scheduler.withdraw(self._account, self)
        del self._arrived

    def build_response(self, result: FetchedPartitions) -> FetchResponse:
        """Build the Fetch response, and charge the size of its records to the client's quota."""
        if self._usage is not None:
            self._usage.charge_fetch(result.records_bytes)
        response = _build_response(result, self._session, self._request.session_epoch > INITIAL_EPOCH, self._version)
        if result.is_urgent and self._version >= FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = _list_leader_endpoints(self._services, result, self._listener)
        return response

    def _count_missing_bytes(self, result: FetchedPartitions) -> int:
        return min(self._request.min_bytes, self._max_bytes) - result.records_bytes

    @property
    def _remaining_seconds(self) -> float:
        return self._deadline - self._services.clock.monotonic()


def _list_leader_endpoints(services: Services, result: FetchedPartitions, listener: str) -> list[FetchNodeEndpoint]:
    """Return the endpoints of the partition leaders that a Fetch response refers to."""
    leaders = {data.current_leader.leader_id for _, data in result.partitions}
    return [
        FetchNodeEndpoint(node_id=broker.id, host=place.host, port=place.port, rack=broker.rack)
        for broker, place in iter_broker_endpoints(services.image.brokers, leaders, listener)
    ]


def _build_response(
    result: FetchedPartitions, session: FetchSession | None, incremental: bool, version: int
) -> FetchResponse:
    """Build the Fetch response, from which an incremental fetch session omits unchanged partitions."""
    response = FetchResponse(session_id=session.id if session else NO_SESSION)
    by_topic: dict[str | bytes, FetchableTopicResponse] = {}
    for partition, data in result.partitions:
        if data.error_code == HIGH_WATERMARK_UNKNOWN and version < FIRST_VERSION_WITH_NOT_AVAILABLE:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if session is not None:
            has_changes = session.must_include_partition(
                partition.key, data.high_watermark, data.log_start_offset, bool(data.records)
            )
            if data.error_code:
                session.record_partition_error(partition.key)
            elif incremental and not has_changes and data.diverging_epoch.epoch < 0:
                continue
        topic = by_topic.get(partition.topic)
        if topic is None:
            topic = FetchableTopicResponse()
            if version >= FIRST_VERSION_WITH_TOPIC_IDS:
                assert isinstance(partition.topic, bytes)
                topic.topic_id = partition.topic
            else:
                assert isinstance(partition.topic, str)
                topic.topic = partition.topic
            by_topic[partition.topic] = topic
            response.responses.append(topic)
        topic.partitions.append(data)
    return response


def _check_partition_count(request: FetchRequest) -> None:
    """Raise Disconnect if a Fetch request contains too many partitions.

    The response would contain all of them.
    """
    count = 0
    for topic in request.topics:  # a plain loop, because this runs for every fetch
        count += len(topic.partitions)
    if count > FETCH_PARTITIONS_MAX:
        raise Disconnect(f"fetch request with more than {FETCH_PARTITIONS_MAX} partitions")


def _list_requested_partitions(request: FetchRequest, version: int) -> list[SessionPartition]:
    """Return the partitions of a Fetch request without duplicates; the last occurrence wins, as in Kafka."""
    wanted: dict[tuple[str | bytes, int], SessionPartition] = {}
    for topic in request.topics:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        for partition in topic.partitions:
            wanted[key, partition.partition] = SessionPartition(
                topic=key,
                partition=partition.partition,
                fetch_offset=partition.fetch_offset,
                max_bytes=partition.partition_max_bytes,
                current_leader_epoch=partition.current_leader_epoch,
                last_fetched_epoch=partition.last_fetched_epoch,
                log_start_offset=partition.log_start_offset,
            )
    return list(wanted.values())


def _list_forgotten_partitions(request: FetchRequest, version: int) -> Iterator[tuple[str | bytes, int]]:
    """Yield the partitions that a Fetch request removes from its fetch session."""
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        for partition in topic.partitions:
            yield key, partition


async def fetch_message_sets(
    services: Services, fetch: FetchBatches, wanted: list[SessionPartition], version: int
) -> FetchResponse:
    """Fetch record batches and convert them to message sets, the record format of old clients.

    Read further if compaction has removed all records of a batch.

    Otherwise a client would fetch the same offset forever, because only messages advance its position.
    """
    by_key = {partition.key: partition for partition in wanted}
    while True:
        response = cast(FetchResponse, await fetch())
        conversion = _MessageSetConversion(services, version, response)
        must_read_on = False
        for topic in response.responses:
            for data in topic.partitions:
                if data.records:
                    must_read_on |= await conversion.convert_partition_batches(
                        data, by_key[topic.topic, data.partition_index]
                    )
        if not must_read_on or conversion.has_result:
            return response


class _MessageSetConversion:
    """The conversion of a Fetch response's record batches to message sets, the format of old clients."""

    def __init__(self, services: Services, version: int, response: FetchResponse) -> None:
        self._openings = services.decompressor
        self._magic = 1 if version >= FIRST_VERSION_WITH_MAGIC_1 else 0
        self._loop_budget = DecompressionBudget.for_event_loop()
        self._budget = DecompressionBudget.for_request(
            sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)
        )
        self._size = 0
        self.has_result = any(data.error_code for topic in response.responses for data in topic.partitions)

    async def convert_partition_batches(self, data: PartitionData, wanted: SessionPartition) -> bool:
        """Convert a partition's record batches to message sets.

        Return True if they contain no records and the fetch must read further.
        """
        batches = data.records
        assert isinstance(batches, bytes | memoryview)
        data.records = b""
        if self._size >= FETCH_RESPONSE_BYTES_MAX:
            return False  # the next fetch returns them
        convert = partial(convert_to_message_set, batches, self._magic, first_offset=wanted.fetch_offset)
        try:
            data.records = await self._openings.run(convert, self._loop_budget, self._budget)
        except RecordsTooLarge as error:
            if not self._size:  # otherwise other partitions have used up the limit
                self._fail(data, error.code)
            return False
        except KafkaError as error:
            self._fail(data, error.code)
            return False
        self._size += len(data.records)
        if data.records:
            self.has_result = True
            return False
        wanted.fetch_offset = end_offset(batches)
        wanted.max_bytes = max(wanted.max_bytes, READ_ON_BYTES)
        return True

    def _fail(self, data: PartitionData, code: ErrorCode) -> None:
        data.error_code = code
        self.has_result = True


class FetchedPartitions(msgspec.Struct):
    """The records and errors from one read of the partitions of a Fetch request."""

    partitions: list[tuple[SessionPartition, PartitionData]]
    replicas: list[Replica]
    """The replicas of the partitions, in the same order; shorter than `partitions` if a partition has an error."""
    records_bytes: int
    is_urgent: bool
    """Whether the response must not wait for records: it contains an error or a diverging epoch."""
    committed_only: bool = False
    """Whether only committed records are read (isolation level read_committed)."""

    @property
    def needs_leadership_confirmation(self) -> bool:
        """Return whether a majority must confirm this node's leadership because an offset is out of range.

        A leader that was replaced may lack records of its successor, and a consumer would reset its position.
        """
        return self.is_urgent and any(data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE for _, data in self.partitions)


def has_more_records(result: FetchedPartitions) -> bool:
    """Return whether a partition has more readable records than this read has returned.

    The fetch then need not wait.

    A read stops at the end of a segment or at a size limit.
    """
    return result.records_bytes > 0 and any(
        data.records
        and end_offset(_get_records_view(data)) < replica.readable_end_offset(committed_only=result.committed_only)
        for (_, data), replica in zip(result.partitions, result.replicas, strict=True)
    )


def add_not_leader_errors(wanted: Iterable[SessionPartition], result: FetchedPartitions) -> FetchedPartitions:
    """Add a result with NOT_LEADER_OR_FOLLOWER for each requested partition.

    After an error for the whole request, some clients only retry instead of looking for new leaders.
    """
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    result.partitions += [(each, build_fetch_partition_error(each.partition, code)) for each in wanted]
    result.is_urgent = True
    return result


def read_partitions(
    services: Services,
    wanted: Iterable[SessionPartition],
    max_bytes: int,
    version: int,
    result: FetchedPartitions,
    may_read: NamePredicate | None = None,
) -> FetchedPartitions:
    """Read up to `max_bytes` bytes of records from the partitions, and add them to the result."""
    if services.is_fenced():
        return add_not_leader_errors(wanted, result)
    budget = max_bytes - result.records_bytes
    for partition in wanted:
        try:
            if may_read is not None:
                _require_read_permission(services, partition.topic, may_read)
            replica = _find(services, partition, version)
            data = _read(replica, partition, budget, result)
            result.replicas.append(replica)
        except KafkaError as error:
            data = build_fetch_partition_error(partition.partition, error.code)
            if error.code in LEADERSHIP_ERRORS and version >= FIRST_VERSION_WITH_ENDPOINTS:
                _set_current_leader(services, partition, data)
        if (data.error_code and data.error_code != HIGH_WATERMARK_UNKNOWN) or data.diverging_epoch.epoch >= 0:
            result.is_urgent = True
        if data.records:
            size = len(_get_records_view(data))
            result.records_bytes += size
            budget -= size
        result.partitions.append((partition, data))
    return result


def _set_current_leader(services: Services, wanted: SessionPartition, data: PartitionData) -> None:
    """Set the id and epoch of the current leader in a partition's Fetch response.

    Versions from 12 on have a field for the leader's id, but only versions from 16 on for its endpoint. An id alone may
    belong to a broker that the client does not know, which is fatal for kafka-python.
    """
    partition = find_partition(services, wanted.topic, wanted.partition)
    if partition is not None:
        data.current_leader = FetchLeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)


def _get_records_view(data: PartitionData) -> memoryview:
    assert isinstance(data.records, memoryview)
    return data.records


def _require_read_permission(services: Services, topic: str | bytes, may_read: NamePredicate) -> None:
    """Raise TOPIC_AUTHORIZATION_FAILED unless the client may read the topic.

    An unknown topic id has no name to authorize; it fails later as unknown.
    """
    if isinstance(topic, bytes):
        known = services.image.topics_by_id.get(topic)
        if known is None:
            return
        topic = known.name
    if not may_read(topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _find(services: Services, partition: SessionPartition, version: int) -> Replica:
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        assert isinstance(partition.topic, bytes)
        return services.replicas.get_leader_by_id(partition.topic, partition.partition)
    assert isinstance(partition.topic, str)
    return services.replicas.get_leader(partition.topic, partition.partition)


def _read(replica: Replica, wanted: SessionPartition, budget: int, result: FetchedPartitions) -> PartitionData:
    replica.check_leader_epoch(wanted.current_leader_epoch)
    if not replica.is_high_watermark_known:
        # Earlier leaders may have returned a higher one. Wait until it is known.
        return build_fetch_partition_error(wanted.partition, HIGH_WATERMARK_UNKNOWN)
    log, high_watermark = replica.log, replica.high_watermark
    stable = log.last_stable_offset(high_watermark)
    data = PartitionData(
        partition_index=wanted.partition,
        high_watermark=high_watermark,
        last_stable_offset=stable,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if result.committed_only else None,
        records=b"",
    )
    if wanted.last_fetched_epoch >= 0:
        if wanted.fetch_offset < log.log_start_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        diverging = replica.find_log_divergence(
            wanted.fetch_offset, wanted.last_fetched_epoch, ErrorCode.OFFSET_OUT_OF_RANGE
        )
        if diverging is not None:
            data.diverging_epoch = FetchEpochEndOffset(*diverging)
            return data
    # Return the first batch even if it exceeds every limit; otherwise its consumer would make no progress.
    size, is_first = min(wanted.max_bytes, budget), result.records_bytes == 0
    if size > 0 or is_first:
        # An offset between the readable end and the log end is valid, although there are no records to read yet.
        end = stable if result.committed_only else high_watermark
        data.records = log.read(wanted.fetch_offset, max(size, 0), end, min_one_batch=is_first)
        if result.committed_only and data.records and log.has_aborted_transactions:
            data.aborted_transactions = [
                FetchAbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in log.find_aborted_transactions(data.records, wanted.fetch_offset)
            ]
    return data


def build_fetch_partition_error(partition: int, code: ErrorCode) -> PartitionData:
    """Build a partition's Fetch response that contains an error code and no records."""
    return PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=UNKNOWN_OFFSET,
        last_stable_offset=UNKNOWN_OFFSET,
        log_start_offset=UNKNOWN_OFFSET,
        aborted_transactions=None,
        records=b"",
    )
