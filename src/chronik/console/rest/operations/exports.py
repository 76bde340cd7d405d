"""Download of messages as files: JSON lines, CSV or Parquet."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from importlib.util import find_spec
from itertools import islice
from typing import Final

import msgspec

from chronik.console.messages.parquet_process import ParquetProcess, TooManyParquetProcesses
from chronik.console.rest.context import OperationContext
from chronik.console.rest.errors import RestError
from chronik.console.rest.models.messages import ExportMessages
from chronik.console.rest.operations.batch_reader import FetchedBatch
from chronik.console.rest.operations.csv_cells import format_csv_cell
from chronik.console.rest.operations.downloads import build_file_headers
from chronik.console.rest.operations.message_queries import create_filter, resolve_ranges
from chronik.console.rest.operations.record_scan import RecordScan
from chronik.console.rest.operations.typed_messages import NOT_DECODED, DecodedField, DecodedFields, MessageDecoder
from chronik.console.rest.streams import FileStream
from chronik.limits import KIB, MIB
from chronik.protocol.records import Record
from chronik.wording import format_install_hint

STEP_SECONDS: Final = 1.0
DECODING_CPU_SECONDS_MAX: Final = 3600.0
"""CPU time for which an export decodes typed keys and values. A file must not be undecoded from some row on."""
EMBEDDED_JSON_BYTES_MAX: Final = 256 * KIB
"""Maximum size of a value that is checked for JSON, which blocks other threads. Larger ones are exported as text."""
CHUNK_BYTES: Final = 64 * KIB
"""Size of the chunks that are queued for a client, which may read them slowly."""
ROW_GROUP_ROWS: Final = 5_000
ROW_GROUP_BYTES: Final = 2 * MIB
RECORD_BYTES_MAX: Final = 16 * MIB

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

COLUMNS: Final = ("partition", "offset", "timestamp", "key", "key_format", "value", "value_format", "headers")


class ExportedHeader(msgspec.Struct):
    """A header in a file."""

    name: str
    value: str | None


class ExportedMessage(msgspec.Struct):
    """A message in a file. The format of a key or value is json, text, base64, or null if it is null."""

    partition: int
    offset: int
    timestamp: str | None
    timestamp_ms: int
    key: str | msgspec.Raw | None
    key_format: str | None
    value: str | msgspec.Raw | None
    value_format: str | None
    headers: list[ExportedHeader]


def export(context: OperationContext, params: ExportMessages) -> FileStream:
    """Return a file with messages. An invalid request fails before the first byte."""
    content_type, create_writer = _FORMATS[params.format]
    message_filter = create_filter(params)
    write = create_writer()
    ranges = resolve_ranges(context, params)
    name = context.path_parameters["topic"]
    decoder = MessageDecoder(context, name, DECODING_CPU_SECONDS_MAX)
    scan = RecordScan(
        context,
        ranges.begun,
        ranges.bounds,
        order=params.order,
        committed=params.isolation == "committed",
        message_filter=message_filter,
        decoder=decoder,
        convert=_create_converter(decoder),
        limit=min(params.limit, 1000),
        record_bytes_max=RECORD_BYTES_MAX,
    )
    first = list(islice(scan.iter_found(STEP_SECONDS), 1))  # A missing permission must become an HTTP status.
    messages = islice(_iter_all(context, scan, decoder, first), params.limit)
    return FileStream(content_type, build_file_headers(f"{name}.{params.format}"), write(messages))


def _iter_all(
    context: OperationContext, scan: RecordScan[ExportedMessage], decoder: MessageDecoder, first: list[ExportedMessage]
) -> Iterator[ExportedMessage]:
    yield from first
    while not scan.is_complete and not context.abandoned.is_set():
        yield from scan.iter_found(STEP_SECONDS)
        decoder.renew()


def _create_converter(decoder: MessageDecoder) -> Callable[[FetchedBatch, Record, DecodedFields], ExportedMessage]:
    def convert(batch: FetchedBatch, record: Record, decoded: DecodedFields) -> ExportedMessage:
        if decoded is NOT_DECODED and not batch.header.is_control:
            decoded = decoder.decode(record)
        key, key_format = _convert_field(record.key, decoded.key)
        value, value_format = _convert_field(record.value, decoded.value)
        return ExportedMessage(
            batch.partition.partition,
            record.offset,
            _format_timestamp(record.timestamp),
            record.timestamp,
            key,
            key_format,
            value,
            value_format,
            [ExportedHeader(each, _convert_text(data)[0]) for each, data in record.headers],
        )

    return convert


def _convert_field(data: bytes | None, decoded: DecodedField | None) -> tuple[str | msgspec.Raw | None, str | None]:
    if decoded is not None and decoded.json is not None:
        return msgspec.Raw(decoded.json), "json"
    if data is not None and len(data) <= EMBEDDED_JSON_BYTES_MAX and data.lstrip()[:1] in (b"{", b"[", b'"'):
        try:
            msgspec.json.decode(data, type=msgspec.Raw)
            return msgspec.Raw(msgspec.json.format(data, indent=-1)), "json"
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return _convert_text(data)


def _convert_text(data: bytes | None) -> tuple[str | None, str | None]:
    if data is None:
        return None, None
    try:
        return data.decode(), "text"
    except UnicodeDecodeError:
        return b64encode(data).decode(), "base64"


def _format_timestamp(timestamp_ms: int) -> str | None:
    """Return a timestamp in ISO 8601 and UTC, or None if it is outside the years that Python supports."""
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _iter_chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Join or split pieces into chunks of equal size, except the last one."""
    joined = bytearray()
    for piece in pieces:
        joined += piece
        whole = len(joined) - len(joined) % CHUNK_BYTES
        for start in range(0, whole, CHUNK_BYTES):
            yield bytes(joined[start : start + CHUNK_BYTES])
        del joined[:whole]
    if joined:
        yield bytes(joined)


