"""Creation of a node's TLS configuration, authorizer and first user.

The code of TLS and ACLs is imported on demand, because a node without them starts faster.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from chronik.config import NodeConfig
from chronik.configs.resolver import ConfigResolver
from chronik.listeners import SASL_SSL, SSL
from chronik.metadata.commands.security import AlterScramUser
from chronik.metadata.delta import Delta
from chronik.metadata.stores.store import MetadataStore
from chronik.protocol.errors import ErrorCode, KafkaError
from chronik.server.connection import ListenerLimits

if TYPE_CHECKING:
    from chronik.console.https import HttpTls
    from chronik.security.authorizer import Authorizer
    from chronik.server.tls_listener import TlsListeners

logger = logging.getLogger("chronik.node")

RETRY_SECONDS: Final = 0.5


def create_tls_listeners(config: NodeConfig, limits: ListenerLimits) -> TlsListeners | None:
    """Return the TLS configuration of the Kafka listeners, or None if no listener uses TLS.

    Raises:
        ConfigError: A config or a certificate file is invalid.
    """
    tls_listeners = [listener for listener in config.listeners if listener.protocol in (SSL, SASL_SSL)]
    if not tls_listeners:
        return None
    from chronik.security.principal_rules import PrincipalRules
    from chronik.server.tls_listener import TlsListenerConfig, TlsListeners
    from chronik.tls.contexts import ReloadableTlsContext
    from chronik.tls.settings import read_tls_settings

    secured = {}
    for listener in tls_listeners:
        settings = read_tls_settings(listener.name, listener.protocol, config.broker)
        rules = PrincipalRules(settings.principal_rules)
        context = ReloadableTlsContext(f"listener {listener.name}", settings)
        secured[listener.name] = TlsListenerConfig(context, rules if listener.protocol == SSL else None)
    return TlsListeners(secured, limits)


def create_http_tls(config: NodeConfig) -> HttpTls | None:
    """Return the TLS configuration of the HTTP server, or None if it does not use TLS.

    Raises:
        ConfigError: A certificate file is invalid.
    """
    if config.http_keystore is None or (config.http is None and config.registry is None):
        return None
    from chronik.console.https import HttpTls

    return HttpTls(config.http_keystore, config.http_truststore)


def create_node_authorizer(configs: ConfigResolver) -> Authorizer | None:
    """Return the authorizer that the broker configs enable, or None if they enable none."""
    if not configs.broker_value("authorizer.class.name"):
        return None
    from chronik.security.authorizer import create_authorizer

    return create_authorizer(configs.broker_value)


async def add_first_user(store: MetadataStore, command: AlterScramUser) -> None:
    """Add the SCRAM user of `chronik start --add-scram` unless the cluster already has users.

    Waits until the cluster is bootstrapped.
    """
    await _wait_for_bootstrap(store)
    while not store.image.users.by_name:
        try:
            await store.propose(command)
        except KafkaError as error:
            if error.code is ErrorCode.DUPLICATE_RESOURCE:
                break
            if not error.code.retriable:
                logger.error("first user %r not added: %s", command.name, error)
                return
            await asyncio.sleep(RETRY_SECONDS)
            continue
        logger.info("first user %r added", command.name)
        return
    if command.name in store.image.users.by_name:
        logger.info("first user %r exists already; keeping its password", command.name)
    else:
        logger.info("first user %r not added: the cluster has other users", command.name)


async def _wait_for_bootstrap(store: MetadataStore) -> None:
    bootstrapped = asyncio.Event()

    def check(_: Delta) -> None:
        if store.image.cluster_id:
            bootstrapped.set()

    store.subscribe(check)
    check(Delta(0))
    await bootstrapped.wait()
