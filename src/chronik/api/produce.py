"""Produce: records for partitions.

They are appended while the request is handled; the response waits until they are as safe as the request asks for:
on the leader's disk (acks=1), or on that of every in-sync replica (acks=all). acks=0 gets no response; an error then
closes the connection, since there is no other way to tell.

Where a topic asks for a look at the records, and that takes long, a thread takes it. The connection's next request
waits meanwhile, so that nothing overtakes them; and afterwards it is looked again whether this node may append them.
So it is with a gap in a producer's sequence, which is told only after a majority has confirmed that this node leads:
one that was replaced does not have what its successor took, and librdkafka begins anew, or gives up, at such an answer.
And so it is with the first batch of a transaction, which must be known to be open, and to have this partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from chronik.api.producing import transactional
from chronik.api.producing.answers import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    MANY_TOPICS,
    check_names,
    close_on_error,
    name_leaders,
    record_errors,
)
from chronik.api.producing.rights import may_begin, may_write, replica_to_write
from chronik.api.producing.transactional import First
from chronik.api.shared.admission import CONFIRM_SECONDS
from chronik.api.shared.context import Context, Services
from chronik.broker.replica import Replica
from chronik.broker.requests.incoming import BudgetOf, Incoming, IncomingRules, accept_produced
from chronik.broker.uncommitted import can_pipeline
from chronik.exchange import Disconnect, Reply
from chronik.metadata.commands.transactions import TransactionPartition
from chronik.protocol.batch import BatchHeader
from chronik.protocol.budget import Budget
from chronik.protocol.errors import ErrorCode, KafkaError, RecordsTooLarge
from chronik.protocol.failures import failed
from chronik.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

NO_ACKS, LEADER_ACKS, ALL_ACKS = 0, 1, -1
NO_OFFSET = -1
FIRST_VERSION_WITH_LEADERS = 10
FIRST_VERSION_WITH_ABORTABLE = 11
FIRST_VERSION_THAT_JOINS = 12
TIMEOUT_SECONDS_MAX = 300.0
"""A disk that takes longer than this has failed; also for acks=1, where a client's timeout says nothing."""


PARTITIONS_PER_TURN = 2000
"""Partitions of one request; then others have their turn. Each takes about 10 µs, whatever becomes of it."""


class _Unconfirmed(Exception):
    """There is a gap in a producer's sequence, if this node still leads; or it is not known for good whether the
    transaction is open that this batch would begin here."""

    def __init__(self, first: First | None = None) -> None:
        super().__init__()
        self.first = first


class _Entry(NamedTuple):
    """What a request has for one partition, and the answers of its topic."""

    topic: TopicProduceData
    partition: PartitionProduceData
    answers: list[PartitionProduceResponse]


class Appended(msgspec.Struct):
    """Records that are written and not yet known to be safe, and the answer that waits for them."""

    replica: Replica
    header: BatchHeader
    answer: PartitionProduceResponse
    is_settled: bool = False

    def fail(self, code: ErrorCode) -> None:
        self.answer.error_code = code
        self.answer.base_offset = NO_OFFSET


