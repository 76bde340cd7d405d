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

from . import compatibility_recorder
from .client_catalog import SECURED_CLIENTS
from .client_process import ClientPool
from .secured_broker import MultiListenerBroker
from .token_issuer import TokenIssuer

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
def clients(bootstrap: str) -> Iterator[ClientPool]:
    left_out = os.environ.get("CHRONIK_TEST_WITHOUT_CLIENTS", "")
    running = ClientPool(bootstrap, frozenset(filter(None, left_out.split(","))))
    yield running
    running.close()


@pytest.fixture(scope="session")
def secured_clients(bootstrap: str) -> Iterator[ClientPool]:
    """Clients in separate processes, because some leave resources behind after a failed login."""
    running = ClientPool(bootstrap, frozenset(), SECURED_CLIENTS)
    yield running
    running.close()


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuer]:
    with TokenIssuer(tmp_path_factory.mktemp("issuer")) as running:
        yield running


@pytest.fixture(scope="session")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory, issuer: TokenIssuer) -> Iterator[MultiListenerBroker]:
    with MultiListenerBroker(tmp_path_factory.mktemp("guarded"), issuer) as running:
        yield running


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get(compatibility_recorder.OUTPUT_VARIABLE):
        config.pluginmanager.register(compatibility_recorder.CompatibilityRecorder(), "chronik-clients")
