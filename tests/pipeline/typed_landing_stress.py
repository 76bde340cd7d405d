"""Stress test of typed landing: Avro values whose schema evolves four times, while processes are killed.

A producer writes Avro records in transactions, some of which it aborts, and registers a new version of the schema four
times. Some values are truncated or have an incompatible schema. Two drivers land them in one table, the second one on
Spark, and a third process compacts and vacuums it. Drivers, Spark's workers, compactions, and the broker with its
schema registry are killed. At the end, each committed record must have exactly one row or dead-letter record, with the
values that the producer computed, and an audit, which compares decoded values, must pass.

    .venv/bin/python -m tests.pipeline.typed_landing_stress --records 1000000 --kills 50 --seed 1
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from confluent_kafka import Producer

from chronik.formats.codec import ValueFormat, WriterSchema
from chronik.formats.registry_client import RegistryClient, RegistrySettings, RegistryUnavailableError
from chronik.pipeline.tables.catalog import open_table
from chronik.pipeline.tables.layout import KEY, OFFSET, PARTITION, RESCUED
from chronik.pipeline.tables.storage import build_dead_letters_uri, table_uri
from chronik.pipeline.tables.table_files import scan
from chronik.pipeline.tables.topic_table import TableError, TableMissingError
from chronik.testing import Broker
from tests.pipeline.copy_stress import find_python_workers
from tests.pipeline.json_landing_stress import RepeatedCompaction, retry_transaction, start_command
from tests.pipeline.landing_stress_tools import LandingDriver

TOPIC = "orders"
SUBJECT = f"{TOPIC}-value"
PARTITIONS = 3
TRANSACTION_RECORDS_MAX = 2000
ABORTED_SHARE = 0.1
ROUNDS_PER_KILL = 3
PROGRESS_SECONDS_MAX = 400.0
POLL_SECONDS = 0.1
SECOND_MASTER = "local[2,8]"


class KilledProcess(StrEnum):
    """A process that the test kills and starts again."""

    FIRST_DRIVER = "first driver"
    SECOND_DRIVER = "second driver"
    WORKER = "Spark worker"
    COMPACTION = "compaction"
    BROKER = "broker with registry"


def schedule_kills(seed: int, kills: int) -> list[KilledProcess]:
    """Return the processes to kill. The order depends only on the seed, and every process has its turn."""
    rng = random.Random(seed)
    schedule = [*KilledProcess, *rng.choices(list(KilledProcess), k=kills)][:kills]
    rng.shuffle(schedule)
    return schedule


# Schemas and values


def _field(name: str, type: Any, **options: Any) -> dict[str, Any]:
    return {"name": name, "type": type, **options}


_ITEM: dict[str, Any] = {"type": "record", "name": "Item", "fields": [_field("sku", "string"), _field("count", "int")]}
_ITEM_2 = {**_ITEM, "fields": [*_ITEM["fields"], _field("price", ["null", "double"], default=None)]}
_STATUS = {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID"]}
_STATUS_2 = {**_STATUS, "symbols": ["NEW", "PAID", "SENT"]}
_AT = {"type": "long", "logicalType": "timestamp-millis"}
_TOTAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}


def _record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "namespace": "shop", "fields": list(fields)}


_VERSION_1 = (
    _field("n", "int"),
    _field("customer", ["null", "string"]),
    _field("items", {"type": "array", "items": _ITEM}),
    _field("status", _STATUS),
    _field("at", _AT),
    _field("total", _TOTAL),
)
SCHEMAS: tuple[dict[str, Any], ...] = (
    _record(*_VERSION_1),
    _record(*_VERSION_1, _field("note", "string", default="none")),  # a field is added
    _record(_field("n", "long"), *_VERSION_1[1:], _field("note", "string", default="none")),  # a field is widened
    _record(  # a field is renamed
        _field("n", "long"),
        _field("client", ["null", "string"], aliases=["customer"]),
        *_VERSION_1[2:],
        _field("note", "string", default="none"),
    ),
    _record(  # a field is removed, and nested types have more fields and symbols
        _field("n", "long"),
        _field("client", ["null", "string"]),
        _field("items", {"type": "array", "items": _ITEM_2}),
        _field("status", {**_STATUS_2, "default": "NEW"}),
        _field("at", _AT),
        _field("total", _TOTAL),
    ),
)
"""The versions of the schema."""

MISFIT_SCHEMA = _record(
    _field("n", "long"), _field("total", "string"), _field("extra", {"type": "map", "values": "int"})
)
"""A schema of which a column cannot store all values. It is registered under another subject."""

COLUMNS = ("n", "customer", "items", "status", "at", "total", "note", "extra", RESCUED)


def hash_number(number: int, salt: int) -> int:
    """Return a number that looks random but depends only on its arguments."""
    return (number * 2_654_435_761 + salt * 40_503 + 12_345) % 2**32 >> 7


def choose_version(number: int, records: int) -> int:
    """Return the version of the schema with which a record is written: newer ones for later records, and some older."""
    newest = min(len(SCHEMAS) - 1, number * len(SCHEMAS) // records)
    is_old = hash_number(number, 1) % 10 == 0
    return hash_number(number, 2) % (newest + 1) if is_old else newest


def is_truncated(number: int) -> bool:
    return hash_number(number, 3) % 100 == 0


def is_misfit(number: int) -> bool:
    return hash_number(number, 4) % 50 == 0


def build_order(number: int, version: int) -> dict[str, Any]:
    """Return the fields of a record, by the names of the schema's version."""
    value: dict[str, Any] = {
        "n": number,
        "customer" if version < 3 else "client": None if number % 7 == 0 else f"customer {number % 1000}",
        "items": [{"sku": f"sku-{hash_number(number, each) % 50}", "count": each + 1} for each in range(number % 4)],
        "status": ("NEW", "PAID", "SENT")[number % (3 if version == 4 else 2)],
        "at": 1_763_542_800_000 + number,
        "total": hash_number(number, 5) % 1_000_000,
    }
    if version in (1, 2, 3):
        value["note"] = f"note {number % 13}"
    if version == 4:
        for item in value["items"]:
            item["price"] = None if item["count"] == 2 else 0.25 * item["count"]
    return value


