"""Writers of the Spark sink, `df.write.format("chronik")` and `writeStream`; streams are written exactly once.

    bootstrap.servers     or kafka.bootstrap.servers
    topic                 destination of all rows; without it, the column `topic` names the topic of each row
    compression           or kafka.compression.type: none (default), gzip, snappy, lz4, zstd
    exactlyOnce           true (default for streams): a task's rows are written in a transaction, once, even if Spark
                          retries the task; false (default for batches): at least once, as with Spark's Kafka sink.
                          A batch has no id by which a retry could find the previous attempt, unless you set one
    transactionalId       prefix of the transactional ids and name of the group. Streams append the query id (default
                          prefix chronik-sink); required for a batch with exactlyOnce
    epoch                 number of a batch (default 0): nothing is written if this epoch, or a higher one, was already
                          written under the same transactionalId. In `foreachBatch`, use the micro-batch's number
    transactionTimeoutMs  or kafka.transaction.timeout.ms: maximum time for a task to write its rows (default 15 min)
    keyFormat, valueFormat, …   encode keys and values with schemas, see `typed_values`

Columns: `value` (string or binary; any type with `valueFormat`), and optionally `key` (the same), `headers` (an array
of structs of `key` string and `value` binary), `topic` (string), `partition` (int), `timestamp_ms` (long, never null).
All in-sync replicas acknowledge every record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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

from chronik.client.cluster import ClusterClient
from chronik.client.errors import ApiNotSupported
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.errors import OptionError, SchemaError
from chronik.pipeline.sink.exactly_once import (
    DEFAULT_ID_PREFIX,
    TRANSACTION_TIMEOUT_MS,
    ExactlyOnceSettings,
    TaskEpoch,
    check_task_count,
    write_exactly_once,
)
from chronik.pipeline.sink.publisher import Publisher, PublishSettings
from chronik.pipeline.sink.typed_values import (
    ColumnEncoding,
    RowEncoder,
    TypedSinkOptions,
    parse_typed_sink_options,
    resolve_encodings,
)
from chronik.pipeline.source.error_reports import MessageFirst
from chronik.pipeline.source.option_names import check_sink_option_names, log_ineffective_sink_options
from chronik.pipeline.source.options import parse_bootstrap_servers
from chronik.pipeline.source.raw_options import RawOptions
from chronik.pipeline.source.typed_options import RegistryResolver
from chronik.protocol.compression import Codec
from chronik.protocol.errors import ErrorCode, KafkaError

QUERY_ID: Final = "sql.streaming.queryId"
"""Name of the Spark task's local property with the query id, which is stable across restarts from a checkpoint."""
BATCH_ID: Final = "streaming.sql.batchId"
"""Name of the Spark task's local property with the micro-batch number, which a retry does not change."""

AT_LEAST_ONCE_HINT: Final = "set exactlyOnce=false to write rows at least once, without transactions"

_BYTES_TYPES: Final = (StringType, BinaryType, NullType)


class TaskCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """A task's commit message to the driver, with the number of records written."""

    def __init__(self, records: int, query: str | None = None) -> None:
        self.records = records
        self.query = query
        """Consumer group that stores the query's epochs; None if rows are written at least once."""


class ChronikWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """The batch writer of the Spark sink.

    Nothing has to be rolled back: records are visible once acknowledged, or once their task's transaction commits.
    `write` runs on executors, and returns a message even for a task without rows.
    """

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @MessageFirst()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        once = self._settings.exactly_once
        return _write_task(
            self._settings,
            None if once is None else TaskEpoch(once.transactional_id_prefix, once.epoch, _get_task_index()),
            iterator,
        )

    @MessageFirst()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Check on the driver that no earlier attempt of this write had more tasks."""
        if self._settings.exactly_once is not None:
            _check_task_counts(self._settings, messages, self._settings.exactly_once.epoch)


class ChronikStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The streaming writer of the Spark sink, which writes each micro-batch like ChronikWriter."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    @MessageFirst()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        once = self._settings.exactly_once
        return _write_task(
            self._settings, None if once is None else _read_stream_epoch(once.transactional_id_prefix), iterator
        )

    @MessageFirst()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Check on the driver that no earlier attempt of the micro-batch had more tasks."""
        _check_task_counts(self._settings, messages, batchId)


def _check_task_counts(settings: SinkSettings, messages: list[WriterCommitMessage | None], epoch: int) -> None:
    queries = {message.query for message in messages if isinstance(message, TaskCommitMessage) and message.query}
    for query in queries:  # at most one; none if rows are written at least once
        with ClusterClient(settings.publish.bootstrap, client_id=CLIENT_ID) as cluster:
            check_task_count(cluster, query, epoch, len(messages))


def _write_task(
    settings: SinkSettings, epoch: TaskEpoch | None, batches: Iterator[pa.RecordBatch]
) -> TaskCommitMessage:
    batches = RowEncoder(settings.encodings).encode(batches)
    with ClusterClient(settings.publish.bootstrap, client_id=CLIENT_ID) as cluster:
        if epoch is None or settings.exactly_once is None:
            publisher = Publisher(cluster, settings.publish)
            return TaskCommitMessage(sum(publisher.publish(rows) for rows in batches))
        try:
            records = write_exactly_once(cluster, settings.publish, epoch, settings.exactly_once.timeout_ms, batches)
        except ApiNotSupported as error:
            raise ApiNotSupported(f"{error}: {AT_LEAST_ONCE_HINT}") from error
        except KafkaError as error:
            if error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:  # or an older cluster
                raise KafkaError(error.code, f"{error}: {AT_LEAST_ONCE_HINT}") from error
            raise
        return TaskCommitMessage(records, epoch.query)


