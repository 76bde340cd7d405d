"""A transaction from the side of its producer: batches of many partitions and offsets of a group, all of it or nothing.

transaction = Transaction(cluster, "copier-0")
transaction.begin()
…                                          # batches, numbered by `Numbering(transaction.identity)`
transaction.commit_offsets("copiers", {TopicPartition("orders", 0): Committed(23, "")})
transaction.commit()
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.client.cluster import Cluster, raise_for
from chronik.client.groups import Committed
from chronik.client.offsets import by_topic
from chronik.client.producer import Identity
from chronik.client.records import TopicPartition
from chronik.errors import invariant
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from chronik.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from chronik.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from chronik.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from chronik.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

TIMEOUT_MS: Final = 60_000
"""Kafka's default for producers."""


class Transaction:
    """One transaction, in the versions of the protocol that all brokers with transactions speak.

    It takes a producer epoch of its own: whoever used the transactional id before is fenced, and nothing of his that is
    still on its way can get into this transaction. Use it from one thread at a time. Every method raises ClientError or
    KafkaError; then `abort` it, unless it was `commit` that failed, whose outcome is unknown.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        """A broker aborts it when it is open for longer than `timeout_ms`."""
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._about = f"transactional id {transactional_id}"
        self._identity: Identity | None = None
        self._is_handed_out = False
        self._partitions: set[TopicPartition] = set()
        self._has_content = False

    def begin(self) -> None:
        """Returns when all that earlier users of the transactional id have begun is committed or aborted for good."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)

        def ask() -> InitProducerIdResponse:
            # Brokers without transactions have no EndTxn; some of them would hand out an id all the same.
            self._cluster.any_broker().version_of(EndTxnRequest)
            _, coordinator = self._cluster.transaction_coordinator(self.transactional_id)
            response = coordinator.request(request, InitProducerIdResponse)
            raise_for(response.error_code, self._about)
            return response

        response = self._cluster.retrying(ask)
        self._identity = Identity(response.producer_id, response.producer_epoch)

    def identity(self) -> Identity:
        """Hands it out once: a producer that asks again has lost count of its batches, and must not go on."""
        if self._is_handed_out:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{self._about}: the transaction has failed")
        self._is_handed_out = True
        return self._begun()

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Is called before a batch is sent to a partition for the first time."""
        new = sorted(set(partitions) - self._partitions)
        if not new:
            return
        producer_id, producer_epoch = self._begun()
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in by_topic(new).items()],
        )

        def ask() -> None:
            _, coordinator = self._cluster.transaction_coordinator(self.transactional_id)
            response = coordinator.request(request, AddPartitionsToTxnResponse)
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in response.results_by_topic
                for each in topic.results_by_partition
            }
            # One that is refused has the others not attempted: the reason comes first.
            for partition, code in sorted(codes.items(), key=lambda item: item[1] == ErrorCode.OPERATION_NOT_ATTEMPTED):
                raise_for(code, f"{self._about}, {partition}")

        self._has_content = True
        self._cluster.retrying(ask)
        self._partitions.update(new)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Has a group without members commit these offsets if the transaction is committed."""
        self._has_content = True
        self._cluster.retrying(lambda: self._add_group(group))
        self._cluster.retrying(lambda: self._stage_offsets(group, offsets))

    def _add_group(self, group: str) -> None:
        producer_id, producer_epoch = self._begun()
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group,
        )
        _, coordinator = self._cluster.transaction_coordinator(self.transactional_id)
        raise_for(coordinator.request(request, AddOffsetsToTxnResponse).error_code, f"{self._about}, group {group}")

    def _stage_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        producer_id, producer_epoch = self._begun()
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=offsets[TopicPartition(topic, index)].offset,
                            committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(offsets).items()
            ],
        )
        response = self._cluster.coordinator(group).request(request, TxnOffsetCommitResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                about = f"{self._about}, group {group}, {TopicPartition(topic.name, partition.partition_index)}"
                raise_for(partition.error_code, about)

    def commit(self) -> None:
        """Makes all of it visible. Whoever does not get an answer begins another transaction, and looks."""
        self._end(commit=True)

    def abort(self) -> None:
        """Makes sure that nothing of it is ever seen by those who read what is committed."""
        if self._has_content:  # a broker has nothing to abort otherwise, and says so
            self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        producer_id, producer_epoch = self._begun()
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )

        def ask() -> None:
            _, coordinator = self._cluster.transaction_coordinator(self.transactional_id)
            raise_for(coordinator.request(request, EndTxnResponse).error_code, self._about)

        self._cluster.retrying(ask)
        self._has_content = False

    def _begun(self) -> Identity:
        invariant(self._identity is not None, "the transaction has not begun")
        assert self._identity is not None
        return self._identity
