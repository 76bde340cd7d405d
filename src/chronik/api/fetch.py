"""Fetch (API key 1): reads records of partitions.

The response is sent when `min_bytes` are available, when a partition has an error, or after `max_wait_ms`. Fetch
sessions (version 7 and newer) keep a client's partitions between requests. With isolation level read_committed, a fetch
returns records up to the last stable offset and the list of aborted transactions. Difference from Kafka: fetches of
followers are rejected, because replication uses the peer protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from chronik.api.fetching.look import (
    FIRST_VERSION_WITH_ENDPOINTS,
    FIRST_VERSION_WITH_TOPIC_IDS,
    UNTOLD,
    Answer,
    is_cut_off,
    look,
    lost,
)
from chronik.api.fetching.message_sets import with_message_sets
from chronik.api.shared.admission import CONFIRM_SECONDS
from chronik.api.shared.context import Context, Services
from chronik.api.shared.leaders import places
from chronik.api.shared.rights import Judge, may_do
from chronik.broker.requests.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchPartition, FetchSession
from chronik.broker.requests.purgatory import RecordsArrived
from chronik.exchange import Disconnect, Outbox, Peer, Reply
from chronik.limits import (
    FETCH_PARTITIONS_MAX,
    FETCH_RESPONSE_BYTES_MAX,
    FETCH_WAIT_SECONDS_MAX,
    RESPONSE_BYTES_LEAST,
    RESPONSES_BYTES_MAX,
)
from chronik.metadata.records import Topic
from chronik.metadata.slices import in_pieces
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.failures import failed
from chronik.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
)
from chronik.protocol.permissions import Operation, ResourceType
from chronik.scheduler import Work, yield_loop
from chronik.security.sasl.session import Session

FIRST_VERSION_WITH_BATCHES = 4
FIRST_VERSION_WITH_SESSIONS = 7
RESPONSE_MEMORY_FRACTION = 4
PARTITIONS_LOOKED_AT_AT_ONCE = 2_000
FIRST_VERSION_WITH_NOT_AVAILABLE = 11
READ_COMMITTED = 1


def handle(services: Services, request: FetchRequest, context: Context) -> Reply[FetchResponse]:
    """Answer in the same event-loop iteration if there are enough records; wait for them otherwise."""
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        # An unauthenticated client that poses as a follower could advance the high watermark.
        return Reply.of(failed(FetchResponse, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    _check_partition_count(request)
    wanted = _requested_partitions(request, context.version)
    may_read = None
    if services.authorizer is not None:
        may_read = may_do(services, context, Operation.READ, ResourceType.TOPIC)
    if context.usage is not None and context.usage.must_fetch_later():
        return Reply.of(_empty_response(services, request, context, wanted, may_read))
    try:
        session = _session(services, request, context, wanted, may_read)
    except KafkaError as error:
        return Reply.of(FetchResponse(error_code=error.code))
    if session is not None:
        wanted = list(session.wanted.values())
    pending_fetch = _Fetching(services, request, context, wanted, session, may_read)
    if context.version < FIRST_VERSION_WITH_BATCHES:
        return Reply.of_coroutine(with_message_sets(services, pending_fetch.begin, wanted, context.version))
    return pending_fetch.begin()


def _session(
    services: Services,
    request: FetchRequest,
    context: Context,
    wanted: list[FetchPartition],
    may_read: Judge | None,
) -> FetchSession | None:
    """Return the session that the request creates or continues, after updating it, or None.

    Sessions do not keep unknown topics, because a client can invent any number of them. A fetch with an unknown topic
    gets no session; neither does one with a topic that the client may not read, so that the two look the same.
    """
    sessions, now = services.fetch_sessions, services.clock.monotonic()
    version, owner = context.version, (context.peer.host, context.peer.principal)
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    if version >= FIRST_VERSION_WITH_SESSIONS and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        if not _all_readable(services, wanted, by_id, may_read):
            sessions.end(request.session_id, owner)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        forgotten = _forgotten_partitions(request, version)
        return sessions.resume(
            request.session_id, request.session_epoch, wanted, forgotten, now, by_id=by_id, owner=owner
        )
    if request.session_id != NO_SESSION:
        sessions.end(request.session_id, owner)
    if version >= FIRST_VERSION_WITH_SESSIONS and request.session_epoch == INITIAL_EPOCH:
        return (
            sessions.begin(wanted, now, by_id=by_id, owner=owner)
            if _all_readable(services, wanted, by_id, may_read)
            else None
        )
    return None


def _empty_response(
    services: Services, request: FetchRequest, context: Context, wanted: list[FetchPartition], may_read: Judge | None
) -> FetchResponse:
    """Return an empty response for a client that exceeds its quota.

    An existing session continues and no session is created. As in Kafka, the response names no partition.
    """
    if context.version < FIRST_VERSION_WITH_SESSIONS or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return FetchResponse()
    try:
        session = _session(services, request, context, wanted, may_read)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return FetchResponse(session_id=session.id if session else NO_SESSION)


def _all_readable(services: Services, wanted: list[FetchPartition], by_id: bool, may_read: Judge | None) -> bool:
    """Return whether all requested topics exist and the client may read them."""
    known: Mapping[Any, Topic] = services.image.topics_by_id if by_id else services.image.topics
    if not all(partition.topic in known for partition in wanted):
        return False
    return may_read is None or all(may_read(known[partition.topic].name) for partition in wanted)


def room_for_answer(outbox: Outbox) -> int:
    """Return the maximum size of a fetch response: a fraction of the free response memory."""
    left = RESPONSES_BYTES_MAX - outbox.unsent_bytes
    return max(min(left // RESPONSE_MEMORY_FRACTION, FETCH_RESPONSE_BYTES_MAX), RESPONSE_BYTES_LEAST)


def patience_seconds(max_wait_ms: int) -> float:
    """Return how long a fetch may wait: the client's `max_wait_ms`, limited to FETCH_WAIT_SECONDS_MAX."""
    return min(max_wait_ms / 1000, FETCH_WAIT_SECONDS_MAX)