# JSON lines


def _create_json_writer() -> Callable[[Iterator[ExportedMessage]], Iterator[bytes]]:
    encoder = msgspec.json.Encoder()
    return lambda messages: _iter_chunks(encoder.encode(each) + b"\n" for each in messages)


# CSV


def _create_csv_writer() -> Callable[[Iterator[ExportedMessage]], Iterator[bytes]]:
    return lambda messages: _iter_chunks(_iter_csv_lines(messages))


def _iter_csv_lines(messages: Iterator[ExportedMessage]) -> Iterator[bytes]:
    yield ",".join(COLUMNS).encode() + b"\r\n"
    for each in messages:
        headers = msgspec.json.encode(each.headers).decode() if each.headers else None
        texts = (each.timestamp, _to_text(each.key), each.key_format, _to_text(each.value), each.value_format, headers)
        line = ",".join([str(each.partition), str(each.offset), *map(format_csv_cell, texts)])
        yield line.encode() + b"\r\n"


def _to_text(field: str | msgspec.Raw | None) -> str | None:
    return bytes(field).decode() if isinstance(field, msgspec.Raw) else field


# Parquet


class _ParquetRow(msgspec.Struct):
    """A row for the process that writes Parquet files."""

    partition: int
    offset: int
    timestamp: int
    key: str | None
    key_format: str | None
    value: str | None
    value_format: str | None
    headers: list[ExportedHeader]


def _create_parquet_writer() -> Callable[[Iterator[ExportedMessage]], Iterator[bytes]]:
    if find_spec("pyarrow") is None:
        reason = f"Parquet files require pyarrow on this node: {format_install_hint('spark')}, or choose jsonl or csv"
        raise RestError(HTTPStatus.NOT_IMPLEMENTED, reason)
    return _write_parquet


def _write_parquet(messages: Iterator[ExportedMessage]) -> Iterator[bytes]:
    try:
        process = ParquetProcess()  # before the first byte, so that a rejection becomes an HTTP status
    except TooManyParquetProcesses as error:
        raise RestError(HTTPStatus.TOO_MANY_REQUESTS, str(error)) from None
    return _iter_chunks(_iter_parquet_pieces(process, messages))


def _iter_parquet_pieces(process: ParquetProcess, messages: Iterator[ExportedMessage]) -> Iterator[bytes]:
    with closing(process):
        for lines in _group_rows(messages):
            yield process.convert(lines)
        yield process.convert(b"")


def _group_rows(messages: Iterator[ExportedMessage]) -> Iterator[bytes]:
    """Yield the rows of each row group as JSON lines."""
    encoder = msgspec.json.Encoder()
    lines, rows = bytearray(), 0
    for each in messages:
        lines += encoder.encode(
            _ParquetRow(
                each.partition,
                each.offset,
                each.timestamp_ms,
                _to_text(each.key),
                each.key_format,
                _to_text(each.value),
                each.value_format,
                each.headers,
            )
        )
        lines += b"\n"
        rows += 1
        if rows >= ROW_GROUP_ROWS or len(lines) >= ROW_GROUP_BYTES:
            yield bytes(lines)
            lines.clear()
            rows = 0
    if lines:
        yield bytes(lines)


_FORMATS: Final[dict[str, tuple[str, Callable[[], Callable[[Iterator[ExportedMessage]], Iterator[bytes]]]]]] = {
    "jsonl": ("application/jsonl", _create_json_writer),
    "csv": ("text/csv; charset=utf-8", _create_csv_writer),
    "parquet": ("application/vnd.apache.parquet", _create_parquet_writer),
}