def _get_task_index() -> int:
    context = TaskContext.get()
    assert context is not None, "only tasks write"
    return int(context.partitionId())


def _read_stream_epoch(name: str) -> TaskEpoch:
    """Return the epoch of the current task from its local properties; Python writers have no other source."""
    context = TaskContext.get()
    assert context is not None, "only tasks write"
    query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or number is None:
        raise OptionError("exactlyOnce: this version of Spark does not pass the micro-batch number to its tasks")
    return TaskEpoch(f"{name}-{query}", int(number), _get_task_index())


@dataclass(frozen=True)
class SinkSettings:
    """The parsed options of the sink."""

    publish: PublishSettings
    exactly_once: ExactlyOnceSettings | None
    """The exactly-once settings, or None if rows are written at least once."""
    encodings: tuple[ColumnEncoding, ...] = ()
    """The encodings of typed columns."""


def parse_sink_settings(
    options: Mapping[str, str], schema: StructType, *, streaming: bool, overwrite: bool = False
) -> SinkSettings:
    """Parse the options of the sink and check the columns of the rows.

    Raises:
        OptionError, SchemaError: An option or a column is invalid.
    """
    check_sink_option_names(options)
    given = RawOptions(options)
    if overwrite:
        raise OptionError('a topic cannot be overwritten: use .mode("append")')
    topic = _parse_topic(given)
    typed = parse_typed_sink_options(given)
    _check_columns(schema, topic, {column.name for column in typed.columns})
    publish = PublishSettings(parse_bootstrap_servers(options), topic, _parse_codec(given))
    exactly_once = given.get_bool("exactlyOnce", streaming)
    once = _parse_exactly_once_settings(given, streaming) if exactly_once else None
    if not exactly_once:
        _reject_exactly_once_options(given)
    if not streaming:  # Spark creates the writer of a stream again for every micro-batch
        log_ineffective_sink_options(options, exactly_once=exactly_once)
    registry = RegistryResolver(given, lambda: publish.bootstrap)
    return SinkSettings(publish, once, resolve_encodings(typed, registry, topic, _get_arrow_types(schema, typed)))


def _get_arrow_types(schema: StructType, typed: TypedSinkOptions) -> dict[str, pa.DataType]:
    from pyspark.sql.pandas.types import to_arrow_type

    names = {column.name for column in typed.columns}
    return {field.name: to_arrow_type(field.dataType, timezone="UTC") for field in schema.fields if field.name in names}


def _parse_topic(given: RawOptions) -> str | None:
    topic = given.get_str("topic")
    if topic is not None and not topic.strip():
        raise OptionError(f"topic = {topic!r}: expected the name of a topic")
    return None if topic is None else topic.strip()


def _reject_exactly_once_options(given: RawOptions) -> None:
    for name in ("transactionalId", "epoch"):
        if given.get_str(name) is not None:
            raise OptionError(f"{name} has no effect without exactlyOnce=true: set it, or remove {name}")


def _parse_exactly_once_settings(given: RawOptions, streaming: bool) -> ExactlyOnceSettings:
    name, epoch = given.get_str("transactionalId"), given.get_int("epoch", 0)
    timeout_ms = given.get_int("transactionTimeoutMs", alias="kafka.transaction.timeout.ms")
    if streaming and epoch is not None:
        raise OptionError("epoch is for batches only: a stream uses its micro-batch numbers")
    if not streaming and not name:
        raise OptionError("exactlyOnce: a batch needs a transactionalId, so that a retry finds the previous attempt")
    return ExactlyOnceSettings(name or DEFAULT_ID_PREFIX, timeout_ms or TRANSACTION_TIMEOUT_MS, epoch or 0)


def _parse_codec(given: RawOptions) -> Codec:
    name = given.get_str("compression", "kafka.compression.type") or "none"
    if name.upper() not in Codec.__members__:
        raise OptionError(f"compression = {name!r}: expected one of {', '.join(Codec.__members__).lower()}")
    return Codec[name.upper()]


def _check_columns(schema: StructType, topic: str | None, typed: Collection[str]) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    if "value" not in types:
        raise SchemaError("the column `value` is missing")
    for name in typed:
        if name not in types:
            raise SchemaError(f"the column `{name}` is missing: add it, or remove {name}Format")
    if topic is None and "topic" not in types:
        raise SchemaError("no destination topic: set the option `topic`, or add a column `topic`")
    for name, allowed in (
        ("key", _BYTES_TYPES),
        ("value", _BYTES_TYPES),
        ("topic", (StringType,)),
        ("partition", (IntegerType, NullType)),
        ("timestamp_ms", (LongType,)),
    ):
        if name in types and name not in typed and not isinstance(types[name], allowed):
            expected = " or ".join(kind.typeName() for kind in allowed if kind is not NullType)
            raise SchemaError(f"column `{name}` is {types[name].simpleString()}, expected {expected}")
    if "headers" in types and not _is_headers_type(types["headers"]):
        found = types["headers"].simpleString()
        raise SchemaError(f"column `headers` is {found}, expected array<struct<key:string,value:binary>>")


def _is_headers_type(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return isinstance(found, NullType)
    fields = [(field.name, type(field.dataType)) for field in found.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]