def _session_expiry(peer: Peer) -> float:
    """Return when the client's SASL session expires, by the node's monotonic clock.

    A fetch waits no longer than that: the client has to reauthenticate before its next request.
    """
    session = peer.session
    expires_at = session.expires_at if isinstance(session, Session) else None
    return float("inf") if expires_at is None else expires_at


class _Fetching(Work):
    """A fetch request until it is answered, resumed by the scheduler when new records may complete it."""

    def __init__(
        self,
        services: Services,
        request: FetchRequest,
        context: Context,
        wanted: list[FetchPartition],
        session: FetchSession | None,
        may_read: Judge | None,
    ) -> None:
        super().__init__()
        self._services = services
        self._account = context.peer.account
        self._may_read = may_read
        self._request = request
        self._hurry = context.hurry
        self._version = context.version
        self._committed_only = request.isolation_level == READ_COMMITTED
        self._listener = context.listener
        self._requested_partitions = wanted
        self._session = session
        self._deadline = min(
            services.clock.monotonic() + patience_seconds(request.max_wait_ms), _session_expiry(context.peer)
        )
        self._usage = context.usage
        self._requested_bytes = min(request.max_bytes, services.configs.broker_int("fetch.max.bytes"))
        self._max_bytes = 0
        self._arrived: RecordsArrived
        self._reply: Reply[FetchResponse]

    def begin(self) -> Reply[FetchResponse]:
        """Read the partitions; wait for records if there are not enough."""
        if len(self._requested_partitions) > PARTITIONS_LOOKED_AT_AT_ONCE:
            return Reply.of_coroutine(self._start_in_slices())
        return self._start()

    async def _start_in_slices(self) -> FetchResponse:
        """Read a large number of partitions in slices.

        If there is anything to return (records or errors), that is the response. Otherwise all partitions are read
        again in the event-loop iteration that registers for append notifications.
        """
        self._max_bytes = self._response_bytes_max()
        found = self._empty_result()
        for chunk in in_pieces(self._requested_partitions):
            look(self._services, chunk, self._max_bytes, self._version, found, self._may_read)
            await yield_loop()
        services = self._services
        is_doubtful = services.may_be_replaced() or (found.is_doubtful and services.store.is_shared)
        if not is_doubtful and self.is_enough(found):
            return self.response(found)
        return cast(FetchResponse, await self._start())

    def _start(self) -> Reply[FetchResponse]:
        services = self._services
        if services.may_be_replaced() and not services.is_fenced():
            return Reply.of_coroutine(self._read_when_confirmed())
        result = self.look()
        if result.is_doubtful and services.store.is_shared:
            return Reply.of_coroutine(self._read_when_confirmed())
        return Reply.of(self.response(result)) if self.is_enough(result) else self.wait_for_records(result)

    def look(self) -> Answer:
        self._max_bytes = self._response_bytes_max()
        found = self._empty_result()
        return look(self._services, self._requested_partitions, self._max_bytes, self._version, found, self._may_read)

    def _empty_result(self) -> Answer:
        return Answer([], [], 0, False, self._committed_only)

    def _response_bytes_max(self) -> int:
        allowed = min(self._requested_bytes, room_for_answer(self._services.outbox))
        return allowed if self._usage is None else min(allowed, self._usage.fetch_bytes_max)

    async def _read_when_confirmed(self) -> FetchResponse:
        """Read after a majority has confirmed that this node leads; otherwise return NOT_LEADER_OR_FOLLOWER errors."""
        try:
            await self._services.store.read_barrier(CONFIRM_SECONDS)
        except KafkaError:
            return self.response(lost(self._requested_partitions, self._empty_result()))
        result = self.look()
        if self.is_enough(result):
            return self.response(result)
        return cast(FetchResponse, await self.wait_for_records(result))

    def is_enough(self, result: Answer) -> bool:
        """Return whether the response can be sent: enough bytes, an error, or no reason to wait."""
        return (
            self._missing_bytes(result) <= 0
            or result.urgent
            or not self._requested_partitions
            or self._remaining_seconds <= 0
            or self._services.replicas.stopping
            or self._hurry.is_pressing
            or is_cut_off(result)
        )

    def wait_for_records(self, result: Answer) -> Reply[FetchResponse]:
        """Register for append notifications, then wait until enough bytes are available or the timeout expires.

        Call this in the event-loop iteration that found too few bytes: an append in between would be missed.
        """
        self._reply = Reply()
        self._reply.on_cancel = self._cancel_wait
        self._register(result)
        return self._reply

    def _register(self, result: Answer) -> None:
        authorizer = self._services.authorizer  # also a wake-up source: a permission may be revoked
        self._arrived = RecordsArrived(
            result.replicas if authorizer is None else [*result.replicas, authorizer],
            self._missing_bytes(result),
            self._remaining_seconds,
            self._wake,
            self._hurry,
            committed_only=self._committed_only,
        )

    def _wake(self) -> None:
        if not self._reply.is_cancelled:
            self._services.scheduler.run(self._account, self)

    def resume(self) -> None:
        """Read again, and resolve the reply if there are enough records."""
        if self._reply.is_cancelled:
            return
        try:
            if self._usage is not None and self._usage.must_fetch_later():  # other clients have used up the same quota
                response = self._empty_response()
            else:
                result = self.look()
                if not self.is_enough(result):
                    self._register(result)
                    return
                response = self.response(result)
        except Exception as error:  # on any error, the client must not be left waiting
            self._reply.fail(error)
        else:
            del self._arrived  # break the reference cycle, which would keep all replicas
            self._reply.resolve(response)

    def _empty_response(self) -> FetchResponse:
        """Return an empty response because of the quota, and close a session that this request has just created.

        Clients do not accept an empty throttled response as the first one of a session.
        """
        session = self._session
        if session is not None and self._request.session_epoch == INITIAL_EPOCH:
            self._services.fetch_sessions.end(session.id, session.owner)
            session = None
        return FetchResponse(session_id=session.id if session else NO_SESSION)

    def _cancel_wait(self) -> None:
        """Cancel the wait, because the client has disconnected."""
        self._arrived.stop()
        self._services.scheduler.withdraw(self._account, self)
        del self._arrived

    def response(self, result: Answer) -> FetchResponse:
        """Build the response, and charge the records to the client's quota."""
        if self._usage is not None:
            self._usage.fetched(result.records_bytes)
        response = _response(result, self._session, self._request.session_epoch > INITIAL_EPOCH, self._version)
        if result.urgent and self._version >= FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = _endpoints(self._services, result, self._listener)
        return response

    def _missing_bytes(self, result: Answer) -> int:
        return min(self._request.min_bytes, self._max_bytes) - result.records_bytes

    @property
    def _remaining_seconds(self) -> float:
        return self._deadline - self._services.clock.monotonic()


