"""Sessions that end, KIP-368: clients say again who they are while they write and read, and no record is lost."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from chronik.testing.seen import SEEN_REQUESTS_MAX
from tests.long import LONG, count

from .catalogue import SECURED
from .drivers.secured import Way
from .issuing import Issuer
from .running import Clients, RunningClient, wait_for
from .securing import SHORT_SESSION_MS, GuardedBroker, writing_and_reading

pytestmark = pytest.mark.slow

TOKEN_SECONDS = defaultdict(lambda: 4.0, confluent=8.0)
"""librdkafka asks for another token after 80 % of the first, and shows it after 90 %."""

SESSIONS = count(2, 4)

COME_BACK = ("aiokafka",)
"""They do not know of sessions that end: their connections do, here as in Kafka, and they make new ones."""
RENEW = [client for client in SECURED if client not in COME_BACK]

LINES = ["SASL", "SASL_TLS"] if LONG else ["SASL"]


class Connections:
    """What a client writes by and what it reads by, and when it said on each who it is. One that is lost has another in
    its place, which is one more."""

    def __init__(self, broker: GuardedBroker) -> None:
        self._broker = broker
        self._since = time.time()
        self._logins: defaultdict[int, set[float]] = defaultdict(set)
        self._used: dict[str, set[int]] = {"Produce": set(), "Fetch": set()}

    def are_renewed(self, session_s: float) -> bool:
        """There is one of each, and what it showed first holds no more."""
        self._look()
        firsts = [sorted(self._logins[each]) for used in self._used.values() for each in used]
        return len(firsts) == 2 and all(
            len(logins) >= SESSIONS and time.time() > logins[0] + (SESSIONS - 1) * session_s for logins in firsts
        )

    def are_replaced(self) -> bool:
        """There is one of each for each session."""
        self._look()
        return all(len(used) >= SESSIONS for used in self._used.values())

    def _look(self) -> None:
        """A broker remembers its last requests only."""
        for each in self._broker.last_requests(SEEN_REQUESTS_MAX):
            if each.answered_at < self._since:
                continue
            if each.api == "SaslHandshake":
                self._logins[each.connection].add(each.answered_at)
            elif each.api in self._used:
                self._used[each.api].add(each.connection)


def write_and_read_until(
    state: Callable[[Connections], bool], broker: GuardedBroker, client: RunningClient, way: Way, folder: Path
) -> None:
    connections = Connections(broker)
    with writing_and_reading(broker, client, way, folder) as load:
        wait_for("sessions that follow others", lambda: load.done() or state(connections))
    assert load.result() > 0


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("client", RENEW)
def test_a_token_that_expires_is_followed_by_another(
    guarded_broker: GuardedBroker, issuer: Issuer, secured_clients: Clients, client: str, line: str, tmp_path: Path
) -> None:
    seconds, running = TOKEN_SECONDS[client], secured_clients.get(client)
    way = guarded_broker.way(line, "OAUTHBEARER", issuer.url(seconds))
    write_and_read_until(lambda it: it.are_renewed(seconds), guarded_broker, running, way, tmp_path)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("client", COME_BACK)
def test_clients_that_cannot_do_that_come_back_and_lose_nothing(
    guarded_broker: GuardedBroker, issuer: Issuer, secured_clients: Clients, client: str, line: str, tmp_path: Path
) -> None:
    running, way = (
        secured_clients.get(client),
        guarded_broker.way(line, "OAUTHBEARER", issuer.url(TOKEN_SECONDS[client])),
    )
    write_and_read_until(Connections.are_replaced, guarded_broker, running, way, tmp_path)


@pytest.mark.parametrize("client", RENEW if LONG else ["java-3.9", "java-4"])
def test_passwords_are_said_again(
    guarded_broker: GuardedBroker, secured_clients: Clients, client: str, tmp_path: Path
) -> None:
    running, way = secured_clients.get(client), guarded_broker.way("SASL_SHORT", "SCRAM-SHA-512")
    seconds = SHORT_SESSION_MS / 1000
    write_and_read_until(lambda it: it.are_renewed(seconds), guarded_broker, running, way, tmp_path)
