"""Idempotent or transactional producer of whole Arrow columns, with acks=all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.offsets import group_by_leader, group_by_topic
from chronik.client.producer import ACKS_ALL, ProducerSequences, request_producer_identity
from chronik.client.records import TopicPartition
from chronik.client.transaction import ProducerTransaction
from chronik.clock import Clock, SystemClock
from chronik.pipeline.records.encoder import encode_record_batch
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

SUCCESS_CODES: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""Error codes of successful writes. A duplicate sequence number means that only the response was lost."""


class OutgoingRows(NamedTuple):
    """Rows of one partition that fit into a single batch; never empty."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.BinaryArray | None = None
    """Headers from `encode_headers`; None if no row has any."""
    timestamps_ms: pa.Int64Array | None = None
    """Timestamps of the records; None for the time of sending."""


class BatchProducer:
    """A producer of record batches: idempotent with its own producer id, or part of an open transaction."""

    def __init__(
        self,
        cluster: ClusterClient,
        codec: Codec,
        transaction: ProducerTransaction | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._cluster = cluster
        self._codec = codec
        self._transaction = transaction
        self._clock = clock or SystemClock()
        self._numbering = ProducerSequences(
            (lambda: request_producer_identity(cluster)) if transaction is None else transaction.take_identity
        )

    def send(self, rows: Mapping[TopicPartition, OutgoingRows]) -> None:
        """Send one batch to each partition, with one request per broker, and wait for all acknowledgements.

        Raises:
            ClientError, KafkaError: Some batches may have been written; a transaction must be aborted.
        """
        if self._transaction is not None:
            self._transaction.add_partitions(rows)
        unwritten = {partition: self._encode(partition, each) for partition, each in rows.items()}
        try:
            self._cluster.retry(lambda: self._produce(unwritten))
        except BaseException:
            self._numbering.reset()
            raise
        for partition, each in rows.items():
            self._numbering.advance(partition, len(each.keys))

    def _encode(self, partition: TopicPartition, rows: OutgoingRows) -> bytes:
        return encode_record_batch(
            rows.keys,
            rows.values,
            np.full(len(rows.keys), self._clock.now_ms(), np.int64)
            if rows.timestamps_ms is None
            else rows.timestamps_ms.to_numpy(),
            headers=rows.headers,
            codec=self._codec,
            transactional=self._transaction is not None,
            **self._numbering.next_batch_sequence(partition)._asdict(),
        )

    def _produce(self, unwritten: dict[TopicPartition, bytes]) -> None:
        """Produce the batches and remove acknowledged ones from `unwritten`; raise the first error of the others."""
        first_error: KafkaError | None = None
        for leader_id, partitions in group_by_leader(self._cluster, list(unwritten)).items():
            request = ProduceRequest(
                transactional_id=None if self._transaction is None else self._transaction.transactional_id,
                acks=ACKS_ALL,
                timeout_ms=int(self._cluster.timeout_s * 1000),
                topic_data=[
                    TopicProduceData(
                        name=topic,
                        partition_data=[
                            PartitionProduceData(index=index, records=unwritten[TopicPartition(topic, index)])
                            for index in indexes
                        ],
                    )
                    for topic, indexes in group_by_topic(partitions).items()
                ],
            )
            response = self._cluster.broker(leader_id).request(request, ProduceResponse)
            for topic in response.responses:
                for partition_response in topic.partition_responses:
                    partition = TopicPartition(topic.name, partition_response.index)
                    if partition_response.error_code in SUCCESS_CODES:
                        unwritten.pop(partition, None)
                        continue
                    try:
                        raise_for_code(partition_response.error_code, str(partition), partition_response.error_message)
                    except KafkaError as error:
                        first_error = first_error or error
        if first_error is not None:
            raise first_error
