"""The broker that the clients talk to, and the clients.

The broker is Chronik's own, unless CHRONIK_TEST_BOOTSTRAP names another, as `127.0.0.1:9092`: so the same tests show
what Apache Kafka does. CHRONIK_TEST_WITHOUT_CLIENTS then leaves out clients that broker no longer serves, by name, with
commas between them.
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
    outside = os.environ.get("CHRONIK_TEST_BOOTSTRAP")
    return outside or str(request.getfixturevalue("chronik_broker").bootstrap)


@pytest.fixture(autouse=True)
def _the_broker_still_answers(bootstrap: str) -> None:
    """A broker that died fails every test at once, instead of after each client's patience."""
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
    """Processes of their own: some that are not let in leave things behind."""
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
