from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chronik.client.cluster import ClusterClient

from .command_line import COMMAND, TIMEOUT_S, environment, run_chronik

pytestmark = pytest.mark.slow


def wait_for_address(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Wait until the node has logged its Kafka address, and return the address."""
    deadline = time.monotonic() + TIMEOUT_S
    while "answers Kafka clients on " not in (output := log.read_text()):
        assert process.poll() is None, output
        assert time.monotonic() < deadline, output
        time.sleep(0.01)
    return output.split("answers Kafka clients on ")[1].split(",")[0]


def test_started_node_serves_requests_and_stops_on_sigterm(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(f'node_id = 7\ndata_dir = "{tmp_path / "elsewhere"}"\n')
    log = tmp_path / "log"
    arguments = ["start", "--config", str(config), "--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0"]
    with log.open("wb") as stderr:
        process = subprocess.Popen([*COMMAND, *arguments], stderr=stderr, env=environment(None))
    with process:
        address = wait_for_address(log, process)
        with ClusterClient(address) as cluster:
            assert [broker.node_id for broker in cluster.metadata([]).brokers] == [7]
        assert run_chronik("metadata", "-b", address).lines[0] == "Brokers: 7"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    assert (tmp_path / "data").is_dir()
    assert not (tmp_path / "elsewhere").exists()


def test_start_imports_no_other_command() -> None:
    program = "import sys; from chronik.cli.main import main; main(['start', '--node-id', 'x']); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    imported = set(done.stdout.split())
    assert "chronik.cli.start" in imported
    assert {name for name in imported if name.startswith("chronik.cli.")} == {"chronik.cli.main", "chronik.cli.start"}
    assert not {name for name in imported if name.startswith(("chronik.client", "chronik.testing", "chronik.bench"))}


def test_start_on_wildcard_address_requires_advertised_address(tmp_path: Path) -> None:
    refused = run_chronik("start", "--kafka", "0.0.0.0:0", "--data", str(tmp_path / "data"))
    assert refused.code == 2
    assert "--advertised HOST:PORT" in refused.err
    assert 'advertised = "HOST:PORT" in the config file' in refused.err


def test_node_returns_advertised_address_to_clients(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = [
        "--kafka",
        "0.0.0.0:0",
        "--advertised",
        "localhost:0",
        "--http",
        "off",
        "--data",
        str(tmp_path / "data"),
    ]
    with log.open("wb") as stderr:
        process = subprocess.Popen([*COMMAND, "start", *arguments], stderr=stderr, env=environment(None))
    with process:
        port = wait_for_address(log, process).rpartition(":")[2]
        with ClusterClient(f"127.0.0.1:{port}") as cluster:
            assert [(each.host, each.port) for each in cluster.metadata([]).brokers] == [("localhost", int(port))]
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
