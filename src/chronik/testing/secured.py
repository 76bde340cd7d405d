"""A broker for tests with TLS, SASL authentication and ACLs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from chronik.client.access.settings import BootstrapAccess, parse_security
from chronik.client.cluster import ClusterClient
from chronik.client.security import AclBinding, add_acls, set_password
from chronik.protocol.permissions import CLUSTER_NAME, AclOperation, AclResourceType
from chronik.security.acls import AclPermission, PatternType
from chronik.security.sasl.outcomes import SCRAM_SHA_256
from chronik.security.sasl.scram_keys import ITERATIONS_MIN, MECHANISMS_BY_NAME
from chronik.testing.broker import HOST, Broker
from chronik.testing.broker_process import FIRST_USER_KEY

ADMIN: Final = "admin"


class SecuredBroker(Broker):
    """A standalone node with TLS, PLAIN and SCRAM. Its users have only the permissions granted by ACLs.

    The user `admin` is a super user.

        with SecuredBroker(users={"alice": "wonderland"}) as broker:
            broker.allow("alice", "Write", topic="orders")
            Producer(broker.settings("alice"))

    With `tls=False`, connections are not encrypted. With `acls=False`, authenticated users may do everything.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        users: Mapping[str, str] | None = None,
        tls: bool = True,
        acls: bool = True,
        **config: Any,
    ) -> None:
        """Create a broker without starting it.

        Raises:
            ConfigError: The config is invalid.
        """
        self._passwords = {ADMIN: secrets.token_urlsafe()} | dict(users or {})
        self._has_users = False
        self._protocol = "SASL_SSL" if tls else "SASL_PLAINTEXT"
        security = {
            "listener.security.protocol.map": f"PLAINTEXT:{self._protocol}",
            "sasl.enabled.mechanisms": ",".join(["PLAIN", *MECHANISMS_BY_NAME]),
        }
        if acls:
            security |= {"authorizer.class.name": "standard", "super.users": f"User:{ADMIN}"}
        super().__init__(folder, **config)
        if tls:
            security |= self._create_certificates()
        self._config["broker"] = security | self._config.get("broker", {})
        self._config[FIRST_USER_KEY] = [ADMIN, self._passwords[ADMIN]]

    def _create_certificates(self) -> dict[str, str]:
        """Create a CA and a server certificate for this machine, and return the broker configs that use it."""
        from chronik.tls.certificate_authority import CertificateAuthority

        authority = CertificateAuthority("chronik-testing")
        self._folder.mkdir(parents=True, exist_ok=True)
        keystore = self._folder / "broker.pem"
        keystore.touch(0o600)
        keystore.write_bytes(authority.issue("CN=broker", [HOST, "localhost"]).keystore_pem)
        self.ca_file.write_bytes(authority.certificate_pem)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}

    @property
    def ca_file(self) -> Path:
        """Return the path of the CA certificate that clients must trust."""
        return self._folder / "ca.pem"

    def start(self) -> SecuredBroker:
        super().start()
        if not self._has_users:
            with self.cluster() as cluster:
                for name, password in self._passwords.items():
                    if name != ADMIN:
                        set_password(cluster, name, password, list(MECHANISMS_BY_NAME), ITERATIONS_MIN)
            self._has_users = True
        return self

    def settings(self, user: str = ADMIN, mechanism: str = SCRAM_SHA_256) -> dict[str, str]:
        """Return a user's client settings in librdkafka's format, as for `chronik … --client-config`."""
        found = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": self._protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": self._passwords[user],
        }
        return found | ({"ssl.ca.location": str(self.ca_file)} if self._protocol == "SASL_SSL" else {})

    def registry_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Return a user's settings for clients of the broker's schema registry, which has no TLS."""
        return super().registry_settings() | {"basic.auth.user.info": f"{user}:{self._passwords[user]}"}

    def cluster(self, user: str = ADMIN) -> ClusterClient:
        """Return a cluster client authenticated as the user."""
        return ClusterClient(
            BootstrapAccess(self.bootstrap, parse_security(self.settings(user))), client_id="chronik-testing"
        )

    def allow(self, user: str, operation: str, **resource: str) -> None:
        """Grant a permission, such as `allow("alice", "Read", topic="orders")`.

        Resources are `topic`, `group`, `transactional_id`, `subject` and `cluster`; the name may be "*".
        """
        ((kind, name),) = resource.items()
        resource_type = AclResourceType[kind.upper()]
        literal = AclBinding(
            resource_type,
            CLUSTER_NAME if resource_type is AclResourceType.CLUSTER else name,
            PatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()],
            AclPermission.ALLOW,
        )
        with self.cluster() as cluster:
            add_acls(cluster, [literal])
