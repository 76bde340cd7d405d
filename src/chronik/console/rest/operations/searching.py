"""Operations that search messages and tail topics, as event streams with limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from chronik.client.errors import ClientError
from chronik.console.rest.context import OperationContext
from chronik.console.rest.errors import to_rest_error
from chronik.console.rest.models.messages import Message, Progress, SearchEnd, SearchMessages, Skipped, TailMessages
from chronik.console.rest.operations.batch_reader import BatchReader, FetchedBatch
from chronik.console.rest.operations.message_format import (
    NOT_DECODED,
    format_message,
    format_messages,
    value_bytes_max,
)
from chronik.console.rest.operations.positions import (
    Offsets,
    fetch_available_partitions,
    fetch_offset_bounds,
    resolve_position,
)
from chronik.console.rest.operations.typed_messages import MessageDecoder
from chronik.console.rest.streams import ServerSentEvent
from chronik.protocol.batch import HEADER_BYTES
from chronik.protocol.compression import Codec, decompress, parse_codec
from chronik.protocol.errors import CorruptRecords, KafkaError
from chronik.protocol.records import Record, iter_decompressed_records

PROGRESS_SECONDS: Final = 0.5
IDLE_SECONDS_PER_WORK_SECOND: Final = 1.0
"""Seconds for which a search pauses per second of work, so that it leaves CPU time for the node's other work."""

TAIL_WAIT_SECONDS: Final = 0.5
TAIL_CPU_SECONDS_MAX: Final = 0.25
"""CPU time for which a tail decodes the messages of one fetch."""
TAIL_MESSAGES_MAX: Final = 100
"""Maximum number of messages that a tail, the stream of a topic's new messages, sends per fetch."""
TAIL_BEHIND_MAX: Final = 20_000
"""Maximum lag of a tail per partition, in messages. If it is exceeded, the tail skips to the end offset."""


def search(context: OperationContext, params: SearchMessages) -> Iterator[ServerSentEvent]:
    """Search the messages of a topic for a text, and stream the matches. An invalid request fails before the first
    event.
    """
    committed = params.isolation == "committed"
    topic, partitions = fetch_available_partitions(context, context.path_parameters["topic"], params.partition)
    starts, ends = fetch_offset_bounds(context, topic, partitions, int(committed))
    start_offsets = resolve_position(context, topic, params.from_, starts, ends)
    until = resolve_position(context, topic, params.until, starts, ends)
    reader = BatchReader(context, start_offsets, committed=committed)
    first = [each for each in start_offsets if start_offsets[each] < until[each]]
    batches = reader.fetch(first) if first else []  # A missing permission must become an HTTP status, not an event.
    return _Search(context, params, reader, start_offsets, until).events(batches)


class _Search:
    """A running search for a text in the messages of a topic."""

    def __init__(
        self,
        context: OperationContext,
        params: SearchMessages,
        reader: BatchReader,
        start_offsets: Offsets,
        until: Offsets,
    ) -> None:
        self._context = context
        self._asked = params
        self._text = params.text.encode()
        self._decoder = MessageDecoder(context, context.path_parameters["topic"], params.max_seconds)
        self._reader = reader
        self._begun = start_offsets
        self._until = until
        self._progress = Progress(0, 0, 0)

    def events(self, batches: list[FetchedBatch]) -> Iterator[ServerSentEvent]:
        """Yield an event for each match, progress events, and finally the reason why the search ended."""
        reason, error = "end", None
        try:
            for event in self._search_batches(batches):
                if isinstance(event, str):
                    reason = event
                else:
                    yield event
        except (KafkaError, ClientError) as failed:
            reason, error = "error", str(to_rest_error(failed))
        yield ServerSentEvent("progress", self._progress)
        yield ServerSentEvent("end", SearchEnd(reason, self._progress.scanned, self._progress.matches, error))  # type: ignore[arg-type]

    def _search_batches(self, batches: list[FetchedBatch]) -> Iterator[ServerSentEvent | str]:
        """Yield events with matches and progress. If a limit of the search is reached, finally yield its name."""
        started = reported = time.monotonic()
        while not self._context.abandoned.is_set():
            batch_started = time.monotonic()
            self._decoder.renew()
            for batch in batches:
                for message in self._find_matching_messages(batch):
                    self._progress.matches += 1
                    yield ServerSentEvent("match", message)
                    if self._progress.matches >= self._asked.max_matches:
                        yield "matches"
                        return
                if self._progress.scanned >= self._asked.max_messages:
                    yield "messages"
                    return
            now = time.monotonic()
            if now - started > self._asked.max_seconds:
                yield "seconds"
                return
            if now - reported > PROGRESS_SECONDS:
                reported = now
                yield ServerSentEvent("progress", self._progress)
            left = [each for each in self._begun if self._reader.positions[each] < self._until[each]]
            if not left:
                return
            time.sleep((now - batch_started) * IDLE_SECONDS_PER_WORK_SECOND)
            batches = self._reader.fetch(left)

    def _find_matching_messages(self, batch: FetchedBatch) -> Iterator[Message]:
        """Yield the matching messages of a batch. A batch that cannot contain the text is not decoded."""
        first, end = self._begun[batch.partition], self._until[batch.partition]
        count = min(batch.header.next_offset, end) - max(batch.header.base_offset, first)
        self._progress.bytes += batch.header.size
        body = _decompress(batch)
        is_typed = self._is_typed(batch, body)
        if not is_typed and self._text not in body:
            self._progress.scanned += max(0, min(count, batch.header.record_count))
            return
        for record in batch.records():
            if first <= record.offset < end:
                self._progress.scanned += 1
                decoded = self._decoder.decode(record) if is_typed else NOT_DECODED
                if _contains_text(record, self._text) or decoded.contains(self._text):
                    yield format_message(batch, record, "auto", value_bytes_max(self._asked.max_matches), decoded)

    def _is_typed(self, batch: FetchedBatch, body: bytes) -> bool:
        """Return whether the first record is typed: producers serialize all records of a batch alike."""
        if batch.header.is_control:
            return False
        with suppress(CorruptRecords):
            return self._decoder.is_typed(record for record, _ in iter_decompressed_records(batch.header, body))
        return False


