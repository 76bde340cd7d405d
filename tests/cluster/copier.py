"""Copies a topic exactly once, as an application would: consumes, transforms, produces, and commits what it has read in
the transaction of what it wrote. A process of its own, which tests kill, pause and cut off:

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
"""Of one transaction."""

SESSION_MS = 6_000
TRANSACTION_TIMEOUT_MS = 5_000
"""Both short, for the sake of who waits for what a dead copier has left behind."""

WORK_SECONDS = 0.15
"""What transforming takes, as it were, with half of the records written: most kills find a transaction open."""

CALL_SECONDS_MAX = 30.0
HUNG_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 + 2.0
"""After that, adding offsets does not come back any more: librdkafka waits forever for a coordinator of the group that
has left the cluster's metadata, whatever timeout it was given (confluentinc/librdkafka#5456 and #5511)."""

EXIT_HUNG = 1
"""As faulthandler has it."""

POLL_SECONDS = 0.2
EXIT_FATAL = 3
"""Whoever started it starts another: fenced, or what it does not know how to go on from."""


class Copier:
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
        """Raises KafkaException when it cannot go on."""
        _patiently(lambda: self._producer.init_transactions(CALL_SECONDS_MAX))
        self._consumer.subscribe([INPUT])
        while True:
            messages = self._consumer.consume(RECORDS_MAX, timeout=POLL_SECONDS)
            # An error is that of a broker which is away, most likely; the next call tries again.
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
            with _or_end():
                _patiently(lambda: self._producer.send_offsets_to_transaction(offsets, member, CALL_SECONDS_MAX))
            _patiently(lambda: self._producer.commit_transaction(CALL_SECONDS_MAX))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            _patiently(lambda: self._producer.abort_transaction(CALL_SECONDS_MAX))
            self._rewind()

    def _produce(self, record: Any) -> None:
        """To a partition that its number chooses: what was read of one partition goes to all of them."""
        number = int(record.value())
        value = f"{number} {record.partition()} {record.offset()}"
        self._producer.produce(OUTPUT, value, key=record.key(), partition=number % OUTPUT_PARTITIONS)

    def _rewind(self) -> None:
        """To where the last transaction that was committed has come to."""
        assigned = self._consumer.assignment()
        for at in self._consumer.committed(assigned, timeout=CALL_SECONDS_MAX) if assigned else ():
            if at.error is not None:
                raise KafkaException(at.error)
            at.offset = at.offset if at.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(at)


def _patiently(call: Callable[[], Any]) -> None:
    """Again and again while that is what the client asks for: it goes on where it was."""
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


@contextmanager
def _or_end() -> Iterator[None]:
    """Ends the process, as a supervisor would, when what is done takes too long."""
    faulthandler.dump_traceback_later(HUNG_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def main(bootstrap: str, transactional_id: str) -> None:
    faulthandler.register(signal.SIGUSR1)  # says where it is, for whoever waits for it in vain
    try:
        Copier(bootstrap, transactional_id).run()
    except KafkaException as failure:
        print(f"{transactional_id} ends: {failure}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(HUNG_SECONDS, exit=True)  # clients are closed, and may wait for brokers
        sys.exit(EXIT_FATAL)


if __name__ == "__main__":
    main(*sys.argv[1:])
