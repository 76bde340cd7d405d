"""Produce (API key 0): appends records to partitions.

Records are appended while the request is handled. The response waits until they are as durable as the request demands:
synced by the leader (acks=1) or by every in-sync replica (acks=all). A request with acks=0 gets no response; if it
fails, the connection is closed.

A batch is appended asynchronously, and delays the connection's next request to preserve the order, if
- the topic requires its records to be examined and that takes long, so a thread decompresses them;
- the topic requires registered schemas, and a record names one that this node does not know: the batch is rejected only
  after a majority has confirmed that the schema is not registered;
- it leaves a gap in the producer's sequence: the error is returned only after a majority has confirmed that this node
  leads, because a replaced leader lacks the records of its successor, and librdkafka resets its state or fails;
- it is the first of a transaction, which must be known to be open and to contain the partition.
The leadership of the partition and the client's permissions are checked again afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from chronik.api.shared.authorization import NamePredicate, build_authorization_predicate, is_authorized_on_cluster
from chronik.api.shared.context import RequestContext, Services
from chronik.api.shared.leaders import find_partition, iter_broker_endpoints
from chronik.api.shared.read_consistency import CONFIRM_TIMEOUT_SECONDS
from chronik.api.shared.transactions import confirm_transaction_state
from chronik.broker.replica import Replica
from chronik.broker.requests.produced_records import (
    BudgetFactory,
    ProduceRules,
    ValidatedRecords,
    validate_produced_records,
)
from chronik.broker.requests.schema_validation import RecordNamesMissingError
from chronik.broker.uncommitted import can_pipeline_requests
from chronik.limits import PRODUCE_NAMES_BYTES_MAX
from chronik.log.producer_state import ProducerStateManager
from chronik.metadata.commands.transactions import NO_RECORD_INDEX, TransactionPartition
from chronik.metadata.image import Image
from chronik.metadata.records import TransactionState
from chronik.metadata.stores.store import MetadataStore, StoreClosedError
from chronik.protocol.batch import BatchHeader, is_transactional
from chronik.protocol.budget import DecompressionBudget
from chronik.protocol.error_responses import build_error_response
from chronik.protocol.errors import ErrorCode, InvalidRecord, KafkaError, RecordsTooLarge
from chronik.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceLeaderIdAndEpoch,
    ProduceNodeEndpoint,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import Disconnect, Reply

NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
NO_OFFSET = -1
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_OF_TRANSACTIONS_V2 = 12
TIMEOUT_SECONDS_MAX = 300.0
"""Maximum time in seconds to wait until produced records are durable.

A disk that takes longer has failed. The limit also applies to acks=1, for which the client's timeout is ignored.
"""


PARTITIONS_PER_ITERATION = 2000
"""Maximum number of partitions that a produce request appends to in one event-loop iteration.

Each takes about 10 µs.
"""

NAME_SEARCHES_MAX = 3
"""Maximum number of searches for record names per batch. A second one is needed if a schema was just registered."""

FIRST_VERSION_WITH_TOPIC_IDS = 13
MANY_TOPICS = 100
"""Number of topics above which the total size of a produce request's topic names is checked."""

INTERNAL_TOPICS_CLIENT = "__admin_client"
"""Client id with which Kafka's tools write to internal topics.

The client id is not authenticated. With an authorizer, writing to internal topics requires the CLUSTER_ACTION
permission instead.
"""


class _MajorityConfirmationRequired(Exception):
    """A record batch cannot be appended or rejected before a majority confirms the leadership or transaction.

    Either it leaves a gap in the producer's sequence, or it is the first batch (`first`) of a transaction that may not
    be open.
    """

    def __init__(self, first: TransactionStart | None = None) -> None:
        super().__init__()
        self.first = first


class _SchemasUnconfirmed(Exception):
    """Records name schemas that are not valid according to this node's metadata image, which may be stale."""


class _PartitionEntry(NamedTuple):
    """The record batches for one partition in a produce request, and the list for the partition's response."""

    topic: TopicProduceData
    partition: PartitionProduceData
    answers: list[PartitionProduceResponse]


