"""`df.write.format("chronik")` and `writeStream`: rows become records, those of streams exactly once.

    bootstrap.servers     or kafka.bootstrap.servers
    topic                 where all rows go; without it the column `topic` says it row by row
    compression           or kafka.compression.type: none (default), gzip, snappy, lz4, zstd
    exactlyOnce           true: a task's rows are written in a transaction, once, however often the task is run; false:
                          at least once, as with Spark's own sink. A stream's default is true, since it has a name by
                          which a second attempt finds what the first has done; a batch's is false, since it has none
    transactionalId       what the names of transactions and of their group begin with: of a stream chronik-sink, and
                          the query's id follows; a batch that is to be written exactly once must be given one
    epoch                 the number of a batch (default 0): if it, or a higher one, was written under the same name
                          before, nothing is written. In `foreachBatch` it is the micro-batch's
    transactionTimeoutMs  or kafka.transaction.timeout.ms: how long a task may take to write its rows (default 15 min)

Columns: `value` (text or bytes), and, if wanted, `key` (the same), `headers` (an array of structs of `key` text and
`value` bytes), `topic` (text), `partition` (int), `timestamp_ms` (long, never null). Every record is acknowledged by
all replicas in sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructType,
)

from chronik.client.cluster import Cluster
from chronik.client.errors import ApiNotSupported
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.errors import OptionError, SchemaError
from chronik.pipeline.reading.options import Given, bootstrap_servers
from chronik.pipeline.writing.epochs import Epoch, check_tasks
from chronik.pipeline.writing.once import QUERY_PREFIX, TRANSACTION_TIMEOUT_MS, OnceSettings, write_once
from chronik.pipeline.writing.publishing import Publisher, PublishSettings
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError

QUERY_ID: Final = "sql.streaming.queryId"
"""The property under which Spark tells a task its query: kept in the checkpoint, so that it stays the same."""
BATCH_ID: Final = "streaming.sql.batchId"
"""And its micro-batch, which has the same number whenever it is run again."""

WITHOUT_TRANSACTIONS: Final = "with exactlyOnce=false rows are written at least once, and without transactions"

_BYTES: Final = (StringType, BinaryType, NullType)


class Published(WriterCommitMessage):  # type: ignore[misc]
    """What one task has written."""

    def __init__(self, records: int, query: str | None = None) -> None:
        self.records = records
        self.query = query
        """The group that knows of it; None if it was not written exactly once."""


class ChronikWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """Nothing to take back: records are in the topic as soon as they are acknowledged, or committed by their task.
    `write` runs on executors; also a task without rows answers."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        once = self._settings.once
        return _written(self._settings, None if once is None else Epoch(once.name, once.epoch, _task()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Runs on the driver, when all tasks are done."""
        if self._settings.once is not None:
            _check_tasks(self._settings, messages, self._settings.once.epoch)


class ChronikStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Does as ChronikWriter for each micro-batch."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        once = self._settings.once
        return _written(self._settings, None if once is None else _epoch_of_stream(once.name), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Runs on the driver, when all tasks are done."""
        _check_tasks(self._settings, messages, batchId)


def _check_tasks(settings: SinkSettings, messages: list[WriterCommitMessage | None], epoch: int) -> None:
    queries = {message.query for message in messages if isinstance(message, Published) and message.query}
    for query in queries:  # one, or none when rows are written at least once
        with Cluster(settings.publish.bootstrap, client_id=CLIENT_ID) as cluster:
            check_tasks(cluster, query, epoch, len(messages))


def _written(settings: SinkSettings, epoch: Epoch | None, batches: Iterator[pa.RecordBatch]) -> Published:
    with Cluster(settings.publish.bootstrap, client_id=CLIENT_ID) as cluster:
        if epoch is None or settings.once is None:
            publisher = Publisher(cluster, settings.publish)
            return Published(sum(publisher.publish(rows) for rows in batches))
        try:
            records = write_once(cluster, settings.publish, epoch, settings.once.timeout_ms, batches)
        except ApiNotSupported as error:
            raise ApiNotSupported(f"{error}: {WITHOUT_TRANSACTIONS}") from error
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:  # also from a cluster of an older level
                raise KafkaError(error.code, f"{error}: {WITHOUT_TRANSACTIONS}") from error
            raise
        return Published(records, epoch.query)


def _task() -> int:
    context = TaskContext.get()
    assert context is not None, "only tasks write"
    return int(context.partitionId())


def _epoch_of_stream(name: str) -> Epoch:
    """Spark tells neither the query nor the micro-batch to a writer in Python, but to every task that it starts."""
    context = TaskContext.get()
    assert context is not None, "only tasks write"
    query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or number is None:
        raise OptionError("exactlyOnce: this Spark does not say which micro-batch a task is of")
    return Epoch(f"{name}-{query}", int(number), _task())


@dataclass(frozen=True)
class SinkSettings:
    publish: PublishSettings
    once: OnceSettings | None
    """None: at least once."""


def sink_settings(
    options: Mapping[str, str], schema: StructType, *, streaming: bool, overwrite: bool = False
) -> SinkSettings:
    """Raises OptionError or SchemaError."""
    given = Given(options)
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode append")
    topic = given.text("topic")
    _check_columns(schema, topic)
    publish = PublishSettings(bootstrap_servers(options), topic, _codec(given))
    return SinkSettings(publish, _once(given, streaming) if given.flag("exactlyOnce", streaming) else None)


def _once(given: Given, streaming: bool) -> OnceSettings:
    name, epoch = given.text("transactionalId"), given.number("epoch", 0)
    timeout_ms = given.number("transactionTimeoutMs") or given.number("kafka.transaction.timeout.ms")
    if streaming and epoch is not None:
        raise OptionError("epoch is for batches: a stream counts its own")
    if not streaming and not name:
        raise OptionError("exactlyOnce: a batch needs a transactionalId, by which a second attempt finds the first")
    return OnceSettings(name or QUERY_PREFIX, timeout_ms or TRANSACTION_TIMEOUT_MS, epoch or 0)


def _codec(given: Given) -> Codec:
    name = given.text("compression", "kafka.compression.type") or "none"
    if name.upper() not in Codec.__members__:
        raise OptionError(f"compression = {name!r}: expected one of {', '.join(Codec.__members__).lower()}")
    return Codec[name.upper()]


def _check_columns(schema: StructType, topic: str | None) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise SchemaError("there is no column `value`")
    if topic is None and "topic" not in types:
        raise SchemaError("there is neither an option `topic` nor a column `topic`")
    for name, allowed in (
        ("key", _BYTES),
        ("value", _BYTES),
        ("topic", (StringType,)),
        ("partition", (IntegerType, NullType)),
        ("timestamp_ms", (LongType,)),
    ):
        if name in types and not isinstance(types[name], allowed):
            expected = " or ".join(kind.typeName() for kind in allowed if kind is not NullType)
            raise SchemaError(f"column `{name}` is {types[name].simpleString()}, expected {expected}")
    if "headers" in types and not _are_headers(types["headers"]):
        found = types["headers"].simpleString()
        raise SchemaError(f"column `headers` is {found}, expected array<struct<key:string,value:binary>>")


def _are_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return isinstance(found, NullType)
    fields = [(field.name, type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]
