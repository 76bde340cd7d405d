"""Transactional producers, for any client that can open a `TransactionalProducer`: each begins, sends and ends when it
is told to, so that a test can leave a transaction open, or open a second producer of the same transactional id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .wire import Record

END_TIMEOUT_S = 60  # for whatever one call of a client asks of the broker

Offset = tuple[str, int, int, str]
"""Topic, partition, offset and metadata."""


@dataclass(frozen=True)
class Wanted:
    bootstrap: str
    transactional_id: str
    timeout_ms: int


class TransactionalProducer(Protocol):
    """What the commands need of a client. Errors of the broker are raised as `Refused`."""

    def begin(self) -> None: ...

    def send(self, topic: str, records: list[Record]) -> None:
        """Returns when all are acknowledged."""

    def send_offsets(self, group: str, offsets: list[Offset]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Transactions:
    """The commands that `Transaction` in the tests' running.py sends."""

    def __init__(self, open_producer: Callable[[Wanted], TransactionalProducer]) -> None:
        self._open_producer = open_producer
        self._producers: dict[str, TransactionalProducer] = {}

    def open_producer(self, producer: str, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        """Returns when the broker has given it an epoch, and ended what another of that id had left open."""
        self._producers[producer] = self._open_producer(Wanted(bootstrap, transactional_id, timeout_ms))

    def begin_transaction(self, producer: str) -> None:
        self._producers[producer].begin()

    def send_in_transaction(self, producer: str, topic: str, records: list[dict[str, Any]]) -> None:
        self._producers[producer].send(topic, [Record.from_json(fields) for fields in records])

    def send_offsets(self, producer: str, group: str, offsets: list[Offset]) -> None:
        self._producers[producer].send_offsets(group, offsets)

    def commit_transaction(self, producer: str) -> None:
        self._producers[producer].commit()

    def abort_transaction(self, producer: str) -> None:
        self._producers[producer].abort()

    def commit_many(self, producer: str, topic: str, first: int, count: int) -> None:
        """So many transactions of one record each; the value of a record is its number, from `first` on."""
        chosen = self._producers[producer]
        for number in range(first, first + count):
            chosen.begin()
            chosen.send(topic, [Record(None, str(number).encode(), partition=0)])
            chosen.commit()

    def close_producer(self, producer: str) -> None:
        self._producers.pop(producer).close()
