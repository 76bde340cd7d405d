"""Creation of the TLS configuration of a node's ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronik.config import NodeConfig
from chronik.listeners import SASL_SSL, SSL
from chronik.server.listener_limits import ListenerLimits

if TYPE_CHECKING:
    from chronik.console.securing import HttpTls
    from chronik.server.securing import ListenerSecuring


def listener_securing(config: NodeConfig, limits: ListenerLimits) -> ListenerSecuring | None:
    """Return the TLS listeners, or None if no listener uses TLS.

    Raises:
        ConfigError: A config or a certificate file is invalid.
    """
    tls_listeners = [listener for listener in config.listeners if listener.protocol in (SSL, SASL_SSL)]
    if not tls_listeners:
        return None
    # Imported on demand: a node without TLS starts faster.
    from chronik.security.principal_rules import PrincipalRules
    from chronik.server.securing import ListenerSecuring, SecuredListener
    from chronik.tls.contexts import TlsContext
    from chronik.tls.settings import listener_settings

    secured = {}
    for listener in tls_listeners:
        settings = listener_settings(listener.name, listener.protocol, config.broker)
        rules = PrincipalRules(settings.principal_rules)
        context = TlsContext(f"listener {listener.name}", settings)
        secured[listener.name] = SecuredListener(context, rules if listener.protocol == SSL else None)
    return ListenerSecuring(secured, limits)


def http_tls(config: NodeConfig) -> HttpTls | None:
    """Return the TLS configuration of the HTTP server, or None.

    Raises:
        ConfigError: A certificate file is invalid.
    """
    if config.http is None or config.http_keystore is None:
        return None
    from chronik.console.securing import HttpTls

    return HttpTls(config.http_keystore, config.http_truststore)
