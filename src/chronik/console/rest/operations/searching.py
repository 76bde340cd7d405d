"""Operations that search messages and tail topics, as event streams with limits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import Final

from chronik.client.errors import ClientError
from chronik.console.messages.message_filter import MessageFilter
from chronik.console.rest.context import OperationContext
from chronik.console.rest.errors import to_rest_error
from chronik.console.rest.models.messages import Message, Progress, SearchEnd, SearchMessages, Skipped, TailMessages
from chronik.console.rest.operations.batch_reader import BatchReader, FetchedBatch
from chronik.console.rest.operations.message_format import create_converter, value_bytes_max
from chronik.console.rest.operations.message_queries import create_filter
from chronik.console.rest.operations.positions import (
    Offsets,
    fetch_available_partitions,
    fetch_offset_bounds,
    resolve_position,
)
from chronik.console.rest.operations.record_scan import RecordScan, to_decoded_json
from chronik.console.rest.operations.typed_messages import NOT_DECODED, MessageDecoder
from chronik.console.rest.streams import ServerSentEvent
from chronik.protocol.errors import KafkaError

PROGRESS_SECONDS: Final = 0.5

TAIL_WAIT_SECONDS: Final = 0.5
TAIL_CPU_SECONDS_MAX: Final = 0.25
"""CPU time for which a tail decodes the messages of one fetch."""
TAIL_MESSAGES_MAX: Final = 100
"""Maximum number of messages that a tail, the stream of a topic's new messages, sends per fetch."""
TAIL_BEHIND_MAX: Final = 20_000
"""Maximum lag of a tail per partition, in messages. If it is exceeded, the tail skips to the end offset."""


def search(context: OperationContext, params: SearchMessages) -> Iterator[ServerSentEvent]:
    """Search the messages of a topic, and stream the matches. An invalid request fails before the first event."""
    message_filter = create_filter(params)
    committed = params.isolation == "committed"
    topic, partitions = fetch_available_partitions(context, context.path_parameters["topic"], params.partition)
    starts, ends = fetch_offset_bounds(context, topic, partitions, int(committed))
    start_offsets = resolve_position(context, topic, params.from_, starts, ends)
    until = resolve_position(context, topic, params.until, starts, ends)
    decoder = MessageDecoder(context, context.path_parameters["topic"], params.max_seconds)
    bytes_max = value_bytes_max(params.max_matches)
    scan = RecordScan(
        context,
        start_offsets,
        {each: max(offset, start_offsets[each]) for each, offset in until.items()},
        order="oldest",
        committed=committed,
        message_filter=message_filter,
        decoder=decoder,
        convert=create_converter("auto", bytes_max, decoder),
        limit=params.max_matches,
        record_bytes_max=2 * bytes_max,
    )
    matches = islice(scan.iter_found(PROGRESS_SECONDS), params.max_matches)
    first = list(matches)  # A missing permission must become an HTTP status, not an event.
    return _Search(context, params, scan, decoder).events(first)


class _Search:
    """A running search in the messages of a topic."""

    def __init__(
        self, context: OperationContext, params: SearchMessages, scan: RecordScan[Message], decoder: MessageDecoder
    ) -> None:
        self._context = context
        self._asked = params
        self._scan = scan
        self._decoder = decoder
        self._matches = 0

    def events(self, first: list[Message]) -> Iterator[ServerSentEvent]:
        """Yield an event for each match, progress events, and finally the reason why the search ended."""
        reason, error = "end", None
        try:
            for event in self._search(first):
                if isinstance(event, str):
                    reason = event
                else:
                    yield event
        except (KafkaError, ClientError) as failed:
            reason, error = "error", str(to_rest_error(failed))
        yield self._build_progress()
        yield ServerSentEvent("end", SearchEnd(reason, self._scan.scanned, self._matches, error))  # type: ignore[arg-type]

    def _search(self, first: list[Message]) -> Iterator[ServerSentEvent | str]:
        """Yield events with matches and progress. If a limit of the search is reached, finally yield its name."""
        deadline = time.monotonic() + self._asked.max_seconds
        found: Iterator[Message] = iter(first)
        while not self._context.abandoned.is_set():
            for message in found:
                self._matches += 1
                yield ServerSentEvent("match", message)
                if self._matches >= self._asked.max_matches:
                    yield "matches"
                    return
            if self._scan.scanned >= self._asked.max_messages:
                yield "messages"
                return
            if self._scan.is_complete:
                return
            if time.monotonic() > deadline:
                yield "seconds"
                return
            yield self._build_progress()
            self._decoder.renew()
            found = self._scan.iter_found(PROGRESS_SECONDS)

    def _build_progress(self) -> ServerSentEvent:
        return ServerSentEvent("progress", Progress(self._scan.scanned, self._scan.bytes, self._matches))


def tail(context: OperationContext, params: TailMessages) -> Iterator[ServerSentEvent]:
    """Stream the new messages of a topic. An invalid request fails before the first event."""
    message_filter = create_filter(params)
    committed = params.isolation == "committed"
    topic, partitions = fetch_available_partitions(context, context.path_parameters["topic"], params.partition)
    _, ends = fetch_offset_bounds(context, topic, partitions, int(committed))
    reader = BatchReader(context, ends, committed=committed)
    first = reader.fetch(list(ends))
    return _tail(context, params, message_filter, reader, dict(ends), first)


def _tail(
    context: OperationContext,
    params: TailMessages,
    message_filter: MessageFilter,
    reader: BatchReader,
    start_offsets: Offsets,
    batches: list[FetchedBatch],
) -> Iterator[ServerSentEvent]:
    decoder = MessageDecoder(context, context.path_parameters["topic"], TAIL_CPU_SECONDS_MAX)
    convert = create_converter(params.format, value_bytes_max(TAIL_MESSAGES_MAX), decoder)
    while not context.abandoned.is_set():
        started, count, skipped = time.monotonic(), 0, 0
        decoder.renew()
        for batch in batches:
            if count >= TAIL_MESSAGES_MAX:
                skipped += batch.header.record_count
                continue
            for record in batch.records():
                if record.offset < start_offsets[batch.partition]:
                    continue
                if count >= TAIL_MESSAGES_MAX:
                    skipped += 1
                    continue
                decoded = NOT_DECODED
                if message_filter.needs_decoded_values and not batch.header.is_control:
                    decoded = decoder.decode(record)
                if message_filter.matches(record, batch.partition.partition, to_decoded_json(decoded)):
                    yield ServerSentEvent("message", convert(batch, record, decoded))
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
