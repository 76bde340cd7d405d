"""`chronik produce` and `chronik consume` with a real broker: what only its log, or a terminal, can show."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from chronik.testing import Broker
from tests.cli.running import COMMAND, TIMEOUT_S, Outcome, chronik, environment

pytestmark = pytest.mark.slow

SHOWN = b" records "
"""In a progress bar, before how many there are a second."""


@pytest.fixture
def filled(chronik_broker: Broker, chronik_topic: str) -> str:
    """Has ten records in partition 0, at 1000 ms, 2000 ms, … and three in partition 1, each of a transaction."""
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
def test_reading_begins_where_it_is_told(chronik_broker: Broker, filled: str) -> None:
    def consume(*words: str) -> list[str]:
        return sorted(chronik("consume", filled, *words, bootstrap=chronik_broker.bootstrap).lines)

    assert consume("--from", "-2") == ["plain 8", "plain 9", "transaction 1", "transaction 2"], "markers do not count"
    assert consume("--from", "-2", "-p", "1") == ["transaction 1", "transaction 2"]
    assert len(consume("--from", "-10")) == len(consume("--from", "-11")) == 13
    assert consume("--from", "@9000", "-p", "0") == ["plain 8", "plain 9"]
    assert consume("--from", "@1970-01-01T00:00:08.001Z", "-p", "0") == ["plain 8", "plain 9"]
    assert len(consume("--from", "@5000")) == 6 + 3
    assert consume("--from", "@2100-01-01") == []


@pytest.mark.chronik_topic(partitions=3)
def test_a_file_is_written_and_what_stands_before_a_wrong_line_too(
    chronik_broker: Broker, chronik_topic: str, tmp_path: Path
) -> None:
    def produce(*words: str) -> Outcome:
        return chronik("produce", chronik_topic, *words, bootstrap=chronik_broker.bootstrap)

    rows = tmp_path / "orders.csv"
    rows.write_text("id,item,note\n7,tea,\n8,salt,\n")
    assert (
        produce("--format", "csv", "--key", "id", "--file", str(rows)).err == f"2 records written to {chronik_topic}\n"
    )
    objects = tmp_path / "orders.jsonl"
    objects.write_text('{"key": "9", "value": {"n": 1.0}, "partition": 2}\n{"value": "x", "partition": 3}\n{}\n')
    told = f"chronik: line 2: topic {chronik_topic} has no partition 3 (1 record written before)\n"
    assert produce("--format", "json", "--file", str(objects)) == Outcome(1, "", told)
    written = {record.key: record.value for record in chronik_broker.records(chronik_topic)}
    assert written == {b"7": b'{"item":"tea","note":""}', b"8": b'{"item":"salt","note":""}', b"9": b'{"n": 1.0}'}
    misspelled = Outcome(
        1, "", "chronik: line 1: unknown field 'vlaue'; did you mean 'value'? (0 records written before)\n"
    )
    line = '{"key": "9", "vlaue": {"x": 2}}'
    assert chronik("produce", chronik_topic, "--json", bootstrap=chronik_broker.bootstrap, stdin=line) == misspelled
    assert len(chronik_broker.records(chronik_topic)) == 3, "no tombstone was written"
    nowhere = tmp_path / "nowhere"
    assert produce("--file", str(nowhere)).err == f"chronik: [Errno 2] No such file or directory: '{nowhere}'\n"


def test_progress_is_shown_on_a_terminal_when_it_takes_longer(chronik_broker: Broker, chronik_topic: str) -> None:
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
        while SHOWN not in seen and time.monotonic() < deadline:
            process.stdin.write(b"a record\n")
            process.stdin.flush()
            time.sleep(0.05)  # between two lines, as of a slow source
            seen += screen.read() or b""
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
    assert SHOWN in seen, seen
    assert seen.startswith(b"\r" + chronik_topic.encode()), "no escape code of ours is shown as text"
