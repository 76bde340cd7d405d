"""Reauthentication (KIP-368): clients authenticate again while they write and read, and no record is lost."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.testing.seen import RECORDED_REQUESTS_MAX
from tests.run_size import IS_LONG_RUN, sized

from .client_catalog import SECURED_CLIENTS
from .client_process import ClientPool, ClientProcess, wait_for
from .drivers.secured import AccessSettings
from .secured_broker import SHORT_SESSION_MS, MultiListenerBroker, write_and_read_in_background
from .token_issuer import TokenIssuer

pytestmark = pytest.mark.slow

TOKEN_SECONDS = defaultdict(lambda: 4.0, confluent=8.0)
"""librdkafka requests a new token after 80 % of the lifetime and uses it after 90 %."""

SESSIONS = sized(2, 4)

RECONNECTING_CLIENTS = ("aiokafka",)
"""Clients without reauthentication: the broker closes their connections, and they reconnect."""
REAUTHENTICATING_CLIENTS = [client for client in SECURED_CLIENTS if client not in RECONNECTING_CLIENTS]

LISTENERS = ["SASL", "SASL_TLS"] if IS_LONG_RUN else ["SASL"]


class Connections:
    """The connections that a client writes and reads with, and the logins on each. A reconnect adds a connection."""

    def __init__(self, broker: MultiListenerBroker) -> None:
        self._broker = broker
        self._since = time.time()
        self._logins: defaultdict[int, set[float]] = defaultdict(set)
        self._connections_by_api: dict[str, set[int]] = {"Produce": set(), "Fetch": set()}

    def are_renewed(self, session_s: float) -> bool:
        """Return whether there is one connection each with several logins, older than the first session."""
        self._update()
        firsts = [
            sorted(self._logins[each])
            for connection_ids in self._connections_by_api.values()
            for each in connection_ids
        ]
        return len(firsts) == 2 and all(
            len(logins) >= SESSIONS and time.time() > logins[0] + (SESSIONS - 1) * session_s for logins in firsts
        )

    def are_replaced(self) -> bool:
        """Return whether there was a new connection each for every session."""
        self._update()
        return all(len(connection_ids) >= SESSIONS for connection_ids in self._connections_by_api.values())

    def _update(self) -> None:
        """Update from the broker's recorded requests, of which it keeps only the latest."""
        for each in self._broker.last_requests(RECORDED_REQUESTS_MAX):
            if each.answered_at < self._since:
                continue
            if each.api == "SaslHandshake":
                self._logins[each.connection].add(each.answered_at)
            elif each.api in self._connections_by_api:
                self._connections_by_api[each.api].add(each.connection)


def write_and_read_until(
    state: Callable[[Connections], bool],
    broker: MultiListenerBroker,
    client: ClientProcess,
    access: AccessSettings,
    directory: Path,
) -> None:
    connections = Connections(broker)
    with write_and_read_in_background(broker, client, access, directory) as load:
        wait_for("several sessions", lambda: load.done() or state(connections))
    assert load.result() > 0


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("client", REAUTHENTICATING_CLIENTS)
def test_client_reauthenticates_with_new_token(
    guarded_broker: MultiListenerBroker,
    issuer: TokenIssuer,
    secured_clients: ClientPool,
    client: str,
    listener: str,
    tmp_path: Path,
) -> None:
    seconds, running = TOKEN_SECONDS[client], secured_clients.get(client)
    access = guarded_broker.access_settings(listener, "OAUTHBEARER", issuer.token_url(seconds))
    write_and_read_until(lambda observed: observed.are_renewed(seconds), guarded_broker, running, access, tmp_path)


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("client", RECONNECTING_CLIENTS)
def test_client_without_reauthentication_reconnects_without_loss(
    guarded_broker: MultiListenerBroker,
    issuer: TokenIssuer,
    secured_clients: ClientPool,
    client: str,
    listener: str,
    tmp_path: Path,
) -> None:
    running, access = (
        secured_clients.get(client),
        guarded_broker.access_settings(listener, "OAUTHBEARER", issuer.token_url(TOKEN_SECONDS[client])),
    )
    write_and_read_until(Connections.are_replaced, guarded_broker, running, access, tmp_path)


@pytest.mark.parametrize("client", REAUTHENTICATING_CLIENTS if IS_LONG_RUN else ["java-3.9", "java-4"])
def test_client_reauthenticates_with_password(
    guarded_broker: MultiListenerBroker, secured_clients: ClientPool, client: str, tmp_path: Path
) -> None:
    running, access = secured_clients.get(client), guarded_broker.access_settings("SASL_SHORT", "SCRAM-SHA-512")
    seconds = SHORT_SESSION_MS / 1000
    write_and_read_until(lambda observed: observed.are_renewed(seconds), guarded_broker, running, access, tmp_path)
