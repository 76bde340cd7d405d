"""The events of transactions: questions, and news beside those of every machine (`coordination.machine`)."""

from __future__ import annotations

from typing import NamedTuple

from chronik.coordination.machine import Event, Question
from chronik.metadata.commands.transactions import NO_PRODUCER, TransactionPartition
from chronik.protocol.errors import ErrorCode


class Given(NamedTuple):
    """An answer: how it went, and the producer id and epoch to go on with."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    needs_producer_id: bool = False
    """Nothing was done: the question must be asked again, with a producer id that nobody has had."""


class InitAsked(Question, frozen=True):
    """A producer begins. If it names the id and epoch that it has, it goes on, and must not fence a newer one."""

    timeout_ms: int
    producer_id: int = NO_PRODUCER
    producer_epoch: int = NO_PRODUCER
    fresh_producer_id: int = NO_PRODUCER


class AddAsked(Question, frozen=True):
    producer_id: int
    producer_epoch: int
    partitions: tuple[TransactionPartition, ...] = ()
    groups: tuple[str, ...] = ()


class EndAsked(Question, frozen=True):
    producer_id: int
    producer_epoch: int
    commit: bool
    bump: bool
    """Whether each transaction has an epoch of its own (transactions of version 2)."""
    fresh_producer_id: int = NO_PRODUCER


class MarkersWritten(Event, frozen=True):
    """Every partition has the marker of the decision at this index of the log."""

    index: int


class TimeIsUp(Event, frozen=True):
    """The open transaction is to end as if it had taken too long: tests of clients need not wait for it."""


Asked = InitAsked | AddAsked | EndAsked
