"""Creation of the TLS configuration of a node's ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronik.config import NodeConfig
from chronik.listeners import SASL_SSL, SSL
from chronik.server.listener_limits import ListenerLimits

if TYPE_CHECKING:
    from chronik.console.https import HttpTls
    from chronik.server.tls_listener import TlsListeners


def create_tls_listeners(config: NodeConfig, limits: ListenerLimits) -> TlsListeners | None:
    """Return the TLS listeners, or None if no listener uses TLS.

    Raises:
        ConfigError: A config or a certificate file is invalid.
    """
    tls_listeners = [listener for listener in config.listeners if listener.protocol in (SSL, SASL_SSL)]
    if not tls_listeners:
        return None
    # Imported on demand: a node without TLS starts faster.
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
    """Return the TLS configuration of the HTTP server, or None.

    Raises:
        ConfigError: A certificate file is invalid.
    """
    if config.http is None or config.http_keystore is None:
        return None
    from chronik.console.https import HttpTls

    return HttpTls(config.http_keystore, config.http_truststore)
