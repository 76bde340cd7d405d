"""Arrow rows to records of topics: what a task of the sink, or of a replay, does.

A row has columns `value`, and, if wanted, `key`, `headers`, `topic` and `partition`. Rows with a key go where all Kafka
clients would put them; rows without one go to one partition per batch of rows, each batch to the next.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from chronik.client.cluster import Cluster
from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord
from chronik.pipeline.errors import SchemaError
from chronik.pipeline.partitioner import partitions_of_keys
from chronik.protocol.compression import Codec
from chronik.protocol.records import RecordHeader


@dataclass(frozen=True)
class PublishSettings:
    bootstrap: str
    topic: str | None = None
    """None: each row names its own."""
    codec: Codec = Codec.NONE


class Publisher:
    """Every record is acknowledged by all replicas in sync when `publish` returns.

    The producer's identity is new with each publisher: what it sends again itself is written once, but a task that
    Spark runs a second time writes its rows a second time (at least once).
    """

    def __init__(self, cluster: Cluster, settings: PublishSettings) -> None:
        self._cluster = cluster
        self._topic = settings.topic
        self._producer = Producer(cluster, codec=settings.codec)
        # Tasks are many and may be short: if all began with partition 0, it would get everything.
        self._turn = random.randrange(2**31)

    def publish(self, rows: pa.RecordBatch) -> int:
        """How many records were written. Raises SchemaError, ClientError or KafkaError."""
        for topic, chosen in self._by_topic(rows):
            self._producer.send(topic, self._records(topic, chosen))
        return int(rows.num_rows)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if not rows.num_rows:
            return
        if self._topic is not None:
            yield self._topic, rows
            return
        topics = _column(rows, "topic")
        if topics is None or topics.null_count:
            raise SchemaError("a row without a topic, and no option `topic`")
        encoded = topics.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        indices = encoded.indices.to_numpy()
        for number, name in enumerate(names):
            yield name, rows if len(names) == 1 else rows.take(pa.array(np.flatnonzero(indices == number)))

    def _records(self, topic: str, rows: pa.RecordBatch) -> Iterable[OutgoingRecord]:
        keys, values, headers = (_column(rows, name) for name in ("key", "value", "headers"))
        partitions = self._partitions(topic, rows, keys)
        nothing = [None] * rows.num_rows
        for key, value, pairs, partition in zip(
            nothing if keys is None else keys.to_pylist(),
            nothing if values is None else values.to_pylist(),
            nothing if headers is None else headers.to_pylist(),
            partitions.tolist(),
            strict=True,
        ):
            yield OutgoingRecord(value, key, _pairs(pairs), None, partition)

    def _partitions(self, topic: str, rows: pa.RecordBatch, keys: pa.Array | None) -> npt.NDArray[np.int64]:
        count = len(self._cluster.retrying(lambda: self._cluster.partitions(topic, create=True)))
        self._turn += 1
        chosen = np.full(rows.num_rows, self._turn % count, np.int64)
        if keys is not None:
            keyed = keys.is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where(keyed, partitions_of_keys(keys, count), chosen)
        named = _column(rows, "partition")
        if named is not None and named.null_count < len(named):
            given = named.is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where(given, named.fill_null(0).to_numpy(), chosen)
        return chosen


def _column(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    if index < 0:
        return None
    column = rows.column(index)
    if name in ("key", "value"):
        return column.cast(pa.binary())  # text is its UTF-8
    return column.cast(pa.string()) if name == "topic" else column


def _pairs(headers: list[dict[str, Any]] | None) -> tuple[RecordHeader, ...]:
    return tuple((header["key"], header["value"]) for header in headers) if headers else ()
