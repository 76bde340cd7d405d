"""How much may be opened for one request. It is counted down while batches are opened, and a request ends at its limit.

A few kilobytes may stand for gigabytes, or for millions of records. What is allowed grows with what was sent, so that
a client that honestly sends much is never refused.
"""

from __future__ import annotations

import msgspec

from chronik.limits import (
    DECOMPRESSED_BYTES_MAX,
    OPENED_BYTES_MAX,
    OPENED_ON_LOOP_BYTES_MAX,
    OPENED_ON_LOOP_RECORDS_MAX,
    OPENED_RECORDS_MAX,
)
from chronik.protocol.errors import RecordsTooLarge

# How many times their sent size all batches of a request together may take; JSON shrinks to a tenth.
_GROWTH_OF_REQUEST_MAX = 20

# The same for one batch, whose records are in memory at once: two such copies and the batch are three times its size.
_GROWTH_OF_BATCH_MAX = 2

# The fields of an empty record take a byte each, and so does its length: no uncompressed batch has more records than
# this allows.
RECORD_BYTES_MIN = 7

# What holds nothing takes time, too: an empty gzip file has 20 bytes and takes as long as 2 kB of content. So on the
# loop compressed data must be this many times smaller than what may come out.
_COMPRESSED_ON_LOOP = 8

_ANY_NUMBER = 2**63


class Budget(msgspec.Struct):
    bytes_left: int
    records_left: int
    batch_bytes_max: int
    compressed_bytes_max: int = _ANY_NUMBER
    bytes_opened: int = 0
    records_opened: int = 0

    @classmethod
    def for_bytes(cls, sent: int) -> Budget:
        """Returns the budget of a request with `sent` bytes of records, or of an answer about a stored batch."""
        return cls(
            bytes_left=OPENED_BYTES_MAX + _GROWTH_OF_REQUEST_MAX * sent,
            records_left=OPENED_RECORDS_MAX + sent // RECORD_BYTES_MIN,
            batch_bytes_max=OPENED_BYTES_MAX + _GROWTH_OF_BATCH_MAX * sent,
        )

    @classmethod
    def on_loop(cls) -> Budget:
        """Returns the budget on the event loop, where everybody waits for it."""
        return cls(
            bytes_left=OPENED_ON_LOOP_BYTES_MAX,
            records_left=OPENED_ON_LOOP_RECORDS_MAX,
            batch_bytes_max=OPENED_ON_LOOP_BYTES_MAX,
            compressed_bytes_max=OPENED_ON_LOOP_BYTES_MAX // _COMPRESSED_ON_LOOP,
        )

    @classmethod
    def for_stored(cls, size: int) -> Budget:
        """Returns the budget of a batch that was once accepted and must be read, in the background: all of it."""
        return cls(_ANY_NUMBER, _ANY_NUMBER, DECOMPRESSED_BYTES_MAX + _GROWTH_OF_BATCH_MAX * size)

    def bytes_from(self, compressed: int) -> int:
        """Returns how large the content of a batch of `compressed` bytes may be. Raises RecordsTooLarge."""
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
