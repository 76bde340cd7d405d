"""Events of the transaction state machines: client requests and notifications (see `coordination.machine`)."""

from __future__ import annotations

from typing import NamedTuple

from chronik.coordination.machine import Event, Question
from chronik.metadata.commands.transactions import NO_PRODUCER, TransactionPartition
from chronik.protocol.errors import ErrorCode


class Given(NamedTuple):
    """The result of a transactional request: an error code, and the producer id and epoch to continue with."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    needs_producer_id: bool = False
    """Whether nothing was done because the request must be repeated with a new producer id."""


class InitAsked(Question, frozen=True):
    """A producer sent InitProducerId. A producer that sends its id and epoch must not fence a newer producer."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    fresh_producer_id: int = NO_PRODUCER


class AddAsked(Question, frozen=True):
    """A producer sent AddPartitionsToTxn or AddOffsetsToTxn."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[TransactionPartition, ...] = ()
    groups: tuple[str, ...] = ()


class EndAsked(Question, frozen=True):
    """A producer sent EndTxn."""

    producer_id: int
    producer_epoch: int
    commit: bool
    bump: bool
    """Whether each transaction has its own producer epoch (transactions version 2)."""
    fresh_producer_id: int = NO_PRODUCER


class MarkersWritten(Event, frozen=True):
    """All partitions have the marker of the decision at this index of the metadata log."""

    index: int


class TimeIsUp(Event, frozen=True):
    """The open transaction must be aborted as if its timeout had expired. Lets client tests avoid the wait."""


Asked = InitAsked | AddAsked | EndAsked