def _endpoints(services: Services, result: Answer, listener: str) -> list[NodeEndpoint]:
    """Return the endpoints of the leaders that the response names."""
    leaders = {data.current_leader.leader_id for _, data in result.partitions}
    return [
        NodeEndpoint(node_id=broker.id, host=place.host, port=place.port, rack=broker.rack)
        for broker, place in places(services.image.brokers, leaders, listener)
    ]


def _response(result: Answer, session: FetchSession | None, incremental: bool, version: int) -> FetchResponse:
    """Build the response; an incremental one leaves out partitions that have not changed."""
    response = FetchResponse(session_id=session.id if session else NO_SESSION)
    by_topic: dict[str | bytes, FetchableTopicResponse] = {}
    for partition, data in result.partitions:
        if data.error_code == UNTOLD and version < FIRST_VERSION_WITH_NOT_AVAILABLE:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if session is not None:
            has_changes = session.is_news(partition.key, data.high_watermark, data.log_start_offset, bool(data.records))
            if data.error_code:
                session.failed(partition.key)
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
    """Raise Disconnect if a request names too many partitions, because the response would name them all."""
    count = 0
    for topic in request.topics:  # a plain loop, because this runs for every fetch
        count += len(topic.partitions)
    if count > FETCH_PARTITIONS_MAX:
        raise Disconnect(f"fetch request with more than {FETCH_PARTITIONS_MAX} partitions")


def _requested_partitions(request: FetchRequest, version: int) -> list[FetchPartition]:
    """Return the requested partitions without duplicates; the last occurrence wins, as in Kafka."""
    wanted: dict[tuple[str | bytes, int], FetchPartition] = {}
    for topic in request.topics:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        for partition in topic.partitions:
            wanted[key, partition.partition] = FetchPartition(
                topic=key,
                partition=partition.partition,
                fetch_offset=partition.fetch_offset,
                max_bytes=partition.partition_max_bytes,
                current_leader_epoch=partition.current_leader_epoch,
                last_fetched_epoch=partition.last_fetched_epoch,
                log_start_offset=partition.log_start_offset,
            )
    return list(wanted.values())


def _forgotten_partitions(request: FetchRequest, version: int) -> Iterator[tuple[str | bytes, int]]:
    """Yield the partitions that the request removes from its session."""
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        for partition in topic.partitions:
            yield key, partition
