"""What a topic stores -> what a client of some Fetch version understands.

From version 4 on that is the batches as they are stored. Only version 10 promises to know zstd, but clients of older
ones do, and Kafka sends it to all of them. Versions before 4 get message sets, converted on the way out.
"""

from __future__ import annotations

import struct

from chronik.broker.replica import Replica
from chronik.limits import DECOMPRESSED_BYTES_MAX, MIB
from chronik.protocol.batch import iter_batches
from chronik.protocol.message_set import convert_down

FIRST_VERSION_WITH_MAGIC_1 = 2
FIRST_VERSION_WITH_BATCHES = 4

READ_ON_BYTES = 1 * MIB
"""Read at once where nothing was found: compaction leaves batches of 61 bytes, which must not be read one by one."""

NOTHING = -1
_OFFSET_AND_SIZE = struct.Struct(">qi")


def read_outgoing(
    replica: Replica, offset: int, max_bytes: int, version: int, *, min_one_batch: bool
) -> bytes | memoryview:
    """Raises as `Replica.read` does, and for message sets as `decode_batch` does."""
    records = replica.read(offset, max_bytes, min_one_batch=min_one_batch)
    if version >= FIRST_VERSION_WITH_BATCHES:
        return records
    return _message_set(replica, offset, records, 1 if version >= FIRST_VERSION_WITH_MAGIC_1 else 0)


def end_offset(records: bytes | memoryview, version: int) -> int:
    """The offset behind what `read_outgoing` returned; 0 when that was nothing."""
    if version < FIRST_VERSION_WITH_BATCHES:
        return _last_message_offset(records) + 1
    return max((header.next_offset for _, header in iter_batches(records)), default=0)


def _message_set(replica: Replica, offset: int, records: memoryview, magic: int) -> bytes:
    """Reads on where compaction has left no record from `offset` on: a client would ask for the same offset forever,
    since only messages tell it how far it got."""
    while records:
        messages = convert_down(records, magic, first_offset=offset, limit=DECOMPRESSED_BYTES_MAX)
        if _last_message_offset(messages) >= offset:
            return messages
        behind = end_offset(records, FIRST_VERSION_WITH_BATCHES)
        records = replica.read(behind, READ_ON_BYTES, min_one_batch=True)
    return b""


def _last_message_offset(messages: bytes | memoryview) -> int:
    last_offset, position = NOTHING, 0
    while position < len(messages):
        last_offset, size = _OFFSET_AND_SIZE.unpack_from(messages, position)
        position += _OFFSET_AND_SIZE.size + size
    return last_offset
