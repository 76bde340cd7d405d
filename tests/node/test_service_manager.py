"""Notification of systemd when a node is ready and when it stops."""

from __future__ import annotations

import logging
import signal
import socket
from pathlib import Path

import pytest

from chronik.client.cluster import ClusterClient
from chronik.node.service_manager import READY, SOCKET_VARIABLE, STOPPING, notify_service_manager
from tests.cli.command_line import TIMEOUT_S
from tests.packaging.build_steps import wait_for_address
from tests.packaging.node_process import run_node


def manager(address: str) -> socket.socket:
    received = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    received.bind(address)
    received.settimeout(TIMEOUT_S)
    return received


@pytest.mark.parametrize("prefix", ["", "@"])
def test_state_is_sent_to_notify_socket(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "notify")
    with manager(f"\0{path}" if prefix else path) as received:
        monkeypatch.setenv(SOCKET_VARIABLE, prefix + path)
        notify_service_manager(READY)
        assert received.recv(100) == b"READY=1"


def test_nothing_is_sent_without_notify_socket(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    notify_service_manager(READY)
    assert caplog.records == []


def test_failed_notification_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "nobody"))
    with caplog.at_level(logging.WARNING, "chronik.node"):
        notify_service_manager(STOPPING)
    [line] = caplog.messages
    assert line.startswith("service manager not notified: state=STOPPING=1: ")


@pytest.mark.slow
def test_node_notifies_when_ready_and_when_stopping(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    words = ["start", "--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0"]
    with manager(str(path)) as received, run_node(words, tmp_path, **{SOCKET_VARIABLE: str(path)}) as process:
        assert received.recv(100) == b"READY=1"
        with ClusterClient(wait_for_address(tmp_path / "log", process)) as cluster:
            assert cluster.metadata([]).brokers
        process.send_signal(signal.SIGTERM)
        assert received.recv(100) == b"STOPPING=1"
        assert process.wait(TIMEOUT_S) == 0
