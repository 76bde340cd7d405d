"""Commands for transactional producers, for any client that can open a `TransactionalProducer`.

Tests control each step, so that they can leave a transaction open or open a second producer with the same id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .wire import Record

END_TIMEOUT_S = 60  # limit of a client call that waits for the broker

Offset = tuple[str, int, int, str]
"""Topic, partition, offset and metadata."""


@dataclass(frozen=True)
class ProducerSettings:
    """Settings of a transactional producer."""

    bootstrap: str
    transactional_id: str
    timeout_ms: int


class TransactionalProducer(Protocol):
    """A client's transactional producer. Errors of the broker are raised as `CommandRejected`."""

    def begin(self) -> None: ...

    def send(self, topic: str, records: list[Record]) -> None:
        """Send records and wait for their acknowledgement."""

    def send_offsets(self, group: str, offsets: list[Offset]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Transactions:
    """The commands that `TransactionalProducer` of the tests sends."""

    def __init__(self, open_producer: Callable[[ProducerSettings], TransactionalProducer]) -> None:
        self._open_producer = open_producer
        self._producers: dict[str, TransactionalProducer] = {}

    def open_producer(self, producer: str, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        """Open a producer and wait for its epoch, which completes an open transaction of the same id."""
        self._producers[producer] = self._open_producer(ProducerSettings(bootstrap, transactional_id, timeout_ms))

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
        """Commit `count` transactions with one record each, whose values are numbers from `first` on."""
        selected = self._producers[producer]
        for number in range(first, first + count):
            selected.begin()
            selected.send(topic, [Record(None, str(number).encode(), partition=0)])
            selected.commit()

    def close_producer(self, producer: str) -> None:
        self._producers.pop(producer).close()
