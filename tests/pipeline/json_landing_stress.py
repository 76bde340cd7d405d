"""Stress test of JSON landing: transactions, two drivers, and compaction with vacuum, while processes are killed.

A producer writes JSON records of changing shapes in transactions, some of which it aborts. Two drivers land them in one
table, and a third process compacts and vacuums it. Drivers, compactions, the broker and the object store are killed. At
the end, rows and dead-letter records must restore each committed record exactly once, and no record of an aborted
transaction.

    .venv/bin/python -m tests.pipeline.json_landing_stress --records 300000 --kills 30 --seed 1 [--s3]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.layout import OFFSET, PARTITION, VALUE
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.storage_errors import TableStorageError
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableError, TableMissingError
from chronik.pipeline.tables.values.record_rebuild import build_outgoing_rows, list_source_columns
from chronik.testing import Broker
from chronik.testing.seaweedfs import SeaweedFS
from tests.pipeline.landing_stress_tools import LandingDriver
from tests.pipeline.seaweedfs import BUCKET, prepare_seaweedfs
from tests.pipeline.tables.random_json import canonical_json

TOPIC = "events"
PARTITIONS = 3
TRANSACTION_RECORDS_MAX = 400
ABORTED_SHARE = 0.14
ROUNDS_PER_KILL = 3
PROGRESS_SECONDS_MAX = 300.0
POLL_SECONDS = 0.1
NUMBER = "n"
"""The field that identifies a record."""


class KilledProcess(StrEnum):
    """A process that the test kills and starts again."""

    FIRST_DRIVER = "first driver"
    SECOND_DRIVER = "second driver"
    COMPACTION = "compaction"
    BROKER = "broker"
    STORE = "object store"


def schedule_kills(seed: int, kills: int, *, with_store: bool) -> list[KilledProcess]:
    """Return the processes to kill. The order depends only on the seed, and every process has its turn."""
    processes = [process for process in KilledProcess if with_store or process is not KilledProcess.STORE]
    rng = random.Random(seed)
    schedule = [*processes, *rng.choices(processes, k=kills)][:kills]
    rng.shuffle(schedule)
    return schedule


def generate_record(rng: random.Random, number: int) -> bytes:
    """Return a JSON record. Some have another shape than most, and some are not valid JSON."""
    record: dict[str, Any] = {
        NUMBER: number,
        "name": f"name {number}",
        "amount": rng.choice([round(rng.uniform(0, 100), 2), rng.randrange(100)]),
        "at": f"2026-11-18T09:{number // 60 % 60:02}:{number % 60:02}Z",
        "customer": {"id": rng.randrange(1000), "tags": ["a"] * rng.randrange(3)},
    }
    chance = rng.random()
    if chance < 0.03:
        record["name"] = number
    elif chance < 0.05:
        record["customer"] = rng.choice(["none", {"id": "x", "new": [1, {"deep": None}]}, [], None])
    elif chance < 0.07:
        record[f"extra {rng.randrange(20)}"] = rng.choice([1, "two", 3.5, {"a.b": 1}, [None]])
    elif chance < 0.08:
        record["amount"] = rng.choice([2**53 + 1, 2**70, "12", True])
    text = json.dumps(record)
    if 0.08 <= chance < 0.09:
        text = text[:-1]  # becomes a dead-letter record
    elif 0.09 <= chance < 0.10:
        text = f'{text[:-1]}, "name": "last"}}'
    return text.encode()


class TransactionalProducer:
    """A producer that writes up to an allowed number of records in transactions, and aborts some of them."""

    def __init__(self, bootstrap: str, records: int, seed: int) -> None:
        self._rng = random.Random(f"records {seed}")
        self._records, self._allowed, self._written = records, 0, 0
        self._changed = threading.Condition()
        self._is_closing = False
        self.committed: dict[int, bytes] = {}
        """Value by number of each record of a committed transaction."""
        self.aborted = 0
        self.error: BaseException | None = None
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "json-landing-stress", "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run, name="transactional-producer", daemon=True)

    def __enter__(self) -> TransactionalProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(PROGRESS_SECONDS_MAX)

    def allow_up_to(self, records: int) -> None:
        with self._changed:
            self._allowed = min(records, self._records)
            self._changed.notify_all()

    def join(self) -> None:
        """Wait until all records are written."""
        self.allow_up_to(self._records)
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            retry_transaction(lambda: self._producer.init_transactions(60.0))
            while self._written < self._records:
                with self._changed:
                    self._changed.wait_for(lambda: self._written < self._allowed or self._is_closing)
                    end = min(self._allowed, self._written + TRANSACTION_RECORDS_MAX)
                if self._is_closing:
                    return
                self._write_transaction(self._written, self._rng.randint(self._written + 1, end))
        except BaseException as error:
            self.error = error

    def _write_transaction(self, first: int, end: int) -> None:
        values = {number: generate_record(self._rng, number) for number in range(first, end)}
        self._producer.begin_transaction()
        for number, value in values.items():
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS)
        if self._rng.random() < ABORTED_SHARE:
            self._producer.flush()
            retry_transaction(lambda: self._producer.abort_transaction(60.0))
            self.aborted += len(values)
        else:
            retry_transaction(lambda: self._producer.commit_transaction(60.0))
            self.committed |= values
        self._written = end


def retry_transaction(call: Callable[[], object]) -> None:
    """Repeat a call of the transactional producer while its error is retriable: the broker is away for a moment."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            cause = error.args[0]
            if not (isinstance(cause, KafkaError) and cause.retriable()):
                raise


