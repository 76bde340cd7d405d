"""JSON log format: one object per line, from the start of a node to its end."""

from __future__ import annotations

import io
import json
import logging
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chronik.client.cluster import ClusterClient
from chronik.log_output import (
    ARGUMENT_CHARACTERS_MAX,
    JSON_MESSAGE,
    LINE_CHARACTERS_MAX,
    TRACEBACK_CHARACTERS_MAX,
    JsonFormatter,
    print_notice,
)
from chronik.protocol.permissions import AclOperation, AclResourceType
from chronik.request_reply import ConnectedClient
from chronik.security import audit
from chronik.testing.plugin import BrokerFactory
from tests.cli.command_line import COMMAND, TIMEOUT_S, environment
from tests.cluster.replication_helpers import wait_for

OWN = {"time", "level", "logger", "message"}
HOSTILE = 'x"\n{"level": "info"}\r\x1b[31m\u2028\ud800'


class Log:
    def __init__(self) -> None:
        self.stream = io.StringIO()
        handler = logging.StreamHandler(self.stream)
        handler.setFormatter(JsonFormatter())
        self.logger = logging.Logger("chronik.test")
        self.logger.addHandler(handler)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def log() -> Log:
    return Log()


def test_json_line_has_time_level_logger_and_message(log: Log) -> None:
    before = time.time() - 0.001  # the log truncates to milliseconds
    log.logger.warning("topic %s has %d partitions", "orders", 3)
    [line] = log.lines
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "chronik.test", "message": "topic orders has 3 partitions"}
    message = datetime.fromisoformat(json.loads(log.stream.getvalue())["time"])
    assert message.tzinfo == UTC
    assert before <= message.timestamp() <= time.time()


def test_control_characters_in_message_are_escaped_losslessly(log: Log) -> None:
    log.logger.info("no topic %s", HOSTILE)
    assert [line["message"] for line in log.lines] == [f"no topic {HOSTILE}"]
    assert all(letter.isprintable() for letter in log.stream.getvalue().removesuffix("\n"))


def test_exception_and_stack_are_fields_of_the_line(log: Log) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.logger.exception("it broke", stack_info=True)
    [line] = log.lines
    assert line["message"] == "it broke"
    assert line["exception"].startswith("Traceback (most recent call last):\n  File ")
    assert line["exception"].endswith(f"ValueError: {HOSTILE}")
    assert line["stack"].startswith("Stack (most recent call last):\n")


def test_long_messages_and_tracebacks_are_truncated(log: Log) -> None:
    try:
        raise ValueError("\n".join(["x" * 100] * 1_000))
    except ValueError:
        log.logger.exception("topic %s", "n" * (ARGUMENT_CHARACTERS_MAX + 1))
    log.logger.info("m" * (LINE_CHARACTERS_MAX + 1))
    first, second = log.lines
    assert first["message"].endswith("n… (1 characters more)")
    assert "characters more" in first["exception"]
    assert len(first["exception"]) < TRACEBACK_CHARACTERS_MAX + 100
    assert second["message"].endswith("m… (1 characters more)")


@pytest.fixture
def audited(log: Log, monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr(audit, "logger", log.logger)
    return log


def test_audit_event_is_merged_into_one_json_object(audited: Log) -> None:
    peer = ConnectedClient("10.0.0.7", 4711, 12)
    audit.log_denied_request(peer, "Fetch", AclOperation.READ, AclResourceType.TOPIC, HOSTILE)
    audit.log_changes(peer, "CreateTopics", ["orders", HOSTILE], 3, 1)
    denied, changed = audited.lines
    assert (denied["message"], denied["event"]) == ("refused", "refused")
    assert (denied["api"], denied["operation"], denied["resource"]) == ("Fetch", "Read", "Topic")
    assert denied["name"] == HOSTILE
    assert (changed["message"], changed["event"], changed["host"]) == ("changed", "changed", "10.0.0.7")
    assert (changed["changed"], changed["more"], changed["failed"]) == (["orders", HOSTILE], 1, 1)
    assert {*denied} >= OWN
    assert {*changed} >= OWN


@pytest.mark.parametrize("text", [audit.DENIED_TEMPLATE, audit.CHANGED_TEMPLATE])
def test_audit_fields_do_not_clash_with_log_fields(text: str) -> None:
    fields = json.loads(text.replace("%s", "0").replace("%d", "0"))
    assert OWN.isdisjoint(fields)


def test_invalid_json_message_is_logged_as_text(log: Log) -> None:
    log.logger.info('{"event": %s', "x", extra=JSON_MESSAGE)
    assert [line["message"] for line in log.lines] == ['{"event": x']


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_process_notice_uses_the_log_format(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_notice(HOSTILE, log_format)
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    if log_format == "json":
        assert (json.loads(message)["message"], json.loads(message)["level"]) == (HOSTILE, "critical")
    else:
        assert message.startswith('chronik: x"\\n{')


# Real nodes


@contextmanager
def started(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    log = folder / "log"
    with log.open("wb") as stderr:
        arguments = ["start", "--data", str(folder / "data"), *words]
        process = subprocess.Popen([*COMMAND, *arguments], stderr=stderr, env=environment(None))
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def objects(log: Path) -> list[dict[str, Any]]:
    """Return the log's objects; raise ValueError for a line that is not JSON."""
    return [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]


@pytest.mark.slow
def test_node_writes_only_json_lines_from_start_to_stop(tmp_path: Path) -> None:
    def address() -> str | None:
        message = [
            line["message"] for line in objects(tmp_path / "log") if "answers Kafka clients on " in line["message"]
        ]
        return message[0].split("answers Kafka clients on ")[1].split(",")[0] if message else None

    with started(tmp_path, "--kafka", "127.0.0.1:0", "--log-format", "json") as (process, log):
        wait_for("it answers", address)
        with ClusterClient(address() or "") as cluster:
            assert cluster.metadata([]).brokers
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    lines = objects(log)
    assert len(lines) == len(log.read_text().splitlines()) > 1
    assert all({*line} >= OWN for line in lines)
    assert "node stopping" in [line["message"] for line in lines]


@pytest.mark.slow
def test_failed_start_is_reported_as_json(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('log_format = "json"\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ("--config", str(tmp_path / "node.toml"), "--kafka", f"127.0.0.1:{taken.getsockname()[1]}")
        with started(tmp_path, *words) as (process, log):
            assert process.wait(TIMEOUT_S) == 2
    assert (objects(log)[-1]["level"], objects(log)[-1]["logger"]) == ("critical", "chronik")
    message = objects(log)[-1]["message"]
    assert "address already in use; stop the process that uses it, or choose another port with --kafka," in message
    assert "attempting to bind" not in message


@pytest.mark.slow
def test_config_error_is_reported_as_plain_text(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('log_format = "json"\ncolour = 1\n')
    with started(tmp_path, "--config", str(tmp_path / "node.toml")) as (process, log):
        assert process.wait(TIMEOUT_S) == 2
    assert log.read_text().startswith("chronik: ")
    assert "unknown key 'colour'" in log.read_text()


def test_administrative_change_is_logged_once_with_its_fields(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(log_format="json")
    broker.create_topic("orders")
    lines = [json.loads(line) for line in broker.log.splitlines()]
    [line] = [line for line in lines if line["logger"] == "chronik.audit"]
    assert (line["level"], line["event"], line["api"], line["changed"]) == (
        "info",
        "changed",
        "CreateTopics",
        ["orders"],
    )
