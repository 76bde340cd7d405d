"""Start and stop of a node: errors in one line, graceful shutdown, and exclusive use of the data directory.

At shutdown, waiting requests are answered, pending ones are finished, and deletions are not lost.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chronik.protocol.errors import ErrorCode
from chronik.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from chronik.protocol.messages.fetch import FetchResponse
from chronik.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from chronik.testing import Broker
from chronik.testing.plugin import BrokerFactory
from tests.api import request_builders
from tests.raw import RawClient

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 60

PROMPT_SECONDS = 5.0


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHRONIK_")}
    return subprocess.run(
        [sys.executable, "-m", "chronik", "start", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
        env=environment,
    )


def refusal(*arguments: str) -> str:
    """Return the line with which a node reports that it cannot start."""
    finished = start(*arguments)
    assert finished.returncode in {1, 2}
    lines = [line for line in finished.stderr.splitlines() if line.startswith("chronik:")]
    assert len(lines) == 1, finished.stderr
    assert "Traceback" not in finished.stderr
    return lines[0]


def test_invalid_config_file_is_rejected_with_path_key_and_expected_value(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('flush = "never"\n')
    line = refusal("--config", str(path), "--data", str(tmp_path / "data"))
    assert f"{path}: flush = 'never': expected" in line


def test_invalid_broker_config_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('[broker]\n"num.partitions" = 0\n')
    assert "num.partitions = '0': expected" in refusal("--config", str(path), "--data", str(tmp_path / "data"))


def test_missing_config_file_is_rejected(tmp_path: Path) -> None:
    assert "No such file" in refusal("--config", str(tmp_path / "absent.toml"))


def test_data_directory_in_use_is_rejected_without_affecting_its_owner(chronik_broker: Broker) -> None:
    line = refusal("--data", str(chronik_broker.data_dir), "--kafka", "127.0.0.1:0")
    assert str(chronik_broker.data_dir) in line
    assert "in use" in line
    chronik_broker.create_topic("still-there")


def test_port_in_use_is_rejected(chronik_broker: Broker, tmp_path: Path) -> None:
    line = refusal("--data", str(tmp_path), "--kafka", f"127.0.0.1:{chronik_broker.port}")
    assert "in use" in line


def test_data_directory_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "data_dir" in refusal("--data", str(tmp_path / "file" / "data"), "--kafka", "127.0.0.1:0")


def test_data_directory_of_another_node_is_rejected(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.stop()
    line = refusal("--data", str(broker.data_dir), "--kafka", "127.0.0.1:0", "--node-id", "7")
    assert "belongs to node 1" in line


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_node_with_exit_code_0_while_clients_are_connected(
    chronik_broker_factory: BrokerFactory, signal_number: signal.Signals
) -> None:
    broker = chronik_broker_factory()
    with socket.create_connection(("127.0.0.1", broker.port)):
        process = broker._process
        assert process is not None
        process.send_signal(signal_number)
        assert process.wait(DEADLINE_SECONDS) == 0


def test_directory_of_unknown_topic_is_quarantined_not_deleted(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.stop()
    unknown_directory = broker.data_dir / "topics" / "AAAAAAAAAAAAAAAAAAAAAA" / "0"
    unknown_directory.mkdir(parents=True)
    (unknown_directory / "00000000000000000000.log").write_bytes(b"precious")
    broker.start()
    kept = broker.data_dir / "unknown" / "AAAAAAAAAAAAAAAAAAAAAA" / "0" / "00000000000000000000.log"
    assert kept.read_bytes() == b"precious"
    assert not unknown_directory.exists()


def test_waiting_fetch_is_answered_and_does_not_delay_shutdown(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory()
    broker.create_topic("quiet")
    with RawClient(broker.bootstrap) as client:
        request = request_builders.fetch_request(("quiet", 0, 0), min_bytes=1, max_wait_ms=60_000)
        client.send(request, 12)
        _assert_no_response_yet(client)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < PROMPT_SECONDS
        assert client.receive(request, 12, FetchResponse).responses[0].partitions[0].error_code == ErrorCode.NONE


def test_waiting_join_group_is_answered_and_does_not_delay_shutdown(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory(broker={"group.initial.rebalance.delay.ms": 60_000})
    with RawClient(broker.bootstrap) as client:
        request = JoinGroupRequest(
            group_id="group",
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        client.send(request, 3)
        _assert_no_response_yet(client)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < PROMPT_SECONDS
        answer = client.receive(request, 3, JoinGroupResponse)
        assert answer.error_code in {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}


def _assert_no_response_yet(client: RawClient) -> None:
    client.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        client.socket.recv(1)
    client.socket.settimeout(30)


def test_topic_deleted_before_shutdown_is_removed_not_quarantined(
    chronik_broker_factory: BrokerFactory,
) -> None:
    broker = chronik_broker_factory()
    names = [f"doomed-{number}" for number in range(50)]
    with RawClient(broker.bootstrap) as client:
        for name in names:
            request_builders.describe_topic(client, name, create=True)
            request_builders.produce(client, name, request_builders.batch(b"v"))
        answers = client.request(DeleteTopicsRequest(topic_names=names), 5, DeleteTopicsResponse).responses
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    broker.stop()
    assert list((broker.data_dir / "topics").iterdir()) == []
    broker.start()
    assert not (broker.data_dir / "unknown").exists()
