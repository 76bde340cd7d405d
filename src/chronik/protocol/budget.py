"""How much may be opened for one request: counted down while batches are, so that what asks for more ends there.

A few kilobytes may stand for gigabytes, or for millions of records. What is allowed grows with what was sent, so that
whoever sends much in an honest way is never refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from chronik.limits import (
    DECOMPRESSED_BYTES_MAX,
    OPENED_BYTES_MAX,
    OPENED_ON_LOOP_BYTES_MAX,
    OPENED_ON_LOOP_RECORDS_MAX,
    OPENED_RECORDS_MAX,
)
from chronik.protocol.errors import RecordsTooLarge

# All batches of a request together may take so many times what they were sent in; JSON shrinks to a tenth.
_GROWTH_OF_REQUEST_MAX = 20

# One batch, whose records are in memory at once. Two such copies and the batch itself are three times what was sent.
_GROWTH_OF_BATCH_MAX = 2

# The fields of a record that has nothing in it take a byte each, and so does its length: so many records as this allows
# for a batch are in none that is not compressed.
RECORD_BYTES_MIN = 7

# What holds nothing takes time, too: an empty gzip file has 20 bytes and takes as long as 2 kB of content. So on the
# loop what is compressed must be so much smaller than what may come out.
_COMPRESSED_ON_LOOP = 8

_ANY_NUMBER = 2**63


@dataclass(slots=True)
class Budget:
    bytes_left: int
    records_left: int
    batch_bytes_max: int
    compressed_bytes_max: int = _ANY_NUMBER
    bytes_opened: int = 0
    records_opened: int = 0

    @classmethod
    def for_bytes(cls, sent: int) -> Budget:
        """For a request with `sent` bytes of records, or for an answer about a stored batch of that size."""
        return cls(
            bytes_left=OPENED_BYTES_MAX + _GROWTH_OF_REQUEST_MAX * sent,
            records_left=OPENED_RECORDS_MAX + sent // RECORD_BYTES_MIN,
            batch_bytes_max=OPENED_BYTES_MAX + _GROWTH_OF_BATCH_MAX * sent,
        )

    @classmethod
    def on_loop(cls) -> Budget:
        """What may be opened where everybody waits for it."""
        return cls(
            bytes_left=OPENED_ON_LOOP_BYTES_MAX,
            records_left=OPENED_ON_LOOP_RECORDS_MAX,
            batch_bytes_max=OPENED_ON_LOOP_BYTES_MAX,
            compressed_bytes_max=OPENED_ON_LOOP_BYTES_MAX // _COMPRESSED_ON_LOOP,
        )

    @classmethod
    def for_stored(cls, size: int) -> Budget:
        """For a batch that was accepted once and has to be read, where nobody waits: all of it, in bounded memory."""
        return cls(_ANY_NUMBER, _ANY_NUMBER, DECOMPRESSED_BYTES_MAX + _GROWTH_OF_BATCH_MAX * size)

    def bytes_from(self, compressed: int) -> int:
        """How large the content of a batch may be that takes so many bytes now. Raises RecordsTooLarge."""
        if compressed > self.compressed_bytes_max:
            raise RecordsTooLarge(f"{compressed} bytes, compressed, are too many to be opened here")
        return max(min(self.bytes_left, self.batch_bytes_max), 0)

    def take_bytes(self, count: int) -> None:
        self.bytes_left -= count
        self.bytes_opened += count

    def take_records(self, count: int) -> None:
        """Raises RecordsTooLarge when there are more than may be looked at."""
        if count > self.records_left:
            raise RecordsTooLarge(f"{count} records are more than the {self.records_left} that may be opened here")
        self.records_left -= count
        self.records_opened += count