class PendingAppend(msgspec.Struct):
    """A record batch that was appended but is not durable yet, with the partition's Produce response."""

    replica: Replica
    header: BatchHeader
    answer: PartitionProduceResponse
    is_complete: bool = False

    def fail(self, code: ErrorCode) -> None:
        """Set the error code of the partition's Produce response."""
        self.answer.error_code = code
        self.answer.base_offset = NO_OFFSET


def handle(services: Services, request: ProduceRequest, context: RequestContext) -> Reply[ProduceResponse]:
    """Append the records of a Produce request, and respond when they are as durable as `acks` requires."""
    if request.acks not in (NO_ACKS, LEADER_ACKS, ALL_ACKS):
        return Reply.from_response(failure(request, ErrorCode.INVALID_REQUIRED_ACKS))
    if len(request.topic_data) > MANY_TOPICS:
        check_topic_names_size(request)
    if not is_transaction_authorized(services, request, context):
        return Reply.from_response(failure(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    pending_produce = _PendingProduce(services, request, context)
    if pending_produce.append_until_blocked():
        pending_produce.resolve_when_durable()
        return pending_produce.reply
    return Reply.from_coroutine(pending_produce.append_and_wait())


class _PendingProduce:
    """A Produce request in progress, whose record batches are appended in the order of the request."""

    __slots__ = (
        "_acks",
        "_blocked_entry",
        "_context",
        "_loop_budget",
        "_may_write",
        "_pending_count",
        "_remaining_entries",
        "_request",
        "_response",
        "_services",
        "_timer",
        "_unconfirmed",
        "_waiting",
        "reply",
    )

    def __init__(self, services: Services, request: ProduceRequest, context: RequestContext) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._acks = request.acks
        self._may_write = build_topic_write_predicate(services, context)
        self._response = ProduceResponse()
        self._waiting: list[PendingAppend] = []
        self._pending_count = 0
        """Number of the request's appended batches that are neither durable nor failed."""
        self._timer: asyncio.TimerHandle | None = None
        self.reply: Reply[ProduceResponse] = Reply(is_pipelined=True)
        """Resolved when every appended batch is as durable as `acks` requires, or when the timeout expires."""
        self._remaining_entries = self._iter_partition_entries()
        self._blocked_entry: _PartitionEntry | None = None
        self._loop_budget: DecompressionBudget | None = None
        self._unconfirmed: _MajorityConfirmationRequired | None = None
        """Reason why the next batch needs a confirmation by a majority before it can be appended, or None."""

    def _iter_partition_entries(self) -> Iterator[_PartitionEntry]:
        for topic in self._request.topic_data:
            answers: list[PartitionProduceResponse] = []
            self._response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
            for partition in topic.partition_data:
                yield _PartitionEntry(topic, partition, answers)

    def append_until_blocked(self) -> bool:
        """Append the request's record batches until one must wait, and return whether none had to wait.

        It stops before a batch that is too large to be decompressed on the event loop or that needs a confirmation, and
        after PARTITIONS_PER_ITERATION partitions.
        """
        self._loop_budget = None
        for number, entry in enumerate(self._remaining_entries):
            try:
                if number == PARTITIONS_PER_ITERATION:
                    raise RecordsTooLarge("the event loop must run other work first")
                entry.answers.append(self._append_entry(entry))
            except (
                RecordsTooLarge,
                RecordNamesMissingError,
                _SchemasUnconfirmed,
                _MajorityConfirmationRequired,
            ) as reason:
                self._blocked_entry, self._unconfirmed = (
                    entry,
                    reason if isinstance(reason, _MajorityConfirmationRequired) else None,
                )
                return False
        return True

    async def append_and_wait(self) -> ProduceResponse | None:
        """Append the request's remaining record batches in order, and wait until all batches are durable."""
        budget = DecompressionBudget.for_request(_count_record_bytes(self._request))
        is_done = False
        while not is_done:
            assert self._blocked_entry is not None
            self._blocked_entry.answers.append(
                await self._confirm_and_append(self._blocked_entry, self._unconfirmed, budget)
            )
            is_done = self.append_until_blocked()
        self.resolve_when_durable()
        return await self.reply

    def resolve_when_durable(self) -> None:
        """Resolve the reply to the Produce request when all appended batches are durable.

        Every batch must have been appended or rejected.

        The connection handles its next request before that only while followers have a short backlog.
        """
        response = self._response
        if self._acks == NO_ACKS:
            disconnect_on_error(response)
            self.reply.resolve(None)
            return
        if self._context.version >= FIRST_VERSION_WITH_LEADERS:
            add_current_leaders(self._services, response, self._context)
        if self._pending_count:
            timeout_seconds = self._request.timeout_ms / 1000 if self._acks == ALL_ACKS else TIMEOUT_SECONDS_MAX
            patience = min(max(timeout_seconds, 0.0), TIMEOUT_SECONDS_MAX)
            self._timer = asyncio.get_running_loop().call_later(patience, self._resolve_reply)
            self.reply.on_cancel = self._timer.cancel
            self.reply.may_pipeline = partial(can_pipeline_requests, [appended.replica for appended in self._waiting])
            self.reply.is_pipelined = self.reply.may_pipeline()
        else:
            self._resolve_reply()

    def _get_inline_decompression_budget(self) -> DecompressionBudget:
        if self._loop_budget is None:
            self._loop_budget = DecompressionBudget.for_event_loop()
        return self._loop_budget

    def _append_entry(self, entry: _PartitionEntry) -> PartitionProduceResponse:
        """Append a partition's record batches to its log, and return the partition's Produce response.

        Raises:
            RecordsTooLarge: The batch is too large to be decompressed on the event loop.
            RecordNamesMissingError: Schemas that the batch names are too large to be searched on the event loop.
            _SchemasUnconfirmed: The registered schemas must be confirmed first.
            _MajorityConfirmationRequired: The node's state must be confirmed first.
        """
        try:
            replica = self._find(entry)
            incoming = self._validate_records(entry, replica.produce_rules, self._get_inline_decompression_budget)
            if _needs_schema_check(replica, incoming):
                self._check_schemas(replica, incoming, is_certain=False)
            return self._append_validated_records(entry, replica, incoming, is_certain=False)
        except RecordsTooLarge:
            raise
        except KafkaError as error:
            if self._needs_leadership_confirmation(error):
                raise _MajorityConfirmationRequired from error
            return self._reject_partition_entry(entry, error)

    def _needs_leadership_confirmation(self, error: KafkaError) -> bool:
        """Return whether a majority must confirm this node's leadership before a batch gets this error.

        A newer leader might accept the batch.
        """
        return error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._services.store.is_shared

    async def _confirm_and_append(
        self, entry: _PartitionEntry, doubt: _MajorityConfirmationRequired | None, budget: DecompressionBudget
    ) -> PartitionProduceResponse:
        try:
            if doubt is not None:
                await self._confirm_leadership_or_transaction(doubt.first)
        except KafkaError as error:
            return self._reject_partition_entry(entry, error)
        return await self._decompress_and_append(entry, doubt, budget)

    async def _confirm_leadership_or_transaction(self, first: TransactionStart | None) -> None:
        """Confirm this node's leadership by a majority, or the transaction's state for its first batch.

        Raise KafkaError on failure.
        """
        services, transactional_id = self._services, self._request.transactional_id
        if first is None:
            try:
                await services.store.read_barrier(CONFIRM_TIMEOUT_SECONDS)
            except KafkaError:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
        elif transactional_id is not None and self._context.version >= FIRST_VERSION_OF_TRANSACTIONS_V2:
            by_id = self._context.version >= FIRST_VERSION_WITH_TOPIC_IDS
            partitions = list_addable_transaction_partitions(
                self._request, services.image, self._may_write, by_id=by_id
            )
            await add_partitions(services, transactional_id, first.header, partitions)
        else:
            await first.confirm(services)

    async def _decompress_and_append(
        self, entry: _PartitionEntry, cleared: _MajorityConfirmationRequired | None, budget: DecompressionBudget
    ) -> PartitionProduceResponse:
        """Decompress a record batch, in a thread if it is large, and append it to the partition's log.

        `cleared` is the reason for the preceding confirmation by a majority, or None if there was none.
        """
        try:
            replica = self._find(entry)
            epoch, rules = replica.leader_epoch, replica.produce_rules
            at_once = (
                None if cleared is None else DecompressionBudget.for_event_loop()
            )  # without a doubt, the batch was too large
            incoming = await self._services.decompressor.run(
                lambda within: self._validate_records(entry, rules, lambda: within), at_once, budget
            )
            if _needs_schema_check(replica, incoming):
                await self._confirm_schemas(replica, incoming)
            if self._find(entry) is not replica or (replica.leader_epoch, replica.produce_rules) != (epoch, rules):
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, "The partition changed while its records were validated"
                )
            return self._append_validated_records(entry, replica, incoming, is_certain=cleared is not None)
        except _MajorityConfirmationRequired as doubt:
            return await self._confirm_and_append(entry, doubt, budget)
        except KafkaError as error:
            is_leader_confirmed = cleared is not None and cleared.first is None
            if self._needs_leadership_confirmation(error) and not is_leader_confirmed:
                return await self._confirm_and_append(entry, _MajorityConfirmationRequired(), budget)
            return self._reject_partition_entry(entry, error)

    def _find(self, entry: _PartitionEntry) -> Replica:
        """Return the leader replica to which a produce request may append, or raise KafkaError."""
        services = self._services
        if services.is_fenced():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica = find_writable_replica(services, self._context, entry.topic, entry.partition.index, self._may_write)
        if self._acks == ALL_ACKS and not replica.has_enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return replica

    def _validate_records(self, entry: _PartitionEntry, rules: ProduceRules, budget: BudgetFactory) -> ValidatedRecords:
        records = entry.partition.records
        view = memoryview(records) if records is not None else None
        return validate_produced_records(view, rules, self._context.version, self._services.clock.now_ms(), budget)

    def _check_schemas(self, replica: Replica, incoming: ValidatedRecords, *, is_certain: bool) -> None:
        """Check that the records name schemas that are registered for the topic.

        Raises:
            InvalidRecord: Records name other schemas.
            RecordNamesMissingError: A thread must search large schemas first.
            _SchemasUnconfirmed: Records seem to name other schemas, but the image may be stale (not `is_certain`).
        """
        services = self._services
        errors = services.schema_validator.find_errors(
            incoming.schemas, replica.produce_rules, replica.topic_name, services.image.schemas
        )
        if errors and services.store.is_shared and not is_certain:
            raise _SchemasUnconfirmed
        if errors:
            raise InvalidRecord.from_reasons(errors)

    async def _confirm_schemas(self, replica: Replica, incoming: ValidatedRecords) -> None:
        """Check the schemas of records. Confirm the image by a majority, and search large schemas, as often as needed.

        Raises:
            InvalidRecord: Records name schemas that are not registered for the topic.
            KafkaError: NOT_ENOUGH_REPLICAS, because no majority confirmed the image.
        """
        is_certain, rounds_left = False, NAME_SEARCHES_MAX
        while True:
            try:
                self._check_schemas(replica, incoming, is_certain=is_certain)
                return
            except RecordNamesMissingError as missing:
                if not rounds_left:
                    raise KafkaError(
                        ErrorCode.NOT_ENOUGH_REPLICAS, "Large schemas change too often to be validated: retry"
                    ) from None
                rounds_left -= 1
                await self._services.schema_validator.load_names(missing.schemas)
            except _SchemasUnconfirmed:
                await self._confirm_image()
                is_certain = True

    async def _confirm_image(self) -> None:
        try:
            await self._services.store.read_barrier(CONFIRM_TIMEOUT_SECONDS)
        except (KafkaError, StoreClosedError) as error:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, "No majority confirmed which schemas are registered: retry"
            ) from error

    def _check_transaction_is_open(self, replica: Replica, header: BatchHeader, *, is_certain: bool) -> None:
        """Raise KafkaError unless the record batch belongs to an open transaction of this partition.

        Raises:
            KafkaError: There is no such transaction.
            _Unconfirmed: The image must be confirmed to be current first.
        """
        owner = self._services.image.find_transaction_by_producer_id(header.producer_id)
        if (
            owner is not None and owner.transactional_id != self._request.transactional_id
        ):  # the client's WRITE permission was checked for the request's transactional id
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if continues_transaction(replica.log.producers, header):
            return
        first = TransactionStart(header, TransactionPartition(replica.topic_id, replica.index))
        refusal = first.rejection_code(self._services.image)
        if refusal is None and first.is_durable(self._services.store):
            return
        if refusal is None or not is_certain:
            raise _MajorityConfirmationRequired(first)
        if refusal is ErrorCode.TRANSACTION_ABORTABLE and self._context.version < FIRST_VERSION_WITH_ABORTABLE:
            refusal = ErrorCode.INVALID_TXN_STATE
        raise KafkaError(refusal, f"{replica} is not part of an open transaction of producer {header.producer_id}")

    def _append_validated_records(
        self, entry: _PartitionEntry, replica: Replica, incoming: ValidatedRecords, *, is_certain: bool
    ) -> PartitionProduceResponse:
        refused, index = self._services.rejected_batches, entry.partition.index
        header = incoming.headers[0]
        if refused:
            refused.check(_key(entry.topic), index, header, replica.log.producers)
        if header.is_transactional:
            self._check_transaction_is_open(replica, header, is_certain=is_certain)
        info = replica.append(incoming)
        # The batch is in the log, so its records, most of the request's memory, can be released before the sync.
        entry.partition.records = None
        answer = PartitionProduceResponse(
            index=index,
            base_offset=info.base_offset,
            log_append_time_ms=incoming.log_append_time_ms,
            log_start_offset=replica.log.log_start_offset,
        )
        # Register in the event-loop iteration of the append: in the next one the node may have lost or regained the
        # leadership, and the offsets may belong to other records.
        acks, end_offset = self._acks, info.last_offset + 1
        if acks == ALL_ACKS and not replica.is_committed(end_offset):
            replica.commit_waiters.add(end_offset, self._register_pending_append(replica, incoming, answer))
        elif acks == LEADER_ACKS and not replica.is_durable(end_offset):
            replica.durability_waiters.add(end_offset, self._register_pending_append(replica, incoming, answer))
        return answer

    def _register_pending_append(
        self, replica: Replica, incoming: ValidatedRecords, answer: PartitionProduceResponse
    ) -> Callable[[ErrorCode], None]:
        """Track an appended batch until it is durable, and return the callback that completes it."""
        appended = PendingAppend(replica, incoming.headers[0], answer)
        self._waiting.append(appended)
        self._pending_count += 1
        return partial(self._complete_pending_append, appended)

    def _complete_pending_append(self, appended: PendingAppend, code: ErrorCode) -> None:
        appended.is_complete = True
        if code is not ErrorCode.NONE:
            by_id = self._context.version >= FIRST_VERSION_WITH_TOPIC_IDS
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and by_id:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            # The next leader may lack this batch, so later batches must not be reported as out of sequence.
            replica = appended.replica
            key = replica.topic_id if by_id else replica.topic_name
            self._services.rejected_batches.record_rejected_header(key, replica.index, appended.header, code)
            appended.fail(code)
        self._pending_count -= 1
        if self._pending_count == 0 and self._timer is not None:
            self._timer.cancel()
            if code is ErrorCode.NONE:
                self._resolve_reply()
            else:  # the caller is in the middle of a metadata change, after which the leader may be another one
                asyncio.get_running_loop().call_soon(self._resolve_reply)

    def _resolve_reply(self) -> None:
        """Resolve the reply to the Produce request, with REQUEST_TIMED_OUT for batches that are not durable yet."""
        if self.reply.is_resolved or self.reply.is_cancelled:
            return
        for appended in self._waiting:
            if not appended.is_complete:
                appended.fail(ErrorCode.REQUEST_TIMED_OUT)
        version = self._context.version
        if version >= FIRST_VERSION_WITH_LEADERS and any(each.answer.error_code for each in self._waiting):
            add_current_leaders(self._services, self._response, self._context)
        self.reply.resolve(self._response)

    def _reject_partition_entry(self, entry: _PartitionEntry, error: KafkaError) -> PartitionProduceResponse:
        """Return a partition's Produce response with the error, and record the rejection of its batch."""
        partition = entry.partition
        self._services.rejected_batches.record(_key(entry.topic), partition.index, partition.records, error.code)
        return PartitionProduceResponse(
            index=partition.index,
            error_code=error.code,
            base_offset=NO_OFFSET,
            record_errors=list_rejected_records(error),
            error_message=error.message,
        )


