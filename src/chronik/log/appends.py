"""What is appended and how: the answer to an append, and the checks of what a leader sent."""

from __future__ import annotations

from enum import IntEnum

import msgspec

from chronik.files import Buffer
from chronik.protocol.batch import BatchHeader, iter_batches, verify_crc
from chronik.protocol.errors import CorruptRecords


class AppendOrigin(IntEnum):
    CLIENT = 0
    COORDINATOR = 1
    """This node itself appends: control batches, which are in no producer's sequence."""


class AppendInfo(msgspec.Struct, frozen=True):
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps records with it."""
    log_start_offset: int
    duplicate: bool = False
    """A retry: the batch was there already, and the offsets are the ones it got then."""


def check_replicated(buffer: Buffer, offset: int, epoch: int) -> tuple[list[BatchHeader], list[tuple[int, int]]]:
    """Returns the batches that a leader sent, and the (epoch, first offset) of epochs that begin in them.

    Raises CorruptRecords unless they are whole, undamaged and continue the log at `offset`, after `epoch`.
    """
    headers: list[BatchHeader] = []
    epochs: list[tuple[int, int]] = []
    for position, header in iter_batches(buffer):
        if header.base_offset != offset or header.last_offset_delta < 0:
            raise CorruptRecords(f"the leader sent offset {header.base_offset} where {offset} is due")
        if header.partition_leader_epoch < epoch or not verify_crc(buffer, position, header.size):
            raise CorruptRecords(f"the leader sent a damaged batch at offset {offset}")
        if header.partition_leader_epoch > epoch:
            epoch = header.partition_leader_epoch
            epochs.append((epoch, offset))
        headers.append(header)
        offset = header.next_offset
    return headers, epochs
