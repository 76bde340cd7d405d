"""Transaction scenarios of one client, and the records that readers must see afterwards.

All steps write the same number of records to every partition. A transaction that stays open until it times out
starts first and ends last, so that all other steps happen while it is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from .client_process import ClientPool, ClientProcess, CommandFailed, TransactionalProducer, unique_name, wait_for
from .drivers.wire import Record

REPLICATION_FACTOR = 3
PARTITIONS = 3
RECORDS = 2
"""Records per step and partition."""

TIMEOUT_MS = 60_000
SHORT_TIMEOUT_MS = 4_000
FENCED = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
"""Errors of a fenced producer. Older request versions only have the second name, and a producer whose transaction timed
out receives the same error."""

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"


@dataclass
class TransactionScenario:
    """The steps of a scenario and where they were written."""

    writer: str
    topic: str
    group: str
    chapters: list[tuple[str, bool]] = field(default_factory=list)
    """The steps in order, and whether each was committed."""
    failure: str | None = None

    def values(self, isolation: str) -> list[str]:
        """Return the values that each partition contains for the isolation level."""
        return [
            f"{chapter} {number}"
            for chapter, is_committed in self.chapters
            if is_committed or isolation == READ_UNCOMMITTED
            for number in range(RECORDS)
        ]

    def count(self, isolation: str) -> int:
        return PARTITIONS * len(self.values(isolation))


class ScenarioRunner:
    """Runs the transaction scenario of one client."""

    def __init__(self, clients: ClientPool, name: str) -> None:
        self._clients = clients
        self._client = clients.get(name)
        self._ids = unique_name(name)
        topic = clients.create_topic(unique_name(f"story-{name}"), PARTITIONS, REPLICATION_FACTOR)
        self.story = TransactionScenario(name, topic, unique_name("readers"))

    def run(self) -> TransactionScenario:
        with self._timed_out():
            self._committed_and_aborted()
            self._fenced()
            self._crashed()
            self._with_offsets()
        self._client.produce(self.story.topic, self._chapter("the end", is_committed=True))
        return self.story

    def _committed_and_aborted(self) -> None:
        with self._producer("plain") as producer:
            for number in range(2):
                self._transaction(producer, f"committed {number}", producer.commit, is_committed=True)
                self._transaction(producer, f"aborted {number}", producer.abort, is_committed=False)

    def _fenced(self) -> None:
        """Fence a producer with a second instance of the same id in another process."""
        with closing(self._clients.start_another(self.story.writer)) as other, self._producer("shared") as first:
            first.begin()
            self._send(first, "of the fenced", is_committed=False)
            with self._producer("shared", other) as second:
                self._transaction(second, "of the second instance", second.commit, is_committed=True)
                assert_rejected(
                    lambda: first.send(self.story.topic, [Record(b"key", b"too late", partition=0)]), FENCED
                )
                assert_rejected(first.commit)
                self._transaction(second, "of the second instance again", second.commit, is_committed=True)

    def _crashed(self) -> None:
        with closing(self._clients.start_another(self.story.writer)) as other:
            producer = other.open_producer(f"{self._ids}-crashing", TIMEOUT_MS)
            producer.begin()
            self._send(producer, "before the crash", is_committed=False)
            other.crash()
        with self._producer("crashing") as successor:
            self._transaction(successor, "after the crash", successor.commit, is_committed=True)

    def _with_offsets(self) -> None:
        group, topic = self.story.group, self.story.topic
        with self._producer("offsets") as producer:
            producer.begin()
            producer.send_offsets(group, [(topic, 2, 3, "three")])
            producer.commit()
            wait_for("the offsets of a transaction without records", lambda: self._offsets() == {2: 3})
            producer.begin()
            self._send(producer, "with offsets", is_committed=True)
            producer.send_offsets(group, [(topic, 0, 2, "two"), (topic, 1, 1, "one")])
            assert self._offsets() == {2: 3}, "offsets of an open transaction are visible"
            producer.commit()
            wait_for("the offsets of the transaction", lambda: self._offsets() == {0: 2, 1: 1, 2: 3})
            producer.begin()
            self._send(producer, "with offsets that are aborted", is_committed=False)
            producer.send_offsets(group, [(topic, 0, 4, "four")])
            producer.abort()
            assert self._offsets() == {0: 2, 1: 1, 2: 3}

    @contextmanager
    def _timed_out(self) -> Iterator[None]:
        """Keep a transaction open during the `with` block and until the coordinator aborts it."""
        with self._producer("slow", timeout_ms=SHORT_TIMEOUT_MS) as producer:
            producer.begin()
            self._send(producer, "before the timeout", is_committed=False)
            yield
            wait_for("the end of what was left open", self._is_all_stable)
            assert_rejected(producer.commit)
        with self._producer("slow") as successor:
            self._transaction(successor, "after the timeout", successor.commit, is_committed=True)

    # Helpers of the steps

    @contextmanager
    def _producer(
        self, name: str, client: ClientProcess | None = None, timeout_ms: int = TIMEOUT_MS
    ) -> Iterator[TransactionalProducer]:
        producer = (client or self._client).open_producer(f"{self._ids}-{name}", timeout_ms)
        yield producer
        producer.close()

    def _transaction(
        self, producer: TransactionalProducer, chapter: str, end: Callable[[], None], *, is_committed: bool
    ) -> None:
        producer.begin()
        self._send(producer, chapter, is_committed=is_committed)
        end()

    def _send(self, producer: TransactionalProducer, chapter: str, *, is_committed: bool) -> None:
        producer.send(self.story.topic, self._chapter(chapter, is_committed=is_committed))

    def _chapter(self, chapter: str, *, is_committed: bool) -> list[Record]:
        self.story.chapters.append((chapter, is_committed))
        return [
            Record(b"key", f"{chapter} {number}".encode(), partition=partition)
            for partition in range(PARTITIONS)
            for number in range(RECORDS)
        ]

    def _is_all_stable(self) -> bool:
        return all(
            self._end(partition, READ_COMMITTED) == self._end(partition, READ_UNCOMMITTED)
            for partition in range(PARTITIONS)
        )

    def _end(self, partition: int, isolation: str) -> int:
        query = {"topic": self.story.topic, "partition": partition, "spec": "latest", "isolation": isolation}
        end: int = self._clients.get("confluent").admin("list_offsets", **query)["offset"]
        return end

    def _offsets(self) -> dict[int, int]:
        listed = self._clients.get("confluent").admin("group_offsets", group=self.story.group)
        return {partition: offset for _, partition, offset, _ in listed}


def assert_rejected(action: Callable[[], None], names: set[str] | None = None) -> None:
    """Assert that the action fails, with one of the given error names if any."""
    rejection: CommandFailed | None = None
    try:
        action()
    except CommandFailed as failure:
        rejection = failure
    assert rejection is not None, "the broker accepted what it must reject"
    assert names is None or rejection.name in names, rejection
