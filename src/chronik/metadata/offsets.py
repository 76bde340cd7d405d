"""The committed offsets of all groups, in a compact table that can be read while commits continue.

A group's offsets are fixed-size records, sorted by topic number and partition, in chunks of arrays: an offset takes
about 50 bytes and no Python object of its own. A record includes its hash, which is part of the state hash, so that
replacing or removing an offset needs no second hash.

Chunks are copied on write. `freeze` starts a new version of the table; the first change to a chunk of an older version
copies the chunk, so the frozen table does not change.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import lt
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

import msgspec

from chronik.errors import check_invariant
from chronik.metadata.records import CommittedOffset

OFFSET_BYTES: Final = 200
"""The memory that the limits on committed offsets charge per offset, in bytes, excluding its metadata string.

Most offsets use 50 to 100 bytes of memory; an offset that is the only one of its group uses more.
"""

CHUNK_RECORDS_MAX: Final = 256
"""The maximum number of committed offsets per chunk. Each commit may copy one chunk (12 kB) in about a microsecond."""

UNUSED_TOPICS_MAX: Final = 1000
"""The number of topics without committed offsets up to which their topic numbers are never discarded."""

_VALUE: Final = Struct(">qqiB16s")
"""The binary layout of a committed offset: offset, commit time, leader epoch, metadata kind and record hash."""

_HASH: Final = Struct(">21x16s")

VALUE_BYTES: Final = _VALUE.size
_NO_VALUE: Final = bytes(VALUE_BYTES)

PARTITION_BITS: Final = 32
PARTITION_MASK: Final = (1 << PARTITION_BITS) - 1
_KEYS_END: Final = 1 << 64

_NONE, _EMPTY, _NOTED = range(3)
"""The kinds of an offset's metadata string: None, empty, or stored in a note outside the fixed-size record."""

Note = str | CommittedOffset
"""The data of a committed offset that does not fit into its fixed-size record, such as its metadata string.

Either the metadata string, or the whole offset if it has an expiry time or a number that is too large.
"""


