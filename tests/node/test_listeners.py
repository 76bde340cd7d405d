"""A node with several listeners binds all ports or none, and reports the ports chosen by the system."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, NoReturn

import pytest

from chronik.client.connection import BrokerConnection
from chronik.config import Address
from chronik.console.listener import HttpListener
from chronik.peers.transport import PeerTransport
from chronik.protocol.messages.metadata import MetadataRequest, MetadataResponse
from chronik.server.listener import ClientListeners
from chronik.testing.plugin import BrokerFactory
from tests.api.request_builders import BROKER
from tests.api.test_configs import describe_configs
from tests.console.http_harness import FakeSource
from tests.node.test_lifecycle import refusal
from tests.peers.helpers import identity
from tests.raw import RawClient

TWO = {
    "listeners": "ONE://127.0.0.1:0,TWO://127.0.0.1:0",
    "advertised.listeners": "ONE://127.0.0.1:0,TWO://localhost:0",
    "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
}


def listed(address: Address) -> list[Address]:
    connection = BrokerConnection(address, client_id="test", timeout_s=30)
    try:
        answer = connection.request(MetadataRequest(topics=[]), MetadataResponse)
    finally:
        connection.close()
    return [Address(broker.host, broker.port) for broker in answer.brokers]


def test_ports_chosen_by_system_are_advertised(chronik_broker_factory: BrokerFactory) -> None:
    broker = chronik_broker_factory(broker=TWO)
    with RawClient(broker.bootstrap) as client:
        configs = describe_configs(client, BROKER, "1", ["listeners", "advertised.listeners"])
    bound = dict(each.split("://") for each in (configs["listeners"].value or "").split(","))
    one, two = Address.parse(bound["ONE"]), Address.parse(bound["TWO"])
    assert str(one) == broker.bootstrap
    assert one.port != two.port
    assert configs["advertised.listeners"].value == f"ONE://{one},TWO://localhost:{two.port}"
    assert listed(one) == [one]
    assert listed(two) == [Address("localhost", two.port)]
    assert f"answers Kafka clients on ONE://{one}, TWO://{two}," in broker.log


def test_port_in_use_fails_start_and_releases_data_directory(
    tmp_path: Path, chronik_broker_factory: BrokerFactory
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        path = tmp_path / "node.toml"
        path.write_text(
            f'[broker]\n"listeners" = "PLAINTEXT://127.0.0.1:0,MORE://127.0.0.1:{port}"\n'
            '"listener.security.protocol.map" = "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT"\n'
        )
        line = refusal("--config", str(path), "--data", str(tmp_path / "data"))
        assert line.startswith(f"chronik: MORE://127.0.0.1:{port}: ")
    assert chronik_broker_factory(data_dir=tmp_path / "data").is_running


def test_unresolvable_host_error_names_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(*_: Any, **__: Any) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", not_found)
    address_of_unknown_host = Address("nowhere.example", 1)
    unused: Any = None
    ports: dict[str, ClientListeners | HttpListener | PeerTransport] = {
        "MORE://nowhere.example:1: ": ClientListeners({"MORE": address_of_unknown_host}, unused),
        "http://nowhere.example:1: ": HttpListener(address_of_unknown_host, FakeSource()),
        "raft = 'nowhere.example:1': ": PeerTransport(identity(1), address_of_unknown_host, {}, unused),
    }
    for expected, port in ports.items():
        with pytest.raises(OSError, match="Name or service not known") as refused:
            asyncio.run(port.bind())
        assert str(refused.value).startswith(expected)