class RepeatedCompaction:
    """Runs `chronik pipeline compact --vacuum` again and again, each in a process of its own."""

    def __init__(self, root: str, environment: Mapping[str, str], log: Path) -> None:
        self._arguments = ["--table-root", root, "--vacuum", "--retention-hours", "1"]
        self._environment, self._log = environment, log
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="repeated-compaction", daemon=True)
        self.completed = 0

    def __enter__(self) -> RepeatedCompaction:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closing.set()
        self.kill()
        self._thread.join()

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, 9)

    def _run(self) -> None:
        while not self._is_closing.wait(1.0):
            self._process = start_command("compact", *self._arguments, environment=self._environment, log=self._log)
            if self._process.wait() == 0:
                self.completed += 1


def start_command(*words: str, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a `chronik pipeline` command in a process group of its own."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "chronik", "pipeline", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


@dataclass(slots=True)
class StressOutcome:
    """The result of the stress test."""

    committed: int = 0
    aborted: int = 0
    rows: int = 0
    dead_letters: int = 0
    compactions: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    driver_exits: int = 0
    """Drivers that exited without being killed and were started again."""
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        kills = ", ".join(f"{count} {process}" for process, count in sorted(self.kills.items()))
        verdict = "; ".join(self.wrong) or "each committed record is in a row or a dead-letter record, exactly once"
        return (
            f"{self.committed:,} records committed, {self.aborted:,} aborted; {self.kills.total()} kills ({kills});"
            f" {self.compactions} compactions completed; {self.rows:,} rows, {self.dead_letters:,} dead-letter records;"
            f" {self.driver_exits} drivers exited by themselves; {self.seconds:.0f} s: {verdict}"
        )


class JsonLandingStress:
    """A run of the stress test, with the tables on disk, or in the object store if there is one."""

    def __init__(
        self, broker: Broker, directory: Path, records: int, seed: int, say: Callable[[str], None], *,
        store: SeaweedFS | None = None, second_master: str | None = None,
    ) -> None:  # fmt: skip
        self._broker, self._directory, self._store = broker, directory, store
        self._records, self._seed, self._say = records, seed, say
        self._second_master = second_master
        self._root = f"s3://{BUCKET}/stress" if store is not None else str(directory / "tables")
        self._options = store.server.options if store is not None else None
        self._environment = os.environ | (store.server.environment if store is not None else {})
        self._rng = random.Random(f"kills {seed}")
        self._drivers: list[LandingDriver] = []
        self._outcome = StressOutcome()

    def run(self, kills: list[KilledProcess]) -> StressOutcome:
        started = time.monotonic()
        self._broker.create_topic(TOPIC, PARTITIONS)
        share = max(1, self._records // (len(kills) + 1))
        compaction = RepeatedCompaction(self._root, self._environment, self._directory / "compact.log")
        with ExitStack() as stack:
            producer = stack.enter_context(TransactionalProducer(self._broker.bootstrap, self._records, self._seed))
            for number, master in enumerate((None, self._second_master), 1):
                driver = self._create_driver(number, max(1, share // ROUNDS_PER_KILL), master)
                self._drivers.append(stack.enter_context(driver))
            stack.enter_context(compaction)
            for number, process in enumerate(kills, 1):
                reached = self._next_offset_sum()
                producer.allow_up_to(share * number)
                self._wait_for_progress(reached)
                time.sleep(self._rng.uniform(0.0, 2.0))  # the point within a round; there is no state to wait for
                self._kill(process, compaction)
                self._outcome.kills[process] += 1
                self._say(f"kill {number} of {len(kills)}: {process}; {len(producer.committed):,} committed")
            producer.join()
            self._outcome.committed, self._outcome.aborted = len(producer.committed), producer.aborted
        self._outcome.compactions = compaction.completed
        self._run_to_end("run", "-b", self._broker.bootstrap, "--topics", TOPIC, "--once")
        self._compare(producer.committed, "after landing")
        self._run_to_end("compact", "--vacuum", "--retention-hours", "0", "--pipeline-stopped")
        self._compare(producer.committed, "after the final vacuum")
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    def _create_driver(self, number: int, round_records: int, master: str | None) -> LandingDriver:
        arguments = ["-b", self._broker.bootstrap, "--table-root", self._root, "--topics", TOPIC, "--format", "json"]
        arguments += ["--interval", "0.2", "--max-records-per-round", str(round_records)]
        arguments += ["--master", master] if master else []
        driver = LandingDriver(arguments, {}, self._directory / f"driver-{number}.log")
        driver.environment = {**driver.environment, **self._environment}
        return driver

    # Faults

    def _kill(self, process: KilledProcess, compaction: RepeatedCompaction) -> None:
        match process:
            case KilledProcess.FIRST_DRIVER | KilledProcess.SECOND_DRIVER:
                driver = self._drivers[process is KilledProcess.SECOND_DRIVER]
                driver.kill()
                driver.start()
            case KilledProcess.COMPACTION:
                compaction.kill()
            case KilledProcess.BROKER:
                self._broker.kill()
                self._broker.start()
            case KilledProcess.STORE:
                assert self._store is not None
                self._store.kill()
                self._store.start()

    def _wait_for_progress(self, reached: int) -> None:
        """Wait until the table has grown beyond the sum of next offsets, and restart drivers that have exited."""
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while self._next_offset_sum() <= reached:
            for driver in self._drivers:
                if not driver.is_running:
                    self._outcome.driver_exits += 1
                    self._say(f"driver exited by itself:\n{driver.log_tail()}")
                    driver.start()
            assert time.monotonic() < deadline, f"no progress:\n{self._drivers[0].log_tail()}"
            time.sleep(POLL_SECONDS)

    def _next_offset_sum(self) -> int:
        with suppress(TableMissingError, TableStorageError, TableError):
            return sum(open_table(table_uri(self._root, TOPIC), self._options).next_offsets().values())
        return 0

    # Comparison

    def _run_to_end(self, *words: str) -> None:
        log = self._directory / "final.log"
        process = start_command(*words, "--table-root", self._root, environment=self._environment, log=log)
        if process.wait(PROGRESS_SECONDS_MAX) != 0:
            self._outcome.wrong.append(f"{words[0]} failed: {log.read_text(errors='replace')[-2000:]}")

    def _compare(self, committed: Mapping[int, bytes], when: str) -> None:
        rows = self._read_values(table_uri(self._root, TOPIC))
        dead_letters = self._read_values(build_dead_letters_uri(self._root, TOPIC))
        self._outcome.rows, self._outcome.dead_letters = len(rows), len(dead_letters)
        found = find_differences(committed, [value for _, _, value in rows], [value for _, _, value in dead_letters])
        positions = Counter((partition, offset) for partition, offset, _ in [*rows, *dead_letters])
        found += [f"position {position} is landed {count} times" for position, count in positions.items() if count > 1]
        self._outcome.wrong += [f"{when}: {difference}" for difference in found[:10]]

    def _read_values(self, uri: str) -> list[tuple[int, int, bytes]]:
        """Return the partition, offset and restored value of all rows."""
        found: list[tuple[int, int, bytes]] = []
        files = open_table(uri, self._options).files()
        if VALUE in files.schema.names:
            columns: list[str] = [PARTITION, OFFSET, VALUE]
        else:
            columns = list_source_columns(files.schema)
        for batch in scan(files, columns):
            rows = pa.Table.from_batches([batch])
            values = rows[VALUE] if VALUE in columns else build_outgoing_rows(rows, files.value_schema)["value"]
            found += zip(rows[PARTITION].to_pylist(), rows[OFFSET].to_pylist(), values.to_pylist(), strict=True)
        return found


def find_differences(committed: Mapping[int, bytes], rows: list[bytes], dead_letters: list[bytes]) -> list[str]:
    """Return descriptions of lost, duplicate, changed and unexpected records; empty if there are none."""
    found = []
    landed: Counter[int] = Counter()
    for value in rows:
        number = json.loads(value)[NUMBER]
        landed[number] += 1
        expected = committed.get(number)
        if expected is not None and canonical_json(value) != canonical_json(expected):
            found.append(f"record {number} is {value!r} in the table, and was {expected!r}")
    for value in dead_letters:
        number = json.loads(value + b"}")[NUMBER]
        landed[number] += 1
        if committed.get(number) not in (None, value):
            found.append(f"dead-letter record {number} is {value!r}, and was {committed[number]!r}")
    found += [f"record {number} is lost" for number in committed.keys() - landed.keys()]
    found += [f"record {number} is landed, but was not committed" for number in landed.keys() - committed.keys()]
    found += [f"record {number} is landed {count} times" for number, count in landed.items() if count > 1]
    return found


def run_json_landing_stress(
    kills: int, records: int, seed: int, directory: Path, say: Callable[[str], None], *,
    on_s3: bool, second_master: str | None = None,
) -> StressOutcome:  # fmt: skip
    """Run the stress test with its own broker and, if needed, object store."""
    with ExitStack() as stack:
        store = None
        if on_s3:
            store = prepare_seaweedfs(directory / "seaweedfs")
            stack.callback(store.kill)
            store.start()
        broker = stack.enter_context(Broker(directory / "broker"))
        stress = JsonLandingStress(broker, directory, records, seed, say, store=store, second_master=second_master)
        return stress.run(schedule_kills(seed, kills, with_store=on_s3))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--s3", action="store_true", help="store the tables in an object store")
    parser.add_argument("--second-master", metavar="URL", help="Spark master of the second driver")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chronik-json-landing-") as directory:
        outcome = run_json_landing_stress(
            arguments.kills,
            arguments.records,
            arguments.seed,
            Path(directory),
            lambda line: print(line, flush=True),
            on_s3=arguments.s3,
            second_master=arguments.second_master,
        )
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
