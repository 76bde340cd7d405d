"""Messages: read and produced."""

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
from chronik.console.rest.call import Call, wrong
from chronik.console.rest.doing.positions import Offsets, bounds, partitions_of, positions, shown
from chronik.console.rest.doing.reading import Reader
from chronik.console.rest.doing.showing import bytes_for_each, messages_of
from chronik.console.rest.shapes.messages import Message, Messages, NewMessage, Produced, ReadMessages

READ_SECONDS_MAX: Final = 3.0
WIDENED: Final = 4
"""How many times as far back is looked when the last offsets had too few messages."""


def read(call: Call, asked: ReadMessages) -> Messages:
    committed = asked.isolation == "committed"
    topic, partitions = partitions_of(call, call.path["topic"], asked.partition)
    starts, ends = bounds(call, topic, partitions, int(committed))
    begun = positions(call, topic, asked.from_, starts, ends)
    told = {each.partition: offset for each, offset in ends.items()}
    reading = _Reading(call, asked, ends, committed=committed)
    if asked.from_.startswith("-"):
        return Messages(_last(reading, int(asked.from_[1:]), starts), shown(ends), told)
    found = _in_order(reading.first(begun))
    items = found[: asked.limit]
    after = reading.after(begun, items, found)
    return Messages(items, shown(after) if after != ends else None, told)


class _Reading:
    def __init__(self, call: Call, asked: ReadMessages, ends: Offsets, *, committed: bool) -> None:
        self._call = call
        self._limit = asked.limit
        self._format = asked.format
        self._ends = ends
        self._committed = committed
        self._through: Offsets = {}
        """How far partitions were read."""
        self._cut: set[TopicPartition] = set()
        """Those of which more was read than is taken: batches come whole."""

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def ends(self) -> Offsets:
        return self._ends

    def first(self, begun: Offsets) -> list[Message]:
        """Reads up to `limit` messages of each partition: which of all are the first is known only then."""
        found: list[Message] = []
        counts = dict.fromkeys(begun, 0)
        for partition, message in self._messages(begun, lambda each: counts[each] < self._limit):
            if counts[partition] < self._limit:
                counts[partition] += 1
                found.append(message)
            else:
                self._cut.add(partition)
        return found

    def last(self, begun: Offsets) -> list[Message]:
        """Reads to the end, and returns the last `limit` messages of each partition."""
        found: dict[TopicPartition, deque[Message]] = {each: deque(maxlen=self._limit) for each in begun}
        for partition, message in self._messages(begun, lambda each: True):
            found[partition].append(message)
        return [message for messages in found.values() for message in messages]

    def _messages(
        self, begun: Offsets, wants: Callable[[TopicPartition], bool]
    ) -> Iterator[tuple[TopicPartition, Message]]:
        reader = Reader(self._call, begun, committed=self._committed)
        bytes_max = bytes_for_each(self._limit)
        deadline = time.monotonic() + READ_SECONDS_MAX
        while time.monotonic() < deadline:
            left = [each for each in begun if reader.positions[each] < self._ends[each] and wants(each)]
            before = dict(reader.positions)
            batches = reader.fetch(left) if left else []
            self._through = {each: min(offset, self._ends[each]) for each, offset in reader.positions.items()}
            for batch in batches:
                end = self._ends[batch.partition]
                for message in messages_of(batch, begun[batch.partition], end, self._format, bytes_max):
                    yield batch.partition, message
            if reader.positions == before:
                return

    def after(self, begun: Offsets, taken: list[Message], found: list[Message]) -> Offsets:
        """Returns where to read on, when so many of those that were found are taken."""
        counts_taken, counts = Counter(each.partition for each in taken), Counter(each.partition for each in found)
        offsets = {each.partition: each.offset + 1 for each in taken}
        whole = {each for each in self._through if counts_taken[each.partition] == counts[each.partition]} - self._cut
        return {
            each: self._through[each] if each in whole else offsets.get(each.partition, offset)
            for each, offset in begun.items()
        }


def _last(reading: _Reading, count: int, starts: Offsets) -> list[Message]:
    """Returns the newest. Offsets that have no message, as markers of transactions have, make it look further back."""
    width = wanted = min(reading.limit, count)
    while True:
        begun = {each: max(start, reading.ends[each] - width) for each, start in starts.items()}
        items = _in_order(reading.last(begun))
        if len(items) >= wanted or begun == starts:
            return items[-wanted:] if wanted else []
        width *= WIDENED


def _in_order(found: list[Message]) -> list[Message]:
    """By time; but never an offset before a lower one of its partition, whatever their clocks said."""
    latest: dict[int, int] = {}
    keys = {}
    for each in sorted(found, key=lambda each: (each.partition, each.offset)):
        latest[each.partition] = max(latest.get(each.partition, each.timestamp_ms), each.timestamp_ms)
        keys[each.partition, each.offset] = latest[each.partition]
    return sorted(found, key=lambda each: (keys[each.partition, each.offset], each.partition, each.offset))


def produce(call: Call, asked: NewMessage) -> Produced:
    name = call.path["topic"]
    call.cluster.retrying(lambda: call.cluster.topic(name))  # one that is not there is not created by a typing error
    record = OutgoingRecord(
        _encoded("value", asked.value, asked.value_format),
        _encoded("key", asked.key, asked.key_format),
        tuple((each.name, None if each.value is None else each.value.encode()) for each in asked.headers),
        asked.timestamp_ms,
        asked.partition,
    )
    (written,) = Producer(call.cluster).send(name, [record])
    return Produced(written.partition, written.base_offset)


def _encoded(what: str, text: str | None, how: str | None) -> bytes | None:
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
        raise wrong(f"{what}: this is not {how or 'text'}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise wrong(f"{what}: this is not JSON: {error}") from None
