"""One instance of a simulated transactional producer, which requests, retries, aborts and fails as the Java client and
librdkafka do.

It sends one batch at a time. After an abortable error it aborts the transaction; a v1 producer, which has one epoch for
many transactions, then requests a new epoch. A producer that cannot do that (before KIP-360), is fenced, or gets no
response for too long fails, and another instance must be started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from chronik.metadata.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from chronik.metadata.records import Topic
from chronik.protocol.errors import ErrorCode
from chronik.protocol.records import Record, encode_batch
from tests.chaos.history import Place, RecordId, encode_value
from tests.transactions.history import (
    Begun,
    Ended,
    OffsetStaged,
    Outcome,
    SentInTransaction,
    Source,
    Straggled,
    TransactionId,
)

from . import requests
from .requests import OLD_VERSIONS, V1, V2, Producer, ProducerResponse, Versions, Work

if TYPE_CHECKING:
    from .world import TransactionWorld

GIVE_UP_SECONDS: Final = 10.0

ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
ABORTABLE: Final = frozenset(
    {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID}
)
ABORTABLE_FOR_RECORDS: Final = ABORTABLE | {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


class MustAbort(Exception):
    """The transaction can no longer be committed."""


class ProducerFailed(Exception):
    """The producer instance has failed permanently."""


class TransactionalProducer:
    """One instance of a transactional producer."""

    def __init__(
        self, world: TransactionWorld, transactional_id: str, name: str, versions: Versions, timeout_ms: int
    ) -> None:
        self._world = world
        self.name = name
        self._versions = versions
        self._timeout_ms = timeout_ms
        self.who = Producer(transactional_id)
        self._sequences: dict[tuple[bytes, int], int] = {}
        self._added: set[tuple[bytes, int]] = set()
        self._groups: set[str] = set()
        self._number = -1
        self.is_open = False
        self._is_empty = True
        self._has_asked_to_commit = False
        self._records = 0

    @property
    def is_v2(self) -> bool:
        return self._versions is V2

    @property
    def transaction(self) -> TransactionId:
        """The open transaction, or the last one."""
        return TransactionId(self.name, self._number)

    # -- transactions -------------------------------------------------------------------------------------------------

    async def init(self) -> None:
        answer = await self._ask_coordinator(
            "InitProducerId", lambda: requests.init(self.who, self._timeout_ms, self._versions.init_producer_id)
        )
        if answer.code is not ErrorCode.NONE:
            raise ProducerFailed(f"InitProducerId: {answer.code.name}")
        self._accept_producer(answer)

    def begin(self) -> None:
        self._number += 1
        self.is_open, self._is_empty, self._has_asked_to_commit = True, True, False
        self._added.clear()
        self._groups.clear()
        self._world.tell(
            Begun(transaction=self.transaction, transactional_id=self.who.transactional_id, is_v2=self.is_v2)
        )

    async def send(self, topic: Topic, index: int, source: Source | None = None) -> None:
        """Send a record and return when it is acknowledged.

        Raises:
            MustAbort, AtItsEnd: The transaction or the instance has failed.
        """
        record = self._record_send(topic, index, source)
        if not self.is_v2:
            await self.add(topic, index)
        await self._produce(topic, index, record)

    async def add(self, topic: Topic, index: int) -> None:
        """Add a partition to the transaction. Raises MustAbort or AtItsEnd."""
        if (topic.id, index) not in self._added:
            await self._add(
                "AddPartitionsToTxn",
                lambda: requests.add_partition(self.who, topic, index, self._versions.add_partitions),
                lambda: self._check_topic_exists(topic),
            )
            self._added.add((topic.id, index))

    def prepare(self, topic: Topic, index: int) -> Work:
        """Return the produce request for a record, which the test may deliver at any time."""
        data = self._batch(topic, index, self._record_send(topic, index, None))
        self._sequences[topic.id, index] = self._sequences.get((topic.id, index), 0) + 1
        return requests.send(self.who, topic, index, data, self._versions.produce)

    def _record_send(self, topic: Topic, index: int, source: Source | None) -> RecordId:
        self._is_empty = False
        record = RecordId(self.name, self._records)
        self._records += 1
        place = Place(topic.id.hex(), index)
        self._world.tell(SentInTransaction(id=record, transaction=self.transaction, place=place, source=source))
        return record

    async def stage(self, group: str, topic: str, offset: int) -> None:
        """Send a group's offset as a part of the transaction. Raises MustAbort or AtItsEnd."""
        self._world.tell(OffsetStaged(transaction=self.transaction, group=group, place=Place(topic, 0), offset=offset))
        if not self.is_v2:
            await self.add_group(group)
        answer = await self._ask(
            "TxnOffsetCommit",
            lambda: self._world.coordinator_of(OFFSETS_TOPIC, group),
            lambda: requests.stage(self.who, group, topic, offset, self._versions.offset_commit),
        )
        if answer.code in (*ABORTABLE, ErrorCode.INVALID_TXN_STATE):
            raise MustAbort(f"TxnOffsetCommit: {answer.code.name}")
        if answer.code is not ErrorCode.NONE:
            raise ProducerFailed(f"TxnOffsetCommit: {answer.code.name}")

    async def add_group(self, group: str) -> None:
        """Add a group to the transaction. Raises MustAbort or AtItsEnd."""
        if group not in self._groups:
            await self._add("AddOffsetsToTxn", lambda: requests.add_group(self.who, group, self._versions.add_offsets))
            self._groups.add(group)

    async def commit(self) -> None:
        """Commit the transaction. Raises MustAbort or AtItsEnd."""
        await self._end(commit=True)

    async def abort(self, *, needs_epoch: bool = False) -> None:
        """Abort the transaction. With `needs_epoch`, the next sequence number is unknown. Raises AtItsEnd."""
        await self._end(commit=False)
        if needs_epoch and self._versions is OLD_VERSIONS:
            raise ProducerFailed("the client cannot request a new epoch")
        if needs_epoch and self._versions is V1:
            await self.init()

    async def _end(self, *, commit: bool) -> None:
        if self._is_empty or not (commit or self.is_v2 or self._added or self._groups):
            self._record_end(Outcome.ABORTED)  # nothing to send: the transaction is empty
            return
        self._has_asked_to_commit |= commit
        answer = await self._ask_coordinator(
            "EndTxn", lambda: requests.end(self.who, self._versions.end, commit=commit)
        )
        if answer.code is ErrorCode.NONE:
            self._record_end(Outcome.COMMITTED if commit else Outcome.ABORTED)
            if self.is_v2:
                self._accept_producer(answer)
            return
        if commit and self._attempts == 1:
            self._has_asked_to_commit = False  # the commit was rejected
        if answer.code in ABORTABLE and commit:
            raise MustAbort(f"EndTxn: {answer.code.name}")
        raise ProducerFailed(f"EndTxn: {answer.code.name}")

    def record_failure(self) -> None:
        """Record that the instance has failed."""
        if self.is_open:
            self._record_end(Outcome.UNKNOWN if self._has_asked_to_commit else Outcome.ABORTED)

    def _record_end(self, outcome: Outcome) -> None:
        self.is_open = False
        self._world.tell(Ended(transaction=self.transaction, outcome=outcome))

    def _accept_producer(self, answer: ProducerResponse) -> None:
        before, self.who = self.who, self.who._replace(id=answer.producer_id, epoch=answer.producer_epoch)
        if before != self.who:
            self._sequences.clear()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _check_topic_exists(self, topic: Topic) -> None:
        """Raise MustAbort if the topic was deleted, as clients do that refresh their metadata before a retry."""
        if topic.id not in self._world.consensus.image.topics_by_id:
            raise MustAbort(f"topic {topic.name} was deleted")

    def _leader(self, topic: Topic, index: int) -> int:
        self._check_topic_exists(topic)
        return self._world.leader_of(topic.id, index)

    async def _add(self, kind: str, work: Callable[[], Work], check: Callable[[], None] = lambda: None) -> None:
        answer = await self._ask_coordinator(kind, work, check)
        if answer.code in ABORTABLE:
            raise MustAbort(f"{kind}: {answer.code.name}")
        if answer.code is not ErrorCode.NONE:
            raise ProducerFailed(f"{kind}: {answer.code.name}")

    def _batch(self, topic: Topic, index: int, record: RecordId) -> bytes:
        return encode_batch(
            [Record(0, 0, None, encode_value(record, None))],
            producer_id=self.who.id,
            producer_epoch=self.who.epoch,
            base_sequence=self._sequences.get((topic.id, index), 0),
            transactional=True,
        )

    async def _produce(self, topic: Topic, index: int, record: RecordId) -> None:
        data = self._batch(topic, index, record)
        answer = await self._ask(
            "Produce",
            lambda: self._leader(topic, index),
            lambda: requests.send(self.who, topic, index, data, self._versions.produce),
            gives_up=False,
        )
        if answer.code in ABORTABLE_FOR_RECORDS or answer.code in ASK_AGAIN:
            self._world.refused(answer.code)
            raise MustAbort(f"Produce: {answer.code.name}")
        if answer.code is not ErrorCode.NONE:
            raise ProducerFailed(f"Produce: {answer.code.name}")
        self._sequences[topic.id, index] = self._sequences.get((topic.id, index), 0) + 1

    async def _ask_coordinator(
        self, kind: str, work: Callable[[], Work], check: Callable[[], None] = lambda: None
    ) -> ProducerResponse:
        def coordinator() -> int:
            check()
            return self._world.coordinator_of(TRANSACTIONS_TOPIC, self.who.transactional_id)

        return await self._ask(kind, coordinator, work)

    async def _ask(
        self, kind: str, node: Callable[[], int], work: Callable[[], Work], *, gives_up: bool = True
    ) -> ProducerResponse:
        """Send a request until a response settles it. After a timeout, fail or return the last response."""
        world = self._world
        deadline = world.loop.time() + GIVE_UP_SECONDS
        self._attempts = 0
        look = self.request_observer(kind)
        while True:
            self._attempts += 1
            answer = await world.wire.send_request(node(), work(), look)
            if answer is not None and answer.code not in ASK_AGAIN:
                return answer
            if world.loop.time() > deadline:
                if gives_up:
                    raise ProducerFailed(f"{kind}: no response")
                return answer or ProducerResponse(ErrorCode.REQUEST_TIMED_OUT)
            await asyncio.sleep(world.chance.uniform(0.01, 0.2))

    def request_observer(self, kind: str) -> Callable[[], None]:
        """Return a callback for the moment at which a node handles the request that is sent now.

        It records the case that the client is already in a later transaction with the same epoch.
        """
        asked_by, asked_in = self.who, self._number

        def look() -> None:
            reached = self._number if self.is_open else self._number + 1
            if not self.is_v2 and asked_in < reached and asked_by == self.who and kind != "InitProducerId":
                touched = TransactionId(self.name, reached)
                late = TransactionId(self.name, asked_in)
                self._world.tell(Straggled(transaction=late, kind=kind, touched=touched))

        return look
