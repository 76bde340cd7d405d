"""Operations that read and produce messages."""

from __future__ import annotations

import binascii
from base64 import b64decode
from itertools import islice
from typing import Final

import msgspec

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.console.http import HttpResponse
from chronik.console.rest.context import OperationContext, build_bad_request_error, build_not_found_error
from chronik.console.rest.errors import JSON
from chronik.console.rest.models.messages import Messages, NewMessage, Produced, ReadMessages, ReadValue
from chronik.console.rest.operations.batch_reader import BatchReader
from chronik.console.rest.operations.downloads import build_file_response
from chronik.console.rest.operations.message_format import create_converter, value_bytes_max
from chronik.console.rest.operations.message_queries import create_filter, resolve_ranges
from chronik.console.rest.operations.positions import (
    fetch_available_partitions,
    fetch_offset_bounds,
    format_page_token,
    parse_last_count,
)
from chronik.console.rest.operations.record_scan import RecordScan, compute_kept_max
from chronik.console.rest.operations.typed_messages import MessageDecoder
from chronik.protocol.records import Record

DECODING_CPU_SECONDS_MAX: Final = 10.0
"""CPU time for which one read decodes typed keys and values. The rest is shown undecoded."""
LAST_MESSAGES: Final = "-50"
"""The default start position: the last messages."""


def read(context: OperationContext, params: ReadMessages) -> Messages:
    """Read a page of messages."""
    message_filter = create_filter(params)
    reads_last = params.order == "oldest" and (params.from_ or LAST_MESSAGES).startswith("-")
    is_forward = params.order == "oldest" and not reads_last
    limit = params.limit
    if reads_last:
        limit = min(limit, parse_last_count(params.from_ or LAST_MESSAGES))
    asked = msgspec.structs.replace(params, order="newest", from_=None) if reads_last else params
    ranges = resolve_ranges(context, asked)
    starts, ends, begun = ranges.starts, ranges.ends, ranges.begun
    bytes_max = value_bytes_max(max(params.limit, compute_kept_max(limit, len(starts)) * len(starts) // 8))
    decoder = MessageDecoder(context, context.path_parameters["topic"], DECODING_CPU_SECONDS_MAX)
    scan = RecordScan(
        context,
        begun,
        ranges.bounds,
        order=asked.order,
        committed=params.isolation == "committed",
        message_filter=message_filter,
        decoder=decoder,
        convert=create_converter(params.format, bytes_max, decoder),
        limit=limit,
        record_bytes_max=2 * bytes_max,
    )
    items = list(islice(scan.iter_found(params.max_seconds), limit)) if limit else []
    cursor = scan.cursor
    page = Messages(
        items=items,
        next=None if scan.is_complete else format_page_token(cursor),
        ends={each.partition: offset for each, offset in ends.items()},
        previous=None if begun == (starts if is_forward else ends) else format_page_token(begun),
        is_complete=len(items) >= limit or scan.is_complete,
        scanned=scan.scanned,
        scanned_bytes=scan.bytes,
    )
    if reads_last:  # The page is in the order of the log, and continues with new messages.
        page.items.reverse()
        page.previous, page.next = page.next, format_page_token(ends)
    return page


def value(context: OperationContext, params: ReadValue) -> HttpResponse:
    """Return the bytes of a key, a value or a header value, or the JSON of a typed key or value."""
    name, index, offset = (context.path_parameters[each] for each in ("topic", "partition", "offset"))
    partition = TopicPartition(name, index)
    record = _fetch_record(context, partition, offset)
    file_name = f"{name}-{index}-{offset}-{params.field}"
    if params.decoded:
        decoder = MessageDecoder(context, name, DECODING_CPU_SECONDS_MAX)
        decoded = {"key": decoder.decode(record).key, "value": decoder.decode(record).value}.get(params.field)
        if decoded is None or decoded.json is None:
            reason = "it names no schema" if decoded is None else decoded.schema.problem
            raise build_bad_request_error(f"the {params.field} cannot be decoded: {reason}")
        return build_file_response(JSON, f"{file_name}.json", decoded.json)
    if params.field == "header" and params.header >= len(record.headers):
        raise build_not_found_error(f"the message has {len(record.headers)} headers")
    data = {"key": record.key, "value": record.value}.get(params.field)
    if params.field == "header":
        data = record.headers[params.header][1]
    if data is None:
        raise build_not_found_error(f"the {params.field} is null")
    return build_file_response("application/octet-stream", f"{file_name}.bin", data)


def _fetch_record(context: OperationContext, partition: TopicPartition, offset: int) -> Record:
    """Return a record, whether or not its transaction was committed. Raise RestError if it does not exist."""
    topic, partitions = fetch_available_partitions(context, partition.topic, partition.partition)
    starts, ends = fetch_offset_bounds(context, topic, partitions, isolation=0)
    if starts[partition] <= offset < ends[partition]:
        reader = BatchReader(context, {partition: offset}, committed=False)
        for batch in reader.fetch([partition]):
            for record in batch.records():
                if record.offset == offset:
                    return record
    reason = "it was removed by compaction, or never existed"
    if not starts[partition] <= offset < ends[partition]:
        reason = f"the partition has offsets {starts[partition]} to {ends[partition] - 1}"
    raise build_not_found_error(f"message {offset} of {partition} does not exist: {reason}")


def produce(context: OperationContext, params: NewMessage) -> Produced:
    """Produce a message."""
    name = context.path_parameters["topic"]
    context.cluster.retry(lambda: context.cluster.topic(name))  # A misspelt name must not auto-create a topic.
    record = OutgoingRecord(
        _encode_text("value", params.value, params.value_format),
        _encode_text("key", params.key, params.key_format),
        tuple((each.name, None if each.value is None else each.value.encode()) for each in params.headers),
        params.timestamp_ms,
        params.partition,
    )
    (produced,) = Producer(context.cluster).send(name, [record])
    return Produced(produced.partition, produced.base_offset)


def _encode_text(what: str, text: str | None, how: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        if how == "base64":
            return b64decode(text, validate=True)
        data = text.encode()
        if how == "json":
            msgspec.json.decode(data)
        return data
    except (binascii.Error, UnicodeEncodeError):
        raise build_bad_request_error(f"{what} is not valid {how or 'text'}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise build_bad_request_error(f"{what} is not valid JSON: {error}") from None
