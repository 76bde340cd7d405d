"""An application that copies a topic exactly once: it consumes, transforms, produces and commits in transactions.

A separate process, which tests kill, pause and isolate:

    python -m tests.cluster.copier BOOTSTRAP TRANSACTIONAL_ID
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

INPUT, OUTPUT, GROUP = "input", "output", "copiers"
OUTPUT_PARTITIONS = 3
RECORDS_MAX = 50
"""Records of one transaction."""

SESSION_MS = 6_000
TRANSACTION_TIMEOUT_MS = 5_000
"""Session and transaction timeout, short to limit the wait for a dead copier's leftovers."""

WORK_SECONDS = 0.15
"""Simulated work in the middle of a transaction, so that most kills find one open."""

CALL_SECONDS_MAX = 30.0
HUNG_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 + 2.0
"""Time after which `send_offsets_to_transaction` is considered hung: librdkafka waits forever for a group coordinator
that has left the metadata, whatever its timeout (confluentinc/librdkafka#5456 and #5511)."""

EXIT_HUNG = 1
"""The exit code of faulthandler."""

POLL_SECONDS = 0.2
EXIT_FATAL = 3
"""The exit code after a fatal error, such as fencing. The supervisor starts another process."""


class Copier:
    """A transactional copier."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer(
            common
            | {"transactional.id": transactional_id, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "linger.ms": 0}
        )
        self._consumer = Consumer(
            common
            | {
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": SESSION_MS // 6,
            }
        )

    def run(self) -> None:
        """Copy until a fatal error. Raises KafkaException."""
        _retry(lambda: self._producer.init_transactions(CALL_SECONDS_MAX))
        self._consumer.subscribe([INPUT])
        while True:
            messages = self._consumer.consume(RECORDS_MAX, timeout=POLL_SECONDS)
            # Errors are mostly those of unavailable brokers; the next call retries.
            if records := [message for message in messages if message.error() is None]:
                self._copy(records)

    def _copy(self, records: list[Any]) -> None:
        self._producer.begin_transaction()
        try:
            half = len(records) // 2
            for record in records[:half]:
                self._produce(record)
            time.sleep(WORK_SECONDS)
            for record in records[half:]:
                self._produce(record)
            read = {(record.topic(), record.partition()): record.offset() + 1 for record in records}
            offsets = [TopicPartition(*place, offset) for place, offset in read.items()]
            member = self._consumer.consumer_group_metadata()
            with _exit_when_hung():
                _retry(lambda: self._producer.send_offsets_to_transaction(offsets, member, CALL_SECONDS_MAX))
            _retry(lambda: self._producer.commit_transaction(CALL_SECONDS_MAX))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            _retry(lambda: self._producer.abort_transaction(CALL_SECONDS_MAX))
            self._rewind()

    def _produce(self, record: Any) -> None:
        """Produce a copy to a partition that depends on its number, so that each input partition reaches all."""
        number = int(record.value())
        value = f"{number} {record.partition()} {record.offset()}"
        self._producer.produce(OUTPUT, value, key=record.key(), partition=number % OUTPUT_PARTITIONS)

    def _rewind(self) -> None:
        """Seek to the offsets of the last committed transaction."""
        assigned = self._consumer.assignment()
        for at in self._consumer.committed(assigned, timeout=CALL_SECONDS_MAX) if assigned else ():
            if at.error is not None:
                raise KafkaException(at.error)
            at.offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(at)


def _retry(call: Callable[[], Any]) -> None:
    """Repeat a call as long as its error is retriable."""
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


@contextmanager
def _exit_when_hung() -> Iterator[None]:
    """End the process, as a supervisor would, if the block takes too long."""
    faulthandler.dump_traceback_later(HUNG_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def main(bootstrap: str, transactional_id: str) -> None:
    faulthandler.register(signal.SIGUSR1)  # prints a stack trace for a test that waits
    try:
        Copier(bootstrap, transactional_id).run()
    except KafkaException as failure:
        print(f"{transactional_id}: fatal error: {failure}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(HUNG_SECONDS, exit=True)  # closing the clients may wait for brokers
        sys.exit(EXIT_FATAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
