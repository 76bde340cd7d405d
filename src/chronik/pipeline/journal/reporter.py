"""A driver's line to the journal: what it reports goes there, and it hears from there that it is to pause.

Everything happens in a thread of its own. A broker that is away, slow or full never holds up landing: of each topic
only the latest report is kept until it can be written, and what was last heard about pausing stays in force.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Final

import msgspec

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import Cluster
from chronik.client.errors import ClientError
from chronik.clock import Clock, SystemClock
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.journal.journal import (
    Journal,
    JournalReader,
    JournalWriter,
    Place,
    Progress,
    Schema,
    progress_record,
    schema_record,
    schema_told,
)
from chronik.pipeline.journal.reporting import Reporter, State, TopicReport
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.pipeline")

TURN_SECONDS: Final = 0.5
"""How often the journal is looked at and written to: a topic's reports in between are one."""

HEARTBEAT_SECONDS: Final = 10.0
"""A driver says that it lives at least so often, also in the middle of a long round."""

REQUEST_SECONDS_MAX: Final = 5.0
FIRST_LOOK_SECONDS_MAX: Final = 5.0
"""A driver that starts waits so long to hear whether it is paused; then it lands."""

GOODBYE_SECONDS_MAX: Final = 5.0
"""The time for the last reports; a driver that ends does not wait longer for a broker."""


class JournalReporter(Reporter):
    """Reports of one pipeline; `close` when done."""

    def __init__(
        self, bootstrap: Bootstrap, pipeline: str, *, clock: Clock | None = None, heartbeat_s: float = HEARTBEAT_SECONDS
    ) -> None:
        self._bootstrap = bootstrap
        self._pipeline = pipeline
        self._clock = clock or SystemClock()
        self._heartbeat_s = heartbeat_s
        self._origin = Progress("", host=socket.gethostname(), pid=os.getpid(), started_ms=self._clock.now_ms())
        self._lock = threading.Lock()
        self._latest: dict[str, Progress] = {}
        self._unsent: set[str] = set()
        self._schemas: dict[str, Schema] = {}
        self._told_schemas: dict[str, Schema] = {}
        self._reader: JournalReader | None = None
        self._first_look = threading.Event()
        self._closing = threading.Event()
        self._wrote_at = self._clock.monotonic()
        self._complaint: str | None = None
        self._thread = threading.Thread(target=self._run, name="chronik-journal", daemon=True)
        self._thread.start()

    # In the driver's thread

    def report(self, report: TopicReport) -> None:
        with self._lock:
            known = self._latest.get(report.topic, self._origin)
            self._latest[report.topic] = _continued(known, report, self._clock.now_ms())
            self._unsent.add(report.topic)
            if report.columns:
                self._schemas[report.topic] = schema_told(report.columns)

    def paused(self, topic: str) -> bool:
        """Answers as last heard, half a second ago or, when no broker answers, longer."""
        self._first_look.wait(FIRST_LOOK_SECONDS_MAX)
        self._first_look.set()  # waited for once
        reader = self._reader
        return reader is not None and reader.journal.paused(Place(self._pipeline, topic))

    def close(self) -> None:
        self._closing.set()
        self._thread.join(GOODBYE_SECONDS_MAX)

    # In the thread

    def _run(self) -> None:
        while True:
            try:
                with Cluster(self._bootstrap, client_id=CLIENT_ID, timeout_s=REQUEST_SECONDS_MAX) as cluster:
                    self._serve(cluster)
                return
            except (ClientError, KafkaError, OSError) as error:
                self._complain(str(error))
            if self._closing.wait(TURN_SECONDS):
                return

    def _serve(self, cluster: Cluster) -> None:
        """Runs until the driver has ended."""
        reader, writer = JournalReader(cluster), JournalWriter(cluster)
        while True:
            closing = self._closing.is_set()
            if not closing:
                reader.catch_up()
                self._reader = reader
                self._first_look.set()
            self._write(writer)
            self._write_schemas(writer, reader.journal)
            self._complaint = None
            if closing:
                return
            self._closing.wait(TURN_SECONDS)

    def _write(self, writer: JournalWriter) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if now - self._wrote_at >= self._heartbeat_s:
                self._unsent |= self._latest.keys()
            batch = {topic: self._latest[topic] for topic in self._unsent}
        if not batch:
            return
        writer.write(progress_record(Place(self._pipeline, topic), each) for topic, each in batch.items())
        with self._lock:
            self._unsent -= {topic for topic, each in batch.items() if self._latest[topic] is each}
        self._wrote_at = now

    def _write_schemas(self, writer: JournalWriter, journal: Journal) -> None:
        """Writes those that the journal has not, and those that have changed: a driver that sees a table later than
        another one does not take back what that one wrote."""
        with self._lock:
            schemas = dict(self._schemas)
        unsent = {}
        for topic, schema in schemas.items():
            known = journal.schemas.get(Place(self._pipeline, topic))
            if known is None or (known != schema and self._told_schemas.get(topic) != schema):
                unsent[topic] = schema
        if unsent:
            writer.write(schema_record(Place(self._pipeline, topic), each) for topic, each in unsent.items())
        self._told_schemas |= schemas

    def _complain(self, why: str) -> None:
        """Complains once, however long it lasts: the driver has its own words for brokers that do not answer."""
        if self._complaint is None:
            logger.info("the progress of %s cannot be told at the moment: %s", self._pipeline, why)
        self._complaint = why


def _continued(known: Progress, report: TopicReport, now_ms: int) -> Progress:
    """A report without rows leaves standing how fast the last round was that had some."""
    failed = report.state is State.FAILING
    landed = report.round_rows > 0
    return msgspec.structs.replace(
        known,
        state=str(report.state),
        table=report.table,
        next_offsets=dict(report.next_offsets),
        high_watermarks=dict(report.high_watermarks),
        round_rows=report.round_rows if landed else known.round_rows,
        round_seconds=report.round_seconds if landed else known.round_seconds,
        total_rows=report.total_rows,
        total_dead_letters=report.total_dead_letters,
        last_error=report.last_error,
        last_error_ms=now_ms if failed else known.last_error_ms,
        at_ms=now_ms,
    )