def _decompress(batch: FetchedBatch) -> bytes:
    payload = bytes(batch.encoded[HEADER_BYTES:])
    codec = parse_codec(batch.header.codec)
    return payload if codec is Codec.NONE else decompress(codec, payload)


def _contains_text(record: Record, text: bytes) -> bool:
    if text in (record.value or b"") or text in (record.key or b""):
        return True
    return any(text in name.encode() or text in (value or b"") for name, value in record.headers)


def tail(context: OperationContext, params: TailMessages) -> Iterator[ServerSentEvent]:
    """Stream the new messages of a topic. An invalid request fails before the first event."""
    committed = params.isolation == "committed"
    topic, partitions = fetch_available_partitions(context, context.path_parameters["topic"], params.partition)
    _, ends = fetch_offset_bounds(context, topic, partitions, int(committed))
    reader = BatchReader(context, ends, committed=committed)
    first = reader.fetch(list(ends))
    return _tail(context, params, reader, dict(ends), first)


def _tail(
    context: OperationContext,
    params: TailMessages,
    reader: BatchReader,
    start_offsets: Offsets,
    batches: list[FetchedBatch],
) -> Iterator[ServerSentEvent]:
    bytes_max = value_bytes_max(TAIL_MESSAGES_MAX)
    decoder = MessageDecoder(context, context.path_parameters["topic"], TAIL_CPU_SECONDS_MAX)
    while not context.abandoned.is_set():
        started, count, skipped = time.monotonic(), 0, 0
        decoder.renew()
        for batch in batches:
            if count >= TAIL_MESSAGES_MAX:
                skipped += batch.header.record_count
                continue
            start = start_offsets[batch.partition]
            for message in format_messages(batch, start, 2**63, params.format, bytes_max, decoder):
                if count < TAIL_MESSAGES_MAX:
                    yield ServerSentEvent("message", message)
                else:
                    skipped += 1
                count += 1
        if skipped:
            yield ServerSentEvent("skipped", Skipped(skipped + _skip_lagging_partitions(context, params, reader)))
        rest_s = TAIL_WAIT_SECONDS - (time.monotonic() - started)
        if count and rest_s > 0:
            context.abandoned.wait(rest_s)
        batches = reader.fetch(list(start_offsets), TAIL_WAIT_SECONDS)


def _skip_lagging_partitions(context: OperationContext, params: TailMessages, reader: BatchReader) -> int:
    """Skip to the end offset of partitions that lag too far behind, and return the number of skipped messages."""
    topic, partitions = fetch_available_partitions(context, context.path_parameters["topic"], params.partition)
    _, ends = fetch_offset_bounds(context, topic, partitions, int(params.isolation == "committed"))
    skipped = 0
    for partition, end in ends.items():
        behind = end - reader.positions.get(partition, end)
        if behind > TAIL_BEHIND_MAX:
            reader.positions[partition] = end
            skipped += behind
    return skipped
