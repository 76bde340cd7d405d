"""A node tells systemd when it answers and when it stops, so that whatever waits for it waits long enough."""

from __future__ import annotations

import logging
import signal
import socket
from pathlib import Path

import pytest

from chronik.client.cluster import Cluster
from chronik.node.notifying import READY, SOCKET_VARIABLE, STOPPING, notify
from tests.cli.running import TIMEOUT_S
from tests.packaging.building import address_in
from tests.packaging.starting import running


def manager(address: str) -> socket.socket:
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(address)
    told.settimeout(TIMEOUT_S)
    return told


@pytest.mark.parametrize("prefix", ["", "@"])
def test_it_is_told_where_it_says(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "notify")
    with manager(f"\0{place}" if prefix else place) as told:
        monkeypatch.setenv(SOCKET_VARIABLE, prefix + place)
        notify(READY)
        assert told.recv(100) == b"READY=1"


def test_nobody_is_told_where_nobody_asks(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    notify(READY)
    assert caplog.records == []


def test_one_that_does_not_hear_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "nobody"))
    with caplog.at_level(logging.WARNING, "chronik.node"):
        notify(STOPPING)
    [line] = caplog.messages
    assert line.startswith("the service manager was not told STOPPING=1: ")


@pytest.mark.slow
def test_a_node_says_when_it_answers_and_when_it_stops(tmp_path: Path) -> None:
    place = tmp_path / "notify"
    words = ["start", "--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0"]
    with manager(str(place)) as told, running(words, tmp_path, **{SOCKET_VARIABLE: str(place)}) as process:
        assert told.recv(100) == b"READY=1"
        with Cluster(address_in(tmp_path / "log", process)) as cluster:
            assert cluster.metadata([]).brokers
        process.send_signal(signal.SIGTERM)
        assert told.recv(100) == b"STOPPING=1"
        assert process.wait(TIMEOUT_S) == 0