def build_expected_row(number: int, records: int) -> dict[str, Any]:
    """Return the columns of a record's row, computed without any decoder. Columns that are null are omitted."""
    if is_misfit(number):
        return {
            "n": number,
            "extra": {"a": number % 100},
            RESCUED: json.dumps({"total": f"t{number}"}, separators=(",", ":")),
        }
    value = build_order(number, choose_version(number, records))
    if "client" in value:
        value["customer"] = value.pop("client")
    value["total"] = f"{value['total'] / 100:.2f}"
    for item in value["items"]:
        item.setdefault("price", None)
    return {name: each for name, each in value.items() if each is not None}


class OrderEncoder:
    """An encoder of records, which registers the schema of each version when it is first used."""

    def __init__(self, registry: RegistrySettings, records: int) -> None:
        self._registry = RegistryClient(registry)
        self._records = records
        self._parsed = [fastavro.parse_schema(schema) for schema in (*SCHEMAS, MISFIT_SCHEMA)]
        self._prefixes: dict[int, bytes] = {}

    def encode(self, number: int) -> bytes:
        if is_misfit(number):
            version = len(SCHEMAS)
            value: dict[str, Any] = {"n": number, "total": f"t{number}", "extra": {"a": number % 100}}
        else:
            version = choose_version(number, self._records)
            order = build_order(number, version)
            value = {**order, "total": order["total"].to_bytes(5, "big", signed=True)}
        out = io.BytesIO()
        out.write(self._get_prefix(version))
        fastavro.schemaless_writer(out, self._without_decimal(version), value)
        encoded = out.getvalue()
        return encoded[:-1] if is_truncated(number) else encoded

    def close(self) -> None:
        """Close the connection to the registry."""
        self._registry.close()

    def _without_decimal(self, version: int) -> Any:
        """Return the schema with bytes in place of the decimal, so that values are written as they are."""
        parsed: Any = self._parsed[version]
        fields = [{**each, "type": "bytes"} if each["type"] == _TOTAL else each for each in parsed["fields"]]
        return {**parsed, "fields": fields}

    def _get_prefix(self, version: int) -> bytes:
        if version not in self._prefixes:
            schema = (*SCHEMAS, MISFIT_SCHEMA)[version]
            subject = SUBJECT if version < len(SCHEMAS) else "others"
            id = self._register(subject, WriterSchema(ValueFormat.AVRO, json.dumps(schema)))
            self._prefixes[version] = struct.pack(">BI", 0, id)
        return self._prefixes[version]

    def _register(self, subject: str, schema: WriterSchema) -> int:
        """Register a schema, as often as necessary while the broker with the registry is restarted."""
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while True:
            try:
                return self._registry.register(subject, schema)
            except RegistryUnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)


