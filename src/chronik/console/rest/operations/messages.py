"""Operations that read and produce messages."""

from __future__ import annotations

import binascii
import time
from base64 import b64decode
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from chronik.client.producer import Producer
from chronik.client.records import OutgoingRecord, TopicPartition
from chronik.console.rest.context import OperationContext, build_bad_request_error
from chronik.console.rest.models.messages import Message, Messages, NewMessage, Produced, ReadMessages
from chronik.console.rest.operations.batch_reader import BatchReader
from chronik.console.rest.operations.message_format import format_messages, value_bytes_max
from chronik.console.rest.operations.positions import (
    Offsets,
    fetch_available_partitions,
    fetch_offset_bounds,
    format_page_token,
    resolve_position,
)
from chronik.console.rest.operations.typed_messages import MessageDecoder

READ_SECONDS_MAX: Final = 3.0
DECODING_CPU_SECONDS_MAX: Final = 2.0
"""CPU time for which one read decodes typed keys and values. The rest is shown undecoded."""
WIDENING_FACTOR: Final = 4
"""Factor by which the offset range to read grows while it contains fewer messages than requested."""


def read(context: OperationContext, params: ReadMessages) -> Messages:
    """Read a page of messages."""
    committed = params.isolation == "committed"
    topic, partitions = fetch_available_partitions(context, context.path_parameters["topic"], params.partition)
    starts, ends = fetch_offset_bounds(context, topic, partitions, int(committed))
    start_offsets = resolve_position(context, topic, params.from_, starts, ends)
    end_offsets = {each.partition: offset for each, offset in ends.items()}
    message_reader = _MessageReader(context, params, ends, committed=committed)
    if params.from_.startswith("-"):
        return Messages(_read_last(message_reader, int(params.from_[1:]), starts), format_page_token(ends), end_offsets)
    found = _sort_by_time(message_reader.read_first(start_offsets))
    items = found[: params.limit]
    next_offsets = message_reader.next_offsets(start_offsets, items, found)
    return Messages(items, format_page_token(next_offsets) if next_offsets != ends else None, end_offsets)


class _MessageReader:
    """A reader of messages from several partitions up to given end offsets."""

    def __init__(self, context: OperationContext, params: ReadMessages, ends: Offsets, *, committed: bool) -> None:
        self._context = context
        self._limit = params.limit
        self._format = params.format
        self._ends = ends
        self._committed = committed
        self._decoder = MessageDecoder(context, context.path_parameters["topic"], DECODING_CPU_SECONDS_MAX)
        self._read_until: Offsets = {}
        """The offset up to which each partition has been read (exclusive)."""
        self._cut: set[TopicPartition] = set()
        """Partitions from which more messages were read than the page contains, because batches are read as a whole."""

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def ends(self) -> Offsets:
        return self._ends

    def read_first(self, start_offsets: Offsets) -> list[Message]:
        """Return up to `limit` messages of each partition, starting at the given offsets."""
        found: list[Message] = []
        counts = dict.fromkeys(start_offsets, 0)
        for partition, message in self._iter_messages(start_offsets, lambda each: counts[each] < self._limit):
            if counts[partition] < self._limit:
                counts[partition] += 1
                found.append(message)
            else:
                self._cut.add(partition)
        return found

    def read_last(self, start_offsets: Offsets) -> list[Message]:
        """Read to the end offsets and return the last `limit` messages of each partition."""
        found: dict[TopicPartition, deque[Message]] = {each: deque(maxlen=self._limit) for each in start_offsets}
        for partition, message in self._iter_messages(start_offsets, lambda each: True):
            found[partition].append(message)
        return [message for messages in found.values() for message in messages]

    def _iter_messages(
        self, start_offsets: Offsets, wants: Callable[[TopicPartition], bool]
    ) -> Iterator[tuple[TopicPartition, Message]]:
        reader = BatchReader(self._context, start_offsets, committed=self._committed)
        bytes_max = value_bytes_max(self._limit)
        deadline = time.monotonic() + READ_SECONDS_MAX
        while time.monotonic() < deadline:
            left = [each for each in start_offsets if reader.positions[each] < self._ends[each] and wants(each)]
            before = dict(reader.positions)
            batches = reader.fetch(left) if left else []
            self._read_until = {each: min(offset, self._ends[each]) for each, offset in reader.positions.items()}
            for batch in batches:
                end = self._ends[batch.partition]
                start = start_offsets[batch.partition]
                for message in format_messages(batch, start, end, self._format, bytes_max, self._decoder):
                    yield batch.partition, message
            if reader.positions == before:
                return

    def next_offsets(self, start_offsets: Offsets, taken: list[Message], found: list[Message]) -> Offsets:
        """Return the offsets at which the next page starts, given the messages on this page and all messages that were
        read.
        """
        counts_taken, counts = Counter(each.partition for each in taken), Counter(each.partition for each in found)
        offsets = {each.partition: each.offset + 1 for each in taken}
        whole = {
            each for each in self._read_until if counts_taken[each.partition] == counts[each.partition]
        } - self._cut
        return {
            each: self._read_until[each] if each in whole else offsets.get(each.partition, offset)
            for each, offset in start_offsets.items()
        }


def _read_last(message_reader: _MessageReader, count: int, starts: Offsets) -> list[Message]:
    """Return the last `count` messages, reading an ever larger offset range until enough messages are found."""
    width = count_wanted = min(message_reader.limit, count)
    while True:
        start_offsets = {each: max(start, message_reader.ends[each] - width) for each, start in starts.items()}
        items = _sort_by_time(message_reader.read_last(start_offsets))
        if len(items) >= count_wanted or start_offsets == starts:
            return items[-count_wanted:] if count_wanted else []
        width *= WIDENING_FACTOR


def _sort_by_time(found: list[Message]) -> list[Message]:
    """Sort messages by timestamp, but keep the offset order of each partition."""
    latest: dict[int, int] = {}
    keys = {}
    for each in sorted(found, key=lambda each: (each.partition, each.offset)):
        latest[each.partition] = max(latest.get(each.partition, each.timestamp_ms), each.timestamp_ms)
        keys[each.partition, each.offset] = latest[each.partition]
    return sorted(found, key=lambda each: (keys[each.partition, each.offset], each.partition, each.offset))


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
