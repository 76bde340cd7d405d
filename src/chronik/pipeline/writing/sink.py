"""`df.write.format("chronik")` and `writeStream`: rows become records, at least once, as with Spark's own sink.

    bootstrap.servers     or kafka.bootstrap.servers
    topic                 where all rows go; without it the column `topic` says it row by row
    compression           or kafka.compression.type: none (default), gzip, snappy, lz4, zstd

Columns: `value` (text or bytes), and, if wanted, `key` (the same), `headers` (an array of structs of `key` text and
`value` bytes), `topic` (text), `partition` (int), `timestamp_ms` (long, never null). Every record is acknowledged by
all replicas in sync.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
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
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.errors import OptionError, SchemaError
from chronik.pipeline.reading.options import bootstrap_servers
from chronik.pipeline.writing.publishing import Publisher, PublishSettings
from chronik.protocol.compression import Codec

_BYTES: Final = (StringType, BinaryType, NullType)


class Published(WriterCommitMessage):  # type: ignore[misc]
    """What one task has written."""

    def __init__(self, records: int) -> None:
        self.records = records


class _TaskWriter:
    """Runs on executors; also a task without rows answers."""

    def __init__(self, settings: PublishSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with Cluster(self._settings.bootstrap, client_id=CLIENT_ID) as cluster:
            publisher = Publisher(cluster, self._settings)
            return Published(sum(publisher.publish(rows) for rows in iterator))


class ChronikWriter(_TaskWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Nothing to commit or to take back: records are in the topic as soon as they are acknowledged."""


class ChronikStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Does as ChronikWriter; a micro-batch that is run again is written again."""


def sink_settings(options: Mapping[str, str], schema: StructType, *, overwrite: bool = False) -> PublishSettings:
    """Raises OptionError or SchemaError."""
    given = {name.lower(): value for name, value in options.items()}
    if overwrite:
        raise OptionError("a topic cannot be overwritten: use mode append")
    if given.get("exactlyonce", "false").lower() != "false":
        raise OptionError("exactlyOnce: records are written at least once")
    topic = given.get("topic")
    _check_columns(schema, topic)
    return PublishSettings(bootstrap_servers(given), topic, _codec(given))


def _codec(given: Mapping[str, str]) -> Codec:
    name = given.get("compression") or given.get("kafka.compression.type") or "none"
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
