"""Publishing of Arrow rows as records, in tasks of the sink and of a replay.

Rows have the column `value` and optionally `key`, `headers`, `topic`, `partition` and `timestamp_ms` (never null;
defaults to the time of sending). Rows with a key go to the partition that Kafka's default partitioner chooses; rows
without a key go to one partition per Arrow batch, in rotation.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient, raise_for_code
from chronik.client.offsets import group_by_leader, group_by_topic
from chronik.client.producer import ACKS_ALL, ProducerSequences, request_producer_identity
from chronik.client.records import TopicPartition
from chronik.client.transaction import ProducerTransaction
from chronik.clock import Clock, SystemClock
from chronik.limits import MIB
from chronik.pipeline.errors import SchemaError
from chronik.pipeline.records.columns import HEADERS_TYPE
from chronik.pipeline.records.encoder import encode_headers, encode_record_batch, split_into_batches
from chronik.pipeline.sink.partitioner import compute_partitions_for_keys
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

SUCCESS_CODES: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""Error codes of successful writes. A duplicate sequence number means that the earlier response was lost."""

REQUEST_BYTES: Final = 8 * MIB
"""Total size in bytes of a request's batches from which it is sent, even if some partitions have no batch in it yet."""


class OutgoingRows(NamedTuple):
    """Rows for one partition that fit into a single record batch. There is at least one row."""

    keys: pa.BinaryArray
    values: pa.BinaryArray
    headers: pa.BinaryArray | None = None
    """Headers from `encode_headers`; None if no row has headers."""
    timestamps_ms: pa.Int64Array | None = None
    """Timestamps of the records in milliseconds; None to use the time of sending."""


class BatchProducer:
    """A producer of record batches, either idempotent with its own producer id or part of an open transaction."""

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
        unwritten = {partition: self._encode_batch(partition, each) for partition, each in rows.items()}
        try:
            self._cluster.retry(lambda: self._produce_batches(unwritten))
        except BaseException:
            self._numbering.reset()
            raise
        for partition, each in rows.items():
            self._numbering.advance(partition, len(each.keys))

    def _encode_batch(self, partition: TopicPartition, rows: OutgoingRows) -> bytes:
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

    def _produce_batches(self, unwritten: dict[TopicPartition, bytes]) -> None:
        """Produce the batches, remove acknowledged ones from `unwritten`, and raise the first error."""
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


@dataclass(frozen=True)
class PublishSettings:
    """The destination and compression of published records."""

    bootstrap: Bootstrap
    topic: str | None = None
    """Destination topic; None to use the column `topic`."""
    codec: Codec = Codec.NONE


class Publisher:
    """A publisher that writes Arrow rows to topics. All in-sync replicas have the records when `publish` returns.

    Without a transaction, each publisher has its own producer id: its own retries are deduplicated, but a task that
    Spark runs again writes its rows again (at least once).
    """

    def __init__(
        self, cluster: ClusterClient, settings: PublishSettings, transaction: ProducerTransaction | None = None
    ) -> None:
        self._cluster = cluster
        self._topic = settings.topic
        self._producer = BatchProducer(cluster, settings.codec, transaction)
        # Start at a random partition: with many short tasks, partition 0 would otherwise receive most rows.
        self._rotation = random.randrange(2**31)

    def publish(self, rows: pa.RecordBatch) -> int:
        """Publish the rows and return the number of records written.

        Raises:
            SchemaError, ClientError, KafkaError: The rows are invalid, or the brokers reject them.
        """
        pending: dict[TopicPartition, Iterator[OutgoingRows]] = {}
        for topic, chosen in self._split_by_topic(rows):
            pending |= self._split_by_partition(topic, chosen)
        # Only one batch per partition may be in flight, because its successor has the next sequence number.
        while pending:
            request: dict[TopicPartition, OutgoingRows] = {}
            request_bytes = 0
            for partition in list(pending):
                batch = next(pending[partition], None)
                if batch is None:
                    del pending[partition]
                    continue
                request[partition] = batch
                request_bytes += batch.keys.nbytes + batch.values.nbytes
                if request_bytes >= REQUEST_BYTES:
                    self._producer.send(request)
                    request, request_bytes = {}, 0
            if request:
                self._producer.send(request)
        return int(rows.num_rows)

    def _split_by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not rows.num_rows:
            return
        if self._topic is not None:
            yield self._topic, rows
            return
        topics = _get_column(rows, "topic", pa.string())
        if topics is None or topics.null_count:
            raise SchemaError("a row has no topic: set the option `topic`, or fill the column `topic`")
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        indices = encoded.indices.to_numpy()
        for number, name in enumerate(names):
            yield name, rows if len(names) == 1 else rows.take(pa.array(np.flatnonzero(indices == number)))

    def _split_by_partition(self, topic: str, rows: pa.RecordBatch) -> dict[TopicPartition, Iterator[OutgoingRows]]:
        nothing = pa.nulls(rows.num_rows, pa.binary())
        keys = _get_column(rows, "key", pa.binary())  # strings become UTF-8
        values = _get_column(rows, "value", pa.binary())
        headers = _get_column(rows, "headers", HEADERS_TYPE)
        partitions = self._choose_partitions(topic, rows, keys)
        all_rows = OutgoingRows(
            nothing if keys is None else keys,
            nothing if values is None else values,
            None if headers is None or headers.null_count == len(headers) else encode_headers(headers),
            _get_column(rows, "timestamp_ms", pa.int64()),
        )
        order = np.argsort(partitions, kind="stable")
        indexes, firsts = np.unique(partitions[order], return_index=True)
        return {
            TopicPartition(topic, int(index)): _iter_batches(all_rows, pa.array(chosen))
            for index, chosen in zip(indexes, np.split(order, firsts[1:]), strict=True)
        }

    def _choose_partitions(self, topic: str, rows: pa.RecordBatch, keys: pa.Array | None) -> npt.NDArray[np.int64]:
        count = len(self._cluster.retry(lambda: self._cluster.partitions(topic, create=True)))
        self._rotation += 1
        chosen = np.full(rows.num_rows, self._rotation % count, np.int64)
        if keys is not None:
            keyed = keys.is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where(keyed, compute_partitions_for_keys(keys, count), chosen)
        named = _get_column(rows, "partition", pa.int32())
        if named is not None and named.null_count < len(named):
            given = named.is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where(given, named.fill_null(0).to_numpy(), chosen)
        return chosen


def _iter_batches(all_rows: OutgoingRows, chosen: pa.Array) -> Iterator[OutgoingRows]:
    rows = OutgoingRows(*(None if column is None else column.take(chosen) for column in all_rows))
    for part in split_into_batches(rows.keys, rows.values, rows.headers):
        yield OutgoingRows(*(None if column is None else column[part] for column in rows))


def _get_column(rows: pa.RecordBatch, name: str, data_type: pa.DataType) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    return None if index < 0 else rows.column(index).cast(data_type)
