"""Members of a group for clients whose consumers belong to one thread: each member polls in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Protocol

from .wire import Received

POLL_S = 0.1  # how long a poll may keep a waiting command
CLOSE_TIMEOUT_S = 30.0  # leaving takes one request; a member that needs longer hangs


class GroupConsumer(Protocol):
    """What a member needs of a client; called from the member's thread only."""

    def poll(self, timeout_s: float) -> Iterable[Received]: ...

    def assignment(self) -> list[tuple[str, int]]: ...

    def commit(self, topic: str, partition: int, offset: int, metadata: str) -> None: ...

    def close(self) -> None: ...


class Member:
    def __init__(self, open_consumer: Callable[[], GroupConsumer]) -> None:
        self._open_consumer = open_consumer
        self._work: queue.SimpleQueue[tuple[Callable[[GroupConsumer], Any], Future[Any]]] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._lock = threading.Lock()
        self._assignment: list[tuple[str, int]] = []
        self._received: list[Received] = []
        self._problem: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> dict[str, Any]:
        """The partitions owned now, and what was received since the last call."""
        with self._lock:
            records, self._received = self._received, []
            return {
                "assignment": sorted(self._assignment),
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
        while not self._work.empty():
            work, done = self._work.get()
            try:
                done.set_result(work(consumer))
            except Exception as error:  # belongs to whoever asked for the work
                done.set_exception(error)
        records = list(consumer.poll(POLL_S))
        with self._lock:
            self._received.extend(records)
            self._assignment = consumer.assignment()


class Members:
    """The commands `join`, `member`, `commit` and `leave`, for any client that can open a `GroupConsumer`."""

    def __init__(self, open_consumer: Callable[[str, str, list[str], str | None], GroupConsumer]) -> None:
        self._open_consumer = open_consumer
        self._members: dict[str, Member] = {}

    def join(self, member: str, bootstrap: str, group: str, topics: list[str], assignor: str | None) -> None:
        """Returns at once: whether and what the member was given is seen by `member`."""
        self._members[member] = Member(lambda: self._open_consumer(bootstrap, group, topics, assignor))

    def member(self, member: str) -> dict[str, Any]:
        return self._members[member].take()

    def commit(self, member: str, offsets: list[tuple[str, int, int, str]]) -> None:
        self._members[member].commit(offsets)

    def leave(self, member: str) -> None:
        self._members.pop(member).leave()
