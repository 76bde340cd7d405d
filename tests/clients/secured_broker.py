"""A broker with a listener for every security protocol, and access settings for its clients."""

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
from tests.security.sasl.sasl_broker import put_user
from tests.tls.certificates import certificate_authority, issue_certificate, replace_file

from .client_process import ClientProcess, unique_name, wait_for
from .drivers.secured import AccessSettings
from .token_issuer import TokenIssuer

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
USER = "alice"
PASSWORD = "s3cret, with =, and ü"
SHORT_SESSION_MS = 2000

LISTENER_PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "TLS": "SSL",
    "MUTUAL_TLS": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASL_TLS": "SASL_SSL",
    "SASL_MUTUAL_TLS": "SASL_SSL",
    "SASL_SHORT": "SASL_PLAINTEXT",
}
"""Listener names and their protocols.

MUTUAL listeners require client certificates. SASL_SHORT requires frequent reauthentication.
"""


class MultiListenerBroker(Broker):
    """A broker that requires authentication on all listeners but PLAINTEXT."""

    def __init__(self, directory: Path, issuer: TokenIssuer) -> None:
        self.keystore = directory / "node.pem"
        self.ca = replace_file(directory / "ca.pem", certificate_authority().certificate_pem)
        self._client_pem = replace_file(directory / "client.pem", issue_certificate("CN=client,OU=x,O=y").keystore_pem)
        listeners = {name: "127.0.0.1:0" if name == "PLAINTEXT" else "localhost:0" for name in LISTENER_PROTOCOLS}
        super().__init__(
            directory,
            broker={
                "listeners": ",".join(f"{name}://{address}" for name, address in listeners.items()),
                "listener.security.protocol.map": ",".join(
                    f"{name}:{listener}" for name, listener in LISTENER_PROTOCOLS.items()
                ),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": replace_file(self.keystore, issue_certificate("CN=node").keystore_pem),
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

    def listener_address(self, listener: str) -> str:
        found = re.search(rf"answers Kafka clients on .*?\b{listener}://(\S+:\d+)", self.log)
        assert found is not None
        return found[1]

    def access_settings(self, listener: str, mechanism: str | None = None, secret: str = PASSWORD) -> AccessSettings:
        """Return valid access settings for a listener, with a new topic."""
        ca = self.ca if LISTENER_PROTOCOLS[listener].endswith("SSL") else None
        pem = self._client_pem if "MUTUAL" in listener else None
        return AccessSettings(self.listener_address(listener), unique_name("topic"), ca, pem, mechanism, USER, secret)


def write_and_check(client: ClientProcess, access: AccessSettings, until: Path | None = None) -> int:
    """Write records, check that they are read once and in order, and return their number. Raises CommandFailed."""
    result = client.call("write_and_read", until=until and str(until), **asdict(access))
    assert result["read"] == list(range(result["written"]))
    return int(result["written"])


@contextmanager
def write_and_read_in_background(
    broker: MultiListenerBroker, client: ClientProcess, access: AccessSettings, directory: Path
) -> Iterator[Future[int]]:
    """Write and read records during the `with` block; the future then has the result of `write_and_check`.

    The future is done earlier only if writing or reading fails.
    """
    stop_file, started_at = directory / "enough", time.time()

    def is_reading() -> bool:
        return any(each.api == "Fetch" and each.answered_at > started_at for each in broker.last_requests())

    with ThreadPoolExecutor(1) as thread:
        load = thread.submit(write_and_check, client, access, stop_file)
        try:
            wait_for("records to be read", lambda: load.done() or is_reading())
            yield load
        finally:
            stop_file.touch()
