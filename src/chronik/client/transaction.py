"""A transaction of a producer: batches of several partitions and offsets of a group, committed atomically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.groups import GroupOffset
from chronik.client.offsets import group_by_topic
from chronik.client.producer import ProducerIdentity
from chronik.client.records import TopicPartition
from chronik.errors import check_invariant
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

DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Default transaction timeout of Kafka producers, in milliseconds."""


class ProducerTransaction:
    """A single transaction of a producer. It uses only API versions that every broker with transactions supports.

        transaction = ProducerTransaction(cluster, "copier-0")
        transaction.begin()
        transaction.commit_offsets("copiers", {TopicPartition("orders", 0): GroupOffset(23, "")})
        transaction.commit()

    `begin` requests a new producer epoch, which fences previous users of the transactional id and their late batches.
    Not thread-safe. Every method raises ClientError or KafkaError; call `abort` then, unless `commit` failed, whose
    outcome is unknown.
    """

    def __init__(
        self, cluster: ClusterClient, transactional_id: str, *, timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    ) -> None:
        """Store the settings. The broker aborts a transaction that stays open for longer than `timeout_ms`."""
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._subject = f"transactional id {transactional_id}"
        self._identity: ProducerIdentity | None = None
        self._was_identity_returned = False
        self._partitions: set[TopicPartition] = set()
        self._has_content = False

    def begin(self) -> None:
        """Request a producer id and epoch, after all previous transactions of the transactional id have completed."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)

        def send() -> InitProducerIdResponse:
            # Brokers without transactions lack EndTxn, but some of them accept InitProducerId.
            self._cluster.any_broker().negotiated_version(EndTxnRequest)
            _, coordinator = self._cluster.transaction_coordinator(self.transactional_id)
            response = coordinator.request(request, InitProducerIdResponse)
            raise_for_code(response.error_code, self._subject)
            return response

        response = self._cluster.retry(send)
        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)

    def take_identity(self) -> ProducerIdentity:
        """Return the producer id and epoch. May be called only once per transaction.

        A second call raises KafkaError, because a producer that lost its sequence numbers must not continue.
        """
        if self._was_identity_returned:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{self._subject}: the transaction has failed")
        self._was_identity_returned = True
        return self._require_identity()

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction. Must be called before the first batch is sent to a partition."""
        new = sorted(set(partitions) - self._partitions)
        if not new:
            return
        producer_id, producer_epoch = self._require_identity()
        request = AddPartitionsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in group_by_topic(new).items()
            ],
        )

        def send() -> None:
            _, coordinator = self._cluster.transaction_coordinator(self.transactional_id)
            response = coordinator.request(request, AddPartitionsToTxnResponse)
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in response.results_by_topic
                for each in topic.results_by_partition
            }
            # If one partition is rejected, the others are not attempted: raise the cause first.
            for partition, code in sorted(codes.items(), key=lambda item: item[1] == ErrorCode.OPERATION_NOT_ATTEMPTED):
                raise_for_code(code, f"{self._subject}, {partition}")

        self._has_content = True
        self._cluster.retry(send)
        self._partitions.update(new)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Commit offsets for a group without members as part of the transaction."""
        self._has_content = True
        self._cluster.retry(lambda: self._add_group(group))
        self._cluster.retry(lambda: self._stage_offsets(group, offsets))

    def _add_group(self, group: str) -> None:
        producer_id, producer_epoch = self._require_identity()
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group,
        )
        _, coordinator = self._cluster.transaction_coordinator(self.transactional_id)
        raise_for_code(
            coordinator.request(request, AddOffsetsToTxnResponse).error_code, f"{self._subject}, group {group}"
        )

    def _stage_offsets(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        producer_id, producer_epoch = self._require_identity()
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
                for topic, indexes in group_by_topic(offsets).items()
            ],
        )
        response = self._cluster.coordinator(group).request(request, TxnOffsetCommitResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                subject = f"{self._subject}, group {group}, {TopicPartition(topic.name, partition.partition_index)}"
                raise_for_code(partition.error_code, subject)

    def commit(self) -> None:
        """Commit the transaction.

        If no response arrives, the outcome is unknown; begin another transaction to determine it.
        """
        self._end(commit=True)

    def abort(self) -> None:
        """Abort the transaction. Consumers with read_committed isolation never receive its records."""
        if self._has_content:  # brokers reject EndTxn for an empty transaction
            self._end(commit=False)

    def _end(self, *, commit: bool) -> None:
        producer_id, producer_epoch = self._require_identity()
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )

        def send() -> None:
            _, coordinator = self._cluster.transaction_coordinator(self.transactional_id)
            raise_for_code(coordinator.request(request, EndTxnResponse).error_code, self._subject)

        self._cluster.retry(send)
        self._has_content = False

    def _require_identity(self) -> ProducerIdentity:
        check_invariant(self._identity is not None, "begin() must be called first")
        assert self._identity is not None
        return self._identity
