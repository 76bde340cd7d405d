"""Looks for a text in messages, and follows a topic: as long as somebody listens, and within a budget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from chronik.client.errors import ClientError
from chronik.console.rest.call import Call
from chronik.console.rest.doing.positions import Offsets, bounds, partitions_of, positions
from chronik.console.rest.doing.reading import Batch, Reader
from chronik.console.rest.doing.showing import bytes_for_each, message_of, messages_of
from chronik.console.rest.refusals import refusal_of
from chronik.console.rest.shapes.messages import (
    Message,
    Progress,
    SearchEnd,
    SearchMessages,
    Skipped,
    TailMessages,
)
from chronik.console.rest.streams import Event
from chronik.protocol.batch import HEADER_BYTES
from chronik.protocol.compression import Codec, codec_of, decompress
from chronik.protocol.errors import KafkaError
from chronik.protocol.records import Record

PROGRESS_SECONDS: Final = 0.5
REST_SHARE: Final = 1.0
"""For each second of work it rests so long: the node has more to do than to search."""

TAIL_WAIT_SECONDS: Final = 0.5
TAIL_MESSAGES_MAX: Final = 100
"""Shown of each look, which are two in a second: nobody reads faster."""
TAIL_BEHIND_MAX: Final = 20_000
"""Messages of a partition; one that is further behind goes on at the end."""


def search(call: Call, asked: SearchMessages) -> Iterator[Event]:
    """Raises what refuses it, before the first event."""
    committed = asked.isolation == "committed"
    topic, partitions = partitions_of(call, call.path["topic"], asked.partition)
    starts, ends = bounds(call, topic, partitions, int(committed))
    begun = positions(call, topic, asked.from_, starts, ends)
    until = positions(call, topic, asked.until, starts, ends)
    reader = Reader(call, begun, committed=committed)
    first = [each for each in begun if begun[each] < until[each]]
    batches = reader.fetch(first) if first else []  # who may not read is told so by status
    return _Search(call, asked, reader, begun, until).events(batches)


class _Search:
    def __init__(self, call: Call, asked: SearchMessages, reader: Reader, begun: Offsets, until: Offsets) -> None:
        self._call = call
        self._asked = asked
        self._text = asked.text.encode()
        self._reader = reader
        self._begun = begun
        self._until = until
        self._progress = Progress(0, 0, 0)

    def events(self, batches: list[Batch]) -> Iterator[Event]:
        why, error = "end", None
        try:
            for event in self._events(batches):
                if isinstance(event, str):
                    why = event
                else:
                    yield event
        except (KafkaError, ClientError) as failed:
            why, error = "error", str(refusal_of(failed))
        yield Event("progress", self._progress)
        yield Event("end", SearchEnd(why, self._progress.scanned, self._progress.matches, error))  # type: ignore[arg-type]

    def _events(self, batches: list[Batch]) -> Iterator[Event | str]:
        """Yields at last the budget that is used up, if one is."""
        began = told = time.monotonic()
        while not self._call.has_gone.is_set():
            worked = time.monotonic()
            for batch in batches:
                for message in self._matches(batch):
                    self._progress.matches += 1
                    yield Event("match", message)
                    if self._progress.matches >= self._asked.max_matches:
                        yield "matches"
                        return
                if self._progress.scanned >= self._asked.max_messages:
                    yield "messages"
                    return
            now = time.monotonic()
            if now - began > self._asked.max_seconds:
                yield "seconds"
                return
            if now - told > PROGRESS_SECONDS:
                told = now
                yield Event("progress", self._progress)
            left = [each for each in self._begun if self._reader.positions[each] < self._until[each]]
            if not left:
                return
            time.sleep((now - worked) * REST_SHARE)
            batches = self._reader.fetch(left)

    def _matches(self, batch: Batch) -> Iterator[Message]:
        """A batch that does not have the text anywhere is not opened, and that is nearly all of them."""
        first, end = self._begun[batch.partition], self._until[batch.partition]
        count = min(batch.header.next_offset, end) - max(batch.header.base_offset, first)
        self._progress.bytes += batch.header.size
        if not self._may_have_it(batch):
            self._progress.scanned += max(0, min(count, batch.header.record_count))
            return
        for record in batch.records():
            if first <= record.offset < end:
                self._progress.scanned += 1
                if _has(record, self._text):
                    yield message_of(batch, record, "auto", bytes_for_each(self._asked.max_matches))

    def _may_have_it(self, batch: Batch) -> bool:
        payload = bytes(batch.payload[HEADER_BYTES:])
        codec = codec_of(batch.header.codec)
        return self._text in (payload if codec is Codec.NONE else decompress(codec, payload))


def _has(record: Record, text: bytes) -> bool:
    if text in (record.value or b"") or text in (record.key or b""):
        return True
    return any(text in name.encode() or text in (value or b"") for name, value in record.headers)


def tail(call: Call, asked: TailMessages) -> Iterator[Event]:
    """Raises what refuses it, before the first event."""
    committed = asked.isolation == "committed"
    topic, partitions = partitions_of(call, call.path["topic"], asked.partition)
    _, ends = bounds(call, topic, partitions, int(committed))
    reader = Reader(call, ends, committed=committed)
    first = reader.fetch(list(ends))
    return _tail(call, asked, reader, dict(ends), first)


def _tail(call: Call, asked: TailMessages, reader: Reader, begun: Offsets, batches: list[Batch]) -> Iterator[Event]:
    bytes_max = bytes_for_each(TAIL_MESSAGES_MAX)
    while not call.has_gone.is_set():
        began, count, skipped = time.monotonic(), 0, 0
        for batch in batches:
            if count >= TAIL_MESSAGES_MAX:
                skipped += batch.header.record_count
                continue
            for message in messages_of(batch, begun[batch.partition], 2**63, asked.format, bytes_max):
                if count < TAIL_MESSAGES_MAX:
                    yield Event("message", message)
                else:
                    skipped += 1
                count += 1
        if skipped:
            yield Event("skipped", Skipped(skipped + _catch_up(call, asked, reader)))
        rest_s = TAIL_WAIT_SECONDS - (time.monotonic() - began)
        if count and rest_s > 0:
            call.has_gone.wait(rest_s)
        batches = reader.fetch(list(begun), TAIL_WAIT_SECONDS)


def _catch_up(call: Call, asked: TailMessages, reader: Reader) -> int:
    """Leaves out what is too far behind, and returns how much."""
    topic, partitions = partitions_of(call, call.path["topic"], asked.partition)
    _, ends = bounds(call, topic, partitions, int(asked.isolation == "committed"))
    skipped = 0
    for partition, end in ends.items():
        behind = end - reader.positions.get(partition, end)
        if behind > TAIL_BEHIND_MAX:
            reader.positions[partition] = end
            skipped += behind
    return skipped
