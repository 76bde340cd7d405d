"""Sends columns of rows to partitions, acknowledged by all replicas in sync; what is retried here is written once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from chronik.client.cluster import Cluster, raise_for
from chronik.client.offsets import by_leader, by_topic
from chronik.client.producer import ALL_IN_SYNC, Numbering, idempotent_identity
from chronik.client.records import TopicPartition
from chronik.client.transactional import Transaction
from chronik.clock import Clock, SystemClock
from chronik.pipeline.records.encode import encode_columns
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

WRITTEN: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""A duplicate is what an attempt before has written, whose answer was lost."""


class OutgoingRows(NamedTuple):
    """As many as fit into one batch, at least one."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.BinaryArray | None = None
    """As `encode_headers` gives them; None when no row has any."""
    timestamps_ms: pa.Int64Array | None = None
    """None for the time of sending."""


class BatchProducer:
    """An idempotent producer, new with each instance; or one that writes into a transaction that has begun."""

    def __init__(
        self, cluster: Cluster, codec: Codec, transaction: Transaction | None = None, clock: Clock | None = None
    ) -> None:
        self._cluster = cluster
        self._codec = codec
        self._transaction = transaction
        self._clock = clock or SystemClock()
        self._numbering = Numbering(
            (lambda: idempotent_identity(cluster)) if transaction is None else transaction.identity
        )

    def send(self, rows: Mapping[TopicPartition, OutgoingRows]) -> None:
        """Sends one batch for each partition, one request for each broker; returns when all are acknowledged.

        Raises ClientError or KafkaError; then some of the batches may have been written, and a transaction is to be
        aborted.
        """
        if self._transaction is not None:
            self._transaction.add_partitions(rows)
        unwritten = {partition: self._encoded(partition, each) for partition, each in rows.items()}
        try:
            self._cluster.retrying(lambda: self._produce(unwritten))
        except BaseException:
            self._numbering.forget()
            raise
        for partition, each in rows.items():
            self._numbering.written(partition, len(each.keys))

    def _encoded(self, partition: TopicPartition, rows: OutgoingRows) -> bytes:
        return encode_columns(
            rows.keys,
            rows.values,
            np.full(len(rows.keys), self._clock.now_ms(), np.int64)
            if rows.timestamps_ms is None
            else rows.timestamps_ms.to_numpy(),
            headers=rows.headers,
            codec=self._codec,
            transactional=self._transaction is not None,
            **self._numbering.next_of(partition)._asdict(),
        )

    def _produce(self, unwritten: dict[TopicPartition, bytes]) -> None:
        """Takes out what is acknowledged, so that only the rest is sent again. Raises the first refusal."""
        refusal: KafkaError | None = None
        for leader_id, partitions in by_leader(self._cluster, list(unwritten)).items():
            request = ProduceRequest(
                transactional_id=None if self._transaction is None else self._transaction.transactional_id,
                acks=ALL_IN_SYNC,
                timeout_ms=int(self._cluster.timeout_s * 1000),
                topic_data=[
                    TopicProduceData(
                        name=topic,
                        partition_data=[
                            PartitionProduceData(index=index, records=unwritten[TopicPartition(topic, index)])
                            for index in indexes
                        ],
                    )
                    for topic, indexes in by_topic(partitions).items()
                ],
            )
            response = self._cluster.broker(leader_id).request(request, ProduceResponse)
            for topic in response.responses:
                for answer in topic.partition_responses:
                    partition = TopicPartition(topic.name, answer.index)
                    if answer.error_code in WRITTEN:
                        unwritten.pop(partition, None)
                        continue
                    try:
                        raise_for(answer.error_code, str(partition), answer.error_message)
                    except KafkaError as error:
                        refusal = refusal or error
        if refusal is not None:
            raise refusal
