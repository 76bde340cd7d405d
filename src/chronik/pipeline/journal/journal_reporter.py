"""A reporter that writes a driver's progress to the pipeline journal and reads pause requests from it.

It uses its own thread, so that an unavailable or slow broker never delays landing. Until a report can be written, only
the latest one of each topic is kept, and the last known pause requests stay in effect.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Final

import msgspec

from chronik.client.access.settings import Bootstrap
from chronik.client.cluster import ClusterClient
from chronik.client.errors import ClientError
from chronik.clock import Clock, SystemClock
from chronik.pipeline import CLIENT_ID
from chronik.pipeline.journal.journal_client import (
    JournalReader,
    JournalWriter,
    build_journal_schema,
    encode_progress,
    encode_schema,
)
from chronik.pipeline.journal.reports import DriverRole, MaintenanceReport, ProgressReporter, TopicReport
from chronik.pipeline_journal import (
    LandingState,
    PipelineJournalState,
    PipelineTopicKey,
    TableColumns,
    TableMaintenance,
    TopicProgress,
)
from chronik.protocol.errors import KafkaError

logger = logging.getLogger("chronik.pipeline")

UPDATE_INTERVAL_SECONDS: Final = 0.5
"""Interval in seconds between writes to the pipeline journal. A topic's reports within one interval are merged."""

HEARTBEAT_SECONDS: Final = 10.0
"""Maximum time in seconds between two journal records of a driver, even during a long landing round."""

REQUEST_SECONDS_MAX: Final = 5.0
FIRST_READ_SECONDS_MAX: Final = 5.0
"""Maximum time in seconds that a starting driver waits for pause requests before it writes to tables."""

FINAL_WRITE_SECONDS_MAX: Final = 5.0
"""Maximum time in seconds that a stopping driver waits until its last reports are written."""


