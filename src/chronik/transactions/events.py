"""Events of the transaction state machines: client requests and notifications (see `coordination.machine`)."""

from __future__ import annotations

from typing import NamedTuple

from chronik.coordination.machine import MachineEvent, MachineRequest
from chronik.metadata.commands.transactions import NO_PRODUCER_ID, TransactionPartition
from chronik.protocol.errors import ErrorCode


class TransactionResult(NamedTuple):
    """The result of a transactional request: an error code, and the producer id and epoch to continue with."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_ID
    needs_producer_id: bool = False
    """Whether nothing was done because the request must be repeated with a new producer id."""


class InitProducerRequested(MachineRequest, frozen=True):
    """A producer sent InitProducerId. A producer that sends its id and epoch must not fence a newer producer."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_ID
    fresh_producer_id: int = NO_PRODUCER_ID


class AddRequested(MachineRequest, frozen=True):
    """A producer sent AddPartitionsToTxn or AddOffsetsToTxn."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TransactionPartition, ...] = ()
    groups: tuple[str, ...] = ()


class EndRequested(MachineRequest, frozen=True):
    """A producer sent EndTxn."""

    producer_id: int
    producer_epoch: int
    commit: bool
    bump_epoch: bool
    """Whether each transaction has its own producer epoch (transactions version 2)."""
    fresh_producer_id: int = NO_PRODUCER_ID


class MarkersWritten(MachineEvent, frozen=True):
    """All partitions have the marker of the decision at this index of the metadata log."""

    index: int


class TimeoutRequested(MachineEvent, frozen=True):
    """The open transaction must be aborted as if its timeout had expired. Lets client tests avoid the wait."""


TransactionRequested = InitProducerRequested | AddRequested | EndRequested
