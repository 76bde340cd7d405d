"""The ports of a node that have TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronik.config import NodeConfig
from chronik.listeners import SASL_SSL, SSL
from chronik.server.listener_limits import ListenerLimits

if TYPE_CHECKING:
    from chronik.console.securing import HttpTls
    from chronik.server.securing import ListenerSecuring


def listener_securing(config: NodeConfig, limits: ListenerLimits) -> ListenerSecuring | None:
    """Returns None where no listener has TLS. Raises ConfigError, with what is wrong about a config or a file."""
    with_tls = [listener for listener in config.listeners if listener.protocol in (SSL, SASL_SSL)]
    if not with_tls:
        return None
    # Not before it is needed: a node without TLS starts sooner without this.
    from chronik.security.principal_rules import PrincipalRules
    from chronik.server.securing import ListenerSecuring, SecuredListener
    from chronik.tls.contexts import TlsContext
    from chronik.tls.settings import listener_settings

    secured = {}
    for listener in with_tls:
        settings = listener_settings(listener.name, listener.protocol, config.broker)
        rules = PrincipalRules(settings.principal_rules)
        context = TlsContext(f"listener {listener.name}", settings)
        secured[listener.name] = SecuredListener(context, rules if listener.protocol == SSL else None)
    return ListenerSecuring(secured, limits)


def http_tls(config: NodeConfig) -> HttpTls | None:
    """Returns None where the HTTP port has none. Raises ConfigError."""
    if config.http is None or config.http_keystore is None:
        return None
    from chronik.console.securing import HttpTls

    return HttpTls(config.http_keystore, config.http_truststore)
