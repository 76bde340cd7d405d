"""The decompression budget of a request, which limits the decompressed bytes and records.

A few compressed kilobytes may expand to gigabytes, or to millions of records. The budget grows with the request's size,
so that legitimate large requests are never rejected.
"""

from __future__ import annotations

import msgspec

from chronik.limits import (
    DECOMPRESSED_BYTES_MAX,
    INSPECTED_BYTES_MAX,
    INSPECTED_ON_LOOP_BYTES_MAX,
    INSPECTED_ON_LOOP_RECORDS_MAX,
    INSPECTED_RECORDS_MAX,
)
from chronik.protocol.errors import RecordsTooLarge

# Maximum expansion of all batches of a request together. JSON usually compresses to a tenth.
_REQUEST_EXPANSION_MAX = 20

# Maximum expansion of a single batch, whose records are in memory at once.
_BATCH_EXPANSION_MAX = 2

# The minimum size of a record: its length and six empty fields take a byte each.
RECORD_BYTES_MIN = 7

# Empty compressed data takes time too: an empty gzip file has 20 bytes and takes as long as 2 kB of content. So
# compressed data on the event loop must be smaller than the allowed output by this factor.
_LOOP_COMPRESSION_FACTOR = 8

_UNLIMITED = 2**63


class DecompressionBudget(msgspec.Struct):
    """The remaining number of bytes and records that a request may decompress."""

    bytes_left: int
    records_left: int
    batch_bytes_max: int
    compressed_bytes_max: int = _UNLIMITED
    bytes_decompressed: int = 0
    records_decompressed: int = 0

    @classmethod
    def for_request(cls, sent: int) -> DecompressionBudget:
        """Return the budget of a request with `sent` bytes of records, which grows with the size of the request."""
        return cls(
            bytes_left=INSPECTED_BYTES_MAX + _REQUEST_EXPANSION_MAX * sent,
            records_left=INSPECTED_RECORDS_MAX + sent // RECORD_BYTES_MIN,
            batch_bytes_max=INSPECTED_BYTES_MAX + _BATCH_EXPANSION_MAX * sent,
        )

    @classmethod
    def for_event_loop(cls) -> DecompressionBudget:
        """Return the small budget for decompression on the event loop, which blocks all other work."""
        return cls(
            bytes_left=INSPECTED_ON_LOOP_BYTES_MAX,
            records_left=INSPECTED_ON_LOOP_RECORDS_MAX,
            batch_bytes_max=INSPECTED_ON_LOOP_BYTES_MAX,
            compressed_bytes_max=INSPECTED_ON_LOOP_BYTES_MAX // _LOOP_COMPRESSION_FACTOR,
        )

    @classmethod
    def for_stored_batch(cls, size: int) -> DecompressionBudget:
        """Return the budget of a background task that must decompress a stored batch completely, whatever its size."""
        return cls(_UNLIMITED, _UNLIMITED, DECOMPRESSED_BYTES_MAX + _BATCH_EXPANSION_MAX * size)

    def max_output_bytes(self, compressed: int) -> int:
        """Return the maximum number of bytes to which `compressed` bytes of a batch may decompress.

        Raises:
            RecordsTooLarge: The compressed data exceeds the budget.
        """
        if compressed > self.compressed_bytes_max:
            raise RecordsTooLarge(f"{compressed} compressed bytes exceed the decompression budget")
        return max(min(self.bytes_left, self.batch_bytes_max), 0)

    def charge_bytes(self, count: int) -> None:
        """Charge decompressed bytes to the budget."""
        self.bytes_left -= count
        self.bytes_decompressed += count

    def charge_records(self, count: int) -> None:
        """Charge records to the budget.

        Raises:
            RecordsTooLarge: There are more records than the budget allows.
        """
        if count > self.records_left:
            raise RecordsTooLarge(f"{count} records exceed the remaining budget of {self.records_left} records")
        self.records_left -= count
        self.records_decompressed += count
