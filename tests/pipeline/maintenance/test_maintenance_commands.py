"""Tests of `chronik pipeline compact|replay|dlq` with Spark, on records that the command `run` has landed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chronik.client.producer import Producer
from chronik.client.records import ConsumedRecord, OutgoingRecord
from chronik.testing import Broker

pytestmark = [
    pytest.mark.xdist_group("jvms"),
    pytest.mark.chronik_topic(partitions=3, configs={"columnar.format": "json"}),
]

SECONDS_MAX = 600

COMMANDS = """
import contextlib, io, json, sys
from chronik.cli.main import main

outcomes = []
for words in json.load(sys.stdin):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main(words)
    outcomes.append([code, out.getvalue()])
json.dump(outcomes, sys.stdout)
"""
"""Script that runs several commands in one process, so that the JVM starts once. Each has its own session."""

OLDER_RULES = """
from chronik.pipeline.tables.values.json_decoder import JsonDecoder
from chronik.pipeline.tables.values.value_codecs import MisfitError

parse_today, take_apart_today = JsonDecoder._parse, JsonDecoder._split_record_into_columns

def parse(self, values, result):
    objects = parse_today(self, values, result)
    result.slow_rows.update(row for row, value in enumerate(values) if value is not None and b"modern" in value)
    return objects

def take_apart(self, row, value, result):
    if b"modern" in value:
        raise MisfitError("not decodable yet")
    return take_apart_today(self, row, value, result)

JsonDecoder._parse, JsonDecoder._split_record_into_columns = parse, take_apart
"""
"""A sitecustomize module for the driver and Spark's workers, with older decoding rules."""


def chronik(*commands: list[str], environment: dict[str, str] | None = None) -> list[Any]:
    """Run the commands, which must succeed, and return their output."""
    ran = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        input=json.dumps([["pipeline", *words] for words in commands]),
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"CHRONIK_SPARK_MASTER": "local[2]"} | (environment or {}),
        timeout=SECONDS_MAX,
        check=True,
    )
    outcomes = json.loads(ran.stdout)
    assert [code for code, _ in outcomes] == [0] * len(commands), outcomes
    return [json.loads(out) if "--json" in words else out for words, (_, out) in zip(commands, outcomes, strict=True)]


def value_of(number: int) -> bytes | None:
    if number % 50 == 7:
        return None
    if number % 50 == 8:
        return b'{"id": %d, "modern": [true, null]}' % number
    if number % 50 == 9:
        return b"no json %d \xff" % number
    return b'{"id": %d, "who": {"name": "n%d"}, "odd": %s}' % (number, number % 7, b"1.5" if number % 2 else b'"text"')


def produce(broker: Broker, topic: str, count: int) -> None:
    records = [
        OutgoingRecord(
            value_of(number),
            None if number % 3 == 0 else b"" if number % 3 == 1 else b"key %d" % (number % 10),
            (("name", b"%d" % number), ("none", None)) if number % 4 == 0 else (),
            1_714_564_800_000 + number * 60_000,
            partition=number % 3,
        )
        for number in range(count)
    ]
    with broker.cluster() as cluster:
        Producer(cluster).send(topic, records)


def by_partition(records: list[ConsumedRecord]) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for each in records:
        found.setdefault(each.partition, []).append((each.timestamp, each.key, each.value, each.headers))
    return found


def by_value(records: list[ConsumedRecord]) -> dict[int, list[tuple[Any, ...]]]:
    """Return only decodable records, with parsed JSON values."""
    decodable = [each for each in records if each.value is None or each.value.startswith(b"{")]
    return {
        partition: [(when, key, None if value is None else json.loads(value), headers)
                    for when, key, value, headers in found]
        for partition, found in by_partition(decodable).items()
    }  # fmt: skip


def test_landed_records_are_compacted_retried_and_replayed(
    tmp_path: Path, chronik_broker: Broker, chronik_topic: str
) -> None:
    raw, decoded, count = f"{chronik_topic}-raw", chronik_topic, 3000
    chronik_broker.create_topic(raw, 3)
    for topic in (raw, decoded):
        produce(chronik_broker, topic, count)
    root, broker = ["--table-root", str(tmp_path / "tables")], ["-b", chronik_broker.bootstrap]
    (tmp_path / "sitecustomize.py").write_text(OLDER_RULES)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    landing = ["run", *broker, *root, "--once", "--max-records-per-round", "1500", "--topics", f"{raw},{decoded}"]
    chronik(landing, environment={"PYTHONPATH": path})

    letters, retried, listed, compacted, compacted_again, replayed, replayed_decoded = chronik(
        ["dlq", "list", *root, "--json", "--limit", "1000"],
        ["dlq", "retry", *root, "--json"],
        ["dlq", "list", *root],
        ["compact", *root, "--vacuum", "--json"],
        ["compact", *root, "--json"],
        ["replay", *broker, *root, "--topic", raw, "--to-topic", f"{raw}-copy", "--create", "--json"],
        ["replay", *broker, *root, "--topic", decoded, "--to-topic", f"{decoded}-copy", "--create"],
    )
    each = count // 50
    assert letters["count"] == len(letters["letters"]) == 2 * each
    assert {letter["error"] for letter in letters["letters"]} > {"not decodable yet"}
    assert retried == [{"topic": decoded, "decoded": each, "failing": each, "waiting": 0}]
    assert "no json" in listed
    assert "modern" not in listed
    assert f"and {each - 50} more" in listed
    by_name = {table["table"]: table for table in compacted}
    assert set(by_name) == {decoded, raw, f"{decoded}~dead_letters"}
    for table in by_name.values():
        assert table["files_removed"] > table["files_added"] > 0, table
    assert [table["files_removed"] for table in compacted_again] == [0, 0, 0]

    assert replayed == {
        "topic": raw, "to_topic": f"{raw}-copy", "records": count, "partitions_kept": True, "names_replaced": 0,
        "dead_letters": 0,
    }  # fmt: skip
    assert by_partition(chronik_broker.records(f"{raw}-copy")) == by_partition(chronik_broker.records(raw))
    assert f"{count - each:,} records of {decoded} written to {decoded}-copy" in replayed_decoded
    assert f"{each} dead-letter records of {decoded} not in its table" in replayed_decoded
    found = by_value(chronik_broker.records(f"{decoded}-copy"))
    assert sum(map(len, found.values())) == count - each
    assert found == by_value(chronik_broker.records(decoded))


def test_maintenance_commands_report_errors_in_one_line(
    tmp_path: Path, chronik_broker: Broker, chronik_topic: str
) -> None:
    def error_of(*words: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "chronik", "pipeline", *words], capture_output=True, text=True, check=False
        )
        assert ran.returncode in (1, 2)
        assert not ran.stdout
        return ran.stderr

    replay = ["replay", "-b", chronik_broker.bootstrap, "--table-root", str(tmp_path), "--to-topic", chronik_topic]
    missing = error_of(*replay, "--topic", "orders")
    assert missing == f"chronik: no table at {tmp_path}/orders\n"
    assert "expected an offset, or PARTITION:OFFSET" in error_of(*replay, "--topic", "orders", "--from-offset", "0:x")
    assert "expected a time such as" in error_of(*replay, "--topic", "orders", "--from-time", "yesterday")
    assert "not allowed with" in error_of(*replay, "--topic", "o", "--from-time", "2024-05-01", "--from-offset", "1")
    assert error_of("dlq", "retry", "--table-root", str(tmp_path), "--topics", "orders") == missing
