"""TLS with every client: with and without client certificates, and during a certificate renewal under load."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from tests.run_size import IS_LONG_RUN, sized
from tests.tls.certificates import LOCAL_HOSTS, certificate_authority, issue_certificate, replace_file

from .client_catalog import SECURED_CLIENTS
from .client_process import ClientPool, ClientProcess, CommandFailed, wait_for
from .drivers.secured import COUNT, LOGIN_REJECTED, AccessSettings
from .secured_broker import MultiListenerBroker, write_and_check, write_and_read_in_background

pytestmark = pytest.mark.slow

UNDER_LOAD = list(SECURED_CLIENTS) if IS_LONG_RUN else ["confluent", "kafka-python", "java-4"]


def is_rejected(client: ClientProcess, access: AccessSettings) -> bool:
    with pytest.raises(CommandFailed) as raised:
        write_and_check(client, access)
    return raised.value.name == LOGIN_REJECTED


@pytest.mark.parametrize("listener", ["TLS", "MUTUAL_TLS"])
@pytest.mark.parametrize("client", list(SECURED_CLIENTS))
def test_client_connects_with_tls_and_mutual_tls(
    guarded_broker: MultiListenerBroker, secured_clients: ClientPool, client: str, listener: str
) -> None:
    assert write_and_check(secured_clients.get(client), guarded_broker.access_settings(listener)) == COUNT


@pytest.mark.parametrize("client_certificate", ["none", "untrusted"])
@pytest.mark.parametrize("client", list(SECURED_CLIENTS))
def test_mutual_tls_rejects_missing_or_untrusted_client_certificate(
    guarded_broker: MultiListenerBroker,
    secured_clients: ClientPool,
    client: str,
    client_certificate: str,
    tmp_path: Path,
) -> None:
    untrusted_certificate = replace_file(
        tmp_path / "client.pem", issue_certificate("CN=client", "untrusted CA").keystore_pem
    )
    access = replace(
        guarded_broker.access_settings("MUTUAL_TLS"),
        pem=None if client_certificate == "none" else untrusted_certificate,
    )
    assert is_rejected(secured_clients.get(client), access)


@pytest.mark.parametrize("client", list(SECURED_CLIENTS))
def test_client_rejects_untrusted_broker_certificate(
    guarded_broker: MultiListenerBroker, secured_clients: ClientPool, client: str, tmp_path: Path
) -> None:
    other = replace_file(tmp_path / "other.pem", certificate_authority("another").certificate_pem)
    assert is_rejected(secured_clients.get(client), replace(guarded_broker.access_settings("TLS"), ca=other))


@pytest.mark.parametrize("client", UNDER_LOAD)
def test_certificate_renewal_under_load_loses_no_records(
    guarded_broker: MultiListenerBroker, secured_clients: ClientPool, client: str, tmp_path: Path
) -> None:
    running = secured_clients.get(client)
    host, _, port = guarded_broker.listener_address("TLS").rpartition(":")
    before = len(guarded_broker.log)
    with write_and_read_in_background(guarded_broker, running, guarded_broker.access_settings("TLS"), tmp_path) as load:
        for number in range(sized(1, 3)):
            certificate = certificate_authority().issue(f"CN=renewed {number}", LOCAL_HOSTS)
            wanted = certificate.certificate.decode().split()
            replace_file(guarded_broker.keystore, certificate.keystore_pem)
            wait_for("new certificate", lambda: ssl.get_server_certificate((host, int(port))).split() == wanted)  # noqa: B023
    assert load.result() > COUNT
    assert write_and_check(running, guarded_broker.access_settings("TLS")) == COUNT
    assert "listener TLS: certificate reloaded" in guarded_broker.log[before:]
