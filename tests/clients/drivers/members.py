"""Group members for clients whose consumers are bound to a thread: each member polls in its own thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from .wire import ReceivedRecord

POLL_S = 0.1  # how long a poll may delay a command
CLOSE_TIMEOUT_S = 30.0  # leaving takes one request, so a longer delay is a hang
HEARTBEAT_MS = 500
SESSION_MS = 10_000  # short, because tests wait for the session of a crashed member to expire
STATIC_SESSION_MS = 30_000  # long, because a static member must return within it, even on a busy machine


@dataclass(frozen=True)
class Membership:
    """Settings of a group member; with an `instance`, it is a static member."""

    bootstrap: str
    group: str
    topics: list[str]
    assignor: str | None
    instance: str | None

    @property
    def session_ms(self) -> int:
        return SESSION_MS if self.instance is None else STATIC_SESSION_MS


class RebalanceCount:
    """A rebalance listener for kafka-python and aiokafka that counts assignments."""

    def __init__(self) -> None:
        self.value = 0

    def on_partitions_assigned(self, _assigned: object) -> None:
        self.value += 1

    def on_partitions_revoked(self, _revoked: object) -> None:
        """Do nothing: only assignments are counted."""

    def on_partitions_lost(self, _lost: object) -> None:
        """Do nothing: only assignments are counted."""


class RetryAfterPoll(Exception):
    """Raised when a command must be retried after the next poll."""


class GroupConsumer(Protocol):
    """A client's consumer, as a member uses it; called only from the member's thread."""

    def poll(self, timeout_s: float) -> Iterable[ReceivedRecord]: ...

    def assignment(self) -> list[tuple[str, int]]: ...

    def rebalances(self) -> int:
        """Return how often the consumer was assigned partitions."""

    def commit(self, topic: str, partition: int, offset: int, metadata: str) -> None: ...

    def close(self) -> None: ...


class Member:
    """A group member that polls in its own thread and executes commands between polls."""

    def __init__(self, open_consumer: Callable[[], GroupConsumer]) -> None:
        self._open_consumer = open_consumer
        self._work: queue.SimpleQueue[tuple[Callable[[GroupConsumer], Any], Future[Any]]] = queue.SimpleQueue()
        self._leave_event = threading.Event()
        self._lock = threading.Lock()
        self._assignment: list[tuple[str, int]] = []
        self._rebalances = 0
        self._received: list[ReceivedRecord] = []
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> dict[str, Any]:
        """Return the assignment, the number of rebalances, and the records since the last call."""
        with self._lock:
            records, self._received = self._received, []
            return {
                "assignment": sorted(self._assignment),
                "rebalances": self._rebalances,
                "records": [record.to_json() for record in records],
                "problem": self._problem,
            }

    def commit(self, offsets: list[tuple[str, int, int, str]]) -> None:
        def work(consumer: GroupConsumer) -> None:
            for topic, partition, offset, metadata in offsets:
                consumer.commit(topic, partition, offset, metadata)

        completed: Future[None] = Future()
        self._work.put((work, completed))
        completed.result(timeout=CLOSE_TIMEOUT_S)

    def leave(self) -> None:
        self._leave_event.set()
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError("the member did not leave its group")
        if self._problem is not None:
            raise RuntimeError(self._problem)

    def _run(self) -> None:
        try:
            consumer = self._open_consumer()
            try:
                while not self._leave_event.is_set():
                    self._poll_once(consumer)
            finally:
                consumer.close()
        except Exception as error:  # reported by the next `take`
            self._problem = f"{type(error).__name__}: {error}"

    def _poll_once(self, consumer: GroupConsumer) -> None:
        for _ in range(self._work.qsize()):
            work, completed = self._work.get()
            try:
                completed.set_result(work(consumer))
            except RetryAfterPoll:
                self._work.put((work, completed))
            except Exception as error:  # reported to the caller of the command
                completed.set_exception(error)
        records = list(consumer.poll(POLL_S))
        with self._lock:
            self._received.extend(records)
            self._assignment = consumer.assignment()
            self._rebalances = consumer.rebalances()


class Members:
    """The commands `join`, `member`, `commit` and `leave` for any client that can open a `GroupConsumer`."""

    def __init__(self, open_consumer: Callable[[Membership], GroupConsumer]) -> None:
        self._open_consumer = open_consumer
        self._members: dict[str, Member] = {}

    def join(
        self,
        member: str,
        bootstrap: str,
        group: str,
        topics: list[str],
        assignor: str | None,
        instance: str | None = None,
    ) -> None:
        """Start a member without waiting; `member` reports its assignment."""
        wanted = Membership(bootstrap, group, topics, assignor, instance)
        self._members[member] = Member(lambda: self._open_consumer(wanted))

    def member(self, member: str) -> dict[str, Any]:
        return self._members[member].take()

    def commit(self, member: str, offsets: list[tuple[str, int, int, str]]) -> None:
        self._members[member].commit(offsets)

    def leave(self, member: str) -> None:
        self._members.pop(member).leave()