def handle(services: Services, request: ProduceRequest, context: Context) -> Reply[ProduceResponse]:
    if request.acks not in (NO_ACKS, LEADER_ACKS, ALL_ACKS):
        return Reply.of(failure(request, ErrorCode.INVALID_REQUIRED_ACKS))
    if len(request.topic_data) > MANY_TOPICS:
        check_names(request)
    if not may_begin(services, request, context):
        return Reply.of(failure(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    producing = _Producing(services, request, context)
    if producing.append_now():
        producing.answer_when_safe()
        return producing.reply
    return Reply.of_coroutine(producing.append_and_wait())


class _Producing:
    """One request, while its records are appended: in the order in which they stand in it."""

    __slots__ = (
        "_acks",
        "_at_once",
        "_context",
        "_doubt",
        "_held",
        "_left",
        "_may_write",
        "_request",
        "_response",
        "_services",
        "_timer",
        "_unsettled",
        "_waiting",
        "reply",
    )

    def __init__(self, services: Services, request: ProduceRequest, context: Context) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._acks = request.acks
        self._may_write = may_write(services, context)
        self._response = ProduceResponse()
        self._waiting: list[Appended] = []
        self._unsettled = 0
        """How many of those that wait are not settled yet."""
        self._timer: asyncio.TimerHandle | None = None
        self.reply: Reply[ProduceResponse] = Reply(is_pipelined=True)
        """Resolved when every appended batch is as safe as the request asks for, or when the timeout expires."""
        self._left = self._entries()
        self._held: _Entry | None = None
        self._at_once: Budget | None = None
        self._doubt: _Unconfirmed | None = None
        """What has to be known before it is appended."""

    def _entries(self) -> Iterator[_Entry]:
        for topic in self._request.topic_data:
            answers: list[PartitionProduceResponse] = []
            self._response.responses.append(
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            )
            for partition in topic.partition_data:
                yield _Entry(topic, partition, answers)

    def append_now(self) -> bool:
        """Says whether all is appended. If not, it has ended before what is too large to be opened here, or is not
        certain, or after a turn's work."""
        self._at_once = None
        for number, entry in enumerate(self._left):
            try:
                if number == PARTITIONS_PER_TURN:
                    raise RecordsTooLarge("there are others on this node")
                entry.answers.append(self._append(entry))
            except (RecordsTooLarge, _Unconfirmed) as reason:
                self._held, self._doubt = entry, reason if isinstance(reason, _Unconfirmed) else None
                return False
        return True

    async def append_and_wait(self) -> ProduceResponse | None:
        """Append what `append_now` has left, in the order of the request, and wait until all of it is safe."""
        budget = Budget.for_bytes(_records_bytes(self._request))
        is_done = False
        while not is_done:
            assert self._held is not None
            self._held.answers.append(await self._confirm_and_append(self._held, self._doubt, budget))
            is_done = self.append_now()
        self.answer_when_safe()
        return await self.reply

    def answer_when_safe(self) -> None:
        """Resolve the reply now, or as soon as what was appended is safe. All batches are appended or rejected.

        The connection handles its next request before that only while followers have a short backlog.
        """
        response = self._response
        if self._acks == NO_ACKS:
            close_on_error(response)
            self.reply.resolve(None)
            return
        if self._context.version >= FIRST_VERSION_WITH_LEADERS:
            name_leaders(self._services, response, self._context)
        if self._unsettled:
            timeout_seconds = self._request.timeout_ms / 1000 if self._acks == ALL_ACKS else TIMEOUT_SECONDS_MAX
            patience = min(max(timeout_seconds, 0.0), TIMEOUT_SECONDS_MAX)
            self._timer = asyncio.get_running_loop().call_later(patience, self._finish)
            self.reply.on_cancel = self._timer.cancel
            self.reply.may_pipeline = partial(can_pipeline, [appended.replica for appended in self._waiting])
            self.reply.is_pipelined = self.reply.may_pipeline()
        else:
            self._finish()

    def _budget_at_once(self) -> Budget:
        if self._at_once is None:
            self._at_once = Budget.on_loop()
        return self._at_once

    def _append(self, entry: _Entry) -> PartitionProduceResponse:
        """Raises RecordsTooLarge when more has to be opened than may be on the loop, and _Unconfirmed."""
        try:
            replica = self._find(entry)
            incoming = self._accept(entry, replica.rules, self._budget_at_once)
            return self._appended(entry, replica, incoming, is_certain=False)
        except RecordsTooLarge:
            raise
        except KafkaError as error:
            if self._is_doubtful(error):
                raise _Unconfirmed from error
            return self._refused(entry, error)

    def _is_doubtful(self, error: KafkaError) -> bool:
        """Whether the next leader might see it otherwise."""
        return error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._services.store.is_shared

    async def _confirm_and_append(
        self, entry: _Entry, doubt: _Unconfirmed | None, budget: Budget
    ) -> PartitionProduceResponse:
        try:
            if doubt is not None:
                await self._confirm(doubt.first)
        except KafkaError as error:
            return self._refused(entry, error)
        return await self._open_and_append(entry, doubt, budget)

    async def _confirm(self, first: First | None) -> None:
        """Raises KafkaError."""
        services, transactional_id = self._services, self._request.transactional_id
        if first is None:
            try:
                await services.store.read_barrier(CONFIRM_SECONDS)
            except KafkaError:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER) from None
        elif transactional_id is not None and self._context.version >= FIRST_VERSION_THAT_JOINS:
            by_id = self._context.version >= FIRST_VERSION_WITH_TOPIC_IDS
            partitions = transactional.partitions_of(self._request, services.image, self._may_write, by_id=by_id)
            await transactional.join(services, transactional_id, first.header, partitions)
        else:
            await first.confirm(services)

    async def _open_and_append(
        self, entry: _Entry, cleared: _Unconfirmed | None, budget: Budget
    ) -> PartitionProduceResponse:
        """`cleared` is what was in doubt, and is certain now."""
        try:
            replica = self._find(entry)
            epoch, rules = replica.leader_epoch, replica.rules
            at_once = None if cleared is None else Budget.on_loop()  # what was not in doubt was too large
            incoming = await self._services.openings.run(
                lambda within: self._accept(entry, rules, lambda: within), at_once, budget
            )
            if self._find(entry) is not replica or (replica.leader_epoch, replica.rules) != (epoch, rules):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The partition has changed while it was opened")
            return self._appended(entry, replica, incoming, is_certain=cleared is not None)
        except _Unconfirmed as doubt:
            return await self._confirm_and_append(entry, doubt, budget)
        except KafkaError as error:
            if self._is_doubtful(error) and cleared is not None and cleared.first is not None:
                return await self._confirm_and_append(entry, _Unconfirmed(), budget)
            return self._refused(entry, error)

    def _find(self, entry: _Entry) -> Replica:
        """Returns the replica to which the records may be appended now. Raises KafkaError."""
        services = self._services
        if services.is_fenced():
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica = replica_to_write(services, self._context, entry.topic, entry.partition.index, self._may_write)
        if self._acks == ALL_ACKS and not replica.has_enough_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return replica

    def _accept(self, entry: _Entry, rules: IncomingRules, budget: BudgetOf) -> Incoming:
        records = entry.partition.records
        view = memoryview(records) if records is not None else None
        return accept_produced(view, rules, self._context.version, self._services.clock.now_ms(), budget)

    def _check_transaction(self, replica: Replica, header: BatchHeader, *, is_certain: bool) -> None:
        """Raises KafkaError, or _Unconfirmed. What it sees is true until the loop is given up."""
        owner = self._services.image.transaction_of(header.producer_id)
        if (
            owner is not None and owner.transactional_id != self._request.transactional_id
        ):  # the right to write was asked for this id
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if transactional.is_under_way(replica.log.producers, header):
            return
        first = First(header, TransactionPartition(replica.topic_id, replica.index))
        refusal = first.refusal(self._services.image)
        if refusal is None and first.is_durable(self._services.store):
            return
        if refusal is None or not is_certain:
            raise _Unconfirmed(first)
        if refusal is ErrorCode.TRANSACTION_ABORTABLE and self._context.version < FIRST_VERSION_WITH_ABORTABLE:
            refusal = ErrorCode.INVALID_TXN_STATE
        raise KafkaError(refusal, f"{replica} is not part of an open transaction of producer {header.producer_id}")

    def _appended(
        self, entry: _Entry, replica: Replica, incoming: Incoming, *, is_certain: bool
    ) -> PartitionProduceResponse:
        refused, index = self._services.refused_batches, entry.partition.index
        header = incoming.headers[0]
        if refused:
            refused.check(_key(entry.topic), index, header, replica.log.producers)
        if header.is_transactional:
            self._check_transaction(replica, header, is_certain=is_certain)
        info = replica.append(incoming)
        # What is written need not be held until it is synced: the records are most of the request's memory.
        entry.partition.records = None
        answer = PartitionProduceResponse(
            index=index,
            base_offset=info.base_offset,
            log_append_time_ms=incoming.log_append_time_ms,
            log_start_offset=replica.log.log_start_offset,
        )
        # Awaited from the turn of the append on: in the next one the node may not lead any more, or lead again, and
        # then the offsets may be those of other records.
        acks, end_offset = self._acks, info.last_offset + 1
        if acks == ALL_ACKS and not replica.is_committed(end_offset):
            replica.commits.add(end_offset, self._awaited(replica, incoming, answer))
        elif acks == LEADER_ACKS and not replica.is_durable(end_offset):
            replica.durables.add(end_offset, self._awaited(replica, incoming, answer))
        return answer

    def _awaited(
        self, replica: Replica, incoming: Incoming, answer: PartitionProduceResponse
    ) -> Callable[[ErrorCode], None]:
        """Returns what is to be called when it is known whether they are safe."""
        appended = Appended(replica, incoming.headers[0], answer)
        self._waiting.append(appended)
        self._unsettled += 1
        return partial(self._settle, appended)

    def _settle(self, appended: Appended, code: ErrorCode) -> None:
        appended.is_settled = True
        if code is not ErrorCode.NONE:
            by_id = self._context.version >= FIRST_VERSION_WITH_TOPIC_IDS
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and by_id:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            # The next leader may not have it: then what was sent behind it must not seem to leave a gap.
            replica = appended.replica
            key = replica.topic_id if by_id else replica.topic_name
            self._services.refused_batches.note_header(key, replica.index, appended.header, code)
            appended.fail(code)
        self._unsettled -= 1
        if self._unsettled == 0 and self._timer is not None:
            self._timer.cancel()
            if code is ErrorCode.NONE:
                self._finish()
            else:  # the caller is in the middle of a change: the leader to be named may be another one in a moment
                asyncio.get_running_loop().call_soon(self._finish)

    def _finish(self) -> None:
        if self.reply.is_resolved or self.reply.is_cancelled:
            return
        for appended in self._waiting:
            if not appended.is_settled:
                appended.fail(ErrorCode.REQUEST_TIMED_OUT)
        version = self._context.version
        if version >= FIRST_VERSION_WITH_LEADERS and any(each.answer.error_code for each in self._waiting):
            name_leaders(self._services, self._response, self._context)
        self.reply.resolve(self._response)

    def _refused(self, entry: _Entry, error: KafkaError) -> PartitionProduceResponse:
        partition = entry.partition
        self._services.refused_batches.note(_key(entry.topic), partition.index, partition.records, error.code)
        return PartitionProduceResponse(
            index=partition.index,
            error_code=error.code,
            base_offset=NO_OFFSET,
            record_errors=record_errors(error),
            error_message=error.message,
        )


def _records_bytes(request: ProduceRequest) -> int:
    return sum(len(each.records or b"") for topic in request.topic_data for each in topic.partition_data)


def failure(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """Whoever wants no answer gets none, and has no other way to learn of it than that the connection ends."""
    if request.acks == NO_ACKS and request.topic_data:
        raise Disconnect(f"a produce without acks failed: {code.name}")
    return failed(ProduceResponse, request, code)


def _key(topic: TopicProduceData) -> str | bytes:
    return topic.name or topic.topic_id
