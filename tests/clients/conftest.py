"""Fixtures: the broker that the clients connect to, and the clients.

The broker is Chronik's own unless CHRONIK_TEST_BOOTSTRAP names another one, such as `127.0.0.1:9092`, so that the same
tests can run against Apache Kafka. CHRONIK_TEST_WITHOUT_CLIENTS is then a comma-separated list of clients to leave out
because that broker no longer supports them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from . import recording
from .catalogue import SECURED
from .issuing import Issuer
from .running import Clients
from .securing import GuardedBroker

CONNECT_TIMEOUT_S = 30.0


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    external_bootstrap = os.environ.get("CHRONIK_TEST_BOOTSTRAP")
    return external_bootstrap or str(request.getfixturevalue("chronik_broker").bootstrap)


@pytest.fixture(autouse=True)
def _check_broker_is_reachable(bootstrap: str) -> None:
    """Fail immediately if the broker died, instead of after each client's timeout."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()


@pytest.fixture(scope="session")
def clients(bootstrap: str) -> Iterator[Clients]:
    left_out = os.environ.get("CHRONIK_TEST_WITHOUT_CLIENTS", "")
    running = Clients(bootstrap, frozenset(filter(None, left_out.split(","))))
    yield running
    running.close()


@pytest.fixture(scope="session")
def secured_clients(bootstrap: str) -> Iterator[Clients]:
    """Clients in separate processes, because some leave resources behind after a failed login."""
    running = Clients(bootstrap, frozenset(), SECURED)
    yield running
    running.close()


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with Issuer(tmp_path_factory.mktemp("issuer")) as running:
        yield running


@pytest.fixture(scope="session")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded"), issuer) as running:
        yield running


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(recording.FILE):
        config.pluginmanager.register(recording.Recorder(), "chronik-clients")