class _OffsetChunk(msgspec.Struct, gc=False):
    """A chunk of a group's committed offsets: at most CHUNK_RECORDS_MAX fixed-size records, sorted by key."""

    version: int
    keys: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    """The keys of the records in ascending order. A key combines the topic's number and the partition."""
    values: bytearray = msgspec.field(default_factory=bytearray)
    notes: list[Note | None] | None = None
    """The notes (variable-size data) of the records, or None if no record has a note."""

    def copy(self, version: int) -> _OffsetChunk:
        return _OffsetChunk(version, self.keys[:], self.values[:], self.notes and self.notes[:])

    @property
    def count(self) -> int:
        return len(self.keys)

    @property
    def metadata_characters(self) -> int:
        return sum(map(_count_characters, self.notes)) if self.notes else 0

    def get(self, key: int) -> CommittedOffset | None:
        keys = self.keys
        index = bisect_left(keys, key)
        if index == len(keys) or keys[index] != key:
            return None
        return self._build_committed_offset(index, _VALUE.unpack_from(self.values, index * VALUE_BYTES))

    def read(self, first: int, end: int) -> list[tuple[int, CommittedOffset]]:
        """Return (partition, committed offset) pairs for the records from index `first` to `end` - 1."""
        keys, values, unpack, committed = self.keys, self.values, _VALUE.unpack_from, self._build_committed_offset
        return [
            (keys[index] & PARTITION_MASK, committed(index, unpack(values, index * VALUE_BYTES)))
            for index in range(first, end)
        ]

    def _build_committed_offset(self, index: int, value: tuple[int, int, int, int, bytes]) -> CommittedOffset:
        offset, time_ms, leader_epoch, kind, _ = value
        if kind == _EMPTY:
            return CommittedOffset(offset, leader_epoch, "", time_ms)
        if kind == _NONE:
            return CommittedOffset(offset, leader_epoch, None, time_ms)
        assert self.notes is not None
        note = self.notes[index]
        return note if isinstance(note, CommittedOffset) else CommittedOffset(offset, leader_epoch, note, time_ms)

    def hashes(self, first: int, end: int) -> Iterator[int]:
        some = self.values[first * VALUE_BYTES : end * VALUE_BYTES]
        return (int.from_bytes(record_hash, "little") for (record_hash,) in _HASH.iter_unpack(some))

    def topics(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield each topic number in a range of records, with the start and end index of the topic's records."""
        keys = self.keys
        while first < end:
            number = keys[first] >> PARTITION_BITS
            is_last = keys[end - 1] >> PARTITION_BITS == number
            after = end if is_last else bisect_left(keys, (number + 1) << PARTITION_BITS, first, end)
            yield number, first, after
            first = after

    def put(self, key: int, committed: CommittedOffset, record_hash: bytes) -> tuple[bytes | None, int]:
        """Insert or replace the record of a committed offset.

        Return the hash of the record that it replaces, and the growth of the metadata in characters.
        """
        keys, values = self.keys, self.values
        metadata, offset, time_ms = committed.metadata, committed.offset, committed.commit_time_ms
        note: Note | None = metadata or None
        kind = _NOTED if note else _EMPTY if metadata == "" else _NONE
        index = bisect_left(keys, key)
        start = index * VALUE_BYTES
        old_hash: bytes | None = None
        if index < len(keys) and keys[index] == key:
            (old_hash,) = _HASH.unpack_from(values, start)
        else:
            keys.insert(index, key)
            values[start:start] = _NO_VALUE
        try:
            _VALUE.pack_into(values, start, offset, time_ms, committed.leader_epoch, kind, record_hash)
            if committed.expire_time_ms != -1:
                note = committed
        except struct_error:
            note = committed
        if note is committed:
            _VALUE.pack_into(values, start, 0, 0, 0, _NOTED, record_hash)
        if note is None and self.notes is None:
            return old_hash, 0
        return old_hash, self._store_note(index, note, is_new=old_hash is None)

    def append(self, keys: array[int], values: bytes) -> None:
        """Append encoded records that have no notes, that is, no data outside the fixed-size records."""
        self.keys.extend(keys)
        self.values += values
        if self.notes is not None:
            self.notes += [None] * len(keys)

    def _store_note(self, index: int, note: Note | None, *, is_new: bool) -> int:
        notes = self.notes
        if notes is None:
            notes = self.notes = [None] * (len(self.keys) - is_new)
        growth = _count_characters(note)
        if index and note == notes[index - 1]:
            note = notes[index - 1]  # offsets of a member often have equal metadata: share one copy
        if is_new:
            notes.insert(index, note)
        else:
            growth -= _count_characters(notes[index])
            notes[index] = note
            if note is None:
                self._drop_unused_notes()
        return growth

    def remove(self, first: int, end: int) -> None:
        del self.keys[first:end]
        del self.values[first * VALUE_BYTES : end * VALUE_BYTES]
        if self.notes is not None:
            del self.notes[first:end]
            self._drop_unused_notes()

    def split(self, index: int) -> _OffsetChunk:
        """Move the records from `index` on into a new chunk, and return the new chunk."""
        index = range(len(self.keys))[index]
        right = self.copy(self.version)
        right.remove(0, index)
        self.remove(index, len(self.keys))
        return right

    def _drop_unused_notes(self) -> None:
        if self.notes is not None and all(note is None for note in self.notes):
            self.notes = None


class _OffsetChunks(msgspec.Struct, gc=False):
    """The committed offsets of a group that fill two or more chunks."""

    version: int
    separators: array[int]
    """The first key of every chunk but the first, for a binary search of the chunk that contains a key."""
    chunks: list[_OffsetChunk]
    count: int
    metadata_characters: int

    def copy(self, version: int) -> _OffsetChunks:
        return _OffsetChunks(version, self.separators[:], self.chunks[:], self.count, self.metadata_characters)

    def get_writable_chunk(self, chunk_index: int) -> _OffsetChunk:
        """Return the chunk at an index, copying it first if an older version of the table shares it."""
        chunk = self.chunks[chunk_index]
        if chunk.version != self.version:
            chunk = self.chunks[chunk_index] = chunk.copy(self.version)
        return chunk


_Group = _OffsetChunk | _OffsetChunks

_NO_OFFSETS: Final = _OffsetChunk(0)


class OffsetSizes(NamedTuple):
    """The memory usage of committed offsets in bytes, as counted by the memory limits."""

    group_bytes: int
    all_bytes: int
    all_metadata_bytes: int
    """The part of `all_bytes` that is used by metadata strings of committed offsets."""


class _TopicNumbers:
    """The numbers that identify topics in the record keys, assigned in the order of the topics' first commits.

    Numbers are not reused. Compaction creates a new object, so that the object of a reader stays complete.
    """

    __slots__ = ("counts", "names", "next_number", "numbers", "unused_count")

    def __init__(self, next_number: int = 0) -> None:
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.counts: dict[int, int] = {}
        self.unused_count = 0
        self.next_number = next_number

    def add(self, topic: str) -> int:
        """Assign the next free number to a topic, and return the number."""
        number = self.numbers[topic] = self.next_number
        self.names[number] = topic
        self.counts[number] = 0
        self.unused_count += 1
        self.next_number += 1
        return number

    def count(self, number: int, change: int) -> None:
        before = self.counts[number]
        self.counts[number] = after = before + change
        self.unused_count += (not after) - (not before)

    def compacted(self) -> _TopicNumbers:
        """Return the numbers without those of unused topics, or this object while only a few topics are unused."""
        if self.unused_count <= max(UNUSED_TOPICS_MAX, len(self.numbers) // 2):
            return self
        compacted = _TopicNumbers(self.next_number)
        for number, count in self.counts.items():
            if count:
                name = self.names[number]
                compacted.numbers[name], compacted.names[number], compacted.counts[number] = number, name, count
        return compacted


class GroupOffsets(Mapping[tuple[str, int], CommittedOffset]):
    """The committed offsets of a group, by (topic, partition).

    An instance returned by `freeze` does not change; any other must be read before the next commit.
    """

    __slots__ = ("_group", "_topics")

    def __init__(self, group: _Group, topics: _TopicNumbers) -> None:
        self._group = group
        self._topics = topics

    def __getitem__(self, key: tuple[str, int]) -> CommittedOffset:
        topic, partition = key
        number = self._topics.numbers.get(topic)
        found = None if number is None else _get(self._group, number << PARTITION_BITS | partition)
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[tuple[str, int]]:
        names = self._topics.names
        return (
            (names[key >> PARTITION_BITS], key & PARTITION_MASK) for chunk in _all(self._group) for key in chunk.keys
        )

    def __len__(self) -> int:
        return self._group.count

    def items(self) -> ItemsView[tuple[str, int], CommittedOffset]:
        return _OffsetItemsView(self)

    def by_topic(self) -> Iterator[tuple[str, Iterator[tuple[int, CommittedOffset]]]]:
        """Yield the topics sorted by name, each with its partitions and their offsets, sorted by partition."""
        group, names = self._group, self._topics.names
        if isinstance(group, _OffsetChunk):
            topics = [(names[number], first, end) for number, first, end in group.topics(0, len(group.keys))]
            for name, first, end in sorted(topics):
                yield name, iter(group.read(first, end))
            return
        ranges: dict[str, list[_Range]] = {}
        for chunk in group.chunks:
            for number, first, end in chunk.topics(0, len(chunk.keys)):
                ranges.setdefault(names[number], []).append((chunk, first, end))
        for name in sorted(ranges):
            yield name, _read(ranges[name])

    def iter_offsets_of_topic(self, topic: str) -> Iterator[tuple[int, CommittedOffset]]:
        """Yield a topic's partitions and their offsets, sorted by partition."""
        number = self._topics.numbers.get(topic)
        return iter(()) if number is None else _read(_iter_record_ranges(self._group, *_get_topic_key_range(number)))

    def record_hashes(self) -> Iterator[int]:
        """Return an iterator over the hashes of the offsets, which also depend on the group id."""
        return (each for chunk in _all(self._group) for each in chunk.hashes(0, len(chunk.keys)))

    def __repr__(self) -> str:
        return f"GroupOffsets({dict(self)})"


class _OffsetItemsView(ItemsView[tuple[str, int], CommittedOffset]):
    """The items view of a group's offsets, which reads chunk by chunk instead of key by key."""

    _mapping: GroupOffsets

    def __iter__(self) -> Iterator[tuple[tuple[str, int], CommittedOffset]]:
        names = self._mapping._topics.names
        for chunk in _all(self._mapping._group):
            for number, first, end in chunk.topics(0, len(chunk.keys)):
                name = names[number]
                for partition, committed in chunk.read(first, end):
                    yield (name, partition), committed


class FrozenOffsets:
    """A read-only snapshot of the committed offsets of all groups."""

    __slots__ = ("_groups", "_topics")

    def __init__(self, groups: Mapping[str, _Group], topics: _TopicNumbers) -> None:
        self._groups = groups
        self._topics = topics

    def groups(self) -> Iterator[tuple[str, GroupOffsets]]:
        """Return an iterator over the group ids and their offsets."""
        return ((group_id, GroupOffsets(group, self._topics)) for group_id, group in self._groups.items())


class OffsetTable:
    """The committed offsets of all groups, with copy-on-write snapshots."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._topics = _TopicNumbers()
        self._version = 0
        self._count = 0
        self._metadata_characters = 0

    # --- reading ---

    def group(self, group_id: str) -> GroupOffsets:
        """Return the offsets of a group. Read them before the next commit."""
        return GroupOffsets(self._groups.get(group_id, _NO_OFFSETS), self._topics)

    def group_ids(self) -> Iterator[str]:
        return iter(self._groups)

    def group_ids_with_topic(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets for the topic, by searching all groups."""
        found: list[str] = []
        number = self._topics.numbers.get(topic)
        left = 0 if number is None else self._topics.counts[number]
        if number is None or not left:
            return found
        low, high = _get_topic_key_range(number)
        for group_id, group in self._groups.items():
            if isinstance(group, _OffsetChunk):  # the common case: three times as fast without a generator
                first = bisect_left(group.keys, low)
                count = bisect_left(group.keys, high, first) - first
            else:
                count = sum(end - first for _, first, end in _iter_record_ranges(group, low, high))
            if count:
                found.append(group_id)
                left -= count
                if not left:
                    break
        return found

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        group = self._groups.get(group_id)
        number = self._topics.numbers.get(topic)
        return None if group is None or number is None else _get(group, number << PARTITION_BITS | partition)

    def releasable_parts(self) -> list[object]:
        """Return the table's largest objects, so that the caller can free them one by one without a long pause."""
        return [chunk for group in self._groups.values() for chunk in _all(group)]

    def sizes(self, group_id: str) -> OffsetSizes:
        """Return the memory usage of a group's offsets and of all offsets, as counted by the memory limits."""
        group = self._groups.get(group_id, _NO_OFFSETS)
        return OffsetSizes(
            OFFSET_BYTES * group.count + group.metadata_characters,
            OFFSET_BYTES * self._count + self._metadata_characters,
            self._metadata_characters,
        )

    def freeze(self) -> FrozenOffsets:
        """Return a read-only snapshot of the table, which later commits do not change."""
        self._version += 1
        return FrozenOffsets(dict(self._groups), self._topics)

    def freeze_group(self, group_id: str) -> GroupOffsets:
        """Return a snapshot of a group's offsets."""
        self._version += 1
        return self.group(group_id)

    # --- changing ---

    def put(
        self, group_id: str, topic: str, partition: int, committed: CommittedOffset, record_hash: bytes
    ) -> bytes | None:
        """Store an offset with the hash of its record. Return the hash of the record that it replaces, if any."""
        topics = self._topics
        number = topics.numbers.get(topic)
        if number is None:
            number = topics.add(topic)
        key = number << PARTITION_BITS | partition
        group = self._groups.get(group_id)
        if group is None or group.version != self._version:
            group = self._get_writable_group(group_id)
        chunk = (
            group if isinstance(group, _OffsetChunk) else group.get_writable_chunk(bisect_right(group.separators, key))
        )
        old_hash, characters = chunk.put(key, committed, record_hash)
        if old_hash is None or characters:
            self._grow(group, 1 if old_hash is None else 0, characters)
        if old_hash is None:
            topics.count(number, 1)
            if len(chunk.keys) > CHUNK_RECORDS_MAX:
                # Offsets are often committed in order. Splitting at the end keeps the left chunk full.
                self._split_chunk(group_id, chunk, -1 if chunk.keys[-1] == key else CHUNK_RECORDS_MAX // 2)
        return old_hash

    def append(
        self, group_id: str, topic: str, offsets: Sequence[tuple[int, CommittedOffset]], record_hashes: Sequence[bytes]
    ) -> bool:
        """Store offsets of one topic in bulk, which is faster than `put`.

        Returns False and stores nothing unless the offsets are sorted, follow all existing offsets of the group, and
        need no notes.
        """
        if not offsets:
            return False
        number = self._topics.numbers.get(topic)
        if number is None:
            number = self._topics.add(topic)
        keys = array("Q", [number << PARTITION_BITS | partition for partition, _ in offsets])
        known = self._groups.get(group_id)
        last_key = -1 if known is None else _all(known)[-1].keys[-1]
        if not all(map(lt, chain((last_key,), keys), keys)):
            return False
        if any(committed.metadata or committed.expire_time_ms != -1 for _, committed in offsets):
            return False
        try:
            values = b"".join(map(_encode_offset, (committed for _, committed in offsets), record_hashes))
        except struct_error:
            return False
        group = self._get_writable_group(group_id)
        chunk = group if isinstance(group, _OffsetChunk) else group.get_writable_chunk(len(group.chunks) - 1)
        chunk.append(keys, values)
        self._grow(group, len(keys), 0)
        self._topics.count(number, len(keys))
        while len(chunk.keys) > CHUNK_RECORDS_MAX:
            chunk = self._split_chunk(group_id, chunk, CHUNK_RECORDS_MAX)
        return True

    def _get_writable_group(self, group_id: str) -> _Group:
        """Return the group's offsets, created or copied to the current version if necessary."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _OffsetChunk(self._version)
        elif group.version != self._version:
            group = self._groups[group_id] = group.copy(self._version)
        return group

    def _grow(self, group: _Group, count: int, characters: int) -> None:
        self._count += count
        self._metadata_characters += characters
        if isinstance(group, _OffsetChunks):
            group.count += count
            group.metadata_characters += characters

    def _split_chunk(self, group_id: str, chunk: _OffsetChunk, index: int) -> _OffsetChunk:
        """Move the records from `index` on into a new chunk and return it."""
        group = self._groups[group_id]
        if isinstance(group, _OffsetChunk):
            count, characters = group.count, group.metadata_characters
            group = self._groups[group_id] = _OffsetChunks(self._version, array("Q"), [chunk], count, characters)
        right = chunk.split(index)
        chunk_index = bisect_right(group.separators, chunk.keys[0])
        group.separators.insert(chunk_index, right.keys[0])
        group.chunks.insert(chunk_index + 1, right)
        return right

    def remove(self, group_id: str, topic: str, partition: int) -> int:
        """Remove an existing offset and return its hash."""
        number = self._topics.numbers.get(topic, -1)
        key = number << PARTITION_BITS | partition
        group = self._groups.get(group_id, _NO_OFFSETS)
        chunk_index = -1 if isinstance(group, _OffsetChunk) else bisect_right(group.separators, key)
        keys = group.keys if isinstance(group, _OffsetChunk) else group.chunks[chunk_index].keys
        index = bisect_left(keys, key)
        check_invariant(
            index < len(keys) and keys[index] == key, f"group {group_id} has no offset of {topic}-{partition}"
        )
        if len(keys) == 1:
            return self._remove_offset_range(group_id, key, key + 1)
        group = self._get_writable_group(group_id)
        chunk = group if isinstance(group, _OffsetChunk) else group.get_writable_chunk(chunk_index)
        (record_hash,) = _HASH.unpack_from(chunk.values, index * VALUE_BYTES)
        self._grow(group, -1, -_count_characters(chunk.notes[index]) if chunk.notes else 0)
        chunk.remove(index, index + 1)
        self._count_topic(number, -1)
        return int.from_bytes(record_hash, "little")

    def remove_topic(self, group_id: str, topic: str) -> int:
        """Remove the group's offsets of a topic and return the sum of their hashes."""
        number = self._topics.numbers.get(topic)
        return 0 if number is None else self._remove_offset_range(group_id, *_get_topic_key_range(number))

    def remove_group(self, group_id: str) -> int:
        """Remove all offsets of a group and return the sum of their hashes."""
        return self._remove_offset_range(group_id, 0, _KEYS_END)

    def _remove_offset_range(self, group_id: str, low: int, high: int) -> int:
        """Remove a group's offsets with keys from `low` to `high` - 1, and return the sum of their hashes."""
        group = self._groups.get(group_id, _NO_OFFSETS)
        count = hashes = characters = 0
        for chunk, first, end in _iter_record_ranges(group, low, high):
            count += end - first
            hashes += sum(chunk.hashes(first, end))
            characters += sum(map(_count_characters, chunk.notes[first:end])) if chunk.notes else 0
            for number, first_of_topic, end_of_topic in chunk.topics(first, end):
                self._count_topic(number, first_of_topic - end_of_topic)
        if not count:
            return 0
        if count == group.count:
            del self._groups[group_id]
        else:
            group = self._get_writable_group(group_id)
            if isinstance(group, _OffsetChunk):
                group.remove(bisect_left(group.keys, low), bisect_left(group.keys, high))
            else:
                _remove_from_chunks(group, low, high)
        self._grow(group, -count, -characters)
        return hashes

    def _count_topic(self, number: int, change: int) -> None:
        self._topics.count(number, change)
        self._topics = self._topics.compacted()


_Range = tuple[_OffsetChunk, int, int]
"""A chunk of committed offsets and the start and end index of the selected records in it."""


def _all(group: _Group) -> list[_OffsetChunk]:
    return [group] if isinstance(group, _OffsetChunk) else group.chunks


def _get(group: _Group, key: int) -> CommittedOffset | None:
    if not isinstance(group, _OffsetChunk):
        group = group.chunks[bisect_right(group.separators, key)]
    return group.get(key)


def _get_topic_key_range(number: int) -> tuple[int, int]:
    """Return the first record key of a topic, and the first key after the topic's keys."""
    return number << PARTITION_BITS, (number + 1) << PARTITION_BITS


def _iter_record_ranges(group: _Group, low: int, high: int) -> Iterator[_Range]:
    """Yield, for each chunk of the group, the range of records whose keys are from `low` to `high` - 1."""
    chunks = [group] if isinstance(group, _OffsetChunk) else group.chunks[bisect_right(group.separators, low) :]
    for chunk in chunks:
        first, end = bisect_left(chunk.keys, low), bisect_left(chunk.keys, high)
        if first < end:
            yield chunk, first, end
        if end < len(chunk.keys):
            return


def _read(ranges: Iterable[_Range]) -> Iterator[tuple[int, CommittedOffset]]:
    return chain.from_iterable(chunk.read(first, end) for chunk, first, end in ranges)


def _encode_offset(committed: CommittedOffset, record_hash: bytes) -> bytes:
    """Encode a committed offset without a metadata string as a fixed-size record of an offset chunk."""
    kind = _NONE if committed.metadata is None else _EMPTY
    return _VALUE.pack(committed.offset, committed.commit_time_ms, committed.leader_epoch, kind, record_hash)


def _count_characters(note: Note | None) -> int:
    metadata = note.metadata if isinstance(note, CommittedOffset) else note
    return 0 if metadata is None else len(metadata)


def _remove_from_chunks(group: _OffsetChunks, low: int, high: int) -> None:
    """Remove a group's records with keys from `low` to `high` - 1. At least one record must remain."""
    first, last = bisect_right(group.separators, low), bisect_left(group.separators, high)
    for chunk_index in range(last, first - 1, -1):
        keys = group.chunks[chunk_index].keys
        start, end = bisect_left(keys, low), bisect_left(keys, high)
        if end - start < len(keys):
            group.get_writable_chunk(chunk_index).remove(start, end)
        else:
            del group.chunks[chunk_index]
            del group.separators[max(0, chunk_index - 1)]
