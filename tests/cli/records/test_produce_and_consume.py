"""`chronik produce` and `chronik consume` with a real broker and a terminal."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chronik.testing import Broker
from tests.cli.command_line import COMMAND, TIMEOUT_S, CommandResult, environment, run_chronik

pytestmark = pytest.mark.slow

PROGRESS_TEXT = b" records "
"""Text in a progress bar before the rate."""


@pytest.fixture
def filled(chronik_broker: Broker, chronik_topic: str) -> str:
    """Produce ten records to partition 0 (at 1000 ms, 2000 ms, …) and three one-record transactions to partition 1."""
    plain = Producer({"bootstrap.servers": chronik_broker.bootstrap})
    for number in range(10):
        plain.produce(chronik_topic, f"plain {number}", partition=0, timestamp=1000 * (number + 1))
    plain.flush()
    transactional = Producer({"bootstrap.servers": chronik_broker.bootstrap, "transactional.id": chronik_topic})
    transactional.init_transactions()
    for number in range(3):
        transactional.begin_transaction()
        transactional.produce(chronik_topic, f"transaction {number}", partition=1, timestamp=5000)
        transactional.commit_transaction()
    return chronik_topic


@pytest.mark.chronik_topic(partitions=3)
def test_consume_starts_at_given_position(chronik_broker: Broker, filled: str) -> None:
    def consume(*words: str) -> list[str]:
        return sorted(run_chronik("consume", filled, *words, bootstrap=chronik_broker.bootstrap).lines)

    assert consume("--from", "-2") == ["plain 8", "plain 9", "transaction 1", "transaction 2"], (
        "without control records"
    )
    assert consume("--from", "-2", "-p", "1") == ["transaction 1", "transaction 2"]
    assert len(consume("--from", "-10")) == len(consume("--from", "-11")) == 13
    assert consume("--from", "@9000", "-p", "0") == ["plain 8", "plain 9"]
    assert consume("--from", "@1970-01-01T00:00:08.001Z", "-p", "0") == ["plain 8", "plain 9"]
    assert len(consume("--from", "@5000")) == 6 + 3
    assert consume("--from", "@2100-01-01") == []


@pytest.mark.chronik_topic(partitions=3)
def test_produce_writes_file_up_to_invalid_line(chronik_broker: Broker, chronik_topic: str, tmp_path: Path) -> None:
    def produce(*words: str) -> CommandResult:
        return run_chronik("produce", chronik_topic, *words, bootstrap=chronik_broker.bootstrap)

    rows = tmp_path / "orders.csv"
    rows.write_text("id,item,note\n7,tea,\n8,salt,\n")
    assert (
        produce("--format", "csv", "--key", "id", "--file", str(rows)).err == f"2 records written to {chronik_topic}\n"
    )
    objects = tmp_path / "orders.jsonl"
    objects.write_text('{"key": "9", "value": {"n": 1.0}, "partition": 2}\n{"value": "x", "partition": 3}\n{}\n')
    expected = f"chronik: line 2: topic {chronik_topic} has no partition 3 (1 record written before it)\n"
    assert produce("--format", "json", "--file", str(objects)) == CommandResult(1, "", expected)
    written = {record.key: record.value for record in chronik_broker.records(chronik_topic)}
    assert written == {b"7": b'{"item":"tea","note":""}', b"8": b'{"item":"salt","note":""}', b"9": b'{"n": 1.0}'}
    misspelled = CommandResult(
        1, "", "chronik: line 1: unknown field 'vlaue'; did you mean 'value'? (0 records written before it)\n"
    )
    line = '{"key": "9", "vlaue": {"x": 2}}'
    assert run_chronik("produce", chronik_topic, "--json", bootstrap=chronik_broker.bootstrap, stdin=line) == misspelled
    assert len(chronik_broker.records(chronik_topic)) == 3, "no tombstone was written"
    nowhere = tmp_path / "nowhere"
    assert produce("--file", str(nowhere)).err == f"chronik: [Errno 2] No such file or directory: '{nowhere}'\n"


def test_typed_values_are_written_and_read_with_discovered_registry(
    chronik_broker: Broker, chronik_topic: str, chronik_registry: dict[str, str], tmp_path: Path
) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text('{"type": "record", "name": "Order", "fields": [{"name": "price", "type": "double"}]}')
    bootstrap = chronik_broker.bootstrap
    command = ("schemas", "register", f"{chronik_topic}-value", str(schema), "--registry", chronik_registry["url"])
    assert run_chronik(*command).code == 0
    typed = ("produce", chronik_topic, "--value-format", "avro")
    written = run_chronik(*typed, bootstrap=bootstrap, stdin='{"price": 2.5}\n')
    assert written == CommandResult(0, "", f"1 record written to {chronik_topic}\n")
    rejected = run_chronik(*typed, bootstrap=bootstrap, stdin='{"price": "?"}\n')
    expected = "chronik: line 1: value: price: expected double, got '?' (0 records written before it)\n"
    assert rejected == CommandResult(1, "", expected)
    printed = run_chronik("consume", chronik_topic, "--json", bootstrap=bootstrap)
    assert printed.json["value"] == {"price": 2.5}
    assert printed.json["value_schema"]["format"] == "avro"
    again = run_chronik("produce", chronik_topic, "--json", bootstrap=bootstrap, stdin=printed.out)
    assert again.code == 0, again.err
    assert [record.value for record in chronik_broker.records(chronik_topic, decode=True)] == [{"price": 2.5}] * 2
    lines = run_chronik("consume", chronik_topic, "--decode", bootstrap=bootstrap).lines
    assert lines == ['{"price":2.5}'] * 2


def test_produce_shows_progress_bar_on_terminal_after_delay(chronik_broker: Broker, chronik_topic: str) -> None:
    ours, terminal = os.openpty()
    environ = environment(chronik_broker.bootstrap)
    process = subprocess.Popen(
        [*COMMAND, "produce", chronik_topic], stdin=subprocess.PIPE, stderr=terminal, env=environ
    )
    os.close(terminal)
    os.set_blocking(ours, False)
    with process, os.fdopen(ours, "rb", buffering=0) as screen:
        assert process.stdin is not None
        seen, deadline = b"", time.monotonic() + TIMEOUT_S
        while PROGRESS_TEXT not in seen and time.monotonic() < deadline:
            process.stdin.write(b"a record\n")
            process.stdin.flush()
            time.sleep(0.05)  # simulates a slow source
            seen += screen.read() or b""
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
    assert PROGRESS_TEXT in seen, seen
    assert seen.startswith(b"\r" + chronik_topic.encode()), "escape sequences of the bar are not escaped"
