"""Tools of the landing stress test: a producer with a journal, a driver process, and the comparison with the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from types import TracebackType
from typing import Any, ClassVar, Self

import crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, Producer
from pyarrow import fs

from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.delta.transaction_log import LOG_DIRECTORY
from chronik.pipeline.tables.layout import OFFSET, PARTITION, VALUE_CRC32C
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableError

VALUE_BYTES = 100
FLUSH_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 60.0
LOG_BYTES_SHOWN = 3000

Positions = npt.NDArray[np.int64]
"""Rows of (partition, offset, CRC of the value), sorted."""


class JournalingProducer:
    """A producer that writes up to an allowed number of records, and records each acknowledged position and CRC."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, records: int) -> None:
        self._topic, self._partitions, self._records = topic, partitions, records
        self._journal: Positions = np.full((records, 3), -1, np.int64)
        self._allowed, self._acknowledged = 0, 0
        self._changed = threading.Condition()
        self._is_closing = False
        self.problems: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 0,  # never give up: every record must be acknowledged
                "linger.ms": 20,
                "log_level": 0,
                "error_cb": self._error,
            }
        )
        self._thread = threading.Thread(target=self._run, name="journalled-producer", daemon=True)

    def __enter__(self) -> JournalingProducer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(FLUSH_SECONDS_MAX)

    def allow_up_to(self, records: int) -> None:
        """Allow this many records in total."""
        with self._changed:
            self._allowed = min(records, self._records)
            self._changed.notify_all()

    @property
    def acknowledged(self) -> int:
        return self._acknowledged

    def journal(self) -> Positions:
        """Return the positions of all records, after all are acknowledged."""
        assert not self.problems, self.problems
        assert self._acknowledged == self._records, f"only {self._acknowledged} of {self._records} are acknowledged"
        return sort_positions(self._journal)

    def _run(self) -> None:
        for number in range(self._records):
            while number >= self._allowed and not self._is_closing:
                self._producer.poll(0.05)
            if self._is_closing:
                break
            self._send(number)
        while not self._is_closing and self._acknowledged < self._records:
            self._producer.poll(0.05)
        self._producer.purge()
        self._producer.flush(1.0)

    def _send(self, number: int) -> None:
        value = b"%d %d ".ljust(VALUE_BYTES, b".") % (number, number * 2_654_435_761 % 1_000_003)
        crc = crc32c.crc32c(value)

        def on_delivery_report(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                if not self._is_closing:
                    self.problems.append(f"record {number}: {error}")
                return
            offset = message.offset()
            if offset is None:  # the response was lost; the offset follows from the number, as there is one producer
                offset = number // self._partitions
            self._journal[number] = message.partition(), offset, crc
            self._acknowledged += 1

        while True:
            try:
                self._producer.produce(
                    self._topic, value, partition=number % self._partitions, on_delivery=on_delivery_report
                )
                break
            except BufferError:  # brokers are unavailable: wait for them
                self._producer.poll(0.05)
                if self._is_closing:
                    return
        self._producer.poll(0)

    def _error(self, error: KafkaError) -> None:
        """Record fatal errors; librdkafka also reports lost connections here."""
        if error.fatal():
            self.problems.append(str(error))


def sort_positions(positions: Positions) -> Positions:
    ordered: Positions = positions[np.lexsort((positions[:, 1], positions[:, 0]))]
    return ordered


class LandingDriver:
    """A `chronik pipeline run` process, with its JVM."""

    COMMAND: ClassVar[tuple[str, ...]] = ("-P", "-m", "chronik", "pipeline", "run")

    def __init__(
        self, arguments: list[str], conf: Mapping[str, str], log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        self._arguments = arguments
        options = " ".join(f"--conf {quote(f'{name}={value}')}" for name, value in conf.items())
        self.environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"} | dict(variables or {})
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *more: str) -> None:
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self.COMMAND, *self._arguments, *more],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, *, python_alone: bool = False) -> None:
        """Kill the whole process group, or only the Python process, whose JVM then keeps running for a while."""
        if self._process is None:
            return
        if python_alone:
            self._process.kill()
        else:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def stop(self) -> int:
        """Terminate the driver, which finishes the current round, and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self.wait(STOP_SECONDS_MAX)

    def log_tail(self) -> str:
        return self._log.read_bytes()[-LOG_BYTES_SHOWN:].decode(errors="replace") if self._log.exists() else ""


class LandedTable:
    """A table that a landing writes."""

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        self.uri, self._options = uri, options
        self._landed = 0

    def count_landed_rows(self) -> int:
        """Return the number of landed rows, from the next offsets; all partitions start at 0 without gaps.

        If the store or the catalog is unavailable, that is the last known number.
        """
        with suppress(TableError, TableStorageError):
            self._landed = sum(open_table(self.uri, self._options).next_offsets().values())
        return self._landed

    def read_positions(self) -> Positions:
        """Return the positions of all rows in the table."""
        names = [PARTITION, OFFSET, VALUE_CRC32C]
        found = pa.Table.from_batches(scan(open_table(self.uri, self._options).files(), names))
        columns = [found[name].cast(pa.int64()).to_numpy() for name in names]
        return sort_positions(np.stack(columns, axis=1))

    def file_counts(self) -> tuple[int, int]:
        """Return the number of files in the table, and of orphans."""
        table = open_table(self.uri, self._options)
        named = len(table.snapshot().file_uris)
        listed = table.storage.filesystem.get_file_info(fs.FileSelector(table.storage.full_path(""), recursive=True))
        data = [info.path for info in listed if info.path.endswith(".parquet") and LOG_DIRECTORY not in info.path]
        return named, len(data) - named


def find_differences(journal: Positions, table: Positions) -> list[str]:
    """Return descriptions of missing, duplicate and unexpected rows; empty if each record is in the table once."""
    found = []
    rows, counts = np.unique(table, axis=0, return_counts=True)
    for row in rows[counts > 1][:5]:
        found.append(f"twice in the table: partition {row[0]} offset {row[1]}")
    expected = set(map(tuple, journal.tolist()))
    actual = set(map(tuple, rows.tolist()))
    found += [f"not in the table: partition {row[0]} offset {row[1]}" for row in sorted(expected - actual)[:5]]
    found += [f"not in the journal: partition {row[0]} offset {row[1]}" for row in sorted(actual - expected)[:5]]
    if len(journal) != len(table):
        found.append(f"{len(journal)} records and {len(table)} rows")
    return found