class AvroProducer:
    """A producer that writes up to an allowed number of Avro records in transactions, and aborts some of them."""

    def __init__(self, bootstrap: str, registry: RegistrySettings, records: int, seed: int) -> None:
        self._rng = random.Random(f"transactions {seed}")
        self._records, self._allowed, self._written = records, 0, 0
        self._encoder = OrderEncoder(registry, records)
        self._changed = threading.Condition()
        self._is_closing = False
        self.is_committed = np.zeros(records, bool)
        """Whether the transaction of each record was committed."""
        self.error: BaseException | None = None
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "typed-landing-stress", "log_level": 0}
        )
        self._thread = threading.Thread(target=self._run, name="avro-producer", daemon=True)

    def __enter__(self) -> AvroProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(PROGRESS_SECONDS_MAX)
        self._encoder.close()

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
        values = [self._encoder.encode(number) for number in range(first, end)]
        self._producer.begin_transaction()
        for number, value in enumerate(values, first):
            self._producer.produce(TOPIC, value, key=str(number), partition=number % PARTITIONS)
        if self._rng.random() < ABORTED_SHARE:
            self._producer.flush()
            retry_transaction(lambda: self._producer.abort_transaction(60.0))
        else:
            retry_transaction(lambda: self._producer.commit_transaction(60.0))
            self.is_committed[first:end] = True
        self._written = end


# The run


@dataclass(slots=True)
class TypedOutcome:
    """The result of the stress test."""

    committed: int = 0
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
        verdict = "; ".join(self.wrong) or "each committed record has its values in a row, or is a dead-letter record"
        return (
            f"{self.committed:,} Avro records committed in {len(SCHEMAS)} versions; {self.kills.total()} kills"
            f" ({kills}); {self.compactions} compactions completed; {self.rows:,} rows,"
            f" {self.dead_letters:,} dead-letter records; {self.driver_exits} drivers exited by themselves;"
            f" {self.seconds:.0f} s: {verdict}"
        )


