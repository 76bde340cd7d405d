"""A broker that asks clients who they are, over every line and by every mechanism, and how clients come to it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from chronik.testing import Broker
from tests.raw import RawClient
from tests.security.sasl.asking import put_user
from tests.tls.certificates import authority, issued, written

from .drivers.secured import Way
from .issuing import Issuer
from .running import RunningClient, unique, wait_for

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
USER = "alice"
PASSWORD = "s3cret, with =, and ü"
SHORT_SESSION_MS = 2000

LINES = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL_TLS": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASL_TLS": "SASL_SSL",
    "SASL_MUTUAL_TLS": "SASL_SSL",
    "SASL_SHORT": "SASL_PLAINTEXT",
}
"""The broker's listeners, and their protocols. Where TLS is mutual clients must show a certificate, and where sessions
are short they must say again who they are."""


class GuardedBroker(Broker):
    def __init__(self, folder: Path, issuer: Issuer) -> None:
        self.keystore = folder / "node.pem"
        self.ca = written(folder / "ca.pem", authority().certificate)
        self._client_pem = written(folder / "client.pem", issued("CN=client,OU=x,O=y").both)
        listeners = {name: "127.0.0.1:0" if name == "PLAINTEXT" else "localhost:0" for name in LINES}
        super().__init__(
            folder,
            broker={
                "listeners": ",".join(f"{name}://{place}" for name, place in listeners.items()),
                "listener.security.protocol.map": ",".join(f"{name}:{line}" for name, line in LINES.items()),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": written(self.keystore, issued("CN=node").both),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.ca,
                "listener.name.mutual_tls.ssl.client.auth": "required",
                "listener.name.sasl_mutual_tls.ssl.client.auth": "required",
                "listener.name.sasl_short.connections.max.reauth.ms": SHORT_SESSION_MS,
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "sasl.oauthbearer.jwks.endpoint.url": issuer.file.as_uri(),
                "sasl.oauthbearer.expected.audience": "kafka",
                "sasl.oauthbearer.expected.issuer": "tests",
            },
        )

    def start(self) -> Broker:
        started = super().start()
        with RawClient(self.bootstrap) as client:
            put_user(client, USER, PASSWORD)
        return started

    def at(self, line: str) -> str:
        found = re.search(rf"answers Kafka clients on .*?\b{line}://(\S+:\d+)", self.log)
        assert found is not None
        return found[1]

    def way(self, line: str, mechanism: str | None = None, secret: str = PASSWORD) -> Way:
        """To a topic of its own, with what is right on that line."""
        ca = self.ca if LINES[line].endswith("SSL") else None
        pem = self._client_pem if "MUTUAL" in line else None
        return Way(self.at(line), unique("topic"), ca, pem, mechanism, USER, secret)


def came_in(client: RunningClient, way: Way, until: Path | None = None) -> int:
    """How many records it wrote, of which it has read each once and in their order. Raises CommandFailed."""
    told = client.call("write_and_read", until=until and str(until), **asdict(way))
    assert told["read"] == list(range(told["written"]))
    return int(told["written"])


@contextmanager
def writing_and_reading(broker: GuardedBroker, client: RunningClient, way: Way, folder: Path) -> Iterator[Future[int]]:
    """Is under way when it begins, and goes on until the end; then the future has what `came_in` tells. It is done
    before only if that fails."""
    enough, began = folder / "enough", time.time()

    def reads() -> bool:
        return any(each.api == "Fetch" and each.answered_at > began for each in broker.last_requests())

    with ThreadPoolExecutor(1) as thread:
        load = thread.submit(came_in, client, way, enough)
        try:
            wait_for("records to be read", lambda: load.done() or reads())
            yield load
        finally:
            enough.touch()
