"""Every client over TLS with its ordinary settings, with certificates of its own and without; and under load a node's
certificate changes without a record lost."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from tests.long import LONG, count
from tests.tls.certificates import LOCAL, authority, issued, written

from .catalogue import SECURED
from .drivers.secured import COUNT, NOT_LET_IN, Way
from .running import Clients, CommandFailed, RunningClient, wait_for
from .securing import GuardedBroker, came_in, writing_and_reading

pytestmark = pytest.mark.slow

UNDER_LOAD = list(SECURED) if LONG else ["confluent", "kafka-python", "java-4"]


def is_not_let_in(client: RunningClient, way: Way) -> bool:
    with pytest.raises(CommandFailed) as refused:
        came_in(client, way)
    return refused.value.name == NOT_LET_IN


@pytest.mark.parametrize("line", ["TLS", "MUTUAL_TLS"])
@pytest.mark.parametrize("client", list(SECURED))
def test_with_what_is_asked_for(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, line: str
) -> None:
    assert came_in(secured_clients.get(client), guarded_broker.way(line)) == COUNT


@pytest.mark.parametrize("shown", ["none", "a stranger's"])
@pytest.mark.parametrize("client", list(SECURED))
def test_without_the_certificate_that_is_required(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, shown: str, tmp_path: Path
) -> None:
    theirs = written(tmp_path / "client.pem", issued("CN=client", "a stranger's CA").both)
    way = replace(guarded_broker.way("MUTUAL_TLS"), pem=None if shown == "none" else theirs)
    assert is_not_let_in(secured_clients.get(client), way)


@pytest.mark.parametrize("client", list(SECURED))
def test_a_client_that_does_not_trust_the_broker_goes_away(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, tmp_path: Path
) -> None:
    other = written(tmp_path / "other.pem", authority("another").certificate)
    assert is_not_let_in(secured_clients.get(client), replace(guarded_broker.way("TLS"), ca=other))


@pytest.mark.parametrize("client", UNDER_LOAD)
def test_a_certificate_that_changes_under_load_costs_no_record(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, tmp_path: Path
) -> None:
    running = secured_clients.get(client)
    host, _, port = guarded_broker.at("TLS").rpartition(":")
    before = len(guarded_broker.log)
    with writing_and_reading(guarded_broker, running, guarded_broker.way("TLS"), tmp_path) as load:
        for number in range(count(1, 3)):
            certificate = authority().issue(f"CN=renewed {number}", LOCAL)
            wanted = certificate.certificate.decode().split()
            written(guarded_broker.keystore, certificate.both)
            wait_for("new certificate", lambda: ssl.get_server_certificate((host, int(port))).split() == wanted)  # noqa: B023
    assert load.result() > COUNT
    assert came_in(running, guarded_broker.way("TLS")) == COUNT
    assert "listener TLS has loaded its certificates anew" in guarded_broker.log[before:]
