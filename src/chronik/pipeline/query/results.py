"""Results of queries as a stream of Arrow record batches, which never holds the whole result in memory.

    from chronik.pipeline.query.results import read_record_batches

    reader = read_record_batches(query(spark, "SELECT * FROM orders", "127.0.0.1:9092", "tables"))
    for batch in reader: ...

PySpark can collect a result as one Arrow table, or stream it as rows, which is slower than the query. Here the tasks
encode their rows as Arrow messages, and Spark streams the messages as rows of one binary column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from chronik.limits import MIB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MESSAGE_COLUMN: Final = "message"

TIME_ZONE_SETTING: Final = "spark.sql.session.timeZone"

MESSAGE_BYTES_TARGET: Final = 4 * MIB
"""Target size of a message: Spark Connect rejects messages above 128 MiB, and the reader holds a few in memory."""


def read_record_batches(frame: DataFrame) -> pa.RecordBatchReader:
    """Execute a DataFrame, and return its rows in order as Arrow record batches, which are read as they are consumed.

    Through Spark Connect, the server stores the part of the result that has not been read, up to
    `spark.driver.maxResultSize`. Otherwise, it is at most two partitions.

    Raises:
        PySparkException: Spark rejects the statement, or a type has no equivalent in Arrow. While the reader is used:
            the query failed.
    """
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BinaryType, StructField, StructType

    schema = StructType([StructField(MESSAGE_COLUMN, BinaryType(), nullable=False)])
    expected = to_arrow_schema(frame.schema, timezone=str(frame.sparkSession.conf.get(TIME_ZONE_SETTING)))
    messages = _convert_errors(frame.mapInArrow(encode_batches, schema).toLocalIterator(prefetchPartitions=True))
    batches = (batch for message in messages for batch in _decode_message(bytes(message[0])))
    first = next(batches, None)
    if first is None:
        return pa.RecordBatchReader.from_batches(expected, iter(()))
    return pa.RecordBatchReader.from_batches(first.schema, _chain(first, batches))


def _convert_errors(messages: Iterator[Row]) -> Iterator[Row]:
    """Raise errors of a local session as PySparkExceptions, which PySpark does not while it iterates over rows.

    Raises:
        PySparkException: The query failed.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors.exceptions.captured import UnknownException, convert_exception

    try:
        yield from messages
    except Py4JJavaError as error:
        cause, converted = error.java_exception, convert_exception(error.java_exception)
        while isinstance(converted, UnknownException) and cause.getCause() is not None:
            cause = cause.getCause()
            converted = convert_exception(cause)
        raise converted from error


def encode_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Encode each record batch as one or several Arrow messages. Tasks run it."""
    for batch in batches:
        for part in split_batch(batch, MESSAGE_BYTES_TARGET):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, part.schema) as writer:
                writer.write_batch(part)
            message = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays([message], [MESSAGE_COLUMN])


def split_batch(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Split a batch in half until each part has at most `bytes_max` bytes or one row."""
    if batch.num_rows <= 1 or batch.nbytes <= bytes_max:
        if batch.num_rows:
            yield batch
        return
    half = batch.num_rows // 2
    yield from split_batch(batch.slice(0, half), bytes_max)
    yield from split_batch(batch.slice(half), bytes_max)


def _decode_message(message: bytes) -> Iterator[pa.RecordBatch]:
    with pa.ipc.open_stream(message) as reader:
        yield from reader


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
