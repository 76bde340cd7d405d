"""The next offsets of a topic in an Iceberg table: in the summaries of its snapshots, and in a table property.

Every snapshot that Chronik commits has the next offsets of all partitions in its summary, and the same commit stores
them in a table property. Snapshots of other tools have none, and continue those of their newest ancestor that has them.
Once another tool has expired all such ancestors, the property counts.

If both exist and differ, the table's rows are not those of its last commit: someone has rolled the table back or moved
its main branch. Only an operator knows whether these records should be landed again or remain removed. A rollback to a
snapshot whose ancestors have expired shows in the sequence numbers, which ascend along the main branch: that of the
last commit is in a property, too. (It is hidden only if another tool then commits and expires the older snapshot before
the pipeline reads the table.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from chronik.errors import ChronikError

OFFSETS_KEY: Final = "chronik.next-offsets"
"""Key of the next offsets in snapshot summaries and table properties, as a JSON object by partition."""

SEQUENCES_KEY: Final = "chronik.sequences"
"""Key of the next numbers of named sequences of commits, as a JSON object by name."""

COMMIT_SEQUENCE_NUMBER_KEY: Final = "chronik.sequence-number"
"""Table property with the sequence number of the last snapshot that Chronik committed."""


class OffsetsDamagedError(ChronikError):
    """The offsets that a table stores cannot be read."""


@dataclass(frozen=True, slots=True)
class LandedOffsets:
    """The next offsets of a topic's partitions, and the next numbers of the table's sequences."""

    next_offsets: Mapping[int, int] = field(default_factory=dict)
    sequences: Mapping[str, int] = field(default_factory=dict)

    def advance(self, next_offsets: Mapping[int, int]) -> LandedOffsets:
        """Return these offsets with those of some partitions replaced."""
        return LandedOffsets({**self.next_offsets, **next_offsets}, self.sequences)

    def advance_sequence(self, name: str) -> LandedOffsets:
        """Return these offsets with the next number of a sequence incremented."""
        return LandedOffsets(self.next_offsets, {**self.sequences, name: self.sequences.get(name, 0) + 1})

    def encode(self) -> dict[str, str]:
        """Return the entries of a snapshot's summary and of the table properties."""
        return {OFFSETS_KEY: _encode(self.next_offsets), SEQUENCES_KEY: _encode(self.sequences)}

    def __str__(self) -> str:
        offsets = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(self.next_offsets.items()))
        sequences = "".join(f", {name}: {number}" for name, number in sorted(self.sequences.items()))
        return f"{{{offsets}{sequences}}}"


class Ancestor(NamedTuple):
    """The current snapshot of a table, or one of its ancestors."""

    sequence_number: int
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StoredOffsets:
    """The offsets that a table stores: those of its newest snapshot that has them, and those of its property."""

    in_snapshot: LandedOffsets | None
    in_property: LandedOffsets | None
    is_rolled_back: bool = False
    """Whether the table does not have the rows of its last commit by Chronik."""

    @property
    def of_rows(self) -> LandedOffsets:
        """The offsets up to which the current snapshot has rows, if they are known."""
        return self.in_snapshot or self.in_property or LandedOffsets()


def encode_properties(landed: LandedOffsets, sequence_number: int) -> dict[str, str]:
    """Return the table properties of a commit whose snapshot has these offsets and this sequence number."""
    return {**landed.encode(), COMMIT_SEQUENCE_NUMBER_KEY: str(sequence_number)}


def read_stored_offsets(ancestors: Iterable[Ancestor], properties: Mapping[str, str]) -> StoredOffsets:
    """Read the offsets of the current snapshot and its ancestors, newest first.

    Raises:
        OffsetsDamagedError: They are not in the format that Chronik writes.
    """
    in_property = _decode(properties, "the table properties") if OFFSETS_KEY in properties else None
    last_commit = int(properties.get(COMMIT_SEQUENCE_NUMBER_KEY, 0))
    is_older = False
    for each in ancestors:
        if OFFSETS_KEY in each.summary:
            found = _decode(each.summary, "the snapshot")
            return StoredOffsets(found, in_property, in_property is not None and found != in_property)
        is_older = is_older or each.sequence_number < last_commit
    return StoredOffsets(None, in_property, is_older)


def _encode(numbers: Mapping[Any, int]) -> str:
    return msgspec.json.encode(dict(sorted(numbers.items()))).decode()


def _decode(entries: Mapping[str, str], where: str) -> LandedOffsets:
    try:
        offsets = msgspec.json.decode(entries[OFFSETS_KEY], type=dict[int, int])
        return LandedOffsets(offsets, msgspec.json.decode(entries.get(SEQUENCES_KEY, "{}"), type=dict[str, int]))
    except msgspec.DecodeError as error:
        raise OffsetsDamagedError(f"{where}: invalid {OFFSETS_KEY} or {SEQUENCES_KEY}: {error}") from None
