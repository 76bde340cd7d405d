from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from chronik.testing import Broker

from .command_line import COMMAND, TIMEOUT_S, environment, run_chronik

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("topics", "describe", "no-such-topic"), "UNKNOWN_TOPIC_OR_PARTITION: topic no-such-topic does not exist"),
        (("topics", "create", "in valid"), "INVALID_TOPIC_EXCEPTION"),
        (("topics", "create", "t", "-c", "no.such.config=1"), "no.such.config"),
        (("topics", "create", "t", "-c", "nonsense"), "expected NAME=VALUE"),
        (("topics", "delete", "no-such-topic"), "no-such-topic"),
        (("topics", "alter", "no-such-topic"), "nothing to alter"),
        (("groups", "describe", "no-such-group"), "GROUP_ID_NOT_FOUND"),
        (("consume", "no-such-topic"), "no-such-topic"),
    ],
)
def test_rejected_command_prints_one_line_and_exits_with_1(
    chronik_broker: Broker, arguments: tuple[str, ...], expected: str
) -> None:
    outcome = run_chronik(*arguments, bootstrap=chronik_broker.bootstrap)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("chronik: ")
    assert outcome.err.count("\n") == 1
    assert expected in outcome.err


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (("-k", ":"), "k:v\nno separator\n", "line 2: key separator ':' not found"),
        (
            ("--json",),
            '{"value": "v"}\n{"partition": "1"}\n',
            "line 2: partition: expected int | null, got str",
        ),
        (("--json",), "[]\n", "line 1: expected an object"),
        (("--json",), "{\n", "line 1: not valid JSON"),
        (("--json",), '{"value_base64": "?"}\n', "line 1: value_base64: expected Base64"),
        (("-p", "7"), "v\n", "line 1: topic "),
        (("--format", "json"), '{"value": "v"}\n\n{"partition": 7}\n', "line 3: topic "),
        (
            ("--format", "csv"),
            'a,b\n1,"2\n3"\n4\n',
            "line 4: expected 2 cells as in the header, got 1 (1 rec",
        ),
        (
            ("--format", "csv", "--key", "c"),
            "a,b\n1,2\n",
            "line 1: no column 'c'; the columns are a, b (0 records written",
        ),
        (("-H", "n=v"), f"{2_000_000 * 'x'}\n", "line 1: MESSAGE_TOO_LARGE"),
    ],
)
def test_invalid_produce_input_is_reported_with_line_number(
    chronik_broker: Broker, chronik_topic: str, arguments: tuple[str, ...], stdin: str, expected: str
) -> None:
    outcome = run_chronik("produce", chronik_topic, *arguments, bootstrap=chronik_broker.bootstrap, stdin=stdin)
    assert outcome.code == 1
    assert expected in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-p", "3"), "has 1 partition, but no partition 3"),
        (("-o", "soon"), "--from 'soon': expected start, end, -N (the last N), @TIME or an offset"),
        (("-o", "5", "--follow"), "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_invalid_consume_position_is_rejected(
    chronik_broker: Broker, chronik_topic: str, arguments: tuple[str, ...], expected: str
) -> None:
    run_chronik("produce", chronik_topic, bootstrap=chronik_broker.bootstrap, stdin="a\n")
    outcome = run_chronik("consume", chronik_topic, *arguments, bootstrap=chronik_broker.bootstrap)
    assert (outcome.code, outcome.out) == (1, "")
    assert expected in outcome.err


def test_unreachable_broker_is_reported_with_traceback_only_in_debug() -> None:
    outcome = run_chronik("metadata", "-b", "127.0.0.1:1")
    assert (outcome.code, outcome.err) == (1, "chronik: no broker at 127.0.0.1:1: Connection refused\n")
    assert "Traceback" in run_chronik("metadata", "-b", "127.0.0.1:1", "--debug").err


@pytest.mark.parametrize("arguments", [("nonsense",), ("topics",), ("topics", "create"), ("consume", "t", "-n", "0")])
def test_usage_error_exits_with_2(arguments: tuple[str, ...]) -> None:
    outcome = run_chronik(*arguments)
    assert outcome.code == 2
    assert "chronik" in outcome.err


def test_help_and_version_exit_with_0() -> None:
    assert "  produce       write lines, JSON or CSV from stdin or a file to a topic" in run_chronik("--help").lines
    assert run_chronik("--version").lines[0].startswith("chronik ")
    assert "--key-separator" in run_chronik("produce", "--help").out


def test_start_rejects_invalid_config_with_file_and_key(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('flush = "never"\n')
    outcome = run_chronik("start", "--config", str(config), "--data", str(tmp_path / "data"))
    assert outcome.code == 2
    assert outcome.err == f'chronik: {config}: flush = \'never\': expected "group" or "os"\n'
    outcome = run_chronik("start", "--node-id", "x", "--data", str(tmp_path / "data"))
    assert outcome.code == 2
    assert "node_id = 'x': expected a whole number" in outcome.err


def test_closed_pipe_ends_command_without_error_output(chronik_broker: Broker, chronik_topic: str) -> None:
    lines = "\n".join(f"{number:0500d}" for number in range(2000))
    run_chronik("produce", chronik_topic, bootstrap=chronik_broker.bootstrap, stdin=lines)
    command = subprocess.Popen(
        [*COMMAND, "consume", chronik_topic],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(chronik_broker.bootstrap),
    )
    with command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline() == b"0" * 500 + b"\n"
        command.stdout.close()
        assert command.wait(TIMEOUT_S) == 141
        assert command.stderr.read() == b""


def test_ctrl_c_ends_consume_follow_without_error_output(chronik_broker: Broker, chronik_topic: str) -> None:
    run_chronik("produce", chronik_topic, bootstrap=chronik_broker.bootstrap, stdin="a\n")
    command = subprocess.Popen(
        [*COMMAND, "consume", chronik_topic, "-f", "--from-beginning"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(chronik_broker.bootstrap),
    )
    with command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline() == b"a\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(TIMEOUT_S) == 130
        assert command.stderr.read() == b""
