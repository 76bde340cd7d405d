"""Every client over TLS with its ordinary settings, with certificates of its own and without; and under load a node's
certificate changes without a record lost."""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from chronik.testing import Broker
from tests.tls.certificates import LOCAL, authority, issued, written

from .catalogue import CLIENTS
from .encrypting import CALLS, COUNT, NotLetIn, Trust, confluent_settings
from .running import unique, wait_for

pytestmark = pytest.mark.slow


class TlsBroker(Broker):
    """Has three ports: one that asks for no certificate, one that must see one, and a plain one."""

    def __init__(self, folder: Path) -> None:
        self.keystore = folder / "node.pem"
        super().__init__(
            folder,
            broker={
                "listeners": "PLAINTEXT://127.0.0.1:0,OPEN://localhost:0,MUTUAL://localhost:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OPEN:SSL,MUTUAL:SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": written(self.keystore, issued("CN=node").both),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": written(folder / "trusted.pem", authority().certificate),
                "listener.name.mutual.ssl.client.auth": "required",
            },
        )

    def at(self, name: str) -> str:
        found = re.search(rf"answers Kafka clients on .*?{name}://(\S+:\d+)", self.log)
        assert found is not None
        return found[1]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    with TlsBroker(tmp_path_factory.mktemp("tls")) as running:
        assert isinstance(running, TlsBroker)
        yield running


@pytest.fixture
def ca(tmp_path: Path) -> str:
    return written(tmp_path / "ca.pem", authority().certificate)


def skip_unless_here(name: str) -> None:
    if (reason := CLIENTS[name].missing()) is not None:
        pytest.skip(reason)


@pytest.mark.parametrize("client", list(CALLS))
def test_without_a_certificate_of_its_own(broker: TlsBroker, client: str, ca: str, tmp_path: Path) -> None:
    skip_unless_here(client)
    assert CALLS[client](broker.at("OPEN"), unique("topic"), Trust(ca), tmp_path) == COUNT


@pytest.mark.parametrize("client", list(CALLS))
def test_with_one(broker: TlsBroker, client: str, ca: str, tmp_path: Path) -> None:
    skip_unless_here(client)
    trust = Trust(ca, written(tmp_path / "client.pem", issued("CN=client,OU=x,O=y").both))
    assert CALLS[client](broker.at("MUTUAL"), unique("topic"), trust, tmp_path) == COUNT


@pytest.mark.parametrize("shown", ["none", "a stranger's"])
@pytest.mark.parametrize("client", list(CALLS))
def test_without_the_one_that_is_required(broker: TlsBroker, client: str, shown: str, ca: str, tmp_path: Path) -> None:
    skip_unless_here(client)
    theirs = issued("CN=client", "a stranger's CA").both
    trust = Trust(ca, None if shown == "none" else written(tmp_path / "client.pem", theirs))
    with pytest.raises(NotLetIn):
        CALLS[client](broker.at("MUTUAL"), unique("topic"), trust, tmp_path)


@pytest.mark.parametrize("client", list(CALLS))
def test_a_client_that_does_not_trust_the_broker_goes_away(broker: TlsBroker, client: str, tmp_path: Path) -> None:
    skip_unless_here(client)
    other = written(tmp_path / "other.pem", authority("another").certificate)
    with pytest.raises(NotLetIn):
        CALLS[client](broker.at("OPEN"), unique("topic"), Trust(other), tmp_path)


def test_a_certificate_that_changes_under_load_costs_no_record(broker: TlsBroker, ca: str) -> None:
    topic, failures, delivered = unique("topic"), list[KafkaError](), 0
    host, _, port = broker.at("OPEN").rpartition(":")

    def told(error: KafkaError | None, message: Message) -> None:
        nonlocal delivered
        delivered += error is None
        if error is not None:
            failures.append(error)

    def shown() -> str:
        return ssl.get_server_certificate((host, int(port)))

    producer = Producer(confluent_settings(broker.at("OPEN"), Trust(ca)) | {"linger.ms": 1})
    sent = 0
    for number in range(3):
        certificate = authority().issue(f"CN=renewed {number}", LOCAL)
        written(broker.keystore, certificate.both)
        before, wanted = shown(), certificate.certificate.decode()
        deadline = time.monotonic() + 20
        while before.split() != wanted.split() and time.monotonic() < deadline:
            for _ in range(50):
                producer.produce(topic, b"x" * 1000, on_delivery=told)
                sent += 1
            producer.poll(0.01)
            before = shown()
        assert before.split() == wanted.split()
        another = Producer(confluent_settings(broker.at("OPEN"), Trust(ca)))
        another.produce(topic, b"new")
        assert another.flush(20) == 0
    assert producer.flush(30) == 0
    assert not failures
    assert delivered == sent
    wait_for("a line of the log", lambda: "listener OPEN has loaded its certificates anew" in broker.log)
