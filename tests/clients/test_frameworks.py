"""Exactly-once frameworks: a Kafka Connect worker that is killed, and a Flink job that fails."""

from __future__ import annotations

from pathlib import Path

from .client_process import ClientPool, unique_name
from .frameworks import ConnectWorker, run_flink
from .transaction_scenario import READ_COMMITTED

LINES = 2000
NUMBERS = 3000


def read_committed_values(clients: ClientPool, topic: str, count: int) -> list[bytes | None]:
    received, problem = clients.get("confluent").consume({topic: count}, None, isolation=READ_COMMITTED)
    assert problem is None
    return [record.value for record in received]


def test_killed_connect_worker_reads_file_exactly_once(clients: ClientPool, bootstrap: str, tmp_path: Path) -> None:
    topic, source = clients.create_topic(unique_name("connect"), 1), tmp_path / "lines.txt"
    source.touch()
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": topic,
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }
    lines = [f"line {number}" for number in range(LINES)]
    with (
        ConnectWorker(bootstrap, unique_name("workers"), tmp_path) as connect,
        source.open("a", buffering=1) as source_file,
    ):
        connect.configure("lines", config)
        for number, line in enumerate(lines, 1):
            source_file.write(f"{line}\n")
            if number == LINES // 2:
                assert read_committed_values(clients, topic, LINES // 4)
            if number == LINES * 3 // 4:
                connect.kill()  # within a transaction or between two
                connect.start()
        assert read_committed_values(clients, topic, LINES) == [line.encode() for line in lines]


def test_failing_flink_job_writes_exactly_once(clients: ClientPool, bootstrap: str) -> None:
    topic = clients.create_topic(unique_name("flink"), 1)
    run_flink(bootstrap, topic, str(NUMBERS), unique_name("flink"))
    assert read_committed_values(clients, topic, NUMBERS) == [str(number).encode() for number in range(NUMBERS)]
