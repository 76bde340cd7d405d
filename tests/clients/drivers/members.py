"""Members of a group for clients whose consumers belong to one thread: each member polls in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from .wire import Received

POLL_S = 0.1  # how long a poll may keep a waiting command
CLOSE_TIMEOUT_S = 30.0  # leaving takes one request; a member that needs longer hangs
HEARTBEAT_MS = 500
SESSION_MS = 10_000  # short, because tests wait for the end of a session whose member crashed
STATIC_SESSION_MS = 30_000  # long, because a static member must be back within it, on however busy a machine


@dataclass(frozen=True)
class Membership:
    """What a member asks for; with an `instance` it is a static one."""

    bootstrap: str
    group: str
    topics: list[str]
    assignor: str | None
    instance: str | None

    @property
    def session_ms(self) -> int:
        return SESSION_MS if self.instance is None else STATIC_SESSION_MS


class RebalanceCount:
    """A listener as kafka-python and aiokafka both want it."""

    def __init__(self) -> None:
        self.value = 0

    def on_partitions_assigned(self, _assigned: object) -> None:
        self.value += 1

    def on_partitions_revoked(self, _revoked: object) -> None:
        """The assignment that follows is what counts."""

    def on_partitions_lost(self, _lost: object) -> None:
        """As when they are revoked."""


class AfterThisRound(Exception):
    """The client asks for patience: what it was told to do can be done when it has polled on."""


class GroupConsumer(Protocol):
    """What a member needs of a client; called from the member's thread only."""

    def poll(self, timeout_s: float) -> Iterable[Received]: ...

    def assignment(self) -> list[tuple[str, int]]: ...

    def rebalances(self) -> int:
        """How often it was given partitions."""

    def commit(self, topic: str, partition: int, offset: int, metadata: str) -> None: ...

    def close(self) -> None: ...


class Member:
    def __init__(self, open_consumer: Callable[[], GroupConsumer]) -> None:
        self._open_consumer = open_consumer
        self._work: queue.SimpleQueue[tuple[Callable[[GroupConsumer], Any], Future[Any]]] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._lock = threading.Lock()
        self._assignment: list[tuple[str, int]] = []
        self._rebalances = 0
        self._received: list[Received] = []
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> dict[str, Any]:
        """The partitions owned now, how often there were new ones, and what was received since the last call."""
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

        done: Future[None] = Future()
        self._work.put((work, done))
        done.result(timeout=CLOSE_TIMEOUT_S)

    def leave(self) -> None:
        self._leaving.set()
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError("the member did not leave its group")
        if self._problem is not None:
            raise RuntimeError(self._problem)

    def _run(self) -> None:
        try:
            consumer = self._open_consumer()
            try:
                while not self._leaving.is_set():
                    self._turn(consumer)
            finally:
                consumer.close()
        except Exception as error:  # told to the test by the next `take`
            self._problem = f"{type(error).__name__}: {error}"

    def _turn(self, consumer: GroupConsumer) -> None:
        for _ in range(self._work.qsize()):
            work, done = self._work.get()
            try:
                done.set_result(work(consumer))
            except AfterThisRound:
                self._work.put((work, done))
            except Exception as error:  # belongs to whoever asked for the work
                done.set_exception(error)
        records = list(consumer.poll(POLL_S))
        with self._lock:
            self._received.extend(records)
            self._assignment = consumer.assignment()
            self._rebalances = consumer.rebalances()


class Members:
    """The commands `join`, `member`, `commit` and `leave`, for any client that can open a `GroupConsumer`."""

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
        """Returns at once: whether and what the member was given is seen by `member`."""
        wanted = Membership(bootstrap, group, topics, assignor, instance)
        self._members[member] = Member(lambda: self._open_consumer(wanted))

    def member(self, member: str) -> dict[str, Any]:
        return self._members[member].take()

    def commit(self, member: str, offsets: list[tuple[str, int, int, str]]) -> None:
        self._members[member].commit(offsets)

    def leave(self, member: str) -> None:
        self._members.pop(member).leave()
