"""TLS with every client: with and without client certificates, and during a certificate renewal under load."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from tests.long import LONG, count
from tests.tls.certificates import LOCAL, authority, issued, written

from .catalogue import SECURED
from .drivers.secured import COUNT, LOGIN_REJECTED, AccessSettings
from .running import Clients, CommandFailed, RunningClient, wait_for
from .securing import GuardedBroker, write_and_check, writing_and_reading

pytestmark = pytest.mark.slow

UNDER_LOAD = list(SECURED) if LONG else ["confluent", "kafka-python", "java-4"]


def is_rejected(client: RunningClient, access: AccessSettings) -> bool:
    with pytest.raises(CommandFailed) as raised:
        write_and_check(client, access)
    return raised.value.name == LOGIN_REJECTED


@pytest.mark.parametrize("listener", ["TLS", "MUTUAL_TLS"])
@pytest.mark.parametrize("client", list(SECURED))
def test_client_connects_with_tls_and_mutual_tls(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, listener: str
) -> None:
    assert write_and_check(secured_clients.get(client), guarded_broker.access(listener)) == COUNT


@pytest.mark.parametrize("client_certificate", ["none", "untrusted"])
@pytest.mark.parametrize("client", list(SECURED))
def test_mutual_tls_rejects_missing_or_untrusted_client_certificate(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, client_certificate: str, tmp_path: Path
) -> None:
    untrusted_certificate = written(tmp_path / "client.pem", issued("CN=client", "untrusted CA").both)
    access = replace(
        guarded_broker.access("MUTUAL_TLS"), pem=None if client_certificate == "none" else untrusted_certificate
    )
    assert is_rejected(secured_clients.get(client), access)


@pytest.mark.parametrize("client", list(SECURED))
def test_client_rejects_untrusted_broker_certificate(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, tmp_path: Path
) -> None:
    other = written(tmp_path / "other.pem", authority("another").certificate)
    assert is_rejected(secured_clients.get(client), replace(guarded_broker.access("TLS"), ca=other))


@pytest.mark.parametrize("client", UNDER_LOAD)
def test_certificate_renewal_under_load_loses_no_records(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, tmp_path: Path
) -> None:
    running = secured_clients.get(client)
    host, _, port = guarded_broker.listener_address("TLS").rpartition(":")
    before = len(guarded_broker.log)
    with writing_and_reading(guarded_broker, running, guarded_broker.access("TLS"), tmp_path) as load:
        for number in range(count(1, 3)):
            certificate = authority().issue(f"CN=renewed {number}", LOCAL)
            wanted = certificate.certificate.decode().split()
            written(guarded_broker.keystore, certificate.both)
            wait_for("new certificate", lambda: ssl.get_server_certificate((host, int(port))).split() == wanted)  # noqa: B023
    assert load.result() > COUNT
    assert write_and_check(running, guarded_broker.access("TLS")) == COUNT
    assert "listener TLS has loaded its certificates anew" in guarded_broker.log[before:]