class TypedLandingStress:
    """A run of the stress test."""

    def __init__(self, broker: Broker, directory: Path, records: int, seed: int, say: Callable[[str], None]) -> None:
        self._broker, self._directory = broker, directory
        self._records, self._seed, self._say = records, seed, say
        self._root = str(directory / "tables")
        self._rng = random.Random(f"kills {seed}")
        self._drivers: list[LandingDriver] = []
        self._outcome = TypedOutcome()

    def run(self, kills: list[KilledProcess]) -> TypedOutcome:
        started = time.monotonic()
        self._broker.create_topic(TOPIC, PARTITIONS, {"columnar.format": "avro"})
        registry = RegistrySettings(self._broker.registry_settings()["url"])
        share = max(1, self._records // (len(kills) + 1))
        compaction = RepeatedCompaction(self._root, os.environ, self._directory / "compact.log")
        with ExitStack() as stack:
            producer = stack.enter_context(AvroProducer(self._broker.bootstrap, registry, self._records, self._seed))
            for number, master in enumerate((None, SECOND_MASTER), 1):
                driver = self._create_driver(number, max(1, share // ROUNDS_PER_KILL), master, registry)
                self._drivers.append(stack.enter_context(driver))
            stack.enter_context(compaction)
            for number, process in enumerate(kills, 1):
                if process is KilledProcess.WORKER:
                    self._kill_worker(producer, share * number)
                else:
                    reached = self._next_offset_sum()
                    producer.allow_up_to(share * number)
                    self._wait_for_progress(reached)
                    time.sleep(self._rng.uniform(0.0, 2.0))  # the point within a round; there is no state to wait for
                    self._kill(process, compaction)
                self._outcome.kills[process] += 1
                committed = int(producer.is_committed.sum())
                self._say(f"kill {number} of {len(kills)}: {process}; {committed:,} committed")
            producer.join()
            self._outcome.committed = int(producer.is_committed.sum())
        self._outcome.compactions = compaction.completed
        bootstrap = self._broker.bootstrap
        self._run_to_end("run", "-b", bootstrap, "--topics", TOPIC, "--once", "--registry", registry.url)
        self._compare(producer.is_committed)
        self._run_to_end("compact", "--vacuum", "--retention-hours", "0", "--pipeline-stopped")
        self._compare(producer.is_committed)
        data = str(self._broker.data_dir)
        self._run_to_end("audit", "-b", bootstrap, "--data-dir", data, "--topics", TOPIC, "--registry", registry.url)
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    def _create_driver(
        self, number: int, round_records: int, master: str | None, registry: RegistrySettings
    ) -> LandingDriver:
        arguments = ["-b", self._broker.bootstrap, "--table-root", self._root, "--topics", TOPIC]
        arguments += ["--interval", "0.2", "--max-records-per-round", str(round_records), "--registry", registry.url]
        arguments += ["--master", master] if master else []
        return LandingDriver(arguments, {}, self._directory / f"driver-{number}.log")

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

    def _kill_worker(self, producer: AvroProducer, records: int) -> None:
        """Kill a Python worker of the second driver's Spark. Only this driver lands until there is a worker."""
        self._drivers[0].kill()
        producer.allow_up_to(records)
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while not (workers := find_python_workers([self._drivers[1].pid])):
            if not self._drivers[1].is_running:
                self._outcome.driver_exits += 1
                self._drivers[1].start()
            assert time.monotonic() < deadline, f"no Spark worker:\n{self._drivers[1].log_tail()}"
            time.sleep(POLL_SECONDS)
        with suppress(ProcessLookupError):
            os.kill(self._rng.choice(workers), 9)
        self._drivers[0].start()

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
        with suppress(TableMissingError, TableError):
            return sum(open_table(table_uri(self._root, TOPIC)).next_offsets().values())
        return 0

    def _run_to_end(self, *words: str) -> None:
        log = self._directory / f"final-{words[0]}.log"
        process = start_command(*words, "--table-root", self._root, environment=os.environ, log=log)
        if process.wait(PROGRESS_SECONDS_MAX) != 0:
            self._outcome.wrong.append(f"{words[0]} failed: {log.read_text(errors='replace')[-2000:]}")
        self._say(f"{words[0]}: {log.read_text(errors='replace')[-400:].strip()}")

    # Comparison

    def _compare(self, is_committed: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        landed = np.zeros(self._records, np.int64)
        positions: Counter[tuple[int, int]] = Counter()
        wrong: list[str] = []
        rows = dead_letters = 0
        for number, row, position in self._iter_rows():
            rows += 1
            landed[number] += 1
            positions[position] += 1
            expected = build_expected_row(number, self._records)
            if (row != expected or is_truncated(number)) and len(wrong) < 10:
                wrong.append(f"record {number} is {row} in the table, expected {expected}")
        for number, position in self._iter_dead_letters():
            dead_letters += 1
            landed[number] += 1
            positions[position] += 1
            if not is_truncated(number) and len(wrong) < 10:
                wrong.append(f"record {number} is a dead-letter record")
        for number in np.flatnonzero(landed != is_committed)[:10].tolist():
            wrong.append(f"record {number} is landed {landed[number]} times, committed: {is_committed[number]}")
        wrong += [f"position {position} is landed {count} times" for position, count in positions.items() if count > 1][
            :10
        ]
        self._outcome.rows, self._outcome.dead_letters = rows, dead_letters
        self._outcome.wrong += wrong

    def _iter_rows(self) -> Iterator[tuple[int, dict[str, Any], tuple[int, int]]]:
        files = open_table(table_uri(self._root, TOPIC)).files()
        names = [name for name in COLUMNS if name in files.schema.names]
        for batch in scan(files, [PARTITION, OFFSET, *names]):
            rows = pa.Table.from_batches([batch])
            at = rows.schema.get_field_index("at")
            rows = rows.set_column(at, "at", rows["at"].cast(pa.int64()))
            for row in rows.to_pylist():
                position = (row.pop(PARTITION), row.pop(OFFSET))
                yield row["n"], _normalize_row(row), position

    def _iter_dead_letters(self) -> Iterator[tuple[int, tuple[int, int]]]:
        files = open_table(build_dead_letters_uri(self._root, TOPIC)).files()
        for batch in scan(files, [PARTITION, OFFSET, KEY]):
            for row in batch.to_pylist():
                yield int(row[KEY]), (row[PARTITION], row[OFFSET])


def _normalize_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in the form of `build_expected_row`."""
    found = {name: value for name, value in row.items() if value is not None}
    if "at" in found:
        found["at"] //= 1000
    if "total" in found:
        found["total"] = str(found["total"])
    if "items" in found:
        found["items"] = [{"price": None} | item for item in found["items"]]
    if "extra" in found:
        found["extra"] = dict(found["extra"])
    return found


def run_typed_landing_stress(
    kills: int, records: int, seed: int, directory: Path, say: Callable[[str], None]
) -> TypedOutcome:
    """Run the stress test with its own broker, which has the schema registry."""
    with Broker(directory / "broker") as broker:
        return TypedLandingStress(broker, directory, records, seed, say).run(schedule_kills(seed, kills))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chronik-typed-landing-") as directory:
        outcome = run_typed_landing_stress(
            arguments.kills, arguments.records, arguments.seed, Path(directory), lambda line: print(line, flush=True)
        )
    print(outcome)
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
