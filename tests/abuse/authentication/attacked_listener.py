"""Listeners with TLS or SASL: each node has one in addition to its plaintext listener, and the probe uses it.

The attacker uses a different loopback address (Linux accepts all of 127.0.0.0/8), because limits apply per address.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from chronik.client.access.settings import ClientSecurity, parse_security
from chronik.client.cluster import ClusterClient as Client
from chronik.client.connection import BrokerConnection
from chronik.client.errors import ClientError
from chronik.client.security import set_password
from chronik.config import Address
from chronik.security.sasl.outcomes import MECHANISMS, OAUTHBEARER
from chronik.security.sasl.scram_keys import ITERATIONS_MIN, MECHANISMS_BY_NAME
from chronik.testing.cluster import POLL_SECONDS, Cluster, ClusterNode
from chronik.testing.ports import HOST, ReservedPorts
from chronik.tls.certificate_authority import CertificateAuthority
from tests.clients.token_issuer import TokenIssuer

ATTACKER_HOST: Final = "127.0.0.2"
PROBE_USER: Final = "probe"
TOKEN_SECONDS: Final = 3600.0
OPEN_SECONDS_MAX: Final = 60.0


class AttackedListener:
    """The security configuration of a listener: certificates, credentials and client settings in one directory."""

    def __init__(self, protocol: str, mechanism: str, directory: Path) -> None:
        self._protocol = protocol
        self._directory = directory
        self._password = secrets.token_urlsafe()
        self.broker: dict[str, str] = {"sasl.enabled.mechanisms": ",".join(MECHANISMS)}
        """Configs of the nodes."""
        self.settings: dict[str, str] = {"security.protocol": protocol}
        """Client settings of the probe."""
        directory.mkdir(parents=True)
        if "SSL" in protocol:
            self._create_certificates()
        if "SASL" in protocol:
            self._create_credentials(mechanism)

    def _create_certificates(self) -> None:
        authority = CertificateAuthority("abuse")
        keystore, trusted = self._directory / "node.pem", self._directory / "ca.pem"
        keystore.write_bytes(authority.issue("CN=node", [HOST]).keystore_pem)
        trusted.write_bytes(authority.certificate_pem)
        self.broker |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
        self.settings |= {"ssl.ca.location": str(trusted)}

    def _create_credentials(self, mechanism: str) -> None:
        issuer, token = TokenIssuer(self._directory), self._directory / "token"
        token.write_text(issuer.create_token(TOKEN_SECONDS, sub=PROBE_USER))
        self.broker |= {"sasl.oauthbearer.jwks.endpoint.url": issuer.file.as_uri()}
        self.settings |= {"sasl.mechanism": mechanism}
        if mechanism == OAUTHBEARER:
            self.settings |= {"sasl.oauthbearer.token.endpoint.url": token.as_uri()}
        else:
            self.settings |= {"sasl.username": PROBE_USER, "sasl.password": self._password}

    def listeners(self, kafka: Address, guarded: Address) -> str:
        return f"PLAINTEXT://{kafka},{self._protocol}://{guarded}"

    @property
    def settings_file(self) -> Path:
        path = self._directory / "client.json"
        path.write_text(json.dumps(self.settings))
        return path

    @property
    def security(self) -> ClientSecurity:
        return parse_security(self.settings)

    def wait_until_ready(self, nodes: list[NodeWithSecuredListener]) -> None:
        """Create the probe's user, and wait until every node authenticates it."""
        with Client(nodes[0].bootstrap, client_id="abuse") as client:
            set_password(client, PROBE_USER, self._password, list(MECHANISMS_BY_NAME), ITERATIONS_MIN)
        deadline = time.monotonic() + OPEN_SECONDS_MAX
        for node in nodes:
            while not self._authenticates(node):
                assert time.monotonic() < deadline, f"{node} does not authenticate the probe"
                time.sleep(POLL_SECONDS)

    def _authenticates(self, node: NodeWithSecuredListener) -> bool:
        try:
            BrokerConnection(node.secured_address, security=self.security).close()
        except ClientError:
            return False
        return True


class NodeWithSecuredListener(ClusterNode):
    """A node with a plaintext listener and a second, secured listener (`guarded`)."""

    def __init__(
        self, listener: AttackedListener, directory: Path, kafka: Address, http: Address, **config: Any
    ) -> None:
        self._reserved = ReservedPorts(1)
        self.secured_address = Address(HOST, self._reserved.ports[0])
        broker = (
            {"listeners": listener.listeners(kafka, self.secured_address)} | listener.broker | config.pop("broker", {})
        )
        super().__init__(directory, kafka, http, broker=broker, **config)

    def release(self) -> None:
        self._reserved.release()


class AttackCluster(Cluster):
    """A cluster whose nodes are created by a given function."""

    def __init__(self, new_node: Callable[..., ClusterNode], directory: Path, **config: Any) -> None:
        self._make = new_node
        super().__init__(3, directory, **config)

    def _new_node(self, folder: Path, kafka: Address, http: Address, **config: Any) -> ClusterNode:
        return disable_request_recording(self._make(folder, kafka, http, **config))

    def close(self) -> None:
        super().close()
        for node in self.nodes.values():
            if isinstance(node, NodeWithSecuredListener):
                node.release()


def disable_request_recording(node: ClusterNode) -> ClusterNode:
    """Disable request recording, which only tests need and which would distort the measurements."""
    node.records_requests = False
    return node


def attacked_address(node: ClusterNode) -> Address:
    """Return the address of the attacked listener: the secured one if the node has one."""
    return node.secured_address if isinstance(node, NodeWithSecuredListener) else node.kafka
