"""Fetch: records of partitions.

Answers at once when there is enough to say, and otherwise when there is, or when the client's patience ends. Sessions
(7 and newer) keep what a client wants between requests.
Whoever reads only what was committed (`isolation_level` 1) gets records up to the last stable offset, waits for that,
and is told which transactions among them were aborted. Missing: fetches of followers are refused here.
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
SHARES_OF_ROOM = 4
PARTITIONS_LOOKED_AT_AT_ONCE = 2_000
FIRST_VERSION_WITH_NOT_AVAILABLE = 11
READ_COMMITTED = 1


def handle(services: Services, request: FetchRequest, context: Context) -> Reply[FetchResponse]:
    """Answer within the same event-loop iteration if there are enough records, and wait for them otherwise."""
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        # A stranger that claims to be a follower could move the high watermark.
        return Reply.of(failed(FetchResponse, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    _check_count(request)
    wanted = _wanted(request, context.version)
    may_read = None
    if services.authorizer is not None:
        may_read = may_do(services, context, Operation.READ, ResourceType.TOPIC)
    if context.usage is not None and context.usage.must_fetch_later():
        return Reply.of(_without_records(services, request, context, wanted, may_read))
    try:
        session = _session(services, request, context, wanted, may_read)
    except KafkaError as error:
        return Reply.of(FetchResponse(error_code=error.code))
    if session is not None:
        wanted = list(session.wanted.values())
    fetching = _Fetching(services, request, context, wanted, session, may_read)
    if context.version < FIRST_VERSION_WITH_BATCHES:
        return Reply.of_coroutine(with_message_sets(services, fetching.begin, wanted, context.version))
    return fetching.begin()


def _session(
    services: Services,
    request: FetchRequest,
    context: Context,
    wanted: list[FetchPartition],
    may_read: Judge | None,
) -> FetchSession | None:
    """Returns the session that the request begins or goes on with, brought up to date; None when it has none.

    Names that nobody knows are not kept: anybody can make them up. Whoever asks for one gets along without a session;
    and so does who may not read it, or it could be told from the others.
    """
    sessions, now = services.fetch_sessions, services.clock.monotonic()
    version, owner = context.version, (context.peer.host, context.peer.principal)
    by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    if version >= FIRST_VERSION_WITH_SESSIONS and request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
        if not _are_known(services, wanted, by_id, may_read):
            sessions.end(request.session_id, owner)
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        forgotten = _forgotten(request, version)
        return sessions.resume(
            request.session_id, request.session_epoch, wanted, forgotten, now, by_id=by_id, owner=owner
        )
    if request.session_id != NO_SESSION:
        sessions.end(request.session_id, owner)
    if version >= FIRST_VERSION_WITH_SESSIONS and request.session_epoch == INITIAL_EPOCH:
        return (
            sessions.begin(wanted, now, by_id=by_id, owner=owner)
            if _are_known(services, wanted, by_id, may_read)
            else None
        )
    return None


def _without_records(
    services: Services, request: FetchRequest, context: Context, wanted: list[FetchPartition], may_read: Judge | None
) -> FetchResponse:
    """Answers a client that is above its quota. A session goes on, and none begins: as in Kafka, no partition is named,
    and clients know what that means."""
    if context.version < FIRST_VERSION_WITH_SESSIONS or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        return FetchResponse()
    try:
        session = _session(services, request, context, wanted, may_read)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    return FetchResponse(session_id=session.id if session else NO_SESSION)


def _are_known(services: Services, wanted: list[FetchPartition], by_id: bool, may_read: Judge | None) -> bool:
    known: Mapping[Any, Topic] = services.image.topics_by_id if by_id else services.image.topics
    if not all(partition.topic in known for partition in wanted):
        return False
    return may_read is None or all(may_read(known[partition.topic].name) for partition in wanted)


def room_for_answer(outbox: Outbox) -> int:
    """Returns a share of what is left, so that there is always some for the next one."""
    left = RESPONSES_BYTES_MAX - outbox.unsent_bytes
    return max(min(left // SHARES_OF_ROOM, FETCH_RESPONSE_BYTES_MAX), RESPONSE_BYTES_LEAST)


def patience_seconds(max_wait_ms: int) -> float:
    return min(max_wait_ms / 1000, FETCH_WAIT_SECONDS_MAX)


def _session_expiry(peer: Peer) -> float:
    """Return when the client's SASL session expires, by the node's monotonic clock. A fetch waits no longer than that:
    the client has to re-authenticate before its next request."""
    session = peer.session
    expires_at = session.expires_at if isinstance(session, Session) else None
    return float("inf") if expires_at is None else expires_at


class _Fetching(Work):
    """A fetch request until it is answered. It is work for the scheduler when new records may complete it."""

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
        self._wanted = wanted
        self._session = session
        self._deadline = min(
            services.clock.monotonic() + patience_seconds(request.max_wait_ms), _session_expiry(context.peer)
        )
        self._usage = context.usage
        self._bytes_asked_for = min(request.max_bytes, services.configs.broker_int("fetch.max.bytes"))
        self._max_bytes = 0
        self._arrived: RecordsArrived
        self._reply: Reply[FetchResponse]

    def begin(self) -> Reply[FetchResponse]:
        if len(self._wanted) > PARTITIONS_LOOKED_AT_AT_ONCE:
            return Reply.of_coroutine(self._begin_in_slices())
        return self._begin()

    async def _begin_in_slices(self) -> FetchResponse:
        """Looks at very many partitions in slices. If there is something to say (records, or errors of partitions that
        a client made up), that is the answer; if not, all are looked at again in the turn in which listening begins."""
        self._max_bytes = self._bytes_allowed()
        found = self._nothing_yet()
        for some in in_pieces(self._wanted):
            look(self._services, some, self._max_bytes, self._version, found, self._may_read)
            await yield_loop()
        services = self._services
        is_doubtful = services.may_be_replaced() or (found.is_doubtful and services.store.is_shared)
        if not is_doubtful and self.is_enough(found):
            return self.response(found)
        return cast(FetchResponse, await self._begin())

    def _begin(self) -> Reply[FetchResponse]:
        services = self._services
        if services.may_be_replaced() and not services.is_fenced():
            return Reply.of_coroutine(self._when_confirmed())
        answer = self.look()
        if answer.is_doubtful and services.store.is_shared:
            return Reply.of_coroutine(self._when_confirmed())
        return Reply.of(self.response(answer)) if self.is_enough(answer) else self.wait_for_records(answer)

    def look(self) -> Answer:
        self._max_bytes = self._bytes_allowed()
        found = self._nothing_yet()
        return look(self._services, self._wanted, self._max_bytes, self._version, found, self._may_read)

    def _nothing_yet(self) -> Answer:
        return Answer([], [], 0, False, self._committed_only)

    def _bytes_allowed(self) -> int:
        allowed = min(self._bytes_asked_for, room_for_answer(self._services.outbox))
        return allowed if self._usage is None else min(allowed, self._usage.fetch_bytes_max)

    async def _when_confirmed(self) -> FetchResponse:
        """A majority has confirmed that this node still leads; if none does, clients look for whoever does."""
        try:
            await self._services.store.read_barrier(CONFIRM_SECONDS)
        except KafkaError:
            return self.response(lost(self._wanted, self._nothing_yet()))
        answer = self.look()
        if self.is_enough(answer):
            return self.response(answer)
        return cast(FetchResponse, await self.wait_for_records(answer))

    def is_enough(self, answer: Answer) -> bool:
        return (
            self._missing(answer) <= 0
            or answer.urgent
            or not self._wanted
            or self._patience <= 0
            or self._services.replicas.stopping
            or self._hurry.is_pressing
            or is_cut_off(answer)
        )

    def wait_for_records(self, answer: Answer) -> Reply[FetchResponse]:
        """Register for append notifications, then wait until enough bytes are available or the timeout expires.

        Call this in the event-loop iteration in which `answer` was found not to be enough: an append in between would
        be missed.
        """
        self._reply = Reply()
        self._reply.on_cancel = self._stop_listening
        self._listen(answer)
        return self._reply

    def _listen(self, answer: Answer) -> None:
        authorizer = self._services.authorizer  # wakes it as well: what is read may be taken away
        self._arrived = RecordsArrived(
            answer.replicas if authorizer is None else [*answer.replicas, authorizer],
            self._missing(answer),
            self._patience,
            self._wake,
            self._hurry,
            committed_only=self._committed_only,
        )

    def _wake(self) -> None:
        if not self._reply.is_cancelled:
            self._services.scheduler.run(self._account, self)

    def resume(self) -> None:
        """Look for records again, and resolve the reply if there are enough."""
        if self._reply.is_cancelled:
            return
        try:
            if self._usage is not None and self._usage.must_fetch_later():  # others have fetched by the same quota
                response = self._without_records()
            else:
                answer = self.look()
                if not self.is_enough(answer):
                    self._listen(answer)
                    return
                response = self.response(answer)
        except Exception as error:  # a bug; the client must not be left waiting
            self._reply.fail(error)
        else:
            del self._arrived  # it refers to this object, and to all replicas
            self._reply.resolve(response)

    def _without_records(self) -> FetchResponse:
        """A session that was to begin with this answer has none to begin with: clients take an empty one that tells
        them to wait for no beginning, and would not use it."""
        session = self._session
        if session is not None and self._request.session_epoch == INITIAL_EPOCH:
            self._services.fetch_sessions.end(session.id, session.owner)
            session = None
        return FetchResponse(session_id=session.id if session else NO_SESSION)

    def _stop_listening(self) -> None:
        self._arrived.stop()
        self._services.scheduler.withdraw(self._account, self)
        del self._arrived

    def response(self, answer: Answer) -> FetchResponse:
        if self._usage is not None:
            self._usage.fetched(answer.records_bytes)
        response = _response(answer, self._session, self._request.session_epoch > INITIAL_EPOCH, self._version)
        if answer.urgent and self._version >= FIRST_VERSION_WITH_ENDPOINTS:
            response.node_endpoints = _endpoints(self._services, answer, self._listener)
        return response

    def _missing(self, answer: Answer) -> int:
        return min(self._request.min_bytes, self._max_bytes) - answer.records_bytes

    @property
    def _patience(self) -> float:
        return self._deadline - self._services.clock.monotonic()


def _endpoints(services: Services, answer: Answer, listener: str) -> list[NodeEndpoint]:
    leaders = {data.current_leader.leader_id for _, data in answer.partitions}
    return [
        NodeEndpoint(node_id=broker.id, host=place.host, port=place.port, rack=broker.rack)
        for broker, place in places(services.image.brokers, leaders, listener)
    ]


def _response(answer: Answer, session: FetchSession | None, incremental: bool, version: int) -> FetchResponse:
    response = FetchResponse(session_id=session.id if session else NO_SESSION)
    by_topic: dict[str | bytes, FetchableTopicResponse] = {}
    for partition, data in answer.partitions:
        if data.error_code == UNTOLD and version < FIRST_VERSION_WITH_NOT_AVAILABLE:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if session is not None:
            news = session.is_news(partition.key, data.high_watermark, data.log_start_offset, bool(data.records))
            if data.error_code:
                session.failed(partition.key)
            elif incremental and not news and data.diverging_epoch.epoch < 0:
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


def _check_count(request: FetchRequest) -> None:
    """Raises Disconnect: an answer would have to name them all."""
    count = 0
    for topic in request.topics:  # spelled out: every fetch is counted
        count += len(topic.partitions)
    if count > FETCH_PARTITIONS_MAX:
        raise Disconnect(f"a fetch of more than {FETCH_PARTITIONS_MAX} partitions")


def _wanted(request: FetchRequest, version: int) -> list[FetchPartition]:
    """Returns each partition once, however often it is named; as in Kafka, what was said of it last counts."""
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


def _forgotten(request: FetchRequest, version: int) -> Iterator[tuple[str | bytes, int]]:
    for topic in request.forgotten_topics_data:
        key = topic.topic_id if version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.topic
        for partition in topic.partitions:
            yield key, partition
