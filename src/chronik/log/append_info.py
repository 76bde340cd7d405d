"""The result of an append, and the validation of batches that a follower receives from its leader."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from chronik.files import Buffer
from chronik.protocol.batch import BatchHeader, iter_batches, verify_crc
from chronik.protocol.errors import CorruptRecords


class AppendOrigin(IntEnum):
    """The component that appends a batch."""

    CLIENT = 0
    COORDINATOR = 1
    """The broker itself, which appends control batches. They are not part of a producer's sequence."""


class AppendInfo(msgspec.Struct, frozen=True):
    """The offsets and timestamp that an append has assigned to its batches."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The broker's timestamp if the topic uses `LogAppendTime`, otherwise -1."""
    log_start_offset: int
    is_duplicate: bool = False
    """Whether the batch was a retry that is already in the log. The offsets are those of the stored batch."""


def validate_replicated_batches(
    buffer: Buffer, offset: int, epoch: int
) -> tuple[list[BatchHeader], list[tuple[int, int]]]:
    """Validate the batches that a leader sent, and return their headers and the leader epochs that start in them.

    Epochs are returned as (epoch, start offset).

    Raises:
        CorruptRecords: A batch is incomplete or damaged, or does not continue the log at `offset` in `epoch` or later.
    """
    headers: list[BatchHeader] = []
    epochs: list[tuple[int, int]] = []
    for position, header in iter_batches(buffer):
        if header.base_offset != offset or header.last_offset_delta < 0:
            raise CorruptRecords(f"the leader sent a batch at offset {header.base_offset}, expected offset {offset}")
        if header.partition_leader_epoch < epoch or not verify_crc(buffer, position, header.size):
            raise CorruptRecords(f"the leader sent a damaged batch at offset {offset}")
        if header.partition_leader_epoch > epoch:
            epoch = header.partition_leader_epoch
            epochs.append((epoch, offset))
        headers.append(header)
        offset = header.next_offset
    return headers, epochs