def _needs_schema_check(replica: Replica, incoming: ValidatedRecords) -> bool:
    """Return whether the schemas of records must be registered.

    A retry of a stored batch is acknowledged even if a schema was deleted in between: an error would say that its
    records were not written.
    """
    return bool(incoming.schemas) and not replica.log.producers.is_stored(incoming.headers[0])


def _count_record_bytes(request: ProduceRequest) -> int:
    return sum(len(each.records or b"") for topic in request.topic_data for each in topic.partition_data)


def failure(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """Return the error response to a Produce request that failed as a whole.

    Raise Disconnect for a request with acks=0, because it has no response.
    """
    if request.acks == NO_ACKS and request.topic_data:
        raise Disconnect(f"produce request with acks=0 failed: {code.name}")
    return build_error_response(ProduceResponse, request, code)


def _key(topic: TopicProduceData) -> str | bytes:
    return topic.name or topic.topic_id


def check_topic_names_size(request: ProduceRequest) -> None:
    """Raise Disconnect if the topic names are too long in total, because the response repeats them."""
    if sum(len(topic.name) for topic in request.topic_data) > PRODUCE_NAMES_BYTES_MAX:
        raise Disconnect(f"produce request with topic names of more than {PRODUCE_NAMES_BYTES_MAX} characters")


def add_current_leaders(services: Services, response: ProduceResponse, context: RequestContext) -> None:
    """Add the current leader and its endpoint to each partition's NOT_LEADER_OR_FOLLOWER response."""
    if services.is_fenced():
        return  # the image of a fenced broker may be stale and name the broker itself as leader
    leaders = set()
    for topic in response.responses:
        key = topic.topic_id if context.version >= FIRST_VERSION_WITH_TOPIC_IDS else topic.name
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                partition = find_partition(services, key, answer.index)
                if partition is not None:
                    answer.current_leader = ProduceLeaderIdAndEpoch(
                        leader_id=partition.leader, leader_epoch=partition.leader_epoch
                    )
                    leaders.add(partition.leader)
    if leaders:
        response.node_endpoints = [
            ProduceNodeEndpoint(node_id=broker.id, host=place.host, port=place.port, rack=broker.rack)
            for broker, place in iter_broker_endpoints(services.image.brokers, leaders, context.listener)
        ]


def list_rejected_records(error: KafkaError) -> list[BatchIndexAndErrorMessage]:
    """Return the indexes of invalid records in a batch, so that the producer can resend the other records.

    If they have no reasons of their own, the reason is the message of the partition's response.
    """
    if not isinstance(error, InvalidRecord):
        return []
    reasons = error.record_reasons or (None,) * len(error.record_indexes)
    return [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
        for index, reason in zip(error.record_indexes, reasons, strict=True)
    ]


def disconnect_on_error(response: ProduceResponse) -> None:
    """Raise Disconnect if a partition of a Produce request with acks=0 failed.

    Such a request has no response.
    """
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code != ErrorCode.NONE:
                raise Disconnect(
                    f"produce request with acks=0 failed: {ErrorCode(partition.error_code).name} "
                    f"for partition {topic.name}-{partition.index}"
                )


def is_transaction_authorized(services: Services, request: ProduceRequest, context: RequestContext) -> bool:
    """Return whether the client may use the transactional id of a Produce request.

    A request without transactional batches needs no permission.
    """
    if services.authorizer is None:
        return True
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if partition.records is not None and is_transactional(partition.records):
                may_write_topic = build_authorization_predicate(
                    services, context, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID
                )
                return request.transactional_id is not None and may_write_topic(request.transactional_id)
    return True


def build_topic_write_predicate(services: Services, context: RequestContext) -> NamePredicate | None:
    """Return the predicate that authorizes writing to a topic, or None without an authorizer."""
    if services.authorizer is None:
        return None
    return build_authorization_predicate(services, context, AclOperation.WRITE, AclResourceType.TOPIC)


def find_writable_replica(
    services: Services,
    context: RequestContext,
    topic: TopicProduceData,
    index: int,
    may_write_topic: NamePredicate | None,
) -> Replica:
    """Return the replica that leads the partition and to which the client may write, or raise KafkaError.

    Raises:
        KafkaError: The topic does not exist, is internal, or the client may not write to it. Authorization comes
            first, so that only authorized clients learn whether a topic exists.
    """
    by_id = context.version >= FIRST_VERSION_WITH_TOPIC_IDS
    if may_write_topic is not None:
        known = services.image.topics_by_id.get(topic.topic_id) if by_id else None
        name = topic.name if not by_id else None if known is None else known.name
        if name is not None and not may_write_topic(name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    replicas = services.replicas
    replica = replicas.get_leader_by_id(topic.topic_id, index) if by_id else replicas.get_leader(topic.name, index)
    if services.image.topics_by_id[replica.topic_id].internal and not _may_write_internal(services, context):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{replica.topic_name} is an internal topic")
    return replica


def _may_write_internal(services: Services, context: RequestContext) -> bool:
    if services.authorizer is None:
        return context.client_id == INTERNAL_TOPICS_CLIENT
    return is_authorized_on_cluster(services, context, AclOperation.CLUSTER_ACTION)


def continues_transaction(producers: ProducerStateManager, header: BatchHeader) -> bool:
    """Return whether a record batch continues an open transaction or duplicates a stored batch.

    Raises:
        KafkaError: The batch is out of sequence.
    """
    producer = producers.get(header.producer_id)
    if producer is None:
        return False
    is_open = header.producer_id in producers.transactions.open and producer.epoch == header.producer_epoch
    return is_open or producers.check_batches((header,)) is not None


class TransactionStart(NamedTuple):
    """The first record batch of a transaction in a partition, which is not appended yet."""

    header: BatchHeader
    partition: TransactionPartition

    def rejection_code(self, image: Image) -> ErrorCode | None:
        """Return the error code if the batch's transaction is not open or lacks the partition, otherwise None."""
        transaction = image.find_transaction_by_producer_id(self.header.producer_id)
        if transaction is None:
            return ErrorCode.TRANSACTION_ABORTABLE
        if self.header.producer_epoch < transaction.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        is_open = transaction.state is TransactionState.ONGOING
        is_open = is_open and self.header.producer_epoch == transaction.producer_epoch
        return None if is_open and self.partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE

    def is_durable(self, store: MetadataStore) -> bool:
        """Return whether the open transaction is on stable storage and survives a power failure."""
        return store.is_durable(self._find_transaction_change_index(store.image))

    async def confirm(self, services: Services) -> None:
        """Wait until the transaction is open and durable in the metadata, or a majority confirms the image.

        Raises:
            KafkaError: NOT_ENOUGH_REPLICAS, because neither could be confirmed in time.
        """
        await confirm_transaction_state(services, lambda: self.rejection_code(services.image) is None)
        try:
            await services.store.wait_durable(
                self._find_transaction_change_index(services.image), CONFIRM_TIMEOUT_SECONDS
            )
        except (KafkaError, StoreClosedError) as error:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "The transaction is not durable yet: retry") from error

    def _find_transaction_change_index(self, image: Image) -> int:
        transaction = image.find_transaction_by_producer_id(self.header.producer_id)
        return NO_RECORD_INDEX if transaction is None else transaction.index


async def add_partitions(
    services: Services, transactional_id: str, header: BatchHeader, partitions: Sequence[TransactionPartition]
) -> None:
    """Add partitions to a transaction whose producer does not send AddPartitionsToTxn.

    Raises:
        KafkaError: The partitions could not be added.
    """
    error = await services.transaction_joiner.join(
        transactional_id, header.producer_id, header.producer_epoch, partitions
    )
    match error:
        case ErrorCode.NONE:
            return
        case ErrorCode.PRODUCER_FENCED:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        case (
            ErrorCode.NOT_COORDINATOR
            | ErrorCode.COORDINATOR_NOT_AVAILABLE
            | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            | ErrorCode.CONCURRENT_TRANSACTIONS
        ):  # the same error as in Kafka: every client retries after it
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"The partition was not added to the transaction: {error}")
        case _:
            raise KafkaError(error)


def list_addable_transaction_partitions(
    request: ProduceRequest, image: Image, may_write: NamePredicate | None, *, by_id: bool
) -> list[TransactionPartition]:
    """Return the partitions of a Produce request that can be added to the request's transaction.

    Internal topics are excluded, as in AddPartitionsToTxn, and topics that the producer may not write to.
    """
    found = []
    for each in request.topic_data:
        topic = image.topics_by_id.get(each.topic_id) if by_id else image.topics.get(each.name)
        if topic is not None and not topic.internal and (may_write is None or may_write(topic.name)):
            indexes = (partition.index for partition in each.partition_data)
            found += [TransactionPartition(topic.id, index) for index in indexes if topic.has_partition(index)]
    return found