class JournalReporter(ProgressReporter):
    """A reporter that writes one pipeline's progress to the journal. Call `close` when done."""

    def __init__(
        self, bootstrap: Bootstrap, pipeline: str, *, clock: Clock | None = None, heartbeat_s: float = HEARTBEAT_SECONDS
    ) -> None:
        self._bootstrap = bootstrap
        self._pipeline = pipeline
        self._clock = clock or SystemClock()
        self._heartbeat_s = heartbeat_s
        self._initial_progress = TopicProgress(
            "", host=socket.gethostname(), pid=os.getpid(), started_ms=self._clock.now_ms()
        )
        self._lock = threading.Lock()
        self._latest: dict[str, TopicProgress] = {}
        self._unsent: set[str] = set()
        self._schemas: dict[str, TableColumns] = {}
        self._written_schemas: dict[str, TableColumns] = {}
        self._reader: JournalReader | None = None
        self._first_read = threading.Event()
        self._closing = threading.Event()
        self._wrote_at = self._clock.monotonic()
        self._last_error: str | None = None
        self._thread = threading.Thread(target=self._run, name="chronik-journal", daemon=True)
        self._thread.start()

    # Called in the driver's thread

    def report(self, report: TopicReport) -> None:
        with self._lock:
            previous = self._latest.get(report.topic, self._initial_progress)
            self._latest[report.topic] = _merge_progress(previous, report, self._clock.now_ms())
            self._unsent.add(report.topic)
            if report.columns:
                self._schemas[report.topic] = build_journal_schema(report.columns)

    def report_role(self, role: DriverRole) -> None:
        """Stop writing the progress of earlier rounds when another driver has become active."""
        if role is DriverRole.STANDBY:
            with self._lock:
                self._latest.clear()
                self._unsent.clear()
                self._schemas.clear()

    def report_maintenance(self, report: MaintenanceReport) -> None:
        maintenance = TableMaintenance(
            table=report.table,
            action=report.action,
            outcome=report.outcome,
            at_ms=report.at_ms,
            seconds=report.seconds,
            files_removed=report.files_removed,
            files_added=report.files_added,
            bytes_before=report.bytes_before,
            bytes_after=report.bytes_after,
            files_deleted=report.files_deleted,
            versions_expired=report.versions_expired,
            error=report.error,
        )
        with self._lock:
            if report.topic in self._latest:
                previous = self._latest[report.topic]
                self._latest[report.topic] = msgspec.structs.replace(previous, maintenance=maintenance)
                self._unsent.add(report.topic)

    def is_paused(self, topic: str) -> bool:
        """Return whether the topic was paused when the journal was last read."""
        self._first_read.wait(FIRST_READ_SECONDS_MAX)
        self._first_read.set()  # wait only once
        reader = self._reader
        return reader is not None and reader.journal.is_paused(PipelineTopicKey(self._pipeline, topic))

    def close(self) -> None:
        self._closing.set()
        self._thread.join(FINAL_WRITE_SECONDS_MAX)

    # Called in the reporter's thread

    def _run(self) -> None:
        while True:
            try:
                with ClusterClient(self._bootstrap, client_id=CLIENT_ID, timeout_s=REQUEST_SECONDS_MAX) as cluster:
                    self._update_journal(cluster)
                return
            except (ClientError, KafkaError, OSError) as error:
                self._log_error_once(str(error))
            if self._closing.wait(UPDATE_INTERVAL_SECONDS):
                return

    def _update_journal(self, cluster: ClusterClient) -> None:
        """Read and write the journal until the reporter is closed."""
        reader, writer = JournalReader(cluster), JournalWriter(cluster)
        while True:
            closing = self._closing.is_set()
            if not closing:
                reader.catch_up()
                self._reader = reader
                self._first_read.set()
            self._write_progress(writer)
            self._write_schemas(writer, reader.journal)
            self._last_error = None
            if closing:
                return
            self._closing.wait(UPDATE_INTERVAL_SECONDS)

    def _write_progress(self, writer: JournalWriter) -> None:
        now = self._clock.monotonic()
        with self._lock:
            if now - self._wrote_at >= self._heartbeat_s:
                self._unsent |= self._latest.keys()
            batch = {topic: self._latest[topic] for topic in self._unsent}
        if not batch:
            return
        writer.write(encode_progress(PipelineTopicKey(self._pipeline, topic), each) for topic, each in batch.items())
        with self._lock:
            self._unsent -= {topic for topic, each in batch.items() if self._latest.get(topic) is each}
        self._wrote_at = now

    def _write_schemas(self, writer: JournalWriter, journal: PipelineJournalState) -> None:
        """Write the schemas that are missing in the journal or have changed since this driver's last write.

        A driver that sees an older version of a table must not overwrite the schema of a newer one.
        """
        with self._lock:
            schemas = dict(self._schemas)
        unsent = {}
        for topic, schema in schemas.items():
            previous = journal.schemas.get(PipelineTopicKey(self._pipeline, topic))
            if previous is None or (previous != schema and self._written_schemas.get(topic) != schema):
                unsent[topic] = schema
        if unsent:
            writer.write(encode_schema(PipelineTopicKey(self._pipeline, topic), each) for topic, each in unsent.items())
        self._written_schemas |= schemas

    def _log_error_once(self, why: str) -> None:
        """Log an error only once until the next successful write."""
        if self._last_error is None:
            logger.info("pipeline %s: cannot update the pipeline journal: %s; retrying", self._pipeline, why)
        self._last_error = why


def _merge_progress(previous: TopicProgress, report: TopicReport, now_ms: int) -> TopicProgress:
    """Merge a new report into the topic's progress, keeping the rate of the last round that wrote rows."""
    failed = report.state is LandingState.FAILING
    landed = report.round_rows > 0
    return msgspec.structs.replace(
        previous,
        state=str(report.state),
        table=report.table,
        next_offsets=dict(report.next_offsets),
        high_watermarks=dict(report.high_watermarks),
        round_rows=report.round_rows if landed else previous.round_rows,
        round_seconds=report.round_seconds if landed else previous.round_seconds,
        round_engine=report.round_engine or "" if landed else previous.round_engine,
        round_misfits=dict(report.round_misfits) if landed else previous.round_misfits,
        round_bytes_max=report.round_bytes_max,
        total_rows=report.total_rows,
        total_dead_letters=report.total_dead_letters,
        last_error=report.last_error,
        last_error_ms=now_ms if failed else previous.last_error_ms,
        at_ms=now_ms,
    )
